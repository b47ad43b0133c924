"""Draw small programs of elementwise ops, matmuls, views and reductions. Some of their results are unused.

Use these programs if a failing example must shrink: Hypothesis removes statements one by one. `tests/strategies.py` has
programs with more inputs, dtypes and layouts, with in-place writes and with dropout.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from typing import Any

import torch
from hypothesis import strategies as st

ROWS, COLUMNS = 4, 6

type Shape = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class RandomProgram:
    """Source of a function ``program(x, weight, bias)``. It has no loops, because Thunder interprets loops slowly."""

    source: str

    def __repr__(self) -> str:
        return self.source

    def build(self) -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
        """Return the function and its inputs. Inputs that require gradients are leaves."""
        namespace: dict[str, Any] = {"torch": torch}
        exec(self.source, namespace)
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(ROWS, COLUMNS, generator=generator)
        weight = torch.randn(COLUMNS, COLUMNS, generator=generator).requires_grad_()
        bias = torch.randn(COLUMNS, generator=generator).requires_grad_()
        return namespace["program"], (x, weight, bias)


def _statement(op: str, a: str, b: str, of_a: Shape, of_b: Shape) -> tuple[str, Shape]:
    """Return an expression that applies an op to one or two results, and the shape of the expression's value."""
    rows, columns = of_a
    same = of_a == of_b
    options: dict[str, tuple[str, Shape]] = {
        "tanh": (f"torch.tanh({a})", of_a),
        "exp": (f"torch.exp({a} * 0.1)", of_a),
        "double": (f"2.0 * {a}", of_a),
        "add": (f"{a} + {b}" if same else f"{a} - 1", of_a),
        "mul": (f"{a} * {b}" if same else f"{a} * {a}", of_a),
        "where": (f"torch.where({a} > {b}, {a}, {b})" if same else f"torch.relu({a})", of_a),
        "transpose": (f"{a}.transpose(0, 1)", (columns, rows)),
        "flatten": (f"{a}.reshape(1, -1)", (1, rows * columns)),
        "half": (f"{a}[:{(rows + 1) // 2}]", ((rows + 1) // 2, columns)),
        "expand": (f"{a}[:1].expand({ROWS}, {columns})", (ROWS, columns)),
        "chunk": (f"{a}.chunk(2, 1)[0]", (rows, (columns + 1) // 2)),
        "sum": (f"{a}.sum(0, keepdim=True)", (1, columns)),
        "mean": (f"{a}.mean(1, keepdim=True)", (rows, 1)),
        "softmax": (f"torch.softmax({a}, 1)", of_a),
        "var_mean": (f"torch.var_mean({a}, 1, keepdim=True, correction=0)[1]", (rows, 1)),
        "layer_norm": (f"torch.nn.functional.layer_norm({a}, ({columns},))", of_a),
        "contiguous": (f"{a}.contiguous()", of_a),
        "detach": (f"{a}.detach() + {a}", of_a),
        "cat": (f"torch.cat(({a}, {a}), 1)", (rows, 2 * columns)),
        "matmul": (f"{a} @ {a}.transpose(0, 1)", (rows, rows)),
    }
    if op == "cat" and columns == of_b[1]:
        return f"torch.cat(({a}, {b}), 0)", (rows + of_b[0], columns)
    if op == "matmul" and columns == of_b[0]:
        return f"{a} @ {b}", (rows, of_b[1])
    return options[op]


OPS = (
    *("tanh", "exp", "double", "add", "mul", "where", "transpose", "flatten", "half", "expand", "chunk", "sum", "mean"),
    *("softmax", "var_mean", "layer_norm", "contiguous", "detach", "cat", "matmul"),
)


@st.composite
def random_programs(draw: st.DrawFn, without: Collection[str] = ()) -> RandomProgram:
    """Draw a program of up to 12 statements on earlier results. The program returns its last one to three results."""
    lines = [
        "def program(x, weight, bias):",
        "    r0 = x @ weight",
        "    r1 = torch.nn.functional.linear(x, weight, bias)",
    ]
    shapes: list[Shape] = [(ROWS, COLUMNS), (ROWS, COLUMNS)]
    for op in draw(st.lists(st.sampled_from([op for op in OPS if op not in without]), min_size=1, max_size=12)):
        count = len(shapes)
        i, j = (count - 1 - draw(st.integers(0, min(3, count - 1))) for _ in range(2))
        expression, shape = _statement(op, f"r{i}", f"r{j}", shapes[i], shapes[j])
        lines.append(f"    r{count} = {expression}")
        shapes.append(shape)
    outputs = draw(st.integers(1, 3))
    lines.append(f"    return {', '.join(f'r{k}' for k in range(max(0, len(shapes) - outputs), len(shapes)))},")
    return RandomProgram("\n".join(lines))
