"""The paper again: its experiments, its published numbers, a report that shows both."""
