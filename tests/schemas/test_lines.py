"""No text of somebody else's is a formula in a spreadsheet, and what is read back is what was
written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capgrade.schemas.lines import cells, text_of_cell


@pytest.mark.parametrize(
    "text", ["=1+1", "+a", "-a", "@SUM(A1)", "\tx", "\rx", "-1+cmd|' /C calc'!A0", "=", "-"]
)
def test_a_formula_becomes_text(text: str) -> None:
    assert cells([text]) == ["'" + text]


@pytest.mark.parametrize("text", ["a dog", "", "-0.5", "+3", "-1e-05", "1-2", "'tis", "a=b"])
def test_other_text_and_numbers_stay(text: str) -> None:
    assert cells([text, -1, -0.5]) == [text, -1, -0.5]


@given(st.text(alphabet="'=+-@\t\r1a") | st.text())
def test_what_is_read_is_what_was_written(text: str) -> None:
    (cell,) = cells([text])
    assert text_of_cell(cell) == text
    assert not cell.startswith(("=", "@", "\t", "\r"))
