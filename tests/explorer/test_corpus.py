"""The same corpus from a published folder and from the folders it was made of; what does not fit is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from capgrade.explorer.corpus import LabelledCorpus, compute_labels, read_labels
from capgrade.explorer.pairs import LabelledPairs
from capgrade.explorer.start import ExplorerFolders, open_explorer, read_corpus
from capgrade.labels.published import params_of
from capgrade.pipelines.publish.folder import publish
from capgrade.pipelines.relevance import relevance
from capgrade.pipelines.shards import shards
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST, SELF, self_digest
from capgrade.schemas.params import MeasuresParams, PublishParams, RelevanceParams, ShardsParams, WindowsParams
from tests.conftest import caption_table, make_captions, random_sets, write_captions_folder

NAMES = ("cider", "rouge_l")
PARAMS = MeasuresParams.model_validate({"cider": {"sigma": 5.0}})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """captions, shards, relevance and dataset of two splits, train and dev-set, the shards of both."""
    folder = tmp_path_factory.mktemp("made")
    tables = [caption_table(random_sets(9, seed=5), "train"), caption_table(random_sets(4, seed=6), "dev-set")]
    renamed = tables[1].to_pydict()
    for name in ("image_id", "caption_id"):
        renamed[name] = [f"dev-{value}" for value in renamed[name]]
    tables[1] = tables[1].from_pydict(renamed, schema=tables[1].schema)
    write_captions_folder(folder / "captions", tables)
    for split in ("train", "dev-set"):
        kept = ShardsParams(split=split, measures=NAMES, top=3, uniform=2, windows=WindowsParams(per_window=1))
        shards(folder / "captions", folder / f"shards-{split}", kept, PARAMS)
    relevance(folder / "captions", folder / "relevance", RelevanceParams(split="train", measures=NAMES), PARAMS)
    both = [folder / "shards-train", folder / "shards-dev-set"]
    publish(folder / "captions", both, folder / "dataset", PublishParams(license="cc0-1.0"))
    return folder


def _rows(pairs: LabelledPairs) -> list[tuple]:
    columns = [pairs.image, pairs.caption, pairs.original, *pairs.values.values()]
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def _same(one: LabelledCorpus, other: LabelledCorpus) -> None:
    assert one.fingerprint == other.fingerprint
    assert one.captions.tokenizer == other.captions.tokenizer
    assert list(one.pairs.values) == list(other.pairs.values) == list(NAMES)
    assert _rows(one.pairs) == _rows(other.pairs)
    assert one.params == other.params == PARAMS


@pytest.mark.parametrize(("split", "published"), [("train", "train"), ("dev-set", "dev_set")])
def test_a_dataset_alone_is_all_that_it_was_made_of(made: Path, split: str, published: str) -> None:
    of_shards = read_labels(made / f"shards-{split}", MeasuresParams(), None, made / "captions")
    _same(read_labels(made / "dataset", PARAMS, published), of_shards)


def test_without_shards_pairs_are_sampled_from_either_scores(made: Path) -> None:
    computed = compute_labels(made / "captions", PARAMS, NAMES, "train")
    stored = read_labels(made / "relevance", PARAMS, "train", made / "captions")
    assert _rows(computed.pairs) == _rows(stored.pairs)
    captions = read_captions(made / "captions", "train")
    own = set(zip(captions.owner.tolist(), range(captions.n_captions), strict=True))
    kept = computed.pairs
    assert own <= set(zip(kept.image.tolist(), kept.caption.tolist(), strict=True))
    assert (captions.owner[kept.caption] == kept.image).tolist() == kept.original.tolist()


def altered(made: Path, folder: Path, pairs: dict[str, list] | None = None, **changes: object) -> Path:
    """A copy of the dataset with other columns in the pairs of train, and other entries in its manifest."""
    shutil.copytree(made / "dataset", folder)
    manifest = {**json.loads((folder / MANIFEST).read_text()), **changes}
    (path,) = (folder / "relevance").glob("train-*")
    table = pq.read_table(path)
    for name, column in (pairs or {}).items():
        values = [column * len(table)] if len(column) == 1 else [[*column, *table[name].to_pylist()[len(column) :]]]
        table = table.drop_columns([name] if name in table.column_names else []).append_column(name, values)
    pq.write_table(table, path)
    manifest["files"][f"relevance/{path.name}"]["bytes"] = path.stat().st_size
    manifest = {key: value for key, value in manifest.items() if value is not None}
    (folder / MANIFEST).write_text(json.dumps({**manifest, SELF: self_digest(manifest)}))
    return folder


def test_a_dataset_does_not_choose_what_is_opened(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its manifest names an encoder of the hub: nobody is asked for it before the user names it too."""
    asked: list[str] = []
    unit = np.ones((sum(map(len, random_sets(9, seed=5))), 1), np.float32)
    monkeypatch.setattr("capgrade.measures.sbert.embed", lambda texts, model, device: asked.append(model) or unit)
    measures = {"rouge_l": {}, "cider": {}, "sbert": {"model": "someone/encoder", "device": "cuda:7"}}
    folder = altered(made, tmp_path / "theirs", {"sbert": [np.float32(0)]}, measures=measures)
    for given in (MeasuresParams(), MeasuresParams.model_validate({"sbert": {"model": "someone/other"}})):
        with pytest.raises(InputError, match="encoder 'someone/encoder', which is not opened unasked"):
            open_explorer(ExplorerFolders(dataset=folder, split="train", params=given))
    assert asked == []
    monkeypatch.setattr("capgrade.explorer.voices.scorer_of_unseen", lambda *_: None)
    named = MeasuresParams.model_validate({"sbert": {"model": "someone/encoder"}})
    open_explorer(ExplorerFolders(dataset=folder, split="train", params=named))
    assert asked == ["someone/encoder"]


