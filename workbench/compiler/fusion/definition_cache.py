"""Cache of the nvFuser definitions that this process has compiled.

A run compiles its program several times: with the user's choices, as unmodified Thunder for comparison, and as timed
variants. Most definitions in these compilations are equal. nvFuser takes most of the compile time, and has no cache of
its own.
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

    The cache key of the definition may contain addresses of arguments. This object keeps the arguments alive, so that
    no new object gets one of these addresses.
    """

    made: Any
    asked: tuple[Any, ...]


class Definitions:
    """Cache of the definitions that are made in the contexts `kept` and `shared`.

    The key of a definition contains its computation and its inputs.

    A definition may omit a `set` operation that Thunder would insert; see `copy_sets`. The key does not contain this
    omission, so such a definition is not cached.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, _CachedDefinition] = {}
        self._new: list[_CachedDefinition] = []

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Return a context in which nvFuser defines and compiles as usual, and the definitions are cached."""

        def create_and_keep(create: Callable[..., Any], *asked: Any) -> Any:
            made = create(*asked)
            if not copy_sets.may_omit_set():
                # Compute the key later, when `shared` is entered, because compile time may be measured now.
                self._new.append(_CachedDefinition(made, asked))
            return made

        with thunder_patches.define_with(nvfuser_module(), create_and_keep):
            yield

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Return a context in which a cached definition replaces each new definition that equals it.

        The cached definition is already compiled, which saves time. Each new definition is still made as usual, because
        two definitions count as equal only if their keys are equal and nvFuser prints the same text for both. Without
        this check, an error in the key could give two variants the same kernels. A comparison of the two variants would
        then always succeed.
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
