"""Longest common subsequences (LCS) of one text with many others, for kernels: bit-parallel, a text a lane of 16 bits.

A lane's state starts with all bits set. A word clears one bit more where it makes the LCS longer (Crochemore et al.
2001). States stay in registers while the words go by.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

ir = cgutils.ir  # llvmlite's, which numba brings
LANES = 32  # of a register
TOGETHER = 5  # registers: steps of one wait for each other
SOME = 16  # images whose LCS are folded together
ONE = np.float32(1 - 1e-6)  # what is above is 1, but for rounding: one word in a thousand is 1e-3
LEAST = np.float32(1e-30)
INDEX, SHORT = ir.IntType(64), ir.IntType(16)
STATE, FEW = ir.VectorType(SHORT, LANES), ir.VectorType(SHORT, SOME)
FLOATS = ir.VectorType(ir.FloatType(), SOME)


def _at(context, builder, kind, array, index):
    made = context.make_array(kind)(context, builder, array)
    return builder.gep(made.data, [index])


def _load(builder, place, kind, align):
    return builder.load(builder.bitcast(place, kind.as_pointer()), align=align)


def _store(builder, vector, place, align):
    builder.store(vector, builder.bitcast(place, vector.type.as_pointer()), align=align)


def _ones(builder, vector):
    count = cgutils.get_or_insert_function(builder.module, ir.FunctionType(STATE, [STATE]), f"llvm.ctpop.v{LANES}i16")
    return builder.call(count, [vector])


def _number(k):
    return ir.Constant(INDEX, k)


def _run(builder, at, text, lanes, first, count):
    """The lanes of `count` registers from `first` on; `at` finds a place in an argument, `text` goes by the words."""
    all_set = ir.Constant(STATE, LANES * [0xFFFF])
    states = [cgutils.alloca_once(builder, STATE) for _ in range(count)]
    for state in states:
        builder.store(all_set, state)
    with cgutils.for_range(builder, text, intp=INDEX) as loop:
        word = builder.sext(builder.load(at(1, loop.index)), INDEX)
        row = builder.add(builder.mul(word, lanes), first)
        for k, state in enumerate(states):
            mask, now = _load(builder, at(0, builder.add(row, _number(k * LANES))), STATE, 2), builder.load(state)
            longer = builder.add(now, builder.and_(now, mask))
            builder.store(builder.or_(longer, builder.and_(now, builder.not_(mask))), state)
    for k, state in enumerate(states):
        lcs = _ones(builder, builder.xor(builder.load(state), all_set))
        _store(builder, lcs, at(4, builder.add(first, _number(k * LANES))), 2)


@intrinsic
def lcs_of_lanes(typing, masks, words, n, lanes, found):
    """Fill uint16 [lanes], a multiple of LANES: the LCS of a text with each lane's. The text is words[:n], int32: rows
    of `masks`, uint16 [words x lanes], whose bits say where in a lane's text a word is."""

    def build(context, builder, signature, args):
        def at(k, index):
            return _at(context, builder, signature.args[k], args[k], index)

        text, lanes, whole = args[2], args[3], _number(LANES * TOGETHER)
        many = builder.mul(builder.udiv(lanes, whole), whole)
        with cgutils.for_range_slice(builder, _number(0), many, whole) as (first, _):
            _run(builder, at, text, lanes, first, TOGETHER)
        with cgutils.for_range_slice(builder, many, lanes, _number(LANES)) as (first, _):
            _run(builder, at, text, lanes, first, 1)
        return context.get_dummy_value()

    return types.void(masks, words, types.intp, types.intp, found), build


@intrinsic
def rouge_of_slots(typing, found, inverse, slots, width, first, longest, recall, words, beta2, out):
    """ROUGE-L of a text of so many words (float32) with SOME images from `first` on, into float32 out[first:]. Each has
    a lane in each of `slots` runs of `width` lanes: its LCS in `found`, uint16, and 1 / words in `inverse`, float32.
    `longest` and `recall`, float32 [images]: the largest LCS and LCS / words of other references."""

    def build(context, builder, signature, args):
        def at(k, index):
            return _at(context, builder, signature.args[k], args[k], index)

        most, best = cgutils.alloca_once(builder, FLOATS), cgutils.alloca_once(builder, FLOATS)
        for place, k in ((most, 5), (best, 6)):
            builder.store(_load(builder, at(k, args[4]), FLOATS, 4), place)
        with cgutils.for_range(builder, args[2], intp=INDEX) as loop:
            index = builder.add(builder.mul(loop.index, args[3]), args[4])
            lcs = _floats(builder, _load(builder, at(0, index), FEW, 2))
            share = builder.fmul(lcs, _load(builder, at(1, index), FLOATS, 4))
            for value, place in ((lcs, most), (share, best)):
                builder.store(_larger(builder, value, builder.load(place)), place)
        f = _f(builder, builder.load(most), builder.load(best), _each(builder, args[7]), _each(builder, args[8]))
        _store(builder, f, at(9, args[4]), 4)
        return context.get_dummy_value()

    index, number = types.intp, types.float32
    return types.void(found, inverse, index, index, index, longest, recall, number, number, out), build


def _f(builder, longest, recall, words, beta2):
    """(1 + b^2) P R / (R + b^2 P) times words / words, and 1 where only rounding is between."""
    one, least, nearly = (ir.Constant(FLOATS, SOME * [float(x)]) for x in (1, LEAST, ONE))
    below = builder.fadd(builder.fmul(words, recall), builder.fmul(beta2, longest))
    above = builder.fmul(builder.fmul(builder.fadd(one, beta2), longest), recall)
    ratio = builder.fdiv(above, _larger(builder, below, least))
    return builder.select(builder.fcmp_ordered(">", ratio, nearly), one, ratio)


def _larger(builder, a, b):
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _floats(builder, numbers):
    return builder.sitofp(builder.zext(numbers, ir.VectorType(ir.IntType(32), SOME)), FLOATS)


def _each(builder, value):
    one = builder.insert_element(ir.Constant(FLOATS, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), SOME), SOME * [0]))
