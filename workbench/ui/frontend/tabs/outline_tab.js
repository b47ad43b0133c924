// The outline: modules, lines and statements as a tree with columns. The user can move through the program without a pointer.

import { follow, h, humanBytes, isPlainKey, panel, previewed } from "../dom.js";

const COLUMNS = /** @type {[string, string, (value: number) => string][]} */ ([
  ["saved_bytes", "saved", humanBytes],
  ["peak_bytes", "at the peak", humanBytes],
  ["step_s", "time, predicted", shortTime],
  ["choices", "choices", String],
]);

function shortTime(/** @type {number} */ seconds) {
  const [scale, unit] = seconds >= 1 ? [1, "s"] : seconds >= 1e-3 ? [1e3, "ms"] : [1e6, "µs"];
  return `${(seconds * scale).toPrecision(3)} ${unit}`;
}

/** Make the pane's right edge. The pointer or the arrow keys move it, and the browser stores the width. */
function widthBar(/** @type {HTMLElement} */ el) {
  const kept = "thunder-workbench:outline-width", least = 260, step = 24; // pixels
  const bar = h("div", { class: "wb-edge", tabindex: "0", role: "separator", "aria-orientation": "vertical", "aria-label": "Width of the outline", title: "Drag, or use the arrow keys; double-click for the default width" });
  const put = (/** @type {number} */ width) => {
    if (Number.isNaN(width)) el.style.removeProperty("--wb-outline");
    else el.style.setProperty("--wb-outline", `${Math.max(least, Math.round(width))}px`);
    bar.setAttribute("aria-valuenow", String(Math.round(el.offsetWidth)));
    try {
      if (Number.isNaN(width)) localStorage.removeItem(kept);
      else localStorage.setItem(kept, String(Math.max(least, Math.round(width))));
    } catch { /* the page may not use storage */ }
  };
  try { put(Number.parseFloat(localStorage.getItem(kept) ?? "")); } catch { /* as above */ }
  bar.addEventListener("pointerdown", (event) => { event.preventDefault(); bar.focus(); bar.setPointerCapture(event.pointerId); });
  bar.addEventListener("pointermove", (event) => { if (bar.hasPointerCapture(event.pointerId)) put(event.clientX - el.getBoundingClientRect().left); });
  bar.addEventListener("dblclick", () => put(NaN));
  bar.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -step, ArrowRight: step }[event.key];
    if (by === undefined || !isPlainKey(event)) return;
    event.preventDefault();
    event.stopPropagation();
    put(el.offsetWidth + by);
  });
  return bar;
}

/** Show the outline beside the graph. A bar opens and closes it, and the browser stores the state. `looked_at` is true while it is visible. */
function standBeside(/** @type {any} */ model, /** @type {HTMLElement} */ el) {
  const kept = "thunder-workbench:outline";
  let open = false, seen = false;
  try { open = localStorage.getItem(kept) === "open"; } catch { /* the page may not use storage */ }
  const mark = h("span", { "aria-hidden": "true" });
  const button = h("button", {
    class: "wb-beside-bar", title: "The program's source, beside the graph", onclick: () => {
      open = !open;
      try { localStorage.setItem(kept, open ? "open" : "closed"); } catch { /* as above */ }
      put();
    },
  }, mark, h("span", {}, "Outline"));
  const tell = (/** @type {boolean} */ now) => {
    if (now === seen) return;
    seen = now;
    model.set("looked_at", now);
    model.save_changes();
  };
  const put = () => {
    el.classList.toggle("wb-open", open);
    button.setAttribute("aria-expanded", String(open));
    mark.textContent = open ? "◂ " : "▸ ";
    tell(open && el.offsetWidth > 0);
  };
  el.classList.add("wb-beside");
  const edge = widthBar(el);
  el.prepend(button, edge);
  const watch = new ResizeObserver(() => put());
  watch.observe(el);
  put();
  return () => { watch.disconnect(); tell(false); };
}