def test_datasets_that_are_refused(made: Path, tmp_path: Path) -> None:
    damaged = altered(made, tmp_path / "damaged")
    path = next((damaged / "captions").glob("train-*"))
    path.write_bytes(b"\0" * path.stat().st_size)
    for folder, split, said in (
        (made / "dataset", None, "several splits: dev_set, train"),
        (made / "dataset", "test", "no split 'test'"),
        (altered(made, tmp_path / "old", tokenizer=None), "train", "no tokenizer.*publish it again"),
        (altered(made, tmp_path / "odd", {"image_id": ["nobody", "i0"]}), "train", "captions lack"),
        (damaged, "train", "Parquet"),
    ):
        with pytest.raises(InputError, match=said):
            read_labels(folder, PARAMS, split)


@pytest.mark.parametrize(("kind", "name", "said"), [
    ("dataset", "labls", "no such folder, nor a dataset USER/NAME"), ("dataset", "shards", "a shards folder where a"),
    ("shards", "labls", "capgrade shards"), ("relevance", "labls", "capgrade relevance"),
])  # fmt: skip
def test_a_path_is_no_dataset_of_the_hub_and_a_folder_is_of_its_kind(
    kind: str, name: str, said: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "shards").symlink_to(made / "shards-train")
    monkeypatch.chdir(tmp_path)
    captions = None if kind == "dataset" else Path("data/captions")
    with pytest.raises(InputError, match=said):
        read_corpus(ExplorerFolders(captions=captions, **{kind: Path("data", name)}))


def test_a_fingerprint_is_of_ids_and_texts() -> None:
    one, other = (LabelledCorpus(make_captions([[text]]), None, PARAMS, Path()) for text in ("a", "b"))  # type: ignore[arg-type]
    again = LabelledCorpus(make_captions([["a"]]), None, MeasuresParams(), Path("x"))  # type: ignore[arg-type]
    assert one.fingerprint == again.fingerprint != other.fingerprint


def test_parameters_of_mixtures_and_imports_are_told_apart() -> None:
    given = {"imported": {"theirs": "x.npy"}, "sbert": {"model": "m", "references": "first"}}
    mixtures = {"ours": {"cider": 0.5, "sbert_mean": 1}, "no": {"theirs": 1}}
    params = MeasuresParams.model_validate({**given, "cider": {"sigma": 4}, "mixtures": mixtures})
    used = params.used(["ours", "no", "theirs", "rouge_l"])
    found = params_of(used, Path())
    assert found.mixtures == {"ours": mixtures["ours"]}
    assert (found.imported, found.cider.sigma, found.sbert.model) == ({}, 4, "m")
    assert found.used(["ours", "rouge_l"]) == {name: used[name] for name in ("ours", "rouge_l")}
