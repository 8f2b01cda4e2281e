"""What measures must know of captions' language: whether its script has spaces, and whether it is
English."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from capgrade.schemas.captions import Captions
from capgrade.schemas.say import warn

# Scripts without spaces between words: Thai, Lao, Tibetan, Burmese, Khmer, kana, Han.
UNSPACED = (
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff"
    "\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_UNSPACED_CHARACTER = re.compile(f"[{UNSPACED}]")
# These are frequent in English and in no other European language: a third of the words of English
# captions, none of German ones.
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
    ],
)
# The largest share of captions without these words that counts as English. It is .027 in Flickr30K,
# .035 in Flickr8k, and .997 in German Flickr30K.
MOST_OTHER = 0.15
_FEW = 40  # Of fewer captions, more than half must be without these words.
_FIRST = 50  # words of each caption that are looked at


def warn_of_scripts(texts: Sequence[str], tokenizer: str) -> None:
    """Warn when the tokenizer would make one token of a caption in a script without spaces."""
    unspaced = sum(1 for text in texts if len(_UNSPACED_CHARACTER.findall(text)) > len(text) / 4)
    if unspaced and tokenizer != "characters":
        warn(
            f"{unspaced} of {len(texts)} captions are in a script without spaces, which tokenizer"
            f" {tokenizer} makes one token a phrase of: measures of common words are then 0 -> use"
            " the tokenizer characters (captions: --tokenizer, score: --set score.tokenizer=,"
            " Python: tokenizer=), or put spaces between the words (jieba, fugashi, pythainlp) and"
            " use lower_split"
        )


def count_without_english(texts: Iterable[str]) -> int:
    """How many texts have no common English word among their first _FIRST words."""
    common = set(_ENGLISH.to_pylist())
    return sum(common.isdisjoint(text.lower().split()[:_FIRST]) for text in texts)


def describe_other_language(captions: Captions, most: float = MOST_OTHER) -> str | None:
    """A note on the number of captions without a common English word among their first _FIRST
    words, where they are more than the share `most` of all; else None."""
    words, start = captions.tokens()
    english = pc.is_in(pc.utf8_lower(words.dictionary), value_set=_ENGLISH).to_numpy(
        zero_copy_only=False
    )
    counts_before = np.concatenate([[0], np.cumsum(english[words.indices.to_numpy()])])
    without = int(
        (
            counts_before[np.minimum(start[:-1] + _FIRST, start[1:])] == counts_before[start[:-1]]
        ).sum()
    )
    # Single English captions may be without, such as "red bus!".
    few = captions.n_captions < _FEW
    if without <= (max(most, 0.5) if few else most) * captions.n_captions:
        return None
    return f"{without:,} of {captions.n_captions:,} captions have no common English word"


def warn_unless_english(what: str, captions: Captions) -> None:
    """Warn when a measure that is made for English is fitted to captions of which many are in
    another language. `what` names the measure."""
    if note := describe_other_language(captions):
        warn(
            f"{what} is made for English, and {note}: its values mean little for them -> use"
            " measures of common words, or sbert with a model for the language"
        )
