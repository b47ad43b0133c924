// Arcs on the canvas: lines, labels and dots.

import { MONO, OFFLOADED, RECOMPUTED, SAVED, SIDE } from "./graph_scene.js";

/** @typedef {import("./graph_state.js").GraphState} GraphState */
/** @typedef {import("./graph_canvas.js").Pen} Pen */

export function drawArcs(/** @type {GraphState} */ state, low, high) {
  const { places, pen } = state;
  const c = pen.context, { arc, strings } = places.scene, ink = pen.ink;
  const chosen = places.scene.at.get(state.selected);
  const near = chosen?.kind === "node" ? new Set(places.scene.arcsFrom.get(chosen.index) ?? []) : null;
  const labels = /** @type {any[]} */ ([]);
  const drawn = places.labelled() ? null : new Set(); // keys of drawn lines: in a zoomed-out graph, many arcs are the same line
  for (let i = 0; i < arc.y0.length; i++) {
    if (Math.max(arc.y0[i], arc.y1[i]) < low || Math.min(arc.y0[i], arc.y1[i]) > high) continue;
    const strong = (chosen?.kind === "arc" && chosen.index === i) || near?.has(i) || (state.hover?.kind === "arc" && state.hover.index === i);
    const inner = arc.shape[i] === SIDE, asked = state.asked?.get(i), style = asked ?? arc.style[i], color = arcColor(state, i, style);
    if (drawn && !strong && asked === undefined) {
      const line = ((Math.round(places.y(arc.y0[i])) * 2 ** 20 + Math.round(places.y(arc.y1[i]))) * 4 + style) * 8 + arc.shape[i] * 2 + arc.side[i];
      if (drawn.has(line)) continue;
      drawn.add(line);
    }
    tracePath(pen, places.curve(i));
    if (places.away(i)) tracePath(pen, places.wayBack(i), true);
    c.lineWidth = inner ? (strong ? 2.5 : 1.25) : arc.width[i] * Math.max(0.5, Math.min(1, places.zoom * 1.5)) + (strong ? 1.5 : 0);
    c.strokeStyle = color;
    c.globalAlpha = strong ? 1 : near ? 0.35 : 0.85;
    c.setLineDash(style === RECOMPUTED ? [6, 4] : style === OFFLOADED ? [1.5, 4] : []);
    c.lineCap = style === OFFLOADED ? "round" : "butt";
    c.stroke();
    c.setLineDash([]);
    c.lineCap = "butt";
    c.globalAlpha = 1;
    if (!inner || strong || asked !== undefined) labels.push([i, color, strong, asked]);
    if (inner && places.zoom > 0.3) dot(state, i, color);
  }
  if (!places.labelled()) return;
  const scale = Math.max(1, places.zoom);
  pen.font(10 * scale, MONO, 500);
  for (const [i, color, strong, asked] of labels) {
    const [x0, y] = places.curve(i);
    const text = strings[arc.label[i]] + (asked === undefined ? "" : " …"), width = c.measureText(text).width + 10;
    const left = places.away(i) ? places.handle(i).x - width / 2 : arc.shape[i] !== SIDE ? x0 + 6 : arc.side[i] === 0 ? x0 + 16 : x0 - 16 - width;
    c.beginPath();
    c.roundRect(left, y - 7 * scale, width, 14 * scale, 7 * scale);
    c.fillStyle = pen.paper;
    c.fill();
    c.lineWidth = strong ? 1.5 : 0.75;
    c.strokeStyle = color;
    c.globalAlpha = strong ? 1 : 0.55;
    c.stroke();
    c.globalAlpha = 1;
    c.fillStyle = color;
    c.fillText(text, left + 5, y + 0.5);
  }
}

/** Return an arc's colour: the fusions' colour for a saved value between statements of one column, else the style's colour. */
export function arcColor(/** @type {GraphState} */ { places, pen }, index, style = places.scene.arc.style[index]) {
  return places.scene.arc.shape[index] === SIDE && style === SAVED ? pen.ink.fusion : pen.ink.arcs[style];
}

function dot(/** @type {GraphState} */ { places, pen }, index, color) {
  const c = pen.context, { x, y } = places.handle(index);
  c.beginPath();
  c.arc(x, y, 3.5, 0, 2 * Math.PI);
  c.fillStyle = pen.paper;
  c.fill();
  c.lineWidth = 1.5;
  c.strokeStyle = color;
  c.stroke();
}

/** Add a curve, as `Places.curve` returns it, to the path. Begin a new path unless `on` is set. */
function tracePath(/** @type {Pen} */ pen, /** @type {number[]} */ [x0, y0, a, b, p, q, x1, y1], on = false) {
  if (!on) pen.context.beginPath();
  pen.context.moveTo(x0, y0);
  pen.context.bezierCurveTo(a, b, p, q, x1, y1);
}
