"""Convert an FX graph to a trace of Thunder's own operators. Thunder's bytecode interpreter does not run the graph.

`function_of` returns a stand-in function for `thunder.jit`. A stand-in consists of one statement. Thunder's interpreter
traces the stand-in, and so generates the checks of all arguments and the structure of all results. The statements
between arguments and results come from the graph. The later steps, such as gradients, executors and transforms,
are those of Thunder. A program that is only planned is never called, so its stand-in needs no checks. If possible,
`_stand_in_traces` then builds the traces of the stand-in without the interpreter.
"""

from __future__ import annotations

import builtins
import dataclasses
import functools
import inspect
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dis import Positions
from types import FunctionType
from typing import Any, NoReturn

import numpy as np
import torch
from torch import fx

from workbench.compiler.fastpath.call_memo import Location
from workbench.compiler.frontend.differentiability import lost_conjugate, why_no_gradient
from workbench.compiler.frontend.plain_flex_attention import record_attention
from workbench.compiler.frontend.selective_checkpoints import saved_nodes
from workbench.compiler.frontend.trace_errors import (
    ASSERTED,
    DRAWS_AGAIN,
    FLEXIBLE,
    NUMBER_OF_TENSOR,
    remedy,
)
from workbench.compiler.interop import default_dtype_device, source_file, thunder_patches
from workbench.compiler.interop.thunder_api import (
    BoundSymbol,
    CompileData,
    CompileStats,
    Proxy,
    ProxyTag,
    SigInfo,
    Symbol,
    TensorProxy,
    TraceCtx,
    TraceResults,
    compile_data,
    devices,
    dtypes,
    from_trace,
    get_tracectx,
    jit_ext,
    prims,
    tensorproxy,
    thunder,
    thunder_functions,
    thunder_trace,
    tracectx,
    variableify,
)
from workbench.compiler.interop.torch_versions import RESETS_DETERMINISM
from workbench.compiler.lowering import custom_ops, patch_context
from workbench.compiler.lowering.alias_writes import (
    READ_BEHIND,
    WRITTEN_IN_BACKWARD,
    Aliases,
    AliasWrite,
    base_value,
    index_of,
    is_part,
    overwrites,
    writes,
    writes_in_backward,
)
from workbench.compiler.lowering.autocast import cast
from workbench.compiler.lowering.call_normalization import (
    IN_PLACE,
    SOFT,
    add_dimension,
    clamp_slices,
    draws_again,
    normalize_arguments,
    out_of_place_name,
    put_tensor_first,
    reads_half,
    refuse_lists,
    unpack_list,
)
from workbench.compiler.lowering.checkpoint_regions import mark_recomputed
from workbench.compiler.lowering.foreach import FOREACH
from workbench.compiler.lowering.functionalize import apply_function, remove_hazardous_writes
from workbench.compiler.lowering.overrides import BY_NAME, LOWERED, assigns_by_mask, kind_of, numpy_result, power
from workbench.compiler.lowering.zero_dim_tensors import spread
from workbench.compiler.trace.corrections import (
    ALIASES,
    FLEX_ATTENTION,
    OPERATORS,
    OWN_MEMORY,
    UNREAD,
    is_thunders_own,
    mark,
)
from workbench.compiler.trace.own_memory import shares_memory
from workbench.compiler.trace.source_frames import Frame, place_of
from workbench.compiler.trace.stable_ids import line_prefix, line_text, read_line
from workbench.errors import ProgramError
from workbench.interop.torch_private import (
    FakeTensor,
    OpOverload,
    OpOverloadPacket,
    _log_api_usage_once,
    numpy_method_wrapper,
    numpy_operator_wrapper,
    numpy_to_tensor_wrapper,
    tree_iter,
)
from workbench.interop.torch_private import _pytree as pytree

WITHOUT_EFFECT = frozenset({_log_api_usage_once})
"""Functions that Dynamo records in its graphs although they have no effect and no result."""

_STAND_IN = "workbench_stand_in"
_PYTHON = (operator, builtins)
_POWERS = frozenset((operator.pow, torch.pow, torch.Tensor.pow, "pow", "__pow__"))
_WITHOUT_GRADIENTS = frozenset({"lerp_"})
"""Thunder's in-place methods that are correct except for their gradients."""


class RefusedNodeError(ProgramError):
    """Thunder cannot trace a node of a graph.

    Attributes
    ----------
    node : Node
        Node of the traced graph. If the refused node is in a region inside of the graph, this is the node that calls
        the region.
    """

    def __init__(self, message: str, node: fx.Node) -> None:
        super().__init__(message)
        self.node = node


@dataclasses.dataclass(frozen=True)
class GraphSource:
    """A graph, with the paths of the program's modules.

    Attributes
    ----------
    graph : GraphModule
    paths : mapping of int to str
        Maps the `id` of each module to its path. Empty if the program is not a module.
    """

    graph: fx.GraphModule
    paths: Mapping[int, str]


def constants_of(graph: fx.GraphModule) -> tuple[torch.Tensor, ...]:
    """Return the tensors that are attributes of a graph. A trace takes these tensors as further arguments."""
    found = {str(node.target): attribute_value(graph, node) for node in graph.graph.nodes if node.op == "get_attr"}
    return tuple(value for value in found.values() if isinstance(value, torch.Tensor))


