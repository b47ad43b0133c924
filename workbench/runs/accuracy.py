"""One step of a program, forward and backward, and whether two ways to run it give the same tensors.

`Stepper` is the one definition of a step: compilation, timing, the measured peak and the check all use it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from workbench.errors import ProgramError
from workbench.torch_api import TorchDispatchMode
from workbench.torch_api import _pytree as pytree

type Parts = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
"""A callable with its arguments and keyword arguments."""

RELATIVE_TOLERANCE: Mapping[torch.dtype, float] = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
    torch.complex64: 1e-4,
    torch.complex128: 1e-9,
}
"""Largest error allowed, as a share of the largest element of the reference. Other dtypes must be equal.

Reordered sums, as a fusion makes them, stay far below it; a wrong gradient is far above. It is a share of the whole
tensor's size, for an element that cancels to almost nothing carries the error of what was cancelled."""

FLOAT64 = "float64"
"""The reference that is the program run by eager PyTorch in double precision."""

FLOOR = 0.1
"""Share of the relative tolerance that is allowed, too, of the largest element among all tensors of the same kind.

Some gradients are nothing but rounding: those of a bias before a normalization, or of a key's bias in attention."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TensorError:
    """How far one tensor is from the reference's.

    Attributes
    ----------
    name : str
        ``output``, ``grad(layers.0.weight)``, ``buffer(running_mean)``, ``args[0]``.
    against : str
        ``thunder.jit`` or ``eager``.
    dtype : str
    max_abs_error : float
        Largest absolute difference of two elements; infinite where shapes or dtypes differ, or one is not a number.
    max_rel_error : float
        That, as a share of the reference's largest element.
    tolerance : float
        Largest `max_abs_error` allowed.
    ok : bool
    """

    name: str
    against: str
    dtype: str
    max_abs_error: float
    max_rel_error: float
    tolerance: float
    ok: bool

    @property
    def severity(self) -> float:
        """`max_abs_error` over the tolerance: more than 1 where it is not ok."""
        if self.max_abs_error == 0:
            return 0.0
        return self.max_abs_error / self.tolerance if self.tolerance > 0 else math.inf


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
        ``thunder.jit``, or ``thunder.jit and eager`` where nothing is random.
    tensors : tuple of TensorError
        Those against `FLOAT64`, too, where the program can run so; they count for `ok`, and not for `max_error`.
    """

    ok: bool
    max_error: float
    against: str
    tensors: tuple[TensorError, ...]

    @property
    def worst(self) -> TensorError | None:
        """The tensor nearest to its tolerance, or farthest beyond; None where there is none."""
        return max(self._against(FLOAT64, False), key=lambda tensor: tensor.severity, default=None)

    @property
    def worst_float64(self) -> TensorError | None:
        """The tensor farthest from double precision, as a share of its size; None where nothing ran so."""
        return max(self._against(FLOAT64, True), key=lambda tensor: tensor.max_rel_error, default=None)

    def _against(self, reference: str, is_it: bool) -> list[TensorError]:
        return [tensor for tensor in self.tensors if (tensor.against == reference) is is_it]


