"""Pooled pairs: what each stratum holds, by brute force; estimates from them; a judge's round trip by commands."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from capgrade.explorer.pairs import LabelledPairs
from capgrade.explorer.plans import _drawn, accepted_per_image, pooled, write_plan
from capgrade.explorer.ratings import ReviewRatings
from capgrade.schemas.reviews import Item, ReviewPlan, read_plan
from tests.conftest import call, caption_table, make_captions, random_sets, write_captions_folder
from tests.pipelines.judging.stand_in import Chat, served

SETS = [[f"image {i} caption {k}" for k in range(2)] for i in range(9)]
CAPTIONS = make_captions(SETS)
ALL = list(product(range(9), range(18)))


def every_pair(names: tuple[str, ...] = ("a", "b")) -> LabelledPairs:
    random = np.random.default_rng(0)
    image, caption = (np.array(column, np.int32) for column in zip(*ALL, strict=True))
    values = {name: random.random(len(ALL)).astype(np.float32) for name in names}
    return LabelledPairs(image, caption, values, caption // 2 == image)


def best_by_hand(values: np.ndarray, depth: int, axis: int) -> set[tuple[int, int]]:
    """The `depth` best of each image (axis 1) or caption (axis 0), given pairs left out."""
    found = set()
    for fixed in range(values.shape[1 - axis]):
        line = [(i, c) for i, c in ALL if (i, c)[1 - axis] == fixed and c // 2 != i]
        found |= set(sorted(line, key=lambda pair: -values[pair])[:depth])
    return found


def test_strata_by_brute_force() -> None:
    pairs, S = every_pair(), np.random.default_rng(5).random((9, 18)).astype(np.float32)
    S[2, 7] = -np.inf  # left out by a coarse model
    plan = pooled(pairs, {"m": S}, CAPTIONS, "corpus", depth=2, count=30, seed=1)
    labels = [values.reshape(9, 18) for values in pairs.values.values()]
    expected = set.union(*(best_by_hand(values, 2, 1) for values in labels), *(best_by_hand(S, 2, a) for a in (0, 1)))
    number = {key: k for k, key in enumerate(CAPTIONS.caption_ids)}
    chosen = {
        name: {(int(item.image_id[1:]), number[item.caption_id]) for item in plan.items if item.stratum == name}
        for name in plan.facts["strata"]
    }
    sizes = {name: stratum["pairs"] for name, stratum in plan.facts["strata"].items()}
    assert sizes["pool"] == len(expected) and chosen["pool"] <= expected
    assert sum(sizes.values()) == 9 * 18 - 18, "every pair but the given ones is in one stratum"
    assert not (chosen["uncertain"] | chosen["random"]) & expected
    assert all(c // 2 != i for some in chosen.values() for i, c in some)
    assert {name: len(some) for name, some in chosen.items()} == {
        "pool": 10,
        "uncertain": sizes["uncertain"],
        "random": 10 + 10 - sizes["uncertain"],
    }
    assert plan.probability(next(item for item in plan.items if item.stratum == "uncertain")) == 1
    assert plan == pooled(pairs, {"m": S}, CAPTIONS, "corpus", depth=2, count=30, seed=1)
    assert plan != pooled(pairs, {"m": S}, CAPTIONS, "corpus", depth=2, count=30, seed=2)


def test_each_pair_of_a_stratum_is_as_likely() -> None:
    """Over 400 seeds each of the pool's pairs is drawn as often as its probability says, within five deviations."""
    pairs = every_pair(("a",))
    seen: dict[tuple[str, str], int] = {}
    for seed in range(400):
        plan = pooled(pairs, {}, CAPTIONS, "corpus", depth=3, count=12, seed=seed)
        assert plan.facts["strata"]["uncertain"] == {"pairs": 0, "chosen": 0}, "one label disagrees with nobody"
        for item in plan.items:
            seen[item.image_id, item.caption_id] = seen.get((item.image_id, item.caption_id), 0) + 1
    strata = plan.facts["strata"]
    assert (strata["pool"], strata["random"]) == ({"pairs": 27, "chosen": 4}, {"pairs": 144 - 27, "chosen": 8})
    counts = np.array(list(seen.values()))
    assert len(counts) == 144
    low, high = (400 * p + d * np.sqrt(400 * p * (1 - p)) for p, d in ((8 / 117, -5), (4 / 27, 5)))
    assert low < counts.min() and counts.max() < high


def test_numbers_are_drawn_among_many() -> None:
    taken = np.arange(0, 2**23, 2)
    drawn = _drawn(2**23, taken, 1000, np.random.default_rng(0))
    assert len(set(drawn.tolist())) == 1000 and (drawn % 2 == 1).all()
    assert 0.4 < (drawn > 2**22).mean() < 0.6
    whole = _drawn(9, np.array([0, 4, 4, 8]), 6, np.random.default_rng(0))
    assert sorted(whole) == [1, 2, 3, 5, 6, 7], "all the others"


