"""Tops that a device selects, beside all pairs of the same form, and a plain sort."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from capgrade.pipelines.measures import choose, on_device
from capgrade.pipelines.measures.selected import select
from capgrade.pipelines.measures.tops import Searches, every_pair, find_tops
from capgrade.schemas.params import MeasuresParams
from tests.conftest import make_captions, random_sets
from tests.pipelines.measures.same import ties
from tests.pipelines.sampling.test_offering import WORD, splitmix

few = st.sampled_from([-1.5, -0.25, -0.0, 0.0, 1e-40, 0.25, 3.0, float("inf"), -float("inf")])


@given(arrays(np.float32, (3, 11), elements=few), st.integers(1, 11), st.integers(1, 11))
@settings(max_examples=200, deadline=None)
def test_selects_as_a_sort_does(values: np.ndarray, k: int, width: int) -> None:
    chunks, (images, captions) = [torch.as_tensor(values[:, at : at + width]) for at in range(0, 11, width)], ties(11)
    found = select(chunks, k, images[:3], captions)
    assert found is not None
    for i, row in enumerate(values):
        hashes = [splitmix((int(images[i]) + int(captions[c])) % WORD) for c in range(11)]
        order = sorted(range(11), key=lambda c: (-row[c], hashes[c]))[:k]
        assert found[0][i].tolist() == order and np.array_equal(found[1][i], row[order])


@pytest.mark.parametrize("width", [1, 4, 11])
def test_nothing_is_selected_by_half_of_a_hash(width: int) -> None:
    """Two captions of one key: one of them is the last, or both are in, or both are out."""
    images, captions = ties(11)
    captions[[2, 8]] = captions[2]
    order = sorted(range(11), key=lambda c: splitmix((int(images[0]) + int(captions[c])) % WORD))
    first = order.index(2)
    values = torch.zeros(1, 11)
    for k in range(1, 11):
        found = select([values[:, at : at + width] for at in range(0, 11, width)], k, images[:1], captions)
        assert (found is None) == (k == first + 1)


def test_all_pairs_decide_what_half_of_a_hash_does_not() -> None:
    captions = make_captions([["a cat", "a dog"], ["a cat", "a cat"], ["a cat", "a cat"]])
    moved = on_device._moved(choose(["rouge_l"], MeasuresParams())["rouge_l"].fit(captions), torch.device("cpu"))
    same = ties(6)._replace(captions=np.zeros(6, np.uint64))
    assert find_tops(moved, np.arange(3), 3, same).rows.tolist() == [[0, 1, 2], [0, 2, 3], [0, 2, 3]]


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("left_out", ["included", "left_out"])
@pytest.mark.parametrize("name", ["cider", "rouge_l", "sbert"])
def test_equals_all_pairs_of_its_form(name: str, left_out: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capgrade.pipelines.measures.base.CHUNK", 16)
    monkeypatch.setattr(on_device, "CHUNK", 16)
    monkeypatch.setattr("capgrade.pipelines.measures.cider.CHUNK", 16)
    monkeypatch.setattr("capgrade.pipelines.measures.tops.CHUNK", 16)
    captions = make_captions([*random_sets(14, seed=5, least=2), ["", "a cat"], ["a cat", "a cat"]])
    params = MeasuresParams(**{name: {"self_reference": left_out}})
    moved = on_device._moved(choose([name], params)[name].fit(captions), torch.device(device))
    images, same = np.array([3, 15, 0, 14]), ties(captions.n_captions)
    assert isinstance(moved, Searches)
    for k in (1, 5, captions.n_captions, captions.n_captions + 3):
        mine, full = find_tops(moved, images, k, same), every_pair(moved, images, k, same)
        assert np.array_equal(mine.rows, full.rows) and np.array_equal(mine.values, full.values)
