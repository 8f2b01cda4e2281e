"""research/studies/audited.py on figures as `audit` returns them: a row has both kinds of shares."""

from research.studies import audited


def test_a_row_has_what_p_expects_and_what_is_known() -> None:
    share = {"share": 0.5, "low": None, "high": None}
    expected = {"listed": 1200, "share_right": share, "share_found": {**share, "share": 0.04}}
    judged = {"right": 3.0, "examined": 4.0, "all_right": 30.0}
    judged |= {"share_right": {"share": 0.75, "low": 0.6, "high": 0.9}, "share_found": None}
    by = {"truth": False, "pairs": 2000}
    figures = {"expected": expected, "judged": judged, "judgements": by}
    cells = "1,200 | 50.0% | 75.0% (60.0 to 90.0), 3 of 4 | 4.0% | –"
    assert audited.row("A", figures) == f"| A | 2,000 pairs that people judged | {cells} |"
    judged["share_found"] = {**share, "share": 0.1}
    by["truth"] = True
    told = audited.row("A", figures)
    assert told.startswith("| A | the truth |") and told.endswith("| 10.0%, 3 of 30 |")
    assert audited.HEAD.count("|") - 1 + len(audited._COLUMNS) == told.count("|") - 1
