"""Images that a stage went on without: their number and the reasons."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

# Reasons, as a manifest's `left_out` and the counts of an evaluation have them.
MISSING, UNREADABLE, NO_REGION = "missing", "unreadable", "no_region"
_WORDS = {MISSING: "no picture", UNREADABLE: "picture not readable", NO_REGION: "no region found"}


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
