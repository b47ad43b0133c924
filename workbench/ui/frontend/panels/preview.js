// The preview: one line of fixed height, with what an option that is pointed at or has the focus would change.

import { follow, h, panel } from "../dom.js";

const HINT = "Hover to preview a change.";

/** @param {{model: any, el: HTMLElement}} context */
function render({ model, el }) {
  panel(el, "preview");
  el.setAttribute("role", "status");
  return follow(model, ["content"], () => {
    const { what = "", figures = [], how = "", bad = false } = model.get("content");
    el.classList.toggle("wb-idle", !what);
    el.replaceChildren(...(what ? [
      h("strong", { class: bad ? "wb-bad" : null }, what),
      ...figures.map(({ name, text, tone }) => h("span", {}, h("span", { class: "wb-muted" }, `${name} `), h("b", { class: tone ? `wb-${tone}` : null }, text))),
      h("span", { class: "wb-muted wb-how" }, how),
    ] : [h("span", { class: "wb-muted" }, HINT)]));
    el.title = what ? el.innerText : "";
  });
}

export default { render };
