# `make demo` and `make test` on a fresh machine need Python 3.11+, make and a package registry, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := build/demo
INSTALLED := $(VENV)/.installed

# Threads that wait asleep do not take the time of those that work; on a shared machine tests run several times faster.
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: demo test lint bench clean

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[train,export,rtx,ray,dev]"
	touch $@

demo: $(INSTALLED)
	rm -rf $(DEMO)
	$(BIN)/at-infer generate -o $(DEMO)/data --kind multivariate
	$(BIN)/at-infer train $(DEMO)/data/train.parquet -o $(DEMO)/ckpt.pt --validation $(DEMO)/data/validation.parquet \
	  --time-column timestamp --preset small --stride 20 --learning-rate 1e-3 --epochs 10
	$(BIN)/at-infer export $(DEMO)/ckpt.pt --check-data $(DEMO)/data/validation.parquet
	$(BIN)/at-infer score $(DEMO)/data/test.parquet --engine $(DEMO)/model.onnx -o $(DEMO)/scores.parquet --explain top

test: lint
	$(BIN)/pytest

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(INSTALLED)
	$(BIN)/python benchmarks/training_speed.py
	$(BIN)/python benchmarks/export_matrix.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
