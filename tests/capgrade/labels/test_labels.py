"""`Labels` from each kind of folder against a plain reading of its tables, exact labels, and what
is refused."""

import pickle
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import capgrade
from capgrade import Labels
from capgrade.labels.stored import Complete
from capgrade.measures.sbert.device import SbertOnDevice
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import entry_of, read_manifest
from capgrade.schemas.relevance import read_relevance
from tests.conftest import call, caption_table, edit_manifest, random_sets, write_captions_folder
from tests.pipelines.publish.conftest import hub  # noqa: F401  # a stand-in for the hub
from tests.pipelines.publish.stand_in import Hub

SOURCES = ("dataset", "shards", "relevance")


def load(made: Path, kind: str, **more) -> Labels:
    return Labels.load(made / kind, captions=made / "captions", **more)


@pytest.fixture(scope="module")
def pairs(made: Path) -> dict[tuple[str, str], dict]:
    rows = pq.read_table(made / "dataset" / "relevance").to_pylist()
    return {(row["image_id"], row["caption_id"]): row for row in rows}


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_block_holds_what_the_table_holds(made, pairs, data):
    labels = load(made, "dataset")
    measure = data.draw(st.sampled_from(labels.measures))
    images = data.draw(st.lists(st.sampled_from(labels.image_ids), max_size=5))
    captions = data.draw(st.lists(st.sampled_from(labels.caption_ids), max_size=12))  # some twice
    values, known, weights = labels.block(images, captions, measure)
    assert (values.dtype, known.dtype, values.shape) == (
        np.float32,
        np.bool_,
        (len(images), len(captions)),
    )
    assert weights.dtype == np.float32 and weights.shape == values.shape
    for i, image in enumerate(images):
        for j, caption in enumerate(captions):
            row = pairs.get((image, caption))
            assert known[i, j] == (row is not None)
            assert values[i, j] == (0 if row is None else np.float32(row[measure]))
            assert weights[i, j] == (0 if row is None else np.float32(row["weight"]))


def test_every_kind_knows_the_same(made):
    dataset, shards, dense = (load(made, kind) for kind in SOURCES)
    assert repr(dataset) == "Labels(12 images, 60 captions, cider, rouge_l, sbert; sampled)"
    assert dataset.image_ids == shards.image_ids == dense.image_ids
    assert dataset.caption_ids == shards.caption_ids == dense.caption_ids
    everything = range(12), range(60)
    for measure in dataset.measures:
        values, known, weights = dataset.block(*everything, measure)
        assert (
            0.1 < known.mean() < 0.9
            and weights.max() > 1
            and (weights > 0).tolist() == known.tolist()
        )
        for ours, theirs in zip(
            shards.block(*everything, measure), (values, known, weights), strict=True
        ):
            assert np.array_equal(ours, theirs)
        matrix = read_relevance(made / "relevance" / f"{measure}.arrow").matrix()
        found, all_known, ones = dense.block(*everything, measure)
        assert np.array_equal(found, matrix) and all_known.all() and (ones == 1).all()
        # shards keep values of pairs
        np.testing.assert_allclose(values[known], matrix[known], rtol=0, atol=1e-6)
    assert np.array_equal(
        Labels.load(made / "shards").owner, dataset.owner
    )  # own captions say so in the shards


def test_rows_ids_and_tensors_ask_for_the_same(dataset):
    labels = Labels.load(dataset, measures="cider")
    wanted = labels.block([2, 0], [7, 1, 7])
    for images, captions in (
        ([labels.image_ids[k] for k in (2, 0)], [labels.caption_ids[k] for k in (7, 1, 7)]),
        (torch.tensor([2, 0]), np.array([7, 1, 7], np.int32)),
        (np.array([labels.image_ids[2], labels.image_ids[0]]), (7, 1, 7)),
    ):
        found = labels.block(images, captions)
        assert all(np.array_equal(*pair) for pair in zip(found, wanted, strict=True))
    for tensor, array in zip(labels.block([2, 0], [7, 1, 7], device="cpu"), wanted, strict=True):
        assert isinstance(tensor, torch.Tensor) and torch.equal(tensor, torch.from_numpy(array))
    assert [cells.shape for cells in labels.block([], [1])] == [(0, 1)] * 3
    assert labels.block([], []).known.shape == (0, 0)


