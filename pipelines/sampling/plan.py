"""What to keep of each image, and the hashes of ids that every choice hangs on."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from capgrade.kernels import id_keys, mix_all
from capgrade.measures.base import Measure
from capgrade.schemas.errors import InputError
from capgrade.schemas.params import ShardsParams
from capgrade.schemas.shards import scored_reason

MOST_MEASURES = 15  # each takes two of the 32 bits of `reasons`; own and uniform take two
# Bits of `reasons`; measure m has TOP and WINDOW shifted by 2 m.
OWN, UNIFORM, TOP, WINDOW = 1, 2, 4, 8


@dataclass(frozen=True)
class Plan:
    """What to keep of each image: own captions, `top` and windows by measure, a uniform sample.

    `low` and `high` bound each measure; windows have `width` and `stride` as shares of that range.
    Of a measure that is `partial` every scored pair is kept, so that nothing is left for windows.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    top: int
    width: float
    stride: float
    per_window: int
    uniform: int
    seed: int
    among: float = 1.0  # the share of the captions that windows are drawn from
    partial: frozenset[int] = frozenset()  # numbers of the measures that score some pairs alone

    def windows(self, measure: int) -> np.ndarray:
        """float64 [n, 2]: lower and upper bounds of the windows that cover a measure's whole range.

        Windows are half open; the first and last reach beyond the range, for values a rounding
        outside it.
        """
        if measure in self.partial:
            return np.empty((0, 2))
        low, high = self.low[measure], self.high[measure]
        starts = max(1, round((1 - self.width) / self.stride) + 1)
        shares = self.stride * np.arange(starts)
        # Rounded, so that where one window ends and another begins is the same number.
        sides = (shares, shares + self.width)
        lower, upper = (low + (high - low) * np.round(side, 12) for side in sides)
        if self.stride <= self.width:  # no rounding may leave a value between two windows
            upper[:-1] = np.maximum(upper[:-1], lower[1:])
        lower[0], upper[-1] = -np.inf, np.inf
        return np.stack([lower, upper], axis=1)


def plan_of(
    measures: Iterable[Measure], params: ShardsParams, partial: frozenset[int] = frozenset()
) -> Plan:
    """What to keep of each image, by the measures' ranges; `partial` as of `Plan`."""
    low, high = zip(*((measure.low, measure.high) for measure in measures), strict=True)
    windows = params.windows
    return Plan(
        low,
        high,
        params.top,
        windows.width,
        windows.stride,
        windows.per_window,
        params.uniform,
        params.seed,
        1.0 if windows.among == "all" else windows.among,
        partial,
    )


def reason_names(measures: Sequence[str], partial: Collection[int] = ()) -> list[str]:
    """Name of each bit of `reasons`, from the lowest.

    They are own, uniform, then top and window of each measure; of a `partial` one, by its number,
    `scored` takes the place of top. InputError for more measures than 32 bits have room for.
    """
    if len(measures) > MOST_MEASURES:
        room = f"the reasons of a shard have bits for {MOST_MEASURES}"
        problem = f"{len(measures)} measures, where {room}"
        raise InputError(problem, remedy="name fewer, or make shards twice")
    names = ["own", "uniform"]
    for m, name in enumerate(measures):
        names += [scored_reason(name) if m in partial else f"top_{name}", f"window_{name}"]
    return names


def image_seeds(seed: int, image_keys: np.ndarray) -> np.ndarray:
    """uint64 [images], from `id_keys`: with a caption's key added, the seed of the pair."""
    return mix_all(image_keys ^ id_keys([f"seed {seed}"])[0])


def certain_bits(measures: int) -> int:
    """The reasons that do not depend on chance: own, and the top of each measure, or what it
    scores."""
    return OWN | sum(TOP << 2 * m for m in range(measures))
