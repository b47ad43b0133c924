"""The models in `value_readers` open, and their first two steps give the results of eager PyTorch."""

from __future__ import annotations

import pytest
import torch

import workbench
from tests.models.value_readers import VALUE_READERS
from workbench.bench.session.multi_graph import PartsBench
from workbench.runs.measure import accuracy, memory_meter
from workbench.runs.measure.tensor_diff import RecordedTensor, compare_tensors

pytestmark = pytest.mark.filterwarnings("ignore")


def built(name: str) -> accuracy.Parts:
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(5)
        module, args, kwargs = VALUE_READERS[name]()
    return module.train(), args, kwargs


def two_steps(stepper: accuracy.Stepper) -> list[dict[str, RecordedTensor]]:
    found = []
    for _ in range(2):
        stepper.clear_grads()
        found.append(stepper.record(stepper.step()))
    return found


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", VALUE_READERS)
def test_a_model_that_reads_values_opens_and_takes_right_steps(name: str) -> None:
    module, args, kwargs = built(name)
    bench = workbench.open(module, *args, device="cpu", **kwargs)
    module, args, kwargs = built(name)
    expected = two_steps(accuracy.Stepper(module, args, kwargs))
    module, args, kwargs = built(name)
    stepper = accuracy.Stepper(module, args, kwargs, bench.config.jit(module))
    for ours, theirs in zip(two_steps(stepper), expected, strict=True):
        assert len(ours) > 20
        assert not [str(error) for error in compare_tensors(ours, theirs, "eager", least=1e-4) if not error.ok]
    measured = memory_meter.measure_peak(stepper).measured_peak_bytes
    if isinstance(bench, PartsBench):
        assert bench.memory is not None
        assert measured >= 0.99 * bench.memory.peak_bytes
    else:
        assert measured == pytest.approx(bench.plan.peak_bytes, rel=0.01)
