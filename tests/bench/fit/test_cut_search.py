"""The search for cuts gives a table of plans with exact figures. No row is dominated by another row.

A cut is the set of values that one fusion passes to another. A fit that may also choose cuts keeps its limits.
"""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import workbench
from workbench.bench.fit.cut_search import _PRESETS, Cut, Cuts, _kinds, compute_s, describe_cuts, is_beaten, site_kind
from workbench.bench.fit.fit_with_cuts import FitterWithCuts
from workbench.bench.fit.fitter import Fitter
from workbench.bench.fit.order_presets import PresetPlan
from workbench.bench.session.workbench import Workbench
from workbench.compiler.fusion import fusion_passes
from workbench.errors import ChoiceError, PlanError
from workbench.ui.tabs.fusions_tab import Fusions

pytestmark = pytest.mark.slow

STORAGES = ("recompute", "offload")
SHARED = {"sharing.identical": "shared"}


def opened(name: str, **settings: object) -> Workbench:
    return workbench.open(name, device="planned", executor="nvfuser", **settings)


@pytest.fixture(scope="module")
def made() -> Workbench:
    return opened("llama", layers=2)


@pytest.fixture
def bench(made: Workbench) -> Iterator[Workbench]:
    yield made
    while made.can_undo:
        made.undo()


@pytest.fixture(scope="module")
def chain() -> Workbench:
    return opened("residual_chain", layers=4, grad=True, size=1024)


@pytest.fixture(scope="module")
def table(made: Workbench) -> Cuts:
    return made.cuts()


def weighed(bench: Workbench, choices: dict[str, str]) -> Cut:
    """Return the figures of the plan under these choices, in the form of a table row."""
    plan = bench.plan_under({**choices, **SHARED})
    return Cut(
        compilations=plan.census.unique,
        fusions=plan.census.count,
        largest=plan.census.largest,
        peak_bytes=plan.peak_bytes,
        saved_bytes=plan.saved_bytes,
        step_s=compute_s(bench, plan, bench.machine),
        choices={**SHARED, **choices},
    )


def test_each_cut_equals_its_plan_and_is_proven(made: Workbench, table: Cuts) -> None:
    for cut in table.every:
        assert cut == weighed(made, dict(cut.choices))
        assert made.plan_under(cut.choices).proof.proven
        assert not made.plan_under(cut.choices).unmatched


def test_no_cut_is_dominated_by_another_or_by_a_single_choice(made: Workbench, table: Cuts) -> None:
    assert len(table) > 1
    assert not any(is_beaten(a, b) for a, b in itertools.permutations(table, 2))
    alone = (*_PRESETS, *_kinds(made.plan.sites, {}))
    assert len(alone) > 20
    for choices in alone:
        cut = weighed(made, choices)
        assert any(is_beaten(cut, known) for known in table), choices


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("residual_chain", {"layers": 4, "grad": True, "size": 1024}),
        ("mlp", {"layers": 2}),
        pytest.param("dropout_mlp", {"layers": 2}, marks=[pytest.mark.slow, pytest.mark.long]),
    ],
)
def test_no_combination_of_cuts_in_a_small_program_beats_the_table(name: str, settings: dict[str, object]) -> None:
    small = opened(name, **settings)
    table = small.cuts()
    kinds = _kinds(small.plan.sites, {})
    assert len(kinds) > 1
    tried = 0
    for preset in ({}, *_PRESETS):
        for chosen in itertools.product((False, True), repeat=len(kinds)):
            choices = dict(preset)
            for made, is_chosen in zip(kinds, chosen, strict=True):
                choices |= made if is_chosen else {}
            try:
                cut = weighed(small, choices)
            except (ChoiceError, PlanError):
                continue
            tried += 1
            assert any(is_beaten(cut, known) for known in table), choices
    assert tried > 9


def test_remat_weight_0_needs_more_compilations_and_is_dominated(chain: Workbench) -> None:
    patch, stock = weighed(chain, {"remat.weight": "0.0"}), weighed(chain, {})
    assert patch.compilations > stock.compilations
    assert any(is_beaten(patch, cut) and cut.compilations <= stock.compilations for cut in chain.cuts())


