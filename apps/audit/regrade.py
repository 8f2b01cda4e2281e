"""Command `regrade`: what models' benchmark numbers are worth, by a judge's answers on a pool of
pairs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.agreement.calibration import ACCEPTED, scale_of
from capgrade.agreement.curve import FEWEST, Curve, Scale, fit, require_enough
from capgrade.agreement.judgement_files import judged_digest, read_judgements
from capgrade.agreement.judgements import Judgements
from capgrade.apps.audit.lists import select_distinct
from capgrade.apps.judging import judge, judge_of
from capgrade.apps.judging.question import load_prompts
from capgrade.apps.page import render_page
from capgrade.apps.page.parts import (
    Cell,
    Example,
    ExampleItem,
    Examples,
    Headline,
    Note,
    PageSection,
    PageTable,
    Part,
    format_percent,
    share_cell,
)
from capgrade.apps.page.thumbnails import PageThumbnails
from capgrade.labels import Labels
from capgrade.labels.qrels import write_qrels_tsv
from capgrade.metrics import recall
from capgrade.metrics.base import own_positives
from capgrade.metrics.formats import DIRECTION_WORDS, DIRECTIONS
from capgrade.metrics.judged_sample import (
    Estimate,
    places_of,
    query_values,
)
from capgrade.metrics.pools import draw_strata, first_cells
from capgrade.pipelines.stages.agree import AgreeParams
from capgrade.schemas.arrow import write_arrow
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import (
    MANIFEST,
    file_digest,
    package_version,
    write_json,
    write_manifest,
    write_text,
)
from capgrade.schemas.judges import CHOSEN, parse_scale
from capgrade.schemas.lines import csv_text
from capgrade.schemas.output import output_folder
from capgrade.schemas.pairs import PairLists, Pairs
from capgrade.schemas.params import JudgeParams
from capgrade.schemas.shards import shard_batch, shard_name, shard_schema
from capgrade.trainer.evaluation.similarity import read_similarity

KIND = "regrade"
_FORMAT = 2  # Raise it when the same inputs give another pool or other files.
# Own pairs have the gain 1, so the best list has it too, and NCS@1 is the gain of the first item:
# recall@1 where gains are 0 and 1, what is expected of it where they are probabilities.
DEPTH = 10  # how high a model ranks a pair that is worth a question
RIGHT, GRADED = "ncs@1", f"ndcg@{DEPTH}"
_PAIRS, _JUDGED, _LIKELY = "pairs.jsonl", "judged.csv", "likely.csv"
FIGURES, PAGE, TARGETS = "regraded.json", "regraded.html", "targets"
MEASURE = "judge"  # of the targets: the judge's score; MEASURE + ACCEPTED: P by the calibration
_PEOPLE = 4  # a quarter of the budget is for pairs that people judged
_EXAMPLES = 24  # changed answers of each model on the page
_SIDE = 160  # pixels of a picture there
_LEVEL, _Z = 0.95, 1.96  # of an interval, in standard errors
_ENDS = ("value", "low", "high")


@dataclass(frozen=True)
class GivenAnswers:
    """Pairs of the pool that were judged, with the judge's scores from 0 to 1; how many pairs have
    no answer; and how many of these were drawn alike and have none at all.

    Right counts as much of a pair as `right` says, float64 [n]: 0 or 1, or P(people accept). The
    same by each bootstrap draw of the calibration, float64 [draws, n], no draws without. `accepted`
    bool [n] is what lists and page show.
    """

    pairs: Pairs
    missing: int
    silent: int
    right: np.ndarray
    draws: np.ndarray
    accepted: np.ndarray


@dataclass(frozen=True)
class _PeoplePairs:
    """Pairs of other captions that people judged, drawn for the judge to be asked about too."""

    judgements: Judgements
    scale: Scale


def regrade(
    captions_dir: Path,
    similarities: Mapping[str, Path],
    out: Path,
    *,
    model: str,
    endpoint: str | None = None,
    images: str | None = None,
    split: str | None = None,
    judgements: Path | None = None,
    budget: int = 3000,
    accept: float = 0.5,
    seed: int = 0,
    max_cost: float | None = None,
    params: JudgeParams | None = None,
    agree: AgreeParams | None = None,
    tell: Callable[[str], None] = lambda said: None,
) -> dict[str, Any]:
    """Draw a pool of pairs from what the models rank high, ask a judge about them, and estimate
    each model's recall at 1 with what is also right, and its NDCG by the judge's grades.

    `similarities` are images x captions, by the models' names; docs/regrade.md says what `accept`
    and people's `judgements` do, which are read as `agree` says. Returns the figures. A run that
    was stopped goes on. Raises InputError as `judge` and `fit`, for similarities of other captions,
    and for a budget of fewer pairs than strata.
    """
    params, agree = params or JudgeParams(), agree or AgreeParams()
    captions = read_captions(captions_dir, split)
    people = None
    if judgements is not None:
        people = _draw_people(judgements, captions, agree, budget, seed)
    source = judge_of(endpoint, model, params)
    prompts = load_prompts(params.prompt, source.reads, images is not None)
    scores = {name: read_similarity(path, captions) for name, path in similarities.items()}
    inputs = {
        "captions": captions.digest,
        **{f"similarity {name}": file_digest(path) for name, path in similarities.items()},
        **({} if judgements is None else {"judgements": judged_digest(judgements)}),
    }
    asked = {
        "split": captions.split,
        "budget": budget,
        "accept": accept,
        "seed": seed,
        "model": source.name,
        "prompts": {name: prompt.digest for name, prompt in prompts.items()},
        "images": images,
        "people": None if people is None else asdict(people.scale),
    }
    made_of = {"format": _FORMAT, "asked": asked, "inputs": inputs}
    with output_folder(out, KIND, made_of) as folder:
        size = budget - (0 if people is None else len(people.judgements.image))
        ranked = _rank_pairs(scores, captions)
        pool = draw_strata(list(ranked.values()), size, captions.n_captions, seed=seed)
        lines = _write_pairs(folder / _PAIRS, pool, people, captions)
        done = judge(
            captions_dir,
            str(folder / _PAIRS),
            folder / _JUDGED,
            source=source,
            model=model,
            images=images,
            split=split,
            max_cost=max_cost,
            params=params,
            tell=tell,
            force=True,  # what a stopped run has written here
        )
        if done["left"]:
            problem = (
                f"{done['left']:,} of {budget:,} pairs are not asked about yet: {done['stopped']}"
            )
            raise InputError(problem, file=out, remedy="run the same command again: it goes on")
        judged = read_judgements(folder / _JUDGED, captions)
        curve = None if people is None else _fit_judge(judged, people, captions)
        answers = _collect_answers(judged, pool, captions, curve, accept)
        figures = _compute_figures(scores, answers, captions, ranked)
        figures |= {
            "pairs": len(pool),
            "answered": len(answers.pairs),
            "unanswered": answers.missing,
            "silent": answers.silent,
            "judge": model,
            "calibration": None,
        }
        if people is not None and curve is not None and judgements is not None:
            facts = {"file": judgements.name, "pairs": curve.pairs, "ece": curve.ece}
            sampling = {"sampling": people.judgements.sampling}
            figures["calibration"] = {**facts, **asdict(people.scale), **sampling}
        rows = {_PAIRS: lines, _JUDGED: len(judged.score)}
        rows |= {_LIKELY: _write_likely(folder / _LIKELY, answers, captions)}
        rows |= _write_targets(folder / TARGETS, answers, captions, inputs, curve is not None)
        targets = Labels.load(folder / TARGETS, captions=captions_dir)
        for direction, queries in zip(DIRECTIONS, ("images", "captions"), strict=True):
            name = f"qrels-{direction}.tsv"
            rows[name] = write_qrels_tsv(targets, folder / name, MEASURE, queries)
        write_json(folder / FIGURES, figures)
        page = _render_figures(
            figures, scores, answers, captions, PageThumbnails(captions_dir, images, out)
        )
        write_text(folder / PAGE, page)
        rows |= dict.fromkeys((FIGURES, PAGE), 0)
        rows |= {path.name: 0 for path in folder.glob("*-unanswered.csv")}
        write_manifest(folder, KIND, params=asked, inputs=inputs, rows=rows)
    return figures


def _rank_pairs(
    scores: Mapping[str, np.ndarray], captions: Captions
) -> dict[tuple[str, int], np.ndarray]:
    """By direction and depth, the pairs that any model ranks so high for a query, own pairs left
    out: image * n_captions + caption, int64, rising."""
    n_images, n_captions = captions.n_images, captions.n_captions
    own = captions.owner * n_captions + np.arange(n_captions)
    cells_of = {}
    for depth in (1, DEPTH):
        cells = first_cells(list(scores.values()), depth)
        caption, image = np.divmod(first_cells([S.T for S in scores.values()], depth), n_images)
        cells_of["i2t", depth] = np.setdiff1d(cells, own)
        cells_of["t2i", depth] = np.setdiff1d(image * n_captions + caption, own)
    return cells_of


def _draw_people(
    path: Path, captions: Captions, agree: AgreeParams, budget: int, seed: int
) -> _PeoplePairs:
    """Draw a quarter of the budget from the pairs that people judged, each as likely, or take all
    of fewer. Own pairs are known to be right and left out. InputError, before anything is asked,
    for judgements that cannot calibrate."""
    people = read_judgements(path, captions, parse_scale(agree.scale) if agree.scale else None)
    scale = scale_of(people, agree.accept, path)
    other = np.flatnonzero(captions.owner[people.caption] != people.image)
    count = min(len(other), max(budget // _PEOPLE, FEWEST))
    drawn_rows = np.sort(np.random.default_rng(seed).choice(other, count, replace=False))
    image, caption = people.image[drawn_rows], people.caption[drawn_rows]
    require_enough(image, captions.owner[caption])
    sampling = agree.sampling or people.sampling
    drawn = Judgements(
        image, caption, people.score[drawn_rows], scale=people.scale, sampling=sampling
    )
    return _PeoplePairs(drawn, scale)


def _write_pairs(path: Path, pool: Pairs, people: _PeoplePairs | None, captions: Captions) -> int:
    """Write the pairs to ask about, a line each, as `judge` reads them: the pool with its
    probabilities, and people's pairs with their scores. Returns the number of lines."""
    # Twelve digits: the inverse of the inverse of 3/7 differs in the last one.
    chance = np.array([float(f"{1 / weight:.12g}") for weight in pool.weight.tolist()])
    parts = [("probability", pool.image, pool.caption, chance)]
    if people is not None:
        judged = people.judgements
        parts.append(("people", judged.image, judged.caption, judged.score))
    lines = [
        json.dumps(
            {"image_id": captions.image_ids[i], "caption_id": captions.caption_ids[c], name: value}
        )
        for name, image, caption, values in parts
        for i, c, value in zip(image.tolist(), caption.tolist(), values.tolist(), strict=True)
    ]
    write_text(path, "\n".join(lines) + "\n")
    return len(lines)


