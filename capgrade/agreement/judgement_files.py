"""Reads judgements: tables, the folder of a review, and ECCV Caption's positives."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np

from capgrade.agreement.judgements import OF_CAPTIONS, OF_IMAGES, Judgements, Ratings, Within
from capgrade.measures.catalogue import MEASURES
from capgrade.metrics.eccv import human_lists, lists_folder
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import file_digest, folder_digest
from capgrade.schemas.judges import (
    CHOSEN,
    ONE_TO_FOUR,
    PROMPT,
    RANDOM,
    SAMPLING,
    SCALE,
    TRUTH,
    YES_OR_NO,
    ZERO_TO_FIVE,
    parse_scale,
    scale_text,
)
from capgrade.schemas.lines import number, open_table, read_lines, text_of_cell
from capgrade.schemas.relevance import read_relevance
from capgrade.schemas.reviews import PLAN, RATINGS, Item, read_all_ratings, read_plan

PAIR, _PLAIN = "an image and a caption", ("image_id", "caption_id", "score")
# Columns of the SITS, STS and SIS files of Crisscrossed Captions.
CXC = {
    PAIR: ("image", "caption"),
    OF_CAPTIONS: ("caption1", "caption2"),
    OF_IMAGES: ("image1", "image2"),
}
CXC_SCORE = "agg_score"
CXC_ID = {
    "image": re.compile(r"COCO_\w+?_0*(\d+)\.jpg$"),
    "caption": re.compile(r"COCO_\w+:sentid:(\d+)$"),
}
FLICKR8K = re.compile(r"[^\t,]+\t[^\t]+#\d+\t")
_GIVE = (
    "give image_id, caption_id, score (and rater), or the Crisscrossed Captions SITS file, or one"
    " of Flickr8k's"
)
Limits = tuple[float, float] | None  # the lowest and the highest score


class _Row(NamedTuple):
    """A judged pair, or a single rating of one where raters are named."""

    line: int  # 0 for a pair of no file
    first: str  # an id
    second: str  # an id
    ratings: tuple[float, ...]
    rater: str | None = None
    scale: Limits = None  # where the row says it
    of: str = PAIR  # or OF_CAPTIONS or OF_IMAGES
    prompt: str = ""  # by which a model was asked
    sampling: str | None = None  # RANDOM or CHOSEN, where the row says it


def judged_digest(path: Path) -> str:
    """SHA-256 of what `read_people` reads: a file, a review's plan and ratings, or the lists of
    ECCV Caption's package; empty for a missing path, which `read_people` refuses."""
    if _is_eccv(path):
        return folder_digest(lists_folder(), lists_folder().glob(f"{_NAME}_*.json"))
    if not path.exists():
        return ""
    return (
        folder_digest(path, [*path.glob(PLAN), *path.glob(RATINGS)])
        if path.is_dir()
        else file_digest(path)
    )


def name_judgements(paths: Iterable[Path]) -> dict[str, Path]:
    """Judgements by their files' names without suffix. InputError where two are called the same."""
    named: dict[str, Path] = {}
    for path in paths:
        if named.setdefault(path.stem, path) is not path:
            problem = f"two judgements are called '{path.stem}'"
            raise InputError(problem, file=path, remedy="give each file once, by its own name")
    return named


def read_judgements(
    path: Path, captions: Captions, scale: Limits = None, *, partly: bool = False
) -> Judgements:
    """As `read_people`, with an InputError for pairs within one modality."""
    people = read_people(path, captions, scale, partly=partly)
    if isinstance(people, Within):
        remedy = f"give pairs of {PAIR}; pairs of one kind are for capgrade agree alone"
        raise InputError(f"judgements of pairs of {people.of}", file=path, row=1, remedy=remedy)
    return people


