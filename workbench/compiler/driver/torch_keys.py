"""For each site of the lever `saved`, find the PyTorch operator that computes its tensor."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from contextlib import nullcontext

from workbench.compiler.driver.capture import Capture
from workbench.compiler.frontend import dynamo
from workbench.compiler.interop import devices
from workbench.compiler.interop.thunder_api import BoundSymbolTag
from workbench.compiler.lowering import patch_context
from workbench.compiler.trace.bsym_memo import made_names
from workbench.compiler.trace.source_frames import place_of
from workbench.compiler.trace.stable_ids import file_label, find_places, is_statement, origin_of
from workbench.plain_torch.compiled import keys_of
from workbench.plain_torch.operators import Key, Operators, common_name
from workbench.programs import modes
from workbench.util.planning_lock import one_at_a_time


@one_at_a_time
def torch_keys(captured: Capture, ids: Iterable[str]) -> tuple[dict[str, Key], dict[str, str]]:
    """Find the key of the operator that computes each value, by the value's stable id.

    A key has the path of the module, the operator's name, and how many operators of this name precede it in the module.

    A statement of Thunder corresponds to an operator of Dynamo's graph if both have the same module, file, line and
    name. Thunder must also have as many such statements as Dynamo's graph has such operators.

    Parameters
    ----------
    captured : Capture
    ids : iterable of str
        Stable ids of values of the joint trace, such as ``layers.0.mlp/silu``.

    Returns
    -------
    dict of str to Key
        Maps an id to the key of its operator.
    dict of str to str
        Maps every other id to the reason why it has no operator.

    Raises
    ------
    ProgramError
        If Dynamo cannot capture the program as one graph.
    """
    context = captured.context
    operators = _operators(captured)
    statements: defaultdict[Hashable, list[int]] = defaultdict(list)
    for index, origin in enumerate(context.origins):
        statements[origin.scope, origin.file, origin.line, common_name(origin.symbol)].append(index)
    key_of = {
        index: key
        for place, indices in statements.items()
        if len(indices) == len(operators.get(place, ()))
        for index, key in zip(indices, operators[place], strict=True)
    }
    places = find_places(context.claimed.bound_symbols, context.origins)
    values = {id: value for value, id in context.value_ids.items()}
    storages = dict(zip(context.graph.values.name, context.graph.values.storage.tolist(), strict=True))
    # The last statement that Thunder makes from an operator computes the operator's result, or a view of the result.
    result: dict[int, int | None] = {}
    for bsym in context.claimed.bound_symbols:
        if BoundSymbolTag.BACKWARD not in bsym.tags and is_statement(bsym):
            result.update((origin_of(bsym), storages.get(name)) for name in made_names(bsym)[:1])
    found: dict[str, Key] = {}
    reasons: dict[str, str] = {}
    for id in ids:
        value = values.get(id, "")
        place = places.get(value)
        if place is None or place.origin < 0:
            reasons[id] = "no statement of the program makes it"
        elif place.rest and result[place.origin] != storages.get(value):
            symbol = context.origins[place.origin].symbol
            reasons[id] = f"it is a part of {symbol}, which Thunder decomposes and PyTorch does not"
        elif place.origin not in key_of:
            symbol = context.origins[place.origin].symbol
            reasons[id] = f"PyTorch's graph has no operator {symbol} on this line, or not as many as Thunder"
        else:
            found[id] = key_of[place.origin]
    return found, reasons


def _operators(captured: Capture) -> Mapping[Hashable, list[Key]]:
    """Return the keys of the operators in Dynamo's graph, by module, file, line and name."""
    program = captured.program
    with (
        patch_context.install_patches(),
        modes.active_modes(program.modes),
        devices.planned_gpu(program.fake_mode) if program.fake_mode is not None else nullcontext(),
    ):
        graph = dynamo.whole_graph(program.callable, program.args, program.kwargs).graph
    names = Operators(program.callable, {})
    found: defaultdict[Hashable, list[Key]] = defaultdict(list)
    for node, key in keys_of(names, graph).items():
        scope, frame = place_of(node, names.paths)
        file = file_label(frame.file).rsplit("/", 1)[-1]
        found[scope, file, frame.line, key[1]].append(key)
    return found
