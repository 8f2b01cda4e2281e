"""A trained model as a measure: the cosine of an image's and a caption's vector, by a model that
was not trained on the image.

A model knows which captions belong to the images it was trained on, and its scores of them repeat
that. So a training split is scored by cross-fitting: each of K models is trained without a part of
the images (`train.folds`), and scores that part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from capgrade.measures.base import Fill, Measure, OfPictures, own_pairs
from capgrade.measures.required import require_param
from capgrade.schemas.block import ParamsBlock
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST, digest, parse_manifest
from capgrade.schemas.lines import read_json
from capgrade.schemas.natures import PicturesAt, Where
from capgrade.trainer.fit import CONFIG, IMAGES

if TYPE_CHECKING:
    from capgrade.measures.sbert.fitted import FittedSbert
    from capgrade.schemas.captions import Captions


@dataclass(frozen=True)
class FittedTrained(OfPictures):
    """Unit vectors of images and captions by K models, and which images each model never saw.

    A value is the mean of the cosines by the models that never saw the image.
    """

    measure = "trained"

    images: np.ndarray  # float32 [K, n_images, d]
    captions: np.ndarray  # float32 [K, n_captions, d]
    unseen: np.ndarray  # bool [K, n_images], one or more of each image

    def by_model(self, k: int) -> FittedSbert:
        """Cosines by one model: each image's vector as its only reference."""
        from capgrade.measures.sbert.fitted import FittedSbert

        rows = np.arange(self.images.shape[1] + 1)
        return FittedSbert(rows, rows[:-1], False, self.images[k], rows[:-1], "max")

    def pairs(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        total = np.zeros(len(images))
        for k, unseen in enumerate(self.unseen[:, images]):
            rows = np.flatnonzero(unseen)
            cosines = self.by_model(k).scores(images[rows], captions[rows], self.captions[k])
            total[rows] += cosines
        return (total / self.unseen[:, images].sum(0)).astype(np.float32)

    def cells(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        out = np.empty((len(images), len(captions)), np.float32)
        self._adder(images)(lambda k: self.captions[k][captions], out)
        return out

    def filler(self, images: np.ndarray, start: int) -> Fill:
        """As `Fitted.filler`: a product by each model of the images that it never saw."""
        add = self._adder(images)
        return lambda first, last, out: add(
            lambda k: self.captions[k][first:last], out[:, : last - first]
        )

    def _adder(
        self, images: np.ndarray
    ) -> Callable[[Callable[[int], np.ndarray], np.ndarray], None]:
        """A function that puts means of cosines with the captions' vectors, which its first
        argument gives by the model's number, into its second, float32 [len(images), captions]."""
        parts = []
        for k, unseen in enumerate(self.unseen[:, images]):
            if len(rows := np.flatnonzero(unseen)):
                parts.append((k, rows, self.by_model(k).product(images[rows])))
        models = self.unseen[:, images].sum(0).astype(np.float32)

        def add(vectors: Callable[[int], np.ndarray], out: np.ndarray) -> None:
            out[:] = 0
            for k, rows, multiply in parts:
                cosines = np.empty((len(rows), out.shape[1]), np.float32)
                multiply(vectors(k), cosines)
                out[rows] += cosines
            out /= models[:, None]

        return add

    def own_left_out(self, images: np.ndarray) -> np.ndarray:
        """As `Fitted.own_left_out`: captions are no references here."""
        rows, captions = own_pairs(self.ref_ptr, self.refs, images)
        return self.pairs(images[rows], captions)


class TrainedParams(ParamsBlock):
    """A trained model: its run, and the regions or pictures that it reads."""

    run: Where | None = None
    """folder of `train`, of one model or, with train.folds, of several"""
    regions: Where | None = None
    """folder of the images' regions"""
    images: PicturesAt | None = None
    """pictures, of a model that reads them"""


class Trained(Measure[TrainedParams]):
    """Cosine of an image and a caption, -1..1, by a retrieval model that was not trained on the
    image."""

    name, parameters, block, pictures = "trained", TrainedParams, "trained", "images"
    modules = ("torch",)
    low, high = -1.0, 1.0

    def fit(self, captions: Captions) -> FittedTrained:
        """Encode images and captions by each model. InputError for a model whose score is no cosine
        of vectors, and where an image was seen by every model in training."""
        from capgrade.trainer.data.pairs import SplitPairs
        from capgrade.trainer.fit.checkpoint import load_run, require_dim
        from capgrade.trainer.models.base import RetrievalModel
        from capgrade.trainer.search.encode import encode_split

        runs = _runs_of(self.run)
        unseen = unseen_images(runs, captions)
        vectors: list[tuple[np.ndarray, np.ndarray]] = []
        for run in runs:
            model, tokens, config = load_run(run)
            if type(model).scores is not RetrievalModel.scores:
                name = config["params"]["model"]["name"]
                problem = (
                    f"a score of model '{name}' is no cosine of an image's and a caption's vector"
                )
                remedy = "import its similarity: --set measures.imported.NAME=FILE"
                raise InputError(problem, file=run, remedy=remedy)
            store = self._open_images(config)
            require_dim(config["feature_dim"], store.metadata["dim"], store.folder)
            pairs = SplitPairs(captions, store, tokens.encode(captions))
            of_images, of_captions = (
                np.asarray(side.vector) for side in encode_split(model, pairs)
            )
            vectors.append((of_images, of_captions))
        images, texts = (np.stack(side) for side in zip(*vectors, strict=True))
        return FittedTrained(captions.ref_ptr, captions.refs, False, images, texts, unseen)

    def _open_images(self, config: dict[str, Any]) -> Any:
        from capgrade.trainer.data.images import open_images

        regions, images = (
            None if path is None else Path(path)
            for path in (self.params.regions, self.params.images)
        )
        setting = "measures.trained.images"
        return open_images(
            config["params"]["model"]["name"], config["model"], regions, images, "fail", setting
        )

    @property
    def run(self) -> Path:
        """InputError where it is not named."""
        return Path(require_param(self.name, "run", self.params.run, "the folder of a run"))

    def meaning(self) -> str:
        by = "a model" if self.params.run is None else _told(_runs_of(self.run))
        said = f"cosine of caption and picture, -1..1, without references, by {by} that was not"
        return f"{said} trained on the image"

    def files(self) -> dict[str, str]:
        from capgrade.measures.pictures import digest_of_pictures

        runs = {f"measures.trained.run {k}": run for k, run in enumerate(_runs_of(self.run))}
        found = {name: digest(run / MANIFEST) for name, run in runs.items()}
        if self.params.regions is not None:
            found["measures.trained.regions"] = digest(Path(self.params.regions) / MANIFEST)
        if self.params.images is not None:
            found["measures.trained.images"] = digest_of_pictures(self.params.images)
        return found


def _told(runs: list[Path]) -> str:
    return "a model" if len(runs) == 1 else f"that of {len(runs)} models"


def _runs_of(folder: Path) -> list[Path]:
    """The runs in a folder: itself, or those of `train.folds`. InputError where there is none that
    is finished, and where those of several trainings stand beside each other."""
    folds = sorted(folder.glob("fold-*"), key=lambda path: int(path.name.partition("-")[2]))
    runs, first = folds or [folder], None
    for number, run in enumerate(runs):
        if parse_manifest(run / MANIFEST, "finish it: capgrade train")["kind"] != "train":
            raise InputError("not a trained run", file=run, remedy="give the folder of a run")
        if not folds:
            break
        config = read_json(run / CONFIG)
        params = config["params"]
        trained = {"params": {**params, "fold": None}, "inputs": config["inputs"]}
        first = first or trained
        if (params["folds"], params["fold"]) != (len(folds), number) or trained != first:
            problem = f"these {len(folds)} folds are not of one training"
            raise InputError(problem, file=run, remedy="train them into an empty folder")
    return runs


def unseen_images(runs: list[Path], captions: Captions) -> np.ndarray:
    """bool [runs, n_images]: the run was not trained on the image. InputError where every run was
    trained on one."""
    unseen = np.array(
        [
            ~np.isin(captions.image_ids, (run / IMAGES).read_text(encoding="utf-8").splitlines())
            for run in runs
        ]
    )
    seen = np.flatnonzero(~unseen.any(0))
    if len(seen):
        problem = f"trained on {len(seen):,} of these {captions.n_images:,} images"
        first = captions.image_ids[seen[0]]
        problem += f", '{first}' the first: its scores repeat which captions are whose"
        remedy = "train it by parts: capgrade train --folds 5"
        raise InputError(problem, file=runs[0], remedy=remedy)
    return unseen
