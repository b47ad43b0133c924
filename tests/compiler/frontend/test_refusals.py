"""If a program cannot be traced, the error has the user's line, then a remedy, then the message of the tracer."""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest
import torch
from torch import nn

import workbench
from tests.trial_counts import beyond
from workbench.bench import PartsBench
from workbench.compiler.frontend.trace_errors import remedy
from workbench.errors import ProgramError
from workbench.interop.torch_private import FakeTensorMode

MODEL = nn.Linear(4, 4)


def branches(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x
    return -x


def selects(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].sum()


def finds(x: torch.Tensor) -> torch.Tensor:
    return torch.nonzero(x)


def trains(x: torch.Tensor) -> torch.Tensor:
    loss = MODEL(x).sum()
    loss.backward()
    return loss


def multiplies(x: torch.Tensor) -> torch.Tensor:
    return x @ torch.zeros(3, 3)


def leaves(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor(x.tolist())


def detaches(x: torch.Tensor) -> torch.Tensor:
    x.data.mul_(2)
    return x.sum()


def contracts(x: torch.Tensor) -> torch.Tensor:
    return ((x * 1j) @ (MODEL.weight * 1j)).abs().sum()


def picks(x: torch.Tensor) -> torch.Tensor:
    size = (2, 3)[int(torch.empty(1).uniform_(0.0, 2.0).item())]
    return x[:size].sum()


def balances(x: torch.Tensor) -> torch.Tensor:
    scores, targets, lengths = x.log_softmax(-1).unsqueeze(1), torch.ones(1, 2, dtype=torch.long), torch.tensor([4])
    return nn.functional.ctc_loss(scores, targets, lengths, torch.tensor([2]))


def maps(x: torch.Tensor) -> torch.Tensor:
    made = torch.vmap(torch.cumsum, (0, None))(x, 0)
    made[0] = x[1]
    return made


def differentiates_forward(x: torch.Tensor) -> torch.Tensor:
    slope: torch.Tensor = torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),))[1]
    return slope


def differentiates(x: torch.Tensor) -> torch.Tensor:
    made: torch.Tensor = torch.func.grad(lambda y: y.sin().sum())(x)
    return made


def computes_with_numpy(x: torch.Tensor) -> torch.Tensor:
    return x * np.linspace(0.0, 1.0, x.shape[0])


def asserts(x: torch.Tensor) -> torch.Tensor:
    return torch.cat(x.split(x.argmax(-1).tolist()))


def takes_seven(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] != 7:
        raise ValueError(f"seven rows, not {x.shape[0]}, (as told)")
    return x * 2


def penalizes(x: torch.Tensor) -> torch.Tensor:
    slope, *_ = torch.autograd.grad(MODEL(x).sum(), x, create_graph=True)
    return slope.square().sum()


def masks(x: torch.Tensor) -> torch.Tensor:
    # The mask is missing only while the program is traced, as in Hugging Face's models.
    mask = None if torch.compiler.is_compiling() else x
    return x * mask.shape[0]  # type: ignore[union-attr]


def compares(x: torch.Tensor) -> torch.Tensor:
    if x.argmax().item() == 1:
        return x
    return -x


