"""A retrieval task as the stage reads it: images x captions, with every label there is, each
checked against them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from capgrade.agreement.judgement_files import name_judgements, read_judgements
from capgrade.agreement.judgements import Judgements
from capgrade.labels import Labels
from capgrade.lists import LIKELY, list_file, read_list, table_of_ids
from capgrade.metrics.eccv import are_coco_ids, human_lists
from capgrade.metrics.pmrp import coco_codes
from capgrade.metrics.positives import BothSides, Positives
from capgrade.schemas.arrays import Array, release
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import (
    MANIFEST,
    parse_manifest,
    read_manifest,
)
from capgrade.schemas.left_out import counts_of, line_of
from capgrade.schemas.lines import read_json
from capgrade.schemas.pairs import Pairs
from capgrade.schemas.relevance import read_relevance
from capgrade.text.language import warn_unless_english
from capgrade.text.tokens import tokens_of
from capgrade.trainer.evaluation.order import (
    MatrixIds,
    order_note,
)
from capgrade.trainer.evaluation.similarity import (
    coarse_note,
    cosine_matrix,
    has_ids,
    images_left_out,
    mean_similarity,
    select_items,
    similarity_of,
)

SAMPLED = ("shards", "publish")  # kinds of labels with weights


@dataclass(frozen=True)
class Task:
    """Everything an evaluation knows, images x captions in the order of the captions table."""

    similarity: Array  # (n_images, n_captions)
    owner: Array  # (n_captions,) image of each caption
    relevance: Mapping[str, Array] = field(default_factory=dict)  # (n_images, n_captions) each
    # In place of relevance where labels are sampled. Their queries are images.
    samples: Mapping[str, Pairs] = field(default_factory=dict, kw_only=True)
    # By name, (those of images, those of captions); "accepted" are those of an audit.
    positives: Mapping[str, BothSides] = field(default_factory=dict)
    codes: Array | None = None  # (n_images, n_classes)
    kept: Array | None = None  # (n_captions,) rows of the captions table; None for all of them
    # (n_images,) numbers of the images in the captions table; None for all of them
    images: Array | None = None
    # How many images by reason, and how many captions, the task lacks.
    left_out: Mapping[str, Any] = field(default_factory=dict)
    ids: tuple[Sequence[str], Sequence[str]] | None = None  # of images and captions
    texts: Sequence[str] = ()  # (n_captions,); none of a list
    # By name, of these images and captions.
    judgements: Mapping[str, Judgements] = field(default_factory=dict, kw_only=True)
    # Lists of people that could not be read, and why.
    without: Mapping[str, InputError] = field(default_factory=dict)

    def part(self, matrix: Array) -> Array:
        """The rows and columns of the task, of a matrix of the whole captions table."""
        return select_items(matrix, self.images, self.kept)


def load_task(
    captions: Path,
    *,
    similarity: Sequence[Path] | Path | None = None,
    embeddings: tuple[Path, Path] | None = None,
    stand_in: int | None = None,
    relevance: Path | None = None,
    instances: Path | None = None,
    split: str | None = None,
    positives: Path | None = None,
    likely: float = LIKELY,
    judgements: Sequence[Path] = (),
    ids: MatrixIds | None = None,
) -> tuple[Task, list[str]]:
    """Read a task, and say in notes what it cannot be scored on and why.

    The similarity is a file, the mean of several (an ensemble), the cosines of two embedding tables
    (of images, of captions), or `stand_in`: the k-th caption of each image, encoded by the
    Sentence-BERT of the package, stands for it and leaves the gallery. `positives` is a file of
    `capgrade audit`, or a list (`capgrade.lists`), whose pairs with a P of `likely` or more count;
    `judgements` are files as `read_judgements` has them. What they and a list say of other images
    and captions is left out, and counted of judgements.
    """
    files = [similarity] if isinstance(similarity, Path) else list(similarity or [])
    if sum(source is not None for source in (files or None, embeddings, stand_in)) != 1:
        raise InputError(
            "give one source of similarity",
            remedy="--similarity, --embeddings or --stand-in",
        )
    table, notes = read_captions(captions, split), []
    kept, images, without_counts = (
        np.arange(table.n_captions),
        np.arange(table.n_images),
        dict[str, Any](),
    )
    if stand_in is not None:
        sizes = np.diff(table.ref_ptr)
        if stand_in < 0 or (sizes <= max(stand_in, 1)).any():  # every image keeps another caption
            image, fewest = table.image_ids[sizes.argmin()], sizes.min()
            problem = f"image '{image}' has {fewest} captions, none to spare for number {stand_in}"
            smaller = "choose a smaller --stand-in, or " if stand_in > 0 else ""
            raise InputError(
                problem, remedy=f"{smaller}give images with {max(stand_in, 1) + 1} captions or more"
            )
        chosen = table.refs[table.ref_ptr[:-1] + stand_in]
        kept = np.setdiff1d(kept, chosen)
        from capgrade.measures.embeddings import embed
        from capgrade.pretrained import EMBEDDED

        warn_unless_english("the Sentence-BERT of --stand-in", tokens_of(table))
        vectors = embed(list(table.texts), EMBEDDED)
        matrix = cosine_matrix(vectors[chosen], vectors[kept])
        notes.append(
            f"caption {stand_in} of each image stands for the image and is out of the gallery"
        )
    elif embeddings is not None:
        matrix = similarity_of(*embeddings, table, ids)
        files = list(embeddings)
    else:
        without = {
            image_id: why for path in files for image_id, why in images_left_out(path).items()
        }
        images = np.flatnonzero([image_id not in without for image_id in table.image_ids])
        kept = np.flatnonzero(np.isin(table.owner, images))
        matrix = mean_similarity(files, table, ids, images, kept)
        lost = table.n_captions - len(kept)
        if without:
            without_counts = counts_of(without, lost)
            notes.append(f"{line_of(without, table.n_images, lost, 'smaller gallery')}")
        notes += [f"similarity is the mean of {len(files)} matrices"] if len(files) > 1 else []
        notes += [note for path in files if (note := coarse_note(path))]
    complete = len(images) == table.n_images
    if (
        complete
        and files
        and ids is None
        and not any(map(has_ids, files))
        and (note := order_note(matrix, table))
    ):
        notes.append(note)
    release(matrix)  # The order is tried on cells of every page.
    labels: dict[str, Array] = {}
    samples: dict[str, Pairs] = {}
    if relevance is not None and _is_sampled(relevance):
        samples = _read_samples(relevance, captions, table, kept, images)
        notes += _sample_notes(samples, matrix.size)
    elif relevance is not None:
        labels = _read_relevance_folder(relevance, table, kept, images)
    codes = (
        None if instances is None else coco_codes(instances, [table.image_ids[i] for i in images])
    )
    notes += [] if labels or samples else ["no relevance given: graded metrics left out"]
    notes += (
        ["no instances given: PMRP left out"]
        if codes is None and are_coco_ids(table.image_ids)
        else []
    )
    for name, values in labels.items():
        if values.min() < 0:
            notes.append(f"{name} goes below 0: sums of gains (ncs, ndcg, soft sr) count that as 0")
    lists, without_lists = _read_human_lists(
        table.image_ids, table.caption_ids, kept, images, notes
    )
    if positives is not None:
        accepted = _read_positives(positives, table, likely, notes)
        lists["accepted"] = _keep_items(accepted, kept, images)
    judged = {
        name: _read_judgements(path, table, images, kept, notes)
        for name, path in name_judgements(judgements).items()
    }
    owner = np.searchsorted(images, table.owner[kept])
    task = Task(
        matrix,
        owner,
        labels,
        lists,
        codes,
        kept,
        images if without_counts else None,
        without_counts,
        samples=samples,
        ids=([table.image_ids[i] for i in images], [table.caption_ids[c] for c in kept]),
        texts=[table.texts[c] for c in kept],
        judgements=judged,
        without=without_lists,
    )
    return task, notes


def _read_judgements(
    path: Path, table: Captions, images: Array, kept: Array, notes: list[str]
) -> Judgements:
    """Judgements of the task's images and captions. InputError where none is of these."""
    people = read_judgements(path, table, partly=True).restricted_to(images, kept)
    judged = len(people.score) + people.left_out
    if not len(people.score):
        problem = f"{judged:,} judged pairs, and an item of each is left out of this evaluation"
        raise InputError(problem, file=path, remedy="give judgements of what is evaluated")
    if people.left_out:
        notes.append(
            f"{path.name}: {people.left_out:,} of {judged:,} judged pairs are of an image or a"
            " caption that is not evaluated here"
        )
    return people


