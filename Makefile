# Every target works from a bare clone: the only needs are make and Python 3.11 or newer.
SHELL := /bin/bash
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
COMPOSE := docker compose
BUILD := --build
HELM := helm
VERSION = $(shell sed -n 's/^VERSION = "\(.*\)"/\1/p' tidelog/version.py)
PYTHON_FOLDERS := tidelog faults demo bench docs examples tests
FAST := $(addprefix tests/unit/,protocol wire client faults $(addprefix broker/,cluster configuration coordinator fault_injection handlers \
	replicas security storage))
# The tests start hundreds of Python processes: without bytecode each compiles again all that it imports.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help install demo test lint types tests unit coverage matrix serve simulation etcd faults cluster upgrades moves conformance frameworks clients container kubernetes spark bench screenshots docs format up upgrade down lock release sbom images clean

help: ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(STAMP) ## make .venv from the lock file

$(STAMP): requirements.lock pyproject.toml tidelog/version.py
	@test -n "$(PYTHON)" || { echo "Tidelog needs Python 3.11 or newer on PATH; set PYTHON=/path/to/python to name one."; exit 1; }
	@echo "==> making $(VENV) with $$($(PYTHON) --version) (the first time downloads about 600 MB, most of it is Spark)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@awk '/^uv==/ {on=1} on {print} on && !/\\$$/ {exit}' requirements.lock > $(VENV)/uv.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(VENV)/uv.lock
	@$(BIN)/uv pip sync --python $(BIN)/python --require-hashes requirements.lock
	@$(BIN)/uv pip install --python $(BIN)/python --quiet --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(STAMP) ## send real events through a faulty network, prove that each is stored once; KEEP=1: leave the broker running
	@$(BIN)/python -m demo $(if $(KEEP),--keep)

test: $(STAMP) ## run ruff, the import contracts, mypy and every test
	@$(MAKE) --no-print-directory -j 2 lint types tests

lint: $(STAMP) ## run ruff and the import contracts
	@echo "==> ruff"; $(BIN)/ruff check $(PYTHON_FOLDERS) && $(BIN)/ruff format --check --quiet $(PYTHON_FOLDERS)
	@echo "==> import-linter"; $(BIN)/lint-imports

types: $(STAMP) ## run mypy
	@echo "==> mypy --strict"; $(BIN)/mypy

