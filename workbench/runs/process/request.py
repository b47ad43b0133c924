"""`RunRequest`: program, config and options of a run. Any process can execute a run from the request in its folder."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol

from annotated_types import Ge, Gt, Lt

from workbench.errors import RunError, short_repr
from workbench.runs.log import untrusted_files

if TYPE_CHECKING:
    from pydantic import TypeAdapter

REQUEST_FILE = "request.json"
CONFIG_FILE = "config.py"
SCRATCH = "tmp"
"""Folder inside a run's folder for the run's temporary files and caches; deleted when the run ends."""
OUTPUT_FILE = "output.log"
OUTPUT_BYTES = 1 << 18
"""Maximum number of bytes of a worker's output that are stored. If there are more, the last bytes are stored."""

ALIVE_LISTED = 200
"""Of the values alive at the predicted or measured peak memory, at most this many are stored: the largest.
"""

FORMAT_VERSION = 1
"""Version of the file format. Increase it with each change that makes an older workbench misread a request."""

MOST_RANKS = 1 << 16
"""Maximum number of ranks. A request with a larger number is damaged."""

_READING: dict[str, Any] = {"strict": True, "allow_inf_nan": False, "extra": "forbid"}
"""Settings for reading a request's fields; see pydantic's `ConfigDict`."""


