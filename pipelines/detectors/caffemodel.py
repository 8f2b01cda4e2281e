"""The weights in a .caffemodel: protocol buffers of BVLC's caffe.proto, as far as weights need it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from capgrade.schemas.errors import InputError

# Field numbers of src/caffe/proto/caffe.proto: NetParameter, LayerParameter, BlobProto, BlobShape.
LAYERS, V1_LAYERS = 100, 2
NAME, BLOBS = 1, 7
DATA, DOUBLES, SHAPE, DIMS = 5, 8, 7, 1


def read_caffemodel(path: Path) -> dict[str, np.ndarray]:
    """`{layer}.{number of the blob}` -> float32 array, of every layer with weights. InputError for a damaged file."""
    try:
        message = memoryview(path.read_bytes())
        layers = dict(_layer(_message(value)) for field, value in _fields(message) if field == LAYERS)
        older = any(field == V1_LAYERS for field, _ in _fields(message))
    except (ValueError, IndexError, TypeError, OverflowError) as error:
        raise InputError(f"not a whole caffemodel ({error})", file=path, remedy="fetch the file again") from error
    if older or not layers:
        remedy = "upgrade_net_proto_binary of Caffe brings older files up to date"
        raise InputError("no layers of caffe.proto's present form", file=path, remedy=remedy)
    return {f"{name}.{i}": blob for name, blobs in layers.items() for i, blob in enumerate(blobs)}


def _layer(message: memoryview) -> tuple[str, list[np.ndarray]]:
    name, blobs = "", []
    for field, value in _fields(message):
        if field == NAME:
            name = bytes(_message(value)).decode()
        elif field == BLOBS:
            blobs.append(_blob(_message(value)))
    return name, blobs


def _blob(message: memoryview) -> np.ndarray:
    """Values and their shape."""
    values, shape = np.zeros(0, np.float32), []
    for field, value in _fields(message):
        if field in (DATA, DOUBLES):
            values = np.frombuffer(_message(value), "<f4" if field == DATA else "<f8").astype(np.float32)
        elif field == SHAPE:
            shape = [dim for key, dims in _fields(_message(value)) if key == DIMS for dim in _varints(_message(dims))]
    if math.prod(shape) != len(values):
        raise ValueError(f"{len(values)} values of shape {shape}")
    return values.reshape(shape)


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """Number and value of each field: bytes of a length-delimited one, else its raw value."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if kind not in (1, 2, 5):
            raise ValueError(f"wire type {kind} at byte {at}")
        size, at = _varint(message, at) if kind == 2 else (8 if kind == 1 else 4, at)
        if at + size > len(message):
            raise ValueError("cut short")
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """A number of 7 bits a byte, least first, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError(f"no number at byte {at}")


def _varints(message: memoryview) -> Iterator[int]:
    at = 0
    while at < len(message):
        value, at = _varint(message, at)
        yield value


def _message(value: memoryview | int) -> memoryview:
    if isinstance(value, int):
        raise ValueError("a number where bytes should be")
    return value
