"""Comparisons of evaluations: of the same queries by id or refused, their tests beside plain loops,
as frames and as tables."""

import re
import shutil
import subprocess
from dataclasses import astuple
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from capgrade import Draws, InputError, evaluate, evaluate_lists, latex_table
from capgrade.metrics import Pairs, Positives
from capgrade.metrics.catalogue import is_graded, with_measure
from capgrade.metrics.uncertainty import correct
from capgrade.result_tables import Result, groups_of
from capgrade.schemas.tables import Bold, latex, markdown

RANDOM = np.random.default_rng(0)
IMAGES = 8
OWNER = np.repeat(np.arange(IMAGES), [1, 2] * (IMAGES // 2))
OWN = np.arange(IMAGES)[:, None] == OWNER
RELEVANCE = RANDOM.random(OWN.shape)
SCORES, OTHER = (RANDOM.random(OWN.shape) + more * OWN for more in (0.6, 0.2))
IDS = [f"img{k}" for k in range(IMAGES)], [f"cap{k}" for k in range(len(OWNER))]
METRICS = ("recall@1", "recall@5", "recall@10", "medr", "ndcg@5")


def scored(scores=SCORES, relevance=RELEVANCE, metrics=METRICS, **more):
    given = {"owner": OWNER, "ids": IDS, "intervals": None, **more}
    return evaluate(scores, relevance, metrics, **given)


def test_rows_in_another_order_are_compared_by_their_ids():
    """The same scores, labels and ids in another order of images and captions: the same tests."""
    rows, columns = RANDOM.permutation(IMAGES), RANDOM.permutation(len(OWNER))
    where = np.argsort(rows)
    moved = scored(
        OTHER[rows][:, columns],
        RELEVANCE[rows][:, columns],
        owner=where[OWNER[columns]],
        ids=([IDS[0][k] for k in rows], [IDS[1][k] for k in columns]),
    )
    found = scored().compare(moved, samples=200)
    for key, test in scored().compare(scored(OTHER), samples=200).items():
        assert astuple(found[key]) == pytest.approx(astuple(test)), key
    assert found["i2t/recall@1"].difference == pytest.approx(
        np.mean(OWN[range(IMAGES), SCORES.argmax(1)]) - np.mean(OWN[range(IMAGES), OTHER.argmax(1)])
    )


POSITIVES = Positives.from_lists([[0]] * IMAGES), Positives.from_lists([[0]] * len(OWNER))
OTHERS = Positives.from_lists([[1]] * IMAGES), POSITIVES[1]


@pytest.mark.parametrize(
    ("first", "second", "problem"),
    [
        (
            {},
            {"ids": (IDS[0], [*IDS[1][:-3], "x", "y", "z"])},
            r"of other captions than the first \(12 here, 12 there, 9 in both\)",
        ),
        (
            {},
            {"ids": ([*IDS[0][1:], "img9"], IDS[1])},
            r"of other images than the first \(8 here, 8 there, 7 in both\)",
        ),
        ({}, {"ids": None}, r"of other images .* in both\) -> .* and give the ids of both"),
        ({}, {"owner": np.roll(OWNER, 1)}, "with other owner than the first"),
        ({}, {"owner": OWN[:, ::-1]}, "with other owner than the first"),
        ({}, {"relevance": RELEVANCE**2}, "with other relevance than the first"),
        ({}, {"ties": "reference"}, "with other ties than the first"),
        ({"above": 0.5}, {"above": 0.6}, "with other above than the first"),
        (
            {"metrics": "recall@1", "positives": {"accepted": POSITIVES}},
            {"metrics": "recall@1", "positives": {"accepted": OTHERS}},
            "with other positives accepted than the first",
        ),
        (
            {"classes": np.eye(IMAGES, dtype=int)},
            {"classes": np.ones((IMAGES, 1), int)},
            "with other classes than the first",
        ),
        ({"metrics": "recall@1"}, {"metrics": "recall@5"}, "no metric that all have"),
        ({"fold": 4}, {"fold": 2}, "of folds of 2, the first of folds of 4"),
        ({"fold": 4}, {}, "second: of whole, the first of folds of 4"),
    ],
)
def test_what_is_of_other_queries_or_labels_is_refused(first, second, problem):
    with pytest.raises(InputError, match=problem):
        scored(**first).compare(scored(**second))


def test_other_samples_of_the_same_pairs_are_refused():
    names = {"metrics": ["recall@1", "ncs@5"]}
    query, item = np.nonzero(np.ones(OWN.shape))
    samples = [
        Pairs.judged(query[::step], item[::step], RELEVANCE.ravel()[::step], np.full(n, 1 / step))
        for step, n in ((1, len(query)), (2, len(query) // 2))
    ]
    ours = scored(relevance=samples[0], **names)
    assert len(ours.compare(scored(OTHER, samples[0], **names), samples=20)) == 4
    with pytest.raises(InputError, match="with other relevance than the first"):
        ours.compare(scored(OTHER, samples[1], **names))


def test_metrics_of_labels_that_one_alone_has_are_left_out():
    found = scored(relevance={"a": RELEVANCE, "b": RELEVANCE**2}).compare(
        scored(OTHER, {"b": RELEVANCE**2}), samples=50
    )
    assert "t2i/ndcg@5[b]" in found and "t2i/ndcg@5[a]" not in found and "rsum" in found
    assert "t2i/recall@1" in scored().compare(scored(OTHER, None, METRICS[:4]), samples=50)


def reported(values, images, name):
    """A metric over the queries of these images, counted as often as they come."""
    queries = np.concatenate([values[group] for group in images])
    return np.floor(np.median(queries)) if name == "medr" else queries.mean()


def test_tests_are_those_of_plain_loops():
    """Every one of 2^8 exchanges of images and many draws, one by one: each p-value is within
    what 10,000 exchanges leave of the exact one."""
    first, second = scored(), scored(OTHER)
    found = first.compare(second, seed=1)
    for (direction, groups), name in product(
        (("i2t", [[k] for k in range(IMAGES)]), ("t2i", [np.flatnonzero(r) for r in OWN])),
        METRICS,
    ):
        a, b = (run.scored[direction].values[name] for run in (first, second))
        gap = reported(a, groups, name) - reported(b, groups, name)
        as_large = []
        for sides in product((False, True), repeat=IMAGES):
            x, y = a.copy(), b.copy()
            for group, exchanged in zip(groups, sides, strict=True):
                if exchanged:
                    x[group], y[group] = b[group], a[group]
            exchange = reported(x, groups, name) - reported(y, groups, name)
            as_large.append(abs(exchange) >= abs(gap) - 1e-12)
        test = found[f"{direction}/{name}"]
        assert test.difference == pytest.approx(gap)
        assert test.p_value == pytest.approx(np.mean(as_large), abs=0.02)
        draws = np.random.default_rng(3).integers(IMAGES, size=(2000, IMAGES))
        gaps = [
            reported(a, [groups[k] for k in draw], name)
            - reported(b, [groups[k] for k in draw], name)
            for draw in draws
        ]
        low, high = np.quantile(gaps, (0.025, 0.975))
        # Draws of few images take few values: a step of one image.
        spread = 1 / IMAGES + 1e-9
        if name != "medr":  # its draws are whole numbers
            assert abs(test.low - low) <= spread and abs(test.high - high) <= spread


def test_folds_are_compared_fold_by_fold():
    """The mean over folds is what is reported and tested; images stay in their folds."""
    ours, theirs = scored(fold=4), scored(OTHER, fold=4)
    found = ours.compare(theirs, "recall@1", samples=300, seed=5)
    for direction in ("i2t", "t2i"):
        test = found[f"{direction}/recall@1"]
        means = [run.scored[direction].mean["recall@1"] for run in (ours, theirs)]
        assert test.difference == pytest.approx(means[0] - means[1])
        assert test.low <= test.difference <= test.high
    gaps = np.zeros(300)
    for k in range(2):
        a, b = (run.i2t.folds[k]["recall@1"] for run in (ours, theirs))
        drawn = np.random.default_rng(5 + k).integers(0, 4, (300, 4), dtype=np.int32)
        gaps += (a - b)[drawn].mean(axis=1) / 2
    found_low = found["i2t/recall@1"].low
    assert found_low == pytest.approx(np.quantile(gaps, 0.025))


def test_ranked_lists_are_compared_by_the_ids_of_their_queries():
    judged = {f"q{k}": {"a": 2, "b": 1} for k in range(6)}
    runs = [
        {query: {"a": float(random.random()), "c": 0.5} for query in judged}
        for random in map(np.random.default_rng, (0, 1))
    ]
    ours, theirs = (evaluate_lists(run, judged, ["ndcg@3", "mrr@3"]) for run in runs)
    moved = evaluate_lists(runs[1], dict(reversed(judged.items())), ["ndcg@3", "mrr@3"])
    by_id, in_order = (ours.compare(other, samples=90)["ndcg@3"] for other in (moved, theirs))
    assert astuple(by_id) == pytest.approx(astuple(in_order))
    fewer = dict(list(judged.items())[1:])
    for other, problem in (
        (fewer, r"of other queries than the first \(5 here, 6 there, 5 in both\)"),
        ({**judged, "q0": {"a": 1}}, "evaluated with other judgements than the first"),
    ):
        with pytest.raises(InputError, match=problem):
            ours.compare(evaluate_lists(runs[1], other, ["ndcg@3", "mrr@3"]))
    with pytest.raises(InputError, match="one direction of an evaluation -> compare both"):
        scored().i2t.compare(scored().i2t)


@pytest.mark.parametrize("bad", [(IDS[0][:-1], IDS[1]), (IDS[0], [*IDS[1][:-1], IDS[1][0]])])
def test_ids_are_one_for_each(bad):
    with pytest.raises(
        InputError, match="7 ids for 8 images|id 'cap0' of the captions comes twice"
    ):
        scored(ids=bad)


def test_frames_have_a_row_for_each_number():
    pytest.importorskip("pandas")
    found = scored(intervals=Draws(samples=50))
    frame = found.to_frame()
    assert list(frame.columns) == ["direction", "metric", "value", "low", "high", "queries"]
    assert len(frame) == 2 * len(METRICS) + 1 and frame.metric.iloc[-1] == "rsum"
    row = frame.set_index(["direction", "metric"]).loc["t2i", "ndcg@5"]
    assert row.value == found.t2i.mean["ndcg@5"] and row.queries == len(OWNER)
    assert (row.low, row.high) == found.t2i.intervals["ndcg@5"]
    compared = found.compare(scored(OTHER), samples=50)
    frame = compared.to_frame()
    assert len(frame) == len(compared) and set(frame.second) == {"second"}
    assert frame.p_value.tolist() == [test.p_value for test in compared.values()]
    lists = evaluate_lists({"q": {"a": 1.0}}, {"q": {"a": 1}}, "ndcg@3").to_frame()
    assert lists.to_dict("list")["metric"] == ["ndcg@3"] and "direction" not in lists


def test_a_table_of_a_paper_has_groups_and_bold_cells(tmp_path: Path):
    """The best and what a paired test does not tell from it are bold, in the columns of papers."""
    best = scored(SCORES + 2 * OWN)
    runs = {"a_b & c": scored(RANDOM.random(OWN.shape)), "best": best, "same": best}
    text = latex_table(runs)
    lines = text.splitlines()
    assert lines[:5] == [
        r"\begin{tabular}{lrrrrrrr}",
        r"\toprule",
        r" & \multicolumn{3}{c}{image to text} & \multicolumn{3}{c}{text to image} &  \\",
        r"\cmidrule(lr){2-4} \cmidrule(lr){5-7}",
        r" & R@1 & R@5 & R@10 & R@1 & R@5 & R@10 & rsum \\",
    ]
    assert lines[6].startswith(r"a\_b \& c & ") and lines[-2:] == [
        r"\bottomrule",
        r"\end{tabular}",
    ]
    assert lines[7].count(r"\textbf{100.0}") == lines[8].count(r"\textbf{100.0}") == 6
    worst = lines[6].removesuffix(r" \\").replace(r"\&", "").split(" & ")[1:]
    tests = best.compare(runs["a_b & c"], [*METRICS[:3], "rsum"])
    keys = [f"{way}/{name}" for way in ("i2t", "t2i") for name in METRICS[:3]]
    for cell, key in zip(worst, [*keys, "rsum"], strict=True):
        # The least of two p-values is corrected to twice itself.
        assert ("textbf" in cell) == (2 * tests[key].p_value >= 0.05), (cell, key)
    assert "textbf" not in worst[-1], "rsum of chance is no best"
    one = best.to_latex("one", ["medr", "ndcg@5"])
    assert r"& MedR & NDCG@5 & MedR & NDCG@5 \\" in one and "textbf" not in one
    with pytest.raises(InputError, match="no recall@3 was evaluated -> near it: recall@5"):
        latex_table(runs, "recall@3")
    if shutil.which("pdflatex"):
        page = (
            r"\documentclass{article}\usepackage{booktabs}\begin{document}"
            f"{text}{one}{best.compare(runs['same'], samples=20).to_latex()}" + r"\end{document}"
        )
        (tmp_path / "t.tex").write_text(page)
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    for table in (text, one):  # as many cells in every line, and braces closed
        sizes = {
            sum(int(n) for n in re.findall(r"multicolumn\{(\d+)\}", line))
            + len(re.findall(r"(?:^|(?<!\\)&)(?! \\multicolumn)", line))
            for line in table.splitlines()
            if line.endswith(r"\\")
        }
        assert sizes == {len(re.findall("[lr]", table.splitlines()[0].split("}")[1]))}
        assert table.count("{") - table.count(r"\{") == table.count("}") - table.count(r"\}")


def test_groups_are_the_best_and_what_is_not_told_from_it_then_the_same_of_the_others():
    """As a plain loop over the runs that are left makes them."""
    many = np.repeat(np.arange(60), 2)
    own = many == np.arange(60)[:, None]
    noise = np.random.default_rng(3).random((5, *own.shape))
    helps = zip("abcde", (0.9, 0.05, 0.9, 0.45, 0.0), noise, strict=True)
    metrics = ("recall@1", "medr", "lambda@1")
    of = {
        name: evaluate((some + more * own) / 2, None, metrics, owner=many, intervals=None)
        for name, more, some in helps
    }
    columns = [("i2t", name) for name in metrics] + [("t2i", "recall@1")]
    groups = groups_of({name: Result.of(found) for name, found in of.items()}, columns)
    assert ("i2t", "lambda@1") not in groups, "none is the best"
    for direction, metric in (columns[0], columns[1], columns[3]):
        sign = -1 if metric == "medr" else 1
        left = sorted(
            of, key=lambda name: -sign * of[name].scored[direction].mean[metric]
        )  # the best first
        expected, number = {}, 0
        while left:
            number += 1
            first, *rest = left
            expected[first] = number
            tests = {n: of[first].compare(of[n], metric)[f"{direction}/{metric}"] for n in rest}
            known = correct(tests)
            expected |= {n: number for n in rest if known[n].corrected >= 0.05}
            left = [n for n in rest if n not in expected]
        assert groups[direction, metric] == expected
        assert number > 1, "some are told apart"


def test_runs_of_other_queries_have_only_what_prints_the_same_in_bold():
    other = scored(OTHER, ids=(IDS[0], [f"o{k}" for k in range(len(OWNER))]))
    lines = latex_table({"a": scored(SCORES + 2 * OWN), "b": other}, "recall@1").splitlines()
    assert lines[6].count("textbf") == 2 and lines[7].count("textbf") == sum(
        scored(OTHER).scored[way].mean["recall@1"] == 1 for way in ("i2t", "t2i")
    )


def test_every_character_is_written_as_text():
    cells = ["a|b", "50% & more", r"$x_1^2~\{#}", "<0.1", Bold("9|9")]
    assert markdown(cells, []).splitlines()[0].endswith(r"| **9\|9** |")
    assert latex(cells, []).splitlines()[2] == (
        r"a|b & 50\% \& more & \$x\_1\textasciicircum{}2\textasciitilde{}\textbackslash{}\{\#\}"
        r" & \textless{}0.1 & \textbf{9|9} \\"
    )


@pytest.mark.parametrize(
    ("name", "graded", "labelled"),
    [
        ("recall@1", False, "recall@1"),
        ("rsum", False, "rsum"),
        ("nsum", True, "nsum[cider]"),
        ("ndcg@25", True, "ndcg@25[cider]"),
        ("ndcg@25[sbert]", True, "ndcg@25[sbert]"),
        ("nsum[sbert]", True, "nsum[sbert]"),
        ("sr_authors@5(m=3)", True, "sr_authors@5(m=3)[cider]"),
        ("relevant_map@r", True, "relevant_map@r[cider]"),
        ("asp_a", True, "asp_a"),
        ("map@r", False, "map@r"),
        ("lambda@1", False, "lambda@1"),
        ("nothing@1", False, "nothing@1"),
    ],
)
def test_whether_a_metric_is_graded_has_one_answer(name, graded, labelled):
    assert is_graded(name) is graded and with_measure(name, "cider") == labelled


def test_a_comparison_prints_p_values_at_the_floor_as_such():
    many = 40
    owner = np.arange(many)
    worst, best = (
        evaluate(scores, owner=owner, metrics="recall@1", intervals=None)
        for scores in (1 - np.eye(many), np.eye(many))
    )
    found = best.compare(worst, samples=99)
    test = found["t2i/recall@1"]
    assert (test.p_value, test.corrected) == (0.01, 0.02), "of two tests"
    assert "<0.0100" in str(found) and "<0.0200" in str(found)
