# `make demo` and `make test` set themselves up. `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The suite is measured on two cores.
WORKERS ?= 2
# A worker gets consecutive tests, so that the setup of a module runs once.
IN_PARALLEL = -n $(WORKERS) --dist worksteal
# Prints the long steps of an installation: downloads, the build.
INSTALL := sh scripts/pip_install.sh
NATIVE := CMakeLists.txt $(shell find native -type f)
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-quick test-all test-matrix sanitized sanitize check lint types layers import-budget plans results prose docs wheel format bench clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.created:
	@echo "==> creating a virtual environment in $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "lowtide needs Python 3.11 or newer; set PYTHON=")'
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.demo: $(VENV)/.created pyproject.toml constraints.txt $(NATIVE)
	@echo "==> installing PyTorch and transformers, building lowtide (minutes)"
	@$(INSTALL) $(VENV) -c constraints.txt -e '.[demo]'
	@touch $@

$(VENV)/.test: $(VENV)/.created pyproject.toml constraints.txt $(NATIVE)
	@echo "==> installing the frameworks and test tools, building lowtide (minutes)"
	@$(INSTALL) $(VENV) -c constraints.txt -e '.[test]'
	@touch $@ $(VENV)/.demo

setup: $(VENV)/.test  ## build and install everything for development into .venv

demo: $(VENV)/.demo  ## lower the measured peak of a GPT-2 training step
	@echo "==> planning and measuring a training step of GPT-2 small (128 tokens, AdamW) within 15 % of its memory (a minute)"
	@mkdir -p out
	@$(BIN)/lowtide optimize examples.gpt2_small:training_step -o out/gpt2_small.plan.json.gz --measure \
		--budget 15% --allow reorder,share,recompute

test: $(VENV)/.test  ## run all tests
	@echo "==> running the tests"
	@$(BIN)/python -m pytest $(IN_PARALLEL)

test-quick: $(VENV)/.test  ## run the tests of the engine, without frameworks
	@echo "==> running the tests of the engine"
	@$(BIN)/python -m pytest $(IN_PARALLEL) tests/core tests/engine tests/native

test-all: $(VENV)/.test  ## run all tests with all examples, TensorFlow too (about a gigabyte)
	@$(INSTALL) $(VENV) -c constraints.txt -e '.[test,tensorflow]'
	@echo "==> running the tests"
	@LOWTIDE_SHARE_OF_EXAMPLES=1 $(BIN)/python -m pytest $(IN_PARALLEL)

# Rows of scripts/matrix.toml, with or without a Python: ENVIRONMENTS="oldest newest-3.13"
ENVIRONMENTS ?=
# Files and folders of tests, instead of those of scripts/matrix.toml.
SUITES ?=

test-matrix: $(VENV)/.created  ## run the framework suites with the oldest, pinned and newest releases (gigabytes)
	@$(BIN)/python scripts/test_matrix.py $(ENVIRONMENTS) --workers $(WORKERS) $(if $(SUITES),--suites $(SUITES))

SANITIZED := .venv-sanitized
# Tests that need the native core and no framework, and those of the allocator in threads of ONNX Runtime.
NATIVE_TESTS := $(addprefix tests/,engine/analysis engine/graph engine/packing engine/recompute engine/schedule engine/search \
  frameworks/caffe2/sharing native core/test_documents.py) \
  tests/frameworks/onnx/running/test_planned_session.py --ignore=tests/engine/schedule/test_orders_against_inductor.py
PRELOADED = $(shell $${CXX:-g++} -print-file-name=libasan.so) $(shell $${CXX:-g++} -print-file-name=libstdc++.so)

$(SANITIZED)/.made: pyproject.toml constraints.txt $(NATIVE) $(shell find src -name '*.py')
	@echo "==> building the native core with ASan and UBSan"
	@test -d $(SANITIZED) || $(PYTHON) -m venv $(SANITIZED)
	@$(INSTALL) $(SANITIZED) -c constraints.txt \
	  --config-settings=cmake.define.LOWTIDE_SANITIZE=ON --config-settings=cmake.define.LOWTIDE_STRICT=ON \
	  --config-settings=build-dir=build/sanitized '.[native-test,onnx]'
	@touch $@

sanitized: $(SANITIZED)/.made  ## build the native core with ASan and UBSan

sanitize: $(SANITIZED)/.made  ## run the tests of the native core under ASan and UBSan
	@echo "==> running the tests of the native core under ASan and UBSan"
	@LD_PRELOAD="$(PRELOADED)" ASAN_OPTIONS=detect_leaks=0 LOWTIDE_SHARE_OF_EXAMPLES=0.2 \
	  $(SANITIZED)/bin/python -m pytest $(IN_PARALLEL) -p no:cacheprovider $(NATIVE_TESTS)

check: lint types layers import-budget plans results prose  ## lint, types, layers, import budget, plans, results and prose

lint: $(VENV)/.test
	@echo "==> ruff"
	@$(BIN)/ruff check src tests benchmarks examples scripts docs/conf.py
	@$(BIN)/ruff format --check src tests benchmarks examples scripts docs/conf.py

types: $(VENV)/.test
	@echo "==> basedpyright (strict)"
	@$(BIN)/basedpyright --warnings

layers: $(VENV)/.test
	@echo "==> imports go downward only"
	@$(BIN)/lint-imports --no-cache

import-budget: $(VENV)/.test
	@echo "==> import budget"
	@$(BIN)/python benchmarks/import_budget.py

plans: $(VENV)/.test
	@echo "==> plans of the sample graphs equal the recorded ones"
	@$(BIN)/python scripts/plan_hashes.py

prose: $(VENV)/.test
	@echo "==> text is in plain English"
	@$(BIN)/python scripts/check_prose.py

results: $(VENV)/.test
	@echo "==> sections of benchmarks/RESULTS.md are unedited"
	@$(BIN)/python benchmarks/results.py

docs: $(VENV)/.test  ## build the site into docs/_build; warnings are errors
	@echo "==> building the site"
	@$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

wheel: $(VENV)/.test  ## build sdist and wheel, audit the wheel, use it in an empty environment
	@$(BIN)/python scripts/check_wheel.py

format: $(VENV)/.test  ## format the code
	@$(BIN)/ruff check --fix src tests benchmarks examples scripts docs/conf.py
	@$(BIN)/ruff format src tests benchmarks examples scripts docs/conf.py

bench: $(VENV)/.test  ## run the benchmarks and write benchmarks/RESULTS.md
	@for script in benchmarks/bench_*.py; do echo "==> $$script"; $(BIN)/python $$script || exit 1; done

clean:  ## remove everything that was built or installed
	rm -rf $(VENV) .venv-matrix $(SANITIZED) build docs/_build out src/lowtide/_native.pyi
