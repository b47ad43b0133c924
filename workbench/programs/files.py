"""Find and load factories in users' own files, ``file.py:factory``. Errors name the responsible line."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.machinery
import importlib.util
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import workbench
from workbench.errors import ProgramError, WorkbenchError, short_repr, suggest_names
from workbench.util import paths

_MOST_CHARACTERS = 500
"""Maximum length of a shown error message, in characters."""

_NOT_THE_USERS = tuple(
    str(Path(folder).resolve())
    for folder in (
        *(sysconfig.get_path(scheme) for scheme in ("stdlib", "platstdlib", "purelib", "platlib")),
        *workbench.__path__,
    )
)


def is_file_name(name: str) -> bool:
    """Return whether `name` names a factory in a file, as opposed to a built-in program."""
    return name.partition(":")[0].endswith(".py") or "/" in name


def absolute_name(name: str) -> str:
    """Return ``file.py:factory`` with the file's full path, so that another process finds it from any folder."""
    path, factory = _split_name(name)
    try:
        # Do not use `Path.resolve`, because it fails for circular links.
        whole = os.path.realpath(paths.expand_home(path))
    except OSError as error:
        raise _no_file(name, error) from error
    return f"{whole}{f':{factory}' if factory else ''}"


def check_file(name: str) -> Path:
    """Return the file of ``file.py:factory``.

    Raises
    ------
    ProgramError
        If the file does not exist, or is not a regular file.
    """
    try:
        return paths.regular_file(_split_name(name)[0])
    except OSError as error:
        raise _no_file(name, error) from error


def load_factory(name: str) -> Callable[..., Any]:
    """Execute the file of ``file.py:factory``, even if it was executed before, and return its factory.

    Raises
    ------
    ProgramError
        If the file or the factory is missing, or running the file fails; the message names the failing line.
    """
    path, factory_name = check_file(name), _split_name(name)[1]
    with blame(f"running {path.name}"):
        module = _run_file(path)
    public = [key for key, value in vars(module).items() if callable(value) and _is_own(value, module.__name__)]
    if not factory_name:
        having = f"; {path.name} has {', '.join(public)}" if public else ""
        raise ProgramError(
            f"program {short_repr(name)}: name the factory in the file, as in {path.name}:factory{having}"
        )
    factory = getattr(module, factory_name, None)
    if not callable(factory):
        what = "no" if factory is None else f"{type(factory).__name__}, not a function, under"
        having = f"it has {', '.join(public)}" if public else "it has no functions"
        raise ProgramError(
            f"{path.name} has {what} {short_repr(factory_name)}; {having}{suggest_names(factory_name, public)}"
        )
    return factory  # type: ignore[no-any-return]  # `callable` does not narrow Any


@contextlib.contextmanager
def blame(action: str) -> Iterator[None]:
    """Context that turns an error of the user's code into a `ProgramError` that names the responsible line.

    A `KeyboardInterrupt` and the workbench's own errors are raised unchanged.

    Parameters
    ----------
    action : str
        Description of the activity, such as ``running model.py``.
    """
    try:
        yield
    except WorkbenchError:
        raise
    except SyntaxError as error:
        where = f"{Path(error.filename or '?').name}:{error.lineno}"
        raise ProgramError(f"{action} failed at {where}: {type(error).__name__}: {error.msg}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's code may raise any exception, and may exit
        raise ProgramError(f"{action} failed{own_line(error)}: {describe_error(error)}") from error


def own_line(error: BaseException) -> str:
    """Return the innermost line of the user's code in the traceback of `error`: `` at file.py:12 (text of the line)``.

    The result is empty if no line of the user's code is in the traceback.
    """
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if file.is_file() and not str(file.resolve()).startswith(_NOT_THE_USERS):
            return f" at {file.name}:{frame.lineno} ({frame.line})"
    return ""


def _split_name(name: str) -> tuple[str, str]:
    """Return the file and the factory of ``file.py:factory``; the factory is empty if `name` has none."""
    folder, slash, last = name.rpartition("/")
    file, _, factory = last.partition(":")
    return f"{folder}{slash}{file}", factory


def describe_error(error: BaseException) -> str:
    """Describe an error of a user's code in one line."""
    try:
        first_line = str(error).strip().partition("\n")[0].removesuffix(", but expected one of:")[:_MOST_CHARACTERS]
    except Exception as second:  # noqa: BLE001  # `__str__` is also a user's code, and may fail
        first_line = f"(its text cannot be read: {type(second).__name__})"
    return f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__


def _no_file(name: str, error: OSError) -> ProgramError:
    path = _split_name(name)[0]
    why = "there is no such file" if isinstance(error, FileNotFoundError) else paths.reason_of(error)
    return ProgramError(f"program {short_repr(name)}: {why}: {short_repr(path)[1:-1]}; legal is file.py:factory")


class _SourceAlone(importlib.machinery.SourceFileLoader):
    """Loader that always compiles the source file, and never uses cached bytecode.

    Python uses cached bytecode if the source file's size and modification time in seconds have not changed. After a
    quick edit, both may be unchanged although the text is new.
    """

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _run_file(path: Path) -> Any:
    # Derive the module's name from the path, so that it is the same in each process. Pickled objects refer to it.
    name = f"workbench_program_{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:12]}"
    loader = _SourceAlone(name, str(path.resolve()))
    spec = importlib.util.spec_from_file_location(name, path.resolve(), loader=loader)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # Let the file import modules from its own folder, now and later, as Python does for a script.
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    spec.loader.exec_module(module)
    return module


def _is_own(value: Any, module: str) -> bool:
    return getattr(value, "__module__", None) == module and not isinstance(value, type)