LINES = {
    compares: (
        "if x.argmax().item() == 1:",
        "a number that is read from a tensor decides which code runs: pass the number to the",
    ),
    penalizes: (
        "slope, *_ = torch.autograd.grad(MODEL(x).sum(), x, create_graph=True)",
        "open the function that it differentiates (its backward is planned, too)",
    ),
    differentiates: (
        "made: torch.Tensor = torch.func.grad(lambda y: y.sin().sum())(x)",
        "open the function that it differentiates (its backward is planned, too)",
    ),
    maps: ("made = torch.vmap(torch.cumsum, (0, None))(x, 0)", "write the batch as a dimension, instead of torch.vmap"),
    computes_with_numpy: (
        "return x * np.linspace(0.0, 1.0, x.shape[0])",
        "compute numbers with math, and tensors with",
    ),
    asserts: ("return torch.cat(x.split(x.argmax(-1).tolist()))", "compute with tensors only, or read the values"),
    branches: ("if x.sum() > 0:", "choose with torch.where, or pass the decision to the program as a bool"),
    selects: ("return x[x > 0].sum()", "keep the shape, as torch.where(mask, x, 0) does, or select before the program"),
    finds: ("return torch.nonzero(x)", "keep the shape, as torch.where(mask, x, 0) does, or select before the program"),
    trains: ("loss.backward()", "open the part that returns the loss"),
    balances: (
        "return nn.functional.ctc_loss(scores, targets, lengths, torch.tensor([2]))",
        "open the model without labels, and pass its logits to torch.nn.functional.ctc_loss outside of the program",
    ),
    leaves: (
        "return torch.tensor(x.tolist())",
        "compute with tensors only, or read the values before or after the program",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("program", LINES, ids=lambda program: program.__name__)
def test_a_refusal_has_the_line_then_the_remedy(program: Callable[..., torch.Tensor]) -> None:
    line, advice = LINES[program]
    said = rf"^\S*test_refusals.py:\d+ \({re.escape(line)}\): .*{re.escape(advice)}.* \(.+\)$"
    with pytest.raises(ProgramError, match=said):
        workbench.open(program, torch.randn(4, 4), device="cpu", capture="dynamo")


@pytest.mark.slow
def test_numbers_that_numpy_computes_from_lists_split_a_program_into_parts() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * int(np.sum([3]))

    x = torch.randn(4, 4)
    bench = workbench.open(program, x, device="cpu")
    assert bench.capture == "parts"
    assert "compute numbers with math, or before the program" in bench.capture_reason
    torch.testing.assert_close(bench.config.jit(program)(x), program(x))


def test_an_error_raised_only_under_tracing_is_not_blamed_on_the_program() -> None:
    x = torch.randn(4, 4)
    assert masks(x).shape == x.shape
    with pytest.raises(ProgramError, match=r"If it runs there, .* under torch\.compile, .* attention_mask="):
        workbench.open(masks, x, device="cpu", capture="dynamo")
    assert workbench.open(masks, x, device="cpu").capture == "parts"


def test_the_interpreter_refuses_a_branch_on_a_number_from_a_tensor() -> None:
    said = rf"{re.escape('(if x.argmax().item() == 1:)')}: .*pass the number to the program"
    with pytest.raises(ProgramError, match=said):
        workbench.open(compares, torch.randn(4, 4), device="cpu", capture="interpreter")


def test_detection_models_get_a_remedy_by_their_module() -> None:
    told = "Could not guard on data-dependent expression Eq(u0, 1)"
    assert "model.backbone" in remedy(f"{told} /site-packages/torchvision/models/detection/ssd.py in forward")
    assert "model.backbone" not in remedy(f"{told} /home/me/model.py in forward")


@pytest.mark.slow
@pytest.mark.parametrize("capture", ["dynamo", "interpreter"])
@pytest.mark.parametrize("program", [differentiates, differentiates_forward])
def test_a_refused_program_leaves_no_open_torch_func_transform(program: Any, capture: str) -> None:
    x = torch.randn(4, 4, requires_grad=True)
    with pytest.raises(ProgramError):
        workbench.open(program, x, device="cpu", capture=capture)
    assert program(x).requires_grad
    # The refused program must not leave a transform of `torch.func` active, in which these calls would raise errors.
    assert torch.zeros(3).requires_grad_().requires_grad
    assert torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False).requires_grad


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("requires", "assert torch.all(x < 9)"),
        ("requires_bool", 'assert torch.all(x < 9).item(), "small ones"'),
        ("requires_number", "assert x.argmax().item() < 99"),
    ],
)
def test_an_assertion_about_values_is_refused_with_its_line(
    name: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Write the program into another file, because pytest rewrites the assertions in this file.
    (tmp_path / f"{name}.py").write_text(f"import torch\n\ndef requires(x):\n    {line}\n    return x.sin()\n")
    monkeypatch.syspath_prepend(tmp_path)
    program = importlib.import_module(name).requires
    advice = "remove the assertion, or check the inputs before the call"
    with pytest.raises(ProgramError, match=rf"^\S*{name}\.py:4 \({re.escape(line)}\): .*{advice}"):
        workbench.open(program, torch.randn(4, 4), device="cpu", capture="dynamo")
    assert workbench.open(program, torch.randn(4, 4), device="cpu").capture == "parts"


CUT = {
    detaches: ("x.data.mul_(2)", "read x.detach() instead"),
    contracts: (
        "return ((x * 1j) @ (MODEL.weight * 1j)).abs().sum()",
        "compute with real and imaginary parts",
    ),
}


@pytest.mark.parametrize("capture", beyond(1, ["dynamo", "interpreter"], pytest.mark.slow))
@pytest.mark.parametrize("program", beyond(1, CUT, pytest.mark.slow), ids=lambda program: program.__name__)
def test_a_program_with_a_pytorch_part_is_refused_as_one_graph_with_a_remedy(
    program: Callable[..., torch.Tensor], capture: str
) -> None:
    line, advice = CUT[program]
    said = rf"^\S*test_refusals.py:\d+ \({re.escape(line)}\): .*{re.escape(advice)}"
    with pytest.raises(ProgramError, match=said):
        workbench.open(program, torch.randn(4, 4), device="cpu", capture=capture)
    assert workbench.open(program, torch.randn(4, 4), device="cpu").capture == "parts"


def test_a_number_read_from_a_tensor_is_refused_with_a_remedy() -> None:
    with pytest.raises(ProgramError, match=r"test_refusals\.py:\d+ .*pass the number to the program"):
        workbench.open(picks, torch.randn(4, 4), device="cpu", capture="dynamo")


@pytest.mark.slow
def test_an_operator_whose_sizes_are_values_of_tensors_says_so() -> None:
    def pads(x: torch.Tensor, left: torch.Tensor) -> torch.Tensor:
        return nn.functional.pad(x * 2, (left, left)).sum()

    bench = workbench.open(pads, torch.randn(2, 4, requires_grad=True), torch.tensor(1), device="cpu")
    assert isinstance(bench, PartsBench)
    reasons = [part.refusal for part in bench.parts if part.opaque]
    assert any("compute sizes in Python" in reason and "the value of a tensor" in reason for reason in reasons), reasons


def test_mismatched_shapes_are_reported_once() -> None:
    """PyTorch also logs the error that it raises, with forty lines of its own calls. This log must not appear."""
    logger, told = logging.getLogger("torch._subclasses.fake_tensor"), logging.NullHandler()
    with mock.patch.object(logger, "handlers", [told]), mock.patch.object(told, "handle") as handle:
        for capture in ("dynamo", "parts", "auto"):
            with pytest.raises(
                ProgramError, match=r"test_refusals.py:\d+ \(return x @ torch.zeros\(3, 3\)\): "
            ) as told:
                workbench.open(multiplies, torch.ones(2, 4), device="cpu", capture=capture)
            shapes = "(2x4 and 3x3)" if capture == "parts" else "[2, 4] X [3, 3]"
            assert shapes in str(told.value)
            assert "reads tensor values" not in str(told.value)
        assert not handle.called
        with FakeTensorMode() as mode, pytest.raises(RuntimeError):
            multiplies(mode.from_tensor(torch.ones(2, 4)))
        assert handle.called, "outside of the workbench, PyTorch must log the error"


class Chosen(nn.Module):
    """A mixture of experts. Values decide how many rows an expert gets."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4)) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        best, out = x[:, :3].argmax(-1), torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            (rows,) = torch.where(best == number)
            out.index_add_(0, rows, expert(x[rows]))
        return out


@pytest.mark.slow
@pytest.mark.parametrize("capture", ["dynamo", "interpreter"])
def test_experts_with_value_dependent_rows_are_refused_with_the_line(capture: str) -> None:
    line = re.escape("((rows,) = torch.where(best == number)): ")
    with pytest.raises(
        ProgramError, match=rf"test_refusals.py:\d+ {line}.*keep the shape, as torch.where\(mask, x, 0\)"
    ):
        workbench.open(Chosen(), torch.randn(6, 4), capture=capture)


@pytest.mark.slow
@pytest.mark.long
def test_a_mask_that_a_transformer_reads_is_refused_with_a_remedy() -> None:
    network = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)

    def program(x: torch.Tensor, **said: bool) -> torch.Tensor:
        return network(x, x, tgt_mask=nn.Transformer.generate_square_subsequent_mask(4), **said)

    x = torch.randn(2, 4, 8)
    with pytest.raises(ProgramError, match="src_is_causal= and tgt_is_causal="):
        workbench.open(program, x, capture="dynamo")
    told = workbench.open(program, x, kwargs={"tgt_is_causal": True})
    torch.testing.assert_close(told.config.jit(program)(x, tgt_is_causal=True), program(x))


@pytest.mark.slow
def test_a_kl_divergence_of_own_classes_opens_in_parts_until_the_program_has_been_called_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Own(torch.distributions.Normal):
        """A class that has no formula of its own."""

    def divergence(x: torch.Tensor, kind: type[torch.distributions.Normal]) -> torch.Tensor:
        mean, spread = x.tanh().chunk(2, -1)
        ours, normal = kind(mean, spread.exp()), torch.distributions.Normal(0.0, 1.0)
        return torch.distributions.kl_divergence(ours, normal).mean()

    def program(x: torch.Tensor) -> torch.Tensor:
        return divergence(x, Own)

    monkeypatch.setattr(torch.distributions.kl, "_KL_MEMOIZE", {})
    x = torch.randn(4, 6)
    assert workbench.open(lambda x: divergence(x, torch.distributions.Normal), x).capture == "dynamo"
    first = workbench.open(program, x)
    assert first.capture == "parts"
    assert "call the program once before you open it" in first.capture_reason
    program(x)
    assert workbench.open(program, x).capture == "dynamo"


def test_the_interpreter_refuses_the_old_option_of_variance_and_names_the_new_one() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.var(-1, keepdim=True, unbiased=False)

    x = torch.randn(3, 4)
    with pytest.raises(
        ProgramError, match=r"test_refusals.py:\d+ \(return x\.var.*correction=0 instead of unbiased=False"
    ):
        workbench.open(program, x, capture="interpreter")
    torch.testing.assert_close(workbench.open(program, x).config.jit(program)(x), program(x))


class Annealed(nn.Linear):
    """A layer that takes each rate from a generator."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        self.rates = (rate / 10 for rate in range(1, 9))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * next(self.rates)


def test_an_iterator_of_the_program_is_not_read_while_tracing() -> None:
    program = Annealed()
    with pytest.raises(ProgramError, match=r"the program holds a generator \('rates'\), which Python cannot copy"):
        workbench.open(program, torch.ones(2), device="cpu")
    assert next(program.rates) == 0.1


def test_packed_sequences_are_refused_with_a_remedy() -> None:
    network = nn.LSTM(4, 4)

    def program(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return network(nn.utils.rnn.pack_padded_sequence(x, lengths))[0].data

    with pytest.raises(ProgramError, match=r"pass the padded batch to nn\.LSTM, nn\.GRU or nn\.RNN, and mask"):
        workbench.open(program, torch.randn(3, 2, 4), torch.tensor([3, 2]), device="cpu", capture="dynamo")


def test_a_refusal_by_the_interpreter_begins_with_the_users_line() -> None:
    line = multiplies.__code__.co_firstlineno + 1
    own = re.escape(f"{__file__}:{line} (return x @ torch.zeros(3, 3)): Thunder cannot trace 'multiplies': ")
    with pytest.raises(ProgramError, match=f"^{own}"):
        workbench.open(multiplies, torch.ones(2, 4), capture="interpreter")


@pytest.mark.parametrize("differentiated", [True, False])
def test_backward_hooks_of_a_module_are_refused_with_a_remedy(differentiated: bool) -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    module[0].register_full_backward_hook(lambda module, given, asked: None)
    with pytest.raises(ProgramError, match=r"remove the backward hooks from the modules .*remove\(\)"):
        workbench.open(module, torch.randn(4, 4, requires_grad=differentiated), device="cpu", capture="dynamo")


@pytest.mark.parametrize("capture", ["dynamo"])
def test_sparse_and_nested_tensors_are_refused_with_a_remedy(capture: str) -> None:
    rows = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)], layout=torch.jagged)
    for given, advice in ((torch.eye(4).to_sparse(), "pass x.to_dense()"), (rows, "pass the padded batch, and mask")):
        with pytest.raises(ProgramError, match=re.escape(advice)):
            workbench.open(torch.sin, given, device="cpu", capture=capture)