def test_cuts_chosen_by_hand_stay_and_only_other_cuts_are_weighed(bench: Workbench) -> None:
    id = "remat:layers.0/add"
    bench.choose({"remat.weight": "1.0", id: "save"})
    table = bench.cuts()
    assert table.stock.peak_bytes == bench.plan.peak_bytes
    for cut in table:
        assert "remat.weight" not in cut.choices
        assert "remat.preset" not in cut.choices
        assert id not in cut.choices
    assert bench.choices == {"remat.weight": "1.0", id: "save"}


def test_a_choice_equal_in_all_layers_is_named_once() -> None:
    choices = {f"remat:layers.{n}.mlp/silu": "recompute" for n in range(4)}
    assert describe_cuts({"remat.weight": "0.0", **choices}) == "remat.weight=0.0; recompute layers.*.mlp/silu (4)"
    assert (
        site_kind("remat:residual_chain/add.3") == site_kind("remat:residual_chain/add") == "remat:residual_chain/add"
    )
    assert site_kind("remat:h.1.attn/mul.2") != site_kind("remat:h.1.attn/mul.1")


def test_a_table_has_a_readable_text(table: Cuts) -> None:
    lines = repr(table).splitlines()
    assert lines[0].split() == ["compilations", "largest", "peak", "saved", "step", "choices"]
    assert lines[1].endswith("as Thunder cuts")
    assert len(lines) == 1 + len(table.every)
    document = table.to_json()
    assert [cut["label"] for cut in document["cuts"]] == [cut.label for cut in table]
    assert document["predicted"] is True


def test_cuts_of_a_program_without_fusions_are_refused() -> None:
    bench = workbench.open("mlp", device="planned", executor="torch", layers=1)
    with pytest.raises(PlanError, match="the executor torch fuses nothing in mlp, so there are no cuts to choose"):
        bench.cuts()


def test_a_fit_keeps_a_limit_on_compilations(bench: Workbench, table: Cuts) -> None:
    few = min(cut.step_s for cut in table if cut.compilations <= table.stock.compilations)
    found = bench.fit(compilations=table.stock.compilations)
    assert bench.plan.counts["compilations"] == found.compilations <= table.stock.compilations
    assert found.before_compilations > found.compilations
    assert found.step_s + found.added_s == pytest.approx(few)
    assert bench.choices == dict(found.choices)
    assert f"{found.compilations} compilations (before: {found.before_compilations})" in repr(found)


def test_a_fit_keeps_limits_on_peak_and_compilations() -> None:
    bench = opened("llama", layers=1)
    limit = round(0.95 * bench.plan.peak_bytes)
    most = bench.plan.census.unique + 1
    found = bench.fit(limit, compilations=most, using=("recompute",))
    assert found.peak_bytes == bench.plan.peak_bytes <= limit
    assert bench.plan.counts["compilations"] <= most
    assert bench.plan.proof.proven


def test_a_limit_below_the_fewest_compilations_is_refused_and_the_fewest_are_named(
    bench: Workbench, table: Cuts
) -> None:
    fewest = min(cut.compilations for cut in table)
    words = f"no plan of llama with {fewest - 1} compilations or fewer was found; the least number is {fewest}$"
    with pytest.raises(PlanError, match=words):
        bench.fit(compilations=fewest - 1)
    bench.choose({"remat.preset": "off"})
    with pytest.raises(PlanError, match=r"\(keeping the choices made by hand\)"):
        bench.fit(compilations=1)
    assert bench.choices == {"remat.preset": "off"}


@pytest.mark.parametrize("given", [0, -1, 2.5, "6", True])
def test_an_invalid_number_of_compilations_is_refused(made: Workbench, given: object) -> None:
    with pytest.raises(ChoiceError, match="compilations is a whole number above zero"):
        made.fit(compilations=given)  # type: ignore[arg-type]


def test_cuts_never_make_a_step_longer() -> None:
    bench = opened("dropout_mlp", layers=2)
    without = FitterWithCuts(bench, bench._captured, bench.machine, using=("recompute",))
    cutting = FitterWithCuts(bench, bench._captured, bench.machine, using=("recompute", "cuts"), reused=without)
    gained = 0
    for share in (0.92, 1.0):
        limit = round(share * bench.plan.peak_bytes)
        with_cuts, plan = cutting.fit_peak(limit)
        assert plan.peak_bytes <= limit
        choices = cutting.choices(with_cuts)
        assert bench.plan_under(choices).peak_bytes == with_cuts.planned_bytes
        assert cutting.step_s + with_cuts.added_s == pytest.approx(
            compute_s(bench, bench.plan_under(choices), bench.machine)
        )
        told = cutting.explain(with_cuts, plan, limit)
        assert dict(told.choices) == choices
        assert told.gap >= 0
        try:
            alone: PresetPlan | None = without.fit_peak(limit)[0]
        except PlanError:
            alone = None
        assert alone is None or with_cuts.whole_s <= alone.whole_s
        gained += alone is None or with_cuts.whole_s < alone.whole_s
    assert gained > 0


