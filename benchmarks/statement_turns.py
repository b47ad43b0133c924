"""Where a step differs from PyTorch's: the statements of both, each with a clock, one step of each in turn.

A model of `fit_measured` under the stock plan of ``torchcompile_aten``, whose functions have the code of their regions
in them, and under `torch.compile` at a budget, whose functions Inductor wrote. Each statement's time is the lower
quartile over the turns, by the clock on the wall: other work takes whole slices away, and a clock of the thread's own
would take longer than most statements. Views are among the matmuls where PyTorch writes them into the call.

``python -m benchmarks.statement_turns NAME [--budget 1] [--turns 150]``
"""

from __future__ import annotations

import argparse
import ast
import builtins
import gc
import inspect
import itertools
import random
import statistics
import sys
import textwrap
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
import torch._functorch.config as functorch

import workbench
from benchmarks.fit_measured import MODELS, built
from workbench.compiler import inlined
from workbench.runs.accuracy import Stepper

OURS, THEIRS = "ours", "PyTorch's"
FORWARD, BACKWARD = "forward", "backward"
_TICK = "wb_statement_tick"
WARM = 4

type Side = tuple[str, str]


class Clocks:
    """Ticks before each statement of some functions.

    Attributes
    ----------
    statements : list of tuple of Side and str
        Whose each is, of which direction, and its text.
    ticks : list of tuple of int and int
        Of the step under way: statement and time.
    """

    def __init__(self) -> None:
        self.statements: list[tuple[Side, str]] = []
        self.ticks: list[tuple[int, int]] = []
        setattr(builtins, _TICK, lambda number: self.ticks.append((number, time.perf_counter_ns())))

    def put(self, function: ast.FunctionDef, side: Side) -> None:
        """Put them into a function, and into what stands under its conditions."""
        function.body = self._with(function.body, side)
        ast.fix_missing_locations(function)

    def _with(self, body: list[ast.stmt], side: Side) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for statement in body:
            conditional = isinstance(statement, ast.If)
            text = f"check {ast.unparse(statement.test)}" if isinstance(statement, ast.If) else ast.unparse(statement)
            self.statements.append((side, text))
            found += [ast.parse(f"{_TICK}({len(self.statements) - 1})").body[0], statement]
            if conditional:
                assert isinstance(statement, ast.If)
                statement.body = self._with(statement.body, side)
        return found


def kind(text: str) -> str:
    """What a statement does."""
    if text.startswith("check ") or "assert_" in text:
        return "checks"
    if "cpp_fused" in text:
        return "kernels"
    if any(word in text for word in ("linear(", "matmul(", "mm(")):
        return "matmuls"
    if "sdpa" in text or "_scaled_dot" in text:
        return "attention"
    if "convolution" in text:
        return "convolution"
    if "empty_strided" in text:
        return "allocations"
    return "deletions" if text.startswith(("del ", "args.clear")) else "views, the rest"


def ours_of(name: str, clocks: Clocks) -> Stepper:
    """Our stock plan, its functions with clocks."""
    model, args = built(name)
    config = workbench.open(model, *args, device="cpu", executor="torchcompile_aten").config
    model, args = built(name)
    stepper = Stepper(model, args, {}, config.jit(model))
    made = Counter[str]()

    def compiled(tree: ast.Module, *args: Any, **kwargs: Any) -> Any:
        (function,) = tree.body
        assert isinstance(function, ast.FunctionDef)
        made["functions"] += 1
        clocks.put(function, (OURS, FORWARD if made["functions"] == 1 else BACKWARD))
        return compile(tree, *args, **kwargs)

    with mock.patch.object(inlined, "compile", compiled, create=True):
        for _ in range(WARM):
            stepper.step()
    return stepper


def theirs_of(name: str, budget: float, clocks: Clocks) -> Stepper:
    """PyTorch's, its functions with clocks."""
    before = {id(one) for one in _runners()}
    functorch.activation_memory_budget = budget
    model, args = built(name)
    stepper = Stepper(model, args, {}, torch.compile(model, dynamic=False))
    for _ in range(WARM):
        stepper.step()
    for runner in (one for one in _runners() if id(one) not in before):
        call: Any = type(runner).call
        tree = ast.parse(textwrap.dedent(inspect.getsource(call)))
        (function,) = tree.body
        assert isinstance(function, ast.FunctionDef)
        clocks.put(function, (THEIRS, BACKWARD if "tangents" in ast.unparse(function.body[0]) else FORWARD))
        known = dict(call.__globals__)
        exec(compile(tree, call.__code__.co_filename, "exec"), known)
        call.__code__ = known["call"].__code__
    return stepper


def _runners() -> list[Any]:
    """Inductor's, of all that is compiled."""
    return [one for one in gc.get_objects() if type(one).__name__ == "Runner" and hasattr(one, "partitions")]


def quartile(samples: list[int]) -> float:
    """The lower one, in microseconds."""
    return statistics.quantiles(samples, n=4)[0] / 1e3


def in_turn(steppers: dict[str, Stepper], clocks: Clocks, turns: int) -> dict[tuple[Side, str], float]:
    """Microseconds of a step by side and kind of statement; of each side what is around its functions, too."""
    taken: defaultdict[int, list[int]] = defaultdict(list)
    around: defaultdict[str, list[int]] = defaultdict(list)
    for turn in range(turns):
        sides = list(steppers)
        random.Random(turn).shuffle(sides)
        for side in sides:
            steppers[side].clear_grads()
            clocks.ticks.clear()
            start = time.perf_counter_ns()
            steppers[side].step()
            end, ticks = time.perf_counter_ns(), list(clocks.ticks)
            outside = ticks[0][1] - start + end - ticks[-1][1]
            for (number, at), (following, until) in itertools.pairwise(ticks):
                if clocks.statements[number][0] == clocks.statements[following][0]:
                    taken[number].append(until - at)
                else:
                    outside += until - at
            around[side].append(outside)
    found: defaultdict[tuple[Side, str], float] = defaultdict(float)
    for number, samples in taken.items():
        side_of, text = clocks.statements[number]
        found[side_of, kind(text)] += quartile(samples)
    for side, samples in around.items():
        found[(side, FORWARD), "around both"] = quartile(samples)
    return found


def main() -> int:
    """Print the table; what a shell gets."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("name", choices=list(MODELS))
    asked.add_argument("--budget", type=float, default=1.0)
    asked.add_argument("--turns", type=int, default=150)
    options = asked.parse_args()
    torch.set_num_threads(1)
    clocks = Clocks()
    makers: dict[str, Callable[[], Stepper]] = {
        OURS: lambda: ours_of(options.name, clocks),
        THEIRS: lambda: theirs_of(options.name, options.budget, clocks),
    }
    found = in_turn({side: make() for side, make in makers.items()}, clocks, options.turns)
    sides = [(side, way) for way in (FORWARD, BACKWARD) for side in (OURS, THEIRS)]
    print(f"| {options.name}, µs | {' | '.join(f'{way}, {side}' for side, way in sides)} |\n|---|---|---|---|---|")
    for each in sorted({name for _, name in found}, key=lambda name: (name == "around both", name)):
        print(f"| {each} | {' | '.join(f'{found[side, each]:,.0f}' if found[side, each] else '' for side in sides)} |")
    sums = [sum(us for (of, _), us in found.items() if of == side) for side in sides]
    print(f"| all | {' | '.join(f'{us:,.0f}' for us in sums)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
