"""What `capgrade agree` refuses before it reads anything."""

from __future__ import annotations

import pytest

from tests.conftest import call


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--out x.json --calibrate ./x.json", "--out and another output have one path"),
        ("--out x.arrow --pairs x.arrow", "--out and another output have one path"),
        ("--accept 4.5", "--accept without --calibrate"),
    ],
)
def test_options_that_do_not_go_together(options: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = "agree --captions nowhere --judgements nothing.csv --measures cider"
    assert call(*given.split(), *options.split()) == 2
    assert message in capsys.readouterr().err