def tab_of(bench: Workbench) -> tuple[Fusions, list[str]]:
    said: list[str] = []
    tab = Fusions(bench, lambda _busy, act: act(), lambda message: said.append(message["type"]), said.append)
    tab.show_plan([""] * len(bench.plan.graph.statements), {})
    return tab, said


def until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def test_the_fusions_tab_weighs_cuts_and_applies_one(bench: Workbench, table: Cuts) -> None:
    tab, said = tab_of(bench)
    assert tab.cuts["rows"] == []
    tab._handle_custom_msg({"type": "cuts"}, [])
    until(lambda: bool(said))
    assert tab.cuts["state"] == "done"
    assert [row["cells"] for row in tab.cuts["rows"]] == [list(cells) for cells in table.rows()]
    head = f"{table.planned} plans weighed. The table shows the plan without choices"
    assert said == [f"{head}, and the {len(table)} plans that no other plan beats"]
    tab._handle_custom_msg({"type": "cut", "index": 1}, [])
    tab.show_plan([""] * len(bench.plan.graph.statements), {})
    assert bench.choices == dict(table.every[1].choices)
    assert bench.pinned == {}
    assert [row["chosen"] for row in tab.cuts["rows"]] == [at == 1 for at in range(len(table.every))]
    # A choice by hand removes the table, because the table's figures are for the earlier choices.
    bench.choose({"remat.weight": "1.0"})
    tab.show_plan([""] * len(bench.plan.graph.statements), {})
    assert tab.cuts["rows"] == []


def test_weighing_in_the_background_gives_the_same_table_and_reports_progress(chain: Workbench) -> None:
    weighing = chain.weigh_cuts()
    seen: list[tuple[int, int]] = []
    weighing.observe(lambda: seen.append((weighing.done, weighing.most)))
    weighing.wait()
    whole = chain.cuts()
    assert weighing.state == "done"
    assert weighing.table == whole
    assert weighing.done == whole.planned <= weighing.most
    assert seen == sorted(seen)
    assert len({done for done, _ in seen}) > 3
    best = weighing.table.best
    assert best.startswith(f"{min(cut.compilations for cut in whole)} compilations (as Thunder cuts: ")
    assert repr(weighing) == f"{whole.planned} plans weighed, done, by {chain.machine.name}'s rates\n{whole!r}"


def test_a_cancelled_weighing_keeps_what_it_has_found(chain: Workbench) -> None:
    weighing = chain.weigh_cuts()
    weighing.observe(lambda: weighing.cancel() if weighing.done >= 4 else None)
    table = weighing.wait().table
    assert weighing.state == "cancelled"
    assert weighing.done == 4 < chain.cuts().planned
    assert table is not None
    assert table.planned == 4
    assert not any(is_beaten(a, b) for a, b in itertools.permutations(table, 2))
    for cut in table.every:
        plan = chain.plan_under(cut.choices)
        assert cut.figures[:3] == (plan.counts["compilations"], plan.peak_bytes, plan.saved_bytes)


def test_a_weighing_of_a_program_without_fusions_fails_with_the_reason() -> None:
    weighing = workbench.open("mlp", device="planned", executor="torch", layers=1).weigh_cuts()
    with pytest.raises(PlanError, match="there are no cuts to choose"):
        weighing.wait()
    assert (weighing.state, weighing.table, weighing.done) == ("failed", None, 0)


