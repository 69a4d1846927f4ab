# Each target sets itself up in .venv from constraints.txt; nothing but Python 3.11 or newer, make and git is needed.
# PYTHON=python3.12 uses another Python, with an environment of its own (.venv-3.12).
PYTHON ?= python3
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
VENV := $(if $(filter file,$(origin PYTHON)),.venv,.venv-$(VERSION))
BIN := $(VENV)/bin
# constraints.txt was written with Python 3.11 and tried with 3.12 and 3.13; elsewhere pip chooses versions by itself
PINNED := $(if $(filter 3.11 3.12 3.13,$(VERSION)),--constraint constraints.txt)
# without compiling all of torch at once, most of which nobody imports
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile $(PINNED)
# torch is optional: tests that need it are skipped where it is absent. TORCH= leaves it out, TORCH=torch takes any build.
TORCH ?= $(if $(filter 3.11,$(VERSION)),torch==2.13.0)
COMMA := ,
EXTRAS := sklearn,flower,onnx,mlflow,fast,demo,audit,excel,databases,metrics,docs,plot,dev$(if $(TORCH),$(COMMA)torch$(COMMA)peers)
export OMP_NUM_THREADS ?= 1
# where it is set, every process that a test starts would compile all that it imports
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test lint types unit wheel wheel-test docs snapshots generated bench bench-maddock browser gallery reproduce e2e e2e-all e2e-flower databases many-jobs nvflare vantage6 fuzz properties soak clean
.DEFAULT_GOAL := test

demo: $(VENV)/.demo
	$(BIN)/fedcalib demo flights --out demo-report

# types are checked beside the tests: alone they would leave all cores but one idle
test: lint
	@$(MAKE) --no-print-directory -j 2 types unit

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.dev
	$(BIN)/mypy

# Coverage is enforced where torch is installed: without it, the code that uses torch counts as missed
COVERAGE := .coverage.json
# Not counted: numba compiles a loop of the first, and cannot where its lines are counted; the others need engines that
# cannot be installed beside Flower, and have targets of their own
UNCOUNTED := '*/metrics/binning.py,*/deploy/nvflare.py,*/deploy/vantage6.py,*/deploy/engines.py'
unit: $(VENV)/.dev
ifeq ($(TORCH),)
	$(BIN)/python -m pytest -q -n 2 --dist worksteal
else
	$(BIN)/python -m slipcover --source src/fedcalib --omit $(UNCOUNTED) --json --out $(COVERAGE) -m pytest -q -n 2 --dist worksteal
	$(BIN)/python -m tests.coverage $(COVERAGE) --at-least 96.5
endif

# The wheel in an empty environment, with whatever versions pip chooses
wheel: $(VENV)/.dev
	$(BIN)/python -m pytest -q tests/test_wheel.py

# The same for every Python that the package claims and this machine has, with sizes and times; `make test` has the first
wheel-test: $(VENV)/.dev
	FEDCALIB_WHEEL_PYTHONS="python3.11 python3.12 python3.13" $(BIN)/python -m pytest -q -s -rs tests/test_wheel.py

# Write tests/snapshots anew; WORDS=1 writes sentences only and leaves figures as they are
snapshots: $(VENV)/.dev
	$(BIN)/python -m tests.snapshots.rewrite $(if $(WORDS),--words)

# Write what follows from the code: stubs for type checkers, the page of public names, a stored file per new type, and
# what the notebooks show
generated: $(VENV)/.dev
	$(BIN)/python -m tests.test_registry
	$(BIN)/python -m tests.test_docs
	$(BIN)/python -m tests.compatibility.test_stored
	$(BIN)/python -m tests.test_notebooks

# The documentation site, into site/; a broken link or reference ends it
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

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

# Reports in a real browser: Debian's Chromium, Playwright and axe-core, each installed where it is missing. From then on
# `make test` has these tests too; without the three it skips them with a line
AXE := $(VENV)/node/node_modules/axe-core/axe.min.js
browser: $(VENV)/.browser $(AXE)
	$(BIN)/python -m pytest -q -s -m browser tests/browser

# The five reports of the gallery and their screenshots, in docs/gallery
gallery: $(VENV)/.browser
	$(BIN)/python -m docs.gallery.make

# A source's CSV files again, from nothing: make reproduce SOURCE=000 (to 004). QUICK=1 runs a part in minutes and compares
# it with the stored rows. MNIST=, FASHION= and CIFAR10= name directories of data
reproduce: $(VENV)/.bench
	$(BIN)/python -m benchmarks.reproduce $(SOURCE) $(if $(QUICK),--quick) $(if $(MNIST),--data mnist=$(MNIST)) $(if $(FASHION),--data fashion=$(FASHION)) $(if $(CIFAR10),--data cifar10=$(CIFAR10))

