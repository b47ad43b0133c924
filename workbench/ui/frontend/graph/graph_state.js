// The state that the graph's modules share: positions, the pen, the selection, the hovered element and the current drag.

import { Places } from "./graph_hit_test.js";
import { Pen } from "./graph_canvas.js";
import { firstBelow } from "./graph_scene.js";

/** @typedef {import("./graph_scene.js").Model} Model */

export class GraphState {
  /** @param {Model} model @param {HTMLCanvasElement} canvas */
  constructor(model, canvas) {
    this.model = model;
    this.places = new Places();
    this.pen = new Pen(/** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false })));
    this.readOnly = model.get("read_only") === true; // true for a saved plan, which cannot change
    this.ratio = 1; // device pixels per CSS pixel
    this.hover = /** @type {any} */ (null);
    this.drag = /** @type {any} */ (null);
    this.asked = /** @type {Map<number, number>} */ (new Map()); // requested styles of arcs with pending choices, by the arc's index
  }

  /** The id of the selected element; empty if nothing is selected. */
  get selected() { return this.model.get("selected"); }

  /** Return the selected arc or node. For a mark, return its node; for a bar, the node at its issue; for a module, the first forward node. */
  chosenPlace() {
    const { at, columns, module, node } = this.places.scene, chosen = at.get(this.selected);
    if (chosen?.kind === "module") return { kind: "node", index: columns[0][Math.min(columns[0].length - 1, firstBelow(columns[0], node, module.y[chosen.index]))] };
    if (chosen?.kind === "bar") return { kind: "node", index: this.places.scene.bar.issue_node[chosen.index] };
    return chosen?.kind === "mark" ? { kind: "node", index: this.places.scene.mark.node[chosen.index] } : chosen;
  }
}
