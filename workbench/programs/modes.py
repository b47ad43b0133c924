"""The PyTorch modes under which a program is opened: gradients, autocast, the default data type, determinism."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch

_AUTOCAST = {"autocast_cpu": "cpu", "autocast_cuda": "cuda"}


def current_modes() -> dict[str, str]:
    """Return the present modes that differ from PyTorch's defaults, in the form of `workbench.core.config.MODES`."""
    found: dict[str, str] = {}
    if torch.is_inference_mode_enabled():
        found["grad"] = "inference"
    elif not torch.is_grad_enabled():
        found["grad"] = "off"
    for name, device in _AUTOCAST.items():
        if torch.is_autocast_enabled(device):
            found[name] = _name(torch.get_autocast_dtype(device))
    if torch.get_default_dtype() is not torch.float32:
        found["default_dtype"] = _name(torch.get_default_dtype())
    if torch.are_deterministic_algorithms_enabled():
        found["deterministic"] = "warn" if torch.is_deterministic_algorithms_warn_only_enabled() else "on"
    return found


def active_modes(modes: Mapping[str, str]) -> contextlib.AbstractContextManager[None]:
    """Return a context in which `modes` are active. Other modes do not change; all modes are restored afterwards.

    The default data type and determinism are settings of the whole process. Threads whose contexts need the same values
    of these two settings run at the same time. A thread that needs different values waits for the end of these
    contexts.
    """
    return _active_modes(modes) if modes else _ModeTurn(modes)


@contextlib.contextmanager
def _active_modes(modes: Mapping[str, str]) -> Iterator[None]:
    with contextlib.ExitStack() as inside:
        inside.enter_context(_ModeTurn(modes))
        grad = modes.get("grad")
        if grad is not None:
            inside.enter_context(torch.inference_mode() if grad == "inference" else torch.no_grad())
        for name, device in _AUTOCAST.items():
            if name in modes:
                inside.enter_context(torch.autocast(device, dtype=getattr(torch, modes[name])))
        yield


class _OfProcess(NamedTuple):
    """PyTorch settings of the whole process, which all threads share."""

    dtype: torch.dtype
    deterministic: bool
    warns: bool

    def with_modes(self, modes: Mapping[str, str]) -> _OfProcess:
        if not modes:
            return self
        dtype, deterministic, warns = self
        if "default_dtype" in modes:
            dtype = getattr(torch, modes["default_dtype"])
        if "deterministic" in modes:
            deterministic, warns = True, modes["deterministic"] == "warn"
        return _OfProcess(dtype, deterministic, warns)

    def apply(self, previous: _OfProcess) -> None:
        if self.dtype != previous.dtype:
            torch.set_default_dtype(self.dtype)
        if self[1:] != previous[1:]:
            torch.use_deterministic_algorithms(self.deterministic, warn_only=self.warns)


def _process_modes() -> _OfProcess:
    return _OfProcess(
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )


class _ModeTurns:
    """Lets threads inside `active_modes` take turns: only threads that need equal process settings run together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._going_on = 0
        self.put: tuple[_OfProcess, _OfProcess] | None = None

    def enter(self, modes: Mapping[str, str], outside: _OfProcess | None) -> _OfProcess:
        """Begin a thread's turn: wait until the process can have the settings that the thread needs, and apply them.

        The thread needs the settings in `modes`, and the values in `outside` for all other settings. Return the
        settings that are now applied.
        """
        with self._lock:
            while True:
                before, in_force = self.put or (_process_modes(),) * 2
                needs = (outside or before).with_modes(modes)
                if needs == in_force:
                    break
                if not self._going_on:
                    needs.apply(before)
                    self.put = before, needs
                    break
                self._changed.wait()
            self._going_on += 1
            return needs

    def leave_for_now(self, needs: _OfProcess) -> _OfProcess:
        """End a turn that the thread will continue. Return the settings that the thread will need then.

        These are `needs`, or the process's settings if only this thread has a turn: its program may have changed them.
        """
        with self._lock:
            if self._going_on == 1:
                needs = _process_modes()
        self.leave()
        return needs

    def leave(self) -> None:
        """End a thread's turn. The last thread restores the settings from before the turns, and wakes waiting threads.

        Only settings that the turns have changed are restored, so other settings keep a program's own changes.
        """
        with self._lock:
            self._going_on -= 1
            if not self._going_on:
                if self.put is not None:
                    before, put = self.put
                    self.put = None
                    before.apply(put)
                self._changed.notify_all()


_turns = _ModeTurns()
_here = threading.local()


class _ModeTurn:
    """Context manager for a thread's turn, in which the process has the settings that the thread needs.

    A turn inside of another turn of the same thread replaces the outer turn until the inner turn ends.
    """

    __slots__ = ("_modes", "_outside", "_same")

    def __init__(self, modes: Mapping[str, str]) -> None:
        self._modes = modes

    def __enter__(self) -> None:
        outside = self._outside = getattr(_here, "needs", None)
        self._same = outside is not None and outside.with_modes(self._modes) == outside
        if self._same:
            return
        # Leave the outer turn first, because two threads that stay in their outer turns could wait for each other.
        if outside is not None:
            outside = self._outside = _turns.leave_for_now(outside)
        try:
            _here.needs = _turns.enter(self._modes, outside)
        except BaseException:
            self._return_outside()
            raise

    def __exit__(self, *_: object) -> None:
        if not self._same:
            _turns.leave()
            self._return_outside()

    def _return_outside(self) -> None:
        _here.needs = self._outside
        if self._outside is not None:
            _turns.enter({}, self._outside)


@contextlib.contextmanager
def turn_given_up() -> Iterator[None]:
    """Context in which this thread gives up its turn. Use it to wait for another thread that needs a turn."""
    needs = getattr(_here, "needs", None)
    if needs is None:
        yield
        return
    needs = _here.needs = _turns.leave_for_now(needs)
    try:
        yield
    finally:
        _turns.enter({}, needs)


def building_modes(modes: Mapping[str, str]) -> dict[str, str]:
    """Return the modes under which a factory is called: all entries of `modes` that affect the objects it makes."""
    return {name: mode for name, mode in modes.items() if name == "default_dtype"}


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
