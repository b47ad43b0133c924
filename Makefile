# make lab    install everything and open JupyterLab on a copy of the quickstart notebook
# make test   install everything and run the tests, browser tests included
# make long   run the longest tests, further cases of many tests, and more random examples; CI runs an eighth of them
# make quick  run the tests without a browser, worker process or compiler; install nothing
#
# All of these but `make quick` begin with `make setup`, which makes .venv and does nothing the second time. TORCH=2.12
# chooses another PyTorch, with the versions of constraints/torch-2.12.txt, in a separate environment, .venv-2.12. CPU=1
# chooses PyTorch's CPU build, which has no CUDA libraries and no nvFuser, in .venv-cpu.

# The tested PyTorch that `make setup` installs. Its environment is .venv.
DEFAULT_TORCH := 2.10
TORCH ?= $(DEFAULT_TORCH)
CONSTRAINTS := constraints/torch-$(TORCH).txt
CPU ?=
# A profile may export CPU with another meaning.
CPU_BUILD := $(filter 1,$(CPU))
OTHER_TORCH := $(filter-out $(DEFAULT_TORCH),$(TORCH))
VENV := .venv$(if $(OTHER_TORCH),-$(TORCH))$(if $(CPU_BUILD),-cpu)
# What `make setup` downloads, and what the environment then takes.
SIZE = $(if $(CPU_BUILD),size not measured,$(shell sed -n 's/^\# Size: //p' $(CONSTRAINTS)))
# Include nvFuser if there is an nvFuser wheel for this PyTorch.
EXTRAS = lab,$(if $(CPU_BUILD),,$(shell grep -qs '^nvfuser-' $(CONSTRAINTS) && echo nvfuser,))test
NO_CPU_BUILD := make setup: CPU=1 needs uv, and the package index with the CPU builds of PyTorch. If uv could not fetch \
    them, use a machine that reaches this index, or leave out CPU=1, which installs the builds with CUDA libraries.
BIN := $(VENV)/bin
STAMP := $(VENV)/.workbench-setup
SHELL := /bin/bash
.DEFAULT_GOAL := help

# By default, JupyterLab refuses to run as root. A container often has no other user.
ALLOW_ROOT := $(shell [ "$$(id -u)" = 0 ] && echo --allow-root)
LAB_ARGS ?=
TESTS ?=
PYTEST_ARGS ?=
GPU_ARGS ?=
NAMES ?=
# Number of processes that share the tests; see tests/distribution.py. Two processes suit two cores.
TEST_WORKERS ?= 2
PYTEST = $(BIN)/python -m pytest --numprocesses $(TEST_WORKERS) --no-loadscope-reorder

.PHONY: help setup lab copies test long quick gpu-check lint format bench notebooks browser extensions docs clean

help:
	@echo "make lab     JupyterLab on a copy of the quickstart  (LAB_ARGS=... for jupyter lab)"
	@echo "make test    the tests                               (TESTS=... for some, TEST_WORKERS=... processes, PYTEST_ARGS=... for pytest)"
	@echo "make long    the longest tests, and further cases    (likewise; CI runs an eighth)"
	@echo "make quick   tests without browser, worker, compiler (likewise; installs nothing, except for another TORCH)"
	@echo "               with TORCH=2.12, tests run with that PyTorch, in .venv-2.12   (constraints/ has the versions)"
	@echo "               with CPU=1, PyTorch's CPU build, in .venv-cpu"
	@echo "make gpu-check  checks and measurements on a GPU    (GPU_ARGS=... for thunder-workbench gpu-check)"
	@echo "make lint    ruff and mypy"
	@echo "make format  let ruff fix and format the code"
	@echo "make bench   the benchmarks                          (PYTEST_ARGS=... for pytest)"
	@echo "make notebooks   run notebooks/sources, and write the notebooks with outputs   (NAMES=... for some)"
	@echo "make extensions  rebuild widgets and JupyterLab extensions (needs Node; the repository has built files)"
	@echo "make docs    docs/ as pages in build/docs; a warning or a broken link is an error"
	@echo "make setup   make .venv only"
	@echo "make clean   remove .venv                            (or the environment of TORCH=..., CPU=1)"

setup: $(STAMP)

