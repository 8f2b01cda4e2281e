"""Croissant metadata of a published folder: JSON-LD that search engines and ML frameworks read.

Format: https://docs.mlcommons.org/croissant/docs/croissant-spec-1.0.html, with the fields of its RAI extension.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from capgrade.pipelines.publish.card import introduction
from capgrade.pipelines.publish.responsible import responsible
from capgrade.pipelines.publish.tables import Described, PublishedTable
from capgrade.schemas.licences import licence_address

CONFORMS_TO = ["http://mlcommons.org/croissant/1.0", "http://mlcommons.org/croissant/RAI/1.0"]
CONTEXT = Path(__file__).with_name("croissant_context.json")
PARQUET = "application/x-parquet"
TYPES = {
    pa.string(): "sc:Text", pa.bool_(): "sc:Boolean", pa.float32(): "cr:Float32", pa.float64(): "cr:Float64",
    pa.int32(): "cr:Int32",
}  # fmt: skip


def croissant(contents: Described) -> dict[str, Any]:
    """The JSON-LD document. What `params` leave open (authors, date, repository) is left out, never invented.

    Files are addressed in the repository at its version, or relative to this document when there is no repository.
    """
    params = contents.params
    address = f"https://huggingface.co/datasets/{params.repository}" if params.repository else ""
    facts = {
        "url": address,
        "creator": [{"@type": "sc:Person", "name": name} for name in params.authors],
        "datePublished": params.date,
        "citeAs": params.citation,
    }
    base = f"{address}/resolve/{params.version}/" if address else ""
    return {
        "@context": json.loads(CONTEXT.read_text(encoding="utf-8")),
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": params.name,
        "description": introduction(contents),
        "version": params.version,
        "license": licence_address(str(params.license), params.license_link),
        "inLanguage": params.language,
        "keywords": ["image-text retrieval", "graded relevance", "captions"],
        **{key: value for key, value in facts.items() if value},
        **responsible(contents),
        "distribution": [_file(name, entry, base) for name, entry in contents.files.items()],
        "recordSet": [_records(contents, *one) for one in _each_file(contents)],
    }


def _each_file(contents: Described) -> list[tuple[PublishedTable, str]]:
    """Each file once, with a table that it is of."""
    first: dict[str, PublishedTable] = {}
    for config in contents.configs:
        for table in contents.tables(config):
            for name in table.files:
                first.setdefault(name, table)
    return [(table, name) for name, table in first.items()]


def _file(name: str, entry: dict[str, Any], base: str) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        "contentUrl": base + name,
        "contentSize": f"{entry['bytes']} B",
        "encodingFormat": PARQUET,
        "sha256": entry["sha256"],
    }


def _records(contents: Described, table: PublishedTable, file: str) -> dict[str, Any]:
    """A record set a file: the reference library reads no columns of a file set but from a repository or archive."""
    record_set = file.removesuffix(".parquet")
    return {
        "@type": "cr:RecordSet",
        "@id": record_set,
        "name": record_set,
        "description": f"Config `{table.config}`, split `{table.split}`: {table.files[file]} of {table.rows} rows.",
        "field": [_field(contents, field, file, record_set) for field in table.schema],
    }


def _field(contents: Described, field: pa.Field, file: str, record_set: str) -> dict[str, Any]:
    is_list = pa.types.is_list(field.type)
    return {
        "@type": "cr:Field",
        "@id": f"{record_set}/{field.name}",
        "name": field.name,
        "description": contents.meaning(field.name),
        "dataType": TYPES[field.type.value_type if is_list else field.type],
        **({"repeated": True} if is_list else {}),
        "source": {"fileObject": {"@id": file}, "extract": {"column": field.name}},
    }
