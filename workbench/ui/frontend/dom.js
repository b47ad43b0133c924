// Functions that the panels share: making elements, following traits, asking for previews.

/**
 * Make an element. Attributes beginning with `on` are listeners, `class` and `title` as in HTML, null is left out.
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

/** Prepare a panel's root: its classes, and keys that are typed here and not JupyterLab's. */
export function panel(/** @type {HTMLElement} */ el, /** @type {string} */ name) {
  el.classList.add("wb-panel", `wb-${name}`);
  el.dataset.lmSuppressShortcuts = "true";
}

/** A part that scrolls, by keys as well: `name` is what a screen reader calls it. */
export function scrolled(/** @type {string} */ name, /** @type {any} */ child, /** @type {Record<string, any>} */ more = {}) {
  const box = h("div", { class: "wb-scroll", tabindex: "0", role: "region", "aria-label": name, ...more }, child);
  if (child instanceof HTMLTableElement) fitted(box, child);
  return box;
}

/** A table that is wider than its room has its cells below each other, each under its column's name: nothing is out of sight. */
function fitted(/** @type {HTMLElement} */ box, /** @type {HTMLTableElement} */ table) {
  let asked = 0;
  const fit = () => {
    asked = 0;
    box.classList.remove("wb-cards");
    if (!box.clientWidth || table.scrollWidth <= box.clientWidth + 1) return;
    box.classList.add("wb-cards");
    const heads = Array.from(table.tHead?.rows[0]?.cells ?? [], (cell) => (cell.querySelector(".wb-unseen") ? "" : cell.innerText.replace(/[▴▾]/u, "").trim()));
    // What is no longer laid out as a table says so to a screen reader.
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

/** A line in parts of at most so many characters, broken after commas: a signature of all parameters is thousands long. */
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

/** Draw now and after every change of the traits named; the result undoes it. */
export function follow(model, names, draw) {
  for (const name of names) model.on(`change:${name}`, draw);
  draw();
  return () => { for (const name of names) model.off(`change:${name}`, draw); };
}

/**
 * Asks for previews: each a moment after something is pointed at, so that what is only passed asks for nothing; null ends it.
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

/** Previews of what has `data-preview` in a panel, a message as JSON: where it is pointed at, and where it has the focus. */
export function previewed(/** @type {any} */ model, /** @type {HTMLElement} */ el) {
  const ask = previews(model);
  const at = (/** @type {any} */ target) => target?.closest?.("[data-preview]")?.dataset.preview;
  const show = (/** @type {any} */ target) => { const found = at(target) ?? at(el.contains(document.activeElement) ? document.activeElement : null); ask(found ? JSON.parse(found) : null); };
  el.addEventListener("pointerover", (event) => show(event.target));
  el.addEventListener("pointerleave", () => show(null));
  el.addEventListener("focusin", (event) => show(event.target));
  el.addEventListener("focusout", (event) => { if (!el.contains(/** @type {any} */ (event.relatedTarget))) ask(null); });
}

/** A path that a line may end in only after its dots and slashes, as long as its parts fit. @returns {any[]} */
export function inParts(/** @type {string} */ path) {
  return path.split(/(?<=[./])(?=[A-Za-z_])/).flatMap((part, at) => (at ? [h("wbr"), part] : [part]));
}

/** Bytes for a person: binary units, three figures. `summary.human_bytes` writes the same. */
export function humanBytes(/** @type {number} */ bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = Math.abs(bytes), unit = 0;
  while (value >= 999.5 && unit < units.length - 1) { value /= 1024; unit++; }
  const digits = unit === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${bytes < 0 ? "−" : ""}${value.toFixed(digits)} ${units[unit]}`;
}
