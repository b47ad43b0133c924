// The waterfall of a compilation: a row for each stage and each fusion, drawn during the compilation.

import { follow, h, panel, scrolled } from "../dom.js";

const PARTS = ["definition", "Dynamo", "AOTAutograd", "Inductor", "kernels", "segmentation", "NVRTC", "first launch"];

/** @param {{model: any, el: HTMLElement}} context */
function render({ model, el }) {
  panel(el, "compile");
  const head = h("div", { class: "wb-compile-head", role: "status" }), legend = h("div", { class: "wb-legend" }), body = h("div", { class: "wb-waterfall" });
  const box = scrolled("Waterfall of the compilation", body);
  el.replaceChildren(head, legend, box);
  let received = 0, ticking = 0, colors = new Map();

  const seconds = (value) => (value >= 1 ? `${value.toFixed(2)} s` : value >= 0.001 ? `${(value * 1000).toFixed(value < 0.01 ? 1 : 0)} ms` : `${(value * 1e6).toFixed(0)} µs`);
  const color = (part) => `var(--wb-part-${colors.get(part) ?? 0})`;

  function words() {
    const { state, cannot_run: never, open, fusions, hidden, cached, attributed, seconds: spent } = model.get("content");
    const far = state === "busy" ? spent + (performance.now() - received) / 1000 : spent;
    if (state === "none") return [never || "Nothing was compiled yet. Compile & run shows here where the time goes, while it happens."];
    const told = [h("strong", {}, { busy: "Compiling", done: "Compiled", failed: "Failed", cancelled: "Cancelled", finished: "Compiled" }[state]), ` ${state === "busy" ? "for" : "in"} ${seconds(far)}`];
    if (open) told.push(`, now fusion ${open.index + 1} of ${open.count}: `, h("code", {}, open.name), ` for ${seconds(Math.max(0, far - open.start_s))}, ${open.count - open.index - 1} left`);
    else if (fusions) told.push(`, ${fusions} fusion${fusions === 1 ? "" : "s"}`);
    if (cached) told.push(`, ${cached} from a cache`);
    if (hidden) told.push(`, the ${fusions - hidden} longest shown`);
    if (attributed !== null && attributed !== undefined) told.push(h("span", { class: "wb-muted" }, `  ·  ${(100 * attributed).toFixed(1)} % attributed, measured`));
    return told;
  }

  function draw() {
    const content = model.get("content"), { rows, state, open } = content;
    received = performance.now();
    const seen = new Set(rows.flatMap((row) => (row.kind === "fusion" ? row.pieces.map(({ part }) => part) : [])).filter(Boolean));
    colors = new Map([...PARTS.filter((part) => seen.has(part)), ...[...seen].filter((part) => !PARTS.includes(part))].map((part, i) => [part, i % 6 + 1]));
    legend.replaceChildren(...[...colors.keys()].map((part) => h("span", {}, h("i", { style: `background:${color(part)}` }), part)));
    const all = open ? [...rows, { name: open.name, kind: "fusion", open: true, seconds: 0, pieces: [{ part: "", start_s: open.start_s, end_s: content.seconds }] }] : rows;
    const most = Math.max(1e-6, content.seconds);
    body.replaceChildren(...all.map((row) => h("div", { class: `wb-fall wb-fall-${row.kind} ${row.open ? "wb-open" : ""}`, "data-row": row.name },
      h("span", { class: "wb-fall-name", title: row.name }, row.name, row.cached && h("span", { class: "wb-tag" }, "cached")),
      h("span", { class: "wb-fall-time" }, row.open ? "…" : seconds(row.seconds)),
      h("span", { class: "wb-fall-track" }, row.pieces.map(({ part, start_s, end_s }) => h("i", {
        title: `${row.name}${part ? `, ${part}` : ""}: ${seconds(end_s - start_s)} from ${seconds(start_s)}`,
        style: `left:${100 * start_s / most}%;width:max(1px, ${100 * (end_s - start_s) / most}%);background:${row.kind === "stage" ? "var(--wb-part-stage)" : color(part)}`,
      }))))));
    box.hidden = !all.length;
    head.replaceChildren(...words());
    clearInterval(ticking);
    // Scroll to the last row during the compilation, and to the first row at its end.
    if (state !== "busy" && el.dataset.state === "busy") box.scrollTop = 0;
    el.dataset.state = state;
    if (state === "busy") {
      box.scrollTop = box.scrollHeight;
      ticking = setInterval(() => head.replaceChildren(...words()), 100);
    }
  }
  const stop = follow(model, ["content"], draw);
  return () => { clearInterval(ticking); stop(); };
}

export default { render };
