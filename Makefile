# `make demo` and `make test` set everything up in .venv; nothing outside this folder is changed,
# but for Debian packages that `make browser` installs where it may.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml setup.py constraints.txt $(wildcard cython/*)
FAULT ?= reduction-order

.PHONY: help demo test lab check format bench browser wheel clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 12

# pip's own resolver is asked once; the stamp is younger than every file that could change the answer.
$(VENV)/ready: $(SOURCES)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[train,formats,lab,test]'
	touch $@

demo: $(VENV)/ready  ## train twice on 4 processes, say where the runs part: FAULT=reduction-order
	$(BIN)/reprolab demo --fault $(FAULT)

test: $(VENV)/ready browser  ## run all tests
	$(BIN)/python -m pytest

lab: $(VENV)/ready  ## open JupyterLab at the tour
	$(BIN)/reprolab lab notebooks/01_tour.ipynb

check: $(VENV)/ready  ## lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/ready  ## let ruff put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/ready  ## measure the kernels, the capture and the store against their peers
	$(BIN)/python benchmarks/kernels.py
	$(BIN)/python benchmarks/capture.py
	$(BIN)/python benchmarks/store.py

# Tests that need a browser skip with a reason where there is none and none can be installed.
browser:  ## install Chromium from Debian's packages, where it is missing and may be installed
	@if command -v chromium >/dev/null; then :; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  apt-get update --quiet=2 && apt-get install --quiet=2 --yes --no-install-recommends chromium fonts-dejavu-core; \
	else echo 'Chromium is missing and cannot be installed here; the browser tests will be skipped'; fi

wheel: $(VENV)/ready  ## build the sdist and the wheel into dist/
	$(BIN)/python -m build

clean:  ## remove the environment and everything built
	rm -rf $(VENV) build dist artefacts reprolab.egg-info reprolab/kernels/*.so
