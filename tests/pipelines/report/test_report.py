"""The report: what is there is shown, what is not is named with its command, and no caption can do anything."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page
from safetensors.numpy import save_file

from capgrade.pipelines.agree import agree, who_judged
from capgrade.pipelines.measures import choose
from capgrade.pipelines.pictures.draw_regions import SIDE
from capgrade.pipelines.relevance import relevance
from capgrade.pipelines.report import report
from capgrade.pipelines.report.agreement import agreement, bins
from capgrade.pipelines.report.charts import MEAN, by_run
from capgrade.pipelines.report.data import columns, open_data
from capgrade.pipelines.report.distributions import distributions
from capgrade.pipelines.report.embedding_map import embedding_map, layout
from capgrade.pipelines.report.examples import examples
from capgrade.pipelines.report.findings import findings
from capgrade.pipelines.report.metric_names import glossary
from capgrade.pipelines.report.mined import mined
from capgrade.pipelines.report.own_above import own_and_other
from capgrade.pipelines.report.parts import Chart, Facts, Missing, Note, PageTable, Part
from capgrade.pipelines.report.regions import regions
from capgrade.pipelines.report.runs import curves, runs
from capgrade.pipelines.report.thumbnails import PageThumbnails
from capgrade.pipelines.report.training import means, training
from capgrade.pipelines.shards import shards
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import write_arrow, write_manifest
from capgrade.schemas.inputs import file_digest
from capgrade.schemas.params import MeasuresParams, RelevanceParams, ShardsParams
from capgrade.schemas.region_store import RegionStore
from capgrade.schemas.regions import write_regions
from capgrade.schemas.relevance import read_relevance, relevance_batch, relevance_schema
from capgrade.schemas.times import read_time, timed
from capgrade.trainer.evaluation.evaluate import Settings, evaluate
from capgrade.trainer.evaluation.task import Task
from tests.conftest import caption_table, random_sets, write_captions_folder
from tests.pipelines.features.made import made
from tests.tools.browser import open_file

HOSTILE = [
    "<script>document.title='owned'</script> a dog",
    '"><img src=x onerror="document.title=\'owned\'"> a cat',
    "{{ 7 * 7 }} {% raw %} ${document.title='owned'} </script><script>document.title='owned'</script>",
    "'; alert(1); // <!-- --> &lt;b&gt; a man",
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline's folder: hostile captions, dense relevance, shards, judgements, two evaluated runs."""
    folder: Path = tmp_path_factory.mktemp("report") / "data"
    sets = [[text, *own] for text, own in zip(HOSTILE * 3, random_sets(12, seed=1, least=3), strict=True)]
    write_captions_folder(folder / "captions", [caption_table(sets)])
    manifest = json.loads((folder / "captions" / "manifest.json").read_text())
    captions = read_captions(folder / "captions")
    _rewrite(folder / "captions", manifest, images=captions.n_images, splits={"test": captions.n_captions})
    names = ("cider", "rouge_l")
    relevance(folder / "captions", folder / "relevance", RelevanceParams(measures=names), MeasuresParams())
    shards(folder / "captions", folder / "shards", ShardsParams(measures=names, top=3, uniform=3), MeasuresParams())
    judged = folder / "relevance" / "cider.arrow"
    found = agree(folder / "captions", judged, names, MeasuresParams(), pairs=folder / "judged.arrow")
    facts = {"judgements": who_judged(folder / "captions", judged), "measures": found}
    (folder / "agreement.json").write_text(json.dumps(facts))
    for k, run in enumerate(("first", "<b>second")):
        scores = np.random.default_rng(k).random((captions.n_images, captions.n_captions), np.float32)
        _embeddings(folder / "embeddings" / run, captions, scores, captions.digest)
        settings = Settings(metrics=("recall@1", "recall@5"), samples=20)
        of = {"captions": file_digest(folder / "captions" / "manifest.json"), "split": "test"}
        evaluate(Task(scores, captions.owner), settings, out=folder / "evaluation" / run, inputs=of)
    _regions(folder, captions.image_ids)
    return folder