/** @param {{model: any, el: HTMLElement}} context */
function render({ model, el }) {
  panel(el, "outline");
  previewed(model, el);
  const opened = new Map();
  let order = "", active = "", asked = "", awaited = "", rows = [], inside = new Map(), shown = [];
  const act = h("div", { class: "wb-row wb-act" });
  const head = h("div", { class: "wb-tree-row wb-tree-head", role: "row" });
  const body = h("div", { class: "wb-scroll wb-tree", role: "treegrid", "aria-label": "The program, part by part", onkeydown: (event) => key(event) });
  el.replaceChildren(act, body);
  const indent = model.get("beside") ? 8 : 16; // pixels
  const leave = model.get("beside") ? standBeside(model, el) : () => {};

  const isOpen = (row) => opened.get(row.key) ?? (row.kind === "module" && row.depth < 2); // `outline_tab.OPEN_DEPTH`
  const go = (row) => { active = row.key; asked = row.id; if (row.id) model.send({ type: "go", id: row.id }); draw(true); };
  const toggle = (row, open) => {
    opened.set(row.key, open);
    if (open) model.send({ type: "open", key: row.key }); // the kernel sends the contents of the parts that are now shown
    draw(true);
  };

  function listed(parent, into) {
    const here = [...(inside.get(parent) ?? [])];
    if (order) here.sort((a, b) => rows[b][order] - rows[a][order]);
    for (const number of here) {
      into.push(number);
      if (isOpen(rows[number])) listed(number, into);
    }
    return into;
  }
  function key(event) {
    const at = shown.findIndex((number) => rows[number].key === active), row = rows[shown[at]];
    const to = (place) => { active = rows[shown[Math.max(0, Math.min(shown.length - 1, place))]].key; draw(true); };
    if (!row || event.target.closest("button")) return;
    const children = row.leads;
    const keys = {
      ArrowDown: () => to(at + 1), ArrowUp: () => to(at - 1), Home: () => to(0), End: () => to(shown.length - 1),
      ArrowRight: () => (children && !isOpen(row) ? toggle(row, true) : to(at + 1)),
      ArrowLeft: () => (children && isOpen(row) ? toggle(row, false) : row.parent >= 0 && to(shown.indexOf(row.parent))),
      Enter: () => go(row), " ": () => go(row),
    };
    if (!keys[event.key] || !isPlainKey(event)) return;
    event.preventDefault();
    keys[event.key]();
  }
  function cell(row, [name, , write], most) {
    if (name === "choices") return h("span", { role: "gridcell", class: "wb-num" }, row.choices ? `${row.made ? `${row.made} of ` : ""}${row.choices}` : "");
    return h("span", { role: "gridcell", class: "wb-num" }, row[name] ? write(row[name]) : "", row[name] > 0 && h("i", { "aria-hidden": "true", style: `width:${Math.max(2, 70 * row[name] / most)}px` }));
  }
  function draw(focus = false) {
    const content = model.get("content"), selected = model.get("selected");
    rows = content.parts ?? [];
    inside = new Map();
    rows.forEach((row, number) => { if (inside.has(row.parent)) inside.get(row.parent).push(number); else inside.set(row.parent, [number]); });
    shown = listed(-1, []);
    if (!shown.some((number) => rows[number].key === active)) active = shown.length ? rows[shown[0]].key : "";
    const most = Object.fromEntries(COLUMNS.map(([name]) => [name, Math.max(1e-12, ...(inside.get(-1) ?? []).map((number) => rows[number][name]))]));
    head.replaceChildren(h("span", { role: "columnheader" }, h("button", { class: "wb-sort", onclick: () => { order = ""; draw(); } }, "program", h("span", { "aria-hidden": "true" }, order ? "" : " ▾"))),
      ...COLUMNS.map(([name, title]) => h("span", { role: "columnheader", class: "wb-num", "aria-sort": name === order ? "descending" : "none" },
        h("button", { class: "wb-sort", title: name === "step_s" && content.machine ? `by ${content.machine}'s rates` : null, onclick: () => { order = name; draw(); } }, title, h("span", { "aria-hidden": "true" }, name === order ? " ▾" : "")))));
    body.replaceChildren(head, ...shown.map((number) => {
      const row = rows[number], parent = row.leads;
      const chosen = Boolean(row.id) && row.id === selected && (row.key === active || row.kind === "statement");
      return h("div", {
        role: "row", class: `wb-tree-row wb-can wb-tree-${row.kind} ${chosen ? "wb-chosen" : ""}`, "data-key": row.key, tabindex: row.key === active ? "0" : "-1",
        "aria-level": String(row.depth + 1), "aria-expanded": parent ? String(isOpen(row)) : null, "aria-selected": String(chosen), onclick: () => go(row),
      }, h("span", { role: "gridcell", class: "wb-tree-name", style: `padding-left:${row.depth * indent}px`, title: [row.label, row.source].filter(Boolean).join("  ") },
        h("span", { class: "wb-twist", "aria-hidden": "true", onclick: (event) => { if (parent) { event.stopPropagation(); active = row.key; toggle(row, !isOpen(row)); } } }, parent ? (isOpen(row) ? "▾" : "▸") : ""),
        row.label, row.kind === "statement" ? h("span", { class: "wb-muted" }, ` ${row.side}`) : row.source && h("span", { class: "wb-muted" }, ` ${row.source}`)),
      COLUMNS.map((column) => cell(row, column, most[column[0]])));
    }));
    const here = rows.find((row) => row.key === active), turns = here?.turns.filter(({ count }) => count) ?? [];
    act.replaceChildren(h("span", { class: "wb-act-name", title: here?.label ?? "" }, "In ", h("code", {}, here?.label ?? "")),
      ...turns.map(({ option, count }) => h("button", { title: "Undo takes all of it back", "data-preview": JSON.stringify({ key: here.key, option }), onclick: () => model.send({ type: "choose_in", key: here.key, option }) }, `${option === "stock" ? "back to the default" : option} × ${count}`)),
      turns.length ? "" : h("span", { class: "wb-muted" }, "nothing else can be chosen"));
    if (focus) /** @type {HTMLElement | null} */ (body.querySelector(`[data-key="${CSS.escape(active)}"]`))?.focus();
  }
  /** Scroll to the statement that is selected in the graph, and open the parts around it. */
  function follow_selection() {
    const selected = model.get("selected");
    if (selected && asked !== selected) {
      const found = rows.findLast((row) => row.id === selected && row.kind === "statement");
      awaited = found ? "" : selected; // the kernel sends the statement with the parts around it
      for (let at = found; at && at.parent >= 0; at = rows[at.parent]) opened.set(rows[at.parent].key, true);
      if (found) active = found.key;
    }
    asked = "";
    draw();
    if (selected) body.querySelector(`[data-key="${CSS.escape(active)}"]`)?.scrollIntoView({ block: "nearest" });
  }
  const redraw = () => {
    draw(body.contains(document.activeElement));
    if (awaited && awaited === model.get("selected") && !asked && rows.some(({ id, kind }) => id === awaited && kind === "statement")) follow_selection();
  };
  const ends = [follow(model, ["content"], redraw), follow(model, ["selected"], follow_selection)];
  return () => [leave, ...ends].forEach((end) => end());
}

export default { render };
