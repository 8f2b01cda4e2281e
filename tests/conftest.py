"""Captions to test on: small ones of our own, and the real ones where they are present."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import cache
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import typer.main
from platformdirs import user_cache_path

from capgrade.schemas import say
from capgrade.schemas.arrow import with_metadata, write_arrow
from capgrade.schemas.captions import CAPTIONS_FILE, SCHEMA, Captions, read_captions
from capgrade.schemas.files import MANIFEST, SELF, self_digest, work_folders, write_manifest
from capgrade.schemas.pairs import Pairs
from capgrade.schemas.relevance import relevance_batch, relevance_schema
from tests.kills import no_sync

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
if "OMP_WAIT_POLICY" not in os.environ:
    # as the command line sets it, before torch is loaded
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
# DVC asks for newer versions and tells its authors what was typed, each by a process more.
os.environ["DVC_TEST"] = "1"
# Beginnings of variables that change what others compute, or where; Dask and torch set more.
READ_BY_ALL = ("CAPGRADE_", "HF_", "HOME", "LOCAL_RANK", "PATH", "RANK", "TMPDIR", "WORLD_SIZE")
collect_ignore = ["core"]  # run without the extras: test_core_alone.py
# What is imported stays: looking for garbage in it took a fifth of the collection of tests.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def _same_environment() -> Iterator[None]:
    """A variable that a test leaves set changes tests of other modules, in some orders alone."""
    before = dict(os.environ)
    yield
    names = {name for name, _ in before.items() ^ os.environ.items()}
    changed = {name for name in names if name.startswith(READ_BY_ALL)}
    assert not changed, f"left otherwise than found: {changed}"


@pytest.fixture(autouse=True)
def _nothing_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process says once is said in each test."""
    monkeypatch.setattr(say, "_printed", set())


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What tests keep stays in their temporary folder, but for METEOR's table, which takes as long
    as hundreds of tests: beside the kernels, it is that of the code that makes it."""
    cache = tmp_path_factory.mktemp("cache")
    os.environ["CAPGRADE_CACHE"] = str(cache)
    digest = hashlib.sha256()
    for name in ("measures/meteor/paraphrases.py", "text/tokens.py", "kernels.py"):
        digest.update((ROOT / "capgrade" / name).read_bytes())
    kept = user_cache_path("capgrade") / "tests" / f"meteor-{digest.hexdigest()[:16]}"
    with suppress(OSError):  # then each process makes its own
        kept.mkdir(parents=True, exist_ok=True)
        (cache / "meteor").symlink_to(kept)


@pytest.fixture(scope="session", autouse=True)
def _no_sync() -> None:
    """Waiting for the disk was a twentieth of the tests' time."""
    no_sync()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Headless Chromium. Continuous integration fails without one; elsewhere its tests are
    skipped."""
    from tests.tools.browser import chromium, executable

    if executable() is None:
        reason = "no chromium on this machine (Debian: apt-get install chromium)"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    with chromium() as opened:
        yield opened


# typer builds all commands anew for every line, which takes longer than most lines.
_commands_of = cache(typer.main.get_command)


def call(*arguments: object, module: str = "capgrade.pipelines.cli") -> int:
    """Exit status of `capgrade ARGUMENTS`, run as the installed command runs it; or of
    `python -m MODULE ARGUMENTS`."""
    main = import_module(f"{module}.__main__").main
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["capgrade", *map(str, arguments)])
        patch.setattr(typer.main, "get_command", _commands_of)
        with pytest.raises(SystemExit) as stopped:
            main()
            raise SystemExit(0)
    return int(stopped.value.code or 0)


def printed(*arguments: object, **module: str) -> Any:
    """The JSON that `capgrade ARGUMENTS --json` prints."""
    with redirect_stdout(StringIO()) as out:
        assert call(*arguments, "--json", **module) == 0
    return json.loads(out.getvalue())


def agreement(
    captions: Path,
    judgements: Path,
    names: Sequence[str],
    measures: Any,
    *,
    out: Path | None = None,
    **params: Any,
) -> dict[str, dict[str, Any]]:
    """The figures of `agree` by measure, with these keys of its block."""
    from capgrade.pipelines.agree import agree
    from capgrade.pipelines.stages.agree import AgreeParams

    given = AgreeParams(judgements=str(judgements), measures=tuple(names), **params)
    return agree(captions, out, given, measures=measures).measures


def refusal(*arguments: object, **module: str) -> str:
    """The one line of `capgrade ARGUMENTS`, which is refused."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as said:
        assert call(*arguments, **module) == 2, arguments
    # own lines
    notices = (
        "compiling kernels, once",
        "building METEOR's table of paraphrases, once",
        "preparing ",
        "fitting ",
        "reading ",
        "evaluating ",
        "warning: ",
        "to ask: ",
    )
    line = "".join(
        one for one in said.getvalue().splitlines(keepends=True) if not one.startswith(notices)
    )
    assert out.getvalue() == "" and line.startswith("error: ") and line.count("\n") == 1, line
    return line


