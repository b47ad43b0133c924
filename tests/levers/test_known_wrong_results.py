"""Programs that Thunder or Inductor gets wrong. The workbench gives right results, or names the difference.

If a later version of Thunder or Inductor gives right results, a test here fails. Then remove its program and the
workbench's workaround.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import thunder
import torch
from thunder.core.proxies import ProxyTag, TensorProxy
from thunder.core.transform_common import Transform
from thunder.executors.torch_compile import torch_compile_ex
from torch._subclasses.fake_tensor import FakeTensorMode

import workbench
from tests.nvfuser import replays
from tests.nvfuser.cpu_replay import replay
from tests.trial_counts import combined
from workbench.compiler.interop import devices
from workbench.core.executor import why_no_nvfuser
from workbench.errors import ChoiceError
from workbench.programs import resolve

needs_nvfuser = pytest.mark.skipif(bool(why_no_nvfuser()), reason=why_no_nvfuser())

LOST = [("lost_update", {"row": False}), ("lost_update", {"row": True})]
SWAP = ("swap", {})


def stock_nvfuser_differs(name: str, settings: dict[str, Any]) -> list[str]:
    """Trace a program with unmodified Thunder and nvFuser, and replay the trace. Return the names of wrong values."""
    known = replays.eager(name, **settings)
    program = resolve(name, device="planned", **settings)
    assert isinstance(program.fake_mode, FakeTensorMode)
    jitted = thunder.jit(program.callable, executors=[devices.nvfuser_module().ex])
    with devices.planned_gpu(program.fake_mode):
        entry, _, _ = jitted._lc_cd.get_computation_and_inputs(*program.args)
    return replays.differences(replay(entry.computation_traces[-1], None, known.before), known)


def wrong_on_the_cpu(
    name: str, settings: dict[str, Any], compile: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> bool:
    """Compile and run a program that writes in place. Return whether its writes differ from those of eager PyTorch."""
    function, args, _ = resolve(name, device="cpu", **settings).build()
    expected = [tensor.clone() for tensor in args]
    function(*expected)
    compile(function)(*args)
    return not all(torch.equal(one, other) for one, other in zip(args, expected, strict=True))


@needs_nvfuser
@pytest.mark.parametrize(("name", "settings"), [*LOST, SWAP])
def test_unmodified_thunder_with_nvfuser_writes_wrong_values(name: str, settings: dict[str, Any]) -> None:
    assert stock_nvfuser_differs(name, settings)


@pytest.mark.slow
@needs_nvfuser
@pytest.mark.parametrize(
    ("program", "fences", "policy"), combined([*LOST, SWAP], ["keep", "drop"], ["always", "alias_aware"])
)
def test_a_plan_of_the_workbench_for_nvfuser_is_right(
    program: tuple[str, dict[str, Any]], fences: str, policy: str
) -> None:
    name, settings = program
    bench = replays.planned(name, **settings)
    bench.choose({"copies.fences": fences, "copies.policy": policy})
    replays.holds(bench, replays.eager(name, **settings))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "settings"), LOST)
def test_thunders_option_without_fences_loses_updates(name: str, settings: dict[str, Any]) -> None:
    assert wrong_on_the_cpu(
        name,
        settings,
        lambda function: thunder.jit(function, executors=[torch_compile_ex], skip_inplace_alias_updates=True),
    )


@needs_nvfuser
@pytest.mark.parametrize(("name", "settings"), LOST)
def test_a_fence_between_views_of_one_tensor_cannot_be_dropped(name: str, settings: dict[str, Any]) -> None:
    bench = replays.planned(name, **settings)
    refused = [site for site in bench.sites("copies") if "drop" in site.illegal]
    assert refused
    with pytest.raises(ChoiceError, match=r"share memory|is a view of"):
        bench.choose({refused[0].id: "drop"})


@pytest.mark.slow
def test_inductor_gets_a_swap_wrong_although_its_input_graph_is_right() -> None:
    assert wrong_on_the_cpu(*SWAP, torch.compile)
    assert not wrong_on_the_cpu(*SWAP, lambda function: torch.compile(function, backend="aot_eager"))
    assert wrong_on_the_cpu(*SWAP, lambda function: thunder.jit(function, executors=[torch_compile_ex]))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "settings"), [*LOST, SWAP])
def test_regions_of_the_workbench_are_right(name: str, settings: dict[str, Any]) -> None:
    config = workbench.open(name, device="cpu", executor="torchcompile", settings=settings).config
    assert not wrong_on_the_cpu(name, settings, config.jit)


def test_the_copy_that_inductor_gets_wrong_stays_out_of_its_region_with_the_reason() -> None:
    bench = workbench.open("swap", device="cpu", executor="torchcompile")
    (site,) = [site for site in bench.sites("copies") if "in" in site.illegal]
    assert site.choice == "out"
    with pytest.raises(ChoiceError, match="Inductor reads a after that copy"):
        bench.choose({site.id: "in"})


class RecomputeAll(Transform):
    """A transform that marks the results of dropout for recomputation in the backward, with Thunder's own tag."""

    def transform_traces_pre_prologue(self, prologue: Any, computation: Any, epilogue: Any, **_: Any) -> Any:
        for bsym in computation.bound_symbols:
            if bsym.sym.name == "dropout":
                for out in bsym.flat_proxy_outs:
                    assert isinstance(out, TensorProxy)
                    out.tags.add(ProxyTag.RECOMPUTE_IN_BACKWARD)
        return prologue, computation, epilogue


