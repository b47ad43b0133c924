"""Find the operators that choices name, in a graph of Dynamo or while an eager module runs."""

import difflib
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

Key = tuple[str, str, int]
_SAME = {"truediv": "div", "true_divide": "div", "rsub": "sub", "rdiv": "div", "rtruediv": "div", "rpow": "pow"}
_SAME |= {"iadd": "add", "isub": "sub", "imul": "mul", "itruediv": "div"}


def common_name(name: str) -> str:
    """Return the name that all forms of an operator share, such as ``add`` for ``__iadd__``."""
    return _SAME.get(plain := name.partition(".")[0].strip("_"), plain)


class Operators:
    """Gives each operator its key: module path, operator, ordinal. Warns about each choice that is not applied."""

    def __init__(self, model: Any, choices: Mapping[Key, str]) -> None:
        self.paths, self.known = {id(m): path for path, m in getattr(model, "named_modules", tuple)()}, set[Key]()
        self.choices, self.found, self.told, self.frames = dict(choices), set[Key](), set[Any](), dict[str, int]()
        for key, option in dict[Any, str](choices).items():
            if not isinstance(key, tuple) or [type(part) for part in key] != [str, str, int]:
                raise ValueError(f"{key!r} is no key; legal: (module path, operator, ordinal), as ('mlp', 'mul', 0)")
            if option not in ("save", "recompute", "offload"):
                raise ValueError(f"choice {key}: there is no option {option!r}; legal: save, recompute, offload")

    def key(self, ids: Iterable[int], target: Any, counts: Counter[tuple[str, str]]) -> Key:
        """Return the key of the next operator. `ids` are the ids of its modules, the innermost last."""
        inner = [0, *ids][-1]
        path = self.paths.get(inner, "?") if inner and self.paths else ""  # a module added later shifts no ordinals
        name = common_name(getattr(target, "__name__", str(target)))
        counts[path, name] += 1
        self.known.add(key := (path, name, counts[path, name] - 1))
        return key

    def tell(self, key: Key, reason: str) -> None:
        """Warn once that a choice is not applied."""
        if (key, reason) not in self.told:
            self.told.add((key, reason))
            warnings.warn(f"choice {key}: {self.choices[key]!r} is not applied: {reason}", stacklevel=2)

    def end_call(self, out: Any = None) -> Any:
        """Warn about each choice whose operator was not found; if none was found, warn once. Return `out`."""
        missing = self.choices.keys() - self.found - {key for key, _ in self.told}
        others = len(missing) - 1 if missing == self.choices.keys() else 0
        more = f"; nor for the other {others}: are they for another model, or the function around it?" if others else ""
        for key in sorted(missing)[: 1 if others else None]:
            near = *difflib.get_close_matches(str(key), map(str, sorted(self.known)), 1, 0), "none: none was found"
            self.tell(key, f"this call has no such operator; the nearest is {near[0]}{more}")
        self.told |= {(key, more) for key in missing}
        return out
