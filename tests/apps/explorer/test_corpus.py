"""The same corpus from a published folder and from the folders it was made of; what does not fit is
refused."""

import shutil
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyarrow.parquet as pq
import pytest

from capgrade.apps.explorer.corpus import LabelledCorpus, read_labels
from capgrade.apps.explorer.pairs import APART
from capgrade.apps.explorer.start import ExplorerFolders, open_corpus, open_explorer, read_matrices
from capgrade.measures.params import MeasuresParams
from capgrade.measures.refit import params_of
from capgrade.schemas.captions import read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import read_manifest
from capgrade.schemas.pairs import Pairs
from capgrade.schemas.say import CapgradeWarning
from tests.conftest import edit_manifest, make_captions
from tests.pipelines.publish.conftest import BOTH, MEASURES, SETS


def _rows(pairs: Pairs) -> list[tuple]:
    columns = [pairs.image, pairs.caption, *pairs.values.values()]
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def test_a_dataset_alone_is_all_that_it_was_made_of(made: Path) -> None:
    for split in ("train", "val"):
        one = read_labels(made / "out", MEASURES, split)
        other = read_labels(made / split, MeasuresParams(), None, made / "captions")
        assert (
            one.fingerprint == other.fingerprint
            and one.captions.tokenizer == other.captions.tokenizer
        )
        assert list(one.pairs.values) == list(other.pairs.values) == list(BOTH)
        assert _rows(one.pairs) == _rows(other.pairs) and one.params == other.params == MEASURES
    prints = [
        LabelledCorpus(make_captions(sets), one.pairs, MEASURES, made).fingerprint
        for sets in ([["a", "b"]], [["a", "b"]], [["a", "c"]], [["a"], ["b"]])
    ]
    assert prints[0] == prints[1] and len(set(prints)) == 3, "of ids and texts"


def test_without_shards_pairs_are_sampled_from_either_scores(made: Path) -> None:
    folders = ExplorerFolders(
        captions=made / "captions", params=MEASURES, measures=BOTH, split="val"
    )
    computed = open_corpus(folders)
    stored = read_labels(made / "relevance", MEASURES, "val", made / "captions")
    assert _rows(computed.pairs) == _rows(stored.pairs)
    captions = read_captions(made / "captions", "val")
    own = set(zip(captions.owner.tolist(), range(captions.n_captions), strict=True))
    kept = computed.pairs
    assert own <= set(zip(kept.image.tolist(), kept.caption.tolist(), strict=True))


def test_matrices_of_models_are_on_the_pages_by_their_files(made: Path, tmp_path: Path) -> None:
    """With a warning where rows seem to be in another order, as `evaluate` gives it."""
    captions = read_captions(made / "captions", "train")
    right = (captions.owner == np.arange(captions.n_images)[:, None]).astype(np.float32)
    for folder, matrix in (("a", right), ("b", right[::-1])):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "scores.npy", matrix)
    np.save(tmp_path / "cider.npy", right)
    files = [tmp_path / name for name in ("a/scores.npy", "b/scores.npy", "cider.npy")]
    folders = ExplorerFolders(
        captions=made / "captions", params=MEASURES, measures=BOTH, split="train", similarity=files
    )
    with pytest.warns(
        CapgradeWarning, match="b/scores.npy: no better than chance.*give it as .npz"
    ) as warned:
        explorer = open_explorer(folders)
    assert len([one for one in warned if "chance" in str(one.message)]) == 1
    names = [voice.name for voice in explorer.matrices]
    assert names == [*map(str, files[:2]), str(files[2]) if "cider" in BOTH else "cider"]
    one = replace(folders, similarity=[tmp_path / "a" / "similarity.npy"])
    np.save(one.similarity[0], right)
    assert [voice.name for voice in read_matrices(one, explorer.corpus)] == ["a"], (
        "as `embed` names it"
    )
    assert explorer.answer_caption(4, names=[names[0]])[0].hits[0].number == captions.owner[4]


