# `make demo` and `make test` set everything up by themselves: a virtual environment in $(VENV), built with the first
# Python >= 3.11 that is found (or PYTHON=...), versions pinned by constraints.txt. A second run starts at once.

VENV ?= .venv
PYTHON ?=
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt --build-constraint constraints.txt
PYTEST_ARGS ?=

.PHONY: help demo test check bench clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    the main job, on a simulated provider: no key needed (about a minute)"
	@echo "make test    the whole test suite"
	@echo "make check   ruff, mypy, pyright, import-linter, layout"
	@echo "make bench   the figures, as tables"
	@echo "make clean   remove the virtual environment and what tools left behind"

demo: $(VENV)/.demo
	@$(VENV)/bin/interlock demo

test: $(VENV)/.test
	@$(PY) -m pytest $(PYTEST_ARGS)

check: $(VENV)/.check $(VENV)/.test
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/mypy examples
	$(VENV)/bin/pyright --project pyproject.toml --pythonpath $(PY)
	$(VENV)/bin/lint-imports
	$(PY) -m pytest -q tests/test_layout.py
	$(PY) .ci/check_lengths.py

bench: $(VENV)/.bench
	@$(PY) -m benchmarks

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

# The environment itself. A system Python without ensurepip lends its own pip.
$(PY):
	@set -e; found=""; for python in $(or $(PYTHON),python3 python python3.13 python3.12 python3.11); do \
	  if "$$python" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then found="$$python"; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "Interlock needs Python 3.11 or later; none was found among: $(or $(PYTHON),python3 python python3.13 python3.12 python3.11)." >&2; \
	  echo "Install one, or say where it is: make test PYTHON=/path/to/python3" >&2; exit 1; \
	fi; \
	echo "Setting up $(VENV) with $$("$$found" --version) ..."; \
	"$$found" -m venv $(VENV) >/dev/null 2>&1 || { \
	  rm -rf $(VENV); "$$found" -m venv --without-pip $(VENV); "$$found" -m pip --python $(PY) install --quiet pip; }

$(VENV)/.pip: constraints.txt | $(PY)
	@$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt pip
	@touch $@

$(VENV)/.demo: pyproject.toml constraints.txt $(VENV)/.pip
	@$(PIP) -e '.[demo]'
	@touch $@

$(VENV)/.test $(VENV)/.check $(VENV)/.bench: $(VENV)/.%: pyproject.toml constraints.txt $(VENV)/.demo
	@$(PIP) --group $*
	@touch $@
