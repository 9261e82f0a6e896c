# Everything that is done with a checkout. `make setup` needs python3 and nothing else; the other targets set up what is
# missing by themselves, and are quick when nothing is.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
JARS := .cache/ivy/.fetched

# Several pytest runs follow each other, so that the quick ones fail first. So many processes share the tests of each, and have
# servers of their own; with WORKERS=0 there is one.
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# The tests start hundreds of Python processes; without compiled modules each takes twice as long to begin.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
# The order is meant: what is quick fails first.
.NOTPARALLEL:
.PHONY: help setup demo test test-wheel test-unit test-contract test-integration test-faults lint docs reference bench constraints clean

help:
	@echo "make setup      .venv with everything installed, and Spark's jars in .cache/ivy"
	@echo "make demo       load real data, change it, and look at it"
	@echo "make test       everything that CI runs"
	@echo "make test-unit  the tests that need neither a server nor Spark"
	@echo "make lint       ruff, mypy, import-linter"
	@echo "make docs       the documentation, in site/"
	@echo "make reference  the pages of the command line and of the errors, after a change of either"
	@echo "make bench      the benchmarks"

setup: $(INSTALLED) $(JARS)

$(INSTALLED): pyproject.toml constraints.txt tools/bootstrap.py
	$(PYTHON) tools/bootstrap.py
	@touch $@

$(JARS): $(INSTALLED) src/lakeward/spark/toolchain.py
	@echo "set-up: Spark's jars into .cache/ivy (65 MB)"
	@$(BIN)/python -m lakeward.spark.toolchain
	@touch $@

demo: setup
	$(BIN)/lakeward demo

test: lint test-wheel test-unit test-contract test-integration test-faults docs

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The wheel in an empty environment: what is installed for development must not hide what is not named as a dependency.
test-wheel: $(INSTALLED) $(JARS)
	$(BIN)/python tools/check_wheel.py

test-unit: $(INSTALLED)
	$(PYTEST) tests/unit

test-contract: $(INSTALLED)
	$(PYTEST) tests/contract

test-integration: $(INSTALLED) $(JARS)
	$(PYTEST) tests/integration

test-faults: $(INSTALLED) $(JARS)
	$(PYTEST) tests/faults

docs: $(INSTALLED)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "docs: built in site/"

# After a change of the command line or of the errors; a test says when.
reference: $(INSTALLED)
	$(BIN)/python tools/reference.py

bench: setup
	@for each in $(wildcard benchmarks/bench_*.py); do echo "== $$each"; $(BIN)/python "$$each" || exit 1; done

# After a change of the dependencies. The file holds versions alone, so that it works with any package index.
constraints: $(INSTALLED)
	UV_PYTHON_DOWNLOADS=never $$(command -v uv || echo .tools/bin/uv) pip compile pyproject.toml --all-extras --group dev \
	  --universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url -q -o constraints.txt

clean:
	rm -rf $(VENV) .tools .cache site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
