// The passes: a button for each step that changed the program, and its text with what the step added and took away.

const LINE = 18; // height of a line, in pixels

/** @param {{model: any, el: HTMLElement}} context */
function render({ model, el }) {
  panel(el, "passes");
  const steps = h("div", { class: "wb-steps", role: "group", "aria-label": "Steps of the compilation" });
  const search = h("input", { type: "search", placeholder: "Search this step", "aria-label": "Search this step", spellcheck: "false" });
  const only = h("input", { type: "checkbox", id: `only-${Math.random()}` });
  const count = h("span", { class: "wb-muted", "aria-live": "polite" });
  const inner = h("div", { class: "wb-lines" }), box = h("div", { class: "wb-scroll wb-text", tabindex: "0" }, inner);
  el.replaceChildren(steps, h("div", { class: "wb-row" }, search, h("label", { class: "wb-check" }, only, "only what changed"), count), box);
  let shown = [];

  function filter() {
    const { lines = [], chosen = 0, names = [] } = model.get("content"), query = search.value.trim().toLowerCase();
    steps.replaceChildren(...names.map((name, index) => [index > 0 && h("span", { class: "wb-muted", "aria-hidden": "true" }, "→"),
      h("button", { class: index === chosen ? "wb-pressed" : null, "aria-pressed": String(index === chosen), onclick: () => model.send({ type: "pass", index }) }, name)]).flat().filter(Boolean));
    shown = lines.filter(([mark, text]) => (!query || text.toLowerCase().includes(query)) && (!only.checked || mark !== " "));
    const added = lines.filter(([mark]) => mark === "+").length, gone = lines.filter(([mark]) => mark === "-").length;
    count.textContent = names.length ? `${query || only.checked ? `${shown.length} of ` : ""}${lines.length} lines${added + gone ? `, ${added} new, ${gone} gone` : ""}` : "working out the passes…";
    inner.style.height = `${shown.length * LINE}px`;
    draw();
  }
  function draw() {
    const first = Math.max(0, Math.floor(box.scrollTop / LINE) - 10);
    inner.replaceChildren(...shown.slice(first, first + Math.ceil(box.clientHeight / LINE) + 20).map(([mark, text], i) => h("div", {
      class: `wb-line ${mark === "+" ? "wb-new" : mark === "-" ? "wb-gone" : ""}`, style: `top:${(first + i) * LINE}px`,
    }, h("span", { class: "wb-no" }, mark === " " ? "" : mark === "-" ? "−" : "+"), h("code", { title: text }, text))));
  }
  search.addEventListener("input", filter);
  only.addEventListener("change", () => { box.scrollTop = 0; filter(); });
  box.addEventListener("scroll", draw);
  const sizes = new ResizeObserver(draw);
  sizes.observe(box);
  const stop = follow(model, ["content"], filter);
  return () => { sizes.disconnect(); stop(); };
}

export default { render };
