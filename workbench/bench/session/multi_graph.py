"""`PartsBench`: a bench for a program of several graphs.

Each graph is a part. A part is a bench, or is opaque: PyTorch runs it unchanged.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from workbench.analysis.cost.machines import H100, Machine
from workbench.analysis.memory.multi_graph_memory import PartMemory, StepMemory, join_step_memory, memory_inside
from workbench.bench.session.history import History, new_stamp
from workbench.bench.session.plan_diff import PlanDiff, diff
from workbench.bench.session.planner import ChoiceRequest
from workbench.bench.session.run_names import name_of_choices
from workbench.bench.session.site_table import Sites
from workbench.bench.session.workbench import Workbench
from workbench.core.config import EAGER, THUNDER, Config, choices_of_part, installed_versions
from workbench.core.lever import Effect, Site, check_ids, check_texts
from workbench.errors import Advice, ChoiceError, PlanError, short_repr, suggest_names
from workbench.summary import (
    AT_LEAST,
    chosen_text,
    coverage_words,
    human_bytes,
    place_text,
    run_line,
    with_stock_difference,
)

if TYPE_CHECKING:
    from workbench.compiler.api import Plan, TorchChoices
    from workbench.compiler.driver.capture_parts import PartCapture, PartsCapture
    from workbench.runs.process.follow_run import Run


class Part(Workbench):
    """A part that Thunder compiles. It is a bench with its own plan; `run` and `export` are for the whole program.

    Attributes
    ----------
    name : str
        ``part1``, ``part2``, …. In the whole program, the ids of the part's sites begin with this name; in the part's
        own bench, they do not.
    cut : str
        The user's line of the graph break after this part, and the reason for the break; empty after the last part, or
        if `refusal` has the reason.
    source : str
        The user's lines in this part.
    calls : int
        Number of times that one call of the program runs this part.
    operators : int
        Number of operators in this part's graph.
    opaque : bool
        Whether PyTorch runs this part without Thunder: False.
    refusal : str
        Reason why Thunder does not compile this part: empty.
    """

    opaque, refusal = False, ""

    def __init__(self, bench: PartsBench, part: PartCapture, choices: Mapping[str, str]) -> None:
        assert part.captured is not None
        self._whole = bench
        self.name, self.cut, self.source = part.name, part.piece.cut, part.piece.source
        self.calls, self.operators = part.calls, part.piece.operators
        names = {id(tensor): name for name, tensor in part.captured.arguments.items()}
        self._arguments = [names.get(id(given), "") for given in part.captured.program.args]
        self._inside: tuple[Plan, PartMemory] | None = None
        super().__init__(part.captured, choices, bench.machine)
        # One lock and one group of histories, so that a change of several parts is made and undone as one.
        self._lock = bench._lock
        self._history = History(self._history.choices, bench._histories)

    @property
    def words(self) -> str:
        """The predicted figures of the part and the number of its sites, in words."""
        plan, stock = self.plan, self.stock_plan
        count = sum(not site.id.startswith(f"{site.lever}.") for site in plan.sites)
        bound = AT_LEAST * plan.peak_at_least
        return (
            f"{plan.statements} statements, {count} site{'s' * (count != 1)}, "
            f"this part's peak {bound}{with_stock_difference(plan.peak_bytes, stock.peak_bytes)}, "
            f"saved {with_stock_difference(plan.saved_bytes, stock.saved_bytes)}, predicted"
        )

    @property
    def inside(self) -> PartMemory:
        """Memory inside the part under the current choices; `PartsBench.memory` combines the parts."""
        plan = self.plan
        if self._inside is None or self._inside[0] is not plan:
            self._inside = plan, memory_inside(plan.graph, plan.timeline, self._arguments)
        return self._inside[1]

    @property
    def config(self) -> Config:
        """Config with all choices of this part. The ids do not contain the part's name."""
        return self._whole.config.of_part(self.name)

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs of the whole program."""
        return self._whole.runs

    @property
    def own_runs(self) -> tuple[Run, ...]:
        """No runs, because each run measures the whole program."""
        return ()

    def prepare(self, **given: Any) -> Path:
        """Make the folder of a run of the whole program; see `Workbench.prepare`."""
        return self._whole.prepare(**given)

    def run(self, **given: Any) -> Run:
        """Compile and run the whole program; see `Workbench.run`."""
        return self._whole.run(**given)

    def export(self, path: str | Path, *, target: str = "thunder", overwrite: bool = False) -> Path:
        """Write the choices of the whole program; see `Workbench.export`."""
        return self._whole.export(path, target=target, overwrite=overwrite)

    def export_text(self, path: str | Path, *, target: str = "thunder") -> str:
        """Return the text of the file for the whole program; see `Workbench.export_text`."""
        return self._whole.export_text(path, target=target)

    def torch_choices(self) -> TorchChoices:
        """Raise a `PlanError`, as for the whole program; see `PartsBench.torch_choices`."""
        return self._whole.torch_choices()


@dataclasses.dataclass(frozen=True)
class OpaquePart:
    """A part that PyTorch runs unchanged, without plan, sites and choices.

    Attributes
    ----------
    name, cut, source, calls, operators
        As in `Part`.
    refusal : str
        The reason why Thunder cannot compile this part.
    opaque : bool
        Whether PyTorch runs this part without Thunder: True.
    """

    name: str
    cut: str
    source: str
    calls: int
    operators: int
    refusal: str
    opaque: bool = True

    @property
    def words(self) -> str:
        """Description of the part."""
        if not self.operators:
            return "run by PyTorch as it is"
        if self.operators == 1:
            return "1 operator, run by PyTorch as it is"
        return f"{self.operators} operators, run by PyTorch as they are"

    def sites(self, lever: str | None = None) -> tuple[Site, ...]:
        """Return no sites, because there is nothing to choose."""
        return ()

    def choose(self, choices: Mapping[str, str]) -> NoReturn:
        """Refuse all choices.

        Raises
        ------
        ChoiceError
            Always.
        """
        raise ChoiceError(f"{self.name} has nothing to choose: PyTorch runs this part unchanged. {self.refusal}")


class PartsBench(Workbench):
    """A bench for a program of several graphs. `workbench.open` returns one.

    Ids of sites begin with the name of their part: ``part2:saved:…``. Members that need a single plan, such as `plan`,
    `fit` and `save`, work only on a part. `run` and `export` are for the whole program.

    Attributes
    ----------
    parts : tuple of Part or OpaquePart
        The parts, in the order in which a call of the program first runs them.
    """

    def __init__(
        self, captured: PartsCapture, choices: Mapping[str, str] | None = None, machine: str | Machine = H100
    ) -> None:
        self.program, self.executor = captured.program, captured.executor
        self._runs: tuple[Run, ...] = ()
        self._lock = threading.RLock()
        self._histories: list[History] = []
        self._observers: list[Callable[[], None]] = []
        self._parts_captured = captured
        self._machine = machine if isinstance(machine, Machine) else H100
        self.unmatched: dict[str, str] = {}
        made: list[Part | OpaquePart] = []
        for part in captured.parts:
            if part.captured is None:
                facts = (part.name, part.piece.cut, part.piece.source, part.calls, part.piece.operators, part.refusal)
                made.append(OpaquePart(*facts))
                continue
            opened = Part(self, part, choices_of_part(choices or {}, part.name))
            opened.observe(self._notify)
            self.unmatched.update({f"{part.name}:{id}": why for id, why in opened.unmatched.items()})
            made.append(opened)
        self.parts = tuple(made)
        if not isinstance(machine, Machine):
            self.machine = machine
        known = {part.name for part in self.benches}
        for id in choices or {}:
            if id.partition(":")[0] not in known:
                self.unmatched[id] = "no such part, or one without choices"

    def __repr__(self) -> str:
        rows = [("capture", f"in {len(self.parts)} parts: {self.capture_reason}")]
        for part, captured in zip(self.parts, self._parts_captured.parts, strict=True):
            rows.append((part.name, f"{place_text(part.source, part.calls)}{part.words}"))
            if names := ", ".join(captured.piece.copied):
                rows.append(("", f"reads a copy of {names}, because the step later writes into it"))
            rows.extend((("", f"opaque because {part.refusal}"),) if part.opaque else ())
            rows.extend((("", f"cut at {part.cut}"),) if part.cut and not part.refusal else ())
        rows.extend((("peak", words),) if (words := self.peak_words) else ())
        rows.append(("choices", chosen_text([f"{id}: {option}" for id, option in self.choices.items()])))
        if self.runs:
            rows.append(("latest run", run_line(self.runs[-1])))
            rows.extend((("coverage", words),) if (words := coverage_words(self.runs[-1].coverage)) else ())
        wide = max(len(name) for name, _ in rows)
        head = f"{self.program.name} on {self.program.device}, {self.executor} executor"
        return "\n".join([head, *(f"  {name:<{wide}}  {text}" for name, text in rows)])

    def show(self, place: str = "", *, tab: bool = False) -> None:
        """Display the app in a notebook; see `Workbench.show`."""
        from IPython.display import display

        from workbench.ui.app.parts_selector import PartsApp

        app = PartsApp(self, tab=tab, place=place)
        display({**app.root._repr_mimebundle_(), "text/plain": repr(self)}, raw=True)

    @property
    def benches(self) -> tuple[Part, ...]:
        """The parts that Thunder compiles."""
        return tuple(part for part in self.parts if isinstance(part, Part))

    @property
    def choices(self) -> dict[str, str]:
        """The current choices in all parts."""
        return {f"{part.name}:{id}": option for part in self.benches for id, option in part.choices.items()}

    @property
    def pinned(self) -> dict[str, str]:
        """The current choices of all parts that the user made; see `Workbench.pinned`."""
        return {f"{part.name}:{id}": option for part in self.benches for id, option in part.pinned.items()}

    @property
    def by_hand(self) -> frozenset[str]:
        """The sites of all parts whose options the user chose; see `Workbench.by_hand`."""
        return frozenset(f"{part.name}:{id}" for part in self.benches for id in part.by_hand)

    def name_of(self, choices: Mapping[str, str]) -> str:
        """Return a name for a run under choices; see `Workbench.name_of`."""
        return name_of_choices(choices)

    @property
    def ranks(self) -> int:
        """Number of processes that share the program: always 1."""
        return 1

    @property
    def capture(self) -> str:
        """Capture method: ``parts``."""
        return "parts"

    @property
    def capture_reason(self) -> str:
        """Reason why the program was captured in parts."""
        return self._parts_captured.why

    @property
    def on_disk(self) -> str:
        """Cache status: programs of several parts are traced each time, because their traces are not cached."""
        return "not written to disk: the program has several parts"

    @property
    def machine(self) -> Machine:
        """Machine model of all parts; see `Workbench.machine`."""
        return self._machine

    @machine.setter
    def machine(self, machine: str | Machine) -> None:
        for part in self.benches:
            part.machine = machine
            self._machine = part.machine

    @property
    def config(self) -> Config:
        """Config with all choices of all parts."""
        captured = self._parts_captured
        return Config(
            program=self.program.name,
            executor=self.executor,
            device=self.program.device,
            choices=self.choices,
            fingerprint=captured.fingerprint,
            settings=dict(self.program.settings),
            versions=installed_versions(),
            capture=self.capture,
            parts={
                part.name: "+".join(
                    (f"{EAGER if part.captured is None else THUNDER}:{part.piece.key}", *part.piece.copied)
                )
                for part in captured.parts
            },
            modes=self.program.modes,
        )

    def torch_choices(self) -> TorchChoices:
        """Raise a `PlanError`, because choices for plain PyTorch number the operators of a single graph.

        Raises
        ------
        PlanError
            Always.
        """
        raise PlanError(
            f"{self.program.name} has {len(self.parts)} graphs, but choices for plain PyTorch need a program of one "
            f"graph. The reason for several graphs: {self.capture_reason}"
        )

    @property
    def plan(self) -> Plan:
        """Raise a `PlanError`, because each part has its own plan.

        Raises
        ------
        PlanError
            Always.
        """
        self._refuse("plan")

    @property
    def stock_plan(self) -> Plan:
        """Raise a `PlanError`, because each part has its own plan.

        Raises
        ------
        PlanError
            Always.
        """
        self._refuse("stock_plan")

    def _refuse(self, name: str) -> NoReturn:
        names = ", ".join(f"bench.parts[{at}]" for at, part in enumerate(self.parts) if isinstance(part, Part))
        if not names:
            raise PlanError(
                f"PyTorch runs all of {self.program.name}, because no part of it can be compiled; so it has no {name}",
                advice=Advice("bench.parts lists the parts with the reasons", "the command plan lists the reasons"),
            )
        raise PlanError(
            f"{self.program.name} has {len(self.parts)} parts, so it has no single {name}",
            advice=Advice(f"each part has its own: {names}", "the command plan shows each part"),
        )

    def plan_under(self, choices: Mapping[str, str], *, keep: bool = True) -> Plan:
        """Raise a `PlanError`, because each part has its own plan; see `plan`."""
        self._refuse("plan")

    def plan_with(self, choices: Mapping[str, str], *, keep: bool = True) -> Plan:
        """Raise a `PlanError`, because each part has its own plan; see `plan`."""
        self._refuse("plan")

    @property
    def context(self) -> NoReturn:
        """Raise a `PlanError`, because each part has its own joint trace; see `plan`."""
        self._refuse("joint trace")

    def overlap(self, plan: Plan | None = None) -> None:
        """Return None, because ranks cannot share a program of several graphs."""

    def sites(self, lever: str | None = None) -> Sites:
        """Return the sites of all parts; with `lever`, only the sites of this lever. Ids begin with the part's name."""
        return Sites(
            dataclasses.replace(site, id=f"{part.name}:{site.id}")
            for part in self.benches
            for site in part.sites(lever)
        )

    def _part_with(self, id: str) -> tuple[Part, str]:
        """Return the part whose name is the beginning of `id`, and the rest of the id."""
        name, _, own = id.partition(":")
        for part in self.parts:
            if part.name == name:
                if isinstance(part, OpaquePart):
                    part.choose({})
                return part, own
        names = [part.name for part in self.benches]
        raise ChoiceError(
            f"{short_repr(id)} is in no part of {self.program.name}: ids begin with one of {', '.join(names)}"
            f"{suggest_names(id, [site.id for site in self.sites()])}",
            id,
            advice=Advice("bench.sites() lists all sites", "plan --sites LEVER lists a lever's sites"),
        )

    def _choices_by_part(self, choices: Mapping[str, str]) -> dict[Part, dict[str, str]]:
        found: dict[Part, dict[str, str]] = {}
        check_texts(choices)
        for id, option in choices.items():
            part, own = self._part_with(id)
            found.setdefault(part, {})[own] = option
        return found

    def site(self, id: str) -> Site:
        """Return one site, by an id that begins with its part's name."""
        part, own = self._part_with(id)
        return dataclasses.replace(part.site(own), id=id)

    def choose(self, choices: Mapping[str, str], *, by_hand: bool = True) -> PlanDiff:
        """Make all choices in the parts to which they belong, or none if one is refused; see `Workbench.choose`.

        Returns
        -------
        PlanDiff
            Sums over the parts; for `peak_bytes`, the change of the largest peak memory among the parts. The change of
            the largest fusion and of the overlap is not computed.
        """
        by_part = self._choices_by_part(choices)
        before = self.largest_peak_bytes
        if len(by_part) == 1:
            diffs = [(part, part.choose(own, by_hand=by_hand)) for part, own in by_part.items()]
        else:
            diffs = self._choose_in_parts(by_part, by_hand)
        return PlanDiff(
            peak_bytes=self.largest_peak_bytes - before,
            saved_bytes=sum(diff.saved_bytes for _, diff in diffs),
            saved_tensors=sum(diff.saved_tensors for _, diff in diffs),
            flops=sum(diff.flops for _, diff in diffs),
            fusions=sum(diff.fusions for _, diff in diffs),
            unique_fusions=sum(diff.unique_fusions for _, diff in diffs),
            counts={
                name: sum(diff.counts.get(name, 0) for _, diff in diffs)
                for name in sorted({name for _, diff in diffs for name in diff.counts})
            },
            changed=tuple(f"{part.name}:{id}" for part, diff in diffs for id in diff.changed),
        )

    def release(self, sites: Iterable[str]) -> None:
        """Let searches in the parts change the options that the user chose at `sites`; see `Workbench.release`."""
        by_part: dict[Part, list[str]] = {}
        for id in check_ids(sites):
            part, own = self._part_with(id)
            by_part.setdefault(part, []).append(own)
            if own not in part.by_hand:
                part.site(own)
        for part, released in by_part.items():
            part.release(released)

    def _choose_in_parts(self, by_part: Mapping[Part, Mapping[str, str]], by_hand: bool) -> list[tuple[Part, PlanDiff]]:
        """Make choices in several parts as one change. If a part refuses its choices, no history changes."""
        requests = {part: [ChoiceRequest(own, not by_hand)] for part, own in by_part.items()}
        while True:
            changes = {part: part._plan_change(asked, part._planner.plan) for part, asked in requests.items()}
            with self._lock:
                # If choices changed in the meantime, start again from the changed choices.
                if all(part.choices == change.in_force for part, change in changes.items()):
                    stamp = new_stamp()
                    for part, change in changes.items():
                        part._record(requests[part], change, stamp)
                    break
        for part in changes:
            part._notify()
        return [(part, diff(change.before, change.after, part.machine)) for part, change in changes.items()]

    @property
    def is_choosing(self) -> bool:
        """Whether requested choices of a part wait for a plan."""
        return any(part.is_choosing for part in self.benches)

    def wait_until_chosen(self) -> None:
        """Wait until all requested choices of all parts are made or refused."""
        for part in self.benches:
            part.wait_until_chosen()

    @property
    def largest_peak_bytes(self) -> int:
        """The largest predicted peak memory of a single part, without the memory of other parts."""
        return max((part.plan.peak_bytes for part in self.benches), default=0)

    @property
    def peak_words(self) -> str:
        """The predicted peak memory of a step of the whole program, in words; empty if it is unknown."""
        if (memory := self.memory) is None:
            return ""
        place = f"in {memory.peak_part}" if memory.peak_part else "between parts"
        bound = f"; a lower bound, because {memory.bound_reason}" if memory.at_least else ""
        return f"{AT_LEAST * memory.at_least}{human_bytes(memory.peak_bytes)} {place}, predicted for all parts{bound}"

    @property
    def memory(self) -> StepMemory | None:
        """Predicted memory over a step of the whole program under the current choices; None if it is unknown.

        If the peak memory is a lower bound, `StepMemory.bound_reason` says why. For example, a part is opaque, or the
        program reads values of tensors between its parts.
        """
        recorded = self._parts_captured.recorded
        if isinstance(recorded, str):
            return None
        return join_step_memory(recorded, {part.name: part.inside for part in self.benches})

    def predict(self, choices: Mapping[str, str]) -> Any:
        """Predict the memory of one part, to which all `choices` must belong; see `Workbench.predict`."""
        by_part = self._choices_by_part(choices)
        if len(by_part) != 1:
            self._refuse("prediction")
        ((part, own),) = by_part.items()
        return part.predict(own)

    def effects(self, id: str) -> dict[str, Effect]:
        """Return, for each other legal option of a site, its effect on the plan of the site's part."""
        part, own = self._part_with(id)
        return part.effects(own)

    def effect(self, choices: Mapping[str, str]) -> Effect:
        """Return the effect of `choices` on the plan of one part, to which all of them must belong."""
        by_part = self._choices_by_part(choices)
        if len(by_part) != 1:
            self._refuse("effect")
        ((part, own),) = by_part.items()
        return part.effect(own)

    def worth(self) -> Any:
        """Raise a `PlanError`, as `plan` does. Call this method of a part."""
        self._refuse("ranking of choices")

    def cuts(self, *, machine: str | Machine | None = None) -> NoReturn:
        """Raise a `PlanError`, as `plan` does. Call this method of a part."""
        self._refuse("table of cuts")

    def weigh_cuts(self, *, machine: str | Machine | None = None) -> NoReturn:
        """Raise a `PlanError`, as `plan` does. Call this method of a part."""
        self._refuse("table of cuts")

    def choose_found(self, choices: Mapping[str, str], search: str = "") -> NoReturn:
        """Raise a `PlanError`, as `plan` does. Call this method of a part."""
        self._refuse("fit")

    def search_waits(self, **given: Any) -> Any:
        """Raise a `PlanError`, as `plan` does. Call this method of a part."""
        self._refuse("search")

    def fit(self, *given: Any, **named: Any) -> Any:
        """Raise a `PlanError`, as `plan` does. Call this method of a part."""
        self._refuse("fit")

    def curve(self, **given: Any) -> Any:
        """Raise a `PlanError`, as `plan` does. Call this method of a part."""
        self._refuse("curve")

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Raise a `PlanError`, as `plan` does. Call this method of a part."""
        self._refuse("saved plan")

    @property
    def can_undo(self) -> bool:
        """Whether there is a change to undo."""
        return bool(self._parts_to_go(-1))

    @property
    def can_redo(self) -> bool:
        """Whether there is a change to redo."""
        return bool(self._parts_to_go(1))

    def _go(self, steps: int) -> None:
        with self._lock:
            parts = self._parts_to_go(steps)
            for part in parts:
                part._history.go(steps)
        for part in parts:
            part._notify()

    def _parts_to_go(self, steps: int) -> list[Part]:
        """Return the parts with states from the next change to undo (`steps` is -1) or to redo (`steps` is 1)."""
        with self._lock:
            stamps = {part: part._history.stamp(steps) for part in self.benches if part._history.can_go(steps)}
            following = (max if steps < 0 else min)(stamps.values(), default=None)
            return [part for part, stamp in stamps.items() if stamp == following]

    def check_choices(self, choices: Mapping[str, str]) -> None:
        """Raise a `ChoiceError` if a part refuses its choices; see `Workbench.check_choices`."""
        for part, own in self._choices_by_part(choices).items():
            part.check_choices(own)

    def notes(self) -> dict[str, str]:
        """Return the description and the user's line of each site, as in exported configs."""
        return {f"{part.name}:{id}": note for part in self.benches for id, note in part.notes().items()}

    def to_json(self, lever: str | None = None) -> dict[str, Any]:
        """Return all parts as plain data for JSON. All figures are predicted.

        One list has the sites of all parts; with `lever`, it has only the sites of this lever.
        """
        memory = self.memory
        parts: list[dict[str, Any]] = []
        sites: list[dict[str, Any]] = []
        for part in self.parts:
            facts = {name: getattr(part, name) for name in ("name", "opaque", "source", "calls", "operators", "cut")}
            parts.append({**facts, "refusal": part.refusal})
            if isinstance(part, Part):
                planned = part.plan.to_json()
                own = [site for site in planned.pop("sites") if lever in (None, site["lever"])]
                sites += [{**site, "id": f"{part.name}:{site['id']}"} for site in own]
                parts[-1] |= {**planned, "alive_at_peak": part.plan.alive_at_peak()}
        return {
            "program": self.program.name,
            "device": self.program.device,
            "executor": self.executor,
            "capture": self.capture,
            "capture_reason": self.capture_reason,
            "parts": parts,
            "sites": sites,
            "peak_bytes": None if memory is None else memory.peak_bytes,
            "peak_is_lower_bound": memory is not None and memory.at_least,
            "peak_bound_reason": "" if memory is None else memory.bound_reason,
            "peak_part": "" if memory is None else memory.peak_part,
            "predicted": True,
        }

    def app(self) -> Any:
        """Return the app as a widget, with a row of buttons to select the part that it shows."""
        from workbench.ui.app.parts_selector import PartsApp

        return PartsApp(self)
