"""Agreement of caption scores with human scores of candidates, from a table of candidates,
references and scores."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field, create_model

from capgrade.agreement.coefficients import coefficients, intervals
from capgrade.agreement.judgements import Judgements
from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.sources.fields import Text, TextList, parse_list_cell, validate_entry
from capgrade.pipelines.sources.hub import hub_parts
from capgrade.pipelines.sources.rows import Record, kind_of, open_rows
from capgrade.pipelines.stages.agree import JudgedColumns
from capgrade.pipelines.stages.captions import CaptionsParams
from capgrade.schemas.errors import InputError, choose_from
from capgrade.schemas.lines import LARGEST_FLOAT32
from capgrade.scoring import known_scores, score

# Field -> what its column is called, the first that the table has: here; in Polaris, Composite and
# LongCap-Arena; in Nebula.
_COLUMNS = {
    "candidate": ("candidate", "cand", "mt"),
    "references": ("references", "refs"),
    "score": ("score", "human_score"),
}
_REMEDY = "give every row a candidate, its references and a score"


def agree_on_texts(
    table: Path,
    names: Sequence[str],
    columns: JudgedColumns | None = None,
    tokenizer: str = "ptb_py",
    params: MeasuresParams | None = None,
    dataset: CaptionsParams | None = None,
) -> tuple[int, dict[str, dict[str, Any]]]:
    """Pearson's r, Spearman's rho, Kendall's tau-b and tau-c of caption scores with people's, each
    row an observation.

    docs/with_others.md says what a table is; `columns` are names of its columns. Where `table` is
    no file it is a dataset as the source `hub` reads one, with the split, configuration and
    revision of `dataset`; without a split it is `test`, or the only one. `names` are of
    `capgrade.score`, with `params`, or columns of numbers. Returns the number of rows, and name ->
    coefficient -> {"all": value}, and "intervals". Raises InputError for a column that is not
    there, and for a row without text, or with a score that is not a finite number.
    """
    known = known_scores(params)
    own = [name for name in names if name not in known]
    rows = _rows(table, columns or JudgedColumns(), own, dataset or CaptionsParams())
    sets = [tuple(row["references"]) for row in rows]
    numbers = {one: k for k, one in enumerate(dict.fromkeys(sets))}
    image = np.array([numbers[one] for one in sets], np.int64)
    people = Judgements(image, np.arange(len(rows)), np.array([row["score"] for row in rows]))
    values = {name: np.array([row[name] for row in rows]) for name in own}
    if asked := [name for name in names if name in known]:
        values |= score(
            [row["candidate"] for row in rows], sets, asked, tokenizer=tokenizer, params=params
        ).sentences
    every = np.ones(len(rows), bool)
    return len(rows), {
        name: {**coefficients(of, people, every), "intervals": intervals(of, people, image)}
        for name, of in values.items()
    }


def _rows(
    table: Path, columns: JudgedColumns, own: Sequence[str], dataset: CaptionsParams
) -> list[dict[str, Any]]:
    """Each row as field -> value, `own` columns of numbers beside COLUMNS. InputError for a table
    without rows."""
    asked = {field: (name,) if name else _COLUMNS[field] for field, name in columns} | {
        name: (name,) for name in own
    }
    column: dict[str, str] = {}

    def chosen(present: Collection[str]) -> list[str]:
        for field, names in asked.items():
            found = next((name for name in names if name in present), None)
            if found is None:
                remedy = "name a measure or a column"
                known = [*known_scores(), *present]
                if field in _COLUMNS:
                    remedy = (
                        f"--set agree.columns.{field}=NAME, or --captions for judgements of ids"
                    )
                    known = [*present]
                remedy = f"{remedy}; {choose_from(names[0], known)}"
                raise InputError(f"no column '{names[0]}'", file=table, row=1, remedy=remedy)
            column[field] = found
        return list(column.values())

    kinds: dict[str, Any] = {"candidate": Text, "references": References}
    rows: list[dict[str, Any]] = []
    fields: dict[str, Any] = {}
    for row, record in _records(table, chosen, dataset):
        if not rows:
            for k, (field, name) in enumerate(column.items()):
                fields[f"f{k}"] = kinds.get(field, Number), Field(alias=name)
            model = create_model("Judged", **fields)
        values = validate_entry(model, record, table, row, _REMEDY)
        rows.append(dict(zip(column, vars(values).values(), strict=True)))
    if not rows:
        raise InputError("no rows", file=table, remedy=_REMEDY)
    return rows


def _records(
    table: Path, chosen: Callable[[Collection[str]], list[str]], dataset: CaptionsParams
) -> Iterable[Record]:
    """The rows of a file, or of a dataset's split, with the columns that `chosen` takes of them."""
    if table.is_file():
        found = open_rows(table, kind_of(table))
        return () if found is None else found.read(chosen(found.columns))
    parts = hub_parts(str(table), dataset, Counter())
    splits = list(dict.fromkeys(part.split for part in parts))
    split = dataset.split or ("test" if "test" in splits else splits[0])
    if split not in splits or (dataset.split is None and split != "test" and len(splits) > 1):
        problem = f"no split '{split}'" if dataset.split else "several splits, none called test"
        raise InputError(problem, file=table, remedy=f"give --split: {', '.join(splits)}")
    return (
        row
        for part in parts
        if part.split == split
        for row in part.read({name: name for name in chosen(part.columns)})
    )


References = Annotated[
    TextList,
    BeforeValidator(lambda value: parse_list_cell(value) if isinstance(value, str) else value),
]
Number = Annotated[float, Field(allow_inf_nan=False, ge=-LARGEST_FLOAT32, le=LARGEST_FLOAT32)]
