"""The project has one import name, also in what users read, and imports only what it needs. Ruff
bans the others."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from capgrade.schemas.extras import EXTRAS
from tests.conftest import ROOT

FOLDERS = ("pipelines", "trainer", "schemas", "apps")


@pytest.mark.parametrize(
    "pattern", ["Makefile", "dvc.yaml", ".ci/run", "README.md", "docs/*.md", "tests/**/*.py"]
)
def test_commands_and_names_in_texts_are_of_the_package(pattern: str) -> None:
    bare = "|".join(FOLDERS)
    text = "\n".join(
        path.read_text(encoding="utf-8") for path in ROOT.glob(pattern) if path != Path(__file__)
    )
    assert text and not re.findall(
        rf"-m (?:{bare})\b|(?:from|import) (?:{bare})[. ]|attr\(\"(?:{bare})\.", text
    )


def imported_by(code: str) -> set[str]:
    """The modules that a fresh process has loaded after some code."""
    code = f"import sys\n{code}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True, text=True
    )
    return set(done.stdout.splitlines()[-1].split())


HEAVY = {*EXTRAS, "numba", "numpy", "pyarrow", "scipy"}


def test_importing_the_package_imports_nothing_else() -> None:
    assert not imported_by("import capgrade; capgrade.__version__") & HEAVY


@pytest.mark.parametrize(
    "code, others",
    [
        ("import capgrade.labels.opening, capgrade.metrics", {"capgrade.measures", "PIL", "torch"}),
        ("import capgrade.measures.params", {"numba", "scipy", "PIL", "torch", "transformers"}),
    ],
)
def test_labels_know_no_measure_and_parameters_no_kernel(code: str, others: set[str]) -> None:
    assert not imported_by(code) & others


@pytest.mark.parametrize(
    "words", [["--help"], ["train", "--help"], ["regions", "--help"]], ids=" ".join
)
def test_help_is_shown_without_what_commands_need(words: list[str]) -> None:
    """In a fraction of a second, which loading numpy alone would take, and torch or Beam many times
    over."""
    code = f"""
from contextlib import suppress
from capgrade.pipelines.cli import main
sys.argv = {["capgrade", *words]}
with suppress(SystemExit):
    main()
"""
    assert not imported_by(code) & HEAVY
