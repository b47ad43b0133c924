"""The trial of a model: open it, make choices, replay them, and check accuracy and memory."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

import workbench
from tests.models import zoo
from workbench.bench.session.multi_graph import PartsBench
from workbench.compiler import api
from workbench.compiler.frontend.graph_breaks import parts_of
from workbench.core.config import Config
from workbench.errors import ChoiceError
from workbench.programs.placement import seed_all
from workbench.programs.tensors import find_tensors
from workbench.runs.log.tensor_error import TensorError
from workbench.runs.measure import accuracy, memory_meter, part_times
from workbench.runs.measure.tensor_diff import RecordedTensor, compare_tensors

STEPS = 3
"""Number of training steps that are compared with the reference."""
_TIMED_S = 1.0
"""Seconds after which no further step with timers begins."""
_SHARE = 1e-3
"""Allowed difference of a tensor after training steps, as a share of its largest element. Differences add up."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """Results for a model that opened.

    Attributes
    ----------
    capture : str
        The front end: ``dynamo``, ``parts`` or ``interpreter``.
    parts : int
        Number of the program's parts; 1 if it is one graph.
    opaque : tuple of str
        For each opaque part, the reason why PyTorch runs it.
    statements, sites, choices : int
        Number of statements and of sites of the stock plan, and number of choices that were made.
    open_s : float
        CPU seconds that opening takes.
    predicted_bytes, measured_bytes : int
        Predicted and measured peak memory under the choices.
    at_least : bool
        Whether the predicted peak is a lower bound, because a part is opaque or the parts change from call to call.
    replayed : bool
        Whether the exported config gives the same plan.
    accurate : bool
        Whether all tensors of the first step are within their tolerances of the references, and are as close to double
        precision as eager PyTorch.
    against : str
        The references of the first step; see `workbench.runs.measure.accuracy.Accuracy`.
    compared : int
        Number of compared tensors.
    worst : str
        The tensor with the largest error relative to its tolerance.
    trained : str
        First difference between training under the config and training in eager PyTorch; empty if there is none. If the
        model draws random numbers, the stock plan takes the place of eager PyTorch.
    unstable : str
        The training step from which nothing is compared, because float32 itself is unstable there; empty if there is
        none.
    coverage : float
        Measured share of a step's time that planned parts take; 1 for a program of one graph.
    """

    capture: str
    parts: int
    opaque: tuple[str, ...]
    statements: int
    sites: int
    choices: int
    open_s: float
    predicted_bytes: int
    measured_bytes: int
    at_least: bool
    replayed: bool
    accurate: bool
    against: str
    compared: int
    worst: str
    trained: str
    unstable: str
    coverage: float


def chosen(bench: workbench.Workbench, seed: int, count: int) -> None:
    """Make a few random legal choices together. If one of them makes another illegal, leave the illegal one out."""
    draw = random.Random(seed)
    free = [(site.id, o) for site in bench.sites() for o in site.options if o != site.choice and o not in site.illegal]
    drawn = draw.sample(free, min(count, len(free)))
    try:
        bench.choose(dict(drawn))
    except ChoiceError:
        for id, option in drawn:
            with contextlib.suppress(ChoiceError):
                bench.choose({id: option})


def _plans(bench: workbench.Workbench) -> list[workbench.Plan]:
    return [part.plan for part in bench.benches] if isinstance(bench, PartsBench) else [bench.plan]


def _train(stepper: accuracy.Stepper) -> list[dict[str, RecordedTensor]]:
    """Train for `STEPS` steps, with the program's own optimizer or with SGD. Return the tensors after each step."""
    given = [parameter for parameter in stepper.parameters.values() if parameter.requires_grad]
    optimizer = torch.optim.SGD(given or [torch.zeros(1)], lr=1e-3, momentum=0.9)
    recorded = []
    for step in range(STEPS):
        seed_all(step)  # models of speech draw their masks from NumPy's generator
        if not stepper.takes_steps:
            stepper.clear_grads()
        outputs = stepper.step()
        if not stepper.takes_steps:
            optimizer.step()
        recorded.append(stepper.record(outputs, whole=True))
    return recorded


