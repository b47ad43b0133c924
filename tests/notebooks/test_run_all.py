"""*Run All* completes without an error: in lessons, and in notebooks that show the app for a transformers model."""

from __future__ import annotations

from pathlib import Path

import pytest
from nbformat import NotebookNode, v4

from tests.notebooks.run import session
from tests.notebooks.source import SOURCES, read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

LESSONS = sorted((SOURCES / "lessons").glob("*.py"))

MODELS = {
    "GPT2": "GPT2Config(n_embd=32, n_layer=4, n_head=4, vocab_size=128, use_cache=False)",
    "Llama": (
        "LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4, "
        "vocab_size=128, use_cache=False)"
    ),
}
KINDS = {"GPT2": "GPT2LMHeadModel", "Llama": "LlamaForCausalLM"}


def of_model(name: str, options: str) -> NotebookNode:
    """Return a notebook. One cell shows the app for a program; further cells make plans."""
    cells = [
        f"import torch, transformers, workbench as wb\nfrom transformers import {KINDS[name]}, {name}Config\n"
        f"torch.manual_seed(0)\nmodel = {KINDS[name]}({MODELS[name]})\n"
        "tokens = torch.randint(0, 128, (2, 8))\n"
        f"bench = wb.open(model, input_ids=tokens, labels=tokens, {options})",
        "bench",
        "able = [s.id for s in bench.sites('saved') if ':' in s.id and 'recompute' in s.options "
        "and 'recompute' not in s.illegal]\nfound = {id: bench.effects(id) for id in able[:8]}",
        "bench.choose({able[0]: 'recompute'})\nbench.choose({able[-1]: 'recompute'})\nbench.undo()",
        "fitted = bench.fit('100%')\nprint(bench.plan)",
        "alone = wb.open(model, input_ids=tokens, labels=tokens, " + options + ")\n"
        "assert {id: alone.effects(id) for id in able[:8]} == found",
        "assert bench.plan.proof.proven and bench.stock_plan.proof.proven",
    ]
    return v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in cells])


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "options"),
    [("GPT2", 'device="cpu", executor="torch"'), ("Llama", 'device="planned", executor="nvfuser"')],
)
def test_no_cell_of_a_notebook_with_a_hugging_face_model_fails(name: str, options: str, tmp_path: Path) -> None:
    with session(of_model(name, options), tmp_path) as kernel:
        kernel.run_all()
        assert kernel.value("bench.plan.proof.proven")


@pytest.mark.long
@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_no_cell_of_a_lesson_fails(lesson: Path, tmp_path: Path) -> None:
    with session(read(lesson), tmp_path) as kernel:
        kernel.run_all()
