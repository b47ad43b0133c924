"""Predict the memory of plain `torch.compile` under choices. PyTorch traces the program, but does not run it."""

from __future__ import annotations

import concurrent.futures
import contextlib
import copy
import dataclasses
import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from workbench.analysis.cost.machines import Machine
from workbench.analysis.memory.allocator import storage_bytes
from workbench.compiler.driver.capture import Capture
from workbench.compiler.driver.inductor_memory import DividedGraph, InductorCode, NotRunError, StepMemory, predict_step
from workbench.compiler.driver.torch_joint import JointStep, operator_names, read_joint
from workbench.compiler.frontend.dynamo_session import compile_with
from workbench.compiler.interop import dynamo_patches
from workbench.compiler.interop.inductor_patches import compiled_again
from workbench.errors import PlanError, one_line
from workbench.interop.torch_private import (
    BackendCompilerFailed,
    TorchDynamoException,
    compile_fx,
    functorch_config,
)
from workbench.plain_torch.compiled import Partition, find
from workbench.plain_torch.operators import Key, Operators
from workbench.programs import modes
from workbench.programs.tensors import find_tensors
from workbench.util.planning_lock import one_at_a_time


@dataclasses.dataclass(frozen=True)
class TorchPrediction:
    """Predicted memory of a step under plain `torch.compile` (Inductor) on the CPU.

    Attributes
    ----------
    peak_bytes : int
        Peak memory of a step, with parameters, buffers and inputs. The prediction assumes that no gradients exist
        before the step. It does not include the memory of operators after the program, such as a loss outside of the
        program.
    saved_bytes : int
        Bytes of the storages that the forward makes and saves.
    saved : dict of str to int
        Maps the name of each saved tensor in the forward graph to the bytes of its storage. Of tensors that share a
        storage, only the first is included.
    unapplied : tuple of str
        Messages about choices that are not applied.
    peak_at_least : bool
        Whether `peak_bytes` is a lower bound, because a CPU kernel could not be measured.
    """

    peak_bytes: int
    saved_bytes: int
    saved: dict[str, int]
    unapplied: tuple[str, ...]
    peak_at_least: bool

    def __str__(self) -> str:
        bound = "at least " if self.peak_at_least else ""
        figures = f"peak {bound}{self.peak_bytes:,} bytes, saved {self.saved_bytes:,} bytes"
        lines = [f"torch.compile, predicted: {figures} in {len(self.saved)} tensors"]
        return "\n".join([*lines, *(f"not applied: {message}" for message in self.unapplied)])


@dataclasses.dataclass(frozen=True)
class JointPrediction:
    """A prediction, and what it was made from.

    Attributes
    ----------
    prediction : TorchPrediction
    memory : StepMemory
        Its method `seconds` estimates the time of a step.
    least_bytes : int
        Bytes of parameters, buffers, inputs, outputs and gradients. No choices give a lower peak.
    step : JointStep, optional
        The joint graph, if a machine model was given.
    budgets : callable
        Returns a dict that maps values of PyTorch's `activation_memory_budget`, from high to low, to the names of the
        nodes that PyTorch then saves. Values with which PyTorch saves the same nodes as with a higher value are left
        out. The dict is empty if no machine model was given. Call it before the next prediction.
    """

    prediction: TorchPrediction
    memory: StepMemory
    least_bytes: int
    step: JointStep | None
    budgets: Callable[[], dict[float, tuple[str, ...]]]


FUSED_BUDGET = 0.99
"""With this budget, PyTorch recomputes all operators that it can fuse into the backward, and no others."""
_BUDGETS = (FUSED_BUDGET, 0.9, 0.8, 0.7, 0.5, 0.3, 0.1)


