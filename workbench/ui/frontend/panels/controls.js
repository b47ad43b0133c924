// The top of the app: what is open, its buttons, and one line of fixed height: the message, and the readout of the run.

import { follow, h, humanBytes, panel } from "../dom.js";

const ASK_TAB = "thunder-workbench:open-tab"; // taken by JupyterLab's extension (`extensions/runs-panel/src/tab.ts`)
const TAB_NEWS = "thunder-workbench:tab"; // from there, when a tab of this app opened or closed
const HINT = "Click an arc to switch its option. Changes appear here.";
const NO_TAB = "This page has no tabs to open: the app stays in its cell, and Full screen shows all of it at once. "
  + "JupyterLab opens tabs where thunder-workbench is installed beside it.";

/** @param {{model: any, el: HTMLElement}} context */
function render({ model, el }) {
  panel(el, "controls");
  const act = (type) => () => model.send({ type });
  const button = (label, type, title, cls = "") => h("button", { class: cls, title, onclick: act(type) }, label);
  const name = h("div", { class: "wb-program" });
  const run = button("Compile & run", "run", "Compile and run in a process of its own, under the choices made", "wb-primary");
  const turns = h("input", { type: "checkbox", onchange: () => model.send({ type: "in_turns", on: turns.checked }) });
  const inTurns = h("label", { class: "wb-turns", title: "Step the program without choices in the same process, interleaved with this one: what differs is then the choices', and not the machine's. It is compiled, too, which takes as long again" },
    turns, "interleaved with stock");
  const cancel = button("Cancel", "cancel", "Stop the run and everything it started");
  const undo = button("Undo", "undo", "Take the last choice back (u)"), redo = button("Redo", "redo", "Make it again (r)");
  const file = h("input", { type: "text", "aria-label": "File to export to", spellcheck: "false", value: model.get("file") });
  const save = h("button", { title: "Write the choices as a Python file", onclick: () => model.send({ type: "export", path: file.value.trim() }) }, "Export");
  file.addEventListener("keydown", (event) => { if (event.key === "Enter") save.click(); });
  const machine = h("select", { title: "What ranks are simulated on", onchange: () => model.send({ type: "machine", name: machine.value }) });
  const limit = h("input", { type: "text", inputmode: "decimal", placeholder: "no limit", title: "The most MiB of results in flight; empty for no limit" });
  const search = h("button", { onclick: () => model.send({ type: "search", limit: limit.value.trim() }) });
  limit.addEventListener("keydown", (event) => { if (event.key === "Enter" && !search.disabled) search.click(); });
  const ranks = h("div", { class: "wb-bar wb-ranks", hidden: true }, h("label", {}, "Simulated on ", machine),
    h("span", { class: "wb-group" }, h("label", {}, "In flight at most ", limit, " MiB"), search));
  const tab = h("button", { class: "wb-tab-button", title: "Show all of the app at once, in a tab of JupyterLab", onclick: () => openTab() }, "Open in a tab");
  const full = h("button", { title: "Show all of the app at once, on the whole screen (Escape ends it)", onclick: () => fullScreen() }, "Full screen");
  const message = h("div", { class: "wb-message", role: "status" });
  const canvas = h("canvas", { class: "wb-spark", "aria-hidden": "true" });
  const state = h("span", { class: "wb-state", role: "status" }), clock = h("span", { class: "wb-clock" });
  const stages = h("span", { class: "wb-stages" }), memory = h("span", { class: "wb-memory" });
  const live = h("div", { class: "wb-live" },
    h("div", { class: "wb-live-words" }, h("div", { class: "wb-live-head" }, state, clock), stages), h("div", { class: "wb-live-memory" }, canvas, memory));
  el.replaceChildren(
    h("div", { class: "wb-bar" }, name, h("span", { class: "wb-group" }, run, inTurns, cancel), h("span", { class: "wb-group" }, undo, redo),
      h("span", { class: "wb-group wb-export" }, file, save), h("span", { class: "wb-group wb-shown" }, tab, full)),
    ranks, h("div", { class: "wb-status" }, message, live));
  el.dataset.app = model.get("app");

  /** Said by this page and not by Python, until there is another message. */
  let own = null;
  function openTab() {
    const ask = new CustomEvent(ASK_TAB, { bubbles: true, cancelable: true, detail: { app: model.get("app"), name: model.get("app_name") || model.get("content").program } });
    own = el.dispatchEvent(ask) ? { text: NO_TAB } : null;
    draw();
  }
  function fullScreen() {
    if (document.fullscreenElement) void document.exitFullscreen();
    else void el.closest(".wb-app")?.requestFullscreen();
  }
  const onTab = (event) => {
    el.closest(".wb-app")?.classList.toggle("wb-elsewhere", event.detail.open);
    tab.textContent = event.detail.open ? "Show the tab" : "Open in a tab";
  };
  el.addEventListener(TAB_NEWS, onTab);
  async function askedFor() {
    if (!model.get("tab_asked")) return;
    model.set("tab_asked", false);
    model.save_changes();
    // The page puts a view into its place after it was made.
    for (let tries = 0; tries < 100 && !el.isConnected; tries++) await new Promise((next) => setTimeout(next, 50));
    openTab();
  }

  /** @type {{t: number, bytes: number}[]} */
  let samples = [];
  let started = 0, ticking = 0;

  function take(/** @type {DataView} */ view) {
    for (let at = 0; at + 16 <= view.byteLength; at += 16) samples.push({ t: view.getFloat64(at, true), bytes: view.getFloat64(at + 8, true) });
  }

  function spark() {
    const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    if (!samples.length) { memory.textContent = ""; canvas.getContext("2d").clearRect(0, 0, canvas.width, canvas.height); return; }
    if (!width) return;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const c = canvas.getContext("2d"), style = getComputedStyle(el);
    c.scale(ratio, ratio);
    const most = Math.max(...samples.map((s) => s.bytes)), from = samples[0].t, to = Math.max(from + 1, samples.at(-1).t);
    const x = (t) => 1 + (t - from) / (to - from) * (width - 4), y = (bytes) => height - 2 - bytes / most * (height - 5);
    c.beginPath();
    samples.forEach((s, i) => (i ? c.lineTo(x(s.t), y(s.bytes)) : c.moveTo(x(s.t), y(s.bytes))));
    c.strokeStyle = style.getPropertyValue("--wb-accent");
    c.lineWidth = 1.5;
    c.stroke();
    c.lineTo(x(samples.at(-1).t), height);
    c.lineTo(x(from), height);
    c.globalAlpha = 0.12;
    c.fillStyle = style.getPropertyValue("--wb-accent");
    c.fill();
    memory.textContent = `${humanBytes(samples.at(-1).bytes)} (max ${humanBytes(most)})`;
  }

  function tick() {
    const { run: shown } = model.get("content");
    if (shown?.busy) clock.textContent = ` ${((performance.now() - started) / 1000).toFixed(1)} s`;
    else clearInterval(ticking);
  }

  const draw = () => {
    const shown = model.get("content");
    name.replaceChildren(h("strong", {}, shown.program ?? ""), h("span", { class: "wb-muted" }, shown.place ?? ""));
    run.disabled = Boolean(shown.cannot_run) || Boolean(shown.run?.busy);
    run.title = shown.cannot_run || "Compile and run in a process of its own, under the choices made";
    turns.checked = Boolean(shown.in_turns);
    turns.disabled = run.disabled;
    cancel.disabled = !shown.run?.busy;
    undo.disabled = !shown.can_undo;
    redo.disabled = !shown.can_redo;
    ranks.hidden = !(shown.ranks > 1);
    machine.replaceChildren(...(shown.machines ?? []).map((name) => h("option", { value: name, selected: name === shown.machine }, name)));
    machine.disabled = search.disabled = Boolean(shown.busy);
    search.textContent = shown.busy === "searching" ? "Searching…" : "Search the best order";
    search.title = `Simulate orders of the collectives on ${shown.machine} and choose the best within the limit`;
    el.dataset.name = model.get("app_name") || (shown.program ?? "");
    const said = shown.message ?? own;
    message.className = `wb-message ${said ? (said.bad ? "wb-error" : "wb-said") : ""}`;
    message.setAttribute("role", said?.bad ? "alert" : "status");
    message.replaceChildren(h("span", { class: "wb-message-text", tabindex: said ? "0" : null }, said?.text ?? HINT));
    if (said) message.append(h("button", { class: "wb-close", title: "Dismiss", "aria-label": "Dismiss", onclick: dismiss }, "×"));
    live.classList.toggle("wb-idle", !shown.run);
    if (!shown.run) { state.textContent = shown.cannot_run || "Nothing has run yet."; return; }
    state.textContent = state.title = shown.run.text;
    el.dataset.run = shown.run.state;
    stages.title = shown.run.stages.map(({ name: stage, seconds }) => `${stage} ${seconds.toFixed(2)} s`).join("\n");
    stages.replaceChildren(...shown.run.stages.map(({ name: stage, seconds }) => h("span", { class: "wb-stage" }, stage, h("b", {}, ` ${seconds.toFixed(2)} s`))));
    clearInterval(ticking);
    if (shown.run.busy) {
      started = performance.now() - shown.run.elapsed_s * 1000;
      ticking = setInterval(tick, 100);
      tick();
    } else clock.textContent = shown.run.elapsed_s ? ` ${shown.run.elapsed_s.toFixed(1)} s` : "";
    spark();
  };
  const dismiss = () => { own = null; if (model.get("content").message) model.send({ type: "dismiss" }); else draw(); };
  const history = () => { samples = []; const view = model.get("samples"); if (view) take(view); spark(); };
  const receive = (sent, buffers) => {
    if (sent.type !== "samples") return;
    if (sent.restart) samples = [];
    for (const view of buffers) take(view);
    spark();
  };
  model.on("change:samples", history);
  model.on("msg:custom", receive);
  const stop = follow(model, ["content"], draw);
  const sizes = new ResizeObserver(spark);
  sizes.observe(canvas);
  // The line has the colours of the theme, which a page may change.
  // A frame later: while JupyterLab changes its theme nothing has a width.
  const themes = new MutationObserver(() => requestAnimationFrame(spark));
  themes.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "class"] });
  history();
  void askedFor();
  return () => { clearInterval(ticking); sizes.disconnect(); themes.disconnect(); model.off("change:samples", history); model.off("msg:custom", receive); stop(); };
}

export default { render };
