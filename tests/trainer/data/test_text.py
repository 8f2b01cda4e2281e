"""Captions as numbers, by hand."""

import json

import numpy as np
import pytest

from capgrade.schemas.errors import InputError
from capgrade.trainer.data.text import ModelTokens, Vocabulary, load_tokens
from capgrade.trainer.models.base import END_TOKEN as END
from capgrade.trainer.models.base import FIRST_WORD as FIRST
from capgrade.trainer.models.base import START_TOKEN as START
from capgrade.trainer.models.base import UNKNOWN_WORD as UNKNOWN
from tests.conftest import make_captions


def test_the_most_frequent_words_come_first_ties_by_letter():
    captions = make_captions([["c b a", "a b"], ["a"]])
    words = Vocabulary.fit(captions)
    assert (words.words, words.size) == (("a", "b", "c"), FIRST + 3)
    assert [row.tolist() for row in words.encode(captions)] == [
        [START, FIRST + 2, FIRST + 1, FIRST, END],
        [START, FIRST, FIRST + 1, END],
        [START, FIRST, END],
    ]


def test_rare_words_and_those_of_other_rows_are_unknown():
    captions = make_captions([["c b a", "a b"], ["a"]])
    words = Vocabulary.fit(captions, min_count=2)
    assert words.words == ("a", "b")
    assert words.encode(captions)[0].tolist() == [START, UNKNOWN, FIRST + 1, FIRST, END]
    assert Vocabulary.fit(captions, rows=np.array([1, 2])).words == ("a", "b")
    with pytest.raises(InputError, match="no word comes 4 times -> lower train.min_count"):
        Vocabulary.fit(captions, 4)


def test_free_text_is_cut_as_the_table_was():
    words = Vocabulary.fit(make_captions([["a dog"], ["a cat"]]))
    assert (
        words.encode_texts(["A DOG", "", "zebra"])[0].tolist()
        == words.encode_texts(["a dog"])[0].tolist()
    )
    assert [row.tolist() for row in words.encode_texts(["", "zebra"])] == [
        [START, END],
        [START, UNKNOWN, END],
    ]


def test_both_kinds_come_back_from_their_file(tmp_path):
    for k, tokens in enumerate(
        [Vocabulary.fit(make_captions([["a ü"]])), ModelTokens("all-MiniLM-L6-v2")]
    ):
        tokens.save(tmp_path / f"{k}.json")
        assert load_tokens(tmp_path / f"{k}.json") == tokens
    (tmp_path / "other.json").write_text(json.dumps({"words": ["a"]}))
    with pytest.raises(InputError, match="other.json: not a vocabulary"):
        load_tokens(tmp_path / "other.json")
