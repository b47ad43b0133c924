// The canvas's drawing context, the colours of the theme, and texts that are shortened to a width.

import { LIGHT, MONO } from "./graph_scene.js";

export class Pen {
  /** @param {CanvasRenderingContext2D} context */
  constructor(context) {
    this.context = context;
    this.ink = LIGHT;
    this.paper = LIGHT.paper;
    this.texts = /** @type {Map<string, string>} */ (new Map()); // shortened texts, by font, width and text
    this.fontKey = "";
  }

  font(size, family = MONO, weight = 400) {
    this.context.font = `${weight} ${size}px ${family}`;
    this.fontKey = `${weight} ${size} ${family === MONO ? "m" : "s"}`;
  }

  /** Return `text`, shortened with an ellipsis to at most `width` pixels in the current font. */
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
}
