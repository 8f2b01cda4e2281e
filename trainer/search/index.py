"""Stage: the index of a split by a trained model, which has encodings, ids, texts and the
similarity matrix, and the search in it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ValidationError

from capgrade.measures.embeddings import embed as sentence_vectors
from capgrade.pretrained import EMBEDDED
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import (
    digest,
    found_digests,
    read_manifest,
    write_json,
    writing,
)
from capgrade.schemas.lines import read_json
from capgrade.schemas.progress import counted, progress
from capgrade.schemas.regions import Regions
from capgrade.schemas.run import StageRun
from capgrade.trainer.data.images import (
    drop_left_out,
    image_digest,
    images_of_model,
    open_images,
)
from capgrade.trainer.data.pairs import SplitPairs, pad_images, pad_texts, require_region_count
from capgrade.trainer.data.text import Tokens
from capgrade.trainer.evaluation.similarity import ITEMS, images_left_out, read_similarity
from capgrade.trainer.fit import MODEL, VOCABULARY
from capgrade.trainer.fit.checkpoint import load_run, read_config, require_dim, weights_of
from capgrade.trainer.models.base import Encoded, RetrievalModel
from capgrade.trainer.search.encode import (
    ENCODED_PARTS,
    SIZE,
    compute_scores,
    create_array,
    create_arrays,
    encode_batches,
    fill_arrays,
)
from capgrade.trainer.stages.embed import EMBED, EmbedParams

SIMILARITY = "similarity.npy"


def embed(
    captions: Path,
    out: Path,
    params: EmbedParams,
    *,
    run: Path,
    regions: Path | None = None,
) -> dict[str, Any]:
    """Write encodings (unit vectors in images.vector.npy, or sets of vectors with masks),
    items.json (`IndexItems`) and similarity.npy, float32 [n_images, n_captions]; returns the
    manifest, which lists images without regions or a readable picture (`unreadable` "skip").

    With `params.coarse`, another model's similarity.npy, only the `coarse_top` captions of each
    image and images of each caption are scored, others -inf. InputError for inputs that do not fit
    together, and for an `out` of another stage."""
    weights, config = weights_of(run, params.best_by), read_config(run)
    name = config["params"]["model"]["name"]
    regions, images = images_of_model(name, regions, params.images, "embed.images")
    table = read_captions(captions, params.split)
    store = open_images(
        name, config["model"], regions, images, params.unreadable, "embed.unreadable"
    )
    coarse = None if params.coarse is None else Path(params.coarse)
    read = input_digests(run, table, image_digest(store, [table]), weights)
    kept = StageRun(stage=EMBED, params=params, inputs={**read, **found_digests(coarse=coarse)})
    with kept.folder(out) as folder:
        model, tokens, config = load_run(run, pooling=params.pooling, weights=weights)
        require_dim(config["feature_dim"], store.metadata["dim"], store.folder)
        split, missing = drop_left_out(table, store)
        pairs = SplitPairs(split, store, tokens.encode(split))
        require_region_count(getattr(model, "config", None), pairs)
        candidates = (
            None
            if coarse is None
            else select_candidates(_read_coarse(coarse, table, missing), params.coarse_top)
        )
        with writing(out):
            matrix = create_array(folder / SIMILARITY, (split.n_images, split.n_captions))
            encodings = _score(model, pairs, folder, matrix, candidates)
            for array in (matrix, *encodings.values()):
                array.flush()
        items = {
            "image_ids": split.image_ids,
            "caption_ids": split.caption_ids,
            "captions": split.texts,
        }
        write_json(folder / ITEMS, {**items, "owner": split.owner.tolist(), "split": split.split})
        counts = {ITEMS: split.n_captions, SIMILARITY: split.n_images}
        counts |= {f"{part}.npy": len(array) for part, array in encodings.items()}
        left_out = [
            {"image_id": image_id, "reason": reason} for image_id, reason in missing.items()
        ]
        facts: dict[str, Any] = {"model": name, "weights": weights, "left_out": left_out}
        return kept.finish(folder, counts, **facts)


def _read_coarse(path: Path, captions: Captions, missing: Mapping[str, str]) -> np.ndarray:
    """Another model's similarity, without the images that are `missing` here. InputError where it
    lacks one of the others."""
    if unscored := images_left_out(path).keys() - missing.keys():
        problem = f"has no scores of image {min(unscored)!r}, {len(unscored):,} such"
        raise InputError(problem, file=path, remedy="score the same images with both models")
    images = np.array([image_id not in missing for image_id in captions.image_ids])
    return read_similarity(path, captions)[np.ix_(images, images[captions.owner])]


def input_digests(
    run: Path, captions: Captions, images: dict[str, str], weights: str = MODEL
) -> dict[str, str]:
    """name -> digest of what an index depends on: the model, the vocabulary, the captions, the
    split and the images (`image_digest`)."""
    files = found_digests(model=run / weights, vocabulary=run / VOCABULARY)
    return {**files, **images, "captions": captions.digest, "split": captions.split}


def _score(
    model: RetrievalModel,
    pairs: SplitPairs,
    folder: Path,
    matrix: np.ndarray,
    candidates: np.ndarray | None,
) -> dict[str, np.memmap]:
    """Fill `matrix` with scores, and write the encodings to files in `folder`, which are returned.
    In memory are the encodings of all images and of one block of captions. With `candidates`, bool
    [n_images, n_captions], other pairs get -inf."""
    (n_images, n_captions), longest = matrix.shape, max(map(len, pairs.tokens))
    with progress(f"encoding {n_images:,} images", n_images) as advance:
        of_images = counted(pairs.image_batches(SIZE), advance, lambda batch: len(batch.features))
        images = encode_batches(model, of_images)
    arrays: dict[str, np.memmap] = {}
    with progress(f"scoring {n_captions:,} captions", n_captions) as advance:
        batches = counted(pairs.caption_batches(SIZE), advance, lambda batch: len(batch.tokens))
        for start, batch in zip(range(0, n_captions, SIZE), batches, strict=True):
            texts = encode_batches(model, [batch])
            columns = slice(start, start + len(batch.tokens))
            if not arrays:
                longest_image = 0 if images.mask is None else images.mask.shape[1]
                arrays = create_arrays(folder, "images", images, n_images, longest_image)
                arrays |= create_arrays(folder, "captions", texts, n_captions, longest)
                fill_arrays(arrays, "images", 0, images)
            fill_arrays(arrays, "captions", start, texts)
            if candidates is None:
                matrix[:, columns] = compute_scores(model, images, texts)
                continue
            matrix[:, columns] = -np.inf
            for k in range(len(texts)):
                if len(rows := np.flatnonzero(candidates[:, start + k])):
                    matrix[rows, start + k] = compute_scores(
                        model, images[torch.from_numpy(rows)], texts[k : k + 1]
                    )[:, 0]
    return arrays


@dataclass(frozen=True)
class Hit:
    """One ranked item: a caption, or an image with its first caption."""

    id: str
    text: str
    similarity: float
    own: bool  # belongs to the query
    relevance: float  # Sentence-BERT cosine of the query's nearest caption and the hit's nearest


class IndexItems(BaseModel):
    """items.json: the images and captions of an index, in its order."""

    image_ids: list[str]
    caption_ids: list[str]
    captions: list[str]
    owner: list[int]  # the image of each caption


@dataclass(frozen=True)
class Searcher:
    """A trained model with its index of a split (`embed`), loaded once for many queries."""

    model: RetrievalModel
    tokens: Tokens
    feature_dim: int
    folder: Path  # of the index
    images: Encoded
    captions: Encoded
    items: IndexItems
    owner: np.ndarray  # int64 [n_captions]

    def captions_of(self, image: int) -> list[str]:
        """The texts of an image's own captions; `image` is its number in the index."""
        return [self.items.captions[k] for k in np.flatnonzero(self.owner == image)]

    def score_text(self, text: str) -> np.ndarray:
        """Score of every image for a typed caption: float32 [n_images]."""
        encoded = encode_batches(self.model, [pad_texts(self.tokens.encode_texts([text]))])
        return compute_scores(self.model, self.images, encoded)[:, 0]

    def score_caption(self, row: int) -> np.ndarray:
        """Score of every image for a caption of the index: float32 [n_images]."""
        return compute_scores(self.model, self.images, self.captions[row : row + 1])[:, 0]

    def score_image(self, image: int) -> np.ndarray:
        """Score of every caption for an image of the index: float32 [n_captions]."""
        return compute_scores(self.model, self.images[image : image + 1], self.captions)[0]

    def score_regions(self, regions: Regions) -> np.ndarray:
        """Score of every caption for an image that is not in the index: float32 [n_captions].
        InputError for regions of another detector, and for a model that reads pictures."""
        if self.model.reads == "pictures":
            raise InputError(
                "this model reads pictures, not regions",
                file=self.folder,
                remedy="embed the picture",
            )
        require_dim(self.feature_dim, regions.features.shape[1], self.folder)
        encoded = encode_batches(self.model, [pad_images([regions])])
        return compute_scores(self.model, encoded, self.captions)[0]


