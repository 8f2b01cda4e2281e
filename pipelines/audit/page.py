"""The audit's page: the answer, the likely positives to look at, and how far the probabilities
hold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

import numpy as np

from capgrade.agreement.calibration import Calibration
from capgrade.labels import Labels
from capgrade.labels.stored import ValuedPairs
from capgrade.lists import LIKELY
from capgrade.pipelines.audit.errors import Errors
from capgrade.pipelines.audit.lists import distinct
from capgrade.pipelines.page.charts import chart, layer, of, rows
from capgrade.pipelines.page.parts import (
    Chart,
    ExampleItem,
    Facts,
    Fit,
    Fits,
    Headline,
    Note,
    PageSection,
    PageTable,
    Part,
    Value,
    share,
)
from capgrade.pipelines.page.thumbnails import PageThumbnails
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import first_of

_DIRECTIONS = {"i2t": "image to caption", "t2i": "caption to image"}
# pairs, errors, rows of a table, pixels of a picture
_SHOWN, _ERRORS, _LISTED, _SIDE = (
    100,
    20,
    500,
    240,
)
_FEW = 4  # ids in a cell, and rows of a table that is open at first
_LONGEST = 52  # characters of a caption in a table
_MEANING = (
    "A likely positive is a caption of another image that a person accepts with a probability P of"
    " at least {likely:g}. To accept is to give a score of at least {accept:g} on a scale from"
    " {low:g} to {high:g}. P at each value of the measure “{measure}” was learnt from {pairs:,}"
    " judged pairs of {which} captions: {file}. "
)
OF_RANDOM = "Any pair was as likely to be judged, so P holds for all pairs. Intervals are 95%."
OF_CHOSEN = (
    "The judged pairs were chosen because they looked similar. People accept more of such pairs"
    " than of other pairs with the same value. So P is too high, by an unknown amount. Numbers of"
    " accepted pairs are told as “at most”."
)
SAMPLED = (
    "Lists have the pairs that the shards kept; counts of pairs are estimated by their weights."
)
_NO_PICTURES = "No pictures were given (--images): an image's own captions stand for it."


@dataclass(frozen=True)
class Audited:
    """What an audit found, and what it was found in: `found` as `audit` returns it; the measures,
    that of the audit first; the likely pairs; groups of near-duplicate images; captions that
    several images share; own captions that fit nothing; a model's errors by direction; captions per
    image by tenths of P."""

    found: dict[str, Any]
    labels: Labels
    calibration: Calibration
    measures: Sequence[str]
    captions: Captions
    pairs: ValuedPairs
    duplicates: Sequence[Sequence[int]]
    equal: Sequence[Sequence[int]]
    low: np.ndarray | None
    errors: Mapping[str, Errors]
    by_tenth: Sequence[float]


def accepted(one: Mapping[str, Any]) -> str:
    """How many of some pairs people accept, per image or caption."""
    if one["accepted"] is None:
        return f"at most {one['high']:.2f}"
    return f"{one['accepted']:.2f} ({one['low']:.2f} to {one['high']:.2f})"


def _band(found: dict[str, Any], page: bool = False) -> tuple[str, str]:
    """How many captions beside their own people accept, and how much of that is not likely; of a
    page with a short figure."""
    one, half = found["accepted_captions_per_image"], f"{LIKELY:g}".lstrip("0")
    least, most = f"{one['at_least'] or 0:.2f}", f"{one['at_most']:.2f}"
    figure = f"Up to {most}"
    if least != "0.00":
        figure = f"{least} to {most}" if page else f"At least {least} and at most {most}"
    said = (
        f"captions per image beside their own are right too, up to {one['below_half']:.2f} of them"
        " with P below "
    )
    return figure, f"{said}{half}."


def _likely_line(found: dict[str, Any]) -> str:
    one, half = found["likely_captions_per_image"], f"{LIKELY:g}".lstrip("0")
    said = (
        f"{one['pairs']:.2f} captions per image are likely positives, P at least {half}, beside"
        " the "
    )
    return (
        f"{said}{found['given_captions_per_image']:.2f} own captions. People would accept"
        f" {accepted(one)} of them."
    )


def answers(found: dict[str, Any]) -> list[str]:
    """What the audit found, in a line each: captions that are right, likely positives, suspects, a
    model's errors."""
    kind = found["calibration"]
    learnt = f"P was learnt from {kind['sampling']} pairs"
    if kind["references"]:
        learnt += f", with {kind['references']} caption{'s' * (kind['references'] > 1)} an image"
    lines = [f"{' '.join(_band(found))} ({learnt}.)", _likely_line(found)]
    if found["suspect_pairs"] is None:
        lines.append(f"Captions that fit nothing are not known: {found['suspects_unknown']}.")
    else:
        fit = "caption fits" if found["suspect_pairs"] == 1 else "captions fit"
        lines.append(
            f"{found['suspect_pairs']:,} own {fit} nothing, by the other captions of their image."
        )
    if "model" in found:
        said = [
            f"{one['likely']['share']:.1%} of {one['errors']:,.0f} {_DIRECTIONS[way]} (R@1"
            f" {one['recall']:.1%}, with these {one['likely']['recall']:.1%})"
            for way, one in found["model"].items()
        ]
        lines.append(f"Likely positives are among the model's R@1 errors: {'; '.join(said)}.")
        if found["model_order"]:
            lines.append(_order_line(found))
    return lines


