"""What of an input a stage did not take: how much, and the reasons."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from capgrade.schemas.errors import first_names
from capgrade.schemas.say import tell

# Reasons, as a manifest's `left_out` and the counts of an evaluation have them.
MISSING, UNREADABLE, NO_REGION = "missing", "unreadable", "no_region"
_WORDS = {MISSING: "no picture", UNREADABLE: "picture not readable", NO_REGION: "no region found"}


# Files of an input that a source of captions does not read.
OTHER_FILES, EMPTY_FILES = "files of another kind", "files or splits without a row"
OTHER_CONFIGS = "tables that neither the card nor their names assign to a split"
PICTURES = "pictures, which are given as --images"
_SHOWN = 3  # names in one line


def leave_out(counts: Counter[str], reason: str, names: Sequence[str]) -> None:
    """Count in `counts`, which becomes the manifest's `left_out`, what is not taken for a reason; a
    line says the first names."""
    if names:
        counts[reason] += len(names)
        tell(f"left out: {len(names):,} {reason}: {first_names(names, _SHOWN)}")


def counts_of(reasons: Mapping[str, str], captions: int) -> dict[str, Any]:
    """By image id the reason -> what metrics.json says: images by reason, and how many captions
    they have."""
    return {"images": dict(sorted(Counter(reasons.values()).items())), "captions": captions}


def line_of(reasons: Mapping[str, str], images: int, captions: int, what: str) -> str:
    """One line on the images of a split that are left out: how many, with how many captions, and
    why."""
    why = ", ".join(
        f"{count:,} {_WORDS.get(name, name)}"
        for name, count in sorted(Counter(reasons.values()).items())
    )
    return (
        f"{what}: {len(reasons):,} of {images:,} images are left out, with their {captions:,}"
        f" captions: {why}"
    )
