"""Small inputs for the examples of the docs, all made from one world of scenes, under the names
that the docs use."""

import base64
import csv
import json
import shlex
import shutil
from pathlib import Path

import numpy as np

from capgrade.pictures.listing import read_pictures
from capgrade.schemas.captions import Captions, read_captions
from tests.apps.judging.tiny import random_model
from tests.conftest import call
from tests.layouts import flickr30k, webdataset

SCENES = (
    "--set captions.scenes.train=12 --set captions.scenes.val=6 --set captions.scenes.test=14 "
    "--set captions.scenes.size=64"
)
DATA = "--captions data/captions --regions data/regions"
TINY = (
    "--set train.model.options='{embed: 16, word: 8}' --set train.batch_size=4 --epochs 1 --set"
    " train.device=cpu"
)
TERAN = (
    "{embed_dim: 16, heads: 2, image_layers: 1, joint_layers: 1, feedforward: 16, text_layers: 1,"
    " freeze_text: true}"
)
PIPELINE = f"""
capgrade captions {SCENES} --out data/captions
capgrade regions --images data/captions --boxes 4-8 --set regions.workers=0 --out data/regions
capgrade regions export --format npz --regions data/regions --out features
capgrade relevance --captions data/captions --split test --out data/relevance
capgrade shards --captions data/captions --split train --set shards.top=4 --set shards.uniform=4 --out data/shards
capgrade agree --captions data/captions --split test --judgements data/captions/truth-test.arrow --out data/agree
capgrade publish --captions data/captions --shards data/shards --license cc0-1.0 --out data/dataset
capgrade train --preset sam {DATA} {TINY} --out data/runs/scenes_sam
capgrade train --preset teran {DATA} --set train.model.options='{TERAN}' --set train.batch_size=4 --epochs 1 --set train.device=cpu --out data/runs/scenes_teran
capgrade embed --run data/runs/scenes_sam {DATA} --split test --out data/embeddings/scenes_sam
capgrade evaluate --captions data/captions --split test --similarity data/embeddings/scenes_sam/similarity.npy --relevance data/relevance --out data/evaluation/scenes_sam
capgrade embed --run data/runs/scenes_sam {DATA} --split test --out data/runs/scenes_sam/index
capgrade captions --source coco --input examples/captions.json --split test --out captions
capgrade relevance --captions captions --out relevance
"""  # noqa: E501
# What an example of docs/with_others.md reads, that another makes.
BENCHMARK = (
    "publish --layout mteb --captions data/captions --relevance data/relevance --license cc-by-4.0"
    " --measure sbert --grades related=0.5 --grades fits=0.7 --out benchmark"
)


def make_world() -> None:
    """In the working directory, which has `examples`: a pipeline's folder `data`, and the captions
    of its test split in everyone's layout."""
    for line in PIPELINE.strip().splitlines():
        assert call(*shlex.split(line)[1:]) == 0, line
    captions = read_captions(Path("data/captions"), "test")
    _tables(captions)
    _karpathy_and_coco(captions)
    _results(captions)
    _flickr(captions)
    _precomp(captions)
    _flickr30k()
    webdataset(Path("cc3m"), 5)
    _judgements(captions)
    read = read_pictures(Path("data/captions"))
    for picture in read[:4]:
        Path("val2014").mkdir(exist_ok=True)
        Path("val2014", f"{picture.image_id}.png").write_bytes(picture.read())
    shutil.copyfile("data/embeddings/scenes_sam/similarity.npy", "sims.npy")
    train = read_captions(Path("data/captions"), "train")
    random = np.random.default_rng(0)
    np.save("train.npy", random.random((train.n_images, train.n_captions), np.float32))
    write_entries((40, 200))  # of `captions`
    shutil.copytree("data/dataset", "dataset")
    assert call(*BENCHMARK.split()) == 0
    random_model(Path("crossencoder"))
    assert (
        call(
            "captions",
            *["--source", "tsv", "--input", "captions.tsv", "--split", "test", "--out", "one"],
        )
        == 0
    )


def _rows(captions: Captions) -> list[tuple[str, str, str]]:
    return [
        tuple(row.values())
        for row in captions.table.select(["image_id", "caption_id", "caption"]).to_pylist()
    ]  # type: ignore[misc]


def _results(captions: Captions) -> None:
    """COCO's files of two captioners: the first caption of each image, or the last, with the others
    as references."""
    rows = _rows(captions)
    first = {image: caption for image, _, caption in reversed(rows)}
    last = {image: caption for image, _, caption in rows}
    for name, found in (("results", first), ("others", last)):
        results = [{"image_id": image, "caption": caption} for image, caption in found.items()]
        Path(f"{name}.json").write_text(json.dumps(results), encoding="utf-8")
    others = [
        {"image_id": image, "caption": caption}
        for image, _, caption in rows
        if caption != first[image]
    ]
    Path("captions.json").write_text(json.dumps({"annotations": others}), encoding="utf-8")


def write_entries(shape: tuple[int, int]) -> None:
    """Two entries of a leaderboard, of so many images and captions."""
    random = np.random.default_rng(0)
    for name in ("ours", "theirs"):
        (entry := Path("entries", name)).mkdir(parents=True, exist_ok=True)
        (entry / "entry.yaml").write_text(f"name: {name}\n", encoding="utf-8")
        np.save(entry / "similarity.npy", random.random(shape, np.float32))


