"""English stems as METEOR's jar has them: M. Porter's English stemmer ("Porter2") of 2010.

https://snowballstem.org/algorithms/english/stemmer.html; later versions of Snowball have other
stems.
"""

import re

_V = "aeiouy"
_DOUBLE = re.compile(r"(bb|dd|ff|gg|mm|nn|pp|rr|tt)$")
_REGION = re.compile(r"[aeiouy][^aeiouy]")
_FIRST = re.compile(r"gener|commun|arsen")  # prefixes behind which the region begins
_SHORT_END = re.compile(rf"([^{_V}][{_V}][^{_V}wxY]|^[{_V}][^{_V}])$")
_WHOLE = {
    "skis": "ski",
    "skies": "sky",
    "dying": "die",
    "lying": "lie",
    "tying": "tie",
    "idly": "idl",
    "gently": "gentl",
    "ugly": "ugli",
    "early": "earli",
    "only": "onli",
    "singly": "singl",
    **{word: word for word in ("sky", "news", "howe", "atlas", "cosmos", "bias", "andes")},
}
_AFTER_S = {"inning", "outing", "canning", "herring", "earring", "proceed", "exceed", "succeed"}
# Endings and what replaces them, in the first region; the longest that fits is looked at alone.
_STEP2 = {
    "tional": "tion",
    "enci": "ence",
    "anci": "ance",
    "abli": "able",
    "entli": "ent",
    "izer": "ize",
    "ization": "ize",
    "ational": "ate",
    "ation": "ate",
    "ator": "ate",
    "alism": "al",
    "aliti": "al",
    "alli": "al",
    "fulness": "ful",
    "ousli": "ous",
    "ousness": "ous",
    "iveness": "ive",
    "iviti": "ive",
    "biliti": "ble",
    "bli": "ble",
    "ogi": "og",
    "fulli": "ful",
    "lessli": "less",
    "li": "",
}
_STEP3 = {
    "tional": "tion",
    "ational": "ate",
    "alize": "al",
    "icate": "ic",
    "iciti": "ic",
    "ical": "ic",
    "ful": "",
    "ness": "",
    "ative": "",
}
_STEP4 = (
    "al",
    "ance",
    "ence",
    "er",
    "ic",
    "able",
    "ible",
    "ant",
    "ement",
    "ment",
    "ent",
    "ism",
    "ate",
    "iti",
    "ous",
    "ive",
    "ize",
    "ion",
)


def stem(word: str) -> str:
    """The stem of a word in lower case. Words of one or two letters are their own."""
    if word in _WHOLE:
        return _WHOLE[word]
    if len(word) <= 2:
        return word
    word, marked = re.subn(rf"(^|[{_V}])y", r"\1Y", word.removeprefix("'"))  # Y: a consonant
    first = _FIRST.match(word)
    r1 = first.end() if first else _region_start(word, 0)
    r2 = _region_start(word, r1)
    word = _without_plural(word)
    if word in _AFTER_S:  # without a y
        return word
    word = _without_past(word, r1)
    if re.search(rf".[^{_V}][yY]$", word):
        word = word[:-1] + "i"
    word = _without_suffix(word, r1, r2)
    if word.endswith("e"):
        short = _SHORT_END.search(word[:-1])
        if len(word) > r2 or (len(word) > r1 and not short):
            word = word[:-1]
    elif word.endswith("ll") and len(word) > r2:
        word = word[:-1]
    return word.replace("Y", "y") if marked else word


def _region_start(word: str, start: int) -> int:
    """Where the region begins: behind the first consonant after a vowel."""
    match = _REGION.search(word, start)
    return match.end() if match else len(word)


def _ending(word: str, endings: object) -> str:
    """The longest of these that the word ends with; "" where none does."""
    return max((end for end in endings if word.endswith(end)), key=len, default="")  # type: ignore[attr-defined]


def _without_plural(word: str) -> str:
    """Steps 0 and 1a."""
    cut = _ending(word, ("'", "'s", "'s'"))
    word = word[: len(word) - len(cut)]
    end = _ending(word, ("sses", "ied", "ies", "us", "ss", "s"))
    if end == "sses":
        return word[:-2]
    if end in ("ied", "ies"):
        return word[:-2] if len(word) > 4 else word[:-1]
    if end == "s" and re.search(f"[{_V}]", word[:-2]):
        return word[:-1]
    return word


def _without_past(word: str, r1: int) -> str:
    """Step 1b."""
    end = _ending(word, ("eed", "eedly", "ed", "edly", "ing", "ingly"))
    base = word[: len(word) - len(end)]
    if not end:
        return word
    if end in ("eed", "eedly"):
        return base + "ee" if len(base) >= r1 else word
    if not re.search(f"[{_V}]", base):
        return word
    if base.endswith(("at", "bl", "iz")):
        return base + "e"
    if _DOUBLE.search(base):
        return base[:-1]
    return base + "e" if len(base) <= r1 and _SHORT_END.search(base) else base


def _without_suffix(word: str, r1: int, r2: int) -> str:
    """Steps 2, 3 and 4."""
    end = _ending(word, _STEP2)
    at = len(word) - len(end)
    before = word[:at]
    if (
        end
        and at >= r1
        and (end != "ogi" or before.endswith("l"))
        and (end != "li" or before[-1:] in "cdeghkmnrt")
    ):
        word = before + _STEP2[end]
    end = _ending(word, _STEP3)
    at = len(word) - len(end)
    if end and at >= (r2 if end == "ative" else r1):
        word = word[:at] + _STEP3[end]
    end = _ending(word, _STEP4)
    at = len(word) - len(end)
    return (
        word[:at] if end and at >= r2 and (end != "ion" or word[:at].endswith(("s", "t"))) else word
    )
