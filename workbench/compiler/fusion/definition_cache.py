"""Cache of the nvFuser definitions that this process has compiled.

A run compiles its program several times: with its choices, as unmodified Thunder for comparison, and as timed variants.
nvFuser takes most of the compile time, most definitions are equal, and nvFuser has no cache itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

from workbench.compiler.interop import thunder_patches
from workbench.compiler.interop.devices import nvfuser_module
from workbench.compiler.trace import copy_sets
from workbench.compiler.trace.fingerprints import structure_key


@dataclasses.dataclass(frozen=True)
class _CachedDefinition:
    """A definition with its request, kept alive so that no other object can get an address that the key contains."""

    made: Any
    asked: tuple[Any, ...]


class Definitions:
    """Definitions made inside of `kept` and `shared`, by their computation and inputs.

    Definitions that leave out one of Thunder's sets are not shared, so they are not cached.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, _CachedDefinition] = {}
        self._new: list[_CachedDefinition] = []

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """In this context, define and compile as usual, and keep the definitions."""

        def create_and_keep(create: Callable[..., Any], *asked: Any) -> Any:
            made = create(*asked)
            if not copy_sets.may_omit_set():
                # The key is computed at the first lookup, because compile time may be measured now.
                self._new.append(_CachedDefinition(made, asked))
            return made

        with thunder_patches.define_with(nvfuser_module(), create_and_keep):
            yield

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """In this context, reuse the compiled kept definition for an equal one.

        Each definition is still made as usual, and counts as equal only if nvFuser also prints the same text. Otherwise
        a wrong key could compare a run with itself.
        """

        def create_or_reuse(create: Callable[..., Any], *asked: Any) -> Any:
            if copy_sets.may_omit_set():
                return create(*asked)
            made = create(*asked)
            known = self._known.setdefault(_key(*asked), _CachedDefinition(made, asked)).made
            return known if str(known) == str(made) else made

        for defined in self._new:
            self._known.setdefault(_key(*defined.asked), defined)
        self._new.clear()
        with thunder_patches.define_with(nvfuser_module(), create_or_reuse):
            yield


def _key(members: Sequence[Any], descriptors: Hashable, inputs: Sequence[Any], outputs: Sequence[Any]) -> Hashable:
    """Return the key of the arguments of Thunder's ``create_fd``. Descriptors contain strides and contiguity."""
    return structure_key(members, inputs, outputs), descriptors
