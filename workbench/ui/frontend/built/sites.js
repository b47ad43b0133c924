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
function inParts(path) {
    return path.split(/(?<=[./>])(?=[A-Za-z_])/).flatMap((part, at)=>at ? [
            h("wbr"),
            part
        ] : [
            part
        ]);
}
function humanBytes(bytes) {
    const units = [
        "B",
        "KiB",
        "MiB",
        "GiB",
        "TiB"
    ];
    let value = Math.abs(bytes), unit = 0;
    while(value >= 999.5 && unit < units.length - 1){
        value /= 1024;
        unit++;
    }
    const digits = 0 === unit || value >= 100 ? 0 : value >= 10 ? 1 : 2;
    return `${bytes < 0 ? "−" : ""}${value.toFixed(digits)} ${units[unit]}`;
}
function render({ model, el }) {
    panel(el, "sites");
    const search = h("input", {
        type: "search",
        placeholder: "Search sites",
        title: "Layer, symbol, source, choice",
        "aria-label": "Search sites",
        spellcheck: "false",
        oninput: ()=>draw()
    });
    const lever = h("select", {
        "aria-label": "Lever",
        onchange: ()=>draw()
    });
    const count = h("span", {
        class: "wb-muted",
        "aria-live": "polite"
    });
    const body = h("tbody");
    el.replaceChildren(h("div", {
        class: "wb-row"
    }, search, lever, count), scrolled("Sites", h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "lever"), h("th", {}, "site"), h("th", {}, "source"), h("th", {
        class: "wb-right"
    }, "size"), h("th", {}, "choice"), h("th", {}, "outcome"))), body)));
    const named = "min-width: 11em", sourced = "max-width: min(340px, 22cqw)", picked = "max-width: 11em";
    const MOST = 400;
    function draw() {
        const { rows = [] } = model.get("content"), selected = model.get("selected");
        const levers = [
            "",
            ...new Set(rows.map((row)=>row.lever))
        ];
        if (lever.options.length !== levers.length) {
            const chosen = lever.value;
            lever.replaceChildren(...levers.map((name)=>h("option", {
                    value: name
                }, name || "all levers")));
            lever.value = levers.includes(chosen) ? chosen : "";
        }
        const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
        const found = rows.filter((row)=>(!lever.value || row.lever === lever.value) && words.every((word)=>`${row.id} ${row.label} ${row.source} ${row.choice} ${row.outcome}`.toLowerCase().includes(word)));
        count.textContent = found.length > MOST ? `${MOST} of ${found.length} shown` : `${found.length} of ${rows.length}`;
        body.replaceChildren(...found.slice(0, MOST).map((row)=>h("tr", {
                class: row.id === selected ? "wb-chosen" : null,
                "data-site": row.id,
                onclick: ()=>model.send({
                        type: "go",
                        id: row.id
                    })
            }, h("td", {}, row.lever), h("td", {
                class: "wb-wide",
                style: named
            }, h("button", {
                class: "wb-link",
                title: row.id
            }, inParts(row.label))), h("td", {
                class: "wb-wide",
                style: sourced
            }, h("code", {
                class: "wb-muted",
                title: row.source
            }, row.source)), h("td", {
                class: "wb-right"
            }, row.bytes ? humanBytes(row.bytes) : ""), h("td", {
                onclick: (event)=>event.stopPropagation()
            }, h("select", {
                style: picked,
                "aria-label": `Choice for ${row.label}`,
                onchange: (event)=>model.send({
                        type: "choose",
                        id: row.id,
                        option: event.target.value
                    })
            }, row.options.map(({ name, reason })=>h("option", {
                    value: name,
                    selected: name === row.choice,
                    disabled: Boolean(reason),
                    title: reason || null
                }, reason ? `${name} (refused)` : name)))), h("td", {
                class: `wb-out-${row.outcome}`
            }, row.outcome))));
    }
    return follow(model, [
        "content",
        "selected"
    ], draw);
}
const sites = {
    render: render
};
export default sites;
