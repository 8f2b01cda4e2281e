"""Vectors of float32 in registers, for kernels that are written in LLVM's terms."""

from __future__ import annotations

from numba import types
from numba.core import cgutils, codegen

ir = cgutils.ir  # llvmlite's, which numba brings
WIDE = codegen.ll.get_host_cpu_features().get("avx512f", False)  # 32 registers of 16 floats, else 16 of 8
SIDE = 16 if WIDE else 8  # floats of a register
INDEX, VECTOR = ir.IntType(64), ir.VectorType(ir.FloatType(), SIDE)
FMA = ir.FunctionType(VECTOR, 3 * [VECTOR])


def is_matrix(kind):
    """Of float32, rows one behind the other."""
    return isinstance(kind, types.Array) and (kind.dtype, kind.ndim, kind.layout) == (types.float32, 2, "C")


def place_in(context, builder, kind, array):
    """Where the float of a row and a column is, as a function of both."""
    made = context.make_array(kind)(context, builder, array)
    data, width = made.data, cgutils.unpack_tuple(builder, made.shape)[1]

    def place(row, column):
        column = ir.Constant(INDEX, column) if isinstance(column, int) else column
        return builder.gep(data, [builder.add(builder.mul(row, width), column)])

    return place


def load(builder, place):
    """The vector that begins at a place."""
    return builder.load(builder.bitcast(place, VECTOR.as_pointer()), align=4)


def store(builder, vector, place):
    """Put a vector to a place."""
    builder.store(vector, builder.bitcast(place, VECTOR.as_pointer()), align=4)


def fma(builder, *factors):
    """a b + c, rounded once."""
    return builder.call(cgutils.get_or_insert_function(builder.module, FMA, f"llvm.fma.v{SIDE}f32"), factors)


def everywhere(builder, value):
    """A float in all places of a vector."""
    one = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), SIDE), SIDE * [0]))