def load_listed_task(
    lists: Path, similarity: Sequence[Path], *, likely: float = LIKELY, ids: MatrixIds | None = None
) -> tuple[Task, list[str]]:
    """As `load_task`, without captions: the split and what is likely right come from a list
    (`capgrade.lists`).

    Pairs with a P of `likely` or more are the positives "accepted", beside own pairs."""
    if not similarity:
        raise InputError("no similarity to score by a list", remedy="give --similarity")
    likely_list, notes = read_list(lists), list[str]()
    positives = {"accepted": likely_list.positives(likely)}
    table = table_of_ids(likely_list, lists)
    matrix = mean_similarity(similarity, table, ids)
    notes += (
        [f"similarity is the mean of {len(similarity)} matrices"] if len(similarity) > 1 else []
    )
    if ids is None and not any(map(has_ids, similarity)) and (note := order_note(matrix, table)):
        notes.append(note)
    notes.append(_accepted_note(lists, likely))
    kept, images = np.arange(table.n_captions), np.arange(table.n_images)
    human, without = _read_human_lists(table.image_ids, table.caption_ids, kept, images, notes)
    task = Task(
        matrix,
        table.owner,
        {},
        {**human, **positives},
        ids=(table.image_ids, table.caption_ids),
        without=without,
    )
    return task, notes


