# Two commands matter: `make demo` and `make test`. Both set everything up from a bare checkout.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed

.PHONY: install demo test test-all bench check docs

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "vfsl needs Python 3.11 or newer; set PYTHON=python3.12, for example."; exit 1; }
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev,deep,deploy]'
	@touch $@

demo: $(INSTALLED)
	$(BIN)/vfsl demo

test: $(INSTALLED)
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup -m "not slow"

test-all: $(INSTALLED)
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup

bench: $(INSTALLED)
	$(BIN)/vfsl bench run all

check: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(INSTALLED)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "The site is in site/; open site/index.html, or run $(BIN)/mkdocs serve."
