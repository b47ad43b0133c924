// The app's own modules, as this extension uses them; `extensions/widgets` checks their types.

declare module "*/frontend/dom.js" {
  export function h(tag: string, attributes?: Record<string, unknown>, ...children: unknown[]): HTMLElement;
  export function panel(el: HTMLElement, name: string): void;
}

declare module "*/frontend/graph/graph_view.js" {
  const view: import("./model").Module;
  export default view;
}

declare module "*/frontend/panels/figure_strip.js" {
  const strip: import("./model").Module;
  export default strip;
}
