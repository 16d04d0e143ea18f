# Needs make (GNU make 3.81 of macOS will do) and Python 3.11 or newer; uses uv where it is installed.
# `make clean` before naming another PYTHON: a virtual environment that works is kept.

PYTHON ?= $(shell tools/python)
VENV := .venv
PINS := constraints/tests-newest.txt
ARGS :=

.PHONY: help demo test lint bench backends clean
.NOTPARALLEL:

help:
	@echo 'make demo      watch an agent fail, be told in one line, and recover'
	@echo 'make test      run the tests (ARGS="-k outbox" goes to pytest)'
	@echo 'make lint      ruff and mypy'
	@echo 'make bench     time the hooks beside the stock SDK'
	@echo 'make backends  build the real Jaeger that some tests need (5 to 10 minutes, once; needs Go)'
	@echo 'make clean     remove .venv and all that tools left here'

demo: $(VENV)/.installed-base
	$(VENV)/bin/otel-error-hygiene demo

test: $(VENV)/.installed-test
	$(VENV)/bin/python -m pytest $(ARGS)

lint: $(VENV)/.installed-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

bench: $(VENV)/.installed-base
	$(VENV)/bin/python benchmarks/hot_path.py $(ARGS)

backends:
	tools/backends/build

clean:
	rm -rf .venv build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Every group includes the base, so that a demo after the tests has nothing to install.
$(VENV)/.installed-%: pyproject.toml $(wildcard constraints/*.txt)
	@tools/venv "$(VENV)" "$(PINS)" $* $(PYTHON)
	@touch $(VENV)/.installed-base $@