def _order_line(found: dict[str, Any]) -> str:
    return f"The model's scores are {found['model_order']}."


def sections(audited: Audited, thumbnails: PageThumbnails) -> list[PageSection]:
    """The answer; then what to look at: likely pairs first, then how many there are; these two are
    open."""
    first = PageSection("opening", "", "", [Headline(*_band(audited.found, page=True))])
    model = [_model(audited, thumbnails)] if audited.errors else []
    lists = [_duplicates(audited), _suspects(audited), _figures(audited)]
    return [first, _likely(audited, thumbnails), _trust(audited), *model, *lists]


def _trust(audited: Audited) -> PageSection:
    kind = audited.found["calibration"]
    said = _MEANING.format(
        measure=audited.measures[0],
        likely=LIKELY,
        which="these very" if kind["same_captions"] else "other",
        **kind,
    )
    if kind["references"]:
        said += f"There each image had {kind['references']} of its captions. "
    if kind["likely_from"] is not None:
        said += f"P is {LIKELY:g} at the value {kind['likely_from']:.3f}. "
    said += OF_RANDOM if audited.calibration.random else OF_CHOSEN
    notes = [Note(said), *([Note(SAMPLED)] if audited.labels.stored.sampled else [])]
    charts = _by_p(audited), _reliability(audited)
    return PageSection(
        "trust", "How many, and how far to trust P", "", [*charts, *notes], open=True
    )


def _by_p(audited: Audited) -> Chart:
    """Bars of tenths of P; improbable pairs, far more than all others, are said in words."""
    kinds = ["less likely", f"likely: P at least {LIKELY:g}"]
    values = [
        {"P": f"{k / 10:.1f} to {(k + 1) / 10:.1f}", "captions": n, "kind": kinds[k / 10 >= LIKELY]}
        for k, n in enumerate(audited.by_tenth)
    ]
    widest = {"domain": [0, 1.2 * max(audited.by_tenth[1:]) or 1], "nice": False}  # and its number
    x, y = (
        of("captions:Q", title="captions per image", scale=widest),
        of("P:N", title="P", sort="descending"),
    )
    colour = of("kind:N", title=None, scale={"domain": kinds[::-1]})
    bars = layer("bar", x, y, color=colour, tip=["P:N", "captions:Q:.3f"])
    numbers = layer("text", x, y, text=of("captions:Q:.2f"), of_mark={"align": "left", "dx": 4})
    told = "Captions of other images per image, by the probability P that a person accepts them: "
    told += ", ".join(f"{row['P']}: {row['captions']:.2f}" for row in values[1:]) + "."
    title = f"Other captions per image by P ({audited.by_tenth[0]:,.0f} more have P below 0.1)"
    return chart("by-p", title, told, values[1:], bars, numbers, height=210)


def _reliability(audited: Audited) -> Chart:
    curve, measure = audited.calibration.curves[audited.measures[0]], audited.measures[0]
    unit = {"domain": [0, 1]}
    x, y = (
        of("predicted:Q", title="P", scale=unit),
        of("accepted:Q", title="share that people accepted", scale=unit),
    )
    ends = rows([{"predicted": 0.0, "accepted": 0.0}, {"predicted": 1.0, "accepted": 1.0}])
    equal = layer("line", x, y, of_mark={"strokeDash": [4, 4], "aria": False, "style": "mean"})
    tip = ["predicted:Q:.2f", "accepted:Q:.2f", "pairs:Q"]
    dots = layer("line", x, y, tip=tip, of_mark={"point": True, "aria": False})
    told = (
        f"Reliability of P by {measure}, on images that it was not learnt from: expected error"
        f" {curve.ece:.3f}."
    )
    chosen = (
        ""
        if audited.calibration.random
        else ", on pairs chosen alike; it says nothing of all others"
    )
    title = f"How far to trust P: its expected error is {curve.ece:.3f}{chosen}"
    return chart(
        "reliability", title, told, curve.reliability, {**equal, "data": ends}, dots, height=210
    )


