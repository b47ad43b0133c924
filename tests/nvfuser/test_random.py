"""Random programs and choices, planned for nvFuser: plans validate, definitions build, replays give what eager does.

What is planned is a GPU that is not there: the plan's statements run with PyTorch on the CPU, a fusion statement by
statement, with a copy reading before anything is written.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, assume, event, given, settings
from hypothesis import strategies as st

from tests.amount import amount
from tests.levers import proof
from tests.nvfuser import replays
from tests.strategies import RandomProgram, choice_sets, programs

FULL = settings.default.max_examples > 100
SETS_PER_PROGRAM = 4 if FULL else 2
MANY = settings(
    max_examples=amount(3, 6, 150),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
pytestmark = [pytest.mark.slow, pytest.mark.drawn, pytest.mark.timeout(36000 if FULL else 900)]


def check(program: RandomProgram, data: st.DataObject) -> None:
    # Eager adds gradients up in an order of its own, which shows in bfloat16.
    assume("bfloat16" not in repr(program))
    # Of a tensor given twice eager has one gradient, and a replay one for each name.
    assume("the last is the first" not in repr(program))
    # An input that is given back is no part of the graph that Dynamo finds, and so of no replay.
    assume(not any(input.name in program.returned for input in program.inputs))
    try:
        known = proof.reference(program.build, program.build_eager)
    except proof.Unusable:
        assume(False)
    # What unmodified Thunder gets wrong is no measure.
    assume(not known.exhibit)
    function, args, _ = program.build()
    eager = replays.eager(function, *args)
    function, args, _ = program.build()
    bench = replays.planned(function, *args)
    replays.holds(bench, eager)
    before = proof.state(bench)
    for _ in range(SETS_PER_PROGRAM):
        accepted = proof.chosen(bench, data.draw(choice_sets(bench.sites())))
        event("taken" if accepted and bench.choices else "nothing changed" if accepted else "refused")
        if accepted and bench.choices:
            replays.holds(bench, eager)
            proof.undoes(bench, before)


@MANY
@given(programs(), st.data())
def test_every_legal_choice_for_pure_programs_is_right(program: RandomProgram, data: st.DataObject) -> None:
    check(program, data)


@MANY
@given(programs(writes=True), st.data())
def test_every_legal_choice_for_programs_that_write_is_right(program: RandomProgram, data: st.DataObject) -> None:
    check(program, data)
