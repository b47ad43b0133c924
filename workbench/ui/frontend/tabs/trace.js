// The trace as text, with the user's source line beside each statement. The page contains only the lines in view and some around them.

import { broken, follow, h, panel, scrolled } from "../dom.js";

const LINE = 18; // height of a line, in pixels
const WIDEST = 130; // limit of the minimum width of the statements beside their source, in characters

/** @param {{model: any, el: HTMLElement}} context */
function render({ model, el }) {
  panel(el, "trace");
  const search = h("input", { type: "search", placeholder: "Search trace", "aria-label": "Search trace", spellcheck: "false" });
  const count = h("span", { class: "wb-muted", "aria-live": "polite" });
  const inner = h("div", { class: "wb-lines" });
  const box = scrolled("The trace as text", inner, { class: "wb-scroll wb-text" });
  el.replaceChildren(h("div", { class: "wb-row" }, search, count), box);
  let shown = [];

  function filter() {
    const { lines = [] } = model.get("content"), query = search.value.trim().toLowerCase();
    const found = lines.map((line, number) => ({ ...line, whole: line.text, number: String(number + 1) }))
      .filter(({ text, source }) => !query || `${text} ${source}`.toLowerCase().includes(query));
    shown = found.flatMap((line) => broken(line.text).map((text, part) => (part ? { ...line, text, source: "", number: "" } : { ...line, text })));
    count.textContent = !lines.length ? "computing the trace…" : query ? `${found.length} of ${lines.length} lines` : `${lines.length} lines`;
    inner.style.height = `${shown.length * LINE}px`;
    // The box scrolls sideways if it is too narrow. Lines without a source, such as signatures, extend over the source column.
    const most = (key, some) => shown.reduce((width, line) => (some(line) ? Math.max(width, line[key].length) : width), 0);
    const text = Math.min(WIDEST, most("text", ({ source }) => source)), source = most("source", () => true);
    inner.style.setProperty("--wb-source", `${source}ch`);
    inner.style.setProperty("--wb-text", `${text}ch`);
    inner.style.minWidth = `calc(${Math.max(text + source, most("text", ({ source }) => !source))}ch + 92px)`;
    draw();
  }
  function draw() {
    const marked = new Set([model.get("selected"), ...(model.get("marked") ?? [])]), first = Math.max(0, Math.floor(box.scrollTop / LINE) - 10);
    const rows = shown.slice(first, first + Math.ceil(box.clientHeight / LINE) + 20);
    inner.replaceChildren(...rows.map((line, i) => h("div", {
      class: `wb-line ${line.source ? "" : "wb-alone"} ${line.id && marked.has(line.id) ? "wb-chosen" : ""} ${line.own || line.id ? "wb-can" : ""}`, style: `top:${(first + i) * LINE}px`,
      onclick: line.own ? () => model.send({ type: "unveil", id: line.own }) : line.id ? () => model.send({ type: "go", id: line.id }) : null,
    }, h("span", { class: "wb-no" }, line.number), h("code", { title: line.whole }, line.text), h("code", { class: "wb-muted", title: line.source }, line.source))));
  }
  let late = false; // whether the tab was hidden when the selection changed; when it is shown, scroll to the selection
  function reveal() {
    late = !box.clientHeight;
    const [first = model.get("selected")] = model.get("marked") ?? [];
    const row = shown.findIndex((line) => line.id && line.id === first);
    if (row >= 0 && (row * LINE < box.scrollTop || row * LINE > box.scrollTop + box.clientHeight - LINE)) box.scrollTop = row * LINE - box.clientHeight / 2;
    draw();
  }
  search.addEventListener("input", filter);
  box.addEventListener("scroll", draw);
  const sizes = new ResizeObserver(() => (late ? reveal() : draw()));
  sizes.observe(box);
  for (const name of ["selected", "marked"]) model.on(`change:${name}`, reveal);
  const stop = follow(model, ["content"], () => { filter(); reveal(); });
  return () => { sizes.disconnect(); for (const name of ["selected", "marked"]) model.off(`change:${name}`, reveal); stop(); };
}

export default { render };
