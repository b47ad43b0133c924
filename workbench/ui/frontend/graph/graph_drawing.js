// Draws the scene on the canvas.

import { drawArcs } from "./graph_arcs.js";
import {
  BLOCK_PAD, CHANGED, CLONE, DASHES, FAR, FIXED, GHOST, HEAD, HEADING, LOOP, MAX_ZOOM, MONO, NAMED, OFFLOADED,
  RECOMPUTED, ROW, SANS, SAVED, SECTION, firstBelow,
} from "./graph_scene.js";
import { drawSelection, outline } from "./graph_selection.js";

/** @typedef {import("./graph_state.js").GraphState} GraphState */
/** @typedef {import("./graph_canvas.js").Pen} Pen */

/** Draw the visible part of the scene. */
export function draw(/** @type {GraphState} */ state) {
  const { places, pen } = state, c = pen.context;
  c.setTransform(state.ratio, 0, 0, state.ratio, 0, 0);
  c.fillStyle = pen.paper;
  c.fillRect(0, 0, places.width, places.heightPx);
  if (places.scene) {
    const low = places.worldY(HEAD - 30), high = places.worldY(places.heightPx + 30);
    c.textBaseline = "middle";
    c.textAlign = "left";
    drawLines(state, low, high);
    const notes = drawSections(state, low, high);
    drawRuns(state, low, high);
    drawLane(state);
    drawArcs(state, low, high);
    drawNotes(state, notes);
    drawBars(state);
    drawNodes(state, low, high);
    drawModules(state, low, high);
    drawSelection(state);
    drawTurn(state);
    drawHeadings(state);
  }
  drawHead(state);
}

/** In a zoomed-out graph, draw modules in place of statements that are too small to read. */
function drawModules(/** @type {GraphState} */ state, low, high) {
  const { places, pen } = state;
  if (!places.far) return;
  const c = pen.context, { module, strings } = places.scene, { label, sides } = places.columns(), ink = pen.ink;
  const heads = headings(places);
  const texts = /** @type {[number, number, number, string][]} */ ([]);
  for (const i of places.bands()) {
    if (module.y[i] + module.height[i] < low || module.y[i] > high) continue;
    const top = places.y(module.y[i]), bottom = top + module.height[i] * places.zoom, middle = (top + bottom) / 2;
    const over = state.hover?.kind === "module" && state.hover.index === i, chosen = state.selected === `module:${strings[module.scope[i]]}`;
    for (const side of [0, 1]) {
      const [x0, x1] = sides[side], rows = side === 0 ? module.forward[i] : module.backward[i];
      if (!rows) continue;
      c.beginPath();
      c.roundRect(x0 + 0.5, top + 0.5, x1 - x0 - 1, bottom - top - 2, 3.5);
      c.fillStyle = ink.fills[side];
      c.fill();
      c.lineWidth = chosen ? 2.5 : over ? 1.5 : 1;
      c.strokeStyle = over || chosen ? ink.select : ink.strokes[side];
      c.stroke();
      // A tall box also has the module's operations, below the name.
      const tall = bottom - top >= 36, line = middle - (tall ? 8 : 0);
      const size = Math.min(11, bottom - top - 2), count = x1 - x0 > 170 ? `${rows} statement${rows === 1 ? "" : "s"}` : "";
      pen.font(size - 0.5, SANS);
      c.fillStyle = ink.soft[side];
      c.textAlign = "right";
      c.fillText(count, x1 - 8, line);
      const taken = count ? c.measureText(count).width + 10 : 0;
      c.textAlign = "left";
      pen.font(size, MONO, 500);
      c.fillStyle = ink.texts[side];
      c.fillText(pen.shorten(strings[module.short[i]], x1 - x0 - 14 - taken), x0 + 7, line);
      if (!tall) continue;
      pen.font(10, MONO);
      c.fillStyle = ink.soft[side];
      c.fillText(pen.shorten(strings[(side === 0 ? module.forward_ops : module.backward_ops)[i]], x1 - x0 - 14), x0 + 7, middle + 9);
    }
    if (strings[module.saved[i]]) texts.push([sides[0][1] + 6, middle, Math.min(14, bottom - top - 1), strings[module.saved[i]]]);
    // A layer's heading covers the upper part of the module right below it.
    const free = Math.max(top, headingEnd(heads, top));
    c.fillStyle = ink.hair;
    c.fillRect(label[0], Math.round(bottom) - 1, label[1] - label[0], 1);
    if (bottom - free < NAMED || !strings[module.name[i]]) continue;
    pen.font(11, MONO, 500);
    c.fillStyle = over ? ink.select : ink.ink;
    c.fillText(pen.shorten(strings[module.name[i]], label[1] - label[0]), label[0], (free + bottom) / 2);
  }
  for (const [x, y, tall, text] of texts) {
    pen.font(Math.min(10, tall - 1), MONO, 500);
    const width = c.measureText(text).width + 10;
    c.beginPath();
    c.roundRect(x, y - tall / 2, width, tall, tall / 2);
    c.fillStyle = pen.paper;
    c.fill();
    c.lineWidth = 0.75;
    c.strokeStyle = c.fillStyle = ink.arcs[SAVED];
    c.stroke();
    c.fillText(text, x + 5, y + 0.5);
  }
}

