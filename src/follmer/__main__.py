"""`python -m follmer`."""

from follmer.cli import app

app()
