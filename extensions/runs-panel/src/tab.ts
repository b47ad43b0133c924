// The app in a tab: a second view of the widget that a notebook's cell shows, made by the renderer of this notebook.

import type { JupyterFrontEnd } from "@jupyterlab/application";
import { MainAreaWidget } from "@jupyterlab/apputils";
import { PathExt } from "@jupyterlab/coreutils";
import type { INotebookTracker, NotebookPanel } from "@jupyterlab/notebook";
import { Panel } from "@lumino/widgets";
import { icon } from "./icon";

/** Event of the app's button *Open in a tab* (`workbench/ui/frontend/controls/controls.js`). The handler calls `preventDefault` if it shows a tab. */
const ASK = "thunder-workbench:open-tab";
/** Event to the app's views in the notebook after their tab was opened or closed. */
const NEWS = "thunder-workbench:tab";
/** Event to the app that opens a tab or top-level tab below the graph. */
const PLACE = "thunder-workbench:place";
/** Event of the app that opens a file that it has written. The handler calls `preventDefault` if it can; with `ask`, it does not open the file. */
const OPEN = "thunder-workbench:open-file";
const WIDGET = "application/vnd.jupyter.widget-view+json";
/** Entry of the page's session storage with the open tabs. It outlives a reload of the page. */
const KEPT = "thunder-workbench/tabs";

/** Attempts to show an app in its tab, and the pause before the next attempt. ipywidgets waits 2 s for a model in each attempt. */
const ATTEMPTS = 10, PAUSE_MS = 1000;

/** An app that has a tab, and the path of its notebook. */
interface Kept {
  app: string;
  name: string;
  path: string;
}

function kept(): Kept[] {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT) ?? "[]") as Kept[];
  } catch {
    return []; // the page may not use storage
  }
}

/** An app that a notebook shows: the id of its widget's model, and the program's name. */
interface Shown {
  app: string;
  name: string;
  notebook: NotebookPanel;
}

export class Tabs {
  private readonly open = new Map<string, MainAreaWidget<Panel>>();
  private readonly origins = new Map<string, NotebookPanel>();
  private readonly names = new Map<string, string>();

  constructor(
    private readonly shell: JupyterFrontEnd.IShell,
    private readonly notebooks: INotebookTracker,
    openFile: (path: string) => void,
  ) {
    const before = kept();
    document.addEventListener(OPEN, (event) => {
      const { path, ask } = (event as CustomEvent<{ path: string; ask: boolean }>).detail, node = event.target as Node;
      const app = [...this.open].find(([, tab]) => tab.node.contains(node))?.[0];
      const notebook = app ? this.origins.get(app) : notebooks.find((panel) => panel.node.contains(node));
      // The kernel writes into the notebook's folder. JupyterLab may not see what is outside of it.
      if (!notebook || path.startsWith("/") || path.split("/").includes("..")) return;
      event.preventDefault();
      if (!ask) openFile(PathExt.join(PathExt.dirname(notebook.context.path), path));
    });
    document.addEventListener(ASK, (event) => {
      const { app, name } = (event as CustomEvent<{ app: string; name: string }>).detail;
      const notebook = notebooks.find((panel) => panel.node.contains(event.target as Node));
      if (!notebook && !this.open.has(app)) return;
      event.preventDefault();
      void this.show(app, name, notebook);
    });
    // ipywidgets sets `jupyter-widgets-disconnected` when a kernel restarts. Set this class also when a kernel is shut down.
    const watch = (panel: NotebookPanel) => {
      panel.sessionContext.kernelChanged.connect((_, { newValue }) => {
        if (!newValue) for (const shown of panel.node.querySelectorAll(".wb-app")) shown.classList.add("jupyter-widgets-disconnected");
      });
      void this.reopen(panel, before);
    };
    notebooks.forEach(watch);
    notebooks.widgetAdded.connect((_, panel) => watch(panel));
  }

  /** Returns the app whose tab is in front; null if no such tab is in front. */
  private inFront(): { app: string; notebook: { node: HTMLElement } } | null {
    for (const [app, tab] of this.open) if (tab === this.shell.currentWidget) return { app, notebook: tab };
    return null;
  }

  /** Returns the app that the palette's entry opens: the app of the active cell, or else the first app of the notebook in front. */
  candidate(): Shown | null {
    const notebook = this.notebooks.currentWidget;
    if (!notebook) return null;
    const { activeCell, widgets } = notebook.content;
    for (const cell of activeCell ? [activeCell, ...widgets] : widgets) {
      const { app, name } = cell.node.querySelector<HTMLElement>(".wb-controls[data-app]")?.dataset ?? {};
      if (app) return { app, name: name ?? "", notebook };
    }
    return null;
  }

  /** Opens a tab or top-level tab below the graph. The app is that of the tab in front, or else `candidate()`. If this app has a tab, the tab comes to the front. */
  openPlace(name: string): void {
    const found = this.inFront() ?? this.candidate();
    if (!found) return;
    const there = this.open.get(found.app), root = there?.node ?? found.notebook.node;
    if (there) this.shell.activateById(there.id);
    root.querySelector(`.wb-controls[data-app="${found.app}"]`)?.dispatchEvent(new CustomEvent(PLACE, { detail: { name } }));
  }