def _embeddings(folder: Path, captions: Captions, scores: np.ndarray, of: str) -> None:
    """As `capgrade evaluate --run` writes them, of the captions that `of` is the digest of."""
    folder.mkdir(parents=True)
    np.save(folder / "similarity.npy", scores)
    vectors = np.random.default_rng(0).normal(size=(captions.n_images + captions.n_captions, 4)).astype(np.float32)
    images, texts = np.split(vectors, [captions.n_images])
    save_file({"images.vector": images, "captions.vector": texts}, folder / "encodings.safetensors")
    items = {"image_ids": captions.image_ids, "captions": captions.texts, "owner": captions.owner.tolist()}
    (folder / "items.json").write_text(json.dumps(items))
    rows = dict.fromkeys(("similarity.npy", "encodings.safetensors", "items.json"), 0)
    write_manifest(folder, "embeddings", params={}, inputs={"captions": of, "split": "test"}, rows=rows)


def _regions(folder: Path, ids: Sequence[str]) -> None:
    """Regions of all images but two that the manifest says were refused, and pictures of the first three."""
    found = [made(image_id, n=2 + k % 3, seed=k) for k, image_id in enumerate(ids[2:])]
    manifest = write_regions(folder / "regions", found)
    refused = [{"image_id": id, "file": f"{id}.jpg", "problem": "<b>no picture"} for id in ids[:2]]
    rows = {name: entry["rows"] for name, entry in manifest["files"].items()}
    facts = {key: manifest[key] for key in ("regions", "dim", "rounding")}
    write_manifest(folder / "regions", "regions", params={}, inputs={}, rows=rows, **facts, left_out=refused)


def _rewrite(folder: Path, manifest: dict, **facts: object) -> None:
    rows = {name: entry["rows"] for name, entry in manifest["files"].items()}
    write_manifest(folder, "captions", params={"source": "tsv"}, inputs={}, rows=rows, **facts)


def test_findings_are_of_the_numbers(data: Path) -> None:
    """The captions with a rival image by brute force, the best measure and the first runs by what the files hold."""
    notes = [part.text for part in findings(open_data(data)).parts if isinstance(part, Note)]
    assert len(notes) == 3
    one, matrix = open_data(data), read_relevance(data / "relevance" / "rouge_l.arrow").matrix()
    own = np.array(one.own_pairs["rouge_l_left_out"])
    as_good = [(np.delete(matrix[:, c], image) >= own[c]).sum() for c, image in enumerate(one.captions.owner)]
    share, median = np.mean(np.array(as_good) > 0), np.median([n for n in as_good if n])
    assert f"By rouge_l, {share:.1%} of captions have another image" in notes[0]
    assert f"has {median:,.0f} such images" in notes[0]
    figures = json.loads((data / "agreement.json").read_text())["measures"]
    known = {m: row["pearson"]["non_original"] for m, row in figures.items() if "non_original" in row["pearson"]}
    best = max(known, key=known.__getitem__)
    assert f"{best} agrees best with" in notes[1] and f"{known[best]:.3f}" in notes[1]
    scores = {k: json.loads((data / "evaluation" / k / "metrics.json").read_text()) for k in ("first", "<b>second")}
    recall = {k: (run["i2t"]["recall@1"] + run["t2i"]["recall@1"]) / 2 for k, run in scores.items()}
    assert f"By recall@1 {max(recall, key=recall.__getitem__)} is first of 2 runs" in notes[2]
    assert "no graded metric" in notes[2]


def test_the_glossary_has_the_terms_that_are_shown() -> None:
    assert list(glossary(["ncs@10[sbert]", "rsum", "sr@3"]).values) == ["i2t, t2i", "rsum", "ncs@k"]


