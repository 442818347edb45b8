# The words of this house; `make help` lists them. Nothing here needs more than make, a shell and
# Python 3.11 or newer; only test-live wants heavy real parts, and installs what it can of them.
# `make run` installs what running needs, and no tool of development.

.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
PYTHON ?=
PIP := $(BIN)/python -m pip --disable-pip-version-check
LOCKED := .venv/.locked
INSTALLED := .venv/.installed
RUNNABLE := .venv/.runnable
SYNAPSE := .venv-synapse/.installed
BROWSER := requirements/browser/node_modules/.installed
CLIS := requirements/clis/node_modules/.installed
DOCS := .venv-docs/.installed
SOURCES := agentsup tests benchmarks scripts
NOT_HERE := not nightly and not slow and not bench and not live
# Whole folders that these leave out are not read by each worker.
NO_PROCESS := --ignore=tests/process --ignore=tests/live --ignore=tests/bench
PYTEST := $(BIN)/python -m pytest
GATE := $(BIN)/python scripts/gate.py

# Sets of strings iterate in an order drawn from this; a replayed seed needs the same one.
export PYTHONHASHSEED ?= 0
# Hundreds of processes of a run read the same modules; each would compile them for itself.
unexport PYTHONDONTWRITEBYTECODE

.NOTPARALLEL:
.PHONY: help setup run quick test nightly smoke-live test-live synapse browser tmux clis dist check fmt fmt-check lint types \
    layers unit process bytecode sim soak kill bench bench-record docs lock clean

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
	@touch $@ $(RUNNABLE)  # the lock of development has what running needs, in the same versions

$(RUNNABLE): requirements/runtime.txt pyproject.toml scripts/venv.sh
	@scripts/venv.sh $(PYTHON)
	@echo "run: installing what running needs; the first time it takes about a minute"
	@$(PIP) install --quiet --no-compile --require-hashes -r requirements/runtime.txt
	@$(BIN)/python -m compileall -q -j 0 .venv/lib || :
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

run: $(RUNNABLE) ## start the daemon on .home (git-ignored) and open a chat with it
	@$(BIN)/agentsup --home .home up

dist: $(RUNNABLE) ## build wheel and sdist into dist/: the same bytes from the same commit, wherever it is
	@scripts/dist.sh dist

# Each of these words runs its parts by scripts/gate.py, which tries failed tests once more and sums up.
quick: setup ## format, lint, layers, unit and contract tests
	@$(GATE) quick

test: setup ## quick, types, component tests, main removal proofs, 200 seeds, a smoke of real processes
	@$(MAKE) bytecode & $(GATE) test || code=$$?; wait; exit $${code:-0}

nightly: setup synapse browser tmux clis docs ## all the rest: kill suites, attacks, fuzz, 50,000 seeds, live tests; two hours
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
	@$(PYTEST) -q -n 5 --dist worksteal -m "not process and $(NOT_HERE)" $(NO_PROCESS) tests

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

test-live: setup synapse browser tmux clis docs ## tests against real parts: Synapse, headless Chromium, coding agents, the built wheel; builds the site
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

tmux: ## install tmux (Debian, as root), in which the new user's script types
	@scripts/live.sh tmux

clis: $(CLIS) ## install the command line agents of live tests (1 GB)
	@:

$(CLIS): requirements/clis/package-lock.json scripts/live.sh
	@scripts/live.sh clis
	@touch $@

sim: setup ## 100,000 seeds of the simulation (TEST_SIM_SEEDS to change), 5,000 interleavings of approvals
	@TEST_SIM_SEEDS=$${TEST_SIM_SEEDS:-100000} $(PYTEST) -q -n 2 -m "simulation and not live" --timeout=0 tests/simulation
	@TEST_APPROVALS=$${TEST_APPROVALS:-5000} $(PYTEST) -q -n 2 tests/component/agents/test_approval_races.py

# What `timeout` gives a line is several times what it takes on two cores: a hang ends there.
kill: setup synapse ## 300 SIGKILLs of a real daemon under mixed traffic, 100 under Matrix; all hostile servers, 20,000 odd requests, all planted files, 6 hostile histories, 40 storms without answers (each bounded in time)
	@TEST_KILLS=$${TEST_KILLS:-300} $(PYTEST) -q -m "process and not live" --timeout=0 tests/process
	@TEST_HOSTILE=all TEST_FUZZ=$${TEST_FUZZ:-20000} timeout 3600 $(PYTEST) -q --timeout=0 tests/process/test_hostile_peers.py tests/process/test_fuzz_api.py
	@TEST_PLANTED=all timeout 3600 $(PYTEST) -q --timeout=0 tests/process/test_planted_files.py tests/contract/engines/test_hanging_files.py
	@TEST_FLOW_SEEDS=$${TEST_FLOW_SEEDS:-1,2,3,4,5,6} TEST_FLOW_CALLS=$${TEST_FLOW_CALLS:-400} TEST_FLOW_ROUNDS=$${TEST_FLOW_ROUNDS:-2} timeout 3600 $(PYTEST) -q --timeout=0 tests/component/proofs/test_proofs.py -k "test_the_promise_holds and reach"
	@TEST_STORMS=$${TEST_STORMS:-40} timeout 3600 $(PYTEST) -q --timeout=0 tests/component/agents/test_unanswered_storms.py
	@TEST_TELEGRAM_EACH=2000 $(PYTEST) -q tests/component/channels/telegram/test_traffic.py
	@TEST_KILLS=$${TEST_MATRIX_KILLS:-100} $(PYTEST) -q -m live tests/live/test_matrix_kills.py

soak: setup ## 200,000 messages to one daemon: each answered once, memory level (TEST_SOAK to change)
	@TEST_SOAK=$${TEST_SOAK:-200000} timeout 7200 $(PYTEST) -q -s --timeout=0 tests/process/test_soak.py

bench: setup ## measure; prints a table and writes JSON
	@$(BIN)/python -m benchmarks

bench-record: setup ## measure and write docs/performance.md
	@$(BIN)/python -m benchmarks --record

docs: $(DOCS) ## build the site from docs/ into build/site; a link that leads nowhere is an error
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet

$(DOCS): $(LOCKED) requirements/docs.txt
	@echo "docs: installing MkDocs into .venv-docs"
	@$(BIN)/python -m venv --clear .venv-docs
	@.venv-docs/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r requirements/docs.txt
	@touch $@

lock: ## write requirements/*.txt anew from pyproject.toml (needs uv)
	@scripts/lock.sh

clean: ## remove the environment and all caches; .home stays
	rm -rf .venv .venv-synapse .venv-docs requirements/browser/node_modules requirements/clis/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find agentsup tests -name __pycache__ -type d -prune -exec rm -rf {} +