def _mean_scores(
    judged: Judgements, image: np.ndarray, caption: np.ndarray, captions: Captions
) -> np.ndarray:
    """The judge's mean score of each pair, from 0 to 1, float64 [n]; NaN where it has none."""
    low, high = judged.scale or (0.0, 1.0)
    scaled = replace(judged, score=(judged.score - low) / (high - low))
    means = scaled.means(captions.n_captions)
    at = means.rows_of(image, caption)
    return np.where(at >= 0, means.value[at], np.nan)


def _fit_judge(judged: Judgements, people: _PeoplePairs, captions: Captions) -> Curve:
    """What the judge's score means to people, by the pairs that both judged."""
    judged_pairs = people.judgements
    values = _mean_scores(judged, judged_pairs.image, judged_pairs.caption, captions)
    answered = ~np.isnan(values)
    both = Judgements(
        judged_pairs.image[answered],
        judged_pairs.caption[answered],
        judged_pairs.score[answered],
        scale=judged_pairs.scale,
    )
    return fit(values[answered], both, captions.owner[both.caption], people.scale)


def _collect_answers(
    judged: Judgements, pool: Pairs, captions: Captions, curve: Curve | None, accept: float
) -> GivenAnswers:
    """The answered pairs of the pool. Unanswered pairs are taken to be like the others drawn with
    the same probability, which is lowered by the share of them that was answered. Where none of
    these was answered, they are taken to be like those drawn with the nearest one. InputError where
    no pair of the pool was answered."""
    score = _mean_scores(judged, pool.image, pool.caption, captions)
    answered = ~np.isnan(score)
    weights, alike = np.unique(pool.weight, return_inverse=True)
    numbers = np.bincount(alike, answered)  # of answered pairs
    pairs = np.bincount(alike) * weights  # for which those drawn stand
    silent = numbers == 0
    if silent.all():
        raise InputError("no pair has an answer that can be read", remedy="ask another judge")
    for stratum in np.flatnonzero(silent):
        far = np.where(silent, np.inf, np.abs(np.log(weights / weights[stratum])))
        pairs[int(np.argmin(far))] += pairs[stratum]
    weight = (pairs / np.maximum(numbers, 1))[alike][answered]
    score = score[answered]
    accepted = (score if curve is None else curve.probability(score)) >= accept
    right, draws = accepted.astype(np.float64), np.empty((0, len(score)))
    if curve is not None:
        right = curve.probability(score)
        draws = np.stack([np.interp(score, curve.value, draw) for draw in curve.draws])
    known = Pairs(pool.image[answered], pool.caption[answered], weight, {MEASURE: score})
    missing = int((~answered).sum()), int(silent[alike].sum())
    return GivenAnswers(known, *missing, right, draws, accepted)


