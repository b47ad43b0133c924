// The inspector: the selected element, its sites, and the effect of each option on the whole plan.

import { afterGraph, foldButton, follow, h, inParts, panel, previewed } from "../dom.js";
import { keyList } from "../graph/graph_keys.js";

/** @param {{model: any, el: HTMLElement}} context */
function render({ model, el }) {
  panel(el, "inspector");
  // Let keys scroll the panel: without a selection, nothing in it takes the focus, and its content may be too high.
  for (const [name, value] of Object.entries({ tabindex: "0", role: "region", "aria-label": "Inspector" })) el.setAttribute(name, value);
  const go = (id) => () => model.send({ type: "go", id });
  previewed(model, el);
  const link = ({ id, label }) => (id ? h("button", { class: "wb-link", onclick: go(id), title: "show it in the graph" }, label) : h("span", {}, label));

  const source = ({ place, text }) => (place || text) && h("div", { class: "wb-source" },
    text && h("code", {}, text), place && h("div", { class: "wb-muted" }, place));

  const effect = (figures) => h("dl", { class: "wb-effect" }, figures.map(({ name, text, tone }) => [
    h("dt", {}, name), h("dd", { class: tone ? `wb-${tone}` : null }, text)]));

  /** Return a table of the effects of an option in each group of layers, with buttons that choose the option there. */
  const groups = (rows, /** @type {string} */ option) => h("table", { class: "wb-groups" }, h("thead", {}, h("tr", {}, ["in", "peak, predicted", "saved"].map((name, i) => h("th", { class: i ? "wb-right" : null }, name)))),
    h("tbody", {}, rows.map(({ name, choices, ...cells }) => h("tr", {},
      h("td", {}, h("button", { class: "wb-link wb-link-words", title: `Choose ${option} in ${name}`, "data-preview": JSON.stringify({ choices }), onclick: () => model.send({ type: "choose_all", choices }) }, name)), [cells.peak, cells.saved].map(({ text, tone }) => h("td", { class: `wb-right ${tone ? `wb-${tone}` : ""}` }, text))))));

  const change = ({ text, tone }) => h("b", { class: tone ? `wb-${tone}` : null }, text);
  /** Return the section with the choices that lower the peak most. */
  const best = ({ best: rows, waiting, progress = "" }) => h("section", { class: `wb-best${waiting ? " wb-waiting" : ""}` }, h("h4", {}, "Best single choices"),
    !rows.length && h("p", { class: "wb-muted" }, `computing… ${progress}`),
    h("ul", { class: "wb-edges" }, rows.map(({ name, option, count, choices, peak, saved }) => h("li", {},
      h("button", { title: "Choose this", disabled: waiting, "aria-label": `Choose ${option} for ${name}`, "data-preview": JSON.stringify({ choices }), onclick: () => model.send({ type: "choose_all", choices }) }, option),
      " ", inParts(name), count > 1 && h("span", { class: "wb-muted" }, ` × ${count}`),
      h("div", { class: "wb-means" }, "predicted peak ", change(peak), ", saved ", change(saved))))),
    h("button", { class: "wb-link wb-link-words", onclick: () => model.send({ type: "place", name: "Single choices" }) }, "All single choices"));

  const option = (site, one) => h("div", { class: `wb-option ${one.current ? "wb-current" : ""}` },
    h("button", {
      class: "wb-choose", "data-preview": JSON.stringify({ id: site.id, option: one.name }), disabled: Boolean(one.reason) || one.current, "aria-pressed": one.current ? "true" : "false",
      onclick: () => model.send({ type: "choose", id: site.id, option: one.name }),
    }, one.name, (one.current || one.tag) && h("span", { class: "wb-tag" }, one.tag ?? "now")),
    one.means && h("div", { class: "wb-means" }, one.means),
    one.reason && h("div", { class: "wb-reason" }, one.reason),
    one.figures && effect(one.figures),
    one.why && h("div", { class: "wb-means wb-why" }, one.why),
    one.groups && groups(one.groups, one.name),
    one.moved?.length > 0 && h("div", { class: "wb-moved" }, h("span", { class: "wb-muted" }, "also changes: "),
      one.moved.map((other, i) => [i ? ", " : "", link(other)]), one.more ? h("span", { class: "wb-muted" }, ` and ${one.more} more`) : ""),
    one.waiting && h("div", { class: "wb-muted" }, "computing…"));

  /** Return the buttons for the scope of a choice: the shown site, the sites that are shown as one, or all layers. */
  const scope = ({ now, named }) => h("div", { class: "wb-scope", role: "group", "aria-label": "What a choice applies to" }, h("span", { class: "wb-muted" }, "Choose for "),
    Object.entries(named).map(([name, text]) => h("button", { class: name === now ? "wb-pressed" : null, "aria-pressed": String(name === now), onclick: () => model.send({ type: "scope", scope: name }) }, text)));

  const value = (one) => h("tr", {},
    h("td", {}, h("code", {}, one.name), h("div", { class: "wb-muted" }, `${one.shape} ${one.dtype}`)), h("td", { class: "wb-right" }, one.bytes),
    h("td", {}, one.ends.map((end, i) => [i ? ", " : "", link(end)])));
  const values = (title, list, last) => list.length > 0 && h("section", {}, h("h4", {}, title),
    h("table", { class: "wb-values" }, h("thead", {}, h("tr", {}, ["value", "bytes", last].map((name) => h("th", { class: name === "bytes" ? "wb-right" : null }, name)))),
      h("tbody", {}, list.map(value))));
  /** Return the list of a fusion's neighbours, each with the reason why the fusion does not contain it. */
  const edges = (list) => h("section", {}, h("h4", {}, "Why it ends here"), h("ul", { class: "wb-edges" }, list.map((edge) => h("li", {},
    h("span", { class: "wb-muted" }, edge.before ? "before it " : "after it "), link(edge), h("div", { class: "wb-reason" }, edge.reason)))));
  const rail = foldButton("x", "Inspector", h("span", { "aria-hidden": "true" }, "▸"), h("span", { class: "wb-fold-words" }, " Inspector"));
  let wrapped = false;
  /** Return the section with a fusion's code, or with a button that requests the code. */
  const code = ({ fusion, code: found }) => h("section", { class: "wb-code" }, h("h4", {}, "Its code"), found
    ? [h("p", { class: "wb-muted" }, found.kind), h("div", { class: "wb-row" },
      navigator.clipboard && h("button", { onclick: () => { void navigator.clipboard.writeText(found.text); } }, "Copy"),
      h("button", { "aria-pressed": String(wrapped), class: wrapped ? "wb-pressed" : null, onclick: () => { wrapped = !wrapped; draw(); } }, "Wrap lines")),
    h("pre", { tabindex: "0", class: wrapped ? "wb-wrapped" : null, "aria-label": `code of ${fusion}` }, found.text)]
    : h("button", { onclick: () => model.send({ type: "code", fusion }) }, "Show the code"));

  // Effects come one by one. A redraw between pressing and releasing a button would lose the click.
  let pressed = false, late = false, asked = false;
  const stop = new AbortController(), { signal } = stop;
  el.addEventListener("pointerdown", () => { pressed = true; }, { signal });
  const release = () => {
    pressed = false;
    if (late) setTimeout(draw); // after the click
    late = false;
  };
  for (const end of ["pointerup", "pointercancel"]) addEventListener(end, release, { signal });

  function draw() {
    if (pressed) { late = true; return; }
    const shown = model.get("content");
    const parts = [];
    if (shown.title) {
      parts.push(h("div", { class: "wb-eyebrow" }, shown.eyebrow), h("h3", {}, shown.title), shown.about && h("p", { class: "wb-muted" }, shown.about), source(shown.source ?? {}));
      if (shown.facts?.length) parts.push(h("dl", { class: "wb-facts" }, shown.facts.map(([name, text]) => [h("dt", {}, name), h("dd", {}, text)])));
    }
    if (shown.edges?.length) parts.push(edges(shown.edges));
    if (shown.scope) parts.push(scope(shown.scope));
    for (const site of shown.sites ?? []) {
      parts.push(h("section", { class: "wb-site", "data-site": site.id },
        h("h4", {}, site.lever), site.note && h("p", { class: "wb-muted" }, site.note), site.options.map((one) => option(site, one))));
    }
    if (shown.parts?.length) {
      parts.push(h("section", {}, h("h4", {}, "The statements into which it was decomposed"),
        h("button", { class: "wb-each", onclick: () => model.send({ type: "unfold" }) }, "Show each in the graph"),
        h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "statement"), h("th", {}, "makes"), h("th", { class: "wb-right" }, "bytes"))),
          h("tbody", {}, shown.parts.map((one) => h("tr", {}, h("td", {}, one.name), h("td", {}, h("code", {}, one.value)), h("td", { class: "wb-right" }, one.bytes)))))));
    }
    if (shown.here?.length) {
      parts.push(h("section", { class: "wb-here" }, h("h4", {}, shown.sites?.length ? "Other sites here" : "Sites here"), h("ul", { class: "wb-edges" }, shown.here.map((site) => h("li", {},
        link(site), h("span", { class: "wb-muted" }, ` ${site.choice}, ${site.what} here`))))));
    }
    if (shown.fusion) parts.push(code(shown));
    parts.push(values("Reads", shown.inputs ?? [], "made by"), values("Makes", shown.outputs ?? [], "read by"));
    if (shown.hint) parts.push(h("h3", {}, "Nothing selected"), h("p", { class: "wb-muted" }, shown.hint), (shown.waiting || shown.best?.length > 0) && best(shown), keyList());
    if (shown.waiting && !asked) { asked = true; void afterGraph(el).then(() => model.send({ type: "best" })); }
    const { scrollTop } = el, held = /** @type {any} */ (el.contains(document.activeElement) ? document.activeElement : null)?.dataset?.preview;
    el.replaceChildren(rail, ...parts.filter(Boolean));
    // Effects come one by one. Keep the focus on its option when the panel is redrawn.
    if (held) /** @type {any} */ (el.querySelector(`[data-preview="${CSS.escape(held)}"]`))?.focus({ preventScroll: true });
    el.scrollTop = el.dataset.shown === shown.title ? scrollTop : 0;
    el.dataset.shown = shown.title ?? "";
  }
  const end = follow(model, ["content"], draw);
  return () => { stop.abort(); end(); };
}

export default { render };
