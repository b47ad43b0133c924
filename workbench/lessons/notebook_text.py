"""Texts, traces and pictures of plans, as the notebooks of lessons show them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from workbench.errors import printable

if TYPE_CHECKING:
    from workbench.compiler.api import Plan

_SOURCE = re.compile(r"^(\s*)# \S.*?:\d+:\s*(.*)$")
"""Pattern of a comment in a trace that has the source of a statement: file, line number, and text of the line."""
_PREAMBLE = ("import ", "from ", "@")
_MARKS = re.compile(r"`([^`\n]+)`|(?<![\w*])(\*\*?)(?=\S)(.+?)(?<=\S)\2(?![\w*])")
"""Pattern of Markdown for code and emphasis. The sign of a product or a power does not match, because a letter or a
space is beside the sign.
"""


class Text(str):
    """Text that a notebook shows line by line, without quotes."""

    def __repr__(self) -> str:
        return str(self)


class Marked(Text):
    """Markdown text. A notebook shows it formatted; a terminal shows it without the marks."""

    def __repr__(self) -> str:
        return plain(self)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/markdown": str(self), "text/plain": plain(self)}


def plain(text: str) -> str:
    """Return Markdown text without the marks of code and emphasis, for places that show plain text.

    Examples
    --------
    >>> plain("tick *all* that hold and press **Lock in**, or call `.lock('x ** 2')`; 2 * x * y")
    "tick all that hold and press Lock in, or call .lock('x ** 2'); 2 * x * y"
    """
    return _MARKS.sub(lambda found: found[1] or plain(found[3]), text)


def trace(plan: Plan) -> Text:
    """Return a plan's forward and backward traces as Thunder prints them, without imports and decorators.

    The comment on a statement's source has only the line's text, because in a notebook the file is a temporary file.

    Parameters
    ----------
    plan : Plan

    Returns
    -------
    Text
    """
    lines: list[str] = []
    for line in plan.text().splitlines():
        if line.startswith(_PREAMBLE):
            continue
        found = _SOURCE.match(line)
        line = f"{found[1]}# {found[2].strip()}" if found else line.rstrip()
        if line or (lines and lines[-1]):
            lines.append(line)
    return Text(printable("\n".join(lines).strip()))


class Picture:
    """A plan's graph as a picture. A saved notebook shows the picture even without a Jupyter kernel.

    Parameters
    ----------
    plan : Plan
    title : str
    """

    def __init__(self, plan: Plan, title: str = "") -> None:
        self._plan = plan
        self._title = title

    def __repr__(self) -> str:
        return str(trace(self._plan))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        # In an untrusted notebook, JupyterLab shows this text and no SVG picture.
        return {"text/plain": f"{self!r}\n\n# Run this cell, or trust the notebook, to see it as a picture."}

    def _repr_svg_(self) -> str:
        from workbench.ui.graph import svg

        return svg.render(self._plan.graph, self._plan.sites, title=self._title)


def picture(plan: Plan, title: str = "") -> Picture:
    """Return a picture of a plan's graph. A notebook shows it without a Jupyter kernel; a terminal shows the trace.

    Parameters
    ----------
    plan : Plan
    title : str
        Text above the picture.

    Returns
    -------
    Picture
    """
    return Picture(plan, title)
