"""Sections that show single pictures and captions: the regions of a picture, answers to queries,
words and regions."""

import io
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from capgrade.apps.page.charts import (
    channel,
    make_chart,
    make_layer,
    make_share_bars,
    share_channel,
)
from capgrade.apps.page.parts import (
    Chart,
    Example,
    ExampleItem,
    Examples,
    Facts,
    Note,
    PagePicture,
    PageSection,
    PageTable,
    Part,
    format_percent,
    share_cell,
)
from capgrade.apps.page.thumbnails import PageThumbnails
from capgrade.apps.report.data import (
    CAPTIONS_KIND,
    EMBEDDINGS,
    REGIONS,
    RELEVANCE,
    ReportData,
)
from capgrade.pictures.draw_regions import draw_sheet
from capgrade.pictures.listing import PICTURES_TABLE
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.left_out import line_of
from capgrade.schemas.lines import read_json
from capgrade.schemas.pairs import LEFT_OUT
from capgrade.schemas.regions import Regions, RegionStore
from capgrade.trainer.evaluation.similarity import images_left_out
from capgrade.trainer.stages.align import ALIGN

REGIONS_INTRO = (
    "A model sees these regions of a picture, not its pixels. Boxes on the pictures are the surest"
    " ones, with their class, attribute and confidence where the detector gives them."
)
_DRAWN, BOXES = 6, 6  # pictures with boxes, and boxes on each
READ = 5000  # images that the charts are of, spread over all
CLASSES = 20  # the most frequent ones, in the chart of classes
_QUALITY = 80
# Edges of bins: a box as a share of its picture. It may stick out a little.
AREAS = (0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, np.inf)
_LISTED = 500  # pictures without regions, in the table


def regions_section(data: ReportData, thumbnails: PageThumbnails) -> PageSection:
    """Pictures with boxes, charts of counts, classes and sizes, and the list of pictures without
    regions."""
    parts: list[Part] = []
    if data.has(REGIONS):
        store = RegionStore(data.path(REGIONS))
        rows = np.unique(np.linspace(0, len(store) - 1, min(READ, len(store))).astype(int))
        sample = [store[int(row)] for row in rows]
        left_out = store.manifest.get("left_out") or []
        parts = [
            _facts(store, sample, len(left_out)),
            _pictures(store, sample, thumbnails),
            _counts(sample),
        ]
        if all(image.boxes is not None and image.width and image.height for image in sample):
            parts.append(_areas(sample))
        if all(image.classes is not None for image in sample):
            parts.append(_classes(sample, store.manifest.get("classes")))
        if left_out:
            keys = ("file", "image_id", "problem")
            lines = [[picture[key] for key in keys] for picture in left_out[:_LISTED]]
            more = f", the first {_LISTED}" if len(left_out) > _LISTED else ""
            title = f"Pictures without regions{more}"
            parts.append(PageTable(title, ("file", "image", "problem"), lines, folded=True))
    else:
        images = "{captions}" if data.has(CAPTIONS_KIND, PICTURES_TABLE) else "PICTURES"
        data.add_missing("regions of the pictures", f"regions --images {images} --out {{regions}}")
    return PageSection("regions", "Regions of the pictures", REGIONS_INTRO, parts)


def _facts(store: RegionStore, sample: Sequence[Regions], left_out: int) -> Facts:
    counts = [len(image) for image in sample]
    facts = {
        "images with regions": f"{len(store):,}",
        "images without": f"{left_out:,}",
        "regions": f"{store.manifest['regions']:,}",
        "regions per image": (
            f"{store.manifest['regions'] / len(store):.1f} ({min(counts)} to {max(counts)})"
        ),
        "numbers per region": f"{store.metadata['dim']:,} ({store.metadata['dtype']})",
    }
    detector = store.metadata.get("detector") or store.metadata.get("source")
    return Facts({**facts, "made by": str(detector)} if detector else facts)


def _pictures(store: RegionStore, sample: Sequence[Regions], thumbnails: PageThumbnails) -> Part:
    if any(image.boxes is None for image in sample):
        return Note("These regions have no boxes, so they cannot be drawn.")
    if not thumbnails.pictures:
        return Note("No pictures are there to draw boxes on; --images gives them.")
    pictures = thumbnails.pictures
    image_ids = {
        store.ids[k]: image_id for image_id, k in store.match(pictures.names).numbers.items()
    }
    regions_sheet = draw_sheet(
        store, lambda image_id: pictures.image(image_ids.get(image_id, image_id)), _DRAWN, BOXES
    )
    if regions_sheet is None:
        return Note("None of the pictures with regions was found in --images.")
    picture, drawn = regions_sheet
    out = io.BytesIO()
    picture.save(out, "WEBP", quality=_QUALITY)
    alt = f"{drawn} pictures, each with up to {BOXES} boxes and what they are said to show."
    return PagePicture("regions", "Regions on pictures", alt, out.getvalue(), "webp")


