"""Dynamo and the interpreter give equal statements and ids, unless only Dynamo's front end corrects an error.

Compiled modules behave like the original modules.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import hashlib
import json
import logging
import pickle
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from thunder.core.prims import PrimIDs
from thunder.core.proxies import Proxy
from thunder.core.pytree import tree_flatten
from torch import nn
from torch.distributed import ProcessGroup

import workbench
from tests.strategies import NAMESPACE, RandomProgram, programs
from tests.trial_counts import amount, beyond
from workbench.bench import Workbench
from workbench.compiler.driver.jit import proofs_of
from workbench.compiler.frontend import dynamo, dynamo_session, fx_to_thunder
from workbench.compiler.interop import dynamo_stance, thunder_patches
from workbench.compiler.trace.stable_ids import is_statement
from workbench.errors import ProgramError, WorkbenchError
from workbench.interop.torch_private import dynamo_config
from workbench.runs.measure import accuracy

BUILTIN = [
    ("mlp", {"layers": 2}),
    ("residual_chain", {"layers": 3, "grad": True}),
    ("llama", {"layers": 1, "dim": 16, "vocab": 32, "sequence": 8}),
    ("batch_norm", {}),
    ("dropout_mlp", {}),
    ("checkpoint_dropout", {}),
    ("adam", {}),
    ("torch_sgd", {}),
    ("lost_update", {}),
    ("return_source", {}),
    ("swap", {}),
]


def constant(leaf: Any) -> str:
    """Return a constant as text that is the same for both front ends."""
    # Two openings have different process groups, so all groups get the same text. Thunder marks a weak type by a last
    # underscore. The front ends differ in which types are weak, so remove the underscore.
    return "the ranks" if isinstance(leaf, ProcessGroup) else re.sub(r"^(thunder\.dtypes\.\w+?)_$", r"\1", repr(leaf))


def statements(bench: Workbench) -> list[tuple[str, ...]]:
    """Return the statements of the joint trace as text. Values are numbered by first use, and gradients are sorted."""
    numbers: dict[str, int] = {}

    def text(leaf: Any) -> str:
        return f"%{numbers.setdefault(leaf.name, len(numbers))}" if isinstance(leaf, Proxy) else constant(leaf)

    joint = bench._captured.context.joint
    told: list[tuple[str, ...]] = []
    for bsym in filter(is_statement, joint.bound_symbols):
        leaves = tree_flatten((bsym.args, bsym.kwargs, bsym.output))[0]
        if bsym.sym.id is PrimIDs.UPDATE_ALIASES:
            # The statement's pairs of input and output have no fixed order, so sort them by their inputs.
            pairs = sorted(zip(bsym.flat_proxy_args, bsym.flat_proxy_outs, strict=True), key=lambda pair: text(pair[0]))
            leaves = [leaf for pair in pairs for leaf in pair]
        told.append((bsym.sym.name, *map(text, leaves)))
    returned = joint.bound_symbols[-1].args[0]
    grads = returned["output"] if isinstance(returned["output"], tuple) else ()
    given = zip(returned["flat_args"], grads, strict=False) if "fw_flat_out" in returned else ()
    return [*told, *sorted((text(argument), text(grad)) for argument, grad in given if grad is not None)]


def terms(bench: Workbench) -> list[str]:
    """Return sorted hashes of the terms that the joint trace computes, because Thunder orders some terms by a set."""
    joint = bench._captured.context.joint
    known: dict[str, str] = {}
    told: list[str] = []

    def text(leaf: Any) -> str:
        return known.get(leaf.name, leaf.name) if isinstance(leaf, Proxy) else constant(leaf)

    for bsym in filter(is_statement, joint.bound_symbols):
        given = [text(leaf) for leaf in tree_flatten((bsym.args, bsym.kwargs))[0]]
        if bsym.sym.id is PrimIDs.UPDATE_ALIASES:
            # Each output is the value of the matching input after the statement.
            known.update(
                (out.name, f"after {text(arg)}")
                for arg, out in zip(bsym.flat_proxy_args, bsym.flat_proxy_outs, strict=True)
            )
            given.sort()
        told.append(hashlib.sha256(repr((bsym.sym.name, given)).encode()).hexdigest())
        for at, out in enumerate(bsym.flat_proxy_outs):
            known.setdefault(out.name, f"{told[-1]}.{at}")
    returned = joint.bound_symbols[-1].args[0]
    return sorted([*told, *(f"returned {text(leaf)}" for leaf in tree_flatten(returned["output"])[0])])


def unnumbered(text: str) -> str:
    return re.sub(r"\b(f?t)\d+\b", r"\1", text)


def sites(bench: Workbench) -> dict[str, tuple[Any, ...]]:
    found = {}
    for site in bench.sites():
        # Some reasons name values, whose numbers depend on the front end. Remove the numbers.
        why = {option: unnumbered(reason) for option, reason in site.illegal.items()}
        found[site.id] = (unnumbered(site.label), site.source, site.options, why)
    return found


def assert_same(one: Workbench, other: Workbench) -> None:
    assert (one.capture, other.capture) == ("dynamo", "interpreter")
    # If the terms are equal, do not compare statements, because the order of some statements depends on hashes.
    if terms(one) != terms(other):
        assert statements(one) == statements(other)
    assert one._captured.context.origins == other._captured.context.origins
    assert sites(one) == sites(other)
    assert one.config.fingerprint == other.config.fingerprint
    assert one.plan.peak_bytes == other.plan.peak_bytes


@pytest.mark.slow
@pytest.mark.parametrize(("name", "given"), beyond(5, BUILTIN, rows=True))
def test_both_front_ends_give_the_same_program(name: str, given: dict[str, Any]) -> None:
    assert_same(*(workbench.open(name, device="cpu", settings=given, capture=way) for way in ("dynamo", "interpreter")))


@pytest.mark.slow
@pytest.mark.drawn
@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    max_examples=amount(4, 10, 100),
    report_multiple_bugs=False,
)
@given(programs(random=True))
def test_both_front_ends_give_the_same_random_program(program: RandomProgram) -> None:
    # An input that the program returns is not in Dynamo's graph. With the interpreter, the trace returns this input and
    # requests its gradient. Therefore, skip programs that return an input.
    assume(not any(input.name in program.returned for input in program.inputs))
    assume(comparable(program))
    benches = []
    for way in ("interpreter", "dynamo"):
        function, args, _ = program.build()
        try:
            benches.insert(0, workbench.open(function, *args, capture=way))
        except ProgramError:
            assume(way == "dynamo")
            raise
    assert_same(*benches)


MENDED = ("clamp", "detach", "lerp")
"""Operations for which the two front ends give different statements."""


def comparable(program: RandomProgram) -> bool:
    """Return whether both front ends give the same statements for a program.

    The Dynamo front end corrects errors of Thunder, for example with mixed precision. The interpreter only warns of
    them. Dynamo has one input for an argument that is passed twice, and no node for an index that nothing reads. For
    programs with different statements, `test_uncommon_operators.py` compares results.
    """
    precisions = set(re.findall(r"\bb?float\d+\b", repr(program)))
    if program.shared or len(precisions) > 1 or any(name in line for line in program.lines for name in MENDED):
        return False
    unread = re.search(r"^    (v\d+) = \w+\[.*\]\n(?![\s\S]*\b\1\b)", program.source, re.MULTILINE)
    names = (input.name for input in program.inputs)
    values: dict[str, Any] = dict(zip(names, program.arguments(), strict=True))
    exec("\n".join(program.lines), dict(NAMESPACE), values)
    return unread is None and all(value.ndim for value in values.values() if isinstance(value, torch.Tensor))


class Tower(nn.Module):
    """A module that writes buffers in place, has a region without gradients, and returns an input and a string."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Linear(12, 6)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.seen = 0

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> Answer:
        self.seen += 1
        self.calls.add_(1)
        with torch.no_grad():
            size = (x * x).mean() + self.up.weight.abs().mean()
        hidden = torch.tanh(self.norm(self.up(x)))
        return Answer(self.down(hidden) * size * scale, x, "tower", hidden if self.training else None)


