"""The digest of a program contains each value that its code reads, and no value that differs between processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

from workbench.programs import identity
from workbench.programs.code_reads import CodeRead, reads_of

CONSTANTS = """
import enum

STEPS = {n}
NAME = "STEPS"

class K:
    steps = {n}
    class Inner:
        steps = {n}

class E(enum.Enum):
    A = {n}

class Settings:
    def __init__(self):
        self.steps = {n}

settings = Settings()
table = {{"steps": [{n}]}}
"""

PROGRAM = """
import enum
import functools
import os
import sys
import torch
import identity_constants
import identity_constants as constants
from identity_constants import E, K, STEPS

ROOT = identity_constants

class Base:
    inherited = [{n}]

class Color(enum.Enum):
    RED = {n}

def helper():
    return 1

helper.steps = {n}

def one(self=None):
    return 1

def two(self=None):
    return 2

CHOSEN = [one, two][{n} % 2]
OPERATOR = [torch.Tensor.sin, torch.Tensor.cos][{n} % 2]
CACHED = [functools.lru_cache(one), functools.lru_cache(two)][{n} % 2]

def enclosing():
    cell_module, cell_class = identity_constants, K
    def read(self):
        return {closure}
    return read

class Model(torch.nn.Module, Base):
    numbers = [{n}]
    table = dict(n={n})
    tensor = torch.ones({n})
    settings = constants.Settings()
    color = Color.RED
    held = K
    operator = OPERATOR
    cached = CACHED
    value = property(CHOSEN)
    stored = functools.cached_property(CHOSEN)
    of_class = classmethod(CHOSEN)
    static = staticmethod(CHOSEN)
    part = functools.partialmethod(CHOSEN)

    class Nested:
        steps = {n}

    def __init__(self):
        super().__init__()
        self.module = identity_constants

    def read(self):
        {body}
"""

BODIES = {
    "a module": "return identity_constants.STEPS",
    "a name of a module": "return constants.table['steps'][0]",
    "an object of a module": "return constants.settings.steps",
    "a module by a global": "return ROOT.STEPS",
    "a module by a variable": "c = constants; return c.STEPS",
    "a module by getattr": "return getattr(constants, constants.NAME)",
    "a module by an attribute": "return self.module.STEPS",
    "a module as an argument": "return vars(constants)['STEPS']",
    "an import": "import identity_constants as c; return c.STEPS",
    "an import of a name": "from identity_constants import STEPS as s; return s",
    "an import of a class": "from identity_constants import K as k; return k.steps",
    "a class of a module": "return identity_constants.K.steps",
    "a class in a class": "return K.Inner.steps",
    "a class": "return K.steps",
    "a class by getattr": "return getattr(K, 'steps')",
    "an enum of a module": "return constants.E.A.value",
    "an enum": "return E.A.value",
    "an enum by name": "return E['A'].value",
    "an enum of an attribute": "return self.color.value",
    "an imported number": "return STEPS",
    "a list of the class": "return self.numbers[0]",
    "a dict of the class": "return type(self).table['n']",
    "a tensor of the class": "return len(self.tensor)",
    "an object of the class": "return self.settings.steps",
    "a class of the class": "return self.held.steps",
    "a nested class": "return self.Nested.steps",
    "a list of a base class": "return self.inherited[0]",
    "a tensor method": "return OPERATOR",
    "a function with a cache": "return CACHED()",
    "an attribute of a function": "return helper.steps",
    "a nested function": "return (lambda: identity_constants.STEPS)()",
    "a comprehension": "return [constants.STEPS for _ in range(2)]",
}
CLOSURES = {"a module in a closure": "cell_module.STEPS", "a class in a closure": "cell_class.steps"}


@pytest.fixture
def written(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModuleType]:
    """Return a function that imports `PROGRAM` and `CONSTANTS` with a number, always under the same names."""

    def imported(n: int, body: str = "pass", closure: str = "1") -> ModuleType:
        for name, source in (("identity_constants", CONSTANTS), ("identity_program", PROGRAM)):
            module = ModuleType(name)
            module.__file__ = str(tmp_path / f"{name}.py")
            monkeypatch.setitem(sys.modules, name, module)
            filled = source.format(n=n, body=body, closure=closure)
            exec(compile(filled, module.__file__, "exec", dont_inherit=True), vars(module))
        return module

    return imported


def digest_of(module: ModuleType) -> tuple[str, str]:
    """Return what decides whether a capture is read: the program's key, and the digest of a function it calls."""
    model = module.Model()
    return identity.program_digest(model)[0], identity.digest_of(module.Model.read, module.enclosing())


