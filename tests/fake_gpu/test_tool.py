"""The tool itself: what a GPU would refuse is refused, what it computes is computed."""

from collections.abc import Callable

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

from tests.fake_gpu.device import DEVICE, FakeGpu, counted

REFUSED: dict[str, Callable[[torch.Tensor], object]] = {
    "two devices": lambda x: x + torch.ones(3),
    "an index of one and a table of the other": lambda x: torch.ones(3)[x.long()],
    "numpy of a device tensor": lambda x: x.numpy(),
    "lengths on the device": lambda x: pack_padded_sequence(x[:, None, None], x[:1].long()),
    "two types under autocast": lambda x: torch.addmm(x[:1, None], x[None].bfloat16(), x[:, None]),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_a_gpu_refuses_is_refused(kind: str) -> None:
    with FakeGpu():
        x = torch.ones(3).to(DEVICE)
        with pytest.raises((RuntimeError, TypeError)):
            REFUSED[kind](x)


def test_what_a_gpu_computes_is_computed() -> None:
    with FakeGpu():
        x = torch.arange(4.0, device=DEVICE)
        assert x.device.type == "cuda" and (x * 2 + 1).cpu().tolist() == [1, 3, 5, 7]
        x[1] = 9
        assert x.sum().item() == 14 and torch.full((2,), 3, device=DEVICE).device.type == "cuda"


def test_waits_are_counted() -> None:
    with FakeGpu():
        x = torch.arange(4.0).to(DEVICE)
        counted.clear()
        y = x * 2
        assert counted == {"kernels": 1, "waits": 0, "copies back": 0}
        y.sum().item(), y.nonzero(), y[y > 2], torch.equal(x, y), y.tolist(), y.cpu()
        assert (counted["waits"], counted["copies back"]) == (5, 1)
