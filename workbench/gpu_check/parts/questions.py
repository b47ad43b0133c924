"""The queue of questions for a short slot on a GPU, the most valuable first. Each step has at most 90 seconds.

``thunder-workbench gpu-check --slot MINUTES`` asks these questions. A question has one or more steps, whose names begin
with the number of the question. If ``benchmarks/results`` has the answer of a step for this machine, the step is not
executed again.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import itertools
import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from workbench.bench import Workbench
from workbench.errors import RunError
from workbench.gpu_check.parts import (
    choices,
    depth,
    large_layers,
    launches,
    main_job,
    marked_tests,
    optimizers,
    real_models,
    runs,
    training,
)
from workbench.gpu_check.parts.check_part import WRONG, CheckStep, Conditions, Figures, Known
from workbench.gpu_check.parts.large_layers import LLAMA_7B
from workbench.gpu_check.parts.part_list import CARD_BYTES as CARD_BYTES
from workbench.gpu_check.parts.part_list import RESULTS
from workbench.runs.measure.memory_snapshot import SNAPSHOT_FILE

_SMALL_S = 45.0
"""Limit of a step with a small program. Such a step takes a few seconds."""
_MOST_OFF_SHARE, _MOST_RESERVED_OFF_SHARE = 0.01, 0.02
_LEAST_HIDDEN_SHARE = 0.8
_STEP_NOISE_SHARE = 0.02
"""Steps that differ by less than this share count as equal."""
EVENTS_FOLDER = "allocator_events"
PREDICTIONS, CHOICES = RESULTS / "gpu_predictions.csv", RESULTS / "gpu_choices.json"
"""Files with predictions and their choices, which ``benchmarks.gpu.predictions`` wrote before any measurement. Only a
checkout has these files.
"""
EVERY_GPU = ""
"""Value of the column ``machine`` for predictions that hold on each GPU of the planned kind."""
BUDGETS = (0.9, 0.7, 0.5)
"""Settings of PyTorch's `activation_memory_budget` in question 3."""

LONG_TOKENS = 16384
SUBJECTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "mlp": ("mlp", {}),
    **{
        f"residual_chain, {layers} layers": ("residual_chain", {"layers": layers, "grad": True})
        for layers in (1, 2, 3, 4)
    },
    "llama": ("llama", {}),
    **{
        f"7B shapes, {layers} layer{'s' * (layers > 1)}, 4096 tokens": (
            "llama",
            {"layers": layers, "sequence": 4096, **LLAMA_7B},
        )
        for layers in (1, 2)
    },
    "GPT-2, 2 layers": (real_models.named("gpt2"), {}),
    "ResNet-18": (real_models.named("resnet18"), {}),
}
"""Programs of question 1: a name or file for `workbench.open`, and settings."""
_RESERVED_SUBJECTS = ("GPT-2, 2 layers", "7B shapes, 1 layer, 4096 tokens", "ResNet-18")
_REHEARSED_SUBJECT = "mlp"
_REHEARSED_STEPS = 1


def steps(conditions: Conditions) -> Iterator[CheckStep]:
    """Yield the steps of all questions. A rehearsal has the first step of each question, on the CPU."""
    for number, make in _STEPS.items():
        found: Iterable[CheckStep] = make(conditions)
        if conditions.rehearse:
            found = itertools.islice(found, _REHEARSED_STEPS)
        for step in found:
            id = f"{number}: {step.id}"
            yield CheckStep(id, functools.partial(_of_question, conditions, id, step.act), limit_s=step.limit_s)


def _of_question(conditions: Conditions, id: str, act: Callable[[Known], Figures], known: Known) -> Figures:
    """Carry out a step of a question. Return its figures and the predictions for them.

    The step receives only the earlier results of its own question. The names of the results lose the question's number,
    because the steps of a part name each other without this number.
    """
    number = id.partition(": ")[0]
    mine = {name.partition(": ")[2]: its for name, its in known.items() if name.startswith(f"{number}: ")}
    figures = act(mine)
    return figures if conditions.rehearse else beside_written(id, figures, conditions.machine)


