"""A model's R@1 errors: sums by hand, ties, a gallery without stand-ins, coverage of the intervals,
shards."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capgrade.agreement.curve import Curve, Scale, fit
from capgrade.agreement.judgements import Judgements
from capgrade.apps.audit import audit
from capgrade.apps.audit.errors import DIRECTIONS, ModelErrors
from capgrade.apps.audit.page import summary_lines
from capgrade.schemas.captions import Captions
from capgrade.schemas.pairs import Pairs
from capgrade.trainer.evaluation.evaluate import evaluate
from capgrade.trainer.evaluation.task import load_task
from capgrade.trainer.stages.evaluate import EvaluateParams
from tests.apps.audit.conftest import LINE
from tests.conftest import make_captions, random_sets, valued_pairs

SHARES = Scale(0.5, 0.0, 1.0)


def all_pairs(values: np.ndarray, captions: Captions) -> Pairs:
    image, caption = np.nonzero(captions.owner[None] != np.arange(captions.n_images)[:, None])
    return valued_pairs(
        image, caption, values[image, caption].astype(np.float32), np.ones(len(image))
    )


def errors_of(
    similarity: np.ndarray,
    captions: Captions,
    pairs: Pairs,
    kept: np.ndarray | None = None,
    curve: Curve = LINE,
) -> dict[str, ModelErrors]:
    kept = np.arange(captions.n_captions) if kept is None else kept
    found = {way: ModelErrors(similarity, kept, captions, way, curve) for way in DIRECTIONS}
    for one in found.values():
        for part in np.array_split(np.arange(len(pairs.image)), 3):
            one.add(pairs.take(part))
    return found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_sums_are_those_of_a_loop_over_queries(seed: int, dtype: type) -> None:
    """Few levels of similarity, so that first places are shared; some captions are out of the
    gallery."""
    random = np.random.default_rng(seed)
    captions = make_captions(random_sets(9, seed=seed, least=2, most=4))
    n = captions.n_captions
    kept = np.sort(random.permutation(n)[: n - 4]) if seed else np.arange(n)
    similarity = (random.integers(5, size=(9, len(kept))) / 4).astype(dtype)
    values = random.random((9, n))
    found = errors_of(similarity, captions, all_pairs(values, captions), kept)
    for way in DIRECTIONS:
        hits, accepted, likely = [], [], []
        for query in range(9 if way == "i2t" else len(kept)):
            row = similarity[query] if way == "i2t" else similarity[:, query]
            first = np.flatnonzero(row == row.max())
            pairs = [(query, kept[k]) if way == "i2t" else (k, kept[query]) for k in first]
            own = np.array([captions.owner[c] == i for i, c in pairs])
            hits.append(own.mean())
            other = [
                np.float32(values[i, c])
                for (i, c), mine in zip(pairs, own, strict=True)
                if not mine
            ]
            accepted.append(sum(other) / len(first))
            likely.append(sum(value >= 0.5 for value in other) / len(first))
        told = found[way].summarise(True)
        assert told["recall"] == pytest.approx(np.mean(hits))
        assert told["errors"] == pytest.approx(len(hits) - sum(hits)) and told[
            "known"
        ] == pytest.approx(1)
        assert found[way].counts.expected_accepted().sum() == pytest.approx(sum(accepted), abs=1e-5)
        assert told["likely"]["share"] == pytest.approx(sum(likely) / (len(hits) - sum(hits)))
        assert told["likely"]["recall"] == pytest.approx(np.mean(hits) + np.mean(likely))


@pytest.mark.parametrize(("images", "per"), [(5, 2), (3, 6)])
def test_a_perfect_model_has_no_errors(images: int, per: int) -> None:
    """Its first place is shared by own items: six sixths are 1, and 0.9999999999999999 as a sum."""
    captions = make_captions(
        [[f"image {i} caption {k}" for k in range(per)] for i in range(images)]
    )
    similarity = (captions.owner[None] == np.arange(images)[:, None]).astype(np.float32)
    pairs = all_pairs(np.ones((images, images * per)), captions)
    for told in (one.summarise(True) for one in errors_of(similarity, captions, pairs).values()):
        assert told["recall"] == 1 and told["errors"] == 0 and told["known"] == 1
        assert told["likely"] == told["at_least"] == {"share": 0, "recall": 1}


def test_weights_do_not_make_more_of_the_errors_accepted_than_there_are() -> None:
    """A pair that stands for three others, which this model does not rank first."""
    similarity = np.array([[0, 1, 0], [0, 1, 0], [0, 0, 1]], np.float32)
    pairs = valued_pairs(np.array([0]), np.array([1]), np.array([0.9], np.float32), np.array([4.0]))
    told = errors_of(similarity, make_captions([["a"], ["b"], ["c"]]), pairs)["i2t"].summarise(True)
    assert told["errors"] == 1 and told["likely"] == {"share": 1, "recall": 1}


def _curve_of_others(seed: int) -> Curve:
    random = np.random.default_rng(100 + seed)
    seen = random.random(3000)
    people = Judgements(
        np.arange(3000) % 100, np.arange(3000), (random.random(3000) < seen**2).astype(float)
    )
    return fit(seen, people, 1000 + np.arange(3000) // 5, SHARES)


@pytest.mark.parametrize("sees", [0.0, 0.3])
def test_people_accept_at_least_what_is_told(sees: float) -> None:
    """People accept a pair of value v with probability v squared; the calibration is of other
    people and images. A model that `sees` more than values ranks first what they accept."""
    inside = 0
    captions = make_captions(random_sets(80, seed=1, least=3, most=3))
    own = captions.owner[None] == np.arange(80)[:, None]
    curves = [_curve_of_others(seed) for seed in range(6)]
    for seed in range(30):
        random = np.random.default_rng(seed)
        values = random.random(own.shape)
        yes = random.random(own.shape) < values**2
        similarity = values * 0.5 + random.random(own.shape) + 0.6 * own + sees * yes
        told = errors_of(similarity, captions, all_pairs(values, captions), None, curves[seed % 6])[
            "t2i"
        ].summarise(True)
        first = similarity.argmax(axis=0)
        truth = yes[first, np.arange(240)][first != captions.owner].mean()
        inside += told["at_least"]["share"] <= truth
        assert (
            told["at_least"]["share"] > 0.5 * truth * (sees == 0)
            and told["at_least"]["recall"] > told["recall"]
        )
    assert inside >= 27  # of 30: below it with 97.5 % each, once in 100


def test_a_model_is_audited_from_dense_relevance_and_from_shards(
    world: Path, given: dict[str, Any], tmp_path: Path
) -> None:
    matrix = np.load(world / "s.npy")
    np.save(
        tmp_path / "s.npy",
        np.random.default_rng(0).random(matrix.shape).astype(np.float32) + matrix / 10,
    )
    given |= {"similarity": [tmp_path / "s.npy"]}
    dense = audit(out=tmp_path / "d.html", relevance=world / "relevance", **given)["model"]
    some = audit(out=tmp_path / "s.html", shards=world / "shards", **given)["model"]
    task, _ = load_task(world / "captions", similarity=tmp_path / "s.npy")
    recall = evaluate(task, EvaluateParams(metric=("recall@1",), samples=0))[0].json()
    for way in DIRECTIONS:
        assert dense[way]["recall"] == pytest.approx(recall[way]["recall@1"]) == some[way]["recall"]
        assert dense[way]["known"] == pytest.approx(1) and 0 < some[way]["known"] < 1
        one, other = dense[way]["likely"], some[way]["likely"]
        assert (
            other["share"] == pytest.approx(one["share"], abs=0.25)
            and one["recall"] > dense[way]["recall"]
        )
    said = ["did not keep" in (tmp_path / f"{name}.html").read_text() for name in "ds"]
    assert said == [False, True]


def test_scores_in_another_order_are_said_to_be(
    world: Path, given: dict[str, Any], tmp_path: Path
) -> None:
    """As `evaluate` says it: in the lines that are printed, and on the page. Right ones get
    nothing."""
    right = np.load(world / "s.npy")
    np.save(tmp_path / "right.npy", right)
    np.save(tmp_path / "other.npy", right[np.random.default_rng(0).permutation(len(right))])
    for name, expected in (("right", False), ("other", True)):
        out = tmp_path / f"{name}.html"
        found = audit(
            **given, out=out, relevance=world / "relevance", similarity=[tmp_path / f"{name}.npy"]
        )
        said = "no better than chance: the mean rank of a caption's image is"
        assert (
            (said in str(found["model_order"]))
            == (said in " ".join(summary_lines(found)))
            == expected
        )
        assert ("no better than chance" in out.read_text()) == expected
        if expected:
            assert found["model_order"].endswith("give it as .npz with image_ids and caption_ids")


def test_a_stand_in_leaves_the_gallery(
    world: Path, given: dict[str, Any], tmp_path: Path, monkeypatch
) -> None:
    """Without the encoder: any vectors of the captions."""
    vectors = lambda texts, model: np.random.default_rng(1).random((len(texts), 8), np.float32)  # noqa: E731
    monkeypatch.setattr("capgrade.measures.embeddings.embed", vectors)
    found = audit(**given, out=tmp_path / "d.html", relevance=world / "relevance", stand_in=0)[
        "model"
    ]
    assert found["i2t"]["known"] == pytest.approx(1) and found["t2i"]["known"] == pytest.approx(1)
