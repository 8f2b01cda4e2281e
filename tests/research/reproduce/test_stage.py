"""Tables reproduced end to end on a small world: a recipe of each paper, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capgrade.metrics import map_at_r
from capgrade.metrics.positives import Positives
from capgrade.schemas.errors import InputError
from capgrade.trainer.evaluation.evaluate import score
from capgrade.trainer.evaluation.task import Task, load_task
from capgrade.trainer.stages.evaluate import EvaluateParams
from research.reproduce.recipe import Section, load_recipe, settings_of
from research.reproduce.stage import metrics_of
from research.reproduce.table import table_json, table_markdown
from tests.conftest import DATA, call, printed, refusal
from tests.trainer.conftest import Small, small  # noqa: F401

MODULE = "research.reproduce"


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recipes share it, and with it what is trained."""
    return tmp_path_factory.mktemp("reproduced")


# One recipe of each paper, and rows of it: an ensemble, reduced data, a graded loss, another
# pooling than the run's.
TRIED = {
    "bcls-3-f30k": ["SGRAF*"],
    "daa-2": ["20% SGR+DAA"],
    "sam-3-f30k": ["CVSE+SAM"],
    "semanticmap-3": ["Our Work"],
    "teran-1": ["TERN MrSw Test", "TERAN MrSw"],
}


def reproduce(name: str, small: Small, out: Path, *rows: str) -> dict[str, Any]:  # noqa: F811
    data = "--captions", small.data.captions, "--regions", small.data.regions, "--out", out
    chosen = (word for row in rows for word in ("--row", row))
    return printed(name, *data, "--small", *chosen, module=MODULE)


@pytest.mark.parametrize("name", TRIED)
def test_a_table_beside_the_papers(name: str, small: Small, out: Path) -> None:  # noqa: F811
    found, recipe = reproduce(name, small, out, *TRIED[name]), load_recipe(name)
    assert (found["paper"], found["table"]) == (recipe.paper, recipe.table)
    assert [section["title"] for section in found["sections"]] == [
        section.title for section in recipe.sections
    ]
    lines = [row for section in found["sections"] for row in section["rows"]]
    for row, line in zip(recipe.rows, lines, strict=True):
        assert (line["row"], tuple(line["published"])) == (row.row, row.published)
        assert all(value is None for value in line["ours"]) != (row.row in TRIED[name]), row.row
        for published, value, difference in zip(
            row.published, line["ours"], line["difference"], strict=True
        ):
            assert difference == (None if None in (published, value) else value - published)
    assert (
        (out / name / "table.md")
        .read_text(encoding="utf-8")
        .startswith(f"# {recipe.paper}, table {recipe.table}")
    )


def test_numbers_are_those_of_an_evaluation(small: Small, out: Path) -> None:  # noqa: F811
    """SGRAF* is the mean of two runs; finished runs are left as they are."""
    reproduce("bcls-3-f30k", small, out, "SGRAF*")
    before = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/*")}
    found = reproduce("bcls-3-f30k", small, out, "SGRAF*")["sections"][0]["rows"]
    assert {path: path.stat().st_mtime_ns for path in out.glob("runs/*/*")} == before
    files = [out / "runs" / run / "index" / "similarity.npy" for run in ("f30k-saf", "f30k-sgr")]
    mean = (np.load(files[0]) + np.load(files[1])) / 2
    task, _ = load_task(small.data.captions, similarity=files, split="test")
    np.testing.assert_allclose(task.similarity, mean, rtol=1e-6)
    want = score(
        task, EvaluateParams(samples=0, metric=("recall@1", "recall@5", "recall@10"))
    ).json()
    ours = next(row["ours"] for row in found if row["row"] == "SGRAF*")
    assert ours[0] == pytest.approx(100 * want["i2t"]["recall@1"]) and ours[-1] == pytest.approx(
        want["rsum"]
    )