def test_the_tab_cancels_a_weighing_and_a_newer_weighing_ends_an_older_weighing(bench: Workbench, table: Cuts) -> None:
    tab, said = tab_of(bench)
    tab._handle_custom_msg({"type": "cuts"}, [])
    until(lambda: tab.cuts["done"] > 2)
    assert tab.cuts["state"] == "working"
    assert tab.cuts["said"].startswith("best so far: ")
    assert tab.cuts["rows"] == []
    tab._handle_custom_msg({"type": "stop"}, [])
    until(lambda: tab.cuts["state"] == "cancelled")
    assert tab.cuts["said"].startswith(f"Cancelled after {tab.cuts['done']} plans")
    assert tab.cuts["done"] < table.planned
    assert len(tab.cuts["rows"]) > 0
    tab._handle_custom_msg({"type": "cuts"}, [])
    older = tab._weighing
    tab._handle_custom_msg({"type": "cuts"}, [])
    assert older is not None
    assert older is not tab._weighing
    assert older.wait().state == "cancelled"
    tab.close()
    assert tab._weighing is not None
    assert tab._weighing.wait().state == "cancelled"
    until(lambda: tab.cuts["state"] == "cancelled")
    assert said == []


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the test needs a timer that interrupts the process")
def test_an_interrupted_cut_search_leaves_the_bench_unchanged(chain: Workbench) -> None:
    began = time.perf_counter()
    whole = chain.cuts()
    took_s, interrupted = time.perf_counter() - began, 0

    def ctrl_c(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ctrl_c)
    try:
        for part in range(1, 9):
            signal.setitimer(signal.ITIMER_REAL, took_s * part / 10)
            try:
                chain.cuts()
            except KeyboardInterrupt:
                interrupted += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert interrupted > 4
    assert chain.choices == {}
    assert chain.cuts() == whole


def test_a_search_that_cannot_win_makes_few_plans(bench: Workbench) -> None:
    limit = round(0.92 * bench.plan.peak_bytes)
    hopeless, whole = (Fitter(bench, bench._captured, bench.machine) for _ in range(2))
    # No choice makes the step 1 s shorter. The first plans of each guide show this, and the search ends.
    hopeless.find(limit, hard=False, below_s=-1.0)
    best = whole.find(limit, hard=False)
    assert best is not None
    assert best.planned_bytes <= limit
    assert len(hopeless.chooser.evaluations) < len(whole.chooser.evaluations)


def test_a_curve_has_a_line_for_cuts() -> None:
    bench = opened("dropout_mlp", layers=2)
    curve = bench.curve(points=2, using=("recompute", "cuts"), each=True).wait()
    assert [line.name for line in curve.lines] == ["recompute", "with cuts"]
    without, cutting = (line.points for line in curve.lines)
    assert min(p.peak_bytes for p in cutting) <= min(p.peak_bytes for p in without)
    assert min(p.step_s for p in cutting) < min(p.step_s for p in without)
    moved = next(point for point in cutting if point.beside)
    assert "with other cuts (" in str(moved)
    assert bench.plan_under(moved.choices).peak_bytes == moved.peak_bytes
    assert curve.step_s(moved.choices) == pytest.approx(moved.step_s)
    assert curve.explain(moved.choices).choices == moved.choices


def test_cuts_weighed_under_outdated_choices_are_not_shown(bench: Workbench) -> None:
    tab, said = tab_of(bench)
    tab._handle_custom_msg({"type": "cuts"}, [])
    weighing = tab._weighing
    assert weighing is not None
    bench.choose({"remat.weight": "1.0"})
    until(lambda: bool(said))
    assert said == ["The choices changed while cuts were weighed: weigh them again"]
    assert weighing.wait().state == "cancelled"
    assert tab.cuts["state"] == ""


@pytest.mark.parametrize("calls", range(7, 12))
def test_a_plan_after_an_interrupted_removal_of_repeats_is_right(calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes cache facts about fusions. An interrupted pass must not leave an incomplete cache for later plans."""
    remove, left = fusion_passes.dead_code.cse_single_bsym, iter(range(calls))

    def interrupted(*args: Any) -> Any:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return remove(*args)

    bench, choices = opened("residual_chain", layers=4, grad=True, size=1024), {"remat.weight": "0.0"}
    with monkeypatch.context() as patch:
        patch.setattr(fusion_passes.dead_code, "cse_single_bsym", interrupted)
        with pytest.raises(KeyboardInterrupt):
            bench.plan_under(choices)
    fresh = opened("residual_chain", layers=4, grad=True, size=1024)
    assert bench.plan_under(choices).text() == fresh.plan_under(choices).text()
