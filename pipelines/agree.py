"""Stage `agree`: how well each measure agrees with human judgements of image-caption pairs."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import stats

from capgrade.pipelines.measures import choose
from capgrade.pipelines.measures.mixture_weights import mix
from capgrade.pipelines.measures.pairs import pair_values
from capgrade.pipelines.measures.reads import read_by
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import with_metadata, write_arrow
from capgrade.schemas.inputs import file_digest
from capgrade.schemas.judges import PEOPLE, TRUTH, VALUES
from capgrade.schemas.output import arrow_of, refuse_file
from capgrade.schemas.params import MeasuresParams
from capgrade.schemas.relevance import read_relevance

JUDGED = "judged"
_CXC_CAPTION = re.compile(r"COCO_\w+:sentid:(\d+)$")
_CXC_IMAGE = re.compile(r"COCO_\w+?_0*(\d+)\.jpg$")


@dataclass(frozen=True)
class Judgements:
    """Human scores of pairs: image int64 and caption int64 numbers of the captions, score float64, all [n]."""

    image: np.ndarray
    caption: np.ndarray
    score: np.ndarray


def read_judgements(path: Path, captions: Captions) -> Judgements:
    """Read judgements: the Crisscrossed Captions SITS csv (caption, image, agg_score, ...), a csv of image_id,
    caption_id, score, or a dense relevance file (`.arrow`), such as the truth of `scenes`, where all pairs are judged.

    Raises InputError for another header, a score that is not a finite number, or an id the captions do not have.
    """
    if path.suffix == ".arrow":
        return _dense_judgements(path, captions)
    image_at = {image: k for k, image in enumerate(captions.image_ids)}
    caption_at = {caption: k for k, caption in enumerate(captions.caption_ids)}
    try:
        with path.open(encoding="utf-8", newline="") as f:
            reader = csv.DictReader(f)
            names = reader.fieldnames or []
            rows = [(reader.line_num, *_pair(row, names, path, reader.line_num)) for row in reader]
    except FileNotFoundError:
        raise InputError("no such file", file=path) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"not a UTF-8 CSV file ({error})", file=path) from error
    if not rows:
        raise InputError("no judgements", file=path)
    image, caption, score = [], [], []
    for line, image_id, caption_id, text in rows:
        image.append(_find(image_at, image_id, "image", path, line))
        caption.append(_find(caption_at, caption_id, "caption", path, line))
        score.append(_number(text, path, line))
    return Judgements(np.array(image), np.array(caption), np.array(score))


def _dense_judgements(path: Path, captions: Captions) -> Judgements:
    dense = read_relevance(path)
    dense.require(captions)
    image, caption = np.divmod(np.arange(captions.n_images * captions.n_captions), captions.n_captions)
    return Judgements(image, caption, dense.matrix().ravel().astype(np.float64))


def _pair(row: dict[str, str], names: Sequence[str], path: Path, line: int) -> tuple[str, str, str]:
    if {"caption", "image", "agg_score"} <= set(names):
        caption, image = _CXC_CAPTION.match(row["caption"] or ""), _CXC_IMAGE.match(row["image"] or "")
        if caption is None or image is None:
            raise InputError(f"not Crisscrossed Captions ids: {row['caption']}, {row['image']}", file=path, row=line)
        return image[1], caption[1], row["agg_score"]
    if {"image_id", "caption_id", "score"} <= set(names):
        return row["image_id"], row["caption_id"], row["score"]
    raise InputError(
        f"columns {', '.join(names)}",
        file=path, row=1, remedy="give image_id, caption_id, score, or the Crisscrossed Captions SITS file",
    )  # fmt: skip


def _find(at: dict[str, int], key: str, what: str, path: Path, line: int) -> int:
    if key not in at:
        raise InputError(f"{what} '{key}' is not among the captions", file=path, row=line, remedy="use their ids")
    return at[key]


def _number(text: str | None, path: Path, line: int) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"score {text!r} is not a number", file=path, row=line)
    return value


def agree(
    captions_dir: Path,
    judgements: Path,
    names: Sequence[str],
    measures: MeasuresParams,
    split: str | None = None,
    folds: int | None = None,
    pairs: Path | None = None,
) -> dict[str, dict[str, dict[str, float]]]:
    """Pearson's r, Spearman's rho and Kendall's tau-b of each measure, and of binary relevance, with human scores.

    Returns measure -> coefficient -> {"all": over all judged pairs, "non_original": over those whose caption was
    not written for the image}. Binary relevance (1 for original pairs) is constant on the latter, so it has "all"
    alone. With `folds`, "mixture" is the weighted sum that fits people best, each image scored by weights from the
    other folds' images, and "weights" those from all of them. `pairs` is an Arrow file to write, one row per pair.
    Raises InputError for ids or values that do not fit, and for a file at `pairs` that is something else.
    """
    if pairs:
        refuse_file(pairs, "table of judged pairs", arrow_of(JUDGED))
    captions = read_captions(captions_dir, split)
    people = read_judgements(judgements, captions)
    original = captions.owner[people.caption] == people.image
    chosen = choose(names, measures).items()
    labels = {name: pair_values(measure.fit(captions), people.image, people.caption) for name, measure in chosen}
    result = {name: _coefficients(values, people.score, original) for name, values in labels.items()}
    if folds:
        mixed = mix(labels, people.score, people.image, folds)
        result["mixture"] = {**_coefficients(mixed.predicted, people.score, original), "weights": mixed.weights}
    if pairs:
        inputs = {"judgements": file_digest(judgements), **read_by(names, measures)}
        _write_pairs(pairs, captions, people, original, labels, inputs)
    if 0 < original.sum() < len(original):
        result["binary"] = _coefficients(original.astype(float), people.score, np.ones(len(original), bool))
    return result


def _write_pairs(
    path: Path,
    captions: Captions,
    people: Judgements,
    original: np.ndarray,
    labels: dict[str, np.ndarray],
    inputs: dict[str, str],
) -> None:
    """image and caption int32, original bool, score float32, and each measure float32, in the judgements' order."""
    columns = {
        "image": pa.array(people.image, pa.int32()),
        "caption": pa.array(people.caption, pa.int32()),
        "original": pa.array(original),
        "score": pa.array(people.score, pa.float32()),
        **{name: pa.array(values, pa.float32()) for name, values in labels.items()},
    }
    table = pa.table(columns)
    facts: dict[str, Any] = {
        "kind": JUDGED,
        "captions": captions.digest,
        "split": captions.split,
        "measures": list(labels),
    }
    facts["inputs"] = inputs
    schema = with_metadata(table.schema, facts)
    write_arrow(path, schema, table.replace_schema_metadata(schema.metadata).to_batches())


