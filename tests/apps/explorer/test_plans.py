"""What is put first and is to be rated, by hand and by brute force: by information, by
SemanticMap's protocol, and pooled; estimates from a pool; the plan on disk; a judge's round trip by
commands."""

import json
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from capgrade.apps.explorer.pairs import rank_pairs, rank_shares
from capgrade.apps.explorer.plans import (
    estimate_accepted,
    information_of,
    plan_misses,
    plan_most_informative,
    plan_pool,
    write_plan,
)
from capgrade.apps.explorer.ratings import ReviewRatings
from capgrade.apps.explorer.voices import make_matrix_voice
from capgrade.schemas.errors import InputError
from capgrade.schemas.pairs import Pairs
from capgrade.schemas.reviews import PLAN, Item, ReviewPlan, read_plan
from tests.apps.judging.stand_in import Chat, served
from tests.conftest import call, caption_table, make_captions, random_sets, write_captions_folder

CAPTIONS = make_captions([[f"image {i} caption {k}" for k in range(2)] for i in range(12)])
ALL = list(product(range(12), range(24)))


def of(image: list[int], caption: list[int], **values: list[float]) -> Pairs:
    columns = {name: np.array(column, np.float32) for name, column in values.items()}
    rows = np.array(image, np.int64), np.array(caption, np.int64)
    return Pairs(*rows, np.ones(len(image)), columns)


def every_pair(names: str = "ab") -> Pairs:
    random = np.random.default_rng(0)
    return of(
        *map(list, zip(*ALL, strict=True)),
        **{name: random.random(len(ALL)).tolist() for name in names},
    )


def informative(seed: int = 1) -> ReviewPlan:
    return plan_most_informative(every_pair("abc"), CAPTIONS, "corpus", 5, seed)


def test_shares_and_information_by_hand() -> None:
    """Shares take no notice of the scale, ties share theirs; who agrees tells nothing."""
    for values in ([3, 1, 2, 2], [300, 0.1, 7, 7]):
        shares = rank_shares(np.array(values))
        np.testing.assert_allclose(shares, [3.5 / 4, 0.5 / 4, 2 / 4, 2 / 4])
    assert len(rank_shares(np.array([]))) == 0
    crossed = 1 - (0.25 * np.log2(4) + 0.75 * np.log2(4 / 3))  # rank shares 1/4 and 3/4
    for b, expected in (([9, 3], crossed), ([3, 9], 0)):
        np.testing.assert_allclose(
            information_of(of([0, 0], [0, 0], a=[1, 2], b=b)), [expected] * 2, atol=1e-12
        )
    with pytest.raises(InputError, match="1 measure"):
        information_of(of([0], [0], a=[1]))


def test_an_item_comes_no_more_often_than_allowed() -> None:
    pairs, strength = of([0, 0, 0, 1, 2], [0, 1, 2, 3, 3], a=[0] * 5), np.array([5.0, 4, 3, 2, 1])
    assert rank_pairs(pairs, strength, 10).tolist() == [0, 1, 3, 4]
    assert rank_pairs(pairs, strength, 10, per_item=1).tolist() == [0, 3]
    assert rank_pairs(pairs, strength, 1).tolist() == [0]
    assert rank_pairs(pairs, np.zeros(5), 2).tolist() == [0, 1], "equal ones keep their order"


def test_the_most_informative_pairs_are_chosen() -> None:
    pairs, plan = every_pair("abc"), informative()
    images, texts = (
        [getattr(item, name) for item in plan.items] for name in ("image_id", "caption_id")
    )
    assert len(set(images)) == len(set(texts)) == 5
    assert all(
        not text.startswith(f"{image}#") for image, text in zip(images, texts, strict=True)
    ), "none is original"
    others = pairs.take(np.flatnonzero(~pairs.is_own(CAPTIONS.owner)))
    best = others.take(np.array([information_of(others).argmax()]))
    assert (CAPTIONS.image_ids[best.image[0]], CAPTIONS.caption_ids[best.caption[0]]) == (
        images[0],
        texts[0],
    )
    assert plan == informative()
    assert sorted(plan.order("ann")) == list(range(5)) == sorted(plan.order("bo"))
    orders = {
        tuple(one.order(name))
        for one, name in ((plan, "ann"), (plan, "bo"), (informative(2), "ann"))
    }
    assert len(orders) == 3 and tuple(plan.order("ann")) in orders, (
        "each reviewer's own, fixed by the seed"
    )


