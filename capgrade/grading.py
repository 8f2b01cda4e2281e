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
from capgrade.pipelines.sources.table import Record, captions_of, captions_of_datasets, columns_of
from capgrade.schemas.captions import Caption
from capgrade.schemas.errors import InputError
from capgrade.schemas.output import output_folder
from capgrade.schemas.params import CaptionsParams, Columns, RelevanceParams, Sampling, ShardsParams, validated

__all__ = ["Sampling", "grade"]

NAME = "captions"  # of what was given, in errors
REMEDY = "give a dict {image id: captions}, a table with the columns image_id and caption, or a folder of captions"


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

    captions: a dict {image id: captions}; a table with the columns `image_id` and `caption` (pyarrow, pandas, or a
    `datasets.Dataset` or `DatasetDict`), a row a caption, or a row an image with a list of captions, and where they are
    there `caption_id`, `split` and `image_file`; or a folder of `capgrade captions`.
    images: where the images' pictures are, as `--images` takes it: for measures that look at them, such as
    `image_text`, whose model is among the parameters. They are named by image id or `image_file`.
    measures: names of docs/measures.md; parameters: their parameters, as the block `measures` of params.yaml.
    sample: None keeps every pair; `capgrade.Sampling(top=..., windows=..., uniform=...)` keeps some pairs of each image
    with weights, as `capgrade shards`: for more than some ten thousand images.
    split: the one to grade, where there are several. out: a folder, which then holds `captions`, unless they were one,
    and `relevance` or `shards`, as the commands write them; None: in memory.
    tokenizer, empty: as of `capgrade captions`, unless captions are a folder. device: of dense blocks, "cpu" or "cuda".

    Raises InputError for captions that `capgrade captions` refuses, for images where no measure looks at them, and as
    `capgrade relevance` and `shards` do.

    >>> dogs, men = ["a dog runs", "the brown dog runs fast"], ["two men talk", "two men are talking"]
    >>> labels = grade({"1.jpg": dogs, "2.jpg": men}, measures="rouge_l")
    >>> labels.block(["1.jpg"], range(4)).relevance.round(2)
    array([[1., 1., 0., 0.]], dtype=float32)
    """
    names = (measures,) if isinstance(measures, str) else tuple(measures)
    how = validated(MeasuresParams, dict(parameters or {}))
    if images is not None:
        how = _looking_at(str(images), names, how)
    if out is not None:
        return _graded(Path(out), captions, names, sample, split, how, tokenizer, empty, device)
    with tempfile.TemporaryDirectory(prefix="capgrade-", ignore_cleanup_errors=True) as folder:
        found = _graded(Path(folder), captions, names, sample, split, how, tokenizer, empty, device)
        return replace(found, file="labels in memory", _how={})  # what is mapped stays, without its names


def _looking_at(images: str, names: Sequence[str], how: MeasuresParams) -> MeasuresParams:
    """The parameters with pictures for the measures that look at them. InputError where none does."""
    kinds = [kind for name, kind in MEASURES.items() if name in parts_of(names, how) and kind.pictures]
    if not kinds:
        looking = ", ".join(name for name, kind in MEASURES.items() if kind.pictures)
        problem = f"images are given, and {', '.join(names)} do not look at them"
        raise InputError(problem, remedy=f"leave images out, or name a measure that does: {looking}")
    blocks = {kind.block or kind.name: kind.pictures for kind in kinds}
    changed = {block: getattr(how, block).model_copy(update={key: images}) for block, key in blocks.items()}
    return how.model_copy(update=changed)


def _graded(
    folder: Path, given: Any, names: Sequence[str], sample: Sampling | None, split: str | None,
    how: MeasuresParams, tokenizer: str, empty: str, device: str,
) -> Labels:  # fmt: skip
    asked = {"split": split, "measures": names, "device": device}
    if isinstance(given, str | Path):
        where = Path(given)
    else:
        where = folder / "captions"
        params = validated(CaptionsParams, {"source": "memory", "tokenizer": tokenizer, "empty": empty})
        with output_folder(where, "captions") as work:
            write_records(work, list(records_of(given)), params)
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
            return captions_of_datasets({str(split): one for split, one in given.items()}, Columns(), NAME)
        rows: Iterable[dict[str, Any]] = (
            {"image_id": image, "caption": list(texts) if isinstance(texts, tuple) else texts}
            for image, texts in given.items()
        )
    elif hasattr(given, "select_columns"):  # datasets.Dataset
        return captions_of_datasets({str(given.split or "all"): given}, Columns(), NAME)
    elif hasattr(given, "to_pylist"):  # pyarrow.Table
        rows = (row for batch in given.to_batches() for row in batch.to_pylist())
    elif hasattr(given, "itertuples"):  # pandas.DataFrame
        import pyarrow as pa

        return records_of(pa.Table.from_pandas(given, preserve_index=False))
    else:
        raise InputError(f"captions are {type(given).__name__}", remedy=REMEDY)
    numbered: Iterator[Record] = iter(enumerate(rows, start=1))
    first = next(numbered, None)
    if first is None:
        raise InputError("no captions", remedy=REMEDY)
    columns = columns_of(Columns(), first[1], NAME, first[0], "call its column {field}")
    return captions_of(chain([first], numbered), columns, "all", NAME)
