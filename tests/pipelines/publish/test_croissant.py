"""The Croissant metadata, as the reference library reads them."""

import json
from pathlib import Path

import mlcroissant
import pyarrow.parquet as pq

from capgrade.pipelines.publish.croissant import BIASES, LIMITS
from capgrade.pipelines.publish.folder import publish
from capgrade.schemas.files import digest

from .conftest import PARAMS


def opened(folder: Path) -> mlcroissant.Dataset:
    """It is valid, with nothing to warn of."""
    dataset = mlcroissant.Dataset(folder / "croissant.json")
    assert (dataset.metadata.ctx.issues.errors, dataset.metadata.ctx.issues.warnings) == (
        set(),
        set(),
    )
    return dataset


def test_its_records_are_the_rows_of_the_tables(made: Path) -> None:
    dataset = opened(made / "out")
    for name in ("relevance/val-00000-of-00001", "captions/val-00000-of-00001"):
        rows = pq.read_table(made / "out" / f"{name}.parquet").to_pylist()
        records = list(dataset.records(name))
        for column in ("image_id", "caption_id"):
            assert [record[f"{name}/{column}"].decode() for record in records] == [
                row[column] for row in rows
            ]
    assert [[t.decode() for t in r[f"{name}/tokens"]] for r in records] == [
        row["tokens"] for row in rows
    ]


def test_every_table_is_named_with_its_checksum_and_address(made: Path, tmp_path: Path) -> None:
    there, repository = tmp_path / "out", {"repository": "someone/tiny"}
    publish(made / "captions", [made / "train"], there, PARAMS.model_copy(update=repository))
    opened(there)
    text = json.loads((there / "croissant.json").read_text())
    assert text["conformsTo"] == [
        "http://mlcommons.org/croissant/1.1",
        "http://mlcommons.org/croissant/RAI/1.0",
    ]
    assert text["license"] == "https://spdx.org/licenses/CC-BY-4.0.html"
    base = "https://huggingface.co/datasets/someone/tiny/resolve/1.2.0/"
    files = {entry["@id"]: (entry["contentUrl"], entry["sha256"]) for entry in text["distribution"]}
    names = [path.relative_to(there).as_posix() for path in there.glob("*/*.parquet")]
    assert files == {name: (base + name, digest(there / name)) for name in names}
    for record_set in text["recordSet"]:
        schema = pq.read_schema(there / f"{record_set['name']}.parquet")
        assert [field["name"] for field in record_set["field"]] == schema.names
        assert {field["name"] for field in record_set["field"] if field.get("repeated")} <= {
            "reasons",
            "tokens",
        }
        assert any(field.get("repeated") for field in record_set["field"])


def test_the_fields_that_a_venue_asks_for_are_there_as_the_reference_library_reads_them(
    made: Path,
) -> None:
    """NeurIPS 2026 asks for limitations, biases, personal information, use cases, impact, and the
    origin."""
    metadata = opened(made / "out").metadata
    assert len(metadata.data_limitations) == len(LIMITS) + 1 and len(metadata.data_biases) == len(
        BIASES
    )
    assert "Measures: cider, rouge_l" in metadata.data_annotation_protocol[0]
    assert "nobody searched" in metadata.personal_sensitive_information[0]
    assert metadata.data_use_cases and metadata.data_social_impact and metadata.data_collection
    assert "not measured" in metadata.data_annotation_analysis[0]
    text = (made / "out" / "croissant.json").read_text()
    assert (
        "prov:wasGeneratedBy" in text and "rai:hasSyntheticData" not in text
    )  # that people wrote them is not known
