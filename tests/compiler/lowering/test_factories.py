"""Tensors that a program creates from numbers equal PyTorch's. Such a program can be read from the cache on disk."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import workbench
from tests.compiler.driver.test_capture_cache import workbench_process
from tests.trial_counts import beyond
from workbench.compiler.driver import capture_cache
from workbench.compiler.lowering import factories, grouped_mm
from workbench.errors import ProgramError
from workbench.util.disk_cache import CAPTURES

Program = Callable[[torch.Tensor], torch.Tensor]


def pairs(x: torch.Tensor) -> torch.Tensor:
    """Return the product of each pair of different rows. Each pair is included once."""
    rows, columns = torch.tril_indices(6, 6, -1, device=x.device)
    return (x @ x.t())[rows, columns]


PROGRAMS: dict[str, Program] = {
    "pairs": pairs,
    "pairs the other way round": lambda x: (x @ x.t())[tuple(torch.triu_indices(6, 6, 1))],
    "drawn": lambda x: x.sin()[torch.randperm(6)] * x,
    "windows": lambda x: x * torch.hann_window(8) + torch.hamming_window(8, periodic=False) * torch.kaiser_window(8),
    "others": lambda x: x * torch.blackman_window(8) + torch.bartlett_window(8) * torch.logspace(0, 2, 8, base=2.0),
    "frequencies": lambda x: x * torch.fft.fftfreq(8, d=0.5) + torch.fft.rfftfreq(14),
    "in double precision": lambda x: (x * torch.hann_window(8, dtype=torch.float64)).float(),
}


def given() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(6, 8, requires_grad=True)


@pytest.mark.parametrize("name", beyond(1, PROGRAMS, pytest.mark.slow))
def test_numbers_and_gradients_equal_pytorchs_at_the_same_seed(name: str) -> None:
    program, x = PROGRAMS[name], given()
    jitted = workbench.open(program, x, device="cpu", capture="dynamo").config.jit(program)
    made = []
    for callable_ in (program, jitted):
        torch.manual_seed(1)
        out = callable_(x)
        made.append((out, *torch.autograd.grad(out.square().sum(), x)))
    assert made[0][0].dtype == made[1][0].dtype
    torch.testing.assert_close(made[1], made[0])


@pytest.mark.slow
def test_a_random_draw_is_never_repeated() -> None:
    program, x = PROGRAMS["drawn"], given()
    bench = workbench.open(program, x, device="cpu", capture="dynamo")
    chosen = {site.id: "recompute" for site in bench.sites("saved") if "recompute" in site.options}
    assert len(chosen) == 2
    bench.choose(chosen)
    assert list(bench.plan.graph.statements.name).count("randperm") == 1
    made = []
    for callable_ in (program, bench.config.jit(program)):
        torch.manual_seed(1)
        made.append(torch.autograd.grad(callable_(x).square().sum(), x))
    torch.testing.assert_close(made[1], made[0])


def test_a_generator_is_refused_and_the_error_names_its_line() -> None:
    generator = torch.Generator()

    def program(x: torch.Tensor) -> torch.Tensor:
        return x[torch.randperm(6, generator=generator)].sin()

    with pytest.raises(ProgramError, match=r"test_factories\.py.*generator"):
        workbench.open(program, given(), device="cpu", capture="dynamo")


@pytest.mark.long
@pytest.mark.slow
def test_einsum_is_planned_the_same_in_each_process() -> None:
    # Compare two processes: einsum's index labels must not come from a set, because the order of a set differs between
    # processes.
    code = """if True:
        import torch, workbench
        x, w, b = torch.randn(3, 4, 5), torch.randn(5, 2, 6, requires_grad=True), torch.randn(4, 5, 6)
        def program(x, w, b):
            return torch.einsum("ibh,hnd->ibnd", x, w).sin().sum() + torch.einsum("bhd,hnd->bn", b, w).sum()
        bench = workbench.open(program, x, w, b, device="planned", executor="torch")
        print([site.id for site in bench.sites()], bench.plan.peak_bytes, bench.plan.text())
    """
    seeds = ({**os.environ, "PYTHONHASHSEED": seed} for seed in ("0", "1"))
    first, second = (re.sub(r"took \d+ \w+", "", workbench_process(code, environment)) for environment in seeds)
    assert first == second


@pytest.mark.slow
@pytest.mark.long
def test_a_program_that_creates_tensors_is_read_from_disk(tmp_path: Path) -> None:
    # Put the program into a module of its own. This module imports packages that only tests need, and the process need
    # not import them.
    (tmp_path / "of_pairs.py").write_text(f"import torch\n\n\n{inspect.getsource(pairs)}")
    code = f"""if True:
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import of_pairs, torch, workbench
        x = torch.randn(6, 8, requires_grad=True)
        bench = workbench.open(of_pairs.pairs, x, device="cpu", capture="dynamo")
        print(bench.on_disk, bench.plan.peak_bytes)
    """
    environment = {**os.environ, CAPTURES.variable: str(tmp_path / "kept")}
    first, second = (workbench_process(code, environment) for _ in range(2))
    assert first.split()[:2] == ["written", "to"]
    assert second.split()[:2] == ["from", "disk"]
    assert first.split()[-1] == second.split()[-1]


def test_the_capture_cache_finds_symbols_of_the_executors_of_the_workbench_by_name() -> None:
    symbols = [*factories._symbols().values(), *grouped_mm.grouped_mm_symbols()]
    assert len(symbols) > 15
    for symbol in symbols:
        find, arguments = capture_cache._symbol_of(symbol)
        assert find(*arguments) is symbol
