// Arcs on the canvas, and what is selected: all that says where values go.

import { Places } from "./graph_places.js";
import { HEAD, LIGHT, MONO, OFFLOADED, RECOMPUTED, SAVED, SIDE } from "./graph_scene.js";

/** @typedef {import("./graph_scene.js").Model} Model */

export class Arcs extends Places {
  model = /** @type {Model} */ (/** @type {any} */ (null));
  el = /** @type {HTMLElement} */ (/** @type {any} */ (null));
  canvas = /** @type {HTMLCanvasElement} */ (/** @type {any} */ (null));
  context = /** @type {CanvasRenderingContext2D} */ (/** @type {any} */ (null));
  ink = LIGHT;
  paper = LIGHT.paper;
  hover = /** @type {any} */ (null);
  asked = /** @type {Map<number, number> | undefined} */ (undefined);
  texts = /** @type {Map<string, string>} */ (new Map()); // texts as they were shortened

  font(size, family = MONO, weight = 400) {
    this.context.font = `${weight} ${size}px ${family}`;
    this.fontKey = `${weight} ${size} ${family === MONO ? "m" : "s"}`;
  }

  /** `text` shortened with an ellipsis to fit `width` in the current font. */
  shorten(text, width) {
    const key = `${this.fontKey}|${Math.floor(width)}|${text}`;
    let known = this.texts.get(key);
    if (known !== undefined) return known;
    known = text;
    if (this.context.measureText(text).width > width) {
      let low = 0, high = text.length;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (this.context.measureText(`${text.slice(0, middle).trimEnd()}…`).width <= width) low = middle;
        else high = middle - 1;
      }
      known = low ? `${text.slice(0, low).trimEnd()}…` : "";
    }
    if (this.texts.size > 20000) this.texts.clear();
    this.texts.set(key, known);
    return known;
  }

  drawArcs(low, high) {
    const c = this.context, { arc, strings } = this.scene, ink = this.ink;
    const chosen = this.scene.at.get(this.model.get("selected"));
    const near = chosen?.kind === "node" ? new Set(this.scene.arcsFrom.get(chosen.index) ?? []) : null;
    const labels = /** @type {any[]} */ ([]);
    const drawn = this.labelled() ? null : new Set(); // from far away many arcs are the same line
    for (let i = 0; i < arc.y0.length; i++) {
      if (Math.max(arc.y0[i], arc.y1[i]) < low || Math.min(arc.y0[i], arc.y1[i]) > high) continue;
      const strong = (chosen?.kind === "arc" && chosen.index === i) || near?.has(i) || (this.hover?.kind === "arc" && this.hover.index === i);
      const inner = arc.shape[i] === SIDE, asked = this.askedOf(i), style = asked ?? arc.style[i], color = this.arcColor(i, style);
      if (drawn && !strong && asked === undefined) {
        const line = ((Math.round(this.y(arc.y0[i])) * 2 ** 20 + Math.round(this.y(arc.y1[i]))) * 4 + style) * 8 + arc.shape[i] * 2 + arc.side[i];
        if (drawn.has(line)) continue;
        drawn.add(line);
      }
      this.tracePath(this.curve(i));
      if (this.away(i)) this.tracePath(this.wayBack(i), true);
      c.lineWidth = inner ? (strong ? 2.5 : 1.25) : arc.width[i] * Math.max(0.5, Math.min(1, this.zoom * 1.5)) + (strong ? 1.5 : 0);
      c.strokeStyle = color;
      c.globalAlpha = strong ? 1 : near ? 0.35 : 0.85;
      c.setLineDash(style === RECOMPUTED ? [6, 4] : style === OFFLOADED ? [1.5, 4] : []);
      c.lineCap = style === OFFLOADED ? "round" : "butt";
      c.stroke();
      c.setLineDash([]);
      c.lineCap = "butt";
      c.globalAlpha = 1;
      if (!inner || strong || asked !== undefined) labels.push([i, color, strong, asked]);
      if (inner && this.zoom > 0.3) this.dot(i, color);
    }
    if (!this.labelled()) return;
    const scale = Math.max(1, this.zoom);
    this.font(10 * scale, MONO, 500);
    for (const [i, color, strong, asked] of labels) {
      const [x0, y] = this.curve(i);
      const text = strings[arc.label[i]] + (asked === undefined ? "" : " …"), width = c.measureText(text).width + 10;
      const left = this.away(i) ? this.handle(i).x - width / 2 : arc.shape[i] !== SIDE ? x0 + 6 : arc.side[i] === 0 ? x0 + 16 : x0 - 16 - width;
      c.beginPath();
      c.roundRect(left, y - 7 * scale, width, 14 * scale, 7 * scale);
      c.fillStyle = this.paper;
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

  /** What goes from fusion to fusion has the fusions' colour; green, orange and blue are for what crosses. */
  arcColor(index, style = this.scene.arc.style[index]) {
    return this.scene.arc.shape[index] === SIDE && style === SAVED ? this.ink.fusion : this.ink.arcs[style];
  }

  /** The style that was asked for of an arc and is not planned yet; undefined where nothing was. */
  askedOf(index) { return this.asked?.get(index); }

  dot(index, color) {
    const c = this.context, { x, y } = this.handle(index);
    c.beginPath();
    c.arc(x, y, 3.5, 0, 2 * Math.PI);
    c.fillStyle = this.paper;
    c.fill();
    c.lineWidth = 1.5;
    c.strokeStyle = color;
    c.stroke();
  }

  /** @param {number[]} ends as `curve` gives them */
  tracePath([x0, y0, a, b, p, q, x1, y1], on = false) {
    if (!on) this.context.beginPath();
    this.context.moveTo(x0, y0);
    this.context.bezierCurveTo(a, b, p, q, x1, y1);
  }

  /** The selected statement, what it reads from and who reads it. */
  drawSelection() {
    const chosen = this.scene.at.get(this.model.get("selected"));
    const focused = document.activeElement === this.canvas || /** @type {any} */ (this.el.getRootNode()).activeElement === this.canvas;
    if (chosen?.kind === "node") {
      const { into = [], out = [] } = this.scene.neighbours.get(chosen.index) ?? {};
      for (const other of into) this.outline(other, this.ink.texts[0], 1.25);
      for (const other of out) this.outline(other, this.ink.arcs[0], 1.25);
      this.outline(chosen.index, this.ink.select, focused ? 2.5 : 2);
    } else if (chosen?.kind === "mark") {
      this.outline(this.scene.mark.node[chosen.index], this.ink.select, focused ? 2.5 : 2);
    } else if (chosen?.kind === "arc") {
      const { arc } = this.scene;
      for (const end of [arc.source[chosen.index], arc.target[chosen.index]]) if (end >= 0) this.outline(end, this.arcColor(chosen.index), 1.75);
    }
    if (this.hover?.kind === "node") this.outline(this.hover.index, this.ink.muted, 1);
  }

  outline(index, color, width) {
    const c = this.context, { node } = this.scene, [x0, x1] = this.columns().sides[node.side[index]];
    const height = Math.max(2, node.height[index] * this.zoom), top = this.y(node.y[index]);
    if (top > this.heightPx || top + height < HEAD) return;
    c.beginPath();
    c.roundRect(x0 - 1, top - 1, x1 - x0 + 2, height + 2, Math.min(4, height / 2));
    c.lineWidth = width;
    c.strokeStyle = color;
    c.stroke();
  }
}
