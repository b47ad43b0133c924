// The page writes bytes as Python does, and requests a preview after the pointer has stayed on an element.

import assert from "node:assert/strict";
import { mock, test } from "node:test";

import { asPeak, humanBytes, previews } from "../../workbench/ui/frontend/dom.js";

test("the page and Python write bytes equally", () => {
  for (const [bytes, text] of [[0, "0 B"], [1023, "1.00 KiB"], [1536, "1.50 KiB"], [15 * 2 ** 20, "15.0 MiB"], [3 * 2 ** 30, "3.00 GiB"], [-512, "−512 B"]])
    assert.equal(humanBytes(bytes), text);
});

test("a peak without a unit is a percentage if it is at most 100", () => {
  for (const [typed, peak] of [["70", "70%"], [" 62.5 ", "62.5%"], ["100", "100%"], ["101", "101"], ["70%", "70%"], ["48 MiB", "48 MiB"], ["", ""], ["x", "x"]])
    assert.equal(asPeak(typed), peak);
});

test("a preview is requested once, after the pointer has stayed on an element, and not if the pointer passes", () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  globalThis.window = /** @type {any} */ (globalThis);
  const sent = [];
  const ask = previews({ send: (message) => sent.push(message) });
  ask({ id: "a" });
  mock.timers.tick(50);
  ask({ id: "b" });
  mock.timers.tick(150);
  ask({ id: "b" });
  mock.timers.tick(150);
  ask(null);
  mock.timers.tick(400);
  ask(null);
  mock.timers.tick(400);
  assert.deepEqual(sent, [{ type: "preview", id: "b" }, { type: "preview" }]);
  mock.timers.reset();
});
