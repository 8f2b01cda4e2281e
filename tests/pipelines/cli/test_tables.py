"""Tables in a file or a pipe."""

from __future__ import annotations

import pytest

from capgrade.pipelines.cli.tables import COEFFICIENTS, agreement_table


def test_no_head_is_cut_without_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    agreement_table({"people": {name: {"all": -0.123, "non_original": -0.456} for name in COEFFICIENTS}})
    printed = capsys.readouterr().out
    assert "…" not in printed and all(name.replace("_", " ") in printed for name in COEFFICIENTS)
    assert printed.count("non-own") == printed.count("-0.456") == len(COEFFICIENTS)
