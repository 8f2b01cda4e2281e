"""Names of numbered files, and their order: as text, number 100000 would stand before 99999."""

from __future__ import annotations

import re
from collections.abc import Iterable

DIGITS = 5  # at least


def of_all(k: int, n: int) -> str:
    """Number k, from 0, of n, such as 00003-of-00008; with as many digits as n needs, so that text has their order."""
    digits = max(DIGITS, len(str(n)))
    return f"{k:0{digits}d}-of-{n:0{digits}d}"


def in_order(names: Iterable[str]) -> list[str]:
    """Names that differ in their numbers alone, by number."""
    return sorted(names, key=lambda name: [int(part) for part in re.findall(r"\d+", name)])
