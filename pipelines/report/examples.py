"""Section: queries and the five best answers of each run, by graded relevance; without runs, of the measures."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from capgrade.pipelines.report.data import EMBEDDINGS, ReportData
from capgrade.pipelines.report.embedding_map import OPTIONS
from capgrade.pipelines.report.parts import ExampleItem, ExampleRanking, Examples, Missing, Note, PageSection, Part
from capgrade.pipelines.report.thumbnails import PageThumbnails
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.relevance import Relevance

QUERIES = 4  # of each direction
TOP = 5
SIDE = 160
INTRO = (
    "The colour of a border, and the number beside it, is the graded relevance of an answer to its query; a dashed "
    "outline and “own” mark what was written for it. Benchmarks count only those as right."
)
SIMILARITY = "similarity.npy"


def examples(data: ReportData, thumbnails: PageThumbnails) -> PageSection:
    """Rankings of every run with a similarity matrix, graded by the last measure of the relevance folder."""
    if not data.graded:
        missing = Missing(
            "the relevance that answers are graded by",
            data.command("relevance", "--captions {captions} --out {relevance}"),
        )
        return PageSection("examples", "Retrieval examples", INTRO, [missing])
    measure, graded = list(data.relevance.items())[-1]
    matrices = {run: _similarity(data, run) for run in data.folders(EMBEDDINGS, SIMILARITY)}
    shown = _Shown(data.captions, graded, thumbnails)
    command = data.command("evaluate", OPTIONS)
    parts: list[Part] = [*data.left_out(EMBEDDINGS, SIMILARITY, "embedded", command)]
    if not thumbnails.pictures:
        said = "These captions come without images (--images gives them): the first caption of an image stands for it."
        parts.append(Note(said))
    if not matrices:
        parts.append(Missing("answers of a trained run; the labels themselves rank below", command))
        matrices = {f"labels ({measure})": graded.matrix()}
    rankings = [
        one for query in _queries(data.captions) for run, S in matrices.items() for one in shown.both(run, S, query)
    ]
    rankings.sort(key=lambda one: one.wants, reverse=True)
    return PageSection("examples", "Retrieval examples", INTRO, [*parts, Examples(measure, rankings)])


def _queries(captions: Captions) -> list[int]:
    """Images spread over the split; one query is the image, the other its second caption."""
    places = np.linspace(0, captions.n_images - 1, min(QUERIES, captions.n_images) + 2)[1:-1]
    return sorted({int(i) for i in places})


def _similarity(data: ReportData, run: str) -> np.ndarray:
    path = data.at(EMBEDDINGS, run, SIMILARITY)
    S = np.load(path, mmap_mode="r", allow_pickle=False)
    if S.shape != (data.captions.n_images, data.captions.n_captions):
        raise InputError(
            f"a matrix of {S.shape}, not of these captions", file=path, remedy="run capgrade evaluate --run again"
        )
    return S


class _Shown:
    """Rankings as items to look at."""

    def __init__(self, captions: Captions, graded: Relevance, thumbnails: PageThumbnails) -> None:
        self.captions, self.graded, self.thumbnails = captions, graded, thumbnails
        self.relevance = graded.matrix()

    def both(self, run: str, S: np.ndarray, image: int) -> Iterator[ExampleRanking]:
        own = np.flatnonzero(self.captions.owner == image)
        yield self._of_image(run, S, image)
        yield self._of_caption(run, S, int(own[min(1, len(own) - 1)]))

    def _of_image(self, run: str, S: np.ndarray, image: int) -> ExampleRanking:
        best = np.argsort(-S[image], kind="stable")[:TOP]
        found = [self._caption(int(c), image) for c in best]
        return ExampleRanking(self._image(image), found, "captions", run)

    def _of_caption(self, run: str, S: np.ndarray, caption: int) -> ExampleRanking:
        best = np.argsort(-S[:, caption], kind="stable")[:TOP]
        found = [self._image(int(i), caption) for i in best]
        query = ExampleItem(self.captions.caption_ids[caption], self.captions.texts[caption], None)
        return ExampleRanking(query, found, "images", run)

    def _image(self, image: int, caption: int | None = None) -> ExampleItem:
        image_id, refs = self.captions.image_ids[image], self.captions.refs
        said = self.captions.texts[refs[self.captions.ref_ptr[image]]]
        own = caption is not None and int(self.captions.owner[caption]) == image
        graded = None if caption is None else float(self.relevance[image, caption])
        return ExampleItem(
            image_id, said, self.thumbnails.uri(image_id, SIDE), own, graded, self.thumbnails.link(image_id)
        )

    def _caption(self, caption: int, image: int) -> ExampleItem:
        own = int(self.captions.owner[caption]) == image
        texts, ids = self.captions.texts, self.captions.caption_ids
        return ExampleItem(ids[caption], texts[caption], None, own, float(self.relevance[image, caption]))
