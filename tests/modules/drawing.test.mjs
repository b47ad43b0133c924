// Texts on the canvas do not overlap module names, and are shortened to fit the available width.

import assert from "node:assert/strict";
import { test } from "node:test";

import { drawLines, range } from "../../workbench/ui/frontend/graph/graph_drawing.js";

const measureText = (text) => ({ width: 6 * text.length });

/** Return the texts of a source line from `start` to `end`, with their heights; a module's box is from 60 to 84. */
function words(start, end, zoom = 1, sections = []) {
  const written = [];
  const context = { fillRect() {}, fillText: (text, _, y) => written.push([text, y]), measureText };
  const places = {
    far: true, zoom, scaleX: 1, width: 600, bands: () => [0], y: (y) => y, labelled: () => false, columns: () => ({ label: [10, 160] }),
    scene: {
      strings: ["h = up(h)", "", "up"], sections, block: { symbol: [2] }, module: { y: [60], height: [24] },
      line: { y: [start], height: [end - start], text: [0], place: [1], short: [1], block: [0], count: [1] },
    },
  };
  const pen = { context, ink: {}, font() {}, shorten: (text) => text };
  drawLines(/** @type {any} */ ({ places, pen }), 0, 400);
  return written;
}

test("a source line that overlaps a module's box has its text above the box, because the box has the module's name", () => {
  assert.equal(words(40, 58).length, 1);
  for (const start of [30, 42, 54]) {
    for (const end of [58, 70, 84, 120]) {
      for (const [text, y] of words(start, end)) assert.ok(y < 56, `${text} at ${y}, from ${start} to ${end}`);
    }
  }
});

test("a source line has its text below the heading that covers it, also if a section without a heading begins right above", () => {
  const [[, y]] = words(30, 58, 0.4, [{ y: 20, height: 10 }, { y: 30, height: 100 }]);
  assert.ok(y >= 30 + 14 + 5, `the text is at ${y}, and the heading ends at 44`);
});

test("a heading with little space is shortened, and names the first and the last layer", () => {
  const pen = /** @type {any} */ ({ context: { measureText } }), layers = { first: "model.layers.0", last: "model.layers.31", count: 32 };
  const said = [600, 150, 20].map((room) => range(pen, layers, room));
  assert.deepEqual(said, ["model.layers.0 … model.layers.31", "model.layers.0 … 31", "layers.0 … 31"]);
  const one = { first: "transformer.h.3", last: "transformer.h.3", count: 1 };
  assert.deepEqual([600, 20].map((room) => range(pen, one, room)), ["transformer.h.3", "h.3"]);
});
