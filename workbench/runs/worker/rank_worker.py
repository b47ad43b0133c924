"""Process of one rank of a run with several ranks. It joins the other ranks, and then does the work of a run's worker.

torchrun executes ``-m workbench.runs.worker.rank_worker RUN_DIR`` for each rank. With one machine,
`workbench.runs.process.rank_launcher` starts torchrun; with several machines, the user does. The rank's log is in a
separate folder inside the run's folder.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import RunError
from workbench.runs.log import event_log, events
from workbench.runs.process import rank_launcher, reaper, request, worker_process
from workbench.runs.worker import worker

if TYPE_CHECKING:
    from workbench.runs.measure.accuracy import Parts

_CANCEL_INTERVAL_S = 0.2
_LIMIT_INTERVAL_S = 0.02


def main(run_dir: Path) -> None:
    """Execute a run as one of its ranks, and end this process."""
    rank = int(os.environ["RANK"])
    if reaper.MARK in os.environ:
        worker_process.die_with_parent()
    folder = rank_launcher.folder_of(run_dir, rank)
    folder.mkdir()
    _keep_output(folder / request.OUTPUT_FILE)
    obeying = threading.Thread(target=_obey_cancel, args=(run_dir, folder), name="cancel", daemon=True)
    obeying.start()

    def run(log: event_log.EventLog) -> None:
        try:
            worker.run_program(run_dir, log, join=functools.partial(_join, run_dir))
        except BaseException:
            if (run_dir / rank_launcher.CANCEL_FILE).exists():
                # The run is cancelled, and this rank failed because another rank has already ended. Do not report a
                # failure: the thread `obeying` reports the cancellation and ends this process.
                obeying.join()
            raise

    worker.carry_out(folder, run)


def _keep_output(path: Path) -> None:
    """Redirect all output of the process into a file; a thread empties the file when it becomes too large."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)

    def shorten() -> None:
        while True:
            time.sleep(_CANCEL_INTERVAL_S)
            if os.fstat(file).st_size > request.OUTPUT_BYTES:
                os.ftruncate(file, 0)

    threading.Thread(target=shorten, name="output", daemon=True).start()


def _obey_cancel(run_dir: Path, folder: Path) -> None:
    """Wait until the run's cancel file exists; then log the cancellation and end the process."""
    begun_s = time.perf_counter()
    while not (run_dir / rank_launcher.CANCEL_FILE).exists():
        time.sleep(_CANCEL_INTERVAL_S)
    event_log.append(folder / event_log.LOG_FILE, events.Cancelled(t_s=time.perf_counter() - begun_s))
    os._exit(1)


def keep_limits(folder: Path, options: request.RunOptions) -> None:
    """End this process when it takes more memory or time than allowed.

    Only ranks that the user's torchrun started call this function. Other ranks are ended by the launcher and by the
    process that started the run.
    """
    begun_s, reason = time.monotonic(), ""
    while not reason:
        time.sleep(_LIMIT_INTERVAL_S)
        reason = worker_process.reason_over_limit(os.getpid(), options.memory_limit_bytes)
        reason = reason or worker_process.reason_over_time(begun_s, options.timeout_s)
    event_log.append(folder / event_log.LOG_FILE, events.Failed(t_s=time.monotonic() - begun_s, reason=reason))
    os._exit(1)


def _join(run_dir: Path, run_request: request.RunRequest) -> _Ranks:
    """Join the other ranks in a process group.

    If no launcher checks the limits of time and memory, a thread of this process checks the limits.

    On one machine, ranks meet through a file or, if the user gave a port, through a TCP store, and communicate over the
    loopback. On several machines, ranks meet at torchrun's address.
    """
    import torch
    import torch.distributed as dist

    rank, count, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    limited = (run_request.options.memory_limit_bytes, run_request.options.timeout_s) != (None, None)
    if reaper.MARK not in os.environ and limited:
        folder = rank_launcher.folder_of(run_dir, rank)
        threading.Thread(target=keep_limits, args=(folder, run_request.options), name="limits", daemon=True).start()
    if count != run_request.ranks:
        raise RunError(f"the run is for {run_request.ranks} ranks, but torchrun started {count}")
    cuda = run_request.program["device"] == "cuda"
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    port = run_request.options.port
    here = os.environ["LOCAL_WORLD_SIZE"] == os.environ["WORLD_SIZE"]
    if here:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    meeting: dict[str, Any] = {"init_method": "env://"}
    if here and port is None:
        meeting = {"init_method": f"file://{run_dir / request.SCRATCH / 'ranks'}"}
    elif port is not None and reaper.MARK in os.environ:
        # The process that started the ranks serves the store: `workbench.runs.process.rank_launcher.serve_store`.
        store = dist.TCPStore(rank_launcher.LOOPBACK, port, is_master=False)  # type: ignore[attr-defined]  # PyTorch does not export it explicitly
        meeting = {"store": store}
    dist.init_process_group(
        "nccl" if cuda else "gloo",
        rank=rank,
        world_size=count,
        device_id=device if cuda else None,
        **meeting,
    )
    return _Ranks(run_request, rank, device)


