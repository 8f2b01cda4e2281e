"""The peers are the real packages; uv does what capgrade asks of it; the examples of
docs/with_others.md."""

import importlib
import json
import shlex
import shutil
import sys
from pathlib import Path

import pycocoevalcap.eval
import pycocoevalcap.tokenizer.ptbtokenizer
import pytest

from tests.conftest import ROOT, call
from tests.docs.test_examples import EXAMPLES, here, world  # noqa: F401  # fixtures
from tests.peers.conftest import PACKAGES
from tests.pipelines.test_judged_choices import made_pairs, write
from tests.test_label import SCRIPT, SETS, labels_of, write_csv


@pytest.mark.parametrize("name", PACKAGES)
def test_a_peer_is_the_package_of_the_registry(name: str) -> None:
    assert "site-packages" in str(importlib.import_module(name).__file__)


def test_uv_runs_the_script_in_an_environment_that_it_makes(tmp_path: Path) -> None:
    write_csv(tmp_path / "captions.csv")
    uv = str(Path(sys.executable).with_name("uv"))
    found = labels_of(uv, "run", str(SCRIPT), "captions.csv", cwd=tmp_path)
    assert found["p1"][0] == SETS["p2"][0]


PAGE = EXAMPLES["with_others.md"]


def make_judged() -> None:
    """What the page reads: a dataset as yuwd/Polaris lies on the hub, the crowd's judgements of
    Flickr8k as authors of caption metrics share them, and Pascal-50S."""
    polaris, flickr = Path("yuwd/Polaris"), Path("flickr8k")
    polaris.mkdir(parents=True, exist_ok=True)
    flickr.mkdir(exist_ok=True)
    shutil.copy("polaris.csv", polaris / "test.csv")
    write(Path("pascal-50s"), made_pairs(votes=48))
    references = ["a dog runs", "the dog is running"]
    judged = [
        {"image_path": "a.jpg", "caption": text, "rating": rating}
        for text, rating in (("a dog runs fast", 1), ("a dog", 0.5), ("two cats sleep", 0))
    ]
    record = {"image_path": "a.jpg", "ground_truth": references, "human_judgement": judged}
    (flickr / "crowdflower_flickr8k.json").write_text(json.dumps({"a": record}))


@pytest.mark.parametrize("example", PAGE, ids=lambda example: f"{example.kind}-{example.row}")
def test_the_example(example, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    for module in (
        pycocoevalcap.eval,
        pycocoevalcap.tokenizer.ptbtokenizer,
    ):  # an example puts other classes there
        for name in ("Bleu", "Cider", "Meteor", "PTBTokenizer", "Rouge"):
            monkeypatch.setattr(module, name, getattr(module, name, None), raising=False)
    monkeypatch.syspath_prepend(ROOT / "examples")
    make_judged()
    if example.kind == "python":
        exec(compile(example.text, f"with_others.md, row {example.row}", "exec"), {})
    elif example.kind == "command":
        assert call(*shlex.split(example.text)[1:]) == 0, example.text
