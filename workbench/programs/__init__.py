"""Programs: a function or module with example inputs, and the device it is for; built in, from a file, or given."""

from workbench.programs.program import Program, build, check, resolve
from workbench.programs.registry import ProgramInfo, describe, parallel_of, program
from workbench.programs.settings import Setting

__all__ = ["Program", "ProgramInfo", "Setting", "build", "check", "describe", "parallel_of", "program", "resolve"]
