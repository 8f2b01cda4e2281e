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
from rich.table import Table
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from capgrade.benchmarks.caption_loop import saf_loop, scan_loop, sgr_loop
from capgrade.benchmarks.plain_encoders import cvse_plain, vse_infinity_plain, vsrn_plain
from capgrade.benchmarks.timing import Round, in_turn, timed
from capgrade.losses import LOSSES, Terms
from capgrade.losses.base import ScoredBatch
from capgrade.schemas.console import console
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
RATIOS = (("peer_pairs_per_s", 1), ("ratio", 2), ("processor_ratio", 2))
Scores = Callable[[Any, Images, Texts], tuple[Tensor, Tensor | float]]  # of a model, and its own loss


def bench(batch: int, models: list[str], losses: bool = True) -> dict[str, Any]:
    """One line per model and, under `losses`, one per loss; `gflop_per_s` is what large matrix products reach here, the
    best of several tries between the models."""
    torch.manual_seed(0)
    images, words = random_batch(batch)
    found: dict[str, Any] = {"batch": batch, "threads": torch.get_num_threads(), "gflop_per_s": product_rate()}
    found["block_mib"] = 4 * STEP_NUMBERS["cpu"] / 2**20  # of SAF and SGR
    for name in models:
        found[name] = of_model(name, images, words)
        found["gflop_per_s"] = max(found["gflop_per_s"], product_rate())
    for name in models:
        step_rate = found[name]["gflop"] * found[name]["pairs_per_s"] / batch
        found[name]["share_of_limit"] = step_rate / found["gflop_per_s"]
    if losses:
        found["losses"] = {name: of_loss(name, batch) for name in LOSSES if LOSSES[name].needs in (None, "relevance")}
    return found


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
    rounds, scores = in_turn(works, [*works[:-1], partial(counted, counter, works[-1])])
    batch, ours = len(words.tokens), rounds[0]
    line = {
        "pairs_per_s": batch / median(r.seconds for r in ours), "gflop": counter.get_total_flops() / 1e9,
        "processor_s": median(r.processor for r in ours), "rounds": len(ours), "spread": spread(ours),
    }  # fmt: skip
    if name not in PEERS:
        return line
    peer = rounds[1]
    return {
        **line,
        "peer": PEERS[name][0],
        "peer_pairs_per_s": batch / median(r.seconds for r in peer),
        "peer_spread": spread(peer),
        "ratio": median(r.seconds for r in peer) / median(r.seconds for r in ours),
        "processor_ratio": median(r.processor for r in peer) / median(r.processor for r in ours),
        "max_abs_diff": float((scores[0] - scores[1]).abs().max()),
    }


def counted(counter: FlopCounterMode, work: Callable[[], Tensor]) -> Tensor:
    with counter:
        return work()


def spread(rounds: Sequence[Round]) -> float:
    return max(r.seconds for r in rounds) / min(r.seconds for r in rounds)


def step(model: RetrievalModel, images: Images, words: Texts, scores: Scores) -> Tensor:
    """Forward and backward; the scores and the model's own loss."""
    torch.manual_seed(0)  # the text encoder's dropout
    model.zero_grad(set_to_none=True)
    found, more = scores(model, images, words)
    own = torch.eye(len(found), dtype=torch.bool, device=found.device)
    (Terms([{"name": "triplet"}])(ScoredBatch(found, own)) + more).backward()
    return torch.cat([found.detach().flatten(), torch.as_tensor(more, device=found.device).detach().reshape(1)])


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

    seconds, _ = timed(both)
    return {"ms": 1e3 * seconds, "pairs_per_s": batch / seconds}


def product_rate() -> float:
    """GFLOP/s of a large float32 matrix product."""
    a, b = torch.rand(MATRIX, MATRIX), torch.rand(MATRIX, MATRIX)
    seconds, _ = timed(lambda: a @ b)
    return 2 * MATRIX**3 / seconds / 1e9


def show(found: dict[str, Any]) -> None:
    """The same on the terminal."""
    title = (
        f"Training steps, B = {found['batch']}, {found['threads']} threads, blocks of {found['block_mib']:g} MiB, "
        f"products {found['gflop_per_s']:.0f} GFLOP/s"
    )
    table = Table(title=title)
    right = ("pairs/s", "share of the products' speed", "peer's", "ratio", "by processor time", "rounds", "spread")
    for column in ("model", "peer", *right, "largest difference"):
        table.add_column(column, justify="left" if column in ("model", "peer") else "right")
    for name in (n for n in MODELS if n in found):
        line = found[name]
        speed = [f"{line['pairs_per_s']:.1f}", f"{line['share_of_limit']:.0%}"]
        rounds, spreads, peer = str(line["rounds"]), f"{line['spread']:.2f}", ["", "", ""]
        if "peer" in line:
            peer = [f"{line[key]:.{digits}f}" for key, digits in RATIOS]
            spreads += f", {line['peer_spread']:.2f}"
        difference = f"{line['max_abs_diff']:.0e}" if "peer" in line else ""
        table.add_row(name, line.get("peer", ""), *speed, *peer, rounds, spreads, difference)
    console().print(table)
    if "losses" in found:
        losses = Table("loss", "ms")
        for name, line in found["losses"].items():
            losses.add_row(name, f"{line['ms']:.2f}")
        console().print(losses)
