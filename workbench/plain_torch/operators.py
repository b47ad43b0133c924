"""Find the operators that choices name, in a graph of Dynamo or while an eager module runs."""

import difflib
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import torch

Key = tuple[str, str, int]
_SAME = {"truediv": "div", "true_divide": "div", "rsub": "sub", "rdiv": "div", "rtruediv": "div", "rpow": "pow"}
_SAME |= {"iadd": "add", "isub": "sub", "imul": "mul", "itruediv": "div"}


def common_name(name: str) -> str:
    """Return the name that all forms of an operator share, such as ``add`` for ``__iadd__``."""
    name = name.partition(".")[0].strip("_")
    return _SAME.get(name, name)


class Operators:
    """Gives each operator its key: module path, operator, ordinal. Warns about each choice that is not applied."""

    def __init__(self, model: Any, choices: Mapping[Key, str]) -> None:
        modules = model.named_modules() if isinstance(model, torch.nn.Module) else ()
        self.paths, self.choices = {id(module): path for path, module in modules}, dict(choices)
        self.found, self.known, self.told, self.frames = set[Key](), set[Key](), set[Any](), dict[str, int]()
        for key in [key for key, option in self.choices.items() if option not in ("save", "recompute", "offload")]:
            raise ValueError(f"choice {key}: there is no option {self.choices[key]!r}; legal: save, recompute, offload")

    def key(self, ids: Iterable[int], target: Any, counts: Counter[tuple[str, str]]) -> Key:
        """Return the key of the next operator. `ids` are the ids of its modules, the innermost last."""
        inner = [0, *ids][-1]
        # An operator of a module that was added later must not shift the ordinals of a known module.
        path = self.paths.get(inner, "?") if inner and self.paths else ""
        name = common_name(getattr(target, "__name__", str(target)))
        counts[path, name] += 1
        self.known.add(key := (path, name, counts[path, name] - 1))
        return key

    def tell(self, key: Key, reason: str) -> None:
        """Warn once that a choice is not applied."""
        if (key, reason) not in self.told:
            self.told.add((key, reason))
            warnings.warn(f"choice {key}: {self.choices[key]!r} is not applied: {reason}", stacklevel=2)

    def end_call(self) -> None:
        """Warn about each choice whose operator was not found."""
        missing = self.choices.keys() - self.found - {key for key, _ in self.told}
        texts = [str(key) for key in sorted(self.known)] if missing else []
        for key in sorted(missing):
            near = difflib.get_close_matches(str(key), texts, 1, 0) or ["none, because none was found"]
            self.tell(key, f"this call has no such operator; the nearest is {near[0]}")