def test_no_user_waits_for_the_pairs_of_disagreements(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are computed, and kernels compiled, before the page is asked for."""
    explorer = open_explorer(
        ExplorerFolders(captions=made / "captions", params=MEASURES, measures=BOTH, split="train")
    )
    late = Mock(side_effect=AssertionError("while a user waits"))
    monkeypatch.setattr("capgrade.apps.explorer.answers.leave_themselves_out", late)
    highs, lows = explorer.sides(APART)
    assert explorer.disagreements(APART, highs[0], lows[-1], 12)


def altered(
    made: Path, folder: Path, pairs: dict[str, list] | None = None, **changes: object
) -> Path:
    """A copy of the dataset with other columns in the pairs of train, and other entries in its
    manifest."""
    shutil.copytree(made / "out", folder)
    (path,) = (folder / "relevance").glob("train-*")
    table = pq.read_table(path)
    for name, column in (pairs or {}).items():
        values = (
            [column * len(table)]
            if len(column) == 1
            else [[*column, *table[name].to_pylist()[len(column) :]]]
        )
        table = table.drop_columns([name] if name in table.column_names else []).append_column(
            name, values
        )
    pq.write_table(table, path)
    files = read_manifest(made / "out", "publish")["files"]
    files[f"relevance/{path.name}"]["bytes"] = path.stat().st_size
    edit_manifest(folder, files=files, **changes)
    return folder


def test_a_dataset_does_not_choose_what_is_opened(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its manifest names an encoder of the hub: nobody is asked for it before the user names it
    too."""
    asked: list[str] = []
    unit = np.ones((sum(map(len, SETS["train"])), 1), np.float32)
    monkeypatch.setattr(
        "capgrade.measures.sbert.fitted.embed",
        lambda texts, model, device: asked.append(model) or unit,
    )
    measures = {
        "rouge_l": {},
        "cider": {},
        "sbert": {"model": "someone/encoder", "device": "cuda:7"},
    }
    monkeypatch.setattr("capgrade.measures.sbert.fingerprint", lambda model: f"that of {model}")
    inputs = read_manifest(made / "out", "publish")["inputs"]
    inputs |= {"measures.sbert.model": "that of someone/encoder"}
    sbert = {"sbert": [np.float32(0)]}
    folder = altered(made, tmp_path / "theirs", sbert, measures=measures, inputs=inputs)
    for given in (
        MeasuresParams(),
        MeasuresParams.model_validate({"sbert": {"model": "someone/other"}}),
    ):
        with pytest.raises(
            InputError, match="sbert.model 'someone/encoder', which is not opened unasked"
        ):
            open_explorer(ExplorerFolders(dataset=folder, split="train", params=given))
    assert asked == []
    monkeypatch.setattr("capgrade.measures.sbert.Sbert.unseen", lambda *_: None)
    named = MeasuresParams.model_validate({"sbert": {"model": "someone/encoder"}})
    open_explorer(ExplorerFolders(dataset=folder, split="train", params=named))
    assert asked == ["someone/encoder"]


def test_datasets_that_are_refused(made: Path, tmp_path: Path) -> None:
    damaged = altered(made, tmp_path / "damaged")
    path = next((damaged / "captions").glob("train-*"))
    path.write_bytes(b"\0" * path.stat().st_size)
    for folder, split, said in (
        (made / "out", None, "several splits: train, val"),
        (
            altered(made, tmp_path / "odd", {"image_id": ["nobody", "ti0"]}),
            "train",
            "captions lack",
        ),
        (damaged, "train", "Parquet"),
    ):
        with pytest.raises(InputError, match=said):
            read_labels(folder, MEASURES, split)


@pytest.mark.parametrize(("kind", "name", "said"), [
    ("dataset", "labls", "no such folder, nor a dataset USER/NAME"), ("dataset", "shards", "a folder of shards where"),
    ("shards", "labls", "capgrade shards"), ("relevance", "labls", "capgrade relevance"),
])  # fmt: skip
def test_a_path_is_no_dataset_of_the_hub_and_a_folder_is_of_its_kind(
    kind: str, name: str, said: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "shards").symlink_to(made / "train")
    monkeypatch.chdir(tmp_path)
    captions = None if kind == "dataset" else Path("data/captions")
    with pytest.raises(InputError, match=said):
        open_corpus(ExplorerFolders(captions=captions, **{kind: Path("data", name)}))


def test_parameters_of_mixtures_and_imports_are_told_apart() -> None:
    given = {"imported": {"theirs": "x.npy"}, "sbert": {"model": "m", "references": "first"}}
    mixtures = {"ours": {"cider": 0.5, "sbert_mean": 1}, "no": {"theirs": 1}}
    params = MeasuresParams.model_validate({**given, "cider": {"sigma": 4}, "mixtures": mixtures})
    used = params.used(["ours", "no", "theirs", "rouge_l"])
    found = params_of(used, Path())
    assert found.mixtures == {"ours": mixtures["ours"]}
    assert (found.imported, found.cider.sigma, found.sbert.model) == ({}, 4, "m")
    assert found.used(["ours", "rouge_l"]) == {name: used[name] for name in ("ours", "rouge_l")}
