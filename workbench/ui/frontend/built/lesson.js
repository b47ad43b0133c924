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
function marked(text) {
    const emphasized = (part)=>part.split(/(?<![\w*])\*(?=\S)([^*]+)(?<=\S)\*(?![\w*])/).map((piece, i)=>i % 2 ? h("em", {}, piece) : piece);
    return text.split("`").flatMap((part, i)=>i % 2 ? [
            h("code", {}, part)
        ] : emphasized(part));
}
let groups = 0;
function render({ model, el }) {
    panel(el, "lesson");
    const group = `wb-lesson-${groups++}`;
    return follow(model, [
        "content"
    ], ()=>{
        const { question, kind, options = [], unit, locked, given, right, error } = model.get("content");
        const chosen = ()=>"number" === kind ? [
                el.querySelector("input").valueAsNumber
            ] : Array.from(el.querySelectorAll("input:checked"), (box)=>box.value);
        const ready = ()=>"number" === kind ? Number.isFinite(chosen()[0]) : "several" === kind || 1 === chosen().length;
        const button = h("button", {
            class: "wb-primary",
            disabled: true,
            onclick: ()=>model.send({
                    type: "lock",
                    given: chosen()
                })
        }, "Lock in");
        const update = ()=>{
            button.disabled = !ready();
        };
        const answers = "number" === kind ? h("label", {}, h("input", {
            type: "number",
            step: "any",
            value: locked ? given[0] : null,
            disabled: locked,
            oninput: update,
            "aria-label": question
        }), unit) : options.map(([name, text])=>h("label", {}, h("input", {
                type: "one" === kind ? "radio" : "checkbox",
                name: group,
                value: name,
                checked: locked && given.includes(name),
                disabled: locked,
                onchange: update
            }), h("span", {}, h("code", {}, name), text && [
                ": ",
                marked(text)
            ])));
        const state = true === right ? h("span", {
            class: "wb-good"
        }, "✓ Right") : false === right ? h("span", {
            class: "wb-bad"
        }, "✗ Not what happens") : locked ? h("span", {
            class: "wb-muted"
        }, "Locked in; run the next cell") : h("span", {
            class: "wb-bad"
        }, error);
        el.replaceChildren(h("div", {
            class: "wb-lesson-question"
        }, marked(question)), h("div", {
            class: "wb-lesson-answers",
            role: "group"
        }, answers), h("div", {
            class: "wb-row"
        }, !locked && button, state));
        if (!locked) update();
    });
}
const lesson = {
    render: render
};
export default lesson;
