"""The claimed joint trace of all layers as tables, with the ids of its values, written on from those of few layers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from workbench.compiler.extended import Extended, check_lies
from workbench.compiler.layers import OtherwiseError
from workbench.compiler.stage import Stage
from workbench.compiler.unfolded import Unfolder


def knowing(whole: Stage, few: Stage, unfolder: Unfolder) -> Stage:
    """All layers, with what need not be read off their statements: reading the tables takes nine times as long.

    Parameters
    ----------
    whole : Stage
        Of all layers.
    few : Stage
        Of the program without those that were left out.
    unfolder : Unfolder
        That wrote them.
    """
    try:
        check_lies(unfolder, few.arguments)
        tables = Extended(few.graph, unfolder, few.arguments, None)
    except (OtherwiseError, KeyError):  # the layers that stayed are not one as the other in the tables
        return whole
    try:
        places = _places(tables, few)
    except OtherwiseError:
        places = None
    return whole.knowing(tables.graph, places)


def _places(tables: Extended, few: Stage) -> Mapping[str, str]:
    """The ids of all values, by those of few layers.

    Raises
    ------
    OtherwiseError
        If some of those that were left out are counted through all layers.
    """
    found = [few.parts_of_places.get(name) for name in few.graph.values.name]
    if any(place is not None and place.origin < 0 for place in found):
        raise OtherwiseError
    origins = np.asarray([-1 if place is None else place.origin for place in found], np.intp)
    outside = [place is not None and tables.unfolder.layer_of(place.origin) < 0 for place in found]
    if (np.asarray(outside, bool)[tables.values] & (tables.shifts > 0)).any():
        raise OtherwiseError
    ids = [origin.id for origin in few.origins]
    each = zip(tables.graph.values.name, tables.values.tolist(), tables.origins_of(origins).tolist(), strict=True)
    return {name: ids[origin] + place.rest for name, value, origin in each if (place := found[value]) is not None}