def _read_human_lists(
    image_ids: Sequence[str],
    caption_ids: Sequence[str],
    kept: Array,
    images: Array,
    notes: list[str],
) -> tuple[dict[str, Any], dict[str, InputError]]:
    """Lists of people by name, and why those are not here that are not."""
    positives, without = {}, {}
    for name in ("eccv", "cxc"):
        try:
            lists = human_lists(name, image_ids, caption_ids)
        except InputError as error:
            without[name] = error
            if are_coco_ids(image_ids):  # of another data set nothing is missed
                notes.append(f"{name} left out: {error.problem} ({error.remedy})")
        else:
            positives[name] = _keep_items(lists, kept, images)
    return positives, without


def _keep_items(
    lists: tuple[Positives, Positives], kept: Array, images: Array
) -> tuple[Positives, Positives]:
    """The lists of images and of captions, without the images and captions that are not kept."""
    of_images, of_captions = (positives.lists() for positives in lists)
    if len(kept) == len(of_captions) and len(images) == len(of_images):
        return lists
    rows = _renumber([of_images[i] for i in images], kept, len(of_captions))
    return rows, _renumber([of_captions[row] for row in kept], images, len(of_images))


def _renumber(lists: Sequence[Array], kept: Array, count: int) -> Positives:
    """Number the items of lists by their place in `kept`, of `count` items, and drop the others. An
    absent item (-1) stays absent."""
    most = max([count - 1, *(int(items.max(initial=0)) for items in lists)])
    where = np.full(most + 2, -2)
    where[kept], where[-1] = np.arange(len(kept)), -1
    places = [where[items] for items in lists]
    return Positives.from_lists([row[row > -2] for row in places])


def _read_relevance_folder(
    folder: Path, captions: Captions, kept: Array, images: Array
) -> dict[str, Array]:
    """Every dense matrix of a relevance folder by measure, the kept images x captions, made for
    these captions."""
    matrices = {}
    for name in sorted(read_manifest(folder, "relevance")["files"]):
        if name.endswith(".arrow"):
            stored = read_relevance(folder / name)
            stored.require(captions)
            # The selected part is a copy, so the whole of one measure is freed before the next.
            matrices[Path(name).stem] = select_items(stored.matrix(), images, kept)
    if not matrices:
        raise InputError("no relevance in the folder", file=folder, remedy="run capgrade relevance")
    return matrices


