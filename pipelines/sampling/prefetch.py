"""Fetching memory ahead, for kernels that know which of many far places they read next."""

from __future__ import annotations

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

ir = cgutils.ir  # llvmlite's, which numba brings
HINT = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer()] + 3 * [ir.IntType(32)])


@intrinsic
def prefetch(typing, array, index):
    """Ask for the row array[index]; nothing waits for it. The index must be in the array."""

    def build(context, builder, signature, args):
        kind = signature.args[0]
        made = context.make_array(kind)(context, builder, args[0])
        first = [args[1]] + (kind.ndim - 1) * [context.get_constant(types.intp, 0)]
        place = cgutils.get_item_pointer(context, builder, kind, made, first)
        place = builder.bitcast(place, ir.IntType(8).as_pointer())
        hint = cgutils.get_or_insert_function(builder.module, HINT, "llvm.prefetch.p0i8")
        builder.call(hint, [place] + [ir.Constant(ir.IntType(32), flag) for flag in (0, 3, 1)])  # to read, soon, data
        return context.get_dummy_value()

    return types.void(array, types.intp), build
