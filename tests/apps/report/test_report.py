"""The report: what is there is shown, what is not is named with its command, and no caption can do
anything."""

import json
import shutil
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page

from capgrade.apps.page import render_page
from capgrade.apps.page.charts import MEAN, colour_of
from capgrade.apps.page.parts import (
    Chart,
    Examples,
    Facts,
    Headline,
    Note,
    PageSection,
    PageTable,
    format_metric,
    mark_best,
)
from capgrade.apps.page.thumbnails import PageThumbnails
from capgrade.apps.report import opening_section, report, sections_of
from capgrade.apps.report.agreement import (
    agreement_section,
    best_measure_sentence,
    mean_by_bin,
)
from capgrade.apps.report.data import (
    OwnAndOther,
    ReportData,
    compare_own_and_other,
    read_columns,
)
from capgrade.apps.report.embedding_map import embedding_map_section, project_vectors
from capgrade.apps.report.items import examples_section, regions_section
from capgrade.apps.report.labels import (
    distributions_section,
    headline_parts,
    mined_section,
)
from capgrade.apps.report.runs import (
    DIRECTION_WORDS,
    SHORT_METRICS,
    first_run_sentence,
    runs_section,
    training_section,
)
from capgrade.comparison import Basis
from capgrade.evaluation import Evaluated, Evaluation
from capgrade.metrics.formats import SUM_NAMES
from capgrade.pictures.draw_regions import REGIONS_SIDE
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import RUN_FILE, file_digest, write_json, write_manifest
from capgrade.schemas.judges import PEOPLE
from capgrade.schemas.output import work_folder
from capgrade.schemas.regions import RegionStore, write_regions
from capgrade.schemas.relevance import read_relevance
from capgrade.trainer.evaluation.evaluate import evaluate
from capgrade.trainer.evaluation.stored import write_queries
from capgrade.trainer.evaluation.task import Task
from capgrade.trainer.stages.evaluate import EvaluateParams
from tests.conftest import (
    call,
    caption_table,
    edit_manifest,
    random_sets,
    write_captions_folder,
    write_matrix,
)
from tests.pipelines.features.made import made
from tests.tools.browser import opened_file, problems_of

