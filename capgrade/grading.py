"""`capgrade.grade`: captions in, graded labels out; what the commands do, as one function."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from capgrade.labels import Labels
from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.captions import write_records
from capgrade.pipelines.relevance import relevance
from capgrade.pipelines.shards import shards
from capgrade.pipelines.sources.table import Record, captions_of, captions_of_datasets, columns_of
from capgrade.schemas.captions import Caption
from capgrade.schemas.errors import InputError
from capgrade.schemas.output import output_folder
from capgrade.schemas.params import CaptionsParams, Columns, RelevanceParams, Sampling, ShardsParams, validated

__all__ = ["Sampling", "grade"]

_NAME = "captions"  # of what was given, in errors
_RENAME = "rename one to {field}"
_READ = "read the file, as by pandas.read_csv, and give the table"
_REMEDY = "give a dict {image id: captions}, a table with the columns image_id and caption, or a folder of captions"


def grade(
    captions: Any,
    *,
    measures: str | Sequence[str] = ("cider", "rouge_l", "sbert"),
    sample: Sampling | None = None,
    split: str | None = None,
    out: str | Path | None = None,
    parameters: Mapping[str, Any] | None = None,
    tokenizer: str = "ptb_py",
    empty: Literal["refuse", "drop"] = "refuse",
    device: str = "cpu",
) -> Labels:
    """Graded relevance of every caption to every image, from the captions of the images.

    captions: a dict {image id: captions}; a table with the columns `image_id` and `caption` (pyarrow, pandas, or a
    `datasets.Dataset` or `DatasetDict`), a row a caption, or a row an image with a list of captions, and where they are
    there `caption_id`, `split` and `image_file`; or a folder of `capgrade captions`.
    measures: names of docs/measures.md, also in one text with commas; parameters: their parameters, as the block
    `measures` of params.yaml.
    sample: None keeps every pair; `capgrade.Sampling(top=..., windows=..., uniform=...)` keeps some pairs of each image
    with weights, as `capgrade shards`: for more than some ten thousand images.
    split: the one to grade, where there are several. out: a folder, which then holds `captions`, unless they were one,
    and `relevance` or `shards`, as the commands write them; None: in memory.
    tokenizer, empty: as of `capgrade captions`, unless captions are a folder. device: of dense blocks, "cpu" or "cuda".

    Raises InputError for captions that `capgrade captions` refuses, and as `capgrade relevance` and `shards` do.

    >>> dogs, men = ["a dog runs", "the brown dog runs fast"], ["two men talk", "two men are talking"]
    >>> labels = grade({"1.jpg": dogs, "2.jpg": men}, measures="rouge_l")
    >>> labels.block(["1.jpg"], range(4)).relevance.round(2)
    array([[1., 1., 0., 0.]], dtype=float32)
    """
    if out is not None:
        return _graded(Path(out), captions, measures, sample, split, parameters, tokenizer, empty, device)
    with tempfile.TemporaryDirectory(prefix="capgrade-", ignore_cleanup_errors=True) as folder:
        found = _graded(Path(folder), captions, measures, sample, split, parameters, tokenizer, empty, device)
        return replace(found, file="labels in memory", _how={})  # what is mapped stays, without its names


def _graded(
    folder: Path, given: Any, measures: str | Sequence[str], sample: Sampling | None, split: str | None,
    parameters: Mapping[str, Any] | None, tokenizer: str, empty: str, device: str,
) -> Labels:  # fmt: skip
    how = validated(MeasuresParams, dict(parameters or {}))
    names = tuple(name.strip() for name in measures.split(",")) if isinstance(measures, str) else tuple(measures)
    asked = {"split": split, "measures": names, "device": device}
    if isinstance(given, str | Path):
        where = Path(given)
        if where.is_file():
            raise InputError("a path is of a folder of `capgrade captions`", file=where, remedy=_READ)
    else:
        where = folder / "captions"
        params = validated(CaptionsParams, {"source": "memory", "tokenizer": tokenizer, "empty": empty})
        records = list(records_of(given))
        known = list(dict.fromkeys(one.split for one in records))
        if split is None and len(known) > 1:
            raise InputError(f"several splits: {', '.join(known)}", file=_NAME, remedy="choose one with split=")
        with output_folder(where, "captions") as work:
            write_records(work, records, params)
    if sample is None:
        made = folder / "relevance"
        relevance(where, made, validated(RelevanceParams, asked), how)
    else:
        made = folder / "shards"
        shards(where, made, validated(ShardsParams, {**sample.model_dump(), **asked}), how)
    return Labels.load(made, captions=where)


def records_of(given: Any) -> Iterator[Caption]:
    """The captions of a dict, a table or a dataset, in their order. InputError for anything else, and for a row that is
    not as it should be."""
    if isinstance(given, Mapping):
        if given and all(hasattr(one, "select_columns") for one in given.values()):
            return captions_of_datasets({str(split): one for split, one in given.items()}, Columns(), _NAME, _RENAME)
        rows: Iterable[dict[str, Any]] = (
            {"image_id": image, "caption": list(texts) if isinstance(texts, tuple) else texts}
            for image, texts in given.items()
        )
    elif hasattr(given, "select_columns"):  # datasets.Dataset
        return captions_of_datasets({str(given.split or "all"): given}, Columns(), _NAME, _RENAME)
    elif hasattr(given, "to_pylist"):  # pyarrow.Table
        rows = (row for batch in given.to_batches() for row in batch.to_pylist())
    elif hasattr(given, "itertuples"):  # pandas.DataFrame
        import pyarrow as pa

        return records_of(pa.Table.from_pandas(given, preserve_index=False))
    else:
        raise InputError(f"captions are {type(given).__name__}", remedy=_REMEDY)
    numbered: Iterator[Record] = iter(enumerate(rows, start=1))
    first = next(numbered, None)
    if first is None:
        raise InputError("no captions", remedy=_REMEDY)
    columns = columns_of(Columns(), first[1], _NAME, first[0], _RENAME)
    return captions_of(chain([first], numbered), columns, "all", _NAME)
