from pathlib import Path

from capgrade.trainer.models.squared_difference import UNTOLD, block_numbers, last_level_cache


def test_the_largest_cache_that_is_told(tmp_path: Path) -> None:
    assert last_level_cache(tmp_path) == UNTOLD
    for level, size in enumerate(("32K\n", "", "1M", "8192K", "?")):
        (tmp_path / f"index{level}").mkdir()
        (tmp_path / f"index{level}" / "size").write_text(size)
    assert last_level_cache(tmp_path) == 8 * 2**20


def test_a_block_is_a_quarter_of_the_cache_within_bounds() -> None:
    assert [block_numbers(cache) * 4 / 2**20 for cache in (2**20, 2**23, 2**25, 2**30)] == [1, 2, 8, 16]
