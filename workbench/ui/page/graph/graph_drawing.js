// The scene drawn on the canvas.

import { Arcs } from "./graph_arcs.js";
import {
  BLOCK_PAD, CHANGED, CLONE, DASHES, FAR, FIXED, GHOST, HEAD, HEADING, LOOP, MAX_ZOOM, MONO, NAMED, OFFLOADED,
  RECOMPUTED, ROW, SANS, SAVED, SECTION, firstBelow,
} from "./graph_scene.js";

export class Drawing extends Arcs {
  wireKey = /** @type {HTMLElement} */ (/** @type {any} */ (null));
  overview = /** @type {import("./graph_map.js").Overview} */ (/** @type {any} */ (null));
  ratio = 1; // device pixels per pixel
  readOnly = false;
  drag = /** @type {any} */ (null);

  redraw() {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => { this.pending = 0; this.draw(); });
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
      const notes = this.drawSections(low, high);
      this.drawRuns(low, high);
      this.drawLane();
      this.drawArcs(low, high);
      this.drawNotes(notes);
      this.drawBars();
      this.drawNodes(low, high);
      this.drawModules(low, high);
      this.drawSelection();
      this.drawTurn();
      this.drawHeadings();
      this.overview.draw();
    }
    this.drawHead();
    this.drawn = performance.now() - began;
  }

  /** From far away the modules, in place of statements that are too small to read. */
  drawModules(low, high) {
    if (!this.far) return;
    const c = this.context, { module, sections, strings } = this.scene, { label, sides } = this.columns(), ink = this.ink;
    const heads = sections.map((section) => this.y(section.y));
    const texts = /** @type {[number, number, number, string][]} */ ([]);
    for (const i of this.bands()) {
      if (module.y[i] + module.height[i] < low || module.y[i] > high) continue;
      const top = this.y(module.y[i]), bottom = top + module.height[i] * this.zoom, middle = (top + bottom) / 2;
      const over = this.hover?.kind === "module" && this.hover.index === i;
      for (const side of [0, 1]) {
        const [x0, x1] = sides[side], rows = side === 0 ? module.forward[i] : module.backward[i];
        if (!rows) continue;
        c.beginPath();
        c.roundRect(x0 + 0.5, top + 0.5, x1 - x0 - 1, bottom - top - 2, 3.5);
        c.fillStyle = ink.fills[side];
        c.fill();
        c.lineWidth = over ? 1.5 : 1;
        c.strokeStyle = over ? ink.select : ink.strokes[side];
        c.stroke();
        // Where there is room, below the name what is done there.
        const tall = bottom - top >= 36, line = middle - (tall ? 8 : 0);
        const size = Math.min(11, bottom - top - 2), count = x1 - x0 > 170 ? `${rows} statement${rows === 1 ? "" : "s"}` : "";
        this.font(size - 0.5, SANS);
        c.fillStyle = ink.soft[side];
        c.textAlign = "right";
        c.fillText(count, x1 - 8, line);
        const taken = count ? c.measureText(count).width + 10 : 0;
        c.textAlign = "left";
        this.font(size, MONO, 500);
        c.fillStyle = ink.texts[side];
        c.fillText(this.shorten(strings[module.short[i]], x1 - x0 - 14 - taken), x0 + 7, line);
        if (!tall) continue;
        this.font(10, MONO);
        c.fillStyle = ink.soft[side];
        c.fillText(this.shorten(strings[(side === 0 ? module.forward_ops : module.backward_ops)[i]], x1 - x0 - 14), x0 + 7, middle + 9);
      }
      if (strings[module.saved[i]]) texts.push([sides[0][1] + 6, middle, Math.min(14, bottom - top - 1), strings[module.saved[i]]]);
      // A layer's heading covers what is right below it.
      const under = heads.find((at) => top >= at - 1 && top < at + FAR) ?? -Infinity;
      const free = Math.max(top, under + FAR);
      c.fillStyle = ink.hair;
      c.fillRect(label[0], Math.round(bottom) - 1, label[1] - label[0], 1);
      if (bottom - free < NAMED || !strings[module.name[i]]) continue;
      this.font(11, MONO, 500);
      c.fillStyle = over ? ink.select : ink.ink;
      c.fillText(this.shorten(strings[module.name[i]], label[1] - label[0]), label[0], (free + bottom) / 2);
    }
    for (const [x, y, tall, text] of texts) {
      this.font(Math.min(10, tall - 1), MONO, 500);
      const width = c.measureText(text).width + 10;
      c.beginPath();
      c.roundRect(x, y - tall / 2, width, tall, tall / 2);
      c.fillStyle = this.paper;
      c.fill();
      c.lineWidth = 0.75;
      c.strokeStyle = c.fillStyle = ink.arcs[SAVED];
      c.stroke();
      c.fillText(text, x + 5, y + 0.5);
    }
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
    const put = (/** @type {string} */ text, /** @type {number} */ x, /** @type {string} */ color, /** @type {CanvasTextAlign} */ align = "left") => { c.textAlign = align; c.fillStyle = color; c.fillText(text, x, HEAD / 2); };
    put("program", label[0], ink.muted);
    put("forward ↓", sides[0][0], ink.texts[0]);
    // Beside the CPU's lane there is room for a word at its left, or for none.
    const lane = this.scene?.lane ? this.lane() : null, from = sides[0][1], to = lane ? lane[0] : sides[1][0];
    const words = ["saved for backward", "saved"].find((text) => c.measureText(text).width <= to - from - 16);
    if (words) put(words, (from + to) / 2, ink.muted, "center");
    if (lane) put("CPU", (lane[0] + lane[1]) / 2, ink.arcs[OFFLOADED], "center");
    put("↑ backward", sides[1][0], ink.texts[1]);
    c.textAlign = "left";
  }

  drawLines(low, high) {
    const c = this.context, { line, block, strings } = this.scene, { label } = this.columns(), ink = this.ink;
    const size = 11 * Math.max(1, this.zoom), lead = 15 * Math.max(1, this.zoom);
    // From far away a layer's name stands over its first lines (`drawSections`).
    const names = SECTION * this.zoom < FAR ? this.scene.sections.map((section) => this.y(section.y)) : [];
    const { module } = this.scene, bands = this.far ? this.bands() : [];
    for (let i = 0, band = 0; i < line.y.length; i++) {
      if (line.y[i] + line.height[i] < low) continue;
      if (line.y[i] > high) break;
      while (band < bands.length && module.y[bands[band]] + module.height[bands[band]] <= line.y[i]) band++;
      if (band < bands.length && module.y[bands[band]] <= line.y[i]) continue;
      // A module's name stands in its box; of a line that goes on into it what is above has words.
      const end = Math.min(line.y[i] + line.height[i], band < bands.length ? module.y[bands[band]] : Infinity);
      const edge = this.y(line.y[i]), bottom = this.y(end);
      if (bottom - edge > 3) { c.fillStyle = ink.hair; c.fillRect(label[0], Math.round(edge), this.width * this.scaleX, 1); }
      // A long block's words stay in view as long as anything of the block does.
      const under = names.find((at) => edge >= at - 1 && edge < at + FAR) ?? -Infinity;
      const top = Math.max(edge, under + FAR, Math.min(HEAD, bottom - 2 * lead - 6)), height = bottom - top;
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

  /** The layers that a heading stands for; where there is little room, the number of the last, and in less the last part of their name. */
  range({ first, last }, room) {
    const at = first.lastIndexOf("."), number = last.slice(last.lastIndexOf(".") + 1);
    const ways = [`${first} … ${last}`, `${first} … ${number}`, `${first.slice(first.lastIndexOf(".", at - 1) + 1)} … ${number}`];
    return ways.find((way) => this.context.measureText(way).width <= room) ?? ways[2];
  }

  /** Their bands and names; what is said of them is drawn later, by `drawNotes`. */
  drawSections(low, high) {
    const c = this.context, { sections } = this.scene, { label } = this.columns(), ink = this.ink, notes = [];
    for (const section of sections) {
      if (section.y + section.height < low || section.y > high) continue;
      const top = Math.round(this.y(section.y)), tall = SECTION * this.zoom;
      const right = this.columns().width - this.left;
      c.fillStyle = ink.rule;
      c.fillRect(0, Math.round(this.y(section.y + section.height)), right, 1);
      if (section.height * this.zoom < 18) continue;
      // From far away the name stands in the first column alone, over the lines that are too small to read there.
      const far = tall < FAR;
      c.fillStyle = ink.band;
      c.fillRect(0, top, far ? label[1] + 6 : right, Math.max(tall, FAR));
      c.fillStyle = ink.rule;
      c.fillRect(0, top, right, 1);
      const size = 11.5 * Math.max(1, this.zoom), middle = top + Math.max(tall, FAR) / 2;
      this.font(size, SANS, 600);
      c.fillStyle = ink.ink;
      const folded = section.count > 1, foldable = section.identical > 1;
      const turns = foldable && !this.readOnly;
      const mark = turns ? (folded ? "▸ " : "▾ ") : "";
      const room = far ? label[1] - label[0] : this.width / 2;
      const title = this.shorten(`${mark}${folded ? this.range(section, room - c.measureText(mark).width) : section.first}`, room);
      c.fillText(title, label[0], middle);
      if ((!foldable && !section.differs) || far) continue;
      const x = label[0] + c.measureText(title).width + 10;
      this.font(size - 0.5, SANS);
      const what = section.stem.startsWith(LOOP) ? "repeats" : "layers";
      const one = `${section.count} identical ${what} shown as one`;
      const how = turns ? (folded ? `${one}, click to unfold` : `click to fold identical ${what}`) : folded ? one : "";
      const note = [how, section.differs && `not folded with those above: ${section.differs}`].filter(Boolean).join("; ");
      notes.push({ text: this.shorten(note, this.width - x - 12), x, middle, size: size - 0.5 });
    }
    return notes;
  }

  /** What is said of layers, over the arcs that pass there. */
  drawNotes(notes) {
    const c = this.context, ink = this.ink;
    for (const { text, x, middle, size } of notes) {
      this.font(size, SANS);
      c.fillStyle = ink.band;
      c.fillRect(x - 3, middle - size * 0.7, c.measureText(text).width + 6, size * 1.4);
      c.fillStyle = ink.muted;
      c.fillText(text, x, middle);
    }
  }

  drawRuns(low, high) {
    const c = this.context, { run } = this.scene, { sides } = this.columns(), ink = this.ink;
    for (let i = 0; i < run.y.length; i++) {
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
    for (const { from, to, side, fusion } of this.scene.spines) {
      if (to < low || from > high) continue;
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
    const { module } = this.scene, bands = this.far ? this.bands() : [];
    for (const side of [0, 1]) {
      const list = order[side], [x0, x1] = sides[side], rows = side === 0 ? module.forward : module.backward;
      const small = new Path2D(); // those without an outline, filled at once
      for (let k = firstBelow(list, node, low), band = 0; k < list.length; k++) {
        const i = list[k];
        if (node.y[i] > high) break;
        // A module's box covers its statements.
        while (band < bands.length && module.y[bands[band]] + module.height[bands[band]] <= node.y[i]) band++;
        if (band < bands.length && rows[bands[band]] && module.y[bands[band]] <= node.y[i]) continue;
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
        const middle = top + height / 2, pad = 7 * Math.max(1, this.zoom);
        const marks = this.scene.marksOf.get(i), last = marks?.at(-1);
        const taken = last ? (last.right + last.width) * Math.max(1, this.zoom) : 0;
        this.font(Math.min(size, height), MONO, 500);
        c.fillStyle = flags & GHOST ? ink.arcs[RECOMPUTED] : ink.texts[side];
        const name = this.shorten(strings[node.name[i]], x1 - x0 - 2 * pad - taken);
        c.fillText(name, x0 + pad, middle);
        const room = x1 - x0 - 2 * pad - taken - c.measureText(name).width - 10;
        if (marks) this.drawMarks(i);
        this.font(Math.min(size - 1, height - 0.5), MONO);
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

  /** Where the forward ends and the backward begins: from the foot of the left column to that of the right one. */
  drawTurn() {
    const c = this.context, { node, columns } = this.scene, { sides } = this.columns(), ink = this.ink;
    if (!columns[0].length || !columns[1].length) return;
    const foot = (side) => { const last = columns[side].at(-1); return this.y(node.y[last] + node.height[last]); };
    const y = Math.max(foot(0), foot(1)) + 5, [from, to] = [sides[0][1] - 14, sides[1][0] + 14];
    if (y > this.heightPx || y < HEAD) return;
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
    this.font(10, SANS);
    const words = "forward ends, backward begins", room = to - from - 12;
    if (c.measureText(words).width > room) return;
    c.textAlign = "center";
    const wide = c.measureText(words).width + 8, middle = (from + to) / 2;
    c.fillStyle = this.paper;
    c.fillRect(middle - wide / 2, y - 6, wide, 12);
    c.fillStyle = ink.muted;
    c.fillText(words, middle, y);
    c.textAlign = "left";
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
}
