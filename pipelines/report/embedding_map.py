"""Section: where a run puts images and captions: t-SNE of their vectors in two dimensions."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits

from capgrade.pipelines.page.charts import chart, layer, of
from capgrade.pipelines.page.parts import Chart, Note, PageSection, Part
from capgrade.pipelines.page.thumbnails import PageThumbnails
from capgrade.pipelines.report.data import EMBEDDINGS, ReportData
from capgrade.schemas.files import MANIFEST, read_manifest
from capgrade.schemas.lines import read_json

_IMAGES, _CAPTIONS = "images.vector.npy", "captions.vector.npy"
_MOST = 300  # images on a map, spread over the split
_TEXTS = 2  # captions of each
_HEIGHT = 460
_SIDE = 64  # pixels of a thumbnail that hovering shows
_INTRO = (
    "t-SNE of the vectors that a run compares, images and captions together. Models trained to rank"
    " put the two apart (the modality gap), and a map would show little else: so the mean of all"
    " images is taken from each image, and the mean of all captions from each caption. Hovering"
    " shows what a point is and joins it to the points of the same image. Distances between far"
    " groups mean nothing, as always with t-SNE."
)


def embedding_map(data: ReportData, thumbnails: PageThumbnails) -> PageSection:
    """A map for each run that has one vector an item; the others compare sets of vectors."""
    folders = data.folders(EMBEDDINGS, MANIFEST, "embeddings of a trained run")
    single = []
    for run, folder in folders.items():
        single += [run] if _IMAGES in read_manifest(folder, EMBEDDINGS)["files"] else []
    # A map on threads of its own takes many times as long: they wait for each other.
    with threadpool_limits(1), ThreadPoolExecutor(os.cpu_count()) as pool:
        points = list(pool.map(lambda run: _points(folders[run]), single))
    parts: list[Part] = [
        _map(run, some, thumbnails) for run, some in zip(single, points, strict=True)
    ]
    if sets := [run for run in folders if run not in single]:
        parts.append(
            Note(f"No map of {', '.join(sets)}: it compares sets of vectors, not one for an item.")
        )
    return PageSection("map", "Map of embeddings", _INTRO, parts)


def layout(images: np.ndarray, captions: np.ndarray) -> np.ndarray:
    """float32 [images + captions, 2] by the cosine of vectors from the mean of their kind, the same
    every time: on one thread."""
    vectors = np.concatenate([kind - kind.mean(axis=0) for kind in (images, captions)])
    perplexity = min(30.0, (len(vectors) - 1) / 3)
    tsne = TSNE(metric="cosine", init="pca", perplexity=perplexity, random_state=0, n_jobs=1)
    return tsne.fit_transform(vectors)


def _points(folder: Path) -> list[dict[str, Any]]:
    """Images spread over a run's, then some captions of each: what they are, the image's number n,
    and their place."""
    items = read_json(folder / "items.json")
    owner = np.array(items["owner"])
    images = np.unique(np.linspace(0, len(items["image_ids"]) - 1, _MOST).astype(int))
    own = [np.flatnonzero(owner == i)[:_TEXTS] for i in images]
    captions = np.concatenate(own)
    at = layout(
        *(
            np.load(folder / name, "r")[rows]
            for name, rows in ((_IMAGES, images), (_CAPTIONS, captions))
        )
    )
    points = [
        ("image", int(i), items["captions"][some[0]]) for i, some in zip(images, own, strict=True)
    ]
    points += [("caption", int(owner[c]), items["captions"][c]) for c in captions]
    return [
        {
            "kind": kind,
            "id": items["image_ids"][n],
            "n": n,
            "text": text,
            "x": round(x, 2),
            "y": round(y, 2),
        }
        for (kind, n, text), (x, y) in zip(points, at.tolist(), strict=True)
    ]


def _map(run: str, points: list[dict[str, Any]], thumbnails: PageThumbnails) -> Chart:
    images = {row["n"]: row["id"] for row in points if row["kind"] == "image"}
    pictures = [
        {"n": n, "picture": shown}
        for n, id in images.items()
        if (shown := thumbnails.uri(id, _SIDE))
    ]
    axis = {"labels": False, "ticks": False, "domain": False, "grid": False}
    kinds = {"domain": ["image", "caption"]}
    tip = [of("kind:N"), of("id:N"), of("text:N")]
    if pictures:  # vega-tooltip draws a field of this name
        tip.append({**of("picture:N"), "title": "image"})
    near = {
        "name": "near",
        "select": {
            "type": "point",
            "fields": ["n"],
            "on": "pointerover",
            "nearest": True,
            "clear": "pointerout",
        },
    }
    dots = layer(
        "point",
        of("x:Q", title=None, axis=axis),
        of("y:Q", title=None, axis=axis),
        color=of("kind:N", title=None, scale=kinds),
        shape=of("kind:N", title=None, scale=kinds),
        opacity={"condition": {"param": "near", "empty": False, "value": 1}, "value": 0.6},
        size={"condition": {"param": "near", "empty": False, "value": 160}, "value": 28},
        tip=tip,
        of_mark={"filled": True, "aria": False},
    )
    told = (
        f"t-SNE of {len(images)} images and {len(points) - len(images)} of their captions as {run}"
        " places them."
    )
    drawn = chart(f"map-{run}", run, told, points, dots, height=_HEIGHT)
    lookup = {
        "lookup": "n",
        "from": {"data": {"values": pictures}, "key": "n", "fields": ["picture"]},
    }
    drawn.spec.update(params=[near], **({"transform": [lookup]} if pictures else {}))
    return drawn
