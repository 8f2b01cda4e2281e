"""What was typed in the version before, and what to type now. Kept for one version."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from capgrade.schemas.errors import InputError

NOW = {
    "align": "capgrade search --run RUN --words DIR",
    "compare": "capgrade evaluate --compare A --compare B",
    "curves": "dvc plots show, which draws epochs.csv",
    "embed": "capgrade evaluate --run RUN --captions DIR",
    "evaluate --ties": "--set evaluate.ties=reference",
    "evaluate --samples": "--set evaluate.samples=0",
    "evaluate -k": "--set evaluate.k=[1,5,10]",
    "evaluate -m": "--set evaluate.m=[5,10]",
    "evaluate -p": "--set evaluate.p=25",
    "frequencies": "capgrade captions --input CAPTIONS --frequencies FILE",
    "parse": 'capgrade captions --parse "a caption"',
    "show": "capgrade search --captions DIR --relevance DIR",
    "tables": "capgrade evaluate --compare DIR --metric NAME",
}


def moved(arguments: Sequence[str]) -> InputError | None:
    """What to say to a command or an option that has moved; None for any other. What follows `--` is Beam's."""
    given = list(takewhile(lambda word: word != "--", arguments))
    for old, now in NOW.items():
        *command, last = old.split()
        if not last.startswith("-"):
            found = given[: len(command) + 1] == [*command, last]
        else:  # of this command, not of one below it
            rest = given[len(command) :]
            named = {word.partition("=")[0] for word in rest}
            found = given[: len(command)] == command and bool(rest) and rest[0].startswith("-") and last in named
        if found:
            return InputError(f"`capgrade {old}` has moved", remedy=f"now: {now}")
    return None
