"""The audit's page: the answer, the likely positives to look at, and how far the probabilities
hold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

import numpy as np

from capgrade.agreement.calibration import Calibration
from capgrade.apps.audit.errors import ModelErrors
from capgrade.apps.audit.findings import EVERY
from capgrade.apps.audit.lists import select_distinct
from capgrade.apps.page.charts import channel, inline_data, make_chart, make_layer
from capgrade.apps.page.parts import (
    Answers,
    Chart,
    Facts,
    LikelyPair,
    LikelyPairs,
    Note,
    PageSection,
    PageTable,
    Part,
    ShownImage,
    Value,
    format_percent,
    share_cell,
)
from capgrade.apps.page.thumbnails import PageThumbnails
from capgrade.labels import Labels
from capgrade.lists import LIKELY
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import first_names
from capgrade.schemas.judges import CHOSEN, RANDOM
from capgrade.schemas.pairs import Pairs

_DIRECTIONS = {"i2t": "image to caption", "t2i": "caption to image"}
_SHOWN, _ERRORS = 100, 20  # likely pairs and errors that are shown
_FEW_RIGHT = 100  # pairs, below which expected numbers have a decimal
_LISTED = 500  # rows of a table
_SIDE = 240  # pixels of a picture
_FEW = 4  # ids in a cell, and rows of a table that is open at first
_LONGEST = 52  # characters of a caption in a table
_MEANING = (
    "A likely positive is a caption of another image that a person accepts with a probability P of"
    " at least {likely:g}. To accept is to give a score of at least {accept:g} on a scale from"
    " {low:g} to {high:g}. P at each value of the measure “{measure}” was learnt from {pairs:,}"
    " judged pairs of {which} captions: {file}. "
)
OF_RANDOM = "Any pair was as likely to be judged, so P holds for all pairs. Intervals are 95%."
RATHER_TOO_HIGH = (
    "People accept more of pairs that were chosen for being alike than of other pairs with the same"
    " value, so P is rather too high."
)
OF_CHOSEN = f"The judged pairs were chosen. {RATHER_TOO_HIGH}"
_SAMPLED_HOW = {
    EVERY: "which are all there are.",
    RANDOM: "drawn at random, so this holds for all pairs. Intervals are 95%.",
    CHOSEN: (
        "which somebody chose. How many of the other pairs are right is not known. Intervals are"
        " 95%."
    ),
}
SAMPLED = (
    "Lists have the pairs that the shards kept; counts of pairs are estimated by their weights."
)
_NO_PICTURES = "No pictures were given (--images): captions stand for images."


@dataclass(frozen=True)
class AuditResult:
    """What an audit found, and the inputs that its page shows."""

    figures: dict[str, Any]  # as `audit` returns them
    labels: Labels
    calibration: Calibration
    measures: Sequence[str]  # the audit's comes first
    captions: Captions
    likely_pairs: Pairs
    duplicates: Sequence[Sequence[int]]  # groups of near-duplicate images
    equal_captions: Sequence[Sequence[int]]  # rows of captions that several images share
    suspects: np.ndarray | None  # rows of own captions that fit nothing
    errors: Mapping[str, ModelErrors]  # by direction; empty without a model
    by_tenth: Sequence[float]  # captions per image by tenths of P


def _format_accepted(mean: Mapping[str, Any]) -> str:
    """How many of some pairs people accept, per image or caption."""
    if mean["accepted"] is None:
        return f"at most {mean['high']:.2f}"
    return f"{mean['accepted']:.2f} ({mean['low']:.2f} to {mean['high']:.2f})"


def _count(pairs: float, decimals: int = 0) -> str:
    return f"{pairs:,.{decimals}f}"


def _interval(share: Mapping[str, Any]) -> str:
    """A share's interval in brackets, where it has one."""
    if share["low"] is None:
        return ""
    return f" ({100 * share['low']:.1f} to {100 * share['high']:.1f}%)"


