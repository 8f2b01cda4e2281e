"""From folders to an explorer, for `capgrade explore` and for screenshots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capgrade.agreement.judgement_files import read_judgements
from capgrade.apps.explorer.answers import Explorer
from capgrade.apps.explorer.corpus import LabelledCorpus, read_labels, sample_pairs
from capgrade.apps.explorer.pairs import APART
from capgrade.apps.explorer.voices import MatrixVoice, fit_measure_voices, make_matrix_voice
from capgrade.measures import MeasuresParams, choose, names_of, require_same_files
from capgrade.measures.refit import params_to_refit
from capgrade.pictures.listing import PICTURES_TABLE
from capgrade.pictures.lookup import PictureLookup, find_pictures
from capgrade.pipelines.stages.regions import RegionsParams
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import read_manifest
from capgrade.schemas.say import if_silent, warn

if TYPE_CHECKING:
    from capgrade.apps.explorer.models import ModelVoice  # which loads torch

_SIMILARITY = "similarity.npy"
_INDEX = "index"  # in a run's folder, where `search` and `explore` look unless told otherwise


@dataclass(frozen=True)
class ExplorerFolders:
    """What to explore: either `dataset`, a folder or USER/NAME of the hub, with the `captions` of
    one that has ids alone; or `captions` with `shards`, with `relevance`, or alone. `detector`
    finds regions in uploaded pictures."""

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

    @property
    def fitted(self) -> set[str]:
        """The measures that the explorer fits: those of the labels, or without labels `measures`.
        InputError for a folder that is not finished."""
        if self.dataset:
            if not self.dataset.is_dir():  # It is then a dataset of the hub, with its own labels.
                return set()
            return _measures_of_manifest(read_manifest(self.dataset, "publish")["measures"])
        if self.shards:
            return _measures_of_manifest(read_manifest(self.shards, "shards")["params"]["measures"])
        return (
            {path.stem for path in self.relevance.glob("*.arrow")}
            if self.relevance
            else set(self.measures)
        )


def _measures_of_manifest(used: Mapping[str, Any]) -> set[str]:
    """The measures in a folder's manifest, those that rank for them, and the parts of mixtures."""
    names = {name for name, params in used.items() if "weights" not in params}
    return names.union(
        *(_measures_of_manifest(params.get("measures", {})) for params in used.values())
    )


def open_corpus(folders: ExplorerFolders) -> LabelledCorpus:
    """Captions and labels of the folders. Captions without labels are labelled here: the named
    measures are computed, and pairs are sampled. InputError when the folders do not go together."""
    if folders.dataset is None and folders.captions is None:
        raise InputError("nothing to explore", remedy="give --dataset or --captions")
    if folders.dataset and (folders.shards or folders.relevance):
        raise InputError(
            "a published dataset has its labels", remedy="leave --shards and --relevance out"
        )
    for kind, folder in {
        "publish": folders.dataset,
        "shards": folders.shards,
        "relevance": folders.relevance,
    }.items():
        # A dataset that is no folder is one of the hub, and has no manifest here.
        if folder is not None and (kind != "publish" or folder.is_dir()):
            read_manifest(folder, kind)
    labels = folders.dataset or folders.shards or folders.relevance
    if labels is not None:
        return read_labels(labels, folders.params, folders.split, folders.captions)
    assert folders.captions is not None
    captions = read_captions(folders.captions, folders.split)
    fitted = choose(folders.measures, folders.params)
    with if_silent(f"fitting {', '.join(fitted)} to {captions.n_captions:,} captions"):
        scores = {name: measure.fit(captions).score for name, measure in fitted.items()}
    return LabelledCorpus(
        captions, sample_pairs(captions, scores), folders.params, folders.captions
    )


