// Where everything is on the screen, and what is at a place of it.

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

test("columns stand apart inside of any width, and the boxes keep their share", () => {
  for (let width = 200; width < 2000; width += 37) {
    const { label, sides, width: all } = view(width).columns();
    const edges = [...label, ...sides[0], ...sides[1], all];
    assert.deepEqual(edges, edges.toSorted((a, b) => a - b), `at ${width}`);
    assert.ok(sides[1][0] - sides[0][1] > 70, `no room for arcs at ${width}`);
    assert.equal(all, Math.max(width, NARROWEST));
  }
});

test("heights on the screen and in the graph are each other's inverse, whatever the zoom", () => {
  for (const zoom of [0.05, 0.7, 1, 2.5]) {
    const made = view(900, zoom);
    made.top = 123;
    for (const y of [HEAD, 77, 5000]) assert.ok(Math.abs(made.worldY(made.y(y)) - y) < 1e-6);
  }
});

test("zooming out leaves the columns as wide as the view, and zooming in makes them wider", () => {
  assert.equal(view(900, 0.1).columns().width, 900);
  assert.equal(view(900, 2).columns().width, 1800);
});

test("what is pointed at is found where it is drawn", () => {
  const made = view(), { sides } = made.columns();
  const hit = (x, y) => made.hit(x, y)?.id ?? null;
  assert.equal(hit((sides[0][0] + sides[0][1]) / 2, made.y(40)), "t:a");
  assert.equal(hit((sides[1][0] + sides[1][1]) / 2, made.y(65)), "t:d");
  const [x0, y0, , , , , x1, y1] = made.curve(0);
  assert.equal(hit((x0 + x1) / 2, (y0 + y1) / 2), "saved:a");
  assert.equal(hit(2, 390), null);
});

test("the distance to a curve is nothing on it and what it is beside it", () => {
  const straight = [0, 0, 10, 0, 20, 0, 30, 0];
  assert.ok(distanceTo(straight, 15, 0) < 1e-9);
  assert.ok(Math.abs(distanceTo(straight, 15, 4) - 4) < 1e-9);
  assert.ok(Math.abs(distanceTo(straight, -3, 4) - 5) < 1e-9);
});

test("from far away the innermost modules with room for their names are shown, and near none", () => {
  const far = (zoom, heights = [70, 20, 40]) => {
    const made = view(900, zoom);
    made.scene.module.height.set(heights);
    return made.far ? made.bands() : [];
  };
  assert.deepEqual(far(1), []);
  assert.deepEqual(far(0.59), [1, 2]); // 12 and 24 pixels
  assert.deepEqual(far(0.3), [2]); // 6 and 12: the larger is most of the whole
  assert.deepEqual(far(0.2), [0]); // 14 pixels of the whole
  assert.deepEqual(far(0.1), []);
  assert.deepEqual(far(0.5, [70, 40, 10]), [1]);
  assert.deepEqual(far(0.5, [70, 30, 10]), [0]); // the one that has room is less than half of it
  assert.deepEqual(far(0.5, [70, 20, 20]), [0]); // neither has room
});

test("a module answers where it is shown, and the arcs between the columns do, too", () => {
  const made = view(900, 0.5), { sides, label } = made.columns(), y = made.y(80);
  for (const x of [label[0] + 5, sides[0][0] + 5, sides[1][0] + 5]) assert.equal(made.hit(x, y)?.id, "module:2");
  assert.equal(made.hit((sides[0][1] + sides[1][0]) / 2, y), null);
  made.matches = new Set([1]);
  assert.equal(made.hit(sides[0][0] + 5, y)?.kind, "node");
});
