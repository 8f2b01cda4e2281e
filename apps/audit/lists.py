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
from capgrade.lists import LIKELY
from capgrade.schemas.captions import Captions
from capgrade.schemas.files import write_json, write_text
from capgrade.schemas.lines import csv_text
from capgrade.schemas.pairs import Pairs

SUSPECT = 1.0  # of 5: expected human score of an own caption that fits nothing
_KIND = "positives"
LIKELY_FILE, SUSPECTS_FILE, DUPLICATES_FILE = "likely.csv", "suspects.csv", "duplicates.csv"
POSITIVES_FILE = "positives.json"
_COLUMNS = {
    LIKELY_FILE: ("image_id", "caption_id", "value", "expected_score", "accepted", "caption"),
    SUSPECTS_FILE: ("image_id", "caption_id", "value", "expected_score", "caption"),
    DUPLICATES_FILE: ("group", "image_id", "captions"),
}


def select_likely(pairs: Pairs, curve: Curve) -> Pairs:
    """The pairs that more people accept than not."""
    return pairs.take(curve.probability(pairs.value) >= LIKELY)


def sort_by_value(parts: Iterable[Pairs]) -> Pairs:
    """One table, the highest value first."""
    pairs = Pairs.concatenate(parts)
    return pairs.take(np.lexsort((pairs.caption, pairs.image, -pairs.value)))


def find_near_duplicates(pairs: Pairs, captions: Captions) -> list[tuple[int, int]]:
    """Pairs of images for which every caption of the one is likely for the other, both ways."""
    n, sizes = captions.n_images, np.diff(captions.ref_ptr)
    code, n_taken = np.unique(pairs.image * n + captions.owner[pairs.caption], return_counts=True)
    image, other = np.divmod(code, n)
    complete = n_taken == sizes[other]
    takes = set(zip(image[complete].tolist(), other[complete].tolist(), strict=True))
    return sorted((a, b) for a, b in takes if a < b and (b, a) in takes)


def select_distinct(pairs: Pairs, captions: Captions) -> list[tuple[int, int]]:
    """Each image with each text once, without texts that one of its own captions has: the first row
    of each, and how many rows have this image and text. Order is kept."""
    texts = [_normalise_text(text) for text in captions.texts]
    own = set(zip(captions.owner.tolist(), texts, strict=True))
    first: dict[tuple[int, str], list[int]] = {}
    for k, (image, caption) in enumerate(
        zip(pairs.image.tolist(), pairs.caption.tolist(), strict=True)
    ):
        if (image, texts[caption]) not in own:
            first.setdefault((image, texts[caption]), [k, 0])[1] += 1
    return [(row, count) for row, count in first.values()]


def _normalise_text(text: str) -> str:
    """A caption in lower case, with single spaces and without full stops at its end."""
    return " ".join(text.casefold().split()).rstrip(" .")


def group_images(pairs: Iterable[tuple[int, int]], n_images: int) -> list[list[int]]:
    """Connected groups of near-duplicate images: each image is in one group, the largest group
    comes first."""
    edges = np.array(list(pairs), np.int64).reshape(-1, 2)
    table = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), (n_images, n_images))
    label = connected_components(table, directed=False)[1]
    members: dict[int, list[int]] = {}
    for image in np.unique(edges).tolist():
        members.setdefault(int(label[image]), []).append(image)
    return sorted(members.values(), key=lambda group: (-len(group), group))


def find_equal_captions(captions: Captions) -> list[list[int]]:
    """Caption rows of each text (`_normalise_text`) that captions of several images share, the text
    of most images first."""
    rows_by_text: dict[str, list[int]] = {}
    for row, text in enumerate(captions.texts):
        rows_by_text.setdefault(_normalise_text(text), []).append(row)
    n_images = {
        text: len(set(captions.owner[rows].tolist()))
        for text, rows in rows_by_text.items()
        if len(rows) > 1
    }
    shared = sorted((-n, rows_by_text[text]) for text, n in n_images.items() if n > 1)
    return [rows for _, rows in shared]


def find_suspects(own: np.ndarray, curve: Curve) -> np.ndarray:
    """Rows of captions whose expected human score with their own image is below SUSPECT, the lowest
    value first. `own` has values by the image's other captions, NaN where it has none."""
    rows = np.flatnonzero(np.isfinite(own))
    suspects = rows[curve.expected(own[rows]) < SUSPECT]
    return np.asarray(suspects[np.argsort(own[suspects], kind="stable")])


def write_lists(
    folder: Path,
    captions: Captions,
    curve: Curve,
    pairs: Pairs,
    duplicates: Sequence[Sequence[int]],
    suspect_rows: np.ndarray | None,
    own: np.ndarray | None,
) -> dict[str, int]:
    """Write the files of the folder; returns name -> number of rows. Likely pairs, the likeliest
    first; groups of near-duplicate images, counted from 1; where own values are known, the captions
    `suspect_rows` that fit their image badly, the worst first; and positives as `evaluate` reads
    them. No text becomes a formula in a spreadsheet."""
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
            for i, c, v, s, p in zip(
                pairs.image, pairs.caption, pairs.value, scores, accepted, strict=True
            )
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
    if suspect_rows is not None and own is not None:
        image = captions.owner[suspect_rows].tolist()
        rows[SUSPECTS_FILE] = [
            (
                captions.image_ids[i],
                captions.caption_ids[c],
                f"{own[c]:.4f}",
                f"{score:.3f}",
                captions.texts[c],
            )
            for i, c, score in zip(
                image, suspect_rows.tolist(), curve.expected(own[suspect_rows]), strict=True
            )
        ]
    for name, lines in rows.items():
        write_text(folder / name, csv_text(_COLUMNS[name], lines, "\r\n"))
    lists = {
        image_id: [captions.caption_ids[c] for c in captions.rows_of(i)]
        for i, image_id in enumerate(captions.image_ids)
    }
    for i, c in zip(pairs.image.tolist(), pairs.caption.tolist(), strict=True):
        lists[captions.image_ids[i]].append(captions.caption_ids[c])
    facts = {"kind": _KIND, "captions": captions.digest, "split": captions.split}
    write_json(folder / POSITIVES_FILE, {**facts, "image_to_caption": lists})
    return {**{name: len(lines) for name, lines in rows.items()}, POSITIVES_FILE: len(lists)}
