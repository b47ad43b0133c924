"""For random choices, incremental liveness gives the same memory as a prediction that visits every statement."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import workbench
from workbench.analysis.memory.incremental_liveness import IncrementalLiveness
from workbench.analysis.memory.peak_by_statement import OFFLOAD, RECOMPUTE, JointGraphMemory, PeakPositions


def views(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = x @ w + x
    kept = (y * 2).reshape(16, 256)
    return (kept @ w.repeat(16, 1)).sum() + (kept.exp() * kept.t().reshape(16, 256).tanh()).sum() + y.detach().sum()


def shared(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.sin(x @ w)
    z = torch.nn.functional.silu(y @ w.t()) * y
    return z.exp().sum(), (z.t() @ y).tanh()


def written(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = torch.exp(x @ w)
    y = y.add_(1.0)
    return (torch.sin(y) * torch.tanh(x)).sum()


PROGRAMS: dict[str, Callable[[], workbench.Workbench]] = {
    program.__name__: lambda program=program: workbench.open(  # type: ignore[misc]
        program,
        torch.randn(256, 16, requires_grad=True),
        torch.randn(16, 16, requires_grad=True),
        device="cpu",
        executor="torch",
        capture="interpreter",
    )
    for program in (views, shared, written)
} | {
    name: lambda name=name, more=more: workbench.open(name, device="planned", executor="torch", **more)  # type: ignore[misc]
    for name, more in (("mlp", {"layers": 2}), ("llama", {"layers": 1}), ("fsdp_llama", {"layers": 1, "ranks": 2}))
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "program", [pytest.param(name, marks=[pytest.mark.slow] * (name == "fsdp_llama")) for name in PROGRAMS]
)
@pytest.mark.parametrize("along", [True, False], ids=["along", "saved"])
def test_incremental_liveness_agrees_with_the_whole_schedule(program: str, along: bool) -> None:
    context = PROGRAMS[program]()._captured.context
    work, graph = context.recomputer, context.graph
    places = PeakPositions(work, context.predictor)
    exactly = JointGraphMemory(work, context.predictor, places, {}, along=along, gather=context.gathers_again, ahead=3)
    free = {
        storage: [
            o for o, why in ((RECOMPUTE, work.why_no_recompute), (OFFLOAD, work.why_no_offload)) if not why(storage)
        ]
        for storage in work.storages().tolist()
    }
    draw = np.random.default_rng(0)
    told = 0
    for share in (0.0, 0.1, 0.3, 0.6, 0.9, 1.0) * 5:
        options = {s: str(draw.choice(legal)) for s, legal in free.items() if legal and draw.uniform() < share}
        again = [storage for storage, option in options.items() if option == RECOMPUTE]
        away = [storage for storage, option in options.items() if option == OFFLOAD]
        edit = work.edit(again, along=along, gather=context.gathers_again)
        told += places.stock.with_reruns(edit.before) is not None
        # The second evaluation has the same recomputations as the first.
        for offloaded in (away, away[::2]):
            chosen = {**dict.fromkeys(again, RECOMPUTE), **dict.fromkeys(offloaded, OFFLOAD)}
            whole, found = exactly.evaluate_schedule(edit.schedule(graph), offloaded), exactly(chosen)
            assert (found.peak_bytes, found.saved_bytes) == (whole.peak_bytes, whole.saved_bytes), chosen
            assert found.peaks.tolist() == whole.peaks.tolist(), chosen
    assert told >= 25


def test_if_a_choice_rewrites_the_backward_only_the_full_predictor_is_used() -> None:
    context = PROGRAMS["views"]()._captured.context
    schedule = context.recomputer.edit((), along=True).schedule(context.graph)
    incremental = IncrementalLiveness(context.predictor, schedule)
    assert incremental.with_reruns({}) is not None
    backward = incremental.rows[incremental.first_backward :]
    assert incremental.with_reruns({backward[-1]: (backward[0],)}) is None