class TestTheDigestChangesWithWhatCodeReads:
    @pytest.mark.parametrize("what", BODIES)
    def test_in_a_method(self, what: str, written: Callable[..., ModuleType]) -> None:
        first, same, other = (digest_of(written(n, BODIES[what])) for n in (3, 3, 4))
        assert first == same
        # Values of the class are part of the program's key, whatever a method reads.
        assert first[1] != other[1] or ("self" in BODIES[what] and first[0] != other[0])

    @pytest.mark.parametrize("what", CLOSURES)
    def test_in_a_closure(self, what: str, written: Callable[..., ModuleType]) -> None:
        first, same, other = (digest_of(written(n, closure=CLOSURES[what])) for n in (3, 3, 4))
        assert first[1] == same[1] != other[1]

    @pytest.mark.parametrize(
        "body",
        [
            "return os.environ['WB_TEST']",
            "return os.environ.get('WB_TEST', 1)",
            "return os.getenv('WB_TEST')",
            "return 'WB_TEST' in os.environ",
            "import os as o; return o.environ.get('WB_TEST')",
            "from os import environ as e; return e['WB_TEST']",
            "return [os.environ.get(name) for name in self.names]",
            "return dict(os.environ)",
        ],
    )
    def test_in_the_environment(
        self, body: str, written: Callable[..., ModuleType], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        module = written(3, body)
        before = digest_of(module)
        monkeypatch.setenv("WB_TEST", "1")
        assert digest_of(module) != before
        monkeypatch.delenv("WB_TEST")
        assert digest_of(module) == before

    def test_in_settings_of_python_and_torch(
        self, written: Callable[..., ModuleType], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        module = written(3, "return torch.backends.cudnn.benchmark, torch.backends.cuda.matmul.allow_tf32, sys.argv")
        before = digest_of(module)
        monkeypatch.setattr(torch.backends.cudnn, "benchmark", not torch.backends.cudnn.benchmark)
        changed = digest_of(module)
        monkeypatch.setattr(sys, "argv", [*sys.argv, "--more"])
        assert len({before, changed, digest_of(module)}) == 3
        monkeypatch.undo()


IN_ANOTHER_PROCESS = """
import sys
from types import ModuleType
from workbench.programs import identity
for name, source, file in {sources}:
    module = sys.modules[name] = ModuleType(name)
    module.__file__ = file
    exec(compile(source, file, "exec"), vars(module))
print(identity.program_digest(module.Model())[0], identity.digest_of(module.Model.read, module.enclosing()))
"""


@pytest.mark.parametrize("name", ["operator", "cached", "value", "stored", "of_class", "static", "part"])
def test_the_digest_changes_with_a_descriptor_of_a_class(name: str, written: Callable[..., ModuleType]) -> None:
    def digest(n: int) -> str:
        whole = written(n).Model
        assigned = type("Alone", (), {"__module__": "identity_program", name: vars(whole)[name]})
        return identity.program_digest(assigned)[0]

    first, same, other = (digest(n) for n in (3, 3, 4))
    assert first == same != other


class TestTheDigestDoesNotChange:
    @pytest.mark.slow
    def test_in_another_process(self, written: Callable[..., ModuleType]) -> None:
        """All reads are in one function, because a process takes a second to start."""
        body = "\n        ".join(f"if self: {each}" for each in BODIES.values() if ";" not in each)
        module = written(3, body)
        sources = [
            (name, source.format(n=3, body=body, closure="1"), sys.modules[name].__file__)
            for name, source in (("identity_constants", CONSTANTS), ("identity_program", PROGRAM))
        ]
        seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
        done = subprocess.run(
            [sys.executable, "-c", IN_ANOTHER_PROCESS.format(sources=sources)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert tuple(done.stdout.split()) == digest_of(module)

    def test_with_other_environment_variables(
        self, written: Callable[..., ModuleType], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        module = written(3, "return os.environ.get('WB_TEST')")
        before = digest_of(module)
        monkeypatch.setenv("WB_OTHER", "1")
        assert digest_of(module) == before

    def test_with_a_value_that_the_code_does_not_read(self, written: Callable[..., ModuleType]) -> None:
        module = written(3, "return constants.STEPS")
        before = identity.digest_of(module.Model.read)
        module.constants.table = {}
        assert identity.digest_of(module.Model.read) == before


@pytest.mark.parametrize(
    "statement",
    [
        "import identity_{0}; return identity_{0}.m",
        "import identity_{0} as m; return m",
        "from identity_{0} import m; return m",
        "from identity_{0} import m; return lambda: m",
    ],
)
def test_the_digest_runs_no_module_that_the_program_does_not_import(
    statement: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "".join(each for each in statement if each.isalpha())
    (tmp_path / f"identity_{name}.py").write_text("raise SystemExit('it runs')")
    monkeypatch.syspath_prepend(tmp_path)
    held: dict[str, Any] = {"__name__": "identity_outside"}
    exec(f"def read(debug=False):\n if debug:\n  {statement.format(name)}", held)
    digest, codes, _ = identity.program_digest(held["read"])
    assert f"identity_{name}" not in sys.modules
    assert held["read"].__code__ not in codes
    module = ModuleType(f"identity_{name}")
    module.m = 1  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert identity.program_digest(held["read"])[0] != digest


def _imports(self: Any) -> Any:
    import os.path
    import xml.dom.minidom as dom
    from os import environ as env

    near = os.path
    return near.sep, dom.Node, env["KEY"], len(self.name)


def test_the_reads_of_code_follow_imports_and_variables() -> None:
    assert set(reads_of(_imports.__code__)) == {
        CodeRead("import", "os", ("path", "sep")),
        CodeRead("import", "xml", ("dom", "minidom", "Node")),
        CodeRead("import", "os", ("environ",), ("constant", "KEY")),
        CodeRead("global", "len"),
    }


def test_lambda_functions_of_pytorch_differ() -> None:
    """They have one name: a program that calls one of them took the plan of a program that called another."""
    text = (
        "first, second, third = lambda x: x.sin(), lambda x: x.cos(), lambda x: x.sin() + 0\nagain = lambda x: x.sin()"
    )
    exec(compile(text, torch.__file__, "exec"), made := {"__name__": "torch"})
    digests = {name: identity.digest_of(made[name]) for name in ("first", "second", "third", "again")}
    assert digests["first"] == identity.digest_of(made["first"])
    assert len(set(digests.values())) == 4
