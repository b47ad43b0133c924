"""Raise the exception of Ctrl-C if a library has caught it and raised an error instead."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def interruptions_raised(*, exits: bool = False) -> Iterator[None]:
    """Raise the `KeyboardInterrupt` among the causes of an error, in place of the error.

    Thunder's interpreter turns every exception of the code that it runs into an error of its own.

    Parameters
    ----------
    exits : bool, optional
        Whether to treat `SystemExit` in the same way.
    """
    # An exception that the caller is handling is a cause of every error raised here, but did not interrupt this code.
    handled = sys.exception()
    try:
        yield
    except Exception as error:
        found = _interruption_behind(error, handled, (KeyboardInterrupt, SystemExit) if exits else (KeyboardInterrupt,))
        if found is not None:
            raise found from None
        raise


def _interruption_behind(
    error: BaseException, handled: BaseException | None, kinds: tuple[type[BaseException], ...]
) -> BaseException | None:
    waiting, seen = [error], {id(handled)}
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, kinds):
            return each
        waiting += filter(None, (each.__cause__, each.__context__))
    return None
