"""Blocks of float32 matrices in registers, for kernels: products in one order on any processor, and transposing.

Each product is a chain of fused multiply-adds from the first coordinate to the last. So its bits depend on the two
vectors alone: not on the processor, nor on what else is multiplied beside it.
"""

from __future__ import annotations

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from capgrade.schemas.vectors import INDEX, SIDE, VECTOR, WIDE, everywhere, fma, ir, is_matrix, load, place_in, store

HALVES = (0, SIDE)  # where the halves of a block of products begin
COLUMNS = 2 * SIDE
ROWS = 10 if WIDE else 6


@intrinsic
def multiply(typing, rows, group, panel, out):
    """Products of a group of ROWS vectors with the COLUMNS columns of `panel`, float32 [d, COLUMNS], into the group's
    rows of `out` float32 [any, COLUMNS]. `rows` float32 [groups x d, ROWS]: a coordinate of a whole group in a row."""

    def build(context, builder, signature, args):
        d = cgutils.unpack_tuple(builder, context.make_array(signature.args[2])(context, builder, args[2]).shape)[0]
        begin, size = builder.mul(args[1], d), ir.Constant(INDEX, ROWS)
        row, column, target = (place_in(context, builder, signature.args[k], args[k]) for k in (0, 2, 3))
        sums = [[cgutils.alloca_once_value(builder, ir.Constant(VECTOR, None)) for _ in HALVES] for _ in range(ROWS)]
        with cgutils.for_range(builder, d, intp=INDEX) as loop:
            halves = [load(builder, column(loop.index, half)) for half in HALVES]
            for r, totals in enumerate(sums):
                each = everywhere(builder, builder.load(row(builder.add(begin, loop.index), r)))
                for half, total in zip(halves, totals, strict=True):
                    builder.store(fma(builder, each, half, builder.load(total)), total)
        first = builder.mul(args[1], size)
        for r, totals in enumerate(sums):
            for half, total in zip(HALVES, totals, strict=True):
                store(builder, builder.load(total), target(builder.add(first, ir.Constant(INDEX, r)), half))
        return context.get_dummy_value()

    if not all(map(is_matrix, (rows, panel, out))):
        return None
    return types.void(rows, types.intp, panel, out), build


@intrinsic
def transpose(typing, rows, first, column, out, to):
    """out[column : column + SIDE, to : to + SIDE] from rows[first : first + SIDE, column : column + SIDE], turned."""

    def build(context, builder, signature, args):
        source, target = (place_in(context, builder, signature.args[k], args[k]) for k in (0, 3))
        numbers = [ir.Constant(INDEX, k) for k in range(SIDE)]
        block = [load(builder, source(builder.add(args[1], k), args[2])) for k in numbers]
        step = 1
        while step < SIDE:
            for a in [k for k in range(SIDE) if not k & step]:
                block[a], block[a + step] = _swapped(builder, block[a], block[a + step], step)
            step *= 2
        for k, row in zip(numbers, block, strict=True):
            store(builder, row, target(builder.add(args[2], k), args[4]))
        return context.get_dummy_value()

    if not all(map(is_matrix, (rows, out))):
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
        place = place_in(context, builder, signature.args[0], args[0])
        most = [cgutils.alloca_once_value(builder, everywhere(builder, args[3])) for _ in HALVES]
        with cgutils.for_range_slice(builder, args[1], args[2], ir.Constant(INDEX, 1)) as (row, _):
            for half, one in zip(HALVES, most, strict=True):
                some, best = load(builder, place(row, half)), builder.load(one)
                builder.store(builder.select(builder.fcmp_ordered(">", some, best), some, best), one)
        for half, one in zip(HALVES, most, strict=True):
            store(builder, builder.load(one), place(args[1], half))
        return context.get_dummy_value()

    if not is_matrix(tile):
        return None
    return types.void(tile, types.intp, types.intp, types.float32), build
