// The strip of figures: a band of fixed height, in which each tile shows its first figure, what this figure is (predicted,
// measured, of an earlier plan), its change, and the figure that belongs beside it. A tile shows its further figures as
// far as they fit, and all of them while it is under the pointer or has the focus.
// While a plan is made, the figures of the previous plan are grey.
// A click on a tile opens the tab that explains or changes the figure (`OPENS` in `figure_strip.py`).

import { fold, follow, h, panel } from "../dom.js";

/** Forms of a tile, the first that fits is taken. `short`: the title's first word; `below`: the kind of the first figure
 *  stands below the title; `small`: a figure beside the first has smaller letters; `plain`: without the change. */
const FORMS = ["", "below", "short", "short below", "short small", "short below small", "short plain", "short below plain", "short small plain", "short below small plain"];

/** What gets the focus in a tab that a tile opens: the user can type a peak. The largest fusion is also selected. */
const NEXT = /** @type {Record<string, string>} */ ({ Fit: ".wb-peak input", Fusions: ".wb-fusions [data-fusion]" });

/** @param {{model: any, el: HTMLElement}} context */
function render({ model, el }) {
  panel(el, "strip");
  const note = (text) => text && h("span", { class: "wb-figure-note" }, text);
  const line = (value, kind, tip) => {
    const words = h("span", { class: "wb-kind" }, kind), count = /^\d+$/.test(value.text); // no line break between a count and its noun
    return h("div", { class: `wb-value${value.earlier ? " wb-earlier" : ""}${/predicted|estimated/.test(value.kind) ? " wb-foretold" : ""}${value.beside ? " wb-must" : ""}` },
      value.beside && [words, " "], // its words come first
      h("span", { class: `wb-number ${value.tone ? `wb-${value.tone}` : ""}` }, value.text, count && [" ", words]), !value.beside && !count && [" ", words],
      value.delta && [" ", h("span", { class: `wb-delta wb-${value.delta_tone}` }, value.delta)],
      note(tip), note(value.delta_tip));
  };
  const open = async (/** @type {string} */ name) => {
    model.send({ type: "place", name });
    fold(el, "y", false);
    const app = el.closest(".wb-app");
    app?.querySelector(".wb-places")?.scrollIntoView({ block: "nearest" });
    const next = NEXT[name];
    if (!next) return;
    // What is next is in sight after Python's answer.
    for (let tries = 0; tries < 100; tries++) {
      const part = /** @type {HTMLElement | null} */ (app?.querySelector(next));
      if (part?.checkVisibility({ visibilityProperty: true })) {
        part.focus({ preventScroll: true });
        if (part instanceof HTMLInputElement) part.select();
        else part.click();
        return;
      }
      await new Promise((next) => setTimeout(next, 20));
    }
  };
  /** Return a title in two parts, of which a narrow tile shows only the first word. */
  const named = (title) => { const [, word, rest] = /^(\w+)(.*)$/.exec(title); return [word, h("span", { class: "wb-rest" }, rest)]; };
  const tile = ({ key, title, older, opens, values: [first, ...others] }) => h("div",
    { class: `wb-figure${older ? " wb-older" : ""}${opens ? " wb-opens" : ""}`, "data-figure": key, role: "group", tabindex: opens ? null : "0", "aria-label": title, onclick: () => { if (opens && !getSelection()?.toString()) void open(opens); } },
    h("div", { class: "wb-figure-box" },
      h("div", { class: "wb-figure-title" }, opens ? h("button", { class: "wb-figure-name", title: `Open ${opens}`, "aria-label": `${title}: open ${opens}` }, named(title)) : named(title), " ", h("span", { class: "wb-kind" }, first.kind)),
      h("div", { class: "wb-figure-values" }, line(first, "", first.tip),
        others.map((value, at) => line(value, value.kind, value.tip !== (others[at - 1] ?? first).tip && value.tip)))));

  /** Give each tile the first form in which its title and the words that make its figures true are whole. */
  const fit = () => {
    let tiles = Array.from(el.children, (one) => {
      const kind = /** @type {HTMLElement} */ (one.querySelector(".wb-first-kind, .wb-figure-title > .wb-kind"));
      kind.classList.add("wb-first-kind");
      return { one: /** @type {HTMLElement} */ (one), kind, title: /** @type {HTMLElement} */ (one.querySelector(".wb-figure-title")), values: /** @type {HTMLElement} */ (one.querySelector(".wb-figure-values")) };
    });
    // Change all tiles before any is measured: the browser then computes one layout per form.
    for (const form of FORMS) {
      for (const { one, kind, title, values } of tiles) {
        one.dataset.form = form;
        if (form.includes("below")) values.firstElementChild?.after(kind);
        else title.append(kind);
      }
      tiles = tiles.filter(({ title, values }) => {
        const end = values.getBoundingClientRect().bottom + 0.5;
        const must = [...values.querySelectorAll(".wb-value:first-child > :is(.wb-number, .wb-delta), .wb-kind:not(.wb-value > .wb-kind), .wb-must")];
        return title.scrollWidth > title.clientWidth || !must.every((part) => part.getBoundingClientRect().bottom <= end && part.scrollWidth <= part.clientWidth + 1 && (!part.matches(".wb-must") || part.scrollHeight <= part.clientHeight + 4));
      });
      if (!tiles.length) break;
    }
  };
  // Wait for the next frame: a layout now, while other widgets are still changed, would be computed again for each of them.
  let asked = 0;
  const fitLater = () => { asked ||= requestAnimationFrame(() => { asked = 0; fit(); }); };
  const sizes = new ResizeObserver(fit);
  sizes.observe(el);
  const stop = follow(model, ["content"], () => {
    const focused = Array.from(el.children).findIndex((one) => one.contains(document.activeElement));
    el.replaceChildren(...(model.get("content").figures ?? []).map(tile));
    const again = el.children[focused];
    if (again) /** @type {HTMLElement} */ (again.querySelector(".wb-figure-name") ?? again).focus({ preventScroll: true });
    fitLater();
  });
  return () => { cancelAnimationFrame(asked); sizes.disconnect(); stop(); };
}

export default { render };
