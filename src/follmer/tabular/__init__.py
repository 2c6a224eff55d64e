"""A model of a data file: fitted, judged on rows that it has not seen, kept in one file."""

from follmer.tabular.files import header_of, load_model, read_header, save_model
from follmer.tabular.fitting import fit_table
from follmer.tabular.model import TableModel
from follmer.tabular.page import write_page
from follmer.tabular.words import described, verdict

__all__ = [
    "TableModel",
    "described",
    "fit_table",
    "header_of",
    "load_model",
    "read_header",
    "save_model",
    "verdict",
    "write_page",
]
