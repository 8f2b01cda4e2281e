"""What has happened in a run: losses, validations, the best so far; and the state to go on from."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from schemas.files import atomic
from schemas.params import TrainParams
from trainer.checkpoint import save_state
from trainer.models.base import RetrievalModel


class History:
    """Finished epochs of a run. It goes on from `state` (`load_state`), None at the start."""

    def __init__(self, out: Path, key: str, state: dict[str, Any] | None) -> None:
        self.out, self.key, self._state = out, key, state
        self.epochs: list[dict[str, float]] = state["epochs"] if state else []
        self.steps: list[tuple[int, float, float]] = [tuple(row) for row in state["steps"]] if state else []

    @property
    def epoch(self) -> int:
        """Finished epochs."""
        return len(self.epochs)

    def restore(self, model: RetrievalModel, optimiser: Optimizer, schedule: LRScheduler) -> None:
        """Everything as it was when the last epoch ended."""
        if self._state is None:
            return
        model.load_state_dict(self._state["model"])
        optimiser.load_state_dict(self._state["optimiser"])
        schedule.load_state_dict(self._state["schedule"])
        torch.set_rng_state(self._state["rng"])
        if self._state["cuda_rng"] is not None:
            torch.cuda.set_rng_state(self._state["cuda_rng"])
        self._state = None

    def step(self, loss: float, lr: float) -> None:
        self.steps.append((self.epoch, loss, lr))

    def finish_epoch(self, found: Mapping[str, float], rate: float, best_by: str) -> bool:
        """Close an epoch with its validation and pairs a second; is it the best yet? Without validation, yes."""
        losses = [loss for epoch, loss, _ in self.steps if epoch == self.epoch]
        best = self.best(best_by)
        row = {"epoch": self.epoch + 1, "loss": sum(losses) / len(losses), **found, "pairs_per_s": rate}
        self.epochs.append(row)
        return best is None or best_by not in found or found[best_by] > best[best_by]

    def best(self, best_by: str) -> dict[str, float] | None:
        """The epoch of the best validation, the first of equal ones; None before any."""
        rows = [row for row in self.epochs if best_by in row]
        return max(rows, key=lambda row: row[best_by]) if rows else None

    def stale(self, best_by: str, patience: int | None) -> bool:
        """Has nothing become better for `patience` epochs?"""
        best = self.best(best_by)
        return patience is not None and best is not None and self.epoch - best["epoch"] >= patience

    def save(self, model: RetrievalModel, optimiser: Optimizer, schedule: LRScheduler) -> None:
        """The state, and what there is to see of it: steps.csv and epochs.csv."""
        write_csv(
            self.out / "steps.csv", ("step", "epoch", "loss", "lr"), [(k, *row) for k, row in enumerate(self.steps)]
        )
        names = list(self.epochs[0])
        write_csv(self.out / "epochs.csv", names, [[row[name] for name in names] for row in self.epochs])
        cuda = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
        save_state(
            self.out,
            {
                "key": self.key, "epochs": self.epochs, "steps": self.steps, "model": model.state_dict(),
                "optimiser": optimiser.state_dict(), "schedule": schedule.state_dict(),
                "rng": torch.get_rng_state(), "cuda_rng": cuda,
            },
        )  # fmt: skip

    def summary(self, params: TrainParams) -> dict[str, Any]:
        """How the run ended: epochs, the best of them, and the last loss."""
        best = self.best(params.best_by)
        return {
            "key": self.key, "model": params.model.name, "preset": params.preset, "epochs": self.epoch,
            "loss": self.epochs[-1]["loss"], "pairs_per_s": self.epochs[-1]["pairs_per_s"],
            **({} if best is None else {"best": best}),
        }  # fmt: skip


def write_csv(path: Path, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    with atomic(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(rows)
