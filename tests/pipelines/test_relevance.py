"""Stages relevance and shards: values, order, resuming, the same bytes on every runner, imported
matrices."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capgrade.kernels import id_keys
from capgrade.measures import choose
from capgrade.measures.frequencies import Frequencies
from capgrade.measures.params import MeasuresParams
from capgrade.measures.rouge import RougeL, RougeParams
from capgrade.pipelines.execution import runners
from capgrade.pipelines.execution.job import run_blocks
from capgrade.pipelines.relevance import relevance
from capgrade.pipelines.sampling.sampler import plan_of
from capgrade.pipelines.shards import shards
from capgrade.pipelines.stages.relevance import RelevanceParams
from capgrade.pipelines.stages.shards import ShardsParams, WindowsParams
from capgrade.schemas.captions import Captions, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.relevance import read_relevance
from capgrade.schemas.shards import read_shards
from tests.conftest import (
    caption_table,
    contents,
    make_captions,
    random_sets,
    write_captions_folder,
)
from tests.pipelines.sampling.brute_force import samples_of

SETS = random_sets(30, seed=11)
WORDS = ["a", "the", "man", "dog", "cat", "runs", "sits", "red", "on", "grass"]
DENSE = RelevanceParams(measures=("cider", "rouge_l"), block_images=7)
SAMPLED = ShardsParams(
    measures=("rouge_l", "cider"),
    top=4,
    uniform=5,
    windows=WindowsParams(per_window=1),
    block_images=7,
    target_mb=1,
)


@pytest.fixture
def captions_dir(tmp_path: Path) -> Path:
    return write_captions_folder(tmp_path / "captions", [caption_table(SETS)])


def test_dense_rows_are_the_measures_and_every_pair_is_counted(
    captions_dir: Path, tmp_path: Path
) -> None:
    """Reading a row touches that row, not the file."""
    manifest = relevance(captions_dir, tmp_path / "out", DENSE, MeasuresParams())
    captions = read_captions(captions_dir)
    own = captions.owner == np.arange(30)[:, None]
    for name, measure in choose(DENSE.measures, MeasuresParams()).items():
        file = read_relevance(tmp_path / "out" / f"{name}.arrow")
        file.require(captions)
        before = pa.total_allocated_bytes()
        rows = file.rows(np.array([29, 3]))
        assert pa.total_allocated_bytes() == before and len(file.batches) == 5
        matrix = file.matrix()
        assert np.array_equal(matrix, measure.fit(make_captions(SETS)).score(np.arange(30)))
        assert np.array_equal(rows, matrix[[29, 3]])
        told = {
            "kind": "relevance",
            "measure": name,
            "tokenizer": "lower_split",
            "captions": captions.digest,
        }
        assert told.items() <= file.metadata.items()
        assert manifest["files"][f"{name}.arrow"]["rows"] == 30
        table = np.loadtxt(tmp_path / "out" / f"distribution-{name}.csv", delimiter=",", skiprows=1)
        last = measure.low + 0.99 * (measure.high - measure.low)
        for column, values in ((2, matrix[own]), (3, matrix[~own])):
            assert table[:, column].sum() == pytest.approx(1)
            assert table[-1, column] == pytest.approx((values >= last).mean())
    assert not (tmp_path / "out.unfinished").exists()


def test_a_measure_is_fitted_once(
    captions_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its blocks and its values of own pairs come from one fit."""
    fits: list[str] = []
    fit = RougeL.fit

    def counted(measure: RougeL, captions: Captions) -> object:
        fits.append(type(measure).__name__)
        return fit(measure, captions)

    monkeypatch.setattr(RougeL, "fit", counted)
    relevance(
        captions_dir,
        tmp_path / "dense",
        RelevanceParams(measures=("rouge_l",), block_images=7),
        MeasuresParams(),
    )
    assert fits == ["RougeL"]


