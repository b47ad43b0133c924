// The census of fusions: a row for each group of identical ones, its members as links into the graph.

const MEMBERS = 24; // members named in a row before "more"

/** @param {{model: any, el: HTMLElement}} context */
function render({ model, el }) {
  panel(el, "fusions");
  const opened = new Set();
  function draw() {
    const { head, groups = [] } = model.get("content"), selected = model.get("selected");
    const all = groups.reduce((sum, { count, size }) => sum + count * size, 0) || 1, share = ({ count, size }) => 100 * count * size / all;
    const compiled = groups.some((group) => group.compiled);
    const right = (text) => h("th", { class: "wb-right" }, text);
    const member = ({ id, name }) => h("button", {
      class: `wb-link ${id === selected ? "wb-chosen" : ""}`, "data-fusion": id, onclick: () => model.send({ type: "go", id }), title: "show it in the graph",
    }, name);
    el.replaceChildren(h("p", { class: "wb-muted" }, head ?? ""), scrolled("Fusions", h("table", {},
      h("thead", {}, h("tr", {}, right("identical"), right("ops in each"), h("th", {}, "share of all fused ops"), h("th", {}, "where"), compiled && right("compiled in"), h("th", {}, "what it computes"), h("th", {}, "fusions"))),
      h("tbody", {}, groups.map((group, i) => {
        const whole = opened.has(group.members[0].id), shown = whole ? group.members : group.members.slice(0, MEMBERS), rest = group.members.length - shown.length;
        return h("tr", { class: group.members.some(({ id }) => id === selected) ? "wb-chosen" : null },
          h("td", { class: "wb-right" }, h("strong", {}, group.count)), h("td", { class: "wb-right" }, group.size),
          h("td", {}, h("div", { class: "wb-share" }, h("div", { style: `width:${share(group)}%` })), h("span", { class: "wb-muted wb-share-text" }, `${share(group).toFixed(share(group) < 10 ? 1 : 0)} %`)),
          h("td", { class: "wb-nowrap" }, group.sides), compiled && h("td", { class: "wb-right" }, group.compiled),
          h("td", {}, h("code", {}, group.ops)),
          h("td", {}, shown.map((one, n) => [n ? ", " : "", member(one)]),
            rest > 0 && [" ", h("button", { class: "wb-link", onclick: () => { opened.add(group.members[0].id); draw(); } }, `and ${rest} more`)]));
      }))), { hidden: !groups.length }));
  }
  return follow(model, ["content", "selected"], draw);
}

export default { render };