def answers(figures: dict[str, Any]) -> list[tuple[str, str]]:
    """What a person asks first, as figures with the sentences that go on from them: how many pairs
    are listed, what share of them is right, and what share of all that is right is listed. A share
    that is not known is left out."""
    findings, judged_by = figures["judged"] or figures["expected"], figures["judgements"]
    listed, n_images, half = findings["listed"], figures["images"], f"{LIKELY:g}".lstrip("0")
    text = (
        f"{'pair is' if listed == 1 else 'pairs are'} listed, {listed / n_images:.2f} an image:"
        f" captions of other images that a person probably accepts, P at least {half}."
    )
    found = [(f"{listed:,}", text)]
    about = "" if judged_by is not None else "about "
    # Few expected pairs are no whole numbers, and what is printed adds up.
    decimals = 1 if findings["all_right"] < _FEW_RIGHT and about else 0
    right_pairs, missed = (round(findings[key], decimals) for key in ("right", "missed"))
    right = f"{about}{_count(right_pairs, decimals)}"
    whose, of_all = "of the listed pairs are right", "of all right pairs are listed"
    is_sample = judged_by is not None and judged_by["sampling"] != EVERY
    if judged_by is not None and judged_by["sampling"] == CHOSEN:
        whose = "of the listed pairs that were judged are right"
        of_all = "of the judged pairs that are right are listed"
    if share := findings["share_right"]:
        text = f"{whose}: {right} of {_count(findings['examined'])}{_interval(share)}."
        found.append((f"{about}{format_percent(share['share'])}", text))
    if share := findings["share_found"]:
        of = f"{about}{_count(right_pairs + missed, decimals)}"
        text = f"{of_all}: {right} of {of}{_interval(share)}."
        text += f" The list misses {about}{_count(missed, decimals)}"
        text += "." if is_sample else f", {missed / n_images:.2f} an image."
        found.append((f"{about}{format_percent(share['share'])}", text))
    return found


def how_known(figures: dict[str, Any]) -> str:
    """The sentences that say who knows what is right."""
    judged_by, calibration = figures["judgements"], figures["calibration"]
    if judged_by is None:
        images = f", where images had {calibration['references']} captions"
        text = (
            "Nobody judged these pairs: what is right is expected from P, which was learnt from"
            f" {calibration['sampling']} pairs of {calibration['file']}"
            f"{images if calibration['references'] else ''}."
        )
        return text if calibration["sampling"] == RANDOM else f"{text} {RATHER_TOO_HIGH}"
    bar = f"{judged_by['accept']:g} on a scale of {judged_by['low']:g} to {judged_by['high']:g}"
    if judged_by["truth"]:
        return f"The truth of the scenes says what is right: a true relevance of at least {bar}."
    text = (
        f"{judged_by['file']} says what is right: a score of at least {bar}. It has"
        f" {judged_by['pairs']:,} pairs of other captions, "
    )
    none = "" if figures["judged"]["share_right"] else " None of the listed pairs is among them."
    return text + _SAMPLED_HOW[judged_by["sampling"]] + none


def summary_lines(figures: dict[str, Any]) -> list[str]:
    """The audit's findings, one line each: the list and how good it is, suspects, a model's
    errors."""
    lines = [" ".join(answer) for answer in answers(figures)]
    lines = [line[0].upper() + line[1:] for line in [*lines, how_known(figures)]]
    if figures["suspect_pairs"] is None:
        lines.append(f"Captions that fit nothing are not known: {figures['suspects_unknown']}.")
    else:
        fit = "caption fits" if figures["suspect_pairs"] == 1 else "captions fit"
        lines.append(
            f"{figures['suspect_pairs']:,} own {fit} nothing, by the other captions of their image."
        )
    if "model" in figures:
        shares = [
            f"{errors['likely']['share']:.1%} of {errors['errors']:,.0f}"
            f" {_DIRECTIONS[direction]} (R@1 {errors['recall']:.1%}, with these"
            f" {errors['likely']['recall']:.1%})"
            for direction, errors in figures["model"].items()
        ]
        lines.append(f"Likely positives are among the model's R@1 errors: {'; '.join(shares)}.")
        if figures["model_order"]:
            lines.append(_order_line(figures))
    return lines


def _order_line(figures: dict[str, Any]) -> str:
    return f"The model's scores are {figures['model_order']}."


def page_sections(result: AuditResult, thumbnails: PageThumbnails) -> list[PageSection]:
    """The answer, then the likely pairs and how many there are, which are open; then the others."""
    parts: list[Part] = [
        Answers(answers(result.figures)),
        Note(how_known(result.figures), small=True),
    ]
    opening = PageSection("opening", "", "", parts)
    model = [_model(result, thumbnails)] if result.errors else []
    lists = [_duplicates(result), _suspects(result), _figures(result)]
    return [opening, _likely(result, thumbnails), _trust(result), *model, *lists]