def attribute_value(graph: fx.GraphModule, node: fx.Node) -> Any:
    """Return the value of a ``get_attr`` node."""
    return functools.reduce(getattr, str(node.target).split("."), graph)


def function_of(
    graph: fx.GraphModule,
    names: Sequence[str],
    paths: Mapping[int, str],
) -> Callable[..., Any]:
    """Return a stand-in function for a graph: `thunder.jit` compiles the graph instead of the function's own code.

    The function takes the graph's inputs, followed by the tensors of `constants_of`. It returns the graph's outputs.

    Parameters
    ----------
    graph : GraphModule
        Graph from Dynamo, with placeholders for all tensors, and flat outputs.
    names : sequence of str
        Names of the inputs. They are converted to unique argument names.
    paths : mapping of int to str
        See `GraphSource`.
    """
    arguments = unique_names((*names, *(f"constant{i}" for i, _ in enumerate(constants_of(graph)))))
    function = stand_in(graph, "program", arguments, (), arguments)
    trace_as(function, GraphSource(graph, paths), _stand_in_traces)
    return function


def stand_in(
    graph: fx.GraphModule, name: str, arguments: Sequence[str], lines: Sequence[str], call_arguments: Sequence[str]
) -> FunctionType:
    """Return a function whose last statement stands in for a graph. Thunder's interpreter traces the function.

    Parameters
    ----------
    graph : GraphModule
        Graph with the same number of results as the statement.
    name : str
    arguments : sequence of str
        Arguments of the function.
    lines : sequence of str
        Lines of code before the statement.
    call_arguments : sequence of str
        Arguments of the statement: the graph's arguments, the tensors of `constants_of`, and further arguments, which
        the graph does not read.
    """
    results = len(_outputs(graph))

    def meta(*_: Any) -> tuple[TensorProxy, ...]:
        return tuple(TensorProxy(shape=(), device=devices.cpu, dtype=dtypes.float32) for _ in range(results))

    statement = Symbol("stand_in", meta, is_prim=True, id=_STAND_IN)
    namespace: dict[str, Any] = {"_workbench_stand_in": statement}
    body = "".join(f"    {line}\n" for line in (*lines, f"return _workbench_stand_in({', '.join(call_arguments)})"))
    exec(compile(f"def {name}({', '.join(arguments)}):\n{body}", "<graph>", "exec"), namespace)
    function: FunctionType = namespace[name]
    return function


def trace_as(
    program: Callable[..., Any],
    source: GraphSource,
    of_arguments: Callable[[Callable[..., Any], Sequence[Any]], TraceResults | None] | None = None,
) -> None:
    """Make `thunder.jit` replace the statement of a `stand_in` by the statements of a graph.

    Parameters
    ----------
    program : callable
        Result of `stand_in`, or a module whose ``forward`` is such a result.
    source : GraphSource
    of_arguments : callable, optional
        See `thunder_patches.TraceSource`.
    """
    thunder_patches.trace_with(program, thunder_patches.TraceSource(functools.partial(_results, source), of_arguments))


