"""Sections of the card that show how to read the dataset: code that runs, and five rows as they are."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from capgrade.pipelines.measures.own_pairs import LEFT_OUT
from capgrade.pipelines.publish.contents import Contents

HERE, ROWS = "dataset", 5
LOADING = """from datasets import load_dataset

where = "{where}"{note}
pairs = load_dataset(where, "relevance"{revision})
captions = load_dataset(where, "captions"{revision})"""
STREAMING = """from datasets import load_dataset

pairs = load_dataset("{where}", "relevance", split="{split}", streaming=True{revision})
for pair in pairs.take(3):
    print(pair)"""
SELECTING = """from datasets import load_dataset

columns = ["image_id", "caption_id", "{measure}"]
pairs = load_dataset("{where}", "relevance", split="{split}", columns=columns, streaming=True{revision})
relevant = pairs.filter(lambda pair: pair["{measure}"] > 0.5)"""
LOOKING_UP = """from datasets import load_dataset

pairs = load_dataset("{where}", "relevance", split="{split}"{revision})
row = {{ids: k for k, ids in enumerate(zip(pairs["image_id"], pairs["caption_id"]))}}


def look_up(image_id, caption_id):
    at = row.get((image_id, caption_id))
    return None if at is None else pairs[at]  # None: not sampled, which is not "not relevant"


print(look_up({image!r}, {caption!r}))"""


def loading(contents: Contents) -> str:
    """The card's section with code that loads the tables."""
    whole, streaming, selecting = (_python(text, contents) for text in (LOADING, STREAMING, SELECTING))
    return (
        f"## Loading\n\n{whole}\n\nWithout a download, row by row as they are needed:\n\n{streaming}\n\n"
        f"Only some columns, the others are not read:\n\n{selecting}"
    )


def looking_up(contents: Contents) -> str:
    """The card's section about pairs that were not sampled."""
    text = (
        "Every caption of a split was scored against every image of it, and a sample of the pairs was kept: **a pair "
        "that is absent was not sampled**. That says little of its relevance: an image's own captions and its "
        "`shards.top` most relevant ones by each measure are all here, any other pair is by chance. "
        "Use `weight` for means over all pairs. To look pairs up:"
    )
    return f"## A pair that is not here\n\n{text}\n\n{_python(LOOKING_UP, contents)}"


def _python(text: str, contents: Contents) -> str:
    repository, params = contents.params.repository, contents.params
    first = _rows(contents)[0]
    values = {
        "where": repository or HERE,
        "note": "" if repository else "  # this folder, or the repository that it was uploaded to",
        "revision": f', revision="{params.version}"' if repository else "",
        "split": contents.splits[0].name,
        "measure": contents.measures[-1],
        "image": first["image_id"],
        "caption": first["caption_id"],
    }
    return f"```python\n{text.format(**values)}\n```"


def example_rows(contents: Contents) -> str:
    """Of the first image: an own pair, and others from the most to the least relevant by the last measure."""
    names, values = ["image_id", "original"], [*contents.measures, *(name + LEFT_OUT for name in contents.left_out)]
    heads = [*names, "caption", *values]
    lines = [
        "| "
        + " | ".join([*(text(row[n]) for n in names), text(row["caption"]), *(_number(row[v]) for v in values)])
        + " |"
        for row in _rows(contents)
    ]
    rule = "|" + "---|" * 3 + "---:|" * len(values)
    about = f"Of the first image of `{contents.splits[0].name}`, with the captions' texts from config `captions`:"
    return "\n".join([f"## Rows\n\n{about}\n", "| " + " | ".join(f"`{h}`" for h in heads) + " |", rule, *lines])


def _rows(contents: Contents) -> list[dict[str, Any]]:
    split = contents.splits[0]
    first = next(iter(split.tables[0].files))
    table = next(pq.ParquetFile(contents.folder / first).iter_batches(4096))
    pairs = pa.Table.from_batches([table]).filter(pc.equal(table["image_id"], table["image_id"][0]))
    pairs = pairs.sort_by([("original", "descending"), (contents.measures[-1], "descending")])
    own = int(pc.sum(pairs["original"]).as_py())
    others = np.unique(np.linspace(own, pairs.num_rows - 1, min(ROWS - 1, pairs.num_rows - own)).astype(int))
    texts = dict(zip(split.captions.caption_ids, split.captions.texts, strict=True))
    found = pairs.take([0, *others.tolist()]).to_pylist()
    return [{**row, "caption": texts[row["caption_id"]]} for row in found]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def text(value: object) -> str:
    """Somebody's words in a cell of a Markdown table: no sign of it makes anything else of them."""
    return re.sub(r"([\\`*_{}\[\]<>()#!|~&$])", r"\\\1", " ".join(str(value).split()))
