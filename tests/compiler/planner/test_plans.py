"""A plan without choices has the statements that unmodified Thunder executes. Ids of sites are stable.

Invalid plans are refused.
"""

from __future__ import annotations

import dataclasses
import functools
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import pytest
import thunder
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from thunder.core import prims
from thunder.core.trace import TraceCtx, from_trace
from thunder.executors.torch_compile import TorchCompileExecutor
from thunder.extend import FusionExecutor

import workbench
from tests.needs import needs_nvfuser
from tests.strategies import RandomProgram, programs
from tests.trial_counts import amount, combined
from workbench.compiler.frontend.differentiability import cut_off_whole_numbers
from workbench.compiler.fusion.executors import ExecutorState, FusionOptions, region_executor
from workbench.compiler.lowering import patch_context
from workbench.compiler.trace.validate import validate
from workbench.core.lever import lever_named
from workbench.errors import ChoiceError, PlanError, ProgramError

PROGRAMS = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
BUILTIN: list[tuple[str, dict[str, Any]]] = [
    ("mlp", {"layers": 1}),
    ("residual_chain", {"layers": 3, "grad": True}),
    ("residual_chain", {"layers": 3}),
    ("llama", {"layers": 1, "dim": 16, "vocab": 32, "sequence": 8}),
    ("batch_norm", {}),
    ("dropout_mlp", {}),
]


class Stock(TorchCompileExecutor):
    """Thunder's own torch.compile executor, but with the workbench's rule for the statements of a region."""

    def __init__(self) -> None:
        super().__init__("torchcompile_stock")
        self._ours = region_executor(ExecutorState(lambda trace: FusionOptions()))
        self._implmap = self._ours.implmap

    def can_fuse(self, bsym: Any) -> bool:
        return self._ours.can_fuse(bsym)


def statements(trace: Any) -> list[str]:
    return [str(bsym) for bsym in trace.bound_symbols]


class WholeNumbers(thunder.Transform):
    """A transform that drops gradients of integer values, as plans do. Thunder computes them, but nothing uses them."""

    def transform_traces_pre_prologue(self, prologue: Any, computation: Any, epilogue: Any, **_: Any) -> Any:
        cut_off_whole_numbers(computation)
        return prologue, computation, epilogue


def unmodified(function: Any, args: Any, kwargs: Any, executor: str) -> list[list[str]]:
    """Return the statements that Thunder executes without the workbench, as one list for each trace."""
    executors = [e for e in thunder.get_default_executors() if not isinstance(e, FusionExecutor)]
    if executor == "torchcompile":
        executors = [Stock(), *executors]
    jitted = thunder.jit(function, executors=executors, transforms=[WholeNumbers()])
    # With these patches, parameters are named by their paths, so values have the same names as in a plan.
    with patch_context.install_patches():
        jitted._lc_cd.get_computation_and_inputs(*args, **kwargs)
    sides = [thunder.last_traces(jitted), thunder.last_backward_traces(jitted)]
    # If the program has no backward, `last_backward_traces` returns no traces.
    return [statements(side[-1]) for side in sides if side]


@pytest.mark.slow
@needs_nvfuser
@pytest.mark.parametrize("mask", [torch.bool, torch.bfloat16, None])
def test_attention_on_a_planned_gpu_reads_its_mask(mask: torch.dtype | None) -> None:
    def program(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).sum()

    tensors = [torch.randn(2, 4, 8, 64, dtype=torch.bfloat16, requires_grad=True) for _ in "qkv"]
    given = None if mask is None else torch.ones(2, 1, 8, 8, dtype=mask)
    bench = workbench.open(program, *tensors, given, device="planned", executor="nvfuser")
    assert bench.plan.warnings == ()
    assert bench.plan.proof.proven
    (name,) = {each.partition("_grad")[0] for each in bench.plan.graph.statements.name if "grad_forward" in each}
    # `sdpafx` is flash attention, which does not support masks.
    assert name == ("sdpafx" if mask is None else "sdpaex")


def planned(bench: workbench.Workbench) -> list[list[str]]:
    split = bench.plan.split
    return [statements(side) for side in (split.forward, split.backward) if side is not None]


@pytest.mark.slow
@pytest.mark.parametrize(("case", "executor"), combined(BUILTIN, ["torch", "torchcompile"]))
def test_without_choices_a_plan_equals_what_thunder_executes(case: tuple[str, dict[str, Any]], executor: str) -> None:
    name, given = case
    bench = opened(name, tuple(given.items()), executor)
    assert planned(bench) == unmodified(*bench.program.build(), executor)


@functools.cache
def opened(name: str, given: tuple[tuple[str, Any], ...], executor: str) -> workbench.Workbench:
    """Return a bench without choices. Tests share the bench, so a test must not change it."""
    return workbench.open(name, device="cpu", executor=executor, settings=dict(given), capture="interpreter")


