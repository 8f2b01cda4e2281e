"""How a run computes its products: one switch, `train.precision`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from capgrade.schemas.errors import InputError


@contextmanager
def precision_of(name: str, device: torch.device) -> Iterator[None]:
    """The products of float32 tensors on a GPU while the block runs; afterwards as they were.

    float32: in full, cuDNN's convolutions and recurrent layers too, which PyTorch would do in TF32. tf32: operands of
    10 bits of mantissa, sums in float32. bf16: as float32 for what `autocast` leaves in float32.
    Raises InputError for tf32 on a processor, which has none.
    """
    if name == "tf32" and device.type != "cuda":
        raise InputError(f"train.precision is tf32 on device {device.type}", remedy="use float32 or bf16, or a GPU")
    backends: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [backend.allow_tf32 for backend in backends]
    try:
        for backend in backends:
            backend.allow_tf32 = name == "tf32"
        yield
    finally:
        for backend, value in zip(backends, before, strict=True):
            backend.allow_tf32 = value


def autocast(name: str, device: torch.device) -> torch.autocast:
    """bf16: products of encoders and alignments in bfloat16; else nothing is cast. Scores and losses are float32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=name == "bf16")
