"""Capture a program of several graphs: run a copy with fake or real tensors to find the parts, then trace each part."""

from __future__ import annotations

import dataclasses
import hashlib
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from workbench.analysis.memory.multi_graph_memory import RecordedStep
from workbench.compiler.frontend import dynamo
from workbench.compiler.frontend import graph_breaks as parts
from workbench.compiler.frontend.trace_errors import MIXED_TYPES, remedy
from workbench.compiler.trace.source_frames import user_line
from workbench.errors import ProgramError, WorkbenchError, short_repr
from workbench.interop.torch_private import (
    _C,
    FakeTensorMode,
    TorchDispatchMode,
    _autograd,
    _disable_current_modes,
    _functorch_depth,
    _functorch_pop,
    eager_transforms,
    forward_ad,
    tree_iter,
)
from workbench.programs import Program, placement
from workbench.programs.files import describe_error
from workbench.programs.tensors import find_tensors
from workbench.util.interruptions import interruptions_raised

if TYPE_CHECKING:
    from workbench.compiler.driver.capture import Capture


@contextmanager
def end_transforms() -> Iterator[None]:
    """At the end of this context, end `torch.func` transforms that a program has left open after a failed trace.

    Without this context, later PyTorch code would run inside of these transforms.
    """
    depth, nested, level = _functorch_depth(), eager_transforms.JVP_NESTING, forward_ad._current_level
    refused = _autograd._saved_tensors_hooks_get_disabled_error_message()
    try:
        yield
    finally:
        while forward_ad._current_level > level:
            forward_ad.exit_dual_level()
        if level < 0:
            # A graph that fails may have opened a level of which Python does not know. PyTorch opens no second level.
            try:
                forward_ad.enter_dual_level()
            except RuntimeError:
                _C._exit_dual_level(level=0)
            else:
                forward_ad.exit_dual_level()
        eager_transforms.JVP_NESTING = nested
        while _functorch_depth() > depth:
            _functorch_pop()
        # An open transform that differentiates has disabled saved-tensor hooks. Checkpoints need these hooks.
        if refused is None:
            _autograd._saved_tensors_hooks_enable()


@dataclasses.dataclass(frozen=True)
class PartCapture:
    """A part of a program of several graphs.

    Attributes
    ----------
    name : str
        ``part1``, ``part2``, … in the order in which the parts first run.
    piece : Piece
    calls : int
        Number of times that one call of the program runs the part.
    refusal : str
        Reason why PyTorch runs the part uncompiled; empty if Thunder compiles the part.
    captured : Capture or None
        None if PyTorch runs the part.
    """

    name: str
    piece: parts.Piece
    calls: int
    refusal: str
    captured: Capture | None


