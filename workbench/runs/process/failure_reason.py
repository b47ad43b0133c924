"""The reason of a failed run, in one line."""

from __future__ import annotations

from workbench.errors import WorkbenchError, is_out_of_memory


def explain(error: BaseException) -> str:
    """Return one line that says why a run failed."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    if is_out_of_memory(error):
        return f"out of memory: {text}" if text else "out of memory"
    if isinstance(error, WorkbenchError):
        return text
    if isinstance(error, SystemExit):
        return f"the program ended the process: sys.exit({error.code!r})"
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
