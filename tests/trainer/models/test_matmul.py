"""Products by oneDNN beside PyTorch's own, of inputs laid out in any way."""

import pytest
import torch

from capgrade.trainer.models.matmul import linear_product

from .made import close


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_product_and_gradients_are_those_of_linear(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layouts = {
        "whole": torch.randn(3, 4, 8, dtype=dtype),
        "first of each": torch.randn(3, 4, 5, 8, dtype=dtype)[:, :, :1],
        "transposed": torch.randn(3, 8, 4, dtype=dtype).mT,
    }
    for x in layouts.values():
        weight, bias = torch.randn(6, 8, dtype=dtype), torch.randn(6, dtype=dtype)
        ours = [value.clone().requires_grad_() for value in (x, weight, bias)]
        plain = [value.clone().requires_grad_() for value in (x, weight, bias)]
        y, expected = linear_product(*ours), torch.nn.functional.linear(*plain)
        close(y, expected, 1e-5)
        y.cos().sum().backward()
        expected.cos().sum().backward()
        for value, other in zip(ours, plain, strict=True):
            close(value.grad, other.grad, 1e-5)


def test_no_bias_has_no_gradient() -> None:
    x, weight = torch.randn(2, 8, requires_grad=True), torch.randn(3, 8, requires_grad=True)
    linear_product(x, weight).sum().backward()
    close(x.grad, weight.sum(0).expand(2, 8), 1e-5)
