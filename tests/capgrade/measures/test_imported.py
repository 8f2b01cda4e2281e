"""Imported matrices: each cell is read once, however many chunks the captions are cut into.
Judgements as a measure: on the pairs that were judged, and on no other."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import capgrade
from capgrade.apps.explorer.judgements import read_judge_tables
from capgrade.measures import MeasuresParams, choose, imported
from capgrade.measures.imported import FittedImported, FittedPairs, Imported
from capgrade.schemas.arrays import map_npy
from capgrade.schemas.arrow import write_arrow
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.relevance import Relevance, read_relevance, relevance_batch, relevance_schema
from capgrade.schemas.reviews import POOL, Item, ReviewPlan
from tests.conftest import (
    call,
    caption_table,
    make_captions,
    random_sets,
    refusal,
    write_captions_folder,
)

CHUNK = 16
LAYOUTS = ["images x captions", "captions x images", "teran", "arrow"]


@pytest.fixture
def captions(monkeypatch: pytest.MonkeyPatch) -> Captions:
    monkeypatch.setattr("capgrade.measures.base.CHUNK", CHUNK)
    return make_captions(random_sets(30, seed=1, least=4))


def fitted(layout: str, values: np.ndarray, captions: Captions, path: Path) -> FittedImported:
    if layout == "arrow":
        schema = relevance_schema(captions.n_captions, "float32", {})
        parts = np.array_split(np.arange(len(values)), 4)
        ids = captions.image_ids
        write_arrow(
            path, schema, [relevance_batch([ids[i] for i in p], values[p], schema) for p in parts]
        )
    elif layout == "teran":
        path.write_bytes(values.T.tobytes())
    else:
        with path.open("wb") as f:
            np.save(f, values if layout == "images x captions" else values.T)
    return Imported("theirs", str(path)).fit(captions)


@pytest.mark.parametrize("layout", ["images x captions", "teran", "arrow"])
def test_a_square_matrix_has_its_documented_orientation(
    layout: str, tmp_path: Path, recwarn
) -> None:
    """As many captions as images: the shape cannot tell the rows of a `.npy` file, so they are
    images."""
    square = make_captions(random_sets(5, seed=2, least=1, most=1))
    values = np.arange(25, dtype=np.float32).reshape(5, 5)
    one = fitted(layout, values, square, tmp_path / "theirs.npy")
    assert one.layout == layout
    assert one.score(np.arange(5)).tolist() == values.tolist()
    said = (
        "theirs.npy is square: read as images x captions; if its rows are captions, write its"
        " transpose"
    )
    assert any(said in str(one.message) for one in recwarn) == (layout == "images x captions")


class Counted(np.ndarray):
    """A matrix that counts the cells that are taken out of it."""

    cells = 0

    def __getitem__(self, at: Any) -> Any:
        return counted(super().__getitem__(at))


def counted(found: np.ndarray) -> np.ndarray:
    Counted.cells += found.size
    return np.asarray(found)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_cell_is_read_once(
    layout: str, captions: Captions, tmp_path: Path, monkeypatch
) -> None:
    """Of a block and a group of captions, eight chunks: their cells, once each."""
    values = np.random.default_rng(0).random((30, captions.n_captions), np.float32)
    one = fitted(layout, values, captions, tmp_path / "x")
    assert one.layout == layout
    Counted.cells = 0
    memmap, cells = np.memmap, Relevance.cells
    monkeypatch.setattr(imported, "map_npy", lambda path: map_npy(path).view(Counted))
    if layout == "teran":
        monkeypatch.setattr(
            np, "memmap", lambda *given, **more: memmap(*given, **more).view(Counted)
        )
    monkeypatch.setattr(Relevance, "cells", lambda *given: counted(cells(*given)))
    images, out = np.array([3, 4, 29]), np.empty((3, CHUNK), np.float32)
    start, stop = CHUNK, min(captions.n_captions, 9 * CHUNK)
    found = [
        out[:, : min(CHUNK, stop - at)].copy()
        for at, _ in zip(
            range(start, stop, CHUNK), one.chunks(images, start, stop, out), strict=True
        )
    ]
    assert len(found) >= 5
    assert np.array_equal(np.hstack(found), values[images, start:stop])
    assert Counted.cells == 3 * (stop - start)
    Counted.cells = 0
    some = np.array([0, 50, 7])
    assert np.array_equal(one.score(images, some), values[images][:, some])
    assert Counted.cells == 9
    assert np.array_equal(one.score(images), values[images])


@pytest.mark.parametrize("layout", LAYOUTS[:3])
def test_a_bad_cell_is_named_by_its_own_numbers(
    layout: str, captions: Captions, tmp_path: Path
) -> None:
    """Not by those within a chunk or a choice of captions."""
    values, said = np.zeros((30, captions.n_captions), np.float32), "image 21, caption 40 holds inf"
    one = fitted(layout, values, captions, tmp_path / "x")
    values[21, 40] = np.inf
    (tmp_path / "y").mkdir()
    with pytest.raises(InputError, match=said):
        fitted(layout, values, captions, tmp_path / "y" / "x")
    (tmp_path / "y" / "x").replace(tmp_path / "x")
    with pytest.raises(InputError, match=said):
        list(one.chunks(np.array([20, 21]), 32, 48, np.empty((2, CHUNK), np.float32)))
    with pytest.raises(InputError, match=said):
        one.score(np.array([20, 21]), np.array([3, 40]))


@pytest.mark.parametrize(
    ("rows", "kind", "said"),
    [
        ([None, [1.0]], pa.float32(), "values are missing"),
        ([[None], [1.0]], pa.float32(), "values are missing"),
        ([["0"], ["1"]], pa.string(), "not a relevance file .columns image_id, relevance"),
    ],
)
def test_an_arrow_file_of_other_values_is_refused(
    rows: list, kind: pa.DataType, said: str, tmp_path: Path
) -> None:
    batch = pa.record_batch(
        [pa.array(["i0", "i1"]), pa.array(rows, pa.list_(kind, 1))], ["image_id", "relevance"]
    )
    write_arrow(tmp_path / "x.arrow", batch.schema, [batch])
    with pytest.raises(InputError, match=said):
        read_relevance(tmp_path / "x.arrow")


SETS = random_sets(6, seed=2, least=2, most=3)
CAPTIONS = make_captions(SETS)


def write(path: Path, rows: list[tuple[int, int, float]]) -> Path:
    ids = [(CAPTIONS.image_ids[i], CAPTIONS.caption_ids[c], s) for i, c, s in rows]
    path.write_text(
        "image_id,caption_id,score,rater,scale\n"
        + "".join(f"{i},{c},{s},m,0..5\n" for i, c, s in ids)
    )
    return path


def test_the_mean_of_each_pair_and_nothing_for_others(tmp_path: Path) -> None:
    path = write(tmp_path / "j.csv", [(3, 2, 4), (0, 1, 1), (3, 2, 5)])
    measure = Imported("people", str(path))
    fitted = measure.fit(CAPTIONS)
    assert isinstance(fitted, FittedPairs) and (measure.low, measure.high) == (1, 4.5)
    np.testing.assert_array_equal(
        fitted.pairs(np.array([0, 3]), np.array([1, 2])), np.float32([1, 4.5])
    )
    assert fitted.score(np.array([3]), np.array([2])).tolist() == [[4.5]]
    fitted.save(tmp_path / "state")
    assert FittedPairs.load(tmp_path / "state").score(np.array([0]), np.array([1])).tolist() == [
        [1]
    ]
    np.testing.assert_array_equal(
        fitted.score(np.array([3]), np.array([0, 2])), np.float32([[np.nan, 4.5]])
    )
    assert measure.partial(CAPTIONS)
    for images in ([0, 3], [3, 1, 0], [1, 2]):  # of a block, rising within it
        scored = fitted.scored(np.array(images))
        wanted = [
            row * CAPTIONS.n_captions + caption
            for row, image in enumerate(images)
            for caption in {0: [1], 3: [2]}.get(image, [])
        ]
        assert scored is not None and scored.tolist() == wanted


def test_a_table_of_a_spreadsheet_is_read(tmp_path: Path) -> None:
    """As Excel writes UTF-8: with a byte order mark and Windows' line ends."""
    path = write(tmp_path / "j.csv", [(3, 2, 4), (0, 1, 1)])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    fitted = Imported("people", str(path)).fit(CAPTIONS)
    assert fitted.score(np.array([3]), np.array([2])).tolist() == [[4]]
    plan = ReviewPlan(POOL, "", 0, (Item("i3", CAPTIONS.caption_ids[2]),))
    assert read_judge_tables([path], plan) == ({"m": {0: 4}}, (0, 5))


