"""The lesson: rematerialization as a minimum cut."""

# %% [markdown]
# # Rematerialization as a minimum cut
#
# Values cross from one fusion to another. A value that crosses is written to memory and read again. Instead, the
# reading fusion can recompute a value from other values that cross. The cheapest set of crossing values is a minimum
# **cut**, and a compiler finds it with an algorithm for maximum flow.
#
# *Half an hour, no GPU. You know: what a fusion is, and that a matrix product stays outside (lesson 3). You will be
# able to: say which values cross between two fusions and why, and change these values.*
#
# In each part you **predict** first, and lock your prediction in. After that, the notebook asks the workbench.
# The workbench plans your choices and your programs to check your answers, so anything that works is right.

# %%
import torch

import workbench as wb
from workbench import lessons
from workbench.lessons import min_cut as lesson

# %% [markdown]
# ## The program


# %%
def program(x, y, w):
    s = x + y
    a = torch.sin(s)
    b = torch.cos(s)
    m = torch.tanh(s) @ w  # a matrix product: not fused
    return m * a + b


x, y, w = (torch.randn(64, 64) for _ in range(3))
bench = wb.open(program, x, y, w, executor="torchcompile")

# %% [markdown]
# The lines above the matrix product become one fusion, the line below it another. As written, `a` and `b` cross from
# the first to the second. This is the plan with rematerialization switched off:

# %%
lessons.trace(bench.plan_under({"remat.preset": "off"}))

# %% [markdown]
# In the trace, `t2` and `t3` are `a` and `b`: Thunder gives values names of its own.
#
# ## Predict: what crosses?
#
# Thunder may choose *any* set of values that separates the arguments of the first fusion from the needs of the second.
# Such a set is a **cut**; the second fusion recomputes all other values that it needs. Thunder takes a cut with the
# least cost:
#
# - a variable that the first fusion makes costs the bytes of **one of its elements**, 4 for float32, whatever its
#   shape;
# - an argument of the first fusion costs the bytes of one element times the **weight** of arguments. The weight is 0.5
#   by default, because an argument is in memory anyway: it is read, but not written.
#
# Predict the cost of the cut as written.

# %%
q1 = lesson.cost_without(bench)
q1

# %%
q1.reveal()

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# q1.lock(8)
# ```
#
# The cut has two variables, `a` and `b`, and each costs 4 bytes.
# </details>
#
# Now look for a cheaper cut. What will the second fusion read?

# %%
q2 = lesson.handed_over(bench)
q2

# %% [markdown]
# ## See

# %%
q2.reveal()

# %%
q2.see(lambda: lessons.trace(bench.plan))

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# q2.lock("s")
# ```
#
# `s` alone is enough to compute `a` and `b`. The cut `{s}` costs 4, half as much as `{a, b}`. The cut `{x, y}` also
# costs 4: 2 × 4 × 0.5. If two cuts cost the same, Thunder takes the cut that is nearer to the reader.
# </details>
#
# Once your prediction is locked in you may open the app on the same plan (`bench` in a cell of its own) and double-click
# the marks of the second fusion.
#
# ## Act: turn the weight
#
# `remat.weight` is the weight of arguments. Any number from 0 to 1 is legal; `bench.plan_under({"remat.weight":
# "0.3"})` plans with another weight, and does not change the choices of `bench`. Find a weight at which the cut moves.

# %%
e1 = lesson.tipping_point(bench)
e1

# %%
e1.check(...)

# %% [markdown]
# <details><summary>Hint</summary>
#
# At which weight do the two arguments cost as much as `s`?
# </details>
# <details><summary>Solution</summary>
#
# ```python
# e1.check(0.49)
# ```
#
# `{x, y}` costs 8 times the weight and `{s}` costs 4: below a half the arguments win.
# </details>
#
# ## Predict: shapes
#
# The cost counts the bytes of one element, not of the whole tensor. Here is the same program with shapes for which this
# matters:

# %%
column, row = torch.randn(64, 1), torch.randn(1, 64)
small = wb.open(program, column, row, w, executor="torchcompile")
q3 = lesson.small_arguments(small)
q3

# %%
q3.reveal()

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# q3.lock("s")
# ```
#
# The arguments cost 2 × 4 × 0.6, which is more than 4, although they are 32 times smaller than `s`. With a cost that
# counts all elements, the arguments would cross.
# </details>
#
# ## Act: cut by hand
#
# Each variable that crosses in the program as written has a site of its own:

# %%
[(site.id, site.options, site.outcome) for site in bench.sites("remat") if ":" in site.id]

# %%
e2 = lesson.as_written(bench)
e2

# %%
e2.check(...)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# e2.check({"remat:program/sin": "save", "remat:program/cos": "save"})
# ```
#
# A variable that must be saved belongs to every cut, so both variables cross.
# </details>
#
# ## Act: what may not be computed again
#
# Not every variable can be recomputed by another fusion. Write a program with such a variable.

# %%
e3 = lesson.refused((x, y, w))
e3


# %%
def mine(x, y, w):
    s = x + y
    a = torch.sin(s)
    b = torch.cos(s)
    m = torch.tanh(s) @ w
    return m * a + b


e3.check(...)  # e3.check(mine)

# %% [markdown]
# <details><summary>Hint</summary>
#
# A variable is in memory anyway if a statement outside of the fusions reads it. Thunder then never recomputes it. Add
# such a reader.
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def mine(x, y, w):
#     s = x + y
#     a = torch.sin(s)
#     m = torch.tanh(s) @ w + a @ w
#     return m * a
#
#
# e3.check(mine)
# ```
#
# The second matrix product also reads `a`, and this product is outside of the fusions. You can also return `a` from the
# program.
# </details>
#
# ## Reflect
#
# - Thunder cuts between *pairs* of fusions, one pair after another. Take a chain of thirty fusions, where for each pair
#   recomputation is a little cheaper than reading. What may go wrong?
# - Thunder counts bytes per element. Name two things that a better cost would count.
#
# <details><summary>What we think</summary>
#
# Every fusion then repeats the operations of all earlier fusions. No two fusions are equal, and each takes longer to
# compile than the one before. With weight 0 this happens to a chain of residual additions: open
# `wb.open("residual_chain", layers=8, executor="torchcompile")`, choose `remat.weight`, and look at the tab *Program →
# Fusions*.
#
# The size of the tensors, and the cost of recomputing a value: a sine costs more than an addition.
# </details>
