"""The audit's lists as sections of its page: a model's errors, likely false negatives, near-duplicates, suspects."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import shorten
from typing import Any

import numpy as np

from capgrade.pipelines.agreement.curve import Curve
from capgrade.pipelines.audit.candidates import Pairs
from capgrade.pipelines.audit.errors import Errors
from capgrade.pipelines.audit.lists import distinct, groups
from capgrade.pipelines.report.parts import Cell, Examples, Item, Note, Part, Ranking, Section, Table, count, text
from capgrade.pipelines.report.thumbnails import Thumbnails
from capgrade.schemas.captions import Captions

SHOWN, ERRORS, LISTED, SIDE = 100, 20, 500, 160
FEW = 4  # ids in a cell, and rows of a table that is open at first
LONGEST = 52  # characters of a caption in a table


def model_section(
    found: dict[str, Any], errors: Mapping[str, Errors], curve: Curve, captions: Captions, thumbnails: Thumbnails
) -> Section:
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
    parts: list[Part] = [Table("R@1 errors that are likely positives", heads, lines)]
    if rankings:
        parts += [Note(f"The {len(rankings)} likeliest of them, image to caption:")]
        parts += [Examples("P", rankings)]
    return Section("model", "What the model's errors are worth", intro, parts)


def likely_section(curve: Curve, captions: Captions, pairs: Pairs, thumbnails: Thumbnails) -> Section:
    rankings = _rankings(curve, captions, pairs, thumbnails, SHOWN)
    intro = (
        f"The {len(rankings)} likeliest of all: a caption of another image, then the image's own. The number is P, the "
        "probability that a person accepts the caption. A caption that several images have stands once, with how many; "
        "one that the image's own captions have too is left out."
    )
    parts: list[Part] = [Examples("P", rankings)] if rankings else [Note("No pair is more likely accepted than not.")]
    if rankings and not thumbnails.pictures:
        parts.insert(0, Note("No pictures were given (--images): the first caption of an image stands for it."))
    return Section("likely", "Likely false negatives", intro, parts)


def _rankings(curve: Curve, captions: Captions, pairs: Pairs, thumbnails: Thumbnails, most: int) -> list[Ranking]:
    """One per image and text, the likeliest first."""
    chosen = distinct(pairs, captions)[:most]
    return [_ranking(curve, captions, pairs, *one, f"{k}.", thumbnails) for k, one in enumerate(chosen, 1)]


def _ranking(
    curve: Curve, captions: Captions, pairs: Pairs, k: int, times: int, place: str, thumbnails: Thumbnails
) -> Ranking:
    image, caption = int(pairs.image[k]), int(pairs.caption[k])
    own = captions.refs[captions.ref_ptr[image] : captions.ref_ptr[image + 1]]
    share = float(curve.probability(pairs.value[k]))
    id = captions.image_ids[image]
    query = Item(id, captions.texts[own[0]], thumbnails.uri(id, SIDE), link=thumbnails.link(id))
    words = captions.texts[caption] + (f" ({times} captions say this)" if times > 1 else "")
    found = [Item(captions.caption_ids[caption], words, None, relevance=share)]
    found += [Item(captions.caption_ids[c], captions.texts[c], None, own=True) for c in own]
    return Ranking(query, found, "captions", place)


def duplicates_section(captions: Captions, found: list[tuple[int, int]], equal: list[list[int]]) -> Section:
    intro = (
        "Images of which each would take every caption of the other: the same picture, or nearly. Those that others "
        "join stand in one row. Below them, texts that captions of several images share."
    )
    return Section(
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
    return Table("Near-duplicates", heads, lines) if lines else Note("No near-duplicate images were found.")


def _same_texts(captions: Captions, equal: list[list[int]]) -> Part:
    lines = []
    for same in equal[:LISTED]:
        ids = list(dict.fromkeys(captions.image_ids[captions.owner[row]] for row in same))
        lines.append([count(len(ids)), _words(captions.texts[same[0]]), text(_few(ids))])
    heads = ("images", "caption", "ids")
    title = f"Captions of several images ({len(equal):,} texts)"
    return Table(title, heads, lines, folded=len(lines) > FEW) if lines else Note("No two images share a caption.")


def _words(caption: str) -> Cell:
    """A caption's beginning: a table is as wide as its cells."""
    return text(shorten(caption, LONGEST, placeholder=" …"))


def _few(ids: list[str]) -> str:
    more = len(ids) - FEW
    return ", ".join(ids[:FEW]) + (f" and {more} more" if more > 0 else "")


def suspects_section(captions: Captions, found: np.ndarray | None, unknown: str) -> Section:
    intro = "Captions that their image's other captions do not bear out: wrong pairs, or odd captions. The worst first."
    if found is None:
        return Section("suspects", "Given pairs that fit nothing", intro, [Note(f"Not known: {unknown}.")])
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
        Table("Suspect pairs", ("caption", "text", "another caption of its image"), lines)
        if lines
        else Note("None was found.")
    )
    return Section("suspects", "Given pairs that fit nothing", intro, [part])
