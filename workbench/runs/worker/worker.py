"""The process of one run: builds a program, compiles it, steps it, measures it, and logs the results.

`workbench.runs.process.start_run` executes ``python -m workbench.runs.worker.worker RUN_DIR``. The worker's standard
input is a pipe to which nothing is written. When the process that requested the run ends, the other end of the pipe
closes, and the system kills the worker's whole process group, even during a compilation.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import statistics
import sys
import time
import traceback
import warnings
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import psutil

from workbench.errors import ConfigWarning, RunError, is_out_of_memory
from workbench.runs.log import compile_stages, event_log, events
from workbench.runs.process import request, worker_process
from workbench.runs.process.failure_reason import explain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from workbench.compiler.driver.statement_timers import StatementClocks
    from workbench.compiler.frontend.graph_breaks import CompiledParts
    from workbench.runs.log.tensor_error import TensorError
    from workbench.runs.measure.accuracy import Accuracy, Parts, Stepper

    type Compiler = Callable[[Callable[..., Any], compile_stages.StageObserver | None], Callable[..., Any]]
    type Transforms = Callable[[], Sequence[Any]]

PLAIN_TORCH = Path(__file__).parents[2] / "plain_torch"
"""Folder of the code that applies choices in plain PyTorch."""

_PACKAGES = ("thunder-workbench", "torch", "lightning-thunder", "nvfuser-cu128-torch210", "triton", "numpy")


class RankGroup(Protocol):
    """The other ranks that share a program with this process; see `workbench.runs.worker.rank_worker`."""

    def options(self, options: request.RunOptions) -> request.RunOptions:
        """Return the options with this rank's own seed and number of threads."""

    def build(self, build: Callable[[str, int], Parts]) -> Callable[[], Parts]:
        """Return a function that builds this rank's program. `build` builds a program for a device and a seed.

        All ranks have the same parameters; each has its own inputs.
        """

    def transforms(self) -> Sequence[Any]:
        """Return new Thunder transforms that share the program among the ranks; each compilation needs its own."""

    def agree_options(self, options: request.RunOptions, step_s: float) -> request.RunOptions:
        """Return the options with the same number of steps for all ranks, given this rank's step time `step_s`."""

    def check(self, compile_program: Compiler, build: Callable[[], Parts], log: event_log.EventLog, seed: int) -> None:
        """Train under the plan, with unmodified Thunder and in eager PyTorch; compare and log the results."""

    def leave(self) -> None:
        """Wait until all ranks are done."""


def main(run_dir: Path) -> None:
    """Execute the run of a folder, and end this process."""
    worker_process.die_with_parent()
    carry_out(run_dir, functools.partial(run_program, run_dir))


def carry_out(log_dir: Path, run: Callable[[event_log.EventLog], None]) -> NoReturn:
    """Open a log, write a start event, call `run` with the log, write a terminal event, and end the process."""
    log = event_log.EventLog(log_dir / event_log.LOG_FILE)
    log.write(events.Started(t_s=log.now_s(), pid=os.getpid(), time_s=time.time() - log.now_s()))
    _report_warnings(log)
    try:
        run(log)
        end: events.Event = events.Finished(t_s=log.now_s())
    except BaseException as error:  # noqa: BLE001  # the log reports any failure
        end = events.Failed(t_s=log.now_s(), reason=explain(error), detail=traceback.format_exc())
    log.write(end)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the program may have closed or replaced the file
            stream.flush()
    # Exit at once, because threads and pools of the program or of a compiler would delay the end of the process.
    os._exit(0 if isinstance(end, events.Finished) else 1)


