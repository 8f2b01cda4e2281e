"""Longest match over a list of patterns, as lexer generators do it; `re` would take the first
alternative.

The patterns become one automaton with empty steps (Thompson 1968; Aho, Sethi and Ullman, Compilers,
section 3.7); its deterministic states are made when a text first needs them. A pattern may have
characters, `[...]` as in `re`, `\\` before a special character, groups, `|`, `*`, `+`, `?` and
`{name}` for another pattern. A letter a-z outside `[...]` stands for both cases.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

_PARTS = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\{\w+\}|.", re.DOTALL)
# Other characters that are a case of an ASCII letter: Kelvin, long s, the Turkish i.
_ALSO = {"k": "\u212a", "s": "\u017f", "i": "\u0130\u0131"}


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
    first in the list wins. Empty matches are not found."""

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
