"""Coverage-guided fuzzing of a reader with atheris (`pip install -e '.[fuzz]'`); what it finds is written to a folder.

    python -m tests.tools.fuzz captions.coco -- -max_total_time=60

Options after `--` go to libFuzzer. A reader may raise InputError and nothing else; any other exception, a crash, or an
input that takes longer than 10 s ends the run with status 77 and leaves the input as a file.
"""

from __future__ import annotations

import argparse
import pickle
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

try:
    import atheris
except ImportError:  # Python versions and systems that it is not built for
    sys.exit("atheris is not installed -> pip install -e '.[fuzz]'")

with atheris.instrument_imports(
    include=[
        "capgrade.pipelines.sources",
        "capgrade.pipelines.features",
        "capgrade.pipelines.detectors",
        "capgrade.schemas",
    ]
):
    from capgrade.pipelines.detectors.caffemodel import read_caffemodel
    from capgrade.pipelines.detectors.checkpoint import read_safetensors
    from capgrade.pipelines.features import READERS
    from capgrade.pipelines.sources import SOURCES
    from capgrade.schemas.errors import InputError
    from capgrade.schemas.files import MANIFEST, open_arrow, parse_manifest, self_digest, write_json
    from capgrade.schemas.params import CaptionsParams
    from capgrade.schemas.pickles import read_pickle, read_torch
    from capgrade.schemas.regions import Regions, write_regions

Reader = Callable[[Path], object]  # of the file that was written
NAMES = {"scan": "t_ims.npy", "npz": "0.npz", "teran": "bu_box/0.npy", "precomp": "test_caps.txt"}


def _captions(source: str) -> Reader:
    split = "test" if source == "precomp" else None

    def read(path: Path) -> object:
        given = path.parent if source == "precomp" else path
        return list(SOURCES[source](CaptionsParams(source=source, input=str(given), split=split)))  # type: ignore[arg-type]

    return read


def _regions(kind: str) -> Reader:
    def read(path: Path) -> object:
        return list(READERS[kind]({"npz": path.parent, "teran": path.parents[1]}.get(kind, path)))

    return read


def _table(path: Path) -> object:
    return open_arrow(path).read_all().to_pylist()


TARGETS: dict[str, Reader] = {
    **{f"captions.{name}": _captions(name) for name in SOURCES if name != "hub"},
    **{f"regions.{name}": _regions(name) for name in READERS if name != "h5"},  # libhdf5 may not return
    "manifest": lambda path: parse_manifest(path),
    "arrow": _table,
    "weights.pickle": read_pickle,
    "weights.torch": read_torch,
    "weights.caffe": read_caffemodel,
    "weights.safetensors": read_safetensors,
}


def seed_of(target: str, folder: Path) -> Path:
    """A folder with one whole file of ours to start from, where we write that format."""
    x = np.ones((2, 4), np.float32)
    folder.mkdir()
    if target == "arrow":
        write_regions(folder / "made", [Regions("a", 9, 9, x, x)], dtype="float32")
        (folder / "made" / "regions-00000.arrow").rename(folder / "seed")
    if target == "weights.pickle":
        (folder / "seed").write_bytes(pickle.dumps({"model": {"a": x, "b": [np.float64(2), {1}]}}, 2))
    if target == "weights.torch":
        for zipped in (True, False):
            torch.save({"a": torch.ones(3)}, folder / f"seed-{zipped}", _use_new_zipfile_serialization=zipped)
    if target == "manifest":
        files = {"a.arrow": {"rows": 1, "bytes": 2, "sha256": "0"}}
        manifest = {"kind": "shards", "format": 2, "files": files, "inputs": {}, "params": {}}
        write_json(folder / "seed", {**manifest, "sha256": self_digest(manifest)})
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("options", nargs="*", help="of libFuzzer, after --")
    given = parser.parse_args()
    kind = given.target.rpartition(".")[2]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "files" / NAMES.get(kind, MANIFEST)
        path.parent.mkdir(parents=True)
        (path.parent / "t_ids.txt").write_text("0\n1\n", encoding="utf-8")
        if kind == "teran":
            (folder / "files" / "bu_att").mkdir()
            np.savez(folder / "files" / "bu_att" / "0.npz", feat=np.ones((2, 4), np.float32))

        def once(data: bytes) -> None:
            path.write_bytes(data)
            try:
                TARGETS[given.target](path)
            except InputError as error:
                assert "\n" not in str(error)

        seeds = seed_of(given.target, folder / "seeds")
        atheris.Setup([sys.argv[0], "-timeout=10", *given.options, str(seeds)], once)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
