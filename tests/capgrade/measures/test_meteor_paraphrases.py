"""METEOR's paraphrase table as arrays: kept; damage and broken entries. What it finds: the jar in `test_scores`."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from capgrade.measures.meteor import paraphrases
from capgrade.measures.meteor.paraphrases import Paraphrases, compiled
from capgrade.schemas.errors import InputError

TABLE = [("a dog", "the dog"), ("dog", "hound"), ("a dog", "a hound"), ("the", "a"), ("dog", "a dog")]
TEXT = "".join(f"0.5\n{a}\n{b}\n" for a, b in TABLE)


@pytest.mark.parametrize("text", ["", "0.5\na dog\n", "0.5\n", TEXT + "0.5\na\n"])
def test_a_broken_entry_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=f"entry {text.count(chr(10)) // 3} of the paraphrase table is cut short"):
        compiled(text.encode())


def test_kept_and_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setenv("CAPGRADE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "paraphrases.gz"
    path.write_bytes(gzip.compress(TEXT.encode()))
    read = paraphrases.read_paraphrases.__wrapped__
    first = read(path)
    monkeypatch.setattr(paraphrases, "compiled", lambda _: pytest.fail("it was kept"))
    _same(read(path), first)
    monkeypatch.undo()
    monkeypatch.setenv("CAPGRADE_CACHE", str(tmp_path / "cache"))
    kept = sorted((tmp_path / "cache").rglob("*.npy"))
    assert len(kept) == len(Paraphrases._fields)
    kept[0].write_bytes(b"damaged")
    _same(read(path), first)
    monkeypatch.setenv("CAPGRADE_CACHE", str(path / "below a file"))
    _same(read(path), first)
    assert "cannot be kept" in capsys.readouterr().err
    path.write_bytes(b"no gzip")
    with pytest.raises(InputError, match="cannot be read"):
        read(path)


def _same(one: Paraphrases, other: Paraphrases) -> None:
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)
