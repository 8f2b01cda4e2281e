"""Beam's runners: their options, and the errors of their workers in plain words."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions

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


def processes_here(options: PipelineOptions) -> int:
    """How many worker processes share this machine's cores, as the direct runner's options say. Threads of one process
    take turns with all cores; what other runners start on a machine their options do not say."""
    direct = options.view_as(DirectOptions)
    if direct.direct_running_mode != "multi_processing":
        return 1
    return direct.direct_num_workers or os.cpu_count() or 1


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
