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
function render({ model, el }) {
    panel(el, "strip");
    const note = (text)=>text && h("span", {
            class: "wb-figure-note"
        }, text);
    const line = (value, kind, tip)=>{
        const words = h("span", {
            class: "wb-kind"
        }, kind), count = /^\d+$/.test(value.text);
        return h("div", {
            class: "wb-value"
        }, h("span", {
            class: `wb-number ${value.tone ? `wb-${value.tone}` : ""}`
        }, value.text, count && [
            " ",
            words
        ]), !count && [
            " ",
            words
        ], value.delta && [
            " ",
            h("span", {
                class: `wb-delta wb-${value.delta_tone}`
            }, value.delta)
        ], value.delta_vs && [
            " ",
            h("span", {
                class: "wb-vs"
            }, value.delta_vs)
        ], note(tip), value.delta_tip !== value.delta_vs && note(value.delta_tip));
    };
    const named = (title)=>{
        const [, word, rest] = /^(\w+)(.*)$/.exec(title);
        return [
            word,
            rest.startsWith(",") ? h("wbr") : " ",
            h("span", {}, rest.trim())
        ];
    };
    const tile = ({ key, title, older, values: [first, ...others] })=>h("div", {
            class: `wb-figure${older ? " wb-older" : ""}`,
            "data-figure": key,
            role: "group",
            tabindex: "0",
            "aria-label": title
        }, h("div", {
            class: "wb-figure-box"
        }, h("div", {
            class: "wb-figure-title"
        }, named(title), " ", h("span", {
            class: "wb-kind"
        }, first.kind)), h("div", {
            class: "wb-figure-values"
        }, line(first, "", first.tip), others.map((value, at)=>line(value, value.kind, value.tip !== (others[at - 1] ?? first).tip && value.tip)))));
    return follow(model, [
        "content"
    ], ()=>{
        const focused = Array.from(el.children).indexOf(document.activeElement);
        el.replaceChildren(...(model.get("content").figures ?? []).map(tile));
        if (focused >= 0) el.children[focused]?.focus({
            preventScroll: true
        });
    });
}
const figure_strip = {
    render: render
};
export default figure_strip;