def open_search(run: Path, index_dir: Path) -> Searcher:
    """The searcher of a run and its index. InputError for a damaged run, for a damaged or
    unfinished index, and for an index of another model."""
    manifest, remedy = read_manifest(index_dir, EMBED.name), "run `capgrade embed` again"
    weights, inputs = manifest.get("weights", MODEL), manifest["inputs"]
    pooling = manifest["params"][EMBED.name]["pooling"]
    model, tokens, config = load_run(run, pooling=pooling, weights=weights)
    files = {"model": digest(run / weights), "vocabulary": digest(run / VOCABULARY)}
    if any(inputs.get(name, file) != file for name, file in files.items()):
        raise InputError(f"made by another model than that of {run}", file=index_dir, remedy=remedy)
    content = read_json(index_dir / ITEMS)
    try:
        items = IndexItems.model_validate(content)
        tensors = _tensors(index_dir, manifest["files"])
    except ValidationError as error:
        first_error = error.errors()[0]
        problem = (
            f"damaged: {ITEMS}: {'.'.join(map(str, first_error['loc']))}: {first_error['msg']}"
        )
        raise InputError(problem, file=index_dir, remedy=remedy) from error
    except (ValueError, EOFError) as error:  # numpy raises these for a damaged file.
        raise InputError(
            f"damaged: {' '.join(str(error).split())}", file=index_dir, remedy=remedy
        ) from error
    counts = {"images": len(items.image_ids), "captions": len(items.caption_ids)}
    rows = {(name.partition(".")[0], len(tensor)) for name, tensor in tensors.items()}
    counts_agree = len(items.captions) == len(items.owner) == counts["captions"]
    if (
        rows != set(counts.items())
        or not counts_agree
        or set(items.owner) != set(range(counts["images"]))
    ):
        raise InputError(
            f"damaged: {ITEMS} is not of what is encoded", file=index_dir, remedy=remedy
        )
    images, captions = (
        Encoded(*(tensors.get(f"{side}.{name}") for name in ENCODED_PARTS)) for side in counts
    )
    owner = np.array(items.owner, np.int64)
    return Searcher(model, tokens, config["feature_dim"], index_dir, images, captions, items, owner)