def _is_ranked_first(S: np.ndarray, answers: GivenAnswers, direction: str) -> np.ndarray:
    """bool [n]: the pairs whose item the model ranks first. S is images x captions."""
    if direction == "i2t":
        return np.asarray(S.argmax(axis=1)[answers.pairs.image] == answers.pairs.caption)
    return np.asarray(S.argmax(axis=0)[answers.pairs.caption] == answers.pairs.image)


@dataclass(frozen=True)
class RankedCandidates:
    """Of each query its own items and what any model ranks among its first DEPTH: query and item
    int64 [n], and the column of the item in a matrix [queries, width] of these alone. What no model
    ranks so high counts as not relevant, as in pools of TREC."""

    query: np.ndarray
    item: np.ndarray
    column: np.ndarray
    own: np.ndarray  # bool [n]
    n_items: int

    @classmethod
    def from_pairs(cls, cells: np.ndarray, captions: Captions, direction: str) -> RankedCandidates:
        """From pairs as `_rank_pairs` has them."""
        own = captions.owner * captions.n_captions + np.arange(captions.n_captions)
        image, caption = np.divmod(np.concatenate([own, cells]), captions.n_captions)
        query, item = (image, caption) if direction == "i2t" else (caption, image)
        order = np.lexsort((item, query))
        query, item = query[order], item[order]
        column = np.arange(len(query)) - np.searchsorted(query, query)
        n_items = captions.n_captions if direction == "i2t" else captions.n_images
        return cls(query, item, column, (captions.owner[caption] == image)[order], n_items)

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.query.max()) + 1, int(self.column.max()) + 1

    def scores(self, S: np.ndarray) -> np.ndarray:
        """A model's scores of the candidates, -inf in empty columns; S is queries x items."""
        values = np.full(self.shape, -np.inf, np.result_type(S.dtype, np.float32))
        values[self.query, self.column] = S[self.query, self.item]
        return values

    def sample(self, answers: GivenAnswers, gain: np.ndarray, direction: str) -> Pairs:
        """The known gains of the candidates: those of judged pairs, 1 for own pairs, and 0 in empty
        columns."""
        judged = answers.pairs.valued(gain)
        judged = judged if direction == "i2t" else judged.transposed()
        here = Pairs(self.query, self.item, np.ones(len(self.query)))
        at = here.rows_of(judged.image, judged.caption)
        judged = replace(judged, caption=self.column[at]).take(at >= 0)
        own = self.query[self.own], self.column[self.own]
        empty = np.ones(self.shape, bool)
        empty[self.query, self.column] = False
        gains = [np.ones(len(own[0])), np.zeros(int(empty.sum()))]
        pairs = [np.concatenate(sides) for sides in zip(own, np.nonzero(empty), strict=True)]
        weight = np.ones(len(pairs[0]))
        known = Pairs(pairs[0], pairs[1], weight, {MEASURE: np.concatenate(gains)})
        return Pairs.concatenate([judged, known])


