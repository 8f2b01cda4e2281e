"""The evaluation stage from files: numbers, folds, intervals, outputs, comparisons, tables, and its
errors."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

from capgrade.comparison import SHORT_TABLE
from capgrade.metrics import ndcg
from capgrade.metrics.eccv import are_coco_ids, original_images
from capgrade.schemas.arrow import write_arrow
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import digest, read_manifest, write_manifest
from capgrade.trainer.evaluation.compare import compare
from capgrade.trainer.evaluation.evaluate import as_json, evaluate
from capgrade.trainer.evaluation.similarity import (
    mean_similarity,
    read_csv,
    read_similarity,
    read_similarity_of,
)
from capgrade.trainer.evaluation.tables import choose_short, table_of_runs, table_text, write_tables
from capgrade.trainer.evaluation.task import Task, _read_human_lists, load_task
from capgrade.trainer.search.index import open_search
from capgrade.trainer.stages.evaluate import EvaluateParams
from tests.conftest import call, caption_table, write_captions_folder, write_matrix
from tests.trainer.fit.runs import run

IMAGES = 12
OWNER = np.repeat(np.arange(IMAGES), [1, 2, 3] * 4)  # any number of captions per image
RANDOM = np.random.default_rng(0)
SIMILARITY = RANDOM.uniform(-1, 1, (IMAGES, len(OWNER))).astype(np.float32)
LABELS = RANDOM.random(SIMILARITY.shape).astype(np.float32)
FAST = EvaluateParams(samples=50, m=(3,))


def captions_folder(folder, owner=OWNER):
    return write_captions_folder(
        folder, [caption_table([["a dog"] * size for size in np.bincount(owner)])]
    )


def relevance_folder(folder, names=("cider", "rouge_l"), labels=LABELS):
    rows = {f"{name}.arrow": write_matrix(folder / f"{name}.arrow", labels) for name in names}
    write_manifest(folder, "relevance", params={}, inputs={}, rows=rows)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    base = tmp_path_factory.mktemp("evaluate")
    np.save(base / "sims.npy", SIMILARITY)
    return (
        captions_folder(base / "captions"),
        base / "sims.npy",
        relevance_folder(base / "relevance"),
    )


@pytest.fixture(scope="module")
def task(folders):
    captions, similarity, relevance = folders
    return load_task(captions, similarity=similarity, relevance=relevance)[0]


def test_numbers_are_those_of_the_plain_functions(task):
    found = as_json(evaluate(task, FAST))
    assert found["t2i"]["ndcg@25"] == pytest.approx(ndcg(SIMILARITY.T, LABELS.T, k=25).mean())
    assert (
        6 < found["nsum"] <= 600
        and found["intervals"]["rsum"][0] < found["rsum"] < found["intervals"]["rsum"][1]
    )
    names = {
        "recall@1",
        "r@1",
        "ncs@1",
        "ndcg@25",
        "asp",
        "kendall_tau_a",
        "ncs@1[rouge_l]",
        "asp_a",
    }
    for way in ("i2t", "t2i"):
        assert names <= set(found[way])
        assert found[way]["asp"] == found[way]["asp[rouge_l]"], "the two files hold the same labels"
        assert all(low <= high for low, high in found["intervals"][way].values())
    json.dumps(found, allow_nan=False)
    folds = as_json(evaluate(task, EvaluateParams(samples=0, fold=(6,), m=(3,))))["folds"]["6"]
    assert folds["counts"]["folds"] == 2 and folds["protocol"] == "folds of 6"


def test_outputs_compare_and_tables(task, tmp_path):
    own = OWNER[None] == np.arange(IMAGES)[:, None]
    better = replace(task, similarity=SIMILARITY + 2 * own)
    evaluate(task, FAST, out=tmp_path / "a")
    evaluate(better, FAST, out=tmp_path / "b")
    tests = compare({"b": tmp_path / "b", "a": tmp_path / "a"}, samples=500)
    assert tests["i2t/recall@1"].difference > 0 and tests["t2i/recall@1"].p_value < 0.01
    evaluate(task, FAST.model_copy(update={"ties": "reference"}), out=tmp_path / "tied")
    with pytest.raises(
        InputError, match="tied: evaluated with other ties than the first -> evaluate both alike"
    ):
        compare({"a": tmp_path / "a", "tied": tmp_path / "tied"})
    curve = json.loads((tmp_path / "a" / "curves_k.json").read_text())
    assert {row["direction"] for row in curve} == {"i2t", "t2i"} and {
        "k",
        "recall",
        "ncs",
        "ndcg",
    } <= set(curve[0])
    assert all(
        a["recall"] <= b["recall"]
        for a, b in zip(curve, curve[1:], strict=False)
        if a["k"] < b["k"]
    )
    runs = {"base_line": tmp_path / "a", "ours": tmp_path / "b"}
    markdown = table_of_runs(runs, ["recall@1", "medr", "rsum"])
    last = markdown.splitlines()[-1]
    assert last.startswith("| ours |") and last.count("**") == 10, "all five columns are best"
    latex = table_of_runs(runs, ["recall@1"], "latex")
    assert r"base\_line" in latex and r"\textbf{100.0}" in latex
    write_tables(runs, ["rsum"], tmp_path / "tables")
    assert (tmp_path / "tables" / "runs.md").exists() and (
        tmp_path / "tables" / "runs.tex"
    ).exists()
    with pytest.raises(InputError, match="no precision@1"):
        table_of_runs(runs, ["precision@1"])
    with pytest.raises(
        InputError, match="style 'html' is not known -> choose from: markdown, latex"
    ):
        table_of_runs(runs, ["rsum"], "html")
    (tmp_path / "b" / "manifest.json").unlink()
    for use in (lambda: table_of_runs(runs, ["rsum"]), lambda: compare(runs)):
        with pytest.raises(InputError, match="no manifest.json: not a finished evaluate folder"):
            use()


@pytest.fixture(scope="module")
def three(task, tmp_path_factory):
    """Folders of three evaluations of the same queries, the third the best."""
    base = tmp_path_factory.mktemp("three")
    own = OWNER[None] == np.arange(IMAGES)[:, None]
    for name, more in {"one": 0, "two": 0.2 * LABELS, "three": 2 * own}.items():
        evaluate(replace(task, similarity=SIMILARITY + more), FAST, out=base / name)
    return {name: base / name for name in ("one", "two", "three")}


def test_every_row_of_a_comparison_is_the_difference_of_what_is_reported(three):
    """medr is a median, rsum and nsum are sums: no row is a mean over queries of what is none."""
    stored = [json.loads((folder / "metrics.json").read_text()) for folder in three.values()]
    found = compare(three, every=True, samples=200).rows
    assert {"rsum", "nsum[cider]", "i2t/medr", "t2i/ndcg@25[cider]", "i2t/ndcg@25[rouge_l]"} <= {
        o.key for o in found
    }
    for one in found:
        name = one.metric.removesuffix("[cider]")
        values = [run[one.direction][name] if one.direction else run[name] for run in stored]
        assert one.values == pytest.approx(values)
        for test, value in zip(one.tests, values[1:], strict=True):
            assert test.difference == pytest.approx(values[0] - value) and test.low <= test.high, (
                one.key
            )
            assert test.queries == (IMAGES if one.direction == "i2t" else len(OWNER)) + IMAGES * (
                not one.direction
            )


def test_a_sum_is_tested_by_sums_of_draws(three):
    """Both directions of an image are drawn and exchanged together: once more as a loop over
    samples."""
    two = {name: three[name] for name in ("one", "three")}
    found = compare(two, ["rsum"], samples=300)["rsum"]
    queries = [np.load(folder / "per_query.npz") for folder in two.values()]
    names = [f"{way}/recall@{k}" for way in ("i2t", "t2i") for k in (1, 5, 10)]

    def rsum(sides, images):
        """By numbers of images; `sides` says whose values an image has."""
        total = 0.0
        for name in names:
            values = np.stack([run[name] for run in queries])
            of = (
                images
                if name.startswith("i2t")
                else [c for i in images for c in np.flatnonzero(i == OWNER)]
            )
            image = of if name.startswith("i2t") else OWNER[of]
            total += 100 * np.mean(values[sides[np.asarray(image)], np.asarray(of)])
        return total

    generator, everyone = np.random.default_rng(0), np.arange(IMAGES)
    stays = generator.integers(0, 2, (300, IMAGES), np.int8)
    gap = rsum(np.zeros(IMAGES, int), everyone) - rsum(np.ones(IMAGES, int), everyone)
    exchanged = [
        rsum(1 - stay.astype(int), everyone) - rsum(stay.astype(int), everyone) for stay in stays
    ]
    assert found.difference == pytest.approx(gap)
    assert found.p_value == pytest.approx((1 + (np.abs(exchanged) >= abs(gap) - 1e-9).sum()) / 301)
    drawn = np.random.default_rng(0).integers(0, IMAGES, (300, IMAGES), dtype=np.int32)
    gaps = [rsum(np.zeros(IMAGES, int), some) - rsum(np.ones(IMAGES, int), some) for some in drawn]
    assert (found.low, found.high) == pytest.approx(np.quantile(gaps, [0.025, 0.975]))


def test_a_comparison_prints_what_papers_report(three, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "200")
    pair = [str(three[name]) for name in ("one", "two")]
    assert call("compare", *pair) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("comparing ")
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")
    ]
    head = [
        cell.strip()
        for cell in next(line for line in lines if line.startswith("┃")).split("┃")[1:-1]
    ]
    assert head == [
        "metric",
        "direction",
        "one",
        "two",
        "one less two",
        "95% interval",
        "p",
        "corrected p",
        "queries",
    ]
    assert len(rows) == SHORT_TABLE and ["recall@1", "text to image"] in [row[:2] for row in rows]
    assert ["rsum", "both"] in [row[:2] for row in rows] and [
        "ndcg@25[cider]",
        "image to text",
    ] in [r[:2] for r in rows]
    assert call("compare", *pair, "--all") == 0
    assert sum(line.startswith("│") for line in capsys.readouterr().out.splitlines()) > 100
    every = [*pair, f"best={three['three']}", "--metric", "rsum", "--metric", "medr"]
    assert call("compare", *every, "--out", tmp_path / "tables") == 0
    assert "600.0 (p 0.00" in next(
        line for line in capsys.readouterr().out.splitlines() if "rsum" in line
    )
    assert (
        (tmp_path / "tables" / "tests.md")
        .read_text()
        .startswith("| metric | direction | one | two | best |\n")
    )
    assert r"\begin{tabular}{llrrr}" in (tmp_path / "tables" / "tests.tex").read_text()
    assert call("compare", *every, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found.keys() == {"two", "best"} and found["best"].keys() == {
        "rsum",
        "i2t/medr",
        "t2i/medr",
    }
    assert call("compare", *pair, "--metric", "recal@1") == 2
    assert "no recal@1 was evaluated -> near it: recall@1" in capsys.readouterr().err


def test_runs_of_other_queries_stand_side_by_side_without_a_test(task, three, tmp_path, capsys):
    others = replace(task, ids=(task.ids[0], [f"other {name}" for name in task.ids[1]]))
    evaluate(others, FAST, out=tmp_path / "other")
    both = (str(three["one"]), str(tmp_path / "other"))
    assert call("compare", *both) == 2
    assert (
        "of other captions than the first (24 here, 24 there, 0 in both) -> evaluate both on"
        in capsys.readouterr().err
    )
    assert call("compare", *both, "--metric", "recall@1") == 0
    said = capsys.readouterr()
    assert "| one | " in said.out and "no test: " in said.err


def test_tables_name_the_measure_of_graded_metrics(task, tmp_path):
    """Of several measures the first one's are named too, and the values of two are never in one
    column."""
    labels = {
        "cider": next(iter(task.relevance.values())),
        "sbert": np.sqrt(next(iter(task.relevance.values()))),
    }
    settings = EvaluateParams(samples=0, metric=("recall@1", "ncs@1", "ncs@5", "ncs@10", "ndcg@5"))
    evaluate(Task(SIMILARITY, OWNER, labels), settings, out=tmp_path / "both")
    evaluate(Task(SIMILARITY, OWNER, {"sbert": labels["sbert"]}), settings, out=tmp_path / "sbert")
    both, one = tmp_path / "both", tmp_path / "sbert"
    heads = table_of_runs(
        {"both": both}, ["recall@1", "ndcg@5", "ndcg@5[sbert]", "nsum"]
    ).splitlines()[0]
    assert heads.split(" | ")[1:] == [
        "i2t recall@1", "i2t ndcg@5[cider]", "i2t ndcg@5[sbert]",
        "t2i recall@1", "t2i ndcg@5[cider]", "t2i ndcg@5[sbert]", "nsum[cider] |",
    ]  # fmt: skip
    with pytest.raises(
        InputError, match=r"ndcg@5 is of sbert here, and of cider in both -> name the measure"
    ):
        table_of_runs({"both": both, "one": one}, ["ndcg@5"])
    rows = table_of_runs({"both": both, "one": one}, ["ndcg@5[sbert]"]).splitlines()[2:]
    assert rows[0].split("|")[2:] == rows[1].split("|")[2:], "the same labels under either name"
    stored = json.loads((both / "metrics.json").read_text())
    assert f"{stored['nsum']:.1f}" in table_of_runs({"both": both}, ["nsum"])
    row = next(row for row in json.loads((both / "curves_k.json").read_text()) if row["k"] == 5)
    assert row["ncs"] == stored[row["direction"]]["ncs@5"], "curves are of the first measure"


def test_a_metric_without_a_value_is_a_dash_and_never_the_best(task, tmp_path):
    evaluate(task, EvaluateParams(samples=0, metric=("recall@1",)), out=tmp_path / "b")
    found = json.loads((tmp_path / "b" / "metrics.json").read_text())
    found["i2t"]["recall@1"] = None  # as it is written where no query has a value
    (tmp_path / "a.json").write_text(json.dumps(found))
    rows = table_of_runs(
        {"a": tmp_path / "a.json", "b": tmp_path / "b"}, ["recall@1"]
    ).splitlines()[2:]
    assert [row.split(" | ")[1].startswith("**") for row in rows] == [False, True] and rows[
        0
    ].startswith("| a | - |")
    alone = table_of_runs({"a": tmp_path / "a.json"}, ["recall@1"]).splitlines()[-1]
    assert alone.startswith("| a | - | ") and "**" not in alone, "of one run nothing is the best"


@pytest.mark.parametrize(
    "content", [[1, 2], 3, {}, {"i2t": 3, "t2i": {}}, {"i2t": {"recall@1": "x"}, "t2i": {}}]
)
def test_numbers_of_something_else_are_refused(tmp_path, content):
    (tmp_path / "m.json").write_text(json.dumps(content))
    with pytest.raises(
        InputError,
        match="m.json: not the metrics of an evaluation -> write them with capgrade eval",
    ):
        table_of_runs({"a": tmp_path / "m.json"}, ["recall@1"])


def test_the_whole_table_and_the_short_one(task, capsys, monkeypatch):
    """The former warns of collapse, the latter has what matters and says what prints the rest."""
    monkeypatch.setenv("COLUMNS", "140")
    collapsed = Task(np.full_like(SIMILARITY, 0.99) + 1e-4 * SIMILARITY, OWNER, task.relevance)
    print(table_text(evaluate(collapsed, FAST, notes=["PMRP left out"])))
    text = capsys.readouterr().out
    assert "ncs@1[rouge_l]" in text and "[low, high]" in text, "markup ate the brackets"
    assert (
        "percent" in text
        and "COLLAPSED" in text
        and "note: PMRP left out" in text
        and "lambda@1" in text
    )
    found = evaluate(Task(SIMILARITY, OWNER, {"cider": LABELS, "sbert": LABELS}), FAST)
    print(table_text(found, every=False))
    text = capsys.readouterr().out
    rows = [line.split("│")[1].strip() for line in text.splitlines() if line.startswith("│")]
    assert rows[:4] == ["recall@1", "recall@5", "recall@10", "medr"]
    assert {
        "ndcg@25[cider]",
        "ncs@10[cider]",
        "asp[sbert]",
        "kendall_tau_b[sbert]",
        "rsum",
        "nsum[cider]",
    } < set(rows)
    assert len(rows) < 20 and not [
        row for row in rows if row.startswith(("sr", "lambda", "ncs@1["))
    ]
    every = len(found[0].scored["i2t"].metrics)
    assert f"{len(rows) - 2} of {every} metrics; --all prints every one" in " ".join(text.split())
    assert "SemanticMap" not in text, "it is about lambda, which is not there"
    only = evaluate(
        Task(SIMILARITY, OWNER, {"cider": LABELS}), EvaluateParams(samples=0, metric=("recall@5",))
    )
    assert [item.name for item in choose_short(only[0].scored["i2t"].metrics)] == ["recall@5"]


def test_nothing_is_said_of_coco_for_other_data_sets(monkeypatch):
    pytest.importorskip("eccv_caption")
    flickr, coco = ["1000092795", "10002456"], sorted(original_images())[:2]
    for ids, said in ((flickr, 0), (coco, 2)):
        notes: list[str] = []
        found, without = _read_human_lists(ids, ["1", "2"], np.arange(2), np.arange(2), notes)
        assert found == {} and without.keys() == {"eccv", "cxc"} and len(notes) == said
    assert are_coco_ids(coco) and not are_coco_ids(flickr) and not are_coco_ids(["scene-1"])
    monkeypatch.setattr("capgrade.schemas.extras.find_spec", lambda name: None)
    assert (
        _read_human_lists(
            [str(k) for k in range(5_000)], ["1"], np.arange(1), np.arange(5_000), notes := []
        )[0]
        == {}
    )
    assert notes[0] == (
        "eccv left out: eccv_caption is not installed (pip install 'capgrade[eccv]')"
    )


def scored(folders, out, *more):
    """`capgrade evaluate` of similarity files: its status."""
    similarities = [word for path in more for word in ("--similarity", str(path))]
    line = [
        "evaluate",
        "--captions",
        str(folders[0]),
        *similarities,
        "--set",
        "evaluate.samples=20",
        "--json",
    ]
    return call(*line, "--out", str(out))


def test_an_ensemble_is_the_mean_of_the_matrices(folders, tmp_path, capsys):
    first, other = folders[1], RANDOM.uniform(-1, 1, SIMILARITY.shape).astype(np.float32)
    np.save(tmp_path / "B.npy", other)
    assert scored(folders, tmp_path / "both", first, tmp_path / "B.npy") == 0
    found = json.loads(capsys.readouterr().out)
    want = evaluate(Task((SIMILARITY + other) / 2, OWNER), EvaluateParams(samples=0))[0].json()
    assert all(found[way] == pytest.approx(want[way], abs=1e-6) for way in ("i2t", "t2i"))
    assert "similarity is the mean of 2 matrices" in found["notes"]
    inputs = read_manifest(tmp_path / "both", "evaluate")["inputs"]
    assert [inputs[f"similarity {k}"] for k in (1, 2)] == [
        digest(first),
        digest(tmp_path / "B.npy"),
    ]
    assert scored(folders, tmp_path / "one", first) == 0
    runs = {"saf": tmp_path / "one", "sgraf": tmp_path / "both"}
    text = table_of_runs(runs, ["rsum"])
    assert "| sgraf (mean of 2) |" in text and "| saf |" in text
    assert "i2t/recall@1" in compare(runs, samples=10)


def test_a_similarity_is_of_its_split_and_of_a_finished_model(small, trained, tmp_path):
    copy = shutil.copytree(trained, tmp_path / "run")
    path, again = copy / "index/similarity.npy", "-> run `capgrade embed` again"
    # as many rows
    test, val = (read_captions(small.data.captions, split) for split in ("test", "val"))
    assert read_similarity(path, test).shape == (8, 16)
    with pytest.raises(InputError, match=rf"another split than 'val' \('test'\) {again}, or eval"):
        read_similarity(path, val)
    shutil.copy(path, tmp_path / "mine.npy")
    assert read_similarity(tmp_path / "mine.npy", val).shape == (8, 16), "of somebody else"
    run(small.data, copy, "train.lr=0.02", epochs=1, restart=True)
    with pytest.raises(
        InputError, match=f"made from another model than .*model.safetensors {again}"
    ):
        read_similarity(path, test)
    with pytest.raises(InputError, match=f"made by another model than that of .*/run {again}"):
        open_search(copy, copy / "index")
    (copy / "index/manifest.json").unlink()
    with pytest.raises(InputError, match=f"of an unfinished run {again}"):
        read_similarity(path, test)


def test_negative_labels_count_as_no_gain():
    shifted = Task(SIMILARITY, OWNER, {"sbert": LABELS - np.float32(0.5)})
    found = as_json(evaluate(shifted, EvaluateParams(samples=0, metric=("ndcg@5", "asp"))))
    assert found["i2t"]["ndcg@5"] == pytest.approx(
        ndcg(SIMILARITY, np.maximum(LABELS - 0.5, 0), k=5).mean(), abs=1e-6
    )


def test_stand_in_captions_leave_the_gallery(tmp_path, monkeypatch):
    """Two captions per image: the first stands for the image, the second is its only own
    candidate."""
    owner = np.repeat(np.arange(4), 2)
    vectors = np.random.default_rng(2).random((8, 5)).astype(np.float32)
    monkeypatch.setattr("capgrade.measures.embeddings.embed", lambda texts, model: vectors)
    labels = np.arange(32, dtype=np.float32).reshape(4, 8)
    folder = relevance_folder(tmp_path / "relevance", ["cider"], labels)
    task, notes = load_task(
        captions_folder(tmp_path / "captions", owner), stand_in=0, relevance=folder
    )
    np.testing.assert_allclose(task.similarity, vectors[::2] @ vectors[1::2].T)
    assert (
        task.owner.tolist() == [0, 1, 2, 3] and (task.relevance["cider"] == labels[:, 1::2]).all()
    )
    assert task.kept.tolist() == [1, 3, 5, 7]
    assert any("stands for the image" in note for note in notes)


def test_stand_ins_of_other_captions_are_not_compared(tmp_path, monkeypatch, capsys):
    """Each gallery lacks the captions that stand for images: these queries are others."""
    owner = np.repeat(np.arange(4), 3)
    vectors = np.random.default_rng(2).random((12, 5)).astype(np.float32)
    monkeypatch.setattr("capgrade.measures.embeddings.embed", lambda texts, model: vectors)
    captions = captions_folder(tmp_path / "captions", owner)
    for number in ("0", "1"):
        line = ["evaluate", "--captions", captions, "--stand-in", number]
        assert call(*line, "--out", tmp_path / f"ev{number}") == 0
    capsys.readouterr()
    both = [tmp_path / n for n in ("ev0", "ev1")]
    assert call("compare", *both) == 2
    assert (
        "ev1: of other captions than the first (8 here, 8 there, 4 in both) -> evaluate both on the"
        " same" in capsys.readouterr().err
    )
    twice = [f"{label}={tmp_path / 'ev0'}" for label in ("a", "b")]
    assert call("compare", *twice, "--metric", "recall@1", "--out", tmp_path / "tables") == 0
    assert "image to text" in (tmp_path / "tables" / "runs.tex").read_text()


def test_the_same_ids_of_other_texts_are_not_compared(folders, tmp_path):
    """Other captions tables may number their captions alike."""
    plain, _ = load_task(folders[0], similarity=folders[1])
    evaluate(plain, FAST, out=tmp_path / "a")
    evaluate(replace(plain, texts=["a cat", *plain.texts[1:]]), FAST, out=tmp_path / "b")
    with pytest.raises(InputError, match="b: evaluated with other texts than the first"):
        compare({"a": tmp_path / "a", "b": tmp_path / "b"}, samples=10)


def test_an_evaluation_without_ids_is_evaluated_again(three, tmp_path):
    """The file of each query says of what queries it is, or nothing is compared."""
    copy = shutil.copytree(three["one"], tmp_path / "one")
    with np.load(copy / "per_query.npz") as stored:
        values = {name: stored[name] for name in stored.files if name != "labels"}
    for content in (values, None):
        if content is None:
            (copy / "per_query.npz").write_bytes(b"no archive")
        else:
            np.savez(copy / "per_query.npz", **content)
        rows = dict.fromkeys(read_manifest(three["one"], "evaluate")["files"], 0)
        write_manifest(copy, "evaluate", params={}, inputs={}, rows=rows)
        with pytest.raises(InputError, match="no values of queries with their ids .* again"):
            compare({"a": three["two"], "b": copy})


@pytest.mark.parametrize("installed", [True, False])
def test_a_remedy_at_a_shell_is_one_of_the_shell(folders, tmp_path, capsys, monkeypatch, installed):
    """Lists of people are read for COCO's ids: whoever asks for their metrics hears why they are
    not here, and whoever lacks labels which option brings them."""
    why = "eccv_caption is not installed -> pip install 'capgrade[eccv]'"
    if installed:
        pytest.importorskip("eccv_caption")
        why = "is not in the captions table -> use the MS-COCO 5K test split with COCO image and"
    else:
        monkeypatch.setattr("capgrade.schemas.extras.find_spec", lambda name: None)
    asked = {
        "map@r": why,
        "cxc_recall@1": why,
        "pmrp": "needs class vectors -> give --set evaluate.instances=FILE, of COCO's instances",
        "ndcg@5": "needs relevance labels -> give --relevance FOLDER",
        "accepted_recall@1": "needs likely positives -> give --positives FILE, of capgrade audit or a list",
        "relevant_r@5": "give --relevance FOLDER",
    }
    line = ["evaluate", "--captions", folders[0], "--similarity", folders[1], "--metric"]
    for metric, remedy in asked.items():
        assert call(*line, metric) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert remedy in said and "positives[" not in said and "{" not in said, said
    labels = ["--relevance", folders[2]]
    assert call(*line, "relevant_r@5", *labels) == 2
    assert "give --set evaluate.above.MEASURE=VALUE" in capsys.readouterr().err
    assert call(*line, "accepted_recall@1", "--positives", _all_positive(folders[0], tmp_path),
                "--fold", "6") == 2  # fmt: skip
    assert "of the whole gallery -> leave --fold away" in capsys.readouterr().err


def _all_positive(folder, tmp_path):
    captions = read_captions(folder)
    path = tmp_path / "positives.json"
    lists = dict.fromkeys(captions.image_ids, captions.caption_ids)
    content = {"captions": captions.digest, "split": captions.split, "image_to_caption": lists}
    path.write_text(json.dumps(content))
    return path


def test_what_a_task_lacks_is_said(folders, tmp_path):
    captions, similarity, _ = folders
    zeros = tmp_path / "zeros.npy"
    np.save(zeros, np.zeros((IMAGES, 3)))
    other = relevance_folder(tmp_path / "other", labels=LABELS[:, 1:])
    plain, _ = load_task(captions, similarity=similarity)
    for build, message in (
        (lambda: load_task(captions), "one source of similarity"),
        (lambda: load_task(captions, embeddings=(zeros, zeros)), "embedding is zero"),
        (
            lambda: load_task(captions, similarity=similarity, relevance=tmp_path),
            "not a finished relevance folder",
        ),
        (lambda: load_task(captions, similarity=similarity, relevance=other), "captions per row"),
        (
            lambda: load_task(captions, stand_in=0),
            "none to spare for number 0 -> give images with 2",
        ),
        (lambda: evaluate(plain, EvaluateParams(metric=("ndcg@25",))), "needs relevance labels"),
    ):
        with pytest.raises(InputError, match=message):
            build()


@pytest.fixture
def captions(folders):
    return read_captions(folders[0], None)


def write(path, content):
    """What a file called so holds: bytes, rows between commas, or a matrix, in Arrow with ids of
    images."""
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif path.suffix == ".csv":
        path.write_text("\n".join(content))
    elif path.suffix == ".arrow":
        ids, rows = content
        cells = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
        table = pa.table({"image_id": ids, "similarity": cells})
        write_arrow(path, table.schema, table.to_batches())
    elif path.suffix == ".pt":
        torch.save(torch.from_numpy(content), path)
    elif content is not None:
        np.save(path, content)
    return path


def lines(matrix, captions=None):
    """Rows between commas, with ids of these captions."""
    rows = [",".join(map(str, row)) for row in matrix.tolist()]
    if captions is None:
        return rows
    labelled = (f"{image_id},{row}" for image_id, row in zip(captions.image_ids, rows, strict=True))
    return [",".join(["", *captions.caption_ids]), *labelled]


def test_every_format_gives_the_same_similarity(folders, captions, tmp_path):
    """It may leave pairs out with -inf. Numbers between commas may have ids, and any line end."""
    scores = np.where(SIMILARITY < -0.5, -np.inf, SIMILARITY)
    for name, content in {
        "s.npy": scores,
        "s.pt": scores,
        "s.arrow": (captions.image_ids, scores),
        "s.csv": lines(scores),
        "cr.csv": "\r".join(lines(scores)).encode(),
        "ids.csv": "\r\n".join(lines(scores, captions)).encode(),
    }.items():
        found = read_similarity(write(tmp_path / name, content), captions)
        np.testing.assert_allclose(
            found, scores, rtol=1e-6 if name.endswith(".csv") else 0, err_msg=name
        )
    images = (300 * RANDOM.random((IMAGES, 6))).astype(np.float16)
    texts = RANDOM.random((len(OWNER), 6))
    paths = [write(tmp_path / "images.csv", lines(images)), write(tmp_path / "images.npy", images)]
    tasks = [
        load_task(folders[0], embeddings=(path, write(tmp_path / "texts.pt", texts)))
        for path in paths
    ]
    images, texts = (
        x / np.linalg.norm(x, axis=1, keepdims=True) for x in (images.astype(float), texts)
    )
    for task, notes in tasks:  # lengths are more than a float16 holds
        np.testing.assert_allclose(task.similarity, images @ texts.T, atol=1e-6)
        assert any("no relevance" in note for note in notes)


def test_quoted_ids_may_hold_commas_and_quotes(tmp_path):
    """As pandas writes them."""
    (tmp_path / "ids.csv").write_text(', "a,1", "say ""b"""\n"x, y",0.5,1\n\n z ,2,3\n')
    ids = ["x, y", " z "], ["a,1", 'say "b"']
    np.testing.assert_array_equal(read_csv(tmp_path / "ids.csv", *ids), [[0.5, 1], [2, 3]])


