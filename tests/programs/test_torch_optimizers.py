"""A step of a PyTorch optimizer is captured as a program that gives the optimizer's results, also with Thunder."""

import inspect
from typing import Any

import pytest
import torch
from packaging.version import Version
from thunder.dynamo import ThunderCompiler

from workbench.bench import open as open_bench
from workbench.compiler.interop.torch_versions import TORCH, graphs_with_code
from workbench.programs import resolve

pytestmark = pytest.mark.slow

OPTIMIZERS: dict[str, Any] = {
    "torch_adam": lambda params: torch.optim.Adam(params, lr=1e-3, foreach=False),
    "torch_sgd": lambda params: torch.optim.SGD(params, lr=1e-2, momentum=0.9, foreach=False),
}


def start(name: str) -> tuple[dict[str, torch.Tensor], list[torch.nn.Parameter], torch.optim.Optimizer]:
    """Return a dict of a parameter and its gradient, a list with a copy of the parameter, and this list's optimizer."""
    args = resolve(name, device="cpu", parameters=2, size=4).args
    given = dict(zip(("param_0", "grad_0"), args[:2], strict=True))
    params = [torch.nn.Parameter(given["param_0"].clone())]
    params[0].grad = given["grad_0"].clone()
    return given, params, OPTIMIZERS[name](params)


@pytest.mark.parametrize("name", list(OPTIMIZERS))
@pytest.mark.parametrize("jitted", [False, True])
def test_a_captured_step_equals_the_optimizers_step(name: str, jitted: bool) -> None:
    bench = open_bench(name, device="cpu", executor="torch", parameters=2, size=4)
    function, args, _ = bench.program.build()
    _, params, optimizer = start(name)
    step = bench.config.jit(function) if jitted else function
    for _ in range(3):
        step(*args)
        optimizer.step()
    torch.testing.assert_close(args[0], params[0].detach())


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_thunderfx_compiles_the_step_of_an_optimizer(name: str) -> None:
    _, params, optimizer = start(name)
    _, others, reference = start(name)
    for each in (optimizer, reference):
        each.step()
    backend = ThunderCompiler()
    with graphs_with_code():
        torch.compile(optimizer.step, backend=backend)()
    reference.step()
    torch.testing.assert_close(params[0], others[0])
    # Since PyTorch 2.12, Dynamo records `prims.fma`, which PyTorch runs between two functions of Thunder.
    functions = 2 if name == "torch_adam" and Version("2.12.dev0") <= TORCH else 1
    assert [len(info.thunder_compiled_fns) for info in backend.subgraph_infos] == [functions]


def test_a_captured_step_takes_three_tensors_for_each_parameter() -> None:
    for parameters in range(1, 11):
        args = resolve("torch_sgd", device="cpu", parameters=parameters, size=2).args
        assert len(args) == 3 * parameters


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_a_step_is_captured_even_if_dynamo_skips_the_step_method(name: str) -> None:
    params = [torch.nn.Parameter(torch.ones(2))]
    step = inspect.unwrap(type(OPTIMIZERS[name](params)).step)
    torch._dynamo.eval_frame.skip_code(step.__code__)
    try:
        for tenths in range(12):  # exceeds Dynamo's limit of recompilations of one function
            assert len(resolve(name, device="cpu", parameters=1, size=2, lr=tenths / 10 + 0.05).args) >= 2
    finally:
        torch._dynamo.eval_frame.reset_code(step.__code__)
