"""Story 5: saved tensors of a long-context model; Lightning Thunder's issue 871."""

# %% [markdown]
# # 5 · Saved tensors of a long-context model
#
# **Reported** in Lightning Thunder's issue [871](https://github.com/Lightning-AI/lightning-thunder/issues/871), *Recomputation of saved for backward
# tensors*. For LitGPT's `longchat-7b-16k` compiled with Thunder, what is saved for the backward grows with every layer and is
# **67 % of the total memory**. The thread asks for tools to do something about it *by hand* first, and leaves two things open:
#
# - put recomputation in **before fusion** (the author's preference, though its effect "is difficult to estimate" there) or **after**;
# - whether matrix products are better **offloaded** to the CPU than computed again.
#
# Everything at 7B shapes is **planned** for a GPU that is not there: predicted by arithmetic on the plan, nothing runs. The small model at the
# end is **measured on the CPU**. About two minutes on two free cores, 2 GB.
# JupyterLab draws the pictures that are kept here once the notebook is trusted (*Trust Notebook* among its commands) or run.

# %%
import workbench as wb
from workbench.ui.pages.notebook_tables import Lines, Table

shapes = {"dim": 4096, "heads": 32, "hidden": 11008, "vocab": 32000, "batch": 1, "sequence": 16384, "dtype": "bfloat16"}
benches = {
    layers: wb.open("llama", device="planned", executor="nvfuser", settings={**shapes, "layers": layers})
    for layers in (2, 3)
}


def full(figure, plans):
    """A figure at 32 layers, on the line through 2 and 3: layers are alike."""
    two, three = (figure(plans[layers]) for layers in (2, 3))
    return two + 30 * (three - two)


stock = {layers: bench.plan for layers, bench in benches.items()}
saved_gb = {n: stock[n].saved_bytes / 1e9 for n in stock} | {32: full(lambda plan: plan.saved_bytes, stock) / 1e9}
peak_gb = {n: stock[n].peak_bytes / 1e9 for n in stock} | {32: full(lambda plan: plan.peak_bytes, stock) / 1e9}
Table(
    [
        {
            "layers": n,
            "saved GB": round(saved_gb[n], 2),
            "peak GB": round(peak_gb[n], 2),
            "saved, % of the peak": round(100 * saved_gb[n] / peak_gb[n]),
        }
        for n in saved_gb
    ]
)

# %%
Lines(
    {"peak": peak_gb, "saved for the backward": saved_gb},
    title="Saved bytes against layers, planned: 7B shapes, 16,384 tokens, bf16",
    x="layers (32: on the line through 2 and 3)",
    y="GB",
    limits={"80 GB": 80},
)

# %% [markdown]
# The reported line. Peaks count parameters, inputs and gradients, and no optimizer, so the share is ours and not theirs. Without an optimizer the 32
# layers already need more than 80 GB.
#
# ## Where it comes from
#
# Forward statements run down the left, the backward up the right, and each arc is a tensor kept from one side to the other. Green is saved. What
# is dashed, nvFuser's rematerialization recomputes already. Statements inside a purple box are one fusion.

# %%
bench = benches[2]
bench

# %% [markdown]
# What is left of one layer, largest first:

# %%
kept = [site for site in bench.sites("saved") if "layers.0." in site.id and site.outcome == "save" and site.bytes > 1e6]
Table([{"saved": s.label, "MB": round(s.bytes / 1e6)} for s in sorted(kept, key=lambda s: -s.bytes)])

# %% [markdown]
# ## Two ways to recompute, and offloading
#
# Elementwise work (norms, rotary embedding, SwiGLU) is cheap to repeat. Matrix products and attention are not, so they can be
# kept, offloaded, or repeated as well. `saved.stage` says where recomputation is put in.


# %%
def policies(bench):
    """Choices by name, for as many layers as the bench has."""
    sites = [site for site in bench.sites("saved") if "layers." in site.id and site.bytes > 1e6]
    products = [site.id for site in sites if "linear" in site.id]
    cheap = [site.id for site in sites if "linear" not in site.id and "scaled_dot_product" not in site.id]
    repeat = dict.fromkeys(cheap, "recompute")
    after = {"saved.stage": "after_fusion"}
    return {
        "stock": {},
        "elementwise, before fusion": repeat,
        "elementwise, after fusion": repeat | after,
        "and matrix products, after fusion": repeat | dict.fromkeys(products, "recompute") | after,
        "and matrix products offloaded": repeat | dict.fromkeys(products, "offload") | after,
    }


