"""Longest match over a list of patterns, as lexer generators do it; `re` would take the first
alternative.

The patterns become one automaton with empty steps (Thompson 1968; Aho, Sethi and Ullman, Compilers,
section 3.7); its deterministic states are made when a text first needs them. A pattern knows
characters, `[...]` as in `re`, `\\` before a special character, groups, `|`, `*`, `+`, `?` and
`{name}` for another pattern. A letter a-z outside `[...]` stands for both cases.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

_PARTS = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\{\w+\}|.", re.DOTALL)
# Characters whose other case is an ASCII letter: Kelvin, long s, the Turkish i.
_ALSO = {"k": "\u212a", "s": "\u017f", "i": "\u0130\u0131"}


class _State:
    """Nodes that may be next; the first pattern that ends here, or -1; the state after each
    character."""

    def __init__(self, nodes: frozenset[int], rule: int) -> None:
        self.nodes, self.rule = nodes, rule
        self.after: dict[str, _State] = {}


@lru_cache(maxsize=1 << 16)
def _holds(body: str, char: str) -> bool:
    return re.match(body, char) is not None


class Automaton:
    """Finds where matches of any pattern end; of patterns ending there, the first listed wins. None
    is empty."""

    def __init__(self, patterns: Sequence[str], names: Mapping[str, str]) -> None:
        self._names = names
        self._empty: list[list[int]] = [[]]  # of each node: where a step without a character leads
        # of a node: a character's set, and where it leads
        self._steps: dict[int, tuple[str, int]] = {}
        # The pattern of each node where one ends.
        self._rules = {
            self._choice(_PARTS.findall(one)[::-1], 0): rule for rule, one in enumerate(patterns)
        }
        self._states: dict[frozenset[int], _State] = {}
        self._start = self._state([0])

    def ends(self, text: str, at: int) -> list[tuple[int, int]]:
        """Every place where some match from `at` ends, ascending, and the number of the pattern
        that wins there."""
        state = self._start
        found: list[tuple[int, int]] = []
        for i in range(at, len(text)):
            state = state.after.get(text[i]) or self._step(state, text[i])
            if state.rule >= 0:
                found.append((i + 1, state.rule))
            elif not state.nodes:
                break
        return found

    def _step(self, state: _State, char: str) -> _State:
        steps = [self._steps[node] for node in state.nodes if node in self._steps]
        state.after[char] = after = self._state([to for body, to in steps if _holds(body, char)])
        return after

    def _state(self, nodes: list[int]) -> _State:
        reached, more = set(nodes), list(nodes)
        while more:
            new = set(self._empty[more.pop()]) - reached
            reached |= new
            more += new
        kept = frozenset(node for node in reached if node in self._steps or node in self._rules)
        if kept not in self._states:
            rules = [self._rules[node] for node in kept if node in self._rules]
            self._states[kept] = _State(kept, min(rules, default=-1))
        return self._states[kept]

    def _choice(self, parts: list[str], start: int) -> int:
        """Alternatives, up to a closing bracket or the end: the node behind them. `parts` are taken
        from the last."""
        end = self._node()
        while True:
            self._empty[self._sequence(parts, start)].append(end)
            if not parts or parts.pop() != "|":
                return end

    def _sequence(self, parts: list[str], at: int) -> int:
        while parts and parts[-1] not in "|)":
            first = self._node(at)
            last = self._node(self._one(parts.pop(), parts, first))
            while parts and parts[-1] in "*+?":
                repeat = parts.pop()
                self._empty[last] += [first] * (repeat != "?")
                self._empty[first] += [last] * (repeat != "+")
            at = last
        return at

    def _one(self, part: str, rest: list[str], at: int) -> int:
        if part == "(":
            return self._choice(rest, at)
        if part[0] == "{":
            return self._choice(_PARTS.findall(self._names[part[1:-1]])[::-1], at)
        if part.isascii() and part.isalpha():
            part = f"[{part.lower()}{part.upper()}{_ALSO.get(part.lower(), '')}]"
        end = self._node()
        self._steps[at] = part if part[1:] else re.escape(part), end
        return end

    def _node(self, before: int | None = None) -> int:
        """A new one, reached from another without a character."""
        self._empty.append([])
        if before is not None:
            self._empty[before].append(len(self._empty) - 1)
        return len(self._empty) - 1