def step(name: str, *transforms: Transform, **settings: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Run one step of unmodified Thunder, with a fixed random seed. Return the output and the gradients."""
    program = resolve(name, device="cpu", **settings)
    module = program.callable
    assert isinstance(module, torch.nn.Module)
    jitted = thunder.jit(module, executors=[thunder.pytorch_executor], transforms=transforms)
    torch.manual_seed(1)
    output = jitted(*program.args)
    output.sum().backward()
    return output.detach(), [parameter.grad for parameter in module.parameters() if parameter.grad is not None]


@pytest.mark.slow
def test_thunders_tags_and_checkpoints_draw_new_numbers_and_only_gradients_differ() -> None:
    output, gradients = step("checkpoint_dropout", checkpointed=False)
    for wrong_output, wrong in (
        step("checkpoint_dropout", checkpointed=True),
        step("checkpoint_dropout", RecomputeAll(), checkpointed=False),
    ):
        assert torch.equal(output, wrong_output)
        assert not all(torch.allclose(one, other) for one, other in zip(gradients, wrong, strict=True))


@pytest.mark.slow
def test_recomputing_every_legal_storage_keeps_the_random_draws() -> None:
    bench = workbench.open("checkpoint_dropout", device="cpu", executor="torch", checkpointed=False)
    bench.choose({site.id: "recompute" for site in bench.sites("saved") if "recompute" in site.options})
    output, gradients = step("checkpoint_dropout", checkpointed=False)
    module, args, _ = bench.program.build()
    assert isinstance(module, torch.nn.Module)
    jitted = bench.config.jit(module)
    torch.manual_seed(1)
    given = jitted(*args)
    given.sum().backward()
    assert torch.equal(output, given.detach())
    found = [parameter.grad for parameter in module.parameters()]
    assert all(torch.allclose(one, other) for one, other in zip(gradients, found, strict=True))
    assert bench.plan.text().count("uniform(") == 1
    assert bench.plan.warnings == ()


@pytest.mark.parametrize("executor", ["torch", "torchcompile"])
def test_a_plan_names_the_correction_of_a_checkpoint_around_a_dropout(executor: str) -> None:
    bench = workbench.open("checkpoint_dropout", device="cpu", executor=executor)
    (correction,) = bench.plan.corrections
    for part in (
        "recomputes a region in the backward",
        "preserve_rng_state",
        "saves the drawn numbers",
        "(exhibits.py:",
    ):
        assert part in str(correction)
    assert bench.plan.warnings == ()
