"""Put programs on devices: check a device, seed random numbers, and copy a user's objects to another device."""

from __future__ import annotations

import contextlib
import copy
import random
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from io import IOBase
from types import CellType, FunctionType
from typing import Any

import torch

from workbench.core.config import DEVICES
from workbench.errors import DeviceError, ProgramError
from workbench.interop.torch_private import _get_dispatch_mode, _TorchDispatchModeKey
from workbench.programs.optimizers import copy_added
from workbench.programs.tensors import find_tensors, globals_of, gradient_hooks
from workbench.util.planning_lock import PLANNING


def check_device(device: str) -> str:
    """Check that a program can be opened for `device`, and return `device`.

    Raises
    ------
    DeviceError
        If `device` is unknown, or is ``cuda`` and no GPU is attached.
    """
    if device not in DEVICES:
        raise DeviceError(f"there is no device {device!r}; legal: {', '.join(DEVICES)}")
    if device == "cuda" and not torch.cuda.is_available():
        raise DeviceError(
            "device 'cuda': no CUDA device is attached to this machine; legal here: cpu, or planned (a GPU that is not "
            "attached: nothing runs)"
        )
    return device


def torch_device(device: str) -> str:
    """Return the torch device for a program's device: ``cuda:0`` for ``cuda`` and ``planned``, else `device` itself."""
    return "cuda:0" if device in ("cuda", "planned") else device