@dataclasses.dataclass(frozen=True)
class Recorded:
    """One tensor after a step, on the CPU.

    Attributes
    ----------
    kind : str
        ``output``, ``grad``, ``args``, ``kwargs``, ``buffer`` or ``parameter``.
    value : torch.Tensor, optional
        None for a gradient that was not computed.
    changed : bool
        False for a buffer or input that the step did not write to; it is told of only where it differs.
    """

    kind: str
    value: torch.Tensor | None
    changed: bool = True


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
    """

    def __init__(
        self,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        run: Callable[..., Any] | None = None,
        *,
        seed: int = 0,
    ) -> None:
        self.args, self.kwargs = args, kwargs
        self.run = run if run is not None else original
        self.seed = seed
        self._cotangents: list[torch.Tensor] | None = None
        # A transform may replace parameters, so a compiled module is asked before the module it was made of.
        state = _state(self.run) if isinstance(self.run, torch.nn.Module) else _state(original)
        self.parameters, self.buffers = state
        leaves = (*_named_leaves(args, "args"), *_named_leaves(kwargs, "kwargs"))
        self.inputs = {name: leaf for name, leaf in leaves if isinstance(leaf, torch.Tensor)}
        self._before = {name: tensor._version for name, tensor in self._changeable()}

    @property
    def device(self) -> torch.device:
        """Where the program runs: the device of its first tensor, the CPU where it has none."""
        tensors = [*self.inputs.values(), *self.parameters.values(), *self.buffers.values()]
        return next((tensor.device for tensor in tensors), torch.device("cpu"))

    def clear_grads(self) -> None:
        """Set the gradients of parameters and inputs to None."""
        for tensor in (*self.parameters.values(), *self.inputs.values()):
            if tensor.is_leaf:
                tensor.grad = None

    def synchronize(self) -> None:
        """Wait until the device has done all that was asked of it."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def forward(self) -> Any:
        """Call the program once."""
        return self.run(*self.args, **self.kwargs)

    def backward(self, outputs: Any) -> bool:
        """Differentiate the outputs that require grad: a single scalar as a loss, others by cotangents of the seed.

        Returns
        -------
        bool
            Whether there was anything to differentiate.
        """
        floating = [o for o in pytree.tree_leaves(outputs) if isinstance(o, torch.Tensor) and _is_differentiable(o)]
        differentiable = [output for output in floating if output.requires_grad]
        if not differentiable:
            return False
        if len(floating) == 1 and floating[0].dim() == 0:
            floating[0].backward()
            return True
        # For all outputs alike: which of them require grad differs between Thunder and eager.
        if self._cotangents is None:
            self._cotangents = _draw_cotangents(floating, self.seed)
        drawn = [cotangent for cotangent, o in zip(self._cotangents, floating, strict=True) if o.requires_grad]
        apply: Any = _Loss.apply  # without types in torch
        apply(drawn, *differentiable).backward()
        return True

    def step(self) -> Any:
        """One forward and backward; the outputs."""
        outputs = self.forward()
        self.backward(outputs)
        return outputs

    def baseline_bytes(self) -> int:
        """Bytes of parameters, buffers and inputs, each storage once."""
        return _storage_bytes([*self.parameters.values(), *self.buffers.values(), *self.inputs.values()])

    def record(self, outputs: Any) -> dict[str, Recorded]:
        """Copies, on the CPU, of everything that a step from a fresh start gave and changed."""
        found: dict[str, Recorded] = {}
        for path, leaf in _named_leaves(outputs, "output"):
            if isinstance(leaf, torch.Tensor):
                found[path] = Recorded("output", _on_cpu(leaf))
            elif isinstance(leaf, bool | int | float | complex):
                found[path] = Recorded("output", torch.as_tensor(leaf))
        for name, tensor in (*self.parameters.items(), *self.inputs.items()):
            if tensor.requires_grad and tensor.is_leaf:
                found[f"grad({name})"] = Recorded("grad", None if tensor.grad is None else _on_cpu(tensor.grad))
        for name, tensor in self._changeable():
            kind, changed = name.partition("(")[0].partition("[")[0], tensor._version != self._before[name]
            # Parameters are the bulk of a model, and hardly any program writes to them.
            if changed or kind != "parameter":
                found[name] = Recorded(kind, _on_cpu(tensor), changed)
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


def first_step(stepper: Stepper, seed: int) -> dict[str, Recorded]:
    """Step a fresh program once with the random state set, and record what it gave."""
    torch.manual_seed(seed)
    outputs = stepper.forward()
    return _finish(stepper, outputs)


def check(
    recorded: dict[str, Recorded],
    build: Callable[[], Parts],
    *,
    seed: int = 0,
    on_tensor: Callable[[TensorError], None] | None = None,
) -> Accuracy:
    """Compare a first step with those of unmodified Thunder and, where nothing is random, of eager PyTorch.

    Parameters
    ----------
    recorded : dict
        What `first_step` gave, of a program fresh from `build`.
    build : callable
        Makes the program anew, with the same values each time, so that nothing leaks from one way into another.
    seed : int
        The one that `first_step` was given.
    on_tensor : callable, optional
        Called with each comparison when it is made.

    Returns
    -------
    Accuracy

    Raises
    ------
    ProgramError
        If `build` gives other inputs each time, so that nothing can be compared.
    """
    callable_, args, kwargs = build()
    eager = Stepper(callable_, args, kwargs, seed=seed)
    start = _start_of(eager)
    torch.manual_seed(seed)
    with RandomWatch() as watch:
        outputs = eager.forward()
    random = watch.random
    comparisons = {} if random else {"eager": _finish(eager, outputs)}
    cotangents = eager._cotangents
    del callable_, args, kwargs, outputs, eager

    callable_, args, kwargs = build()
    stock = Stepper(callable_, args, kwargs, unmodified(callable_), seed=seed)
    if not _same_start(start, _start_of(stock)):
        raise ProgramError(
            "the program starts from other values each time it is built, so nothing can be compared; "
            "draw all random values with torch's default generator, which is seeded"
        )
    comparisons = {"thunder.jit": first_step(stock, seed), **comparisons}

    tensors: list[TensorError] = []
    for against, expected in comparisons.items():
        for error in compare(recorded, expected, against):
            tensors.append(error)
            if on_tensor is not None:
                on_tensor(error)
    max_error = max((tensor.max_abs_error for tensor in tensors), default=0.0)
    double = None if random else _in_double(build, cotangents, seed)
    if double is not None:
        for error in _compare_double(recorded, comparisons["eager"], double):
            tensors.append(error)
            if on_tensor is not None:
                on_tensor(error)
    return Accuracy(
        ok=all(tensor.ok for tensor in tensors),
        max_error=max_error,
        against=" and ".join(comparisons),
        tensors=tuple(tensors),
    )


