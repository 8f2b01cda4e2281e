"""The audit: estimates cover the truth, shards estimate what the dense matrix has, lists, files, and the page."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock
from PIL import Image
from playwright.sync_api import Browser

from capgrade.pipelines import audit as stage
from capgrade.pipelines.agree import agree
from capgrade.pipelines.agreement.curve import Curve, Scale, fit
from capgrade.pipelines.agreement.judgements import Judgements
from capgrade.pipelines.audit import audit
from capgrade.pipelines.audit.candidates import ValuedPairs
from capgrade.pipelines.audit.errors import WAYS
from capgrade.pipelines.audit.estimate import Counts, PairCounts, mean_of
from capgrade.pipelines.audit.lists import (
    distinct,
    equal_captions,
    groups,
    near_duplicates,
    suspects,
    write_duplicates,
    write_likely,
    write_suspects,
)
from capgrade.pipelines.relevance import relevance
from capgrade.pipelines.report import report
from capgrade.pipelines.report.page import render
from capgrade.pipelines.shards import shards
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST, read_manifest
from capgrade.schemas.params import MeasuresParams, RelevanceParams, ShardsParams
from tests.conftest import call, caption_table, make_captions, random_sets, write_captions_folder
from tests.tools.browser import open_file

SHARES = Scale(0.5, 0.0, 1.0)
LIST_FILES = {"likely.csv", "suspects.csv", "duplicates.csv", "positives.json"}
CALIBRATED = ["people", "people_shared", "sbert", "scene_graph"]  # by what comes with capgrade
SETS = [
    *random_sets(30, seed=3, least=3, most=4),
    ["a dog", "the dog sits", "a small dog"],
    ["a dog", "the dog sits", "a small dog"],
]
SETS[5] = [*SETS[5][:2], "<script>document.title='owned'</script> zebra xylophone quartz"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Captions judged by a dense matrix of ROUGE-L, a calibration on it, dense relevance and shards."""
    folder: Path = tmp_path_factory.mktemp("audit")
    captions = write_captions_folder(folder / "captions", [caption_table(SETS)])
    names = ("rouge_l", "bleu")
    relevance(captions, folder / "relevance", RelevanceParams(measures=names), MeasuresParams())
    shards(captions, folder / "shards", ShardsParams(measures=names, top=5, uniform=20), MeasuresParams())
    judged, out = folder / "relevance" / "rouge_l.arrow", folder / "calibration.json"
    agree(captions, judged, names, MeasuresParams(), calibrate=out, accept=0.4)
    return folder