# Real processes on loopback, in a network namespace with nothing but loopback where the machine allows one
E2E := full
e2e: $(VENV)/.dev
	@if unshare -rn true 2>/dev/null; then echo "without any network:"; \
	FEDCALIB_E2E=$(E2E) unshare -rn sh -c 'ip link set lo up && exec $(BIN)/python -m pytest -q -m e2e tests/e2e'; \
	else echo "this machine forbids network namespaces; on loopback:"; \
	FEDCALIB_E2E=$(E2E) $(BIN)/python -m pytest -q -m e2e tests/e2e; fi
	FEDCALIB_E2E=$(E2E) $(BIN)/python -m pytest -q -m e2e tests/remote tests/engines

# The same, every fault, and Flower's own SuperNode; takes long
e2e-all:
	@$(MAKE) --no-print-directory e2e E2E=all

# The same on other versions of Flower: its wheel alone, ahead of the one that is installed
FLOWER := 1.41.0 1.42.0
e2e-flower: $(VENV)/.dev
	set -e; for version in $(FLOWER); do folder=$(VENV)/flower-$$version; \
	test -d $$folder || $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $$folder flwr==$$version; \
	echo "Flower $$version:"; PYTHONPATH=$$PWD/$$folder $(BIN)/python -m pytest -q -m e2e tests/e2e; done

# Records in a real PostgreSQL, from Debian's package, which is installed where it is absent; run by a user without rights
databases: $(VENV)/.dev
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || \
	{ test "$$(id -u)" = 0 && apt-get install -y --no-install-recommends postgresql || sudo apt-get install -y --no-install-recommends postgresql; }
	$(BIN)/python -m pytest -q tests/data/test_databases.py tests/data/test_omop.py tests/remote/test_streaming.py

# Two hundred jobs in a row on three sites, real processes: no growth in time, no leaks, exact ledgers
many-jobs: $(VENV)/.dev
	$(BIN)/python -m benchmarks.deployment.many_jobs

# Other engines, each in an environment of its own, since their requirements do not resolve together with Flower's
nvflare vantage6: $(VENV)/.python
	test -d $(VENV)-$@ || $(PYTHON) -m venv $(VENV)-$@
	$(VENV)-$@/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[$@]' 'pytest>=8,<10' 'hypothesis>=6.100,<7'
	$(VENV)-$@/bin/python -m pytest -q -o addopts=--import-mode=importlib tests/engines/test_$@*.py

# A million mutated messages for every reader and handler, 100,000 requests of a hostile server, 20,000 trials of an audit
fuzz: $(VENV)/.dev
	FEDCALIB_FUZZ=1000000 $(BIN)/python -m pytest -q tests/remote/test_fuzz.py tests/secagg/test_fuzz.py tests/test_wire.py
	FEDCALIB_FUZZ=100000 $(BIN)/python -m pytest -q -s tests/remote/test_hostile_server.py tests/remote/test_units.py

# Properties with ten times as many examples, other ones each time
properties: $(VENV)/.dev
	FEDCALIB_PROPERTIES=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal -m hypothesis

# A kill at every line of the release path, 500 at random lines, a thousand rounds of six processes on one budget
soak: $(VENV)/.dev
	FEDCALIB_SOAK=1 $(BIN)/python -m pytest -q -s tests/test_release_path.py

$(VENV)/.python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "fedcalib needs Python 3.11 or newer; say make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) 'pip>=25.3,<27'  # takes half of the processor time of the one that comes with Python 3.11
	touch $@

$(VENV)/.demo: $(VENV)/.python pyproject.toml constraints.txt
	$(PIP) --editable '.[demo]'
	touch $@

# torch comes first and by name, so that its small CPU build is taken where there is one and nothing pulls in a larger one
$(VENV)/.dev: $(VENV)/.python pyproject.toml constraints.txt
	$(if $(TORCH),$(PIP) $(TORCH))
	$(PIP) --editable '.[$(EXTRAS)]'
	touch $@

$(VENV)/.bench: $(VENV)/.dev
	$(PIP) --editable '.[$(EXTRAS),bench]'
	touch $@

$(VENV)/.browser: $(VENV)/.dev
	$(PIP) --editable '.[$(EXTRAS),browser]'
	command -v chromium || (apt-get update && apt-get install --yes --no-install-recommends chromium)
	touch $@

$(AXE): $(VENV)/.python
	npm install --silent --prefix $(VENV)/node axe-core@4.14.0

clean:
	rm -rf .venv .venv-* site demo-report .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage.json
