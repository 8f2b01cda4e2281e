"""From folders to an explorer: what `capgrade explore` and screenshots start with."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from capgrade.agreement.judgement_files import read_judgements
from capgrade.explorer.answers import Explorer
from capgrade.explorer.corpus import LabelledCorpus, read_labels, sampled
from capgrade.explorer.voices import MatrixVoice, matrix_voice, measure_voices
from capgrade.labels.named import as_named
from capgrade.measures import choose
from capgrade.measures.params import MeasuresParams
from capgrade.pictures.listing import PICTURES_TABLE
from capgrade.pictures.lookup import PictureLookup, find
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import read_manifest
from capgrade.schemas.params import RegionsParams
from capgrade.schemas.say import warn

if TYPE_CHECKING:
    from capgrade.explorer.models import ModelVoice  # which loads torch

_SIMILARITY = "similarity.npy"
_INDEX = "index"  # in a run's folder, where `capgrade evaluate --run` writes unless told otherwise


@dataclass(frozen=True)
class ExplorerFolders:
    """Where everything is. Either `dataset`, a folder or USER/NAME of the hub; or `captions` with
    `shards`, with `relevance`, or alone. `detector` looks at uploaded pictures."""

    dataset: Path | None = None
    captions: Path | None = None
    shards: Path | None = None
    relevance: Path | None = None
    split: str | None = None
    measures: Sequence[str] = ("cider", "rouge_l", "sbert")  # where no labels are given
    runs: Sequence[Path] = ()
    indexes: Sequence[Path] = ()  # one per run, or none
    similarity: Sequence[Path] = ()  # matrices of other models, as `evaluate` takes them
    images: str | Path | None = None  # a folder, a zip, a list, or a URL template
    judgements: Path | None = None
    params: MeasuresParams = field(default_factory=MeasuresParams)
    detector: RegionsParams | None = None


def read_corpus(folders: ExplorerFolders) -> LabelledCorpus:
    """Labels of the folders; of captions alone, pairs are sampled from the named measures, computed
    now.

    InputError when the folders do not go together.
    """
    if (folders.dataset is None) == (folders.captions is None):
        raise InputError(
            "a published dataset or captions are explored",
            remedy="give one of --dataset and --captions",
        )
    if folders.dataset and (folders.shards or folders.relevance):
        raise InputError(
            "a published dataset has its labels", remedy="leave --shards and --relevance out"
        )
    for kind, folder in {
        "publish": folders.dataset,
        "shards": folders.shards,
        "relevance": folders.relevance,
    }.items():
        if folder is not None and (
            kind != "publish" or folder.is_dir()
        ):  # only a dataset may be one of the hub
            read_manifest(folder, kind)
    labels = folders.dataset or folders.shards or folders.relevance
    if labels is not None:
        return read_labels(labels, folders.params, folders.split, folders.captions)
    assert folders.captions is not None
    captions = read_captions(folders.captions, folders.split)
    fitted = choose(folders.measures, folders.params)
    scores = {name: measure.fit(captions).score for name, measure in fitted.items()}
    return LabelledCorpus(captions, sampled(captions, scores), folders.params, folders.captions)


def open_explorer(folders: ExplorerFolders) -> Explorer:
    """Read the folders, fit the measures, load the models; the captions are embedded here unless
    they have been, by the default encoder or the one that `folders.params` names.

    Raises InputError for whatever is missing or does not go together.
    """
    corpus = read_corpus(folders)
    captions, images = corpus.captions, folders.images
    models, matrices = read_models(folders, corpus), read_matrices(folders, corpus)
    if images is None and folders.captions and (folders.captions / PICTURES_TABLE).is_file():
        images = folders.captions  # generated scenes come with theirs
    pictures = PictureLookup() if images is None else find(captions, images)
    pictures.asked.update(captions.image_ids)
    pictures.lost |= {
        image_id: "not there" for image_id in captions.image_ids if image_id not in pictures
    }
    pictures.tell()
    people = read_judgements(folders.judgements, captions) if folders.judgements else None
    params = as_named(corpus.params, folders.params, corpus.folder)
    measures = measure_voices(captions, list(corpus.pairs.values), params)
    detector = None
    if folders.detector is not None:
        from capgrade.pipelines.detectors.catalogue import make_detector

        detector = make_detector(folders.detector)
    explorer = Explorer(corpus, measures, models, matrices, pictures, people, detector)
    with suppress(
        InputError
    ):  # a first caption without words; asked so that the user's first need not wait
        explorer.of_caption(0), explorer.of_image(0), explorer.of_text(captions.texts[0])
    return explorer


def read_models(folders: ExplorerFolders, corpus: LabelledCorpus) -> list[ModelVoice]:
    """Each named by its folder; by the whole path where that name is taken."""
    if folders.indexes and len(folders.indexes) != len(folders.runs):
        remedy = "give each --run its --index, in order, or none"
        raise InputError(
            f"{len(folders.indexes)} --index for {len(folders.runs)} --run", remedy=remedy
        )
    if not folders.runs:
        return []
    from capgrade.explorer.models import model_voice

    indexes = folders.indexes or [run / _INDEX for run in folders.runs]
    labels = _labels(folders, corpus)[: len(folders.runs)]
    return [
        model_voice(*each, corpus.captions)
        for each in zip(labels, folders.runs, indexes, strict=True)
    ]


def read_matrices(folders: ExplorerFolders, corpus: LabelledCorpus) -> list[MatrixVoice]:
    """Each named by its file, or its folder; by the whole path where that name is taken. InputError
    as `read_similarity`."""
    if not folders.similarity:
        return []
    from capgrade.trainer.evaluation.task import read_similarity, unordered

    labels, captions = _labels(folders, corpus)[len(folders.runs) :], corpus.captions
    found = []
    for label, path in zip(labels, folders.similarity, strict=True):
        matrix = read_similarity(path, captions)
        if note := unordered([path], matrix, captions):
            warn(f"{path}: {note}")
        found.append(matrix_voice(label, matrix))
    return found


def _labels(folders: ExplorerFolders, corpus: LabelledCorpus) -> list[str]:
    """Names of the runs, then of the matrices."""
    paths = [*folders.runs, *folders.similarity]
    files = [path.resolve() for path in folders.similarity]
    # of `evaluate --run`
    named = [path.parent.name if path.name == _SIMILARITY else path.stem for path in files]
    names = [*(run.resolve().name for run in folders.runs), *named]
    taken = {*corpus.pairs.values, *(name for name in names if names.count(name) > 1)}
    return [str(path) if name in taken else name for name, path in zip(names, paths, strict=True)]
