// The notebook behind the launcher's card.

import type { Contents } from "@jupyterlab/services";

const WORDS = `# Thunder Workbench
A built-in program to begin with; \`wb.open(model, x)\` takes your own. The button *Open in a tab* shows all of the app at once.`;

const CODE = `import workbench as wb

bench = wb.open("llama", layers=2, device="cpu")
bench.show(tab=True)`;

/** Makes a notebook in a folder. Returns the notebook's path. */
export async function createNotebook(contents: Contents.IManager, folder: string): Promise<string> {
  const { path } = await contents.newUntitled({ path: folder, type: "notebook" });
  const cell = (type: string, source: string) => ({ cell_type: type, metadata: {}, source });
  const content = {
    cells: [cell("markdown", WORDS), { ...cell("code", CODE), execution_count: null, outputs: [] }],
    metadata: { kernelspec: { name: "python3", display_name: "Python 3", language: "python" } },
    nbformat: 4,
    nbformat_minor: 4,
  };
  await contents.save(path, { type: "notebook", format: "json", content });
  return path;
}
