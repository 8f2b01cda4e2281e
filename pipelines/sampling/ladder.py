"""The cells of 64 values at once, where edges are the multiples of a width.

With `scale` the inverse of the width, value x scale has reached as many whole numbers as the value has edges. The
product is rounded, so a value just below an edge may get the number of the edge; the remainder, rounded once, has the
right sign, and tells.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from capgrade.pipelines.sampling.lanes import LANES, ir, is_row

FURTHEST = 2**22  # numbers that float32 holds beside fractions
DECIMALS = 3  # of a scale
FLOATS, NUMBERS, CELLS = (ir.VectorType(kind, LANES) for kind in (ir.FloatType(), ir.IntType(32), ir.IntType(8)))
FMA = ir.FunctionType(FLOATS, 3 * [FLOATS])


def scale_of(edges: np.ndarray) -> float:
    """By which float32 values are multiplied, so that each finite one of the ascending edges is where they reach the
    next whole number; 0 if there is no such scale."""
    finite = edges[np.isfinite(edges)]
    if len(finite) < 2:
        return 0.0
    scale = np.float32(np.round((len(finite) - 1) / (float(finite[-1]) - float(finite[0])), DECIMALS))
    at, below = (edge.astype(np.float64) * scale for edge in (finite, np.nextafter(finite, np.float32(-np.inf))))
    numbers = np.floor(at)  # of products that float64 holds without rounding
    fits = (numbers - 1 <= below) & (below < numbers) & (numbers - numbers[0] == np.arange(len(finite)))
    fits &= below.astype(np.float32) != 0  # what is rounded to 0 leaves no remainder
    return float(scale) if fits.all() and np.abs(numbers).max() < FURTHEST else 0.0


@intrinsic
def climb(typing, values, at, scale, least, most, first, cells, to):
    """Put the cells of LANES values from `at` on, held between `least` and `most`, into uint8 `cells` from `to` on: how
    many whole numbers above `first`, uint8, value x scale has reached, modulo 256. NaNs count as `most`."""

    def build(context, builder, signature, args):
        source, target = (_place(context, builder, signature.args[k], args[k], args[k + 1]) for k in (0, 6))
        values = builder.load(builder.bitcast(source, FLOATS.as_pointer()), align=4)
        scale, least, most = (_everywhere(builder, FLOATS, arg) for arg in args[2:5])
        values = builder.select(builder.fcmp_ordered("<", values, most), values, most)
        values = builder.select(builder.fcmp_ordered(">", values, least), values, least)
        numbers = builder.fptosi(builder.fmul(values, scale), NUMBERS)
        fma = cgutils.get_or_insert_function(builder.module, FMA, f"llvm.fma.v{LANES}f32")
        rest = builder.call(fma, [values, scale, builder.fneg(builder.sitofp(numbers, FLOATS))])
        above = builder.fcmp_ordered("<", rest, ir.Constant(FLOATS, LANES * [0.0]))
        numbers = builder.add(numbers, builder.sext(above, NUMBERS))
        found = builder.sub(builder.trunc(numbers, CELLS), _everywhere(builder, CELLS, args[5]))
        builder.store(found, builder.bitcast(target, CELLS.as_pointer()), align=1)
        return context.get_dummy_value()

    if not is_row(values, types.float32) or not is_row(cells, types.uint8):
        return None
    number = types.float32
    return types.void(values, types.intp, number, number, number, types.uint8, cells, types.intp), build


def _place(context, builder, kind, array, index):
    return cgutils.get_item_pointer(context, builder, kind, context.make_array(kind)(context, builder, array), [index])


def _everywhere(builder, kind, number):
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, one, ir.Constant(NUMBERS, LANES * [0]))
