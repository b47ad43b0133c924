"""Patches of Dynamo, each with its reason and the condition for its removal."""

from __future__ import annotations

import functools
import operator
import re
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from types import CodeType, FunctionType
from typing import Any, Protocol

import torch
from torch import fx
from torch.utils.checkpoint import checkpoint_sequential

from workbench.compiler.interop.double_backward import CONNECTIONS
from workbench.compiler.interop.thread_patches import (
    PatchTarget,
    ThreadPatches,
    dispatch_by_thread,
    replace_function,
    wrap_function,
)
from workbench.interop.torch_private import (
    HASH_METHOD,
    BuiltinVariable,
    CheckpointHigherOrderVariable,
    ConstantVariable,
    ConstDictVariable,
    DictGetItemSource,
    FakeTensorMode,
    GlobalSource,
    GuardBuilder,
    InliningInstructionTranslator,
    InstructionTranslatorBase,
    LocalGeneratorObjectVariable,
    RandomVariable,
    SetVariable,
    SideEffects,
    SkipFunctionVariable,
    TensorVariable,
    TorchInGraphFunctionVariable,
    TorchRuntimeError,
    UnspecializedNNModuleVariable,
    Unsupported,
    UserDefinedObjectVariable,
    UserFunctionVariable,
    UserMethodVariable,
    VariableBuilder,
    VariableTracker,
    _WrappedCall,
    compare_op_handlers,
    dynamo_builder,
    dynamo_config,
    dynamo_functions,
    dynamo_utils,
    install_guard,
    tree_iter,
)

PROGRAM_FILE = "<workbench>"
"""File name of the code objects with which the workbench calls a program, and of functions that Dynamo must trace."""


def run_backward_outside_dynamo() -> None:
    """Exclude Thunder's compiled backwards from Dynamo, for programs that call ``loss.backward()`` themselves.

    Dynamo compiles all Python code between the graphs of such a program, including the Python code that autograd
    calls. Remove this when Dynamo no longer compiles functions of Thunder's ``torch_autograd.py`` in such a program.
    """
    for kind in CONNECTIONS:
        if not hasattr(kind.backward, "_torchdynamo_orig_callable"):
            kind.backward = staticmethod(torch.compiler.disable(kind.backward))


def _global_names(stock: Any, self: Any, name: str) -> Any:
    names = self.f_globals
    module = sys.modules.get(str(names.get("__name__", "")))
    if module is None or vars(module) is names:
        return stock(self, name)
    # Unpatched Dynamo does the same for a function whose globals contain no module name.
    source = GlobalSource(self.output.install_global_by_id("___unnamed_scope", names))
    return names, VariableBuilder(self, source)(names), DictGetItemSource(source, name)


global_names_of_functions = ThreadPatches(
    "global names",
    lambda: [wrap_function(InliningInstructionTranslator, "get_globals_source_and_value", _global_names)],
)
"""Make Dynamo look up global names in a function's own globals, even if ``__name__`` in these globals names a module.

A function of a script or notebook may come from a different process. In the globals of such a function, ``__name__`` is
``__main__``, but ``__main__`` of this process is a different module. Remove this when ``get_globals_source_and_value``
uses the module only if the module's globals are the function's globals.
"""


# The operator `imatmul` is missing: for tensors, it is not in place.
_IN_PLACE_NAMES = frozenset(
    {"iadd", "iand", "ifloordiv", "ilshift", "imod", "imul", "ior", "ipow", "irshift", "isub", "itruediv", "ixor"}
)
_IN_PLACE = frozenset(getattr(operator, name) for name in _IN_PLACE_NAMES)
_METHODS_IN_PLACE = frozenset(f"__{name}__" for name in _IN_PLACE_NAMES)


def _keep_written(made: Any, written: Any) -> Any:
    """Return the variable `written` of the tensor that a call wrote, if the result `made` can only be this tensor."""
    written = written.realize() if written is not None else None
    if not isinstance(written, TensorVariable) or not isinstance(made, TensorVariable) or written.source is None:
        return made
    # The write may begin a history. Methods such as `t_` change the shape or strides.
    same = all(getattr(written, each) == getattr(made, each) for each in _KEPT)
    return written if same else made


_KEPT = ("requires_grad", "dtype", "device", "_size", "stride")


