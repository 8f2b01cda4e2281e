"""What to look at: likely false negatives, images that are near-duplicates, captions that fit
nothing.

The folder beside an audit's page has these lists as CSV, and all positives as `evaluate` reads
them.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from capgrade.agreement.curve import Curve
from capgrade.labels.stored import ValuedPairs
from capgrade.lists import LIKELY
from capgrade.schemas.captions import Captions
from capgrade.schemas.files import write_json, write_text
from capgrade.schemas.lines import csv_text

SUSPECT = 1.0  # of 5: expected human score of an own caption that fits nothing
_KIND = "positives"
LIKELY_FILE, SUSPECTS_FILE, DUPLICATES_FILE = "likely.csv", "suspects.csv", "duplicates.csv"
POSITIVES_FILE = "positives.json"
_COLUMNS = {
    LIKELY_FILE: ("image_id", "caption_id", "value", "expected_score", "accepted", "caption"),
    SUSPECTS_FILE: ("image_id", "caption_id", "value", "expected_score", "caption"),
    DUPLICATES_FILE: ("group", "image_id", "captions"),
}


def likely(pairs: ValuedPairs, curve: Curve) -> ValuedPairs:
    """The pairs that more people accept than not."""
    return pairs.take(curve.probability(pairs.value) >= LIKELY)


def falling(parts: Iterable[ValuedPairs]) -> ValuedPairs:
    """One table, the highest value first."""
    whole = ValuedPairs.joined(parts)
    return whole.take(np.lexsort((whole.caption, whole.image, -whole.value)))


def near_duplicates(pairs: ValuedPairs, captions: Captions) -> list[tuple[int, int]]:
    """Pairs of images, each of which would take every caption of the other."""
    n, sizes = captions.n_images, np.diff(captions.ref_ptr)
    code, taken = np.unique(pairs.image * n + captions.owner[pairs.caption], return_counts=True)
    image, other = np.divmod(code, n)
    whole = taken == sizes[other]
    takes = set(zip(image[whole].tolist(), other[whole].tolist(), strict=True))
    return sorted((a, b) for a, b in takes if a < b and (b, a) in takes)


def distinct(pairs: ValuedPairs, captions: Captions) -> list[tuple[int, int]]:
    """Each image with each text once, but for those that one of its own captions has: the first row
    of the two, and how many rows say the same, in their order."""
    texts = [plain(text) for text in captions.texts]
    own = set(zip(captions.owner.tolist(), texts, strict=True))
    first: dict[tuple[int, str], list[int]] = {}
    for k, (image, caption) in enumerate(
        zip(pairs.image.tolist(), pairs.caption.tolist(), strict=True)
    ):
        if (image, texts[caption]) not in own:
            first.setdefault((image, texts[caption]), [k, 0])[1] += 1
    return [(row, count) for row, count in first.values()]


def plain(text: str) -> str:
    """A caption without what makes no other caption of it: case, spaces, the full stop at its
    end."""
    return " ".join(text.casefold().split()).rstrip(" .")


def groups(pairs: Iterable[tuple[int, int]], n_images: int) -> list[list[int]]:
    """Images that near-duplicates join, directly or by others, each image in one group; the largest
    group first."""
    linked = np.array(list(pairs), np.int64).reshape(-1, 2)
    table = coo_array((np.ones(len(linked)), (linked[:, 0], linked[:, 1])), (n_images, n_images))
    label = connected_components(table, directed=False)[1]
    members: dict[int, list[int]] = {}
    for image in np.unique(linked).tolist():
        members.setdefault(int(label[image]), []).append(image)
    return sorted(members.values(), key=lambda one: (-len(one), one))


def equal_captions(captions: Captions) -> list[list[int]]:
    """Captions of several images that say the same (`plain`): caption rows, the text of most images
    first."""
    same: dict[str, list[int]] = {}
    for row, text in enumerate(captions.texts):
        same.setdefault(plain(text), []).append(row)
    images = {
        text: len(set(captions.owner[rows].tolist()))
        for text, rows in same.items()
        if len(rows) > 1
    }
    several = sorted((-n, same[text]) for text, n in images.items() if n > 1)
    return [rows for _, rows in several]


def suspects(own: np.ndarray, curve: Curve) -> np.ndarray:
    """Captions whose expected human score with their own image, by its other captions, is below
    SUSPECT: rows, the lowest value first. Those of an image without other captions are not judged.
    """
    known = np.flatnonzero(np.isfinite(own))
    low = known[curve.expected(own[known]) < SUSPECT]
    return np.asarray(low[np.argsort(own[low], kind="stable")])


def write_lists(
    folder: Path,
    captions: Captions,
    curve: Curve,
    pairs: ValuedPairs,
    duplicates: Sequence[Sequence[int]],
    low: np.ndarray | None,
    own: np.ndarray | None,
) -> dict[str, int]:
    """The files of the folder: name -> number of rows. Likely pairs, the likeliest first; images of
    near-duplicates, groups counted from 1; where own values are known, the captions `low` that fit
    their image badly, the worst first; and the positives. No text becomes a formula in a
    spreadsheet."""
    scores, accepted = curve.expected(pairs.value), curve.probability(pairs.value)
    rows: dict[str, list[tuple[Any, ...]]] = {
        LIKELY_FILE: [
            (
                captions.image_ids[i],
                captions.caption_ids[c],
                f"{v:.4f}",
                f"{s:.3f}",
                f"{p:.4f}",
                captions.texts[c],
            )
            for i, c, v, s, p in zip(*pairs[:3], scores, accepted, strict=True)
        ],
        DUPLICATES_FILE: [
            (
                number,
                captions.image_ids[image],
                " | ".join(captions.texts[row] for row in captions.rows_of(image)),
            )
            for number, group in enumerate(duplicates, 1)
            for image in group
        ],
    }
    if low is not None and own is not None:
        image = captions.owner[low].tolist()
        rows[SUSPECTS_FILE] = [
            (
                captions.image_ids[i],
                captions.caption_ids[c],
                f"{own[c]:.4f}",
                f"{score:.3f}",
                captions.texts[c],
            )
            for i, c, score in zip(image, low.tolist(), curve.expected(own[low]), strict=True)
        ]
    for name, lines in rows.items():
        write_text(folder / name, csv_text(_COLUMNS[name], lines, "\r\n"))
    lists = {
        one: [captions.caption_ids[c] for c in captions.rows_of(i)]
        for i, one in enumerate(captions.image_ids)
    }
    for i, c in zip(pairs.image.tolist(), pairs.caption.tolist(), strict=True):
        lists[captions.image_ids[i]].append(captions.caption_ids[c])
    facts = {"kind": _KIND, "captions": captions.digest, "split": captions.split}
    write_json(folder / POSITIVES_FILE, {**facts, "image_to_caption": lists})
    return {**{name: len(lines) for name, lines in rows.items()}, POSITIVES_FILE: len(lists)}
