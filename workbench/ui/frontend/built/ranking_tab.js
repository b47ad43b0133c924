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
const SETTLED = 200;
const MOST = 200;
const FIGURES = [
    [
        "peak_bytes",
        "peak",
        humanBytes
    ],
    [
        "saved_bytes",
        "saved",
        humanBytes
    ],
    [
        "step_s",
        "step, predicted",
        humanTime
    ]
];
function humanTime(seconds) {
    const size = Math.abs(seconds);
    const [scale, unit] = size >= 1 ? [
        1,
        "s"
    ] : size >= 1e-3 ? [
        1e3,
        "ms"
    ] : [
        1e6,
        "µs"
    ];
    const value = size * scale;
    return `${value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2)} ${unit}`;
}
function render({ model, el }) {
    panel(el, "worth");
    previewed(model, el);
    const search = h("input", {
        type: "search",
        placeholder: "Search choices",
        title: "Layer, symbol, source, option",
        "aria-label": "Search choices",
        spellcheck: "false",
        oninput: ()=>draw()
    });
    const lever = h("select", {
        "aria-label": "Lever",
        onchange: ()=>draw()
    });
    const lowers = h("input", {
        type: "checkbox",
        onchange: ()=>draw()
    });
    const count = h("span", {
        class: "wb-muted wb-count",
        role: "status"
    });
    const all = h("button", {
        class: "wb-all",
        title: "Choose for each site its listed option with the largest gain: peak, then saved bytes, then step. Options that gain nothing are left out. Undo takes all back",
        onclick: ()=>model.send({
                type: "choose_all",
                choices: listed()
            })
    }, "Choose all listed");
    const head = h("tr", {}), body = h("tbody");
    el.replaceChildren(h("div", {
        class: "wb-row"
    }, search, lever, h("label", {
        class: "wb-check"
    }, lowers, "only what lowers the peak"), all, count), scrolled("Single choices and what they change", h("table", {}, h("thead", {}, head), body)));
    let order = "peak_bytes", upward = true, found = [];
    function listed() {
        const best = new Map();
        const loses = (row)=>void 0 !== row.peak_bytes && byGain(row, {
                peak_bytes: 0,
                saved_bytes: 0,
                step_s: 1e-9
            }) > 0;
        for (const row of found)if (!("refused" === row.state || loses(row))) {
            for (const id of Object.keys(row.choices))if (!best.has(id) || byGain(row, best.get(id)) < 0) best.set(id, row);
        }
        return Object.fromEntries([
            ...best
        ].map(([id, row])=>[
                id,
                row.choices[id]
            ]));
    }
    const byGain = (a, b)=>(a.peak_bytes ?? 1 / 0) - (b.peak_bytes ?? 1 / 0) || (a.saved_bytes ?? 0) - (b.saved_bytes ?? 0) || (a.step_s ?? 0) - (b.step_s ?? 0);
    const size = (row)=>"label" === order ? row.label : row[order] ?? 1 / 0;
    function compare(a, b) {
        const [x, y] = [
            size(a),
            size(b)
        ];
        const first = x < y ? -1 : x > y ? 1 : 0;
        return (upward ? first : -first) || (a.saved_bytes ?? 0) - (b.saved_bytes ?? 0) || (a.step_s ?? 0) - (b.step_s ?? 0);
    }
    const heading = (key, name, right)=>h("th", {
            class: right ? "wb-right" : null,
            "aria-sort": key === order ? upward ? "ascending" : "descending" : "none"
        }, h("button", {
            class: "wb-sort",
            onclick: ()=>{
                [order, upward] = [
                    key,
                    key === order ? !upward : true
                ];
                draw();
            }
        }, name, h("span", {
            "aria-hidden": "true"
        }, key === order ? upward ? " ▴" : " ▾" : "")));
    function figure(row, key, write, most) {
        if (void 0 === row[key]) return h("td", {
            class: "wb-right wb-muted"
        }, "peak_bytes" === key ? "refused" === row.state ? "refused" : "pending" : "");
        const by = row[key], about = "estimated" === row.state && "step_s" !== key ? "≈\u00a0" : "";
        const share = Math.min(100, 100 * Math.abs(by) / most);
        const nothing = "step_s" === key ? Math.abs(by) < 1e-9 : 0 === by;
        return h("td", {
            class: "wb-gain"
        }, h("span", {
            class: nothing ? "wb-muted" : by < 0 ? "wb-good" : "wb-bad"
        }, nothing ? `${about}no change` : `${about}${by < 0 ? "−" : "+"}${write(Math.abs(by))}`), h("i", {
            class: by < 0 ? "wb-less" : "wb-more",
            style: `width:${nothing ? 0 : Math.max(2, 0.7 * share)}px`,
            "aria-hidden": "true"
        }));
    }
    function draw() {
        const { rows = [], left = 0, machine = "" } = model.get("content"), selected = model.get("selected");
        const levers = [
            "",
            ...new Set(rows.map((row)=>row.lever))
        ], chosen = lever.value;
        lever.replaceChildren(...levers.map((name)=>h("option", {
                value: name,
                selected: name === chosen
            }, name || "all levers")));
        const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
        found = rows.filter((row)=>(!lever.value || row.lever === lever.value) && (!lowers.checked || row.peak_bytes < 0) && words.every((word)=>`${row.id} ${row.about} ${row.source} ${row.option}`.toLowerCase().includes(word))).sort(compare);
        const most = Object.fromEntries(FIGURES.map(([key])=>[
                key,
                Math.max(1e-12, ...rows.map((row)=>Math.abs(row[key] ?? 0)))
            ]));
        const held = document.activeElement?.closest?.("tr, th")?.dataset?.key;
        head.replaceChildren(...FIGURES.map(([key, name])=>heading(key, name, true)), heading("label", "choice", false), h("th", {}, "source"), h("th", {}, h("span", {
            class: "wb-unseen"
        }, "choose")));
        const choices = listed(), sites = Object.keys(choices).length;
        all.disabled = !sites;
        all.textContent = `Choose all listed (${sites} site${1 === sites ? "" : "s"})`;
        all.dataset.preview = JSON.stringify({
            choices
        });
        count.textContent = machine || rows.length ? `${found.length < rows.length ? `${found.length} of ` : ""}${rows.length} choices${left ? `, ${left} more plan${1 === left ? "" : "s"} to compute` : ""}${rows.some((row)=>"estimated" === row.state) ? "; ≈\u00a0estimated" : ""}${machine ? `; step times: ${machine}` : ""}` : "computing…";
        count.title = "≈: estimated from the trace before fusion; the plan may differ a little";
        body.replaceChildren(...found.slice(0, MOST).map((row)=>h("tr", {
                class: `wb-can ${row.id === selected ? "wb-chosen" : ""}`,
                "data-site": row.id,
                "data-option": row.option,
                "data-key": `${row.id} ${row.option}`,
                onclick: ()=>model.send({
                        type: "go",
                        id: row.id
                    })
            }, FIGURES.map(([key, , write])=>figure(row, key, write, most[key])), h("td", {
                class: "wb-wide"
            }, h("div", {
                class: "wb-name"
            }, h("strong", {}, row.option), h("button", {
                class: "wb-link",
                title: row.about === row.label ? row.id : `${row.id}\n${row.about}`
            }, row.label), row.count > 1 && h("span", {}, `× ${row.count}`)), row.why && h("div", {
                class: "wb-reason"
            }, row.why)), h("td", {
                class: "wb-wide"
            }, h("code", {
                class: "wb-muted",
                title: row.source
            }, row.source)), h("td", {}, h("button", {
                disabled: "refused" === row.state,
                "data-preview": JSON.stringify({
                    choices: row.choices
                }),
                "aria-label": `Choose ${row.option} for ${row.label}`,
                onclick: (event)=>{
                    event.stopPropagation();
                    model.send({
                        type: "choose_all",
                        choices: row.choices
                    });
                }
            }, "Choose")))));
        if (held) body.querySelector(`[data-key="${CSS.escape(held)}"] button`)?.focus();
    }
    let timer = 0;
    const stop = new AbortController();
    addEventListener("scroll", (event)=>{
        if (!(event.target instanceof Element) || !event.target.contains(body)) return;
        const sight = event.target.getBoundingClientRect();
        clearTimeout(timer);
        timer = window.setTimeout(()=>{
            const rows = Array.from(body.rows).filter((row)=>{
                const { top, bottom } = row.getBoundingClientRect();
                return bottom > sight.top && top < sight.bottom;
            });
            const open = rows.map((row)=>found.find(({ id, option })=>`${id} ${option}` === row.dataset.key)).filter((row)=>row && ("open" === row.state || "estimated" === row.state));
            if (open.length) model.send({
                type: "compute",
                rows: open.map(({ id, option })=>({
                        id,
                        option
                    }))
            });
        }, SETTLED);
    }, {
        capture: true,
        passive: true,
        signal: stop.signal
    });
    const end = follow(model, [
        "content",
        "selected"
    ], draw);
    return ()=>{
        stop.abort();
        clearTimeout(timer);
        end();
    };
}
const ranking_tab = {
    render: render
};
export default ranking_tab;
