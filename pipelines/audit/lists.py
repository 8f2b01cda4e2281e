"""What to look at: likely false negatives, images that are near-duplicates, captions that fit nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from capgrade.pipelines.agreement.calibration import Curve
from capgrade.pipelines.audit.candidates import Pairs
from capgrade.schemas.captions import Captions

LIKELY = 0.5  # P(a person accepts) from which a pair counts as a positive
SUSPECT = 1.0  # of 5: expected human score of a given pair that fits nothing


def likely(pairs: Pairs, curve: Curve) -> Pairs:
    """The pairs that more people accept than not."""
    chosen = curve.probability(pairs.value) >= LIKELY
    return Pairs(*(column[chosen] for column in pairs))


def joined(parts: Sequence[Pairs]) -> Pairs:
    """One table, the highest value first."""
    whole = Pairs(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    order = np.lexsort((whole.caption, whole.image, -whole.value))
    return Pairs(*(column[order] for column in whole))


def near_duplicates(pairs: Pairs, captions: Captions) -> list[tuple[int, int]]:
    """Pairs of images, each of which would take every caption of the other."""
    n, sizes = captions.n_images, np.diff(captions.ref_ptr)
    code, taken = np.unique(pairs.image * n + captions.owner[pairs.caption], return_counts=True)
    image, other = np.divmod(code, n)
    whole = taken == sizes[other]
    takes = set(zip(image[whole].tolist(), other[whole].tolist(), strict=True))
    return sorted((a, b) for a, b in takes if a < b and (b, a) in takes)


def suspects(own: np.ndarray, curve: Curve) -> np.ndarray:
    """Captions whose expected human score with their own image, by its other captions, is below SUSPECT: rows, the
    lowest value first. Those of an image without other captions are not judged."""
    known = np.flatnonzero(np.isfinite(own))
    low = known[curve.expected(own[known]) < SUSPECT]
    return np.asarray(low[np.argsort(own[low], kind="stable")])
