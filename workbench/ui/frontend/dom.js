// Functions that the panels share: they make elements, follow traits and request previews.

/**
 * Make an element. Attributes that begin with `on` are listeners. Attributes and children that are null, undefined or false are left out.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag @param {Record<string, any>} [attributes] @param {...any} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, attributes = {}, ...children) {
  const el = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) el.addEventListener(name.slice(2), value);
    else el.setAttribute(name, value === true ? "" : value);
  }
  el.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return el;
}

/** Prepare a panel's root: add its classes, and keep keys that are typed in it from JupyterLab's shortcuts. */
export function panel(/** @type {HTMLElement} */ el, /** @type {string} */ name) {
  el.classList.add("wb-panel", `wb-${name}`);
  el.dataset.lmSuppressShortcuts = "true";
}

/** Return whether a key is pressed without Ctrl, Alt and Meta: with them, it belongs to the browser, as in Ctrl+C or Alt+Left. */
export function isPlainKey(/** @type {{ctrlKey?: boolean, altKey?: boolean, metaKey?: boolean}} */ event) {
  return !event.ctrlKey && !event.altKey && !event.metaKey;
}

/** Make a box that scrolls, also by keys. A screen reader calls it `name`. */
export function scrolled(/** @type {string} */ name, /** @type {any} */ child, /** @type {Record<string, any>} */ more = {}) {
  const box = h("div", { class: "wb-scroll", tabindex: "0", role: "region", "aria-label": name, ...more }, child);
  if (child instanceof HTMLTableElement) fitted(box, child);
  return box;
}

/** If a table is wider than its box, show each row as a card, with each cell under its column's name, so that no cell is out of view. */
function fitted(/** @type {HTMLElement} */ box, /** @type {HTMLTableElement} */ table) {
  let asked = 0;
  const fit = () => {
    asked = 0;
    box.classList.remove("wb-cards");
    if (!box.clientWidth || table.scrollWidth <= box.clientWidth + 1) return;
    box.classList.add("wb-cards");
    const heads = Array.from(table.tHead?.rows[0]?.cells ?? [], (cell) => (cell.querySelector(".wb-unseen") ? "" : cell.innerText.replace(/[▴▾]/u, "").trim()));
    // With the style of cards, a screen reader no longer recognizes a table. Roles restore this.
    table.setAttribute("role", "table");
    for (const row of table.rows) {
      row.setAttribute("role", "row");
      Array.from(row.cells).forEach((cell, i) => {
        cell.setAttribute("role", cell.tagName === "TH" ? "columnheader" : "cell");
        if (cell.tagName === "TD" && cell.dataset.head === undefined) cell.dataset.head = heads[i] ?? "";
      });
    }
  };
  const ask = () => { asked ||= requestAnimationFrame(fit); };
  new ResizeObserver(ask).observe(box);
  new MutationObserver(ask).observe(table, { childList: true, subtree: true });
}

/** Break a text of more than `most` characters after commas, such as a signature with thousands of characters. */
export function broken(/** @type {string} */ text, most = 160) {
  if (text.length <= most) return [text];
  const indent = " ".repeat(text.search(/\S|$/) + 6), parts = [];
  let part = "";
  for (const word of text.split(/(?<=, )/)) {
    if (part.trim() && part.length + word.length > most) { parts.push(part.trimEnd()); part = indent; }
    part += word;
  }
  return [...parts, part];
}

/** Event to a bar between two areas: it hides the area after it, or shows it again. */
export const FOLD = "thunder-workbench:fold";

/** Return whether the browser has stored that the area after the bar with this axis is hidden. */
export function isFolded(/** @type {string} */ axis) {
  try { return localStorage.getItem(`thunder-workbench:folded:${axis}`) === "1"; } catch { return false; /* the page may not use storage */ }
}

/** Hide the area after an app's bar with this axis, or show it again. `el` is a part of the app. */
export function fold(/** @type {HTMLElement} */ el, /** @type {string} */ axis, /** @type {boolean | undefined} */ on = undefined) {
  el.closest(".wb-app")?.querySelector(`.wb-split-${axis}`)?.dispatchEvent(new CustomEvent(FOLD, { detail: on }));
}