def unique_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return a unique Python identifier for each name."""
    found: dict[str, None] = {}
    for name in names:
        plain = re.sub(r"\W", "_", name)
        plain = plain if plain.isidentifier() and not plain.startswith("_workbench") else f"t_{plain}"
        free, ordinal = plain, 0
        while free in found:
            ordinal += 1
            free = f"{plain}_{ordinal}"
        found[free] = None
    return tuple(found)


def find_refused_nodes(graph: fx.GraphModule, inputs: Sequence[Any]) -> dict[fx.Node, str]:
    """Return the nodes that Thunder cannot trace or differentiate, each with the reason.

    To find these nodes, this function runs the graph on Thunder's proxies, not on tensors.

    Parameters
    ----------
    graph : GraphModule
        Graph from Dynamo, with the result of each node as a fake tensor.
    inputs : sequence
        Arguments of the graph, or fake tensors with the same properties.
    """
    constants = constants_of(graph)
    found: dict[fx.Node, str] = {}

    def interpret(*given: Any) -> Any:
        survey = _UnsupportedNodes(GraphSource(graph, {}), given, found, differentiated)
        return survey.run(*survey.inputs)

    tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
    differentiated = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
    # Detach the inputs to drop each `grad`. Thunder would make a proxy of each `grad`, with one name for all proxies.
    given = [x.detach().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x for x in inputs]
    held = [x.detach().requires_grad_(x.requires_grad) for x in constants]
    # Thunder's rules for `torch.autocast` and `torch.no_grad` read the compile data.
    data = compile_data.compile_data_and_stats(CompileData(fn=interpret, disable_preprocessing=True), CompileStats())
    with patch_context.install_patches(), default_dtype_device.default_settings(), data:
        thunder_trace(inline_trace=False, rename_proxies=False)(interpret, *given, *held)
    return found


def _outputs(graph: fx.GraphModule) -> tuple[Any, ...]:
    node = next(iter(graph.graph.find_nodes(op="output")))
    given = node.args[0]
    return tuple(given) if isinstance(given, tuple | list) else (given,)


_PLAIN = (torch.Tensor, torch.nn.Parameter, FakeTensor)


def _stand_in_traces(function: Callable[..., Any], arguments: Sequence[Any]) -> TraceResults | None:
    """Build the traces of a stand-in as Thunder's interpreter would, but with no checks in the prologue.

    Return None if an argument is not a plain tensor, or is a leaf whose `grad` is not None.
    """
    if not all(type(tensor) in _PLAIN and not (tensor.is_leaf and tensor.grad is not None) for tensor in arguments):
        return None
    prologue, computation, epilogue = TraceCtx(function), TraceCtx(), TraceCtx()
    prologue._siginfo = SigInfo("prologue")
    prologue._siginfo.varargs, prologue._siginfo.varkwargs = ("args", None), ("kwargs", None)
    with tracectx(prologue):
        taken = [Proxy(name=name) for name in ("args", "kwargs")]
        for proxy in taken:
            prims.unpack_trivial(proxy, name=proxy.name)
        prims.python_return((taken[0], ()))
    # Reserve the names that the interpreter would use before it reads the names of the function's arguments.
    computation.names.update(f"t_{at}" for at in range(len(arguments)))
    names = inspect.signature(function).parameters
    with tracectx(computation):
        given = [tensorproxy(tensor, name=name) for name, tensor in zip(names, arguments, strict=True)]
        for proxy, tensor in zip(given, arguments, strict=True):
            if isinstance(tensor, torch.nn.Parameter):
                proxy.tags.add(ProxyTag.STATIC_MEMORY_LOCATION)
        results = function(*given)
        prims.python_return(results)
    epilogue.names.update(proxy.name for proxy in results)
    with tracectx(epilogue):
        prims.python_return(results)
    for name, trace, proxies in (("computation", computation, tuple(given)), ("epilogue", epilogue, tuple(results))):
        jit_ext.bind_inputs(name, trace, tuple(map(variableify, proxies)), proxies)
    return TraceResults(prologue, computation, epilogue, [])


def _results(source: GraphSource, stood_in: TraceResults) -> TraceResults:
    """Replace the one statement in the traces of a stand-in by the statements of the graph. Return the new traces."""
    traced: TraceCtx = from_trace(stood_in.computation_trace)
    # Copy the set of names, because `from_trace` shares it between the two traces.
    traced.names = set(stood_in.computation_trace.names)
    given: Sequence[Proxy] = ()
    for bsym in stood_in.computation_trace.bound_symbols:
        if bsym.sym.id is prims.PrimIDs.UNPACK_TRIVIAL:
            traced.bound_symbols.append(bsym)
        elif bsym.sym.id == _STAND_IN:
            given = bsym.args
    with tracectx(traced):
        interpreter = _Tracer(source, given)
        returned = interpreter.run(*interpreter.inputs)
        traced.set_current_source_location(None, None)
        prims.python_return(tuple(returned) if isinstance(returned, tuple | list) else (returned,))
    traced.scopes = [traced.bound_symbols]
    traced = remove_hazardous_writes(traced)
    return TraceResults(stood_in.prologue_trace, traced, stood_in.epilogue_trace, stood_in.interpreter_log)


def _has_exponent_of_its_own(node: fx.Node) -> bool:
    """Return whether a node is a power whose exponent requires a gradient or is zero."""
    if node.target not in _POWERS:
        return False
    exponent = node.kwargs.get("exponent", node.args[1] if len(node.args) > 1 else None)
    value = exponent.meta.get("example_value") if isinstance(exponent, fx.Node) else exponent
    return value.requires_grad if isinstance(value, torch.Tensor) else isinstance(value, int | float) and value == 0


class _Tracer(fx.Interpreter):
    """Runs a graph on Thunder's proxies, so that Thunder records the graph's operators in a trace."""

    def __init__(self, source: GraphSource, arguments: Sequence[Proxy]) -> None:
        super().__init__(source.graph, garbage_collect_values=False)
        self.source = source
        # If this attribute were true, FX would append its own text to every error message.
        self.extra_traceback = False
        placeholders = len(source.graph.graph.find_nodes(op="placeholder"))
        self.inputs = list(arguments[:placeholders])
        held = [id(tensor) for tensor in constants_of(source.graph)]
        self.constants = dict(zip(held, arguments[placeholders : placeholders + len(held)], strict=True))
        tensors = [given for given in arguments if isinstance(given, TensorProxy)]
        self.differentiated = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
        self.aliases = Aliases(source.graph.graph, self.differentiated)

    def run_node(self, n: fx.Node) -> Any:
        if n.op == "output":
            for write, out_of_place_name in self.aliases.unnoticed_writes:
                with _set_location(self._location_of(write)[0]):
                    prims.shallow_copy(self.env[out_of_place_name])
                    mark(self._statements_since()[-1:], ALIASES)
            self._name_apart(n)
        if n.op in ("placeholder", "get_attr", "output"):
            return super().run_node(n)
        if (unread := self.aliases.unread_writes.get(n)) is not None:
            frame = place_of(n, self.source.paths)[1]
            mark(self._statements_since()[-1:], UNREAD, line_text(frame.file, frame.line))
            return None if n.target is operator.setitem else self.env[unread]
        if (itself := self.aliases.returned_input(n)) is not None:
            return self.env[itself]
        return self._run(n, *self._location_of(n))

    def _statements_since(self, begun: int = 0) -> list[BoundSymbol]:
        """Return the statements of the innermost scope from position `begun` on."""
        trace = get_tracectx()
        assert trace is not None
        return trace.scopes[-1][begun:]

    def _name_apart(self, output: fx.Node) -> None:
        """Give two names to a value that the program returns twice, as in ``return loss, loss.float()``.

        With one name, Thunder would read the gradient of the first position, but autograd passes the gradient only to
        the last position.
        """
        seen = set()
        for returned in dict.fromkeys(output.all_input_nodes):
            value = self.env[returned]
            if isinstance(value, TensorProxy) and value.name in seen:
                with _set_location(self._location_of(returned)[0]):
                    self.env[returned] = prims.shallow_copy(value)
            elif isinstance(value, TensorProxy):
                seen.add(value.name)

    def _location_of(self, n: fx.Node) -> tuple[Location, Frame]:
        scope, frame = place_of(n, self.source.paths)
        file = source_file.SourceFile(frame.file, scope, frame.file, frame.line)
        return (file, Positions(lineno=frame.line or None)), frame

    def _run(self, n: fx.Node, location: Location, frame: Frame) -> Any:
        self.running = n
        trace = get_tracectx()
        assert trace is not None
        recorded = len(trace.scopes[-1])
        with _set_location(location):
            try:
                self.aliases.refuse_statistics(n)
                self.aliases.refuse_leaf(n)
                self.aliases.refuse_input(n)
                shared = self._unnoticed_write(n)
                made = self._power(n) if self.differentiated and _has_exponent_of_its_own(n) else super().run_node(n)
                if self.aliases.needs_own_memory(n) and shares_memory(made, trace.scopes[-1][recorded:]):
                    made = self._in_own_memory(made)
                if shared is not None:
                    made = self._write_again(n, shared)
                    mark(self._statements_since(recorded), ALIASES)
                if self.differentiated and _has_gradient(n):
                    for reason in filter(None, map(lost_conjugate, trace.scopes[-1][recorded:])):
                        raise NotImplementedError(f"Thunder computes a wrong gradient: {reason}")
                    if any(map(draws_again, trace.scopes[-1][recorded:])):
                        raise NotImplementedError(DRAWS_AGAIN)
                return _strengthen_types(made)
            except RefusedNodeError as error:
                error.node = n  # if a node in a region is refused, refuse the node that calls the region
                raise
            except ProgramError:
                raise
            except Exception as error:  # noqa: BLE001  # any error of an operator's rules is reported by line
                _refuse(frame, n, error)

    def _in_own_memory(self, value: TensorProxy) -> TensorProxy:
        made: TensorProxy = thunder_functions[torch.clone](value)
        mark(self._statements_since()[-1:], OWN_MEMORY)
        return made

    def _unnoticed_write(self, n: fx.Node) -> AliasWrite | None:
        """Return the write of a node if later statements or the caller would miss this write, or None.

        If there is such a write, clone the views that the write changes. The write then goes into the clones.
        """
        shared = self.aliases.unnoticed_write(n)
        if shared is not None:
            for view in shared.views:
                # A gradient may read the old value, so the write changes a clone.
                self.env[view] = thunder_functions[torch.clone](self.env[view])
        return shared

    def _write_again(self, n: fx.Node, shared: AliasWrite) -> Any:
        """Write a changed view into its base, and each base into its own base. Then compute `shared.others` again."""
        for view, whole in shared.steps:
            into, made = self.env[whole], self.env[view]
            if is_part(view):
                index = index_of(view, self.map_nodes_to_values(view.args[1:], view))
                self.call_function(operator.setitem, (into, index, made), {})
            else:
                into.copy_(base_value(view, made, tuple(into.shape)))
        for name in shared.others:
            out_of_place_name = writes(name)
            self.env[name] = super().run_node(name) if out_of_place_name is None else self.env[out_of_place_name]
        out_of_place_name = writes(n)
        return None if n.target is operator.setitem or out_of_place_name is None else self.env[out_of_place_name]

    def _power(self, n: fx.Node) -> Any:
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        begun = len(self._statements_since())
        made = power(*args, **kwargs)
        mark(self._statements_since(begun), OPERATORS)
        return made

    def fetch_args_kwargs_from_env(self, n: fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = super().fetch_args_kwargs_from_env(n)
        args, kwargs = spread(n, args, kwargs)
        return tuple(map(_plain, args)), {name: _plain(value) for name, value in kwargs.items()}

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target in WITHOUT_EFFECT:
            return None
        if target is torch.ops.higher_order.tag_activation_checkpoint:
            return self._run_checkpoint(*args, **kwargs)
        if target is torch.ops.higher_order.flex_attention:
            begun = len(self._statements_since())
            made = record_attention(self.call_function, self.running, *args, **kwargs)
            mark(self._statements_since(begun), FLEX_ATTENTION)
            return made
        if target is torch.ops.higher_order.autograd_function_apply:
            return apply_function(self._custom_forward(), *args, **kwargs)
        if target in (operator.getitem, operator.setitem) and isinstance(args[0], TensorProxy):
            args = (args[0], clamp_slices(args[0].shape, args[1]), *args[2:])
        if target is operator.setitem and not assigns_by_mask(*args):
            operator.setitem(*args)
            return None
        args = put_tensor_first(target, args)
        known = LOWERED.get(target) or FOREACH.get(target) or thunder_functions.get(target) or BY_NAME.get(str(target))
        if known is not None:
            # `_stacklevel` only affects PyTorch's warnings. `out` is the tensor into which the result is written.
            kwargs.pop("_stacklevel", None)
            # Thunder's factories lack these keywords. Omit a keyword that has its default value.
            kwargs = {name: value for name, value in kwargs.items() if value is not _DEFAULTS.get(name, ())}
            out = kwargs.pop("out", None)
            if out is None:  # autocast does not apply to operators that write into a given tensor
                args, kwargs = cast(target, args, kwargs, self.running.meta.get("example_value"))
            args, kwargs = normalize_arguments(target, known, unpack_list(target, known, args), kwargs)
            if target in SOFT:
                args, kwargs = add_dimension(args, kwargs)
            if self.differentiated:
                refuse_lists(known, args)
            made = self._call(target, known, args, kwargs)
            return made if out is None else out.copy_(made)
        if name := custom_ops.qualified_name(target):
            return custom_ops.call(
                name, args, kwargs, differentiated=self.differentiated and _has_gradient(self.running)
            )
        if target in IN_PLACE and isinstance(args[0], TensorProxy):
            return args[0].copy_(self.call_function(IN_PLACE[target], args, kwargs))
        if any(getattr(module, getattr(target, "__name__", ""), None) is target for module in _PYTHON):
            return target(*args, **kwargs)
        if is_number_of_numpy(self.running) and any(user.op == "output" for user in self.running.users):
            raise NotImplementedError("Thunder returns a number where NumPy's code expects an array")
        if isinstance(target, numpy_operator_wrapper):
            return self.call_function(target.op, args, kwargs)
        if _changes_pytorch(target) or any(isinstance(leaf, Proxy) for leaf in pytree.tree_leaves((args, kwargs))):
            raise NotImplementedError(f"Thunder does not know {name_of(target)}")
        if changes_setting(self.running):
            # Called here, it would change the setting once, while tracing, but not when the compiled program runs.
            raise NotImplementedError(f"Thunder does not know {name_of(target)}, which changes a setting of PyTorch")
        if isinstance(target, numpy_method_wrapper) and target.method == "item" and isinstance(args[0], int | float):
            return args[0]
        if isinstance(target, numpy_to_tensor_wrapper | numpy_method_wrapper):
            if not is_number_of_numpy(self.running):
                # Called here, it would write or draw once, while tracing, but not when the compiled program runs.
                raise NotImplementedError(f"Thunder does not know {name_of(target)}, which may make or write an array")
            return numpy_result(target, args, kwargs)
        return _refuse_tensors(target, target(*args, **kwargs))

    def _custom_forward(self) -> fx.Graph:
        """Return the graph of the forward of the `torch.autograd.Function` that the current node calls.

        Raises
        ------
        NotImplementedError
            If Thunder's gradients would be wrong, but PyTorch can run the function.
        ProgramError
            If the gradients of Dynamo's graph are wrong, even when PyTorch runs the graph.
        """
        forward, backward = self.running.args[:2]
        assert isinstance(forward, fx.Node)
        assert isinstance(backward, fx.Node)
        graph: fx.Graph = attribute_value(self.source.graph, forward).graph
        if self.differentiated and writes_in_backward(graph, attribute_value(self.source.graph, backward).graph):
            raise NotImplementedError(WRITTEN_IN_BACKWARD)
        if overwrites(self.running, graph):
            frame = place_of(self.running, self.source.paths)[1]
            raise ProgramError(_refusal_text(frame, self.running, NotImplementedError(READ_BEHIND)))
        return graph

    def call_method(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        owner, *rest = args
        if not isinstance(owner, TensorProxy):
            return getattr(owner, target)(*rest, **kwargs)
        function = getattr(torch.Tensor, target, None)
        known = LOWERED.get(function) or thunder_functions.get(function)
        method = None if function in LOWERED else getattr(owner, target, None)
        # Thunder's own method is one statement, with no fence between its computation and its write.
        whole = target in _WITHOUT_GRADIENTS and not self.differentiated
        plain = "" if function in LOWERED or whole else out_of_place_name(target)
        scaled = plain in _SCALED and not kwargs.keys().isdisjoint(("alpha", "value")) and reads_half(args)
        if plain and (getattr(torch.Tensor, plain) in LOWERED or scaled):
            return owner.copy_(self.call_method(plain, args, kwargs))
        if plain and known is None and method is None:
            # Compute from a clone. Thunder passes the operator to PyTorch, whose gradient may read the old value.
            kept = thunder_functions[torch.clone](owner)
            return owner.copy_(self.call_method(plain, (kept, *args[1:]), kwargs))
        if known is None and method is None:
            raise NotImplementedError(f"Thunder does not know torch.Tensor.{target}")
        # Autocast applies to no in-place method. An in-place method calls this method with the out-of-place name.
        if function is not None and self.running.target == target:
            args, kwargs = cast(function, args, kwargs, self.running.meta.get("example_value"))
            method = None if method is None else getattr(args[0], target)
        # Thunder's methods accept all keywords, but call functions that accept only some keywords. Normalize the
        # arguments for the method, and then for the function.
        for replacement in (known or method, thunder_functions.get(getattr(torch, target, None))):
            if replacement is not None:
                args, kwargs = normalize_arguments(target, replacement, args, kwargs)
        return method(*args[1:], **kwargs) if method is not None else self._call(function, known, args, kwargs)

    def _call(self, target: Any, replacement: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the replacement of a PyTorch function. Mark the statements if unmodified Thunder would record others."""
        begun = len(self._statements_since())
        made = replacement(*args, **kwargs)
        recorded = self._statements_since(begun)
        if (target in LOWERED or target in FOREACH) and not is_thunders_own(recorded, target, args, kwargs):
            mark(recorded, kind_of(target))
        return made

    def get_attr(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        value = super().get_attr(target, args, kwargs)
        if isinstance(value, torch.Tensor):
            return self.constants[id(value)]
        if isinstance(value, fx.GraphModule):
            # A nested region, such as a checkpointed region, has an argument for each value that it reads.
            return functools.partial(self._region, value)
        return value

    def _region(self, graph: fx.GraphModule, *args: Any) -> Any:
        inner = _Tracer(dataclasses.replace(self.source, graph=graph), args)
        return inner.run(*args)

    def _run_checkpoint(self, region: Any, *args: Any, **_: Any) -> Any:
        """Trace a region that the backward recomputes, and mark its values with `mark_recomputed`."""
        trace = get_tracectx()
        assert trace is not None
        (graph,) = region.args
        policy = saved_nodes(graph)
        inner = _Tracer(dataclasses.replace(self.source, graph=graph), args)
        trace.push_scope([])
        returned = inner.run(*args)
        inside = trace.pop_scope()
        trace.scopes[-1].extend(inside)
        mark_recomputed(inside, _names_of((args, returned)), _names_of([inner.env[node] for node in policy]))
        owned = self.aliases.results_with_own_memory(self.running)
        return tuple(
            self._in_own_memory(value) if own and shares_memory(value, inside) else value
            for value, own in zip(returned, owned, strict=True)
        )

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise NotImplementedError(f"the module {target} is not expanded in the graph")


_SCALED = frozenset(("add", "sub", "addcmul", "addcdiv"))
"""Methods that multiply by a number. Thunder's in-place method rounds the product to the type of the tensor."""

_DEFAULTS: dict[str, Any] = {"requires_grad": False, "pin_memory": False, "layout": torch.strided}
"""Keywords of PyTorch's factories, each with its default."""


class _UnsupportedNodes(_Tracer):
    """Records nodes that cannot be traced or differentiated, and continues with the next nodes."""

    def __init__(
        self, source: GraphSource, arguments: Sequence[Proxy], refusals: dict[fx.Node, str], differentiated: bool
    ) -> None:
        super().__init__(source, arguments)
        self.refusals = refusals
        self.differentiated = differentiated
        self._depth = 0
        self._under_settings = _nodes_under_settings(source.graph)

    def run_node(self, n: fx.Node) -> Any:
        trace = get_tracectx()
        assert trace is not None
        # Save the scopes. If an operator's rule raises an error, Thunder leaves the rule's unfinished scopes open.
        scopes, recorded = list(trace.scopes), len(trace.bound_symbols)
        if n in self._under_settings:
            frame = place_of(n, self.source.paths)[1]
            where = line_prefix(frame.file, frame.line)
            self.refusals[n] = f"{where}Thunder cannot trace what runs under a changed setting of PyTorch"
            return _example_proxies(n)
        self._depth += transform_change(n)
        if self._depth or _changes_pytorch(n.target):
            frame = place_of(n, self.source.paths)[1]
            where = line_prefix(frame.file, frame.line)
            self.refusals[n] = f"{where}Thunder cannot trace torch.vmap and other transforms of torch.func"
            return _example_proxies(n)
        try:
            made = super().run_node(n)
            if self.differentiated:
                self._check_gradients(n, trace.bound_symbols[recorded:])
            return made
        except RefusedNodeError as error:
            trace.scopes = scopes
            del trace.bound_symbols[recorded:]
            self.refusals[n] = str(error)
            return _example_proxies(n)

    def _check_gradients(self, n: fx.Node, statements: Sequence[BoundSymbol]) -> None:
        for bsym in statements:
            if reason := why_no_gradient(bsym):
                _refuse(place_of(n, self.source.paths)[1], n, NotImplementedError(reason))


def _strengthen_types(results: Any) -> Any:
    """Make the data types of results with dimensions strong, as in PyTorch. Return the results.

    A weak type, such as a Python number's, yields to a strong type in type promotion. Thunder leaves the type of a
    result weak if the result was made from a Python number.
    """
    for leaf in tree_iter(results):
        if isinstance(leaf, TensorProxy) and leaf.ndim:
            leaf._true_dtype = dtypes.to_strong_dtype(leaf._true_dtype)
    return results


def _plain(argument: Any) -> Any:
    """Convert FX's lists and dicts, and ranges, to plain lists and dicts, because Thunder cannot print those types."""
    if isinstance(argument, list | range):
        return [_plain(item) for item in argument]
    if isinstance(argument, dict):
        return {key: _plain(value) for key, value in argument.items()}
    return tuple(map(_plain, argument)) if type(argument) is tuple else argument


def count_checkpoints(graph: fx.GraphModule) -> int:
    """Count the regions of a graph that `torch.utils.checkpoint` recomputes in the backward."""
    return len(graph.graph.find_nodes(op="call_function", target=torch.ops.higher_order.tag_activation_checkpoint))


def _names_of(tree: Any) -> set[str]:
    return {leaf.name for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Proxy)}


