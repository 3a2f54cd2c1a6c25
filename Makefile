# Every command a developer or an operator needs. `make setup` is implied by the others.
PYTHON        ?= python3
VENV          ?= .venv
TORCH_VERSION ?= 2.13.0
# The address of a wheel index that holds the torch build you want (CPU or CUDA); empty: pip's own index.
TORCH_INDEX   ?=
MODEL         ?=
RECIPE        ?= training/recipes/english.yaml
ARGS          ?=

BIN   := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: setup serve train test test-long test-gpu lint format bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check torch==$(TORCH_VERSION) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[serve,eval,dev]'
	touch $@

serve: setup
	$(if $(MODEL),,$(error name a checkpoint: make serve MODEL=FILE.nemo))
	$(BIN)/steno serve --model $(MODEL) $(ARGS)

# Stopped or killed, a run goes on where it was: run this again. ARGS='--minutes 60 --export model.nemo' and the like.
train: setup
	$(BIN)/steno train $(RECIPE) --out runs/$(basename $(notdir $(RECIPE))) --resume $(ARGS)

test: setup
	$(BIN)/python -m pytest -m "not long and not gpu" $(ARGS)

test-long: setup
	$(BIN)/python -m pytest -m long --timeout 3600 $(ARGS)

# Uses the Python at hand, not $(VENV): a GPU machine brings its own torch and may have no FastAPI.
test-gpu:
	$(PYTHON) -m pytest -m gpu tests/models $(ARGS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	$(BIN)/python -m benchmarks $(ARGS)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
