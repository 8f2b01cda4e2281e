"""Adam and its learning rate, as the field's trainers have them."""

from __future__ import annotations

from torch.optim import Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from capgrade.schemas.params import TrainParams
from capgrade.trainer.fit.layer_rates import by_layer
from capgrade.trainer.models.base import RetrievalModel


def make_optimiser(model: RetrievalModel, params: TrainParams) -> Adam:
    """Adam, or AdamW with `weight_decay`; a pretrained encoder learns at `encoder_lr`, with `layer_decay` its lower
    layers slower (`by_layer`)."""
    groups = model.parameter_groups(params.lr, params.encoder_lr or params.lr)
    groups = by_layer(groups, dict(model.named_parameters()), params.layer_decay)
    if params.weight_decay:
        return AdamW(groups, weight_decay=params.weight_decay)
    return Adam(groups)


def make_schedule(optimiser: Optimizer, params: TrainParams, steps_an_epoch: int) -> LambdaLR:
    """A linear rise over `warmup` steps; a tenth of the rate after each epoch of `decay_after`."""

    def factor(step: int) -> float:
        rise = min(1.0, (step + 1) / params.warmup) if params.warmup else 1.0
        return rise * 0.1 ** sum(step >= epoch * steps_an_epoch for epoch in params.decay_after)

    return LambdaLR(optimiser, factor)
