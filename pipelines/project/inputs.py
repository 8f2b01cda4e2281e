"""Stage `inputs`: the state of the other stages' inputs, in small files that DVC can compare.

The state of a picture is its name and size. To read a hundred thousand pictures at every run would
take too long, and their dates change with every copy.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from capgrade.params import Params
from capgrade.schemas.files import file_digest, folder_digest, package_version, write_json
from capgrade.schemas.times import TIMES

_READ = 2**30  # bytes: the state of a larger file is its size, not its digest
CODE = {".py", ".yaml", ".j2", ".js", ".css", ".json", ".txt", ".safetensors"}
PACKAGE = Path(__file__).parents[2]


def write_inputs(params: Params, out: Path) -> dict[str, Any]:
    """Write code.json, captions.json, images.json and judgements.json, and make the folder in which
    times are kept."""
    captions, features = params.captions, params.regions.features
    images = [params.regions.images, params.regions.weights, *(features.input if features else ())]
    outputs = out.resolve().parent  # DVC already knows the files below this folder as outputs.

    def states_of(names: Iterable[str | None], read: bool) -> dict[str, Any]:
        paths = {name: Path(name) for name in names if name is not None}
        return {
            name: None if path.resolve().is_relative_to(outputs) else state_of(path, read)
            for name, path in paths.items()
        }

    states: dict[str, Any] = {
        "code": {"capgrade": package_version(), **checkout_digest()},
        "captions": states_of([*captions.inputs, *captions.split_lists.values()], read=True),
        "images": states_of(images, read=False),
        "judgements": states_of([params.agree.judgements], read=True),
    }
    for name, state in states.items():
        write_json(out / f"{name}.json", state)
    (out.parent / TIMES).mkdir(exist_ok=True)
    return states


def checkout_digest() -> dict[str, str]:
    """The digest of a checkout's code, which changes while the version does not; empty for an
    installed package."""
    if not (PACKAGE.parent / "pyproject.toml").is_file():
        return {}
    paths = (
        path for path, _ in walk_files(PACKAGE) if path.suffix in CODE and not path.is_symlink()
    )
    return {"sources": folder_digest(PACKAGE, paths)}


def state_of(path: Path, read: bool) -> Any:
    """The size or, with `read`, the digest of a file; the names and sizes of a folder's files; None
    for what is no path, such as the name of a dataset on the hub."""
    if path.is_file():
        size = path.stat().st_size
        return {"sha256": file_digest(path)} if read and size <= _READ else {"bytes": size}
    if path.is_dir():
        return {str(file.relative_to(path)): size for file, size in sorted(walk_files(path))}
    return None


def walk_files(folder: Path) -> Iterator[tuple[Path, int]]:
    """Files below a folder with their sizes, without hidden files and Python's caches. Links are
    followed."""
    seen = set()
    for parent, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(parent)
        if real in seen:  # A link to a folder above would never end.
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [
            name for name in folders if not name.startswith(".") and name != "__pycache__"
        ]
        for name in files:
            path = Path(parent, name)
            if not name.startswith(".") and path.exists():
                yield path, path.stat().st_size
