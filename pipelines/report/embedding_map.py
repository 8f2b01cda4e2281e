"""Section: where a run puts images and captions: t-SNE of their vectors in two dimensions."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
from safetensors import safe_open
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits

from capgrade.pipelines.report.charts import made
from capgrade.pipelines.report.data import EMBEDDINGS, ReportData
from capgrade.pipelines.report.parts import Chart, Missing, Note, PageSection, Part
from capgrade.pipelines.report.thumbnails import PageThumbnails
from capgrade.schemas.files import MANIFEST, read_json, read_manifest

ENCODINGS, IMAGES, CAPTIONS = "encodings.safetensors", "images.vector", "captions.vector"
OPTIONS = "--run {runs/RUN} --captions {captions} --regions {regions} --index {embeddings/RUN}"  # of `evaluate`
MOST = 300  # images on a map, spread over the split
TEXTS = 2  # captions of each
HEIGHT = 460
SIDE = 64  # pixels of a thumbnail that hovering shows
INTRO = (
    "t-SNE of the vectors that a run compares, images and captions together. Models trained to rank put the two apart "
    "(the modality gap), and a map would show little else: so the mean of all images is taken from each image, and the "
    "mean of all captions from each caption. Hovering shows what a point is and joins it to the points of the same "
    "image. Distances between far groups mean nothing, as always with t-SNE."
)


def embedding_map(data: ReportData, thumbnails: PageThumbnails) -> PageSection:
    """A map for each run that has one vector an item; the others compare sets of vectors."""
    found = data.folders(EMBEDDINGS, MANIFEST)
    for folder in found.values():
        read_manifest(folder, EMBEDDINGS)
    single = [run for run, folder in found.items() if IMAGES in _names(folder)]
    # A map on threads of its own takes many times as long: they wait for each other.
    with threadpool_limits(1), ThreadPoolExecutor(os.cpu_count()) as pool:
        placed = list(pool.map(lambda run: _placed(found[run]), single))
    parts: list[Part] = [_map(run, one, thumbnails) for run, one in zip(single, placed, strict=True)]
    if sets := [run for run in found if run not in single]:
        parts.append(Note(f"No map of {', '.join(sets)}: it compares sets of vectors, not one for an item."))
    command = data.command("evaluate", OPTIONS)
    others = data.left_out(EMBEDDINGS, MANIFEST, "embedded", command)
    if not found and not others:
        parts = [Missing("embeddings of a trained run", command)]
    return PageSection("map", "Map of embeddings", INTRO, [*parts, *others])


def _names(folder: Path) -> set[str]:
    """Of the tensors in an index, from its header alone."""
    with safe_open(folder / ENCODINGS, framework="np") as file:
        return set(file.keys())


def layout(images: np.ndarray, captions: np.ndarray) -> np.ndarray:
    """float32 [images + captions, 2] by the cosine of vectors from the mean of their kind, the same every time: on one
    thread."""
    vectors = np.concatenate([kind - kind.mean(axis=0) for kind in (images, captions)])
    perplexity = min(30.0, (len(vectors) - 1) / 3)
    tsne = TSNE(metric="cosine", init="pca", perplexity=perplexity, random_state=0, n_jobs=1)
    return tsne.fit_transform(vectors)


@dataclass(frozen=True)
class _Placed:
    """Images of a run by number, captions of each by number, and where all these are."""

    items: dict[str, Any]
    images: np.ndarray
    of: list[np.ndarray]
    at: np.ndarray  # float32 [images + captions, 2]


def _placed(folder: Path) -> _Placed:
    items = read_json(folder / "items.json")
    with safe_open(folder / ENCODINGS, framework="np") as file:
        vectors = {name: file.get_tensor(name) for name in (IMAGES, CAPTIONS)}
    owner = np.array(items["owner"])
    images = np.unique(np.linspace(0, len(items["image_ids"]) - 1, MOST).astype(int))
    of = [np.flatnonzero(owner == i)[:TEXTS] for i in images]
    at = layout(vectors[IMAGES][images], vectors[CAPTIONS][np.concatenate(of)])
    return _Placed(items, images, of, at)


def _map(run: str, placed: _Placed, thumbnails: PageThumbnails) -> Chart:
    items, images, of, at = placed.items, placed.images, placed.of, placed.at
    captions = np.concatenate(of)
    owner = items["owner"]
    first = {int(i): items["captions"][own[0]] for i, own in zip(images, of, strict=True)}
    points = [("image", int(i), first[int(i)]) for i in images]
    points += [("caption", int(owner[c]), items["captions"][c]) for c in captions]
    values = [
        {
            "kind": kind,
            "id": items["image_ids"][i],
            "n": i,
            "text": text,
            "x": round(float(x), 2),
            "y": round(float(y), 2),
        }
        for (kind, i, text), (x, y) in zip(points, at, strict=True)
    ]
    pictures = [
        {"n": int(i), "picture": shown} for i in images if (shown := thumbnails.uri(items["image_ids"][i], SIDE))
    ]
    return _chart(run, values, pictures)


def _chart(run: str, values: list[dict], pictures: list[dict]) -> Chart:
    near = alt.selection_point(
        name="near", fields=["n"], on="pointerover", nearest=True, empty=False, clear="pointerout"
    )
    chart = alt.Chart(alt.Data(values=values))
    told: list[str | alt.Tooltip] = ["kind:N", "id:N", "text:N"]
    if pictures:  # vega-tooltip draws a field of this name
        chart = chart.transform_lookup("n", alt.LookupData(alt.Data(values=pictures), "n", ["picture"]))
        told.append(alt.Tooltip("picture:N", title="image"))
    axis = alt.Axis(labels=False, ticks=False, domain=False, grid=False)
    x, y = alt.X("x:Q", title=None, axis=axis), alt.Y("y:Q", title=None, axis=axis)
    kinds = alt.Scale(domain=["image", "caption"])
    dots = chart.mark_point(filled=True, aria=False).encode(
        x,
        y,
        alt.Color("kind:N", title=None, scale=kinds),
        alt.Shape("kind:N", title=None, scale=kinds),
        opacity=alt.condition(near, alt.value(1), alt.value(0.6)),
        size=alt.condition(near, alt.value(160), alt.value(28)),
        tooltip=told,
    )
    dots = dots.add_params(near)
    images = sum(row["kind"] == "image" for row in values)
    alt_text = f"t-SNE of {images} images and {len(values) - images} of their captions as {run} places them."
    made_chart = made(f"map-{run}", run, alt_text, dots)
    made_chart.spec["height"] = HEIGHT
    return made_chart
