"""Options that do not go together are refused before anything is read, and none is passed over in silence."""

from __future__ import annotations

import pytest

from tests.conftest import call
from tests.tools.commands import counts

AGREE = "agree --captions nowhere --judgements nothing.csv --measures cider"
PUSH = "publish --out nowhere --push user/name"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"{AGREE} --out x.json --calibrate ./x.json", "--out and another output have one path"),
        (f"{AGREE} --out x.arrow --pairs x.arrow", "--out and another output have one path"),
        (f"{AGREE} --accept 4.5", "--accept without --calibrate"),
        ("publish --out nowhere --replace", "--replace without --push"),
        (f"{PUSH} --version 2.0.0", "--version without --captions and --shards"),
        (f"{PUSH} --calibration crisscrossed", "--calibration without --captions and --shards"),
        ("explore --captions nowhere --measures cider --weights w.safetensors", "--weights without --detector"),
    ],
)
def test_options_that_do_not_go_together(line: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*line.split()) == 2
    assert message in capsys.readouterr().err


def test_at_most_so_many_commands_and_options() -> None:
    """Printed by `python -m tests.tools.commands`."""
    commands, _, options = counts()
    assert commands <= 43 and options <= 294
