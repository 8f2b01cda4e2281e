"""Stage `regrade`: what models' benchmark numbers are worth, by a judge's answers on a pool of
pairs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.agreement.judgement_files import read_judgements
from capgrade.labels.stored import ValuedPairs
from capgrade.metrics.base import Positives
from capgrade.metrics.judged_sample import Estimate, JudgedSample, change_places, estimate
from capgrade.metrics.pools import Pool, draw_pool
from capgrade.pipelines.audit.lists import select_distinct
from capgrade.pipelines.judging import judge
from capgrade.pipelines.page import render_page
from capgrade.pipelines.page.parts import (
    Example,
    ExampleItem,
    Examples,
    Headline,
    Note,
    PageSection,
    PageTable,
    Part,
)
from capgrade.pipelines.page.thumbnails import PageThumbnails
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import package_version, write_json, write_manifest, write_text
from capgrade.schemas.inputs import file_digest
from capgrade.schemas.lines import csv_text
from capgrade.schemas.output import output_folder
from capgrade.schemas.params import JudgeParams
from capgrade.trainer.evaluation.task import read_similarity

KIND = "regrade"
_FORMAT = 1  # to be raised when the same inputs give another pool or other files
METRIC = "recall@1"
_DIRECTIONS = {"i2t": "image to text", "t2i": "text to image"}
_PAIRS, _JUDGED, _LIKELY = "pairs.jsonl", "judged.csv", "likely.csv"
FIGURES, PAGE = "regraded.json", "regraded.html"
_EXAMPLES = 24  # changed answers of each model on the page
_SIDE = 160  # pixels of a picture there
_LEVEL = 0.95


@dataclass(frozen=True)
class Answers:
    """Pairs of the pool that were judged: image and caption int64 [n]; score float64 [n], from 0 to
    1; the probability with which each was judged, float64 [n]; and how many pairs have no answer.
    """

    image: np.ndarray
    caption: np.ndarray
    score: np.ndarray
    probability: np.ndarray
    missing: int


def regrade(
    captions_dir: Path,
    similarities: Mapping[str, Path],
    out: Path,
    *,
    model: str,
    endpoint: str | None = None,
    images: str | None = None,
    split: str | None = None,
    budget: int = 3000,
    accept: float = 0.5,
    seed: int = 0,
    max_cost: float | None = None,
    params: JudgeParams | None = None,
    tell: Callable[[str], None] = lambda said: None,
) -> dict[str, Any]:
    """Draw a pool of `budget` pairs from what the models rank, ask a judge about them, and estimate
    each model's recall at 1 with what is also right.

    `similarities` are images x captions, by the models' names. A pair is right that was written for
    its image, or whose score is `accept` of the judge's scale or more. Written are the pool with
    its probabilities, the answers, qrels of both directions, what is likely right, the figures, and
    a page of changed answers. Returns the figures.

    A run that was stopped goes on, and no question is asked twice. Raises InputError as `judge`,
    for similarities of other captions, and for a budget beyond the pairs.
    """
    captions = read_captions(captions_dir, split)
    scores = {name: read_similarity(path, captions) for name, path in similarities.items()}
    read = {f"similarity {name}": file_digest(path) for name, path in similarities.items()}
    asked = {
        "split": captions.split,
        "budget": budget,
        "accept": accept,
        "seed": seed,
        "model": model,
        "images": images,
    }
    inputs = {"captions": captions.digest, **read}
    made_of = {"format": _FORMAT, "asked": asked, "inputs": inputs}
    with output_folder(out, KIND, made_of) as folder:
        own = Positives.from_lists([captions.rows_of(image) for image in range(captions.n_images)])
        pool = draw_pool(
            list(scores.values()), budget, top=1, columns=True, own=own, certain=False, seed=seed
        )
        _write_pairs(folder / _PAIRS, pool, captions)
        done = judge(
            captions_dir,
            str(folder / _PAIRS),
            folder / _JUDGED,
            endpoint=endpoint,
            model=model,
            images=images,
            split=split,
            max_cost=max_cost,
            params=params or JudgeParams(),
            tell=tell,
        )
        if done["left"]:
            problem = (
                f"{done['left']:,} of {budget:,} pairs are not asked about yet: {done['stopped']}"
            )
            raise InputError(problem, file=out, remedy="run the same command again: it goes on")
        answers = _answers(folder / _JUDGED, pool, captions)
        found = _figures(scores, answers, captions, own, accept)
        found |= {
            "pairs": budget,
            "answered": len(answers.score),
            "unanswered": answers.missing,
            "judge": model,
        }
        rows = _write_lists(folder, answers, captions, accept)
        write_json(folder / FIGURES, found)
        page = _page(
            found, scores, answers, captions, accept, PageThumbnails(captions_dir, images, out)
        )
        write_text(folder / PAGE, page)
        rows |= dict.fromkeys((FIGURES, PAGE), 0) | {_PAIRS: budget, _JUDGED: len(answers.score)}
        rows |= {one.name: 0 for one in folder.glob("*-unanswered.csv")}
        write_manifest(folder, KIND, params=asked, inputs=inputs, rows=rows)
    return found


def _write_pairs(path: Path, pool: Pool, captions: Captions) -> None:
    """The pool, a line each, as `judge` reads it."""
    lines = (
        json.dumps(
            {
                "image_id": captions.image_ids[i],
                "caption_id": captions.caption_ids[c],
                "probability": p,
            }
        )
        for i, c, p in zip(
            pool.query.tolist(), pool.item.tolist(), pool.probability.tolist(), strict=True
        )
    )
    write_text(path, "\n".join(lines) + "\n")


def _answers(path: Path, pool: Pool, captions: Captions) -> Answers:
    """The judge's mean score of each pair of the pool. What has no answer is taken to be like the
    others that were drawn with its probability, of which fewer were judged then."""
    judged = read_judgements(path, captions)
    low, high = judged.scale or (0.0, 1.0)
    codes = judged.image * captions.n_captions + judged.caption
    first, row = np.unique(codes, return_inverse=True)
    score = np.bincount(row, (judged.score - low) / (high - low)) / np.bincount(row)
    wanted = pool.query * captions.n_captions + pool.item
    at = np.searchsorted(first, wanted).clip(max=len(first) - 1)
    known = first[at] == wanted
    probability = pool.probability.copy()
    for one in np.unique(pool.probability):
        drawn = pool.probability == one
        probability[drawn] *= known[drawn].mean()
    some = pool.query[known], pool.item[known], score[at[known]], probability[known]
    return Answers(*some, missing=int((~known).sum()))


def _figures(
    scores: Mapping[str, np.ndarray],
    answers: Answers,
    captions: Captions,
    own: Positives,
    accept: float,
) -> dict[str, Any]:
    """By direction: of each model recall at 1 as benchmarks count, and with what is also right; and
    with two models the probability that they change places."""
    right = (answers.score >= accept).astype(np.float64)
    sample = JudgedSample(
        answers.image, answers.caption, right, answers.probability
    ) + JudgedSample.certain(own)
    found: dict[str, Any] = {}
    for direction in _DIRECTIONS:
        there = direction == "i2t"
        pairs, groups = (sample, None) if there else (sample.transposed(), captions.owner)
        matrices = {name: S if there else np.ascontiguousarray(S.T) for name, S in scores.items()}
        models = {}
        for name, S in matrices.items():
            best = S.argmax(axis=1)
            counted = captions.owner[best] == np.arange(len(S)) if there else best == captions.owner
            value = estimate(S, pairs, [METRIC], above=0.5, level=_LEVEL, groups=groups)[METRIC]
            models[name] = {"benchmark": float(counted.mean()), **_recall(value)}
        found[direction] = {"models": models}
        if len(scores) == 2:
            one, other = matrices.values()
            places = change_places(
                one, other, pairs, METRIC, above=0.5, level=_LEVEL, groups=groups
            )
            first, second = (models[name]["benchmark"] for name in scores)
            ahead = np.sign(places.difference.value) == np.sign(first - second)
            found[direction]["difference"] = _written(places.difference)
            found[direction]["same_first"] = 1 - places.change if ahead else places.change
    return found


def _written(value: Estimate) -> dict[str, float]:
    return {"value": value.value, "low": value.low, "high": value.high}


def _recall(value: Estimate) -> dict[str, float]:
    """Within 0 and 1: an estimate of a share by weights may leave them."""
    return {key: min(max(one, 0.0), 1.0) for key, one in _written(value).items()}


def _write_lists(
    folder: Path, answers: Answers, captions: Captions, accept: float
) -> dict[str, int]:
    """Qrels of both directions with the columns of mteb, the judge's grade in hundredths and 100 of
    own pairs; and what is likely right beside own pairs. File -> rows."""
    right = np.flatnonzero(answers.score >= accept)
    right = right[np.argsort(-answers.score[right], kind="stable")]
    rows = [
        (captions.image_ids[i], captions.caption_ids[c], f"{s:.4f}", f"{p:.6g}", captions.texts[c])
        for i, c, s, p in zip(
            *(
                column[right].tolist()
                for column in (answers.image, answers.caption, answers.score, answers.probability)
            ),
            strict=True,
        )
    ]
    write_text(
        folder / _LIKELY,
        csv_text(("image_id", "caption_id", "score", "probability", "caption"), rows),
    )
    pairs = [
        (captions.image_ids[i], one, 100)
        for one, i in zip(captions.caption_ids, captions.owner, strict=True)
    ]
    grades = np.rint(100 * answers.score).astype(int).tolist()
    pairs += [
        (captions.image_ids[i], captions.caption_ids[c], grade)
        for i, c, grade in zip(
            answers.image.tolist(), answers.caption.tolist(), grades, strict=True
        )
    ]
    found = {_LIKELY: len(rows)}
    for direction in _DIRECTIONS:
        lines = sorted((i, c, g) if direction == "i2t" else (c, i, g) for i, c, g in pairs)
        text = "".join(f"{query}\t{item}\t{grade}\n" for query, item, grade in lines)
        write_text(folder / f"qrels-{direction}.tsv", "query-id\tcorpus-id\tscore\n" + text)
        found[f"qrels-{direction}.tsv"] = len(lines)
    return found


def lines_of(found: Mapping[str, Any]) -> list[str]:
    """What the command prints: two lines a model, and one on which of two is first."""
    lines = []
    names = list(found["i2t"]["models"])
    for name in names:
        for direction, words in _DIRECTIONS.items():
            one = found[direction]["models"][name]
            value, low, high = (100 * one[key] for key in ("value", "low", "high"))
            also = f"{value:.1f} [{low:.1f}, {high:.1f}] with what is also right"
            lines.append(
                f"{name}: {words} R@1 {100 * one['benchmark']:.1f} as benchmarks count; {also}"
            )
    if len(names) == 2:
        parts = (
            f"{words} {found[direction]['same_first']:.0%}"
            for direction, words in _DIRECTIONS.items()
        )
        lines.append(f"the same model is first by both: {', '.join(parts)}")
    return lines


def _page(
    found: Mapping[str, Any],
    scores: Mapping[str, np.ndarray],
    answers: Answers,
    captions: Captions,
    accept: float,
    thumbnails: PageThumbnails,
) -> str:
    """The figures, and first answers that benchmarks count as wrong and the judge as right."""
    name, first = next(iter(found["t2i"]["models"].items()))
    counted = f"Benchmarks count {100 * first['benchmark']:.1f}."
    said = (
        f"is the recall at 1 of model {name}, text to image, with what the judge also finds right."
        f" {counted}"
    )
    figure = f"{100 * first['value']:.1f}"
    rows = [
        [
            model,
            words,
            f"{100 * one['benchmark']:.1f}",
            f"{100 * one['value']:.1f}",
            f"{100 * one['low']:.1f} to {100 * one['high']:.1f}",
        ]
        for direction, words in _DIRECTIONS.items()
        for model, one in found[direction]["models"].items()
    ]
    heads = (
        "model",
        "direction",
        "R@1 as benchmarks count",
        "R@1 with what is also right",
        "95 % interval",
    )
    unsure = f"{found['answered']:,} pairs were judged, {found['unanswered']:,} had no answer. "
    notes = [
        Note(
            unsure
            + "Intervals hold the chance of queries and of the pairs that were drawn. They do not"
            " hold the judge's own errors: capgrade agree says how well it agrees with people.",
        )
    ]
    parts: list[Part] = [Headline(figure, said), PageTable("Recall at 1", heads, rows), *notes]
    opening = PageSection("figures", "Regraded", "", parts)
    sections = [
        PageSection(
            f"model-{k}",
            f"Changed answers of {model}",
            _INTRO,
            [Examples("the judge's score", changed)],
        )
        for k, (model, S) in enumerate(scores.items())
        if (changed := _changed(S, answers, captions, accept, thumbnails))
    ]
    foot = f"capgrade {package_version()}; captions {captions.digest[:12]}, split {captions.split}."
    return render_page("What the numbers are worth", opening, sections, KIND, foot=foot, runs=[])


_INTRO = (
    "What the model ranks first, which was not written for the query, and which the judge accepts."
)


def _changed(
    S: np.ndarray, answers: Answers, captions: Captions, accept: float, thumbnails: PageThumbnails
) -> list[Example]:
    """Queries whose first answer is another's own and accepted, each text once; the best judged
    first."""
    right = answers.score >= accept
    first = S[:, answers.caption].argmax(axis=0) == answers.image
    some = np.flatnonzero(right & first)
    some = some[np.argsort(-answers.score[some], kind="stable")]
    pairs = ValuedPairs(
        answers.image[some], answers.caption[some], answers.score[some], np.ones(len(some))
    )
    examples = []
    for row, _ in select_distinct(pairs, captions)[:_EXAMPLES]:
        image, caption, score = (column[row].item() for column in pairs[:3])
        own = captions.image_ids[captions.owner[caption]]
        items = [(captions.image_ids[image], False, score), (own, True, None)]
        found = [
            ExampleItem(
                one,
                " / ".join(_texts(captions, one)[:2]),
                thumbnails.uri(one, _SIDE),
                is_own,
                value,
                thumbnails.link(one),
            )
            for one, is_own, value in items
        ]
        asked = ExampleItem(captions.caption_ids[caption], captions.texts[caption])
        examples.append(Example(asked, "images", {"ranked first": found[:1], "its own": found[1:]}))
    return examples


def _texts(captions: Captions, image_id: str) -> Sequence[str]:
    return [captions.texts[row] for row in captions.rows_of(captions.image_numbers[image_id])]