def read_people(
    path: Path, captions: Captions, scale: Limits = None, *, partly: bool = False
) -> Judgements:
    """The judgements of a file, a review's folder or `eccv`, as docs/measures.md lists them.

    The content tells the format. Pairs of captions (STS) and of images (SIS) are `Within`. A row
    without a rater is a judgement of its own; a rater's scores by several prompts count with their
    mean. `scale` is for tables without one. `partly`: judgements of unknown ids are left out and
    counted, for example those of another split. Raises InputError for another layout, a score that
    is not finite or off the scale, two scales, an unknown id, or no known pair, an item with
    itself, and a pair that one rater judged twice.
    """
    if _is_eccv(path):
        return eccv_judgements(captions)
    if path.suffix == ".arrow":
        return _dense(path, captions)
    if not path.exists() and re.fullmatch(r"[\w-]+/[\w-]+", str(path)):
        problem = "no such file; a dataset of the hub has texts, which people judged without ids"
        raise InputError(problem, file=path, remedy=f"capgrade agree texts {path}")
    rows = reviewed(path) if path.is_dir() else _listed_in(path)
    if not rows:
        raise InputError(
            "nothing has been rated", file=path, remedy="rate its pairs first: capgrade explore"
        )
    limits = _scale(rows, path, scale)
    rows = rows if rows[0].rater is None else _by_pair(rows, path)
    of = rows[0].of
    numbers = {"image": captions.image_numbers, "caption": captions.caption_numbers}
    kinds = {
        PAIR: ("image", "caption"),
        OF_CAPTIONS: ("caption", "caption"),
        OF_IMAGES: ("image", "image"),
    }[of]
    judged = len(rows)
    if partly:
        first_known, second_known = (numbers[kind].keys() for kind in kinds)
        rows = [row for row in rows if row.first in first_known and row.second in second_known] or (
            _refuse_others(rows, captions, path)
        )
    ids = [row.first for row in rows], [row.second for row in rows]
    first, second = (
        np.array(
            [
                _number(numbers[kind], id, kind, path, row.line)
                for id, row in zip(side, rows, strict=True)
            ],
            np.int64,
        )
        for kind, side in zip(kinds, ids, strict=True)
    )
    ratings = Ratings.of([row.ratings for row in rows])
    if of != PAIR:
        within = Within.between(of, first, second, ratings.means, captions)
        return replace(within, left_out=judged - len(rows))
    random, sampling = None, CHOSEN
    if rows[0].sampling is not None:
        random = np.array([row.sampling == RANDOM for row in rows])
        sampling = RANDOM if random.all() else CHOSEN
    repeated = ratings if ratings.counts.max() > 1 else None
    return Judgements(
        first,
        second,
        ratings.means,
        repeated,
        scale=limits,
        sampling=sampling,
        random=random,
        left_out=judged - len(rows),
    )


def read_raters(path: Path) -> tuple[dict[str, dict[tuple[str, str], float]], tuple[float, float]]:
    """rater -> (image_id, caption_id) -> score, and the scale, of a table with columns of both, as
    `capgrade judge` writes. InputError as `read_people`, and for a table without these."""
    rows = _listed_in(path)
    scale = _scale(rows, path, None)
    if rows[0].rater is None or scale is None:
        remedy = f"give {', '.join(_PLAIN)}, rater and {SCALE}, as capgrade judge writes them"
        raise InputError("no raters, or no scale", file=path, row=1, remedy=remedy)
    by_rater: dict[str, dict[tuple[str, str], float]] = {}
    for pair, ratings_of_pair in _of_raters(rows, path).items():
        for rater, by_prompt in ratings_of_pair.items():
            by_rater.setdefault(rater, {})[pair] = _mean(by_prompt)
    return by_rater, scale


def read_prompts(path: Path) -> tuple[list[list[float]], Limits]:
    """For each pair and rater with scores by several prompts, these scores; and the scale where the
    table has it. Empty for a table without prompts. InputError as `read_people`."""
    rows = _listed_in(path)
    scale = _scale(rows, path, None)
    if rows[0].rater is None or not rows[0].prompt:
        return [], scale
    scores = [
        [row.ratings[0] for row in by_prompt.values()]
        for raters in _of_raters(rows, path).values()
        for by_prompt in raters.values()
        if len(by_prompt) > 1
    ]
    return scores, scale


def _number(numbers: Mapping[str, int], id: str, kind: str, path: Path, line: int) -> int:
    if id not in numbers:
        remedy = "give the split that was judged, and captions with the ids of the judgements"
        raise InputError(
            f"{kind} '{id}' is not among the captions", file=path, row=line or None, remedy=remedy
        )
    return numbers[id]


def _refuse_others(rows: Sequence[_Row], captions: Captions, path: Path) -> NoReturn:
    problem = (
        f"{len(rows):,} judged pairs, none of an image and a caption of split '{captions.split}';"
        f" the first is of '{rows[0].first}' and '{rows[0].second}'"
    )
    remedy = "give the split that was judged, and captions with the ids of the judgements"
    raise InputError(problem, file=path, remedy=remedy)


def _scale(rows: Sequence[_Row], path: Path, given: Limits) -> Limits:
    """The scale that the file says, else the given one. InputError where rows have two scales, and
    for a rating off the scale."""
    scale = given or rows[0].scale
    for row in rows:
        if (row.scale or given) != scale:
            scales = " and ".join(
                scale_text(*limits) if limits else "none" for limits in (scale, row.scale)
            )
            remedy = (
                "keep judgements of one scale in a file, and set agree.scale as the file has it"
            )
            raise InputError(
                f"two scales: {scales}", file=path, row=row.line or None, remedy=remedy
            )
        outside = [value for value in row.ratings if scale and not scale[0] <= value <= scale[1]]
        if scale and outside:
            problem = f"score {outside[0]:g} is off the scale {scale_text(*scale)}"
            raise InputError(
                problem, file=path, row=row.line or None, remedy="correct the score or the scale"
            )
    return scale


