"""Agreement of caption scores with people's choices between two candidates, in Pascal-50S."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from capgrade.measures.params import MeasuresParams
from capgrade.metrics.uncertainty import resampled_means, tails
from capgrade.schemas.console import console, print_table
from capgrade.schemas.errors import InputError
from capgrade.schemas.judges import PEOPLE
from capgrade.schemas.tables import ENDINGS, WRITERS
from capgrade.scoring import score

PAIRS, TRIPLETS = "pair_pascal.mat", "consensus_pascal.mat"  # as CIDEr's authors call them
# By the number that PAIRS has, from 1: two human captions that are correct; one of them of another
# image; a human and a machine's; two machines'.
CATEGORIES = ("HC", "HI", "HM", "MM")
MEAN, DRAWS, _LEVEL = "mean", 5, 0.95
_REMEDY = f"give the folder of CIDEr's authors, which has {PAIRS} and {TRIPLETS}"
_Figures: TypeAlias = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Choices:
    """Pairs of candidates, and which one people find more like the references.

    image, category int64 [pairs]: numbers from 0, of CATEGORIES; candidates: two texts a pair;
    references: texts, as many for every pair; first float64 [pairs]: 1 where more people chose the
    first candidate, 0 the second, .5 where as many chose either.
    """

    image: np.ndarray
    category: np.ndarray
    candidates: list[tuple[str, str]]
    references: list[list[str]]
    first: np.ndarray


@dataclass(frozen=True)
class ChoiceAgreement:
    """How often scores choose as people do: `measures` has, by measure, `accuracy` and `intervals`
    of each category and of MEAN, and `tied`, the share of pairs with equal scores."""

    judgements: dict[str, Any]
    measures: _Figures

    def json(self) -> dict[str, Any]:
        """As `agree choices --out FILE.json` has it."""
        return {"judgements": self.judgements, "measures": self.measures}

    def text(self) -> str:
        """A table for a terminal."""
        on = console()
        with on.capture() as captured:
            print_table("Accuracy of choices, as people's, %", *self._rows(), on=on)
        return captured.get().rstrip("\n")

    def table(self, suffix: str) -> str:
        """The same as Markdown (`.md`) or LaTeX (`.tex`)."""
        return WRITERS[ENDINGS[suffix]](*self._rows())

    def _rows(self) -> tuple[list[str], list[list[str]]]:
        scopes = (*CATEGORIES, MEAN)
        return ["measure", *scopes, "95% interval"], [
            [
                name,
                *(f"{100 * row['accuracy'][one]:.1f}" for one in scopes),
                " .. ".join(f"{100 * end:.1f}" for end in row["intervals"][MEAN]),
            ]
            for name, row in self.measures.items()
        ]


def agree_on_choices(
    folder: Path,
    names: list[str],
    n_references: int = 5,
    tokenizer: str = "ptb_py",
    params: MeasuresParams | None = None,
) -> ChoiceAgreement:
    """Accuracy of caption scores in the choices of Pascal-50S (Vedantam et al. 2015, "CIDEr"), by
    category and their mean.

    A pair is right where the candidate with the larger score is the one that more people chose.
    Where scores or people are tied it counts half, as a random choice is right half of the time.
    Each pair is scored by `n_references` of its references; accuracies are means of DRAWS seeded
    draws of them, of one where all are taken. Intervals are of a bootstrap over images. `names` are
    of `capgrade.score`, with `params`. Raises InputError for a folder that is not read, and for
    more references than there are.
    """
    choices = read_choices(folder)
    held = len(choices.references[0])
    if n_references > held:
        raise InputError(
            f"{n_references} references are asked for, there are {held}",
            file=folder,
            remedy=f"give at most {held}",
        )
    random, scored = np.random.default_rng(0), list[dict[str, np.ndarray]]()
    for _ in range(DRAWS if n_references < held else 1):
        references = [
            [one[k] for k in np.sort(random.permutation(held)[:n_references])]
            for one in choices.references
        ]
        # Each side alone: together, every reference would count twice in document frequencies.
        sides = [
            score(list(texts), references, names, tokenizer=tokenizer, params=params).sentences
            for texts in zip(*choices.candidates, strict=True)
        ]
        scored.append({name: sides[0][name] - sides[1][name] for name in sides[0]})
    facts = {
        "by": PEOPLE,
        "file": folder.name,
        "pairs": len(choices.first),
        "references": n_references,
        "draws": len(scored),
    }
    return ChoiceAgreement(
        facts,
        {name: accuracies(np.stack([one[name] for one in scored]), choices) for name in scored[0]},
    )


def accuracies(gaps: np.ndarray, choices: Choices, samples: int = 1000) -> dict[str, Any]:
    """What ChoiceAgreement has of one measure: gaps float64 [draws, pairs], the score of the first
    candidate less that of the second."""
    chosen = (np.sign(gaps) + 1) / 2
    right = (chosen * choices.first + (1 - chosen) * (1 - choices.first)).mean(axis=0)
    by_category = np.full((len(right), len(CATEGORIES)), np.nan)
    by_category[np.arange(len(right)), choices.category] = right
    means = np.nanmean(by_category, axis=0)
    drawn = resampled_means(by_category, samples=samples, groups=choices.image)
    scopes = (*CATEGORIES, MEAN)
    ends = np.nanquantile(np.column_stack([drawn, drawn.mean(axis=1)]), tails(_LEVEL), axis=0)
    return {
        "accuracy": dict(zip(scopes, [*means.tolist(), float(means.mean())], strict=True)),
        "intervals": dict(zip(scopes, ends.T.tolist(), strict=True)),
        "tied": float((gaps == 0).mean()),
    }


def read_choices(folder: Path) -> Choices:
    """The choices of Pascal-50S, from the two files of CIDEr's authors.

    PAIRS has `new_input`, a pair each with its picture's name and two candidates, and `category`.
    TRIPLETS has `triplets`: for each pair in turn as many votes, each of a reference A, the two
    candidates B and C, and 1 for B or -1 for C. Raises InputError for other files, and naming the
    pair or the vote that does not fit.
    """
    pairs = _matlab(folder / PAIRS, ("new_input", "category"))
    votes = _matlab(folder / TRIPLETS, ("triplets",))["triplets"]
    texts = [
        _record(one, 3, folder / PAIRS, f"new_input[{k}]")
        for k, one in enumerate(pairs["new_input"])
    ]
    category = pairs["category"]
    each, left = divmod(len(votes), max(1, len(texts)))
    if len(category) != len(texts) or left or not each:
        problem = f"{len(texts)} pairs, {len(category)} categories, {len(votes)} votes"
        raise InputError(problem, file=folder, remedy="give as many votes for every pair")
    absent = [name for k, name in enumerate(CATEGORIES) if k + 1 not in category]
    if absent or not np.isin(category, np.arange(1, 1 + len(CATEGORIES))).all():
        problem = f"'category' is not 1 to {len(CATEGORIES)}, each somewhere"
        raise InputError(problem, file=folder / PAIRS, remedy=_REMEDY)
    references, first = list[list[str]](), np.empty(len(texts))
    for k, (_, *candidates) in enumerate(texts):
        references.append([])
        balance = 0
        for row in range(k * each, (k + 1) * each):
            name = f"triplets[{row}]"
            reference, *sides, vote = _record(votes[row], 4, folder / TRIPLETS, name)
            if sides != candidates or vote not in ("1", "-1"):
                problem = f"no vote, 1 or -1, on the candidates of new_input[{k}]"
                raise InputError(problem, file=folder / TRIPLETS, row=name, remedy=_REMEDY)
            references[-1].append(reference)
            balance += int(vote)
        first[k] = (np.sign(balance) + 1) / 2
    return Choices(
        np.unique([image for image, *_ in texts], return_inverse=True)[1],
        category.astype(np.int64) - 1,
        [(one, other) for _, one, other in texts],
        references,
        first,
    )


def _matlab(path: Path, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Variables of a file of MATLAB, each as one row."""
    from scipy.io import loadmat

    if not path.is_file():
        raise InputError("no such file", file=path, remedy=_REMEDY)
    try:
        found = loadmat(path, variable_names=names)
    except Exception as error:  # of damage scipy raises nearly anything
        raise InputError(
            f"not a whole file of MATLAB: {error}", file=path, remedy=_REMEDY
        ) from error
    for name in names:
        if name not in found:
            raise InputError(f"no variable '{name}'", file=path, remedy=_REMEDY)
    return {name: found[name].reshape(-1) for name in names}


def _record(record: Any, length: int, file: Path, row: str) -> list[str]:
    """The fields of a struct, each a text or a number within cells of one, as stripped texts."""
    fields = []
    for value in record.item() if isinstance(record, np.void) else ():
        while isinstance(value, np.ndarray) and value.size == 1:
            value = value.item()
        fields.append("" if isinstance(value, np.ndarray) else str(value).strip())
    if len(fields) != length or not all(fields):
        raise InputError(f"not {length} fields with text", file=file, row=row, remedy=_REMEDY)
    return fields
