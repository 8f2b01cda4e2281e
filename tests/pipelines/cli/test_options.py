"""Options that do not go together are refused before anything is read, and none is passed over in silence."""

from __future__ import annotations

import pytest

from capgrade.pipelines.cli.examples import EXAMPLES
from capgrade.pipelines.cli.renamed import NOW
from tests.conftest import call
from tests.tools.commands import commands, counts

AGREE = "agree --captions nowhere --judgements nothing.csv --measures cider"
PUSH = "publish --out nowhere --push user/name"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"{AGREE} --out x.json --calibrate ./x.json", "--out and another output have one path"),
        (f"{AGREE} --out x.arrow --pairs x.arrow", "--out and another output have one path"),
        (f"{AGREE} --reviews r", "--captions with --reviews"),
        ("publish --out nowhere --replace", "--replace without --push"),
        (f"{PUSH} --name other", "--name without --captions and --shards"),
        (f"{PUSH} --calibration crisscrossed", "--calibration without --captions and --shards"),
        (
            "explore --captions nowhere --measures cider --set regions.weights=w",
            "regions.weights without explore.detector",
        ),
    ],
)
def test_options_that_do_not_go_together(line: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*line.split()) == 2
    assert message in capsys.readouterr().err


def test_at_most_twenty_commands_and_150_options() -> None:
    """Printed by `python -m tests.tools.commands`."""
    commands, _, options = counts()
    assert commands <= 20 and options <= 150


@pytest.mark.parametrize("old", NOW)
def test_an_old_name_says_what_to_type_now(old: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*old.split(), "something") == 2
    assert capsys.readouterr().err == f"error: `capgrade {old}` has moved -> now: {NOW[old]}\n"
    known = dict(commands())
    name, _, option = old.partition(" -")
    name = name.partition(" ")[0] if name.startswith("bench ") else name
    assert f"-{option}" not in known[name] if option else name not in known


def test_options_of_beam_are_beams(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("shards", "--captions", "nowhere", "--measures", "cider", "--out", "o", "--", "--samples=3") == 2
    assert "has moved" not in capsys.readouterr().err


@pytest.mark.parametrize("name", [name for name, _ in commands()])
def test_help_fits_on_a_screen_and_opens_with_an_example(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert call(*name.split(), "--help") == 0
    lines = capsys.readouterr().out.rstrip().splitlines()
    assert len(lines) <= 40
    assert lines[2].strip() == f"$ capgrade {name} {EXAMPLES[name]}"
