"""The dataset card of a published folder: what each column means, how it was computed, and from what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from schemas.captions import Captions
from schemas.files import package_version
from schemas.params import PublishParams
from schemas.shards import Shards

MEANING = {
    "cider": "CIDEr-D of the caption with the image's reference captions, 0..10, as pycocoevalcap computes it",
    "rouge_l": "ROUGE-L of the caption with the image's reference captions, 0..1",
    "sbert": "cosine of Sentence-BERT embeddings of the caption and the image's reference captions, -1..1",
}


@dataclass(frozen=True)
class Contents:
    """One split of a published folder: its captions, its shards, and the rows of each file written."""

    split: str
    captions: Captions
    shards: Shards
    files: dict[str, int]


def dataset_card(
    params: PublishParams, contents: list[Contents], files: dict[str, Any], agreement: dict[str, Any] | None
) -> str:
    """README.md of the dataset, with the YAML header that the hub and `datasets` read."""
    sections = [
        f"---\n{yaml.safe_dump(_header(params, contents), sort_keys=False, allow_unicode=True)}---",
        f"# {params.name}\n\n{_introduction(params)}",
        _splits(contents),
        _columns(contents[0].shards),
        _how(contents[0].shards),
        _agreement(agreement),
        _checksums(files),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _header(params: PublishParams, contents: list[Contents]) -> dict[str, Any]:
    configs = [
        {
            "config_name": config,
            "data_files": [{"split": c.split, "path": f"{config}/{c.split}-*.parquet"} for c in contents],
            **({"default": True} if config == "relevance" else {}),
        }
        for config in ("relevance", "captions")
    ]
    return {
        "license": params.license,
        "language": [params.language],
        "pretty_name": params.name,
        "task_categories": ["text-retrieval", "image-to-text"],
        "tags": ["image-text-retrieval", "graded-relevance", "capgrade"],
        "size_categories": [_size(sum(c.shards.manifest["pairs"] for c in contents))],
        "configs": configs,
    }


def _size(rows: int) -> str:
    edges = [(1e3, "n<1K"), (1e4, "1K<n<10K"), (1e5, "10K<n<100K"), (1e6, "100K<n<1M"), (1e7, "1M<n<10M")]
    return next((name for edge, name in edges if rows < edge), "10M<n<100M" if rows < 1e8 else "100M<n<1B")


def _introduction(params: PublishParams) -> str:
    text = (
        "How relevant captions are to images they were not written for. Each row of `relevance` is an image and a "
        "caption with graded relevance by several measures.\n\n"
        "```python\n"
        "from datasets import load_dataset\n\n"
        'pairs = load_dataset("<this folder or repository>", "relevance")\n'
        'captions = load_dataset("<this folder or repository>", "captions")\n'
        "```"
    )
    return f"{params.description}\n\n{text}" if params.description else text


def _splits(contents: list[Contents]) -> str:
    rows = [
        f"| {c.split} | {c.captions.n_images:,} | {c.captions.n_captions:,} | {c.shards.manifest['pairs']:,} "
        f"| {c.captions.n_images * c.captions.n_captions:,} |"
        for c in contents
    ]
    head = "| split | images | captions | pairs kept | pairs scored |\n|---|---:|---:|---:|---:|"
    return "\n".join(["## Splits\n", head, *rows])


def _columns(shards: Shards) -> str:
    rows = [
        "| `image_id`, `caption_id` | string | the ids of the source |",
        "| `original` | bool | the caption was written for this image |",
        *(f"| `{m}` | float32 | {MEANING.get(m, 'imported from another program')} |" for m in shards.measures),
        "| `reasons` | list of string | why the pair was kept: `own` caption, among the highest (`top_*`), drawn from "
        "a window of a measure's range (`window_*`), drawn uniformly (`uniform`) |",
        "| `weight` | float32 | 1 / probability of being kept: `sum(weight * x) / captions` over an image's rows "
        "estimates the mean of x over all captions without bias |",
    ]
    return "\n".join(["## Columns of `relevance`\n", "| column | type | meaning |\n|---|---|---|", *rows])


def _how(shards: Shards) -> str:
    made = shards.metadata["params"]
    text = yaml.safe_dump({"shards": made["shards"], "measures": made["measures"]}, sort_keys=False)
    return (
        f"## How it was computed\n\ncapgrade {package_version()}, tokens by `{shards.metadata['tokenizer']}`. "
        f"Every caption of a split was scored against every image of it; the parameters:\n\n```yaml\n{text}```"
    )


def _agreement(agreement: dict[str, Any] | None) -> str:
    if not agreement:
        return ""
    rows = [
        f"| {name} | {_or_dash(row['pearson'].get('all'))} | {_or_dash(row['pearson'].get('non_original'))} "
        f"| {_or_dash(row['spearman'].get('all'))} | {_or_dash(row['spearman'].get('non_original'))} |"
        for name, row in agreement.items()
    ]
    head = (
        "| measure | Pearson, all | Pearson, non-original | Spearman, all | Spearman, non-original |\n"
        "|---|---:|---:|---:|---:|"
    )
    return "\n".join(["## Agreement with human judgements\n", head, *rows])


def _or_dash(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _checksums(files: dict[str, Any]) -> str:
    rows = [f"| `{name}` | {entry['rows']:,} | `{entry['sha256']}` |" for name, entry in files.items()]
    return "\n".join(["## Files\n", "| file | rows | SHA-256 |\n|---|---:|---|", *rows])