class _Recorder(Partition):
    """Records how PyTorch divides a joint graph under choices. It also keeps the joint graph, if asked."""

    divided: DividedGraph | None = None
    step: JointStep | None = None
    whole: torch.fx.GraphModule | None = None

    def __init__(
        self,
        ops: Operators,
        found: Mapping[tuple[str, ...], tuple[Key, str]],
        budget: float | None,
        keys: Mapping[tuple[str, ...], tuple[Key, str]],
        machine: Machine | None = None,
        *,
        keep: bool = False,
    ) -> None:
        super().__init__(ops, found, budget)
        self.budgets: Callable[[], dict[float, tuple[str, ...]]] = dict
        self._keys, self._machine, self._keep = keys, machine, keep

    def with_choices(self, choices: Mapping[Key, str], budget: float | None) -> _Recorder:
        """Return a recorder for other choices for the same graph of Dynamo."""
        ops = Operators(None, choices)
        ops.known = self.ops.known
        ops.found = {key for key, _ in self._keys.values()} & ops.choices.keys()
        found = {name: (key, shape) for name, (key, shape) in self._keys.items() if key in ops.choices}
        return _Recorder(ops, found, budget, self._keys)

    def __call__(self, gm: torch.fx.GraphModule, joint_inputs: Any, **kwargs: Any) -> Any:
        """Divide the joint graph, and record what the forward saves."""
        kwargs = {"compiler": "inductor", **kwargs}
        outputs = kwargs["num_fwd_outputs"]
        self.whole = _with_copied_graph(gm) if self._keep or self._machine is not None else None
        forward, backward = super().__call__(gm, joint_inputs, **kwargs)
        self.divided = DividedGraph.read(forward, backward, outputs)
        if self._machine is not None:
            assert self.whole is not None
            self.step = read_joint(self.whole.graph, self._keys, outputs, self._machine)
            self.budgets = functools.cache(functools.partial(self._read_budgets, joint_inputs, **kwargs))
        return forward, backward

    def _read_budgets(self, joint_inputs: Any, **kwargs: Any) -> dict[float, tuple[str, ...]]:
        """Return what PyTorch saves under its budgets."""

        @functools.cache
        def saved(at: int) -> tuple[str, ...]:
            assert self.whole is not None
            again = Partition(self.ops, self.found, _BUDGETS[at])
            forward, backward = again(_with_copied_graph(self.whole), joint_inputs, **kwargs)
            return tuple(DividedGraph.read(forward, backward, outputs).returned[outputs:])

        def read(first: int, last: int) -> None:
            """Divide the graph for the budgets between two budgets, unless PyTorch saves the same under both."""
            middle = (first + last) // 2
            if middle > first and set(saved(first)) != set(saved(last)):
                read(first, middle)
                read(middle, last)
                between.update({middle: saved(middle)})

        outputs = kwargs["num_fwd_outputs"]
        ends = 0, len(_BUDGETS) - 1
        between = {at: saved(at) for at in ends}
        read(*ends)
        assert self.divided is not None
        seen, budgets = {frozenset(self.divided.returned[outputs:])}, dict[float, tuple[str, ...]]()
        for at in sorted(between):
            if frozenset(between[at]) not in seen:
                seen.add(frozenset(between[at]))
                budgets[_BUDGETS[at]] = between[at]
        return budgets


