"""Plans of the built-in programs are the same with each supported PyTorch, except for the differences listed here.

The test compares another PyTorch with the default one, whose environment `make setup` has made. Only `make quick` and
`make test` with `TORCH=` run it. It takes 28 CPU seconds, but is not marked `slow`, because CI runs only `make quick`
with another PyTorch.
"""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from packaging.version import Version

from tests.plan_figures import figures
from workbench.compiler.interop.torch_versions import TORCH

ROOT = Path(__file__).parents[3]
DEFAULT = re.search(r"^DEFAULT_TORCH := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
PYTHON = ROOT / ".venv" / "bin" / "python"

OTHERS = {"torch_adam", "torch_sgd"} if Version("2.12.dev0") <= TORCH else set()
"""Programs with other plans than with PyTorch 2.10; docs/upgrading.md describes the differences."""


@pytest.mark.skipif(f"{TORCH.major}.{TORCH.minor}" == DEFAULT, reason="compares another PyTorch with this one")
def test_only_the_named_programs_have_other_plans() -> None:
    if not PYTHON.exists() and os.environ.get("CI") != "true":
        pytest.skip(f"no environment with PyTorch {DEFAULT}; make setup makes it")
    command, environment = [PYTHON, "-m", "tests.plan_figures"], {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        here = json.loads(json.dumps(figures()))
        default = json.loads(process.communicate()[0])
    assert here.keys() == default.keys()
    apart = {key: [name for name in here[key] if here[key][name] != default[key][name]] for key in here}
    assert {key.partition(" ")[0] for key, names in apart.items() if names} == OTHERS, apart
    assert [key for key, names in apart.items() if "proven" in names] == []
    counted = {
        program: [(len(each["statements"]), each["peak_bytes"] >> 10) for each in (default[key], here[key])]
        for program in OTHERS
        for key in (f"{program} torch cpu",)
    }
    if OTHERS:
        assert counted == {"torch_adam": [(68, 160), (70, 160)], "torch_sgd": [(24, 128), (18, 112)]}
