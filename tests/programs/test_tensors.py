"""Tensors inside many kinds of a user's objects are found, and copied to the program's device."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import queue
import tempfile
import threading
from collections import OrderedDict
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.nn.utils import prune
from torch.utils.data import DataLoader, TensorDataset

import workbench
from tests.trial_counts import beyond
from workbench.analysis.memory.allocator import allocated_bytes
from workbench.analysis.memory.liveness import Prediction
from workbench.errors import ProgramError
from workbench.interop.torch_private import FakeTensorMode
from workbench.programs import placement
from workbench.programs.tensors import find_tensors
from workbench.runs.measure import memory_meter
from workbench.runs.measure.accuracy import Stepper


class Pair(NamedTuple):
    first: torch.Tensor
    second: dict[str, torch.Tensor]


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    scale: float = 2.0


@dataclasses.dataclass
class Guarded:
    """A configuration. Reading its attribute `head_dim` raises an error.

    Hugging Face's configurations do the same for an attribute whose value differs between layers.
    """

    x: torch.Tensor
    head_dim: int = 8
    unset: int = dataclasses.field(init=False)

    def __getattribute__(self, name: str) -> Any:
        if name == "head_dim":
            raise RuntimeError("head_dim varies across layers")
        return super().__getattribute__(name)


class Cache:
    def __init__(self, keys: torch.Tensor) -> None:
        self.layers = [{"keys": keys}]


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("count", torch.ones(3))
        self.mask = torch.tensor([1.0, 0.0, 1.0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.mask + self.count


def closing_over(mask: torch.Tensor) -> Any:
    def masked(x: torch.Tensor) -> torch.Tensor:
        return x * mask

    return masked


def scaled(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return x * scale


FLOAT_BYTES = 4
T = torch.ones(3)


@pytest.mark.parametrize(
    ("objects", "paths"),
    [
        ([T, {"a": (T, None, "text")}], ["[0]", "[1]['a'][0]"]),
        (Pair(T, OrderedDict(loss=T)), [".first", ".second['loss']"]),
        (Batch(T), ["x"]),
        (Guarded(T), ["x"]),
        (Cache(T), ["layers[0]['keys']"]),
        (Masked(), ["linear.weight", "linear.bias", "count", "mask"]),
        (nn.Sequential(Masked()), ["0.linear.weight", "0.linear.bias", "0.count", "0.mask"]),
        (Masked().forward, ["linear.weight", "linear.bias", "count", "mask"]),
        (closing_over(T), ["mask"]),
        (functools.partial(closing_over(T), T), ["mask", "argument0"]),
        (functools.partial(scaled, scale=T), ["scale"]),
    ],
)
def test_a_tensor_is_found_in_every_kind_of_holder(objects: Any, paths: list[str]) -> None:
    assert list(find_tensors(objects).tensors) == paths


def test_an_object_that_contains_itself_is_walked_once() -> None:
    circle: list[Any] = [T]
    circle.append(circle)
    assert list(find_tensors(circle).tensors) == ["[0]"]


@pytest.mark.parametrize("program", [Masked(), closing_over(T), functools.partial(scaled, scale=T), Masked().forward])
def test_tensors_that_a_program_holds_are_moved_to_the_planned_device_and_counted(program: Any) -> None:
    placed, x = placement.place_objects((program, torch.ones(2, 3)), "meta")
    assert {tensor.device.type for tensor in find_tensors((placed, x)).tensors.values()} == {"meta"}
    assert {t.device.type for t in find_tensors(program).tensors.values()} == {"cpu"}, (
        "the user's tensors must not move"
    )
    bench = workbench.open(program, torch.ones(2, 3), device="planned", executor="torch")
    own_bytes = sum(allocated_bytes(4 * tensor.numel(), "cuda") for tensor in find_tensors(program).tensors.values())
    assert bench.plan.baseline_bytes == own_bytes + allocated_bytes(4 * 6, "cuda")


HEAD = nn.Linear(3, 3)
OPTIMIZER = torch.optim.AdamW(HEAD.parameters())


def headed(x: torch.Tensor) -> torch.Tensor:
    return HEAD(x).sum()


def steps(x: torch.Tensor) -> None:
    headed(x).backward()
    OPTIMIZER.step()


def test_globals_that_a_function_reads_are_found_and_placed() -> None:
    found = find_tensors(steps)
    assert list(found.tensors) == ["headed.HEAD.weight", "headed.HEAD.bias"]
    assert (found.functions, found.optimizers) == ([headed, steps], [OPTIMIZER])
    placed = placement.place_objects(steps, "meta")
    assert {tensor.device.type for tensor in find_tensors(placed).tensors.values()} == {"meta"}
    (copied,) = find_tensors(placed).optimizers
    assert copied.param_groups[0]["params"] == list(find_tensors(placed).tensors.values()), (
        "the copied optimizer must have the copied parameters"
    )
    placed(torch.ones(2, 3, device="meta"))
    assert copied.state
    assert not OPTIMIZER.state
    assert HEAD.weight.grad is None, "only the copies may get gradients"


def test_the_state_of_an_optimizer_has_the_names_of_its_parameters() -> None:
    linear = nn.Linear(3, 3)
    optimizer = torch.optim.SGD([{"params": linear.weight}, {"params": linear.bias, "lr": torch.tensor(0.1)}])
    linear(torch.ones(2, 3)).sum().backward()
    optimizer.param_groups[0]["momentum"] = 0.9
    optimizer.step()
    expected = ["[0].weight", "[0].bias", "[1].param_groups[1].lr", "[1].state[[0].weight].momentum_buffer"]
    assert list(find_tensors([linear, optimizer]).tensors) == expected
    own = ["param_groups[0].params[0]", "param_groups[1].params[0]"]
    assert set(own) <= find_tensors(optimizer).tensors.keys(), "without the module, paths must begin at the optimizer"


def test_a_pruned_module_has_the_same_names_in_each_copy() -> None:
    first, second = (prune.custom_from_mask(nn.Linear(3, 3), "weight", torch.eye(3)) for _ in range(2))
    names = list(find_tensors(first).tensors)
    assert "_forward_pre_hooks[0].mask" in names
    assert names == list(find_tensors(second).tensors)


class Unread(nn.Module):
    """A module whose forward does not read `positions`, `head`, `table` and its argument `unused`."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.register_buffer("positions", torch.arange(512))
        self.head = nn.Parameter(torch.ones(64))
        self.table = torch.ones(128)

    def forward(self, x: torch.Tensor, unused: torch.Tensor) -> torch.Tensor:
        return self.linear(x).tanh().sum()


