"""Choices for plain PyTorch: translate a config's choices, and compile or checkpoint a model with them."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from workbench.compiler.driver.capture import Capture, capture
from workbench.core.lever import lever_of
from workbench.errors import ConfigWarning, PlanError
from workbench.plain_torch.operators import Key, Operators
from workbench.programs import resolve
from workbench.programs.modes import active_modes

if TYPE_CHECKING:
    from workbench.core.config import Config

_SAVED = "saved:"


@dataclasses.dataclass(frozen=True)
class TorchChoices:
    """Choices that plain PyTorch can follow, and choices that it cannot follow.

    Attributes
    ----------
    choices : dict of Key to str
        Maps module path, operator and ordinal to ``save``, ``recompute`` or ``offload``.
    sites : dict of Key to str
        Maps the same keys to the ids of the sites.
    left_out : dict of str to str
        Maps the id of each other choice to the reason why PyTorch cannot follow it.
    """

    choices: dict[Key, str]
    sites: dict[Key, str]
    left_out: dict[str, str]

    def told(self) -> str:
        """Describe the choices that are left out, for a message; empty if there are none."""
        if not self.left_out:
            return ""
        return "PyTorch cannot follow these choices: " + "; ".join(f"{id}: {why}" for id, why in self.left_out.items())


def torch_choices(captured: Capture, choices: Mapping[str, str]) -> TorchChoices:
    """Translate choices for a captured program into choices for plain PyTorch.

    Raises
    ------
    ProgramError
        If a choice can be followed only with Dynamo's graph, and Dynamo cannot capture the program as one graph.
    """
    left_out, wanted = {}, {}
    for id, option in choices.items():
        if not id.startswith(_SAVED):
            lever = lever_of(id)
            kind = f"a setting of Thunder's lever {lever}" if lever == "saved" else f"for Thunder's lever {lever}"
            left_out[id] = f"this is {kind}, which plain PyTorch does not have"
        else:
            wanted[id] = option
    if not wanted:
        return TorchChoices({}, {}, left_out)
    from workbench.compiler.driver.torch_keys import torch_keys  # imports PyTorch's compiler

    keys, reasons = torch_keys(captured, [id.removeprefix(_SAVED) for id in wanted])
    left_out |= {_SAVED + place: why for place, why in reasons.items()}
    sites: dict[Key, str] = {}
    for place, key in keys.items():
        if key in sites:
            left_out[_SAVED + place] = f"the same operator of PyTorch also computes {sites[key]}"
        else:
            sites[key] = _SAVED + place
    return TorchChoices({key: wanted[id] for key, id in sites.items()}, sites, left_out)


def compile(config: Config, model: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """Return ``torch.compile(model, **options)`` with a config's choices; see `Config.compile`."""
    from workbench.plain_torch import compiled  # imports PyTorch's compiler

    _check_ranks(config)
    ops = Operators(model, {})
    return _translate_at_first_call(config, model, ops, compiled.compile(model, choices=ops, **options))


def checkpoint(config: Config, model: torch.nn.Module) -> torch.nn.Module:
    """Make the backward of an eager module recompute values as a config says; see `Config.checkpoint`."""
    from workbench.plain_torch import eager

    _check_ranks(config)
    ops = Operators(model, {})
    wrapped = eager.checkpoint(model, choices=ops)
    made: torch.nn.Module = _translate_at_first_call(config, model, ops, wrapped)
    return made


def _check_ranks(config: Config) -> None:
    if config.ranks > 1:
        raise PlanError(f"choices for plain PyTorch are for one process, but this config is for {config.ranks} ranks")


def _translate_at_first_call(config: Config, model: Callable[..., Any], ops: Operators, made: Any) -> Any:
    """Translate a config's choices in the first call of `made` with gradients. Only a call has example inputs."""

    def translate(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        with active_modes(config.modes):
            program = resolve(model, *args, kwargs=kwargs)
            captured = capture(program, config.executor, front_end="dynamo")
        assert isinstance(captured, Capture)
        found = torch_choices(captured, config.choices)
        ops.choices.update(found.choices)
        told = "; ".join(filter(None, (config.differences(captured.fingerprint, program.training), found.told())))
        if told:
            warnings.warn(ConfigWarning(told), stacklevel=4)

    if isinstance(made, torch.nn.Module):
        hook: list[Any] = []

        def before(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            # Without gradients, nothing is saved: wait for a call with gradients.
            if torch.is_grad_enabled():
                # Dynamo must trace neither this hook nor the forward that `checkpoint` has put into the module.
                hook.pop().remove()
                wrapped = vars(made).pop("forward") if made is model else None
                own = getattr(wrapped, "__wrapped__", None)
                if own is not None and getattr(own, "__func__", None) is not type(made).forward:
                    made.forward = own
                try:
                    translate(args, kwargs)
                except BaseException:
                    register()  # the next call tries again
                    raise
                finally:
                    if wrapped is not None:
                        made.forward = wrapped

        def register() -> None:
            hook.append(made.register_forward_pre_hook(before, prepend=True, with_kwargs=True))

        register()
        return made

    todo = [translate]

    @functools.wraps(model)
    def call(*args: Any, **kwargs: Any) -> Any:
        if todo and torch.is_grad_enabled():
            todo[0](args, kwargs)
            todo.clear()
        return made(*args, **kwargs)

    return call