def _counts(sample: Sequence[Regions]) -> Chart:
    images = Counter(len(image) for image in sample)
    values = [
        {"regions": n, "images": k, "share": k / len(sample)} for n, k in sorted(images.items())
    ]
    alt = f"Share of images by number of regions, from {min(images)} to {max(images)}."
    x = channel("regions:Q", title="regions of an image", axis={"tickMinStep": 1, "format": "d"})
    bars = make_layer(
        "bar", x, share_channel("images"), tip=["regions:Q", "images:Q", "share:Q:.1%"]
    )
    return make_chart("regions-count", "Regions per image", alt, values, bars)


def _areas(sample: Sequence[Regions]) -> Chart:
    areas = np.concatenate(
        [
            (image.boxes[:, 2:] - image.boxes[:, :2]).prod(axis=1) / (image.width * image.height)  # type: ignore[index, operator]
            for image in sample
        ]
    )
    names = [f"up to {high:.1%}" for high in AREAS[1:-1]] + [f"over {AREAS[-2]:.1%}"]
    counts = dict(zip(names, np.histogram(areas, AREAS)[0].tolist(), strict=True))
    alt = (
        "Share of the regions by the part of the picture that a box covers; the median is"
        f" {np.median(areas):.1%}."
    )
    y = channel("area:N", title="part of the picture in the box", sort=names)
    return make_share_bars(
        "regions-area", "Sizes of the boxes", alt, y, "regions", counts, len(areas)
    )


def _classes(sample: Sequence[Regions], names: Sequence[str] | None) -> Chart:
    images = Counter(int(k) for image in sample for k in np.unique(image.classes))  # type: ignore[arg-type]
    counts = {names[k] if names else f"class {k}": n for k, n in images.most_common(CLASSES)}
    first = ", ".join(
        f"{name} {format_percent(n / len(sample))}" for name, n in list(counts.items())[:3]
    )
    alt = (
        f"Share of images with a region of a class, for the {len(counts)} most frequent of"
        f" {len(images)}: {first}."
    )
    y = channel("class:N", title=None, sort="-x", axis={"labelLimit": 160})
    title = f"Classes, the {len(counts)} most frequent of {len(images)}"
    return make_share_bars(
        "regions-class", title, alt, y, "images", counts, len(sample), height=16 * len(counts)
    )


_QUERIES = 4  # of each direction
_TOP = 5
_SIDE = 160
_SIMILARITY = "similarity.npy"
EXAMPLES_INTRO = (
    "The colour of a border, and the number beside it, is the graded relevance of an answer to its"
    " query; “own” marks what was written for it. Benchmarks count only those as right. Beside each"
    " caption is the image that it was written for, and beside each image one of its captions. An"
    " own caption is compared with its image's other captions, not with itself."
)
_NO_PICTURES = (
    "These captions come without images (--images gives them): the first caption of an image stands"
    " for it."
)


def examples_section(data: ReportData, thumbnails: PageThumbnails) -> PageSection:
    """Rankings by every run with a similarity matrix, or without any by the labels themselves;
    answers are graded by the measure of the page's findings."""
    parts: list[Part] = []
    if data.has(RELEVANCE, what="the relevance that answers are graded by"):
        folders = data.find_folders(EMBEDDINGS, _SIMILARITY, "answers of a trained run")
        graded = _without_themselves(data)
        without = {run: images_left_out(path / _SIMILARITY) for run, path in folders.items()}
        matrices = {run: _similarity(data, run, without[run]) for run in folders} or {
            f"labels ({data.measure})": graded
        }
        maker = _ExampleMaker(data.captions, graded, thumbnails)
        # Queries are spread over the images that all runs know, without the ends.
        lost = {image_id for reasons in without.values() for image_id in reasons}
        known = [i for i, image_id in enumerate(data.captions.image_ids) if image_id not in lost]
        places = np.linspace(0, len(known) - 1, min(_QUERIES, len(known)) + 2)[1:-1]
        queries = sorted({known[int(i)] for i in places})
        by_direction = zip(*(maker.make(image, matrices) for image in queries), strict=True)
        chosen = [example for direction in by_direction for example in direction]
        parts = [
            *([] if thumbnails.pictures else [Note(_NO_PICTURES)]),
            *(Note(line) for line in _left_out_lines(data.captions, without)),
            Examples(data.measure, chosen),
        ]
    return PageSection("examples", "Retrieval examples", EXAMPLES_INTRO, parts)


