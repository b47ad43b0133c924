"""Run a training step of a model without choices, and one with the choices of each exported file. Print JSON.

This process cannot import Thunder and the workbench. Arguments: the folder of this file, the name of the model, the
backend of `torch.compile` or ``eager``, and the exported files. There is one line of JSON for each file.
"""

import importlib.util
import json
import sys
import warnings
from collections.abc import Callable
from itertools import accumulate
from typing import Any


class _Refuse:
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] in ("workbench", "thunder"):
            raise ImportError(f"{name} is not installed here")


sys.meta_path.insert(0, _Refuse())  # type: ignore[arg-type]
folder, model_name, backend, *files = sys.argv[1:]
sys.path.insert(0, folder)

import torch  # noqa: E402
from small_models import make  # noqa: E402
from torch.multiprocessing.reductions import StorageWeakRef  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402


def gradients(model: torch.nn.Module) -> list[torch.Tensor]:
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def loss_of(out: Any) -> torch.Tensor:
    return out if isinstance(out, torch.Tensor) else out.loss


def compiled_step(call: Callable[..., Any], model: torch.nn.Module, inputs: dict[str, Any]) -> tuple[int, list[Any]]:
    """Return the bytes of the storages that the compiled forward makes and saves, and the gradients."""
    given = [*model.parameters(), *model.buffers(), *inputs.values()]
    seen = {StorageWeakRef(tensor.untyped_storage()) for tensor in given}
    counted = 0

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal counted
        storage = tensor.untyped_storage()
        if StorageWeakRef(storage) not in seen:
            seen.add(StorageWeakRef(storage))
            counted += storage.nbytes()
        return tensor

    model.zero_grad()
    torch.manual_seed(1)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = loss_of(call(**inputs))
    loss.backward()
    return counted, gradients(model)


def measured_peak(call: Callable[..., Any], model: torch.nn.Module, inputs: dict[str, Any]) -> int:
    """Return the peak memory of a step after the first, from the allocator's events; the step keeps its outputs."""
    given = (tensor.untyped_storage() for tensor in (*model.parameters(), *model.buffers(), *inputs.values()))
    baseline = {storage._cdata: storage.nbytes() for storage in given}
    model.zero_grad()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as measured:
        out = call(**inputs)
        loss_of(out).backward()
    profiler: Any = measured.profiler
    events = [
        (each.start_ns(), each.nbytes()) for each in profiler.kineto_results.events() if each.name() == "[memory]"
    ]
    events.sort(key=lambda event: event[0])
    return sum(baseline.values()) + max(accumulate((nbytes for _, nbytes in events), initial=0))


class _Made(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.storages: dict[StorageWeakRef, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                self.storages[StorageWeakRef(storage)] = storage.nbytes()
        return out


def eager_step(model: torch.nn.Module, inputs: dict[str, Any]) -> tuple[int, list[Any]]:
    """Return the bytes of the storages that an eager forward makes and that are alive after it, and the gradients."""
    model.zero_grad()
    torch.manual_seed(1)
    with _Made() as made:
        out = model(**inputs)
        loss = loss_of(out)
        del out
    alive = sum(size for storage, size in made.storages.items() if not storage.expired())
    loss.backward()
    return alive, gradients(model)


def choices_of(file: str) -> Any:
    """Import an exported file."""
    spec = importlib.util.spec_from_file_location("choices", file)
    assert spec is not None
    assert spec.loader is not None
    choices = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(choices)
    return choices


model, inputs = make(model_name)
before_peaks: list[int] = []
if backend == "eager":
    before, expected = eager_step(model, inputs)
else:
    plain = torch.compile(model, backend=backend)
    before, expected = compiled_step(plain, model, inputs)
    before_peaks.append(measured_peak(plain, model, inputs))
for file in files:
    choices, peaks = choices_of(file), list(before_peaks)
    model, inputs = make(model_name)
    torch._dynamo.reset()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        if backend == "eager":
            after, found = eager_step(choices.checkpoint(model), inputs)
        else:
            chosen = choices.compile(model, backend=backend)
            after, found = compiled_step(chosen, model, inputs)
            peaks.append(measured_peak(chosen, model, inputs))
    print(
        json.dumps(
            {
                "equal": len(expected) == len(found) and all(map(torch.equal, expected, found)),
                "largest_difference": max(float((a - b).abs().max()) for a, b in zip(expected, found, strict=True)),
                "largest_gradient": max(float(gradient.abs().max()) for gradient in expected),
                "before_bytes": before,
                "after_bytes": after,
                "peak_bytes": peaks,
                "told": [str(w.message) for w in told if "is not applied" in str(w.message)],
                "torch": torch.__version__,
                "modules": [name for name in ("thunder", "workbench") if name in sys.modules],
            }
        ),
        flush=True,
    )