def written(question: int, machine: str) -> dict[str, dict[str, float]]:
    """Map each subject to the figures that were predicted for a machine before any measurement.

    The result is empty without a checkout, or if nothing was predicted for this machine.
    """
    found: dict[str, dict[str, float]] = {}
    for row in _rows(machine):
        if row["question"] == str(question):
            found.setdefault(row["subject"], {})[row["figure"]] = float(row["predicted"])
    return found


def _rows(machine: str) -> list[dict[str, str]]:
    if not PREDICTIONS.exists():
        return []
    with PREDICTIONS.open() as file:
        return [row for row in csv.DictReader(file) if row["machine"] in (EVERY_GPU, machine)]


def written_choices(question: int, machine: str) -> dict[str, dict[str, str]]:
    """Map each subject to the choices that belong to predictions for a machine; empty without a checkout."""
    found: dict[str, dict[str, dict[str, dict[str, str]]]] = json.loads(CHOICES.read_text()) if CHOICES.exists() else {}
    return found.get(str(question), {}).get(machine, {})


def beside_written(step: str, figures: Figures, machine: str) -> Figures:
    """Return a step's figures and its predictions; also the faults, such as a peak that differs from its prediction."""
    before = {row["figure"]: float(row["predicted"]) for row in _rows(machine) if row["step"] == step}
    found = {**figures, **{f"written {name}": value for name, value in before.items()}}
    faults = [figures.get(WRONG, "")]
    peak_bytes, measured = before.get("peak_bytes"), figures.get("measured_peak_bytes")
    if peak_bytes and measured and abs(peak_bytes / measured - 1) > _MOST_OFF_SHARE:
        faults.append(f"the written peak is {peak_bytes / measured - 1:+.1%} off, {_MOST_OFF_SHARE:.0%} allowed")
    hidden = figures.get("hidden_share")
    if before.get("hidden_share") == 1 and hidden is not None and hidden < _LEAST_HIDDEN_SHARE:
        faults.append(f"{hidden:.0%} of the transfers are hidden, all predicted, {_LEAST_HIDDEN_SHARE:.0%} wanted")
    return {**found, **({WRONG: "; ".join(filter(None, faults))} if any(faults) else {})}


def _peaks(conditions: Conditions) -> Iterator[CheckStep]:
    for subject in conditions.size(tuple(SUBJECTS), (_REHEARSED_SUBJECT,)):
        limit_s = None if "7B" in subject else _SMALL_S
        yield CheckStep(subject, functools.partial(_peak, conditions, subject), limit_s=limit_s)


def _peak(conditions: Conditions, subject: str, _: Known) -> Figures:
    program, settings = SUBJECTS[subject]
    return large_layers.run_bench(runs.open_program(conditions, program, **settings), most_off_share=_MOST_OFF_SHARE)


def _beyond_the_card(conditions: Conditions) -> Iterator[CheckStep]:
    if conditions.rehearse:
        yield CheckStep("a stack, recomputed", functools.partial(_chosen, conditions, 2, "", 1, {}))
        return
    if PREDICTIONS.exists() and not written(2, conditions.machine):
        yield CheckStep("predictions", functools.partial(_miss_predictions, 2))
    for subject, figures in written(2, conditions.machine).items():
        if "peak_bytes" in figures:
            layers = int(subject.split(", ")[2].split()[0])
            if "without choices" in subject:
                act = functools.partial(_too_deep, conditions, layers)
            else:
                act = functools.partial(_chosen, conditions, 2, subject, layers, None)
            yield CheckStep(subject, act)
            if subject in written_choices(2, conditions.machine):
                plain = functools.partial(_train, conditions, subject, layers)
                yield CheckStep(f"{subject}, in plain Python", plain)


