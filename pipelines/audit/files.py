"""The folder of an audit beside its page: its three lists as CSV, and all positives as `evaluate` reads them."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.pipelines.agreement.curve import Curve
from capgrade.pipelines.audit.candidates import Pairs
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic, write_json
from capgrade.schemas.output import refuse_file
from capgrade.schemas.spreadsheets import cells

LIKELY = ("image_id", "caption_id", "value", "expected_score", "accepted", "caption")
SUSPECTS = ("image_id", "caption_id", "value", "expected_score", "caption")
DUPLICATES = ("group", "image_id", "captions")
KIND = "positives"
STAGE = "audit"
GENERATOR = "capgrade audit"
FILES = LIKELY_FILE, SUSPECTS_FILE, DUPLICATES_FILE, POSITIVES_FILE = (
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


def write_likely(path: Path, pairs: Pairs, curve: Curve, captions: Captions) -> int:
    """A row per likely false negative, the likeliest first. As the other writers, returns the rows."""
    scores, accepted = curve.expected(pairs.value), curve.probability(pairs.value)
    rows = []
    for image, caption, value, score, p in zip(*pairs[:3], scores, accepted, strict=True):
        ids = captions.image_ids[image], captions.caption_ids[caption]
        rows.append((*ids, f"{value:.4f}", f"{score:.3f}", f"{p:.4f}", captions.texts[caption]))
    return _write(path, LIKELY, rows)


def write_suspects(path: Path, low: np.ndarray, own: np.ndarray, curve: Curve, captions: Captions) -> int:
    """A row per caption that fits its own image badly, the worst first."""
    rows = []
    for row, score in zip(low.tolist(), curve.expected(own[low]), strict=True):
        ids = captions.image_ids[captions.owner[row]], captions.caption_ids[row]
        rows.append((*ids, f"{own[row]:.4f}", f"{score:.3f}", captions.texts[row]))
    return _write(path, SUSPECTS, rows)


def write_duplicates(path: Path, groups: Sequence[Sequence[int]], captions: Captions) -> int:
    """A row per image of a group of near-duplicates, groups counted from 1, with its captions between bars."""
    rows = []
    for number, image in ((number, image) for number, group in enumerate(groups, 1) for image in group):
        own = captions.refs[captions.ref_ptr[image] : captions.ref_ptr[image + 1]]
        rows.append((number, captions.image_ids[image], " | ".join(captions.texts[row] for row in own)))
    return _write(path, DUPLICATES, rows)


def _write(path: Path, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> int:
    with atomic(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        writer.writerows(map(cells, rows))
    return len(rows)


def write_positives(path: Path, pairs: Pairs, captions: Captions) -> int:
    """Given pairs and likely ones: image id -> caption ids."""
    image = np.concatenate([captions.owner, pairs.image])
    caption = np.concatenate([np.arange(captions.n_captions), pairs.caption])
    lists: dict[str, list[str]] = {one: [] for one in captions.image_ids}
    for i, c in zip(image.tolist(), caption.tolist(), strict=True):
        lists[captions.image_ids[i]].append(captions.caption_ids[c])
    write_json(path, {"kind": KIND, "captions": captions.digest, "split": captions.split, "image_to_caption": lists})
    return len(lists)
