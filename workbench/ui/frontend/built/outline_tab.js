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
function isPlainKey(event) {
    return !event.ctrlKey && !event.altKey && !event.metaKey;
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
const COLUMNS = [
    [
        "saved_bytes",
        "saved",
        humanBytes
    ],
    [
        "peak_bytes",
        "at the peak",
        humanBytes
    ],
    [
        "step_s",
        "time, predicted",
        shortTime
    ],
    [
        "choices",
        "choices",
        String
    ]
];
function shortTime(seconds) {
    const [scale, unit] = seconds >= 1 ? [
        1,
        "s"
    ] : seconds >= 1e-3 ? [
        1e3,
        "ms"
    ] : [
        1e6,
        "µs"
    ];
    return `${(seconds * scale).toPrecision(3)} ${unit}`;
}
function widthBar(el) {
    const kept = "thunder-workbench:outline-width", least = 260, step = 24;
    const bar = h("div", {
        class: "wb-edge",
        tabindex: "0",
        role: "separator",
        "aria-orientation": "vertical",
        "aria-label": "Width of the outline",
        title: "Drag, or use the arrow keys; double-click for the default width"
    });
    const put = (width)=>{
        if (Number.isNaN(width)) el.style.removeProperty("--wb-outline");
        else el.style.setProperty("--wb-outline", `${Math.max(least, Math.round(width))}px`);
        bar.setAttribute("aria-valuenow", String(Math.round(el.offsetWidth)));
        try {
            if (Number.isNaN(width)) localStorage.removeItem(kept);
            else localStorage.setItem(kept, String(Math.max(least, Math.round(width))));
        } catch  {}
    };
    try {
        put(Number.parseFloat(localStorage.getItem(kept) ?? ""));
    } catch  {}
    bar.addEventListener("pointerdown", (event)=>{
        event.preventDefault();
        bar.focus();
        bar.setPointerCapture(event.pointerId);
    });
    bar.addEventListener("pointermove", (event)=>{
        if (bar.hasPointerCapture(event.pointerId)) put(event.clientX - el.getBoundingClientRect().left);
    });
    bar.addEventListener("dblclick", ()=>put(0 / 0));
    bar.addEventListener("keydown", (event)=>{
        const by = {
            ArrowLeft: -step,
            ArrowRight: step
        }[event.key];
        if (void 0 === by || !isPlainKey(event)) return;
        event.preventDefault();
        event.stopPropagation();
        put(el.offsetWidth + by);
    });
    return bar;
}
function standBeside(model, el) {
    const kept = "thunder-workbench:outline";
    let open = false, seen = false;
    try {
        open = "open" === localStorage.getItem(kept);
    } catch  {}
    const mark = h("span", {
        "aria-hidden": "true"
    });
    const button = h("button", {
        class: "wb-beside-bar",
        title: "The program's source, beside the graph",
        onclick: ()=>{
            open = !open;
            try {
                localStorage.setItem(kept, open ? "open" : "closed");
            } catch  {}
            put();
        }
    }, mark, h("span", {}, "Outline"));
    const tell = (now)=>{
        if (now === seen) return;
        seen = now;
        model.set("looked_at", now);
        model.save_changes();
    };
    const put = ()=>{
        el.classList.toggle("wb-open", open);
        button.setAttribute("aria-expanded", String(open));
        mark.textContent = open ? "◂ " : "▸ ";
        tell(open && el.offsetWidth > 0);
    };
    el.classList.add("wb-beside");
    const edge = widthBar(el);
    el.prepend(button, edge);
    const watch = new ResizeObserver(()=>put());
    watch.observe(el);
    put();
    return ()=>{
        watch.disconnect();
        tell(false);
    };
}
function render({ model, el }) {
    panel(el, "outline");
    previewed(model, el);
    const opened = new Map();
    let order = "", active = "", asked = "", awaited = "", rows = [], inside = new Map(), shown = [];
    const act = h("div", {
        class: "wb-row wb-act"
    });
    const head = h("div", {
        class: "wb-tree-row wb-tree-head",
        role: "row"
    });
    const body = h("div", {
        class: "wb-scroll wb-tree",
        role: "treegrid",
        "aria-label": "The program, part by part",
        onkeydown: (event)=>key(event)
    });
    el.replaceChildren(act, body);
    const indent = model.get("beside") ? 8 : 16;
    const leave = model.get("beside") ? standBeside(model, el) : ()=>{};
    const isOpen = (row)=>opened.get(row.key) ?? ("module" === row.kind && row.depth < 2);
    const go = (row)=>{
        active = row.key;
        asked = row.id;
        if (row.id) model.send({
            type: "go",
            id: row.id
        });
        draw(true);
    };
    const toggle = (row, open)=>{
        opened.set(row.key, open);
        if (open) model.send({
            type: "open",
            key: row.key
        });
        draw(true);
    };
    function listed(parent, into) {
        const here = [
            ...inside.get(parent) ?? []
        ];
        if (order) here.sort((a, b)=>rows[b][order] - rows[a][order]);
        for (const number of here){
            into.push(number);
            if (isOpen(rows[number])) listed(number, into);
        }
        return into;
    }
    function key(event) {
        const at = shown.findIndex((number)=>rows[number].key === active), row = rows[shown[at]];
        const to = (place)=>{
            active = rows[shown[Math.max(0, Math.min(shown.length - 1, place))]].key;
            draw(true);
        };
        if (!row || event.target.closest("button")) return;
        const children = row.leads;
        const keys = {
            ArrowDown: ()=>to(at + 1),
            ArrowUp: ()=>to(at - 1),
            Home: ()=>to(0),
            End: ()=>to(shown.length - 1),
            ArrowRight: ()=>children && !isOpen(row) ? toggle(row, true) : to(at + 1),
            ArrowLeft: ()=>children && isOpen(row) ? toggle(row, false) : row.parent >= 0 && to(shown.indexOf(row.parent)),
            Enter: ()=>go(row),
            " ": ()=>go(row)
        };
        if (!keys[event.key] || !isPlainKey(event)) return;
        event.preventDefault();
        keys[event.key]();
    }
    function cell(row, [name, , write], most) {
        if ("choices" === name) return h("span", {
            role: "gridcell",
            class: "wb-num"
        }, row.choices ? `${row.made ? `${row.made} of ` : ""}${row.choices}` : "");
        return h("span", {
            role: "gridcell",
            class: "wb-num"
        }, row[name] ? write(row[name]) : "", row[name] > 0 && h("i", {
            "aria-hidden": "true",
            style: `width:${Math.max(2, 70 * row[name] / most)}px`
        }));
    }
    function draw(focus = false) {
        const content = model.get("content"), selected = model.get("selected");
        rows = content.parts ?? [];
        inside = new Map();
        rows.forEach((row, number)=>{
            if (inside.has(row.parent)) inside.get(row.parent).push(number);
            else inside.set(row.parent, [
                number
            ]);
        });
        shown = listed(-1, []);
        if (!shown.some((number)=>rows[number].key === active)) active = shown.length ? rows[shown[0]].key : "";
        const most = Object.fromEntries(COLUMNS.map(([name])=>[
                name,
                Math.max(1e-12, ...(inside.get(-1) ?? []).map((number)=>rows[number][name]))
            ]));
        head.replaceChildren(h("span", {
            role: "columnheader"
        }, h("button", {
            class: "wb-sort",
            onclick: ()=>{
                order = "";
                draw();
            }
        }, "program", h("span", {
            "aria-hidden": "true"
        }, order ? "" : " ▾"))), ...COLUMNS.map(([name, title])=>h("span", {
                role: "columnheader",
                class: "wb-num",
                "aria-sort": name === order ? "descending" : "none"
            }, h("button", {
                class: "wb-sort",
                title: "step_s" === name && content.machine ? `by ${content.machine}'s rates` : null,
                onclick: ()=>{
                    order = name;
                    draw();
                }
            }, title, h("span", {
                "aria-hidden": "true"
            }, name === order ? " ▾" : "")))));
        body.replaceChildren(head, ...shown.map((number)=>{
            const row = rows[number], parent = row.leads;
            const chosen = Boolean(row.id) && row.id === selected && (row.key === active || "statement" === row.kind);
            return h("div", {
                role: "row",
                class: `wb-tree-row wb-can wb-tree-${row.kind} ${chosen ? "wb-chosen" : ""}`,
                "data-key": row.key,
                tabindex: row.key === active ? "0" : "-1",
                "aria-level": String(row.depth + 1),
                "aria-expanded": parent ? String(isOpen(row)) : null,
                "aria-selected": String(chosen),
                onclick: ()=>go(row)
            }, h("span", {
                role: "gridcell",
                class: "wb-tree-name",
                style: `padding-left:${row.depth * indent}px`,
                title: [
                    row.label,
                    row.source
                ].filter(Boolean).join("  ")
            }, h("span", {
                class: "wb-twist",
                "aria-hidden": "true",
                onclick: (event)=>{
                    if (parent) {
                        event.stopPropagation();
                        active = row.key;
                        toggle(row, !isOpen(row));
                    }
                }
            }, parent ? isOpen(row) ? "▾" : "▸" : ""), row.label, "statement" === row.kind ? h("span", {
                class: "wb-muted"
            }, ` ${row.side}`) : row.source && h("span", {
                class: "wb-muted"
            }, ` ${row.source}`)), COLUMNS.map((column)=>cell(row, column, most[column[0]])));
        }));
        const here = rows.find((row)=>row.key === active), turns = here?.turns.filter(({ count })=>count) ?? [];
        act.replaceChildren(h("span", {
            class: "wb-act-name",
            title: here?.label ?? ""
        }, "In ", h("code", {}, here?.label ?? "")), ...turns.map(({ option, count })=>h("button", {
                title: "Undo takes all of it back",
                "data-preview": JSON.stringify({
                    key: here.key,
                    option
                }),
                onclick: ()=>model.send({
                        type: "choose_in",
                        key: here.key,
                        option
                    })
            }, `${"stock" === option ? "back to the default" : option} × ${count}`)), turns.length ? "" : h("span", {
            class: "wb-muted"
        }, "nothing else can be chosen"));
        if (focus) body.querySelector(`[data-key="${CSS.escape(active)}"]`)?.focus();
    }
    function follow_selection() {
        const selected = model.get("selected");
        if (selected && asked !== selected) {
            const found = rows.findLast((row)=>row.id === selected && "statement" === row.kind);
            awaited = found ? "" : selected;
            for(let at = found; at && at.parent >= 0; at = rows[at.parent])opened.set(rows[at.parent].key, true);
            if (found) active = found.key;
        }
        asked = "";
        draw();
        if (selected) body.querySelector(`[data-key="${CSS.escape(active)}"]`)?.scrollIntoView({
            block: "nearest"
        });
    }
    const redraw = ()=>{
        draw(body.contains(document.activeElement));
        if (awaited && awaited === model.get("selected") && !asked && rows.some(({ id, kind })=>id === awaited && "statement" === kind)) follow_selection();
    };
    const ends = [
        follow(model, [
            "content"
        ], redraw),
        follow(model, [
            "selected"
        ], follow_selection)
    ];
    return ()=>[
            leave,
            ...ends
        ].forEach((end)=>end());
}
const outline_tab = {
    render: render
};
export default outline_tab;
