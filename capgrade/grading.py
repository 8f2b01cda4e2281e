"""`capgrade.grade`: captions in, graded labels out; what the commands do, as one function."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from capgrade.labels import Labels
from capgrade.measures import MEASURES, parts_of
from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.captions import write_records
from capgrade.pipelines.relevance import relevance
from capgrade.pipelines.shards import shards
from capgrade.pipelines.sources.hub import captions_of_datasets
from capgrade.pipelines.sources.rows import Record
from capgrade.pipelines.sources.table import captions_of, columns_of
from capgrade.pipelines.stages.captions import CaptionsParams, Columns
from capgrade.pipelines.stages.relevance import RelevanceParams
from capgrade.pipelines.stages.shards import Sampling, ShardsParams
from capgrade.schemas.block import validated
from capgrade.schemas.captions import Caption
from capgrade.schemas.errors import InputError
from capgrade.schemas.output import output_folder

__all__ = ["Sampling", "grade"]

_NAME = "captions"  # in errors, in place of a file's name
_RENAME = "rename one to {field}"
_READ = "read the file, as by pandas.read_csv, and give the table"
_REMEDY = (
    "give a dict {image id: captions}, a table with the columns image_id and caption, or a folder"
    " of captions"
)


def grade(
    captions: Any,
    images: str | Path | None = None,
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

    captions: a dict {image id: captions}; a table (pyarrow, pandas, `datasets`) with the columns
    `image_id` and `caption`, and `caption_id`, `split` and `image_file` where they are there, a row
    a caption or a row an image with a list; or a folder of `capgrade captions`.
    images: the pictures, as `--images` takes them, for measures that look at them, such as
    `image_text`. They are named by image id or `image_file`.
    measures: names of docs/measures.md, also in one text with commas. parameters: theirs, as the
    block `measures` of params.yaml.
    sample: None for every pair, or `capgrade.Sampling(top=..., windows=..., uniform=...)` for some
    of each image with weights, as `capgrade shards`: for more than some ten thousand images.
    split: the one to grade, where there are several. device: of dense blocks, "cpu" or "cuda".
    out: a folder, for what the commands write: `captions`, unless they were a folder, and
    `relevance` or `shards`. None: in memory. tokenizer, empty: as of `capgrade captions`.
    Raises InputError for captions that `capgrade captions` refuses, and as `capgrade relevance`.

    >>> dogs = ["a dog runs", "the brown dog runs fast"]
    >>> men = ["two men talk", "two men are talking"]
    >>> labels = grade({"1.jpg": dogs, "2.jpg": men}, measures="rouge_l")
    >>> labels.block(["1.jpg"], range(4)).relevance.round(2)
    array([[1., 1., 0., 0.]], dtype=float32)
    """
    names = (
        tuple(name.strip() for name in measures.split(","))
        if isinstance(measures, str)
        else tuple(measures)
    )
    measure_params = validated(MeasuresParams, dict(parameters or {}))
    if images is not None:
        measure_params = _with_pictures(str(images), names, measure_params)
    if out is not None:
        return _grade_into(
            Path(out), captions, names, sample, split, measure_params, tokenizer, empty, device
        )
    with tempfile.TemporaryDirectory(prefix="capgrade-", ignore_cleanup_errors=True) as folder:
        labels = _grade_into(
            Path(folder), captions, names, sample, split, measure_params, tokenizer, empty, device
        )
        # The files stay mapped when their names are deleted.
        return replace(labels, file="labels in memory", _how={})


def _with_pictures(images: str, names: Sequence[str], params: MeasuresParams) -> MeasuresParams:
    """The parameters with pictures for the measures that look at them. InputError where none
    does."""
    kinds = [
        kind for name, kind in MEASURES.items() if name in parts_of(names, params) and kind.pictures
    ]
    if not kinds:
        with_pictures = ", ".join(name for name, kind in MEASURES.items() if kind.pictures)
        problem = f"images are given, and {', '.join(names)} do not look at them"
        raise InputError(
            problem, remedy=f"leave images out, or name a measure that does: {with_pictures}"
        )
    blocks = {kind.block or kind.name: kind.pictures for kind in kinds}
    changed = {
        block: getattr(params, block).model_copy(update={key: images})
        for block, key in blocks.items()
    }
    return params.model_copy(update=changed)


def _grade_into(
    folder: Path,
    captions: Any,
    names: Sequence[str],
    sample: Sampling | None,
    split: str | None,
    measure_params: MeasuresParams,
    tokenizer: str,
    empty: str,
    device: str,
) -> Labels:
    options = {"split": split, "measures": names, "device": device}
    if isinstance(captions, str | Path):
        captions_folder = Path(captions)
        if captions_folder.is_file():
            raise InputError(
                "a path is of a folder of `capgrade captions`", file=captions_folder, remedy=_READ
            )
    else:
        captions_folder = folder / "captions"
        params = validated(
            CaptionsParams, {"source": "memory", "tokenizer": tokenizer, "empty": empty}
        )
        records = list(_records_of(captions))
        splits = list(dict.fromkeys(record.split for record in records))
        if split is None and len(splits) > 1:
            raise InputError(
                f"several splits: {', '.join(splits)}", file=_NAME, remedy="choose one with split="
            )
        with output_folder(captions_folder, "captions") as work:
            write_records(work, records, params)
    if sample is None:
        made = folder / "relevance"
        relevance(captions_folder, made, validated(RelevanceParams, options), measure_params)
    else:
        made = folder / "shards"
        shards(
            captions_folder,
            made,
            validated(ShardsParams, {**sample.model_dump(), **options}),
            measure_params,
        )
    return Labels.load(made, captions=captions_folder)


def _records_of(captions: Any) -> Iterator[Caption]:
    """The captions of a dict, a table or a dataset, in their order.

    InputError for anything else, and for a row that is not as it should be.
    """
    if isinstance(captions, Mapping):
        # A `datasets.DatasetDict`, told by a method, so that `datasets` need not be installed.
        if captions and all(hasattr(dataset, "select_columns") for dataset in captions.values()):
            return captions_of_datasets(
                {str(split): dataset for split, dataset in captions.items()},
                Columns(),
                _NAME,
                _RENAME,
            )
        rows: Iterable[dict[str, Any]] = (
            {"image_id": image, "caption": list(texts) if isinstance(texts, tuple) else texts}
            for image, texts in captions.items()
        )
    elif hasattr(captions, "select_columns"):  # datasets.Dataset
        return captions_of_datasets(
            {str(captions.split or "all"): captions}, Columns(), _NAME, _RENAME
        )
    elif hasattr(captions, "to_pylist"):  # pyarrow.Table
        rows = (row for batch in captions.to_batches() for row in batch.to_pylist())
    elif hasattr(captions, "itertuples"):  # pandas.DataFrame
        import pyarrow as pa

        return _records_of(pa.Table.from_pandas(captions, preserve_index=False))
    else:
        raise InputError(f"captions are {type(captions).__name__}", remedy=_REMEDY)
    numbered: Iterator[Record] = iter(enumerate(rows, start=1))
    first = next(numbered, None)
    if first is None:
        raise InputError("no captions", remedy=_REMEDY)
    columns = columns_of(Columns(), first[1], _NAME, first[0], _RENAME)
    return captions_of(chain([first], numbered), columns, "all", _NAME)
