"""The table on the terminal: short by default, each row named with its measure, nothing of COCO for other data sets."""

from __future__ import annotations

import numpy as np
import pytest
from rich.console import Console

from capgrade.metrics.eccv import original_images
from capgrade.schemas.params import EvaluateParams
from capgrade.trainer.evaluation.evaluate import evaluate
from capgrade.trainer.evaluation.tables import short, show
from capgrade.trainer.evaluation.task import _human, of_coco
from tests.trainer.evaluation.test_evaluate import FAST, LABELS, OWNER, SIMILARITY, Task


@pytest.fixture(scope="module")
def found():
    return evaluate(Task(SIMILARITY, OWNER, {"cider": LABELS, "sbert": LABELS}), FAST)


def _printed(found, **how):
    console = Console(record=True, width=120)
    show(found, console, **how)
    return console.export_text()


def test_short_table_has_what_matters_and_says_what_prints_the_rest(found):
    text = _printed(found, every=False)
    rows = [line.split("│")[1].strip() for line in text.splitlines() if line.startswith("│")]
    assert rows[:4] == ["recall@1", "recall@5", "recall@10", "medr"]
    assert {"ndcg@25[cider]", "ncs@10[cider]", "asp[sbert]", "kendall_tau_b[sbert]", "rsum"} < set(rows)
    assert len(rows) < 20 and not [row for row in rows if row.startswith(("sr", "lambda", "ncs@1["))]
    every = len(found[0].scored["i2t"].metrics)
    assert f"{len(rows) - 2} of {every} metrics; --all prints every one" in " ".join(text.split())
    assert "SemanticMap" not in text, "it is about lambda, which is not there"
    only = evaluate(Task(SIMILARITY, OWNER, {"cider": LABELS}), EvaluateParams(samples=0, metric=("recall@5",)))
    assert [item.name for item in short(only[0].scored["i2t"].metrics)] == ["recall@5"]


def test_nothing_is_said_of_coco_for_other_data_sets():
    pytest.importorskip("eccv_caption")
    flickr, coco = ["1000092795", "10002456"], sorted(original_images())[:2]
    for ids, said in ((flickr, 0), (coco, 2)):
        notes: list[str] = []
        assert _human(ids, ["1", "2"], np.arange(2), notes) == {} and len(notes) == said
    assert of_coco(coco) and not of_coco(flickr) and not of_coco(["scene-1"])


def test_lists_that_are_not_installed_are_said_with_their_remedy(monkeypatch):
    monkeypatch.setattr("capgrade.schemas.eccv_lists.find_spec", lambda name: None)
    notes: list[str] = []
    assert _human([str(k) for k in range(5_000)], ["1"], np.arange(1), notes) == {}
    assert notes[0] == "eccv left out: the ECCV Caption lists are not installed (pip install eccv-caption)"
