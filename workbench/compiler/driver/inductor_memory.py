"""Predict the memory of a step under plain `torch.compile`: run the code that Inductor generates, on fake tensors.

Inductor writes a Python function for the forward and one for the backward. The functions allocate buffers, reuse and
free them, and call kernels. Here the kernels are not compiled, and the functions allocate fake tensors.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from workbench.analysis.cost.machines import Machine
from workbench.analysis.memory.allocator import storage_bytes
from workbench.compiler.interop.inductor_patches import generated_code
from workbench.compiler.memory.fake_execution import Allocations, fake_execution
from workbench.compiler.memory.grad_accumulation import (
    accumulation_order,
    leaf_gradient_strides,
    obeys_layout_contract,
)
from workbench.compiler.memory.kernel_workspace import call_to_measure
from workbench.interop.torch_private import (
    FakeTensorMode,
    IRNode,
    TracingContext,
    V,
    compile_fx_inner,
    tree_leaves,
)

_KERNELS = "async_compile = AsyncCompile()"
"""The line of generated code that makes the compiler of kernels."""


_SLOW = dict.fromkeys(("cos", "erf", "exp", "log", "pow", "sigmoid", "sin", "tanh"), 16)
"""Kernels that compute these functions need about this many operations for each element; all others need one."""
_NOT_COMPUTED = frozenset(("constant", "index_expr", "load", "store", "store_reduction", "get_index", "set_indirect0"))
_LANES = 8
"""A kernel of Inductor does this many times fewer operations per second than a matmul."""


class NotRunError(BaseException):
    """Ends Inductor's compilation when the code is generated, and ends each call of the result of this compilation.

    It is not an `Exception`, because PyTorch would catch an `Exception`.
    """


class InductorCode:
    """The code that Inductor generates for a forward and its backward.

    Attributes
    ----------
    makers : dict of bool to callable
        For the forward (False) and the backward (True), a function that returns the callable that Inductor calls.
    mutated : int
        Number of the forward's first outputs that are new values of inputs.
    kernels : list of tuple of int and int
        For each kernel that Inductor generates: the bytes that it reads and writes, and its operations.
    """

    def __init__(self) -> None:
        self.kernels: list[tuple[int, int]] = []
        self.makers: dict[bool, Callable[[], Callable[[list[Any]], Any]]] = {}
        self.mutated = 0

    def compile(self, graph: torch.fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
        """Generate the code of a graph.

        This method takes the place of Inductor's `compile_fx_inner`. The result cannot run.
        """
        is_backward = bool(options.get("is_backward"))

        def keep(text: str) -> None:
            self.makers[is_backward] = functools.partial(_load, text)
            _record_strides()
            self.kernels += _kernels()
            raise NotRunError

        self.mutated = TracingContext.get().fw_metadata.num_mutated_inp_runtime_indices
        try:
            with generated_code(keep):
                # Inductor generates no code for a graph without calls, and returns its forward.
                uncompiled: Any = compile_fx_inner(graph, inputs, **options)
                self.makers[is_backward] = lambda: uncompiled
        except NotRunError:
            pass

        def call(_: Any) -> Any:
            raise NotRunError

        call._boxed_call = True  # type: ignore[attr-defined]  # arguments in one list, like Inductor's result
        return call


def _record_strides() -> None:
    """Tell AOTAutograd the strides of the forward's outputs, because it compiles the backward for these strides."""
    strides = TracingContext.get().output_strides
    if strides is not None and not strides:
        lowered = V.graph
        for output in lowered.graph_outputs:
            is_tensor = isinstance(output, IRNode) and output.has_tensor_output()
            strides.append(tuple(map(int, output.get_layout().stride)) if is_tensor else None)


def _kernels() -> Iterator[tuple[int, int]]:
    """Yield the bytes and the operations of each kernel of the graph that Inductor compiles now."""
    for fused in V.graph.scheduler.nodes:
        if fused.is_extern():
            continue
        operations = 0
        for node in fused.get_nodes():
            body = getattr(node, "_body", None)
            if body is not None:
                counts = body.op_counts.items()
                each = sum(number * _SLOW.get(name, 1) for name, number in counts if name not in _NOT_COMPUTED)
                operations += each * math.prod(int(size) for size in body.var_ranges.values())
        yield fused.get_read_write_buffers_sizes(), operations


