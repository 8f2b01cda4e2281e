"""Which of two captions of equal relevance to an image goes first: that of the lower hash of the pair.

The hash is of the ids of image and caption, so that where captions stand in a table does not show. It is the number
that the generator of the pair's other hashes starts from (`pipelines.sampling.keys`), so it is independent of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capgrade.schemas.bits import mix
from capgrade.schemas.compiled import njit


class Ties(NamedTuple):
    """Hashes of the ids of a table. That of a pair is `mix(images[i] + captions[c])`; equal ones go by rising row."""

    images: np.ndarray  # uint64 [n_images]
    captions: np.ndarray  # uint64 [n_captions]

    def of(self, images: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """uint64, as rows int64 [len(images), k]: the hash of each image with each of its captions."""
        return mix_all((self.images[images][:, None] + self.captions[rows]).ravel()).reshape(rows.shape)


@njit(cache=True)
def mix_all(x):
    """`mix` of uint64 [n]."""
    out = np.empty_like(x)
    for k in range(x.shape[0]):
        out[k] = mix(x[k])
    return out


@njit(cache=True)
def sooner(row, other, image, captions):
    """Whether a caption goes before another one of the same relevance to an image; hashes as of `Ties`."""
    one, two = mix(image + captions[row]), mix(image + captions[other])
    return one < two or (one == two and row < other)
