"""Captions as token ids, such as a captioner samples them: the same as the ids written with spaces between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from capgrade.schemas.errors import InputError


class TokenIds(NamedTuple):
    """Sets of captions: `sizes` int64 [sets], captions of each; `ptr` int64 [captions + 1] and `ids` int64 [tokens]."""

    sizes: np.ndarray
    ptr: np.ndarray
    ids: np.ndarray


def are_ids(sets: Any) -> bool:
    """Whether the first caption of the first set is a sequence of numbers, not a text."""
    try:
        first = next(iter(next(iter(sets))))
    except (TypeError, StopIteration):
        return False
    return hasattr(first, "__len__") and not isinstance(first, str)


def token_ids(sets: Sequence[Any], end: int | None, what: str) -> TokenIds:
    """Each set a list of captions or an array [captions, length]; a caption is a list, array or tensor of ids.

    With `end` a caption ends with its first `end`, and what follows is padding. InputError for what is no id.
    """
    captions = [[_ids(one, f"{what}[{k}]") for one in _numpy(own)] for k, own in enumerate(sets)]
    empty = [k for k, own in enumerate(captions) if not own]
    if empty:
        raise InputError("no captions", row=f"{what}[{empty[0]}]", remedy="give one or more")
    flat = [one for own in captions for one in own]
    ids = np.concatenate([*flat, np.empty(0, np.int64)]).astype(np.int64, copy=False)
    if ids.min(initial=0) < 0:
        raise InputError(
            f"token id {ids.min()}", row=what, remedy="ids are 0 or more; pad with the end mark and give end="
        )
    ptr = np.concatenate([[0], np.cumsum([len(one) for one in flat])]).astype(np.int64)
    return TokenIds(
        np.array([len(own) for own in captions]), *(_ended(ptr, ids, end) if end is not None else (ptr, ids))
    )


def _ended(ptr: np.ndarray, ids: np.ndarray, end: int) -> tuple[np.ndarray, np.ndarray]:
    """Without what follows the first end of a caption."""
    ends = np.concatenate([[0], np.cumsum(ids == end)])  # before each token
    kept = ends[:-1] == np.repeat(ends[ptr[:-1]], np.diff(ptr))
    return np.concatenate([[0], np.cumsum(kept)])[ptr], ids[kept]


def _numpy(values: Any) -> Any:
    return values.detach().cpu().numpy() if hasattr(values, "detach") else values


def _ids(caption: Any, row: str) -> np.ndarray:
    found = np.asarray(_numpy(caption))
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise InputError(f"no token ids: {caption!r}", row=row, remedy="give each caption as a list of whole numbers")
    return found
