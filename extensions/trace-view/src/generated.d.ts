// What `build.py` writes into `generated/`: the widget's own modules, as the kernel sends them to a page.

declare module "*/generated/dom.js" {
  export function h(tag: string, attributes?: Record<string, unknown>, ...children: unknown[]): HTMLElement;
  export function panel(el: HTMLElement, name: string): void;
}

declare module "*/generated/graph_view.js" {
  const view: import("./model").Module;
  export default view;
}

declare module "*/generated/strip.js" {
  const strip: import("./model").Module;
  export default strip;
}
