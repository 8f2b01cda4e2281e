"""METEOR's own tokens: the normalisation that `-norm` switches on, for English, with punctuation.

It runs on the caption's tokens joined by spaces, as pycocoevalcap hands them over, and may split
them once more ("dog 's" becomes "dog ' s"). `docs/measures.md` has how equal it was measured to be.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from capgrade.text.tokens import Words, retokenize

_ALPHA = "A-Za-zŠŽšžŸÀ-ÖØ-öø-žЀ-ӿԀ-ԧꙀ-ꙮ꙾-ꚗᴀ-ᵿ"
_PLAIN = re.compile("[a-z0-9 ]*")  # what nothing below changes
_STEPS = [
    (rf"([^0-9{_ALPHA} \t\n\x0b\f\r.'`,\-‘’])", r" \1 "),
    (r"\.(\.+)", r" DOTMULTI\1"),
]
_MORE_DOTS = re.compile(r"DOTMULTI\.([^.])")
_LATER_STEPS = [
    (r"([^0-9]),([^0-9])", r"\1 , \2"),
    (r"([0-9]),([^0-9])", r"\1 , \2"),
    (r"([^0-9]),([0-9])", r"\1 , \2"),
    (r"[`‘’]", "'"),
    (r"[“”]|''", ' " '),
    (r"–", "-"),
    (r"--", "-"),
    (rf"([0-9{_ALPHA}.])-([0-9{_ALPHA}])", r"\1 \2"),
    (rf"([^{_ALPHA}])'([^{_ALPHA}])", r"\1 ' \2"),
    (rf"([^{_ALPHA}0-9])'([{_ALPHA}])", r"\1 ' \2"),
    (rf"([{_ALPHA}])'([^{_ALPHA}])", r"\1 ' \2"),
    (rf"([{_ALPHA}])'([{_ALPHA}])", r"\1 '\2"),
    (r"([0-9])'(s)", r"\1 '\2"),
]
_HAS_LETTER = re.compile(f"[{_ALPHA}]")
_SPACES = re.compile("[ \u2000-\u200a\u202f\u205f\u3000\xa0]+")
_BREAKS = re.compile("[ \t\n\r\f]+")
_BLANK = "".join(map(chr, range(33)))
# Tokens that METEOR reads alike in any sentence of such tokens.
_ALONE = re.compile("[a-z0-9]+(?:['-][a-z0-9]+)*|'[a-z]+")


def as_meteor_reads(tokens: Words, prefixes: Mapping[str, bool]) -> Words:
    """METEOR's words of sentences of tokens; `prefixes` are as `meteor_words` takes them.

    Most tokens give the same words in any sentence, and are read once.
    """
    return retokenize(
        tokens, _words_of_token, lambda row: meteor_words(" ".join(tokens.sentence(row)), prefixes)
    )


@lru_cache(maxsize=1 << 16)
def _words_of_token(token: str) -> tuple[str, ...] | None:
    """The words of a token that gives the same ones in any sentence; None for another token."""
    return tuple(meteor_words(token, {})) if _ALONE.fullmatch(token) else None


def meteor_words(tokens: str, prefixes: Mapping[str, bool]) -> list[str]:
    """The words of a line of tokens.

    `prefixes` are abbreviations after which a period ends no sentence, true where that holds only
    before a number.
    """
    if _PLAIN.fullmatch(tokens):
        return tokens.split()
    line = f" {tokens} "
    for pattern, replacement in _STEPS:
        line = re.sub(pattern, replacement, line)
    while "DOTMULTI." in line:
        line = _MORE_DOTS.sub(r"DOTDOTMULTI \1", line).replace("DOTMULTI.", "DOTDOTMULTI")
    for pattern, replacement in _LATER_STEPS:
        line = re.sub(pattern, replacement, line)
    words = _split(line)
    line = "".join(
        f"{_split_period(word, words[k + 1 : k + 2], prefixes)} " for k, word in enumerate(words)
    )
    while "DOTDOTMULTI" in line:
        line = line.replace("DOTDOTMULTI", "DOTMULTI.")
    return _split(_SPACES.sub(" ", line.replace("DOTMULTI", ".")).strip(_BLANK).lower())


def _split(line: str) -> list[str]:
    return [part for part in _BREAKS.split(line) if part]


def _split_period(word: str, following: list[str], prefixes: Mapping[str, bool]) -> str:
    """A word such as "u.s." or "street.", with its last period removed, kept or set apart."""
    if len(word) < 2 or not word.endswith("."):
        return word
    stem = word[:-1]
    if "." in stem and _HAS_LETTER.search(stem):
        return word.replace(".", "")
    begins = following[0][0] if following else ""
    before_number_only = prefixes.get(stem)
    if before_number_only is False or "a" <= begins <= "z":
        return word
    if before_number_only and "0" <= begins <= "9":
        return word
    return f"{stem} ."
