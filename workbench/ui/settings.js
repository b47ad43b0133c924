// Settings of whole levers: a menu each, and a field where other values are legal too.

/** @param {{model: any, el: HTMLElement}} context */
function render({ model, el }) {
  panel(el, "settings");
  return follow(model, ["content"], () => {
    const { rows = [] } = model.get("content");
    const choose = (id) => (event) => model.send({ type: "choose", id, option: event.target.value.trim() });
    el.replaceChildren(...rows.map((row) => {
      const refused = row.options.filter(({ reason }) => reason);
      const blocked = refused.length > 0 && refused.length >= row.options.length - 1;
      return h("div", { class: "wb-setting", "data-site": row.id },
        h("div", { class: "wb-setting-name" }, h("code", {}, row.id), h("div", { class: "wb-muted" }, row.label)),
        h("div", { class: "wb-setting-choice" },
          h("select", { "aria-label": row.id, disabled: blocked, onchange: choose(row.id) },
            row.options.map(({ name, reason }) => h("option", { value: name, selected: name === row.choice, disabled: Boolean(reason) }, name === row.default ? `${name} (stock)` : name))),
          row.range && !blocked && h("input", { type: "text", placeholder: row.range, "aria-label": `${row.id}: ${row.range}`, title: row.range, onchange: choose(row.id) }),
          refused.length > 0 && h("div", { class: "wb-reason" }, refused[0].reason)));
    }));
  });
}

export default { render };
