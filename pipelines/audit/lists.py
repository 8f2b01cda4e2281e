"""What to look at: likely false negatives, images that are near-duplicates, captions that fit nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from capgrade.pipelines.agreement.curve import Curve
from capgrade.pipelines.audit.candidates import Pairs
from capgrade.pipelines.audit.estimate import LIKELY
from capgrade.schemas.captions import Captions

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


def distinct(pairs: Pairs, captions: Captions) -> list[tuple[int, int]]:
    """Each image with each text once, but for those that one of its own captions has: the first row of the two, and how
    many rows say the same, in their order."""
    texts = [plain(text) for text in captions.texts]
    own = set(zip(captions.owner.tolist(), texts, strict=True))
    found: dict[tuple[int, str], list[int]] = {}
    for k, (image, caption) in enumerate(zip(pairs.image.tolist(), pairs.caption.tolist(), strict=True)):
        if (image, texts[caption]) not in own:
            found.setdefault((image, texts[caption]), [k, 0])[1] += 1
    return [(first, count) for first, count in found.values()]


def plain(text: str) -> str:
    """A caption without what makes no other caption of it: case, spaces, the full stop at its end."""
    return " ".join(text.casefold().split()).rstrip(" .")


def groups(pairs: Iterable[tuple[int, int]], n_images: int) -> list[list[int]]:
    """Images that near-duplicates join, directly or by others, each image in one group; the largest group first."""
    linked = np.array(list(pairs), np.int64).reshape(-1, 2)
    table = coo_array((np.ones(len(linked)), (linked[:, 0], linked[:, 1])), (n_images, n_images))
    label = connected_components(table, directed=False)[1]
    members: dict[int, list[int]] = {}
    for image in np.unique(linked).tolist():
        members.setdefault(int(label[image]), []).append(image)
    return sorted(members.values(), key=lambda one: (-len(one), one))


def equal_captions(captions: Captions) -> list[list[int]]:
    """Captions of several images that say the same (`plain`): caption rows, the text of most images first."""
    found: dict[str, list[int]] = {}
    for row, text in enumerate(captions.texts):
        found.setdefault(plain(text), []).append(row)
    several = [rows for rows in found.values() if len(rows) > 1 and len(set(captions.owner[rows].tolist())) > 1]
    return sorted(several, key=lambda rows: (-len(set(captions.owner[rows].tolist())), rows))


def suspects(own: np.ndarray, curve: Curve) -> np.ndarray:
    """Captions whose expected human score with their own image, by its other captions, is below SUSPECT: rows, the
    lowest value first. Those of an image without other captions are not judged."""
    known = np.flatnonzero(np.isfinite(own))
    low = known[curve.expected(own[known]) < SUSPECT]
    return np.asarray(low[np.argsort(own[low], kind="stable")])
