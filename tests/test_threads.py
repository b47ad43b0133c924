"""If several threads use programs, only one plans at a time, and results equal the results of a single thread."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.utils._pytree import tree_leaves

import workbench
from tests.trial_counts import amount
from workbench.bench import Workbench
from workbench.compiler.lowering.patch_context import compile_alone
from workbench.compiler.planner import planner as replan
from workbench.compiler.planner.planner import base_of
from workbench.compiler.trace.lazy_value import LazyValue
from workbench.errors import ChoiceError
from workbench.programs import modes, placement
from workbench.runs.process.request import RunOptions
from workbench.util.planning_lock import PLANNING, PlanningLock, one_at_a_time

PATIENCE_S = 120


def started(act: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread


def wait_until(done: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < end
        time.sleep(0.002)


def able(bench: Workbench) -> list[str]:
    """Return the ids of the sites of storages that can be recomputed."""
    return [
        site.id
        for site in bench.sites("saved")
        if ":" in site.id and "recompute" in site.options and "recompute" not in site.illegal
    ]


@pytest.fixture
def bench() -> Workbench:
    return workbench.open("residual_chain", layers=2, grad=True, device="cpu", executor="torch")


def test_a_refused_choice_does_not_deadlock_with_a_newer_waiting_choice(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refused choice's thread needs the current plan, which is not cached any more, while a newer choice waits."""
    one, two, other = able(bench)[:3]
    bench.choose({one: "recompute"})
    bench.choose({two: "recompute"})
    planner, anew = bench._planner, replan.replan
    outcomes: list[Any] = []

    def choose(id: str) -> None:
        try:
            outcomes.append(bench.choose({id: "recompute"}))
        except ChoiceError as error:
            outcomes.append(error)

    def interrupted(captured: Any, choices: Any, newer: Any = None) -> Any:
        made = anew(captured, choices, newer)
        if "saved:nothing/here" in choices and not threads[1:]:
            bench.undo()
            planner._plans.clear()
            captured.planned.bases.clear()
            threads.append(started(lambda: choose(other)))
            wait_until(lambda: planner._waiting)
        return made

    monkeypatch.setattr(replan, "replan", interrupted)
    threads: list[threading.Thread] = []
    begun = threading.Thread(target=lambda: choose("saved:nothing/here"), daemon=True)
    threads.append(begun)  # before the thread reads the list
    begun.start()
    wait_until(lambda: len(outcomes) == 2)
    assert [type(each) for each in outcomes].count(ChoiceError) == 1
    assert bench.choices == {one: "recompute", other: "recompute"}


def test_plans_that_levers_build_on_are_looked_up_by_one_thread_at_a_time(bench: Workbench) -> None:
    """Without a lock, a thread could remove a plan that another thread has found but not yet recorded as used."""
    evicted = threading.Event()

    class Slow(OrderedDict[Any, Any]):
        def get(self, key: Any, default: Any = None) -> Any:
            found = super().get(key, default)
            if found is not None and key:
                evicted.wait(1.0)
            return found

    captured, ids = bench._captured, able(bench)
    captured.planned.bases = Slow(captured.planned.bases)
    base_of(captured, {ids[0]: "recompute"})

    def plan_others() -> None:
        for id in ids[1:5]:
            base_of(captured, {id: "recompute"})
        evicted.set()

    with ThreadPoolExecutor(2) as pool:
        again = pool.submit(base_of, captured, {ids[0]: "recompute"})
        time.sleep(0.1)
        others = pool.submit(plan_others)
        assert again.result(PATIENCE_S).plan.proof.proven
        others.result(PATIENCE_S)


def test_a_lazily_computed_value_is_made_once_and_only_by_the_planning_thread() -> None:
    made: list[int] = []

    def make() -> int:
        assert PLANNING.is_mine
        time.sleep(0.02)
        made.append(1)
        return len(made)

    value = LazyValue(make)
    with ThreadPoolExecutor(4) as pool:
        assert [each.result() for each in [pool.submit(lambda: value.value) for _ in range(4)]] == [1, 1, 1, 1]
    assert not PLANNING.is_mine


