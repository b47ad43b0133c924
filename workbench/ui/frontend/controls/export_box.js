// The box of the button Export: targets, the choices that are left out, and the file. It covers the area below the header.

import { h } from "../dom.js";

const WAIT = 250; // milliseconds without typing before the file is shown again

/** Return the button that opens the box, the box, the action of the button Export, and a function that redraws the box. @param {any} model @param {HTMLInputElement} file @param {() => void} named Called when the box has given the file another name. */
export function exportBox(model, file, named) {
  const targets = () => model.get("targets") ?? [];
  let target = "thunder", timer = 0, asked = "", answered = false;
  const chosen = () => targets().find((one) => one.target === target) ?? {};
  const opener = h("button", { class: "wb-export-more", title: "For Thunder or for plain PyTorch: the file, and what it leaves out", "aria-label": "What the file is for", "aria-haspopup": "dialog", "aria-expanded": "false", onclick: () => open(el.hidden) }, "▾");
  const limit = h("input", { type: "text", "aria-label": "Peak of torch.compile at most", placeholder: "24 GiB or 80%", title: "Bytes, or a share of the peak of torch.compile; empty: only your choices", spellcheck: "false", size: 12, onchange: () => ask() });
  const peak = () => (target === "torch" ? limit.value.trim() : "");
  const run = h("button", { class: "wb-run-torch", title: "Compile and run plain torch.compile in a process of its own, and compare it with torch.compile without choices and with eager PyTorch", onclick: () => model.send({ type: "run_torch", peak: peak() }) }, "Run with torch.compile");
  const plain = h("div", { class: "wb-plain" }, h("label", { class: "wb-check" }, "Fit: peak at most ", limit), run);
  const write = () => model.send({ type: "export", path: file.value.trim(), target, peak: peak() });
  const row = h("div", { class: "wb-targets", role: "group", "aria-label": "Targets" }, h("span", { class: "wb-muted" }, "For "));
  const about = h("p", { class: "wb-muted" }), body = h("div", { class: "wb-export-body" }), make = h("button", { class: "wb-primary", onclick: () => { write(); open(false); } });
  const el = h("div", { class: "wb-export-box", role: "dialog", "aria-label": "Export", hidden: true, tabindex: "-1" },
    row, h("label", { class: "wb-check" }, "File ", file), about, plain, body, h("div", { class: "wb-export-end" }, make, h("button", { onclick: () => open(false) }, "Close")));

  function ask() {
    asked = String(Math.random());
    answered = false;
    model.send({ type: "export_preview", path: file.value.trim(), target, asked, peak: peak() });
    draw();
  }
  function open(/** @type {boolean} */ on) {
    el.hidden = !on;
    opener.setAttribute("aria-expanded", String(on));
    if (on) { aim(target); /** @type {any} */ (row.querySelector('[aria-pressed="true"]'))?.focus(); }
    else opener.focus({ preventScroll: true });
  }
  function aim(/** @type {string} */ next) {
    const usual = !file.value.trim() || file.value === chosen().file;
    target = next;
    if (usual) file.value = chosen().file;
    named();
    row.querySelectorAll("button").forEach((button) => button.setAttribute("aria-pressed", String(button.value === target)));
    about.textContent = chosen().about ?? "";
    plain.hidden = target !== "torch";
    ask();
  }
  row.append(...targets().map((one) => h("button", { value: one.target, onclick: () => aim(one.target) }, one.name)));
  file.addEventListener("keydown", (event) => { if (event.key === "Enter" && !make.disabled) make.click(); });
  file.addEventListener("input", () => {
    clearTimeout(timer);
    if (!el.hidden) timer = window.setTimeout(ask, WAIT);
  });
  el.addEventListener("keydown", (event) => { if (event.key === "Escape") { event.stopPropagation(); open(false); } });

  function figures({ figures: rows = [] }) {
    if (!rows.length) return [];
    return [h("h4", {}, "Plain torch.compile"),
      h("table", { class: "wb-plain-figures" }, rows.map(({ name, value, base }) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value, base && h("span", { class: "wb-muted" }, ` (${base} without)`)))))];
  }
  function leftOut({ count, left_out_count: out, left_out: rows }) {
    if (!target.startsWith("torch")) return [];
    if (!count && !peak()) return [h("p", { class: "wb-muted" }, "Nothing is chosen: the file has no choices.")];
    if (!rows.length) return !count ? [] : [h("p", {}, `PyTorch can follow ${count === 1 ? "the choice" : `all ${count} choices`}.`)];
    return [h("h4", {}, `Left out: ${out} of ${count} choice${count === 1 ? "" : "s"}`),
      h("ul", { class: "wb-left-out", tabindex: "0", "aria-label": "Choices that are left out" }, rows.map(({ id, option, reason, count: layers }) => h("li", {}, h("code", {}, `${id} = ${option}`), layers > 1 && h("span", { class: "wb-muted" }, ` in ${layers} layers`), h("div", { class: "wb-reason" }, reason))))];
  }
  function draw() {
    if (el.hidden) return;
    const found = model.get("exported") ?? {}, here = found.asked === asked;
    // The choices have changed, so the shown file is outdated.
    if (answered && !found.asked) { ask(); return; }
    answered = here;
    make.textContent = `Export to ${file.value.trim() || "…"}`;
    make.disabled = Boolean(here && found.refused);
    body.replaceChildren(...(!here ? [h("p", { class: "wb-muted", role: "status" }, "computing…")]
      : found.refused ? [h("p", { class: "wb-bad" }, found.refused)]
      : !found.text ? []
      : [...figures(found), ...leftOut(found), h("h4", {}, "The file"), h("pre", { tabindex: "0", "aria-label": "The file" }, found.text, found.more ? `\n… ${found.more} more lines` : "")]));
  }
  /** Say whether a run may start now. */
  const able = (/** @type {boolean} */ disabled) => { run.disabled = disabled; };
  named();
  return { opener, el, write, draw, able };
}
