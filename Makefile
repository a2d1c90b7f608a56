# `make demo` and `make test` set up what they need: python3 (3.11 or later) and a network for pip are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.core
DEV := $(VENV)/.dev

.PHONY: demo test check format clean

demo: $(CORE)
	$(BIN)/policygen run cartpole --seed 0

test: $(DEV)
	$(BIN)/python -m pytest -n 2 --dist loadfile

check: $(DEV)
	$(BIN)/ruff format --check policygen tests
	$(BIN)/ruff check policygen tests
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --dist loadfile

format: $(DEV)
	$(BIN)/ruff format policygen tests
	$(BIN)/ruff check --fix policygen tests

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "policygen needs Python 3.11 or later; run: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

$(CORE): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

$(DEV): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $(CORE) $@
