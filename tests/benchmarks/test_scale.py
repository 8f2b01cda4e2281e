"""Corpora of any size, and the bench that checks sampled shards of them against brute force."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from capgrade.benchmarks import scale, scale_parts, scale_run
from capgrade.benchmarks.brute_force import samples_of
from capgrade.benchmarks.corpus import _suffix, check, corpus, generate, stand_ins, statistics
from capgrade.benchmarks.scale import bench, show
from capgrade.pipelines.execution.parts import Part
from capgrade.pipelines.sampling.plan import Plan, id_keys, keep
from capgrade.pipelines.shards import shards, shards_part
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import MeasuresParams, ShardsParams, WindowsParams
from capgrade.schemas.shards import read_shards
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


def test_without_leaving_and_novelty_captions_are_the_real_ones(real: Captions) -> None:
    _, texts = generate(real, real.n_images, seed=0, leave=0.0, novel=0.0)
    short = {text for text in real.texts if len(text.split()) <= 4}
    assert len(short & set(texts)) > len(short) / 2  # longer ones may be cut short
    assert all(any(whole.startswith(text) for whole in real.texts) for text in texts)


def test_vocabulary_grows_and_lengths_stay(real: Captions, tmp_path: Path) -> None:
    sizes = {}
    for images in (40, 400):
        corpus(real, images, tmp_path / str(images), seed=0, vectors=False)
        sizes[images] = statistics(read_captions(tmp_path / str(images)))
    assert sizes[400]["4-grams"] > 3 * sizes[40]["4-grams"]
    assert sizes[400]["words per caption"] == pytest.approx(sizes[40]["words per caption"], rel=0.2)
    assert "| 1-grams |" in check(real, read_captions(tmp_path / "40"), 0)


def test_statistics_of_one_image(real: Captions, tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """It has no other pairs."""
    corpus(real, 1, tmp_path / "one", seed=0, vectors=False)
    assert "| ROUGE-L of other pairs | 0.1 | – |" in re.sub(
        r"0\.\d+", "0.1", check(real, read_captions(tmp_path / "one"), 0)
    )
    assert not recwarn.list


def test_no_statistics_beside_so_few_images(real: Captions, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An eighth of them is none: said before anything is written."""
    write_captions_folder(tmp_path / "few", [caption_table(random_sets(7, seed=5, least=2))])
    command = [
        "bench",
        "corpus",
        "--captions",
        str(tmp_path / "few"),
        "--set",
        "bench.images=9",
        "--out",
        str(tmp_path / "out"),
    ]
    assert call(*command, "--set", "bench.check=true") == 2
    assert "7 images to check against" in capsys.readouterr().err and not (tmp_path / "out").exists()
    assert call(*command) == 0


def test_json_is_all_that_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_captions_folder(tmp_path / "some", [caption_table(random_sets(16, seed=5, least=2))])
    command = [
        "bench",
        "corpus",
        "--captions",
        str(tmp_path / "some"),
        "--set",
        "bench.images=9",
        "--out",
        str(tmp_path / "out"),
    ]
    assert call(*command, "--set", "bench.check=true", "--json") == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) and "| 1-grams |" in printed.err


def test_variants_have_names_of_their_own() -> None:
    names = [_suffix(k) for k in range(2000)]
    assert len(set(names)) == 2000 and names[0] == "" and names[1] == "xa" and names[27] == "xaa"


def test_stand_ins_are_unit_vectors_of_the_words(real: Captions) -> None:
    vectors = stand_ins(real)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert np.array_equal(stand_ins(real), vectors)


def run_here(folder: Path, names: tuple[str, ...], split: str, out: Path, among: float | None) -> tuple[float, float]:
    """As `scale_run.run`, without a process of its own, which takes ten seconds to start."""
    windows, start = WindowsParams(among=among or "all"), time.perf_counter()
    shards(folder, out, ShardsParams(measures=names, split=split, windows=windows), MeasuresParams())
    return time.perf_counter() - start, 60.0