@pytest.fixture(scope="module")
def written(data: Path) -> Path:
    out = data.parent / "report.html"
    pictures = data.parent / "given"
    pictures.mkdir()
    for image_id in read_captions(data / "captions").image_ids[:9]:
        Image.new("RGB", (640, 480), "teal").save(pictures / f"{image_id}.png")
    done = report(data, out, data.parent / "pictures", images=pictures)
    assert done.bytes == len(out.read_bytes()) < 10e6
    assert {path.suffix for path in done.pictures} == {".png", ".svg", ".webp"}
    return out


def opened(browser: Browser, path: Path, **view: object) -> tuple[Page, list[str]]:
    page = browser.new_page(offline=True, **view)  # type: ignore[arg-type]
    heard = open_file(page, path)
    page.wait_for_selector("html[data-drawn]", state="attached", timeout=30_000)
    return page, heard


def test_the_page_in_a_browser(written: Path, browser: Browser) -> None:
    """No error, no request; every chart drawn; captions are text, whatever they say; tables sort; rows are filtered."""
    page, heard = opened(browser, written)
    assert heard == [] and page.title() == "capgrade: data"
    assert page.locator("section").count() == 13
    charts = page.locator(".vega")
    assert charts.count() >= 6
    assert page.locator(".vega svg").count() == charts.count()
    assert HOSTILE[0] in page.locator(".examples").inner_text()
    assert page.locator("img:not([alt])").count() == 0
    head = page.locator("#agreement th button").nth(1)
    head.click()
    values = [float(text) for text in page.locator("#agreement tbody tr td:nth-child(2)").all_inner_texts()]
    assert values == sorted(values, reverse=True) and len(values) == 3
    side = page.locator(".examples article").first.locator(".answers > div")
    assert side.count() == 2 and len({box.bounding_box()["y"] for box in side.all()}) == 1  # type: ignore[index]
    page.locator("#runs-shown input").first.uncheck()
    assert side.locator("visible=true").all() and page.locator(".answers > div[hidden]").count() == side.count() * 4
    page.locator(".examples input[type=search]").fill("no query has this")
    assert page.locator(".examples article:visible").count() == 0
    page.close()


def test_navigation_and_runs_fit_1280_pixels(written: Path, browser: Browser) -> None:
    page, _ = opened(browser, written, viewport={"width": 1280, "height": 900})
    lines = page.evaluate("new Set([...document.querySelectorAll('nav li')].map((one) => one.offsetTop)).size")
    assert lines == 1, "one line of links"
    wide = page.locator("#runs-title ~ .parts .scroll").first
    assert wide.evaluate("(one) => one.scrollWidth <= one.clientWidth")
    page.close()


@pytest.mark.parametrize("view", [{"viewport": {"width": 360, "height": 740}}, {"color_scheme": "dark"}], ids=str)
def test_on_a_phone_and_in_the_dark(view: dict, written: Path, browser: Browser) -> None:
    page, heard = opened(browser, written, **view)
    assert heard == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")  # nothing sticks out
    assert page.evaluate("document.documentElement.dataset.drawn") == view.get("color_scheme", "light")
    page.close()


