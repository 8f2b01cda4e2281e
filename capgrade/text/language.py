"""What captions are written in, as far as a measure must know: scripts without spaces, and whether it is English."""

from __future__ import annotations

import re
from collections.abc import Sequence

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
# Frequent in English, and in no other language of Europe: a third of the words of captions, none of German ones.
_ENGLISH = pa.array(
    ["a", "the", "of", "with", "and", "is", "are", "to", "his", "her", "its", "by", "from", "while", "their", "into"]
)
LEAST_ENGLISH = 0.05  # of the words; COCO 0.32, Flickr8k 0.28, German Flickr30K 0.0001
SAMPLE, FIRST = 20_000, 50  # captions looked at, and words of each: a long one does not outweigh the others


def warn_of_scripts(texts: Sequence[str], tokenizer: str) -> None:
    """Say so when captions in a script without spaces are about to become one token each."""
    found = sum(1 for text in texts if len(_ONE.findall(text)) > len(text) / 4)
    if found and tokenizer != "characters":
        warn(
            f"{found} of {len(texts)} captions are in a script without spaces, which tokenizer {tokenizer} makes one "
            "token a phrase of: measures of common words are then 0 -> use --tokenizer characters, or put spaces "
            "between the words (jieba, fugashi, pythainlp) and use lower_split"
        )


def english_share(captions: Captions) -> float:
    """Share of the words of the first SAMPLE captions that are common English ones; LEAST_ENGLISH or more: English."""
    words = pc.list_slice(captions.table["tokens"].slice(0, SAMPLE).combine_chunks(), 0, FIRST).flatten()
    return float(pc.mean(pc.is_in(pc.utf8_lower(words), value_set=_ENGLISH)).as_py()) if len(words) else 0.0


def warn_unless_english(what: str, captions: Captions) -> None:
    """Say so when a measure that knows English alone is fitted on captions in another language."""
    share = english_share(captions)
    if share < LEAST_ENGLISH:
        warn(
            f"{what} is made for English, and of the captions' words {share:.1%} are common English ones: its values "
            "mean little here -> use measures of common words, or sbert with a model for the language"
        )