def _train_in_double(
    build: Callable[[], accuracy.Parts], stepper: accuracy.Stepper
) -> list[dict[str, RecordedTensor]] | None:
    """Train in eager PyTorch with double precision, with the cotangents of `stepper`; None if that is impossible."""
    with accuracy.stepper_in_double(build, stepper.cotangents) as double:
        try:
            return None if double is None else _train(double)
        except Exception:  # noqa: BLE001  # a program may mix in a type of its own, or have no kernel for doubles
            return None


def _rounded(exact: Mapping[str, RecordedTensor], known: Mapping[str, RecordedTensor]) -> dict[str, RecordedTensor]:
    """Return the tensors `exact` in the data types of `known`. Tensors that `known` lacks are left out."""
    return {
        name: dataclasses.replace(entry, value=entry.value.to(like.value.dtype))
        for name, entry in exact.items()
        if entry.value is not None and (like := known.get(name)) is not None and like.value is not None
    }


def _farthest(errors: Iterable[TensorError]) -> TensorError | None:
    """Return the error that is farthest beyond its tolerance; None if there is no such error."""
    return max((error for error in errors if not error.ok), key=lambda error: error.severity, default=None)


@dataclasses.dataclass(frozen=True)
class Training:
    """Comparison of training steps under a config with a reference.

    Attributes
    ----------
    differs : str
        The first difference; empty if there is none.
    unstable : str
        The step from which nothing can be compared, because float32 itself is unstable there; empty if there is none.
    """

    differs: str = ""
    unstable: str = ""


def train(build: Callable[[], accuracy.Parts], config: Config) -> Training:
    """Train a program under a config and with a reference. Compare them after each step.

    Losses, gradients, parameters, buffers and optimizer states are compared. The reference is eager PyTorch. For a
    program that draws random numbers, it is the plan without choices, because eager PyTorch draws other numbers.

    Each training step may multiply rounding errors. The comparison ends before the first step in which eager PyTorch's
    own error against double precision exceeds the tolerance. It also ends before a step that differs only in single
    precision: in double precision, all steps under the config equal eager PyTorch's. The first step is always compared.
    """
    callable_, args, kwargs = build()
    with accuracy.ForwardWatch() as watch:
        accuracy.Stepper(callable_, args, kwargs).forward()
    random, least = watch.random, max(_SHARE, watch.least)
    callable_, args, kwargs = build()
    reference = api.stock(callable_, capture=config.capture, uncompiled=config.uncompiled) if random else callable_
    stepper = accuracy.Stepper(callable_, args, kwargs, reference)
    expected = _train(stepper)
    double = None if random else _train_in_double(build, stepper)
    callable_, args, kwargs = build()
    found = _train(accuracy.Stepper(callable_, args, kwargs, config.jit(callable_)))
    for number, (ours, theirs) in enumerate(zip(found, expected, strict=True), 1):
        exact = None if double is None else double[number - 1]
        if number > 1 and exact is not None:
            off = _farthest(compare_tensors(theirs, _rounded(exact, theirs), accuracy.FLOAT64, least=least))
            if off is not None:
                share = f"{100 * off.max_rel_error:.2g} %"
                return Training(unstable=f"step {number}: eager PyTorch is off by {share} in {off.name}")
        own = {} if exact is None else accuracy.own_errors_of(theirs, accuracy.InDouble(exact))
        name = "stock plan" if random else "eager"
        off = _farthest(compare_tensors(ours, theirs, name, own_errors=own, least=least))
        if off is not None:
            share = None if random or number == 1 else _difference_in_double(build, config)
            if share is None:
                return Training(differs=f"step {number}: {off}")
            told = f"{off.name} differs by {100 * off.max_rel_error:.2g} % from rounding alone"
            return Training(unstable=f"step {number}: {told}; in double precision, all steps agree to {share:.1g}")
    return Training()


