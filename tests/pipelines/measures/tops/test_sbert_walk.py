"""What the walk over tiles must hold: every product that reaches its gate is found, every tile is taken once."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.pipelines.measures.tops import sbert as module
from capgrade.pipelines.measures.tops import sbert_reaching, sbert_rounded
from capgrade.pipelines.measures.tops.every import every_pair
from capgrade.pipelines.measures.tops.sbert import SbertTops, one_blas_thread_each
from capgrade.pipelines.measures.tops.sbert_reaching import floats_of, keys_below, reaching
from capgrade.pipelines.measures.tops.sbert_walk import rounds, walk
from tests.pipelines.measures.tops.same import ties
from tests.pipelines.measures.tops.test_sbert_tops import assert_same, embedded


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([np.int16, np.int32]), st.integers(1, 700), st.integers(1, 40))
def test_what_reaches_a_gate_is_found(seed: int, dtype: type, n: int, room: int) -> None:
    """As a loop over floats says, zeros of both signs, negative gates and those of any float among them."""
    rng = np.random.default_rng(seed)
    start = np.concatenate([[0], np.cumsum(rng.integers(1, 5, 6))])
    values = rng.normal(size=(start[-1], n)).astype(np.float32).round(1)
    values[rng.random(values.shape) < 0.1] *= 0
    bits = values.view(np.int32)
    if dtype is np.int16:
        bits = (bits >> 16).astype(np.int16)
        values = (bits.astype(np.int32) << 16).view(np.float32)
    best = np.maximum.reduceat(values, start[:-1])
    gates = rng.choice([-np.inf, -0.5, -0.0, 0.0, 0.1, 1.3, 9.0], 6)
    gates[0] = best[0, 0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sbert_reaching, "ROOM", room)
        hits = reaching(bits, start, keys_below(gates, dtype))
    found = {(b, c): v for b, c, v in zip(hits.image, hits.column, floats_of(hits.key), strict=True)}
    assert len(found) == len(hits.image)
    assert (np.diff(hits.image) >= 0).all()
    for b in range(6):
        for c in range(n):
            assert found.get((b, c), best[b, c]) == best[b, c]
            assert (b, c) in found or best[b, c] < gates[b]
            assert (b, c) not in found or best[b, c] >= gates[b] - 0.02


@given(st.integers(1, 3000), st.integers(1, 70))
def test_every_caption_is_taken_once(n_captions: int, tile: int) -> None:
    taken = list(rounds(n_captions, tile))
    firsts, lasts = (np.concatenate(side) for side in zip(*taken, strict=True))
    pieces = [np.arange(*piece) for piece in zip(firsts, lasts, strict=True)]
    assert all(0 < len(piece) <= tile for piece in pieces)
    np.testing.assert_array_equal(np.sort(np.concatenate(pieces)), np.arange(n_captions))
    assert len(taken) <= 3 + np.log(n_captions / tile + 1) / np.log(4)


@pytest.mark.parametrize("amx", [False, True])
@pytest.mark.parametrize("alike", ["texts", "embeddings"])
def test_captions_that_are_all_the_same_are_all_candidates(
    amx: bool, alike: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists grow with what they hold: none of the equal ones may be lost, as any may be the best."""
    monkeypatch.setattr(module, "has_amx", lambda: amx)
    monkeypatch.setattr(sbert_rounded, "TILES", (64, 128))
    fitted = embedded(800, seed=11)
    fitted = dataclasses.replace(fitted, embeddings=np.repeat(fitted.embeddings[:1], len(fitted.same), 0))
    fitted = dataclasses.replace(
        fitted, same=np.zeros_like(fitted.same) if alike == "texts" else np.arange(len(fitted.same))
    )
    images = np.arange(0, 800, 90)
    tops = SbertTops(fitted, ties(fitted), least=1)
    assert_same(tops.tops(images, 7), every_pair(fitted, images, 7, ties(len(fitted.same))))
    queries, start = fitted.queries(images)
    with one_blas_thread_each() as threads, tops.bound.beside(queries, start) as beside:
        found = walk(beside, queries, start, fitted.embeddings, 7, threads).found
    np.testing.assert_array_equal(np.sort(found.rows[: found.ptr[1]]), np.arange(len(fitted.same)))


def test_torch_has_its_threads_back() -> None:
    import torch

    before = torch.get_num_threads()
    fitted = embedded(60, seed=2)
    with sbert_rounded.round_captions(fitted.embeddings).beside(*fitted.queries(np.arange(3))) as beside:
        beside.reaching(0, 50, np.zeros(3, np.float32))
    assert torch.get_num_threads() == before
