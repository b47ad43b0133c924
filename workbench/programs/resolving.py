"""`Program`: a callable with example inputs and a device. `resolve` makes a `Program`, `build` its objects."""

from __future__ import annotations

import dataclasses
import inspect
import keyword
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

import cloudpickle
import torch
from torch.nn.parameter import is_lazy

from workbench.errors import ProgramError
from workbench.interop.torch_private import FakeTensorMode
from workbench.programs import files, modes, pickling, placement, registry, user_arguments
from workbench.programs.settings import Scalar, check_settings

PICKLE_FILE = "program.pkl"
"""File for a spec of kind ``pickle``: the pickled callable, arguments and keyword arguments."""

type Parts = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Program:
    """A function or module with example inputs, and its device.

    Attributes
    ----------
    name : str
        Name by which the user opened the program: a built-in name or ``file.py:factory``. If the user opened objects,
        the name of the function or of the module's class.
    callable : callable
        The function or module.
    args, kwargs
        Example inputs. A program that writes in place changes them when it runs. `build` makes new inputs, unless the
        user opened objects.
    settings : mapping of str to str, int, float or bool
        Parsed arguments of the factory.
    spec : dict
        JSON data from which the function `build` makes the program in another process.
    device : str
        ``cpu``, ``cuda`` or ``planned``. ``planned`` is an absent GPU; the callable and the inputs then hold fake
        tensors on ``cuda:0``.
    fake_mode : FakeTensorMode, optional
        The mode of a planned program's fake tensors; None if tensors are real.
    """

    name: str
    callable: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    settings: Mapping[str, Scalar]
    spec: dict[str, Any]
    device: str
    fake_mode: FakeTensorMode | None = dataclasses.field(default=None, repr=False, compare=False)
    _objects: Parts | None = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def seed(self) -> int:
        """Seed with which parameters and inputs are drawn."""
        return int(self.spec["seed"])

    @property
    def name_in_script(self) -> str:
        """The name of the user's function; ``model`` for any other program, whose variable is not known."""
        is_own = isinstance(self.callable, FunctionType) and self.spec["kind"] == "pickle"
        return self.name if is_own and self.name.isidentifier() and not keyword.iskeyword(self.name) else "model"

    @property
    def modes(self) -> dict[str, str]:
        """PyTorch modes under which the program was opened, and ``module: eval`` for a module in evaluation mode.

        See `workbench.core.config.MODES`.
        """
        own = {} if self.training in (None, True) else {"module": "eval"}
        return {**self.spec.get("modes", {}), **own}

    @property
    def training(self) -> bool | None:
        """Return whether the module is in training mode; None if the program is not a module."""
        return self.callable.training if isinstance(self.callable, torch.nn.Module) else None

    def build(self, device: str | None = None) -> Parts:
        """Make a new callable, args and kwargs in this process, as the function `build` does.

        If the user opened objects, return these objects if they are on `device`, and copies on `device` if not.
        """
        if self._objects is None:
            return build(self.spec, device=device)
        return _place(self._objects, placement.torch_device(device or self.device))

    def dump(self, folder: Path) -> dict[str, Any]:
        """Write the files that `build` needs besides the spec into `folder`, and return the spec.

        Raises
        ------
        ProgramError
            If a user's own objects cannot be pickled.
        """
        if self._objects is not None:
            (folder / PICKLE_FILE).write_bytes(pickling.dumps(self._objects, self.name))
        return self.spec


