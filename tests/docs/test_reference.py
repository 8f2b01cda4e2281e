"""docs/reference.md is what its generator writes: every key that can be set."""

from tests.tools.reference import PAGE, page


def test_the_page_is_of_these_parameters() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tests.tools.reference"
