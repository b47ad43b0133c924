"""Statements have the memory effects of PyTorch: views, in-place writes and transient memory, also on planned GPUs."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import thunder
import thunder.torch as ltorch
import torch
from thunder.core.transform_common import dce
from thunder.extend import FusionExecutor

import workbench
from workbench.compiler import api
from workbench.compiler.memory import views_and_writes as facts_module
from workbench.compiler.memory.views_and_writes import TraceFacts, trace_facts
from workbench.compiler.trace.fingerprints import fusion_key, statement_memory_key
from workbench.core.executor import why_no_nvfuser
from workbench.programs import resolve

FLOAT_BYTES = 4


class _Keep(FusionExecutor):
    """An executor that claims no statement and stores the joint trace."""

    def __init__(self) -> None:
        super().__init__("keep")
        self.trace: Any = None

    def fusion_pass(self, trace: Any) -> Any:
        self.trace = trace
        return trace


def claimed(function: Any, *args: Any) -> Any:
    keep = _Keep()
    thunder.jit(function, executors=[keep])(*args)
    return keep.trace


def of(trace: Any, symbol: str) -> tuple[Any, int]:
    """Return the first statement with the symbol's name, and its index in the trace."""
    position = next(i for i, bsym in enumerate(trace.bound_symbols) if bsym.sym.name == symbol)
    return trace.bound_symbols[position], position


def shares(bsym: Any, found: TraceFacts) -> bool:
    return found.storage_of[bsym.flat_proxy_outs[0].name] == found.storage_of[bsym.flat_proxy_args[0].name]


def test_a_reshape_is_a_view_only_if_strides_allow() -> None:
    trace = claimed(lambda x: x.transpose(0, 1).reshape(-1) + x.reshape(-1), torch.randn(4, 6))
    found = trace_facts(trace)
    reshapes = [bsym for bsym in trace.bound_symbols if bsym.sym.name == "reshape"]
    assert sorted(shares(bsym, found) for bsym in reshapes) == [False, True]


