"""`capgrade.train` makes the run that the command makes."""

from pathlib import Path
from typing import Any

import pytest

import capgrade
from capgrade.schemas.errors import InputError
from tests.trainer.fit.runs import run

SMALL: dict[str, Any] = {"batch_size": 8, "lr": 0.01, "device": "cpu", "measure": "rouge_l"}


def test_its_run_is_that_of_the_command(small, tmp_path: Path) -> None:
    folders = {"captions": small.data.captions, "regions": small.data.regions}
    options = {"model": {"options": {"embed": 32, "word": 16}}, **SMALL}
    made = capgrade.train(out=tmp_path / "made", preset="triplet", epochs=1, **options, **folders)
    expected = run(small.data, tmp_path / "command", epochs=1)
    assert made["epochs"] == 1 and made["loss"] == expected["loss"]
    steps = [
        (tmp_path / name / "steps.csv").read_text().splitlines() for name in ("made", "command")
    ]
    assert [line.split(",")[:2] for line in steps[0]] == [line.split(",")[:2] for line in steps[1]]


def test_a_misspelt_parameter_is_refused(small, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown parameter 'epoch'"):
        capgrade.train(
            small.data.captions, tmp_path / "run", "triplet", regions=small.data.regions, epoch=1
        )
    assert not (tmp_path / "run").exists()
