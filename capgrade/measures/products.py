"""The largest product of each image's vectors with others: folded where it is made, in the processor's registers.

Each product is a chain of fused multiply-adds from the first coordinate to the last. So its bits depend on the two
vectors alone: not on the processor, nor on what else is multiplied beside it.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.core import cgutils, codegen
from numba.extending import intrinsic

from capgrade.kernels import njit

ir = cgutils.ir  # llvmlite's, which numba brings
WIDE = codegen.ll.get_host_cpu_features().get("avx512f", False)  # 32 registers of 16 floats, else 16 of 8
SIDE = 16 if WIDE else 8  # floats of a register
INDEX, VECTOR = ir.IntType(64), ir.VectorType(ir.FloatType(), SIDE)
FMA = ir.FunctionType(VECTOR, 3 * [VECTOR])
HALVES = (0, SIDE)  # where the halves of a block of products begin
COLUMNS = 2 * SIDE
ROWS = 10 if WIDE else 6
ONE = np.float32(1 - 4e-6)  # what is above is 1, but for rounding: own pairs came out as 0.999999..1


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


@njit(cache=True)
def grouped(vectors, size):
    """Side by side in groups of `size`, float32 [groups x d, size], from float32 [n, d]; zeros fill the last group up.
    `multiply` takes groups of ROWS."""
    n, d = vectors.shape
    out = np.zeros(((n + size - 1) // size * d, size), np.float32)
    for q in range(n):
        for k in range(d):
            out[q // size * d + k, q % size] = vectors[q, k]
    return out


@njit(cache=True)
def _pack(targets, first, panel):
    """Fill panel [d, COLUMNS] with COLUMNS rows from `first` on as columns, zeros where there are no more."""
    d, n = panel.shape[0], min(COLUMNS, targets.shape[0] - first)
    blocks, k_blocks = n // SIDE * SIDE, d // SIDE * SIDE
    for c in range(0, blocks, SIDE):
        for k in range(0, k_blocks, SIDE):
            transpose(targets, first + c, k, panel, c)
    for k in range(d):
        for c in range(blocks if k < k_blocks else 0, COLUMNS):
            panel[k, c] = targets[first + c, k] if c < n else np.float32(0)


@njit(cache=True)
def _multiply_all(vectors, panel, tile):
    """All groups with the panel."""
    for group in range(vectors.shape[0] // panel.shape[0]):
        multiply(vectors, group, panel, tile)


@njit(cache=True, forceinline=True)
def capped(value):
    """Without what rounding may carry beyond 1."""
    return np.float32(1) if value > ONE else value


@njit(nogil=True, cache=True)
def largest(begin, end, vectors, start, targets, out):
    """Targets begin..end, float32 [n, d]: the largest product, -1..1, with each image's vectors, those from
    start[image] on of the `grouped` ones, into out[image, target]."""
    d, rows = targets.shape[1], vectors.shape[0] // targets.shape[1] * ROWS
    panel, tile = np.empty((d, COLUMNS), np.float32), np.empty((rows, COLUMNS), np.float32)
    best = np.empty(COLUMNS, np.float32)
    for first in range(begin, end, COLUMNS):
        _pack(targets[:end], first, panel)
        _multiply_all(vectors, panel, tile)
        for i in range(out.shape[0]):
            best[:] = -1
            for row in range(start[i], start[i + 1]):
                for j in range(COLUMNS):
                    best[j] = max(tile[row, j], best[j])
            for j in range(min(COLUMNS, end - first)):
                out[i, first + j] = capped(best[j])
