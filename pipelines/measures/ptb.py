"""The Stanford PTB tokenizer of pycocoevalcap without Java: a longest-match lexer over one caption at a time.

It follows the grammar of PTBLexer (CoreNLP 3.4.1) as far as captions need it. At each position every rule is
tried and the longest match wins, counting what a rule only looks ahead at; among equals the earlier rule. A rule's
first group is the token. `pipelines/measures/tokens.py` says what is measured to be equal.
"""

from __future__ import annotations

import re
from functools import lru_cache

# A letter of the basic plane: the lexer reads UTF-16 units and drops the others.
L = r"[^\W\d_½⅓⅔¼¾⅛\U00010000-\U0010FFFF]"
LD = rf"(?:{L}|[\u00ad\u0300-\u036f]|\d)"
WORD = rf"{L}{LD}*(?:[.!?]{L}{LD}*)*"
APOS = "['’]"
END = rf"(?!{LD})"
TITLES = (
    "mr|mrs|ms|drs?|profs?|sens?|reps?|attys?|lt|col|gen|messrs|govs?|adm|rev|maj|sgt|cpl|pvt|capt|ste?|ave|pres|"
    "lieut|hon|brig|co?mdr|pfc|spc|supts?|det|jr|sr|bros|blvd|rd|esq|ed\\.d|ph\\.d|vs|etc|al|"
    "jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|mon|tues?|wed|thu|thurs|fri|"
    "inc|cos?|corp|ltd|plc|bancorp|assn|univ|intl"
)
STATES = (
    "ala|ariz|calif|colo|conn|dak|del|fla|ga|ill|ind|kans?|ky|la|mass|md|mich|minn|miss|mo|mont|neb|nev|okla|ore|"
    "pa|penn|tenn|tex|va|vt|wash|wis|wyo"
)
# Words that begin a sentence: before one, the period of a one-letter or state abbreviation is the sentence's.
STARTERS = (
    "A|About|After|An|As|At|But|Earlier|He|Her|Here|However|If|In|It|Last|Many|More|Now|Once|One|Other|Our|She|Since|"
    "So|Some|Such|That|The|Their|Then|There|These|They|This|We|When|While|What|Yet|You"
)
ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'", "nbsp": " "}

