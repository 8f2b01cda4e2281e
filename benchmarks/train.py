"""Training steps in pairs per second: each model, each loss; models beside the plain way to write them (SCAN, SAF, SGR
a loop over captions), at equal output and in the same run.

Region features and captions are random, sizes the papers': 36 regions of 2048 numbers, captions of 8 to 16 words. A
step is encoding, scores, the triplet loss, the model's own losses and their gradient, without the optimiser.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from capgrade.benchmarks.harness import Asked, Round, Rows, best, in_turn
from capgrade.benchmarks.plain_models import cvse_plain, saf_loop, scan_loop, sgr_loop, vse_infinity_plain, vsrn_plain
from capgrade.losses import LOSSES, Terms
from capgrade.losses.base import ScoredBatch
from capgrade.schemas.errors import InputError
from capgrade.trainer.models import build, configure
from capgrade.trainer.models.base import Encoded, Images, RetrievalModel, Texts
from capgrade.trainer.models.squared_difference import STEP_NUMBERS

REGIONS, FEATURES, WORDS, VOCABULARY = 36, 2048, (8, 16), 5000
MODELS: dict[str, dict[str, Any]] = {
    "vse": {}, "vse_infinity": {"drop": 0.0}, "vsrn": {"caption_dropout": 0.0}, "cvse": {"dropout": 0.0}, "scan": {},
    "saf": {"dropout": 0.0}, "sgr": {"dropout": 0.0}, "tern": {"dropout": 0.0}, "teran": {"dropout": 0.0},
    "single_stream": {},
}  # fmt: skip
MATRIX = 2048  # side of the product that measures the arithmetic
Scores = Callable[[Any, Images, Texts], tuple[Tensor, Tensor | float]]  # of a model, and its own loss


def bench(asked: Asked) -> Rows:
    """A row for each model and, unless models are named, for each loss. `product` has what large matrix products reach
    here, the best of several tries between the models, and the blocks of SAF and SGR.
    """
    chosen = list(asked.bench.models or MODELS)
    if unknown := sorted(set(chosen) - MODELS.keys()):
        raise InputError(f"no model '{unknown[0]}' to time", remedy=f"choose from: {', '.join(MODELS)}")
    torch.manual_seed(0)
    batch = asked.bench.batch
    images, words = random_batch(batch)
    rows: Rows = {}
    rates = [product_rate()]
    for name in chosen:
        rows[name] = of_model(name, images, words)
        rates.append(product_rate())
    for row in rows.values():
        row["share_of_product"] = row["gflop"] * row["pairs_per_s"] / batch / max(rates)
    if asked.bench.models is None:
        timed = [name for name in LOSSES if LOSSES[name].needs in (None, "relevance")]
        rows |= {f"loss {name}": of_loss(name, batch) for name in timed}
    block_mib = 4 * STEP_NUMBERS["cpu"] / 2**20
    rows["product"] = {"gflop_per_s": max(rates), "threads": torch.get_num_threads(), "block_mib": block_mib}
    return rows


def random_batch(batch: int) -> tuple[Images, Texts]:
    lengths = torch.randint(WORDS[0], WORDS[1] + 1, (batch,))
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    tokens = torch.randint(4, VOCABULARY, mask.shape) * mask
    every = torch.ones(batch, REGIONS, dtype=torch.bool)
    return Images(torch.rand(batch, REGIONS, FEATURES), torch.rand(batch, REGIONS, 5), every), Texts(tokens, mask)


def of_model(name: str, images: Images, words: Texts) -> dict[str, Any]:
    """Pairs per second of a step, the GFLOP of its products as plainly written, and the peer's, where there is one:
    medians of rounds in turn. A spread is the slowest round over the fastest; `processor_s` is a step's processor time,
    and `processor_ratio` the peer's over ours.
    """
    torch.manual_seed(0)
    model = build(name, configure(name, MODELS[name], FEATURES, 1), FEATURES, VOCABULARY).train()
    ways = [as_trained, PEERS[name][1]] if name in PEERS else [as_trained]
    works = [partial(step, model, images, words, way) for way in ways]
    counter = FlopCounterMode(display=False)
    (ours, *peers), scores = in_turn(works, [*works[:-1], partial(counted, counter, works[-1])])
    batch, seconds, processor = len(words.tokens), *middle(ours)
    row: dict[str, Any] = {
        "pairs_per_s": batch / seconds, "gflop": counter.get_total_flops() / 1e9, "processor_s": processor,
        "rounds": len(ours), "spread": spread(ours),
    }  # fmt: skip
    for peer in peers:
        theirs, busy = middle(peer)
        row |= {
            "peer": PEERS[name][0], "peer_pairs_per_s": batch / theirs, "peer_spread": spread(peer),
            "ratio": theirs / seconds, "processor_ratio": busy / processor,
            "max_abs_diff": float((scores[0] - scores[1]).abs().max()),
        }  # fmt: skip
    return row


def middle(rounds: Sequence[Round]) -> tuple[float, float]:
    """Medians of the seconds by the clock and of the processor."""
    return median(r.seconds for r in rounds), median(r.processor for r in rounds)


def counted(counter: FlopCounterMode, work: Callable[[], Tensor]) -> Tensor:
    with counter:
        return work()


def spread(rounds: Sequence[Round]) -> float:
    return max(r.seconds for r in rounds) / min(r.seconds for r in rounds)


def step(model: RetrievalModel, images: Images, words: Texts, scores: Scores) -> Tensor:
    """Forward and backward; the scores and the model's own loss."""
    torch.manual_seed(0)  # the text encoder's dropout
    model.zero_grad(set_to_none=True)
    matrix, more = scores(model, images, words)
    own = torch.eye(len(matrix), dtype=torch.bool, device=matrix.device)
    (Terms([{"name": "triplet"}])(ScoredBatch(matrix, own)) + more).backward()
    return torch.cat([matrix.detach().flatten(), torch.as_tensor(more, device=matrix.device).detach().reshape(1)])