class Dumpable(Protocol):
    """A program that can write data into a folder, from which another process builds the program again."""

    def dump(self, folder: Path) -> dict[str, Any]:
        """Write the data, and return the spec for `workbench.programs.build`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Measurement options of a run.

    Attributes
    ----------
    seed : int
        Random seed. It is set before the first step, and before the first step of each reference.
    threads : int, optional
        Number of torch's threads on the CPU; by default torch's own number or, with ranks, the rank's share of the
        cores.
    warmup, samples : int
        Number of steps before the timed steps, and number of timed steps.
    sampling_s : float
        Maximum seconds for the timed steps of the run. Each variant adds the same number. The first three steps are
        timed in any case.
    memory_interval_s : float
        Interval between samples of the memory in use. While a compiler holds the interpreter's lock, a few samples are
        late. The default aims at 20 samples a second, with a little room for late samples.
    measure_peak : bool
        Whether to measure the memory of a step and of its statements by allocation events.
    clocks : bool
        Whether to time each statement, or each part of a program in parts.
    check_accuracy : bool
        Whether to compare the results with unmodified Thunder, with eager PyTorch and, if possible, with double
        precision.
    memory_snapshot : bool
        Whether to record one step's allocations for PyTorch's memory_viz; see `workbench.runs.measure.memory_snapshot`.
    cuda_graph : bool
        Whether to time the step also as a CUDA graph, interleaved with the run's own steps. The graph's time is the
        time without launches by the host. On CUDA only.
    cold : bool
        Whether the run begins with empty compiler caches of its own, so that its compile times can be compared with the
        compile times of other cold runs.
    timeout_s : float, optional
        Time limit; a run that takes longer fails.
    memory_limit_bytes : int, optional
        Memory limit; a run fails if its process, or the process of one of its ranks, takes more memory.
    port : int, optional
        TCP port at which ranks meet. On one machine it is not needed, because ranks meet through a file by default.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = _READING

    seed: Annotated[int, Ge(-(2**63)), Lt(2**64)] = 0
    threads: Annotated[int, Ge(1)] | None = None
    warmup: Annotated[int, Ge(0)] = 2
    samples: Annotated[int, Ge(0)] = 20
    sampling_s: Annotated[float, Ge(0)] = 10.0
    memory_interval_s: Annotated[float, Gt(0)] = 0.048
    measure_peak: bool = True
    clocks: bool = True
    check_accuracy: bool = True
    memory_snapshot: bool = False
    cuda_graph: bool = False
    cold: bool = True
    timeout_s: Annotated[float, Ge(0)] | None = None
    memory_limit_bytes: Annotated[int, Ge(0)] | None = None
    port: Annotated[int, Ge(0), Lt(1 << 16)] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TorchTarget:
    """Choices for a run of plain `torch.compile`, without Thunder.

    Attributes
    ----------
    choices : list of tuple of str, str, int and str
        Module path, operator, ordinal and option of each choice, as in an exported file.
    budget : float, optional
        PyTorch's `activation_memory_budget` for tensors without a choice; None is PyTorch's setting.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = _READING

    choices: list[tuple[str, str, int, str]]
    budget: float | None = None

    @classmethod
    def of(cls, choices: Mapping[tuple[str, str, int], str], budget: float | None = None) -> TorchTarget:
        """Return the target with choices by their keys. It does not depend on the order of the choices."""
        return cls(choices=[(*key, option) for key, option in sorted(choices.items())], budget=budget)

    @property
    def by_key(self) -> dict[tuple[str, str, int], str]:
        """The choices by their keys: module path, operator, ordinal."""
        return {(module, operator, ordinal): option for module, operator, ordinal, option in self.choices}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunRequest:
    """Program, config and options of a run.

    Attributes
    ----------
    name : str
        Name of the run for users.
    program : dict
        Spec for `workbench.programs.build`.
    created_s : float
        Seconds since the epoch.
    predicted_peak_bytes : int, optional
        The plan's predicted peak memory, for comparison with the measured peak memory.
    peak_bound_bytes : int, optional
        Lower bound of the peak memory, if the plan predicts only a bound; then `predicted_peak_bytes` is None. See
        `StepMemory.at_least` in `workbench.analysis.memory.multi_graph_memory`.
    predicted_alive : list of dict
        Values that are alive at the plan's predicted peak memory, largest first, at most `ALIVE_LISTED`: ``bytes``,
        ``value``, the ``statement`` that makes it (-1 for an argument), and that statement's ``name`` and ``source``.
    variants : dict of str to str, optional
        Variants whose steps are timed interleaved with the run's own steps: each variant's name, with the text of a
        config, or None for unmodified Thunder.
    options : RunOptions
    ranks : int
        Number of processes that share the program.
    parallel : str
        Method by which the ranks share the program, as in `workbench.open`; empty for a run of one process.
    capture : {'dynamo', 'interpreter', 'parts'}
        Capture method of the program. For its reference, the accuracy check tries this method first, and the other
        one if the result is unusable. It tries at most one method if the program is in parts or draws random numbers.
    draws_differ : list of str
        The plan's corrections that change random draws, as texts. Unmodified Thunder makes these draws wrongly,
        so its draws differ from the run's draws.
    torch : TorchTarget, optional
        Choices for plain `torch.compile`, if it compiles the program. By default, Thunder compiles the program.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = _READING

    name: str
    program: dict[str, Any]
    created_s: float
    predicted_peak_bytes: int | None = None
    peak_bound_bytes: int | None = None
    predicted_alive: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    variants: dict[str, str | None] = dataclasses.field(default_factory=dict)
    options: RunOptions = dataclasses.field(default_factory=RunOptions)
    ranks: int = 1
    parallel: str = ""
    capture: str = "interpreter"
    draws_differ: list[str] = dataclasses.field(default_factory=list)
    torch: TorchTarget | None = None

    def __post_init__(self) -> None:
        """Refuse values that no run can have, and remove terminal control characters from the name."""
        if not 1 <= self.ranks <= MOST_RANKS:
            raise ValueError(f"a run has between 1 and {MOST_RANKS} ranks, not {self.ranks}")
        if not (math.isfinite(self.created_s) and 0 <= self.created_s < _LATEST_S):
            raise ValueError(f"created_s is not a time: {self.created_s}")
        texts = {"kind", "name", "device"}
        if wrong := sorted(key for key in texts if not isinstance(self.program.get(key), str)):
            raise ValueError(f"the program's {', '.join(wrong)} must be given, as texts")
        object.__setattr__(self, "name", untrusted_files.one_line(self.name))


_LATEST_S = 1e11
"""Latest accepted time of a request: some three thousand years from now."""


def prepare(
    run_dir: Path,
    program: Dumpable,
    *,
    config_text: str | None = None,
    name: str = "",
    predicted_peak_bytes: int | None = None,
    peak_bound_bytes: int | None = None,
    predicted_alive: Sequence[Mapping[str, Any]] = (),
    variants: Mapping[str, str | None] | None = None,
    options: RunOptions | None = None,
    ranks: int = 1,
    parallel: str = "",
    capture: str = "interpreter",
    draws_differ: Sequence[str] = (),
    torch: TorchTarget | None = None,
) -> Path:
    """Make the folder of a run that starts later.

    Parameters
    ----------
    run_dir : Path
        The folder is created; it must not exist, or must be empty.
    program : Dumpable
        The program, for example a `workbench.programs.Program`.
    config_text : str, optional
        Text of the exported config. Without a config and without `torch`, the run executes unmodified Thunder.
    name : str
        Name of the run for users; by default the folder's name.
    predicted_peak_bytes, peak_bound_bytes : int, optional
    predicted_alive : sequence of mapping, optional
    variants : mapping of str to str or None, optional
        As in `RunRequest`.
    options : RunOptions, optional
    ranks : int
    parallel : str
    capture : str
    draws_differ : sequence of str, optional
    torch : TorchTarget, optional
        As in `RunRequest`.

    Returns
    -------
    Path
        `run_dir`.

    Raises
    ------
    RunError
        If the folder is in use or cannot be written.
    """
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        if any(run_dir.iterdir()):
            raise RunError(f"{run_dir} is not empty; a run needs a folder of its own")
        request = RunRequest(
            name=name or run_dir.name,
            program=program.dump(run_dir),
            created_s=time.time(),
            predicted_peak_bytes=predicted_peak_bytes,
            peak_bound_bytes=peak_bound_bytes,
            predicted_alive=[dict(each) for each in predicted_alive[:ALIVE_LISTED]],
            variants=dict(variants or {}),
            options=options or RunOptions(),
            ranks=ranks,
            parallel=parallel,
            capture=capture,
            draws_differ=list(draws_differ),
            torch=torch,
        )
        if config_text is not None:
            (run_dir / CONFIG_FILE).write_text(config_text)
        write_request(run_dir, request)
    except OSError as error:
        raise RunError(f"the run's folder {run_dir} cannot be written: {error.strerror}") from error
    return run_dir


def check_options(options: RunOptions, device: str, variants: Collection[str] = (), *, ranks: int = 1) -> None:
    """Refuse measurements that a device does not support, before anything is started.

    Raises
    ------
    RunError
        If an option is not supported; the message names the option and says how to fix the request.
    """
    if not isinstance(options, RunOptions):
        raise RunError(f"options are RunOptions, such as RunOptions(samples=5); given {short_repr(options)}")
    try:
        _reader(RunOptions).validate_json(json.dumps(dataclasses.asdict(options), default=repr))
    except ValueError as error:
        raise RunError(f"RunOptions are illegal: {_first_fault(error)}") from None
    if options.cuda_graph and device != "cuda":
        raise RunError(
            f"a CUDA graph needs a CUDA device, but the program is for {device}: run it without a CUDA graph"
        )
    if ranks > 1 and (options.cuda_graph or options.memory_snapshot):
        what = "a CUDA graph" if options.cuda_graph else "a memory snapshot"
        raise RunError(
            f"{what} needs a program of one process, but {ranks} ranks share the program: run it without {what}"
        )
    if (variants or options.cuda_graph) and not options.samples:
        raise RunError("with samples=0 no step is timed, so there is nothing to compare: set samples to 1 or more")


def write_request(run_dir: Path, request: RunRequest) -> None:
    """Write a request into a run's folder, completely or not at all.

    Raises
    ------
    OSError
        If the request cannot be written; the old request stays.
    """
    record = {"format_version": FORMAT_VERSION, **dataclasses.asdict(request)}
    untrusted_files.write(run_dir / REQUEST_FILE, json.dumps(record, indent=1) + "\n")


def read_request(run_dir: Path) -> RunRequest:
    """Return the request in a run's folder.

    Raises
    ------
    RunError
        If the folder has no request that this version can read.
    """
    path = run_dir / REQUEST_FILE
    try:
        record = json.loads(untrusted_files.read(path))
    except FileNotFoundError:
        raise RunError(f"{run_dir} is not a run: it has no {REQUEST_FILE}") from None
    except OSError as error:
        raise RunError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from error
    except RecursionError:
        raise RunError(f"{path} cannot be read: it is nested too deeply") from None
    except ValueError as error:
        raise RunError(f"{path} cannot be read, it is incomplete or not JSON: {error}") from None
    version = record.pop("format_version", None) if isinstance(record, dict) else None
    if version is None:
        raise RunError(f"{path} cannot be read: it is not a request of a run")
    if version != FORMAT_VERSION or isinstance(version, bool):
        raise RunError(
            f"{path} has format version {version!r}; this version of the workbench reads {FORMAT_VERSION}: "
            "open it with the version that wrote it"
        )
    try:
        # Convert the record to JSON text again: in strict mode, pydantic makes a dataclass from JSON, not from a dict.
        found: RunRequest = _reader(RunRequest).validate_json(json.dumps(record))
        return found
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} cannot be read: {_first_fault(error)}") from None


@functools.cache
def _reader[Read](kind: type[Read]) -> TypeAdapter[Read]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _first_fault(error: Exception) -> str:
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return untrusted_files.one_line(f"{place}: {first['msg']}" if place else first["msg"], 300)
