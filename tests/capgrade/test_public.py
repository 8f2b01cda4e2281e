"""The list of public names is what others use of the library, no more and no less, and their
docstrings say what arrays are and which errors there are."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

import capgrade
from capgrade.public import NAMES, USERS
from tests.conftest import ROOT
from tests.docs.blocks import examples

BESIDE = ("apps", "pipelines", "schemas", "trainer")  # links in capgrade/, and no library
LISTED = [f"{module}.{name}" for module, names in NAMES.items() for name in names.split()]
SHORT = {
    **{f"capgrade.{name}": f"{home}.{name}" for name, home in capgrade.PUBLIC.items()},
    **{f"capgrade.{name}": f"capgrade.{name}" for name in capgrade.MODULES},
}
ARRAY = re.compile(r"\b(ndarray|Tensor|ArrayLike|ScoreMatrix|Array|Matrix)\b")
SHAPE = re.compile(r"\[[\w,. ()-]+\]|\((?:\.{3}|[A-Z])(?:, \w+)+\)|\bshape\b")
DTYPE = re.compile(r"\b(float|int|bool|uint)(8|16|32|64)?\b|\bdtype\b|\breal\b")
# Their docstring says once what all arrays of their functions are.
SAID_ONCE = {"capgrade.boxes", "capgrade.losses", "capgrade.metrics"}


def sources() -> Iterator[tuple[str, str]]:
    """What is held to the list: the name of a text, and its Python."""
    for folder in ("apps", "research", "examples"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        shown = (example.text for example in examples(page) if example.kind == "python")
        yield page.name, "\n".join(shown)


def is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").is_file()


def of_library(name: str) -> bool:
    first, _, rest = name.partition(".")
    return first == "capgrade" and rest.partition(".")[0] not in BESIDE


def names_used(code: str) -> Iterator[str]:
    """The library's names that code imports, or reaches from a module that it imports."""
    tree, modules = ast.parse(code), dict[str, str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if is_module(name):
                    modules[alias.asname or alias.name] = name
                elif of_library(name):
                    yield name
        elif isinstance(node, ast.Import):
            for alias in node.names:
                shown = alias.name if alias.asname else alias.name.partition(".")[0]
                modules[alias.asname or shown] = shown
    for node in ast.walk(tree):
        words = ast.unparse(node).split(".") if isinstance(node, ast.Attribute) else []
        if words and words[0] in modules and all(map(str.isidentifier, words)):
            name = ".".join([modules[words[0]], *words[1:]])
            if of_library(name) and not is_module(name):
                yield name


def home_of(name: str) -> str | None:
    """The listed name that a used one is, or is an attribute of; None where there is none."""
    for short, home in SHORT.items():
        if name == short or name.startswith(f"{short}."):
            name = home + name.removeprefix(short)
            break
    words = name.split(".")
    beginnings = (".".join(words[:k]) for k in range(len(words), 1, -1))
    return next((text for text in beginnings if text in KNOWN), None)


KNOWN = {*LISTED, *(home for home in SHORT.values() if not of_library(home))}


def test_others_use_public_names_alone_and_each_is_used() -> None:
    """What users type may also stand in the words of a page."""
    used = set[str]()
    for where, code in sources():
        for name in names_used(code):
            home = home_of(name)
            assert home is not None, f"{where} uses {name}, which capgrade/public.py does not list"
            used.add(home)
    pages = [path for path in (ROOT / "docs").glob("*.md") if path.name != "api.md"]
    words = {*re.findall(r"\w+", "\n".join(path.read_text(encoding="utf-8") for path in pages))}
    told = {
        f"{module}.{name}"
        for module, names in USERS.items()
        for name in names.split()
        if name in words
    }
    assert {*LISTED} - used - told == set()


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import capgrade\ncapgrade.Labels.load(x)", "capgrade.labels.Labels"),
        ("from capgrade import losses\nlosses.sam(x)", "capgrade.losses.sam"),
        ("from capgrade.measures import choose", "capgrade.measures.choose"),
        ("from capgrade.measures import parts_of", None),
        ("from capgrade.metrics.base import Positives", None),
        ("import capgrade.kernels as k\nk.mix_all(x)", None),
        ("from capgrade import kernels\nkernels.njit", None),
    ],
)
def test_a_name_has_one_home(code: str, found: str | None) -> None:
    assert found in {home_of(name) for name in names_used(code)}


def test_the_list_is_of_what_there_is() -> None:
    assert len({*LISTED}) == len(LISTED)
    for name in LISTED:
        module, _, last = name.rpartition(".")
        assert hasattr(import_module(module), last), name
    missing = {home for home in SHORT.values() if of_library(home)} - {*LISTED}
    assert missing <= {f"capgrade.{module}" for module in capgrade.MODULES}
    for module in capgrade.MODULES:
        assert {*import_module(f"capgrade.{module}").__all__} <= {
            *NAMES[f"capgrade.{module}"].split()
        }


def functions_of(found: Any) -> Iterator[tuple[str, ast.FunctionDef, str]]:
    """A function, or the methods that a class defines: name, definition and docstring."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(found))).body
    doc = inspect.getdoc(found) or ""
    if isinstance(tree, ast.FunctionDef):
        yield found.__name__, tree, doc
    for node in tree.body if isinstance(tree, ast.ClassDef) else ():
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            yield f"{found.__name__}.__init__", node, doc
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            own = inspect.getdoc(getattr(found, node.name))
            yield f"{found.__name__}.{node.name}", node, own or ""


@pytest.mark.parametrize("name", LISTED)
def test_a_docstring_says_shapes_dtypes_and_errors(name: str) -> None:
    module, _, last = name.rpartition(".")
    found = getattr(import_module(module), last)
    if not (inspect.isclass(found) or inspect.isfunction(found)):
        return  # a constant, or another name of a type
    assert found.__doc__, name
    shared = (import_module(module).__doc__ or "") if module in SAID_ONCE else ""
    for called, node, doc in functions_of(found):
        given = [*node.args.args, *node.args.kwonlyargs]
        types = [ast.unparse(one.annotation) for one in given if one.annotation]
        types += [ast.unparse(node.returns)] if node.returns else []
        assert doc, f"{called} has no docstring"
        said = doc.partition(">>> ")[0] + shared
        if any(ARRAY.search(text) for text in types):
            assert SHAPE.search(said), f"{called} says no shape"
            assert DTYPE.search(said), f"{called} says no dtype"
        raised = {ast.unparse(n.exc) for n in ast.walk(node) if isinstance(n, ast.Raise) and n.exc}
        if any(text.startswith("InputError(") for text in raised):
            assert "InputError" in said, f"{called} raises InputError"
