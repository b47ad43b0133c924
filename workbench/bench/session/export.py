"""Export of a bench to files: its choices, its plan, and a report of both."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from workbench.bench.session.workbench import Workbench


class Files:
    """The part of a `Workbench` that writes files."""

    def export(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the choices as a Python file that anyone can read, and `workbench.load` reads back.

        Parameters
        ----------
        path : path
        overwrite : bool
            Replace a file that is not a config, too; a config is always replaced.

        Raises
        ------
        ConfigError
            If it cannot be written, and why; see `Config.write`.
        """
        bench = cast("Workbench", self)
        return bench.config.write(path, bench.notes(), overwrite=overwrite)

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write plan, choices and figures as one ``.plan.json``, which JupyterLab shows without a kernel.

        Parameters
        ----------
        path : path
        overwrite : bool
            Replace a file that is not a saved plan, too; a saved plan is always replaced.

        Raises
        ------
        ConfigError
            If it cannot be written, and why.
        """
        from workbench.bench.report import saved_plan

        return saved_plan.write(cast("Workbench", self), path, overwrite=overwrite)

    def report(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write one HTML page that needs no network: graph, figures, plots, choices, runs, and how to have them again.

        Parameters
        ----------
        path : path
        overwrite : bool
            Replace a file that is not a report, too; a report is always replaced.

        Raises
        ------
        ConfigError
            If it cannot be written, and why.

        Examples
        --------
        >>> bench.report("out.html")  # doctest: +SKIP
        PosixPath('out.html')
        """
        from workbench.bench.report import html_report

        return html_report.write(cast("Workbench", self), path, overwrite=overwrite)
