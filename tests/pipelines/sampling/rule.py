"""What is kept, by the rule written out in Python's own numbers."""

from __future__ import annotations

import math
from hashlib import blake2b

import numpy as np

from capgrade.pipelines.sampling.plan import Plan

WORD, GOLDEN = 2**64, 0x9E3779B97F4A7C15


def digest(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def splitmix(x: int) -> int:
    """Steele, Lea and Flood 2014, `mix64variant13`: the finaliser of splitmix64."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB % WORD
    return x ^ x >> 31


def seed_of(seed: int, image: str, caption: str) -> int:
    """Where a pair's generator starts."""
    return splitmix(digest(image) ^ digest(f"seed {seed}")) + digest(caption)


def tie(seed: int, image: str, caption: str) -> int:
    """What decides between captions of the same relevance."""
    return splitmix(seed_of(seed, image, caption) % WORD)


def key(seed: int, image: str, caption: str, number: int) -> int:
    """Key `number` of a pair: 15 bits of a lane of a word, and 49 of a hash of the word and the number."""
    pair = seed_of(seed, image, caption)
    word = splitmix((pair + (number // 4 + 1) * GOLDEN) % WORD)
    lane = word >> 16 * (number % 4) & 0x7FFF
    return lane << 49 | splitmix((word + (number + 1) * GOLDEN) % WORD) >> 15


def windows_with(plan: Plan, m: int, value: float) -> list[int]:
    """The windows that hold a value: it has reached the lower bound, to five places of the range, and not the upper.
    The last has none."""
    half, windows = 0.000005 * (plan.high[m] - plan.low[m]), plan.windows(m).tolist()
    return [
        w for w, (low, high) in enumerate(windows) if low - half <= value and (value < high - half or high == math.inf)
    ]


def most_together(plan: Plan) -> int:
    """How many windows of a measure begin where a window begins, or go on there, at most."""
    windows = [plan.windows(m) for m in range(len(plan.low))]
    return max(int(((one[:, 0] <= low) & (low < one[:, 1])).sum()) for one in windows for low in one[:, 0])


def chosen(plan: Plan, image: str, ids: list[str], own: list[int], values: np.ndarray) -> dict[int, tuple[int, float]]:
    """By caption that the image keeps, its reasons and its weight. values float32 [measures, captions]."""
    n, reasons, missed = len(ids), dict.fromkeys(own, 1), [1.0] * len(ids)

    def draw(captions: list[int], size: int, number: int, bit: int) -> None:
        for c in sorted(captions, key=lambda c: key(plan.seed, image, ids[c], number))[:size]:
            reasons[c] = reasons.get(c, 0) | bit

    draw(list(range(n)), plan.uniform, 0, 2)
    together = most_together(plan)
    share = [plan.among == 1 or key(plan.seed, image, ids[c], 1) <= int(plan.among * 2**64) for c in range(n)]
    for m, row in enumerate(values.astype(float).tolist()):
        for c in sorted(range(n), key=lambda c: (-row[c], tie(plan.seed, image, ids[c])))[: plan.top]:
            reasons[c] = reasons.get(c, 0) | 4 << 2 * m
        held = [windows_with(plan, m, value) for value in row]
        for w in range(len(plan.windows(m))):
            inside = [c for c in range(n) if w in held[c] and share[c]]
            draw(inside, plan.per_window, 2 + m * together + w % together, 8 << 2 * m)
            for c in range(n):
                if w in held[c]:
                    missed[c] *= 1 - min(1, plan.per_window / (len(inside) + (not share[c])))
    certain, uniform = 1 | sum(4 << 2 * m for m in range(len(values))), min(1, plan.uniform / n)
    chance = [uniform + (1 - uniform) * plan.among * (1 - one) for one in missed]
    return {c: (bits, 1.0 if bits & certain else 1 / chance[c]) for c, bits in reasons.items()}
