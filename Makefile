# Two commands do everything on a fresh machine: `make repro` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
CORE := .venv/core
# Parameters to change for one run: make repro SET="captions.scenes.train=50 shards.top=8"
SET ?=

.PHONY: repro test core lint screenshots clean

repro: .venv/installed
	mkdir -p data/.times
	$(BIN)/dvc $(if $(SET),exp run $(foreach s,$(SET),-S $(s)),repro)
	$(BIN)/capgrade show --captions data/captions --relevance data/relevance
	cat data/comparison/runs.md

test: .venv/installed lint
	$(BIN)/pytest -n 2 --dist loadfile

# The wheel with its core dependencies and pytest, and none of the extras.
core: .venv/installed
	rm -rf $(CORE) && mkdir $(CORE)
	git archive --prefix=source/ HEAD | tar -x -C $(CORE)
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir $(CORE) $(CORE)/source
	$(BIN)/python -m venv $(CORE)/env
	$(CORE)/env/bin/pip install --quiet --disable-pip-version-check $(CORE)/*.whl pytest
	cd $(CORE) && CAPGRADE_CORE_ALONE=1 NUMBA_OPT=0 env/bin/python -m pytest -c /dev/null --import-mode=importlib --rootdir source/tests/core source/tests/core

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

screenshots: .venv/installed
	$(BIN)/python -m tests.tools.screenshots --report data/report.html --dataset data/dataset $(if $(COCO),--coco $(COCO)) --out docs/screenshots

.venv/installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

clean:
	rm -rf .venv data runs