def _is_in_place(name: str) -> bool:
    return name in _METHODS_IN_PLACE or (name.endswith("_") and not name.endswith("__"))


def _call_operator(stock: Any, self: Any, tx: Any, args: Sequence[Any], kwargs: Any) -> Any:
    made = stock(self, tx, args, kwargs)
    return _keep_written(made, args[0]) if self.fn in _IN_PLACE else made


def _call_tensor_method(stock: Any, self: Any, tx: Any, name: str, args: Sequence[Any], kwargs: Any) -> Any:
    made = stock(self, tx, name, args, kwargs)
    return _keep_written(made, self) if _is_in_place(name) else made


def _call_torch_function(stock: Any, self: Any, tx: Any, args: Sequence[Any], kwargs: Any) -> Any:
    made = stock(self, tx, args, kwargs)
    if "out" in kwargs:
        return _keep_written(made, kwargs["out"])
    in_place = _is_in_place(getattr(self.value, "__name__", "")) or (
        "inplace" in kwargs and kwargs["inplace"].is_python_constant() and kwargs["inplace"].as_python_constant()
    )
    return _keep_written(made, next(iter((*args, *kwargs.values())), None)) if in_place else made


written_tensors_kept = ThreadPatches(
    "written tensors",
    lambda: [
        wrap_function(BuiltinVariable, "call_function", _call_operator),
        wrap_function(TensorVariable, "call_method", _call_tensor_method),
        wrap_function(TorchInGraphFunctionVariable, "call_function", _call_torch_function),
    ],
)
"""Make Dynamo know that a write returns the written tensor: ``p -= x``, ``p.sub_(x)``, ``torch.sub(p, x, out=p)``.

Dynamo takes the result for a new tensor. It therefore forgets ``parameter.grad = None`` behind ``parameter -= x``, so
that the next backward adds to the old gradient. Remove this when Dynamo returns the written tensor itself.
"""


def _settings_without_functions(stock: Any) -> str | None:
    # The changed setting affects no compilation: Dynamo compiles in one thread at a time, and calls `stock` at the end
    # of a compilation.
    with dynamo_config.patch(ignore_logger_methods=set()):
        settings: str | None = stock()
    return settings


settings_told_without_functions = ThreadPatches(
    "settings", lambda: [wrap_function(dynamo_utils, "_get_dynamo_config_for_logging", _settings_without_functions)]
)
"""Exclude the setting `ignore_logger_methods` from the settings that Dynamo logs for each compilation.

To log a setting that is a set, PyTorch 2.11 sorts the set. This setting is a set of functions, and sorting functions
raises a TypeError. Dynamo would log this error for every compilation. For a failed compilation, Dynamo would log this
error instead of the reason. In PyTorch 2.11, the setting is called ``ignore_logging_functions``. Remove this when
``_get_dynamo_config_for_logging`` excludes the new name, as it excludes the old name.
"""


class _OwnIterators(threading.local):
    """The `id` of each iterator that only one generator uses, while Dynamo runs this generator to its end."""

    ids: frozenset[int] = frozenset()


_own_iterators = _OwnIterators()


def _exhaust_generator(stock: Any, self: Any, codegen: Any) -> Any:
    frame, before = self.inline_tracer, _own_iterators.ids
    # If an iterator on the generator's stack is not one of its variables, it belongs to a `for` loop of the generator.
    named = {id(value.realize()) for value in frame.symbolic_locals.values()}
    _own_iterators.ids = frozenset(id(value) for value in frame.stack) - named
    try:
        return stock(self, codegen)
    finally:
        _own_iterators.ids = before


def _allow_own_iterators(stock: Any, self: Any, item: Any) -> Any:
    return id(item) in _own_iterators.ids or stock(self, item)


graph_breaks_in_loops = ThreadPatches(
    "loops",
    lambda: [
        replace_function(InstructionTranslatorBase, "maybe_has_backedge", lambda self: False),
        wrap_function(LocalGeneratorObjectVariable, "reconstruct", _exhaust_generator),
        wrap_function(SideEffects, "check_allowed_side_effect", _allow_own_iterators),
    ],
)
"""Make Dynamo continue after a graph break in a loop, with one graph for each iteration.

Unpatched Dynamo does not compile a function with a graph break in a loop. In a training step with several
micro-batches, Dynamo would compile only the optimizer. At the break, Dynamo runs a generator, such as
``enumerate(layers)``, to its end. Unpatched Dynamo refuses to run a generator that would advance an iterator. These
patches allow such a run if no other code can read the iterator. Remove this when Dynamo has an option for such loops.
"""