def compiler_of(config_text: str | None, name: str, transforms: Transforms = tuple) -> Compiler:
    """Return a function that compiles a program under a config, or with unmodified Thunder if `config_text` is None.

    The config is read at once. The compiler is imported when the function is first called.

    Parameters
    ----------
    config_text : str, optional
    name : str
        Name of the config for error messages, for example its path.
    transforms : callable, optional
        Returns Thunder transforms that share the program among ranks.
    """
    if config_text is None:

        def compile_unmodified(
            callable_: Callable[..., Any], observer: compile_stages.StageObserver | None
        ) -> Callable[..., Any]:
            from workbench.compiler import api

            return api.unmodified(callable_, transforms())

        return compile_unmodified
    from workbench.core import config

    choices = config.parse(config_text, name)
    return lambda callable_, observer: choices.jit(callable_, observer=observer, transforms=transforms())


def torch_compiler(target: request.TorchTarget) -> Compiler:
    """Return a function that compiles a program by plain `torch.compile` with choices."""

    def compile_plain(
        callable_: Callable[..., Any], observer: compile_stages.StageObserver | None
    ) -> Callable[..., Any]:
        from workbench.plain_torch import compiled  # imports PyTorch's compiler
        from workbench.runs.measure import accuracy

        return accuracy.unnamed(compiled.compile(callable_, choices=target.by_key, budget=target.budget))

    return compile_plain


def run_program(
    run_dir: Path, log: event_log.EventLog, join: Callable[[request.RunRequest], RankGroup] | None = None
) -> None:
    """Build, compile, step, measure and check the program of a run's folder.

    Parameters
    ----------
    run_dir : Path
    log : EventLog
    join : callable, optional
        For a rank of a run with several ranks: joins the other ranks, and returns the `RankGroup`.
    """
    asked = request.read_request(run_dir)
    options = asked.options
    import torch

    group = join(asked) if join is not None else None
    if group is not None:
        options = group.options(options)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    log.write(_environment(log))
    from workbench.runs.measure import memory_meter

    sampler = memory_meter.MemorySampler(
        log, options.memory_interval_s, apart=str(asked.program["device"]).startswith("cuda")
    )
    sampler.start()
    try:
        _measure(run_dir, asked, group, options, log)
    finally:
        # The terminal event must be the log's last line.
        sampler.stop()


def _measure(
    run_dir: Path,
    run_request: request.RunRequest,
    group: RankGroup | None,
    options: request.RunOptions,
    log: event_log.EventLog,
) -> None:
    from workbench.runs.measure import memory_meter

    _phase(log, "build")
    build, transforms = _builder(run_dir, run_request, group), group.transforms if group is not None else tuple
    path = run_dir / request.CONFIG_FILE
    own = path.read_text() if path.exists() else None
    torch_target = run_request.torch
    compile_program = compiler_of(own, str(path), transforms) if torch_target is None else torch_compiler(torch_target)
    fusions = fusions_of(run_request.program["device"])
    with fusions.kept():
        recorded, kernels_run, stepper = _compile(
            compile_program,
            build,
            log,
            options,
            _modes(run_request),
            stock=own is None and torch_target is None,
            by_thunder=torch_target is None,
        )

    _phase(log, "warmup")
    step_s = _warm_up(stepper, options.warmup if group is None else max(options.warmup, 1), log)
    if group is not None:
        options = group.agree_options(run_request.options, step_s)
    kernels: list[dict[str, Any]] = []
    if options.measure_peak:
        _phase(log, "memory")
        peak = memory_meter.measure_peak(stepper, _clocks(stepper, time.time_ns, frees=True))
        kernels = peak.kernels
        log.write(events.PeakMeasured(t_s=log.now_s(), **vars(peak)))
        _warn_of_other_call(stepper, run_request.predicted_peak_bytes, peak.measured_peak_bytes, log)
    if options.memory_snapshot:
        from workbench.runs.measure import memory_snapshot

        _phase(log, "memory")
        memory_snapshot.save_snapshot(
            memory_snapshot.take_snapshot(stepper, _clocks(stepper, time.time_ns, frees=True)), run_dir
        )
    if options.samples:
        _phase(log, "time")
        with fusions.shared():
            variants = _variants(run_request, own, build, transforms, options, log)
        _time(stepper, variants, log, options)
    if options.clocks and (clocks := _clocks(stepper, time.perf_counter_ns)) is not None:
        from workbench.runs.measure import statement_times as clocking

        _phase(log, "clocks")
        works = [clocking.DeviceActivity(**kernel) for kernel in kernels]
        try:
            log.write(clocking.measure(stepper, clocks, options.sampling_s / 2, works, log.now_s, _progress(log)))
        except clocking.UnsteadyError as error:
            log.write(events.Warned(t_s=log.now_s(), message=str(error)))
    if options.clocks and (compiled := _parts_of(stepper)) is not None:
        from workbench.runs.measure import part_times

        _phase(log, "clocks")
        log.write(part_times.measure(stepper, compiled, _names_of_parts(own), options.sampling_s / 2, log.now_s))
    if options.check_accuracy:
        _phase(log, "accuracy")
        del stepper  # free its memory, which the reference programs need
        with fusions.shared():
            if group is not None:
                group.check(compile_program, build, log, options.seed)
            else:
                _check(recorded, kernels_run, build, log, options.seed, run_request, run_dir, own)
        if group is None and options.measure_peak:
            _measure_eager(build, log, options, _modes(run_request))
    if group is not None:
        group.leave()


