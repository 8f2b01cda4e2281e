"""A GPU that is none: tensors that say cuda:0 and compute on the processor.

A mixed device, `.numpy()` of a device tensor, lengths of packed captions on the device and wrong
dtypes under `autocast("cuda")` become errors; what makes the processor wait for a GPU is counted.
PyTorch's FakeTensorMode does not serve: it stops at data-dependent steps and misses processor
tensors indexed by device ones. Import this before torch, which looks its hooks up once: `pytest -p
tests.fake_gpu.device`, with the library that tests/test_fake_gpu.py builds.
"""

from __future__ import annotations

import ctypes
import os
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.fake_gpu import LIBRARY

ctypes.CDLL(os.environ[LIBRARY], mode=ctypes.RTLD_GLOBAL)

import pytest  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.utils._device import _device_constructors  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves, tree_map  # noqa: E402

DEVICE = "cuda:0"
# Lengths of packed captions lie on the processor.
MAY_MIX = {"_to_copy", "copy_", "_pack_padded_sequence", "_pad_packed_sequence", "gru"}
WAITS = {
    "_local_scalar_dense",
    "nonzero",
    "equal",
    "masked_select",
    "unique2",
    "_unique2",
    "is_nonzero",
}
counted: Counter[str] = Counter()  # "kernels", and why the processor waited: "waits", "copies back"


