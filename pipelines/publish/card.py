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
from capgrade.labels.layout import DIGEST, SUMS, TASK
from capgrade.measures.refit import measures_block
from capgrade.pipelines.publish.croissant import limits_of
from capgrade.pipelines.publish.tables import FIGURE, Contents, PublishedSplit
from capgrade.pipelines.publish.task import class_stem
from capgrade.schemas.files import MANIFEST, leaves, package_version
from capgrade.schemas.judges import PEOPLE, SAID, TITLES
from capgrade.schemas.licences import OTHER
from capgrade.schemas.natures import recorded
from capgrade.schemas.pairs import LEFT_OUT

ROWS = 5  # of the first image that are shown
_JUDGED = "# agreement.json: what `capgrade agree --out agree` wrote for the judgements"


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
        "number": lambda value, missing: missing if value is None else f"{value:.3f}",
        "plain": "{:g}".format,
        "repr": repr,
        "type": lambda kind: re.sub(
            r"list<\w+: (\w+)>", r"list of \1", types.get(str(kind), str(kind))
        ),
    }
    links = metadata("capgrade").get_all("Project-URL") or [""]
    address = (
        links[0].split(",", 1)[-1].strip() or "a Python package whose metadata name no address yet"
    )
    facts: dict[str, Any] = {}
    if contents.params.layout == "pairs":
        forms = {params.get("self_reference", "") for params in contents.used.values()} - {""}
        facts = {
            "rows": _first_rows(contents),
            "own": _own_values(contents),
            "forms": sorted(forms),
        }
    return environment.get_template("card.md.j2" if facts else "mteb.md.j2").render(
        contents=contents,
        header=_header(contents),
        program=f"capgrade {package_version()}, {address}",
        titles=TITLES,
        said=SAID,
        people=PEOPLE,
        limits=limits_of(contents),
        digest=DIGEST,
        sums=SUMS,
        task=TASK,
        stem=class_stem(str(contents.params.name)),
        manifest=MANIFEST,
        picture=FIGURE,
        commands=commands(contents),
        parameters=parameters(contents).rstrip("\n"),
        **facts,
    )


