"""A trace's function with the code of its regions in it, where each region was only ever called one way.

Inductor writes a function in Python for each region, which allocates what its kernels write and launches them. Called
one by one, a dozen statements of Python stand around each kernel, a third of what a small one takes. Here the trace's
own function is written again, with the statements of those functions where they are called. Before them stands one
check, PyTorch's own in C++, that all inputs are as they were when the region's call was noted; where one is not, the
region is called as before. What is checked once for all regions, the global state, is for the caller to check.

A caller may also check that all that the function is given is as in a call before. How values lie that regions,
products and attention make follows from that, statement by statement, and what reads no others is not checked again.

A view that nothing but other regions and products read is made as Inductor makes its own, without PyTorch's dispatcher,
in half the time. It is a view of the same memory that autograd does not know as one: writes to either would not be
seen, so that a view that is given back or read by anything else is PyTorch's. So is one that is saved for the backward
where a person has the memory in hand: what is saved alone no one writes to.

Code of any other form than the one that is known here stays a call, as it does where kernels run on a GPU.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from types import FunctionType, MethodType
from typing import Any

import torch

from workbench.compiler.aten import attention, attention_backward
from workbench.compiler.direct import Direct, Layout, Pick, Way
from workbench.compiler.products import READS, VIEW_OF, product

type Given = Layout | list[Given] | None
"""How what a function is given lies, or what is in a list of it; None for what is no tensor."""

_MAKES_NEW = (torch.matmul, torch.addmm, torch.nn.functional.linear, attention, attention_backward)
"""What reads tensors alone, keeps none of them, and gives new memory."""


class _OtherFormError(Exception):
    """Inductor's code, or a trace's, is not of the form that can be put into another function."""


class _Body:
    """The statements of one function of Inductor's.

    Parameters
    ----------
    code : callable
        Its method ``call``, a function of a list.

    Attributes
    ----------
    inputs : list of str
    statements : list of ast.stmt
        Without checks of its inputs and without deletions of those.
    outputs : list of ast.expr
    made : set of str
        What it makes.
    names : set of str
        What it makes, and does not delete.
    globals : dict
        What else it reads.
    """

    def __init__(self, code: Callable[[list[Any]], Any]) -> None:
        if not isinstance(code, MethodType):
            raise _OtherFormError
        self.globals = code.__func__.__globals__
        parsed = ast.parse(textwrap.dedent(inspect.getsource(code)))
        (function,) = parsed.body
        if not isinstance(function, ast.FunctionDef) or function.decorator_list:
            raise _OtherFormError
        first, cleared, *rest, last = function.body
        if ast.unparse(cleared) != "args.clear()" or not isinstance(last, ast.Return):
            raise _OtherFormError
        if not isinstance(first, ast.Assign) or ast.unparse(first.value) != "args":
            raise _OtherFormError
        self.inputs = _names_in(first.targets[0])
        if not isinstance(last.value, ast.Tuple):
            raise _OtherFormError
        self.outputs = last.value.elts
        self.statements: list[ast.stmt] = []
        self.names: set[str] = set()
        for statement in rest:
            self._take(statement)
        self.made = {name.id for name in _all_names(self.statements) if isinstance(name.ctx, ast.Store)}
        read = {name.id for name in _all_names([*self.statements, *self.outputs])}
        if not read <= self.made.union(self.inputs, self.globals):
            raise _OtherFormError

    def _take(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Assign):
            (target,) = statement.targets
            if not isinstance(target, ast.Name) or target.id in self.inputs:
                raise _OtherFormError
            self.names.add(target.id)
        elif isinstance(statement, ast.Delete):
            deleted = [name for target in statement.targets for name in _names_in(target) if name not in self.inputs]
            self.names.difference_update(deleted)
            if not deleted:
                return
            statement = ast.Delete([ast.Name(name, ast.Del()) for name in deleted])
        elif not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
            raise _OtherFormError
        elif ast.unparse(statement.value.func) == "assert_size_stride":
            return
        self.statements.append(statement)


def _all_names(nodes: Sequence[ast.AST]) -> list[ast.Name]:
    return [each for node in nodes for each in ast.walk(node) if isinstance(each, ast.Name)]


def _names_in(target: ast.expr) -> list[str]:
    found = target.elts if isinstance(target, ast.Tuple) else [target]
    names = [each.id for each in found if isinstance(each, ast.Name)]
    if len(names) != len(found):
        raise _OtherFormError
    return names


class _Renamed(ast.NodeTransformer):
    """Names of a body as they are in the function that it is put into."""

    def __init__(self, names: dict[str, str], prefix: str, reads: dict[str, Any], into: dict[str, Any]) -> None:
        self._names, self._prefix, self._reads, self._into = names, prefix, reads, into

    def visit_Name(self, node: ast.Name) -> ast.Name:
        name = self._names.get(node.id)
        if name is None and node.id in self._reads:
            name = self._names[node.id] = f"{self._prefix}{node.id}"
            self._into[name] = self._reads[node.id]
        return ast.Name(node.id if name is None else name, node.ctx)


def _region(statement: ast.stmt, known: dict[str, Any]) -> tuple[str, Way] | None:
    """The name of the region that a statement of a trace calls, and how that goes straight."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
        return None
    called = statement.value.func
    compiled = getattr(known.get(called.id), "compiled", None) if isinstance(called, ast.Name) else None
    way = compiled.only_way if isinstance(compiled, Direct) else None
    return (called.id, way) if isinstance(called, ast.Name) and way is not None else None


