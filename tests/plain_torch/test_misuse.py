"""An exported file that is used in a wrong way says so in one clear message, without Thunder and the workbench."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import workbench as wb
from workbench.bench.report import torch_file

NEAREST = "this call has no such operator; the nearest is"
OTHER = "; nor for the other 1: are they for another model, or the function around it?"
KEYS = "is no key; legal: (module path, operator, ordinal), as ('mlp', 'mul', 0)"
MESSAGES = {
    "right": "",
    "the model instead of the function": f"choice ('', 'linear', 0): 'recompute' is not applied: {NEAREST} "
    f"('up', 'linear', 0){OTHER}",
    "another model": f"choice ('layers.0', 'mul', 0): 'recompute' is not applied: {NEAREST} ('', 'mul', 0){OTHER}",
    "a renamed module": f"choice ('gates', 'linear', 0): 'recompute' is not applied: {NEAREST} ('gate', 'linear', 0)",
    "a share as budget": "ValueError: budget '80%' is not legal; legal: a number from 0 to 1, or None for PyTorch's "
    "setting",
    "a text as key": f"ValueError: 'gate/linear' {KEYS}",
    "a key without ordinal": f"ValueError: ('gate', 'linear') {KEYS}",
    "a key of Thunder for eager": f"ValueError: 'saved:gate/linear' {KEYS}",
    "another option": "ValueError: choice ('gate', 'linear', 0): there is no option 'drop'; legal: save, recompute, "
    "offload",
    "a compiled model": "ValueError: the model is compiled already, so choices find nothing in it: give "
    "model._orig_mod",
    "a graph break": "choice ('', 'mul', 0): 'recompute' is not applied: a graph break divides its module, so PyTorch "
    "decides after the break",
    "several sizes": "",
    "an older PyTorch": "ImportError: this file needs PyTorch >=2.10,<2.13, but PyTorch 2.9.1 is installed",
    "checkpoint twice": "ValueError: checkpoint has changed this module already: give it all choices at once",
    "checkpoint of a function": "TypeError: checkpoint changes a torch.nn.Module, given builtin_function_or_method: "
    "use compile instead",
}


@pytest.mark.slow
def test_each_misuse_of_an_exported_file_has_one_message(tmp_path: Path) -> None:
    bench = wb.open(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()), torch.ones(2, 8), device="cpu")
    for name, target in (("compiled_choices", "torch"), ("eager_choices", "torch_eager")):
        text = torch_file.file_text(bench, bench.torch_choices(), target, f"{name}.py", ["", "Not predicted."])
        (tmp_path / f"{name}.py").write_text(text)
    script = Path(__file__).with_name("misuse.py")
    done = subprocess.run(
        [sys.executable, "-I", str(script), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told == {name: [message] if message else [] for name, message in MESSAGES.items()}
