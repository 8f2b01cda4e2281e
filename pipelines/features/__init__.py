"""Other people's feature files: one module per format, a path in and regions out, and the
catalogues."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from capgrade.pipelines.features.damage import Found
from capgrade.pipelines.features.npz import read_npz, read_teran, write_npz
from capgrade.pipelines.features.scan import read_h5, read_npy, read_scan, write_scan
from capgrade.pipelines.features.tsv import read_lxmert, read_tsv, write_tsv
from capgrade.schemas.regions import Regions

# A path and, of teran's boxes and npy's ids, another one beside it; tsv and lxmert take
# `input_dtype` too.
READERS: dict[str, Callable[..., Iterator[Found]]] = {
    "tsv": read_tsv,
    "npz": read_npz,
    "teran": read_teran,
    "scan": read_scan,
    "h5": read_h5,
    "lxmert": read_lxmert,
    "npy": read_npy,
}
# Images to a path; returned are the rows or files written.
WRITERS: dict[str, Callable[[Path, Iterable[Regions]], int]] = {
    "tsv": write_tsv,
    "scan": write_scan,
    "npz": write_npz,
}