/** Draw collectives as bars from issue (open end) to wait (filled end). A dragged end follows the pointer. */
function drawBars(/** @type {GraphState} */ state) {
  const { places, pen } = state;
  const c = pen.context, { bar, endOf } = places.scene, selected = endOf.get(state.selected)?.index;
  for (let i = 0; i < bar.side.length; i++) {
    const at = places.barAt(i), moved = state.drag?.bar?.index === i && state.drag.moved;
    if (moved) at[state.drag.bar.end] = state.drag.at;
    if (Math.max(at.issue, at.wait) < HEAD || Math.min(at.issue, at.wait) > places.heightPx) continue;
    const color = moved || i === selected ? pen.ink.select : pen.ink.arcs[OFFLOADED];
    c.strokeStyle = c.fillStyle = color;
    c.lineWidth = moved || i === selected || state.hover?.kind === "bar" && state.hover.index === i ? 4 : 2.5;
    c.setLineDash(DASHES[Math.max(bar.group[i], 0) % DASHES.length]);
    c.beginPath();
    c.moveTo(at.x, at.issue);
    c.lineTo(at.x, at.wait);
    c.stroke();
    c.setLineDash([]);
    for (const end of ["issue", "wait"]) {
      c.beginPath();
      c.arc(at.x, at[end], 3.5, 0, 2 * Math.PI);
      c.fillStyle = end === "wait" ? color : pen.paper;
      c.fill();
      c.lineWidth = 1.5;
      c.stroke();
    }
  }
  if (state.drag?.bar && state.drag.moved) {
    const { node, strings } = places.scene, target = state.drag.target;
    if (target >= 0) {
      outline(state, target, pen.ink.select, 2);
      pen.font(11, SANS, 600);
      const side = bar.side[state.drag.bar.index], { sides } = places.columns();
      const text = `${state.drag.bar.end} before ${strings[node.name[target]]}`, wide = c.measureText(text).width;
      const left = side === 0 ? sides[0][1] + 8 : sides[1][0] - 8 - wide;
      // Paint a background, because the text covers arcs and, in a narrow view, the other column.
      c.fillStyle = pen.paper;
      c.fillRect(left - 4, state.drag.at - 9, wide + 8, 18);
      c.fillStyle = pen.ink.select;
      c.fillText(text, left, state.drag.at);
    }
  }
}

function drawHead(/** @type {GraphState} */ { places, pen }) {
  const c = pen.context, { label, sides } = places.columns(), ink = pen.ink;
  c.fillStyle = pen.paper;
  c.fillRect(0, 0, places.width, HEAD - 1);
  c.fillStyle = ink.rule;
  c.fillRect(0, HEAD - 1, places.width, 1);
  pen.font(11, SANS, 600);
  c.textBaseline = "middle";
  const put = (/** @type {string} */ text, /** @type {number} */ x, /** @type {string} */ color, /** @type {CanvasTextAlign} */ align = "left") => { c.textAlign = align; c.fillStyle = color; c.fillText(text, x, HEAD / 2); };
  put("program", label[0], ink.muted);
  put("forward ↓", sides[0][0], ink.texts[0]);
  // Choose the longest text that fits between the columns or, with a CPU lane, between the forward column and the lane.
  const lane = places.scene?.lane ? places.lane() : null, from = sides[0][1], to = lane ? lane[0] : sides[1][0];
  const words = ["saved for backward", "saved"].find((text) => c.measureText(text).width <= to - from - 16);
  if (words) put(words, (from + to) / 2, ink.muted, "center");
  if (lane) put("CPU", (lane[0] + lane[1]) / 2, ink.arcs[OFFLOADED], "center");
  put("↑ backward", sides[1][0], ink.texts[1]);
  c.textAlign = "left";
}