def _called(statement: ast.stmt, known: Mapping[str, Any]) -> Callable[..., Any] | None:
    """What a statement calls to set something; None where that is not known."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
        return None
    first, *path = ast.unparse(statement.value.func).split(".")
    found = known.get(first)
    for name in path:
        found = getattr(found, name, None)
    return found


def _given_back(statement: ast.stmt) -> tuple[set[str], set[str]]:
    """Names of what a person or autograd gets, and of what autograd alone keeps for the backward."""
    match statement:
        case ast.Return(value=ast.Tuple(elts=[ast.Dict() as results, ast.Tuple(elts=[saved, others])])):
            back = [results, others]
            return {name.id for name in _all_names(back)}, {name.id for name in _all_names([saved])}
    return {name.id for name in _all_names([statement])}, set()


def _memory(statements: Sequence[ast.stmt], known: dict[str, Any]) -> dict[str, str]:
    """Of each value that regions and products make, or see as a view, the memory that it is in, by some name."""
    memory: dict[str, str] = {}
    for statement in statements:
        found = _region(statement, known)
        if found is None and _called(statement, known) not in _MAKES_NEW:
            continue
        assert isinstance(statement, ast.Assign)
        made = [name.id for name in _all_names(statement.targets)]
        memory |= dict.fromkeys(made, made[0])
        if found is not None:
            for name, base in _views(statement, found[1]):
                memory[name] = memory.get(base, base)
    return memory


def _views(statement: ast.stmt, way: Way) -> list[tuple[str, str]]:
    """Of each view that a region makes of an input, or input that it gives back, its name and the input's."""
    assert isinstance(statement, ast.Assign)
    assert isinstance(statement.value, ast.Call)
    given, made = _names_in(ast.Tuple(statement.value.args, ast.Load())), _all_names(statement.targets)
    if len(made) != len(way.picks):
        raise _OtherFormError
    return [(name.id, given[pick.base]) for name, pick in zip(made, way.picks, strict=True) if not pick.computed]


def _kept(statements: Sequence[ast.stmt], known: dict[str, Any], inputs: Collection[str]) -> set[str]:
    """Names of what is given back, or read by a statement that might keep it or write to it, or by a view of it.

    What is saved for the backward is among them where it is in the memory of an input, or of any such value.
    """
    back, saved = _given_back(statements[-1])
    memory = _memory(statements[:-1], known)
    in_hand = {memory.get(name, name) for name in _read_further(statements[:-1], known, back).union(inputs)}
    back |= {name for name in saved if memory.get(name, name) in in_hand}
    return _read_further(statements[:-1], known, back)


def _read_further(statements: Sequence[ast.stmt], known: dict[str, Any], back: Collection[str]) -> set[str]:
    kept = set(back)
    for statement in reversed(statements):
        found = _region(statement, known)
        if found is not None:
            kept |= {base for name, base in _views(statement, found[1]) if name in kept}
        elif not isinstance(statement, ast.Delete) and _called(statement, known) not in _MAKES_NEW:
            kept.update(name.id for name in _all_names([statement]))
    return kept


