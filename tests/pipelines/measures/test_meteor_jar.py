"""METEOR's jar: the same values as ours, what has been scored kept, failures loud."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from capgrade.pipelines.measures.meteor import Meteor
from capgrade.pipelines.measures.meteor import java as meteor_java
from capgrade.pipelines.measures.meteor.java import MeteorJava
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import MeteorJavaParams, MeteorParams
from tests.conftest import make_captions

SETS = [["a man rides a horse", "the man is riding horses"], ["two dogs play", "puppies play with a ball", "a dog"]]
BOTH = np.arange(2)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CAPGRADE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fake_java(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A program of that name which speaks the jar's protocol, or does not."""
    folder.mkdir()
    (folder / "java").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "java").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def score(**params: object) -> np.ndarray:
    return MeteorJava(MeteorJavaParams(**params)).fit(make_captions(SETS)).score(BOTH)


@pytest.mark.skipif(shutil.which("java") is None, reason="no Java to run METEOR's jar")
@pytest.mark.parametrize("self_reference", ["included", "left_out"])
def test_equals_ours(self_reference: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meteor_java, "BATCH", 3)
    found = score(processes=2, self_reference=self_reference)
    ours = Meteor(MeteorParams(self_reference=self_reference)).fit(make_captions(SETS)).score(BOTH)  # type: ignore[arg-type]
    np.testing.assert_allclose(found, ours, atol=1e-6)


ANSWER = """while read line; do
  case "$line" in
    EVAL*) for k in 1 2 3 4 5 6 7 8 9 10 11; do echo 0.25; done ;;
    *) echo 1.0 2.0 ;;
  esac
done"""


def test_what_has_been_scored_is_not_scored_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "answers", monkeypatch, ANSWER)
    assert (score() == 0.25).all()
    fake_java(tmp_path / "fails", monkeypatch, "exit 3")
    assert (score() == 0.25).all()


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'no memory' >&2; exit 3", "ended with status -?[0-9]+: no memory -> use meteor"),
        ("while read line; do echo Error; done", "METEOR's jar answered 'Error' -> use meteor"),
        (ANSWER.replace("0.25", "NaN"), "answered a score outside 0..1"),
        (ANSWER.replace("0.25", "Error"), "METEOR's jar answered 'Error'"),
    ],
)
def test_failures_are_loud(script: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "java", monkeypatch, script)
    with pytest.raises(InputError, match=message):
        score(processes=1)


def test_a_stop_keeps_what_is_scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """The second batch fails; the first is kept."""
    monkeypatch.setattr(meteor_java, "BATCH", 10)
    fake_java(tmp_path / "answers", monkeypatch, ANSWER)
    requests = [f"SCORE ||| a dog ||| word {k}" for k in range(20)]
    meteor_java.scores(requests[:10], 1)
    fake_java(tmp_path / "fails", monkeypatch, "exit 3")
    with pytest.raises(InputError, match="ended with status"):
        meteor_java.scores(requests, 1)
    assert meteor_java.scores(requests[:10], 1) == [0.25] * 10


def test_without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match="meteor_java needs Java -> install a Java runtime"):
        score()
