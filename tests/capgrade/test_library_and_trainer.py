"""Two roads to each number: a loss as the library and as the trainer computes it from the same shards, a metric as
`capgrade.evaluate` and as the command writes it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capgrade import Labels, evaluate, losses
from capgrade.labels.batches import Neighbours
from capgrade.labels.unsampled import UNKNOWN
from capgrade.losses import COUNTED, Terms
from capgrade.losses.base import ScoredBatch
from capgrade.metrics.catalogue import CATALOGUE
from capgrade.metrics.evaluation import DIRECTIONS
from capgrade.schemas.relevance import read_relevance
from capgrade.trainer.data.pairs import Batch
from capgrade.trainer.data.relevance import LookedUp
from tests.conftest import call, caption_table, random_sets, write_captions_folder
from tests.trainer.evaluation.test_evaluate import relevance_folder

from .test_losses import FUNCTIONS, GRADED

MEASURES = ("cider", "rouge_l")
ONES = {"suppress_health_check": [HealthCheck.function_scoped_fixture], "deadline": None}


@dataclass(frozen=True)
class World:
    """One corpus in every form that labels have."""

    folder: Path
    sampled: dict[str, Labels]  # by kind of folder
    looked_up: dict[tuple[str, str], LookedUp]  # by kind of folder and measure, as the trainer reads them


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Fourteen images with one to six captions, two equal ones, and a few kept pairs of each image."""
    folder = tmp_path_factory.mktemp("world")
    sets = [*random_sets(12, seed=3), ["a dog runs"], ["a dog runs", "a dog runs"]]
    captions = write_captions_folder(folder / "captions", [caption_table(sets, "train")])
    some = ["--captions", str(captions), "--split", "train", "--measures", ",".join(MEASURES)]
    assert (
        call("shards", *some, "--set", "shards.top=2", "--set", "shards.uniform=6", "--out", str(folder / "shards"))
        == 0
    )
    assert call("relevance", *some, "--out", str(folder / "relevance")) == 0
    publish = ["--captions", str(captions), "--shards", str(folder / "shards"), "--license", "cc-by-4.0"]
    assert call("publish", *publish, "--out", str(folder / "dataset")) == 0
    sampled = {"shards": Labels.load(folder / "shards", captions=captions), "dataset": Labels.load(folder / "dataset")}
    looked_up = {
        (kind, measure): LookedUp.load(folder / kind, captions, "train", measure, "mask")
        for kind in sampled
        for measure in MEASURES
    }
    return World(folder, sampled, looked_up)


def options_of(name: str) -> dict[str, float]:
    return {"temperature": 0.05} if name in ("daa", "smooth_ap") else {}  # 0.001 is a step: rounding decides


@pytest.mark.parametrize("kind", ["shards", "dataset"])
@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=12, **ONES)
@given(data=st.data())
def test_a_loss_of_sampled_labels_is_that_of_the_trainer(world, name, kind, data):
    """Batches as the trainer makes them: pairs, in which an image may come twice."""
    labels, measure = world.sampled[kind], data.draw(st.sampled_from(MEASURES))
    other = {"shards": "dataset", "dataset": "shards"}[kind]  # the trainer reads the same pairs from the other folder
    drawn = st.lists(st.integers(0, labels.n_captions - 1), min_size=1, max_size=14, unique=True)
    rows = np.array(data.draw(drawn))
    images = labels.owner[rows]
    scores = torch.from_numpy(np.random.default_rng(data.draw(st.integers(0, 99))).uniform(-1, 1, (len(rows),) * 2))
    own = torch.from_numpy(Batch(None, None, images, rows).own)  # type: ignore[arg-type]
    looked_up = [torch.from_numpy(found) for found in world.looked_up[other, measure].block(images, rows)]
    block = labels.block(images, rows, measure, device="cpu")
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(block, looked_up, strict=True))
    batch = ScoredBatch(scores, own, *looked_up, in_order=True)
    trained = Terms([{"name": name, **options_of(name)}])(batch)
    given_ = [own] if name not in GRADED else [block.relevance, own, block.known]
    given_ += [block.weights] if name in COUNTED else []
    assert float(FUNCTIONS[name](scores, *given_, **options_of(name))) == float(trained)


