"""Comparing 64 numbers at once, for kernels; and going through the places that were found."""

from __future__ import annotations

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from capgrade.schemas.bits import ones
from capgrade.schemas.compiled import njit

ir = cgutils.ir  # llvmlite's, which numba brings
LANES = 64
BITS = ir.IntType(64)
KINDS = (types.uint8, types.uint16, types.uint32, types.float32)


def is_row(values, kind):
    """An array of one dimension, one number behind the other."""
    return isinstance(values, types.Array) and (values.dtype, values.ndim, values.layout) == (kind, 1, "C")


@intrinsic
def at_least(typing, values, first, least):
    """uint64: bit j says whether values[first + j] >= least, of LANES numbers that are in the array: uint8, uint16,
    uint32 or float32, of which NaN reaches nothing."""

    def build(context, builder, signature, args):
        kind = signature.args[0]
        made = context.make_array(kind)(context, builder, args[0])
        place = cgutils.get_item_pointer(context, builder, kind, made, [args[1]])
        floats = kind.dtype == types.float32
        block = ir.VectorType(ir.FloatType() if floats else ir.IntType(kind.dtype.bitwidth), LANES)
        some = builder.load(builder.bitcast(place, block.as_pointer()), align=1)
        one = builder.insert_element(ir.Constant(block, ir.Undefined), args[2], ir.Constant(ir.IntType(32), 0))
        each = ir.Constant(ir.VectorType(ir.IntType(32), LANES), LANES * [0])
        compare = builder.fcmp_ordered if floats else builder.icmp_unsigned
        return builder.bitcast(compare(">=", some, builder.shuffle_vector(one, one, each)), BITS)

    if least not in KINDS or not is_row(values, least):
        return None
    return types.uint64(values, types.intp, least), build


@njit(cache=True)
def lowest_bit(bits):
    """Place of the lowest bit of a uint64 that is not 0."""
    return np.int64(ones(~bits & (bits - np.uint64(1))))
