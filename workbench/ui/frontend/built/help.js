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
const FOLD = "thunder-workbench:fold";
function isFolded(axis) {
    try {
        return "1" === localStorage.getItem(`thunder-workbench:folded:${axis}`);
    } catch  {
        return false;
    }
}
function fold(el, axis, on) {
    el.closest(".wb-app")?.querySelector(`.wb-split-${axis}`)?.dispatchEvent(new CustomEvent(FOLD, {
        detail: on
    }));
}
function foldButton(axis, name, ...face) {
    return h("button", {
        class: "wb-fold-button",
        "data-folds": axis,
        "aria-expanded": String(!isFolded(axis)),
        "aria-label": name,
        title: `Show or hide: ${name}`,
        onclick: (event)=>fold(event.currentTarget, axis)
    }, ...face);
}
function follow(model, names, draw) {
    for (const name of names)model.on(`change:${name}`, draw);
    draw();
    return ()=>{
        for (const name of names)model.off(`change:${name}`, draw);
    };
}
function render({ model, el }) {
    panel(el, "help");
    const note = h("div", {
        class: "wb-note-box",
        role: "note",
        tabindex: "0",
        hidden: true
    });
    const button = h("button", {
        class: "wb-help-button",
        "aria-expanded": "false",
        title: "What can I do here?",
        "aria-label": "What can I do here?",
        onclick: ()=>open(note.hidden)
    }, h("span", {
        class: "wb-help-words"
    }, "What can I do here?"), h("span", {
        class: "wb-help-sign"
    }, "?"));
    el.replaceChildren(h("div", {
        class: "wb-help-bar"
    }, button, foldButton("y", "the tabs below the graph", h("span", {
        "aria-hidden": "true"
    }, "▾"))), note);
    function open(on) {
        note.hidden = !on;
        button.setAttribute("aria-expanded", String(on));
        if (on) note.focus({
            preventScroll: true
        });
    }
    el.addEventListener("keydown", (event)=>{
        if ("Escape" === event.key && !note.hidden) {
            event.stopPropagation();
            open(false);
            button.focus();
        }
    });
    return follow(model, [
        "content"
    ], ()=>{
        const { title = "", lines = [] } = model.get("content");
        note.setAttribute("aria-label", `About ${title}`);
        note.replaceChildren(h("strong", {}, title), ...lines.map((line)=>h("p", {}, line)));
    });
}
const help = {
    render: render
};
export default help;