def test_bench_scale_with_stand_in_vectors(real: Captions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus(real, 80, tmp_path / "c", seed=0, vectors=True)
    monkeypatch.setattr(scale, "run", run_here)
    names = ("cider", "sbert")
    found = bench(tmp_path / "c", names, None, 20, tmp_path / "c" / "vectors.npy", among=0.1, shares=(0.5, 1))
    assert found["pairs"] == 80 * 400 and found["checked_rows"] == 64
    assert [size["captions"] for size in found["sizes"]] == [200, 400]
    for size in found["sizes"]:
        assert size["all_pairs"]["pairs_touched"] == dict.fromkeys(names, size["pairs"])
        some = size["tops_and_share"]
        assert some["pairs_touched"] != size["all_pairs"]["pairs_touched"]
        assert some["checked_rows"] > 0 and some["max_abs_diff"] < 1e-5
        assert some["kept_pairs"] < size["all_pairs"]["kept_pairs"]
    assert all(np.isfinite(one) for one in found["exponent"].values())
    assert show(found).count("as by brute force") == 4
    assert found["max_abs_diff"] < 1e-5
    assert found["pairs_per_s"] == pytest.approx(found["pairs"] / found["seconds"])
    assert found["peak_rss_mb"] == 60 and found["output_bytes"] > 1000


def test_the_stage_in_a_process_of_its_own(real: Captions, tmp_path: Path) -> None:
    corpus(real, 20, tmp_path / "c", seed=0, vectors=False)
    seconds, peak = scale_run.run(tmp_path / "c", ("rouge_l",), "train", tmp_path / "out", 0.1)
    made = read_shards(tmp_path / "out").manifest["params"]["shards"]
    assert made["measures"] == ["rouge_l"] and made["windows"]["among"] == 0.1
    assert 0.1 < seconds < 600 and 50 < peak < 10_000


def part_here(
    folder: Path, names: tuple[str, ...], split: str, out: Path, among: float, options: list[str]
) -> tuple[float, float]:
    """As `run_here`, of a part; the clock is of the part's images alone, and 3 seconds to fit."""
    assert options[0] == "--part"
    params = ShardsParams(measures=names, split=split, windows=WindowsParams(among=among))
    part = Part.parse(options[1])
    shards_part(folder, out, params, MeasuresParams(), part)
    return 3 + 0.01 * 64 * len(part.blocks(10)), 60.0


def test_bench_scale_by_two_parts(real: Captions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus(real, 640, tmp_path / "c", seed=0, vectors=True, per_image=1)
    monkeypatch.setattr(scale_parts, "run", part_here)
    found = scale_parts.bench(tmp_path / "c", ("cider", "sbert"), None, 20, tmp_path / "c" / "vectors.npy", 0.1, 2)
    assert [part["part"] for part in found["parts"]] == ["1/8", "1/2"]
    assert [part["images"] for part in found["parts"]] == [64, 320]
    assert all(part["checked_rows"] == 64 and part["max_abs_diff"] < 1e-5 for part in found["parts"])
    assert found["seconds_per_image"] == pytest.approx(0.01) and found["fixed_seconds"] == pytest.approx(3)
    assert found["computed_seconds"] == pytest.approx(3 + 6.4)
    assert "fit, then 10 ms per image" in scale_parts.show(found)
    with pytest.raises(InputError, match="12 parts of 10 blocks"):
        scale_parts.bench(tmp_path / "c", ("cider",), None, 20, None, 0.1, 3)


def test_vectors_of_another_corpus_are_refused(real: Captions, tmp_path: Path) -> None:
    corpus(real, 20, tmp_path / "c", seed=0, vectors=False)
    np.save(tmp_path / "v.npy", np.zeros((7, 4), np.float32))
    with pytest.raises(InputError, match="7 vectors for 100 captions"):
        bench(tmp_path / "c", ("sbert",), None, 5, tmp_path / "v.npy")


@given(st.integers(0, 10**6), st.integers(1, 400), st.integers(0, 40), st.integers(0, 6), st.integers(0, 40))
@settings(max_examples=60, deadline=None)
def test_brute_force_keeps_what_the_samplers_keep(seed: int, n: int, top: int, per_window: int, uniform: int) -> None:
    assume(uniform or per_window)  # else some pairs have no chance, which the parameters refuse
    random = np.random.default_rng(seed)
    n_images = -(-n // 5)
    ids = [f"i{k // 5}" for k in range(n)]
    table = caption_table([["a"]] * 1).slice(0, 0)
    captions = Captions(table, "x", "y", "z")
    captions.__dict__.update(
        image_ids=list(dict.fromkeys(ids)), caption_ids=[f"c{k}" for k in range(n)], refs=np.arange(n),
        ref_ptr=np.minimum(np.arange(n_images + 1) * 5, n),
    )  # fmt: skip
    values = np.stack([np.minimum(10, random.exponential(1.5, n)), random.integers(-10, 11, n) / 10]).astype(np.float32)
    windows = WindowsParams(width=0.2, stride=0.1, per_window=per_window)
    params = ShardsParams(measures=("cider", "sbert"), top=top, uniform=uniform, windows=windows, seed=seed)
    plan = Plan((0.0, -1.0), (10.0, 1.0), top, 0.2, 0.1, per_window, uniform, seed)
    keys, own = id_keys(captions.caption_ids), [captions.refs[:5]]
    kept = keep(plan, id_keys(captions.image_ids[:1]), keys, own, np.ascontiguousarray(values[:, None, :]))
    found = samples_of(captions, keys, 0, values, params, [(0, 10), (-1, 1)])
    assert np.array_equal(found.captions, kept.caption) and np.array_equal(found.reasons, kept.reasons)
    assert np.allclose(found.weight, kept.weight, rtol=1e-9)
    assert np.array_equal(kept.values, values[:, kept.caption])
