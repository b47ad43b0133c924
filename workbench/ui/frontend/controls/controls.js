// The app's top line: the open program and the app's buttons. A program on ranks has a second line.

import { fold, follow, h, isPlainKey, panel } from "../dom.js";
import { exportBox } from "./export_box.js";

const ASK_TAB = "thunder-workbench:open-tab"; // event to the JupyterLab extension (`extensions/runs-panel/src/tab.ts`)
const PLACE = "thunder-workbench:place"; // event from the extension: opens a place or tab below the graph
const TAB_NEWS = "thunder-workbench:tab"; // event from the extension after a tab of this app was opened or closed

/** @param {{model: any, el: HTMLElement}} context */
function render({ model, el }) {
  panel(el, "controls");
  const act = (type) => () => model.send({ type });
  const words = (label) => h("span", { class: "wb-words" }, label);
  const face = (label, sign) => [words(label), h("span", { class: "wb-sign", "aria-hidden": "true" }, sign)];
  const button = (label, sign, type, title, cls = `wb-${type}`) => h("button", { class: cls, title, onclick: act(type) }, face(label, sign));
  const name = h("div", { class: "wb-program" });
  const run = button("Compile & run", "▶", "run", "Compile and run in a process of its own, under the choices made", "wb-primary");
  const turns = h("input", { type: "checkbox", onchange: () => model.send({ type: "in_turns", on: turns.checked }) });
  const inTurns = h("label", { class: "wb-turns", title: "Also run steps of the program without choices, in turns with steps of this plan: a difference of the times then comes from the choices, not from the machine. Compiling takes twice as long" },
    turns, words("also time without choices"));
  const cancel = button("Cancel", "■", "cancel", "Stop the run and everything it started");
  const undo = button("Undo", "↶", "undo", "Take the last choice back (u)"), redo = button("Redo", "↷", "redo", "Make the undone choice again (r)");
  const file = h("input", { type: "text", "aria-label": "File to export to", spellcheck: "false", value: model.get("file") });
  const save = h("button", { onclick: () => box.write() }, face("Export", "⤓"));
  const named = () => { save.title = `Write the choices to ${file.value.trim() || "a file"}; ▾ (e) has other names and targets`; };
  file.addEventListener("input", named);
  const forColleague = () => (model.get("targets") ?? []).find((one) => one.target === "plan");
  const share = h("button", { class: "wb-share", onclick: () => model.send({ type: "export", path: forColleague().file, target: "plan" }) }, face("Save plan", "✉"));
  share.hidden = !forColleague();
  share.title = `Write the plan to ${forColleague()?.file}. A colleague can view it in JupyterLab without the model, and open it with wb.open`;
  const box = exportBox(model, file, named);
  const machine = h("select", { title: "Machine on which ranks are simulated", onchange: () => model.send({ type: "machine", name: machine.value }) });
  const limit = h("input", { type: "text", inputmode: "decimal", placeholder: "no limit", title: "Limit of the results in flight, in MiB; empty for no limit" });
  const search = h("button", { onclick: () => model.send({ type: "search", limit: limit.value.trim() }) });
  limit.addEventListener("keydown", (event) => { if (event.key === "Enter" && !search.disabled) search.click(); });
  const ranks = h("div", { class: "wb-bar wb-ranks", hidden: true }, h("label", {}, "Simulated on ", machine),
    h("span", { class: "wb-group" }, h("label", {}, "In flight at most ", limit, " MiB"), search));
  const tab = h("button", { class: "wb-tab-button", title: "Show all of the app at once, in a tab of JupyterLab", onclick: () => openTab() }, face("Open in a tab", "❐"));
  const full = h("button", { title: "Show all of the app at once, on the whole screen (Escape ends it)", onclick: () => fullScreen() }, face("Full screen", "⤢"));
  el.replaceChildren(
    h("div", { class: "wb-bar" }, name, h("span", { class: "wb-group" }, run, inTurns, cancel), h("span", { class: "wb-group" }, undo, redo),
      h("span", { class: "wb-group wb-export" }, save, box.opener, share), h("span", { class: "wb-group wb-shown" }, tab, full)),
    ranks, box.el);
  el.dataset.app = model.get("app");

  function openTab() {
    const ask = new CustomEvent(ASK_TAB, { bubbles: true, cancelable: true, detail: { app: model.get("app"), name: model.get("app_name") || model.get("content").program } });
    if (!el.dispatchEvent(ask)) return;
    el.closest(".wb-app")?.classList.remove("wb-elsewhere");
    model.send({ type: "no_tab" });
  }
  function fullScreen() {
    if (document.fullscreenElement) void document.exitFullscreen();
    else void el.closest(".wb-app")?.requestFullscreen();
  }
  const onTab = (event) => {
    el.closest(".wb-app")?.classList.toggle("wb-elsewhere", event.detail.open);
    tab.firstChild.textContent = event.detail.open ? "Show the tab" : "Open in a tab";
  };
  el.addEventListener(TAB_NEWS, onTab);
  // The key works in the whole app. If nothing has the focus, it is for the app in the tab of JupyterLab that is shown.
  const onKey = (/** @type {KeyboardEvent} */ event) => {
    const app = el.closest(".wb-app"), target = /** @type {Element} */ (event.target);
    if (event.key !== "e" || !isPlainKey(event) || !app?.checkVisibility() || target.matches("input:not([type=checkbox], [type=range]), select, textarea, [contenteditable]")) return;
    if (!app.contains(target) && !(target === document.body && app.closest(".wb-tab"))) return;
    event.preventDefault();
    event.stopPropagation();
    box.open(true);
  };
  document.addEventListener("keydown", onKey);
  const onFull = () => { full.querySelector(".wb-words").textContent = document.fullscreenElement && document.fullscreenElement === el.closest(".wb-app") ? "Exit full screen" : "Full screen"; };
  document.addEventListener("fullscreenchange", onFull);
  el.addEventListener(PLACE, (/** @type {any} */ event) => {
    model.send({ type: "place", name: event.detail.name });
    fold(el, "y", false);
    el.closest(".wb-app")?.querySelector(".wb-places")?.scrollIntoView({ block: "nearest" });
  });
  async function askedFor() {
    if (!model.get("tab_asked")) return;
    model.set("tab_asked", false);
    model.save_changes();
    // Wait until the page contains the view. Hide at once what the tab will show: else the graph would be drawn twice.
    for (let tries = 0; tries < 500 && !el.isConnected; tries++) {
      el.closest(".wb-app")?.classList.add("wb-elsewhere");
      // In the frame that first has the view, this comes before the layout. A page in the background has no frames.
      await new Promise((next) => { requestAnimationFrame(() => next(null)); setTimeout(next, 50); });
    }
    el.closest(".wb-app")?.classList.add("wb-elsewhere");
    openTab();
  }

  /** Tell once for a page if JupyterLab has another version of the workbench than the kernel. */
  const compareVersions = () => {
    const page = document.documentElement.dataset, here = model.get("version"), lab = page.thunderWorkbench;
    if (!lab || !here || lab === here) return;
    delete page.thunderWorkbench;
    model.send({ type: "versions_differ", lab });
  };

  const place = h("span", { class: "wb-muted" });
  /** Show the first of the texts about the program that fits, the whole text being the first. */
  const fit = () => {
    for (const words of model.get("content").place ?? []) {
      place.textContent = words;
      if (place.scrollWidth <= name.clientWidth) return;
    }
  };
  const sizes = new ResizeObserver(fit);
  sizes.observe(name);

  const draw = () => {
    const shown = model.get("content");
    compareVersions();
    name.title = [shown.program, shown.place?.[0], shown.executor].filter(Boolean).join(", ");
    name.replaceChildren(h("div", { class: "wb-name" }, h("strong", {}, shown.program ?? ""), h("span", { class: "wb-muted" }, shown.executor ?? "")), place);
    fit();
    run.disabled = Boolean(shown.cannot_run) || Boolean(shown.run?.busy);
    run.title = shown.cannot_run || "Compile and run in a process of its own, under the choices made";
    turns.checked = Boolean(shown.in_turns);
    turns.disabled = run.disabled;
    box.able(run.disabled);
    cancel.disabled = !shown.run?.busy;
    undo.disabled = !shown.can_undo;
    redo.disabled = !shown.can_redo;
    ranks.hidden = !(shown.ranks > 1);
    machine.replaceChildren(...(shown.machines ?? []).map((name) => h("option", { value: name, selected: name === shown.machine }, name)));
    machine.disabled = search.disabled = Boolean(shown.busy);
    search.textContent = shown.busy === "searching" ? "Searching…" : "Search the best order";
    search.title = `Simulate orders of the collectives on ${shown.machine} and choose the best within the limit`;
    el.dataset.name = model.get("app_name") || (shown.program ?? "");
  };
  const stops = [follow(model, ["content"], draw), follow(model, ["exported"], box.draw)];
  void askedFor();
  return () => { sizes.disconnect(); document.removeEventListener("keydown", onKey); document.removeEventListener("fullscreenchange", onFull); for (const stop of stops) stop(); };
}

export default { render };
