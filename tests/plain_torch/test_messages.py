"""Choices that plain PyTorch cannot follow are named with the reason."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.checkpoint import checkpoint

import workbench as wb
from workbench.analysis.cost.machines import H100
from workbench.bench.report import torch_file
from workbench.compiler.driver.torch_prediction import predict_and_read
from workbench.errors import ConfigError, ConfigWarning
from workbench.plain_torch import compiled, eager


class Gated(torch.nn.Module):
    def __init__(self, *, breaks: bool = False) -> None:
        super().__init__()
        self.gate, self.up, self.norm = torch.nn.Linear(8, 32), torch.nn.Linear(8, 32), torch.nn.LayerNorm(32)
        self.breaks = breaks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.nn.functional.silu(self.gate(x)) * self.up(x)
        if self.breaks:
            torch._dynamo.graph_break()
        return (self.norm(hidden) * hidden).square().sum()


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def inputs(rows: int = 4) -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(rows, 8)


def model(**given: Any) -> Gated:
    torch.manual_seed(0)
    return Gated(**given)


def told_by(call: Any, *args: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        call(*args).backward()
    return [str(w.message) for w in told if "is not applied" in str(w.message)]


def gradients(module: torch.nn.Module) -> list[torch.Tensor]:
    return [p.grad for p in module.parameters() if p.grad is not None]


@pytest.mark.parametrize("way", [lambda m, c: compiled.compile(m, choices=c, backend="aot_eager"), "eager"])
def test_a_choice_without_operator_names_the_nearest(way: Any) -> None:
    choices = {("gates", "linear", 0): "recompute", ("", "silu", 0): "recompute"}
    call = eager.checkpoint(model(), choices=choices) if way == "eager" else way(model(), choices)
    assert told_by(call, inputs()) == [
        "choice ('gates', 'linear', 0): 'recompute' is not applied: "
        "this call has no such operator; the nearest is ('gate', 'linear', 0)"
    ]
    assert told_by(call, inputs()) == []


@pytest.mark.parametrize("way", ["disabled", "stance"])
def test_choices_are_reported_if_pytorch_compiles_nothing(way: str) -> None:
    module = model()
    if way == "disabled":
        module.forward = torch.compiler.disable(module.forward)  # type: ignore[method-assign]
    call = compiled.compile(module, choices={("", "silu", 0): "recompute"}, backend="aot_eager")
    with torch.compiler.set_stance("force_eager" if way == "stance" else "default"):
        told = told_by(call, inputs())
    assert told == [
        "choice ('', 'silu', 0): 'recompute' is not applied: "
        "this call has no such operator; the nearest is none: none was found"
    ]


def test_the_choices_of_another_model_are_reported_in_one_message() -> None:
    choices = {("model.layers.0.mlp", "mul", 0): "recompute", ("model.layers.0.mlp.act_fn", "silu", 0): "save"}
    (told,) = told_by(compiled.compile(model(), choices=choices, backend="aot_eager"), inputs())
    assert "this call has no such operator; the nearest is ('" in told
    assert told.endswith("; nor for the other 1: are they for another model, or the function around it?")


def test_a_budget_applies_to_the_partition_and_no_budget_keeps_pytorchs_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: list[float] = []
    divide: Any = vars(compiled)["min_cut_rematerialization_partition"]

    def spy(*given: Any, **more: Any) -> Any:
        used.append(torch._functorch.config.activation_memory_budget)
        return divide(*given, **more)

    monkeypatch.setattr(compiled, "min_cut_rematerialization_partition", spy)
    for budget in (0.5, None):
        with torch._functorch.config.patch(activation_memory_budget=0.75):
            compiled.compile(model(), budget=budget, backend="aot_eager")(inputs()).backward()
    assert used == [0.5, 0.75]
    with pytest.raises(ValueError, match="budget 50 is not legal; legal: a number from 0 to 1, or None"):
        compiled.compile(model(), budget=50)


@pytest.mark.parametrize("of_function", [False, True])
def test_a_parameter_that_is_unfrozen_later_gets_its_gradient(of_function: bool) -> None:
    module, plain, graphs = model(), model(), torch._dynamo.utils.counters["stats"]
    graphs.clear()
    call = compiled.compile(
        (lambda x: module(x)) if of_function else module,
        choices={} if of_function else {("", "silu", 0): "recompute"},
        backend="aot_eager",
    )
    module.up.requires_grad_(False)
    for _ in range(2):
        call(inputs()).backward()
    assert graphs["unique_graphs"] == 1
    assert module.up.weight.grad is None
    module.up.requires_grad_(True)
    for _ in range(2):
        module.zero_grad()
        assert told_by(call, inputs()) == []
    assert graphs["unique_graphs"] == 2
    plain(inputs()).backward()
    assert len(gradients(module)) == len(gradients(plain))
    assert all(map(torch.equal, gradients(module), gradients(plain)))
    assert torch._dynamo.config.skip_tensor_guards_with_matching_dict_tags


def test_a_saved_operator_of_several_tensors_inside_of_a_checkpoint_divides_the_graph() -> None:
    class Largest(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.linspace(0.5, 1, 8))

        def part(self, x: torch.Tensor) -> torch.Tensor:
            values, _ = torch.topk(x * self.weight, 4)
            return values.exp()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = checkpoint(self.part, x, use_reentrant=False)
            return out.sin().sum()

    module, plain = Largest(), Largest()
    call = compiled.compile(module, choices={("", "topk", 0): "save"}, backend="aot_eager")
    assert told_by(call, inputs()) == []
    plain(inputs()).backward()
    assert torch.equal(*gradients(module), *gradients(plain))


def test_a_graph_that_pytorch_cannot_divide_names_the_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    def unbounded(*_: Any, **__: Any) -> Any:
        raise ModuleNotFoundError("No module named 'pydot'")  # PyTorch draws the graph whose cut is unbounded

    monkeypatch.setattr(compiled, "min_cut_rematerialization_partition", unbounded)
    call = compiled.compile(model(), choices={("", "silu", 0): "recompute"}, backend="aot_eager")
    with pytest.raises(BackendCompilerFailed, match=r"cannot divide the graph with choices \[\(\('', 'silu', 0\)"):
        call(inputs())


def test_an_unknown_option_and_an_unknown_backend_are_refused() -> None:
    with pytest.raises(ValueError, match="no option 'keep'; legal: save, recompute, offload"):
        compiled.compile(model(), choices={("", "silu", 0): "keep"})
    with pytest.raises(ValueError, match="backend 'cudagraphs' cannot follow choices; legal: 'inductor', 'aot_eager'"):
        compiled.compile(model(), backend="cudagraphs")


def test_a_choice_after_a_graph_break_is_reported_and_a_choice_before_it_applies() -> None:
    choices = {("", "silu", 0): "recompute", ("", "mul", 0): "recompute"}
    module, plain = model(breaks=True), model(breaks=True)
    told = told_by(compiled.compile(module, choices=choices, backend="aot_eager"), inputs())
    assert told == [
        "choice ('', 'mul', 0): 'recompute' is not applied: "
        "a graph break divides its module, so PyTorch decides after the break"
    ]
    plain(inputs()).backward()
    assert all(map(torch.equal, gradients(module), gradients(plain)))


@pytest.mark.slow
def test_other_shapes_and_a_second_compilation_keep_the_choices() -> None:
    module, choices = model(), {("", "silu", 0): "recompute", ("", "mul", 0): "recompute"}
    first = compiled.compile(module, choices=choices, backend="aot_eager")
    second = compiled.compile(module, choices=choices, backend="aot_eager", dynamic=True)
    for call in (first, second):
        for rows in (4, 6, 7):
            plain = model()
            plain(inputs(rows)).backward()
            module.zero_grad()
            assert told_by(call, inputs(rows)) == []
            assert all(map(torch.equal, gradients(module), gradients(plain)))


def test_an_eager_input_that_is_written_in_place_is_refused() -> None:
    class Writes(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            out = torch.nn.functional.silu(x) * y
            x.detach().add_(1)
            return out.sum()

    call = eager.checkpoint(Writes(), choices={("", "silu", 0): "recompute"})
    loss = call(torch.randn(4), torch.randn(4, requires_grad=True))
    with pytest.raises(RuntimeError, match="a later write changed the operator's input: choose 'save'"):
        loss.backward()


def test_an_eager_dropout_is_kept_and_reported() -> None:
    call = eager.checkpoint(
        torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Linear(8, 1)), choices={("0", "dropout", 0): "recompute"}
    )
    with pytest.warns(UserWarning, match="PyTorch draws random numbers here"):
        call(inputs())


def test_a_checkpointed_module_gives_the_same_results_without_gradients() -> None:
    module = eager.checkpoint(model(), choices={("", "silu", 0): "recompute"})
    with torch.no_grad():
        assert torch.equal(module(inputs()), model()(inputs()))


def bench() -> wb.Workbench:
    opened = wb.open(model(), inputs())
    opened.choose({"saved:Gated/silu": "recompute", "saved:norm/layer_norm>rsqrt": "recompute"})
    return opened


# The prediction in a file for torch.compile needs Inductor.
@pytest.mark.parametrize("target", [pytest.param("torch", marks=pytest.mark.slow), "torch_eager"])
def test_the_file_lists_what_is_left_out_and_its_helper_has_at_most_150_lines_of_code(
    target: Literal["torch", "torch_eager"], tmp_path: Path
) -> None:
    text = bench().export(tmp_path / "choices.py", target=target).read_text()
    assert '("", "silu", 0): "recompute",' in text
    assert "- saved:norm/layer_norm>rsqrt=recompute: it is a part of layer_norm, which Thunder decomposes and" in text
    helper = text[text.index(torch_file.HELPER) :]
    assert sum(bool(line.strip()) for line in helper.splitlines()) <= 150
    assert "workbench." not in text.partition(torch_file.HELPER)[2]


@pytest.mark.parametrize(
    ("version", "breaks", "message"),
    [
        ("2.9.1+cu128", "", r"this file needs PyTorch >=2\.10,<[\d.]+, but PyTorch 2\.9\.1\+cu128 is installed$"),
        ("2.99.0a0+git", "TorchFunctionMode", r"but PyTorch 2\.99\.0a0\+git is installed: cannot import name"),
    ],
)
def test_a_file_says_which_pytorch_it_needs(
    version: str, breaks: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = bench().export(tmp_path / "choices.py", target="torch_eager").read_text()
    exec(compile(text, "choices.py", "exec"), {"__name__": "choices"})
    monkeypatch.setattr(torch, "__version__", version)
    if breaks:
        monkeypatch.delattr(f"torch.overrides.{breaks}")
    with pytest.raises(ImportError, match=message):
        exec(compile(text, "choices.py", "exec"), {"__name__": "choices"})


def test_an_export_replaces_only_its_own_kind(tmp_path: Path) -> None:
    file = tmp_path / "choices.py"
    file.write_text("mine = 1\n")
    with pytest.raises(ConfigError, match="the file exists and is not a file of choices for PyTorch"):
        bench().export(file, target="torch_eager")
    with pytest.raises(ConfigError, match="no target 'jax'; legal: thunder, torch, torch_eager"):
        bench().export(file, target="jax")
    assert file.read_text() == "mine = 1\n"


def test_choices_of_other_levers_are_left_out() -> None:
    opened = wb.open(model(), inputs())
    opened.choose({"saved:Gated/silu": "offload", "saved.inputs": "cut"})
    found = opened.torch_choices()
    assert found.choices == {("", "silu", 0): "offload"}
    setting = {"saved.inputs": "this is a setting of Thunder's lever saved, which plain PyTorch does not have"}
    assert found.left_out == setting


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_an_offloaded_tensor_goes_to_the_host_and_comes_back(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[str] = []
    divide = compiled.min_cut_rematerialization_partition

    def divided(*given: Any, **named: Any) -> Any:
        # On a CPU, Inductor later removes these copies.
        forward, backward = divide(*given, **named)
        moved.extend(node.name for node in forward.graph.nodes if node.name.startswith("cpu_offload_"))
        moved.extend(node.name for node in backward.graph.nodes if node.name.startswith("gpu_reload_"))
        return forward, backward

    monkeypatch.setattr(compiled, "min_cut_rematerialization_partition", divided)
    choices = {("", "silu", 0): "offload", ("up", "linear", 0): "offload"}
    module, plain = model(), model()
    assert told_by(compiled.compile(module, choices=choices, backend=backend), inputs()) == []
    torch.compile(plain, backend=backend)(inputs()).backward()
    assert all(map(torch.equal, gradients(module), gradients(plain)))
    assert [name.partition("_")[0] for name in moved] == ["cpu", "cpu", "gpu", "gpu"]


def test_a_tensor_that_pytorch_cannot_offload_is_reported() -> None:
    class Transposed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x.t() * self.weight[:4]).sin().sum()

    choices = {("", "mul", 0): "offload"}
    (told,) = told_by(compiled.compile(Transposed(), choices=choices, backend="aot_eager"), inputs())
    assert "'offload' is not applied: PyTorch offloads only contiguous tensors" in told


class Written(torch.nn.Module):
    """Writes the output of an operator in place, after the operators that save it."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(8, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.nn.functional.silu(self.up(x)).view(32, -1)
        out = (hidden[:16] * hidden[16:].exp()).square().sum()
        with torch.no_grad():
            hidden.zero_()
        return out


