"""Longest match over a list of patterns, as lexer generators do it; `re` would take the first alternative.

The patterns become one automaton by their follow positions (Aho, Sethi and Ullman, Compilers, section 3.9);
its states are made when a text first needs them. A pattern knows characters, `[...]` as in `re`, `\\` before
a special character, groups, `|`, `*`, `+`, `?` and `{name}` for another pattern. A letter a-z outside `[...]`
stands for both cases.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

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
        self.after: dict[frozenset[int], _State] = {}


class _Kinds(dict[str, frozenset[int]]):
    """A character's kind: which of the automaton's character sets it is in."""

    def __init__(self, sets: Sequence[str]) -> None:
        super().__init__()
        self._sets = [re.compile(body) for body in sets]
        self._same: dict[frozenset[int], frozenset[int]] = {}

    def __missing__(self, char: str) -> frozenset[int]:
        kind = frozenset(i for i, body in enumerate(self._sets) if body.match(char))
        self[char] = kind = self._same.setdefault(kind, kind)
        return kind


class Automaton:
    """Finds where the longest match of any pattern ends; of patterns ending there, the first listed wins."""

    def __init__(self, patterns: Sequence[str], names: Mapping[str, str]) -> None:
        self._names = names
        self._sets: dict[str, int] = {}  # the text of a character set and its number
        self._set_at: list[int] = []  # by position; the end of pattern r is a position of no set: -1 - r
        self._follow: list[set[int]] = []
        starts: set[int] = set()
        for rule, pattern in enumerate(patterns):
            part = self._parse(pattern)
            end = self._position(-1 - rule)
            self._link(part.last, end.first)
            starts |= part.first | (end.first if part.empty else frozenset())
        self._kinds = _Kinds(list(self._sets))
        self._states: dict[frozenset[int], _State] = {}
        self._start = self._state(frozenset(starts))

    def kinds(self, text: str) -> list[frozenset[int]]:
        """What `longest` and `ends` read: the kind of every character."""
        return [self._kinds[char] for char in text]

    def longest(self, kinds: Sequence[frozenset[int]], at: int) -> tuple[int, int]:
        """Number of the winning pattern and where its match ends; (-1, at) when none matches."""
        rule, end, state = -1, at, self._start
        for i in range(at, len(kinds)):
            state = state.after.get(kinds[i]) or self._step(state, kinds[i])
            if not state.positions:
                break
            if state.rule >= 0:
                rule, end = state.rule, i + 1
        return rule, end

    def ends(self, kinds: Sequence[frozenset[int]], at: int) -> set[int]:
        """Every place where some match from `at` ends."""
        state, found = self._start, {at} if self._start.rule >= 0 else set()
        for i in range(at, len(kinds)):
            state = state.after.get(kinds[i]) or self._step(state, kinds[i])
            if not state.positions:
                break
            if state.rule >= 0:
                found.add(i + 1)
        return found

    def _step(self, state: _State, kind: frozenset[int]) -> _State:
        here = [self._follow[p] for p in state.positions if self._set_at[p] in kind]
        state.after[kind] = after = self._state(frozenset().union(*here))
        return after

    def _state(self, positions: frozenset[int]) -> _State:
        if positions not in self._states:
            ended = [-1 - self._set_at[p] for p in positions if self._set_at[p] < 0]
            self._states[positions] = _State(positions, min(ended, default=-1))
        return self._states[positions]

    def _parse(self, pattern: str) -> _Piece:
        part, at = self._choice(pattern, 0)
        if at != len(pattern):
            raise ValueError(f"pattern {pattern!r} ends early, at {at}")
        return part

    def _choice(self, pattern: str, at: int) -> tuple[_Piece, int]:
        part, at = self._sequence(pattern, at)
        while pattern[at : at + 1] == "|":
            other, at = self._sequence(pattern, at + 1)
            part = _Piece(part.empty or other.empty, part.first | other.first, part.last | other.last)
        return part, at

    def _sequence(self, pattern: str, at: int) -> tuple[_Piece, int]:
        whole = _Piece(True, frozenset(), frozenset())
        while at < len(pattern) and pattern[at] not in "|)":
            part, at = self._atom(pattern, at)
            while at < len(pattern) and pattern[at] in "*+?":
                if pattern[at] != "?":
                    self._link(part.last, part.first)
                part, at = part._replace(empty=part.empty or pattern[at] != "+"), at + 1
            self._link(whole.last, part.first)
            first = whole.first | part.first if whole.empty else whole.first
            last = part.last | whole.last if part.empty else part.last
            whole = _Piece(whole.empty and part.empty, first, last)
        return whole, at

    def _atom(self, pattern: str, at: int) -> tuple[_Piece, int]:
        char = pattern[at]
        if char == "(":
            part, at = self._choice(pattern, at + 1)
            return part, at + 1
        if char == "{":
            end = pattern.index("}", at)
            return self._parse(self._names[pattern[at + 1 : end]]), end + 1
        if char == "[":
            end = at + 1
            while pattern[end] != "]":
                end += 2 if pattern[end] == "\\" else 1
            return self._set(pattern[at : end + 1]), end + 1
        if char == "\\":
            return self._set(f"[{pattern[at : at + 2]}]"), at + 2
        if char.isascii() and char.isalpha():
            return self._set(f"[{char.lower()}{char.upper()}{_ALSO.get(char.lower(), '')}]"), at + 1
        return self._set(re.escape(char)), at + 1

    def _set(self, body: str) -> _Piece:
        return self._position(self._sets.setdefault(body, len(self._sets)))

    def _position(self, number: int) -> _Piece:
        self._set_at.append(number)
        self._follow.append(set())
        here = frozenset([len(self._set_at) - 1])
        return _Piece(False, here, here)

    def _link(self, before: frozenset[int], after: frozenset[int]) -> None:
        for position in before:
            self._follow[position] |= after