class _Ranks:
    """The ranks that share a program; a `workbench.runs.worker.worker.RankGroup`."""

    def __init__(self, run_request: request.RunRequest, rank: int, device: Any) -> None:
        self._asked, self._device = run_request, device
        # Under tensor parallelism, all ranks work on the same inputs, so they have the same seed for inputs.
        self._data = rank if run_request.parallel != "tensor" else 0

    def options(self, options: request.RunOptions) -> request.RunOptions:
        """Return the options with this rank's own seed and, by default, its share of the machine's cores."""
        share = max(1, len(os.sched_getaffinity(0)) // int(os.environ["LOCAL_WORLD_SIZE"]))
        return dataclasses.replace(options, seed=options.seed + self._data, threads=options.threads or share)

    def build(self, build: Callable[[str, int], Parts]) -> Callable[[], Parts]:
        """Return a builder of this rank's program. All ranks have the same parameters.

        Each rank has its own inputs, except under tensor parallelism.
        """
        device, seed = str(self._device), self._asked.program["seed"]

        def build_own() -> Parts:
            callable_, args, kwargs = build(device, seed)
            if not self._data:
                return callable_, args, kwargs
            if self._asked.program["kind"] == "pickle":
                args, kwargs = random_rows((args, kwargs), seed + self._data)
            else:
                _, args, kwargs = build(device, seed + self._data)
            return callable_, args, kwargs

        return build_own

    def transforms(self) -> Sequence[Any]:
        """Return Thunder's transforms that share the program among the ranks."""
        import torch.distributed as dist

        from workbench.compiler.frontend import fake_process_group

        shared = fake_process_group.Ranks(self._asked.ranks, self._asked.parallel)  # type: ignore[arg-type]  # checked when opened
        return fake_process_group.transforms(shared, self._device, dist.group.WORLD)

    def agree_options(self, options: request.RunOptions, step_s: float) -> request.RunOptions:
        """Return the options with the same number of samples on all ranks, because each step needs all ranks.

        The slowest rank determines the number. The samples have no time limit. If too few steps fit into the time for
        samples, statements are not timed.
        """
        import torch
        import torch.distributed as dist

        from workbench.runs.measure import interleaved_timing, statement_times

        slowest = torch.tensor([step_s], dtype=torch.float64, device=self._device)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        fit = int(options.sampling_s / max(slowest.item(), 1e-6))
        return dataclasses.replace(
            options,
            samples=min(options.samples, max(fit, interleaved_timing.LEAST_SAMPLES)),
            clocks=options.clocks and fit >= 2 * statement_times.CLOCKED_STEPS,
            sampling_s=float("inf"),
        )

    def check(
        self,
        compile_program: worker.Compiler,
        build: Callable[[], Parts],
        log: event_log.EventLog,
        seed: int,
    ) -> None:
        """Train a few steps under the plan and with the references, compare the tensors, and log the result."""
        from workbench.compiler import api
        from workbench.runs.measure import rank_training

        unmodified = worker.compiler_of(None, "", self.transforms)
        outcome = rank_training.check_training(
            lambda module: compile_program(module, None),
            lambda module: unmodified(module, None),
            lambda module: api.stock(module, self.transforms()),
            build,
            seed=seed + self._data,
            modes=self._asked.program.get("modes", {}),
            draws_differ=self._asked.draws_differ,
        )
        for error in outcome.tensors:
            log.write(events.TensorChecked(t_s=log.now_s(), **vars(error)))
        log.write(worker.check_event(outcome, log.now_s()))

    def leave(self) -> None:
        """Wait until all ranks are done.

        If a rank ended earlier, other ranks would lose data from it that they have not received yet.
        """
        import torch.distributed as dist

        dist.barrier()
        dist.destroy_process_group()


def random_rows[T](inputs: T, seed: int) -> T:
    """Return inputs of the same shapes whose rows are drawn at random from the rows of `inputs`.

    Parameters
    ----------
    inputs
        Any nesting of tensors. Rows are along the first dimension. The same row indices are drawn for all tensors that
        have as many rows as the first tensor; other tensors do not change.
    seed : int
    """
    import torch

    from workbench.interop.torch_private import _pytree as pytree

    leaves, spec = pytree.tree_flatten(inputs)
    count = next((leaf.shape[0] for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.ndim), 0)
    rows = torch.randint(count, (count,), generator=torch.Generator().manual_seed(seed)) if count else None
    drawn = [
        leaf.detach()[rows.to(leaf.device)].requires_grad_(leaf.requires_grad)
        if isinstance(leaf, torch.Tensor) and rows is not None and leaf.shape[:1] == (count,)
        else leaf
        for leaf in leaves
    ]
    made: T = pytree.tree_unflatten(drawn, spec)
    return made


if __name__ == "__main__":
    main(Path(sys.argv[1]))
