"""Operators of PyTorch's own test database have PyTorch's values and gradients, in all the forms that it lists."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import workbench
from tests.trial_counts import amount
from workbench.errors import ProgramWarning

pytestmark = [pytest.mark.slow, pytest.mark.long]

BATCHES = 16
SAMPLES = {torch.float32: amount(1, 1, 4), torch.int64: amount(1, 1, 2)}
"""For each data type, the number of inputs of an operator that are tried, spread over those that the database lists."""
LEFT_OUT = ("empty", "exponential", "_scaled_mm", "jiterator", "sparse", "partial_views", "linalg.eig")
"""Parts of names of operators that are not tried.

Values of empty tensors are those that happen to be in memory. Thunder's `exponential` draws other numbers than
PyTorch's. Gradients of eigenvectors are defined only for some losses. The others need a GPU, sparse inputs, or the
memory around their inputs.
"""
type Call = tuple[str, Callable[..., Any], list[torch.Tensor]]


def calls(batch: int, dtype: torch.dtype) -> Iterator[Call]:
    """Yield a name, a program with one call of an operator, and its tensors, for each call of a batch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    for op in op_db[batch::BATCHES]:
        name = f"{op.name}.{op.variant_test_name}".rstrip(".")
        # PyTorch's wrapper seeds the random generator, so Dynamo compiles nothing of it.
        wrapped = "wrapper_set_seed" in getattr(getattr(op.op, "__code__", None), "co_names", ())
        if wrapped or not op.supports_dtype(dtype, "cpu") or any(part in name for part in LEFT_OUT):
            continue
        torch.manual_seed(0)
        samples = list(op.sample_inputs("cpu", dtype, requires_grad=op.supports_autograd and dtype.is_floating_point))
        for at in range(0, len(samples), -(-len(samples) // SAMPLES[dtype])):
            sample = samples[at]
            yield f"{name}[{at}]", *call_of(op.op, (sample.input, sample.args, sample.kwargs))


def call_of(function: Callable[..., Any], given: Any) -> tuple[Callable[..., Any], list[torch.Tensor]]:
    flat, structure = pytree.tree_flatten(given)
    places = [place for place, leaf in enumerate(flat) if isinstance(leaf, torch.Tensor)]
    tensors = [flat[place] for place in places]
    constants = [None if place in places else leaf for place, leaf in enumerate(flat)]

    def call(*inputs: torch.Tensor) -> Any:
        leaves = list(constants)
        for place, tensor in zip(places, inputs, strict=True):
            leaves[place] = tensor
        first, args, kwargs = pytree.tree_unflatten(leaves, structure)
        return function(first, *args, **kwargs)

    return call, tensors


def copies(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in tensors]


def results(program: Callable[..., Any], tensors: list[torch.Tensor]) -> tuple[list[Any], list[torch.Tensor | None]]:
    """Return the outputs of a program, and the gradients of its inputs for a weighed sum of the outputs."""
    given = copies(tensors)
    torch.manual_seed(7)
    outputs = pytree.tree_leaves(program(*given))
    real = [
        torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
        for x in outputs
        if getattr(x, "requires_grad", False)
    ]
    weights = [1 + torch.arange(x.numel()).reshape(x.shape) % 5 for x in real]
    torch.autograd.backward(real, [weight.to(x.dtype) for weight, x in zip(weights, real, strict=True)])
    return outputs, [tensor.grad for tensor in given]


def difference(found: Any, wanted: Any) -> str:
    try:
        # Bit for bit is not asked for here: operators that Thunder takes apart add in another order.
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5, equal_nan=True)
    except (AssertionError, TypeError) as error:
        return str(error).partition("\n\n")[0]
    return ""


def faults_of(program: Callable[..., Any], tensors: list[torch.Tensor]) -> Iterator[str]:
    outputs, gradients = results(program, tensors)
    compiled = workbench.open(program, *copies(tensors), device="cpu").config.jit(program)
    found, found_gradients = results(compiled, tensors)
    if len(found) != len(outputs):
        yield f"{len(found)} outputs, and {len(outputs)} in PyTorch"
    for place, pair in enumerate(zip(found, outputs, strict=False)):
        if told := difference(*pair):
            yield f"output {place}: {told}"
    for place, (gradient, wanted) in enumerate(zip(found_gradients, gradients, strict=True)):
        # Unmodified Thunder gives no gradient for steps such as those of floor, where PyTorch gives zeros. For an empty
        # tensor it gives one that PyTorch does not.
        alike = all(each is None or not each.any() for each in (gradient, wanted))
        if not alike and (told := difference(gradient, wanted)):
            yield f"gradient {place}: {told}"


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning", "ignore:.*:UserWarning")
@pytest.mark.parametrize("dtype", SAMPLES, ids=str)
@pytest.mark.parametrize("batch", range(BATCHES))
def test_operators_have_pytorchs_values_and_gradients(batch: int, dtype: torch.dtype) -> None:
    faults, tried = [], 0
    for name, program, tensors in calls(batch, dtype):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ProgramWarning)
            faults += [f"{name}: {fault}" for fault in faults_of(program, tensors)]
        tried += 1
        torch._dynamo.reset()
    assert not faults, "\n".join(faults)
    assert tried > len(SAMPLES)
