"""Programs: a function or module with example inputs, and the device it is for; built in, from a file, or given."""

from workbench.programs.program import Program, build, resolve
from workbench.programs.registry import ProgramInfo, describe, parallel_of, program
from workbench.programs.settings import Setting

__all__ = ["Program", "ProgramInfo", "Setting", "build", "describe", "parallel_of", "program", "resolve"]
