function h(tag, attributes = {}, ...children) {
    const el = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes))if (null != value && false !== value) if (name.startsWith("on")) el.addEventListener(name.slice(2), value);
    else el.setAttribute(name, true === value ? "" : value);
    el.append(...children.flat(1 / 0).filter((child)=>null != child && false !== child));
    return el;
}
function panel(el, name) {
    el.classList.add("wb-panel", `wb-${name}`);
    el.dataset.lmSuppressShortcuts = "true";
}
function follow(model, names, draw) {
    for (const name of names)model.on(`change:${name}`, draw);
    draw();
    return ()=>{
        for (const name of names)model.off(`change:${name}`, draw);
    };
}
const UNCHANGING = [
    "accuracy",
    "offload",
    "overlap"
];
function render({ model, el }) {
    panel(el, "strip");
    const delta = (value)=>value.delta && h("span", {
            class: `wb-delta wb-${value.delta_tone}`,
            title: value.delta_tip
        }, value.delta, value.delta_vs && h("span", {
            class: "wb-vs"
        }, ` ${value.delta_vs}`));
    const line = (value, ...more)=>h("div", {
            class: "wb-value",
            title: value.tip || null
        }, h("span", {
            class: `wb-number ${value.tone ? `wb-${value.tone}` : ""}`
        }, value.text), h("span", {
            class: "wb-kind",
            title: value.kind
        }, value.kind), more);
    const lines = ({ key, values: [first, ...others] })=>UNCHANGING.includes(key) ? [
            first,
            ...others
        ].map((value)=>line(value, delta(value))) : [
            line(first),
            h("div", {
                class: "wb-change"
            }, delta(first)),
            ...others.map((value)=>line(value, delta(value)))
        ];
    return follow(model, [
        "content"
    ], ()=>{
        const { figures = [] } = model.get("content");
        el.replaceChildren(...figures.map((figure)=>h("div", {
                class: `wb-figure${figure.older ? " wb-older" : ""}`,
                "data-figure": figure.key
            }, h("div", {
                class: "wb-figure-title"
            }, figure.title), h("div", {
                class: "wb-figure-values"
            }, ...lines(figure)))));
        for (const cell of el.children)if (cell.scrollHeight > cell.clientHeight + 1) cell.title = cell.innerText;
    });
}
const figure_strip = {
    render: render
};
export default figure_strip;
