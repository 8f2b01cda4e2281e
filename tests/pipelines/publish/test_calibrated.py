"""Calibrated columns: they are the curves of the file at each value, and the folder says which file that was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from capgrade.agreement.calibration import load
from capgrade.labels import Labels
from capgrade.pipelines.agree import agree
from capgrade.pipelines.publish import card, columns, tables
from capgrade.pipelines.publish.check import check
from capgrade.pipelines.publish.folder import publish
from capgrade.pipelines.relevance import relevance
from capgrade.pipelines.shards import shards
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import digest
from capgrade.schemas.params import AgreeParams, MeasuresParams, PublishParams, RelevanceParams, ShardsParams
from tests.conftest import caption_table, random_sets, write_captions_folder

PARAMS = PublishParams(name="tiny", license="cc-by-4.0")
NAMES = ("cider", "rouge_l")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards of two measures, and a calibration of one."""
    folder: Path = tmp_path_factory.mktemp("calibrated")
    captions = write_captions_folder(folder / "captions", [caption_table(random_sets(24, seed=5), "train")])
    shards(captions, folder / "shards", ShardsParams(measures=NAMES, top=3, uniform=3), MeasuresParams())
    relevance(captions, folder / "dense", RelevanceParams(measures=("rouge_l",)), MeasuresParams())
    judged, out = folder / "dense" / "rouge_l.arrow", folder / "calibration.json"
    agree(captions, judged, ["rouge_l"], MeasuresParams(), calibrate=out, params=AgreeParams(accept=0.3))
    publish(captions, [folder / "shards"], folder / "out", PARAMS, calibration=out)
    return folder


def test_columns_are_the_curves_at_each_value(world: Path) -> None:
    table = pq.read_table(next((world / "out" / "relevance").glob("*.parquet")))
    curve = load(world / "calibration.json").curves["rouge_l"]
    values = table["rouge_l"].to_numpy()
    assert table["rouge_l_score"].to_numpy() == pytest.approx(np.interp(values, curve.value, curve.score))
    assert table["rouge_l_accepted"].to_numpy() == pytest.approx(np.interp(values, curve.value, curve.accepted))
    assert not {"cider_score", "cider_accepted"} & set(table.column_names)
    assert not table["rouge_l_score"].null_count and table["original"].to_numpy().any()  # own pairs too


def test_the_manifest_and_the_card_say_which_calibration(world: Path) -> None:
    sha = digest(world / "calibration.json")
    manifest = json.loads((world / "out" / "manifest.json").read_text())
    facts = manifest["calibration"]
    assert facts["sha256"] == sha == manifest["inputs"]["calibration"] and facts["file"] == "calibration.json"
    assert facts["judgements"]["file"] == "rouge_l.arrow" and facts["judgements"]["sha256"]
    assert facts["accept"] == 0.3 and facts["package"] and facts["measures"]["rouge_l"]["ece"] >= 0
    assert facts["columns"] == {"rouge_l_score": "rouge_l", "rouge_l_accepted": "rouge_l"}
    card = (world / "out" / "README.md").read_text()
    assert sha in card and "## What a value means to people" in card
    assert "--calibration calibration.json" in card and "| `rouge_l_accepted` | float32 | probability" in card
    assert str(world) not in card + json.dumps(manifest)
    found = {field["name"] for one in json.loads((world / "out" / "croissant.json").read_text())["recordSet"]
             for field in one["field"]}  # fmt: skip
    assert {"rouge_l_score", "rouge_l_accepted"} <= found
    assert not check(str(world / "out"), None).problems


def test_the_one_that_comes_with_capgrade_is_named_in_the_commands(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever runs the commands of the card has no crisscrossed.json, and has the name."""
    for one in (columns, card):
        monkeypatch.setattr(one, "SHIPPED", world / "calibration.json")
    publish(world / "captions", [world / "shards"], tmp_path / "out", PARAMS, calibration=world / "calibration.json")
    said = (tmp_path / "out" / "README.md").read_text()
    assert "--calibration calibration --out dataset" in said and "# calibration" not in said


def test_labels_load_them_beside_the_measures(world: Path) -> None:
    labels = Labels.load(world / "out")
    assert labels.measures == [*NAMES, "rouge_l_accepted", "rouge_l_score"]
    curve = load(world / "calibration.json").curves["rouge_l"]
    some = labels.image_ids[:4], labels.caption_ids
    values, known, _ = labels.block(*some, "rouge_l")
    accepted, also, _ = labels.block(*some, "rouge_l_accepted")
    assert (known == also).all() and known.any()
    assert accepted[known] == pytest.approx(curve.probability(values[known]), abs=1e-6)
    assert Labels.load(world / "out", measures=["rouge_l_score"]).measures == ["rouge_l_score"]
    with pytest.raises(InputError, match="rouge_l_accepted is known of published pairs alone -> ask for rouge_l"):
        labels.exact("rouge_l_accepted")
    assert labels.exact("rouge_l").block(*some)[1].all()


def test_calibrations_that_do_not_fit(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(message: str, calibration: Path) -> None:
        with pytest.raises(InputError, match=message):
            publish(world / "captions", [world / "shards"], tmp_path / "out", PARAMS, calibration=calibration)
        assert not (tmp_path / "out" / "manifest.json").exists()

    found = json.loads((world / "calibration.json").read_text())
    found["params"]["rouge_l"]["beta"] = 7.0
    (tmp_path / "c.json").write_text(json.dumps(found))
    refused("rouge_l has other parameters than in c.json", tmp_path / "c.json")
    write = tables.write_table

    def meanwhile(*args: Any) -> Any:
        manifest = world / "shards" / "manifest.json"
        manifest.write_bytes(manifest.read_bytes() + b"\n")
        return write(*args)

    monkeypatch.setattr(tables, "write_table", meanwhile)
    refused("labels 1: changed while this run read it", world / "calibration.json")
