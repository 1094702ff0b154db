# make setup   a virtual environment in .venv with everything pinned; seconds when nothing has changed
# make test    set up, then the tests that are not slow        make test PYTEST_ARGS="-m slow"
# make reach   set up, then every class that is promised to pass, on every backend (long); the log is in build/reach
# make e2e     set up, then the workflows of examples/ as GitHub runs them, in containers (long): see tests/README.md
# make demo    set up, then the main job on a small repository built on the spot
# make lint    ruff, strict types, import directions; the action, its workflows and its image
# make docs    write the stage reference of docs/extending.md anew from the registry
# make lock    write requirements.lock anew from pyproject.toml

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
LOCK := requirements.lock
STAMP := $(VENV)/.complete
PYTEST_ARGS ?=
ACTIONS := action.yml composite/action.yml
WORKFLOWS := $(wildcard .github/workflows/*.yml examples/workflows/*.yml)
# PyTorch's own CPU index, where the default one would bring gigabytes of CUDA.
TORCH_INDEX ?=
TORCH := $(shell sed -n 's/^  "\(torch==[^"]*\)",$$/\1/p' pyproject.toml)
E2E := $(shell sed -n '/^e2e = \[/,/^\]/s/^  "\(.*\)",$$/\1/p' pyproject.toml)
E2E_ARGS ?=
# Twice quiet: errors only. What is installed is compiled afterwards, on all cores, where pip would use one.
PIP_FLAGS := --quiet --quiet --disable-pip-version-check --no-input --no-compile
INSTALL_TORCH = install $(PIP_FLAGS) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) $(TORCH)

.PHONY: setup test reach e2e demo lint docs golden lock
.DEFAULT_GOAL := setup

setup: $(STAMP)

$(STAMP): $(LOCK) pyproject.toml
	@command -v $(PYTHON) >/dev/null || \
	  { echo "error: there is no $(PYTHON); install Python 3.11 or newer, or name one: make PYTHON=python3.11"; exit 1; } >&2
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: $$($(PYTHON) --version) is too old, Python 3.11 or newer is needed: make PYTHON=python3.11"; exit 1; } >&2
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "error: $(PYTHON) has no venv module; install it (Debian and Ubuntu: apt install python3-venv)"; exit 1; } >&2
	@echo "Setting up $(VENV) (some minutes the first time) ..."
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip $(INSTALL_TORCH)
	@$(BIN)/python -m pip install $(PIP_FLAGS) -r $(LOCK)
	@$(BIN)/python -m pip install $(PIP_FLAGS) --no-deps --editable .
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true # some packages have files that are no Python
	@touch $@

# Two workers; then what starts processes and sends them signals, apart from the exports, a file a worker: tests share
# what a fixture ran, and those of one file may use the same users, ports or limits.
test: setup
ifeq ($(strip $(PYTEST_ARGS)),)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not slow and not process"
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m "process and not slow"
else
	$(BIN)/python -m pytest -m "not slow" $(PYTEST_ARGS)
endif

reach: setup
	HFEXPORT_REACH_OUT=build/reach $(BIN)/python -m pytest -m reach $(PYTEST_ARGS)

# What it needs beside the lock is pinned in pyproject.toml; Debian's programs it installs itself where it may.
e2e: setup
	$(BIN)/python -m pip install $(PIP_FLAGS) $(E2E)
	$(BIN)/python -m tests.e2e $(E2E_ARGS)

demo: setup
	@$(BIN)/python examples/demo/run_demo.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/check-jsonschema --builtin-schema vendor.github-actions $(ACTIONS)
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows $(WORKFLOWS)
	$(BIN)/actionlint $(WORKFLOWS)
	$(BIN)/zizmor --offline --no-progress --quiet $(ACTIONS) $(WORKFLOWS)
	$(BIN)/hadolint Dockerfile

docs: setup
	$(BIN)/hfexport-bot workarounds list --update docs/extending.md

golden: setup
	$(BIN)/python tests/hfexport_bot/reporting/test_golden.py

# torch first: resolved among the rest it could come with CUDA. The suffix of a local build does not belong in the lock.
lock:
	@set -e; work=$$(mktemp -d); trap 'rm -rf "$$work"' EXIT; \
	$(PYTHON) -m venv "$$work/venv"; \
	"$$work/venv/bin/pip" $(INSTALL_TORCH); \
	"$$work/venv/bin/pip" install $(PIP_FLAGS) --editable '.[dev]'; \
	{ sed -n '/^#/p' $(LOCK); \
	  "$$work/venv/bin/pip" freeze --exclude-editable | sed 's/+cpu$$//'; } > "$$work/lock"; \
	cp "$$work/lock" $(LOCK)
