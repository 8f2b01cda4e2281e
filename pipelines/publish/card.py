"""The dataset card of a published folder, from `card.md.j2`.

It has its metadata, how to load it, what it holds, and the commands and parameters that make it
again from its source, byte for byte.
"""

import json
import re
import shlex
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from capgrade.agreement.calibration import SHIPPED
from capgrade.labels.published import SUMS, measures_block
from capgrade.pipelines.publish.croissant import BIASES, LIMITS
from capgrade.pipelines.publish.tables import FIGURE, Contents, PublishedSplit
from capgrade.schemas.files import MANIFEST, leaves, package_version
from capgrade.schemas.judges import PEOPLE, SAID, TITLES
from capgrade.schemas.licences import OTHER
from capgrade.schemas.own_pairs import LEFT_OUT

ROWS = 5  # of the first image that are shown
_JUDGED = "# agreement.json: what `capgrade agree --out agreement.json` wrote for the judgements"


def dataset_card(contents: Contents) -> str:
    """README.md of the dataset, with the YAML header that the hub, `datasets` and mteb read."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    types = {"float": "float32", "double": "float64"}
    environment.filters |= {
        "cell": cell,
        "count": "{:,}".format,
        "left_out": lambda name: name + LEFT_OUT,
        "number": lambda value, missing: missing if value is None else f"{value:.3f}",
        "plain": "{:g}".format,
        "repr": repr,
        "type": lambda kind: re.sub(
            r"list<\w+: (\w+)>", r"list of \1", types.get(str(kind), str(kind))
        ),
    }
    links = [
        text.split(",", 1)[-1].strip() for text in metadata("capgrade").get_all("Project-URL") or []
    ]
    address = links[0] if links else "a Python package whose metadata name no address yet"
    program = f"capgrade {package_version()}, {address}"
    facts: dict[str, Any] = {}
    digests, splits = zip(
        *((one.captions.digest, one.captions.split) for one in contents.splits), strict=True
    )
    if contents.params.layout == "pairs":
        forms = sorted(
            {params.get("self_reference", "") for params in contents.used.values()} - {""}
        )
        facts = {
            "rows": _first_rows(contents),
            "forms": ", ".join(f"`{form}`" for form in forms) or "as given",
        }
        facts["own"] = [(name, _own_values(contents, name)) for name in contents.left_out]
    return environment.get_template("card.md.j2" if facts else "mteb.md.j2").render(
        contents=contents,
        params=contents.params,
        configs=contents.configs,
        calibrated=contents.calibrated,
        header=_header(contents),
        introduction=contents.introduction,
        program=program,
        digests=digests,
        splits=splits,
        agreement=contents.agreement,
        titles=TITLES,
        said=SAID,
        people=PEOPLE,
        source=contents.captions_params.get("source"),
        counts=contents.captions_counts,
        limits=(*LIMITS, contents.absent, *BIASES),
        sums=SUMS,
        manifest=MANIFEST,
        dense=contents.relevance_params and contents.relevance_params["relevance"],
        picture=FIGURE,
        tokenizer=contents.splits[0].captions.tokenizer,
        commands=commands(contents),
        parameters=parameters(contents).rstrip("\n"),
        **facts,
    )


def _header(contents: Contents) -> str:
    from datasets import DatasetInfo, Features, SplitDict, SplitInfo
    from datasets.info import DatasetInfosDict
    from huggingface_hub import DatasetCardData

    params, infos, configs = contents.params, {}, list[dict[str, Any]]()
    for config in contents.configs:
        tables = contents.tables(config)
        folder = next(iter(tables[0].files)).split("/")[0]
        files = [
            {"split": table.split, "path": f"{folder}/{table.split}-*.parquet"} for table in tables
        ]
        default = {} if configs else {"default": True}
        configs.append({"config_name": config, "data_files": files, **default})
        infos[config] = DatasetInfo(
            features=Features.from_arrow_schema(tables[0].schema),
            splits=SplitDict(
                {
                    t.split: SplitInfo(t.split, num_bytes=t.nbytes, num_examples=t.rows)
                    for t in tables
                }
            ),
            download_size=sum(
                contents.files[name]["bytes"] for table in tables for name in table.files
            ),
            dataset_size=sum(table.nbytes for table in tables),
        )
    data = DatasetCardData(
        language=list(params.languages) or None,
        license=params.license,
        pretty_name=params.name,
        annotations_creators=["machine-generated"],
        task_categories=["text-retrieval", "image-to-text"],
        size_categories=[size_category(contents.pairs)],
        tags=["image-text-retrieval", "graded-relevance", "capgrade", "croissant"],
        configs=configs,
    )
    if params.license == OTHER:
        data["license_name"], data["license_link"] = params.license_name, params.license_link
    DatasetInfosDict(infos).to_dataset_card_data(data)
    return data.to_yaml()


def size_category(rows: int) -> str:
    """The hub's name for a number of rows: n<1K, 1K<n<10K, ... 100B<n<1T, n>1T."""
    names = ["1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T"]
    k = next((k for k in range(len(names)) if rows < 10 ** (k + 3)), len(names))
    return (
        "n<1K"
        if k == 0
        else f"n>{names[-1]}"
        if k == len(names)
        else f"{names[k - 1]}<n<{names[k]}"
    )


