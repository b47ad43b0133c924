// Elements keep apart on the screen at every width and zoom, and a hit finds the element that is drawn there.

import assert from "node:assert/strict";
import { test } from "node:test";

import { distanceTo, Places } from "../../workbench/ui/frontend/graph/graph_hit_test.js";
import { HEAD, NARROWEST, scene } from "../../workbench/ui/frontend/graph/graph_scene.js";
import { data } from "./graph_data.mjs";

function view(width = 900, zoom = 1) {
  const made = new Places();
  Object.assign(made, { scene: scene(data()), width, heightPx: 400, zoom });
  return made;
}

test("columns are separate at any width, and leave space for arcs", () => {
  for (let width = 200; width < 2000; width += 37) {
    const { label, sides, width: all } = view(width).columns();
    const edges = [...label, ...sides[0], ...sides[1], all];
    assert.deepEqual(edges, edges.toSorted((a, b) => a - b), `at ${width}`);
    assert.ok(sides[1][0] - sides[0][1] > 70, `no room for arcs at ${width}`);
    assert.equal(all, Math.max(width, NARROWEST));
  }
});

test("at each zoom, a height in the graph is converted to the screen and back without change", () => {
  for (const zoom of [0.05, 0.7, 1, 2.5]) {
    const made = view(900, zoom);
    made.top = 123;
    for (const y of [HEAD, 77, 5000]) assert.ok(Math.abs(made.worldY(made.y(y)) - y) < 1e-6);
  }
});

test("columns are as wide as the view if the graph is zoomed out, and wider if it is zoomed in", () => {
  assert.equal(view(900, 0.1).columns().width, 900);
  assert.equal(view(900, 2).columns().width, 1800);
});

test("an element is hit at the position at which it is drawn", () => {
  const made = view(), { sides } = made.columns();
  const hit = (x, y) => made.hit(x, y)?.id ?? null;
  assert.equal(hit((sides[0][0] + sides[0][1]) / 2, made.y(40)), "t:a");
  assert.equal(hit((sides[1][0] + sides[1][1]) / 2, made.y(65)), "t:d");
  const [x0, y0, , , , , x1, y1] = made.curve(0);
  assert.equal(hit((x0 + x1) / 2, (y0 + y1) / 2), "saved:a");
  assert.equal(hit(2, 390), null);
});

test("the distance of a point to a curve is 0 on the curve, and the shortest distance elsewhere", () => {
  const straight = [0, 0, 10, 0, 20, 0, 30, 0];
  assert.ok(distanceTo(straight, 15, 0) < 1e-9);
  assert.ok(Math.abs(distanceTo(straight, 15, 4) - 4) < 1e-9);
  assert.ok(Math.abs(distanceTo(straight, -3, 4) - 5) < 1e-9);
});

test("a zoomed out graph shows the innermost modules with space for their names, and a near graph shows none", () => {
  const far = (zoom, heights = [70, 20, 40]) => {
    const made = view(900, zoom);
    made.scene.module.height.set(heights);
    return made.far ? made.bands() : [];
  };
  assert.deepEqual(far(1), []);
  assert.deepEqual(far(0.59), [1, 2]); // modules 1 and 2 have 12 and 24 pixels
  assert.deepEqual(far(0.3), [2]); // they have 6 and 12 pixels: the larger one is most of module 0
  assert.deepEqual(far(0.2), [0]); // only module 0 has space, 14 pixels
  assert.deepEqual(far(0.1), []);
  assert.deepEqual(far(0.5, [70, 40, 10]), [1]);
  assert.deepEqual(far(0.5, [70, 30, 10]), [0]); // the module with space is less than half of module 0
  assert.deepEqual(far(0.5, [70, 20, 20]), [0]); // neither module 1 nor 2 has space
});

test("a module is hit in the columns where it is shown, but not between the columns", () => {
  const made = view(900, 0.5), { sides, label } = made.columns(), y = made.y(80);
  for (const x of [label[0] + 5, sides[0][0] + 5, sides[1][0] + 5]) assert.equal(made.hit(x, y)?.id, "module:layers.0.mlp");
  assert.equal(made.hit((sides[0][1] + sides[1][0]) / 2, y), null);
  made.matches = new Set([1]);
  assert.equal(made.hit(sides[0][0] + 5, y)?.kind, "node");
});
