"""What a published folder is called by: its files, its splits, and its name on the hub."""

from __future__ import annotations

import re
from pathlib import Path

from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST

CARD, CROISSANT, SUMS, TASK = "README.md", "croissant.json", "SHA256SUMS", "task.py"
BENCHMARK = ("images", "texts", "t2i-qrels", "t2i-gains", "i2t-qrels", "i2t-gains")
DIGEST = "caption_sha256"  # column in place of texts that are not published
FOLDERS = ("captions", "relevance", "figures", *BENCHMARK)  # nothing else belongs in them
# Patterns of all files that a published folder has.
LAYOUT = [
    MANIFEST,
    CARD,
    CROISSANT,
    SUMS,
    TASK,
    *(f"{folder}/*" for folder in FOLDERS),
]


def hub_split(split: str) -> str:
    """A split name that `datasets` accepts: letters, digits and `_`. train+restval becomes
    train_restval, all all_."""
    return re.sub(r"\W|(?<=^all)$", "_", split)


def hub_name(target: str) -> tuple[str, str | None]:
    """USER/NAME, and the revision of USER/NAME@REVISION. InputError for what was meant as a path: a
    place where no name of the hub could stand, or a folder USER that is here."""
    name, _, revision = target.partition("@")
    if name.count("/") != 1 or name.startswith((".", "/", "~")) or Path(name).parent.is_dir():
        remedy = "check the path; the hub is asked where there is no folder USER"
        raise InputError("no such folder, nor a dataset USER/NAME", file=target, remedy=remedy)
    return name, revision or None