def test_dense_float16_is_what_it_is_as_float32(made, tmp_path):
    out = tmp_path / "half"
    options = [
        "--captions",
        str(made / "captions"),
        "--split",
        "train",
        "--measures",
        "rouge_l",
        "--out",
        str(out),
    ]
    assert call("relevance", *options, "--set", "relevance.dtype=float16") == 0
    values, *_ = Labels.load(out).block([3, 1], [0, 59, 7])
    whole, *_ = load(made, "relevance").block([3, 1], [0, 59, 7], "rouge_l")
    assert np.array_equal(values, whole.astype(np.float16).astype(np.float32))


@pytest.mark.parametrize("measure", ["cider", "rouge_l", "sbert"])
@pytest.mark.parametrize("kind", ["dataset", "shards"])
def test_exact_labels_are_those_of_the_whole_matrix(made, kind, measure):
    exact = capgrade.exact(load(made, kind), measure)
    values, known, weights = exact.block(range(12), range(60))
    assert known.all() and (weights == 1).all() and exact.measures == [measure]
    whole = read_relevance(made / "relevance" / f"{measure}.arrow").matrix()
    assert np.array_equal(values, whole)
    again = pickle.loads(pickle.dumps(exact))
    assert np.array_equal(again.block([1], [2])[0], exact.block([1], [2])[0])


def test_exact_cider_wants_the_frequencies_it_was_made_with(made, tmp_path, monkeypatch):
    """Labels have the file's last name and digest; where it lies is the caller's to say."""
    monkeypatch.chdir(tmp_path)
    for line in (
        f"frequencies --captions {made}/captions --split test --out df.arrow",
        f"shards --captions {made}/captions --split train --measures cider --out shards "
        "--set shards.top=4 --set shards.uniform=4 "
        "--set measures.cider.document_frequency=df.arrow",
        f"publish --captions {made}/captions --shards shards --license cc-by-4.0 --out dataset",
    ):
        assert call(*line.split()) == 0
    labels = Labels.load("dataset")
    values, known, _ = labels.block(range(12), range(60))
    with pytest.raises(InputError, match=r"exact\(..., document_frequency='df.arrow'\)"):
        capgrade.exact(labels, "cider")
    (tmp_path / "moved").mkdir()
    Path("df.arrow").replace("moved/renamed.arrow")
    here = {"document_frequency": "moved/renamed.arrow"}
    exact = capgrade.exact(labels, "cider", **here).block(range(12), range(60))[0]
    assert np.array_equal(exact[known], values[known])
    assert (
        call(*f"frequencies --captions {made}/captions --split train --out other.arrow".split())
        == 0
    )
    Path("other.arrow").replace("moved/renamed.arrow")
    for of in (labels, Labels.load("shards", captions=made / "captions")):
        with pytest.raises(
            InputError, match=r"document_frequency is another file than these labels were made with"
        ):
            capgrade.exact(of, "cider", **here)
    again = f"publish --captions {made}/captions --shards shards --license cc-by-4.0 --out again"
    assert call(*again.split()) == 0  # all that it publishes stands in the shards


def test_exact_opens_what_the_user_names(made, tmp_path, monkeypatch):
    """Labels name an encoder and a file; neither is opened, nor the hub asked, before the call
    names it too."""
    asked = []
    monkeypatch.setattr(
        "capgrade.measures.sbert.fingerprint", lambda model: asked.append(model) or model
    )
    monkeypatch.setattr(
        "capgrade.measures.sbert.fitted.embed", lambda texts, model, device: pytest.fail("embedded")
    )
    shutil.copytree(made / "dataset", tmp_path / "dataset")
    measures = read_manifest(made / "dataset", "publish")["measures"]
    measures["sbert"]["model"], measures["cider"]["document_frequency"] = (
        "someone/encoder",
        "/home/them/df.arrow",
    )
    edit_manifest(tmp_path / "dataset", measures=measures)
    labels = Labels.load(tmp_path / "dataset")
    with pytest.raises(
        InputError,
        match=r"sbert.model 'someone/encoder', .* -> .*exact\(..., model='someone/encoder'\)",
    ):
        capgrade.exact(labels, "sbert")
    with pytest.raises(
        InputError,
        match=r"cider.document_frequency '/home/them/df.arrow', which is not opened unasked",
    ):
        capgrade.exact(labels, "cider")
    assert asked == []
    capgrade.exact(labels, "rouge_l")
    with pytest.raises(
        InputError, match=r"measures.sbert.model is another file than these labels were made with"
    ):
        capgrade.exact(labels, "sbert", model="someone/encoder")
    assert asked == ["someone/encoder"]


