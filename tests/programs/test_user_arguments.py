"""`open` refuses a keyword that is a parameter of the program and its own option, and objects that are not programs."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import workbench
from workbench.errors import ProgramError
from workbench.programs import resolve


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, seed: int = 0, device: str = "") -> torch.Tensor:
        return self.linear(x) * (seed + 1)


def scaled(x: torch.Tensor, seed: int = 0) -> torch.Tensor:
    return x * (seed + 1)


@pytest.mark.parametrize(
    ("program", "given", "option"), [(Scaled(), {"seed": 3}, "seed=3"), (Scaled(), {"device": "cpu"}, "device='cpu'")]
)
def test_an_option_that_is_also_a_parameter_of_the_program_is_refused(
    program: nn.Module, given: dict[str, Any], option: str
) -> None:
    name = next(iter(given))
    told = f"{option} may be meant for Scaled, which has a parameter '{name}', or for the workbench"
    with pytest.raises(ProgramError, match=re.escape(told) + ".*" + re.escape(f"kwargs={{'{name}': …}}")):
        workbench.open(program, torch.randn(2, 4), **given)


def test_kwargs_can_have_inputs_with_the_names_of_options() -> None:
    x = torch.ones(2, 4)
    bench = workbench.open(scaled, x, kwargs={"seed": 3}, device="cpu")
    assert bench.program.kwargs == {"seed": 3}
    torch.testing.assert_close(bench.config.jit(scaled)(x, seed=3), x * 4)
    # Outside of `kwargs`, the keyword `seed` is the workbench's option.
    assert workbench.open(scaled, x, kwargs={"seed": 3}, seed=5).program.seed == 5
    assert workbench.open(scaled, x, 3, seed=5).program.seed == 5, "a positional input must not count as an option"


def test_an_input_that_is_given_twice_is_refused() -> None:
    with pytest.raises(ProgramError, match="x is given twice, as a keyword and in kwargs"):
        resolve(scaled, x=torch.ones(2), kwargs={"x": torch.ones(2)})


def compiled_inside() -> nn.Module:
    return nn.Sequential(nn.ReLU(), torch.compile(nn.Linear(4, 4)))


@pytest.mark.parametrize(
    ("program", "original"),
    [
        (torch.compile(nn.Linear(4, 4)), "Linear"),
        (torch.compile(scaled), "scaled"),
        (torch.compile(torch.compile(scaled)), "scaled"),
        (compiled_inside(), "Sequential"),
    ],
)
def test_a_program_under_torch_compile_opens_as_the_original(program: Any, original: str) -> None:
    x = torch.linspace(-1, 1, 8).reshape(2, 4)
    bench = workbench.open(program, x)
    assert bench.program.name == original
    torch.testing.assert_close(bench.config.jit(program)(x), program(x))


def test_a_number_is_refused_as_a_program() -> None:
    told = "int is not a program; legal: a function or module with its inputs, a built-in name, or file.py:factory"
    with pytest.raises(ProgramError, match=f"^{re.escape(told)}"):
        workbench.open(3, torch.ones(2, 4))  # type: ignore[arg-type]


def test_a_program_compiled_by_thunder_is_refused() -> None:
    import thunder

    with pytest.raises(ProgramError, match=r"already compiled by thunder\.jit: open the original"):
        workbench.open(thunder.jit(scaled), torch.ones(2, 4))


def yields(x: torch.Tensor) -> Iterator[torch.Tensor]:
    yield x.sin()


async def awaited(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


class Yields(nn.Module):
    def forward(self, x: torch.Tensor) -> Iterator[torch.Tensor]:
        yield x.sin()


class Awaited:
    async def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin()


@pytest.mark.parametrize(
    ("program", "told"),
    [
        (yields, "yields is a generator .*: return a tuple or a list of the yielded values"),
        (Yields(), "Yields is a generator "),
        (awaited, "awaited is async .*: open a plain function"),
        (Awaited(), "Awaited is async "),
    ],
)
def test_a_generator_or_an_async_function_is_refused(program: Callable[..., Any], told: str) -> None:
    with pytest.raises(ProgramError, match=told):
        workbench.open(program, torch.ones(2), device="cpu")


@pytest.mark.parametrize(
    ("args", "inputs", "told"),
    [
        ((), {}, "missing a required argument: 'x'"),
        ((torch.ones(2, 4), 1, "", 3), {}, "too many positional arguments"),
        (
            (torch.ones(2, 4),),
            {"factor": 1},
            "got an unexpected keyword argument 'factor'; it has no parameter 'factor'",
        ),
        (
            (torch.ones(2, 4),),
            {"devise": 1},
            "got an unexpected keyword argument 'devise'; did you mean device=, an option of the workbench?",
        ),
    ],
)
def test_inputs_that_do_not_fit_the_parameters_are_refused(
    args: tuple[Any, ...], inputs: dict[str, Any], told: str
) -> None:
    with pytest.raises(ProgramError) as refused:
        workbench.open(Scaled(), *args, **inputs)
    assert str(refused.value) == f"Scaled takes (x, seed, device); the given inputs do not fit: {told}"


def test_a_misspelled_input_is_named_with_a_suggestion() -> None:
    def scaled(input: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
        return input * factor

    told = "takes .input, factor.; .*: missing a required argument: 'input'; it has no parameter 'inptu'; did you mean"
    with pytest.raises(ProgramError, match=told):
        workbench.open(scaled, inptu=torch.ones(2))


def doubled_where_asked(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(function)
    def called(*args: Any, twice: bool = False, **kwargs: Any) -> torch.Tensor:
        return function(*args, **kwargs) * (2 if twice else 1)

    return called


class Decorated(nn.Module):
    @doubled_where_asked
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin()


def test_a_decorator_may_take_more_parameters_than_its_function() -> None:
    """For example, decorators of Hugging Face take `return_dict`, which is not a parameter of the model's `forward`."""
    bench = workbench.open(Decorated(), torch.ones(2), twice=True, device="cpu", executor="torch")
    torch.testing.assert_close(bench.config.jit(Decorated())(torch.ones(2), twice=True), 2 * torch.ones(2).sin())


def test_a_module_that_overrides_call_may_take_other_inputs() -> None:
    class Called(nn.Linear):
        def __call__(self, x: torch.Tensor, scale: float) -> torch.Tensor:
            return super().__call__(x * scale)

    assert workbench.open(Called(4, 4), torch.ones(2, 4), 2.0, device="cpu").plan.saved_bytes > 0


def test_a_hook_may_supply_missing_inputs() -> None:
    module = nn.Linear(4, 4)
    module.register_forward_pre_hook(lambda module, given: (torch.ones(2, 4),))
    assert workbench.open(module, device="cpu", executor="torch").plan.saved_bytes == 2 * 4 * 4
