"""Part `copies`: run PyTorch's in-place optimizers under each policy for nvFuser's `set` operations and for fences."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from workbench.errors import ChoiceError
from workbench.gpu_check.parts import runs
from workbench.gpu_check.parts.check_part import CheckStep, Conditions, Figures, Known
from workbench.runs.process.request import RunOptions

POLICIES = ("always", "never", "direct_only", "alias_aware")
FENCES = ("keep", "drop")
SETTINGS = {"size": 2048, "parameters": 8}
_FIRST = (("always", "keep"), ("alias_aware", "drop"))
"""Options of the first steps: Thunder's default, and the options with the fewest legal `set` operations and fences."""
_ALIASES = ("return_source", "two_destinations", "swap")
_OPTIONS = RunOptions(samples=20, clocks=False)


def steps(conditions: Conditions) -> Iterator[CheckStep]:
    """Yield steps for Adam and SGD, with sizes at which launches do not dominate.

    The next steps are for programs that return or share the tensors that they write.
    """
    size, parameters = conditions.size((SETTINGS["size"], SETTINGS["parameters"]), (64, 2))
    programs = conditions.size(("torch_adam", "torch_sgd"), ("torch_sgd",))
    for program in programs:
        for fences in FENCES:
            for policy in POLICIES:
                act = functools.partial(_optimizer, conditions, program, policy, fences, size, parameters)
                first = program == programs[0] and (policy, fences) in _FIRST
                yield CheckStep(f"{program}, {policy}, fences {fences}", act, first=first)
    for program in _ALIASES:
        for policy in POLICIES:
            yield CheckStep(f"{program}, {policy}", functools.partial(_aliases, conditions, program, policy))


def _choices(policy: str, fences: str) -> dict[str, str]:
    return {"copies.policy": policy, "copies.fences": fences}


def _optimizer(
    conditions: Conditions, program: str, policy: str, fences: str, size: int, parameters: int, results: Known
) -> Figures:
    choices = _choices(policy, fences)
    planned = runs.open_planned(conditions, program, choices, size=size, parameters=parameters)
    counts = planned.plan.counts if planned is not None else {}
    figures = {
        "fusions": planned.plan.census.count if planned is not None else None,
        "sets": counts.get("sets"),
        "fences": counts.get("fences"),
    }
    same = {"compile_s": None, "step_s": None, "bitwise": None}
    if conditions.rehearse:
        # Code for a CPU has no `set` operations, so all policies run the same code, and one run is enough.
        if results:
            return {**figures, **same}
        bench = runs.open_program(conditions, program, size=size, parameters=parameters)
    else:
        assert planned is not None, "only a rehearsal may lack a plan"
        bench = planned
    run = runs.run_to_end(bench, _OPTIONS)
    accuracy = run.accuracy
    return {
        **figures,
        "compile_s": run.compile_s,
        "step_s": run.step_s,
        "bitwise": accuracy.bitwise if accuracy is not None else None,
        **runs.fault_of(run),
    }


def _aliases(conditions: Conditions, program: str, policy: str, _: Known) -> Figures:
    """Check programs that return written values or read them again: a missing set would change these values."""
    try:
        bench = runs.open_planned(conditions, program, _choices(policy, "drop"))
    except ChoiceError as error:
        return {"refused": str(error), "step_s": None, "bitwise": None}
    if conditions.rehearse:
        # Code for a CPU has no `set` operations, so a run would check nothing.
        return {"refused": "", "step_s": None, "bitwise": None}
    assert bench is not None, "only a rehearsal may lack a plan"
    run = runs.run_to_end(bench, _OPTIONS)
    accuracy = run.accuracy
    return {
        "refused": "",
        "step_s": run.step_s,
        "bitwise": accuracy.bitwise if accuracy is not None else None,
        **runs.fault_of(run),
    }
