"""Predict what plain `torch.compile` saves under choices. Trace a program and divide its joint graph; run nothing."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from workbench.compiler.driver.capture import Capture
from workbench.compiler.frontend.dynamo import call_after_hooks
from workbench.compiler.frontend.dynamo_session import compile_with
from workbench.errors import PlanError, one_line
from workbench.interop.torch_private import BackendCompilerFailed, TorchDynamoException, compile_fx
from workbench.plain_torch.compiled import Partition, find
from workbench.plain_torch.operators import Key, Operators
from workbench.programs import modes


@dataclasses.dataclass(frozen=True)
class TorchPrediction:
    """Prediction of the tensors that plain `torch.compile` (Inductor) saves for the backward.

    Attributes
    ----------
    saved_bytes : int
        Bytes of the storages that the forward makes and saves. Inductor may also save copies of inputs in another
        memory layout, for example for convolutions. `saved_bytes` does not include these copies.
    saved : dict of str to int
        Maps the name of each saved tensor in the joint graph to the bytes of its storage. Of tensors that share a
        storage, only the first is included.
    unapplied : tuple of str
        Messages about choices that are not applied.
    """

    saved_bytes: int
    saved: dict[str, int]
    unapplied: tuple[str, ...]


class _DividedError(Exception):
    """Ends the compilation as soon as the joint graph is divided."""


class _Recorder(Partition):
    forward: torch.fx.GraphModule
    outputs = 0

    def __call__(self, gm: torch.fx.GraphModule, joint_inputs: Any, **kwargs: Any) -> Any:
        """Divide the joint graph, keep the forward, and end the compilation."""
        self.forward, _ = super().__call__(gm, joint_inputs, **kwargs)
        self.outputs = kwargs["num_fwd_outputs"]
        raise _DividedError


def predict_torch(captured: Capture, choices: Mapping[Key, str]) -> TorchPrediction:
    """Predict what `torch.compile` saves under choices.

    Raises
    ------
    PlanError
        If the program is planned for a GPU that is not attached, has no backward, or `torch.compile` divides it into
        several graphs.
    """
    program = captured.program
    if program.fake_mode is not None:
        raise PlanError(
            f"{program.name} is planned for a GPU that is not attached, so PyTorch's compiler cannot divide it: "
            "open it with device='cpu'"
        )
    ops, made = Operators(program.callable, choices), list[_Recorder]()

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        made.append(_Recorder(ops, find(ops, graph)))
        patches = {"custom_partitioner_fn": made[-1], "force_disable_caches": True}
        return compile_fx(graph, inputs, config_patches=patches)

    def call() -> None:
        try:
            compile_with(program.callable, backend)(*program.args, **program.kwargs)
        except BackendCompilerFailed as error:
            if not isinstance(error.inner_exception, _DividedError):
                raise

    with warnings.catch_warnings(record=True) as told, modes.active_modes(program.modes):
        warnings.simplefilter("always")
        try:
            call_after_hooks(program.callable, call)
        except TorchDynamoException as error:
            line = one_line(str(error).partition("\n")[0])
            raise PlanError(f"torch.compile divides {program.name} into several graphs: {line}") from error
        ops.end_call()
    if not made or not made[-1].outputs:
        raise PlanError(f"{program.name} has no backward, so nothing is saved")
    saved = _saved(made[-1].forward, made[-1].outputs)
    messages = tuple(str(warning.message) for warning in told if "is not applied" in str(warning.message))
    return TorchPrediction(sum(saved.values()), saved, messages)


def _saved(forward: torch.fx.GraphModule, outputs: int) -> dict[str, int]:
    """Return the bytes of each storage that a forward graph makes and saves, by the name of its first saved tensor."""

    def storage_of(node: torch.fx.Node) -> Any:
        value = node.meta.get("val")
        return value.untyped_storage() if isinstance(value, torch.Tensor) else None

    given = (storage_of(node) for node in forward.graph.find_nodes(op="placeholder"))
    seen = {storage._cdata for storage in given if storage is not None}
    (returned,) = forward.graph.find_nodes(op="output")[0].args
    saved = {}
    for node in returned[outputs:]:
        storage = storage_of(node) if isinstance(node, torch.fx.Node) else None
        if storage is not None and storage._cdata not in seen:
            seen.add(storage._cdata)
            saved[node.name] = storage.nbytes()
    return saved
