"""Patches of Dynamo, each with its reason and how to see when it can go."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import fx

from workbench.compiler.interop.double_backward import CONNECTIONS
from workbench.compiler.interop.thread_patches import ThreadPatches, function, wrapped
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
    """Let our backwards run as they are where a program that Dynamo follows calls ``loss.backward()`` itself.

    Dynamo compiles whatever Python runs between the graphs of such a program, code for autograd with it. It can go once
    the stack of a compilation by Dynamo in such a program never holds ``torch_autograd.py``.
    """
    for kind in CONNECTIONS:
        if not hasattr(kind.backward, "_torchdynamo_orig_callable"):
            kind.backward = staticmethod(torch.compiler.disable(kind.backward))


def _global_names(stock: Any, self: Any, name: str) -> Any:
    names = self.f_globals
    module = sys.modules.get(str(names.get("__name__", "")))
    if module is None or vars(module) is names:
        return stock(self, name)
    # As it does for a function that names no module.
    source = GlobalSource(self.output.install_global_by_id("___unnamed_scope", names))
    return names, VariableBuilder(self, source)(names), DictGetItemSource(source, name)


global_names_of_functions = ThreadPatches(
    "global names", lambda: [wrapped(InliningInstructionTranslator, "get_globals_source_and_value", _global_names)]
)
"""Inside, Dynamo looks up the global names of a function in the function's own, not in a module called the same.

Of a function of a script or a notebook that came here from another process, the module is ``__main__``, which is
another one here. It can go once ``get_globals_source_and_value`` compares the module's names with the function's.
"""


def _settings_without_functions(stock: Any) -> str | None:
    # Dynamo compiles in one thread at a time, and this is where it ends.
    with dynamo_config.patch(ignore_logger_methods=set()):
        settings: str | None = stock()
    return settings


settings_told_without_functions = ThreadPatches(
    "settings", lambda: [wrapped(dynamo_utils, "_get_dynamo_config_for_logging", _settings_without_functions)]
)
"""Inside, what Dynamo notes of its settings for each compilation has no functions, which PyTorch 2.11 would sort.

It would log a TypeError of its own for what compiles, and for what does not in place of the reason. It can go once
``_get_dynamo_config_for_logging`` leaves out ``ignore_logging_functions``, as it does the setting's former name.
"""

graph_breaks_in_loops = ThreadPatches(
    "loops", lambda: [function(InstructionTranslatorBase, "maybe_has_backedge", lambda self: False)]
)
"""Inside, Dynamo goes on behind a graph break in a loop, in a graph for each time around.

It would give up the whole function, and of a training step that takes a backward for each micro-batch would compile no
more than the optimizer. It can go once Dynamo has an option for it.
"""


class DynamoWatcher(Protocol):
    """Told what Dynamo does while it traces."""

    def called(self, var: Any, tx: Any, args: Sequence[Any], kwargs: dict[str, Any], call: Callable[..., Any]) -> Any:
        """A module is called: what comes of it, as `call` finds it or otherwise."""

    def changed(self, item: Any) -> None:
        """One of its variables is changed."""

    def read_changed(self, item: Any) -> None:
        """An attribute is read that was set while it traced."""

    def renamed(self, node: fx.Node, name: str) -> None:
        """A node gets the name of the variable that a person's code puts it into."""


def _reported(told: Callable[[DynamoWatcher, Any, Any], None]) -> Callable[..., Any]:
    def method(stock: Any, self: Any, item: Any, *args: Any, **kwargs: Any) -> Any:
        told(dynamo_watched.value, self, item)
        return stock(self, item, *args, **kwargs)

    return method


def _call_module(stock: Any, self: Any, tx: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return dynamo_watched.value.called(self, tx, args, kwargs, stock)


dynamo_watched = ThreadPatches(
    "Dynamo watched",
    lambda: [
        wrapped(UnspecializedNNModuleVariable, "call_function", _call_module),
        wrapped(SideEffects, "check_allowed_side_effect", _reported(lambda watcher, _, item: watcher.changed(item))),
        wrapped(SideEffects, "load_attr", _reported(lambda watcher, _, item: watcher.read_changed(item))),
        wrapped(fx.Node, "_rename", _reported(lambda watcher, node, name: watcher.renamed(node, name))),
    ],
)
"""Inside, a `DynamoWatcher` is told what Dynamo does in this thread, and stands in for it where a module is called.

It can go once Dynamo traces like modules once; see `compiler.frontend.module_reuse`.
"""
