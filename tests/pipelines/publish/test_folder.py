"""Publishing: the folder loads with the right types, the card says what the files hold, bad input
is refused."""

import shutil
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
import pytest
import yaml
from datasets import Value, load_dataset

import capgrade
from capgrade.labels import Labels
from capgrade.measures.params import MeasuresParams
from capgrade.pipelines.publish import tables
from capgrade.pipelines.publish.folder import publish
from capgrade.pipelines.relevance import relevance
from capgrade.pipelines.shards import shards
from capgrade.pipelines.stages.publish import PublishParams
from capgrade.pipelines.stages.relevance import RelevanceParams
from capgrade.pipelines.stages.shards import ShardsParams
from capgrade.schemas.captions import CAPTIONS_FILE, read_captions
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import read_manifest, write_manifest
from tests.conftest import call, caption_table, random_sets, refusal, write_captions_folder

from .conftest import BOTH, PARAMS, SETS


def test_the_folder_loads(made: Path, tmp_path: Path) -> None:
    pairs = load_dataset(
        str(made / "out"), "relevance", split="train", cache_dir=str(tmp_path / "hf")
    )
    assert pairs.features["cider"] == Value("float32")
    assert pairs.features["weight"] == Value("float32")
    assert pairs.features["original"] == Value("bool")
    assert pairs.features["reasons"].feature == Value("string")
    assert len(pairs) == read_manifest(made / "train", "shards")["pairs"]
    captions = read_captions(made / "captions", "train")
    texts = load_dataset(
        str(made / "out"), "captions", split="train", cache_dir=str(tmp_path / "hf")
    )
    assert texts["caption"][:] == captions.texts
    assert texts["tokens"][3] == captions.table["tokens"][3].as_py()
    own = {(r["image_id"], r["caption_id"]) for r in pairs if r["original"]}
    assert own == set(
        zip(captions.table["image_id"].to_pylist(), captions.caption_ids, strict=True)
    )
    assert all(("own" in r["reasons"]) == r["original"] for r in pairs)
    by_image = dict.fromkeys(captions.image_ids, 0.0)
    for row in pairs:
        by_image[row["image_id"]] += row["weight"]
    assert np.mean(list(by_image.values())) == pytest.approx(captions.n_captions, rel=0.2)
    manifest = read_manifest(made / "out", "publish")
    assert manifest["files"]["captions/train-00000-of-00001.parquet"]["rows"] == captions.n_captions