class OnGpu(Tensor):
    """Wraps the tensor that has the numbers; `.numpy()` of it is an error, as of any on a GPU."""

    inside: Tensor

    @staticmethod
    def __new__(cls, inside: Tensor) -> OnGpu:
        kind = {
            "strides": inside.stride(),
            "storage_offset": inside.storage_offset(),
            "dtype": inside.dtype,
        }
        made = Tensor._make_wrapper_subclass(cls, inside.size(), device=DEVICE, **kind)
        made.inside = inside
        return made

    def __repr__(self, **_: Any) -> str:
        return f"OnGpu({self.inside})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        """In a file it is a plain tensor; a real one would be so too, read with `map_location`."""
        return self.inside.detach().__reduce_ex__(protocol)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.__getitem__:  # torch would make an index of a list on a real GPU
            args = (args[0], _index(args[1]))
        if func is Tensor.new_tensor:
            return torch.tensor(args[1], dtype=args[0].dtype).to(DEVICE)
        if func is Tensor.tolist:
            counted["waits"] += 1
            return args[0].inside.tolist()
        if (
            func in (Tensor.matmul, Tensor.__matmul__) and args[0].ndim == 1
        ):  # it would squeeze its result in place
            return (args[0][None] @ args[1])[0]
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(op, args, kwargs or {})


def _index(index: Any) -> Any:
    """Lists as tensors, also among several indices."""
    if isinstance(index, tuple):
        return tuple(_index(one) for one in index)
    return torch.tensor(index) if isinstance(index, list) else index


def cell(gi: Tensor, gh: Tensor, hx: Tensor, bi: Tensor, bh: Tensor) -> tuple[Tensor, Tensor]:
    """The step of a GRU, which the processor's torch lacks as a kernel: the next state, and what
    its backward needs."""
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


def run(op: Any, args: Any, kwargs: Any) -> Any:
    """One operation: on the device where its tensors or its `device` are, refused where they are on
    both."""
    name = op._schema.name.removeprefix("aten::")
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    ours = {id(x.inside): x for x in tensors if isinstance(x, OnGpu)}
    _refuse_mixed(name, args, tensors, bool(ours))
    asked = kwargs.get("device")
    on_gpu = bool(ours) if asked is None else torch.device(asked).type == "cuda"
    on_gpu = isinstance(args[0], OnGpu) if name == "copy_" else on_gpu
    _count(op, name, args, bool(ours), on_gpu)
    args, kwargs = tree_map(lambda x: x.inside if isinstance(x, OnGpu) else x, (args, kwargs))
    if asked is not None and on_gpu:
        kwargs["device"] = torch.device("cpu")
    found = KERNELS.get(name, op)(*args, **kwargs)
    if name == "_pack_padded_sequence" and on_gpu:
        return OnGpu(found[0]), found[1]  # sizes of steps stay on the processor
    return tree_map(lambda x: _outer(x, ours), found) if on_gpu else found


def _refuse_mixed(name: str, args: Any, tensors: list[Tensor], any_ours: bool) -> None:
    others = [x for x in tensors if not isinstance(x, OnGpu) and x.ndim]
    if "index" in name and isinstance(args[0], OnGpu) and isinstance(args[1], (list, tuple)):
        # indices may
        others = [
            x for x in args[2:] if isinstance(x, Tensor) and not isinstance(x, OnGpu) and x.ndim
        ]
    if name == "_pack_padded_sequence" and isinstance(args[1], OnGpu):
        raise RuntimeError("lengths of packed sequences must lie on the CPU")
    if any_ours and others and name not in MAY_MIX:
        raise RuntimeError(
            f"{name} of tensors on {DEVICE} and of {[tuple(x.shape) for x in others]} on the CPU"
        )


def _count(op: Any, name: str, args: Any, any_ours: bool, on_gpu: bool) -> None:
    """A view is no kernel; a value read, a size that depends on values, and a copy back make the
    processor wait."""
    if not any_ours:
        return
    masks = name.startswith("index") and any(
        isinstance(x, Tensor) and x.dtype == torch.bool for x in tree_leaves(args[1:2])
    )
    counted["waits"] += name in WAITS or masks or (name == "repeat_interleave" and len(args) < 2)
    counted["copies back"] += name in ("_to_copy", "copy_") and not on_gpu
    counted["kernels"] += not op.is_view


def _outer(x: Any, ours: dict[int, OnGpu]) -> Any:
    """In-place operations give back the tensor they were given."""
    return x if not isinstance(x, Tensor) else ours[id(x)] if id(x) in ours else OnGpu(x)


def _made_here(make: Callable) -> Callable:
    """Only what is asked for on the GPU is copied there: transformers makes models on `meta`."""

    def made(data: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
        if device is None or torch.device(device).type != "cuda":
            return make(data, dtype=dtype, device=device)
        return make(data, dtype=dtype).to(device)

    return made


def _loading(load: Callable) -> Callable:
    """Values are copied into the parameters, as on a GPU; those of a GRU, which it holds weakly,
    cannot be swapped."""

    def loaded(*args: Any, **kwargs: Any) -> Any:
        torch.__future__.set_swap_module_params_on_conversion(False)
        try:
            return load(*args, **kwargs)
        finally:
            torch.__future__.set_swap_module_params_on_conversion(True)

    return loaded


class FakeGpu(TorchDispatchMode):
    """Within it `.to("cuda:0")`, `device="cuda:0"` and autocast serve, on the calling thread; one
    GPU is there."""

    def __enter__(self) -> FakeGpu:
        counted.clear()
        _device_constructors()  # it keeps what it finds at its first call, which are torch's own
        self.patch = pytest.MonkeyPatch()
        for name, value in CUDA.items():
            self.patch.setattr(torch.cuda, name, value)
        self.patch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
        for name in ("tensor", "as_tensor"):  # they copy to a real device
            self.patch.setattr(torch, name, _made_here(getattr(torch, name)))
        # its tensors take no version counter, which a wrapper sets
        self.patch.setattr(
            torch._C, "_InferenceMode", lambda mode: torch.set_grad_enabled(not mode)
        )
        self.patch.setattr(
            torch.nn.Module, "load_state_dict", _loading(torch.nn.Module.load_state_dict)
        )
        torch.autograd.set_multithreading_enabled(False)
        torch.__future__.set_swap_module_params_on_conversion(True)
        return super().__enter__()

    def __exit__(self, *error: Any) -> Any:
        self.patch.undo()
        torch.autograd.set_multithreading_enabled(True)
        torch.__future__.set_swap_module_params_on_conversion(False)
        return super().__exit__(*error)

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(op, args, kwargs or {})


CUDA: dict[str, Callable] = {
    "_lazy_init": lambda: None,
    "is_available": lambda: True,
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "set_device": lambda *_: None,
    "synchronize": lambda *_: None,
    "get_device_name": lambda *_: "fake GPU",
    "is_bf16_supported": lambda *_, **__: True,
    "get_rng_state": lambda *_: torch.zeros(16, dtype=torch.uint8),
    "set_rng_state": lambda *_: None,
    "manual_seed_all": lambda *_: None,
    "manual_seed": lambda *_: None,
}
