"""Small datasets as people hold the real ones, each in a folder of its own: pictures of coloured
shapes, with captions that say what is in them. Names, ids and folders are formed as in the real
files."""

import base64
import csv
import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image, ImageDraw

COLOURS = {
    "red": (200, 40, 40),
    "blue": (40, 70, 200),
    "green": (30, 150, 60),
    "yellow": (230, 200, 40),
}
PLACES = {"sand": (235, 215, 160), "grass": (110, 180, 90), "sky": (150, 200, 240)}
FIRST = 391895  # a number of COCO


@dataclass(frozen=True)
class Scene:
    """A picture as JPEG, its size in pixels, its five captions and its split."""

    jpeg: bytes
    width: int
    height: int
    captions: tuple[str, ...]
    split: str


def scenes(n: int, seed: int = 0) -> list[Scene]:
    """The last fifth is `test`, the fifth before it `val`."""
    rng, made = np.random.default_rng(seed), []
    for k in range(n):
        place = str(rng.choice(list(PLACES)))
        size = (int(rng.integers(100, 140)), int(rng.integers(90, 120)))
        picture, colour = Image.new("RGB", size, PLACES[place]), str(rng.choice(list(COLOURS)))
        x, y = (int(rng.integers(25, side - 25)) for side in size)
        shape = ("circle", "square")[int(rng.integers(2))]
        box = (x - 20, y - 20, x + 20, y + 20)
        (
            ImageDraw.Draw(picture).ellipse
            if shape == "circle"
            else ImageDraw.Draw(picture).rectangle
        )(box, fill=COLOURS[colour])
        data = io.BytesIO()
        picture.save(data, "JPEG", quality=90)
        captions = (
            f"A {colour} {shape} on the {place}.",
            f"There is a {colour} {shape}, lying on {place}.",
            f"a picture of the {place}",
            f'Someone painted "a {colour} {shape}" there',
            f"The {shape} and the {place} .",
        )
        split = "test" if k >= n - n // 5 else "val" if k >= n - 2 * (n // 5) else "train"
        made.append(Scene(data.getvalue(), *size, captions, split))
    return made


def flickr8k(root: Path, n: int) -> None:
    """Flicker8k_Dataset, Flickr8k.token.txt and the three lists, and Kaggle's captions.txt."""
    (root / "Flicker8k_Dataset").mkdir(parents=True)
    names = [f"{1000268201 + 7919 * k}_{(k * 2654435761) % 16**10:010x}.jpg" for k in range(n)]
    made = list(zip(names, scenes(n), strict=True))
    with (
        (root / "Flickr8k.token.txt").open("w") as token,
        (root / "captions.txt").open("w", newline="") as kaggle,
    ):
        rows = csv.writer(kaggle)
        rows.writerow(["image", "caption"])
        for name, scene in made:
            (root / "Flicker8k_Dataset" / name).write_bytes(scene.jpeg)
            token.writelines(f"{name}#{k}\t{caption}\n" for k, caption in enumerate(scene.captions))
            rows.writerows([name, caption] for caption in scene.captions)
    for split, listed in (("train", "train"), ("val", "dev"), ("test", "test")):
        of_split = [name for name, scene in made if scene.split == split]
        (root / f"Flickr_8k.{listed}Images.txt").write_text(
            "".join(f"{name}\n" for name in of_split)
        )


def flickr30k(root: Path, n: int) -> None:
    """flickr30k-images, Karpathy's dataset_flickr30k.json, and Kaggle's results.csv with its short
    row."""
    (root / "flickr30k-images").mkdir(parents=True)
    images, rows = [], ["image_name| comment_number| comment"]
    for i, scene in enumerate(scenes(n)):
        name = f"{1000092795 + 1117 * i}.jpg"
        (root / "flickr30k-images" / name).write_bytes(scene.jpeg)
        bars = ["|" if (i, k) != (3, 4) else "  " for k in range(5)]
        rows += [
            f"{name}| {k}{bar} {text}"
            for k, (bar, text) in enumerate(zip(bars, scene.captions, strict=True))
        ]
        images.append(
            {
                "imgid": i,
                "split": scene.split,
                "filename": name,
                "sentences": sentences(scene, 5 * i),
            }
        )
    (root / "dataset_flickr30k.json").write_text(
        json.dumps({"images": images, "dataset": "flickr30k"})
    )
    (root / "results.csv").write_text("\n".join(rows) + "\n")


def sentences(scene: Scene, first: int) -> list[dict]:
    """As Karpathy's files have them."""
    return [{"raw": text, "sentid": first + k} for k, text in enumerate(scene.captions)]


