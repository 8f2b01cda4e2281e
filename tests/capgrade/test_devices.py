"""One function says what a device's name means, for every stage."""

import sys

import pytest
import torch

from capgrade.devices import autocast, device_of, precision_of
from capgrade.schemas.block import Precision
from capgrade.schemas.errors import InputError


def gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


@pytest.mark.parametrize(
    ("name", "local", "count", "expected"),
    [
        ("cpu", 3, 2, "cpu"),
        ("auto", 0, 0, "cpu"),
        ("auto", 1, 2, "cuda:1"),
        ("cuda", 1, 2, "cuda:1"),
        ("cuda:0", 1, 2, "cuda:0"),
        ("cuda:7", 0, 8, "cuda:7"),
        (
            "cuda",
            0,
            0,
            "no GPU 0 for device cuda: torch sees 0 -> use device cpu, or install a torch build",
        ),
        ("cuda:7", 0, 2, "no GPU 7 for device cuda:7: torch sees 2 -> use cuda:0 to cuda:1"),
        (
            "cuda",
            2,
            2,
            "no GPU 2 for device cuda: torch sees 2 -> start at most 2 processes, one on each GPU",
        ),
        ("auto", 5, 2, "no GPU 5 for device auto: torch sees 2 -> start at most 2 processes"),
        ("mps", 0, 2, "unknown device 'mps' -> choose from: auto, cpu, cuda, cuda:N"),
        ("cuda:", 0, 2, "unknown device 'cuda:' -> choose from"),
    ],
)
def test_a_name_is_a_device_or_an_error(
    monkeypatch, name: str, local: int, count: int, expected: str
) -> None:
    gpus(monkeypatch, count)
    if "->" not in expected:
        assert device_of(name, local) == torch.device(expected)
        return
    with pytest.raises(InputError, match=expected):
        device_of(name, local)


def test_auto_is_never_another_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accelerate takes mps or xpu where they are; nothing here was run on them."""
    gpus(monkeypatch, 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.xpu, "is_available", lambda: True)
    assert device_of("auto") == torch.device("cpu")


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        InputError, match=r"torch is not installed -> pip install 'capgrade\[train\]'"
    ):
        device_of("cpu")


def switches() -> tuple[bool, bool]:
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize(("name", "tf32"), [("float32", False), ("tf32", True), ("bf16", False)])
def test_one_switch_for_products_and_cudnn(name: Precision, tf32: bool) -> None:
    before = switches()
    with precision_of(name, torch.device("cuda", 0)):
        assert switches() == (tf32, tf32)
        assert autocast(name, torch.device("cpu"))._enabled == (name == "bf16")
    assert switches() == before
    with pytest.raises(KeyError), precision_of(name, torch.device("cuda", 0)):
        raise KeyError
    assert switches() == before