def open_explorer(folders: ExplorerFolders) -> Explorer:
    """Read the folders, fit the measures, and load the models. Captions without kept embeddings are
    embedded, by the default encoder or the one that `folders.params` names. Raises InputError for
    inputs that are missing or do not go together."""
    corpus = open_corpus(folders)
    captions, images = corpus.captions, folders.images
    models, matrices = read_models(folders, corpus), read_matrices(folders, corpus)
    if images is None and folders.captions and (folders.captions / PICTURES_TABLE).is_file():
        images = folders.captions  # Generated scenes come with their pictures.
    pictures = PictureLookup() if images is None else find_pictures(captions, images)
    pictures.requested.update(captions.image_ids)
    pictures.unavailable |= {
        image_id: "not there" for image_id in captions.image_ids if image_id not in pictures
    }
    pictures.warn_of_missing()
    people = read_judgements(folders.judgements, captions) if folders.judgements else None
    params = params_to_refit(corpus.params, folders.params, corpus.folder)
    names = list(corpus.pairs.values)
    if corpus.inputs:
        own = [name for name in names if name in names_of(params)]
        require_same_files(own, params, corpus.inputs, corpus.folder)
    with if_silent(f"fitting {', '.join(names)} to {captions.n_captions:,} captions"):
        measures = fit_measure_voices(captions, names, params)
    detector = None
    if folders.detector is not None:
        from capgrade.pipelines.detectors.catalogue import make_detector

        detector = make_detector(folders.detector)
    explorer = Explorer(corpus, measures, models, matrices, pictures, people, detector)
    # The first questions compile kernels, so they are asked before a user has to wait for them.
    with if_silent("asking the first questions, so that no user waits for their kernels"):
        with suppress(InputError):  # a caption without words
            explorer.answer_caption(0)
            explorer.answer_image(0)
            explorer.answer_text(captions.texts[0])
        highs, lows = explorer.sides(APART)
        with suppress(InputError):  # one measure has nobody to disagree with
            explorer.disagreements(APART, highs[0], lows[-1], 1)
    return explorer


def read_models(folders: ExplorerFolders, corpus: LabelledCorpus) -> list[ModelVoice]:
    """The models of the runs, named by their folders, or by the whole path where that name is
    taken."""
    if folders.indexes and len(folders.indexes) != len(folders.runs):
        remedy = "give each --run its --index, in order, or none"
        raise InputError(
            f"{len(folders.indexes)} --index for {len(folders.runs)} --run", remedy=remedy
        )
    if not folders.runs:
        return []
    from capgrade.apps.explorer.models import open_model_voice

    indexes = folders.indexes or [run / _INDEX for run in folders.runs]
    labels = _labels(folders, corpus)[: len(folders.runs)]
    return [
        open_model_voice(*of_run, corpus.captions)
        for of_run in zip(labels, folders.runs, indexes, strict=True)
    ]


def read_matrices(folders: ExplorerFolders, corpus: LabelledCorpus) -> list[MatrixVoice]:
    """The matrices of other models, named by their files, `similarity.npy` by its folder, or by the
    whole path where that name is taken. InputError as `read_similarity`."""
    if not folders.similarity:
        return []
    from capgrade.trainer.evaluation.similarity import note_of_order, read_similarity

    labels, captions = _labels(folders, corpus)[len(folders.runs) :], corpus.captions
    voices = []
    for label, path in zip(labels, folders.similarity, strict=True):
        matrix = read_similarity(path, captions)
        if note := note_of_order([path], matrix, captions):
            warn(f"{path}: {note}")
        voices.append(make_matrix_voice(label, matrix))
    return voices


def _labels(folders: ExplorerFolders, corpus: LabelledCorpus) -> list[str]:
    """Names of the runs, then of the matrices."""
    paths = [*folders.runs, *folders.similarity]
    files = [path.resolve() for path in folders.similarity]
    # `embed` gives every matrix the same file name, so its folder tells them apart.
    matrix_names = [path.parent.name if path.name == _SIMILARITY else path.stem for path in files]
    names = [*(run.resolve().name for run in folders.runs), *matrix_names]
    taken = {*corpus.pairs.values, *(name for name in names if names.count(name) > 1)}
    return [str(path) if name in taken else name for name, path in zip(names, paths, strict=True)]
