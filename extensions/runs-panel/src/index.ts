// The plugins that JupyterLab loads: the app in a tab, the runs in a side panel and in the status bar, and a launcher card.

import { ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from "@jupyterlab/application";
import { ICommandPalette, Notification } from "@jupyterlab/apputils";
import { ILauncher } from "@jupyterlab/launcher";
import { INotebookTracker } from "@jupyterlab/notebook";
import { IStatusBar } from "@jupyterlab/statusbar";
import "../style/runs.css";
import { runWhenReady } from "./early_run";
import { Feed, type Run, titleOf } from "./feed";
import { icon } from "./icon";
import { logTab } from "./log";
import { createNotebook } from "./notebook";
import { RunsPanel, RunsStatus } from "./panel";
import { PLACES } from "./places";
import { Tabs } from "./tab";

const CATEGORY = "Thunder Workbench";
const OPEN_TAB = "thunder-workbench:open-tab";
const OPEN_PLACE = "thunder-workbench:open-place";
const SHOW_RUNS = "thunder-workbench:show-runs";
const NEW = "thunder-workbench:new-notebook";

const tab: JupyterFrontEndPlugin<void> = {
  id: "thunder-workbench-runs-panel:tab",
  description: "Shows a notebook's workbench in a tab of its own.",
  autoStart: true,
  requires: [INotebookTracker],
  optional: [ICommandPalette],
  activate: (app: JupyterFrontEnd, notebooks: INotebookTracker, palette: ICommandPalette | null) => {
    const tabs = new Tabs(app.shell, notebooks, (path) => void app.commands.execute("docmanager:open", { path }));
    app.commands.addCommand(OPEN_TAB, {
      label: "Open the Workbench in a Tab",
      caption: "Shows the whole app of the notebook in a tab",
      icon,
      isEnabled: () => tabs.candidate() !== null,
      execute: () => tabs.openCandidate(),
    });
    app.commands.addCommand(OPEN_PLACE, {
      label: (args) => `Show in the Workbench: ${String(args.place ?? "")}, ${String(args.name ?? "")}`,
      caption: "Opens this tab of the app, below the graph",
      icon,
      isEnabled: () => tabs.candidate() !== null,
      execute: (args) => tabs.openPlace(String(args.name ?? "")),
    });
    const changed = () => [OPEN_TAB, OPEN_PLACE].forEach((id) => app.commands.notifyCommandChanged(id));
    notebooks.currentChanged.connect(changed);
    app.shell.currentChanged?.connect(changed);
    palette?.addItem({ command: OPEN_TAB, category: CATEGORY });
    for (const [place, name] of PLACES) palette?.addItem({ command: OPEN_PLACE, category: CATEGORY, args: { place, name } });
  },
};

const launcher: JupyterFrontEndPlugin<void> = {
  id: "thunder-workbench-runs-panel:launcher",
  description: "A notebook to start with, from the launcher and the palette.",
  autoStart: true,
  optional: [ILauncher, ICommandPalette],
  activate: (app: JupyterFrontEnd, cards: ILauncher | null, palette: ICommandPalette | null) => {
    app.commands.addCommand(NEW, {
      label: (args) => (args.isLauncher ? "Thunder Workbench" : "New Workbench Notebook"),
      caption: "A notebook that opens a small program in the workbench",
      icon,
      execute: async (args) => {
        const path = await createNotebook(app.serviceManager.contents, String(args.cwd ?? ""));
        return app.commands.execute("docmanager:open", { path, factory: "Notebook" });
      },
    });
    cards?.add({ command: NEW, category: "Notebook", rank: 50, args: { isLauncher: true } });
    palette?.addItem({ command: NEW, category: CATEGORY });
  },
};

const runs: JupyterFrontEndPlugin<void> = {
  id: "thunder-workbench-runs-panel:runs",
  description: "Shows the runs of all kernels, and cancels them.",
  autoStart: true,
  optional: [ICommandPalette, IStatusBar, ILayoutRestorer],
  activate: (app: JupyterFrontEnd, palette: ICommandPalette | null, status: IStatusBar | null, restorer: ILayoutRestorer | null) => {
    const { shell } = app, feed = new Feed(app.serviceManager.serverSettings);
    const openLog = (run: Run) => {
      const there = [...shell.widgets("main")].find(({ id }) => id === `thunder-workbench-log-${run.id}`) ?? logTab(feed, run);
      if (!there.isAttached) shell.add(there, "main");
      shell.activateById(there.id);
    };
    const panel = new RunsPanel(feed, openLog);
    shell.add(panel, "right", { rank: 700, type: "Thunder Workbench" });
    restorer?.add(panel, panel.id);
    app.commands.addCommand(SHOW_RUNS, { label: "Show Runs of All Kernels", icon, execute: () => shell.activateById(panel.id) });
    palette?.addItem({ command: SHOW_RUNS, category: CATEGORY });
    const item = new RunsStatus(feed, () => shell.activateById(panel.id));
    status?.registerStatusItem("thunder-workbench-runs-panel:status", { item, align: "right", rank: 200 });
    feed.ended.connect((_, run) => {
      // An app in sight says itself that its run is done, in the line that a notification would cover.
      const inSight = Array.from(document.querySelectorAll<HTMLElement>(".wb-app")).some((app) => app.offsetParent !== null);
      if (run.state === "done" && !inSight) Notification.success(`${titleOf(run)} is done`, { autoClose: 5000 });
      else if (run.state === "failed") Notification.error(`${titleOf(run)} failed: ${run.error}`, { autoClose: 8000 });
    });
    void app.restored.then(() => feed.start());
  },
};

const earlyRun: JupyterFrontEndPlugin<void> = {
  id: "thunder-workbench-runs-panel:early-run",
  description: "Runs cells that were run before the kernel of their notebook had started.",
  autoStart: true,
  requires: [INotebookTracker],
  activate: runWhenReady,
};

export default [tab, runs, launcher, earlyRun];
