// Help on the open tab: a button at the end of the row of tabs, and the note that the button opens.

import { foldButton, follow, h, panel } from "../dom.js";

/** @param {{model: any, el: HTMLElement}} context */
function render({ model, el }) {
  panel(el, "help");
  const note = h("div", { class: "wb-note-box", role: "note", tabindex: "0", hidden: true });
  const button = h("button", { class: "wb-help-button", "aria-expanded": "false", title: "What can I do here?", "aria-label": "What can I do here?", onclick: () => open(note.hidden) },
    h("span", { class: "wb-help-words" }, "What can I do here?"), h("span", { class: "wb-help-sign" }, "?"));
  el.replaceChildren(h("div", { class: "wb-help-bar" }, button, foldButton("y", "the tabs below the graph", h("span", { "aria-hidden": "true" }, "▾"))), note);
  function open(/** @type {boolean} */ on) {
    note.hidden = !on;
    button.setAttribute("aria-expanded", String(on));
    if (on) note.focus({ preventScroll: true });
  }
  el.addEventListener("keydown", (event) => { if (event.key === "Escape" && !note.hidden) { event.stopPropagation(); open(false); button.focus(); } });
  return follow(model, ["content"], () => {
    const { title = "", lines = [] } = model.get("content");
    note.setAttribute("aria-label", `About ${title}`);
    note.replaceChildren(h("strong", {}, title), ...lines.map((line) => h("p", {}, line)));
  });
}

export default { render };
