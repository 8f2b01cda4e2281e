"""Stage `publish`: captions and sampled relevance as a Hugging Face dataset folder with its card."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.card import Contents, dataset_card
from schemas.captions import Captions, read_captions
from schemas.errors import InputError
from schemas.files import atomic, package_version, write_manifest, write_text
from schemas.params import PublishParams
from schemas.shards import Shards, pair_columns, read_shards

ROW_GROUP = 128 * 1024
PARQUET_ROWS = 4_000_000  # pairs a file, about 60 MB


def publish(
    captions_dir: Path,
    shards_dirs: Sequence[Path],
    out: Path,
    params: PublishParams,
    agreement: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Write a folder that `datasets.load_dataset(out, "captions" or "relevance")` reads, one split a shards folder.

    Config `captions` has one row a caption; `relevance` one row a kept image-caption pair with every measure, the
    reasons it was kept and its sampling weight. `agreement` (from `agree`) goes into the card. Returns the manifest.
    Raises InputError without a licence, or when shards and captions do not belong together.
    """
    if not params.license:
        raise InputError("no licence given", remedy="set publish.license (an SPDX id such as cc-by-4.0), or --license")
    contents: list[Contents] = []
    rows: dict[str, int] = {}
    for folder in shards_dirs:
        shards = read_shards(folder)
        captions = read_captions(captions_dir, shards.metadata["split"])
        shards.require(captions)
        if any(c.split == hub_split(captions.split) for c in contents):
            raise InputError(f"split '{captions.split}' is given twice", file=folder)
        files = {**_write_captions(captions, out), **_write_pairs(captions, shards, out)}
        rows.update(files)
        contents.append(Contents(hub_split(captions.split), captions, shards, files))
    if not contents:
        raise InputError("no shards to publish", remedy="give --shards")
    if any(c.shards.measures != contents[0].shards.measures for c in contents):
        raise InputError("the splits have different measures", remedy="make their shards with the same --measures")
    inputs = {f"shards {c.split}": c.shards.manifest["files"][c.shards.files[0].name]["sha256"] for c in contents}
    inputs["captions"] = contents[0].captions.digest
    manifest = write_manifest(out, "publish", params=params.model_dump(), inputs=inputs, rows=rows)
    write_text(out / "README.md", dataset_card(params, contents, manifest["files"], agreement))
    return manifest


def hub_split(split: str) -> str:
    """A split name that `datasets` accepts: letters, digits and `_` (train+restval becomes train_restval)."""
    return re.sub(r"\W", "_", split)


def _write_captions(captions: Captions, out: Path) -> dict[str, int]:
    name = f"captions/{hub_split(captions.split)}-00000-of-00001.parquet"
    table = captions.table.select(["image_id", "caption_id", "caption", "tokens", "image_file"])
    _write_parquet(out / name, table.schema.remove_metadata(), iter(table.to_batches(ROW_GROUP)))
    return {name: table.num_rows}


def _write_pairs(captions: Captions, shards: Shards, out: Path) -> dict[str, int]:
    """Pairs in the order of images and captions, over as many files as their number needs."""
    pairs = shards.manifest["pairs"]
    n_files = max(1, -(-pairs // PARQUET_ROWS))
    schema = pair_schema(shards.measures)
    batches, rows = _pair_batches(captions, shards, schema), {}
    for k in range(n_files):
        name = f"relevance/{hub_split(captions.split)}-{k:05d}-of-{n_files:05d}.parquet"
        rows[name] = _write_parquet(out / name, schema, batches, None if k == n_files - 1 else PARQUET_ROWS)
    if sum(rows.values()) != pairs:
        raise InputError(f"{sum(rows.values())} pairs where the manifest says {pairs}", file=shards.folder)
    return rows


def pair_schema(measures: Sequence[str]) -> pa.Schema:
    """image_id, caption_id, original (the caption was written for the image), the measures, reasons and weight."""
    return pa.schema(
        [
            pa.field("image_id", pa.string()),
            pa.field("caption_id", pa.string()),
            pa.field("original", pa.bool_()),
            *(pa.field(name, pa.float32()) for name in measures),
            pa.field("reasons", pa.list_(pa.string())),
            pa.field("weight", pa.float32()),
        ]
    )


def _pair_batches(captions: Captions, shards: Shards, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    caption_ids = captions.table["caption_id"].combine_chunks()
    names = shards.metadata["reasons"]
    for batch in shards.batches():
        row, pairs = pair_columns(batch)
        images = batch["image"].to_numpy()[row]
        caption = pairs["captions"].to_numpy()
        values = {
            "image_id": batch["image_id"].take(pa.array(row)),
            "caption_id": caption_ids.take(pairs["captions"]),
            "original": pa.array(captions.owner[caption] == images),
            **{name: pairs[name] for name in shards.measures},
            "reasons": _reason_lists(pairs["reasons"].to_numpy(), names),
            "weight": pairs["weight"],
        }
        yield pa.record_batch([values[name] for name in schema.names], schema=schema)


def _reason_lists(bits: np.ndarray, names: Sequence[str]) -> pa.Array:
    """Lists of reason names from bit sets uint32 [n]."""
    set_bits = (bits[:, None] >> np.arange(len(names), dtype=np.uint32)) & 1
    offsets = np.concatenate([[0], np.cumsum(set_bits.sum(axis=1))])
    flat = pa.array(names).take(pa.array(np.nonzero(set_bits)[1]))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat)


def _write_parquet(path: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch], most: int | None = None) -> int:
    """Write batches until there are none, or `most` rows are reached; returns the rows written."""
    rows = 0
    with atomic(path) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch, row_group_size=ROW_GROUP)
            rows += batch.num_rows
            if most is not None and rows >= most:
                break
    return rows


def push(folder: Path, repo_id: str) -> str:
    """Upload a published folder to the Hugging Face hub in one commit; the address of the dataset.

    The token comes from `hf auth login` or HF_TOKEN and is never printed. Raises InputError when it is missing or
    refused, or the hub cannot be reached.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError

    api = HfApi()
    remedy = "log in with `hf auth login` or set HF_TOKEN, with write access to the repository"
    try:
        api.create_repo(repo_id, repo_type="dataset", exist_ok=True)
        message = f"Labels by capgrade {package_version()}"
        commit = api.upload_folder(folder_path=folder, repo_id=repo_id, repo_type="dataset", commit_message=message)
    except LocalTokenNotFoundError as error:
        raise InputError("no Hugging Face token", remedy=remedy) from error
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else "?"
        raise InputError(f"the hub refused '{repo_id}' (HTTP {status})", remedy=remedy) from error
    except Exception as error:  # the transport's own kinds: refused, timed out, not resolved
        raise InputError(
            f"the hub cannot be reached ({type(error).__name__})", remedy="try again when online"
        ) from error
    return str(commit.repo_url) if hasattr(commit, "repo_url") else f"https://huggingface.co/datasets/{repo_id}"
