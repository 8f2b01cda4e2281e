"""Every text file is opened with its encoding: another machine's default is another. Ruff's rule
sees few of them."""

import ast
from collections.abc import Iterator

import pytest

from tests.conftest import ROOT

FOLDERS = (
    "capgrade",
    "schemas",
    "pipelines",
    "trainer",
    "apps",
    "research",
    "examples",
)
# Whose `open` opens no text file.
OTHERS = ("os", "Image", "ReviewRatings", "ipc", "fsspec", "webbrowser", "archive", "_OPENER")


def without_encoding(code: str) -> Iterator[int]:
    """Lines that read, write or open text and leave the encoding to the machine."""
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Call):
            continue
        function, keywords = node.func, {keyword.arg for keyword in node.keywords}
        name = getattr(function, "attr", getattr(function, "id", ""))
        owner = getattr(
            getattr(function, "value", None),
            "attr",
            getattr(getattr(function, "value", None), "id", ""),
        )
        modes = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
        binary = any(
            isinstance(a, ast.Constant) and isinstance(a.value, str) and "b" in a.value
            for a in modes[-2:]
        )
        text = name in ("read_text", "write_text") and isinstance(function, ast.Attribute)
        opens = name in ("open", "fdopen") and owner not in OTHERS
        if (text or (opens and not binary)) and "encoding" not in keywords:
            yield node.lineno


def test_text_has_an_encoding() -> None:
    files = {path.resolve() for name in FOLDERS for path in (ROOT / name).rglob("*.py")}
    found = {str(path): list(without_encoding(path.read_text(encoding="utf-8"))) for path in files}
    assert len(files) > 250 and not {path: lines for path, lines in found.items() if lines}


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        *(
            (code, [1])
            for code in ("p.read_text()", "p.write_text(x)", "open(p)", "p.open('w', newline='')")
        ),
        *(
            (code, [])
            for code in (
                "p.read_text(encoding='utf-8')",
                "p.open('rb')",
                "Image.open(p)",
                "p.open('ab+')",
            )
        ),
    ],
)
def test_what_is_found(code: str, lines: list[int]) -> None:
    assert list(without_encoding(code)) == lines
