"""The lesson: aliasing and writes in place."""

# %% [markdown]
# # Aliasing and writes in place
#
# Two names for the same memory are **aliases**. Without writes they do no harm. With a write, the order of reads and
# writes is part of the meaning of the program. A compiler that reorders operations must know every alias, or it
# computes something else. Such bugs are hard to find, because nothing fails.
#
# *Half an hour, no GPU. You know: how to read a trace (lesson 1), what a fusion is (lesson 3). You will be able to: say
# which values a write changes, and which copies may run inside a fusion.*
#
# In each part you **predict** first, and lock your prediction in. After that, the notebook asks the workbench.
# The workbench plans and runs your programs to check your answers, so anything that works is right.

# %%
import torch

import workbench as wb
from workbench import lessons
from workbench.lessons import aliasing as lesson

# %% [markdown]
# ## An example
#
# A write in place becomes two statements in the trace: one computes the new content, and `copy_` puts it into the old
# memory. A **fence**, `update_aliases`, says that the memory of its arguments may have been written. Later statements
# read the results of the fence, which have the current content of this memory.


# %%
def example(a):
    a.add_(1)
    return a.sum()


lessons.trace(wb.open(example, torch.zeros(4)).plan)

# %% [markdown]
# ## Predict: which values does a write change?


# %%
def doubled(a):
    r = a.reshape(-1)
    c = a.clone()
    t = a.t()
    s = a + 1
    r.mul_(2)
    return c.sum() + t.sum() + s.sum()


views = wb.open(doubled, torch.randn(4, 4))
q1 = lesson.sees_the_write(views)
q1

# %%
q1.reveal()

# %%
q1.see(lambda: lessons.trace(views.plan))

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# q1.lock("r", "t")
# ```
#
# Views share one memory. The arguments of the fences are the values that share this memory.
# </details>
#
# ## Predict: a swap


# %%
def swap(a, b):
    t = a + torch.zeros_like(a)
    a.copy_(b)
    b.copy_(t)


a, b = torch.randn(8), torch.randn(8)
plain = wb.open(swap, a, b)
q2 = lesson.ends_with(plain)
q2

# %%
q2.reveal()

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# q2.lock("what a held")
# ```
#
# The program swaps the two tensors. But a compiler may drop a sum with zeros, because the sum does not change the
# numbers. Then `t` is `a` itself.
# </details>
#
# The compiler behind `torch.compile` does drop this sum. If the whole swap is one region, `b` ends with its own old
# content. The workbench therefore checks each copy:

# %%
bench = wb.open(swap, a, b, executor="torchcompile")
q3 = lesson.inside(bench)
q3

# %% [markdown]
# ## See

# %%
q3.reveal()

# %%
q3.see(lambda: lessons.trace(bench.plan))

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# q3.lock(1)
# ```
#
# The first copy may run in the region. The second copy must run after the region: it is the `copy_` below the region.
# </details>
#
# ## Act: which, and why?

# %%
e1 = lesson.kept_out(bench)
e1

# %%
e1.check(...)  # a site's id

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# e1.check("copies:swap/copy_.1")
# ```
#
# If two statements of one function have the same name, the id of the second has `.1` after this name.
# </details>
#
# ## Act: a swap that cannot be misread

# %%
e2 = lesson.swapped(swap, (a, b))
e2


# %%
def mine(a, b):
    t = a.clone()
    a.copy_(b)
    b.copy_(t)


e2.check(...)  # e2.check(mine)

# %% [markdown]
# <details><summary>Hint</summary>
#
# A clone moves data and computes nothing, so a compiler can drop it too. It cannot drop an operation that changes the
# numbers. How do you get the old numbers back? Which of the two copies needs that?
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def mine(a, b):
#     t, u = a * 2, b * 2
#     a.copy_(u / 2)
#     b.copy_(t / 2)
#
#
# e2.check(mine)
# ```
#
# A number that is doubled and halved is the same number, to the last bit. Both copies need this trick, because each
# copy overwrites the tensor that the other copy reads. Outside of an exercise, keep the clone: the workbench then runs
# one copy outside of the region (option `out` at the copy's site `copies:…`).
# </details>
#
# ## Reflect
#
# - Why is such a wrong result worse than a crash?
# - The workbench asks for each value "does its operation certainly compute something new?", and not "does the compiler
#   drop it?". Why?
#
# <details><summary>What we think</summary>
#
# Training continues, and weeks later it converges worse or not at all.
#
# The list of operations that the compiler drops is not documented and may grow with every release. The list of
# operations that certainly compute new values changes far less. In doubt, the copy stays outside of the region: the
# program is slower, and right.
# </details>