def resolve(
    model_or_fn_or_name: Callable[..., Any] | str | Path,
    *args: Any,
    settings: Mapping[str, Any] | None = None,
    device: str | None = None,
    seed: int | None = None,
    kwargs: Mapping[str, Any] | None = None,
    **inputs: Any,
) -> Program:
    """Make a program from a built-in name, ``file.py:factory``, or a function or module with its inputs.

    Parameters
    ----------
    model_or_fn_or_name : callable, str or Path
        The program to open.
    *args, **inputs
        Inputs of a function or module. If a name is opened, keywords are settings of its factory.
    kwargs : mapping, optional
        More keyword inputs of a function or module, for names that are also parameters of this function.
    settings : mapping, optional
        More settings for a factory; texts are parsed to the types of its parameters.
    device : str, optional
        ``cpu``, ``cuda`` or ``planned``. By default the device of the first tensor, or ``planned`` if a tensor is on
        ``meta``; for a name, ``cuda`` if a GPU is attached, else ``cpu``.
    seed : int, optional
        Seed with which a factory draws parameters and inputs; 0 by default.

    Raises
    ------
    ProgramError
        If the program does not exist or cannot be made; the message names the wrong value and lists the legal values.
    DeviceError
        If the device does not exist.
    """
    if isinstance(model_or_fn_or_name, str | Path):
        if kwargs:
            raise ProgramError(f"kwargs are for a function or module; {model_or_fn_or_name} takes settings")
        name = str(model_or_fn_or_name)
        return _from_name(name, args, {**(settings or {}), **inputs}, device, seed or 0)
    program = user_arguments.original_of(model_or_fn_or_name)
    user_arguments.check_program(program)
    if settings:
        raise ProgramError(f"settings are for named programs; {_name_of(program)} is a callable")
    keywords = user_arguments.inputs_of(program, args, inputs, kwargs)
    return _from_objects((program, args, keywords), device, seed or 0)


def check(name: str, settings: Mapping[str, Any]) -> None:
    """Refuse an unknown program or illegal settings, without building the program.

    Parameters
    ----------
    name : str
        A built-in name, or ``file.py:factory``. For ``file.py:factory``, the file is executed.
    settings : mapping

    Raises
    ------
    ProgramError
        If the program or a setting is unknown, or a value is illegal; the message lists the legal values.
    """
    is_file = files.is_file_name(name)
    spec = {"kind": "file" if is_file else "builtin", "name": files.absolute_name(name) if is_file else name}
    check_settings(_label(spec), _factory(spec), settings)


def build(spec: Mapping[str, Any], *, device: str | None = None, folder: Path | None = None) -> Parts:
    """Make a callable, args and kwargs from a spec. Under `FakeTensorMode`, their tensors are fake.

    Parameters
    ----------
    spec : mapping
        `Program.spec`.
    device : str, optional
        Device of the tensors: ``cpu``, ``cuda``, ``planned`` or a torch device. By default the spec's device.
    folder : Path, optional
        Folder into which `Program.dump` wrote; needed for a spec of kind ``pickle``.

    Raises
    ------
    ProgramError
        If the program cannot be made.
    """
    target = placement.torch_device(device or spec["device"])
    if spec["kind"] == "pickle":
        if folder is None:
            raise ProgramError(f"{spec['name']} was given as objects: its {PICKLE_FILE} is needed to build it")
        with files.blame(f"reading {PICKLE_FILE}"):
            objects: Parts = cloudpickle.loads((folder / PICKLE_FILE).read_bytes())
        return _place(objects, target)
    return _make(spec, _factory(spec), target)


def _factory(spec: Mapping[str, Any]) -> Callable[..., Any]:
    name: str = spec["name"]
    return files.load_factory(name) if spec["kind"] == "file" else registry.find(name)


def _make(spec: Mapping[str, Any], factory: Callable[..., Any], target: str) -> Parts:
    """Call `factory` with the spec's settings and return its result; tensors are on the torch device `target`."""
    label = _label(spec)
    settings = check_settings(label, factory, spec["settings"])
    building = modes.active_modes(modes.building_modes(spec.get("modes", {})))
    try:
        with files.blame(f"the factory of {label}"), placement.seeded(spec["seed"]), torch.device(target), building:
            return _initialized(_check_parts(label, factory(**settings)))
    except ProgramError as error:
        # Add the program's name if the factory's own code raised the error, as for an illegal setting.
        message = str(error)
        raise ProgramError(message if label in message else f"{label}: {message}") from error.__cause__


