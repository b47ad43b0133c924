"""One step of a program, forward and backward, and the check of its results against reference compilers.

`Stepper` is the only definition of a step. Compilation, timing, memory measurement and the accuracy check all use it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch.autograd.graph import increment_version

from workbench.analysis.memory.allocator import dense_parts, storage_bytes
from workbench.errors import ProgramError, is_out_of_memory, short_repr
from workbench.interop.torch_private import OpOverload, TorchDispatchMode, _to_copy
from workbench.programs.modes import active_modes
from workbench.programs.placement import random_states, seed_all
from workbench.programs.tensors import find_tensors, state_of
from workbench.runs.log.tensor_error import THIS_RUN, TensorError
from workbench.runs.measure.in_double import Widening, widened
from workbench.runs.measure.own_errors import (
    FLOAT64,
    InDouble,
    compare_in_double,
    is_unstable,
    larger_errors,
    own_errors_of,
)
from workbench.runs.measure.saved_reference import Reference, SavedReferences
from workbench.runs.measure.tensor_diff import (
    RELATIVE_TOLERANCE,
    SPREAD,
    OwnError,
    RecordedTensor,
    compare_tensors,
    tensors_with_other_bits,
    to_double,
)

type Parts = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
"""A callable with its arguments and keyword arguments."""

_BY_NAME = {str(dtype).removeprefix("torch."): share for dtype, share in RELATIVE_TOLERANCE.items()}

_PRECISE = (torch.float32, torch.float64)
_IMPRECISE = (torch.float16, torch.bfloat16)

_NAMED = 3
"""Maximum number of changed kernels that a message names."""

THUNDER = "thunder.jit"
"""Name of the reference that is unmodified Thunder."""

THUNDERFX = "thunderfx"
"""Name of the reference that is unmodified Thunder with a trace by Dynamo."""

_THUNDERS = (THUNDER, THUNDERFX)

TORCH_COMPILE = "torch.compile"
"""Name of the reference that is plain `torch.compile` without choices. It is used for runs of plain `torch.compile`."""

STOCK = "stock plan"
"""Name of the reference that is a plan without choices.