@dataclasses.dataclass(frozen=True)
class PartsCapture:
    """A program of several graphs that was captured in parts.

    Attributes
    ----------
    program : Program
    executor : str
    parts : tuple of PartCapture
    why : str
        Reason why the program was captured in parts.
    recorded : RecordedStep or str
        The tensors that are alive between the parts, or the reason why they are unknown.
    """

    program: Program
    executor: str
    parts: tuple[PartCapture, ...]
    why: str
    recorded: RecordedStep | str

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the keys of all parts. The digest does not depend on line numbers or shapes."""
        return _fingerprint_of([part.piece.key for part in self.parts])

    @cached_property
    def former_fingerprint(self) -> str:
        """Fingerprint of the program in configs of earlier versions; see `Piece.former_key`."""
        return _fingerprint_of([part.piece.former_key for part in self.parts])


def _fingerprint_of(keys: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(keys).encode()).hexdigest()[:16]


def held_optimizers(program: Program) -> list[torch.optim.Optimizer]:
    """Return the optimizers that a program holds or gets as arguments."""
    return find_tensors((program.callable, program.args, program.kwargs)).optimizers


def _read_remedy(program: Program, error: BaseException) -> str:
    """Return advice for a program that reads tensor values between its graphs.

    The advice depends on the code in the traceback of `error`: the step of an optimizer, or any other code.
    """
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    if any("/torch/optim/" in file and not file.endswith("optimizer.py") for file in files):
        names = sorted({type(each).__name__ for each in held_optimizers(program)})
        return (
            f"{' or '.join(names)} reads values in its step: open the part that returns the loss, and call "
            "loss.backward() and the optimizer's step() outside"
        )
    return (
        "it reads tensor values between graphs: compute with tensors only, as torch.where does, or pass the values to "
        "the program; or open it with device='cpu', so that tensors have values"
    )


@end_transforms()
@interruptions_raised()
def capture_parts(
    program: Program,
    executor: str,
    why: str,
    capture_graph: Callable[[Program, str], Capture],
    *,
    needs_values: bool = False,
    breaks: bool = False,
) -> PartsCapture:
    """Run a copy of a program with Dynamo, cut the captured graphs into parts, and trace each part that is not refused.

    The copy has fake tensors. If the copy fails, for example because the program reads values of tensors, a second copy
    runs with real tensors. With `needs_values`, the first copy has real tensors, unless the program is for a planned
    GPU.

    Parameters
    ----------
    program : Program
    executor : str
    why : str
        Reason why the program is captured in parts.
    capture_graph : callable
        Captures one part. Its arguments are the part as a `Program`, and the reason `why`.
    needs_values : bool, optional
        Whether the program is known to read values of tensors.
    breaks : bool, optional
        Whether Dynamo is known to break the graph of the program.

    Raises
    ------
    ProgramError
        If the program fails or contains no operator, or if PyTorch refuses the types of its tensors. Also if the
        program is for a planned GPU and reads values of tensors.
    """
    mode = program.fake_mode or FakeTensorMode()
    function, args, kwargs = program.callable, program.args, program.kwargs
    with_values = needs_values and program.fake_mode is None
    if not with_values:
        try:
            if program.fake_mode is None:
                with mode:
                    given = (function, args, kwargs)
                    function, args, kwargs = placement.place_objects(given, placement.torch_device(program.device))
            found, recorded = _find_pieces(function, args, kwargs, mode, breaks)
        except BaseException as error:  # the program's own code may raise any error or exit
            refused = isinstance(error, ProgramError) and program.fake_mode is None
            if isinstance(error, WorkbenchError | KeyboardInterrupt) and not refused:
                raise
            if program.fake_mode is not None:
                if failed := dynamo.failed_operator(error):
                    raise ProgramError(failed) from error
                told = remedy(describe_error(error)) or _read_remedy(program, error)
                name = short_repr(program.name)
                raise ProgramError(
                    f"{user_line(error)}{name} cannot be opened in parts: {told} ({describe_error(error)})"
                ) from error
            with_values = True
    if with_values:
        why = (
            f"{why}; the program reads values between its graphs, so a copy of the program ran with real tensors, and "
            "the plans of the parts depend on the values in this copy"
        )
        function, args, kwargs, found, recorded = _find_pieces_with_values(program, mode, breaks)
    if not found:
        return PartsCapture(program, executor, (_whole_program_opaque(program),), why, _ALL_OPAQUE)
    made = []
    for at, seen in enumerate(found):
        captured, refusal = None, seen.piece.refusal
        name = f"part{at + 1}"
        if not refusal:
            whole = dynamo.prepare_graph(function, args, kwargs, seen.piece.graph, seen.inputs)
            kept = seen.piece.grad or "grad" in program.modes
            own = program.spec.get("modes", {}) | ({} if kept else {"grad": "off"})
            part = dataclasses.replace(
                program,
                name=f"{program.name} {name}",
                callable=whole.function,
                args=whole.inputs,
                kwargs={},
                spec={**program.spec, "modes": own},
            )
            try:
                captured = capture_graph(part, why)
            except ProgramError as error:
                refusal = str(error)
        made.append(PartCapture(name, seen.piece, seen.calls, refusal, captured))
    if program.fake_mode is None and any(MIXED_TYPES in part.refusal for part in made):
        # Operators on fake tensors accept data types that PyTorch may refuse, so ask PyTorch.
        count_operators(program)
    if not isinstance(recorded, str):
        recorded = recorded.with_part_names({part.piece.key: part.name for part in made})
    return PartsCapture(program, executor, tuple(made), why, recorded)


_ALL_OPAQUE = "PyTorch runs the whole program"
NO_GRAPH = "Dynamo compiles none of its functions"
"""Beginning of the reason to run a whole program in PyTorch. The program has then run in eager PyTorch."""
WITHOUT_GRAPH = f"{NO_GRAPH}: {_ALL_OPAQUE}"
"""Reason to run a whole program in PyTorch, if Thunder's interpreter cannot trace it either."""


class _OperatorCount(TorchDispatchMode):
    """Counts the operators that run, and finds a kind of tensor or an operator that Thunder lacks."""

    supports_higher_order_operators = True
    count, lacking = 0, ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        layouts = [each.layout for each in tree_iter(args) if isinstance(each, torch.Tensor)]
        if unknown := [layout for layout in layouts if layout is not torch.strided]:
            self.lacking = f"tensors with the layout {unknown[0]}"
        elif getattr(func, "namespace", "") == "aten" and _writes_beside_result(func._schema):
            self.lacking = f"{func}, which writes into its inputs"
        return func(*args, **(kwargs or {}))


