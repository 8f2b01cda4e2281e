"""Word vectors that someone else learned, from a text file as GloVe's: a word and its numbers a line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from capgrade.schemas.errors import InputError


def word_vectors(path: Path, words: Sequence[str], size: int) -> dict[int, np.ndarray]:
    """float32 [size] by place in `words`, of those that the file has; a word that it lacks is looked up without - . and
    ', and up to its first / (model_CVSE.py 171-180 of BruceW91/CVSE).

    Raises InputError for no such file, for a vector of another length, and for a file with none of the words.
    """
    if not path.is_file():
        raise InputError("no such file of word vectors", file=path, remedy="give GloVe's, or words: xavier")
    known = _read(path, {form for word in words for form in (word, _plain(word))}, size)
    found = {k: known.get(word, known.get(_plain(word))) for k, word in enumerate(words)}
    if not known:
        raise InputError(f"none of the {len(words)} words of the captions", file=path, remedy="give GloVe's vectors")
    return {k: vector for k, vector in found.items() if vector is not None}


def _plain(word: str) -> str:
    return word.replace("-", "").replace(".", "").replace("'", "").split("/")[0]


def _read(path: Path, wanted: set[str], size: int) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    with path.open("rb") as file:
        for row, line in enumerate(file, 1):
            word, *numbers = line.decode("utf-8", "replace").rstrip("\r\n ").split(" ")  # a word may hold other spaces
            if word in wanted:
                found[word] = _vector(numbers, size, f"'{word}'", path, row)
    return found


def _vector(numbers: list[str], size: int, of: str, path: Path, row: int) -> np.ndarray:
    if len(numbers) != size:
        problem = f"{len(numbers)} numbers of {of}, the model's words have {size}"
        raise InputError(problem, file=path, row=row, remedy="set train.model.options.word, or give another file")
    try:
        vector = np.array(numbers, np.float32)
    except ValueError:
        vector = np.full(size, np.nan, np.float32)
    if not np.isfinite(vector).all():
        raise InputError(f"what follows {of} is not all numbers", file=path, row=row, remedy="give GloVe's vectors")
    return vector
