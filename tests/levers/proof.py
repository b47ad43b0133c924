"""What must hold for every program under every legal choice, as functions that raise where it does not."""

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
from hypothesis import currently_in_test_context, event
from thunder.core.proxies import TensorProxy

import workbench
from tests.strategies import refused_choices
from workbench.bench import Workbench
from workbench.compiler import api
from workbench.compiler.memory import fake_execution, op_effects
from workbench.core.graph import BACKWARD, ValueFlag
from workbench.errors import ChoiceError
from workbench.runs.measure import accuracy, memory_meter
from workbench.runs.measure.tensor_diff import RELATIVE_TOLERANCE, Recorded, compare

type Build = Callable[[], tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]

SEED = 3
FLOOR_BYTES = 1024
"""What kernels of tiny programs may take beside: the figures here are a few KiB."""


@dataclasses.dataclass(frozen=True)
class Reference:
    """What a program gives without the workbench.

    Attributes
    ----------
    expected : dict
        By what it is called: unmodified Thunder always, and eager where nothing is random.
    exhibit : str
        How unmodified Thunder itself differs from eager, or an empty string.
    """

    expected: dict[str, dict[str, Recorded]]
    exhibit: str


class Unusable(Exception):
    """PyTorch, or unmodified Thunder, refuses the program: there is nothing to compare with."""


def first_step(build: Build, compile: Callable[[Callable[..., Any]], Callable[..., Any]]) -> dict[str, Recorded]:
    """What one step of a fresh program gives, and what it changes."""
    function, args, kwargs = build()
    return accuracy.first_step(accuracy.Stepper(function, args, kwargs, compile(function), seed=SEED), SEED)


def differences(one: Mapping[str, Recorded], other: Mapping[str, Recorded], against: str) -> str:
    """The tensors that are not equal within their tolerance, in words."""
    # Programs here mix precisions: what ends as float64 may have been computed as float32.
    allowed = RELATIVE_TOLERANCE[torch.float32] / RELATIVE_TOLERANCE[torch.float64]
    wrong = [
        error
        for error in compare(one, other, against)
        if not error.ok and not (error.dtype == "float64" and error.max_abs_error <= allowed * error.tolerance)
    ]
    return ", ".join(f"{e.name} is {e.max_abs_error:.3g} from {e.against}" for e in wrong)


def reference(build: Build, build_eager: Build | None) -> Reference:
    """Run the program through unmodified Thunder and, if it can be built for that, eagerly.

    Raises
    ------
    Unusable
        If one of them refuses.
    """
    try:
        eager = {"eager": first_step(build_eager, lambda function: function)} if build_eager is not None else {}
        stock = first_step(build, lambda function: thunder.jit(function, executors=[thunder.pytorch_executor]))
    except Exception as error:
        raise Unusable(f"{type(error).__name__}: {error}") from error
    exhibit = differences(stock, eager["eager"], "eager") if eager else ""
    return Reference({"thunder.jit": stock, **eager}, exhibit)


def statements(trace: Any) -> list[str]:
    """The statements of a trace as text."""
    return [str(bsym) for bsym in trace.bound_symbols]


def replayed(bench: Workbench) -> Any:
    """The config in force, written to a file and read back."""
    with tempfile.TemporaryDirectory() as folder:
        return workbench.load(bench.export(Path(folder) / "choices.py"))


def holds(bench: Workbench, build: Build, known: Reference, *, measure: bool = True) -> None:
    """Assert that the plan in force, taken away and run, is right, runs as planned, and takes what was predicted."""
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

    declared = predicted_as_stepped(bench)
    if bench.executor == "torch":
        predicted = bench.predict({})
        assert (predicted.peak_bytes, predicted.saved_bytes) == (plan.peak_bytes, plan.saved_bytes)
        if measure and declared is not None:
            measured_as_predicted(bench, run, declared)