def test_columns_of_people_and_of_labels() -> None:
    """Each number by the metric's own function; without lists or labels there is none."""
    random = np.random.default_rng(0)
    owner = np.repeat(np.arange(4), 2)
    of_images = Positives.from_lists([[0, 3], [2], [4, 5, 6], [7]])
    of_captions = Positives.from_lists([[0], [0], [1], [1, 2], [2], [2], [3], [3]])
    task = Task(
        random.random((4, 8)).astype(np.float32),
        owner,
        positives={"eccv": (of_images, of_captions)},
    )
    columns = "i2t map@r", "t2i eccv_recall@1", "i2t recall@1,5", "rsum", "t2i ndcg@25 x1 [spice]"
    section = Section(title="", columns=columns, rows=())
    found, _ = metrics_of(task, section, {}, None, None)  # type: ignore[arg-type]
    first = task.similarity.argmax(axis=0)
    fits = [image in right for image, right in zip(first, of_captions.lists(), strict=True)]
    ranked = np.take_along_axis(
        np.arange(4)[:, None] == owner, np.argsort(-task.similarity, axis=1), 1
    )
    recalls = [100 * ranked[:, :k].any(1).mean() for k in (1, 5)]
    mean = 100 * map_at_r(task.similarity, of_images).mean()
    assert found[:4] == pytest.approx([mean, 100 * np.mean(fits), *recalls]) and found[5] is None
    folds, _ = metrics_of(task, section, {}, None, 2)  # type: ignore[arg-type]
    assert folds[0] is None and folds[2] is not None and folds[4] is not None


def test_a_table_of_lambda_says_whether_its_runs_collapsed(small: Small, out: Path) -> None:  # noqa: F811
    """One epoch of a tiny network maps everything to one point, and lambda@K praises it."""
    found = reproduce("semanticmap-3", small, out)
    ours = next(row["ours"] for row in found["sections"][0]["rows"] if row["row"] == "Our Work")
    said = [note for note in found["notes"] if note.startswith("Our Work, ")]
    assert ours[0] > 90 and len(said) == 2 and all("COLLAPSED" in note for note in said)
    section = Section(title="", columns=("i2t lambda_other@1",), rows=())
    task = Task(np.eye(4).astype(np.float32), np.arange(4))
    assert not metrics_of(task, section, {}, None, 2)[1]["i2t"].collapsed  # type: ignore[arg-type]


def test_a_row_leaves_the_finished_table_as_it_is(small: Small, out: Path) -> None:  # noqa: F811
    whole = reproduce("bcls-5-vse-f30k", small, out)
    again = reproduce("bcls-5-vse-f30k", small, out, "VSE++ (ResNet)")
    assert again["sections"] == whole["sections"] and again["notes"] == whole["notes"]
    assert json.loads((out / "bcls-5-vse-f30k" / "table.json").read_text()) == whole
    alone = reproduce("bcls-3-f30k", small, out / "alone", "SAF")
    assert (
        "not reproduced, as --row asked for others: SAF + BCLS, SGR, SGR + BCLS, SGRAF*"
        in alone["notes"][-1]
    )
    data = (
        "--captions",
        small.data.captions,
        "--regions",
        small.data.regions,
        "--out",
        out,
        "--row",
        "VSE++ (ResNet)",
    )
    assert "of other data or parameters" in refusal("bcls-5-vse-f30k", *data, module=MODULE)