HOSTILE = [
    "<script>document.title='owned'</script> a dog",
    '"><img src=x onerror="document.title=\'owned\'"> a cat',
    (
        "{{ 7 * 7 }} {% raw %} ${document.title='owned'}"
        " </script><script>document.title='owned'</script>"
    ),
    "'; alert(1); // <!-- --> &lt;b&gt; a man",
]
SETTINGS = EvaluateParams(metric=("recall@1", "recall@5"), samples=20)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline's folder: hostile captions, dense relevance, shards, judgements, two trained and
    evaluated runs."""
    folder: Path = tmp_path_factory.mktemp("report") / "data"
    sets = [
        [text, *own]
        for text, own in zip(HOSTILE * 3, random_sets(12, seed=1, least=3), strict=True)
    ]
    write_captions_folder(folder / "captions", [caption_table(sets)])
    edit_manifest(folder / "captions", params={"captions": {"source": "tsv"}})
    captions = read_captions(folder / "captions")
    given, measures = ("--captions", folder / "captions"), ("--measures", "cider,rouge_l")
    judged = ("--judgements", folder / "relevance" / "cider.arrow")
    sizes = ("--set", "shards.top=3", "--set", "shards.uniform=3")
    assert call("relevance", *given, *measures, "--out", folder / "relevance") == 0
    assert call("shards", *given, *measures, *sizes, "--out", folder / "shards") == 0
    assert call("agree", *given, *measures, *judged, "--out", folder / "agree") == 0
    these = file_digest(folder / "captions" / "manifest.json")
    for k, run in enumerate(("first", "<b>second, a name of some length")):
        _run(folder, run, captions, captions.digest, these, seed=k, epochs=2 + k)
    _regions(folder, captions.image_ids)
    return folder


def _run(
    folder: Path, run: str, captions: Captions, of: str, manifest: str, seed: int, epochs: int = 1
) -> None:
    """What `train` and `evaluate` write of a run, made with the captions that `of` and `manifest`
    are digests of."""
    random = np.random.default_rng(seed)
    scores = random.random((captions.n_images, captions.n_captions), np.float32)
    (at := folder / "embeddings" / run).mkdir(parents=True)
    np.save(at / "similarity.npy", scores)
    vectors = random.normal(size=(captions.n_images + captions.n_captions, 4)).astype(np.float32)
    images, texts = np.split(vectors, [captions.n_images])
    np.save(at / "images.vector.npy", images)
    np.save(at / "captions.vector.npy", texts)
    items = {
        "image_ids": captions.image_ids,
        "captions": captions.texts,
        "owner": captions.owner.tolist(),
    }
    (at / "items.json").write_text(json.dumps(items))
    rows = dict.fromkeys(
        ("similarity.npy", "images.vector.npy", "captions.vector.npy", "items.json"), 0
    )
    write_manifest(at, "embed", params={}, inputs={"captions": of, "split": "test"}, rows=rows)
    inputs = {"captions": manifest, "split": "test"}
    evaluate(Task(scores, captions.owner), SETTINGS, out=folder / "evaluation" / run, inputs=inputs)
    # the second still trains
    at = folder / "runs" / run
    if seed == 1:
        write_json((at := work_folder(at, "train", None)) / RUN_FILE, {})
    at.mkdir(parents=True, exist_ok=True)
    (at / "config.json").write_text(json.dumps({"inputs": {"captions": manifest}}))
    (at / "epochs.csv").write_text(
        "epoch,loss,rsum\n" + "".join(f"{k},1.0,{100 + k}\n" for k in range(1, epochs + 1))
    )


def _regions(folder: Path, ids: Sequence[str]) -> None:
    """Regions of all images but two that the manifest says were refused."""
    found = [made(image_id, n=2 + k % 3, seed=k) for k, image_id in enumerate(ids[2:])]
    write_regions(folder / "regions", found)
    refused = [{"image_id": id, "file": f"{id}.jpg", "problem": "<b>no picture"} for id in ids[:2]]
    edit_manifest(folder / "regions", left_out=refused)


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


def _charts(section: PageSection) -> dict[str, Chart]:
    return {part.name: part for part in section.parts if isinstance(part, Chart)}


def _words(section: PageSection) -> str:
    return " ".join(part.text for part in section.parts if isinstance(part, Headline | Note))


def test_it_opens_with_what_the_numbers_say(data: Path) -> None:
    """The captions with a rival image by brute force, the best measure and the first run by what
    the files hold."""
    report_data = ReportData(data)
    matrix = read_relevance(data / "relevance" / "rouge_l.arrow").matrix()
    first = opening_section(report_data)
    text, (headline, chart, trust, *_) = _words(first), first.parts
    own = np.array(report_data.own_pairs["rouge_l_left_out"])
    as_good = np.array(
        [
            (np.delete(matrix[:, c], i) >= own[c]).sum()
            for c, i in enumerate(report_data.captions.owner)
        ]
    )
    assert isinstance(headline, Headline) and isinstance(chart, Chart) and isinstance(trust, Note)
    assert (
        headline.figure == f"{np.mean(as_good > 0):.0%}"
        and "another image that fits at least as well" in text
    )
    shares = {row["images"]: row["captions"] for row in chart.spec["data"]["values"]}
    assert (
        shares["0"] == (as_good == 0).sum()
        and shares["2 to 5"] == ((as_good > 1) & (as_good < 6)).sum()
    )
    assert "what the audit estimates" in text and f"audit --captions {data}/captions" in str(
        trust.command
    )
    figures = json.loads((data / "agree" / "agreement.json").read_text())["measures"]
    known = {
        m: row["pearson"]["non_original"]
        for m, row in figures.items()
        if "non_original" in row["pearson"]
    }
    best = max(known, key=known.__getitem__)
    assert f"{best} agrees best with" in text and f"{known[best]:.3f}" in text
    scores = {
        path.parent.name: json.loads(path.read_text())
        for path in (data / "evaluation").glob("*/metrics.json")
    }
    recall = {k: (run["i2t"]["recall@1"] + run["t2i"]["recall@1"]) / 2 for k, run in scores.items()}
    assert f"By recall@1 {max(recall, key=recall.__getitem__)} is first of 2 runs" in text
    assert "no graded metric" in text


def test_the_page_in_a_browser(written: Path, browser: Browser) -> None:
    """No error, no request; charts of open sections drawn; captions are text; tables sort; rows are
    filtered; ids are unique, and every link of the menu opens its section."""
    page, heard = opened_file(browser, written, viewport={"width": 1280, "height": 900})
    sections, charts = page.locator("main > details"), page.locator(".vega")
    assert sections.count() == 10 and page.locator("main > details[open]").count() == 0
    assert page.locator(".vega svg").count() == 1 < 12 < charts.count()
    _open_all(page)
    assert page.locator(".vega svg").count() == charts.count()
    assert heard == [] and page.title() == "capgrade: data"
    assert HOSTILE[0] in page.locator(".examples").inner_text()
    assert page.locator("img:not([alt])").count() == 0
    page.locator("#agreement th button").nth(1).click()
    values = [
        float(text.split()[0])
        for text in page.locator("#agreement tbody tr td:nth-child(2)").all_inner_texts()
    ]
    assert values == sorted(values, reverse=True) and len(values) == 3
    side = page.locator(".examples article").first.locator("[data-run]")
    assert side.count() == 2 and len({box.bounding_box()["y"] for box in side.all()}) == 1  # type: ignore[index]
    page.locator("#runs-shown input").first.uncheck()
    assert (
        side.locator("visible=true").all()
        and page.locator("[data-run][hidden]").count() == side.count() * 4
    )
    page.locator(".examples input[type=search]").fill("no query has this")
    assert page.locator(".examples article:visible").count() == 0
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((one) => one.id)")
    assert len(ids) == len(set(ids)) and all(not set(one) & set(" \t\n") for one in ids)
    page.evaluate(
        "document.querySelectorAll('main > details').forEach((one) => { one.open = false; })"
    )
    for link in page.locator("nav li a").all():
        link.click()
        section = page.locator(f"{link.get_attribute('href')}[open]")
        section.wait_for()
        assert section.locator("h2").inner_text() == link.inner_text()
        assert 0 <= section.locator("h2").bounding_box()["y"] < 900  # type: ignore[index]
    page.close()


def _open_all(page: Page) -> None:
    page.evaluate(
        "document.querySelectorAll('main > details').forEach((one) => { one.open = true; })"
    )
    page.wait_for_function(
        "document.querySelectorAll('.vega svg').length ==="
        " document.querySelectorAll('.vega').length"
    )
    page.wait_for_selector("html[data-drawn]", state="attached")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_reads_well(width: int, scheme: str, written: Path, browser: Browser) -> None:
    """Closed, a few screens; open: nothing sticks out or overlaps, legends are whole, text has its
    contrast."""
    page, heard = opened_file(
        browser, written, viewport={"width": width, "height": 900}, color_scheme=scheme
    )
    assert page.evaluate("document.documentElement.scrollHeight") <= 6000
    assert page.evaluate("document.documentElement.dataset.drawn") == scheme
    _open_all(page)
    assert "\n".join(problems_of(page)) == "" and heard == []
    for chart in page.locator(".vega:has(select)").all():
        select, drawn = (chart.locator(one).bounding_box() for one in ("select", "svg"))
        assert select["y"] + select["height"] <= drawn["y"], "the choice stands above its chart"  # type: ignore[index]
    page.close()


def _evaluated(folder: Path, data: Path, **runs: dict[str, Any]) -> ReportData:
    """The captions, and runs with these metrics."""
    (folder / "captions").symlink_to(data / "captions")
    these = {"captions": file_digest(folder / "captions" / "manifest.json")}
    for run, metrics in runs.items():
        (at := folder / "evaluation" / run).mkdir(parents=True)
        (at / "metrics.json").write_text(json.dumps(metrics))
        write_manifest(at, "evaluate", params={}, inputs=these, rows={})
    return ReportData(folder)


def _metrics(rsum: float, *ncs: float, by: str = "cider") -> dict[str, Any]:
    ways = {
        way: {"recall@1": 0.1, "ncs@10": value}
        for way, value in zip(DIRECTION_WORDS, ncs, strict=False)
    }
    return {"rsum": rsum, "counts": {"zero_ideal": {by: {}}}, **ways}


@pytest.mark.parametrize(("a", "b", "said"), [
    (_metrics(250), _metrics(240), "By rsum a is first of 2 runs (250.0; not tested); no graded metric is there."),
    (_metrics(250, 0.4, 0.6), _metrics(240, 0.3, 0.5),
     "By rsum a is first of 2 runs (250.0; not tested), and also first by ncs@10, which counts graded relevance "
     "by cider (50.0%; not tested)."),
    (_metrics(250, 0.4, 0.6), _metrics(240, 0.3, 0.9),
     "By rsum a is first of 2 runs (250.0; not tested), but b is first by ncs@10, which counts graded relevance "
     "by cider (60.0%; not tested)."),
    (_metrics(250, 0.4, 0.6), _metrics(240, 0.3, 0.9, by="sbert"),
     "By rsum a is first of 2 runs (250.0; not tested); their ncs@10 is by different measures: cider, sbert."),
    (_metrics(250, 0.4, 0.6), {**_metrics(240, 0.3, 0.9), "nsum": 9.0},
     "By rsum a is first of 2 runs (250.0; not tested), but b is first by ncs@10, which counts graded relevance "
     "by cider (60.0%; not tested)."),
])  # fmt: skip
def test_a_sentence_says_whether_metrics_agree(
    a: dict, b: dict, said: str, data: Path, tmp_path: Path
) -> None:
    assert first_run_sentence(_evaluated(tmp_path, data, a=a, b=b)) == said


def _write_queries(path: Path, captions: Captions, values: dict[str, np.ndarray]) -> None:
    """Values of each query, DIRECTION/METRIC, as an evaluation of all these captions keeps them."""
    ids = {
        "images": np.array(captions.image_ids, np.str_),
        "captions": np.array(captions.caption_ids, np.str_),
    }
    scored = {
        way: Evaluated(
            [{name.partition("/")[2]: of for name, of in values.items() if name.startswith(way)}],
            groups=[captions.owner],
        )
        for way in DIRECTION_WORDS
    }
    write_queries(path, Evaluation("whole", scored, {}, basis=Basis(ids)))


@pytest.mark.parametrize(
    ("better", "held"), [(0.9, "ahead of b, paired test, p 0.00"), (0.52, "within chance")]
)
def test_a_first_run_is_said_with_a_test_of_its_lead(
    better: float, held: str, data: Path, tmp_path: Path
) -> None:
    """By what the queries of both say: a lead that chance gives is no lead."""
    report_data = _evaluated(tmp_path, data, a=_metrics(250), b=_metrics(240))
    random, images = np.random.default_rng(0), report_data.captions.n_images
    for run, share in (("a", better), ("b", 0.5)):
        at = tmp_path / "evaluation" / run
        values = {
            f"{way}/recall@{k}": (
                random.random(images if way == "i2t" else report_data.captions.n_captions) < share
            )
            for way in DIRECTION_WORDS
            for k in (1, 5, 10)
        }
        _write_queries(at / "per_query.npz", report_data.captions, values)
        inputs = {"captions": file_digest(tmp_path / "captions" / "manifest.json")}
        rows = {"metrics.json": 0, "per_query.npz": 0}
        write_manifest(at, "evaluate", params={}, inputs=inputs, rows=rows)
    sentence = first_run_sentence(ReportData(tmp_path))
    assert (
        sentence.startswith("By rsum a is first of 2 runs (250.0; ")
        and held in sentence
        and "paired test" in sentence
    )


@pytest.mark.parametrize(("texts", "held"), [
    (0.8, "ahead of a, paired tests of both directions, p at most 0.0"),
    (0.2, "its lead on a is within chance"),
])  # fmt: skip
def test_a_lead_by_a_graded_metric_is_tested_in_both_directions(
    texts: float, held: str, data: Path, tmp_path: Path
) -> None:
    """A lead in one direction alone is none."""
    _evaluated(tmp_path, data, a=_metrics(250, 0.2, 0.2), b=_metrics(240, 0.8, texts))
    captions, random = read_captions(data / "captions"), np.random.default_rng(0)
    owner = captions.owner
    for run, means in (("a", (0.2, 0.2)), ("b", (0.8, texts))):
        at = tmp_path / "evaluation" / run
        sizes = zip(DIRECTION_WORDS, means, (owner.max() + 1, len(owner)), strict=True)
        values = {f"{way}/ncs@10": mean + 0.05 * random.random(n) for way, mean, n in sizes}
        _write_queries(at / "per_query.npz", captions, values)
        inputs = {"captions": file_digest(tmp_path / "captions" / "manifest.json")}
        write_manifest(
            at, "evaluate", params={}, inputs=inputs, rows={"metrics.json": 0, "per_query.npz": 0}
        )
    sentence = first_run_sentence(ReportData(tmp_path))
    assert (
        sentence.startswith(
            "By rsum a is first of 2 runs (250.0; not tested), but b is first by ncs@10"
        )
        and held in sentence
    )


def test_metrics_stand_in_the_order_of_their_numbers_and_no_lambda_is_best(
    data: Path, tmp_path: Path
) -> None:
    names = [f"{base}@{k}" for base in ("lambda", "recall") for k in (1, 10, 5)]
    runs = {
        run: (
            {"counts": {}, "intervals": {}}
            | {way: dict.fromkeys(names, value) for way in DIRECTION_WORDS}
        )
        for run, value in (("a", 0.1), ("b", 0.2))
    }
    section = runs_section(_evaluated(tmp_path, data, **runs))
    whole = next(
        part
        for part in section.parts
        if isinstance(part, PageTable) and part.title.startswith("All metrics")
    )
    first, best = [row[0] for row in whole.rows], {row[0]: row[2].best for row in whole.rows}
    assert first[:6] == [f"i2t {base}@{k}" for base in ("recall", "lambda") for k in (1, 5, 10)]
    assert best["i2t recall@5"] and not best["i2t lambda@5"]


def test_agreement_with_people_is_a_column_beside_recall(data: Path, tmp_path: Path) -> None:
    """Of other captions; of all pairs where no caption is another image's."""

    def judged(tau: float, own: int = 2) -> dict[str, Any]:
        coefficients = {"all": 0.9, "non_original": tau}
        ends = {name: [value - 0.01, value + 0.01] for name, value in coefficients.items()}
        row = {"pairs": 8, "own": own, "kendall": coefficients, "intervals": {"kendall": ends}}
        return {**_metrics(250, 0.4, 0.6), "intervals": {}, "judgements": {"crowd": row}}

    section = runs_section(
        _evaluated(tmp_path, data, a=judged(0.25), b=judged(0.5), c=judged(0, 8))
    )
    table, terms = (
        next(part for part in section.parts if isinstance(part, PageTable) and part.title == title)
        for title in ("Runs", "What the names mean")
    )
    column = list(table.columns).index("judged_tau_b[crowd]")
    cells = [row[column] for row in table.rows]
    assert [cell.text for cell in cells] == ["0.250", "0.500", "0.900"]
    assert [cell.best for cell in cells] == [False, False, True]
    assert cells[0].note == "0.240–0.260"
    assert "judged_tau_b" in [row[0] for row in terms.rows]


