"""Sentence embeddings mapped to what captions of one image share, as `SbertShared` says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.linalg import eigh
from threadpoolctl import threadpool_limits

from capgrade.measures.sbert.fitted import FittedSbert
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.say import warn

# Each covariance is shrunk as if so many more images had shown the same variance in every
# direction. Without them, few images leave directions without variance.
PRIOR = 10
_FEW = 300  # images: with fewer, Sentence-BERT as it is agrees about as well with people
_STEP = 65536  # captions in double precision at a time
_REMEDY = "use sbert"


def share(plain: FittedSbert, captions: Captions) -> FittedSbert:
    """The captions' embeddings, mapped. InputError as `shared_map`."""
    mapped = map_to_shared(plain.embeddings, *shared_map(plain.embeddings, captions))
    return replace(plain, embeddings=mapped[plain.same])  # equal texts, equal bits


def map_to_shared(vectors: np.ndarray, mean: np.ndarray, root: np.ndarray) -> np.ndarray:
    """(vectors - mean) @ root as unit vectors, float32 [n, d]; 0 for a vector that is the mean."""
    out = np.empty_like(vectors, np.float32)
    with threadpool_limits(1, "blas"):  # the same bytes on any number of cores
        for at in range(0, len(vectors), _STEP):
            mapped = (vectors[at : at + _STEP].astype(np.float64) - mean) @ root
            length = np.linalg.norm(mapped, axis=1, keepdims=True)
            out[at : at + _STEP] = np.divide(
                mapped, length, out=np.zeros_like(mapped), where=length > 0
            )
    return out


def shared_map(vectors: np.ndarray, captions: Captions) -> tuple[np.ndarray, np.ndarray]:
    """The mean of images' means, float64 [d], and ((B + W)^-1 B)^(1/2), float64 [d, d].

    InputError where the captions are too few or too alike to tell what they share.
    """
    sizes = np.diff(captions.ref_ptr)
    if len(sizes) < 2 or sizes.max() < 2:
        raise InputError(
            "sbert_shared needs two images, and an image of two captions", remedy=_REMEDY
        )
    if len(sizes) < _FEW:
        images = f"{len(sizes)} images, {_FEW} or more are better"
        warn(f"sbert_shared learns what captions share from {images} -> {_REMEDY}")
    means = np.stack(
        [
            vectors[captions.refs[a:b]].mean(axis=0, dtype=np.float64)
            for a, b in zip(captions.ref_ptr[:-1], captions.ref_ptr[1:], strict=True)
        ]
    )
    mean = means.mean(axis=0)
    with threadpool_limits(1, "blas"):  # the same bytes on any number of cores
        return mean, _root(vectors, means - mean, mean, sizes)


def _root(
    vectors: np.ndarray, means: np.ndarray, mean: np.ndarray, sizes: np.ndarray
) -> np.ndarray:
    """((B + W)^-1 B)^(1/2); `means` are the images' less `mean`."""
    within = _within(vectors, means, mean, sizes)
    # A mean of few captions still has a part that its writers chose, which is taken off.
    between = np.cov(means, rowvar=False) - within * (1 / sizes).mean()
    if not np.trace(between) > 0:
        problem = "captions of one image are no more alike than those of different images"
        raise InputError(problem, remedy=f"{_REMEDY}; check which captions belong to which image")
    between, both = _shrink(between, len(sizes)), _shrink(between + within, len(sizes))
    # (B + W)^-1 B = axes share axes^-1, and axes^T (B + W) axes = 1
    share, axes = eigh(between, both)
    return np.asarray((axes * np.sqrt(share.clip(0, 1))) @ axes.T @ both)


def _within(
    vectors: np.ndarray, means: np.ndarray, mean: np.ndarray, sizes: np.ndarray
) -> np.ndarray:
    """W, the pooled covariance of captions of one image, float64 [d, d].

    `means` are the images' less `mean`.
    """
    total = -(means.T * sizes) @ means
    for at in range(0, len(vectors), _STEP):
        centred = vectors[at : at + _STEP].astype(np.float64) - mean
        total += centred.T @ centred
    return np.asarray(total / (len(vectors) - len(means)))


def _shrink(covariance: np.ndarray, images: int) -> np.ndarray:
    """A covariance, shrunk towards a multiple of the identity with the same trace.

    It is as if PRIOR more images had shown that multiple.
    """
    size = len(covariance)
    return np.asarray(
        (images * covariance + PRIOR * np.trace(covariance) / size * np.eye(size))
        / (images + PRIOR)
    )
