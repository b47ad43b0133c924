"""Executors and gradient rules of the workbench's statements, outside of Thunder's registries.

Thunder's registries are process-wide, so the user's own compilations would also find entries of the workbench.
Therefore these executors and rules are in tables of this module. While the workbench compiles, `gradient_rule` replaces
Thunder's lookup of rules. Thunder looks up executors by name only to read a pickled symbol, so the executors need no
such replacement.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workbench.compiler.fastpath import call_memo, install
from workbench.compiler.interop.thunder_api import OperatorExecutor, Symbol, get_executor, langctxs

_executors: dict[str, Any] = {}
_rules: dict[Any, Callable[..., Any]] = {}


def new_executor(name: str) -> Any:
    """Make and return an executor, and enter it in the table that `executor_by_name` reads."""
    made = _executors[name] = OperatorExecutor(name, version="1")
    return made


def executor_by_name(name: str) -> Any:
    """Return the workbench's executor with this name, or Thunder's if the workbench has no such executor."""
    return _executors[name] if name in _executors else get_executor(name)


def register_grad(symbol: Any, rule: Callable[..., Any]) -> None:
    """Register a gradient rule, as Thunder's `register_grad` does, but only for compilations by the workbench."""
    key = symbol.id if isinstance(symbol, Symbol) else symbol
    _rules[key] = langctxs.langctx(langctxs.Languages.TORCH)(rule)


def gradient_rule(stock: Callable[..., Any], bsym: Any, **kwargs: Any) -> Any:
    """Return the gradient rule of a statement, and the executor that defines the rule; None if no executor does.

    A rule of an executor takes precedence over ours. Our rule takes precedence over Thunder's. `stock` is Thunder's own
    lookup.
    """
    rule, executor = stock(bsym, **kwargs)
    if executor is None:
        rule = _rules.get(bsym.sym.id, rule)
    if rule is not None and install.is_fast():
        rule = call_memo.memoize_rule(rule)
    return rule, executor
