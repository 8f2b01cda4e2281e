"""WebDataset tars: samples of members `KEY.jpg`, `KEY.txt`, `KEY.json`, in any number of tars.

A member is found by its offset, so that a picture is read without the tar around it.
"""

import posixpath
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from capgrade.schemas.errors import InputError
from capgrade.schemas.lines import open_bytes
from capgrade.schemas.reading import FETCH_AGAIN, MOST_BYTES, reading

BRACES = re.compile(r"\{([^{},]+(?:,[^{},]+)+|\d+\.\.\d+)\}")  # {train,val} or {00000..00331}
TAR = "give a tar, a folder of tars, or a pattern such as 'data/{00000..00331}.tar'"
MOST_TARS = 1_000_000  # of a pattern
_DIGITS = 18  # at most, of a pattern's number
_LINKS = 32  # that lead from one to the next
# Why members of a tar are no files to read.
SPARSE, NO_TARGET = "sparse members of a tar", "links to nothing in their tar"
NO_FILE = "devices or pipes in a tar"
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
        """Its bytes. InputError when the tar is not there or ends before, and for more bytes than
        MOST_BYTES."""
        if self.size > MOST_BYTES:
            problem = f"{self.size:,} bytes; at most {MOST_BYTES:,} are read"
            raise InputError(problem, file=self.tar, row=self.name)
        with open_bytes(Path(self.tar)) as file:
            file.seek(self.offset)
            data = file.read(self.size)
        if len(data) < self.size:
            raise InputError(
                "the tar ends within this member", file=self.tar, row=self.name, remedy=FETCH_AGAIN
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
            paths = [path] if _exists(path) else [Path(one) for one in expand_braces(name)]
            if missing := [one for one in paths if not one.is_file()]:
                among = f", {len(missing)} such of {len(paths)}" if len(paths) > 1 else ""
                raise InputError(f"no such file{among}", file=missing[0], remedy=TAR)
        tars += paths
    return tars


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a pattern may be longer than a name can be
        return False


def expand_braces(pattern: str) -> list[str]:
    """What a shell makes of {00000..00331} and of {a,b}: every text that the pattern stands for, in
    order. InputError for more than MOST_TARS, before any is made."""
    parts: list[Sequence[str]] = []
    count, at = 1, 0
    for match in BRACES.finditer(pattern):
        first, dots, last = match[1].partition("..")
        size = len(match[1].split(","))
        if dots:
            too_long = max(len(first), len(last)) > _DIGITS
            size = MOST_TARS + 1 if too_long else abs(int(last) - int(first)) + 1
        count *= size
        if count > MOST_TARS:
            problem = f"a pattern of more than {MOST_TARS:,} tars"
            raise InputError(problem, file=pattern, remedy="name the tars that are there")
        parts += [[pattern[at : match.start()]], _choices(match[1])]
        at = match.end()
    return ["".join(texts) for texts in product(*parts, [pattern[at:]])]


def _choices(inner: str) -> list[str]:
    """What stands for one pair of braces; numbers count down where the first is larger."""
    first, dots, last = inner.partition("..")
    if not dots:
        return inner.split(",")
    width, step = len(first) if first.startswith("0") else 0, 1 if int(first) <= int(last) else -1
    return [f"{number:0{width}d}" for number in range(int(first), int(last) + step, step)]


def tar_members(tar: Path, leave_out: Callable[[str, str], None]) -> Iterator[Member]:
    """The files in a tar, in order; hidden ones are no samples. A link to a file of the tar is that
    file under another name. What is no file to read is given to `leave_out`, a reason and a name.

    InputError for a file that is no tar, for a compressed one, and for one that is cut short or has
    another tar behind it: what follows would be lost.
    """
    files: dict[str, Member] = {}
    links: dict[str, str] = {}  # name -> that of its target
    found: list[Member | str] = []  # in order; a link by its name
    for info in _headers(tar):
        name = _plain(info.name)
        if info.issym() or info.islnk():
            folder = posixpath.dirname(name) if info.issym() else ""
            links[name] = _plain(posixpath.join(folder, info.linkname))
            found.append(info.name)
        elif info.issparse():
            leave_out(SPARSE, info.name)
        elif info.isreg():
            files[name] = Member(str(tar), info.name, info.offset_data, info.size)
            found.append(files[name])
        elif not info.isdir():
            leave_out(NO_FILE, info.name)
    for one in found:
        own_name = one if isinstance(one, str) else one.name
        if own_name.rpartition("/")[2].startswith("."):
            continue
        if isinstance(one, Member):
            yield one
            continue
        target = _plain(own_name)
        for _ in range(_LINKS):
            if target in files or target not in links:
                break
            target = links[target]
        if target in files:
            yield replace(files[target], name=own_name)
        else:
            leave_out(NO_TARGET, own_name)


def _plain(name: str) -> str:
    """A name in a tar as links and members may both write it: without ./ and .. in it."""
    return posixpath.normpath(name)


def _headers(tar: Path) -> Iterator[tarfile.TarInfo]:
    """The headers of a whole tar, in order; InputError as `tar_members`."""
    with open_bytes(tar) as file:
        is_packed = file.peek(4).startswith(PACKED)
        try:
            with reading(tar, "tar"):
                archive = tarfile.TarFile(fileobj=file, encoding="utf-8")
        except InputError:
            if not is_packed:  # as a member's name may begin so, too
                raise
            remedy = "decompress it: members are found by their place"
            raise InputError("a compressed tar", file=tar, remedy=remedy) from None
        end = -1
        while True:
            with reading(tar, "tar"):
                info = archive.next()
                archive.members.clear()  # type: ignore[attr-defined]  # it would keep all of them
            if info is None:
                break
            if info.offset <= end or info.size < 0:
                problem = f"member {info.name!r} has a size of {info.size:,}"
                raise InputError(problem, file=tar, remedy=FETCH_AGAIN)
            end = info.offset
            yield info
        file.seek(archive.offset)
        if file.read(len(_END)) not in (_END, _END[: tarfile.BLOCKSIZE]):
            raise InputError(
                "cut short: the end of the tar is missing", file=tar, remedy=FETCH_AGAIN
            )
        if file.read(tarfile.RECORDSIZE).strip(b"\0"):
            raise InputError("another tar behind its end", file=tar, remedy="part the two")
