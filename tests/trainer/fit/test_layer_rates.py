"""Rates of the layers of pretrained encoders, as the optimiser has them."""

from __future__ import annotations

import pytest
from torch.optim import AdamW

from capgrade.schemas.errors import InputError
from capgrade.schemas.params import TrainParams, load_params
from capgrade.trainer.fit.optimiser import make_optimiser
from capgrade.trainer.models import build, configure
from capgrade.trainer.models.base import RetrievalModel
from tests.trainer.models.conftest import bert  # noqa: F401
from tests.trainer.models.made import host
from tests.trainer.models.test_dual_encoder import SMALL

PARAMS = TrainParams(lr=1e-2, encoder_lr=1e-3, layer_decay=0.5)


def rates(model: RetrievalModel, params: TrainParams) -> dict[str, float]:
    """By name; every parameter once."""
    groups = make_optimiser(model, params).param_groups
    found = {id(p): group["lr"] for group in groups for p in group["params"]}
    assert len(found) == sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
    return {name: found[id(p)] for name, p in model.named_parameters()}


def test_a_layer_learns_at_a_share_of_the_rate_of_the_next(bert: str) -> None:  # noqa: F811
    """Sun et al. 2019: eta^(k-1) = xi eta^k. The random BERT has two layers, a host's own layers have `lr`."""
    for name in ("saf, BERT", "vse_infinity, BERT", "tern"):
        model = host(name, bert)
        for parameter, rate in rates(model, PARAMS).items():
            shares = {".embeddings.": 0.25, ".encoder.layer.1.": 1, ".encoder.layer.0.": 0.5}
            expected = next((1e-3 * share for part, share in shares.items() if part in parameter), 1e-2)
            assert rate == pytest.approx(expected), (name, parameter)
        assert len(set(rates(model, PARAMS).values())) == 4
        one_rate = PARAMS.model_copy(update={"layer_decay": None})
        assert set(rates(model, one_rate).values()) == {1e-2, 1e-3}
        frozen = host(name, bert, freeze_text=True)
        (group,) = make_optimiser(frozen, one_rate).param_groups
        assert group["lr"] == 1e-2 and all(p.requires_grad for p in group["params"])


def test_both_towers_of_a_dual_encoder_have_their_own_layers() -> None:
    model = build("clip", configure("clip", {**SMALL, "text_layers": 3}, 0, 0), 0, 30)
    found = rates(model, PARAMS)
    for name, power in (
        ("text_model.encoder.layers.2.mlp.fc1.weight", 0),
        ("text_model.encoder.layers.0.mlp.fc1.weight", 2),
        ("text_model.embeddings.token_embedding.weight", 3),
        ("vision_model.encoder.layers.1.mlp.fc1.bias", 0),
        ("vision_model.encoder.layers.0.mlp.fc1.bias", 1),
        ("vision_model.embeddings.patch_embedding.weight", 2),
        ("vision_model.pre_layrnorm.weight", 2),
        ("visual_projection.weight", 0),
        ("text_model.final_layer_norm.weight", 0),
    ):
        assert found[f"encoder.{name}"] == pytest.approx(1e-3 * 0.5**power), name
    assert found["encoder.logit_scale"] == 1e-2
    optimiser = make_optimiser(model, PARAMS.model_copy(update={"weight_decay": 0.2}))
    assert isinstance(optimiser, AdamW) and not isinstance(make_optimiser(model, PARAMS), AdamW)
    decay = {id(p): group["weight_decay"] for group in optimiser.param_groups for p in group["params"]}
    for name, parameter in model.encoder.named_parameters():
        gain = name in ("logit_scale", "logit_bias") or parameter.ndim < 2
        assert decay[id(parameter)] == (0.0 if gain else 0.2), name


def test_a_decay_that_nothing_would_read_is_refused(bert: str) -> None:  # noqa: F811
    for options in ({"embed": 16}, {"embed": 16, "text_model": bert, "freeze_text": True}):
        model = build("saf", configure("saf", options, 12, 0), 12, 20)
        with pytest.raises(InputError, match="a pretrained encoder that learns, and this model has none"):
            make_optimiser(model, PARAMS)
    with pytest.raises(InputError, match="layer_decay"):
        load_params(None, ["train.layer_decay=1.5"])
