"""Caption sources: the catalogue of their readers."""

from collections.abc import Callable, Iterator

from capgrade.pipelines.sources.divide import divide
from capgrade.pipelines.sources.fields import keep_splits
from capgrade.pipelines.sources.json_files import read_coco, read_karpathy
from capgrade.pipelines.sources.table import read_hub, read_table
from capgrade.pipelines.sources.text_files import read_flickr, read_precomp
from capgrade.schemas.captions import Caption
from capgrade.schemas.params import CaptionsParams

# Each takes what --input names. The embedded world, `scenes`, also draws pictures and is not a reader of files.
SOURCES: dict[str, Callable[[str, CaptionsParams], Iterator[Caption]]] = {
    "coco": read_coco,
    "karpathy": read_karpathy,
    "flickr": read_flickr,
    "precomp": read_precomp,
    "tsv": read_table,
    "csv": read_table,
    "jsonl": read_table,
    "hub": read_hub,
}


def read_source(params: CaptionsParams) -> Iterator[Caption]:
    """The captions of a source in file order, of the splits asked for. Checks that every source shares (duplicate ids,
    empty captions, images without captions) are the stage's; a source refuses what only it can see, by InputError."""
    assert params.input is not None  # CaptionsParams asks for it
    captions = SOURCES[params.source](params.input, params)
    if params.divide:
        captions = divide(captions, params.divide, params.input)
    return keep_splits(captions, params.split, params.input)
