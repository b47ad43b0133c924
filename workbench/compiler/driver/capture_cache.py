"""Disk cache of captured programs with their stock plans. An unchanged program is opened without a capture.

The key of a file depends on the program, the executor, the machine, and the versions of all packages. The file lists
the functions that tracing has visited (`workbench.programs.identity`), and is used only if each of these functions is
unchanged. The file contains the fields of each statement of Thunder's traces. Symbols, executors, types and devices are
stored by name. A program that cannot be stored is captured each time.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
import os
import pickle
import platform
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import CodeType, FunctionType, MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from workbench.compiler.fastpath.call_memo import OF_TRACING
from workbench.compiler.fastpath.own_executors import executor_by_name
from workbench.compiler.interop.source_file import SourceFile
from workbench.compiler.interop.thunder_api import (
    BoundSymbol,
    Proxy,
    SigInfo,
    Symbol,
    TagBase,
    TraceCtx,
    devices,
    thunder_functions,
)
from workbench.compiler.lowering import custom_ops as operators
from workbench.compiler.lowering import factories, grouped_mm, thunder_fixes
from workbench.compiler.memory.views_and_writes import kernel_settings
from workbench.compiler.pipeline.lever_context import LeverOutcome
from workbench.compiler.pipeline.stage_log import StageTime
from workbench.compiler.planner.plan import Plan, SplitTraces
from workbench.compiler.trace.bsym_memo import STRUCTURE, Structure, structure_of
from workbench.compiler.trace.lazy_value import LazyValue
from workbench.interop.torch_private import FakeTensorMode
from workbench.programs import Program
from workbench.programs.identity import OperatorWitness, TracedFunction, UnknownError, program_digest, witnesses
from workbench.util import paths
from workbench.util.disk_cache import CAPTURES

if TYPE_CHECKING:
    from workbench.compiler.driver.capture import Capture
    from workbench.compiler.frontend.fake_process_group import Ranks

FORMAT = 5


@dataclasses.dataclass
class CacheEntry:
    """Entry of the cache for one program.

    Attributes
    ----------
    key : str
    known : set of CodeType
        Code objects that the key already covers.
    kinds : set of type and str
        Classes of the objects that the program holds, from `program_digest`.
    codes, functions : set
        Code objects and functions that tracing has visited.
    operators : set of str
        Operators of `torch.library` in the program.
    unread : str
        Reason why a file of the entry could not be read; empty if all files could be read.
    """

    key: str
    known: frozenset[CodeType]
    kinds: frozenset[type | str]
    codes: set[CodeType] = dataclasses.field(default_factory=set)
    functions: set[FunctionType] = dataclasses.field(default_factory=set)
    operators: set[str] = dataclasses.field(default_factory=set)
    unread: str = ""

    def read_state(self, context: Callable[[], AbstractContextManager[Any]]) -> Mapping[str, Any] | None:
        """Return the cached data of the program; None if no readable file exists for the current code of the program.

        Parameters
        ----------
        context : callable
            Returns the context in which the cached data is read. Called only if a file of unchanged code exists.
        """
        for path in CAPTURES.files_under(self.key):
            try:
                file = io.BytesIO(CAPTURES.read(path))
                seen: tuple[TracedFunction | OperatorWitness, ...] = pickle.load(file)
                if all(witness.holds(self.kinds) for witness in seen):
                    with context():
                        found: Mapping[str, Any] = pickle.load(file)
                    return found
            except OSError as error:
                self.unread = f"{path}: {paths.reason_of(error)}"
                CAPTURES.forget(path)
            except Exception as error:  # noqa: BLE001  # a file of another version may fail in any way
                self.unread = f"{path}: {type(error).__name__}"
                CAPTURES.forget(path)
        return None

    def keep(self, captured: Capture, plan: Plan) -> str:
        """Write a captured program with its stock plan to disk. Return a message about the success or failure."""
        try:
            functions = witnesses(self.codes, self.functions, self.known, self.kinds)
            seen = (*functions, *map(OperatorWitness.of, sorted(self.operators)))
            file = io.BytesIO()
            pickle.dump(seen, file, protocol=5)
            _StatementPickler(file, protocol=5).dump(_state(captured, plan))
            part = hashlib.sha256(repr(sorted(map(repr, seen))).encode()).hexdigest()[:16]
            CAPTURES.store(self.key, part, file.getvalue())
        except UnknownError as error:
            return f"not written to disk: {error}"
        except OSError as error:
            return f"not written to disk: {CAPTURES.folder()}: {paths.reason_of(error)}"
        except (pickle.PicklingError, AttributeError, TypeError, ValueError, RecursionError) as error:
            return f"not written to disk: it cannot be written ({error})"
        return f"written to disk; the old file could not be read: {self.unread}" if self.unread else "written to disk"


def entry_of(program: Program, executor: str, ranks: Ranks | None, front_end: str) -> tuple[CacheEntry | None, str]:
    """Return the cache entry of a program, or None and the reason why the program is not cached."""
    if CAPTURES.folder() is None:
        return None, f"not written to disk: {CAPTURES.variable} is off"
    try:
        given = (program.callable, program.args, program.kwargs)
        shared = (ranks.count, str(ranks.parallel)) if ranks is not None else (1, "")
        digest, codes, kinds = program_digest(
            given, program.name, _device(program), program.modes, executor, front_end, shared
        )
    except UnknownError as error:
        return None, f"not written to disk: {error}"
    key = hashlib.sha256(f"{digest} {versions()} {kernel_settings()!r}".encode()).hexdigest()[:32]
    return CacheEntry(key, codes, kinds), ""


def _device(program: Program) -> tuple[str, str]:
    """Return the device and the GPU's name for the cache key, because a kernel's allocations depend on the GPU."""
    return program.device, torch.cuda.get_device_name() if program.device == "cuda" else ""


@functools.cache
def versions() -> str:
    """Return a text with the versions of all packages and the properties of the machine that affect a trace."""
    libraries = Path(sysconfig.get_paths()["purelib"])
    # Identify installed packages by name and version. Identify the workbench, Thunder, and a PyTorch outside of
    # site-packages by their files, which a developer may change.
    installed = sorted(path.name for path in libraries.glob("*.dist-info"))
    worked_on = [Path(__file__).parents[2], _home("thunder")]
    if libraries not in _home("torch").parents:
        worked_on.append(_home("torch"))
    sources = sorted(
        (str(path), path.stat().st_mtime_ns, path.stat().st_size) for own in worked_on for path in own.rglob("*.py")
    )
    return repr((FORMAT, sys.version, platform.machine(), os.cpu_count(), installed, sources))


def _home(package: str) -> Path:
    """Return the folder of an imported package."""
    return Path(str(sys.modules[package].__file__)).parent


_LEFT_OUT = {"split", "steps", "unordered", "rows", "opening", "stages"}
"""Fields of a plan that are not stored. A plan that was read computes them at the first access, sets them while it is
read, or has None.
"""


def _state(captured: Capture, plan: Plan) -> dict[str, Any]:
    # If repeated layers were removed, store the program without these layers. The layers are added at the first access.
    context = captured.few or captured.context
    tensors: dict[str, torch.Tensor] = {**context.arguments}
    return {
        "plan": {f.name: getattr(plan, f.name) for f in dataclasses.fields(plan) if f.name not in _LEFT_OUT},
        "context": {
            "executor": context.executor,
            "origins": context.origins,
            "joint": context.joint,
            "claimed": context.claimed,
            "has_backward": context.has_backward,
            "gathers_again": context.gathers_again,
            "beside": context.beside,
            "program": context.program,
        },
        "reduced": captured.reduced,
        "tensors": _tensor_layouts(tensors, context.unread),
        # If layers were removed, `reduced` contains the first trace.
        "initial": captured.initial if captured.reduced is None else None,
        "cache_info": captured._cache_info,
        "way": captured.way,
        "why": captured.why,
        "doubts": captured.doubts,
    }


def _tensor_layouts(*tables: Mapping[str, torch.Tensor]) -> list[dict[str, tuple[Any, ...]]]:
    """Return the layouts of the tensors in each table. Tensors with the same storage number share a storage."""
    storages: dict[int, int] = {}
    written = []
    for table in tables:
        facts = {}
        for name, tensor in table.items():
            storage = tensor.untyped_storage()
            number = storages.setdefault(storage._cdata, len(storages))
            if storage.nbytes() % tensor.element_size():
                raise UnknownError(f"{name} has a storage whose size is not a multiple of its element size")
            lies = (tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset())
            of = (tensor.dtype, str(tensor.device), tensor.requires_grad, tensor.is_leaf)
            facts[name] = (number, storage.nbytes(), lies, of)
        written.append(facts)
    return written


def tensors_of(layouts: Iterable[Mapping[str, tuple[Any, ...]]], mode: FakeTensorMode) -> list[dict[str, torch.Tensor]]:
    """Return tables of fake tensors with layouts from `_tensor_layouts`."""
    each = list(layouts)
    shared = Counter(number for facts in each for number, *_ in facts.values())
    storages: dict[int, torch.Tensor] = {}
    tables = []
    with mode, torch.no_grad():
        for facts in each:
            table: dict[str, torch.Tensor] = {}
            for name, (number, nbytes, (shape, stride, offset), (dtype, device, wants_grad, is_leaf)) in facts.items():
                if shared[number] == 1 and not offset and _extent(shape, stride) * dtype.itemsize == nbytes:
                    # Make the tensor in one operation instead of four; operations on fake tensors are slow.
                    made = torch.empty_strided(shape, stride, dtype=dtype, device=device)
                else:
                    if number not in storages:
                        storages[number] = torch.empty(nbytes, dtype=torch.uint8, device=device)
                    base = storages[number].view(dtype)
                    made = base.as_strided(shape, stride, offset).detach()
                if wants_grad:
                    made.requires_grad_()
                    if not is_leaf:
                        with torch.enable_grad():
                            made = made.view_as(made)
                table[name] = made
            tables.append(table)
    return tables


def _extent(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Return the number of elements of a storage from a tensor's first element to its last element."""
    return 0 if 0 in shape else 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


