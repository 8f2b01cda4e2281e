"""Options that errors, warnings and docstrings name are options of a command."""

import logging
import re

import pytest

from capgrade.pipelines.cli import _is_worth_saying
from tests.conftest import ROOT
from tests.tools.commands import commands

PRODUCT = ("capgrade", "schemas", "pipelines", "trainer", "apps")
# Of torchrun, pip, Beam, open_clip, hf, dvc and dask.
OTHERS = {
    "--nproc-per-node",
    "--no-build-isolation",
    "--runner",
    "--accum-freq",
    "--force-download",
    "--sort",
}
OTHERS |= {"--no-scm", "--subdir", "--quiet", "--port", "--scheduler-file"}


def test_no_text_names_an_option_that_no_command_has() -> None:
    known = (
        {option for _, options in commands(hidden=True) for option in options}
        | OTHERS
        | {"--help", "--version"}
    )
    unknown = [
        (path.name, option)
        for folder in PRODUCT
        for path in (ROOT / folder).rglob("*.py")
        for option in re.findall(
            r"(?<![\w-])--[a-z]+(?:-[a-z]+)*(?![\w-])", path.read_text(encoding="utf-8")
        )
        if option not in known
    ]
    assert unknown == []


def test_what_beam_logs_of_an_error_is_said_when_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The command says it in one line; Beam's word at import is logged by the root logger."""

    def said(name: str, level: int, text: str) -> bool:
        return _is_worth_saying(logging.LogRecord(name, level, "", 0, text, None, None))

    traceback = ("apache_beam.runners.worker.sdk_worker", logging.ERROR, "Traceback")
    assert not said(*traceback)
    assert not said(
        "root",
        logging.WARNING,
        "apitools not found, and bigquery client libraries are not available",
    )
    assert said("capgrade.pipelines", logging.INFO, "3 captions left out")
    monkeypatch.setenv("CAPGRADE_DEBUG", "1")
    assert said(*traceback)
