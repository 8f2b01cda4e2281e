"""Every stage by its name: those of this package, and those that other packages bring.

Another package brings one by an entry point of the group `capgrade.stages`, which names a value of
`capgrade.schemas.stage.Stage`. It then has a command, a block of params.yaml, and a stage in the
dvc.yaml that `capgrade init` writes.
"""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from capgrade.pipelines.stages.agree import AGREE
from capgrade.pipelines.stages.captions import CAPTIONS
from capgrade.pipelines.stages.publish import PUBLISH
from capgrade.pipelines.stages.regions import REGIONS
from capgrade.pipelines.stages.relevance import RELEVANCE
from capgrade.pipelines.stages.shards import SHARDS
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import STAGES_OF_OTHERS
from capgrade.schemas.say import warn
from capgrade.schemas.stage import Stage
from capgrade.trainer.stages.align import ALIGN
from capgrade.trainer.stages.embed import EMBED
from capgrade.trainer.stages.evaluate import EVALUATE
from capgrade.trainer.stages.train import TRAIN

# Commands and keys of params.yaml that are no stage's: a stage of their name would hide them.
TAKEN = {
    *("audit", "compare", "explore", "frequencies", "init", "inputs"),
    *("judge", "leaderboard", "list", "measures", "parse", "presets", "regrade", "report", "runs"),
    *("score", "search", "verify"),
}
OURS: tuple[Stage[Any], ...] = (
    CAPTIONS,
    REGIONS,
    RELEVANCE,
    SHARDS,
    AGREE,
    PUBLISH,
    TRAIN,
    EMBED,
    EVALUATE,
    ALIGN,
)


def stage_of(point: EntryPoint, known: dict[str, Stage[Any]]) -> Stage[Any]:
    """The stage that an entry point names. InputError where it is none, or its name is taken."""
    stage = point.load()
    if not isinstance(stage, Stage):
        raise InputError(f"{point.value} is no capgrade.schemas.stage.Stage")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", stage.name):
        problem = f"a stage cannot be called {stage.name!r}"
        raise InputError(problem, remedy="a small letter, then letters, digits and _")
    if stage.name in {*known, *TAKEN}:
        raise InputError(f"there is a '{stage.name}' already", remedy="call it otherwise")
    return stage


def _all_stages() -> dict[str, Stage[Any]]:
    """Ours, then those of entry points; one that cannot be loaded is left out with a warning."""
    stages = {stage.name: stage for stage in OURS}
    for point in entry_points(group=STAGES_OF_OTHERS):
        try:
            stage = stage_of(point, stages)
        except Exception as error:  # a broken package must not take the other stages away
            warn(f"stage '{point.name}' is left out: its package cannot be loaded ({error})")
        else:
            stages[stage.name] = stage
    return stages


STAGES = _all_stages()
