"""Patches of Dynamo, each with its reason and the condition for its removal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import fx

from workbench.compiler.interop.double_backward import CONNECTIONS
from workbench.compiler.interop.thread_patches import ThreadPatches, replace_function, wrap_function
from workbench.interop.torch_private import (
    DictGetItemSource,
    GlobalSource,
    InliningInstructionTranslator,
    InstructionTranslatorBase,
    SideEffects,
    UnspecializedNNModuleVariable,
    VariableBuilder,
    dynamo_config,
    dynamo_utils,
)


def run_backward_outside_dynamo() -> None:
    """Exclude the workbench's backwards from Dynamo, for programs that call ``loss.backward()`` themselves.

    Dynamo compiles all Python code between the graphs of such a program, including the Python code that autograd
    calls. Remove this when Dynamo no longer compiles functions of ``torch_autograd.py`` in such a program.
    """
    for kind in CONNECTIONS:
        if not hasattr(kind.backward, "_torchdynamo_orig_callable"):
            kind.backward = staticmethod(torch.compiler.disable(kind.backward))


def _global_names(stock: Any, self: Any, name: str) -> Any:
    names = self.f_globals
    module = sys.modules.get(str(names.get("__name__", "")))
    if module is None or vars(module) is names:
        return stock(self, name)
    # Dynamo itself uses this code for a function whose globals contain no module name.
    source = GlobalSource(self.output.install_global_by_id("___unnamed_scope", names))
    return names, VariableBuilder(self, source)(names), DictGetItemSource(source, name)


global_names_of_functions = ThreadPatches(
    "global names",
    lambda: [wrap_function(InliningInstructionTranslator, "get_globals_source_and_value", _global_names)],
)
"""Make Dynamo look up global names in the function's own globals, not in the module that the globals name.

A function of a script or notebook may come from a different process. Its globals name the module ``__main__``, but
``__main__`` of this process is a different module. Remove this when ``get_globals_source_and_value`` uses the
module only if the module's globals are the function's globals.
"""


def _settings_without_functions(stock: Any) -> str | None:
    # Changing the settings is safe: Dynamo compiles in one thread at a time, and a compilation ends here.
    with dynamo_config.patch(ignore_logger_methods=set()):
        settings: str | None = stock()
    return settings


settings_told_without_functions = ThreadPatches(
    "settings", lambda: [wrap_function(dynamo_utils, "_get_dynamo_config_for_logging", _settings_without_functions)]
)
"""Exclude functions from the settings that Dynamo logs for each compilation.

PyTorch 2.11 sorts the values of a setting, and sorting functions raises a TypeError. Dynamo would log this error for
every compilation; for a failed compilation, it would log this error instead of the reason. Remove this when
``_get_dynamo_config_for_logging`` excludes ``ignore_logging_functions``, as it excludes the former name of this
setting.
"""

graph_breaks_in_loops = ThreadPatches(
    "loops", lambda: [replace_function(InstructionTranslatorBase, "maybe_has_backedge", lambda self: False)]
)
"""Make Dynamo continue after a graph break in a loop, with one graph for each iteration.

Unpatched Dynamo does not compile a function with a graph break in a loop. In a training step with several
micro-batches, Dynamo would compile only the optimizer. Remove this when Dynamo has an option for such loops.
"""


class DynamoWatcher(Protocol):
    """Receives the events of `dynamo_watched` while Dynamo traces."""

    def on_call(self, var: Any, tx: Any, args: Sequence[Any], kwargs: dict[str, Any], call: Callable[..., Any]) -> Any:
        """Return the result of a module call; `call` is Dynamo's own function for it."""

    def on_change(self, item: Any) -> None:
        """Handle a change of one of Dynamo's variables."""

    def on_changed_read(self, item: Any) -> None:
        """Handle a read of an attribute that the traced code has set."""

    def on_rename(self, node: fx.Node, name: str) -> None:
        """Handle that `node` gets the new name `name`, which is a variable of the user's code."""


def _report_to(notify: Callable[[DynamoWatcher, Any, Any], None]) -> Callable[..., Any]:
    def method(stock: Any, self: Any, item: Any, *args: Any, **kwargs: Any) -> Any:
        notify(dynamo_watched.value, self, item)
        return stock(self, item, *args, **kwargs)

    return method


def _call_module(stock: Any, self: Any, tx: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return dynamo_watched.value.on_call(self, tx, args, kwargs, stock)


dynamo_watched = ThreadPatches(
    "Dynamo watched",
    lambda: [
        wrap_function(UnspecializedNNModuleVariable, "call_function", _call_module),
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
