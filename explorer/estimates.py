"""What ratings of a pooled sample say of all pairs: how many captions per image people would accept beyond the given.

The estimate is sum over strata of N_h p_h (Horvitz and Thompson 1952, equal probabilities within a stratum), p_h the
accepted share of the rated pairs. Its interval joins Wilson's intervals (l_h, u_h) of the shares: estimate less
sqrt(sum (N_h (p_h - l_h))^2), plus sqrt(sum (N_h (u_h - p_h))^2) (MOVER; Zou and Donner 2008, "Construction of
confidence limits about effect measures"). So a stratum in which nothing was accepted is not taken for one in which
nothing is. A stratum that was rated whole has no interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from capgrade.schemas.reviews import Plan

Z = 1.959964  # 95 %


def wilson(hits: int, n: int) -> tuple[float, float]:
    """Wilson's interval of a share (1927), 95 %."""
    p, z2 = hits / n, Z * Z
    middle, half = p + z2 / (2 * n), Z * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    return max(0.0, (middle - half) / (1 + z2 / n)), min(1.0, (middle + half) / (1 + z2 / n))


def accepted_per_image(plan: Plan, table: Mapping[int, float], accept: float) -> dict[str, float] | None:
    """accepted, low and high, from a rater's item -> score; None while a stratum has no rating."""
    total = below = above = 0.0
    for name, facts in plan.facts["strata"].items():
        size = facts["pairs"]
        given = [table[k] >= accept for k, item in enumerate(plan.items) if item.stratum == name and k in table]
        if not size:
            continue
        if not given:
            return None
        share = sum(given) / len(given)
        low, high = (share, share) if len(given) == size else wilson(sum(given), len(given))
        total += size * share
        below += (size * (share - low)) ** 2
        above += (size * (high - share)) ** 2
    images = plan.facts["images"]
    low, high = max(0.0, total - math.sqrt(below)), total + math.sqrt(above)
    return {"accepted": total / images, "low": low / images, "high": high / images}