def _compute_figures(
    scores: Mapping[str, np.ndarray],
    answers: GivenAnswers,
    captions: Captions,
    ranked: Mapping[tuple[str, int], np.ndarray],
) -> dict[str, Any]:
    """By direction: of each model recall at 1 as benchmarks count, and with what is also right, and
    NDCG; and with two models the probability that they change places."""
    figures: dict[str, Any] = {}
    for direction in DIRECTIONS:
        of_images = direction == "i2t"
        groups = None if of_images else captions.owner
        sides = [np.arange(captions.n_images), captions.owner]
        own = own_positives(*(sides if of_images else sides[::-1]))
        candidates = RankedCandidates.from_pairs(ranked[direction, DEPTH], captions, direction)
        gains = answers.right, answers.pairs.value
        right, graded = (candidates.sample(answers, gain, direction) for gain in gains)
        models: dict[str, dict[str, Any]] = {}
        values = []
        for name, S in scores.items():
            matrix = S if of_images else S.T
            counted = float(recall(matrix, own, 1).mean())
            listed = candidates.scores(matrix)
            first, by_grade = (
                query_values(listed, sample, [metric])[metric]
                for sample, metric in ((right, RIGHT), (graded, GRADED))
            )
            values.append(first)
            estimated, grades = (
                _unless_silent(of.estimate(_LEVEL, groups), answers) for of in (first, by_grade)
            )
            error = _calibration_error(
                _is_ranked_first(S, answers, direction), answers, len(matrix)
            )
            models[name] = {
                "benchmark": counted,
                **_as_share(_widen(estimated, error)),
                GRADED: _as_share(grades),
            }
        figures[direction] = {"models": models}
        if len(scores) == 2:
            places = places_of(values[0], values[1], _LEVEL, 0, groups)
            before, after = (models[name]["benchmark"] for name in scores)
            ahead = np.sign(places.difference.value) == np.sign(before - after)
            difference = _unless_silent(places.difference, answers)
            figures[direction]["difference"] = _as_dict(difference)
            figures[direction]["same_first"] = 1 - places.change if ahead else places.change
    return figures


