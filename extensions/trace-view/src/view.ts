// The page of a saved plan: program, figures, choices, graph, and the selected site.

import { h, panel } from "../../../workbench/ui/frontend/dom.js";
import graphView from "../../../workbench/ui/frontend/graph/graph_view.js";
import strip from "../../../workbench/ui/frontend/controls/figure_strip.js";
import { SavedModel } from "./model";
import { graphData, type Plan, type Site } from "./plan";

const HEIGHT = 620; // height of the graph in pixels if the page scrolls; as `GraphView.height`

/** Draws a plan into an empty element. Returns a function that removes the views. */
export function draw(plan: Plan, el: HTMLElement): () => void {
  const figures = h("div"), graph = h("div"), about = h("div", { "aria-live": "polite" });
  const model = new SavedModel({ data: graphData(plan), selected: "", height: HEIGHT, dark: false, read_only: true });
  const select = (id: string) => {
    model.set("selected", id);
    model.emit("msg:custom", { type: "reveal", id });
  };
  el.replaceChildren(heading(plan), figures, choices(plan, select), graph, about);
  const sites = new Map(plan.sites.map((site) => [site.id, site]));
  const tell = () => about.replaceChildren(...selected(sites.get(String(model.get("selected")))));
  panel(about, "saved-site");
  model.on("change:selected", tell);
  tell();
  const ends = [
    strip.render({ model: new SavedModel({ content: { figures: plan.view.figures } }), el: figures }),
    graphView.render({ model, el: graph }),
  ];
  return () => ends.forEach((end) => end?.());
}

/** Returns the heading: the program with its device, executor and settings, and a note that the plan is saved. */
function heading(plan: Plan): HTMLElement {
  const settings = Object.entries(plan.settings).map(([name, value]) => `${name}=${value}`);
  const versions = Object.entries(plan.versions).map(([name, version]) => `${name} ${version}`);
  const row = h(
    "div",
    {},
    h("strong", {}, plan.program),
    h("span", { class: "wb-muted" }, [plan.device, plan.executor, ...settings].join(" · ")),
    h("span", { class: "wb-muted", title: versions.join("\n") }, "saved plan: predicted, changes are against the plan without choices; nothing can be chosen here"),
  );
  panel(row, "saved-heading");
  return row;
}

/** Returns a list of the choices that differ from unmodified Thunder. A click on a choice selects its site in the graph. */
function choices(plan: Plan, select: (id: string) => void): HTMLElement {
  const made = Object.entries(plan.choices);
  const link = ([id, option]: [string, string]) =>
    h("li", {}, h("button", { class: "wb-link", onclick: () => select(id) }, id), `: ${option}`);
  const count = made.length === 1 ? "1 choice" : `${made.length} choices`;
  const box = made.length
    ? h("details", { open: made.length <= 4 }, h("summary", {}, `${count} chosen`), h("ul", {}, ...made.map(link)))
    : h("div", { class: "wb-muted" }, "No choices: what unmodified Thunder would execute.");
  panel(box, "saved-choices");
  return box;
}

/** Returns the options of the selected site, with the reason for each illegal option. */
function selected(site: Site | undefined): HTMLElement[] {
  if (!site) return [h("div", { class: "wb-muted" }, "Click an arc or a mark to see what could be chosen there.")];
  const options = site.options.map((option) => {
    const refused = site.illegal[option];
    const state = option === site.choice ? "chosen" : refused ? `refused: ${refused}` : "legal";
    return h("div", {}, h("code", {}, option), " ", h("span", { class: "wb-muted" }, option === site.default ? `${state}, default` : state));
  });
  return [h("div", {}, h("strong", {}, site.label), " ", h("code", { class: "wb-muted" }, site.id)), ...options];
}
