"""Sections of the card: code that reads the dataset, five rows as they are, what the values are worth, and limits."""

from __future__ import annotations

import re
from importlib.metadata import metadata
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from capgrade.pipelines.measures.own_pairs import LEFT_OUT
from capgrade.pipelines.publish.contents import Contents
from capgrade.schemas.files import package_version
from capgrade.schemas.judges import PEOPLE, SAID, TITLES

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
COEFFICIENTS = [(name, pairs) for name in ("pearson", "spearman") for pairs in ("all", "non_original")]
LIMITS = """- Labels are computed from text: a caption is compared with the image's own captions, and nobody looked at
  the image. What those captions leave out counts as irrelevant.
- Measures are not people, and differ from one another; where agreement with judgements is known, it is given above.
- Captions carry what their writers assumed, such as gender, age, or origin of the people they describe; similarity of
  words or of sentence embeddings repeats that, and embeddings add what their training texts assumed.
- Measures with an English lexicon or model (METEOR, scene graphs, SPICE, most Sentence-BERT models) say little in other
  languages.
- Values of different measures have different scales, and equal values of two measures do not mean the same."""


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


def agreement(contents: Contents) -> str:
    """The table, under a title that says who judged, and of which split."""
    found = contents.agreement
    if not found:
        return ""
    facts = found["judgements"]
    head = (
        "| measure | Pearson, all | Pearson, non-original | Spearman, all | Spearman, non-original |\n"
        "|---|---:|---:|---:|---:|"
    )
    rows = [
        f"| {name} | {' | '.join(_or_dash(row[kind].get(pairs)) for kind, pairs in COEFFICIENTS)} |"
        for name, row in found["measures"].items()
    ]
    title = TITLES[facts["by"]] + ("" if facts["by"] == PEOPLE else ", not with people")
    return "\n".join([f"## {title}\n\n{_judged(contents, facts)}\n", head, *rows])


def _judged(contents: Contents, facts: dict[str, Any]) -> str:
    kind = f" of {facts['of']}" if "of" in facts else ""
    said = f"Correlation with {SAID[facts['by']]} (`{facts['file']}`, {facts['pairs']:,} pairs{kind}), on split "
    said += f"`{facts['split']}` of "
    if facts["captions"] not in {split.captions.digest for split in contents.splits}:
        return f"{said}**other captions** than those published here; how far it holds for these is not known."
    if facts["split"] in {split.captions.split for split in contents.splits}:
        return f"{said}these captions, which is published here."
    names = ", ".join(f"`{split.captions.split}`" for split in contents.splits)
    return f"{said}these captions. **Published here is {names}**, which was not judged."


def calibration(contents: Contents) -> str:
    """What the calibrated columns were learnt from, and how far they hold."""
    if contents.calibrated is None:
        return ""
    facts, known = contents.calibrated.calibration.facts, contents.calibrated
    judged = facts["judgements"]
    errors = ", ".join(f"`{name}` {known.calibration.curves[name].ece:.3f}" for name in known.measures)
    columns = ", ".join(f"`{name}`" for name in known.columns)
    sampled = (
        "Any pair was as likely to be judged."
        if known.calibration.random
        else "**The judged pairs were chosen for being alike.** Of other pairs with the same value people accept "
        "fewer, so the probabilities are too high for them, and that error says nothing of it."
    )
    return (
        f"## What a value means to people\n\n{columns} are what people said about pairs of the same value: learnt by "
        f"isotonic regression from the judgements of `{judged['file']}` (SHA-256 `{judged['sha256']}`; "
        f"{judged['pairs']:,} pairs, own pairs left out), scores of {facts['low']:g} to {facts['high']:g}, accepted "
        f"from {facts['accept']:g} on. "
        f"The calibration is `{known.file}` (SHA-256 `{known.sha256}`), made with capgrade {facts['package']}. Its "
        f"expected calibration error on images it was not fitted on: {errors}. {sampled}"
    )


def _or_dash(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def own_pairs(contents: Contents) -> str:
    """What `self_reference` means, and how far own pairs come down without themselves."""
    forms = {params.get("self_reference", "") for params in contents.used.values()}
    said = (
        "An image's reference set is its own captions. With `self_reference: included` an own pair's caption is "
        "compared with itself too, as the code of the papers does (pycocoevalcap as they call it for CIDEr-D and "
        "ROUGE-L, DAA's tf-idf cosine, BCLS's and TERAN's labels): its value is then the measure's largest, or near "
        "it, whatever the image's other captions say, so **own pairs cannot be compared with one another, nor fairly "
        "with others**. With `self_reference: left_out` it is compared with the other captions alone."
    )
    if not contents.left_out:
        used = f"Here: {', '.join(f'`{form}`' for form in sorted(forms) if form) or 'as given'}."
        return f"## A caption among its own references\n\n{said} {used}"
    columns = ", ".join(f"`{name}{LEFT_OUT}`" for name in contents.left_out)
    beside = f"The measures' columns hold the papers' form, `included`; {columns} hold own pairs the other way."
    table = "| own pairs of | median, itself included | smallest | median, itself left out | smallest |\n"
    rows = "\n".join(_own_row(contents, name) for name in contents.left_out)
    return f"## A caption among its own references\n\n{said} {beside}\n\n{table}|---|---:|---:|---:|---:|\n{rows}"


def _own_row(contents: Contents, name: str) -> str:
    files = [contents.folder / file for file in contents.tables("relevance")[0].files]
    read = [pq.read_table(file, columns=["original", name, name + LEFT_OUT]) for file in files]
    own = [table.filter(table["original"]) for table in read]
    values = [np.concatenate([t[column].drop_null().to_numpy() for t in own]) for column in (name, name + LEFT_OUT)]
    cells = [f"{np.median(v):.3f} | {v.min():.3f}" if len(v) else "– | –" for v in values]
    return f"| {name} | {' | '.join(cells)} |"


def images(contents: Contents) -> str:
    """The card's section about where the images are."""
    source = contents.captions_params.get("source")
    where = (
        "They are drawn: the first command below makes them again, in `captions/images.arrow`, by `image_id`."
        if source == "scenes"
        else "They are where the captions come from, under its own terms: `image_id` is the id that they have there, "
        "`image_file` the file's name, where the source gives one."
    )
    known = f" The captions were read from source `{source}`." if source else ""
    return f"## Images\n\nThe images are not in this dataset. {where}{known}"


def limits(contents: Contents) -> str:
    """The card's section about limits and biases."""
    return f"## Limits and biases\n\n{LIMITS}\n\nLanguage of the captions: `{contents.params.language}`."


def program() -> str:
    """capgrade and its address, as its own metadata give them."""
    links = [text.split(",", 1)[-1].strip() for text in metadata("capgrade").get_all("Project-URL") or []]
    address = f", {links[0]}" if links else ", a Python package whose metadata name no address yet"
    return f"capgrade {package_version()}{address}"