_SAME_PEAK = 0.01
"""Largest difference of two peaks that count as equal, as a share of the predicted one."""


def _warn_of_other_call(stepper: Any, predicted: int | None, measured: int, log: event_log.EventLog) -> None:
    """Warn if the predicted peak is that of another call, because the program was captured again."""
    change = getattr(stepper.run, "_last_change", str)()
    if change and predicted is not None and abs(measured - predicted) > _SAME_PEAK * predicted:
        message = f"the predicted peak is that of the first call, but the program was captured again, at {change}"
        log.write(events.Warned(t_s=log.now_s(), message=f"{message}: the measured peak is that of a later call"))


_PROGRESS_S = 0.5
"""Least seconds between two records of progress, because writing a record takes time."""


def _progress(log: event_log.EventLog) -> Callable[[int, int, float], None]:
    """Return a function that logs the progress of a phase."""
    written_s = log.now_s()

    def write(done: int, count: int, left_s: float) -> None:
        nonlocal written_s
        if log.now_s() - written_s >= _PROGRESS_S:
            written_s = log.now_s()
            log.write(events.Progress(t_s=written_s, done=done, count=count, left_s=left_s))

    return write


def _parts_of(stepper: Stepper) -> CompiledParts | None:
    """Return the parts of the program; None if it was not compiled in parts."""
    from workbench.compiler.frontend.graph_breaks import parts_of

    return parts_of(stepper.run)


def _names_of_parts(config_text: str | None) -> dict[str, str]:
    """Return the name of each part that a config lists, by the key of the part."""
    from workbench.core import config

    if config_text is None:
        return {}
    return {key: name for name, _, key, _ in config.parse(config_text, request.CONFIG_FILE).read_parts()}


