"""What a run of the experiments shows: a table for the terminal and a page for the browser."""

from follmer.paper.report.page import write_page
from follmer.paper.report.table import comparison

__all__ = ["comparison", "write_page"]