def test_without_a_compiler_an_offloaded_tensor_is_a_copy() -> None:
    choices = {("", "silu", 0): "offload", ("up", "linear", 0): "offload", ("", "mul", 0): "offload"}
    module, plain = model(), model()
    assert told_by(eager.checkpoint(module, choices=choices), inputs()) == []
    plain(inputs()).backward()
    assert all(map(torch.equal, gradients(module), gradients(plain)))


def test_without_a_compiler_the_memory_of_an_offloaded_tensor_is_freed() -> None:
    def kept(option: str) -> bool:
        module = Gated()
        made: list[StorageWeakRef] = []
        module.up.register_forward_hook(lambda _, __, out: made.append(StorageWeakRef(out.untyped_storage())))
        eager.checkpoint(module, choices={("up", "linear", 0): option})
        loss = module(inputs())
        held = not made[0].expired()
        loss.backward()
        return held

    assert kept("save")
    assert not kept("offload")


def test_a_later_write_does_not_change_an_offloaded_tensor() -> None:
    torch.manual_seed(0)
    module, plain = Written(), Written()
    plain.load_state_dict(module.state_dict())
    assert told_by(eager.checkpoint(module, choices={("", "silu", 0): "offload"}), inputs()) == []
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        plain(inputs()).backward()
    hidden = torch.nn.functional.silu(plain.up(inputs())).view(32, -1)
    (hidden[:16] * hidden[16:].exp()).square().sum().backward()
    assert all(map(torch.equal, gradients(module), gradients(plain)))


