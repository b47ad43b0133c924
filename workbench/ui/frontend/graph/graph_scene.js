// The graph view's scene: the data from Python, indexed for drawing. Also the colours and constants of the view.

/**
 * @typedef {{get(name: string): any, set(name: string, value: any): void, save_changes(): void,
 *   send(message: object): void, on(event: string, callback: Function): void,
 *   off(event: string, callback: Function): void}} Model
 * @typedef {{first: string, last: string, stem: string, count: number, identical: number, y: number,
 *   height: number}} Section
 */

export const HEAD = 30; // height of the sticky column headings, in pixels; `layout_arrays.HEADER`
export const TURN = 14; // height below the last statement for the text at the turn to the backward, in pixels
export const FOOT = 34; // height of the bar with legend and tools below the canvas, in pixels
export const ROW = 20; // height of a statement at zoom 1; `layout_arrays.ROW`
export const BLOCK_PAD = 4; // empty height at the top of a block at zoom 1; `layout_arrays.BLOCK_PAD`
export const SECTION = 26; // height of a layer's heading at zoom 1; `layout_arrays.SECTION`
export const FAR = 14; // minimum height of a layer's heading, in pixels: it stays readable in a zoomed-out graph
export const LEGIBLE = 12 / ROW; // smallest zoom at which statements have text
export const NAMED = 11; // minimum height of a module that is drawn in place of its statements, in pixels
export const NARROWEST = 330; // minimum width of the columns, in pixels: a narrower view scrolls sideways; `layout_arrays.NARROWEST`
export const SLIM = 420; // a view narrower than this has no overview, in pixels
export const ROOMY = 640; // width below which the program's column has a smaller share, in pixels; `layout_arrays.ROOMY`
export const SHARE = 0.27, LEAST_SHARE = 0.16; // shares of the width: of each column, and of the program's column in the narrowest view; as in `layout_arrays`
export const MIN_ZOOM = 0.01;
export const MAX_ZOOM = 3;
export const LANE = 66; // width of the CPU's lane between the columns, in pixels
export const BARS = 44; // width of a communication lane beside a column, in pixels
export const BAR_STEP = 8; // distance between bars, in pixels
export const DASHES = [[], [6, 3], [2, 3], [9, 3, 2, 3]]; // dashes of bars, by process group
export const HIT = 6; // maximum distance between a click and the arc that it hits, in pixels

export const HEADING = 1, GHOST = 2, RANDOM = 4, CLONE = 8, VIEW = 16, COLLECTIVE = 32, MOMENT = 64, COMPOSITE = 128;
export const LOOP = "loop:"; // prefix of the stem of a loop's repeats; `fold_layers.LOOP`
export const CROSS = 0, SIDE = 1;
export const SAVED = 0, RECOMPUTED = 1, OFFLOADED = 2;
export const CHANGED = 1, FIXED = 2; // states of a mark: the choice differs from stock; no other option is legal
export const MONO = '"JetBrains Mono", "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace';
export const SANS = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial, sans-serif';

export const LIGHT = {
  paper: "#ffffff", ink: "#1f2328", muted: "#59636e", hair: "#e6e9ed", rule: "#d0d7de", band: "#f6f8fa",
  fills: ["#e9f1fb", "#fcefe6"], strokes: ["#bfd3ec", "#eccfb9"], texts: ["#16406f", "#703510"],
  soft: ["#4a6484", "#855a3d"], fusion: "#8b6fd0", fusionFill: "rgba(124, 92, 200, 0.07)", fusionText: "#5b3aa8",
  arcs: ["#267044", "#b04a00", "#0b6b85"], select: "#0b57d0", found: "#ffe58a",
};
export const DARK = {
  paper: "#111111", ink: "#e8eaed", muted: "#a3acb7", hair: "#25282c", rule: "#3a4047", band: "#191c20",
  fills: ["#15273c", "#33211a"], strokes: ["#2f5078", "#6d4632"], texts: ["#c4dcf8", "#f6d3bb"],
  soft: ["#8fabcb", "#cfa58b"], fusion: "#9b86e0", fusionFill: "rgba(155, 134, 224, 0.10)", fusionText: "#c9bcfa",
  arcs: ["#63c48a", "#f2a952", "#54c6dc"], select: "#79aeff", found: "#6b5600",
};