@dataclasses.dataclass(frozen=True)
class DividedGraph:
    """Inputs and outputs of the forward and of the backward into which a joint graph is divided.

    Attributes
    ----------
    given : list
        Inputs of the forward, as fake tensors.
    returned : list of str
        Name of each output of the forward. Outputs that are saved for the backward come last.
    outputs : int
        Number of outputs that are not saved for the backward.
    received : list of tuple of str and object
        Name and value of each input of the backward. A saved value has its name in `returned`; all other inputs are
        gradients of outputs.
    """

    given: list[Any]
    returned: list[str]
    outputs: int
    received: list[tuple[str, Any]]

    @classmethod
    def read(cls, forward: torch.fx.GraphModule, backward: torch.fx.GraphModule, outputs: int) -> DividedGraph:
        """Read the inputs and outputs of two graphs. `outputs` is the number of outputs that are not saved."""
        given, received = (
            [(node.name, node.meta["val"]) for node in graph.graph.find_nodes(op="placeholder")]
            for graph in (forward, backward)
        )
        (leaves,) = forward.graph.find_nodes(op="output")[0].args
        returned = [leaf.name if isinstance(leaf, torch.fx.Node) else "" for leaf in leaves]
        return cls([value for _, value in given], returned, outputs, received)


@dataclasses.dataclass(frozen=True)
class StepMemory:
    """Memory of a step that runs the generated code.

    Attributes
    ----------
    peak_bytes : int
        Most bytes that the step allocates at once, in addition to parameters, buffers and inputs.
    end_bytes : int
        Bytes of outputs and gradients. They are alive when the step ends, whatever the forward saves.
    saved : dict of str to int
        Maps the name of each saved tensor to the bytes of its storage. Storages of parameters, buffers and inputs are
        not included. Of tensors that share a storage, only the first is included.
    kernels : tuple of tuple of int and int
        For each kernel that Inductor generates: the bytes that it reads and writes, and its operations.
    flops : mapping of str to int
        Maps a data type to the floating point operations of all other operators, such as matmuls.
    at_peak : tuple of tuple of int and str
        Bytes and description of each tensor that the step has allocated and holds at the peak, the largest first.
    at_least : bool
        Whether `peak_bytes` is a lower bound, because a CPU kernel could not be measured.
    """

    peak_bytes: int
    end_bytes: int
    saved: dict[str, int]
    kernels: tuple[tuple[int, int], ...]
    flops: Mapping[str, int]
    at_peak: tuple[tuple[int, str], ...]
    at_least: bool

    def seconds(self, machine: Machine) -> float:
        """Estimate the time of the step by a machine's rates."""
        rates = machine.flops_per_s
        of_kernels = sum(
            max(moved / machine.bytes_per_s, _LANES * operations / rates["float32"])
            for moved, operations in self.kernels
        )
        return of_kernels + sum(flops / rates.get(dtype, rates["float32"]) for dtype, flops in self.flops.items())


def predict_step(code: InductorCode, divided: DividedGraph) -> StepMemory:
    """Run the generated forward and backward on fake tensors, and count what they allocate.

    This function assumes that the caller holds the outputs until the backward ends, that autograd holds a dense
    gradient of each output, and that leaves have no gradient before the step.
    """
    memory = _WrapperMemory()
    forward_call, backward_call = (code.makers[is_backward]() for is_backward in (False, True))
    with fake_execution(FakeTensorMode()):
        given = list(_copies(divided.given))
        for tensor in given:
            if isinstance(tensor, torch.Tensor):
                memory.see(tensor)
        before = memory.begin_step()
        with memory:
            outputs = list(forward_call(list(given)))
            saved = dict(zip(divided.returned[divided.outputs :], outputs[divided.outputs :], strict=True))
            saved_bytes = _storages(saved, given)
            # PyTorch copies the new values of inputs into the inputs, and then frees the new values.
            returned_to_caller = outputs[code.mutated : divided.outputs]
            del outputs
            gradients = {name: _empty(value) for name, value in divided.received if name not in saved}
            arguments = [gradients[name] if name in gradients else saved[name] for name, _ in divided.received]
            saved.clear()
            made = list(backward_call(arguments))
            # `loss.backward()` holds the gradient of the loss until it returns.
            of_loss = [value for value in gradients.values() if isinstance(value, torch.Tensor) and not value.dim()]
            del gradients
            ends = [*_accumulate(made, given), *returned_to_caller]
    end_bytes = _bytes_of_parts(ends, given)
    del of_loss, returned_to_caller, ends
    return StepMemory(
        peak_bytes=memory.peak_bytes - before,
        end_bytes=end_bytes,
        saved=saved_bytes,
        kernels=tuple(code.kernels),
        flops=memory.flops_by_type,
        at_peak=memory.at_peak(),
        at_least=memory.at_least,
    )


def _accumulate(gradients: list[Any], leaves: Sequence[Any]) -> list[Any]:
    """Copy a gradient if autograd copies it: if its layout does not fit its leaf, or if two leaves share it.

    This function empties the list `gradients`, and returns what autograd keeps.
    """
    kept = []
    # The forward may also take states of random generators, which have no gradient.
    for at in accumulation_order(min(len(gradients), len(leaves))):
        gradient, leaf = gradients[at], leaves[at]
        gradients[at] = None
        if isinstance(gradient, torch.Tensor):
            is_kept = obeys_layout_contract(gradient.stride(), gradient.shape, leaf.stride())
            if not is_kept or any(gradient is other for other in gradients):
                strides = leaf_gradient_strides(leaf.stride(), leaf.shape)
                gradient = torch.empty_strided(leaf.shape, strides, dtype=gradient.dtype).copy_(gradient)
        kept.append(gradient)
    return kept


