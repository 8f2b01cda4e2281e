"""Several processes on one list or in one training run, as torchrun and `accelerate launch` start
them: one a GPU, or on several machines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from capgrade.devices import device_of
from capgrade.schemas.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.nn import Parameter

_T = TypeVar("_T")
# How long one process waits for another; a process that stops ends the wait at once.
_LONGEST = timedelta(days=7)


@dataclass(frozen=True)
class Process:
    """Which process this is, of how many, and which on its machine; one of one unless a launcher
    says otherwise."""

    rank: int = 0
    world: int = 1
    local: int = 0

    @staticmethod
    def current() -> Process:
        """From the environment. InputError for numbers that do not fit."""
        texts = os.getenv("RANK"), os.getenv("WORLD_SIZE"), os.getenv("LOCAL_RANK")
        try:
            process = Process(int(texts[0] or 0), int(texts[1] or 1), int(texts[2] or 0))
        except ValueError:
            process = Process(rank=-1)
        if not 0 <= process.rank < process.world or process.local < 0:
            problem = "RANK {}, WORLD_SIZE {}, LOCAL_RANK {} in the environment".format(*texts)
            raise InputError(
                problem, remedy="start with torchrun or accelerate launch, or unset them"
            )
        return process

    def device(self, name: str) -> torch.device:
        """The device of the name `train.device`, of several processes a GPU of each one's own.
        InputError for several processes on one GPU."""
        if self.world > 1 and ":" in name:
            problem = f"train.device is {name} for {self.world} processes"
            raise InputError(problem, remedy="use cuda: each process takes its own GPU")
        return device_of(name, self.local)

    def part(self, batch: int) -> slice:
        """The pairs of a training batch of this size that the process encodes. InputError where
        processes would have different numbers of pairs."""
        if batch % self.world:
            problem = f"a batch of {batch} for {self.world} processes"
            remedy = f"set a train.batch_size that {self.world} divides, and train.drop_last=true"
            raise InputError(problem, remedy=remedy)
        share = batch // self.world
        return slice(self.rank * share, (self.rank + 1) * share)


@contextmanager
def join_processes(process: Process, backend: str = "gloo") -> Iterator[Callable[[], object]]:
    """Yields a function that returns when every process has called it. An existing group is used
    and kept. InputError where another process has stopped: this one waits for it no longer.
    """
    if process.world == 1:
        yield lambda: None
        return
    from torch import distributed

    # The caller may have started the group: a launcher's store connects its processes only once.
    was_initialized = distributed.is_initialized()
    try:
        if not was_initialized:
            store, rank, world = next(distributed.rendezvous("env://", timeout=_LONGEST))
            # torchrun starts all again on the same store, where the addresses of those that have
            # ended still are.
            store = distributed.PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", ""), store)
            distributed.init_process_group(
                backend, timeout=_LONGEST, store=store, rank=rank, world_size=world
            )
        yield distributed.barrier
    except (RuntimeError, ValueError) as error:
        message = str(error).partition("\n")[0]
        if (
            not isinstance(error, distributed.DistError)
            and "gloo" not in message
            and "torch.distributed" not in message
        ):
            raise
        problem = f"the other processes of this run cannot be reached ({message})"
        raise InputError(problem, remedy="see what they said; run again to go on") from error
    finally:
        if not was_initialized and distributed.is_initialized():
            distributed.destroy_process_group()


def run_on_first(make: Callable[..., _T], *arguments: Any) -> _T:
    """`make(*arguments)` of the first process alone; all processes return its result or raise its
    InputError."""
    if not _has_peers():
        return make(*arguments)
    import torch
    from torch import distributed

    box: list[Any] = [None, None]
    if distributed.get_rank() == 0:
        try:
            box[0] = make(*arguments)
        except InputError as error:
            box[1] = error
    distributed.broadcast_object_list(box, src=0, device=torch.device("cpu"))
    if box[1] is not None:
        raise box[1]
    return box[0]


def broadcast_from_first(tensors: Iterable[Tensor]) -> None:
    """Overwrite parameters or running statistics with those of the first process."""
    if _has_peers():
        from torch import distributed

        for tensor in tensors:
            distributed.broadcast(tensor.data, src=0)


def average_gradients(parameters: Iterable[Parameter]) -> None:
    """Replace each gradient by its mean over the processes. A parameter without a gradient has none
    on any process, because all compute the loss of the whole batch."""
    if not _has_peers():
        return
    import torch
    from torch import distributed

    grads = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([grad.flatten() for grad in grads])
    distributed.all_reduce(flat)
    flat /= distributed.get_world_size()
    for grad, part in zip(grads, flat.split([grad.numel() for grad in grads]), strict=True):
        grad.copy_(part.view_as(grad))


def _has_peers() -> bool:
    from torch import distributed

    return distributed.is_initialized() and distributed.get_world_size() > 1