def _tables(captions: Captions) -> None:
    rows = _rows(captions)
    text = "image_id\tcaption_id\tcaption\n" + "".join("\t".join(row) + "\n" for row in rows)
    for name in ("captions.tsv", "test5k_captions.tsv", "DATA/coco/test5k_captions.tsv"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")
    with Path("captions.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(
            [("file", "text"), *((image, caption) for image, _, caption in rows)]
        )


def _karpathy_and_coco(captions: Captions) -> None:
    """Every second image is of `restval`, `val` or `train`, so that each split is there."""
    of, images, annotations = np.asarray(captions.owner), [], []
    for k in range(captions.n_images):
        sentences = [{"raw": captions.texts[c], "sentid": int(c)} for c in np.flatnonzero(of == k)]
        split = ("test", "train", "restval", "val")[k % 4]
        images.append({"filename": f"{k}.jpg", "cocoid": k, "split": split, "sentences": sentences})
        annotations += [{"id": s["sentid"], "image_id": k, "caption": s["raw"]} for s in sentences]
    for name in ("dataset_coco.json", "dataset_flickr30k.json"):
        Path(name).write_text(json.dumps({"images": images}), encoding="utf-8")
    Path("annotations").mkdir()
    coco = {"images": [{"id": k} for k in range(captions.n_images)], "annotations": annotations}
    Path("annotations/captions_val2014.json").write_text(json.dumps(coco), encoding="utf-8")


def _flickr(captions: Captions) -> None:
    Path("DATA/flickr8k").mkdir(parents=True, exist_ok=True)
    names = [f"{k}.jpg" for k in range(captions.n_images)]
    number = np.zeros(captions.n_images, int)
    lines = []
    for owner, text in zip(captions.owner, captions.texts, strict=True):
        lines.append(f"{names[owner]}#{number[owner]}\t{text}\n")
        number[owner] += 1
    for folder in (Path(), Path("DATA/flickr8k")):
        (folder / "Flickr8k.token.txt").write_text("".join(lines), encoding="utf-8")
        for k, split in enumerate(("train", "dev", "test")):
            (folder / f"Flickr_8k.{split}Images.txt").write_text(
                "\n".join(names[k::3]) + "\n", encoding="utf-8"
            )


def _flickr30k() -> None:
    """As people hold it, and features of its images."""
    flickr30k(Path("DATA/flickr30k"), 60)
    random, rows = np.random.default_rng(0), []
    for path in sorted(Path("DATA/flickr30k/flickr30k-images").iterdir()):
        boxes = np.array([[0, 0, 9, 9], [10, 20, 40, 80]], "<f4")
        arrays = [
            base64.b64encode(x.tobytes()).decode()
            for x in (boxes, random.random((2, 64)).astype("<f4"))
        ]
        rows.append("\t".join([path.stem, "100", "90", "2", *arrays]))
    Path("WEIGHTS").touch()
    Path("FEATURES").write_text("\n".join(rows) + "\n", encoding="utf-8")


def _precomp(captions: Captions) -> None:
    folder = Path("data/coco_precomp")
    folder.mkdir()
    (folder / "testall_caps.txt").write_text(
        "".join(f"{text}\n" for text in captions.texts), encoding="utf-8"
    )
    (folder / "testall_ids.txt").write_text(
        "".join(f"{owner}\n" for owner in captions.owner), encoding="utf-8"
    )
    folder, random = Path("data/f30k_precomp"), np.random.default_rng(0)
    folder.mkdir()
    for split, first, last, rows in (("train", 0, 8, 1), ("dev", 8, 11, 5), ("test", 11, 14, 5)):
        texts = [
            text
            for owner, text in zip(captions.owner, captions.texts, strict=True)
            if first <= owner < last
        ]
        (folder / f"{split}_caps.txt").write_text(
            "".join(f"{text}\n" for text in texts), encoding="utf-8"
        )
        ids = np.repeat(np.arange(first, last), rows)
        (folder / f"{split}_ids.txt").write_text(
            "".join(f"{one}\n" for one in ids), encoding="utf-8"
        )
        features = random.random((last - first, 4, 8), np.float32)
        np.save(folder / f"{split}_ims.npy", np.repeat(features, rows, axis=0))


def _judgements(captions: Captions) -> None:
    """A score for 60 pairs, own ones among them, as `capgrade agree` reads them."""
    random = np.random.default_rng(0)
    rows = [(captions.image_ids[captions.owner[c]], captions.caption_ids[c], 5) for c in range(10)]
    rows += [
        (
            captions.image_ids[random.integers(captions.n_images)],
            captions.caption_ids[c],
            int(random.integers(5)),
        )
        for c in random.permutation(captions.n_captions)[:30]
    ]
    with Path("polaris.csv").open("w", encoding="utf-8", newline="") as file:
        texts = [
            (captions.texts[k], captions.texts[k + 5 : k + 10], k % 5, k % 7 / 7) for k in range(40)
        ]
        csv.writer(file).writerows([("cand", "refs", "human_score", "clip"), *texts])
    for name in ("cxc_sits_test.csv", "DATA/coco/cxc_sits_test.csv", "graded.csv"):
        with Path(name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("image_id", "caption_id", "score"), *rows])
