// What panels share: bytes in words, and previews that wait a moment.

import assert from "node:assert/strict";
import { mock, test } from "node:test";

import { humanBytes, previews } from "../../workbench/ui/frontend/dom.js";

test("bytes are written as Python writes them", () => {
  for (const [bytes, text] of [[0, "0 B"], [1023, "1.00 KiB"], [1536, "1.50 KiB"], [15 * 2 ** 20, "15.0 MiB"], [3 * 2 ** 30, "3.00 GiB"], [-512, "−512 B"]])
    assert.equal(humanBytes(bytes), text);
});

test("what is pointed at for a moment is asked for once, and what is passed is not", () => {
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
