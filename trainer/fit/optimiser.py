"""Adam and its learning rates, which change over time and from layer to layer."""

import re
from collections.abc import Sequence
from typing import Any

from torch.optim import Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from capgrade.schemas.errors import InputError
from capgrade.trainer.models.base import RetrievalModel
from capgrade.trainer.stages.train import TrainParams

PRETRAINED = "pretrained"  # key of a group of parameters that a pretrained encoder has
_LAYER = re.compile(r"^(?P<tower>.*?)\blayers?\.(?P<number>\d+)\.")
# `pre_layrnorm` is transformers' name of CLIP's first norm.
_BELOW = re.compile(r"^(?P<part>.*?)(embeddings\.|pre_layrnorm\.)")


def make_optimiser(model: RetrievalModel, params: TrainParams) -> Adam:
    """Adam, or AdamW with `weight_decay`; a pretrained encoder learns at `encoder_lr`.

    With `layer_decay` only its top layer, and what is above it, learns at that rate. Each layer
    below has `layer_decay` times the rate of the next, and embeddings are below the first (Sun et
    al. 2019, "How to Fine-Tune BERT", eq. 4). InputError where the model has no pretrained encoder,
    or its layers are not named as in transformers.
    """
    decay, has_layers = params.layer_decay, False
    names = {parameter: name for name, parameter in model.named_parameters()}
    split: list[dict[str, Any]] = []
    for group in model.parameter_groups(params.lr, params.encoder_lr or params.lr):
        if not group.pop(PRETRAINED, False) or decay is None:
            split.append(group)
            continue
        has_layers = True
        depths = _layer_depths([names[p] for p in group["params"]])
        for level in sorted(set(depths.values())):
            of_level = [p for p in group["params"] if depths[names[p]] == level]
            split.append({**group, "params": of_level, "lr": group["lr"] * decay**level})
    if decay is not None and not has_layers:
        problem = "train.layer_decay is of a pretrained encoder that learns"
        problem += ", and this model has none"
        raise InputError(problem, remedy="leave it out, or give the model a text_model")
    return AdamW(split, weight_decay=params.weight_decay) if params.weight_decay else Adam(split)


def make_schedule(optimiser: Optimizer, params: TrainParams, steps_an_epoch: int) -> LambdaLR:
    """A schedule that rises linearly over `warmup` steps, and divides the rate by 10 after each
    epoch of `decay_after`."""

    def factor(step: int) -> float:
        rise = min(1.0, (step + 1) / params.warmup) if params.warmup else 1.0
        return rise * 0.1 ** sum(step >= epoch * steps_an_epoch for epoch in params.decay_after)

    return LambdaLR(optimiser, factor)


def _layer_depths(names: Sequence[str]) -> dict[str, int]:
    """How many layers each parameter of an encoder is below the top layer of its tower; 0 also for
    what is above the layers."""
    layer = {name: match for name in names if (match := _LAYER.match(name))}
    if not layer:
        problem = f"train.layer_decay: no layers among {names[0]}, ..."
        raise InputError(problem, remedy="leave it out")
    top: dict[str, int] = {}
    for match in layer.values():
        top[match["tower"]] = max(top.get(match["tower"], 0), int(match["number"]))

    def depth(name: str) -> int:
        if match := layer.get(name):
            return top[match["tower"]] - int(match["number"])
        if below := _BELOW.match(name):
            part = below["part"]
            return max((n + 1 for tower, n in top.items() if tower.startswith(part)), default=0)
        return 0

    return {name: depth(name) for name in names}
