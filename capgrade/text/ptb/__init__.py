"""The Stanford PTB tokenizer of pycocoevalcap without Java: the longest match of `rules` at every
position.

A caption is read by itself, as if an empty line followed, or with the next captions of a list,
which the jar looks at after a caption that ends in a single letter and a period.
`docs/captions.md` says how equal the tokens are.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from capgrade.text.ptb.longest import Automaton
from capgrade.text.ptb.rules import NAMES, RULES

# pycocoevalcap's list. It is applied to lower-cased tokens, so brackets stay: they are -lrb- and so
# on by then.
PUNCTUATION = frozenset(
    [
        "''",
        "'",
        "``",
        "`",
        "-LRB-",
        "-RRB-",
        "-LCB-",
        "-RCB-",
        ".",
        "?",
        "!",
        ",",
        ":",
        "-",
        "--",
        "...",
        ";",
    ]
)
# Chunks between spaces whose tokens do not depend on their neighbours: a rule that looks past a
# space needs a digit, a tag or a single letter with a period. (Dots that would join to an ellipsis
# are removed either way.)
_ALONE = re.compile(
    # Not an abbreviation that a number or `ltd` in the next caption would make one token with.
    r"(?!(?i:art|bldg|ca|figs?|nos?|op|pp|prop|co|pt[ey]?)\.$)"
    r"(?:[A-Za-z]|[A-Za-z]{2,}(?:-[A-Za-z]{2,})*(?:'(?:s|d|m|re|ve|ll))?[.,;:!?]?|[.,;:!?-]?"
    r"|'(?:s|d|m|re|ve|ll)|''|``)"
)
_BEYOND_BASIC_PLANE = re.compile("[\U00010000-\U0010ffff]")


def ptb_tokens(caption: str, after: str = "") -> list[str]:
    """Tokens of one caption (a line), lower-cased, without the punctuation that pycocoevalcap
    removes. `after` is the text that follows its line break."""
    return remove_punctuation(" ".join(_lex(caption, after)))


@lru_cache(maxsize=1 << 16)
def tokens_of_chunk(chunk: str) -> tuple[str, ...] | None:
    """Tokens of a chunk between spaces whose tokens do not depend on its neighbours; None for any
    other chunk."""
    return tuple(ptb_tokens(chunk)) if _ALONE.fullmatch(chunk) else None


def remove_punctuation(line: str) -> list[str]:
    """Tokens of a line of the lexer's output, without punctuation, as pycocoevalcap reads it."""
    return [token for token in line.rstrip().split(" ") if token and token not in PUNCTUATION]


def _lex(line: str, after: str) -> list[str]:
    """Every token of a line and the line break after it, punctuation included."""
    text, tokens, start = _BEYOND_BASIC_PLANE.sub(_split_in_halves, line) + "\n", [], 0
    stop, text = len(text), text + after
    while start < stop:
        end, number = _automaton().find_ends(text, start)[-1]
        rule = RULES[number]
        if rule.lookahead:
            end = _end_of_token(number, text[:end], start)
        token = rule.write(text[start:end])
        if token is not None:
            tokens.append(_join_halves(token).lower())
        start = end - 1 if rule.reread_period else end
    return tokens


def _split_in_halves(match: re.Match[str]) -> str:
    """The surrogate pair of a character beyond the basic plane: the lexer reads UTF-16."""
    code = ord(match[0]) - 0x10000
    return chr(0xD800 + (code >> 10)) + chr(0xDC00 + (code & 0x3FF))


def _join_halves(token: str) -> str:
    return (
        token
        if token.isascii()
        else token.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )


@cache
def _automaton() -> Automaton:
    return Automaton([f"({rule.token})({rule.lookahead})" for rule in RULES], NAMES)


@cache
def _parts(number: int) -> tuple[Automaton, Automaton]:
    return Automaton([RULES[number].token], NAMES), Automaton([RULES[number].lookahead], NAMES)


def _end_of_token(number: int, text: str, start: int) -> int:
    """Where the token of a rule ends that matched `text[start:]` with its lookahead; of several
    such positions the last."""
    token, lookahead = _parts(number)
    ends = [end for end, _ in token.find_ends(text, start)]
    return max(end for end in ends if (len(text), 0) in lookahead.find_ends(text, end))
