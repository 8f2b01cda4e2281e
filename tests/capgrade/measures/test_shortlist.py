"""A measure of another package that scores what another one ranks first: no stage knows it by name."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capgrade import Labels
from capgrade.measures import MEASURES, choose
from capgrade.measures.base import Measure, OfReferences, Shortlist
from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.shards import shards
from capgrade.pipelines.stages.shards import ShardsParams
from capgrade.schemas.captions import Captions, read_captions
from tests.conftest import caption_table, make_captions, random_sets, write_captions_folder


class SlowParams(Shortlist):
    of: str = "rouge_l"
    top: int = 8


@dataclass(frozen=True)
class FittedSlow(OfReferences):
    """The number of a pair, so that none is like another."""

    def pairs(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        return ((images * self.columns + captions) / 10_000).astype(np.float32)


class Slow(Measure[SlowParams]):
    """The number of a pair."""

    name, low, high, parameters, leaves_out = "slow", 0.0, 1.0, SlowParams, False

    def fit(self, captions: Captions) -> FittedSlow:
        return FittedSlow(captions.ref_ptr, captions.refs, False)


@pytest.fixture(autouse=True)
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MEASURES, "slow", Slow)


def test_shards_have_the_first_of_the_other_measure(tmp_path: Path) -> None:
    folder = write_captions_folder(tmp_path / "c", [caption_table(random_sets(20, seed=3))])
    captions = read_captions(folder)
    params = ShardsParams(measures=("slow", "rouge_l"), top=2, uniform=3)
    shards(folder, tmp_path / "s", params, MeasuresParams())
    labels = Labels.load(tmp_path / "s", captions=folder)
    found = labels.block(range(20), range(captions.n_captions), "slow")
    ranks = choose(["rouge_l"], MeasuresParams())["rouge_l"].fit(captions).score(np.arange(20))
    for image, (known, values) in enumerate(zip(found.known, ranks, strict=True)):
        last = np.sort(values)[-8]  # own captions, which are like themselves, are among the first
        assert known[captions.owner == image].all() and known.sum() == 8
        assert known[values > last].all() and (values[known] >= last).all()
    image, caption = np.nonzero(found.known)
    expected = (image * captions.n_captions + caption) / 10_000
    np.testing.assert_allclose(found.relevance[found.known], expected, rtol=1e-6)


def test_captions_that_rank_equal_are_chosen_by_their_ids() -> None:
    """Whatever their order is, and as many as are asked for."""
    sets, found = [["a dog"], ["a red cat"] * 6, ["the man"] * 6], []
    for order in (range(3), (2, 0, 1)):
        captions = make_captions([sets[k] for k in order])
        ids = [f"{k}#{j}" for k in order for j in range(len(sets[k]))]
        table = captions.table.set_column(1, "caption_id", [ids])
        captions = Captions(table, "test", "lower_split", "digest")
        fitted: Any = choose(["slow"], MeasuresParams())["slow"].fit(captions)
        chosen = fitted.scored(np.array([list(order).index(0)])) % captions.n_captions
        found.append({captions.caption_ids[caption] for caption in chosen})
    assert found[0] == found[1] and len(found[0]) == 8 and "0#0" in found[0]
