"""Story 2: copies in Adam and SGD; Lightning Thunder's issue 1173."""

# %% [markdown]
# # 2 · Copies in Adam and SGD
#
# **Reported** in Lightning Thunder's issue [1173](https://github.com/Lightning-AI/lightning-thunder/issues/1173): pull request 1110 puts an nvFuser `set` before
# every in-place copy, and a compiled `Adam.step` takes nearly twice as long.
#
# | | compilation, s | execution, ms |
# |---|--:|--:|
# | eager | 0.0 | 10.87 |
# | `torch.compile(adam.step)` | 21.0 | 5.83 |
# | with Thunder as backend | 95.0 | 11.59 |
# | with Thunder, 1110 reverted | 46.0 | 6.24 |
#
# The thread proposes a `set` only where user code calls `copy_`. A second, more general proposal tracks returned values,
# and adds a `set` only where results would be wrong without it.
#
# The fusions for nvFuser are **planned** for a GPU that is not attached: their definitions are built and counted, and
# nothing runs. The same question for torch.compile's regions is **measured on the CPU**. The notebook takes about a
# minute and a half on two free cores, and less than 2 GB of memory. JupyterLab draws the stored pictures after you
# trust the notebook (command *Trust Notebook*) or run it.

# %%
import workbench as wb
from workbench.ui.html_pages.notebook_tables import Table

adam = wb.open("torch_adam", parameters=2, device="planned", executor="nvfuser")
sgd = wb.open("torch_sgd", parameters=2, device="planned", executor="nvfuser")
print(adam)

# %% [markdown]
# ## Seen on the graph
#
# The graph is one step of the real `torch.optim.Adam`, as Dynamo captures it. Each in-place write is a `copy_` with a
# fence before it. No fusion can contain a fence, so the fences cut the step into many fusions. The fences were added
# after the issue was written, and now matter more than the `set`s.

# %%
adam

# %% [markdown]
# ## The choices
#
# `copies.policy` decides which copies get a `set`. `copies.fences` decides whether a fence is kept if no view shares the
# memory of its arguments. An option that would change a result is refused with the reason, site by site.

# %%
policies = {
    "stock: a set on every copy": {},
    "no set (1110 reverted)": {"copies.policy": "never"},
    "a set only where user code calls copy_": {"copies.policy": "direct_only"},
    "a set only where it is needed": {"copies.policy": "alias_aware"},
    "fences dropped": {"copies.fences": "drop"},
    "fences dropped, sets where needed": {"copies.fences": "drop", "copies.policy": "alias_aware"},
}
counts = {
    name: {
        each: (plan.counts["sets"], plan.counts["fences"], plan.census.count)
        for each, bench in (("Adam", adam), ("SGD", sgd))
        for plan in (bench.plan_under(choices),)
    }
    for name, choices in policies.items()
}
Table(
    [
        {
            "planned, 2 parameters": name,
            **{
                f"{each} {what}": figure
                for each, figures in row.items()
                for what, figure in zip(("sets", "fences", "fusions"), figures, strict=True)
            },
        }
        for name, row in counts.items()
    ]
)

# %% [markdown]
# ## Why not always without a set
#
# nvFuser writes an output into an input's memory by an alias, with at most one alias for each value. If a value is
# copied into two inputs, one of the two updates is silently lost. Fences prevent this, because they put the two copies
# into two fusions. Without fences the workbench requires the `set`:

# %%
exhibit = wb.open("two_destinations", device="planned", executor="nvfuser")
exhibit.choose({"copies.fences": "drop"})
for site in exhibit.sites("copies"):
    for option, reason in site.illegal.items():
        print(f"{site.id}: {option} is refused\n  {reason}")

# %% [markdown]
# ## Predicted, then measured
#
# nvFuser needs a GPU. For torch.compile's regions, the same question arises on a CPU: do copies run **inside** of one
# region, or **outside**, where they cut the step into several regions? The number of regions is predicted. The step
# times are measured; the steps of both variants are interleaved in one process.

# %%
from workbench.runs.process.request import RunOptions

outside = {"copies.region": "out"}
step = wb.open("torch_adam", parameters=2, size=256, device="cpu", executor="torchcompile")
regions = {"inside": step.plan.census.count, "outside": step.plan_under(outside).census.count}
run = step.run(
    wait=True,
    options=RunOptions(samples=100, threads=1, clocks=False, measure_peak=False),
    against={"outside": outside},
)
beside = run.against["outside"]
Table(
    [
        {
            "copies": "inside",
            "regions, predicted": regions["inside"],
            "step measured on the CPU, ms": round(1e3 * run.step_s, 3),
        },
        {
            "copies": "outside",
            "regions, predicted": regions["outside"],
            "step measured on the CPU, ms": round(1e3 * beside["step_s"], 3),
        },
    ]
)

# %%
print(
    f"outside takes {beside['ratio']:.2f} times as long (95 % interval {beside['low']:.2f} to {beside['high']:.2f}): {beside['verdict']}"
)
print("equal to unmodified Thunder within the tolerance:", run.accuracy.ok)

# %% [markdown]
# ## Take it away

# %%
adam.choose(policies["fences dropped, sets where needed"])
print(adam.export("adam.py").read_text())
print("proven to compute what the stock plan computes:", adam.plan.proof.proven)

# %% [markdown]
# ## For the authors of the issue

# %%
from IPython.display import Markdown

before, after = counts["stock: a set on every copy"], counts["fences dropped, sets where needed"]
Markdown(f"""
- **Your last idea is the right one.** A `set` only where a value is an input of the fusion, is returned too, or is already aliased, leaves {after["Adam"][0]}
  of Adam's {before["Adam"][0]} sets, and refuses no correct program. "Only plain `copy_`" is as good for optimizers, and
  loses updates if one value goes to two places without a fence between.
- **Today the fences cost more than the sets.** Without the fences that protect nothing, Adam is {after["Adam"][2]} fusion instead of {before["Adam"][2]}, SGD
  {after["SGD"][2]} instead of {before["SGD"][2]}.
- **Thunder's own switch is not the way:** `skip_inplace_alias_updates=True` drops all fences and loses updates through views; see docs/explanation/copies.md.
- **On a CPU** cutting the step into {regions["outside"]} regions takes {beside["ratio"]:.1f} times as long as one region. Your GPU figures, 11.59 and 6.24 ms, were
  taken before there were fences: `thunder-workbench gpu-check` measures them again on an attached GPU.
- Reproduce: `make notebooks NAMES=2_optimizer`, and the table of policies case by case: `python -m pytest tests/nvfuser/test_set_nodes.py -k table`.
""")
