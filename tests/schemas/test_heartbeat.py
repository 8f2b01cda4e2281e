"""Signs of life where there is no terminal: lines, not bars, and none of a short piece of work."""

from __future__ import annotations

import threading

import pytest

from capgrade.schemas import heartbeat
from capgrade.schemas.heartbeat import line, pause, spoken
from capgrade.schemas.progress import progress


def test_a_line_says_how_much_how_fast_and_how_long():
    assert line("encoding", 500, 2000, 10, 50, 30) == "encoding: 500 of 2,000 after 10 s, about 30 s left"
    assert line("regions", 500, None, 600, 2.5, None, "images") == "regions: 500 images after 10 min, 2.5 per second"
    assert line("relevance", 0, 4, 10, 0.0, None, "blocks") == "relevance: 0 of 4 blocks after 10 s"
    assert [spoken(s) for s in (599, 601, 7300)] == ["599 s", "10 min", "2.0 h"]
    assert [pause(s) for s in (0, 100, 300, 10_000)] == [10, 10, 30, 60]


def test_speed_is_that_up_to_the_last_step():
    count = heartbeat.Count()
    since = count.at
    assert count.speed(0, since) == 0
    count.done, count.at = 100, since + 20
    assert count.speed(0, since) == 5 and count.speed(50, since + 10) == 5 and count.speed(100, since + 30) == 0


def test_lines_come_by_the_clock_without_a_terminal(monkeypatch, capfd):
    monkeypatch.setattr(heartbeat, "SETTLE", 0.01)
    monkeypatch.setattr(heartbeat, "FIRST", 0.02)
    monkeypatch.setattr(heartbeat, "LONGEST", 0.02)
    printed = threading.Event()
    monkeypatch.setattr(heartbeat, "print", lambda *a, **k: (print(*a, **k), printed.set()), raising=False)
    with progress("encoding 7 captions", 7) as advance:
        advance(3)
        assert printed.wait(20), "no line although no step was counted meanwhile"
    said = capfd.readouterr()
    assert said.err.startswith("encoding 7 captions: 3 of 7 after 0 s") and not said.out


@pytest.mark.parametrize("rank", ["0", "1"])
def test_short_work_and_other_processes_are_silent(rank, monkeypatch, capfd):
    monkeypatch.setenv("RANK", rank)
    with progress("training", 5) as advance:
        advance(5)
    assert capfd.readouterr() == ("", "")
