// The kept runs of this program. The user can pin a run to compare others with it, rename it, add a note, and delete it.

import { follow, h, inParts, panel, scrolled } from "../dom.js";
import { sideBySide } from "./compare_panel.js";

/** @param {{model: any, el: HTMLElement}} context */
function render({ model, el }) {
  panel(el, "experiments");
  let asking = "";
  const opened = new Set(); // folders of runs whose details are shown
  const beside = sideBySide(model);

  function draw() {
    const { rows = [], unreadable = [], loading, compared, cannot_run: never } = model.get("content");
    const ask = (message) => { asking = ""; model.send(message); };
    const right = (text) => h("th", { class: "wb-right" }, text);
    const name = (row) => h("input", {
      type: "text", value: row.name, title: row.name, "aria-label": `Name of ${row.name}`, spellcheck: "false",
      onchange: (event) => ask({ type: "rename", folder: row.folder, name: event.target.value.trim() }),
    });
    const note = (row) => h("input", {
      type: "text", class: "wb-note", value: row.note, placeholder: "note", title: row.note || null, maxlength: "2000", "aria-label": `Note on ${row.name}`,
      onchange: (event) => ask({ type: "note", folder: row.folder, note: event.target.value }),
    });
    const details = (row) => {
      const box = h("details", { class: "wb-run-details", open: opened.has(row.folder), ontoggle: () => { if (box.open) opened.add(row.folder); else opened.delete(row.folder); } },
        h("summary", {}, row.named ? row.named : "details"), h("div", {}, "run ", h("code", {}, inParts(row.id ?? ""))),
        row.unread && h("div", {}, "The choices cannot be read."), (row.choices ?? []).map((choice) => h("div", {}, h("code", {}, inParts(choice)))));
      return box;
    };
    const remove = (row) => (asking === row.folder
      ? h("button", { class: "wb-danger", onclick: () => ask({ type: "delete", folder: row.folder }) }, "Really delete")
      : h("button", { disabled: row.pinned, title: row.pinned ? "Unpin the run to delete it" : "Delete the run's folder", onclick: () => { asking = row.folder; draw(); } }, "Delete"));
    el.replaceChildren(
      h("p", { class: "wb-muted" }, loading ? "Reading the runs…" : rows.length ? "Pin a run to compare with it. All figures are measured, except the predicted peak." : `No run of this program is kept yet. ${never ? `${never} A run's folder that you copy back is listed here.` : "Compile & run makes the first."}`),
      scrolled("Runs", h("table", {},
        h("thead", {}, h("tr", {}, h("th", {}, "pinned"), h("th", {}, "beside"), h("th", {}, "name and note"), h("th", {}, "when"), right("peak, predicted"), right("measured"), right("compile"), right("step"), h("th", {}, "accuracy"), h("th", {}, "state"), h("th", {}))),
        h("tbody", {}, rows.map((row) => h("tr", { class: row.pinned ? "wb-chosen" : null, "data-run": row.folder },
          h("td", {}, h("input", { type: "checkbox", checked: row.pinned, "aria-label": `Pin ${row.name}`, onchange: (event) => ask({ type: "pin", folder: row.folder, pinned: event.target.checked }) })),
          h("td", {}, beside.tick(row.folder, row.name)), h("td", { class: "wb-wide" }, name(row), note(row), details(row)), h("td", { class: "wb-muted" }, row.created),
          h("td", { class: "wb-right" }, row.predicted), h("td", { class: "wb-right" }, row.measured, row.off && h("span", { class: "wb-aside" }, row.off)),
          h("td", { class: "wb-right" }, row.compile), h("td", { class: "wb-right" }, row.step, (row.against ?? []).map((text) => h("span", { class: "wb-aside" }, text))),
          h("td", { class: row.accuracy === "ok" ? "wb-good" : "wb-bad" }, row.accuracy), h("td", { class: row.state === "failed" ? "wb-bad" : null, title: [row.error, ...(row.warnings ?? [])].filter(Boolean).join("\n") || null }, row.state, (row.warnings ?? []).length > 0 && h("span", { class: "wb-aside" }, "with warnings")),
          h("td", { class: "wb-right" }, remove(row)))))), { hidden: !rows.length }),
      h("div", { class: "wb-views", hidden: rows.length < 2 }, h("button", { disabled: !rows.some((row) => row.pinned), title: rows.some((row) => row.pinned) ? "Compare every other run with the pinned run, with verdicts" : "Pin a run first", onclick: () => ask({ type: "compare" }) }, "Compare with the pinned run")),
      compared ? h("section", { class: "wb-against-pinned" }, h("p", {}, compared.words), scrolled("Against the pinned run", h("table", {},
        h("thead", {}, h("tr", {}, h("th", {}, "run"), h("th", {}, "figure"), right("value"), right("pinned"), right("ratio"), right("95 % interval"), h("th", {}, "verdict"))),
        h("tbody", {}, compared.rows.map((row) => h("tr", {}, h("td", {}, row.run), h("td", {}, row.figure), h("td", { class: "wb-right" }, row.value), h("td", { class: "wb-right" }, row.base),
          h("td", { class: "wb-right" }, row.ratio), h("td", { class: "wb-right" }, row.interval), h("td", { class: row.tone ? `wb-${row.tone}` : "wb-muted" }, row.verdict))))))) : "",
      ...beside.drawn(),
      h("details", { hidden: !unreadable.length },
        h("summary", { class: "wb-bad" }, unreadable.length === 1 ? "1 run cannot be read" : `${unreadable.length} runs cannot be read`),
        h("ul", {}, unreadable.map((one) => h("li", { "data-run": one.folder }, h("code", {}, one.name), ` ${one.error}`)))));
    beside.reveal();
  }
  return follow(model, ["content"], draw);
}

export default { render };
