// *Run All* before the kernel has started. JupyterLab 4.6 then runs no cell, reports success, and shows nothing. If the
// notebook has not asked for its kernel yet, JupyterLab shows one dialog after the other instead, one for each cell.

import type { JupyterFrontEnd } from "@jupyterlab/application";
import { Dialog } from "@jupyterlab/apputils";
import { type INotebookTracker, NotebookActions, type NotebookPanel } from "@jupyterlab/notebook";

const RUN_ALL = "notebook:run-all-cells";

/** Whether JupyterLab has started no code cell of a notebook since it cleared the outputs. */
function isUnrun({ content }: NotebookPanel): boolean {
  const cells = content.model?.sharedModel.cells ?? [];
  return cells.every((cell) => cell.cell_type !== "code" || ((cell as { execution_count?: unknown }).execution_count ?? null) === null);
}

/** Closes JupyterLab's dialogs that ask for a kernel, so that the commands of their cells end. In other languages than English, they stay open. */
function closeKernelDialogs(): void {
  Dialog.tracker.forEach((dialog) => {
    const title = dialog.node.querySelector(".jp-Dialog-header")?.textContent ?? "";
    if (title.startsWith("Select Kernel")) dialog.dispose();
  });
}

/** Runs all cells once a notebook's kernel has started, if the user asked for it earlier. */
export function runAllWhenReady(app: JupyterFrontEnd, notebooks: INotebookTracker): void {
  const waiting = new WeakSet<NotebookPanel>();
  app.commands.commandExecuted.connect(async (_, { id, result }) => {
    const panel = notebooks.currentWidget, context = panel?.sessionContext;
    if (id !== RUN_ALL || !panel || !context || context.session?.kernel || waiting.has(panel)) return;
    waiting.add(panel);
    try {
      const asks = context.hasNoKernel && !context.isReady;
      await (asks ? context.ready : result);
      // The dialogs ask for a kernel, which now runs. Each of them ends its cell's command with an error.
      if (asks) closeKernelDialogs();
      await result.catch(() => undefined);
      await context.ready;
      // A notebook whose user chose no kernel is ready, too.
      if (!panel.isDisposed && context.session?.kernel && isUnrun(panel)) await NotebookActions.runAll(panel.content, context);
    } finally {
      waiting.delete(panel);
    }
  });
}
