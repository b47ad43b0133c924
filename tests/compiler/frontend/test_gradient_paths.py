"""An input that the loss does not use receives no gradient, as in eager PyTorch."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import workbench
from workbench.compiler.frontend.gradient_paths import reached_results


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.used, self.written, self.unused = (nn.Linear(3, 3) for _ in range(4))

    def forward(self, x: torch.Tensor, breaks: bool) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.stem(x)
        rows = torch.zeros(2, 3)
        rows[0] = self.written(hidden)[0]
        unused = self.unused(hidden)
        if breaks:
            torch._dynamo.graph_break()
        return (self.used(hidden) + rows).sum(), unused


@pytest.mark.slow
@pytest.mark.parametrize("breaks", [False, True], ids=["one graph", "two parts"])
def test_the_same_parameters_get_gradients_as_in_eager(breaks: bool) -> None:
    model, x = Branches(), torch.randn(2, 3)
    bench = workbench.open(model, x, breaks, device="cpu", executor="torch")
    assert len(bench.parts) == 2 * breaks
    compiled = bench.config.jit(model)
    for wanted in ([0], [0, 1], [1], [0]):
        gradients = []
        for run in (model, compiled):
            model.zero_grad()
            results = run(x, breaks)
            sum(results[at].sum() for at in wanted).backward()
            gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
        assert {n for n, g in gradients[0].items() if g is None} == {n for n, g in gradients[1].items() if g is None}
        torch.testing.assert_close(*({n: g for n, g in each.items() if g is not None} for each in gradients))


class SharedTable(nn.Module):
    """A table of embeddings with sparse gradients. Another operator reads the table, too."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 4, sparse=True)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return (self.table.weight.sum(0) * self.table(rows)).sum()


def test_a_sparse_and_a_dense_gradient_are_added() -> None:
    model, rows = SharedTable(), torch.tensor([1, 2, 1])
    model(rows).backward()
    expected, model.table.weight.grad = model.table.weight.grad, None
    workbench.open(model, rows, executor="torch").config.jit(model)(rows).backward()
    torch.testing.assert_close(model.table.weight.grad, expected)


def test_a_gradient_path_may_lead_through_a_write() -> None:
    graphs = []

    def keep(graph: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    def program(x: torch.Tensor, y: torch.Tensor, into: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        view = into.view(2, 2)
        result = into * 2
        view[0].copy_(x[:2])
        return result + into, y.sin() + x.detach()

    given = torch.rand(4, requires_grad=True), torch.rand(4, requires_grad=True), torch.zeros(4)
    torch.compile(program, backend=keep)(*given)
    assert reached_results(graphs[0]) == [0b01, 0b01, 0b10]  # `into`, `x`, `y`


def test_a_write_to_a_list_leads_each_member_only_to_its_own_operands() -> None:
    graphs = []

    def keep(graph: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        u, v = torch.zeros(4), torch.zeros(4)
        torch._foreach_add_([u, v], [x * 2, y * 3])
        return u.sin(), v.cos()

    torch.compile(program, backend=keep)(torch.rand(4, requires_grad=True), torch.rand(4, requires_grad=True))
    assert reached_results(graphs[0]) == [0b01, 0b10]


def test_reading_data_is_planned_as_detaching() -> None:
    model, x = nn.Linear(4, 3), torch.randn(5, 4, requires_grad=True)

    def weighed(x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(model(x))
        weights = torch.softmax(hidden.data, -1)
        return hidden.square().mean() + (hidden * weights).sum() * model.weight.data.abs().mean()

    bench = workbench.open(weighed, x, device="cpu", executor="torch")
    assert bench.capture == "dynamo"
    found = []
    for run in (bench.config.jit(weighed), weighed):
        loss = run(x)
        found.append([loss.detach(), *torch.autograd.grad(loss, (x, model.weight))])
    torch.testing.assert_close(*found)


class Masked(nn.Linear):
    """A layer that sets weights to zero before each use, past autograd."""

    mask: torch.Tensor

    def __init__(self) -> None:
        super().__init__(4, 4)
        self.register_buffer("mask", torch.ones(4, 4).tril())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = x.sin()
        self.weight.data *= self.mask
        with torch.no_grad():
            self.bias.data.clamp_(min=-0.1)
        return super().forward(hidden).square().sum()


@pytest.mark.slow
def test_a_write_past_autograd_is_the_only_part_that_pytorch_runs() -> None:
    model, x = Masked(), torch.randn(3, 4)
    bench = workbench.open(model, x, device="cpu", executor="torch")
    assert [part.opaque for part in bench.parts] == [False, True, False]
    trained = []
    for run in (copy.deepcopy(model), bench.config.jit(model)):
        optimizer = torch.optim.SGD(run.parameters(), lr=0.1)
        for _ in range(2):
            run(x).backward()
            optimizer.step()
        trained.append([value.detach() for value in run.parameters()])
    torch.testing.assert_close(*trained)


def test_a_view_of_the_same_type_has_no_gradient_as_in_eager() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        return (y.cos() + y.view(torch.float32).exp() + y.view(dtype=torch.float32)).sum()

    x = torch.randn(4, 4, requires_grad=True)
    compiled = workbench.open(program, x, executor="torch", device="cpu", capture="dynamo").config.jit(program)
    (wanted,), (made,) = (torch.autograd.grad(run(x), x) for run in (program, compiled))
    torch.testing.assert_close(made, wanted)