export function drawLines(/** @type {GraphState} */ state, low, high) {
  const { places, pen } = state;
  const c = pen.context, { line, block, strings } = places.scene, { label } = places.columns(), ink = pen.ink;
  const size = 11 * Math.max(1, places.zoom), lead = 15 * Math.max(1, places.zoom);
  // In a zoomed-out graph, a layer's name covers the layer's first lines (`drawSections`).
  const names = SECTION * places.zoom < FAR ? headings(places) : [];
  const { module } = places.scene, bands = places.far ? places.bands() : [];
  for (let i = 0, band = 0; i < line.y.length; i++) {
    if (line.y[i] + line.height[i] < low) continue;
    if (line.y[i] > high) break;
    while (band < bands.length && module.y[bands[band]] + module.height[bands[band]] <= line.y[i]) band++;
    if (band < bands.length && module.y[bands[band]] <= line.y[i]) continue;
    // A module's box contains the module's name. A line that overlaps the box has its text above the box.
    const end = Math.min(line.y[i] + line.height[i], band < bands.length ? module.y[bands[band]] : Infinity);
    const edge = places.y(line.y[i]), bottom = places.y(end);
    if (bottom - edge > 3) { c.fillStyle = ink.hair; c.fillRect(label[0], Math.round(edge), places.width * places.scaleX, 1); }
    // Keep the text of a tall line in view while the line's upper edge is above the view.
    const top = Math.max(edge, headingEnd(names, edge), Math.min(HEAD, bottom - 2 * lead - 6)), height = bottom - top;
    if (height < lead - 1) continue;
    const width = label[1] - label[0];
    const rows = Math.floor((height - 3) / lead);
    let at = top + (rows < 1 ? height / 2 : 4 + lead / 2);
    const source = strings[line.text[i]] || strings[block.symbol[line.block[i]]], place = strings[line.place[i]];
    if (rows >= 2) {
      pen.font(size);
      c.fillStyle = ink.ink;
      c.fillText(pen.shorten(source, width), label[0], at);
      at += lead;
      pen.font(size - 0.5, SANS);
      c.fillStyle = ink.muted;
      c.fillText(pen.shorten(place, width), label[0], at);
      drawSymbols(state, i, at + lead / 2, size);
      continue;
    }
    // One row of text: the source line and, if both fit, its file and line number at the right.
    pen.font(size - 0.5, SANS);
    const short = strings[line.short[i]], taken = short ? c.measureText(short).width + 10 : 0;
    const both = taken > 0 && width - taken > 90;
    if (both) {
      c.fillStyle = ink.muted;
      c.textAlign = "right";
      c.fillText(short, label[1], at);
      c.textAlign = "left";
    }
    pen.font(size);
    c.fillStyle = ink.ink;
    c.fillText(pen.shorten(source, both ? width - taken : width), label[0], at);
  }
}

/** Draw the symbols of a source line with several statements, each at its block, below the text of the line. */
function drawSymbols(/** @type {GraphState} */ { places, pen }, index, below, size) {
  if (!places.labelled()) return;
  const c = pen.context, { line, block, strings } = places.scene, { label } = places.columns();
  if (line.count[index] < 2) return;
  pen.font(size - 0.5, MONO);
  c.fillStyle = pen.ink.muted;
  c.textAlign = "right";
  for (let i = line.block[index]; i < line.block[index] + line.count[index]; i++) {
    const middle = places.y(block.y[i]) + (BLOCK_PAD + 9) * places.zoom;
    if (middle - size / 2 < below) continue;
    c.fillText(pen.shorten(strings[block.symbol[i]], label[1] - label[0]), label[1], middle);
  }
  c.textAlign = "left";
}

/** Return the layer that a heading stands for, or the first and the last of several, in the longest form that fits into `room` pixels. */
export function range(/** @type {Pen} */ pen, { first, last, count }, room) {
  const at = first.lastIndexOf("."), number = last.slice(last.lastIndexOf(".") + 1), short = first.slice(first.lastIndexOf(".", at - 1) + 1);
  const ways = count > 1 ? [`${first} … ${last}`, `${first} … ${number}`, `${short} … ${number}`] : [first, short];
  return ways.find((way) => pen.context.measureText(way).width <= room) ?? ways[ways.length - 1];
}

