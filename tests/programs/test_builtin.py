"""Built-in programs run. If they draw no random numbers, unmodified Thunder and eager PyTorch give equal results."""

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

import pytest
import thunder
import torch
from torch.utils import _pytree as pytree

from tests.trial_counts import beyond
from workbench.programs import Program, builtin, catalogue, describe, registry, resolve
from workbench.programs.settings import settings_of

RANDOM = {"dropout_mlp", "checkpoint_dropout"}
SMALL = {
    "ddp_llama": {"layers": 1, "dim": 16, "vocab": 32, "sequence": 8},
    "fsdp_llama": {"layers": 1, "dim": 16, "vocab": 32, "sequence": 8},
    "llama": {"layers": 1, "dim": 16, "vocab": 32, "sequence": 8, "heads": 4, "kv_heads": 2, "hidden": 24},
    "mlp": {"layers": 2},
    "residual_chain": {"layers": 2},
}
NAMES = [info.name for info in describe()]

SAME = {"ddp_llama"}
"""Programs that are not compared with eager PyTorch, because another program differs only in the parallel mode."""

CASES: list[tuple[str, dict[str, Any]]] = [(name, SMALL.get(name, {})) for name in NAMES if name not in SAME] + [
    ("residual_chain", {"layers": 2, "grad": True}),
    ("llama", {**SMALL["llama"], "dtype": "bfloat16"}),
]


def tensors(*objects: Any) -> list[torch.Tensor]:
    found = []
    for leaf in pytree.tree_leaves(objects):
        if isinstance(leaf, torch.nn.Module):
            found += [*leaf.parameters(), *leaf.buffers()]
        elif isinstance(leaf, torch.Tensor):
            found.append(leaf)
    return found


def step(
    compiled: Callable[..., Any], original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[torch.Tensor]:
    """Run a forward and a backward. Return the outputs, the inputs and parameters after the step, and the gradients."""
    outputs = tensors(compiled(*args, **kwargs))
    differentiable = [output for output in outputs if output.requires_grad]
    if differentiable:
        torch.autograd.backward(differentiable, [torch.ones_like(output) for output in differentiable])
    leaves = tensors(original, args, kwargs)
    return [tensor.detach() for tensor in (*outputs, *leaves, *(leaf.grad for leaf in leaves if leaf.grad is not None))]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "settings"), beyond(8, sorted(CASES, key=lambda case: "llama" in case[0]), rows=True))
def test_thunder_computes_the_results_of_eager(name: str, settings: dict[str, Any]) -> None:
    program = resolve(name, device="cpu", settings=settings)
    eager = step(program.callable, program.callable, program.args, program.kwargs)
    original, args, kwargs = program.build()
    jitted = thunder.jit(original, executors=[thunder.pytorch_executor])
    compiled = step(jitted, original, args, kwargs)
    assert len(eager) == len(compiled)
    if name not in RANDOM:
        for one, other in zip(eager, compiled, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-2 if one.dtype == torch.bfloat16 else 1e-4, atol=1e-3)


def test_the_catalogue_that_is_read_from_files_equals_the_imported_programs() -> None:
    modules = pkgutil.iter_modules(builtin.__path__)
    for module in modules:
        importlib.import_module(f"{builtin.__name__}.{module.name}")
    assert sorted(registry._FACTORIES) == NAMES
    for info in describe():
        factory = registry.find(info.name)
        assert factory.__module__ == f"{builtin.__name__}.{catalogue.entries()[info.name].module}"
        assert info.settings == settings_of(factory)[0]
        assert info.summary == (factory.__doc__ or "").partition("\n")[0]
        assert catalogue.entries()[info.name].parallel == registry._PARALLEL.get(info.name, "")


@pytest.mark.parametrize("name", NAMES)
def test_tensors_of_planned_programs_are_fake_and_on_a_gpu(name: str) -> None:
    program = resolve(name, device="planned")
    found = tensors(program.callable, program.args, program.kwargs)
    assert found
    assert {str(tensor.device) for tensor in found} == {"cuda:0"}
    assert {tensor.fake_mode for tensor in found} == {program.fake_mode}  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", NAMES)
def test_a_program_has_the_same_tensors_each_time(name: str) -> None:
    one = resolve(name, device="cpu", seed=3)
    other = resolve(name, device="cpu", seed=3)
    mine, theirs = (tensors(p.callable, p.args) for p in (one, other))
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def test_another_seed_gives_other_values() -> None:
    one, other = (resolve("swap", device="cpu", seed=seed) for seed in (0, 1))
    assert not torch.equal(one.args[0], other.args[0])


def test_a_large_planned_program_has_all_its_parameters() -> None:
    program = resolve("llama", device="planned", layers=2, dim=4096, heads=32, hidden=11008, vocab=32000, sequence=4096)
    weights = sum(parameter.numel() for parameter in program.callable.parameters())  # type: ignore[attr-defined]
    assert weights > 600e6


def write_in_place(program: Program) -> list[torch.Tensor]:
    """Run a program. Return the inputs whose values the run has changed."""
    before = [tensor.clone() for tensor in tensors(program.args)]
    program.callable(*program.args, **program.kwargs)
    return [now for was, now in zip(before, tensors(program.args), strict=True) if not torch.equal(was, now)]


@pytest.mark.parametrize(
    ("name", "changed"), [("adam", 8), ("sgd", 4), ("swap", 2), ("two_destinations", 2), ("return_source", 1)]
)
def test_programs_that_write_in_place_change_their_inputs(name: str, changed: int) -> None:
    assert len(write_in_place(resolve(name, device="cpu"))) == changed


def test_adam_equals_the_adam_of_pytorch() -> None:
    program = resolve("adam", device="cpu", parameters=1, size=4)
    (param,), (grad,), *_ = program.args
    reference = torch.nn.Parameter(param.clone())
    optimizer = torch.optim.Adam([reference], lr=1e-3)
    for _ in range(3):
        reference.grad = grad.clone()
        optimizer.step()
        program.callable(*program.args)
    torch.testing.assert_close(param, reference.detach())


def test_sgd_equals_the_sgd_of_pytorch() -> None:
    program = resolve("sgd", device="cpu", parameters=1, size=4)
    (param,), (grad,), _ = program.args
    reference = torch.nn.Parameter(param.clone())
    optimizer = torch.optim.SGD([reference], lr=1e-2, momentum=0.9)
    for _ in range(3):
        reference.grad = grad.clone()
        optimizer.step()
        program.callable(*program.args)
    torch.testing.assert_close(param, reference.detach())
