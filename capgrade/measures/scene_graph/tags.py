"""Parts of speech of a caption's words, by rules.

They look at closed classes, our lists, WordNet, and the words on either side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from capgrade.measures.scene_graph.lexicon import SceneLexicon

_LONGEST = 7  # words of a phrase of the lexicon
_BEFORE_NOUN = ("determiner", "adjective", "number")
_SAME_PLURAL = ("people", "sheep", "cattle", "deer", "fish")


class Tagged(NamedTuple):
    """A word, or several that are one: its base form, its part of speech, and a detail.

    The detail of a noun is "plural" or "", of a verb "base", "s", "ing" or "ed".
    """

    base: str
    tag: str  # noun, verb, adjective, number, preposition, or a closed class
    detail: str = ""


def tag(words: Sequence[str], lexicon: SceneLexicon) -> list[Tagged]:
    """The words of one caption, lower-case tokens, with their parts of speech.

    Those without a letter or digit are dropped.
    """
    joined = _join_words([word for word in words if any(char.isalnum() for char in word)], lexicon)
    tagged: list[Tagged] = []
    for k, part in enumerate(joined):
        following = joined[k + 1] if k + 1 < len(joined) else ""
        tagged += (
            [part] if isinstance(part, Tagged) else _open_class(part, tagged, following, lexicon)
        )
    return tagged


def _join_words(words: list[str], lexicon: SceneLexicon) -> list[str | Tagged]:
    """The words, with phrases, nouns of several words and closed classes tagged."""
    parts: list[str | Tagged] = []
    at = 0
    while at < len(words):
        phrase = next(
            (n for n in range(_LONGEST, 1, -1) if tuple(words[at : at + n]) in lexicon.phrases), 0
        )
        if phrase and at + phrase <= len(words):
            parts += _phrase(lexicon.phrases[tuple(words[at : at + phrase])], lexicon)
            at += phrase
            continue
        noun = next(
            (
                n
                for n in (3, 2)
                if at + n <= len(words) and _is_one_noun(words[at : at + n], lexicon)
            ),
            0,
        )
        if noun:
            parts.append(_compound_noun(words[at : at + noun], lexicon))
            at += noun
            continue
        parts.append(_closed_class(words[at], lexicon) or words[at])
        at += 1
    return parts


def _phrase(meaning: str, lexicon: SceneLexicon) -> list[Tagged]:
    if not meaning:
        return [Tagged("", "determiner")]
    if meaning == "and":
        return [Tagged("and", "conjunction")]
    words = meaning.split()
    if words[0] in lexicon.numbers:
        return [
            Tagged(lexicon.numbers[words[0]], "number"),
            *(Tagged(w, "noun", "plural") for w in words[1:]),
        ]
    if meaning in lexicon.attributes:
        return [Tagged(lexicon.attributes[meaning], "adjective")]
    return [Tagged(meaning, "preposition")]


def _is_one_noun(words: Sequence[str], lexicon: SceneLexicon) -> bool:
    """Whether the words are one noun, singular or plural.

    WordNet has "little girl" and "white man" too, which are objects with attributes here.
    """
    text = " ".join(_singular(words, lexicon))
    if text in lexicon.nouns.concept or " ".join(words) in lexicon.nouns.concept:
        return True
    first = words[0]
    if (
        first in lexicon.attributes
        or first in lexicon.closed
        or first in lexicon.numbers
        or len(words) > 2
    ):
        return False
    last = words[-1]
    return last not in lexicon.closed and "noun" in lexicon.wordnet.kinds(" ".join(text.split()))


def _singular(words: Sequence[str], lexicon: SceneLexicon) -> list[str]:
    noun = lexicon.noun(words[-1])
    return [*words[:-1], noun[0] if noun else words[-1]]


def _compound_noun(words: Sequence[str], lexicon: SceneLexicon) -> Tagged:
    text = " ".join(words)
    single = " ".join(_singular(words, lexicon))
    listed = text in lexicon.nouns.concept
    return Tagged(text if listed else single, "noun", "" if listed or text == single else "plural")


def _closed_class(word: str, lexicon: SceneLexicon) -> Tagged | None:
    if word in lexicon.closed:
        return Tagged(word, lexicon.closed[word])
    if word in lexicon.numbers:
        return Tagged(lexicon.numbers[word], "number")
    if word.isdigit():
        return Tagged(word, "number")
    return None


def _open_class(
    word: str, before: Sequence[Tagged], following: str | Tagged, lexicon: SceneLexicon
) -> list[Tagged]:
    verb, noun = lexicon.verb(word), lexicon.noun(word)
    leads_noun = _may_be_noun(following, lexicon)
    if word in lexicon.attributes and (
        leads_noun or noun is None or noun[0] not in lexicon.nouns.concept
    ):
        return [Tagged(lexicon.attributes[word], "adjective")]
    as_verb = verb and _is_verb(word, verb[1], noun, before, following, lexicon)
    if verb and as_verb:
        return [Tagged(verb[0], "verb", verb[1])]
    if verb and verb[1] in ("ing", "ed") and (noun is None or noun[0] not in lexicon.nouns.concept):
        return [Tagged(word, "adjective")]
    if noun and (
        noun[0] in lexicon.nouns.concept or not (lexicon.is_adjective(word) and leads_noun)
    ):
        return [Tagged(noun[0], "noun", "plural" if noun[1] else "")]
    if word.endswith("ly") and lexicon.is_adjective(word):
        return [Tagged(word, "adverb")]
    if lexicon.is_adjective(word):
        return [Tagged(word, "adjective")]
    return [Tagged(verb[0], "verb", verb[1])] if verb else [Tagged(word, "noun")]


def _may_be_noun(following: str | Tagged, lexicon: SceneLexicon) -> bool:
    if isinstance(following, Tagged):
        return following.tag == "noun"
    verb = lexicon.verb(following)
    if verb and verb[1] == "ing" and lexicon.is_listed_verb(following):
        return False
    return bool(following) and (
        lexicon.noun(following) is not None or following in lexicon.attributes
    )


def _is_verb(
    word: str,
    form: str,
    noun: tuple[str, bool] | None,
    before: Sequence[Tagged],
    following: str | Tagged,
    lexicon: SceneLexicon,
) -> bool:
    """Whether a word that can be a verb is one here."""
    last = before[-1] if before else Tagged("", "")
    leads_noun = _may_be_noun(following, lexicon)
    is_object = noun is not None and noun[0] in lexicon.nouns.concept
    if form in ("ing", "ed"):
        if last.tag in _BEFORE_NOUN and (leads_noun or is_object):
            return False
        if is_object and last.tag in ("preposition", ""):
            return False
        return not (form == "ed" and leads_noun and last.tag in ("preposition", "", "conjunction"))
    if noun is None:
        return last.tag not in _BEFORE_NOUN or not lexicon.is_adjective(word)
    if form == "s":
        return (
            last.tag == "noun"
            and not last.detail
            and lexicon.is_listed_verb(word)
            and not leads_noun
        )
    if last.base == "to" or last.tag in ("auxiliary", "pronoun"):
        return lexicon.is_listed_verb(word) and not (is_object and last.base != "to")
    plural = last.tag == "noun" and (last.detail == "plural" or last.base in _SAME_PLURAL)
    return plural and lexicon.is_listed_verb(word)
