"""The lesson: collectives and overlap."""

# %% [markdown]
# # Collectives and overlap
#
# A model that does not fit on one GPU is shared among several GPUs, the ranks. Each rank has a part of every weight,
# and gathers the complete weight from the other ranks when it needs this weight. Sending takes time. But a GPU can send
# and compute at once, so communication costs nothing while there is something to compute. Two positions in the trace
# decide how much communication is hidden: where a collective is **issued**, and where its result is **waited** for.
#
# *Half an hour, no GPU, and no other ranks: you plan rank 0 of eight, and the streams are simulated. You
# know: how to read a trace (lesson 1). You will be able to: say why communication is exposed, and hide it.*
#
# In each part you **predict** first, and lock your prediction in. After that, the notebook asks the workbench.
# The workbench plans and simulates your choices to check your answers, so anything that works is right. All times
# here are simulated, at the published rates of a machine.

# %%
import torch

import workbench as wb
from workbench import lessons
from workbench.lessons import overlapping as lesson

# %% [markdown]
# ## The program


# %%
class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.mix, self.down = (torch.nn.Linear(1024, 1024, bias=False) for _ in range(3))

    def forward(self, x):
        return self.down(torch.tanh(self.mix(torch.tanh(self.up(x))))).sum()


bench = wb.open(Layers(), torch.randn(2048, 1024), ranks=8, parallel="fsdp")
bench.machine.source

# %% [markdown]
# The forward gathers each weight: it issues an `all_gather`, and waits for the result (`wait`). The backward adds up
# each gradient over the ranks, and gives each rank its part of the sum: it issues a `reduce_scatter`, and waits for the
# result.
#
# ## Predict

# %%
q1 = lesson.issued_first(bench)
q1

# %%
q1.reveal()

# %%
q1.see(lambda: lessons.Text("\n".join(lessons.trace(bench.plan).splitlines()[:22])))

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# q1.lock("down")
# ```
#
# The gathers are in the order of the parameters' names. All waits are also before the first layer.
# </details>
#
# These choices change where collectives are issued or waited for: `{"waits.wait": "late"}`, `{"waits.issue":
# "consumer"}`, both of these two, or `{"waits.gradients": "earliest"}`.

# %%
q2 = lesson.what_helps(bench)
q2

# %% [markdown]
# ## See

# %%
q2.reveal()

# %%
q2.see(
    lambda: {
        name: f"{1e6 * bench.overlap(bench.plan_under(choices)).simulation.step_s:.0f} µs, simulated"
        for name, choices in {
            "stock": {},
            "late": lesson.LATE,
            "consumer": lesson.CONSUMER,
            "both": {**lesson.LATE, **lesson.CONSUMER},
            "gradients": lesson.EARLIEST,
        }.items()
    }
)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# q2.lock("both", "gradients")
# ```
#
# In the forward, the order of the gathers and the positions of the waits must change together.
# </details>
#
# ## Act: hide it

# %%
e1 = lesson.hidden(bench)
e1

# %%
e1.check(...)  # a dict of setting to option

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# e1.check({"waits.issue": "consumer", "waits.wait": "late", "waits.gradients": "earliest"})
# ```
#
# The first gather and the last reduction stay exposed, because there is nothing to compute before the first gather and
# after the last reduction.
# </details>
#
# ## Act: hide it with little memory

# %%
e2 = lesson.few_in_flight(bench)
e2

# %%
e2.check(...)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `bench.site("waits.issue").range` says which numbers are legal.
# </details>
# <details><summary>Solution</summary>
#
# ```python
# e2.check({"waits.issue": "in_flight(1)", "waits.wait": "late", "waits.gradients": "earliest"})
# ```
#
# While a layer computes, only the weight of the next layer is in flight.
# </details>
#
# ## Reflect
#
# - In which program is the first gather hidden too?
# - The simulation uses published rates and no contention. Which of your conclusions hold anyway, and which would you
#   measure?
#
# <details><summary>What we think</summary>
#
# In a program that computes something before it needs the first weight. An example is a second step, if its gathers may
# begin during the first step.
#
# The conclusion about the order holds: gather first the weight that is needed first. Measure the gain by a run on the
# target machine.
# </details>
