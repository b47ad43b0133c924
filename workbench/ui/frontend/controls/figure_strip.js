// The strip of figures: a band of fixed height, in which each tile shows its first figure and that figure's change.
// A tile shows its further figures as far as they fit, and all of them while it is under the pointer or has the focus.
// While a plan is made, the figures of the previous plan are grey.

import { follow, h, panel } from "../dom.js";

/** @param {{model: any, el: HTMLElement}} context */
function render({ model, el }) {
  panel(el, "strip");
  const note = (text) => text && h("span", { class: "wb-figure-note" }, text);
  const line = (value, kind, tip) => {
    const words = h("span", { class: "wb-kind" }, kind), count = /^\d+$/.test(value.text); // no line break between a count and its noun
    return h("div", { class: "wb-value" },
      h("span", { class: `wb-number ${value.tone ? `wb-${value.tone}` : ""}` }, value.text, count && [" ", words]), !count && [" ", words],
      value.delta && [" ", h("span", { class: `wb-delta wb-${value.delta_tone}` }, value.delta)],
      value.delta_vs && [" ", h("span", { class: "wb-vs" }, value.delta_vs)],
      note(tip), value.delta_tip !== value.delta_vs && note(value.delta_tip));
  };
  /** Return a title that can break only after its first word. The CSS hides the second line. */
  const named = (title) => { const [, word, rest] = /^(\w+)(.*)$/.exec(title); return [word, rest.startsWith(",") ? h("wbr") : " ", h("span", {}, rest.trim())]; };
  const tile = ({ key, title, older, values: [first, ...others] }) => h("div",
    { class: `wb-figure${older ? " wb-older" : ""}`, "data-figure": key, role: "group", tabindex: "0", "aria-label": title },
    h("div", { class: "wb-figure-box" },
      h("div", { class: "wb-figure-title" }, named(title), " ", h("span", { class: "wb-kind" }, first.kind)),
      h("div", { class: "wb-figure-values" }, line(first, "", first.tip),
        others.map((value, at) => line(value, value.kind, value.tip !== (others[at - 1] ?? first).tip && value.tip)))));
  return follow(model, ["content"], () => {
    const focused = Array.from(el.children).indexOf(/** @type {Element} */ (document.activeElement));
    el.replaceChildren(...(model.get("content").figures ?? []).map(tile));
    if (focused >= 0) /** @type {HTMLElement | undefined} */ (el.children[focused])?.focus({ preventScroll: true });
  });
}

export default { render };