/** Return whether the page is dark: by JupyterLab's theme, else by the page's background, else by the browser's preference. */
export function isDark(/** @type {HTMLElement} */ el) {
  const stated = document.body.dataset.jpThemeLight;
  if (stated) return stated === "false";
  for (let node = /** @type {HTMLElement | null} */ (el); node; node = node.parentElement) {
    const parts = getComputedStyle(node).backgroundColor.match(/[\d.]+/g)?.map(Number);
    if (parts && (parts.length < 4 || parts[3] > 0.5)) return 0.3 * parts[0] + 0.6 * parts[1] + 0.1 * parts[2] < 110;
  }
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Copy a message buffer into a typed array. Without a copy, the buffer would have to start at a multiple of the item's size. */
function array(Type, /** @type {DataView | ArrayBuffer} */ view) {
  const { buffer, byteOffset = 0, byteLength } = view instanceof ArrayBuffer ? { buffer: view, byteLength: view.byteLength } : view;
  return new Type(buffer.slice(byteOffset, byteOffset + byteLength));
}

const TYPES = { f: Float32Array, d: Float64Array, i: Int32Array, h: Uint16Array, b: Uint8Array };

/** Unpack data from `payload.pack`: a JSON document with the lengths of the strings and columns, then the strings and columns. */
export async function unpacked(/** @type {DataView | ArrayBuffer} */ view) {
  const stream = new Blob([/** @type {BlobPart} */ (view)]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer(), length = new DataView(buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const texts = new Uint8Array(buffer, 4 + length, head.strings);
  head.strings = new TextDecoder().decode(texts).split("\0");
  let at = 4 + length + texts.length;
  for (const columns of Object.values(head.tables)) {
    for (const column of Object.values(columns)) {
      const bytes = column[1];
      column[1] = new DataView(buffer, at, bytes);
      at += bytes;
    }
  }
  return head;
}

/** Return the scene: `data` from Python with typed arrays and indexes; null without a graph. */
export function scene(data) {
  if (!data?.strings) return null;
  /** @type {any} */
  const out = { strings: data.strings, sections: data.sections, height: data.height, views: data.views ?? { count: 0, hidden: 0 } };
  for (const [table, columns] of Object.entries(data.tables)) {
    out[table] = {};
    for (const [name, [code, view]] of Object.entries(columns)) out[table][name] = array(TYPES[code], view);
  }
  out.module ??= { y: [], height: [], depth: [] }; // a plan that an older version saved has no modules
  out.choice ??= { id: [] }; // a plan that an older version saved has no data for the menu
  const { node, arc, module } = out;
  out.at = new Map();
  for (let i = module.y.length - 1; i >= 0; i--) out.at.set(`module:${out.strings[module.scope[i]]}`, { kind: "module", index: i }); // reversed, so that the first module of a name is found
  for (let i = 0; i < node.id.length; i++) out.at.set(out.strings[node.id[i]], { kind: "node", index: i });
  for (let i = 0; i < arc.id.length; i++) out.at.set(out.strings[arc.id[i]], { kind: "arc", index: i });
  for (let i = 0; i < out.alias.id.length; i++) {
    const mark = out.alias.mark[i];
    out.at.set(out.strings[out.alias.id[i]], mark < 0 ? { kind: "arc", index: out.alias.arc[i] } : { kind: "mark", index: mark });
  }
  // Marks of each node, from the node's right edge leftwards: distance from this edge, and width, in pixels at zoom 1.
  out.marksOf = new Map();
  for (let i = 0; i < out.mark.id.length; i++) {
    out.at.set(out.strings[out.mark.id[i]], { kind: "mark", index: i });
    const node = out.mark.node[i], others = out.marksOf.get(node) ?? [];
    const right = others.length ? others.at(-1).right + others.at(-1).width + 3 : 3;
    out.marksOf.set(node, [...others, { index: i, right, width: 5.8 * out.strings[out.mark.text[i]].length + 11 }]);
  }
  // The site ids of a bar's ends lead to the bar, unless they lead to another element.
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
  out.spines = spinesOf(out.run);
  // Computed when first used, because only a selection needs the neighbours.
  let neighbours;
  Object.defineProperty(out, "neighbours", { enumerable: true, get: () => (neighbours ??= neighboursOf(out.edge)) });
  return out;
}

/** Return a line for each fusion with several pieces in one column. The line joins the first piece to the last. */
function spinesOf({ y, height, fusion, side }) {
  const spines = new Map();
  for (let i = 0; i < y.length; i++) {
    const key = fusion[i] * 2 + side[i], span = spines.get(key);
    if (span) { span.to = y[i] + height[i] / 2; span.pieces++; }
    else spines.set(key, { from: y[i] + height[i] / 2, to: y[i], side: side[i], pieces: 1, fusion: fusion[i] });
  }
  return Array.from(spines.values()).filter(({ pieces }) => pieces > 1);
}

/** Return, for each node, the nodes whose values it reads (`into`) and the nodes that read its values (`out`). */
function neighboursOf({ source, target }) {
  const found = new Map();
  const of = (/** @type {number} */ node) => { if (!found.has(node)) found.set(node, { into: [], out: [] }); return found.get(node); };
  for (let i = 0; i < source.length; i++) {
    of(source[i]).out.push(target[i]);
    of(target[i]).into.push(source[i]);
  }
  return found;
}

/** Return the first index in `order` whose node ends at or below `y`. */
export function firstBelow(order, node, y) {
  let low = 0, high = order.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (node.y[order[middle]] + node.height[order[middle]] < y) low = middle + 1;
    else high = middle;
  }
  return low;
}