@pytest.mark.slow
@pytest.mark.drawn
@pytest.mark.filterwarnings("ignore::workbench.errors.ProgramWarning")  # a warning that Thunder's gradients are wrong
@pytest.mark.parametrize("executor", ["torch", "torchcompile"])
def test_the_stock_plan_of_a_random_program_equals_thunders_traces_and_has_unique_ids(
    executor: str,
) -> None:
    @settings(PROGRAMS, max_examples=amount(5, 14, 200))
    @given(st.booleans(), st.data())
    def check(writes: bool, data: st.DataObject) -> None:
        program: RandomProgram = data.draw(programs(random=True, writes=writes))
        function, args, _ = program.build()
        try:
            bench = workbench.open(function, *args, executor=executor, capture="interpreter")
        except ProgramError:
            assume(False)
        assert_unique(bench)
        # In a program that writes in place, the workbench may exclude a statement that Thunder puts into a region.
        if executor == "torch" or not writes:
            assert planned(bench) == unmodified(*program.build(), executor)

    check()


def assert_unique(bench: workbench.Workbench) -> None:
    ids = [site.id for site in bench.sites()]
    assert len(ids) == len(set(ids))


@pytest.mark.slow
@pytest.mark.parametrize(("case", "executor"), combined(BUILTIN, ["torch", "torchcompile"]))
def test_ids_are_unique(case: tuple[str, dict[str, Any]], executor: str) -> None:
    name, given = case
    assert_unique(opened(name, tuple(given.items()), executor))


MODEL = """
    import torch
    from torch import nn


    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

        def forward(self, x):
            return x + self.down(torch.tanh(self.up(x)))


    def factory(layers: int = 2, batch: int = 4):
        return nn.Sequential(*(Block(8) for _ in range(layers))), (torch.randn(batch, 8),)
"""


def sites_of(file: Path, **given: int) -> set[str]:
    bench = workbench.open(f"{file}:factory", device="cpu", executor="torchcompile", **given)
    return {site.id for site in bench.sites() if ":" in site.id}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    file = tmp_path / "model.py"
    file.write_text(textwrap.dedent(MODEL))
    return file


