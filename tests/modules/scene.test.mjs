// The scene indexes a graph from Python by id, by column and by height, and unpacking does not change it.

import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateSync } from "node:zlib";

import { firstBelow, scene, unpacked } from "../../workbench/ui/frontend/graph/graph_scene.js";
import { data } from "./graph_data.mjs";

test("each id leads to its node, arc or mark, and an alias leads to its shared mark", () => {
  const made = scene(data());
  assert.deepEqual(made.at.get("t:c"), { kind: "node", index: 2 });
  assert.deepEqual(made.at.get("saved:a"), { kind: "arc", index: 0 });
  assert.deepEqual(made.at.get("copies:b2"), { kind: "mark", index: 0 });
  assert.equal(made.at.has("t:z"), false);
});

test("columns list their nodes in order, and each node lists its arcs and its neighbours", () => {
  const made = scene(data());
  assert.deepEqual(made.columns, [[0, 1], [2, 3]]);
  assert.deepEqual(made.arcsFrom.get(0), [0, 1]);
  assert.deepEqual(made.neighbours.get(1), { into: [0], out: [] });
});

test("columns are copied, so that they may begin at any byte of a buffer", () => {
  const given = data(), bytes = new Uint8Array(4 + 16);
  bytes.set(new Uint8Array(Int32Array.from([3, 2, 1, 0]).buffer), 4);
  given.tables.node.id = ["i", new DataView(bytes.buffer, 4)];
  assert.deepEqual(Array.from(scene(given).node.id), [3, 2, 1, 0]);
});

test("the visible nodes begin with the first node that ends below a height", () => {
  const { node, columns } = scene(data());
  for (const [y, place] of [[0, 0], [51, 0], [52, 1], [97, 1], [98, 2]]) assert.equal(firstBelow(columns[0], node, y), place, `at ${y}`);
});

test("the pieces of a fusion are joined by a line from the first to the last piece", () => {
  assert.deepEqual(scene(data()).spines, [{ from: 42, to: 84, side: 0, pieces: 2, fusion: 7 }]);
});

test("without a graph there is no scene", () => {
  assert.equal(scene({}), null);
});

test("unpacking a packed graph gives the same graph", async () => {
  const given = data(), columns = Object.values(given.tables).flatMap((table) => Object.values(table));
  const head = { ...given, tables: structuredClone(given.tables) };
  for (const table of Object.values(head.tables)) for (const column of Object.values(table)) column[1] = column[1].byteLength;
  const strings = Buffer.from([...given.strings, "≈"].join("\0"));
  const text = Buffer.from(JSON.stringify({ ...head, strings: strings.length })), length = Buffer.alloc(4);
  length.writeUInt32LE(text.length);
  const packed = deflateSync(Buffer.concat([length, text, strings, ...columns.map(([, view]) => Buffer.from(view.buffer))]));
  const found = await unpacked(packed);
  assert.deepEqual([found.strings.at(-1), found.height], ["≈", 200]);
  found.strings.pop();
  assert.deepEqual(scene(found), scene(data()));
});
