// The tab Single choices: choices that are not made yet, with the change of the whole plan's figures. The user can sort and search them.

import { follow, h, humanBytes, panel, previewed, scrolled } from "../dom.js";

const SETTLED = 200; // milliseconds without scrolling before the rows in view are computed
const MOST = 200; // maximum number of drawn rows, because more rows slow the page

/** Columns with a figure: key, title and format. A negative figure is a gain. */
const FIGURES = /** @type {[string, string, (value: number) => string][]} */ ([
  ["peak_bytes", "peak", humanBytes],
  ["saved_bytes", "saved", humanBytes],
  ["step_s", "step, predicted", humanTime],
]);

function humanTime(/** @type {number} */ seconds) {
  const size = Math.abs(seconds);
  const [scale, unit] = size >= 1 ? [1, "s"] : size >= 1e-3 ? [1e3, "ms"] : [1e6, "µs"];
  const value = size * scale;
  return `${value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2)} ${unit}`;
}

/** @param {{model: any, el: HTMLElement}} context */
function render({ model, el }) {
  panel(el, "worth");
  previewed(model, el);
  const search = h("input", { type: "search", placeholder: "Search choices", title: "Layer, symbol, source, option", "aria-label": "Search choices", spellcheck: "false", oninput: () => draw() });
  const lever = h("select", { "aria-label": "Lever", onchange: () => draw() });
  const lowers = h("input", { type: "checkbox", onchange: () => draw() });
  const count = h("span", { class: "wb-muted wb-count", role: "status" });
  const all = h("button", { class: "wb-all", title: "Choose for each site its listed option with the largest gain: peak, then saved bytes, then step. Options that gain nothing are left out. Undo takes all back", onclick: () => model.send({ type: "choose_all", choices: listed() }) }, "Choose all listed");
  const head = h("tr", {}), body = h("tbody");
  el.replaceChildren(h("div", { class: "wb-row" }, search, lever, h("label", { class: "wb-check" }, lowers, "only what lowers the peak"), all, count),
    scrolled("Single choices and what they change", h("table", {}, h("thead", {}, head), body)));
  let order = "peak_bytes", upward = true, found = [];

  /** Return, for each site of the listed rows, the option with the largest gain. Options that are known to lose are left out. */
  function listed() {
    const best = /** @type {Map<string, any>} */ (new Map());
    const loses = (row) => row.peak_bytes !== undefined && byGain(row, { peak_bytes: 0, saved_bytes: 0, step_s: 1e-9 }) > 0;
    for (const row of found) {
      if (row.state === "refused" || loses(row)) continue;
      for (const id of Object.keys(row.choices)) if (!best.has(id) || byGain(row, best.get(id)) < 0) best.set(id, row);
    }
    return Object.fromEntries([...best].map(([id, row]) => [id, row.choices[id]]));
  }
  /** Return a number below 0 if `a` gains more than `b`. A row without figures comes last. */
  const byGain = (a, b) => (a.peak_bytes ?? Infinity) - (b.peak_bytes ?? Infinity) || (a.saved_bytes ?? 0) - (b.saved_bytes ?? 0) || (a.step_s ?? 0) - (b.step_s ?? 0);
  const size = (row) => (order === "label" ? row.label : row[order] ?? Infinity);
  function compare(a, b) {
    const [x, y] = [size(a), size(b)];
    const first = x < y ? -1 : x > y ? 1 : 0;
    // Order equal rows by the saved bytes, then by the step time.
    return (upward ? first : -first) || (a.saved_bytes ?? 0) - (b.saved_bytes ?? 0) || (a.step_s ?? 0) - (b.step_s ?? 0);
  }
  const heading = (key, name, right) => h("th", { class: right ? "wb-right" : null, "aria-sort": key === order ? (upward ? "ascending" : "descending") : "none" },
    h("button", { class: "wb-sort", onclick: () => { [order, upward] = [key, key === order ? !upward : true]; draw(); } }, name, h("span", { "aria-hidden": "true" }, key === order ? (upward ? " ▴" : " ▾") : "")));

  function figure(row, key, write, most) {
    if (row[key] === undefined) return h("td", { class: "wb-right wb-muted" }, key === "peak_bytes" ? (row.state === "refused" ? "refused" : "pending") : "");
    const by = row[key], about = row.state === "estimated" && key !== "step_s" ? "≈\u00a0" : "";
    const share = Math.min(100, 100 * Math.abs(by) / most);
    const nothing = key === "step_s" ? Math.abs(by) < 1e-9 : by === 0;
    return h("td", { class: "wb-gain" }, h("span", { class: nothing ? "wb-muted" : by < 0 ? "wb-good" : "wb-bad" }, nothing ? `${about}no change` : `${about}${by < 0 ? "−" : "+"}${write(Math.abs(by))}`),
      h("i", { class: by < 0 ? "wb-less" : "wb-more", style: `width:${nothing ? 0 : Math.max(2, share * 0.7)}px`, "aria-hidden": "true" }));
  }
  function draw() {
    const { rows = [], left = 0, machine = "" } = model.get("content"), selected = model.get("selected");
    const levers = ["", ...new Set(rows.map((row) => row.lever))], chosen = lever.value;
    lever.replaceChildren(...levers.map((name) => h("option", { value: name, selected: name === chosen }, name || "all levers")));
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    found = rows.filter((row) => (!lever.value || row.lever === lever.value) && (!lowers.checked || row.peak_bytes < 0)
      && words.every((word) => `${row.id} ${row.about} ${row.source} ${row.option}`.toLowerCase().includes(word))).sort(compare);
    const most = Object.fromEntries(FIGURES.map(([key]) => [key, Math.max(1e-12, ...rows.map((row) => Math.abs(row[key] ?? 0)))]));
    const held = /** @type {HTMLElement | null | undefined} */ (document.activeElement?.closest?.("tr, th"))?.dataset?.key;
    head.replaceChildren(...FIGURES.map(([key, name]) => heading(key, name, true)), heading("label", "choice", false), h("th", {}, "source"), h("th", {}, h("span", { class: "wb-unseen" }, "choose")));
    const choices = listed(), sites = Object.keys(choices).length;
    all.disabled = !sites;
    all.textContent = `Choose all listed (${sites} site${sites === 1 ? "" : "s"})`;
    all.dataset.preview = JSON.stringify({ choices });
    // Without the name of a machine, the first figures are still being computed.
    count.textContent = !machine && !rows.length ? "computing…" : `${found.length < rows.length ? `${found.length} of ` : ""}${rows.length} choices${left ? `, ${left} more plan${left === 1 ? "" : "s"} to compute` : ""}${rows.some((row) => row.state === "estimated") ? "; ≈\u00a0estimated" : ""}${machine ? `; step times: ${machine}` : ""}`;
    count.title = "≈: estimated from the trace before fusion; the plan may differ a little";
    body.replaceChildren(...found.slice(0, MOST).map((row) => h("tr", { class: `wb-can ${row.id === selected ? "wb-chosen" : ""}`, "data-site": row.id, "data-option": row.option, "data-key": `${row.id} ${row.option}`, onclick: () => model.send({ type: "go", id: row.id }) },
      FIGURES.map(([key, , write]) => figure(row, key, write, most[key])),
      h("td", { class: "wb-wide" }, h("div", { class: "wb-name" }, h("strong", {}, row.option), h("button", { class: "wb-link", title: row.about === row.label ? row.id : `${row.id}\n${row.about}` }, row.label), row.count > 1 && h("span", {}, `× ${row.count}`)), row.why && h("div", { class: "wb-reason" }, row.why)),
      h("td", { class: "wb-wide" }, h("code", { class: "wb-muted", title: row.source }, row.source)),
      h("td", {}, h("button", { disabled: row.state === "refused", "data-preview": JSON.stringify({ choices: row.choices }), "aria-label": `Choose ${row.option} for ${row.label}`, onclick: (event) => { event.stopPropagation(); model.send({ type: "choose_all", choices: row.choices }); } }, "Choose")))));
    if (held) /** @type {HTMLElement | null} */ (body.querySelector(`[data-key="${CSS.escape(held)}"] button`))?.focus();
  }
  // The rows to which the user scrolls are computed next.
  let timer = 0;
  const stop = new AbortController();
  addEventListener("scroll", (event) => {
    if (!(event.target instanceof Element) || !event.target.contains(body)) return;
    const sight = event.target.getBoundingClientRect();
    clearTimeout(timer);
    timer = window.setTimeout(() => {
      const rows = Array.from(body.rows).filter((row) => { const { top, bottom } = row.getBoundingClientRect(); return bottom > sight.top && top < sight.bottom; });
      const open = rows.map((row) => found.find(({ id, option }) => `${id} ${option}` === row.dataset.key)).filter((row) => row && (row.state === "open" || row.state === "estimated"));
      if (open.length) model.send({ type: "compute", rows: open.map(({ id, option }) => ({ id, option })) });
    }, SETTLED);
  }, { capture: true, passive: true, signal: stop.signal });
  const end = follow(model, ["content", "selected"], draw);
  return () => { stop.abort(); clearTimeout(timer); end(); };
}

export default { render };