def test_many_pairs_make_several_files(made: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(tables, "PARQUET_ROWS", 200)
    manifest = publish(made / "captions", [made / "train"], tmp_path / "out", PARAMS)
    assert len([name for name in manifest["files"] if name.startswith("relevance/")]) > 1
    pairs = load_dataset(
        str(tmp_path / "out"), "relevance", split="train", cache_dir=str(tmp_path / "hf")
    )
    assert len(pairs) == read_manifest(made / "train", "shards")["pairs"]


def test_split_names_are_made_fit_for_the_hub(made: Path, tmp_path: Path) -> None:
    both, same = (tmp_path / name for name in ("both", "same"))
    shards(
        made / "captions",
        both,
        ShardsParams(split="train+val", measures=BOTH, top=3, uniform=3),
        MeasuresParams(),
    )
    publish(made / "captions", [both], tmp_path / "out", PARAMS)
    loaded = load_dataset(str(tmp_path / "out"), "captions", cache_dir=str(tmp_path / "hf"))
    assert list(loaded) == ["train_val"]
    write_captions_folder(
        same, [caption_table(SETS["val"], split, split) for split in ("all", "all_")]
    )
    for split in ("all", "all_"):
        params = ShardsParams(split=split, measures=("rouge_l",), top=2, uniform=2)
        shards(same, tmp_path / split, params, MeasuresParams())
    line = f"publish --captions {same} --license mit --name tiny --shards {tmp_path}/all"
    said = refusal(*line.split(), "--out", tmp_path / "whole")
    assert "no split name: the captions have none" in said and "--splits all=test" in said
    for names, problem in (
        ({"all": "all"}, "split name 'all' -> of letters, digits and _, and not all"),
        ({"all": "te-st"}, "split name 'te-st' -> .* te_st"),
        ({"val": "test"}, "no split name"),
        ({"all": "test", "val": "x"}, "publish.splits names 'val' -> name a split of the labels"),
    ):
        told = PARAMS.model_copy(update={"splits": names})
        with pytest.raises(InputError, match=problem):
            publish(same, [tmp_path / "all"], tmp_path / "whole", told)
    told = PARAMS.model_copy(update={"splits": {"all": "all_"}})
    with pytest.raises(InputError, match="split 'all_' is given twice"):
        publish(same, [tmp_path / "all", tmp_path / "all_"], tmp_path / "twice", told)
    assert call(*line.split(), "--splits", "all=test", "--out", tmp_path / "whole") == 0
    loaded = load_dataset(str(tmp_path / "whole"), "captions", cache_dir=str(tmp_path / "hf"))
    assert list(loaded) == ["test"]
    labels = Labels.load(tmp_path / "whole", captions=same)
    assert capgrade.exact(labels, "rouge_l").block(range(2), range(3)).known.all()


def test_what_does_not_belong_together(made: Path, tmp_path: Path) -> None:
    train, val, dense, out = made / "train", made / "val", made / "relevance", tmp_path / "out"
    unfinished, cut = (
        Path(shutil.copytree(train, tmp_path / name)) for name in ("unfinished", "cut")
    )
    (unfinished / "manifest.json").unlink()
    shard = next(cut.glob("*.arrow"))
    shard.write_bytes(shard.read_bytes()[:-8])
    other = write_captions_folder(tmp_path / "c2", [caption_table(random_sets(3), "train")])
    relevance(
        other,
        theirs := tmp_path / "theirs",
        RelevanceParams(measures=("rouge_l",)),
        MeasuresParams(),
    )
    mteb = {"layout": "mteb", "measure": "rouge_l", "grades": {"related": 0.3}}
    refused: list[tuple[str, list[Path], dict[str, Any], dict[str, Any]]] = [
        ("no licence given -> set publish.license", [train], {"license": None}, {}),
        ("'a/b/c' is not a repository -> write USER/NAME", [train], {"repository": "a/b/c"}, {}),
        ("'labels' is not a repository -> write USER/NAME", [train], {"repository": "labels"}, {}),
        ("no labels to publish -> give --shards,", [], {}, {}),
        ("split 'train' is given twice", [train, train], {}, {}),
        ("made from another captions table", [train], {}, {"captions": other}),
        ("made from another captions table", [train], {}, {"relevance": [theirs]}),
        ("not a finished shards folder", [unfinished], {}, {}),
        ("bytes where the manifest says", [cut], {}, {}),
        (
            "a measure or grades of sampled pairs",
            [train],
            mteb | {"layout": "pairs", "grades": {}},
            {},
        ),
        (
            "a measure or grades of sampled pairs",
            [train],
            mteb | {"layout": "pairs", "measure": None},
            {},
        ),
        ("no licence given", [dense], mteb | {"license": None}, {}),
        ("no grades given -> name rising thresholds", [dense], mteb | {"grades": {}}, {}),
        ("no labels to publish -> give --shards, --relevance or --judg", [], mteb, {}),
        ("split 'val' is given twice", [dense, val], mteb, {}),
        ("a publish folder", [made / "out"], mteb, {}),
        ("not a finished shards folder", [unfinished], mteb, {}),
        ("split 'val' is given twice", [dense], mteb, {"relevance": [dense]}),
        (
            "2 folders of relevance -> give --relevance once",
            [train],
            {},
            {"relevance": [dense] * 2},
        ),
        (
            "a calibration, and grades that are values",
            [dense],
            mteb | {"calibration": "crisscrossed"},
            {},
        ),
        ("judgements with the layout pairs", [], {"judgements": "f.csv"}, {}),
        ("judgements, and a measure's labels", [dense], mteb | {"judgements": "f.csv"}, {}),
        (
            "judgements, and grades that are prob",
            [],
            mteb | {"judgements": "f.csv", "measure": None, "grades": {"fits": "P0.5"}},
            {},
        ),
        ("a split without judgements -> leave publish.split", [train], {"split": "train"}, {}),
    ]
    for said, folders, changed, beside in refused:
        given = {"captions": made / "captions", "shards": folders, **beside}
        with pytest.raises(InputError, match=said):
            publish(**given, out=out, params=PARAMS.model_copy(update=changed))
        assert not (out / "manifest.json").exists()


@pytest.mark.parametrize("given", [None, "de", "en", ("en", "de")])
def test_captions_that_are_not_english_are_not_published_as_english(
    given: str | tuple[str, ...] | None, tmp_path: Path
) -> None:
    german = [
        ["ein mann geht mit dem hund", "zwei hunde spielen im schnee"],
        ["eine frau liest ein buch im park"],
    ]
    captions = write_captions_folder(tmp_path / "captions", [caption_table(german, "train")])
    counts = {"left_out": {"captions absent": 2}, "duplicates": 1}
    of = {"params": {"captions": {}}, "inputs": {}}
    write_manifest(captions, "captions", rows={CAPTIONS_FILE: 3}, **of, **counts)
    shards(
        captions,
        tmp_path / "shards",
        ShardsParams(measures=BOTH, top=3, uniform=3),
        MeasuresParams(),
    )
    params = PublishParams(name="tiny", license="cc-by-4.0", language=given)
    if given is None:
        with pytest.raises(
            InputError,
            match="do not tell theirs: .* none of the words .*--language en, or de",
        ):
            publish(captions, [tmp_path / "shards"], tmp_path / "out", params)
        assert not (tmp_path / "out").exists()
        return
    with catch_warnings(record=True) as said:
        simplefilter("always")
        publish(captions, [tmp_path / "shards"], tmp_path / "out", params)
    card = (tmp_path / "out" / "README.md").read_text()
    assert yaml.safe_load(card.split("---")[1])["language"] == (
        [given] if isinstance(given, str) else list(given)
    )
    assert (
        "- 2 captions absent were left out.\n" in card
        and "- 1 captions repeat another caption of their" in card
    )
    assert any("are English, but" in str(one.message) for one in said) == (given == "en")
