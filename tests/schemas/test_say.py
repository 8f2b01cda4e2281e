"""What is said while something takes long."""

import threading

import pytest

from capgrade.schemas import say
from capgrade.schemas.say import if_silent, tell


@pytest.mark.parametrize("said", [False, True])
def test_silence_is_broken_once(
    said: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    fired = threading.Event()

    class Fired(threading.Timer):
        def run(self) -> None:
            super().run()
            fired.set()

    monkeypatch.setattr(say, "Timer", Fired)
    with if_silent("reading captions", seconds=0.5 if said else 0.01):
        if said:
            tell("something else")
        assert fired.wait(30)
    assert capsys.readouterr().err == ("something else\n" if said else "reading captions\n")


def test_what_is_quick_says_nothing(capsys: pytest.CaptureFixture) -> None:
    before = threading.active_count()
    with if_silent("reading captions", seconds=600):
        pass
    assert threading.active_count() <= before + 1 and capsys.readouterr().err == ""
