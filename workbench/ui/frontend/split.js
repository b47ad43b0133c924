// A bar between two areas of the app in a tab or on the full screen. The pointer or the arrow keys move it, and Enter hides the area after it.
// The browser stores its position, and whether the area is hidden.

import { FOLD, isFolded, isPlainKey, panel } from "./dom.js";

const LEAST = 0.12, STEP = 0.03; // minimum share of each area, and step of an arrow key; as shares of the space

/** @param {{model: any, el: HTMLElement}} context */
function render({ model, el }) {
  const axis = model.get("axis"), key = `thunder-workbench:split:${axis}`, across = axis === "x";
  panel(el, "split");
  el.classList.add(`wb-split-${axis}`);
  el.tabIndex = 0;
  el.setAttribute("role", "separator");
  el.setAttribute("aria-orientation", across ? "vertical" : "horizontal");
  el.setAttribute("aria-label", across ? "Width of the graph" : "Height of the graph");
  el.title = "Drag, or use the arrow keys; double-click for the default size; Enter hides or shows the area after the bar";

  const app = () => /** @type {HTMLElement | null} */ (el.closest(".wb-app"));
  let share = NaN, folded = false;
  const fold = (/** @type {boolean} */ on) => {
    folded = on;
    app()?.classList.toggle(`wb-folded-${axis}`, on);
    for (const button of app()?.querySelectorAll(`[data-folds="${axis}"]`) ?? []) button.setAttribute("aria-expanded", String(!on));
    try { localStorage.setItem(`thunder-workbench:folded:${axis}`, on ? "1" : "0"); } catch { /* the page may not use storage */ }
  };
  const tell = () => {
    const { start, at, space } = parts();
    if (space > 0) el.setAttribute("aria-valuenow", String(Math.round(100 * (Number.isNaN(share) ? (at - start) / space : share))));
    if (Number.isNaN(share)) app()?.style.removeProperty(`--wb-split-${axis}`);
    else app()?.style.setProperty(`--wb-split-${axis}`, String(share));
  };
  const put = (value) => {
    if (folded) fold(false);
    share = Number.isNaN(value) ? value : Math.max(LEAST, Math.min(1 - LEAST, value));
    tell();
    try {
      if (Number.isNaN(share)) localStorage.removeItem(key);
      else localStorage.setItem(key, String(share));
    } catch { /* the page may not use storage */ }
  };
  /** Return start and end of the nearest flexible element before the bar, and the space that it shares with the one after the bar; in pixels. */
  const parts = () => {
    const [before, after] = ["previousElementSibling", "nextElementSibling"].map((side) => {
      let part = /** @type {any} */ (el)[side];
      while (part && !Number.parseFloat(getComputedStyle(part).flexGrow)) part = part[side];
      return (part ?? el).getBoundingClientRect();
    });
    return across ? { start: before.left, at: before.right, space: before.width + after.width } : { start: before.top, at: before.bottom, space: before.height + after.height };
  };
  let grabbed = 0;
  const stop = new AbortController(), { signal } = stop;
  el.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    el.focus();
    el.setPointerCapture(event.pointerId);
    grabbed = (across ? event.clientX : event.clientY) - parts().at;
  }, { signal });
  el.addEventListener("pointermove", (event) => {
    if (!el.hasPointerCapture(event.pointerId)) return;
    const { start, space } = parts();
    put(((across ? event.clientX : event.clientY) - grabbed - start) / space);
  }, { signal });
  el.addEventListener("dblclick", () => put(NaN), { signal });
  el.addEventListener(FOLD, (/** @type {any} */ event) => fold(event.detail ?? !folded), { signal });
  el.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && isPlainKey(event)) { event.preventDefault(); event.stopPropagation(); fold(!folded); return; }
    const by = { ArrowLeft: -STEP, ArrowUp: -STEP, ArrowRight: STEP, ArrowDown: STEP }[event.key];
    if (by === undefined || !isPlainKey(event)) return;
    event.preventDefault();
    event.stopPropagation();
    if (folded) { fold(false); return; }
    const { start, at, space } = parts();
    put((at - start) / space + by);
  }, { signal });
  (async () => {
    while (!el.isConnected && !signal.aborted) await new Promise((next) => setTimeout(next, 30));
    try { share = Number.parseFloat(localStorage.getItem(key) ?? ""); } catch { /* the page may not use storage */ }
    tell();
    if (signal.aborted) return;
    fold(isFolded(axis));
    // A click on the title of a place shows the place.
    if (!across) app()?.addEventListener("click", ({ target }) => { if (folded && /** @type {any} */ (target).closest?.(".wb-places > .lm-TabBar .lm-TabBar-tab")) fold(false); }, { signal });
  })();
  return () => stop.abort();
}

export default { render };
