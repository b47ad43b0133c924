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
const HINT = "Hover to preview a change.";
function render({ model, el }) {
    panel(el, "preview");
    el.setAttribute("role", "status");
    return follow(model, [
        "content"
    ], ()=>{
        const { what = "", figures = [], how = "", bad = false } = model.get("content");
        el.classList.toggle("wb-idle", !what);
        el.replaceChildren(...what ? [
            h("strong", {
                class: bad ? "wb-bad" : null
            }, what),
            ...figures.map(({ name, text, tone })=>h("span", {}, h("span", {
                    class: "wb-muted"
                }, `${name} `), h("b", {
                    class: tone ? `wb-${tone}` : null
                }, text))),
            h("span", {
                class: "wb-muted wb-how"
            }, how)
        ] : [
            h("span", {
                class: "wb-muted"
            }, HINT)
        ]);
        el.title = what ? el.innerText : "";
    });
}
const preview = {
    render: render
};
export default preview;
