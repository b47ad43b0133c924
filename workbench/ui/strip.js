// The strip of figures: each says whether it is predicted or measured, and how it moved.

/** @param {{model: any, el: HTMLElement}} context */
function render({ model, el }) {
  panel(el, "strip");
  return follow(model, ["content"], () => {
    const { figures = [] } = model.get("content");
    el.replaceChildren(...figures.map((figure) => h("div", { class: "wb-figure", "data-figure": figure.key },
      h("div", { class: "wb-figure-title" }, figure.title),
      h("div", { class: "wb-figure-values" }, ...figure.values.map((value) => h("div", { class: "wb-value", title: value.tip || null },
        h("span", { class: `wb-number ${value.tone ? `wb-${value.tone}` : ""}` }, value.text),
        h("span", { class: "wb-kind" }, value.kind),
        value.delta && h("span", { class: `wb-delta wb-${value.delta_tone}`, title: value.delta_tip }, value.delta)))))));
  });
}

export default { render };
