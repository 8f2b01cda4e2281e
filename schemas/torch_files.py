"""Files of `torch.save`, of tensors and builtin types, read without running or trusting what is in them.

`torch.load(weights_only=True)` runs nothing, but a file can still crash it: a dictionary key of tuples nested a million
deep overflows the stack. The layouts are those of torch/serialization.py: the zip archive since 1.6 (`data.pkl`,
`data/{key}`) and the five pickles before it, with the numbers after them.
"""

from __future__ import annotations

import io
import math
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from capgrade.schemas.errors import InputError
from capgrade.schemas.pickles import PLAIN, REMEDY, ArrayUnpickler, Refused, whole

MAGIC = 0x1950A86A20F9469CFC6C
DTYPES = {
    "FloatStorage": torch.float32, "DoubleStorage": torch.float64, "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16, "LongStorage": torch.int64, "IntStorage": torch.int32,
    "ShortStorage": torch.int16, "CharStorage": torch.int8, "ByteStorage": torch.uint8, "BoolStorage": torch.bool,
}  # fmt: skip


class TensorUnpickler(ArrayUnpickler):
    """As `ArrayUnpickler`, and tensors; `storages` are numbers by key, zero until the file's have been read."""

    dispatch = dict(ArrayUnpickler.dispatch)

    def __init__(self, file: BinaryIO, size: int) -> None:
        super().__init__(file)
        self.left, self.storages = 4 * size + self.left, dict[str, Tensor]()

    def known(self) -> dict[tuple[str, str], Any]:
        rebuild = {"_rebuild_tensor": self.tensor, "_rebuild_tensor_v2": self.tensor, "_rebuild_parameter": self.data}
        found = {("torch._utils", name): call for name, call in rebuild.items()}
        types = {("torch", name): dtype for name, dtype in DTYPES.items()}
        return {**super().known(), **found, **types, ("torch", "Size"): whole, ("collections", "Counter"): self.counts}

    def counts(self, given: Any) -> dict[Any, Any]:
        if not isinstance(given, dict):
            raise Refused("it holds counts that are no dictionary")
        self.spend(16 * len(given))
        return dict(given)

    def load_binpersid(self) -> None:
        given = self.stack.pop()
        if not isinstance(given, tuple) or len(given) not in (5, 6) or given[5:] not in ((), (None,)):
            raise Refused("it refers to what is no storage")
        _, dtype, key, _, count = given[:5]
        if not isinstance(dtype, torch.dtype) or not isinstance(key, str) or type(count) is not int or count < 0:
            raise Refused("it refers to what is no storage")
        if key not in self.storages:
            self.spend(count * dtype.itemsize)
            self.storages[key] = torch.zeros(count, dtype=dtype)
        if (self.storages[key].dtype, len(self.storages[key])) != (dtype, count):
            raise Refused(f"storage {key[:20]} is of two types or sizes")
        self.append(self.storages[key])

    def tensor(self, storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> Tensor:
        if not isinstance(storage, Tensor) or storage.ndim != 1 or type(offset) is not int or offset < 0:
            raise Refused("it holds a tensor without a storage")
        size, stride = whole(size), whole(stride)
        count = math.prod(size)
        reach = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) if count else 0
        if offset + reach > len(storage) or count > len(storage):
            raise Refused("it holds a tensor beyond its storage")
        self.spend(count * storage.itemsize)
        return storage.as_strided(size, stride, offset) if count else storage.new_zeros(size)

    def data(self, given: Any, *_: Any) -> Tensor:
        if not isinstance(given, Tensor):
            raise Refused("it holds a parameter without a tensor")
        return given


TensorUnpickler.dispatch[ord("Q")] = TensorUnpickler.load_binpersid  # type: ignore[assignment]


def read_torch(path: Path) -> Any:
    """The content of a file of `torch.save`, on the processor: tensors, numpy arrays and builtin types.

    InputError for a file that holds anything else, whose tensors reach beyond its numbers, or that is damaged.
    """
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            return _zipped(file, size) if zipfile.is_zipfile(path) else _plain(file, size)
    except Refused as error:
        problem = f"a torch file of more than tensors, not read: {error}"
        raise InputError(problem, file=path, remedy=REMEDY) from error
    except Exception as error:  # a damaged file can raise anything
        problem = f"not a whole torch file ({' '.join(str(error).split()) or type(error).__name__})"
        raise InputError(problem, file=path, remedy=REMEDY) from error


def _zipped(file: BinaryIO, size: int) -> Any:
    with zipfile.ZipFile(file) as archive:
        members = {member.filename.partition("/")[2]: member for member in archive.infolist()}
        if any(member.compress_type for member in members.values()):
            raise ValueError("a compressed member, which torch does not write")
        if sum(member.file_size for member in archive.infolist()) > size:
            raise ValueError("members that overlap")
        if "byteorder" in members and archive.read(members["byteorder"]) != b"little":
            raise ValueError("numbers whose first byte is the largest")
        unpickler = TensorUnpickler(io.BytesIO(archive.read(members["data.pkl"])), size)
        content = unpickler.load()
        for key, storage in unpickler.storages.items():
            _set(storage, archive.read(members[f"data/{key}"]))
    return content


def _plain(file: BinaryIO, size: int) -> Any:
    def load() -> Any:
        unpicklers.append(TensorUnpickler(file, size))
        return unpicklers[-1].load()

    unpicklers: list[TensorUnpickler] = []
    magic, _, system, content = (load() for _ in range(4))
    if (
        type(magic) is not int
        or magic != MAGIC
        or not isinstance(system, dict)
        or not system.get("little_endian", True)
    ):
        raise ValueError("no file of torch.save on a usual machine")
    storages, keys = unpicklers[3].storages, load()
    if not isinstance(keys, list) or not all(type(key) in PLAIN for key in keys) or set(keys) != storages.keys():
        raise ValueError("other storages than its tensors have")
    for key in keys:
        count = int.from_bytes(file.read(8), "little")
        if count != len(storages[key]):
            raise ValueError(f"{count} numbers where its tensors have {len(storages[key])}")
        _set(storages[key], file.read(count * storages[key].itemsize))
    return content


def _set(storage: Tensor, data: bytes) -> None:
    if len(data) != len(storage) * storage.itemsize:
        raise ValueError(f"{len(data)} bytes where {len(storage) * storage.itemsize} should be")
    if len(storage):
        storage.copy_(torch.frombuffer(bytearray(data), dtype=storage.dtype))
