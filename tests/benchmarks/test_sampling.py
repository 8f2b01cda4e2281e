"""The benchmark of the samplers alone, on a few captions."""

from __future__ import annotations

from pathlib import Path

import pytest

from capgrade.benchmarks.sampling import bench
from tests.conftest import caption_table, random_sets, write_captions_folder


def test_a_line_for_each_time(tmp_path: Path) -> None:
    folder = write_captions_folder(tmp_path / "captions", [caption_table(random_sets(30, seed=1))])
    found = bench(folder, None, 3)
    n = found[0]["captions"]
    assert [line["captions"] for line in found] == [n, 2 * n, 3 * n]
    assert found[0]["ns_per_pair"] == found[0]["ns_per_pair_of_last"] > 0
    assert found[2]["ns_per_pair"] == pytest.approx(sum(line["ns_per_pair_of_last"] for line in found) / 3)