def test_what_is_missing_is_named_with_its_command(data: Path, tmp_path: Path) -> None:
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "captions").symlink_to(data / "captions")
    done = report(tmp_path / "only", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "evaluated runs" in done.missing and "trained runs" in done.missing
    assert "precision of mined positives" not in done.missing, "no command makes it of these captions"
    assert any(one.startswith("precision of mined positives: people's lists") for one in done.missing)
    assert f"capgrade relevance --captions {tmp_path}/only/captions --out {tmp_path}/only/relevance" in page
    with pytest.raises(InputError, match="no captions to report on -> run `make repro`, or give --data"):
        report(tmp_path / "nothing", tmp_path / "report.html")


def test_relevance_of_other_captions_is_refused(data: Path, tmp_path: Path) -> None:
    write_captions_folder(tmp_path / "captions", [caption_table(random_sets(12, seed=9))])
    manifest = json.loads((tmp_path / "captions" / "manifest.json").read_text())
    _rewrite(tmp_path / "captions", manifest, images=12, splits={"test": 12})
    (tmp_path / "relevance").symlink_to(data / "relevance")
    with pytest.raises(InputError, match="compute it for these captions"):
        _ = open_data(tmp_path).relevance


def _chart(parts: Sequence[Part], name: str) -> list[dict]:
    chart = next(part for part in parts if isinstance(part, Chart) and part.name == name)
    return chart.spec["data"]["values"]


def test_regions_are_counted_drawn_and_refused_ones_named(data: Path, written: Path) -> None:
    """Against a plain loop over the store."""
    store = list(RegionStore(data / "regions"))
    parts = regions(open_data(data), PageThumbnails(data / "captions")).parts
    for row in _chart(parts, "regions-count"):
        assert row["images"] == sum(len(one) == row["regions"] for one in store)
    least = min(_chart(parts, "regions-class"), key=lambda row: row["images"])
    assert least["images"] == sum(f"class {k}" == least["class"] for one in store for k in set(one.classes.tolist()))  # type: ignore[union-attr]
    areas = [w * h / (640 * 480) for one in store for w, h in (one.boxes[:, 2:] - one.boxes[:, :2]).tolist()]  # type: ignore[index]
    assert next(row["regions"] for row in _chart(parts, "regions-area") if row["area"] == "up to 10.0%") == sum(
        0.05 <= area < 0.1 for area in areas
    )
    facts = next(part for part in parts if isinstance(part, Facts)).values
    assert facts["images without"] == "2" and facts["images with regions"] == str(len(store))
    page = written.read_text(encoding="utf-8")
    assert "Pictures without regions (2 rows)" in page and "&lt;b&gt;no picture" in page
    with Image.open(data.parent / "pictures" / "regions.webp") as sheet:  # 7 of the 10 images have a picture
        assert sheet.width > 2 * SIDE


def test_own_dots_are_drawn_last_and_dots_on_one_place_are_one(data: Path) -> None:
    charts = {part.name: part for part in agreement(open_data(data)).parts if isinstance(part, Chart)}
    layers = charts["agreement-rouge_l"].spec["layer"]
    dots = layers[0]["data"]["values"]
    kinds = [row["pair"] for row in dots]
    assert kinds == sorted(kinds) and set(kinds) == {"own", "other"}
    assert len({(row["pair"], row["value"], row["score"]) for row in dots}) == len(dots)
    captions = read_captions(data / "captions")
    assert sum(row["pairs"] for row in dots if row["pair"] == "own") == captions.n_captions
    assert [layer["mark"].get("style") for layer in layers] == [None, MEAN, None, MEAN]
    assert layers[0]["encoding"]["shape"]["scale"]["range"] == ["circle", "triangle-up"]


def test_a_map_has_no_gap_between_kinds_that_differ_by_a_shift() -> None:
    """Vectors of images, and the same ones moved far away as captions: both fall on the same places."""
    images = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
    at = layout(images, images + 50)
    near = np.linalg.norm(at[:40, None] - at[None, 40:], axis=2).argmin(axis=1)
    assert (near == np.arange(40)).mean() > 0.9
    assert (layout(images, images + 50) == at).all()


def test_the_chart_of_runs_has_the_units_of_the_table_and_starts_with_recall(data: Path) -> None:
    parts = runs(open_data(data)).parts
    chart = next(part for part in parts if isinstance(part, Chart))
    rows = chart.spec["data"]["values"]
    assert next(p for p in chart.spec["params"] if p["name"] == "metric")["value"] == "recall@1"
    written = json.loads((data / "evaluation" / "first" / "metrics.json").read_text())["i2t"]
    shown = {
        row["metric"]: row["value"] for row in rows if row["run"] == "first" and row["direction"] == "image to text"
    }
    assert shown["recall@5"] == pytest.approx(100 * written["recall@5"], rel=1e-4)
    assert all(row["low"] <= row["value"] <= row["high"] for row in rows)


def test_own_pairs_are_exact_and_left_out(data: Path) -> None:
    """Medians of the values themselves; an own pair without its caption among the references is no constant."""
    opened = open_data(data)
    table = next(part for part in distributions(opened).parts if isinstance(part, PageTable))
    cells = {row[0].text: [cell.value for cell in row[1:]] for row in table.rows}
    captions = opened.captions
    own = opened.relevance["rouge_l"].matrix()[captions.owner, np.arange(captions.n_captions)]
    assert cells["rouge_l"][0] == np.median(own) == 1
    alone = MeasuresParams.model_validate({"rouge_l": {"self_reference": "left_out"}})
    fitted = choose(["rouge_l"], alone)["rouge_l"].fit(captions)
    left_out = fitted.score(np.arange(captions.n_images))[captions.owner, np.arange(captions.n_captions)]
    assert cells["rouge_l"][1] == pytest.approx(np.median(left_out), abs=1e-6)
    matrix = opened.relevance["rouge_l"].matrix()
    others = matrix[captions.owner[None] != np.arange(captions.n_images)[:, None]]
    assert cells["rouge_l"][2:4] == pytest.approx([np.median(others), np.quantile(others, 0.99)])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_own_and_other_pairs_are_numpys_figures_of_the_whole_matrix(dtype: str, tmp_path: Path) -> None:
    """Values with many ties, below 0 and in one bin of a hundred; captions without a value when left out."""
    random = np.random.default_rng(3)
    owner = np.sort(random.integers(0, 30, 97))
    matrix = np.where(random.random((30, 97)) < 0.6, 0.01, 1) * random.normal(size=(30, 97)).round(2)
    matrix = matrix.astype(dtype)
    schema = relevance_schema(97, dtype, {})
    batches = [relevance_batch([f"i{k}" for k in rows], matrix[rows], schema) for rows in (range(20), range(20, 30))]
    write_arrow(tmp_path / "m.arrow", schema, batches)
    own, left_out = matrix[owner, np.arange(97)].astype(np.float32), random.normal(size=97).round(2).astype(np.float32)
    left_out[::7] = np.nan
    found = own_and_other(read_relevance(tmp_path / "m.arrow"), owner, own, left_out)
    others = matrix[owner != np.arange(30)[:, None]].astype(np.float64)
    assert found.own == np.median(own) and found.left_out == pytest.approx(np.nanmedian(left_out))
    assert (found.median, found.percentile_99) == pytest.approx(np.quantile(others, [0.5, 0.99]).tolist(), rel=1e-6)
    kept = np.flatnonzero(np.isfinite(left_out))
    mine = left_out.astype(dtype)
    rivals = [np.delete(matrix[:, c], owner[c]) for c in kept]
    chances = [(r < mine[c]).mean() + (r == mine[c]).mean() / 2 for r, c in zip(rivals, kept, strict=True)]
    as_good = np.array([(r >= mine[c]).sum() for r, c in zip(rivals, kept, strict=True)])
    assert found.above == pytest.approx(np.mean(chances))
    assert found.equalled == pytest.approx((as_good > 0).mean()) and found.images == np.median(as_good[as_good > 0])
    nothing = own_and_other(read_relevance(tmp_path / "m.arrow"), owner, own, np.full(97, np.nan, np.float32))
    assert np.isnan([nothing.left_out, nothing.above, nothing.equalled, nothing.images]).all()


def test_ids_are_unique_and_every_link_of_the_menu_lands_on_its_section(written: Path, browser: Browser) -> None:
    page, _ = opened(browser, written)
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((one) => one.id)")
    assert len(ids) == len(set(ids)) and all(not set(one) & set(" \t\n") for one in ids)
    for link in page.locator("nav a").all():
        target = link.get_attribute("href")
        assert page.evaluate("(id) => document.getElementById(id)?.tagName", target[1:]) == "SECTION"  # type: ignore[index]
        title = page.locator(f"{target} h2").inner_text()
        assert title == link.get_attribute("title")
    page.close()


def _words(parts: Sequence[Part]) -> str:
    return " ".join(part.what for part in parts if isinstance(part, Missing))


def test_what_is_of_other_captions_is_left_out_in_words(data: Path, tmp_path: Path) -> None:
    """A run of another table of the same size, in every section that shows runs; judged pairs and shards."""
    shutil.copytree(data, tmp_path / "data", symlinks=True)
    folder = tmp_path / "data"
    captions = read_captions(folder / "captions")
    scores = np.random.default_rng(5).random((captions.n_images, captions.n_captions), np.float32)
    _embeddings(folder / "embeddings" / "stranger", captions, scores, "0" * 64)
    settings = Settings(metrics=("recall@1", "recall@5"), samples=20)
    for name, of in {"stranger": {"captions": "0" * 64}, "val": {"captions": captions.digest, "split": "val"}}.items():
        evaluate(Task(scores, captions.owner), settings, out=folder / "evaluation" / name, inputs=of)
    for run, sha in {"first": file_digest(folder / "captions" / "manifest.json"), "stranger": "0" * 64}.items():
        (folder / "runs" / run).mkdir(parents=True)
        (folder / "runs" / run / "config.json").write_text(json.dumps({"inputs": {"captions": sha}}))
        (folder / "runs" / run / "epochs.csv").write_text("epoch,loss,rsum\n1,1.0,100\n")
        (folder / "runs" / run / "steps.csv").write_text("step,loss\n1,1.0\n")
    opened, thumbnails = open_data(folder), PageThumbnails(folder / "captions")
    assert opened.runs == ["<b>second", "first"]
    for section in (runs(opened), curves(opened)):
        assert "stranger, val: evaluated on other captions or another split" in _words(section.parts)
        assert "stranger" not in json.dumps([part.spec for part in section.parts if isinstance(part, Chart)])
    for section in (embedding_map(opened, thumbnails), examples(opened, thumbnails)):
        assert "stranger: embedded on other captions" in _words(section.parts)
    assert "stranger: trained on other captions" in _words(training(opened).parts)
    assert "of 2 runs" in " ".join(part.text for part in findings(opened).parts if isinstance(part, Note))
    facts = json.loads((folder / "agreement.json").read_text())
    facts["judgements"]["captions"] = "0" * 64
    (folder / "agreement.json").write_text(json.dumps(facts))
    with pytest.raises(InputError, match="judged pairs of other captions"):
        agreement(open_data(folder))


def test_mined_positives_are_missed_for_the_reason_that_evaluate_gave(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path / "data", symlinks=True)
    others = mined(open_data(tmp_path / "data")).parts
    assert "these captions are others" in _words(others)
    path = tmp_path / "data" / "evaluation" / "first" / "metrics.json"
    note = "eccv left out: the ECCV Caption lists are not installed (pip install eccv-caption)"
    path.write_text(json.dumps({**json.loads(path.read_text()), "notes": ["no relevance given", note]}))
    words = _words(mined(open_data(tmp_path / "data")).parts)
    assert note in words and "others" not in words and "capgrade evaluate again" in words


def test_a_run_that_compares_sets_of_vectors_has_no_map(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path / "data", symlinks=True)
    folder = tmp_path / "data" / "embeddings" / "first"
    save_file({"images.local": np.zeros((3, 2), np.float32)}, folder / "encodings.safetensors")
    manifest = json.loads((folder / "manifest.json").read_text())
    write_manifest(folder, "embeddings", params={}, inputs=manifest["inputs"], rows=dict.fromkeys(manifest["files"], 0))
    parts = embedding_map(open_data(tmp_path / "data"), PageThumbnails(data / "captions")).parts
    assert [part.text for part in parts if isinstance(part, Note)] == [
        "No map of first: it compares sets of vectors, not one for an item."
    ]


def test_a_legend_is_as_wide_as_two_short_names(data: Path) -> None:
    """Solid and dashed are said; runs of long names stand below each other, where a wide legend would be cut off."""
    section = curves(open_data(data))
    assert "Solid lines" in section.intro and "dashed lines" in section.intro
    encoding: dict[str, Any] = next(part for part in section.parts if isinstance(part, Chart)).spec["encoding"]
    assert encoding["strokeDash"]["scale"] == {"domain": ["i2t", "t2i"], "range": [[1, 0], [4, 3]]}
    assert encoding["color"]["legend"]["columns"] == 2
    _, colour = by_run(alt.Chart(), ["a run with quite a long name", "b"])
    assert colour.to_dict()["legend"] == {"columns": 1}  # type: ignore[call-overload]


def test_the_section_says_who_judged(written: Path) -> None:
    page = written.read_text(encoding="utf-8")
    assert "Agreement with another matrix" in page and "cider.arrow, " in page
    assert "Agreement with people" not in page


def test_pairs_of_one_kind_are_said_and_no_table_of_them_is_missed(data: Path, tmp_path: Path) -> None:
    found = json.loads((data / "agreement.json").read_text())
    found["judgements"] |= {"by": "people", "of": "captions", "file": "sts.csv"}
    shutil.copytree(data / "captions", tmp_path / "captions")
    (tmp_path / "agreement.json").write_text(json.dumps(found))
    section = agreement(open_data(tmp_path))
    assert section.intro.startswith("Judged pairs of captions.") and "sts.csv" in section.intro
    assert not [part for part in section.parts if isinstance(part, Missing)]


def test_means_of_bins() -> None:
    value, score = np.repeat([0.0, 1.0], 30), np.concatenate([np.tile([0.0, 1.0], 15), np.ones(30)])
    first, last = bins(value, score)
    assert (first["at"], first["mean"], first["pairs"]) == (0, 0.5, 30)
    assert first["mean"] - first["low"] == pytest.approx(1.96 * score[:30].std(ddof=1) / np.sqrt(30))
    assert (last["low"], last["high"]) == (1, 1)
    assert bins(value[:40], score[:40])[-1]["at"] == 0  # ten pairs are too few


def test_means_of_losses_and_tables_that_are_none(tmp_path: Path) -> None:
    assert means(np.arange(10.0), 5) == [(0.2, 0.5), (0.4, 2.5), (0.6, 4.5), (0.8, 6.5), (1.0, 8.5)]
    (tmp_path / "epochs.csv").write_text("epoch,loss\n1,high\n")
    with pytest.raises(InputError, match="not a table of numbers"):
        columns(tmp_path / "epochs.csv")


def test_times_are_kept_where_they_are_wanted(tmp_path: Path) -> None:
    for folder in ("plain", "kept/.times"):
        (tmp_path / folder).mkdir(parents=True)
    for folder in ("plain", "kept"):
        with timed("captions", tmp_path / folder / "out"):
            (tmp_path / folder / "out").mkdir()
    assert read_time(tmp_path / "plain" / "out") is None and not (tmp_path / "plain" / ".times").exists()
    with timed("train", tmp_path / "kept" / "runs" / "bcls"):
        (tmp_path / "kept" / "runs" / "bcls").mkdir(parents=True)
    assert read_time(tmp_path / "kept" / "runs" / "bcls") is not None
    found = read_time(tmp_path / "kept" / "out")
    assert found is not None and found.command == "captions" and found.peak_mb > 1