def _output(pick: Pick, outputs: Sequence[ast.expr], given: Sequence[str], kept: bool) -> ast.expr:
    if pick.computed:
        return outputs[pick.computed - 1]
    base = given[pick.base]
    if pick.size is None:
        return ast.Name(base, ast.Load())
    text = f"{VIEW_OF}({base}, {pick.size}, {pick.stride}, {pick.further})"
    if kept:
        text = f"{base}.as_strided({pick.size}, {pick.stride}, {base}.storage_offset() + {pick.further})"
    return ast.parse(text, mode="eval").body


def _written(
    call: ast.Assign, name: str, way: Way, into: dict[str, Any], kept: Collection[str], checked: bool
) -> list[ast.stmt]:
    """A region's code in the place of its call, which stays for other inputs where they are to be checked."""
    value, (target,) = call.value, call.targets
    if not isinstance(value, ast.Call) or value.keywords or not isinstance(target, ast.List):
        raise _OtherFormError
    given = _names_in(ast.Tuple(value.args, ast.Load()))
    made = [each.id for each in target.elts if isinstance(each, ast.Name)]
    if len(made) != len(target.elts) or len(made) != len(way.picks):
        raise _OtherFormError
    prefix = f"wb_{name}_"
    statements: list[ast.stmt] = []
    outputs: list[ast.expr] = []
    left: list[str] = []
    # Views of inputs alone need nothing of the code.
    if any(pick.computed for pick in way.picks):
        body = _Body(way.code)
        names = {own: given[at] for own, at in zip(body.inputs, way.order, strict=True)}
        names |= {own: f"{prefix}{own}" for own in body.made}
        renamed = _Renamed(names, prefix, body.globals, into)
        statements = [renamed.visit(each) for each in body.statements]
        outputs = [renamed.visit(each) for each in body.outputs]
        left = [names[own] for own in sorted(body.names)]
    pairs = zip(way.picks, made, strict=True)
    gives = ast.Tuple([_output(pick, outputs, given, each in kept) for pick, each in pairs], ast.Load())
    targets = ast.Tuple([ast.Name(each, ast.Store()) for each in made], ast.Store())
    ends: list[ast.stmt] = [ast.Assign([targets], gives)]
    if left:
        ends.append(ast.Delete([ast.Name(each, ast.Del()) for each in left]))
    if not checked:
        return [*statements, *ends]
    check = f"{prefix}fits"
    into[check] = way.same_tensors
    test = ast.Call(ast.Name(check, ast.Load()), [ast.Name(each, ast.Load()) for each in given], [])
    return [ast.If(test, [*statements, *ends], [call])]


class _Known:
    """Which tensors lie as in the call before, as it follows from that what a function is given does; how some lie."""

    def __init__(self, names: Sequence[str], given: Sequence[Given]) -> None:
        self._names: set[str] = set()
        self._lies: dict[str, Given] = {}
        self._sets(names, given)

    def _sets(self, names: Sequence[str], given: Sequence[Given]) -> None:
        self._lies |= zip(names, given, strict=True)
        self._names |= {name for name, each in zip(names, given, strict=True) if each is not None}

    def follows(self, nodes: Sequence[ast.AST]) -> bool:
        """Whether all that is read there does."""
        return {name.id for name in _all_names(nodes)} <= self._names

    def region(self, statement: ast.Assign, way: Way) -> None:
        """Go past a region that reads what is known alone."""
        self._sets([name.id for name in _all_names(statement.targets)], way.layouts)

    def past(self, statement: ast.stmt, called: Callable[..., Any] | None) -> ast.expr | None:
        """Go past any other statement: what it sets may be written so; None for as it is."""
        match statement:
            case ast.Assign(targets=[ast.Tuple() | ast.List() as target], value=ast.Name(id=name)):
                inside, names = self._lies.get(name), [each.id for each in _all_names([target])]
                if name in self._names and isinstance(inside, list) and len(inside) == len(target.elts) == len(names):
                    self._sets(names, inside)
                    return None
            case ast.Assign(targets=[target], value=ast.Call(args=args, keywords=[])) if called in _MAKES_NEW:
                if self.follows(args):
                    return self._made(target, called, args)
            case ast.Delete() | ast.Expr(value=ast.Call(func=ast.Name(id="clear_mutable_collection"))):
                return None
        # What it reads it may have made another.
        self._names.difference_update(name.id for name in _all_names([statement]))
        return None

    def _made(self, target: ast.expr, called: Callable[..., Any] | None, args: Sequence[ast.expr]) -> ast.expr | None:
        found = [self._lies.get(arg.id) if isinstance(arg, ast.Name) else None for arg in args]
        written = product(called, args, [each if isinstance(each, Layout) else None for each in found])
        if written is None:
            self._names |= {name.id for name in _all_names([target])}
            return None
        self._sets([name.id for name in _all_names([target])], [written[1]])
        return written[0]


