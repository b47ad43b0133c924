// The description of an element of the graph, for the tooltip and for screen readers.

import { humanBytes } from "../dom.js";
import { CLONE, COLLECTIVE, RANDOM, VIEW } from "./graph_scene.js";

/** Return the lines that describe an element, each as a pair: suffix of the CSS class `wb-tip-`, and text. */
export function about(scene, target) {
  const { node, arc, mark, module, strings } = scene;
  const rows = [];
  if (target.kind === "module") {
    const i = target.index, saved = strings[module.saved[i]];
    rows.push(["b", strings[module.scope[i]]], ["", `${module.forward[i]} statements in the forward, ${module.backward[i]} in the backward`]);
    rows.push(["", `↓ ${strings[module.forward_ops[i]]}`], ["", module.backward[i] ? `↑ ${strings[module.backward_ops[i]]}` : ""]);
    rows.push(["", saved && `${saved} saved for the backward`], ["i", "Double click, or Enter: zoom in"]);
  } else if (target.kind === "node") {
    const i = target.index, flags = node.flags[i];
    rows.push(["b", strings[node.full[i]]], ["", strings[node.detail[i]]]);
    const traits = [
      node.bytes[i] ? humanBytes(node.bytes[i]) : "", strings[node.executor[i]], flags & RANDOM ? "random" : "",
      flags & VIEW ? "view, no memory of its own" : "", flags & CLONE ? "computed again in the backward" : "",
      flags & COLLECTIVE ? "collective" : "",
    ];
    rows.push(["", traits.filter(Boolean).join(" · ")], ["i", strings[node.about[i]]]);
  } else {
    const tip = target.kind === "mark" ? mark.tip : target.kind === "bar" ? scene.bar.tip : arc.tip;
    rows.push(...strings[tip[target.index]].split("\n").map((text, i) => [i ? "" : "b", text]));
  }
  return rows;
}