@contextmanager
def _set_location(location: Location) -> Iterator[None]:
    trace = get_tracectx()
    assert trace is not None
    trace.set_current_source_location(*location)
    yield


def _has_gradient(node: fx.Node) -> bool:
    given = pytree.tree_leaves(node.meta.get("example_value"))
    return any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in given)


def _refuse(frame: Frame, node: fx.Node, error: Exception) -> NoReturn:
    raise RefusedNodeError(_refusal_text(frame, node, error), node) from error


_NO_OPERATOR = "'NoneType' object is not callable"
"""Thunder's error if a rule that expects a number, such as a size, calculates with a tensor."""


def _refusal_text(frame: Frame, node: fx.Node, error: Exception) -> str:
    behind = node
    while not frame.line and behind.op != "output":  # Dynamo inserted the node for a later node
        behind = behind.next
        frame = place_of(behind, {})[1]
    where = line_prefix(frame.file, frame.line)
    if str(error) == _NO_OPERATOR and _has_number_from_tensor(node):
        error = NotImplementedError(NUMBER_OF_TENSOR)
    reason = str(error).strip().partition("\n")[0]
    kind = "" if isinstance(error, NotImplementedError) else f"{type(error).__name__}: "
    name = name_of(node.target)
    asserted = f", {ASSERTED}" if read_line(frame.file, frame.line).startswith("assert") else ""
    within = f", {FLEXIBLE}" if "attention/flex_attention.py" in node.meta.get("stack_trace", "") else ""
    advice = remedy(f"{name}: {kind}{reason}{asserted}{within}") or (
        "write it with other operators of PyTorch, or define it with torch.library.custom_op and register_autograd"
    )
    return f"{where}Thunder cannot trace {name}: {advice} ({kind}{reason[:300]})"


