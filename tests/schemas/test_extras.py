"""The table of extras says what pyproject.toml says, and nothing is imported that neither
brings."""

import ast
import pickle
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from capgrade.schemas.extras import EXTRAS, MissingExtraError, needs
from tests.conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BROUGHT = packages_distributions()  # seconds, so once
LAYERS = (
    "encoder",
    "beam",
    "train",
    "publish",
    "report",
    "explorer",
    "dvc",
    "judge",
    "dask",
    "eccv",
    "pandas",
    "backbone",
    "meteor",
)
# Not ours to bring: a detector that is built by hand, what torch comes with, and peers of `bench`.
BESIDE = {
    "detectron2",
    "torchvision",
    "sklearn",
    "playwright",
    "ranx",
    "ir_measures",
}


def named(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=\[]", line)[0].strip().lower() for line in requirements}


def distribution(module: str) -> str:
    """The distribution that brings a module, by what is installed, else its own name."""
    if module == "pydantic_core":  # which pydantic's own pages import from
        return "pydantic"
    found = BROUGHT.get(module, [module.replace("_", "-")])
    return found[0].lower().replace("_", "-")


def test_extras_are_those_of_the_project() -> None:
    extras = PROJECT["optional-dependencies"]
    listed = {name: named(extras[name]) for name in LAYERS}
    ours = {
        name: {distribution(m) for m, where in EXTRAS.items() if name in where} for name in LAYERS
    }
    assert ours == listed
    assert not named(PROJECT["dependencies"]) & set().union(*listed.values())
    assert extras["all"] == [f"capgrade[{','.join(LAYERS[:12])}]"]


def outside(path: Path) -> set[str]:
    """Top-level modules that a file imports, anywhere in it, beside the project's and Python's."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        found |= {name.partition(".")[0] for name in names}
    return found - sys.stdlib_module_names - {"capgrade"}


@pytest.mark.parametrize("folder", ["capgrade", "schemas", "pipelines", "trainer", "apps"])
def test_whatever_is_imported_is_brought(folder: str) -> None:
    core = named(PROJECT["dependencies"])
    for path in (ROOT / folder).glob("*.py" if folder == "capgrade" else "**/*.py"):
        unknown = {
            m
            for m in outside(path)
            if m not in EXTRAS and m not in BESIDE and distribution(m) not in core
        }
        assert not unknown, f"{path}: {unknown}"


def test_imports_of_an_extra_are_told_apart_from_faults() -> None:
    with pytest.raises(MissingExtraError, match=r"capgrade\[encoder\]") as told, needs("encoder"):
        raise ModuleNotFoundError("No module named 'transformers'", name="transformers")
    assert isinstance(told.value, ImportError)
    with (
        pytest.raises(MissingExtraError, match=r"torch is not .*capgrade\[train\]"),
        needs("beam"),
    ):  # brings no torch
        raise ModuleNotFoundError("No module named 'torch.nn'", name="torch.nn")
    for name in ("nobody", None):
        with pytest.raises(ModuleNotFoundError, match="a fault"), needs("encoder"):
            raise ModuleNotFoundError("a fault", name=name)
    copy = pickle.loads(pickle.dumps(told.value))
    assert (str(copy), copy.module, copy.extra) == (str(told.value), "transformers", "encoder")
