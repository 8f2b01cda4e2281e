"""Adam and its learning rates: over time as the field's trainers have them, and from layer to
layer."""

import re
from collections.abc import Sequence
from typing import Any

from torch.optim import Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from capgrade.schemas.errors import InputError
from capgrade.schemas.params import TrainParams
from capgrade.trainer.models.base import RetrievalModel

PRETRAINED = "pretrained"  # of a group of parameters: it is a pretrained encoder's
_LAYER = re.compile(r"^(?P<tower>.*?)\blayers?\.(?P<number>\d+)\.")
# transformers' name of CLIP's first norm
_BELOW = re.compile(r"^(?P<part>.*?)(embeddings\.|pre_layrnorm\.)")


def make_optimiser(model: RetrievalModel, params: TrainParams) -> Adam:
    """Adam, or AdamW with `weight_decay`; a pretrained encoder learns at `encoder_lr`.

    With `layer_decay` its top layer, and what is above it, has that rate, each layer below
    `layer_decay` times that of the next (Sun et al. 2019, "How to Fine-Tune BERT", eq. 4),
    embeddings that of a layer below the first. InputError where no group is a pretrained encoder's,
    or its layers are not named as those of transformers.
    """
    named, decay = dict(model.named_parameters()), params.layer_decay
    groups = model.parameter_groups(params.lr, params.encoder_lr or params.lr)
    split: list[dict[str, Any]] = []
    for group in groups:
        rest = {key: value for key, value in group.items() if key != PRETRAINED}
        own = {id(p) for p in group["params"]}
        names = [name for name, p in named.items() if id(p) in own]
        depth = (
            depths(names)
            if decay is not None and group.get(PRETRAINED)
            else dict.fromkeys(names, 0)
        )
        for level in sorted(set(depth.values())):
            some = [named[name] for name in names if depth[name] == level]
            split.append({**rest, "params": some, "lr": group["lr"] * (decay or 1) ** level})
    if decay is not None and not any(group.get(PRETRAINED) for group in groups):
        problem = (
            "train.layer_decay is of a pretrained encoder that learns, and this model has none"
        )
        raise InputError(problem, remedy="leave it out, or give the model a text_model")
    return AdamW(split, weight_decay=params.weight_decay) if params.weight_decay else Adam(split)


def make_schedule(optimiser: Optimizer, params: TrainParams, steps_an_epoch: int) -> LambdaLR:
    """A linear rise over `warmup` steps; a tenth of the rate after each epoch of `decay_after`."""

    def factor(step: int) -> float:
        rise = min(1.0, (step + 1) / params.warmup) if params.warmup else 1.0
        return rise * 0.1 ** sum(step >= epoch * steps_an_epoch for epoch in params.decay_after)

    return LambdaLR(optimiser, factor)


def depths(names: Sequence[str]) -> dict[str, int]:
    """How many layers below the top of its tower each parameter of an encoder is; 0 above the
    layers too."""
    layer = {name: match for name in names if (match := _LAYER.match(name))}
    if not layer:
        raise InputError(
            f"train.layer_decay: no layers among {names[0]}, ...", remedy="leave it out"
        )
    top: dict[str, int] = {}
    for match in layer.values():
        top[match["tower"]] = max(top.get(match["tower"], 0), int(match["number"]))

    def depth(name: str) -> int:
        if match := layer.get(name):
            return top[match["tower"]] - int(match["number"])
        below = _BELOW.match(name)
        return max(
            (n + 1 for tower, n in top.items() if below and tower.startswith(below["part"])),
            default=0,
        )

    return {name: depth(name) for name in names}
