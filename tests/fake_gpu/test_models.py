"""Every loss, in both precisions: a step stays on the device and gives the processor's numbers. A
run learns as on the processor, and one stopped there goes on here, and the other way round. Every
model: test_gpu_script.py."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from capgrade.labels.stored import RelevanceBlock
from capgrade.losses import LOSSES, LossTerms
from capgrade.trainer.data.pairs import Batch
from capgrade.trainer.fit.train import scored_batch
from capgrade.trainer.models.base import RetrievalModel
from tests.fake_gpu.device import DEVICE, FakeGpu
from tests.trainer.conftest import Small, small  # noqa: F401  a fixture
from tests.trainer.fit import runs
from tests.trainer.fit.test_going_on import stopped
from tests.trainer.models.conftest import bert  # noqa: F401  a fixture
from tests.trainer.models.made import OWNER, PAIRS, host, images, texts

BATCH = Batch(images(), replace(texts(PAIRS), images=OWNER), OWNER.numpy(), np.arange(5))
VALUES = RelevanceBlock(np.random.default_rng(3).random((5, 5), np.float32))
# A loss sees tensors alone, so each with one model is every line of it.
STEPS = [
    *(("vse", name) for name in LOSSES if LOSSES[name].needs not in ("logits", "own_losses")),
    ("single_stream", "classify"),
    ("vsrn", "captioning"),
    ("cvse", "divergence"),
]


def step(
    model: RetrievalModel, loss: str, device: str, bf16: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores and loss of a training step, whose gradients the model has then."""
    model.train().to(device)
    terms, relevance = LossTerms([{"name": loss}]), SimpleNamespace(block=lambda *_: VALUES)
    with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=bf16):
        batch = scored_batch(model, BATCH, relevance, terms.needs)  # type: ignore[arg-type]
        value = terms(batch)
    value.backward()
    return batch.scores, value


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize(("name", "loss"), STEPS)
def test_a_step_stays_on_the_device(name: str, loss: str, bf16: bool, bert: str) -> None:  # noqa: F811
    # made on the processor: transformers fills its buffers through tensors
    model = host(name, bert).float()
    with FakeGpu():
        found, value = step(model, loss, DEVICE, bf16)
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        assert found.device.type == value.device.type == "cuda"
        assert grads and all(grad.device.type == "cuda" for grad in grads)
        assert value.dtype == torch.float32 and bool(torch.isfinite(value))
        found = found.detach().cpu()
    if not bf16:
        expected, _ = step(host(name, bert).float(), loss, "cpu", False)
        torch.testing.assert_close(found, expected.detach(), rtol=1e-4, atol=1e-5)


def run(small: Small, out: Path, device: str, epochs: int = 2, precision: str = "float32") -> None:  # noqa: F811
    with FakeGpu() if device != "cpu" else nullcontext():
        runs.run(
            small.data, out, f"train.device={device}", f"train.precision={precision}", epochs=epochs
        )


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
    small: Small,  # noqa: F811
    tmp_path: Path,
    first: str,
    then: str,
    monkeypatch: pytest.MonkeyPatch,  # noqa: F811
) -> None:
    run(small, tmp_path / "whole", "cpu", epochs=3)
    # second epoch
    stopped(monkeypatch, "scored_batch", 9, lambda: run(small, tmp_path / "part", first, epochs=3))
    torch.manual_seed(99)
    run(small, tmp_path / "part", then, epochs=3)
    assert len(numbers(tmp_path / "part")) == 18
    assert numbers(tmp_path / "part") == pytest.approx(numbers(tmp_path / "whole"), rel=1e-3)
