"""Assertions about results, traces, memory and undo. They must hold for all programs under all legal choices."""

from __future__ import annotations

import dataclasses
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import thunder
import torch
from thunder.core.proxies import TensorProxy

import workbench
from tests.compiler.memory import stepper
from tests.strategies import refused_choices
from workbench.bench import Workbench
from workbench.compiler import api
from workbench.compiler.memory import views_and_writes
from workbench.core.graph import BACKWARD, ValueFlag
from workbench.errors import ChoiceError
from workbench.runs.measure import accuracy, memory_meter
from workbench.runs.measure.tensor_diff import RELATIVE_TOLERANCE, RecordedTensor, compare_tensors

type Build = Callable[[], tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]

SEED = 3
FLOOR_BYTES = 1024
"""Minimum tolerance of measured peak memory. Kernels take extra memory: more than 1 % of the peak memory of a tiny
program.
"""


@dataclasses.dataclass(frozen=True)
class Reference:
    """Results of a program without the workbench.

    Attributes
    ----------
    expected : dict
        Results of each reference: ``thunder.jit`` and, if `build_eager` is given, ``eager``.
    exhibit : str
        The tensors for which unmodified Thunder differs from eager PyTorch, as text; empty if none.
    """

    expected: dict[str, dict[str, RecordedTensor]]
    exhibit: str


class Unusable(Exception):
    """PyTorch or unmodified Thunder refuses the program, so it has no reference."""


def first_step(build: Build, compile: Callable[[Callable[..., Any]], Callable[..., Any]]) -> dict[str, RecordedTensor]:
    """Build and compile a program, and run one step. Return its results and the tensors that it writes in place."""
    function, args, kwargs = build()
    return accuracy.first_step(accuracy.Stepper(function, args, kwargs, compile(function), seed=SEED), SEED)


def differences(one: Mapping[str, RecordedTensor], other: Mapping[str, RecordedTensor], against: str) -> str:
    """Return, as text, the tensors that differ by more than their tolerance. Empty if none."""
    # These programs mix data types. A float64 result may be computed partly in float32, so it gets the tolerance of
    # float32.
    allowed = RELATIVE_TOLERANCE[torch.float32] / RELATIVE_TOLERANCE[torch.float64]
    wrong = [
        error
        for error in compare_tensors(one, other, against)
        if not error.ok and not (error.dtype == "float64" and error.max_abs_error <= allowed * error.tolerance)
    ]
    return ", ".join(f"{e.name} is {e.max_abs_error:.3g} from {e.against}" for e in wrong)


def reference(build: Build, build_eager: Build | None) -> Reference:
    """Run a program with unmodified Thunder and, if `build_eager` is given, with eager PyTorch.

    Raises
    ------
    Unusable
        If Thunder or PyTorch refuses the program.
    """
    try:
        eager = {"eager": first_step(build_eager, lambda function: function)} if build_eager is not None else {}
        stock = first_step(build, lambda function: thunder.jit(function, executors=[thunder.pytorch_executor]))
    except Exception as error:
        raise Unusable(f"{type(error).__name__}: {error}") from error
    exhibit = differences(stock, eager["eager"], "eager") if eager else ""
    return Reference({"thunder.jit": stock, **eager}, exhibit)


def statements(trace: Any) -> list[str]:
    """Return the statements of a trace as text."""
    return [str(bsym) for bsym in trace.bound_symbols]


def replayed(bench: Workbench) -> Any:
    """Export the bench's config to a file. Return the config that is read back from the file."""
    with tempfile.TemporaryDirectory() as folder:
        return workbench.load(bench.export(Path(folder) / "choices.py"))