def _left_out_lines(captions: Captions, without: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """A line for each set of images that runs were evaluated without."""
    runs: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for run, reasons in without.items():
        if reasons:
            runs.setdefault(tuple(sorted(reasons.items())), []).append(run)
    for pairs, names in runs.items():
        reasons = dict(pairs)
        lost = sum(captions.image_ids[i] in reasons for i in captions.owner)
        yield line_of(reasons, captions.n_images, lost, f"smaller gallery of {', '.join(names)}")


def _without_themselves(data: ReportData) -> np.ndarray:
    """The relevance of the page's measure, float32 [images, captions], each own caption left out of
    its image's references: NaN where no other remains. As it is for a measure without such values.
    """
    graded = data.relevance[data.measure].matrix().astype(np.float32)
    left_out = data.own_pairs.get(data.measure + LEFT_OUT)
    if left_out is not None:
        graded[data.captions.owner, np.arange(data.captions.n_captions)] = left_out
    return graded


def _similarity(data: ReportData, run: str, without: Mapping[str, str]) -> np.ndarray:
    """Scores of a run, images x captions of the split; -inf for the images it was made without and
    their captions. InputError for a matrix of others."""
    path, captions = data.path(EMBEDDINGS, run, _SIMILARITY), data.captions
    S = np.load(path, mmap_mode="r", allow_pickle=False)
    images = np.array([image_id not in without for image_id in captions.image_ids])
    rows = images[captions.owner]
    if S.shape != (images.sum(), rows.sum()):
        problem = f"a matrix of {S.shape}, not of these captions"
        raise InputError(problem, file=path, remedy="run capgrade embed again")
    if images.all():
        return S
    full = np.full((captions.n_images, captions.n_captions), -np.inf, S.dtype)
    full[np.ix_(images, rows)] = S
    return full


@dataclass(frozen=True)
class _ExampleMaker:
    """Makes examples of rankings; graded float [images, captions]."""

    captions: Captions
    graded: np.ndarray
    thumbnails: PageThumbnails

    def make(self, image: int, matrices: Mapping[str, np.ndarray]) -> tuple[Example, Example]:
        """The images that each run ranks first for the image's second caption (its only one if it
        has one), and the captions for the image."""

        def best(scores: np.ndarray) -> list[int]:
            # What a run has not scored is no answer of it.
            order = np.argsort(-scores, kind="stable")[:_TOP]
            return order[scores[order] > -np.inf].tolist()

        caption = int(np.flatnonzero(self.captions.owner == image)[:2][-1])
        images = {
            run: [self._image(i, caption) for i in best(S[:, caption])]
            for run, S in matrices.items()
        }
        captions = {
            run: [self._caption(c, image) for c in best(S[image])] for run, S in matrices.items()
        }
        of_caption = Example(self._caption(caption), "images", images)
        of_image = Example(self._image(image), "captions", captions)
        return of_caption, of_image

    def _grade(self, image: int | None, caption: int | None) -> dict[str, Any]:
        if image is None or caption is None:
            return {}
        value = float(self.graded[image, caption])
        is_own = int(self.captions.owner[caption]) == image
        return {"own": is_own, "relevance": None if math.isnan(value) else value}

    def _image(self, image: int, caption: int | None = None) -> ExampleItem:
        image_id = self.captions.image_ids[image]
        text = self.captions.texts[self.captions.refs[self.captions.ref_ptr[image]]]
        picture, link = self.thumbnails.uri(image_id, _SIDE), self.thumbnails.link(image_id)
        return ExampleItem(image_id, text, picture, link=link, **self._grade(image, caption))

    def _caption(self, caption: int, image: int | None = None) -> ExampleItem:
        image_id = self.captions.image_ids[self.captions.owner[caption]]
        return ExampleItem(
            self.captions.caption_ids[caption],
            self.captions.texts[caption],
            self.thumbnails.uri(image_id, _SIDE),
            link=self.thumbnails.link(image_id),
            image_id=image_id,
            **self._grade(image, caption),
        )


_SHARES = {
    "centre": "centre in the box",
    "centre_chance": "chance",
    "iou": "IoU at least 0.5",
    "iou_chance": "chance of that",
}
ALIGNMENTS_INTRO = (
    "Each word has the colour and number of the region most similar to it, and their cosine; words"
    " far weaker than the surest are grey. In the pointing game a phrase points rightly if the"
    " centre of its region lies in a true box."
)


def alignments_section(data: ReportData) -> PageSection:
    """The picture and the table of `capgrade align`."""
    path = data.path(ALIGN.name, "alignment.png")
    parts: list[Part] = []
    if not path.is_file() or not data.is_of_these_captions(data.path(ALIGN.name)):
        what = "alignments of words with regions"
        if path.is_file():
            what += ": those that are there are of other captions or another split"
        data.add_missing(what, ALIGN.name)
    else:
        alt = (
            "Images with boxes around regions; below each its caption, words numbered and coloured"
            " as their regions."
        )
        title = "Words and the regions they point at"
        parts.append(PagePicture("alignment", title, alt, path.read_bytes(), "png"))
    if parts and data.has(ALIGN.name, "pointing.json"):
        kinds = read_json(data.path(ALIGN.name, "pointing.json"))
        order = sorted(kinds, key=lambda kind: (kind != "all", -kinds[kind]["phrases"], kind))
        lines = [
            [kind, kinds[kind]["phrases"], *(share_cell(kinds[kind][k]) for k in _SHARES)]
            for kind in order
        ]
        heads = ("phrases about", "phrases", *_SHARES.values())
        parts.append(PageTable("Pointing game, by kind of object", heads, lines, folded=True))
    return PageSection("alignments", "Words and regions", ALIGNMENTS_INTRO, parts)
