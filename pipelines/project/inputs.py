"""Stage `inputs`: what the other stages are made of, in small files that DVC can compare.

A picture is known by its name and size: to read a hundred thousand of them at every run would take
too long, and their dates change whenever they are copied.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from capgrade.params import Params
from capgrade.schemas.files import package_version, write_json
from capgrade.schemas.inputs import file_digest, folder_digest
from capgrade.schemas.times import TIMES

_READ = 2**30  # bytes: a larger file is known by its size
CODE = {".py", ".yaml", ".j2", ".js", ".css", ".json", ".txt", ".safetensors"}
PACKAGE = Path(__file__).parents[2]


def write_inputs(params: Params, out: Path) -> dict[str, Any]:
    """Write code.json, captions.json, images.json and judgements.json, and make the folder that
    times are kept in."""
    captions, features = params.captions, params.regions.features
    images = [params.regions.images, params.regions.weights, *(features.input if features else ())]
    made = out.resolve().parent  # what lies below it the pipeline makes: DVC knows it as an output

    def given(names: Iterable[str | None], read: bool) -> dict[str, Any]:
        paths = {name: Path(name) for name in names if name is not None}
        return {
            name: None if path.resolve().is_relative_to(made) else file_or_folder(path, read)
            for name, path in paths.items()
        }

    found: dict[str, Any] = {
        "code": {"capgrade": package_version(), **checkout_digest()},
        "captions": given([*captions.inputs, *captions.split_lists.values()], read=True),
        "images": given(images, read=False),
        "judgements": given([params.agree.judgements], read=True),
    }
    for name, content in found.items():
        write_json(out / f"{name}.json", content)
    (out.parent / TIMES).mkdir(exist_ok=True)
    return found


def checkout_digest() -> dict[str, str]:
    """Of a checkout the digest of its code, which changes while the version does not; nothing of an
    installed one."""
    if not (PACKAGE.parent / "pyproject.toml").is_file():
        return {}
    paths = (path for path, _ in walk(PACKAGE) if path.suffix in CODE and not path.is_symlink())
    return {"sources": folder_digest(PACKAGE, paths)}


def file_or_folder(path: Path, read: bool) -> Any:
    """The size or, with `read`, the digest of a file; the names and sizes of a folder's files; None
    for what is no path, such as the name of a dataset on the hub."""
    if path.is_file():
        size = path.stat().st_size
        return {"sha256": file_digest(path)} if read and size <= _READ else {"bytes": size}
    if path.is_dir():
        return {str(file.relative_to(path)): size for file, size in sorted(walk(path))}
    return None


def walk(folder: Path) -> Iterator[tuple[Path, int]]:
    """Files below a folder with their sizes, links followed, but for hidden ones and what Python
    keeps."""
    seen = set()
    for at, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(at)
        if real in seen:  # a link back to a folder above would never end
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [
            name for name in folders if not name.startswith(".") and name != "__pycache__"
        ]
        for name in files:
            path = Path(at, name)
            if not name.startswith(".") and path.exists():
                yield path, path.stat().st_size