@pytest.mark.parametrize("way", ["compile", "checkpoint"])
def test_a_config_translates_its_choices_in_the_first_call(way: str) -> None:
    config, module, plain = bench().config, model(), model()
    call = config.compile(module, backend="aot_eager") if way == "compile" else config.checkpoint(module)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        loss = call(inputs())
    (message,) = [str(w.message) for w in told if w.category is ConfigWarning]
    assert message.startswith("PyTorch cannot follow these choices: saved:norm/layer_norm>rsqrt: it is a part of")
    loss.backward()
    plain(inputs()).backward()
    assert all(map(torch.equal, gradients(module), gradients(plain)))


@pytest.mark.slow
def test_fewer_bytes_are_predicted_with_choices() -> None:
    opened = wb.open(model(), inputs())
    opened.choose({"saved:up/linear": "recompute"})
    assert opened.torch_prediction(stock=True).saved_bytes - opened.torch_prediction().saved_bytes == 4 * 32 * 4


@pytest.mark.slow
def test_recomputation_adds_its_operations_to_the_predicted_step() -> None:
    captured = wb.open(model(), inputs())._captured
    stock, chosen = (predict_and_read(captured, choices).memory for choices in ({}, {("up", "linear", 0): "recompute"}))
    assert chosen.flops["float32"] - stock.flops["float32"] == 2 * 4 * 8 * 32
    assert all(moved > 0 for moved, _ in stock.kernels)
    assert chosen.seconds(H100) > stock.seconds(H100)