def on_processes(
    world: int, script: str, folder: Path, restarts: int | None = None
) -> list[dict[str, Any]]:
    """What each of so many processes of torch.distributed, given the folder, writes to
    WORLD-RANK.json there. With a number of restarts torchrun starts them."""
    (folder / "script.py").write_text(script)
    command = ["tests.tools.ranks", str(world)]
    if restarts is not None:
        command = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(world)]
        command += ["--max-restarts", str(restarts)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    arguments = [str(folder / "script.py"), str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", *command, *arguments],
        capture_output=True,
        env=environment,
        timeout=300,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{world}-{rank}.json").read_text()) for rank in range(world)]


def work_of(out: Path) -> Path:
    """The one folder of unfinished work of an output."""
    (work,) = work_folders(out)
    return work


def contents(folder: Path) -> dict[str, bytes]:
    """The bytes of each file of a folder, by name; a folder in it is an error."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def caption_table(
    reference_sets: Sequence[Sequence[str]], split: str = "test", prefix: str = "i"
) -> pa.Table:
    """A captions table, tokens by whitespace, from the captions of each image; ids are the prefix
    and a number."""
    rows = [
        (i, k, text) for i, captions in enumerate(reference_sets) for k, text in enumerate(captions)
    ]
    return pa.table(
        {
            "image_id": [f"{prefix}{i}" for i, _, _ in rows],
            "caption_id": [f"{prefix}{i}#{k}" for i, k, _ in rows],
            "split": [split] * len(rows),
            "caption": [text for _, _, text in rows],
            "tokens": [text.split() for _, _, text in rows],
            "image_file": pa.nulls(len(rows), pa.string()),
        },
        schema=SCHEMA,
    )


def make_captions(reference_sets: Sequence[Sequence[str]], split: str = "test") -> Captions:
    return Captions(caption_table(reference_sets, split), split, "lower_split", "digest")


def write_captions_folder(folder: Path, tables: Sequence[pa.Table]) -> Path:
    """A finished captions folder with these tables, one after the other."""
    schema = with_metadata(SCHEMA, {"kind": "captions", "tokenizer": "lower_split"})
    whole = pa.concat_tables(tables).cast(SCHEMA).replace_schema_metadata(schema.metadata)
    rows = {CAPTIONS_FILE: write_arrow(folder / CAPTIONS_FILE, schema, whole.to_batches())}
    images, splits = len(set(whole["image_id"].to_pylist())), Counter(whole["split"].to_pylist())
    write_manifest(
        folder,
        "captions",
        params={"captions": {}},
        inputs={},
        rows=rows,
        images=images,
        splits=splits,
    )
    return folder


def write_matrix(
    file: Path, matrix: np.ndarray, image_ids: Sequence[str] | None = None, **facts: str
) -> int:
    """A dense table of relevance [images, captions], by default of i0, i1, ...; returns how many
    rows it has."""
    schema, ids = relevance_schema(matrix.shape[1], str(matrix.dtype), facts), image_ids
    return write_arrow(
        file,
        schema,
        [relevance_batch(ids or [f"i{k}" for k in range(len(matrix))], matrix, schema)],
    )


def edit_manifest(folder: Path, **changes: Any) -> None:
    """Other entries of a folder's manifest, and the checksum that goes with them."""
    path = folder / MANIFEST
    manifest = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({**manifest, SELF: self_digest(manifest)}))


WORDS = [
    "a", "the", "man", "woman", "dog", "cat", "red", "blue", "small", "big", "runs", "sits",
    "rides", "on", "under", "near", "bike", "ball", "beach", "street",
]  # fmt: skip


def random_sets(n_images: int, seed: int = 0, least: int = 1, most: int = 6) -> list[list[str]]:
    """Captions of 1 to 24 words from a small vocabulary, 1 to 6 an image."""
    random = np.random.default_rng(seed)
    return [
        [
            " ".join(random.choice(WORDS, random.integers(1, 25)))
            for _ in range(random.integers(least, most + 1))
        ]
        for _ in range(n_images)
    ]


@pytest.fixture(scope="session")
def coco(tmp_path_factory: pytest.TempPathFactory) -> Captions:
    """COCO's 5K test captions with `ptb_py` tokens."""
    path = DATA / "coco" / "test5k_captions.tsv"
    if not path.is_file():
        pytest.skip("the COCO captions of ../shared/data are not here")
    folder = tmp_path_factory.mktemp("coco") / "captions"
    assert (
        call("captions", "--source", "tsv", "--input", path, "--split", "test", "--out", folder)
        == 0
    )
    return read_captions(folder)


def valued_pairs(
    image: np.ndarray, caption: np.ndarray, value: np.ndarray, weight: np.ndarray
) -> Pairs:
    """Pairs with the values of one measure."""
    return Pairs(image, caption, weight, {"measure": value})
