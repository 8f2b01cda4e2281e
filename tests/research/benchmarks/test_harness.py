"""How work is timed and shown, whatever is timed."""

import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from research.benchmarks.harness import once, show


def spin(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_processor_time_of_other_threads_counts_and_waiting_does_not() -> None:
    with ThreadPoolExecutor(1) as threads:
        assert once(lambda: threads.submit(spin, 0.05).result())[0].processor >= 0.05
    waited, result = once(time.sleep, 0.05)
    assert waited.seconds >= 0.05 > waited.processor and result is None


@pytest.mark.parametrize("rows", [1, 9])
def test_the_longer_list_goes_down_the_page(
    rows: int, capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    row = {
        "seconds": 1234.56,
        "max_abs_diff": 1.25e-7,
        "pairs": 31_000_000,
        "same": False,
        "peer": "scipy",
    }
    show("bench x", {f"part_{k}": row for k in range(rows)})
    said = capsys.readouterr().out
    assert (
        said.count("31,000,000")
        == said.count("1,235")
        == said.count("1.25e-07")
        == said.count("NO")
        == rows
    )
    down = re.findall(r"^│ (\S.*?) +│", said, re.MULTILINE)
    assert down == (
        [f"part {k}" for k in range(9)] if rows > 5 else [name.replace("_", " ") for name in row]
    )
    assert "peak memory" in said and "…" not in said
