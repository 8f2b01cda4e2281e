"""What an audit says of its list beside what is known: expected from P, and by the truth of scenes
or by people.

    python -m research.studies.audited --data Scenes data/captions data/relevance \
        --data Flickr8K f8k/captions f8k/relevance CrowdFlowerAnnotations.txt --out audited.md

Each --data is a name, captions, their dense relevance by a calibrated measure, and judgements; the
truth beside generated captions is found. Lists are made as `capgrade audit` makes them. With
--by-p the table has a row for each calibrated measure and each P from which a pair is listed, of
the pairs that were judged.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.agreement.calibration import (
    ACCEPTED,
    SHIPPED,
    Calibration,
    calibration_errors,
    load_calibration,
    meanings,
    scale_of,
)
from capgrade.agreement.judgement_files import read_judgements
from capgrade.agreement.judgements import Judgements
from capgrade.apps.audit import audit
from capgrade.metrics.uncertainty import pair_draws
from capgrade.schemas.captions import read_captions
from capgrade.schemas.relevance import read_relevance
from research.studies import arguments, write_rows

HEAD = "| data | known by | listed pairs |"  # how the table begins
BY_P = "| data, measure | listed from P | judged pairs of these |"
LISTED_FROM = (0.5, 0.3, 0.2, 0.1)
_BY_P_COLUMNS = ("right, as P expects", "right", "of what is right, listed", "error of P")
_DRAWS = 200  # of images, for intervals
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


def _table_by_p(data: Sequence[Sequence[str]]) -> Iterator[str]:
    """A row for each calibrated measure and each P of `LISTED_FROM`, of data with judgements."""
    yield BY_P + "".join(f" {name} |" for name in _BY_P_COLUMNS)
    yield "|---|---|---:|" + "---:|" * len(_BY_P_COLUMNS)
    for name, captions_dir, relevance, *judgements in data:
        captions = read_captions(Path(captions_dir), "test")
        people = read_judgements(Path(judgements[0]), captions)
        other = captions.owner[people.caption] != people.image
        image, caption, score = people.image[other], people.caption[other], people.score[other]
        people = replace(people, image=image, caption=caption, score=score)
        calibration = load_calibration(SHIPPED).fitting(captions.owner)
        values = {
            file.stem: read_relevance(file).matrix()[people.image, people.caption]
            for file in sorted(Path(relevance).glob("*.arrow"))
            if file.stem in calibration.curves
        }
        yield from _rows_by_p(name, values, calibration, people, captions.owner[people.caption])


def _rows_by_p(
    name: str,
    values: Mapping[str, np.ndarray],
    calibration: Calibration,
    people: Judgements,
    owner: np.ndarray,
) -> Iterator[str]:
    """The lines of `_table_by_p` of one data set. values: measure -> its value of each judged pair;
    owner int64 [n]: the images of their captions."""
    chosen = {measure: calibration.curves[measure] for measure in values}
    meant = meanings(values, chosen)
    right = people.score >= scale_of(people).accept
    draws = np.array(list(pair_draws(people.image, owner, _DRAWS, seed=0)))
    all_pairs = np.ones(len(right), bool)
    errors = calibration_errors(meant, people, all_pairs, None)
    for measure in values:
        p = meant[measure + ACCEPTED]
        for least in LISTED_FROM:
            listed = p >= least
            cells = [
                f"{name}, `{measure}`",
                f"{least:g}",
                f"{listed.sum():,}",
                f"{p[listed].mean():.1%}",
                _share_of_draws(right, listed, draws),
                _share_of_draws(listed, right, draws),
                f"{errors[measure + ACCEPTED]['ece']:.3f}",
            ]
            yield f"| {' | '.join(cells)} |"


def _share_of_draws(part: np.ndarray, whole: np.ndarray, draws: np.ndarray) -> str:
    """The share of `whole` that is in `part` too, and its 95 % interval over draws of images."""
    shares = (draws * (part & whole)).sum(1) / (draws * whole).sum(1)
    low, high = 100 * np.quantile(shares, (0.025, 0.975))
    both, n = int((part & whole).sum()), int(whole.sum())
    return f"{both / n:.1%} ({low:.1f} to {high:.1f}), {both:,} of {n:,}"


def main() -> None:
    given = arguments(
        __doc__,
        data={"action": "append", "nargs": "+", "required": True},
        by_p={"action": "store_true", "help": "by measure and P, of data with judgements"},
    )
    write_rows((_table_by_p if given.by_p else table)(given.data), given.out)


if __name__ == "__main__":
    main()