def test_intervals_cover_the_truth() -> None:
    """A pool of 300 pairs of which 40 % are accepted, 20 unsure ones all rated, 100,000 others of which 0.5 % are."""
    truth = {"pool": (300, 0.4), "uncertain": (20, 0.5), "random": (100_000, 0.005)}
    chosen = {"pool": 60, "uncertain": 20, "random": 200}
    strata = {name: {"pairs": size, "chosen": chosen[name]} for name, (size, _) in truth.items()}
    items = tuple(Item(name, str(k), stratum=name) for name in truth for k in range(chosen[name]))
    plan = ReviewPlan("pool", "corpus", 0, items, {"images": 10, "strata": strata})
    total = sum(size * share for size, share in truth.values()) / 10
    inside = []
    for seed in range(300):
        random = np.random.default_rng(seed)
        yes = {name: random.permutation(size)[: chosen[name]] < size * share for name, (size, share) in truth.items()}
        table = dict(enumerate(5.0 * np.concatenate([yes[name] for name in truth])))
        found = accepted_per_image(plan, table, 4)
        assert found is not None
        inside.append(found["low"] <= total <= found["high"])
    assert np.mean(inside) > 0.93
    assert accepted_per_image(plan, {0: 5.0}, 4) is None, "a stratum without a rating says nothing"
    only = ReviewPlan("pool", "corpus", 0, tuple(Item("i", str(k), stratum="random") for k in range(100)),
                {"images": 1, "strata": {"random": {"pairs": 1000, "chosen": 100}}})  # fmt: skip
    found = accepted_per_image(only, dict.fromkeys(range(100), 0.0), 4)
    assert found["low"] == 0 and found["high"] == pytest.approx(37.0, abs=0.5)  # Brown, Cai, DasGupta 2001


def test_an_older_plan_keeps_its_key(tmp_path: Path) -> None:
    """Of ratings made before there were strata."""
    plan = ReviewPlan("information", "corpus", 0, (Item("i", "c"),))
    assert plan.key == "a42293bb78a836a1eb39769e9fd1b0999f9f763adc0d0c05c08ff195bcf7d978"
    write_plan(tmp_path, plan)
    assert read_plan(tmp_path) == plan and "stratum" not in (tmp_path / "plan.json").read_text()


def test_a_judge_from_sample_to_agreement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPGRADE_CACHE", str(tmp_path / "cache"))
    sets = random_sets(9, seed=5, least=2)
    captions = write_captions_folder(tmp_path / "captions", [caption_table(sets)])
    np.save(tmp_path / "model.npy", np.random.default_rng(1).random((9, sum(map(len, sets)))))
    review, out = tmp_path / "review", tmp_path / "judge.csv"
    sample = (
        f"explore --captions {captions} --measures cider,rouge_l --set explore.similarity=[{tmp_path}/model.npy] "
        f"--set explore.count=30 --sample {review}"
    )
    assert call(*sample.split()) == 2 and "explore.pool goes with" in capsys.readouterr().err
    assert call(*sample.split(), "--set", "explore.pool=3") == 0
    lines = [json.loads(line) for line in (review / "pairs.jsonl").read_text().splitlines()]
    plan = read_plan(review)
    assert [(line["image_id"], line["caption_id"]) for line in lines] == [
        (i.image_id, i.caption_id) for i in plan.items
    ]
    assert {line["stratum"] for line in lines} == {"pool", "uncertain", "random"}
    assert all(0 < line["probability"] <= 1 and line["caption"] not in line["captions"] for line in lines)
    with served(Chat(lambda body: str(len(body["messages"][1]["content"]) % 6))) as chat:
        asked = f"judge --captions {captions} --pairs {review} --endpoint {chat.address} --model robot --out {out}"
        assert call(*asked.split()) == 0
    ratings = ReviewRatings.open(review)
    scores = [int(line.split(",")[2]) for line in out.read_text().splitlines()[1:]]
    for item, score in enumerate(scores):
        ratings.rate("ann", item, score)
        ratings.rate("bo", item, min(score + 1, 5))
    capsys.readouterr()
    assert call("agree", "--reviews", str(review), "--judgements", str(out), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["reviewers"] == {"ann": 30, "bo": 30, "robot": 30} and found["rated_twice"] == 30
    assert found["alpha"]["ordinal"] > found["people"]["ordinal"], "a twin of ann raises it"
    assert found["with_people"]["robot"]["interval"] > 0.8
    assert found["accepted"]["ann"] == found["accepted"]["robot"] != found["accepted"]["bo"]
    assert call("agree", "--reviews", str(review), "--judgements", str(out)) == 0
    assert "that robot accepts" in capsys.readouterr().out
    ratings.rate("robot", 0, 1)
    assert call("agree", "--reviews", str(review), "--judgements", str(out)) == 2
    assert "'robot' is a reviewer too" in capsys.readouterr().err
