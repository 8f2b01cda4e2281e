"""Every model and every loss, in both precisions: a step stays on the device and gives the processor's numbers."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from capgrade.labels.stored import RelevanceBlock
from capgrade.losses import LOSSES, LossTerms
from capgrade.trainer.data.pairs import Batch
from capgrade.trainer.fit.train import scored_batch
from capgrade.trainer.models import MODELS
from capgrade.trainer.models.base import RetrievalModel
from capgrade.trainer.search.encode import encode_captions, encode_images, scores
from tests.fake_gpu.device import DEVICE, FakeGpu
from tests.trainer.models.conftest import bert  # noqa: F401  a fixture
from tests.trainer.models.made import OWNER, PAIRS, host, images, texts

BATCH = Batch(images(), replace(texts(PAIRS), images=OWNER), OWNER.numpy(), np.arange(5))
VALUES = RelevanceBlock(np.random.default_rng(3).random((5, 5), np.float32))
# A loss sees tensors alone, so each model with one loss and each loss with one model is every line of both.
STEPS = [
    *((name, "triplet") for name in MODELS),
    *(("vse", name) for name in LOSSES if name != "triplet" and LOSSES[name].needs not in ("logits", "own_losses")),
    ("single_stream", "classify"), ("vsrn", "captioning"), ("cvse", "divergence"),
]  # fmt: skip


def step(model: RetrievalModel, loss: str, device: str, bf16: bool) -> tuple[torch.Tensor, torch.Tensor]:
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
    model = host(name, bert).float()  # made on the processor: transformers fills its buffers through tensors
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


@pytest.mark.parametrize("name", MODELS)
def test_encoding_and_scoring_a_split(name: str, bert: str) -> None:  # noqa: F811
    """Two batches, in eval mode."""

    def run(model: Any, device: str) -> torch.Tensor:
        model.eval().to(device)
        pictures = encode_images(model, [images(), images((2, 1))])
        return torch.from_numpy(scores(model, pictures, encode_captions(model, [texts(), texts((2, 3))])))

    model = host(name, bert).float()
    with FakeGpu():
        found = run(model, DEVICE)
    torch.testing.assert_close(found, run(host(name, bert).float(), "cpu"), rtol=1e-4, atol=1e-5)
