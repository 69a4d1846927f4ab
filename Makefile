# Each target sets itself up in .venv from constraints.txt; nothing but Python 3.11, make and git is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
export OMP_NUM_THREADS ?= 1

.PHONY: demo test lint types unit snapshots bench bench-maddock e2e fuzz clean
.DEFAULT_GOAL := test

demo: $(VENV)/.demo
	$(BIN)/fedcalib demo --out demo-report

test: lint types unit

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.dev
	$(BIN)/mypy

unit: $(VENV)/.dev
	$(BIN)/python -m pytest -q -n 2 --dist worksteal

# Write tests/snapshots anew; WORDS=1 writes sentences only and leaves figures as they are
snapshots: $(VENV)/.dev
	$(BIN)/python -m tests.snapshots.rewrite $(if $(WORDS),--words)

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

# FASHION=DIRECTORY adds Fashion-MNIST, as Debian packages it
bench-maddock: $(VENV)/.bench
	$(BIN)/python -m benchmarks.maddock.run $(if $(FASHION),--fashion $(FASHION))
	$(BIN)/python -m benchmarks.maddock.audit
	$(BIN)/python -m benchmarks.maddock.million
	$(BIN)/python -m benchmarks.maddock.clients
	$(BIN)/python -m benchmarks.maddock.floors
	$(BIN)/python -m benchmarks.maddock.choices $(if $(FASHION),--fashion $(FASHION))
	$(BIN)/python -m benchmarks.maddock.figures
	$(BIN)/python -m benchmarks.maddock.tables

# Real processes on loopback, in a network namespace with nothing but loopback where the machine allows one
e2e: $(VENV)/.dev
	@if unshare -rn true 2>/dev/null; then echo "without any network:"; \
	FEDCALIB_E2E=full unshare -rn sh -c 'ip link set lo up && exec $(BIN)/python -m pytest -q -m e2e tests/e2e'; \
	else echo "this machine forbids network namespaces; on loopback:"; \
	FEDCALIB_E2E=full $(BIN)/python -m pytest -q -m e2e tests/e2e; fi
	$(BIN)/python -m pytest -q -m e2e tests/remote

# A million mutated messages for every reader and handler
fuzz: $(VENV)/.dev
	FEDCALIB_FUZZ=1000000 $(BIN)/python -m pytest -q tests/remote/test_fuzz.py tests/secagg/test_fuzz.py tests/test_wire.py

$(VENV)/.python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "fedcalib needs Python 3.11 or newer; say make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.demo: $(VENV)/.python pyproject.toml constraints.txt
	$(PIP) --editable '.[demo]'
	touch $@

# torch is pinned by name first, so that its small CPU build is taken and nothing pulls in a larger one
$(VENV)/.dev: $(VENV)/.python pyproject.toml constraints.txt
	$(PIP) torch==2.13.0
	$(PIP) --editable '.[sklearn,torch,flower,onnx,fast,demo,dev]'
	touch $@

$(VENV)/.bench: $(VENV)/.dev
	$(PIP) --editable '.[sklearn,torch,flower,onnx,fast,demo,dev,bench]'
	touch $@

clean:
	rm -rf $(VENV) demo-report .pytest_cache .mypy_cache .ruff_cache .hypothesis
