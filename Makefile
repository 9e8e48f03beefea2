# `make demo` and `make test` on a fresh machine need Python 3.11+, make and a package registry, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := build/demo
INSTALLED := $(VENV)/.installed
SBOM := build/sbom

# Threads that wait asleep do not take the time of those that work; on a shared machine tests run several times faster.
export OMP_WAIT_POLICY ?= PASSIVE

# Compiled once, not by every process that tests start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo check test fast-tests all-tests lint dist triton bench browser screenshots clean

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1" # the first with --group
	$(BIN)/pip uninstall --quiet --yes onnxruntime-gpu 2>/dev/null # of an earlier pyproject.toml: it shares its folder with onnxruntime
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[train,export,rtx,ray,report]" --group dev
	touch $@

demo: $(INSTALLED)
	rm -rf $(DEMO)
	mkdir -p $(DEMO)
	$(BIN)/at-infer demo -o $(DEMO)

# Lint, types and the fast tests: two minutes.
check: TESTS := fast-tests
# Everything.
test: TESTS := all-tests
# Types are checked beside the tests, which leave some of two cores to it.
check test: $(INSTALLED)
	@$(MAKE) --no-print-directory -j2 lint $(TESTS)

# Three processes of one thread each, of which one waits for others most of the time; tests/conftest.py says which tests
# stay together.
fast-tests all-tests: export OMP_NUM_THREADS ?= 1
PYTEST := $(BIN)/pytest -n 3 --dist loadscope

fast-tests: $(INSTALLED)
	$(PYTEST) -m "not (ray or browser or tensorrt or documents or slow)"

all-tests: $(INSTALLED) browser
	$(PYTEST)

# Reports are tested in a real browser. Where none can be had, those tests are skipped, and the summary says so.
browser:
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then :; \
	elif ! command -v apt-get >/dev/null; then echo "no chromium and no apt-get: tests in a browser will be skipped"; \
	elif [ "$$(id -u)" = 0 ]; then echo "installing chromium and chromium-driver for tests in a browser"; \
	  apt-get update -qq && apt-get install -y -qq chromium chromium-driver >/dev/null || echo "could not install chromium: tests in a browser will be skipped"; \
	elif sudo -n true 2>/dev/null; then echo "installing chromium and chromium-driver for tests in a browser"; \
	  sudo -n apt-get update -qq && sudo -n apt-get install -y -qq chromium chromium-driver >/dev/null || echo "could not install chromium: tests in a browser will be skipped"; \
	else echo "no chromium, and no right to install it: tests in a browser will be skipped"; fi

screenshots: demo browser
	$(BIN)/python -m benchmarks.report_screenshots $(DEMO) docs/img

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Wheel and sdist, tried in clean environments, with lists of what each installs (CycloneDX): ten minutes. ONLY="base rtx":
# some of them.
dist: $(INSTALLED) $(SBOM)/bin/cyclonedx-py
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m tests.check_dist dist --sbom $(SBOM)/bin/cyclonedx-py $(ONLY)

# An environment of its own: it brings two dozen packages that nothing else needs.
$(SBOM)/bin/cyclonedx-py: constraints.txt
	$(PYTHON) -m venv $(SBOM)
	$(SBOM)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt cyclonedx-bom
	touch $@

# The examples for Triton with a real server, of a package that carries one.
triton: $(INSTALLED)
	$(BIN)/python -m tests.check_triton

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks.training_speed
	$(BIN)/python benchmarks/export_matrix.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
