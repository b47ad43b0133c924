"""*Run All* of notebooks in new kernels. No cell fails while the page shows the app."""

from __future__ import annotations

import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.browser.harness import NOTEBOOKS, Lab
from tests.trial_counts import amount

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(900)]

CORES = 2
TIMES = amount(1, 3, 10)
UNRUN = """() => Array.from(jupyterapp.shell.currentWidget.content.model.cells)
    .filter(cell => cell.type === 'code' && !cell.executionCount).length"""


@contextmanager
def busy(cores: int) -> Iterator[None]:
    """Keep `cores` cores busy during the block, with one process for each."""
    with ExitStack() as stack:
        for _ in range(cores):
            process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


HUGGING_FACE = """import torch
import transformers
import workbench as wb

config = transformers.{config}
model = transformers.{model}(config).train()
ids = torch.randint(0, 100, (2, 16))
bench = wb.open(model, input_ids=ids, labels=ids, device="cpu", executor="torch")
bench.app()
site = next(site for site in bench.sites("saved") if site.bytes and "recompute" not in site.illegal)
bench.effects(site.id)["recompute"]
bench.choose({{site.id: "recompute"}})
run = bench.run(wait=True)
assert run.accuracy.ok, run.accuracy
bench.export("choices.py")
wb.load("choices.py").jit(model)(input_ids=ids, labels=ids).loss.backward()"""
"""The source of a notebook, in which each line is a cell."""

MODELS = {
    "gpt2": {"model": "GPT2LMHeadModel", "config": "GPT2Config(vocab_size=100, n_embd=32, n_layer=2, n_head=2)"},
    "llama": {
        "model": "LlamaForCausalLM",
        "config": "LlamaConfig(vocab_size=100, hidden_size=32, intermediate_size=64, num_hidden_layers=2, "
        "num_attention_heads=2)",
    },
}


def errors(lab: Lab) -> list[str]:
    return [output["evalue"] for output in lab.outputs() if output["output_type"] == "error"]


def run_all(lab: Lab, name: str) -> None:
    """Open a notebook and use *Run All*. Assert that no output is an error."""
    lab.open_notebook(name)
    lab.run_all()
    lab.wait_until(lambda: bool(lab.page.evaluate(UNRUN) == 0 or errors(lab)), timeout_s=800)
    assert not errors(lab)


@pytest.mark.long
@pytest.mark.parametrize("cores", [0, CORES], ids=["idle", "busy"])
@pytest.mark.parametrize("time", range(TIMES))
def test_run_all_of_the_quickstart_fails_in_no_cell(lab: Lab, cores: int, time: int) -> None:
    with busy(cores):
        run_all(lab, "quickstart.ipynb")
    assert lab.kernel_eval("print(run.state, run.error)") == "done None"


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(str(path.relative_to(NOTEBOOKS)) for path in NOTEBOOKS.glob("[ls]*s/*.ipynb")))
def test_run_all_of_stories_and_lessons_fails_in_no_cell(lab: Lab, name: str) -> None:
    run_all(lab, name)


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_run_all_of_a_notebook_with_a_model_of_hugging_face_fails_in_no_cell(lab: Lab, name: str) -> None:
    lab.write_notebook(f"{name}.ipynb", [line.format(**MODELS[name]) for line in HUGGING_FACE.splitlines() if line])
    run_all(lab, f"{name}.ipynb")


CELLS = [
    "import workbench as wb",
    "bench = wb.open('mlp', device='cpu', executor='torch')",
    "bench.app()",
    "print('all', 'ran')",
]
SLOW_SESSIONS = """
    const fetched = window.fetch;
    window.fetch = async (request, ...more) => {
        const asks = new URL(request.url ?? request, location).pathname.endsWith("/api/sessions");
        if (asks && request.method === "METHOD") await new Promise(resolve => setTimeout(resolve, 2000));
        return fetched(request, ...more);
    };
"""
"""Delay the start of kernels, so that the page shows the cells of `CELLS` before their kernel starts.

A page lists the sessions (GET), and then asks for a new session with a kernel (POST).
"""
SHOWN = """([count, asked]) => {
    const notebook = globalThis.jupyterapp?.shell?.currentWidget;
    return notebook?.content?.model?.cells?.length === count && notebook.sessionContext.hasNoKernel !== asked;
}"""
KERNEL = "() => String(jupyterapp.shell.currentWidget.sessionContext.session?.kernel)"


def execution_counts(lab: Lab) -> list[int | None]:
    """Return the number of each cell, after all executions that were asked for.

    JupyterLab numbers a cell when the kernel's reply arrives, which is after the cell's output.
    """
    lab.kernel_eval("None")
    return list(
        lab.page.evaluate(
            "() => Array.from(jupyterapp.shell.currentWidget.content.model.cells, cell => cell.executionCount)"
        )
    )


@pytest.mark.parametrize("method", ["GET", "POST"], ids=["before it is asked for", "after it is asked for"])
def test_run_all_before_the_kernel_has_started_runs_each_cell_once(lab: Lab, method: str) -> None:
    lab.write_notebook("early.ipynb", CELLS)
    lab.page.add_init_script(SLOW_SESSIONS.replace("METHOD", method))
    path = urllib.parse.quote(f"{lab.name}/early.ipynb")
    lab.page.goto(f"{lab.server.url}/lab/workspaces/{lab.name}/tree/{path}?reset", wait_until="commit")
    lab.page.wait_for_function(SHOWN, arg=[len(CELLS), method == "POST"])
    assert lab.page.evaluate(KERNEL) in ("undefined", "null")
    lab.run_all()
    lab.run_all()  # nothing has happened, so the user asks again
    lab.wait_marker("all ran")
    assert execution_counts(lab) == [1, 2, 3, 4]
    lab.page.wait_for_selector(".jp-OutputArea canvas")
    assert lab.page.locator(".jp-Dialog").count() == 0


def press_twice_before_the_kernel_has_started(lab: Lab, cells: list[str]) -> None:
    """Open a notebook, and use Shift+Enter twice, from the first cell on, before its kernel has started."""
    lab.write_notebook("early.ipynb", cells)
    lab.page.add_init_script(SLOW_SESSIONS.replace("METHOD", "POST"))
    path = urllib.parse.quote(f"{lab.name}/early.ipynb")
    lab.page.goto(f"{lab.server.url}/lab/workspaces/{lab.name}/tree/{path}?reset", wait_until="commit")
    lab.page.wait_for_function(SHOWN, arg=[len(cells), True])
    for _ in range(2):
        lab.page.evaluate("() => { void jupyterapp.commands.execute('notebook:run-cell-and-select-next'); }")
    assert lab.page.evaluate(KERNEL) in ("undefined", "null")
    lab.page.evaluate("async () => { await jupyterapp.shell.currentWidget.sessionContext.ready; }")


def test_shift_enter_before_the_kernel_has_started_runs_the_cells_in_order(lab: Lab) -> None:
    press_twice_before_the_kernel_has_started(lab, ["print('first')", "print('second')", "import workbench", "1 / 0"])
    lab.wait_marker("first\nsecond")
    assert execution_counts(lab) == [1, 2, None, None]


def test_the_extension_leaves_a_notebook_that_does_not_import_the_workbench_to_jupyterlab(lab: Lab) -> None:
    press_twice_before_the_kernel_has_started(lab, ["print('first')", "print('second')", "'import workbench'"])
    assert execution_counts(lab) == [None, None, None]
