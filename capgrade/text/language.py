"""What captions are written in, as far as a measure must know: scripts without spaces, and whether
it is English."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from capgrade.schemas.captions import Captions
from capgrade.schemas.say import warn

# Thai, Lao, Tibetan, Burmese, Khmer, kana, Han: written without spaces between words.
TOGETHER = (
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff"
    "\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_ONE = re.compile(f"[{TOGETHER}]")
# Frequent in English, and in no other language of Europe: a third of the words of captions, none of
# German ones.
_ENGLISH = pa.array(
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
    ]
)
# of captions without any of these; Flickr30K .027, Flickr8k .035, German Flickr30K .997
MOST_OTHER = 0.15
_FEW = 40  # captions, of which more than half have to be without
_FIRST = 50  # words of each caption that are looked at


def warn_of_scripts(texts: Sequence[str], tokenizer: str) -> None:
    """Say so when captions in a script without spaces are about to become one token each."""
    found = sum(1 for text in texts if len(_ONE.findall(text)) > len(text) / 4)
    if found and tokenizer != "characters":
        warn(
            f"{found} of {len(texts)} captions are in a script without spaces, which tokenizer"
            f" {tokenizer} makes one token a phrase of: measures of common words are then 0 -> use"
            " the tokenizer characters (captions: --tokenizer, score: --set score.tokenizer=,"
            " Python: tokenizer=), or put spaces between the words (jieba, fugashi, pythainlp) and"
            " use lower_split"
        )


def count_without_english(texts: Iterable[str]) -> int:
    """How many texts have no common English word among their FIRST ones."""
    common = set(_ENGLISH.to_pylist())
    return sum(common.isdisjoint(text.lower().split()[:_FIRST]) for text in texts)


def not_english(captions: Captions, most: float = MOST_OTHER) -> str | None:
    """How many captions have no common English word among their FIRST ones, where they are more
    than a share of all; None where they are not."""
    words, start = captions.tokens()
    english = pc.is_in(pc.utf8_lower(words.dictionary), value_set=_ENGLISH).to_numpy(
        zero_copy_only=False
    )
    before = np.concatenate([[0], np.cumsum(english[words.indices.to_numpy()])])
    without = int((before[np.minimum(start[:-1] + _FIRST, start[1:])] == before[start[:-1]]).sum())
    few = captions.n_captions < _FEW  # "a red bus", "red bus!" are English
    if without <= (max(most, 0.5) if few else most) * captions.n_captions:
        return None
    return f"{without:,} of {captions.n_captions:,} captions have no common English word"


def warn_unless_english(what: str, captions: Captions) -> None:
    """Say so when a measure that knows English alone is fitted on captions of which many are in
    another language."""
    if found := not_english(captions):
        warn(
            f"{what} is made for English, and {found}: its values mean little for them -> use"
            " measures of common words, or sbert with a model for the language"
        )
