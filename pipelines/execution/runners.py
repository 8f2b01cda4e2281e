"""Beam's runners: their options, and the errors of their workers in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from capgrade.schemas.errors import InputError

# FnApiRunner is what DirectRunner ends up with; named, it does not first look for a downloaded one. Dask's is known by
# its full name alone.
RUNNERS = {
    "--runner=DirectRunner": "--runner=FnApiRunner",
    "--runner=DaskRunner": "--runner=apache_beam.runners.dask.dask_runner.DaskRunner",
}


def arguments(options: Sequence[str]) -> list[str]:
    """Beam's options: the runner by the name that serves, and one element a partition of Dask, as each is much work."""
    if "--runner" in options[:-1]:  # its value follows as a word of its own
        at = list(options).index("--runner")
        options = [*options[:at], f"--runner={options[at + 1]}", *options[at + 2 :]]
    runner = next((option for option in options if option.startswith("--runner=")), "--runner=DirectRunner")
    others = [option for option in options if option != runner]
    if runner == "--runner=DaskRunner" and not any("partition" in option.partition("=")[0] for option in others):
        others.append("--dask_partition_size=1")
    return [RUNNERS.get(runner, runner), *others]


@contextmanager
def plain_errors() -> Iterator[None]:
    """Beam wraps what a worker raises; hand users the InputError inside."""
    try:
        yield
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, InputError):
                raise cause from None
            if cause.args and isinstance(cause.args[0], InputError):
                raise cause.args[0] from None
            cause = cause.__cause__
        raise
