"""Stages relevance and shards: values, order, resuming, the same bytes on every runner, imported matrices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from capgrade.measures.cider import Cider
from capgrade.measures.ngrams import document_frequencies
from capgrade.measures.rouge import RougeL
from capgrade.pipelines.execution import job as module
from capgrade.pipelines.execution import runners
from capgrade.pipelines.relevance import relevance
from capgrade.pipelines.sampling.plan import id_keys
from capgrade.pipelines.shards import plan_of, shards
from capgrade.schemas import files
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import metadata_of, open_arrow
from capgrade.schemas.params import (
    CiderParams,
    MeasuresParams,
    RelevanceParams,
    RougeParams,
    ShardsParams,
    WindowsParams,
)
from capgrade.schemas.relevance import read_relevance
from capgrade.schemas.shards import read_shards
from tests.conftest import caption_table, contents, make_captions, random_sets, write_captions_folder
from tests.pipelines.sampling.brute_force import samples_of

SETS = random_sets(30, seed=11)
DENSE = RelevanceParams(measures=("cider", "rouge_l"), block_images=7)
SAMPLED = ShardsParams(
    measures=("rouge_l", "cider"), top=4, uniform=5, windows=WindowsParams(per_window=1), block_images=7, target_mb=1
)


@pytest.fixture
def captions_dir(tmp_path: Path) -> Path:
    return write_captions_folder(tmp_path / "captions", [caption_table(SETS)])


def test_dense_rows_are_the_measures(captions_dir: Path, tmp_path: Path) -> None:
    manifest = relevance(captions_dir, tmp_path / "out", DENSE, MeasuresParams())
    captions = read_captions(captions_dir)
    for name, measure in (("cider", Cider(CiderParams())), ("rouge_l", RougeL(RougeParams()))):
        file = read_relevance(tmp_path / "out" / f"{name}.arrow")
        file.require(captions)
        assert np.array_equal(file.matrix(), measure.fit(make_captions(SETS)).score(np.arange(30)))
        assert np.array_equal(file.rows(np.array([29, 3])), file.matrix()[[29, 3]])
        assert file.metadata["measure"] == name
        assert file.metadata["tokenizer"] == "lower_split"
        assert file.metadata["captions"] == captions.digest
        assert manifest["files"][f"{name}.arrow"]["rows"] == 30
    assert not (tmp_path / "out" / ".work").exists()


def test_distribution_counts_every_pair(captions_dir: Path, tmp_path: Path) -> None:
    relevance(captions_dir, tmp_path / "out", DENSE, MeasuresParams())
    table = np.loadtxt(tmp_path / "out" / "distribution-rouge_l.csv", delimiter=",", skiprows=1)
    matrix, own = read_relevance(tmp_path / "out" / "rouge_l.arrow").matrix(), make_captions(SETS).owner
    mask = own[None, :] == np.arange(30)[:, None]
    for column, values in ((2, matrix[mask]), (3, matrix[~mask])):
        assert table[:, column].sum() == pytest.approx(1)
        assert table[-1, column] == pytest.approx((values >= 0.99).mean())


def test_shards_hold_the_values_and_their_origin(captions_dir: Path, tmp_path: Path) -> None:
    """Values of `pairs`, to the last bit, of the captions that brute force keeps."""
    manifest = shards(captions_dir, tmp_path / "out", SAMPLED, MeasuresParams())
    folder, captions = read_shards(tmp_path / "out"), make_captions(SETS)
    fitted = {"cider": Cider(CiderParams()).fit(captions), "rouge_l": RougeL(RougeParams()).fit(captions)}
    folder.require(read_captions(captions_dir))
    ordered = [fitted[name] for name in SAMPLED.measures]
    plan, keys, n = (
        plan_of([RougeL(RougeParams()), Cider(CiderParams())], SAMPLED),
        id_keys(captions.caption_ids),
        captions.n_captions,
    )
    assert folder.metadata["reasons"][:4] == ["own", "uniform", "top_rouge_l", "window_rouge_l"]
    images, pairs = [], 0
    for batch in folder.batches():
        for r in batch.to_pylist():
            images.append(r["image_id"])
            pairs += len(r["captions"])
            values = np.stack([one.pairs(np.full(n, r["image"]), np.arange(n)) for one in ordered])
            own = np.flatnonzero(captions.owner == r["image"])
            assert samples_of(plan, r["image_id"], keys, own, values).same_as(r)
            for name, measure in fitted.items():
                values = measure.pairs(np.full(len(r["captions"]), r["image"]), np.array(r["captions"]))
                assert np.array_equal(np.float32(r[name]), values)
    assert images == [f"i{k}" for k in range(30)]
    assert manifest["pairs"] == pairs


def test_shards_have_the_size_asked_for(tmp_path: Path) -> None:
    folder = write_captions_folder(tmp_path / "c", [caption_table(random_sets(300, seed=1))])
    params = SAMPLED.model_copy(update={"top": 400, "uniform": 400})
    manifest = shards(folder, tmp_path / "out", params, MeasuresParams())
    sizes = [entry["bytes"] for entry in manifest["files"].values()]
    assert len(sizes) > 2
    assert all(2**20 <= size < 2 * 2**20 for size in sizes[:-1])


def test_other_parameters_start_afresh(captions_dir: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "remove_work", lambda folder: None)
        shards(captions_dir, tmp_path / "out", SAMPLED, MeasuresParams())
    mean = MeasuresParams(rouge_l=RougeParams(references="mean"))
    shards(captions_dir, tmp_path / "out", SAMPLED, mean)
    shards(captions_dir, tmp_path / "fresh", SAMPLED, mean)
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


def imported(captions_dir: Path, out: Path, path: Path) -> np.ndarray:
    params = RelevanceParams(measures=("theirs",), block_images=8)
    relevance(captions_dir, out, params, MeasuresParams(imported={"theirs": str(path)}))
    return read_relevance(out / "theirs.arrow").matrix()


def headerless(values: np.ndarray, cut: int = 0) -> bytes:
    return values.astype(np.float32).T.tobytes()[: 4 * values.size - cut]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda v: v[:, :-1], r"float32 of shape \(30, \d+\), where the captions have 30 images"),
        (lambda v: np.where(np.arange(v.shape[1]) == 4, np.nan, v), "image 0, caption 4 holds nan"),
        (lambda v: v.astype(str), "where the captions have"),
        (lambda v: headerless(0 * v - 1), "holds -1.0: not a relevance -> finish computing"),
        (lambda v: headerless(v, cut=4), "neither Arrow nor .npy, and a headerless float32 matrix"),
    ],
)
def test_imported_matrices_that_do_not_fit(make, message: str, captions_dir: Path, tmp_path: Path) -> None:
    made = make(np.random.default_rng(0).random((30, read_captions(captions_dir).n_captions), np.float32))
    if isinstance(made, bytes):
        (tmp_path / "x.npy").write_bytes(made)
    else:
        np.save(tmp_path / "x.npy", made)
    with pytest.raises(InputError, match=message):
        imported(captions_dir, tmp_path / "out", tmp_path / "x.npy")


def test_relevance_of_other_captions_is_refused(captions_dir: Path, tmp_path: Path) -> None:
    relevance(captions_dir, tmp_path / "out", DENSE, MeasuresParams())
    other = write_captions_folder(tmp_path / "other", [caption_table([s[::-1] for s in SETS])])
    with pytest.raises(InputError, match="another version of the captions table"):
        imported(other, tmp_path / "x", tmp_path / "out" / "cider.arrow")


def test_a_worker_s_error_is_the_user_s_error(captions_dir: Path, tmp_path: Path, monkeypatch) -> None:
    """An InputError raised inside Beam arrives as it was raised."""

    def refuse(self, block: int):
        raise InputError("cannot be", file="there", row=3)
        yield

    monkeypatch.setattr(runners.MakeBlock, "process", refuse)
    with pytest.raises(InputError, match="there row 3: cannot be"):
        relevance(captions_dir, tmp_path / "out", DENSE, MeasuresParams(), ["--runner=DirectRunner"])


def test_unknown_measures_and_splits(captions_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown measure 'cidr' -> choose from: bleu, cider, .*rouge_l, sbert"):
        relevance(captions_dir, tmp_path / "o", RelevanceParams(measures=("cidr",)), MeasuresParams())
    with pytest.raises(InputError, match="no split 'val' -> choose with --split from: test"):
        relevance(captions_dir, tmp_path / "o", RelevanceParams(split="val"), MeasuresParams())


def test_large_rows_are_read_one_at_a_time(tmp_path: Path) -> None:
    """Opening a file and reading a row touches that row, not the file."""
    folder = write_captions_folder(tmp_path / "c", [caption_table(random_sets(200, seed=2))])
    relevance(folder, tmp_path / "out", DENSE, MeasuresParams())
    reader = open_arrow(tmp_path / "out" / "cider.arrow")
    assert reader.num_record_batches == 29
    assert metadata_of(reader.schema)["kind"] == "relevance"
    before = pa.total_allocated_bytes()
    read_relevance(tmp_path / "out" / "cider.arrow").rows(np.array([150]))
    assert pa.total_allocated_bytes() == before


def stopped(stage, *given) -> None:
    """A run that ends after its parts and before its manifest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{stage.__module__}.run_blocks", stop_after(module.run_blocks))
        with pytest.raises(KeyboardInterrupt):
            stage(*given)


