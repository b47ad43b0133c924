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
function previews(model) {
    let timer = 0, asked = "null";
    return (message)=>{
        clearTimeout(timer);
        const key = JSON.stringify(message);
        timer = window.setTimeout(()=>{
            if (key === asked) return;
            asked = key;
            model.send({
                type: "preview",
                ...message
            });
        }, message ? 120 : 300);
    };
}
function previewed(model, el) {
    const ask = previews(model);
    const at = (target)=>target?.closest?.("[data-preview]")?.dataset.preview;
    let still = false;
    const show = (target)=>{
        if (still) return;
        const found = at(target) ?? at(el.contains(document.activeElement) ? document.activeElement : null);
        ask(found ? JSON.parse(found) : null);
    };
    el.addEventListener("pointerover", (event)=>show(event.target));
    el.addEventListener("pointerleave", ()=>{
        still = false;
        show(null);
    });
    el.addEventListener("click", ()=>{
        ask(null);
        still = true;
    }, true);
    el.addEventListener("pointermove", (event)=>{
        if (still && (event.movementX || event.movementY)) {
            still = false;
            show(event.target);
        }
    });
    el.addEventListener("focusin", (event)=>show(event.target));
    el.addEventListener("focusout", (event)=>{
        if (!el.contains(event.relatedTarget)) ask(null);
    });
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
    panel(el, "chosen");
    previewed(model, el);
    const count = h("span", {
        class: "wb-muted",
        role: "status"
    });
    const revert = (choices)=>({
            "data-preview": JSON.stringify({
                choices
            }),
            onclick: (event)=>{
                event.stopPropagation();
                model.send({
                    type: "revert",
                    choices
                });
            }
        });
    const release = (sites)=>({
            title: "Let a fit change it",
            onclick: (event)=>{
                event.stopPropagation();
                model.send({
                    type: "release",
                    sites
                });
            }
        });
    const all = h("div", {
        class: "wb-row"
    }), body = h("tbody");
    const table = scrolled("Choices in force", h("table", {}, h("thead", {}, h("tr", {}, [
        "lever",
        "choice",
        "where",
        "source"
    ].map((name)=>h("th", {}, name)), h("th", {
        class: "wb-right"
    }, "size"), h("th", {}, "made"), h("th", {}, h("span", {
        class: "wb-unseen"
    }, "revert")))), body));
    el.replaceChildren(all, table);
    function draw() {
        const { rows = [] } = model.get("content"), selected = model.get("selected");
        const made = rows.filter((row)=>!row.default), kept = rows.filter((row)=>row.default);
        const countOf = (of)=>of.reduce((sum, { ids })=>sum + ids.length, 0), sites = countOf(made), defaults = countOf(kept), back = Object.assign({}, ...made.map((row)=>row.revert));
        count.textContent = (sites ? `${sites} choice${1 === sites ? "" : "s"} in force` : "No choices: the plan is as in unmodified Thunder.") + (defaults ? ` ${sites ? "· " : ""}A fit keeps ${defaults} default${1 === defaults ? "" : "s"} chosen by hand.` : "");
        table.hidden = !rows.length;
        all.replaceChildren(count, ...made.length ? [
            h("button", revert(back), "Revert all")
        ] : []);
        body.replaceChildren(...rows.map((row)=>h("tr", {
                class: `wb-can ${row.ids.includes(selected) ? "wb-chosen" : ""}`,
                "data-site": row.id,
                onclick: ()=>model.send({
                        type: "go",
                        id: row.id
                    })
            }, h("td", {}, row.lever), h("td", {
                class: "wb-wide"
            }, h("strong", {}, row.option), row.default && h("span", {
                class: "wb-muted"
            }, " (default)"), " ", h("button", {
                class: "wb-link",
                title: row.ids.join("\n")
            }, inParts(row.label)), row.outcome && h("div", {
                class: "wb-reason"
            }, `in effect: ${row.outcome}`)), h("td", {}, row.where), h("td", {
                class: "wb-wide"
            }, h("code", {
                class: "wb-muted",
                title: row.source
            }, row.source)), h("td", {
                class: "wb-right"
            }, row.bytes ? humanBytes(row.bytes) : ""), h("td", {
                class: "wb-muted"
            }, row.by), h("td", {}, row.default ? h("button", {
                ...release(row.ids),
                "aria-label": `Release ${row.option} for ${row.label}`
            }, "Release") : h("button", {
                ...revert(row.revert),
                "aria-label": `Revert ${row.option} for ${row.label}`
            }, "Revert")))));
    }
    return follow(model, [
        "content",
        "selected"
    ], draw);
}
const chosen = {
    render: render
};
export default chosen;