@pytest.mark.parametrize("kind", ["shards", "dataset"])
@pytest.mark.parametrize("unknown", UNKNOWN)
@settings(max_examples=12, **ONES)
@given(data=st.data())
def test_a_block_of_the_trainer_is_that_of_the_library(world, kind, unknown, data):
    """From shards and from the dataset that was published from them."""
    other = {"shards": "dataset", "dataset": "shards"}[kind]
    measure = data.draw(st.sampled_from(MEASURES))
    rows = np.array(data.draw(st.lists(st.integers(0, len(world.sampled[kind].owner) - 1), min_size=1, max_size=14)))
    images = world.sampled[kind].owner[rows]
    ours = world.sampled[kind].block(images, rows, measure, unknown=unknown)
    theirs = replace(world.looked_up[other, measure], unknown=unknown).block(images, rows)
    assert np.array_equal(ours.relevance, theirs.relevance)
    ones = (np.ones_like(ours.known), np.ones_like(ours.weights)) if unknown != "mask" else theirs[1:]
    assert np.array_equal(ours.known, ones[0]) and np.array_equal(ours.weights, ones[1])


@pytest.mark.parametrize("measure", MEASURES)
def test_the_same_captions_are_kept_for_a_measure_in_shards_and_the_dataset(world, measure):
    every = np.ones(world.sampled["shards"].n_captions, bool)
    one, other = (Neighbours.kept_for(labels, measure, every) for labels in world.sampled.values())
    assert np.array_equal(one.start, other.start) and np.array_equal(one.captions, other.captions)
    assert len(one.captions) > 20


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=15, **ONES)
@given(seed=st.integers(0, 10**6), size=st.integers(2, 6))
def test_own_says_which_pairs_belong_together_in_whatever_order(name, seed, size):
    """A square batch with its captions in another order, and with one more that is nobody's and is not known."""
    rng = np.random.default_rng(seed)
    scores, own = torch.tensor(rng.uniform(-1, 1, (size, size))), torch.eye(size, dtype=torch.bool)
    relevance = torch.tensor(rng.uniform(0, 0.9, (size, size))).where(~own, 1)
    known = torch.tensor(rng.random((size, size)) < 0.7) | own
    weights = torch.tensor(rng.integers(1, 4, (size, size))).double().where(known, 0).where(~own, 1)
    order = torch.tensor(rng.permutation(size))

    def loss(*matrices):
        scores, relevance, own, known, weights = matrices
        rest = (own,) if name not in GRADED else (relevance, own, known, weights)[: 4 if name in COUNTED else 3]
        return float(FUNCTIONS[name](scores, *rest, **options_of(name)))

    matrices = scores, relevance, own, known, weights
    moved = [matrix[:, order] for matrix in matrices]
    assert loss(*moved) == pytest.approx(loss(*matrices), rel=1e-5, abs=1e-6)
    if name in GRADED:
        wide = [torch.cat([matrix, torch.zeros_like(matrix[:, :1])], dim=1) for matrix in moved]
        assert loss(*wide) == pytest.approx(loss(*matrices), rel=1e-5, abs=1e-6)


def test_a_perfect_model_in_another_order_costs_nothing():
    scores, own = torch.tensor([[-0.9, 0.9], [0.9, -0.9]]), torch.tensor([[False, True], [True, False]])
    assert float(losses.triplet(scores, own)) == 0
    assert float(losses.sam(scores, own.float(), own)) == 0
    with pytest.raises(Exception, match="square batches in which pair i is row i and column i"):
        losses.sam(scores, own.float(), own, form="authors")


def test_a_square_batch_may_hold_images_without_captions():
    """Both captions are the first image's; the second image is a negative alone."""
    scores, own = torch.tensor([[0.5, 0.2], [0.4, 0.1]]), torch.tensor([[True, True], [False, False]])
    # towards captions: .2 + .2 - .5 < 0 and .2 + .5 - .2; towards images: .2 + .4 - .5 and .2 + .1 - .2
    assert float(losses.triplet(scores, own)) == pytest.approx(0.5 + 0.1 + 0.1)


def test_the_same_image_is_no_negative_of_sam():
    """Rows 0 and 1 are one image. The only negatives are the other image and its caption, too far away to cost
    anything; the image's first caption, as a negative of the second, would cost (1 - 1) / 10 + .9 - .8."""
    scores = torch.tensor([[0.9, 0.8, 0.1], [0.9, 0.8, 0.1], [0.2, 0.1, 0.7]])
    own = torch.block_diag(torch.ones(2, 2), torch.ones(1, 1)) > 0
    assert float(losses.sam(scores, own.float(), own)) == 0
    assert float(Terms([{"name": "sam"}])(ScoredBatch(scores, own, own.float()))) == 0
    assert float(losses.sam(scores, own.float(), torch.eye(3) > 0)) == pytest.approx(0.1)
    one_row = losses.sam(scores[1:], own[1:].float(), own[1:])  # the same batch with the image once
    assert float(one_row) == 0


