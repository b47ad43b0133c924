"""One step of a program, forward and backward, and whether two ways to run it give the same tensors.

`Stepper` is the one definition of a step: compilation, timing, the measured peak and the check all use it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import torch

from workbench.analysis.memory.allocator import storage_bytes
from workbench.errors import ProgramError, shown
from workbench.interop.torch_private import TorchDispatchMode
from workbench.programs.modes import restored
from workbench.programs.tensors import held, state_of
from workbench.runs.log.tensor_error import TensorError
from workbench.runs.measure.saved_reference import Reference, SavedReferences
from workbench.runs.measure.tensor_diff import (
    FLOOR,
    RELATIVE_TOLERANCE,
    SPREAD,
    RecordedTensor,
    compare,
    largest_difference,
    other_bits,
    size_of,
    wide,
)

type Parts = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
"""A callable with its arguments and keyword arguments."""

_BY_NAME = {str(dtype).removeprefix("torch."): share for dtype, share in RELATIVE_TOLERANCE.items()}

_NAMED = 3
"""Changed kernels that are named in words."""

THUNDER = "thunder.jit"
"""The reference that is unmodified Thunder."""

THUNDERFX = "thunderfx"
"""The reference that is unmodified Thunder, which traces the program by Dynamo."""

_THUNDERS = (THUNDER, THUNDERFX)

STOCK = "stock plan"
"""The reference for random programs that unmodified Thunder does not take, or draws wrongly for."""

STOCK_IS = "held to the workbench's own plan without choices, by Thunder's default executors and with its corrections"
"""Description of that reference, after the reason why it is not ``thunder.jit``."""

FLOAT64 = "float64"
"""The reference that is the program run by eager PyTorch in double precision."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Outcome of a check.

    Attributes
    ----------
    ok : bool
        Whether all tensors are within their tolerances.
    max_error : float
        Largest absolute error.
    against : str
        ``thunder.jit`` or, for a program that Dynamo traces, ``thunderfx``; with `` and eager`` where nothing is
        random. Where unmodified Thunder cannot compile the program, or is wrong, ``PyTorch eager`` or, with random
        numbers, ``stock plan``.
    tensors : tuple of TensorError
        Those against `FLOAT64`, too, where the program can run so; they count for `ok`, and not for `max_error`.
    bitwise : bool or None
        Whether every bit of every tensor equals unmodified Thunder's; None where that is not known.
    changed_kernels : tuple of str or None
        Names of the fusions and statements that run and that unmodified Thunder does not have. Without any, every bit
        must be the same, unless unmodified Thunder's own differ from one run to the next; with some,
        `workbench.runs.measure.tensor_diff.RELATIVE_TOLERANCE` is allowed. None where they are not known.
    unstable : bool
        Whether every bit is that of all references, and these themselves are far from double precision.
    is_saved : bool
        Whether an earlier run of the program made unmodified Thunder's step.
    why : str
        Why the reference is not the one that was tried first; empty where it is.
    """

    ok: bool
    max_error: float
    against: str
    # Left out of a notebook's output: a line for each output and gradient, three times.
    tensors: tuple[TensorError, ...] = dataclasses.field(repr=False)
    bitwise: bool | None = None
    changed_kernels: tuple[str, ...] | None = None
    unstable: bool = False
    is_saved: bool = False
    why: str = ""

    @property
    def relative_tolerance(self) -> dict[str, float]:
        """Allowed error against unmodified Thunder, as a share of the largest element, by data type; 0 is bitwise."""
        allowed: dict[str, float] = {}
        for tensor in self.tensors:
            if tensor.against in _THUNDERS and tensor.dtype in _BY_NAME:
                share = _BY_NAME[tensor.dtype] if tensor.tolerance > 0 else 0.0
                allowed[tensor.dtype] = max(allowed.get(tensor.dtype, 0.0), share)
        return allowed

    @property
    def words(self) -> str:
        """Statement whether the bits equal unmodified Thunder's and, where they need not, why and the tolerance."""
        if self.why and self.bitwise is None:
            return f"compared with {self.against}, as {self.why}"
        if self.changed_kernels is None or self.bitwise is None:
            return ""
        if not self.changed_kernels:
            if not self.bitwise:
                return "same kernels as unmodified Thunder, other bits"
            return f"bit for bit unmodified Thunder's{self._instability}"
        names = ", ".join(self.changed_kernels[:_NAMED]) + (", …" if len(self.changed_kernels) > _NAMED else "")
        allowed = ", ".join(f"{share:g} ({dtype})" for dtype, share in self.relative_tolerance.items() if share)
        bits = (
            f"yet bit for bit its results{self._instability}"
            if self.bitwise
            else f"RELATIVE_TOLERANCE {allowed} of the largest element"
        )
        count = "1 kernel is" if len(self.changed_kernels) == 1 else f"{len(self.changed_kernels)} kernels are"
        return f"{count} not unmodified Thunder's ({names}): {bits}"

    @property
    def _instability(self) -> str:
        if not self.unstable:
            return ""
        dtypes = {tensor.dtype for tensor in self._against(FLOAT64, True) if tensor.tolerance == math.inf}
        return f"; {' and '.join(sorted(dtypes))} itself is unstable here: eager is as far from double precision"

    @property
    def worst(self) -> TensorError | None:
        """Tensor nearest to its tolerance, or farthest beyond; None if there are no tensors."""
        return max(self._against(FLOAT64, False), key=lambda tensor: tensor.severity, default=None)

    @property
    def worst_float64(self) -> TensorError | None:
        """The tensor farthest from double precision, as a share of its size; None where nothing ran so."""
        return max(self._against(FLOAT64, True), key=lambda tensor: tensor.max_rel_error, default=None)

    def _against(self, reference: str, is_it: bool) -> list[TensorError]:
        return [tensor for tensor in self.tensors if (tensor.against == reference) is is_it]