def _tensors(folder: Path, files: Iterable[str]) -> dict[str, torch.Tensor]:
    """name, such as "images.vector" -> encodings of an index. ValueError and EOFError for a damaged
    file."""
    arrays = (name for name in files if name.endswith(".npy") and name != SIMILARITY)
    return {name.removesuffix(".npy"): torch.from_numpy(np.load(folder / name)) for name in arrays}


def search(run: Path, index_dir: Path, query: str, top: int = 5) -> list[Hit]:
    """The images nearest to a typed caption, best first; equal scores keep the order of the
    index."""
    index = open_search(run, index_dir)
    values = index.score_text(query)
    best = np.argsort(-values, kind="stable")[:top].tolist()
    captions_of_images = [index.captions_of(image) for image in best]
    hits = zip(best, captions_of_images, _relevance_of([query], captions_of_images), strict=True)
    return [
        Hit(index.items.image_ids[i], texts[0], float(values[i]), query in texts, r)
        for i, texts, r in hits
    ]


def search_captions(run: Path, index_dir: Path, image_id: str, top: int = 5) -> list[Hit]:
    """The captions nearest to an image of the index, best first. InputError for an image that it
    does not have."""
    index = open_search(run, index_dir)
    items = index.items
    if image_id not in items.image_ids:
        raise InputError(
            f"no image '{image_id}'", file=index_dir, remedy="choose one of items.json"
        )
    image = items.image_ids.index(image_id)
    values, is_own = index.score_image(image), index.owner == image
    best = np.argsort(-values, kind="stable")[:top].tolist()
    hits = zip(
        best,
        _relevance_of(index.captions_of(image), [[items.captions[c]] for c in best]),
        strict=True,
    )
    return [
        Hit(items.caption_ids[c], items.captions[c], float(values[c]), bool(is_own[c]), r)
        for c, r in hits
    ]


def _relevance_of(query: list[str], caption_sets: list[list[str]]) -> list[float]:
    """For each set the largest cosine of one of its captions and one of the query's."""
    texts = [*query, *(text for texts in caption_sets for text in texts)]
    vectors = sentence_vectors(texts, EMBEDDED)
    ends = np.cumsum([len(query), *map(len, caption_sets)])
    return [
        float((vectors[: len(query)] @ vectors[a:b].T).max())
        for a, b in zip(ends, ends[1:], strict=False)
    ]


_BLOCK = 512  # rows or columns that are sorted at once


def select_candidates(coarse: np.ndarray, top: int) -> np.ndarray:
    """bool [n_images, n_captions]: the `top` best captions of each image and the `top` best images
    of each caption by the coarse similarity; of equal scores the first."""
    candidates = np.zeros(coarse.shape, np.bool_)
    for values, chosen in ((coarse, candidates), (coarse.T, candidates.T)):
        for start in range(0, len(values), _BLOCK):
            best = np.argsort(-np.asarray(values[start : start + _BLOCK]), axis=1, kind="stable")[
                :, :top
            ]
            np.put_along_axis(chosen[start : start + _BLOCK], best, True, axis=1)
    return candidates