def _writes_beside_result(schema: Any) -> bool:
    """Return whether an operator writes into an input that is not its result. Thunder knows only batch norms of these.

    Operators in place have names with a final underscore, and an operator's overloads with ``out=`` have names, too.
    """
    plain = not schema.name.endswith("_") and not schema.overload_name
    return plain and schema.is_mutable and "batch_norm" not in schema.name


def count_operators(program: Program) -> _OperatorCount:
    """Run a copy of a program in eager PyTorch, and return a record of the operators that run.

    Raises
    ------
    ProgramError
        If the program fails. The message has the user's line and PyTorch's error.
    """
    restored, settings = placement.restored_random_states(), placement.restored_settings()
    try:
        # A trace that failed inside of a checkpoint has left the checkpoint's dispatch mode, which calls user code.
        with _disable_current_modes(), placement.seeded(0), restored, settings, redirect_stdout(sys.stderr):
            function, args, kwargs = _copies_with_values(program)
            with _OperatorCount() as counted:
                function(*args, **kwargs)
    except (WorkbenchError, KeyboardInterrupt):
        raise
    except BaseException as error:  # the program's own code may raise any error or exit
        told = describe_error(error)
        advice = f"; {found}" if (found := remedy(told)) else ""
        name = short_repr(program.name)
        raise ProgramError(f"{user_line(error)}{name} fails in eager PyTorch: {told}{advice}") from error
    return counted


def _whole_program_opaque(program: Program) -> PartCapture:
    """Return one opaque part that is the whole program, because Dynamo finds no graph in the program."""
    if program.fake_mode is not None or not (counted := count_operators(program)).count:
        raise ProgramError(f"{short_repr(program.name)} cannot be opened in parts: Dynamo found no operator in it")
    refusal = WITHOUT_GRAPH
    if counted.lacking:
        refusal = f"{NO_GRAPH}, and Thunder has no {counted.lacking}: {_ALL_OPAQUE}"
    piece = parts.Piece(torch.fx.GraphModule({}, torch.fx.Graph()), "0" * 12, refusal, "", "")
    return PartCapture("part1", piece, 1, refusal, None)


type _Pieces = tuple[list[parts.FirstPieceRun], RecordedStep | str]


def _find_pieces(
    function: Any, args: Any, kwargs: Any, mode: FakeTensorMode, breaks: bool, *, with_values: bool = False
) -> _Pieces:
    """Run a program with Dynamo, and return its pieces.

    Text that the program prints goes to stderr, because the workbench's commands write their results to stdout.
    """
    with (
        redirect_stdout(sys.stderr),
        warnings.catch_warnings(),
        placement.restored_random_states(),
        placement.restored_settings(),
    ):
        # Ignore a learning rate scheduler's warning that the optimizer has taken no step. The warning is about the
        # user's optimizer, but here a copy of this optimizer takes the step.
        warnings.filterwarnings("ignore", r"(?s).*`optimizer\.step\(\)`.*`lr_scheduler\.step\(\)`", UserWarning)
        return parts.pieces_of(function, args, kwargs, mode, with_values=with_values, breaks=breaks)


def _copies_with_values(program: Program) -> tuple[Any, Any, Any]:
    given = (program.callable, program.args, program.kwargs)
    try:
        made: tuple[Any, Any, Any] = placement.place_objects(given, placement.torch_device(program.device), copied=True)
    except (WorkbenchError, KeyboardInterrupt):
        raise
    except BaseException as error:  # the user's own classes may raise any error when they are copied
        raise ProgramError(
            f"{user_line(error)}{short_repr(program.name)} or one of its arguments cannot be copied, but the workbench "
            f"runs only copies; copy.deepcopy must work: {describe_error(error)}"
        ) from error
    return made


def _find_pieces_with_values(program: Program, mode: FakeTensorMode, breaks: bool) -> tuple[Any, Any, Any, Any, Any]:
    """Run a copy of a program with real tensors. Return the copies of the program and its arguments, and the pieces."""
    try:
        function, args, kwargs = _copies_with_values(program)
        with placement.seeded(0):
            found, recorded = _find_pieces(function, args, kwargs, mode, breaks, with_values=True)
    except (WorkbenchError, KeyboardInterrupt):
        raise
    except BaseException as error:  # the program's own code may raise any error or exit
        count_operators(program)
        raise ProgramError(
            f"{short_repr(program.name)} runs in eager PyTorch, but not in parts: {describe_error(error)}"
        ) from error
    return function, args, kwargs, found, recorded