def test_planning_does_not_deadlock_on_a_value_that_another_thread_computes() -> None:
    inside = threading.Event()
    value = LazyValue(lambda: inside.set() or time.sleep(0.1) or LazyValue(lambda: 3).value)
    thread = started(lambda: value.value)
    assert inside.wait(PATIENCE_S)

    @one_at_a_time
    def plan() -> int:
        return value.value

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(plan).result(PATIENCE_S) == 3
    thread.join(PATIENCE_S)


def test_a_background_thread_yields_after_its_current_stage_and_starts_again() -> None:
    order: list[str] = []
    first = threading.Event()

    @one_at_a_time
    def plan() -> str:
        order.append("background begins")
        end = time.monotonic() + PATIENCE_S
        while len(order) == 1:
            first.set()
            PLANNING.give_way()
            assert time.monotonic() < end
            time.sleep(0.001)
        return "planned"

    def work() -> str:
        with PLANNING.in_background():
            return plan()

    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(work)
        assert first.wait(PATIENCE_S)
        with PLANNING:
            order.append("foreground")
        assert found.result(PATIENCE_S) == "planned"
    assert order == ["background begins", "foreground", "background begins"]


def test_a_lazy_value_of_a_background_thread_does_not_yield() -> None:
    """If the computation gave way to a thread that plans, no thread would start it again."""
    inside, let = threading.Event(), threading.Event()

    def make() -> int:
        inside.set()
        assert let.wait(PATIENCE_S)
        PLANNING.give_way()
        return 1

    def work() -> int:
        with PLANNING.in_background():
            return LazyValue(make).value

    def enter() -> None:
        with PLANNING:
            pass

    with ThreadPoolExecutor(2) as pool:
        found = pool.submit(work)
        assert inside.wait(PATIENCE_S)
        waiting = pool.submit(enter)
        wait_until(lambda: PLANNING._foreground)
        let.set()
        assert found.result(PATIENCE_S) == 1
        waiting.result(PATIENCE_S)


def test_threads_get_the_lock_in_turn_and_an_error_releases_the_lock() -> None:
    lock, inside, most = PlanningLock(), [0], [0]

    def work(seed: int) -> None:
        for _ in range(50):
            try:
                with lock, lock:
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                    time.sleep(0)
                    inside[0] -= 1
                    if seed % 2:
                        raise KeyError
            except KeyError:
                pass

    threads = [started(lambda seed=seed: work(seed)) for seed in range(6)]
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert most == [1]


def test_threads_that_seed_draw_their_own_numbers_and_restore_the_state() -> None:
    """PyTorch has one random state for all threads, so two seeded blocks at once would mix their numbers."""
    state, barrier = torch.get_rng_state(), threading.Barrier(2)

    def meet() -> None:
        # If `seeded` admits both threads at once, they meet inside it. If it admits one at a time, the barrier breaks.
        with contextlib.suppress(threading.BrokenBarrierError):
            barrier.wait(0.5)

    def draw(seed: int, meet: Callable[[], None] = lambda: None) -> list[float]:
        with placement.seeded(seed):
            meet()
            found = torch.rand(2).tolist()
            meet()
            return [*found, *torch.rand(2).tolist()]

    alone = [draw(1), draw(2)]
    with ThreadPoolExecutor(2) as pool:
        assert [each.result() for each in [pool.submit(draw, seed, meet) for seed in (1, 2)]] == alone
    assert torch.equal(torch.get_rng_state(), state)


PROGRAMS: list[tuple[str, dict[str, Any]]] = [
    ("mlp", {"layers": 2, "device": "cpu", "executor": "torch"}),
    ("mlp", {"layers": 2, "device": "planned", "executor": "nvfuser"}),
    ("llama", {"layers": 2, "device": "cpu", "executor": "torch"}),
    ("residual_chain", {"layers": 3, "grad": True, "device": "cpu", "executor": "torchcompile"}),
]


def outcome(at: int, seed: int) -> str:
    """Open a program, and make and undo random choices. Return figures, site ids and choices as JSON."""
    name, settings = PROGRAMS[at]
    bench, drawn = workbench.open(name, **settings), random.Random(seed)
    ids, told = able(bench), []
    for _ in range(3):
        bench.choose({drawn.choice(ids): "recompute"})
        told.append((bench.plan.peak_bytes, bench.plan.saved_bytes, bench.plan.proof.proven))
    bench.undo()
    chosen = drawn.choice(ids)
    told.append(sorted((o, e.peak_bytes, e.saved_bytes) for o, e in bench.effects(chosen).items()))
    plan = bench.plan_under({chosen: "recompute"})
    told.append((plan.peak_bytes, plan.text(), len(plan.passes)))
    told.append([site.id for site in bench.sites()])
    return json.dumps([told, bench.choices, [row.tolist() for row in (plan.timeline.statement_peak_bytes,)]])


