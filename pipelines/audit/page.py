"""The audit's page: findings, lists with pictures, and how far the probabilities hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import Any

import altair as alt
import numpy as np

from capgrade.pipelines.agreement.calibration import Calibration
from capgrade.pipelines.agreement.curve import Curve
from capgrade.pipelines.audit.candidates import ValuedPairs
from capgrade.pipelines.audit.errors import Errors
from capgrade.pipelines.audit.estimate import LIKELY
from capgrade.pipelines.audit.lists import distinct, groups
from capgrade.pipelines.report.charts import made, rows
from capgrade.pipelines.report.parts import (
    Cell,
    Chart,
    ExampleItem,
    ExampleRanking,
    Examples,
    Facts,
    Note,
    PageSection,
    PageTable,
    Part,
    count,
    text,
)
from capgrade.pipelines.report.thumbnails import PageThumbnails
from capgrade.schemas.captions import Captions

MEANING = (
    "A likely positive is a pair that was not given and that a person accepts with a probability P of at least "
    "{likely:g}. To accept is to give a score of at least {accept:g} on a scale from {low:g} to {high:g}. P at each "
    "value of the measure “{measure}” was learnt from {pairs:,} judged pairs of {which} captions ({file}). "
)
OF_RANDOM = "Any pair was as likely to be judged, so P holds for all pairs. Intervals are 95%."
OF_CHOSEN = (
    "The judged pairs were chosen because they looked similar. People accept more of such pairs than of other pairs "
    "with the same value. So P is too high, by an unknown amount. The number of accepted pairs is told as “at most”."
)


def sections(
    found: dict[str, Any], calibration: Calibration, captions: Captions, pairs: ValuedPairs,
    duplicates: list[tuple[int, int]], equal: list[list[int]], low: np.ndarray | None, errors: Mapping[str, Errors],
    thumbnails: PageThumbnails,
) -> list[PageSection]:  # fmt: skip
    """What `audit` found, as sections of a page."""
    measure, kind = found["measure"], found["calibration"]
    curve = calibration.curves[measure]
    which = "these very" if kind["same_captions"] else "other"
    said = MEANING.format(measure=measure, likely=LIKELY, which=which, **kind)
    said += OF_RANDOM if calibration.random else OF_CHOSEN
    bands = [_bands(found["bands"])] if found["bands"] else []
    return [
        PageSection("findings", "Findings", said, [Note(headline(found)), _facts(found), *bands]),
        *([model_section(found["model"], errors, curve, captions, thumbnails)] if errors else []),
        likely_section(curve, captions, pairs, thumbnails),
        duplicates_section(captions, duplicates, equal),
        suspects_section(captions, low, found.get("suspects_unknown", "")),
        PageSection("calibration", "How far to trust P", _trust(curve, calibration.random), [_diagram(curve, measure)]),
    ]


def accepted(one: Mapping[str, Any]) -> str:
    """How many of some pairs people accept, per image or caption."""
    if one["accepted"] is None:
        return f"at most {one['high']:.2f}"
    return f"{one['accepted']:.2f} ({one['low']:.2f} to {one['high']:.2f})"


def headline(found: dict[str, Any]) -> str:
    """The audit's answer in two sentences."""
    one = found["likely_captions_per_image"]
    return (
        f"{one['pairs']:.2f} captions per image are likely positives beside the "
        f"{found['given_captions_per_image']:.2f} given. People would accept {accepted(one)} of them."
    )


def answers(found: dict[str, Any]) -> list[str]:
    """What the audit found, in a line each: likely positives, suspects, and a model's errors."""
    judged = "chosen" if found["likely_captions_per_image"]["accepted"] is None else "random"
    lines = [f"{headline(found)} (P was learnt from {judged} pairs.)"]
    if found["suspect_pairs"] is None:
        lines.append(f"Captions that fit nothing are not known: {found['suspects_unknown']}.")
    else:
        lines.append(f"{found['suspect_pairs']:,} given captions fit nothing, by the other captions of their image.")
    if "model" in found:
        ways = {"i2t": "image to caption", "t2i": "caption to image"}
        said = [
            f"{one['likely']['share']:.1%} of {one['errors']:,.0f} {ways[way]} (R@1 {one['recall']:.1%}, with these "
            f"{one['likely']['recall']:.1%})"
            for way, one in found["model"].items()
        ]
        lines.append(f"Likely positives are among the model's R@1 errors: {'; '.join(said)}.")
    return lines


