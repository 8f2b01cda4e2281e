"""Is dvc.lock of this code and these parameters? Nothing is run, and no data need be there: a fresh clone will do.

    python -m tests.tools.dvc_lock

Exit status 1, with one line per difference, when a stage's command, its code or a parameter is not what the lock
says, or when a stage was not made from what another stage's entry says it has made.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from dvc.stage import PipelineStage


def stale(root: Path) -> list[str]:
    """What dvc.lock of a project has of another tree: lines, none when it is of this one."""
    from dvc.repo import Repo

    path = root / "dvc.lock"
    lock = yaml.safe_load(path.read_text(encoding="utf-8"))["stages"] if path.is_file() else {}
    with chdir(root), Repo(str(root)) as repo:
        stages = sorted(repo.index.stages, key=lambda stage: stage.name)
        lock = {stage.name: lock[stage.name] for stage in stages if stage.name in lock}  # it keeps what was renamed
        made = {out["path"]: (name, out["md5"]) for name, entry in lock.items() for out in entry.get("outs", ())}
        return [line for stage in stages for line in _differences(stage, lock.get(stage.name), made)]


def _differences(stage: PipelineStage, entry: dict[str, Any] | None, made: dict[str, tuple[str, str]]) -> Iterator[str]:
    if entry is None:
        yield f"{stage.name}: never run"
        return
    if stage.cmd_changed or stage.changed_stage():
        yield f"{stage.name}: its command"
    locked = {dep["path"]: dep["md5"] for dep in entry.get("deps", ())}
    for dep in stage.deps:
        yield from (f"{stage.name}: {problem}" for problem in _of_dependency(dep, locked, made))


def _of_dependency(dep: Any, locked: dict[str, str], made: dict[str, tuple[str, str]]) -> Iterator[str]:
    name = dep.def_path
    if name in made:
        stage, md5 = made[name]
        if locked.get(name) != md5:
            yield f"{name} is not what stage {stage} has made"
    elif not name.startswith("data/"):
        for path, what in dep.status().items():  # parameters: what of each
            yield f"{path} has changed: {', '.join(what) if isinstance(what, dict) else what}"
    elif not any(path.startswith(f"{name}/") for path in made):  # a folder of outputs, such as data/runs
        yield f"{name} is made by no stage"


if __name__ == "__main__":
    found = stale(Path(__file__).resolve().parents[2])
    print("\n".join(found) or "dvc.lock is of this code")
    sys.exit(1 if found else 0)