def _with_copied_graph(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Copy a module's graph. The copy shares the module's tensors, which cannot be copied while PyTorch compiles."""
    return torch.fx.GraphModule(module, copy.deepcopy(module.graph))


type Candidate = tuple[Mapping[Key, str], float | None]
"""Choices, and PyTorch's budget for tensors without a choice."""
type Next = Callable[[JointPrediction], Candidate | None]
"""Called with a prediction. Returns what to predict next, or None to end."""


def predict_torch(captured: Capture, choices: Mapping[Key, str]) -> TorchPrediction:
    """Predict the memory of a step under `torch.compile` with choices.

    Raises
    ------
    PlanError
        As in `predict_and_read`.
    """
    return predict_and_read(captured, choices).prediction


@one_at_a_time
def predict_and_read(
    captured: Capture, choices: Mapping[Key, str], *, budget: float | None = None, machine: Machine | None = None
) -> JointPrediction:
    """Predict like `predict_torch`. With a machine model, also read the joint graph that PyTorch divides.

    Parameters
    ----------
    captured : Capture
    choices : mapping of Key to str
    budget : float, optional
        PyTorch's `activation_memory_budget` for tensors without a choice; by default PyTorch's setting.
    machine : Machine, optional

    Raises
    ------
    PlanError
        If the program is for a GPU, has no backward, or `torch.compile` cannot compile it as one graph. Also if the
        generated code fails on fake tensors.
    """
    predictor = _Predictor(captured, (choices, budget), machine, None)
    predictor.compile()
    return predictor.predict()


@one_at_a_time
def predict_each(captured: Capture, first: Candidate, machine: Machine | None, following: Next) -> None:
    """Predict one set of choices after another. PyTorch traces the program once for all of them.

    Other planning waits until the last prediction is made.

    Parameters
    ----------
    captured : Capture
    first : Candidate
    machine : Machine, optional
        If given, the first prediction has the joint graph.
    following : callable
        Called with each prediction. Returns what to predict next, or None to end. An exception from it ends the
        predictions.

    Raises
    ------
    PlanError
        As in `predict_and_read`.
    """
    _Predictor(captured, first, machine, following).compile()


def held_bytes(captured: Capture) -> int:
    """Return the bytes of a program's parameters, buffers and inputs.

    Raises
    ------
    PlanError
        If the program is for a GPU.
    """
    program = captured.program
    if program.fake_mode is not None:
        raise PlanError(
            f"{program.name} is planned for a GPU that is not attached, so PyTorch's compiler cannot divide it: "
            "open it with device='cpu'"
        )
    held = find_tensors((program.callable, program.args, program.kwargs)).tensors.values()
    if any(tensor.device.type != "cpu" for tensor in held):
        raise PlanError(f"the memory of torch.compile is predicted for the CPU only, and {program.name} is on a GPU")
    return sum({tensor.untyped_storage()._cdata: storage_bytes(tensor) for tensor in held}.values())


class _Predictor:
    """Predicts the memory of a program's step, for one set of choices or for several in turn."""

    def __init__(self, captured: Capture, first: Candidate, machine: Machine | None, following: Next | None) -> None:
        self._program, self._baseline_bytes = captured.program, held_bytes(captured)
        self._first, self._machine, self._following = first, machine, following
        self._recorder: _Recorder | None = None
        self._code = InductorCode()
        self._told: list[warnings.WarningMessage] = []
        self._failed: list[Exception] = []

    def compile(self) -> None:
        """Trace the program and generate its code, for one set of choices after another."""
        program = self._program
        with warnings.catch_warnings(record=True) as told, torch.enable_grad(), modes.active_modes(program.modes):
            warnings.simplefilter("always")
            self._told = told
            try:
                with contextlib.suppress(NotRunError), dynamo_patches.hooks_installed_when_traced():
                    compile_with(program.callable, self._compile_graph)(*program.args, **program.kwargs)
            except BackendCompilerFailed as error:
                raise self._refused(error.inner_exception) from error
            except TorchDynamoException as error:
                line = one_line(str(error).partition("\n")[0])
                raise PlanError(f"torch.compile divides {program.name} into several graphs: {line}") from error
            if self._failed:
                raise self._failed[0]
            if self._recorder is None or self._recorder.divided is None:
                raise PlanError(f"{program.name} has no backward, so nothing is saved")
            self._recorder.ops.end_call()

    def predict(self) -> JointPrediction:
        """Run the generated code on fake tensors."""
        recorder = self._recorder
        assert recorder is not None
        assert recorder.divided is not None
        try:
            memory = predict_step(self._code, recorder.divided)
        except Exception as error:  # any error of PyTorch's code becomes a PlanError, which an export handles
            reason = f"{type(error).__name__}: {one_line(str(error))}"
            name = self._program.name
            raise PlanError(f"PyTorch's generated code for {name} fails on fake tensors: {reason}") from error
        messages = tuple(str(warning.message) for warning in self._told if "is not applied" in str(warning.message))
        peak_bytes = self._baseline_bytes + memory.peak_bytes
        saved_bytes = sum(memory.saved.values())
        prediction = TorchPrediction(peak_bytes, saved_bytes, memory.saved, messages, memory.at_least)
        least_bytes = self._baseline_bytes + memory.end_bytes
        return JointPrediction(prediction, memory, least_bytes, recorder.step, recorder.budgets)

    def _refused(self, error: BaseException) -> PlanError:
        reason = f"{type(error).__name__}: {one_line(str(error))}"
        return PlanError(f"torch.compile cannot compile {self._program.name}: {reason}")

    def _compile_graph(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        """Compile a graph of Dynamo."""
        choices, budget = self._first
        ops, many = Operators(self._program.callable, choices), self._following is not None
        keys = operator_names(ops, graph) if many or self._machine is not None else {}
        self._recorder = _Recorder(ops, find(ops, graph), budget, keys, self._machine, keep=many)
        # The code must be Python without checks of values, because it runs on fake tensors.
        # Kernels without vectors need less text. The text is not compiled, and the buffers are the same.
        forms = {"cpp_wrapper": False, "fx_wrapper": False, "nan_asserts": False, "cpp.simdlen": 1}
        patches = {"custom_partitioner_fn": self._recorder, "force_disable_caches": True, **forms}

        def inner(*args: Any, **kwargs: Any) -> Any:
            return self._code.compile(*args, **kwargs)

        again = compiled_again(self._predict_others) if many else contextlib.nullcontext()
        with functorch_config.patch(force_non_lazy_backward_lowering=True), again:
            return compile_fx(graph, inputs, inner_compile=inner, config_patches=patches)

    def _predict_others(self, compile_joint: Callable[[torch.fx.GraphModule, Callable[..., Any]], Any]) -> None:
        """Predict what `following` asks for. PyTorch calls this function while it compiles the first choices."""
        first = self._recorder
        assert first is not None
        assert first.whole is not None
        assert self._following is not None
        try:
            # PyTorch has set modes for this thread, in which it traces. The generated code runs in another thread.
            with concurrent.futures.ThreadPoolExecutor(1) as thread:
                first.ops.end_call()
                while wanted := self._following(thread.submit(self.predict).result()):
                    self._told.clear()
                    self._recorder, self._code = first.with_choices(*wanted), InductorCode()
                    try:
                        compile_joint(_with_copied_graph(first.whole), self._recorder)
                    except Exception as error:
                        raise self._refused(error) from error
                    self._recorder.ops.end_call()
        except Exception as error:  # noqa: BLE001  # raised later: Dynamo would raise another exception in its place
            self._failed.append(error)
