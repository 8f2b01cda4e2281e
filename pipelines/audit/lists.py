"""What to look at: likely false negatives, images that are near-duplicates, captions that fit nothing.

The folder beside an audit's page has these lists as CSV, and all positives as `evaluate` reads them.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from capgrade.pipelines.agreement.curve import Curve
from capgrade.pipelines.audit.candidates import ValuedPairs
from capgrade.pipelines.audit.estimate import LIKELY
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic, write_json
from capgrade.schemas.output import refuse_file
from capgrade.schemas.spreadsheets import cells

SUSPECT = 1.0  # of 5: expected human score of a given pair that fits nothing


def likely(pairs: ValuedPairs, curve: Curve) -> ValuedPairs:
    """The pairs that more people accept than not."""
    chosen = curve.probability(pairs.value) >= LIKELY
    return ValuedPairs(*(column[chosen] for column in pairs))


def joined(parts: Sequence[ValuedPairs]) -> ValuedPairs:
    """One table, the highest value first."""
    whole = ValuedPairs(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    order = np.lexsort((whole.caption, whole.image, -whole.value))
    return ValuedPairs(*(column[order] for column in whole))


def near_duplicates(pairs: ValuedPairs, captions: Captions) -> list[tuple[int, int]]:
    """Pairs of images, each of which would take every caption of the other."""
    n, sizes = captions.n_images, np.diff(captions.ref_ptr)
    code, taken = np.unique(pairs.image * n + captions.owner[pairs.caption], return_counts=True)
    image, other = np.divmod(code, n)
    whole = taken == sizes[other]
    takes = set(zip(image[whole].tolist(), other[whole].tolist(), strict=True))
    return sorted((a, b) for a, b in takes if a < b and (b, a) in takes)


def distinct(pairs: ValuedPairs, captions: Captions) -> list[tuple[int, int]]:
    """Each image with each text once, but for those that one of its own captions has: the first row of the two, and how
    many rows say the same, in their order."""
    texts = [plain(text) for text in captions.texts]
    own = set(zip(captions.owner.tolist(), texts, strict=True))
    found: dict[tuple[int, str], list[int]] = {}
    for k, (image, caption) in enumerate(zip(pairs.image.tolist(), pairs.caption.tolist(), strict=True)):
        if (image, texts[caption]) not in own:
            found.setdefault((image, texts[caption]), [k, 0])[1] += 1
    return [(first, count) for first, count in found.values()]


def plain(text: str) -> str:
    """A caption without what makes no other caption of it: case, spaces, the full stop at its end."""
    return " ".join(text.casefold().split()).rstrip(" .")


def groups(pairs: Iterable[tuple[int, int]], n_images: int) -> list[list[int]]:
    """Images that near-duplicates join, directly or by others, each image in one group; the largest group first."""
    linked = np.array(list(pairs), np.int64).reshape(-1, 2)
    table = coo_array((np.ones(len(linked)), (linked[:, 0], linked[:, 1])), (n_images, n_images))
    label = connected_components(table, directed=False)[1]
    members: dict[int, list[int]] = {}
    for image in np.unique(linked).tolist():
        members.setdefault(int(label[image]), []).append(image)
    return sorted(members.values(), key=lambda one: (-len(one), one))


def equal_captions(captions: Captions) -> list[list[int]]:
    """Captions of several images that say the same (`plain`): caption rows, the text of most images first."""
    found: dict[str, list[int]] = {}
    for row, text in enumerate(captions.texts):
        found.setdefault(plain(text), []).append(row)
    several = [rows for rows in found.values() if len(rows) > 1 and len(set(captions.owner[rows].tolist())) > 1]
    return sorted(several, key=lambda rows: (-len(set(captions.owner[rows].tolist())), rows))


def suspects(own: np.ndarray, curve: Curve) -> np.ndarray:
    """Captions whose expected human score with their own image, by its other captions, is below SUSPECT: rows, the
    lowest value first. Those of an image without other captions are not judged."""
    known = np.flatnonzero(np.isfinite(own))
    low = known[curve.expected(own[known]) < SUSPECT]
    return np.asarray(low[np.argsort(own[low], kind="stable")])


LIKELY_COLUMNS = ("image_id", "caption_id", "value", "expected_score", "accepted", "caption")
SUSPECT_COLUMNS = ("image_id", "caption_id", "value", "expected_score", "caption")
DUPLICATE_COLUMNS = ("group", "image_id", "captions")
KIND = "positives"
STAGE = "audit"
GENERATOR = "capgrade audit"
LIKELY_FILE, SUSPECTS_FILE, DUPLICATES_FILE, POSITIVES_FILE = (
    "likely.csv", "suspects.csv", "duplicates.csv", "positives.json",
)  # fmt: skip


def lists_folder(out: Path) -> Path:
    """The folder of the lists, `audit-lists` of `audit.html`. InputError where something else stands at the page, and
    for a page that is no .html."""
    from capgrade.pipelines.report.page import generated_by

    if out.suffix.lower() != ".html":
        raise InputError("the page's name does not end in .html", file=out, remedy=f"give {out.stem or 'audit'}.html")
    refuse_file(out, "audit of capgrade", generated_by(GENERATOR))
    return out.with_name(f"{out.stem}-lists")


def write_likely(path: Path, pairs: ValuedPairs, curve: Curve, captions: Captions) -> int:
    """A row per likely false negative, the likeliest first. As the other writers, returns the rows."""
    scores, accepted = curve.expected(pairs.value), curve.probability(pairs.value)
    rows = []
    for image, caption, value, score, p in zip(*pairs[:3], scores, accepted, strict=True):
        ids = captions.image_ids[image], captions.caption_ids[caption]
        rows.append((*ids, f"{value:.4f}", f"{score:.3f}", f"{p:.4f}", captions.texts[caption]))
    return _write(path, LIKELY_COLUMNS, rows)


def write_suspects(path: Path, low: np.ndarray, own: np.ndarray, curve: Curve, captions: Captions) -> int:
    """A row per caption that fits its own image badly, the worst first."""
    rows = []
    for row, score in zip(low.tolist(), curve.expected(own[low]), strict=True):
        ids = captions.image_ids[captions.owner[row]], captions.caption_ids[row]
        rows.append((*ids, f"{own[row]:.4f}", f"{score:.3f}", captions.texts[row]))
    return _write(path, SUSPECT_COLUMNS, rows)


def write_duplicates(path: Path, groups: Sequence[Sequence[int]], captions: Captions) -> int:
    """A row per image of a group of near-duplicates, groups counted from 1, with its captions between bars."""
    rows = []
    for number, image in ((number, image) for number, group in enumerate(groups, 1) for image in group):
        own = captions.refs[captions.ref_ptr[image] : captions.ref_ptr[image + 1]]
        rows.append((number, captions.image_ids[image], " | ".join(captions.texts[row] for row in own)))
    return _write(path, DUPLICATE_COLUMNS, rows)


def _write(path: Path, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> int:
    with atomic(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        writer.writerows(map(cells, rows))
    return len(rows)


def write_positives(path: Path, pairs: ValuedPairs, captions: Captions) -> int:
    """Given pairs and likely ones: image id -> caption ids."""
    image = np.concatenate([captions.owner, pairs.image])
    caption = np.concatenate([np.arange(captions.n_captions), pairs.caption])
    lists: dict[str, list[str]] = {one: [] for one in captions.image_ids}
    for i, c in zip(image.tolist(), caption.tolist(), strict=True):
        lists[captions.image_ids[i]].append(captions.caption_ids[c])
    write_json(path, {"kind": KIND, "captions": captions.digest, "split": captions.split, "image_to_caption": lists})
    return len(lists)