def _has_number_from_tensor(node: fx.Node) -> bool:
    """Return whether a list among the arguments, such as a size, contains a tensor without dimensions."""
    given = [*node.args, *node.kwargs.values()]
    leaves = pytree.tree_leaves([value for value in given if isinstance(value, tuple | list)])
    known = [leaf.meta.get("example_value") for leaf in leaves if isinstance(leaf, fx.Node)]
    return any(isinstance(value, torch.Tensor) and value.ndim == 0 for value in known)


def name_of(target: Any) -> str:
    """Return the name that user code uses for an operator of a graph."""
    if isinstance(target, str):
        return f"torch.Tensor.{target}"
    if isinstance(target, OpOverload | OpOverloadPacket):
        return f"torch.ops.{target}".replace("::", ".")
    module, name = getattr(target, "__module__", "") or "torch", getattr(target, "__name__", str(target))
    return f"{module}.{name}"


def _example_proxies(node: fx.Node) -> Any:
    """Return proxies for the result of a node, made from Dynamo's example result; None if Thunder has no such proxy."""
    try:
        return pytree.tree_map(thunder.torch._fake_type_to_thunder, node.meta.get("example_value"))
    except Exception:  # noqa: BLE001  # without a proxy, the nodes that read this result are refused, too
        return None


