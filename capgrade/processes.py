"""Several processes on one list, as torchrun and `accelerate launch` start them: one a GPU, or on
several machines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from capgrade.schemas.errors import InputError

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
        texts = [os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")]
        try:
            process = Process(
                *(
                    int(text) if text else default
                    for text, default in zip(texts, (0, 1, 0), strict=True)
                )
            )
        except ValueError:
            process = Process(rank=-1)
        if not 0 <= process.rank < process.world or process.local < 0:
            problem = "RANK {}, WORLD_SIZE {}, LOCAL_RANK {} in the environment".format(*texts)
            raise InputError(
                problem, remedy="start with torchrun or accelerate launch, or unset them"
            )
        return process


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
