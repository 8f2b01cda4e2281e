"""Small runs for tests of the stage."""

from pathlib import Path
from typing import Any

import pytest
import torch

from capgrade.measures.params import MeasuresParams
from capgrade.params import load_params
from capgrade.trainer.fit import train as stage
from capgrade.trainer.fit.setup import Data
from capgrade.trainer.stages.train import TrainParams

SMALL = [
    "train.model.options={embed: 32, word: 16}",
    "train.batch_size=8",
    "train.lr=0.01",
    "train.device=cpu",
]
SMALL += ["train.measure=rouge_l"]


def params(*sets: str, preset: str = "triplet", epochs: int = 3) -> TrainParams:
    return load_params(
        None, [f"train.preset={preset}", f"train.epochs={epochs}", *SMALL, *sets]
    ).train


def train(data: Data, out: Path, params: TrainParams, measures: MeasuresParams) -> dict[str, Any]:
    """Of the folders of `data`."""
    folders = {"regions": data.regions, "shards": data.shards}
    return stage.train(data.captions, out, params, measures, **folders)


def run(
    data: Data,
    out: Path,
    *sets: str,
    measures: MeasuresParams | None = None,
    restart: bool = False,
    **more: Any,
) -> dict[str, Any]:
    afresh = ["train.restart=true"] if restart else []
    return train(data, out, params(*sets, *afresh, **more), measures or MeasuresParams())


def keep_gradients(stage: Any, monkeypatch: pytest.MonkeyPatch | None = None) -> list[torch.Tensor]:
    """Runs of the stage put the gradient of each step here, all parameters in one row, as the
    processes agree on it."""
    kept: list[torch.Tensor] = []
    real = stage.average_gradients

    def keep(parameters: Any) -> None:
        parameters = list(parameters)
        real(parameters)
        kept.append(torch.cat([p.grad.flatten() for p in parameters if p.grad is not None]))

    (monkeypatch.setattr if monkeypatch else setattr)(stage, "average_gradients", keep)
    return kept


def column(out: Path, name: str, table: str = "steps.csv") -> list[str]:
    lines = [line.split(",") for line in (out / table).read_text().splitlines()]
    return [line[lines[0].index(name)] for line in lines[1:]]
