"""The processes of one run: all go by what the first says, and learn from the mean of their
gradients."""

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
    """`device_of`; with several processes each has its own GPU. InputError for one GPU named for
    several."""
    if process.world > 1 and ":" in name:
        problem = f"train.device is {name} for {process.world} processes"
        raise InputError(problem, remedy="use cuda: each process takes its own GPU")
    return device_of(name, process.local)


def from_first(make: Callable[[], _T]) -> _T:
    """What `make` gives on the first process, on all, or its InputError; only there is it
    called."""
    if not _several():
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


def same_on_all(tensors: Iterable[Tensor]) -> None:
    """Overwrite parameters or running statistics with those of the first process."""
    if _several():
        for tensor in tensors:
            dist.broadcast(tensor.data, src=0)


def mean_gradients(parameters: Iterable[Parameter]) -> None:
    """Each gradient becomes its mean over the processes. A parameter that a batch did not use has
    none on any of them, as all compute the loss of the whole batch; it keeps none."""
    if not _several():
        return
    grads = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([grad.flatten() for grad in grads])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for grad, part in zip(grads, flat.split([grad.numel() for grad in grads]), strict=True):
        grad.copy_(part.view_as(grad))


def _several() -> bool:
    return dist.is_initialized() and dist.get_world_size() > 1