@dataclasses.dataclass
class Answer:
    out: torch.Tensor
    given: torch.Tensor
    name: str
    hidden: torch.Tensor | None


def tower() -> Tower:
    torch.manual_seed(3)
    return Tower()


def batch(size: int = 4) -> torch.Tensor:
    return torch.randn(size, 6, generator=torch.Generator().manual_seed(size))


@pytest.fixture(scope="module")
def bench() -> Workbench:
    return workbench.open(tower(), batch())


def test_a_bench_a_plan_and_a_config_report_that_dynamo_captured_the_module(bench: Workbench) -> None:
    assert (bench.capture, bench.config.capture) == ("dynamo", "dynamo")
    assert "one graph" in bench.capture_reason
    assert bench.plan.to_json()["capture"] == "dynamo"
    assert "by dynamo" in repr(bench)
    assert "capture='dynamo'" in bench.config.text().replace('"', "'")


@pytest.mark.slow
def test_a_compiled_module_trains_as_the_module_does(bench: Workbench) -> None:
    ours, theirs = tower(), tower()
    compiled = bench.config.jit(ours)
    optimizers = [torch.optim.SGD(module.parameters(), lr=0.1) for module in (compiled, theirs)]
    for size in (4, 4, 7, 3):
        answers = [module(batch(size)) for module in (compiled, theirs)]
        for answer, optimizer in zip(answers, optimizers, strict=True):
            optimizer.zero_grad()
            (answer.out.square().mean() + answer.hidden.mean()).backward()
            optimizer.step()
        torch.testing.assert_close(answers[0].out, answers[1].out)
    assert isinstance(answers[0], Answer)
    assert answers[0].name == "tower"
    assert ours.seen == theirs.seen == 4
    torch.testing.assert_close(compiled.state_dict(), theirs.state_dict())
    assert [name for name, _ in compiled.named_parameters()] == [name for name, _ in theirs.named_parameters()]


