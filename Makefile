# The words of this house; `make help` lists them. Nothing here needs more than make, a shell and
# Python 3.11 or newer; only test-live wants heavy real parts, and installs what it can of them.

.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
PYTHON ?=
PIP := $(BIN)/python -m pip --disable-pip-version-check
LOCKED := .venv/.locked
INSTALLED := .venv/.installed
SYNAPSE := .venv-synapse/.installed
BROWSER := requirements/browser/node_modules/.installed
CLIS := requirements/clis/node_modules/.installed
SOURCES := agentsup tests benchmarks scripts
NOT_HERE := not nightly and not slow and not bench and not live
PYTEST := $(BIN)/python -m pytest
GATE := $(BIN)/python scripts/gate.py

# Sets of strings iterate in an order drawn from this; a replayed seed needs the same one.
export PYTHONHASHSEED ?= 0
# Hundreds of processes of a run read the same modules; each would compile them for itself.
unexport PYTHONDONTWRITEBYTECODE

.NOTPARALLEL:
.PHONY: help setup run quick test nightly smoke-live test-live synapse browser clis check fmt fmt-check lint types layers unit \
    process bytecode sim kill bench lock clean

help: ## list the words
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(INSTALLED) ## create .venv and install everything from the hashed lock
	@:

$(LOCKED): requirements/dev.txt scripts/venv.sh
	@scripts/venv.sh $(PYTHON)
	@echo "setup: installing the locked packages"
	@$(PIP) install --quiet --no-compile --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m compileall -q -j 0 .venv/lib || :  # what does not compile is told where it is used
	@touch $@

$(INSTALLED): $(LOCKED) pyproject.toml
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

run: setup ## start the daemon on .home (git-ignored) and open a chat with it
	@$(BIN)/agentsup --home .home up

# Each of these words runs its parts by scripts/gate.py, which tries failed tests once more and sums up.
quick: setup ## format, lint, layers, unit and contract tests
	@$(GATE) quick

test: setup ## quick, types, component tests, main removal proofs, 200 seeds, a smoke of real processes
	@$(MAKE) bytecode & $(GATE) test || code=$$?; wait; exit $${code:-0}

nightly: setup synapse browser clis ## all the rest: kill suites, attacks, fuzz, 100,000 seeds, live tests; hours
	@$(GATE) nightly

smoke-live: setup synapse browser ## one conversation over Synapse and one flow of the page in Chromium
	@$(GATE) smoke-live

check: fmt-check lint layers types ## format, lint, layers and types, without tests

fmt: setup ## rewrite to the house format
	@$(BIN)/ruff format $(SOURCES)
	@$(BIN)/ruff check --fix $(SOURCES)

fmt-check: setup
	@$(BIN)/ruff format --check $(SOURCES)

lint: setup ## ruff
	@$(BIN)/ruff check $(SOURCES)

layers: setup ## import contracts
	@$(BIN)/lint-imports --no-logo

types: setup ## mypy, strict
	@$(BIN)/mypy --num-workers 2 $(SOURCES)

# Most of them wait for loopback answers more than they compute, so five share two cores well.
unit: setup ## unit, contract, component, simulation: whatever may run side by side
	@$(PYTEST) -q -n 5 --dist worksteal -m "not process and $(NOT_HERE)" tests

# Nothing runs beside them, because they start real processes and watch the clock; but a test with
# its processes computes for less than half of its time, so four share two cores well.
# Exit code 5 is "nothing selected".
process: setup ## tests that start real processes, four side by side
	@$(PYTEST) -q -n 4 --dist worksteal -m "process and $(NOT_HERE)" tests/process || [ $$? -eq 5 ]

# Tests are rewritten by pytest before they are compiled, so it has to collect them. What is wrong
# with one is told by the run itself.
bytecode: setup
	@$(BIN)/python -m compileall -q -j 0 agentsup
	@$(PYTEST) -q --collect-only tests >/dev/null 2>&1 || :

test-live: setup synapse browser clis ## tests against real parts: Synapse, headless Chromium, coding agents
	@$(PYTEST) -q -m live tests

synapse: $(SYNAPSE) ## install Synapse into .venv-synapse from its hashed lock
	@:

$(SYNAPSE): $(LOCKED) requirements/synapse.txt scripts/live.sh
	@scripts/live.sh synapse
	@touch $@

browser: $(BROWSER) ## install Chromium (Debian, as root) and what pages are checked with
	@:

$(BROWSER): requirements/browser/package-lock.json scripts/live.sh
	@scripts/live.sh browser
	@touch $@

clis: $(CLIS) ## install the command line agents of live tests (1 GB)
	@:

$(CLIS): requirements/clis/package-lock.json scripts/live.sh
	@scripts/live.sh clis
	@touch $@

sim: setup ## 100,000 seeds of the simulation (AGENTSUP_SIM_SEEDS to change), 5,000 interleavings of approvals
	@AGENTSUP_SIM_SEEDS=$${AGENTSUP_SIM_SEEDS:-100000} $(PYTEST) -q -n 2 -m "simulation and not live" --timeout=0 tests/simulation
	@AGENTSUP_APPROVALS=$${AGENTSUP_APPROVALS:-5000} $(PYTEST) -q -n 2 tests/component/agents/test_approval_races.py

kill: setup synapse ## all hostile servers, 20,000 odd requests, 500 SIGKILLs of a real daemon, 300 under tasks, 300 under Telegram traffic, 100 under Matrix
	@AGENTSUP_KILLS=$${AGENTSUP_KILLS:-500} $(PYTEST) -q -m "process and not live" --timeout=0 tests/process
	@AGENTSUP_HOSTILE=all AGENTSUP_FUZZ=$${AGENTSUP_FUZZ:-20000} $(PYTEST) -q --timeout=0 tests/process/test_hostile_peers.py tests/process/test_fuzz_api.py
	@AGENTSUP_TELEGRAM_EACH=2000 $(PYTEST) -q tests/component/channels/telegram/test_traffic.py
	@AGENTSUP_KILLS=$${AGENTSUP_MATRIX_KILLS:-100} $(PYTEST) -q -m live tests/live/test_matrix_kills.py

bench: setup ## measure; prints a table and writes JSON
	@$(BIN)/python -m benchmarks

lock: ## write requirements/*.txt anew from pyproject.toml (needs uv)
	@scripts/lock.sh

clean: ## remove the environment and all caches; .home stays
	rm -rf .venv .venv-synapse requirements/browser/node_modules requirements/clis/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find agentsup tests -name __pycache__ -type d -prune -exec rm -rf {} +
