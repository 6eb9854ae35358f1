# Everything sets itself up: a virtual environment of its own, with the versions CI was last green with.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TORCH := .venv-torch
FLARE := .venv-flare
FLOWER := .venv-flower
BROWSER := .venv-browser
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export NO_MKDOCS_2_WARNING ?= 1

.PHONY: demo test quick mutations lint types docs notebooks tests explore slow test-torch gpu test-flare slow-flare test-flower test-browser pictures bundle wheels lock format clean

demo: $(READY)
	$(BIN)/zerosum demo --out zerosum-demo

test: lint types docs tests

# An answer in three minutes on two cores: lint, and tests of the packages that the guarantee rests on, without their
# long modules. A module belongs here if it needs less than 15 s of one core; a path that is gone is an error.
QUICK := tests/kernel tests/noise tests/protocol tests/engines tests/mutations tests/test_architecture.py tests/test_errors.py \
    $(addprefix tests/secagg/test_,graph.py secagg_losses.py secagg_vectors.py secagg_wire.py) \
    $(addprefix tests/site/test_,disclosures.py held_budget.py ledger.py ledger_phases.py ledger_records.py noise.py site_budget.py \
        policy.py resume.py schema.py service_keys.py site.py) \
    $(addprefix tests/coordinator/test_,conduct.py consent.py mixing.py secure.py) \
    $(addprefix tests/study/test_,planning.py running.py study.py) \
    $(addprefix tests/statistics/test_,filled.py groups.py network_statistics.py regression_statistics.py softmax.py) tests/compute/backends/test_exact.py \
    $(addprefix tests/data/test_,design.py tables.py) tests/algorithms/test_programs.py

quick: lint
	$(BIN)/pytest -n 2 --dist worksteal $(QUICK)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python docsite/plain_english.py

types: $(READY)
	$(BIN)/mypy

# Without --quiet, which hides warnings from --strict: then a broken link would be no error.
docs: $(READY)
	$(BIN)/mkdocs build --strict --site-dir build/docs

# Runs the notebooks and writes down what they print.
notebooks: $(READY)
	$(BIN)/python docsite/notebooks.py

# The same examples and the same noise on every machine: a commit that passed passes everywhere (tests/helpers/reproducibility.py).
tests: $(READY)
	$(BIN)/pytest -n 2 --dist worksteal --durations=30

# The same tests with new draws from the operating system, and ten times as many examples of each property. A failing
# example that it finds becomes an `@example` of its test, in the commit that mends it. `PYTEST="-m hypothesis"` limits
# the run to properties.
explore: $(READY)
	ZEROSUM_EXPLORE=1 $(BIN)/pytest -n 2 --dist worksteal $(PYTEST)

# Every seeded fault with the test that must catch it (tests/mutations), two at a time: fault, verdict, seconds, test.
mutations: $(READY)
	cd tests && ../$(BIN)/python -m mutations

slow: $(READY)
	ZEROSUM_EXPLORE=1 $(BIN)/pytest -m slow

# Heavy to install, so in an environment of its own: rows kept as PyTorch tensors decide as NumPy's do, gradients of
# PyTorch modules, and frames of polars.
test-torch: $(TORCH)/.ready
	$(TORCH)/bin/pytest -n 2 tests/compute tests/statistics tests/algorithms tests/estimators tests/benchmarks tests/data/test_frames.py -k "torch or module_gradient or module_predictions or test_module or polars"

# On a machine with a GPU and PyTorch: nobody decides for others there either, then a table of times.
gpu:
	PYTHONPATH=src $(PYTHON) -m pytest -m gpu tests/compute/test_gpu.py tests/statistics/test_coupling.py
	PYTHONPATH=src $(PYTHON) benchmarks/gpu.py

# A server and four sites over NVIDIA FLARE, with mutual TLS on loopback.
test-flare: $(FLARE)/.ready
	$(FLARE)/bin/pytest -n 2 --dist loadfile tests/flare

# Whole machines that go down, proxies, lines with delay and loss, strangers, large contributions: ten minutes.
slow-flare: $(FLARE)/.ready
	$(FLARE)/bin/pytest -m slow tests/flare

# A SuperLink and four nodes over Flower, with TLS and node keys on loopback.
test-flower: $(FLOWER)/.ready
	$(FLOWER)/bin/pytest -n 2 --dist loadfile tests/flower

# The page of `zerosum watch` in Debian's Chromium: a study from start to result; and what axe-core finds wrong with it, with
# a report of every algorithm and with the pages of the docs. Where there is no Chromium and this user may not install it,
# the tests are skipped and say so.
test-browser: $(BROWSER)/.ready
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get install -y -qq --no-install-recommends chromium chromium-driver fonts-dejavu-core >/dev/null || \
	      { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium chromium-driver fonts-dejavu-core >/dev/null; } || true; \
	  else echo "to install: apt-get install chromium chromium-driver"; fi; }
	$(BROWSER)/bin/pytest -n 2 --dist loadfile -m browser tests/watch tests/report tests/test_docs_in_browser.py

# The pictures of docs/gallery.md, taken again: a report of every algorithm, and the page during and after a study.
pictures: $(BROWSER)/.ready
	PYTHONPATH=benchmarks $(BROWSER)/bin/python benchmarks/gallery.py --out docs/pictures
	ZEROSUM_PICTURES=docs/pictures $(BROWSER)/bin/pytest -m browser tests/watch

# Wheels for machines without a network, in build/bundle, with their digests and a bill of materials; deploy/Containerfile
# is built from them.
bundle: $(READY)
	PYTHON=$(BIN)/python deploy/bundle.sh

# Wheels of Zerosum itself for Linux on x86-64 and aarch64, in build/wheels.
wheels: $(READY)
	PYTHON=$(BIN)/python deploy/wheels.sh

# requirements/bundle.txt from ci.txt and flare.txt, with the digests of every file. Needs uv and the index.
lock:
	deploy/lock.sh

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

KERNELS := setup.py $(wildcard src/native/*)

$(READY): pyproject.toml $(KERNELS) requirements/ci.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/ci.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(READY)

$(TORCH)/.ready: pyproject.toml $(KERNELS) requirements/ci.txt requirements/torch.txt
	$(PYTHON) -m venv $(TORCH)
	$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/torch.txt
	$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/ci.txt
	$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

$(FLARE)/.ready: pyproject.toml $(KERNELS) requirements/ci.txt requirements/flare.txt
	$(PYTHON) -m venv $(FLARE)
	$(FLARE)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/ci.txt
	$(FLARE)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/flare.txt
	$(FLARE)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

# Without dependencies: flwr needs an older `packaging` than nilearn, which no test here uses.
$(FLOWER)/.ready: pyproject.toml $(KERNELS) requirements/ci.txt requirements/flower.txt
	$(PYTHON) -m venv $(FLOWER)
	$(FLOWER)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/ci.txt
	$(FLOWER)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/flower.txt
	$(FLOWER)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

$(BROWSER)/.ready: pyproject.toml $(KERNELS) requirements/ci.txt requirements/browser.txt
	$(PYTHON) -m venv $(BROWSER)
	$(BROWSER)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/ci.txt
	$(BROWSER)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/browser.txt
	$(BROWSER)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

clean:
	rm -rf $(VENV) $(TORCH) $(FLARE) $(FLOWER) $(BROWSER) build .mypy_cache .ruff_cache .pytest_cache
