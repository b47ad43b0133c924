"""The app handles each type of message that its pages send, and its pages send each type that the app handles."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

UI = Path(__file__).parents[2] / "workbench" / "ui"
SENT = re.compile(r"\b(?:send|ask)\(\{ type: ([^,}]+)")
"""The type in a message: one literal, or a choice between literals."""
SENT_BY_BUTTONS = re.compile(r'\bbutton\("[^"]*", "[^"]*", "(\w+)"')
"""Type of the message of a button in `controls/controls.js`; there, the type is a variable of the function."""


def sent() -> set[str]:
    """Return the types of messages from the pages to the app."""
    folder = UI / "frontend"
    texts = {path: path.read_text() for path in folder.rglob("*.js") if (folder / "built") not in path.parents}
    assert [path.name for path, text in texts.items() if "send({ type }" in text] == ["controls.js"]
    types = [type for text in texts.values() for type in SENT.findall(text)]
    by_buttons = SENT_BY_BUTTONS.findall((folder / "controls" / "controls.js").read_text())
    # In a choice between literals, the condition may compare with a literal, too.
    own = {literal for type in types for literal in re.findall(r'"(\w+)"', type.rpartition(" ? ")[2])}
    return own | set(by_buttons)


def _literals(node: ast.AST) -> Iterator[str]:
    found = (child.value for child in ast.walk(node) if isinstance(child, ast.Constant))
    yield from (value for value in found if isinstance(value, str))


def _is_type(node: ast.expr) -> bool:
    return ast.unparse(node) in ("kind", "message['type']", "message.get('type')")


def handled() -> set[str]:
    """Return the types that functions with the parameter `message` compare, or have as keys of their dict `acts`."""
    found: set[str] = set()
    functions = [
        node
        for path in UI.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and "message" in [each.arg for each in node.args.args]
    ]
    for node in (inner for function in functions for inner in ast.walk(function)):
        if isinstance(node, ast.Compare) and _is_type(node.left):
            found.update(literal for each in node.comparators for literal in _literals(each))
        elif (
            isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "acts" and isinstance(node.value, ast.Dict)
        ):
            found.update(literal for key in node.value.keys if key is not None for literal in _literals(key))
    return found


def test_each_message_has_a_handler_and_each_handler_a_message() -> None:
    assert len(sent()) > 40
    assert sent() == handled()