def test_semantic_map_takes_what_the_model_misses() -> None:
    scores = np.zeros((12, 24), np.float32)
    model = make_matrix_voice("model", scores)
    scores[CAPTIONS.owner, np.arange(24)] = 1
    scores[:, 5] = 12 - np.arange(12)  # caption 5 belongs to image 2: ranks third
    scores[:, 4] = np.arange(12)  # caption 4 too: its image ranks tenth
    scores[:, 0], scores[:, 23] = np.arange(12), 12 - np.arange(12)  # theirs rank last
    plan = plan_misses(model, CAPTIONS, "corpus", 10, 0, "t2i")
    assert plan.facts == {
        "model": "model",
        "k": 10,
        "queries": 24,
        "hits": 22,
        "direction": "t2i",
        "images": 12,
    }
    assert [(item.image_id, item.caption_id, item.query) for item in plan.items] == [
        *((f"i{k}", "i0#0", "i0#0") for k in range(11, 1, -1)),
        *((f"i{k}", "i11#1", "i11#1") for k in range(10)),
    ]
    asked = [plan.items[k].query for k in plan.order("ann")]
    assert asked in (
        ["i0#0"] * 10 + ["i11#1"] * 10,
        ["i11#1"] * 10 + ["i0#0"] * 10,
    ), "a query is rated whole"
    assert len(plan_misses(model, CAPTIONS, "corpus", 1, 0, "t2i").items) == 10
    scores[:] = np.eye(12).repeat(2, axis=1)
    with pytest.raises(InputError, match="misses no caption"):
        plan_misses(model, CAPTIONS, "corpus", 10, 0, "t2i")


def test_semantic_map_is_of_images_and_their_captions_as_in_the_paper() -> None:
    """Section 6: image to text; a gallery of the first images is searched alone, as COCO-1k is of
    5,000."""
    scores = np.zeros((12, 24), np.float32)
    model = make_matrix_voice("model", scores)
    scores[CAPTIONS.owner, np.arange(24)] = 1
    scores[3] = 24 - np.arange(24)  # captions 6 and 7 are its own, seventh and eighth
    scores[7] = 24 - np.arange(24)  # 14 and 15 come after ten others
    scores[11] = np.arange(24) * (np.arange(24) < 22)  # its own are last; of the rest 21 is first
    plan = plan_misses(model, CAPTIONS, "corpus", 10, seed=0)
    assert plan.facts == {
        "model": "model",
        "k": 10,
        "queries": 12,
        "hits": 10,
        "direction": "i2t",
        "images": 12,
    }
    assert [(item.image_id, item.caption_id, item.query) for item in plan.items] == [
        *(("i7", CAPTIONS.caption_ids[c], "i7") for c in range(10)),
        *(("i11", CAPTIONS.caption_ids[c], "i11") for c in range(21, 11, -1)),
    ]
    plan = plan_misses(model, CAPTIONS, "corpus", 10, 0, "i2t", 8)
    assert (plan.facts["queries"], plan.facts["hits"], plan.facts["images"]) == (8, 7, 8)
    assert {item.query for item in plan.items} == {"i7"}, (
        "an image beyond the gallery is not asked about"
    )
    scores[:, 23], scores[2:, 5] = 30, 40  # a caption beyond the gallery is never found
    texts = {
        item.caption_id for item in plan_misses(model, CAPTIONS, "corpus", 10, 0, "i2t", 8).items
    }
    assert "i11#1" not in texts and "i2#1" in texts
    scores[0, 0] = -1  # its own image ranks last
    texts = plan_misses(model, CAPTIONS, "corpus", 10, 0, "t2i", 11)
    assert (texts.facts["queries"], texts.facts["hits"]) == (22, 21)
    assert sorted(item.image_id for item in texts.items) == sorted(f"i{k}" for k in range(1, 11))
    with pytest.raises(
        InputError, match="a gallery of 13 images, and 'model' has 12 -> set explore.gallery"
    ):
        plan_misses(model, CAPTIONS, "corpus", 10, 0, "i2t", 13)


def best_by_hand(values: np.ndarray, depth: int, axis: int) -> set[tuple[int, int]]:
    """The `depth` best of each image (axis 1) or caption (axis 0), given pairs left out."""
    found = set()
    for fixed in range(values.shape[1 - axis]):
        line = [
            (i, c)
            for i, c in ALL
            if (i, c)[1 - axis] == fixed and c // 2 != i and values[i, c] > -np.inf
        ]
        found |= set(sorted(line, key=lambda pair: -values[pair])[:depth])
    return found


