// The keys of the graph. The inspector lists them while nothing is selected, and the key ? opens a sheet of them.

import { h } from "../dom.js";

/** Keys, what they do, and whether they change choices or folds. Such keys do nothing in a saved view. @type {[string, string, boolean?][]} */
const KEYS = [
  ["click", "select"],
  ["double click", "change an arc or a label to its next option", true],
  ["right click", "open a menu"],
  ["↑ ↓", "next statement or arc"],
  ["← →", "along an arc"],
  ["space", "change the selection to its next option", true],
  ["⇧ F10", "open the menu of the selection"],
  ["o", "fold or unfold identical layers", true],
  ["/", "search"],
  ["u  r", "undo, redo", true],
  ["e", "export, from everywhere in the app", true],
  ["l  i  d", "in a tab: show or hide outline, inspector, tabs below", true],
  ["f  1", "show all, actual size"],
  ["+  −", "zoom in, zoom out"],
  ["?", "open or close this list"],
];

/** Return the list of keys. `still` leaves out those that change something. */
export function keyList(still = false) {
  return h("dl", { class: "wb-keys" }, KEYS.filter(([, , changes]) => !still || !changes).map(([key, text]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)]));
}

/** Open or close the sheet of keys of a view. Escape, ? or leaving the sheet closes it, and `back` gets the focus. */
export function toggleKeys(/** @type {HTMLElement} */ el, /** @type {HTMLElement} */ back, /** @type {boolean} */ still) {
  const there = el.querySelector(".wb-key-sheet");
  if (there) { back.focus({ preventScroll: true }); return; } // leaving the sheet removes it
  const sheet = h("div", { class: "wb-legend-box wb-key-sheet", role: "dialog", "aria-label": "Keys of the graph", tabindex: "0" }, keyList(still));
  sheet.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" && event.key !== "?") return;
    event.stopPropagation();
    event.preventDefault();
    toggleKeys(el, back, still);
  });
  sheet.addEventListener("focusout", () => sheet.remove());
  el.append(sheet);
  sheet.focus({ preventScroll: true });
}
