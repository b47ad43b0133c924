// A Bokeh plot that needs no network: Python sends the library once per page, and the data as a trait.

import { afterGraph, h, humanBytes, isPlainKey, panel } from "./dom.js";

const LEAST = 120; // least height of a plot, in pixels
const ROOM = 260; // least height of a plot whose axes have names, in pixels
const NARROW = 480; // width below which the legend is below the plot and not beside it, in pixels
const SETTLED = 60; // time from the last change of the visible range to the request for its points, in milliseconds

/** Return BokehJS in the version that made the plot. Load it if the page lacks it; another version on the page stays. */
async function library(model, /** @type {string} */ version) {
  const pages = /** @type {any} */ (window);
  const has = () => pages.Bokeh?.[version] ?? (pages.Bokeh?.version === version ? pages.Bokeh : null);
  if (has()) return has();
  pages.__workbenchBokeh ??= new Promise((resolve) => {
    const receive = (message, buffers) => {
      if (message.type !== "library") return;
      model.off("msg:custom", receive);
      const script = document.createElement("script");
      script.textContent = new TextDecoder().decode(buffers[0]);
      document.head.append(script);
      resolve(null);
    };
    model.on("msg:custom", receive);
    model.send({ type: "library" });
  });
  await pages.__workbenchBokeh;
  return has();
}

/** Wait until the page contains `el`, because Bokeh draws only there. Return false if the view is removed first. */
async function attached(/** @type {HTMLElement} */ el, /** @type {AbortSignal} */ signal) {
  while (!el.isConnected && !signal.aborted) await new Promise((next) => setTimeout(next, 30));
  return !signal.aborted;
}

/** Wait until `el` is visible. Return false if the view is removed first. */
async function visible(/** @type {HTMLElement} */ el, /** @type {AbortSignal} */ signal) {
  if (!(await attached(el, signal))) return false;
  await new Promise((/** @type {(value: null) => void} */ done) => {
    const sizes = new ResizeObserver(() => {
      if (!el.clientWidth) return;
      sizes.disconnect();
      done(null);
    });
    sizes.observe(el);
    signal.addEventListener("abort", () => { sizes.disconnect(); done(null); });
  });
  return !signal.aborted;
}

/** Return a source's columns as lists for Bokeh. Python may send numbers as bytes, names as lines, and sides as the backward's first `x`. */
function columns(/** @type {{[name: string]: any}} */ { lines, backward_from, ...sent }) {
  const numbers = (column) => Array.from(new Float64Array(column.buffer.slice(column.byteOffset, column.byteOffset + column.byteLength)));
  const data = /** @type {{[name: string]: any}} */ (
    Object.fromEntries(Object.entries(sent).map(([name, column]) => [name, Array.isArray(column) ? column : numbers(column)]))
  );
  if (lines === undefined) return data;
  data.statement = data.x.length ? lines.split("\n") : [];
  data.side = data.x.map((at) => (at >= backward_from ? "backward" : "forward"));
  return data;
}

