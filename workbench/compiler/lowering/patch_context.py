"""Activate the workbench's patches of Thunder only while the workbench traces, plans or compiles.

`install_patches` activates the patches for the thread that enters the context. `jit` is `thunder.jit` with each
compilation inside `install_patches`. The patches are not active while compiled code runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from workbench.compiler.fastpath import install
from workbench.compiler.fastpath.own_executors import gradient_rule
from workbench.compiler.interop import double_backward, thunder_api, thunder_patches
from workbench.compiler.interop.thread_patches import PatchTarget, ThreadPatches, wrap_function
from workbench.compiler.interop.thunder_api import cell_of, transforms
from workbench.compiler.lowering import thunder_fixes
from workbench.programs.modes import turn_given_up
from workbench.util.interruptions import interruptions_raised
from workbench.util.planning_lock import PLANNING


def _patch_targets() -> list[PatchTarget]:
    rule = wrap_function(transforms, "_get_gradfn_and_executor", gradient_rule, everywhere=True)
    return [*thunder_patches.PATCHES, *thunder_fixes.PATCHES, rule]


_compilation = ThreadPatches("compilation", _patch_targets)


@contextlib.contextmanager
def install_patches() -> Iterator[None]:
    """Return a context in which the patches are active for this thread."""
    with _compilation(), install.fast_thunder():
        yield


@contextlib.contextmanager
def compile_alone() -> Iterator[None]:
    """Return a context in which no other thread traces or compiles.

    Threads that compile at the same time would share Dynamo's state, fake tensors and memo tables.
    """
    with contextlib.ExitStack() as inside:
        # While this thread waits for the lock, it must not keep its turn to set PyTorch's process-wide modes. The
        # thread with the lock may wait for this turn.
        with contextlib.nullcontext() if PLANNING.is_mine else turn_given_up():
            inside.enter_context(PLANNING)
        yield


def jit(function: Callable[..., Any], **options: Any) -> Any:
    """Return ``thunder.jit(function, **options)``, with the workbench's patches active in each compilation.

    The result also refuses second derivatives, which Thunder computes wrongly.

    Thunder compiles when the jitted function is called with a new kind of inputs. Two inner functions of `thunder.jit`
    compile: one traces, and one applies the transforms. `jit` wraps these two functions. It can be deleted once
    `thunder.jit` has a hook around a compilation.
    """
    jitted = thunder_api.jit(function, **options)
    inner = jitted._lc_cd.get_computation_and_inputs
    trace, build = (
        cell_of(inner, name) for name in ("acquire_initial_trace", "apply_transforms_and_build_cache_entry")
    )
    trace.cell_contents, build.cell_contents = (
        _trace_with_patches(trace.cell_contents),
        _build_with_patches(build.cell_contents),
    )
    double_backward.refuse_second_derivatives(jitted)
    return jitted


def _trace_with_patches(stock: Callable[..., Any]) -> Callable[..., Any]:
    def acquire_initial_trace(*args: Any, **kwargs: Any) -> Any:
        try:
            with compile_alone(), install_patches(), interruptions_raised(exits=True):
                return stock(*args, **kwargs)
        except BaseException:
            thunder_patches.forget_layouts()
            raise

    return acquire_initial_trace


def _build_with_patches(stock: Callable[..., Any]) -> Callable[..., Any]:
    def apply_transforms_and_build_cache_entry(*args: Any, **kwargs: Any) -> Any:
        try:
            with compile_alone(), install_patches(), interruptions_raised(exits=True):
                return stock(*args, **kwargs)
        finally:
            thunder_patches.forget_layouts()

    return apply_transforms_and_build_cache_entry
