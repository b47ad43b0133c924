// The tab Chosen: the choices in force and the defaults chosen by hand, with buttons that revert or release them.

import { follow, h, humanBytes, inParts, panel, previewed, scrolled } from "../dom.js";

/** @param {{model: any, el: HTMLElement}} context */
function render({ model, el }) {
  panel(el, "chosen");
  previewed(model, el);
  const count = h("span", { class: "wb-muted", role: "status" });
  const revert = (choices) => ({ "data-preview": JSON.stringify({ choices }), onclick: (/** @type {Event} */ event) => { event.stopPropagation(); model.send({ type: "revert", choices }); } });
  const release = (sites) => ({ title: "Let a fit change it", onclick: (/** @type {Event} */ event) => { event.stopPropagation(); model.send({ type: "release", sites }); } });
  const all = h("div", { class: "wb-row" }), body = h("tbody");
  const table = scrolled("Choices in force", h("table", {},
    h("thead", {}, h("tr", {}, ["lever", "choice", "where", "source"].map((name) => h("th", {}, name)), h("th", { class: "wb-right" }, "size"), h("th", {}, "made"), h("th", {}, h("span", { class: "wb-unseen" }, "revert")))), body));
  el.replaceChildren(all, table);

  function draw() {
    const { rows = [] } = model.get("content"), selected = model.get("selected");
    const made = rows.filter((row) => !row.default), kept = rows.filter((row) => row.default);
    const countOf = (of) => of.reduce((sum, { ids }) => sum + ids.length, 0), sites = countOf(made), defaults = countOf(kept), back = Object.assign({}, ...made.map((row) => row.revert));
    count.textContent = (sites ? `${sites} choice${sites === 1 ? "" : "s"} in force` : "No choices: the plan is as in unmodified Thunder.") + (defaults ? ` ${sites ? "· " : ""}A fit keeps ${defaults} default${defaults === 1 ? "" : "s"} chosen by hand.` : "");
    table.hidden = !rows.length;
    all.replaceChildren(count, ...(made.length ? [h("button", revert(back), "Revert all")] : []));
    body.replaceChildren(...rows.map((row) => h("tr", { class: `wb-can ${row.ids.includes(selected) ? "wb-chosen" : ""}`, "data-site": row.id, onclick: () => model.send({ type: "go", id: row.id }) },
      h("td", {}, row.lever),
      h("td", { class: "wb-wide" }, h("strong", {}, row.option), row.default && h("span", { class: "wb-muted" }, " (default)"), " ", h("button", { class: "wb-link", title: row.ids.join("\n") }, inParts(row.label)), row.outcome && h("div", { class: "wb-reason" }, `in effect: ${row.outcome}`)),
      h("td", {}, row.where), h("td", { class: "wb-wide" }, h("code", { class: "wb-muted", title: row.source }, row.source)),
      h("td", { class: "wb-right" }, row.bytes ? humanBytes(row.bytes) : ""), h("td", { class: "wb-muted" }, row.by),
      h("td", {}, row.default ? h("button", { ...release(row.ids), "aria-label": `Release ${row.option} for ${row.label}` }, "Release") : h("button", { ...revert(row.revert), "aria-label": `Revert ${row.option} for ${row.label}` }, "Revert")))));
  }
  return follow(model, ["content", "selected"], draw);
}

export default { render };
