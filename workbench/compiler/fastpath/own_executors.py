"""Executors and gradient rules of our own statements, outside Thunder's registries.

Thunder looks up an executor by name only to read a pickled symbol. Thunder looks up a gradient rule only in a
process-wide table. Our executors and rules are in tables of this module: `gradient_rule` replaces Thunder's lookup
while we compile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workbench.compiler.fastpath import call_memo, install
from workbench.compiler.interop.thunder_api import OperatorExecutor, Symbol, get_executor, langctxs

_executors: dict[str, Any] = {}
_rules: dict[Any, Callable[..., Any]] = {}


def new_executor(name: str) -> Any:
    """Make an executor that `executor_by_name` finds."""
    made = _executors[name] = OperatorExecutor(name, version="1")
    return made


def executor_by_name(name: str) -> Any:
    """Return our executor with this name, or Thunder's if we have none."""
    return _executors[name] if name in _executors else get_executor(name)


def register_grad(symbol: Any, rule: Callable[..., Any]) -> None:
    """Register a gradient rule, as Thunder's `register_grad` does, for our compilations only."""
    key = symbol.id if isinstance(symbol, Symbol) else symbol
    _rules[key] = langctxs.langctx(langctxs.Languages.TORCH)(rule)


def gradient_rule(stock: Callable[..., Any], bsym: Any, **kwargs: Any) -> Any:
    """Return the gradient rule of a statement and its executor.

    Rules of executors come first, then ours, then Thunder's.
    """
    rule, executor = stock(bsym, **kwargs)
    if executor is None:
        rule = _rules.get(bsym.sym.id, rule)
    if rule is not None and install.is_fast():
        rule = call_memo.memoize_rule(rule)
    return rule, executor