def transform_change(node: fx.Node) -> int:
    """Return 1 if a node begins a `torch.func` transform, such as `torch.vmap`, -1 if it ends one, and 0 if neither."""
    if not _changes_pytorch(node.target):
        return 0
    name = getattr(node.target, "__name__", "")
    return name.endswith("_increment_nesting") - name.endswith("_decrement_nesting")


def _changes_pytorch(target: Any) -> bool:
    """Return whether a function begins or ends a `torch.func` transform, such as `torch.vmap`."""
    return str(getattr(target, "__module__", "")).startswith(("torch._functorch", "torch._C._functorch"))


_CHANGES_SETTING = re.compile(r"_?(set|enable|use)_[a-z]|(manual_)?seed(_all)?$")
_SETTINGS = ("torch", "torch._C", "torch.cuda", "torch.random", "torch.backends", "torch.autograd")


def changes_setting(node: fx.Node) -> bool:
    """Return whether a node calls a function that changes a setting of PyTorch, such as `torch.set_default_dtype`.

    Contexts for gradients, autocast and the kernels of attention do not count. Thunder has rules for the first two.
    """
    name, module = (str(getattr(node.target, which, "")) for which in ("__name__", "__module__"))
    if node.op != "call_function" or name == "_set_grad_enabled" or _CHANGES_SETTING.match(name) is None:
        return False
    return module in _SETTINGS or module.startswith(("torch.cuda.", "torch.backends."))


