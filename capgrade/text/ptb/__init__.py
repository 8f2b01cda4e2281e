"""The Stanford PTB tokenizer of pycocoevalcap without Java: the longest match of `rules` at every
position, as lexer generators do it; `re` would take the first alternative.

A caption is read by itself, as if an empty line followed, or with the next captions of a list,
which the jar looks at after a caption that ends in a single letter and a period.
`docs/captions.md` says how equal the tokens are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache

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
# Parts of a pattern: see `Automaton`.
_PARTS = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\{\w+\}|.", re.DOTALL)
# Other characters that are a case of an ASCII letter: Kelvin, long s, the Turkish i.
_ALSO = {"k": "\u212a", "s": "\u017f", "i": "\u0130\u0131"}


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
            if not token.isascii():  # halves of characters become characters again
                token = token.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            tokens.append(token.lower())
        start = end - 1 if rule.reread_period else end
    return tokens


def _split_in_halves(match: re.Match[str]) -> str:
    """The surrogate pair of a character beyond the basic plane: the lexer reads UTF-16."""
    code = ord(match[0]) - 0x10000
    return chr(0xD800 + (code >> 10)) + chr(0xDC00 + (code & 0x3FF))


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
    last = start
    for end, _ in token.find_ends(text, start):
        if (len(text), 0) in lookahead.find_ends(text, end):
            last = end
    return last


class _State:
    """A deterministic state: a set of nodes; `rule`, the first pattern that ends in it, or -1;
    `next`, the states after characters that were met so far."""

    def __init__(self, nodes: frozenset[int], rule: int) -> None:
        self.nodes, self.rule = nodes, rule
        self.next: dict[str, _State] = {}


@lru_cache(maxsize=1 << 16)
def _matches(body: str, char: str) -> bool:
    return re.match(body, char) is not None


class Automaton:
    """Finds where matches of any pattern end. Of several patterns that end at one position, the
    first in the list wins. Empty matches are not found.

    The patterns become one automaton with empty steps (Thompson 1968; Aho, Sethi and Ullman,
    Compilers, section 3.7); its deterministic states are made when a text first needs them. A
    pattern may have characters, `[...]` as in `re`, `\\` before a special character, groups, `|`,
    `*`, `+`, `?` and `{name}` for another pattern. A letter a-z outside `[...]` stands for both
    cases.
    """

    def __init__(self, patterns: Sequence[str], names: Mapping[str, str]) -> None:
        self._names = names
        # node -> nodes that it reaches without a character
        self._free_steps: list[list[int]] = [[]]
        # node -> set of characters, and the node that one of these leads to
        self._steps: dict[int, tuple[str, int]] = {}
        # The pattern of each node where one ends.
        self._rules = {
            self._choice(_PARTS.findall(pattern)[::-1], 0): rule
            for rule, pattern in enumerate(patterns)
        }
        self._states: dict[frozenset[int], _State] = {}
        self._start = self._state([0])

    def find_ends(self, text: str, start: int) -> list[tuple[int, int]]:
        """Every position where a match from `start` ends, ascending, with the number of the pattern
        that wins there."""
        state = self._start
        ends: list[tuple[int, int]] = []
        for i in range(start, len(text)):
            state = state.next.get(text[i]) or self._step(state, text[i])
            if state.rule >= 0:
                ends.append((i + 1, state.rule))
            elif not state.nodes:
                break
        return ends

    def _step(self, state: _State, char: str) -> _State:
        steps = [self._steps[node] for node in state.nodes if node in self._steps]
        state.next[char] = self._state([target for body, target in steps if _matches(body, char)])
        return state.next[char]

    def _state(self, nodes: list[int]) -> _State:
        """The state of these nodes and of all that they reach without a character."""
        reached, todo = set(nodes), list(nodes)
        while todo:
            unseen = set(self._free_steps[todo.pop()]) - reached
            reached |= unseen
            todo += unseen
        useful = frozenset(node for node in reached if node in self._steps or node in self._rules)
        if useful not in self._states:
            rules = [self._rules[node] for node in useful if node in self._rules]
            self._states[useful] = _State(useful, min(rules, default=-1))
        return self._states[useful]

    def _choice(self, parts: list[str], start: int) -> int:
        """Add alternatives up to a closing bracket or the end; returns the node behind them.
        `parts` are in reverse order: the next one is the last."""
        end = self._node()
        while True:
            self._free_steps[self._sequence(parts, start)].append(end)
            if not parts or parts.pop() != "|":
                return end

    def _sequence(self, parts: list[str], node: int) -> int:
        while parts and parts[-1] not in "|)":
            first = self._node(node)
            last = self._node(self._item(parts.pop(), parts, first))
            while parts and parts[-1] in "*+?":
                repeat = parts.pop()
                self._free_steps[last] += [first] * (repeat != "?")
                self._free_steps[first] += [last] * (repeat != "+")
            node = last
        return node

    def _item(self, part: str, rest: list[str], node: int) -> int:
        if part == "(":
            return self._choice(rest, node)
        if part[0] == "{":
            return self._choice(_PARTS.findall(self._names[part[1:-1]])[::-1], node)
        if part.isascii() and part.isalpha():
            part = f"[{part.lower()}{part.upper()}{_ALSO.get(part.lower(), '')}]"
        end = self._node()
        self._steps[node] = part if part[1:] else re.escape(part), end
        return end

    def _node(self, before: int | None = None) -> int:
        """A new node, which `before` reaches without a character."""
        self._free_steps.append([])
        if before is not None:
            self._free_steps[before].append(len(self._free_steps) - 1)
        return len(self._free_steps) - 1
