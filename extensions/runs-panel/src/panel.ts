// The side panel: live runs with their readouts, and finished runs, the latest first.

import { Notification } from "@jupyterlab/apputils";
import type { Message } from "@lumino/messaging";
import { Widget } from "@lumino/widgets";
import { type Feed, type Run, isLive, titleOf } from "./feed";
import { icon } from "./icon";
import { h, humanBytes, humanSeconds } from "./words";

const TICK_MS = 200; // milliseconds between updates of the clocks of live runs

export class RunsPanel extends Widget {
  private readonly rows = new Map<string, Row>();
  private readonly note = h("p", "wb-runs-note");
  private readonly live = h("div", "wb-runs-list");
  private readonly over = h("div", "wb-runs-list");
  private readonly bad = h("div", "wb-runs-list");
  private readonly overHead = h("h3", "", "Finished");
  private readonly badHead = h("h3", "", "Cannot be read");
  private ticking = 0;

  constructor(private readonly feed: Feed, private readonly openLog: (run: Run) => void) {
    super();
    this.id = "thunder-workbench-runs";
    this.title.icon = icon;
    this.title.caption = "Thunder Workbench: runs of all kernels";
    this.addClass("wb-runs");
    this.node.append(h("h2", "", "Runs of all kernels"), this.note, this.live, this.overHead, this.over, this.badHead, this.bad);
    feed.changed.connect((_, runs) => this.draw(runs));
    this.draw([]);
  }

  protected onAfterShow(_: Message): void {
    this.draw([...this.feed.runs.values()]);
  }

  private draw(changed: Run[]): void {
    const { feed } = this;
    for (const run of changed) {
      const row = this.rows.get(run.id) ?? new Row(run.id, feed, this.openLog);
      this.rows.set(run.id, row);
      if (this.isVisible) row.show(run, feed.heard.get(run.id) ?? 0);
    }
    for (const [id, row] of this.rows) {
      if (feed.runs.has(id)) continue;
      row.node.remove();
      this.rows.delete(id);
    }
    const listed = feed.ids.flatMap((id) => feed.runs.get(id) ?? []), live = listed.filter(isLive);
    this.place(this.live, live);
    this.place(this.over, listed.filter((run) => !isLive(run)));
    this.overHead.hidden = !this.over.childElementCount;
    const unreadable = Object.entries(feed.unreadable);
    this.badHead.hidden = !unreadable.length;
    this.bad.replaceChildren(...unreadable.map(([folder, why]) => h("div", "wb-runs-bad", h("strong", "", folder.split("/").pop() ?? ""), h("div", "", why))));
    this.note.textContent = feed.trouble || (live.length ? "" : "Nothing runs now. To start a run, press Compile & run in the app, or call bench.run(). The runs of all kernels are listed here.");
    this.note.hidden = !this.note.textContent;
    clearInterval(this.ticking);
    if (live.length) this.ticking = window.setInterval(() => this.isVisible && live.forEach(({ id }) => this.rows.get(id)?.tick()), TICK_MS);
  }

  /** Puts the rows of these runs into a list, in this order. Moves only rows at a wrong position. */
  private place(list: HTMLElement, runs: Run[]): void {
    runs.forEach(({ id }, index) => {
      const node = this.rows.get(id)!.node;
      if (list.children[index] !== node) list.insertBefore(node, list.children[index] ?? null);
    });
    while (list.children.length > runs.length) list.lastElementChild!.remove();
  }
}

/** The row of one run. */
class Row {
  readonly node = h("article", "wb-run");
  private readonly name = h("strong", "wb-run-name");
  private readonly state = h("span", "wb-run-state");
  private readonly about = h("div", "wb-run-about");
  private readonly doing = h("span", "wb-run-doing");
  private readonly clock = h("span", "wb-run-clock");
  private readonly work = h("progress", "wb-run-work");
  private readonly left = h("div", "wb-run-about");
  private readonly memory = h("div", "wb-run-about");
  private readonly curve = h("canvas", "wb-run-curve");
  private readonly figures = h("div", "wb-run-about");
  private readonly trouble = h("div", "wb-run-trouble");
  private readonly stop = h("button", "", "Cancel");
  private readonly readouts: HTMLElement;
  private run: Run | null = null;
  private heard = 0;