def test_sentence_bert_where_the_model_is(made):
    """The product on a device, here a processor, within the error of float32."""
    computed = capgrade.exact(load(made, "shards"), "sbert").stored.matrices["sbert"]
    computed.on_its_device = SbertOnDevice(computed.fitted, torch.device("cpu"))
    images, rows = np.array([3, 0, 3]), np.array([5, 5, 59, 0])
    labels = Complete({"sbert": computed})
    found, known, weights = labels.on_device("cpu", images, rows, "sbert")
    assert known.all() and (weights == 1).all()
    assert np.abs(found.numpy() - computed.fitted.score(images, rows)).max() < 1e-5
    assert np.array_equal(found.numpy(), computed.cells(images, rows))
    assert np.array_equal(found.numpy(), computed.rows(images)[:, rows])


def mapped(folder: Path) -> list[range]:
    """The addresses at which files of a folder are mapped into this process."""
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    ends = [line[0].split("-") for line in lines if Path(line[-1]).parent == folder]
    return [range(int(first, 16), int(last, 16)) for first, last in ends]


@pytest.mark.skipif(
    not Path("/proc/self/maps").exists(), reason="the system does not tell what is mapped"
)
@pytest.mark.parametrize("kind", ["shards", "relevance"])
def test_what_a_worker_opens_is_mapped_and_not_copied(made, kind):
    opened = load(made, kind)
    labels = pickle.loads(pickle.dumps(opened))
    stored, block = labels.stored, (range(12), range(60), "sbert")
    assert np.array_equal(labels.block(*block)[0], opened.block(*block)[0])
    if kind == "relevance":
        held = [part for matrix in stored.matrices.values() for part in matrix.parts]
    else:
        held = [
            x
            for part in stored.parts
            for x in (part.caption, part.weight, part.reasons, *part.values.values())
        ]
    files = mapped(made / kind)
    assert all(any(one.ctypes.data in addresses for addresses in files) for one in held)


def test_a_dataset_is_read_as_it_lies(made, tmp_path, monkeypatch):
    """Nothing is written, and a column that nobody asks for may be anything."""
    monkeypatch.setenv("CAPGRADE_CACHE", str(tmp_path / "cache"))
    wanted = load(made, "shards").block(range(12), range(60), "sbert")
    found = load(made, "dataset", measures=["sbert"]).block(range(12), range(60), "sbert")
    for one, expected in zip(found, wanted, strict=True):
        assert np.array_equal(one, expected)
    assert not (tmp_path / "cache").exists()


def test_positives_and_neighbours_are_those_of_the_matrix(made):
    dense, sampled = load(made, "relevance"), load(made, "dataset")
    _, known, _ = sampled.block(range(12), range(60), "cider")
    for labels, seen in ((sampled, known), (dense, np.ones_like(known))):
        values = labels.block(range(12), range(60), "cider")[0]
        for caption, above in ((0, 0.1), (33, -1.0)):
            found = labels.positives(labels.caption_ids[caption], above=above, measure="cider")
            column = zip(labels.image_ids, values[:, caption], seen[:, caption], strict=True)
            wanted = {name: value for name, value, known in column if known and value > above}
            assert dict(found) == pytest.approx(wanted) and wanted
            assert [v for _, v in found] == sorted(wanted.values(), reverse=True)
        found = labels.neighbours(4, top=6, measure="cider")
        assert [v for _, v in found] == pytest.approx(np.sort(values[4])[::-1][:6].tolist())
        assert all(values[4, labels.caption_ids.index(name)] == np.float32(v) for name, v in found)
        assert len(labels.neighbours(4, top=60, measure="cider")) == seen[4].sum()


