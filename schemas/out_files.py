"""Single files that a command writes: one that is there is written over with --force alone."""

from pathlib import Path

from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST, found_manifest


def refuse_file(path: Path, force: bool = False) -> None:
    """InputError when something is at `path`, but for a file with `force`.

    A file of a stage's finished folder is refused in any case.
    """
    remedy = "give another name; nothing was touched"
    if path.is_dir():
        raise InputError("a folder where a file is to be written", file=path, remedy=remedy)
    if not path.exists() and not path.is_symlink():
        return
    for folder in path.resolve().parents:
        files = found_manifest(folder / MANIFEST).get("files", ())
        if path.resolve().relative_to(folder).as_posix() in {MANIFEST, *files}:
            raise InputError(f"a file of the finished folder {folder}", file=path, remedy=remedy)
    if not force:
        remedy = "give --force (in Python force=True) to write over it, or another name"
        raise InputError("a file is there", file=path, remedy=f"{remedy}; nothing was touched")
