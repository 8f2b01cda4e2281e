"""How good an audit's list is: by loops over judged pairs, by the truth of scenes, and as P expects;
intervals that hold."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser

from capgrade.agreement.curve import Curve
from capgrade.apps.audit import audit
from capgrade.apps.audit.estimate import PairCounts
from capgrade.apps.audit.findings import Referee, expected_findings, read_referee, share_of
from capgrade.apps.audit.page import answers, how_known
from capgrade.pipelines.stages.agree import AgreeParams
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.relevance import read_relevance
from capgrade.schemas.reviews import POOL, Item, ReviewPlan
from tests.apps.audit.conftest import LINE
from tests.conftest import call, make_captions, random_sets, valued_pairs
from tests.tools.browser import opened_file, problems_of

Given = dict[str, Any]
MEASURE = ("--measure", "rouge_l")


def _listed(folder: Path) -> set[tuple[str, str]]:
    lines = (folder / "likely.csv").read_text().splitlines()[1:]
    return {(image, caption) for image, caption, *_ in (line.split(",") for line in lines)}


def _judge_some(world: Path, file: Path, bar: float, share: float) -> None:
    """A table of yes and no for a share of all pairs, own ones among them: ROUGE-L, as if seen
    through a mist, from a bar on."""
    captions = read_captions(world / "captions")
    random, matrix = np.random.default_rng(1), np.load(world / "s.npy")
    matrix = matrix + 0.1 * random.standard_normal(matrix.shape)
    cells = np.flatnonzero(random.random(matrix.size) < share)
    rows = [
        f"{captions.image_ids[i]},{captions.caption_ids[c]},{int(matrix[i, c] >= bar)},0..1"
        for i, c in zip(*np.divmod(cells, captions.n_captions), strict=True)
    ]
    file.write_text("image_id,caption_id,score,scale\n" + "\n".join(rows) + "\n")


def test_judged_pairs_against_a_loop(world: Path, given: Given, tmp_path: Path) -> None:
    """Of chosen pairs only what was judged is said; drawn at random, the same numbers hold for all."""
    _judge_some(world, tmp_path / "j.csv", 0.45, 0.3)
    given |= {"relevance": world / "relevance", "judgements": tmp_path / "j.csv"}
    found = audit(**given, out=tmp_path / "a.html")
    captions = read_captions(world / "captions")
    owner = {c: captions.image_ids[i] for c, i in zip(captions.caption_ids, captions.owner)}  # noqa: B905
    listed = _listed(tmp_path / "a-lists")
    lines = [line.split(",") for line in (tmp_path / "j.csv").read_text().splitlines()[1:]]
    judged = {(i, c): score == "1" for i, c, score, _ in lines if owner[c] != i}
    right = sum(judged[pair] for pair in judged if pair in listed)
    examined = sum(pair in listed for pair in judged)
    every = sum(judged.values())
    told = found["judged"]
    assert (told["listed"], told["examined"]) == (len(listed), examined)
    assert (told["right"], told["missed"], told["all_right"]) == (right, every - right, every)
    assert told["share_right"]["share"] == pytest.approx(right / examined)
    assert told["share_found"]["share"] == pytest.approx(right / every)
    assert 0 < right < examined < len(listed) and right < every < len(judged)
    assert found["judgements"]["pairs"] == len(judged)
    assert found["judgements"]["sampling"] == "chosen"
    said = " ".join(text for _, text in answers(found))
    assert "of the listed pairs that were judged are right" in said and "of all right" not in said
    assert f"misses {every - right:,}." in said and "is not known" in how_known(found)
    drawn = audit(**given, out=tmp_path / "b.html", agree=AgreeParams(sampling="random"))
    assert drawn["judged"] == told
    said = " ".join(text for _, text in answers(drawn))
    assert "of all right pairs are listed" in said and "holds for all pairs" in how_known(drawn)


def test_numbers_of_the_headline_add_up(world: Path, given: Given, tmp_path: Path) -> None:
    """Expected from P: the sums of P over listed and other pairs, by a loop. With no judgements the
    sentence says where P comes from."""
    found = audit(**given, relevance=world / "relevance", out=tmp_path / "a.html")
    captions = read_captions(world / "captions")
    calibration = json.loads((world / "calibration.json").read_text())["measures"]["rouge_l"]
    matrix = read_relevance(world / "relevance" / "rouge_l.arrow").matrix()
    p = np.interp(matrix, calibration["value"], calibration["accepted"])
    p[captions.owner, np.arange(captions.n_captions)] = 0
    told = found["expected"]
    assert found["judged"] is None and found["judgements"] is None
    assert told["listed"] == told["examined"] == (p >= 0.5).sum()
    assert told["right"] == pytest.approx(p[p >= 0.5].sum())
    assert told["all_right"] == pytest.approx(p.sum())
    assert told["missed"] == pytest.approx(p[p < 0.5].sum())
    for share, whole in (("share_right", "examined"), ("share_found", "all_right")):
        one = told[share]
        assert one["share"] == pytest.approx(told["right"] / told[whole])
        assert 0 <= one["low"] <= one["share"] <= one["high"] <= 1
    said = [" ".join(answer) for answer in answers(found)]
    assert said[0].startswith(f"{told['listed']:,} pairs are listed")
    assert "about" in said[1] and "about" in said[2]
    assert how_known(found).startswith(
        "Nobody judged these pairs: what is right is expected from P"
    )


def test_the_truth_of_scenes_leads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is found beside the captions, and `agree.accept` says what is right."""
    sizes = [f"captions.scenes.{key}" for key in ("train=0", "val=0", "test=25", "size=64")]
    sets = [word for size in sizes for word in ("--set", size)]
    captions = tmp_path / "captions"
    assert call("captions", *sets, "--out", captions) == 0
    given = ("--captions", captions, "--split", "test")
    made = ("--set", "relevance.split=test", "--measures", "rouge_l")
    judged = ("--judgements", captions / "truth-test.arrow", "--set", "agree.accept=0.9")
    calibrated = (*given, "--measures", "rouge_l", "--calibrate", "--out", tmp_path / "agree")
    assert call("relevance", "--captions", captions, *made, "--out", tmp_path / "relevance") == 0
    assert call("agree", *calibrated, *judged) == 0
    line = ("audit", *given, "--relevance", tmp_path / "relevance", "--calibration",
            tmp_path / "agree" / "calibration.json", "--out", tmp_path / "a.html", "--force")  # fmt: skip
    matrix = read_relevance(captions / "truth-test.arrow").matrix()
    table = read_captions(captions, "test")
    other = table.owner != np.arange(table.n_images)[:, None]
    capsys.readouterr()
    for accept, sets in ((0.9, ()), (0.6, ("--set", "agree.accept=0.6"))):
        assert call(*line, *sets, "--json") == 0
        found = json.loads(capsys.readouterr().out)
        right = {
            (table.image_ids[i], table.caption_ids[c])
            for i, c in zip(*np.nonzero(other & (matrix >= np.float32(accept))), strict=True)
        }
        listed = _listed(tmp_path / "a-lists")
        assert listed
        told = found["judged"]
        assert (told["examined"], told["all_right"]) == (len(listed), len(right))
        assert told["right"] == len(right & listed)
        assert told["share_right"]["low"] is None, "every pair is known"
        assert found["judgements"]["truth"] and found["judgements"]["sampling"] == "every"
    assert call(*line) == 0
    said = capsys.readouterr().out
    assert "of the listed pairs are right" in said and "of all right pairs are listed" in said
    assert "The truth of the scenes says what is right: a true relevance of at least 0.9" in said
    page = (tmp_path / "a.html").read_text()
    assert "The truth of the scenes says what is right" in page and "about" not in said