_SCALAR_METHODS = frozenset(
    {"amax", "amin", "astype", "item", "max", "mean", "min", "prod", "round", "std", "sum", "var"}
)
"""Functions and methods of NumPy, other than ufuncs, that return a scalar for scalars and lists of numbers."""


def is_number_of_numpy(node: fx.Node) -> bool:
    """Return whether a node computes a scalar of NumPy from numbers, so that Thunder computes it while it traces.

    NumPy's scalars cannot be written, so a node that reads a scalar may have a copy of its own. Arrays do not count,
    even arrays without dimensions. A node that may write or draw random numbers does not count, nor does a node that
    passes its result to such a node.
    """
    return (
        _computes_scalar(node)
        and all(map(is_number_of_numpy, node.all_input_nodes))
        and all(_computes_scalar(user) for user in node.users if isinstance(user.target, _OF_NUMPY))
    )


_OF_NUMPY = numpy_to_tensor_wrapper | numpy_method_wrapper | numpy_operator_wrapper


def _computes_scalar(node: fx.Node) -> bool:
    target, example = node.target, node.meta.get("example_value")
    if not isinstance(example, int | float | torch.SymInt | torch.SymFloat) and not (
        isinstance(example, torch.Tensor) and example.ndim == 0
    ):
        return False
    if "out" in node.kwargs:
        return False
    if isinstance(target, numpy_operator_wrapper):
        name = target.op.__name__
        return name != "setitem" and not (name.startswith("i") and hasattr(operator, f"__{name[1:]}__"))  # as `iadd`
    if isinstance(target, numpy_method_wrapper):
        return target.method in _SCALAR_METHODS and len(node.args) <= 2  # a third argument may be `out`
    if isinstance(target, numpy_to_tensor_wrapper):
        function = getattr(np, target.f.__name__, None)
        if isinstance(function, np.ufunc):
            return len(node.args) <= function.nin  # a further argument is `out`
        return target.f.__name__ in _SCALAR_METHODS and len(node.args) <= 2
    return False


