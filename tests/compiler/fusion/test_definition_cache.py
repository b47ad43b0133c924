"""A process reuses a compiled nvFuser fusion only for an equal definition."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import workbench
from workbench.compiler.fusion import definition_cache
from workbench.compiler.fusion.definition_cache import Definitions
from workbench.core.executor import why_no_nvfuser

pytestmark = pytest.mark.skipif(bool(why_no_nvfuser()), reason="definitions are nvFuser's")


class Scaled(torch.nn.Module):
    def __init__(self, scale: float, layers: int = 2) -> None:
        super().__init__()
        self.scale, self.layers = scale, layers

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.layers):
            x = torch.tanh(x * self.scale) @ x
        return x


def fusions(scale: float, size: int = 8, **choices: str) -> list[Any]:
    bench = workbench.open(Scaled(scale), torch.randn(size, size), device="planned", executor="nvfuser")
    if choices:
        bench.choose(choices)
    return [bsym for bsym in bench.plan.split.forward.bound_symbols if bsym.sym.is_fusion]


def defined(bsym: Any, *, contiguous: bool = True) -> Any:
    """Return nvFuser's definition of a fusion, for inputs that are contiguous or have gaps between rows."""
    descriptors = tuple(((contiguous, True), (0, 1), None) for _ in bsym.args)
    return bsym._call_ctx[bsym.sym.name].get_fd(descriptors)


def test_a_run_defines_its_own_fusions_and_a_reference_reuses_them() -> None:
    definitions = Definitions()
    with definitions.kept():
        own = [defined(bsym) for bsym in fusions(0.5)]
    assert len({id(each) for each in own}) == len(own) == 2, "each of two equal fusions must be compiled"
    with definitions.shared():
        reference = [defined(bsym) for bsym in fusions(0.5)]
    assert {id(each) for each in reference} == {id(own[0])}
    # Outside of the `with` blocks, a definition is not shared.
    assert defined(fusions(0.5)[0]) is not own[0]


@pytest.mark.parametrize("other", ["constant", "shape", "strides"])
def test_a_different_definition_is_compiled(other: str) -> None:
    definitions = Definitions()
    with definitions.kept():
        own = defined(fusions(0.1)[0])
    # nvFuser prints both constants as 0.100000, so the printed definition cannot distinguish them.
    scale, size = 0.1 + 1e-9 * (other == "constant"), 16 if other == "shape" else 8
    with definitions.shared():
        found = defined(fusions(scale, size)[0], contiguous=other != "strides")
        again = defined(fusions(scale, size)[0], contiguous=other != "strides")
    assert found is not own
    assert again is found


def test_different_definitions_with_the_same_key_are_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definition_cache, "structure_key", lambda *_: "")
    definitions = Definitions()
    with definitions.kept():
        own = defined(fusions(0.5)[0])
    with definitions.shared():
        assert defined(fusions(0.25)[0]) is not own
        assert defined(fusions(0.5)[0]) is own


@pytest.mark.slow
def test_a_definition_that_omits_sets_is_not_shared() -> None:
    def written(policy: str) -> Any:
        bench = workbench.open("torch_sgd", device="planned", executor="nvfuser", settings={"size": 8, "parameters": 1})
        bench.choose({"copies.policy": policy, "copies.fences": "drop"})
        (bsym,) = [bsym for bsym in bench.plan.split.forward.bound_symbols if bsym.sym.is_fusion]
        return defined(bsym)

    definitions = Definitions()
    with definitions.kept():
        always, never = written("always"), written("never")
    assert str(always) != str(never)
    with definitions.shared():
        assert written("always") is always
        assert written("never") is not never
        assert str(written("never")) == str(never)