def test_strata_by_brute_force() -> None:
    pairs, S = every_pair(), np.random.default_rng(5).random((12, 24)).astype(np.float32)
    S[2, 1:] = -np.inf  # left out by a coarse model
    plan = plan_pool(pairs, {"m": S}, CAPTIONS, "corpus", depth=2, count=30, seed=1)
    labels = [values.reshape(12, 24) for values in pairs.values.values()]
    expected = set.union(
        *(best_by_hand(values, 2, 1) for values in labels), *(best_by_hand(S, 2, a) for a in (0, 1))
    )
    number = {key: k for k, key in enumerate(CAPTIONS.caption_ids)}
    chosen = {
        name: {
            (int(item.image_id[1:]), number[item.caption_id])
            for item in plan.items
            if item.stratum == name
        }
        for name in plan.facts["strata"]
    }
    sizes = {name: stratum["pairs"] for name, stratum in plan.facts["strata"].items()}
    assert sizes["pool"] == len(expected) and chosen["pool"] <= expected
    assert sum(sizes.values()) == 12 * 24 - 24, "every pair but the given ones is in one stratum"
    assert not (chosen["uncertain"] | chosen["random"]) & expected
    assert all(c // 2 != i for some in chosen.values() for i, c in some)
    assert [len(some) for some in chosen.values()] == [10, 10, 10] and sizes["uncertain"] == 10
    assert {plan.probability(item) for item in plan.items if item.stratum == "uncertain"} == {1}
    again, other = (
        plan_pool(pairs, {"m": S}, CAPTIONS, "corpus", depth=2, count=30, seed=seed)
        for seed in (1, 2)
    )
    assert plan == again != other
    whole = plan_pool(pairs, {"m": S}, CAPTIONS, "corpus", depth=2, count=999, seed=1)
    assert len(set(whole.items)) == 12 * 24 - 24, "all that are left can be drawn"


def test_each_pair_of_a_stratum_is_as_likely() -> None:
    """Over 400 seeds each of the pool's pairs is drawn as often as its probability says, within
    five deviations."""
    pairs, seen = every_pair("a"), Counter[tuple[str, str]]()
    for seed in range(400):
        plan = plan_pool(pairs, {}, CAPTIONS, "corpus", depth=3, count=12, seed=seed)
        assert plan.facts["strata"]["uncertain"] == {
            "pairs": 0,
            "chosen": 0,
        }, "one label disagrees with nobody"
        seen.update((item.image_id, item.caption_id) for item in plan.items)
    strata = plan.facts["strata"]
    assert (strata["pool"], strata["random"]) == (
        {"pairs": 36, "chosen": 4},
        {"pairs": 264 - 36, "chosen": 8},
    )
    assert len(seen) == 264
    low, high = (400 * p + d * np.sqrt(400 * p * (1 - p)) for p, d in ((8 / 228, -5), (4 / 36, 5)))
    assert low < min(seen.values()) and max(seen.values()) < high


def test_intervals_cover_the_truth() -> None:
    """A pool of 300 pairs of which 40 % are accepted, 20 unsure ones all rated, 100,000 others of
    which 0.5 % are."""
    truth = {"pool": (300, 0.4), "uncertain": (20, 0.5), "random": (100_000, 0.005)}
    chosen = {"pool": 60, "uncertain": 20, "random": 200}
    strata = {name: {"pairs": size, "chosen": chosen[name]} for name, (size, _) in truth.items()}
    items = tuple(Item(name, str(k), stratum=name) for name in truth for k in range(chosen[name]))
    plan = ReviewPlan("pool", "corpus", 0, items, {"images": 10, "strata": strata})
    total = sum(size * share for size, share in truth.values()) / 10
    inside = []
    for seed in range(300):
        random = np.random.default_rng(seed)
        yes = {
            name: random.permutation(size)[: chosen[name]] < size * share
            for name, (size, share) in truth.items()
        }
        table = dict(enumerate(4.0 * np.concatenate([yes[name] for name in truth])))
        found = estimate_accepted(plan, table, 4)
        inside.append(found["low"] <= total <= found["high"])
    assert np.mean(inside) > 0.93
    assert estimate_accepted(plan, {0: 5.0}, 4) is None, "a stratum without a rating says nothing"
    rated = estimate_accepted(
        replace(plan, facts={"images": 1, "strata": {"uncertain": strata["uncertain"]}}), table, 4
    )
    assert rated == {
        "accepted": 10,
        "low": 10,
        "high": 10,
    }, "nothing is left open where all are rated"
    only = replace(plan, facts={"images": 1, "strata": {"random": {"pairs": 1000, "chosen": 100}}})
    found = estimate_accepted(only, dict.fromkeys(range(80, 180), 0.0), 4)
    assert found["low"] == 0 and found["high"] == pytest.approx(
        37.0, abs=0.5
    )  # Brown, Cai, DasGupta 2001


def test_a_plan_is_read_as_it_was_written_and_a_damaged_one_refused(tmp_path: Path) -> None:
    plan = informative()
    for _ in range(2):
        write_plan(tmp_path, plan)
        assert read_plan(tmp_path) == plan and "stratum" not in (tmp_path / PLAN).read_text()
    old = ReviewPlan("information", "corpus", 0, (Item("i", "c"),))
    made_before_strata = "a42293bb78a836a1eb39769e9fd1b0999f9f763adc0d0c05c08ff195bcf7d978"
    assert old.key == made_before_strata, "ratings of older plans stay theirs"
    with pytest.raises(InputError, match="another review"):
        write_plan(tmp_path, replace(plan, seed=2))
    with pytest.raises(
        InputError,
        match="no pair is there to rate -> give captions of two images",
    ):
        write_plan(tmp_path / "nothing", replace(plan, items=()))
    whole = plan.json()
    misspelt = {**whole["items"][0], "querry": "x"}
    damaged = [
        whole | change
        for change in ({"protocol": "x"}, {"fact": whole["facts"]}, {"items": [misspelt]})
    ]
    for damage in (
        "{}",
        "[1]",
        "",
        '{"items": [{"image": 1}]}',
        "{not json",
        *map(json.dumps, damaged),
    ):
        (tmp_path / PLAN).write_text(damage)
        with pytest.raises(InputError, match="not a review plan|not valid JSON"):
            read_plan(tmp_path)
    (tmp_path / PLAN).unlink()
    with pytest.raises(InputError, match="explore sample"):
        read_plan(tmp_path)


def test_a_judge_from_sample_to_agreement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPGRADE_CACHE", str(tmp_path / "cache"))
    sets = random_sets(9, seed=5, least=2)
    captions = write_captions_folder(tmp_path / "captions", [caption_table(sets)])
    np.save(tmp_path / "model.npy", np.random.default_rng(1).random((9, sum(map(len, sets)))))
    review, out = tmp_path / "review", tmp_path / "judge.csv"
    sample = (
        f"explore sample --captions {captions} --measures cider,rouge_l --set"
        f" explore.similarity=[{tmp_path}/model.npy] --set explore.count=30 --out {review}"
    )
    assert call(*sample.split()) == 2 and "explore.pool goes with" in capsys.readouterr().err
    assert call(*sample.split(), "--set", "explore.pool=3") == 0
    lines = [json.loads(line) for line in (review / "pairs.jsonl").read_text().splitlines()]
    pairs = [(item.image_id, item.caption_id) for item in read_plan(review).items]
    assert [(line["image_id"], line["caption_id"]) for line in lines] == pairs
    assert {line["stratum"] for line in lines} == {"pool", "uncertain", "random"}
    assert all(
        0 < line["probability"] <= 1 and line["caption"] not in line["captions"] for line in lines
    )
    with served(Chat(lambda body: str(len(body["messages"][1]["content"]) % 6))) as chat:
        asked = (
            f"judge --captions {captions} --pairs {review} --endpoint {chat.address} --judge-model robot"
            f" --out {out}"
        )
        assert call(*asked.split()) == 0
    ratings = ReviewRatings.open(review)
    for item, line in enumerate(out.read_text().splitlines()[1:]):
        score = int(line.split(",")[2])
        ratings.rate("ann", item, score)
        ratings.rate("bo", item, min(score + 1, 5))
    capsys.readouterr()
    agree = ("agree", "raters", review, "--judgements", out)
    assert call(*agree, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["reviewers"] == {"ann": 30, "bo": 30, "robot": 30} and found["rated_twice"] == 30
    assert found["alpha"]["ordinal"] > found["people"]["ordinal"], "a twin of ann raises it"
    assert found["with_people"]["robot"]["interval"] > 0.8
    assert found["accepted"]["ann"] == found["accepted"]["robot"] != found["accepted"]["bo"]
    assert call(*agree) == 0 and "that robot accepts" in capsys.readouterr().out
    ratings.rate("robot", 0, 1)
    assert call(*agree) == 2 and "'robot' is a reviewer too" in capsys.readouterr().err
