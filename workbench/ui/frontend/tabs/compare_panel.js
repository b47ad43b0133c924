// The ticked plans and runs side by side: figures, sites that differ, and matching statements.

import { h, scrolled } from "../dom.js";

/** Return functions for the top-level tab Experiments: `tick` makes a run's checkbox, `drawn` returns the other elements. @param {any} model */
export function sideBySide(model) {
  const plans = new Set(), runs = new Set();
  let path = "side-by-side.html", only = false, shown = null, asked = false;
  const put = h("button", { class: "wb-put", onclick: () => ask() }, "Put side by side");
  const ask = (base = "") => {
    const listed = model.get("content");
    asked = true;
    const there = (ticked, keys) => keys.filter((key) => ticked.has(key));
    model.send({ type: "beside", base, plans: there(plans, listed.plans.map((plan) => plan.key)), runs: there(runs, listed.rows.map((row) => row.folder)) });
  };
  const box = (ticked, key, name) => h("input", { type: "checkbox", class: "wb-tick", checked: ticked.has(key), "aria-label": `Put ${name} side by side with others`, onchange: (event) => {
    if (event.target.checked) ticked.add(key); else ticked.delete(key);
    ready();
  } });

  /** Enable the button if two or more plans and runs are ticked. Redraw nothing, so that the focus stays. */
  function ready() {
    const { rows = [], plans: listed = [], busy = "" } = model.get("content");
    const count = listed.filter((plan) => plans.has(plan.key)).length + rows.filter((row) => runs.has(row.folder)).length;
    put.disabled = count < 2 || Boolean(busy);
    put.title = count < 2 ? "Tick two or more" : "Figures, sites and statements of what is ticked";
  }

  /** Make the line below the table of runs: plans to tick, and buttons. */
  function chooser() {
    const { plans: listed = [], busy = "" } = model.get("content");
    ready();
    return h("div", { class: "wb-beside-plans", role: "group", "aria-label": "Side by side" },
      h("span", { class: "wb-muted" }, "Compare the runs ticked above, and these plans"),
      listed.map((plan) => h("span", { class: "wb-nowrap" }, h("label", {}, box(plans, plan.key, plan.name), ` ${plan.name}`),
        plan.key.startsWith("kept") && h("button", { class: "wb-drop", title: `Remove ${plan.key}`, "aria-label": `Remove ${plan.key}`, onclick: () => { plans.delete(plan.key); model.send({ type: "forget", key: plan.key }); } }, "×"))),
      h("button", { title: "Keep the current plan, to compare it with others later", onclick: () => model.send({ type: "keep" }) }, "Keep this plan"),
      put,
      h("span", { class: "wb-muted", role: "status" }, busy));
  }

  const cells = (of, marks, values) => values.map((value, i) => h("td", { class: `${marks[i] ?? ""} wb-right` }, value));
  const heads = (names, from) => h("thead", {}, h("tr", {}, names.map((name, i) => h("th", { class: i < from ? null : "wb-right" }, name))));
  const plain = (table) => scrolled(table.title, h("table", {}, heads(table.heads, 2), h("tbody", {}, table.rows.map((row) => h("tr", {},
    h("td", { class: "wb-site" }, row.cells[0]), h("td", { class: "wb-muted" }, row.cells[1]), cells(table, row.marks, row.cells.slice(2)))))));

  /** Make a cell for a plan's statement: its position, and a bar for the predicted peak inside the statement. */
  const step = (one) => h("td", { class: one.mark || null }, h("span", { class: "wb-at" }, one.place),
    one.text && h("span", { class: "wb-inside" }, h("i", { style: `width:${one.share}%` })), one.text);

  function steps(found) {
    return [h("h4", {}, "Statements in step"), h("p", { class: "wb-muted" }, found.words),
      h("label", {}, h("input", { type: "checkbox", class: "wb-only", checked: only, onchange: (event) => { only = event.target.checked; } }), " only those that differ"),
      h("div", { class: "wb-steps", tabindex: "0", role: "region", "aria-label": "Statements in step" }, h("table", {}, heads(found.heads, found.heads.length),
        h("tbody", {}, found.rows.map((row) => h("tr", { class: row.alike ? "wb-alike" : null }, h("td", {}, row.name), h("td", { class: "wb-muted" }, row.side),
          h("td", { class: "wb-source", title: row.source || null }, row.source), row.cells.map(step))))))];
  }

  /** Make the latest comparison. `drawn` calls this only for a new comparison, so that the scroll position stays. */
  function result(found, written) {
    const file = h("input", { type: "text", class: "wb-file", value: path, "aria-label": "File of the page", spellcheck: "false", oninput: (event) => { path = event.target.value; } });
    const base = h("select", { "aria-label": "Baseline", onchange: (event) => ask(event.target.value) }, found.names.map((name) => h("option", { value: name, selected: name === found.base }, name)));
    return h("section", { class: "wb-compared", "aria-label": "Side by side" },
      h("div", { class: "wb-beside-plans" }, h("label", {}, "Baseline ", base), file,
        h("button", { title: "One HTML page that needs no network, with all statements", onclick: () => model.send({ type: "write", path: path.trim() }) }, "Save as a page"),
        written && h("span", { class: "wb-muted", role: "status" }, `Written to ${written}`)),
      found.notes.map((note) => h("p", { class: "wb-bad" }, note)),
      found.tables.map((table) => [h("h4", {}, table.title), plain(table)]),
      found.runs && [h("h4", {}, "Runs"), h("p", { class: "wb-muted" }, found.runs.words), scrolled("Runs", h("table", {}, heads(found.runs.heads, 9), h("tbody", {}, found.runs.rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, cell)))))))],
      found.steps && steps(found.steps));
  }

  return {
    tick: (folder, name) => box(runs, folder, name),
    drawn: () => {
      const { beside, written, plans: listed = [] } = model.get("content");
      const key = JSON.stringify([beside, written]);
      if (shown?.key !== key) shown = { key, el: beside ? result(beside, written) : "" };
      return listed.length ? [chooser(), shown.el] : [];
    },
    /** Scroll the tab to a comparison that the user has requested: it begins below the table of runs. */
    reveal: () => {
      const tab = shown?.el && shown.el.closest(".widget-tab-contents");
      if (!asked || !tab || model.get("content").busy) return;
      asked = false;
      tab.scrollTop += shown.el.getBoundingClientRect().top - tab.getBoundingClientRect().top;
    },
  };
}