def _difference_in_double(build: Callable[[], accuracy.Parts], config: Config) -> float | None:
    """Train a program in double precision, under a config and in eager PyTorch.

    Return the largest difference of a tensor after any step, as a share of the tensor's size. Return None if a tensor
    differs by more than rounding, or if the program or the config does not run in double precision.
    """
    largest = 0.0
    try:
        (module, args, kwargs), (same, given, named) = (_doubled(build()) for _ in range(2))
        expected = _train(accuracy.Stepper(module, args, kwargs))
        found = _train(accuracy.Stepper(same, given, named, config.jit(same)))
    except Exception:  # noqa: BLE001  # a program may mix in a type of its own, or have no kernel for doubles
        return None
    for ours, theirs in zip(found, expected, strict=True):
        for error in compare_tensors(ours, theirs, "eager"):
            if not error.ok:
                return None
            largest = max(largest, error.max_rel_error)
    return largest


def _doubled(parts: accuracy.Parts) -> accuracy.Parts:
    """Return a program with its floating-point parameters, buffers and inputs in double precision."""
    for tensor in find_tensors(parts).tensors.values():
        if tensor.is_floating_point():
            tensor.data = tensor.data.double()
    return parts


def _coverage(stepper: accuracy.Stepper, compiled: Any) -> float:
    """Return the measured share of a step's time that planned parts take; 1 for a program of one graph."""
    parts = parts_of(compiled)
    return 1.0 if parts is None else part_times.measure(stepper, parts, {}, _TIMED_S, time.perf_counter).planned_share


def run(name: str, folder: Path, choices: int, on_opened: Callable[[dict[str, Any]], None] = lambda _: None) -> Outcome:
    """Try a model of the zoo on the CPU with `choices` random choices.

    When the model is open, `on_opened` is called with the fields of the outcome that are then known. A caller can keep
    them in case the trial fails later.
    """

    def build() -> accuracy.Parts:
        return zoo.build(name)

    module, args, kwargs = build()
    begun_s = time.process_time()
    bench = workbench.open(module, *args, device="cpu", **kwargs)
    open_s = time.process_time() - begun_s
    statements, sites = sum(plan.statements for plan in _plans(bench)), len(bench.sites())
    parts = bench.parts if isinstance(bench, PartsBench) else ()
    opened: dict[str, Any] = {
        "capture": bench.capture,
        "parts": len(parts) or 1,
        "opaque": tuple(part.refusal for part in parts if part.opaque),
        "statements": statements,
        "sites": sites,
        "open_s": open_s,
    }
    on_opened(opened)
    chosen(bench, len(name), choices)
    config = workbench.load(bench.export(folder / f"{name}.py"))
    module, args, kwargs = build()
    again = workbench.open(module, *args, config=config, **kwargs)
    texts = [[plan.text() for plan in _plans(each)] for each in (again, bench)]
    replayed = texts[0] == texts[1] and again.choices == bench.choices
    compiled = config.jit(module)
    stepper = accuracy.Stepper(module, args, kwargs, compiled)
    checked = accuracy.check_first_step(
        accuracy.first_step(stepper, 0), build, capture=config.capture, uncompiled=config.uncompiled
    )
    training = train(build, config)
    # Some models change their configuration in the first call, so the second call captures them again. It also tries
    # again to compile functions that Dynamo skips, because other programs were compiled since the first call.
    stepper.step()
    # If the parts change from call to call, only the peak of each part is known: the largest is a lower bound.
    memory = bench.memory if isinstance(bench, PartsBench) else None
    one_part = bench.largest_peak_bytes if isinstance(bench, PartsBench) else bench.plan.peak_bytes
    measured_bytes = memory_meter.measure_peak(stepper).measured_peak_bytes
    return Outcome(
        **opened,
        choices=len(bench.choices),
        predicted_bytes=one_part if memory is None else memory.peak_bytes,
        at_least=isinstance(bench, PartsBench) and (memory is None or memory.at_least),
        measured_bytes=measured_bytes,
        replayed=replayed,
        accurate=checked.ok,
        against=checked.against,
        compared=len(checked.tensors),
        worst=str(checked.worst),
        trained=training.differs,
        unstable=training.unstable,
        coverage=_coverage(stepper, compiled),
    )
