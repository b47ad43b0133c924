"""Check the programs and inputs that users pass to `open`. Refuse a keyword that may be an input or an option."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

import torch

from workbench.errors import ProgramError, short_repr, suggest_names


def inputs_of(
    program: Callable[..., Any],
    args: tuple[Any, ...],
    inputs: Mapping[str, Any],
    kwargs: Mapping[str, Any] | None,
    own_options: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the keyword inputs of a program, from `inputs` and from `kwargs`.

    Parameters
    ----------
    program : callable
    args : tuple
        Positional inputs of the program.
    inputs : mapping
        Keyword inputs whose names are not names of the caller's options.
    kwargs : mapping, optional
        Keyword inputs with any names.
    own_options : mapping of str to object, optional
        The caller's options by name, with the values that the user gave; None for an option that the user did not give.

    Raises
    ------
    ProgramError
        If the user gave an option whose name is also a parameter of the program, because the user may mean either. Also
        if an input is given twice.
    """
    kwargs = {} if kwargs is None else kwargs
    given: Any = kwargs
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise ProgramError(f"kwargs must be a dict of inputs by name, given {short_repr(kwargs)}")
    if twice := [name for name in inputs if name in kwargs]:
        raise ProgramError(f"{', '.join(twice)} is given twice, as a keyword and in kwargs")
    own = _parameters(program)
    places = list(own)
    for name, value in own_options.items():
        if value is None or name not in own or name in kwargs:
            continue
        parameter = own[name]
        by_place = parameter.kind is not inspect.Parameter.KEYWORD_ONLY and places.index(name) < len(args)
        if not by_place:
            raise ProgramError(
                f"{name}={short_repr(value)} may be meant for {_call_name(program)}, which has a parameter {name!r}, "
                f"or for the workbench; to give it to the program, pass kwargs={{{name!r}: …}}, and then {name}= is an "
                "option of the workbench"
            )
    found = {**inputs, **kwargs}
    _check_that_they_fit(program, args, found, own_options)
    return found


def _check_that_they_fit(
    program: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Iterable[str]
) -> None:
    """Refuse inputs for which a program has no parameter, and missing inputs.

    Raises
    ------
    ProgramError
        If the inputs do not fit. The message lists the program's parameters. If a name is similar to an option of the
        workbench, the message suggests the option.
    """
    called = program
    if isinstance(program, torch.nn.Module):
        # Do not check a module with a forward pre-hook or its own `__call__`: both may pass other inputs to `forward`.
        calls = [each for each in type(program).__mro__ if "__call__" in vars(each)]
        if program._forward_pre_hooks or calls != [torch.nn.Module]:
            return
        called = program.forward
    try:
        # Use the signature of the decorated callable itself, not of the function that it wraps, because a decorator may
        # accept more inputs than that function. Examples are decorators of Hugging Face.
        signature = inspect.signature(called, follow_wrapped=False)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        names = list(signature.parameters)
        variable = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in signature.parameters.values())
        unknown = [] if variable else [name for name in kwargs if name not in signature.parameters]
        meant = [close for name in unknown for close in get_close_matches(name, options, 1)]
        hint = f"; did you mean {meant[0]}=, an option of the workbench?" if meant else ""
        # If a name is misspelled, Python's message may only say that an argument is missing. Add the misspelled name.
        if unknown and not meant:
            hint = f"; it has no parameter {short_repr(unknown[0])}{suggest_names(unknown[0], names)}"
        takes = f"{_call_name(program)} takes ({', '.join(signature.parameters)})"
        raise ProgramError(f"{takes}; the given inputs do not fit: {error}{hint}") from None


def _parameters(program: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    called = program.forward if isinstance(program, torch.nn.Module) else program
    try:
        parameters = inspect.signature(called).parameters
    except (TypeError, ValueError):
        return {}
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return {name: parameter for name, parameter in parameters.items() if parameter.kind not in variable}


def check_callable(program: Any) -> None:
    """Refuse objects that are not programs: what cannot be called, classes of modules, and wrappers for several ranks.

    Raises
    ------
    ProgramError
        If `program` is such an object; the message says what to use instead.
    """
    if not callable(program):
        raise ProgramError(
            f"{type(program).__name__} is not a program; legal: a function or module with its inputs, a built-in name, "
            "or file.py:factory"
        )
    if isinstance(program, type) and issubclass(program, torch.nn.Module):
        raise ProgramError(f"{program.__name__} is a class of modules: create a module first, {program.__name__}(...)")
    if isinstance(program, torch.nn.parallel.DistributedDataParallel | torch.nn.DataParallel):
        kind = type(program).__name__
        raise ProgramError(
            f"the module is inside of {kind}: use the module itself, and wrap the compiled module, as in "
            f"{kind}(config.jit(model))"
        )


def original_of(program: Any) -> Any:
    """Return the module or function that ``torch.compile`` wraps; any other object is returned itself.

    The wrapper computes what the original computes, and Dynamo traces the original.
    """
    while (original := _wrapped_by_compile(program)) is not None:
        program = original
    return program


def _wrapped_by_compile(program: Any) -> Any:
    if isinstance(program, torch.nn.Module):
        return getattr(program, "_orig_mod", None)
    # torch.compiler.disable makes such wrappers, too, so that Dynamo traces nothing of the original.
    disabled = getattr(program, "_torchdynamo_disable", False)
    return None if disabled else getattr(program, "_torchdynamo_orig_callable", None)


def check_program(program: Any) -> None:
    """Refuse objects that are not programs, and programs that Thunder has already compiled.

    Raises
    ------
    ProgramError
        If `program` is such an object; the message says what to open instead.
    """
    check_callable(program)
    _check_that_it_returns(program)
    if getattr(program, "_lc_cd", None) is not None:
        raise ProgramError(
            f"{_call_name(program)} is already compiled by thunder.jit: open the original function or module"
        )


def _check_that_it_returns(program: Callable[..., Any]) -> None:
    """Refuse generator and coroutine functions: the compiled function would run their bodies at once."""
    called = program.forward if isinstance(program, torch.nn.Module) else program
    ways = (called, getattr(called, "__call__", None))  # noqa: B004  inspect its `__call__`
    if any(inspect.iscoroutinefunction(way) or inspect.isasyncgenfunction(way) for way in ways):
        raise ProgramError(
            f"{_call_name(program)} is async and computes nothing until it is awaited: open a plain function"
        )
    if any(inspect.isgeneratorfunction(way) for way in ways):
        raise ProgramError(
            f"{_call_name(program)} is a generator and computes nothing until it is iterated: "
            "return a tuple or a list of the yielded values"
        )


def _call_name(program: Callable[..., Any]) -> str:
    name = getattr(program, "__name__", None)
    return name if isinstance(name, str) else type(program).__name__