def _read_samples(
    folder: Path, captions: Path, table: Captions, kept: Array, images: Array
) -> dict[str, Pairs]:
    """What shards or a published dataset know, by measure, of the kept images and captions. The
    weights of pairs say with which probability each was kept. Errors as `Labels.load` and
    `Labels.sample`."""
    labels = Labels.load(folder, split=table.split, captions=captions)
    labels.table.require_rows_of(table, folder)
    samples: dict[str, Pairs] = {}
    for name in labels.measures:
        sample = labels.sample(name)
        if len(images) < table.n_images or len(kept) < table.n_captions:
            sample = sample.among(images, kept)
        first = next(iter(samples.values()), sample)
        if sample.are_pairs_of(first):  # as of shards: they are in memory once
            sample = replace(sample, image=first.image, caption=first.caption, weight=first.weight)
        samples[name] = sample
    return samples


def _is_sampled(folder: Path) -> bool:
    path = folder / MANIFEST
    return path.is_file() and parse_manifest(path)["kind"] in SAMPLED


def _sample_notes(samples: Mapping[str, Pairs], pairs: int) -> list[str]:
    known = len(next(iter(samples.values()))) / pairs
    return [
        f"{', '.join(samples)}: from {known:.2%} of the pairs, by their weights",
        "sr, asp, tau, cs and other forms of ncs need the relevance of every pair: left out",
    ]


def positives_file(name: str | None) -> Path | None:
    """The file of likely positives: what `capgrade audit` wrote, or a list, also by its name.
    InputError for an unknown name."""
    return None if name is None else Path(name) if name.endswith(".json") else list_file(name)


def _accepted_note(lists: Path, likely: float) -> str:
    return f"accepted: own pairs, and those of {lists.stem} with P of {likely:g} or more"


def _read_positives(
    path: Path, captions: Captions, likely: float, notes: list[str]
) -> tuple[Positives, Positives]:
    """The file of positives that `capgrade audit` writes, or those of a list: (of images, of
    captions), in the captions' order. InputError for another file, or one of other captions."""
    if path.suffix == ".parquet":
        notes.append(_accepted_note(path, likely))
        return _read_listed(path, captions, likely)
    content = read_json(path)
    try:
        source, lists = (content["captions"], content["split"]), content["image_to_caption"]
        if source != (captions.digest, captions.split):
            remedy = "run capgrade audit for these captions"
            raise InputError(
                "positives of other captions, or of another split", file=path, remedy=remedy
            )
        at = captions.caption_numbers
        rows = [[at[caption] for caption in lists[image]] for image in captions.image_ids]
    except (KeyError, TypeError, AttributeError) as error:
        problem = f"not a file of positives ({type(error).__name__}: {error})"
        raise InputError(problem, file=path, remedy="give what capgrade audit wrote") from error
    others: list[list[int]] = [[] for _ in range(captions.n_captions)]
    for image, row in enumerate(rows):
        for caption in row:
            others[caption].append(image)
    return Positives.from_lists(rows), Positives.from_lists(others)


def _read_listed(path: Path, captions: Captions, likely: float) -> tuple[Positives, Positives]:
    """As `_read_positives`, of a list, which may have more images and captions."""
    found = read_list(path)
    places = []
    for what, known, ids in (
        ("image", found.image_ids, captions.image_ids),
        ("caption", found.caption_ids, captions.caption_ids),
    ):
        at = {text: k for k, text in enumerate(known.astype(str).tolist())}
        if missing := [name for name in ids if name not in at]:
            problem = f"no {what} '{missing[0]}', nor {len(missing) - 1:,} others of the captions"
            raise InputError(problem, file=path, remedy="give a list of these captions")
        places.append(np.array([at[name] for name in ids], np.int64))
    images, rows = places
    of_images, of_captions = (one.lists() for one in found.positives(likely))
    return (
        _renumber([of_images[k] for k in images], rows, len(of_captions)),
        _renumber([of_captions[k] for k in rows], images, len(of_images)),
    )
