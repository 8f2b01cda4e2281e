# Two commands do everything on a fresh machine: `make repro` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
# Parameters to change for one run: make repro SET="captions.scenes.train=50 shards.top=8"
SET ?=

.PHONY: repro test lint screenshots clean

repro: .venv/installed
	mkdir -p data/.times
	$(BIN)/dvc $(if $(SET),exp run $(foreach s,$(SET),-S $(s)),repro)
	$(BIN)/capgrade show --captions data/captions --relevance data/relevance
	cat data/comparison/runs.md

test: .venv/installed lint
	$(BIN)/pytest

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

screenshots: .venv/installed
	$(BIN)/python -m capgrade.benchmarks.screenshots --report data/report.html --dataset data/dataset --out docs/screenshots

.venv/installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

clean:
	rm -rf .venv data runs