def test_a_rated_pool_counts_each_pair_as_many(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stratum of 10 pairs, of which 5 were rated, and one of 400 with 4 rated pairs."""
    captions = read_captions(world / "captions")
    own = set(zip(captions.owner.tolist(), range(captions.n_captions), strict=True))
    cells = [(i, c) for i in range(3) for c in range(20) if (i, c) not in own][:9]
    items = [
        Item(captions.image_ids[i], captions.caption_ids[c], stratum="pool" if k < 5 else "random")
        for k, (i, c) in enumerate(cells)
    ]
    facts = {"strata": {"pool": {"pairs": 10}, "random": {"pairs": 400}, "uncertain": {"pairs": 0}}}
    plan = ReviewPlan(POOL, "0", 0, tuple(items), facts)
    ratings = {"ann": {k: 5 if k in (0, 1, 5) else 0 for k in range(9)}}
    for where in ("capgrade.apps.audit.findings", "capgrade.agreement.judgement_files"):
        monkeypatch.setattr(f"{where}.read_plan", lambda _: plan)
        monkeypatch.setattr(f"{where}.read_all_ratings", lambda *_: ratings)
    referee = read_referee(tmp_path, captions, AgreeParams())
    assert sorted(referee.pairs.weight.tolist()) == [2.0] * 5 + [100.0] * 4
    assert referee.sampling == "random" and referee.accept == 3
    image, caption = np.array(cells[:6]).T
    listed = valued_pairs(image, caption, np.ones(6, np.float32), np.ones(6))
    told = referee.examine(listed)
    assert (told.examined, told.right, told.all_right) == (110.0, 104.0, 104.0)


def test_no_share_is_made_up(world: Path, given: Given, tmp_path: Path) -> None:
    """Judgements of none of the listed pairs, and of none that is right."""
    captions = read_captions(world / "captions")
    matrix = np.load(world / "s.npy")
    low = [(i, c) for i, c in zip(*np.nonzero(matrix < 0.1), strict=True)][:50]
    rows = "\n".join(f"{captions.image_ids[i]},{captions.caption_ids[c]},0,0..1" for i, c in low)
    (tmp_path / "j.csv").write_text(f"image_id,caption_id,score,scale\n{rows}\n")
    given |= {"relevance": world / "relevance", "judgements": tmp_path / "j.csv"}
    found = audit(**given, out=tmp_path / "a.html")
    assert found["judged"]["share_right"] is None and found["judged"]["share_found"] is None
    assert len(answers(found)) == 1 and "None of the listed pairs is among them" in how_known(found)
    (tmp_path / "j.csv").write_text("image_id,caption_id,score\ni0,i1#0,1\n")
    with pytest.raises(InputError, match="does not say between which scores people chose"):
        audit(**given, out=tmp_path / "b.html")


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
@pytest.mark.parametrize("alike", [0.0, 0.6])
def test_the_interval_of_a_share_holds(share: float, alike: float) -> None:
    """Clustered pairs, of which few are right: a beta-binomial world, in 92 or more of 100."""
    random, held, worlds = np.random.default_rng(0), 0, 500
    group = np.repeat(np.arange(60), 5)
    for _ in range(worlds):
        p = np.full(60, share)
        if alike:
            concentration = 1 / alike - 1
            p = random.beta(share * concentration, (1 - share) * concentration, 60)
        yes = random.random(300) < p[group]
        told = share_of(yes, np.ones(300), group)
        assert told is not None and told.low is not None and told.high is not None
        held += told.low <= share <= told.high
        assert told.low < told.high, "also where none is right"
    assert held / worlds >= 0.92


def test_the_interval_of_what_is_listed_holds() -> None:
    """P is the value: of drawn pairs as many are right as P says, and 92 or more of 100 intervals of
    both shares hold what was drawn."""
    captions = make_captions(random_sets(30, seed=1, least=3, most=3))
    image, caption = np.nonzero(captions.owner[None] != np.arange(30)[:, None])
    random, held = np.random.default_rng(0), np.zeros((200, 2), bool)
    for k in range(200):
        p = random.beta(1, 6, len(image)).astype(np.float32)
        right = random.random(len(p)) < p
        listed, others = (PairCounts(LINE, 30, captions.owner) for _ in range(2))
        pairs = valued_pairs(image, caption, p, np.ones(len(p)))
        on_list = p >= 0.5
        listed.add(pairs.take(on_list))
        others.add(pairs.take(~on_list))
        told = expected_findings(listed, others, int(on_list.sum()), True)
        truths = right[on_list].mean(), on_list[right].mean()
        for way, (one, true) in enumerate(zip((told.precision, told.found), truths, strict=True)):
            assert one is not None and one.low is not None and one.high is not None
            held[k, way] = one.low <= true <= one.high
    assert held.mean(axis=0).min() >= 0.92
    chosen = expected_findings(listed, others, int(on_list.sum()), False)
    assert chosen.precision is not None and chosen.precision.low is None


def test_nothing_is_listed() -> None:
    """No pair, or none that is right: a share is not 0 of 0."""
    counts = PairCounts(Curve([0.0], [0.0], [0.0], [[0.0]], 0.0, [], 1, 0.0, 0.0), 2, np.arange(2))
    told = expected_findings(counts, counts, 0, True)
    assert told.precision is None and told.found is None
    none = np.empty(0, np.int64)
    pairs = valued_pairs(none, none, none > 0, np.empty(0))
    told = Referee("j", False, "chosen", 0.5, 0.0, 1.0, pairs).examine(pairs)
    assert (told.precision, told.found, told.listed) == (None, None, 0)


@pytest.mark.parametrize("width", [1280, 390])
def test_a_card_shows_both_images_with_their_ids(
    width: int, world: Path, given: Given, tmp_path: Path, browser: Browser
) -> None:
    from PIL import Image

    captions = read_captions(world / "captions")
    (tmp_path / "pictures").mkdir()
    for k, image_id in enumerate(captions.image_ids):
        Image.new("RGB", (64, 48), (k * 7, 90, 120)).save(tmp_path / "pictures" / f"{image_id}.png")
    given |= {"relevance": world / "relevance", "images": tmp_path / "pictures"}
    audit(**given, out=tmp_path / "a.html")
    page, heard = opened_file(
        browser, tmp_path / "a.html", viewport={"width": width, "height": 900}
    )
    owner = {c: captions.image_ids[i] for c, i in zip(captions.caption_ids, captions.owner)}  # noqa: B905
    for card in page.locator("#likely li[data-p]:visible").all()[:5]:
        caption = card.locator("> p code").first.inner_text()
        ids = card.locator("figcaption code").all_inner_texts()
        assert ids[1] == owner[caption] != ids[0]
        assert (ids[0], caption) in _listed(tmp_path / "a-lists")
        for image_id, picture in zip(ids, card.locator("img").all(), strict=True):
            assert (picture.get_attribute("alt") or "").startswith(f"Image {image_id}: ")
        assert card.locator("figcaption").first.is_visible()
        one, other = (side.bounding_box() for side in card.locator(".cg-side").all())
        assert one["y"] == other["y"] and one["x"] < other["x"]  # type: ignore[index]
    assert problems_of(page) == [] and heard == []
    page.close()
