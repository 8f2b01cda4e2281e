"""Corpora of any size, and the benchmark of the stage on them, which checks sampled shards against brute force."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from capgrade.benchmarks.corpus import _suffix, corpus, stand_ins
from capgrade.benchmarks.shards import bench
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from tests.conftest import call, caption_table, random_sets, write_captions_folder


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Captions:
    folder = tmp_path_factory.mktemp("real") / "captions"
    return read_captions(write_captions_folder(folder, [caption_table(random_sets(40, seed=5, least=2))]))


@pytest.mark.parametrize("images", [7, 40, 123])
def test_a_corpus_is_a_captions_folder_of_the_size_asked_for(real: Captions, tmp_path: Path, images: int) -> None:
    for name in ("one", "two"):
        corpus(real, images, tmp_path / name, seed=3, vectors=True)
    made = read_captions(tmp_path / "one")
    assert (made.n_images, made.n_captions, made.split) == (images, 5 * images, "train")
    assert all(text.split() == words for text, words in zip(made.texts, made.table["tokens"].to_pylist(), strict=True))
    for file in ("captions.arrow", "vectors.npy"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    corpus(real, images, tmp_path / "other", seed=4, vectors=False)
    assert read_captions(tmp_path / "other").texts != made.texts


def test_a_corpus_of_one_caption_per_image(real: Captions, tmp_path: Path) -> None:
    corpus(real, 30, tmp_path / "one", seed=3, vectors=False, per_image=1)
    made = read_captions(tmp_path / "one")
    assert (made.n_images, made.n_captions) == (30, 30) and np.array_equal(np.diff(made.ref_ptr), np.ones(30))


def test_variants_have_names_of_their_own() -> None:
    names = [_suffix(k) for k in range(2000)]
    assert len(set(names)) == 2000 and names[0] == "" and names[1] == "xa" and names[27] == "xaa"


def test_stand_ins_are_unit_vectors_of_the_words(real: Captions) -> None:
    vectors = stand_ins(real)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert np.array_equal(stand_ins(real), vectors)


def run_here(command: str, options: Sequence[str], **environment: str) -> dict[str, float]:
    """As `capgrade.benchmarks.shards.run`, without a process of its own, which takes ten seconds to start."""
    assert call(command, *options) == 0
    return {"seconds": 2.0, "processor_seconds": 3.0, "peak_mb": 60.0}


def test_bench_shards_with_stand_in_vectors(
    real: Captions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus(real, 80, tmp_path / "c", seed=0, vectors=True)
    monkeypatch.setattr("capgrade.benchmarks.shards.run", run_here)
    command = [
        "bench",
        "shards",
        "--captions",
        str(tmp_path / "c"),
        "--measures",
        "cider,sbert",
        "--set",
        "bench.compared=20",
    ]
    command += ["--set", f"bench.embeddings={tmp_path}/c/vectors.npy", "--set", "shards.windows.among=0.1"]
    capsys.readouterr()
    assert call(*command) == 0
    said = capsys.readouterr().out
    assert "80 images x 400 captions" in said and "64 images as by brute force" in said
    assert "2.0 s, 62,500.0 ns per pair; 3.0 s of processor time; 60 MB at most" in said


def test_the_stage_in_a_process_of_its_own(real: Captions, tmp_path: Path) -> None:
    corpus(real, 20, tmp_path / "c", seed=0, vectors=False)
    found = bench(tmp_path / "c", ("rouge_l",), None, None, 5, ["shards.windows.among=0.1"])
    assert found["pairs"] == 20 * 100 and found["checked_images"] == 20 and found["max_abs_diff"] < 1e-5
    assert 0.1 < found["seconds"] < 600 and found["processor_seconds"] > 0.1 and 50 < found["peak_mb"] < 10_000
    assert found["ratio"] == pytest.approx(found["seconds"] / found["product_seconds"])


def test_a_stage_that_fails_is_an_error(real: Captions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus(real, 20, tmp_path / "c", seed=0, vectors=False)
    monkeypatch.setattr("sys.executable", "false")  # a program that fails, sooner than Python does
    with pytest.raises(InputError, match="capgrade shards ended with status 1"):
        bench(tmp_path / "c", ("rouge_l",), None, None, 5, [])


def test_bench_start_compares_the_first_run_with_the_next(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both runs of a stage keep kernels in the same folder, which is empty at first."""
    runs: list[tuple[str, str]] = []

    def run(command: str, options: Sequence[str], **environment: str) -> dict[str, float]:
        folder = environment["NUMBA_CACHE_DIR"]
        runs.append((command, folder))
        return {"seconds": 9.0 if runs.count((command, folder)) == 1 else 2.0}

    monkeypatch.setattr("capgrade.benchmarks.start.run", run)
    assert call("bench", "start", "--captions", "c", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found.keys() == {"relevance", "shards"}
    assert all(row["compile_seconds"] == 7 and row["modules"] > 5 for row in found.values())


def test_vectors_of_another_corpus_are_refused(real: Captions, tmp_path: Path) -> None:
    corpus(real, 20, tmp_path / "c", seed=0, vectors=False)
    np.save(tmp_path / "v.npy", np.zeros((7, 4), np.float32))
    with pytest.raises(InputError, match="7 vectors for 100 captions"):
        bench(tmp_path / "c", ("sbert",), None, tmp_path / "v.npy", 5, [])
