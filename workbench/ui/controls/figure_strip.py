"""`Strip`: the figures above the graph, predicted by a plan or measured by a run, and their changes."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from workbench.analysis.cost.machines import H100
from workbench.core.executor import executor_named
from workbench.runs.measure.measured_rates import THIS_CPU
from workbench.runs.sweep.compare import step_times
from workbench.summary import AT_LEAST, ESTIMATED, NO_BACKWARD, human_bytes, human_seconds, human_share, proof_text
from workbench.ui.widgets.panel import Panel, esm

if TYPE_CHECKING:
    from collections.abc import Callable

    from workbench.analysis.cost.collective_overlap import Overlap
    from workbench.analysis.cost.machines import Machine
    from workbench.bench.fit.choice_ranking import Gain
    from workbench.compiler.api import Plan
    from workbench.runs.measure.accuracy import Accuracy
    from workbench.runs.process.follow_run import Run


_DIGITS = 9
"""Decimals to which simulated seconds are compared. Differences below 1 ns come from the order of summation."""


OPENS = {
    "peak": "Fit",
    "saved": "Single choices",
    "fusions": "Fusions",
    "compile": "Compile",
    "step": "Timeline",
    "overlap": "Timeline",
    "accuracy": "Runs",
}
"""The tab that a click on a figure opens, by the figure's key."""


class Strip(Panel):
    """The figures above the graph. The only key of `content` is ``figures``, from the function `figures`.

    In the app, a figure also has ``opens``, from `OPENS`.
    """

    _esm = esm("figure_strip")


@dataclasses.dataclass(frozen=True)
class Baseline:
    """The baseline with which all figures are compared.

    Attributes
    ----------
    name : str
        ``no choices``, or ``pinned: `` and a run's name.
    plan : Plan or None
        The baseline's plan. None if a pinned run's choices no longer fit the program. Then predictions are not
        compared.
    run : Run or None
        The run whose measurements are the baseline; None if there is none.
    interleaved : str
        Name of the variant that is the baseline, if the shown run interleaved steps of this variant with its own
        steps; otherwise empty.
    """

    name: str
    plan: Plan | None
    run: Run | None = None
    interleaved: str = ""


@dataclasses.dataclass(frozen=True)
class PreviousRun:
    """The last finished run, and whether it had the current choices."""

    run: Run
    same_choices: bool


