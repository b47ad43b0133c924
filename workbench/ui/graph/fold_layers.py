"""Find identical layers, and identical repeats of a loop. Only the first of several consecutive ones is shown."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from workbench.core.graph import Graph, layer_of
from workbench.core.lever import Site
from workbench.ui.graph.arcs import ArcTable
from workbench.ui.graph.layout_arrays import Ints
from workbench.ui.graph.site_anchors import GraphIndex, Mark

type _Signature = tuple[tuple[str, object, object, object], ...]
"""For each block (statement of the program) of a layer: its symbol, its statements, its arcs, and choices at its sites.

Layers with equal signatures can be folded.
"""


_DIFFERENCES = ((2, "another choice, or other bytes,"), (3, "another choice"), (1, "other statements"))
"""Indices of a signature's parts, and words for a difference in each part. Choices come first, because a different
choice also changes statements.
"""


_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True)
class Span:
    """Consecutive blocks of one layer, or of one repeat of a loop.

    `layer` is empty between layers. For a repeat of a loop, it is ``file:line, repeat n``.
    """

    layer: str
    blocks: tuple[int, ...]
    loop: str = ""

    @property
    def stem(self) -> str:
        """Name shared by the spans that fold and unfold together."""
        return self.loop or self.layer.rpartition(".")[0] or self.layer


@dataclass(frozen=True)
class Fold:
    """The shown spans, with the layers that each span stands for.

    Attributes
    ----------
    shown : tuple of Span
    stands_for : tuple of tuple of Span
        For each shown span, all spans that it stands for, including itself.
    identical : tuple of int
        For each shown span, the length of the run of identical spans that contains it.
    differs : tuple of str
        For each shown layer or repeat, its difference in words from the span shown directly before it. Empty if there
        is no difference, or if the two have different stems.
    """

    shown: tuple[Span, ...]
    stands_for: tuple[tuple[Span, ...], ...]
    identical: tuple[int, ...]
    differs: tuple[str, ...]
    twin: Ints
    """For each hidden statement, the statement that is shown instead; -1 for shown statements."""

    @functools.cached_property
    def blocks(self) -> list[tuple[int, tuple[int, ...]]]:
        """The shown blocks, each with the blocks that it represents, including itself."""
        return [
            (block, of_all)
            for span, layers in zip(self.shown, self.stands_for, strict=True)
            for block, of_all in zip(span.blocks, zip(*(layer.blocks for layer in layers), strict=True), strict=True)
        ]


def _spans(graph: Graph, index: GraphIndex) -> list[Span]:
    blocks = np.unique(index.block[index.shown]).tolist()
    found = itertools.groupby(blocks, lambda block: layer_of(graph.origins[block - 1].scope) if block else "")
    return [Span(layer, tuple(of_layer)) for layer, of_layer in found]


LEAST_REPEATS = 4
"""Minimum number of repeats of a loop. Fewer repeats more likely come from one expression than from a loop."""
LONGEST = 256
"""Maximum number of blocks in the body of a loop."""
LOOP = "loop:"
"""Prefix of the stem of a loop's repeats."""

type _Line = tuple[str, int, str]
"""File, line and symbol of a block."""


def repeats_of(graph: Graph, span: Span, signature: Callable[[Span], _Signature]) -> list[Span]:
    """Split a span outside of layers into the repeats of loops, and the parts before and after the loops.

    Repeats are source lines that recur in the same order. If no two adjacent repeats are identical, the span is not
    split, because folding would save no space.
    """
    found = _period([_line_of(graph, block - 1) for block in span.blocks])
    if found is None:
        return [span]
    start, length, count = found
    origin = graph.origins[span.blocks[start] - 1]
    repeats = [
        Span(f"{origin.file}:{origin.line}, repeat {number}", span.blocks[at : at + length], f"{LOOP}{origin.id}")
        for number, at in enumerate(range(start, start + length * count, length))
    ]
    if not any(one == other for one, other in itertools.pairwise(map(signature, repeats))):
        return [span]
    around = (span.blocks[:start], span.blocks[start + length * count :])
    before, after = (repeats_of(graph, Span("", blocks), signature) if blocks else [] for blocks in around)
    return [*before, *repeats, *after]


def _line_of(graph: Graph, origin: int) -> _Line:
    if origin < 0:
        return ("", 0, "")
    source = graph.origins[origin]
    return (source.file, source.line, source.symbol)