def measured_as_predicted(bench: Workbench, run: accuracy.Stepper, stepped_bytes: int) -> None:
    """Assert that a step takes what was predicted, beyond what is there before it, within 1 %.

    Autograd copies gradients that are no plain tensors of their own after the backward, and adds cotangents of inputs
    that are handed back; no trace says so. Where there are such, the figure must lie between. So it
    must where the peak is the moment at which the backward starts, which no statement stands for: `stepped_bytes` then.
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
    """Bytes of cotangents, and of sums with them, of inputs that the program returns as they are."""
    values = bench.plan.graph.values
    flags = ValueFlag.ARGUMENT | ValueFlag.OUTPUT | ValueFlag.REQUIRES_GRAD
    return 2 * int(values.bytes[(values.flags & flags) == flags].sum())


def _copied_after(bench: Workbench) -> int:
    """Bytes of gradients that autograd copies, as far as they can be told from the traces."""
    split, graph = bench.plan.split, bench.plan.graph
    if split.backward is None:
        return 0
    found = op_effects.facts(
        split.backward, before=op_effects.facts(split.forward, arguments=bench._captured.stage.arguments)
    )
    values = graph.values
    copied = 0
    gradients = [g for g in split.backward.bound_symbols[-1].flat_proxy_args if isinstance(g, TensorProxy)]
    held = np.flatnonzero(values.flags & (ValueFlag.ARGUMENT | ValueFlag.OUTPUT | ValueFlag.GRADIENT))
    # Not what no statement reads, nor gradients that wait beside the trace.
    names = [values.name[v] for v in held if values.name[v] in found.storage_of]
    holders = Counter([*(found.storage_of[name] for name in names), *(found.storage_of[g.name] for g in gradients)])
    for gradient in gradients:
        nbytes = int(values.bytes[graph.value_index[gradient.name]])
        storage = found.storage_of[gradient.name]
        strides = torch.empty(tuple(gradient.shape), device="meta").stride()
        # Once as a gradient and once as something that is held: any more is someone else.
        if holders[storage] > 2 or found.storage_bytes[storage] != nbytes or found.strides[gradient.name] != strides:
            copied += nbytes
    return copied


def predicted_as_stepped(bench: Workbench) -> int | None:
    """Assert that the plan's figures are those of a step with fake tensors, beside what no statement reads.

    Returns that step's peak; None where Thunder says that a value is smaller than it is, for so is all that is read off
    its traces.
    """
    split, stage = bench.plan.split, bench._captured.stage
    stepped = fake_execution.step(split.forward, split.backward, arguments=stage.arguments, beside=stage.beside)
    plan = bench.plan
    unread_bytes = sum(tensor.untyped_storage().nbytes() for tensor in stage.unread.values())
    assert plan.baseline_bytes == stepped.baseline_bytes + unread_bytes
    if stepped.misdeclared:
        if currently_in_test_context():
            event("misdeclared by Thunder")
        return None
    # Zeros for outputs without a gradient are there when the backward starts, and all but one gone before it does
    # anything. The plan has no statement for that moment; nor has it any for a backward that only hands gradients on.
    outputs = plan.graph.values.flags & ValueFlag.OUTPUT != 0
    unseen = _without_gradient(split) > 1 or not (plan.graph.statements.side == BACKWARD).any()
    passing = int(plan.graph.values.bytes[outputs].sum()) if unseen else 0
    peak_bytes = stepped.peak_bytes + unread_bytes
    assert plan.peak_bytes <= peak_bytes <= plan.peak_bytes + passing, (
        f"planned {plan.peak_bytes}, stepped {peak_bytes}"
    )
    return peak_bytes


def _without_gradient(split: Any) -> int:
    """How many outputs the backward takes no gradient for."""
    return 0 if split.backward is None else sum(not isinstance(c, TensorProxy) for c in split.backward.args[1])


def state(bench: Workbench) -> tuple[Any, ...]:
    """All that a choice may change, as values."""
    return _state(bench.choices, bench.plan)


def planned_anew(bench: Workbench) -> tuple[Any, ...]:
    """The state that the choices in force give when nothing of any plan is kept: a plan is never held to itself."""
    return _state(bench.choices, api.replan(bench._captured, bench.choices)[0])


def _state(choices: Mapping[str, str], plan: api.Plan) -> tuple[Any, ...]:
    figures = (plan.peak_bytes, plan.saved_bytes, plan.saved_tensors, plan.flops, plan.census)
    sides = [side for side in (plan.split.forward, plan.split.backward) if side is not None]
    return dict(choices), [statements(side) for side in sides], figures, plan.sites


def chosen(bench: Workbench, choices: Mapping[str, str]) -> bool:
    """Choose, and say whether it was accepted; assert that a refusal changes nothing.

    What the proof refuses was offered by a lever that should have known better: the error is the test's.
    """
    before = state(bench)
    try:
        bench.choose(choices)
    except ChoiceError:
        assert state(bench) == before
        return False
    return True


def refuses_what_is_illegal(bench: Workbench, most: int = 20) -> None:
    """Assert that every option that is told to be illegal is refused with that reason."""
    for id, option, reason in refused_choices(bench.sites())[:most]:
        assert reason
        before = bench.choices
        with pytest.raises(ChoiceError, match=re.escape(reason)):
            bench.choose({id: option})
        assert bench.choices == before


def undoes(bench: Workbench, before: tuple[Any, ...]) -> None:
    """Assert that undo brings back what was before and redo what was after, and that planning anew gives both."""
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
    """In the place of `torch.compile`: regions run as the PyTorch functions they are made of.

    Programs come in through Dynamo as ever, which hands its graphs to a backend of the workbench's own.
    """
    return COMPILE(function, *args, **kwargs) if callable(kwargs.get("backend")) else function