def _header(contents: Contents) -> str:
    from datasets import DatasetInfo, Features, SplitDict, SplitInfo
    from datasets.info import DatasetInfosDict
    from huggingface_hub import DatasetCardData

    params, infos, configs, pairs = contents.params, {}, list[dict[str, Any]](), 0
    for config, tables in contents.tables.items():
        files, splits, info = [], {}, DatasetInfo(download_size=0, dataset_size=0)
        for table in tables:
            folder = next(iter(table.files)).split("/")[0]
            files.append({"split": table.split, "path": f"{folder}/{table.split}-*.parquet"})
            splits[table.split] = SplitInfo(
                table.split, num_bytes=table.nbytes, num_examples=table.rows
            )
            info.dataset_size += table.nbytes
            for name in table.files:
                info.download_size += contents.files[name]["bytes"]
            if config in ("relevance", "t2i-qrels", "i2t-qrels"):
                pairs += table.rows
        info.features, info.splits = Features.from_arrow_schema(tables[0].schema), SplitDict(splits)
        infos[config] = info
        default = {} if configs else {"default": True}
        configs.append({"config_name": config, "data_files": files, **default})
    data = DatasetCardData(
        language=list(params.languages) or None,
        license=params.license,
        pretty_name=str(params.name),
        # Who gave judgements is not known here.
        annotations_creators=None if contents.judged else ["machine-generated"],
        task_categories=["text-retrieval", "image-to-text"],
        size_categories=[size_category(pairs)],
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
    k = len(str(rows)) - 3  # how many of these it reaches
    if k < 1:
        return "n<1K"
    return f"n>{names[-1]}" if k >= len(names) else f"{names[k - 1]}<n<{names[k]}"


def cell(value: object) -> str:
    """Somebody's words in a cell of a Markdown table, where no sign of it has its meaning."""
    return re.sub(r"([\\`*_{}\[\]<>()#!|~&$])", r"\\\1", " ".join(str(value).split()))


def _first_rows(contents: Contents) -> list[dict[str, Any]]:
    """An own pair of the first image, and others from the most to the least relevant.

    Relevance is by the last measure.
    """
    captions = contents.splits[0].captions
    file = contents.out / next(iter(contents.tables["relevance"][0].files))
    table = next(pq.ParquetFile(file).iter_batches(4096))
    pairs = pa.Table.from_batches([table]).filter(pc.equal(table["image_id"], table["image_id"][0]))
    pairs = pairs.sort_by([("original", "descending"), (contents.measures[-1], "descending")])
    own = int(pc.sum(pairs["original"]).as_py())
    others = np.unique(
        np.linspace(own, pairs.num_rows - 1, min(ROWS - 1, pairs.num_rows - own)).astype(int)
    )
    rows = pairs.take([0, *others.tolist()]).to_pylist()
    if contents.params.captions == "texts":
        texts = dict(zip(captions.caption_ids, captions.texts, strict=True))
        for row in rows:
            row["caption"] = texts[row["caption_id"]]
    return rows


def _own_values(contents: Contents) -> list[tuple[str, list[float | None]]]:
    """Of each measure the median and the smallest value of own pairs of the first split.

    First with the caption among its references, then without; None where there are none.
    """
    rows = []
    for without in contents.left_out:
        name, found = without.removesuffix(LEFT_OUT), list[float | None]()
        files = [contents.out / file for file in contents.tables["relevance"][0].files]
        own = pq.read_table(files, columns=[name, without], filters=pc.field("original"))
        for column in (name, without):
            values = own[column].drop_null().to_numpy()
            found += [np.median(values), values.min()] if len(values) else [None, None]
        rows.append((name, found))
    return rows


def parameters(contents: Contents) -> str:
    """params.yaml with every parameter of every stage; further splits differ by `--set`."""
    blocks = {"captions": contents.captions["params"]["captions"], **_made(contents.splits[0])}
    if contents.relevance:
        blocks["relevance"] = contents.relevance["params"]["relevance"]
    blocks["publish"] = recorded(contents.params)
    if contents.calibrated and contents.calibrated.shipped:
        blocks["publish"]["calibration"] = SHIPPED.stem
    return yaml.safe_dump(blocks, sort_keys=False, allow_unicode=True)


def commands(contents: Contents) -> list[str]:
    """The command lines that make the dataset, with folders named after what they hold."""
    lines = ["capgrade captions --params params.yaml --out captions"]
    options, first = [], _made(contents.splits[0])
    for split in contents.splits:
        if contents.judged:
            lines.append(f"# {contents.judged.file}: the judgements, with the SHA-256 above")
            continue
        kind, sets = split.manifest["kind"], _set_options(first, _made(split))
        folder = f"{kind}-{split.name}"
        lines.append(
            f"capgrade {kind} --params params.yaml --captions captions{sets} --out {folder}"
        )
        options.append(f"--{kind} {folder}")
    if contents.relevance:
        dense = measures_block(contents.relevance["params"]["measures"])
        sets = _set_options({"measures": first["measures"]}, {"measures": dense})
        lines.append(
            f"capgrade relevance --params params.yaml --captions captions{sets} --out relevance"
        )
        options.append("--relevance relevance")
    if contents.agreement:
        lines.append(_JUDGED)
        options.append("--agreement agreement.json")
    if contents.calibrated:
        file = contents.calibrated.file
        if not contents.calibrated.shipped:
            lines.append(
                f"# {file}: what `capgrade agree --calibrate` wrote, with the SHA-256 above"
            )
    return [
        *lines,
        (
            " ".join(["capgrade publish --params params.yaml --captions captions", *options])
            + " --out dataset"
        ),
    ]


def _made(split: PublishedSplit) -> dict[str, Any]:
    """The blocks of params.yaml that the labels of a split follow from."""
    params, kind = split.manifest["params"], split.manifest["kind"]
    if kind not in params:  # judgements are made by no command
        return {}
    return {"measures": measures_block(params["measures"]), kind: params[kind]}


def _set_options(first: dict[str, Any], other: dict[str, Any]) -> str:
    """Options `--set` that turn the first parameters into the others."""
    before, options = leaves(first), ""
    for key, value in leaves(other).items():
        if key not in before or before[key] != value:
            options += f" --set {shlex.quote(f'{key}={json.dumps(value)}')}"
    return options
