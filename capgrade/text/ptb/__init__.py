"""The Stanford PTB tokenizer of pycocoevalcap without Java: the longest match of `rules` at every
place.

A caption is read by itself, as if an empty line followed, or with the next captions of a list,
which the jar looks at where one ends in a single letter and a point. `docs/captions.md` has how
equal it was measured to be.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from capgrade.text.ptb.longest import Automaton
from capgrade.text.ptb.rules import NAMES, RULES

# pycocoevalcap's list. It is applied to lower-cased tokens, so the brackets on it (now -lrb- and so
# on) stay.
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
    # a number or `ltd` in the next caption makes one token
    r"(?!(?i:art|bldg|ca|figs?|nos?|op|pp|prop|co|pt[ey]?)\.$)"
    r"(?:[A-Za-z]|[A-Za-z]{2,}(?:-[A-Za-z]{2,})*(?:'(?:s|d|m|re|ve|ll))?[.,;:!?]?|[.,;:!?-]?"
    r"|'(?:s|d|m|re|ve|ll)|''|``)"
)
_BEYOND = re.compile("[\U00010000-\U0010ffff]")


def ptb_tokens(caption: str, after: str = "") -> list[str]:
    """Tokens of one caption (a line), lower-cased, without the punctuation that pycocoevalcap
    removes. `after` is what the lexer sees behind its line break."""
    return kept(" ".join(_lex(caption, after)))


@lru_cache(maxsize=1 << 16)
def alone(chunk: str) -> tuple[str, ...] | None:
    """Tokens of a chunk that is read alike everywhere; None for any other."""
    return tuple(ptb_tokens(chunk)) if _ALONE.fullmatch(chunk) else None


def kept(line: str) -> list[str]:
    """Tokens of a line the lexer wrote, less punctuation and white space at its end, as in
    pycocoevalcap."""
    return [token for token in line.rstrip().split(" ") if token and token not in PUNCTUATION]


def _lex(line: str, after: str) -> list[str]:
    """Every token of a line and the line break after it, punctuation included."""
    text, tokens, at = _BEYOND.sub(_halves, line) + "\n", [], 0
    stop, text = len(text), text + after
    while at < stop:
        end, number = _automaton().ends(text, at)[-1]
        rule = RULES[number]
        if rule.lookahead:
            end = _without_lookahead(number, text[:end], at)
        token = rule.write(text[at:end])
        if token is not None:
            tokens.append(_joined(token).lower())
        at = end - 1 if rule.again else end
    return tokens


def _halves(match: re.Match[str]) -> str:
    """The lexer reads UTF-16: a character beyond the basic plane is two."""
    code = ord(match[0]) - 0x10000
    return chr(0xD800 + (code >> 10)) + chr(0xDC00 + (code & 0x3FF))


def _joined(token: str) -> str:
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


def _without_lookahead(number: int, text: str, at: int) -> int:
    """Where a rule's token ends, of what it matched from `at` on together with what must follow;
    the last place."""
    token, lookahead = _parts(number)
    ends = [end for end, _ in token.ends(text, at)]
    return max(end for end in ends if (len(text), 0) in lookahead.ends(text, end))