const hasHeading = (places, section) => section.height * places.zoom >= 18;

/** Return the upper edges of the layers' headings that are drawn. @returns {number[]} */
const headings = (places) => places.scene.sections.filter((section) => hasHeading(places, section)).map((section) => places.y(section.y));

/** Return the lower edge of the heading that covers `y` in a zoomed-out graph; -Infinity if none does. Headings may overlap: the lowest covers the others. */
const headingEnd = (/** @type {number[]} */ heads, /** @type {number} */ y) => (heads.findLast((at) => y >= at - 1 && y < at + FAR) ?? -Infinity) + FAR;

/** Draw the bands and names of layers. Return the layers' notes, which `drawNotes` draws over the arcs. */
function drawSections(/** @type {GraphState} */ state, low, high) {
  const { places, pen } = state;
  const c = pen.context, { sections } = places.scene, { label } = places.columns(), ink = pen.ink, notes = [];
  for (const section of sections) {
    if (section.y + section.height < low || section.y > high) continue;
    const top = Math.round(places.y(section.y)), tall = SECTION * places.zoom;
    const right = places.columns().width - places.left;
    c.fillStyle = ink.rule;
    c.fillRect(0, Math.round(places.y(section.y + section.height)), right, 1);
    if (!hasHeading(places, section)) continue;
    // In a zoomed-out graph, the band is only in the first column, where it covers lines that are too small to read.
    const far = tall < FAR;
    c.fillStyle = ink.band;
    c.fillRect(0, top, far ? label[1] + 6 : right, Math.max(tall, FAR));
    c.fillStyle = ink.rule;
    c.fillRect(0, top, right, 1);
    const size = 11.5 * Math.max(1, places.zoom), middle = top + Math.max(tall, FAR) / 2;
    pen.font(size, SANS, 600);
    c.fillStyle = ink.ink;
    const folded = section.count > 1, foldable = section.identical > 1;
    const turns = foldable && !state.readOnly;
    const mark = turns ? (folded ? "▸ " : "▾ ") : "";
    const room = far ? label[1] - label[0] : places.width / 2;
    const title = pen.shorten(`${mark}${range(pen, section, room - c.measureText(mark).width)}`, room);
    c.fillText(title, label[0], middle);
    if ((!foldable && !section.differs) || far) continue;
    const x = label[0] + c.measureText(title).width + 10;
    pen.font(size - 0.5, SANS);
    const what = section.stem.startsWith(LOOP) ? "repeats" : "layers";
    const one = `${section.count} identical ${what} shown as one`;
    const how = turns ? (folded ? `${one}, click to unfold` : `click to fold identical ${what}`) : folded ? one : "";
    const note = [how, section.differs && `differs from above: ${section.differs}`].filter(Boolean).join("; ");
    notes.push({ text: pen.shorten(note, places.width - x - 12), x, middle, size: size - 0.5 });
  }
  return notes;
}

/** Draw the notes of layers over the arcs. */
function drawNotes(/** @type {GraphState} */ { pen }, notes) {
  const c = pen.context, ink = pen.ink;
  for (const { text, x, middle, size } of notes) {
    pen.font(size, SANS);
    c.fillStyle = ink.band;
    c.fillRect(x - 3, middle - size * 0.7, c.measureText(text).width + 6, size * 1.4);
    c.fillStyle = ink.muted;
    c.fillText(text, x, middle);
  }
}

