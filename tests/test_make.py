"""`make repro` and `make flickr8k` with a dvc that only says what it is asked: what is run beside
what, and what a failure stops."""

import os
import re
import shutil
import subprocess
from pathlib import Path, PurePath

import pytest
import yaml

from tests.conftest import ROOT
from tests.tools.wheels import needed

DVC = """#!/bin/sh
case "$*" in
    "stage list"*) printf 'captions\\ntrain@a\\nembed@a\\nevaluate@a\\ntrain@b\\nembed@b\\nevaluate@b\\n'; exit;;
    *"$BAD"*) echo "failed $*"; exit 255;;
esac
sleep 0.2
echo "$*"
"""
BESIDE = "--wait-for-lock repro --single-item"
SECOND = f"{BESIDE} train@b embed@b evaluate@b"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder where everything is installed, and the commands do nothing."""
    commands = tmp_path / ".venv" / "bin"
    commands.mkdir(parents=True)
    for name in ("dvc", "capgrade", "python"):
        (commands / name).write_text(DVC if name == "dvc" else "#!/bin/sh\n")
        (commands / name).chmod(0o755)
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv" / "installed").touch()
    (tmp_path / "data" / "comparison").mkdir(parents=True)
    (tmp_path / "data" / "comparison" / "runs.md").touch()
    return tmp_path


def made(project: Path, *arguments: str, bad: str = "no such stage") -> tuple[int, list[str]]:
    run = ["make", "--silent", *arguments]
    done = subprocess.run(
        run, cwd=project, env={**os.environ, "BAD": bad}, capture_output=True, text=True
    )
    return done.returncode, done.stdout.splitlines()


def test_labels_beside_regions_then_each_run_with_what_follows_it(project: Path) -> None:
    status, said = made(project, "repro")
    assert (status, said[0], said[-1], len(said)) == (0, "repro captions", "repro", 7)
    assert set(said[1:3]) == {f"{BESIDE} regions", f"{BESIDE} relevance shards"}
    assert set(said[3:6]) == {
        f"{BESIDE} train@a embed@a evaluate@a",
        SECOND,
        f"{BESIDE} agree publish",
    }


def test_what_runs_side_by_side_does_not_need_what_runs_beside_it(project: Path) -> None:
    """Each stage of a line needs what the lists before have made, or an earlier stage of its
    line."""
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    outs = {name: {*stage["outs"], *stage.get("metrics", [])} for name, stage in stages.items()}
    said, known = made(project, "repro")[1], {*outs["inputs"], *outs["captions"]}
    for beside in (said[1:3], said[3:6]):
        before = set(known)
        for line in beside:
            own: set[str] = set()
            for name in re.findall(r"(\w+)(?:@\w+)?", line.removeprefix(BESIDE)):
                for dep in stages[name]["deps"]:  # or a file of a folder
                    assert {dep, *map(str, PurePath(dep).parents)} & (before | own), (name, dep)
                own |= outs[name]
            known |= own
    last = ("align", "compare", "report")
    assert known >= {out for name, of in outs.items() if name not in last for out in of}


def test_a_failure_lets_what_runs_beside_it_end_and_stops_the_rest(project: Path) -> None:
    status, said = made(project, "repro", bad="train@a")
    assert status and len(said) == 6
    assert set(said[3:]) == {
        f"failed {BESIDE} train@a embed@a evaluate@a",
        SECOND,
        f"{BESIDE} agree publish",
    }


def test_an_experiment_is_one_command(project: Path) -> None:
    assert made(project, "repro", "SET=a.b=1 c.d=2") == (0, ["exp run -S a.b=1 -S c.d=2"])


def test_flickr8k_makes_a_project_once_and_goes_on_in_it(project: Path) -> None:
    init = '#!/bin/sh\necho "$*"; mkdir -p $2/data/comparison; touch $2/params.yaml\n'
    (project / ".venv" / "bin" / "capgrade").write_text(
        init + "echo table > $2/data/comparison/runs.md\n"
    )
    status, said = made(project, "flickr8k")
    assert status and said == ["say where Flickr8K lies: make flickr8k DATA=FOLDER"]
    status, said = made(project, "flickr8k", "DATA=my data")
    assert (status, said[0]) == (0, "init flickr8k --template flickr8k --data my data")
    assert (said[1], said[-2:]) == ("repro captions", ["repro", "table"])
    assert set(said[4:7]) == {
        f"{BESIDE} train@a embed@a evaluate@a",
        SECOND,
        f"{BESIDE} agree publish",
    }
    again = made(project, "flickr8k")
    assert (again[0], again[1][0], len(again[1])) == (0, "repro captions", len(said) - 1)
    status, said = made(project, "flickr8k", bad="train@a")
    assert status and "repro" not in said


@pytest.mark.parametrize("carried", [False, True])
def test_gpu_takes_the_machine_s_python_where_wheels_were_carried(
    project: Path, carried: bool
) -> None:
    said = '#!/bin/sh\necho "$(basename $0) $PYTHONPATH $*"\n'
    for python in (project / ".venv" / "bin" / "python", project / "theirs"):
        python.write_text(said)
        python.chmod(0o755)
    wheel = project / "wheels" / "a-1-py3-none-any.whl"
    if carried:
        wheel.parent.mkdir()
        wheel.touch()
    run = f"{os.environ.get('PYTHONPATH', '')} -m research.benchmarks.gpu --small"
    install = "-m pip install --quiet --no-index --no-deps --no-compile --target .venv/gpu"
    expected = [
        f"theirs {os.environ.get('PYTHONPATH', '')} {install} wheels/{wheel.name}",
        "theirs .venv/gpu -m research.benchmarks.gpu --small",
    ]
    assert made(project, "gpu", "PYTHON=./theirs", "ARGS=--small") == (
        0,
        expected if carried else [f"python {run}"],
    )


def test_wheels_are_what_is_needed_beside_torch() -> None:
    every, some = needed(), needed(["NumPy", "scikit_learn"])
    assert {"numba", "numpy", "protobuf", "pydantic-core", "transformers"} <= every.keys()
    assert not [name for name in every if name.startswith(("nvidia", "torch", "gt-all", "pycoco"))]
    assert every.keys() - some.keys() >= {"numpy", "scikit-learn"} and some.keys() < every.keys()
