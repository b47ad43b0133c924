"""Store the results of a program's first step with unmodified Thunder on disk, for later runs of the same program.

Planning a real model takes seconds, but compiling the model with Thunder takes minutes. The results of unmodified
Thunder do not depend on the choices. The first run of a program spends these minutes; later runs load the results.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from workbench.runs.measure.tensor_diff import RecordedTensor, tensor_parts
from workbench.util.disk_cache import REFERENCES

FORMAT = 1
_PART = "0"
"""Name of the single file that is stored under each key."""

_INSTALLED = tuple({sysconfig.get_paths()[place] for place in ("stdlib", "platstdlib", "purelib", "platlib")})
_WORKBENCH = str(Path(__file__).parents[2])


@dataclasses.dataclass(frozen=True)
class Reference:
    """Results of a reference step, with which a run's first step is compared.

    Attributes
    ----------
    name : str
        Name of the compiler, such as ``thunder.jit``; empty if no compiler could compile the program.
    recorded : dict of str to RecordedTensor
        Outputs, gradients, inputs and buffers, and the parameters that the step wrote to.
    kernels : dict of str to str
        Kernels that ran, from `workbench.compiler.planner.kernel_identity.kernels_of`.
    reasons : tuple of str
        Reasons why other compilers failed or were not used.
    is_saved : bool
        Whether the results were loaded from disk, where an earlier run stored them.
    """

    name: str
    recorded: dict[str, RecordedTensor]
    kernels: dict[str, str]
    reasons: tuple[str, ...]
    is_saved: bool = False


class SavedReferences:
    """The stored references of one run's program.

    A stored reference is used only if all of these are equal: the program's spec, and the files from which the run
    builds the program; the imported source files that are not part of installed packages; versions and number of
    threads; the processor's kind, vector instructions and number of cores; the name of the GPU; the settings that the
    caller gives; and each bit of eager PyTorch's results.

    Parameters
    ----------
    folder : Path
        The run's folder.
    spec : mapping
        The program's spec, for `workbench.programs.build`.
    """

    def __init__(self, folder: Path, spec: Mapping[str, Any]) -> None:
        self._folder = folder
        self._spec = spec

    def key(self, eager: Mapping[str, RecordedTensor], *settings: object) -> str:
        """Return the key of a program's reference on disk.

        Parameters
        ----------
        eager : mapping of str to RecordedTensor
            Results of eager PyTorch's first step.
        *settings : object
            All other data on which the reference depends.
        """
        # Imported here, because a run without a check needs no compiler.
        from workbench.compiler.driver.capture_cache import versions

        digest = hashlib.blake2b(digest_size=16)
        gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
        facts = (FORMAT, versions(), gpu, torch.get_num_threads(), torch.backends.cpu.get_cpu_capability(), settings)
        digest.update(f"{facts!r}{json.dumps(self._spec, sort_keys=True, default=str)}".encode())
        for path in sorted(self._folder.glob("program*")):
            digest.update(f"{path.name}{path.stat().st_size}".encode())
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
        for source in sorted(filter(None, map(_own_source, list(sys.modules.values())))):
            digest.update(os.fsencode(source))
            digest.update(Path(source).read_bytes())
        for name, entry in eager.items():
            digest.update(f"{name}{entry.kind}{entry.changed}".encode())
            if entry.value is not None:
                digest.update(f"{entry.value.dtype}{tuple(entry.value.shape)}".encode())
                for part in tensor_parts(entry.value):
                    digest.update(_bytes_of(part))
        return digest.hexdigest()

    def load(self, key: str) -> Reference | None:
        """Return the reference with this key; None if it is missing or cannot be read."""
        for path in REFERENCES.files_under(key):
            try:
                found = torch.load(io.BytesIO(REFERENCES.read(path)), weights_only=True)
                recorded = {name: RecordedTensor(*entry) for name, entry in found["recorded"].items()}
                return Reference(found["name"], recorded, found["kernels"], tuple(found["reasons"]), is_saved=True)
            except Exception:  # noqa: BLE001  # a file of another version may fail in any way; it is made again
                REFERENCES.forget(path)
        return None

    def save(self, key: str, reference: Reference) -> None:
        """Store a reference under a key, unless it is too large, the cache is off, or the write fails."""
        values = (entry.value for entry in reference.recorded.values() if entry.value is not None)
        if (
            REFERENCES.folder() is None
            or sum(part.nbytes for value in values for part in tensor_parts(value)) > REFERENCES.most_bytes // 2
        ):
            return
        file = io.BytesIO()
        recorded = {name: (entry.kind, entry.value, entry.changed) for name, entry in reference.recorded.items()}
        fields = {"name": reference.name, "kernels": reference.kernels, "reasons": list(reference.reasons)}
        torch.save({**fields, "recorded": recorded}, file)
        try:
            REFERENCES.store(key, _PART, file.getvalue())
        except OSError:
            return


def _own_source(module: Any) -> str | None:
    """Return a module's source file; None if the module is installed, part of Python, or part of the workbench."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or file.startswith((*_INSTALLED, _WORKBENCH)) or not file.endswith(".py"):
        return None
    return file if os.path.isfile(file) else None


def _bytes_of(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