def _calibration_error(first: np.ndarray, answers: GivenAnswers, queries: int) -> float:
    """The standard error that the calibration's bootstrap draws give to the mean gain of first
    items. `first` bool [n] marks the pairs that a model ranks first."""
    if not len(answers.draws):
        return 0.0
    changes = (answers.draws - answers.right)[:, first] @ answers.pairs.weight[first]
    return float(np.sqrt((changes**2).mean())) / queries


def _unless_silent(value: Estimate, answers: GivenAnswers) -> Estimate:
    """Without its interval where pairs that were drawn alike have no answer at all: nothing tells
    how they differ from others."""
    if not answers.silent:
        return value
    note = f"no interval: none of {answers.silent:,} pairs that were drawn alike has an answer"
    return replace(value, low=np.nan, high=np.nan, note=note)


def _widen(value: Estimate, error: float) -> Estimate:
    """Widen the interval by an independent standard error."""
    low, high = (float(np.hypot(value.value - end, _Z * error)) for end in (value.low, value.high))
    return replace(value, low=value.value - low, high=value.value + high)


def _as_dict(value: Estimate) -> dict[str, Any]:
    """Value and interval; instead of the latter null, and why, where too little was judged. The
    value is null too where it would be no share."""
    if value.note:
        known = None if np.isnan(value.value) else value.value
        return {"value": known, "low": None, "high": None, "note": value.note}
    return {"value": value.value, "low": value.low, "high": value.high}


def _as_share(value: Estimate) -> dict[str, Any]:
    """The value and interval clipped to 0..1, which a weighted estimate of a share may leave."""
    return _as_dict(
        replace(value, **{key: min(max(getattr(value, key), 0.0), 1.0) for key in _ENDS})
    )


def _write_likely(path: Path, answers: GivenAnswers, captions: Captions) -> int:
    """Write what is accepted beside own pairs, the best judged first. Returns how many rows."""
    rows = np.flatnonzero(answers.accepted)
    pairs = answers.pairs
    rows = rows[np.argsort(-pairs.value[rows], kind="stable")]
    columns = pairs.image, pairs.caption, pairs.value, answers.right, 1 / pairs.weight
    table = [
        (
            captions.image_ids[i],
            captions.caption_ids[c],
            f"{score:.4f}",
            f"{right:.4f}",
            f"{p:.6g}",
            captions.texts[c],
        )
        for i, c, score, right, p in zip(
            *(column[rows].tolist() for column in columns), strict=True
        )
    ]
    head = ("image_id", "caption_id", "score", "right", "probability", "caption")
    write_text(path, csv_text(head, table))
    return len(table)


