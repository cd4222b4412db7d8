# Everything a newcomer needs: `make demo` shows the product, `make test` proves it.
SHELL := /bin/bash
.DEFAULT_GOAL := help

VENV := .venv
PY := $(VENV)/bin/python
FAULT ?= data-loader
GPU_RESULTS ?= build/gpu-results.json
NATIVE_SOURCES := $(wildcard csrc/*/*.h csrc/*/*.cpp)

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 14

demo: $(VENV)/.installed  ## plant a fault in a real training run and watch pymon find it (FAULT=data-loader|sync)
	@$(PY) -m pymon demo --fault $(FAULT)

test: $(VENV)/.dev  ## install what the tests need, then run every check and every test
	@.make/system-packages.sh
	@tests/check.sh

frameworks: $(VENV)/.dev  ## install Lightning, Accelerate, transformers and a notebook kernel (300 MB); test their loops
	@.make/setup.sh $(VENV) frameworks
	@$(PY) -m pytest tests/probe/loops -k "lightning or huggingface or notebook"

lint: $(VENV)/.dev  ## format, lint, types and import contracts only
	@tests/check.sh lint

build: $(VENV)/.installed  ## the compiled modules, in place

bench: $(VENV)/.dev  ## what the probe costs a training step
	@$(PY) bench/probe_cost.py

# Builds in place with the Python that is there, whose torch has CUDA; nothing is downloaded.
gpu-check:  ## on a machine with a GPU: all tests and measurements that need one, into build/gpu-results.json (PY=python3)
	@$(if $(filter file,$(origin PY)),$(or $(wildcard $(PY)),python3),$(PY)) -m bench.gpu.check --json $(GPU_RESULTS)

wheel: $(VENV)/.dev  ## a wheel for this interpreter, in dist/
	@PYMON_NATIVE=require $(PY) -m build --wheel --outdir dist .

clean:  ## remove what was built, the virtual environment included
	@rm -rf $(VENV) build dist *.egg-info pymon/native/*.so

$(VENV)/.installed: .make/setup.sh pyproject.toml setup.py .make/constraints.txt pymon/probe/pymon.pth $(NATIVE_SOURCES)
	@.make/setup.sh $(VENV)
	@touch $@

$(VENV)/.dev: $(VENV)/.installed
	@.make/setup.sh $(VENV) dev
	@touch $@

.PHONY: help demo test frameworks lint build bench gpu-check wheel clean
