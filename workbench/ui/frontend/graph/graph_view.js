// The joint graph on a canvas, as a widget: pan, zoom, pointer, keys, search and tooltip. Layout comes from Python.

import { fold, h, isPlainKey, previews } from "../dom.js";
import { draw } from "./graph_drawing.js";
import { toggleKeys } from "./graph_keys.js";
import { keysOf, toggleLegend } from "./graph_legend.js";
import { Overview } from "./graph_map.js";
import { itemsOf, openMenu } from "./graph_menu.js";
import {
  COMPOSITE, CROSS, DARK, FOOT, HEAD, LEGIBLE, LIGHT, MAX_ZOOM, MIN_ZOOM, MOMENT, SLIM, TURN, firstBelow, isDark, scene, unpacked,
} from "./graph_scene.js";
import { entriesOf, search } from "./graph_search.js";
import { GraphState } from "./graph_state.js";
import { about } from "./graph_text.js";

/** @typedef {import("./graph_scene.js").Model} Model */

class View {
  /** @param {Model} model @param {HTMLElement} el */
  constructor(model, el) {
    this.model = model;
    this.el = el;
    this.refitUntil = 0; // time until which a new scene is fitted to the view; as `performance.now`
    this.atFit = true; // whether to fit the graph to the view again after a resize; a zoom or drag ends this
    this.pending = 0; // id of the requested animation frame; 0 if there is none
    this.drawn = 0; // duration of the last drawing, in milliseconds
    this.preview = previews(model);
    this.received = 0;
    this.coming = false; // whether data are being unpacked
    this.wanted = ""; // id to reveal after the unpacking
    this.clicked = /** @type {string[]} */ ([]); // ids of the elements under the last two clicks
    this.closeMenu = () => {};
    this.hits = /** @type {import("./graph_search.js").Entry[]} */ ([]); // entries that the search found
    this.current = ""; // id of the current entry of `hits`
    this.walked = false; // whether the user has stepped through `hits`
    this.typed = false; // whether to show the first match again when the index comes
    this.index = /** @type {any} */ (null); // index of all statements of the program; null until it comes
    this.indexAsked = false;
    this.build();
    this.paintTheme();
    void this.receive(model.get("data"));
  }

  /** Draw data from Python. Unpack packed data first, and drop them if newer data come meanwhile. */
  async receive(data) {
    const own = ++this.received;
    if (data?.packed) {
      if (typeof DecompressionStream === "undefined") { this.model.send({ type: "plain" }); return; }
      this.coming = true;
      data = await unpacked(data.packed);
      if (own !== this.received) return;
    }
    this.coming = false;
    this.take(scene(data));
    if (this.wanted) this.reveal(this.wanted, true);
    this.wanted = "";
  }

