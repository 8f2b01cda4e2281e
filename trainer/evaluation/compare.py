"""Paired tests of evaluation folders, by what they keep of each query."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from capgrade.comparison import Comparison, reported_columns, values_of
from capgrade.comparison import compare as compare_evaluations
from capgrade.schemas.errors import InputError
from capgrade.schemas.say import tell
from capgrade.trainer.evaluation.stored import read_evaluation


def compare(
    folders: Mapping[str, Path], metrics: Sequence[str] = (), *, every: bool = False, **how: Any
) -> Comparison:
    """The first of two or more evaluation folders, by label, tested against each other one: on
    `metrics`, on those that papers report, or on `every` metric that all have. `how` and errors are
    those of `capgrade.comparison.compare`; InputError for a folder that is not finished too."""
    runs = {label: read_evaluation(folder) for label, folder in folders.items()}
    try:
        return compare_evaluations(runs, metrics, short=not every, **how)
    except InputError as error:
        # An error of one run has its label.
        file = folders.get(str(error.file), next(iter(folders.values())))
        raise error.of(file) from error


def _list_reported(folder: Path) -> list[str]:
    """Names of the metrics of a finished evaluation that papers report. InputError as `compare`."""
    columns = reported_columns(list(values_of(read_evaluation(folder))))
    return list(dict.fromkeys(name for _, name in columns))


def _list_judged(folders: Iterable[Path]) -> list[str]:
    """Columns of the judgements that all finished evaluations have. InputError as `compare`."""
    found = [read_evaluation(folder).judged for folder in folders]
    return [name for name in found[0] if all(name in others for others in found)]


def compare_folders(
    folders: Mapping[str, Path], metrics: Sequence[str], every: bool, method: str, strict: bool
) -> tuple[list[str], Comparison | None]:
    """The metrics to show of evaluation folders by label, and their tests: None for one evaluation,
    and with a note where no test is possible on the metrics that are asked for. InputError as
    `compare`, also in place of the note if `strict`."""
    comparison = None
    if len(folders) > 1:
        try:
            comparison = compare(folders, metrics, every=every, method=method)
        except InputError as error:
            if strict or not metrics:
                raise
            tell(f"no test: {error}")
    if metrics:
        return list(metrics), comparison
    if comparison is None:
        names = _list_reported(next(iter(folders.values())))
    else:
        names = list(dict.fromkeys(row.metric for row in comparison.rows))
    return [*names, *_list_judged(folders.values())], comparison
