"""Scores whose rows and columns are in another order than the captions table: by ids, and with a
hint without them."""

import json

import numpy as np
import pyarrow as pa
import pytest

from capgrade.schemas.captions import SCHEMA, read_captions
from capgrade.schemas.errors import InputError
from capgrade.trainer.evaluation.order import MatrixIds, order_note, read_ids
from capgrade.trainer.evaluation.similarity import mean_similarity, similarity_of
from capgrade.trainer.evaluation.task import load_task
from tests.conftest import call, write_captions_folder

IMAGES, EACH = 40, 3


@pytest.fixture(scope="module")
def shuffled(tmp_path_factory):
    """As torchvision's CocoCaptions loads COCO: a table in the file's order, the model's scores by
    sorted image ids. The folder of captions, the scores, and the ids of their rows and columns."""
    base, random = tmp_path_factory.mktemp("order"), np.random.default_rng(0)
    images = [str(k) for k in random.permutation(np.arange(80, 80 + IMAGES))]
    rows = [(image, f"{image}#{k}") for image in images for k in range(EACH)]
    rows = [rows[k] for k in random.permutation(len(rows))]
    names, captions = zip(*rows, strict=True)
    files = [f"COCO_val2014_{int(name):012}.jpg" for name in names]
    columns = {"image_id": names, "caption_id": captions, "image_file": files}
    same = {"split": "test", "caption": "a dog", "tokens": ["a", "dog"]}
    table = pa.table(columns | {name: [value] * len(rows) for name, value in same.items()}).select(
        SCHEMA.names
    )
    folder = write_captions_folder(base / "captions", [table])
    ids = sorted(set(names), key=int)
    texts = [caption for image in ids for name, caption in rows if name == image]
    own = np.array([[caption.startswith(f"{image}#") for caption in texts] for image in ids])
    scores = (own + 0.2 * random.standard_normal(own.shape)).astype(np.float32)
    np.save(base / "scores.npy", scores)
    return folder, base / "scores.npy", ids, texts


def recall(task):
    best = task.similarity.argmax(axis=0)
    return (best == task.owner).mean()


def test_scores_in_another_order_are_asked_about(shuffled):
    folder, scores, *_ = shuffled
    task, notes = load_task(folder, similarity=scores)
    assert recall(task) < 0.2
    assert "no better than chance: the mean rank of a caption's image is" in notes[0]
    assert notes[0].endswith(
        "are rows in the table's order? give --row-ids and --column-ids, or .npz with ids"
    )


def test_scores_at_chance_get_the_question_and_right_ones_nothing(shuffled):
    captions, random = read_captions(shuffled[0]), np.random.default_rng(1)
    noise = random.standard_normal((IMAGES, IMAGES * EACH))
    assert order_note(noise, captions)
    assert order_note(np.zeros(noise.shape), captions), "every score the same"
    assert order_note(noise + 2 * (captions.owner == np.arange(IMAGES)[:, None]), captions) is None


def test_ids_beside_the_scores_put_them_in_order(shuffled, tmp_path):
    """As a list in text, JSON or .npy, by stem or COCO's number; in an .npz; of more rows than the
    split has."""
    folder, scores, ids, texts = shuffled
    (tmp_path / "rows.txt").write_text(
        "".join(f"COCO_val2014_{int(name):012}.jpg\n" for name in ids)
    )
    (tmp_path / "columns.json").write_text(json.dumps(texts))
    np.save(tmp_path / "rows.npy", np.array(ids, np.int64))
    matrix, columns = np.load(scores), tmp_path / "columns.json"
    for rows in ("rows.txt", "rows.npy"):
        task, notes = load_task(folder, similarity=scores, ids=MatrixIds(tmp_path / rows, columns))
        assert recall(task) > 0.9 and not [note for note in notes if "chance" in note]
    more = np.vstack([np.full((1, len(texts)), 9), matrix])
    np.savez(
        tmp_path / "s.npz",
        similarity=more,
        image_ids=["another", *ids],
        caption_ids=np.array(texts),
    )
    assert (load_task(folder, similarity=tmp_path / "s.npz")[0].similarity == task.similarity).all()
    out = ("--out", str(tmp_path / "out"), "--set", "evaluate.samples=10")
    given = (
        "--similarity",
        str(scores),
        "--row-ids",
        str(tmp_path / "rows.txt"),
        "--column-ids",
        str(columns),
    )
    assert call("evaluate", "--captions", str(folder), *given, *out) == 0
    found = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert found["rsum"] > 580 and {"row_ids", "column_ids"} < set(
        json.loads((tmp_path / "out" / "manifest.json").read_text())["inputs"]
    )