def _period(lines: Sequence[_Line]) -> tuple[int, int, int] | None:
    """Find the repeats that cover most lines, and return their start, length and count; None if there are none.

    If several lengths cover equally many lines, the shortest repeats are returned.
    """
    known: dict[_Line, int] = {}
    codes = np.asarray([known.setdefault(line, len(known)) if line[0] else -n for n, line in enumerate(lines, 1)])
    best: tuple[int, int, int] | None = None
    for length in range(1, min(LONGEST, len(codes) // LEAST_REPEATS) + 1):
        same = np.concatenate([[0], (codes[:-length] == codes[length:]).astype(np.int8), [0]])
        edges = np.flatnonzero(np.diff(same))
        for first, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            count = (stop - first) // length + 1
            if count >= LEAST_REPEATS and (best is None or length * count > best[1] * best[2]):
                best = (first, length, count)
    return best


def _marks_by_block(marks: Sequence[Mark]) -> dict[int, list[Mark]]:
    rows: dict[int, list[Mark]] = {}
    for one in marks:
        rows.setdefault(one.block, []).append(one)
    return rows


@functools.lru_cache(maxsize=1 << 14)
def _strip_digits(name: str) -> str:
    return _DIGITS.sub("", name)


def _statements_by_block(graph: Graph, index: GraphIndex) -> list[bytes]:
    """Return bytes that encode the statements of each block by side (forward or backward) and name.

    Numbers in names are left out, so that corresponding blocks of identical layers have equal bytes.
    """
    each, which = graph.statements.names
    numbers: dict[str, int] = {}
    names = np.asarray([numbers.setdefault(_strip_digits(name), len(numbers)) for name in each], np.int32)[which]
    rows = np.flatnonzero(index.shown & ~index.headed)
    # The forward comes first in a graph, and therefore in each block.
    order = np.argsort(index.block[rows], kind="stable")
    coded = (2 * names + graph.statements.side)[rows[order]].astype(np.int32)
    count = len(graph.origins) + 1
    edges = (coded.itemsize * np.searchsorted(index.block[rows[order]], np.arange(count + 1))).tolist()
    content = coded.tobytes()
    return [content[start:stop] for start, stop in itertools.pairwise(edges)]


def fold_of(
    graph: Graph,
    index: GraphIndex,
    sites: Sequence[Site],
    arcs: ArcTable,
    marks: list[Mark],
    unfolded: Collection[str],
) -> Fold:
    """Find runs of identical layers, and choose the layers to show.

    Layers are identical if they are equal in the captured program (`Graph.layer_differences`) and in the plan. Runs
    whose stem is in `unfolded` are not folded. A single layer that is in `unfolded` is not folded with other layers.
    """
    differences = graph.layer_differences
    members, statements = index.members, _statements_by_block(graph, index)
    arcs_of, marks_of = arcs.contents(len(graph.origins) + 1), _marks_by_block(marks)
    chosen = {mark.site: (sites[mark.site].choice, sites[mark.site].outcome) for mark in marks}
    placed = {mark.block for mark in marks if any(option.startswith("at(") for option in chosen[mark.site])}

    @functools.cache
    def signature(span: Span) -> _Signature:
        return tuple(
            (
                graph.origins[block - 1].symbol if block else "",
                statements[block],
                arcs_of[block],
                tuple([relative_options(span, *chosen[mark.site]) for mark in marks_of.get(block, ())])
                if block in placed
                else tuple([chosen[mark.site] for mark in marks_of.get(block, ())]),
            )
            for block in span.blocks
        )

    def relative_options(span: Span, *options: str) -> tuple[str, ...]:
        # An option `at(STATEMENT)` may name a statement of the same layer. Remove the layer's name from it, so that
        # such options of different layers are equal.
        places = [option.removeprefix(f"at({span.layer}") for option in options]
        return tuple(
            [
                place if place.startswith((".", "/")) and place != option else option
                for place, option in zip(places, options, strict=True)
            ]
        )

    def difference(first: Span, second: Span) -> str:
        return differences.get(second.layer) or _difference(signature(first), signature(second))

    spans = [
        part for span in _spans(graph, index) for part in ([span] if span.layer else repeats_of(graph, span, signature))
    ]
    shown: list[Span] = []
    stands_for: list[tuple[Span, ...]] = []
    identical: list[int] = []
    differs: list[str] = []
    hidden: list[int] = []
    stands: list[int] = []
    start = 0
    while start < len(spans):
        first, stop = spans[start], start + 1
        if first.layer:
            same = signature(first)
            while (
                stop < len(spans)
                and spans[stop].stem == first.stem
                and spans[stop].layer not in differences
                and signature(spans[stop]) == same
            ):
                stop += 1
        run = spans[start:stop]
        groups = [[span] for span in run] if first.stem in unfolded else _split_at(run, unfolded)
        for group in groups:
            shown.append(group[0])
            stands_for.append(tuple(group))
            identical.append(len(run))
            above = shown[-2] if len(shown) > 1 and group[0].layer and shown[-2].stem == first.stem else None
            differs.append("" if above is None else difference(above, group[0]))
            for span in group[1:]:
                for mine, other in zip(group[0].blocks, span.blocks, strict=True):
                    hidden += members.get(other, ())
                    stands += members.get(mine, ())
        start = stop
    twin = np.full(len(graph.statements), -1, np.int32)
    twin[hidden] = stands
    return Fold(tuple(shown), tuple(stands_for), tuple(identical), tuple(differs), twin)


def _split_at(run: list[Span], unfolded: Collection[str]) -> list[list[Span]]:
    """Split a run of identical layers so that each layer in `unfolded` is alone."""
    grouped = itertools.groupby(run, lambda span: span.layer if span.layer in unfolded else "")
    return [list(group) for _, group in grouped]


def _difference(first: _Signature, second: _Signature) -> str:
    """Describe the first difference between two layers; return an empty text if the layers are identical."""
    if [block[0] for block in first] != [block[0] for block in second]:
        return "other operations"
    for place, words in _DIFFERENCES:
        for one, other in zip(first, second, strict=True):
            if one[place] != other[place]:
                return f"{words} at {one[0]}" if one[0] else words
    return ""


def fold_marks(marks: Sequence[Mark], fold: Fold) -> list[Mark]:
    """Return the marks of the shown layers, each with the sites of all marks that it represents."""
    rows = _marks_by_block(marks)
    return [
        Mark(one.site, one.statement, one.block, tuple([rows[layer][place].site for layer in layers]))
        for block, layers in fold.blocks
        for place, one in enumerate(rows.get(block, ()))
    ]
