"""What is put first and is to be rated: by rank shares, by information, by SemanticMap's protocol; the plan on disk."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from capgrade.explorer.models import ModelVoice
from capgrade.explorer.pairs import LabelledPairs, ranked
from capgrade.explorer.plans import information, misses_again, most_informative, write_plan
from capgrade.schemas.errors import InputError
from capgrade.schemas.reviews import PLAN, read_plan
from tests.conftest import make_captions

SETS = [[f"image {i} caption {k}" for k in range(2)] for i in range(12)]


def _pairs(seed: int = 0, count: int = 200) -> LabelledPairs:
    random = np.random.default_rng(seed)
    image, caption = random.integers(12, size=count), random.integers(24, size=count)
    values = {name: random.random(count).astype(np.float32) for name in ("a", "b", "c")}
    return LabelledPairs(image.astype(np.int32), caption.astype(np.int32), values, caption // 2 == image)


def _bits(p: float) -> float:
    return -sum(x * np.log2(x) for x in (p, 1 - p) if x > 0)


def test_information_by_hand() -> None:
    image = np.zeros(2, np.int32)
    pairs = LabelledPairs(image, image, {"a": np.array([1.0, 2.0]), "b": np.array([9.0, 3.0])}, image > 0)
    expected = _bits(0.5) - (_bits(0.25) + _bits(0.75)) / 2  # rank shares 1/4 and 3/4, crossed
    np.testing.assert_allclose(information(pairs), [expected, expected])
    agreed = LabelledPairs(image, image, {"a": np.array([1.0, 2.0]), "b": np.array([3.0, 9.0])}, image > 0)
    np.testing.assert_allclose(information(agreed), [0, 0], atol=1e-12)


def test_one_measure_has_nobody_to_disagree_with() -> None:
    with pytest.raises(InputError, match="1 measure"):
        information(replace(_pairs(), values={"a": _pairs().values["a"]}))


def test_the_most_informative_pairs_are_chosen() -> None:
    pairs, captions = _pairs(), make_captions(SETS)
    plan = most_informative(pairs, captions, "corpus", 5, seed=1)
    assert len(plan.items) == 5
    images, texts = ([getattr(item, name) for item in plan.items] for name in ("image_id", "caption_id"))
    assert len(set(images)) == len(set(texts)) == 5
    assert all(not text.startswith(f"{image}#") for image, text in zip(images, texts, strict=True)), "none is original"
    others = pairs.take(np.flatnonzero(~pairs.original))
    best = others.take(np.array([information(others).argmax()]))
    assert (captions.image_ids[best.image[0]], captions.caption_ids[best.caption[0]]) == (images[0], texts[0])
    assert plan == most_informative(pairs, captions, "corpus", 5, seed=1)


def test_each_reviewer_has_an_order_that_the_seed_fixes() -> None:
    plan = most_informative(_pairs(), make_captions(SETS), "corpus", 8, seed=1)
    assert sorted(plan.order("ann")) == list(range(8)) == sorted(plan.order("bo"))
    assert plan.order("ann") == plan.order("ann") != plan.order("bo")
    assert plan.order("ann") != replace(plan, seed=2).order("ann")


def model(scores: np.ndarray) -> ModelVoice:
    """A trained model of these similarities."""
    voice = ModelVoice("model", SimpleNamespace(folder=None), *map(np.arange, scores.shape))  # type: ignore[arg-type]
    object.__setattr__(voice, "similarity", lambda: scores)
    return voice


def test_semantic_map_takes_what_the_model_misses() -> None:
    captions = make_captions(SETS)
    scores = np.zeros((12, 24), np.float32)
    scores[captions.owner, np.arange(24)] = 1
    scores[:, 5] = 12 - np.arange(12)  # caption 5 belongs to image 2: ranks third
    scores[:, 4] = np.arange(12)  # caption 4 too: its image ranks tenth
    scores[:, 0], scores[:, 23] = np.arange(12), 12 - np.arange(12)  # theirs rank last
    plan = misses_again(model(scores), captions, "corpus", 10, seed=0)
    assert plan.facts == {"model": "model", "k": 10, "queries": 24, "hits": 22}
    assert {item.query for item in plan.items} == {"i0#0", "i11#1"}
    found = {query: [item.image_id for item in plan.items if item.query == query] for query in ("i0#0", "i11#1")}
    assert found == {"i0#0": [f"i{k}" for k in range(11, 1, -1)], "i11#1": [f"i{k}" for k in range(10)]}
    assert len(misses_again(model(scores), captions, "corpus", 1, seed=0).items) == 10
    scores[:] = np.eye(12).repeat(2, axis=1)
    with pytest.raises(InputError, match="misses no caption"):
        misses_again(model(scores), captions, "corpus", 10, seed=0)


def test_a_plan_is_read_as_it_was_written_and_a_damaged_one_refused(tmp_path: Path) -> None:
    plan = most_informative(_pairs(), make_captions(SETS), "corpus", 5, seed=1)
    for _ in range(2):
        write_plan(tmp_path, plan)
        assert read_plan(tmp_path) == plan
    with pytest.raises(InputError, match="another review"):
        write_plan(tmp_path, replace(plan, seed=2))
    with pytest.raises(InputError, match="no caption of another image is there to rate -> give captions of two images"):
        write_plan(tmp_path / "nothing", replace(plan, items=()))
    whole = plan.json()
    other, misspelt = whole | {"protocol": "x"}, whole | {"fact": whole["facts"]}
    item = whole | {"items": [{**whole["items"][0], "querry": "x"}]}
    for damage in (
        "{}",
        "[1]",
        "",
        '{"items": [{"image": 1}]}',
        "{not json",
        *map(json.dumps, (other, misspelt, item)),
    ):
        (tmp_path / PLAN).write_text(damage)
        with pytest.raises(InputError, match="not a review plan|not JSON"):
            read_plan(tmp_path)
    (tmp_path / PLAN).unlink()
    with pytest.raises(InputError, match="explore --sample"):
        read_plan(tmp_path)


def make_pairs(image: list[int], caption: list[int], **values: list[float]) -> LabelledPairs:
    columns = {name: np.array(column, np.float32) for name, column in values.items()}
    return LabelledPairs(
        np.array(image, np.int32), np.array(caption, np.int32), columns, np.array(image) == np.array(caption)
    )


def test_shares_take_no_notice_of_scale_and_ties_share_theirs() -> None:
    for values in ([3, 1, 2, 2], [300, 0.1, 7, 7]):
        np.testing.assert_allclose(make_pairs([0] * 4, [0] * 4, a=values).shares("a"), [3.5 / 4, 0.5 / 4, 2 / 4, 2 / 4])
    assert len(make_pairs([], [], a=[]).shares("a")) == 0


def test_an_item_comes_no_more_often_than_allowed() -> None:
    pairs = make_pairs([0, 0, 0, 1, 2], [0, 1, 2, 3, 3], a=[0] * 5)
    strength = np.array([5.0, 4, 3, 2, 1])
    assert ranked(pairs, strength, 10).tolist() == [0, 1, 3, 4]
    assert ranked(pairs, strength, 10, per_item=1).tolist() == [0, 3]
    assert ranked(pairs, strength, 1).tolist() == [0]
    assert ranked(pairs, np.zeros(5), 2).tolist() == [0, 1], "equal ones keep their order"