def test_embeddings_are_placed_by_ids_too(shuffled, tmp_path):
    folder, scores, ids, texts = shuffled
    captions = read_captions(folder)
    vectors = np.eye(IMAGES, dtype=np.float32)
    of_texts = vectors[[ids.index(text.partition("#")[0]) for text in texts]]
    np.savez(tmp_path / "images.npz", vectors=vectors, image_ids=ids)
    np.save(tmp_path / "texts.npy", of_texts)
    (tmp_path / "columns.json").write_text(json.dumps(texts))
    found = similarity_of(
        tmp_path / "images.npz",
        tmp_path / "texts.npy",
        captions,
        MatrixIds(columns=tmp_path / "columns.json"),
    )
    np.testing.assert_array_equal(found, captions.owner == np.arange(IMAGES)[:, None])


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        (
            lambda ids: ids[:-1],
            None,
            f"rows.json: {IMAGES - 1} ids for {IMAGES} rows -> give one id for each",
        ),
        (lambda ids: [*ids[:-1], "x"], None, f"rows.json: no rows of 1 of the {IMAGES} images"),
        (lambda ids: [*ids[:-1], ids[0]], None, "has two"),
        (
            None,
            lambda ids: [*ids[:-1], "x"],
            f"columns.json: no column of 1 of the {IMAGES * EACH} captions",
        ),
        (
            None,
            lambda ids: [*ids[:-1], ids[0]],
            "columns.json: caption '.*' comes twice -> give each column its own",
        ),
        (lambda ids: {"a": 1}, None, "rows.json: no list of ids -> write one id a line"),
        (lambda ids: [1.5] * IMAGES, None, "rows.json: no list of ids"),
    ],
)
def test_ids_that_do_not_fit(shuffled, tmp_path, rows, columns, message):
    folder, scores, ids, texts = shuffled
    (tmp_path / "rows.json").write_text(json.dumps((rows or list)(ids)))
    (tmp_path / "columns.json").write_text(json.dumps((columns or list)(texts)))
    given = MatrixIds(tmp_path / "rows.json", tmp_path / "columns.json")
    with pytest.raises(InputError, match=message):
        mean_similarity([scores], read_captions(folder), given)


def test_files_of_ids_and_archives_that_are_none(shuffled, tmp_path):
    np.save(tmp_path / "objects.npy", np.array(["a", None], dtype=object))
    (tmp_path / "gap.txt").write_text("a\n\nb\n")
    for name, message in (
        ("objects.npy", "cannot be read .* -> write one id a line"),
        ("gap.txt", "row 2: an empty id"),
        ("no.npy", "no such file"),
    ):
        with pytest.raises(InputError, match=message):
            read_ids(tmp_path / name)
    np.savez(tmp_path / "two.npz", a=np.zeros((2, 2)), b=np.zeros((2, 2)))
    (tmp_path / "text.npz").write_text("a")
    np.savez(tmp_path / "ids.npz", image_ids=["a"])
    for name, message in (
        ("two", "arrays a, b -> name one"),
        ("text", "cannot be read"),
        ("ids", "arrays none"),
    ):
        with pytest.raises(InputError, match=message):
            load_task(shuffled[0], similarity=tmp_path / f"{name}.npz")


def test_ids_are_of_given_scores(capsys):
    assert call("evaluate", "--captions", "c", "--stand-in", "0", "--row-ids", "f") == 2
    said = "evaluate.row_ids with evaluate.stand_in -> leave one of them out"
    assert said in capsys.readouterr().err
