# `make demo` and `make test` set everything up by themselves: a virtual environment in $(VENV), built with the first
# Python >= 3.11 that is found (or PYTHON=...), versions pinned by constraints.txt. A second run starts at once.

VENV ?= .venv
PYTHON ?=
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt --build-constraint constraints.txt
PYTEST_ARGS ?= -n auto
AIMOCK := @copilotkit/aimock@1.43.0

.PHONY: help demo test test-ready test-local-model check check-ready check-form check-mypy check-pyright bench clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    the main job, on a simulated provider: no key needed (about a minute)"
	@echo "make test    the whole test suite"
	@echo "make test-local-model   the tests against a small real model; it compiles llama.cpp the first time (15 minutes)"
	@echo "make check   ruff, mypy, pyright, import-linter, layout"
	@echo "make bench   the figures, as tables"
	@echo "make clean   remove the virtual environment and what tools left behind"

demo: $(VENV)/.demo
	@$(VENV)/bin/interlock demo

test: test-ready
	@$(PY) -m pytest $(PYTEST_ARGS)

test-ready: $(VENV)/.test $(VENV)/.third-party $(VENV)/.aimock

# Serves the model, runs the tests against it and stops it; the environment of the server is its own.
test-local-model: $(VENV)/.test $(VENV)/.local-model
	@$(PY) -m pytest -m local_model tests/local_model $(PYTEST_ARGS)

# Its parts can run side by side: make -j 2 check.
check: check-form check-mypy check-pyright

check-ready: $(VENV)/.check

check-form: check-ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports
	$(PY) -m pytest -q tests/test_layout.py
	$(PY) .ci/check_lengths.py
	$(PY) .ci/check_listings.py

check-mypy: check-ready
	$(VENV)/bin/mypy
	$(VENV)/bin/mypy examples

check-pyright: check-ready
	$(VENV)/bin/pyright --project pyproject.toml --pythonpath $(PY)

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

$(VENV)/.check: $(VENV)/.test

# Servers that nobody here wrote, for tests/clients/third_party: in an environment of their own inside this one, because
# their pins are not ours. Without npm the tests that need it are skipped, except in CI.
THIRD := $(VENV)/third-party

$(VENV)/.third-party: pyproject.toml tests/clients/third_party/constraints.txt $(VENV)/.pip
	@echo "Setting up $(THIRD): servers to test against ..."
	@$(PY) -m venv --without-pip --clear $(THIRD)
	@$(PY) -m pip --python $(THIRD)/bin/python install --quiet --disable-pip-version-check \
	  -c tests/clients/third_party/constraints.txt --group third-party
	@touch $@

$(VENV)/.aimock: Makefile $(VENV)/.third-party
	@if ! command -v npm >/dev/null 2>&1; then \
	  echo "npm was not found: the tests against $(AIMOCK) will be skipped" >&2; \
	elif timeout 180 npm install --prefix $(THIRD) --no-save --no-package-lock --no-audit --no-fund --loglevel=error \
	  --fetch-timeout=30000 --fetch-retries=1 $(AIMOCK) >/dev/null; then touch $@; \
	else echo "npm could not install $(AIMOCK): the tests against it will be skipped" >&2; fi

# Not for the very processor that compiles it: a virtual one may be named after instructions that it does not have.
$(VENV)/.local-model: pyproject.toml tests/local_model/constraints.txt $(VENV)/.pip
	@echo "Setting up $(VENV)/local-model: compiling llama.cpp takes about 15 minutes ..."
	@$(PY) -m venv --without-pip --clear $(VENV)/local-model
	@CMAKE_ARGS=-DGGML_NATIVE=OFF $(PY) -m pip --python $(VENV)/local-model/bin/python install \
	  --quiet --disable-pip-version-check -c tests/local_model/constraints.txt --group local-model
	@touch $@