def test_an_error_of_the_program_is_reported_with_its_line_and_text() -> None:
    line = re.escape('raise ValueError(f"seven rows, not {x.shape[0]}, (as told)")')
    text = r"ValueError: seven rows, not 4, \(as told\)"
    for capture, said in (
        ("auto", rf"'takes_seven' fails in eager PyTorch: {text}$"),
        ("dynamo", rf"the program raises an error of its own: {text}; call the program without"),
    ):
        with pytest.raises(ProgramError, match=rf"^\S*test_refusals.py:\d+ \({line}\): {said}"):
            workbench.open(takes_seven, torch.randn(4, 4), device="cpu", capture=capture)


def test_an_absent_key_is_reported_as_python_prints_it() -> None:
    def reads(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return batch["x"] * batch["mask"]

    for capture, said in (("auto", "eager PyTorch: KeyError: 'mask'$"), ("dynamo", "its own: KeyError: 'mask'; call")):
        with pytest.raises(ProgramError, match=said):
            workbench.open(reads, {"x": torch.ones(3, requires_grad=True)}, device="cpu", capture=capture)


def test_a_compiled_program_raises_its_own_error_and_works_on() -> None:
    compiled = workbench.open(takes_seven, torch.randn(7, 4), device="cpu", capture="dynamo").config.jit(takes_seven)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"^seven rows, not 4, \(as told\)$") as raised:
            compiled(torch.randn(4, 4))
        assert raised.value.__context__ is None
        x = torch.randn(7, 4)
        torch.testing.assert_close(compiled(x), takes_seven(x))