def test_agree_compares_a_judge_with_people_and_with_measures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    captions = write_captions_folder(tmp_path / "captions", [caption_table(SETS)])
    random = np.random.default_rng(0)
    pairs = [
        (int(i), int(c)) for i in range(6) for c in random.permutation(CAPTIONS.n_captions)[:5]
    ]
    people = write(tmp_path / "people.csv", [(i, c, (i * 7 + c) % 6) for i, c in pairs])
    judge = write(tmp_path / "judge.csv", [(i, c, ((i * 7 + c) % 6) / 5) for i, c in pairs])
    line = ["agree", "--captions", str(captions), "--judgements", str(people), "--measures"]
    assert call(*line, f"rouge_l,judge={judge}", "--json") == 0
    found = json.loads(capsys.readouterr().out)["measures"]
    assert (
        found["judge"]["pearson"]["all"] == pytest.approx(1)
        and found["rouge_l"]["pearson"]["all"] < 0.9
    )
    out = [
        "relevance",
        "--captions",
        str(captions),
        "--measures",
        f"judge={judge}",
        "--out",
        str(tmp_path / "r"),
    ]
    assert call(*out) == 2
    assert "not every pair is known" in capsys.readouterr().err
    whole = [(i, c, (i + c) % 6) for i in range(6) for c in range(CAPTIONS.n_captions)]
    write(judge, whole)  # type: ignore[arg-type]
    assert call(*out) == 0


