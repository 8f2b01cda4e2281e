"""How fast a judge may be asked, and for how much: requests per minute, and a cost that is not passed."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Prices:
    """What a million tokens cost, sent and answered, in the currency of the limit."""

    sent: float = 0.0
    answered: float = 0.0

    def of(self, sent: int, answered: int) -> float:
        return (sent * self.sent + answered * self.answered) / 1e6


class Pace:
    """Requests of all threads, `per_minute` apart at most; None for as many as they like."""

    def __init__(self, per_minute: float | None, stop: threading.Event) -> None:
        self.gap, self.stop = (60 / per_minute if per_minute else 0.0), stop
        self.free, self.held, self.lock = 0.0, 0.0, threading.Lock()  # when the next may go, and any

    def wait(self) -> None:
        """Until it is this request's turn, or all have to stop."""
        with self.lock:
            at = max(time.monotonic(), self.free)
            self.free = at + self.gap
        while not self.stop.is_set() and (left := max(at, self.held) - time.monotonic()) > 0:
            self.stop.wait(left)

    def hold(self, seconds: float) -> None:
        """No request goes in the next so many seconds, as Retry-After asks."""
        with self.lock:
            self.held = max(self.held, time.monotonic() + seconds)
            self.free = max(self.free, self.held)


@dataclass
class Budget:
    """What was spent. With a limit, a request goes only if it fits beside those under way, each taken to cost as much
    as the dearest so far; the very first goes alone, since nothing is known."""

    prices: Prices
    limit: float | None = None
    sent: int = 0
    answered: int = 0
    spent: float = 0.0
    requests: int = 0
    dearest: float | None = None
    flying: int = 0
    free: threading.Condition = field(default_factory=threading.Condition)

    def take(self) -> bool:
        """Whether another request may go; waits for those under way where that decides it."""
        with self.free:
            while not self._fits():
                if not self.flying:
                    return False
                self.free.wait()
            self.flying += 1
            self.requests += 1
            return True

    def pay(self, sent: int, answered: int) -> None:
        """A request came back."""
        with self.free:
            cost = self.prices.of(sent, answered)
            self.sent, self.answered, self.spent = self.sent + sent, self.answered + answered, self.spent + cost
            self.dearest = max(cost, self.dearest or 0.0)
            self._back()

    def lose(self, charged: bool) -> None:
        """A request brought no answer; one that may be charged counts as the dearest so far."""
        with self.free:
            self.spent += (self.dearest or 0.0) if charged else 0.0
            self._back()

    def _back(self) -> None:
        self.flying -= 1
        self.free.notify_all()

    def _fits(self) -> bool:
        if self.limit is None:
            return True
        if self.dearest is None:
            return self.flying == 0
        return self.spent + (self.flying + 1) * self.dearest <= self.limit