def unmodified(callable_: Callable[..., Any]) -> Callable[..., Any]:
    """``thunder.jit`` as it comes, with its default executors."""
    # Here and not above: only a check that is made needs Thunder.
    from workbench.compiler import pipeline

    return pipeline.unmodified(callable_)


def compare(recorded: Mapping[str, Recorded], expected: Mapping[str, Recorded], against: str) -> Iterator[TensorError]:
    """Compare what two steps gave, tensor by tensor.

    Parameters
    ----------
    recorded, expected : mapping of str to Recorded
        The step in question, and the reference.
    against : str
        What the reference is called.

    Yields
    ------
    TensorError
        For each name in either; a tensor that only one of the two has is infinitely wrong.
    """
    sizes: dict[str, float] = {}
    for entry in expected.values():
        sizes[entry.kind] = max(sizes.get(entry.kind, 0.0), _size(entry.value))
    for name in dict.fromkeys([*expected, *recorded]):
        kind = expected[name].kind if name in expected else recorded[name].kind
        ours = recorded[name].value if name in recorded else None
        theirs = expected[name].value if name in expected else None
        error = _error(name, against, ours, theirs, sizes.get(kind, 0.0))
        if not error.ok or any(name in step and step[name].changed for step in (recorded, expected)):
            yield error


def _in_double(
    build: Callable[[], Parts], cotangents: list[torch.Tensor] | None, seed: int
) -> dict[str, Recorded] | None:
    """What eager gives with every floating-point tensor in double precision; None where the program cannot run so."""
    callable_, args, kwargs = build()
    stepper = Stepper(callable_, args, kwargs, seed=seed)
    held = [tensor for _, tensor in stepper._changeable() if tensor.is_floating_point()]
    # Tensors that share memory would no longer do so.
    if len({tensor.untyped_storage()._cdata for tensor in held}) < len({id(tensor) for tensor in held}):
        return None
    for tensor in held:
        tensor.data = tensor.data.double()
    stepper = Stepper(callable_, args, kwargs, seed=seed)
    stepper._cotangents = None if cotangents is None else [cotangent.double() for cotangent in cotangents]
    torch.manual_seed(seed)
    try:
        return _finish(stepper, stepper.forward())
    except Exception:  # noqa: BLE001  # a program may mix in a type of its own, or have no kernel for doubles
        return None


def _compare_double(
    recorded: Mapping[str, Recorded], eager: Mapping[str, Recorded], double: Mapping[str, Recorded]
) -> Iterator[TensorError]:
    """Compare with double precision, allowing what eager is off by itself beside the tolerance of the dtype."""
    sizes: dict[str, float] = {}
    for entry in double.values():
        sizes[entry.kind] = max(sizes.get(entry.kind, 0.0), _size(entry.value))
    for name, entry in double.items():
        if name not in recorded or name not in eager:
            continue
        exact, ours, known = entry.value, recorded[name].value, eager[name].value
        if exact is None or ours is None or known is None or not ours.is_floating_point() or not entry.changed:
            continue
        own_error = _largest_difference(known.double(), exact.double())
        worst, size = _largest_difference(ours.double(), exact.double()), _size(exact)
        relative = RELATIVE_TOLERANCE.get(ours.dtype, 0.0)
        tolerance = own_error + relative * max(size, FLOOR * sizes.get(entry.kind, 0.0))
        yield TensorError(
            name=name,
            against=FLOAT64,
            dtype=str(ours.dtype).removeprefix("torch."),
            max_abs_error=worst,
            max_rel_error=worst / size if size > 0 else (0.0 if worst == 0 else math.inf),
            tolerance=tolerance,
            ok=worst <= tolerance,
        )


def _finish(stepper: Stepper, outputs: Any) -> dict[str, Recorded]:
    stepper.backward(outputs)
    stepper.synchronize()
    return stepper.record(outputs)


class RandomWatch(TorchDispatchMode):
    """Notes whether random numbers are drawn: with a generator of the program's own, or with torch's, which moves on.

    That an op may draw is not enough: attention without dropout is such an op.
    """

    def __init__(self) -> None:
        super().__init__()
        self._own = False
        self._before = _random_states()

    @property
    def random(self) -> bool:
        """Whether any were drawn so far."""
        return self._own or not all(map(torch.equal, self._before, _random_states()))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        draws = torch.Tag.nondeterministic_seeded in func.tags
        self._own = self._own or (draws and kwargs.get("generator") is not None)
        return func(*args, **kwargs)