def stop_after(run):
    def running(*given) -> None:
        run(*given)
        raise KeyboardInterrupt

    return running


def values_of(stage, out: Path, name: str) -> np.ndarray:
    if stage is relevance:
        return read_relevance(out / f"{name}.arrow").matrix()
    return np.concatenate([batch[name].flatten().to_numpy() for batch in read_shards(out).batches()])


def rewritten_matrix(tmp_path: Path, captions_dir: Path):
    """An imported matrix, and what writes other values under its name."""
    shape = 30, read_captions(captions_dir).n_captions

    def write(value: float) -> None:
        np.save(tmp_path / "x.npy", np.full(shape, value, np.float32))

    return "theirs", MeasuresParams(imported={"theirs": str(tmp_path / "x.npy")}), write


def rewritten_mixture(tmp_path: Path, captions_dir: Path):
    _, params, write = rewritten_matrix(tmp_path, captions_dir)
    return "half", params.model_copy(update={"mixtures": {"half": {"theirs": 1.0}}}), write


def rewritten_frequencies(kind: str):
    """Document frequencies of one corpus, then of another, as a file, a folder or a folder's split."""

    def given(tmp_path: Path, captions_dir: Path):
        def write(value: float) -> None:
            tables = [caption_table(random_sets(9, seed=int(100 * value)), "test")]
            folder = write_captions_folder(tmp_path / "corpus", tables)
            document_frequencies(read_captions(folder)).save(tmp_path / "frequencies.arrow")

        where = {"file": "frequencies.arrow", "folder": "corpus", "split": "corpus#test"}[kind]
        return "cider", MeasuresParams(cider=CiderParams(document_frequency=str(tmp_path / where))), write

    return given


