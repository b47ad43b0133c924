"""Compile a program with unmodified Thunder, as a user would do without the workbench."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from workbench.compiler.driver.capture_parts import end_transforms
from workbench.compiler.frontend import dynamo
from workbench.compiler.interop import dynamo_patches, thunder_api
from workbench.compiler.interop.torch_versions import graphs_with_code
from workbench.errors import ProgramError, is_out_of_memory, one_line

WAYS = ("thunder.jit", "thunderfx")
"""Functions of Thunder that compile a program, in the order in which they are tried. `thunder.jit` uses Thunder's
interpreter, and `thunderfx` uses Dynamo.
"""

_FEW_LETTERS = 300


class StockCompiled:
    """A program that unmodified Thunder compiles at the first call.

    The call tries Thunder's functions in order, and keeps the result of the first function that accepts the program.

    Parameters
    ----------
    program : callable or torch.nn.Module
    entry_points : sequence of {'thunder.jit', 'thunderfx'}

    Attributes
    ----------
    way : str
        Name of the function that accepted the program; empty before the first call.
    refusals : tuple of str
        Messages of the functions that refused the program, in the order in which they were tried.
    """

    def __init__(self, program: Callable[..., Any], entry_points: Sequence[str] = WAYS) -> None:
        self._program = program
        self._ways = entry_points
        self._made: Any = None
        self.way = ""
        self.refusals: tuple[str, ...] = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program. The first call tries Thunder's functions until one accepts the program.

        Raises
        ------
        ProgramError
            If no function accepts the program.
        """
        if self._made is not None:
            return self._made(*args, **kwargs)
        devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
        state, cuda_states = torch.get_rng_state(), [torch.cuda.get_rng_state(device) for device in devices]
        for way in self._ways:
            torch.set_rng_state(state)
            for device, cuda_state in zip(devices, cuda_states, strict=True):
                torch.cuda.set_rng_state(cuda_state, device)
            made = thunder_api.jit(self._program) if way == "thunder.jit" else thunder_api.thunderfx(self._program)
            records = torch.is_grad_enabled()
            # PyTorch's AOTAutograd fails at `torch.inference_mode` inside of a graph. When its error is deleted, a mode
            # stays on in which each operator fails. At the end of an outer `inference_mode`, PyTorch turns it off.
            with torch.inference_mode(torch.is_inference_mode_enabled()), torch.set_grad_enabled(records):
                try:
                    with graphs_with_code(), dynamo_patches.plain_graph_errors(), end_transforms():
                        found = made(*args, **kwargs)
                except Exception as error:
                    if is_out_of_memory(error):
                        raise
                    self.refusals += (refusal(way, error),)
                    continue
            self.way, self._made = way, made
            return found
        raise ProgramError("unmodified Thunder cannot compile the program: " + "; ".join(self.refusals))

    @property
    def _lc_cs(self) -> Any:
        """Thunder's compile statistics. They exist only if `thunder.jit` accepted the program."""
        if self.way != "thunder.jit":
            raise AttributeError("Thunder keeps no statistics of the whole program")
        return self._made._lc_cs

    @property
    def _workbench_jitted(self) -> tuple[Any, ...]:
        """The functions that Thunder has compiled, one for each graph of the program."""
        if self.way != "thunderfx":
            return () if self._made is None else (self._made,)
        return tuple(each for found in self._made._backend.subgraph_infos for each in found.thunder_compiled_fns)


class _StockModule(dynamo.CompiledModule):
    """A module that calls `StockCompiled`. It has the parameters and buffers of the original module."""

    @property
    def refusals(self) -> tuple[str, ...]:
        found: tuple[str, ...] = self.__dict__["_compiled"].refusals
        return found

    @property
    def _workbench_jitted(self) -> tuple[Any, ...]:
        found: tuple[Any, ...] = self.__dict__["_compiled"]._workbench_jitted
        return found


def compile_unmodified(program: Callable[..., Any], entry_points: Sequence[str] = WAYS) -> Any:
    """Compile a program with unmodified Thunder. If the program is a module, the result is a module."""
    compiled: Any = StockCompiled(program, entry_points)
    return _StockModule(program, compiled) if isinstance(program, torch.nn.Module) else compiled


def refusal(entry_point: str, error: BaseException) -> str:
    """Return a message of one line that says why Thunder's function `entry_point` refuses a program."""
    words = one_line(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}")
    return f"{entry_point} refuses it ({words[:_FEW_LETTERS]})"