@pytest.mark.parametrize("name", COUNTED)
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_loss_of_drawn_pairs_is_near_that_of_all(name, seed):
    """As shards keep pairs: relevant ones for certain, of the others some. A model that knows the relevant ones alone:
    without weights its loss seems small. `sigmoid` is without bias, `daa`, of ratios of ranks, within a tenth."""
    rng, size, draws = np.random.default_rng(seed), 16, 60
    own, relevance = torch.eye(size, dtype=torch.bool), torch.tensor(rng.beta(1, 3, (size, size)))
    relevance = relevance.where(~own, 1)
    scores = torch.tensor(rng.uniform(0, 0.4, (size, size))).where(relevance < 0.4, relevance)
    chance = torch.ones_like(relevance).where(relevance > 0.4, 0.15)
    options = {"temperature": 0.05} if name == "daa" else {"temperature": 1.0, "bias": 0.0}
    whole, found, each_once = float(FUNCTIONS[name](scores, relevance, own, **options)), [], []
    for _ in range(draws):
        known = torch.tensor(rng.random((size, size))) < chance
        weights = (1 / chance).where(known, 0)
        found.append(float(FUNCTIONS[name](scores, relevance, own, known, weights, **options)))
        each_once.append(float(FUNCTIONS[name](scores, relevance, own, known, known.float(), **options)))
    near = 5 * np.std(found) / np.sqrt(draws) + (0.1 * whole if name == "daa" else 0)
    assert abs(np.mean(found) - whole) < near < 0.4 * whole < whole - np.mean(each_once)


REMOVING = {"sr_other", "sr_soft_other", "ncs_other", "ncs_authors"}  # own items, by groups
SHAPES = {"": "", "k": "@{k}", "km": "@{k}(m={m})"}


def shared_names(k: int, m: int) -> list[str]:
    """Every metric that both have."""
    families = {name: one for name, one in CATALOGUE.items() if one.needs in ("own", "relevance")}
    return [
        name + SHAPES[one.arguments].format(k=max(k, 2) if name.startswith("cs") else k, m=m)
        for name, one in families.items()
        if name not in REMOVING
    ]


def same(ours: dict[str, float], theirs: dict[str, float | None], within: float = 1e-12) -> None:
    expected = {name: np.nan if theirs[name] is None else theirs[name] for name in ours}
    assert ours == pytest.approx(expected, abs=within, nan_ok=True)


@pytest.mark.parametrize("seed", range(2))
def test_evaluate_of_sampled_labels_is_what_the_command_writes(world, tmp_path_factory, seed):
    """Their pairs computed exactly, against the dense matrix that the command reads; the two round in another order."""
    folder, labels = tmp_path_factory.mktemp("files"), world.sampled["shards"]
    scores = np.random.default_rng(seed).uniform(-1, 1, (len(labels.image_ids), labels.n_captions)).astype(np.float32)
    np.save(folder / "scores.npy", scores)
    for measure in MEASURES:
        matrix = read_relevance(world.folder / "relevance" / f"{measure}.arrow").matrix()
        dense = folder / measure
        relevance_folder(dense, [measure], matrix)
        check_command(folder, scores, world.folder / "captions", dense, labels.exact(measure), within=1e-7)


def check_command(
    folder: Path, scores: np.ndarray, captions: Path, dense: Path, labels: Labels, within: float = 1e-12
) -> None:
    out, names = folder / f"evaluated {labels.measures[0]}", shared_names(3, 2)
    options = ["--captions", captions, "--similarity", folder / "scores.npy", "--relevance", dense, "--out", out]
    metrics = [word for name in names for word in ("--metric", name)]
    assert call("evaluate", *map(str, options), *metrics, "--set", "evaluate.samples=0") == 0
    written = json.loads((out / "metrics.json").read_text())
    assert set(DIRECTIONS) <= set(written)
    found = evaluate(scores, labels, names)
    for way, values in found.scored.items():
        same(values.mean, written[way], within)
