"""Check plans for nvFuser: traces are valid, nvFuser's definitions can be built, and replays equal eager PyTorch.

A replay runs the statements of a plan by PyTorch on the CPU.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import torch
from torch.utils import _pytree as pytree

import workbench
from tests.nvfuser.cpu_replay import ReplayResult
from tests.nvfuser.cpu_replay import replay as replay
from workbench.bench import Workbench
from workbench.compiler import api
from workbench.compiler.fusion.fusion_source import definition
from workbench.compiler.interop.thunder_api import prims
from workbench.compiler.trace import copy_sets
from workbench.compiler.trace.validate import validate
from workbench.programs import resolve


@dataclasses.dataclass(frozen=True)
class Eager:
    """One step of eager PyTorch: arguments before and after the step, outputs and gradients, by Thunder's names."""

    before: dict[str, torch.Tensor]
    outputs: list[torch.Tensor]
    gradients: dict[str, torch.Tensor]
    after: dict[str, torch.Tensor]


def eager(program: Any, *args: Any, **settings: Any) -> Eager:
    """Run one step of a program with eager PyTorch on the CPU. Return its tensors."""
    made = resolve(program, *args, device="cpu", **settings)
    named = api.capture(made, "torch").context.arguments
    before = {name: tensor.detach().clone() for name, tensor in named.items()}
    outputs = pytree.tree_leaves(made.callable(*made.args, **made.kwargs))
    tensors = [output for output in outputs if isinstance(output, torch.Tensor)]
    if roots := [output for output in tensors if output.requires_grad]:
        torch.autograd.backward(roots, [torch.ones_like(output) for output in roots])
    gradients = {name: tensor.grad for name, tensor in named.items() if tensor.grad is not None}
    return Eager(
        before, [o.detach() for o in tensors], gradients, {name: tensor.detach() for name, tensor in named.items()}
    )


def planned(program: Any, *args: Any, **settings: Any) -> Workbench:
    """Return a bench for a GPU that is not attached. Its tensors have the names that `eager` uses."""
    return workbench.open(program, *args, device="planned", executor="nvfuser", capture="interpreter", **settings)


def fusions(bench: Workbench) -> list[Any]:
    split = bench.plan.split
    bsyms = [*split.forward.bound_symbols, *(split.backward.bound_symbols if split.backward else ())]
    return [bsym for bsym in bsyms if bsym.sym.is_fusion]


def count_sets(fusion: Any, policy: str | None = None) -> int:
    """Count the `set` nodes for in-place copies in a fusion's definition, including nodes that nvFuser adds itself.

    Clones, and broadcasts that change nothing, are also `set` nodes. To leave out such nodes, this function subtracts
    the number of `set` nodes in the same definition without copies. See `definition` for the parameters.
    """
    plain = [
        prims.shallow_copy.bind(member.args[0], output=member.output) if copy_sets.is_copy(member) else member
        for member in fusion.subsymbols
    ]
    # With a policy, `definition` translates the given members. The policy decides nothing, because no copy is left.
    without = definition(dataclasses.replace(fusion, subsymbols=plain), policy="never")
    return len(_SET.findall(definition(fusion, policy))) - len(_SET.findall(without))


# `print_math` prints a `set` as ``Set``. `str(definition)` prints a cast to the same type instead.
_SET = re.compile(r"= Set\(")


def replayed(bench: Workbench, known: Eager) -> ReplayResult:
    """Replay the bench's plan with the arguments of eager PyTorch's step."""
    plan = bench.plan
    bare = {name for site in plan.sites if site.lever == "copies" and site.outcome == "no set" for name in site.values}
    return replay(plan.split.forward, plan.split.backward, known.before, without_set=bare)


def differences(found: ReplayResult, known: Eager) -> list[str]:
    """Return the names of outputs, gradients and arguments for which a replay differs from eager PyTorch."""
    pairs = [(f"output {i}", found.outputs[i], output) for i, output in enumerate(known.outputs)]
    pairs += [(f"gradient of {name}", found.gradients.get(name), tensor) for name, tensor in known.gradients.items()]
    pairs += [(name, found.arguments[name], tensor) for name, tensor in known.after.items()]
    return [name for name, one, other in pairs if one is None or not close(one, other)]


def close(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one.to(other.dtype), other, rtol=1e-4, atol=1e-5)


def holds(bench: Workbench, known: Eager) -> None:
    """Assert that the bench's plan is valid, and that its replay gives the results of eager PyTorch."""
    plan = bench.plan
    validate(plan.split.forward, plan.split.backward)
    assert sum(count_sets(fusion) for fusion in fusions(bench)) == plan.counts["sets"]
    assert all(definition(fusion) for fusion in fusions(bench))
    assert not differences(replayed(bench, known), known), bench.choices
