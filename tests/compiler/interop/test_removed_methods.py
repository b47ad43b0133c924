"""Thunder imports with a PyTorch that lacks methods which Thunder reads, and PyTorch's classes get none of them."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.compiler.interop.removed_methods import REMOVED

# PyTorch's own methods cannot be deleted, so another Thunder lists a method that no PyTorch has. A function that is
# built in replaces `Function.apply`, as in PyTorch 2.14.
IMPORT = """
import dataclasses
import torch
from workbench.compiler.interop import removed_methods, thunder_api

removed_methods.REMOVED = ("no_such_method", "sin")
torch.autograd.Function.apply = len
sin, before = torch.Tensor.sin, dir(torch.Tensor)
listed, known, apply = dataclasses.replace(thunder_api.SEAM, names={"table": "thunder:TABLE"}, members={}).get("table")
assert known is sin is torch.Tensor.sin
assert dir(torch.Tensor) == before
assert torch.autograd.Function.apply is len
assert (listed.__name__, apply.__name__) == ("no_such_method", "__func__")
listed(torch.zeros(1))
"""


def test_thunder_lists_the_removed_methods() -> None:
    (folder,) = importlib.util.find_spec("thunder").submodule_search_locations
    tree = ast.parse((Path(folder) / "torch" / "default_torch_ops.py").read_text())
    listed = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert {f"torch.Tensor.{name}" for name in REMOVED} <= listed
    assert "torch.autograd.function.Function.apply.__func__" in (Path(folder) / "core" / "jit_ext.py").read_text()


@pytest.mark.slow
def test_a_thunder_that_lists_a_removed_method_is_imported_and_the_method_stays_removed(tmp_path: Path) -> None:
    methods = "torch.Tensor.no_such_method, torch.Tensor.sin, torch.autograd.Function.apply.__func__"
    (tmp_path / "thunder.py").write_text(f"import torch\nTABLE = {methods}\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{IMPORT}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        "NotImplementedError: torch.Tensor.no_such_method does not exist in this PyTorch"
    )