def _likely(audited: Audited, thumbnails: PageThumbnails) -> PageSection:
    fits = _fits(audited, audited.pairs, audited.measures, thumbnails, _SHOWN)
    intro = (
        "The likeliest first: a caption of another image, with the image. P is the probability that"
        " a person accepts it. A caption of several images stands once; one that the image's own"
        " captions have too is left out. All likely pairs are in likely.csv."
    )
    least = [LIKELY, 0.6, 0.7, 0.8, 0.9]
    parts: list[Part] = [Fits(fits, audited.measures, least)]
    if not fits:
        listed = len(audited.pairs.image)
        same = (
            f"All {listed:,} likely pairs are of captions that the image's own captions have too."
        )
        parts = [Note(same if listed else "No pair is likely.")]
    elif not thumbnails.pictures:
        parts.insert(0, Note(_NO_PICTURES))
    return PageSection("likely", "Likely false negatives", intro, parts, open=True)


def _fits(
    audited: Audited,
    pairs: ValuedPairs,
    measures: Sequence[str],
    thumbnails: PageThumbnails,
    most: int,
) -> list[Fit]:
    """One per image and text, the likeliest first; P by each measure that has the pair."""
    captions, chosen = audited.captions, distinct(pairs, audited.captions)[:most]
    some = pairs.take(np.array([k for k, _ in chosen], np.int64))
    values = {measures[0]: some.value} | {
        m: values_of(audited.labels, m, some) for m in measures[1:]
    }
    p = {
        measure: audited.calibration.curves[measure].probability(v) for measure, v in values.items()
    }
    fits, rows = [], zip(some.image.tolist(), some.caption.tolist(), chosen, strict=True)
    for row, (image, caption, (_, times)) in enumerate(rows):
        id, own = captions.image_ids[image], [captions.texts[c] for c in captions.rows_of(image)]
        shown = ExampleItem(id, own[0], thumbnails.uri(id, _SIDE), link=thumbnails.link(id))
        known = {
            measure: round(float(found[row]), 4)
            for measure, found in p.items()
            if np.isfinite(found[row])
        }
        whose = captions.image_ids[captions.owner[caption]], captions.caption_ids[caption]
        fits.append(Fit(shown, captions.texts[caption], own, known, times, *whose))
    return fits


def values_of(labels: Labels, measure: str, wanted: ValuedPairs) -> np.ndarray:
    """float32 [n]: of a few pairs; NaN where shards did not keep one."""
    pairs = zip(wanted.image[:, None], wanted.caption[:, None], strict=True)
    cells = [labels.stored.block(*pair, measure) for pair in pairs]
    return np.array(
        [one.relevance[0, 0] if one.known[0, 0] else np.nan for one in cells], np.float32
    )


def _model(audited: Audited, thumbnails: PageThumbnails) -> PageSection:
    found = audited.found["model"]
    intro = (
        "An R@1 error is a query whose first item is not its own. Some of them are likely"
        " positives: with these counted as right, R@1 is higher."
    )
    if min(one["known"] for one in found.values()) < 1:
        intro += (
            " Errors whose pair the shards did not keep are estimated from the others by their"
            " weights."
        )
    heads = ["direction", "R@1", "errors", "of them likely", "R@1 with these"]
    lines = [
        [
            _DIRECTIONS[way],
            share(one["recall"]),
            round(one["errors"]),
            *map(share, one["likely"].values()),
        ]
        for way, one in found.items()
    ]
    if all(one["at_least"] for one in found.values()):
        intro += (
            " How many errors people accept in all is told as “at least”: P is of all pairs of a"
            " value, and a model that sees the picture ranks first what people accept more often."
        )
        heads += ["accepted at least", "R@1 at least"]
        for line, one in zip(lines, found.values(), strict=True):
            line += map(share, one["at_least"].values())
    fits = _fits(audited, audited.errors["i2t"].likely(), audited.measures[:1], thumbnails, _ERRORS)
    parts: list[Part] = [Note(_order_line(audited.found))] if audited.found["model_order"] else []
    parts.append(PageTable("R@1 errors that are likely positives", heads, lines))
    if fits:
        parts += [Note(f"The {len(fits)} likeliest of them, image to caption:")]
        parts += [Fits(fits, audited.measures[:1], [LIKELY])]
    return PageSection("model", "What the model's errors are worth", intro, parts)