def test_shards_hold_the_values_and_their_origin(captions_dir: Path, tmp_path: Path) -> None:
    """Values of the measure's blocks, to the last bit, of the captions that brute force keeps; own
    captions also without themselves."""
    manifest = shards(captions_dir, tmp_path / "out", SAMPLED, MeasuresParams())
    folder, captions = read_shards(tmp_path / "out"), make_captions(SETS)
    folder.require(read_captions(captions_dir))
    chosen = choose(SAMPLED.measures, MeasuresParams())
    fitted = {name: measure.fit(captions) for name, measure in chosen.items()}
    plan, keys = plan_of(chosen.values(), SAMPLED), id_keys(captions.caption_ids)
    assert folder.metadata["reasons"][:4] == ["own", "uniform", "top_rouge_l", "window_rouge_l"]
    images, pairs = [], 0
    for batch in folder.batches():
        for r in batch.to_pylist():
            images.append(r["image_id"])
            pairs += len(r["captions"])
            values = np.stack([one.score(np.array([r["image"]]))[0] for one in fitted.values()])
            own = np.flatnonzero(captions.owner == r["image"])
            assert samples_of(plan, r["image_id"], keys, own, values).same_as(r)
            for (name, measure), row in zip(fitted.items(), values, strict=True):
                assert np.array_equal(np.float32(r[name]), row[r["captions"]])
                alone = dataclasses.replace(measure, leave_out=True).pairs(captions.owner[own], own)
                assert r[f"{name}_left_out"] == [
                    None if len(own) == 1 else value for value in alone.tolist()
                ]
    assert images == [f"i{k}" for k in range(30)]
    assert manifest["pairs"] == pairs


def test_shards_have_the_size_asked_for(tmp_path: Path) -> None:
    folder = write_captions_folder(tmp_path / "c", [caption_table(random_sets(300, seed=1))])
    params = SAMPLED.model_copy(update={"top": 400, "uniform": 400})
    manifest = shards(folder, tmp_path / "out", params, MeasuresParams())
    sizes = [entry["bytes"] for entry in manifest["files"].values()]
    assert len(sizes) > 2
    assert all(2**20 <= size < 2 * 2**20 for size in sizes[:-1])


def sets_full_of_ties(images: int, seed: int) -> list[list[str]]:
    """Few captions, which many images share: most values come many times."""
    random = np.random.default_rng(seed)
    known = [" ".join(random.choice(WORDS, random.integers(1, 6))) for _ in range(12)]
    return [list(random.choice(known, random.integers(1, 4))) for _ in range(images)]


def kept(folder: Path, table: pa.Table, params: ShardsParams) -> dict[tuple[str, str], tuple]:
    """By the ids of image and caption: reasons, weight, values."""
    captions = read_captions(write_captions_folder(folder / "captions", [table]))
    shards(folder / "captions", folder / "out", params, MeasuresParams())
    rows = [row for batch in read_shards(folder / "out").batches() for row in batch.to_pylist()]
    return {
        (row["image_id"], captions.caption_ids[caption]): rest
        for row in rows
        for caption, *rest in zip(*(row[name] for name in COLUMNS if name in row), strict=True)
    }


COLUMNS = ("captions", "reasons", "weight", "rouge_l", "cider")


@pytest.mark.parametrize("among", ["all", 0.3])
@pytest.mark.parametrize("measures", [("rouge_l",), ("rouge_l", "cider")], ids=str)
@settings(max_examples=5, deadline=None)
@given(st.integers(5, 70), st.sampled_from([1, 3, 20]), st.integers(0, 10**6))
def test_the_order_of_images_does_not_show(
    measures: tuple[str, ...], among: Any, images: int, top: int, seed: int
) -> None:
    """That of an image's captions may: CIDEr-D's sums go over them, and have other last bits."""
    windows = WindowsParams(per_window=1, among=among)
    params = ShardsParams(measures=measures, top=top, uniform=2, windows=windows, block_images=8)
    table = caption_table(sets_full_of_ties(images, seed))
    groups = [
        table.filter(pc.equal(table["image_id"], name)) for name in table["image_id"].unique()
    ]
    shuffled = pa.concat_tables(
        [groups[k] for k in np.random.default_rng(seed).permutation(len(groups))]
    )
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        assert kept(Path(one), table, params) == kept(Path(other), shuffled, params)


