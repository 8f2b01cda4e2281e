"""Caption sources: the catalogue of their readers, and what each has read."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from capgrade.pipelines.sources.divide import divide
from capgrade.pipelines.sources.hub import read_hub
from capgrade.pipelines.sources.json_files import read_coco, read_karpathy
from capgrade.pipelines.sources.table import read_table
from capgrade.pipelines.sources.text_files import read_flickr, read_precomp
from capgrade.pipelines.sources.webdataset import read_webdataset
from capgrade.pipelines.stages.captions import CaptionsParams
from capgrade.schemas.captions import Caption, parts_of_split
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import digests, folder_digest
from capgrade.schemas.tars import is_tars, list_tars
from capgrade.text.tokens import ptb_jar

# A reader takes what --input names, and counts in `left_out`, by reason, what it does not hand on.
# The embedded world, `scenes`, is not here, because it reads no file.
Reader = Callable[[str, CaptionsParams, Counter[str]], Iterator[Caption]]
SOURCES: dict[str, Reader] = {
    "coco": read_coco,
    "karpathy": read_karpathy,
    "flickr": read_flickr,
    "precomp": read_precomp,
    "tsv": read_table,
    "csv": read_table,
    "jsonl": read_table,
    "hub": read_hub,
    "webdataset": read_webdataset,
}


def read_source(params: CaptionsParams, left_out: Counter[str] | None = None) -> list[Caption]:
    """The captions of a source in file order, of the splits asked for, one input after the other.

    Splits keep the names they have in the source. What it leaves out is counted in `left_out`, by
    reason. The stage makes the checks that every source shares (duplicate ids, empty captions,
    images without captions). A reader raises InputError for what only it can see; here one is
    raised for tars of another source, and for a split that the source has not.
    """
    counts = Counter[str]() if left_out is None else left_out
    for name in params.inputs:
        if params.source != "webdataset" and is_tars(name):
            remedy = "read them with --source webdataset"
            raise InputError("WebDataset tars", file=name, remedy=remedy)
    if params.source not in SOURCES:
        remedy = (
            f"name a source of files: {', '.join(SOURCES)}; capgrade.grade takes captions from"
            " memory"
        )
        raise InputError(f"source {params.source} has no files", remedy=remedy)
    captions: list[Caption] = []
    for name in params.inputs:
        captions += SOURCES[params.source](name, params, counts)
    if params.divide:
        captions = list(divide(captions, params.divide, params.inputs[0]))
    # The stage has its own error for a source without captions.
    if params.split is None or not captions:
        return captions
    splits = list(dict.fromkeys(caption.split for caption in captions))
    wanted = parts_of_split(params.split, splits, params.inputs[0])
    return [caption for caption in captions if caption.split in wanted]


def digest_inputs(params: CaptionsParams) -> dict[str, str]:
    """SHA-256 of each file or folder the source read, by name, and of Java's tokenizer; of a SCAN
    folder the text files of the splits, no features."""
    if params.source == "webdataset":  # tars are mostly pictures, and may be a hundred gigabytes
        sizes = "\n".join(f"{tar.name} {tar.stat().st_size}" for tar in list_tars(params.inputs))
        return {"names and sizes of tars": hashlib.sha256(sizes.encode()).hexdigest()}
    files, folders = list[Path](), dict[str, str]()
    for name in (*params.inputs, *params.split_lists.values()):
        path = Path(name)
        if path.is_file():
            files.append(path)
        elif path.is_dir() and params.source == "precomp":
            files += sorted([*path.glob("*.txt"), *path.glob("*_caps.tsv")])
        elif path.is_dir():
            folders[path.resolve().name] = folder_digest(path)
    if params.tokenizer == "ptb":
        files.append(ptb_jar())
    return {**digests(files), **folders}
