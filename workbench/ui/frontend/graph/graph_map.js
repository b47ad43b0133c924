// The overview beside the canvas: the whole graph, reduced, with a frame around the visible part. The pointer and keys move the frame.

import { isPlainKey } from "../dom.js";
import { CROSS, GHOST, HEAD, HEADING } from "./graph_scene.js";

/** @typedef {import("./graph_state.js").GraphState} GraphState */

export class Overview {
  /**
   * @param {GraphState} state
   * @param {{moved(): void, scroll(by: number): void, scrollTo(top: number): void, tool(name: string): void, redraw(): void}} actions
   *   functions of the view, which drags and keys call
   * @param {AbortSignal} signal removes the listeners
   */
  constructor(state, actions, signal) {
    this.state = state;
    this.actions = actions;
    this.grip = 0; // distance from the frame's upper edge to the pointer that drags it, in pixels
    this.canvas = document.createElement("canvas");
    this.canvas.className = "wb-map";
    this.canvas.tabIndex = 0;
    for (const [name, value] of Object.entries({ role: "scrollbar", "aria-label": "Part of the graph in view", "aria-orientation": "vertical", "aria-valuemin": "0", "aria-valuemax": "100" }))
      this.canvas.setAttribute(name, value);
    this.canvas.title = "The whole graph: drag the part in view, or use the arrow keys";
    state.pen.context.canvas.after(this.canvas);
    this.whole = document.createElement("canvas"); // drawn once per scene, theme and size
    this.drawnOf = null;
    this.wide = 0;
    const on = (type, handler) => this.canvas.addEventListener(type, handler, { signal });
    on("pointerdown", (event) => this.onDown(event));
    on("pointermove", (event) => { if (this.canvas.hasPointerCapture(event.pointerId)) this.moveTo(event.offsetY - this.grip); });
    on("keydown", (event) => this.onKey(event));
    for (const type of ["focus", "blur"]) on(type, actions.redraw);
  }

  /** Pixels of the map per pixel of height at zoom 1. */
  get scale() { return Math.min(1, (this.height - 2) / Math.max(1, this.state.places.scene.height - HEAD)); }
  get height() { return this.state.places.heightPx - HEAD; }

  /** Return the frame's upper edge and height on the map, in pixels. */
  window() {
    const { state: { places }, scale } = this, from = Math.max(0, (places.worldY(HEAD) - HEAD) * scale);
    const to = Math.min(places.scene.height - HEAD, places.worldY(places.heightPx) - HEAD) * scale;
    return { from, tall: Math.max(6, to - from) };
  }

  /** Scroll the view so that its upper edge shows the height `y` of the map. */
  moveTo(y) { this.actions.scrollTo((y / this.scale) * this.state.places.zoom); }

  onDown(event) {
    event.preventDefault();
    this.canvas.focus({ preventScroll: true });
    this.canvas.setPointerCapture(event.pointerId);
    const { from, tall } = this.window(), inside = event.offsetY >= from && event.offsetY <= from + tall;
    this.grip = inside ? event.offsetY - from : tall / 2;
    this.moveTo(event.offsetY - this.grip);
  }

  onKey(event) {
    const { actions } = this, page = (this.state.places.heightPx - HEAD) * 0.9;
    const act = {
      ArrowDown: () => actions.scroll(60), ArrowUp: () => actions.scroll(-60), PageDown: () => actions.scroll(page), PageUp: () => actions.scroll(-page),
      Home: () => actions.scroll(-Infinity), End: () => actions.scroll(Infinity), "+": () => actions.tool("in"), "=": () => actions.tool("in"), "-": () => actions.tool("out"),
    }[event.key];
    if (!act || !isPlainKey(event)) return;
    event.preventDefault();
    event.stopPropagation();
    actions.moved();
    act();
  }

  /** Paint the whole graph: a bar for each statement in its column's colour, the arcs between the columns, and a line for each layer. */
  paintWhole(wide, ratio) {
    const { state: { places, pen }, whole, scale } = this, c = /** @type {CanvasRenderingContext2D} */ (whole.getContext("2d")), { node, arc, sections } = places.scene, ink = pen.ink;
    whole.width = wide * ratio;
    whole.height = this.height * ratio;
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    const y = (value) => (value - HEAD) * scale, column = (wide - 8) * 0.36, left = [4, wide - 4 - column];
    for (const section of sections) { c.fillStyle = ink.rule; c.fillRect(0, y(section.y), wide, 1); }
    for (let i = 0; i < node.y.length; i++) {
      if (node.flags[i] & (HEADING | GHOST)) continue;
      c.fillStyle = ink.strokes[node.side[i]];
      c.fillRect(left[node.side[i]], y(node.y[i]), column, Math.max(0.75, node.height[i] * scale - 0.25));
    }
    c.lineWidth = 0.75;
    for (let i = 0; i < arc.y0.length; i++) {
      if (arc.shape[i] !== CROSS) continue;
      c.strokeStyle = ink.arcs[arc.style[i]];
      c.beginPath();
      c.moveTo(left[0] + column, y(arc.y0[i]));
      c.lineTo(left[1], y(arc.y1[i]));
      c.stroke();
    }
  }

  draw() {
    // While the theme changes, the canvas has no width for a moment. Use its last width, because nothing draws the map again afterwards.
    const { places, pen, ratio } = this.state, wide = this.wide = this.canvas.clientWidth || this.wide;
    if (!wide || !places.scene || this.height <= 0) return;
    const key = [places.scene, pen.ink, wide, this.height, ratio];
    if (!this.drawnOf || key.some((part, i) => part !== this.drawnOf[i])) {
      this.drawnOf = key;
      this.canvas.width = wide * ratio;
      this.canvas.height = this.height * ratio;
      this.paintWhole(wide, ratio);
    }
    const c = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d", { alpha: false }));
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.fillStyle = pen.paper;
    c.fillRect(0, 0, this.canvas.width, this.canvas.height);
    c.drawImage(this.whole, 0, 0);
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.drawChosen(c, wide);
    const { from, tall } = this.window(), room = Math.max(1, (places.scene.height - HEAD) * this.scale);
    const all = tall >= room - 1;
    c.fillStyle = pen.ink.select;
    c.globalAlpha = all ? 0 : 0.12;
    c.fillRect(0, from, wide, tall);
    c.globalAlpha = 1;
    c.strokeStyle = document.activeElement === this.canvas ? pen.ink.select : pen.ink.muted;
    c.lineWidth = document.activeElement === this.canvas ? 2 : 1;
    c.strokeRect(1, from + 1, wide - 2, Math.min(tall, this.height - from) - 2);
    const at = all ? 0 : Math.round(100 * from / Math.max(1, room - tall));
    this.canvas.setAttribute("aria-valuenow", String(Math.max(0, Math.min(100, at))));
    this.canvas.setAttribute("aria-valuetext", all ? "all of it" : `${Math.round(100 * tall / room)} % of it, from ${Math.round(100 * from / room)} %`);
  }

  /** Mark the selection and the search's matches on the map. */
  drawChosen(c, wide) {
    const { state: { places, pen }, scale } = this, { node, at } = places.scene, chosen = this.state.chosenPlace();
    const tick = (y, color) => { c.fillStyle = color; c.fillRect(0, (y - HEAD) * scale - 1, wide, 2.5); };
    for (const i of places.matches ?? []) tick(node.y[i] + node.height[i] / 2, pen.ink.found);
    if (chosen && at) tick(chosen.kind === "arc" ? places.scene.arc.y0[chosen.index] : node.y[chosen.index] + node.height[chosen.index] / 2, pen.ink.select);
  }
}