def imported(captions_dir: Path, out: Path, path: Path, dtype: Any = "float32") -> np.ndarray:
    params = RelevanceParams(measures=("theirs",), block_images=8, dtype=dtype)
    relevance(captions_dir, out, params, MeasuresParams(imported={"theirs": str(path)}))
    return read_relevance(out / "theirs.arrow").matrix()


def headerless(values: np.ndarray, cut: int = 0) -> bytes:
    return values.astype(np.float32).T.tobytes()[: 4 * values.size - cut]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda v: v[:, :-1], r"float32 of shape \(30, \d+\), where the captions have 30 images"),
        (lambda v: v.astype(np.float64) * 1e300, "image 0, caption 0 holds inf as float32"),
        (lambda v: v.astype(str), "where the captions have"),
        (lambda v: headerless(0 * v - 1), "holds -1.0: not a relevance -> finish computing"),
        (lambda v: headerless(v, cut=4), "neither Arrow nor .npy, and a headerless float32 matrix"),
    ],
)
def test_imported_matrices_that_do_not_fit(
    make, message: str, captions_dir: Path, tmp_path: Path
) -> None:
    made = make(
        np.random.default_rng(0).random((30, read_captions(captions_dir).n_captions), np.float32)
    )
    if isinstance(made, bytes):
        (tmp_path / "x.npy").write_bytes(made)
    else:
        np.save(tmp_path / "x.npy", made)
    with pytest.raises(InputError, match=message):
        imported(captions_dir, tmp_path / "out", tmp_path / "x.npy")


def test_imported_values_that_float16_cannot_hold(captions_dir: Path, tmp_path: Path) -> None:
    """Nor are equal values, however large, an empty range."""
    values = np.full((30, read_captions(captions_dir).n_captions), 1e12, np.float32)
    np.save(tmp_path / "x.npy", values)
    assert np.array_equal(imported(captions_dir, tmp_path / "out", tmp_path / "x.npy"), values)
    with pytest.raises(
        InputError, match="values above 65504, which float16 cannot hold -> set relevance.dtype"
    ):
        imported(captions_dir, tmp_path / "half", tmp_path / "x.npy", "float16")


def test_windows_are_of_the_range_of_an_imported_matrix(captions_dir: Path, tmp_path: Path) -> None:
    """In whatever unit, the same captions are kept."""
    values = np.random.default_rng(0).random(
        (30, read_captions(captions_dir).n_captions), np.float32
    )
    params, found = SAMPLED.model_copy(update={"measures": ("theirs",)}), []
    for unit in (1, 64):
        np.save(tmp_path / "x.npy", unit * values)
        shards(
            captions_dir,
            tmp_path / f"{unit}",
            params,
            MeasuresParams(imported={"theirs": f"{tmp_path}/x.npy"}),
        )
        rows = [
            row
            for batch in read_shards(tmp_path / f"{unit}").batches()
            for row in batch.to_pylist()
        ]
        found.append([(row["captions"], row["reasons"], row["weight"]) for row in rows])
    assert found[0] == found[1]


def test_relevance_of_other_captions_is_refused(captions_dir: Path, tmp_path: Path) -> None:
    relevance(captions_dir, tmp_path / "out", DENSE, MeasuresParams())
    other = write_captions_folder(tmp_path / "other", [caption_table([s[::-1] for s in SETS])])
    with pytest.raises(InputError, match="another version of the captions table"):
        imported(other, tmp_path / "x", tmp_path / "out" / "cider.arrow")


def test_a_worker_s_error_is_the_user_s_error(
    captions_dir: Path, tmp_path: Path, monkeypatch
) -> None:
    """An InputError raised inside Beam arrives as it was raised."""

    def refuse(self, element):
        raise InputError("cannot be", file="there", row=3)
        yield

    monkeypatch.setattr(runners.MakeBlock, "process", refuse)
    with pytest.raises(InputError, match="there row 3: cannot be"):
        beam = runners.BeamRunner(["--runner=DirectRunner"])
        relevance(captions_dir, tmp_path / "out", DENSE, MeasuresParams(), beam)