def test_a_legend_names_the_runs_of_its_chart_in_the_colours_of_all() -> None:
    colour = colour_of(["a", "b", "c"], ["c", "a", "c"])
    assert colour["scale"]["domain"] == ["a", "b", "c"] and colour["legend"]["values"] == ["a", "c"]


def test_a_table_of_runs_is_whole_beside_the_rail_and_keeps_its_first_column(
    data: Path, tmp_path: Path, browser: Browser
) -> None:
    """All metrics of the summary, in both directions, with intervals; numbers stand below their
    heads."""
    way = dict.fromkeys(SHORT_METRICS, 0.25)
    found = {**dict.fromkeys(SUM_NAMES, 250.0), "i2t": way, "t2i": way}
    ends = {
        key: dict.fromkeys(way, [0.2, 0.3]) if key in DIRECTION_WORDS else [240.1, 260.2]
        for key in found
    }
    one = {**found, "intervals": ends}
    section = replace(
        runs_section(_evaluated(tmp_path, data, scenes_bcls=one, scenes_teran=one)), open=True
    )
    (out := tmp_path / "page.html").write_text(
        render_page("Runs", section, [section], "capgrade", foot="", runs=[])
    )
    for width in (1280, 390):
        page, _ = opened_file(browser, out, viewport={"width": width, "height": 900})
        scroll = page.locator("#runs .cg-scroll").first
        assert scroll.evaluate("(one) => one.scrollWidth > one.clientWidth") == (width == 390)
        head, number = (
            scroll.locator(f"{one} >> nth=-1").bounding_box() for one in ("th button", "tbody td")
        )
        assert (
            number["x"] - 1
            < head["x"]
            < head["x"] + head["width"]
            < number["x"] + number["width"] + 1
        )  # type: ignore[index]
        first, second = scroll.locator("tbody th").first, scroll.locator("tbody td").first
        before = first.bounding_box(), second.bounding_box()
        scroll.evaluate("(one) => { one.scrollLeft = 90; }")
        moved = [
            was["x"] - now.bounding_box()["x"]
            for was, now in zip(before, (first, second), strict=True)
        ]  # type: ignore[index]
        assert moved == ([0, 90] if width == 390 else [0, 0])
        page.close()