def _miss_predictions(question: int, _: Known) -> Figures:
    raise RunError(
        f"question {question} compares this GPU with predictions, and none are written down for it: in a checkout, run "
        f"`python -m benchmarks.gpu.predictions --machine NAME {question}` with the GPU's name; legal: "
        f"{', '.join(CARD_BYTES)}"
    )


def _long(conditions: Conditions, layers: int, made: Mapping[str, str] | None = None) -> Workbench:
    if conditions.rehearse:
        return runs.open_program(conditions, "mlp", made, layers=layers)
    return runs.open_program(conditions, "llama", made, layers=layers, sequence=LONG_TOKENS, **LLAMA_7B)


def _too_deep(conditions: Conditions, layers: int, _: Known) -> Figures:
    """Run more layers than fit in memory according to the predictions. The step is right only if memory runs out."""
    bench = _long(conditions, layers)
    run = runs.finish_run(bench, runs.QUICK)
    fault = ""
    if run.state == "done":
        fault = "it was predicted not to fit, but it trains"
    elif "out of memory" not in (run.error or ""):
        fault = f"it failed for another reason than memory: {run.error}"
    return {
        "predicted_peak_bytes": bench.plan.peak_bytes,
        "trains": run.state == "done",
        "reason": run.error or "",
        **({WRONG: fault} if fault else {}),
    }


def _chosen(
    conditions: Conditions, question: int, subject: str, layers: int, made: Mapping[str, str] | None, _: Known
) -> Figures:
    """Run a stack of layers under the choices that are stored with the predictions for this stack."""
    if made is None:
        made = _choices_of(conditions, question, subject, None if "fit" in subject or question == 3 else {})
    return large_layers.run_bench(_long(conditions, layers, made), most_off_share=_MOST_OFF_SHARE)


def _choices_of(
    conditions: Conditions, question: int, subject: str, default: Mapping[str, str] | None = None
) -> Mapping[str, str]:
    made = written_choices(question, conditions.machine).get(subject, default)
    if made is None:
        raise RunError(
            f"no choices are written down for {subject}: run "
            f"`python -m benchmarks.gpu.predictions --machine {conditions.machine} {question}`"
        )
    return made


def _train(conditions: Conditions, subject: str, layers: int, _: Known) -> Figures:
    """Export the choices of a stack of layers, and train the model under this config in plain Python."""
    bench = _long(conditions, layers, _choices_of(conditions, 2, subject))
    config = bench.export(conditions.folder / "train.choices.py", overwrite=True)
    return training.train(config, bench.program.build, bench.plan.peak_bytes, _MOST_OFF_SHARE)


def _curve(conditions: Conditions) -> Iterator[CheckStep]:
    if conditions.rehearse:
        yield CheckStep("a point", functools.partial(_chosen, conditions, 3, "", 1, {}))
        return
    points = written(3, conditions.machine)
    if PREDICTIONS.exists() and not points:
        yield CheckStep("predictions", functools.partial(_miss_predictions, 3))
    for subject in points:
        yield CheckStep(subject, functools.partial(_chosen, conditions, 3, subject, 2, None))
    for budget in BUDGETS:
        yield CheckStep(
            f"PyTorch's activation_memory_budget {budget:g}", functools.partial(_budget, conditions, budget)
        )


def _budget(conditions: Conditions, budget: float, known: Known) -> Figures:
    """Run the program of the curve under torch.compile with a budget. The step is wrong if it beats one of our points.

    The run beats a point if its peak is lower, and its step is shorter by more than noise. Points that another of our
    points beats do not count.
    """
    build = _long(conditions, conditions.size(2, 1)).program.build
    figures = training.run_with_budget(budget, build)
    points = {name: ours for name, ours in known.items() if "point" in name and ours.get("measured_peak_bytes")}
    best = {name: ours for name, ours in points.items() if not any(_beats(other, ours) for other in points.values())}
    beaten = [name for name, ours in best.items() if _beats(figures, ours)]
    return {**figures, **({WRONG: f"lower peak and shorter step than {'; '.join(beaten)}"} if beaten else {})}


