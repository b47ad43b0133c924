"""Rehearse a step of a program that has several parts, and record which tensors are alive between the parts.

A rehearsal runs the step on fake tensors, or on a copy of the program whose tensors have values. Each part that Thunder
compiles is one autograd function in the rehearsal. This autograd function saves no recorded tensor for the backward,
because the part's plan counts the saved tensors. All code between the parts is the program's own. Python, autograd and
optimizers therefore hold the results of parts as long as in a run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from workbench.analysis.memory.allocator import dense_parts, storage_bytes
from workbench.analysis.memory.multi_graph_memory import (
    Backward,
    Event,
    Forward,
    KernelRuns,
    RecordedStep,
    StorageAllocated,
    StorageFreed,
)
from workbench.compiler.interop.backward_without_gpu import is_adding_gradients, is_spent, watch_backwards
from workbench.compiler.memory.kernel_workspace import KernelCall, call_to_measure
from workbench.interop.torch_private import (
    FakeTensorMode,
    TorchDispatchMode,
    _current_graph_task_id,
    flop_registry,
    tree_iter,
)


class UnplannablePartError(Exception):
    """The step uses a part in a way that no plan supports, so PyTorch must run the part.

    Attributes
    ----------
    part : str
    reason : str
    overwritten : tuple of int
        Arguments of the part. Thunder can compile the part if each of them is a copy. Empty if copies do not help.
    """

    def __init__(self, part: str, reason: str, overwritten: Sequence[int] = ()) -> None:
        super().__init__(reason)
        self.part, self.reason, self.overwritten = part, reason, tuple(overwritten)


_DIFFERENTIATED_AGAIN = (
    "its gradient is differentiated again (create_graph=True), and a plan has no second derivatives: PyTorch runs the "
    "part"
)
WRITES_HISTORY = (
    "it writes into another part's result that has a gradient, and a plan has no such write: PyTorch runs the part"
)
_OVERWRITTEN = (
    "the step later writes into memory that the part reads, and a backward that recomputes would read the new values: "
    "PyTorch runs the part"
)
_WRITTEN_VIEWS = (
    "the step later writes into two results of the part that share memory, and autograd allows no such write into "
    "results of a plan: PyTorch runs the part"
)
_INNER = (
    "the step asks for the gradient of a result on which other results of the part depend (torch.autograd.grad, "
    "retain_grad or a hook), and a plan has no gradients inside of a part: PyTorch runs the part"
)
_NODE_HOOK = (
    "the step registers a hook on an autograd node of the part, and a plan is one node with other gradients: PyTorch "
    "runs the part"
)
_BACKWARD_AGAIN = "several backwards run through the part, and a plan has one: PyTorch runs the part"


_UNDECLARED = ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm")
"""Operators that write running statistics in training, although their schemas do not say so."""
_ZEROS = ("aten::new_zeros", "aten::zeros", "aten::zeros_like")
_PLACES = ("index_put", "index_add", "scatter", "scatter_add", "put", "masked_scatter")
_PLACES_GRADIENTS = tuple(f"aten::{name}" for name in _PLACES)
"""Operators that put a gradient into zeros, in the derivatives of operators that take elements."""


class StepRecorder:
    """Records the storages that a step allocates and frees, and the parts that it runs.

    Parameters
    ----------
    mode : FakeTensorMode or None
        Mode of the program's tensors; None if the tensors have values.
    tensors : sequence of Tensor
        Tensors that exist before the step: parameters, buffers, inputs and the state of optimizers.
    """

    def __init__(self, mode: FakeTensorMode | None, tensors: Sequence[torch.Tensor]) -> None:
        self.mode: contextlib.AbstractContextManager[Any] = mode or contextlib.nullcontext()
        self._has_values = mode is None
        self.events: list[Event | KernelCall] = []
        self.opaque: dict[str, None] = {}
        self._number: dict[Any, int] = {}
        self._sums: dict[int, set[int]] = {}
        self._zeros = -1
        self._writes = Counter[int]()
        self._reads: dict[int, _Reads] = {}
        self._shared: dict[int, str] = {}
        self._calls = 0
        self._ids = 0
        self._noting = True
        self.inside = False
        for tensor in tensors:
            self.note(tensor)
        self._baseline = tuple(event for event in self.events if isinstance(event, StorageAllocated))
        self.events.clear()

    def recorded_step(self) -> RecordedStep:
        """Return the step as it is recorded so far, and measure its CPU kernels."""
        events: list[Event] = []
        unmeasured = False
        for event in self._events_with_sums_in_place():
            # Measure after the step: while autograd runs, the profiler would end the process.
            inside = event.inside_bytes() if isinstance(event, KernelCall) else 0
            unmeasured |= inside is None
            if not isinstance(event, KernelCall):
                events.append(event)
            elif inside:
                events.append(KernelRuns(inside))
        return RecordedStep(self._baseline, tuple(events), tuple(self.opaque), self._has_values, unmeasured=unmeasured)

    def stop(self) -> None:
        """Stop recording."""
        self._noting = False

    def note(self, tensor: Any) -> int:
        """Return the number of a tensor's storage. If the storage is new, record it.

        Return -1 for a sparse tensor, which has several storages, and for a value that is no tensor.
        """
        if not isinstance(tensor, torch.Tensor):
            return -1
        if tensor.layout is not torch.strided:
            for part in dense_parts(tensor):
                self.note(part)
            return -1
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._number:
            self._ids += 1
            self._number[key] = self._ids
            self._add(StorageAllocated(self._ids, storage_bytes(tensor)))
            weakref.finalize(storage, self._record_free, key, self._ids).atexit = False
        return self._number[key]

    def note_kernel(self, func: Any, args: Any, kwargs: Any, made: Any) -> None:
        """Record an operator of PyTorch if its CPU kernel may allocate more than its results."""
        if func.namespace != "aten":
            return
        packet = func._overloadpacket
        flops = int(flop_registry[packet](*args, **kwargs, out_val=made)) if packet in flop_registry else 0
        if (call := call_to_measure(func, args, kwargs, flops)) is not None:
            self._add(call)

    def note_sum(self, result: torch.Tensor, gradients: Sequence[Any]) -> None:
        """Record that autograd has added two gradients of one tensor.

        In a run, autograd adds into a gradient that nothing else holds. While a dispatch mode is active, it does not.
        """
        self._sums[self.note(result)] = {self.note(gradient) for gradient in gradients}

    def note_placed(self, func: Any, args: Sequence[Any], result: Any) -> None:
        """Record an operator of autograd. If it puts a gradient into the zeros that were just made, it writes in place.

        In a run, derivatives write into their zeros. While a dispatch mode is active, they copy them.
        """
        name, zeros = func._schema.name, self._zeros
        self._zeros = self.note(result) if name in _ZEROS else -1
        if zeros >= 0 and name in _PLACES_GRADIENTS and self.note(args[0]) == zeros:
            self._sums[self.note(result)] = {zeros}

    def note_writes(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Count the writes of an operator into each recorded storage. Writes through `.data` count, too."""
        written = [
            args[at] if at < len(args) else kwargs.get(argument.name)
            for at, argument in enumerate(func._schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        if func._schema.name.endswith(_UNDECLARED) and len(args) > 5 and args[5]:
            written += args[3:5]
        for tensor in _tensors(written):
            number = self._number.get(tensor.untyped_storage()._cdata)
            if number is not None:
                self._writes[number] += 1
                if number in self._shared:
                    raise UnplannablePartError(self._shared[number], _WRITTEN_VIEWS)

    def refuse_overwritten(self, part: str, call: int) -> None:
        """Raise an error if the step has written into an input of a part since the forward of the part.

        The part's own writes do not count, because its plan contains them.
        """
        reads = self._reads.pop(call)
        changed = {storage for storage, writes in reads.writes.items() if self._writes[storage] != writes}
        if not changed:
            return
        places = [at for at, storage in enumerate(reads.arguments) if storage in changed]
        # A result may be a view of an argument. A later write into a view of a copy would not reach the argument.
        copies_help = changed.isdisjoint(reads.fixed)
        for at in places:
            # Eager PyTorch does not check for writes that no version counts. Its backward may read the new values.
            tensor, version = reads.versions[at]
            kept, storage = tensor(), reads.arguments[at]
            written = self._writes[storage] - reads.writes[storage]
            copies_help = copies_help and kept is not None and kept._version - version == written
        raise UnplannablePartError(part, _OVERWRITTEN, places if copies_help else ())

    def _events_with_sums_in_place(self) -> list[Event | KernelCall]:
        """Return the events. A sum of gradients is allocated after the free of a gradient that it replaces."""
        events = list(self.events)
        sizes = {event.storage: event.bytes for event in events if isinstance(event, StorageAllocated)}
        for at, event in enumerate(self.events):
            if not isinstance(event, StorageAllocated) or event.storage not in self._sums:
                continue
            for behind in range(at + 1, len(events)):
                freed = events[behind]
                if not isinstance(freed, StorageFreed):
                    break
                if freed.storage in self._sums[event.storage] and sizes.get(freed.storage) == event.bytes:
                    events[at : behind + 1] = [*events[at + 1 : behind + 1], event]
                    break
        return events

    def _record_free(self, key: Any, number: int) -> None:
        if self._number.get(key) == number:
            del self._number[key]
            self._shared.pop(number, None)
        self._add(StorageFreed(number))

    def _add(self, event: Event | KernelCall) -> None:
        if self._noting:
            self.events.append(event)

    def run(
        self,
        part: str,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        constants: Sequence[Any] = (),
        reached: Sequence[int] = (),
        inner: Collection[int] = (),
        planned: Sequence[Any] | None = None,
    ) -> Any:
        """Run and record a part that Thunder compiles, and return its outputs.

        Parameters
        ----------
        part : str
        function : callable
            Computes the outputs of the part from its arguments.
        arguments, constants : sequence
            Arguments of the part, and the tensors that its graph contains.
        reached : sequence of int, optional
            For each argument, the outputs that receive gradients from it, as bits. Without, all outputs do.
        inner : collection of int, optional
            Places of the outputs on which other outputs depend.
        planned : sequence, optional
            The arguments for which the part is planned. By default, they have the shapes of `arguments`.

        Raises
        ------
        UnplannablePartError
            Raised in the backward of the outputs, if this backward runs a second time or is itself differentiated, or
            if the step has written into an input since this call. Raised if the step asks for the gradient of an output
            in `inner`.
        """
        inputs = (*arguments, *constants)
        differentiable = torch.is_grad_enabled() and any(_requires_grad(value) for value in inputs)
        before = Counter(self._writes)
        with self._part_runs():
            tape = _Tape(function, arguments) if self._has_values and differentiable else None
            with self.mode, torch.no_grad():
                made = function(*arguments)
        several = isinstance(made, tuple | list)
        outputs = list(made) if several else [made]
        self._calls += 1
        at = len(self.events)
        given = tuple(map(self.note, inputs))
        numbers = tuple(map(self.note, outputs))
        handed_out = self.events[at:]
        del self.events[at:]
        shapes = _compare_shapes(arguments, arguments if planned is None else planned)
        self.events += [Forward(part, self._calls, given, numbers, shapes), *handed_out]
        if differentiable:
            unwritten = {storage for storage in given if storage >= 0 and self._writes[storage] == before[storage]}
            writes = {storage: self._writes[storage] for storage in unwritten}
            fixed = {*given[len(arguments) :], *numbers}
            versions = {at: (weakref.ref(each), each._version) for at, each in enumerate(inputs) if given[at] in writes}
            self._reads[self._calls] = _Reads(writes, given[: len(arguments)], frozenset(fixed), versions)
            tensors = [at for at, output in enumerate(outputs) if isinstance(output, torch.Tensor)]
            self._shared |= {number: part for number, uses in Counter(numbers).items() if number >= 0 and uses > 1}
            stand: Any = _PartNode.apply  # without types in torch
            paths = tensors, [*reached, *[-1] * (len(inputs) - len(reached))]
            joined = stand(self, part, self._calls, tape, paths, [outputs[at] for at in tensors], *inputs)
            for at, output in zip(tensors, joined, strict=True):
                outputs[at] = output
                if at in inner and output.grad_fn is not None:
                    output.grad_fn.inner[output.output_nr] = weakref.ref(output)
        return tuple(outputs) if several else outputs[0]

    @contextlib.contextmanager
    def _part_runs(self) -> Iterator[None]:
        """In this context, do not record results of operators. A part runs the operators, and its plan counts them."""
        before, self.inside = self.inside, True
        try:
            yield
        finally:
            self.inside = before

    def run_opaque(self, part: str, function: Callable[[], Any], *, transforms: bool = False) -> Any:
        """Run a part that PyTorch runs uncompiled, record the results of its operators, and return its outputs.

        If the part has `transforms` of `torch.func`, record only its outputs: while a dispatch mode is active, some of
        their derivatives compute with more temporary tensors than in a run.
        """
        self.opaque[part] = None
        with self.mode, _Noting(self):
            if not transforms:
                return function()
            with self._part_runs():
                made = function()
            for tensor in _tensors(made):
                self.note(tensor)
            return made

    def step(self, call: Callable[[], Any], takes_steps: bool) -> None:
        """Run and record a step: the forward, and the backward if an output requires gradients.

        Parameters
        ----------
        call : callable
            Calls the program with its inputs.
        takes_steps : bool
            Whether the program has an optimizer, so that it runs the backward itself. A program without one may also
            run it. Only outputs that its backwards have not differentiated are then differentiated.
        """
        stored: list[bool] = []

        def seen(edges: Sequence[GradientEdge], stores: bool) -> None:
            stored.append(stores)
            for edge in edges:
                _refuse_inner(edge)

        with watch_backwards(seen), _NotingBetween(self):
            outputs = call()
            for tensor in _tensors(outputs):
                self.note(tensor)
            if not takes_steps:
                spent = any(stored)
                self._differentiate(outputs, lambda output: spent and is_spent(output, _is_apart))
        self.stop()

    def _differentiate(self, outputs: Any, is_done: Callable[[torch.Tensor], bool]) -> None:
        """Run the backward of the outputs in the same way as a run does.

        If the only output of a floating-point or complex type is a scalar, this output is the loss. In all other cases,
        each output that requires a gradient receives a new gradient. Outputs of which `is_done` is true receive none.
        """
        floating = [output for output in _tensors(outputs) if output.is_floating_point() or output.is_complex()]
        wanted = [output for output in floating if output.requires_grad and not is_done(output)]
        if not wanted:
            return
        if len(floating) == 1 and floating[0].dim() == 0:
            floating[0].backward()
            return
        loss: Any = _GivenGradientLoss.apply  # without types in torch
        loss(self, *wanted).backward()


@dataclasses.dataclass(frozen=True)
class _Reads:
    """The storages that a part has read.

    Attributes
    ----------
    writes : dict of int to int
        Maps each storage to the number of writes into it before the part ran.
    arguments : tuple of int
        Storage of each argument, without the constants.
    fixed : frozenset of int
        Storages of constants and results, of which the part cannot have a copy.
    versions : dict of int to tuple
        Maps the place of an input to the input and its version.
    """

    writes: Mapping[int, int]
    arguments: tuple[int, ...]
    fixed: frozenset[int]
    versions: Mapping[int, tuple[weakref.ref[torch.Tensor], int]]


class _Tape:
    """A second forward of a part, under autograd and on copies of the arguments. It provides gradients with values.

    Autograd saves only tensors of this second forward, and the tape keeps none of the arguments except parameters. The
    recorded tensors therefore live as long as in a run.
    """

    def __init__(self, function: Callable[..., Any], arguments: Sequence[Any]) -> None:
        state = torch.get_rng_state()
        with torch.enable_grad():
            copies = [_copy(value) for value in arguments]
            # Keep the edge of each copy from before the call: if the function writes into a copy, the copy becomes the
            # output of another node.
            self._edges = [get_gradient_edge(copy) if _requires_grad(copy) else None for copy in copies]
            made = function(*copies)
        torch.set_rng_state(state)
        self._outputs = _tensors(made)

    def gradients(self, cotangents: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """Return the gradient of each argument that requires a gradient, and None for each other argument."""
        pairs = [
            (output, cotangent)
            for output, cotangent in zip(self._outputs, cotangents, strict=True)
            if cotangent is not None and output.requires_grad
        ]
        edges = [edge for edge in self._edges if edge is not None]
        outputs, given = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        made = iter(torch.autograd.grad(outputs, edges, given, allow_unused=True) if pairs else [None] * len(edges))
        return [None if edge is None else next(made) for edge in self._edges]


class _Copy(torch.autograd.Function):
    """Copies a detached tensor. The copy requires gradients, but its history does not keep the tensor alive.

    The copy is not a leaf, because operators may not write into a leaf that requires gradients.
    """

    @staticmethod
    def forward(ctx: Any, history: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        return None, None


def _copy(value: Any) -> Any:
    """Return an argument for a second forward: a copied tensor, a detached parameter, or any other value unchanged."""
    if not isinstance(value, torch.Tensor):
        return value
    if isinstance(value, torch.nn.Parameter):
        return value.detach().requires_grad_(value.requires_grad)
    if not value.requires_grad:
        return value.clone()
    copy: Any = _Copy.apply  # without types in torch
    return copy(torch.empty(0, requires_grad=True), value.detach())


def _compare_shapes(arguments: Sequence[Any], planned: Sequence[Any]) -> Literal["planned", "larger", "other"]:
    """Compare the shapes of arguments with those of a plan; see `Forward.shapes`."""
    own, known = ([tuple(each.shape) for each in _tensors(given)] for given in (arguments, planned))
    if own == known:
        return "planned"
    if list(map(len, own)) != list(map(len, known)):
        return "other"
    sizes = zip(itertools.chain(*own), itertools.chain(*known), strict=True)
    return "larger" if all(size >= least for size, least in sizes) else "other"


def _requires_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _are_alike(terms: Sequence[Any]) -> bool:
    """Return whether the terms of a sum are tensors of one shape and data type, as the gradients of one tensor are."""
    return len({(x.shape, x.dtype) if isinstance(x, torch.Tensor) else None for x in terms} | {None}) == 2


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_iter(tree) if isinstance(leaf, torch.Tensor)]


class _Noting(TorchDispatchMode):
    """Records the storages of operators' results."""

    supports_higher_order_operators = True

    def __init__(self, rehearsal: StepRecorder) -> None:
        super().__init__()
        self._rehearsal = rehearsal

    @torch.compiler.disable
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self._rehearsal.note_writes(func, args, kwargs or {})
        if not self._rehearsal.inside:
            self._rehearsal.note_kernel(func, args, kwargs or {}, made)
            for tensor in _tensors(made):
                self._rehearsal.note(tensor)
            differentiates = is_adding_gradients() or _current_graph_task_id() >= 0
            if func is torch.ops.aten.add.Tensor and differentiates and _are_alike(args):
                self._rehearsal.note_sum(made, args)
            if differentiates:
                self._rehearsal.note_placed(func, args, made)
        return made


class _NotingBetween(_Noting):
    """Records the storages of the results of operators between parts. Dynamo ignores this mode when it compiles."""

    @classmethod
    def is_infra_mode(cls) -> bool:
        return True


def _refuse_inner(edge: GradientEdge) -> None:
    """Raise an error if the edge is of an output of a part on which other outputs of the part depend."""
    if getattr(edge.node, "_forward_cls", None) is _PartNode:
        _refuse_gradient_of(edge.node, edge.output_nr)


def _is_apart(node: Any, place: int) -> bool:
    """Return whether a part's output may have its own graph inside of the part, so that no backward has freed it."""
    return getattr(node, "_forward_cls", None) is _PartNode and place not in node.inner and place not in node.given


def _refuse_gradient_of(node: Any, place: int) -> None:
    if place in node.inner:
        raise UnplannablePartError(node.part, _INNER)


@torch.compiler.disable  # the program's code calls it, which Dynamo compiles
def _register_hooks(node: Any, register: Callable[[torch.Tensor], None], output: torch.Tensor) -> None:
    _refuse_gradient_of(node, output.output_nr)
    register(output)


@torch.compiler.disable  # the program's code calls it, which Dynamo compiles
def _refuse_node_hook(part: str, *_: Any) -> None:
    raise UnplannablePartError(part, _NODE_HOOK)


class _PartNode(torch.autograd.Function):
    """Autograd function of a part. Its backward adds itself to the record, and returns the gradients of the inputs."""

    materializes_gradients = False

    @staticmethod
    def forward(
        ctx: Any,
        recorder: StepRecorder,
        part: str,
        call: int,
        tape: _Tape | None,
        paths: tuple[Sequence[int], Sequence[int]],
        outputs: Any,
        *given: Any,
    ) -> Any:
        ctx.recorder, ctx.part, ctx.call, ctx.tape, ctx.ran = recorder, part, call, tape, False
        ctx.places, ctx.reached = paths
        ctx.like = [(x.shape, x.dtype, x.device) if _requires_grad(x) else None for x in given]
        ctx.set_materialize_grads(False)
        ctx.inner, ctx.given = {}, frozenset()
        # PyTorch calls this when the program registers a hook on an output.
        ctx._register_hook_dict = functools.partial(_register_hooks, ctx, ctx._register_hook_dict)
        ctx.register_hook = ctx.register_prehook = functools.partial(_refuse_node_hook, part)
        # Other parts may write into these tensors. Autograd allows this for detached tensors, but not for views.
        return tuple(output.detach() for output in outputs)

    @staticmethod
    @torch.compiler.disable  # without this, Dynamo would compile this backward when a program calls autograd
    def backward(ctx: Any, *cotangents: Any) -> Any:
        recorder: StepRecorder = ctx.recorder
        if ctx.ran or torch.is_grad_enabled():
            raise UnplannablePartError(ctx.part, _BACKWARD_AGAIN if ctx.ran else _DIFFERENTIATED_AGAIN)
        if any((held := output()) is not None and held.retains_grad for output in ctx.inner.values()):
            raise UnplannablePartError(ctx.part, _INNER)
        recorder.refuse_overwritten(ctx.part, ctx.call)
        ctx.ran = True
        ctx.given = frozenset(at for at, cotangent in enumerate(cotangents) if cotangent is not None)
        numbers = tuple(map(recorder.note, cotangents))
        made: list[Any]
        with recorder._part_runs():
            if ctx.tape is not None:
                made = ctx.tape.gradients(cotangents)
                made += [None] * (len(ctx.like) - len(made))
                ctx.tape = None
            else:
                used = {at for at, cotangent in zip(ctx.places, cotangents, strict=True) if cotangent is not None}
                bits = sum(1 << at for at in used)
                with recorder.mode:
                    made = [
                        None if like is None or not bits & to else torch.empty(like[0], dtype=like[1], device=like[2])
                        for like, to in zip(ctx.like, ctx.reached, strict=True)
                    ]
        at = len(recorder.events)
        backward = Backward(ctx.call, numbers, tuple(map(recorder.note, made)))
        if recorder._noting:
            recorder.events.insert(at, backward)
        return None, None, None, None, None, None, *made


class _GivenGradientLoss(torch.autograd.Function):
    """A loss whose backward makes a new gradient for each output."""

    @staticmethod
    def forward(ctx: Any, rehearsal: StepRecorder, *outputs: torch.Tensor) -> torch.Tensor:
        ctx.like = [(output.shape, output.dtype, output.device) for output in outputs]
        ctx.rehearsal = rehearsal
        with rehearsal.mode:
            return torch.zeros((), device=outputs[0].device)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        with ctx.rehearsal.mode:
            made = [torch.ones(shape, dtype=dtype, device=device) for shape, dtype, device in ctx.like]
        for gradient in made:
            ctx.rehearsal.note(gradient)
        return None, *made