def _duplicates(audited: Audited) -> PageSection:
    captions = audited.captions
    intro = (
        "Images of which each would take every caption of the other: the same picture, or nearly."
        " Those that others join stand in one row. Below them, texts that captions of several"
        " images share."
    )
    first = captions.refs[captions.ref_ptr[:-1]]
    images: list[list[Value]] = []
    for group in audited.duplicates[:_LISTED]:
        two = [_words(captions.texts[first[k]]) for k in group[:2]]
        images.append([len(group), first_of([captions.image_ids[k] for k in group], _FEW), *two])
    heads = ("images", "ids", "first caption of the first", "of the second")
    texts: list[list[Value]] = []
    for same in audited.equal[:_LISTED]:
        ids = list(dict.fromkeys(captions.image_ids[captions.owner[row]] for row in same))
        texts.append([len(ids), _words(captions.texts[same[0]]), first_of(ids, _FEW)])
    more = len(audited.equal) > _LISTED
    title = (
        "Captions of several"
        f" images{f', the first {_LISTED} of {len(audited.equal):,}' if more else ''}"
    )
    parts: list[Part] = [
        (
            PageTable("Near-duplicates", heads, images)
            if images
            else Note("No near-duplicate images were found.")
        ),
        (
            PageTable(title, ("images", "caption", "ids"), texts, folded=len(texts) > _FEW)
            if texts
            else Note("No two images share a caption.")
        ),
    ]
    return PageSection("duplicates", "Near-duplicates", intro, parts)


def _words(caption: str) -> str:
    """A caption's beginning: a table is as wide as its cells."""
    return shorten(caption, _LONGEST, placeholder=" …")


def _suspects(audited: Audited) -> PageSection:
    captions = audited.captions
    lines = []
    for c in [] if audited.low is None else audited.low[:_LISTED].tolist():
        other = next(r for r in captions.rows_of(captions.owner[c]) if r != c)
        lines.append(
            [captions.caption_ids[c], _words(captions.texts[c]), _words(captions.texts[other])]
        )
    part: Part = Note("None was found.")
    if audited.low is None:
        part = Note(f"Not known: {audited.found['suspects_unknown']}.")
    elif lines:
        part = PageTable(
            "Suspect captions", ("caption", "text", "another caption of its image"), lines
        )
    intro = (
        "Captions that their image's other captions do not bear out: wrong pairs, or odd captions."
        " The worst first."
    )
    return PageSection("suspects", "Own captions that fit nothing", intro, [part])


def _figures(audited: Audited) -> PageSection:
    found = audited.found
    suspects, images = found["suspect_pairs"], found["likely_images_per_caption"]
    right = found["accepted_captions_per_image"]
    least = "not known" if right["at_least"] is None else f"{right['at_least']:.2f}"
    facts = {
        "captions per image beside their own that are right, at least": least,
        "at most": f"{right['at_most']:.2f}",
        f"at most, with P below {LIKELY:g}": f"{right['below_half']:.2f}",
        "likely captions per image": f"{found['likely_captions_per_image']['pairs']:.2f}",
        "of these accepted by people": accepted(found["likely_captions_per_image"]),
        "likely images per caption": f"{images['pairs']:.2f}",
        "of these images accepted": accepted(images),
        "likely pairs, all listed in likely.csv": f"{found['likely_pairs']:,}",
        "near-duplicate pairs of images": f"{found['near_duplicates']:,}",
        "own captions that fit nothing": "not known" if suspects is None else f"{suspects:,}",
    }
    parts: list[Part] = [Facts(facts)]
    if found["bands"]:
        lines = [
            [f"{one['from']:g} to {one['to']:g}", f"{one['pairs']:.2f}", accepted(one)]
            for one in found["bands"]
        ]
        heads = ("P", "captions per image", "of these accepted")
        parts.append(PageTable("All other captions of an image, by P", heads, lines))
    return PageSection(
        "figures", "All figures", "Own captions are not counted among likely ones.", parts
    )