def _beats(one: Figures, other: Figures) -> bool:
    lower = one["measured_peak_bytes"] < other["measured_peak_bytes"]
    return bool(lower and one["step_s"] < (1 - _STEP_NOISE_SHARE) * other["step_s"])


def _depths(conditions: Conditions) -> Iterator[CheckStep]:
    found = {step.id: step for step in depth.steps(conditions)}
    for layers in conditions.size((8, 32, 64, 128), (8,)):
        for policy in conditions.size(tuple(depth.POLICIES), ("stock",)):
            yield found[f"{layers} layers, {policy}"]
    yield from (step for id, step in found.items() if id.startswith("exponent"))


def _sets(conditions: Conditions) -> Iterator[CheckStep]:
    return (step for step in optimizers.steps(conditions) if step.id.startswith(conditions.size("torch_adam", "torch")))


def _launches(conditions: Conditions) -> Iterator[CheckStep]:
    """Yield the ranking first, because its answer takes seconds."""
    return iter(sorted(launches.steps(conditions), key=lambda step: step.id != launches.RANKING))


def _offload(conditions: Conditions) -> Iterator[CheckStep]:
    for step in large_layers.steps(conditions):
        if "offloaded" in step.id:
            yield step


def _all_right(conditions: Conditions) -> Iterator[CheckStep]:
    for step in choices.steps(conditions):
        yield CheckStep(step.id, step.act, limit_s=_SMALL_S)


def _reserved(conditions: Conditions) -> Iterator[CheckStep]:
    for subject in conditions.size(_RESERVED_SUBJECTS, (_REHEARSED_SUBJECT,)):
        yield CheckStep(subject, functools.partial(_events, conditions, subject))


def _events(conditions: Conditions, subject: str, _: Known) -> Figures:
    """Run with a snapshot of the allocator; store the snapshot's events in the check's folder."""
    program, settings = SUBJECTS[subject]
    bench = runs.open_program(conditions, program, **settings)
    run = runs.run_to_end(bench, dataclasses.replace(runs.QUICK, memory_snapshot=True))
    events = allocator_events(pickle.loads((run.run_dir / SNAPSHOT_FILE).read_bytes()))  # written by our own run
    path = conditions.folder / EVENTS_FOLDER / f"{subject}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(events, separators=(",", ":")) + "\n")
    reserved, measured = bench.plan.reserved, run.memory["reserved_bytes"]
    off = reserved.reserved_bytes / measured - 1 if reserved is not None and measured else None
    wrong = off is not None and abs(off) > _MOST_RESERVED_OFF_SHARE
    return {
        **runs.memory_of(run),
        "predicted_reserved_bytes": reserved.reserved_bytes if reserved is not None else None,
        "reserved_bytes": measured,
        "off_reserved_share": off,
        "predicted_fragmented_bytes": reserved.fragmented_bytes if reserved is not None else None,
        "fragmented_bytes": run.memory["fragmented_bytes"],
        "events": len(events),
        **(
            {WRONG: f"predicted reserved memory is {off:+.1%} off, {_MOST_RESERVED_OFF_SHARE:.0%} allowed"}
            if wrong
            else {}
        ),
    }


def allocator_events(snapshot: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    """Return the action, bytes and stream of each event of a memory snapshot."""
    return [
        (str(event["action"]), int(event["size"]), int(event.get("stream", 0)))
        for trace in snapshot["device_traces"]
        for event in trace
    ]


def _tests(conditions: Conditions) -> Iterator[CheckStep]:
    yield from (step for step in main_job.steps(conditions) if step.id in ("cancel", "run, float32"))
    if not conditions.rehearse:
        yield CheckStep("tests marked gpu", lambda _: marked_tests.run_all())


_STEPS: Mapping[int, Callable[[Conditions], Iterator[CheckStep]]] = {
    1: _peaks,
    2: _beyond_the_card,
    3: _curve,
    4: _depths,
    5: _sets,
    6: _launches,
    7: _offload,
    8: _all_right,
    9: _reserved,
    10: _tests,
}
