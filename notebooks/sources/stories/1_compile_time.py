"""Story 1: compile time against depth; nvFuser's issue 2916."""

# %% [markdown]
# # 1 · Compile time against depth
#
# **Reported** in nvFuser's issue 2916, *Cache misses for fusion definitions different by a few ops compiled one after
# another*. Recomputing the residual stream saves memory. A patch of one line makes Thunder recompute it: the patch
# changes the weight of a fusion's own arguments from one half to 0. Then every fusion differs from the fusion before,
# and compile time explodes with depth: 0.32 s with one layer, **1393 s with 128**.

# %%
from workbench.ui.html_pages.notebook_tables import LinePlot, Table

reported_s = {1: 0.320, 2: 0.534, 4: 1.034, 8: 2.363, 16: 6.871, 32: 27.14, 64: 161.3, 128: 1392.8}
LinePlot({"reported, patched": reported_s}, title="Reported: seconds to compile on a GPU", x="layers", y="s", log=True)

# %% [markdown]
# This story shows the problem on the plan, solves it by a choice, and measures the result. The fusions for nvFuser are
# **planned** for a GPU that is not attached. Compile times are **measured on the CPU**, with torch.compile instead of
# nvFuser. The notebook takes about a minute and a half on two free cores, and less than 2 GB of memory. JupyterLab
# draws the stored pictures after you trust the notebook (command *Trust Notebook*) or run it.
#
# ## Seen on the plan

# %%
import workbench as wb

bench = wb.open("residual_chain", layers=32, device="planned", executor="nvfuser")
policies = {
    "stock (weight 0.5)": {},
    "the patch (weight 0)": {"remat.weight": "0.0"},
    "weight 0, cut every 4": {"remat.weight": "0.0", "remat.preset": "every=4"},
    "weight 0, cut every 4, shared": {
        "remat.weight": "0.0",
        "remat.preset": "every=4",
        "sharing.identical": "shared",
    },
}
plans = {name: bench.plan_under(choices) for name, choices in policies.items()}
Table(
    [
        {
            "32 layers, planned": name,
            "fusions": plan.census.count,
            "unique": plan.census.unique,
            "ops in the largest": plan.census.largest,
            "compilations": plan.counts["compilations"],
        }
        for name, plan in plans.items()
    ]
)

# %% [markdown]
# In stock Thunder 3 of 65 fusions are unique; with the patch, 65 of 65, and the last fusion repeats all additions before
# it. The graph shows four layers with the patch. Each purple box is a fusion, which is longer than the fusion above it:

# %%
small = wb.open("residual_chain", layers=4, device="planned", executor="nvfuser")
small.choose({"remat.weight": "0.0"})
small

# %% [markdown]
# ## The choice
#
# Two choices together stop this growth. **Cut every k**: every k-th addition is saved, so a recomputation never reaches
# back further than to this addition, and the fusions repeat with a period of k. **Sharing**: identical fusions are
# compiled once. Stock Thunder compiles each of its 65 fusions, although only 3 of them are unique.
#
# The effect of k at 32 layers:

# %%
by_k = {}
for k in (1, 2, 4, 8):
    plan = bench.plan_under({"remat.weight": "0.0", "remat.preset": f"every={k}"})
    by_k[k] = (plan.census.unique, plan.census.largest)
Table(
    [{"cut every": k, "unique of 65": unique, "ops in the largest": largest} for k, (unique, largest) in by_k.items()]
)

# %% [markdown]
# ## Predicted, then measured
#
# The number of compilations is predicted. The processor seconds of the first call are measured, in one process, with an
# empty Inductor cache. Each point has its own matrix size, so that no point finds the kernels of another. A first
# chain, which is not measured, does Inductor's one-time work.

# %%
import os
import resource
import tempfile

import torch


def cpu_s():
    """Return the processor seconds of this process and of the compilers that it started."""
    return sum(
        resource.getrusage(who).ru_utime + resource.getrusage(who).ru_stime
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )


def first_call(name, layers, size):
    """Return the processor seconds of a chain's first call, and the number of compilations that its plan predicts."""
    chain = wb.open("residual_chain", layers=layers, size=size, device="cpu", executor="torchcompile")
    chain.choose(policies[name])
    function, args, _ = chain.program.build()
    jitted = chain.config.jit(function)
    start = cpu_s()
    result = jitted(*args)
    seconds = cpu_s() - start
    assert torch.allclose(result, function(*args), atol=1e-4)
    return seconds, chain.plan.counts["compilations"]


torch.set_num_threads(1)
os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()  # an empty cache, without the kernels of an earlier run
measured = {"the patch (weight 0)": {}, "weight 0, cut every 1, shared": {}}
policies["weight 0, cut every 1, shared"] = policies["weight 0, cut every 4, shared"] | {"remat.preset": "every=1"}
predicted = {name: {} for name in measured}
size = 10
for name in measured:
    first_call(name, 1, size)  # does the one-time work of a process; not measured
    for layers in (1, 2, 4):
        size += 1
        measured[name][layers], predicted[name][layers] = first_call(name, layers, size)
Table(
    [
        {
            "measured on the CPU": name,
            **{f"{n} layers, CPU s": round(seconds, 1) for n, seconds in measured[name].items()},
            "compilations predicted": ", ".join(str(count) for count in predicted[name].values()),
        }
        for name in measured
    ]
)

# %%
LinePlot(measured, title="Processor seconds of the first call, measured on the CPU", x="layers", y="s", log=True)

# %% [markdown]
# Points with more layers take minutes each. [docs/benchmarks.md](../../docs/benchmarks.md) has the times of 64 layers
# with gradients in cold processes: 660 s with the patch, 34 s with a cut every 4 and sharing. `python -m pytest
# benchmarks/runs/bench_depth.py -s` measures these times.
#
# ## Take it away

# %%
bench.choose(policies["weight 0, cut every 4, shared"])
text = bench.export("cut_every_4.py").read_text()
print(text)

# %%
print("proven to compute what the stock plan computes:", bench.plan.proof.proven)

# %% [markdown]
# ## For the authors of the issue

# %%
from IPython.display import Markdown

patch, cut = measured["the patch (weight 0)"], measured["weight 0, cut every 1, shared"]
Markdown(f"""
- **It is not a cache that misses:** with the patch {plans["the patch (weight 0)"].census.unique} of {plans["the patch (weight 0)"].census.count} fusions *are* different, the largest
  of {plans["the patch (weight 0)"].census.largest} ops. nvFuser cannot share them.
- **The fix is in the partition.** With a cut every 4 there are {by_k[4][0]} forms at any depth, and compile time hardly grows. Even at 4 layers, with a cut after
  each addition, the first call takes {cut[4]:.1f} s of CPU where the patch takes {patch[4]:.1f} s.
- **Stock Thunder compiles each of its {plans["stock (weight 0.5)"].census.count} fusions,** though they have {plans["stock (weight 0.5)"].census.unique} forms. `sharing.identical=shared` compiles
  {plans["weight 0, cut every 4, shared"].counts["compilations"]} here instead of {plans["weight 0, cut every 4"].counts["compilations"]}.
- Not known here: nvFuser's own seconds. With an attached GPU, `thunder-workbench gpu-check` measures them.
- Reproduce: `make notebooks NAMES=1_compile`; to 64 layers: `python -m pytest benchmarks/runs/bench_depth.py -s`.
""")
