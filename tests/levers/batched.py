"""Compile many fusion regions with one call of the C++ compiler, because most of a call's time is the compiler's start.

A region is a fusion of the torch.compile executor. Regions first run as the PyTorch functions they consist of. In these
runs, Inductor lowers each region to C++ kernels, which are collected and not compiled. Then one call compiles all
collected kernels.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from thunder.executors.torch_compile import make_compiled
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.codecache import CppPythonBindingsCodeCache
from torch._inductor.exc import CppCompileError

from tests.levers import proof
from workbench.compiler.fusion import executors
from workbench.compiler.fusion.inductor_write_hazards import memory_with_several_views
from workbench.compiler.trace.fingerprints import fusion_key

_OWNER = SimpleNamespace(executor=SimpleNamespace(name="region"))
_now = AsyncCompile.cpp_pybinding


class NoCppError(Exception):
    """The C++ compiler refuses the code that Inductor writes for a region, even if the code is compiled alone."""


class Kernel:
    """A C++ kernel that Inductor wrote.

    A call before the kernel is compiled does nothing. If the C++ compiler refused the kernel, a call raises an error.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.compiled: Any = None
        self.refused = False

    def __call__(self, *args: Any) -> None:
        if self.refused:
            raise NoCppError
        if self.compiled is not None:
            self.compiled(*(_c_argument(arg) for arg in args))


def _c_argument(arg: Any) -> Any:
    if isinstance(arg, torch.Tensor):
        return ctypes.c_void_p(arg.data_ptr())
    return ctypes.c_double(arg) if isinstance(arg, float) else ctypes.c_int64(arg)


class Region:
    """A region that Inductor lowers. Until its kernels are compiled, calls run its PyTorch functions."""

    def __init__(self, plain: Callable[..., Any], compiled: Callable[..., Any]) -> None:
        self.plain = plain
        self.compiled = compiled
        self.ready = False

    def __call__(self, *args: Any) -> Any:
        if self.ready:
            return self.compiled(*args)
        laid_out = None
        # No kernel is compiled yet, so no kernel writes its results. An op that Inductor leaves to PyTorch may raise an
        # error when it reads these unwritten results.
        with contextlib.suppress(IndexError, RuntimeError):
            laid_out = self.compiled(*map(_copy, args))
        results = self.plain(*args)
        if laid_out is None:
            return results
        held = {arg.untyped_storage().data_ptr() for arg in args if isinstance(arg, torch.Tensor)}
        return [_like(layout, result, held) for layout, result in zip(laid_out, results, strict=True)]


def _copy(arg: Any) -> Any:
    if not isinstance(arg, torch.Tensor):
        return arg
    # Lowering depends on shape, strides, dtype and requires_grad, so the copy has those of `arg`. The copy shares no
    # memory with `arg`, so in-place writes of the compiled code do not change `arg`.
    copy = torch.empty_strided(arg.shape, arg.stride(), dtype=arg.dtype)
    copy = copy.zero_() if 0 in arg.stride() else copy.copy_(arg.detach())
    return copy.requires_grad_(arg.requires_grad)


def _like(layout: Any, result: Any, held: set[int]) -> Any:
    """Return a copy of a result with the strides that Inductor's code would give it.

    Later regions are lowered for the strides of their inputs. Three kinds of results are returned unchanged: an object
    that is not a tensor, a tensor that shares an argument's memory, and a tensor whose layout has a stride of 0.
    """
    own = isinstance(result, torch.Tensor) and result.untyped_storage().data_ptr() not in held
    if not own or 0 in layout.stride():
        return result
    return torch.empty_strided(layout.shape, layout.stride(), dtype=result.dtype).copy_(result)


class Regions:
    """The regions of a program. Regions with equal statements are compiled once.

    Parameters
    ----------
    compiled : bool
        Whether Inductor compiles the regions. If false, they run as PyTorch functions.
    one_by_one : bool
        Whether each region is compiled when it first runs. If false, `together` compiles the regions that run in its
        block.
    """

    def __init__(self, *, compiled: bool, one_by_one: bool) -> None:
        self._compiled = compiled
        self._known: dict[str, Any] = {}
        self._later = one_by_one
        self.count = 0

    def make(self, members: list[Any], inputs: list[Any], outputs: list[Any], *, mode: str | None = None) -> Any:
        """Return a function that runs a region. This method replaces the executor's `make_compiled`."""
        made = SimpleNamespace(args=inputs, output=outputs, subsymbols=members, sym=_OWNER)
        made.flat_proxy_args, made.flat_proxy_outs = inputs, outputs
        key = fusion_key(made)
        if key not in self._known:
            # `plain` runs the region without `torch.compile`. Regions that write into memory with several views are
            # never compiled, as in the workbench.
            asked = torch.compile
            torch.compile = proof.uncompiled
            plain = make_compiled(members, inputs, outputs, mode=mode)
            torch.compile = asked
            if self._compiled and not memory_with_several_views(members, inputs):
                self.count += 1
                plain = Region(plain, make_compiled(members, inputs, outputs, mode=mode))
                plain.ready = self._later
            self._known[key] = plain
        return self._known[key]

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Collect the kernels of regions that run inside the block, and compile them with one call when the block ends.

        If the C++ compiler refuses the call, each kernel is compiled by a separate call, and the refused kernels are
        marked. Each region that first runs after the block is compiled separately.
        """
        kernels: list[Kernel] = []

        def collect(_: Any, argtypes: list[str], source: str) -> Kernel:
            kernels.append(Kernel(source))
            return kernels[-1]

        AsyncCompile.cpp_pybinding = collect
        try:
            yield
        finally:
            AsyncCompile.cpp_pybinding = _now
        if kernels:
            try:
                _build(kernels)
            except CppCompileError:
                for kernel in kernels:
                    try:
                        _build([kernel])
                    except CppCompileError:
                        kernel.refused = True
        for region in self._known.values():
            region.ready = True
        self._later = True


def _build(kernels: list[Kernel]) -> None:
    includes: dict[str, None] = {}
    bodies = []
    for i, kernel in enumerate(kernels):
        lines = kernel.source.splitlines()
        includes.update(dict.fromkeys(line for line in lines if line.startswith("#include")))
        body = "\n".join(line for line in lines if not line.startswith("#include"))
        bodies.append(f"namespace n{i} {{\n{re.sub(r'\bkernel\(', f'kernel_{i}(', body)}\n}}")
    # Inductor's function for a single kernel is used to compile all kernels, because this function uses precompiled
    # headers. It expects a kernel with the name `kernel`.
    bodies.append('extern "C" void kernel() {}')
    loaded = CppPythonBindingsCodeCache.load_pybinding([], "\n".join((*includes, *bodies)))
    library = ctypes.CDLL(loaded.__self__.__file__)
    for i, kernel in enumerate(kernels):
        kernel.compiled = getattr(library, f"kernel_{i}")


@contextlib.contextmanager
def regions(*, compiled: bool, one_by_one: bool = False) -> Iterator[Regions]:
    """Let the torch.compile executors make their regions with a new `Regions` object inside the block."""
    made = Regions(compiled=compiled, one_by_one=one_by_one)
    executors.make_compiled = made.make
    try:
        yield made
    finally:
        executors.make_compiled = make_compiled
        if compiled:
            torch._dynamo.reset()
