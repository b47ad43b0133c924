"""Compile a program with ``thunder.jit``: with the choices of a config, or without choices for a comparison."""

from __future__ import annotations

import difflib
import functools
import inspect
import warnings
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from types import MappingProxyType
from typing import Any

import torch

from workbench.analysis.equivalence.prove import Proof
from workbench.compiler.driver.interpreted_state import follow_state
from workbench.compiler.driver.stock_thunder import WAYS, compile_unmodified
from workbench.compiler.frontend import dynamo, fake_process_group, graph_breaks, sharded_graphs
from workbench.compiler.fusion.executors import (
    Observer,
)
from workbench.compiler.interop import thunder_api
from workbench.compiler.interop.thunder_api import Transform
from workbench.compiler.lowering import patch_context
from workbench.compiler.pipeline.compilation import Hooks
from workbench.core.config import EAGER, Config
from workbench.errors import ConfigError, ConfigWarning, short_repr
from workbench.programs.modes import active_modes
from workbench.programs.user_arguments import check_callable, original_of


def jit(config: Config, fn: Callable[..., Any], *, observer: Observer | None = None, **options: Any) -> Any:
    """Compile `fn` with ``thunder.jit`` and the choices of a config.

    Parameters
    ----------
    config : Config
    fn : callable or torch.nn.Module
    observer : Observer, optional
        Is notified of stages and fusions during compilation.
    **options
        Arguments for ``thunder.jit``. Transforms in `transforms` run after the workbench has tagged the origins of
        statements, and before all other transforms of the workbench. By default, `transforms` are the transforms that
        share the program among the ranks of this process's group, as the config says.

    Warns
    -----
    ConfigWarning
        If the config was made with different versions or for a different program. Also if the config contains choices
        without a site in this program; such choices are ignored. The warning comes at the first call. For a program in
        parts, warnings about versions, and about choices that belong to no part, come at once.

    Raises
    ------
    ChoiceError
        At the first call, if a choice is illegal for this program.
    ConfigError
        If `options` contains `executors`, or if ranks share the program and this process is not in their group.
    ProgramError
        If `fn` cannot be shared among the config's number of ranks.
    PlanError
        At the first call, before anything runs, if the workbench cannot prove that the compiled program computes the
        same results as Thunder's joint trace of `fn`, or as the traces that Thunder makes without choices.
    """
    fn = original_of(fn)
    check_callable(fn)
    _check_options(options)
    again = None if "transforms" in options else functools.partial(jit, config, **options)
    shared = options.pop("transforms", None)
    if shared is None:
        shared = fake_process_group.transforms_here(config, fn) if config.parallel else ()
    proofs: list[Proof] = []
    # Use one `Hooks` object for all graphs and all recompilations, so that each warning is given once.
    hooks = Hooks(config.executor, config.choices, observer, config.parallel)
    hooks.config, hooks.warn, hooks.proofs = config, True, proofs
    if isinstance(fn, torch.nn.Module):
        module = weakref.ref(fn)
        hooks.training = lambda: getattr(module(), "training", None)

    def compile_function(function: Callable[..., Any], sharing: Sequence[Transform] = tuple(shared)) -> Any:
        hooks.restart()
        own = hooks.transforms()
        transforms = [own[0], *sharing, *own[1:]]
        return patch_context.jit(function, executors=hooks.executors(), transforms=transforms, **options)

    if config.capture == "parts":
        jitted = _compile_parts(config, fn, observer, shared, options)
    else:
        sharing = shared if config.parallel else ()
        jitted = _compile_graph(fn, config.capture, compile_function, sharing, observer, config.modes)
        jitted._workbench_proofs = proofs
    if isinstance(jitted, dynamo.CompiledModule) and again is not None:
        jitted.set_maker(again)
    return jitted


def _check_options(options: Mapping[str, Any]) -> None:
    """Refuse `executors`, and options that look like a misspelt argument of ``thunder.jit``, which ignores them."""
    if "executors" in options:
        raise ConfigError("executors= cannot be given here: the config names them")
    known = inspect.signature(thunder_api.jit).parameters
    for name in options:
        if name not in known and (close := difflib.get_close_matches(name, known, n=1, cutoff=0.8)):
            raise ConfigError(f"thunder.jit has no argument {short_repr(name)}; did you mean {close[0]}?")


