"""Files that a command may write over: those that capgrade itself wrote, by what is in them."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from capgrade.schemas.arrow import ArrowFile, metadata_of
from capgrade.schemas.errors import InputError
from capgrade.schemas.files import MANIFEST, found_manifest
from capgrade.schemas.lines import read_json

SIGNATURE = "capgrade"  # in pages and pictures that capgrade made
_SIGNED_WITHIN = 4096  # bytes from their beginning or end
_STARTS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
Recogniser = Callable[[Path], bool]


def refuse_file(path: Path, what: str, ours: Recogniser) -> None:
    """InputError when there is a file that `ours` does not recognise as `what`.

    Also when it is a file of a stage's finished folder.
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
    if not (path.is_file() and ours(path)):
        raise InputError(f"it is there and is no {what}", file=path, remedy=remedy)


def starting(start: bytes) -> Recogniser:
    """Files that begin with these very bytes."""

    def ours(path: Path) -> bool:
        with path.open("rb") as file:
            return file.read(len(start)) == start

    return ours


def signed(start: bytes, signature: str = SIGNATURE) -> Recogniser:
    """Pages and pictures that begin so, with the signature near their beginning or end."""

    def ours(path: Path) -> bool:
        with path.open("rb") as file:
            head, size = file.read(_SIGNED_WITHIN), file.seek(0, 2)
            file.seek(max(0, size - _SIGNED_WITHIN))
            return head.startswith(start) and signature.encode() in head + file.read()

    return ours


def arrow_of(kind: str) -> Recogniser:
    """Arrow files whose metadata name this kind."""

    def ours(path: Path) -> bool:
        with suppress(InputError):
            return metadata_of(ArrowFile(path).schema).get("kind") == kind
        return False

    return ours


def json_with(right: Callable[[object], bool]) -> Recogniser:
    """JSON files whose content is `right`."""

    def ours(path: Path) -> bool:
        with suppress(InputError, AttributeError, KeyError, TypeError, ValueError):
            return bool(right(read_json(path)))
        return False

    return ours


def refuse_picture(path: Path) -> None:
    """InputError when a file is there that capgrade did not draw."""
    start = _STARTS.get(path.suffix.lower(), _STARTS[".png"])
    refuse_file(path, f"picture of {SIGNATURE}", signed(start))