def plan_of(state: Mapping[str, Any], replanned: LazyValue[tuple[Plan, LeverOutcome]], seconds: float) -> Plan:
    """Return the stock plan from the cached data.

    Parameters
    ----------
    state : mapping of str to object
        Cached data of the program.
    replanned : LazyValue of (Plan, LeverOutcome)
        Makes the stock plan again at the first access to its traces.
    seconds : float
        Time to read the data.
    """
    return Plan(
        **state["plan"],
        split=SplitTraces(lambda: (replanned.value[0].split.forward, replanned.value[0].split.backward)),
        steps=LazyValue(lambda: replanned.value[0].steps.value),
        opening=(StageTime("read from disk", seconds),),
        stages=(),
    )


class _StatementPickler(pickle.Pickler):
    """Pickles traces without the facts that statements cache.

    Statements that shared a `Structure` before pickling also share a `Structure` after unpickling.
    """

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is BoundSymbol:
            fields = {name: obj.__dict__[name] for name in _FIELDS} | {"_import_ctx": {}, "_object_ctx": {}}
            fields[STRUCTURE] = structure_of(obj)
            if obj._call_ctx is None or obj.sym._bind_postprocess is None:
                return object.__new__, (BoundSymbol,), fields
            # Do not store the call context of this statement, because `_bind_postprocess` of the symbol makes it again.
            return _make_bsym, (fields | {"_call_ctx": None},)
        if kind is Structure:
            return Structure, ()
        if kind is Symbol:
            return _symbol_of(obj)
        if isinstance(obj, Proxy):
            # Pass `_fill` to set the attributes. Without `_fill`, pickle would look up `__setstate__`, and the proxy
            # would search Thunder's methods for this name.
            return object.__new__, (kind,), obj.__dict__ | {"history": None}, None, None, _fill
        if isinstance(obj, TagBase):
            return getattr, (kind, obj._value)
        if kind is devices.Device:
            return devices.Device, (obj.device_str(),)
        if kind is SourceFile:
            return SourceFile, (str(obj), obj.scope, obj.user_file, obj.user_line)
        if kind is TraceCtx:
            state = {name: value for name, value in obj.__dict__.items() if name not in OF_TRACING}
            return object.__new__, (TraceCtx,), state | {"fn": None, "_object_ctx": {}}
        if kind is SigInfo:
            return object.__new__, (SigInfo,), obj.__dict__ | {"unwrapped_fn": None}
        if isinstance(obj, dist.ProcessGroup):
            return _process_group, ()
        if kind is MappingProxyType:
            return MappingProxyType, (dict(obj),)
        if dataclasses.is_dataclass(kind) and kind.__module__.startswith("workbench."):
            fields = {field.name: getattr(obj, field.name) for field in dataclasses.fields(kind)}
            return object.__new__, (kind,), fields
        if isinstance(obj, torch.Tensor | ModuleType):
            raise UnknownError(f"a trace contains a {kind.__name__}")
        return NotImplemented


