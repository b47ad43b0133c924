"""Capture a program, or read the captured program from disk if the code that tracing visited has not changed."""

from __future__ import annotations

import dataclasses
import time
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

from workbench.compiler.driver import capture as capturing
from workbench.compiler.driver import capture_cache
from workbench.compiler.driver.capture import Capture
from workbench.compiler.driver.capture_parts import PartsCapture
from workbench.compiler.frontend import fake_process_group
from workbench.compiler.fusion.fusion_passes import own_names
from workbench.compiler.interop import devices
from workbench.compiler.layers.expand_trace import TraceExpander
from workbench.compiler.lowering import patch_context
from workbench.compiler.pipeline.compilation import Hooks
from workbench.compiler.pipeline.lever_context import LeverContext
from workbench.compiler.planner.planner import BasePlan, replan
from workbench.compiler.trace.bsym_memo import PlanMemo
from workbench.compiler.trace.lazy_value import LazyValue
from workbench.interop.torch_private import FakeTensorMode
from workbench.programs import Program, modes
from workbench.util.gc_pause import paused_gc
from workbench.util.planning_lock import one_at_a_time


@one_at_a_time
@paused_gc()
def capture(
    program: Program, executor: str, ranks: fake_process_group.Ranks | None = None, front_end: str = "interpreter"
) -> Capture | PartsCapture:
    """Trace a program once, or read it from the disk cache; see `workbench.compiler.driver.capture.capture`.

    Raises
    ------
    ProgramError
        If the front end cannot trace the program; the message contains the reason.
    """
    begun = time.perf_counter()
    entry, why_not = capture_cache.entry_of(program, executor, ranks, front_end)
    if entry is not None and (known := _from_disk(program, executor, ranks, entry, begun)):
        return known
    made = capturing.capture(program, executor, ranks, front_end, entry)
    if isinstance(made, Capture):
        made.planned.entry, made.planned.on_disk = entry, why_not
    return made


def _from_disk(
    program: Program,
    executor: str,
    ranks: fake_process_group.Ranks | None,
    entry: capture_cache.CacheEntry,
    begun: float,
) -> Capture | None:
    """Return the capture of a program from the disk cache; None if the cache has no valid entry for the program."""
    kept = PlanMemo()
    hooks = Hooks(executor, {}, None, ranks.parallel if ranks is not None else "", kept)
    with ExitStack() as inside:
        inside.enter_context(patch_context.install_patches())

        def enter() -> AbstractContextManager[Any]:
            inside.enter_context(modes.active_modes(program.modes))
            if program.fake_mode is not None:
                inside.enter_context(devices.planned_gpu(program.fake_mode))
            if ranks is not None:
                group = fake_process_group.fake_group(ranks, program.callable, program.device)
                transforms[1:1] = inside.enter_context(group)
            return nullcontext()

        # Make the executors before the file is read. Reading looks up symbols by the name of their executor, and making
        # an executor registers its name.
        executors, transforms = hooks.executors(), hooks.transforms()
        found = entry.read_state(enter)
        if found is None:
            return None

        def stand_in() -> None:
            """Do nothing. `thunder.jit` needs a function, but the program is not traced again."""

        # Transforms that share a program among ranks need the module itself.
        whole = found["way"] == "interpreter" or ranks is not None
        function = program.callable if whole else stand_in
        jitted = patch_context.jit(function, executors=executors, transforms=transforms)
        mode = program.fake_mode or FakeTensorMode()
        arguments, unread = capture_cache.tensors_of(found["tensors"], mode)
    jitted._lc_cs.last_traces = [found["initial"] or found["reduced"].program]
    of_context = dict(found["context"])
    joint = of_context.pop("joint")
    context = LeverContext(**of_context, gradients=LazyValue(lambda: joint), arguments=arguments, unread=unread)
    state = (jitted._lc_cd, jitted._lc_cs, found["cache_info"])
    reduced, lazy_context = found["reduced"], LazyValue(lambda: context)
    if reduced is not None:
        lazy_context = LazyValue(lambda: _expand_context(context, TraceExpander(reduced), captured))
    way = (found["way"], found["why"])
    again = LazyValue(lambda: replan(captured, {}))
    plan = capture_cache.plan_of(found, again, time.perf_counter() - begun)
    captured = Capture(
        program,
        executor,
        lazy_context,
        context.origins,
        plan.opening,
        ranks,
        *state,
        *way,
        few=None if reduced is None else context,
        reduced=reduced,
        told=found["doubts"],
        kept=kept,
    )
    captured.planned.on_disk = "from disk"
    captured.planned.bases[()] = BasePlan(plan, lazy_context, LazyValue(lambda: again.value[1]))
    return captured


def _expand_context(few: LeverContext, unfolder: TraceExpander, captured: Capture) -> LeverContext:
    """Add the repeated layers to the context `few`, and return the context of the program with all layers."""
    with captured.thunder_state():
        gradients, claimed = unfolder.expand_later(few.joint), unfolder.expand(few.claimed)
        whole = dataclasses.replace(
            few, gradients=gradients, claimed=own_names(claimed), program=few.program and unfolder.program
        )
        return dataclasses.replace(whole.with_tensors(few.arguments, few.unread, few.beside), few=few)