@pytest.mark.parametrize("stage", [relevance, shards])
@pytest.mark.parametrize(
    "given",
    [rewritten_matrix, rewritten_mixture, *map(rewritten_frequencies, ("file", "folder", "split"))],
    ids=["imported", "mixture", "frequencies", "folder", "split"],
)
def test_a_rewritten_input_is_read_again(stage, given, captions_dir: Path, tmp_path: Path) -> None:
    """Stopped after its parts, an input rewritten under its name, run again: the values of the new one."""
    name, measures, write = given(tmp_path, captions_dir)
    params = (DENSE if stage is relevance else SAMPLED).model_copy(update={"measures": (name,)})
    write(0.25)
    stopped(stage, captions_dir, tmp_path / "out", params, measures)
    write(0.75)
    again = stage(captions_dir, tmp_path / "out", params, measures)
    fresh = stage(captions_dir, tmp_path / "fresh", params, measures)
    assert again == fresh
    assert np.array_equal(values_of(stage, tmp_path / "out", name), values_of(stage, tmp_path / "fresh", name))
    if name == "theirs":
        assert (values_of(stage, tmp_path / "out", name) == 0.75).all()
    write(0.5)
    assert stage(captions_dir, tmp_path / "other", params, measures)["inputs"] != fresh["inputs"]


def test_an_input_that_changes_meanwhile_is_refused(captions_dir: Path, tmp_path: Path) -> None:
    name, measures, write = rewritten_matrix(tmp_path, captions_dir)
    write(0.25)
    run = module.run_blocks
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("capgrade.pipelines.relevance.run_blocks", lambda *given: (run(*given), write(0.75)))
        with pytest.raises(InputError, match=r"measures.imported.theirs: changed while this run read it -> run again"):
            relevance(captions_dir, tmp_path / "out", RelevanceParams(measures=(name,)), measures)
    assert not (tmp_path / "out" / "manifest.json").exists()
