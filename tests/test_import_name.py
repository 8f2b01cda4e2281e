"""The project has one import name: nothing imports its folders by their own (the wheel: test_wheel.py)."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

import capgrade
from capgrade.schemas.extras import EXTRAS

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("pipelines", "trainer", "schemas", "explorer", "benchmarks")
SOURCES = sorted(
    p for top in (*FOLDERS, "capgrade", "studies", "tests") for p in (ROOT / top).rglob("*.py") if p.is_file()
)
BARE = "|".join(FOLDERS)
# In strings: code to run, options of the interpreter, and names of modules for monkeypatch.
IN_STRINGS = re.compile(
    rf"\b(?:from|import) (?:{BARE})\b|-m (?:{BARE})\b|^[rf]*[\"'](?:{BARE})\.[a-z_]+(?:\.\w+)+[\"']$"
)


def bare_imports(source: str) -> list[str]:
    """The imports of a folder by its own name, as they stand and in strings, with their lines."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        found += [f"{node.lineno}: {name}" for name in names if name.partition(".")[0] in FOLDERS]
    lines = iter(source.splitlines(keepends=True))
    for token in tokenize.generate_tokens(lambda: next(lines, "")):
        if token.type == tokenize.STRING and IN_STRINGS.search(token.string):
            found.append(f"{token.start[0]}: {token.string}")
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_imports_a_folder_by_its_own_name(path: Path) -> None:
    if path != Path(__file__).resolve():
        assert not bare_imports(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["Makefile", "dvc.yaml", ".ci/run", "README.md", *(f"docs/{p.name}" for p in
                                  sorted((ROOT / "docs").glob("*.md")))])  # fmt: skip
def test_commands_in_texts_have_the_new_name(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert not re.findall(rf"-m (?:{BARE})\b|(?:from|import) (?:{BARE})[. ]", text)


def test_links_lead_to_the_folders() -> None:
    package = Path(capgrade.__file__).parent
    for name in FOLDERS:
        assert (package / name / "__init__.py").samefile(ROOT / name / "__init__.py")


def imported_by(code: str) -> set[str]:
    """The top-level modules that a fresh process has loaded after some code."""
    code = f"import sys\n{code}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True, text=True)
    return set(done.stdout.splitlines()[-1].split())


HEAVY = {*EXTRAS, "numba", "numpy", "pyarrow", "scipy"}


def test_importing_the_package_imports_nothing_else() -> None:
    assert not imported_by("import capgrade; capgrade.__version__") & HEAVY


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["regions", "--help"]], ids=" ".join)
def test_help_is_shown_without_what_commands_need(words: list[str]) -> None:
    """In a fraction of a second, which loading numpy alone would take, and torch or Beam many times over."""
    code = f"""
from contextlib import suppress
from capgrade.pipelines.cli import main
sys.argv = {["capgrade", *words]}
with suppress(SystemExit):
    main()
"""
    assert not imported_by(code) & HEAVY


def test_the_command_says_how_to_upload_before_the_client_is_loaded() -> None:
    code = """
import sys
from contextlib import suppress
from capgrade.pipelines.cli import main
sys.argv = ["capgrade", "--help"]
with suppress(SystemExit):
    main()
from huggingface_hub import constants
sys.exit(not constants.HF_HUB_DISABLE_XET)
"""
    variables = {name: value for name, value in os.environ.items() if name != "HF_HUB_DISABLE_XET"}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, env=variables, capture_output=True)