def _compile_graph(
    fn: Callable[..., Any],
    capture: str,
    compiler: Callable[..., Any],
    sharing: Sequence[Transform],
    observer: Observer | None = None,
    modes: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """Compile a program of one graph with the front end that captured it."""
    if capture == "dynamo" and not sharing:
        return dynamo.jit(fn, compiler, observer, modes)
    if capture == "dynamo" and isinstance(fn, torch.nn.Module) and not sharded_graphs.changes_device(fn, sharing):
        return dynamo.jit_among_ranks(fn, sharing, compiler, observer, modes)
    # The interpreter gives the same site ids as Dynamo. Unlike Dynamo, the interpreter supports a module whose tensors
    # a transform moves to the device of the rank.
    jitted = compiler(fn)
    return _wrap_call(jitted, modes, jitted if sharing else follow_state(fn, jitted))


def _compile_parts(
    config: Config, fn: Callable[..., Any], observer: Observer | None, shared: Sequence[Transform], options: Any
) -> Any:
    """Compile a program of several graphs. Each part is compiled with its own choices."""
    proofs: list[Proof] = []
    names, copied = {}, {}
    for part, kind, key, inputs in config.read_parts():
        names[key], copied[key] = (part, kind), inputs
    met: set[str] = set()
    stray = sorted(id for id in config.choices if id.partition(":")[0] not in config.parts)
    found = [config.differences(config.fingerprint)]
    if stray:
        found.append(
            f"{len(stray)} of {len(config.choices)} choices belong to no part and are left out: {', '.join(stray)}"
        )
    for told in filter(None, found):
        warnings.warn(ConfigWarning(told), stacklevel=3)

    def compiler_of(piece: graph_breaks.Piece) -> dynamo.Compiler | None:
        name, kind = names.get(piece.key, ("", ""))
        if not name:
            _warn_of_unknown_parts(config, piece, met)
        # The config marks the parts that PyTorch must run, because only planning finds every reason against compiling a
        # part. For example, the program may differentiate a gradient of the part again.
        if not name or piece.refusal or kind == EAGER:
            return None
        own = config.of_part(name)
        hooks = Hooks(config.executor, own.choices, observer)
        hooks.config, hooks.warn, hooks.proofs = own, True, proofs

        def compile_function(function: Callable[..., Any]) -> Any:
            hooks.restart()
            first, *rest = hooks.transforms()
            transforms = [first, *shared, *rest]
            return patch_context.jit(function, executors=hooks.executors(), transforms=transforms, **options)

        return compile_function

    made = graph_breaks.CompiledParts(fn, compiler_of, observer, config.modes, copied=copied)
    jitted = dynamo.wrap_like(fn, made)
    jitted._workbench_proofs = proofs
    jitted._workbench_jitted, jitted._workbench_uncompiled = made.jitted, made.uncompiled
    return jitted


def _warn_of_unknown_parts(config: Config, piece: graph_breaks.Piece, met: set[str]) -> None:
    """Warn that a program contains a part that its config does not list; only the first such part gives a warning."""
    if not met:
        warnings.warn(
            ConfigWarning(
                f"{piece.source or 'a part'} is not a part for which the config for {short_repr(config.program)} was "
                "made: PyTorch runs this part unchanged. Open the program again to make choices for the part"
            ),
            stacklevel=2,
        )
    met.add(piece.key)


def _wrap_call(jitted: Any, modes: Mapping[str, str], call: Any) -> Any:
    """Make the result of `thunder.jit` call another function, with PyTorch's modes set in each call.

    Return the same object if it is a module, and a wrapper if it is a function.
    """
    module = isinstance(jitted, torch.nn.Module)
    if module and call is jitted:
        call = jitted.forward

    @functools.wraps(call)
    def call_with_modes(*args: Any, **kwargs: Any) -> Any:
        with active_modes(modes) if modes else nullcontext():
            return call(*args, **kwargs)

    if not module:
        return call_with_modes
    jitted.forward = call_with_modes
    return jitted


def proofs_of(jitted: Any) -> tuple[Proof, ...]:
    """Return the proofs of a result of `jit`, one for each compilation so far; empty for any other callable."""
    return tuple(getattr(jitted, "_workbench_proofs", ()))


def unmodified(
    fn: Callable[..., Any], transforms: Sequence[Transform] = (), entry_points: Sequence[str] = WAYS
) -> Callable[..., Any]:
    """Compile a program with unmodified Thunder and its default executors. Runs use the result as their reference.

    Parameters
    ----------
    fn : callable or torch.nn.Module
    transforms : sequence of Transform, optional
        Transforms for ``thunder.jit`` that share the program among ranks.
    entry_points : sequence of {'thunder.jit', 'thunderfx'}
        Functions of Thunder to try in this order; not used if there are `transforms`.
    """
    made: Callable[..., Any] = (
        thunder_api.jit(fn, transforms=list(transforms)) if transforms else compile_unmodified(fn, entry_points)
    )
    return made


def stock(
    fn: Callable[..., Any],
    transforms: Sequence[Transform] = (),
    capture: str = "interpreter",
    uncompiled: Collection[str] = (),
) -> Callable[..., Any]:
    """Compile a program with the front end of a plan, but with Thunder's default executors and without choices.

    Parameters
    ----------
    fn : callable or torch.nn.Module
    transforms : sequence of Transform, optional
        Transforms that share the program among ranks.
    capture : {'dynamo', 'interpreter', 'parts'}
        The front end.
    uncompiled : collection of str, optional
        Keys of the parts that PyTorch runs, as in a config. For example, a part with second derivatives.
    """

    def compile_function(function: Callable[..., Any], sharing: Sequence[Transform] = tuple(transforms)) -> Any:
        return patch_context.jit(function, transforms=list(sharing))

    def compiler_of(piece: graph_breaks.Piece) -> dynamo.Compiler | None:
        return None if piece.refusal or piece.key in uncompiled else compile_function

    if capture == "parts":
        made = graph_breaks.CompiledParts(fn, compiler_of, planned=False)
        given: Callable[..., Any] = dynamo.wrap_like(fn, made)
        given._workbench_jitted = made.jitted  # type: ignore[attr-defined]
        return given
    jitted: Callable[..., Any] = _compile_graph(fn, capture, compile_function, transforms)
    return jitted