def holds(bench: Workbench, build: Build, known: Reference, *, measure: bool = True) -> None:
    """Export the bench's choices, and run a step under the exported config.

    Assert that the traces equal the plan's traces, that the results equal those of the references, and that the step
    needs the predicted memory. Results are compared only if the references agree. Memory is measured only with the
    executor ``torch``, and only if `measure` is true.
    """
    plan = bench.plan
    config = replayed(bench)
    assert config.choices == bench.choices
    function, args, kwargs = build()
    jitted = config.jit(function)
    run = accuracy.Stepper(function, args, kwargs, jitted, seed=SEED)
    recorded = accuracy.first_step(run, SEED)

    forward, backward = thunder.last_traces(jitted)[-1], thunder.last_backward_traces(jitted)
    assert statements(forward) == statements(plan.split.forward)
    assert bool(backward) == (plan.split.backward is not None)
    if plan.split.backward is not None:
        assert statements(backward[-1]) == statements(plan.split.backward)

    if not known.exhibit:
        for against, expected in known.expected.items():
            assert not differences(recorded, expected, against)

    stepped_bytes = predicted_as_stepped(bench)
    if bench.executor == "torch":
        predicted = bench.predict({})
        assert (predicted.peak_bytes, predicted.saved_bytes) == (plan.peak_bytes, plan.saved_bytes)
        if measure:
            measured_as_predicted(bench, run, stepped_bytes)


def measured_as_predicted(bench: Workbench, run: accuracy.Stepper, stepped_bytes: int) -> None:
    """Assert that a step's measured peak memory above its baseline equals the prediction, within 1 % or `FLOOR_BYTES`.

    The measured peak memory may be higher for three reasons, each with its own limit. First, after the backward,
    autograd copies gradients that share memory or are not contiguous. Second, autograd adds cotangents of inputs that
    the program returns. Third, the peak may be at the start of the backward, before its first statement. The plan has
    no figure for this moment, but `stepped_bytes` includes it.
    """
    plan = bench.plan
    measured = memory_meter.measure_peak(run)
    taken, predicted = measured.measured_peak_bytes - measured.baseline_bytes, plan.peak_bytes - plan.baseline_bytes
    copied, handed_back = _copied_after(bench), _handed_back(bench)
    slack = max(0.01 * measured.measured_peak_bytes, FLOOR_BYTES)
    after = int(plan.timeline.live_bytes[-1]) - plan.baseline_bytes + copied if copied else 0
    most = max(predicted, after, stepped_bytes - plan.baseline_bytes)
    assert predicted - slack <= taken <= most + handed_back + slack, (
        f"predicted {predicted}, measured {taken}, copied afterwards {copied}, for inputs handed back {handed_back}"
    )


def _handed_back(bench: Workbench) -> int:
    """Return twice the bytes of returned inputs that need gradients: for their cotangents, and for autograd's sums."""
    values = bench.plan.graph.values
    flags = ValueFlag.ARGUMENT | ValueFlag.OUTPUT | ValueFlag.REQUIRES_GRAD
    return 2 * int(values.bytes[(values.flags & flags) == flags].sum())


def _copied_after(bench: Workbench) -> int:
    """Return the bytes of the gradients that autograd will copy after the backward, according to the traces."""
    split, graph = bench.plan.split, bench.plan.graph
    if split.backward is None:
        return 0
    found = views_and_writes.trace_facts(
        split.backward, earlier=views_and_writes.trace_facts(split.forward, arguments=bench._captured.context.arguments)
    )
    values = graph.values
    copied = 0
    gradients = [g for g in split.backward.bound_symbols[-1].flat_proxy_args if isinstance(g, TensorProxy)]
    held = np.flatnonzero(values.flags & (ValueFlag.ARGUMENT | ValueFlag.OUTPUT | ValueFlag.GRADIENT))
    # Skip values without a known storage: no statement reads them, or they are gradients outside of the traces.
    names = [values.name[v] for v in held if values.name[v] in found.storage_of]
    holders = Counter([*(found.storage_of[name] for name in names), *(found.storage_of[g.name] for g in gradients)])
    for gradient in gradients:
        nbytes = int(values.bytes[graph.value_index[gradient.name]])
        storage = found.storage_of[gradient.name]
        strides = torch.empty(tuple(gradient.shape), device="meta").stride()
        # Each gradient has two references in `holders`: as a gradient, and as a held value. A third reference means
        # that another value shares its storage.
        if holders[storage] > 2 or found.storage_bytes[storage] != nbytes or found.strides[gradient.name] != strides:
            copied += nbytes
    return copied