def of_another_process(compiled: Any) -> Any:
    return pickle.loads(pickle.dumps(compiled))


@pytest.mark.slow
@pytest.mark.parametrize("copied", [copy.deepcopy, of_another_process])
def test_a_compiled_module_is_copied_and_pickled(bench: Workbench, copied: Callable[[Any], Any]) -> None:
    """`torch.optim.swa_utils.AveragedModel` copies a model for a running average of its weights."""
    ours = tower()
    compiled = bench.config.jit(ours)
    compiled(batch()).out.sum().backward()
    other = copied(compiled)
    torch.testing.assert_close(other(batch()).out, compiled(batch()).out)
    assert [proof.proven for proof in proofs_of(other)] == [True], (
        "the copy must be compiled again, with the same choices"
    )
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    torch.testing.assert_close(compiled(batch()).out, ours(batch()).out)
    assert not torch.equal(other(batch()).out, ours(batch()).out)


def test_a_module_compiled_with_own_transforms_is_not_copied(bench: Workbench) -> None:
    with pytest.raises(WorkbenchError, match="copy the module, and compile the copy"):
        copy.deepcopy(bench.config.jit(tower(), transforms=[]))


def test_a_compiled_module_has_the_training_mode_of_its_module(bench: Workbench) -> None:
    ours = tower().eval()
    compiled = bench.config.jit(ours)
    assert not compiled.training
    ours.train()
    assert compiled.training
    compiled.training = False
    assert not ours.training
    assert ours.norm.training
    assert not copy.deepcopy(compiled).training


@pytest.mark.slow
def test_a_compiled_module_obeys_the_modes_at_each_call(bench: Workbench) -> None:
    ours, theirs = tower(), tower()
    compiled = bench.config.jit(ours)
    compiled(batch())
    theirs(batch())
    compiled.eval()
    assert not ours.training
    assert not ours.norm.training
    with torch.no_grad(), warnings.catch_warnings(action="ignore"):
        answer = compiled(batch())
    torch.testing.assert_close(answer.out, theirs.eval()(batch()).out)
    assert not answer.out.requires_grad
    assert answer.hidden is None
    given = batch()
    assert compiled.train()(given, scale=2.0).given is given


