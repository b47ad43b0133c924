"""Check JSON documents that commands print against the schemas in `docs/schemas`."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import jsonschema

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


@functools.cache
def schema(command: str) -> Any:
    """Return the JSON schema of the documents that a command prints."""
    found = json.loads((SCHEMAS / f"{command}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(found)
    return found


def held(command: str, document: Any, way: int = 0) -> None:
    """Assert that a document fits the command's schema, alternative number `way`, which describes each of its keys."""
    jsonschema.validate(document, schema(command))
    jsonschema.validate(document, schema(command)["anyOf"][way])
    assert undescribed(document, schema(command)["anyOf"][way]) == []


def undescribed(document: Any, known: Any, at: str = "") -> list[str]:
    """Return all keys of a document, also nested ones, that a schema does not describe.

    A schema that lists no keys allows all keys.
    """
    if isinstance(document, list):
        return [each for one in document for each in undescribed(one, known.get("items", {}), f"{at}[]")]
    if not isinstance(document, dict):
        return []
    if "anyOf" in known:
        known = next(one for one in known["anyOf"] if jsonschema.Draft202012Validator(one).is_valid(document))
    properties, others = known.get("properties"), known.get("additionalProperties")
    found = []
    for name, value in document.items():
        if properties is not None and name in properties:
            found += undescribed(value, properties[name], f"{at}.{name}")
        elif isinstance(others, dict):
            found += undescribed(value, others, f"{at}.{name}")
        elif properties is not None:
            found.append(f"{at}.{name}")
    return found