def test_what_is_missing_is_one_list_with_its_commands(data: Path, tmp_path: Path) -> None:
    (only := tmp_path / "only").mkdir()
    (only / "captions").symlink_to(data / "captions")
    (only / "site").mkdir()
    (only / "site" / "manifest.json").write_text('{"name": "of something else"}')
    done, page = report(only, tmp_path / "report.html"), (tmp_path / "report.html").read_text()
    assert (
        "evaluated runs" in done.missing
        and "trained runs" in done.missing
        and len(done.missing) > 8
    )
    assert "precision of mined positives" not in done.missing, (
        "no command makes it of these captions"
    )
    assert any(
        what.startswith("precision of mined positives: people's lists") for what in done.missing
    )
    assert f"capgrade relevance --captions {only}/captions --out {only}/relevance" in page
    assert f"Not here ({len(done.missing)})" in page and done.sections == 2  # corpus, not here
    with pytest.raises(InputError, match="no captions to report on -> give --data a folder"):
        report(tmp_path / "nothing", tmp_path / "other.html")


def test_what_is_of_other_captions_is_left_out_in_words(data: Path, tmp_path: Path) -> None:
    """A run of another table of the same size, in every section that shows runs; judged pairs;
    dense relevance."""
    shutil.copytree(data, folder := tmp_path / "data", symlinks=True)
    captions = read_captions(folder / "captions")
    _run(folder, "stranger", captions, "0" * 64, "0" * 64, seed=5)
    scores = np.load(folder / "embeddings" / "stranger" / "similarity.npy")
    of_val = {"captions": captions.digest, "split": "val"}
    evaluate(
        Task(scores, captions.owner), SETTINGS, out=folder / "evaluation" / "val", inputs=of_val
    )
    opened = ReportData(folder)
    assert opened.runs == ["<b>second, a name of some length", "first"]
    *shown, last = sections_of(opened, PageThumbnails(folder / "captions"))
    assert "stranger" not in json.dumps(
        [chart.spec for section in shown for chart in _charts(section).values()]
    )
    others = [
        what.split(":")[0]
        for what in opened.missing
        if "made with other captions or another split" in what
    ]
    assert last.parts == list(opened.missing.values())
    assert sorted(others) == [
        "stranger in embeddings",
        "stranger in runs",
        "stranger, val in evaluation",
    ], "each once"
    assert "of 2 runs" in _words(opening_section(opened))
    facts = json.loads((folder / "agree" / "agreement.json").read_text())
    facts["judgements"]["captions"] = "0" * 64
    (folder / "agree" / "agreement.json").write_text(json.dumps(facts))
    with pytest.raises(InputError, match="judged pairs of other captions"):
        agreement_section(ReportData(folder))
    # the figures without who judged
    (folder / "agree" / "agreement.json").write_text(json.dumps(facts["measures"]))
    with pytest.raises(
        InputError, match="not agreement figures of captions -> give what capgrade agree"
    ):
        agreement_section(ReportData(folder))
    write_captions_folder(tmp_path / "captions", [caption_table(random_sets(12, seed=9))])
    (tmp_path / "relevance").symlink_to(data / "relevance")
    with pytest.raises(InputError, match="compute it for these captions"):
        _ = ReportData(tmp_path).relevance