  async openCandidate(): Promise<void> {
    const found = this.candidate();
    if (found) await this.show(found.app, found.name, found.notebook);
  }

  /** Opens the tabs that a notebook had before the page was reloaded, if the notebook's kernel still has their apps. */
  private async reopen(notebook: NotebookPanel, before: Kept[]): Promise<void> {
    await notebook.context.ready;
    const missing = before.filter(({ path }) => path === notebook.context.path);
    if (!missing.length) return;
    await notebook.sessionContext.ready;
    const reply = await notebook.sessionContext.session?.kernel?.requestCommInfo({ target_name: "jupyter.widget" });
    const apps = reply?.content.status === "ok" ? reply.content.comms : {};
    for (const { app, name } of missing) if (app in apps && !notebook.isDisposed) await this.show(app, name, notebook);
  }

  private keep(): void {
    const open = [...this.open.keys()].map((app) => ({ app, name: this.names.get(app) ?? "", path: this.origins.get(app)?.context.path ?? "" }));
    try {
      sessionStorage.setItem(KEPT, JSON.stringify(open));
    } catch {
      /* the page may not use storage */
    }
  }

  private async show(app: string, name: string, notebook: NotebookPanel | undefined): Promise<void> {
    const there = this.open.get(app);
    if (there || !notebook) {
      if (there) this.shell.activateById(there.id);
      return;
    }
    const content = new Panel();
    content.addClass("wb-tab");
    const tab = new MainAreaWidget({ content });
    tab.id = `thunder-workbench-${app}`;
    // Tabs of several apps of the same program get different labels.
    const labels = new Set(Array.from(this.open.values(), ({ title }) => title.label)), plain = name || "Workbench";
    let label = plain;
    for (let number = 2; labels.has(label); number++) label = `${plain} (${number})`;
    tab.title.label = label;
    tab.title.caption = `Thunder Workbench: ${label}, of ${notebook.title.label}`;
    tab.title.icon = icon;
    tab.title.closable = true;
    this.open.set(app, tab);
    this.origins.set(app, notebook);
    this.names.set(app, name);
    this.keep();
    const close = () => tab.dispose();
    notebook.disposed.connect(close);
    const restarted = () => {
      if (["restarting", "autorestarting", "dead"].includes(notebook.sessionContext.kernelDisplayStatus)) content.addClass("wb-kernel-gone");
    };
    // The kernel was shut down or replaced.
    const changed = () => content.addClass("wb-kernel-gone");
    notebook.sessionContext.statusChanged.connect(restarted);
    notebook.sessionContext.kernelChanged.connect(changed);
    tab.disposed.connect(() => {
      this.open.delete(app);
      this.origins.delete(app);
      this.names.delete(app);
      this.keep();
      notebook.disposed.disconnect(close);
      notebook.sessionContext.statusChanged.disconnect(restarted);
      notebook.sessionContext.kernelChanged.disconnect(changed);
      if (!notebook.isDisposed) mark(notebook, app, false);
    });
    this.shell.add(tab, "main", { ref: notebook.id, mode: "tab-after" });
    this.shell.activateById(tab.id);
    await render(content, app, notebook);
    if (!content.isDisposed) mark(notebook, app, true);
  }
}

/**
 * Shows an app in a panel. While a page that was reloaded on a busy machine still reads the widgets of the kernel, ipywidgets may not find the
 * app's model, and shows an error in its place. Then try again, and read the widgets again.
 */
async function render(content: Panel, app: string, notebook: NotebookPanel): Promise<void> {
  for (let left = ATTEMPTS; left && !content.isDisposed; left--) {
    const view = notebook.content.rendermime.createRenderer(WIDGET);
    content.addWidget(view);
    const data = { [WIDGET]: { model_id: app, version_major: 2, version_minor: 0 } };
    await view.renderModel({ data, metadata: {}, trusted: true, setData: () => {} });
    // A view of a missing model has the class of a widget, but no element.
    const missing = view.hasClass("jupyter-widgets") && !view.node.firstElementChild;
    if (!missing || content.isDisposed) return;
    if (left === 1) {
      view.node.textContent = "The page could not read the app from the kernel. Run the app's cell again.";
      return;
    }
    view.dispose();
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    // ipywidgets reads the widgets of a kernel again when the page has connected to it again. If it cannot connect, the last attempt says so.
    if (left === ATTEMPTS - 1 && !notebook.isDisposed) await notebook.sessionContext.session?.kernel?.reconnect().catch(() => undefined);
  }
}

/** Tells the app's views in the notebook whether the app has a tab. While it has one, these views show only buttons and figures. */
function mark(notebook: NotebookPanel, app: string, open: boolean): void {
  for (const cell of notebook.content.widgets)
    for (const view of cell.node.querySelectorAll(`.wb-controls[data-app="${app}"]`))
      view.dispatchEvent(new CustomEvent(NEWS, { detail: { open } }));
}
