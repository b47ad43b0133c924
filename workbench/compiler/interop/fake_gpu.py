"""Patches to trace a program for a missing GPU, each with its reason and the condition for its removal."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch

from workbench.compiler.interop.thread_patches import (
    ThreadPatches,
    replace_function,
    wrap_function,
)
from workbench.compiler.interop.thunder_api import dtypes, sdpaex, thunder
from workbench.interop.torch_private import _C, FakeTensorMode, TorchDispatchMode


def _to_meta(stock: Any, value: Any) -> Any:
    made = stock(value)
    if isinstance(made, torch.device):
        return torch.device("meta") if made.type == "cuda" else made
    if isinstance(made, torch.Tensor) and made.device.type == "cuda":
        return torch.empty_like(made, device="meta", requires_grad=made.requires_grad)
    return made


def _from_meta(stock: Any, value: Any) -> Any:
    gpu = torch.device("cuda:0")
    if isinstance(value, torch.device) and value.type == "meta":
        return stock(gpu)
    if isinstance(value, torch.Tensor) and value.device.type == "meta":
        with FakeTensorMode():
            value = torch.empty(value.shape, dtype=value.dtype, device=gpu, requires_grad=value.requires_grad)
    return stock(value)


found_on_meta = ThreadPatches(
    "found on meta",
    lambda: [
        wrap_function(thunder.torch, "_get_fake_arg", _to_meta),
        wrap_function(thunder.torch, "_fake_type_to_thunder", _from_meta),
    ],
)
"""Make Thunder use the meta device to compute the output types of the operators that it leaves to PyTorch.

To find the output types, Thunder runs these operators and their gradients on fake tensors. PyTorch's autograd queries
the streams of the tensors' GPU, even for fake tensors. This query fails without a GPU. The meta device has no streams.
Remove this when Thunder itself computes the gradients of these operators on the meta device.
"""


def make_state_fake(optimizer: Any, mode: FakeTensorMode) -> None:
    """Make an optimizer create its state as fake tensors in its first step.

    `optimizer` is a copy of the user's optimizer, and its parameters are fake tensors. Unpatched `torch.optim` would
    still create step counts as real tensors. Remove this when `torch.optim` creates its whole state with the type of
    the parameters.
    """
    make: Any = getattr(optimizer, "_init_group", None)

    def make_fake(*args: Any, **kwargs: Any) -> Any:
        with mode:
            return make(*args, **kwargs)

    if make is not None:
        optimizer._init_group = make_fake


@contextlib.contextmanager
def takes_real_tensors(mode: FakeTensorMode) -> Iterator[None]:
    """In this context, `mode` accepts real tensors, which a program in parts creates between its graphs.

    Tensors that the program creates on a missing GPU are fake. Remove this when PyTorch has a function that sets
    `allow_non_fake_inputs` of an existing mode, and a mode that accepts real tensors on the CPU between graphs.
    """
    before, mode.allow_non_fake_inputs = mode.allow_non_fake_inputs, True
    try:
        with contextlib.nullcontext() if torch.cuda.is_available() else _FakeOnGpu(mode):
            yield
    finally:
        mode.allow_non_fake_inputs = before


class _FakeOnGpu(TorchDispatchMode):
    """Dispatch mode for Python code between graphs. Tensors that this code creates on a missing GPU become fake.

    The same applies to tensors that this code copies to the missing GPU. PyTorch takes this mode for a
    `FakeTensorMode`, and therefore does not look for the GPU. Other tensors stay real, so that the program can read
    their values.
    """

    def __init__(self, mode: FakeTensorMode) -> None:
        super().__init__()
        self._mode_of_gpu, self._mode_key = mode, mode._mode_key

    @classmethod
    def is_infra_mode(cls) -> bool:
        return True  # otherwise Dynamo would compile nothing in this mode

    @torch.compiler.disable
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        on_gpu = torch.device(given.get("device") or "cpu").type == "cuda"
        with self._mode_of_gpu if on_gpu else contextlib.nullcontext():
            return func(*args, **given)


says_there_is_a_gpu = ThreadPatches(
    "a GPU", lambda: [replace_function(torch.cuda, "is_available", lambda: True, traced=True)]
)
"""Make PyTorch report a GPU, because Thunder's nvFuser executor can only be imported with a GPU.

Remove this when the executor can be imported without a GPU.
"""


def _attention(query: Any, key: Any, value: Any, attn_mask: Any = None, *_: Any, **__: Any) -> Any:
    half = query.dtype in (dtypes.bfloat16, dtypes.float16) and attn_mask is None
    return sdpaex.SpdaBackend.FLASH_ATTENTION if half else sdpaex.SpdaBackend.MEMORY_EFFICIENT


recent_gpu = ThreadPatches(
    "a recent GPU",
    lambda: [
        replace_function(sdpaex, "_fused_sdp_choice", _attention),
        replace_function(torch.cuda, "get_device_capability", lambda device=None: (9, 0), traced=True),
    ],
)
"""Make Thunder choose attention kernels as on a recent GPU, and make PyTorch report a device capability of 9.0.

The choice is flash attention for 16-bit floats without a mask, and memory-efficient attention in all other cases.
Unpatched Thunder queries the GPU. Without a GPU, it would decompose the attention. Remove this when the choice of the
kernel can be passed to Thunder.
"""


def _keep_missing_gpu() -> None:
    """Create PyTorch's stand-in for a missing GPU in a thread that lives as long as the process.

    In a CUDA build of PyTorch without a GPU, the first thread with fake tensors creates a stand-in that all threads
    use. After this first thread ends, the next thread with fake tensors crashes. Therefore this function runs before
    any program is opened. PyTorch then creates no further stand-in. Remove this when the stand-in no longer belongs to
    a thread.
    """
    if not torch.backends.cuda.is_built() or torch.cuda.is_available():
        return
    if threading.current_thread() is threading.main_thread():
        _C._ensureCUDADeviceGuardSet()
    else:
        _leave_in_a_thread()


def _leave_in_a_thread() -> None:
    left = threading.Event()

    def leave() -> None:
        _C._ensureCUDADeviceGuardSet()
        left.set()
        threading.Event().wait()

    threading.Thread(target=leave, name="missing GPU", daemon=True).start()
    left.wait()


_keep_missing_gpu()