def test_an_error_of_the_program_without_a_line_is_reported_with_its_text() -> None:
    with pytest.raises(ProgramError, match=r"^the program raises an error of its own: TypeError: .*: input2; call"):
        workbench.open(nn.Sequential(nn.Bilinear(3, 3, 3)), torch.ones(2, 3), device="cpu", capture="dynamo")


def test_a_notebook_cell_is_named_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = SimpleNamespace(_filename_map={__file__: 7})
    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(compile=numbers))
    for capture in ("dynamo", "interpreter"):
        with pytest.raises(ProgramError, match=r"^In\[7\]:\d+ \(return x @ torch\.zeros\(3, 3\)\): "):
            workbench.open(multiplies, torch.ones(2, 4), device="cpu", capture=capture)
    plan = workbench.open(multiplies, torch.ones(2, 3), device="cpu").plan
    assert {origin.file for origin in plan.graph.origins} == {"In[7]"}


def test_a_compiled_module_refuses_torch_func_transforms() -> None:
    compiled = workbench.open(MODEL, torch.ones(3, 4), device="cpu").config.jit(MODEL)
    with pytest.raises(ProgramError, match=r"inside torch\.vmap or torch\.func: pass the original module"):
        torch.vmap(compiled)(torch.ones(2, 3, 4))
    assert compiled(torch.ones(3, 4)).shape == (3, 4)


