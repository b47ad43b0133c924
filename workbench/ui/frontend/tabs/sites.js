// The table of all sites, with a search.

import { follow, h, humanBytes, inParts, panel, scrolled } from "../dom.js";

/** @param {{model: any, el: HTMLElement}} context */
function render({ model, el }) {
  panel(el, "sites");
  const search = h("input", { type: "search", placeholder: "Search sites", title: "Layer, symbol, source, choice", "aria-label": "Search sites", spellcheck: "false", oninput: () => draw() });
  const lever = h("select", { "aria-label": "Lever", onchange: () => draw() });
  const count = h("span", { class: "wb-muted", "aria-live": "polite" });
  const body = h("tbody");
  el.replaceChildren(h("div", { class: "wb-row" }, search, lever, count),
    scrolled("Sites", h("table", {},
      h("thead", {}, h("tr", {}, h("th", {}, "lever"), h("th", {}, "site"), h("th", {}, "source"), h("th", { class: "wb-right" }, "size"), h("th", {}, "choice"), h("th", {}, "outcome"))), body)));

  // In a narrow window, only the source column shrinks: site names that break into single letters cannot be read.
  const named = "min-width: 11em", sourced = "max-width: min(340px, 22cqw)", picked = "max-width: 11em";
  const MOST = 400; // maximum number of drawn rows, because more rows slow the page

  function draw() {
    const { rows = [] } = model.get("content"), selected = model.get("selected");
    const levers = ["", ...new Set(rows.map((row) => row.lever))];
    if (lever.options.length !== levers.length) {
      const chosen = lever.value;
      lever.replaceChildren(...levers.map((name) => h("option", { value: name }, name || "all levers")));
      lever.value = levers.includes(chosen) ? chosen : "";
    }
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = rows.filter((row) => (!lever.value || row.lever === lever.value)
      && words.every((word) => `${row.id} ${row.label} ${row.source} ${row.choice} ${row.outcome}`.toLowerCase().includes(word)));
    count.textContent = found.length > MOST ? `${MOST} of ${found.length} shown` : `${found.length} of ${rows.length}`;
    body.replaceChildren(...found.slice(0, MOST).map((row) => h("tr", {
      class: row.id === selected ? "wb-chosen" : null, "data-site": row.id, onclick: () => model.send({ type: "go", id: row.id }),
    },
    h("td", {}, row.lever), h("td", { class: "wb-wide", style: named }, h("button", { class: "wb-link", title: row.id }, inParts(row.label))), h("td", { class: "wb-wide", style: sourced }, h("code", { class: "wb-muted", title: row.source }, row.source)),
    h("td", { class: "wb-right" }, row.bytes ? humanBytes(row.bytes) : ""),
    h("td", { onclick: (event) => event.stopPropagation() }, h("select", {
      style: picked, "aria-label": `Choice for ${row.label}`, onchange: (event) => model.send({ type: "choose", id: row.id, option: event.target.value }),
    }, row.options.map(({ name, reason }) => h("option", { value: name, selected: name === row.choice, disabled: Boolean(reason), title: reason || null }, reason ? `${name} (refused)` : name)))),
    h("td", { class: `wb-out-${row.outcome}` }, row.outcome))));
  }
  return follow(model, ["content", "selected"], draw);
}

export default { render };