def test_regions_are_counted_drawn_and_refused_ones_named(data: Path, written: Path) -> None:
    """Against a plain loop over the store."""
    store = list(RegionStore(data / "regions"))
    section = regions_section(ReportData(data), PageThumbnails(data / "captions"))
    rows = {name: chart.spec["data"]["values"] for name, chart in _charts(section).items()}
    for row in rows["regions-count"]:
        assert row["images"] == sum(len(one) == row["regions"] for one in store)
    least = min(rows["regions-class"], key=lambda row: row["images"])
    assert least["images"] == sum(
        f"class {k}" == least["class"] for one in store for k in set(one.classes.tolist())
    )  # type: ignore[union-attr]
    areas = [
        w * h / (640 * 480)
        for one in store
        for w, h in (one.boxes[:, 2:] - one.boxes[:, :2]).tolist()
    ]  # type: ignore[index]
    tenth = next(row["regions"] for row in rows["regions-area"] if row["area"] == "up to 10.0%")
    assert tenth == sum(0.05 <= area < 0.1 for area in areas)
    facts = next(part for part in section.parts if isinstance(part, Facts)).values
    assert facts["images without"] == "2" and facts["images with regions"] == str(len(store))
    page = written.read_text(encoding="utf-8")
    assert "Pictures without regions (2 rows)" in page and "&lt;b&gt;no picture" in page
    with Image.open(
        data.parent / "pictures" / "regions.webp"
    ) as sheet:  # 7 of the 10 images have a picture
        assert sheet.width > 2 * REGIONS_SIDE