/** @param {{model: any, el: HTMLElement}} context */
function render({ model, el }) {
  panel(el, "plot");
  // A screen reader gets a figure with a description. The lists beside the plot have the numbers.
  el.setAttribute("role", "figure");
  const told = h("span", { class: "wb-unseen", role: "status" });
  const stop = new AbortController();
  let roots = null, shown = null;

  /** Set the plot's height: that of the tab if the CSS sets `--wb-full`, else the plot's own. */
  function fit() {
    const plot = roots?.roots[0]?.model, full = getComputedStyle(el).getPropertyValue("--wb-full").trim() === "1";
    if (!plot || !el.clientWidth) return;
    drawKey(plot);
    const tabs = el.closest(".widget-tab-contents"), above = getComputedStyle(el.parentElement).flexDirection.startsWith("column");
    const room = (above ? el.clientHeight : tabs?.clientHeight - 14) - words.offsetHeight;
    const height = full ? Math.max(LEAST, room) : usual;
    if (low !== height < ROOM) {
      low = height < ROOM;
      fill();
    }
    // Last, because only another height clears what was drawn outside of the frame, such as the name of an axis.
    if (plot.height !== height) plot.height = height;
  }
  // Low until its height is known: Bokeh does not clear all that it drew of the name of an axis that has no room.
  let low = true;
  const words = h("div", { class: "wb-plot-key", hidden: true });
  /** Draw the legend: beside the plot, or below it if the plot is narrow. */
  function drawKey(/** @type {any} */ plot) {
    const legend = plot.right.find((part) => part.type === "Legend"), narrow = el.clientWidth < NARROW;
    if (!legend) return;
    legend.visible = !narrow;
    words.hidden = !narrow;
    const color = ({ glyph }) => glyph.fill_color?.value ?? glyph.line_color?.value ?? "";
    words.replaceChildren(...legend.items.filter((item) => item.visible).map((item) => h("span", {}, h("i", { style: `background:${color(item.renderers[0])}` }), item.label.value)));
    if (words.parentElement !== el) el.append(words);
  }
  let usual = 0;

  function fill() {
    if (!shown) return;
    const { sources, set, low: ifLow, says } = model.get("content");
    if (says) el.setAttribute("aria-label", says);
    for (const [name, data] of Object.entries(sources ?? {})) shown.get_model_by_name(name).data = columns(data);
    for (const [name, values] of Object.entries(set ?? {})) shown.get_model_by_name(name).setv({ ...values, ...(low ? ifLow?.[name] : {}) });
    const plot = roots?.roots[0]?.model;
    if (plot) drawKey(plot);
  }
  /** Mark on the curve the statements that are selected in the graph. Tell a screen reader the first while the plot has the focus. */
  function mark() {
    const chosen = shown?.get_model_by_name("chosen");
    if (chosen) chosen.data = { x: model.get("chosen") ?? [] };
    const [at] = model.get("chosen") ?? [], { x = [], y = [], statement = [] } = at === undefined ? {} : shown?.get_model_by_name("predicted")?.data ?? {};
    const point = Array.from(x).indexOf(at);
    told.textContent = document.activeElement === el && point >= 0 ? `${statement[point]}: ${humanBytes(y[point])} predicted` : "";
    el.append(told);
  }
  /** On an arrow key, select the next or previous statement of the curve; without a selection, the statement at the peak. */
  function key(/** @type {KeyboardEvent} */ event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key], rows = model.get("chosen");
    if (!by || !rows || event.target !== el || !shown || !isPlainKey(event)) return;
    event.preventDefault();
    const x = rows.length ? (by > 0 ? rows.at(-1) : rows[0]) + by : shown.get_model_by_name("peak").data.x[0];
    model.send({ type: "at", x, by });
  }
  if (model.get("chosen")) el.tabIndex = 0;
  el.addEventListener("keydown", key);
  /** Select in the graph the statement at the clicked position of the curve. */
  function tap({ x }) { model.send({ type: "at", x }); }

  // If a curve has more points than pixels, request the points in the visible range. Python adds one screen on each side.
  const near = {}, timers = {}, view = Math.random();
  function ask(/** @type {string} */ axis) {
    const { sources = {}, set = {}, sampled = {} } = model.get("content"), range = shown?.get_model_by_name(axis);
    if (!sampled[axis] || !range) return;
    const { start, end } = range, had = near[axis];
    if (start <= set[axis].start && end >= set[axis].end) {
      if (had) for (const name of had.names) shown.get_model_by_name(name).data = columns(sources[name]);
      delete near[axis];
    } else if (!had || start < had.start || end > had.end || (!had.whole && end - start < 0.99 * had.span)) {
      model.send({ type: "range", axis, start, end, pixels: el.clientWidth, view });
    }
  }
  function follow_ranges() {
    for (const axis of Object.keys(model.get("content").sampled ?? {})) {
      shown.get_model_by_name(axis).change.connect(() => {
        clearTimeout(timers[axis]);
        timers[axis] = setTimeout(() => ask(axis), SETTLED);
      });
    }
  }
  function take(message) {
    if (message.type !== "points" || message.view !== view || !shown) return;
    near[message.axis] = { ...message, names: Object.keys(message.sources) };
    for (const [name, data] of Object.entries(message.sources)) shown.get_model_by_name(name).data = columns(data);
  }
  /** Embed a plot in the page, and return its Bokeh views; null if the widget was removed, or the plot is outdated. */
  async function embedded(bokeh, item, /** @type {() => boolean} */ current) {
    while (await attached(el, stop.signal) && current()) {
      const place = document.createElement("div");
      roots?.clear();
      el.replaceChildren(place);
      try {
        return await bokeh.embed.embed_item(item, place);
      } catch (error) {
        // The page has removed the element meanwhile, for example when a cell is run again. It may come back.
        if (place.isConnected) throw error;
        await new Promise((next) => setTimeout(next, 30));
      }
    }
    return null;
  }
  let drawings = 0;
  async function draw() {
    // While a plot is being embedded, a plot in the colours of another theme may come. Keep only the latest plot.
    const drawing = ++drawings, current = () => drawing === drawings;
    if (!(await visible(el, stop.signal))) return;
    await afterGraph(el);
    if (!current() || stop.signal.aborted) return;
    const { item, version, pickable } = model.get("plot");
    const bokeh = await library(model, version);
    const made = await embedded(bokeh, item, current);
    if (!made) return;
    if (!current()) { made.clear(); return; }
    roots = made;
    shown = roots.roots[0].model.document;
    for (const name of pickable ?? []) {
      const source = shown.get_model_by_name(name);
      source.selected.properties.indices.change.connect(() => {
        const [index] = source.selected.indices;
        if (index === undefined) return;
        model.send({ type: "pick", source: name, index });
        source.selected.indices = [];
      });
    }
    usual = roots.roots[0].model.height;
    low = true;
    roots.roots[0].model.on_event("tap", tap);
    fill();
    follow_ranges();
    mark();
    fit();
  }
  const sizes = new ResizeObserver(fit);
  void attached(el, stop.signal).then((there) => {
    const tabs = el.closest(".widget-tab-contents");
    // Observe the plot and its tab: a plot that was drawn while another tab was open gets its height when it is shown.
    if (there) for (const part of [el, tabs]) if (part) sizes.observe(part);
  });
  model.on("change:plot", draw);
  const refill = () => { for (const axis of Object.keys(near)) delete near[axis]; fill(); mark(); };
  model.on("change:content", refill);
  model.on("change:chosen", mark);
  model.on("msg:custom", take);
  void draw();
  return () => { stop.abort(); sizes.disconnect(); model.off("change:plot", draw); model.off("change:content", refill); model.off("change:chosen", mark); model.off("msg:custom", take); roots?.clear(); };
}

export default { render };
