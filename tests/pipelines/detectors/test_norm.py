import copy

import torch
from torch import nn

from capgrade.pipelines.detectors.norm import TrainedConvNorm, freeze, unfreeze
from capgrade.pipelines.detectors.resnet import ConvNorm, ResNetC4


def test_folded_norms_give_what_the_trained_ones_give_in_eval_mode():
    torch.manual_seed(0)
    model = ResNetC4((1, 2, 1), width=0.125)
    unfreeze(model)
    for _ in range(3):  # statistics of this data, away from 0 and 1
        model.train()(torch.randn(4, 3, 64, 64) * 50 + 20)
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.bias.uniform_(-0.2, 0.2)
                layer.weight.uniform_(0.5, 1.5)
    x = torch.randn(2, 3, 80, 64) * 50
    before = model.eval()(x)
    freeze(model)
    assert not any(isinstance(layer, (nn.BatchNorm2d, TrainedConvNorm)) for layer in model.modules())
    torch.testing.assert_close(model(x), before, rtol=1e-4, atol=1e-4)


def test_names_of_the_folded_model_are_those_of_one_that_was_never_trained():
    model = ResNetC4((1, 1, 1), width=0.125)
    other = copy.deepcopy(model)
    unfreeze(model)
    assert sum(isinstance(layer, TrainedConvNorm) for layer in model.modules()) == sum(
        isinstance(layer, ConvNorm) for layer in other.modules()
    )
    freeze(model)
    assert model.state_dict().keys() == other.state_dict().keys()
