"""A run on the device: it learns as on the processor, and one stopped there goes on here, and the other way round."""

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.fake_gpu.device import FakeGpu
from tests.trainer.conftest import Small, small  # noqa: F401  a fixture
from tests.trainer.fit import runs
from tests.trainer.fit.test_going_on import stopped


def run(small: Small, out: Path, device: str, epochs: int = 2, precision: str = "float32") -> None:  # noqa: F811
    with FakeGpu() if device != "cpu" else nullcontext():
        runs.run(small.data, out, f"train.device={device}", f"train.precision={precision}", epochs=epochs)


def numbers(out: Path) -> list[float]:
    return [float(loss) for loss in runs.column(out, "loss")]


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_run_is_the_processors(small: Small, tmp_path: Path, precision: str) -> None:  # noqa: F811
    for device in ("cpu", "cuda"):
        run(small, tmp_path / device, device, precision=precision)
    found, expected = numbers(tmp_path / "cuda"), numbers(tmp_path / "cpu")
    assert found[0] == pytest.approx(expected[0], rel=1e-3 if precision == "float32" else 0.05)
    assert len(found) == 12 and np.isfinite(found).all()
    if precision == "float32":  # bfloat16 chooses other hardest negatives on each device
        assert found == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(("first", "then"), [("cpu", "cuda"), ("cuda", "cpu")])
def test_a_run_goes_on_on_another_device(
    small: Small, tmp_path: Path, first: str, then: str, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    run(small, tmp_path / "whole", "cpu", epochs=3)
    stopped(monkeypatch, "scored_batch", 9, lambda: run(small, tmp_path / "part", first, epochs=3))  # second epoch
    torch.manual_seed(99)
    run(small, tmp_path / "part", then, epochs=3)
    assert len(numbers(tmp_path / "part")) == 18
    assert numbers(tmp_path / "part") == pytest.approx(numbers(tmp_path / "whole"), rel=1e-3)
