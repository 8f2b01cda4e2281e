"""What a GPU has as one kernel and the processor's torch does not: the step of a GRU."""

from __future__ import annotations

import torch
from torch import Tensor


def cell(gi: Tensor, gh: Tensor, hx: Tensor, bi: Tensor, bh: Tensor) -> tuple[Tensor, Tensor]:
    """The next state, and what the backward step needs."""
    (ir, iz, i), (hr, hz, h) = ((gi + bi).chunk(3, 1), (gh + bh).chunk(3, 1))
    r, z = (ir + hr).sigmoid(), (iz + hz).sigmoid()
    n = (i + r * h).tanh()
    return n + z * (hx - n), torch.cat([r, z, n, hx, h], 1)


def cell_backward(dy: Tensor, kept: Tensor, bias: bool) -> tuple[Tensor, ...]:
    r, z, n, hx, h = kept.chunk(5, 1)
    dn, dz = dy * (1 - z) * (1 - n * n), dy * (hx - n) * z * (1 - z)
    dr = dn * h * r * (1 - r)
    gi, gh = torch.cat([dr, dz, dn], 1), torch.cat([dr, dz, dn * r], 1)
    return gi, gh, dy * z, gi.sum(0), gh.sum(0)


KERNELS = {"_thnn_fused_gru_cell": cell, "_thnn_fused_gru_cell_backward": cell_backward}