def test_views_and_elementwise_results_have_the_strides_of_eager_pytorch() -> None:
    def run(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        transposed, expanded = x.transpose(2, 3), x[:, :1].expand(1, 6, 5, 4)
        return x.reshape(1, 6, 1, 5, 4), x[0].unsqueeze(1), transposed.exp(), expanded * x, transposed + 1.0, x[0] * 2.0

    x = torch.randn(1, 6, 5, 4).as_strided((1, 6, 5, 4), (20, 20, 4, 1))
    trace = claimed(run, x)
    name = next(b.output.name for b in trace.bound_symbols if b.sym.name == "unpack_trivial")
    found = trace_facts(trace, arguments={name: x})
    outputs = trace.bound_symbols[-1].args[0]["output"]
    assert [found.strides[proxy.name] for proxy in outputs] == [result.stride() for result in run(x)]
    assert found.assumed == []


def test_an_expanded_tensor_takes_the_bytes_of_its_base() -> None:
    trace = claimed(lambda x: (x.sum(1, keepdim=True).expand(4, 6), x), torch.randn(4, 6))
    found = trace_facts(trace)
    bsym, _ = of(trace, "expand")
    assert shares(bsym, found)
    assert found.storage_bytes[found.storage_of[bsym.output.name]] == 4 * FLOAT_BYTES
    assert found.strides[bsym.output.name] == (1, 0)


def test_unclaimed_primitives_have_the_effects_of_pytorch() -> None:
    trace = dce(thunder.trace()(lambda x: ltorch.tanh(ltorch.transpose(x, 0, 1)), torch.randn(4, 6)))
    found = trace_facts(trace)
    assert [shares(b, found) for b in trace.bound_symbols if b.flat_proxy_args and b.flat_proxy_outs] == [True, False]
    assert found.assumed == []


def test_an_in_place_copy_lives_in_its_destination() -> None:
    def write(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2)

    trace = claimed(write, torch.randn(4))
    found = trace_facts(trace)
    bsym, _ = of(trace, "copy_")
    assert found.storage_of[bsym.output.name] == found.storage_of[bsym.args[1].name]


def test_a_batched_matmul_counts_the_transient_copies_of_its_operands() -> None:
    heads = torch.randn(2, 8, 4, 16).transpose(1, 2)
    trace = claimed(lambda x: x @ x.transpose(2, 3), heads)
    name = next(b.output.name for b in trace.bound_symbols if b.sym.name == "unpack_trivial")
    _, position = of(trace, "matmul")
    # A batched matmul copies an operand if its batch dimensions cannot be viewed as one. Here, it copies both operands.
    assert trace_facts(trace, arguments={name: heads}).transient_bytes[position] == 2 * heads.numel() * FLOAT_BYTES


def test_flops_follow_a_formula_for_matmuls_and_equal_the_elements_for_pointwise_ops_and_zero_for_views() -> None:
    trace = claimed(lambda x, w: torch.tanh(x @ w).transpose(0, 1), torch.randn(4, 6), torch.randn(6, 8))
    found = trace_facts(trace)
    flops = {b.sym.name: found.flops[i] for i, b in enumerate(trace.bound_symbols)}
    assert (flops["matmul"], flops["tanh"], flops["transpose"]) == (2 * 4 * 6 * 8, 4 * 8, 0)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Empty the cache of memory effects. Return a list of the names of statements that are run to find effects."""
    monkeypatch.setattr(facts_module, "_found", {})
    names: list[str] = []
    run = facts_module._StorageWalk.run

    def counted(walk: Any, bsym: Any, *args: Any) -> Any:
        names.append(bsym.sym.name)
        return run(walk, bsym, *args)

    monkeypatch.setattr(facts_module._StorageWalk, "run", counted)
    return names


@pytest.mark.slow
def test_equal_statements_of_different_programs_run_only_once(runs: list[str]) -> None:
    def layers(count: int) -> int:
        before = len(runs)
        captured = api.capture(resolve("residual_chain", device="cpu", layers=count, grad=True), "torch")
        trace_facts(captured.context.claimed)
        return len(runs) - before

    assert layers(2) > 0
    assert layers(8) == 0


def test_a_statement_runs_again_after_the_default_dtype_changes(runs: list[str]) -> None:
    trace = claimed(lambda x: torch.tanh(x), torch.randn(4, 6))
    for _ in range(2):
        trace_facts(trace)
    assert runs == ["tanh"]
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        trace_facts(trace)
    finally:
        torch.set_default_dtype(before)
    assert runs == ["tanh", "tanh"]


def test_each_combination_of_pytorch_settings_has_its_own_number_and_their_cache_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def number(threads: int) -> int:
        monkeypatch.setattr(facts_module, "kernel_settings", lambda: (threads,))
        return facts_module._StorageWalk(facts_module.FactsCache()).settings

    numbers = [number(threads) for threads in range(500) for _ in range(2)]
    assert numbers[::2] == numbers[1::2]
    assert len(set(numbers)) == 500
    assert facts_module._number_of.cache_info().currsize < 500
    assert number(0) not in numbers[2:]


def test_the_cache_of_facts_is_bounded(runs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_module, "_MOST_FACTS", 2)
    trace = claimed(lambda x: torch.tanh(torch.sin(torch.cos(x))), torch.randn(3))
    found = trace_facts(trace)
    assert len(facts_module._found) <= 2
    assert trace_facts(trace).transient_bytes == found.transient_bytes


def test_two_operators_of_one_name_have_different_keys() -> None:
    def statement(meta: Callable[[Any], Any]) -> Any:
        symbol = thunder.core.symbol.Symbol("own", meta=meta, id="own", _module=torch)
        return symbol.bind(1.0, output=None)

    def first(x: Any) -> None: ...
    def second(x: Any) -> None: ...

    assert statement_memory_key(statement(first), {}) == statement_memory_key(statement(first), {})
    assert statement_memory_key(statement(first), {}) != statement_memory_key(statement(second), {})


def test_an_object_as_argument_equals_only_itself_and_is_not_held_alive() -> None:
    class Held:
        pass

    def key(argument: Any) -> Any:
        symbol = thunder.core.symbol.Symbol("own", id="own", _module=torch)
        return statement_memory_key(symbol.bind(argument, output=None), {})

    held, other = Held(), Held()
    assert key(held) == key(held) != key(other)
    gone, kept = weakref.ref(held), key(held)
    again = key(held)
    del held
    assert gone() is None
    assert kept != again


def test_the_facts_of_a_backward_include_the_storages_of_its_forward() -> None:
    captured = api.capture(resolve("residual_chain", device="cpu", layers=2, grad=True), "torch")
    split = api.plan(captured, {}).split
    forward = trace_facts(split.forward)
    backward = trace_facts(split.backward, earlier=forward)
    assert backward.storage_of.items() >= forward.storage_of.items()
    assert backward.storage_bytes[: len(forward.storage_bytes)] == forward.storage_bytes


def test_arguments_keep_their_strides_and_shared_storages() -> None:
    whole = torch.randn(8, 6)
    trace = claimed(lambda a, b: a.reshape(-1) + b.reshape(-1), whole[:4], whole[4:])
    a, b = (bsym.output.name for bsym in trace.bound_symbols if bsym.sym.name == "unpack_trivial")
    found = trace_facts(trace, arguments={a: whole[:4], b: whole[4:]})
    assert found.storage_of[a] == found.storage_of[b]
    assert found.storage_bytes[found.storage_of[a]] == whole.nbytes


@pytest.mark.slow
@pytest.mark.skipif(bool(why_no_nvfuser()), reason=why_no_nvfuser() or "")
def test_statements_for_a_gpu_need_no_gpu() -> None:
    captured = api.capture(resolve("mlp", device="planned", layers=1), "nvfuser")
    found = trace_facts(captured.context.claimed)
    assert found.assumed == []
    devices = {
        str(p.device) for b in captured.context.claimed.bound_symbols for p in b.flat_proxy_outs if hasattr(p, "device")
    }
    assert all("cuda" in device for device in devices)


def test_a_statement_that_cannot_run_is_reported_as_assumed() -> None:
    executor = thunder.extend.OperatorExecutor("refuses", version="1")

    def fails(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no fake tensors, please")

    def traced(x: Any) -> Any:
        return thunder.core.proxies.TensorProxy(like=x)

    symbol = executor.register_operator("refuses", meta=traced, fn=fails)
    trace = thunder.trace()(lambda x: symbol(x), torch.randn(4, 6))
    found = trace_facts(trace)
    (position,) = found.assumed
    assert found.effects[position].unmeasured
    name = trace.bound_symbols[position].output.name
    assert found.storage_bytes[found.storage_of[name]] == 4 * 6 * FLOAT_BYTES


def fusions(layers: int, executor: str, device: str) -> list[Any]:
    captured = api.capture(resolve("residual_chain", device=device, layers=layers, grad=True), executor)
    split = api.plan(captured, {}).split
    return [b for trace in (split.forward, split.backward) for b in trace.bound_symbols if b.sym.is_fusion]


@pytest.mark.slow
def test_fusions_of_identical_layers_have_one_key() -> None:
    few, many = fusions(4, "torchcompile", "cpu"), fusions(8, "torchcompile", "cpu")
    assert len(many) > len(few)
    assert {fusion_key(b) for b in few} == {fusion_key(b) for b in many}


@pytest.mark.parametrize("change", ["constant", "shape", "dtype", "order of outputs"])
def test_fusions_that_differ_have_different_keys(change: str) -> None:
    def key(constant: float = 2.0, rows: int = 4, dtype: torch.dtype = torch.float32, swapped: bool = False) -> str:
        def function(x: torch.Tensor) -> Any:
            a, b = torch.tanh(x * constant), torch.exp(x)
            return (b, a) if swapped else (a, b)

        captured = api.capture(resolve(function, torch.randn(rows, 6, dtype=dtype)), "torchcompile")
        (fusion,) = [b for b in api.plan(captured, {}).split.forward.bound_symbols if b.sym.is_fusion]
        if swapped:
            fusion = fusion.from_bsym(output=list(reversed(fusion.output)))
        return fusion_key(fusion)

    changed = {
        "constant": {"constant": 2.0000000000000004},
        "shape": {"rows": 5},
        "dtype": {"dtype": torch.float64},
        "order of outputs": {"swapped": True},
    }[change]
    assert key() == key()
    assert key(**changed) != key()  # type: ignore[arg-type]


@pytest.mark.slow
def test_facts_of_a_statement_on_shared_memory_do_not_apply_to_separate_memory() -> None:
    """A copy of a tensor into itself and a copy between tensors have equal shapes but different memory effects."""

    def onto_itself(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x * 2, 0.5, training=False, inplace=True) * 3

    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x.sin().mul_(x.norm())

    facts_module._found.clear()
    x = torch.randn(4, 4, requires_grad=True)
    workbench.open(onto_itself, x, device="cpu", capture="dynamo")
    bench = workbench.open(scaled, x, device="cpu", capture="dynamo")
    assert not bench.plan.warnings
    ours, eager = (torch.autograd.grad(run(x).sum(), x)[0] for run in (bench.config.jit(scaled), scaled))
    torch.testing.assert_close(ours, eager)


def test_a_statement_reads_values_with_the_data_types_that_pytorch_makes() -> None:
    # Thunder declares bool + 1 as int8, but PyTorch makes int64.
    added = claimed(lambda x: (x + 1) * 2, torch.ones(64, dtype=torch.bool))
    found = trace_facts(added)
    bsym, _ = of(added, "mul")
    assert found.dtypes[bsym.output.name] == torch.int64
    assert found.storage_bytes[found.storage_of[bsym.output.name]] == 64 * torch.int64.itemsize
