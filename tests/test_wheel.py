"""The wheel and the sdist hold every file that git has, and what is installed from the wheel needs
no checkout."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT

# links in capgrade/ lead to them
FOLDERS = (
    "schemas",
    "pipelines",
    "trainer",
    "apps",
)
BUILD = (
    "import sys; from setuptools import build_meta as b; out = sys.argv[1]; b.build_sdist(out);"
    " b.build_wheel(out)"
)
# One process for all commands, as each would import Beam and torch anew.
RUN = """
import json, sys, capgrade.pipelines as pipelines
from pathlib import Path
from typer.testing import CliRunner
from capgrade.pipelines.cli import app
assert Path(pipelines.__file__).is_relative_to(sys.prefix), pipelines.__file__
for line in json.load(sys.stdin):
    done = CliRunner().invoke(app, line)
    if done.exit_code:
        sys.exit(f"{line}: {done.exit_code}\\n{done.output}\\n{done.exception!r}")
"""
SCENES = [
    f"captions.scenes.{k}={v}" for k, v in {"train": 4, "val": 0, "test": 4, "size": 64}.items()
]
ONE = ["--captions", "captions", "--measures", "rouge_l"]
LINES = [
    ["captions", *(word for value in SCENES for word in ("--set", value)), "--out", "captions"],
    [
        "shards",
        *ONE,
        "--split",
        "train",
        "--set",
        "shards.top=2",
        "--set",
        "shards.uniform=2",
        "--out",
        "shards",
    ],
    shlex.split("publish --captions captions --shards shards --license cc0-1.0 --out dataset"),
    shlex.split(
        "evaluate --captions captions --split test --stand-in 0 --out evaluation/first "
        "--set evaluate.samples=5 --set evaluate.metric=[recall@1]"
    ),
    shlex.split("report --data . --out report.html"),
]


def tracked() -> list[str]:
    """The files of the package, by git."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: nothing to compare with")
    command = ["git", "ls-files", "capgrade", *FOLDERS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in done.stdout.splitlines() if (ROOT / name).is_file()]


def installed() -> set[str]:
    """The same as they are named in the wheel: nothing is at its top but `capgrade`."""
    return {name if name.startswith("capgrade/") else f"capgrade/{name}" for name in tracked()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with wheel and sdist, made from a copy of the tracked files: a checkout's own build/
    would be reused."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    for name in [*tracked(), "pyproject.toml", "README.md", "LICENSE"]:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, source / name)
    for name in FOLDERS:
        (source / "capgrade" / name).symlink_to((ROOT / "capgrade" / name).readlink())
    _build(source, out)
    return out


def _build(source: Path, out: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(out)], cwd=source, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]


def wheel_names(folder: Path) -> set[str]:
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        return {name for name in wheel.namelist() if ".dist-info/" not in name}


def test_the_wheel_has_every_file_of_the_package_and_no_other(built: Path) -> None:
    assert wheel_names(built) == installed()


def test_the_sdist_has_what_the_wheel_is_made_of(built: Path, tmp_path: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        names = {member.name.split("/", 1)[-1] for member in sdist.getmembers()}
        assert {*installed(), "pyproject.toml", "README.md", "LICENSE"} <= names
        assert not {name for name in names if name.split("/")[0] in (*FOLDERS, "tests", "docs")}
        safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # since Python 3.11.4
        sdist.extractall(tmp_path, **safe)
    _build(next(tmp_path.iterdir()), tmp_path)
    assert wheel_names(tmp_path) == installed()


def test_an_installed_wheel_works_outside_the_checkout(built: Path, tmp_path: Path) -> None:
    """In an environment of its own that sees the dependencies, and not the checkout that is
    installed beside them."""
    python = environment(tmp_path / "env", next(built.glob("*.whl")))
    (tmp_path / "work").mkdir()
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    variables["NUMBA_CACHE_DIR"] = str(tmp_path / "kernels")
    # a new environment has no compiled kernels: half the time to make them
    variables["NUMBA_OPT"] = "0"
    ran = {"cwd": tmp_path / "work", "env": variables, "capture_output": True, "text": True}
    done = subprocess.run([python, "-c", RUN], input=json.dumps(LINES), **ran)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr[-3000:]
    page = (tmp_path / "work" / "report.html").read_text(encoding="utf-8")
    assert all(f'<details id="{name}"' in page for name in ("runs", "corpus", "missing"))
    helped = subprocess.run([python.with_name("capgrade"), "--help"], **ran)  # type: ignore[call-overload]
    assert "Usage: capgrade" in helped.stdout


def environment(folder: Path, wheel: Path) -> Path:
    """Its python. A folder that a .pth file names has its own .pth files passed over, the editable
    install too."""
    venv.create(folder, symlinks=True, with_pip=False)
    python = folder / "bin" / "python"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    # a checkout there would count
    alone = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run(
        [*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True, env=alone
    )
    return python


def test_the_metadata_names_each_python_that_it_allows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    least, end = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", project["requires-python"]).groups()
    kind = "Programming Language :: Python :: 3."
    named = [one.removeprefix(kind) for one in project["classifiers"] if one.startswith(kind)]
    assert named == [str(minor) for minor in range(int(least), int(end))]
