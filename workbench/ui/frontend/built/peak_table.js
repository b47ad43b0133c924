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
function scrolled(name, child, more = {}) {
    const box = h("div", {
        class: "wb-scroll",
        tabindex: "0",
        role: "region",
        "aria-label": name,
        ...more
    }, child);
    if (child instanceof HTMLTableElement) fitted(box, child);
    return box;
}
function fitted(box, table) {
    let asked = 0;
    const fit = ()=>{
        asked = 0;
        box.classList.remove("wb-cards");
        if (!box.clientWidth || table.scrollWidth <= box.clientWidth + 1) return;
        box.classList.add("wb-cards");
        const heads = Array.from(table.tHead?.rows[0]?.cells ?? [], (cell)=>cell.querySelector(".wb-unseen") ? "" : cell.innerText.replace(/[▴▾]/u, "").trim());
        table.setAttribute("role", "table");
        for (const row of table.rows){
            row.setAttribute("role", "row");
            Array.from(row.cells).forEach((cell, i)=>{
                cell.setAttribute("role", "TH" === cell.tagName ? "columnheader" : "cell");
                if ("TD" === cell.tagName && void 0 === cell.dataset.head) cell.dataset.head = heads[i] ?? "";
            });
        }
    };
    const ask = ()=>{
        asked ||= requestAnimationFrame(fit);
    };
    new ResizeObserver(ask).observe(box);
    new MutationObserver(ask).observe(table, {
        childList: true,
        subtree: true
    });
}
function follow(model, names, draw) {
    for (const name of names)model.on(`change:${name}`, draw);
    draw();
    return ()=>{
        for (const name of names)model.off(`change:${name}`, draw);
    };
}
function render({ model, el }) {
    panel(el, "alive");
    return follow(model, [
        "content"
    ], ()=>{
        const { predicted = {}, measured = null, eager = "", plain = "" } = model.get("content");
        el.classList.toggle("wb-both", null !== measured);
        const ask = h("button", {
            class: "wb-link wb-link-words wb-plain-peak",
            title: "Predict the peak of plain torch.compile without choices. This takes seconds, for large models minutes",
            onclick: ()=>model.send({
                    type: "plain_peak"
                })
        }, "Compare with plain torch.compile");
        el.replaceChildren(...list(model, "predicted", predicted, [
            eager,
            null === plain ? ask : plain
        ]), ...measured ? list(model, "measured", measured) : []);
    });
}
function list(model, kind, { head = "", rows = [], peak = null }, more = []) {
    const go = (id)=>id ? ()=>model.send({
                type: "unveil",
                id
            }) : null;
    const where = peak && (peak.id ? h("button", {
        class: "wb-link",
        onclick: go(peak.id)
    }, peak.name) : h("code", {}, peak.name));
    return [
        h("h4", {}, `Values held at the ${kind} peak`, where && [
            ", inside ",
            where
        ]),
        h("div", {
            class: "wb-muted"
        }, head, more.filter(Boolean).map((one)=>[
                ". ",
                one
            ])),
        scrolled(`Values held at the ${kind} peak`, h("table", {}, h("thead", {}, h("tr", {}, h("th", {
            class: "wb-right"
        }, "bytes"), h("th", {}, "value"), h("th", {}, "made by"), h("th", {}, "source"))), h("tbody", {}, rows.map((row)=>h("tr", {
                class: row.id ? "wb-can" : null,
                "data-value": row.name ?? row.value,
                onclick: go(row.id)
            }, h("td", {
                class: "wb-right"
            }, row.bytes), h("td", {
                class: "wb-made",
                title: row.name ?? row.value
            }, row.id ? h("button", {
                class: "wb-link"
            }, row.value) : h("code", {}, row.value)), h("td", {
                title: [
                    row.statement,
                    row.scope
                ].filter(Boolean).join(" in ")
            }, h("code", {}, row.statement), row.scope && h("span", {
                class: "wb-muted"
            }, ` ${row.scope}`)), h("td", {}, source(row.source)))))), {
            "data-kind": kind
        })
    ];
}
function source(text) {
    const line = text.lastIndexOf(":");
    return h("code", {
        class: "wb-muted wb-place",
        title: text || null
    }, h("span", {}, line < 0 ? text : text.slice(0, line)), line < 0 ? "" : text.slice(line));
}
const peak_table = {
    render: render
};
export default peak_table;
