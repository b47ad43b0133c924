"""The lesson: reading a trace."""

# %% [markdown]
# # Reading a trace
#
# A compiler does not work on your Python. It works on a **trace**: a list of statements, one operation each, without
# branches, calls or objects. The later lessons all change a trace, so first you learn to read one.
#
# *Half an hour, no GPU. You know: PyTorch. You will be able to: find a line of your program in the trace, say where a
# value is stored, and say when its memory is freed.*
#
# In each part you **predict** first, and lock your prediction in. After that, the notebook asks the workbench.
# The workbench traces your programs to check your answers, so anything that works is right.

# %%
import torch

import workbench as wb
from workbench import lessons
from workbench.lessons import reading as lesson

# %% [markdown]
# ## An example
#
# Two lines, and the trace that Thunder makes of them. A comment above statements is your line. A comment after a
# statement has the type and shape of the result. `del` drops a name that is no longer needed.


# %%
def example(x):
    y = torch.exp(x)
    return y / (1 + y)


lessons.trace(wb.open(example, torch.randn(8, 16)).plan)

# %% [markdown]
# Two lines became three statements. Now a program of four lines.
#
# ## Predict


# %%
def program(x, w):
    h = torch.tanh(x @ w)
    r = h.reshape(-1)
    z = h * 2 + h
    return torch.softmax(z, -1), r.sum()


x, w = torch.randn(8, 16), torch.randn(16, 16)
bench = wb.open(program, x, w)
q1 = lesson.statements(bench)
q1

# %%
q1.reveal()

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# q1.lock(7)
# ```
#
# A matrix product, tanh, a reshape, a product, a sum of two tensors, a softmax, and a sum over all elements.
# </details>
#
# Each value has memory, and several values may share the same memory.

# %%
q2 = lesson.shares_memory(bench)
q2

# %%
q2.reveal()

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# q2.lock("r")
# ```
#
# The reshape computes nothing: `r` is a view of `h`. Every other statement makes a new tensor.
# </details>
#
# Now the lifetime of that memory.

# %%
q3 = lesson.given_back(bench)
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
# q3.lock("sum")
# ```
#
# The sum over all elements reads `r`, which shares the memory of `h`. After this sum, no name refers to that memory.
# </details>
#
# ## Act: find a value

# %%
e1 = lesson.holding(bench)
e1

# %%
e1.check(...)  # a name in the trace, such as "t0"

# %% [markdown]
# <details><summary>Hint</summary>
#
# `bench.plan.graph.values.name` lists all names, and the trace above shows the statement that makes each.
# </details>
# <details><summary>Solution</summary>
#
# ```python
# graph = bench.plan.graph
# (add,) = (row for row, name in enumerate(graph.statements.name) if name == "torch.add")
# e1.check(graph.values.name[graph.statements.outputs[add][0]])
# ```
#
# Or read it off the trace: the second statement below `z = h * 2 + h`.
# </details>
#
# ## Act: a shorter program
#
# The trace computes what your program says. Thunder does not simplify the arithmetic.

# %%
e2 = lesson.shorter(program, (x, w))
e2


# %%
def mine(x, w):
    h = torch.tanh(x @ w)
    r = h.reshape(-1)
    z = h * 2 + h
    return torch.softmax(z, -1), r.sum()


e2.check(...)  # e2.check(mine)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def mine(x, w):
#     h = torch.tanh(x @ w)
#     return torch.softmax(h * 3, -1), h.sum()
#
#
# e2.check(mine)
# ```
#
# `h * 2 + h` is `h * 3`. The sum does not depend on the shape, so the reshape goes too: two statements less.
# </details>
#
# ## Reflect
#
# - The trace has no `if`. What happened to a branch of your program, if it had one?
# - Why are names deleted as early as possible? If names were deleted later, what would happen to the memory, and when
#   would you notice?
#
# <details><summary>What we think</summary>
#
# The branch was decided during tracing, by the inputs of the tracing. A trace is valid for inputs like these. For other
# inputs, Thunder traces the program again.
#
# If no name were deleted, every value would live until the function returns, and the peak would be the sum of all
# values. Lesson 6 is about the peak.
# </details>