def partners_of(labels: Labels, image: int) -> set[int]:
    (values,), (known,), _ = labels.block([image], range(60), "sbert")
    return set(
        np.flatnonzero(known & (values >= 0.3) & (values <= 0.8) & (labels.owner != image)).tolist()
    )


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("epoch", [4, 5])
@pytest.mark.parametrize("size", [2, 7, 20, 40])
def test_a_batch_is_a_half_what_it_brings_and_the_other_half(made, kind, size, epoch):
    """The definition, with every random batch at hand: batches of a seed are of it, and none is
    short."""
    labels = load(made, kind)
    batches = labels.batches(np.int64(size), measure="sbert", low=0.3, high=0.8, seed=1)
    batches.set_epoch(epoch)
    half = (size + 1) // 2
    order = np.random.default_rng([1, epoch // 2]).permutation(60).tolist()
    partners = {row: partners_of(labels, labels.owner[row]) for row in range(60)}
    assert sum(map(len, partners.values())) > 12
    loaded = [
        rows.tolist()
        for rows in torch.utils.data.DataLoader(torch.arange(60), batch_sampler=batches)
    ]
    assert loaded == list(batches) and len(batches) == len(loaded) == 60 // size
    for number, batch in enumerate(batches):
        whole = order[number * size : (number + 1) * size]
        whole = whole if epoch == 4 else whole[half:] + whole[:half]
        assert len(batch) == len(set(batch)) == size and batch[:half] == whole[:half]
        assert any(
            all(any(row in partners[one] for one in batch[:half]) for row in batch[half:k])
            and batch[k:] == [row for row in whole if row not in batch[:k]][: size - k]
            for k in range(half, size + 1)
        )


def test_processes_share_the_batches_of_one(made):
    labels = load(made, "shards")
    whole = list(labels.batches(8, measure="cider", low=0.1))
    parts = [
        list(labels.batches(8, measure="cider", low=0.1, process=k, processes=3)) for k in range(3)
    ]
    assert [len(part) for part in parts] == [len(whole) // 3] * 3 and len(whole) % 3
    assert [batch for group in zip(*parts, strict=True) for batch in group] == whole[
        : len(whole) // 3 * 3
    ]


def test_what_does_not_fit_is_refused_by_name(made, tmp_path):
    labels = load(made, "dataset")
    for ask, message in (
        (
            lambda: labels.block(["nobody"], [0], "cider"),
            "no image 'nobody' -> ask for ids of this split",
        ),
        (
            lambda: labels.block([0], [60], "cider"),
            "no caption row 60: there are 60 -> rows are 0..59",
        ),
        (lambda: labels.block([-1], [0], "cider"), "no image row -1"),
        (
            lambda: labels.block("scene", [0], "cider"),
            r"image ids are the text 'scene' -> give a list",
        ),
        (lambda: labels.block([0.5], [0], "cider"), "image ids are float64"),
        (lambda: labels.block(3, [0], "cider"), "image ids are 3 -> give a list"),
        (lambda: labels.block([0], None, "cider"), "caption ids are None -> give a list"),
        (
            lambda: labels.block([0], np.array(3), "cider"),
            r"caption ids are array\(3\) -> give a list",
        ),
        (
            lambda: labels.neighbours(0, top=0, measure="cider"),
            "the top 0 captions -> ask for 1 or more",
        ),
        (
            lambda: labels.batches(8.5, measure="cider"),
            "batches of 8.5 for process 0 of 1 -> give a whole size",
        ),
        (lambda: labels.block([0], [0]), "no measure chosen -> choose from: cider, rouge_l, sbert"),
        (lambda: labels.block([0], [0], "spice"), "no measure 'spice' in these labels"),
        (
            lambda: Labels.load(made / "dataset", measures=["spice"]),
            "no measure 'spice' -> choose from: cider",
        ),
        (
            lambda: Labels.load(made / "shards", measures=[]),
            "an empty list of measures -> choose from: cider",
        ),
        (
            lambda: Labels.load(made / "dataset", split="dev"),
            "no split 'dev' -> choose from: train",
        ),
        (
            lambda: Labels.load(made / "shards", split="dev"),
            "labels of split 'train', not of 'dev' -> choose",
        ),
        (
            lambda: Labels.load(made / "relevance", split="dev"),
            "labels of split 'train', not of 'dev' -> choose",
        ),
        (
            lambda: Labels.load(made / "captions"),
            "a captions folder -> give a folder of capgrade shards",
        ),
        (lambda: Labels.load(tmp_path), "no manifest.json: no labels"),
        *(
            (lambda path=path: Labels.load(path), "no such folder, nor a dataset USER/NAME")
            for path in (tmp_path / "gone", "~/gone")
        ),
        (lambda: Labels.load(made / "dataset", revision="1.0.0"), "a folder has no revision"),
        (
            lambda: Labels.load(made / "shards").caption_ids,
            "rows of captions, not ids -> give Labels.load",
        ),
        (
            lambda: capgrade.exact(Labels.load(made / "shards"), "cider"),
            "computed from the captions, which are not here",
        ),
        (
            lambda: Labels.load(made / "relevance").owner,
            "whose each caption is stands in the captions table",
        ),
        (
            lambda: labels.batches(8, measure="cider", low=9.9),
            "no known cider of another image's caption is in 9.9",
        ),
        (
            lambda: labels.batches(61, measure="cider"),
            "a batch of 61 from 60 pairs -> lower the size",
        ),
        (
            lambda: labels.batches(8, measure="cider", processes=9),
            "60 captions fill no batch of 8 for each of 9",
        ),
        (lambda: labels.batches(8, measure="cider", process=2, processes=2), "process 2 of 2"),
    ):
        with pytest.raises(
            InputError, match=message.replace("\\", "").replace("(", r"\(").replace(")", r"\)")
        ):
            ask()


def test_a_damaged_or_foreign_folder_is_refused(made, tmp_path):
    folder = tmp_path / "dataset"
    shutil.copytree(made / "dataset", folder)
    file = next((folder / "relevance").iterdir())
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"bytes where the manifest says"):
        Labels.load(folder)
    table = pq.read_table(made / "dataset" / "relevance")
    pq.write_table(table.drop_columns("reasons").append_column("reasons", table["image_id"]), file)
    files = read_manifest(made / "dataset", "publish")["files"]
    edit_manifest(folder, files={**files, f"relevance/{file.name}": entry_of(file)})
    with pytest.raises(InputError, match="not a table of image_id, .* -> publish it again"):
        Labels.load(folder)
    other = write_captions_folder(tmp_path / "captions", [caption_table(random_sets(12), "train")])
    for kind in SOURCES:
        with pytest.raises(InputError, match="captions"):
            Labels.load(made / kind, captions=other)


HELD = ("params", "measures", "inputs", "splits", "tokenizer")
BY_HAND = [(key, value, key) for key in HELD for value in (None, 3)]


@pytest.mark.parametrize(("key", "value", "lacks"), [*BY_HAND, ("inputs", {}, "inputs.captions")])
def test_a_manifest_that_somebody_made_by_hand_is_refused(made, tmp_path, key, value, lacks):
    """Its own checksum is right."""
    folder = shutil.copytree(made / "dataset", tmp_path / "dataset")
    edit_manifest(folder, **{key: value})
    with pytest.raises(InputError, match=f"its manifest has no {lacks} -> publish it again"):
        Labels.load(folder)


def test_without_torch_arrays_are_there_and_tensors_name_the_extra(made, monkeypatch):
    """Exact labels too: the core computes them on the processor."""
    labels = load(made, "dataset")
    block = range(2), range(4)
    expected, *_ = labels.block(*block, "cider")
    monkeypatch.setitem(sys.modules, "torch", None)
    assert np.array_equal(labels.block(*block, "cider")[0], expected)
    assert capgrade.exact(load(made, "shards"), "rouge_l").block(*block)[1].all()
    with pytest.raises(
        InputError, match=r"torch is not installed -> pip install 'capgrade\[train\]'"
    ):
        labels.block(*block, "cider", device="cpu")


def test_a_pushed_dataset_is_read_from_the_hub(made, hub: Hub, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    assert call("publish", "push", str(made / "dataset"), "user/pushed") == 0
    wanted = load(made, "dataset").block(range(12), range(60), "cider")
    for where, revision in (
        ("user/pushed", None),
        ("user/pushed@1.0.0", None),
        ("user/pushed", "1.0.0"),
    ):
        found = Labels.load(where, revision=revision).block(range(12), range(60), "cider")
        assert all(np.array_equal(*cells) for cells in zip(found, wanted, strict=True))
    with pytest.raises(InputError, match="Revision Not Found"):
        Labels.load("user/pushed", revision="9.9.9")
    hub.fail("info", 503)
    with pytest.raises(InputError, match="503 "):  # and does not take what was fetched
        Labels.load("user/pushed")
    hub.failures.clear()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    before = len(hub.log)
    for where in ("user/pushed", "user/pushed@1.0.0"):
        assert Labels.load(where).n_captions == 60
    assert len(hub.log) == before
    with pytest.raises(InputError, match="the hub: .*unset HF_HUB_OFFLINE"):
        Labels.load("user/other")