def test_own_dots_are_drawn_last_and_dots_on_one_place_are_one(data: Path) -> None:
    section = agreement_section(ReportData(data))
    figures = json.loads((data / "agree" / "agreement.json").read_text())["measures"]
    table = next(part for part in section.parts if isinstance(part, PageTable))
    ends = [figures[str(row[0])]["intervals"].get("pearson", {}).get("all") for row in table.rows]
    assert [row[1].note for row in table.rows] == [f"{low:.3f}–{high:.3f}" for low, high in ends]  # type: ignore[union-attr]
    dots, *means_of = (spec := _charts(section)["agreement-rouge_l"].spec)["layer"]
    rows = spec["data"]["values"]
    kinds = [row["pair"] for row in rows]
    assert (
        kinds == sorted(kinds, reverse=True)
        and set(kinds) == {"own", "other"}
        or kinds == sorted(kinds)
    )
    assert kinds[-1] == "own" and len(
        {(row["pair"], row["value"], row["score"]) for row in rows}
    ) == len(rows)
    captions = read_captions(data / "captions")
    assert sum(row["pairs"] for row in rows if row["pair"] == "own") == captions.n_captions
    assert [layer["mark"].get("style") for layer in means_of] == [MEAN, None, MEAN]
    assert dots["encoding"]["shape"]["scale"]["range"] == ["circle", "triangle-up"]


def test_a_map_has_no_gap_between_kinds_that_differ_by_a_shift() -> None:
    """Vectors of images, and the same ones moved far away as captions: both fall on the same
    places."""
    images = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
    at = project_vectors(images, images + 50)
    near = np.linalg.norm(at[:40, None] - at[None, 40:], axis=2).argmin(axis=1)
    assert (near == np.arange(40)).mean() > 0.9
    assert (project_vectors(images, images + 50) == at).all()


def test_the_chart_of_runs_has_the_units_of_the_table_and_starts_with_recall(data: Path) -> None:
    section = runs_section(ReportData(data))
    chart = _charts(section)["runs"]
    rows = chart.spec["data"]["values"]
    assert next(p for p in chart.spec["params"] if p["name"] == "metric")["value"] == "recall@1"
    metrics = json.loads((data / "evaluation" / "first" / "metrics.json").read_text())["i2t"]
    shown = {
        row["metric"]: row["value"]
        for row in rows
        if row["run"] == "first" and row["direction"] == "image to text"
    }
    assert shown["recall@5"] == pytest.approx(100 * metrics["recall@5"], rel=1e-4)
    assert all(row["low"] <= row["value"] <= row["high"] for row in rows)
    tables = [part for part in section.parts if isinstance(part, PageTable)]
    assert list(tables[0].groups) == [("image to text", 1), ("text to image", 1)]
    assert [row[0] for row in tables[1].rows] == ["recall@k"], (
        "the terms that are shown, and no others"
    )


@pytest.mark.parametrize(
    ("values", "ends", "best"),
    [
        (
            (0.5, 0.4),
            ((0.45, 0.55), (0.3, 0.5)),
            [True, False],
        ),  # the other's interval holds the best: no matter
        ((0.5, 0.4), ((0.39, 0.6), (0.3, 0.5)), [False, False]),
        ((0.5, 0.4), (None, None), [True, False]),
        ((0.5, 0.5), (None, None), [False, False]),
        ((0.5004, 0.5), (None, None), [False, False]),  # print the same
        ((0.5, float("nan")), (None, None), [False, False]),
    ],
)
def test_bold_is_what_no_other_run_comes_near(
    values: Sequence[float], ends: Sequence, best: list[bool]
) -> None:
    cells = mark_best(values, ends, partial(format_metric, "recall@1"))
    assert [cell.best for cell in cells] == best and cells[0].text == "50.0%"