def _facts(found: dict[str, Any]) -> Facts:
    suspects = found["suspect_pairs"]
    captions, images = found["likely_captions_per_image"], found["likely_images_per_caption"]
    return Facts(
        {
            "likely captions per image, beside the given": f"{captions['pairs']:.2f}",
            "captions of these that people accept": accepted(captions),
            "likely images per caption, beside the given": f"{images['pairs']:.2f}",
            "images of these that people accept": accepted(images),
            "likely pairs, all listed in likely.csv": f"{found['likely_pairs']:,}",
            "near-duplicate pairs of images": f"{found['near_duplicates']:,}",
            "given captions that fit nothing": "not known" if suspects is None else f"{suspects:,}",
        }
    )


def _bands(found: Sequence[Mapping[str, Any]]) -> PageTable:
    """Of all pairs that were not given, by P; an interval of all together would be of the many improbable ones."""
    lines = [
        [text(f"{one['from']:g} to {one['to']:g}"), text(f"{one['pairs']:.2f}"), text(accepted(one))] for one in found
    ]
    return PageTable("All other captions of an image, by P", ("P", "captions per image", "of these accepted"), lines)


def _trust(curve: Curve, random: bool) -> str:
    said = (
        "Predicted against observed acceptance on images that the curve was not fitted on, in groups of about equally "
        f"many pairs; on the line, they are equal. The expected calibration error is {curve.ece:.3f}."
    )
    return said if random else f"{said} It is of pairs that were chosen alike, and says nothing of all others."


