"""The Croissant metadata, as the reference library reads them."""

from __future__ import annotations

import json
from pathlib import Path

import mlcroissant
import pyarrow.parquet as pq
import pytest

from capgrade.pipelines.captions import captions
from capgrade.pipelines.publish.croissant import BIASES, LIMITS
from capgrade.pipelines.publish.folder import publish
from capgrade.pipelines.shards import shards
from capgrade.schemas.files import digest
from capgrade.schemas.params import CaptionsParams, MeasuresParams, PublishParams, ScenesParams, ShardsParams

WHOLE = PublishParams(
    name="tiny", license="cc-by-4.0", description="Tiny.", authors=("A. Author",), date="2026-01-31",
    citation="A. Author: Tiny.", repository="someone/tiny",
)  # fmt: skip


@pytest.fixture(scope="module")
def both(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("croissant")
    for name, params in (("here", WHOLE.model_copy(update={"repository": None})), ("there", WHOLE)):
        publish(made / "captions", [made / "train"], root / name, params)
    return root


def test_it_is_valid_with_nothing_to_warn_of(both: Path) -> None:
    for name in ("here", "there"):
        issues = mlcroissant.Dataset(both / name / "croissant.json").metadata.ctx.issues
        assert (issues.errors, issues.warnings) == (set(), set())


def test_its_records_are_the_rows_of_the_tables(both: Path) -> None:
    dataset = mlcroissant.Dataset(both / "here" / "croissant.json")
    for name in ("relevance/train-00000-of-00001", "captions/train-00000-of-00001"):
        rows = pq.read_table(both / "here" / f"{name}.parquet").to_pylist()
        records = list(dataset.records(name))
        for column in ("image_id", "caption_id"):
            read = [record[f"{name}/{column}"].decode() for record in records]
            assert read == [row[column] for row in rows]
    assert [[t.decode() for t in r[f"{name}/tokens"]] for r in records] == [row["tokens"] for row in rows]


def test_every_table_is_named_with_its_checksum_and_address(both: Path) -> None:
    text = json.loads((both / "there" / "croissant.json").read_text())
    assert text["conformsTo"] == ["http://mlcommons.org/croissant/1.0", "http://mlcommons.org/croissant/RAI/1.0"]
    assert text["license"] == "https://spdx.org/licenses/CC-BY-4.0.html"
    files = [entry for entry in text["distribution"] if entry["@type"] == "cr:FileObject"]
    assert {entry["@id"]: entry["sha256"] for entry in files} == {
        path.relative_to(both / "there").as_posix(): digest(path) for path in (both / "there").glob("*/*.parquet")
    }
    base = "https://huggingface.co/datasets/someone/tiny/resolve/1.0.0/"
    assert {entry["contentUrl"] for entry in files} == {base + entry["@id"] for entry in files}
    for record_set in text["recordSet"]:
        schema = pq.read_schema(both / "there" / f"{record_set['name']}.parquet")
        assert [field["name"] for field in record_set["field"]] == schema.names


def test_the_fields_that_a_venue_asks_for_are_there_as_the_reference_library_reads_them(both: Path) -> None:
    """NeurIPS 2026 asks for limitations, biases, personal information, use cases, impact, and the origin."""
    metadata = mlcroissant.Dataset(both / "here" / "croissant.json").metadata
    assert len(metadata.data_limitations) == len(LIMITS) + 1 and len(metadata.data_biases) == len(BIASES)
    assert "Measures: cider, rouge_l" in metadata.data_annotation_protocol[0]
    assert "nobody searched" in metadata.personal_sensitive_information[0]
    assert metadata.data_use_cases and metadata.data_social_impact and metadata.data_collection
    assert "not measured" in metadata.data_annotation_analysis[0]
    text = json.loads((both / "here" / "croissant.json").read_text())
    assert (
        "prov:wasGeneratedBy" in text and "rai:hasSyntheticData" not in text
    )  # whether people wrote them is not known


def test_what_is_drawn_by_a_program_is_synthetic_and_of_nobody(tmp_path: Path) -> None:
    captions(tmp_path / "captions", CaptionsParams(scenes=ScenesParams(train=6, val=0, test=0, size=64)))
    shards(tmp_path / "captions", tmp_path / "shards", ShardsParams(measures=("cider",)), MeasuresParams())
    publish(tmp_path / "captions", [tmp_path / "shards"], tmp_path / "dataset", WHOLE)
    text = json.loads((tmp_path / "dataset" / "croissant.json").read_text())
    assert text["rai:hasSyntheticData"] is True and "prov:wasDerivedFrom" not in text
    assert text["rai:personalSensitiveInformation"].startswith("None")
