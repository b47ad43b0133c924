// The graph's legend. A button in the bar below the graph opens it.

import { CROSS, HEADING, OFFLOADED, RECOMPUTED, SAVED, SIDE } from "./graph_scene.js";

/** @param {string} what @returns {string} */
const sample = (what) => `<svg width="46" height="18" viewBox="0 0 46 18" aria-hidden="true">${what}</svg>`;

/** Return the legend's rows, each with a sample and its meaning. `bars` adds rows for a program with collectives. */
function legendRows(ink, bars) {
  const line = (color, more = "") => sample(`<path d="M2 13 C20 13 26 5 44 5" fill="none" stroke="${color}" stroke-width="2.5" ${more}/>`);
  const box = (fill, stroke, more = "") => sample(`<rect x="3" y="2" width="40" height="14" rx="3" fill="${fill}" stroke="${stroke}" ${more}/>`);
  const pill = (text, color, fill, paint, more = "") => sample(`<rect x="1" y="2.5" width="44" height="13" rx="6.5" fill="${fill}" stroke="${color}" ${more}/>`
    + `<text x="23" y="12" text-anchor="middle" font-size="8.5" font-family="monospace" fill="${paint}">${text}</text>`);
  const [saved, again, away] = ink.arcs;
  return [
    [line(saved), "Saved: kept in memory from the forward until the backward reads it. Wider: more bytes."],
    [line(again, 'stroke-dasharray="6 4"'), "Recomputed: not kept; the backward runs its statements again."],
    [line(away, 'stroke-dasharray="1.5 4" stroke-linecap="round"'), "Offloaded: copied to the CPU, through the lane between the columns, and back when it is read."],
    [pill("16 KiB", saved, "none", saved), "Bytes of what an arc stands for; × 2: in each of two identical layers."],
    [sample(`<path d="M8 4 C30 4 30 14 8 14" fill="none" stroke="${ink.fusion}" stroke-width="1.5"/><circle cx="8" cy="4" r="3" fill="none" stroke="${ink.fusion}" stroke-width="1.5"/>`),
      "The cut: a value that one fusion makes and another reads. The value is written to memory, or computed again. Click its circle to select it."],
    [box(ink.fusionFill, ink.fusion), "Fusion: the statements inside are compiled to one kernel. Pieces of one fusion are joined by a line at the side."],
    [box(ink.fills[0], ink.strokes[0]), "A statement of the forward, which runs downwards."],
    [box(ink.fills[1], ink.strokes[1]), "A statement of the backward, which runs upwards, beside the forward statement that it differentiates."],
    [sample(`<path d="M6 2 V13 H40 V4 M36 8 L40 3 L44 8" fill="none" stroke="${ink.muted}" stroke-width="1.5"/>`), "The end of the forward, where the backward begins."],
    [sample(`<rect x="1" y="3" width="44" height="12" fill="${ink.band}"/><text x="6" y="12.5" font-size="10" fill="${ink.ink}">▸ ×4</text>`), "A layer, or identical ones shown as one: click to unfold or fold them. Beside its name: how it differs from the layers above."],
    [box(ink.fills[1], again, 'stroke-dasharray="4 3"'), "Computed again in the backward; without colour: no longer made in the forward."],
    [sample(`<rect x="1" y="3" width="44" height="12" rx="3" fill="${ink.fills[0]}" stroke="${ink.strokes[0]}"/><text x="6" y="12" font-size="8.5" font-family="monospace" fill="${ink.texts[0]}">mlp</text>`),
      "When zoomed out: a module, with the number of its statements in each column, and the bytes that it saves for the backward. Double-click to zoom in."],
    [pill("keep", ink.fusionText, "none", ink.fusionText), "A site at a statement, with its current option."],
    [pill("drop", ink.select, ink.select, ink.paper), "A choice that differs from Thunder's own."],
    [pill("stock", ink.muted, "none", ink.muted, 'stroke-dasharray="2 2"'), "A site at which no other option is legal. Point at it to see why."],
    ...(bars ? [
      [sample(`<path d="M6 9 H40" stroke="${away}" stroke-width="2.5"/><circle cx="6" cy="9" r="3.5" fill="${ink.paper}" stroke="${away}" stroke-width="1.5"/><circle cx="40" cy="9" r="3.5" fill="${away}"/>`),
        "A collective in flight, from its issue (open end) to its wait (filled end). Other dashes: another process group."],
      [pill("17 waits", ink.strokes[1], ink.fills[1], ink.texts[1]), "Adjacent waits, shown as one; a double click shows each."],
    ] : []),
    [pill("▸ sdpa", ink.strokes[0], ink.fills[0], ink.texts[0]), "One statement of the program that was decomposed into several, shown as one. A double click shows each of them; another double click shows one again."],
    [box("none", ink.select, 'stroke-width="2.5"'), "Selected. Outlined in the column's colour: the statements whose results it reads. Outlined in green: the statements that read its results."],
    [box(ink.found, ink.found), "Found by the search."],
    ["", "Views (reshapes, transposes, slices, shallow_copy) have no memory of their own and are left out. Lines pass through them, and their sites are shown at the statements that make or read their storage. A button below shows the views."],
[box("none", ink.select), "At the right edge: the whole graph, with the region in view. Drag this region, or press arrow keys there, to move the view."],
  ];
}

