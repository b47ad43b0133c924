// Reads and checks a saved plan, which `bench.save` has written (`workbench/bench/report/saved_plan.py`).

export const MIME_TYPE = "application/vnd.thunder-workbench.plan+json";
export const FORMAT = "thunder-workbench plan";
export const FORMAT_VERSION = 1;

export interface Site {
  id: string;
  lever: string;
  label: string;
  source: string;
  choice: string;
  default: string;
  options: string[];
  illegal: Record<string, string>;
}

/** A column's type code and its bytes in base64. */
type Column = [string, string];

export interface Plan {
  program: string;
  device: string;
  executor: string;
  settings: Record<string, unknown>;
  versions: Record<string, string>;
  choices: Record<string, string>;
  sites: Site[];
  view: {
    figures: object[];
    graph: { tables: Record<string, Record<string, Column>> };
  };
}

/** Returns the plan in a document. Throws an error if the document is not a saved plan, or has another format version. */
export function planOf(data: unknown): Plan {
  const given = data as Record<string, unknown> | null;
  if (typeof given !== "object" || given === null || given.format !== FORMAT)
    throw new Error("This file holds no saved plan: bench.save(path) writes one.");
  if (given.format_version !== FORMAT_VERSION)
    throw new Error(
      `This plan was saved in format version ${given.format_version}; this view reads version ${FORMAT_VERSION}. ` +
        "Save it again, or install the version of thunder-workbench that wrote it.",
    );
  return given as unknown as Plan;
}

/** Returns the data of the graph view: each column's bytes are in a buffer, as a widget gets them from a kernel. */
export function graphData(plan: Plan): object {
  const { graph } = plan.view;
  const columns = (table: Record<string, Column>) =>
    Object.fromEntries(Object.entries(table).map(([name, [code, text]]) => [name, [code, bytes(text)]]));
  const tables = Object.entries(graph.tables).map(([name, table]) => [name, columns(table)]);
  return { ...graph, tables: Object.fromEntries(tables) };
}

function bytes(base64: string): ArrayBuffer {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0)).buffer;
}
