"""Write a plain HTML page that mounts one of the workbench's widgets, with a stand-in for anywidget's model."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from workbench.ui.widgets.panel import esm

UI = Path(__file__).parents[2] / "workbench" / "ui" / "frontend"

_PAGE = """<!doctype html><meta charset="utf-8"><title>Thunder Workbench</title>
<style>{css}</style>
<body data-jp-theme-light="{light}" style="margin:0;padding:16px;background:{paper};--jp-layout-color0:{paper}">
<div id="view" class="{cls}" style="width:{width}px"></div>
<script type="module">
const decode = (value) => {{
  if (Array.isArray(value)) return value.map(decode);
  if (value && typeof value === "object") {{
    if ("base64" in value) return new DataView(Uint8Array.from(atob(value.base64), (c) => c.charCodeAt(0)).buffer);
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, decode(v)]));
  }}
  return value;
}};
const state = decode({state});
const listeners = new Map();
window.messages = [];
window.previews = [];
window.model = {{
  get: (name) => state[name],
  set: (name, value) => {{ state[name] = value; for (const f of listeners.get(`change:${{name}}`) ?? []) f(); }},
  save_changes: () => {{}},
  send: (message) => (message.type === "preview" ? window.previews : window.messages).push(message),
  on: (event, f) => listeners.set(event, [...(listeners.get(event) ?? []), f]),
  off: (event, f) => listeners.set(event, (listeners.get(event) ?? []).filter((other) => other !== f)),
}};
window.emit = (event, ...given) => {{ for (const f of listeners.get(event) ?? []) f(...given); }};
const source = {module};
const module = await import(URL.createObjectURL(new Blob([source], {{ type: "text/javascript" }})));
window.mount = (el) => module.default.render({{ model: window.model, el }});
await window.mount(document.getElementById("view"));
window.ready = true;
</script>
"""


def encoded(value: Any) -> Any:
    """Return a trait's value as plain JSON data, with bytes as base64."""
    if isinstance(value, (bytes, memoryview)):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {key: encoded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encoded(item) for item in value]
    return value


def page(
    widget: str,
    state: dict[str, Any],
    *,
    dark: bool = False,
    width: int = 860,
    cls: str = "wb-panel",
    css: str = "",
) -> str:
    """Return the HTML of a page that mounts the widget with this name. `state` gives the widget's traits."""
    return _PAGE.format(
        css="".join((UI / name).read_text() for name in ("style.css", *([css] if css else []))),
        light="false" if dark else "true",
        paper="#111111" if dark else "#ffffff",
        width=width,
        cls=cls,
        state=json.dumps(encoded(state)),
        module=json.dumps(esm(widget)).replace("</", "<\\/"),
    )
