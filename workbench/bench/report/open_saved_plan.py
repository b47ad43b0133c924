"""`SavedPlan`: a saved plan, opened without its program, without a GPU and without Thunder.

The plan can be inspected and compared. A choice is checked against the saved list of legal options. The effect of a
choice on memory is predicted if arithmetic on the saved graph suffices. If it does not suffice, a message says what is
needed.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from workbench.analysis.graphs.reorder_graph import reorder_graph, with_members
from workbench.analysis.memory.liveness import AliveValue, Prediction, Predictor, Timeline, alive_at, timeline
from workbench.analysis.memory.recompute_set import Recomputer
from workbench.analysis.order.min_peak_order import just_in_time, least_peak, reorder_sides
from workbench.bench.report.html_report import BEGIN
from workbench.bench.report.saved_plan import FORMAT, FORMAT_VERSION, write_document
from workbench.core.config import Config
from workbench.core.graph import BACKWARD, FORWARD, Graph, Kind
from workbench.core.lever import Site, check_choices, check_texts
from workbench.errors import ChoiceError, ConfigError, one_line, short_repr
from workbench.summary import human_bytes, peak_text
from workbench.util import paths

MOST_BYTES = 1 << 30
"""Maximum size of a plan file; larger files are refused."""

_ORDER = "order.statements"
_ALONG, _AHEAD = "saved.inputs", "saved.ahead"
_STOCK = "stock"
_WAYS = {"least peak": least_peak, "recompute just in time": just_in_time}


@dataclasses.dataclass(frozen=True)
class MemoryEstimate:
    """Memory under choices made on a saved plan, by arithmetic on its graphs.

    Attributes
    ----------
    peak_bytes, saved_bytes : int
    exact : bool
        Whether a plan made from the program would have exactly these bytes. If False, the plan's bytes may differ
        slightly.
    """

    peak_bytes: int
    saved_bytes: int
    exact: bool


@dataclasses.dataclass(frozen=True)
class SavedPlan:
    """A saved plan, and choices that were made on it after it was opened. Such choices are called choices made here.

    Attributes
    ----------
    document : mapping of str to Any
        Content of the file that `Workbench.save` wrote.
    changed : mapping of str to str
        Choices made after opening, by site.
    """

    document: Mapping[str, Any]
    changed: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @cached_property
    def graph(self) -> Graph:
        """The plan's graph.

        If an order of statements was chosen here and can be predicted, the graph has this order. In all other cases,
        the graph has the saved order.
        """
        saved = Graph.from_json(json.dumps(self.document["graph"]))
        way = _WAYS.get(self.changed.get(_ORDER, ""))
        if way is None or not self.has_statements:
            return saved
        for side in (FORWARD, BACKWARD):
            saved = reorder_graph(saved, with_members(saved, reorder_sides(saved, way, [side]).order))
        return saved

    @property
    def choices(self) -> dict[str, str]:
        """All choices: the saved choices, and the choices made here."""
        return {**self.document["choices"], **self.changed}

    @cached_property
    def unpredicted(self) -> dict[str, str]:
        """Choices made here whose effect cannot be computed from the saved graphs, each with the reason."""
        return {id: reason for id, option in self.changed.items() if (reason := self._why_unpredicted(id, option))}

    def _why_unpredicted(self, id: str, option: str) -> str:
        if id == _ORDER:
            # Every order is found from the stock order.
            if (saved := self._saved_options[_ORDER]) != _STOCK:
                return f"the document was saved in the order {saved!r} and does not contain the stock order"
            if (self._saved_graph_kinds & {Kind.OFFLOAD, Kind.RELOAD}) != set():
                return "an order must be found before storages are offloaded: open the program"
            for site in self.document["sites"]:
                if site["id"] != _ORDER and site["lever"] in ("order", "waits") and site["choice"] != site["default"]:
                    chosen = f"{site['id']}={site['choice']}"
                    return f"the plan was saved with {chosen}, which affects the order: open the program"
            if len(self.changed) > 1:
                return "an order depends on what is saved: open the program, or make only this choice"
            return ""
        if id not in self._storages and id not in (_ALONG, _AHEAD):
            return "this needs a new plan by Thunder: export the config, and open the program with it"
        if self._joint is None:
            return (
                "this is predicted only for programs without fusions, on one rank, in documents of newer versions: "
                "export the config, and open the program with it"
            )
        return ""

    @cached_property
    def _saved_options(self) -> dict[str, str]:
        """The option that each site had when the plan was saved."""
        return {site["id"]: site["choice"] for site in self.document["sites"]}

    @cached_property
    def _joint(self) -> Recomputer | None:
        """Recomputation analysis of the joint graph; None if the document has no joint graph."""
        found = self.document.get("joint")
        return None if found is None else Recomputer(Graph.from_json(json.dumps(found)), by_tag=False)

    @cached_property
    def _storages(self) -> dict[str, int]:
        """Index of each site's storage in the joint graph, by the site's id; -1 if the document has no joint graph."""
        of_saved = {
            tuple(s["values"]): s["id"] for s in self.document["sites"] if s["lever"] == "saved" and s["values"]
        }
        if self._joint is None:
            return dict.fromkeys(of_saved.values(), -1)
        names, found = self._joint.graph.values.name, {}
        for storage in self._joint.storages().tolist():
            id = of_saved.get(tuple(names[v] for v in self._joint.values_on(storage)))
            if id is not None:
                found[id] = storage
        return found

    @cached_property
    def estimate(self) -> MemoryEstimate:
        """Predicted peak memory and saved bytes under the choices made here.

        Raises
        ------
        ChoiceError
            If a choice made here cannot be predicted.
        """
        self._check_predicted()
        saved_bytes = int(self.document["figures"]["saved_bytes"])
        if self._joint is None or not set(self.changed) - {_ORDER}:
            return MemoryEstimate(self.timeline.peak_bytes, saved_bytes, exact=True)
        before, after = self._weigh({}), self._weigh(self.changed)
        options = {self.choices.get(id) for id in self._storages}
        return MemoryEstimate(
            int(self.document["figures"]["peak_bytes"]) + after.peak_bytes - before.peak_bytes,
            saved_bytes + after.saved_bytes - before.saved_bytes,
            exact={id.partition(":")[0].partition(".")[0] for id in self.choices} == {"saved"}
            and "offload" not in options,
        )

    def _weigh(self, changed: Mapping[str, str]) -> Prediction:
        """Return the memory of the joint graph under the saved choices and the choices `changed`."""
        joint, chosen = self._joint, self._saved_options | dict(changed)
        assert joint is not None
        again = [storage for id, storage in self._storages.items() if chosen[id] == "recompute"]
        away = [storage for id, storage in self._storages.items() if chosen[id] == "offload"]
        change = joint.edit(again, along=chosen[_ALONG] == "along", gather=False)
        return Predictor(joint.graph).predict(
            change.schedule(joint.graph), offloaded_storages=away, ahead=int(chosen[_AHEAD])
        )

    @cached_property
    def _saved_graph_kinds(self) -> set[int]:
        return set(self.document["graph"]["statements"]["kind"])

    @cached_property
    def timeline(self) -> Timeline:
        """Predicted memory over the statements.

        Raises
        ------
        ChoiceError
            If a choice made here changes which statements exist, or cannot be predicted.
        """
        self._check_predicted()
        if not self.has_statements:
            raise ChoiceError(
                "the choices made here change the statements, and only a new plan by Thunder has the new statements: "
                "`.estimate` has the peak and the saved bytes"
            )
        return timeline(self.graph)

    @property
    def has_statements(self) -> bool:
        """Whether `graph` and `timeline` include the choices made here."""
        return not self.unpredicted and not set(self.changed) - {_ORDER}

    @property
    def peak_bytes(self) -> int:
        """Predicted maximum of bytes alive in a step; see `estimate`."""
        return self.estimate.peak_bytes

    @property
    def peak_at_least(self) -> bool:
        """Whether `peak_bytes` is a lower bound, because a CPU kernel of the plan could not be measured."""
        return self.graph.has_unmeasured_kernels

    @property
    def saved_bytes(self) -> int:
        """Predicted bytes held for the backward."""
        return self.estimate.saved_bytes

    def alive_at_peak(self) -> tuple[AliveValue, ...]:
        """Return the values alive at the peak, largest first."""
        return alive_at(self.graph, self.timeline.peak_statement)

    def sites(self, lever: str | None = None) -> tuple[Site, ...]:
        """Return the plan's sites under the choices made here; with `lever`, only the sites of this lever."""
        names = {field.name for field in dataclasses.fields(Site)} - {"effect", "choice"}
        found = []
        for site in self.document["sites"]:
            if lever in (None, site["lever"]):
                given: dict[str, Any] = {name: value for name, value in site.items() if name in names}
                given |= {name: tuple(given[name]) for name in ("options", "values")}
                found.append(Site(**given, choice=self.changed.get(site["id"], site["choice"])))
        return tuple(found)

    def choose(self, choices: Mapping[str, str]) -> SavedPlan:
        """Return the plan under further choices; this object does not change.

        Raises
        ------
        ChoiceError
            If the plan does not have a site, or the document says that the option is refused; the message has the
            reason.
        """
        known = {site.id: site for site in self.sites()}
        check_texts(choices)
        for id in choices:
            if id not in known:
                raise ChoiceError(f"this plan has no site {short_repr(id)}; .sites() lists its sites", id)
        check_choices(choices, known)
        wanted = {**self.changed, **choices}
        return SavedPlan(
            self.document, {id: option for id, option in wanted.items() if option != self._saved_options[id]}
        )

    def compare(self, saved: SavedPlan) -> dict[str, tuple[Any, Any]]:
        """Return the figures and choices in which this plan and `saved` differ.

        Each entry has two values: of this plan, and of `saved`. A missing value is None.
        """
        mine, others = self._comparable_figures(), saved._comparable_figures()
        names = dict.fromkeys((*mine, *others))
        return {n: (mine.get(n), others.get(n)) for n in names if mine.get(n) != others.get(n)}

    def _comparable_figures(self) -> dict[str, Any]:
        figures = self.document["figures"]
        found: dict[str, Any] = {name: value for name, value in figures.items() if isinstance(value, int | float)}
        found |= {name: self.document[name] for name in ("program", "device", "executor", "ranks")}
        if self.unpredicted:
            found |= {"peak_bytes": None, "saved_bytes": None}
        else:
            found |= {"peak_bytes": self.peak_bytes, "saved_bytes": self.saved_bytes}
        if not self.has_statements:
            found["statements"] = found["saved_tensors"] = None
        return {**found, **self.choices}

    @property
    def config(self) -> Config:
        """A config with all choices. Someone who has the program can replay the config."""
        names = ("program", "executor", "device", "settings", "versions", "ranks", "parallel", "capture", "modes")
        # Documents of earlier versions have no fingerprint.
        fingerprint = self.document.get("fingerprint", "")
        return Config(**{name: self.document[name] for name in names}, choices=self.choices, fingerprint=fingerprint)

    def export(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the config, as `Workbench.export` does. The plan is proven only when the config is replayed."""
        return self.config.write(path, overwrite=overwrite)

    def report(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write one read-only HTML page that needs no network, as `Workbench.report` does: graph, figures, memory.

        Raises
        ------
        ChoiceError
            If choices were made here, because the page shows the saved figures.
        ConfigError
            If the page cannot be written, or `path` exists and is a different kind of file.
        """
        if self.changed:
            raise ChoiceError(
                "the page shows a plan as it was saved, but choices were made on this plan: "
                "`workbench.compare(…).write(…)` shows both"
            )

        def text() -> str:
            from workbench.ui.html_pages import report_page

            return BEGIN.decode() + report_page.saved_page(self)

        return write_document(path, text, begin=BEGIN, kind="report", overwrite=overwrite)

    def run(self, **_: Any) -> None:
        """Refuse a run, because a saved plan does not contain the program.

        Raises
        ------
        ChoiceError
            Always; the message says what to do.
        """
        raise ChoiceError(
            "a saved plan has no program and no weights to run: export the config, and run it with the program"
        )

    def _check_predicted(self) -> None:
        if self.unpredicted:
            raise ChoiceError("; ".join(f"{id}: {reason}" for id, reason in self.unpredicted.items()))

    def __repr__(self) -> str:
        about = "not predicted here"
        if not self.unpredicted:
            found = self.estimate
            about = f"peak {peak_text(self)}, saved for backward {human_bytes(found.saved_bytes)}"
            about += ", predicted" if found.exact else ", estimated: the owner's plan may differ slightly"
        lines = [
            f"saved plan of {self.document['program']}, {self.document['executor']} on {self.document['device']}",
            about,
            f"{len(self.document['sites'])} sites, {len(self.choices)} choices, {len(self.changed)} of them made here",
            *(f"{id}: {reason}" for id, reason in self.unpredicted.items()),
        ]
        return "\n".join(lines)


def read_saved_plan(path: str | os.PathLike[str]) -> SavedPlan:
    """Open a plan that `Workbench.save` wrote.

    Raises
    ------
    ConfigError
        If the file cannot be read, or is not a saved plan.
    """
    named = one_line(str(path))
    try:
        found = json.loads(paths.read(path, MOST_BYTES))
    except OSError as error:
        raise ConfigError(f"the saved plan {named} cannot be read: {paths.reason_of(error)}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{named} is not a saved plan of thunder-workbench: it is not JSON") from error
    if not isinstance(found, dict) or (found.get("format"), found.get("format_version")) != (FORMAT, FORMAT_VERSION):
        raise ConfigError(f"{named} is not a saved plan of thunder-workbench, or was written by another version")
    plan = SavedPlan(found)
    try:
        repr(plan), plan.sites(), plan.config
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise ConfigError(f"the saved plan {named} is damaged: {one_line(repr(error))}") from error
    return plan
