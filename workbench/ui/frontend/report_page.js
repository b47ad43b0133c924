// A report: the widgets with data from the page itself. The page loads nothing, and the user cannot choose anything.

import graphView from "./graph/graph_view.js";
import alive from "./tabs/peak_table.js";
import compile from "./tabs/compile_tab.js";
import strip from "./controls/figure_strip.js";
import timeline from "./tabs/timeline_tab.js";

const data = JSON.parse(document.getElementById("wb-data").textContent);

/** Return a widget's model that needs no kernel. */
function still(traits, onSend = () => {}) {
  const callbacks = new Map(), emit = (event, ...given) => { for (const call of callbacks.get(event) ?? []) call(...given); };
  return {
    get: (name) => traits[name], save_changes: () => {}, send: onSend, emit,
    set: (name, value) => { if (traits[name] !== value) { traits[name] = value; emit(`change:${name}`); } },
    on: (event, call) => callbacks.set(event, [...(callbacks.get(event) ?? []), call]),
    off: (event, call) => callbacks.set(event, (callbacks.get(event) ?? []).filter((other) => other !== call)),
  };
}
const place = (name) => document.getElementById(`wb-${name}`);
const bytes = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0)).buffer;
for (const table of Object.values(data.graph.data.tables)) for (const column of Object.values(table)) column[1] = bytes(column[1]);

const theme = place("theme");
function paint(/** @type {boolean} */ dark) {
  document.body.dataset.jpThemeLight = String(!dark);
  theme.textContent = dark ? "Light" : "Dark";
}
paint(matchMedia("(prefers-color-scheme: dark)").matches);
theme.addEventListener("click", () => paint(document.body.dataset.jpThemeLight === "true"));

const graph = still(data.graph), sites = new Map(data.sites.map((site) => [site.id, site]));
function go(/** @type {string} */ id) {
  graph.set("selected", id);
  graph.emit("msg:custom", { type: "reveal", id });
  place("graph").scrollIntoView({ block: "nearest" });
}
const element = (tag, text, cls = "") => Object.assign(document.createElement(tag), { textContent: text, className: cls });
function tell() {
  const site = sites.get(graph.get("selected"));
  if (!site) { place("about").replaceChildren(element("div", "Click an arc or a mark to see what could be chosen there.", "wb-muted")); return; }
  place("about").replaceChildren(element("strong", site.label), " ", element("code", site.id, "wb-muted"), " ", element("code", site.source, "wb-muted"), ...site.options.map((option) => {
    const why = site.illegal[option], state = option === site.choice ? "chosen" : why ? `refused: ${why}` : "legal", row = document.createElement("div");
    row.append(element("code", option), " ", element("span", option === site.default ? `${state}, default` : state, "wb-muted"));
    return row;
  }));
}
graph.on("change:selected", tell);
tell();

const answer = (message) => { if (["go", "unveil"].includes(message.type)) go(message.id); };
graphView.render({ model: graph, el: place("graph") });
for (const [name, widget] of Object.entries({ strip, alive, compile, timeline }))
  if (!place(name).closest("[hidden]")) widget.render({ model: still(data[name], answer), el: place(name) });
document.body.dataset.ready = "true";