@pytest.mark.slow
def test_several_forwards_may_precede_a_backward(bench: Workbench) -> None:
    grads = []
    for compile_module in (bench.config.jit, lambda module: module):
        module = tower()
        run = compile_module(module)
        losses = [run(batch(size)).out.square().sum() for size in (4, 5, 4)]
        for loss in losses:
            loss.backward()
        grads.append({name: parameter.grad for name, parameter in module.named_parameters()})
    torch.testing.assert_close(*grads)


def logged(x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, ...]:
    loss = (x.sin() * scale).sum()
    return loss, loss.detach() * 2, scale.exp(), x


def logged_in_parts(x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (*logged(x, scale), torch.exp(torch.complex(x, x)).abs().sin())


@pytest.mark.parametrize("program", beyond(1, [logged, logged_in_parts], pytest.mark.slow))
def test_outputs_require_gradients_as_in_eager(program: Callable[..., Any]) -> None:
    arguments = torch.randn(4, requires_grad=True), torch.randn(4)
    bench = workbench.open(program, *arguments, device="cpu", executor="torch")
    assert (len(bench.parts) > 1) == (program is logged_in_parts)
    made, expected = bench.config.jit(program)(*arguments), program(*arguments)
    needed = [value.requires_grad for value in expected]
    assert [value.requires_grad for value in made] == needed
    assert needed[:4] == [True, False, False, True]
    for value, known in zip(made, expected, strict=True):
        assert torch.allclose(value, known)
    (gradient,) = torch.autograd.grad(made[0], arguments[:1])
    assert torch.allclose(gradient, arguments[0].cos() * arguments[1])


@pytest.mark.slow
def test_choices_made_with_one_front_end_replay_with_the_other() -> None:
    def build() -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 6), nn.Tanh()), (batch(),), {}

    module, args, _ = build()
    bench = workbench.open(module, *args, capture="interpreter")
    bench.choose({"saved:1/gelu>mul.1": "recompute"})
    for way in ("dynamo", "interpreter"):
        config = dataclasses.replace(bench.config, capture=way)
        module, args, kwargs = build()
        stepper = accuracy.Stepper(module, args, kwargs, config.jit(module))
        assert accuracy.check_first_step(accuracy.first_step(stepper, 0), build, capture=way).ok
        assert stepper.run._lc_cs.last_traces


def test_a_program_with_a_graph_break_is_captured_in_parts_with_the_reason() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x * 2

    bench = workbench.open(broken, batch())
    assert bench.capture == "parts"
    assert "test_dynamo.py:" in bench.capture_reason
    with pytest.raises(ProgramError, match=r"test_dynamo.py:\d+ \(torch._dynamo.graph_break\(\)\): Dynamo gives no"):
        workbench.open(broken, batch(), capture="dynamo")


def test_lists_and_ranges_are_arguments_of_operators() -> None:
    def lists(x: torch.Tensor) -> torch.Tensor:
        made = torch.cat([x.expand([2, 4, 6]), x.new_ones([1, 4, 6])]).sum([0, 1])
        made[range(4)] = x[range(4), range(4)]
        return made

    bench = workbench.open(lists, batch(), capture="dynamo")
    assert bench.plan.text()
    torch.testing.assert_close(bench.config.jit(lists)(batch()), lists(batch()))