class Stepper:
    """A program that can be stepped: forward, and backward where an output requires grad.

    Parameters
    ----------
    original : callable
        The function or module as built; says where parameters and buffers are.
    args, kwargs
        Inputs. A step uses these very objects.
    run : callable, optional
        The compiled callable; by default `original` itself, that is eager.
    seed : int
        For the cotangents.
    modes : mapping of str to str, optional
        Of PyTorch, in force in each forward; as in `workbench.core.config.MODES`.
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
        self._cotangents: list[torch.Tensor] | None = None
        self._loss = torch.zeros(())
        self._original = original
        self.takes_steps = bool(held(original).optimizers)
        state = state_of(original, self.run)
        self._state = frozenset(state)
        self.parameters = {name: tensor for name, tensor in state.items() if _is_parameter(tensor)}
        self.buffers = {name: tensor for name, tensor in state.items() if name not in self.parameters}
        self.inputs = {**held(args, "args").tensors, **held(kwargs, "kwargs").tensors}
        self._before = {name: tensor._version for name, tensor in self._changeable()}

    @property
    def device(self) -> torch.device:
        """Device of the program's first tensor; the CPU if it has none."""
        tensors = [*self.inputs.values(), *self.parameters.values(), *self.buffers.values()]
        return next((tensor.device for tensor in tensors), torch.device("cpu"))

    @property
    def has_backward(self) -> bool:
        """Return whether Thunder made a backward of the program in its last call."""
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
        with restored(self.modes):
            return self.run(*self.args, **self.kwargs)

    def backward(self, outputs: Any) -> bool:
        """Differentiate the outputs that require grad: a single scalar as a loss, others by cotangents of the seed.

        A program that holds an optimizer has done so itself.

        Returns
        -------
        bool
            Whether there was anything to differentiate.
        """
        if self.takes_steps:
            return False
        floating = [output for output in held(outputs).tensors.values() if _is_differentiable(output)]
        differentiable = [output for output in floating if output.requires_grad]
        if not differentiable:
            return False
        if len(floating) == 1 and floating[0].dim() == 0:
            floating[0].backward()
            return True
        # For all outputs: which of them require grad differs between Thunder and eager.
        if self._cotangents is None:
            self._cotangents = _draw_cotangents(floating, self.seed)
            self._loss = torch.zeros((), device=floating[0].device)
        drawn = [cotangent for cotangent, o in zip(self._cotangents, floating, strict=True) if o.requires_grad]
        apply: Any = _StandInLoss.apply  # without types in torch
        # A loss and a gradient of its own would be measured with the step; where blocks are large they are blocks.
        apply(self._loss, drawn, *differentiable).backward(self._loss)
        return True

    def step(self) -> Any:
        """One forward and backward; the outputs."""
        outputs = self.forward()
        self.backward(outputs)
        return outputs

    def baseline_bytes(self) -> int:
        """Bytes of parameters, buffers and inputs, each storage once."""
        state = [*self.parameters.values(), *self.buffers.values()]
        if self.takes_steps:
            # With the state that its optimizer made in the first step.
            state = list(state_of(self._original, self.run).values())
        return _storage_bytes([*state, *self.inputs.values()])

    def record(self, outputs: Any) -> dict[str, RecordedTensor]:
        """Copies, on the CPU, of everything that a step from a fresh start gave and changed."""
        found: dict[str, RecordedTensor] = {}
        for path, leaf in held(outputs, "output").leaves:
            found[path] = RecordedTensor(
                "output", _on_cpu(leaf) if isinstance(leaf, torch.Tensor) else torch.as_tensor(leaf)
            )
        for name, tensor in (*self.parameters.items(), *self.inputs.items()):
            if tensor.requires_grad and tensor.is_leaf:
                found[f"grad({name})"] = RecordedTensor("grad", None if tensor.grad is None else _on_cpu(tensor.grad))
        if self.takes_steps:
            # An optimizer creates its state in its first step.
            made = state_of(self._original, self.run)
            found |= {name: RecordedTensor("buffer", _on_cpu(made[name])) for name in made if name not in self._state}
        for name, tensor in self._changeable():
            kind, changed = name.partition("(")[0].partition("[")[0], tensor._version != self._before[name]
            # Parameters are the bulk of a model, and hardly any program writes to them.
            if changed or kind != "parameter":
                found[name] = RecordedTensor(kind, _on_cpu(tensor), changed)
        return found

    def _changeable(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield from self.inputs.items()
        for name, tensor in self.buffers.items():
            yield f"buffer({name})", tensor
        for name, tensor in self.parameters.items():
            yield f"parameter({name})", tensor


def step(callable_: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, seed: int = 0) -> Any:
    """Run a program once, forward and backward, as the workbench does everywhere.

    Parameters
    ----------
    callable_, args, kwargs
        The program.
    seed : int
        For the cotangents.

    Returns
    -------
    object
        What the program returned. Gradients are left in the ``grad`` of parameters and inputs.
    """
    return Stepper(callable_, args, kwargs, seed=seed).step()


def first_step(stepper: Stepper, seed: int) -> dict[str, RecordedTensor]:
    """Step a fresh program once with the random state set, and record what it gave."""
    torch.manual_seed(seed)
    outputs = stepper.forward()
    return _finish(stepper, outputs)


def check(
    recorded: dict[str, RecordedTensor],
    build: Callable[[], Parts],
    *,
    seed: int = 0,
    kernels: Mapping[str, str] | None = None,
    on_tensor: Callable[[TensorError], None] | None = None,
    capture: str = "interpreter",
    modes: Mapping[str, str] = MappingProxyType({}),
    draws_differ: Sequence[str] = (),
    references: SavedReferences | None = None,
) -> Accuracy:
    """Compare a first step with those of unmodified Thunder and, where nothing is random, of eager PyTorch.

    Parameters
    ----------
    recorded : dict
        What `first_step` gave, of a program fresh from `build`.
    build : callable
        Makes a new copy of the program, with the same values each time, so that no state passes between variants.
    seed : int
        The one that `first_step` was given.
    kernels : mapping of str to str, optional
        Kernels that ran, from `workbench.compiler.planner.kernel_identity.kernels_of`. If unmodified Thunder runs the
        same ones, every bit has to be the same.
    on_tensor : callable, optional
        Called with each comparison when it is made.
    capture : {'dynamo', 'interpreter', 'parts'}
        Capture method of the program: Thunder traces it with the same method first, and so does a stock plan.
    modes : mapping of str to str, optional
        Of PyTorch, in force in each forward.
    draws_differ : sequence of str, optional
        As in `workbench.runs.process.request.RunRequest`.
    references : SavedReferences, optional
        Where unmodified Thunder's step is kept for later runs.

    Returns
    -------
    Accuracy

    Raises
    ------
    ProgramError
        If `build` gives other inputs each time, so that nothing can be compared.
    """
    callable_, args, kwargs = build()
    eager = Stepper(callable_, args, kwargs, seed=seed, modes=modes)
    start = _start_of(eager)
    torch.manual_seed(seed)
    with RandomWatch() as watch:
        outputs = eager.forward()
    random = watch.random
    by_eager = _finish(eager, outputs)
    comparisons = {} if random else {"eager": by_eager}
    cotangents = eager._cotangents
    del callable_, args, kwargs, outputs, eager

    double = None if random else _in_double(build, cotangents, seed, modes)
    own_errors = {} if double is None else _own_errors(by_eager, double)
    least = least_tolerance(modes)
    settings = (seed, start, capture, sorted(modes.items()), random, tuple(draws_differ))
    key = references.key(by_eager, *settings) if references is not None else ""
    found = references.load(key) if references is not None else None
    if found is None:
        eager_errors = partial(compare, expected=by_eager, against="eager", own_errors=own_errors, least=least)
        found = _reference(build, seed, start, capture, modes, eager_errors, random=random, draws_differ=draws_differ)
        if references is not None:
            references.save(key, found)
    why = "; ".join(found.reasons)
    if found.name in _THUNDERS:
        # Random numbers are mostly not those of eager PyTorch; where all results are, they were the same.
        wrong = _wrong(found, recorded, by_eager, own_errors, least)
        why = "; ".join(filter(None, (why, wrong)))
        if wrong:
            found, comparisons = Reference("", {}, {}, ()), {"eager": by_eager}
    is_thunder = found.name in _THUNDERS
    changed = None if kernels is None or not is_thunder else changed_kernels(kernels, found.kernels)
    expected = found.recorded
    if found.name:
        comparisons = {found.name: expected, **comparisons}
    differ = other_bits(recorded, expected) if is_thunder else frozenset[str]()
    exact, unsteady = changed == (), frozenset[str]()
    if exact and differ:
        # Some kernels of a GPU add up in the order in which their threads come.
        again = _stepper(build, seed, modes, partial(unmodified, way=found.name))[0]
        unsteady = other_bits(first_step(again, seed), expected)

    tensors: list[TensorError] = []
    for against, reference in comparisons.items():
        demanded = exact and against in _THUNDERS
        for error in compare(
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
        same = not any(other_bits(recorded, reference) for reference in comparisons.values())
        for error in _compare_double(recorded, double, own_errors):
            if same and not error.ok:
                # Bit for bit what Thunder and PyTorch give: the difference is of the data type, and not of the plan.
                error, unstable = dataclasses.replace(error, ok=True, tolerance=math.inf), True
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
    """The relative tolerance of the data type that autocast computes in, for results of any; 0 without autocast."""
    dtypes = (getattr(torch, mode) for name, mode in modes.items() if name.startswith("autocast"))
    return max((RELATIVE_TOLERANCE[dtype] for dtype in dtypes), default=0.0)


def changed_kernels(kernels: Mapping[str, str], known: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the kernels that unmodified Thunder did not run."""
    return tuple(dict.fromkeys(name for key, name in kernels.items() if key not in known))


def _stepper(
    build: Callable[[], Parts],
    seed: int,
    modes: Mapping[str, str],
    compile_program: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> tuple[Stepper, Callable[..., Any]]:
    """Return a compiled new copy of the program, and the compiled callable."""
    callable_, args, kwargs = build()
    jitted = compile_program(callable_)
    return Stepper(callable_, args, kwargs, jitted, seed=seed, modes=modes), jitted


def unmodified(callable_: Callable[..., Any], way: str = THUNDER) -> Callable[..., Any]:
    """A program as Thunder alone compiles it, with its default executors."""
    # Here and not above: only a check that is made needs Thunder.
    from workbench.compiler import api

    return api.unmodified(callable_, ways=(way,))


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
) -> Reference:
    """Step a fresh program by Thunder as it is installed.

    A stock plan replaces it where random numbers are drawn, which eager PyTorch draws differently, and Thunder cannot
    compile the program or is known to draw wrongly. Two capture methods of Thunder may draw differently, too.
    """
    from workbench.compiler import api
    from workbench.compiler.driver.stock_thunder import is_about_memory, refusal
    from workbench.compiler.planner.kernel_identity import kernels_of

    # The way that traces as the plan was traced takes the program, and a real model in half of the time.
    ways: tuple[str, ...] = _THUNDERS if capture == "interpreter" else _THUNDERS[::-1]
    if random:
        ways = () if draws_differ else (THUNDER,)
    reasons = tuple(draws_differ) if random else ()
    wrong: Reference | None = None
    for name in ways:
        stepper, jitted = _stepper(build, seed, modes, partial(unmodified, way=name))
        if not _same_start(start, _start_of(stepper)):
            raise ProgramError(
                "the program starts from other values each time it is built, so nothing can be compared; "
                "draw all random values with torch's default generator, which is seeded"
            )
        try:
            found = Reference(name, first_step(stepper, seed), kernels_of(jitted), reasons)
        except Exception as error:
            if is_about_memory(error):
                raise
            reasons += getattr(jitted, "refusals", ()) or (refusal(name, error),)
            continue
        off = None if random else _farthest(eager_errors(found.recorded))
        if off is None:
            return found
        # The other way may be right. Where neither is, the caller decides about the first.
        wrong = wrong or found
        reasons += (_is_wrong(name, off),)
    if wrong is not None:
        return wrong
    if not random:
        return Reference("", {}, {}, reasons)
    stepper, jitted = _stepper(build, seed, modes, partial(api.stock, capture=capture))
    return Reference(STOCK, first_step(stepper, seed), {}, (*reasons, STOCK_IS))


def _wrong(
    reference: Reference,
    recorded: Mapping[str, RecordedTensor],
    eager: Mapping[str, RecordedTensor],
    own_errors: Mapping[str, float],
    least: float,
) -> str:
    """Describe how unmodified Thunder is wrong where eager PyTorch equals the step; empty if it is right."""
    held_to = partial(compare, expected=eager, against="eager", own_errors=own_errors, least=least)
    off = _farthest(held_to(reference.recorded))
    if off is None or _farthest(held_to(recorded)) is not None:
        return ""
    return _is_wrong(reference.name, off)


def _farthest(errors: Iterable[TensorError]) -> TensorError | None:
    """Return the tensor that is farthest beyond its tolerance; None if all are within."""
    return max((error for error in errors if not error.ok), key=_severity, default=None)


def _is_wrong(name: str, off: TensorError) -> str:
    return f"{name} is wrong here: {off.name} is off by {off.max_abs_error:.3g} from eager PyTorch's"


def _severity(error: TensorError) -> float:
    return error.severity


def _in_double(
    build: Callable[[], Parts], cotangents: list[torch.Tensor] | None, seed: int, modes: Mapping[str, str]
) -> dict[str, RecordedTensor] | None:
    """Return eager's results with all floating-point tensors in double precision; None if the program cannot run so."""
    callable_, args, kwargs = build()
    if any(mode.startswith("autocast") for mode in modes):
        return None
    stepper = Stepper(callable_, args, kwargs, seed=seed)
    floating = [tensor for _, tensor in stepper._changeable() if tensor.is_floating_point()]
    # Tensors that share memory would no longer do so.
    if len({tensor.untyped_storage()._cdata for tensor in floating}) < len({id(tensor) for tensor in floating}):
        return None
    single = [tensor.data for tensor in floating]
    for tensor in floating:
        tensor.data = tensor.data.double()
    stepper = Stepper(callable_, args, kwargs, seed=seed, modes=modes)
    stepper._cotangents = None if cotangents is None else [cotangent.double() for cotangent in cotangents]
    torch.manual_seed(seed)
    try:
        return _finish(stepper, stepper.forward())
    except Exception:  # noqa: BLE001  # a program may mix in a type of its own, or have no kernel for doubles
        return None
    finally:
        # Objects that a program closes over may be shared by all copies.
        stepper.clear_grads()
        for tensor, data in zip(floating, single, strict=True):
            tensor.data = data


def _own_errors(eager: Mapping[str, RecordedTensor], double: Mapping[str, RecordedTensor]) -> dict[str, float]:
    """Return eager's own error against double precision, by tensor: cancellation there is rounding, in any order."""
    errors: dict[str, float] = {}
    for name, entry in double.items():
        exact, known = entry.value, eager[name].value if name in eager else None
        if exact is not None and known is not None and known.is_floating_point() and exact.shape == known.shape:
            errors[name] = largest_difference(known.double(), exact.double())
    return errors


def _compare_double(
    recorded: Mapping[str, RecordedTensor], double: Mapping[str, RecordedTensor], own_errors: Mapping[str, float]
) -> Iterator[TensorError]:
    """Compare with double precision, allowing `SPREAD` times what eager is off beside the tolerance of the dtype."""
    sizes: dict[str, float] = {}
    for entry in double.values():
        sizes[entry.kind] = max(sizes.get(entry.kind, 0.0), size_of(entry.value))
    for name, entry in double.items():
        exact, ours = entry.value, recorded[name].value if name in recorded else None
        if exact is None or ours is None or name not in own_errors or not entry.changed:
            continue
        worst, size = largest_difference(ours.double(), exact.double()), size_of(exact)
        relative = RELATIVE_TOLERANCE.get(ours.dtype, 0.0)
        tolerance = SPREAD * own_errors[name] + relative * max(size, FLOOR * sizes.get(entry.kind, 0.0))
        yield TensorError(
            name=name,
            against=FLOAT64,
            dtype=str(ours.dtype).removeprefix("torch."),
            max_abs_error=worst,
            max_rel_error=worst / size if size > 0 else (0.0 if worst == 0 else math.inf),
            tolerance=tolerance,
            ok=worst <= tolerance,
        )


def _finish(stepper: Stepper, outputs: Any) -> dict[str, RecordedTensor]:
    given = held(outputs).tensors.values()
    # Thunder's own backward of whole numbers is one that autograd never asks for.
    asked = not given or any(map(_is_differentiable, given))
    if not stepper.backward(outputs) and stepper.has_backward and asked:
        raise ProgramError(
            "the plan has a backward, and the step ran none: no tensor that requires grad was found in what the "
            f"program returned, {shown(outputs)}"
        )
    stepper.synchronize()
    return stepper.record(outputs)


class RandomWatch(TorchDispatchMode):
    """Notes whether random numbers are drawn: with a generator of the program's own, or with torch's, which moves on.

    It is not enough that an op may draw: attention without dropout is such an op.
    """

    def __init__(self) -> None:
        super().__init__()
        self._own = False
        self._before = _random_states()

    @property
    def random(self) -> bool:
        """Return whether any were drawn so far."""
        return self._own or not all(map(torch.equal, self._before, _random_states()))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        draws = torch.Tag.nondeterministic_seeded in func.tags
        self._own = self._own or (draws and kwargs.get("generator") is not None)
        return func(*args, **kwargs)


def _random_states() -> list[torch.Tensor]:
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else ())]


def _on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    copied = tensor.detach().to("cpu", copy=True)
    return copied.coalesce() if copied.is_sparse else copied


class _StandInLoss(torch.autograd.Function):
    """A stand-in for a loss: its gradients are given, and it lies in memory that is there.

    They are copied when the backward begins, and no one but the backward holds the copies: so live the gradients of
    outputs in a training loop. Given to `torch.autograd.backward`, they would live through the whole step.
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


def _draw_cotangents(outputs: list[torch.Tensor], seed: int) -> list[torch.Tensor]:
    generators: dict[torch.device, torch.Generator] = {}
    made: list[torch.Tensor] = []
    for output in outputs:
        generator = generators.get(output.device)
        if generator is None:
            # A generator of its own: the program's random state stays as it is without the workbench.
            generator = generators[output.device] = torch.Generator(output.device).manual_seed(seed)
        made.append(torch.randn(output.shape, generator=generator, device=output.device, dtype=output.dtype))
    return made


def _storage_bytes(tensors: list[torch.Tensor]) -> int:
    storages = {t.untyped_storage()._cdata: storage_bytes(t) for t in tensors}
    return sum(storages.values())


def _is_parameter(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, torch.nn.Parameter) or (tensor.requires_grad and tensor.is_leaf)


def _start_of(stepper: Stepper) -> list[tuple[str, tuple[int, ...], float]]:
    """Return a fingerprint of a start, by reading each tensor once."""
    return [
        (name, tuple(tensor.shape), float(torch.nan_to_num(wide(tensor.detach())).sum()))
        for name, tensor in stepper._changeable()
    ]


def _same_start(one: list[tuple[str, tuple[int, ...], float]], other: list[tuple[str, tuple[int, ...], float]]) -> bool:
    return len(one) == len(other) and all(
        a[:2] == b[:2] and math.isclose(a[2], b[2], rel_tol=1e-9, abs_tol=1e-9) for a, b in zip(one, other, strict=True)
    )
