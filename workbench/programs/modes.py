"""The modes of PyTorch that a program is opened under: gradients, autocast, the default data type, determinism."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch

_AUTOCAST = {"autocast_cpu": "cpu", "autocast_cuda": "cuda"}


def current() -> dict[str, str]:
    """The modes in force here that are not those that PyTorch starts in, as in `workbench.config.MODES`."""
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


@contextlib.contextmanager
def restored(modes: Mapping[str, str]) -> Iterator[None]:
    """Inside, those modes are in force; what they do not name is as it was, and all is so afterwards."""
    with contextlib.ExitStack() as inside:
        grad = modes.get("grad")
        if grad is not None:
            inside.enter_context(torch.inference_mode() if grad == "inference" else torch.no_grad())
        for name, device in _AUTOCAST.items():
            if name in modes:
                inside.enter_context(torch.autocast(device, dtype=getattr(torch, modes[name])))
        if "default_dtype" in modes:
            inside.callback(torch.set_default_dtype, torch.get_default_dtype())
            torch.set_default_dtype(getattr(torch, modes["default_dtype"]))
        if "deterministic" in modes:
            inside.callback(
                torch.use_deterministic_algorithms,
                torch.are_deterministic_algorithms_enabled(),
                warn_only=torch.is_deterministic_algorithms_warn_only_enabled(),
            )
            torch.use_deterministic_algorithms(True, warn_only=modes["deterministic"] == "warn")
        yield


def of_building(modes: Mapping[str, str]) -> dict[str, str]:
    """Those of the modes that a factory is to be called under: they decide what it makes, and not how it is run."""
    return {name: mode for name, mode in modes.items() if name == "default_dtype"}


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
