PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Each worker is busy by itself: BLAS with threads of its own only gets in the others' way.
PYTEST := OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

.PHONY: demo test verify docs lint format clean

# A stamp per set of extras: changing pyproject.toml installs again.
$(VENV)/plots.stamp: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[plots]'
	touch $@

$(VENV)/dev.stamp: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@ $(VENV)/plots.stamp

$(VENV)/docs.stamp: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	touch $@

demo: $(VENV)/plots.stamp
	$(BIN)/follmer demo

test: lint
	$(PYTEST)

# Everything, the long statistical runs included.
verify: lint
	$(PYTEST) -m "slow or not slow"

# The site, in site/: warnings are errors, and every link leads somewhere.
docs: $(VENV)/docs.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python docs/check.py site

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) site
