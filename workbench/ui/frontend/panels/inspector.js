// The inspector: the selected element, its sites, and the effect of each option on the whole plan.

import { follow, h, panel, previewed } from "../dom.js";

/** @param {{model: any, el: HTMLElement}} context */
function render({ model, el }) {
  panel(el, "inspector");
  const go = (id) => () => model.send({ type: "go", id });
  previewed(model, el);
  const link = ({ id, label }) => (id ? h("button", { class: "wb-link", onclick: go(id), title: "show it in the graph" }, label) : h("span", {}, label));

  const source = ({ place, text }) => (place || text) && h("div", { class: "wb-source" },
    text && h("code", {}, text), place && h("div", { class: "wb-muted" }, place));

  const effect = (figures) => h("dl", { class: "wb-effect" }, figures.map(({ name, text, tone }) => [
    h("dt", {}, name), h("dd", { class: tone ? `wb-${tone}` : null }, text)]));

  const option = (site, one) => h("div", { class: `wb-option ${one.current ? "wb-current" : ""}` },
    h("button", {
      class: "wb-choose", "data-preview": JSON.stringify({ id: site.id, option: one.name }), disabled: Boolean(one.reason) || one.current, "aria-pressed": one.current ? "true" : "false",
      onclick: () => model.send({ type: "choose", id: site.id, option: one.name }),
    }, one.name, one.current && h("span", { class: "wb-tag" }, "now")),
    one.means && h("div", { class: "wb-means" }, one.means),
    one.reason && h("div", { class: "wb-reason" }, one.reason),
    one.figures && effect(one.figures),
    one.moved?.length > 0 && h("div", { class: "wb-moved" }, h("span", { class: "wb-muted" }, "also moves: "),
      one.moved.map((other, i) => [i ? ", " : "", link(other)]), one.more ? h("span", { class: "wb-muted" }, ` and ${one.more} more`) : ""),
    one.waiting && h("div", { class: "wb-muted" }, "computing…"));

  /** Make two buttons: a choice applies to all layers, repeats or waits that are shown as one, or only to the shown one. */
  const scope = ({ of, count, alone }) => {
    const all = of === "waits" ? `all ${count} waits of one moment` : `all ${count} identical ${of}`;
    const one = `this ${of.slice(0, -1)} alone`;
    const button = (text, on) => h("button", { class: on === alone ? "wb-pressed" : null, "aria-pressed": String(on === alone), onclick: () => model.send({ type: "alone", on }) }, text);
    return h("div", { class: "wb-scope", role: "group", "aria-label": "What a choice holds for" }, h("span", { class: "wb-muted" }, "Choose for "), button(all, false), button(one, true));
  };

  const value = (one) => h("tr", {},
    h("td", {}, h("code", {}, one.name)), h("td", {}, one.shape), h("td", {}, one.dtype), h("td", { class: "wb-right" }, one.bytes),
    h("td", {}, one.ends.map((end, i) => [i ? ", " : "", link(end)])));
  const values = (title, list, last) => list.length > 0 && h("section", {}, h("h4", {}, title),
    h("table", {}, h("thead", {}, h("tr", {}, ["value", "shape", "type", "bytes", last].map((name) => h("th", { class: name === "bytes" ? "wb-right" : null }, name)))),
      h("tbody", {}, list.map(value))));

  return follow(model, ["content"], () => {
    const shown = model.get("content");
    const parts = [];
    if (shown.title) {
      parts.push(h("div", { class: "wb-eyebrow" }, shown.eyebrow), h("h3", {}, shown.title), shown.about && h("p", { class: "wb-muted" }, shown.about), source(shown.source ?? {}));
      if (shown.facts?.length) parts.push(h("dl", { class: "wb-facts" }, shown.facts.map(([name, text]) => [h("dt", {}, name), h("dd", {}, text)])));
    }
    if (shown.scope) parts.push(scope(shown.scope));
    for (const site of shown.sites ?? []) {
      parts.push(h("section", { class: "wb-site", "data-site": site.id },
        h("h4", {}, site.lever), site.note && h("p", { class: "wb-muted" }, site.note), site.options.map((one) => option(site, one))));
    }
    if (shown.parts?.length) {
      parts.push(h("section", {}, h("h4", {}, "What it was made into"),
        h("button", { class: "wb-each", onclick: () => model.send({ type: "unfold" }) }, "Show each in the graph"),
        h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "statement"), h("th", {}, "makes"), h("th", { class: "wb-right" }, "bytes"))),
          h("tbody", {}, shown.parts.map((one) => h("tr", {}, h("td", {}, one.name), h("td", {}, h("code", {}, one.value)), h("td", { class: "wb-right" }, one.bytes)))))));
    }
    if (shown.here?.length) {
      parts.push(h("section", { class: "wb-here" }, h("h4", {}, "What can be chosen here"), h("ul", { class: "wb-edges" }, shown.here.map((site) => h("li", {},
        link(site), h("span", { class: "wb-muted" }, ` ${site.choice}, ${site.what} here`))))));
    }
    if (shown.fusion) {
      parts.push(h("section", { class: "wb-code" }, h("h4", {}, "Its code"), shown.code
        ? [h("p", { class: "wb-muted" }, shown.code.kind), h("pre", { tabindex: "0", "aria-label": `code of ${shown.fusion}` }, shown.code.text)]
        : h("button", { onclick: () => model.send({ type: "code", fusion: shown.fusion }) }, "Show the code")));
    }
    if (shown.edges?.length) {
      parts.push(h("section", {}, h("h4", {}, "Why it ends where it does"), h("ul", { class: "wb-edges" }, shown.edges.map((edge) => h("li", {},
        h("span", { class: "wb-muted" }, edge.before ? "before it " : "after it "), link(edge), h("div", { class: "wb-reason" }, edge.reason))))));
    }
    parts.push(values("Reads", shown.inputs ?? [], "made by"), values("Makes", shown.outputs ?? [], "read by"));
    if (shown.keys) {
      parts.push(h("h3", {}, "Nothing selected"), h("p", { class: "wb-muted" }, shown.hint),
        h("dl", { class: "wb-keys" }, shown.keys.map(([key, text]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)])));
    }
    const { scrollTop } = el, held = /** @type {any} */ (el.contains(document.activeElement) ? document.activeElement : null)?.dataset?.preview;
    el.replaceChildren(...parts.filter(Boolean));
    // Effects come one by one. Keep the focus on its option when the panel is redrawn.
    if (held) /** @type {any} */ (el.querySelector(`[data-preview="${CSS.escape(held)}"]`))?.focus({ preventScroll: true });
    el.scrollTop = el.dataset.shown === shown.title ? scrollTop : 0;
    el.dataset.shown = shown.title ?? "";
  });
}

export default { render };
