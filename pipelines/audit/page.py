"""The audit's page: findings, how far the probabilities hold, and lists with pictures."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np

from capgrade.pipelines.agreement.calibration import Calibration, Curve
from capgrade.pipelines.audit.candidates import Pairs
from capgrade.pipelines.report.charts import made, rows
from capgrade.pipelines.report.parts import (
    Chart,
    Examples,
    Facts,
    Item,
    Note,
    Part,
    Ranking,
    Section,
    Table,
    text,
)
from capgrade.pipelines.report.thumbnails import Thumbnails
from capgrade.schemas.captions import Captions

SHOWN, LISTED, SIDE = 100, 500, 160
MEANING = (
    "Accepted means that a person would give the pair a score of at least {accept:g} on a scale from {low:g} to "
    "{high:g}. How likely that is at each value of the measure {measure} was learnt from {pairs:,} judged pairs of "
    "{file}, which are of other captions unless you calibrated on your own. Intervals are 95%."
)


def sections(
    found: dict[str, Any], measure: str, calibration: Calibration, captions: Captions, pairs: Pairs,
    duplicates: list[tuple[int, int]], low: np.ndarray | None, thumbnails: Thumbnails,
) -> list[Section]:  # fmt: skip
    """What `audit` found, as sections of a page."""
    curve, facts = calibration.curves[measure], calibration.facts
    said = MEANING.format(
        **{key: facts[key] for key in ("accept", "low", "high")},
        measure=measure, pairs=curve.pairs, file=facts["judgements"]["file"],
    )  # fmt: skip
    return [
        Section("findings", "Findings", said, [_facts(found), Note(_sentence(found))]),
        Section("calibration", "How far to trust the probabilities", _trust(curve), [_diagram(curve, measure)]),
        _likely(curve, captions, pairs, thumbnails),
        _duplicates(captions, duplicates),
        _suspects(captions, low, curve),
    ]


def _range(one: dict[str, float]) -> str:
    return f"{one['accepted']:.2f} ({one['low']:.2f} to {one['high']:.2f})"


def _facts(found: dict[str, Any]) -> Facts:
    suspects = found["suspect_pairs"]
    return Facts(
        {
            "accepted captions per image, beyond the given": _range(found["captions_per_image"]),
            "given captions per image": f"{found['captions_per_image']['given']:.2f}",
            "accepted images per caption, beyond the given": _range(found["images_per_caption"]),
            "pairs more likely accepted than not": f"{found['likely_pairs']:,}",
            "near-duplicate pairs of images": f"{found['near_duplicates']:,}",
            "given pairs that fit nothing": "not known" if suspects is None else f"{suspects:,}",
        }
    )


def _sentence(found: dict[str, Any]) -> str:
    one = found["captions_per_image"]
    return (
        f"Beside the {one['given']:.1f} captions that an image was given, people would accept about "
        f"{one['accepted']:.1f} of the others. A retrieval score that counts these as errors is too low."
    )


def _trust(curve: Curve) -> str:
    return (
        "Predicted against observed acceptance on images that the curve was not fitted on, in groups of equally many "
        f"pairs; on the line, they are equal. The expected calibration error is {curve.ece:.3f}."
    )


def _diagram(curve: Curve, measure: str) -> Chart:
    values = rows(curve.reliability)
    x = alt.X("predicted:Q", title="predicted share", scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("accepted:Q", title="share that people accepted", scale=alt.Scale(domain=[0, 1]))
    told = [alt.Tooltip(f"{name}:Q") for name in ("predicted", "accepted", "pairs")]
    line = alt.Chart(rows([{"a": 0.0}, {"a": 1.0}])).mark_line(strokeDash=[4, 4], aria=False).encode(x="a:Q", y="a:Q")
    dots = alt.Chart(values).mark_line(point=True, aria=False).encode(x, y, tooltip=told)
    said = f"Reliability of P(accepted) by {measure}: expected calibration error {curve.ece:.3f}."
    return made("reliability", f"Reliability of {measure}", said, line + dots)


def _likely(curve: Curve, captions: Captions, pairs: Pairs, thumbnails: Thumbnails) -> Section:
    intro = (
        f"The {min(SHOWN, len(pairs.image))} likeliest of all: a caption of another image, then the image's own. The "
        "number is the probability that a person accepts the caption."
    )
    rankings = [_ranking(curve, captions, pairs, k, thumbnails) for k in range(min(SHOWN, len(pairs.image)))]
    parts: list[Part] = [Examples("P", rankings)] if rankings else [Note("No pair is more likely accepted than not.")]
    if rankings and not thumbnails.pictures:
        parts.insert(0, Note("No pictures were given (--images): the first caption of an image stands for it."))
    return Section("likely", "Likely false negatives", intro, parts)


def _ranking(curve: Curve, captions: Captions, pairs: Pairs, k: int, thumbnails: Thumbnails) -> Ranking:
    image, caption = int(pairs.image[k]), int(pairs.caption[k])
    own = captions.refs[captions.ref_ptr[image] : captions.ref_ptr[image + 1]]
    share = float(curve.probability(pairs.value[k]))
    id = captions.image_ids[image]
    query = Item(id, captions.texts[own[0]], thumbnails.uri(id, SIDE), link=thumbnails.link(id))
    found = [Item(captions.caption_ids[caption], captions.texts[caption], None, relevance=share)]
    found += [Item(captions.caption_ids[c], captions.texts[c], None, own=True) for c in own]
    return Ranking(query, found, "captions", f"{k + 1}.")


def _duplicates(captions: Captions, found: list[tuple[int, int]]) -> Section:
    intro = "Two images, each of which would take every caption of the other: the same picture, or nearly."
    first = captions.refs[captions.ref_ptr[:-1]]
    lines = [
        [text(words) for k in pair for words in (captions.image_ids[k], captions.texts[first[k]])]
        for pair in found[:LISTED]
    ]
    heads = ("image", "its first caption", "other image", "its first caption ")
    part = Table("Near-duplicates", heads, lines) if lines else Note("None was found.")
    return Section("duplicates", "Near-duplicates", intro, [part])


def _suspects(captions: Captions, found: np.ndarray | None, curve: Curve) -> Section:
    intro = "Captions that their image's other captions do not bear out: wrong pairs, or odd captions. The worst first."
    if found is None:
        note = Note("Not known: give --relevance, whose folder has own pairs with the caption left out.")
        return Section("suspects", "Given pairs that fit nothing", intro, [note])
    lines = []
    for c in found[:LISTED]:
        image = captions.owner[c]
        others = [r for r in captions.refs[captions.ref_ptr[image] : captions.ref_ptr[image + 1]] if r != c]
        lines.append(
            [
                text(captions.caption_ids[c]),
                text(captions.texts[c]),
                text(captions.texts[others[0]]),
            ]
        )
    part = (
        Table("Suspect pairs", ("caption", "text", "another caption of its image"), lines)
        if lines
        else Note("None was found.")
    )
    return Section("suspects", "Given pairs that fit nothing", intro, [part])
