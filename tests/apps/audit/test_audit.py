"""The audit: estimates cover the truth, shards estimate what the dense matrix has, lists, files,
and the page."""

import csv
import html
import json
import re
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser

import capgrade
from capgrade.agreement.calibration import SHIPPED, load_calibration
from capgrade.agreement.curve import Curve, Scale, fit
from capgrade.agreement.judgements import Judgements
from capgrade.apps.audit import audit
from capgrade.apps.audit.errors import DIRECTIONS
from capgrade.apps.audit.estimate import EDGES, PairCounts, ProbabilityBands, mean_of
from capgrade.apps.audit.lists import (
    find_equal_captions,
    find_near_duplicates,
    find_suspects,
    group_images,
    select_distinct,
    write_lists,
)
from capgrade.apps.audit.page import few_values, summary_lines
from capgrade.apps.page import render_page
from capgrade.apps.page.parts import PageSection
from capgrade.apps.report import report
from capgrade.kernels import id_keys
from capgrade.labels import Labels
from capgrade.measures import choose
from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.sampling.sampler import keep, plan_of
from capgrade.pipelines.sources import scenes
from capgrade.pipelines.stages.captions import ScenesParams
from capgrade.pipelines.stages.shards import ShardsParams
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST, read_manifest, write_text
from capgrade.schemas.judges import YES_OR_NO
from capgrade.schemas.relevance import read_relevance
from capgrade.trainer.evaluation.evaluate import curves, evaluate
from capgrade.trainer.evaluation.task import load_task
from capgrade.trainer.stages.evaluate import EvaluateParams
from tests.apps.audit.conftest import LINE
from tests.apps.audit.test_errors import all_pairs
from tests.conftest import call, caption_table, make_captions, valued_pairs, write_captions_folder
from tests.tools.browser import opened_file, problems_of

LIST_FILES = {"likely.csv", "suspects.csv", "duplicates.csv", "positives.json"}
CALIBRATED = ["people", "people_shared", "sbert", "scene_graph"]  # by what comes with capgrade
Given = dict[str, Any]


@pytest.fixture(scope="session")
def dense(world: Path) -> tuple[dict[str, Any], Path]:
    """An audit of dense relevance, and its page."""
    known = {"calibration": world / "calibration.json", "measure": "rouge_l"}
    return (
        audit(world / "captions", world / "d.html", relevance=world / "relevance", **known),
        world / "d.html",
    )


def _rows(page: Path, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((page.with_name(f"{page.stem}-lists") / name).open(newline="")))


@pytest.mark.parametrize("share", [1, 4])
def test_what_is_left_open_is_how_much_drawn_people_differ(share: int) -> None:
    """A pair of value v is accepted with probability v (1 + a + b), a of its image and b of the
    caption's image; one pair in `share` is read."""
    random, owner = np.random.default_rng(0), np.arange(30) // 3
    image, caption = np.nonzero(owner != np.arange(10)[:, None])
    p = random.random(270) * np.where(image < 5, 0.5, 0.05)  # captions differ less than images
    counts, sums = np.empty(4000), np.empty(4000)
    for k in range(4000):
        a, b = (random.choice([-1, 1], 10) * np.sqrt(spread) for spread in (0.2, 0.3))
        counts[k] = (random.random(270) < p * (1 + a[image] + b[owner[caption]])).sum()
        sums[k] = share * p[random.random(270) < 1 / share].sum()
    curve = Curve([0.0, 1.0], [0.0, 5.0], [0.0, 1.0], [[0.0, 1.0]] * 2, 0.0, [], 1, 0.2, 0.3)
    found = np.empty(200)
    for k in range(200):
        kept, read = random.random(270) < 1 / share, PairCounts(curve, 10, owner)
        read.add(
            valued_pairs(image[kept], caption[kept], p[kept], np.full(kept.sum(), float(share)))
        )
        found[k] = read.standard_deviation() ** 2
    assert found.mean() == pytest.approx(counts.var() + sums.var(), rel=0.1)


