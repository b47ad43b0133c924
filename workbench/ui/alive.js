// What is alive at the predicted peak: values by size, each a way into the graph.

/** @param {{model: any, el: HTMLElement}} context */
function render({ model, el }) {
  panel(el, "alive");
  return follow(model, ["content"], () => {
    const { head = "", rows = [], peak } = model.get("content");
    const go = (id) => (id ? () => model.send({ type: "go", id }) : null);
    el.replaceChildren(
      h("h4", {}, "Alive at the peak", peak && [", inside ", h("button", { class: "wb-link", onclick: go(peak.id) }, peak.name)]),
      h("div", { class: "wb-muted" }, head),
      h("div", { class: "wb-scroll" }, h("table", {},
        h("thead", {}, h("tr", {}, h("th", { class: "wb-right" }, "bytes"), h("th", {}, "value"), h("th", {}, "made by"), h("th", {}, "source"))),
        h("tbody", {}, rows.map((row) => h("tr", { class: row.id ? "wb-can" : null, "data-value": row.value, onclick: go(row.id) },
          h("td", { class: "wb-right" }, row.bytes), h("td", { title: row.value }, h("code", {}, row.value)), h("td", { title: row.statement }, h("code", {}, row.statement)),
          h("td", {}, h("code", { class: "wb-muted" }, row.source))))))));
  });
}

export default { render };
