"""The workbench's fast versions of Thunder's functions give the same results as Thunder's own, with less work."""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import functools
import inspect
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar
from unittest import mock

import pytest
import thunder
import torch
from hypothesis import given, settings
from thunder.core import interpreter, pytree, symbol, transform_common

import workbench
from tests.strategies import RandomProgram, programs
from tests.trial_counts import amount, beyond
from workbench.compiler.fastpath import alias_renaming, install, passes, symbols, wait_sorting
from workbench.compiler.interop.thunder_api import (
    IntegerProxy,
    TensorProxy,
    TraceCtx,
    autodiff,
    devices,
    distributed_utils,
    dtypes,
    tracectx,
    update_aliases,
)
from workbench.compiler.lowering import patch_context
from workbench.compiler.trace.bsym_memo import identity, names_in, structure_of


@pytest.fixture(autouse=True)
def in_force() -> Iterator[None]:
    """Run each test with the patches that the workbench installs for a compilation."""
    with patch_context.install_patches():
        yield


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in (self.first, self.second):
            x = layer(x) * len(self._modules) if isinstance(x, torch.Tensor) else x
        return x.sum()


def traced(function: Callable[..., Any], *args: Any) -> list[str]:
    jitted = thunder.jit(function)
    jitted(*args)
    traces = [*thunder.last_traces(jitted), *thunder.last_backward_traces(jitted)]
    return renumbered([re.sub(r"took \d+ \w+", "", str(trace)) for trace in traces])


