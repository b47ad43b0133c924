"""For random programs and some built-in programs, random choices of legal options give right results.

Each set of choices is written to a file, read back and run as `workbench.load(...).jit(fn)`. Outputs, gradients and
in-place writes must equal the results of eager PyTorch, and of unmodified Thunder with the same random seed. If
unmodified Thunder differs from eager PyTorch, the results are not compared; `test_reference_results.py` has such
programs. `fuzz.py` runs far more cases, and compares results bitwise if the kernels are the same.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, event, given, settings
from hypothesis import strategies as st

import workbench
from tests.levers import proof
from tests.strategies import RandomProgram, choice_sets, programs
from tests.trial_counts import amount, combined
from workbench.bench import Workbench
from workbench.programs import resolve

FULL = settings.default.max_examples > 100
MANY = settings(
    max_examples=amount(2, 3, 150),
    # Do not shrink failing programs: shrinking would run Thunder hundreds of times, and the programs are short anyway.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
        # A fixture runs once for all examples. This is right here, because no fixture depends on the example.
        HealthCheck.function_scoped_fixture,
    ],
)
SETS_PER_PROGRAM = 4 if FULL else 2
"""Number of sets of choices for each random program.

The full run tests 150 programs in each of the first four tests, and 1,120 sets of choices in the other tests.
"""
pytestmark = [pytest.mark.slow, pytest.mark.drawn, pytest.mark.timeout(36000 if FULL else 1800)]


def opened(program: RandomProgram, executor: str) -> Workbench:
    function, args, kwargs = program.build()
    return workbench.open(function, *args, executor=executor, **kwargs)


def check_program(program: RandomProgram, executor: str, data: st.DataObject) -> None:
    try:
        known = proof.reference(program.build, program.build_eager)
    except proof.Unusable:
        assume(False)
    event("exhibit" if known.exhibit else "comparable")
    bench = opened(program, executor)
    proof.holds(bench, program.build, known)
    proof.refuses_what_is_illegal(bench)
    before = proof.state(bench)
    for _ in range(SETS_PER_PROGRAM):
        choices = data.draw(choice_sets(bench.sites()))
        accepted = proof.chosen(bench, choices)
        event(f"{executor}: {'taken' if accepted and bench.choices else 'nothing changed' if accepted else 'refused'}")
        if accepted and bench.choices:
            proof.holds(bench, program.build, known)
            proof.undoes(bench, before)
    # After undo, the bench has the state of a new bench.
    assert proof.state(opened(program, executor)) == before


@MANY
@given(programs(), st.data())
def test_random_legal_choices_for_pure_programs_are_right(program: RandomProgram, data: st.DataObject) -> None:
    check_program(program, "torch", data)


@MANY
@given(programs(), st.data())
@pytest.mark.usefixtures("no_compiler")
def test_random_legal_choices_for_pure_programs_are_right_with_torchcompile(
    program: RandomProgram, data: st.DataObject
) -> None:
    check_program(program, "torchcompile", data)


@MANY
@given(programs(random=True, writes=True), st.data())
def test_random_legal_choices_for_programs_that_write_and_draw_are_right(
    program: RandomProgram, data: st.DataObject
) -> None:
    check_program(program, "torch", data)


@MANY
@given(programs(random=True, writes=True), st.data())
@pytest.mark.usefixtures("no_compiler")
def test_random_legal_choices_for_programs_that_write_and_draw_are_right_with_torchcompile(
    program: RandomProgram, data: st.DataObject
) -> None:
    check_program(program, "torchcompile", data)


BUILTIN: dict[str, dict[str, Any]] = {
    "mlp": {"layers": 2},
    "residual_chain": {"layers": 3, "grad": True},
    "batch_norm": {"channels": 4, "batch": 4, "size": 4},
    "dropout_mlp": {"width": 16, "batch": 8},
    "llama": {"layers": 1, "dim": 16, "vocab": 32, "sequence": 8},
}
RANDOM = {"dropout_mlp"}


@functools.cache
def builtin(name: str, executor: str) -> tuple[Workbench, proof.Reference]:
    bench = workbench.open(name, device="cpu", executor=executor, settings=BUILTIN[name])
    return bench, known_of(name)


@functools.cache
def known_of(name: str) -> proof.Reference:
    """Return the reference results of a built-in program. They do not depend on the bench's executor."""
    build = resolve(name, device="cpu", settings=BUILTIN[name]).build
    return proof.reference(build, None if name in RANDOM else build)


@pytest.mark.parametrize(("name", "executor"), combined(BUILTIN, ["torch", "torchcompile"], few=4))
@pytest.mark.usefixtures("no_compiler")
def test_random_legal_choices_for_a_builtin_program_are_right(name: str, executor: str) -> None:
    bench, known = builtin(name, executor)
    assert not known.exhibit
    proof.refuses_what_is_illegal(bench)

    @settings(MANY, max_examples=amount(2, 3, 100))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        before = proof.state(bench)
        if proof.chosen(bench, data.draw(choice_sets(bench.sites()))) and bench.choices:
            proof.holds(bench, bench.program.build, known)
            proof.undoes(bench, before)
        assert proof.state(bench) == before

    check()


@pytest.mark.long
@pytest.mark.parametrize("name", ["mlp", *(["residual_chain", "llama"] if FULL else [])])
def test_random_legal_choices_are_right_with_compiled_regions(name: str) -> None:
    bench, known = builtin(name, "torchcompile")

    @settings(MANY, max_examples=40 if FULL else 2)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        before = proof.state(bench)
        if proof.chosen(bench, data.draw(choice_sets(bench.sites()))) and bench.choices:
            proof.holds(bench, bench.program.build, known)
            proof.undoes(bench, before)

    check()
