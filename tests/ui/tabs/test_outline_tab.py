"""The page gets only the rows of the outline that are visible, and the rows that one click opens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import workbench
from workbench.bench.report.source_outline import choices_to_turn, count_turns, outline
from workbench.ui.app.app import App


@pytest.fixture(scope="module")
def bench() -> workbench.Workbench:
    """Return one bench for all tests. The fixture `app` asserts that each test leaves the bench without choices."""
    return workbench.open("llama", layers=2, device="cpu", executor="torch")


@pytest.fixture
def app(bench: workbench.Workbench) -> Iterator[App]:
    app = App(bench)
    app.outline.show_plan()
    yield app
    app.close()
    assert bench.choices == {}


def sent(app: App) -> dict[str, dict[str, Any]]:
    return {row["key"]: row for row in app.outline.content["parts"]}


@pytest.mark.slow
def test_open_parts_and_one_further_level_are_sent(app):
    parts = outline(app.bench.plan)
    known = {part.key: part for part in parts}
    above = {part.key: parts[part.parent] if part.parent >= 0 else None for part in parts}
    rows = sent(app)

    def is_open(part) -> bool:
        return part is None or (part.kind == "module" and part.depth < 2 and is_open(above[part.key]))

    wanted = [part.key for part in parts if above[part.key] is None or is_open(above[above[part.key].key])]
    assert list(rows) == wanted
    assert len(rows) < len(parts) / 2
    for key, row in rows.items():
        assert row["leads"] == any(above[other] is known[key] for other in known)
        parent = above[key]
        assert row["parent"] == (-1 if parent is None else list(rows).index(parent.key))


def test_the_contents_of_an_opened_part_are_sent(app):
    closed = next(row for row in sent(app).values() if row["kind"] == "line" and row["depth"] == 3)
    before = len(sent(app))
    app.outline._receive({"type": "open", "key": closed["key"]})
    assert len(sent(app)) == before, "opening a hidden line must show nothing"
    within = sent(app)[closed["key"]]["parent"]
    app.outline._receive({"type": "open", "key": list(sent(app))[within]})
    statements = [row for key, row in sent(app).items() if key.startswith(f"{closed['key']}|")]
    assert statements
    assert {row["kind"] for row in statements} == {"statement"}
    app.outline.show_plan()
    assert [row for key, row in sent(app).items() if key.startswith(f"{closed['key']}|")]


def test_the_path_to_the_selected_statement_is_sent(app):
    ids, rows = app.graph.shown_ids(), sent(app)
    hidden = next(part for part in outline(app.bench.plan) if part.kind == "statement" and part.key not in rows)
    app.outline.selected = ids[hidden.statement]
    assert any(row["kind"] == "statement" and row["id"] == ids[hidden.statement] for row in sent(app).values())


def test_each_count_in_the_outline_equals_the_number_of_choices_that_an_option_makes(app):
    bench = app.bench
    site = next(s for s in bench.sites("saved") if s.values and "recompute" not in s.illegal)
    bench.choose({site.id: "recompute"})
    for part in outline(bench.plan):
        sites = [bench.plan.site_of[id] for id in part.sites]
        assert count_turns(sites) == {option: len(choices_to_turn(sites, option)) for option in count_turns(sites)}
    bench.undo()
