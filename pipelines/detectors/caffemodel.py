"""The weights in a .caffemodel, a protocol buffer of BVLC's caffe.proto."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from capgrade.schemas.errors import InputError
from capgrade.schemas.lines import open_bytes
from capgrade.schemas.reading import reading

# The messages of src/caffe/proto/caffe.proto that hold weights. Packed numbers are declared as
# bytes, which numpy then reads.
PROTO = """
message_type { name: "BlobShape" field { name: "dim" number: 1 label: LABEL_REPEATED type: TYPE_INT64 } }
message_type {
  name: "BlobProto"
  field { name: "shape" number: 7 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".BlobShape" }
  field { name: "data" number: 5 label: LABEL_OPTIONAL type: TYPE_BYTES }
  field { name: "double_data" number: 8 label: LABEL_OPTIONAL type: TYPE_BYTES }
}
message_type {
  name: "LayerParameter"
  field { name: "name" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "blobs" number: 7 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".BlobProto" }
}
message_type {
  name: "NetParameter"
  field { name: "layer" number: 100 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".LayerParameter" }
  field { name: "layers" number: 2 label: LABEL_REPEATED type: TYPE_BYTES }  # of older files
}
"""


def read_caffemodel(path: Path) -> dict[str, np.ndarray]:
    """`{layer}.{number of the blob}` -> float32 array, of every layer with weights. InputError for
    a damaged file."""
    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(PROTO, descriptor_pb2.FileDescriptorProto(name="caffe.proto")))
    net: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("NetParameter"))()
    with open_bytes(path) as file, reading(path, "caffemodel"):
        net.ParseFromString(file.read())
        weights = {
            f"{layer.name}.{k}": _array(blob)
            for layer in net.layer
            for k, blob in enumerate(layer.blobs)
        }
    if net.layers or not net.layer:
        remedy = "upgrade it with Caffe's upgrade_net_proto_binary"
        raise InputError("no layers of caffe.proto's present form", file=path, remedy=remedy)
    return weights


def _array(blob: Any) -> np.ndarray:
    is_double = blob.HasField("double_data")
    data = blob.double_data if is_double else blob.data
    values = np.frombuffer(data, "<f8" if is_double else "<f4").astype(np.float32)
    if math.prod(blob.shape.dim) != len(values):
        raise ValueError(f"{len(values)} values of shape {list(blob.shape.dim)}")
    return values.reshape(tuple(blob.shape.dim))