UNREAD_BYTES = (512 * 8, 64 * FLOAT_BYTES, 128 * FLOAT_BYTES, 32 * FLOAT_BYTES)


@pytest.mark.parametrize("capture", ["dynamo", "interpreter"])
@pytest.mark.parametrize("device", ["cpu", "planned"])
def test_tensors_that_no_statement_reads_count_as_memory(capture: str, device: str) -> None:
    bench = workbench.open(
        Unread(), torch.ones(4, 16), torch.ones(32), device=device, executor="torch", capture=capture
    )
    read_bytes = (16 * 16 * FLOAT_BYTES, 16 * FLOAT_BYTES, 4 * 16 * FLOAT_BYTES)
    on = "cpu" if device == "cpu" else "cuda"
    assert bench.plan.baseline_bytes == sum(allocated_bytes(one, on) for one in (*read_bytes, *UNREAD_BYTES))
    prediction = bench.predict({})
    assert isinstance(prediction, Prediction)
    assert (prediction.baseline_bytes, prediction.peak_bytes) == (bench.plan.baseline_bytes, bench.plan.peak_bytes)
    assert {"positions", "head", "table"} <= {alive["value"] for alive in bench.plan.alive_at_peak()}


@pytest.mark.parametrize("capture", beyond(1, ["dynamo", "interpreter"], pytest.mark.slow))
def test_with_unread_tensors_the_predicted_peak_equals_the_measured_peak(capture: str) -> None:
    module, x, unused = Unread(), torch.ones(4, 16), torch.ones(32)
    bench = workbench.open(module, x, unused, device="cpu", capture=capture)
    stepper = Stepper(module, (x, unused), {}, bench.config.jit(module))
    stepper.step()
    peak = memory_meter.measure_peak(stepper)
    assert peak.baseline_bytes == bench.plan.baseline_bytes
    assert peak.measured_peak_bytes == pytest.approx(bench.plan.peak_bytes, rel=1e-3)


