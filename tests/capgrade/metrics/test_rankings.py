"""Ranked lists: by hand, against loops, against ranx and ir_measures, and TREC files in and out."""

import json
import os
import string
import subprocess
import sys
import tracemalloc
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade import Labels, Qrels, Run, evaluate_lists
from capgrade.schemas.errors import InputError
from capgrade.schemas.say import CapgradeWarning

from . import slow

NAMES = [
    "ndcg@5",
    "ndcg_exp@5",
    "ncs@3",
    "recall@3",
    "r@3",
    "precision@3",
    "mrr@4",
    "map@4",
    "r_precision",
    "map@r",
]
RANX = {
    "ndcg@5": "ndcg@5",
    "ndcg_exp@5": "ndcg_burges@5",
    "recall@3": "hit_rate@3",
    "r@3": "recall@3",
    "precision@3": "precision@3",
    "mrr@4": "mrr@4",
    "map@4": "map@4",
    "r_precision": "r-precision",
}
IR_MEASURES = {
    "ndcg@5": "nDCG@5",
    "recall@3": "Success@3",
    "r@3": "R@3",
    "precision@3": "P@3",
    "mrr@4": "RR@4",
    "map@4": "AP@4",
    "r_precision": "Rprec",
}


def made(seed: int, queries: int = 6, documents: int = 12) -> tuple[dict, dict]:
    """A run of several lengths without ties, and grades 0..3, one at least above 0."""
    rng = np.random.default_rng(seed)
    run, qrels = {}, {}
    for q in range(queries):
        listed = rng.permutation(documents)[: rng.integers(1, documents)]
        scores = rng.permutation(1000)[: len(listed)] / 1000
        run[f"q{q}"] = {f"d{d}": float(s) for d, s in zip(listed, scores, strict=True)}
        judged = rng.permutation(documents)[: rng.integers(1, documents)]
        qrels[f"q{q}"] = {
            f"d{d}": int(r)
            for d, r in zip(
                judged, [rng.integers(1, 4), *rng.integers(0, 4, documents)], strict=False
            )
        }
    return run, qrels


def loop(name: str, found: dict, judged: dict) -> float:
    """One query, from the definitions of matrices: what is not listed comes behind others that
    nobody judged."""
    base, _, k = name.partition("@")
    documents = list(dict.fromkeys([*found, *range(99), *judged]))
    gains = [judged.get(d, 0) for d in documents]
    order = [documents.index(d) for d in sorted(found, key=lambda d: -found[d])]
    order += [at for at in range(len(documents)) if at not in order]
    positives = [at for at, gain in enumerate(gains) if gain > 0]
    k = len(positives) if name in ("r_precision", "map@r") else int(k)
    hits = [at in positives for at in order[:k]]
    return {
        "ndcg": slow.ndcg(order, gains, k),
        "ndcg_exp": slow.ndcg(order, gains, k, True),
        "ncs": slow.ncs(order, gains, k),
        "recall": slow.recall(order, positives, k),
        "r": slow.share(order, positives, k),
        "r_precision": slow.share(order, positives, k),
        "precision": sum(hits) / k,
        "mrr": next((1 / (p + 1) for p, hit in enumerate(hits) if hit), 0.0),
        "map": sum(hit * sum(hits[: p + 1]) / (p + 1) for p, hit in enumerate(hits))
        / len(positives),
    }[base]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_a_metric_of_lists_is_its_definition(seed):
    run, qrels = made(seed)
    found = evaluate_lists(run, qrels, NAMES)
    for name in NAMES:
        expected = [loop(name, run[q], qrels[q]) for q in qrels]
        assert found.values[name] == pytest.approx(expected, abs=1e-12), name