def _of_raters(
    rows: Sequence[_Row], path: Path
) -> dict[tuple[str, str], dict[str, dict[str, _Row]]]:
    """pair -> rater -> prompt -> row, in order of first appearance. InputError for a row without a
    rater, and for a second rating of one rater, pair and prompt."""
    pairs: dict[tuple[str, str], dict[str, dict[str, _Row]]] = {}
    for row in rows:
        if not row.rater:
            raise InputError(
                "no rater",
                file=path,
                row=row.line,
                remedy="name one in every row, or drop the column",
            )
        by_prompt = pairs.setdefault((row.first, row.second), {}).setdefault(row.rater, {})
        if row.prompt in by_prompt:
            problem = f"{row.rater} rated image '{row.first}', caption '{row.second}' twice"
            remedy = "keep one rating per rater and pair, or name the prompts in a column"
            raise InputError(problem, file=path, row=row.line, remedy=remedy)
        by_prompt[row.prompt] = row
    return pairs


def _mean(by_prompt: dict[str, _Row]) -> float:
    return sum(row.ratings[0] for row in by_prompt.values()) / len(by_prompt)


def _by_pair(rows: Sequence[_Row], path: Path) -> list[_Row]:
    """Pairs in order of first appearance, each with the ratings of all its raters."""
    merged = []
    for by_rater in _of_raters(rows, path).values():
        first = next(iter(next(iter(by_rater.values())).values()))
        merged.append(
            first._replace(ratings=tuple(_mean(by_prompt) for by_prompt in by_rater.values()))
        )
    return merged


def _dense(path: Path, captions: Captions) -> Judgements:
    """Judgements of all pairs by a dense relevance file. Their scale is the measure's range; it is
    not known of an imported matrix and of mixtures."""
    dense = read_relevance(path)
    dense.require(captions)
    image, caption = np.divmod(
        np.arange(captions.n_images * captions.n_captions), captions.n_captions
    )
    measure, scale = dense.metadata.get("measure"), None
    if measure == TRUTH:
        scale = YES_OR_NO
    elif measure in MEASURES:
        measure_class = MEASURES[measure]
        instance = measure_class(
            measure_class.parameters.model_validate(dense.metadata.get("params", {}))
        )
        scale = instance.low, instance.high
    return Judgements(
        image, caption, dense.matrix().ravel().astype(np.float64), scale=scale, sampling=RANDOM
    )


def _listed_in(path: Path) -> list[_Row]:
    _, first = next(read_lines(path), (1, ""))
    rows = list(_flickr8k(path) if FLICKR8K.match(first) else _table(path))
    if not rows:
        remedy = "check that it was written to its end"
        raise InputError("no judgements, a header alone", file=path, remedy=remedy)
    return rows


def _table(path: Path) -> Iterator[_Row]:
    header, rows = open_table(path)
    kind = next((kind for kind, pair in CXC.items() if {*pair, CXC_SCORE} <= set(header)), None)
    if kind is None and not set(header).issuperset(_PLAIN):
        raise InputError(f"columns {', '.join(header)}", file=path, row=1, remedy=_GIVE)
    for line, row in rows:
        if kind is None:
            ids = text_of_cell(row["image_id"]), text_of_cell(row["caption_id"])
            score = number(row["score"], path, line)
            scale = parse_scale(row[SCALE]) if SCALE in row else None
            rater = text_of_cell(row["rater"]) if "rater" in row else None
            sampling = row.get(SAMPLING)
            if sampling not in (None, CHOSEN, RANDOM):
                remedy = f"write {CHOSEN} or {RANDOM}"
                raise InputError(f"{SAMPLING} '{sampling}'", file=path, row=line, remedy=remedy)
            prompt = text_of_cell(row.get(PROMPT, ""))
            yield _Row(line, *ids, (score,), rater, scale, prompt=prompt, sampling=sampling)
            continue
        matches = [CXC_ID[name.rstrip("12")].match(row[name]) for name in CXC[kind]]
        for name, match in zip(CXC[kind], matches, strict=True):
            if match is None:
                raise InputError(
                    f"{name} is no Crisscrossed Captions id: {row[name]}", file=path, row=line
                )
        first, second = (match[1] for match in matches if match)
        if kind != PAIR and first == second:
            raise InputError(
                f"{row[CXC[kind][0]]} with itself", file=path, row=line, remedy="remove the row"
            )
        yield _Row(
            line, first, second, (number(row[CXC_SCORE], path, line),), scale=ZERO_TO_FIVE, of=kind
        )


