"""Training steps in pairs per second, of each model and each loss.

Region features and captions are random, sizes the papers': 36 regions of 2048 numbers, captions of 8 to 16 words. A
step is encoding, scores, the triplet loss, the model's own losses and their gradient, without the optimiser.
"""

from __future__ import annotations

from typing import Any

import torch

from capgrade.benchmarks.harness import Asked, Rows, best
from capgrade.losses import LOSSES, LossTerms
from capgrade.losses.base import ScoredBatch
from capgrade.trainer.models import build, configure
from capgrade.trainer.models.base import CaptionTokens, Images

BATCH, REGIONS, FEATURES, WORDS, VOCABULARY = 128, 36, 2048, (8, 16), 5000
MODELS: dict[str, dict[str, Any]] = {
    name: {} for name in ("vse", "vse_infinity", "vsrn", "cvse", "scan", "saf", "sgr", "tern", "teran", "single_stream")
}  # and what differs from their configuration


def bench(asked: Asked) -> Rows:
    """A row for each model and each loss of scores: seconds and pairs_per_s."""
    del asked
    torch.manual_seed(0)
    images, words = random_batch(BATCH)
    seconds = {name: _model_seconds(name, images, words) for name in MODELS}
    timed = [name for name in LOSSES if LOSSES[name].needs in (None, "relevance")]
    seconds |= {f"loss {name}": _loss_seconds(name, BATCH) for name in timed}
    return {name: {"seconds": took, "pairs_per_s": BATCH / took} for name, took in seconds.items()}


def random_batch(batch: int) -> tuple[Images, CaptionTokens]:
    """Images with all their regions, and captions."""
    lengths = torch.randint(WORDS[0], WORDS[1] + 1, (batch,))
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    tokens = torch.randint(4, VOCABULARY, mask.shape) * mask
    every = torch.ones(batch, REGIONS, dtype=torch.bool)
    return Images(torch.rand(batch, REGIONS, FEATURES), torch.rand(batch, REGIONS, 5), every), CaptionTokens(
        tokens, mask
    )


def _model_seconds(name: str, images: Images, words: CaptionTokens) -> float:
    """Of a step of a model, forward and backward."""
    model = build(name, configure(name, MODELS[name], FEATURES, 1), FEATURES, VOCABULARY).train()
    loss = LossTerms([{"name": "triplet"}])

    def step() -> None:
        model.zero_grad(set_to_none=True)
        seen, read = model(images, words)
        scores = model.scores(seen, read)
        own = torch.eye(len(scores), dtype=torch.bool)
        (loss(ScoredBatch(scores, own)) + sum(model.own_losses(seen, read, words).values())).backward()

    return best(step)[0]


def _loss_seconds(name: str, batch: int) -> float:
    """Of a loss and its gradient."""
    scores = torch.rand(batch, batch).requires_grad_()
    known = ScoredBatch(scores, torch.eye(batch, dtype=torch.bool), torch.rand(batch, batch))
    loss = LossTerms([{"name": name}])
    return best(lambda: loss(known).backward())[0]
