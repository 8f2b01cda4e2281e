"""What stands for pairs that were not sampled: the estimate, the bound, and their rules."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from capgrade.labels.stored import Part, Sampled
from capgrade.labels.unsampled import bounds, estimates
from capgrade.schemas.errors import InputError
from capgrade.schemas.relevance import read_relevance

from .test_labels import load


def of_pairs(runs: list[list[tuple[int, float, float]]], n_captions: int = 4) -> Sampled:
    """Pairs of (caption, value, weight) of each image, in a part of its own."""
    parts = []
    for run in runs:
        caption, value, weight = np.array(run).reshape(-1, 3).T
        captions, top = caption.astype(np.int32), np.where(caption < 2, 2, 0).astype(np.uint32)
        values = {"m": value.astype(np.float32)}
        parts.append(Part(np.array([0, len(run)]), captions, weight.astype(np.float32), top, values))
    return Sampled(["m"], n_captions, parts, ["own", "top_m"])


def test_each_pair_stands_for_the_others_of_its_kind() -> None:
    """1 x .2 and 3 x .6 pairs were left out; those kept for certain say nothing of the others; an image that tells
    nothing of its own has the mean of all."""
    found = estimates(of_pairs([[(0, 9, 1), (1, 0.2, 2), (2, 0.6, 4)], [(0, 5, 1)]]), "m", "shards")
    assert found == pytest.approx([(0.2 + 3 * 0.6) / 4] * 2)


def test_pairs_that_were_all_kept_for_certain_tell_nothing() -> None:
    with pytest.raises(InputError, match="kept for certain, so nothing tells .* shards.uniform above 0"):
        estimates(of_pairs([[(0, 1, 1)]]), "m", "shards")
    for of in (estimates, bounds):
        assert len(of(of_pairs([[(k, 1, 1) for k in (2, 3, 0, 1)]]), "m", "shards")) == 1  # nothing is unknown


def test_the_last_top_value_bounds_what_was_not_kept() -> None:
    found = bounds(of_pairs([[(0, 0.9, 1), (1, 0.7, 1), (2, 0.1, 4)], [(0, 0.3, 1), (3, 0.2, 3)]]), "m", "shards")
    assert found == pytest.approx([0.7, 0.3])
    part = replace(of_pairs([[(0, 0.9, 1), (1, 0.7, 1)]]).parts[0], start=np.array([0, 0, 2]))  # an image without any
    for stored in (of_pairs([[(0, 0.9, 1)], [(3, 0.2, 3)]]), Sampled(["m"], 4, [part], ["own", "top_m"])):
        with pytest.raises(InputError, match="no top captions of m, .* shards.top above 0"):
            bounds(stored, "m", "shards")


@pytest.mark.parametrize("kind", ["dataset", "shards"])
def test_unknown_pairs_get_what_stands_for_them(made: Path, kind: str) -> None:
    labels, everything = load(made, kind), (range(12), range(60))
    for measure in labels.measures:
        truth = read_relevance(made / "relevance" / f"{measure}.arrow").matrix()
        masked, known, weights = labels.block(*everything, measure)
        means = [np.average(masked[i], weights=np.maximum(weights[i] - 1, 0)) for i in range(12)]
        for unknown in ("estimate", "bound"):
            values, all_known, ones = labels.block(*everything, measure, unknown=unknown)
            assert all_known.all() and (ones == 1).all() and np.array_equal(values[known], masked[known])
            assert all(len(set(values[i][~known[i]])) == 1 for i in range(12))
            if unknown == "bound":
                assert (values >= truth - 1e-6).all()
                assert all((values[i][~known[i]] >= means[i] - 1e-6).all() for i in range(12))
            else:
                assert all(values[i][~known[i]] == pytest.approx(means[i], rel=1e-5) for i in range(12))
            assert labels.block(*everything, measure, device="cpu", unknown=unknown)[0].numpy() == pytest.approx(values)


def test_labels_of_every_pair_need_no_stand_in(made: Path) -> None:
    exact = load(made, "shards").exact("rouge_l")
    assert exact.stored.span("rouge_l") == (0, 1)
    for labels in (exact, load(made, "relevance", measures=["cider"])):
        blocks = (labels.block(range(3), range(9), unknown=unknown) for unknown in ("estimate", "mask"))
        assert all(np.array_equal(one, other) for one, other in zip(*blocks, strict=True))
    with pytest.raises(InputError, match="unknown is 'mean' -> choose from: mask, estimate, bound"):
        exact.block([0], [0], unknown="mean")  # type: ignore[arg-type]
