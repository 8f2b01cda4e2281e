"""The dataset card of a published folder: its metadata, how to load it, what it holds and how that was computed."""

from __future__ import annotations

import re
from typing import Any

from capgrade.pipelines.publish import sections
from capgrade.pipelines.publish.contents import MANIFEST, PICTURE, SUMS, Contents
from capgrade.pipelines.publish.recipe import commands, parameters
from capgrade.schemas.licences import OTHER

CONFIGS = ("relevance", "captions")


def dataset_card(contents: Contents) -> str:
    """README.md of the dataset, with the YAML header that the hub and `datasets` read."""
    parts = [
        f"---\n{_header(contents)}---",
        f"# {contents.params.name}\n\n{introduction(contents)}",
        sections.loading(contents),
        _splits(contents),
        *(_columns(contents, config) for config in CONFIGS),
        sections.example_rows(contents),
        sections.looking_up(contents),
        sections.own_pairs(contents),
        sections.agreement(contents),
        sections.calibration(contents),
        _distributions(contents),
        sections.images(contents),
        sections.limits(contents),
        _how(contents),
        _checksums(contents.files),
        _licence(contents),
        f"## Citation\n\n{contents.params.citation}" if contents.params.citation else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def introduction(contents: Contents) -> str:
    """The card's first paragraphs: the user's description, and what a row is."""
    text = (
        "How relevant captions are to images they were not written for. Each row of `relevance` is an image and a "
        f"caption with their graded relevance by {len(contents.measures)} measure(s): {', '.join(contents.measures)}."
    )
    return f"{contents.params.description}\n\n{text}" if contents.params.description else text


def _header(contents: Contents) -> str:
    from datasets.info import DatasetInfosDict
    from huggingface_hub import DatasetCardData

    params = contents.params
    data = DatasetCardData(
        language=[params.language] if params.language else None,
        license=params.license,
        pretty_name=params.name,
        annotations_creators=["machine-generated"],
        task_categories=["text-retrieval", "image-to-text"],
        size_categories=[size_category(contents.pairs)],
        tags=["image-text-retrieval", "graded-relevance", "capgrade", "croissant"],
        configs=[_config(contents, config) for config in CONFIGS],
    )
    if params.license == OTHER:
        data["license_name"], data["license_link"] = params.license_name, params.license_link
    DatasetInfosDict({config: _info(contents, config) for config in CONFIGS}).to_dataset_card_data(data)
    return f"{data.to_yaml()}\n"


def _config(contents: Contents, config: str) -> dict[str, Any]:
    files = [{"split": table.split, "path": f"{config}/{table.split}-*.parquet"} for table in contents.tables(config)]
    return {"config_name": config, "data_files": files, **({"default": True} if config == CONFIGS[0] else {})}


def _info(contents: Contents, config: str) -> Any:
    """The features and sizes of a config, as `datasets` keeps them in a card."""
    from datasets import DatasetInfo, Features, SplitDict, SplitInfo

    tables = contents.tables(config)
    return DatasetInfo(
        features=Features.from_arrow_schema(tables[0].schema),
        splits=SplitDict({t.split: SplitInfo(t.split, num_bytes=t.nbytes, num_examples=t.rows) for t in tables}),
        download_size=sum(contents.files[name]["bytes"] for table in tables for name in table.files),
        dataset_size=sum(table.nbytes for table in tables),
    )


def size_category(rows: int) -> str:
    """The hub's name for a number of rows: n<1K, 1K<n<10K, ... 100B<n<1T, n>1T."""
    names = ["1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T"]
    k = next((k for k in range(len(names)) if rows < 10 ** (k + 3)), len(names))
    return "n<1K" if k == 0 else f"n>{names[-1]}" if k == len(names) else f"{names[k - 1]}<n<{names[k]}"


def _splits(contents: Contents) -> str:
    rows = [
        f"| {split.name} | {split.captions.n_images:,} | {split.captions.n_captions:,} | {split.tables[0].rows:,} "
        f"| {split.captions.n_images * split.captions.n_captions:,} |"
        for split in contents.splits
    ]
    head = "| split | images | captions | pairs kept | pairs scored |\n|---|---:|---:|---:|---:|"
    return "\n".join(["## Splits\n", head, *rows])


def _columns(contents: Contents, config: str) -> str:
    schema = contents.tables(config)[0].schema
    rows = [f"| `{field.name}` | {_type(str(field.type))} | {contents.meaning(field.name)} |" for field in schema]
    return "\n".join([f"## Columns of `{config}`\n", "| column | type | meaning |\n|---|---|---|", *rows])


def _type(arrow: str) -> str:
    return re.sub(r"list<\w+: (\w+)>", r"list of \1", arrow).replace("float", "float32")


def _distributions(contents: Contents) -> str:
    if contents.relevance_params is None:
        return ""
    split = contents.relevance_params["relevance"]["split"]
    where = f"split `{split}`" if split else "the captions"
    alt = "histograms of each measure on own and on other pairs"
    return f"## Distribution of the measures\n\nOver every pair of {where}, none left out:\n\n![{alt}]({PICTURE})"


def _how(contents: Contents) -> str:
    tokenizer = contents.splits[0].shards.metadata["tokenizer"]
    return (
        f"## How it was computed\n\nWith {sections.program()}; tokens by `{tokenizer}`. Every caption of a "
        "split was scored against every image of it. These commands, with this `params.yaml` and the files that "
        "it names beside it, make this folder again:\n\n```bash\n"
        + "\n".join(commands(contents))
        + f"\n```\n\n```yaml\n{parameters(contents)}```"
    )


def _checksums(files: dict[str, dict[str, Any]]) -> str:
    rows = [f"| `{name}` | {e['rows']:,} | {e['bytes']:,} | `{e['sha256']}` |" for name, e in files.items()]
    check = (
        f"`sha256sum -c {SUMS}` checks all files of a copy, `capgrade publish --check` a copy or the repository "
        f"against `{MANIFEST}`."
    )
    return "\n".join(["## Files\n", f"{check}\n", "| file | rows | bytes | SHA-256 |\n|---|---:|---:|---|", *rows])


def _licence(contents: Contents) -> str:
    params = contents.params
    name = f"[{params.license_name}]({params.license_link})" if params.license == OTHER else params.license
    return f"## Licence\n\n{name}"
