"""Misuse exported files in many ways, in a process that cannot import Thunder and the workbench.

Argument: a folder with the files `compiled_choices.py` and `eager_choices.py`. Prints the messages of each misuse as
JSON.
"""

import importlib
import json
import sys
import warnings
from collections.abc import Callable
from typing import Any


class _Refuse:
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] in ("workbench", "thunder"):
            raise ImportError(f"{name} is not installed here")


sys.meta_path.insert(0, _Refuse())  # type: ignore[arg-type]
sys.path.insert(0, sys.argv[1])

import torch  # noqa: E402

compiled: Any = importlib.import_module("compiled_choices")
eager: Any = importlib.import_module("eager_choices")


class Net(torch.nn.Module):
    def __init__(self, *, breaks: bool = False) -> None:
        super().__init__()
        self.gate, self.up, self.breaks = torch.nn.Linear(8, 32), torch.nn.Linear(8, 32), breaks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.nn.functional.silu(self.gate(x))
        if self.breaks:
            torch._dynamo.graph_break()
        return (hidden * self.up(x)).square().sum()


RIGHT = {("", "silu", 0): "recompute", ("gate", "linear", 0): "recompute"}


def net(**given: Any) -> Net:
    torch.manual_seed(0)
    return Net(**given)


def told(use: Callable[[], Any]) -> list[str]:
    """Return the text of the error, or of the warnings."""
    torch._dynamo.reset()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            use()
        except Exception as error:  # noqa: BLE001  # the test compares any error's text
            return [f"{type(error).__name__}: {error}"]
    return [str(warning.message) for warning in caught if "not applied" in str(warning.message)]


def step(choices: Any, model: Any = None, rows: int = 4, **options: Any) -> Any:
    call = compiled.compile(net() if model is None else model, choices=choices, backend="aot_eager", **options)
    call(torch.ones(rows, 8)).backward()
    return call


def several_sizes() -> None:
    """Compile twice, each time for several sizes, and compare the gradients with eager's."""
    for dynamic in (None, True):
        model, plain = net(), net()
        call = compiled.compile(model, choices=RIGHT, backend="aot_eager", dynamic=dynamic)
        for rows in (4, 6, 9):
            x = torch.randn(rows, 8)
            for each in (call, plain):
                each(x).backward()
        for one, other in zip(model.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad)
        torch._dynamo.reset()


def older_pytorch() -> None:
    version, torch.__version__ = torch.__version__, "2.9.1"
    try:
        importlib.reload(compiled)
    finally:
        torch.__version__ = version


def checkpointed_twice() -> None:
    model = eager.checkpoint(net(), choices=RIGHT)
    eager.checkpoint(model, choices=RIGHT)


of_function = {("", "linear", 0): "recompute", ("", "linear", 1): "recompute"}
uses: dict[str, Callable[[], Any]] = {
    "right": lambda: step(RIGHT),
    "the model instead of the function": lambda: step(of_function),
    "another model": lambda: step({("layers.0", "mul", 0): "recompute", ("layers.1", "mul", 0): "save"}),
    "a renamed module": lambda: step({("gates", "linear", 0): "recompute", **RIGHT}),
    "a share as budget": lambda: compiled.compile(net(), choices=RIGHT, budget="80%"),
    "a text as key": lambda: step({"gate/linear": "recompute"}),
    "a key without ordinal": lambda: step({("gate", "linear"): "recompute"}),
    "a key of Thunder for eager": lambda: eager.checkpoint(net(), choices={"saved:gate/linear": "recompute"}),
    "another option": lambda: step({("gate", "linear", 0): "drop"}),
    "a compiled model": lambda: step(RIGHT, torch.compile(net())),
    "a graph break": lambda: step({("", "mul", 0): "recompute", **RIGHT}, net(breaks=True)),
    "several sizes": several_sizes,
    "an older PyTorch": older_pytorch,
    "checkpoint twice": checkpointed_twice,
    "checkpoint of a function": lambda: eager.checkpoint(torch.sin, choices=RIGHT),
}
print(json.dumps({name: told(use) for name, use in uses.items()}))
