"""METEOR's paraphrase table as arrays: what a loop over its lines finds; kept; damage and broken entries."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from capgrade.measures.meteor import paraphrases
from capgrade.measures.meteor.paraphrases import Paraphrases, compiled, occurring_pairs
from capgrade.schemas.errors import InputError

TABLE = [("a dog", "the dog"), ("dog", "hound"), ("a dog", "a hound"), ("the", "a"), ("dog", "a dog")]
TEXT = "".join(f"0.5\n{a}\n{b}\n" for a, b in TABLE)


def test_pairs_are_those_of_a_loop() -> None:
    sentences = [["a", "dog", "runs"], ["the", "hound"], ["dog", "a"]]
    words = sorted({w for s in sentences for w in s})
    ptr = np.array([0, 3, 5, 7])
    word = np.array([words.index(w) for s in sentences for w in s], np.int32)
    table = compiled(TEXT.encode())
    at, pairs = occurring_pairs(table, words, ptr, word)
    flat = [w for s in sentences for w in s]
    texts = {at[i, k]: " ".join(flat[i : i + k + 1]) for i, k in zip(*np.nonzero(at >= 0), strict=True)}
    here = {" ".join(s[i:j]) for s in sentences for i in range(3) for j in range(i + 1, 4)}
    wanted = [(a, b) for a, b in sorted(TABLE, key=lambda pair: len(pair[0].split())) if {a, b} <= here]
    found = [(texts[p], texts[q]) for p, q, _ in sorted(pairs.tolist(), key=lambda row: row[2])]
    assert found == wanted and wanted


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
