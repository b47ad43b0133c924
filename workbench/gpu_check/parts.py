"""Parts of a check, the most valuable part first. The most informative steps of all parts run before other steps."""

from __future__ import annotations

from workbench.gpu_check.part import CheckPart

_MODULE = "workbench.gpu_check"

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
        does="llama: planned, run, compared with unmodified Thunder, predicted against measured peak, live, Cancel.",
        limit_s=420,
        module=f"{_MODULE}.main_job",
    ),
    CheckPart(
        name="choices",
        title="Every lever, at random",
        does="300 random sets of choices, built-in and random programs: right, bit for bit where kernels are the same.",
        limit_s=720,
        module=f"{_MODULE}.choices",
    ),
    CheckPart(
        name="depth",
        title="Compile time against depth",
        does="residual_chain with gradients, 1 to 128 layers: stock, weight 0, and weight 0 with cuts and sharing.",
        limit_s=900,
        module=f"{_MODULE}.depth",
    ),
    CheckPart(
        name="copies",
        title="Copies in optimizers",
        does="PyTorch's Adam and SGD under four policies of sets, with fences and without: compile time, step, bits.",
        limit_s=420,
        module=f"{_MODULE}.optimizers",
    ),
    CheckPart(
        name="memory",
        title="Memory of large layers",
        does="Layers of a 7B model: predicted against measured peak; saved, recomputed, offloaded; the depth that "
        "fits.",
        limit_s=900,
        module=f"{_MODULE}.large_layers",
    ),
    CheckPart(
        name="launches",
        title="Launches",
        does="Host, wall and device time against size, CUDA graphs, clocks, the ranking that flips without syncs.",
        limit_s=300,
        module=f"{_MODULE}.launches",
    ),
    CheckPart(
        name="calibration",
        title="Calibration",
        does="This machine's rates; step times predicted from them, and from a run, against measured ones.",
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
