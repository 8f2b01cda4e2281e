"""What stands for pairs that were not sampled: the estimate over many draws of the real sampler,
and its rules."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import capgrade
from capgrade import Labels
from capgrade.kernels import id_keys
from capgrade.labels.stored import Sampled
from capgrade.labels.unsampled import UNKNOWN_RULES, bounds, estimates
from capgrade.pipelines.sampling.sampler import Plan, keep
from capgrade.schemas.errors import InputError
from capgrade.schemas.pairs import PairLists
from capgrade.schemas.relevance import read_relevance
from tests.conftest import call

from .test_labels import load

# windows of a rare value keep most of it, so what is drawn is far from what is left
PLAN = Plan((0.0,), (10.0,), top=5, width=0.1, stride=0.05, per_window=3, uniform=10, seed=0)
IMAGES, CAPTIONS, DRAWS = 2, 150, 400


def of_pairs(runs: list[list[tuple[int, float, float]]], n_captions: int = 4) -> Sampled:
    """Pairs of (caption, value, weight) of each image, in a part of its own."""
    parts = []
    for run in runs:
        caption, value, weight = np.array(run).reshape(-1, 3).T
        captions, top = caption.astype(np.int32), np.where(caption < 2, 2, 0).astype(np.uint32)
        values = {"m": value.astype(np.float32)}
        parts.append(
            PairLists(np.array([0, len(run)]), captions, weight.astype(np.float32), values, top)
        )
    return Sampled(["m"], n_captions, parts, ["own", "top_m"])


def test_the_estimate_is_the_mean_of_what_was_not_sampled() -> None:
    """Over the sampler's draws it errs by nothing that is seen in four standard errors. Means of
    all that was kept, and of what was drawn with its whole weight, err by many."""
    values = np.minimum(10, np.random.default_rng(0).exponential(1.5, (IMAGES, CAPTIONS))).astype(
        np.float32
    )
    images = id_keys([f"i{k}" for k in range(IMAGES)])
    captions = id_keys([f"c{k}" for k in range(CAPTIONS)])
    own, errors = [np.arange(2) + 2 * k for k in range(IMAGES)], []
    for seed in range(DRAWS):
        kept = keep(replace(PLAN, seed=seed), images, captions, own, {"m": values})
        runs = [slice(*kept.start[i : i + 2]) for i in range(IMAGES)]
        pairs = [
            list(
                zip(kept.caption[run], values[i, kept.caption[run]], kept.weight[run], strict=True)
            )
            for i, run in enumerate(runs)
        ]
        ours = estimates(of_pairs(pairs, CAPTIONS), "m", "shards")
        for i, run in enumerate(runs):
            seen, weight = values[i, kept.caption[run]], kept.weight[run]
            truth = np.delete(values[i], kept.caption[run]).mean(dtype=float)
            whole = np.average(seen[weight > 1], weights=weight[weight > 1])
            errors.append([ours[i] - truth, seen.mean() - truth, whole - truth])
    bias, deviation = np.mean(errors, axis=0), np.std(errors, axis=0)
    near = 4 * deviation / np.sqrt(len(errors))
    assert abs(bias[0]) < near[0] < 0.05
    assert bias[1] > 20 * near[1] and bias[2] > 2 * near[2]


def test_each_pair_stands_for_the_others_of_its_kind() -> None:
    """1 x .2 and 3 x .6 pairs were left out; those kept for certain say nothing of the others; an
    image that tells nothing of its own has the mean of all."""
    found = estimates(of_pairs([[(0, 9, 1), (1, 0.2, 2), (2, 0.6, 4)], [(0, 5, 1)]]), "m", "shards")
    assert found == pytest.approx([(0.2 + 3 * 0.6) / 4] * 2)


def test_pairs_that_were_all_kept_for_certain_tell_nothing() -> None:
    with pytest.raises(
        InputError, match=r"kept for certain, so nothing tells .* sample\['uniform'\] above 0"
    ):
        estimates(of_pairs([[(0, 1, 1)]]), "m", "shards")
    assert (
        len(estimates(of_pairs([[(k, 1, 1) for k in range(4)]]), "m", "shards")) == 1
    )  # nothing is unknown


def test_the_last_top_value_bounds_what_was_not_kept() -> None:
    found = bounds(
        of_pairs([[(0, 0.9, 1), (1, 0.7, 1), (2, 0.1, 4)], [(0, 0.3, 1), (3, 0.2, 3)]]),
        "m",
        "shards",
    )
    assert found == pytest.approx([0.7, 0.3])
    # an image without any
    part = replace(of_pairs([[(0, 0.9, 1), (1, 0.7, 1)]]).parts[0], start=np.array([0, 0, 2]))
    for stored in (
        of_pairs([[(0, 0.9, 1)], [(3, 0.2, 3)]]),
        Sampled(["m"], 4, [part], ["own", "top_m"]),
    ):
        with pytest.raises(InputError, match=r"no top captions of m, .* sample\['top'\] above 0"):
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
            assert (
                all_known.all()
                and (ones == 1).all()
                and np.array_equal(values[known], masked[known])
            )
            assert all(len(set(values[i][~known[i]])) == 1 for i in range(12))
            if unknown == "bound":
                assert (values >= truth - 1e-6).all()
                assert all((values[i][~known[i]] >= means[i] - 1e-6).all() for i in range(12))
            else:
                assert all(
                    values[i][~known[i]] == pytest.approx(means[i], rel=1e-5) for i in range(12)
                )
            assert labels.block(*everything, measure, device="cpu", unknown=unknown)[
                0
            ].numpy() == pytest.approx(values)


def test_labels_of_every_pair_need_no_stand_in(made: Path) -> None:
    exact = capgrade.exact(load(made, "shards"), "rouge_l")
    assert exact.stored.span("rouge_l") == (0, 1)
    for labels in (exact, load(made, "relevance", measures=["cider"])):
        blocks = (
            labels.block(range(3), range(9), unknown=unknown) for unknown in ("estimate", "mask")
        )
        assert all(np.array_equal(one, other) for one, other in zip(*blocks, strict=True))
    with pytest.raises(InputError, match="unknown is 'mean' -> choose from: mask, estimate, bound"):
        exact.block([0], [0], unknown="mean")  # type: ignore[arg-type]


def test_shards_that_keep_everything_need_no_estimate(made: Path, tmp_path: Path) -> None:
    # every caption of every window
    out = tmp_path / "tops"
    windows = "--set shards.windows.per_window=60"
    options = (
        f"--captions {made}/captions --split train --measures rouge_l --set shards.top=2 --set"
        " shards.uniform=0"
    )
    assert call("shards", *options.split(), *windows.split(), "--out", out) == 0
    for unknown in UNKNOWN_RULES:
        assert Labels.load(out).block(range(12), range(60), unknown=unknown).known.all()