def _initialized(parts: Parts) -> Parts:
    """Call a module with lazy parameters once without gradients, which gives the parameters their shapes and values.

    Modules are in evaluation mode meanwhile, so that statistics of a batch norm stay as they are.
    """
    module, args, kwargs = parts
    if isinstance(module, torch.nn.Module) and any(map(is_lazy, (*module.parameters(), *module.buffers()))):
        training = [each for each in module.modules() if each.training]
        with torch.no_grad():
            module.eval()(*args, **kwargs)
        for each in training:
            each.training = True
    return parts


def _from_name(name: str, args: tuple[Any, ...], settings: Mapping[str, Any], device: str | None, seed: int) -> Program:
    is_file = files.is_file_name(name)
    spec: dict[str, Any] = {
        "kind": "file" if is_file else "builtin",
        "name": files.absolute_name(name) if is_file else name,
        "settings": {},
        "device": placement.check_device(device or ("cuda" if torch.cuda.is_available() else "cpu")),
        "seed": seed,
        **_modes(),
    }
    if args:
        raise ProgramError(f"{name} makes its own inputs; it takes settings by name, and {len(args)} inputs were given")
    factory = _factory(spec)
    spec["settings"] = check_settings(_label(spec), factory, settings)
    fake_mode = FakeTensorMode() if spec["device"] == "planned" else None
    callable_, args, kwargs = _build_under(
        fake_mode, lambda: _make(spec, factory, placement.torch_device(spec["device"]))
    )
    return Program(name, callable_, args, kwargs, spec["settings"], spec, spec["device"], fake_mode)


def _from_objects(objects: Parts, device: str | None, seed: int) -> Program:
    device = placement.check_device(device or placement.device_of(*objects) or "cpu")
    name = _name_of(objects[0])
    spec: dict[str, Any] = {
        "kind": "pickle",
        "name": name,
        "settings": {},
        "device": device,
        "seed": seed,
        **_modes(),
    }
    fake_mode = FakeTensorMode() if device == "planned" else None
    callable_, args, kwargs = _build_under(fake_mode, lambda: _place(objects, placement.torch_device(device)))
    return Program(name, callable_, args, kwargs, {}, spec, device, fake_mode, objects)


def _modes() -> dict[str, dict[str, str]]:
    found = modes.current_modes()
    return {"modes": found} if found else {}


def _build_under(fake_mode: FakeTensorMode | None, make: Callable[[], Parts]) -> Parts:
    if fake_mode is None:
        return make()
    with fake_mode:
        return make()


def _place(objects: Parts, device: str) -> Parts:
    placed: Parts = placement.place_objects(objects, device)
    return placed


def _check_parts(label: str, result: Any) -> Parts:
    """Check the form of a factory's result, and return it as callable, args and kwargs."""
    legal = "legal: (callable, args) or (callable, args, kwargs)"
    if not isinstance(result, tuple) or len(result) not in (2, 3):
        what = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
        raise ProgramError(f"the factory of {label} returned {what}; {legal}")
    callable_, args = result[:2]
    kwargs = result[2] if len(result) == 3 else {}
    if not callable(callable_):
        raise ProgramError(f"the factory of {label} returned {type(callable_).__name__} first; {legal}")
    if not isinstance(args, tuple | list):
        raise ProgramError(f"the factory of {label} returned {type(args).__name__} as args; {legal}, args a tuple")
    if not isinstance(kwargs, dict) or not all(isinstance(key, str) for key in kwargs):
        raise ProgramError(f"the factory of {label} returned {type(kwargs).__name__} as kwargs; {legal}")
    return callable_, tuple(args), kwargs


def _label(spec: Mapping[str, Any]) -> str:
    return Path(spec["name"]).name if spec["kind"] == "file" else str(spec["name"])


def _name_of(callable_: Callable[..., Any]) -> str:
    if inspect.isfunction(callable_) or inspect.ismethod(callable_):
        return callable_.__name__
    return type(callable_).__name__
