"""The processes of one run: all have the first one's values, and the mean of their gradients."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Parameter

from capgrade.devices import device_of
from capgrade.processes import Process
from capgrade.schemas.errors import InputError

_T = TypeVar("_T")


def device_of_process(name: str, process: Process) -> torch.device:
    """The device of a name, which for several processes is a GPU of each one's own. InputError for
    several processes on one GPU."""
    if process.world > 1 and ":" in name:
        problem = f"train.device is {name} for {process.world} processes"
        raise InputError(problem, remedy="use cuda: each process takes its own GPU")
    return device_of(name, process.local)


def run_on_first(make: Callable[[], _T]) -> _T:
    """Call `make` on the first process alone; all processes return its result or raise its
    InputError."""
    if not _has_peers():
        return make()
    box: list[Any] = [None, None]
    if dist.get_rank() == 0:
        try:
            box[0] = make()
        except InputError as error:
            box[1] = error
    dist.broadcast_object_list(box, src=0, device=torch.device("cpu"))
    if box[1] is not None:
        raise box[1]
    return box[0]


def broadcast_from_first(tensors: Iterable[Tensor]) -> None:
    """Overwrite parameters or running statistics with those of the first process."""
    if _has_peers():
        for tensor in tensors:
            dist.broadcast(tensor.data, src=0)


def average_gradients(parameters: Iterable[Parameter]) -> None:
    """Replace each gradient by its mean over the processes. A parameter without a gradient has none
    on any process, because all compute the loss of the whole batch."""
    if not _has_peers():
        return
    grads = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([grad.flatten() for grad in grads])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for grad, part in zip(grads, flat.split([grad.numel() for grad in grads]), strict=True):
        grad.copy_(part.view_as(grad))


def _has_peers() -> bool:
    return dist.is_initialized() and dist.get_world_size() > 1
