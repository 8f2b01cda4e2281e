"""Options that errors, warnings and docstrings name are options of a command."""

import re

from tests.conftest import ROOT
from tests.tools.commands import commands

PRODUCT = ("capgrade", "schemas", "pipelines", "trainer", "explorer", "benchmarks")
# Of torchrun, pip, Beam, open_clip, hf, dvc and dask.
OTHERS = {"--nproc-per-node", "--no-build-isolation", "--runner", "--accum-freq", "--force-download"}
OTHERS |= {"--no-scm", "--subdir", "--quiet", "--port", "--scheduler-file"}


def test_no_text_names_an_option_that_no_command_has() -> None:
    known = {option for _, options in commands() for option in options} | OTHERS | {"--help", "--licence", "--version"}
    unknown = [
        (path.name, option)
        for folder in PRODUCT
        for path in (ROOT / folder).rglob("*.py")
        for option in re.findall(r"(?<![\w-])--[a-z]+(?:-[a-z]+)*(?![\w-])", path.read_text(encoding="utf-8"))
        if option not in known
    ]
    assert unknown == []