# Use `uv --version`, not `command -v uv`: the PATH may have a version manager's shim although uv is not installed. If uv
# is missing, pip installs it into the environment, because uv takes seconds and pip takes minutes. If that fails, pip
# installs everything. uv takes the python3.12 on the PATH, and downloads one only if there is none. CPU=1 needs uv, which
# finds the CPU builds. The installation copies the extensions' bundles.
$(STAMP): pyproject.toml constraints/shared.txt $(CONSTRAINTS) $(wildcard extensions/*/labextension/built.json)
	@set -euo pipefail; \
	echo "make setup: PyTorch $(TORCH)$(if $(CPU_BUILD), without CUDA libraries) in $(VENV): $(SIZE). Files in the cache of uv or pip are not downloaded again."; \
	$(if $(CPU_BUILD),trap '[ $$? = 0 ] || echo "$(NO_CPU_BUILD)" >&2' EXIT;) \
	what=(--constraint $(CONSTRAINTS) --editable '.[$(EXTRAS)]' $(if $(CPU_BUILD),--torch-backend cpu)); \
	if uv --version >/dev/null 2>&1; then \
	    [ -x $(BIN)/python ] || uv venv --python "$$(python3.12 -c 'import sys; print(sys.executable)' 2>/dev/null || echo 3.12)" $(VENV); \
	    uv pip install --python $(BIN)/python "$${what[@]}"; \
	else \
	    if [ ! -x $(BIN)/python ]; then \
	        python3.12 --version >/dev/null 2>&1 \
	            || { echo "make setup: needs uv or python3.12 on the PATH, and found neither" >&2; exit 1; }; \
	        python3.12 -m venv $(VENV); \
	    fi; \
	    $(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip; \
	    { $(BIN)/python -m pip install --quiet uv \
	        && $(BIN)/uv pip install --python $(BIN)/python "$${what[@]}"; } \
	        || { [ -z "$(CPU_BUILD)" ] && $(BIN)/python -m pip install "$${what[@]}"; }; \
	fi
	@touch $@

constraints/torch-%.txt:
	@echo "TORCH=$*: legal: $(patsubst constraints/torch-%.txt,%,$(wildcard constraints/torch-*.txt)), which have a file in constraints/" >&2
	@exit 1

# Copy the notebooks to a folder that git ignores, so that changes of the copies, and files that they write, do not
# change the checkout. An existing copy is not replaced.
COPIES := playground

copies:
	@mkdir -p $(COPIES)/lessons $(COPIES)/stories
	@for notebook in notebooks/quickstart.ipynb notebooks/lessons/*.ipynb notebooks/stories/*.ipynb; do \
	    copy="$(COPIES)/$${notebook#notebooks/}"; [ -e "$$copy" ] || cp "$$notebook" "$$copy"; \
	done

# Give the notebook as the default address, not as an argument, so that the printed address also opens the notebook.
lab: setup copies
	$(BIN)/jupyter-lab $(ALLOW_ROOT) --LabApp.default_url=/lab/tree/$(COPIES)/quickstart.ipynb $(LAB_ARGS)

test: setup browser
	$(PYTEST) -m "not long" $(PYTEST_ARGS) $(TESTS)

long: setup browser
	HYPOTHESIS_PROFILE=long $(PYTEST) -m "long or drawn" $(PYTEST_ARGS) $(TESTS)

# For another PyTorch, make its environment first, because no other target makes it.
quick: $(if $(OTHER_TORCH)$(CPU_BUILD),setup)
	@[ -x $(BIN)/python ] || { echo "make quick: no $(VENV); make setup makes it" >&2; exit 1; }
	$(PYTEST) -m "not slow and not browser and not long" $(PYTEST_ARGS) $(TESTS)

# Install nothing, because a borrowed machine may not reach a package registry.
gpu-check:
	@if [ -x $(BIN)/python ]; then python=$(BIN)/python; else python=python3; fi; \
	PYTHONPATH="$$PWD$${PYTHONPATH:+:$$PYTHONPATH}" $$python -m workbench.cli gpu-check $(GPU_ARGS)

lint: setup
	@failed=0; \
	for check in "ruff check ." "ruff format --check ." mypy; do \
	    echo "$$check"; $(BIN)/$$check || failed=1; \
	done; \
	exit $$failed

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	$(BIN)/python -m pytest --benchmark-columns=min,median,max,rounds benchmarks $(PYTEST_ARGS)

# Execute each source under notebooks/sources, and write the notebook that is committed.
notebooks: setup
	$(BIN)/python -m tests.notebooks.build $(NAMES)

# Find a browser for the tests: $$WORKBENCH_CHROMIUM, or one on the PATH, or install Debian's package if permitted.
# Without a browser, the browser tests are skipped; in CI (CI=true) they fail.
browser: setup
	@set -euo pipefail; \
	if ! $(BIN)/python -m tests.browser.chromium >/dev/null 2>&1 \
	    && [ -z "$${WORKBENCH_CHROMIUM:-}" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    export DEBIAN_FRONTEND=noninteractive; \
	    { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; } </dev/null \
	        || echo "make browser: Debian's chromium package could not be installed" >&2; \
	fi; \
	$(BIN)/python -m tests.browser.chromium || [ "$${CI:-}" != true ]

# Run this after a change of a widget or an extension. A test fails if it was forgotten.
extensions: setup
	$(BIN)/python extensions/widgets/build.py
	$(BIN)/python extensions/trace-view/build.py
	$(BIN)/python extensions/runs-panel/build.py
	node --test tests/modules/*.test.mjs

# This needs no network. The variable switches off a notice that mkdocs-material prints about itself.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/docs/index.html"

clean:
	rm -rf $(VENV)