def _trust(result: AuditResult) -> PageSection:
    calibration = result.figures["calibration"]
    explanation = _MEANING.format(
        measure=result.measures[0],
        likely=LIKELY,
        which="these very" if calibration["same_captions"] else "other",
        **calibration,
    )
    if calibration["references"]:
        explanation += f"There each image had {calibration['references']} of its captions. "
    if calibration["likely_from"] is not None:
        explanation += f"P is {LIKELY:g} at the value {calibration['likely_from']:.3f}. "
    explanation += OF_RANDOM if result.calibration.random else OF_CHOSEN
    notes = [Note(explanation), *([Note(SAMPLED)] if result.labels.stored.sampled else [])]
    charts = _by_p(result), _reliability(result)
    return PageSection(
        "trust", "How many, and how far to trust P", "", [*charts, *notes], open=True
    )


def _by_p(result: AuditResult) -> Chart:
    """Bars of tenths of P. The title has the pairs of the lowest tenth: their bar would leave no
    space for the others."""
    kinds = ["less likely", f"likely: P at least {LIKELY:g}"]
    values = [
        {"P": f"{k / 10:.1f} to {(k + 1) / 10:.1f}", "captions": n, "kind": kinds[k / 10 >= LIKELY]}
        for k, n in enumerate(result.by_tenth)
    ]
    # The longest bar leaves space for its number.
    scale = {"domain": [0, 1.2 * max(result.by_tenth[1:]) or 1], "nice": False}
    x = channel("captions:Q", title="captions per image", scale=scale)
    y = channel("P:N", title="P", sort="descending")
    colour = channel("kind:N", title=None, scale={"domain": kinds[::-1]})
    bars = make_layer("bar", x, y, color=colour, tip=["P:N", "captions:Q:.3f"])
    numbers = make_layer(
        "text", x, y, text=channel("captions:Q:.2f"), mark_options={"align": "left", "dx": 4}
    )
    alt = "Captions of other images per image, by the probability P that a person accepts them: "
    alt += ", ".join(f"{row['P']}: {row['captions']:.2f}" for row in values[1:]) + "."
    title = f"Other captions per image by P ({result.by_tenth[0]:,.0f} more have P below 0.1)"
    return make_chart("by-p", title, alt, values[1:], bars, numbers, height=210)


def _reliability(result: AuditResult) -> Chart:
    measure = result.measures[0]
    curve = result.calibration.curves[measure]
    unit = {"domain": [0, 1]}
    x = channel("predicted:Q", title="P", scale=unit)
    y = channel("accepted:Q", title="share that people accepted", scale=unit)
    ends = inline_data([{"predicted": 0.0, "accepted": 0.0}, {"predicted": 1.0, "accepted": 1.0}])
    diagonal = make_layer(
        "line", x, y, mark_options={"strokeDash": [4, 4], "aria": False, "style": "mean"}
    )
    tip = ["predicted:Q:.2f", "accepted:Q:.2f", "pairs:Q"]
    dots = make_layer("line", x, y, tip=tip, mark_options={"point": True, "aria": False})
    alt = (
        f"Reliability of P by {measure}, on images that it was not learnt from: expected error"
        f" {curve.ece:.3f}."
    )
    title = f"How far to trust P: its expected error is {curve.ece:.3f}"
    if not result.calibration.random:
        title += ", on pairs chosen alike; it says nothing of all others"
    return make_chart(
        "reliability", title, alt, curve.reliability, {**diagonal, "data": ends}, dots, height=210
    )