def _bytes_of_parts(tensors: Iterable[Any], given: Iterable[Any]) -> int:
    """Return the least bytes that tensors need in addition to `given`.

    Of a storage that is larger than its tensors, only the tensors count: with other choices, it may be smaller.
    """
    seen = {value.untyped_storage()._cdata for value in given if isinstance(value, torch.Tensor)}
    parts, whole = Counter[int](), dict[int, int]()
    for value in tensors:
        if isinstance(value, torch.Tensor) and (key := value.untyped_storage()._cdata) not in seen:
            whole[key] = storage_bytes(value)
            parts[key] += value.numel() * value.element_size()
    return sum(min(parts[key], size) for key, size in whole.items())


def _storages(saved: Mapping[str, Any], given: Iterable[Any]) -> dict[str, int]:
    seen = {value.untyped_storage()._cdata for value in given if isinstance(value, torch.Tensor)}
    found = {}
    for name, value in saved.items():
        if isinstance(value, torch.Tensor) and (key := value.untyped_storage()._cdata) not in seen:
            seen.add(key)
            found[name] = storage_bytes(value)
    return found


class _WrapperMemory(Allocations):
    """Counts allocations. If a CPU kernel allocates memory inside, a run on zeros measures this memory."""

    def __init__(self) -> None:
        super().__init__()
        self.at_least = False
        self.flops_by_type = Counter[str]()
        self._described: dict[int, str] = {}
        self._given: frozenset[int] = frozenset()
        self._live_at_peak: dict[int, tuple[int, str]] = {}

    def begin_step(self) -> int:
        """Count the peak from now on, and return the bytes that are alive now."""
        self.peak_bytes, self._given = self.live_bytes, frozenset(self._sizes)
        return self.live_bytes

    def see(self, tensor: torch.Tensor) -> bool:
        """Count the tensor's storage if it is new. At a new peak, record the storages that the step has made."""
        peak_bytes = self.peak_bytes
        is_new = super().see(tensor)
        if is_new:
            kind = str(tensor.dtype).removeprefix("torch.")
            self._described[tensor.untyped_storage()._cdata] = f"{kind} {list(tensor.shape)}"
        if self.peak_bytes > peak_bytes:
            made = self._sizes.keys() - self._given
            self._live_at_peak = {key: (self._sizes[key], self._described[key]) for key in made}
        return is_new

    def at_peak(self) -> tuple[tuple[int, str], ...]:
        """Return bytes and description of each tensor that the step has made and that is alive at the peak."""
        return tuple(sorted(self._live_at_peak.values(), key=lambda one: -one[0]))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator on fake tensors, and count what it allocates."""
        before, flops = self.live_bytes, self.flops
        out = super().__torch_dispatch__(func, types, args, kwargs)
        if self.flops > flops:
            types_of = (str(leaf.dtype) for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor))
            self.flops_by_type[next(types_of, "float32").removeprefix("torch.")] += self.flops - flops
        if (call := call_to_measure(func, args, kwargs or {}, self.flops - flops)) is not None:
            inside = call.inside_bytes()
            self.at_least |= inside is None
            self.peak_bytes = max(self.peak_bytes, before + (inside or 0))
        return out


class _NoKernels:
    """Takes the place of Inductor's `AsyncCompile`: its kernels do nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: lambda *_, **__: None


def _load(text: str) -> Callable[[list[Any]], Any]:
    """Return the function `call` of generated code. Its kernels do nothing, and PyTorch allocates its tensors."""
    namespace: dict[str, Any] = {"__name__": "generated", "no_kernels": _NoKernels()}
    exec(compile(text.replace(_KERNELS, "async_compile = no_kernels"), "<generated by Inductor>", "exec"), namespace)
    namespace.update(
        empty_strided_cpu=lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype),
        reinterpret_tensor=lambda tensor, shape, strides, offset: torch.as_strided(
            tensor, shape, strides, tensor.storage_offset() + offset
        ),
        assert_size_stride=lambda *_: None,
        assert_alignment=lambda *_: None,
    )
    call: Callable[[list[Any]], Any] = namespace["call"]
    return call


def _copies(values: Iterable[Any]) -> Iterator[Any]:
    """Return new tensors like `values`. Tensors that share a storage get copies that share a storage."""
    storages: dict[int, torch.Tensor] = {}
    for value in values:
        if not isinstance(value, torch.Tensor):
            yield value
            continue
        storage = value.untyped_storage()
        if storage._cdata not in storages:
            storages[storage._cdata] = torch.empty(storage.nbytes(), dtype=torch.uint8)
        typed = storages[storage._cdata].view(value.dtype)
        yield torch.as_strided(typed, value.shape, value.stride(), value.storage_offset())


def _empty(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
