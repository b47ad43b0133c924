// What JupyterLab loads: the app in a tab, the palette's entries and the launcher's card.

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { ICommandPalette } from "@jupyterlab/apputils";
import { ILauncher } from "@jupyterlab/launcher";
import { INotebookTracker } from "@jupyterlab/notebook";
import "../style/runs.css";
import { icon } from "./icon";
import { createNotebook } from "./notebook";
import { Tabs } from "./tab";

const CATEGORY = "Thunder Workbench";
const OPEN_TAB = "thunder-workbench:open-tab";
const NEW = "thunder-workbench:new-notebook";

const tab: JupyterFrontEndPlugin<void> = {
  id: "thunder-workbench-runs-panel:tab",
  description: "Shows a notebook's workbench in a tab of its own.",
  autoStart: true,
  requires: [INotebookTracker],
  optional: [ICommandPalette],
  activate: (app: JupyterFrontEnd, notebooks: INotebookTracker, palette: ICommandPalette | null) => {
    const tabs = new Tabs(app.shell, notebooks);
    app.commands.addCommand(OPEN_TAB, {
      label: "Open the Workbench in a Tab",
      caption: "The app that the notebook shows, with all of it in sight",
      icon,
      isEnabled: () => tabs.candidate() !== null,
      execute: () => tabs.openCandidate(),
    });
    notebooks.currentChanged.connect(() => app.commands.notifyCommandChanged(OPEN_TAB));
    palette?.addItem({ command: OPEN_TAB, category: CATEGORY });
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

export default [tab, launcher];