This reference is used for a program that draws random numbers, if the program is captured in parts, or if unmodified
Thunder cannot compile the program or draws wrong numbers.
"""

STOCK_IS = (
    "compared with the workbench's own plan without choices, by Thunder's default executors and with its corrections"
)
"""Description of the reference `STOCK`. In messages, it follows the reason why ``thunder.jit`` is not used."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Outcome of an accuracy check.

    Attributes
    ----------
    ok : bool
        Whether all tensors are within their tolerances.
    max_error : float
        Largest absolute error.
    against : str
        Name of the references: ``thunder.jit``, or ``thunderfx`` for a program that Dynamo traces. The name ends with
        `` and eager`` if the program draws no random numbers. If unmodified Thunder cannot compile the program or is
        wrong, the name is ``PyTorch eager`` or, with random numbers, ``stock plan``. For a run of plain
        `torch.compile`, ``torch.compile`` takes the place of ``thunder.jit``.
    tensors : tuple of TensorError
        Errors of all tensors against each reference. Errors against `FLOAT64` are included if the program can run in
        double precision. Errors against `FLOAT64` count for `ok`, but not for `max_error`. For a tensor with another
        meaning in double precision, `TensorError.lacks` is `FLOAT64`, and the error is eager PyTorch's own.
    bitwise : bool or None
        Whether every bit of every tensor equals unmodified Thunder's; None if unmodified Thunder is not the reference.
    changed_kernels : tuple of str or None
        Names of the fusions and statements that run here and not in unmodified Thunder; None if they are not known. If
        no kernel differs, the tensors must be bitwise equal. Tensors that differ between two runs of unmodified Thunder
        are exempt. If some kernel differs, errors up to `workbench.runs.measure.tensor_diff.RELATIVE_TOLERANCE` are
        allowed.
    unstable : bool
        Whether an error against double precision exceeds the data type's tolerance, but is allowed. It is allowed if
        eager PyTorch's own error is similarly large, or if every bit equals the references' bits.
    is_saved : bool
        Whether unmodified Thunder's results come from an earlier run of the program.
    why : str
        Reasons why other compilers are not the reference, for example that they failed or gave wrong results. Empty if
        the first compiler that was tried is the reference.
    """

    ok: bool
    max_error: float
    against: str
    # Leave the tensors out of the repr, because a notebook would show three lines for each output and gradient.
    tensors: tuple[TensorError, ...] = dataclasses.field(repr=False)
    bitwise: bool | None = None
    changed_kernels: tuple[str, ...] | None = None
    unstable: bool = False
    is_saved: bool = False
    why: str = ""

    @property
    def relative_tolerance(self) -> dict[str, float]:
        """Allowed error against unmodified Thunder for each data type, as a share of the largest element.

        0 means that every bit must be equal.
        """
        allowed: dict[str, float] = {}
        for tensor in self.tensors:
            if tensor.against in _THUNDERS and tensor.dtype in _BY_NAME:
                share = _BY_NAME[tensor.dtype] if tensor.tolerance > 0 else 0.0
                allowed[tensor.dtype] = max(allowed.get(tensor.dtype, 0.0), share)
        return allowed

    @property
    def words(self) -> str:
        """Sentence for the user that says whether the results are bitwise equal to unmodified Thunder's.

        If bitwise equality is not required, the sentence states the reason and the tolerance. If unmodified Thunder is
        not the reference, the sentence names the reference and the reason. Empty if the kernels are not known.
        """
        if self.why and self.bitwise is None:
            return f"compared with {self.against}, because {self.why}{self._instability}"
        if self.changed_kernels is None or self.bitwise is None:
            return ""
        if not self.changed_kernels:
            if not self.bitwise:
                return "the kernels are those of unmodified Thunder, but some bits differ"
            return f"every bit equals unmodified Thunder's result{self._instability}"
        names = ", ".join(self.changed_kernels[:_NAMED]) + (", …" if len(self.changed_kernels) > _NAMED else "")
        allowed = ", ".join(f"{share:g} ({dtype})" for dtype, share in self.relative_tolerance.items() if share)
        bits = (
            f"yet every bit equals its result{self._instability}"
            if self.bitwise
            else f"so errors up to {allowed} of the largest element are allowed{self._instability}"
        )
        count = "1 kernel differs" if len(self.changed_kernels) == 1 else f"{len(self.changed_kernels)} kernels differ"
        return f"{count} from those of unmodified Thunder ({names}), {bits}"

    @property
    def _instability(self) -> str:
        in_double = self._reference_text(FLOAT64, True)
        lacking = [tensor.name for tensor in in_double if tensor.lacks]
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        other = (
            f"; double precision is no reference for {lacking[0]}{more}: the program may compute something else in it"
            if lacking
            else ""
        )
        if not self.unstable:
            return other
        dtypes = {
            tensor.dtype
            for tensor in in_double
            if not tensor.lacks
            if tensor.tolerance == math.inf or tensor.max_rel_error > _BY_NAME.get(tensor.dtype, 0.0)
        }
        return (
            f"; {' and '.join(sorted(dtypes))} itself is unstable here: eager PyTorch is as far from double precision"
            f"{other}"
        )

    @property
    def worst(self) -> TensorError | None:
        """Tensor closest to its tolerance, or farthest beyond it; None without tensors. Leaves out `FLOAT64` errors."""
        return max(self._reference_text(FLOAT64, False), key=lambda tensor: tensor.severity, default=None)

    @property
    def worst_float64(self) -> TensorError | None:
        """Tensor with the largest relative error against double precision; None without such a comparison."""
        compared = [tensor for tensor in self._reference_text(FLOAT64, True) if not tensor.lacks]
        return max(compared, key=lambda tensor: tensor.max_rel_error, default=None)

    def _reference_text(self, reference: str, is_it: bool) -> list[TensorError]:
        return [tensor for tensor in self.tensors if (tensor.against == reference) is is_it]


class Stepper:
    """A program that can be stepped: forward, and backward if an output requires grad.

    Parameters
    ----------
    original : callable
        The function or module as built. The stepper finds the parameters and buffers in it.
    args, kwargs
        Inputs. A step uses these objects themselves, not copies.
    run : callable, optional
        The compiled callable; the default is `original` itself, that is, eager.
    seed : int
        Seed for the random cotangents, that is, for the gradients of the outputs at which the backward begins.
    modes : mapping of str to str, optional
        PyTorch's modes in each forward; as in `workbench.core.config.MODES`.
    """

    def __init__(
        self,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        run: Callable[..., Any] | None = None,
        *,
        seed: int = 0,
        modes: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.args, self.kwargs, self.modes = args, kwargs, modes
        self.run = run if run is not None else original
        self.seed = seed
        self.cotangents: list[torch.Tensor] | None = None
        self.widening: Widening | None = None
        self.least = 0.0  # of the program's own data types, in double precision
        self._loss = torch.zeros(())
        self._original = original
        self._holds_optimizer = bool(find_tensors((original, args, kwargs)).optimizers)
        self._runs_backward: bool | None = None
        self._spent = frozenset[int]()  # places of the outputs that the program differentiates itself
        state = state_of(original, self.run)
        self.parameters = {name: tensor for name, tensor in state.items() if _is_parameter(tensor)}
        self.buffers = {name: tensor for name, tensor in state.items() if name not in self.parameters}
        self.inputs = self._held_by_inputs()
        self._state = frozenset((*state, *self.inputs))
        self._before = {name: tensor._version for name, tensor in self._changeable()}

    def _held_by_inputs(self) -> dict[str, torch.Tensor]:
        return {**find_tensors(self.args, "args").tensors, **find_tensors(self.kwargs, "kwargs").tensors}

    @property
    def device(self) -> torch.device:
        """Device of the program's first tensor; the CPU if it has none."""
        tensors = [*self.inputs.values(), *self.parameters.values(), *self.buffers.values()]
        return next((tensor.device for tensor in tensors), torch.device("cpu"))

    @property
    def takes_steps(self) -> bool:
        """Whether the program runs its own backward.

        It does so if it holds an optimizer, or if its first forward has differentiated all outputs that have a graph.
        """
        return self._holds_optimizer or bool(self._runs_backward)

    @property
    def has_backward(self) -> bool:
        """Return whether Thunder compiled a backward for the program's last call."""
        statistics = getattr(self.run, "_lc_cs", None)
        return bool(statistics is not None and statistics.last_backward_traces)

    def clear_grads(self) -> None:
        """Set the gradients of parameters and inputs to None."""
        for tensor in (*self.parameters.values(), *self.inputs.values()):
            if tensor.is_leaf:
                tensor.grad = None

    def synchronize(self) -> None:
        """Wait until the device has finished all submitted work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def forward(self) -> Any:
        """Call the program once."""
        if self._runs_backward is None and not self._holds_optimizer:
            return self._watched_forward()
        with active_modes(self.modes):
            return self.run(*self.args, **self.kwargs)

    def _watched_forward(self) -> Any:
        """Call the program for the first time, and note whether it runs a backward, as a step written by hand does."""
        # Imported here, because a run of plain `torch.compile` needs nothing else of the compiler.
        from workbench.compiler.interop.backward_without_gpu import is_spent, watch_backwards

        stored: list[bool] = []
        with watch_backwards(lambda _, stores: stored.append(stores)), active_modes(self.modes):
            outputs = self.run(*self.args, **self.kwargs)
        if any(stored):
            differentiable = _differentiable(outputs)
            self._spent = frozenset(at for at, output in enumerate(differentiable) if is_spent(output))
            self._runs_backward = len(self._spent) == len(differentiable)
        else:
            self._runs_backward = False
        return outputs

    def backward(self, outputs: Any) -> bool:
        """Run the backward from the outputs that require grad.

        A single scalar output is the loss. Other outputs get random cotangents, drawn with the stepper's seed. Nothing
        is done for a program that runs its own backward, and for outputs that a program differentiates itself.

        Returns
        -------
        bool
            Whether a backward ran here.
        """
        if self.takes_steps:
            return False
        floating = _differentiable(outputs)
        wanted = [output.requires_grad and at not in self._spent for at, output in enumerate(floating)]
        differentiable = list(itertools.compress(floating, wanted))
        if not differentiable:
            return False
        if len(floating) == 1 and floating[0].dim() == 0:
            floating[0].backward()
            return True
        # Draw cotangents for all outputs, because Thunder and eager may differ in which outputs require grad.
        if self.cotangents is None:
            self.cotangents = _draw_cotangents(floating, self.seed)
            self._loss = torch.zeros((), device=floating[0].device)
        drawn = [cotangent for cotangent, is_wanted in zip(self.cotangents, wanted, strict=True) if is_wanted]
        apply: Any = _StandInLoss.apply  # PyTorch declares no types for it
        # Do not compute a real loss: the loss and its gradient would be new tensors, and the step's measured memory
        # would include them. An allocator that rounds up to blocks would use a whole block for each of the two tensors.
        apply(self._loss, drawn, *differentiable).backward(self._loss)
        return True

    def step(self) -> Any:
        """Run one forward and backward; return the outputs."""
        outputs = self.forward()
        self.backward(outputs)
        return outputs

    def baseline_storages(self) -> list[tuple[torch.UntypedStorage, int]]:
        """Return each storage of parameters, buffers, inputs and the state of optimizers, with its bytes."""
        state = [*self.parameters.values(), *self.buffers.values()]
        if self.takes_steps:
            # This includes the state that the program's optimizer made in its first step.
            state = [*state_of(self._original, self.run).values(), *self._held_by_inputs().values()]
        dense = itertools.chain.from_iterable(map(dense_parts, [*state, *self.inputs.values()]))
        return list({t.untyped_storage()._cdata: (t.untyped_storage(), storage_bytes(t)) for t in dense}.values())

    def baseline_bytes(self) -> int:
        """Return the bytes of `baseline_storages`."""
        return sum(nbytes for _, nbytes in self.baseline_storages())

    def record(self, outputs: Any, *, whole: bool = False) -> dict[str, RecordedTensor]:
        """Return copies, on the CPU, of outputs, gradients, and all tensors that the step may have changed.

        The step may have changed inputs, buffers, parameters and the state of an optimizer. A parameter is copied only
        if the step wrote to it, or with `whole`. A comparison of training needs `whole`: an optimizer writes to a
        parameter whose gradient is zeros, and skips a parameter whose gradient is None.
        """
        found: dict[str, RecordedTensor] = {}
        for path, leaf in find_tensors(outputs, "output").leaves:
            found[path] = RecordedTensor(
                "output", _on_cpu(leaf) if isinstance(leaf, torch.Tensor) else torch.as_tensor(leaf)
            )
        for name, tensor in (*self.parameters.items(), *self.inputs.items()):
            if tensor.requires_grad and tensor.is_leaf:
                found[f"grad({name})"] = RecordedTensor("grad", None if tensor.grad is None else _on_cpu(tensor.grad))
        if self.takes_steps:
            # An optimizer creates its state in its first step.
            made = state_of(self._original, self.run) | self._held_by_inputs()
            found |= {name: RecordedTensor("buffer", _on_cpu(made[name])) for name in made if name not in self._state}
        for name, tensor in self._changeable():
            kind = name.partition("(")[0].partition("[")[0]
            # Some optimizers, such as AdamW(foreach=True) under `ForwardWatch`, write without increasing `_version`.
            changed = self.takes_steps or tensor._version != self._before[name]
            # Copy a parameter only if it changed: parameters are most of a model, and few programs write to them.
            if whole or changed or kind != "parameter":
                found[name] = RecordedTensor(kind, _on_cpu(tensor), changed)
        return found

    def _changeable(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield from self.inputs.items()
        for name, tensor in self.buffers.items():
            yield f"buffer({name})", tensor
        for name, tensor in self.parameters.items():
            yield f"parameter({name})", tensor


def step(callable_: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, seed: int = 0) -> Any:
    """Run a program's forward and backward once, with the definition of a step that the whole workbench uses.

    Parameters
    ----------
    callable_, args, kwargs
        The program.
    seed : int
        Seed for the random cotangents.

    Returns
    -------
    object
        The program's result. The gradients are in the ``grad`` of parameters and inputs.
    """
    return Stepper(callable_, args, kwargs, seed=seed).step()


def first_step(stepper: Stepper, seed: int) -> dict[str, RecordedTensor]:
    """Seed all random numbers, run the first step of a newly built program, and record the results.

    The gradients are cleared before the step, because copies of a program may share tensors of an imported module.
    """
    stepper.clear_grads()
    seed_all(seed)
    outputs = stepper.forward()
    return _finish(stepper, outputs)


def check_first_step(
    recorded: dict[str, RecordedTensor],
    build: Callable[[], Parts],
    *,
    seed: int = 0,
    kernels: Mapping[str, str] | None = None,
    on_tensor: Callable[[TensorError], None] | None = None,
    capture: str = "interpreter",
    modes: Mapping[str, str] = MappingProxyType({}),
    draws_differ: Sequence[str] = (),
    uncompiled: Collection[str] = (),
    references: SavedReferences | None = None,
) -> Accuracy:
    """Compare a program's first step with the first steps of unmodified Thunder and of eager PyTorch.

    If the program draws random numbers, it is not compared with eager PyTorch, because the numbers would differ.

    Parameters
    ----------
    recorded : dict
        Result of `first_step` for a new program from `build`.
    build : callable
        Makes a new copy of the program, with the same values each time, so that the compared steps share no state.
    seed : int
        The seed that `first_step` got.
    kernels : mapping of str to str, optional
        Kernels that ran, from `workbench.compiler.planner.kernel_identity.kernels_of`. If unmodified Thunder runs the
        same kernels, every bit must be the same.
    on_tensor : callable, optional
        Called with the error of each tensor as soon as the tensor is compared.
    capture : {'dynamo', 'interpreter', 'parts', 'torch.compile'}
        Capture method of the program. The references use the same method first. With ``torch.compile``, the reference
        is plain `torch.compile` without choices.
    modes : mapping of str to str, optional
        PyTorch's modes in each forward.
    draws_differ : sequence of str, optional
        As in `workbench.runs.process.request.RunRequest`.
    uncompiled : collection of str, optional
        Keys of the parts that PyTorch runs, if the program is captured in parts.
    references : SavedReferences, optional
        Store for the results of unmodified Thunder, from which later runs load them.

    Returns
    -------
    Accuracy

    Raises
    ------
    ProgramError
        If `build` gives different values each time, so that nothing can be compared.
    """
    callable_, args, kwargs = build()
    eager = Stepper(callable_, args, kwargs, seed=seed, modes=modes)
    start = _start_of(eager)
    eager.clear_grads()
    seed_all(seed)
    with ForwardWatch() as watch:
        outputs = eager.forward()
    random, least = watch.random, max(least_tolerance(modes), watch.least)
    by_eager = _finish(eager, outputs)
    comparisons = {} if random else {"eager": by_eager}
    cotangents = eager.cotangents
    del callable_, args, kwargs, outputs, eager

    double = None if random else _run_in_double(build, cotangents, seed, modes)
    own_errors = {} if random else own_errors_of(by_eager, double, least)
    differs = partial(compare_tensors, recorded, by_eager, "eager", own_errors=own_errors, least=least)
    if own_errors and (is_unstable(by_eager, own_errors) or not all(error.ok for error in differs())):
        for moved in map(partial(_run_moved, build, cotangents, seed, modes), _MOVES):
            own_errors = larger_errors(own_errors, by_eager, moved)
    settings = (seed, start, capture, sorted(modes.items()), random, tuple(draws_differ), sorted(uncompiled))
    key = references.key(by_eager, *settings) if references is not None else ""
    found = references.load(key) if references is not None else None
    if found is None:
        eager_errors = partial(
            compare_tensors, expected=by_eager, reference_name="eager", own_errors=own_errors, least=least
        )
        found = _reference(
            build,
            seed,
            start,
            capture,
            modes,
            eager_errors,
            random=random,
            draws_differ=draws_differ,
            uncompiled=uncompiled,
        )
        if references is not None:
            references.save(key, found)
    why = "; ".join(found.reasons)
    if found.name in _THUNDERS:
        # Look for a fault of Thunder even if the program draws random numbers. A fault is reported only if the recorded
        # results equal eager PyTorch's. Equal results mean that the random numbers were equal, so the comparison is
        # valid.
        wrong = _describe_fault(found, recorded, by_eager, own_errors, least)
        why = "; ".join(filter(None, (why, wrong)))
        if wrong:
            found, comparisons = Reference("", {}, {}, ()), {"eager": by_eager}
    is_thunder = found.name in _THUNDERS
    changed = None if kernels is None or not is_thunder else changed_kernels(kernels, found.kernels)
    expected = found.recorded
    if found.name:
        comparisons = {found.name: expected, **comparisons}
    differ = tensors_with_other_bits(recorded, expected) if is_thunder else frozenset[str]()
    exact, unsteady = changed == (), frozenset[str]()
    if exact and differ:
        # Some GPU kernels add in the order in which their threads finish, so two runs of Thunder may differ.
        again = _stepper(build, seed, modes, partial(compile_unmodified, variant=found.name))[0]
        unsteady = tensors_with_other_bits(first_step(again, seed), expected)

    tensors: list[TensorError] = []
    for against, reference in comparisons.items():
        demanded = exact and against in _THUNDERS
        for error in compare_tensors(
            recorded,
            reference,
            against,
            exact=demanded,
            unsteady=unsteady,
            own_errors=own_errors,
            least=least,
        ):
            tensors.append(error)
            if on_tensor is not None:
                on_tensor(error)
    max_error = max((tensor.max_abs_error for tensor in tensors), default=0.0)
    unstable = False
    if double is not None:
        same = not any(tensors_with_other_bits(recorded, reference) for reference in comparisons.values())
        for error in compare_in_double(recorded, by_eager, double, own_errors, least):
            if error.lacks:
                pass
            elif same and not error.ok:
                # Every bit equals the references', so the difference from double precision comes from the data type
                # and not from the plan.
                error, unstable = dataclasses.replace(error, ok=True, tolerance=math.inf), True
            elif error.ok and error.max_abs_error > error.tolerance - SPREAD * own_errors[error.name].size:
                unstable = True  # the error is allowed only because eager's own error is added to the tolerance
            tensors.append(error)
            if on_tensor is not None:
                on_tensor(error)
    return Accuracy(
        ok=all(tensor.ok for tensor in tensors),
        max_error=max_error,
        against=" and ".join(comparisons) if found.name else "PyTorch eager",
        tensors=tuple(tensors),
        bitwise=not differ if is_thunder else None,
        changed_kernels=changed,
        unstable=unstable,
        is_saved=found.is_saved,
        why=why,
    )


def least_tolerance(modes: Mapping[str, str]) -> float:
    """Return the relative tolerance of autocast's data type; 0 without autocast.

    Every result gets at least this tolerance, whatever the result's data type, because autocast may have computed the
    result in autocast's data type.
    """
    dtypes = (getattr(torch, mode) for name, mode in modes.items() if name.startswith("autocast"))
    return max((RELATIVE_TOLERANCE[dtype] for dtype in dtypes), default=0.0)


def changed_kernels(kernels: Mapping[str, str], stock_kernels: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the kernels in `kernels` that unmodified Thunder did not run."""
    return tuple(dict.fromkeys(name for key, name in kernels.items() if key not in stock_kernels))