  constructor(id: string, feed: Feed, openLog: (run: Run) => void) {
    this.node.dataset.run = id;
    this.readouts = h("div", "wb-run-live", h("div", "", this.doing, this.clock), this.work, this.left, this.curve, this.memory);
    const log = h("button", "", "Log");
    log.title = "What the run has logged and printed";
    log.onclick = () => this.run && openLog(this.run);
    this.stop.title = "End the run's processes, even while its kernel is busy";
    this.stop.onclick = async () => {
      this.stop.disabled = true;
      this.stop.textContent = "Cancelling…";
      try {
        await feed.cancel(id);
      } catch (error) {
        Notification.error(String(error instanceof Error ? error.message : error), { autoClose: 8000 });
      }
      this.stop.disabled = false;
      this.stop.textContent = "Cancel";
    };
    this.curve.setAttribute("aria-hidden", "true");
    this.node.append(h("div", "wb-run-head", this.name, this.state), this.about, this.readouts, this.figures, this.trouble, h("div", "wb-run-buttons", this.stop, log));
  }

  show(run: Run, heard: number): void {
    this.run = run;
    this.heard = heard;
    const live = isLive(run), { node } = this;
    node.dataset.state = run.state;
    this.name.textContent = run.name;
    this.name.title = run.run_dir;
    this.state.textContent = live ? "" : { done: run.accurate === false ? "≠ differs" : "✓ done", failed: "✕ failed", cancelled: "– cancelled" }[run.state as "done"];
    const when = new Date(run.created_s * 1000).toLocaleString([], { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
    this.about.textContent = [run.program === run.name ? "" : run.program, run.place, when].filter(Boolean).join(" · ");
    this.stop.hidden = this.readouts.hidden = !live;
    const figures = [
      run.compile_s === null ? "" : `compile ${humanSeconds(run.compile_s)}`,
      run.step_s === null ? "" : `step ${humanSeconds(run.step_s)}`,
      run.peak_bytes === null ? "" : `peak ${humanBytes(run.peak_bytes)} measured`,
    ].filter(Boolean);
    this.figures.textContent = figures.join(" · ");
    this.figures.hidden = !figures.length;
    this.trouble.textContent = run.error;
    this.trouble.hidden = !run.error;
    if (!live) return;
    this.doing.textContent = run.doing;
    this.work.hidden = !run.fusions;
    this.work.max = run.fusions || 1;
    this.work.value = run.fusions_done;
    const remaining = run.fusions - run.fusions_done;
    this.left.textContent = run.fusions ? `${run.fusions_done} of ${run.fusions} fusions compiled${remaining && run.fusion ? `, now ${run.fusion}` : ""}` : "";
    this.left.title = run.fusion;
    this.memory.textContent = run.memory_bytes ? `${humanBytes(run.memory_bytes)} (max ${humanBytes(run.most_bytes)})` : "";
    this.tick();
    this.draw(run.samples);
  }

  tick(): void {
    if (this.run) this.clock.textContent = ` ${(this.run.elapsed_s + (performance.now() - this.heard) / 1000).toFixed(1)} s`;
  }

  private draw(samples: [number, number][]): void {
    const { curve } = this, width = curve.clientWidth, height = curve.clientHeight, ratio = window.devicePixelRatio || 1;
    if (!width || samples.length < 2) return;
    curve.width = width * ratio;
    curve.height = height * ratio;
    const c = curve.getContext("2d")!, from = samples[0][0], to = Math.max(from + 1, samples[samples.length - 1][0]);
    const most = Math.max(...samples.map(([, bytes]) => bytes));
    c.scale(ratio, ratio);
    c.strokeStyle = getComputedStyle(curve).color;
    c.lineWidth = 1.5;
    c.beginPath();
    for (const [at, bytes] of samples) c.lineTo(1 + ((at - from) / (to - from)) * (width - 2), height - 2 - (bytes / most) * (height - 5));
    c.stroke();
  }
}

/** The item in the status bar: the live run, or the number of runs. */
export class RunsStatus extends Widget {
  constructor(private readonly feed: Feed, open: () => void) {
    super();
    this.addClass("wb-runs-status");
    this.addClass("jp-mod-highlighted");
    this.node.title = "Runs of all kernels";
    this.node.onclick = open;
    feed.changed.connect(() => this.draw());
    this.draw();
  }

  private draw(): void {
    const live = [...this.feed.runs.values()].filter(isLive), [first] = live;
    const ended = this.feed.runs.size, none = ended ? `${ended === 1 ? "1 run" : `${ended} runs`}, none running` : "No runs";
    this.node.textContent = !first ? none : live.length > 1 ? `${live.length} runs` : `${titleOf(first)}: ${first.doing}`;
  }
}
