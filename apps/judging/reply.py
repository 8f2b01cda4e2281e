"""What a judge is, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from capgrade.apps.judging.question import Question


class LostError(Exception):
    """A request brought no answer, and why. `after`: how many seconds the endpoint asks to wait;
    `charged` if it may cost."""

    def __init__(self, reason: str, *, after: float = 0.0, charged: bool = False) -> None:
        super().__init__(reason)
        self.after, self.charged = after, charged


@dataclass
class Reply:
    """The score of each question, None where the answer does not count, and the texts of answers.
    `expected` scores are expectations over probabilities; `sent` and `answered` count tokens."""

    scores: list[float | None]
    texts: list[str]
    expected: int = 0
    sent: int = 0
    answered: int = 0


class Judge(Protocol):
    """A model that answers questions."""

    name: str  # tells it from other judges
    reads: Literal["chat", "rank"]  # the kind of its prompts
    batch_size: int  # most questions of a request
    counts_tokens: bool  # whether its answers say how many tokens they cost
    one_thread: bool  # whether only one thread may ask it

    def group_key(self, question: Question) -> object:
        """A key that is equal for questions that one request may hold."""

    def ask(self, questions: Sequence[Question], pictures: Mapping[str, bytes]) -> Reply:
        """Questions that share a key, with the pictures (JPEG) by image id. Raises LostError where
        no answer came."""

    def estimate_tokens(self, questions: Sequence[Question]) -> tuple[int, int]:
        """About how many tokens the questions send, and at most how many the answers have."""