def run_outcome(at: int, seed: int, folder: Path) -> str:
    """Run a program. Return the run's state, memory figures and accuracy, but no times, which vary."""
    name, settings = PROGRAMS[at]
    bench = workbench.open(name, **settings)
    bench.choose({random.Random(seed).choice(able(bench)): "recompute"})
    run = bench.run(wait=True, folder=folder, options=RunOptions(samples=3, clocks=False, threads=1))
    assert run.accuracy is not None, run.error
    tensors = [(each.name, each.max_abs_error) for each in run.accuracy.tensors]
    return json.dumps([run.state, run.memory, run.accuracy.ok, run.accuracy.bitwise, tensors])


def cancelled_outcome(at: int, seed: int, folder: Path) -> str:
    """Return the state of a run that is cancelled within its first second."""
    name, settings = PROGRAMS[at]
    bench = workbench.open(name, **settings)
    run = bench.run(folder=folder)
    time.sleep(random.Random(seed).random())
    run.cancel()
    return run.wait(PATIENCE_S).state


def replay_outcome(at: int, seed: int, folder: Path) -> str:
    """Return the results of a program under a config that is exported to a file and read back."""
    name, settings = PROGRAMS[at]
    bench = workbench.open(name, **settings)
    bench.choose({random.Random(seed).choice(able(bench)): "recompute"})
    bench.export(folder / "choices.py")
    # Do not seed torch here: another thread may be drawing a program's parameters, and these programs draw nothing.
    result = workbench.load(folder / "choices.py").jit(bench.program.callable)(*bench.program.args)
    return json.dumps([leaf.tolist() for leaf in tree_leaves(result)])


OTHERS = [(run_outcome, 0), (run_outcome, 2), (cancelled_outcome, 0), (replay_outcome, 0), (replay_outcome, 2)]
"""Actions other than `outcome`, each with the index of its program in `PROGRAMS`."""

SECONDS = float(os.environ.get("WORKBENCH_STRESS_S", 30))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(SECONDS * 3 + 1200)
def test_eight_threads_give_the_results_of_one(tmp_path: Path) -> None:
    """Threads open, choose, undo, run, cancel and replay. `WORKBENCH_STRESS_S` sets the duration in seconds."""

    def act(job: tuple[Callable[..., str], int, int]) -> str:
        kind, at, seed = job
        return kind(at, seed) if kind is outcome else kind(at, seed, Path(tempfile.mkdtemp(dir=tmp_path)))

    choices = [(outcome, at, seed) for at in range(len(PROGRAMS)) for seed in range(2)]
    jobs: list[Any] = [*choices, *((kind, at, 0) for kind, at in OTHERS)]
    expected = {job: act(job) for job in jobs}
    end, done = time.monotonic() + SECONDS, []

    def work(thread: int) -> None:
        drawn = random.Random(thread)
        while time.monotonic() < end:
            job = drawn.choice(jobs)
            assert act(job) == expected[job], job
            done.append(job[0].__name__)

    with ThreadPoolExecutor(8) as pool:
        for found in [pool.submit(work, thread) for thread in range(8)]:
            found.result()
    print(f"{SECONDS:.0f} s: {dict(Counter(done))}")
    assert len(done) >= 8


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_background_search_and_a_cell_do_not_affect_each_other() -> None:
    bench = workbench.open("llama", layers=2, device="cpu", executor="torch")
    ids = able(bench)[:6]
    alone = {id: bench.effects(id) for id in ids}
    curve = bench.curve(points=6)
    other = workbench.open("mlp", layers=2, device="planned", executor="nvfuser")
    assert {id: bench.effects(id) for id in ids} == alone
    other.choose({able(other)[0]: "recompute"})
    curve.wait(300)
    assert curve.state == "done"
    again = bench.curve(points=6).wait(300)
    assert [(p.peak_bytes, p.choices) for p in curve.points] == [(p.peak_bytes, p.choices) for p in again.points]