names = list(policies(bench))
planned = {name: {n: benches[n].plan_under(policies(benches[n])[name]) for n in benches} for name in names}
figures = {
    name: {
        "peak_gb": full(lambda plan: plan.peak_bytes, plans) / 1e9,
        "saved_gb": full(lambda plan: plan.saved_bytes, plans) / 1e9,
        "again_tflop": full(lambda plan: plan.flops, plans) / 1e12 - full(lambda plan: plan.flops, stock) / 1e12,
        "copy_s": full(lambda plan: plan.counts["offload_us"], plans) / 1e6,
    }
    for name, plans in planned.items()
}
Table(
    [
        {
            "32 layers, planned": name,
            "peak GB": round(f["peak_gb"], 1),
            "saved GB": round(f["saved_gb"], 1),
            "computed again, TFLOP": round(f["again_tflop"]),
            "copied to the CPU and back, s": round(f["copy_s"], 2),
            "in 80 GB": "yes" if f["peak_gb"] <= 80 else "no",
        }
        for name, f in figures.items()
    ]
)

# %% [markdown]
# **Before fusion the saved bytes fall by two thirds, and the peak by a fifth.** This is the estimate that the author missed. What is alive at that
# peak, by statement: what the backward computes again lies beside what is still saved.

# %%
alive = planned["elementwise, before fusion"][3].alive_at_peak()
by_statement = {}
for value in alive:
    by_statement[value["name"]] = by_statement.get(value["name"], 0) + value["bytes"]
largest = sorted(by_statement.items(), key=lambda item: -item[1])[:6]
Table([{"alive at the peak, 3 layers": name or "arguments", "GB": round(size / 1e9, 2)} for name, size in largest])

# %% [markdown]
# **After fusion** a whole fusion is repeated right where the backward needs it, and hands out what it did in the forward. That alone meets the
# stated peak of 80 GB, and repeats no product: what is a view of one, as the slices of the projection that attention reads, keeps all of it and
# stays saved.
#
# ## The same peak, chosen by `fit`
#
# `bench.fit` is given a peak and chooses save, recompute or offload for each tensor, for the least time. What the choice by hand reaches with two layers
# is the peak that it is asked for. Steps are **predicted** from the published rates of an H100; the fit may leave every choice as any other.

# %%
by_hand = policies(bench)["elementwise, after fusion"]
compared = {}
bench.choose(by_hand)
compared["by hand"] = bench.plan, bench.fit(peak_bytes=bench.plan.peak_bytes).step_s, by_hand
bench.undo()
bench.choose({"saved.stage": "after_fusion"})
fitted = bench.fit(peak_bytes=compared["by hand"][0].peak_bytes)
compared["by fit"] = bench.plan, fitted.step_s, fitted.choices
Table(
    [
        {
            "2 layers, planned": name,
            "peak GB": round(plan.peak_bytes / 1e9, 2),
            "saved GB": round(plan.saved_bytes / 1e9, 2),
            "recomputed": sum(option == "recompute" for option in choices.values()),
            "offloaded": sum(option == "offload" for option in choices.values()),
            "computed again, TFLOP": round((plan.flops - stock[2].flops) / 1e12, 2),
            "step predicted, ms": round(1e3 * step_s, 1),
        }
        for name, (plan, step_s, choices) in compared.items()
    ]
)

# %%
print(fitted)
bench.undo()
bench.undo()

# %% [markdown]
# It says what holds the peak where it now is, what the next GiB less would cost, and the cheapest step each way.
#
# ## Offload a matrix product, or compute it again?
#
# Published peaks of an H100 (989 TFLOP/s in bf16) on the one side, and PCIe as the plan assumes it on the other, for one projection of
# the SwiGLU:

# %%
from workbench.analysis.cost.machines import H100

gate = "saved:layers.0.mlp.gate/linear"
effects = bench.effects(gate)
again_ms = 1e3 * effects["recompute"].flops / H100.flops_per_s["bfloat16"]
copy_ms = effects["offload"].counts["offload_us"] / 1e3
Table(
    [
        {"one gate projection": "compute again", "ms, at published rates": round(again_ms, 2)},
        {"one gate projection": "copy out and back", "ms, at published rates": round(copy_ms, 2)},
    ]
)

