"""torchvision's operators in place of ours, where they import, compute the same and are not slower."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from types import ModuleType

import torch
from torch import Tensor

OPERATORS = ("nms", "roi_pool", "roi_align")
OURS_ON_CPU = {"roi_pool"}  # twice as fast there; docs/regions.md has the times


@functools.cache
def torchvision_ops(device: str = "cpu") -> ModuleType | None:
    """torchvision.ops when its kernels run on the kind of device, else None: a torchvision built for another torch does
    not import, one built without CUDA has no kernels there.

    detectron2 brings no operators of its own for these: detectron2.layers calls torchvision's.
    """
    try:
        ops = importlib.import_module("torchvision.ops")
        ops.nms(torch.zeros(1, 4, device=device), torch.zeros(1, device=device), 0.5)
    except (ImportError, AttributeError, RuntimeError, OSError, AssertionError):  # torch without CUDA asserts
        return None
    return ops


def theirs(operator: str, x: Tensor) -> Callable | None:
    """torchvision's operator for values like x, or None where ours is used. Its kernels know float32 everywhere."""
    if x.dtype != torch.float32 or not _better(operator, x.device.type):
        return None
    ops = torchvision_ops(x.device.type)
    if ops is None:
        return None
    return getattr(ops, operator)


def _better(operator: str, device: str) -> bool:
    return device == "cuda" or (device == "cpu" and operator not in OURS_ON_CPU)


def in_use(device: torch.device | str = "cpu") -> dict[str, str]:
    """Whose operators compute on a device, by name: "ours" or torchvision with its version."""
    kind = torch.device(device).type
    better = [op for op in OPERATORS if _better(op, kind)]
    if not better or torchvision_ops(kind) is None:
        return dict.fromkeys(OPERATORS, "ours")
    name = f"torchvision {importlib.import_module('torchvision').__version__}"
    return {op: name if op in better else "ours" for op in OPERATORS}
