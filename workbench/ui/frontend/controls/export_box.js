// The box of the button Export: targets, the choices that are left out, and the file. It covers the area below the header.

import { asPeak, h, isPlainKey } from "../dom.js";

const WAIT = 250; // milliseconds without typing before the file is shown again
const LEAST = 340; // pixels: the least height of the box, in which its buttons and some of the file are in sight

/** Return the button that opens the box, the box, the action of the button Export, and a function that redraws the box. @param {any} model @param {HTMLInputElement} file @param {() => void} named Called when the box has given the file another name. */
export function exportBox(model, file, named) {
  const targets = () => model.get("targets") ?? [];
  let target = "thunder", timer = 0, asked = "", answered = false, fitted = "", since = 0;
  const chosen = () => targets().find((one) => one.target === target) ?? {};
  const opener = h("button", { class: "wb-export-more", title: "For Thunder or for plain PyTorch: the file, and what it leaves out", "aria-label": "What the file is for", "aria-haspopup": "dialog", "aria-expanded": "false", onclick: () => open(el.hidden) }, "▾");
  const limit = h("input", { type: "text", "aria-label": "Peak of torch.compile at most", placeholder: "24 GiB or 80%", title: "Bytes, or a share of the peak of torch.compile; a number up to 100 is a percentage; empty: only your choices", spellcheck: "false", size: 12, oninput: () => mark() });
  const fit = h("button", { class: "wb-fit-torch", title: "Find choices for torch.compile under this peak (Enter)", onclick: () => ask() }, "Fit");
  const peak = () => (target === "torch" ? asPeak(limit.value) : "");
  const isOld = () => peak() !== fitted; // the shown figures are of another fit than the one in the field
  const run = h("button", { class: "wb-run-torch", title: "Compile and run plain torch.compile in a process of its own, and compare it with torch.compile without choices and with eager PyTorch", onclick: () => { model.send({ type: "run_torch", peak: peak() }); if (isOld()) ask(); } }, "Run with torch.compile");
  const plain = h("div", { class: "wb-plain" }, h("label", { class: "wb-check" }, "Fit: peak at most ", limit), fit, run);
  const write = () => model.send({ type: "export", path: file.value.trim(), target, peak: peak() });
  const row = h("div", { class: "wb-targets", role: "group", "aria-label": "Targets" }, h("span", { class: "wb-muted" }, "For "));
  const about = h("p", { class: "wb-muted" }), body = h("div", { class: "wb-export-body" }), make = h("button", { class: "wb-primary", onclick: () => { write(); open(false); } });
  const el = h("div", { class: "wb-export-box", role: "dialog", "aria-label": "Export", hidden: true, tabindex: "-1" },
    row, h("label", { class: "wb-check" }, "File ", file), about, plain, body, h("div", { class: "wb-export-end" }, make, h("button", { onclick: () => open(false) }, "Close")));

  function ask() {
    asked = String(Math.random());
    answered = false;
    fitted = peak();
    since = performance.now();
    model.send({ type: "export_preview", path: file.value.trim(), target, asked, peak: peak() });
    draw();
  }
  function open(/** @type {boolean} */ on) {
    el.hidden = !on;
    opener.setAttribute("aria-expanded", String(on));
    for (const type of ["resize", "scroll"]) {
      if (on) window.addEventListener(type, size, true); else window.removeEventListener(type, size, true);
    }
    if (on) { size(); el.scrollIntoView({ block: "nearest" }); aim(target); /** @type {any} */ (row.querySelector('[aria-pressed="true"]'))?.focus(); }
    else opener.focus({ preventScroll: true });
  }
  /** Limit the height, so that the box ends where the window or the scrolled area around it ends. */
  function size() {
    if (!el.isConnected) { for (const type of ["resize", "scroll"]) window.removeEventListener(type, size, true); return; }
    let end = window.innerHeight;
    // The window clips what the body would clip; in JupyterLab, the body has no height.
    for (let area = el.parentElement; area && area !== document.body; area = area.parentElement) {
      if (getComputedStyle(area).overflowY !== "visible") end = Math.min(end, area.getBoundingClientRect().bottom);
    }
    el.style.maxHeight = `${Math.max(LEAST, end - el.getBoundingClientRect().top - 8)}px`;
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
  // The arrow keys select a target, and Enter on the selected target exports. The space key selects a target, as on any button.
  row.addEventListener("keydown", (event) => {
    const buttons = Array.from(row.querySelectorAll("button")), at = buttons.findIndex((one) => one === event.target);
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (at < 0 || !isPlainKey(event)) return;
    if (by) {
      const next = buttons[(at + by + buttons.length) % buttons.length];
      event.preventDefault();
      next.focus();
      aim(next.value);
    } else if (event.key === "Enter" && buttons[at].value === target && !make.disabled) {
      event.preventDefault();
      make.click();
    }
  });
  file.addEventListener("keydown", (event) => { if (event.key === "Enter" && !make.disabled) make.click(); });
  // Chromium sends no event `change` if Enter is pressed in a field without a form.
  limit.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); limit.value = peak(); ask(); } });
  file.addEventListener("input", () => {
    clearTimeout(timer);
    if (!el.hidden) timer = window.setTimeout(ask, WAIT);
  });
  el.addEventListener("keydown", (event) => { if (event.key === "Escape") { event.stopPropagation(); open(false); } });

  function figures({ figures: rows = [] }) {
    if (!rows.length) return [];
    return [h("h4", {}, "Plain torch.compile"),
      h("table", { class: "wb-plain-figures" }, rows.map(({ name, value, base }) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value, base && h("span", { class: "wb-muted" }, ` (${base})`)))))];
  }
  function leftOut({ count, left_out_count: out, left_out: rows }) {
    if (!target.startsWith("torch")) return [];
    if (!count && !peak()) return [h("p", { class: "wb-muted" }, "Nothing is chosen: the file has no choices.")];
    if (!rows.length) return !count ? [] : [h("p", {}, `PyTorch can follow ${count === 1 ? "the choice" : `all ${count} choices`}.`)];
    return [h("h4", {}, `Left out: ${out} of ${count} choice${count === 1 ? "" : "s"}`),
      h("ul", { class: "wb-left-out", tabindex: "0", "aria-label": "Choices that are left out" }, rows.map(({ id, option, reason, count: layers }) => h("li", {}, h("code", {}, `${id} = ${option}`), layers > 1 && h("span", { class: "wb-muted" }, ` in ${layers} layers`), h("div", { class: "wb-reason" }, reason))))];
  }
  /** Say what the page waits for, and for how long. A screen reader says only what. */
  function waiting() {
    const seconds = h("span", { "aria-hidden": "true" });
    const count = () => { const passed = Math.floor((performance.now() - since) / 1000); seconds.textContent = passed ? `, ${passed} s` : "…"; };
    const clock = window.setInterval(() => { if (seconds.isConnected) count(); else clearInterval(clock); }, 500);
    count();
    const what = fitted ? `Fitting torch.compile to a peak of ${fitted}` : target === "torch" ? "Predicting torch.compile" : "Making the file";
    const stop = fitted && h("button", { class: "wb-cancel-fit", title: "End the fit; a later fit uses what was predicted", onclick: () => model.send({ type: "export_cancel" }) }, "Cancel");
    return h("div", { class: "wb-waiting" }, h("p", { class: "wb-muted" }, h("span", { role: "status" }, what), seconds), h("p", { class: "wb-muted wb-progress" }), stop);
  }
  /** Show whether the answer is for what is in the field. */
  function mark() {
    const found = model.get("exported") ?? {}, old = isOld();
    body.classList.toggle("wb-old", old);
    make.disabled = Boolean(found.asked === asked && found.refused && !old);
  }
  function draw() {
    if (el.hidden) return;
    const found = model.get("exported") ?? {}, here = found.asked === asked;
    // The choices have changed, so the shown file is outdated.
    if (answered && !found.asked) { ask(); return; }
    answered = here;
    make.textContent = `Export to ${file.value.trim() || "…"}`;
    mark();
    // Progress must not replace the button Cancel, which may have the focus.
    if (!here && found.progress && body.firstElementChild?.matches(".wb-waiting")) {
      /** @type {any} */ (body.querySelector(".wb-progress")).textContent = found.progress;
      return;
    }
    body.replaceChildren(...(!here ? [waiting()]
      : found.refused ? [h("p", { class: "wb-bad", role: "status" }, found.refused), target === "torch" ? h("p", {}, h("button", { onclick: () => ask() }, "Try again")) : ""]
      : !found.text ? []
      : [...figures(found), ...leftOut(found), h("h4", {}, "The file"), h("pre", { tabindex: "0", "aria-label": "The file" }, found.text, found.more ? `\n… ${found.more} more lines` : "")]));
  }
  /** Say whether a run may start now. */
  const able = (/** @type {boolean} */ disabled) => { run.disabled = disabled; };
  named();
  return { opener, el, write, draw, able, open };
}
