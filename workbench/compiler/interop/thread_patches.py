"""Replace functions of other packages for the threads inside of a `with` block, and restore them afterwards.

While a set of patches is active, each patched function checks which thread calls it. In a thread inside of the block,
it calls the replacement; in all other threads, it calls the stock function. A user's own `thunder.jit` functions are
therefore traced by stock code, even while the workbench plans in a different thread.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

_MISSING: Any = object()

_PACKAGES = ("thunder.", "workbench.")
"""Prefixes of modules that may import a patched function by name; the imported name is then patched, too."""


@dataclass(frozen=True)
class PatchTarget:
    """An attribute, or an entry of a dict, that a patch replaces.

    Attributes
    ----------
    owner : module, class or dict
    name : object
        Name of an attribute, or key of the dict.
    make : callable
        Returns the replacement. The arguments of `make` are the original value and the `ThreadPatches`. The original
        value is None if `owner` does not contain `name`.
    everywhere : bool
        Whether to also patch the modules of Thunder and of the workbench that have imported the function by name.
    """

    owner: Any
    name: Any
    make: Callable[[Any, ThreadPatches], Any]
    everywhere: bool = False


class _Here(threading.local):
    value: Any = None


class ThreadPatches:
    """A set of patches that applies only to the threads in its context.

    Parameters
    ----------
    name : str
    targets : callable
        Returns the patch targets. Called when a thread enters the context for the first time.
    """

    sets: list[ThreadPatches] = []  # noqa: RUF012  # the list of all sets
    """All instances in this process. Tests check that each instance has restored the attributes that it replaced."""

    def __init__(self, name: str, targets: Callable[[], Iterable[PatchTarget]]) -> None:
        self.name = name
        self.here = _Here()
        self._targets = targets
        self._lock = threading.Lock()
        self._inside = 0
        self._made: list[list[Any]] | None = None
        self._undo: list[tuple[Any, Any, Any, Any]] = []
        self._everywhere: dict[str, tuple[Any, Any]] = {}
        self._modules: frozenset[str] = frozenset()
        self.sets.append(self)

    @property
    def value(self) -> Any:
        """The value with which this thread entered the context; None if the thread is not in the context."""
        return self.here.value

    @contextlib.contextmanager
    def __call__(self, value: Any = True) -> Iterator[None]:
        """In this context, the patches are active for this thread. Replacements can read `value`."""
        with self._lock:
            if not self._inside:
                self._install()
            self._inside += 1
        before, self.here.value = self.here.value, value
        try:
            yield
        finally:
            self.here.value = before
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    self._restore()

    def _install(self) -> None:
        if self._made is None:
            self._made = [[target, _MISSING, None] for target in self._targets()]
        self._modules = _imported_modules()
        try:
            for made in self._made:
                target, known, replacement = made
                stock = _get(target.owner, target.name)
                if replacement is None or stock is not known:
                    replacement = target.make(None if stock is _MISSING else stock, self)
                    made[1:] = stock, replacement
                self._replace(target.owner, target.name, stock, replacement)
                if target.everywhere:
                    self._everywhere[target.name] = (stock, replacement)
            for module, name in _importers(tuple((name, stock) for name, (stock, _) in self._everywhere.items())):
                stock, replacement = self._everywhere[name]
                if _get(module, name) is stock:
                    self._replace(module, name, stock, replacement)
        except BaseException:
            self._restore()
            raise

    def _replace(self, owner: Any, name: Any, stock: Any, replacement: Any) -> None:
        _set(owner, name, replacement)
        self._undo.append((owner, name, stock, replacement))

    def _restore(self) -> None:
        while self._undo:
            owner, name, stock, replacement = self._undo.pop()
            # If other code has patched the function in the meantime, keep the other patch. The other patch may call
            # this replacement, which then calls the stock function.
            if _get(owner, name) is replacement:
                _set(owner, name, stock)
        if self._everywhere:
            # Modules that were imported while the patches were active may have imported a replacement by name.
            for module_name in _imported_modules() - self._modules:
                module = sys.modules.get(module_name)
                for name, (stock, replacement) in self._everywhere.items():
                    if getattr(module, "__dict__", {}).get(name) is replacement:
                        setattr(module, name, stock)


def replace_function(
    owner: Any, name: Any, ours: Callable[..., Any], *, everywhere: bool = False, traced: bool = False
) -> PatchTarget:
    """Return a patch target that replaces a function by `ours`.

    Parameters
    ----------
    traced : bool
        Whether programs call the function, so that Dynamo traces the patched function.
    """
    dispatch = dispatch_in_dynamo if traced else dispatch_by_thread
    return PatchTarget(owner, name, lambda stock, patches: dispatch(stock, ours, patches), everywhere)


def wrap_function(owner: Any, name: Any, ours: Callable[..., Any], *, everywhere: bool = False) -> PatchTarget:
    """Return a patch target that replaces a function by `ours`. The first argument of `ours` is the stock function."""

    def make(stock: Any, patches: ThreadPatches) -> Any:
        return dispatch_by_thread(stock, functools.partial(ours, stock), patches)

    def method(stock: Any, patches: ThreadPatches) -> Any:
        # A method must be a function: Python does not pass `self` to a `functools.partial` in a class.
        def bound(self: Any, *args: Any, **kwargs: Any) -> Any:
            return ours(stock, self, *args, **kwargs)

        return dispatch_by_thread(stock, bound, patches)

    return PatchTarget(owner, name, method if isinstance(owner, type) else make, everywhere)


def dispatch_by_thread(
    stock: Callable[..., Any], ours: Callable[..., Any], patches: ThreadPatches
) -> Callable[..., Any]:
    """Return a function that calls `ours` in threads inside of the patches, and `stock` in all other threads."""
    here = patches.here

    def dispatch(*args: Any, **kwargs: Any) -> Any:
        if here.value is None:
            return stock(*args, **kwargs)
        return ours(*args, **kwargs)

    return functools.update_wrapper(dispatch, stock)


def dispatch_in_dynamo(stock: Callable[..., Any], ours: Callable[..., Any], patches: ThreadPatches) -> Any:
    """Return a function that calls `ours` or `stock` as in `dispatch_by_thread`, even while Dynamo traces the function.

    When Dynamo traces code, it does not see the values of a `threading.local`. Therefore `is_inside` is marked as a
    constant: Dynamo calls `is_inside` during the trace, and uses the result as a constant.
    """

    def is_inside() -> bool:
        return patches.here.value is not None

    is_inside._dynamo_marked_constant = True  # type: ignore[attr-defined]

    def dispatch(*args: Any, **kwargs: Any) -> Any:
        return ours(*args, **kwargs) if is_inside() else stock(*args, **kwargs)

    return functools.update_wrapper(dispatch, stock)


class ModuleStandIn:
    """An object with the attributes of a module, except that some functions are replaced.

    Parameters
    ----------
    module : module
    **functions : callable
        The replacements, by name.
    """

    def __init__(self, module: Any, **functions: Callable[..., Any]) -> None:
        self._module = module
        vars(self).update(functions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def replace_in_module(owner: ModuleType, name: str, **functions: Callable[..., Any]) -> PatchTarget:
    """Return a patch target that replaces functions of the module `name` only for calls from the module `owner`."""

    def make(stock: Any, patches: ThreadPatches) -> Any:
        return ModuleStandIn(
            stock, **{own: dispatch_by_thread(getattr(stock, own), f, patches) for own, f in functions.items()}
        )

    return PatchTarget(owner, name, make)


def _get(owner: Any, name: Any) -> Any:
    if isinstance(owner, MutableMapping):
        return owner.get(name, _MISSING)
    # For a static method or descriptor of a class, `getattr` would not return the object that the class contains.
    return vars(owner).get(name, _MISSING)


def _set(owner: Any, name: Any, value: Any) -> None:
    if isinstance(owner, MutableMapping):
        if value is _MISSING:
            del owner[name]
        else:
            owner[name] = value
    elif value is _MISSING:
        delattr(owner, name)
    else:
        setattr(owner, name, value)


_imported: frozenset[str] = frozenset()
_found: dict[tuple[tuple[str, Any], ...], tuple[frozenset[str], list[tuple[Any, str]]]] = {}


def _imported_modules() -> frozenset[str]:
    """Return the names of all imported modules. The result is cached until their number changes."""
    global _imported
    if len(_imported) != len(sys.modules):
        _imported = frozenset(sys.modules)
    return _imported


def _importers(functions: tuple[tuple[str, Any], ...]) -> list[tuple[Any, str]]:
    """Return pairs of a module and the name by which it has imported one of the functions.

    A further call with the same functions searches only the modules that Python has imported since.
    """
    if not functions:
        return []
    names = _imported_modules()
    known, found = _found.get(functions, (frozenset[str](), []))
    if known is not names:
        new = [name for name in names - known if f"{name}.".startswith(_PACKAGES)]
        # A module that a thread is still importing may import a function later, so search it again in the next call.
        unready = {name for name in new if _is_importing(sys.modules.get(name))}
        for module in (sys.modules.get(name) for name in new if name not in unready):
            here: dict[str, Any] = getattr(module, "__dict__", {})
            found.extend((module, name) for name, stock in functions if here.get(name) is stock)
        _found[functions] = names - unready if unready else names, found
    return found


def _is_importing(module: Any) -> bool:
    return getattr(getattr(module, "__spec__", None), "_initializing", False)
