"""DAA's `{split}.h5`: SCAN's array as an HDF5 dataset called feat."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from capgrade.pipelines.features.damage import listed, refused
from capgrade.pipelines.features.scan import ids_file, read_rows
from capgrade.schemas.errors import InputError
from capgrade.schemas.regions import Regions

DATASET = "feat"
MOST_BYTES = 2**30  # of a chunk, unpacked: it is read whole for one row


def read_h5(path: Path) -> Iterator[Regions]:
    """Dataset `feat` float32 [rows, n, d] of `{split}.h5`, read a few rows at a time (DAA, np2h.py).

    It is `{split}_ims.npy` under another name, so the image ids are those of SCAN's `{split}_ids.txt`, which has to
    lie beside it, and rows may come five times. Raises InputError as `read_scan` does, and for a missing dataset.
    Known limit: libhdf5 itself may not return from opening a dataset whose headers are damaged.
    """
    import h5py  # only this format needs it

    ids_path = ids_file(path, ".h5")
    with refused(path):
        path.open("rb").close()  # h5py's words for a missing file are long
        file = h5py.File(path, "r")
    with file:
        with refused(path):
            names = list(file)
            found = file.get(DATASET) if isinstance(file.get(DATASET, getlink=True), h5py.HardLink) else None
            elsewhere = isinstance(found, h5py.Dataset) and (found.external or found.is_virtual)
        if elsewhere:
            raise InputError(f"{DATASET!r} takes its numbers from other files", file=path, remedy="copy them into it")
        if not isinstance(found, h5py.Dataset):
            problem = f"no dataset {DATASET!r}: it has {listed(names)}"
            raise InputError(problem, file=path, remedy="give the file that DAA's np2h.py writes")
        if found.chunks and math.prod(found.chunks) * found.dtype.itemsize > MOST_BYTES:
            raise InputError(f"chunks of shape {found.chunks}", file=path, remedy="write it again in smaller chunks")
        yield from read_rows(found, ids_path, path)
