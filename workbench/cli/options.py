"""Arguments and options that several commands share."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from workbench.core.executor import executor_names


class Device(enum.StrEnum):
    """Device of a program."""

    CPU = "cpu"
    CUDA = "cuda"
    PLANNED = "planned"


def executor_name(value: str) -> str:
    """Return `value` if it is the name of an executor; if it is not, raise typer's error for bad usage."""
    if value not in executor_names():
        raise typer.BadParameter(f"{value!r} is not one of {', '.join(map(repr, executor_names()))}.")
    return value


class CaptureMethod(enum.StrEnum):
    """Capture methods, as `workbench.open` takes them."""

    auto = "auto"
    dynamo = "dynamo"
    interpreter = "interpreter"
    parts = "parts"


class Target(enum.StrEnum):
    """Kinds of exported files, as `Workbench.export` takes them."""

    thunder = "thunder"
    torch = "torch"
    torch_eager = "torch_eager"


ProgramArgument = Annotated[str, typer.Argument(help="A built-in program's name, or file.py:factory.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the program; repeat for more.")
]
ChooseOption = Annotated[
    list[str] | None, typer.Option("--choose", metavar="ID=OPTION", help="A choice at a site; repeat for more.")
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Config file; its choices and settings are applied.")
]
TargetOption = Annotated[
    Target,
    typer.Option(
        "--target",
        help="With --export: write the choices for Thunder, for torch.compile, or for PyTorch without a compiler.",
    ),
]
DeviceOption = Annotated[
    Device | None,
    typer.Option("--device", help="Device of the program. planned is a GPU that is not attached: nothing runs."),
]
ExecutorOption = Annotated[
    str | None,
    typer.Option(
        "--executor", parser=executor_name, metavar=f"[{'|'.join(executor_names())}]", help="Executor of statements."
    ),
]
RanksOption = Annotated[
    int | None,
    typer.Option("--ranks", metavar="N", help="Number of ranks that share the program; a plan is for one rank."),
]
ParallelOption = Annotated[
    str, typer.Option("--parallel", metavar="HOW", help="How ranks share the program: fsdp, fsdp_zero3, ddp or tensor.")
]
CaptureOption = Annotated[
    CaptureMethod | None,
    typer.Option(
        "--capture",
        help="How the program is captured: by Dynamo, by Thunder's interpreter, by Dynamo in parts, or the first "
        "that works.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
