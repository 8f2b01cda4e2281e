"""A stage is a value: its block of parameters, what it reads, and the function that does its work.

All else is derived from these: its command, its block of params.yaml, its stage of dvc.yaml, what
`inputs` watches, how a run is kept, and the command line that a report or a remedy names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any, Generic, TypeVar

from capgrade.schemas.block import ParamsBlock

P = TypeVar("P", bound=ParamsBlock)


@dataclass(frozen=True)
class Reads:
    """A folder that another stage wrote. The command has an option of the name that it has here."""

    stage: str
    needed: bool = True
    at_url: bool = False  # it may lie at a URL, and is then copied before the stage begins
    several: bool = False  # the option may be repeated, and the function takes a list
    file: bool = False  # a file that the stage wrote
    at: str | None = None  # where a pipeline has it, below data/; None: the stage's name

    @property
    def place(self) -> str:
        """Where a pipeline has it, below data/."""
        return self.at or self.stage


@dataclass(frozen=True)
class Shown:
    """Files of a stage's folder that DVC shows, copied to a place of their own below data/."""

    files: str
    place: str  # a folder, or of one file its name
    metrics: bool = False
    plot: Mapping[str, str] | None = None  # x, y and title


@dataclass(frozen=True, kw_only=True)
class Stage(Generic[P]):
    """A stage. Its name is that of its command, of its block of params.yaml, of the kind of its
    folder, and of its stage of DVC.

    The function takes what the stage reads, by the names of `reads`, then `out` and `params`; also
    `measures` where the block names some, and a `runner` where it may run on Apache Beam. It
    returns the manifest, or a value that `json()` tells as one. It is named "module:function", and
    is imported when it runs, so that a declaration loads neither numpy nor torch.
    """

    name: str
    about: str  # a sentence, for lists of stages; further paragraphs for the help of the command
    params: type[P]
    reads: Mapping[str, Reads]
    function: str
    line: Callable[[Any, P], str]  # what the command says, from what the function returns
    example: str  # the options that the help begins with
    # Of what a stopped run leaves; raised when the same parameters give other bytes. None: nothing
    # is left, and a run begins afresh.
    format: int | None = None
    # What of its work is finished or done again where it is stopped, of a stage whose units take
    # long; None: it goes on where it was stopped.
    unit: str | None = None
    on_beam: bool = False  # words after `--` are options of Apache Beam
    modules: tuple[str, ...] = ()  # of the extras, that it needs whatever its parameters are
    shown: tuple[Shown, ...] = ()
    in_pipeline: bool = True
    needs_out: bool = True  # False: without --out it only says what it found
    # Of its output below data/ in a pipeline; None: its name. With ${item.run} there is one for
    # each run.
    place: str | None = None
    told: tuple[str, ...] = ()  # keys that help shows as options; (): all. Others are options too.

    @property
    def summary(self) -> str:
        """What it does, in a sentence."""
        return self.about.partition("\n\n")[0].replace("\n", " ")

    def imported(self) -> Callable[..., dict[str, Any]]:
        """The function that does its work."""
        return resolve_name(self.function)

    def typed(self, folder: str, *options: str) -> str:
        """Its command line, without `capgrade`, with these options first; `folder` has {} for the
        place below data/ of what is read or written."""
        places = {f"--{name}": reads.place for name, reads in self.reads.items()}
        places["--out"] = self.place or self.name
        told = [f"{option} {folder.format(place)}" for option, place in places.items()]
        return " ".join([self.name, *options, *told])
