"""Published peak rates of machines, by name, for simulations without measurements."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """Rates of one GPU or CPU, and of its link to other processes. No program reaches published rates: they are peaks.

    Attributes
    ----------
    name, source : str
        Name of the machine, and the source of the rates.
    flops_per_s : mapping of str to float
        Maps a data type to floating point operations per second of dense matmuls under PyTorch's default settings.
    bytes_per_s : float
        Bandwidth of the device memory.
    link_bytes_per_s : float
        Bytes per second in one direction, from one GPU to all other GPUs together.
    launch_s : float
        Seconds that the host takes for one statement; assumed, not published.
    latency_s : float
        Seconds of a collective before its first byte; assumed, not published.
    """

    name: str
    source: str
    flops_per_s: Mapping[str, float]
    bytes_per_s: float
    link_bytes_per_s: float
    launch_s: float = 5e-6
    latency_s: float = 20e-6


_HALF = ("bfloat16", "float16")


def _flops(half: float, single: float) -> dict[str, float]:
    return {**dict.fromkeys(_HALF, half), "float32": single}


H100 = Machine(
    name="H100",
    source="NVIDIA H100 datasheet, SXM5: 989 TFLOP/s bf16 dense, 67 TFLOP/s fp32, 3.35 TB/s, NVLink 900 GB/s both ways",
    flops_per_s=_flops(989e12, 67e12),
    bytes_per_s=3.35e12,
    link_bytes_per_s=450e9,
)
H200 = Machine(
    name="H200",
    source="NVIDIA H200 datasheet, SXM: 989 TFLOP/s bf16 dense, 67 TFLOP/s fp32, 4.8 TB/s, NVLink 900 GB/s both ways",
    flops_per_s=_flops(989e12, 67e12),
    bytes_per_s=4.8e12,
    link_bytes_per_s=450e9,
)
A100 = Machine(
    name="A100",
    source="NVIDIA A100 datasheet, 80 GB SXM: 312 TFLOP/s bf16, 19.5 fp32, 2.04 TB/s, NVLink 600 GB/s both ways",
    flops_per_s=_flops(312e12, 19.5e12),
    bytes_per_s=2.039e12,
    link_bytes_per_s=300e9,
)
PCIE = Machine(
    name="PCIe box",
    source="NVIDIA A100 datasheet, 80 GB PCIe: 312 TFLOP/s bf16, 19.5 fp32, 1.94 TB/s, PCIe 4.0 x16 64 GB/s both ways",
    flops_per_s=_flops(312e12, 19.5e12),
    bytes_per_s=1.935e12,
    link_bytes_per_s=32e9,
)

MACHINES: Mapping[str, Machine] = {machine.name: machine for machine in (H100, H200, A100, PCIE)}
"""Maps names to machines. `workbench.runs.measure.measured_rates.machine_by_name` also measures a local CPU or GPU."""