def _diagram(curve: Curve, measure: str) -> Chart:
    values = rows(curve.reliability)
    x = alt.X("predicted:Q", title="predicted share", scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("accepted:Q", title="share that people accepted", scale=alt.Scale(domain=[0, 1]))
    told = [alt.Tooltip(f"{name}:Q") for name in ("predicted", "accepted", "pairs")]
    line = alt.Chart(rows([{"a": 0.0}, {"a": 1.0}])).mark_line(strokeDash=[4, 4], aria=False).encode(x="a:Q", y="a:Q")
    dots = alt.Chart(values).mark_line(point=True, aria=False).encode(x, y, tooltip=told)
    said = f"Reliability of P(accepted) by {measure}: expected calibration error {curve.ece:.3f}."
    return made("reliability", f"Reliability of {measure}", said, line + dots)


SHOWN, ERRORS, LISTED, SIDE = 100, 20, 500, 160
FEW = 4  # ids in a cell, and rows of a table that is open at first
LONGEST = 52  # characters of a caption in a table


def model_section(
    found: dict[str, Any], errors: Mapping[str, Errors], curve: Curve, captions: Captions, thumbnails: PageThumbnails
) -> PageSection:
    intro = (
        "An R@1 error is a query whose first item was not given with it. Some of them are likely positives: with these "
        "counted as right, R@1 is higher."
    )
    if min(one["known"] for one in found.values()) < 1:
        intro += " Errors whose pair the shards did not keep are estimated from the others by their weights."
    heads = ["direction", "R@1", "errors", "of them likely", "R@1 with these"]
    lines = [
        [
            text("image to caption" if way == "i2t" else "caption to image"),
            text(f"{one['recall']:.1%}"),
            text(f"{one['errors']:,.0f}"),
            text(f"{one['likely']['share']:.1%}"),
            text(f"{one['likely']['recall']:.1%}"),
        ]
        for way, one in found.items()
    ]
    if all(one["at_least"] for one in found.values()):
        intro += (
            " How many errors people accept in all is told as “at least”: P is of all pairs of a value, and a model "
            "that sees the picture ranks first what people accept more often."
        )
        heads += ["accepted at least", "R@1 at least"]
        for line, one in zip(lines, found.values(), strict=True):
            line += [text(f"{one['at_least']['share']:.1%}"), text(f"{one['at_least']['recall']:.1%}")]
    likeliest = errors["i2t"].likely()
    rankings = _rankings(curve, captions, likeliest, thumbnails, ERRORS)
    parts: list[Part] = [PageTable("R@1 errors that are likely positives", heads, lines)]
    if rankings:
        parts += [Note(f"The {len(rankings)} likeliest of them, image to caption:")]
        parts += [Examples("P", rankings)]
    return PageSection("model", "What the model's errors are worth", intro, parts)


def likely_section(curve: Curve, captions: Captions, pairs: ValuedPairs, thumbnails: PageThumbnails) -> PageSection:
    rankings = _rankings(curve, captions, pairs, thumbnails, SHOWN)
    intro = (
        f"The {len(rankings)} likeliest of all: a caption of another image, then the image's own. The number is P, the "
        "probability that a person accepts the caption. A caption that several images have stands once, with how many; "
        "one that the image's own captions have too is left out."
    )
    parts: list[Part] = [Examples("P", rankings)] if rankings else [Note("No pair is more likely accepted than not.")]
    if rankings and not thumbnails.pictures:
        parts.insert(0, Note("No pictures were given (--images): the first caption of an image stands for it."))
    return PageSection("likely", "Likely false negatives", intro, parts)


def _rankings(
    curve: Curve, captions: Captions, pairs: ValuedPairs, thumbnails: PageThumbnails, most: int
) -> list[ExampleRanking]:
    """One per image and text, the likeliest first."""
    chosen = distinct(pairs, captions)[:most]
    return [_ranking(curve, captions, pairs, *one, f"{k}.", thumbnails) for k, one in enumerate(chosen, 1)]


def _ranking(
    curve: Curve, captions: Captions, pairs: ValuedPairs, k: int, times: int, place: str, thumbnails: PageThumbnails
) -> ExampleRanking:
    image, caption = int(pairs.image[k]), int(pairs.caption[k])
    own = captions.refs[captions.ref_ptr[image] : captions.ref_ptr[image + 1]]
    share = float(curve.probability(pairs.value[k]))
    id = captions.image_ids[image]
    query = ExampleItem(id, captions.texts[own[0]], thumbnails.uri(id, SIDE), link=thumbnails.link(id))
    words = captions.texts[caption] + (f" ({times} captions say this)" if times > 1 else "")
    found = [ExampleItem(captions.caption_ids[caption], words, None, relevance=share)]
    found += [ExampleItem(captions.caption_ids[c], captions.texts[c], None, own=True) for c in own]
    return ExampleRanking(query, found, "captions", place)


def duplicates_section(captions: Captions, found: list[tuple[int, int]], equal: list[list[int]]) -> PageSection:
    intro = (
        "Images of which each would take every caption of the other: the same picture, or nearly. Those that others "
        "join stand in one row. Below them, texts that captions of several images share."
    )
    return PageSection(
        "duplicates", "Near-duplicates", intro, [_same_images(captions, found), _same_texts(captions, equal)]
    )


def _same_images(captions: Captions, found: list[tuple[int, int]]) -> Part:
    first = captions.refs[captions.ref_ptr[:-1]]
    lines = [
        [count(len(group)), text(_few([captions.image_ids[k] for k in group]))]
        + [_words(captions.texts[first[k]]) for k in group[:2]]
        for group in groups(found, captions.n_images)[:LISTED]
    ]
    heads = ("images", "ids", "first caption of the first", "of the second")
    return PageTable("Near-duplicates", heads, lines) if lines else Note("No near-duplicate images were found.")


def _same_texts(captions: Captions, equal: list[list[int]]) -> Part:
    lines = []
    for same in equal[:LISTED]:
        ids = list(dict.fromkeys(captions.image_ids[captions.owner[row]] for row in same))
        lines.append([count(len(ids)), _words(captions.texts[same[0]]), text(_few(ids))])
    heads = ("images", "caption", "ids")
    title = f"Captions of several images ({len(equal):,} texts)"
    return PageTable(title, heads, lines, folded=len(lines) > FEW) if lines else Note("No two images share a caption.")


def _words(caption: str) -> Cell:
    """A caption's beginning: a table is as wide as its cells."""
    return text(shorten(caption, LONGEST, placeholder=" …"))


def _few(ids: list[str]) -> str:
    more = len(ids) - FEW
    return ", ".join(ids[:FEW]) + (f" and {more} more" if more > 0 else "")


def suspects_section(captions: Captions, found: np.ndarray | None, unknown: str) -> PageSection:
    intro = "Captions that their image's other captions do not bear out: wrong pairs, or odd captions. The worst first."
    if found is None:
        return PageSection("suspects", "Given pairs that fit nothing", intro, [Note(f"Not known: {unknown}.")])
    lines = []
    for c in found[:LISTED]:
        image = captions.owner[c]
        others = [r for r in captions.refs[captions.ref_ptr[image] : captions.ref_ptr[image + 1]] if r != c]
        lines.append(
            [
                text(captions.caption_ids[c]),
                _words(captions.texts[c]),
                _words(captions.texts[others[0]]),
            ]
        )
    part = (
        PageTable("Suspect pairs", ("caption", "text", "another caption of its image"), lines)
        if lines
        else Note("None was found.")
    )
    return PageSection("suspects", "Given pairs that fit nothing", intro, [part])
