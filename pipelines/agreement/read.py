"""Judgements of images and captions: Crisscrossed Captions, Flickr8k's two sets, ECCV Caption's positives, reviews, a
table of one's own, a dense relevance file."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from capgrade.pipelines.agreement.positives import NAME, eccv_judgements, lists_digest
from capgrade.pipelines.agreement.ratings import Judgements, Ratings
from capgrade.pipelines.agreement.reviews import reviewed
from capgrade.pipelines.agreement.within import CAPTION, IMAGE, columns_within, read_within
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.inputs import file_digest, folder_digest
from capgrade.schemas.lines import number, read_lines
from capgrade.schemas.relevance import read_relevance
from capgrade.schemas.reviews import PLAN, RATINGS

_FLICKR = re.compile(r"[^\t,]+\t[^\t]+#\d+\t")
_GIVE = "give image_id, caption_id, score (and rater), or the Crisscrossed Captions SITS file, or one of Flickr8k's"


class _Row(NamedTuple):
    line: int
    image: str
    caption: str
    ratings: tuple[float, ...]


def read_people(path: Path, captions: Captions) -> Judgements:
    """As `read_judgements`, and pairs of captions or of images too, which are `Within`."""
    return read_within(path, captions) or read_judgements(path, captions)


def judged_digest(path: Path) -> str:
    """SHA-256 of what `read_people` reads: a file, a review's plan and ratings, the lists of a package; empty for what
    is not there, which it refuses."""
    if _is_eccv(path):
        return lists_digest()
    if not path.exists():
        return ""
    return folder_digest(path, [*path.glob(PLAN), *path.glob(RATINGS)]) if path.is_dir() else file_digest(path)


def _is_eccv(path: Path) -> bool:
    return str(path) == NAME and not path.exists()


def read_judgements(path: Path, captions: Captions) -> Judgements:
    """Read judgements of pairs of an image and a caption. Formats, told by what is in the file:

    - csv of `image_id`, `caption_id`, `score`; with `rater`, a row per rating: a pair has several then;
    - Crisscrossed Captions SITS (csv of `caption`, `image`, `agg_score`, ...);
    - Flickr8k's CrowdFlowerAnnotations.txt (tab: image, caption, share of yes, yes, no): a rating 0 or 1 per vote;
    - Flickr8k's ExpertAnnotations.txt (tab: image, caption, and 1 to 4 from each of three experts);
    - a dense relevance file (`.arrow`), such as the truth of `scenes`, where all pairs are judged;
    - the folder of a review (`capgrade review sample`): a rating per reviewer and pair;
    - `eccv`, where no file is called so: the positives of the package `eccv_caption`.

    Without a column `rater` each row is a judgement of its own. Raises InputError for another layout, a score that is
    not a finite number, an id the captions do not have, and a pair that one rater judged twice.
    """
    if _is_eccv(path):
        return eccv_judgements(captions)
    if path.suffix == ".arrow":
        return _dense(path, captions)
    if path.is_dir():
        rows = [_Row(0, *pair, ratings) for pair, ratings in reviewed(path).items()]
        return replace(_judgements(rows, captions, path), graded=True)
    try:
        following = (line for _, line in read_lines(path, keep_ends=True))
        first = next(following, "")
        lines = chain([first], following)
        rows = list(_flickr(lines, path) if _FLICKR.match(first) else _table(lines, path))
    except csv.Error as error:
        raise InputError(f"not a CSV file ({error})", file=path, remedy=_GIVE) from error
    if not rows:
        remedy = "check that it was written to its end"
        raise InputError("no judgements, a header alone" if first else "empty", file=path, remedy=remedy)
    return _judgements(rows, captions, path)


def _judgements(rows: Sequence[_Row], captions: Captions, path: Path) -> Judgements:
    image_at = {image: k for k, image in enumerate(captions.image_ids)}
    caption_at = {caption: k for k, caption in enumerate(captions.caption_ids)}
    image = np.array([_find(image_at, row.image, "image", path, row.line) for row in rows])
    caption = np.array([_find(caption_at, row.caption, "caption", path, row.line) for row in rows])
    ratings = Ratings.of([row.ratings for row in rows])
    return Judgements(image, caption, ratings.means, ratings if ratings.counts.max() > 1 else None)


def _dense(path: Path, captions: Captions) -> Judgements:
    dense = read_relevance(path)
    dense.require(captions)
    image, caption = np.divmod(np.arange(captions.n_images * captions.n_captions), captions.n_captions)
    return Judgements(image, caption, dense.matrix().ravel().astype(np.float64))


def _table(lines: Iterator[str], path: Path) -> Iterator[_Row]:
    reader = csv.DictReader(lines)
    names = reader.fieldnames or []
    if {"caption", "image", "agg_score"} <= set(names):
        for row in reader:
            yield _cxc(row, path, reader.line_num)
    elif {"image_id", "caption_id", "score", "rater"} <= set(names):
        yield from _by_rater(reader, path)
    elif {"image_id", "caption_id", "score"} <= set(names):
        for row in reader:
            score = number(row["score"], path, reader.line_num)
            yield _Row(reader.line_num, row["image_id"], row["caption_id"], (score,))
    elif of := columns_within(set(names)):
        remedy = "give pairs of an image and a caption; pairs of one kind are for capgrade agree alone"
        raise InputError(f"judgements of pairs of {of}", file=path, row=1, remedy=remedy)
    elif names:
        raise InputError(f"columns {', '.join(names)}", file=path, row=1, remedy=_GIVE)


def _cxc(row: Mapping[str, str], path: Path, line: int) -> _Row:
    caption, image = CAPTION.match(row["caption"] or ""), IMAGE.match(row["image"] or "")
    if caption is None or image is None:
        raise InputError(f"not Crisscrossed Captions ids: {row['caption']}, {row['image']}", file=path, row=line)
    return _Row(line, image[1], caption[1], (number(row["agg_score"], path, line),))


def _by_rater(reader: csv.DictReader[str], path: Path) -> Iterator[_Row]:
    """Pairs in order of first appearance, each with the ratings of all its raters."""
    found: dict[tuple[str, str], tuple[int, dict[str, float]]] = {}
    for row in reader:
        at = (row["image_id"], row["caption_id"])
        given = found.setdefault(at, (reader.line_num, {}))[1]
        if row["rater"] in given:
            problem = f"{row['rater']} rated image '{at[0]}', caption '{at[1]}' twice"
            raise InputError(problem, file=path, row=reader.line_num, remedy="keep one rating per rater and pair")
        given[row["rater"]] = number(row["score"], path, reader.line_num)
    for (image, caption), (line, given) in found.items():
        yield _Row(line, image, caption, tuple(given.values()))


def _flickr(lines: Iterator[str], path: Path) -> Iterator[_Row]:
    for line, text in enumerate(lines, 1):
        fields = text.rstrip("\r\n").split("\t")
        if len(fields) != 5:
            remedy = "image, caption, and share of yes, yes, no, or the scores of three experts, between tabs"
            raise InputError(f"{len(fields)} fields between tabs", file=path, row=line, remedy=remedy)
        yield _Row(line, fields[0], fields[1], _votes([number(field, path, line) for field in fields[2:]], path, line))


def _votes(given: Sequence[float], path: Path, line: int) -> tuple[float, ...]:
    """Three scores of 1 to 4 from experts, else a share of yes with how many said yes and no."""
    if all(value in (1, 2, 3, 4) for value in given):
        return tuple(given)
    share, yes, no = given
    whole = yes == int(yes) >= 0 and no == int(no) >= 0 and yes + no > 0
    if not whole or abs(share - yes / (yes + no)) > 1e-3:
        problem = f"{share:g}, {yes:g}, {no:g} are neither a share of yes with its votes nor three scores of 1 to 4"
        raise InputError(problem, file=path, row=line, remedy="take the file as Flickr8k has it")
    return (1.0,) * int(yes) + (0.0,) * int(no)


def _find(at: dict[str, int], key: str, what: str, path: Path, line: int) -> int:
    if key not in at:
        problem = f"{what} '{key}' is not among the captions"
        raise InputError(problem, file=path, row=line or None, remedy="use their ids")
    return at[key]
