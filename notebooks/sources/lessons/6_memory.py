"""The lesson: recomputation and memory."""

# %% [markdown]
# # Recomputation and memory
#
# The forward keeps more for the backward with every layer. A value can also be recomputed when the backward needs it:
# less memory, more arithmetic. The choice of values is not simple, because recomputation needs something to start from.
#
# *Half an hour, no GPU. You know: which values a forward keeps, and why (lesson 2). You will be able to: meet a given
# peak, and say its cost.*
#
# In each part you **predict** first, and lock your prediction in. After that, the notebook asks the workbench.
# The workbench plans your choices to check your answers, so anything that works is right. All memory here is
# predicted, by arithmetic on the trace.

# %%
import torch

import workbench as wb
from workbench import lessons
from workbench.lessons import recomputing as lesson

# %% [markdown]
# ## The program

# %%
LAYERS = 6


def program(x, w):
    for _ in range(LAYERS):
        x = torch.sin(torch.exp(torch.tanh(x @ w)))
    return x.sum()


x, w = torch.randn(256, 64), torch.randn(64, 64, requires_grad=True)
bench = wb.open(program, x, w)

# %% [markdown]
# ## Predict

# %%
q1 = lesson.kept(bench, LAYERS)
q1

# %%
q1.reveal()

# %%
q1.see(lambda: lessons.picture(bench.plan, "what is kept, as arcs"))

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# q1.lock(17)
# ```
#
# tanh and exp keep their results: twelve values in six layers. The sine keeps its input, which is the result of exp and
# is already counted. A product keeps its input. In five layers, this is the sine of the layer before; in the first
# layer, it is the argument `x`, which is not counted.
# </details>

# %%
q2 = lesson.expensive(bench)
q2

# %%
q2.reveal()

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# q2.lock("tanh")
# ```
#
# The result of exp is computed from that of tanh, and the result of the sine from that of exp. The result of tanh is
# computed from the product.
# </details>
#
# Now the other extreme: keep nothing at all.

# %%
q3 = lesson.peak_of_everything(bench)
q3

# %% [markdown]
# ## See

# %%
q3.reveal()

# %%
q3.see(lambda: bench.effect(lesson.everything(bench)))

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# q3.lock("does not fall")
# ```
#
# Saved bytes fall to nothing, and the peak does not fall. The peak moves from the end of the forward to the start of
# the backward.
# </details>
#
# ## Act: meet a peak
#
# Each value has a site. `bench.effects(id)` shows the effect of each option on the whole plan, and
# `lesson.everything(bench)` returns the choices that recompute all values. The ids of the sites are:

# %%
[site.id for site in bench.sites("saved") if ":" in site.id]

# %%
e1 = lesson.lower(bench)
e1

# %%
choices = {"saved:program/tanh": "recompute"}

e1.check(...)  # e1.check(choices)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Keep one value in every second layer, and recompute the rest from it.
# </details>
# <details><summary>Solution</summary>
#
# ```python
# choices = lesson.everything(bench)
# for layer in (1, 3):
#     del choices[f"saved:program/sin.{layer}"]
# e1.check(choices)
# ```
#
# The two kept values are called checkpoints. When the backward reaches the layers after a checkpoint, it recomputes
# these layers from the checkpoint.
# </details>
#
# ## Act: without repeated products

# %%
e2 = lesson.lower_and_cheap(bench)
e2

# %%
e2.check(...)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# e2.check({id: option for id, option in lesson.everything(bench).items() if "/tanh" not in id})
# ```
#
# Every layer keeps the result of tanh, and every other value is one or two cheap steps from this result. This is called
# *selective* recomputation.
# </details>
#
# ## Reflect
#
# - Checkpoints kept fewer values than the selective choice, but the peaks are about equal. Where is the memory in each
#   case?
# - Matrix products take most of the time of a model, and its peak is limited. Which of your two answers would you take?
#
# <details><summary>What we think</summary>
#
# With checkpoints, the recomputed values of several layers take the memory. With the selective choice, the kept values
# take it.
#
# The selective choice, because it repeats no matrix product. If its peak is too high, checkpoints can lower the peak
# further. Open the app on the bench (`bench` in a cell of its own), double-click arcs, and watch the curve in the tab
# *Memory*.
# </details>