def _write_targets(
    folder: Path,
    answers: GivenAnswers,
    captions: Captions,
    inputs: Mapping[str, str],
    calibrated: bool,
) -> dict[str, int]:
    """The judged pairs and own pairs, which have the value 1, as shards that training reads; what
    was not judged is unknown. Files, as the manifest around them lists them -> rows."""
    own = np.arange(captions.n_captions)
    judged = answers.pairs
    image = np.concatenate([captions.owner, judged.image])
    caption = np.concatenate([own, judged.caption])
    order, known = np.lexsort((caption, image)), np.ones(len(own))

    def column(values: np.ndarray) -> np.ndarray:
        return np.concatenate([known, values])[order]

    values = {MEASURE: column(judged.value)}
    if calibrated:
        values[MEASURE + ACCEPTED] = column(answers.right)
    reasons = column(np.full(len(judged), 2)).astype(np.uint32)
    weight = column(judged.weight)
    pairs = Pairs(image[order], caption[order], weight, values, reasons)
    names = list(values)
    params = {"measures": {name: {"imported": _JUDGED} for name in names}}
    facts = {
        "captions": captions.digest,
        "split": captions.split,
        "package": package_version(),
        "n_captions": captions.n_captions,
        "params": params,
        "reasons": ["own", "judged"],
    }
    schema = shard_schema(names, facts)
    lists = PairLists.from_pairs(pairs, captions.n_images)
    batch = shard_batch(schema, captions.image_ids, np.arange(captions.n_images), lists)
    folder.mkdir(exist_ok=True)
    file = shard_name(0, 1)
    rows = {file: write_arrow(folder / file, schema, [batch])}
    write_manifest(
        folder, "shards", params=params, inputs=dict(inputs), rows=rows, pairs=len(image)
    )
    return {f"{TARGETS}/{MANIFEST}": 0, f"{TARGETS}/{file}": rows[file]}


def lines_of(found: Mapping[str, Any]) -> list[str]:
    """The lines that the command prints: three for each model, one on which of two models is first,
    and one on what decides that a pair is right."""
    lines: list[str] = []
    names = list(found["i2t"]["models"])
    for name in names:
        models = {direction: found[direction]["models"][name] for direction in DIRECTIONS}
        for direction, words in DIRECTION_WORDS.items():
            also = f"{_percent(models[direction])} with what is also right"
            counted = f"R@1 {100 * models[direction]['benchmark']:.1f} as benchmarks count"
            lines.append(f"{name}: {words} {counted}; {also}")
        graded = ", ".join(
            f"{words} {_percent(models[direction][GRADED])}"
            for direction, words in DIRECTION_WORDS.items()
        )
        lines.append(f"{name}: NDCG@10 by the judge's grades {graded}")
    if len(names) == 2:
        parts = (
            f"{words} {found[direction]['same_first']:.0%}"
            for direction, words in DIRECTION_WORDS.items()
        )
        lines.append(f"the same model is first by both: {', '.join(parts)}")
    return [*lines, *_notes_of(found), _describe_calibration(found["calibration"])]


def _notes_of(found: Mapping[str, Any]) -> list[str]:
    """Why figures have no interval, each reason once."""
    values = [
        value
        for direction in DIRECTIONS
        for model in found[direction]["models"].values()
        for value in (model, model[GRADED])
    ]
    return list(dict.fromkeys(value["note"] for value in values if "note" in value))


def _percent(value: Mapping[str, Any]) -> str:
    if "note" in value:
        return "–" if value["value"] is None else f"{100 * value['value']:.1f}"
    low, high = 100 * value["low"], 100 * value["high"]
    return f"{100 * value['value']:.1f} [{low:.1f}, {high:.1f}]"


def _describe_calibration(calibration: Mapping[str, Any] | None) -> str:
    """A phrase on how a judge's score decides that a pair is right."""
    if calibration is None:
        return "not calibrated: the judge's score alone says what is right"
    pairs = f"{calibration['pairs']:,} pairs of {calibration['file']}"
    is_chosen = calibration["sampling"] == CHOSEN
    upper = "; these were chosen, so read R@1 as an upper end" if is_chosen else ""
    return f"calibrated: right is the probability that people accept, by {pairs}{upper}"