def test_an_operator_that_thunder_lacks_is_refused_with_the_line() -> None:
    def unknown(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.tests_dynamo.mystery(x)[0]

    library = torch.library.Library("tests_dynamo", "DEF")
    library.define("mystery(Tensor x) -> Tensor[]")
    library.impl("mystery", lambda x: [x.clone()], "CompositeExplicitAutograd")
    with pytest.raises(ProgramError, match=r"test_dynamo.py:\d+ \(return torch.*torch.ops.tests_dynamo.mystery.*write"):
        workbench.open(unknown, batch(), capture="dynamo")


def test_a_model_on_the_meta_device_is_planned() -> None:
    with torch.device("meta"):
        model, x = nn.Sequential(nn.Linear(6, 1 << 20), nn.ReLU(), nn.Linear(1 << 20, 6)), torch.randn(4, 6)
    bench = workbench.open(model, x, device="planned", executor="torch")
    assert bench.capture == "dynamo"
    assert bench.plan.baseline_bytes > 48 << 20
    assert all(parameter.is_meta for parameter in model.parameters())


@pytest.mark.slow
def test_ops_that_are_registered_by_thunder_are_planned_for_an_absent_gpu() -> None:
    def registered(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        y = torch.roll(torch.addmm(bias, x, weight), 1, 0)
        y, _ = torch.cummax(torch.logcumsumexp(y, 0), 1)
        z = nn.functional.pixel_shuffle(y.view(1, 4, 2, 3), 2)
        steps = torch.diff(torch.arange(6, device=x.device))
        return z.sum() + torch.logaddexp(y, y).mean() + torch.kthvalue(y, 2)[0].sum() + steps.sum()

    args = [torch.randn(shape, requires_grad=True) for shape in ((4, 3), (3, 6), (6,))]
    here, planned = (
        workbench.open(registered, *args, device=device, executor="torch") for device in ("cpu", "planned")
    )
    assert "cuda:0" in planned.plan.text()
    assert planned.plan.text().replace("cuda:0", "cpu") == here.plan.text()


@pytest.mark.slow
@pytest.mark.parametrize("capture", ["dynamo", "interpreter"])
def test_compiled_code_is_freed_with_its_callable(capture: str) -> None:
    import gc
    import weakref

    module = nn.Sequential(nn.Linear(6, 6))
    compiled = workbench.open(module, batch(), capture=capture).config.jit(module)
    compiled(batch())
    gone = weakref.ref(module)
    del module, compiled
    gc.collect()
    assert gone() is None


def test_a_function_of_main_reads_the_globals_of_its_own_module() -> None:
    """Functions of a script or notebook are in `__main__`. In a run's process, `__main__` is a different module."""
    source = """
def within(x):
    return torch.sin(x) * scale

def program(x):
    return within(x).sum()
"""
    names: dict[str, Any] = {"__name__": "__main__", "torch": torch, "scale": 2.0}
    exec(source, names)
    program, x = names["program"], torch.randn(4, requires_grad=True)
    compiled = workbench.open(program, x, device="cpu", capture="dynamo").config.jit(program)
    torch.testing.assert_close(compiled(x), program(x))
    names["scale"] = 3.0
    torch.testing.assert_close(compiled(x), program(x))


def test_a_logger_method_that_is_added_later_does_not_break_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("tried")

    def logs(x: torch.Tensor) -> torch.Tensor:
        logger.once_more("said")  # type: ignore[attr-defined]
        return x * 2

    with dynamo_session.dynamo_settings():
        pass
    monkeypatch.setattr(logging.Logger, "once_more", lambda self, message: self.info(message), raising=False)
    assert dynamo.whole_graph(logs, (torch.ones(2),), {}).graph is not None


def test_if_pytorch_cannot_log_its_settings_opening_gives_no_message(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    noted: list[str] = []

    def note() -> str:
        # PyTorch 2.11 fails in this way: it excludes this setting only by an outdated name, and cannot sort functions.
        sets = {"ignore_logging_functions": dynamo_session.dynamo_config.ignore_logger_methods}
        noted.append(json.dumps({name: sorted(value) for name, value in sets.items()}))
        return noted[-1]

    monkeypatch.setattr(torch._dynamo.utils, "_get_dynamo_config_for_logging", note)
    # By default, PyTorch's loggers do not propagate, so the test would see no message.
    monkeypatch.setattr(logging.getLogger("torch"), "propagate", True)
    logger = logging.getLogger("tried")

    def logs(x: torch.Tensor) -> torch.Tensor:
        logger.info("said")
        return x * 2

    with caplog.at_level(logging.ERROR):
        assert dynamo.whole_graph(logs, (torch.ones(2),), {}).graph is not None
    assert noted, "PyTorch did not log its settings"
    assert not caplog.records
    assert torch._dynamo.utils._get_dynamo_config_for_logging is note


def test_calls_that_match_compiled_code_do_not_touch_dynamos_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[int] = []
    stock = dynamo_session.dynamo_settings

    def noting(limit: int) -> contextlib.AbstractContextManager[None]:
        entered.append(limit)
        return stock(limit)

    run = workbench.open(torch.sin, torch.ones(3), device="cpu", capture="dynamo").config.jit(torch.sin)
    monkeypatch.setattr(dynamo_session, "dynamo_settings", noting)
    before = {name: getattr(dynamo_config, name) for name in dynamo_session._SETTINGS}
    counts = []
    for x in (torch.ones(3), torch.zeros(3), torch.ones(3), torch.ones(4), torch.zeros(4)):
        assert torch.equal(run(x), torch.sin(x))
        counts.append(len(entered))
    compiled, known, again, anew, known_too = counts
    assert 0 < compiled == known == again < anew == known_too
    assert before == {name: getattr(dynamo_config, name) for name in dynamo_session._SETTINGS}


class _Held(nn.Module):
    """A module with a frozen parameter, other parameters, and a buffer. One of its two results is an argument."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.frozen = torch.nn.Parameter(torch.ones(3), requires_grad=False)
        self.register_buffer("scale", torch.full((3,), 2.0))

    def forward(self, x: torch.Tensor, *, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.linear(x) * self.scale + self.frozen + bias, x


def test_the_trace_for_a_plan_equals_the_trace_by_thunders_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[object, ...]] = []

    def noted(source: fx_to_thunder.GraphSource, found: Any) -> Any:
        computation, epilogue = found.computation_trace, found.epilogue_trace
        arguments = [vars(proxy) | {"history": None} for proxy in computation.args]
        signature = (str(computation.siginfo()), computation.name_ctr, set(computation.names))
        # Leave out lines with ``<graph>``: they have the source of a statement, which differs between the two traces.
        text = [line for line in str(computation).splitlines() if "<graph>" not in line and line]
        told.append((text, arguments, signature, str(epilogue)))
        return traced(source, found)

    traced = fx_to_thunder._results
    monkeypatch.setattr(fx_to_thunder, "_results", noted)
    given = {"bias": torch.zeros(3)}
    workbench.open(_Held(), torch.ones(2, 3), **given)
    monkeypatch.setattr(thunder_patches, "trace_for_plan", contextlib.nullcontext)
    workbench.open(_Held(), torch.ones(2, 3), **given)
    planned, interpreted = told
    assert planned == interpreted


@pytest.fixture
def said(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Set a stance of `torch.compile`, as a user may do. Yield the stance, and reset it."""
    torch.compiler.set_stance(**request.param)
    yield request.param
    torch.compiler.set_stance("default")


@pytest.mark.parametrize(
    "said",
    beyond(
        1, [{"stance": "force_eager"}, {"stance": "fail_on_recompile"}, {"force_backend": "eager"}], pytest.mark.slow
    ),
    ids=["eager", "fails", "another backend"],
    indirect=True,
)
def test_a_users_stance_of_torch_compile_does_not_reach_thunder(said: dict[str, str]) -> None:
    """Opening and running ignore the stance. For functions that the user compiles, the stance still applies."""
    model, x = nn.Sequential(nn.Linear(4, 8), nn.Tanh()), torch.randn(3, 4)
    bench = workbench.open(model, x, device="cpu", executor="torch")
    assert (bench.capture, bench.capture_reason) == ("dynamo", "Dynamo gives the whole program as one graph")
    jitted = bench.config.jit(model)
    made = jitted(x)
    torch.testing.assert_close(made, model(x))
    assert "Thunder" in type(made.grad_fn).__name__
    torch.testing.assert_close(jitted(x[:2]), model(x[:2]))
    region = dynamo_stance.ignore_stance(
        torch.compile(torch.sin, backend=lambda graph, _: lambda *given: (graph(*given)[0] + 1,))
    )
    assert torch.equal(region(x), x.sin() + 1)
    of_the_person = torch.compile(torch.sin, backend=refuses)
    if said.get("stance") == "fail_on_recompile":
        with pytest.raises(RuntimeError, match="fail_on_recompile"):
            of_the_person(x)
    else:
        assert torch.equal(of_the_person(x), x.sin())


def refuses(graph: Any, given: Any) -> Any:
    raise AssertionError("torch.compile compiled the function")