# %% [markdown]
# ## Predicted, then measured
#
# The same choice on a small model on the CPU, with PyTorch's own ops. There is nothing to fuse there, so it is a check of the memory
# arithmetic and of the numbers, not of nvFuser. Each run is a process of its own, compared with unmodified Thunder at the same seed.

# %%
from workbench.runs.process.request import RunOptions

small = wb.open("llama", layers=1, dim=128, sequence=256, device="cpu")
before = small.run(wait=True, name="stock", options=RunOptions(samples=3, clocks=False, check_accuracy=False))
sites = [site for site in small.sites("saved") if "layers." in site.id and "recompute" not in site.illegal]
small.choose({s.id: "recompute" for s in sites if "linear" not in s.id and "scaled_dot_product" not in s.id})
after = small.run(wait=True, name="chosen", options=RunOptions(samples=5, clocks=False))
memory = {"stock": before.memory, "elementwise recomputed": after.memory}
Table(
    [
        {
            "measured on the CPU": name,
            "peak predicted MB": round(found["predicted_peak_bytes"] / 1e6, 3),
            "peak measured MB": round(found["measured_peak_bytes"] / 1e6, 3),
        }
        for name, found in memory.items()
    ]
)

# %%
print("bit for bit unmodified Thunder's:", after.accuracy.ok and after.accuracy.bitwise)

# %% [markdown]
# ## Take it away
#
# A config is a Python file of literals. `config.jit(model)` replays it in training code without the workbench's app. Ids are module
# paths, so the choices read like this:

# %%
path = small.export("saved_tensors.py")
lines = path.read_text().splitlines()
print("\n".join([*lines[:24], f"# ... {len(lines) - 24} more lines"]))

# %%
config = wb.load("saved_tensors.py")
model, inputs, _ = small.program.build()
eager_loss, fast_loss = model(*inputs).item(), config.jit(model)(*inputs).item()
print(f"loss of eager PyTorch {eager_loss:.6f}, with the config {fast_loss:.6f}")

# %% [markdown]
# ## What the authors would want to know

# %%
from IPython.display import Markdown

before_fusion, after_fusion = figures["elementwise, before fusion"], figures["elementwise, after fusion"]
Markdown(f"""
- **Before or after fusion?** After. At 32 layers {before_fusion["saved_gb"]:.0f} GB stay saved before fusion and {after_fusion["saved_gb"]:.0f} GB after it, of
  {figures["stock"]["saved_gb"]:.0f}, but the peak is {before_fusion["peak_gb"]:.0f} GB before fusion and
  {after_fusion["peak_gb"]:.0f} GB after it, where stock Thunder needs {figures["stock"]["peak_gb"]:.0f} GB. Saved bytes are
  the wrong measure to choose by.
- **Offload or recompute products?** At 16k tokens recompute: one gate projection takes {again_ms:.1f} ms to repeat and {copy_ms:.1f} ms to copy out and
  back, and {figures["and matrix products offloaded"]["copy_s"]:.1f} s a step would have to hide behind compute for all of them. This is
  of published rates; no GPU was attached.
- **By hand or by search?** Under the peak that the choice by hand reaches with two layers, `fit` finds {1e3 * compared["by fit"][1]:.1f} ms a step instead of
  {1e3 * compared["by hand"][1]:.1f} ms, predicted: it offloads what compute hides, and repeats nothing. At most {100 * fitted.gap:.0f} % are left to be had.
- **What it costs:** {after_fusion["again_tflop"]:.0f} TFLOP more a step, of {full(lambda plan: plan.flops, stock) / 1e12:.0f}. The next
  {after_fusion["peak_gb"] - figures["and matrix products, after fusion"]["peak_gb"]:.0f} GB cost
  {figures["and matrix products, after fusion"]["again_tflop"] - after_fusion["again_tflop"]:.0f} TFLOP.
- Reproduce: `make notebooks NAMES=5_saved_tensors`, or one plan alone:
  `thunder-workbench plan llama --device planned --executor nvfuser --set layers=2 --set dim=4096 --set heads=32
  --set hidden=11008 --set vocab=32000 --set batch=1 --set sequence=16384 --set dtype=bfloat16`.
""")
