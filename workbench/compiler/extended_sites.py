"""Sites of few layers written on to all: ids, labels and reasons, which name layers, values and fusions."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from workbench.compiler.chains import Chain, Numbering, inserted, known, number_of
from workbench.compiler.layers import OtherwiseError
from workbench.lever import Site

if TYPE_CHECKING:
    from workbench.compiler.extended import Extended

_UNKNOWN = "\0"
"""In a text, what is not known of the layer after the gap."""

_SET = re.compile(r"\{([^{}]*)\}")
"""In a text, names of which the order tells nothing."""

_ORDINAL = re.compile(r"(.*/[^/]*?)(?:\.(\d+))?(\[\d+\])?")
"""The id of a site, with the place of its value among equals."""


class Sites:
    """Sites of few layers, written on.

    A text is written for the layer before the gap, for each that was left out, and for the layer after it; elsewhere
    once.

    Parameters
    ----------
    tables : Extended
    sites : sequence of Site
        Of the program without the layers that are left out.
    """

    def __init__(self, tables: Extended, sites: Sequence[Site]) -> None:
        unfolder = self._unfolder = tables.unfolder
        self._tables, self._given = tables, sites
        self._gap, self._stem, (self._one, self._other) = unfolder.gap, unfolder.stem, unfolder.ends
        self._chain, self._fusions = tables.chain, tables.fusions
        self._in_layer = re.compile(rf"(?<![\w.]){re.escape(self._stem)}(\d+)(?=[./])")
        # `i` has the numbers that are no tensors, as the state that others are drawn from.
        stems = {"t", "i", *(number_of(fusion)[0] for fusion in tables.fusions.stay)}
        numbered = rf"(?:{'|'.join(map(re.escape, sorted(stems)))})\d+"
        self._numbered = re.compile(numbered)
        """What has the name of a value or a fusion."""
        self._tokens = re.compile(
            rf"{numbered}(?:, {numbered})+|{_SET.pattern}|(?<![\w.]){re.escape(self._stem)}\d+(?=[./])|[A-Za-z_]\w*"
        )
        self._layers = self._numbered_layers()
        self._part = [self._layer(site) for site in sites]
        self._ordinals: dict[str, int] = {}
        """What those are counted as that stand for others in the layer after the gap."""
        self._chains = self._counted()

    def written_on(self) -> tuple[Site, ...]:
        """Those of the whole program, in its order.

        Raises
        ------
        OtherwiseError
            If the sites of the layers that stayed are not one as the other.
        """
        part = np.asarray(self._part, np.intp)
        here, there = np.flatnonzero(part == self._one), np.flatnonzero(part == self._other)
        if len(here) != len(there):
            raise OtherwiseError
        written = [self._written(site, at) for site, at in zip(self._given, self._part, strict=True)]
        for x, y in zip(here.tolist(), there.tolist(), strict=True):
            if not _as_known(written[x][-1], written[y][0]):
                raise OtherwiseError
        after = inserted(here, there)
        further = range(1, self._gap + 1)
        found: list[Site] = []
        for at, of_each in enumerate(written):
            found.append(of_each[0])
            if at in after:
                backward, rows = after[at]
                for by in reversed(further) if backward else further:
                    found.extend(written[row][by] for row in rows.tolist())
        return tuple(found)

    def _numbered_layers(self) -> dict[int, int]:
        """Which of the layers that stay each of the container's numbers is of.

        Raises
        ------
        OtherwiseError
            If those that are left out are numbered otherwise.
        """
        origins, unfolder = self._tables.graph.origins, self._unfolder
        found: dict[int, int] = {}
        for index, origin in enumerate(origins):
            if (part := unfolder.layer_of(index)) >= 0 and unfolder.stays(index):
                for number in self._in_layer.findall(f"{origin.scope}/"):
                    if found.setdefault(int(number), part) != part:
                        raise OtherwiseError
        for by, pairs in enumerate(unfolder.origins_between(), 1):
            for one, other in {(origins[x].scope, origins[y].scope) for x, y in pairs}:
                numbers = [int(number) + by * unfolder.turns for number in self._in_layer.findall(f"{one}/")]
                if numbers != list(map(int, self._in_layer.findall(f"{other}/"))):
                    raise OtherwiseError
        return found

    def _layer(self, site: Site) -> int:
        """The layer that a site is in, of those that stay; -1 for none."""
        parts = {self._layers.get(int(number), -1) for number in self._in_layer.findall(site.id)}
        if not parts:
            parts = {self._chain.made_in.get(name, -1) for name in site.values}
            if len(parts) > 1:
                return -1
        if len(parts) > 1:
            raise OtherwiseError
        return parts.pop() if parts else -1

    def _counted(self) -> dict[str, Numbering]:
        """How ordinals go on in ids that name no layer."""
        pairs: dict[str, list[tuple[int, int]]] = {}
        both = (
            [site for site, part in zip(self._given, self._part, strict=True) if part == at]
            for at in (self._one, self._other)
        )
        for x, y in zip(*both, strict=False):
            if not self._named(x):
                (stem, one, _), (other_stem, other, _) = _counted(x.id), _counted(y.id)
                if stem != other_stem or one == other:
                    raise OtherwiseError
                self._ordinals[x.id] = other
                pairs.setdefault(stem, []).append((one, other))
        return {stem: Numbering.of(found) for stem, found in pairs.items()}

    def _of_both(self, names: Sequence[str]) -> bool:
        """Whether names are of both layers that the others belong between: theirs may belong beside them."""
        return {self._one, self._other} <= {self._chain.made_in.get(name, -1) for name in names}

    def _check_beside(self, site: Site, part: int) -> None:
        """A layer beside those two that tells of both tells of the next ones, as the layer beside it does."""
        first: Site | None
        second: Site | None
        if part == self._one - 1:
            first, second = site, self._by_id.get(self._of_next(site.id))
        else:
            first, second = self._by_next.get(site.id), site
        if first is None or second is None:
            raise OtherwiseError
        if [self._set_of_next(names) for names in _sets(first)] != [set(names) for names in _sets(second)]:
            raise OtherwiseError

    def _set_of_next(self, names: Sequence[str]) -> set[str]:
        return {self._chain.of_next(name) if name in self._chain.stay else name for name in names}

    def _of_next(self, id: str) -> str:
        """The id of what stands for a site in the next layer."""
        return self._in_layer.sub(lambda found: f"{self._stem}{int(found[1]) + self._unfolder.turns}", id)

    @cached_property
    def _by_id(self) -> Mapping[str, Site]:
        return {site.id: site for site in self._given}

    @cached_property
    def _by_next(self) -> Mapping[str, Site]:
        """Sites of the layer after the gap by the ids of those that stand for them in the next."""
        of_other = (site for site, at in zip(self._given, self._part, strict=True) if at == self._other)
        return {self._of_next(site.id): site for site in of_other}

    def _written(self, site: Site, part: int) -> list[Site]:
        if part in (self._one - 1, self._other + 1) and any(map(self._of_both, _sets(site))):
            self._check_beside(site, part)
        ids, labels = self._ids(site, part), self._texts(site.label, part)
        illegal = {option: self._texts(reason, part) for option, reason in site.illegal.items()}
        if part in (self._one, self._other):
            each = [self._texts(value, part) for value in site.values]
            values = [tuple(texts) for texts in zip(*each, strict=True)] if each else [()] * len(ids)
        else:
            values = [tuple(self._beside(site.values, self._chain, part))]
        fields = {field.name: getattr(site, field.name) for field in dataclasses.fields(Site)}
        return [
            Site(
                **fields
                | {
                    "id": ids[by],
                    "label": labels[by],
                    "illegal": {option: texts[by] for option, texts in illegal.items()},
                    "values": values[by],
                }
            )
            for by in range(len(ids))
        ]

    def _named(self, site: Site) -> bool:
        """Whether the id of a site names its layer, or its value."""
        return bool(self._in_layer.search(site.id) or self._numbered.search(site.id.partition(":")[2]))

    def _ids(self, site: Site, part: int) -> list[str]:
        if self._named(site):
            return self._texts(site.id, part)
        stem, number, end = _counted(site.id)
        numbering, numbers = self._chains.get(stem), [number]
        if numbering is not None:
            numbers = [numbering.moved(number, self._gap)]
        if part == self._one:
            if numbering is None:
                raise OtherwiseError
            other = self._ordinals[site.id]
            numbers += [*numbering.between(number, other, self._gap), numbering.moved(other, self._gap)]
        return [f"{stem}.{number}{end}" if number else f"{stem}{end}" for number in numbers]

    def _texts(self, text: str, part: int) -> list[str]:
        """A text of a layer, as it is in each."""
        count = self._gap + 2 if part == self._one else 1
        pieces: list[list[str]] = []
        begun = 0
        for token in self._tokens.finditer(text):
            found = self._token(token[0], part)
            if found is not None:
                pieces += [
                    [text[begun : token.start()]] * count,
                    [_UNKNOWN if each is None else each for each in found],
                ]
                begun = token.end()
        if not pieces:
            return [text] * count
        pieces.append([text[begun:]] * count)
        return ["".join(each) for each in zip(*pieces, strict=True)]

    def _token(self, token: str, part: int) -> Sequence[str | None] | None:
        """What stands for a part of a text in each layer; None where it is the same."""
        if ", " in token and not token.startswith("{"):
            return self._listed(token.split(", "), part)
        if token.startswith("{"):
            # Names in the order of the alphabet, as what is told of ties has them.
            names = token[1:-1].split(", ")
            if names != sorted(names):
                raise OtherwiseError
            if part not in range(self._one - 1, self._other + 2) and self._of_both(names):
                raise OtherwiseError
            written = [self._texts(name, part) for name in names]
            return ["{" + ", ".join(sorted(each)) + "}" for each in zip(*written, strict=True)]
        if self._in_layer.match(f"{token}/"):
            number = int(token[len(self._stem) :])
            return [f"{self._stem}{moved}" for moved in self._moved(number, part)]
        for chain in (self._fusions, self._chain):
            if token in chain.stay:
                return chain.named(token, part)
        if self._numbered.fullmatch(token):
            raise OtherwiseError
        return None

    def _listed(self, names: Sequence[str], part: int) -> Sequence[str | None]:
        """Fusions one after the other: where all layers read something, those of the layers left out read it, too."""
        chain, (one, other) = self._fusions, (self._one, self._other)
        if any(name not in chain.stay for name in names):
            raise OtherwiseError
        if part in (one, other):
            written = [[each or _UNKNOWN for each in chain.named(name, part)] for name in names]
            return [", ".join(each) for each in zip(*written, strict=True)]
        return [", ".join(self._beside(names, chain, part))]

    def _beside(self, names: Sequence[str], chain: Chain, part: int) -> list[str]:
        """Names that something outside of both layers has, with those of the layers left out beside theirs."""
        one, other = self._one, self._other
        made_in = np.asarray([chain.made_in.get(name, -1) for name in names])
        here, there = np.flatnonzero(made_in == one), np.flatnonzero(made_in == other)
        if part in (one - 1, other + 1) or len(here) != len(there):
            return [known(chain.named(name, part))[0] for name in names]
        after, found = inserted(here, there), list[str]()
        for at, name in enumerate(names):
            found.append(chain.stay[name])
            if at in after:
                backward, places = after[at]
                for copy in reversed(chain.copies) if backward else chain.copies:
                    found.extend(copy[names[place]] for place in places.tolist())
        return found

    def _moved(self, number: int, part: int) -> list[int]:
        """The number of a layer, as one layer after the other tells it."""
        of, turns, gap = self._layers.get(number, -1), self._unfolder.turns, self._gap
        if part == self._other:
            return [number + gap * turns if of == self._one else number]
        if part != self._one:
            return [number]
        if of < 0:
            return [number] * (gap + 2)
        if of > self._other:
            raise OtherwiseError
        return [number + (by - gap * (of == self._other)) * turns for by in range(gap + 2)]


def _sets(site: Site) -> list[list[str]]:
    """The names of which it tells in no order."""
    return [found[1].split(", ") for text in (site.label, *site.illegal.values()) for found in _SET.finditer(text)]


def _as_known(one: Site, other: Site) -> bool:
    """Whether two sites are the same, as far as it is known what the first would be."""

    def same(mine: str, theirs: str) -> bool:
        if mine == theirs:
            return True
        around, of_other = _SET.sub("{}", mine), _SET.sub("{}", theirs)
        return bool(re.fullmatch(".*".join(map(re.escape, around.split(_UNKNOWN))), of_other))

    # Where some of a set are not known, those that are stand there in another order.
    sets = zip(_sets(one), _sets(other), strict=False)
    if any(len(mine) != len(theirs) or not set(mine) - {_UNKNOWN} <= set(theirs) for mine, theirs in sets):
        return False
    return (
        dataclasses.replace(one, label=other.label, illegal=other.illegal) == other
        and same(one.label, other.label)
        and one.illegal.keys() == other.illegal.keys()
        and all(same(one.illegal[option], other.illegal[option]) for option in one.illegal)
    )


def _counted(id: str) -> tuple[str, int, str]:
    found = _ORDINAL.fullmatch(id)
    return (found[1], int(found[2] or 0), found[3] or "") if found else (id, 0, "")