def predicted_as_stepped(bench: Workbench) -> int:
    """Assert that the plan's memory equals that of a step with fake tensors, plus values that no statement reads.

    Return the peak of the fake step, with these values, in bytes.
    """
    split, context = bench.plan.split, bench._captured.context
    stepped = stepper.step(split.forward, split.backward, arguments=context.arguments, beside=context.beside)
    plan = bench.plan
    unread_bytes = sum(tensor.untyped_storage().nbytes() for tensor in context.unread.values())
    assert plan.baseline_bytes == stepped.baseline_bytes + unread_bytes
    # When the backward starts, a tensor of zeros exists for each output without a gradient. All but one are freed
    # before the first statement, so the plan's statements do not count them. If the backward has no statement, because
    # it only passes gradients on, the plan counts none.
    outputs = plan.graph.values.flags & ValueFlag.OUTPUT != 0
    unseen = _without_gradient(split) > 1 or not (plan.graph.statements.side == BACKWARD).any()
    passing = int(plan.graph.values.bytes[outputs].sum()) if unseen else 0
    peak_bytes = stepped.peak_bytes + unread_bytes
    assert plan.peak_bytes <= peak_bytes <= plan.peak_bytes + passing, (
        f"planned {plan.peak_bytes}, stepped {peak_bytes}"
    )
    return peak_bytes


def _without_gradient(split: Any) -> int:
    """Return the number of outputs for which the backward takes no incoming gradient."""
    return 0 if split.backward is None else sum(not isinstance(c, TensorProxy) for c in split.backward.args[1])


def state(bench: Workbench) -> tuple[Any, ...]:
    """Return the choices and the plan's traces, figures and sites: all state that a choice may change."""
    return _state(bench.choices, bench.plan)


def planned_anew(bench: Workbench) -> tuple[Any, ...]:
    """Plan the current choices without any cache, and return the state. A cached plan would be compared with itself."""
    return _state(bench.choices, api.replan(bench._captured, bench.choices)[0])


def _state(choices: Mapping[str, str], plan: api.Plan) -> tuple[Any, ...]:
    figures = (plan.peak_bytes, plan.saved_bytes, plan.saved_tensors, plan.flops, plan.census)
    sides = [side for side in (plan.split.forward, plan.split.backward) if side is not None]
    return dict(choices), [statements(side) for side in sides], figures, plan.sites


def chosen(bench: Workbench, choices: Mapping[str, str]) -> bool:
    """Make choices. Return whether they were accepted. Assert that a refused choice changes no state.

    If the proof refuses the plan, a lever has offered a wrong option, so the `PlanError` is not caught.
    """
    before = state(bench)
    try:
        bench.choose(choices)
    except ChoiceError:
        assert state(bench) == before
        return False
    return True


def refuses_what_is_illegal(bench: Workbench, most: int = 20) -> None:
    """Assert that the bench refuses the first `most` illegal options, with the reasons that its sites list."""
    for id, option, reason in refused_choices(bench.sites())[:most]:
        assert reason
        before = bench.choices
        with pytest.raises(ChoiceError, match=re.escape(reason)):
            bench.choose({id: option})
        assert bench.choices == before


def undoes(bench: Workbench, before: tuple[Any, ...]) -> None:
    """Assert that undo restores the state before a choice, and that redo restores the state after the choice.

    Compare both states with plans that are made without a cache. At the end, the choice is undone.
    """
    after = state(bench)
    assert planned_anew(bench) == after
    bench.undo()
    assert state(bench) == before
    assert planned_anew(bench) == before
    bench.redo()
    assert state(bench) == after
    bench.undo()


COMPILE = torch.compile


def uncompiled(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """Stand in for `torch.compile`: return the function uncompiled, so that a region runs its PyTorch functions.

    The workbench captures programs by calls whose backend is a function. Such a call still reaches `torch.compile`.
    """
    return COMPILE(function, *args, **kwargs) if callable(kwargs.get("backend")) else function