def cell(value: object) -> str:
    """Somebody's words in a cell of a Markdown table, where no sign of it has its meaning."""
    return re.sub(r"([\\`*_{}\[\]<>()#!|~&$])", r"\\\1", " ".join(str(value).split()))


def _first_rows(contents: Contents) -> list[dict[str, Any]]:
    """An own pair of the first image, and others from the most to the least relevant.

    Relevance is by the last measure.
    """
    split = contents.splits[0]
    file = contents.out / next(iter(split.tables[0].files))
    table = next(pq.ParquetFile(file).iter_batches(4096))
    pairs = pa.Table.from_batches([table]).filter(pc.equal(table["image_id"], table["image_id"][0]))
    pairs = pairs.sort_by([("original", "descending"), (contents.measures[-1], "descending")])
    own = int(pc.sum(pairs["original"]).as_py())
    others = np.unique(
        np.linspace(own, pairs.num_rows - 1, min(ROWS - 1, pairs.num_rows - own)).astype(int)
    )
    texts = dict(zip(split.captions.caption_ids, split.captions.texts, strict=True))
    return [
        {**row, "caption": texts[row["caption_id"]]}
        for row in pairs.take([0, *others.tolist()]).to_pylist()
    ]


def _own_values(contents: Contents, name: str) -> list[float | None]:
    """Median and smallest value of own pairs, with the caption among its references and without."""
    columns = [name, name + LEFT_OUT]
    files = [contents.out / file for file in contents.tables("relevance")[0].files]
    own = pa.concat_tables(
        pq.read_table(file, columns=columns, filters=pc.field("original")) for file in files
    )
    values = [own[column].drop_null().to_numpy() for column in columns]
    return [
        value for v in values for value in ((np.median(v), v.min()) if len(v) else (None, None))
    ]


def parameters(contents: Contents) -> str:
    """params.yaml with every parameter of every stage; further splits differ by `--set`."""
    blocks = {"captions": contents.captions_params, **_made(contents.splits[0])}
    if contents.relevance_params:
        blocks["relevance"] = contents.relevance_params["relevance"]
    blocks["publish"] = contents.params.model_dump(mode="json")
    return yaml.safe_dump(blocks, sort_keys=False, allow_unicode=True)


def commands(contents: Contents) -> list[str]:
    """The command lines that make the dataset, with folders named after what they hold."""
    lines = ["capgrade captions --params params.yaml --out captions"]
    options, first = [], _made(contents.splits[0])
    for split in contents.splits:
        folder, sets = f"{split.kind}-{split.name}", set_options(first, _made(split))
        lines.append(
            f"capgrade {split.kind} --params params.yaml --captions captions{sets} --out {folder}"
        )
        options.append(f"--{split.kind} {folder}")
    if contents.relevance_params:
        dense = measures_block(contents.relevance_params["measures"])
        sets = set_options({"measures": first["measures"]}, {"measures": dense})
        lines.append(
            f"capgrade relevance --params params.yaml --captions captions{sets} --out relevance"
        )
        options.append("--relevance relevance")
    if contents.agreement:
        lines.append(_JUDGED)
        options.append("--agreement agreement.json")
    if contents.calibrated:
        file = contents.calibrated.file
        if contents.calibrated.shipped:
            file = SHIPPED.stem
        else:
            lines.append(
                f"# {file}: what `capgrade agree --calibrate` wrote, with the SHA-256 above"
            )
        options.append(f"--calibration {shlex.quote(file)}")
    return [
        *lines,
        (
            f"capgrade publish --params params.yaml --captions captions {' '.join(options)} --out"
            " dataset"
        ),
    ]


def _made(split: PublishedSplit) -> dict[str, Any]:
    """The blocks of params.yaml that the labels of a split follow from."""
    return {
        "measures": measures_block(split.params["measures"]),
        split.kind: split.params[split.kind],
    }


def set_options(first: dict[str, Any], other: dict[str, Any]) -> str:
    """Options `--set` that turn the first parameters into the others."""
    before = leaves(first)
    changed = [
        (key, value)
        for key, value in leaves(other).items()
        if key not in before or before[key] != value
    ]
    return "".join(f" --set {shlex.quote(f'{key}={json.dumps(value)}')}" for key, value in changed)
