"""Errors and operators of later versions of PyTorch are handled like errors and operators of PyTorch 2.10.

The messages below are those of PyTorch 2.12.1, except one in the words of 2.10. The tests use them with every installed
version.
"""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch import fx

import workbench
from workbench.compiler.frontend import dynamo
from workbench.compiler.interop.torch_versions import dynamo_message, erase_bounds_of_bools, plain_function_apply
from workbench.interop.torch_private import Unsupported

HINT = "\n  Hint: Your code may result in an error when running in eager. \n\n  Developer debug context: "
MORE = "\n\n For more details about this graph break, please visit: https://example.org/gb.html"
FRAMES = '\n\nfrom user code:\n   File "/a/model.py", line 7, in forward\n    return x @ w\n'
FAILED = (
    "Dynamo failed to run FX node with fake tensors: call_function <built-in function matmul>"
    "(*(FakeTensor(..., size=(2, 4)), FakeTensor(..., size=(3, 3))), **{}): "
    "got RuntimeError('must have same reduction dim')"
)
RAISED = "Observed exception\n  Explanation: Dynamo found no exception handler" + HINT + "raised exception "
MESSAGES = {
    "an operator": (
        f"RuntimeError when making fake tensor call\n  Explanation: {FAILED}{HINT}{MORE}",
        "matmul fails on its inputs, (2, 4) float32, (3, 3) float32: RuntimeError: must have same reduction dim",
    ),
    "a text": (
        f"{RAISED}ValueError('seven rows, not 4'){MORE}",
        "own: ValueError: seven rows, not 4; call the program",
    ),
    "several values": (f"{RAISED}ValueError('rows', 4){MORE}", "own: ValueError: rows, 4; call the program"),
    "nothing": (f"{RAISED}KeyError(){MORE}", "own: KeyError; call the program"),
    "a tensor": (
        f"{RAISED}SystemExit(FakeTensor(..., size=(2,))){MORE}",
        "own: SystemExit: a tensor of shape (2,); call the program",
    ),
    "in the words of 2.10": (f"{RAISED}KeyError([ConstantVariable(str: 'a')]){MORE}", "own: KeyError: 'a'; call the"),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_errors_in_the_words_of_a_later_version_become_the_line_that_2_10_gives(name: str) -> None:
    message, told = MESSAGES[name]
    line = dynamo._reason(Unsupported(message + FRAMES))
    assert line.startswith("/a/model.py:7 ")
    assert told in line


def test_a_call_with_a_missing_argument_is_an_error_of_the_program() -> None:
    error = Unsupported(f"failed to bind arguments when attempting to inline\n  Explanation: Argument{HINT}{FRAMES}")
    error.__cause__ = TypeError("missing required positional argument: input2")
    assert "own: TypeError: missing required positional argument: input2; call" in dynamo._reason(error)
    error.__cause__ = None
    assert dynamo_message(error) == str(error), "without a cause, the message must not change"


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.save_for_backward(x)
        kept = y * 3
        ctx.mark_non_differentiable(kept)
        return x * y, kept

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        (x,) = ctx.saved_tensors
        return grad * 5, grad * x


def test_a_function_with_a_custom_backward_is_one_graph() -> None:
    """PyTorch 2.11 records such a function without the context, and with another option than PyTorch 2.10."""
    x, y = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    bench = workbench.open(lambda x, y: Doubled.apply(x, y)[0].sum(), x, y, device="cpu", executor="torch")
    assert bench.capture == "dynamo"
    bench.config.jit(lambda x, y: Doubled.apply(x, y)[0].sum())(x, y).backward()
    torch.testing.assert_close(x.grad, torch.full((3,), 5.0))
    torch.testing.assert_close(y.grad, x.detach())


def test_both_forms_of_a_recorded_function_take_a_context() -> None:
    def forward(*args: Any) -> Any:
        return args

    old = {"args_tensor_mask": [True], "non_differentiable_idx": [1]}
    assert plain_function_apply(forward, forward, ("x",), old) == (forward, forward, old)
    new = {"saved_for_backward_idx": [0], "non_differentiable_idx": [1]}
    with_context, backward, options = plain_function_apply(forward, forward, ("x",), new)
    assert options == old
    assert with_context(None, "x") == backward(None, "x") == ("x",)


def asserts(*conditions: tuple[Any, int]) -> fx.Graph:
    """Return a graph that reads a bool, and asserts conditions on the bool as 0 or 1, as PyTorch 2.12 does."""
    graph = fx.Graph()
    item = graph.call_method("item", (graph.placeholder("x"),))
    number = graph.call_function(torch.sym_ite, (item, 1, 0))
    for target, limit in conditions:
        graph.call_function(
            torch.ops.aten._assert_scalar.default, (graph.call_function(target, (number, limit)), "a text")
        )
    graph.output(item)
    return graph


def test_assertions_that_hold_for_every_bool_are_erased() -> None:
    graph = asserts((operator.ge, 0), (operator.le, 1))
    erase_bounds_of_bools(graph)
    assert [node.op for node in graph.nodes] == ["placeholder", "call_method", "output"]
    graph = asserts((operator.ge, 0), (operator.eq, 1))
    erase_bounds_of_bools(graph)
    (number,) = graph.find_nodes(op="call_function", target=torch.sym_ite)
    with graph.inserting_after(number):
        graph.call_function(torch.full, kwargs={"size": (2,), "fill_value": number})
    erase_bounds_of_bools(graph)
    kept = [node.target for node in graph.find_nodes(op="call_function", target=operator.eq)]
    assert kept == [operator.eq]
    assert len(graph.find_nodes(op="call_function", target=operator.ge)) == 0


@pytest.mark.parametrize("name", ["torch_adam", "torch_sgd"])
def test_a_step_of_pytorchs_optimizers_is_one_graph_with_the_results_of_eager(name: str) -> None:
    """In these steps PyTorch 2.12 records `prims.fma`, which Thunder does not know."""
    bench = workbench.open(name, device="cpu", executor="torch", parameters=1)
    assert bench.capture == "dynamo"
    program, args, _ = bench.program.build()
    copies = [arg.clone() for arg in args]
    program(*args)
    bench.config.jit(program)(*copies)
    torch.testing.assert_close(copies, list(args))
