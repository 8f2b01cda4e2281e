"""Products by oneDNN beside PyTorch's own, of inputs laid out in any way."""

from pathlib import Path

import pytest
import torch

from capgrade.trainer.models import matmul
from capgrade.trainer.models.matmul import linear_product, made_by_amd

from .made import close


@pytest.mark.parametrize("onednn", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_product_and_gradients_are_those_of_linear(
    dtype: torch.dtype, onednn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if onednn and not matmul.WIDE:
        pytest.skip("no AVX-512")
    monkeypatch.setattr(matmul, "ONEDNN", onednn)
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


@pytest.mark.parametrize(("text", "amd"), [("AuthenticAMD", True), ("GenuineIntel", False), (None, False)])
def test_the_maker(text: str | None, amd: bool, tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    if text is not None:
        file.write_text(f"processor\t: 0\nvendor_id\t: {text}\n")
    assert made_by_amd(file) is amd