def figures(
    plan: Plan,
    run: Run | None,
    baseline: Baseline,
    *,
    same_choices: bool,
    machine: Machine = H100,
    rates: Machine | None = None,
    previous: PreviousRun | None = None,
    step_s: Callable[[Plan], float] | None = None,
) -> list[dict[str, Any]]:
    """Return the figures of the strip.

    Parameters
    ----------
    plan : Plan
        The current plan.
    run : Run, optional
        The latest run.
    baseline : Baseline
    same_choices : bool
        Whether the latest run has the current choices.
    machine : Machine
        Machine on which ranks are simulated.
    rates : Machine, optional
        Machine by whose rates `step_s` predicts; by default `machine`.
    previous : PreviousRun, optional
        The last finished run. It supplies the figures that `run` has not measured yet.
    step_s : callable, optional
        Returns the step time of a plan, predicted from the rates of `rates`. By default, no predicted step time is
        shown.
    """
    start, name = baseline.plan or plan, baseline.name

    def supplier_of(has_figure: Callable[[Run], bool]) -> tuple[Run | None, str]:
        """Return the run that supplies a figure, and words that name this run."""
        if previous is not None and run is not None and not has_figure(run) and has_figure(previous.run):
            return previous.run, "earlier run" if previous.same_choices else _EARLIER
        return run, "measured" if same_choices else _EARLIER

    peak = [_predicted_peak(plan, start, name)]
    by_run, measured = supplier_of(lambda run: run.memory["measured_peak_bytes"] is not None)
    if by_run is not None and (found := by_run.memory["measured_peak_bytes"]) is not None:
        predicted, bound = by_run.memory["predicted_peak_bytes"], by_run.memory["peak_bound_bytes"]
        tip = (
            f"predicted for this run: {human_bytes(predicted)}, {human_share(found / predicted - 1)}"
            if predicted
            else f"predicted for this run: {AT_LEAST}{human_bytes(bound)}"
            if bound
            else ""
        )
        peak.append({**_measured(human_bytes(found), measured, tip), "beside": True})
    saved = [_predicted_bytes(plan.saved_bytes, start.saved_bytes, name)]
    if plan.graph.has_backward:
        saved.append(_value(f"{plan.saved_tensors} tensors", "", plan.saved_tensors - start.saved_tensors, str, name))
    else:
        saved.append({**_value("no backward", "", 0, str, name), "tip": NO_BACKWARD})
    shown: list[dict[str, Any]] = [
        {"key": "peak", "title": "Peak memory", "values": peak},
        {"key": "saved", "title": "Saved for backward", "values": saved},
        {
            "key": "fusions",
            "title": "Unique fusions" if plan.census.count else "Fusions",
            "values": _fusions(plan, start, name),
        },
    ]
    if plan.counts["copies"] or start.counts["copies"]:
        shown.append({"key": "copies", "title": "In place", "values": _copies(plan, start, name)})
    if plan.counts["offloaded_bytes"]:
        shown.append({"key": "offload", "title": "Offloaded", "values": _offload_figure(plan)})
    shown.append(
        {
            "key": "compile",
            "title": "Compile time",
            "values": [_compile_time(*supplier_of(lambda run: run.compile_s is not None), baseline)],
        }
    )
    timed = supplier_of(lambda run: run.times is not None)
    step = _step_time(*timed, baseline)
    if step_s is not None:
        predicted_step = _predicted_step(step_s(plan), step_s(start), name, rates or machine)
        if step == [_UNMEASURED]:
            step = [predicted_step]
        elif step[0].get("earlier"):
            # Only the prediction is of this plan, so it comes first.
            step = [predicted_step, {**step[0], "beside": True}, *step[1:]]
        else:
            # The interval has room only in a wide tile, so it comes after the prediction.
            step.insert(1, {**predicted_step, "beside": True})
    shown.append({"key": "step", "title": "Step time", "values": step})
    overlap = plan.overlap_on(machine)
    if overlap is not None:
        values = _overlap(overlap, start.overlap_on(machine), name)
        title = f"Communication, simulated on {overlap.machine.name}"
        shown.append({"key": "overlap", "title": title, "values": values})
    accuracy = _accuracy(*supplier_of(lambda run: run.accuracy is not None))
    shown.append({"key": "accuracy", "title": "Accuracy", "values": [*accuracy, *_proof(plan)]})
    return shown


_EARLIER = "earlier plan"
"""Mark of a figure that was measured under other choices."""


def _measured(text: str, measured: str, tip: str = "") -> dict[str, Any]:
    """Return a measured value. `measured` says of which plan or run it is; a value of an earlier plan is grey."""
    if measured != _EARLIER:
        return {"text": text, "kind": measured, "tip": tip}
    why = "measured under other choices"
    return {"text": text, "kind": measured, "tip": f"{why}; {tip}" if tip else why, "earlier": True}


_ESTIMATED = ("peak", "saved")


def figures_while_planning(
    current_figures: list[dict[str, Any]], plan: Plan, gain: Gain | None, baseline: Baseline
) -> list[dict[str, Any]]:
    """Return the figures to show while a plan is made. Estimates are marked as such, and other figures as outdated.

    Parameters
    ----------
    current_figures : list of dict
        Result of `figures` for the current plan.
    plan : Plan
        The current plan.
    gain : Gain, optional
        Estimated change by the pending choices.
    baseline : Baseline
    """
    start, found = baseline.plan or plan, []
    for figure in current_figures:
        first, *others = figure["values"]
        if gain is not None and figure["key"] in _ESTIMATED:
            name = f"{figure['key']}_bytes"
            now = getattr(plan, name) + getattr(gain, name)
            text, change = f"{ESTIMATED}{human_bytes(now)}", now - getattr(start, name)
            first = _value(text, "estimated", change, human_bytes, baseline.name)
        older = any("predicted" in value["kind"] for value in figure["values"]) and first is figure["values"][0]
        found.append({**figure, "values": [first, *others], "older": older})
    return found


