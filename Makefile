# make demo | test | test-all | dev | test-fast | check | pictures: each sets everything up on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

PREPARED := $(VENV)/.prepared
KAFKA := $(VENV)/share/rota/kafka
REGISTRY := $(VENV)/share/rota/registry

# The tests start hundreds of processes: none should compile again what the one before it did.
test test-all test-fast: export PYTHONDONTWRITEBYTECODE =

.PHONY: setup java tools prepare s3a check test test-all test-fast demo dev pictures clean

setup: $(READY)

# Wheels only, pinned by requirements.lock, which is complete; made anew when the lock or the project's own metadata change.
# pip installs and compiles with one core alone: two install what is independent, and Python compiles with all, except
# parts of libraries that rota does not import.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "rota needs Python 3.11 or newer; set PYTHON=/path/to/python3" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	{ echo --editable .; cat requirements.lock; } | \
	  xargs -P 2 -n 20 $(BIN)/pip install --quiet --disable-pip-version-check --no-compile --no-deps
	$(BIN)/pip check
	$(BIN)/python -m compileall -q -j 0 -x '/(tests|lexers|mypy|mypyc|fontTools|pyspark/pandas)/' $(VENV)/lib >/dev/null || true
	@touch $@

# Spark and the embedded ZooKeeper need a Java 17 or newer; no wheel serves it.
java:
	@{ "$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | head -1 | grep -Eq '"(1[7-9]|[2-9][0-9])'; } || { \
	  echo "Java 17 or newer not found (looked in JAVA_HOME, PATH). Spark and ZooKeeper need it. Try: apt install openjdk-17-jre-headless" >&2; exit 2; }

# Every Spark starts in half the time, and ZooKeeper sooner; without it they only start slower, so a failure stops nothing.
prepare: java $(PREPARED)

$(PREPARED): $(READY) rota/prepare.py
	-$(BIN)/rota prepare && touch $@

# A server of S3 for the tests: built once, in some three minutes of two cores and 400 MB of Go's caches.
GATEWAY := versitygw
GATEWAY_VERSION := v1.8.0

$(BIN)/$(GATEWAY):
	@command -v go >/dev/null || { echo "installing golang for the tests"; \
	  { apt-get update -qq && apt-get install -qq -y --no-install-recommends golang-go ca-certificates; } >/dev/null; } || { \
	  echo "Go not installable here. Try: sudo apt install golang-go" >&2; exit 2; }
	GOBIN=$(abspath $(BIN)) GOFLAGS=-modcacherw go install github.com/versity/versitygw/cmd/versitygw@$(GATEWAY_VERSION)

# Microsoft's emulator of Azure's blobs, for the tests: 13 seconds of a processor, 193 MB. What it reports its use by, which is
# off, is an older one: the newest takes 172 MB more.
AZURITE := $(VENV)/share/rota/azurite

$(AZURITE): | $(READY)
	@command -v npm >/dev/null || { echo "installing npm for the tests"; \
	  { apt-get update -qq && apt-get install -qq -y --no-install-recommends npm; } >/dev/null; } || { \
	  echo "npm not installable here. Try: sudo apt install npm" >&2; exit 2; }
	@rm -rf $@.part && mkdir -p $@.part
	@echo '{"dependencies": {"azurite": "3.37.0"}, "overrides": {"applicationinsights": "2.9.8"}}' >$@.part/package.json
	cd $@.part && npm install --silent --no-fund --no-audit --ignore-scripts
	@mv $@.part $@

# The jars with which Spark reads a bucket: 18 MB by Spark's own Ivy, half a minute.
s3a: java $(VENV)/share/rota/s3a

$(VENV)/share/rota/s3a: $(READY)
	$(BIN)/rota prepare --s3

# What the tests use beside Python and Java, in one installation: Chromium for the page (Playwright's own build is not on
# PyPI), openssl for certificates, PostgreSQL for a shared Dagster, RabbitMQ and Kafka for their brokers, Prometheus and its
# Alertmanager, Azurite, a registry of schemas. None is started here.
tools: $(BIN)/$(GATEWAY) $(KAFKA) $(REGISTRY) $(AZURITE)
	@missing=; \
	command -v chromium >/dev/null || missing="$$missing chromium"; \
	command -v openssl >/dev/null || missing="$$missing openssl"; \
	ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$$missing postgresql"; \
	test -x /usr/lib/rabbitmq/bin/rabbitmq-server || missing="$$missing rabbitmq-server"; \
	command -v promtool >/dev/null || missing="$$missing prometheus"; \
	command -v prometheus-alertmanager >/dev/null || missing="$$missing prometheus-alertmanager"; \
	test -z "$$missing" || { echo "installing$$missing for the tests"; \
	  { apt-get update -qq && RUNLEVEL=1 apt-get install -qq -y --no-install-recommends $$missing; } >/dev/null; } || { \
	  echo "not installable here:$$missing. Try: sudo apt install$$missing" >&2; exit 2; }

# A Kafka, of Maven Central's jars: Ivy, which is one of PySpark's own, gets them. A broker is one Java of these.
$(KAFKA): | $(READY) java
	@rm -rf $@.part && echo "getting Kafka from Maven Central"
	@java -jar $(VENV)/lib/python*/site-packages/pyspark/jars/ivy-*.jar -error -cache $(CURDIR)/$(VENV)/.ivy-kafka -m2compatible \
	  -dependency org.apache.kafka kafka_2.13 4.1.0 -confs default -types jar bundle \
	  -retrieve "$(CURDIR)/$@.part/[artifact]-[revision](-[classifier]).[ext]" >/dev/null && rm -rf $@ && mv $@.part $@ || { \
	  echo "Kafka's jars are not to be had. Is repo1.maven.org reachable from here?" >&2; exit 2; }

# A registry of schemas with Confluent's API, 109 MB of Maven Central. Ivy does not read its pom, whose parents it lacks.
$(REGISTRY): | $(READY) java
	@rm -rf $@.part && mkdir -p $@.part && echo "getting a registry of schemas from Maven Central"
	@echo '<ivysettings><settings defaultResolver="central"/><resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers></ivysettings>' >$@.part/settings.xml
	@echo '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven"><info organisation="rota" module="tests"/><dependencies><dependency org="io.apicurio" name="apicurio-registry-app" rev="3.0.9" transitive="false"><artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz" m:classifier="all"/></dependency></dependencies></ivy-module>' >$@.part/ivy.xml
	@java -jar $(VENV)/lib/python*/site-packages/pyspark/jars/ivy-*.jar -error -settings $@.part/settings.xml -ivy $@.part/ivy.xml \
	  -cache $(CURDIR)/$@.part/cache -retrieve "$(CURDIR)/$@.part/[artifact].[ext]" >/dev/null && tar xzf $@.part/*.tar.gz -C $@.part && \
	  rm -rf $@ $@.part/cache $@.part/*.tar.gz && mv $@.part $@ || { \
	  echo "The registry is not to be had. Is repo1.maven.org reachable from here?" >&2; exit 2; }

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The pure core, the conformance tests in memory and samples of the simulation: a minute on two cores.
test-fast: setup
	$(BIN)/python -m pytest -q -n 2 --no-loadscope-reorder -m fast tests/core tests/conformance tests/sim

# `test` is the tier of each push, with the day as the seed of Hypothesis; `test-all`, which a release needs, runs everything.
# Four processes on two cores, because half of the tests wait for Dagster and ZooKeeper; tests/conftest.py groups the files.
test: export TEST_TIER = push
test: export TEST_DAY ?= $(shell $(PYTHON) -c 'import datetime; print(datetime.date.today().toordinal())')
test: SEED = --hypothesis-seed=$(TEST_DAY)
test: test-all
test-all: setup prepare s3a tools
	$(BIN)/python -m pytest -n 4 --no-loadscope-reorder $(SEED)

# STORE=s3: landing folder and table in a bucket; SPARK=cluster: Spark on a standalone cluster; SOURCE=kafka: the flights in a
# topic. It starts all of them itself.
demo: setup prepare $(if $(filter s3,$(STORE)),s3a $(BIN)/$(GATEWAY)) $(if $(filter kafka,$(SOURCE)),$(KAFKA))
	$(BIN)/rota demo $(if $(STORE),--store $(STORE)) $(if $(SPARK),--spark $(SPARK)) $(if $(SOURCE),--source $(SOURCE))

dev: setup prepare
	$(BIN)/rota up

# The pictures of the docs and the printed lines of the README, by the demo's flights.
pictures: setup prepare tools
	$(BIN)/python docs/pictures.py

clean:
	rm -rf $(VENV) .rota
