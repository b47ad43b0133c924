// What the modules of the graph share: where all is, the pen, and what is selected, pointed at and dragged.

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
    this.readOnly = model.get("read_only") === true; // a saved plan: nothing changes it
    this.ratio = 1; // device pixels per pixel
    this.hover = /** @type {any} */ (null);
    this.drag = /** @type {any} */ (null);
    this.asked = /** @type {Map<number, number>} */ (new Map()); // arcs of which another style was asked for, not planned yet
  }

  /** The name of what is selected. */
  get selected() { return this.model.get("selected"); }

  /** The arc or the node that the selection is at; a mark is at its node, a module at its first statement of the forward. */
  chosenPlace() {
    const { at, columns, module, node } = this.places.scene, chosen = at.get(this.selected);
    if (chosen?.kind === "module") return { kind: "node", index: columns[0][Math.min(columns[0].length - 1, firstBelow(columns[0], node, module.y[chosen.index]))] };
    if (chosen?.kind === "bar") return { kind: "node", index: this.places.scene.bar.issue_node[chosen.index] };
    return chosen?.kind === "mark" ? { kind: "node", index: this.places.scene.mark.node[chosen.index] } : chosen;
  }
}
