"""What an audit says of its list beside what is known: expected from P, and by the truth of scenes
or by people.

    python -m studies.audited --data Scenes data/captions data/relevance \
        --data Flickr8K f8k/captions f8k/relevance CrowdFlowerAnnotations.txt --out audited.md

Each --data is a name, captions, their dense relevance by a calibrated measure, and judgements; the
truth beside generated captions is found. Lists are made as `capgrade audit` makes them.
"""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from capgrade.pipelines.audit import audit
from studies import arguments, write_rows

HEAD = "| data | known by | listed pairs |"  # how the table begins
_COLUMNS = ("right, as P expects", "right", "found, as P expects", "found")


def table(data: Sequence[Sequence[str]]) -> Iterator[str]:
    """Row by row: name, captions, relevance, and judgements if there are any, of each."""
    yield HEAD + "".join(f" {name} |" for name in _COLUMNS)
    yield "|---|---|---:|" + "---:|" * len(_COLUMNS)
    for name, captions, relevance, *judgements in data:
        with tempfile.TemporaryDirectory() as folder:
            figures = audit(
                Path(captions),
                Path(folder) / "audit.html",
                relevance=Path(relevance),
                judgements=Path(judgements[0]) if judgements else None,
            )
        yield row(name, figures)


def row(name: str, figures: dict[str, Any]) -> str:
    """A line of the table, of what `audit` returns."""
    expected, judged, by = figures["expected"], figures["judged"], figures["judgements"]
    known = "the truth" if by["truth"] else f"{by['pairs']:,} pairs that people judged"
    cells = [name, known, f"{expected['listed']:,}"]
    for share, whole in (("share_right", "examined"), ("share_found", "all_right")):
        cells.append(f"{expected[share]['share']:.1%}")
        cells.append(_known_share(judged[share], judged["right"], judged[whole]))
    return f"| {' | '.join(cells)} |"


def _known_share(share: dict[str, float | None] | None, part: float, whole: float) -> str:
    if share is None:
        return "–"
    of = f"{part:,.0f} of {whole:,.0f}"
    if share["low"] is None or share["high"] is None:
        return f"{share['share']:.1%}, {of}"
    return f"{share['share']:.1%} ({100 * share['low']:.1f} to {100 * share['high']:.1f}), {of}"


def main() -> None:
    given = arguments(__doc__, HEAD, data={"action": "append", "nargs": "+", "required": True})
    write_rows(table(given.data), given.out)


if __name__ == "__main__":
    main()
