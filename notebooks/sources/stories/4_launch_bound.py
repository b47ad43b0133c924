"""Story 4: launch-bound code, and a benchmark that deceives; an xFormers issue on fused sequence parallel kernels."""

# %% [markdown]
# # 4 · Launch-bound code, and a misleading benchmark
#
# **Reported** in xFormers' issue *Poor performance of sequence parallel fused kernels in real model training*: a
# column-parallel linear with 8k tokens, 8k features and 8 ranks gathers and multiplies in 8 chunks on several streams.
# The timeline shows:
#
# - about **600 µs** on the host before the first CUDA call, and bubbles of about **100 µs** between calls;
# - **2.9 ms** of host time, more than the kernels and copies take; all copies are done before the first product is issued, so nothing overlaps;
# - the benchmark that came with it is **deceptive**: the host's work hides behind the device work of the test before it. With a sync in
#   front, the fused variant is slower than the baseline.
#
# **Simulated** figures use an H100's published rates and the reported launch times; nothing runs. Figures **measured on
# the CPU** are marked. The notebook takes half a minute on two free cores, and 1.5 GB of memory. JupyterLab draws the
# stored pictures after you trust the notebook (command *Trust Notebook*) or run it.

# %%
import dataclasses

import torch

import workbench as wb
from workbench.analysis.cost.collective_overlap import costs, simulate
from workbench.analysis.cost.machines import H100
from workbench.ui.html_pages.notebook_tables import LinePlot, Table

CHUNKS, TOKENS, FEATURES, OUT = 8, 8192, 8192, 3072  # q, k and v of one of 8 ranks: 3 * 8192 / 8


def whole(weight, *shards):
    """Gather all shards, then compute one product."""
    return torch.cat(shards) @ weight


def chunked(weight, *shards):
    """Copy each shard, and multiply each copy with the weight separately."""
    return torch.cat([shard.clone() @ weight for shard in shards])


