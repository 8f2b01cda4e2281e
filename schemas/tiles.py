"""Blocks of float32 matrices in registers, for kernels: products in one order on any processor, and transposing.

Each product is a chain of fused multiply-adds from the first coordinate to the last. So its bits depend on the two
vectors alone: not on the processor, nor on what else is multiplied beside it.
"""

from __future__ import annotations

from numba import types
from numba.core import cgutils, codegen
from numba.extending import intrinsic

ir = cgutils.ir  # llvmlite's, which numba brings
WIDE = codegen.ll.get_host_cpu_features().get("avx512f", False)  # 32 registers of 16 floats, else 16 of 8
SIDE = 16 if WIDE else 8  # of a block that is transposed, and floats of a register
HALVES = (0, SIDE)  # where the halves of a block of products begin
COLUMNS = 2 * SIDE
ROWS = 10 if WIDE else 6
INDEX, VECTOR = ir.IntType(64), ir.VectorType(ir.FloatType(), SIDE)
FMA = ir.FunctionType(VECTOR, 3 * [VECTOR])


def _is_matrix(kind):
    return isinstance(kind, types.Array) and (kind.dtype, kind.ndim, kind.layout) == (types.float32, 2, "C")


def _place(context, builder, kind, array):
    """Where the float of a row and a column is, as a function of both."""
    made = context.make_array(kind)(context, builder, array)
    data, width = made.data, cgutils.unpack_tuple(builder, made.shape)[1]

    def place(row, column):
        column = ir.Constant(INDEX, column) if isinstance(column, int) else column
        return builder.gep(data, [builder.add(builder.mul(row, width), column)])

    return place


def _load(builder, place):
    return builder.load(builder.bitcast(place, VECTOR.as_pointer()), align=4)


def _store(builder, vector, place):
    builder.store(vector, builder.bitcast(place, VECTOR.as_pointer()), align=4)


@intrinsic
def multiply(typing, rows, group, panel, out):
    """Products of a group of ROWS vectors with the COLUMNS columns of `panel`, float32 [d, COLUMNS], into the group's
    rows of `out` float32 [any, COLUMNS]. `rows` float32 [groups x d, ROWS]: a coordinate of a whole group in a row."""

    def build(context, builder, signature, args):
        d = cgutils.unpack_tuple(builder, context.make_array(signature.args[2])(context, builder, args[2]).shape)[0]
        begin, size = builder.mul(args[1], d), ir.Constant(INDEX, ROWS)
        row, column, target = (_place(context, builder, signature.args[k], args[k]) for k in (0, 2, 3))
        sums = [[cgutils.alloca_once_value(builder, ir.Constant(VECTOR, None)) for _ in HALVES] for _ in range(ROWS)]
        with cgutils.for_range(builder, d, intp=INDEX) as loop:
            halves = [_load(builder, column(loop.index, half)) for half in HALVES]
            for r, totals in enumerate(sums):
                each = _everywhere(builder, builder.load(row(builder.add(begin, loop.index), r)))
                for half, total in zip(halves, totals, strict=True):
                    builder.store(_fma(builder, each, half, builder.load(total)), total)
        first = builder.mul(args[1], size)
        for r, totals in enumerate(sums):
            for half, total in zip(HALVES, totals, strict=True):
                _store(builder, builder.load(total), target(builder.add(first, ir.Constant(INDEX, r)), half))
        return context.get_dummy_value()

    if not all(map(_is_matrix, (rows, panel, out))):
        return None
    return types.void(rows, types.intp, panel, out), build


def _fma(builder, *factors):
    return builder.call(cgutils.get_or_insert_function(builder.module, FMA, f"llvm.fma.v{SIDE}f32"), factors)


def _everywhere(builder, value):
    one = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), SIDE), SIDE * [0]))


@intrinsic
def transpose(typing, rows, first, column, out, to):
    """out[column : column + SIDE, to : to + SIDE] from rows[first : first + SIDE, column : column + SIDE], turned."""

    def build(context, builder, signature, args):
        source, target = (_place(context, builder, signature.args[k], args[k]) for k in (0, 3))
        numbers = [ir.Constant(INDEX, k) for k in range(SIDE)]
        block = [_load(builder, source(builder.add(args[1], k), args[2])) for k in numbers]
        step = 1
        while step < SIDE:
            for a in [k for k in range(SIDE) if not k & step]:
                block[a], block[a + step] = _swapped(builder, block[a], block[a + step], step)
            step *= 2
        for k, row in zip(numbers, block, strict=True):
            _store(builder, row, target(builder.add(args[2], k), args[4]))
        return context.get_dummy_value()

    if not all(map(_is_matrix, (rows, out))):
        return None
    return types.void(rows, types.intp, types.intp, out, types.intp), build


def _swapped(builder, a, b, step):
    """Both rows, with the places of `a` that have the bit `step` exchanged for those of `b` that have not."""
    number = ir.VectorType(ir.IntType(32), SIDE)
    low = [SIDE + j - step if j & step else j for j in range(SIDE)]
    high = [SIDE + j if j & step else j + step for j in range(SIDE)]
    return builder.shuffle_vector(a, b, ir.Constant(number, low)), builder.shuffle_vector(
        a, b, ir.Constant(number, high)
    )


@intrinsic
def fold(typing, tile, begin, end, least):
    """Into row `begin` of `tile`, float32 [any, COLUMNS]: the largest of rows begin..end, and of `least`."""

    def build(context, builder, signature, args):
        place = _place(context, builder, signature.args[0], args[0])
        most = [cgutils.alloca_once_value(builder, _everywhere(builder, args[3])) for _ in HALVES]
        with cgutils.for_range_slice(builder, args[1], args[2], ir.Constant(INDEX, 1)) as (row, _):
            for half, one in zip(HALVES, most, strict=True):
                some, best = _load(builder, place(row, half)), builder.load(one)
                builder.store(builder.select(builder.fcmp_ordered(">", some, best), some, best), one)
        for half, one in zip(HALVES, most, strict=True):
            _store(builder, builder.load(one), place(args[1], half))
        return context.get_dummy_value()

    if not _is_matrix(tile):
        return None
    return types.void(tile, types.intp, types.intp, types.float32), build
