"""dvc.yaml names every file of the project that a stage runs, and dvc.lock is checked against the tree."""

import inspect
import linecache
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import chdir
from functools import cache
from pathlib import Path
from typing import Any

import grimp
import pytest
import yaml

from capgrade.pipelines.cli import COMMANDS
from tests.conftest import ROOT
from tests.tools.dvc_lock import stale

PUBLIC = "capgrade"  # names alone, imported when they are asked for
CLI = "capgrade.pipelines.cli"
PIPELINE = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]


def stages() -> Iterator[tuple[str, dict[str, Any], list[str]]]:
    """Each stage with the commands of `capgrade` that it runs."""
    for name, stage in PIPELINE.items():
        lines = stage["cmd"] if isinstance(stage["cmd"], list) else [stage["cmd"]]
        yield name, stage, [" ".join(re.findall(r"capgrade ([a-z]+(?: show)?)", line)) for line in lines]


def run_by(function: Callable[..., None]) -> list[Callable[..., None]]:
    """A command's function, and the functions beside it that it names, and so on."""
    found = [function]
    for one in found:
        beside = (one.__globals__.get(name) for name in one.__code__.co_names)
        found += [
            other for other in beside
            if inspect.isfunction(other) and other.__module__ == function.__module__ and other not in found
        ]  # fmt: skip
    return found


@cache
def graph() -> grimp.ImportGraph:
    """What each module imports, also within functions, and its packages, which it runs. A command imports what its
    function and its helpers do, and what its module does outside of functions: the commands beside it are not run."""
    found = grimp.build_graph(PUBLIC, cache_dir=None)
    for command, (function, _) in COMMANDS.items():
        module = function.__module__
        rows = {first + k for one in run_by(function) for lines, first in [inspect.getsourcelines(one)]
                for k in range(len(lines))}  # fmt: skip
        found.add_import(importer=command, imported=module)
        for imported in found.find_modules_directly_imported_by(module):
            for one in found.get_import_details(importer=module, imported=imported):
                row, line = one["line_number"], linecache.getline(inspect.getfile(function), one["line_number"])
                if not line.startswith(" ") or row in rows:
                    found.add_import(importer=command, imported=imported)
    for module in {PUBLIC, CLI, *found.find_children(CLI)} - {f"{CLI}.options"}:
        for imported in found.find_modules_directly_imported_by(module):
            found.remove_import(importer=module, imported=imported)
    for module in found.modules:
        if (package := module.rpartition(".")[0]) in found.modules:
            found.add_import(importer=module, imported=package)
    return found


def of_command(command: str) -> set[Path]:
    """The files of all that a command imports, and so on."""
    places = [ROOT / module.replace(".", "/") for module in graph().find_upstream_modules(command) - {PUBLIC}]
    return {(at / "__init__.py" if at.is_dir() else at.with_suffix(".py")).resolve() for at in places}


@pytest.mark.parametrize(("name", "stage", "commands"), stages(), ids=list(PIPELINE))
def test_a_stage_depends_on_the_files_it_imports(name: str, stage: dict, commands: list[str]) -> None:
    """Statically: on whatever is imported on the way, also within functions, and on nothing else."""
    covered = [ROOT / dep for dep in stage["deps"] if not dep.startswith("data/")]
    assert all(path.exists() for path in covered)
    files = {path for command in commands for path in of_command(command)}
    missing = [path for path in files if not any(path == dep or dep in path.parents for dep in covered)]
    unused = [dep for dep in covered if not any(path == dep or dep in path.parents for path in files)]
    assert len(files) > 5 and unused == []
    assert sorted(str(path.relative_to(ROOT)) for path in missing) == []


@pytest.mark.parametrize(("name", "stage", "commands"), stages(), ids=list(PIPELINE))
def test_a_stage_depends_on_the_data_it_names(name: str, stage: dict, commands: list[str]) -> None:
    """Every path under data/ in its commands is one of its inputs or outputs."""
    outs = [next(iter(one)) if isinstance(one, dict) else one for one in [*stage["outs"], *stage.get("metrics", [])]]
    known = [*stage["deps"], *outs]
    text = " ".join(stage["cmd"]) if isinstance(stage["cmd"], list) else stage["cmd"]
    text = text.replace(".venv/bin/capgrade report --data data", "")  # all of it
    named = re.findall(r"data/[\w./${}-]+", text)
    assert [path for path in named if not any(path == one or path.startswith(f"{one}/") for one in known)
            and not any(one.startswith(f"{path}/") for one in known)] == []  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A pipeline of two stages, run."""
    from dvc.repo import Repo

    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "a.py").write_text("1\n")
    (tmp_path / "params.yaml").write_text("one: {x: 1}\nunused: 3\n")
    two = {
        "one": {"cmd": "cat code/a.py > made", "deps": ["code"], "params": ["one"], "outs": ["made"]},
        "two": {"cmd": "cat made > again", "deps": ["made"], "outs": ["again"]},
    }
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump({"stages": two}))
    with chdir(tmp_path), Repo.init(no_scm=True) as repo:
        repo.reproduce()
    return tmp_path


def test_a_lock_of_this_tree_is_good_without_its_data(project: Path) -> None:
    """As in a fresh clone, where only code, parameters and the lock are; what no stage reads does not matter."""
    (project / "made").unlink()
    (project / "again").unlink()
    shutil.rmtree(project / ".dvc" / "cache")
    (project / "params.yaml").write_text("one: {x: 1}\nunused: 4\n")
    assert stale(project) == []


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("code/a.py", "1", "2", "one: code"),
        ("params.yaml", "x: 1", "x: 2", "one: params.yaml"),
        ("dvc.yaml", "cat made", "head made", "two: its command"),
        ("dvc.lock", "path: made", "path: other", "two: made"),
    ],
)
def test_a_lock_of_another_tree_is_named(project: Path, name: str, old: str, new: str, said: str) -> None:
    text = (project / name).read_text()
    at = text.rindex(old)
    (project / name).write_text(text[:at] + new + text[at + len(old) :])
    assert any(line.startswith(said) for line in stale(project)), stale(project)


def test_no_lock_and_a_stage_that_is_not_in_it(project: Path) -> None:
    made_of_other_data = yaml.safe_load((project / "dvc.lock").read_text())
    made_of_other_data["stages"]["two"]["deps"][0]["md5"] = "0" * 32
    (project / "dvc.lock").write_text(yaml.safe_dump(made_of_other_data))
    assert stale(project) == ["two: made is not what stage one has made"]
    (project / "dvc.lock").unlink()
    assert stale(project) == ["one: never run", "two: never run"]
