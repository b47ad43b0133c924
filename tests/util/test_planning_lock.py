"""An interrupt of work under the planning lock reaches the user as an interrupt."""

from __future__ import annotations

import pytest
from thunder.core import langctxs

from workbench.util.planning_lock import one_at_a_time


def test_an_interrupt_inside_thunder_stays_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thunder's wrapper of operators replaces an interrupt at its start by an UnboundLocalError."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    operator = langctxs.langctx(langctxs.Languages.TORCH)(lambda: None)
    monkeypatch.setattr(langctxs, "set_langctx", interrupt)
    with pytest.raises(UnboundLocalError):
        operator()
    with pytest.raises(KeyboardInterrupt):
        one_at_a_time(operator)()


def test_an_unbound_name_of_a_program_stays_an_error() -> None:
    def program() -> int:
        if not program:
            value = 1
        return value

    with pytest.raises(UnboundLocalError, match="value"):
        one_at_a_time(program)()
