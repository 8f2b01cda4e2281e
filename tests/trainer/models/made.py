"""Small batches and small models for the models' tests: sets of different sizes, in any amount of
padding.

HOSTS: a model and its options by name; a text_model stands for the BERT of conftest.py.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from capgrade.trainer.models import configure, model_of
from capgrade.trainer.models.base import CaptionTokens, Encoded, Images, RetrievalModel

FEATURES = 12
VOCABULARY = 19
REGIONS = (4, 6, 1, 5, 6)
WORDS = (3, 7, 1, 5, 3, 4)
PAIRS = WORDS[:5]
OWNER = torch.tensor([0, 1, 2, 0, 1])  # captions of one image say other concepts of CVSE
VOCAB = ("the", "dog", "red", "a", "cat", "2", "runs", "sofa", "of", "car")  # numbers from 4 on

TERN = {
    "embed_dim": 8,
    "image_layers": 2,
    "joint_layers": 1,
    "heads": 2,
    "feedforward": 16,
    "dropout": 0.0,
}
SCAN = {"embed": 16, "word": 5}
GRAF = {"embed": 16, "word": 5, "similarity": 8, "dropout": 0.0}
VSRN = {
    "embed": 6,
    "word": 5,
    "layers": 2,
    "caption_hidden": 7,
    "caption_word": 3,
    "caption_dropout": 0.0,
}
CLIP = {
    "image": 2,
    "patch": 1,
    "image_width": 16,
    "image_layers": 1,
    "image_heads": 2,
    "positions": 16,
}
# pictures of 2 x 2 pixels: a region of 12 numbers
CLIP |= {
    "text_width": 16,
    "text_layers": 1,
    "text_heads": 2,
}
HOSTS: dict[str, tuple[str, dict[str, Any]]] = {
    "vse": ("vse", {"embed": 8, "word": 5}),
    "vse_infinity": ("vse_infinity", {"embed": 8, "word": 5, "drop": 0.0}),
    "vse_infinity, BERT": ("vse_infinity", {"embed": 8, "drop": 0.0, "text_model": "bert"}),
    "vsrn": ("vsrn", VSRN),
    "vsrn of Flickr30K": ("vsrn", {**VSRN, "first_norm": False, "last_norm": True}),
    "cvse": ("cvse", {"embed": 6, "word": 5, "concepts": 4, "dropout": 0.0}),
    "scan": ("scan", SCAN),
    "scan, i2t": ("scan", {**SCAN, "direction": "i2t"}),
    **{
        f"scan {direction} {pooling}": (
            "scan",
            {**SCAN, "direction": direction, "pooling": pooling},
        )
        for direction in ("t2i", "i2t")
        for pooling in ("mean", "max", "sum")
    },
    "saf": ("saf", GRAF),
    "saf, BERT": ("saf", {**GRAF, "text_model": "bert"}),
    "sgr": ("sgr", GRAF),
    "single_stream": ("single_stream", {"embed": 8, "side": 4, "cell": 2, "width": 8}),
    **{name: (name, CLIP) for name in ("clip", "siglip")},
    "tern": ("tern", {**TERN, "text_model": "bert"}),
    "teran": ("teran", {**TERN, "text_model": "bert"}),
    "teran, scan": (
        "teran",
        {**TERN, "text_model": "bert", "pooling": "scan", "shared_joint": True},
    ),
}


def prefix(lengths: Sequence[int], padded: int) -> Tensor:
    return torch.arange(padded) < torch.tensor(lengths).unsqueeze(1)


def images(
    regions: Sequence[int] = REGIONS, padded: int = 6, garbage: float = 0.0, seed: int = 0
) -> Images:
    """Regions of seeded features; what is padding holds `garbage`."""
    features = torch.randn(len(regions), 6, FEATURES, generator=torch.Generator().manual_seed(seed))
    mask = prefix(regions, padded)
    whole = torch.full((len(regions), padded, FEATURES), garbage)
    whole[:, :6] = features[:, :padded]
    whole[~mask] = garbage
    return Images(whole, torch.zeros(len(regions), padded, 5), mask)


def texts(words: Sequence[int] = WORDS, padded: int = 7, seed: int = 1) -> CaptionTokens:
    tokens = torch.randint(
        1, VOCABULARY, (len(words), 7), generator=torch.Generator().manual_seed(seed)
    )
    mask = prefix(words, padded)
    whole = torch.zeros(len(words), padded, dtype=torch.int64)
    whole[:, :7] = tokens
    return CaptionTokens(whole * mask, mask)


def made(name: str, random: float | None = None, **options: Any) -> Any:
    """A model in double precision; with `random` every weight is normal of this deviation, so
    nothing hides."""
    torch.manual_seed(0)
    config = configure(name, options, FEATURES, 5)
    model = model_of(name)(config, FEATURES, VOCABULARY).double()
    for parameter in model.parameters() if random else ():
        torch.nn.init.normal_(parameter, std=random)
    if name == "cvse":
        tokens = [row[:n].numpy() for row, n in zip(texts(PAIRS).tokens, PAIRS, strict=True)]
        model.learn_words(VOCAB, tokens, OWNER.numpy().astype(np.int64))
    return model


def host(name: str, bert: str, **more: Any) -> Any:
    """The model of a name in HOSTS, without dropout."""
    kind, options = HOSTS[name]
    model = made(
        kind, **{**options, **more, **({"text_model": bert} if "text_model" in options else {})}
    )
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model


def close(ours: Tensor, expected: Tensor, tolerance: float = 1e-6) -> None:
    difference = (ours - expected).abs().max().item()
    assert difference <= tolerance, f"largest difference {difference}"


def normed(rows: Tensor, norm: torch.nn.BatchNorm1d) -> Tensor:
    """BatchNorm written out: rows [n, D] of the whole batch."""
    mean, variance = norm.running_mean, norm.running_var
    if norm.training:
        mean, variance = rows.mean(0), (rows - rows.mean(0)).pow(2).mean(0)
    return (rows - mean) / (variance + 1e-5).sqrt() * norm.weight + norm.bias


def encoded(
    model: RetrievalModel, regions: int = 6, words: int = 7, garbage: float = 0.0,
    sizes: tuple[Sequence[int], Sequence[int]] = (REGIONS, WORDS),
) -> tuple[Encoded, Encoded]:  # fmt: skip
    """The small batches through a model, in its own precision."""
    return _sides(model, images(sizes[0], regions, garbage), texts(sizes[1], words))[:2]


def _sides(
    model: RetrievalModel, seen: Images, read: CaptionTokens
) -> tuple[Encoded, Encoded, CaptionTokens]:
    dtype = next(model.parameters()).dtype
    seen = replace(seen, features=seen.features.to(dtype), boxes=seen.boxes.to(dtype))
    read = replace(read, images=OWNER[: len(read.tokens)])
    return *model(seen, read), read


def outputs(
    model: RetrievalModel, regions: int = 6, words: int = 7, garbage: float = 0.0,
    sizes: tuple[Sequence[int], Sequence[int]] = (REGIONS, PAIRS),
) -> list[Tensor]:  # fmt: skip
    """All that a loss may see of as many pairs: scores, those of the model's parts, its own losses,
    its logits."""
    seen, read, captions = _sides(model, images(sizes[0], regions, garbage), texts(sizes[1], words))
    more = [
        *model.more_scores(seen, read).values(),
        *model.own_losses(seen, read, captions).values(),
    ]
    tensors = model.loss_tensors(seen, read)
    classes = [tensors[name] for name in ("image_logits", "caption_logits") if name in tensors]
    return [model.scores(seen, read), *more, *classes]


def gradients(model: torch.nn.Module, *found: Tensor) -> dict[str, Tensor]:
    """Of a sum that weighs every number of the outputs otherwise, by parameter."""
    model.zero_grad()
    sum((x * torch.arange(x.numel()).view_as(x).cos()).sum() for x in found).backward()  # type: ignore[union-attr]
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