def _fill(instance: Any, fields: dict[str, Any]) -> None:
    instance.__dict__.update(fields)


def _make_bsym(fields: dict[str, Any]) -> Any:
    made = object.__new__(BoundSymbol)
    made.__dict__.update(fields)
    made.sym._bind_postprocess(made)
    return made


def _symbol_of(symbol: Any) -> Any:
    """Return a function, and the arguments with which this function finds a symbol when a file is read.

    Raises
    ------
    UnknownError
        If the symbol cannot be found by a name.
    """
    executor: Any = symbol.executor
    named: Any = getattr(symbol.module, symbol.name, None)
    if executor is not None:
        if executor.name == operators.NAME:
            return operators.find_custom_symbol, operators.lookup_arguments(symbol)
        if executor.name == grouped_mm.NAME:
            return grouped_mm.find_grouped_mm_symbol, (symbol.name,)
        if executor.name == factories.NAME:
            return factories.find_factory_symbol, (symbol.name,)
        if any(symbol is own for own in thunder_fixes.SYMBOLS):
            return thunder_fixes.find_fixed_symbol, (symbol.name,)
        if executor.opmap.get(symbol.name) is symbol:
            return _operator, (executor.name, symbol.name)
        for key, implementation in executor.implmap.items():
            if implementation.symbol is symbol:
                return _implementation, (executor.name, key)
    elif named is symbol:
        return Symbol.lookup_symbol, (symbol.name, None, symbol.module.__name__)
    for name, module in list(sys.modules.items()):
        if name.startswith("thunder."):
            for own, value in vars(module).items():
                if value is symbol:
                    return _attribute_of, (name, own)
    for function, made in thunder_functions.items():
        if made is symbol:
            return _stand_in_of, (function,)
    raise UnknownError(f"Thunder's symbol {symbol.name} cannot be restored")


def _attribute_of(module: str, name: str) -> Any:
    return getattr(sys.modules[module], name)


def _stand_in_of(function: Any) -> Any:
    return thunder_functions[function]


def _implementation(executor: str, key: Any) -> Any:
    return executor_by_name(executor).implmap[key].symbol


def _operator(executor: str, name: str) -> Any:
    return executor_by_name(executor).opmap[name]


def _process_group() -> Any:
    """Return the fake process group, which must exist while a file is read."""
    return dist.group.WORLD


_FIELDS = tuple(field.name for field in dataclasses.fields(BoundSymbol))
