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
function fold(el, axis, on) {
    el.closest(".wb-app")?.querySelector(`.wb-split-${axis}`)?.dispatchEvent(new CustomEvent(FOLD, {
        detail: on
    }));
}
function follow(model, names, draw) {
    for (const name of names)model.on(`change:${name}`, draw);
    draw();
    return ()=>{
        for (const name of names)model.off(`change:${name}`, draw);
    };
}
const FORMS = [
    "",
    "below",
    "short",
    "short below",
    "short small",
    "short below small",
    "short plain",
    "short below plain",
    "short small plain",
    "short below small plain"
];
const NEXT = {
    Fit: ".wb-peak input",
    Fusions: ".wb-fusions [data-fusion]"
};
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
            class: `wb-value${value.earlier ? " wb-earlier" : ""}${/predicted|estimated/.test(value.kind) ? " wb-foretold" : ""}${value.beside ? " wb-must" : ""}`
        }, value.beside && [
            words,
            " "
        ], h("span", {
            class: `wb-number ${value.tone ? `wb-${value.tone}` : ""}`
        }, value.text, count && [
            " ",
            words
        ]), !value.beside && !count && [
            " ",
            words
        ], value.delta && [
            " ",
            h("span", {
                class: `wb-delta wb-${value.delta_tone}`
            }, value.delta)
        ], note(tip), note(value.delta_tip));
    };
    const open = async (name)=>{
        model.send({
            type: "place",
            name
        });
        fold(el, "y", false);
        const app = el.closest(".wb-app");
        app?.querySelector(".wb-places")?.scrollIntoView({
            block: "nearest"
        });
        const next = NEXT[name];
        if (!next) return;
        for(let tries = 0; tries < 100; tries++){
            const part = app?.querySelector(next);
            if (part?.checkVisibility({
                visibilityProperty: true
            })) {
                part.focus({
                    preventScroll: true
                });
                if (part instanceof HTMLInputElement) part.select();
                else part.click();
                return;
            }
            await new Promise((next)=>setTimeout(next, 20));
        }
    };
    const named = (title)=>{
        const [, word, rest] = /^(\w+)(.*)$/.exec(title);
        return [
            word,
            h("span", {
                class: "wb-rest"
            }, rest)
        ];
    };
    const tile = ({ key, title, older, opens, values: [first, ...others] })=>h("div", {
            class: `wb-figure${older ? " wb-older" : ""}${opens ? " wb-opens" : ""}`,
            "data-figure": key,
            role: "group",
            tabindex: opens ? null : "0",
            "aria-label": title,
            onclick: ()=>{
                if (opens && !getSelection()?.toString()) open(opens);
            }
        }, h("div", {
            class: "wb-figure-box"
        }, h("div", {
            class: "wb-figure-title"
        }, opens ? h("button", {
            class: "wb-figure-name",
            title: `Open ${opens}`,
            "aria-label": `${title}: open ${opens}`
        }, named(title)) : named(title), " ", h("span", {
            class: "wb-kind"
        }, first.kind)), h("div", {
            class: "wb-figure-values"
        }, line(first, "", first.tip), others.map((value, at)=>line(value, value.kind, value.tip !== (others[at - 1] ?? first).tip && value.tip)))));
    const fit = ()=>{
        let tiles = Array.from(el.children, (one)=>{
            const kind = one.querySelector(".wb-first-kind, .wb-figure-title > .wb-kind");
            kind.classList.add("wb-first-kind");
            return {
                one: one,
                kind,
                title: one.querySelector(".wb-figure-title"),
                values: one.querySelector(".wb-figure-values")
            };
        });
        for (const form of FORMS){
            for (const { one, kind, title, values } of tiles){
                one.dataset.form = form;
                if (form.includes("below")) values.firstElementChild?.after(kind);
                else title.append(kind);
            }
            tiles = tiles.filter(({ title, values })=>{
                const end = values.getBoundingClientRect().bottom + 0.5;
                const must = [
                    ...values.querySelectorAll(".wb-value:first-child > :is(.wb-number, .wb-delta), .wb-kind:not(.wb-value > .wb-kind), .wb-must")
                ];
                return title.scrollWidth > title.clientWidth || !must.every((part)=>part.getBoundingClientRect().bottom <= end && part.scrollWidth <= part.clientWidth + 1 && (!part.matches(".wb-must") || part.scrollHeight <= part.clientHeight + 4));
            });
            if (!tiles.length) break;
        }
    };
    let asked = 0;
    const fitLater = ()=>{
        asked ||= requestAnimationFrame(()=>{
            asked = 0;
            fit();
        });
    };
    const sizes = new ResizeObserver(fit);
    sizes.observe(el);
    const stop = follow(model, [
        "content"
    ], ()=>{
        const focused = Array.from(el.children).findIndex((one)=>one.contains(document.activeElement));
        el.replaceChildren(...(model.get("content").figures ?? []).map(tile));
        const again = el.children[focused];
        if (again) (again.querySelector(".wb-figure-name") ?? again).focus({
            preventScroll: true
        });
        fitLater();
    });
    return ()=>{
        cancelAnimationFrame(asked);
        sizes.disconnect();
        stop();
    };
}
const figure_strip = {
    render: render
};
export default figure_strip;
