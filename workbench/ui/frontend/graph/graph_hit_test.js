// The positions of the scene's elements on the screen, and the element at a position.

import {
  BARS, BAR_STEP, CROSS, FAR, HEAD, HIT, LANE, LEAST_SHARE, LEGIBLE, NAMED, NARROWEST, OFFLOADED, ROOMY, ROW, SECTION, SHARE,
  SIDE, TURN, firstBelow,
} from "./graph_scene.js";

export class Places {
  scene = /** @type {any} */ (null); // the result of `scene`; null without a graph
  zoom = 1;
  left = 0; // scroll position, in screen pixels
  top = 0;
  width = 0; // of the canvas, in pixels
  heightPx = 0;
  matches = /** @type {Set<number> | null} */ (null); // nodes that the search found
  placed = /** @type {{of: any[], columns: any} | null} */ (null); // cache of the columns, with the values from which they were computed
  // Zooming out reduces only heights. The columns stay as wide as the view, so that texts stay readable.
  get scaleX() { return Math.max(1, this.zoom); }

  /** Return the columns' extents on the screen, with the shares of `layout_arrays.Columns.fit`. Cached, because each arc needs them. */
  columns() {
    const of = [this.scene, this.zoom, this.left, this.width];
    if (!this.placed || of.some((part, i) => part !== this.placed?.of[i])) this.placed = { of, columns: this.placeColumns() };
    return this.placed.columns;
  }

  placeColumns() {
    // Only a graph with collectives has communication lanes beside the columns.
    const lane = this.scene?.bar.side.length ? BARS : 0;
    const width = Math.max(this.width, NARROWEST + 2 * lane), margin = 12, space = 18, inner = width - 2 * lane;
    const free = inner - 2 * margin - space;
    const share = LEAST_SHARE + (SHARE - LEAST_SHARE) * Math.min(1, (inner - NARROWEST) / (ROOMY - NARROWEST));
    const label = free * share, box = free * SHARE;
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
    const height = HEAD + (this.scene.height - HEAD) * this.zoom + TURN;
    this.top = Math.max(0, Math.min(this.top, height - this.heightPx));
    this.left = Math.max(0, Math.min(this.left, this.columns().width - this.width));
  }

  /** Return the left and right edge of the CPU's lane on the screen. The lane is midway between the columns. */
  lane() {
    const { sides } = this.columns(), middle = (sides[0][1] + sides[1][0]) / 2, half = (LANE / 2) * this.scaleX;
    return [middle - half, middle + half];
  }

  /** Return whether an arc goes through the CPU's lane. */
  away(index) { return this.scene.arc.style[index] === OFFLOADED && this.scene.arc.shape[index] === CROSS; }

  /** Return a bar's position on the screen: `x` of its middle, and the heights of its issue and its wait. */
  barAt(index) {
    const { bar } = this.scene, { sides } = this.columns(), side = bar.side[index];
    const out = (8 + BAR_STEP * bar.column[index]) * this.scaleX;
    // Draw an end at the first statement completely, below the column headings.
    const y = (height) => Math.max(this.y(height), HEAD + 6 - this.top);
    return { x: side === 0 ? sides[0][0] - out : sides[1][1] + out, issue: y(bar.y0[index]), wait: y(bar.y1[index]) };
  }

  /** Return the bar at a position, with its nearer end, which a drag would move; null if there is no bar. */
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

  /** Return the node of a column that begins nearest to a height on the screen. A backward node begins at its lower edge. */
  nodeNear(side, y) {
    const { node, columns } = this.scene;
    let best = -1, nearest = Infinity;
    for (const index of columns[side]) {
      const edge = this.y(side === 0 ? node.y[index] : node.y[index] + node.height[index]), distance = Math.abs(edge - y);
      if (distance < nearest) [best, nearest] = [index, distance];
    }
    return best;
  }

