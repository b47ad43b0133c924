"""Check which packages and devices are present, and what does not work without them, for `thunder-workbench doctor`."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import psutil
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from workbench.core.executor import why_no_nvfuser
from workbench.interop.private_api import TORCH_VERSIONS
from workbench.summary import human_bytes
from workbench.util.cuda_driver import attached_gpus
from workbench.version import __version__

CHROMIUM_VARIABLE = "WORKBENCH_CHROMIUM"
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@dataclasses.dataclass(frozen=True)
class Check:
    """One package or device that was searched for.

    Attributes
    ----------
    name : str
    ok : bool
        Whether the package or device is present, in a version that the workbench supports.
    found : str
        Version, path or description of the package or device; empty if it was not found.
    note : str
        Advice for the user, or the features that do not work without the package or device.
    essential : bool
        Whether the workbench cannot work at all without the package or device.
    """

    name: str
    ok: bool
    found: str
    note: str = ""
    essential: bool = False


def examine() -> tuple[Check, ...]:
    """Return one check for each package and device that `thunder-workbench doctor` lists.

    This process imports neither PyTorch nor Thunder. NVIDIA's driver lists the GPUs. If nvFuser was built for another
    version of PyTorch, a separate process tests whether nvFuser can be imported.
    """
    required = required_versions()
    return (
        _workbench(),
        _python(),
        _package("PyTorch", "torch", required, essential=True),
        _package("Thunder", "lightning-thunder", required, essential=True),
        _nvfuser(),
        _cuda(),
        _cpu(),
        _memory(),
        _compiler(),
        _package(
            "JupyterLab", "jupyterlab", required, note="needed for the app; Python and command line work without it"
        ),
        _ipykernel(required),
        _package("anywidget", "anywidget", required, note="needed for the graph view in notebooks"),
        _package("Bokeh", "bokeh", required, note="needed for plots in notebooks"),
        _chromium(),
    )


def all_essential(checks: Iterable[Check]) -> bool:
    """Return whether all essential packages are present, in versions that the workbench supports."""
    return all(check.ok for check in checks if check.essential)


def _workbench() -> Check:
    try:
        direct_url = importlib.metadata.distribution("thunder-workbench").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return Check("Workbench", True, __version__, "not installed, but imported from a folder")
    editable = json.loads(direct_url or "{}").get("dir_info", {}).get("editable")
    note = "a checkout, with the version that it had when it was installed" if editable else ""
    return Check("Workbench", True, __version__, note)


def _python() -> Check:
    found = (
        f"{platform.python_version()} ({platform.python_implementation()}, {platform.system()} {platform.machine()})"
    )
    ok = sys.version_info[:2] == (3, 12)
    return Check("Python", ok, found, "" if ok else "the workbench is made for Python 3.12", essential=True)


def required_versions() -> dict[str, str]:
    """Return, for each package that the workbench requires, the version specifier in the workbench's metadata.

    If the workbench itself and one of its extras require the same package, return the specifier of the workbench
    itself. If the workbench is not installed, but imported from a folder, only PyTorch is in the result.
    """
    try:
        requirements = importlib.metadata.requires("thunder-workbench") or []
    except importlib.metadata.PackageNotFoundError:
        return {"torch": TORCH_VERSIONS}
    parsed = sorted(map(Requirement, requirements), key=lambda each: "extra" not in str(each.marker))
    return {each.name.lower(): ",".join(sorted(map(str, each.specifier), reverse=True)) for each in parsed}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _package(name: str, package: str, required: dict[str, str], *, essential: bool = False, note: str = "") -> Check:
    found, wanted = _version(package), required.get(package, "")
    if not found:
        return Check(name, False, "", note or f"install {package}{wanted}", essential)
    if not SpecifierSet(wanted).contains(found, prereleases=True):
        return Check(name, False, found, f"the workbench is made for {wanted.removeprefix('==')}", essential)
    return Check(name, True, found, "", essential)


def _ipykernel(required: dict[str, str]) -> Check:
    check = _package("ipykernel", "ipykernel", required, note="needed for notebooks")
    if not check.found or Version(check.found) >= Version("7.4"):
        return check
    # Version 7.4 has the fix of ipykernel's pull request 1529.
    note = "before 7.4 a cell or a click may wait until the page is loaded again"
    return dataclasses.replace(check, ok=False, note=note)


def _nvfuser() -> Check:
    wheels = (dist for dist in importlib.metadata.distributions() if re.match(r"nvfuser[-_]cu", dist.name or ""))
    wheel = next(wheels, None)
    found = f"{wheel.name} {wheel.version}" if wheel is not None else ""
    why_not, note = why_no_nvfuser(), ""
    built = re.search(r"torch(\d)(\d+)$", wheel.name) if wheel is not None else None
    here = _version("torch").split(".")[:2]
    if not why_not and built is not None and here and here != [built[1], built[2]]:
        apart = f"built for PyTorch {built[1]}.{built[2]}; the installed PyTorch is {'.'.join(here)}"
        error = _load_error()
        why_not, note = (f"{apart}: {error}", "") if error else ("", f"{apart}; it loads nevertheless")
    return Check(
        "nvFuser", not why_not, found, f"{why_not}; everything except its fusions works without it" if why_not else note
    )


def _load_error() -> str:
    """Import nvFuser in a separate process, and return the error message; empty if the import works."""
    done = subprocess.run(
        [sys.executable, "-c", "import torch, nvfuser_direct"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(entry) for entry in sys.path)},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode == 0:
        return ""
    said = done.stderr.strip().splitlines()
    return said[-1] if said else f"the process that imported it ended with exit status {done.returncode}"


def _cuda() -> Check:
    if not _version("torch"):
        return Check("CUDA devices", False, "", "PyTorch is needed to use them")
    gpus = attached_gpus()
    found = ", ".join(f"{gpu.name} ({human_bytes(gpu.memory_bytes)})" for gpu in gpus)
    if not gpus:
        return Check("CUDA devices", False, "", "none attached: use device cpu, or device planned, which only plans")
    built, driver = _cuda_of_torch(), gpus[0].driver_cuda
    note = ""
    if not built:
        note = f"this PyTorch ({_version('torch')}) is built without CUDA"
    elif driver[0] < built[0]:
        # A driver for an older CUDA of the same major version also works.
        note = f"the driver supports CUDA up to {driver[0]}.{driver[1]}; PyTorch is built with {built[0]}.{built[1]}"
    return Check("CUDA devices", not note, found, note)


def _cuda_of_torch() -> tuple[int, ...]:
    """Return the CUDA version for which PyTorch is built, from its version file; empty if it is built without CUDA."""
    spec = importlib.util.find_spec("torch")
    path = Path(spec.origin).with_name("version.py") if spec is not None and spec.origin else None
    text = path.read_text(encoding="utf-8") if path is not None and path.is_file() else ""
    version = re.search(r"^cuda\b.*=\s*'(\d+)\.(\d+)", text, re.MULTILINE)
    return (int(version[1]), int(version[2])) if version is not None else ()


def _cpu() -> Check:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else psutil.cpu_count()
    return Check("CPU cores", True, f"{usable} usable, {psutil.cpu_count(logical=False) or usable} physical")


def _memory() -> Check:
    memory = psutil.virtual_memory()
    return Check("Memory", True, f"{human_bytes(memory.total)}, {human_bytes(memory.available)} available")


def _compiler() -> Check:
    # Inductor, the compiler of torch.compile, uses $CXX or g++.
    found = shutil.which(os.environ.get("CXX", "g++")) or ""
    return Check(
        "C++ compiler",
        bool(found),
        found,
        "" if found else "executor torchcompile needs a C++ compiler on a CPU: install g++",
    )


def _chromium() -> Check:
    named = os.environ.get(CHROMIUM_VARIABLE)
    found = next((path for name in ([named] if named else CHROMIUM_NAMES) if (path := shutil.which(name))), "")
    return Check("Chromium", bool(found), found, "" if found else "only the project's browser tests need it")


def _main() -> None:
    """Run `thunder-workbench doctor`; ``python -m workbench.doctor`` does the same."""
    from workbench.cli import main

    main(["doctor", *sys.argv[1:]])


if __name__ == "__main__":
    _main()