def test_images_that_a_run_lacks_are_counted_and_are_no_answers(data: Path, tmp_path: Path) -> None:
    """As `regions.unreadable: skip` leaves them out of the evaluated split: of one run's gallery."""
    folder = Path(shutil.copytree(data, tmp_path / "data"))
    captions = read_captions(folder / "captions")
    lost = dict.fromkeys([captions.image_ids[k] for k in (0, 4, 7)], "unreadable")
    images = np.array([image_id not in lost for image_id in captions.image_ids])
    rows = images[captions.owner]
    at = folder / "embeddings" / "first"
    scores = np.load(at / "similarity.npy")
    # The model's best answers would be those that are left out.
    scores[~images], scores[:, ~rows] = 9, 9
    np.save(at / "similarity.npy", scores[np.ix_(images, rows)])
    left_out = [{"image_id": image_id, "reason": why} for image_id, why in lost.items()]
    edit_manifest(at, left_out=left_out)
    section = examples_section(ReportData(folder), PageThumbnails(folder / "captions"))
    said = f"smaller gallery of first: 3 of {captions.n_images} images are left out, with their"
    assert f"{said} {(~rows).sum()} captions: 3 picture not readable" in _words(section)
    (examples,) = (part for part in section.parts if isinstance(part, Examples))
    own = {captions.caption_ids[c]: captions.image_ids[i] for c, i in enumerate(captions.owner)}
    assert len(examples.examples) == 8
    for example in examples.examples:
        answers = example.answers["first"]
        assert own.get(example.query.id, example.query.id) not in lost and len(answers) == 5
        assert not {own.get(answer.id, answer.id) for answer in answers} & set(lost)
    np.save(at / "similarity.npy", scores)
    with pytest.raises(InputError, match="not of these captions -> run capgrade embed"):
        examples_section(ReportData(folder), PageThumbnails(folder / "captions"))


def test_distributions_are_of_captions_left_out(data: Path) -> None:
    """An own caption is compared without itself among the references."""
    section = distributions_section(report_data := ReportData(data))
    left_out = report_data.own_pairs["rouge_l_left_out"]
    table = next(part for part in section.parts if isinstance(part, PageTable))
    assert list(table.rows[1][:3]) == ["rouge_l", 1, pytest.approx(np.median(left_out))]
    rows = _charts(section)["distribution-rouge_l"].spec["data"]["values"]
    own = {row["at"]: row["share"] for row in rows if row["captions"] == "own captions"}
    assert sum(own.values()) == pytest.approx(1, abs=1e-3)
    assert own.get(max(row["at"] for row in rows), 0) == pytest.approx(
        (left_out > 0.99).mean(), abs=0.02
    )


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_own_and_other_captions_against_a_loop(dtype: str, tmp_path: Path) -> None:
    """Values with many ties; captions without a value when left out."""
    random = np.random.default_rng(3)
    owner = np.sort(random.integers(0, 30, 97))
    matrix = random.normal(size=(30, 97)).round(1).astype(dtype)
    write_matrix(tmp_path / "m.arrow", matrix)
    own = matrix[owner, np.arange(97)].astype(np.float32)
    left_out = random.normal(size=97).round(2).astype(np.float32)
    left_out[::7] = np.nan
    figures = compare_own_and_other(read_relevance(tmp_path / "m.arrow"), owner, own, left_out)
    others = [np.delete(matrix[:, c], owner[c]) for c in range(97)]
    assert figures.own == np.median(own) and figures.left_out == pytest.approx(
        np.nanmedian(left_out)
    )
    quantiles = np.quantile(np.concatenate(others).astype(np.float64), [0.5, 0.99])
    assert (figures.median, figures.percentile_99) == pytest.approx(quantiles.tolist(), rel=1e-6)
    kept = [(others[c], left_out[c].astype(dtype)) for c in range(97) if c % 7]
    assert figures.own_above_other == pytest.approx(
        np.mean([(r < mine).mean() + (r == mine).mean() / 2 for r, mine in kept])
    )
    assert figures.rivals.tolist() == [(r >= mine).sum() for r, mine in kept]
    assert figures.share_with_rival == pytest.approx((figures.rivals > 0).mean())
    nothing = compare_own_and_other(
        read_relevance(tmp_path / "m.arrow"), owner, own, np.full(97, np.nan, np.float32)
    )
    assert np.isnan(
        [nothing.left_out, nothing.own_above_other, nothing.share_with_rival, nothing.median_rivals]
    ).all()


