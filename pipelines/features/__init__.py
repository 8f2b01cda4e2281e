"""Readers and writers of other code bases' feature files, by the name of the format."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from capgrade.pipelines.features.damage import ImageEntry
from capgrade.pipelines.features.npz import read_npz_folder, read_teran, write_npz
from capgrade.pipelines.features.scan import read_h5, read_own_array, read_scan, write_scan
from capgrade.pipelines.features.tsv import read_lxmert, read_tsv, write_tsv
from capgrade.schemas.regions import Regions

# A reader takes the path of a file or folder. teran takes the folder of boxes as well, and npy the
# file of ids; tsv and lxmert take `input_dtype`.
READERS: dict[str, Callable[..., Iterator[ImageEntry]]] = {
    "tsv": read_tsv,
    "npz": read_npz_folder,
    "teran": read_teran,
    "scan": read_scan,
    "h5": read_h5,
    "lxmert": read_lxmert,
    "npy": read_own_array,
}
# A writer takes a path and images, and returns the number of rows or files that it has written.
WRITERS: dict[str, Callable[[Path, Iterable[Regions]], int]] = {
    "tsv": write_tsv,
    "scan": write_scan,
    "npz": write_npz,
}
