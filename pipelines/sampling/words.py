"""The words of 64 pairs at once, compared with bounds."""

from __future__ import annotations

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from capgrade.pipelines.sampling.keys import GUARD
from capgrade.pipelines.sampling.lanes import BITS, LANES, ir, is_row
from capgrade.schemas.bits import FACTORS, SHIFTS

SIDE = 8  # words of a register
WORDS = ir.VectorType(BITS, SIDE)


@intrinsic
def low_words(typing, seeds, caption_keys, at, bounds):
    """A uint64 for each of `bounds`: bit j says whether a lane of a word mix(seed + caption_keys[at + j]) is less than
    that of its bound, of LANES captions that are in the array. `seeds`: a tuple of a number for each word; `bounds`: of
    as many, as `keys.pack` makes them."""

    def build(context, builder, signature, args):
        kind, made = signature.args[1], context.make_array(signature.args[1])(context, builder, args[1])
        starts = [_everywhere(builder, seed) for seed in cgutils.unpack_tuple(builder, args[0])]
        given = [cgutils.unpack_tuple(builder, one) for one in cgutils.unpack_tuple(builder, args[3])]
        levels = [[_everywhere(builder, bound) for bound in one] for one in given]
        found = [ir.Constant(BITS, 0)] * len(levels)
        for j in range(0, LANES, SIDE):
            shift = ir.Constant(BITS, j)
            place = cgutils.get_item_pointer(context, builder, kind, made, [builder.add(args[2], shift)])
            keys = builder.load(builder.bitcast(place, WORDS.as_pointer()), align=8)
            words = [builder.or_(_mix(builder, builder.add(start, keys)), _all(int(GUARD))) for start in starts]
            for k, level in enumerate(levels):
                some = builder.zext(_any_less(builder, words, level), BITS)
                found[k] = builder.or_(found[k], builder.shl(some, shift))
        return context.make_tuple(builder, signature.return_type, found)

    if not is_row(caption_keys, types.uint64) or not isinstance(seeds, types.UniTuple):
        return None
    word = types.uint64
    asked = types.UniTuple(types.UniTuple(word, len(seeds)), len(bounds))
    return types.UniTuple(word, len(bounds))(types.UniTuple(word, len(seeds)), caption_keys, types.intp, asked), build


def _any_less(builder, words, level):
    """A bit for each pair: a lane that is less than its bound takes the guard's bit."""
    left = [builder.not_(builder.sub(word, bound)) for word, bound in zip(words, level, strict=True)]
    taken = left[0]
    for more in left[1:]:
        taken = builder.or_(taken, more)
    some = builder.icmp_unsigned("!=", builder.and_(taken, _all(int(GUARD))), _all(0))
    return builder.bitcast(some, ir.IntType(SIDE))


def _mix(builder, x):
    """`schemas.bits.mix`."""
    for shift, factor in zip(SHIFTS, FACTORS, strict=False):
        x = builder.mul(builder.xor(x, builder.lshr(x, _all(shift))), _all(factor))
    return builder.xor(x, builder.lshr(x, _all(SHIFTS[-1])))


def _all(number):
    return ir.Constant(WORDS, SIDE * [number])


def _everywhere(builder, number):
    one = builder.insert_element(ir.Constant(WORDS, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), SIDE), SIDE * [0]))
