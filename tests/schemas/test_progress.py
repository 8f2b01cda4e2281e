"""Signs of life where there is no terminal: lines, not bars, and none of a short piece of work."""

import threading

import pytest
from rich.progress import Progress

from capgrade.schemas import progress as module
from capgrade.schemas.progress import (
    PERIOD,
    count_part,
    counted_work,
    line,
    part_of_work,
    pause,
    progress,
    spoken_time,
)


@pytest.mark.parametrize(
    ("total", "unit", "steps", "expected"),
    [
        (2000, None, [(0, 400), (10, 500)], "work: 900 of 2,000 after 10 s, about 22 s left"),
        (None, "images", [(0, 0), (600, 1500)], "work: 1,500 images after 10 min, 2.5 per second"),
        (None, "pairs", [(0, 0), (9, 17100)], "work: 17,100 pairs after 9 s, 1,900 per second"),
        (4, "blocks", [], "work: 0 of 4 blocks after 0 s"),
        (4, "blocks", [(100, 1)], "work: 1 of 4 blocks after 100 s"),  # perhaps of an earlier run
    ],
)
def test_a_line_says_how_much_how_fast_and_how_long(total, unit, steps, expected):
    now = [0.0]
    bar = Progress(disable=True, get_time=lambda: now[0], speed_estimate_period=PERIOD[1])
    number = bar.add_task("work", total=total)
    for now[0], count in steps:
        bar.advance(number, count)
    assert line(bar.tasks[0], unit) == expected


def test_work_that_stands_still_promises_no_end():
    """The speed of earlier steps says nothing of a slow one."""
    now = [0.0]
    bar = Progress(disable=True, get_time=lambda: now[0], speed_estimate_period=PERIOD[1])
    number, task = bar.add_task("work", total=100), bar.tasks[0]
    for now[0], count in [(0, 10), (10, 88)]:
        bar.update(number, advance=count, counted_at=now[0])
    assert line(task) == "work: 98 of 100 after 10 s, about 1 s left"
    now[0] = 40
    assert line(task) == "work: 98 of 100 after 40 s, none in the last 30 s"
    bar.update(number, advance=2, counted_at=now[0])
    assert line(task) == "work: 100 of 100 after 40 s"


def test_durations():
    assert [spoken_time(s) for s in (599, 601, 7300)] == ["599 s", "10 min", "2.0 h"]
    assert [pause(s) for s in (0, 5, 100, 300, 10_000)] == [5, 10, 10, 30, 60]


def test_lines_come_by_the_clock_without_a_terminal(monkeypatch, capfd):
    monkeypatch.setattr(module, "FIRST", 0.02)
    monkeypatch.setattr(module, "SHORTEST_WAIT", 0.02)
    monkeypatch.setattr(module, "LONGEST_WAIT", 0.02)
    printed = threading.Event()
    monkeypatch.setattr(
        module, "print", lambda *a, **k: (print(*a, **k), printed.set()), raising=False
    )
    with progress("encoding 7 captions", 7) as advance:
        advance(3)
        assert printed.wait(20), "no line although no step was counted meanwhile"
    said = capfd.readouterr()
    assert (
        said.err.startswith("encoding 7 captions: ")
        and " of 7 after 0 s" in said.err
        and not said.out
    )


@pytest.mark.parametrize("rank", ["0", "1"])
def test_short_work_and_other_processes_are_silent(rank, monkeypatch, capfd):
    monkeypatch.setenv("RANK", rank)
    with progress("training", 5) as advance:
        advance(5)
    assert capfd.readouterr() == ("", "")


def test_parts_of_work_are_counted_where_they_are_done():
    """Parts within parts add up to the whole, also where a part counts more than it is."""
    counts = []
    with counted_work(60, counts.append):
        with part_of_work(1, 2):  # 30
            count_part(1, 3)
            count_part(1, 3)
            assert counts == [10, 10]
        assert sum(counts) == 30
        with part_of_work(1, 2):
            with part_of_work(1, 3):
                pass
            assert sum(counts) == 40
            count_part(5, 1)
            count_part(5, 1)
        assert sum(counts) == 60
    assert sum(counts) == 60
    count_part(1, 2)  # of nothing
    with part_of_work(1, 2):
        count_part(1, 2)
    assert sum(counts) == 60