def test_people_accept_no_more_pairs_than_there_are() -> None:
    """Of three likely pairs, chance alone would give up to 3.7; of sampled ones each may stand for
    more or fewer."""
    for weight in (0.5, 1.0, 2.0):
        counts = PairCounts(
            Curve([0.5], [4.0], [0.9], [[0.9]], 0.0, [], 1, 0.0, 0.0), 10, np.arange(10)
        )
        rows = np.arange(3)
        counts.add(valued_pairs(rows, rows + 1, np.full(3, 0.5, np.float32), np.full(3, weight)))
        found = mean_of(counts)
        assert found["pairs"] == pytest.approx(0.3 * weight)
        assert (
            found["high"] > found["pairs"]
            if weight == 2
            else found["high"] == pytest.approx(0.3 * weight)
        )
        assert counts.standard_deviation() ** 2 == pytest.approx(
            2.7 * weight * (0.1 + 0.9 * max(weight - 1, 0))
        )


@pytest.mark.parametrize("knots", [1, 2, 9])
def test_what_is_added_up_is_the_weight_times_the_probability(knots: int) -> None:
    """Most values at the low end, as CIDEr-D's are, some beyond the curve; image 3 has none."""
    random = np.random.default_rng(knots)
    value = np.sort(random.random(knots) ** 8 * 7)
    # of all judgements, and of three draws
    line, draws = (np.sort(random.random((n, knots))) for n in (1, 3))
    curve = Curve(
        value.tolist(), [0.0] * knots, line[0].tolist(), draws.tolist(), 0.0, [], 1, 0.0, 0.0
    )
    image = random.choice([0, 1, 2, 4], 500)
    values = np.where(random.random(500) < 0.9, 0, random.random(500) * 9)
    pairs = valued_pairs(image, image, values.astype(np.float32), random.random(500) * 5)
    counts = PairCounts(curve, 5, np.arange(5))
    for part in (slice(300), slice(300, 300), slice(300, None)):
        counts.add(pairs.take(part))
    accepted, *drawn = (
        pairs.weight * np.interp(pairs.value, value, one) for one in (*line, *draws)
    )
    assert counts.expected_accepted() == pytest.approx(np.bincount(image, accepted, 5))
    counts.variance = counts.squares = 0.0  # nothing is left open but the curve
    assert counts.draw_sums()[:3] == pytest.approx([one.sum() for one in drawn])