# (pattern, replacement or None for the matched text), tried case-insensitively.
_RULES: list[tuple[str, str | None]] = [
    (r"((?:https?|ftp)://[^\s\"<>|()]*[^\s\"<>|.!?(){},-])", None),
    (rf"((?:[a-z0-9][\w-]*\.)+(?:com|net|org|edu)(?:/[^\s\"<>|()]*[^\s\"<>|.!?(){{}},-])?){END}", None),
    (r"([a-z0-9][\w.-]*@(?:[\w-]+\.)+[\w-]*\w)", None),
    (r"([@#][a-z_]\w*)", None),
    (r"(</?[a-z!?][^\s>]*(?: [^>]*)?>)", None),
    (r"(&(?:amp|lt|gt|quot|apos|nbsp);)", "entity"),
    (r"([<>]?[:;=][-o*']?[()\\{@|\[\]])", "emoticon"),
    (rf"([<>]?[:;=][-o*']?[DPdpO]){END}", "upper"),
    (rf"({L}+?)n{APOS}t{END}", None),
    (rf"(n{APOS}t){END}", None),
    (rf"({WORD}|{LD}+(?:-{LD}+)*){APOS}(?:s|m|d|ll|re|ve){END}", None),
    (rf"({APOS}(?:s|m|d|ll|re|ve)){END}", None),
    (rf"(can)not{END}", None),
    (rf"(gon|wan)na{END}|(got)ta{END}|(lem|gim)me{END}", None),
    (rf"({APOS}t)(?:is|was){END}", None),
    (rf"({APOS}n(?:{APOS}|{END}))", None),
    (rf"({APOS}em){END}", None),
    (rf"(y{APOS})all{END}", None),
    (rf"([dol]{APOS}{L}{LD}*|ma{APOS}am|c{APOS}mon|{L}{APOS}{L}{{2}}{LD}*){END}", None),
    (rf"({WORD})", None),
    (rf"({LD}+(?:[-_]{LD}+)+)", None),
    (rf"({LD}+(?:-{LD}+)*(?:/{LD}+(?:-{LD}+)*)+)", None),
    (rf"(\d+{L}{LD}*)", None),
    (rf"((?:{L}\.)+{L}\.?)", None),
    (rf"({L}\.)(?!{LD})", None),
    (rf"((?:{TITLES}|{STATES})\.)(?!{LD})", None),
    (rf"({L}|(?i:{STATES}))\.\s+(?:{STARTERS})(?:\s|$)", "upper"),
    (r"(nos?\.)\s?\d", None),
    (r"([-+]?(?:\d*(?:[.:,]\d+)+|\d+))", None),
    (r"(\d{1,2}[-/]\d{1,2}[-/]\d{2,4})", None),
    (r"((?:\d{1,4}[- \xa0])?\d{1,4}/\d{1,4})", "space"),
    (r"(½|⅓|⅔|¼|¾|⅛)", "fraction"),
    (rf"({APOS}\d\ds?){END}", None),
    (r"([a-z]\+\+)", None),
    (r"([A-Z]+(?:[+&][A-Z]+)+)", "upper"),
    (r"((?:us|hk|a|c|nz|s)?\$)", None),
    (r"(£)", "#"),
    (r"(€|¤)", "$"),
    (r"(¢)", "cents"),
    (r"(-{2,}|[–—―‒])", "--"),
    (r"(\.{3,}|…)", "..."),
    (r"([!?]+)", None),
    (r"(``|''|[\"“”«»])", "''"),
    (r"([`'‘’‛‹›])", "'"),
    (r"(\*+|_+|[~^|+=\\@#°´%&;:,./$<>-])", None),
    (r"([(\[{)\]}])", "bracket"),
    (r"([^\s\w\x00-\x1f\x7f\u200b-\u200f\ufeff\ufffd\ue000-\uf8ff\U00010000-\U0010FFFF])", None),
]
_COMPILED = [(re.compile(p, 0 if kind == "upper" else re.IGNORECASE), kind) for p, kind in _RULES]
_SKIP = re.compile(r"[\s\x00-\x1f\x7f\u200b-\u200f\ufeff\ufffd\ue000-\uf8ff\U00010000-\U0010FFFF]+")
_PLAIN = re.compile(r"[a-z]+")
_SPLIT_WORDS = {"cannot", "gonna", "gotta", "wanna", "lemme", "gimme"}
_BRACKETS = {"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"}
_FRACTIONS = {"½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅛": "1/8"}
# pycocoevalcap's list; lower-cased brackets are not on it and stay.
PUNCTUATION = frozenset(
    ["''", "'", "``", "`", "-LRB-", "-RRB-", "-LCB-", "-RCB-", ".", "?", "!", ",", ":", "-", "--", "...", ";"]
)


def ptb_tokens(caption: str) -> list[str]:
    """Tokens of one caption, lower-cased, without the punctuation that pycocoevalcap removes."""
    chunks = caption.lower().split()
    if all(_is_plain(chunk) for chunk in chunks):
        return [chunk for chunk in chunks if chunk not in PUNCTUATION]
    return [token for token in _lex(caption) if token not in PUNCTUATION]


@lru_cache(maxsize=1 << 16)
def _is_plain(chunk: str) -> bool:
    """Whether a chunk is one token whatever stands beside it."""
    return (_PLAIN.fullmatch(chunk) is not None and chunk not in _SPLIT_WORDS) or chunk in {".", ","}


def _lex(text: str) -> list[str]:
    tokens, at = [], 0
    while at < len(text):
        if gap := _SKIP.match(text, at):
            at = gap.end()
            continue
        token, at = _longest(text, at)
        if token:
            tokens.append(token)
    return tokens


def _longest(text: str, at: int) -> tuple[str, int]:
    """The token at a position and where the next begins; a character that no rule knows is dropped."""
    best, length, kind = None, 0, None
    for pattern, rule_kind in _COMPILED:
        match = pattern.match(text, at)
        if match and len(match[0]) > length:
            best, length, kind = match, len(match[0]), rule_kind
    if best is None:
        return "", at + 1
    found = next(group for group in best.groups() if group is not None)
    return _written(found, kind), at + len(found)


def _written(found: str, kind: str | None) -> str:
    """A token as the lexer writes it."""
    if kind is None or kind == "upper":
        return found.lower().replace("\u00ad", "").replace("’", "'")
    if kind == "entity":
        return ENTITIES[found[1:-1].lower()]
    if kind == "emoticon":
        return "".join(_BRACKETS.get(c, c) for c in found)
    if kind == "bracket":
        return _BRACKETS[found]
    if kind == "fraction":
        return _FRACTIONS[found]
    if kind == "space":
        return found.replace(" ", "\xa0")
    return kind
