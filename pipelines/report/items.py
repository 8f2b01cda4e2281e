"""Sections that show single pictures and captions: the regions of a picture, answers to queries,
words and regions."""

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from capgrade.pictures.draw_regions import sheet
from capgrade.pictures.listing import PICTURES_TABLE
from capgrade.pipelines.page.charts import chart, layer, of, share_bars, share_of
from capgrade.pipelines.page.parts import (
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
    percent,
    share,
)
from capgrade.pipelines.page.thumbnails import PageThumbnails
from capgrade.pipelines.report.data import (
    ALIGNMENT,
    CAPTIONS_KIND,
    EMBEDDINGS,
    REGIONS,
    RELEVANCE,
    ReportData,
)
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.lines import read_json
from capgrade.schemas.region_store import RegionStore
from capgrade.schemas.regions import Regions

REGIONS_INTRO = (
    "A model sees these regions of a picture, not its pixels. Boxes on the pictures are the surest"
    " ones, with their class, attribute and confidence where the detector gives them."
)
_DRAWN, BOXES = 6, 6  # pictures, and boxes on each
READ = 5000  # images that the charts are of, spread over all
CLASSES = 20  # the most frequent ones
_QUALITY = 80
# shares of a picture; boxes may stick out a little
AREAS = (
    0,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    np.inf,
)
_LISTED = 500  # pictures without regions


def regions(data: ReportData, thumbnails: PageThumbnails) -> PageSection:
    """Pictures with boxes, charts of counts, classes and sizes, and the list of pictures without
    regions."""
    parts: list[Part] = []
    if data.has(REGIONS):
        store = RegionStore(data.at(REGIONS))
        some = [
            store[int(k)]
            for k in np.unique(np.linspace(0, len(store) - 1, min(READ, len(store))).astype(int))
        ]
        left_out = store.manifest.get("left_out") or []
        parts = [
            _facts(store, some, len(left_out)),
            _pictures(store, some, thumbnails),
            _counts(some),
        ]
        parts += (
            [_areas(some)]
            if all(one.boxes is not None and one.width and one.height for one in some)
            else []
        )
        classes = all(one.classes is not None for one in some)
        parts += [_classes(some, store.manifest.get("classes"))] if classes else []
        if left_out:
            lines = [
                [one[key] for key in ("file", "image_id", "problem")] for one in left_out[:_LISTED]
            ]
            title = (
                "Pictures without"
                f" regions{f', the first {_LISTED}' if len(left_out) > _LISTED else ''}"
            )
            parts.append(PageTable(title, ("file", "image", "problem"), lines, folded=True))
    else:
        images = "{captions}" if data.has(CAPTIONS_KIND, PICTURES_TABLE) else "PICTURES"
        data.lacks("regions of the pictures", f"regions --images {images} --out {{regions}}")
    return PageSection("regions", "Regions of the pictures", REGIONS_INTRO, parts)


def _facts(store: RegionStore, some: Sequence[Regions], left_out: int) -> Facts:
    counts = [len(one) for one in some]
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


def _pictures(store: RegionStore, some: Sequence[Regions], thumbnails: PageThumbnails) -> Part:
    if any(one.boxes is None for one in some):
        return Note("These regions have no boxes, so they cannot be drawn.")
    if not thumbnails.pictures:
        return Note("No pictures are there to draw boxes on; --images gives them.")
    pictures = thumbnails.pictures
    own = {store.ids[k]: image_id for image_id, k in store.match(pictures.names).numbers.items()}
    drawn = sheet(
        store, lambda image_id: pictures.image(own.get(image_id, image_id)), _DRAWN, BOXES
    )
    if drawn is None:
        return Note("None of the pictures with regions was found in --images.")
    out = io.BytesIO()
    drawn[0].save(out, "WEBP", quality=_QUALITY)
    told = f"{drawn[1]} pictures, each with up to {BOXES} boxes and what they are said to show."
    return PagePicture("regions", "Regions on pictures", told, out.getvalue(), "webp")


def _counts(some: Sequence[Regions]) -> Chart:
    images = Counter(len(one) for one in some)
    values = [
        {"regions": n, "images": k, "share": k / len(some)} for n, k in sorted(images.items())
    ]
    told = f"Share of images by number of regions, from {min(images)} to {max(images)}."
    x = of("regions:Q", title="regions of an image", axis={"tickMinStep": 1, "format": "d"})
    bars = layer("bar", x, share_of("images"), tip=["regions:Q", "images:Q", "share:Q:.1%"])
    return chart("regions-count", "Regions per image", told, values, bars)


def _areas(some: Sequence[Regions]) -> Chart:
    areas = np.concatenate(
        [
            (one.boxes[:, 2:] - one.boxes[:, :2]).prod(axis=1) / (one.width * one.height)  # type: ignore[index, operator]
            for one in some
        ]
    )
    names = [f"up to {high:.1%}" for high in AREAS[1:-1]] + [f"over {AREAS[-2]:.1%}"]
    counts = dict(zip(names, np.histogram(areas, AREAS)[0].tolist(), strict=True))
    told = (
        "Share of the regions by the part of the picture that a box covers; the median is"
        f" {np.median(areas):.1%}."
    )
    y = of("area:N", title="part of the picture in the box", sort=names)
    return share_bars("regions-area", "Sizes of the boxes", told, y, "regions", counts, len(areas))