@pytest.mark.parametrize("fake", [False, True])
def test_tensors_that_share_memory_still_share_memory_after_they_are_moved(fake: bool) -> None:
    x = torch.arange(24.0).reshape(4, 6)
    pairs = torch.view_as_complex(x.view(4, 3, 2))
    alone = torch.ones(100)[3:5]
    given = {"x": x, "row": x[1], "turned": x.t(), "whole": x.view(torch.int32), "complex": pairs, "alone": alone}
    weight = nn.Parameter(torch.ones(3))
    given |= {"weight": weight, "of the weight": weight.detach()[1:], "conjugate": pairs.conj()}
    with FakeTensorMode() if fake else contextlib.nullcontext():
        placed = placement.place_objects(given, "cpu" if fake else "meta")
    assert all(placed[name].shape == tensor.shape for name, tensor in given.items())
    assert all(placed[name].dtype == tensor.dtype for name, tensor in given.items())
    assert all(placed[name].stride() == given[name].stride() for name in ("x", "row", "turned", "complex"))
    groups: dict[int, set[str]] = {}
    for name, tensor in placed.items():
        groups.setdefault(tensor.untyped_storage()._cdata, set()).add(name)
    shared = {"x", "row", "turned", "whole", "complex"}
    assert sorted(map(sorted, groups.values())) == sorted(
        [sorted(shared), ["alone"], ["conjugate"], ["of the weight", "weight"]]
    )
    assert placed["alone"].untyped_storage().nbytes() == 8, "the copy must have only the two elements of the view"
    assert placed["weight"].requires_grad
    assert placed["weight"].is_leaf


class Watched(nn.Module):
    """A module that keeps an activation and calls a function of its own, which both refer to the module itself."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.kept: dict[str, torch.Tensor] = {}
        self.inner.register_forward_hook(lambda module, given, made: self.kept.update(inner=made))
        self.notes = Notes()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.inner(x)
        self.notes.add(made)
        return made


class Notes:
    def __init__(self) -> None:
        self.seen: list[torch.Tensor] = []
        self.add = lambda made: self.seen.append(made)


@pytest.mark.parametrize("capture", ["dynamo", "parts"])
def test_a_function_that_refers_to_its_holder_writes_into_the_copy_of_the_holder(capture: str) -> None:
    model, x = Watched(), torch.randn(2, 3)
    copied = placement.place_objects(model, "cpu", copied=True)
    copied(x)
    assert list(copied.kept) == ["inner"]
    assert len(copied.notes.seen) == 1
    workbench.open(model, x, device="cpu", capture=capture)
    assert not model.kept
    assert not model.notes.seen


def test_copies_share_what_python_cannot_copy() -> None:
    jobs: queue.Queue[int] = queue.Queue()
    with tempfile.TemporaryFile() as file:
        held = {"lock": threading.Lock(), "module": math, "file": file, "jobs": jobs}
        state = {"weight": torch.ones(2), "step": [3], **held}
        placed = placement.place_objects(state, "cpu", copied=True)
    assert all(placed[name] is value for name, value in held.items())
    assert placed["step"] == [3]
    assert placed["step"] is not state["step"]
    assert placed["weight"] is not state["weight"]


def test_an_iterator_that_opening_would_advance_is_refused_by_name() -> None:
    rates = (rate / 10 for rate in range(9))
    with pytest.raises(ProgramError, match=r"holds a generator \('rates'\), which Python cannot copy"):
        placement.place_objects({"rates": rates, "weight": torch.ones(2)}, "cpu", copied=True)
    assert next(rates) == 0


def test_an_iterator_of_a_loader_that_holds_tensors_is_refused_by_name() -> None:
    batches = iter(DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2))
    with pytest.raises(
        ProgramError, match=r"DataLoaderIter \('batches'\), which Python cannot copy.*in the first step"
    ):
        placement.place_objects({"batches": batches}, "cpu", copied=True)


def test_an_error_of_a_users_own_copy_is_not_hidden() -> None:
    class Refuses:
        weight = torch.ones(2)

        def __init__(self) -> None:
            self.own = self.weight

        def __deepcopy__(self, memo: object) -> Refuses:
            raise ValueError("one of a kind")

    with pytest.raises(ValueError, match="one of a kind"):
        placement.place_objects(Refuses(), "cpu", copied=True)
