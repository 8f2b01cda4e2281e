"""What a judge is, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from capgrade.pipelines.judging.question import Question


class LostError(Exception):
    """A request brought no answer, and why. `after`: how many seconds the endpoint asks to wait;
    `charged` if it may cost."""

    def __init__(self, reason: str, *, after: float = 0.0, charged: bool = False) -> None:
        super().__init__(reason)
        self.after, self.charged = after, charged


@dataclass
class Reply:
    """The score of each question that was asked, None where the answer does not count, and the
    texts of answers. How many scores are expectations over probabilities, and how many tokens were
    sent and answered."""

    scores: list[float | None]
    texts: list[str]
    expected: int = 0
    sent: int = 0
    answered: int = 0


class Judge(Protocol):
    """Whoever is asked."""

    name: str  # what tells it from other judges
    reads: Literal["chat", "rank"]  # the kind of its prompts
    at_once: int  # most questions of a request
    charges: bool  # whether it counts tokens
    alone: bool  # whether it is asked by one thread

    def together(self, question: Question) -> object:
        """The same for questions that one request may hold."""

    def ask(self, questions: Sequence[Question], pictures: Mapping[str, bytes]) -> Reply:
        """Questions that go together, with the pictures (JPEG) by image id. Raises LostError where
        no answer came."""

    def expect(self, questions: Sequence[Question]) -> tuple[int, int]:
        """About how many tokens they will send, and how many be answered at most."""