_UNMEASURED = {"text": "–", "kind": "not measured yet"}


def _compile_time(run: Run | None, measured: str, baseline: Baseline) -> dict[str, Any]:
    """Return the compile time and its change. The change has no verdict, because both times were measured only once."""
    if run is None or run.compile_s is None:
        return dict(_UNMEASURED)
    value = _measured(human_seconds(run.compile_s), measured)
    base = baseline.run
    if base is None or base.run_dir == run.run_dir or base.compile_s is None:
        return value
    change = run.compile_s - base.compile_s
    text = f"{'+' if change > 0 else '−'}{human_seconds(abs(change))}"
    return value | _delta(
        text,
        baseline.name,
        "",
        f"each was measured only once, and not interleaved, so there is no verdict; {baseline.name} took "
        f"{human_seconds(base.compile_s)}",
    )


def _step_time(run: Run | None, measured: str, baseline: Baseline) -> list[dict[str, Any]]:
    """Return the median step time with its change and verdict, the interval of the median, and the variants' times."""
    times = run.times if run is not None else None
    if run is None or times is None:
        return [dict(_UNMEASURED)]
    value = {**_measured(human_seconds(times["step_s"]), measured), **_step_change(run, baseline)}
    if run.beside_load:
        value["kind"] = measured if measured == _EARLIER else f"{measured}, busy CPU"
        value["tip"] = "; ".join(filter(None, (value.get("tip", ""), run.beside_load)))
    range_s = _interval(times["low_s"], times["high_s"])
    earlier = {"earlier": True} if measured == _EARLIER else {}
    interval = {"text": range_s, "kind": "95 % interval", "tip": f"of the median step, {measured}", **earlier}
    beside = [
        {
            "text": human_seconds(other["step_s"]),
            "kind": f"{name}, {measured}",
            **earlier,
            "tip": f"interleaved; {_BESIDE[other['verdict']]}: {other['ratio']:.3f} times this run's, "
            f"95 % interval {other['low']:.3f} to {other['high']:.3f}",
        }
        for name, other in run.against.items()
    ]
    return [value, *([interval] if times["high_s"] > 0 else []), *beside]


_LEAST_CHANGE = 5e-4
"""Changes of a predicted step time are not shown below this share of the baseline's time: they come from rounding."""


def _predicted_step(step_s: float, base_s: float, baseline_name: str, machine: Machine) -> dict[str, Any]:
    change = step_s - base_s if abs(step_s - base_s) >= _LEAST_CHANGE * base_s else 0.0
    launches = "" if machine.name == THIS_CPU else ", without the time to launch kernels"
    tip = f"predicted from the rates of {machine.name}{launches}"
    text = f"{ESTIMATED}{human_seconds(step_s)}"
    return {**_value(text, "predicted", change, human_seconds, baseline_name), "tip": tip}


def _interval(low_s: float, high_s: float) -> str:
    """Format a range of two times. If both have the same unit, it is written once."""
    low, high = human_seconds(low_s), human_seconds(high_s)
    number, _, unit = low.rpartition(" ")
    return f"{number}–{high}" if high.endswith(f" {unit}") else f"{low}–{high}"


_BESIDE = {"faster": "faster than this run", "slower": "slower than this run", "noise": "within noise"}