def test_scores_that_differ_in_float64_alone_stay_apart(tmp_path, folders):
    """In a file of text, and in the mean of two arrays."""
    captions = read_captions(folders[0])
    near = 0.5 + 1e-9 * SIMILARITY.astype(np.float64)
    np.savetxt(tmp_path / "near.csv", near, delimiter=",")
    np.testing.assert_array_equal(read_csv(tmp_path / "near.csv", captions.image_ids, None), near)
    paths = [write(tmp_path / "one.npy", near), write(tmp_path / "two.npy", near + 1e-12)]
    mean = mean_similarity(paths, captions)
    np.testing.assert_allclose(mean, near, atol=1e-11, rtol=0)
    assert (np.argsort(mean, axis=1) == np.argsort(near, axis=1)).all()


def test_a_transposed_matrix_is_named_also_with_five_captions_an_image(tmp_path):
    """As many rows as five an image, which VSE++ writes, but with a column an image."""
    folder = captions_folder(tmp_path / "captions", np.repeat(np.arange(12), 5))
    scores = np.random.default_rng(0).random((60, 12), np.float32)
    np.save(tmp_path / "s.npy", scores)
    table = read_captions(folder)
    problem = r"\(60, 12\) scores are captions x images, not \(12, 60\) .* -> transpose it: numpy"
    with pytest.raises(InputError, match=problem):
        read_similarity_of(tmp_path / "s.npy", table)
    np.save(tmp_path / "s.npy", scores.T)
    np.testing.assert_array_equal(read_similarity_of(tmp_path / "s.npy", table), scores.T)
    np.save(tmp_path / "s.npy", np.repeat(scores.T, 5, axis=0))
    np.testing.assert_array_equal(read_similarity_of(tmp_path / "s.npy", table), scores.T)


