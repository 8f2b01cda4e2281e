"""Section: where a run puts images and captions: t-SNE of their vectors in two dimensions."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits

from capgrade.apps.page.charts import channel, make_chart, make_layer
from capgrade.apps.page.parts import Chart, Note, PageSection, Part
from capgrade.apps.page.thumbnails import PageThumbnails
from capgrade.apps.report.data import EMBEDDINGS, ReportData
from capgrade.schemas.files import MANIFEST, read_manifest
from capgrade.schemas.lines import read_json
from capgrade.trainer.stages.embed import EMBED

_IMAGES, _CAPTIONS = "images.vector.npy", "captions.vector.npy"
_MAX_IMAGES = 300  # on a map, spread over the split
_CAPTIONS_PER_IMAGE = 2
_HEIGHT = 460
_SIDE = 64  # pixels of a thumbnail that hovering shows
_INTRO = (
    "t-SNE of the vectors that a run compares, images and captions together. Models trained to rank"
    " put the two apart (the modality gap), and a map would show little else: so the mean of all"
    " images is taken from each image, and the mean of all captions from each caption. Hovering"
    " shows what a point is and joins it to the points of the same image. Distances between far"
    " groups mean nothing, as always with t-SNE."
)


def embedding_map_section(data: ReportData, thumbnails: PageThumbnails) -> PageSection:
    """A map for each run with one vector per item; other runs compare sets of vectors."""
    folders = data.find_folders(EMBEDDINGS, MANIFEST, "embeddings of a trained run")
    single = [
        run
        for run, folder in folders.items()
        if _IMAGES in read_manifest(folder, EMBED.name)["files"]
    ]
    # One thread per map: threads of several maps would wait for each other, which takes many times
    # as long.
    with threadpool_limits(1), ThreadPoolExecutor(os.cpu_count()) as pool:
        points = list(pool.map(lambda run: _points(folders[run]), single))
    parts: list[Part] = [
        _map(run, placed, thumbnails) for run, placed in zip(single, points, strict=True)
    ]
    if sets := [run for run in folders if run not in single]:
        parts.append(
            Note(f"No map of {', '.join(sets)}: it compares sets of vectors, not one for an item.")
        )
    return PageSection("map", "Map of embeddings", _INTRO, parts)


def project_vectors(images: np.ndarray, captions: np.ndarray) -> np.ndarray:
    """t-SNE by cosine of images and captions, each kind centred on its own mean: float32
    [images + captions, 2]. On one thread, so that results repeat exactly."""
    vectors = np.concatenate([kind - kind.mean(axis=0) for kind in (images, captions)])
    perplexity = min(30.0, (len(vectors) - 1) / 3)
    tsne = TSNE(metric="cosine", init="pca", perplexity=perplexity, random_state=0, n_jobs=1)
    return tsne.fit_transform(vectors)


def _points(folder: Path) -> list[dict[str, Any]]:
    """Points of at most _MAX_IMAGES images, then of some captions of each: kind, id, text, the
    image's number `n`, and their place x, y."""
    items = read_json(folder / "items.json")
    owner = np.array(items["owner"])
    images = np.unique(np.linspace(0, len(items["image_ids"]) - 1, _MAX_IMAGES).astype(int))
    own = [np.flatnonzero(owner == i)[:_CAPTIONS_PER_IMAGE] for i in images]
    captions = np.concatenate(own)
    image_vectors = np.load(folder / _IMAGES, "r")[images]
    caption_vectors = np.load(folder / _CAPTIONS, "r")[captions]
    places = project_vectors(image_vectors, caption_vectors)
    points = [
        ("image", int(i), items["captions"][rows[0]]) for i, rows in zip(images, own, strict=True)
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
        for (kind, n, text), (x, y) in zip(points, places.tolist(), strict=True)
    ]


def _map(run: str, points: list[dict[str, Any]], thumbnails: PageThumbnails) -> Chart:
    images = {row["n"]: row["id"] for row in points if row["kind"] == "image"}
    pictures = [
        {"n": n, "picture": uri}
        for n, image_id in images.items()
        if (uri := thumbnails.uri(image_id, _SIDE))
    ]
    axis = {"labels": False, "ticks": False, "domain": False, "grid": False}
    kinds = {"domain": ["image", "caption"]}
    tip = [channel("kind:N"), channel("id:N"), channel("text:N")]
    if pictures:
        # vega-tooltip draws the field "image" as a picture.
        tip.append({**channel("picture:N"), "title": "image"})
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
    dots = make_layer(
        "point",
        channel("x:Q", title=None, axis=axis),
        channel("y:Q", title=None, axis=axis),
        color=channel("kind:N", title=None, scale=kinds),
        shape=channel("kind:N", title=None, scale=kinds),
        opacity={"condition": {"param": "near", "empty": False, "value": 1}, "value": 0.6},
        size={"condition": {"param": "near", "empty": False, "value": 160}, "value": 28},
        tip=tip,
        mark_options={"filled": True, "aria": False},
    )
    alt = (
        f"t-SNE of {len(images)} images and {len(points) - len(images)} of their captions as {run}"
        " places them."
    )
    map_chart = make_chart(f"map-{run}", run, alt, points, dots, height=_HEIGHT)
    lookup = {
        "lookup": "n",
        "from": {"data": {"values": pictures}, "key": "n", "fields": ["picture"]},
    }
    map_chart.spec.update(params=[near], **({"transform": [lookup]} if pictures else {}))
    return map_chart
