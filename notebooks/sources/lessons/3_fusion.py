"""The lesson: fusion and partitioning."""

# %% [markdown]
# # Fusion and partitioning
#
# A GPU spends most of its time on reading and writing memory, not on arithmetic. A compiler therefore runs
# neighbouring operations as one **fusion**: one kernel that reads its inputs once, computes everything, and writes only
# the results that others read. The division of the trace into fusions is its **partition**.
#
# *Half an hour, no GPU. You know: how to read a trace (lesson 1). You will be able to: say where fusions begin and end,
# and how many different fusions have to be compiled.*
#
# In each part you **predict** first, and lock your prediction in. After that, the notebook asks the workbench.
# The workbench plans your choices and your programs to check your answers, so anything that works is right.

# %%
import torch

import workbench as wb
from workbench import lessons
from workbench.lessons import fusing as lesson

# %% [markdown]
# ## An example
#
# Every elementwise operation can be in a fusion. A matrix product has specialized kernels and stays outside.
# `torchcompile` is the executor that makes fusions on a CPU; here they are only planned, and nothing is compiled.


# %%
def example(x, w):
    return torch.tanh(x @ w) * 2 + 1


x, w = torch.randn(64, 64), torch.randn(64, 64)
lessons.picture(wb.open(example, x, w, executor="torchcompile").plan, "one product, one fusion")

# %% [markdown]
# ## Predict


# %%
def program(x, w):
    a = torch.sin(x)
    b = torch.exp(a)
    m = b @ w
    c = torch.cos(x)
    return (c + m) * x


bench = wb.open(program, x, w, executor="torchcompile")
q1 = lesson.count(bench)
q1

# %%
q1.reveal()

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# q1.lock(2)
# ```
#
# One fusion is before the product, and one is after it.
# </details>

# %%
q2 = lesson.second(bench)
q2

# %% [markdown]
# ## See

# %%
q2.reveal()

# %%
q2.see(lambda: lessons.picture(bench.plan, "two fusions"))

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# q2.lock("cos", "add", "mul")
# ```
#
# The cosine could run in either fusion. In the second fusion, its result is neither written to memory nor read from it.
# </details>
#
# ## Predict: equal fusions
#
# Models are made of equal blocks. Here are six:


# %%
def blocks(x, w):
    for _ in range(6):
        x = torch.tanh(x) * 2 @ w + x
    return x


many = wb.open(blocks, x, w, executor="torchcompile")
many.plan.census.count  # fusions

# %%
q3 = lesson.alike(many)
q3

# %%
q3.reveal()

# %%
q3.see(lambda: [fusion.holds for fusion in lesson.fusions(many.plan)])

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# q3.lock(3)
# ```
#
# The first fusion has the start of a block, the last fusion has the end of a block, and each fusion between them has
# the end of one block and the start of the next.
# </details>
#
# ## Act: compile each once
#
# Thunder compiles every fusion, equal ones too:

# %%
many.plan.counts["compilations"]

# %%
e1 = lesson.compiled_once(many)
e1

# %%
e1.check(...)  # a dict of site to option

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# e1.check({"sharing.identical": "shared"})
# ```
#
# Then only three fusions are compiled, however many blocks there are.
# </details>
#
# ## Act: one fusion

# %%
e2 = lesson.one_fusion((x, w))
e2


# %%
def mine(x, w):
    return torch.relu(torch.tanh(x) @ w) + x


e2.check(...)  # e2.check(mine)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# e2.check(lambda x, w: torch.exp(torch.cos(torch.sin(x))) @ w)
# ```
#
# All other operations are before the product.
# </details>
#
# ## Reflect
#
# - Two operations that could be in one fusion are not always faster in one fusion. Name a reason.
# - The plan says how many fusions there are, but not how long each fusion takes. How would you find out?
#
# <details><summary>What we think</summary>
#
# A large kernel needs more registers, so fewer of its threads run at once. Lesson 4 is about another reason: values
# that two fusions both need.
#
# Run the plan: `bench.run(wait=True)` compiles and measures. On a CPU a run needs a C++ compiler and some seconds for
# each fusion, so this lesson leaves the run out.
# </details>
