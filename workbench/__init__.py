"""Thunder Workbench: see a Thunder program as one graph, change the compiler's decisions, run it, keep the choices.

Each name is imported at its first use. Therefore ``import workbench`` needs no GPU, no Jupyter and no Thunder.
"""

from typing import TYPE_CHECKING

from workbench.util.lazy_import import attributes

if TYPE_CHECKING:
    from workbench.bench import SideBySide, Workbench, compare, open
    from workbench.core.config import Config, load
    from workbench.core.lever import Effect, Site
    from workbench.errors import (
        ChoiceError,
        ConfigError,
        ConfigWarning,
        DeviceError,
        GradientError,
        PlanError,
        ProgramError,
        ProgramWarning,
        RunError,
        WorkbenchError,
    )
    from workbench.programs import Program
    from workbench.version import __version__ as __version__

__all__ = [
    "ChoiceError",
    "Config",
    "ConfigError",
    "ConfigWarning",
    "DeviceError",
    "Effect",
    "GradientError",
    "PlanError",
    "Program",
    "ProgramError",
    "ProgramWarning",
    "RunError",
    "SideBySide",
    "Site",
    "Workbench",
    "WorkbenchError",
    "compare",
    "load",
    "open",
]

_ROOMS = {
    "Config": "core.config",
    "Effect": "core.lever",
    "Program": "programs",
    "Site": "core.lever",
    "SideBySide": "bench",
    "Workbench": "bench",
    "compare": "bench",
    "load": "core.config",
    "open": "bench",
}

__getattr__ = attributes(__name__, {"__version__": "version", **{name: _ROOMS.get(name, "errors") for name in __all__}})


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