weight = torch.zeros(FEATURES, OUT, dtype=torch.bfloat16)
shards = [torch.zeros(TOKENS // CHUNKS, FEATURES, dtype=torch.bfloat16) for _ in range(CHUNKS)]
benches = {f.__name__: wb.open(f, weight, *shards, device="planned", executor="torch") for f in (whole, chunked)}
benches["chunked"]

# %% [markdown]
# ## Seen on the plan: launches against work
#
# A program is launch-bound if the host takes at least as long to issue the work as the device takes to do it. The
# simulated host takes equally long for each statement, also for a view or a fence, which launches no kernel. With 5 µs
# a statement, neither variant is launch-bound. With the reported 100 µs, the chunked variant is, although its kernels
# stay the same.


# %%
def launches(bench, launch_s):
    """Return the numbers of statements and kernels, and the simulated milliseconds of host, device and step."""
    graph = bench.plan.graph
    cost = costs(graph, dataclasses.replace(H100, launch_s=launch_s), 1)
    top = graph.statements.parent < 0
    return {
        "statements": int(top.sum()),
        "kernels": int((cost.compute_s[top] > 0).sum()),
        "host ms": 1e3 * float(cost.host_s[top].sum()),
        "device ms": 1e3 * float(cost.compute_s[top].sum()),
        "both ms": 1e3 * simulate(graph, cost).step_s,
    }


simulated = {
    (name, launch_us): launches(bench, launch_us * 1e-6) for name, bench in benches.items() for launch_us in (5, 100)
}
Table(
    [
        {
            "variant": name,
            "a statement, µs": launch_us,
            **{key: round(value, 2) for key, value in found.items()},
            "launch-bound": "yes" if found["host ms"] >= found["device ms"] else "no",
        }
        for (name, launch_us), found in simulated.items()
    ]
)

# %% [markdown]
# ## The misleading benchmark
#
# The same two variants run on the CPU, with threads instead of streams: chunks are issued, and the call returns.
# Without a sync, a benchmark times only the issuing. The workbench measures two times of every sample: until the call
# returns, and until the work is done. There is a sync before and after each sample. The variants are interleaved, in a random order in
# each turn.

# %%
from workbench.programs.builtin.sequence_parallel import Deception
from workbench.runs.measure.sync_ranking import rank

torch.set_num_threads(1)
deception = Deception(chunks=64, rows=8)
ranking = rank(deception.variants, deception.synchronize, samples=15)
deception.close()
Table(
    [
        {
            "measured on the CPU": name,
            "without a sync, ms": round(1e3 * ranking.host_s[name].median, 3),
            "with syncs, ms": round(1e3 * ranking.wall_s[name].median, 3),
        }
        for name in ranking.names
    ]
)

# %%
print(ranking.words)

# %% [markdown]
# ## Remedy: larger tensors
#
# The thread names three remedies: larger tensors, fewer launches, CUDA graphs. Here are larger chunks, measured on the
# CPU, with the same total of rows:

# %%
ratios = {}
for rows in (8, 32, 128):
    deception = Deception(chunks=512 // rows, rows=rows)
    found = rank(deception.variants, deception.synchronize, samples=9)
    deception.close()
    ratios[rows] = found.wall_s["chunked"].median / found.wall_s["whole"].median
LinePlot(
    {"chunked, of whole": ratios},
    title="How much longer the chunked variant takes, measured on the CPU",
    x="rows of a chunk (512 in all)",
    y="times",
    limits={"as long": 1},
)

# %% [markdown]
# ## Remedy: fewer launches
#
# In Thunder the compiler decides the number of launches, so you can choose it. An optimizer's step on small tensors is the
# simplest case: many statements, little work. Planned for nvFuser, simulated with 5 µs of the host for each statement:

# %%
adam = wb.open("torch_adam", parameters=2, size=64, device="planned", executor="nvfuser")
stock = launches(adam, 5e-6)
adam.choose({"copies.fences": "drop"})
fused = launches(adam, 5e-6)
Table(
    [
        {"Adam, simulated": name, **{key: round(value, 4) for key, value in found.items()}}
        for name, found in (("stock", stock), ("fences dropped", fused))
    ]
)

# %% [markdown]
# ## Take it away
#
# The first remedy changes the program. The second remedy is a config:

# %%
print(adam.export("fewer_launches.py").read_text())
print("proven to compute what the stock plan computes:", adam.plan.proof.proven)

# %% [markdown]
# The third remedy, CUDA graphs, needs a GPU. There, `thunder-workbench run ... --cuda-graph` also times the step as one CUDA graph, and every run says whether its step is
# launch-bound, with the gap before the first kernel and the gaps (bubbles) after it. Without a GPU the workbench refuses this option instead of guessing:

# %%
from workbench.runs.process.request import RunOptions

try:
    wb.open("mlp", device="cpu").run(options=RunOptions(cuda_graph=True))
except wb.RunError as error:
    print(error)

# %% [markdown]
# ## For the authors of the issue

# %%
from IPython.display import Markdown

slow, quick = simulated["chunked", 100], simulated["chunked", 5]
Markdown(f"""
- **Launches alone explain most of your timeline.** {slow["statements"]} statements ({slow["kernels"]} kernels) with 100 µs each take the host {slow["host ms"]:.1f} ms, for
  {slow["device ms"]:.1f} ms of device work; with the 600 µs in front that is {slow["host ms"] + 0.6:.1f} ms, where you saw 2.9. At 5 µs a statement the same
  program takes {quick["both ms"]:.1f} ms and is not launch-bound.
- **The benchmark flips on a CPU, too:** {ranking.words}.
- **Larger tensors close the gap:** with {min(ratios)} rows a chunk takes {ratios[min(ratios)]:.1f} times as long as the whole, with {max(ratios)} rows
  {ratios[max(ratios)]:.1f} times.
- **Fewer launches are the compiler's choice:** {stock["kernels"]} kernels of an Adam step become {fused["kernels"]}. With 5 µs for each of its {stock["statements"]} statements
  the simulated step takes {stock["both ms"]:.2f} ms, and with {fused["statements"]} it takes {fused["both ms"]:.3f} ms.
- Reproduce: `make notebooks NAMES=4_launch`; `python -m pytest tests/runs/test_ranking.py` checks the flip.
""")
