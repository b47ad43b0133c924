// Settings of whole levers: a menu for each, and a field if other values are legal, too. Above them, boxes for further measurements of runs.

import { follow, h, panel } from "../dom.js";

/** @param {{model: any, el: HTMLElement}} context */
function render({ model, el }) {
  panel(el, "settings");
  return follow(model, ["content"], () => {
    const { rows = [], runs } = model.get("content");
    const choose = (id) => (event) => model.send({ type: "choose", id, option: event.target.value.trim() });
    const check = (name, label, on, reason = "") => h("label", { class: "wb-check", title: reason || null },
      h("input", { type: "checkbox", name, checked: on, disabled: Boolean(reason), onchange: ask }), label, reason && h("span", { class: "wb-reason" }, reason));
    const ask = () => {
      const on = Array.from(/** @type {NodeListOf<HTMLInputElement>} */ (el.querySelectorAll("input[type=checkbox]:checked")), (box) => box.name);
      model.send({ type: "runs", against: on.filter((name) => name !== "snapshot"), snapshot: on.includes("snapshot") });
    };
    const measured = runs && h("div", { class: "wb-setting" },
      h("div", { class: "wb-setting-name" }, "Runs", h("div", { class: "wb-muted" }, "Further measurements with Compile & run. Steps of variants are interleaved with the run's own steps, in the same process")),
      h("div", { class: "wb-setting-choice" }, runs.cannot_run ? h("span", { class: "wb-reason" }, runs.cannot_run) : runs.ways.map(({ name, label, on }) => check(name, `time against ${name}: ${label}`, on)),
        !runs.cannot_run && check("snapshot", "memory snapshot of a step, for memory_viz", runs.snapshot, runs.no_snapshot)));
    el.replaceChildren(...(measured ? [measured] : []), ...rows.map((row) => {
      const refused = row.options.filter(({ reason }) => reason);
      const blocked = refused.length > 0 && refused.length >= row.options.length - 1;
      return h("div", { class: "wb-setting", "data-site": row.id },
        h("div", { class: "wb-setting-name" }, h("code", {}, row.id), h("div", { class: "wb-muted" }, row.label)),
        h("div", { class: "wb-setting-choice" },
          h("select", { "aria-label": row.id, disabled: blocked, onchange: choose(row.id) },
            row.options.map(({ name, reason }) => h("option", { value: name, selected: name === row.choice, disabled: Boolean(reason) }, name === row.default ? `${name} (default)` : name))),
          row.range && !blocked && h("input", { type: "text", placeholder: row.range, "aria-label": `${row.id}: ${row.range}`, title: row.range, onchange: choose(row.id) }),
          refused.length > 0 && h("div", { class: "wb-reason" }, refused[0].reason)));
    }));
  });
}

export default { render };
