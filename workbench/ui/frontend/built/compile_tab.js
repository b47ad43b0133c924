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
const PARTS = [
    "definition",
    "Dynamo",
    "AOTAutograd",
    "Inductor",
    "kernels",
    "segmentation",
    "NVRTC",
    "first launch"
];
function render({ model, el }) {
    panel(el, "compile");
    const head = h("div", {
        class: "wb-compile-head",
        role: "status"
    }), legend = h("div", {
        class: "wb-legend"
    }), body = h("div", {
        class: "wb-waterfall"
    });
    const box = scrolled("Waterfall of the compilation", body);
    el.replaceChildren(head, legend, box);
    let received = 0, ticking = 0, colors = new Map();
    const seconds = (value)=>value >= 1 ? `${value.toFixed(2)} s` : value >= 0.001 ? `${(1000 * value).toFixed(value < 0.01 ? 1 : 0)} ms` : `${(1e6 * value).toFixed(0)} µs`;
    const color = (part)=>`var(--wb-part-${colors.get(part) ?? 0})`;
    function words() {
        const { state, cannot_run: never, open, fusions, hidden, cached, attributed, seconds: spent } = model.get("content");
        const far = "busy" === state ? spent + (performance.now() - received) / 1000 : spent;
        if ("none" === state) return [
            never || "Nothing was compiled yet. Compile & run shows here where the time goes, while it happens."
        ];
        const told = [
            h("strong", {}, {
                busy: "Compiling",
                done: "Compiled",
                failed: "Failed",
                cancelled: "Cancelled",
                finished: "Compiled"
            }[state]),
            ` ${"busy" === state ? "for" : "in"} ${seconds(far)}`
        ];
        if (open) told.push(`, now fusion ${open.index + 1} of ${open.count}: `, h("code", {}, open.name), ` for ${seconds(Math.max(0, far - open.start_s))}, ${open.count - open.index - 1} left`);
        else if (fusions) told.push(`, ${fusions} fusion${1 === fusions ? "" : "s"}`);
        if (cached) told.push(`, ${cached} from a cache`);
        if (hidden) told.push(`, the ${fusions - hidden} longest shown`);
        if (null != attributed) told.push(h("span", {
            class: "wb-muted"
        }, `  ·  ${(100 * attributed).toFixed(1)} % attributed, measured`));
        return told;
    }
    function draw() {
        const content = model.get("content"), { rows, state, open } = content;
        received = performance.now();
        const seen = new Set(rows.flatMap((row)=>"fusion" === row.kind ? row.pieces.map(({ part })=>part) : []).filter(Boolean));
        colors = new Map([
            ...PARTS.filter((part)=>seen.has(part)),
            ...[
                ...seen
            ].filter((part)=>!PARTS.includes(part))
        ].map((part, i)=>[
                part,
                i % 6 + 1
            ]));
        legend.replaceChildren(...[
            ...colors.keys()
        ].map((part)=>h("span", {}, h("i", {
                style: `background:${color(part)}`
            }), part)));
        const all = open ? [
            ...rows,
            {
                name: open.name,
                kind: "fusion",
                open: true,
                seconds: 0,
                pieces: [
                    {
                        part: "",
                        start_s: open.start_s,
                        end_s: content.seconds
                    }
                ]
            }
        ] : rows;
        const most = Math.max(1e-6, content.seconds);
        body.replaceChildren(...all.map((row)=>h("div", {
                class: `wb-fall wb-fall-${row.kind} ${row.open ? "wb-open" : ""}`,
                "data-row": row.name
            }, h("span", {
                class: "wb-fall-name",
                title: row.name
            }, row.name, row.cached && h("span", {
                class: "wb-tag"
            }, "cached")), h("span", {
                class: "wb-fall-time"
            }, row.open ? "…" : seconds(row.seconds)), h("span", {
                class: "wb-fall-track"
            }, row.pieces.map(({ part, start_s, end_s })=>h("i", {
                    title: `${row.name}${part ? `, ${part}` : ""}: ${seconds(end_s - start_s)} from ${seconds(start_s)}`,
                    style: `left:${100 * start_s / most}%;width:max(1px, ${100 * (end_s - start_s) / most}%);background:${"stage" === row.kind ? "var(--wb-part-stage)" : color(part)}`
                }))))));
        box.hidden = !all.length;
        head.replaceChildren(...words());
        clearInterval(ticking);
        if ("busy" !== state && "busy" === el.dataset.state) box.scrollTop = 0;
        el.dataset.state = state;
        if ("busy" === state) {
            box.scrollTop = box.scrollHeight;
            ticking = setInterval(()=>head.replaceChildren(...words()), 100);
        }
    }
    const stop = follow(model, [
        "content"
    ], draw);
    return ()=>{
        clearInterval(ticking);
        stop();
    };
}
const compile_tab = {
    render: render
};
export default compile_tab;
