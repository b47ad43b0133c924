"""Plans are proven to compute the results of the stock plan. Other plans are refused with a line of the user's source.

Faults of the stock plan itself, and pending proofs, are shown.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import thunder
import torch
from thunder.executors.torch_compile import torch_compile_ex

import workbench
from workbench.analysis.equivalence.prove import prove
from workbench.bench import Workbench
from workbench.compiler.api import proofs_of
from workbench.compiler.interop.thunder_api import TraceCtx, from_trace
from workbench.compiler.memory.graph_builder import read_execution
from workbench.compiler.pipeline.lever_context import LeverContext
from workbench.compiler.planner.planner import replan
from workbench.core.executor import why_no_nvfuser
from workbench.errors import PlanError
from workbench.levers.saved import Saved
from workbench.summary import proof_text
from workbench.ui.controls.figure_strip import Baseline, figures


def step(a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    hidden = torch.tanh(a - w)
    return hidden * w


@pytest.fixture
def bench() -> Workbench:
    arguments = (torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True))
    return workbench.open(step, *arguments, executor="torch")


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a lever wrong: under choices, it swaps the arguments of each `sub`."""
    right = Saved.before_fusion

    def swapped(self: Saved, trace: TraceCtx, choices: Mapping[str, str], context: LeverContext) -> TraceCtx:
        edited = from_trace(right(self, trace, choices, context))
        edited.bound_symbols = [
            bsym.from_bsym(args=bsym.args[::-1]) if choices and bsym.sym.name == "sub" else bsym
            for bsym in right(self, trace, choices, context).bound_symbols
        ]
        return edited

    monkeypatch.setattr(Saved, "before_fusion", swapped)


def recompute(bench: Workbench) -> dict[str, str]:
    return {site.id: "recompute" for site in bench.sites("saved") if "recompute" in site.options}


def test_every_plan_reports_that_it_is_proven_and_by_which_rules(bench: Workbench) -> None:
    assert bench.plan.proof.proven
    bench.choose(dict.fromkeys(recompute(bench), "offload"))
    document: dict[str, Any] = bench.plan.to_json()
    assert document["proven"] is True
    assert document["rules"] == ["offload"]
    assert "proven equal to the stock plan, by the rule: offload" in repr(bench)


def test_the_compilation_of_a_config_is_proven_before_it_runs(bench: Workbench) -> None:
    bench.choose(dict.fromkeys(recompute(bench), "offload"))
    jitted = bench.config.jit(step)
    assert proofs_of(jitted) == ()
    jitted(*(torch.randn(4, 4, requires_grad=True) for _ in range(2))).sum().backward()
    assert [(proof.proven, proof.rules) for proof in proofs_of(jitted)] == [(True, ("offload",))]
    assert proofs_of(step) == ()


def test_a_wrong_compilation_of_a_config_is_refused_before_it_runs(
    bench: Workbench, request: pytest.FixtureRequest
) -> None:
    bench.choose(recompute(bench))
    config = bench.config
    request.getfixturevalue("wrong")
    with pytest.raises(PlanError, match=r"hidden = torch\.tanh\(a - w\): torch\.sub reads"):
        config.jit(step)(*(torch.randn(4, 4, requires_grad=True) for _ in range(2)))


@pytest.mark.usefixtures("wrong")
def test_a_plan_with_another_result_is_refused_and_nothing_changes(bench: Workbench) -> None:
    before = bench.plan
    line = r"test_proof_of_plans\.py:\d+  hidden = torch\.tanh\(a - w\)"
    with pytest.raises(PlanError, match=rf"{line}: torch.sub reads w, but the stock plan reads a\."):
        bench.choose(recompute(bench))
    assert bench.choices == {}
    assert bench.plan is before


def lose_an_update(a: torch.Tensor, b: torch.Tensor) -> None:
    a.view(-1).add_(b.view(-1))


def test_an_update_that_thunder_loses_is_found_by_the_proof() -> None:
    arguments = (torch.randn(4, 4), torch.randn(4, 4))
    bench = workbench.open(lose_an_update, *arguments, executor="torchcompile")
    thunders = thunder.jit(lose_an_update, executors=[torch_compile_ex], skip_inplace_alias_updates=True)
    thunders(*arguments)
    (executed,) = thunder.last_traces(thunders)[-1:]
    proof = prove(bench.plan.graph, read_execution(executed, None, bench._captured.context))
    assert not proof.proven
    assert "a.view(-1).add_(b.view(-1))" in proof.source
    assert "writes in place in the stock plan, but no statement of this plan does" in proof.difference


@pytest.mark.slow
def test_a_batch_norm_and_an_optimizer_give_no_warning() -> None:
    for name, settings in (("batch_norm", {"channels": 2, "batch": 2, "size": 2}), ("adam", {})):
        assert workbench.open(name, device="cpu", executor="torch", settings=settings).plan.warnings == ()


@pytest.mark.parametrize(
    "view",
    [
        lambda b: b.expand(4, 4),
        lambda b: b.reshape(2, 2)[1].repeat_interleave(2).expand(4, 4),
        lambda b: b.reshape(2, 2).t().contiguous().reshape(-1).expand(4, 4),
    ],
)
def test_moved_elements_are_equal_inside_and_outside_an_nvfuser_fusion(view: Any) -> None:
    if reason := why_no_nvfuser():
        pytest.skip(reason)

    def program(a: torch.Tensor, b: torch.Tensor) -> None:
        a.copy_(view(b))

    arguments = torch.ones(4, 4), torch.ones(4)
    bench = workbench.open(program, *arguments, device="planned", executor="nvfuser", capture="interpreter")
    bench.choose({"copies.fences": "drop"})
    assert "moved elements" in bench.plan.proof.rules


