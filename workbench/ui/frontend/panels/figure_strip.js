// The strip of figures: each says whether it is predicted or measured, and how it moved. Cells are of one size, whatever they say.
// While a plan is made, figures of the plan before it are grey.

import { follow, h, panel } from "../dom.js";

const UNCHANGING = ["accuracy", "offload", "overlap"]; // figures that keep no line for the change of their first value

/** @param {{model: any, el: HTMLElement}} context */
function render({ model, el }) {
  panel(el, "strip");
  const delta = (value) => value.delta && h("span", { class: `wb-delta wb-${value.delta_tone}`, title: value.delta_tip },
    value.delta, value.delta_vs && h("span", { class: "wb-vs" }, ` ${value.delta_vs}`));
  const line = (value, ...more) => h("div", { class: "wb-value", title: value.tip || null },
    h("span", { class: `wb-number ${value.tone ? `wb-${value.tone}` : ""}` }, value.text), h("span", { class: "wb-kind", title: value.kind }, value.kind), more);
  const lines = ({ key, values: [first, ...others] }) => (UNCHANGING.includes(key)
    ? [first, ...others].map((value) => line(value, delta(value)))
    : [line(first), h("div", { class: "wb-change" }, delta(first)), ...others.map((value) => line(value, delta(value)))]);
  return follow(model, ["content"], () => {
    const { figures = [] } = model.get("content");
    el.replaceChildren(...figures.map((figure) => h("div", { class: `wb-figure${figure.older ? " wb-older" : ""}`, "data-figure": figure.key },
      h("div", { class: "wb-figure-title" }, figure.title), h("div", { class: "wb-figure-values" }, ...lines(figure)))));
    // What a narrow cell cuts is said in full where one points at it.
    for (const cell of /** @type {Iterable<HTMLElement>} */ (/** @type {any} */ (el.children))) if (cell.scrollHeight > cell.clientHeight + 1) cell.title = cell.innerText;
  });
}

export default { render };
