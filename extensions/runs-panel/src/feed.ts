// The runs as the server knows them (`workbench/server`): asked again and again, each time for what is new since.

import { URLExt } from "@jupyterlab/coreutils";
import { ServerConnection } from "@jupyterlab/services";
import { Signal } from "@lumino/signaling";

/** A run as `workbench/server/readout.py` sends it; `samples` are pairs of seconds and bytes, those that are new. */
export interface Run {
  id: string;
  name: string;
  program: string;
  place: string;
  run_dir: string;
  created_s: number;
  state: "starting" | "running" | "done" | "failed" | "cancelled";
  doing: string;
  fusion: string;
  fusions_done: number;
  fusions: number;
  elapsed_s: number;
  memory_bytes: number;
  most_bytes: number;
  compile_s: number | null;
  step_s: number | null;
  peak_bytes: number | null;
  accurate: boolean | null;
  error: string;
  samples: [number, number][];
}

interface Answer {
  version: number;
  runs: Run[];
  ids?: string[];
  unreadable?: Record<string, string>;
}

const RETRY_MS = 2000; // after a server that does not answer
const MISSING_MS = 60_000; // after one that has no such list
const SAMPLES = 2400; // of memory, kept for the little curve: two minutes

export const isLive = (run: Run): boolean => run.state === "starting" || run.state === "running";

export class Feed {
  readonly runs = new Map<string, Run>();
  /** When the page heard of a run last, by its id: between events the page counts the seconds. */
  readonly heard = new Map<string, number>();
  ids: string[] = [];
  unreadable: Record<string, string> = {};
  /** Why there is no list; empty while there is one. */
  trouble = "Asking the server for runs…";
  /** Emitted with the runs that changed. */
  readonly changed = new Signal<Feed, Run[]>(this);
  /** Emitted with a run that was live and is over. */
  readonly ended = new Signal<Feed, Run>(this);

  constructor(private readonly settings: ServerConnection.ISettings) {}

  async start(): Promise<never> {
    for (let version = 0; ; ) {
      if (document.hidden) await shown();
      try {
        const answer = await this.ask<Answer>(`runs?since=${version}`);
        version = answer.version;
        this.take(answer);
      } catch (error) {
        const missing = error instanceof Missing;
        this.trouble = missing
          ? "This Jupyter server lists no runs: install thunder-workbench in the environment that JupyterLab runs in, and start it again."
          : "The server does not answer.";
        this.changed.emit([]);
        await pause(missing ? MISSING_MS : RETRY_MS);
      }
    }
  }

  async cancel(id: string): Promise<void> {
    await this.ask("cancel", { method: "POST", body: JSON.stringify({ id }) });
  }

  async log(id: string): Promise<string> {
    return (await this.ask<{ text: string }>(`log?id=${encodeURIComponent(id)}`)).text;
  }

  private take({ runs, ids, unreadable }: Answer): void {
    this.trouble = "";
    const over: Run[] = [];
    for (const run of runs) {
      const before = this.runs.get(run.id);
      if (before) run.samples = [...before.samples, ...run.samples].slice(-SAMPLES);
      if (before && isLive(before) && !isLive(run)) over.push(run);
      this.runs.set(run.id, run);
      this.heard.set(run.id, performance.now());
    }
    if (ids) {
      this.ids = ids;
      for (const id of this.runs.keys()) if (!ids.includes(id)) this.runs.delete(id);
    }
    if (unreadable) this.unreadable = unreadable;
    this.changed.emit(runs);
    for (const run of over) this.ended.emit(run);
  }

  private async ask<T>(what: string, init: RequestInit = {}): Promise<T> {
    const url = URLExt.join(this.settings.baseUrl, "thunder-workbench", what);
    const response = await ServerConnection.makeRequest(url, init, this.settings);
    if (response.ok) return response.json();
    const { message } = await response.json().catch(() => ({ message: response.statusText }));
    throw response.status === 404 ? new Missing() : new Error(message);
  }
}

class Missing extends Error {}

const pause = (milliseconds: number) => new Promise((next) => setTimeout(next, milliseconds));

/** Until the page is looked at again: nobody reads what it would be told meanwhile. */
const shown = () =>
  new Promise<void>((next) => {
    const look = () => {
      if (document.hidden) return;
      document.removeEventListener("visibilitychange", look);
      next();
    };
    document.addEventListener("visibilitychange", look);
  });
