// *Run All* before the kernel has started. JupyterLab then runs no cell, reports success, and shows nothing.

import type { JupyterFrontEnd } from "@jupyterlab/application";
import { type INotebookTracker, NotebookActions, type NotebookPanel } from "@jupyterlab/notebook";

const RUN_ALL = "notebook:run-all-cells";

/** Whether no code cell of a notebook runs or has run since its outputs were cleared. */
function isUnrun({ content }: NotebookPanel): boolean {
  const cells = content.model?.sharedModel.cells ?? [];
  return cells.every((cell) => cell.cell_type !== "code" || ((cell as { execution_count?: unknown }).execution_count ?? null) === null);
}

/** Runs all cells once a notebook's kernel has started, if the user asked for it earlier. */
export function runAllWhenReady(app: JupyterFrontEnd, notebooks: INotebookTracker): void {
  const waiting = new WeakSet<NotebookPanel>();
  app.commands.commandExecuted.connect(async (_, { id, result }) => {
    const panel = notebooks.currentWidget;
    if (id !== RUN_ALL || !panel || panel.sessionContext.session?.kernel || waiting.has(panel)) return;
    waiting.add(panel);
    try {
      await result;
      await panel.sessionContext.ready;
      // A notebook whose user chose no kernel is ready, too.
      if (!panel.isDisposed && panel.sessionContext.session?.kernel && isUnrun(panel))
        await NotebookActions.runAll(panel.content, panel.sessionContext);
    } finally {
      waiting.delete(panel);
    }
  });
}
