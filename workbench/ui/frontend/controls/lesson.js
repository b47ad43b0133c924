// A prediction in a lesson: checkboxes, radio buttons or a number, and a button that locks the answer. A locked answer cannot be changed.

import { follow, h, panel } from "../dom.js";

/** Return the elements of a text with `code` in backticks and *emphasis* in asterisks. */
function marked(/** @type {string} */ text) {
  const emphasized = (/** @type {string} */ part) => part.split(/(?<![\w*])\*(?=\S)([^*]+)(?<=\S)\*(?![\w*])/).map((piece, i) => (i % 2 ? h("em", {}, piece) : piece));
  return text.split("`").flatMap((part, i) => (i % 2 ? [h("code", {}, part)] : emphasized(part)));
}

let groups = 0;

/** @param {{model: any, el: HTMLElement}} context */
function render({ model, el }) {
  panel(el, "lesson");
  const group = `wb-lesson-${groups++}`;
  return follow(model, ["content"], () => {
    const { question, kind, options = [], unit, locked, given, right, error } = model.get("content");
    const chosen = () => (kind === "number"
      ? [el.querySelector("input").valueAsNumber]
      : Array.from(/** @type {NodeListOf<HTMLInputElement>} */ (el.querySelectorAll("input:checked")), (box) => box.value));
    const ready = () => (kind === "number" ? Number.isFinite(chosen()[0]) : kind === "several" || chosen().length === 1);
    const button = h("button", { class: "wb-primary", disabled: true, onclick: () => model.send({ type: "lock", given: chosen() }) }, "Lock in");
    const update = () => { button.disabled = !ready(); };
    const answers = kind === "number"
      ? h("label", {}, h("input", { type: "number", step: "any", value: locked ? given[0] : null, disabled: locked, oninput: update, "aria-label": question }), unit)
      : options.map(([name, text]) => h("label", {},
        h("input", { type: kind === "one" ? "radio" : "checkbox", name: group, value: name, checked: locked && given.includes(name), disabled: locked, onchange: update }),
        h("span", {}, h("code", {}, name), text && [": ", marked(text)])));
    const state = right === true ? h("span", { class: "wb-good" }, "✓ Right")
      : right === false ? h("span", { class: "wb-bad" }, "✗ Not what happens")
        : locked ? h("span", { class: "wb-muted" }, "Locked in; run the next cell") : h("span", { class: "wb-bad" }, error);
    el.replaceChildren(h("div", { class: "wb-lesson-question" }, marked(question)),
      h("div", { class: "wb-lesson-answers", role: "group" }, answers), h("div", { class: "wb-row" }, !locked && button, state));
    if (!locked) update();
  });
}

export default { render };
