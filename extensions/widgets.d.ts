/** Each widget's module by name: `report_page.py` puts them in front of `report_page.js`. */
declare const WIDGETS: Record<string, { render(context: { model: any; el: HTMLElement }): void }>;