class Mistaken(NamedTuple):
    """A program and its input, one of which has a mistake, and a text that the error message must contain."""

    program: Callable[..., Any]
    given: torch.Tensor
    told: str


MISTAKES = {
    "shapes": Mistaken(nn.Linear(7, 3), torch.ones(4, 8), "linear fails on its inputs, (4, 8) float32, (3, 7) float32"),
    "a list": Mistaken(nn.Linear(7, 3), [1.0, 2.0], "must be Tensor, not list; give each input as an argument"),
    "a list to a convolution": Mistaken(
        nn.Conv2d(3, 3, 3), [torch.ones(1, 3, 5, 5)], "tuple, tuple, tuple, int); give each input as an argument"
    ),
    "channels": Mistaken(nn.Conv2d(3, 3, 3).half(), torch.ones(1, 4, 5, 5).half(), "to have 3 channels, but got 4"),
    "types": Mistaken(
        nn.Linear(8, 3).bfloat16(), torch.ones(4, 8), "PyTorch cannot combine these data types either: cast one"
    ),
    "types of a convolution": Mistaken(nn.Conv2d(3, 3, 3).half(), torch.ones(1, 3, 5, 5), "cast one of the tensors"),
    "types of indices": Mistaken(nn.Embedding(3, 3), torch.ones(4), "cast one of the tensors"),
    "an operator": Mistaken(lambda x: x.sin(3), torch.ones(4), "eager PyTorch: TypeError: Tensor.sin() takes no"),
    "a method": Mistaken(lambda x: x.foo(), torch.ones(4), "eager PyTorch: AttributeError: 'Tensor' object has no"),
    "a name": Mistaken(
        lambda x: undefined(x),  # noqa: F821
        torch.ones(4),
        "eager PyTorch: NameError: name 'undefined' is not",
    ),
}


