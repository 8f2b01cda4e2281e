"""Every model and every loss, in both precisions: a step stays on the device and gives the processor's numbers."""

from __future__ import annotations

from copy import deepcopy
from functools import lru_cache
from typing import Any

import pytest
import torch

from capgrade.losses import LOSSES, LossTerms, ScoredBatch
from capgrade.trainer.models import MODELS, build, configure
from capgrade.trainer.models.base import RetrievalModel
from capgrade.trainer.search.encode import encode_captions, encode_images, scores, to_device
from tests.fake_gpu.device import DEVICE, FakeGpu
from tests.trainer.models.made import FEATURES, VOCABULARY, images, texts

B = 5
SMALL: dict[str, dict[str, Any]] = {
    "vse": {"embed": 16},
    "vse_infinity": {"embed": 16, "drop": 0.0},
    "vsrn": {"embed": 16, "layers": 1, "caption_hidden": 8, "caption_dropout": 0.0},
    "cvse": {"embed": 16, "concepts": 4, "dropout": 0.0},
    "scan": {"embed": 16},
    **dict.fromkeys(  # pictures of 2 x 2 pixels: a region of 12 numbers
        ("clip", "siglip"),
        {
            "image": 2,
            "patch": 1,
            "image_width": 16,
            "image_layers": 1,
            "image_heads": 2,
            "text_width": 16,
            "text_layers": 1,
            "text_heads": 2,
            "positions": 8,
        },
    ),
    "saf": {"embed": 16, "similarity": 8, "dropout": 0.0},
    "sgr": {"embed": 16, "similarity": 8, "dropout": 0.0},
    "single_stream": {"embed": 16, "width": 16},
    **dict.fromkeys(
        ("tern", "teran"),
        {"embed_dim": 16, "image_layers": 1, "joint_layers": 1, "feedforward": 16, "text_layers": 1, "dropout": 0.0},
    ),
}
PRECISIONS = ["float32", "bf16"]
# A loss sees tensors alone, so each model with one loss and each loss with one model is every line of both.
STEPS = [
    *((name, "triplet") for name in SMALL),
    *(("vse", name) for name in LOSSES if name != "triplet" and LOSSES[name].needs not in ("logits", "own_losses")),
    ("single_stream", "classify"),
]


def made(name: str) -> RetrievalModel:
    """A model on the processor: transformers fills its buffers through tensors that the fake GPU would wrap."""
    return deepcopy(_built(name))


@lru_cache
def _built(name: str) -> RetrievalModel:
    torch.manual_seed(0)
    model = build(name, configure(name, SMALL[name], FEATURES, B), FEATURES, VOCABULARY)
    if hasattr(model, "text_encoder"):  # 20 word pieces instead of 30,522: a tenth of the time
        words = model.text_encoder.encoder.embeddings
        words.word_embeddings = torch.nn.Embedding.from_pretrained(words.word_embeddings.weight[:VOCABULARY].clone())
    return model


def of_batch(model: RetrievalModel, device: str) -> ScoredBatch:
    """What `scored_batch` gives the losses, from made images and captions."""
    sides = model(to_device(images(), torch.device(device)), to_device(texts((3, 7, 1, 5, 3)), torch.device(device)))
    relevance = torch.rand(B, B, generator=torch.Generator().manual_seed(3)).to(device)
    known: dict[str, Any] = {"relevance": relevance}
    if hasattr(model, "classify"):
        known |= {"image_logits": model.classify(sides[0]), "caption_logits": model.classify(sides[1])}
    vectors = [side.vector if side.vector is not None else side.parts[:, 0] for side in sides]
    own = torch.eye(B, dtype=torch.bool).to(device)
    labels = torch.arange(B).to(device)
    return ScoredBatch(model.scores(*sides), own, images=vectors[0], captions=vectors[1], labels=labels, **known)


def step(model: RetrievalModel, loss: str, device: str, bf16: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores and loss of a training step, whose gradients the model has then."""
    model.train().to(device)
    torch.manual_seed(1)
    with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=bf16):
        batch = of_batch(model, device)
        value = LossTerms([{"name": loss}])(batch)
    value.backward()
    return batch.scores, value


def test_every_model_is_here() -> None:
    assert SMALL.keys() == MODELS.keys()


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("name", "loss"), STEPS)
def test_a_step_stays_on_the_device(name: str, loss: str, precision: str) -> None:
    model = made(name)
    with FakeGpu():
        scores, value = step(model, loss, DEVICE, precision == "bf16")
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        assert scores.device.type == value.device.type == "cuda"
        assert grads and all(grad.device.type == "cuda" for grad in grads)
        assert value.dtype == torch.float32 and bool(torch.isfinite(value))
        found = scores.detach().cpu()
    if precision == "float32":
        expected, _ = step(made(name), loss, "cpu", False)
        torch.testing.assert_close(found, expected.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", SMALL)
def test_encoding_and_scoring_a_split(name: str) -> None:
    """Two batches, in eval mode."""

    def run(model: RetrievalModel, device: str) -> torch.Tensor:
        model.eval().to(device)
        pictures = encode_images(model, [images(), images((2, 1))])
        return torch.from_numpy(scores(model, pictures, encode_captions(model, [texts(), texts((2, 3))])))

    model = made(name)
    with FakeGpu():
        found = run(model, DEVICE)
    torch.testing.assert_close(found, run(made(name), "cpu"), rtol=1e-4, atol=1e-5)