def as_trained(model: RetrievalModel, images: Images, words: Texts) -> tuple[Tensor, Tensor | float]:
    """Scores, and what the model adds to the loss."""
    seen, read = model(images, words)
    return model.scores(seen, read), sum(model.own_losses(seen, read, words).values())


def encoded(scores: Callable[[Any, Encoded, Encoded], Tensor]) -> Scores:
    """A peer that scores what our encoders give."""
    return lambda model, images, words: (scores(model, *model(images, words)), 0.0)


def max_over_regions(model: RetrievalModel, images: Encoded, captions: Encoded) -> Tensor:
    """TERAN's MrSw as it is usually written: every cosine of every pair at once, [B, B, R, W]."""
    assert images.parts is not None and captions.parts is not None
    cosines = torch.einsum("ird,cwd->icrw", images.parts, captions.parts)
    cosines = cosines.masked_fill(~images.mask[:, None, :, None], -torch.inf)  # type: ignore[index]
    return (cosines.amax(dim=2) * captions.mask[None]).sum(dim=2)  # type: ignore[index]


PEERS: dict[str, tuple[str, Scores]] = {
    "vse_infinity": ("weights of every set", vse_infinity_plain),
    "cvse": ("every vector times every concept", cvse_plain),
    "vsrn": ("59 steps of the captioner", vsrn_plain),
    "scan": ("caption loop", encoded(scan_loop)),
    "saf": ("caption loop", encoded(saf_loop)),
    "sgr": ("caption loop", encoded(sgr_loop)),
    "teran": ("all pairs at once", encoded(max_over_regions)),
}


def of_loss(name: str, batch: int) -> dict[str, float]:
    """Milliseconds of a loss and its gradient."""
    scores = torch.rand(batch, batch).requires_grad_()
    known = ScoredBatch(scores, torch.eye(batch, dtype=torch.bool), torch.rand(batch, batch))
    loss = Terms([{"name": name}])

    def both() -> Tensor:
        value = loss(known)
        value.backward()
        return value.detach()

    seconds, _ = best(both)
    return {"ms": 1e3 * seconds, "pairs_per_s": batch / seconds}


def product_rate() -> float:
    """GFLOP/s of a large float32 matrix product."""
    a, b = torch.rand(MATRIX, MATRIX), torch.rand(MATRIX, MATRIX)
    seconds, _ = best(lambda: a @ b)
    return 2 * MATRIX**3 / seconds / 1e9
