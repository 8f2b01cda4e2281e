"""Products of a few vectors with single rows of a matrix, for kernels: the same chains as in `tiles`, of the same bits.

The few vectors lie side by side in a register, so a row is read as it stands in memory: nothing is turned or copied.
"""

from __future__ import annotations

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from capgrade.schemas.vectors import INDEX, VECTOR, everywhere, fma, ir, is_matrix, load, place_in, store

TOGETHER = 8  # rows: a sum waits four steps of the processor for its last addition, and each step makes two


@intrinsic
def add_products(typing, panel, first, begin, end, targets, rows, sums):
    """Add, in order, coordinates begin..end of products with `targets` float32 [n, d] at TOGETHER `rows`, int64, to
    `sums` float32 [TOGETHER, SIDE]. `panel` float32 [any, SIDE]: coordinate k of SIDE vectors in row first + k."""

    def build(context, builder, signature, args):
        vectors, target, total = (place_in(context, builder, signature.args[k], args[k]) for k in (0, 4, 6))
        chosen = context.make_array(signature.args[5])(context, builder, args[5]).data
        numbers = [ir.Constant(INDEX, j) for j in range(TOGETHER)]
        given = [target(builder.load(builder.gep(chosen, [j])), 0) for j in numbers]
        totals = [cgutils.alloca_once(builder, VECTOR) for _ in numbers]
        for j, kept in zip(numbers, totals, strict=True):
            builder.store(load(builder, total(j, 0)), kept)
        with cgutils.for_range_slice(builder, args[2], args[3], ir.Constant(INDEX, 1)) as (k, _):
            some = load(builder, vectors(builder.add(args[1], k), 0))
            for one, kept in zip(given, totals, strict=True):
                each = everywhere(builder, builder.load(builder.gep(one, [k])))
                builder.store(fma(builder, each, some, builder.load(kept)), kept)
        for j, kept in zip(numbers, totals, strict=True):
            store(builder, builder.load(kept), total(j, 0))
        return context.get_dummy_value()

    if not all(map(is_matrix, (panel, targets, sums))) or rows != types.Array(types.int64, 1, "C"):
        return None
    return types.void(panel, types.intp, types.intp, types.intp, targets, rows, sums), build