def forms(tmp_path: Path, pairs: list[tuple[int, int, float]]) -> list[Path]:
    """The pairs in each format, and a list for each image and for each caption."""
    rows = [
        {"image_id": CAPTIONS.image_ids[i], "caption_id": CAPTIONS.caption_ids[c], "score": s}
        for i, c, s in pairs
    ]
    lists = []
    for query, items in (("image_id", "caption_id"), ("caption_id", "image_id")):
        of_query: dict[str, list] = {}
        for row in rows:
            of_query.setdefault(row[query], []).append(row)
        lists.append(
            [
                {query: k, f"{items}s": [r[items] for r in v], "scores": [r["score"] for r in v]}
                for k, v in of_query.items()
            ]
        )
    paths = [tmp_path / name for name in ("a.csv", "b.tsv", "c.jsonl", "d.parquet")]
    text = "\n".join("\t".join(map(str, row.values())) for row in rows)
    paths[1].write_text(f"image_id\tcaption_id\tscore\n{text}\n")
    write(paths[0], pairs)
    paths[2].write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), paths[3])
    for k, of in enumerate(lists):
        paths += [tmp_path / f"list{k}.jsonl", tmp_path / f"list{k}.parquet"]
        paths[-2].write_text("".join(json.dumps(row) + "\n" for row in of))
        pq.write_table(pa.Table.from_pylist(of), paths[-1])
    matrix = np.full((CAPTIONS.n_images, CAPTIONS.n_captions), np.nan, np.float32)
    for i, c, s in pairs:
        matrix[i, c] = s
    paths.append(tmp_path / "m.npy")
    np.save(paths[-1], matrix)
    return paths


PAIRS = [(0, 1, 0.5), (0, 3, 0.0), (2, 0, 1.0), (5, 8, 0.25), (5, 2, -0.5)]


def test_every_form_of_some_pairs_says_the_same(tmp_path: Path) -> None:
    codes = sorted(i * CAPTIONS.n_captions + c for i, c, _ in PAIRS)
    for path in forms(tmp_path, PAIRS):
        measure = Imported("judge", str(path))
        fitted = measure.fit(CAPTIONS)
        scored = fitted.scored(np.arange(6))
        assert scored is not None and scored.tolist() == codes, path
        image, caption, score = (np.array(column) for column in zip(*PAIRS, strict=True))
        np.testing.assert_array_equal(fitted.pairs(image, caption), np.float32(score))
        assert np.isnan(fitted.pairs(np.array([1]), np.array([0])))[0]
        assert (measure.low, measure.high) == (-0.5, 1) and measure.partial(CAPTIONS), path
        with pytest.raises(InputError, match="not every pair is known.*make shards"):
            fitted.score(np.arange(6))