def place_numbers(graph: fx.GraphModule) -> None:
    """Erase the numbers of NumPy that no node reads, and give each node that reads such a number a copy of its own.

    Dynamo writes the value of ``float(np.sqrt(2.0))`` into the graph, but also leaves the calls. If the graph is cut,
    a number must not be passed from one piece to another: Thunder has a number where PyTorch has a tensor.
    """
    for node in reversed(graph.graph.nodes):
        unread = node.target in (torch.sym_float, torch.sym_int) and not node.all_input_nodes
        if not unread and not is_number_of_numpy(node):
            continue
        if not node.users:
            graph.graph.erase_node(node)
            continue
        _, *more = node.users
        for user in more if is_number_of_numpy(node) else ():
            with graph.graph.inserting_before(user):
                user.replace_input_with(node, graph.graph.node_copy(node, lambda read: read))


def erase_resets_of_determinism(graph: fx.GraphModule) -> None:
    """Erase the calls that undo `torch.use_deterministic_algorithms`, which Dynamo adds at the end of a graph.

    In eager PyTorch, the setting stays as the program leaves it. Dynamo undoes each call, the last call first.
    """
    if not RESETS_DETERMINISM:
        return
    calls = [node for node in graph.graph.nodes if name_of(node.target).endswith("._set_deterministic_algorithms")]
    own, resets = calls[: len(calls) // 2], calls[len(calls) // 2 :]
    before = [node.args for node in reversed(resets)]
    if len(own) == len(resets) and before[1:] == [node.args for node in own[:-1]]:
        for node in resets:
            graph.graph.erase_node(node)


def _nodes_under_settings(graph: fx.GraphModule) -> set[fx.Node]:
    """Return the nodes of a graph that change a setting of PyTorch, and all nodes that run under a changed setting.

    The value from before the graph is unknown, because Dynamo changes the setting while it traces. If the graph sets
    several values, the last value is taken to be the value from before. If it sets only one value, the setting stays
    changed until the end of the graph.
    """
    calls = [node for node in graph.graph.nodes if changes_setting(node)]
    values: dict[str, list[Any]] = {}
    for node in calls:
        values.setdefault(name_of(node.target), []).append((node.args, node.kwargs))
    found, changed = set(calls), set[str]()
    for node in graph.graph.nodes if calls else ():
        if node in found:
            name = name_of(node.target)
            every = values[name]
            restores = (node.args, node.kwargs) == every[-1] and any(value != every[-1] for value in every)
            if restores or name.endswith(("seed", "seed_all")):
                changed.discard(name)
            else:
                changed.add(name)
        elif changed and node.op in ("call_function", "call_method"):
            found.add(node)
    return found


def _refuse_tensors(target: Any, result: Any) -> Any:
    if any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(result)):
        raise NotImplementedError(f"Thunder does not know {name_of(target)}, which makes a tensor")
    return result