def test_a_similarity_that_does_not_fit_is_named_with_its_row(folders, captions, tmp_path):
    """Beside another one, with which it would be averaged."""
    plain, labelled = lines(SIMILARITY), lines(SIMILARITY, captions)
    later = plain[2].partition(",")[2]
    wrong = {
        "no such file": ("s.npy", None),
        "a folder where a file is needed": ("", None),
        "numbers alone: np.savetxt(": ("s.csv", [row.replace(",", " ") for row in plain]),
        "transpose it": ("s.npy", SIMILARITY.T),
        "score the same captions table": ("s.npy", SIMILARITY[:-1]),
        "cannot be read": ("s.npy", b"no array"),
        "holds no matrix of numbers": ("s.pt", SIMILARITY + 1j),
        "give each model's similarity once": ("s.npy", SIMILARITY),
        "image 'i0', and a mean": ("s.npy", np.where(np.arange(len(OWNER)) == 3, -np.inf, LABELS)),
        "image_ids are not those": ("s.arrow", ([f"j{i}" for i in range(IMAGES)], SIMILARITY)),
        "row 3: field 1 is 'x', not a number": ("s.csv", [*plain[:2], f"x,{later}"]),
        "row 3: field 2 is '', not a number": ("s.csv", [*plain[:2], f"1,,{later}"]),
        f"row 5: {len(OWNER) - 1} numbers, in the first row {len(OWNER)}": (
            "s.csv",
            [*plain[:4], plain[4].rpartition(",")[0]],
        ),
        "holds no numbers": ("s.csv", [""]),
        "a header without rows": ("s.csv", labelled[:1]),
        f"not {(IMAGES, len(OWNER))}": ("s.csv", plain[:-1]),
        "row 1: ids of the columns: 'i1#0' where 'i0#0' is expected": (
            "s.csv",
            [labelled[0].replace("i0#0,", "", 1), *labelled[1:]],
        ),
        "row 3: ids of the rows: 'i5' where 'i1' is expected": (
            "s.csv",
            [*labelled[:2], labelled[6]],
        ),
        "NaN for image 'i0', caption 'i0#0'": (
            "s.csv",
            ["nan," + plain[0].partition(",")[2], *plain[1:]],
        ),
        "not UTF-8 text": ("s.csv", b"\xff\xfe1,2"),
    }
    for message, (name, content) in wrong.items():
        with pytest.raises(InputError) as error:
            mean_similarity([folders[1], write(tmp_path / name, content)], captions)
        assert message in str(error.value) and name in str(error.value)
