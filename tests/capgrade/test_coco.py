"""pycocoevalcap's own example program with one import line changed, and the classes beside its
classes."""

import json
import shutil
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capgrade import coco
from capgrade.schemas.errors import InputError

CAPTIONS = {
    7: [
        "A man riding a wave on top of a surfboard.",
        "a surfer rides a big wave",
        "A man's surfboard is on a wave!",
    ],
    3: [
        "Two dogs (brown) play with a ball.",
        "puppies playing in the park",
        "the dogs are running, jumping",
    ],
    5: [
        "a red double-decker bus drives down the street",
        "A bus on the road",
        "3 1/2 buses parked",
    ],
}
RESULTS = {
    7: "a man surfing on a wave",
    3: "Two dogs playing with a ball.",
    5: "a red double-decker bus drives down the street",
}


class NoSpice:
    """Stands for pycocoevalcap's Spice, which downloads its parser."""

    def compute_score(self, gts: dict, res: dict) -> tuple[float, list]:
        return 0.0, [0.0] * len(gts)

    def method(self) -> str:
        return "SPICE"


@pytest.mark.skipif(shutil.which("java") is None, reason="no Java to run the peer")
def test_the_example_program_with_one_line_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    rows = [
        {"image_id": i, "id": 10 * i + k, "caption": t}
        for i, own in CAPTIONS.items()
        for k, t in enumerate(own)
    ]
    images = [{"id": i} for i in (*CAPTIONS, 9)]
    document = {
        "info": {},
        "licenses": [],
        "type": "captions",
        "images": images,
        "annotations": rows,
    }
    (tmp_path / "captions_val2014.json").write_text(json.dumps(document))
    results = [{"image_id": i, "caption": text} for i, text in RESULTS.items()]
    (tmp_path / "captions_val2014_fakecap_results.json").write_text(json.dumps(results))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pycocoevalcap.eval.Spice", NoSpice)
    program = (files("pycocoevalcap") / "example" / "coco_eval_example.py").read_text()
    line = "from pycocoevalcap.eval import COCOEvalCap"
    assert line in program
    theirs, ours = run(program), run(program.replace(line, "from capgrade.coco import COCOEvalCap"))
    assert any("SPICE is left out" in str(one.message) for one in recwarn)
    for one in (theirs.eval, *theirs.evalImgs):
        del one["SPICE"]
    assert ours.eval == pytest.approx(theirs.eval, abs=1e-6)
    assert len(ours.evalImgs) == 3
    for mine, peer in zip(ours.evalImgs, theirs.evalImgs, strict=True):
        assert mine == pytest.approx(peer, abs=1e-6)


def run(program: str) -> Any:
    names: dict[str, Any] = {}
    exec(program, names)
    return names["coco_eval"]


GTS = {2: ["a dog runs", "the dog is running"], 1: ["two men talk", "men talking"]}
RES = {1: ["two men talk"], 2: ["a dog runs"]}  # in another order


@pytest.mark.parametrize(
    ("name", "n"), [*(("Bleu", n) for n in (1, 2, 3, 4)), ("Cider", 4), ("Rouge", None)]
)
def test_order_and_kinds_of_what_is_returned(name: str, n: int | None) -> None:
    peer = getattr(import_module(f"pycocoevalcap.{name.lower()}.{name.lower()}"), name)
    theirs, ours = (scorer(**({"n": n} if n else {})) for scorer in (peer, getattr(coco, name)))
    more = (0,) if name == "Bleu" else ()
    for mine, other in zip(
        ours.compute_score(GTS, RES, *more), theirs.compute_score(GTS, RES, *more), strict=True
    ):
        np.testing.assert_allclose(mine, other, atol=1e-9)
        assert type(mine) is type(other)
    assert ours.method() == theirs.method()


def test_a_subclass_finds_the_methods_of_pycocoevalcap() -> None:
    from pycocoevalcap.eval import COCOEvalCap

    assert {name for name in vars(COCOEvalCap) if not name.startswith("_")} <= vars(
        coco.COCOEvalCap
    ).keys()


@pytest.mark.parametrize(
    ("res", "message"),
    [
        ({1: ["a"], 2: ["a", "b"]}, r"res\[2\]: 2 candidates"),
        ({1: ["a"], 2: "a dog"}, r"res\[2\]"),
        ({1: ["a"]}, "have no candidates, 2 the first"),
        ({1: ["a"], 2: ["a"], 3: ["a"]}, "have no references, 3 the first"),
    ],
)
def test_what_is_refused(res: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        coco.Rouge().compute_score(GTS, res)
    with pytest.raises(InputError, match="leave n at 4"):
        coco.Cider(n=3)
    with pytest.raises(InputError, match="give an n of 1 to 4"):
        coco.Bleu(5)
    with pytest.raises(InputError, match=r"captions\[1\]\[0\]"):
        coco.PTBTokenizer().tokenize({1: ["no annotation"]})  # type: ignore[list-item]
