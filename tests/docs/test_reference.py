"""docs/reference.md is what its generator writes, and names every key that can be set."""

from __future__ import annotations

from capgrade.schemas.params import Params, load_params
from tests.tools.reference import PAGE, page


def test_the_page_is_of_these_parameters() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tests.tools.reference"


def test_every_key_of_a_block_is_there_and_can_be_set() -> None:
    text = page()
    for stage in ("shards", "judge", "bench", "evaluate"):
        block = getattr(Params(), stage)
        for name, value in block.model_dump(mode="json").items():
            assert f"`{stage}.{name}" in text
            if not isinstance(value, dict):
                assert load_params(None, [f"{stage}.{name}={'null' if value is None else value}"]) == Params()
