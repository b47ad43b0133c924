// The joint graph on a canvas: drawing, hit test, pan, zoom and keys. Layout comes from Python as binary arrays.

/**
 * @typedef {{get(name: string): any, set(name: string, value: any): void, save_changes(): void,
 *   send(message: object): void, on(event: string, callback: Function): void,
 *   off(event: string, callback: Function): void}} Model
 * @typedef {{first: string, last: string, stem: string, count: number, identical: number, y: number,
 *   height: number}} Section
 */

const HEAD = 30; // height of the sticky column headings, in pixels; `drawing.HEADER`
const FOOT = 34; // height of the bar with legend and tools below the canvas, in pixels
const ROW = 20; // height of a statement at zoom 1; `drawing.ROW`
const BLOCK_PAD = 4; // empty height at the top of a block at zoom 1; `drawing.BLOCK_PAD`
const SECTION = 26; // height of a layer's heading at zoom 1; `drawing.SECTION`
const NARROWEST = 440; // a narrower view is scrolled sideways, in pixels; `drawing.NARROWEST`
const MIN_ZOOM = 0.01;
const MAX_ZOOM = 3;
const LANE = 66; // width of the CPU's lane between the columns, in pixels
const BARS = 44; // width of a communication lane beside a column, in pixels
const BAR_STEP = 8; // from bar to bar
const DASHES = [[], [6, 3], [2, 3], [9, 3, 2, 3]]; // of bars, by process group
const HIT = 6; // how far from an arc, in pixels, a click still means it

const HEADING = 1, GHOST = 2, RANDOM = 4, CLONE = 8, VIEW = 16, COLLECTIVE = 32;
const CROSS = 0, SIDE = 1;
const SAVED = 0, RECOMPUTED = 1, OFFLOADED = 2;
const CHANGED = 1, FIXED = 2; // a mark chosen otherwise than stock; one with nothing else legal
const MONO = '"JetBrains Mono", "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace';
const SANS = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial, sans-serif';

const LIGHT = {
  paper: "#ffffff", ink: "#1f2328", muted: "#59636e", hair: "#e6e9ed", rule: "#d0d7de", band: "#f6f8fa",
  fills: ["#e9f1fb", "#fcefe6"], strokes: ["#bfd3ec", "#eccfb9"], texts: ["#16406f", "#703510"],
  soft: ["#4a6484", "#855a3d"], fusion: "#8b6fd0", fusionFill: "rgba(124, 92, 200, 0.07)", fusionText: "#5b3aa8",
  arcs: ["#267044", "#b04a00", "#0b6b85"], select: "#0b57d0", found: "#ffe58a",
};
const DARK = {
  paper: "#111111", ink: "#e8eaed", muted: "#a3acb7", hair: "#25282c", rule: "#3a4047", band: "#191c20",
  fills: ["#15273c", "#33211a"], strokes: ["#2f5078", "#6d4632"], texts: ["#c4dcf8", "#f6d3bb"],
  soft: ["#8fabcb", "#cfa58b"], fusion: "#9b86e0", fusionFill: "rgba(155, 134, 224, 0.10)", fusionText: "#c9bcfa",
  arcs: ["#63c48a", "#f2a952", "#54c6dc"], select: "#79aeff", found: "#6b5600",
};

