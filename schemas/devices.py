"""The device that a name of params.yaml or of --device means, checked before anything is computed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from capgrade.schemas.errors import InputError
from capgrade.schemas.extras import needs

if TYPE_CHECKING:
    import torch

NAMES = re.compile(r"auto|cpu|cuda(:\d+)?")


def device_of(name: str, local: int = 0) -> torch.device:
    """auto, cpu, cuda or cuda:N as a device; `local` numbers this process on its machine, so each takes its own GPU.

    auto is a CUDA GPU where there is one, else cpu; other accelerators (mps, xpu) are never chosen, because nothing
    here was run on them. Raises InputError for another name, for a GPU that is not there, and without torch.
    """
    if not NAMES.fullmatch(name):
        raise InputError(f"unknown device '{name}'", remedy="choose from: auto, cpu, cuda, cuda:N")
    with needs("train"):
        import torch  # only where a device is named: other stages start without it

    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    number = int(name.partition(":")[2] or local)
    if number >= count:
        raise InputError(f"no GPU {number} for device {name}: torch sees {count}", remedy=_remedy(name, count))
    return torch.device("cuda", number)


def require_device(name: str) -> None:
    """As `device_of` refuses; nothing is imported for cpu, so measures that need no torch run without it."""
    if name != "cpu":
        device_of(name)


def _remedy(name: str, count: int) -> str:
    if not count:
        return "use device cpu, or install a torch build for the GPU"
    return f"use cuda:0 to cuda:{count - 1}" if ":" in name else f"start at most {count} processes, one on each GPU"