def test_pairs_are_counted_by_their_probability() -> None:
    """An edge belongs to what is above it; of chosen pairs no band has an expectation."""
    value, weight = np.array([0, 0.5, 0.95, 1], np.float32), np.array([1.0, 2, 3, 4])
    for random, counted in ((False, None), (True, [0.5, 0, 4.5])):
        bands = ProbabilityBands(LINE, 2, np.arange(4) // 2, random)
        bands.add(valued_pairs(np.zeros(4, int), np.arange(4), value, weight))
        assert (
            bands.by_tenth() == [0.5, 0, 0, 0, 0, 1, 0, 0, 0, 3.5]
            and bands.likely()["pairs"] == 4.5
        )
        assert (told := bands.summarise()) == counted or [
            one["pairs"] for one in told or []
        ] == counted


def test_shards_estimate_what_the_dense_matrix_has(
    world: Path, dense: tuple[dict, Path], given: Given, tmp_path: Path
) -> None:
    found, page = dense
    some = audit(**given, out=tmp_path / "s.html", shards=world / "shards")
    one = found["likely_captions_per_image"]
    assert one["low"] < one["accepted"] < one["high"]
    for band, sampled in zip(found["bands"], some["bands"], strict=True):
        assert sampled["low"] <= band["accepted"] <= sampled["high"]
    said = [
        "Lists have the pairs that the shards kept" in out.read_text()
        for out in (page, tmp_path / "s.html")
    ]
    assert said == [False, True]
    captions = read_captions(world / "captions")
    per_image = captions.n_captions / captions.n_images
    assert found["given_captions_per_image"] == pytest.approx(per_image)
    assert found["likely_images_per_caption"] == pytest.approx(
        {key: value / per_image for key, value in one.items()}
    )
    assert one["pairs"] * captions.n_images == pytest.approx(found["likely_pairs"])


def test_values_of_some_pairs_by_another_measure(world: Path) -> None:
    """Of the matrix; of shards the same where a pair was kept, else none."""
    captions = read_captions(folder := world / "captions")
    matrix = read_relevance(world / "relevance" / "bleu.arrow").matrix()
    pairs = all_pairs(matrix, captions).take(slice(0, 400))
    every = few_values(Labels.load(world / "relevance", captions=folder), "bleu", pairs)
    kept = few_values(Labels.load(world / "shards", captions=folder), "bleu", pairs)
    known = np.isfinite(kept)
    assert every == pytest.approx(pairs.value) and 0 < known.sum() < 400
    assert kept[known] == pytest.approx(pairs.value[known], abs=1e-6)


def test_suspects_are_listed_or_it_is_said_why_not(
    world: Path, dense: tuple[dict, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    found, page = dense
    rows, captions = _rows(page, "suspects.csv"), read_captions(world / "captions")
    owner = {
        captions.caption_ids[c]: captions.image_ids[captions.owner[c]]
        for c in range(captions.n_captions)
    }
    assert len(rows) == found["suspect_pairs"] > 0
    assert all(owner[row["caption_id"]] == row["image_id"] for row in rows)
    assert all(float(row["expected_score"]) < 1 and row["caption"] for row in rows)
    # as those of format 1
    monkeypatch.setattr("capgrade.schemas.shards.Shards.left_out", lambda *_: None)
    line = [
        "audit",
        "--captions",
        world / "captions",
        "--measure",
        "rouge_l",
        "--shards",
        world / "shards",
    ]
    assert (
        call(*line, "--calibration", world / "calibration.json", "--out", tmp_path / "s.html") == 0
    )
    said = "the folder has no value of rouge_l of a caption without itself: make it again"
    assert said in capsys.readouterr().out and said in (tmp_path / "s.html").read_text()


def test_suspects_of_shards_are_those_of_the_matrix(
    given: Given, world: Path, tmp_path: Path
) -> None:
    measure = {"measure": "rouge_l"}
    for name in ("relevance", "shards"):
        where = {"relevance": None, "shards": None, name: world / name}
        audit(**{**given, **where, **measure, "out": tmp_path / f"{name}.html"})
    one, other = (
        _rows(tmp_path / f"{name}.html", "suspects.csv") for name in ("relevance", "shards")
    )
    assert one == other and one


def test_no_caption_is_called_well_where_every_image_has_one(given: Given, tmp_path: Path) -> None:
    captions = write_captions_folder(
        tmp_path / "captions", [caption_table([["a dog"], ["a red bike"], ["two cats"]])]
    )
    assert (
        call(
            "relevance",
            "--captions",
            captions,
            "--measures",
            "rouge_l",
            "--out",
            tmp_path / "relevance",
        )
        == 0
    )
    own = {"captions_dir": captions, "relevance": tmp_path / "relevance"}
    found = audit(**{**given, **own, "out": tmp_path / "a.html"})
    assert (
        found["suspect_pairs"] is None
        and found["suspects_unknown"] == "every image has one caption"
    )


@pytest.mark.parametrize(
    ("others", "listed", "said"),
    [
        ([], 4, "All 4 likely pairs are of captions that the image's own captions have too."),
        (
            [["seven cats sleep", "x y"], ["seven cats sleep", "seven cats sleep here"]],
            7,
            "6 of the 7 listed pairs are left out here: the image's own captions have the same"
            " text.",
        ),
    ],
)
def test_likely_pairs_that_are_no_news_are_counted(
    others: list[list[str]], listed: int, said: str, given: Given, tmp_path: Path
) -> None:
    """Images that share captions: these likely pairs say nothing new."""
    same = ["a dog runs on the beach", "a red bike on a wall"]
    captions = write_captions_folder(
        tmp_path / "captions", [caption_table([same, same, *others, ["u v", "z z"]])]
    )
    dense = ("--measures", "rouge_l", "--out", tmp_path / "relevance")
    assert call("relevance", "--captions", captions, *dense) == 0
    own = {"captions_dir": captions, "relevance": tmp_path / "relevance"}
    found = audit(**{**given, **own, "out": tmp_path / "a.html"})
    page = html.unescape((tmp_path / "a.html").read_text())
    assert found["likely_pairs"] == listed
    assert said in page and page.count('<li class="cg-card cg-fit"') == listed % 2
    assert "No pair is likely." not in page


def test_the_accepted_are_those_of_the_truth(world: Path, dense: tuple[dict, Path]) -> None:
    """Where the measure is the judge, its count is the matrix's own."""
    found, page = dense
    captions = read_captions(world / "captions")
    matrix = np.load(world / "s.npy")
    matrix[captions.owner, np.arange(captions.n_captions)] = 0
    truth = (matrix >= 0.4).sum() / captions.n_images
    assert sum(band["accepted"] for band in found["bands"]) == pytest.approx(truth, rel=0.1)
    assert found["bands"][-1] == {"from": 0.5, "to": 1.0, **found["likely_captions_per_image"]}
    assert (
        found["calibration"]["sampling"] == "random" and found["calibration"]["same_captions"]
    )  # all were judged
    positives = json.loads((page.with_name("d-lists") / "positives.json").read_text())[
        "image_to_caption"
    ]
    assert all(f"i{i}#0" in positives[f"i{i}"] for i in range(captions.n_images))
    assert sum(map(len, positives.values())) == captions.n_captions + found["likely_pairs"]
    rows = _rows(page, "likely.csv")
    assert len(rows) == found["likely_pairs"] > 0
    assert [float(row["value"]) for row in rows] == sorted(
        (float(row["value"]) for row in rows), reverse=True
    )


def test_of_chosen_pairs_there_is_an_upper_limit_alone(
    world: Path, given: Given, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same curves from pairs that somebody chose: no expectation, no bands, no floor of a
    model's errors."""
    calibration = json.loads((world / "calibration.json").read_text())
    calibration["judgements"] |= {"sampling": "chosen", "captions": "0" * 64}
    (tmp_path / "c.json").write_text(json.dumps(calibration))
    np.save(
        tmp_path / "s.npy",
        np.random.default_rng(0).random((32, read_captions(world / "captions").n_captions)),
    )
    given |= {"relevance": world / "relevance", "similarity": [tmp_path / "s.npy"]}
    random = audit(**given, out=tmp_path / "r.html")
    found = audit(**{**given, "calibration": tmp_path / "c.json"}, out=tmp_path / "a.html")
    one, same = found["likely_captions_per_image"], random["likely_captions_per_image"]
    assert one == {"pairs": same["pairs"], "accepted": None, "low": 0.0, "high": same["high"]}
    assert found["bands"] is None and random["bands"] is not None
    assert [random["model"][way].pop("at_least") is None for way in DIRECTIONS] == [False, False]
    assert [found["model"][way].pop("at_least") for way in DIRECTIONS] == [None, None] and found[
        "model"
    ] == random["model"]
    pages = [(tmp_path / f"{name}.html").read_text() for name in "ra"]
    for words, there in {
        "was learnt from chosen pairs": [False, True],
        "so P is rather too high": [False, True],
        "of the listed pairs are right: about": [True, True],
        "All other captions of an image, by P": [True, False],
        "judged pairs of these very captions": [True, False],
        "says nothing of all others": [False, True],
    }.items():
        assert [words in page for page in pages] == there, words
    line = [
        "audit",
        "--captions",
        world / "captions",
        "--relevance",
        world / "relevance",
        "--measure",
        "rouge_l",
    ]
    line += [
        "--calibration",
        tmp_path / "c.json",
        "--similarity",
        tmp_path / "s.npy",
        "--out",
        tmp_path / "a.html",
        "--force",
    ]
    assert call(*line) == 0
    said = capsys.readouterr().out.splitlines()
    assert summary_lines(random)[0] == said[0]
    without = [re.sub(r" \([^)]*%\)", "", line) for line in summary_lines(random)[1:3]]
    assert without == said[1:3] and without != summary_lines(random)[1:3], "no intervals"
    assert len(said) == 8 and "chance" in said[6], "the matrix is of random numbers"
    assert "pairs are listed" in said[0] and "chosen pairs" in said[3] and "R@1 errors" in said[5]
    assert not any("at most" in line or "Up to" in line for line in said)


def test_duplicates_and_suspects() -> None:
    captions = make_captions([["a", "b"], ["c", "d"], ["e"]])
    image, caption = np.array([0, 0, 1, 1, 0, 2]), np.array([2, 3, 0, 1, 4, 0])
    pairs = valued_pairs(image, caption, np.ones(6), np.ones(6))
    assert find_near_duplicates(pairs, captions) == [(0, 1)]  # 2 takes one of 0's two captions
    assert find_suspects(np.array([0.9, 0.15, np.nan, 0.05, 0.5]), LINE).tolist() == [3, 1]


def test_no_caption_is_a_formula_in_a_spreadsheet(tmp_path: Path) -> None:
    texts = ["=HYPERLINK(A1)", "+a", "-1+cmd", "@SUM(A1)", "-0.5", "a, dog"]
    every, own = np.arange(6), np.full(6, -0.5, np.float32)
    pairs = valued_pairs(every, every, own, np.ones(6))
    captions = make_captions([[text] for text in texts])
    sizes = write_lists(tmp_path, captions, LINE, pairs, [[0, 5], [1, 2, 3, 4]], every, own)
    assert sizes.pop("positives.json") == 6
    rows = {name: list(csv.reader((tmp_path / name).open(newline=""))) for name in sizes}
    assert {name: len(lines) - 1 for name, lines in rows.items()} == sizes
    shown = [*(f"'{text}" for text in texts[:4]), *texts[4:]]
    for name in ("likely.csv", "suspects.csv"):
        assert [row[-1] for row in rows[name][1:]] == shown
        assert {row[2] for row in rows[name][1:]} == {"-0.5000"}, "numbers stay"
    head, first, second, third = rows["duplicates.csv"][:4]
    assert (head, first) == (["group", "image_id", "captions"], ["1", "i0", shown[0]])
    assert (second, third) == (["1", "i5", "a, dog"], ["2", "i1", shown[1]])


def test_an_image_with_equal_captions_stands_once() -> None:
    """Case, spaces and the full stop make no other caption; another image, or another text, does.
    What an own caption of the image says is no news."""
    sets = ["A dog runs .", "x"], ["a  dog runs", "a dog ran"], ["a dog runs.", "A dog runs"], ["x"]
    captions = make_captions(sets)
    image, caption = np.array([3, 3, 3, 3, 1, 3, 0, 2]), np.array([2, 3, 4, 5, 4, 1, 3, 1])
    pairs = valued_pairs(image, caption, np.linspace(1, 0.5, 8), np.ones(8))
    assert select_distinct(pairs, captions) == [(0, 3), (1, 1), (6, 1), (7, 1)]
    assert find_equal_captions(captions) == [[0, 2, 4, 5], [1, 6]]
    assert (
        group_images([(0, 3), (1, 4), (3, 5)], 7) == [[0, 3, 5], [1, 4]]
        and group_images([], 4) == []
    )


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_leads_with_pairs_to_look_at(
    width: int, dense: tuple[dict, Path], browser: Browser
) -> None:
    """Twenty at a time, chosen by P of a measure; no caption runs; nothing sticks out, overlaps or
    is hard to read."""
    found, path = dense
    page, heard = opened_file(browser, path, viewport={"width": width, "height": 900})
    assert page.title() == "Audit" and page.locator(".cg-answers dt").count() == 3
    assert (
        page.locator(".vega svg").count() == 2 and page.locator("main > details[open]").count() == 2
    )
    cards, more = page.locator("#likely li[data-p]"), page.locator("#likely .cg-more")
    every, first = cards.count(), cards.first.bounding_box()
    bands, trust = (chart.bounding_box() for chart in page.locator("#trust .chart").all())
    assert (
        cards.first.get_by_text("written for i").count() and "#" in cards.first.inner_text()
    )  # whose caption it is
    assert first["y"] + first["height"] < 900 < bands["y"] and (bands["y"] == trust["y"]) == (
        width == 1280
    )
    assert 40 < every <= 100 and page.locator("#likely li[data-p]:visible").count() == 20
    assert page.evaluate("document.documentElement.scrollHeight") < 8000
    more.click()
    assert page.locator("#likely li[data-p]:visible").count() == 40
    p = [json.loads(card.get_attribute("data-p") or "") for card in cards.all()]
    assert all(set(one) == {"rouge_l", "bleu"} for one in p)
    page.locator("#likely [data-by]").select_option("bleu")
    page.locator("#likely [data-least]").select_option("0.9")
    certain = sum(one["bleu"] >= 0.9 for one in p)
    assert page.locator("#likely li[data-p]:visible").count() == min(certain, 20) < every
    assert f"of {certain} shown" in page.locator("#likely [role=status]").inner_text()
    page.evaluate(
        "document.querySelectorAll('main > details').forEach((one) => { one.open = true; })"
    )
    assert "\n".join(problems_of(page)) == "" and heard == []
    assert found["equal_captions"] == 3  # of the last two images
    assert page.get_by_text("Captions of several images", exact=True).count() == 1
    page.close()


def test_it_replaces_its_out_files_alone(world: Path, given: Given, tmp_path: Path) -> None:
    """Its page with --force alone; a folder of its page's name that it did not
    write stays."""
    given |= {"relevance": world / "relevance"}
    page = render_page(
        "Report", PageSection("opening", "", "", []), [], "capgrade", foot="", runs=[]
    )
    others = {
        "a.html": page,
        "b-lists/likely.csv": "mine\n",
        "c-lists/positives.json": '{"kind": "positives"}',
    }
    for name, text in others.items():
        write_text(tmp_path / name, text)
        with pytest.raises(
            InputError,
            match="a file is there -> give --force|holds files that capgrade did not write",
        ):
            audit(**given, out=tmp_path / f"{name[0]}.html")
        assert (tmp_path / name).read_text() == text and len(
            list(tmp_path.rglob(f"{name[0]}*"))
        ) == 1
    for force in (False, True):
        audit(**given, out=tmp_path / "d.html", force=force)
    with pytest.raises(InputError, match="a file is there"):
        report(world, tmp_path / "d.html")


def test_its_lists_are_a_finished_folder(
    world: Path, given: Given, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest names every file; from shards of format 1, after relevance, no old list is
    left."""
    lists = tmp_path / "a-lists"
    of_all = {**given, "relevance": world / "relevance", "out": tmp_path / "a.html"}
    found = audit(**of_all)
    manifest = read_manifest(lists, "audit")
    assert (
        set(manifest["files"])
        == LIST_FILES
        == {path.name for path in lists.glob("*.*")} - {MANIFEST}
    )
    assert (
        manifest["found"] == json.loads(json.dumps(found))
        and manifest["files"]["likely.csv"]["rows"] > 0
    )
    assert set(manifest["inputs"]) == {"captions", "relevance", "calibration"}
    monkeypatch.setattr("capgrade.schemas.shards.Shards.left_out", lambda *_: None)
    audit(**given, out=tmp_path / "a.html", shards=world / "shards", force=True)
    assert set(read_manifest(lists, "audit")["files"]) == LIST_FILES - {"suspects.csv"}
    assert not (lists / "suspects.csv").exists()  # an empty list would say that there are none


def test_what_cannot_be_audited(world: Path, given: Given, tmp_path: Path) -> None:
    relevance, out = world / "relevance", tmp_path / "a.html"
    changed = json.loads((world / "calibration.json").read_text())
    changed["params"]["rouge_l"]["beta"] = 9.0
    (tmp_path / "c.json").write_text(json.dumps(changed))
    (tmp_path / "b.json").write_text(
        json.dumps(changed | {"measures": {"rouge_l": changed["measures"]["rouge_l"]}})
    )
    of_one = {"calibration": tmp_path / "b.json", "measure": "bleu"}
    (tmp_path / "none").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "none" / "other.png")
    known = ", ".join(CALIBRATED)
    for message, wrong in (
        (r"does not end in .html -> give page.html", {"out": tmp_path / "page.csv"}),
        ("give --relevance DIR or --shards DIR", {"relevance": None}),
        ("give --relevance DIR or --shards DIR", {"shards": world / "shards"}),
        (
            f"n crisscrossed.json is of {known}; the folder has bleu, rouge_l ->",
            {"calibration": None, "measure": None},
        ),
        (
            (
                "bleu is not of both: the calibration b.json is of rouge_l; the folder has bleu,"
                " rouge_l ->"
            ),
            of_one,
        ),
        ("rouge_l has other parameters", {"calibration": tmp_path / "c.json"}),
        ("a picture of none of the", {"images": tmp_path / "none"}),
    ):
        with pytest.raises(InputError, match=message):
            audit(**{**given, "relevance": relevance, "out": out, **wrong})
        assert not list(tmp_path.glob("a*"))  # said before anything is computed


def test_a_training_mask_is_the_audits_rule(world: Path, dense: tuple[dict, Path]) -> None:
    """The value at P .5: from there on, all other captions are likely pairs."""
    labels = Labels.load(world / "relevance", captions=world / "captions")
    least = capgrade.value_at(
        labels, 0.5, measure="rouge_l", calibration=world / "calibration.json"
    )
    other = labels.owner != np.arange(len(labels.image_ids))[:, None]
    assert least == dense[0]["calibration"]["likely_from"]
    assert ((np.load(world / "s.npy") >= least) & other).sum() == dense[0]["likely_pairs"] > 0
    with pytest.raises(InputError, match="calibrates people.*none of rouge_l"):
        capgrade.value_at(labels, 0.5, measure="rouge_l")


def test_the_shipped_calibration_says_what_it_was_fitted_on() -> None:
    shipped = load_calibration(SHIPPED)
    assert list(shipped.curves) == CALIBRATED and shipped.facts["accept"] == 4.5
    assert {"file", "sha256", "pairs", "captions", "licence"} <= set(shipped.facts["judgements"])
    assert all(curve.ece <= 0.03 for curve in shipped.curves.values())
    assert shipped.params == MeasuresParams().used(CALIBRATED)


def test_evaluate_takes_the_positives(world: Path, dense: tuple[dict, Path]) -> None:
    """A model that ranks by the measure finds an accepted caption first, for every image."""
    file = dense[1].with_name("d-lists") / "positives.json"
    given: Given = {"similarity": world / "s.npy", "relevance": world / "relevance"}
    task, notes = load_task(world / "captions", positives=file, **given)
    assert not any(
        "eccv" in note or "cxc" in note for note in notes
    )  # not COCO: no word of its lists
    found = evaluate(task, EvaluateParams(metric=("recall@1", "accepted_recall@1"), samples=0))[
        0
    ].json()
    assert found["i2t"]["accepted_recall@1"] >= found["i2t"]["recall@1"]
    lists = json.loads(file.read_text())["image_to_caption"]
    captions = read_captions(world / "captions")
    best = np.load(world / "s.npy").argmax(axis=0)  # the first image of each caption
    hit = [captions.caption_ids[c] in lists[captions.image_ids[i]] for c, i in enumerate(best)]
    assert found["t2i"]["accepted_recall@1"] >= np.mean(hit) - 0.1
    assert (
        curves(task, (1,), "expected")["mined"] == []
    )  # estimated from captions: no measure is judged by them
    with pytest.raises(InputError, match="not a file of positives"):
        load_task(
            world / "captions", similarity=world / "s.npy", positives=world / "calibration.json"
        )


# People judge random pairs of some scenes by their true relevance, and accept from a half on. The
# audit of other scenes reads a measure alone: of all pairs, and of pairs sampled as `capgrade
# shards` does.
# scenes judged, and audited; random pairs; of true relevance
IMAGES = 60
JUDGED = 6000
ACCEPT = 0.5
ROUGE_L = choose(("rouge_l",), MeasuresParams())


@cache
def _world(seed: int, split: str) -> tuple[Captions, np.ndarray, np.ndarray]:
    """Scenes of a split: captions, true relevance and a measure's values, float32 [images,
    captions]."""
    made = scenes.generate(
        ScenesParams(**{**dict.fromkeys(("train", "val", "test"), 0), split: IMAGES, "seed": seed})
    )
    texts = groupby(made.captions, key=lambda one: one.image_id)
    captions = make_captions([[one.text for one in some] for _, some in texts])
    values = ROUGE_L["rouge_l"].fit(captions).score(np.arange(IMAGES))
    return captions, scenes.truth(made.scenes, made.meanings), values


@pytest.mark.parametrize("read", ["dense", "shards"])
def test_what_is_printed_holds_the_truth(read: str) -> None:
    told, truth, bands = [], [], []
    for seed in range(10):
        captions, true, values = _world(seed, "val")
        cells = np.sort(np.random.default_rng(seed).choice(true.size, JUDGED, replace=False))
        image, caption = np.unravel_index(cells, true.shape)
        people = Judgements(image, caption, true[image, caption].astype(np.float64))
        curve = fit(
            values[image, caption], people, captions.owner[caption], Scale(ACCEPT, *YES_OR_NO)
        )
        captions, true, values = _world(seed, "test")
        image, caption, weight = (
            *np.divmod(np.arange(true.size), captions.n_captions),
            np.ones(true.size),
        )
        if read == "shards":
            params = ShardsParams(measures=("rouge_l",), top=20, uniform=20, seed=seed)
            own = np.split(captions.refs, captions.ref_ptr[1:-1])
            keys = id_keys(captions.image_ids), id_keys(captions.caption_ids)
            kept = keep(plan_of(ROUGE_L.values(), params), *keys, own, {"rouge_l": values}).pairs()
            image, caption, weight = kept.image, kept.caption, kept.weight
        counts = ProbabilityBands(curve, IMAGES, captions.owner, random=True)
        counts.add(
            valued_pairs(image, caption, values[image, caption], weight).of_others(captions.owner)
        )
        other = captions.owner != np.arange(IMAGES)[:, None]
        # of each band
        truths = (
            np.histogram(curve.probability(values[other & (true >= ACCEPT)]), EDGES)[0] / IMAGES
        )
        told.append(counts.likely())
        truth.append(truths[-1])
        bands.append(
            [
                one["low"] <= t <= one["high"]
                for one, t in zip(counts.summarise() or [], truths, strict=True)
            ]
        )
    assert (
        np.mean([one["low"] <= t <= one["high"] for one, t in zip(told, truth, strict=True)]) >= 0.9
    )
    assert np.mean(bands, axis=0).min() >= 0.9
    mean = {
        name: np.mean([one[name] for one in told]) for name in ("pairs", "accepted", "low", "high")
    }
    assert mean["low"] < mean["accepted"] < mean["high"] and mean["pairs"] > np.mean(truth) > 0


SCALE = Scale(0.5, 0.0, 1.0)


def _chosen_world(
    seed: int, hidden: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Judgements]:
    """Values and whom people accept [images, captions], whose each caption is, and judged pairs:
    the likelier chosen, the more alike a pair is by its value and by what the measure does not see,
    which counts by `hidden`."""
    random, owner = np.random.default_rng(seed), np.arange(180) // 3
    value, unseen = random.beta(1, 5, (IMAGES, 180)), random.normal(size=(IMAGES, 180))
    # images, and what their captions say, are not alike
    apart = random.normal(scale=0.3, size=IMAGES)
    accepted = random.random(value.shape) < 1 / (
        1 + np.exp(8 - 12 * value - hidden * unseen - apart[:, None])
    )
    liking = 6 * value + hidden * unseen + random.gumbel(size=value.shape)
    liking[owner == np.arange(IMAGES)[:, None]] = -np.inf
    image, caption = np.unravel_index(np.argsort(-liking, axis=None)[:2000], value.shape)
    score = accepted[image, caption].astype(np.float64)
    return value, accepted, owner, Judgements(image, caption, score, scale=(0.0, 1.0))


@pytest.mark.parametrize("hidden", [0.0, 1.0])
def test_the_band_of_chosen_pairs_holds_the_truth(hidden: float) -> None:
    """In at least 90 of 100 worlds, of these captions and of others; it is no band of
    everything."""
    held, widths = np.zeros((100, 2), bool), np.zeros(100)
    for seed in range(100):
        value, _, owner, people = _chosen_world(seed, hidden)
        curve = fit(value[people.image, people.caption], people, owner[people.caption], SCALE)
        for k, of in enumerate((seed, 1000 + seed)):
            value, accepted, owner, _ = _chosen_world(of, hidden)
            bands = ProbabilityBands(curve, IMAGES, owner, random=False)
            cells = np.arange(value.size)
            image, caption = np.divmod(cells, len(owner))
            bands.add(
                valued_pairs(image, caption, value.ravel(), np.ones(value.size)).of_others(owner)
            )
            found = bands.accepted_range(people.score.sum() / IMAGES if k == 0 else None)
            truth = accepted[owner != np.arange(IMAGES)[:, None]].sum() / IMAGES
            held[seed, k] = (found["at_least"] or 0) <= truth <= found["at_most"]
            assert (found["at_least"] is None) == (k == 1) and 0 < found["below_half"] <= found[
                "at_most"
            ]
            widths[seed] = found["at_most"] / truth
    assert held.mean(axis=0).min() >= 0.9 and np.median(widths) < 8
