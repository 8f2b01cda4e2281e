"""Caption sources: one module per format, all with the same signature, and the catalogue of their readers."""

from __future__ import annotations

from capgrade.pipelines.sources.coco import read_coco
from capgrade.pipelines.sources.flickr import read_flickr
from capgrade.pipelines.sources.hub import read_hub
from capgrade.pipelines.sources.karpathy import read_karpathy
from capgrade.pipelines.sources.precomp import read_precomp
from capgrade.pipelines.sources.table import read_csv, read_jsonl, read_tsv
from capgrade.schemas.captions import SourceReader

# The embedded world, `scenes`, also draws pictures and is not a reader of files.
SOURCES: dict[str, SourceReader] = {
    "coco": read_coco,
    "karpathy": read_karpathy,
    "flickr": read_flickr,
    "precomp": read_precomp,
    "tsv": read_tsv,
    "csv": read_csv,
    "jsonl": read_jsonl,
    "hub": read_hub,
}
