"""SPICE's scorer as a process, with a `java` of our own that speaks its command line: CoreNLP is not at hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from capgrade.measures import spice
from capgrade.measures.spice import FittedSpice, Spice, read_scores
from capgrade.pipelines.agree import Judgements
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import SpiceParams
from tests.conftest import make_captions

SETS = [["a dog runs", "a brown dog"], ["a cat", "the cat sits", "two cats"]]

# What the jar does with its arguments (SpiceArguments.java, SpiceStats.java); the score is the share of the caption's
# words that are in the references.
JAVA = """#!{python}
import json, sys
arguments = sys.argv[1:]
if arguments == ["-version"]:
    sys.exit(print('openjdk version "{version}" 2018-10-16', file=sys.stderr))
memory, jar, name, given, *options = arguments
assert jar == "-jar" and name.endswith("spice-1.0.jar") and memory == "-Xmx2G", arguments
with open("{log}", "a") as log:
    log.write(json.dumps(options) + "\\n")
out = options[options.index("-out") + 1]
answer = []
for item in json.load(open(given)):
    words, known = item["test"].split(), set(" ".join(item["refs"]).split())
    f = sum(word in known for word in words) / len(words)
    scores = {{"All": {{"f": f, "pr": f, "re": f, "tp": 1, "fp": 0, "fn": 0, "numImages": 1}}}}
    answer.append({{"image_id": item["image_id"], "scores": scores}})
{fault}
json.dump(answer, open(out, "w"))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of SPICE with every jar in it, empty ones, instead of the installed one."""
    import pycocoevalcap.spice

    for name in (spice.JAR, *spice.CORENLP):
        path = tmp_path / "spice" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.setattr(pycocoevalcap.spice, "__path__", [str(tmp_path / "spice")])
    return tmp_path


def put_java(folder: Path, monkeypatch: pytest.MonkeyPatch, fault: str = "", version: str = "1.8.0_312") -> Path:
    """An executable `java` that is the only one on PATH; the file where it logs its options."""
    java, log = folder / "bin" / "java", folder / "log"
    java.parent.mkdir(exist_ok=True)
    java.write_text(JAVA.format(python=sys.executable, version=version, log=log, fault=fault))
    java.chmod(0o755)
    monkeypatch.setenv("PATH", str(java.parent))
    return log


def fitted(**params: object) -> FittedSpice:
    return Spice(SpiceParams(memory="2G", **params)).fit(make_captions(SETS))


def expected(leave_out: bool) -> list[list[float]]:
    def share(image: int, owner: int, k: int) -> float:
        rest = [r for q, r in enumerate(SETS[image]) if not (leave_out and owner == image and q == k)]
        words, known = SETS[owner][k].split(), set(" ".join(rest).split())
        return sum(word in known for word in words) / len(words)

    return [[share(i, j, k) for j, s in enumerate(SETS) for k in range(len(s))] for i in range(len(SETS))]


@pytest.mark.parametrize("self_reference", ["included", "left_out"])
@pytest.mark.parametrize("batch", [1, 3, 100])
def test_scores_every_pair(folder: Path, monkeypatch: pytest.MonkeyPatch, batch: int, self_reference: str) -> None:
    log = put_java(folder, monkeypatch)
    measure = fitted(batch=batch, self_reference=self_reference)
    whole = np.array(expected(self_reference == "left_out"), np.float32)
    np.testing.assert_array_equal(measure.score(np.array([1, 0])), whole[::-1])
    again = -(-5 // batch) if self_reference == "left_out" else 0  # own pairs, without the caption among its references
    assert len(log.read_text().splitlines()) == -(-10 // batch) + again
    np.testing.assert_array_equal(measure.score(np.array([0, 1]), np.array([4, 1])), whole[:, [4, 1]])


def test_cache_folder_and_saved_state(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = put_java(folder, monkeypatch)
    fitted(cache=str(folder / "cache")).save(folder / "state")
    FittedSpice.load(folder / "state").score(np.array([0]))
    options = json.loads(log.read_text())
    cache = Path(options[options.index("-cache") + 1])
    assert cache.parent == folder / "cache" and cache.is_dir()  # one per version of the jars


def test_agreement_scores_judged_pairs_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_java(folder, monkeypatch, fault="assert len(answer) == 3")
    judged = Judgements(np.array([1, 0, 1]), np.array([0, 4, 3]), np.array([1.0, 2.0, 3.0]))
    values = fitted().pairs(judged.image, judged.caption)
    np.testing.assert_array_equal(values, np.array(expected(False), np.float32)[judged.image, judged.caption])


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("print('Exception in thread \"main\" java.lang.OutOfMemoryError: heap', file=sys.stderr); sys.exit(1)",
         "status 1: .*OutOfMemoryError: heap"),
        ("sys.exit(0)", "without writing"),
        ("answer.pop()", "9 scores, for 10 pairs"),
        ("answer[0]['image_id'] = 1", "10 scores, for 10 pairs"),
        ("answer[4]['scores']['All']['f'] = None", "pair 4 is None"),
        ("answer[4]['scores']['All']['f'] = float('nan')", "pair 4 is nan"),
        ("answer[4]['scores']['All']['f'] = 1.5", "pair 4 is 1.5"),
        ("del answer[2]['scores']['All']", "no list of scores"),
        ("answer = 'half'", "no list of scores"),
    ],
)  # fmt: skip
def test_failures_are_loud(folder: Path, monkeypatch: pytest.MonkeyPatch, fault: str, message: str) -> None:
    put_java(folder, monkeypatch, fault)
    with pytest.raises(InputError, match=message):
        fitted().score(np.arange(2))


def test_half_a_file(tmp_path: Path) -> None:
    (tmp_path / "scores.json").write_text('[{"image_id": 0, "sco')
    with pytest.raises(InputError, match="no list of scores"):
        read_scores(tmp_path / "scores.json", 1)


@pytest.mark.parametrize("name", [spice.JAR, *spice.CORENLP])
def test_missing_jar_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    put_java(folder, monkeypatch)
    (folder / "spice" / name).unlink()
    with pytest.raises(InputError, match=name) as caught:
        fitted()
    assert "install pycocoevalcap" in str(caught.value) or "get_stanford_models" in str(caught.value)


@pytest.mark.parametrize("version", ["1.7.0_80", "15.0.1", "17.0.15", "24"])
def test_java_of_a_wrong_version(folder: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    put_java(folder, monkeypatch, version=version)
    with pytest.raises(InputError, match="does not run on Java.*version 8 to 14"):
        fitted()


@pytest.mark.parametrize("version", ["1.8.0_312", "11.0.2", "14"])
def test_java_of_a_right_version(folder: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    put_java(folder, monkeypatch, version=version)
    assert fitted().lines[0] == "a dog runs"


def test_no_java_and_a_silent_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(InputError, match="no 'java' on PATH"):
        fitted()
    put_java(folder, monkeypatch, version="unknown")
    with pytest.raises(InputError, match="told no version"):
        fitted()
