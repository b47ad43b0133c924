"""List private names that the installed Thunder, nvFuser and PyTorch lack.

The command is ``python -m workbench.compiler.interop.check_versions``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from workbench.compiler.interop import devices, nvfuser_api, thunder_api
from workbench.core.executor import why_no_nvfuser
from workbench.interop import torch_private
from workbench.interop.private_api import MissingName, PrivateApi


def report() -> tuple[str, bool]:
    """Look up all private names.

    Names of nvFuser are not looked up if nvFuser cannot be imported; the text then says why.

    Returns
    -------
    text : str
        The versions and the missing names of each package.
    whole : bool
        True if no name is missing.
    """
    lines, whole = [], True
    for seam in (torch_private.SEAM, thunder_api.SEAM, nvfuser_api.SEAM):
        if seam is nvfuser_api.SEAM and (why_not := _why_no_nvfuser()):
            lines.append(f"{seam.package} not looked at: {why_not}")
            continue
        missing = seam.examine()
        whole = whole and not missing
        lines.append(
            f"{seam.package} {seam.installed_version or 'not installed'}, made for {seam.wanted}: "
            f"{_count(seam, missing)}"
        )
        lines.extend(f"  {each.name}: {each.reason}" for each in missing)
    return "\n".join(lines), whole


def _count(seam: PrivateApi, missing: Sequence[MissingName]) -> str:
    looked_up = len(seam.names) + sum(len(members) for members in seam.members.values())
    return f"{looked_up} names looked up, {len(missing)} missing"


def _why_no_nvfuser() -> str:
    if reason := why_no_nvfuser():
        return reason
    try:
        devices.nvfuser_module()
    except Exception as error:  # noqa: BLE001 - a module of another version may fail to import in any way
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    text, whole = report()
    sys.stdout.write(text + "\n")
    sys.exit(0 if whole else 1)
