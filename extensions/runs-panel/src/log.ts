// A run's log in a tab.

import { MainAreaWidget } from "@jupyterlab/apputils";
import { Widget } from "@lumino/widgets";
import type { Feed, Run } from "./feed";
import { icon } from "./icon";
import { h } from "./words";

const FOLLOW_MS = 1000;

/** Returns a tab with a run's log. While the run is live and the tab is visible, it reads the log every `FOLLOW_MS` milliseconds. */
export function logTab(feed: Feed, { id, name }: Run): MainAreaWidget {
  const content = new Widget(), text = h("pre", "wb-runs-log");
  content.node.append(text);
  text.tabIndex = 0;
  const tab = new MainAreaWidget({ content });
  tab.id = `thunder-workbench-log-${id}`;
  tab.title.label = `Log: ${name}`;
  tab.title.icon = icon;
  tab.title.closable = true;
  let last = "";
  const read = async () => {
    let told;
    try {
      told = await feed.log(id);
    } catch (error) {
      told = `The log cannot be read: ${error instanceof Error ? error.message : error}`;
    }
    // Do not replace an unchanged text, so that the selection and the scroll position stay.
    if (told !== last) text.textContent = last = told;
  };
  const again = window.setInterval(() => {
    const state = feed.runs.get(id)?.state;
    if (tab.isVisible && (state === "starting" || state === "running")) void read();
  }, FOLLOW_MS);
  const once = (_: Feed, run: Run) => { if (run.id === id) void read(); };
  feed.ended.connect(once);
  tab.disposed.connect(() => { clearInterval(again); feed.ended.disconnect(once); });
  void read();
  return tab;
}
