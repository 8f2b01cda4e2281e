"""Every text file is opened with its encoding: another machine's default is another."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

CODE = sorted(path for name in ("schemas", "pipelines", "trainer", "explorer", "benchmarks", "studies")
              for path in (ROOT / name).rglob("*.py"))  # fmt: skip
OTHERS = (
    "os",
    "Image",
    "ReviewRatings",
    "ipc",
    "fsspec",
    "webbrowser",
    "archive",
    "_OPENER",
)  # whose `open` opens no text file


def without_encoding(tree: ast.AST) -> Iterator[int]:
    """Lines that read, write or open text and leave the encoding to the machine."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function, keywords = node.func, {keyword.arg for keyword in node.keywords}
        name = getattr(function, "attr", getattr(function, "id", ""))
        owner = getattr(getattr(function, "value", None), "attr", getattr(getattr(function, "value", None), "id", ""))
        modes = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
        binary = any(isinstance(a, ast.Constant) and isinstance(a.value, str) and "b" in a.value for a in modes[-2:])
        text = name in ("read_text", "write_text") and isinstance(function, ast.Attribute)
        opens = name in ("open", "fdopen") and owner not in OTHERS
        if (text or (opens and not binary)) and "encoding" not in keywords:
            yield node.lineno


@pytest.mark.parametrize("path", CODE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_text_has_an_encoding(path: Path) -> None:
    assert not list(without_encoding(ast.parse(path.read_text(encoding="utf-8"))))


@pytest.mark.parametrize(
    "code", ["p.read_text()", "p.write_text(x)", "open(p)", "p.open()", "p.open('w', newline='')", "io.open(p, 'r')"]
)
def test_what_is_found(code: str) -> None:
    assert list(without_encoding(ast.parse(code))) == [1]
    assert not list(without_encoding(ast.parse(f"{code[:-1]}{'' if code.endswith('()') else ', '}encoding='utf-8')")))


@pytest.mark.parametrize(
    "code", ["p.open('rb')", "open(p, 'wb')", "Image.open(p)", "write_text(p, x)", "p.open('ab+')"]
)
def test_what_needs_none(code: str) -> None:
    assert not list(without_encoding(ast.parse(code)))
