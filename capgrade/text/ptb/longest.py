"""Longest match over a list of patterns, as lexer generators do it; `re` would take the first alternative.

The patterns become one automaton by their follow positions (Aho, Sethi and Ullman, Compilers, section 3.9);
its states are made when a text first needs them. A pattern knows characters, `[...]` as in `re`, `\\` before
a special character, groups, `|`, `*`, `+`, `?` and `{name}` for another pattern. A letter a-z outside `[...]`
stands for both cases.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

_PARTS = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\{\w+\}|.", re.DOTALL)
# Characters whose other case is an ASCII letter: Kelvin, long s, the Turkish i.
_ALSO = {"k": "\u212a", "s": "\u017f", "i": "\u0130\u0131"}


class _Piece(NamedTuple):
    """A piece of a pattern: whether it matches nothing, and the positions it can begin and end with."""

    empty: bool
    first: frozenset[int]
    last: frozenset[int]


class _State:
    """Positions that may come next; the first pattern that ends here, or -1; the state after each kind."""

    def __init__(self, positions: frozenset[int], rule: int) -> None:
        self.positions, self.rule = positions, rule
        self.after: dict[frozenset[str], _State] = {}


class _Kinds(dict[str, frozenset[str]]):
    """A character's kind: which of the automaton's character sets it is in."""

    def __init__(self, sets: Iterable[str]) -> None:
        super().__init__()
        self._sets = {body: re.compile(body) for body in sets}
        self._same: dict[frozenset[str], frozenset[str]] = {}

    def __missing__(self, char: str) -> frozenset[str]:
        kind = frozenset(body for body, one in self._sets.items() if one.match(char))
        self[char] = kind = self._same.setdefault(kind, kind)
        return kind


class Automaton:
    """Finds where matches of any pattern end; of patterns ending there, the first listed wins."""

    def __init__(self, patterns: Sequence[str], names: Mapping[str, str]) -> None:
        self._names = names
        self._set: list[str] = []  # by position: what its character is of, "" at the end of a pattern
        self._follow: list[set[int]] = []
        self._rule: dict[int, int] = {}  # the pattern of each position that is an end
        starts: set[int] = set()
        for rule, pattern in enumerate(patterns):
            part, end = self._parse(pattern), self._position("")
            self._rule[len(self._set) - 1] = rule
            self._link(part.last, end.first)
            starts |= part.first | (end.first if part.empty else frozenset())
        self._kinds = _Kinds(set(self._set) - {""})
        self._states: dict[frozenset[int], _State] = {}
        self._start = self._state(frozenset(starts))

    def ends(self, text: str, at: int) -> list[tuple[int, int]]:
        """Every place where some match from `at` ends, ascending, and the number of the pattern that wins there."""
        state, kinds = self._start, self._kinds
        found = [(at, state.rule)] if state.rule >= 0 else []
        for i in range(at, len(text)):
            kind = kinds[text[i]]
            state = state.after.get(kind) or self._step(state, kind)
            if state.rule >= 0:
                found.append((i + 1, state.rule))
            elif not state.positions:
                break
        return found

    def _step(self, state: _State, kind: frozenset[str]) -> _State:
        here = [self._follow[p] for p in state.positions if self._set[p] in kind]
        state.after[kind] = after = self._state(frozenset().union(*here))
        return after

    def _state(self, positions: frozenset[int]) -> _State:
        if positions not in self._states:
            ended = [self._rule[p] for p in positions if p in self._rule]
            self._states[positions] = _State(positions, min(ended, default=-1))
        return self._states[positions]

    def _parse(self, pattern: str) -> _Piece:
        return self._choice(_PARTS.findall(pattern)[::-1])

    def _choice(self, parts: list[str]) -> _Piece:
        """Alternatives, up to a closing bracket or the end; `parts` are taken from the last on."""
        whole = self._sequence(parts)
        while parts and parts.pop() == "|":
            other = self._sequence(parts)
            whole = _Piece(whole.empty or other.empty, whole.first | other.first, whole.last | other.last)
        return whole

    def _sequence(self, parts: list[str]) -> _Piece:
        whole = _Piece(True, frozenset(), frozenset())
        while parts and parts[-1] not in "|)":
            part = self._one(parts.pop(), parts)
            while parts and parts[-1] in "*+?":
                repeat = parts.pop()
                if repeat != "?":
                    self._link(part.last, part.first)
                part = part._replace(empty=part.empty or repeat != "+")
            self._link(whole.last, part.first)
            first = whole.first | part.first if whole.empty else whole.first
            last = part.last | whole.last if part.empty else part.last
            whole = _Piece(whole.empty and part.empty, first, last)
        return whole

    def _one(self, part: str, rest: list[str]) -> _Piece:
        if part == "(":
            return self._choice(rest)
        if part[0] == "{":
            return self._parse(self._names[part[1:-1]])
        if part.isascii() and part.isalpha():
            return self._position(f"[{part.lower()}{part.upper()}{_ALSO.get(part.lower(), '')}]")
        return self._position(part if part[1:] else re.escape(part))

    def _position(self, of: str) -> _Piece:
        self._set.append(of)
        self._follow.append(set())
        here = frozenset([len(self._set) - 1])
        return _Piece(False, here, here)

    def _link(self, before: frozenset[int], after: frozenset[int]) -> None:
        for position in before:
            self._follow[position] |= after