def coco(root: Path, n: int) -> None:
    """train2014, val2014, dataset_coco.json, the official annotations, and bottom-up attention's
    features."""
    karpathy: list[dict] = []
    official: dict[str, dict[str, list]] = {
        folder: {"images": [], "annotations": []} for folder in ("train2014", "val2014")
    }
    rng, rows = np.random.default_rng(1), []
    for i, scene in enumerate(scenes(n)):
        folder, number = "train2014" if scene.split == "train" else "val2014", FIRST + 37 * i
        name = f"COCO_{folder}_{number:012d}.jpg"
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / name).write_bytes(scene.jpeg)
        image = {"filepath": folder, "filename": name, "cocoid": number, "split": scene.split}
        karpathy.append({**image, "sentences": sentences(scene, 900000 + 5 * i)})
        official[folder]["images"].append({"id": number, "file_name": name})
        official[folder]["annotations"] += [
            {"id": 900000 + 5 * i + k, "image_id": number, "caption": text}
            for k, text in enumerate(scene.captions)
        ]
        corners = np.sort(rng.uniform(0, 1, (6, 2, 2)), 1).reshape(6, 4) * np.array(
            [scene.width, scene.height] * 2
        )
        arrays = [
            base64.b64encode(x.astype("<f4").tobytes()).decode()
            for x in (corners, rng.random((6, 16)))
        ]
        rows.append("\t".join([str(number), str(scene.width), str(scene.height), "6", *arrays]))
    (root / "dataset_coco.json").write_text(json.dumps({"images": karpathy, "dataset": "coco"}))
    (root / "annotations").mkdir()
    for folder, content in official.items():
        (root / "annotations" / f"captions_{folder}.json").write_text(json.dumps(content))
    (root / "trainval_resnet101_faster_rcnn_genome_36.tsv").write_text("\n".join(rows) + "\n")


def hub(root: Path, n: int) -> None:
    """Parquet files as the hub has them: a picture, a list of captions and a number in each row."""
    (root / "data").mkdir(parents=True)
    made = list(enumerate(scenes(n)))
    text = {"dtype": "string", "_type": "Value"}
    kinds = {
        "image": {"_type": "Image"},
        "caption": {"feature": text, "_type": "List"},
        "img_id": text,
    }
    for split, named in (("train", "train"), ("val", "validation"), ("test", "test")):
        of_split = [(i, scene) for i, scene in made if scene.split == split]
        pictures = [{"bytes": scene.jpeg, "path": f"{1000092795 + i}.jpg"} for i, scene in of_split]
        columns = {"image": pictures, "caption": [list(scene.captions) for _, scene in of_split]}
        table = pa.table({**columns, "img_id": [str(i) for i, _ in of_split]})
        table = table.replace_schema_metadata(
            {"huggingface": json.dumps({"info": {"features": kinds}})}
        )
        pq.write_table(table, root / "data" / f"{named}-00000-of-00001.parquet")


def webdataset(root: Path, n: int) -> None:
    """Tars of KEY.jpg, KEY.txt and KEY.json, as img2dataset writes them: one caption a picture, no
    splits."""
    root.mkdir(parents=True)
    made = scenes(n)
    for shard in range(0, n, 25):
        with tarfile.open(root / f"{shard // 25:05d}.tar", "w") as tar:
            for i in range(shard, min(shard + 25, n)):
                key, caption = f"{shard // 25:05d}{i - shard:04d}", made[i].captions[0]
                told = json.dumps({"key": key, "caption": caption, "status": "success"}).encode()
                for ending, content in (
                    ("jpg", made[i].jpeg),
                    ("txt", caption.encode()),
                    ("json", told),
                ):
                    entry = tarfile.TarInfo(f"{key}.{ending}")
                    entry.size = len(content)
                    tar.addfile(entry, io.BytesIO(content))


def table(root: Path, n: int) -> None:
    """captions.csv with paths below pictures/; one picture is missing, and one is a page of
    HTML."""
    rows = []
    for i, scene in enumerate(scenes(n)):
        name = f"batch {i % 3}/photo {i:03d}.jpg"
        path = root / "pictures" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if i != 5:
            path.write_bytes(b"<html>404</html>" if i == 7 else scene.jpeg)
        rows += [[name, caption, scene.split] for caption in scene.captions[: 1 + i % 4]]
    with (root / "captions.csv").open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file).writerows([["path", "caption", "split"], *rows])


LAYOUTS: dict[str, Callable[[Path, int], None]] = {
    one.__name__: one for one in (flickr8k, flickr30k, coco, hub, webdataset, table)
}