def _break_where_it_fails(stock: Any, node: fx.Node, *args: Any, **kwargs: Any) -> Any:
    try:
        return stock(node, *args, **kwargs)
    except TorchRuntimeError as error:
        raise Unsupported(str(error)) from error


graph_breaks_at_failures = ThreadPatches(
    "failures", lambda: [wrap_function(dynamo_builder, "get_fake_value", _break_where_it_fails)]
)
"""Make Dynamo break the graph at an operator that fails on fake tensors, and run this operator uncompiled.

An example is ``pad_packed_sequence``. Unpatched Dynamo runs the whole function uncompiled, including all operators
before and after the failing operator. Remove this when Dynamo has an option for such operators.
"""


def has_unknown_sizes(made: Any) -> bool:
    """Return whether fake tensors in `made` have a size that depends on values of other tensors."""
    tensors = (each for each in tree_iter(made) if isinstance(each, torch.Tensor))
    return any(isinstance(size, torch.SymInt) for each in tensors for size in each.shape)


def _refuse_unknown_size(stock: Any, node: fx.Node, *args: Any, **kwargs: Any) -> Any:
    made = stock(node, *args, **kwargs)
    if has_unknown_sizes(made):
        given = [read.meta.get("example_value") for read in node.all_input_nodes]
        if not has_unknown_sizes(given) and not any(isinstance(each, torch.SymInt) for each in given):
            raise Unsupported(f"{UNKNOWN_SIZE}{unknown_sizes_refused.value(node.target)}")
    return made


UNKNOWN_SIZE = "Dynamic shape operator: "
"""Beginning of Dynamo's error at an operator whose result has an unknown size. The operator's name follows."""

unknown_sizes_refused = ThreadPatches(
    "unknown sizes", lambda: [wrap_function(dynamo_builder, "get_fake_value", _refuse_unknown_size)]
)
"""Make Dynamo stop at an operator with a result whose size depends on values, such as ``torch.nonzero``.

The value of the context is a function that returns the name of an operator. Thunder has no such operator. If a program
must be one graph, unpatched Dynamo traces the program to its end, and only then would Thunder refuse the graph. Remove
this when Thunder has such operators.
"""


def _disable_dynamo(stock: Any, patches: ThreadPatches) -> Any:
    return torch.compiler.disable(dispatch_by_thread(stock, stock, patches))


fake_operators_uncompiled = ThreadPatches(
    "fake operators", lambda: [PatchTarget(FakeTensorMode, "__torch_dispatch__", _disable_dynamo)]
)
"""Exclude the Python code of fake tensors from Dynamo.

Between two graphs, an operator on fake tensors calls functions of Python's standard library. Unpatched Dynamo compiles
these functions, and warns about functions that it does not support. Remove this when Dynamo skips all functions that
`FakeTensorMode` calls.
"""