  /** Return a mark's rectangle on the screen. */
  markBox(index) {
    const { node, mark, marksOf } = this.scene, at = mark.node[index], scale = Math.max(1, this.zoom);
    const { right, width } = marksOf.get(at).find((one) => one.index === index);
    const [, x1] = this.columns().sides[node.side[at]];
    const height = 13 * scale, middle = this.y(node.y[at]) + Math.min(ROW - 3, node.height[at]) * this.zoom / 2;
    return { left: x1 - (right + width) * scale, top: middle - height / 2, width: width * scale, height };
  }

  /** Return an arc's curve on the screen: ends and control points. For an arc through the CPU's lane, return its curve into the lane. */
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

  /** Return an arc's curve from the CPU's lane to the backward column. */
  wayBack(index) {
    const { arc } = this.scene, { sides } = this.columns(), [, right] = this.lane();
    const y0 = this.y(arc.y0[index]), y1 = this.y(arc.y1[index]), x1 = sides[1][0], bend = (x1 - right) * 0.6;
    return [right, y0, right + bend, y0, x1 - bend, y1, x1, y1];
  }

  /** Return the screen position at which to point at an element; null if the scene lacks the element. */
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
    if (entry.kind === "module") {
      const { module } = this.scene, [x0, x1] = this.columns().sides[0];
      return { x: (x0 + x1) / 2, y: this.y(module.y[entry.index] + module.height[entry.index] / 2) };
    }
    if (entry.kind === "bar") {
      const { x, issue, wait } = this.barAt(entry.index);
      return { x, y: (issue + wait) / 2 };
    }
    return this.handle(entry.index);
  }

  /** Return the position at which a click hits an arc: its dot, or the middle of its size label. */
  handle(index) {
    const [x0, y0] = this.curve(index);
    if (this.away(index)) { const [left, right] = this.lane(); return { x: (left + right) / 2, y: y0 }; }
    if (this.scene.arc.shape[index] !== SIDE) return { x: x0 + 32, y: y0 };
    return { x: x0 + (this.scene.arc.side[index] === 1 ? -9 : 9), y: y0 };
  }

  /** Whether modules are drawn in place of statements: statements are too small for text, and no search is active. */
  get far() { return !this.labelled() && !this.matches && this.scene.module.y.length > 0; }

  /** Return the modules to draw: the innermost modules with space for a name, or their parent if they cover less than half of it. */
  bands() {
    const { module } = this.scene, count = module.y.length, found = /** @type {number[]} */ ([]);
    const tall = (/** @type {number} */ index) => module.height[index] * this.zoom;
    for (let at = 0; at < count;) {
      let end = at + 1, within = 0;
      for (; end < count && module.depth[end] > module.depth[at]; end++)
        if (module.depth[end] === module.depth[at] + 1 && tall(end) >= NAMED) within += tall(end);
      if (tall(at) >= NAMED && within < 0.5 * tall(at)) { found.push(at); at = end; } else at++;
    }
    return found;
  }

  // ---- hit test ----------------------------------------------------------------------------------------------

  /** Return the element at a position on the canvas, as `{kind, index, id}`; null if there is none. */
  hit(x, y) {
    if (!this.scene || y < HEAD || y > this.heightPx) return null;
    const { node, arc, sections, strings } = this.scene, { sides } = this.columns();
    for (const [index, section] of sections.entries()) {
      const top = this.y(section.y);
      if (y >= top && y < top + Math.max(FAR, SECTION * this.zoom)) return { kind: "section", index, id: `fold:${section.stem}` };
    }
    const bar = this.barHit(x, y);
    if (bar) return bar;
    const world = this.worldY(y);
    if (this.far && (x <= sides[0][1] || x >= sides[1][0])) {
      const { module } = this.scene;
      const index = this.bands().find((one) => module.y[one] <= world && world < module.y[one] + module.height[one]);
      if (index !== undefined) return { kind: "module", index, id: `module:${strings[module.scope[index]]}` };
    }
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

  labelled() { return this.zoom >= LEGIBLE; }
}

/**
 * Return the distance from a point to a cubic curve, which is approximated by 24 lines.
 * @param {number[]} curve ends and control points @param {number} x @param {number} y
 */
export function distanceTo([x0, y0, a, b, p, q, x1, y1], x, y) {
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
