"""Corpora of any size, the benchmark of the stage on them, and the gates."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from research.benchmarks import gates
from research.benchmarks.corpus import stand_in_vectors, write_corpus
from research.benchmarks.shards import run
from tests.conftest import call, caption_table, random_sets, refusal, write_captions_folder

MODULE = "research.benchmarks"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Captions:
    folder = tmp_path_factory.mktemp("real") / "captions"
    return read_captions(
        write_captions_folder(folder, [caption_table(random_sets(40, seed=5, least=2))])
    )


@pytest.mark.parametrize("images", [7, 123])
def test_a_corpus_is_a_captions_folder_of_the_size_asked_for(
    real: Captions, tmp_path: Path, images: int
) -> None:
    for name in ("one", "two"):
        write_corpus(real, images, tmp_path / name, vectors=True)
    made = read_captions(tmp_path / "one")
    assert (made.n_images, made.n_captions, made.split) == (images, 5 * images, "train")
    assert (np.diff(made.ref_ptr) == 5).all()
    assert all(
        text.split() == words
        for text, words in zip(made.texts, made.table["tokens"].to_pylist(), strict=True)
    )
    assert np.allclose(np.linalg.norm(stand_in_vectors(made), axis=1), 1, atol=1e-5)
    for file in ("captions.arrow", "vectors.npy"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_only_what_a_corpus_wrote_is_written_over(real: Captions, tmp_path: Path) -> None:
    """Vectors of somebody else are refused, and the captions stay; those of a run before go with
    it."""
    out, mine = tmp_path / "c", b"\x93NUMPY of mine"
    write_corpus(real, 7, out, vectors=False)
    (out / "vectors.npy").write_bytes(mine)
    with pytest.raises(InputError, match="vectors.npy: it is there and capgrade did not write it"):
        write_corpus(real, 8, out, vectors=True)
    assert (out / "vectors.npy").read_bytes() == mine and read_captions(out).n_images == 7
    (out / "vectors.npy").unlink()
    for images, vectors in ((8, True), (9, True), (9, False)):
        write_corpus(real, images, out, vectors=vectors)
        assert (out / "vectors.npy").exists() == vectors and read_captions(out).n_images == images


def run_here(command: str, options: Sequence[str], **environment: str) -> dict[str, float]:
    """As `research.benchmarks.shards.run`, without a process of its own, which takes ten seconds to
    start."""
    assert call(command, *options) == 0
    return {"seconds": 2.0, "processor_seconds": 3.0, "peak_mb": 60.0}


def test_bench_shards_with_stand_in_vectors(
    real: Captions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Those of another corpus are refused."""
    write_corpus(real, 80, tmp_path / "c", vectors=True)
    monkeypatch.setattr("research.benchmarks.shards.run", run_here)
    line = [
        "shards",
        "--captions",
        tmp_path / "c",
        "--measures",
        "rouge_l,sbert",
        "--json",
    ]
    line += ["--set", "shards.windows.among=0.1", "--set"]
    assert call(*line, f"bench.embeddings={tmp_path}/c/vectors.npy", module=MODULE) == 0
    said = capsys.readouterr().out  # the stage's line comes first
    row = json.loads(said[said.index("{") :])["shards"]
    assert (row["pairs"], row["ns_per_pair"]) == (80 * 400, 62_500) and row["kept_pairs"] > 80 * 5
    assert row["times_the_product"] == pytest.approx(2 / row["product_seconds"])
    np.save(tmp_path / "v.npy", np.zeros((7, 4), np.float32))
    other = f"bench.embeddings={tmp_path}/v.npy"
    assert "7 vectors for 400 captions" in refusal(*line, other, module=MODULE)


def test_what_a_command_takes_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    took = run("--help", [])
    assert (
        0.1 < took["seconds"] < 60
        and took["processor_seconds"] > 0.05
        and 10 < took["peak_mb"] < 10_000
    )
    monkeypatch.setattr("sys.executable", "false")  # a program that fails, sooner than Python does
    with pytest.raises(InputError, match="capgrade shards ended with status 1"):
        run("shards", [])


def test_the_gates_beside_the_figures(
    real: Captions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each in its row, in the order of the table; that of Flickr30K only where its captions are
    given. Both runs of a stage keep kernels in the same folder, which is empty at first."""
    runs: list[tuple[str, str]] = []

    def first_and_next(
        command: str, options: Sequence[str], **environment: str
    ) -> dict[str, float]:
        runs.append((command, environment["NUMBA_CACHE_DIR"]))
        return {"seconds": 9.0 if runs.count(runs[-1]) == 1 else 2.0, "peak_mb": 60.0}

    folder = write_captions_folder(
        tmp_path / "c", [caption_table(random_sets(30, seed=5, least=2))]
    )
    monkeypatch.setattr(gates, "EIGHTH", 60)
    monkeypatch.setattr("research.benchmarks.shards.run", run_here)
    monkeypatch.setattr("research.benchmarks.start.run", first_and_next)
    peers = {"cider": {"ratio": 80_000.0}, "rouge_l": {"ratio": 19_000.0}}
    for name, rows in {"relevance": peers, "score": {"total": {"ratio": 60.0}}}.items():
        monkeypatch.setattr(f"research.benchmarks.{name}.bench", lambda asked, rows=rows: rows)
    capsys.readouterr()
    assert call("gates", "--captions", folder, "--json", module=MODULE) == 0
    said = capsys.readouterr().out
    rows = json.loads(said[said.index("{\n") :])
    assert list(rows) == list(gates.GATES)[:-1]
    *small, product, best, memory = rows.values()
    modules, seconds = (row["now"] for row in small[3:5])
    assert [row["now"] for row in small] == [80_000, 19_000, 60, modules, seconds, 9, 9]
    assert modules > 5 and seconds > 0.05
    assert [row["holds"] for row in small[:3] + small[5:]] == [False, True, True, True, True]
    assert (
        small[0]["gate"] == "at least 90,000"
        and (best["now"], memory["now"]) == (1, 60)
        and product["now"] > 0
    )
