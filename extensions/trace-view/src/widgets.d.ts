// Types of the app's modules that this extension imports. `extensions/widgets/build.py` checks the types inside these modules.

declare module "!!css-loader*" {
  const text: string;
  export default text;
}

declare module "*/frontend/dom.js" {
  export function h(tag: string, attributes?: Record<string, unknown>, ...children: unknown[]): HTMLElement;
  export function panel(el: HTMLElement, name: string): void;
}

declare module "*/frontend/graph/graph_view.js" {
  const view: import("./model").Module;
  export default view;
}

declare module "*/frontend/controls/figure_strip.js" {
  const strip: import("./model").Module;
  export default strip;
}