def _classes(some: Sequence[Regions], names: Sequence[str] | None) -> Chart:
    images = Counter(int(k) for one in some for k in np.unique(one.classes))  # type: ignore[arg-type]
    counts = {names[k] if names else f"class {k}": n for k, n in images.most_common(CLASSES)}
    first = ", ".join(f"{name} {percent(n / len(some))}" for name, n in list(counts.items())[:3])
    told = (
        f"Share of images with a region of a class, for the {len(counts)} most frequent of"
        f" {len(images)}: {first}."
    )
    y = of("class:N", title=None, sort="-x", axis={"labelLimit": 160})
    title = f"Classes, the {len(counts)} most frequent of {len(images)}"
    return share_bars(
        "regions-class", title, told, y, "images", counts, len(some), height=16 * len(counts)
    )


_QUERIES = 4  # of each direction
_TOP = 5
_SIDE = 160
_SIMILARITY = "similarity.npy"
EXAMPLES_INTRO = (
    "The colour of a border, and the number beside it, is the graded relevance of an answer to its"
    " query; “own” marks what was written for it. Benchmarks count only those as right."
)
_NO_PICTURES = (
    "These captions come without images (--images gives them): the first caption of an image stands"
    " for it."
)


def examples(data: ReportData, thumbnails: PageThumbnails) -> PageSection:
    """Rankings of every run with a similarity matrix, or of the labels themselves, by the measure
    of the findings."""
    parts: list[Part] = []
    if data.has(RELEVANCE, what="the relevance that answers are graded by"):
        folders = data.folders(EMBEDDINGS, _SIMILARITY, "answers of a trained run")
        graded = data.relevance[data.measure].matrix()
        matrices = {run: _similarity(data, run) for run in folders} or {
            f"labels ({data.measure})": graded
        }
        shown = _Shown(data.captions, graded, thumbnails)
        places = np.linspace(
            0, data.captions.n_images - 1, min(_QUERIES, data.captions.n_images) + 2
        )[1:-1]
        queries = sorted({int(i) for i in places})  # spread over the split
        sides = zip(*(shown.of(image, matrices) for image in queries), strict=True)
        found = [example for side in sides for example in side]
        parts = [
            *([] if thumbnails.pictures else [Note(_NO_PICTURES)]),
            Examples(data.measure, found),
        ]
    return PageSection("examples", "Retrieval examples", EXAMPLES_INTRO, parts)


def _similarity(data: ReportData, run: str) -> np.ndarray:
    path = data.at(EMBEDDINGS, run, _SIMILARITY)
    S = np.load(path, mmap_mode="r", allow_pickle=False)
    if S.shape != (data.captions.n_images, data.captions.n_captions):
        problem = f"a matrix of {S.shape}, not of these captions"
        raise InputError(problem, file=path, remedy="run capgrade evaluate --run again")
    return S


@dataclass(frozen=True)
class _Shown:
    """Rankings as items to look at; graded float [images, captions]."""

    captions: Captions
    graded: np.ndarray
    thumbnails: PageThumbnails

    def of(self, image: int, matrices: Mapping[str, np.ndarray]) -> tuple[Example, Example]:
        """Images for an image's second caption, and captions for the image, by each run."""

        def best(scores: np.ndarray) -> list[int]:
            return np.argsort(-scores, kind="stable")[:_TOP].tolist()

        caption = int(np.flatnonzero(self.captions.owner == image)[:2][-1])
        images = {
            run: [self._image(i, caption) for i in best(S[:, caption])]
            for run, S in matrices.items()
        }
        captions = {
            run: [self._caption(c, image) for c in best(S[image])] for run, S in matrices.items()
        }
        return Example(self._caption(caption), "images", images), Example(
            self._image(image), "captions", captions
        )

    def _grade(self, image: int | None, caption: int | None) -> dict[str, Any]:
        if image is None or caption is None:
            return {}
        return {
            "own": int(self.captions.owner[caption]) == image,
            "relevance": float(self.graded[image, caption]),
        }

    def _image(self, image: int, caption: int | None = None) -> ExampleItem:
        id, first = self.captions.image_ids[image], self.captions.refs[self.captions.ref_ptr[image]]
        text, picture, link = (
            self.captions.texts[first],
            self.thumbnails.uri(id, _SIDE),
            self.thumbnails.link(id),
        )
        return ExampleItem(id, text, picture, link=link, **self._grade(image, caption))

    def _caption(self, caption: int, image: int | None = None) -> ExampleItem:
        return ExampleItem(
            self.captions.caption_ids[caption],
            self.captions.texts[caption],
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


def alignments(data: ReportData) -> PageSection:
    """The picture and the table of `capgrade search --words`."""
    path = data.at(ALIGNMENT, "alignment.png")
    parts: list[Part] = []
    if not path.is_file() or not data.of_these(data.at(ALIGNMENT)):
        others = (
            ": those that are there are of other captions or another split"
            if path.is_file()
            else ""
        )
        data.lacks(f"alignments of words with regions{others}", ALIGNMENT)
    else:
        told = (
            "Images with boxes around regions; below each its caption, words numbered and coloured"
            " as their regions."
        )
        title = "Words and the regions they point at"
        parts.append(PagePicture("alignment", title, told, path.read_bytes(), "png"))
    if parts and data.has(ALIGNMENT, "pointing.json"):
        kinds = read_json(data.at(ALIGNMENT, "pointing.json"))
        order = sorted(kinds, key=lambda kind: (kind != "all", -kinds[kind]["phrases"], kind))
        lines = [
            [kind, kinds[kind]["phrases"], *(share(kinds[kind][k]) for k in _SHARES)]
            for kind in order
        ]
        heads = ("phrases about", "phrases", *_SHARES.values())
        parts.append(PageTable("Pointing game, by kind of object", heads, lines, folded=True))
    return PageSection("alignments", "Words and regions", ALIGNMENTS_INTRO, parts)