def _flickr8k(path: Path) -> Iterator[_Row]:
    """Rows of either file: three scores of 1 to 4 from experts, or a share of yes and the numbers
    of yes and of no."""
    for line, text in read_lines(path):
        image, *fields = text.split("\t")
        if len(fields) != 4:
            remedy = (
                "image, caption, and share of yes, yes, no, or the scores of three experts, between"
                " tabs"
            )
            raise InputError(
                f"{len(fields) + 1} fields between tabs", file=path, row=line, remedy=remedy
            )
        share, yes, no = votes = tuple(number(field, path, line) for field in fields[1:])
        if all(value in (1, 2, 3, 4) for value in votes):
            yield _Row(line, image, fields[0], votes, scale=ONE_TO_FOUR)
            continue
        are_counts = yes == int(yes) >= 0 and no == int(no) >= 0 and yes + no > 0
        if not are_counts or abs(share - yes / (yes + no)) > 1e-3:
            problem = (
                f"{share:g}, {yes:g}, {no:g} are neither a share of yes with its votes nor three"
                " scores of 1 to 4"
            )
            raise InputError(
                problem, file=path, row=line, remedy="take the file as Flickr8k has it"
            )
        yield _Row(line, image, fields[0], (1.0,) * int(yes) + (0.0,) * int(no), scale=YES_OR_NO)


def reviewed(folder: Path) -> list[_Row]:
    """The ratings of each rated pair of a review, one per reviewer (the mean, if a pair is in the
    review twice), in the order of the plan. InputError for a folder that is no review, for damaged
    ratings, and for ratings of another plan."""
    plan = read_plan(folder)
    pairs = [(item.image_id, item.caption_id) for item in plan.items]
    ratings: dict[tuple[str, str], list[float]] = {pair: [] for pair in pairs}
    for by_item in read_all_ratings(folder, plan).values():
        scores_of_pair: dict[tuple[str, str], list[int]] = {}
        for item, score in by_item.items():
            scores_of_pair.setdefault(pairs[item], []).append(score)
        for pair, scores in scores_of_pair.items():
            ratings[pair].append(sum(scores) / len(scores))
    sampling = {(item.image_id, item.caption_id): _sampling_of(item) for item in plan.items}
    return [
        _Row(0, *pair, tuple(scores), scale=ZERO_TO_FIVE, sampling=sampling[pair])
        for pair, scores in ratings.items()
        if scores
    ]


def _sampling_of(item: Item) -> str | None:
    """RANDOM for a pair of a pool's random stratum, CHOSEN for a pool's other pairs; None for pairs
    of other reviews, which are all chosen."""
    return None if item.stratum is None else RANDOM if item.stratum == RANDOM else CHOSEN


_NAME = "eccv"
OTHERS = 100  # random pairs of each annotated image or caption
_SAMPLED = f"ECCV Caption lists positives alone; a `no` is one of {OTHERS} random pairs per query"


def _is_eccv(path: Path) -> bool:
    return str(path) == _NAME and not path.exists()


def eccv_judgements(captions: Captions, seed: int = 0) -> Judgements:
    """Score 1 for each pair that ECCV Caption lists for an annotated image or caption (Chun et al.
    2022, the package's `eccv_*.json`); 0 for OTHERS random pairs of each, by ids and `seed`, less
    those that are listed. Own captions are among the positives. Two listed captions are not in
    the split, and are left out. InputError without the package, and for captions that are not
    COCO's 5K."""
    of_images, of_captions = human_lists(_NAME, captions.image_ids, captions.caption_ids)
    n = captions.n_captions
    # Draws are by sorted ids, so that they do not depend on the order of rows.
    by_image, by_caption = (np.argsort(ids) for ids in (captions.image_ids, captions.caption_ids))
    pairs = of_images.queries * n + of_images.indices, of_captions.indices * n + of_captions.queries
    yes = np.unique(np.concatenate(pairs))
    random = np.random.default_rng(seed)
    drawn = [i * n + _drawn(random, by_caption) for i in by_image[of_images.sizes[by_image] > 0]]
    drawn += [
        _drawn(random, by_image) * n + c for c in by_caption[of_captions.sizes[by_caption] > 0]
    ]
    no = np.setdiff1d(np.concatenate(drawn), yes)
    score = np.repeat([1.0, 0.0], [len(yes), len(no)])
    return Judgements(
        *np.divmod(np.concatenate([yes, no]), n), score, uncalibrated=_SAMPLED, scale=YES_OR_NO
    )


def _drawn(random: np.random.Generator, rows: np.ndarray) -> np.ndarray:
    return random.choice(rows, min(OTHERS, len(rows)), replace=False)
