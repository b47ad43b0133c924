// Cells that are run before the kernel has started. JupyterLab 4.6 then runs no cell, reports success, and shows nothing.
// If the notebook has not asked for its kernel yet, JupyterLab asks the user for a kernel, once for each cell. For one
// cell this is a fair question, because the cell runs after the answer; for *Run All* it is not.

import type { JupyterFrontEnd } from "@jupyterlab/application";
import { Dialog } from "@jupyterlab/apputils";
import { type INotebookTracker, NotebookActions, type NotebookPanel } from "@jupyterlab/notebook";

const RUN_ALL = "notebook:run-all-cells";
const IMPORT = /^\s*(?:import|from)\s+workbench\b/m;

type Cell = NotebookPanel["content"]["widgets"][number];

/** Whether a code cell imports the workbench. All other notebooks keep JupyterLab's behavior. */
function importsWorkbench({ content }: NotebookPanel): boolean {
  return content.widgets.some(({ model }) => model.type === "code" && IMPORT.test(model.sharedModel.getSource()));
}

/** Whether JupyterLab has not started a code cell since it cleared the cell's outputs. */
function isUnrun({ model }: Cell): boolean {
  return model.type === "code" && (model.sharedModel as { execution_count?: unknown }).execution_count == null;
}

/** Closes JupyterLab's dialogs that ask for a kernel, so that the commands of their cells end. In other languages than English, they stay open. */
function closeKernelDialogs(): void {
  Dialog.tracker.forEach((dialog) => {
    const title = dialog.node.querySelector(".jp-Dialog-header")?.textContent ?? "";
    if (title.startsWith("Select Kernel")) dialog.dispose();
  });
}

/** Runs the cells that were run too early, each once, when the kernel of their notebook has started. */
export function runWhenReady(app: JupyterFrontEnd, notebooks: INotebookTracker): void {
  const held = new Map<NotebookPanel, Set<Cell>>();

  async function hold(panel: NotebookPanel, cells: readonly Cell[], dialogs?: Promise<unknown>): Promise<void> {
    const { content, sessionContext: context } = panel, before = held.get(panel), all = before ?? new Set<Cell>();
    cells.forEach((cell) => all.add(cell));
    held.set(panel, all);
    try {
      await context.ready;
      // The dialogs ask for a kernel, which now runs. Each of them ends its cell's command with an error.
      if (dialogs) closeKernelDialogs();
      await dialogs?.catch(() => undefined);
      // A notebook whose user chose no kernel is ready, too.
      if (before || panel.isDisposed || !context.session?.kernel) return;
      // In the notebook's order, because JupyterLab schedules the cell that asks for the kernel after all others.
      const unrun = content.widgets.filter((cell) => all.has(cell) && isUnrun(cell));
      if (unrun.length) await NotebookActions.runCells(content, unrun, context);
    } finally {
      if (!before) held.delete(panel);
    }
  }

  // JupyterLab schedules a cell although the session has no kernel yet, and then drops the cell.
  NotebookActions.executionScheduled.connect((_, { notebook, cell }) => {
    const panel = notebooks.find(({ content }) => content === notebook);
    if (panel && !panel.sessionContext.session?.kernel && importsWorkbench(panel)) void hold(panel, [cell]);
  });
  app.commands.commandExecuted.connect((_, { id, result }) => {
    const panel = notebooks.currentWidget, context = panel?.sessionContext;
    if (id !== RUN_ALL || !panel || !context?.hasNoKernel || context.isReady || !importsWorkbench(panel)) return;
    void hold(panel, panel.content.widgets, result);
  });
}