def _coefficients(values: np.ndarray, score: np.ndarray, original: np.ndarray) -> dict[str, dict[str, float]]:
    scopes = {"all": np.ones(len(score), bool), "non_original": ~original}
    measures = {"pearson": stats.pearsonr, "spearman": stats.spearmanr, "kendall": stats.kendalltau}
    return {
        name: {
            scope: float(coefficient(values[mask], score[mask]).statistic)
            for scope, mask in scopes.items()
            if _varies(values[mask]) and _varies(score[mask])  # else a correlation is not defined
        }
        for name, coefficient in measures.items()
    }


def _varies(values: np.ndarray) -> bool:
    return len(values) > 1 and bool(np.ptp(values) > 0)


def who_judged(captions_dir: Path, judgements: Path, split: str | None = None) -> dict[str, Any]:
    """`by` (people, truth or values), the file's name, how many pairs, of which split of which captions table.

    A csv holds people's scores; a dense file is what its metadata say it is.
    """
    captions = read_captions(captions_dir, split)
    by = PEOPLE
    if judgements.suffix == ".arrow":
        by = TRUTH if read_relevance(judgements).metadata.get("measure") == "truth" else VALUES
    pairs = len(read_judgements(judgements, captions).score)
    facts = {"split": captions.split, "captions": captions.digest}
    return {"by": by, "file": judgements.name, "pairs": pairs, **facts}
