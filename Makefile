# Two commands do everything on a fresh machine: `make repro` and `make test`. With Flickr8K at hand, `make flickr8k DATA=FOLDER`.
PYTHON ?= python3
BIN := .venv/bin
CORE := .venv/core
PEERS := .venv/peers
SITE := .venv/docs
RELEASE := .venv/release
LOWEST := .venv/lowest
GPU := .venv/gpu
# Parameters to change for one run: make repro SET="captions.scenes.train=50 shards.top=8"
SET ?=

# Of `make flickr8k`: the folder of captions and pictures, and the one to make.
DATA ?=
PROJECT ?= flickr8k

# Of `make peers` and `make lowest`: what others deprecate of each other, or deprecated long ago, is shown and does not fail.
SHOWN := -W default::DeprecationWarning -W default::PendingDeprecationWarning -W default::FutureWarning

# Of `make gpu`: options of the script. Of `make wheels`: the machine's Python, and what it has beside torch.
ARGS ?=
FOR ?= 3.12
HAS ?=
PLATFORMS := $(foreach n,28 27 24 17,--platform manylinux_2_$(n)_x86_64) --platform manylinux2014_x86_64

.PHONY: repro flickr8k test core peers docs release lowest gpu wheels lint screenshots clean

# Stages find `capgrade` on the path, as in a project of `capgrade init`.
export PATH := $(CURDIR)/$(BIN):$(PATH)

# Lines of stages that do not need each other run side by side, as many as there are cores, the longest first; the last dvc
# runs what is left.
# At dvc's own status 255 xargs would not wait for the stages beside the one that failed.
ONE := dvc --wait-for-lock repro --single-item "$$@" || exit 1
BESIDE := xargs -P "$$(getconf _NPROCESSORS_ONLN)" -L 1 sh -c '$(ONE)' dvc
RUNS := dvc stage list --name-only | sed -n 's/^train@\(.*\)/train@\1 embed@\1 evaluate@\1/p'

# In the current folder, or after `cd`.
define EVERYTHING
dvc repro captions && \
printf 'regions\nrelevance shards\n' | $(BESIDE) && \
{ $(RUNS); echo agree publish; } | OMP_NUM_THREADS=1 $(BESIDE)
endef

# The C library keeps what torch frees: asking the system for it again, page by page, is a fifth of the detector's time.
repro flickr8k: export MALLOC_MMAP_MAX_ = 0
repro flickr8k: export MALLOC_TRIM_THRESHOLD_ = 2147483647
repro: .venv/installed
ifeq ($(SET),)
	$(EVERYTHING)
endif
	dvc $(if $(SET),exp run $(foreach s,$(SET),-S $(s)),repro)
	capgrade search --captions data/captions --relevance data/relevance
	cat data/comparison/runs.md

# A project over Flickr8K as people hold it: captions, splits, judgements and pictures in DATA, a folder or a zip of pictures.
# After a stop the same command goes on. What it fetches is what .venv needs, by pip: the weights of the backbone too.
flickr8k: .venv/installed
	@test -f $(PROJECT)/params.yaml || test -n "$(DATA)" || { echo "say where Flickr8K lies: make flickr8k DATA=FOLDER"; exit 2; }
	test -f $(PROJECT)/params.yaml || capgrade init $(PROJECT) --template flickr8k --data "$(DATA)"
	cd $(PROJECT) && $(EVERYTHING)
	cd $(PROJECT) && dvc repro
	cat $(PROJECT)/data/comparison/runs.md

# Files in their order: those of one long test, which come last by default, would end alone. Each of two workers computes on a
# core.
test: export OMP_NUM_THREADS = 1
test: .venv/installed lint
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

