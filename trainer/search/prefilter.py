"""Which pairs are worth a fine model's time: those that a coarse one ranks first."""

from __future__ import annotations

import numpy as np

BLOCK = 512  # rows or columns looked at together


def likely(coarse: np.ndarray, top: int) -> np.ndarray:
    """bool [n_images, n_captions]: the `top` best captions of each image and the `top` best images of each caption by
    the coarse similarity; among equal scores the first."""
    found = np.zeros(coarse.shape, np.bool_)
    images, captions = coarse.shape
    for at in range(0, images, BLOCK):
        block = np.asarray(coarse[at : at + BLOCK])
        best = np.argsort(-block, axis=1, kind="stable")[:, :top]
        np.put_along_axis(found[at : at + BLOCK], best, True, axis=1)
    for at in range(0, captions, BLOCK):
        block = np.asarray(coarse[:, at : at + BLOCK])
        best = np.argsort(-block, axis=0, kind="stable")[:top]
        some = found[:, at : at + BLOCK]
        np.put_along_axis(some, best, True, axis=0)
    return found
