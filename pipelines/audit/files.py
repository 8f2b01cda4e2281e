"""The files of an audit beside its page: likely false negatives as CSV, and all positives as `evaluate` reads them."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from capgrade.pipelines.agreement.calibration import Curve
from capgrade.pipelines.audit.candidates import Pairs
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import atomic, write_json
from capgrade.schemas.output import json_with, refuse_file, starting

HEAD = ("image_id", "caption_id", "value", "expected_score", "accepted", "caption")
KIND = "positives"
GENERATOR = "capgrade audit"


def paths(out: Path) -> tuple[Path, Path]:
    """The CSV and the positives file of a page."""
    return out.with_suffix(".csv"), out.with_name(f"{out.stem}-positives.json")


def refuse_others(out: Path) -> None:
    """InputError where something else stands at the page or a file beside it, and for a page that is no .html."""
    from capgrade.pipelines.report.page import generated_by

    if out.suffix.lower() != ".html":
        raise InputError("the page's name does not end in .html", file=out, remedy=f"give {out.stem or 'audit'}.html")
    table, positives = paths(out)
    refuse_file(out, "audit of capgrade", generated_by(GENERATOR))
    refuse_file(table, "table of capgrade audit", starting(",".join(HEAD).encode()))
    refuse_file(positives, "file of positives", json_with(lambda found: found["kind"] == KIND))  # type: ignore[index]


def write_table(path: Path, pairs: Pairs, curve: Curve, captions: Captions) -> None:
    """A row per likely false negative, the likeliest first."""
    scores, accepted = curve.expected(pairs.value), curve.probability(pairs.value)
    with atomic(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEAD)
        for k, (image, caption, value) in enumerate(zip(pairs.image, pairs.caption, pairs.value, strict=True)):
            ids = captions.image_ids[image], captions.caption_ids[caption]
            writer.writerow((*ids, f"{value:.4f}", f"{scores[k]:.3f}", f"{accepted[k]:.4f}", captions.texts[caption]))


def write_positives(path: Path, pairs: Pairs, captions: Captions) -> None:
    """Given pairs and likely ones: image id -> caption ids."""
    image = np.concatenate([captions.owner, pairs.image])
    caption = np.concatenate([np.arange(captions.n_captions), pairs.caption])
    lists: dict[str, list[str]] = {one: [] for one in captions.image_ids}
    for i, c in zip(image.tolist(), caption.tolist(), strict=True):
        lists[captions.image_ids[i]].append(captions.caption_ids[c])
    write_json(path, {"kind": KIND, "captions": captions.digest, "split": captions.split, "image_to_caption": lists})
