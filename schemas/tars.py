"""WebDataset tars: samples of members `KEY.jpg`, `KEY.txt`, `KEY.json`, in any number of tars.

A member is found by its offset, so that a picture is read without the tar around it.
"""

import re
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from capgrade.schemas.errors import InputError
from capgrade.schemas.lines import open_bytes

BRACES = re.compile(r"\{([^{},]+(?:,[^{},]+)+|\d+\.\.\d+)\}")  # {train,val} or {00000..00331}
TAR = "give a tar, a folder of tars, or a pattern such as 'data/{00000..00331}.tar'"
_AGAIN = "download or write it again"
PACKED = (b"\x1f\x8b", b"BZh", b"\xfd7zX", b"\x28\xb5\x2f\xfd")  # gzip, bzip2, xz, zstandard
_END = bytes(2 * tarfile.BLOCKSIZE)  # a tar ends in two blocks of zeros


@dataclass(frozen=True, slots=True)
class Member:
    """A file in a tar: where its bytes begin, and how many there are."""

    tar: str
    name: str
    offset: int
    size: int

    @property
    def key(self) -> str:
        """The sample it belongs to: its name, folders included, up to the first dot of the file."""
        folder, slash, file = self.name.rpartition("/")
        return folder + slash + file.partition(".")[0]

    @property
    def ending(self) -> str:
        """What follows the key: jpg, txt, json; lower case."""
        return self.name.rpartition("/")[2].partition(".")[2].lower()

    def read(self) -> bytes:
        """Its bytes. InputError when the tar is not there or ends before."""
        with open_bytes(Path(self.tar)) as file:
            file.seek(self.offset)
            data = file.read(self.size)
        if len(data) < self.size:
            raise InputError(
                "the tar ends within this member", file=self.tar, row=self.name, remedy=_AGAIN
            )
        return data


def is_tars(name: str) -> bool:
    """Whether an input is of tars: one, a pattern of some, or a folder that has some at its top."""
    path = Path(name)
    return path.suffix == ".tar" or (path.is_dir() and any(path.glob("*.tar")))


def list_tars(inputs: Sequence[str]) -> list[Path]:
    """The tars that these name. InputError for one that is not there, and a folder without any.

    Each is a tar, a folder (those in it and below, by path) or a pattern with {00000..00331} or
    {a,b}.
    """
    tars: list[Path] = []
    for name in inputs:
        path = Path(name)
        if path.is_dir():
            paths = sorted(
                one for one in path.rglob("*.tar") if one.is_file() and not one.name.startswith(".")
            )
            if not paths:
                raise InputError("no .tar in this folder", file=path, remedy=TAR)
        else:
            paths = [path] if path.exists() else [Path(one) for one in expand_braces(name)]
            if missing := [one for one in paths if not one.is_file()]:
                among = f", {len(missing)} such of {len(paths)}" if len(paths) > 1 else ""
                raise InputError(f"no such file{among}", file=missing[0], remedy=TAR)
        tars += paths
    return tars


def expand_braces(pattern: str) -> list[str]:
    """What a shell makes of {00000..00331} and of {a,b}: every text that the pattern stands for, in
    order."""
    match = BRACES.search(pattern)
    if match is None:
        return [pattern]
    first, dots, last = match[1].partition("..")
    choices = match[1].split(",")
    if dots:
        width = len(first) if first.startswith("0") else 0
        choices = [f"{number:0{width}d}" for number in range(int(first), int(last) + 1)]
    return [
        pattern[: match.start()] + one + rest
        for one in choices
        for rest in expand_braces(pattern[match.end() :])
    ]


def tar_members(tar: Path) -> Iterator[Member]:
    """The files in a tar, in order; hidden ones are no samples.

    InputError for a file that is no tar, for a compressed one, and for one that is cut short or has
    another tar behind it: what follows would be lost.
    """
    with open_bytes(tar) as file:
        try:
            with tarfile.open(fileobj=file, mode="r:", encoding="utf-8") as members:
                while (info := members.next()) is not None:
                    members.members.clear()  # type: ignore[attr-defined]  # it would keep all of them
                    if info.isreg() and not info.name.rpartition("/")[2].startswith("."):
                        yield Member(str(tar), info.name, info.offset_data, info.size)
                file.seek(members.offset)
        except (tarfile.TarError, OSError, EOFError, ValueError) as error:
            file.seek(0)
            problem, remedy = f"not a whole tar ({error})", _AGAIN
            if file.read(4).startswith(PACKED):
                problem = "a compressed tar"
                remedy = "decompress it: members are found by their place"
            raise InputError(problem, file=tar, remedy=remedy) from error
        if file.read(len(_END)) not in (_END, _END[: tarfile.BLOCKSIZE]):
            raise InputError("cut short: the end of the tar is missing", file=tar, remedy=_AGAIN)
        if file.read(tarfile.RECORDSIZE).strip(b"\0"):
            raise InputError("another tar behind its end", file=tar, remedy="part the two")
