// The values that are alive at the predicted peak and at the measured peak, with links to the graph.

import { follow, h, panel, scrolled } from "../dom.js";

/** @param {{model: any, el: HTMLElement}} context */
function render({ model, el }) {
  panel(el, "alive");
  return follow(model, ["content"], () => {
    const { predicted = {}, measured = null, eager = "", plain = "" } = model.get("content");
    el.classList.toggle("wb-both", measured !== null);
    const ask = h("button", { class: "wb-link wb-link-words wb-plain-peak", title: "Predict the peak of plain torch.compile without choices. This takes seconds, for large models minutes", onclick: () => model.send({ type: "plain_peak" }) }, "Compare with plain torch.compile");
    el.replaceChildren(...list(model, "predicted", predicted, [eager, plain === null ? ask : plain]), ...(measured ? list(model, "measured", measured) : []));
  });
}

/** Return the list for one peak: a heading, a note on the figures with the sentences `more` at its end, and the rows. */
function list(model, kind, { head = "", rows = [], peak = null }, more = /** @type {any[]} */ ([])) {
  const go = (id) => (id ? () => model.send({ type: "unveil", id }) : null);
  const where = peak && (peak.id ? h("button", { class: "wb-link", onclick: go(peak.id) }, peak.name) : h("code", {}, peak.name));
  return [
    h("h4", {}, `Values held at the ${kind} peak`, where && [", inside ", where]),
    h("div", { class: "wb-muted" }, head, more.filter(Boolean).map((one) => [". ", one])),
    scrolled(`Values held at the ${kind} peak`, h("table", {},
      h("thead", {}, h("tr", {}, h("th", { class: "wb-right" }, "bytes"), h("th", {}, "value"), h("th", {}, "made by"), h("th", {}, "source"))),
      h("tbody", {}, rows.map((row) => h("tr", { class: row.id ? "wb-can" : null, "data-value": row.name ?? row.value, onclick: go(row.id) },
        h("td", { class: "wb-right" }, row.bytes), h("td", { class: "wb-made", title: row.name ?? row.value }, row.id ? h("button", { class: "wb-link" }, row.value) : h("code", {}, row.value)), h("td", { title: [row.statement, row.scope].filter(Boolean).join(" in ") }, h("code", {}, row.statement), row.scope && h("span", { class: "wb-muted" }, ` ${row.scope}`)),
        h("td", {}, source(row.source)))))), { "data-kind": kind }),
  ];
}

/** Return a file name with a line number. A narrow column cuts only the file name. */
function source(/** @type {string} */ text) {
  const line = text.lastIndexOf(":");
  return h("code", { class: "wb-muted wb-place", title: text || null }, h("span", {}, line < 0 ? text : text.slice(0, line)), line < 0 ? "" : text.slice(line));
}

export default { render };