def renumbered(texts: list[str]) -> list[str]:
    """Return texts with values renumbered by first appearance, because gaps in Thunder's numbers may differ.

    Remove the numbers of memory formats: they count how often Thunder has printed earlier traces.
    """
    texts = [re.sub(r"\b_torch_memory_format_\d+\b", "_torch_memory_format", text) for text in texts]
    numbers: dict[str, str] = {}
    # Leave out folders of paths, such as `t212`. They look like names of values.
    name = re.compile(r"(?<![a-zA-Z0-9/])[fit]\d+(?![a-zA-Z0-9/])")
    # Remove line breaks, whose places depend on the length of names.
    whole = [re.sub(r"\\(\\?n|\n) *", "", text) for text in texts]
    named = [name.sub(lambda found: numbers.setdefault(found[0], f"#{len(numbers)}"), text) for text in whole]
    # Thunder prints the names of a set in sorted order. Sort the new names, because renumbering changes the order.
    return [re.sub(r"\{([#\w, ]+)\}", lambda found: str(sorted(found[1].split(", "))), text) for text in named]


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which each call that Thunder interprets adds the name of the called function."""
    found: list[str] = []
    stock = interpreter._run_frame

    def run_frame(frame: Any, *args: Any, **kwargs: Any) -> Any:
        found.append(frame.qualname)
        return stock(frame, *args, **kwargs)

    monkeypatch.setattr(interpreter, "_run_frame", run_frame)
    return found


def by_rows(x: torch.Tensor) -> torch.Tensor:
    """Compute each row from the rows before it, as gated delta rules do. Then write through a view of all rows."""
    made = x * 1.0
    for row in range(1, 5):
        before = made[:row, :row].clone()
        made[row, :row] = made[row, :row].clone() + (made[row, :row].unsqueeze(-1) * before).sum(0)
    flat = made.view(-1)
    flat.mul_(2.0)
    return (made * x).sum() + flat.sum()


class InOrder(set[Any]):
    """A set whose `intersection` is a list in the order of the trace. In shipped Thunder, the order depends on hashes.

    Attributes
    ----------
    place : dict of str to int
        Position of each name in the trace.
    """

    place: ClassVar[dict[str, int]] = {}

    def union(self, *others: Iterable[Any]) -> InOrder:
        return InOrder(super().union(*others))

    def intersection(self, *others: Iterable[Any]) -> Any:
        return sorted(super().intersection(*others), key=lambda variable: self.place[variable.proxy.name])


@contextlib.contextmanager
def shipped_in_order() -> Iterator[None]:
    """Inside the block, use shipped Thunder, except for two things that `alias_renaming` changes on purpose.

    Views are numbered in the order of their first appearance. A renamed input gets its gradient, which shipped Thunder
    loses; `tests/compiler/lowering/test_written_inputs.py` compares these gradients with those of eager PyTorch.
    """
    stock, differentiate = update_aliases.replace_args_with_alias_map, autodiff.grad_transform_on_trace

    def noted(trace: Any, indices: Any) -> Any:
        trace, groups = stock(trace, indices)
        names = dict.fromkeys(name for bsym in trace.bound_symbols for name in names_in(bsym))
        InOrder.place = {name: at for at, name in enumerate(names)}
        return trace, groups

    with (
        install.unpatched_thunder(),
        mock.patch.object(update_aliases, "set", InOrder, create=True),
        mock.patch.object(update_aliases, "replace_args_with_alias_map", noted),
        mock.patch.object(
            autodiff, "grad_transform_on_trace", functools.partial(alias_renaming._differentiate, differentiate)
        ),
    ):
        yield


def outcome(function: Callable[..., Any], args: tuple[torch.Tensor, ...]) -> list[str]:
    try:
        return traced(function, *args)
    except Exception as error:  # noqa: BLE001  # the test compares errors too
        return [f"{type(error).__name__}: {error}".partition(chr(10))[0]]


@pytest.mark.slow
def test_row_writes_are_renamed_as_in_shipped_thunder() -> None:
    with shipped_in_order():
        shipped = outcome(by_rows, (torch.randn(5, 5, requires_grad=True),))
    assert sum("update_aliases" in text for text in shipped)
    assert outcome(by_rows, (torch.randn(5, 5, requires_grad=True),)) == shipped


@pytest.mark.drawn
@pytest.mark.slow
@settings(max_examples=amount(4, 20, 150))
@given(programs(writes=True).map(lambda program: dataclasses.replace(program, shared="")))
def test_random_writes_are_renamed_as_in_shipped_thunder(program: RandomProgram) -> None:
    # Each input has a storage of its own. For inputs that share one, unmodified Thunder reads a wrong input.
    with shipped_in_order():
        shipped = outcome(program.function, program.arguments())
    assert outcome(program.function, program.arguments()) == shipped


@pytest.mark.slow
def test_traces_equal_those_of_shipped_thunder_with_less_than_a_third_of_the_frames(frames: list[str]) -> None:
    net, x = Net(), torch.ones(2, 4)
    with install.unpatched_thunder():
        shipped = traced(net, x)
    count = len(frames)
    frames.clear()
    assert traced(net, x) == shipped
    assert 0 < len(frames) < count / 3
    frames.clear()
    with install.unpatched_thunder():
        traced(net, x)
    assert len(frames) == count


def test_the_stand_in_for_inspect_finds_the_frames_that_inspect_finds() -> None:
    def callers() -> tuple[Any, Any]:
        return inspect.stack()[2], interpreter.inspect.stack()[2]

    theirs, ours = (lambda: callers())()
    assert ours == theirs
    assert ours.frame is theirs.frame is inspect.currentframe()
    assert ours.positions == theirs.positions
    with install.unpatched_thunder():
        theirs, shipped = (lambda: callers())()
    assert shipped == theirs
    with pytest.raises(IndexError):
        interpreter.inspect.stack()[10_000]


def _none(*given: Any) -> None: ...
def _two(a: Any, b: Any) -> None: ...
def _default(a: Any, b: Any = 3) -> None: ...
def _only(a: Any, /, b: Any) -> None: ...
def _keyword(a: Any, *, b: Any = 4) -> None: ...
def _rest(a: Any, *rest: Any, **others: Any) -> None: ...
def _named_behind(a: Any, *rest: Any, b: Any = 5) -> None: ...
@functools.wraps(_two)
def _for_another(*given: Any) -> None: ...


@pytest.mark.parametrize("meta", [_none, _two, _default, _only, _keyword, _rest, _named_behind, _for_another])
@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((1,), {}), ((1, 2), {}), ((1,), {"b": 2}), ((), {"a": 1, "b": 2}), ((1, 2, 3), {})]
)
def test_arguments_are_bound_as_in_shipped_thunder(
    meta: Callable[..., None], args: tuple[int, ...], kwargs: dict[str, int]
) -> None:
    def outcome(normalize: Any) -> Any:
        try:
            return normalize(symbol.Symbol("tried", meta), *args, **kwargs)
        except TypeError as error:
            return str(error)

    assert outcome(symbol.Symbol.normalize) == outcome(install._stock_normalize)


def _given_back(x: torch.Tensor) -> Any:
    return x, x.view(2, 4), {"sum": x.sum(), "shape": x.shape[0]}


def _without_gradients(x: torch.Tensor) -> Any:
    with torch.no_grad():
        kept = x * 2
    return kept + x.sin()


def _in_half(x: torch.Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return x @ x.t() + 1


def _written(x: torch.Tensor) -> Any:
    y = x.clone()
    y.add_(1)
    return torch.nn.functional.dropout(y[:1].expand(2, 4), 0.0), y.to(torch.float64), y.contiguous()


@pytest.mark.parametrize("function", beyond(1, [_given_back, _without_gradients, _in_half, _written], pytest.mark.slow))
def test_statements_are_recorded_as_in_shipped_thunder(function: Callable[..., Any]) -> None:
    x = torch.randn(2, 4, requires_grad=True)
    with shipped_in_order():
        assert not install.is_fast()
        shipped = traced(function, x)
    assert install.is_fast()
    assert traced(function, x) == shipped


def test_tensor_properties_are_inferred_as_in_shipped_thunder() -> None:
    cpu, cuda = thunder.core.devices.Device("cpu"), thunder.core.devices.Device("cuda:0")
    single, weak, whole = thunder.dtypes.float32, thunder.dtypes.float32_, thunder.dtypes.int64

    def outcomes(infer: Callable[..., Any]) -> list[Any]:
        with thunder.core.trace.tracectx(thunder.core.trace.TraceCtx(None)):
            like = thunder.core.proxies.TensorProxy(shape=(2, 3), device=cpu, dtype=single, requires_grad=True)
        made = []
        for properties in (
            (None, (2, 3), cpu, single, True),
            (None, [2, 3], cuda, single, False),
            (None, (), cpu, weak, False),
            (None, (), cpu, float, False),
            (None, (4,), cpu, whole, True),
            (like,),
            (like, (5,)),
            (like, (5,), None, whole),
            (like, None, None, None, False),
            (None, (-1,), cpu, single, False),
            (None, (1.5,), cpu, single, False),
            (None, "2", cpu, single, False),
            (None, (2,), None, single, False),
        ):
            for _ in range(2):  # the second call returns the cached value
                try:
                    made.append(infer(*properties))
                except (RuntimeError, ValueError) as error:
                    made.append(re.sub(r"t\d+", "t", str(error)))
        return made

    assert outcomes(symbols._infer) == outcomes(symbols._stock_properties)


def test_an_interpretation_looks_up_the_source_of_only_one_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    stock = inspect.getframeinfo
    monkeypatch.setattr(inspect, "getframeinfo", lambda frame, context=1: looked.append(frame) or stock(frame, context))
    assert torch.equal(thunder.jit(lambda x: x * 2)(torch.ones(2)), torch.full((2,), 2.0))
    assert len(looked) == 1


def test_an_interpretation_sees_a_builtin_that_changed_after_the_last_interpretation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def twice(x: torch.Tensor) -> Any:
        return x * len((x, x))

    x = torch.ones(2)
    assert torch.equal(thunder.jit(twice)(x), x * 2)
    monkeypatch.setitem(twice.__globals__, "len", lambda _: 5)
    assert torch.equal(thunder.jit(twice)(x), x * 5)
    monkeypatch.delitem(twice.__globals__, "len")
    monkeypatch.setattr(builtins, "divmod", lambda *_: 7)

    def patched(x: torch.Tensor) -> Any:
        return x * divmod(1, 2)

    assert torch.equal(thunder.jit(patched)(x), x * 7)


def test_a_global_that_a_program_sets_hides_a_builtin_as_in_shipped_thunder() -> None:
    def shadows(x: torch.Tensor) -> Any:
        before = abs(x)
        globals()["abs"] = torch.negative
        return before + abs(x)

    x = torch.full((2,), -1.0)
    try:
        with install.unpatched_thunder():
            shipped = _outcome(shadows, x)
        globals().pop("abs", None)
        assert _outcome(shadows, x) == shipped
    finally:
        globals().pop("abs", None)


def _outcome(function: Callable[..., Any], x: torch.Tensor) -> Any:
    try:
        return thunder.jit(function)(x).tolist()
    except Exception as error:  # noqa: BLE001  # the test compares errors too
        return f"{type(error).__name__}: {error}"


def test_a_program_that_reads_an_undefined_name_is_refused_with_the_name() -> None:
    def lost(x: torch.Tensor) -> Any:
        return x + no_such_name  # noqa: F821

    with pytest.raises(workbench.ProgramError, match="no_such_name"):
        workbench.open(lost, torch.ones(2), capture="interpreter")


@dataclasses.dataclass
class Pair:
    first: Any
    second: Any


@pytest.mark.parametrize("tree", [(), ((1, [2.0, None]), {"a": "b"}), Pair(1, 2), ([Pair(1, [2])], {}), slice(1, 2)])
def test_trees_are_flattened_as_in_shipped_thunder(tree: Any) -> None:
    with install.unpatched_thunder():
        pytree.tree_flatten_with_dataclass(tree)  # registers the dataclass; `tree_flatten` alone does not
        shipped = [pytree.tree_flatten(tree), pytree.tree_flatten_with_dataclass(tree)]
    assert [symbol.tree_flatten(tree), symbol.tree_flatten_with_dataclass(tree)] == shipped


def test_a_dataclass_is_inspected_when_it_is_first_seen() -> None:
    @dataclasses.dataclass
    class New:
        inside: Any

    assert symbol.tree_flatten_with_dataclass([1, 2])[0] == [1, 2]
    assert symbol.tree_flatten_with_dataclass([1, New([2, 3])])[0] == [1, 2, 3]


def test_an_unsupported_type_is_refused_each_time() -> None:
    class Own:
        pass

    for _ in range(2):
        with pytest.raises(TypeError, match=r"tree_flatten of type .*Own'> is not supported"):
            symbol.tree_flatten(Own())


def test_a_signature_is_inspected_once(monkeypatch: pytest.MonkeyPatch) -> None:
    inspected: list[Any] = []
    signature = inspect.signature

    def count(function: Any) -> inspect.Signature:
        inspected.append(function)
        return signature(function)

    def meta(a: Any, *, b: int = 3) -> Any:
        return a

    own = symbol.Symbol("own", meta=meta)
    monkeypatch.setattr(inspect, "signature", count)
    assert [own.normalize(1), own.normalize(a=1, b=2)] == [((1,), {"b": 3}), ((1,), {"b": 2})]
    assert inspected == [meta]
    with pytest.raises(TypeError, match="missing a required argument: 'a'"):
        own.normalize()
    like = symbol.Symbol("like", meta=own)
    assert [like.normalize(1, b=2), like.normalize(3)] == [((1,), {"b": 2}), ((3,), {})]
    assert inspected == [meta]


def test_tags_of_a_statement_include_the_tags_of_its_members() -> None:
    jitted = thunder.jit(Net())
    jitted(torch.ones(2, 4))
    bsyms = [bsym for trace in thunder.last_traces(jitted) for bsym in trace.bound_symbols]
    found = [symbol.gather_tags(bsym) for bsym in bsyms]
    with install.unpatched_thunder():
        assert found == [symbol.gather_tags(bsym) for bsym in bsyms]
    assert any(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "settings", "device", "executor"),
    [
        ("llama", {"layers": 2, "kv_heads": 2}, "planned", "nvfuser"),
        ("dropout_mlp", {}, "planned", "nvfuser"),
        ("adam", {}, "planned", "nvfuser"),
        ("residual_chain", {"layers": 3, "grad": True}, "cpu", "torchcompile"),
        ("fsdp_llama", {"layers": 1, "ranks": 2}, "planned", "nvfuser"),
        pytest.param("ddp_llama", {"layers": 1, "ranks": 2}, "planned", "nvfuser", marks=pytest.mark.long),
    ],
)
def test_fast_passes_give_the_plans_of_shipped_passes(
    program: str, settings: dict[str, Any], device: str, executor: str
) -> None:
    def plans() -> list[Any]:
        bench = workbench.open(program, device=device, executor=executor, **settings)
        able = [s for s in bench.sites("saved") if "recompute" in s.options and "recompute" not in s.illegal]
        chosen = [{}, *({site.id: "recompute"} for site in able[:2])]
        found = [bench.plan_under(choices) for choices in chosen]
        told = [(plan.text(), *(each.text for each in plan.passes), plan.graph.to_json(), plan.sites) for plan in found]
        return [renumbered([each if isinstance(each, str) else repr(each) for each in plan]) for plan in told]

    quickly = plans()
    with install.unpatched_thunder():
        assert plans() == quickly


@pytest.mark.parametrize("seed", range(40))
def test_duplicate_numbers_are_removed_as_in_shipped_thunder_without_copying_other_statements(seed: int) -> None:
    drawn = random.Random(seed)
    statement = symbol.Symbol("statement", meta=lambda number: None)
    with tracectx(TraceCtx(None)):
        numbers = [IntegerProxy(f"i{i}", value=i) for i in range(4)]
        tensors = [
            TensorProxy(f"t{i}", shape=(2,), device=devices.cpu, dtype=dtypes.float32, requires_grad=False)
            for i in range(3)
        ]
    bsyms = []
    for _ in range(8):
        outs: list[Any] = drawn.choices([*numbers, *tensors, 7, None], k=drawn.randrange(4))
        output = drawn.choice([tuple(outs), [tuple(outs[:1]), *outs[1:]], outs[0] if len(outs) == 1 else outs])
        bsyms.append(statement.bind(len(bsyms), output=output))
    ours = passes._remove_duplicate_number_proxies(bsyms)
    with install.unpatched_thunder():
        theirs = transform_common.remove_duplicate_number_proxies(bsyms)
    assert [repr(bsym.output) for bsym in ours] == [repr(bsym.output) for bsym in theirs]
    assert [type(bsym.output) for bsym in ours] == [type(bsym.output) for bsym in theirs]
    # Shipped Thunder copies all statements. The fast pass copies only statements whose outputs change.
    before = {identity(bsym): repr(bsym.output) for bsym in bsyms}
    copies = [bsym for bsym in ours if identity(bsym) not in before]
    assert all(repr(bsym.output) == before[identity(bsym)] for bsym in ours if bsym not in copies)
    assert len(copies) == sum(repr(bsym.output) not in before.values() for bsym in theirs)


@pytest.mark.parametrize("parallel", beyond(1, ["fsdp", "fsdp_zero3", "ddp"], pytest.mark.slow))
def test_waits_are_sorted_as_in_shipped_thunder(parallel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sorted_by: list[tuple[list[int], list[int]]] = []

    def both(trace: Any) -> Any:
        found = wait_sorting.sort_waits(trace)
        stock = wait_sorting._stock_sort_waits(trace)
        sorted_by.append(([id(b) for b in found.bound_symbols], [id(b) for b in stock.bound_symbols]))
        return found

    monkeypatch.setattr(distributed_utils, "sort_waits", both)
    net = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range(5)))
    bench = workbench.open(net, torch.ones(2, 8), device="cpu", executor="torch", ranks=4, parallel=parallel)
    assert bench.plan.graph.statements
    assert sorted_by
    for found, stock in sorted_by:
        assert found == stock


def test_a_copied_statement_keeps_facts_about_unchanged_parts() -> None:
    jitted = thunder.jit(Net())
    jitted(torch.ones(2, 4))
    bsym = next(b for b in thunder.last_traces(jitted)[0].bound_symbols if b.flat_proxy_args and b.subsymbols)
    known = bsym.flat_proxy_args, bsym.flat_proxy_outs
    same, other = bsym.from_bsym(header="told"), bsym.from_bsym(args=bsym.args[:1])
    assert same.flat_proxy_args is known[0]
    assert same.flat_proxy_outs is known[1]
    assert (same.header, same.tags is bsym.tags, same == bsym) == ("told", False, True)
    assert other.flat_proxy_args == known[0][:1]
    assert other != bsym
    here = {proxy.name for proxy in (*known[0], *known[1])}
    others = [out for b in thunder.last_traces(jitted)[0].bound_symbols for out in b.flat_proxy_outs]
    stranger = next(other for other in others if other.name not in here)
    assert bsym.from_bsym_swap_proxies({symbol.variableify(stranger): known[1][0]}) is bsym
    swapped = bsym.from_bsym_swap_proxies({symbol.variableify(known[0][0]): known[1][0]})
    assert swapped.flat_proxy_args[0] is known[1][0]
    assert bsym.flat_proxy_args is known[0]


def test_values_are_swapped_as_in_shipped_thunder() -> None:
    jitted = thunder.jit(Net())
    jitted(torch.ones(2, 4))
    statements = [b for trace in thunder.last_traces(jitted) for b in trace.bound_symbols if b.flat_proxy_args]
    chance = random.Random(0)
    outcomes = []
    for _ in range(300):
        bsym, *others = chance.sample(statements, 3)
        values = [*bsym.flat_proxy_args, *bsym.flat_proxy_outs]
        into = [None, None, 2, *values, *(value for other in others for value in other.flat_proxy_args)]
        swaps = {symbol.variableify(value): chance.choice(into) for value in chance.sample(values, min(2, len(values)))}
        skipped = {f"skip_{part}": chance.random() < 0.3 for part in ("inputs", "output", "subsymbols")}
        outcomes.append(
            [
                _swapped_by(swap, bsym, swaps, skipped)
                for swap in (symbol.BoundSymbol.from_bsym_swap_proxies, symbols._stock_swap)
            ]
        )
    assert [quickly for quickly, _ in outcomes] == [shipped for _, shipped in outcomes]
    told = [str(shipped) for _, shipped in outcomes]
    assert any("cycle" in each for each in told)
    assert any("cycle" not in each for each in told)


def _swapped_by(swap: Callable[..., Any], bsym: Any, swaps: Any, skipped: Mapping[str, bool]) -> Any:
    """Swap values. Return the parts of the new statement, with an object id for each value, or the error message."""

    def told(made: Any) -> Any:
        parts = pytree.tree_flatten((made.args, made.kwargs, made.output))[0]
        values = [id(part) if isinstance(part, thunder.core.proxies.Proxy) else part for part in parts]
        return str(made.sym.id), values, [told(sub) for sub in made.subsymbols]

    try:
        return told(swap(bsym, swaps, **skipped))
    except RuntimeError as error:
        return str(error)


def test_a_copy_whose_arguments_change_while_it_is_made_has_its_own_structure() -> None:
    jitted = thunder.jit(Net())
    jitted(torch.ones(2, 4))
    bsym = next(b for b in thunder.last_traces(jitted)[0].bound_symbols if len(b.args) > 1)

    def fewer(made: Any) -> None:
        made.args = made.args[:1]

    given = bsym.from_bsym(sym=dataclasses.replace(bsym.sym, _bind_postprocess=lambda made: None))
    assert structure_of(given.from_bsym()) is structure_of(given)
    object.__setattr__(given.sym, "_bind_postprocess", fewer)
    made = given.from_bsym()
    assert len(made.args) == 1
    assert structure_of(made) is not structure_of(given)
