# Every target is one real command. The first one used makes the environment in .venv (Python >= 3.11 and pip's index).
PYTHON ?= python3
ARGS ?=
BUILDER ?= buildah
BASE ?=
BIN := .venv/bin
READY := .venv/.installed

.PHONY: help demo test images images-test e2e check check-format check-lint check-types check-layers check-unused generate bench simulate reliability format coverage constraints clean

help: ## Say what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: $(READY) ## A PostgreSQL, workers that scale, real files, failures; at most 120 s (DEMO_DIR=folder)
	$(BIN)/python examples/demo/run.py $(ARGS)

test: $(READY) ## Every test that this machine can run (ARGS='-k name' for some)
	$(BIN)/python -m pytest $(ARGS)

# ARGS may hold the builder's own options: --secret id=pip,src=pip.conf, --layers, --platform.
images: ## Build jobqueue-worker and jobqueue-operator (BUILDER=docker, BASE=image with python3)
	$(BUILDER) build $(ARGS) $(if $(BASE),--build-arg BASE=$(BASE)) --file worker_image/Dockerfile --tag jobqueue-worker .
	$(BUILDER) build $(ARGS) $(if $(BASE),--build-arg BASE=$(BASE)) --file operator/Dockerfile --tag jobqueue-operator .

images-test: $(READY) ## Build them on a base of this machine's packages and run them (Debian, root, buildah, runc)
	JOBQUEUE_REQUIRE=buildah,runc $(BIN)/python -m pytest tests/images $(ARGS)

e2e: $(READY) ## Scenarios in a cluster: ARGS='--kind' or '--kubeconfig FILE …' (e2e/README.md)
	$(BIN)/python -m pytest e2e $(ARGS)

check: check-format check-lint check-types check-layers check-unused ## Formatting, lint, types, layers, unused code

check-format: $(READY)
	$(BIN)/ruff format --check

check-lint: $(READY)
	$(BIN)/ruff check

check-types: $(READY)
	$(BIN)/mypy

check-layers: $(READY)
	$(BIN)/lint-imports

# The tests are read as users of the code, and what is theirs alone is left to them.
check-unused: $(READY)
	! $(BIN)/vulture | grep -v '^tests/'

generate: $(READY) ## Write the CRDs (crds/, chart) and docs/reference.md from the models, the chart's table from its values
	$(BIN)/python -m jobqueue_operator.resources.generate
	PYTHONPATH=tests $(BIN)/python tests/chart/documented.py

bench: $(READY) ## Measure, next to others (bench/README.md)
	$(BIN)/python -m bench $(ARGS)

simulate: $(READY) ## The planner beside other autoscalers on drawn workloads (ARGS='--quick'; bench/README.md)
	$(BIN)/python -m bench.autoscaling $(ARGS)

reliability: $(READY) ## Kill, freeze, restart and cut real workers under load, and judge what is left (tens of minutes)
	$(BIN)/python -m bench.reliability all

format: $(READY) ## Format and repair what ruff can repair
	$(BIN)/ruff check --fix-only --quiet && $(BIN)/ruff format

coverage: $(READY) ## The tests, with the lines and branches they miss
	$(BIN)/python -m pytest --cov --cov-report=term-missing:skip-covered $(ARGS)

constraints: ## Renew constraints.txt to the newest releases that pyproject.toml allows
	rm -rf .venv && $(MAKE) $(READY) CONSTRAINTS= && $(BIN)/python -m pip freeze --all --exclude-editable > constraints.txt

clean: ## Remove everything made here
	rm -rf .venv .coverage* htmlcov dist build .jobqueue .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

CONSTRAINTS ?= --constraint constraints.txt
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check $(CONSTRAINTS)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("Python 3.11 or newer is needed, $(PYTHON) is %d.%d; say which: make PYTHON=/path/to/python3.12" % v[:2])'
	$(PYTHON) -m venv --clear .venv
	$(PIP) 'pip>=25.1'
	$(PIP) --editable '.[local,rabbitmq,operator]' --group dev --group simulate
	@touch $@
