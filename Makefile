# Everything sets itself up: a virtual environment of its own, with the versions CI was last green with.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: demo test lint types docs tests slow format clean

demo: $(READY)
	$(BIN)/zerosum demo --out zerosum-demo

test: lint types docs tests

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

docs: $(READY)
	$(BIN)/mkdocs build --strict --quiet --site-dir build/docs

tests: $(READY)
	$(BIN)/pytest -n 2 --dist worksteal

slow: $(READY)
	$(BIN)/pytest -m slow

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(READY): pyproject.toml requirements/ci.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/ci.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(READY)

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache
