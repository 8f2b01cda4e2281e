"""SPICE's scorer as a process, with a `java` of our own that speaks its command line: CoreNLP is
not at hand."""

import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from capgrade.measures.spice import Spice, SpiceParams
from capgrade.measures.spice import fitted as spice
from capgrade.measures.spice.fitted import FittedSpice
from capgrade.schemas.errors import InputError
from tests.capgrade.measures.test_definitions import slow_matrix
from tests.conftest import make_captions

SETS = [["a dog runs", "a brown dog"], ["a cat", "the cat sits", "two cats"]]

# What the jar does with its arguments (SpiceArguments.java, SpiceStats.java); the score is the
# share of the caption's words that are in the references.
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
def put_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Makes an executable `java` that is the only one on PATH: the file where it logs its options.
    Every jar is in a folder of SPICE, empty ones, instead of the installed one."""
    import pycocoevalcap.spice

    java, log = tmp_path / "bin" / "java", tmp_path / "log"
    for path in (java, *(tmp_path / "spice" / name for name in (spice.SPICE_JAR, *spice.CORENLP))):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    java.chmod(0o755)
    monkeypatch.setattr(pycocoevalcap.spice, "__path__", [str(tmp_path / "spice")])
    monkeypatch.setenv("PATH", str(java.parent))

    def put(fault: str = "", version: str = "1.8.0_312") -> Path:
        java.write_text(JAVA.format(python=sys.executable, version=version, log=log, fault=fault))
        return log

    return put


def fitted(**params: object) -> FittedSpice:
    return Spice(SpiceParams(memory="2G", **params)).fit(make_captions(SETS))


def expected(leave_out: bool) -> np.ndarray:
    def share(caption: str, references: list[str]) -> float:
        words, known = caption.split(), set(" ".join(references).split())
        return sum(word in known for word in words) / len(words)

    return slow_matrix(SETS, share, leave_out)


@pytest.mark.parametrize("self_reference", ["included", "left_out"])
@pytest.mark.parametrize("batch", [1, 3, 100])
def test_scores_every_pair(put_java: Callable[..., Path], batch: int, self_reference: str) -> None:
    log = put_java()
    measure = fitted(batch=batch, self_reference=self_reference)
    whole = np.array(expected(self_reference == "left_out"), np.float32)
    np.testing.assert_array_equal(measure.score(np.array([1, 0])), whole[::-1])
    # own pairs, without the caption among its references
    again = -(-5 // batch) if self_reference == "left_out" else 0
    assert len(log.read_text().splitlines()) == -(-10 // batch) + again
    np.testing.assert_array_equal(
        measure.score(np.array([0, 1]), np.array([4, 1])), whole[:, [4, 1]]
    )


def test_cache_folder_and_saved_state(put_java: Callable[..., Path], tmp_path: Path) -> None:
    log = put_java()
    fitted(cache=str(tmp_path / "cache")).save(tmp_path / "state")
    FittedSpice.load(tmp_path / "state").score(np.array([0]))
    options = json.loads(log.read_text())
    cache = Path(options[options.index("-cache") + 1])
    assert cache.parent == tmp_path / "cache" and cache.is_dir()  # one per version of the jars


def test_pairs_alone_are_scored(put_java: Callable[..., Path]) -> None:
    put_java(fault="assert len(answer) == 3")
    image, caption = np.array([1, 0, 1]), np.array([0, 4, 3])
    values = fitted().pairs(image, caption)
    np.testing.assert_array_equal(values, np.array(expected(False), np.float32)[image, caption])


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("print('Exception in thread \"main\" java.lang.OutOfMemoryError: heap', file=sys.stderr); sys.exit(1)",
         "status 1: .*OutOfMemoryError: heap"),
        ("sys.exit(0)", "without writing"),
        ("sys.exit(open(out, 'w').write('[{\"image_id\": 0, \"sco') and 0)", "no list of scores"),
        ("answer.pop()", "9 scores, for 10 pairs"),
        ("answer[0]['image_id'] = 1", "10 scores, for 10 pairs"),
        ("answer[4]['scores']['All']['f'] = None", "pair 4 is None"),
        ("answer[4]['scores']['All']['f'] = float('nan')", "pair 4 is nan"),
        ("answer[4]['scores']['All']['f'] = 1.5", "pair 4 is 1.5"),
        ("del answer[2]['scores']['All']", "no list of scores"),
        ("answer = 'half'", "no list of scores"),
    ],
)  # fmt: skip
def test_failures_are_loud(put_java: Callable[..., Path], fault: str, message: str) -> None:
    put_java(fault)
    with pytest.raises(InputError, match=message):
        fitted().score(np.arange(2))


@pytest.mark.parametrize("name", [spice.SPICE_JAR, *spice.CORENLP])
def test_missing_jar_is_named(put_java: Callable[..., Path], name: str, tmp_path: Path) -> None:
    put_java()
    (tmp_path / "spice" / name).unlink()
    remedy = "install pycocoevalcap" if name == spice.SPICE_JAR else "get_stanford_models"
    with pytest.raises(InputError, match=f"{name}.*{remedy}"):
        fitted()


@pytest.mark.parametrize(
    "version", ["1.8.0_312", "11.0.2", "14", "1.7.0_80", "15.0.1", "17.0.15", "24", "unknown", ""]
)
def test_java_has_version_8_to_14(
    put_java: Callable[..., Path], version: str, tmp_path: Path
) -> None:
    put_java(version=version)
    problem = {"unknown": "told no version", "": "no 'java' on PATH"}.get(
        version, "does not run on Java.*8 to 14"
    )
    if not version:
        (tmp_path / "bin" / "java").unlink()
    right = version in ("1.8.0_312", "11.0.2", "14")
    with nullcontext() if right else pytest.raises(InputError, match=problem):
        assert fitted().lines[0] == "a dog runs"