function drawRuns(/** @type {GraphState} */ { places, pen }, low, high) {
  const c = pen.context, { run } = places.scene, { sides } = places.columns(), ink = pen.ink;
  for (let i = 0; i < run.y.length; i++) {
    if (run.y[i] + run.height[i] < low || run.y[i] > high) continue;
    const [x0, x1] = sides[run.side[i]];
    const top = places.y(run.y[i]) - 2, height = run.height[i] * places.zoom + 4;
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
  for (const { from, to, side, fusion } of places.scene.spines) {
    if (to < low || from > high) continue;
    const lane = 6 + (fusion % 2) * 3;
    const x = side === 0 ? sides[0][0] - lane : sides[1][1] + lane;
    const edge = side === 0 ? sides[0][0] - 4 : sides[1][1] + 4;
    c.beginPath();
    c.moveTo(edge, places.y(from)); c.lineTo(x, places.y(from)); c.lineTo(x, places.y(to)); c.lineTo(edge, places.y(to));
    c.stroke();
  }
}

/** Draw the CPU's lane between the columns, if a value is offloaded. */
function drawLane(/** @type {GraphState} */ { places, pen }) {
  if (!places.scene.lane) return;
  const c = pen.context, [left, right] = places.lane();
  c.fillStyle = pen.ink.arcs[OFFLOADED];
  c.globalAlpha = 0.08;
  c.fillRect(left, HEAD, right - left, places.heightPx);
  c.globalAlpha = 0.35;
  c.fillRect(left, HEAD, 1, places.heightPx);
  c.fillRect(right - 1, HEAD, 1, places.heightPx);
  c.globalAlpha = 1;
}

/** Draw the marks of a statement. A mark's text is the outcome of its site or, without an outcome, the choice. */
function drawMarks(/** @type {GraphState} */ state, node) {
  const { places, pen } = state;
  const c = pen.context, { mark, strings } = places.scene, chosen = places.scene.at.get(state.selected);
  for (const { index } of places.scene.marksOf.get(node) ?? []) {
    const { left, top, width, height } = places.markBox(index), choice = mark.state[index];
    const strong = (chosen?.kind === "mark" && chosen.index === index) || (state.hover?.kind === "mark" && state.hover.index === index);
    const color = choice & CHANGED ? pen.ink.select : choice & FIXED ? pen.ink.muted : pen.ink.fusionText;
    c.beginPath();
    c.roundRect(left, top, width, height, height / 2);
    c.fillStyle = choice & CHANGED ? color : pen.paper;
    c.fill();
    c.lineWidth = strong ? 2 : 0.75;
    c.strokeStyle = color;
    if (choice & FIXED) c.setLineDash([2, 2]);
    c.stroke();
    c.setLineDash([]);
    pen.font(9.5 * Math.max(1, places.zoom), MONO, 500);
    c.fillStyle = choice & CHANGED ? pen.paper : color;
    c.textAlign = "center";
    c.fillText(strings[mark.text[index]], left + width / 2, top + height / 2 + 0.5);
    c.textAlign = "left";
  }
}

function drawNodes(/** @type {GraphState} */ state, low, high) {
  const { places, pen } = state;
  const c = pen.context, { node, strings, columns: order } = places.scene, { sides } = places.columns(), ink = pen.ink;
  const texts = places.zoom * ROW >= 12, size = 11 * Math.max(Math.min(places.zoom, MAX_ZOOM), places.zoom < 1 ? 0.91 : 1);
  const { module } = places.scene, bands = places.far ? places.bands() : [];
  for (const side of [0, 1]) {
    const list = order[side], [x0, x1] = sides[side], rows = side === 0 ? module.forward : module.backward;
    const small = new Path2D(); // boxes without an outline, filled in one call
    for (let k = firstBelow(list, node, low), band = 0; k < list.length; k++) {
      const i = list[k];
      if (node.y[i] > high) break;
      // A module's box covers its statements.
      while (band < bands.length && module.y[bands[band]] + module.height[bands[band]] <= node.y[i]) band++;
      if (band < bands.length && rows[bands[band]] && module.y[bands[band]] <= node.y[i]) continue;
      const flags = node.flags[i], top = places.y(node.y[i]), height = Math.max(0.75, node.height[i] * places.zoom);
      const matched = places.matches?.has(i);
      if (flags & HEADING) {
        if (texts) {
          pen.font(size, SANS, 600);
          c.fillStyle = matched ? ink.select : ink.fusionText;
          const about = strings[node.detail[i]];
          const name = pen.shorten(strings[node.name[i]], x1 - x0 - 12);
          c.fillText(name, x0 + 4, top + height / 2);
          const room = x1 - x0 - 20 - c.measureText(name).width;
          pen.font(size - 0.5, SANS);
          c.textAlign = "right";
          if (room > 30) c.fillText(pen.shorten(about, room), x1 - 4, top + height / 2);
          c.textAlign = "left";
        }
        continue;
      }
      if (height <= 5 && !matched && !(flags & GHOST)) { small.rect(x0, top, x1 - x0, height); continue; }
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
      if (!texts || height < 9) continue;
      const middle = top + height / 2, pad = 7 * Math.max(1, places.zoom);
      const marks = places.scene.marksOf.get(i), last = marks?.at(-1);
      const taken = last ? (last.right + last.width) * Math.max(1, places.zoom) : 0;
      pen.font(Math.min(size, height), MONO, 500);
      c.fillStyle = flags & GHOST ? ink.arcs[RECOMPUTED] : ink.texts[side];
      const name = pen.shorten(strings[node.name[i]], x1 - x0 - 2 * pad - taken);
      c.fillText(name, x0 + pad, middle);
      const room = x1 - x0 - 2 * pad - taken - c.measureText(name).width - 10;
      if (marks) drawMarks(state, i);
      pen.font(Math.min(size - 1, height - 0.5), MONO);
      const detail = strings[node.detail[i]];
      const shown = c.measureText(detail).width <= room ? detail : strings[node.shape[i]];
      if (shown && c.measureText(shown).width <= room) {
        c.fillStyle = ink.soft[side];
        c.textAlign = "right";
        c.fillText(shown, x1 - pad - taken, middle);
        c.textAlign = "left";
      }
    }
    c.fillStyle = ink.strokes[side];
    c.fill(small);
  }
}

/** Draw the turn from the forward to the backward: a line from the foot of the left column to the foot of the right column. */
function drawTurn(/** @type {GraphState} */ { places, pen }) {
  const c = pen.context, { node, columns, module } = places.scene, { sides } = places.columns(), ink = pen.ink;
  if (!columns[0].length || !columns[1].length) return;
  const bands = places.far ? places.bands() : [];
  const foot = (side) => {
    const last = columns[side].at(-1), boxes = bands.filter((i) => (side === 0 ? module.forward : module.backward)[i]);
    // A module's box may end below its last statement.
    return places.y(Math.max(node.y[last] + node.height[last], ...boxes.map((i) => module.y[i] + module.height[i])));
  };
  const y = Math.max(foot(0), foot(1)) + 5, [from, to] = [sides[0][1] - 14, sides[1][0] + 14];
  if (y > places.heightPx || y < HEAD) return;
  c.strokeStyle = c.fillStyle = ink.muted;
  c.lineWidth = 1.5;
  c.beginPath();
  c.moveTo(from, foot(0) + 1);
  c.lineTo(from, y);
  c.lineTo(to, y);
  c.lineTo(to, foot(1) + 1);
  c.stroke();
  c.beginPath();
  c.moveTo(to - 4, foot(1) + 6);
  c.lineTo(to, foot(1) + 1);
  c.lineTo(to + 4, foot(1) + 6);
  c.stroke();
  pen.font(10, SANS);
  const words = "forward ends, backward begins", room = to - from - 12;
  if (c.measureText(words).width > room) return;
  c.textAlign = "center";
  const wide = c.measureText(words).width + 8, middle = (from + to) / 2;
  c.fillStyle = pen.paper;
  c.fillRect(middle - wide / 2, y - 6, wide, 12);
  c.fillStyle = ink.muted;
  c.fillText(words, middle, y);
  c.textAlign = "left";
}

/** Draw the name of a fusion at the upper edge of the view, if the fusion's box begins above the view. */
function drawHeadings(/** @type {GraphState} */ { places, pen }) {
  if (!places.labelled()) return;
  const c = pen.context, { run, strings } = places.scene, { sides } = places.columns(), tall = 16;
  pen.font(11, SANS, 600);
  for (let i = 0; i < run.y.length; i++) {
    const top = places.y(run.y[i]), bottom = top + run.height[i] * places.zoom;
    if (top > HEAD - 4 || bottom < HEAD + 2 * tall) continue;
    const [x0, x1] = sides[run.side[i]];
    c.fillStyle = pen.paper;
    c.fillRect(x0 - 3.5, HEAD, x1 - x0 + 7, tall);
    c.fillStyle = pen.ink.fusionFill;
    c.fillRect(x0 - 3.5, HEAD, x1 - x0 + 7, tall);
    c.fillStyle = pen.ink.fusionText;
    c.fillText(pen.shorten(`↑ ${strings[run.name[i]]}`, x1 - x0 - 8), x0 + 4, HEAD + tall / 2);
  }
}
