"""Section: the regions that a model sees: on pictures, how many, of which classes, how large, and what has none."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from capgrade.pipelines.pictures.draw_regions import sheet
from capgrade.pipelines.pictures.listing import TABLE
from capgrade.pipelines.report.charts import made, rows
from capgrade.pipelines.report.data import CAPTIONS, REGIONS, ReportData
from capgrade.pipelines.report.parts import (
    Chart,
    Facts,
    Missing,
    Note,
    PagePicture,
    PageSection,
    PageTable,
    Part,
    percent,
    text,
)  # fmt: skip
from capgrade.pipelines.report.thumbnails import PageThumbnails
from capgrade.schemas.region_store import RegionStore
from capgrade.schemas.regions import Regions

TITLE = "Regions of the pictures"
INTRO = (
    "A model sees these regions of a picture, not its pixels. Boxes on the pictures are the surest ones, with their "
    "class, attribute and confidence where the detector gives them."
)
DRAWN, BOXES = 6, 6  # pictures, and boxes on each
READ = 5000  # images that the charts are of, spread over all
CLASSES = 20  # the most frequent ones
QUALITY = 80
AREAS = (0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, np.inf)  # shares of a picture; boxes may stick out a little
LISTED = 500  # pictures without regions


def regions(data: ReportData, thumbnails: PageThumbnails) -> PageSection:
    """Pictures with boxes, charts of counts, classes and sizes, and the list of pictures without regions."""
    if not data.has(REGIONS):
        images = "{captions}" if data.has(CAPTIONS, TABLE) else "PICTURES"
        missing = Missing("regions of the pictures", data.command("regions", f"--images {images} --out {{regions}}"))
        return PageSection("regions", TITLE, INTRO, [missing])
    store = RegionStore(data.at(REGIONS))
    some = [store[int(k)] for k in np.unique(np.linspace(0, len(store) - 1, min(READ, len(store))).astype(int))]
    left_out = store.manifest.get("left_out") or []
    parts: list[Part] = [_facts(store, some, len(left_out)), *_pictures(store, some, thumbnails), _counts(some)]
    parts += [_areas(some)] if all(one.boxes is not None and one.width and one.height for one in some) else []
    parts += [_classes(some, store.manifest.get("classes"))] if all(one.classes is not None for one in some) else []
    parts += [_refused(left_out)] if left_out else []
    return PageSection("regions", TITLE, INTRO, parts)


def _facts(store: RegionStore, some: Sequence[Regions], left_out: int) -> Facts:
    counts = [len(one) for one in some]
    facts = {
        "images with regions": f"{len(store):,}",
        "images without": f"{left_out:,}",
        "regions": f"{store.manifest['regions']:,}",
        "regions per image": f"{store.manifest['regions'] / len(store):.1f} ({min(counts)} to {max(counts)})",
        "numbers per region": f"{store.metadata['dim']:,} ({store.metadata['dtype']})",
    }
    detector = store.metadata.get("detector") or store.metadata.get("format")
    return Facts({**facts, "made by": str(detector)} if detector else facts)


def _pictures(store: RegionStore, some: Sequence[Regions], thumbnails: PageThumbnails) -> list[Part]:
    if any(one.boxes is None for one in some):
        return [Note("These regions have no boxes, so they cannot be drawn.")]
    if not thumbnails.pictures:
        return [Note("No pictures are there to draw boxes on; --images gives them.")]
    drawn = sheet(store, thumbnails.image, DRAWN, BOXES)
    if drawn is None:
        return [Note("None of the pictures with regions was found in --images.")]
    out = io.BytesIO()
    drawn[0].save(out, "WEBP", quality=QUALITY)
    told = f"{drawn[1]} pictures, each with up to {BOXES} boxes and what they are said to show."
    return [PagePicture("regions", "Regions on pictures", told, out.getvalue(), "webp")]


def _counts(some: Sequence[Regions]) -> Chart:
    found = Counter(len(one) for one in some)
    values = [{"regions": n, "images": k, "share": k / len(some)} for n, k in sorted(found.items())]
    told = f"Share of images by number of regions, from {min(found)} to {max(found)}."
    x = alt.X("regions:Q", title="regions of an image", axis=alt.Axis(tickMinStep=1, format="d"))
    return _bars("regions-count", "Regions per image", told, values, x, "share of the images")


def _areas(some: Iterable[Regions]) -> Chart:
    areas = np.concatenate([_sides(one).prod(axis=1) / (one.width * one.height) for one in some])  # type: ignore[operator]
    counts = np.histogram(areas, AREAS)[0]
    names = [f"up to {high:.1%}" for high in AREAS[1:-1]] + [f"over {AREAS[-2]:.1%}"]
    values = [
        {"area": name, "regions": int(n), "share": float(n / len(areas))} for name, n in zip(names, counts, strict=True)
    ]
    told = f"Share of the regions by the part of the picture that a box covers; the median is {np.median(areas):.1%}."
    x = alt.X("area:N", title="part of the picture in the box", sort=names, axis=alt.Axis(labelAngle=-40))
    return _bars("regions-area", "Sizes of the boxes", told, values, x, "share of the regions")


def _sides(one: Regions) -> np.ndarray:
    assert one.boxes is not None  # `regions` asks
    return one.boxes[:, 2:] - one.boxes[:, :2]


def _classes(some: Sequence[Regions], names: Sequence[str] | None) -> Chart:
    found = Counter(int(k) for one in some if one.classes is not None for k in np.unique(one.classes))
    values = [
        {"class": names[k] if names else f"class {k}", "images": n, "share": n / len(some)}
        for k, n in found.most_common(CLASSES)
    ]
    first = ", ".join(f"{row['class']} {percent(row['share'])}" for row in values[:3])  # type: ignore[arg-type]
    told = f"Share of images with a region of a class, for the {len(values)} most frequent of {len(found)}: {first}."
    chart = alt.Chart(rows(values)).mark_bar().encode(
        alt.X("share:Q", title="share of the images", axis=alt.Axis(format="%")),
        alt.Y("class:N", title=None, sort="-x", axis=alt.Axis(labelLimit=160)),
        tooltip=["class:N", "images:Q", alt.Tooltip("share:Q", format=".1%")],
    )  # fmt: skip
    return made("regions-class", f"Classes, the {len(values)} most frequent of {len(found)}", told, chart)


def _bars(name: str, title: str, told: str, values: list[dict[str, Any]], x: alt.X, y: str) -> Chart:
    kinds = [f"{key}:N" if key == "area" else f"{key}:Q" for key in values[0] if key != "share"]
    chart = alt.Chart(rows(values)).mark_bar().encode(
        x, alt.Y("share:Q", title=y, axis=alt.Axis(format="%")),
        tooltip=[*kinds, alt.Tooltip("share:Q", format=".1%")],
    )  # fmt: skip
    return made(name, title, told, chart)


def _refused(left_out: Sequence[Mapping[str, str]]) -> PageTable:
    lines = [[text(one[key]) for key in ("file", "image_id", "problem")] for one in left_out[:LISTED]]
    title = f"Pictures without regions{f', the first {LISTED}' if len(left_out) > LISTED else ''}"
    return PageTable(title, ("file", "image", "problem"), lines, folded=True)