def test_what_cannot_be_computed_is_said_before_anything_is_trained(
    small: Small,  # noqa: F811
    out: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise InputError("no Java", remedy="install one")

    trained: list[Path] = []
    monkeypatch.setattr("research.reproduce.stage.train", lambda *given: trained.append(given[1]))
    data = "--captions", small.data.captions, "--regions", small.data.regions, "--out", tmp_path
    assert "no number of these rows can be computed: " in refusal("bcls-9", *data, module=MODULE)
    monkeypatch.setattr("research.reproduce.stage._Reproduction._try_spice", refused)
    monkeypatch.setattr("research.reproduce.stage.load_weights", refused)
    assert "no Java -> install one" in refusal("teran-3", *data, module=MODULE), (
        "its text encoder, here"
    )
    assert not trained and not (tmp_path / "teran-3" / "table.json").exists()
    monkeypatch.undo()
    found = reproduce("bcls-9", small, out)
    assert all(value is None for row in found["sections"][0]["rows"] for value in row["ours"])
    assert [note for note in found["notes"] if note.startswith("eccv not computed: ")]


def test_sam_table_1_on_coco(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without images, on the real judgements."""
    folder = DATA / "coco"
    if not folder.is_dir():
        pytest.skip("the COCO captions of ../shared/data are not here")
    # intervals are asked elsewhere
    monkeypatch.setattr("capgrade.agreement.coefficients.SAMPLES", 2)
    captions = str(tmp_path / "captions")
    source = "--source", "tsv", "--input", str(folder / "test5k_captions.tsv"), "--split", "test"
    assert call("captions", *source, "--out", captions) == 0
    judged = "--judgements", str(folder / "cxc_sits_test.csv")
    out = "--out", tmp_path / "out"
    found = printed("sam-1", "--captions", captions, *judged, *out, module=MODULE)
    rows = {row["row"]: row["ours"] for row in found["sections"][0]["rows"]}
    assert rows["NCS with CIDEr"] == pytest.approx([0.738, 0.487], abs=5e-4)
    assert rows["Binary relevance (GT)"][0] == pytest.approx(0.7115, abs=5e-5)
    for name in ("Binary relevance (GT)", "NCS with CIDEr"):
        one = "--row", name, "--out", str(tmp_path / "one")  # which keeps the row before
        assert call("sam-1", "--captions", captions, *judged, *one, module=MODULE) == 0
        table = json.loads((tmp_path / "one" / "sam-1" / "table.json").read_text())["sections"][0]
        assert {
            r["row"]: r["ours"] for r in table["rows"] if r["ours"][0] is not None
        }.items() <= rows.items()
        assert next(r["ours"] for r in table["rows"] if r["row"] == name) == rows[name]
    assert [r["row"] for r in table["rows"] if r["ours"][0] is not None] == [
        "Binary relevance (GT)",
        "NCS with CIDEr",
    ]
    page = (tmp_path / "one" / "sam-1" / "table.md").read_text()
    assert f"| {rows['NCS with CIDEr'][0]:.3f} | {rows['NCS with CIDEr'][1]:.3f} |" in page


@pytest.mark.parametrize(("line", "message"), [
    ("sam-9 --out {out}", "no recipe 'sam-9'"),
    ("sam-5 --captions {captions} --out {out}", "give --regions"),
    ("sam-1 --captions {captions} --out {out}", "give --judgements"),
    ("sam-1 --captions {captions} --regions {regions} --out {out}", "leave --regions out"),
    ("sam-5 --captions {captions} --regions {regions} --row x --out {out}", "'x'"),
    ("sam-5 --captions {captions}", "no --out"),
])  # fmt: skip
def test_bad_input_is_one_line(line: str, message: str, small: Small, tmp_path: Path) -> None:  # noqa: F811
    places = {
        "captions": small.data.captions,
        "regions": small.data.regions,
        "out": tmp_path / "out",
    }
    assert message in refusal(*line.format(**places).split(), module=MODULE)


def test_the_list_says_what_a_recipe_needs_and_where_its_network_is_not_the_papers(capsys) -> None:
    found = printed(module="research.recipes")
    needed = {"needs": ["captions", "judgements", "spice"], "verified": "here", "network": None}
    assert found["sam-1"] == {"paper": "SAM", "table": "1", **needed}
    assert {one["verified"] for one in found.values()} == {"here", "scenes"}
    assert call(module="research.recipes") == 0
    for line in capsys.readouterr().out.splitlines():
        assert ("InceptionResNet-V1 on 256 x 256" in line) == line.startswith("semanticmap-"), line
    table = table_json("semanticmap-3", load_recipe("semanticmap-3"), [], ["a note"], small=False)
    assert (
        "five residual blocks on 32 x 32 pixels" in table_markdown(table).splitlines()[2]
        and "five" in table["network"]
    )
    assert "network" not in table_json("sam-5", load_recipe("sam-5"), [], [], small=False)


def test_recipes_of_sam_have_the_values_of_the_authors_example() -> None:
    """README 56: --cider_weight 10 --metric_samples random --metric_div 6 for a tenth of COCO."""
    for name in ("sam-2-coco", "sam-2-f30k"):
        recipe = load_recipe(name)
        terms = [
            run.loss[-1]
            for key, run in settings_of(recipe, None, [], False).runs.items()
            if "-sam" in key
        ]
        assert len(terms) == 4 and all(term["name"] == "sam" for term in terms)
        assert {(term["weight"], term["tau"], term["negatives"]) for term in terms} == {
            (10, 6, "random")
        }
    for name in ("sam-2-coco", "sam-3-f30k", "sam-4-coco", "sam-4-f30k", "sam-5"):
        runs = settings_of(load_recipe(name), None, [], False).runs.values()
        hosts = [run for run in runs if run.model.name == "cvse" and run.loss[-1]["name"] == "sam"]
        assert hosts and all(
            run.best_by.startswith("ncs") and run.model.options["fusion"] == 0.75 for run in hosts
        )
