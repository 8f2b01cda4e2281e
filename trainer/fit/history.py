"""What has happened in a run: losses, validations, the best so far; and the state to go on from."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic
from capgrade.schemas.params import TrainParams
from capgrade.trainer.fit import EPOCHS, STATE, STEPS

Row = Mapping[str, float]
Parts = Mapping[str, Any]  # what has a `state_dict`, by name: model, optimiser, schedule, average; None: there is none


class History:
    """Finished epochs of a run that trains in a folder. It goes on from `state` (`load_state`), None at the start."""

    def __init__(self, folder: Path, key: str, state: dict[str, Any] | None) -> None:
        self.folder, self.key, self._state = folder, key, state
        self.epochs: list[dict[str, float]] = state["epochs"] if state else []
        self.steps: list[tuple[int, float, float]] = [tuple(row) for row in state["steps"]] if state else []

    @property
    def epoch(self) -> int:
        """Finished epochs."""
        return len(self.epochs)

    def restore(self, parts: Parts, device: torch.device) -> None:
        """Everything as it was when the last epoch ended; the random state of a GPU only where one computes again."""
        if self._state is None:
            return
        for name, part in parts.items():
            if part is not None:
                part.load_state_dict(self._state[name])
        torch.set_rng_state(self._state["rng"])
        if device.type == "cuda" and self._state["cuda_rng"] is not None:
            torch.cuda.set_rng_state(self._state["cuda_rng"], device)
        self._state = None

    def best_is_last(self, best_by: str) -> bool:
        """Does the model of the last epoch stand for the run?"""
        best = _best(self.epochs, best_by)
        return bool(self.epochs) and (best is None or best["epoch"] == self.epoch)

    def over(self, params: TrainParams) -> bool:
        """Has the run as many epochs as it is to have, or nothing become better for `patience` of them?

        Raises InputError when it has more: a model of an earlier epoch cannot be had any more.
        """
        ends = next((n for n in range(1, self.epoch + 1) if _over(self.epochs[:n], params)), None)
        if ends is None or ends == self.epoch:
            return ends is not None
        problem = f"this run has trained {self.epoch} epochs, train.epochs and train.patience stop it after {ends}"
        remedy = f"ask for {self.epoch} epochs or more, give another --out, or start afresh with --restart"
        raise InputError(problem, file=self.folder.parent, remedy=remedy)

    def save(self, parts: Parts, device: torch.device) -> None:
        """The state, and what there is to see of it: steps.csv and epochs.csv."""
        write_csv(self.folder / STEPS, ("step", "epoch", "loss", "lr"), [(k, *row) for k, row in enumerate(self.steps)])
        names = list(self.epochs[0])
        write_csv(self.folder / EPOCHS, names, [[row[name] for name in names] for row in self.epochs])
        cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None  # asking takes a GPU's memory
        states = {name: None if part is None else part.state_dict() for name, part in parts.items()}
        known = {"key": self.key, "epochs": self.epochs, "steps": self.steps}
        with atomic(self.folder / STATE) as temporary:
            torch.save({**known, **states, "rng": torch.get_rng_state(), "cuda_rng": cuda}, temporary)

    def summary(self, params: TrainParams) -> dict[str, Any]:
        """How the run ended: epochs, the best of them, and the last loss."""
        best = _best(self.epochs, params.best_by)
        return {
            "key": self.key, "model": params.model.name, "preset": params.preset, "epochs": self.epoch,
            "loss": self.epochs[-1]["loss"], "pairs_per_s": self.epochs[-1]["pairs_per_s"],
            **({} if best is None else {"best": best}),
        }  # fmt: skip


def _best(epochs: Sequence[Row], best_by: str) -> Row | None:
    """The epoch of the best validation, the first of equal ones; None before any."""
    rows = [row for row in epochs if best_by in row]
    return max(rows, key=lambda row: row[best_by]) if rows else None


def _over(epochs: Sequence[Row], params: TrainParams) -> bool:
    best = _best(epochs, params.best_by)
    stale = params.patience is not None and best is not None and len(epochs) - best["epoch"] >= params.patience
    return stale or len(epochs) >= params.epochs


def write_csv(path: Path, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    with atomic(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(rows)
