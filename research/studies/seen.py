r"""What a trained model, which sees pictures, adds to a label of captions, by people's judgements.

    python -m research.studies.seen --project flickr8k --judgements FILE --runs runs \
        --of frozen_people_mixed,teran_256

It reads the runs that `research.studies.flickr8k` has trained with these options. The mixture is of
`people_shared` and the mean of a run's seeds. Its share is chosen for Kendall's tau-b on pairs that
have no image and no caption in common with those that it is told of.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from capgrade.agreement.coefficients import taus
from capgrade.agreement.judgements import Judgements
from capgrade.metrics.uncertainty import pair_draws
from capgrade.schemas.errors import InputError
from research.studies import arguments, write_rows
from research.studies.flickr8k import DRAWS, interval, open_project

LABEL = "people_shared"
FOLDS = 5  # of images
SHARES = np.arange(0, 0.61, 0.05)  # of the model, that are tried


def tau(values: np.ndarray, people: Judgements, rows: np.ndarray | slice = slice(None)) -> float:
    """Kendall's tau-b of some pairs' values with people's scores."""
    return float(taus(values[rows], people.score[rows])[0])


def cells(people: Judgements, owner: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Parts of the pairs, bool [n] each, which together are all; and with each the pairs that have
    neither an image nor a caption of an image in common with it. `owner` [n] is the image of each
    pair's caption."""
    fold = np.random.default_rng(0).integers(0, FOLDS, 1 + max(owner.max(), people.image.max()))
    for number in range(FOLDS**2):
        own, others = divmod(number, FOLDS)
        told = (fold[people.image] == own) & (fold[owner] == others)
        apart = [~np.isin(fold[side], (own, others)) for side in (people.image, owner)]
        yield told, apart[0] & apart[1]


def mixed(
    label: np.ndarray, seen: np.ndarray, people: Judgements, owner: np.ndarray
) -> tuple[np.ndarray, list[float]]:
    """The mixture's values, float64 [n], and the share of `seen` in each of the `cells`. The label
    has one scale in all of them, so that their values can be ranked together."""
    label, seen = ((one - one.mean()) / one.std() for one in (label, seen))
    values, shares = np.empty(len(label)), []
    for told, others in cells(people, owner):
        found = [tau(label + weight_of(share) * seen, people, others) for share in SHARES]
        share = float(SHARES[np.argmax(found)])
        values[told] = (label + weight_of(share) * seen)[told]
        shares.append(share)
    return values, shares


def weight_of(share: float) -> float:
    """The weight of a model beside a label of weight 1, of which it is this share of both."""
    return share / (1 - share)


def rows(
    label: np.ndarray, runs: dict[str, np.ndarray], people: Judgements, owner: np.ndarray
) -> Iterator[str]:
    """The lines of a Markdown table: agreement of the label, of each run, and of both mixed, in
    percent, with the 95 % interval over images of what the mixture gains."""
    draws = [
        np.repeat(np.arange(len(label)), draw.astype(np.int64))
        for draw in pair_draws(people.image, owner, DRAWS, seed=0)
    ]
    alone = np.array([tau(label, people), *(tau(label, people, draw) for draw in draws)])
    yield f"| run | alone | with `{LABEL}`, {100 * alone[0]:.1f} | more than that | share |"
    yield "|---|---:|---:|---:|---:|"
    for name, seen in runs.items():
        values, shares = mixed(label, seen, people, owner)
        both = np.array([tau(values, people), *(tau(values, people, draw) for draw in draws)])
        more, share = both - alone, f"{min(shares):.2f} to {max(shares):.2f}"
        cells = [f"{100 * tau(seen, people):.1f}", f"{100 * both[0]:.1f}"]
        cells += [f"{100 * more[0]:+.1f} {interval(more)}", share]
        yield f"| `{name}` | " + " | ".join(cells) + " |"


def scores_of_seeds(runs: Path, name: str) -> np.ndarray:
    """The scores of the judged pairs by a run, float64 [n], as the mean of its seeds. InputError
    where none is there."""
    files = sorted(runs.glob(f"{name}-*.npy"))
    if not files:
        remedy = f"train it: python -m research.studies.flickr8k --only {name}"
        raise InputError(f"no scores of '{name}'", file=runs, remedy=remedy)
    each = [np.load(file).astype(np.float64) for file in files]
    return np.mean([one / one.std() for one in each], axis=0)


def main() -> None:
    args = arguments(
        __doc__,
        project={"type": Path, "required": True, "help": "what `make flickr8k` made"},
        judgements={"type": Path, "required": True, "help": "CrowdFlowerAnnotations.txt"},
        runs={"type": Path, "default": Path("runs"), "help": "where trained runs are kept"},
        of={"default": "frozen", "help": "names of runs, with commas"},
    )
    project = open_project(args.project, args.judgements)
    people = project.people
    label = project.labels["test"][LABEL][people.image, people.caption].astype(np.float64)
    runs = {name: scores_of_seeds(args.runs, name) for name in args.of.split(",")}
    write_rows(rows(label, runs, people, project.owner), args.out)


if __name__ == "__main__":
    main()
