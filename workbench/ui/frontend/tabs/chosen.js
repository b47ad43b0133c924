// The tab Chosen: the choices in force, with buttons that revert them.

import { follow, h, humanBytes, inParts, panel, previewed, scrolled } from "../dom.js";

/** @param {{model: any, el: HTMLElement}} context */
function render({ model, el }) {
  panel(el, "chosen");
  previewed(model, el);
  const count = h("span", { class: "wb-muted", role: "status" });
  const revert = (choices) => ({ "data-preview": JSON.stringify({ choices }), onclick: (/** @type {Event} */ event) => { event.stopPropagation(); model.send({ type: "choose_all", choices }); } });
  const all = h("div", { class: "wb-row" }), body = h("tbody");
  const table = scrolled("Choices in force", h("table", {},
    h("thead", {}, h("tr", {}, ["lever", "choice", "where", "source"].map((name) => h("th", {}, name)), h("th", { class: "wb-right" }, "size"), h("th", {}, "made"), h("th", {}, h("span", { class: "wb-unseen" }, "revert")))), body));
  el.replaceChildren(all, table);

  function draw() {
    const { rows = [] } = model.get("content"), selected = model.get("selected");
    const sites = rows.reduce((sum, { ids }) => sum + ids.length, 0), back = Object.assign({}, ...rows.map((row) => row.revert));
    count.textContent = sites ? `${sites} choice${sites === 1 ? "" : "s"} in force` : "No choices: the plan is as in unmodified Thunder.";
    table.hidden = !rows.length;
    all.replaceChildren(count, ...(rows.length ? [h("button", revert(back), "Revert all")] : []));
    body.replaceChildren(...rows.map((row) => h("tr", { class: `wb-can ${row.ids.includes(selected) ? "wb-chosen" : ""}`, "data-site": row.id, onclick: () => model.send({ type: "go", id: row.id }) },
      h("td", {}, row.lever),
      h("td", { class: "wb-wide" }, h("strong", {}, row.option), " ", h("button", { class: "wb-link", title: row.ids.join("\n") }, inParts(row.label)), row.outcome && h("div", { class: "wb-reason" }, `in effect: ${row.outcome}`)),
      h("td", {}, row.where), h("td", { class: "wb-wide" }, h("code", { class: "wb-muted", title: row.source }, row.source)),
      h("td", { class: "wb-right" }, row.bytes ? humanBytes(row.bytes) : ""), h("td", { class: "wb-muted" }, row.by),
      h("td", {}, h("button", { ...revert(row.revert), "aria-label": `Revert ${row.option} for ${row.label}` }, "Revert")))));
  }
  return follow(model, ["content", "selected"], draw);
}

export default { render };
