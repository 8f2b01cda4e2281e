import numpy as np
import pytest
from conftest import make_captions

from schemas.errors import InputError
from trainer.text import END, FIRST, START, UNKNOWN, WordPieces, Words, load_tokens


def test_words_are_numbered_by_how_often_they_come():
    captions = make_captions([["b a", "a c"], ["a b"]])
    words = Words.fit(captions)
    assert words.words == ("a", "b", "c")
    assert [row.tolist() for row in words.encode(captions)] == [
        [START, FIRST + 1, FIRST, END], [START, FIRST, FIRST + 2, END], [START, FIRST, FIRST + 1, END],
    ]  # fmt: skip


def test_rare_words_and_words_of_other_rows_are_unknown():
    captions = make_captions([["b a", "a c"], ["a b"]])
    assert Words.fit(captions, min_count=2).words == ("a", "b")
    assert Words.fit(captions, rows=np.array([1])).words == ("a", "c")
    assert Words.fit(captions, 2).encode_texts(["C a zebra"])[0].tolist() == [START, UNKNOWN, FIRST, UNKNOWN, END]
    with pytest.raises(InputError, match="no word comes 9 times"):
        Words.fit(captions, 9)


def test_both_kinds_come_back_from_their_file(tmp_path):
    words = Words.fit(make_captions([["b a", "a c"]]))
    pieces = WordPieces("all-MiniLM-L6-v2")
    for k, tokens in enumerate((words, pieces)):
        tokens.save(tmp_path / f"{k}.json")
        assert load_tokens(tmp_path / f"{k}.json") == tokens
    (tmp_path / "x.json").write_text("[1]")
    with pytest.raises(InputError, match="not a vocabulary"):
        load_tokens(tmp_path / "x.json")


def test_word_pieces_have_their_special_ones():
    pieces = WordPieces("all-MiniLM-L6-v2")
    row = pieces.encode_texts(["a dog"])[0]
    assert len(row) == 4 and row.max() < pieces.size