def test_shards_hold_what_is_known_and_nothing_is_zero(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    captions = write_captions_folder(tmp_path / "captions", [caption_table(SETS)])
    for path in forms(tmp_path, PAIRS):
        out = tmp_path / "shards" / path.name
        line = ("shards", "--captions", captions, "--measures", f"rouge_l,judge={path}")
        assert call(*line, "--out", out, "--top", 0, "--uniform", 8) == 0
        own = sum(CAPTIONS.owner[c] == i for i, c, _ in PAIRS)
        lacking = f"judge: {CAPTIONS.n_captions - own} of {CAPTIONS.n_captions} own captions"
        assert lacking in capsys.readouterr().err
        labels = capgrade.Labels.load(out, captions=captions)
        ids = CAPTIONS.image_ids, CAPTIONS.caption_ids
        relevance, known, _ = labels.block(*ids, "judge")
        found = {
            (int(i), int(c)): float(relevance[i, c])
            for i, c in zip(*np.nonzero(known), strict=True)
        }
        assert found == {(i, c): s for i, c, s in PAIRS}, path


def test_agree_compares_what_every_measure_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    captions = write_captions_folder(tmp_path / "captions", [caption_table(SETS)])
    people = write(tmp_path / "people.csv", [(i, c, (s + i) / 2 + 1) for i, c, s in PAIRS])
    judge = write(tmp_path / "judge.csv", PAIRS[:4])
    line = ("agree", "--captions", captions, "--judgements", people)
    assert call(*line, "--measures", f"rouge_l,judge={judge}", "--json") == 0
    said = capsys.readouterr()
    assert "own captions" not in said.err  # which is said where labels are made
    assert "4 of 5 judged pairs have a value of every measure; lacking: judge 1" in said.err
    found = json.loads(said.out)["measures"]["judge"]["pearson"]["all"]
    scores = (
        [s for *_, s in PAIRS[:4]],
        [s + i for i, _, s in PAIRS[:4]],
    )  # people's, moved and scaled
    assert found == pytest.approx(np.corrcoef(*scores)[0, 1])
    none = write(tmp_path / "none.csv", [(1, 1, 1)])
    said_of_none = refusal(*line, "--measures", f"judge={none}")
    assert "no judged pair has a value of every measure; lacking: judge 5" in said_of_none


def test_a_mixture_knows_what_its_parts_know(tmp_path: Path) -> None:
    path = write(tmp_path / "j.csv", PAIRS)
    params = MeasuresParams.model_validate(
        {"imported": {"judge": str(path)}, "mixtures": {"both": {"judge": 0.5, "rouge_l": 0.5}}}
    )
    measure = choose(["both"], params)["both"]
    fitted = measure.fit(CAPTIONS)
    image, caption, score = (np.array(column) for column in zip(*PAIRS, strict=True))
    rouge = choose(["rouge_l"], params)["rouge_l"].fit(CAPTIONS).pairs(image, caption)
    np.testing.assert_allclose(fitted.pairs(image, caption), (score + rouge) / 2, atol=1e-6)
    scored = fitted.scored(np.arange(6))
    assert measure.partial(CAPTIONS) and scored is not None and len(scored) == len(PAIRS)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '{"image_id": "i0", "caption_ids": ["i0#0"], "scores": [1, 2]}',
            "row 1: 1 caption_ids, and 2 scores",
        ),
        ('{"image_id": "i0", "caption_ids": 3, "scores": [1]}', "caption_ids is no list"),
        ('{"image_id": "i0", "caption_id": "i0#0", "score": null}', "score 'None' is not a number"),
        ("[1]", "row 1: no object"),
        ('{"image_id": "i0"}', "no columns image_id, caption_id, score"),
    ],
)
def test_other_lists_are_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "j.jsonl").write_text(text + "\n")
    with pytest.raises(InputError, match=said):
        Imported("judge", str(tmp_path / "j.jsonl")).fit(CAPTIONS)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n", "no columns"),
        ("image_id,caption_id,score\n", "no pairs"),
        ("image_id,caption_id,score\ni0,nobody,1\n", "row 2: image 'i0', caption 'nobody'"),
        ("image_id,caption_id,score\ni0,i0#0,nan\n", "row 2: score 'nan' is not a number"),
        ("image_id,caption_id,score\ni0,i0#0,-1e39\n", r"row 2: score '-1e39' is beyond 3.4e\+38"),
        ("image_id,caption_id,score\ni0,i0#0\n", "row 2: the row has 2 fields, the header 3"),
    ],
)
def test_another_table_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "j.csv").write_text(text)
    with pytest.raises(InputError, match=said):
        Imported("x", str(tmp_path / "j.csv")).fit(CAPTIONS)