@pytest.mark.slow
def test_ids_are_the_same_in_another_process(model: Path) -> None:
    script = (
        "import workbench, sys\n"
        "bench = workbench.open(sys.argv[1], device='cpu', executor='torchcompile')\n"
        "print('\\n'.join(site.id for site in bench.sites() if ':' in site.id))"
    )
    command = [sys.executable, "-W", "ignore", "-c", script, f"{model}:factory"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == sites_of(model)


@pytest.mark.slow
def test_ids_are_the_same_with_another_batch_size(model: Path) -> None:
    assert sites_of(model, layers=1, batch=4) == sites_of(model, layers=1, batch=16)


def test_ids_are_the_same_after_lines_were_moved(model: Path) -> None:
    before = sites_of(model, layers=1)
    text = model.read_text().replace("    def forward", "    # What it does.\n\n\n    def forward")
    model.write_text("# A model.\n\n\n" + text)
    assert sites_of(model, layers=1) == before


@pytest.mark.slow
def test_ids_of_existing_layers_stay_with_one_more_layer(model: Path) -> None:
    two, three = sites_of(model, layers=2), sites_of(model, layers=3)
    # Leave out the ids of values between fusions in the last layer of `two`. In `three`, another layer follows this
    # layer, so these ids may change.
    assert {id for id in two if id.startswith("saved:") or ":0" in id} < three


def test_choices_apply_to_a_smaller_program_and_choices_without_a_site_are_reported(
    model: Path, tmp_path: Path
) -> None:
    bench = workbench.open(f"{model}:factory", device="cpu", layers=2)
    tanhs = [site.id for site in bench.sites("saved") if "tanh" in site.id]
    assert len(tanhs) == 2
    bench.choose(dict.fromkeys(tanhs, "recompute"))
    file = bench.export(tmp_path / "choices.py")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        smaller = workbench.open(f"{model}:factory", config=file, settings={"layers": 1})
    assert any(issubclass(w.category, workbench.ConfigWarning) and "1 of 2 choices" in str(w.message) for w in told)
    assert set(smaller.choices) == set(tanhs[:1])
    assert set(smaller.unmatched) == set(tanhs[1:])


def test_an_option_that_a_site_lacks_is_refused_in_each_call_of_a_replay() -> None:
    bench = workbench.open("mlp", layers=1, device="cpu")
    id = next(site.id for site in bench.sites("saved") if site.values and "recompute" not in site.illegal)
    model, inputs, _ = bench.program.build()
    fast = dataclasses.replace(bench.config, choices={id: "recompte"}).jit(model)
    # Call twice: a faulty replay could refuse only the first call, and run the second one without the choice.
    for _ in range(2):
        with pytest.raises(ChoiceError, match="'recompte' is not an option here; legal: save, recompute") as refused:
            fast(*inputs)
        assert refused.value.site == id


@functools.cache
def long_chain(grad: bool) -> workbench.Workbench:
    return workbench.open("residual_chain", layers=32, grad=grad, device="planned", executor="nvfuser")


@needs_nvfuser
@pytest.mark.slow
@pytest.mark.parametrize(
    ("grad", "choices", "count", "unique", "largest"),
    [
        (False, {}, 65, 3, None),
        (False, {"remat.weight": "0.0"}, 65, 65, 64),
        (True, {}, 129, 6, None),
        (True, {"remat.weight": "0.0"}, 129, 68, None),
    ],
)
def test_the_residual_chain_splits_at_weight_zero(
    grad: bool, choices: dict[str, str], count: int, unique: int, largest: int | None
) -> None:
    census = long_chain(grad).plan_under(choices).fusions
    assert (census.count, census.unique) == (count, unique)
    assert largest is None or census.largest == largest


@needs_nvfuser
@pytest.mark.slow
def test_a_cut_every_four_layers_gives_few_unique_fusions() -> None:
    assert long_chain(False).plan_under({"remat.weight": "0.0", "remat.preset": "every=4"}).fusions.unique <= 6


@pytest.mark.slow
def test_a_cut_without_effect_names_the_preset() -> None:
    bench = workbench.open("residual_chain", device="planned", executor="torchcompile")
    site = next(site for site in bench.sites("remat") if not site.is_setting and "recompute" not in site.illegal)
    bench.choose({"remat.preset": "off", site.id: "recompute"})
    text = lever_named("remat").explain_outcome(bench.site(site.id))
    assert text == "Set: recompute. In effect: save. remat.preset is off."
    bench.choose({"remat.preset": "stock"})
    now = bench.site(site.id)
    assert (now.outcome, now.cause) == ("recompute", "")


@pytest.mark.parametrize("executor", ["torch", "torchcompile"])
def test_a_random_draw_cannot_be_recomputed(executor: str) -> None:
    def drawn(x: torch.Tensor) -> torch.Tensor:
        noise = torch.rand_like(x)
        return torch.sin(x * noise)

    bench = workbench.open(drawn, torch.randn(8, 8, requires_grad=True), executor=executor)
    refused = [site for site in bench.sites("saved") if "random" in site.illegal.get("recompute", "")]
    assert len(refused) == 1
    with pytest.raises(ChoiceError, match="draws random numbers"):
        bench.choose({refused[0].id: "recompute"})
    assert bench.choices == {}


@pytest.mark.parametrize("draw", ["randn", "randint", "normal"])
def test_every_option_offered_for_a_value_that_depends_on_a_draw_gives_a_plan(draw: str) -> None:
    size = (8, 8)
    made = {
        "randn": lambda: torch.randn(size) * 2,
        "randint": lambda: torch.randint(1, 9, size).float(),
        "normal": lambda: torch.normal(0.5, 1.0, size),
    }

    def drawn(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x * made[draw]())

    bench = workbench.open(drawn, torch.randn(size, requires_grad=True))
    assert len(bench.sites("saved")) > 1
    for site in bench.sites("saved"):
        for option in site.options:
            if option not in site.illegal:
                bench.choose({site.id: option})
        bench.choose({site.id: site.default})


def plan_of(function: Any, *args: torch.Tensor, executor: str = "torch") -> Any:
    return workbench.open(function, *args, executor=executor).plan.split


@pytest.fixture
def split() -> Any:
    def sines(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(torch.sin(x))

    return plan_of(sines, torch.randn(8, requires_grad=True))


def edited(trace: TraceCtx, bsyms: list[Any]) -> TraceCtx:
    made = from_trace(trace)
    made.bound_symbols = bsyms
    return made


def test_a_valid_plan_is_accepted(split: Any) -> None:
    assert split.backward is not None
    assert validate(split.forward, split.backward) is None


def test_a_value_without_a_producer_is_refused(split: Any) -> None:
    bsyms = list(split.forward.bound_symbols)
    first = next(i for i, bsym in enumerate(bsyms) if bsym.sym.name == "sin")
    made = bsyms[first].flat_proxy_outs[0].name
    with pytest.raises(PlanError, match=f"forward: sin reads {made}, which nothing before it defines"):
        validate(edited(split.forward, bsyms[:first] + bsyms[first + 1 :]), split.backward)


def test_a_value_read_after_it_was_deleted_is_refused(split: Any) -> None:
    bsyms = list(split.backward.bound_symbols)
    deletion = next(i for i, b in enumerate(bsyms) if b.sym.id is prims.PrimIDs.DEL and bsyms[i - 1].sym.name == "mul")
    moved = [*bsyms[: deletion - 1], bsyms[deletion], bsyms[deletion - 1], *bsyms[deletion + 1 :]]
    with pytest.raises(PlanError, match=r"backward: .* after it was deleted"):
        validate(split.forward, edited(split.backward, moved))


def test_a_fusion_that_lacks_an_argument_is_refused() -> None:
    def sines(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.sin(torch.sin(x @ w) * w)

    split = plan_of(sines, torch.randn(8, 8), torch.randn(8, 8), executor="torchcompile")
    bsyms = list(split.forward.bound_symbols)
    at = next(i for i, bsym in enumerate(bsyms) if bsym.sym.is_fusion)
    bsyms[at] = bsyms[at].from_bsym(args=bsyms[at].args[:1])
    with pytest.raises(PlanError, match="which is not among its inputs"):
        validate(edited(split.forward, bsyms), None)
