"""nvFuser's definitions that this process has compiled, for who defines an equal one later.

A run compiles its program more than once: as it was chosen, as unmodified Thunder does to compare with, as variants to
time beside it. What nvFuser compiles is most of that, most of it is equal, and nvFuser itself remembers nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

from workbench.compiler.interop import thunder_patches
from workbench.compiler.interop.devices import nvfuser_module
from workbench.compiler.trace import inplace_copies
from workbench.compiler.trace.fingerprints import structure_key


@dataclasses.dataclass(frozen=True)
class _CachedDefinition:
    """A definition, and what was asked for: while that lives, nothing else is at an address that its key has."""

    made: Any
    asked: tuple[Any, ...]


class Definitions:
    """What was defined inside of `kept` and `shared`, by what it computes of which inputs.

    Definitions that go without a `set` of Thunder's are nobody else's, and not among them.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, _CachedDefinition] = {}
        self._new: list[_CachedDefinition] = []

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Inside, definitions are made, and compiled, as ever, and kept."""

        def created(create: Callable[..., Any], *asked: Any) -> Any:
            made = create(*asked)
            if not inplace_copies.any_left_out():
                # Found out what it is when it is looked for: it may be compile time that is measured now.
                self._new.append(_CachedDefinition(made, asked))
            return made

        with thunder_patches.defined_by(nvfuser_module(), created):
            yield

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Inside, a definition equal to one that was kept is that one, and compiled already.

        Each is defined as ever, and equal if nvFuser writes it the same, too: what is compared with a run is not to be
        what ran because of a wrong key.
        """

        def created(create: Callable[..., Any], *asked: Any) -> Any:
            if inplace_copies.any_left_out():
                return create(*asked)
            made = create(*asked)
            known = self._known.setdefault(_key(*asked), _CachedDefinition(made, asked)).made
            return known if str(known) == str(made) else made

        for defined in self._new:
            self._known.setdefault(_key(*defined.asked), defined)
        self._new.clear()
        with thunder_patches.defined_by(nvfuser_module(), created):
            yield


def _key(members: Sequence[Any], descriptors: Hashable, inputs: Sequence[Any], outputs: Sequence[Any]) -> Hashable:
    """As Thunder's ``create_fd`` takes them. Strides and contiguity are the descriptors'."""
    return structure_key(members, inputs, outputs), descriptors
