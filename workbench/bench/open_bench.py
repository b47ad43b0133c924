"""`open`: trace a program, plan it, and return its `Workbench`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.analysis.cost.machines import H100, Machine
from workbench.bench.opening_progress import OpeningProgress
from workbench.bench.report import open_saved_plan
from workbench.bench.session.multi_graph import PartsBench
from workbench.bench.session.workbench import Workbench
from workbench.core.config import CAPTURES, Config
from workbench.errors import ConfigError, ConfigWarning, ProgramError, ProgramWarning, names_by_reason, short_repr
from workbench.programs import parallel_of, resolve
from workbench.programs.modes import active_modes
from workbench.programs.user_arguments import check_program, inputs_of, original_of
from workbench.util.gc_pause import paused_gc

DEFAULT_RANKS = 8
"""Number of ranks of a shared program if the caller gives no number. One machine usually has eight GPUs."""


@paused_gc()
def open(
    model_or_fn_or_name: Any,
    *args: Any,
    device: str | None = None,
    executor: str | None = None,
    config: Config | str | Path | None = None,
    ranks: int | None = None,
    parallel: str = "",
    machine: str | Machine | None = None,
    capture: str | None = None,
    seed: int | None = None,
    settings: Mapping[str, Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    **inputs: Any,
) -> Workbench:
    """Open a program in the workbench: trace it once and plan it.

    Parameters
    ----------
    model_or_fn_or_name : callable, module or str
        A function or module, a built-in name, or ``file.py:factory``. The path of a saved plan, ``NAME.plan.json``, is
        also accepted. `open` then returns a `SavedPlan`, which needs neither the program nor Thunder.
    *args, **inputs
        Example inputs. If a program is opened by its name, keywords are settings of its factory.
    device : {'cpu', 'cuda', 'planned'}, optional
        Device of the program; ``planned`` means a GPU that is not attached. By default the device of the config, or of
        the first tensor, or ``planned`` if a tensor is on ``meta``. For a name, the default is ``cuda`` if a GPU is
        attached, and ``cpu`` if not.
    executor : {'torch', 'torchcompile', 'torchcompile_aten', 'nvfuser'}, optional
        Software that runs statements. By default the executor of the config. Without a config, the default is nvFuser
        on a GPU, and PyTorch's own operators on a CPU or if nvFuser cannot be used.
    config : Config or path, optional
        Initial choices. Choices that do not fit the program are left out, with a `ConfigWarning`. A config also causes
        a warning if it was made with different versions, for different statements, or for the module in another mode
        (training or evaluation).
    ranks : int, optional
        Number of processes that share the program. A plan is made for rank 0 and needs no other rank; a run starts all
        ranks. By default the config's number if it is above one; else `DEFAULT_RANKS` for a shared program, and one for
        any other program.
    parallel : {'fsdp', 'fsdp_zero3', 'ddp', 'tensor'}, optional
        Method by which the ranks share the program. ``fsdp``: parameters are sharded, and gathered once in a step.
        ``fsdp_zero3``: parameters are sharded, and gathered again for the backward. ``ddp``: parameters are replicated.
        ``tensor``: pairs of linear layers are split. By default the method of the config or of the built-in program.
    machine : str or Machine, optional
        Machine whose rates are used to simulate ranks, and to predict step times on a GPU: ``H100`` (the default),
        ``H200``, ``A100``, ``PCIe box``, ``this CPU``, ``this GPU`` (the first attached GPU), or a
        `workbench.analysis.cost.machines.Machine` of your own.
    capture : {'auto', 'dynamo', 'interpreter', 'parts'}, optional
        Capture method. ``dynamo``: Dynamo captures one graph, which suits most models. ``interpreter``: Thunder's
        bytecode interpreter captures one graph. ``parts``: Dynamo captures several graphs; a new graph begins where
        Dynamo breaks the graph or Thunder does not know an operator. ``auto`` tries dynamo, then parts, then
        interpreter; `Workbench.capture_reason` says which method was used, and why. By default the method of the
        config, or ``auto``. For a program of one graph, site ids do not depend on the method. Site ids of parts begin
        with ``part1:``, ``part2:``; `Workbench.parts` lists the parts.
    seed : int, optional
        Seed with which a factory draws parameters and inputs; 0 by default.
    settings : mapping, optional
        Settings of a factory. Use this for a setting that has the name of a parameter above.
    kwargs : mapping, optional
        Example inputs. Use this for an input that has the name of a parameter above: ``kwargs={"seed": 3}`` for
        ``forward(self, x, seed=0)``.

    Returns
    -------
    Workbench
        A `PartsBench` if the program has several graphs.

    Raises
    ------
    ProgramError, DeviceError, ConfigError
        If an argument is not legal, or the program cannot be traced; the message has the reason.
    """
    if isinstance(model_or_fn_or_name, str | Path) and str(model_or_fn_or_name).endswith(".plan.json"):
        if args or inputs or kwargs or settings or config or device or executor:
            raise ConfigError(
                f"{model_or_fn_or_name} is a saved plan and is opened without other arguments; choose() makes "
                "choices on it"
            )
        saved: Any = open_saved_plan.read_saved_plan(model_or_fn_or_name)
        return saved  # type: ignore[no-any-return]

    from workbench.compiler import api
    from workbench.compiler.frontend.fake_process_group import ranks_of
    from workbench.compiler.interop import devices
    from workbench.core.config import Config, load

    if not isinstance(model_or_fn_or_name, str | Path):
        model_or_fn_or_name = original_of(model_or_fn_or_name)
        check_program(model_or_fn_or_name)
        taken = {
            "device": device,
            "executor": executor,
            "config": config,
            "ranks": ranks,
            "parallel": parallel or None,
            "machine": machine,
            "capture": capture,
            "seed": seed,
            "settings": settings,
        }
        kwargs, inputs = inputs_of(model_or_fn_or_name, args, inputs, kwargs, taken), {}
    if isinstance(config, str | Path):
        config = load(config)
    if config is not None and not isinstance(config, Config):
        raise ConfigError(
            f"config= is a wb.Config or the path of an exported file; given {short_repr(config)}. "
            "bench.choose({...}) makes choices of a dict"
        )
    if config is not None:
        device = device or config.device
        executor = executor or config.executor
        ranks = config.ranks if ranks is None and config.ranks > 1 else ranks
        if model_or_fn_or_name == config.program:
            settings = {**config.settings, **(settings or {})}
    if capture is None:
        capture = config.capture if config is not None else "auto"
    if capture not in ("auto", *CAPTURES):
        raise ConfigError(f"there is no capture {short_repr(capture)}; legal: auto, {', '.join(CAPTURES)}")
    if device is not None or executor is not None:
        devices.check(device or "cpu", executor or "torch")
    with active_modes(config.modes if config is not None else {}):
        program = resolve(
            model_or_fn_or_name, *args, settings=settings, device=device, seed=seed, kwargs=kwargs, **inputs
        )
        executor = executor or devices.default_executor(program.device)
        devices.check(program.device, executor)
        parallel = parallel or (config.parallel if config is not None else "") or parallel_of(program.name)
        count = ranks if ranks is not None else DEFAULT_RANKS if parallel else 1
        shared = ranks_of(program.name, program.callable, count, parallel)
        autocast = [name for name in program.modes if name.startswith("autocast")]
        if shared is not None and autocast:
            raise ProgramError(
                f"{shared.count} ranks and autocast ({autocast[0]}: {program.modes[autocast[0]]}): ranks under "
                "autocast can hang in a collective. Open the program outside of torch.autocast, with the module in "
                "the wanted data type (model.to(torch.bfloat16)), or open it under autocast for one process"
            )
        with OpeningProgress(program.name) as progress:
            captured = api.capture(program, executor, shared, capture)
            progress.say("planning")
            kind: Any = Workbench if isinstance(captured, api.Capture) else PartsBench
            bench: Workbench = kind(captured, config.choices if config is not None else None, machine or H100)
    if isinstance(captured, api.Capture):
        for doubt in captured.doubts:
            warnings.warn(ProgramWarning(doubt), stacklevel=2)
    if config is not None:
        none_fits = 0 < len(config.choices) == len(bench.unmatched)
        fingerprint = captured.fingerprint
        if not isinstance(captured, api.Capture) and config.fingerprint == captured.former_fingerprint:
            fingerprint = config.fingerprint
        # If no choice fits, no choice can have another effect here.
        if not none_fits and (differences := config.differences(fingerprint, program.training)):
            warnings.warn(ConfigWarning(differences), stacklevel=2)
        if bench.unmatched:
            made_for = f"; the config was made for {short_repr(config.program)}" if none_fits else ""
            left_out = (
                f"{len(bench.unmatched)} of {len(config.choices)} choices do not fit {program.name!r} and are left "
                f"out{made_for}: {names_by_reason(dict(sorted(bench.unmatched.items())))}"
            )
            warnings.warn(ConfigWarning(left_out), stacklevel=2)
    return bench