class SharedFusions(Protocol):
    """Cache of compiled fusions: a fusion that occurs several times in a run need not be compiled again."""

    def kept(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which every fusion is compiled, so that its compile time is measured, and then cached."""

    def shared(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which cached fusions are not compiled again."""


class _NoFusions:
    """Stand-in for `SharedFusions` if nvFuser compiles nothing."""

    def kept(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    shared = kept


def fusions_of(device: str) -> SharedFusions:
    """Return the cache of compiled fusions for a run on `device`; without nvFuser, the cache does nothing."""
    from workbench.core.executor import why_no_nvfuser

    if not device.startswith("cuda") or why_no_nvfuser():
        return _NoFusions()
    from workbench.compiler.fusion.definition_cache import Definitions

    return Definitions()


def _warm_up(stepper: Stepper, steps: int, log: event_log.EventLog) -> float:
    """Run `steps` steps, log their times, and return the wall time of the last step in seconds."""
    from workbench.runs.measure import interleaved_timing

    step_s = 0.0
    for _ in range(steps):
        step_s = interleaved_timing.time_step(stepper).wall_s
        log.write(events.Step(t_s=log.now_s(), seconds=step_s, warmup=True))
    return step_s


def _time(stepper: Stepper, variants: dict[str, Stepper], log: event_log.EventLog, options: request.RunOptions) -> None:
    """Time the run's own steps, interleaved with steps of the variants, and log the times."""
    from workbench.runs.measure import interleaved_timing

    own = ""  # a name that no variant uses

    def on_sample(name: str, sample: interleaved_timing.StepTime) -> None:
        if name == own:
            log.write(events.Step(t_s=log.now_s(), seconds=sample.wall_s, warmup=False))

    steppers = {own: stepper, **variants}
    load = interleaved_timing.LoadWatch()
    found = interleaved_timing.take_interleaved(
        {name: functools.partial(interleaved_timing.time_step, each) for name, each in steppers.items()},
        options.samples,
        options.sampling_s * len(steppers),
        seed=options.seed,
        on_sample=on_sample,
        on_progress=_progress(log),
    )
    other_cores = load.busy_cores()
    samples_s = [sample.wall_s for sample in found[own]]
    step = interleaved_timing.estimate(samples_s)
    yardsticks_s = [sample.yardstick_s for samples in found.values() for sample in samples]
    log.write(
        events.StepTimes(
            t_s=log.now_s(),
            step_s=step.median,
            samples_s=samples_s,
            low_s=step.low,
            high_s=step.high,
            host_s=statistics.median(sample.host_s for sample in found[own]),
            device_s=statistics.median(sample.device_s for sample in found[own]),
            noise=interleaved_timing.noise(yardsticks_s),
            yardstick_s=statistics.median(yardsticks_s),
            other_cores=other_cores,
            free_cores=(os.cpu_count() or 1) - _threads(stepper) - other_cores,
        )
    )
    for name in variants:
        other_s = [sample.wall_s for sample in found[name]]
        ratio = interleaved_timing.ratio(other_s, samples_s, paired=True)
        log.write(
            events.VariantTimes(
                t_s=log.now_s(),
                name=name,
                samples_s=other_s,
                step_s=statistics.median(other_s),
                ratio=ratio.median,
                ratio_low=ratio.low,
                ratio_high=ratio.high,
            )
        )


def _threads(stepper: Stepper) -> int:
    """Return the number of threads of this process that compute on the CPU in a step."""
    import torch

    return torch.get_num_threads() if stepper.device.type == "cpu" else 1


def _variants(
    run_request: request.RunRequest,
    own: str | None,
    build: Callable[[], Parts],
    transforms: Transforms,
    options: request.RunOptions,
    log: event_log.EventLog,
) -> dict[str, Stepper]:
    """Compile each requested variant of the program and warm it up; return the steppers by the variants' names."""
    from workbench.runs.measure import accuracy, cuda_graph

    others: dict[str, tuple[str | None, type[Stepper]]] = {
        name: (text, accuracy.Stepper) for name, text in run_request.variants.items()
    }
    if options.cuda_graph:
        others[cuda_graph.NAME] = (own, cuda_graph.GraphedStepper)
    found: dict[str, Stepper] = {}
    for name, (text, kind) in others.items():
        try:
            callable_, args, kwargs = build()
            jitted = compiler_of(text, name, transforms)(callable_, None)
            found[name] = kind(callable_, args, kwargs, jitted, seed=options.seed, modes=_modes(run_request))
            _warm_up(found[name], max(options.warmup, 1), log)
        except Exception as error:
            raise RunError(f"{name}, to be timed interleaved with the run: {explain(error)}") from error
    return found


def _clocks(stepper: Stepper, clock: Callable[[], int], *, frees: bool = False) -> StatementClocks | None:
    """Return clocks for the statements of the program; None if Thunder did not compile it."""
    if not hasattr(stepper.run, "_lc_cs"):
        return None
    from workbench.compiler.driver.statement_timers import StatementClocks

    return StatementClocks(stepper.run, clock, frees=frees)


def _compile(
    compile_program: Compiler,
    build: Callable[[], Parts],
    log: event_log.EventLog,
    options: request.RunOptions,
    modes: dict[str, str],
    *,
    stock: bool,
    by_thunder: bool,
) -> tuple[dict[str, Any], dict[str, str], Stepper]:
    """Compile the program by its first forward and backward, and log the compile time.

    Return the results of this step, its kernels, and a stepper for further steps. The results and kernels are empty if
    accuracy is not checked. The kernels are empty, too, if Thunder does not compile the program.
    """
    from workbench.programs.placement import seed_all
    from workbench.runs.measure import accuracy

    original, args, kwargs = build()
    # These imports take seconds. They come after `build`, so that a program that cannot be built fails at once. They
    # come before the start of the compile phase, so that they do not count as compile time.
    from workbench.compiler.api import proofs_of
    from workbench.compiler.fastpath import install

    _phase(log, "compile")
    recorder = compile_stages.Recorder(log)
    start_s = log.now_s()
    jitted = compile_program(original, recorder)
    stepper = accuracy.Stepper(original, args, kwargs, jitted, seed=options.seed, modes=modes)
    seed_all(options.seed)
    # Time unmodified Thunder without the workbench's patches.
    with install.unpatched_thunder() if stock else contextlib.nullcontext():
        outputs = stepper.forward()
    stepper.synchronize()
    forward_s = log.now_s()
    _thunders_own_stages(jitted, recorder, log, start_s, forward_s)
    backward_s = log.now_s()
    differentiated = stepper.backward(outputs)
    stepper.synchronize()
    end_s = log.now_s()
    if differentiated:
        recorder.rest_of("first backward", backward_s, end_s)
    shares, attributed = compile_stages.attribute(recorder.intervals, start_s, end_s)
    proofs = proofs_of(jitted)
    log.write(
        events.Compiled(
            t_s=log.now_s(),
            compile_s=end_s - start_s,
            attributed=attributed,
            stages=shares,
            # A plan runs only if it is proven to compute the same as the program or as the stock plan. `proven` is
            # therefore False only if the stock plan itself differs from the program.
            proven=all(proof.proven for proof in proofs) if proofs else None,
            rules=sorted({rule for proof in proofs for rule in proof.rules}),
        ),
    )
    if not options.check_accuracy:
        return {}, {}, stepper
    from workbench.compiler.planner import kernel_identity

    return stepper.record(outputs), kernel_identity.kernels_of(jitted) if by_thunder else {}, stepper


def _measure_eager(
    build: Callable[[], Parts], log: event_log.EventLog, options: request.RunOptions, modes: dict[str, str]
) -> None:
    """Log the peak memory of a step in eager PyTorch. If the memory does not suffice, log nothing."""
    from workbench.runs.measure import accuracy, memory_meter

    try:
        stepper = accuracy.Stepper(*build(), seed=options.seed, modes=modes)
        stepper.step()
        peak = memory_meter.measure_peak(stepper)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return
    log.write(events.EagerPeakMeasured(t_s=log.now_s(), measured_peak_bytes=peak.measured_peak_bytes))


def _thunders_own_stages(
    jitted: Any, recorder: compile_stages.Recorder, log: event_log.EventLog, start_s: float, forward_s: float
) -> None:
    """Attribute the time outside of all observed stages to stages of Thunder, by means of Thunder's own time stamps.

    `thunder.compile_stats` contains the time stamps, in nanoseconds of `time.perf_counter_ns`. Stages between time
    stamps are longer than the stages that the compiler reports to the observer. The time stamps are nevertheless
    needed, because unmodified Thunder reports no stages.
    """
    stats = getattr(jitted, "_lc_cs", None)
    if stats is None:
        return

    def seconds_of(name: str) -> float:
        return log.since_s(getattr(stats, name) / 1e9)

    traced_s, prologue_s = seconds_of("last_trace_tracing_stop"), seconds_of("last_prologue_transformation_stop")
    # The traces were last edited when the observer got its last report before the first call.
    called_s = seconds_of("last_prologue_execution_start")
    edited_s = max((i.end_s for i in recorder.intervals if i.end_s <= called_s), default=prologue_s)
    reported = edited_s > prologue_s
    recorder.rest_of("make jit", start_s, seconds_of("last_trace_tracing_start"))
    recorder.rest_of("interpret", seconds_of("last_trace_tracing_start"), traced_s)
    recorder.rest_of("prologue", traced_s, prologue_s)
    recorder.rest_of("generate code" if reported else "transform and generate code", edited_s, called_s)
    recorder.rest_of("check inputs", called_s, seconds_of("last_prologue_execution_stop"))
    recorder.rest_of("first forward", seconds_of("last_trace_host_execution_start"), forward_s)


def _check(
    recorded: dict[str, Any],
    kernels: dict[str, str],
    build: Callable[[], Parts],
    log: event_log.EventLog,
    seed: int,
    run_request: request.RunRequest,
    run_dir: Path,
    own: str | None,
) -> None:
    from workbench.core import config
    from workbench.runs.measure import accuracy
    from workbench.runs.measure.saved_reference import SavedReferences

    def on_tensor(error: TensorError) -> None:
        log.write(events.TensorChecked(t_s=log.now_s(), **vars(error)))

    outcome = accuracy.check_first_step(
        recorded,
        build,
        seed=seed,
        kernels=kernels,
        on_tensor=on_tensor,
        capture=run_request.capture if run_request.torch is None else accuracy.TORCH_COMPILE,
        modes=_modes(run_request),
        draws_differ=run_request.draws_differ,
        uncompiled=() if own is None else config.parse(own, request.CONFIG_FILE).uncompiled,
        references=SavedReferences(run_dir, run_request.program),
    )
    log.write(check_event(outcome, log.now_s()))


def _modes(run_request: request.RunRequest) -> dict[str, str]:
    """Return the PyTorch modes under which the program was opened."""
    return dict(run_request.program.get("modes", {}))


def check_event(outcome: Accuracy, t_s: float) -> events.AccuracyChecked:
    """Return the event that logs the result of an accuracy check."""
    return events.AccuracyChecked(
        t_s=t_s,
        ok=outcome.ok,
        max_error=outcome.max_error,
        against=outcome.against,
        worst=outcome.worst.name if outcome.worst is not None else "",
        bitwise=outcome.bitwise,
        changed_kernels=None if outcome.changed_kernels is None else list(outcome.changed_kernels),
        unstable=outcome.unstable,
        is_saved=outcome.is_saved,
        why=outcome.why,
    )


def _builder(run_dir: Path, run_request: request.RunRequest, group: RankGroup | None) -> Callable[[], Parts]:
    import torch

    from workbench import programs

    def build(device: str, seed: int) -> Parts:
        # Seed torch for factories that ignore the seed of `programs.build`, so that each build draws equal values.
        torch.manual_seed(run_request.options.seed)
        parts: Parts = programs.build({**run_request.program, "seed": seed}, device=device, folder=run_dir)
        return parts

    if group is not None:
        return group.build(build)
    return lambda: build(run_request.program["device"], run_request.program["seed"])


def _report_warnings(log: event_log.EventLog) -> None:
    """Write each warning about the config into the log; all warnings still go to standard error."""
    show = warnings.showwarning

    def report(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        # The code of exported files also warns about choices; it cannot know the workbench's classes.
        if issubclass(category, ConfigWarning) or Path(str(where[0])).parent == PLAIN_TORCH:
            log.write(events.Warned(t_s=log.now_s(), message=str(message)))
        show(message, category, *where, **more)

    warnings.showwarning = report


def _phase(log: event_log.EventLog, name: str) -> None:
    log.write(events.Phase(t_s=log.now_s(), phase=name))


def _environment(log: event_log.EventLog) -> events.Environment:
    import torch

    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    machine: dict[str, Any] = {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "",
    }
    return events.Environment(t_s=log.now_s(), versions=versions, machine=machine)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