def late(x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    y = torch.sin(x) * state.sum()
    state.view(-1).mul_(0.5)
    return y


def hidden(x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    y = torch.tanh(x) * 1.0
    y[0].copy_(state[0])
    return y


# Only capture by the interpreter has this fault. With Dynamo, a write through a view reaches all aliases, also aliases
# that the caller holds.
@pytest.mark.parametrize("program", [late, hidden])
def test_a_write_that_thunder_moves_to_the_backward_is_a_fault_under_all_choices(program: Any) -> None:
    def arguments() -> tuple[torch.Tensor, torch.Tensor]:
        return torch.full((4, 4), 2.0, requires_grad=True), torch.full((4, 4), 3.0)

    bench = workbench.open(program, *arguments(), device="cpu", executor="torch", capture="interpreter")
    warnings = bench.plan.warnings
    (warned,) = (warning for warning in warnings if "under any choices" in warning)
    assert bench.plan.to_json()["proven"] is False
    assert "which differs from Thunder's trace" in repr(bench)
    # Under choices, the plan is not shown as proven either. Its fault is the same, because choices did not cause it.
    legal = [site.id for site in bench.sites("saved") if "offload" in site.options and "offload" not in site.illegal]
    bench.choose({legal[0]: "offload"})
    assert (bench.plan.proof.proven, bench.plan.proof.fault) == (False, bench.stock_plan.proof.fault)
    assert bench.plan.warnings == warnings
    assert warned in warnings
    given, expected = arguments(), arguments()
    jitted = bench.config.jit(program)
    found, known = jitted(*given), program(*expected)
    assert not (torch.equal(found, known) and torch.equal(given[1], expected[1]))
    assert [proof.proven for proof in proofs_of(jitted)] == [False]


@pytest.mark.slow
@pytest.mark.parametrize("program", [late, hidden])
def test_with_dynamo_the_write_stays_in_the_forward_under_all_choices(program: Any) -> None:
    def arguments() -> tuple[torch.Tensor, torch.Tensor]:
        return torch.rand(4, 4).requires_grad_(), torch.rand(4, 4)

    given = arguments()
    bench = workbench.open(program, *given, device="cpu", executor="torch", capture="dynamo")
    sites = bench.sites("saved")
    assert sites
    for site in sites:
        for option in (option for option in site.options if option not in site.illegal):
            bench.choose({site.id: option})
            assert bench.plan.proof.proven
            given, expected = ([t.detach().clone().requires_grad_(t.requires_grad) for t in given] for _ in range(2))
            found, known = bench.config.jit(program)(*given), program(*expected)
            assert torch.equal(found, known)
            assert torch.equal(given[1], expected[1])
            bench.undo()


@pytest.mark.parametrize("program", [late, hidden])
def test_with_regions_the_write_stays_in_the_forward(program: Any) -> None:
    arguments = torch.ones(4, 4, requires_grad=True), torch.ones(4, 4)
    bench = workbench.open(program, *arguments, device="cpu", executor="torchcompile")
    assert bench.plan.proof.proven
    assert not [warning for warning in bench.plan.warnings if "under any choices" in warning]


def test_only_the_prover_makes_a_proof() -> None:
    makers = set()
    for path in sorted(Path(workbench.__file__).parent.rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "Proof" in text or "proven" in text else ():
            if isinstance(node, ast.Call) and (
                (isinstance(node.func, ast.Name) and node.func.id == "Proof" and node.args + node.keywords)
                or any(keyword.arg == "proven" for keyword in node.keywords)
            ):
                makers.add((path.name, ast.unparse(node)))
    assert {name for name, _ in makers} == {"prove.py", "plan.py", "worker.py"}, makers
    # `plan.py` makes the value for a pending proof. `worker.py` reports the proofs of `jit` in an event.
    assert [text for name, text in makers if name == "plan.py"] == ["Proof(False)"]
    assert all("proof.proven for proof in proofs" in text for name, text in makers if name == "worker.py")


def test_a_pending_proof_is_shown_as_pending_everywhere(bench: Workbench) -> None:
    made, _ = replan(bench._captured, dict.fromkeys(recompute(bench), "offload"))
    assert not made.proof.proven
    assert "not proven yet" in repr(made)
    document = made.to_json()
    assert (document["proven"], document["rules"], document["fault"]) == (False, [], "")
    assert proof_text(document["proven"], document["rules"], document["fault"]) == "not proven yet"
    shown = figures(made, None, Baseline("stock", bench.stock_plan), same_choices=True)
    (accuracy,) = (figure for figure in shown if figure["key"] == "accuracy")
    assert [value["text"] for value in accuracy["values"] if value.get("kind") == "same results"] == ["not proven yet"]
    proven = bench.plan_under(dict.fromkeys(recompute(bench), "offload"))
    assert proven.proof.proven
    assert "not proven" not in repr(proven)


def test_a_fault_of_the_stock_plan_is_in_documents_and_texts() -> None:
    given = torch.full((4, 4), 2.0, requires_grad=True), torch.full((4, 4), 3.0)
    bench = workbench.open(late, *given, device="cpu", executor="torch", capture="interpreter")
    document = bench.plan.to_json()
    assert not document["proven"]
    assert document["fault"] == bench.plan.proof.fault
    assert "which differs from Thunder's trace" in proof_text(False, document["rules"], document["fault"])
