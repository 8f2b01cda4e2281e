"""The device that a name of params.yaml means, and how products are computed on it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from capgrade.schemas.errors import InputError
from capgrade.schemas.extras import needs

if TYPE_CHECKING:
    import torch

    from capgrade.schemas.block import Precision

_NAMES = re.compile(r"auto|cpu|cuda(:\d+)?")


def device_of(name: str, local: int = 0) -> torch.device:
    """auto, cpu, cuda or cuda:N as a device; `local` numbers this process on its machine, so each
    takes its own GPU.

    auto is a CUDA GPU where there is one, else cpu; other accelerators (mps, xpu) are never chosen,
    because nothing here was run on them. Raises InputError for another name, for a GPU that is not
    there, and without torch.
    """
    if not _NAMES.fullmatch(name):
        raise InputError(f"unknown device '{name}'", remedy="choose from: auto, cpu, cuda, cuda:N")
    with needs("train"):
        import torch  # only where a device is named: other stages start without it

    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    number = int(name.partition(":")[2] or local)
    if number >= count:
        remedy = (
            f"use cuda:0 to cuda:{count - 1}"
            if ":" in name
            else f"start at most {count} processes, one on each GPU"
        )
        if not count:
            remedy = "use device cpu, or install a torch build for the GPU"
        raise InputError(f"no GPU {number} for device {name}: torch sees {count}", remedy=remedy)
    return torch.device("cuda", number)


def require_device(name: str) -> None:
    """As `device_of` refuses; nothing is imported for cpu, so measures that need no torch run
    without it."""
    if name != "cpu":
        device_of(name)


def require_precision(name: Precision, device: torch.device) -> None:
    """Raises InputError for tf32 on a processor, which has none."""
    if name == "tf32" and device.type != "cuda":
        raise InputError(
            f"precision is tf32 on device {device.type}", remedy="use float32 or bf16, or a GPU"
        )


@contextmanager
def precision_of(name: Precision, device: torch.device) -> Iterator[None]:
    """The products of float32 tensors on a GPU while the block runs; afterwards as they were.

    float32: in full, cuDNN's convolutions and recurrent layers too, which PyTorch would do in TF32.
    tf32: operands of 10 bits of mantissa, sums in float32. bf16: as float32 for what `autocast`
    leaves in float32. Raises as `require_precision` does.
    """
    import torch

    require_precision(name, device)
    backends: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [backend.allow_tf32 for backend in backends]
    try:
        for backend in backends:
            backend.allow_tf32 = name == "tf32"
        yield
    finally:
        for backend, value in zip(backends, before, strict=True):
            backend.allow_tf32 = value


def autocast(name: Precision, device: torch.device) -> torch.autocast:
    """bf16: convolutions and products in bfloat16 while the block runs; else nothing is cast."""
    import torch

    return torch.autocast(device.type, torch.bfloat16, enabled=name == "bf16")
