"""The parts of a check, the most informative part first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import workbench
from workbench.gpu_check.parts.check_part import CheckPart

_MODULE = "workbench.gpu_check.parts"
RESULTS = Path(workbench.__file__).parents[1] / "benchmarks" / "results"
"""Committed results and predictions; only a checkout has this folder."""

CARD_BYTES: Mapping[str, int] = {"H100": 79 << 30, "H200": 138 << 30}
"""Approximate bytes of memory that PyTorch can use, for each GPU with predictions: cards with 80 GB and 141 GB."""

PARTS = (
    CheckPart(
        name="environment",
        title="Environment",
        does="Attached devices, installed packages, whether nvFuser fits this PyTorch and runs, and what is missing.",
        limit_s=180,
        module=f"{_MODULE}.environment",
    ),
    CheckPart(
        name="main",
        title="The main job",
        does="Plans, runs and cancels llama; compares results with those of unmodified Thunder, and the predicted "
        "with the measured peak; counts memory samples.",
        limit_s=420,
        module=f"{_MODULE}.main_job",
    ),
    CheckPart(
        name="choices",
        title="Every lever, at random",
        does="Compares the results of 300 random sets of choices with those of unmodified Thunder, for built-in and "
        "random programs.",
        limit_s=720,
        module=f"{_MODULE}.choices",
    ),
    CheckPart(
        name="depth",
        title="Compile time against depth",
        does="Compiles residual_chain with 1 to 128 layers in three ways: stock; with `remat.weight` 0; and with "
        "`remat.weight` 0, cuts and sharing.",
        limit_s=900,
        module=f"{_MODULE}.depth",
    ),
    CheckPart(
        name="copies",
        title="Copies in optimizers",
        does="Compiles and runs PyTorch's Adam and SGD under the options of the lever `copies`, and compares the bits.",
        limit_s=420,
        module=f"{_MODULE}.optimizers",
    ),
    CheckPart(
        name="memory",
        title="Memory of large layers",
        does="Layers of a 7B model: predicted against measured peak if storages are saved, recomputed or offloaded; "
        "the largest depth that fits.",
        limit_s=900,
        module=f"{_MODULE}.large_layers",
    ),
    CheckPart(
        name="launches",
        title="Launches",
        does="Measures host and device time, CUDA graphs, the overhead of the clocks at each statement, "
        "and variants with and without syncs.",
        limit_s=300,
        module=f"{_MODULE}.launches",
    ),
    CheckPart(
        name="calibration",
        title="Calibration",
        does="This machine's rates; measured step times against predictions from the rates and from a run.",
        limit_s=420,
        module=f"{_MODULE}.rates",
    ),
    CheckPart(
        name="tests",
        title="The tests marked gpu",
        does="Tests that need a GPU, one by one.",
        limit_s=600,
        module=f"{_MODULE}.marked_tests",
    ),
    CheckPart(
        name="ranks",
        title="Ranks",
        does="Orders of collectives on several GPUs: measured against simulated.",
        limit_s=600,
        module=f"{_MODULE}.on_ranks",
    ),
)
"""Parts of `thunder-workbench gpu-check`."""

SLOT = CheckPart(
    name="questions",
    title="Questions in a slot",
    does="Questions about a GPU, the most valuable first; steps whose answers are committed are left out.",
    limit_s=3600.0,
    step_limit_s=90.0,
    module=f"{_MODULE}.questions",
    in_slot=True,
)
"""The part of ``thunder-workbench gpu-check --slot MINUTES``."""

QUESTIONS: Mapping[int, str] = {
    1: "Do predicted peaks hold?",
    2: "Does the workbench train models that do not fit without it?",
    3: "Does the predicted curve of step time against peak memory hold?",
    4: "Does compile time grow with depth?",
    5: "What do `set` statements (explicit copies) cost in optimizers?",
    6: "Is a program launch-bound, and does a CUDA graph help?",
    7: "Does offloading hide behind compute?",
    8: "Is every choice right?",
    9: "Does predicted reserved memory hold?",
    10: "Do Cancel, the readouts and the tests marked gpu work?",
}
"""Questions of `SLOT` by number, the most valuable first. The names of their steps begin with the number."""
