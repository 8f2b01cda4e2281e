"""Imported matrices: each cell is read once, however many chunks the captions are cut into."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from capgrade.measures.imported import FittedImported, Imported
from capgrade.schemas.captions import Captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import write_arrow
from capgrade.schemas.relevance import Relevance, read_relevance, relevance_batch, relevance_schema
from tests.conftest import make_captions, random_sets

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
        write_arrow(path, schema, [relevance_batch([ids[i] for i in p], values[p], schema) for p in parts])
    elif layout == "teran":
        path.write_bytes(values.T.tobytes())
    else:
        with path.open("wb") as f:
            np.save(f, values if layout == "images x captions" else values.T)
    return Imported("theirs", str(path)).fit(captions)


@pytest.mark.parametrize("layout", ["images x captions", "teran", "arrow"])
def test_a_square_matrix_has_its_documented_orientation(layout: str, tmp_path: Path, capsys) -> None:
    """As many captions as images: the shape cannot tell the rows of a `.npy` file, so they are images."""
    square = make_captions(random_sets(5, seed=2, least=1, most=1))
    values = np.arange(25, dtype=np.float32).reshape(5, 5)
    one = fitted(layout, values, square, tmp_path / "theirs.npy")
    assert one.layout == layout
    assert one.score(np.arange(5)).tolist() == values.tolist()
    said = "theirs.npy is square: read as images x captions; if its rows are captions, write its transpose"
    assert (said in capsys.readouterr().err) == (layout == "images x captions")


class Counted(np.ndarray):
    """A matrix that counts the cells that are taken out of it."""

    cells = 0

    def __getitem__(self, at: Any) -> Any:
        return counted(super().__getitem__(at))


def counted(found: np.ndarray) -> np.ndarray:
    Counted.cells += found.size
    return np.asarray(found)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_cell_is_read_once(layout: str, captions: Captions, tmp_path: Path, monkeypatch) -> None:
    """Of a block and a group of captions, eight chunks: their cells, once each."""
    values = np.random.default_rng(0).random((30, captions.n_captions), np.float32)
    one = fitted(layout, values, captions, tmp_path / "x")
    assert one.layout == layout
    Counted.cells = 0
    load, memmap, cells = np.load, np.memmap, Relevance.cells
    monkeypatch.setattr(np, "load", lambda *given, **more: load(*given, **more).view(Counted))
    monkeypatch.setattr(np, "memmap", lambda *given, **more: memmap(*given, **more).view(Counted))
    monkeypatch.setattr(Relevance, "cells", lambda *given: counted(cells(*given)))
    images, out = np.array([3, 4, 29]), np.empty((3, CHUNK), np.float32)
    start, stop = CHUNK, min(captions.n_captions, 9 * CHUNK)
    found = [out[:, : min(CHUNK, stop - at)].copy() for at, _ in
             zip(range(start, stop, CHUNK), one.chunks(images, start, stop, out), strict=True)]  # fmt: skip
    assert len(found) >= 5
    assert np.array_equal(np.hstack(found), values[images, start:stop])
    assert Counted.cells == 3 * (stop - start)
    Counted.cells = 0
    some = np.array([0, 50, 7])
    assert np.array_equal(one.score(images, some), values[images][:, some])
    assert Counted.cells == 9
    assert np.array_equal(one.score(images), values[images])


@pytest.mark.parametrize("layout", LAYOUTS[:3])
def test_a_bad_cell_is_named_by_its_own_numbers(layout: str, captions: Captions, tmp_path: Path) -> None:
    """Not by those within a chunk or a choice of captions."""
    values, said = np.zeros((30, captions.n_captions), np.float32), "image 21, caption 40 holds nan"
    one = fitted(layout, values, captions, tmp_path / "x")
    values[21, 40] = np.nan
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
def test_an_arrow_file_of_other_values_is_refused(rows: list, kind: pa.DataType, said: str, tmp_path: Path) -> None:
    batch = pa.record_batch([pa.array(["i0", "i1"]), pa.array(rows, pa.list_(kind, 1))], ["image_id", "relevance"])
    write_arrow(tmp_path / "x.arrow", batch.schema, [batch])
    with pytest.raises(InputError, match=said):
        read_relevance(tmp_path / "x.arrow")