APP_BESIDE_A_CELL = """
import time, sys, warnings
warnings.filterwarnings("ignore")
import workbench as wb
from workbench.ui.app.app import App
bench = wb.open("llama", device="cpu", executor="torch")
app = App(bench)
time.sleep(0.5)
begun = time.monotonic()
for site in [s for s in bench.sites("saved") if ":" in s.id and "layers" in s.id]:
    bench.effects(site.id)
    if time.monotonic() - begun > float(sys.argv[1]):
        break
app.close()
print("done")
"""


@pytest.mark.slow
@pytest.mark.drawn
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("process", range(amount(1, 4, 50)))
def test_a_cell_may_ask_for_effects_right_after_showing_the_app(process: int) -> None:
    given = [sys.executable, "-W", "ignore", "-c", APP_BESIDE_A_CELL, "3"]
    made = subprocess.run(given, capture_output=True, text=True, check=False)
    assert (made.returncode, made.stdout.strip()[-4:]) == (0, "done"), made.stderr[-2000:]


@pytest.mark.slow
def test_replays_in_threads_give_the_results_of_one() -> None:
    """While threads replay, other threads open and plan programs."""
    bench = workbench.open("mlp", layers=2, device="cpu", executor="torch")
    bench.choose({able(bench)[0]: "recompute"})
    program, given = bench.program.callable, bench.program.args

    def replay() -> list[torch.Tensor]:
        made = bench.config.jit(program)(*given)
        return [each.detach().clone() for each in tree_leaves(made)]

    expected = replay()
    with ThreadPoolExecutor(4) as pool:
        replays = [pool.submit(replay) for _ in range(4)]
        opened = [pool.submit(outcome, at, 0) for at in (0, 2)]
        for each in replays:
            assert all(map(torch.equal, each.result(), expected))
        for each in opened:
            each.result()


def scaled(by: float) -> Callable[..., torch.Tensor]:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (functional.gelu(x @ w).clamp(-1, 1) * by).sum()

    return program


def tensors(rows: int) -> tuple[torch.Tensor, ...]:
    drawn = torch.Generator().manual_seed(0)
    return tuple(torch.randn(rows, rows, generator=drawn).requires_grad_() for _ in range(2))


@pytest.mark.slow
def test_each_config_is_compiled_while_other_threads_compile_and_open_programs() -> None:
    """Without a lock, Dynamo would leave one of two programs uncompiled without an error, and `open` would fail."""
    bench = workbench.open(scaled(2.0), *tensors(8), device="cpu", executor="torch", capture="dynamo")
    config = bench.config

    def replay(rows: int) -> None:
        jitted = config.jit(scaled(2.0))
        found = jitted(*tensors(rows))
        assert jitted._lc_cs is not None, "Thunder has not compiled the program"
        assert torch.allclose(found, scaled(2.0)(*tensors(rows)), atol=1e-4)

    def opened(rows: int) -> None:
        other = workbench.open(scaled(3.0), *tensors(rows), device="cpu", executor="torch", capture="dynamo")
        assert other.plan.proof.proven

    with ThreadPoolExecutor(4) as pool:
        begun = [pool.submit(replay, rows) for rows in range(3, 19)] + [pool.submit(opened, n) for n in range(30, 38)]
        for each in begun:
            each.result(300)


def test_a_thread_that_waits_to_compile_gives_up_its_turn_to_set_modes() -> None:
    compiling, planning, order = threading.Event(), threading.Event(), []

    def plan() -> None:
        with PLANNING:
            planning.set()
            assert compiling.wait(60)
            # This blocks until no thread is inside modes with another default dtype.
            with modes.active_modes({"default_dtype": "float64"}):
                order.append(("plans", torch.get_default_dtype()))

    thread = threading.Thread(target=plan)
    with modes.active_modes({"default_dtype": "float32"}):
        thread.start()
        assert planning.wait(60)
        threading.Timer(0.2, compiling.set).start()
        with compile_alone():
            order.append(("compiles", torch.get_default_dtype()))
    thread.join(60)
    assert order == [("plans", torch.float64), ("compiles", torch.float32)]