def _likely(result: AuditResult, thumbnails: PageThumbnails) -> PageSection:
    pairs = result.likely_pairs
    distinct = select_distinct(pairs, result.captions)
    likely_pairs = _likely_pairs(result, pairs, distinct[:_SHOWN], result.measures, thumbnails)
    intro = (
        "The likeliest first, with the image that a caption may fit and the one that it was written"
        " for. P is the probability that a person accepts it. All are in likely.csv. Served by"
        " capgrade explore --audit, the page takes accept and reject."
    )
    least = [LIKELY, 0.6, 0.7, 0.8, 0.9]
    parts: list[Part] = [LikelyPairs(likely_pairs, result.measures, least)]
    listed = len(pairs.image)
    no_news = listed - sum(times for _, times in distinct)
    if not likely_pairs:
        same = (
            f"All {listed:,} likely pairs are of captions that the image's own captions have too."
        )
        parts = [Note(same if listed else "No pair is likely.")]
    elif no_news:
        intro += (
            f" {no_news:,} of the {listed:,} listed pairs are left out here: the image's own"
            " captions have the same text."
        )
    if likely_pairs and not thumbnails.pictures:
        parts.insert(0, Note(_NO_PICTURES, small=True))
    return PageSection("likely", "Likely false negatives", intro, parts, open=True)


def _likely_pairs(
    result: AuditResult,
    pairs: Pairs,
    chosen: Sequence[tuple[int, int]],
    measures: Sequence[str],
    thumbnails: PageThumbnails,
) -> list[LikelyPair]:
    """Those of the pairs that `select_distinct` chose; P by each measure that has the pair."""
    captions = result.captions
    chosen_pairs = pairs.take(np.array([k for k, _ in chosen], np.int64))
    values = {measures[0]: chosen_pairs.value} | {
        m: few_values(result.labels, m, chosen_pairs) for m in measures[1:]
    }
    p = {
        measure: result.calibration.curves[measure].probability(v) for measure, v in values.items()
    }
    likely_pairs = []
    images, rows = chosen_pairs.image.tolist(), chosen_pairs.caption.tolist()
    for row, (image, caption, (_, times)) in enumerate(zip(images, rows, chosen, strict=True)):
        p_of_pair = {
            measure: round(float(probabilities[row]), 4)
            for measure, probabilities in p.items()
            if np.isfinite(probabilities[row])
        }
        shown, other = (
            _shown_image(captions, k, thumbnails) for k in (image, int(captions.owner[caption]))
        )
        said = captions.caption_ids[caption], captions.texts[caption]
        likely_pairs.append(LikelyPair(shown, other, *said, p_of_pair, times))
    return likely_pairs


def _shown_image(captions: Captions, image: int, thumbnails: PageThumbnails) -> ShownImage:
    image_id = captions.image_ids[image]
    return ShownImage(
        image_id,
        [captions.texts[row] for row in captions.rows_of(image)],
        thumbnails.uri(image_id, _SIDE),
        thumbnails.link(image_id),
    )


def few_values(labels: Labels, measure: str, wanted: Pairs) -> np.ndarray:
    """float32 [n]: the measure's values of a few pairs, NaN of pairs that shards did not keep."""
    pairs = zip(wanted.image[:, None], wanted.caption[:, None], strict=True)
    blocks = [labels.stored.block(*pair, measure) for pair in pairs]
    return np.array(
        [block.relevance[0, 0] if block.known[0, 0] else np.nan for block in blocks], np.float32
    )


def _model(result: AuditResult, thumbnails: PageThumbnails) -> PageSection:
    by_direction = result.figures["model"]
    intro = (
        "An R@1 error is a query whose first item is not its own. Some of them are likely"
        " positives: with these counted as right, R@1 is higher."
    )
    if min(errors["known"] for errors in by_direction.values()) < 1:
        intro += (
            " Errors whose pair the shards did not keep are estimated from the others by their"
            " weights."
        )
    heads = ["direction", "R@1", "errors", "of them likely", "R@1 with these"]
    lines = [
        [
            _DIRECTIONS[direction],
            share_cell(errors["recall"]),
            round(errors["errors"]),
            *map(share_cell, errors["likely"].values()),
        ]
        for direction, errors in by_direction.items()
    ]
    if all(errors["at_least"] for errors in by_direction.values()):
        intro += (
            " How many errors people accept in all is told as “at least”: P is of all pairs of a"
            " value, and a model that sees the picture ranks first what people accept more often."
        )
        heads += ["accepted at least", "R@1 at least"]
        for line, errors in zip(lines, by_direction.values(), strict=True):
            line += map(share_cell, errors["at_least"].values())
    pairs = result.errors["i2t"].likely()
    chosen = select_distinct(pairs, result.captions)[:_ERRORS]
    likely_pairs = _likely_pairs(result, pairs, chosen, result.measures[:1], thumbnails)
    parts: list[Part] = [Note(_order_line(result.figures))] if result.figures["model_order"] else []
    parts.append(PageTable("R@1 errors that are likely positives", heads, lines))
    if likely_pairs:
        parts += [Note(f"The {len(likely_pairs)} likeliest of them, image to caption:")]
        parts += [LikelyPairs(likely_pairs, result.measures[:1], [LIKELY])]
    return PageSection("model", "What the model's errors are worth", intro, parts)


