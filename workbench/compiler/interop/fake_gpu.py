"""Patches to trace a program for a GPU where there is none, each with its reason and how to see when it can go."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

import torch

from workbench.compiler.interop.thread_patches import PatchTarget, ThreadPatches, dispatched, function, wrapped
from workbench.compiler.interop.thunder_api import dtypes, sdpaex, thunder
from workbench.interop.torch_private import _C, FakeTensorMode


def _to_meta(stock: Any, given: Any) -> Any:
    made = stock(given)
    if isinstance(made, torch.device):
        return torch.device("meta") if made.type == "cuda" else made
    if isinstance(made, torch.Tensor) and made.device.type == "cuda":
        return torch.empty_like(made, device="meta", requires_grad=made.requires_grad)
    return made


def _from_meta(stock: Any, made: Any) -> Any:
    gpu = torch.device("cuda:0")
    if isinstance(made, torch.device) and made.type == "meta":
        return stock(gpu)
    if isinstance(made, torch.Tensor) and made.device.type == "meta":
        with FakeTensorMode():
            made = torch.empty(made.shape, dtype=made.dtype, device=gpu, requires_grad=made.requires_grad)
    return stock(made)


found_on_meta = ThreadPatches(
    "found on meta",
    lambda: [
        wrapped(thunder.torch, "_get_fake_arg", _to_meta),
        wrapped(thunder.torch, "_fake_type_to_thunder", _from_meta),
    ],
)
"""Inside, Thunder finds on the meta device what the ops give that it registers by itself.

It runs them and their gradients on fake tensors, and even for those PyTorch's autograd asks the GPU that they are on
for its streams. The meta device asks for nothing. It can go once Thunder finds their gradients on another device than
the program's.
"""


def make_state_fake(optimizer: Any, mode: FakeTensorMode) -> None:
    """Let a copy of an optimizer make its state, which it does in its first step, of tensors without values.

    Its parameters are fake tensors, and PyTorch makes the counts of steps beside them as real ones. It can go once
    `torch.optim` makes all of its state like its parameters.
    """
    make: Any = getattr(optimizer, "_init_group", None)

    def made(*args: Any, **kwargs: Any) -> Any:
        with mode:
            return make(*args, **kwargs)

    if make is not None:
        optimizer._init_group = made


@contextlib.contextmanager
def takes_real_tensors(mode: FakeTensorMode) -> Iterator[None]:
    """Inside, a mode of fake tensors takes real ones beside them, which a program makes anew between its graphs.

    It can go once the option can be set after the mode was made.
    """
    before, mode.allow_non_fake_inputs = mode.allow_non_fake_inputs, True
    try:
        yield
    finally:
        mode.allow_non_fake_inputs = before


def _backward(stock: Any, self: torch.Tensor, *args: Any, **kwargs: Any) -> None:
    if not self.is_cuda or torch.cuda.is_available():
        stock(self, *args, **kwargs)
        return
    for leaf in _leaves_of(self):
        if leaf.grad is None:
            with _rehearsed.value:
                leaf.grad = torch.empty_like(leaf, requires_grad=False)


def _rehearse(stock: Any, patches: ThreadPatches) -> Any:
    without_gpu = functools.partial(_backward, stock)
    # Dynamo would follow the dispatch, and cannot guard the mode that the patches are in force with.
    return torch.compiler.disable(dispatched(stock, lambda *args, **kwargs: without_gpu(*args, **kwargs), patches))


_rehearsed = ThreadPatches("backward without a GPU", lambda: [PatchTarget(torch.Tensor, "backward", _rehearse)])


def backward_without_gpu(mode: FakeTensorMode) -> contextlib.AbstractContextManager[None]:
    """Inside, ``loss.backward()`` of a fake tensor on a GPU gives gradients, which autograd would ask the GPU for.

    It can go once autograd runs a backward of fake CUDA tensors where there is no GPU.
    """
    return _rehearsed(mode)


def _leaves_of(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The tensors that a backward from a tensor ends in."""
    ahead, seen, found = [tensor.grad_fn], set(), []
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            found.append(variable)
        ahead.extend(above for above, _ in node.next_functions)
    return found


says_there_is_a_gpu = ThreadPatches("a GPU", lambda: [function(torch.cuda, "is_available", lambda: True, traced=True)])
"""Inside, PyTorch says that a GPU is there: Thunder asks it for one while its nvFuser executor is imported.

It can go once that can be imported without a GPU.
"""


def _attention(query: Any, key: Any, value: Any, attn_mask: Any = None, *_: Any, **__: Any) -> Any:
    half = query.dtype in (dtypes.bfloat16, dtypes.float16) and attn_mask is None
    return sdpaex.SpdaBackend.FLASH_ATTENTION if half else sdpaex.SpdaBackend.MEMORY_EFFICIENT


recent_gpu = ThreadPatches(
    "a recent GPU",
    lambda: [
        function(sdpaex, "_fused_sdp_choice", _attention),
        function(torch.cuda, "get_device_capability", lambda device=None: (9, 0), traced=True),
    ],
)
"""Inside, attention takes the kernel that a recent GPU has, and a program that asks for its capability is told 9.0.

Flash attention for 16-bit floats, which takes no mask, memory-efficient attention otherwise. Thunder asks the GPU, and
without one would take the attention apart. It can go once it can be told.
"""


def _keep_missing_gpu() -> None:
    """Let PyTorch's stand-in for a GPU that is not there be that of a thread that stays as long as the process.

    Where PyTorch was built for CUDA and there is no GPU, the first thread that comes to use fake tensors leaves its own
    to all others, and the next to use them crashes once that thread has ended: so it is done before any is opened. Once
    it is there, PyTorch makes no other. It can go once the stand-in is of the process.
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