def test_memory_is_that_of_the_lists():
    """Whatever the cut-off is, and where one query has many more positives than the others."""
    qrels = {f"q{k}": {f"d{d}": 1 for d in range(20_000 if k == 0 else 1)} for k in range(2_000)}
    run = Run.from_dict({query: dict.fromkeys(found, 0.5) for query, found in qrels.items()})
    judged = Qrels.from_dict(qrels)
    tracemalloc.start()
    found = evaluate_lists(
        run, judged, ["map@r", "ndcg@1000000000", "precision@1000000000"], intervals=None
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.mean["map@r"] == found.mean["ndcg@1000000000"] == 1 and peak < 30e6
    assert found.values["precision@1000000000"][0] == 20_000 / 1e9


IN_RANX = """
import json, sys, ranx
run, qrels, names = json.load(sys.stdin)
found = ranx.evaluate(ranx.Qrels(qrels), ranx.Run(run), names, return_mean=False)
print(json.dumps({name: [float(v) for v in values] for name, values in found.items()}))
"""


@pytest.mark.skipif(find_spec("ranx") is None, reason="ranx is not installed")
def test_ranx_computes_the_same():
    """In a process of its own, where its kernels are plain Python: compiling them takes most of a
    minute."""
    run, qrels = made(0, 60)
    qrels = {q: {d: r for d, r in found.items() if r > 0} for q, found in qrels.items()}
    run, qrels = {**run, **BARE_RUN}, {**qrels, **BARE_QRELS}
    ours = evaluate_lists(run, qrels, list(RANX))
    given = json.dumps([run, qrels, list(RANX.values())])
    plain = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(
        [sys.executable, "-c", IN_RANX],
        input=given,
        env=plain,
        capture_output=True,
        text=True,
        check=True,
    )
    # theirs are sorted
    theirs = json.loads(done.stdout.splitlines()[-1])
    order = np.argsort(ours.queries)
    for name, other in RANX.items():
        assert ours.values[name][order] == pytest.approx(theirs[other], abs=1e-9), name


def test_ir_measures_computes_the_same():
    ir_measures = pytest.importorskip("ir_measures", reason="ir_measures is not installed")
    run, qrels = made(0, 60)
    parsed = {name: ir_measures.parse_measure(other) for name, other in IR_MEASURES.items()}
    theirs = {
        (str(m.measure), m.query_id): m.value
        for m in ir_measures.iter_calc(parsed.values(), qrels, run)
    }
    ours = evaluate_lists(run, qrels, list(IR_MEASURES))
    for name, other in parsed.items():
        expected = [theirs[str(other), q] for q in ours.queries]
        assert ours.values[name] == pytest.approx(expected, abs=1e-9), name


def test_queries_that_only_one_side_has():
    found = evaluate_lists(
        {"a": {"x": 1.0}, "c": {"x": 1.0}}, {"a": {"x": 1}, "b": {"x": 1}}, ["mrr@5"]
    )
    assert dict(zip(found.queries, found.values["mrr@5"], strict=True)) == {"a": 1, "b": 0}
    for run in ({"a": {"x": 1.0}}, {}):
        with pytest.raises(InputError, match="no query in common"):
            evaluate_lists(run, {"b": {"x": 1}}, ["mrr@5"])
    nothing = evaluate_lists({"a": {"x": 1.0}}, {"a": {"x": 0}}, ["r@5", "ndcg@5"])
    assert nothing.mean == {"r@5": 0, "ndcg@5": 0}


# One of three queries has judgements and no relevant document.
BARE_RUN = {
    "q1": {"d1": 1.0, "d2": 0.5},
    "q2": {"d2": 1.0, "d1": 0.5},
    "q3": {"d1": 2.0, "d3": 1.0},
}
BARE_QRELS = {"q1": {"d1": 0, "d2": 0}, "q2": {"d2": 1, "d1": 0}, "q3": {"d3": 2}}


@pytest.mark.parametrize(
    ("above", "without", "map_"), [(0.0, "1 of 3", 0.5), (1.0, "2 of 3", 1 / 6)]
)
def test_every_metric_is_a_mean_of_all_judged_queries(above, without, map_):
    """Also of those without a relevant document, as ir_measures and ranx have it."""
    said = f"{without} judged queries have no document with relevance above {above:g}"
    with pytest.warns(CapgradeWarning, match=said):
        ours = evaluate_lists(BARE_RUN, BARE_QRELS, list(IR_MEASURES), above=above)
    assert ours.mean["map@4"] == pytest.approx(map_)
    assert not any(np.isnan(values).any() for values in ours.values.values())
    ir_measures = pytest.importorskip("ir_measures", reason="ir_measures is not installed")
    for name, other in IR_MEASURES.items():
        if name == "ndcg@5":  # nDCG takes grades, and no relevance above which one counts
            parsed = ir_measures.parse_measure(other)
        else:
            measure, _, k = other.partition("@")
            parsed = getattr(ir_measures, measure)(rel=int(above) + 1)
            parsed = parsed @ int(k) if k else parsed
        theirs = ir_measures.calc_aggregate([parsed], BARE_QRELS, BARE_RUN)[parsed]
        assert ours.mean[name] == pytest.approx(theirs), name


def test_scores_that_tie_in_float32_are_a_tie_as_in_trec_eval(tmp_path):
    scores = {"q": {"d1": 0.912345679, "d2": 0.912345678, "d3": 0.1}}
    path = tmp_path / "a.run"
    path.write_text("".join(f"q Q0 {d} 1 {score!r} t\n" for d, score in scores["q"].items()))
    judged = {"q": {"d1": 1, "d2": 0, "d3": 0}}
    for run in (Run.read(path), Run.from_dict(scores)):
        found = evaluate_lists(run, judged, ["ndcg@10", "map@10"]).mean
        assert found == pytest.approx({"ndcg@10": 1 / np.log2(3), "map@10": 0.5})
        run.write(tmp_path / "b.run", tag="b", force=True)
        assert Run.read(tmp_path / "b.run").documents.to_pylist() == ["d2", "d1", "d3"]
    with pytest.raises(InputError, match="a score of query 'q' is not finite"):
        Run.from_dict({"q": {"a": 1e39}})
    ir_measures = pytest.importorskip("ir_measures", reason="ir_measures is not installed")
    theirs = ir_measures.calc_aggregate(
        [ir_measures.nDCG @ 10, ir_measures.AP @ 10], judged, scores
    )
    assert sorted(found.values()) == pytest.approx(sorted(theirs.values()))


def test_lists_of_other_ids_are_refused_and_missing_lists_are_said(recwarn):
    judged = {f"c{k}": {f"i{k}": 1.0} for k in range(2_500)}
    with pytest.raises(
        InputError, match="no document in common: '17' here, 'i0' there -> give both the same ids"
    ):
        evaluate_lists(Run.from_lists(["c0"], [[17, 4]]), judged)
    three = Run.from_lists(["c0", "c1", "c2"], [["i0"], ["i9"], ["i2"]])
    with pytest.warns(
        CapgradeWarning,
        match="2,497 of 2,500 judged queries have no list in the run: they count as 0",
    ):
        found = evaluate_lists(three, judged, ["recall@1"])
    assert found.mean["recall@1"] == 2 / 2_500
    evaluate_lists({"q": {"a": 1}}, {"q": {"a": 1}}, ["recall@1"])
    assert not recwarn.list


def test_trec_files_come_back(tmp_path):
    run, qrels = made(5)
    Run.from_dict(run).write(tmp_path / "a.run")
    (tmp_path / "a.qrels").write_text(
        "".join(f"{q} 0 {d} {r}\n" for q in qrels for d, r in qrels[q].items())
    )
    found = evaluate_lists(Run.read(tmp_path / "a.run"), Qrels.read(tmp_path / "a.qrels"), NAMES)
    assert found.mean == pytest.approx(evaluate_lists(run, qrels, NAMES).mean)


def test_fields_of_a_file_are_parted_as_trec_eval_does(tmp_path):
    """By C's isspace: ids may hold any space of Unicode, such as U+202F in times and U+3000 in
    Japanese names."""
    odd = [chr(k) for k in range(0x11000) if chr(k).isspace() and chr(k) not in string.whitespace]
    assert len(odd) > 20 and {"\u202f", "\u3000", "\x85", "\u2028"} <= set(odd)
    scores = {f"q{mark}1": {f"d{mark}1": 0.5, "d2": 0.25} for mark in odd}
    for _ in range(2):  # the second time over its own
        assert Run.from_dict(scores).write(tmp_path / "a.run", force=True) == 2 * len(odd)
    found = Run.read(tmp_path / "a.run")
    assert found.queries == list(scores) and found.documents.to_pylist()[::2] == [
        f"d{mark}1" for mark in odd
    ]
    (tmp_path / "a.qrels").write_text(
        "".join(f"q{mark}1\t0  d{mark}1 \v1\r\n" for mark in odd), encoding="utf-8"
    )
    assert evaluate_lists(found, Qrels.read(tmp_path / "a.qrels"), ["mrr@2"]).mean["mrr@2"] == 1
    for mark in string.whitespace:
        with pytest.raises(InputError, match="is no word -> TREC files have ids without spaces"):
            Run.from_dict({"q": {f"d{mark}1": 1.0}}).write(tmp_path / "b.run")


def test_ties_of_a_file_are_broken_as_trec_eval_does(tmp_path):
    path = tmp_path / "a.run"
    path.write_text("q Q0 a 1 0.5 t\nq Q0 c 2 0.5 t\nq Q0 b 3 0.9 t\n")
    assert Run.read(path).documents.to_pylist() == ["b", "c", "a"]
    ir_measures = pytest.importorskip("ir_measures", reason="ir_measures is not installed")
    theirs = ir_measures.calc_aggregate(
        [ir_measures.RR], {"q": {"a": 1}}, {"q": {"a": 0.5, "c": 0.5, "b": 0.9}}
    )
    assert evaluate_lists(Run.read(path), {"q": {"a": 1}}, ["mrr@9"]).mean[
        "mrr@9"
    ] == pytest.approx(theirs[ir_measures.RR])


def test_labels_become_judgements(made_labels, tmp_path):
    labels = made_labels
    lines = labels.to_qrels(
        tmp_path / "q", measure="cider", grades=[0.5, 1.0, 2.0], queries="images"
    )
    values, known, _ = labels.block(range(12), range(60), "cider")
    assert lines == known.sum()
    rows = [line.split() for line in (tmp_path / "q").read_text().splitlines()]
    for image, zero, caption, grade in rows:
        value = values[labels.image_ids.index(image), labels.caption_ids.index(caption)]
        assert zero == "0" and int(grade) == sum(value >= edge for edge in (0.5, 1.0, 2.0))
    # as 0.7 is in float32: just below
    edge = next(v for v in values[known] if 0 < float(v) < float(str(v)))
    labels.to_qrels(tmp_path / "e", measure="cider", grades=[float(str(edge))])
    graded = sum(line.endswith(" 1\n") for line in (tmp_path / "e").open())
    assert graded == (values[known] >= edge).sum()
    qrels = Qrels.from_labels(labels, "cider")
    assert len(qrels.relevance) == known.sum() and len(qrels.queries) <= 60
    with pytest.raises(InputError, match=r"grades \[2, 1\] -> give rising thresholds"):
        labels.to_qrels(tmp_path / "r", measure="cider", grades=[2, 1])


@pytest.fixture
def made_labels(dataset) -> Labels:
    return Labels.load(dataset)


BAD = [
    ("run", "q Q0 a 1 0.5\n", "row 1: 5 fields, 6 are query, q0, document"),
    ("run", "q Q0 a 1 0.5 t\nq Q0 b 2 high t\n", "row 2: score 'high' is not a number"),
    ("run", "q Q0 a 1 0.5 t\nq Q0 a 2 0.4 t\n", "query 'q' has a document twice"),
    ("run", "q Q0 a 1 0.5 t\n\nq Q0 b 2 nan t\n", "row 3: score 'nan' is not a number"),
    ("run", "q Q0 caf\xe9 1 0.5 t\n", "row 1: byte 0xe9 at position 9 is not UTF-8"),
    ("qrels", "q 0 a one\n", "row 1: relevance 'one' is not a number"),
    ("qrels", "q 0 a 1\nq 0 a 2\n", "query 'q' has a document twice"),
    ("qrels", "q 0 a\n", "row 1: 3 fields"),
]


@pytest.mark.parametrize(("kind", "text", "message"), BAD)
def test_a_bad_file_is_refused_with_its_row(tmp_path, kind, text, message):
    path = tmp_path / "file"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(InputError, match=message):
        (Run if kind == "run" else Qrels).read(path)


def test_tensors_are_their_numbers():
    """As FAISS gives them for tensors: -1 ends a list, rows are numbers and no text of a tensor."""
    ids = torch.tensor([[2, 0, -1], [1, 2, 0]])
    scores = torch.tensor([[0.9, 0.8, 0.0], [0.5, 0.25, 0.0]])
    for names in (None, ["a", "b", "c"], np.array(["a", "b", "c"])):
        want = Run.from_lists([7, 8], ids.tolist(), scores.tolist(), names=names)
        for documents in (ids, list(ids), ids.numpy()):
            found = Run.from_lists(torch.tensor([7, 8]), documents, scores, names=names)
            assert (found.queries, found.documents) == (["7", "8"], want.documents)
            assert np.array_equal(found.scores, want.scores)


def test_trec_files_are_written_over_with_force_alone(made, tmp_path):
    labels = Labels.load(made / "dataset", measures=["cider"])
    run = Run.from_dict({"q": {"a": 0.5}})

    def qrels(path, **more):
        return labels.to_qrels(path, grades=[1.0], **more)

    for name, write in (("run", run.write), ("qrels", qrels)):
        lines = write(tmp_path / name)
        first = (tmp_path / name).read_text()
        assert lines == len(first.splitlines())
        (tmp_path / name).write_text("mine")
        with pytest.raises(InputError, match=f"{name}: a file is there -> .*force=True"):
            write(tmp_path / name)
        assert (tmp_path / name).read_text() == "mine"
        assert write(tmp_path / name, force=True) == lines
        assert (tmp_path / name).read_text() == first
    with pytest.raises(InputError, match="query 'q r' is no word"):
        Run.from_lists(["q r"], [["a"]]).write(tmp_path / "x")
    with pytest.raises(InputError, match="a file of the finished folder"):
        run.write(made / "dataset" / "README.md", force=True)
