"""Predict the memory of plain `torch.compile` under choices. PyTorch traces the program, but does not run it."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from workbench.analysis.cost.machines import Machine
from workbench.analysis.memory.allocator import storage_bytes
from workbench.compiler.driver.capture import Capture
from workbench.compiler.driver.inductor_memory import DividedGraph, InductorCode, NotRunError, StepMemory, predict_step
from workbench.compiler.driver.torch_joint import JointStep, operator_names, read_joint
from workbench.compiler.frontend.dynamo_session import compile_with
from workbench.compiler.interop import dynamo_patches
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
    """

    peak_bytes: int
    saved_bytes: int
    saved: dict[str, int]
    unapplied: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class JointPrediction:
    """A prediction, and what it was made from.

    Attributes
    ----------
    prediction : TorchPrediction
    memory : StepMemory
        Its method `seconds` estimates the time of a step.
    step : JointStep, optional
        The joint graph, if a machine model was given.
    budgets : dict of float to tuple of str
        Maps values of PyTorch's `activation_memory_budget`, from high to low, to the names of the nodes that PyTorch
        then saves. Values with which PyTorch saves the same nodes as with a higher value are left out. Empty if no
        machine model was given.
    """

    prediction: TorchPrediction
    memory: StepMemory
    step: JointStep | None
    budgets: dict[float, tuple[str, ...]]


FUSED_BUDGET = 0.99
"""With this budget, PyTorch recomputes all operators that it can fuse into the backward, and no others."""
_BUDGETS = (FUSED_BUDGET, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)


class _Recorder(Partition):
    divided: DividedGraph | None = None
    step: JointStep | None = None

    def __init__(
        self, ops: Operators, module: torch.fx.GraphModule, budget: float | None, machine: Machine | None
    ) -> None:
        super().__init__(ops, find(ops, module), budget)
        self.budgets = dict[float, tuple[str, ...]]()
        self._keys = operator_names(ops, module) if machine is not None else {}
        self._machine = machine

    def __call__(self, gm: torch.fx.GraphModule, joint_inputs: Any, **kwargs: Any) -> Any:
        """Divide the joint graph, and record what the forward saves."""
        outputs, whole = kwargs["num_fwd_outputs"], _with_copied_graph(gm) if self._machine is not None else None
        forward, backward = super().__call__(gm, joint_inputs, **kwargs)
        self.divided = DividedGraph.read(forward, backward, outputs)
        if whole is not None:
            assert self._machine is not None
            self.step = read_joint(whole.graph, self._keys, outputs, self._machine)
            seen = {frozenset(self.divided.returned[outputs:])}
            for budget in _BUDGETS:
                again = Partition(self.ops, self.found, budget)
                forward_again, backward_again = again(_with_copied_graph(whole), joint_inputs, **kwargs)
                names = tuple(DividedGraph.read(forward_again, backward_again, outputs).returned[outputs:])
                if frozenset(names) not in seen:
                    seen.add(frozenset(names))
                    self.budgets[budget] = names
        return forward, backward


def _with_copied_graph(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Copy a module's graph. The copy shares the module's tensors, which cannot be copied while PyTorch compiles."""
    return torch.fx.GraphModule(module, copy.deepcopy(module.graph))


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
    program = captured.program
    if program.fake_mode is not None:
        raise PlanError(
            f"{program.name} is planned for a GPU that is not attached, so PyTorch's compiler cannot divide it: "
            "open it with device='cpu'"
        )
    held = find_tensors((program.callable, program.args, program.kwargs)).tensors.values()
    if any(tensor.device.type != "cpu" for tensor in held):
        raise PlanError(f"the memory of torch.compile is predicted for the CPU only, and {program.name} is on a GPU")
    ops, made, code = Operators(program.callable, choices), list[_Recorder](), InductorCode()

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        made.append(_Recorder(ops, graph, budget, machine))
        # The code must be Python without checks of values, because it runs on fake tensors.
        # Kernels without vectors need less text. The text is not compiled, and the buffers are the same.
        forms = {"cpp_wrapper": False, "fx_wrapper": False, "nan_asserts": False, "cpp.simdlen": 1}
        patches = {"custom_partitioner_fn": made[-1], "force_disable_caches": True, **forms}
        with functorch_config.patch(force_non_lazy_backward_lowering=True):
            return compile_fx(graph, inputs, inner_compile=code.compile, config_patches=patches)

    def call() -> None:
        with contextlib.suppress(NotRunError), dynamo_patches.hooks_installed_when_traced():
            compile_with(program.callable, backend)(*program.args, **program.kwargs)

    with warnings.catch_warnings(record=True) as told, torch.enable_grad(), modes.active_modes(program.modes):
        warnings.simplefilter("always")
        try:
            call()
        except BackendCompilerFailed as error:
            reason = f"{type(error.inner_exception).__name__}: {one_line(str(error.inner_exception))}"
            raise PlanError(f"torch.compile cannot compile {program.name}: {reason}") from error
        except TorchDynamoException as error:
            line = one_line(str(error).partition("\n")[0])
            raise PlanError(f"torch.compile divides {program.name} into several graphs: {line}") from error
        ops.end_call()
    if not made or made[-1].divided is None:
        raise PlanError(f"{program.name} has no backward, so nothing is saved")
    try:
        step = predict_step(code, made[-1].divided)
    except Exception as error:  # any error of PyTorch's code becomes a PlanError, which an export handles
        reason = f"{type(error).__name__}: {one_line(str(error))}"
        raise PlanError(f"PyTorch's generated code for {program.name} fails on fake tensors: {reason}") from error
    baseline = {tensor.untyped_storage()._cdata: storage_bytes(tensor) for tensor in held}
    messages = tuple(str(warning.message) for warning in told if "is not applied" in str(warning.message))
    peak_bytes = sum(baseline.values()) + step.peak_bytes
    prediction = TorchPrediction(peak_bytes, sum(step.saved.values()), step.saved, messages)
    return JointPrediction(prediction, step, made[-1].step, made[-1].budgets)