def _random_states() -> list[torch.Tensor]:
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else ())]


def _error(
    name: str, against: str, ours: torch.Tensor | None, theirs: torch.Tensor | None, largest: float
) -> TensorError:
    known = theirs if theirs is not None else ours
    dtype = str(known.dtype).removeprefix("torch.") if known is not None else ""
    size = _size(theirs)
    relative = RELATIVE_TOLERANCE.get(theirs.dtype, 0.0) if theirs is not None else 0.0
    tolerance = relative * max(size, FLOOR * largest)
    worst = _largest_difference(ours, theirs)
    if worst == 0:
        share = 0.0
    else:
        share = worst / size if size > 0 else math.inf
    return TensorError(
        name=name,
        against=against,
        dtype=dtype,
        max_abs_error=worst,
        max_rel_error=share,
        tolerance=tolerance,
        ok=worst <= tolerance,
    )


def _largest_difference(ours: torch.Tensor | None, theirs: torch.Tensor | None) -> float:
    if ours is None and theirs is None:
        return 0.0
    if ours is None or theirs is None or ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return math.inf
    if ours.numel() == 0:
        return 0.0
    one, other = _wide(ours), _wide(theirs)
    # What is infinite or not a number must be so in both.
    same = (one == other) | (one.isnan() & other.isnan())
    difference = torch.where(same, 0.0, (one - other).abs())
    return float(torch.where(difference.isnan(), math.inf, difference).max())


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.to(torch.float64)


def _size(tensor: torch.Tensor | None) -> float:
    """Largest finite magnitude."""
    if tensor is None or tensor.numel() == 0:
        return 0.0
    return float(torch.nan_to_num(_wide(tensor).abs(), nan=0.0, posinf=0.0).max())


def _on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu", copy=True)


class _Loss(torch.autograd.Function):
    """A stand-in for a loss: its gradients are given.

    They are copied when the backward begins, and no one but the backward holds the copies: so live the gradients of
    outputs in a training loop. Given to `torch.autograd.backward`, they would live through the whole step.
    """

    @staticmethod
    def forward(ctx: Any, cotangents: list[torch.Tensor], *outputs: torch.Tensor) -> torch.Tensor:
        ctx.cotangents = cotangents
        return torch.zeros((), device=outputs[0].device)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        return None, *(cotangent.clone() for cotangent in ctx.cotangents)


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
    storages = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())


def _named_leaves(tree: Any, root: str) -> Iterator[tuple[str, Any]]:
    """Leaves with their paths, such as ``args[0]``."""
    for path, leaf in pytree.tree_flatten_with_path(tree)[0]:
        yield root + pytree.keystr(path), leaf


def _state(callable_: Any) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Parameters and buffers of a module, or of the modules and tensors that a function holds on to."""
    parameters: dict[str, torch.Tensor] = {}
    buffers: dict[str, torch.Tensor] = {}
    for prefix, held in _held(callable_):
        if isinstance(held, torch.nn.Module):
            dot = f"{prefix}." if prefix else ""
            parameters.update({dot + name: tensor for name, tensor in held.named_parameters()})
            buffers.update({dot + name: tensor for name, tensor in held.named_buffers()})
        elif isinstance(held, torch.Tensor):
            (parameters if held.requires_grad and held.is_leaf else buffers)[prefix] = held
    return parameters, buffers


def _held(callable_: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(callable_, functools.partial):
        yield from _held(callable_.func)
        yield from callable_.keywords.items()
        yield from ((f"argument{i}", argument) for i, argument in enumerate(callable_.args))
    elif isinstance(callable_, torch.nn.Module):
        yield "", callable_
    elif getattr(callable_, "__self__", None) is not None:
        yield "", callable_.__self__
    elif getattr(callable_, "__closure__", None):
        for name, cell in zip(callable_.__code__.co_freevars, callable_.__closure__, strict=True):
            try:
                yield name, cell.cell_contents
            except ValueError:  # a name that the enclosing function has not yet bound
                continue


def _start_of(stepper: Stepper) -> list[tuple[str, tuple[int, ...], float]]:
    """What tells two starts apart, at the price of reading each tensor once."""
    return [
        (name, tuple(tensor.shape), float(torch.nan_to_num(_wide(tensor.detach())).sum()))
        for name, tensor in stepper._changeable()
    ]


def _same_start(one: list[tuple[str, tuple[int, ...], float]], other: list[tuple[str, tuple[int, ...], float]]) -> bool:
    return len(one) == len(other) and all(
        a[:2] == b[:2] and math.isclose(a[2], b[2], rel_tol=1e-9, abs_tol=1e-9) for a, b in zip(one, other, strict=True)
    )