def _render_figures(
    figures: Mapping[str, Any],
    scores: Mapping[str, np.ndarray],
    answers: GivenAnswers,
    captions: Captions,
    thumbnails: PageThumbnails,
) -> str:
    """The figures, and first answers that benchmarks count as wrong and the judge as right."""
    name, first = next(iter(figures["t2i"]["models"].items()))
    counted = f"Benchmarks count {format_percent(first['benchmark'])}."
    sentence = (
        f"is the recall at 1 of model {name}, text to image, with what the judge also finds right."
        f" {counted}"
    )
    figure = format_percent(first["value"])
    rows = [
        [
            Cell(model, model, note=words),
            share_cell(values["benchmark"]),
            _cell(values),
            _cell(values[GRADED]),
        ]
        for direction, words in DIRECTION_WORDS.items()
        for model, values in figures[direction]["models"].items()
    ]
    heads = (
        "model",
        "R@1 as benchmarks count",
        "R@1 with what is also right",
        "NDCG@10 by the judge",
    )
    text = f"{figures['answered']:,} pairs were judged, {figures['unanswered']:,} had no answer. "
    text += "The 95 % intervals hold the chance of queries and of the pairs that were drawn. "
    text += "".join(f"{note[0].upper()}{note[1:]}. " for note in _notes_of(figures))
    calibrated_by = _describe_calibration(figures["calibration"])
    text += f"{calibrated_by[0].upper()}{calibrated_by[1:]}. "
    text += _NOT_HELD[figures["calibration"] is not None]
    table = PageTable("What the models' answers are worth", heads, rows)
    parts: list[Part] = [Headline(figure, sentence), table, Note(text)]
    opening = PageSection("figures", "Regraded", "", parts)
    sections = [
        PageSection(
            f"model-{k}",
            f"Changed answers of {model}",
            _INTRO,
            [Examples("the judge's score", changed)],
        )
        for k, (model, S) in enumerate(scores.items())
        if (changed := _changed_answers(S, answers, captions, thumbnails))
    ]
    foot = f"capgrade {package_version()}; captions {captions.digest[:12]}, split {captions.split}."
    return render_page("What the numbers are worth", opening, sections, KIND, foot=foot, runs=[])


_NOT_HELD = {
    False: "Intervals do not hold the judge's own errors; capgrade agree says how well it agrees"
    " with people.",
    True: "Intervals of R@1 hold how far these pairs leave that probability open. NDCG is not"
    " calibrated.",
}
_INTRO = (
    "What the model ranks first, which was not written for the query, and which the judge accepts."
)


def _cell(value: Mapping[str, Any]) -> Cell:
    """A share with its interval below it."""
    share = value["value"]
    note = "no value" if share is None else "no interval"
    if "note" not in value:
        note = f"{100 * value['low']:.1f}–{100 * value['high']:.1f}%"
    return Cell(format_percent(share), -np.inf if share is None else share, note=note)


def _changed_answers(
    S: np.ndarray, answers: GivenAnswers, captions: Captions, thumbnails: PageThumbnails
) -> list[Example]:
    """Caption queries whose first image is not their own and is accepted, each text once, the best
    judged first."""
    rows = np.flatnonzero(answers.accepted & _is_ranked_first(S, answers, "t2i"))
    pairs = answers.pairs.take(rows[np.argsort(-answers.pairs.value[rows], kind="stable")])
    examples = []
    for row, _ in select_distinct(pairs, captions)[:_EXAMPLES]:
        columns = pairs.image, pairs.caption, pairs.value
        image, caption, score = (column[row].item() for column in columns)
        own = captions.image_ids[captions.owner[caption]]
        items = [(captions.image_ids[image], False, score), (own, True, None)]
        shown = [
            ExampleItem(
                image_id,
                " / ".join(_texts(captions, image_id)[:2]),
                thumbnails.uri(image_id, _SIDE),
                is_own,
                value,
                thumbnails.link(image_id),
            )
            for image_id, is_own, value in items
        ]
        asked = ExampleItem(captions.caption_ids[caption], captions.texts[caption])
        examples.append(Example(asked, "images", {"ranked first": shown[:1], "its own": shown[1:]}))
    return examples


def _texts(captions: Captions, image_id: str) -> Sequence[str]:
    return [captions.texts[row] for row in captions.rows_of(captions.image_numbers[image_id])]
