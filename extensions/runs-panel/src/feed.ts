// Polls the list of runs from the server (`workbench/server`). Each request asks for changes since the last version. The
// server holds a request until there is a change, and a browser opens only six connections to a server over HTTP/1.1. With
// six pages that each hold a request, a further page would not load. Therefore one page of a browser polls, and sends each
// answer to the other pages.

import { URLExt } from "@jupyterlab/coreutils";
import { ServerConnection } from "@jupyterlab/services";
import { Signal } from "@lumino/signaling";

/** A run as `workbench/server/run_status.py` sends it. `samples` has the new memory samples: pairs of seconds and bytes. */
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
  /** Version of the workbench in the environment of JupyterLab. */
  workbench?: string;
  runs: Run[];
  ids?: string[];
  unreadable?: Record<string, string>;
}

/** Message from the polling page to the other pages: an answer to a request since a version, or the reason why there is none. */
type News = { since: number; answer: Answer } | { trouble: string };

const RETRY_MS = 2000; // time until the next request if the server does not answer
const MISSING_MS = 60_000; // time until the next request if the server has no list of runs
const SAMPLES = 2400; // memory samples that the small curve shows: two minutes

/** Returns a run's name together with its program, for a list with runs of several programs. */
export const titleOf = ({ program, name }: Run): string => (program && program !== name ? `${program}, ${name}` : name);

export const isLive = (run: Run): boolean => run.state === "starting" || run.state === "running";

export class Feed {
  readonly runs = new Map<string, Run>();
  /** Time at which the page last received a run, by the run's id. Between answers, the page counts the seconds itself. */
  readonly heard = new Map<string, number>();
  ids: string[] = [];
  unreadable: Record<string, string> = {};
  /** Reason why there is no list of runs; empty if there is a list. */
  trouble = "Asking the server for runs…";
  /** Emitted with the runs that changed. */
  readonly changed = new Signal<Feed, Run[]>(this);
  /** Emitted with a run that has just ended. */
  readonly ended = new Signal<Feed, Run>(this);

  private version = 0;

  constructor(private readonly settings: ServerConnection.ISettings) {}

  async start(): Promise<never> {
    const name = `thunder-workbench runs of ${this.settings.baseUrl}`;
    const others = new BroadcastChannel(name);
    others.onmessage = ({ data }: MessageEvent<News>) => void this.hear(data).catch(() => undefined);
    for (;;) {
      if (document.hidden) await shown();
      // The server answers a first request at once, so it does not hold a connection.
      if (!this.version) await this.next(others);
      else await alone(name, async () => { while (!document.hidden) await this.next(others); });
    }
  }

  /** Requests the changes, and sends the answer to the other pages. Aborts the request when this page is hidden. */
  private async next(others: BroadcastChannel): Promise<void> {
    const since = this.version, left = new AbortController();
    const leave = () => document.hidden && left.abort();
    document.addEventListener("visibilitychange", leave);
    try {
      const answer = await this.ask<Answer>(`runs?since=${since}`, { signal: left.signal });
      this.take(since, answer);
      others.postMessage({ since, answer } satisfies News);
    } catch (error) {
      if (left.signal.aborted) return;
      const missing = error instanceof Missing;
      const trouble = missing
        ? "This Jupyter server lists no runs: install thunder-workbench in the environment in which JupyterLab runs, and start JupyterLab again."
        : "The server does not answer.";
      this.despair(trouble);
      others.postMessage({ trouble } satisfies News);
      await pause(missing ? MISSING_MS : RETRY_MS);
    } finally {
      document.removeEventListener("visibilitychange", leave);
    }
  }

  /** Applies an answer that another page has received. If this page has an older version, it requests the changes itself; the server has them already and answers at once. */
  private async hear(news: News): Promise<void> {
    if ("trouble" in news) return this.despair(news.trouble);
    for (let { since, answer } = news; !this.take(since, answer) && this.version < answer.version; ) {
      since = this.version;
      answer = await this.ask<Answer>(`runs?since=${since}`);
    }
  }

  private despair(trouble: string): void {
    this.trouble = trouble;
    this.changed.emit([]);
  }

  async cancel(id: string): Promise<void> {
    await this.ask("cancel", { method: "POST", body: JSON.stringify({ id }) });
  }

  async log(id: string): Promise<string> {
    return (await this.ask<{ text: string }>(`log?id=${encodeURIComponent(id)}`)).text;
  }

  /** Applies an answer. Returns false, and applies nothing, if the answer does not start from this page's version. */
  private take(since: number, { version, workbench, runs, ids, unreadable }: Answer): boolean {
    if (since !== this.version) return false;
    // The app compares it with the kernel's version (`workbench/ui/frontend/controls/controls.js`).
    if (!this.version && workbench) document.documentElement.dataset.thunderWorkbench = workbench;
    this.version = version;
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
    return true;
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

/** Calls `act` while no other page of this browser does. If pages have no locks (HTTP from another machine), calls `act` at once. */
async function alone(name: string, act: () => Promise<void>): Promise<void> {
  await (navigator.locks ? navigator.locks.request(name, act) : act());
}

/** Resolves when the page is visible again. */
const shown = () =>
  new Promise<void>((next) => {
    const look = () => {
      if (document.hidden) return;
      document.removeEventListener("visibilitychange", look);
      next();
    };
    document.addEventListener("visibilitychange", look);
  });