def test_unknown_measures_and_splits(captions_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="unknown measure 'cidr' -> near it: cider.*; all: capgrade list measures"
    ):
        relevance(
            captions_dir, tmp_path / "o", RelevanceParams(measures=("cidr",)), MeasuresParams()
        )
    with pytest.raises(InputError, match="no split 'val' -> choose from: test"):
        relevance(captions_dir, tmp_path / "o", RelevanceParams(split="val"), MeasuresParams())


def stopped(stage: Any, *given: Any) -> None:
    """A run that ends after its parts and before its manifest."""

    def running(*of_blocks: Any) -> None:
        run_blocks(*of_blocks)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{stage.__module__}.run_blocks", running)
        with pytest.raises(KeyboardInterrupt):
            stage(*given)


def values_of(stage, out: Path, name: str) -> np.ndarray:
    if stage is relevance:
        return read_relevance(out / f"{name}.arrow").matrix()
    return np.concatenate(
        [batch[name].flatten().to_numpy() for batch in read_shards(out).batches()]
    )


def rewrite(folder: Path, value: float) -> None:
    """A matrix, a corpus and its document frequencies, other ones under the same names for another
    value."""
    np.save(folder / "x.npy", np.full((30, sum(map(len, SETS))), value, np.float32))
    corpus = write_captions_folder(
        folder / "corpus", [caption_table(random_sets(9, seed=int(100 * value)))]
    )
    Frequencies.of_captions(read_captions(corpus)).write(folder / "frequencies.arrow", force=True)


# A measure, and its parameters that name what `rewrite` has written in a folder.
GIVEN: dict[str, tuple[str, Callable[[Path], dict]]] = {
    "imported": ("theirs", lambda at: {"imported": {"theirs": f"{at}/x.npy"}}),
    "mixture": (
        "half",
        lambda at: {"imported": {"theirs": f"{at}/x.npy"}, "mixtures": {"half": {"theirs": 1.0}}},
    ),
    "file": ("cider", lambda at: {"cider": {"document_frequency": f"{at}/frequencies.arrow"}}),
    "folder": ("cider", lambda at: {"cider": {"document_frequency": f"{at}/corpus"}}),
    "split": ("cider", lambda at: {"cider": {"document_frequency": f"{at}/corpus#test"}}),
}


@pytest.mark.parametrize("stage", [relevance, shards])
@pytest.mark.parametrize("given", GIVEN)
def test_a_rewritten_input_is_read_again(
    stage: Any, given: str, captions_dir: Path, tmp_path: Path
) -> None:
    """Stopped after its parts, an input rewritten under its name, run again: the values of the new
    one."""
    name, params_of = GIVEN[given]
    measures = MeasuresParams.model_validate(params_of(tmp_path))
    params = (DENSE if stage is relevance else SAMPLED).model_copy(update={"measures": (name,)})
    rewrite(tmp_path, 0.25)
    stopped(stage, captions_dir, tmp_path / "out", params, measures)
    rewrite(tmp_path, 0.75)
    again = stage(captions_dir, tmp_path / "out", params, measures)
    fresh = stage(captions_dir, tmp_path / "fresh", params, measures)
    assert again == fresh and contents(tmp_path / "out") == contents(tmp_path / "fresh")
    assert name != "theirs" or (values_of(stage, tmp_path / "out", name) == 0.75).all()
    rewrite(tmp_path, 0.5)
    assert stage(captions_dir, tmp_path / "other", params, measures)["inputs"] != fresh["inputs"]


def test_other_parameters_start_afresh(captions_dir: Path, tmp_path: Path) -> None:
    stopped(shards, captions_dir, tmp_path / "out", SAMPLED, MeasuresParams())
    for out in ("out", "fresh"):
        shards(
            captions_dir,
            tmp_path / out,
            SAMPLED,
            MeasuresParams(rouge_l=RougeParams(references="mean")),
        )
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")
