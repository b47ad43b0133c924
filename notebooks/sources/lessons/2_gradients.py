"""The lesson: gradients and the joint trace."""

# %% [markdown]
# # Gradients and the joint trace
#
# A training step has two halves: the forward computes the result, and the backward computes the gradients. Thunder
# makes a trace of each. Each operation has a gradient rule, and the rules of all operations, in reverse order, are the
# backward trace. Values of the forward that the rules need are **saved** until the rules run. In a large model, these
# values take much of the GPU's memory.
#
# *Half an hour, no GPU. You know: the chain rule, and how to read a trace (lesson 1). You will be able to: say which
# values a forward saves, and why, and write a function so that it saves fewer.*
#
# In each part you **predict** first, and lock your prediction in. After that, the notebook asks the workbench.
# The workbench traces your programs to check your answers, so anything that works is right.

# %%
import torch

import workbench as wb
from workbench import lessons
from workbench.lessons import gradients as lesson

# %% [markdown]
# ## An example
#
# The forward runs down the left side of the **U**, and each backward statement is beside the forward statement whose
# gradient it computes. An arc is a value that is saved.


# %%
def example(x):
    return torch.exp(torch.exp(x)).sum()


x = torch.randn(8, 16, requires_grad=True)
lessons.picture(wb.open(example, x).plan, "exp(exp(x))")

# %% [markdown]
# The derivative of the exponential is the exponential itself: the rule needs the *result*. Both results are therefore
# saved, and `x` is not.
#
# ## Predict


# %%
def program(x, w):
    a = torch.sin(x)
    b = torch.tanh(a)
    c = b + a
    return (c @ w).sum()


w = torch.randn(16, 16, requires_grad=True)
bench = wb.open(program, x, w)
q1 = lesson.saved(bench)
q1

# %%
q1.reveal()

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# q1.lock("x", "w", "b", "c")
# ```
#
# The rule of the sine needs its input, that of tanh its result, that of the product both factors, and that of a sum
# nothing.
# </details>
#
# Now the statements of the backward.

# %%
q2 = lesson.sums(bench)
q2

# %% [markdown]
# ## See

# %%
q2.reveal()

# %%
q2.see(lambda: lessons.picture(bench.plan, "the program, forward and backward"))

# %%
q2.see(lambda: lessons.trace(bench.plan))

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# q2.lock(1)
# ```
#
# `a` is read by tanh and by the sum. Each of the two readers gives a gradient of `a`, and the two gradients are added.
# </details>
#
# ## Act: nothing to save

# %%
e1 = lesson.nothing_saved((x,))
e1


# %%
def mine(x):
    return torch.tanh(x * 2 + 1).sum()


e1.check(...)  # e1.check(mine)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Some functions have the same derivative everywhere.
# </details>
# <details><summary>Solution</summary>
#
# ```python
# e1.check(lambda x: (x * 2 + 3 - x).sum())
# ```
#
# Sums, and products with constants, have the same derivative everywhere.
# </details>
#
# ## Act: the same function, less to save


# %%
def logistic(x):
    y = torch.exp(x)
    return (y / (1 + y)).sum()


e2 = lesson.saved_less(logistic, (x,))
e2

# %%
e2.check(...)  # a function of x

# %% [markdown]
# <details><summary>Hint</summary>
#
# `y / (1 + y)` is half of: one plus the hyperbolic tangent of something.
# </details>
# <details><summary>Solution</summary>
#
# ```python
# e2.check(lambda x: (torch.tanh(x / 2) / 2 + 0.5).sum())
# ```
#
# tanh saves its result. Products with constants and a sum save nothing.
# </details>
#
# ## Reflect
#
# - `torch.sin` saves its input. Could it save its result instead?
# - A compiler could search for the form of a function that saves the fewest values. What makes this search hard?
#
# <details><summary>What we think</summary>
#
# The sine gives the cosine only up to its sign. A rule that saves the result needs a function that can be inverted.
#
# Two forms of a function are equal on paper, but not in floating point: the compiler would change your numbers. The
# workbench offers only changes that compute the same function, such as computing *the same* value again instead of
# saving it (lesson 6).
# </details>
