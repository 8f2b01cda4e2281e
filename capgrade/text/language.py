"""What measures must know of captions' language: whether its script has spaces, and whether it is
English."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from capgrade.schemas.say import warn
from capgrade.text.tokens import UNSPACED, Words

_UNSPACED_CHARACTER = re.compile(f"[{UNSPACED}]")
# These are frequent in English and in no other European language: a third of the words of English
# captions, none of German ones.
_ENGLISH = frozenset(
    [
        "a",
        "the",
        "of",
        "with",
        "and",
        "is",
        "are",
        "to",
        "his",
        "her",
        "its",
        "by",
        "from",
        "while",
        "their",
        "into",
    ],
)
# What is known of such captions: English ones, such as labels, may have none of these words too.
NO_ENGLISH = "none of the words that tell English (a, the, of, with, and, ...)"
# The largest share of captions without these words that counts as English. It is .027 in Flickr30K,
# .035 in Flickr8k, and .997 in German Flickr30K.
MOST_OTHER = 0.15
_FEW = 40  # Of fewer captions, more than half must be without these words.
_FIRST = 50  # words of each caption that are looked at


def warn_of_scripts(texts: Sequence[str], tokenizer: str) -> None:
    """Warn when the tokenizer would make one token of a caption in a script without spaces."""
    unspaced = 0
    for text in texts:
        # Most texts are ASCII, which is known without a look at their characters.
        if not text.isascii():
            unspaced += len(_UNSPACED_CHARACTER.findall(text)) > len(text) / 4
    if unspaced and tokenizer != "characters":
        warn(
            f"{unspaced} of {len(texts)} captions are in a script without spaces, which tokenizer"
            f" {tokenizer} makes one token a phrase of: measures of common words are then 0 -> use"
            " the tokenizer characters (captions: --tokenizer, score: --set score.tokenizer=,"
            " Python: tokenizer=), or put spaces between the words (jieba, fugashi, pythainlp) and"
            " use lower_split"
        )


def count_without_english(texts: Iterable[str]) -> int:
    """How many texts have none of the words that tell English among their first _FIRST words."""
    return sum(_ENGLISH.isdisjoint(text.lower().split()[:_FIRST]) for text in texts)


def describe_other_language(captions: Words, most: float = MOST_OTHER) -> str | None:
    """A note on the number of captions without a word that tells English among their first _FIRST
    words, where they are more than the share `most` of all; else None."""
    english = np.array([word.lower() in _ENGLISH for word in captions.vocabulary], bool)
    counts_before = np.concatenate([[0], np.cumsum(english[captions.word])])
    start, end = captions.ptr[:-1], captions.ptr[1:]
    first = np.minimum(start + _FIRST, end)
    without = int((counts_before[first] == counts_before[start]).sum())
    # Single English captions may be without, such as "red bus!".
    if len(start) < _FEW:
        most = max(most, 0.5)
    if without <= most * len(start):
        return None
    return f"{without:,} of {len(start):,} captions have {NO_ENGLISH}"


def warn_unless_english(what: str, captions: Words) -> None:
    """Warn when a measure that is made for English is fitted to captions of which many are in
    another language. `what` names the measure."""
    if note := describe_other_language(captions):
        warn(
            f"{what} is made for English, and {note}: its values mean little for them -> use"
            " measures of common words, or sbert with a model for the language"
        )