# The wheel with its core dependencies and pytest, and none of the extras.
core: .venv/installed
	rm -rf $(CORE) && mkdir $(CORE)
	git archive --prefix=source/ HEAD | tar -x -C $(CORE)
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir $(CORE) $(CORE)/source
	$(BIN)/python -m venv $(CORE)/env
	$(CORE)/env/bin/pip install --quiet --disable-pip-version-check $(CORE)/*.whl pytest
	cd $(CORE) && CAPGRADE_CORE_ALONE=1 NUMBA_OPT=0 env/bin/python -m pytest -c /dev/null --import-mode=importlib --rootdir source/tests/core source/tests/core

# The packages that people use capgrade inside of, in an environment over .venv: torchvision, beside a torch that is not of its
# build, would keep transformers from being imported there.
peers: .venv/installed
	$(BIN)/python -m venv $(PEERS)
	$(BIN)/python -c "import sysconfig; print('import site; site.addsitedir(%r)' % sysconfig.get_path('purelib'))" > $$(echo $(PEERS)/lib/python3*/site-packages)/below.pth
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[peers]'
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r tests/peers/requirements.txt
	HF_HUB_OFFLINE=1 $(PEERS)/bin/python -m pytest $(SHOWN) tests/peers

# The site of docs/, in site/. A warning is an error.
docs: .venv/installed
	$(BIN)/python -m venv $(SITE)
	$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check 'mkdocs-material>=9.6,<10' 'mkdocstrings-python>=2,<3'
	$(SITE)/bin/python -m mkdocs build --strict

# What is released, in dist/: the source and the wheel, both checked, and each installed alone into a new environment. The site
# is made too. It is tagged here; publishing is left to whoever has the right to.
release: docs
	@test -z "$$(git status --porcelain)" || { echo "commit first: the working tree has changes"; exit 2; }
	rm -rf dist $(RELEASE) && $(BIN)/python -m venv $(RELEASE)
	$(RELEASE)/bin/pip install --quiet --disable-pip-version-check build twine
	$(RELEASE)/bin/python -m build --outdir dist .
	$(RELEASE)/bin/twine check --strict dist/*
	for file in dist/*; do \
		$(PYTHON) -m venv --clear $(RELEASE)/alone && \
		$(RELEASE)/alone/bin/pip install --quiet --disable-pip-version-check $$file && \
		(cd $(RELEASE) && alone/bin/capgrade --version && alone/bin/capgrade list measures > /dev/null) || exit 1; \
	done
	git tag "v$$($(RELEASE)/alone/bin/capgrade --version | cut -d ' ' -f 2)"

# The oldest versions that pyproject.toml admits, in an environment of their own; the tests of what they touch.
lowest: .venv/installed
	rm -rf $(LOWEST) && $(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/pip install --quiet --disable-pip-version-check uv
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct -e '.[all]' 'pytest>=8' 'hypothesis>=6.100' 'markdown-it-py>=2.2' 'mlcroissant>=1.1'
	$(LOWEST)/bin/python -m pytest $(SHOWN) tests/test_core_alone.py tests/capgrade/measures tests/schemas tests/pipelines/publish tests/apps/judging

# Every path for a GPU beside the processor, a table in at most eight minutes. Where `make wheels` has left its folder, the
# machine's own torch serves, and nothing is fetched.
ifeq ($(wildcard wheels/*.whl),)
gpu: .venv/installed
	$(BIN)/python -m research.benchmarks.gpu $(ARGS)
else
gpu:
	rm -rf $(GPU)
	$(PYTHON) -m pip install --quiet --no-index --no-deps --no-compile --target $(GPU) wheels/*.whl
	PYTHONPATH=$(GPU) $(PYTHON) -m research.benchmarks.gpu $(ARGS)
endif

# What `make gpu` needs on a machine that has Python and torch and reaches nothing: copy the folder there, beside the Makefile.
wheels: .venv/installed
	rm -rf wheels && mkdir -p wheels/source
	git archive HEAD | tar -x -C wheels/source
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir wheels wheels/source
	rm -r wheels/source
	$(BIN)/python -m tests.tools.wheels $(HAS) > wheels/requirements.txt
	$(BIN)/pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --python-version $(FOR) --implementation cp $(PLATFORMS) -d wheels -r wheels/requirements.txt
	du -sh wheels

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

screenshots: .venv/installed
	$(BIN)/capgrade audit --captions data/captions --relevance data/relevance --similarity data/embeddings/scenes_bcls/similarity.npy --out data/audit.html --force
	$(BIN)/python -m tests.tools.screenshots --data data --out docs/screenshots

.venv/installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

clean:
	rm -rf .venv data runs