/** Whether the page is dark: JupyterLab says so, other pages are asked by their background. */
function isDark(/** @type {HTMLElement} */ el) {
  const stated = document.body.dataset.jpThemeLight;
  if (stated) return stated === "false";
  for (let node = /** @type {HTMLElement | null} */ (el); node; node = node.parentElement) {
    const parts = getComputedStyle(node).backgroundColor.match(/[\d.]+/g)?.map(Number);
    if (parts && (parts.length < 4 || parts[3] > 0.5)) return 0.3 * parts[0] + 0.6 * parts[1] + 0.1 * parts[2] < 110;
  }
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

/** A typed array over a message buffer; copied, for a buffer need not start at a multiple of the item's size. */
function array(Type, /** @type {DataView | ArrayBuffer} */ view) {
  const { buffer, byteOffset = 0, byteLength } = view instanceof ArrayBuffer ? { buffer: view, byteLength: view.byteLength } : view;
  return new Type(buffer.slice(byteOffset, byteOffset + byteLength));
}

const TYPES = { f: Float32Array, d: Float64Array, i: Int32Array, b: Uint8Array };

/** The scene: `data` as sent by Python, with its arrays typed. */
function scene(data) {
  if (!data?.strings) return null;
  /** @type {any} */
  const out = { strings: data.strings, sections: data.sections, height: data.height };
  for (const [table, columns] of Object.entries(data.tables)) {
    out[table] = {};
    for (const [name, [code, view]] of Object.entries(columns)) out[table][name] = array(TYPES[code], view);
  }
  const { node, arc } = out;
  out.at = new Map();
  for (let i = 0; i < node.id.length; i++) out.at.set(out.strings[node.id[i]], { kind: "node", index: i });
  for (let i = 0; i < arc.id.length; i++) out.at.set(out.strings[arc.id[i]], { kind: "arc", index: i });
  for (let i = 0; i < out.alias.id.length; i++) {
    const mark = out.alias.mark[i];
    out.at.set(out.strings[out.alias.id[i]], mark < 0 ? { kind: "arc", index: out.alias.arc[i] } : { kind: "mark", index: mark });
  }
  // Marks of a node, from its right edge leftwards: where each begins and how wide it is, at zoom 1.
  out.marksOf = new Map();
  for (let i = 0; i < out.mark.id.length; i++) {
    out.at.set(out.strings[out.mark.id[i]], { kind: "mark", index: i });
    const node = out.mark.node[i], others = out.marksOf.get(node) ?? [];
    const right = others.length ? others.at(-1).right + others.at(-1).width + 3 : 3;
    out.marksOf.set(node, [...others, { index: i, right, width: 5.8 * out.strings[out.mark.text[i]].length + 11 }]);
  }
  // A bar's ends answer to their sites' names, unless a mark does.
  out.endOf = new Map();
  for (let i = 0; i < out.bar.side.length; i++) {
    for (const end of ["issue", "wait"]) {
      const id = out.strings[out.bar[end][i]];
      out.endOf.set(id, { index: i, end });
      if (!out.at.has(id)) out.at.set(id, { kind: "bar", index: i });
    }
  }
  out.lane = arc.style.includes(OFFLOADED);
  // Nodes of each column from top to bottom, for culling and for the arrow keys.
  out.columns = [0, 1].map((side) => Array.from(node.y.keys()).filter((i) => node.side[i] === side)
    .sort((a, b) => node.y[a] - node.y[b]));
  out.arcsFrom = new Map();
  for (let i = 0; i < arc.source.length; i++) {
    for (const end of [arc.source[i], arc.target[i]]) {
      if (!out.arcsFrom.has(end)) out.arcsFrom.set(end, []);
      out.arcsFrom.get(end).push(i);
    }
  }
  out.neighbours = new Map();
  for (let i = 0; i < out.edge.source.length; i++) {
    const [from, to] = [out.edge.source[i], out.edge.target[i]];
    if (!out.neighbours.has(from)) out.neighbours.set(from, { into: [], out: [] });
    if (!out.neighbours.has(to)) out.neighbours.set(to, { into: [], out: [] });
    out.neighbours.get(from).out.push(to);
    out.neighbours.get(to).into.push(from);
  }
  return out;
}

/** First place in `order` whose node ends below `y`. */
function firstBelow(order, node, y) {
  let low = 0, high = order.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (node.y[order[middle]] + node.height[order[middle]] < y) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Bytes for a person: binary units, three figures. `summary.human_bytes` writes the same. */
function humanBytes(/** @type {number} */ bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = Math.abs(bytes), unit = 0;
  while (value >= 999.5 && unit < units.length - 1) { value /= 1024; unit++; }
  const digits = unit === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${bytes < 0 ? "−" : ""}${value.toFixed(digits)} ${units[unit]}`;
}

class View {
  /** @param {Model} model @param {HTMLElement} el */
  constructor(model, el) {
    this.model = model;
    this.el = el;
    this.zoom = 1;
    this.left = 0; // scroll position, in screen pixels
    this.top = 0;
    this.hover = null;
    this.drawn = 0;
    this.texts = new Map();
    this.build();
    this.scene = scene(model.get("data"));
    this.paintTheme();
  }

  build() {
    const { el, model } = this;
    el.classList.add("wb-graph");
    el.dataset.lmSuppressShortcuts = "true";
    el.style.height = `${model.get("height")}px`;
    el.innerHTML = `
      <canvas tabindex="0" role="application"
        aria-label="Joint graph. Arrows move, space turns the selected choice, slash searches."></canvas>
      <div class="wb-foot">
        <span class="wb-key wb-key-saved">saved</span><span class="wb-key wb-key-again">recomputed</span>
        <span class="wb-key wb-key-away">on the CPU</span>
        <span class="wb-key wb-key-wire" hidden>on its way, from issue to wait</span>
        <span class="wb-grow"></span>
        <input type="search" placeholder="Search  /" aria-label="Search statements" spellcheck="false">
        <span class="wb-found" aria-live="polite"></span>
        <button data-do="out" title="Zoom out (ctrl + wheel)">−</button>
        <button data-do="in" title="Zoom in (ctrl + wheel)">+</button>
        <button data-do="one" title="Actual size (1)">1:1</button>
        <button data-do="fit" title="Show all (f)">Fit</button>
      </div>
      <div class="wb-tip" hidden></div>`;
    this.wireKey = /** @type {HTMLElement} */ (el.querySelector(".wb-key-wire"));
    this.canvas = /** @type {HTMLCanvasElement} */ (el.querySelector("canvas"));
    this.search = /** @type {HTMLInputElement} */ (el.querySelector("input"));
    this.found = /** @type {HTMLElement} */ (el.querySelector(".wb-found"));
    this.tip = /** @type {HTMLElement} */ (el.querySelector(".wb-tip"));
    this.context = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    this.stop = new AbortController();
    const on = (target, type, handler, options = {}) =>
      target.addEventListener(type, handler, { signal: this.stop.signal, ...options });
    on(this.canvas, "pointerdown", (e) => this.onDown(e));
    on(this.canvas, "pointermove", (e) => this.onMove(e));
    on(this.canvas, "pointerup", (e) => this.onUp(e));
    on(this.canvas, "pointerleave", () => this.setHover(null));
    on(this.canvas, "wheel", (e) => this.onWheel(e), { passive: false });
    on(this.canvas, "keydown", (e) => this.onKey(e));
    on(this.canvas, "focus", () => this.redraw());
    on(this.canvas, "blur", () => this.redraw());
    on(this.search, "input", () => this.onSearch());
    on(this.search, "keydown", (e) => this.onSearchKey(e));
    on(el.querySelector(".wb-foot"), "click", (e) => this.onTool(e.target.dataset?.do));
    this.sizes = new ResizeObserver(() => this.resize());
    this.sizes.observe(el);
    this.themes = new MutationObserver(() => this.paintTheme());
    this.themes.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "class"] });
    this.onData = () => { this.scene = scene(model.get("data")); this.texts.clear(); this.setHover(null); this.clamp(); this.redraw(); };
    this.onSelected = () => { this.redraw(); };
    this.onReveal = (message) => { if (message?.type === "reveal") this.reveal(message.id); };
    model.on("change:data", this.onData);
    model.on("change:selected", this.onSelected);
    model.on("msg:custom", this.onReveal);
  }

  destroy() {
    this.stop.abort();
    this.sizes.disconnect();
    this.themes.disconnect();
    this.model.off("change:data", this.onData);
    this.model.off("change:selected", this.onSelected);
    this.model.off("msg:custom", this.onReveal);
  }

  paintTheme() {
    this.dark = isDark(this.el);
    this.el.classList.toggle("wb-dark", this.dark);
    if (this.model.get("dark") !== this.dark) { this.model.set("dark", this.dark); this.model.save_changes(); }
    this.ink = this.dark ? DARK : LIGHT;
    const paper = getComputedStyle(this.el).getPropertyValue("--jp-layout-color0").trim();
    this.paper = paper || this.ink.paper;
    this.redraw();
  }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    this.width = this.el.clientWidth;
    this.heightPx = this.el.clientHeight - FOOT;
    if (!this.width) return;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.heightPx * ratio);
    this.ratio = ratio;
    this.texts.clear();
    this.clamp();
    this.redraw();
  }

  // ---- coordinates -------------------------------------------------------------------------------------------

  // Zooming out squeezes heights alone: the columns stay as wide as the view, so that what is written stays readable.
  get scaleX() { return Math.max(1, this.zoom); }

  /** Columns in screen pixels before scrolling; the same shares as `drawing.Columns.fit`. */
  columns() {
    const width = Math.max(this.width, NARROWEST), margin = 12, space = 18;
    // Beside the columns there is room for collectives only where there are any.
    const lane = this.scene?.bar.side.length ? BARS : 0;
    const free = width - 2 * margin - space - 2 * lane;
    const label = free * 0.27, box = free * 0.27;
    const x = (value) => value * this.scaleX - this.left;
    const forward = margin + label + space + lane, backward = width - margin - lane - box;
    return {
      label: [x(margin), x(margin + label)],
      sides: [[x(forward), x(forward + box)], [x(backward), x(backward + box)]],
      width: width * this.scaleX,
    };
  }

  y(value) { return HEAD + (value - HEAD) * this.zoom - this.top; }
  worldY(screen) { return (screen + this.top - HEAD) / this.zoom + HEAD; }

  clamp() {
    if (!this.scene) return;
    const height = HEAD + (this.scene.height - HEAD) * this.zoom;
    this.top = Math.max(0, Math.min(this.top, height - this.heightPx));
    this.left = Math.max(0, Math.min(this.left, this.columns().width - this.width));
  }

  setZoom(zoom, anchorX = this.width / 2, anchorY = this.heightPx / 2) {
    const world = this.worldY(anchorY), across = (anchorX + this.left) / this.scaleX;
    this.zoom = Math.max(MIN_ZOOM, Math.min(MAX_ZOOM, zoom));
    this.top = HEAD + (world - HEAD) * this.zoom - anchorY;
    this.left = across * this.scaleX - anchorX;
    this.clamp();
    this.redraw();
  }

  fit() {
    if (!this.scene) return;
    this.left = this.top = 0;
    this.setZoom(Math.min(1, (this.heightPx - HEAD - 8) / Math.max(1, this.scene.height - HEAD)));
  }

  /** The CPU's lane on the screen: in the middle of the gap. */
  lane() {
    const { sides } = this.columns(), middle = (sides[0][1] + sides[1][0]) / 2, half = (LANE / 2) * this.scaleX;
    return [middle - half, middle + half];
  }

  /** Whether an arc goes through the CPU's lane. */
  away(index) { return this.scene.arc.style[index] === OFFLOADED && this.scene.arc.shape[index] === CROSS; }

  /** Where a bar is on the screen: its middle, where it begins and where it ends. */
  barAt(index) {
    const { bar } = this.scene, { sides } = this.columns(), side = bar.side[index];
    const out = (8 + BAR_STEP * bar.column[index]) * this.scaleX;
    // An end at the first statement is drawn whole, below the heads of the columns.
    const y = (height) => Math.max(this.y(height), HEAD + 6 - this.top);
    return { x: side === 0 ? sides[0][0] - out : sides[1][1] + out, issue: y(bar.y0[index]), wait: y(bar.y1[index]) };
  }

  /** The bar at a place, and which of its ends a drag from there would move. */
  barHit(x, y) {
    const { bar, strings } = this.scene;
    let best = null, nearest = BAR_STEP / 2 + 1;
    for (let index = 0; index < bar.side.length; index++) {
      const at = this.barAt(index), low = Math.min(at.issue, at.wait) - 5, high = Math.max(at.issue, at.wait) + 5;
      if (y < low || y > high || Math.abs(x - at.x) >= nearest) continue;
      nearest = Math.abs(x - at.x);
      const end = Math.abs(y - at.issue) < Math.abs(y - at.wait) ? "issue" : "wait";
      best = { kind: "bar", index, end, id: strings[bar[end][index]] };
    }
    return best;
  }

  /** The node of a column whose beginning is nearest to a height on the screen. */
  nodeNear(side, y) {
    const { node, columns } = this.scene;
    let best = -1, nearest = Infinity;
    for (const index of columns[side]) {
      const edge = this.y(side === 0 ? node.y[index] : node.y[index] + node.height[index]), distance = Math.abs(edge - y);
      if (distance < nearest) [best, nearest] = [index, distance];
    }
    return best;
  }

  /** Ask to have an end of a bar right before a node. */
  place(id, node) {
    if (node >= 0) this.model.send({ type: "place", id, node: this.scene.strings[this.scene.node.id[node]] });
  }

  /** Move the end that is selected by one statement, later or earlier. */
  nudge(by) {
    const { bar, endOf, columns } = this.scene, id = this.model.get("selected"), chosen = endOf.get(id);
    if (!chosen) return;
    const side = bar.side[chosen.index], here = bar[`${chosen.end}_node`][chosen.index];
    const next = columns[side].indexOf(here) + (side === 0 ? by : -by);
    this.place(id, columns[side][next] ?? -1);
  }

  /** Where a mark is on the screen. */
  markBox(index) {
    const { node, mark, marksOf } = this.scene, at = mark.node[index], scale = Math.max(1, this.zoom);
    const { right, width } = marksOf.get(at).find((one) => one.index === index);
    const [, x1] = this.columns().sides[node.side[at]];
    const height = 13 * scale, middle = this.y(node.y[at]) + Math.min(ROW - 3, node.height[at]) * this.zoom / 2;
    return { left: x1 - (right + width) * scale, top: middle - height / 2, width: width * scale, height };
  }

  /** Ends and control points of an arc on the screen; for one through the lane, those of its way down. */
  curve(index) {
    const { arc } = this.scene, { sides } = this.columns();
    const y0 = this.y(arc.y0[index]), y1 = this.y(arc.y1[index]);
    if (this.away(index)) {
      const x0 = sides[0][1], [left] = this.lane(), bend = (left - x0) * 0.6;
      return [x0, y0, x0 + bend, y0, left - bend, y0, left, y0];
    }
    if (arc.shape[index] === SIDE) {
      const out = arc.side[index] === 0 ? 1 : -1, x = sides[arc.side[index]][arc.side[index] === 0 ? 1 : 0];
      const bulge = Math.min(46, 20 + Math.abs(y1 - y0) * 0.12) * out;
      return [x, y0, x + bulge, y0, x + bulge, y1, x, y1];
    }
    const x0 = sides[0][1], x1 = sides[1][0], bend = (x1 - x0) * 0.5;
    return [x0, y0, x0 + bend, y0, x1 - bend, y1, x1, y1];
  }

  /** The way back from the lane. */
  wayBack(index) {
    const { arc } = this.scene, { sides } = this.columns(), [, right] = this.lane();
    const y0 = this.y(arc.y0[index]), y1 = this.y(arc.y1[index]), x1 = sides[1][0], bend = (x1 - right) * 0.6;
    return [right, y0, right + bend, y0, x1 - bend, y1, x1, y1];
  }

  /** Screen position at which to point at something, or null. */
  locate(id) {
    const entry = this.scene?.at.get(id);
    if (!entry) return null;
    const { node } = this.scene;
    if (entry.kind === "node") {
      const [x0, x1] = this.columns().sides[node.side[entry.index]];
      return { x: (x0 + x1) / 2, y: this.y(node.y[entry.index] + node.height[entry.index] / 2) };
    }
    if (entry.kind === "mark") {
      const box = this.markBox(entry.index);
      return { x: box.left + box.width / 2, y: box.top + box.height / 2 };
    }
    if (entry.kind === "bar") {
      const { x, issue, wait } = this.barAt(entry.index);
      return { x, y: (issue + wait) / 2 };
    }
    return this.handle(entry.index);
  }

  /** Where to point at an arc: the middle of its size label or its dot, which no other arc's covers. */
  handle(index) {
    const [x0, y0] = this.curve(index);
    if (this.away(index)) { const [left, right] = this.lane(); return { x: (left + right) / 2, y: y0 }; }
    if (this.scene.arc.shape[index] !== SIDE) return { x: x0 + 32, y: y0 };
    return { x: x0 + (this.scene.arc.side[index] === 1 ? -9 : 9), y: y0 };
  }

  // ---- hit test ----------------------------------------------------------------------------------------------

  /** What is at a place on the canvas: `{kind, index, id}` or null. */
  hit(x, y) {
    if (!this.scene || y < HEAD || y > this.heightPx) return null;
    const { node, arc, sections, strings } = this.scene, { sides } = this.columns();
    for (const [index, section] of sections.entries()) {
      const top = this.y(section.y);
      if (y >= top && y < top + Math.max(14, SECTION * this.zoom)) return { kind: "section", index, id: `fold:${section.stem}` };
    }
    const bar = this.barHit(x, y);
    if (bar) return bar;
    const world = this.worldY(y);
    for (const side of [0, 1]) {
      if (x < sides[side][0] || x > sides[side][1]) continue;
      const order = this.scene.columns[side];
      const index = order[firstBelow(order, node, world)];
      if (index !== undefined && node.y[index] <= world && this.labelled()) {
        for (const { index: at } of this.scene.marksOf.get(index) ?? []) {
          const box = this.markBox(at);
          if (x >= box.left - 1 && x <= box.left + box.width + 1) return { kind: "mark", index: at, id: strings[this.scene.mark.id[at]] };
        }
      }
      if (index !== undefined && node.y[index] <= world) return { kind: "node", index, id: strings[node.id[index]] };
      return null;
    }
    let best = null, nearest = HIT;
    for (let index = 0; index < arc.y0.length; index++) {
      const low = Math.min(this.y(arc.y0[index]), this.y(arc.y1[index])) - 10;
      const high = Math.max(this.y(arc.y0[index]), this.y(arc.y1[index])) + 10;
      if (y < low || y > high) continue;
      const label = this.handle(index);
      const reach = arc.shape[index] === SIDE ? 6 : 30;
      const distance = this.labelled() && Math.abs(x - label.x) < reach && Math.abs(y - label.y) < 8 * Math.max(1, this.zoom)
        ? -1 : Math.min(distanceTo(this.curve(index), x, y), this.away(index) ? distanceTo(this.wayBack(index), x, y) : Infinity);
      if (distance < nearest) [best, nearest] = [index, distance];
    }
    return best === null ? null : { kind: "arc", index: best, id: strings[arc.id[best]] };
  }

  labelled() { return this.zoom * ROW >= 12; }

  // ---- drawing -----------------------------------------------------------------------------------------------

  redraw() {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => { this.pending = 0; this.draw(); });
  }

  font(size, family = MONO, weight = 400) {
    this.context.font = `${weight} ${size}px ${family}`;
    this.fontKey = `${weight} ${size} ${family === MONO ? "m" : "s"}`;
  }

  /** `text` shortened with an ellipsis to fit `width` in the current font. */
  shorten(text, width) {
    const key = `${this.fontKey}|${Math.floor(width)}|${text}`;
    let known = this.texts.get(key);
    if (known !== undefined) return known;
    known = text;
    if (this.context.measureText(text).width > width) {
      let low = 0, high = text.length;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (this.context.measureText(`${text.slice(0, middle).trimEnd()}…`).width <= width) low = middle;
        else high = middle - 1;
      }
      known = low ? `${text.slice(0, low).trimEnd()}…` : "";
    }
    if (this.texts.size > 20000) this.texts.clear();
    this.texts.set(key, known);
    return known;
  }

  draw() {
    const c = this.context;
    if (!this.width) return;
    const began = performance.now();
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.fillStyle = this.paper;
    c.fillRect(0, 0, this.width, this.heightPx);
    if (this.scene) {
      const low = this.worldY(HEAD - 30), high = this.worldY(this.heightPx + 30);
      c.textBaseline = "middle";
      c.textAlign = "left";
      this.drawLines(low, high);
      this.drawSections(low, high);
      this.drawRuns(low, high);
      this.drawLane();
      this.drawArcs(low, high);
      this.drawBars();
      this.drawNodes(low, high);
      this.drawSelection();
      this.drawHeadings();
      this.drawMap();
    }
    this.drawHead();
    this.drawn = performance.now() - began;
  }

  /** Collectives on their way: a bar from issue to wait, its wait a filled end; what is dragged follows the pointer. */
  drawBars() {
    this.wireKey.hidden = this.scene.bar.side.length === 0;
    const c = this.context, { bar, endOf } = this.scene, selected = endOf.get(this.model.get("selected"))?.index;
    for (let i = 0; i < bar.side.length; i++) {
      const at = this.barAt(i), moved = this.drag?.bar?.index === i && this.drag.moved;
      if (moved) at[this.drag.bar.end] = this.drag.at;
      if (Math.max(at.issue, at.wait) < HEAD || Math.min(at.issue, at.wait) > this.heightPx) continue;
      const color = moved || i === selected ? this.ink.select : this.ink.arcs[OFFLOADED];
      c.strokeStyle = c.fillStyle = color;
      c.lineWidth = moved || i === selected || this.hover?.kind === "bar" && this.hover.index === i ? 4 : 2.5;
      c.setLineDash(DASHES[Math.max(bar.group[i], 0) % DASHES.length]);
      c.beginPath();
      c.moveTo(at.x, at.issue);
      c.lineTo(at.x, at.wait);
      c.stroke();
      c.setLineDash([]);
      for (const end of ["issue", "wait"]) {
        c.beginPath();
        c.arc(at.x, at[end], 3.5, 0, 2 * Math.PI);
        c.fillStyle = end === "wait" ? color : this.paper;
        c.fill();
        c.lineWidth = 1.5;
        c.stroke();
      }
    }
    if (this.drag?.bar && this.drag.moved) {
      const { node, strings } = this.scene, target = this.drag.target;
      if (target >= 0) {
        this.outline(target, this.ink.select, 2);
        this.font(11, SANS, 600);
        const side = bar.side[this.drag.bar.index], { sides } = this.columns();
        const text = `${this.drag.bar.end} before ${strings[node.name[target]]}`, wide = c.measureText(text).width;
        const left = side === 0 ? sides[0][1] + 8 : sides[1][0] - 8 - wide;
        // On paper of its own: it lies over arcs, and over the other column where there is little room.
        c.fillStyle = this.paper;
        c.fillRect(left - 4, this.drag.at - 9, wide + 8, 18);
        c.fillStyle = this.ink.select;
        c.fillText(text, left, this.drag.at);
      }
    }
  }

  drawHead() {
    const c = this.context, { label, sides } = this.columns(), ink = this.ink;
    c.fillStyle = this.paper;
    c.fillRect(0, 0, this.width, HEAD - 1);
    c.fillStyle = ink.rule;
    c.fillRect(0, HEAD - 1, this.width, 1);
    this.font(11, SANS, 600);
    c.textBaseline = "middle";
    const put = (text, x, color, align = "left") => { c.textAlign = align; c.fillStyle = color; c.fillText(text, x, HEAD / 2); };
    put("program", label[0], ink.muted);
    put("forward ↓", sides[0][0], ink.texts[0]);
    const gap = sides[1][0] - sides[0][1] - 16, fits = c.measureText("saved for backward").width <= gap;
    put(fits ? "saved for backward" : "saved", (sides[0][1] + sides[1][0]) / 2, ink.muted, "center");
    if (this.scene?.lane) {
      const [left, right] = this.lane();
      c.fillStyle = this.paper;
      c.fillRect(left - 24, 0, right - left + 48, HEAD - 1);
      put("CPU", (left + right) / 2, ink.arcs[OFFLOADED], "center");
    }
    put("↑ backward", sides[1][0], ink.texts[1]);
    c.textAlign = "left";
  }

  drawLines(low, high) {
    const c = this.context, { line, block, strings } = this.scene, { label } = this.columns(), ink = this.ink;
    const size = 11 * Math.max(1, this.zoom), lead = 15 * Math.max(1, this.zoom);
    for (let i = 0; i < line.y.length; i++) {
      if (line.y[i] + line.height[i] < low) continue;
      if (line.y[i] > high) break;
      const edge = this.y(line.y[i]), bottom = edge + line.height[i] * this.zoom;
      if (bottom - edge > 3) { c.fillStyle = ink.hair; c.fillRect(label[0], Math.round(edge), this.width * this.scaleX, 1); }
      // A long block's words stay in view as long as anything of the block does.
      const top = Math.max(edge, Math.min(HEAD, bottom - 2 * lead - 6)), height = bottom - top;
      if (height < lead - 1) continue;
      const width = label[1] - label[0];
      const rows = Math.floor((height - 3) / lead);
      let at = top + (rows < 1 ? height / 2 : 4 + lead / 2);
      const source = strings[line.text[i]] || strings[block.symbol[line.block[i]]], place = strings[line.place[i]];
      if (rows >= 2) {
        this.font(size);
        c.fillStyle = ink.ink;
        c.fillText(this.shorten(source, width), label[0], at);
        at += lead;
        this.font(size - 0.5, SANS);
        c.fillStyle = ink.muted;
        c.fillText(this.shorten(place, width), label[0], at);
        this.drawSymbols(i, at + lead / 2, size);
        continue;
      }
      // One row: the source line first, its place at the right where there is room for both.
      this.font(size - 0.5, SANS);
      const short = strings[line.short[i]], taken = short ? c.measureText(short).width + 10 : 0;
      const both = taken > 0 && width - taken > 90;
      if (both) {
        c.fillStyle = ink.muted;
        c.textAlign = "right";
        c.fillText(short, label[1], at);
        c.textAlign = "left";
      }
      this.font(size);
      c.fillStyle = ink.ink;
      c.fillText(this.shorten(source, both ? width - taken : width), label[0], at);
    }
  }

  /** What each statement of a longer source line is, beside its block, where the line's own words leave room. */
  drawSymbols(index, below, size) {
    if (!this.labelled()) return;
    const c = this.context, { line, block, strings } = this.scene, { label } = this.columns();
    if (line.count[index] < 2) return;
    this.font(size - 0.5, MONO);
    c.fillStyle = this.ink.muted;
    c.textAlign = "right";
    for (let i = line.block[index]; i < line.block[index] + line.count[index]; i++) {
      const middle = this.y(block.y[i]) + (BLOCK_PAD + 9) * this.zoom;
      if (middle - size / 2 < below) continue;
      c.fillText(this.shorten(strings[block.symbol[i]], label[1] - label[0]), label[1], middle);
    }
    c.textAlign = "left";
  }

  drawSections(low, high) {
    const c = this.context, { sections } = this.scene, { label } = this.columns(), ink = this.ink;
    for (const section of sections) {
      if (section.y + section.height < low || section.y > high) continue;
      const top = Math.round(this.y(section.y)), tall = SECTION * this.zoom;
      const right = this.columns().width - this.left;
      c.fillStyle = ink.rule;
      c.fillRect(0, Math.round(this.y(section.y + section.height)), right, 1);
      if (tall < 3) continue;
      c.fillStyle = ink.band;
      c.fillRect(0, top, right, Math.max(tall, 3));
      c.fillStyle = ink.rule;
      c.fillRect(0, top, right, 1);
      if (tall < 11) continue;
      const size = 11.5 * Math.max(1, this.zoom), middle = top + tall / 2;
      this.font(size, SANS, 600);
      c.fillStyle = ink.ink;
      const folded = section.count > 1, foldable = section.identical > 1;
      const name = folded ? `${section.first} … ${section.last}` : section.first;
      const mark = foldable ? (folded ? "▸ " : "▾ ") : "";
      const title = this.shorten(`${mark}${name}`, this.width / 2);
      c.fillText(title, label[0], middle);
      if (!foldable) continue;
      const x = label[0] + c.measureText(title).width + 10;
      this.font(size - 0.5, SANS);
      c.fillStyle = ink.muted;
      const note = folded ? `${section.count} identical layers shown as one, click to unfold` : "click to fold identical layers";
      c.fillText(this.shorten(note, this.width - x - 12), x, middle);
    }
  }

  drawRuns(low, high) {
    const c = this.context, { run } = this.scene, { sides } = this.columns(), ink = this.ink;
    const spines = new Map();
    for (let i = 0; i < run.y.length; i++) {
      const key = run.fusion[i] * 2 + run.side[i];
      const span = spines.get(key);
      if (span) { span.to = run.y[i] + run.height[i] / 2; span.pieces++; }
      else spines.set(key, { from: run.y[i] + run.height[i] / 2, to: run.y[i], side: run.side[i], pieces: 1, fusion: run.fusion[i] });
      if (run.y[i] + run.height[i] < low || run.y[i] > high) continue;
      const [x0, x1] = sides[run.side[i]];
      const top = this.y(run.y[i]) - 2, height = run.height[i] * this.zoom + 4;
      c.beginPath();
      c.roundRect(x0 - 4, top, x1 - x0 + 8, height, Math.min(5, height / 2));
      c.fillStyle = ink.fusionFill;
      c.fill();
      c.lineWidth = 1;
      c.strokeStyle = ink.fusion;
      c.stroke();
    }
    c.strokeStyle = ink.fusion;
    c.lineWidth = 1;
    for (const { from, to, side, pieces, fusion } of spines.values()) {
      if (pieces < 2 || to < low || from > high) continue;
      const lane = 6 + (fusion % 2) * 3;
      const x = side === 0 ? sides[0][0] - lane : sides[1][1] + lane;
      const edge = side === 0 ? sides[0][0] - 4 : sides[1][1] + 4;
      c.beginPath();
      c.moveTo(edge, this.y(from)); c.lineTo(x, this.y(from)); c.lineTo(x, this.y(to)); c.lineTo(edge, this.y(to));
      c.stroke();
    }
  }

  /** The CPU, between the columns, while anything waits there. */
  drawLane() {
    if (!this.scene.lane) return;
    const c = this.context, [left, right] = this.lane();
    c.fillStyle = this.ink.arcs[OFFLOADED];
    c.globalAlpha = 0.08;
    c.fillRect(left, HEAD, right - left, this.heightPx);
    c.globalAlpha = 0.35;
    c.fillRect(left, HEAD, 1, this.heightPx);
    c.fillRect(right - 1, HEAD, 1, this.heightPx);
    c.globalAlpha = 1;
  }

  /** What can be chosen on a statement: its choice or what came of it, in a pill. */
  drawMarks(node) {
    const c = this.context, { mark, strings } = this.scene, chosen = this.scene.at.get(this.model.get("selected"));
    for (const { index } of this.scene.marksOf.get(node) ?? []) {
      const { left, top, width, height } = this.markBox(index), state = mark.state[index];
      const strong = (chosen?.kind === "mark" && chosen.index === index) || (this.hover?.kind === "mark" && this.hover.index === index);
      const color = state & CHANGED ? this.ink.select : state & FIXED ? this.ink.muted : this.ink.fusionText;
      c.beginPath();
      c.roundRect(left, top, width, height, height / 2);
      c.fillStyle = state & CHANGED ? color : this.paper;
      c.fill();
      c.lineWidth = strong ? 2 : 0.75;
      c.strokeStyle = color;
      if (state & FIXED) c.setLineDash([2, 2]);
      c.stroke();
      c.setLineDash([]);
      this.font(9.5 * Math.max(1, this.zoom), MONO, 500);
      c.fillStyle = state & CHANGED ? this.paper : color;
      c.textAlign = "center";
      c.fillText(strings[mark.text[index]], left + width / 2, top + height / 2 + 0.5);
      c.textAlign = "left";
    }
  }

  drawNodes(low, high) {
    const c = this.context, { node, strings, columns: order } = this.scene, { sides } = this.columns(), ink = this.ink;
    const texts = this.zoom * ROW >= 12, size = 11 * Math.max(Math.min(this.zoom, MAX_ZOOM), this.zoom < 1 ? 0.91 : 1);
    for (const side of [0, 1]) {
      const list = order[side], [x0, x1] = sides[side];
      for (let k = firstBelow(list, node, low); k < list.length; k++) {
        const i = list[k];
        if (node.y[i] > high) break;
        const flags = node.flags[i], top = this.y(node.y[i]), height = Math.max(0.75, node.height[i] * this.zoom);
        const matched = this.matches?.has(i);
        if (flags & HEADING) {
          if (texts) {
            this.font(size, SANS, 600);
            c.fillStyle = matched ? ink.select : ink.fusionText;
            const about = strings[node.detail[i]];
            const name = this.shorten(strings[node.name[i]], x1 - x0 - 12);
            c.fillText(name, x0 + 4, top + height / 2);
            const room = x1 - x0 - 20 - c.measureText(name).width;
            this.font(size - 0.5, SANS);
            c.textAlign = "right";
            if (room > 30) c.fillText(this.shorten(about, room), x1 - 4, top + height / 2);
            c.textAlign = "left";
          }
          continue;
        }
        const radius = Math.min(3.5, height / 3);
        c.beginPath();
        if (height > 5) c.roundRect(x0, top, x1 - x0, height, radius);
        else c.rect(x0, top, x1 - x0, height);
        if (flags & GHOST) {
          c.setLineDash([4, 3]);
          c.lineWidth = 1;
          c.strokeStyle = ink.arcs[RECOMPUTED];
          c.stroke();
          c.setLineDash([]);
        } else {
          c.fillStyle = matched ? ink.found : height > 5 ? ink.fills[side] : ink.strokes[side];
          c.fill();
          if (height > 5) {
            c.lineWidth = 1;
            c.strokeStyle = flags & CLONE ? ink.arcs[RECOMPUTED] : ink.strokes[side];
            if (flags & CLONE) c.setLineDash([4, 3]);
            c.stroke();
            c.setLineDash([]);
          }
        }
        if (!texts) continue;
        const middle = top + height / 2, pad = 7 * Math.max(1, this.zoom);
        const marks = this.scene.marksOf.get(i), last = marks?.at(-1);
        const taken = last ? (last.right + last.width) * Math.max(1, this.zoom) : 0;
        this.font(size, MONO, 500);
        c.fillStyle = flags & GHOST ? ink.arcs[RECOMPUTED] : ink.texts[side];
        const name = this.shorten(strings[node.name[i]], x1 - x0 - 2 * pad - taken);
        c.fillText(name, x0 + pad, middle);
        const room = x1 - x0 - 2 * pad - taken - c.measureText(name).width - 10;
        if (marks) this.drawMarks(i);
        this.font(size - 1, MONO);
        const detail = strings[node.detail[i]];
        const shown = c.measureText(detail).width <= room ? detail : strings[node.shape[i]];
        if (shown && c.measureText(shown).width <= room) {
          c.fillStyle = ink.soft[side];
          c.textAlign = "right";
          c.fillText(shown, x1 - pad - taken, middle);
          c.textAlign = "left";
        }
      }
    }
  }

  drawArcs(low, high) {
    const c = this.context, { arc, strings } = this.scene, ink = this.ink;
    const chosen = this.scene.at.get(this.model.get("selected"));
    const near = chosen?.kind === "node" ? new Set(this.scene.arcsFrom.get(chosen.index) ?? []) : null;
    const labels = [];
    for (let i = 0; i < arc.y0.length; i++) {
      if (Math.max(arc.y0[i], arc.y1[i]) < low || Math.min(arc.y0[i], arc.y1[i]) > high) continue;
      const strong = (chosen?.kind === "arc" && chosen.index === i) || near?.has(i) || (this.hover?.kind === "arc" && this.hover.index === i);
      const inner = arc.shape[i] === SIDE, color = this.arcColor(i);
      this.tracePath(this.curve(i));
      if (this.away(i)) this.tracePath(this.wayBack(i), true);
      c.lineWidth = inner ? (strong ? 2.5 : 1.25) : arc.width[i] * Math.max(0.5, Math.min(1, this.zoom * 1.5)) + (strong ? 1.5 : 0);
      c.strokeStyle = color;
      c.globalAlpha = strong ? 1 : near ? 0.35 : 0.85;
      c.setLineDash(arc.style[i] === RECOMPUTED ? [6, 4] : arc.style[i] === OFFLOADED ? [1.5, 4] : []);
      c.lineCap = arc.style[i] === OFFLOADED ? "round" : "butt";
      c.stroke();
      c.setLineDash([]);
      c.lineCap = "butt";
      c.globalAlpha = 1;
      if (!inner || strong) labels.push([i, color, strong]);
      if (inner && this.zoom > 0.3) this.dot(i, color);
    }
    if (!this.labelled()) return;
    const scale = Math.max(1, this.zoom);
    this.font(10 * scale, MONO, 500);
    for (const [i, color, strong] of labels) {
      const [x0, y] = this.curve(i);
      const text = strings[arc.label[i]], width = c.measureText(text).width + 10;
      const left = this.away(i) ? this.handle(i).x - width / 2 : arc.shape[i] !== SIDE ? x0 + 6 : arc.side[i] === 0 ? x0 + 16 : x0 - 16 - width;
      c.beginPath();
      c.roundRect(left, y - 7 * scale, width, 14 * scale, 7 * scale);
      c.fillStyle = this.paper;
      c.fill();
      c.lineWidth = strong ? 1.5 : 0.75;
      c.strokeStyle = color;
      c.globalAlpha = strong ? 1 : 0.55;
      c.stroke();
      c.globalAlpha = 1;
      c.fillStyle = color;
      c.fillText(text, left + 5, y + 0.5);
    }
  }

  /** What goes from fusion to fusion has the fusions' colour; green, orange and blue are for what crosses. */
  arcColor(index) {
    const { arc } = this.scene;
    return arc.shape[index] === SIDE && arc.style[index] === SAVED ? this.ink.fusion : this.ink.arcs[arc.style[index]];
  }

  dot(index, color) {
    const c = this.context, { x, y } = this.handle(index);
    c.beginPath();
    c.arc(x, y, 3.5, 0, 2 * Math.PI);
    c.fillStyle = this.paper;
    c.fill();
    c.lineWidth = 1.5;
    c.strokeStyle = color;
    c.stroke();
  }

  tracePath([x0, y0, a, b, p, q, x1, y1], on = false) {
    if (!on) this.context.beginPath();
    this.context.moveTo(x0, y0);
    this.context.bezierCurveTo(a, b, p, q, x1, y1);
  }

  /** The selected statement, what it reads from and who reads it. */
  drawSelection() {
    const chosen = this.scene.at.get(this.model.get("selected"));
    const focused = document.activeElement === this.canvas || this.el.getRootNode().activeElement === this.canvas;
    if (chosen?.kind === "node") {
      const { into = [], out = [] } = this.scene.neighbours.get(chosen.index) ?? {};
      for (const other of into) this.outline(other, this.ink.texts[0], 1.25);
      for (const other of out) this.outline(other, this.ink.arcs[0], 1.25);
      this.outline(chosen.index, this.ink.select, focused ? 2.5 : 2);
    } else if (chosen?.kind === "mark") {
      this.outline(this.scene.mark.node[chosen.index], this.ink.select, focused ? 2.5 : 2);
    } else if (chosen?.kind === "arc") {
      const { arc } = this.scene;
      for (const end of [arc.source[chosen.index], arc.target[chosen.index]]) if (end >= 0) this.outline(end, this.arcColor(chosen.index), 1.75);
    }
    if (this.hover?.kind === "node") this.outline(this.hover.index, this.ink.muted, 1);
  }

  outline(index, color, width) {
    const c = this.context, { node } = this.scene, [x0, x1] = this.columns().sides[node.side[index]];
    const height = Math.max(2, node.height[index] * this.zoom), top = this.y(node.y[index]);
    if (top > this.heightPx || top + height < HEAD) return;
    c.beginPath();
    c.roundRect(x0 - 1, top - 1, x1 - x0 + 2, height + 2, Math.min(4, height / 2));
    c.lineWidth = width;
    c.strokeStyle = color;
    c.stroke();
  }

  /** The name of a fusion whose box begins above the view stays at its upper edge. */
  drawHeadings() {
    if (!this.labelled()) return;
    const c = this.context, { run, strings } = this.scene, { sides } = this.columns(), tall = 16;
    this.font(11, SANS, 600);
    for (let i = 0; i < run.y.length; i++) {
      const top = this.y(run.y[i]), bottom = top + run.height[i] * this.zoom;
      if (top > HEAD - 4 || bottom < HEAD + 2 * tall) continue;
      const [x0, x1] = sides[run.side[i]];
      c.fillStyle = this.paper;
      c.fillRect(x0 - 3.5, HEAD, x1 - x0 + 7, tall);
      c.fillStyle = this.ink.fusionFill;
      c.fillRect(x0 - 3.5, HEAD, x1 - x0 + 7, tall);
      c.fillStyle = this.ink.fusionText;
      c.fillText(this.shorten(`↑ ${strings[run.name[i]]}`, x1 - x0 - 8), x0 + 4, HEAD + tall / 2);
    }
  }

  /** Where the view stands in the whole, at the right edge. */
  drawMap() {
    const total = HEAD + (this.scene.height - HEAD) * this.zoom, room = this.heightPx - HEAD;
    if (total <= this.heightPx + 1) return;
    const c = this.context, size = Math.max(24, room * room / total);
    c.beginPath();
    c.roundRect(this.width - 6, HEAD + (room - size) * this.top / (total - this.heightPx), 4, size, 2);
    c.fillStyle = this.ink.muted;
    c.globalAlpha = 0.5;
    c.fill();
    c.globalAlpha = 1;
  }

  // ---- pointer and keys ---------------------------------------------------------------------------------------

  pointer(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  onDown(event) {
    this.canvas.focus({ preventScroll: true });
    const [x, y] = this.pointer(event), bar = this.scene ? this.barHit(x, y) : null;
    this.drag = { x, y, left: this.left, top: this.top, moved: false, bar };
    this.canvas.setPointerCapture(event.pointerId);
  }

  onMove(event) {
    const [x, y] = this.pointer(event);
    if (!this.drag) { this.setHover(this.hit(x, y), x, y); return; }
    if (Math.hypot(x - this.drag.x, y - this.drag.y) > 3) this.drag.moved = true;
    if (!this.drag.moved) return;
    if (this.drag.bar) {
      this.drag.at = y;
      this.drag.target = this.nodeNear(this.scene.bar.side[this.drag.bar.index], y);
      this.tip.hidden = true;
      this.redraw();
      return;
    }
    this.left = this.drag.left - (x - this.drag.x);
    this.top = this.drag.top - (y - this.drag.y);
    this.setHover(null);
    this.canvas.style.cursor = "grabbing";
    this.clamp();
    this.redraw();
  }

  onUp(event) {
    const drag = this.drag;
    this.drag = null;
    this.canvas.style.cursor = "";
    if (drag?.bar && drag.moved) {
      this.select(drag.bar.id);
      this.place(drag.bar.id, drag.target);
      return;
    }
    if (!drag || drag.moved) return;
    const target = this.hit(...this.pointer(event));
    if (!target) this.select("");
    else if (target.kind === "section") this.fold(target.index);
    else {
      this.select(target.id);
      if (target.kind !== "node" && target.kind !== "bar") this.turn(target.id);
    }
  }

  onWheel(event) {
    const [x, y] = this.pointer(event);
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.setZoom(this.zoom * Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0022)), x, y);
      return;
    }
    const { top, left } = this, unit = event.deltaMode === 1 ? 18 : 1;
    this.top += event.deltaY * unit;
    this.left += event.deltaX * unit;
    this.clamp();
    // At the ends the page scrolls on.
    if (this.top !== top || this.left !== left) event.preventDefault();
    this.setHover(null);
    this.redraw();
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = {
      ArrowDown: () => this.step(1), ArrowUp: () => this.step(-1), ArrowLeft: () => this.across(-1), ArrowRight: () => this.across(1),
      " ": () => this.turnSelected(), "/": () => this.search.focus(), u: () => this.model.send({ type: "undo" }),
      r: () => this.model.send({ type: "redo" }), f: () => this.fit(), 1: () => this.setZoom(1), "+": () => this.onTool("in"),
      "[": () => this.nudge(-1), "]": () => this.nudge(1), "=": () => this.onTool("in"), "-": () => this.onTool("out"), Escape: () => this.select(""),
      Home: () => { this.top = 0; this.redraw(); }, End: () => { this.top = Infinity; this.clamp(); this.redraw(); },
      PageDown: () => this.scroll(this.heightPx * 0.9), PageUp: () => this.scroll(-this.heightPx * 0.9),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  scroll(by) { this.top += by; this.clamp(); this.redraw(); }

  onTool(what) {
    if (what === "in") this.setZoom(this.zoom * 1.25);
    else if (what === "out") this.setZoom(this.zoom / 1.25);
    else if (what === "one") this.setZoom(1);
    else if (what === "fit") this.fit();
  }

  /** Move the selection up or down its column; an arc's neighbours are the arcs above and below. */
  step(by) {
    const { node, arc, columns, strings } = this.scene, chosen = this.chosenPlace();
    if (chosen?.kind === "arc") {
      const order = Array.from(arc.y0.keys()).sort((a, b) => arc.y0[a] - arc.y0[b]);
      const next = order[order.indexOf(chosen.index) + by];
      if (next !== undefined) this.select(strings[arc.id[next]], true);
      return;
    }
    const side = chosen ? node.side[chosen.index] : 0, list = columns[side];
    const next = chosen ? list.indexOf(chosen.index) + by : firstBelow(list, node, this.worldY(HEAD));
    if (list[next] !== undefined) this.select(strings[node.id[list[next]]], true);
  }

  /** The arc or the node that the selection is at; a mark is at its node. */
  chosenPlace() {
    const chosen = this.scene.at.get(this.model.get("selected"));
    if (chosen?.kind === "bar") return { kind: "node", index: this.scene.bar.issue_node[chosen.index] };
    return chosen?.kind === "mark" ? { kind: "node", index: this.scene.mark.node[chosen.index] } : chosen;
  }

  /** Move the selection sideways: forward statement, its arc, the backward statement. */
  across(by) {
    const { node, arc, columns, strings, arcsFrom } = this.scene, chosen = this.chosenPlace();
    if (!chosen) { this.step(1); return; }
    if (chosen.kind === "arc") {
      const end = by > 0 ? arc.target[chosen.index] : arc.source[chosen.index];
      if (end >= 0) this.select(strings[node.id[end]], true);
      return;
    }
    const side = node.side[chosen.index];
    const mine = (arcsFrom.get(chosen.index) ?? []).filter((i) => (by > 0 ? arc.source[i] : arc.target[i]) === chosen.index && arc.shape[i] === CROSS);
    if (mine.length) { this.select(strings[arc.id[mine[0]]], true); return; }
    if ((by > 0) === (side === 1)) return;
    const list = columns[1 - side], next = list[Math.min(list.length - 1, firstBelow(list, node, node.y[chosen.index] + 1))];
    if (next !== undefined) this.select(strings[node.id[next]], true);
  }

  select(id, show = false) {
    if (this.model.get("selected") !== id) {
      this.model.set("selected", id);
      this.model.save_changes();
    }
    if (show) this.reveal(id);
    this.redraw();
  }

  /** Scroll so that `id` is in view. */
  reveal(id) {
    const at = this.locate(id);
    if (!at) return;
    if (at.y < HEAD + 24 || at.y > this.heightPx - 40) { this.top += at.y - this.heightPx / 2; this.clamp(); }
    this.redraw();
  }

  turn(id) { this.model.send({ type: "turn", id }); }

  /** What the space key turns: what is selected, or what the selected statement has to choose from. */
  turnSelected() {
    const { at, arc, arcsFrom, mark, marksOf, strings } = this.scene, id = this.model.get("selected"), chosen = at.get(id);
    if (!chosen) return;
    if (chosen.kind === "arc") { this.turn(strings[arc.id[chosen.index]]); return; }
    if (chosen.kind === "mark") { this.turn(strings[mark.id[chosen.index]]); return; }
    if (chosen.kind === "bar") { this.turn(id); return; }
    const own = marksOf.get(chosen.index)?.[0], from = (arcsFrom.get(chosen.index) ?? []).find((i) => arc.source[i] === chosen.index);
    if (own) this.turn(strings[mark.id[own.index]]);
    else if (from !== undefined) this.turn(strings[arc.id[from]]);
  }

  fold(index) {
    const section = this.scene.sections[index];
    if (section.identical > 1) this.model.send({ type: "fold", stem: section.stem });
  }

  // ---- search ------------------------------------------------------------------------------------------------

  onSearch() {
    const { node, strings } = this.scene, query = this.search.value.trim().toLowerCase();
    this.matches = null;
    if (query) {
      const list = [];
      for (let i = 0; i < node.id.length; i++) {
        const text = `${strings[node.name[i]]} ${strings[node.full[i]]} ${strings[node.detail[i]]} ${strings[node.about[i]]}`;
        if (text.toLowerCase().includes(query)) list.push(i);
      }
      list.sort((a, b) => node.y[a] - node.y[b] || node.side[a] - node.side[b]);
      this.matches = new Set(list);
      this.matchList = list;
      this.matchAt = 0;
      if (list.length) this.reveal(strings[node.id[list[0]]]);
    }
    this.found.textContent = query ? `${this.matches.size}` : "";
    this.redraw();
  }

  onSearchKey(event) {
    event.stopPropagation();
    if (event.key === "Escape") { this.search.value = ""; this.onSearch(); this.canvas.focus(); }
    if (event.key === "Enter" && this.matches?.size) {
      const index = this.matchList[this.matchAt % this.matchList.length];
      this.matchAt += event.shiftKey ? this.matchList.length - 1 : 1;
      this.select(this.scene.strings[this.scene.node.id[index]], true);
    }
  }

  // ---- tooltip -----------------------------------------------------------------------------------------------

  setHover(target, x = 0, y = 0) {
    const same = target?.id === this.hover?.id;
    this.hover = target;
    this.canvas.style.cursor = target ? "pointer" : "";
    if (!target || target.kind === "section") this.tip.hidden = true;
    else this.showTip(target, x, y);
    if (!same) this.redraw();
  }

  showTip(target, x, y) {
    const { node, arc, mark, strings } = this.scene;
    const rows = [];
    if (target.kind === "node") {
      const i = target.index, flags = node.flags[i];
      rows.push(["b", strings[node.full[i]]], ["", strings[node.detail[i]]]);
      const traits = [
        node.bytes[i] ? humanBytes(node.bytes[i]) : "", strings[node.executor[i]], flags & RANDOM ? "random" : "",
        flags & VIEW ? "view, no memory of its own" : "", flags & CLONE ? "computed again in the backward" : "",
        flags & COLLECTIVE ? "collective" : "",
      ];
      rows.push(["", traits.filter(Boolean).join(" · ")], ["i", strings[node.about[i]]]);
    } else {
      const tip = target.kind === "mark" ? mark.tip : target.kind === "bar" ? this.scene.bar.tip : arc.tip;
      rows.push(...strings[tip[target.index]].split("\n").map((text, i) => [i ? "" : "b", text]));
    }
    this.tip.replaceChildren(...rows.filter(([, text]) => text).map(([tag, text]) => {
      const row = document.createElement("div");
      row.className = `wb-tip-${tag || "p"}`;
      row.textContent = text;
      return row;
    }));
    this.tip.hidden = false;
    const { offsetWidth, offsetHeight } = this.tip;
    this.tip.style.left = `${Math.max(4, Math.min(x + 14, this.width - offsetWidth - 8))}px`;
    this.tip.style.top = `${y + 18 + offsetHeight > this.heightPx ? Math.max(4, y - offsetHeight - 12) : y + 18}px`;
  }
}

/** Distance from a point to a cubic curve, by samples. */
function distanceTo([x0, y0, a, b, p, q, x1, y1], x, y) {
  let best = Infinity, px = x0, py = y0;
  for (let step = 1; step <= 24; step++) {
    const t = step / 24, s = 1 - t;
    const nx = s * s * s * x0 + 3 * s * s * t * a + 3 * s * t * t * p + t * t * t * x1;
    const ny = s * s * s * y0 + 3 * s * s * t * b + 3 * s * t * t * q + t * t * t * y1;
    const dx = nx - px, dy = ny - py, length = dx * dx + dy * dy || 1;
    const along = Math.max(0, Math.min(1, ((x - px) * dx + (y - py) * dy) / length));
    best = Math.min(best, Math.hypot(x - px - along * dx, y - py - along * dy));
    [px, py] = [nx, ny];
  }
  return best;
}

/** @param {{model: Model, el: HTMLElement}} context */
function render({ model, el }) {
  const view = new View(model, el);
  // What browser tests ask: where something is on the page, what is there, and what the view shows.
  el.__workbench = {
    position(id) {
      view.reveal(id);
      const at = view.locate(id), box = view.canvas.getBoundingClientRect();
      return at && { x: box.left + at.x, y: box.top + at.y };
    },
    hit(x, y) {
      const box = view.canvas.getBoundingClientRect();
      return view.hit(x - box.left, y - box.top)?.id ?? null;
    },
    state() {
      const { scene: s } = view;
      return {
        nodes: s?.node.id.length ?? 0, zoom: view.zoom, top: view.top, selected: model.get("selected"), dark: view.dark,
        drawn_ms: view.drawn, sections: s?.sections ?? [],
        arcs: s ? Array.from(s.arc.id, (id, i) => ({ id: s.strings[id], style: s.arc.style[i], label: s.strings[s.arc.label[i]] })) : [],
        marks: s ? Array.from(s.mark.id, (id, i) => ({ id: s.strings[id], text: s.strings[s.mark.text[i]], state: s.mark.state[i] })) : [],
        bars: s ? Array.from(s.bar.side, (side, i) => ({ side, ...view.barAt(i), id: s.strings[s.bar.issue[i]], wait_id: s.strings[s.bar.wait[i]] })) : [],
        ids: s ? Array.from(s.node.id, (id) => s.strings[id]) : [], matches: view.matches?.size ?? null,
      };
    },
    view,
  };
  return () => view.destroy();
}

export default { render };