def device_of(*objects: Any) -> str | None:
    """Return the device of the tensors in `objects`; None if there is no tensor.

    The device is ``planned`` if a tensor is on ``meta``. In all other cases, it is the device of the first tensor:
    ``cuda`` or ``cpu``.
    """
    tensors = [*find_tensors(objects).tensors.values()]
    if any(tensor.is_meta for tensor in tensors):
        return "planned"
    return next(("cuda" if tensor.is_cuda else "cpu" for tensor in tensors), None)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Context in which torch is seeded; at its end, torch's random state from before is restored.

    All threads share PyTorch's random state, and planning executes operators that draw random numbers. While a thread
    is inside this context, no other thread plans or enters the context. Under fake tensors, no random number is drawn,
    so the context has no effect.
    """
    if _has_fake_random_state():
        yield
        return
    with PLANNING, _restored_random_state_of_torch():
        torch.manual_seed(seed)
        yield


def _has_fake_random_state() -> bool:
    """Return whether the random state that PyTorch returns is itself fake, and cannot be restored."""
    return _get_dispatch_mode(_TorchDispatchModeKey.FAKE) is not None


def _restored_random_state_of_torch() -> contextlib.AbstractContextManager[None]:
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    return torch.random.fork_rng(devices=devices, enabled=not _has_fake_random_state())


def random_states() -> list[torch.Tensor]:
    """Return the states of PyTorch's default generators; without CUDA's while a CUDA graph is captured."""
    known = torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing()
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if known else ())]


def seed_all(seed: int) -> None:
    """Seed the random numbers of Python, NumPy and PyTorch."""
    random.seed(seed)
    torch.manual_seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed % 2**32)  # NumPy allows no other seeds


@contextlib.contextmanager
def restored_random_states() -> Iterator[None]:
    """Restore the states of the random numbers of Python, NumPy and PyTorch at the end of the context."""
    numpy = sys.modules.get("numpy")
    python_state, numpy_state = random.getstate(), numpy.random.get_state() if numpy is not None else None
    try:
        with _restored_random_state_of_torch():
            yield
    finally:
        random.setstate(python_state)
        if numpy is not None:
            numpy.random.set_state(numpy_state)


_SETTINGS: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    (torch.is_warn_always_enabled, torch.set_warn_always),
    (
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda mode: torch.use_deterministic_algorithms(mode[0], warn_only=mode[1]),
    ),
    # A default device that nobody has set costs nothing, but one that is set slows down every function of PyTorch.
    (
        torch.get_default_device,
        lambda device: torch.set_default_device(None if device == torch.device("cpu") else device),
    ),
    *(
        setting
        for device in ("cpu", "cuda")
        for setting in (
            (partial(torch.is_autocast_enabled, device), partial(torch.set_autocast_enabled, device)),
            (partial(torch.get_autocast_dtype, device), partial(torch.set_autocast_dtype, device)),
        )
    ),
    (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
    (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp),
    (torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.enable_mem_efficient_sdp),
    (torch.backends.cuda.cudnn_sdp_enabled, torch.backends.cuda.enable_cudnn_sdp),
)
"""Settings of PyTorch that a program may change: a function that returns the value, and one that sets it."""


@contextlib.contextmanager
def restored_settings() -> Iterator[None]:
    """Restore the settings of PyTorch that a program has changed, at the end of the context."""
    before = [get() for get, _ in _SETTINGS]
    try:
        yield
    finally:
        for value, (get, set_again) in zip(before, _SETTINGS, strict=True):
            if get() != value:
                set_again(value)


def place_objects(objects: Any, device: str, *, copied: bool = False) -> Any:
    """Return `objects` (any nesting) with all tensors on `device`; the same objects if all tensors are already there.

    With `copied`, and under `FakeTensorMode`, always return copies. Modules and closures are copied, not moved. Copies
    of tensors that share memory share memory, too. Under `FakeTensorMode`, the copies are fake.
    """
    target = torch.device(device)
    fake = _get_dispatch_mode(_TorchDispatchModeKey.FAKE) is not None
    found = find_tensors(objects)
    tensors = found.tensors.values()
    if not fake and not copied and all(_is_same_device(tensor.device, target) for tensor in tensors):
        return objects
    memo: dict[int, Any] = {}
    templates = set[int]() if fake or target.type == "meta" else _templates(objects, tensors)
    shared = Counter(_storage(tensor) for tensor in {id(tensor): tensor for tensor in tensors}.values())
    storages: dict[int, torch.Tensor] = {}
    for tensor in tensors:
        if id(tensor) in templates:
            memo.setdefault(id(tensor), _wrap_like(tensor, tensor.detach()))
            continue
        if tensor.is_meta and not fake:
            raise ProgramError(
                f"a tensor of shape {tuple(tensor.shape)} is on the device 'meta', where it has no values: open the "
                "program with device='planned', which plans it for a GPU and runs nothing, or create the tensor on "
                "another device"
            )
        if id(tensor) not in memo:
            place = _storage(tensor)
            if place is None or shared[place] < 2:
                memo[id(tensor)] = _wrap_like(tensor, _move(tensor, target, fake))
                continue
            if place not in storages:
                storages[place] = _move_storage(tensor.untyped_storage(), target, fake)
            memo[id(tensor)] = _wrap_like(tensor, _tensor_in(storages[place], tensor))
    made = _copy_shared(objects, found.functions, memo)
    for tensor in {id(tensor): tensor for tensor in tensors}.values():
        for hook in gradient_hooks(tensor):
            memo[id(tensor)].register_post_accumulate_grad_hook(copy.deepcopy(hook, memo))
    for optimizer in found.optimizers:
        copy_added(optimizer, memo)
    return made


def _templates(objects: Any, tensors: Iterable[torch.Tensor]) -> set[int]:
    """Return the ids of tensors that stay on meta, such as those of a template for `torch.func.functional_call`.

    They are not among the parameters, buffers and inputs of the program, which need values.
    """
    program, *inputs = objects if isinstance(objects, tuple) else (objects,)
    given = set(map(id, find_tensors(inputs).tensors.values()))
    if isinstance(program, torch.nn.Module):
        given.update(map(id, (*program.parameters(), *program.buffers())))
    return {id(tensor) for tensor in tensors if tensor.is_meta and id(tensor) not in given}


UNCOPIED = "which Python cannot copy"
"""Part of the refusal of an iterator."""


def _copy_shared(objects: Any, functions: Sequence[FunctionType], memo: dict[int, Any]) -> Any:
    """Copy objects and functions. A copy shares the objects that Python cannot copy, such as locks and open files."""
    while True:
        copies = dict(memo)
        try:
            _copies(functions, copies)
            made = copy.deepcopy(objects, copies)
        except Exception as error:
            held, name = _uncopied(error)
            if isinstance(held, Iterator) and not isinstance(held, IOBase):
                raise ProgramError(
                    f"the program holds a {type(held).__name__}{name}, {UNCOPIED}, and opening would advance it: "
                    "make it in the first step, hold a list and a position instead, or pass the next value as an input"
                ) from error
            if held is None or id(held) in memo or find_tensors(held).tensors:
                raise
            memo[id(held)] = held
        else:
            memo.update(copies)
            return made


def _uncopied(error: Exception) -> tuple[Any, str]:
    """Return the object that `copy.deepcopy` cannot copy, and its name as text; None if the error is another one.

    The object is the thread or queue around a lock, because a copy of these would wait for the original.
    """
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    owners = [None, *(frame.f_locals.get("x") for frame in frames if frame.f_code is copy.deepcopy.__code__)]
    held = owners.pop()
    named: dict[Any, Any] = next((owner for owner in reversed(owners) if isinstance(owner, dict)), {})
    name = next((f" ({key!r})" for key, value in named.items() if value is held), "")
    for owner in reversed(owners):
        if type(owner).__module__.partition(".")[0] in _CONCURRENT:
            held = owner
        elif not isinstance(owner, dict | list | tuple):
            break
    return held, name


_CONCURRENT = frozenset(("threading", "queue", "multiprocessing", "concurrent", "asyncio"))
"""Modules whose objects coordinate threads and processes."""


def _copies(functions: Sequence[FunctionType], memo: dict[int, Any]) -> None:
    """Add copies of functions to `memo`, because `deepcopy` does not copy functions.

    The functions' closures and defaults are copied, too. A global that a function reads is copied only if it holds
    tensors.
    """
    scopes: dict[int, dict[str, Any]] = {}
    read: dict[int, dict[str, Any]] = {}
    for function in functions:
        own = {name: value for name, value in globals_of(function).items() if find_tensors(value).tensors}
        known = function.__globals__
        if own:
            read.setdefault(id(known), {}).update(own)
            # Leave out `__name__`. With it, Dynamo would look up the globals in the module of that name.
            scopes.setdefault(id(known), {name: value for name, value in known.items() if name != "__name__"})
    for function in functions:
        cells = tuple(CellType() for _ in function.__closure__ or ())
        known = scopes.get(id(function.__globals__), function.__globals__)
        copied = FunctionType(function.__code__, known, function.__name__, None, cells or None)
        copied.__dict__.update(function.__dict__)
        copied.__qualname__, copied.__module__ = function.__qualname__, function.__module__
        memo[id(function)] = copied
    for key, scope in scopes.items():
        scope.update({name: copy.deepcopy(value, memo) for name, value in read[key].items()})
    for function in functions:
        copied = memo[id(function)]
        copied.__defaults__ = copy.deepcopy(function.__defaults__, memo)
        copied.__kwdefaults__ = copy.deepcopy(function.__kwdefaults__, memo)
        for cell, filled in zip(function.__closure__ or (), copied.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # a name that the enclosing function has not yet bound
                filled.cell_contents = copy.deepcopy(cell.cell_contents, memo)


def _is_same_device(first: torch.device, second: torch.device) -> bool:
    return first.type == second.type and (first.index or 0) == (second.index or 0)


def _storage(tensor: torch.Tensor) -> int | None:
    """Return a key that identifies a tensor's storage; None if the tensor cannot be copied by storage.

    Tensors without a strided layout, and lazily conjugated or negated tensors, cannot be copied by storage.
    """
    if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
        return None
    return int(tensor.untyped_storage()._cdata)


def _move(tensor: torch.Tensor, device: torch.device, fake: bool) -> torch.Tensor:
    if not fake:
        return tensor.detach().to(device, copy=True)
    if tensor.layout is not torch.strided:
        if device.type != tensor.device.type:
            raise ProgramError(
                f"a sparse tensor of shape {tuple(tensor.shape)} is on {tensor.device}, and PyTorch cannot plan it on "
                f"{device.type}: open the program on the tensor's device, or pass x.to_dense()"
            )
        mode: Any = _get_dispatch_mode(_TorchDispatchModeKey.FAKE)
        moved: torch.Tensor = mode.from_tensor(tensor).detach()
        return moved
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)


def _move_storage(storage: torch.UntypedStorage, device: torch.device, fake: bool) -> torch.Tensor:
    """Return a copy of a storage as a tensor of bytes on `device`; with `fake`, without its values."""
    if fake:
        return torch.empty(storage.nbytes(), dtype=torch.uint8, device=device)
    given = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    moved: torch.Tensor = given.to(device, copy=True)
    return moved


def _tensor_in(storage: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return a view of the bytes `storage` with the dtype, shape, strides and offset of `tensor`."""
    whole = storage[: storage.numel() // tensor.itemsize * tensor.itemsize].view(tensor.dtype)
    return whole.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).detach()


def _wrap_like(tensor: torch.Tensor, moved: torch.Tensor) -> torch.Tensor:
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(moved, tensor.requires_grad)
    return moved.requires_grad_(tensor.requires_grad)
