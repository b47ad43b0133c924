// The search lists exact matches before partial ones, and also finds modules and statements that the scene does not show.

import assert from "node:assert/strict";
import { test } from "node:test";

import { entriesOf, rankOf, search } from "../../workbench/ui/frontend/graph/graph_search.js";

/** Return an entry of the search with these names. */
function entry(id, names, scope = "", more = {}) {
  return { id, names, scope, symbol: "", text: [...names, scope].join(" "), order: 0, ...more };
}

const scene = {
  strings: ["t:a", "t:b", "t:c", "softmax_backward", "softmax", "▸ sdpa", "", "a (2, 3), other (1)", "layers.0.attn  llama.py:12\nF.softmax(x)", "llama.py:3"],
  node: { id: [0, 1, 2], name: [3, 4, 5], full: [3, 4, 6], detail: [7, 6, 6], about: [8, 8, 9], y: [10, 20, 30], side: [0, 0, 1] },
};
const index = {
  strings: ["softmax", "exp", "sdpa"], origins: [["layers.0.attn", "llama.py:12 F.softmax(x)", "softmax"], ["layers.17", "llama.py:12", "exp"]],
  rows: { id: ["t:b", "t:t17", "t:a", "f:1"], name: [0, 1, 1, 2], full: [0, 1, 1, 2], values: ["b", "t17 t18", "a", ""], origin: [0, 1, 0, -1] },
};

test("names that equal the query come first, then names that begin with it, then other matches", () => {
  const entries = [entry("part", ["log_softmax"]), entry("text", ["exp"], "", { text: "f.softmax(x)" }), entry("begins", ["softmax_backward"]), entry("exact", ["softmax"])];
  assert.deepEqual(search(entries, " Softmax ").map(({ id }) => id), ["exact", "begins", "part", "text"]);
  assert.deepEqual(search(entries, ""), []);
});

test("a module path finds the statements in the module before those in a module whose name only begins so", () => {
  const inside = entry("a", ["mul"], "layers.17.mlp"), other = entry("b", ["mul"], "layers.170");
  assert.equal(rankOf(inside, "layers.17"), rankOf(inside, "mlp"));
  assert.ok(rankOf(inside, "layers.17") < rankOf(other, "layers.17"));
  assert.equal(rankOf(inside, "gelu"), -1);
});

test("several words find what has each of them, such as a layer and a symbol", () => {
  const entries = [entry("other", ["softmax"], "layers.1.attn"), entry("it", ["softmax"], "layers.17.attn"), entry("mul", ["mul"], "layers.17.attn")];
  assert.deepEqual(search(entries, "layers.17  softmax").map(({ id }) => id), ["it"]);
  assert.deepEqual(search(entries, "softmax layers.3"), []);
});

test("the scene alone is searched from top to bottom", () => {
  assert.deepEqual(search(entriesOf(scene), "softmax").map(({ id }) => id), ["t:b", "t:a"]);
  assert.deepEqual(search(entriesOf(scene), "sdpa").map(({ id }) => id), ["t:c"]);
  assert.deepEqual(search(entriesOf(scene), "layers.0.attn").map(({ id }) => id), ["t:a", "t:b"]);
});

test("each value of a statement that the scene does not show is found by its name", () => {
  for (const name of ["t17", "t18", "T17"]) assert.deepEqual(search(entriesOf(scene, index), name).map(({ id }) => id), ["t:t17"]);
  assert.deepEqual(search(entriesOf(scene, index), "layers.17").map(({ id }) => id), ["t:t17"]);
});

test("with the index, matches have the order of the index, and no statement is listed twice", () => {
  const found = search(entriesOf(scene, index), "softmax").map(({ id }) => id);
  assert.deepEqual(found, ["t:b", "t:a"]);
  assert.deepEqual(search(entriesOf(scene, index), "sdpa").map(({ id }) => id), ["f:1", "t:c"]);
});