def _stepper(
    build: Callable[[], Parts],
    seed: int,
    modes: Mapping[str, str],
    compile_program: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> tuple[Stepper, Callable[..., Any]]:
    """Build and compile a new copy of the program; return its stepper and the compiled callable."""
    callable_, args, kwargs = build()
    jitted = compile_program(callable_)
    return Stepper(callable_, args, kwargs, jitted, seed=seed, modes=modes), jitted


def compile_unmodified(callable_: Callable[..., Any], variant: str = THUNDER) -> Callable[..., Any]:
    """Return the program as unmodified Thunder compiles it, with Thunder's default executors."""
    # Imported here, so that importing this module does not import Thunder.
    from workbench.compiler import api

    return api.unmodified(callable_, entry_points=(variant,))


def unnamed(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls `compiled`, so that a `Stepper` names tensors as the original program does.

    The module that `torch.compile` returns has other names for the parameters.
    """
    return lambda *args, **kwargs: compiled(*args, **kwargs)


def _reference(
    build: Callable[[], Parts],
    seed: int,
    start: list[tuple[str, tuple[int, ...], float]],
    capture: str,
    modes: Mapping[str, str],
    eager_errors: Callable[[Mapping[str, RecordedTensor]], Iterable[TensorError]],
    *,
    random: bool,
    draws_differ: Sequence[str],
    uncompiled: Collection[str],
) -> Reference:
    """Run the first step of a newly built program with unmodified Thunder, and return the results as the reference.

    For a program with random numbers, the reference is a stock plan in three cases: unmodified Thunder cannot compile
    the program, unmodified Thunder is known to draw wrong numbers, or the program is captured in parts. Eager PyTorch
    is not the reference, because it would draw different numbers. Thunder's two capture methods may also draw different
    numbers, so only ``thunder.jit`` is tried for such a program.
    """
    if capture == TORCH_COMPILE:
        stepper, _ = _stepper(build, seed, modes, lambda callable_: unnamed(torch.compile(callable_)))
        return Reference(TORCH_COMPILE, first_step(stepper, seed), {}, ())
    from workbench.compiler import api
    from workbench.compiler.driver.stock_thunder import refusal
    from workbench.compiler.planner.kernel_identity import kernels_of

    # Try the method that traced the plan first, because it accepts the program. For a real model, trying the other
    # method first takes twice as long.
    ways: tuple[str, ...] = _THUNDERS if capture == "interpreter" else _THUNDERS[::-1]
    if capture == "parts":
        # The interpreter refuses a program that Dynamo traces in parts, but may need minutes until it refuses.
        ways = (THUNDERFX,)
    if random:
        ways = () if draws_differ or capture == "parts" else (THUNDER,)
    reasons = tuple(draws_differ) if random else ()
    wrong: Reference | None = None
    for name in ways:
        stepper, jitted = _stepper(build, seed, modes, partial(compile_unmodified, variant=name))
        if not _is_same_start(start, _start_of(stepper)):
            raise ProgramError(
                "the program starts from different values each time it is built, so nothing can be compared; "
                "draw all random values with torch's default generator, which is seeded"
            )
        try:
            found = Reference(name, first_step(stepper, seed), kernels_of(jitted), reasons)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            reasons += getattr(jitted, "refusals", ()) or (refusal(name, error),)
            continue
        off = None if random else _farthest_tensor(eager_errors(found.recorded))
        if off is None:
            return found
        # Thunder's result is wrong, so try the other capture method. If both are wrong, return the first result; the
        # caller decides.
        wrong = wrong or found
        reasons += (_is_wrong(name, off),)
    if wrong is not None:
        return wrong
    if not random:
        return Reference("", {}, {}, reasons)
    stepper, jitted = _stepper(build, seed, modes, partial(api.stock, capture=capture, uncompiled=uncompiled))
    return Reference(STOCK, first_step(stepper, seed), {}, (*reasons, STOCK_IS))


def _describe_fault(
    reference: Reference,
    recorded: Mapping[str, RecordedTensor],
    eager: Mapping[str, RecordedTensor],
    own_errors: Mapping[str, OwnError],
    least: float,
) -> str:
    """Describe the tensor in which unmodified Thunder is wrong; empty if Thunder is not known to be wrong.

    Thunder is wrong if a result differs from eager PyTorch's by more than the tolerance, while all recorded results are
    within the tolerance.
    """
    held_to = partial(compare_tensors, expected=eager, reference_name="eager", own_errors=own_errors, least=least)
    off = _farthest_tensor(held_to(reference.recorded))
    if off is None or _farthest_tensor(held_to(recorded)) is not None:
        return ""
    return _is_wrong(reference.name, off)


def _farthest_tensor(errors: Iterable[TensorError]) -> TensorError | None:
    """Return the error that is farthest beyond its tolerance; None if all errors are within their tolerances."""
    return max((error for error in errors if not error.ok), key=_severity, default=None)


def _is_wrong(name: str, off: TensorError) -> str:
    how = f"{off.name} is off by {off.max_abs_error:.3g} from eager PyTorch's"
    if off.lacks:
        how = f"it lacks {off.name}" if off.lacks == THIS_RUN else f"eager PyTorch lacks {off.name}"
    return f"{name} is wrong here: {how}"


def _severity(error: TensorError) -> float:
    return error.severity


@contextlib.contextmanager
def stepper_in_double(
    build: Callable[[], Parts],
    cotangents: Sequence[torch.Tensor] | None,
    seed: int = 0,
    modes: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Stepper | None]:
    """Yield a stepper of a program in eager PyTorch with all floating-point tensors in double precision.

    Yield None if double precision is known to be impossible: under autocast, and if tensors share memory. At the end of
    the context, the tensors get their own data type back.

    Parameters
    ----------
    build : callable
        Makes a new copy of the program.
    cotangents : sequence of Tensor, optional
        Gradients of the outputs, from the program's step in its own data type; None if that step used none.
    seed, modes
        As in `Stepper`.
    """
    if any(mode.startswith("autocast") for mode in modes):
        yield None
        return
    callable_, args, kwargs = build()
    stepper = Stepper(callable_, args, kwargs, seed=seed)
    floating = [tensor for _, tensor in stepper._changeable() if tensor.is_floating_point()]
    # Refuse tensors that share memory, because their copies in double precision would not share memory.
    dense = [part for tensor in {id(each): each for each in floating}.values() for part in dense_parts(tensor)]
    if len({part.untyped_storage()._cdata for part in dense}) < len(dense):
        yield None
        return
    least = max((RELATIVE_TOLERANCE.get(tensor.dtype, 0.0) for tensor in floating), default=0.0)
    single = [tensor.data for tensor in floating]
    for tensor in floating:
        tensor.data = tensor.data.double()
    stepper = Stepper(callable_, args, kwargs, seed=seed, modes=modes)
    stepper.least = least
    stepper.cotangents = None if cotangents is None else [cotangent.double() for cotangent in cotangents]
    stepper.clear_grads()
    try:
        with widened() as stepper.widening:
            yield stepper
    finally:
        # Restore the data, because all copies of a program may share tensors of the program's closure.
        stepper.clear_grads()
        for tensor, data in zip(floating, single, strict=True):
            tensor.data = data


def _run_in_double(
    build: Callable[[], Parts], cotangents: list[torch.Tensor] | None, seed: int, modes: Mapping[str, str]
) -> InDouble | None:
    """Run the first step in double precision, and return the results; None if the program cannot run so."""
    with stepper_in_double(build, cotangents, seed, modes) as stepper:
        if stepper is None:
            return None
        seed_all(seed)
        try:
            recorded = _finish(stepper, stepper.forward())
            has_acted = stepper.widening is not None and stepper.widening.has_acted
            return InDouble(recorded, has_acted, stepper.least)
        except Exception:  # noqa: BLE001  # a program may mix in a type of its own, or have no kernel for doubles
            return None


_MOVES = (1, 2)
"""Seeds of the steps of `_run_moved`."""


def _run_moved(
    build: Callable[[], Parts],
    cotangents: Sequence[torch.Tensor] | None,
    seed: int,
    modes: Mapping[str, str],
    move: int,
) -> dict[str, RecordedTensor]:
    """Run the first step in eager PyTorch with each floating-point value moved up or down by one rounding.

    Return no results if the program refuses the moved values.
    """
    callable_, args, kwargs = build()
    stepper = Stepper(callable_, args, kwargs, seed=seed, modes=modes)
    stepper.cotangents = None if cotangents is None else list(cotangents)
    stepper.clear_grads()
    floating = [tensor for _, tensor in stepper._changeable() if tensor.is_floating_point()]
    kept = [tensor.data for tensor in floating]
    generator = torch.Generator().manual_seed(move)
    for tensor in floating:
        signs = torch.randint(0, 2, tensor.shape, generator=generator).to(tensor.device) * 2 - 1
        tensor.data = tensor.data * (1 + signs * torch.finfo(tensor.dtype).eps).to(tensor.dtype)
    seed_all(seed)
    try:
        return _finish(stepper, stepper.forward())
    except Exception:  # noqa: BLE001  # for example, a program may check the sum of a row
        return {}
    finally:
        # Restore the data, because all copies of a program may share tensors of the program's closure.
        stepper.clear_grads()
        for tensor, data in zip(floating, kept, strict=True):
            tensor.data = data


def _finish(stepper: Stepper, outputs: Any) -> dict[str, RecordedTensor]:
    given = find_tensors(outputs).tensors.values()
    # Do not require a backward if all outputs are integers: Thunder may compile a backward that autograd never calls.
    asked = not given or any(map(_is_differentiable, given))
    if not stepper.backward(outputs) and stepper.has_backward and asked:
        raise ProgramError(
            "the plan has a backward, but the step ran none: no tensor that requires grad was found in the result of "
            f"the program, {short_repr(outputs)}"
        )
    stepper.synchronize()
    return stepper.record(outputs)


class ForwardWatch(TorchDispatchMode):
    """Records whether random numbers are drawn, and whether values are rounded to a data type of lower precision.

    Draws from the program's own generator and from torch's default generators are recorded.
    A draw from a default generator changes the generator's state, so the states before and after are compared. Looking
    for operators that may draw is not enough: attention without dropout is such an operator, but it draws nothing.
    """

    supports_higher_order_operators = True
    """Without this attribute of PyTorch's, `flex_attention` would fail in this mode."""

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Let Dynamo compile while this mode is active.

        Otherwise, Dynamo would from then on leave the functions uncompiled that it meets in this mode. For example,
        `flex_attention` compiles itself; uncompiled, it loses the gradients of tensors that its functions capture.
        """
        return True

    def __init__(self) -> None:
        super().__init__()
        self.least = 0.0
        """Relative tolerance of the least precise data type to which the program rounds values itself; 0 if none."""
        self._own = False
        self._before = random_states()

    @property
    def random(self) -> bool:
        """Return whether any random numbers were drawn so far."""
        return self._own or not all(map(torch.equal, self._before, random_states()))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not isinstance(func, OpOverload):  # a higher-order operator has no tags, and its operators are not watched
            return func(*args, **kwargs)
        draws = torch.Tag.nondeterministic_seeded in func.tags
        self._own = self._own or (draws and kwargs.get("generator") is not None)
        result = func(*args, **kwargs)
        operator, _, _ = func.name().partition(".")
        if operator.startswith("aten::_foreach_") and operator.endswith("_"):
            # In a dispatch mode, these operators do not increase the versions of the tensors to which they write.
            increment_version([tensor for tensor in args[0] if not tensor.is_inference()])
        if func is _to_copy and args[0].dtype in _PRECISE and result.dtype in _IMPRECISE:
            self.least = max(self.least, RELATIVE_TOLERANCE[result.dtype])
        return result


def _on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    copied = tensor.detach().to("cpu", copy=True)
    return copied.coalesce() if copied.is_sparse else copied


class _StandInLoss(torch.autograd.Function):
    """A stand-in for a loss. It passes random cotangents to the backward, without allocating a new tensor for a loss.

    It copies the cotangents when the backward begins, and only the backward holds the copies. In a training loop, too,
    only the backward holds the gradients of outputs. Cotangents that are passed to `torch.autograd.backward` would
    instead be alive during the whole backward.
    """

    @staticmethod
    def forward(ctx: Any, loss: torch.Tensor, cotangents: list[torch.Tensor], *_: torch.Tensor) -> torch.Tensor:
        ctx.cotangents = cotangents
        return loss.detach()

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        return None, None, *(cotangent.clone() for cotangent in ctx.cotangents)


def _is_differentiable(output: torch.Tensor) -> bool:
    return output.is_floating_point() or output.is_complex()


def _differentiable(outputs: Any) -> list[torch.Tensor]:
    return [output for output in find_tensors(outputs).tensors.values() if _is_differentiable(output)]


def _draw_cotangents(outputs: list[torch.Tensor], seed: int) -> list[torch.Tensor]:
    generators: dict[torch.device, torch.Generator] = {}
    made: list[torch.Tensor] = []
    for output in outputs:
        generator = generators.get(output.device)
        if generator is None:
            # Use a separate generator, so that the program's random state is the same as without the workbench.
            generator = generators[output.device] = torch.Generator(output.device).manual_seed(seed)
        made.append(torch.randn(output.shape, generator=generator, device=output.device, dtype=output.dtype))
    return made


def _is_parameter(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, torch.nn.Parameter) or (tensor.requires_grad and tensor.is_leaf)


def _start_of(stepper: Stepper) -> list[tuple[str, tuple[int, ...], float]]:
    """Return the name, shape and sum of each parameter, buffer and input; `_is_same_start` compares two such lists."""
    return [
        (
            name,
            tuple(tensor.shape),
            sum(float(torch.nan_to_num(to_double(x)).sum()) for x in dense_parts(tensor.detach())),
        )
        for name, tensor in stepper._changeable()
    ]


def _is_same_start(
    first: list[tuple[str, tuple[int, ...], float]], second: list[tuple[str, tuple[int, ...], float]]
) -> bool:
    return len(first) == len(second) and all(
        a[:2] == b[:2] and math.isclose(a[2], b[2], rel_tol=1e-9, abs_tol=1e-9)
        for a, b in zip(first, second, strict=True)
    )
