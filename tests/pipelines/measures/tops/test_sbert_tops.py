"""Tops of Sentence-BERT by bounds are those of all pairs: the same captions, the same bits, ties included."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.pipelines.measures.sbert import FittedSbert
from capgrade.pipelines.measures.tops import sbert as module
from capgrade.pipelines.measures.tops import sbert_kernel as kernel
from capgrade.pipelines.measures.tops.every import Tops, every_pair
from capgrade.pipelines.measures.tops.find import EveryPair, finder
from capgrade.pipelines.measures.tops.sbert import SbertTops
from capgrade.pipelines.measures.tops.sbert_reaching import floats_of
from capgrade.pipelines.measures.tops.sbert_rotated import LONG, SHORT, rotate, rotated
from capgrade.pipelines.measures.tops.sbert_rounded import has_amx, round_captions
from tests.pipelines.measures.tops.same import ties

D = 256


def embedded(
    images: int, seed: int, references: str = "max", left_out: bool = False, spread: float = 1.0
) -> FittedSbert:
    """Two to five captions per image around common directions; some texts are of several captions."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 6, images)
    ptr = np.concatenate([[0], np.cumsum(sizes)])
    themes = rng.normal(size=(9, D)) * np.linspace(2, 0.05, D)
    vectors = themes[rng.integers(9, size=ptr[-1])] + spread * rng.normal(size=(ptr[-1], D)) * np.linspace(1, 0.1, D)
    same = np.arange(ptr[-1])
    for _ in range(ptr[-1] // 8):
        one, other = np.sort(rng.integers(ptr[-1], size=2))
        same[other] = same[one] = min(same[one], same[other])
    for _ in range(12):  # the first of the first
        same = same[same]
    vectors = vectors[same]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return FittedSbert(ptr, rng.permutation(ptr[-1]), vectors.astype(np.float32), same, references, left_out)


def assert_same(found: Tops, full: Tops) -> None:
    np.testing.assert_array_equal(found.rows, full.rows)
    assert found.values.tobytes() == full.values.tobytes()


@settings(max_examples=40, deadline=None)
@given(
    st.booleans(), st.integers(20, 700), st.integers(0, 10_000), st.integers(1, 20), st.booleans(),
    st.sampled_from(["max", "mean", "first"]), st.sampled_from([1.0, 1e-3, 0.0]),
)  # fmt: skip
def test_tops_are_those_of_all_pairs(
    amx: bool, images: int, seed: int, k: int, left_out: bool, references: str, spread: float
) -> None:
    fitted = embedded(images, seed, references, left_out, spread)
    some = np.arange(seed % 3, images, 1 + seed % 5)
    n = len(fitted.same)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "has_amx", lambda: amx)
        found = SbertTops(fitted, ties(fitted), least=1).tops(some, min(k, n - 5))
    assert_same(found, every_pair(fitted, some, min(k, n - 5), ties(n)))


@pytest.mark.parametrize("amx", [False, True])
def test_several_tiles_and_texts_of_many_captions(amx: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "has_amx", lambda: amx)
    fitted = embedded(2500, seed=3)
    same = fitted.same.copy()
    same[[5, 700, 701, 4000, 8001]] = 5
    same = same[same]
    fitted = dataclasses.replace(fitted, same=same, embeddings=fitted.embeddings[same])
    assert len(same) > 2 * 4096  # several tiles
    images = np.arange(0, 2500, 40)
    found = SbertTops(fitted, ties(fitted), least=1).tops(images, 16)
    assert_same(found, every_pair(fitted, images, 16, ties(len(same))))
    assert found.pairs.mean() < len(same) / 4


def test_the_bounds_of_some_coordinates_hold() -> None:
    vectors = embedded(300, seed=5).embeddings
    short, long = rotated(vectors, rotate(vectors).axes)
    cosines = vectors.astype(np.float64) @ vectors.T.astype(np.float64)
    bound = short @ short.T
    longer = short[:, :SHORT] @ short[:, :SHORT].T + long @ long.T
    assert (bound >= cosines - kernel.slack(D)).all()
    assert (longer >= cosines - kernel.slack(D)).all()
    assert (longer <= bound + kernel.slack(D)).all()
    assert bound.mean() < cosines.mean() + 1


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([1.0, 1e-3, 40.0]))
def test_the_bounds_of_rounded_products_hold(seed: int, length: float) -> None:
    """Of vectors of any length, mixed with zeros; and they are not far above."""
    rng = np.random.default_rng(seed)
    captions = (length * embedded(60, seed).embeddings).astype(np.float32)
    captions[rng.integers(len(captions), size=5)] = 0
    queries, start = embedded(12, seed + 1).embeddings[:24], np.array([0, 1, 6, 24])
    everything = np.full(3, -np.inf, np.float32)
    with round_captions(captions).beside(queries, start) as beside:
        hits = beside.reaching(0, len(captions), everything)
        bounds = (floats_of(hits.key) + beside.above).reshape(3, -1)
    np.testing.assert_array_equal(hits.image, np.repeat(np.arange(3), len(captions)))
    np.testing.assert_array_equal(hits.column, np.tile(np.arange(len(captions)), 3))
    cosines = queries.astype(np.float64) @ captions.T.astype(np.float64)
    largest = np.maximum.reduceat(cosines, start[:-1])
    assert (bounds >= largest - length * kernel.slack(D)).all()
    assert (bounds <= largest + 0.03 * length).all()


def test_bounds_that_are_too_low_would_be_seen() -> None:
    """The comparison can fail: with the rests forgotten, some tops differ."""
    fitted = embedded(700, seed=6)
    images = np.arange(0, 700, 7)
    broken = SbertTops(fitted, ties(fitted), least=1)
    broken.__dict__["bound"] = rotate(fitted.embeddings)
    broken.bound.short[:, SHORT] = -1
    found = broken.tops(images, 20)
    assert not np.array_equal(found.rows, every_pair(fitted, images, 20, ties(len(fitted.same))).rows)


def test_amx_is_what_linux_says(tmp_path: Path) -> None:
    cpu = tmp_path / "cpuinfo"
    assert not has_amx(cpu)
    cpu.write_text("flags : fpu avx512f amx_tile amx_int8")
    assert not has_amx(cpu)
    cpu.write_text("flags : fpu avx512f amx_tile amx_bf16")
    assert has_amx(cpu)


def test_the_way_is_chosen() -> None:
    fitted = embedded(60, seed=7)
    assert isinstance(finder(fitted, ties(len(fitted.same))), SbertTops)
    narrow = dataclasses.replace(fitted, embeddings=np.ascontiguousarray(fitted.embeddings[:, :LONG]))
    assert isinstance(finder(narrow, ties(len(fitted.same))), EveryPair)
    found = finder(fitted, ties(len(fitted.same))).tops(np.arange(60), 4)
    assert (found.pairs == len(fitted.same)).all()  # few captions are scored in full


@pytest.mark.parametrize("k", [1, 300])
def test_more_than_there_are(k: int) -> None:
    fitted = embedded(20, seed=8)
    found, full = (
        SbertTops(fitted, ties(fitted)).tops(np.arange(20), k),
        every_pair(fitted, np.arange(20), k, ties(fitted)),
    )
    assert_same(found, full)