def _duplicates(result: AuditResult) -> PageSection:
    captions = result.captions
    intro = (
        "Images of which each would take every caption of the other: the same picture, or nearly."
        " Those that others join stand in one row. Below them, texts that captions of several"
        " images share."
    )
    first = captions.refs[captions.ref_ptr[:-1]]
    images: list[list[Value]] = []
    for group in result.duplicates[:_LISTED]:
        first_captions = [_words(captions.texts[first[k]]) for k in group[:2]]
        images.append(
            [len(group), first_names([captions.image_ids[k] for k in group], _FEW), *first_captions]
        )
    heads = ("images", "ids", "first caption of the first", "of the second")
    texts: list[list[Value]] = []
    for same in result.equal_captions[:_LISTED]:
        ids = list(dict.fromkeys(captions.image_ids[captions.owner[row]] for row in same))
        texts.append([len(ids), _words(captions.texts[same[0]]), first_names(ids, _FEW)])
    more = len(result.equal_captions) > _LISTED
    title = (
        "Captions of several"
        f" images{f', the first {_LISTED} of {len(result.equal_captions):,}' if more else ''}"
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
    """A caption's beginning, short enough for a table to stay narrow."""
    return shorten(caption, _LONGEST, placeholder=" …")


def _suspects(result: AuditResult) -> PageSection:
    captions = result.captions
    lines = []
    for c in [] if result.suspects is None else result.suspects[:_LISTED].tolist():
        other = next(r for r in captions.rows_of(captions.owner[c]) if r != c)
        lines.append(
            [captions.caption_ids[c], _words(captions.texts[c]), _words(captions.texts[other])]
        )
    part: Part = Note("None was found.")
    if result.suspects is None:
        part = Note(f"Not known: {result.figures['suspects_unknown']}.")
    elif lines:
        part = PageTable(
            "Suspect captions", ("caption", "text", "another caption of its image"), lines
        )
    intro = (
        "Captions that their image's other captions do not bear out: wrong pairs, or odd captions."
        " The worst first."
    )
    return PageSection("suspects", "Own captions that fit nothing", intro, [part])


def _figures(result: AuditResult) -> PageSection:
    figures = result.figures
    suspects, images = figures["suspect_pairs"], figures["likely_images_per_caption"]
    bounds, expected = figures["accepted_captions_per_image"], figures["expected"]
    least, n_images = bounds["at_least"], figures["images"]
    facts = {
        "listed pairs, all in likely.csv": f"{figures['likely_pairs']:,}",
        "of these right, as P expects": _count(expected["right"]),
        "right pairs in all, as P expects": _count(expected["all_right"]),
        "the same per image, beside own captions": f"{expected['all_right'] / n_images:.2f}",
        "its lower bound": "not known" if least is None else f"{least:.2f}",
        "its upper bound": f"{bounds['at_most']:.2f}",
        f"upper bound of those with P below {LIKELY:g}": f"{bounds['below_half']:.2f}",
        "likely captions per image": f"{figures['likely_captions_per_image']['pairs']:.2f}",
        "of these accepted by people": _format_accepted(figures["likely_captions_per_image"]),
        "likely images per caption": f"{images['pairs']:.2f}",
        "of these images accepted": _format_accepted(images),
        "near-duplicate pairs of images": f"{figures['near_duplicates']:,}",
        "own captions that fit nothing": "not known" if suspects is None else f"{suspects:,}",
    }
    parts: list[Part] = [Facts(facts)]
    if figures["bands"]:
        lines = [
            [f"{band['from']:g} to {band['to']:g}", f"{band['pairs']:.2f}", _format_accepted(band)]
            for band in figures["bands"]
        ]
        heads = ("P", "captions per image", "of these accepted")
        parts.append(PageTable("All other captions of an image, by P", heads, lines))
    return PageSection(
        "figures", "All figures", "Own captions are not counted among likely ones.", parts
    )
