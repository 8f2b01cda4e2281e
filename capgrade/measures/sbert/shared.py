"""Sentence embeddings mapped to what captions of one image share, as `SbertShared` says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from scipy.linalg import eigh
from threadpoolctl import threadpool_limits

from capgrade.measures.embeddings import embed
from capgrade.measures.sbert.fitted import FittedSbert
from capgrade.pretrained import fingerprint
from capgrade.schemas.arrow import ArrowFile, metadata_of, with_metadata, write_arrow
from capgrade.schemas.captions import Captions, corpus_digest, read_corpus
from capgrade.schemas.errors import InputError
from capgrade.schemas.out_files import refuse_file
from capgrade.schemas.say import warn

# Each covariance is shrunk as if so many more images had shown the same variance in every
# direction. Without them, few images leave directions without variance.
PRIOR = 10
_FEW = 300  # images: with fewer, Sentence-BERT as it is agrees about as well with people
_STEP = 65536  # captions in double precision at a time
_REMEDY = "use sbert, or set measures.sbert.shared_from to captions of more images, or to coco"
_KIND = "shared_map"
# `shared_from: coco`: of the captions of MS-COCO's 5K test images (`research.studies.shared_map`).
COCO, _COCO_FILE = "coco", Path(__file__).with_name("coco.arrow")


@dataclass(frozen=True)
class SharedMap:
    """A map of embeddings to what captions of one image share: (e - mean) @ root.

    `SharedMap.of_captions(captions, model)` learns it, `write` and `read` keep it in a file.
    """

    mean: np.ndarray  # float64 [d]: of images' means
    root: np.ndarray  # float64 [d, d]: ((B + W)^-1 B)^(1/2)
    corpus: str = ""  # what it was learnt from, for metadata

    @classmethod
    def of(cls, vectors: np.ndarray, ref_ptr: np.ndarray, corpus: str = "") -> SharedMap:
        """Learn it from captions whose rows of `vectors`, float32 [captions, d], follow each other
        image by image: those of image i are ref_ptr[i] to ref_ptr[i + 1].

        InputError where they are too few or too alike to tell what they share.
        """
        sizes = np.diff(ref_ptr)
        if len(sizes) < 2 or sizes.max() < 2:
            problem = "sbert_shared needs two images, and an image of two captions"
            raise InputError(problem, remedy=_REMEDY)
        if len(sizes) < _FEW:
            images = f"{len(sizes)} images, {_FEW} or more are better"
            warn(f"sbert_shared learns what captions share from {images} -> {_REMEDY}")
        means = np.stack(
            [
                vectors[a:b].mean(axis=0, dtype=np.float64)
                for a, b in zip(ref_ptr[:-1], ref_ptr[1:], strict=True)
            ]
        )
        mean = means.mean(axis=0)
        with threadpool_limits(1, "blas"):  # the same bytes on any number of cores
            return cls(mean, _root(vectors, means - mean, mean, sizes), corpus)

    @classmethod
    def of_captions(cls, captions: Captions, model: str, device: str = "cpu") -> SharedMap:
        """Learn it from a split's captions and their embeddings. InputError as `of` and `embed`."""
        vectors = embed(captions.texts, model, device=device)[captions.refs]
        corpus = f"captions {captions.digest} split {captions.split}"
        return cls.of(vectors, captions.ref_ptr, corpus)

    def write(self, path: Path, model: str, force: bool = False) -> None:
        """Write it to an Arrow file; `model` made the embeddings.

        InputError where a file is, but with `force`.
        """
        refuse_file(path, force)
        rows = pa.FixedSizeListArray.from_arrays(
            pa.array(self.root.astype(np.float32).ravel()), len(self.mean)
        )
        facts = {"kind": _KIND, "model": fingerprint(model), "corpus": self.corpus}
        schema = with_metadata(
            pa.schema([pa.field("mean", pa.float32()), pa.field("root", rows.type)]), facts
        )
        columns = [pa.array(self.mean.astype(np.float32)), rows]
        write_arrow(path, schema, [pa.record_batch(columns, schema=schema)])

    @classmethod
    def read(cls, source: str, model: str) -> SharedMap:
        """Of `coco`, a file that `write` wrote, or a captions folder (FOLDER or FOLDER#split).

        InputError when it is none of these, or of another model.
        """
        if source != COCO and (captions := read_corpus(source)) is not None:
            return cls.of_captions(captions, model)
        path = _COCO_FILE if source == COCO else Path(source)
        file = ArrowFile(path)
        facts = metadata_of(file.schema)
        if facts.get("kind") != _KIND:
            remedy = "give coco, or a captions folder as FOLDER or FOLDER#SPLIT"
            raise InputError("no map to what captions share", file=path, remedy=remedy)
        file.need(pa.schema([]), ("model", "corpus"))
        if facts["model"] != fingerprint(model):
            problem = f"learnt from embeddings of another model than {model}"
            raise InputError(problem, file=path, remedy="give a captions folder")
        table = file.read_all().combine_chunks()
        mean = table["mean"].to_numpy().astype(np.float64)
        root = table["root"].combine_chunks().flatten().to_numpy().astype(np.float64)
        return cls(mean, root.reshape(len(mean), len(mean)), facts["corpus"])

    def apply(self, vectors: np.ndarray) -> np.ndarray:
        """(vectors - mean) @ root as unit vectors, float32 [n, d]; 0 for one that is the mean."""
        out = np.empty_like(vectors, np.float32)
        with threadpool_limits(1, "blas"):  # the same bytes on any number of cores
            for at in range(0, len(vectors), _STEP):
                mapped = (vectors[at : at + _STEP].astype(np.float64) - self.mean) @ self.root
                length = np.linalg.norm(mapped, axis=1, keepdims=True)
                out[at : at + _STEP] = np.divide(
                    mapped, length, out=np.zeros_like(mapped), where=length > 0
                )
        return out


def map_digest(source: str) -> str:
    """SHA-256 of a source of a map, as `corpus_digest`."""
    return corpus_digest(str(_COCO_FILE) if source == COCO else source)


def map_embeddings(plain: FittedSbert, shared: SharedMap) -> FittedSbert:
    """The fitted embeddings, mapped."""
    mapped = shared.apply(plain.embeddings)
    return replace(plain, embeddings=mapped[plain.same])  # equal texts, equal bits


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
    map_embeddings, axes = eigh(between, both)
    return np.asarray((axes * np.sqrt(map_embeddings.clip(0, 1))) @ axes.T @ both)


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