  build() {
    const { el, model } = this;
    const still = model.get("read_only") === true;
    const keys = `Arrows move,${still ? "" : " space turns the selected choice, Shift+F10 opens its menu,"} ${still ? "" : " o folds or unfolds identical layers,"} slash searches, question mark lists all keys.`;
    el.classList.add("wb-graph");
    el.dataset.lmSuppressShortcuts = "true";
    el.style.height = `${model.get("height")}px`;
    el.innerHTML = `
      <canvas tabindex="0" role="application"
        aria-label="Joint graph. ${keys}"></canvas>
      <div class="wb-foot">
        <span class="wb-key-row"></span>
        <button data-do="legend" aria-expanded="false" title="What every line, box and colour means">Legend</button>
        <button data-do="views" hidden title="Statements that own no memory: reshapes, transposes, slices, shallow_copy"></button>
        <span class="wb-find">
          <input type="search" placeholder="Search  /" aria-label="Search statements" title="A name, a value, a module such as layers.17, a source line" spellcheck="false">
          <span class="wb-found" aria-live="polite"></span>
          <button data-do="previous" title="Previous (Shift + Enter)" aria-label="Previous match">↑</button>
          <button data-do="next" title="Next (Enter)" aria-label="Next match">↓</button>
        </span>
        <button data-do="out" title="Zoom out (ctrl + wheel)">−</button>
        <button data-do="in" title="Zoom in (ctrl + wheel)">+</button>
        <button data-do="one" title="Actual size (1)">1:1</button>
        <button data-do="fit" title="Show all of the graph (f)">Show all</button>
      </div>
      <div class="wb-tip" hidden></div>
      <span class="wb-unseen" role="status"></span>`;
    this.viewsButton = /** @type {HTMLElement} */ (el.querySelector('[data-do="views"]'));
    this.keys = /** @type {HTMLElement} */ (el.querySelector(".wb-key-row"));
    this.canvas = /** @type {HTMLCanvasElement} */ (el.querySelector("canvas"));
    this.search = /** @type {HTMLInputElement} */ (el.querySelector("input"));
    this.found = /** @type {HTMLElement} */ (el.querySelector(".wb-found"));
    this.tip = /** @type {HTMLElement} */ (el.querySelector(".wb-tip"));
    this.told = /** @type {HTMLElement} */ (el.querySelector('[role="status"]'));
    this.state = new GraphState(model, this.canvas);
    this.places = this.state.places;
    this.pen = this.state.pen;
    this.stop = new AbortController();
    const on = (target, type, handler, options = {}) =>
      target.addEventListener(type, handler, { signal: this.stop.signal, ...options });
    on(this.canvas, "pointerdown", (e) => this.onDown(e));
    on(this.canvas, "pointermove", (e) => this.onMove(e));
    on(this.canvas, "pointerup", (e) => this.onUp(e));
    on(this.canvas, "dblclick", () => this.onDouble());
    on(this.canvas, "contextmenu", (e) => this.onMenu(e));
    on(this.canvas, "pointerleave", () => this.setHover(null));
    on(this.canvas, "wheel", (e) => this.onWheel(e), { passive: false });
    on(this.canvas, "keydown", (e) => this.onKey(e));
    on(this.canvas, "focus", () => this.redraw());
    on(this.canvas, "blur", () => { this.preview(null); this.redraw(); });
    on(this.search, "input", () => this.onSearch());
    on(this.search, "focus", () => { this.setHover(null); this.askIndex(); });
    on(this.search, "keydown", (e) => this.onSearchKey(e));
    on(el.querySelector(".wb-foot"), "click", (e) => this.onTool(e.target.closest("[data-do]")?.dataset.do));
    this.overview = new Overview(this.state, {
      moved: () => { this.atFit = false; }, scroll: (by) => this.scroll(by), tool: (what) => this.onTool(what), redraw: () => this.redraw(),
      scrollTo: (top) => { this.atFit = false; this.places.top = top; this.setHover(null); this.places.clamp(); this.redraw(); },
    }, this.stop.signal);
    this.sizes = new ResizeObserver(() => this.resize());
    this.sizes.observe(el);
    this.themes = new MutationObserver(() => this.paintTheme());
    this.themes.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "class"] });
    this.onData = () => { void this.receive(model.get("data")); };
    this.onSelected = () => { this.tell(); this.redraw(); };
    this.onAsked = () => { if (!this.coming) { this.takeAsked(); this.redraw(); } }; // otherwise, `take` draws them with the next scene
    this.onReveal = (message) => {
      if (message?.type === "index") this.takeIndex(message);
      if (message?.type !== "reveal") return;
      if (this.coming) this.wanted = message.id;
      else this.reveal(message.id, true);
    };
    model.on("change:data", this.onData);
    model.on("change:selected", this.onSelected);
    model.on("change:asked", this.onAsked);
    model.on("msg:custom", this.onReveal);
  }

  /** Draw another scene. Fit the first scene to the view; keep the element that `heldBy` returns at its height on the screen. */
  take(next) {
    const { places } = this;
    this.closeMenu(); // its items act on the previous scene
    const held = places.scene && next ? this.heldBy(next) : null, first = !places.scene;
    places.scene = next;
    this.takeAsked();
    if (performance.now() < this.refitUntil || (first && this.atFit && places.width)) this.fit();
    else if (held) places.top += places.locate(held.id).y - held.y;
    this.keys.replaceChildren(...(next ? keysOf(next) : []).map(([name, words]) => h("span", { class: `wb-key wb-key-${name}` }, words)));
    this.nameViews();
    this.index = null;
    this.indexAsked = this.typed = false;
    places.matches = null;
    if (next && this.search.value.trim()) { this.askIndex(); this.find(); }
    this.pen.texts.clear();
    this.setHover(null);
    places.clamp();
    this.redraw();
  }

  /** Store the arcs with pending choices, with the styles of the requested options. */
  takeAsked() {
    const asked = Object.entries(this.model.get("asked") ?? {});
    this.state.asked = new Map(asked.map(([id, style]) => [this.places.scene?.at.get(id), style]).filter(([at]) => at?.kind === "arc").map(([at, style]) => [at.index, style]));
  }

  /** Return the id and height of an element that is in view and in `next`: the selection, else the uppermost forward statement; or null. */
  heldBy(next) {
    const { places } = this;
    const { node, columns, strings } = places.scene, low = places.worldY(HEAD);
    const inView = ({ y }) => y >= HEAD && y <= places.heightPx;
    const upper = columns[0].slice(firstBelow(columns[0], node, low)).map((i) => strings[node.id[i]]);
    for (const id of [this.state.selected, ...upper]) {
      const at = id && next.at.has(id) ? places.locate(id) : null;
      if (at && inView(at)) return { id, y: at.y };
    }
    return null;
  }

  /** Label the button for views with the action of a click and the number of views. */
  nameViews() {
    const { count, hidden } = this.places.scene?.views ?? { count: 0, hidden: 0 };
    this.viewsButton.hidden = count === 0 || this.state.readOnly;
    const rest = h("span", { class: "wb-rest" }, "reshapes and other ");
    this.viewsButton.replaceChildren(...(hidden ? [`Show ${hidden} `] : [`Hide ${count} `]), rest, "views");
  }

  redraw() {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => { this.pending = 0; this.draw(); });
  }

  draw() {
    if (!this.places.width) return;
    const began = performance.now();
    draw(this.state);
    if (this.places.scene) this.overview.draw();
    this.drawn = performance.now() - began;
  }

  destroy() {
    this.closeMenu();
    this.stop.abort();
    this.sizes.disconnect();
    this.themes.disconnect();
    this.model.off("change:data", this.onData);
    this.model.off("change:selected", this.onSelected);
    this.model.off("change:asked", this.onAsked);
    this.model.off("msg:custom", this.onReveal);
  }

  paintTheme() {
    this.dark = isDark(this.el);
    this.el.classList.toggle("wb-dark", this.dark);
    if (this.model.get("dark") !== this.dark) { this.model.set("dark", this.dark); this.model.save_changes(); }
    this.pen.ink = this.dark ? DARK : LIGHT;
    const paper = getComputedStyle(this.el).getPropertyValue("--jp-layout-color0").trim();
    this.pen.paper = paper || this.pen.ink.paper;
    this.redraw();
  }

  resize() {
    const { places } = this;
    const ratio = window.devicePixelRatio || 1;
    // A narrow view has no overview, so that the columns get its width.
    this.el.classList.toggle("wb-slim", this.el.clientWidth < SLIM);
    places.width = this.canvas.clientWidth;
    places.heightPx = this.el.clientHeight - FOOT;
    if (!places.width) return;
    this.canvas.width = Math.round(places.width * ratio);
    this.canvas.height = Math.round(places.heightPx * ratio);
    this.state.ratio = ratio;
    this.pen.texts.clear();
    // Fit the graph to the new size until the user zooms or drags.
    if (this.atFit) this.fit();
    places.clamp();
    // Draw now, not in the next frame: a resized canvas is empty until then.
    this.draw();
  }

  // ---- pan and zoom ------------------------------------------------------------------------------------------

  setZoom(zoom, anchorX = this.places.width / 2, anchorY = this.places.heightPx / 2) {
    const { places } = this;
    const world = places.worldY(anchorY), across = (anchorX + places.left) / places.scaleX;
    places.zoom = Math.max(MIN_ZOOM, Math.min(MAX_ZOOM, zoom));
    this.atFit = false;
    places.top = HEAD + (world - HEAD) * places.zoom - anchorY;
    places.left = across * places.scaleX - anchorX;
    places.clamp();
    this.redraw();
  }

  /** Zoom to actual size around the selection; without one, the first row in view stays. */
  actualSize() {
    const at = this.state.selected && this.places.locate(this.state.selected);
    if (at && at.y >= HEAD && at.y <= this.places.heightPx) this.setZoom(1, at.x, at.y);
    else this.setZoom(1, 0, HEAD);
  }

  fit() {
    const { places } = this;
    if (!places.scene) return;
    places.left = places.top = 0;
    const all = Math.min(1, (places.heightPx - HEAD - TURN) / Math.max(1, places.scene.height - HEAD));
    // A graph of one module would be one box. Show its statements instead, if two heights of the view can show all.
    this.setZoom(places.scene.module.y.length === 1 && all >= LEGIBLE / 2 ? Math.max(all, LEGIBLE) : all);
    this.atFit = true;
  }

  /** Zoom in on a module until its statements can be read. */
  approach(index) {
    const { places } = this;
    const { module } = places.scene, room = places.heightPx - HEAD - 16;
    this.setZoom(Math.max(0.75, Math.min(1, room / module.height[index])));
    places.top = (module.y[index] - HEAD) * places.zoom - 8;
    places.clamp();
    this.redraw();
  }

  /** Request to move the end of a bar to right before a node. */
  place(id, node) {
    if (node >= 0) this.model.send({ type: "place", id, node: this.places.scene.strings[this.places.scene.node.id[node]] });
  }

  /** Move the selected end of a bar by one statement: later if `by` is 1, earlier if it is -1. */
  nudge(by) {
    const { bar, endOf, columns } = this.places.scene, id = this.state.selected, chosen = endOf.get(id);
    if (!chosen) return;
    const side = bar.side[chosen.index], here = bar[`${chosen.end}_node`][chosen.index];
    const next = columns[side].indexOf(here) + (side === 0 ? by : -by);
    this.place(id, columns[side][next] ?? -1);
  }

  // ---- pointer and keys ---------------------------------------------------------------------------------------

  pointer(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  onDown(event) {
    const { places } = this;
    this.tip.hidden = true; // it comes back when the pointer moves
    if (event.button === 2) return; // opens the menu
    this.canvas.focus({ preventScroll: true });
    const [x, y] = this.pointer(event), bar = places.scene && !this.state.readOnly ? places.barHit(x, y) : null;
    this.state.drag = { x, y, left: places.left, top: places.top, moved: false, bar, click: event.button === 0 };
    this.canvas.setPointerCapture(event.pointerId);
  }

  onMove(event) {
    const { places } = this, { drag } = this.state;
    const [x, y] = this.pointer(event);
    if (!drag) { this.setHover(places.hit(x, y), x, y); return; }
    if (Math.hypot(x - drag.x, y - drag.y) > 3) drag.moved = true;
    if (!drag.moved) return;
    if (drag.bar) {
      drag.at = y;
      drag.target = places.nodeNear(places.scene.bar.side[drag.bar.index], y);
      this.tip.hidden = true;
      this.redraw();
      return;
    }
    this.atFit = false;
    places.left = drag.left - (x - drag.x);
    places.top = drag.top - (y - drag.y);
    this.setHover(null);
    this.canvas.style.cursor = "grabbing";
    places.clamp();
    this.redraw();
  }

  onUp(event) {
    const drag = this.state.drag;
    this.state.drag = null;
    this.canvas.style.cursor = "";
    if (drag?.bar && drag.moved) {
      this.select(drag.bar.id);
      this.place(drag.bar.id, drag.target);
      return;
    }
    if (!drag?.click) return;
    if (drag.moved) { this.clicked = []; return; }
    const target = this.places.hit(...this.pointer(event));
    this.clicked = [this.clicked.at(-1) ?? "", target?.id ?? ""];
    if (target?.kind === "section") this.fold(target.index);
    else this.select(target?.id ?? "");
  }

  /** Change an arc or mark, unfold a row, or zoom in on a module. Both clicks must hit the same element, even if the graph changed between. */
  onDouble() {
    const [first, id] = this.clicked, at = this.places.scene?.at.get(id);
    if (first !== id || !at) return;
    if (at.kind === "arc" || at.kind === "mark") this.turn(id);
    else this.enter(at);
  }

  /** Zoom in on a module, or unfold a row. */
  enter(at) {
    if (at?.kind === "module") this.approach(at.index);
    else if (at?.kind === "node") this.unfold(at.index);
  }

  /** Open the menu of the element under the pointer or, by keys, of the selected element. Without items, the browser's own menu opens. */
  onMenu(event) {
    const { places, state } = this;
    state.drag = null; // on macOS, control + left click opens the menu after `onDown` has started a drag
    if (!places.scene) return;
    const byKeys = event.type === "keydown" || (event.button !== 2 && !event.ctrlKey && event.pointerType !== "touch"), at = places.scene.at.get(state.selected);
    if (byKeys && at) this.reveal(state.selected);
    const target = byKeys ? at && { ...at, id: state.selected } : places.hit(...this.pointer(event));
    const items = target ? itemsOf(this, target) : [];
    if (!items.length) return;
    event.preventDefault();
    event.stopPropagation();
    this.closeMenu();
    const { x, y } = byKeys ? places.locate(target.id) : { x: this.pointer(event)[0], y: this.pointer(event)[1] };
    this.setHover(target);
    this.tip.hidden = true;
    this.closeMenu = openMenu(this.el, items, { x, y, height: places.heightPx }, {
      preview: (message) => { if (!state.readOnly) this.preview(message); },
      closed: () => { this.closeMenu = () => {}; this.setHover(null); }, back: this.canvas,
    });
  }

  onWheel(event) {
    const { places } = this;
    this.closeMenu();
    const [x, y] = this.pointer(event);
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.setZoom(places.zoom * Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0022)), x, y);
      return;
    }
    const { top, left } = places, unit = event.deltaMode === 1 ? 18 : 1;
    places.top += event.deltaY * unit;
    places.left += event.deltaX * unit;
    places.clamp();
    // Let the page scroll at the ends of the graph.
    if (places.top !== top || places.left !== left) event.preventDefault();
    this.setHover(null);
    this.redraw();
  }

  onKey(event) {
    const { places } = this;
    if (!isPlainKey(event)) return;
    if (event.key === "ContextMenu" || (event.shiftKey && event.key === "F10")) { this.onMenu(event); return; }
    const act = {
      ArrowDown: () => this.step(1), ArrowUp: () => this.step(-1), ArrowLeft: () => this.across(-1), ArrowRight: () => this.across(1),
      Enter: () => { const at = places.scene.at.get(this.state.selected); this.enter(at?.kind === "module" ? at : this.state.chosenPlace()); },
      " ": () => this.turnSelected(), "/": () => { this.search.focus(); this.search.select(); }, u: () => this.model.send({ type: "undo" }),
      r: () => this.model.send({ type: "redo" }), f: () => this.onTool("fit"), 1: () => this.actualSize(), "+": () => this.onTool("in"),
      o: () => this.foldHere(), "[": () => this.nudge(-1), "]": () => this.nudge(1), "=": () => this.onTool("in"), "-": () => this.onTool("out"), Escape: () => this.select(""),
      l: () => /** @type {HTMLElement | null} */ (this.el.closest(".wb-app")?.querySelector(".wb-beside-bar"))?.click(),
      i: () => fold(this.el, "x"), d: () => fold(this.el, "y"),
      "?": () => toggleKeys(this.el, this.canvas, this.state.readOnly),
      Home: () => { places.top = 0; this.redraw(); }, End: () => { places.top = Infinity; places.clamp(); this.redraw(); },
      PageDown: () => this.scroll(places.heightPx * 0.9), PageUp: () => this.scroll(-places.heightPx * 0.9),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  scroll(by) { this.places.top += by; this.places.clamp(); this.redraw(); }

  onTool(what) {
    const { places } = this;
    if (what === "in") this.setZoom(places.zoom * 1.25);
    else if (what === "out") this.setZoom(places.zoom / 1.25);
    else if (what === "one") this.actualSize();
    else if (what === "fit") {
      this.fit();
      // Request the usual heights. Python keeps a block's height when the block gets more statements.
      this.refitUntil = performance.now() + 2000;
      if (!this.state.readOnly) this.model.send({ type: "relax" });
    }
    else if (what === "next") this.walk(1);
    else if (what === "previous") this.walk(-1);
    else if (what === "legend") toggleLegend(this.el, this.pen.ink, places.scene?.bar.side.length > 0);
    else if (what === "views") this.model.send({ type: "views", shown: places.scene.views.hidden > 0 });
  }

  /** Move the selection up or down in its column; move from an arc to the arc above or below. */
  step(by) {
    const { node, arc, columns, strings } = this.places.scene, chosen = this.state.chosenPlace();
    if (chosen?.kind === "arc") {
      const order = Array.from(arc.y0.keys()).sort((a, b) => arc.y0[a] - arc.y0[b]);
      const next = order[order.indexOf(chosen.index) + by];
      if (next !== undefined) this.select(strings[arc.id[next]], true);
      return;
    }
    const side = chosen ? node.side[chosen.index] : 0, list = columns[side];
    const next = chosen ? list.indexOf(chosen.index) + by : firstBelow(list, node, this.places.worldY(HEAD));
    if (list[next] !== undefined) this.select(strings[node.id[list[next]]], true);
  }

  /** Move the selection sideways: between a forward statement, its arc and the arc's backward statement. */
  across(by) {
    const { node, arc, columns, strings, arcsFrom } = this.places.scene, chosen = this.state.chosenPlace();
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
    if (this.state.selected !== id) {
      this.model.set("selected", id);
      this.model.save_changes();
    }
    if (show) this.reveal(id);
    this.redraw();
  }

  /** Scroll so that `id` is in view. If `near` is set, first zoom in until texts can be read. */
  reveal(id, near = false) {
    const { places } = this;
    if (near && !places.labelled() && places.locate(id)) this.setZoom(1);
    const at = places.locate(id);
    if (!at) return;
    if (at.y < HEAD + 24 || at.y > places.heightPx - 40) { places.top += at.y - places.heightPx / 2; places.clamp(); }
    this.redraw();
  }

  turn(id) { if (!this.state.readOnly) this.model.send({ type: "turn", id }); }

  /** Return the arc or mark that a click on an element changes: for a statement, its first mark, else its first outgoing arc; or null. */
  turned(at) {
    const { arc, arcsFrom, marksOf } = this.places.scene;
    if (at?.kind !== "node") return at?.kind === "arc" || at?.kind === "mark" ? at : null;
    const own = marksOf.get(at.index)?.[0], from = (arcsFrom.get(at.index) ?? []).find((i) => arc.source[i] === at.index);
    if (own) return { kind: "mark", index: own.index };
    return from === undefined ? null : { kind: "arc", index: from };
  }

  /** Change the selected arc, mark or bar to the next legal option; for a statement, its mark or arc (`turned`). */
  turnSelected() {
    const { scene } = this.places, id = this.state.selected, chosen = scene.at.get(id), turned = this.turned(chosen);
    if (turned) this.turn(scene.strings[scene[turned.kind].id[turned.index]]);
    else if (chosen?.kind === "bar") this.turn(id);
  }

  fold(index) {
    const section = this.places.scene.sections[index];
    if (section.identical > 1) this.model.send({ type: "fold", stem: section.stem, folded: section.count > 1 });
  }

  /** Fold or unfold the layer of the selection, else the first layer in view that has identical layers. */
  foldHere() {
    const { sections } = this.places.scene, chosen = this.state.chosenPlace(), top = this.places.worldY(HEAD);
    const own = chosen ? this.sectionOf(chosen) : -1;
    const found = own >= 0 ? own : sections.findIndex((one) => one.identical > 1 && one.y + one.height > top);
    if (found >= 0 && !this.state.readOnly) this.fold(found);
  }

  /** Return the index of the layer that contains an element, if there are identical layers; else -1. */
  sectionOf(at) {
    const { node, arc, mark, module, sections } = this.places.scene;
    if (at.kind === "section") return sections[at.index].identical > 1 ? at.index : -1;
    const y = at.kind === "arc" ? arc.y0[at.index] : at.kind === "mark" ? node.y[mark.node[at.index]] : { node, module }[at.kind]?.y[at.index];
    return sections.findIndex((one) => one.identical > 1 && y >= one.y && y < one.y + one.height);
  }

  /** Show the statements of a row that stands for several (adjacent waits, or a composite), or show them as one row again. */
  unfold(index) {
    const { node, strings } = this.places.scene;
    if (node.flags[index] & COMPOSITE && !this.state.readOnly) this.model.send({ type: "fold", node: strings[node.id[index]] });
    else if (node.flags[index] & MOMENT && !this.state.readOnly) this.model.send({ type: "fold", stem: `waits:${strings[node.id[index]].slice(2)}` });
  }

  // ---- search ------------------------------------------------------------------------------------------------

  /** Request the index, which also has statements of folded layers and hidden views. */
  askIndex() {
    if (this.index || this.indexAsked || this.state.readOnly) return;
    this.indexAsked = true;
    this.model.send({ type: "index" });
  }

  takeIndex(index) {
    this.index = index;
    if (!this.search.value.trim() || !this.places.scene || this.coming) return;
    this.find();
    if (this.enteredEarly) this.walk(this.enteredEarly);
    else if (this.typed && !this.walked) this.showFirst();
    this.typed = false;
    this.enteredEarly = 0;
  }

  /** Search again, for example after a new plan or a fold. The current entry stays current if it still matches. */
  find() {
    const { places } = this, { at } = places.scene;
    this.hits = search(entriesOf(places.scene, this.index), this.search.value);
    const nodes = this.hits.map(({ id }) => at.get(id)).filter((entry) => entry?.kind === "node");
    places.matches = this.search.value.trim() ? new Set(nodes.map(({ index }) => index)) : null;
    // The current entry may be only in the index, which has not come yet.
    const isThere = this.hits.some(({ id }) => id === this.current) || (this.indexAsked && !this.index);
    if (!this.walked || !isThere) this.current = this.hits[0]?.id ?? "";
    this.tellFound();
    this.redraw();
  }

  /** Show the position of the current entry and the number of entries. */
  tellFound() {
    const place = this.hits.findIndex(({ id }) => id === this.current), asked = this.search.value.trim();
    this.found.textContent = !asked ? "" : this.hits.length ? `${place < 0 ? "…" : place + 1} of ${this.hits.length}` : this.indexAsked && !this.index ? "…" : "none";
    this.found.title = asked && this.current && !this.places.scene.at.has(this.current) ? "In a folded layer or a hidden view: Enter shows it" : "";
    for (const button of this.el.querySelectorAll(".wb-find button")) /** @type {HTMLButtonElement} */ (button).disabled = !this.hits.length;
  }

  onSearch() {
    if (!this.places.scene) return;
    this.setHover(null);
    this.walked = false;
    this.typed = true;
    this.enteredEarly = 0;
    this.askIndex();
    this.find();
    this.showFirst();
  }

  /** Scroll to the first match, if it is not in view already. The zoom stays. */
  showFirst() { if (this.current) this.reveal(this.current); }

  /** Select the next or the previous match. The first step forward selects the current match. */
  walk(by) {
    const { hits } = this, place = hits.findIndex(({ id }) => id === this.current);
    if (place < 0) {
      // The user was faster than the index: go on when it comes.
      this.enteredEarly = this.indexAsked && !this.index ? by : 0;
      return;
    }
    if (this.walked || by < 0) this.current = hits[(place + by + hits.length) % hits.length].id;
    this.walked = true;
    this.setHover(null);
    if (this.places.scene.at.has(this.current)) { this.select(this.current); this.come(this.current); }
    else this.model.send({ type: "unveil", id: this.current });
    this.tellFound();
  }

  /** Zoom in until an element can be read. Its height on the screen stays; scroll to it if it is not in view. */
  come(id) {
    const { places } = this, at = places.locate(id);
    if (at && !places.labelled()) this.setZoom(1, at.x, Math.max(HEAD, Math.min(at.y, places.heightPx)));
    this.reveal(id);
  }

  onSearchKey(event) {
    event.stopPropagation();
    if (event.key === "Escape") { this.search.value = ""; this.onSearch(); this.canvas.focus(); }
    if (event.key === "Enter") { event.preventDefault(); this.walk(event.shiftKey ? -1 : 1); }
  }

  // ---- tooltip -----------------------------------------------------------------------------------------------

  setHover(target, x = 0, y = 0) {
    if (this.el.querySelector(".wb-menu")) return; // the menu's element stays highlighted
    const same = target?.id === this.state.hover?.id;
    this.state.hover = target;
    this.canvas.style.cursor = target ? "pointer" : "";
    if (!target || target.kind === "section") this.tip.hidden = true;
    else this.showTip(target, x, y);
    if (!same) { this.previewOf(target); this.redraw(); }
  }

  /** Preview the effect of a double click on an arc or a mark. */
  previewOf(target) {
    if (this.state.readOnly) return;
    this.preview(target?.kind === "arc" || target?.kind === "mark" ? { id: target.id } : null);
  }

  /** Describe the selection to a screen reader, which cannot read the canvas, while the canvas has the focus. */
  tell() {
    const at = document.activeElement === this.canvas ? this.places.scene?.at.get(this.state.selected) : null;
    this.told.textContent = at ? about(this.places.scene, at).map(([, text]) => text).filter(Boolean).join(". ") : "";
  }

  showTip(target, x, y) {
    const { places } = this;
    this.tip.replaceChildren(...about(places.scene, target).filter(([, text]) => text).map(([tag, text]) => {
      const row = document.createElement("div");
      row.className = `wb-tip-${tag || "p"}`;
      row.textContent = text;
      return row;
    }));
    this.tip.hidden = false;
    const { offsetWidth, offsetHeight } = this.tip;
    this.tip.style.left = `${Math.max(4, Math.min(x + 14, places.width - offsetWidth - 8))}px`;
    this.tip.style.top = `${y + 18 + offsetHeight > places.heightPx ? Math.max(4, y - offsetHeight - 12) : y + 18}px`;
  }
}

/** @param {{model: Model, el: HTMLElement}} context */
function render({ model, el }) {
  const view = new View(model, el);
  // Queries for browser tests: the position of an element on the page, the element at a position, and the state of the view.
  /** @type {any} */ (el).__workbench = {
    position(id) {
      view.reveal(id, true);
      const at = view.places.locate(id), box = view.canvas.getBoundingClientRect();
      return at && { x: box.left + at.x, y: box.top + at.y };
    },
    hit(x, y) {
      const box = view.canvas.getBoundingClientRect();
      return view.places.hit(x - box.left, y - box.top)?.id ?? null;
    },
    state() {
      const { scene: s } = view.places;
      return {
        nodes: s?.node.id.length ?? 0, zoom: view.places.zoom, top: view.places.top, selected: model.get("selected"), dark: view.dark,
        drawn_ms: view.drawn, sections: s?.sections ?? [],
        arcs: s ? Array.from(s.arc.id, (id, i) => ({ id: s.strings[id], style: s.arc.style[i], asked: view.state.asked.get(i) ?? null, label: s.strings[s.arc.label[i]] })) : [],
        marks: s ? Array.from(s.mark.id, (id, i) => ({ id: s.strings[id], text: s.strings[s.mark.text[i]], state: s.mark.state[i] })) : [],
        bars: s ? Array.from(s.bar.side, (side, i) => ({ side, ...view.places.barAt(i), id: s.strings[s.bar.issue[i]], wait_id: s.strings[s.bar.wait[i]] })) : [],
        modules: s && view.places.far ? view.places.bands().map((i) => ({ scope: s.strings[s.module.scope[i]], y: view.places.y(s.module.y[i]), height: s.module.height[i] * view.places.zoom })) : [],
        ids: s ? Array.from(s.node.id, (id) => s.strings[id]) : [], matches: view.places.matches?.size ?? null, found: view.hits.map(({ id }) => id), current: view.current,
      };
    },
    view,
  };
  return () => view.destroy();
}

export default { render };
