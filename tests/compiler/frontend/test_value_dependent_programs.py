"""Programs that read tensors' values in Python, or that differentiate twice, open in parts and train as in PyTorch."""

from __future__ import annotations

import dataclasses
import logging
import random
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._dynamo import utils
from torch._dynamo.variables.tensor import TensorVariable
from torch.nn import functional
from torch.nn.utils import rnn
from torch.utils.checkpoint import checkpoint

import workbench
from tests.models.trial import chosen
from workbench.bench.session.multi_graph import PartsBench
from workbench.compiler.driver import capture, capture_parts
from workbench.compiler.frontend import dynamo, graph_breaks
from workbench.errors import ProgramError
from workbench.interop.torch_private import eval_frame
from workbench.runs.measure import accuracy

type Built = tuple[nn.Module, tuple[torch.Tensor, ...]]


class TwoLayers(nn.Module):
    """Two layers. `between` transforms the first layer's result before the second layer reads it."""

    def __init__(self, between: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.first, self.second, self.between = nn.Linear(16, 16), nn.Linear(16, 4), between

    def forward(self, x: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
        return self.second(self.between(self.first(x).relu(), *more)).tanh().sum()


def branch(h: torch.Tensor) -> torch.Tensor:
    return h if torch.isfinite(h).all() else h.clamp(-10, 10)


def select(h: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return h[mask]


def item(h: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    return h[: count.item()] * 2


def split(h: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
    return torch.cat([part * at for at, part in enumerate(h.split(sizes.tolist()), 1)])


def by_numpy(h: torch.Tensor) -> torch.Tensor:
    return h[torch.from_numpy(h.detach().sum(1).numpy().argsort().copy())]


def mapped(h: torch.Tensor) -> torch.Tensor:
    return h.masked_fill(torch.vmap(lambda i: torch.arange(16) <= i)(torch.arange(8)), 0)


def by_keywords(h: torch.Tensor) -> torch.Tensor:
    return (h.reshape(shape=(8, 16)) * torch.arange(end=16)).reshape(8, 16)


def overwrite(h: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    h, rows = h * 2, mask.nonzero(as_tuple=True)
    if mask.any().item():
        h[rows] = h.new_zeros(rows[0].numel(), 16)
    return h


def by_chance(h: torch.Tensor) -> torch.Tensor:
    return h.sin() if random.random() + np.random.rand() < 2 and h.sum() > -1e9 else h  # noqa: NPY002


MASK = torch.tensor([1, 0, 1, 1, 0, 1, 0, 0], dtype=torch.bool)


def between(function: Callable[..., torch.Tensor], *more: torch.Tensor) -> Callable[[], Built]:
    def build() -> Built:
        torch.manual_seed(0)
        return TwoLayers(function), (torch.randn(8, 16), *more)

    return build


class Labels(nn.Module):
    """A classification loss that leaves out negative labels, as DeBERTa's does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits, kept = self.layer(x), (labels >= 0).nonzero()
        if kept.size(0) > 0:
            taken = logits.gather(0, kept.expand(kept.size(0), 4))
            return functional.cross_entropy(taken, labels.gather(0, kept.view(-1)))
        return logits.sum() * 0


class Equation(nn.Module):
    """A module whose loss depends on a derivative of the network with respect to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 16), nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        u = self.second(self.first(x).tanh())
        (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        return (slope**2).sum() + (u**2).mean()


class Projected(Equation):
    """A loss of second derivatives along a random direction, as in sliced score matching."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(self.second(self.first(x).tanh()).sum(), x, create_graph=True)
        direction = torch.randn_like(x)
        (bend,) = torch.autograd.grad((slope * direction).sum(), x, create_graph=True)
        return (bend * direction).sum(1).mean() + slope.pow(2).mean()


class Functional(Equation):
    """The loss of `Equation`, computed with `torch.func`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def u(point: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(point).tanh()).squeeze(-1)

        return (torch.func.vmap(torch.func.grad(u))(x) ** 2).sum()


class Packed(nn.Module):
    """A recurrent network on sequences of several lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.out = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 2)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        h, _ = rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.out(h).tanh().sum()


class Experts(nn.Module):
    """A mixture of experts as a loop over experts. Each expert reads only the rows that are routed to it."""

    def __init__(self) -> None:
        super().__init__()
        self.router, self.experts = nn.Linear(16, 4), nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.router(x).softmax(-1).topk(2, -1)
        made = torch.zeros_like(x)
        for at, expert in enumerate(self.experts):
            row, column = torch.where(chosen == at)
            if row.numel():
                made = made.index_add(0, row, expert(x[row]) * weights[row, column, None])
        return made.sum()


class Early(nn.Module):
    """A module with a loop that ends early. Code after the loop reads further elements from the loop's iterator."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ahead = iter(self.layers)
        for at, layer in enumerate(ahead):
            x = layer(x).tanh()
            if x.abs().max() < 1e9 and at == 1:
                break
        for layer in ahead:
            x = layer(x).sin()
        return x.sum()


class Adversaries(nn.Module):
    """A training step of a generator and a critic. Both losses use the same output of the generator."""

    def __init__(self) -> None:
        super().__init__()
        self.generator, self.critic = nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
        self.generator_steps = torch.optim.SGD(self.generator.parameters(), 1e-2)
        self.critic_steps = torch.optim.SGD(self.critic.parameters(), 1e-2)

    def forward(self, noise: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        fake = self.generator(noise)
        loss = self.critic(fake.detach()).mean() - self.critic(real).mean()
        self.critic_steps.zero_grad()
        loss.backward()
        self.critic_steps.step()
        other = -self.critic(fake).mean()
        self.generator_steps.zero_grad()
        other.backward()
        self.generator_steps.step()
        return (loss + other).detach()


class Step(nn.Module):
    """A training step. Arguments select the optimizer, autocast, and a check of the gradients' norm."""

    def __init__(self, optimizer: Callable[..., Any], *, autocast: bool = False, checked: bool = False) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))
        self.optimizer, self.autocast, self.checked = optimizer(self.model.parameters()), autocast, checked

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            loss = functional.cross_entropy(self.model(x), labels)
        loss.backward()
        if not self.checked or nn.utils.clip_grad_norm_(self.model.parameters(), 1.0).item() < 1e3:
            self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


class Reentrant(nn.Module):
    """A model with a reentrant checkpoint. The checkpoint's backward recomputes the region and differentiates it."""

    def __init__(self) -> None:
        super().__init__()
        self.region, self.out = nn.Sequential(nn.Linear(16, 16), nn.Tanh()), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = checkpoint(self.region, x.detach().requires_grad_(), use_reentrant=True)
        return self.out(h).tanh().sum()


class Hooked(nn.Module):
    """A model whose modules have hooks that change gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 4)
        self.first.register_full_backward_hook(lambda module, given, asked: (given[0] * 2,))
        self.second.register_full_backward_pre_hook(lambda module, asked: (asked[0] * 3,))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x.detach().requires_grad_()).tanh()).sum()


class Writes(nn.Module):
    """A model in which one part writes into a result of the part before it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(16, 16), nn.Linear(16, 4), nn.BatchNorm1d(16)
        self.register_buffer("sums", torch.zeros(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(self.first(x))
        self.sums.add_(h.detach().mean(0))
        if self.sums.abs().max() > 1e9:
            self.sums.zero_()
        h[:4].mul_(2)
        if h.sum() > -1e9:
            h.add_(1)
        return self.second(h).tanh().sum() + self.sums.sum()


class Tied(nn.Module):
    """A model in which several parts read one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.layer, self.out = nn.Embedding(20, 16), nn.Linear(16, 16), nn.Linear(16, 20, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        h = self.layer(self.embedding(ids)).tanh()
        if not torch.isfinite(h).all():
            h = h * 0
        return functional.cross_entropy(self.out(h)[ids > 3], ids[ids > 3])


class Unused(nn.Module):
    """A model in which one part has a result that receives no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.other = nn.Linear(16, 16), nn.Linear(16, 4), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        h = self.first(x).relu()
        other = self.other(h)
        if h.sum() < 0:
            return {"loss": other.sum()}
        return {"loss": self.second(h).tanh().sum(), "other": other.detach()}


class Twice(nn.Module):
    """A training step that runs the backward of one graph twice."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-2)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = self.model(x)
        loss = functional.cross_entropy(logits, labels)
        loss.backward(retain_graph=True)
        size = logits.square().mean()
        size.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return (loss + size).detach()


def made(make: Callable[[], nn.Module], *shapes: tuple[int, ...], labels: int = 0) -> Callable[[], Built]:
    def build() -> Built:
        torch.manual_seed(0)
        given = [torch.randn(shape) for shape in shapes]
        return make(), (*given, *([torch.randint(0, 4, (labels,))] if labels else []))

    return build


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 1e-2)


def foreach(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, 1e-2, foreach=True)


def packed() -> Built:
    torch.manual_seed(0)
    return Packed(), (torch.randn(4, 6, 8), torch.tensor([6, 3, 4, 2]))


def tied() -> Built:
    torch.manual_seed(0)
    return Tied(), (torch.randint(0, 20, (4, 6)),)


def labelled() -> Built:
    torch.manual_seed(0)
    return Labels(), (torch.randn(8, 16), torch.tensor([0, 1, -1, 2, 3, -1, 0, 1]))


PROGRAMS: dict[str, Callable[[], Built]] = {
    "a branch": between(branch),
    "rows by a mask": between(select, MASK),
    "a number as a size": between(item, torch.tensor(5)),
    "sizes of a split": between(split, torch.tensor([3, 5])),
    "NumPy": between(by_numpy),
    "vmap": between(mapped),
    "rows that are written": between(overwrite, MASK),
    "keywords": between(by_keywords),
    "random numbers of Python and NumPy": between(by_chance),
    "rows of a loss": labelled,
    "a derivative": made(Equation, (8, 2)),
    "torch.func": made(Functional, (8, 2)),
    "packed sequences": packed,
    "experts in a loop": made(Experts, (12, 16)),
    "an iterator after its loop": made(Early, (8, 16)),
    "two optimizers": made(Adversaries, (6, 4), (6, 8)),
    "AdamW with foreach": made(lambda: Step(foreach), (8, 16), labels=8),
    "autocast around the loss": made(lambda: Step(sgd, autocast=True), (8, 16), labels=8),
    "a reentrant checkpoint": made(Reentrant, (8, 16)),
    "backward hooks": made(Hooked, (8, 16)),
    "a write into another part's result": made(Writes, (8, 16)),
    "a tied weight": tied,
    "an unused result": made(Unused, (8, 16)),
    "two backwards through one graph": made(Twice, (8, 16), labels=8),
    "a clipped gradient": made(lambda: Step(sgd, checked=True), (8, 16), labels=8),
}
OFTEN = ("a branch", "a derivative", "experts in a loop", "a write into another part's result")
"""Programs that all test runs try. Only `make long` tries the others."""


LONG_IN_THUNDER = ("a reentrant checkpoint",)
"""Programs that unmodified Thunder traces for minutes. They are compared with eager PyTorch only."""


def refuse(*_: Any, **__: Any) -> Callable[..., Any]:
    """Stand in for unmodified Thunder: return a compiled program that raises an error when it is called."""

    def compiled(*_: Any, **__: Any) -> Any:
        raise NotImplementedError("unmodified Thunder needs minutes")

    return compiled


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in OFTEN else pytest.mark.long) for name in PROGRAMS]
)
def test_a_program_trains_as_in_pytorch(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = PROGRAMS[name]
    if name in LONG_IN_THUNDER:
        monkeypatch.setattr(accuracy, "compile_unmodified", refuse)
    model, args = build()
    bench = workbench.open(model, *args, device="cpu")
    chosen(bench, len(name), 10)
    config = workbench.load(bench.export(tmp_path / "choices.py"))
    model, args = build()
    stepper = accuracy.Stepper(model, args, {}, config.jit(model))
    first = accuracy.first_step(stepper, 0)
    checked = accuracy.check_first_step(
        first, lambda: (*build(), {}), capture=config.capture, uncompiled=config.uncompiled
    )
    assert checked.ok, checked.why
    assert {tensor.name.partition("(")[0].partition("[")[0] for tensor in checked.tensors} > {"output"}
    model, args = build()
    eager = accuracy.Stepper(model, args, {})
    eager.step()
    loss = eager.step()
    assert_equal(stepper.step(), loss, "autocast" in name)


def assert_equal(ours: Any, theirs: Any, half: bool) -> None:
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for name in theirs:
            assert_equal(ours[name], theirs[name], half)
        return
    torch.testing.assert_close(ours, theirs, rtol=1e-2 if half else 1e-5, atol=1e-5)


def test_a_branch_on_values_splits_a_program_into_planned_parts() -> None:
    model, args = PROGRAMS["a branch"]()
    bench = workbench.open(model, *args, device="cpu")
    assert isinstance(bench, PartsBench)
    assert not any(part.opaque for part in bench.parts)
    assert bench.parts[0].sites("saved")
    line = (
        r"\S*test_value_dependent_programs.py:\d+ \(return h if torch.isfinite\(h\).all\(\) else h.clamp\(-10, 10\)\)"
    )
    assert re.fullmatch(
        f"not as one graph: {line}: values decide which code runs: choose with torch.where, or pass the decision to "
        "the program as a bool; the program reads values between its graphs, so a copy of the program ran with real "
        "tensors, and the plans of the parts depend on the values in this copy",
        bench.capture_reason,
    )
    assert re.fullmatch(f"{line}: a branch depends on values of tensors", bench.parts[0].cut)
    assert bench.memory is not None
    assert bench.memory.at_least


def mean_of_positive(x: torch.Tensor) -> torch.Tensor:
    found = x[x > 0]
    return x * found.mean() if found.numel() > 0 else x


def scattered(x: torch.Tensor) -> torch.Tensor:
    return x.masked_scatter(x > 0, x[x > 0].sin()).cos()


def packed(x: torch.Tensor) -> torch.Tensor:
    return rnn.pad_packed_sequence(rnn.pack_padded_sequence(x, [len(x)] * x.shape[1]))[0]


@pytest.mark.parametrize("reads", [branch, mean_of_positive, scattered, packed])
def test_a_program_that_reads_values_is_not_run_with_fake_tensors(
    reads: Callable[[torch.Tensor], torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[bool] = []
    stock = graph_breaks.pieces_of

    def pieces_of(*args: Any, **options: Any) -> Any:
        calls.append(options["with_values"])
        return stock(*args, **options)

    monkeypatch.setattr(graph_breaks, "pieces_of", pieces_of)
    opened = workbench.open(TwoLayers(reads), torch.randn(4, 16), device="cpu")
    assert isinstance(opened, PartsBench)
    assert calls == [True], "a copy with fake tensors ran, although a program that reads values fails on them"


def selects(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].sin().sum()


def finds(x: torch.Tensor) -> torch.Tensor:
    return x[x.nonzero(as_tuple=True)[0]].sin().sum()


@pytest.mark.parametrize(("program", "operator"), [(selects, "_operator.getitem"), (finds, "torch.Tensor.nonzero")])
def test_dynamo_stops_at_a_size_that_depends_on_values(
    program: Callable[[torch.Tensor], torch.Tensor], operator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs: list[torch.fx.GraphModule] = []
    stock = dynamo.prepare_graph

    def prepare_graph(*given: Any, **options: Any) -> Any:
        graphs.append(given[3])
        return stock(*given, **options)

    monkeypatch.setattr(dynamo, "prepare_graph", prepare_graph)
    told = f"Thunder cannot trace {operator}: the shape of the result depends on values"
    with pytest.raises(workbench.ProgramError, match=re.escape(told)):
        workbench.open(program, torch.randn(4, 4), device="cpu", capture="dynamo")
    assert not graphs, "Dynamo traced the program to its end"


@pytest.mark.slow
def test_all_experts_of_a_loop_are_planned() -> None:
    model, args = PROGRAMS["experts in a loop"]()
    bench = workbench.open(model, *args, device="cpu")
    assert len(bench.parts) == 5
    assert not any(part.opaque for part in bench.parts)


@pytest.mark.slow
def test_opening_with_values_changes_no_random_state() -> None:
    model, args = PROGRAMS["random numbers of Python and NumPy"]()
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    bench = workbench.open(model, *args, device="cpu")
    assert "depend on the values in this copy" in bench.capture_reason
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (random.getstate(), np.random.get_state()[1].tolist())  # noqa: NPY002


@pytest.mark.parametrize(
    "reads", [lambda x: x.sin() * x.max().item(), lambda x: (x.sin(), x.tolist())], ids=["item", "tolist"]
)
def test_a_program_that_reads_values_opens_without_warnings_of_dynamo(
    reads: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    # Dynamo warns only once in a process. Clear the caches of given warnings, so that Dynamo would warn again.
    utils.warn_once_cache.clear()
    TensorVariable._warn_capture_scalar_outputs.cache_clear()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("ignore")
        warnings.simplefilter("default", UserWarning)
        workbench.open(reads, torch.ones(4, 4), device="cpu")
    assert not [str(warning.message) for warning in warned]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.slow
def test_a_write_into_the_result_of_a_part_opens_without_a_traceback_and_with_a_peak(
    capsys: pytest.CaptureFixture[str],
) -> None:
    model, args = PROGRAMS["rows that are written"]()
    bench = workbench.open(model, *args, device="cpu")
    assert bench.memory is not None
    assert not capsys.readouterr().err


@pytest.mark.slow
def test_an_error_of_a_part_that_pytorch_runs_is_raised_and_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    model, args = PROGRAMS["rows that are written"]()
    run = workbench.open(model, *args, device="cpu").config.jit(model)
    run(*args)
    with pytest.raises(IndexError):
        run(args[0], torch.ones(9, dtype=torch.bool))
    assert not capsys.readouterr().err


@pytest.mark.slow
def test_opening_with_values_changes_no_tensor() -> None:
    model, args = PROGRAMS["a clipped gradient"]()
    before = [tensor.clone() for tensor in (*model.parameters(), *args)]
    workbench.open(model, *args, device="cpu")
    assert all(map(torch.equal, before, (*model.parameters(), *args)))
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not model.optimizer.state


@pytest.mark.slow
def test_a_part_that_is_differentiated_twice_is_reported() -> None:
    model, args = PROGRAMS["a derivative"]()
    bench = workbench.open(model, *args, device="cpu")
    assert [part.refusal.partition(" (")[0] for part in bench.parts if part.opaque] == [
        "its gradient is differentiated again"
    ]


def test_a_program_that_fails_in_pytorch_is_refused_with_its_line() -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        return x @ x[: int(x.sum().abs().item()) + 1]

    said = r"test_value_dependent_programs.py:\d+ \(return x @ x.*: 'fails' fails in eager PyTorch: RuntimeError: mat1"
    with pytest.raises(ProgramError, match=said):
        workbench.open(fails, torch.ones(2, 3), device="cpu")


class Record:
    """A record that looks up its attributes in a store, which a new copy does not have yet."""

    def __init__(self, **values: Any) -> None:
        self.__dict__["store"] = values

    def __getattr__(self, name: str) -> Any:
        store = self.__dict__["store"]
        if name not in store:
            raise AttributeError(name)
        return store[name]


def test_a_program_that_cannot_be_copied_is_refused_with_the_line() -> None:
    def counts(record: Record) -> torch.Tensor:
        return torch.bincount(record.x)

    said = r"test_value_dependent_programs.py:\d+ \(store = .*\): 'counts' or one of its arguments cannot be copied"
    with pytest.raises(ProgramError, match=said):
        workbench.open(counts, Record(x=torch.arange(3)), device="cpu")


class Neighbours(nn.Module):
    """A graph convolution (GCN) with a sparse matrix of the edges as a buffer."""

    edges: torch.Tensor

    def __init__(self, edges: torch.Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3))
        self.register_buffer("edges", edges)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(torch.sparse.mm(self.edges, x @ self.weight), labels)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_a_program_with_a_sparse_matrix_opens_and_runs_and_the_matrix_is_not_taken_to_be_dense(
    layout: torch.layout,
) -> None:
    torch.manual_seed(0)
    after, rows = torch.tensor([4, 0, 1, 2, 3]), torch.arange(6)
    edges = torch.sparse_csr_tensor(rows, after, torch.ones(5), (5, 5))
    if layout is torch.sparse_coo:
        edges = torch.sparse_coo_tensor(torch.stack([rows[:5], after]), torch.ones(5), (5, 5), is_coalesced=True)
    model, args = Neighbours(edges), (torch.randn(5, 4), torch.tensor([0, 1, 2, 1, 0]))
    bench = workbench.open(model, *args, device="cpu")
    assert isinstance(bench, PartsBench)
    assert [part.opaque for part in bench.parts] == [True]
    stepper = accuracy.Stepper(model, args, {}, bench.config.jit(model))
    indices = 5 * 2 * 8 if layout is torch.sparse_coo else (5 + 6) * 8
    assert stepper.baseline_bytes() == indices + 5 * 4 + sum(x.nbytes for x in (model.weight, *args))
    checked = accuracy.check_first_step(accuracy.first_step(stepper, 0), lambda: (model, args, {}), capture="parts")
    assert checked.ok, checked.worst


@pytest.mark.filterwarnings("ignore:.*torch.ao.quantization:DeprecationWarning")
@pytest.mark.parametrize(
    ("model", "args", "lacking"),
    [
        (
            Neighbours(torch.eye(5).to_sparse()),
            (torch.randn(5, 4), torch.tensor([0, 1, 2, 1, 0])),
            "tensors with the layout torch.sparse_coo",
        ),
        (
            torch.ao.quantization.FusedMovingAvgObsFakeQuantize(),
            (torch.randn(5, 4, requires_grad=True),),
            "aten._fused_moving_avg_obs_fq_helper.default, which writes into its inputs",
        ),
    ],
    ids=["sparse", "quantized"],
)
def test_a_program_of_operators_that_thunder_lacks_runs_once_and_is_not_traced_by_the_interpreter(
    model: nn.Module, args: tuple[torch.Tensor, ...], lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways: list[str] = []
    stock = capture._capture

    def traced(*given: Any) -> Any:
        ways.append(given[3])
        return stock(*given)

    runs: list[Any] = []

    def counted(program: Any) -> Any:
        runs.append(count(program))
        return runs[-1]

    count = capture.count_operators
    monkeypatch.setattr(capture, "_capture", traced)
    for module in (capture, capture_parts):
        monkeypatch.setattr(module, "count_operators", counted)
    bench = workbench.open(model, *args, device="cpu")
    assert isinstance(bench, PartsBench)
    assert len(runs) == 1, "eager PyTorch ran the program to count its operators more than once"
    (part,) = bench.parts
    assert part.refusal == (
        f"Dynamo compiles none of its functions, and Thunder has no {lacking}: PyTorch runs the whole program"
    )
    assert ways == ["dynamo"]


class UntilSmall(nn.Module):
    """A loop that a tensor's value ends. Plain `torch.compile` skips a function with a graph break in a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = torch.tanh(self.layer(x)) / 2
            if x.norm() < 1e-3:
                break
        return x.sum()


def test_a_program_that_plain_torch_compile_skips_is_opened_and_compiled_in_parts(tmp_path: Path) -> None:
    module, x = UntilSmall(), torch.randn(3, 6)
    code = UntilSmall.forward.__code__
    eval_frame.reset_code(code)
    alone = workbench.open(module, x, device="cpu", executor="torch")
    eval_frame.reset_code(code)

    torch.compile(module, backend="eager")(x)
    bench = workbench.open(module, x, device="cpu", executor="torch")
    assert isinstance(alone, PartsBench)
    assert isinstance(bench, PartsBench)
    assert [part.name for part in bench.parts] == [part.name for part in alone.parts]

    ran: list[str] = []
    compiled = workbench.load(bench.export(tmp_path / "choices.py")).jit(module)
    parts = graph_breaks.parts_of(compiled)
    assert parts is not None
    parts.timer = lambda key, run, inputs: ran.append(key) or run(*inputs)
    for _ in range(2):
        torch.compile(module, backend="eager")(x)  # skips the function again
        ran.clear()
        assert torch.equal(compiled(x), module(x))
        assert len(set(ran)) == len(bench.parts) == 3


def test_a_random_program_with_second_derivatives_is_compared_with_a_stock_plan() -> None:
    build = made(Projected, (8, 2))
    model, args = build()
    config = workbench.open(model, *args, device="cpu", executor="torch").config
    first = accuracy.first_step(accuracy.Stepper(model, args, {}, config.jit(model)), 0)

    def check(recorded: dict[str, accuracy.RecordedTensor]) -> accuracy.Accuracy:
        return accuracy.check_first_step(
            recorded, lambda: (*build(), {}), capture=config.capture, uncompiled=config.uncompiled
        )

    assert (check(first).ok, check(first).against) == (True, accuracy.STOCK)
    first["output"] = dataclasses.replace(first["output"], value=first["output"].value * 1.01)
    assert not check(first).ok
