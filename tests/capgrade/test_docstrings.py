"""The examples of public docstrings run, on a small published dataset; nothing public is without a
docstring, an example and a line in docs/library.md or docs/scores.md."""

import contextlib
import doctest
import inspect
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

import capgrade
from capgrade import coco, losses, metrics
from capgrade.public import NAMES
from tests.conftest import ROOT

MODULES = [
    "capgrade.labels", "capgrade.labels.negatives",
    "capgrade.grading", "capgrade.evaluation", "capgrade.metrics.runs", "capgrade.scoring",
    "capgrade.coco", "capgrade.reward", "capgrade.measures.frequencies",
    "capgrade.with_sentence_transformers",
]  # fmt: skip
WITHOUT = {"coco.Spice"}  # needs a parser that nobody may ship
# Their examples want files of people's lists, and a pipeline's folders.
WANTING = {"human_lists", "train"}
PAGE = "".join(
    (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8") for page in ("library", "scores")
)


def public() -> dict[str, object]:
    """What a user may type after `capgrade.`."""
    named = {name: getattr(capgrade, name) for name in capgrade.PUBLIC}
    for module in (coco, losses, metrics):
        named |= {
            f"{module.__name__.split('.')[-1]}.{name}": getattr(module, name)
            for name in module.__all__
        }
    return named


# Functions by their names, as a folder's lie in its files.
EXAMPLES = {name: import_module(name) for name in MODULES} | {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in (losses, metrics)
    for name in module.__all__
    if name not in WANTING
}
# What of the list has an example beside these.
EXAMPLES |= {
    f"{module}.{name}": found
    for module, names in NAMES.items()
    if module not in MODULES
    for name in names.split()
    if name not in WANTING
    and not isinstance(found := getattr(import_module(module), name), str)
    and ">>> " in (found.__doc__ or "")
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_docstrings_run(name: str, dataset: Path, tmp_path: Path) -> None:
    globs = {
        "capgrade": capgrade,
        "torch": torch,
        "np": np,
        "Path": Path,
        "Positives": metrics.Positives,
        "Pairs": metrics.Pairs,
        "Labels": capgrade.Labels,
    }
    finder = doctest.DocTestFinder(exclude_empty=True, recurse=name in MODULES)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    said = list[str]()
    (tmp_path / "dataset").symlink_to(dataset)
    with contextlib.chdir(tmp_path):
        for test in finder.find(EXAMPLES[name], name, extraglobs=globs):
            runner.run(test, out=said.append)
    assert runner.tries and not runner.failures, "".join(said)


@pytest.mark.parametrize("name", sorted(public()))
def test_a_public_name_is_documented(name: str) -> None:
    found = public()[name]
    assert (found.__doc__ or "").strip(), name
    shown = (f"`{name}", f"`capgrade.{name}", f"`{name.removeprefix('coco.')}")
    assert any(text in PAGE for text in shown), (
        f"docs/library.md and docs/scores.md have no line of {name}"
    )
    docs = [inspect.getdoc(found) or ""]
    if inspect.isclass(found):
        own = {
            key: value
            for key, value in vars(found).items()
            if not key.startswith("_") and callable(value)
        }
        own |= {
            key: value
            for key, value in vars(found).items()
            if isinstance(value, property | classmethod)
        }
        for key, value in own.items():
            if key == "forward":
                continue
            assert inspect.getdoc(value), f"{name}.{key}"
            docs.append(inspect.getdoc(value) or "")
    assert any(">>> " in doc for doc in docs) or name in WITHOUT, f"{name} has no example"


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'lables'"):
        capgrade.lables  # noqa: B018
    assert {*capgrade.PUBLIC, *capgrade.MODULES} <= set(dir(capgrade))