def _install_hooks(stock: Any, self: Any, tx: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if getattr(self.fn, "__name__", "") == _INSTALL and self.fn.__module__ == _HOOKS and len(args) == 1:
        model = getattr(args[0].realize(), "value", None)
        if isinstance(model, torch.nn.Module):
            self.fn(model)
            return ConstantVariable.create(None)
    return stock(self, tx, args, kwargs)


_HOOKS, _INSTALL = "transformers.utils.output_capturing", "maybe_install_capturing_hooks"

hooks_installed_when_traced = ThreadPatches(
    "hooks of outputs", lambda: [wrap_function(UserFunctionVariable, "call_function", _install_hooks)]
)
"""Make Dynamo install the hooks of a Hugging Face model that returns hidden states, and not trace the installation.

Such a model installs its hooks in its first call, while it holds a lock. Dynamo cannot trace locks. Unpatched Dynamo
breaks the graph there, but only in the first call: a model that was called before would have other graphs. Remove this
when Dynamo traces locks, or when the model installs these hooks when it is built.
"""


class NumbersOfCalls:
    """The first value of each number that a program reads, and the numbers that must stay constants.

    Each number has a key that is the same in all graphs of a program.

    Attributes
    ----------
    changed : dict
        Maps Dynamo's name of each changed number to its key. In the next graph, another number may have this name.
    """

    def __init__(self) -> None:
        self.changed: dict[str, tuple[int, str]] = {}
        self._first: dict[tuple[int, str], tuple[float, Any]] = {}
        self._constant: set[tuple[int, str]] = set()

    def has_changed(self, builder: Any, value: float) -> bool:
        """Return whether a number that Dynamo reads differs from its first value."""
        owner = _owner_of(builder)
        if owner is None:
            return False
        held, name = owner
        key = (id(held), name)
        # Keep the owner of the number, so that its id stays its own.
        first, _ = self._first.setdefault(key, (value, held))
        if first == value or key in self._constant:
            return False
        self.changed[builder.name] = key
        return True

    def keep_constant(self, names: Iterable[str]) -> None:
        """Make numbers constants of further graphs. A name is Dynamo's name in the graph that it compiles now."""
        self._constant.update(self.changed[name] for name in names)


def _owner_of(builder: Any) -> tuple[Any, str] | None:
    """Return the object that holds a number, and the number's name in it; None for a number that is always a constant.

    The object is a module, the group of an optimizer's options, or the code of a function for its arguments. Numbers of
    other objects are constants, because Dynamo may read an equal name from another object in another call.
    """
    graph = builder.tx.output
    code = graph.root_tx.f_code
    if code.co_filename == PROGRAM_FILE and re.match(r"L\['k?w?args'\]\[", builder.name):
        return code, builder.name
    found = re.fullmatch(r"(.+)(\.\w+|\[[^\[\]]+\])", builder.name)
    if found is not None:
        try:
            base = eval(found[1], dict(graph.global_scope), {"L": graph.local_scope, "G": graph.global_scope})
        except Exception:  # noqa: BLE001  # the name may read names that exist only in guards
            base = None
        if isinstance(base, torch.nn.Module) or re.search(r"\.param_groups\[\d+\]$", found[1]):
            return base, found[2]
    # If Dynamo breaks the graph in the step of an optimizer, a function such as `sgd` has the option as an argument.
    return None if torch.is_grad_enabled() else (code, builder.name)


def _wrap_number(stock: Any, self: Any, value: Any) -> Any:
    kind = type(value)
    if (kind is not int and kind is not float) or not changed_numbers_as_inputs.value.has_changed(self, value):
        return stock(self, value)
    with dynamo_config.patch(assume_static_by_default=False):
        return self.wrap_symint(value) if kind is int else stock(self, value)


changed_numbers_as_inputs = ThreadPatches(
    "changed numbers", lambda: [wrap_function(VariableBuilder, "_wrap", _wrap_number)]
)
"""Make Dynamo pass a number to a graph if the number has changed, such as a learning rate or a counter on a module.

The context's argument is a `NumbersOfCalls`. The workbench compiles with ``dynamic=False``, because plans need constant
shapes. Numbers are then constants, too, and a program with a number that changes in each step would be compiled in each
step. Remove this when Dynamo has an option for numbers alone.
"""


def _wrap_module(stock: Any, self: Any, value: torch.nn.Module) -> Any:
    if not isinstance(value, torch.jit.ScriptModule):
        return stock(self, value)
    install_guard(self.get_source().make_guard(GuardBuilder.ID_MATCH))
    return SkipFunctionVariable(value, source=self.source)


torchscript_called = ThreadPatches("TorchScript", lambda: [wrap_function(VariableBuilder, "wrap_module", _wrap_module)])
"""Make Dynamo break the graph at the call of a TorchScript module, and trace the code around it.

Unpatched Dynamo breaks where the module is read, so that it traces nothing of the function that reads it. The patch of
calls in `checkpoints_traced` gives the reason. Remove both when Dynamo breaks at the call.
"""


def _refuse_own_draw(stock: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    if self.source is not None:
        raise Unsupported("the program uses a random.Random that was made before the call")
    return stock(self, *args, **kwargs)


own_generators_uncompiled = ThreadPatches(
    "own generators", lambda: [wrap_function(RandomVariable, "call_method", _refuse_own_draw)]
)
"""Make Dynamo break the graph where a program draws numbers from its own `random.Random`.

Unpatched Dynamo stores the generator's state of the first call in the compiled code, and does not guard it: each call
draws the numbers of the first call. Remove this when Dynamo reads the state in each call.
"""


def _call_checkpoint(stock: Any, self: Any, tx: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    reentrant = kwargs.get("use_reentrant")
    if torch.is_grad_enabled() and (reentrant is None or reentrant.as_python_constant() is not False):
        given = [each.realize() for each in args[1:]]
        if not any(isinstance(each, TensorVariable) and each.requires_grad for each in given):
            raise Unsupported("torch.utils.checkpoint has use_reentrant=True, and no input that requires a gradient")
    return stock(self, tx, args, kwargs)


def _call_skipped(stock: Any, self: Any, tx: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if self.value is checkpoint_sequential:
        return tx.inline_user_function_return(VariableTracker.build(tx, _traced_sequence), args, kwargs)
    if isinstance(self.value, torch.jit.ScriptModule):
        raise Unsupported("the program calls a TorchScript module")
    return stock(self, tx, args, kwargs)


def _in_no_file(code: CodeType) -> CodeType:
    """Return the code of a function and its inner functions without PyTorch's file, because Dynamo skips this file."""
    constants = tuple(_in_no_file(each) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_filename=PROGRAM_FILE, co_consts=constants)


_traced_sequence = FunctionType(
    _in_no_file(checkpoint_sequential.__code__),
    checkpoint_sequential.__globals__,
    checkpoint_sequential.__name__,
    checkpoint_sequential.__defaults__,
)

checkpoints_traced = ThreadPatches(
    "checkpoints",
    lambda: [
        wrap_function(CheckpointHigherOrderVariable, "_call_function", _call_checkpoint),
        wrap_function(SkipFunctionVariable, "call_function", _call_skipped),
    ],
)
"""Make Dynamo trace ``checkpoint_sequential``, and break the graph at some reentrant checkpoints.

The second patch also gives the reason at the call of a TorchScript module; see `torchscript_called`.

If no input of a reentrant checkpoint requires a gradient, PyTorch gives no gradient to the parameters inside. Unpatched
Dynamo traces each checkpoint as if it were not reentrant, so these parameters would get gradients. Remove the first
patch when Dynamo breaks the graph there, and the second when Dynamo traces ``checkpoint_sequential``.
"""


def _scaled_in_place(stock: Any, self: Any, *operands: Any, **scale: Any) -> Any:
    numbers = [each for each in scale.values() if each is not None and not isinstance(each, TensorVariable)]
    halves = [each for each in operands if isinstance(each, TensorVariable) and each.dtype in _HALF]
    if numbers and halves:
        return None  # Dynamo then records the method as it is
    return stock(self, *operands, **scale)


def _lerp_of_lists(stock: Any, self: Any, tx: Any, tensors: Any, end: Any, weight: Any, **kwargs: Any) -> Any:
    if not isinstance(weight, TensorVariable) and any(each.dtype in _HALF for each in tensors.realize().items):
        return None  # as above
    return stock(self, tx, tensors, end, weight, **kwargs)


_HALF = (torch.float16, torch.bfloat16)
_LERP_OF_LISTS = getattr(torch, "_foreach_lerp_")  # noqa: B009  # private

products_not_rounded = ThreadPatches(
    "products",
    lambda: (
        [
            wrap_function(TensorVariable, name, _scaled_in_place)
            for name in ("method_add_", "method_addcmul_", "method_addcdiv_")
        ]
        + [wrap_function(TorchInGraphFunctionVariable._get_handlers(), _LERP_OF_LISTS, _lerp_of_lists)]
    ),
)
"""Make Dynamo record ``a.add_(b, alpha=2.5)`` as one operator if `b` is float16 or bfloat16.

Unpatched Dynamo records a product and a sum. The product is rounded to the type of `b`, but PyTorch's kernel does not
round it. The same holds for ``addcmul_`` and ``addcdiv_`` with a value, and for the ``_foreach_lerp_`` of Adam. Remove
this when Dynamo decomposes them in float32.
"""


def _guard_of_same_object(stock: Any, source: Any, known: Any) -> Any:
    guard = stock(source, known)
    if guard is None and known and known != source:
        return functools.partial(GuardBuilder.DUPLICATE_INPUT, source_b=known)
    return guard


def _guard_of_absent_key(stock: Any, self: Any, tx: Any, args: Sequence[Any]) -> None:
    stock(self, tx, args)
    key = args[0]
    if not self.source or not key.source or key.is_python_constant():
        return
    # The traced code may have added or removed the key. A guard asks for the keys before the call.
    original = ConstDictVariable(self.original_items)
    if key not in original:
        install_guard(self.make_guard(functools.partial(_absent, key=key.source)))
    for added in (each.vt for each in self.items):
        if added not in original and added is not key:
            _guard_difference(added, key)


def _guard_difference(one: Any, other: Any) -> None:
    """Guard that two objects of Dynamo's variables are different objects, as they are now."""
    one, other = one.realize(), other.realize()
    for each in (one, other):
        # Dynamo guards which function or constant a name means. The traced code makes objects without a source.
        if isinstance(each, UserFunctionVariable) or each.is_python_constant() or each.source is None:
            return
    if one.source != other.source and not one.source.is_ephemeral() and not other.source.is_ephemeral():
        install_guard(one.make_guard(functools.partial(_different, other=other.source)))


def _different(builder: Any, guard: Any, other: Any) -> None:
    condition = f"{builder.arg_ref(guard)} is not {builder.arg_ref(other.name)}"
    builder.object_aliasing_guard_codes.append((condition, condition))


def _is_same(stock: Any, tx: Any, args: Sequence[Any], kwargs: dict[str, Any], *, same: bool = True) -> Any:
    result = stock(tx, args, kwargs)
    if result.is_python_constant() and result.as_python_constant() is not same:
        _guard_difference(*args)
    return result


def _refuse_method_as_key(stock: Any, self: Any) -> Any:
    if isinstance(self, UserMethodVariable):
        raise Unsupported("a bound method is the key of a dictionary or set")
    return stock(self)


def _refuse_equal_methods(stock: Any, tx: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    result = stock(tx, args, kwargs)  # this call also reads arguments that Dynamo has not read yet
    if all(isinstance(each.unwrap(), UserMethodVariable) for each in args):
        raise Unsupported("the program compares bound methods")
    return result


def _absent(builder: Any, guard: Any, key: Any) -> None:
    condition = f"{builder.arg_ref(key.name)} not in {builder.arg_ref(guard)}"
    builder.object_aliasing_guard_codes.append((condition, condition))


same_objects_guarded = ThreadPatches(
    "same objects",
    lambda: [
        wrap_function(dynamo_builder, "make_dupe_guard", _guard_of_same_object),
        wrap_function(ConstDictVariable, "install_dict_contains_guard", _guard_of_absent_key),
        wrap_function(UserFunctionVariable, HASH_METHOD, _refuse_method_as_key),
        *(wrap_function(compare_op_handlers, name, _refuse_equal_methods) for name in ("==", "!=")),
        wrap_function(compare_op_handlers, "is", _is_same),
        wrap_function(compare_op_handlers, "is not", functools.partial(_is_same, same=False)),
        *(
            [wrap_function(SetVariable, "install_set_contains_guard", _guard_of_absent_key)]
            if hasattr(SetVariable, "install_set_contains_guard")
            else []  # before PyTorch 2.12, sets are dictionaries to Dynamo
        ),
    ],
)
"""Make Dynamo guard which keys of a dictionary or set an object is, and that two names are the same object.

Dynamo knows an object by the name under which it first read it. Unpatched Dynamo guards that two names are the same
object only if both are arguments or both are global. A function that finds a parameter in a global dictionary, as in
``optimizers[parameter].step()``, would train the first parameter in each call. Unpatched Dynamo also does not guard
that an object is not in a dictionary, as in ``if parameter in frozen``, or that two objects differ, as in ``if module
is not last``. It takes a method of all objects of a class for one key. Remove the first patch when
``make_dupe_guard`` makes a guard for each two names, the second when ``install_dict_contains_guard`` guards absent
objects, the third when the hash of a bound method depends on its object, and the last two when Dynamo guards a false
``is``.
"""


def _call_graph(self: Any, graph: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
    if self.cls_call is not None:
        return self.cls_call(graph, *args, **kwargs)
    return super(self.cls, graph).__call__(*args, **kwargs)


plain_graph_errors = ThreadPatches(
    "errors of graphs", lambda: [replace_function(_WrappedCall, "__call__", _call_graph)]
)
"""Make FX not print the lines around an operator that fails in the call of a graph.

When Thunder refuses an operator of a graph, its interpreter would also interpret the code of Python's standard library
that collects and prints these lines, which takes a minute. Remove this when the interpreter does not.
"""


class DynamoWatcher(Protocol):
    """An object that receives events while Dynamo traces. `dynamo_watched` takes such an object as its argument."""

    def on_call(self, var: Any, tx: Any, args: Sequence[Any], kwargs: dict[str, Any], call: Callable[..., Any]) -> Any:
        """Return the result of a call of the module `var`. Dynamo's own function for such calls is `call`."""

    def on_change(self, item: Any) -> None:
        """Handle the event that the traced code changes the object of Dynamo's variable `item`."""

    def on_changed_read(self, item: Any) -> None:
        """Handle the event that the traced code reads an attribute of `item` that the traced code has set before."""

    def on_identity(self, item: Any) -> None:
        """Handle the event that the traced code compares, hashes or takes the id of the object of `item`."""

    def on_unguarded(self, holder: Any) -> None:
        """Handle the event that Dynamo runs a method of `holder` instead of tracing it, and guards nothing it reads."""

    def on_rename(self, node: fx.Node, name: str) -> None:
        """Handle the event that Dynamo renames `node` to `name`, the name of a variable in the user's code."""


def _report_to(notify: Callable[[DynamoWatcher, Any, Any], None]) -> Callable[..., Any]:
    def method(stock: Any, self: Any, item: Any, *args: Any, **kwargs: Any) -> Any:
        notify(dynamo_watched.value, self, item)
        return stock(self, item, *args, **kwargs)

    return method


def _call_module(stock: Any, self: Any, tx: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return dynamo_watched.value.on_call(self, tx, args, kwargs, stock)


_COMPARISONS = {"is": operator.is_, "is not": operator.is_not, "==": operator.eq, "!=": operator.ne}
_BY_IDENTITY = (*_COMPARISONS.values(), operator.contains, id)


def _report_identities(function: Any, args: Sequence[Any]) -> None:
    if any(isinstance(item.unwrap(), ConstantVariable) for item in args):
        return  # for example a comparison with None
    for item in args:
        # The operator `==` compares tensors by value.
        if function not in (operator.eq, operator.ne) or not isinstance(item, TensorVariable):
            dynamo_watched.value.on_identity(item)


def _call_builtin(stock: Any, self: Any, tx: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    result = stock(self, tx, args, kwargs)  # this call also reads arguments that Dynamo has not read yet
    if self.fn in _BY_IDENTITY:
        _report_identities(self.fn, args)
    return result


def _compare(function: Any) -> Callable[..., Any]:
    def compare(stock: Any, tx: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        result = stock(tx, args, kwargs)
        _report_identities(function, args)
        return result

    return compare


def _hash_variable(stock: Any, self: Any, *given: Any) -> Any:
    dynamo_watched.value.on_identity(self)
    return stock(self, *given)


def _call_unguarded(stock: Any, tx: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
    dynamo_watched.value.on_unguarded(getattr(function, "__self__", None))
    return stock(tx, function, *args, **kwargs)


dynamo_watched = ThreadPatches(
    "Dynamo watched",
    lambda: [
        wrap_function(UnspecializedNNModuleVariable, "call_function", _call_module),
        wrap_function(BuiltinVariable, "call_function", _call_builtin),
        # Dynamo calls these handlers for operators, and `BuiltinVariable.call_function` for functions.
        *(wrap_function(compare_op_handlers, name, _compare(function)) for name, function in _COMPARISONS.items()),
        wrap_function(UserDefinedObjectVariable, HASH_METHOD, _hash_variable),
        wrap_function(TensorVariable, HASH_METHOD, _hash_variable),
        wrap_function(dynamo_functions, "invoke_and_store_as_constant", _call_unguarded),
        wrap_function(
            SideEffects, "check_allowed_side_effect", _report_to(lambda watcher, _, item: watcher.on_change(item))
        ),
        wrap_function(SideEffects, "load_attr", _report_to(lambda watcher, _, item: watcher.on_changed_read(item))),
        wrap_function(fx.Node, "_rename", _report_to(lambda watcher, node, name: watcher.on_rename(node, name))),
    ],
)
"""Send the events of Dynamo in this thread to a `DynamoWatcher`, which can also replace module calls.

Remove this when Dynamo traces several equal modules only once; see `compiler.frontend.module_reuse`.
"""
