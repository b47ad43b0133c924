"""Replace functions of other packages for the threads that are inside of a `with`, and put them back after.

While a set of patches is in force, each replaced function asks which thread calls it: a thread that is inside gets the
replacement, every other thread gets the stock function. So a user's own `thunder.jit` functions are traced by stock
code, even while the workbench plans in another thread.
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
"""Modules in which functions that were imported by name are replaced, too."""


@dataclass(frozen=True)
class PatchTarget:
    """Where something is replaced.

    Attributes
    ----------
    owner : module, class or dict
    name : object
        Of an attribute, or a key of the dict.
    make : callable
        Makes what stands there, of what stood there (None if nothing did) and of the patches.
    everywhere : bool
        Whether modules of Thunder and of the workbench that imported it by its name have it replaced, too.
    """

    owner: Any
    name: Any
    make: Callable[[Any, ThreadPatches], Any]
    everywhere: bool = False


class _Here(threading.local):
    value: Any = None


class ThreadPatches:
    """A set of patches, in force while any thread is inside, for the threads that are.

    Parameters
    ----------
    name : str
    places : callable
        Gives the places, when the set first comes into force.
    """

    sets: list[ThreadPatches] = []  # noqa: RUF012  # the list of all sets
    """All sets of this process: nothing else replaces a function of another package."""

    def __init__(self, name: str, places: Callable[[], Iterable[PatchTarget]]) -> None:
        self.name = name
        self.here = _Here()
        self._places = places
        self._lock = threading.Lock()
        self._inside = 0
        self._made: list[list[Any]] | None = None
        self._undo: list[tuple[Any, Any, Any, Any]] = []
        self._everywhere: dict[str, tuple[Any, Any]] = {}
        self._modules = 0
        self.sets.append(self)

    @property
    def value(self) -> Any:
        """The value that this thread is inside with; None outside."""
        return self.here.value

    @contextlib.contextmanager
    def __call__(self, value: Any = True) -> Iterator[None]:
        """Put the patches in force for this thread, with a value that replacements may read."""
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
                    self._take_back()

    def _install(self) -> None:
        if self._made is None:
            self._made = [[place, _MISSING, None] for place in self._places()]
        try:
            for made in self._made:
                place, known, replacement = made
                stock = _get(place.owner, place.name)
                if replacement is None or stock is not known:
                    replacement = place.make(None if stock is _MISSING else stock, self)
                    made[1:] = stock, replacement
                self._put(place.owner, place.name, stock, replacement)
                if place.everywhere:
                    self._everywhere[place.name] = (stock, replacement)
            for module, name in _importers(tuple((name, stock) for name, (stock, _) in self._everywhere.items())):
                stock, replacement = self._everywhere[name]
                if _get(module, name) is stock:
                    self._put(module, name, stock, replacement)
        except BaseException:
            self._take_back()
            raise
        self._modules = len(sys.modules)

    def _put(self, owner: Any, name: Any, stock: Any, replacement: Any) -> None:
        _set(owner, name, replacement)
        self._undo.append((owner, name, stock, replacement))

    def _take_back(self) -> None:
        while self._undo:
            owner, name, stock, replacement = self._undo.pop()
            # Where someone else has put something over it since, that stays; what it wraps gives way by itself.
            if _get(owner, name) is replacement:
                _set(owner, name, stock)
        if self._everywhere and len(sys.modules) != self._modules:
            # Modules that were imported meanwhile have taken the replacement by name.
            for module in tuple(sys.modules.values()):
                for name, (stock, replacement) in self._everywhere.items():
                    if getattr(module, "__dict__", {}).get(name) is replacement:
                        setattr(module, name, stock)


def function(
    owner: Any, name: Any, ours: Callable[..., Any], *, everywhere: bool = False, traced: bool = False
) -> PatchTarget:
    """Replace a function by `ours`.

    Parameters
    ----------
    traced : bool
        Whether programs call the function, so that Dynamo follows the dispatch.
    """
    dispatch = dispatched_in_dynamo if traced else dispatched
    return PatchTarget(owner, name, lambda stock, patches: dispatch(stock, ours, patches), everywhere)


def wrapped(owner: Any, name: Any, ours: Callable[..., Any], *, everywhere: bool = False) -> PatchTarget:
    """A function that is replaced by `ours`, which is called with the stock function before the arguments."""

    def make(stock: Any, patches: ThreadPatches) -> Any:
        return dispatched(stock, functools.partial(ours, stock), patches)

    def method(stock: Any, patches: ThreadPatches) -> Any:
        # A partial function is not bound to the object whose method is called.
        def bound(self: Any, *args: Any, **kwargs: Any) -> Any:
            return ours(stock, self, *args, **kwargs)

        return dispatched(stock, bound, patches)

    return PatchTarget(owner, name, method if isinstance(owner, type) else make, everywhere)


def dispatched(stock: Callable[..., Any], ours: Callable[..., Any], patches: ThreadPatches) -> Callable[..., Any]:
    """A function that is `ours` in a thread that is inside of the patches, and the stock function in any other."""
    here = patches.here

    def dispatch(*args: Any, **kwargs: Any) -> Any:
        if here.value is None:
            return stock(*args, **kwargs)
        return ours(*args, **kwargs)

    return functools.update_wrapper(dispatch, stock)


def dispatched_in_dynamo(stock: Callable[..., Any], ours: Callable[..., Any], patches: ThreadPatches) -> Any:
    """Make the same of a function that Dynamo follows while it traces a program.

    Dynamo reads a thread's values as if no thread had set them. So it calls `is_inside` and keeps the answer.
    """

    def is_inside() -> bool:
        return patches.here.value is not None

    is_inside._dynamo_marked_constant = True  # type: ignore[attr-defined]

    def dispatch(*args: Any, **kwargs: Any) -> Any:
        return ours(*args, **kwargs) if is_inside() else stock(*args, **kwargs)

    return functools.update_wrapper(dispatch, stock)


class ModuleStandIn:
    """Stands for a module, with some functions of it replaced.

    Parameters
    ----------
    module : module
    **functions : callable
    """

    def __init__(self, module: Any, **functions: Callable[..., Any]) -> None:
        self._module = module
        vars(self).update(functions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def inside_module(owner: ModuleType, name: str, **functions: Callable[..., Any]) -> PatchTarget:
    """A module that another one imported, of which some functions are replaced for that one alone."""

    def make(stock: Any, patches: ThreadPatches) -> Any:
        return ModuleStandIn(
            stock, **{own: dispatched(getattr(stock, own), f, patches) for own, f in functions.items()}
        )

    return PatchTarget(owner, name, make)


def _get(owner: Any, name: Any) -> Any:
    if isinstance(owner, MutableMapping):
        return owner.get(name, _MISSING)
    # As it stands there: a class gives descriptors and static methods otherwise.
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


_found: dict[tuple[tuple[str, Any], ...], tuple[int, list[tuple[Any, str]]]] = {}


def _importers(functions: tuple[tuple[str, Any], ...]) -> list[tuple[Any, str]]:
    """Modules that have functions under their names, by import; looked for again when modules were imported since."""
    if not functions:
        return []
    count = len(sys.modules)
    known = _found.get(functions)
    if known is not None and known[0] == count:
        return known[1]
    found: list[tuple[Any, str]] = []
    for module_name, module in tuple(sys.modules.items()):
        if f"{module_name}.".startswith(_PACKAGES):
            here: dict[str, Any] = getattr(module, "__dict__", {})
            found.extend((module, name) for name, stock in functions if here.get(name) is stock)
    _found[functions] = count, found
    return found