/** Return what a scene has of the most important lines and boxes: for each, the end of its CSS class, and its meaning. */
export function keysOf(scene) {
  const { arc, node, bar } = scene, styles = new Set(arc.style.filter((_, i) => arc.shape[i] === CROSS));
  return [
    styles.has(SAVED) && ["saved", "saved"],
    styles.has(RECOMPUTED) && ["again", "recomputed"],
    styles.has(OFFLOADED) && ["away", "on the CPU"],
    node.flags.some((flags) => flags & HEADING) && ["fusion", "fusion"],
    arc.shape.includes(SIDE) && ["cut", "between fusions"],
    bar.side.length > 0 && ["wire", "on its way, from issue to wait"],
  ].filter(Boolean);
}

const LEAST = 200; // pixels: the least width and height of an inspector that the legend may cover

/** Open or close the legend of a view. It covers the inspector, and the graph only where no inspector is beside it. `bars` says whether the program has collectives. */
export function toggleLegend(/** @type {HTMLElement} */ el, ink, /** @type {boolean} */ bars) {
  const app = el.closest(".wb-app"), inspector = app?.querySelector(".wb-inspector");
  const there = (app ?? el).querySelector(".wb-legend-box:not(.wb-key-sheet)"), button = /** @type {HTMLElement} */ (el.querySelector('[data-do="legend"]'));
  button.setAttribute("aria-expanded", String(!there));
  if (there) { there.remove(); return; }
  const box = document.createElement("div");
  box.className = "wb-legend-box";
  box.setAttribute("role", "note");
  box.tabIndex = 0;
  for (const [picture, words] of legendRows(ink, bars)) {
    const row = document.createElement("div"), text = document.createElement("span");
    row.innerHTML = picture;
    text.textContent = words;
    row.append(text);
    box.append(row);
  }
  box.addEventListener("keydown", (event) => { if (event.key === "Escape") { toggleLegend(el, ink, bars); button.focus(); } });
  const beside = app && inspector && inspector.clientWidth >= LEAST && inspector.clientHeight >= LEAST && inspector.getBoundingClientRect().left >= el.getBoundingClientRect().right;
  (beside ? app : el).append(box);
  if (beside) {
    const place = () => {
      if (!box.isConnected) { sizes.disconnect(); return; }
      const { left, top, width, height } = inspector.getBoundingClientRect(), base = box.offsetParent ?? app, outer = base.getBoundingClientRect();
      Object.assign(box.style, { left: `${left - outer.left - base.clientLeft + base.scrollLeft}px`, top: `${top - outer.top - base.clientTop + base.scrollTop}px`, width: `${width}px`, height: `${height}px` });
    };
    const sizes = new ResizeObserver(place);
    sizes.observe(inspector);
    sizes.observe(app);
  }
  box.focus({ preventScroll: true });
}