tests: $(STAMP) ## run every test
	@echo "==> pytest"; $(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder

unit: $(STAMP) ## run the fast tests: under a minute on two cores
	@$(BIN)/python -m pytest -q -n 2 --dist loadfile $(FAST)

coverage: $(STAMP) ## print the lines and branches of the product that TESTS (tests/unit tests/property) run
	@rm -f build/coverage/* && $(BIN)/coverage run -m pytest -q -n 2 --dist loadfile $(or $(TESTS),tests/unit tests/property)
	@$(BIN)/coverage combine --quiet && $(BIN)/coverage report --skip-covered --sort=cover | tail -1

matrix: $(STAMP) ## run TARGET (tests) with each Python that pyproject.toml declares and this machine has
	@for version in $$(sed -n 's/.*Python :: \(3\.[0-9]*\)".*/\1/p' pyproject.toml); do \
		python=$$($(BIN)/uv python find --no-python-downloads $$version 2>/dev/null \
			|| ls -d "$${PYENV_ROOT:-$$HOME/.pyenv}/versions/$$version".*/bin/python 2>/dev/null | tail -1); \
		if test -z "$$python"; then left_out="$$left_out $$version"; continue; fi; \
		echo "==> Python $$version: $$python"; \
		$(MAKE) --no-print-directory VENV=build/python$$version PYTHON=$$python $(or $(TARGET),tests) \
			|| failed="$$failed $$version"; \
	done; echo "==> not on this machine, so left out:$${left_out:- none}; failed:$${failed:- none}"; test -z "$$failed"

serve: $(STAMP) ## run a broker on 127.0.0.1:9092
	@$(BIN)/tidelog serve

faults: $(STAMP) ## break brokers for SECONDS (60) with SEED and check what they stored
	@SECONDS=$(or $(SECONDS),60) SEED=$(SEED) $(BIN)/python -m faults $(ARGUMENTS)

simulation: $(STAMP) ## play SEEDS (1000) seeds of BROKERS (3) brokers, with REPLICAS (1) of each partition, on virtual time over a model of etcd, on all cores, from SEED (where the last run on this commit ended); MOVES=1 reassigns partitions in each, TIERED=1 keeps closed segments in remote storage
	@$(BIN)/python -m tests.simulation.transactions --brokers $(or $(BROKERS),3) --replicas $(or $(REPLICAS),1) $(if $(SEED),--first $(SEED)) --seeds $(or $(SEEDS),1000) $(if $(MOVES),--moves) $(if $(TIERED),--tiered)

etcd: $(STAMP) ## kill, stop and compact three members of etcd under three brokers' catalogs, ROUNDS (20) times
	@ROUNDS=$(or $(ROUNDS),20) $(BIN)/python -m pytest -s tests/several/test_etcd_members.py -k members_are

cluster: $(STAMP) ## follow the runbooks of a cluster; as root: break three brokers and three members of etcd in network namespaces for SECONDS (600) with SEED
	@$(BIN)/python -m pytest tests/several/operations.py tests/several/two_brokers.py tests/several/etcd_operations.py \
		tests/several/failovers.py \
		tests/faults/tiered_kills.py
	@SECONDS=$(or $(SECONDS),600) SEED=$(SEED) $(BIN)/python -m faults --machines $(ARGUMENTS)

upgrades: $(STAMP) ## mix brokers and clients of this and of each recorded version, up and down
	@$(BIN)/python -m pytest tests/upgrades/rolling.py

moves: $(STAMP) ## move partitions of four brokers while they are written and killed: PLAYS (4) of five moves, from SEED (the time)
	@PLAYS=$(PLAYS) SEED=$(SEED) $(BIN)/python -m pytest -s tests/several/moving_partitions.py

conformance: $(STAMP) ## run the tests of clients against three brokers: BROKERS=processes (the default) or BROKERS=etcd
	@BROKERS=$(or $(BROKERS),processes) $(BIN)/python -m pytest -n 2 --dist loadfile tests/conformance

frameworks: $(STAMP) ## run Kafka Streams, Connect, Kafka's tools and a schema registry from Maven Central, franz-go, librdkafka
	@$(BIN)/python -m pytest -p tests.recorded_runs tests/frameworks/over_maven.py tests/frameworks/security_over_maven.py \
		tests/frameworks/share_over_maven.py tests/frameworks/telemetry_over_maven.py tests/frameworks/java_failovers.py \
		tests/frameworks/over_go.py tests/frameworks/share_over_librdkafka.py

clients: $(STAMP) ## run other projects' clients and frameworks, and record counts and versions in docs/runs.json, as make frameworks does
	@$(BIN)/python -m pytest -p tests.recorded_runs -n 2 --dist loadfile tests/conformance/test_confluent_kafka.py \
		tests/conformance/test_aiokafka.py tests/conformance/test_kafka_python.py tests/conformance/test_foreign_clients.py \
		tests/conformance/test_kio_messages.py tests/conformance/test_client_telemetry.py tests/frameworks/test_frameworks.py

container: $(STAMP) ## build the images, use, kill and limit them in a container engine, and fire every alert
	@$(BIN)/python -m pytest tests/container/use.py tests/container/crashes.py tests/container/limits.py tests/container/up.py \
		tests/container/cluster.py tests/container/places.py tests/container/in_tests.py tests/container/charts.py

kubernetes: $(STAMP) ## run the chart on a node of Kubernetes, which is compiled (root)
	@$(BIN)/python -m pytest tests/container/kubernetes.py

manifests: ## render deploy/kubernetes from the chart with HELM (helm)
	@sum=$$(find deploy/helm/tidelog -type f | LC_ALL=C sort | xargs cat | sha256sum | cut -c 1-64); \
	for file in tidelog:1 cluster:3; do \
		{ echo "# make manifests rendered this from deploy/helm/tidelog, which had the SHA-256 $$sum."; \
		$(HELM) template tidelog deploy/helm/tidelog --kube-version 1.37 --set brokers=$${file#*:}; } > deploy/kubernetes/$${file%:*}.yml; \
	done

spark: $(STAMP) ## kill jobs, executors and brokers of a cluster; run the recipes and a declarative pipeline; read remote segments
	@cd tests/spark && ../../$(BIN)/python -m pytest mirror_kills.py kills_on_a_cluster.py over_several.py recipes.py \
		declarative_pipeline.py spark_connect.py object_store.py tiered.py

bench: $(STAMP) ## compare speed with other brokers and clients
	@$(BIN)/python -m bench

screenshots: $(STAMP) ## take the pictures of the console in docs/images again, of the demo's flights in a Chromium
	@$(BIN)/python -m tests.console.screenshots

docs: $(STAMP) ## renew the tables in docs/ that come from the code, and build the site into build/docs; a broken link fails
	@$(BIN)/python -m docs.tables
	@$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going docs build/docs && echo "open build/docs/index.html"

format: $(STAMP) ## format the code
	@$(BIN)/ruff check --fix-only --quiet $(PYTHON_FOLDERS); $(BIN)/ruff format $(PYTHON_FOLDERS)

up: ## start broker, Prometheus and Grafana in containers
	docker compose --profile single up --build --detach

upgrade: ## build the image again and replace the brokers of the profile cluster one by one; COMPOSE names another docker compose
	@for broker in broker-1 broker-2 broker-3; do \
		echo "==> $$broker"; $(COMPOSE) --profile cluster up $(BUILD) --detach --no-deps --wait $$broker || exit 1; \
		until $(COMPOSE) --profile cluster exec -T $$broker tidelog cluster info | grep -q '^partitions under replicated *0$$'; do sleep 1; done; \
	done

down: ## stop the containers of all profiles and keep their data
	docker compose --profile '*' down

lock: $(STAMP) ## make the lock files again
	@$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --all-extras --quiet pyproject.toml -o requirements.lock
	@cd tests/frameworks && ../../$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --quiet requirements.in -o requirements.lock

release: $(STAMP) ## build the sdist and, from it, the wheel into dist/, and check both in an environment of their own
	@rm -rf dist && $(BIN)/uv build --quiet --no-build-isolation --python $(BIN)/python --out-dir dist .
	@$(MAKE) --no-print-directory sbom
	@DIST=$(CURDIR)/dist $(BIN)/python -m pytest -q tests/conformance/test_release.py && ls -l dist

sbom: $(STAMP) ## write the packages that a broker needs, with versions and hashes, into dist/ (or DIST) as CycloneDX
	@mkdir -p $(or $(DIST),dist) && sed 's/^dynamic = .*/version = "$(VERSION)"/' pyproject.toml > $(VENV)/pyproject.toml
	@$(BIN)/uv pip compile --quiet --no-header --generate-hashes --constraint requirements.lock pyproject.toml \
		| $(BIN)/uv tool run --quiet --from cyclonedx-bom==7.5.0 cyclonedx-py requirements --pyproject $(VENV)/pyproject.toml \
			--output-reproducible -o $(or $(DIST),dist)/tidelog.cdx.json -

images: ## build the images for amd64 and arm64 and push them to REGISTRY (ghcr.io/OWNER/)
	@test -n "$(REGISTRY)" || { echo "REGISTRY: expected a registry with / at its end, such as ghcr.io/OWNER/, got nothing"; exit 1; }
	REGISTRY=$(REGISTRY) REVISION=$$(git rev-parse HEAD) docker buildx bake --push broker pipeline

clean: ## remove .venv, caches and ./tidelog-data
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache dist build artifacts tidelog-data
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
