"""Several processes on one list, as torchrun and `accelerate launch` start them: one a GPU, or on
several machines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from capgrade.schemas.errors import InputError

# that one process waits for another; one that stops ends the wait at once
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
        given = [os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")]
        try:
            process = Process(
                *(
                    int(text) if text else default
                    for text, default in zip(given, (0, 1, 0), strict=True)
                )
            )
        except ValueError:
            process = Process(rank=-1)
        if not 0 <= process.rank < process.world or process.local < 0:
            problem = "RANK {}, WORLD_SIZE {}, LOCAL_RANK {} in the environment".format(*given)
            raise InputError(
                problem, remedy="start with torchrun or accelerate launch, or unset them"
            )
        return process


@contextmanager
def together(process: Process, backend: str = "gloo") -> Iterator[Callable[[], object]]:
    """Yields a function that returns when every process has called it. A group that is there is
    used, and kept. InputError where another process has stopped: this one waits for it no longer.
    """
    if process.world == 1:
        yield lambda: None
        return
    from torch import distributed

    # by the caller: a launcher's store connects its processes once only
    begun = distributed.is_initialized()
    try:
        if not begun:
            store, rank, world = next(distributed.rendezvous("env://", timeout=_LONGEST))
            # torchrun starts all again on the same store, where the addresses of those that have
            # ended still are.
            store = distributed.PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", ""), store)
            distributed.init_process_group(
                backend, timeout=_LONGEST, store=store, rank=rank, world_size=world
            )
        yield distributed.barrier
    except (RuntimeError, ValueError) as error:
        told = str(error).partition("\n")[0]
        if (
            not isinstance(error, distributed.DistError)
            and "gloo" not in told
            and "torch.distributed" not in told
        ):
            raise
        problem = f"the other processes of this run cannot be reached ({told})"
        raise InputError(problem, remedy="see what they said; run again to go on") from error
    finally:
        if not begun and distributed.is_initialized():
            distributed.destroy_process_group()
