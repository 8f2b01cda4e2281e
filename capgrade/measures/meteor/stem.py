"""The English Snowball stemmer ("Porter2") as METEOR 1.5 carries it.

Algorithm: snowballstem.org/algorithms/english/stemmer.html, of the time before `past` and `-ogist` were added.
"""

from __future__ import annotations

VOWELS = frozenset("aeiouy")  # "Y" stands for a y that is a consonant
_WHOLE = {
    "skis": "ski", "skies": "sky", "dying": "die", "lying": "lie", "tying": "tie", "idly": "idl", "gently": "gentl",
    "ugly": "ugli", "early": "earli", "only": "onli", "singly": "singl", "sky": "sky", "news": "news", "howe": "howe",
    "atlas": "atlas", "cosmos": "cosmos", "bias": "bias", "andes": "andes",
}  # fmt: skip
_AFTER_1A = frozenset(["inning", "outing", "canning", "herring", "earring", "proceed", "exceed", "succeed"])
_DOUBLES = ("bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt")
_STEP_2 = {
    "tional": "tion", "enci": "ence", "anci": "ance", "abli": "able", "entli": "ent", "izer": "ize",
    "ization": "ize", "ational": "ate", "ation": "ate", "ator": "ate", "alism": "al", "aliti": "al", "alli": "al",
    "fulness": "ful", "ousli": "ous", "ousness": "ous", "iveness": "ive", "iviti": "ive", "biliti": "ble",
    "bli": "ble", "ogi": "og", "fulli": "ful", "lessli": "less", "li": "",
}  # fmt: skip
_STEP_3 = {
    "tional": "tion", "ational": "ate", "alize": "al", "icate": "ic", "iciti": "ic", "ical": "ic", "ful": "",
    "ness": "", "ative": "",
}  # fmt: skip
_STEP_4 = [
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ism", "ate", "iti", "ous",
    "ive", "ize", "ion",
]  # fmt: skip


def stem(word: str) -> str:
    """The stem of a lower-case word."""
    if word in _WHOLE:
        return _WHOLE[word]
    if len(word) < 3:
        return word
    word = _consonant_ys(word.removeprefix("'"))
    r1, r2 = _regions(word)
    word = _step_1a(word)
    if word not in _AFTER_1A:
        word = _step_1c(_step_1b(word, r1))
        word = _step_2(word, r1)
        word = _step_3(word, r1, r2)
        word = _step_4(word, r2)
        word = _step_5(word, r1, r2)
    return word.replace("Y", "y")


def _consonant_ys(word: str) -> str:
    out: list[str] = []
    for k, letter in enumerate(word):
        out.append("Y" if letter == "y" and (k == 0 or out[-1] in VOWELS) else letter)
    return "".join(out)


def _regions(word: str) -> tuple[int, int]:
    """Where R1 and R2 begin: behind the first consonant after a vowel, once and again."""
    start = next((len(begin) for begin in ("gener", "commun", "arsen") if word.startswith(begin)), None)
    r1 = _behind_vowel_consonant(word, 0) if start is None else start
    return r1, _behind_vowel_consonant(word, r1)


def _behind_vowel_consonant(word: str, start: int) -> int:
    for k in range(start + 1, len(word)):
        if word[k] not in VOWELS and word[k - 1] in VOWELS:
            return k + 1
    return len(word)


def _step_1a(word: str) -> str:
    word = next((word[: -len(s)] for s in ("'s'", "'s", "'") if word.endswith(s)), word)
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith(("ied", "ies")):
        return word[:-2] if len(word) > 4 else word[:-1]
    if word.endswith("s") and not word.endswith(("us", "ss")):
        return word[:-1] if _has_vowel(word[:-2]) else word
    return word


def _has_vowel(part: str) -> bool:
    return not VOWELS.isdisjoint(part)


def _step_1b(word: str, r1: int) -> str:
    suffix = next((s for s in ("eedly", "ingly", "edly", "eed", "ing", "ed") if word.endswith(s)), "")
    if not suffix:
        return word
    rest = word[: -len(suffix)]
    if suffix in ("eed", "eedly"):
        return rest + "ee" if len(rest) >= r1 else word
    if not _has_vowel(rest):
        return word
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if rest.endswith(_DOUBLES):
        return rest[:-1]
    return rest + "e" if r1 >= len(rest) and _ends_short(rest) else rest


def _ends_short(word: str) -> bool:
    """Ends with consonant, vowel, consonant other than w, x, Y; or is a vowel and a consonant."""
    if len(word) < 2 or word[-1] in VOWELS or word[-2] not in VOWELS:
        return False
    return len(word) == 2 or (word[-1] not in "wxY" and word[-3] not in VOWELS)


def _step_1c(word: str) -> str:
    return word[:-1] + "i" if len(word) > 2 and word[-1] in "yY" and word[-2] not in VOWELS else word


def _longest(word: str, suffixes: list[str] | dict[str, str]) -> str:
    return max((s for s in suffixes if word.endswith(s)), key=len, default="")


def _step_2(word: str, r1: int) -> str:
    suffix = _longest(word, _STEP_2)
    rest = word[: len(word) - len(suffix)]
    if not suffix or len(rest) < r1:
        return word
    if suffix == "ogi" and not rest.endswith("l"):
        return word
    if suffix == "li" and not rest.endswith(tuple("cdeghkmnrt")):
        return word
    return rest + _STEP_2[suffix]


def _step_3(word: str, r1: int, r2: int) -> str:
    suffix = _longest(word, _STEP_3)
    rest = word[: len(word) - len(suffix)]
    if not suffix or len(rest) < (r2 if suffix == "ative" else r1):
        return word
    return rest + _STEP_3[suffix]


def _step_4(word: str, r2: int) -> str:
    suffix = _longest(word, _STEP_4)
    rest = word[: len(word) - len(suffix)]
    if not suffix or len(rest) < r2 or (suffix == "ion" and not rest.endswith(("s", "t"))):
        return word
    return rest


def _step_5(word: str, r1: int, r2: int) -> str:
    rest = word[:-1]
    if word.endswith("e"):
        return rest if len(rest) >= r2 or (len(rest) >= r1 and not _ends_short(rest)) else word
    return rest if word.endswith("l") and len(rest) >= r2 and rest.endswith("l") else word