def test_own_and_other_captions_hold_the_matrix_once(tmp_path: Path) -> None:
    images, captions = 1000, 2000
    write_matrix(
        tmp_path / "m.arrow", np.random.default_rng(0).random((images, captions), np.float32)
    )
    owner, own = np.repeat(np.arange(images), captions // images), np.ones(captions, np.float32)
    tracemalloc.start()
    compare_own_and_other(read_relevance(tmp_path / "m.arrow"), owner, own, None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.3 * 4 * images * captions


def test_mined_positives_are_missed_for_the_reason_that_evaluate_gave(
    data: Path, tmp_path: Path
) -> None:
    shutil.copytree(data, folder := tmp_path / "data", symlinks=True)
    mined_section(opened := ReportData(folder))
    assert "these captions are others" in " ".join(opened.missing)
    path = folder / "evaluation" / "first" / "metrics.json"
    note = "eccv left out: the ECCV Caption lists are not installed (pip install eccv-caption)"
    path.write_text(
        json.dumps({**json.loads(path.read_text()), "notes": ["no relevance given", note]})
    )
    mined_section(opened := ReportData(folder))
    words = " ".join(opened.missing)
    assert note in words and "others" not in words and "capgrade evaluate again" in words


def test_a_run_that_compares_sets_of_vectors_has_no_map(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path / "data", symlinks=True)
    folder = tmp_path / "data" / "embeddings" / "first"
    for side in ("images", "captions"):
        (folder / f"{side}.vector.npy").rename(folder / f"{side}.parts.npy")
    manifest = json.loads((folder / "manifest.json").read_text())
    rows = {name.replace("vector", "parts"): 0 for name in manifest["files"]}
    write_manifest(folder, "embed", params={}, inputs=manifest["inputs"], rows=rows)
    section = embedding_map_section(
        ReportData(tmp_path / "data"), PageThumbnails(data / "captions")
    )
    assert _words(section) == "No map of first: it compares sets of vectors, not one for an item."


@pytest.mark.parametrize("kind", [None, "captions"])
def test_the_section_says_who_judged_what(kind: str | None, data: Path, tmp_path: Path) -> None:
    found = json.loads((data / "agree" / "agreement.json").read_text())
    found["judgements"] |= {"by": "people", "of": kind, "file": "sts.csv"} if kind else {}
    shutil.copytree(data / "captions", tmp_path / "captions")
    (tmp_path / "agree").mkdir()
    (tmp_path / "agree" / "agreement.json").write_text(json.dumps(found))
    section = agreement_section(opened := ReportData(tmp_path))
    assert section.title == (
        "Agreement with human judgements" if kind else "Agreement with another matrix"
    )
    assert section.intro.startswith(f"Judged pairs of {kind or 'image and caption'}.")
    assert ("sts.csv" if kind else "cider.arrow") in section.intro
    assert len(opened.missing) == (
        0 if kind else 1
    )  # pairs of one kind have no table of judged pairs


def test_means_of_bins_and_tables_that_are_none(data: Path, tmp_path: Path) -> None:
    """Training is drawn by the share of its steps."""
    for chart in _charts(training_section(ReportData(data))).values():
        rows = chart.spec["data"]["values"]
        for run in {row["run"] for row in rows}:
            done = [row["done"] for row in rows if row["run"] == run]
            assert done == sorted(done) and done[0] > 0 and done[-1] == 1
    value, score = np.repeat([0.0, 1.0], 30), np.concatenate([np.tile([0.0, 1.0], 15), np.ones(30)])
    first, last = mean_by_bin(value, score)
    assert (first["at"], first["mean"], first["pairs"]) == (0, 0.5, 30)
    assert first["mean"] - first["low"] == pytest.approx(
        1.96 * score[:30].std(ddof=1) / np.sqrt(30)
    )
    assert (last["low"], last["high"]) == (1, 1)
    assert mean_by_bin(value[:40], score[:40])[-1]["at"] == 0  # ten pairs are too few
    for text in (b"epoch,loss\n1,high\n", b"epoch,loss\n1,\n", b"epoch,loss\n1\n", b"\xff\n"):
        (tmp_path / "epochs.csv").write_bytes(text)
        with pytest.raises(InputError, match="not a table of numbers"):
            read_columns(tmp_path / "epochs.csv")


@pytest.mark.parametrize(("truth", "judged", "figure", "said"), [
    ([1, 0, 0, 0, 0], None, "20%", "by the truth of the scenes"),
    ([1, 0, 0, 0, 0], [True] * 40, "20%", "by the truth of the scenes"),
    (None, [True, False] * 20, "50%", "of the 40 captions that people judged with their own image"),
    (None, [True] * 29, "60%", "by the measure sbert"),
    (None, None, "60%", "by the measure sbert"),
])  # fmt: skip
def test_the_truth_or_people_lead(
    truth: list[int] | None, judged: list[bool] | None, figure: str, said: str
) -> None:
    """Else the line names the measure that counts; it is a note where another leads."""

    def rivals(numbers: list[int]) -> OwnAndOther:
        return OwnAndOther(0, 0, 0, 0, 0, np.array(numbers))

    data: Any = SimpleNamespace(
        captions=SimpleNamespace(n_images=3, n_captions=5, split="test"),
        truth=None if truth is None else rivals(truth),
        judged_rivals=None if judged is None else np.array(judged),
        own_and_other={"sbert": rivals([2, 1, 1, 0, 0])},
        measure="sbert",
        has=lambda *_: True,
        note=Note,
    )
    headline, chart, note = headline_parts(data)
    assert isinstance(headline, Headline) and isinstance(chart, Chart) and isinstance(note, Note)
    assert headline.figure == figure and said in headline.text
    by = "the truth of the scenes" if truth else "sbert"
    assert chart.title.endswith(f"as its own, by {by}")
    assert ("By the measure sbert it would be 60%." in note.text) == (figure != "60%")


def test_one_person_is_no_measure_that_agrees_best() -> None:
    rows = {name: {"pearson": {"non_original": r}} for name, r in (("sbert", 0.4), ("human", 0.5))}
    judged = {"by": PEOPLE, "pairs": 100}
    data = SimpleNamespace(agreement={"judgements": judged, "measures": rows})
    said = best_measure_sentence(cast(ReportData, data))
    assert said.startswith("Of the 1 measures, sbert agrees best with people (100 pairs)")
    assert said.endswith("One person has 0.500 with the others.")