def _step_change(run: Run, baseline: Baseline) -> dict[str, str]:
    """Return the change of the step time from the baseline, with a verdict.

    If the run timed the baseline as a variant, compare the run's own times with the variant's. Otherwise compare the
    run with the baseline's run. This second verdict allows for a drift of the machine's speed between the runs.
    """
    other = run.against.get(baseline.interleaved)
    if other is not None and other["ratio"]:
        # The run has the ratio of the variant's time to its own time. The strip shows the inverse.
        verdict = {"faster": "slower", "slower": "faster"}.get(other["verdict"], "noise")
        ratio, low, high = (1 / other[name] for name in ("ratio", "high", "low"))
        tip = f"measured interleaved: {ratio:.3f} of its time, 95 % interval {low:.3f} to {high:.3f}"
        return _time_delta(ratio, verdict, baseline.name, tip)
    if baseline.run is None or baseline.run.run_dir == run.run_dir:
        return {}
    found = step_times(run, baseline.run)
    if found.ratio is None:
        return {}
    drift = "an unknown share" if found.drift is None else f"{found.drift:.1%}"
    interval = f", 95 % interval {found.low:.3f} to {found.high:.3f}" if found.low is not None else ""
    tip = (
        f"not measured interleaved: {found.ratio:.3f} of its time{interval}; the machine's own speed drifted by {drift}"
    )
    return _time_delta(found.ratio, found.verdict, baseline.name, tip)


def _time_delta(ratio: float, verdict: str, name: str, tip: str) -> dict[str, str]:
    change = f"{'+' if ratio > 1 else '−'}{100 * abs(ratio - 1):.1f} %"
    if verdict == "noise":
        return _delta("within noise", name, "", f"{change}; {tip}")
    if verdict not in ("faster", "slower"):
        return _delta(f"{change}, no verdict", name, "", tip)
    return _delta(f"{change}, {verdict}", name, "good" if verdict == "faster" else "bad", tip)


def _delta(text: str, name: str, tone: str, tip: str = "") -> dict[str, str]:
    """Return a change with the name of its baseline. A change without a tone is shown in grey."""
    return {
        "delta": text,
        "delta_vs": f"vs {name}",
        "delta_tone": tone or "even",
        "delta_tip": f"vs {name}{tip and f': {tip}'}",
    }


def _overlap(overlap: Overlap, base_overlap: Overlap | None, baseline_name: str) -> list[dict[str, Any]]:
    """Return the simulated figures of communication: exposed time, step time, lower bound, and bytes in flight."""
    new, old = overlap.simulation, base_overlap.simulation if base_overlap is not None else overlap.simulation
    rates = f"{overlap.ranks} × {overlap.machine.name}: {overlap.machine.source}"

    def seconds(name: str, text: str) -> dict[str, Any]:
        change = round(getattr(new, name) - getattr(old, name), _DIGITS)
        value = _value(human_seconds(getattr(new, name)), text, change, human_seconds, baseline_name)
        return {**value, "tip": rates}

    flight = _value(
        human_bytes(new.in_flight_peak_bytes),
        "in flight",
        new.in_flight_peak_bytes - old.in_flight_peak_bytes,
        human_bytes,
        baseline_name,
    )
    bound = {"text": human_seconds(overlap.lower_bound_s), "kind": "at least, in any order", "tip": rates}
    return [seconds("exposed_communication_s", "exposed"), seconds("step_s", "step"), bound, flight]


def _predicted_bytes(nbytes: int, base_bytes: int, baseline_name: str) -> dict[str, Any]:
    return _value(human_bytes(nbytes), "predicted", nbytes - base_bytes, human_bytes, baseline_name)


def _predicted_peak(plan: Plan, start: Plan, baseline_name: str) -> dict[str, Any]:
    value = _predicted_bytes(plan.peak_bytes, start.peak_bytes, baseline_name)
    if plan.peak_at_least:
        value |= {"text": f"≥ {value['text']}", "tip": _LOWER_BOUND}
    return value


_LOWER_BOUND = "a lower bound, because the memory that a CPU kernel allocates could not be measured"


def _value(text: str, kind: str, change: float | None, write: Any, baseline_name: str) -> dict[str, Any]:
    value: dict[str, Any] = {"text": text, "kind": kind}
    if change:
        text = f"{'+' if change > 0 else '−'}{write(abs(change))}"
        value |= _delta(text, baseline_name, "bad" if change > 0 else "good")
    return value