def test_intervals_cover_the_truth_in_most_seeds() -> None:
    """Values of 60 images and 80 captions, people who accept v with probability v**3, judged on other images."""
    inside = 0
    for seed in range(30):
        random = np.random.default_rng(seed)
        values = random.random((60, 80)) * random.random((60, 1))
        truth = random.random(values.shape) < values**3
        seen = random.random((100, 20)) * random.random((100, 1))
        yes = (random.random(seen.shape) < seen**3).astype(float)
        people = Judgements(np.repeat(np.arange(100), 20), np.arange(2000), yes.ravel())
        curve = fit(seen.ravel(), people, 1000 + np.arange(2000) // 5, SHARES)
        kept = random.random(values.shape) < 0.5
        image, caption = np.nonzero(kept)
        counts = PairCounts(curve, 60, np.arange(80) * 3 // 4)
        counts.add(ValuedPairs(image, caption, values[kept], np.full(len(image), 2.0)))
        found = mean_of(counts, seed)
        inside += found.low <= truth.sum() / 60 <= found.high
    assert inside >= 26  # of 30: below it with 95 % each, once in 100


@pytest.mark.parametrize("share", [1, 4])
def test_what_is_left_open_is_how_much_drawn_people_differ(share: int) -> None:
    """A pair of value v is accepted with probability v (1 + a + b), a of its image and b of the caption's image; one
    pair in `share` is read."""
    random, owner = np.random.default_rng(0), np.arange(30) // 3
    image, caption = np.nonzero(owner != np.arange(10)[:, None])
    p, counts, sums = random.random(270) / 2, np.empty(4000), np.empty(4000)
    for k in range(4000):
        a, b = (random.choice([-1, 1], 10) * np.sqrt(spread) for spread in (0.2, 0.3))
        counts[k] = (random.random(270) < p * (1 + a[image] + b[owner[caption]])).sum()
        sums[k] = share * p[random.random(270) < 1 / share].sum()
    curve, found = Curve([0.0, 1.0], [0.0, 5.0], [0.0, 1.0], [[0.0, 1.0]] * 2, 0.0, [], 1, 0.2, 0.3), np.empty(200)
    for k in range(200):
        kept, read = random.random(270) < 1 / share, PairCounts(curve, 10, owner)
        read.add(ValuedPairs(image[kept], caption[kept], p[kept], np.full(kept.sum(), float(share))))
        found[k] = read.left_open() ** 2
    assert found.mean() == pytest.approx(counts.var() + sums.var(), rel=0.1)


def test_intervals_cover_where_some_images_captions_fit_more() -> None:
    """Of half of the images nobody's captions fit another, of the others twice as many as the value says; as much of
    the images that are judged. Draws of images, or of pairs, alone do not see it."""
    inside = 0
    for seed in range(30):
        random = np.random.default_rng(seed)
        worlds = []
        for _ in range(2):
            values, owner = random.random((40, 120)) * 0.8, np.arange(120) // 3
            fits = 2 * random.integers(2, size=40)
            yes = random.random(values.shape) < values**3 * fits[owner]
            worlds.append((values, owner, yes, owner != np.arange(40)[:, None]))
        (seen, owner, yes, other), (values, _, truth, _) = worlds
        image, caption = np.nonzero(other)
        people = Judgements(image, caption, yes[other].astype(float))
        counts = PairCounts(fit(seen[other], people, owner[caption], SHARES), 40, owner)
        counts.add(ValuedPairs(image, caption, values[other], np.ones(len(image))))
        found = mean_of(counts, seed)
        inside += found.low <= truth[other].sum() / 40 <= found.high
    assert inside >= 26  # of 30: below it with 95 % each, once in 100


@pytest.mark.parametrize("knots", [1, 2, 9])
def test_what_is_added_up_is_the_weight_times_the_probability(knots: int) -> None:
    """Most values at the low end, as CIDEr-D's are, some beyond the curve; image 3 has none."""
    random = np.random.default_rng(knots)
    value = np.sort(random.random(knots) ** 8 * 7)
    accepted, draws = np.sort(random.random(knots)), np.sort(random.random((3, knots)))
    curve = Curve(value.tolist(), [0.0] * knots, accepted.tolist(), draws.tolist(), 0.0, [], 1, 0.0, 0.0)
    image, values = random.choice([0, 1, 2, 4], 500), np.where(random.random(500) < 0.9, 0, random.random(500) * 9)
    weight, counts = random.random(500) * 5, Counts(curve, 5)
    for part in (slice(300), slice(300, 300), slice(300, None)):
        counts.add(ValuedPairs(image[part], image[part], values[part].astype(np.float32), weight[part]))
    each, drawn = counts.accepted()
    for i in range(5):
        mine = [
            (
                w,
                float(np.interp(np.float32(v), value, accepted)),
                [np.interp(np.float32(v), value, line) for line in draws],
            )
            for v, w, of in zip(values, weight, image, strict=True)
            if of == i
        ]
        assert each[i] == pytest.approx(sum(w * p for w, p, _ in mine))
        assert drawn[i] == pytest.approx([sum(w * lines[d] for w, _, lines in mine) for d in range(3)])


def test_shards_estimate_what_the_dense_matrix_has(world: Path, tmp_path: Path) -> None:
    given = {"calibration": world / "calibration.json", "measure": "rouge_l"}
    dense = audit(world / "captions", tmp_path / "d.html", relevance=world / "relevance", **given)
    some = audit(world / "captions", tmp_path / "s.html", shards=world / "shards", **given)
    one, other = dense["likely_captions_per_image"], some["likely_captions_per_image"]
    assert other["low"] < one["accepted"] < other["high"] and one["low"] < one["accepted"] < one["high"]
    for band, sampled in zip(dense["bands"], some["bands"], strict=True):
        assert sampled["low"] <= band["accepted"] <= sampled["high"]
    lists = [("Lists have the pairs that the shards kept" in (tmp_path / f"{x}.html").read_text()) for x in "ds"]
    assert lists == [False, True]
    captions = read_captions(world / "captions")
    assert dense["given_captions_per_image"] == pytest.approx(captions.n_captions / captions.n_images)
    ratio = captions.n_images / captions.n_captions
    assert dense["likely_images_per_caption"] == pytest.approx({key: value * ratio for key, value in one.items()})
    assert one["pairs"] * captions.n_images == pytest.approx(dense["likely_pairs"])


def test_suspects_are_listed_or_it_is_said_why_not(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["audit", "--captions", str(world / "captions"), "--measure", "rouge_l"]
    line += ["--calibration", str(world / "calibration.json")]
    assert call(*line, "--relevance", str(world / "relevance"), "--out", str(tmp_path / "d.html")) == 0
    rows = list(csv.DictReader((tmp_path / "d-lists" / "suspects.csv").open()))
    assert rows and f"\n{len(rows)} given captions fit nothing" in capsys.readouterr().out
    captions = read_captions(world / "captions")
    owner = {captions.caption_ids[c]: captions.image_ids[captions.owner[c]] for c in range(captions.n_captions)}
    assert all(owner[row["caption_id"]] == row["image_id"] for row in rows)
    assert all(float(row["expected_score"]) < 1 and row["caption"] for row in rows)
    assert call(*line, "--shards", str(world / "shards"), "--out", str(tmp_path / "s.html")) == 0
    said = "shards have no value of a caption without itself among the references: give --relevance"
    assert said in capsys.readouterr().out and said in (tmp_path / "s.html").read_text()
    assert not (tmp_path / "s-lists" / "suspects.csv").exists()  # an empty list would say that there are none


def test_the_accepted_are_those_of_the_truth(world: Path, tmp_path: Path) -> None:
    """Where the measure is the judge, its count is the matrix's own."""
    found = audit(
        world / "captions", tmp_path / "a.html", relevance=world / "relevance",
        calibration=world / "calibration.json", measure="rouge_l",
    )  # fmt: skip
    from capgrade.schemas.relevance import read_relevance

    captions = read_captions(world / "captions")
    matrix = read_relevance(world / "relevance" / "rouge_l.arrow").matrix()
    matrix[captions.owner, np.arange(captions.n_captions)] = 0
    truth = (matrix >= 0.4).sum() / captions.n_images
    assert sum(band["accepted"] for band in found["bands"]) == pytest.approx(truth, rel=0.1)
    assert found["bands"][-1] == {"from": 0.5, "to": 1.0, **found["likely_captions_per_image"]}
    assert found["calibration"]["sampling"] == "random" and found["calibration"]["same_captions"]  # all were judged
    positives = json.loads((tmp_path / "a-lists" / "positives.json").read_text())["image_to_caption"]
    assert all(f"i{i}#0" in positives[f"i{i}"] for i in range(captions.n_images))
    assert sum(map(len, positives.values())) == captions.n_captions + found["likely_pairs"]
    rows = list(csv.DictReader((tmp_path / "a-lists" / "likely.csv").open()))
    assert len(rows) == found["likely_pairs"] > 0
    assert [float(row["value"]) for row in rows] == sorted((float(row["value"]) for row in rows), reverse=True)


def test_of_chosen_pairs_there_is_an_upper_limit_alone(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same curves from pairs that somebody chose: no expectation, no bands, no floor of a model's errors."""
    calibration = json.loads((world / "calibration.json").read_text())
    calibration["judgements"] |= {"sampling": "chosen", "captions": "0" * 64}
    (tmp_path / "c.json").write_text(json.dumps(calibration))
    np.save(tmp_path / "s.npy", np.random.default_rng(0).random((32, read_captions(world / "captions").n_captions)))
    given: dict[str, Any] = {"relevance": world / "relevance", "measure": "rouge_l", "similarity": [tmp_path / "s.npy"]}
    random = audit(world / "captions", tmp_path / "r.html", calibration=world / "calibration.json", **given)
    found = audit(world / "captions", tmp_path / "a.html", calibration=tmp_path / "c.json", **given)
    one, same = found["likely_captions_per_image"], random["likely_captions_per_image"]
    assert one == {"pairs": same["pairs"], "accepted": None, "low": 0.0, "high": same["high"]}
    assert found["bands"] is None and random["bands"] is not None
    assert [random["model"][way].pop("at_least") is None for way in WAYS] == [False, False]
    assert [found["model"][way].pop("at_least") for way in WAYS] == [None, None] and found["model"] == random["model"]
    pages = [(tmp_path / f"{name}.html").read_text() for name in "ra"]
    assert ["at most" in page for page in pages] == [False, True]
    assert ["by P</caption>" in page or "image, by P" in page for page in pages] == [True, False]
    assert ["judged pairs of these very captions" in page for page in pages] == [True, False]
    assert ["says nothing of all others" in page for page in pages] == [False, True]
    line = ["audit", "--captions", world / "captions", "--relevance", world / "relevance", "--measure", "rouge_l"]
    line += ["--calibration", tmp_path / "c.json", "--similarity", tmp_path / "s.npy", "--out", tmp_path / "a.html"]
    assert call(*map(str, line)) == 0
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 4 and "at most" in said[0] and "chosen pairs" in said[0] and "R@1 errors" in said[2]


def test_duplicates_and_suspects() -> None:
    captions = make_captions([["a", "b"], ["c", "d"], ["e"]])
    image, caption = np.array([0, 0, 1, 1, 0, 2]), np.array([2, 3, 0, 1, 4, 0])
    pairs = ValuedPairs(image, caption, np.ones(6), np.ones(6))
    assert near_duplicates(pairs, captions) == [(0, 1)]  # 2 takes one of 0's two captions
    value = np.linspace(0, 1, 400)
    people = Judgements(np.arange(400) % 20, np.arange(400), value)
    curve = fit(value, people, 1000 + np.arange(400) // 5, SHARES)
    assert suspects(np.array([0.9, 0.15, np.nan, 0.05, 0.5]), curve).tolist() == [3, 1]


def test_groups_of_near_duplicates_are_a_table(tmp_path: Path) -> None:
    captions = make_captions([["a", "b"], ["c"], ["d", "e, f"]])
    write_duplicates(tmp_path / "d.csv", [[0, 2]], captions)
    rows = list(csv.reader((tmp_path / "d.csv").open(newline="")))
    assert rows == [["group", "image_id", "captions"], ["1", "i0", "a | b"], ["1", "i2", "d | e, f"]]


def test_no_caption_is_a_formula_in_a_spreadsheet(tmp_path: Path) -> None:
    texts = ["=HYPERLINK(A1)", "+a", "-1+cmd", "@SUM(A1)", "-0.5", "a dog"]
    captions = make_captions([[text] for text in texts])
    write_duplicates(tmp_path / "d.csv", [range(6)], captions)
    value = np.linspace(-1, 1, 400)
    people = Judgements(np.arange(400) % 20, np.arange(400), value)
    curve = fit(value, people, 1000 + np.arange(400) // 5, SHARES)
    own = np.full(6, -0.5, np.float32)
    write_suspects(tmp_path / "s.csv", np.arange(6), own, curve, captions)
    every = np.arange(6)
    write_likely(tmp_path / "l.csv", ValuedPairs(every, every, own, np.ones(6)), curve, captions)
    shown = [*(f"'{text}" for text in texts[:4]), *texts[4:]]
    for name, column in (("d", "captions"), ("s", "caption"), ("l", "caption")):
        rows = list(csv.DictReader((tmp_path / f"{name}.csv").open(newline="")))
        assert [row[column] for row in rows] == shown
        assert name == "d" or {row["value"] for row in rows} == {"-0.5000"}, "numbers stay"


def test_an_image_with_equal_captions_stands_once() -> None:
    """Case, spaces and the full stop make no other caption; another image, or another text, does. What an own caption
    of the image says is no news."""
    captions = make_captions(
        [["A dog runs .", "x"], ["a  dog runs", "a dog ran"], ["a dog runs.", "A dog runs"], ["x"]]
    )
    image, caption = np.array([3, 3, 3, 3, 1, 3, 0, 2]), np.array([2, 3, 4, 5, 4, 1, 3, 1])
    pairs = ValuedPairs(image, caption, np.linspace(1, 0.5, 8), np.ones(8))
    assert distinct(pairs, captions) == [(0, 3), (1, 1), (6, 1), (7, 1)]
    assert equal_captions(captions) == [[0, 2, 4, 5], [1, 6]]
    assert groups([(0, 3), (1, 4), (3, 5)], 7) == [[0, 3, 5], [1, 4]] and groups([], 4) == []


def test_the_page_has_each_text_of_an_image_once(world: Path, tmp_path: Path) -> None:
    given = {"calibration": world / "calibration.json", "measure": "rouge_l"}
    found = audit(world / "captions", tmp_path / "a.html", relevance=world / "relevance", **given)
    page = (tmp_path / "a.html").read_text()
    assert found["equal_captions"] == 3  # of the last two images
    assert "Captions of several images (3 texts)" in page
    rows = list(csv.DictReader((tmp_path / "a-lists" / "likely.csv").open()))
    assert len(rows) == found["likely_pairs"]  # every pair, for machines


def test_the_page_opens_from_disk_and_runs_no_caption(world: Path, tmp_path: Path, browser: Browser) -> None:
    given = {"calibration": world / "calibration.json", "measure": "rouge_l"}
    audit(world / "captions", tmp_path / "audit.html", relevance=world / "relevance", **given)
    page = browser.new_page()
    assert open_file(page, tmp_path / "audit.html") == []
    assert page.title() == "Audit" and page.locator("article").count() > 3
    assert page.get_by_text("captions per image are likely positives", exact=False).count()
    page.wait_for_selector(".vega svg")
    page.close()


def test_it_replaces_its_own_files_alone(world: Path, tmp_path: Path) -> None:
    """A report of capgrade is not its page either; a folder of its page's name that it did not write stays."""
    given: dict[str, Any] = {"calibration": world / "calibration.json", "measure": "rouge_l"}
    page = render("Report", [], lead="", foot="", runs=[])
    for name, text in {
        "a.html": page,
        "a-lists/likely.csv": "mine\n",
        "a-lists/positives.json": '{"kind": "positives"}',
    }.items():
        file, out = tmp_path / "x" / name, tmp_path / "x" / "a.html"
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(text)
        with pytest.raises(InputError, match="it is there and is no|holds files that capgrade did not write"):
            audit(world / "captions", out, relevance=world / "relevance", **given)
        assert [path.read_text() for path in (tmp_path / "x").rglob("*") if path.is_file()] == [text]
        shutil.rmtree(tmp_path / "x")
    for _ in range(2):
        audit(world / "captions", tmp_path / "b.html", relevance=world / "relevance", **given)
    with pytest.raises(InputError, match="no report of capgrade"):
        report(world, tmp_path / "b.html")


def test_its_lists_are_a_finished_folder_or_none(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest names every file; another run waits outside; from shards after relevance no old list is left."""
    given: dict[str, Any] = {"calibration": world / "calibration.json", "measure": "rouge_l"}
    found = audit(world / "captions", tmp_path / "a.html", relevance=world / "relevance", **given)
    manifest = read_manifest(tmp_path / "a-lists", "audit")
    assert (
        set(manifest["files"]) == LIST_FILES == {path.name for path in (tmp_path / "a-lists").glob("*.*")} - {MANIFEST}
    )
    assert manifest["found"] == json.loads(json.dumps(found)) and manifest["files"]["likely.csv"]["rows"] > 0
    assert set(manifest["inputs"]) == {"captions", "relevance", "calibration"}
    audit(world / "captions", tmp_path / "a.html", shards=world / "shards", **given)
    assert set(read_manifest(tmp_path / "a-lists", "audit")["files"]) == LIST_FILES - {"suspects.csv"}
    assert not (tmp_path / "a-lists" / "suspects.csv").exists()
    with FileLock(tmp_path / "a-lists" / ".lock"), pytest.raises(InputError, match="another run|is writing"):
        audit(world / "captions", tmp_path / "a.html", relevance=world / "relevance", **given)

    def full(*_: Any) -> int:
        raise InputError("cannot be written")

    monkeypatch.setattr(stage, "write_positives", full)
    with pytest.raises(InputError, match="cannot be written"):
        audit(world / "captions", tmp_path / "a.html", relevance=world / "relevance", **given)
    with pytest.raises(InputError, match="not a finished audit folder"):
        read_manifest(tmp_path / "a-lists", "audit")


def test_what_cannot_be_audited(world: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"does not end in .html -> give page.html"):
        audit(world / "captions", tmp_path / "page.csv", relevance=world / "relevance")
    out, captions = tmp_path / "a.html", world / "captions"
    with pytest.raises(InputError, match="give --relevance DIR or --shards DIR"):
        audit(captions, out)
    known = ", ".join(CALIBRATED)
    with pytest.raises(InputError, match=f"no measure that crisscrossed.json knows .{known}.; it has bleu, rouge_l"):
        audit(captions, out, relevance=world / "relevance")
    found = json.loads((world / "calibration.json").read_text())
    found["params"]["rouge_l"]["beta"] = 9.0
    (tmp_path / "c.json").write_text(json.dumps(found))
    with pytest.raises(InputError, match="rouge_l has other parameters"):
        audit(captions, out, relevance=world / "relevance", calibration=tmp_path / "c.json", measure="rouge_l")
    (tmp_path / "none").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "none" / "other.png")
    given: dict[str, Any] = {"calibration": world / "calibration.json", "measure": "rouge_l"}
    with pytest.raises(InputError, match="a picture of none of the"):
        audit(captions, out, relevance=world / "relevance", images=tmp_path / "none", **given)
    assert not list(tmp_path.glob("a*"))  # said before anything is computed
    (tmp_path / "a-lists").mkdir()
    (tmp_path / "a-lists" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="holds files that capgrade did not write"):
        audit(captions, out, relevance=world / "relevance", calibration=world / "calibration.json")
    assert not out.exists()


def test_the_shipped_calibration_says_what_it_was_fitted_on() -> None:
    from capgrade.pipelines.agreement.calibration import SHIPPED, load

    shipped = load(SHIPPED)
    assert list(shipped.curves) == CALIBRATED and shipped.facts["accept"] == 4.5
    assert {"file", "sha256", "pairs", "captions", "licence"} <= set(shipped.facts["judgements"])
    assert all(curve.ece <= 0.03 for curve in shipped.curves.values())
    assert shipped.params == MeasuresParams().used(CALIBRATED)


def test_evaluate_takes_the_positives(world: Path, tmp_path: Path) -> None:
    """A model that ranks by the measure finds an accepted caption first, for every image."""
    from capgrade.schemas.relevance import read_relevance
    from capgrade.trainer.evaluation.evaluate import Settings, curves, evaluate
    from capgrade.trainer.evaluation.task import load_task

    given = {"calibration": world / "calibration.json", "measure": "rouge_l"}
    audit(world / "captions", tmp_path / "a.html", relevance=world / "relevance", **given)
    matrix = read_relevance(world / "relevance" / "rouge_l.arrow").matrix()
    np.save(tmp_path / "s.npy", matrix)
    given = {"relevance": world / "relevance", "positives": tmp_path / "a-lists" / "positives.json"}
    task, notes = load_task(world / "captions", similarity=tmp_path / "s.npy", **given)
    assert not any("eccv" in note or "cxc" in note for note in notes)  # not COCO: no word of its lists
    found = evaluate(task, Settings(metrics=("recall@1", "accepted_recall@1"), samples=0))[0].json()
    assert found["i2t"]["accepted_recall@1"] >= found["i2t"]["recall@1"]
    lists = json.loads((tmp_path / "a-lists" / "positives.json").read_text())["image_to_caption"]
    captions = read_captions(world / "captions")
    best = matrix.argmax(axis=0)  # the first image of each caption
    hit = [captions.caption_ids[c] in lists[captions.image_ids[i]] for c, i in enumerate(best)]
    assert found["t2i"]["accepted_recall@1"] >= np.mean(hit) - 0.1
    assert curves(task, (1,), "expected")["mined"] == []  # estimated from captions: no measure is judged by them
    with pytest.raises(InputError, match="not a file of positives"):
        load_task(world / "captions", similarity=tmp_path / "s.npy", positives=world / "calibration.json")


def test_labels_that_change_meanwhile(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that names them, and no page."""
    copied = tmp_path / "relevance"
    shutil.copytree(world / "relevance", copied)

    def meanwhile(*args: Any) -> Any:
        manifest = copied / "manifest.json"
        manifest.write_text(manifest.read_text() + " ")
        return joined(*args)

    joined = stage.joined
    monkeypatch.setattr(stage, "joined", meanwhile)
    given = {"calibration": world / "calibration.json", "measure": "rouge_l"}
    with pytest.raises(InputError, match="relevance: changed while this run read it"):
        audit(world / "captions", tmp_path / "a.html", relevance=copied, **given)
    assert [path.name for path in tmp_path.iterdir()] == [copied.name]
