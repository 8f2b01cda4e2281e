"""With document frequencies given, a pair has the same value, to the last bit, among any other captions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.pipelines.measures import choose
from capgrade.pipelines.measures.base import CHUNK
from capgrade.pipelines.measures.ngrams import document_frequencies
from capgrade.schemas.captions import Captions
from capgrade.schemas.params import MeasuresParams
from tests.conftest import make_captions, random_sets

NAMES = ("cider", "cider_plain", "rouge_l", "bleu", "both")


def fixed(folder: Path, self_reference: str = "included") -> MeasuresParams:
    """With the frequencies of captions of which many are elsewhere, and with words of their own."""
    file = folder / "frequencies.arrow"
    document_frequencies(make_captions([*random_sets(40, seed=99), ["zebra a", "zebra b"]])).save(file)
    ciders = {name: {"document_frequency": str(file)} for name in ("cider", "cider_plain")}
    named = {name: {**ciders.get(name, {}), "self_reference": self_reference} for name in NAMES[:-1]}
    return MeasuresParams.model_validate({**named, "mixtures": {"both": {"cider": 0.3, "rouge_l": 2.0}}})


def values(captions: Captions, name: str, params: MeasuresParams) -> np.ndarray:
    fitted = choose([name], params)[name].fit(captions)
    out = np.empty((captions.n_images, CHUNK), np.float32)
    for _ in fitted.chunks(np.arange(captions.n_images), 0, captions.n_captions, out):
        pass
    return out[:, : captions.n_captions]


@pytest.mark.parametrize("self_reference", ["included", "left_out"])
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 25))
def test_a_pair_has_the_same_bits_among_other_captions(
    tmp_path_factory: pytest.TempPathFactory, self_reference: str, seed: int, n: int
) -> None:
    folder = tmp_path_factory.mktemp("frequencies")
    params, random = fixed(folder, self_reference), np.random.default_rng(seed)
    sets = random_sets(n, seed=seed, least=2)
    sets += [[" ".join(random.choice(["new", "zebra", "a", "the", "the the"], 70))] * 2]  # another longest caption
    some = np.sort(random.choice(len(sets), random.integers(1, len(sets)), replace=False))
    whole, part = make_captions(sets), make_captions([sets[k] for k in some])
    columns = np.flatnonzero(np.isin(whole.owner, some))
    for name in NAMES:
        assert np.array_equal(values(whole, name, params)[some][:, columns], values(part, name, params)), name


def test_without_given_frequencies_values_move() -> None:
    """What the test above would miss if frequencies had no effect."""
    sets = random_sets(20, seed=1)
    whole, part = make_captions(sets), make_captions(sets[:10])
    columns = np.flatnonzero(whole.owner < 10)
    found = values(whole, "cider", MeasuresParams())[:10][:, columns]
    assert not np.array_equal(found, values(part, "cider", MeasuresParams()))