def _fusions(plan: Plan, start: Plan, baseline_name: str) -> list[dict[str, Any]]:
    if not plan.census.count:
        return [{"text": "0", "kind": "predicted"}]
    change = plan.census.unique - start.census.unique
    compiled = _count(plan, start, "compilations", baseline_name)
    if plan.counts["compilations"] > plan.census.unique:
        compiled["tip"] = "equal fusions are compiled separately; the setting sharing.identical compiles them once"
    value = _value(f"{plan.census.unique} of {plan.census.count}", "predicted", change, str, baseline_name)
    return [
        value,
        # Leave out the baseline's name: the line has no space for it, and the figure before it has the name.
        {**compiled, "delta_vs": ""},
        {"text": f"{plan.census.largest} ops", "kind": "in the largest"},
    ]


def _copies(plan: Plan, start: Plan, baseline_name: str) -> list[dict[str, Any]]:
    """Return the number of in-place copies, and of the statements that they need: fences and, for nvFuser, sets."""
    names = ("copies", "sets", "fences") if executor_named(plan.executor).copies == "sets" else ("copies", "fences")
    values = [_count(plan, start, name, baseline_name) for name in names]
    return [{**values[0], "kind": f"{names[0]}, predicted"}, *values[1:]]


def _offload_figure(plan: Plan) -> list[dict[str, Any]]:
    """Return the bytes that are offloaded to the CPU, and the predicted time of the copies to the CPU and back."""
    whole = plan.counts["offload_us"]
    return [
        {"text": human_bytes(plan.counts["offloaded_bytes"]), "kind": "predicted"},
        # The time is counted in whole microseconds, so 0 means less than 1 µs.
        {"text": human_seconds(1e-6 * whole) if whole else "< 1 µs", "kind": "to copy"},
    ]


def _count(plan: Plan, start: Plan, name: str, baseline_name: str) -> dict[str, Any]:
    return _value(str(plan.counts[name]), name, plan.counts[name] - start.counts[name], str, baseline_name)


def _proof(plan: Plan) -> list[dict[str, Any]]:
    if plan.proof.fault:
        tip = proof_text(False, (), plan.proof.fault)
        return [{"text": "not proven", "kind": "without choices, it is wrong", "tone": "bad", "tip": tip}]
    if not plan.proof.proven:
        return [{"text": proof_text(False, ()), "kind": "same results"}]
    tip = "\n".join([proof_text(True, plan.proof.rules), *map(str, plan.corrections)])
    kind = "same results, Thunder corrected" if plan.corrections else "same results"
    return [{"text": "proven", "kind": kind, "tone": "good", "tip": tip}]


_REFERENCES = {"thunderfx": "unmodified Thunder", "eager": "eager PyTorch"}
"""References of a check that have another name in the log of a run, by that name."""


def _references(accuracy: Accuracy) -> str:
    return " and ".join(_REFERENCES.get(name, name) for name in accuracy.against.split(" and "))


def _accuracy(run: Run | None, measured: str) -> list[dict[str, Any]]:
    accuracy = None if run is None else run.accuracy
    if accuracy is None:
        return [{"text": "–", "kind": "not checked yet"}]
    against = f"largest error of an output or a gradient, against {_references(accuracy)}"
    worst = {"text": f"{accuracy.max_error:.1e}", "kind": "largest error", "tip": against}
    tone = {"tone": "good" if accuracy.ok else "bad"}
    value = {**_measured("ok" if accuracy.ok else "differs", measured), **tone}
    values = [value, worst, *([_bits(accuracy)] if accuracy.words else [])]
    return [{**one, "earlier": True} for one in values] if measured == _EARLIER else values


def _bits(accuracy: Accuracy) -> dict[str, Any]:
    within = f"within {max(accuracy.relative_tolerance.values(), default=0.0):.0e}"
    if accuracy.why:
        return {"text": "not bitwise", "kind": f"against {_references(accuracy)}", "tip": accuracy.words}
    text = "bitwise" if accuracy.bitwise else within if accuracy.ok else "not bitwise"
    count = len(accuracy.changed_kernels or ())
    same = "as Thunder's" if accuracy.bitwise else "same kernels, some bits differ"
    kind = f"{count} kernel{'s differ' if count > 1 else ' differs'}" if count else same
    return {"text": text, "kind": kind, "tip": accuracy.words}
