"""A retrieval task as the stage reads it: images x captions, with every label there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.metrics.base import Positives, Queries
from capgrade.metrics.eccv import human_lists, original_images
from capgrade.metrics.evaluation import Pair, directions
from capgrade.metrics.pmrp import coco_codes
from capgrade.metrics.ranking import Array, Ties
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.text.language import warn_unless_english
from capgrade.trainer.evaluation.inputs import (
    left_out,
    mean_similarity,
    read_positives,
    read_relevance_folder,
    similarity_of,
)

COCO_IMAGES, COCO_IDS = 5_000, 1_000_000  # of the test split; above every image id of COCO


@dataclass(frozen=True)
class Task:
    """Everything an evaluation knows, images x captions in the order of the captions table."""

    similarity: Array  # (n_images, n_captions)
    owner: Array  # (n_captions,) image of each caption
    relevance: Mapping[str, Array] = field(default_factory=dict)  # (n_images, n_captions) each
    human: Mapping[str, Pair] = field(default_factory=dict)  # of images, of captions
    codes: Array | None = None  # (n_images, n_classes)
    accepted: Pair | None = None  # estimated by `capgrade audit`, from captions alone
    kept: Array | None = None  # (n_captions,) rows of the captions table; None for all of them

    def __post_init__(self) -> None:
        self.directions()  # checks them

    @property
    def positives(self) -> dict[str, Pair]:
        """The lists of people, and those of `capgrade audit`."""
        return {**self.human, **({} if self.accepted is None else {"accepted": self.accepted})}

    def directions(self, ties: Ties = "expected") -> dict[str, Queries]:
        """Both directions as queries x candidates, views only."""
        lists = self.positives
        return directions(
            self.similarity, self.relevance, owner=self.owner, positives=lists, classes=self.codes, ties=ties
        )


def load_task(
    captions: Path,
    *,
    similarity: Sequence[Path] | Path | None = None,
    image_embeddings: Path | None = None,
    caption_embeddings: Path | None = None,
    stand_in: int | None = None,
    relevance: Path | None = None,
    instances: Path | None = None,
    split: str | None = None,
    positives: Path | None = None,
) -> tuple[Task, list[str]]:
    """Read a task, and say in notes what it cannot be scored on and why.

    The similarity is a file, the mean of several (an ensemble), the cosines of two embedding tables, or `stand_in`:
    the k-th caption of each image, encoded by the Sentence-BERT of the package, stands for it and leaves the gallery.
    `positives` is a file of `capgrade audit`.
    """
    files = [similarity] if isinstance(similarity, Path) else list(similarity or [])
    if (image_embeddings is None) != (caption_embeddings is None):
        raise InputError("one embedding table given", remedy="give --image-embeddings and --caption-embeddings")
    if sum(source is not None for source in (files or None, image_embeddings, stand_in)) != 1:
        remedy = "--similarity, or --image-embeddings and --caption-embeddings, or --stand-in"
        raise InputError("give one source of similarity", remedy=remedy)
    table, notes = read_captions(captions, split), []
    kept = np.arange(table.n_captions)
    if stand_in is not None:
        chosen = _stand_ins(table.ref_ptr, table.refs, stand_in)
        kept = np.setdiff1d(kept, chosen)
        from capgrade.measures.embeddings import embed
        from capgrade.pretrained import EMBEDDED

        warn_unless_english("the Sentence-BERT of --stand-in", table)
        vectors = embed(list(table.texts), EMBEDDED)
        matrix = np.asarray(vectors[chosen] @ vectors[kept].T)
        notes.append(f"caption {stand_in} of each image stands for the image and is out of the gallery")
    elif image_embeddings is not None and caption_embeddings is not None:
        matrix = similarity_of(image_embeddings, caption_embeddings, table)
    else:
        matrix = mean_similarity(files, table)
        notes += [f"similarity is the mean of {len(files)} matrices"] if len(files) > 1 else []
        notes += [note for path in files if (note := left_out(path))]
    labels = {} if relevance is None else read_relevance_folder(relevance, table, kept)
    codes = None if instances is None else coco_codes(instances, table.image_ids)
    notes += [] if labels else ["no relevance given: graded metrics left out"]
    notes += ["no instances given: PMRP left out"] if codes is None and of_coco(table.image_ids) else []
    for name, values in labels.items():
        if values.min() < 0:
            notes.append(f"{name} goes below 0: sums of gains (ncs, ndcg, soft sr) count that as 0")
    human = _human(table.image_ids, table.caption_ids, kept, notes)
    accepted = None if positives is None else _of_kept(read_positives(positives, table), kept)
    return Task(matrix, table.owner[kept], labels, human, codes, accepted, kept), notes


def _human(image_ids: Sequence[str], caption_ids: Sequence[str], kept: Array, notes: list[str]) -> dict[str, Any]:
    positives = {}
    for name in ("eccv", "cxc"):
        try:
            lists = human_lists(name, image_ids, caption_ids)
        except InputError as error:
            if of_coco(image_ids):  # of another data set nothing is missed
                notes.append(f"{name} left out: {error.problem} ({error.remedy})")
        else:
            positives[name] = _of_kept(lists, kept)
    return positives


def of_coco(image_ids: Sequence[str]) -> bool:
    """Are these ids of MS-COCO's 5K test split, or of a part of it? Flickr's are numbers too."""
    try:
        known = original_images()
    except InputError:  # the package that has the list is missing
        return len(image_ids) >= COCO_IMAGES and all(one.isdecimal() and int(one) < COCO_IDS for one in image_ids)
    return known.issuperset(image_ids)


def _of_kept(lists: tuple[Positives, Positives], kept: Array) -> tuple[Positives, Positives]:
    """Lists of images and of captions, of the kept captions alone."""
    of_images, of_captions = lists[0], lists[1].lists()
    if len(kept) == len(of_captions):
        return lists
    where = np.full(int(max(kept.max(), of_images.indices.max(initial=0))) + 1, -1)
    where[kept] = np.arange(len(kept))
    held = [where[items[items >= 0]] for items in of_images.lists()]  # a dropped positive is no positive any more
    held = [items[items >= 0] for items in held]
    return Positives.from_lists(held), Positives.from_lists([of_captions[row] for row in kept])


def _stand_ins(starts: Array, refs: Array, which: int) -> Array:
    """The caption that stands for each image; every image keeps another one."""
    sizes = np.diff(starts)
    if which < 0 or (sizes <= max(which, 1)).any():
        problem = f"image {int(np.argmin(sizes))} has {int(sizes.min())} captions, none to spare for number {which}"
        raise InputError(problem, remedy="choose a smaller --stand-in, or images with more captions")
    return np.asarray(refs[starts[:-1] + which])
