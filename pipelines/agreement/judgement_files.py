"""Judgements as they are read: lists of judgements, the folder of a review, and ECCV Caption's positives."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from capgrade.pipelines.agreement.judgements import CAPTION, IMAGE, Judgements, Ratings, columns_within, read_within
from capgrade.schemas.captions import Captions
from capgrade.schemas.eccv_lists import lists_folder, read_lists
from capgrade.schemas.errors import InputError
from capgrade.schemas.inputs import file_digest, folder_digest
from capgrade.schemas.judges import EXPERTS, GRADES, RANDOM, SCALE, SHARES, TRUTH, parse_scale, scale_text
from capgrade.schemas.lines import number, read_lines, whole_rows
from capgrade.schemas.params import MeasuresParams
from capgrade.schemas.relevance import read_relevance
from capgrade.schemas.reviews import PLAN, RATINGS, read_all_ratings, read_plan
from capgrade.schemas.spreadsheets import told

_FLICKR = re.compile(r"[^\t,]+\t[^\t]+#\d+\t")
_GIVE = "give image_id, caption_id, score (and rater), or the Crisscrossed Captions SITS file, or one of Flickr8k's"


class _Row(NamedTuple):
    line: int
    image: str
    caption: str
    ratings: tuple[float, ...]
    scale: tuple[float, float] | None = None


def read_people(path: Path, captions: Captions, scale: tuple[float, float] | None = None) -> Judgements:
    """As `read_judgements`, and pairs of captions or of images too, which are `Within`."""
    return read_within(path, captions) or read_judgements(path, captions, scale)


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


def read_judgements(path: Path, captions: Captions, scale: tuple[float, float] | None = None) -> Judgements:
    """Read judgements of pairs of an image and a caption. Formats, told by what is in the file:

    - csv of `image_id`, `caption_id`, `score`; with `rater`, a row per rating: a pair has several then; `scale`, the
      same in each row, says which scores could be given: `0..5`;
    - Crisscrossed Captions SITS (csv of `caption`, `image`, `agg_score`, ...);
    - Flickr8k's CrowdFlowerAnnotations.txt (tab: image, caption, share of yes, yes, no): a rating 0 or 1 per vote;
    - Flickr8k's ExpertAnnotations.txt (tab: image, caption, and 1 to 4 from each of three experts);
    - a dense relevance file (`.arrow`), such as the truth of `scenes`, where all pairs are judged;
    - the folder of a review (`capgrade explore --sample`): a rating per reviewer and pair;
    - `eccv`, where no file is called so: the positives of the package `eccv_caption`.

    Without a column `rater` each row is a judgement of its own. `scale` is that of a table which does not say it.
    Raises InputError for another layout, a score that is not a finite number or off the scale, two scales, an id the
    captions do not have, and a pair that one rater judged twice.
    """
    if _is_eccv(path):
        return eccv_judgements(captions)
    if path.suffix == ".arrow":
        return _dense(path, captions)
    if path.is_dir():
        rows = [_Row(0, *pair, ratings, GRADES) for pair, ratings in reviewed(path).items()]
        return _judgements(rows, captions, path, scale)
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
    return _judgements(rows, captions, path, scale)


def _judgements(rows: Sequence[_Row], captions: Captions, path: Path, given: tuple[float, float] | None) -> Judgements:
    scale = _scale(rows, path, given)
    image_at = {image: k for k, image in enumerate(captions.image_ids)}
    caption_at = {caption: k for k, caption in enumerate(captions.caption_ids)}
    image = np.array([_find(image_at, row.image, "image", path, row.line) for row in rows])
    caption = np.array([_find(caption_at, row.caption, "caption", path, row.line) for row in rows])
    ratings = Ratings.of([row.ratings for row in rows])
    return Judgements(image, caption, ratings.means, ratings if ratings.counts.max() > 1 else None, scale=scale)


def _scale(rows: Sequence[_Row], path: Path, given: tuple[float, float] | None) -> tuple[float, float] | None:
    """The one that the file says, else the given one; every rating is within it."""
    scale = given or rows[0].scale
    for row in rows:
        if (row.scale or given) != scale:
            raise _two_scales(path, row.line, scale, row.scale)
        off = [value for value in row.ratings if scale and not scale[0] <= value <= scale[1]]
        if scale and off:
            problem = f"score {off[0]:g} is off the scale {scale_text(*scale)}"
            raise InputError(problem, file=path, row=row.line or None, remedy="correct the score or the scale")
    return scale


def _two_scales(path: Path, line: int, *scales: tuple[float, float] | None) -> InputError:
    named = " and ".join(scale_text(*scale) if scale else "none" for scale in scales)
    remedy = "keep judgements of one scale in a file, and give --scale as the file has it"
    return InputError(f"two scales: {named}", file=path, row=line or None, remedy=remedy)


def _dense(path: Path, captions: Captions) -> Judgements:
    dense = read_relevance(path)
    dense.require(captions)
    image, caption = np.divmod(np.arange(captions.n_images * captions.n_captions), captions.n_captions)
    score, scale = dense.matrix().ravel().astype(np.float64), _range(dense.metadata.get("measure"))
    return Judgements(image, caption, score, scale=scale, sampling=RANDOM)


def _range(measure: str | None) -> tuple[float, float] | None:
    """The lowest and the highest value; None for an imported matrix and for mixtures."""
    from capgrade.pipelines.measures import MEASURES

    if measure == TRUTH:
        return SHARES
    if measure not in MEASURES:
        return None
    made = MEASURES[measure](MeasuresParams())
    return made.low, made.high


def _table(lines: Iterator[str], path: Path) -> Iterator[_Row]:
    reader = csv.DictReader(lines)
    names = reader.fieldnames or []
    if {"caption", "image", "agg_score"} <= set(names):
        for line, row in whole_rows(reader, path):
            yield _cxc(row, path, line)
    elif {"image_id", "caption_id", "score", "rater"} <= set(names):
        yield from _by_rater(whole_rows(reader, path), path)
    elif {"image_id", "caption_id", "score"} <= set(names):
        for line, row in whole_rows(reader, path):
            pair = told(row["image_id"]), told(row["caption_id"])
            yield _Row(line, *pair, (number(row["score"], path, line),), _said(row))
    elif of := columns_within(set(names)):
        remedy = "give pairs of an image and a caption; pairs of one kind are for capgrade agree alone"
        raise InputError(f"judgements of pairs of {of}", file=path, row=1, remedy=remedy)
    elif names:
        raise InputError(f"columns {', '.join(names)}", file=path, row=1, remedy=_GIVE)


def _cxc(row: Mapping[str, str], path: Path, line: int) -> _Row:
    caption, image = CAPTION.match(row["caption"]), IMAGE.match(row["image"])
    if caption is None or image is None:
        raise InputError(f"not Crisscrossed Captions ids: {row['caption']}, {row['image']}", file=path, row=line)
    return _Row(line, image[1], caption[1], (number(row["agg_score"], path, line),), GRADES)


def _said(row: Mapping[str, str]) -> tuple[float, float] | None:
    """The scale in a row of a table that has such a column."""
    return parse_scale(row[SCALE] or "") if SCALE in row else None


def _by_rater(rows: Iterator[tuple[int, dict[str, str]]], path: Path) -> Iterator[_Row]:
    """Pairs in order of first appearance, each with the ratings of all its raters."""
    found: dict[tuple[str, str], tuple[int, dict[str, float], tuple[float, float] | None]] = {}
    for line, row in rows:
        at = (told(row["image_id"]), told(row["caption_id"]))
        _, given, scale = found.setdefault(at, (line, {}, _said(row)))
        if scale != _said(row):
            raise _two_scales(path, line, scale, _said(row))
        if not row["rater"]:
            raise InputError("no rater", file=path, row=line, remedy="name one in every row, or drop the column")
        if row["rater"] in given:
            problem = f"{row['rater']} rated image '{at[0]}', caption '{at[1]}' twice"
            raise InputError(problem, file=path, row=line, remedy="keep one rating per rater and pair")
        given[row["rater"]] = number(row["score"], path, line)
    for (image, caption), (line, given, scale) in found.items():
        yield _Row(line, image, caption, tuple(given.values()), scale)


def _flickr(lines: Iterator[str], path: Path) -> Iterator[_Row]:
    for line, text in enumerate(lines, 1):
        fields = text.rstrip("\r\n").split("\t")
        if len(fields) != 5:
            remedy = "image, caption, and share of yes, yes, no, or the scores of three experts, between tabs"
            raise InputError(f"{len(fields)} fields between tabs", file=path, row=line, remedy=remedy)
        votes = _votes([number(field, path, line) for field in fields[2:]], path, line)
        yield _Row(line, fields[0], fields[1], *votes)


def _votes(given: Sequence[float], path: Path, line: int) -> tuple[tuple[float, ...], tuple[float, float]]:
    """Three scores of 1 to 4 from experts, else a share of yes with how many said yes and no; and the scale."""
    if all(value in (1, 2, 3, 4) for value in given):
        return tuple(given), EXPERTS
    share, yes, no = given
    whole = yes == int(yes) >= 0 and no == int(no) >= 0 and yes + no > 0
    if not whole or abs(share - yes / (yes + no)) > 1e-3:
        problem = f"{share:g}, {yes:g}, {no:g} are neither a share of yes with its votes nor three scores of 1 to 4"
        raise InputError(problem, file=path, row=line, remedy="take the file as Flickr8k has it")
    return (1.0,) * int(yes) + (0.0,) * int(no), SHARES


def _find(at: dict[str, int], key: str, what: str, path: Path, line: int) -> int:
    if key not in at:
        problem = f"{what} '{key}' is not among the captions"
        raise InputError(
            problem,
            file=path,
            row=line or None,
            remedy="give the split that was judged, and captions with the ids of the judgements",
        )
    return at[key]


Pair = tuple[str, str]  # image id, caption id


def reviewed(folder: Path) -> dict[Pair, tuple[float, ...]]:
    """The ratings of each rated pair, one per reviewer (the mean, where a pair stood in the review twice), in the order
    of the plan. InputError for a folder that is no review, damaged ratings, ratings of another plan, and none at all.
    """
    plan = read_plan(folder)
    pairs = [(item.image_id, item.caption_id) for item in plan.items]
    found: dict[Pair, list[float]] = {pair: [] for pair in pairs}
    for ratings in read_all_ratings(folder, plan).values():
        given: dict[Pair, list[int]] = {}
        for item, score in ratings.items():
            given.setdefault(pairs[item], []).append(score)
        for pair, scores in given.items():
            found[pair].append(sum(scores) / len(scores))
    rated = {pair: tuple(scores) for pair, scores in found.items() if scores}
    if not rated:
        raise InputError("nothing has been rated", file=folder, remedy="rate its pairs first: capgrade explore")
    return rated


NAME = "eccv"
OTHERS = 100  # pairs drawn beside each annotated image or caption
SAMPLED = f"ECCV Caption lists positives alone; a `no` is one of {OTHERS} random pairs per query"


def eccv_judgements(captions: Captions, seed: int = 0) -> Judgements:
    """1 for each pair that ECCV Caption lists for an annotated image or caption (Chun et al. 2022, the package's
    `eccv_*.json`), 0 for the rest of OTHERS pairs of each, drawn uniformly by `seed`: what neither of its lists has.

    Given pairs are among the positives; two listed captions are not in the split, and are left out. InputError without
    the package, and for captions that are not COCO's 5K.
    """
    images, texts, n = captions.image_ids, captions.caption_ids, captions.n_captions
    image, of_image, caption_of = _listed_pairs("image_to_caption", images, texts)
    caption, of_caption, image_of = _listed_pairs("caption_to_image", texts, images)
    random = np.random.default_rng(seed)
    other = [image * n + random.choice(n, min(OTHERS, n), replace=False) for image in image]
    other += [random.choice(len(images), min(OTHERS, len(images)), replace=False) * n + c for c in caption]
    yes = np.unique(np.concatenate([of_image * n + caption_of, image_of * n + of_caption]))
    no = np.setdiff1d(np.concatenate(other), yes)  # each pair once
    score = np.repeat([1.0, 0.0], [len(yes), len(no)])
    return Judgements(*np.divmod(np.concatenate([yes, no]), n), score, uncalibrated=SAMPLED, scale=SHARES)


def lists_digest() -> str:
    """SHA-256 of the two lists."""
    return folder_digest(lists_folder(), lists_folder().glob(f"{NAME}_*.json"))


def _listed_pairs(way: str, queries: Sequence[str], items: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The annotated queries, and query and item of each listed pair: their numbers, int64."""
    query_at, item_at = ({key: k for k, key in enumerate(keys)} for keys in (queries, items))
    lists = read_lists(f"{NAME}_{way}.json")
    missing = lists.keys() - query_at.keys()
    if missing:
        remedy = "use the MS-COCO 5K test split with COCO's ids"
        raise InputError(f"id {min(missing)} of ECCV Caption is not in the captions table", remedy=remedy)
    pairs = [(query_at[q], item_at[str(x)]) for q, found in lists.items() for x in found if str(x) in item_at]
    query, item = np.array(pairs, np.int64).T
    return np.array([query_at[q] for q in lists]), query, item
