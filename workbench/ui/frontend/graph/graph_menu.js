// The context menu of an element of the graph. The right button opens it, and a key opens it for the selected element.

import { h, isPlainKey } from "../dom.js";
import { COMPOSITE, LOOP, MOMENT } from "./graph_scene.js";

/** Tabs below the graph that follow the selection, and the names of the items that open them. */
const TABS = { "Show in the outline": "Outline", "Show in the trace": "Trace", "Show on the memory curve": "Curve and peak" };

/** @typedef {{text: string, note?: string, preview?: Record<string, any>, act: () => void}} Item */

/** Return the menu's items for `target`, an element as `Places.hit` returns it. The items act on `view`. @returns {Item[]} */
export function itemsOf(/** @type {any} */ view, /** @type {any} */ target) {
  const { choice, strings, sections, node } = view.places.scene, { readOnly } = view.state, turned = view.turned(target);
  const items = /** @type {Item[]} */ ([]);
  for (let i = 0; turned && i < choice.id.length; i++) {
    if (choice[turned.kind][i] !== turned.index) continue;
    const id = strings[choice.id[i]];
    const note = `${strings[choice.lever[i]]}, set to: ${strings[choice.now[i]]}`, layers = choice.layers[i];
    for (const option of strings[choice.others[i]].split("\n")) {
      const item = (text, more) => items.push({ text, note, preview: { id, option, ...more }, act: () => view.model.send({ type: "choose", id, option, ...more }) });
      item(`Choose ${option}`, {});
      if (layers > choice.count[i]) item(`Choose ${option} in all ${layers} layers`, { scope: "all" });
    }
  }
  if (target.kind === "module") items.push({ text: "Zoom in", act: () => view.approach(target.index) });
  const section = view.sectionOf(target);
  if (section >= 0 && !readOnly) {
    const { count, identical, stem } = sections[section], what = stem.startsWith(LOOP) ? "repeats" : "layers";
    items.push({ text: count > 1 ? `Unfold ${count} identical ${what}` : `Fold ${identical} identical ${what}`, act: () => view.fold(section) });
  }
  if (target.kind === "node" && node.flags[target.index] & (COMPOSITE | MOMENT) && !readOnly)
    items.push({ text: strings[node.name[target.index]].startsWith("▾") ? "Show as one" : "Show each", act: () => view.unfold(target.index) });
  if (target.kind === "section") return items;
  if (target.id !== view.state.selected) items.push({ text: "Select", act: () => view.select(target.id) });
  if (!readOnly && target.kind !== "module")
    for (const [text, name] of Object.entries(TABS)) items.push({ text, act: () => { view.select(target.id); view.model.send({ type: "tab", name }); } });
  // A page that was not loaded over a secure connection has no clipboard.
  if (navigator.clipboard) items.push({ text: "Copy id", note: target.id, act: () => { void navigator.clipboard.writeText(target.id); } });
  return items;
}

/**
 * Open a menu over a view. Arrow keys move the focus, Enter activates an item, and Escape, Tab or a click elsewhere closes the menu.
 * @param {HTMLElement} el @param {Item[]} items @param {{x: number, y: number, height: number}} at position, and height of the area for the menu
 * @param {{preview: (message: any) => void, closed: () => void, back: HTMLElement}} on `back` gets the focus if the menu has it when it closes
 * @returns {() => void} closes the menu
 */
export function openMenu(el, items, at, on) {
  let open = true;
  const close = () => {
    if (!open) return;
    open = false; // removing the focused menu sends `focusout`, which calls this function again
    const held = menu.contains(document.activeElement);
    menu.remove();
    if (held) on.back.focus({ preventScroll: true });
    on.preview(null);
    on.closed();
  };
  const buttons = items.map(({ text, note, preview, act }) => h("button", {
    role: "menuitem", tabindex: "-1", type: "button",
    onclick: () => { close(); act(); },
    onpointermove: (event) => event.currentTarget.focus({ preventScroll: true }),
    onfocus: () => on.preview(preview ?? null),
  }, text, note && h("span", { class: "wb-muted" }, note)));
  const menu = h("div", { class: "wb-menu", role: "menu", "aria-label": "What can be done here" }, buttons);
  const go = (/** @type {number} */ to) => buttons[(to + buttons.length) % buttons.length].focus();
  menu.addEventListener("keydown", (event) => {
    const here = buttons.indexOf(/** @type {any} */ (document.activeElement));
    event.stopPropagation(); // keep the menu's keys from JupyterLab
    if (event.key === "Enter" || event.key === " " || !isPlainKey(event)) return; // these belong to the focused button, and to the browser
    event.preventDefault();
    if (event.key === "ArrowDown") go(here + 1);
    else if (event.key === "ArrowUp") go(here - 1);
    else if (event.key === "Home") go(0);
    else if (event.key === "End") go(-1);
    else if (event.key === "Escape" || event.key === "Tab") close();
  });
  menu.addEventListener("focusout", (event) => { if (!menu.contains(/** @type {any} */ (event.relatedTarget))) close(); });
  menu.addEventListener("contextmenu", (event) => { event.preventDefault(); event.stopPropagation(); });
  menu.style.maxHeight = `${at.height - 8}px`;
  el.append(menu);
  menu.style.left = `${Math.max(4, Math.min(at.x, el.clientWidth - menu.offsetWidth - 4))}px`;
  menu.style.top = `${Math.max(4, Math.min(at.y, at.height - menu.offsetHeight - 4))}px`;
  buttons[0].focus({ preventScroll: true });
  return close;
}