def lies(value: Any) -> Given:
    """How what is given to a function lies."""
    if isinstance(value, torch.Tensor):
        return Layout.of(value)
    return [lies(each) for each in value] if isinstance(value, list | tuple) else None


def inlined(function: Callable[..., Any], given: Sequence[Given] | None = None) -> Callable[..., Any]:
    """A trace's function with the code of its regions in it; the function itself where none can be put there.

    Parameters
    ----------
    function : callable
        As Thunder made it of a trace, and called before.
    given : sequence, optional
        How each thing lay that it was given in the last call, as `lies` says. The caller is to check that all tensors
        are as they were then, by `same_tensors`; else each region checks what it reads.

    Returns
    -------
    callable
        To be called in the global state that it was called in last: all regions ran there, the only way they know.
    """
    inner: Any = inspect.unwrap(function)
    if not isinstance(inner, FunctionType):
        return function
    try:
        parsed = ast.parse(textwrap.dedent(inspect.getsource(inner)))
        (written,) = parsed.body
    except (OSError, SyntaxError, ValueError):
        return function
    if not isinstance(written, ast.FunctionDef):
        return function
    known = {**inner.__globals__, **READS}
    parameters = [arg.arg for arg in written.args.args]
    try:
        kept = _kept(written.body, known, set(parameters))
    except _OtherFormError:
        return function
    if given is not None and len(given) != len(parameters):
        return function
    layouts = _Known(parameters, [None] * len(parameters) if given is None else given)
    count = 0
    statements: list[ast.stmt] = []
    for statement in written.body:
        others, is_region = _in_place(statement, known, kept, layouts)
        count += is_region
        for node in (node for each in others for node in ast.walk(each)):
            ast.copy_location(node, statement)
        statements += others
    if not count:
        return function
    if given is not None:
        written.decorator_list = [each for each in written.decorator_list if not _idle(ast.unparse(each))]
    written.body = statements
    ast.increment_lineno(parsed, inner.__code__.co_firstlineno - 1)
    code = compile(ast.fix_missing_locations(parsed), inner.__code__.co_filename, "exec")
    exec(code, known)
    made: Callable[..., Any] = known[written.name]
    return made


def _idle(decorator: str) -> bool:
    """Whether a decorator of Thunder's does nothing in the global state that there is."""
    match decorator:
        case "torch.no_grad()":
            return not torch.is_grad_enabled()
        case "no_autocast":
            return not (torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"))
    return False


def _in_place(
    statement: ast.stmt, known: dict[str, Any], kept: Collection[str], layouts: _Known
) -> tuple[list[ast.stmt], bool]:
    """What stands in the place of a statement, and whether it is a region's code."""
    found, further = _region(statement, known), dict[str, Any]()
    if found is None:
        written = layouts.past(statement, _called(statement, known))
        if written is not None:
            assert isinstance(statement, ast.Assign)
            statement = ast.Assign(statement.targets, written)
        return [statement], False
    assert isinstance(statement, ast.Assign)
    assert isinstance(statement.value, ast.Call)
    follows = layouts.follows(statement.value.args)
    try:
        made = _written(statement, *found, further, kept, checked=not follows)
    except (_OtherFormError, OSError, SyntaxError, ValueError):
        layouts.past(statement, None)
        return [statement], False
    known |= further
    if follows:
        layouts.region(statement, found[1])
    else:
        layouts.past(statement, None)
    return made, True
