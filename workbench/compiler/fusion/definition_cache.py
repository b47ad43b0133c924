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
    """A definition and the arguments of its `create_fd` call.

    The arguments stay alive, because the key may contain their addresses. A new object could otherwise get the same
    address.
    """

    made: Any
    asked: tuple[Any, ...]


class Definitions:
    """The definitions that were made inside of `kept` and `shared`, looked up by their computation and inputs.

    A definition that may omit a `set` operation that Thunder would insert (see `copy_sets`) is never reused, so it is
    not cached.
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
        """In this context, if a new definition equals a kept one, use the kept one, which is already compiled.

        Each definition is still made as usual. Two definitions count as equal only if nvFuser also prints the same text
        for both. Without this check, an error in the key could give two variants the same kernels. Their comparison
        would then always succeed.
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
    """Return a key of the arguments of Thunder's ``create_fd``. `descriptors` contain strides and contiguity."""
    return structure_key(members, inputs, outputs), descriptors
