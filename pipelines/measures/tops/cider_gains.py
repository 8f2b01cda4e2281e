"""What postings gain (CIDEr-D's exact tops), in whole units, rounded up: 16 at once where their length class is one."""

from __future__ import annotations

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from capgrade.pipelines.measures.tops.cider_index import BLOCK
from capgrade.pipelines.measures.tops.cider_packed import norm_of, rank_of
from capgrade.schemas.compiled import njit
from capgrade.schemas.lanes import is_row

ir = cgutils.ir  # llvmlite's, which numba brings
POSTINGS = 16  # that a line of the cache holds, and that are looked at together
WORDS = ir.VectorType(ir.IntType(32), POSTINGS)


@njit(cache=True, inline="always")
def gain_of(table, posting, ix):
    """What a posting gains, uint16, of a table by class."""
    gain = table[_class_of(posting, ix)] * norm_of(posting, ix.bits, ix.shift, ix.base)
    return np.uint16(np.int32(gain) + np.int32(1))


@njit(cache=True, forceinline=True)
def gains_of(table, first, ix, out):
    """Fill what postings first .. first + POSTINGS gain."""
    d = _class_of(ix.post[first], ix)
    if d == _class_of(ix.post[first + np.uint64(POSTINGS - 1)], ix):  # they are in order of their classes
        _of_one_class(ix.post, first, table[d], np.uint32(ix.bits), np.uint32(ix.shift), np.uint32(ix.base), out)
        return
    for x in range(np.uint64(POSTINGS)):
        out[x] = gain_of(table, ix.post[first + x], ix)


@njit(cache=True, inline="always")
def _class_of(posting, ix):
    return ix.class_of_block[rank_of(posting, ix.bits) // np.uint64(BLOCK)]


@intrinsic
def _of_one_class(typing, post, first, most, bits, shift, base, out):
    """As `gains_of`, of postings of a class that gains `most` at a norm of 1: code, norm and product of all at once."""

    def build(context, builder, signature, args):
        def place(k, kind, at):
            made = context.make_array(signature.args[k])(context, builder, args[k])
            item = cgutils.get_item_pointer(context, builder, signature.args[k], made, [at])
            return builder.bitcast(item, kind.as_pointer())

        mask = builder.sub(builder.shl(ir.IntType(32)(1), args[3]), ir.IntType(32)(1))
        code = builder.and_(builder.load(place(0, WORDS, args[1]), align=4), _each(builder, mask))
        norm = builder.add(builder.shl(code, _each(builder, args[4])), _each(builder, args[5]))
        floats = ir.VectorType(ir.FloatType(), POSTINGS)
        gain = builder.fmul(builder.bitcast(norm, floats), _each(builder, args[2]))
        whole = builder.add(builder.fptosi(gain, WORDS), ir.Constant(WORDS, POSTINGS * [1]))
        halves = ir.VectorType(ir.IntType(16), POSTINGS)
        builder.store(builder.trunc(whole, halves), place(6, halves, context.get_constant(types.intp, 0)), align=2)
        return context.get_dummy_value()

    kinds = types.uint64, types.float32, types.uint32, types.uint32, types.uint32
    if not is_row(post, types.uint32) or not is_row(out, types.uint16) or (first, most, bits, shift, base) != kinds:
        return None
    return types.void(post, *kinds, out), build


def _each(builder, number):
    """A vector of one number."""
    block = ir.VectorType(number.type, POSTINGS)
    one = builder.insert_element(ir.Constant(block, ir.Undefined), number, ir.IntType(32)(0))
    return builder.shuffle_vector(one, one, ir.Constant(WORDS, POSTINGS * [0]))