/** Make a button that hides the area after a bar, or shows it again. It is visible only where the bar is. */
export function foldButton(/** @type {string} */ axis, /** @type {string} */ name, /** @type {any[]} */ ...face) {
  return h("button", { class: "wb-fold-button", "data-folds": axis, "aria-expanded": String(!isFolded(axis)), "aria-label": name, title: `Show or hide: ${name}`, onclick: (event) => fold(event.currentTarget, axis) }, ...face);
}

/** Call `draw` now and after every change of the named traits. Return a function that ends this. */
export function follow(model, names, draw) {
  for (const name of names) model.on(`change:${name}`, draw);
  draw();
  return () => { for (const name of names) model.off(`change:${name}`, draw); };
}

/**
 * Return a function that requests a preview after a delay, so that an element that the pointer only passes gets none. Null ends the preview.
 * @param {any} model @returns {(message: Record<string, any> | null) => void}
 */
export function previews(model) {
  let timer = 0, asked = "null";
  return (message) => {
    clearTimeout(timer);
    const key = JSON.stringify(message);
    timer = window.setTimeout(() => {
      if (key === asked) return;
      asked = key;
      model.send({ type: "preview", ...message });
    }, message ? 120 : 300); // milliseconds
  };
}

/** Request a preview for the element under the pointer, else for the focused one, if it has `data-preview` (a message as JSON). */
export function previewed(/** @type {any} */ model, /** @type {HTMLElement} */ el) {
  const ask = previews(model);
  const at = (/** @type {any} */ target) => target?.closest?.("[data-preview]")?.dataset.preview;
  // After a click, the page may redraw under a pointer that stays: what is then under it was not pointed at.
  let still = false;
  const show = (/** @type {any} */ target) => { if (still) return; const found = at(target) ?? at(el.contains(document.activeElement) ? document.activeElement : null); ask(found ? JSON.parse(found) : null); };
  el.addEventListener("pointerover", (event) => show(event.target));
  el.addEventListener("pointerleave", () => { still = false; show(null); });
  el.addEventListener("click", () => { ask(null); still = true; }, true); // some buttons keep their clicks from the row around them
  el.addEventListener("pointermove", (event) => { if (still && (event.movementX || event.movementY)) { still = false; show(event.target); } });
  el.addEventListener("focusin", (event) => show(event.target));
  el.addEventListener("focusout", (event) => { if (!el.contains(/** @type {any} */ (event.relatedTarget))) ask(null); });
}

/** Wait until the graph of the app is drawn: users look at it first, and other work would delay it. Wait two seconds at most. */
export async function afterGraph(/** @type {HTMLElement} */ el) {
  const began = performance.now(), pause = (/** @type {number} */ ms) => new Promise((next) => setTimeout(next, ms));
  const drawn = () => {
    const app = el.closest(".wb-app");
    return el.isConnected && (!app || /** @type {any} */ (app.querySelector(".wb-graph"))?.__workbench?.view.drawn > 0);
  };
  while (!drawn() && performance.now() - began < 2000) await pause(30);
  if (el.closest(".wb-app")) await pause(50); // the frame of the graph comes first
}

/** Return a path with possible line breaks after its dots, slashes and arrows. @returns {any[]} */
export function inParts(/** @type {string} */ path) {
  return path.split(/(?<=[./>])(?=[A-Za-z_])/).flatMap((part, at) => (at ? [h("wbr"), part] : [part]));
}

/** Return a peak that the user typed. A number up to 100 without a unit is a percentage: no program has a peak of so few bytes. */
export function asPeak(/** @type {string} */ text) {
  const typed = text.trim();
  return /^\d+(\.\d+)?$/.test(typed) && Number(typed) <= 100 ? `${typed}%` : typed;
}

/** Return bytes as text, with a binary unit and up to three digits, like `summary.human_bytes`. */
export function humanBytes(/** @type {number} */ bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = Math.abs(bytes), unit = 0;
  while (value >= 999.5 && unit < units.length - 1) { value /= 1024; unit++; }
  const digits = unit === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${bytes < 0 ? "−" : ""}${value.toFixed(digits)} ${units[unit]}`;
}
