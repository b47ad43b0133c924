// Outlines on the canvas: the selected statement, its neighbours, and the hovered statement.

import { arcColor } from "./graph_arcs.js";
import { HEAD } from "./graph_scene.js";

/** @typedef {import("./graph_state.js").GraphState} GraphState */

/** Outline the selected statement with its neighbours, or the statements of a selected mark or arc. Also outline the hovered statement. */
export function drawSelection(/** @type {GraphState} */ state) {
  const { places, pen } = state;
  const chosen = places.scene.at.get(state.selected);
  const { canvas } = pen.context;
  const focused = document.activeElement === canvas || /** @type {any} */ (canvas.getRootNode()).activeElement === canvas;
  if (chosen?.kind === "node") {
    const { into = [], out = [] } = places.scene.neighbours.get(chosen.index) ?? {};
    for (const other of into) outline(state, other, pen.ink.texts[0], 1.25);
    for (const other of out) outline(state, other, pen.ink.arcs[0], 1.25);
    outline(state, chosen.index, pen.ink.select, focused ? 2.5 : 2);
  } else if (chosen?.kind === "mark") {
    outline(state, places.scene.mark.node[chosen.index], pen.ink.select, focused ? 2.5 : 2);
  } else if (chosen?.kind === "arc") {
    const { arc } = places.scene;
    for (const end of [arc.source[chosen.index], arc.target[chosen.index]]) if (end >= 0) outline(state, end, arcColor(state, chosen.index), 1.75);
  }
  if (state.hover?.kind === "node") outline(state, state.hover.index, pen.ink.muted, 1);
}

/** Outline a statement. */
export function outline(/** @type {GraphState} */ { places, pen }, index, color, width) {
  const c = pen.context, { node } = places.scene, [x0, x1] = places.columns().sides[node.side[index]];
  const height = Math.max(2, node.height[index] * places.zoom), top = places.y(node.y[index]);
  if (top > places.heightPx || top + height < HEAD) return;
  c.beginPath();
  c.roundRect(x0 - 1, top - 1, x1 - x0 + 2, height + 2, Math.min(4, height / 2));
  c.lineWidth = width;
  c.strokeStyle = color;
  c.stroke();
}