@pytest.mark.slow
def test_a_program_that_fails_only_under_tracing_opens_in_parts() -> None:
    """Dynamo passes a tuple to an operator that takes a ``torch.Size``; eager PyTorch passes that."""

    def divergence(mean: torch.Tensor) -> torch.Tensor:
        spread = torch.eye(3)
        given, prior = (torch.distributions.MultivariateNormal(at, spread) for at in (mean, torch.zeros(3)))
        return torch.distributions.kl_divergence(given, prior)

    mean = torch.tensor([1.0, 2.0, 3.0])
    bench = workbench.open(divergence, mean, device="cpu")
    assert bench.capture == "parts"
    torch.testing.assert_close(bench.config.jit(divergence)(mean), divergence(mean))


@pytest.mark.parametrize("name", beyond(3, MISTAKES, pytest.mark.slow))
def test_mistakes_are_reported_in_one_line(name: str) -> None:
    """The line must not mention FX nodes, fake tensors or addresses, which mean nothing to a user."""
    program, given, told = MISTAKES[name]
    with pytest.raises(ProgramError) as refused:
        workbench.open(program, given, device="cpu")
    message = str(refused.value)
    assert told in message
    assert not re.search(r"\n|FX node|FakeTensor|0x", message)


def adds_to_a_leaf(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    w.add_(1)
    return (x * w).sum()


def sets_in_a_leaf(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    w[0] = 0.0
    return (x * w).sum()


def writes_a_view_of_a_leaf(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    w.view(-1).mul_(2)
    return (x * w).sum()


def activates_a_leaf(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x * torch.nn.functional.relu(w, inplace=True)).sum()


@pytest.mark.parametrize("capture", beyond(1, ["auto", "interpreter"], pytest.mark.slow))
@pytest.mark.parametrize(
    "program",
    beyond(1, [adds_to_a_leaf, sets_in_a_leaf, writes_a_view_of_a_leaf, activates_a_leaf], pytest.mark.slow),
    ids=lambda f: f.__name__,
)
def test_a_write_into_a_leaf_is_refused_as_in_eager_pytorch(program: Any, capture: str) -> None:
    given = torch.randn(4), torch.randn(4, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        program(*given)
    with pytest.raises(ProgramError, match=r"test_refusals\.py:\d+ .*changed copy") as told:
        workbench.open(program, *given, device="cpu", capture=capture)
    assert "leaf Variable that requires grad" in str(told.value)


def test_a_detached_leaf_may_be_written() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        w.detach().add_(1)
        return (x * 2).sum()

    given = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
    assert workbench.open(program, *given, device="cpu").plan.proof.proven


def test_the_interpreter_refuses_checkpoint_sequential_with_a_remedy() -> None:
    layers = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(4)))

    def program(x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = torch.utils.checkpoint.checkpoint_sequential(layers, 2, x, use_reentrant=True)
        return made.sum()

    said = r"test_refusals.py:\d+ \(.*checkpoint\(part, x, use_reentrant=False\) for each part"
    with pytest.raises(ProgramError, match=said):
        workbench.open(program, torch.randn(2, 4, requires_grad=True), device="cpu", capture="interpreter")


def test_the_interpreter_refuses_a_reentrant_checkpoint_with_a_remedy() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=True)
        return made.sum()

    said = r"test_refusals.py:\d+ \(.*checkpoint\(function, x, use_reentrant=False\)"
    with pytest.raises(ProgramError, match=said):
        workbench.open(program, torch.randn(2, 4, requires_grad=True), device="cpu", capture="interpreter")


def in_two_types(x: torch.Tensor) -> torch.Tensor:
    return (MODEL(x) @ torch.ones(4, 4, dtype=torch.float64)).sin()


@pytest.mark.parametrize("capture", ["auto", "parts"])
@pytest.mark.parametrize("wrong", ["first layer", "second layer", "integers", "matmul"])
def test_a_program_whose_other_operators_can_be_compiled_fails_as_in_eager(wrong: str, capture: str) -> None:
    program: Any = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4))
    x = torch.randn(2, 4)
    if wrong == "first layer":
        x = x.double()
    elif wrong == "second layer":
        program[2].double()
    elif wrong == "integers":
        x = torch.ones(2, 4, dtype=torch.int64)
    else:
        program = in_two_types
    with pytest.raises(RuntimeError) as eager:
        program(x)
    with pytest.raises(
        ProgramError, match=re.escape(f"fails in eager PyTorch: RuntimeError: {eager.value}")
    ) as refused:
        workbench.open(program, x, capture=capture)
    assert wrong != "matmul" or "test_refusals.py" in str(refused.value)
