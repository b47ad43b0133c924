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
const LANE_HEIGHT = 34, BAR = 22, AXIS = 24, NAMES = 130, TICK = 60;
function render({ model, el }) {
    panel(el, "timeline");
    const head = h("p", {
        class: "wb-muted"
    }), canvas = h("canvas", {
        tabindex: "0",
        "aria-label": "Timeline of a step. Plus and minus zoom, arrows move."
    });
    const tip = h("div", {
        class: "wb-bar-tip",
        hidden: true
    }), box = h("div", {
        class: "wb-timeline-box"
    }, canvas, tip);
    const views = {
        step: h("button", {
            "aria-pressed": "true",
            onclick: ()=>look("step")
        }, "One step"),
        medians: h("button", {
            "aria-pressed": "false",
            onclick: ()=>look("medians")
        }, "Medians"),
        collectives: h("button", {
            "aria-pressed": "false",
            onclick: ()=>look("collectives")
        }, "Collectives")
    };
    const choice = h("div", {
        class: "wb-views",
        role: "group",
        "aria-label": "What is shown"
    }, Object.values(views)), trace = h("button", {
        class: "wb-perfetto",
        title: "Write what is shown as a file for ui.perfetto.dev",
        onclick: ()=>model.send({
                type: "perfetto"
            })
    }, "Write for Perfetto"), table = h("div", {
        class: "wb-scroll wb-medians",
        hidden: true
    });
    choice.append(trace);
    el.replaceChildren(head, choice, box, table);
    let shownView = "step", sorted = "seconds", bySize = "blocks_s";
    let from = 0, to = 1, drag = null, hover = null;
    const seconds = (value)=>0 === value ? "0" : value >= 1 ? `${value.toFixed(2)} s` : value >= 1e-3 ? `${(1e3 * value).toFixed(2)} ms` : `${(1e6 * value).toFixed(1)} µs`;
    const lanes = ()=>model.get("content").lanes ?? [];
    const whole = ()=>Math.max(model.get("content").step_s ?? 0, ...lanes().map(({ bars })=>bars.at(-1).end_s), 1e-9);
    const x = (time)=>NAMES + (time - from) / (to - from) * (canvas.clientWidth - NAMES - 4);
    const time = (at)=>from + (at - NAMES) / (canvas.clientWidth - NAMES - 4) * (to - from);
    function look(name) {
        shownView = name;
        draw();
    }
    function list() {
        const { medians = [], collectives = [] } = model.get("content");
        if (!({
            step: lanes(),
            medians,
            collectives
        })[shownView]?.length) shownView = "step";
        for (const [key, button] of Object.entries(views))button.setAttribute("aria-pressed", String(key === shownView));
        choice.hidden = !lanes().length && !medians.length;
        trace.hidden = Boolean(model.get("content").still);
        views.medians.hidden = !medians.length;
        views.collectives.hidden = !collectives.length;
        views.step.hidden = views.medians.hidden && views.collectives.hidden;
        const listed = {
            medians,
            collectives
        }[shownView] ?? [];
        table.hidden = !listed.length;
        if (table.hidden) return;
        if ("collectives" === shownView) listCollectives(collectives);
        else listMedians(medians);
    }
    const row = (one, ...cells)=>h("tr", {
            class: `${one.id ? "wb-can" : ""} ${one.id && (model.get("marked") ?? []).includes(one.id) ? "wb-chosen" : ""}`,
            onclick: one.id ? ()=>model.send({
                    type: "go",
                    id: one.id
                }) : null
        }, cells);
    const right = (...text)=>h("td", {
            class: "wb-right"
        }, ...text);
    function listCollectives(all) {
        const by = (key, label, title)=>h("th", {
                class: "wb-right",
                "aria-sort": bySize === key ? "descending" : null
            }, h("button", {
                class: "wb-link wb-link-words",
                title,
                onclick: ()=>{
                    bySize = key;
                    list();
                }
            }, label));
        const rows = bySize ? [
            ...all
        ].sort((a, b)=>b[bySize] - a[bySize]) : all;
        table.replaceChildren(h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "collective"), h("th", {}, "value"), h("th", {}, "place"), h("th", {}, "side"), by("bytes", "bytes", "Of the result, the largest first"), by("seconds", "simulated duration", "On its stream, the longest first"), h("th", {
            class: "wb-right",
            title: "Kernels between the issue and the wait: without any, the collective cannot overlap with compute"
        }, "kernels beside it"), by("blocks_s", "simulated exposed time", "Compute waits for it, the longest first"))), h("tbody", {}, rows.map((one)=>row(one, h("td", {}, h("code", {}, one.name)), h("td", {}, h("code", {}, one.value)), h("td", {}, h("code", {
                class: "wb-muted"
            }, one.place)), h("td", {}, one.side), right(humanBytes(one.bytes)), right(seconds(one.seconds)), right(null === one.kernels ? "no wait" : String(one.kernels)), h("td", {
                class: `wb-right ${one.blocks_s ? "wb-bad" : ""}`
            }, seconds(one.blocks_s)))))));
    }
    function listMedians(medians) {
        const rows = sorted ? [
            ...medians
        ].sort((a, b)=>b[sorted] - a[sorted]) : medians, sum = medians.reduce((all, row)=>all + row.seconds, 0) || 1;
        const by = (key, label, title)=>h("th", {
                class: key ? "wb-right" : null,
                "aria-sort": sorted === key && key ? "descending" : null
            }, h("button", {
                class: "wb-link wb-link-words",
                title,
                onclick: ()=>{
                    sorted = key;
                    list();
                }
            }, label));
        table.replaceChildren(h("table", {}, h("thead", {}, h("tr", {}, by("", "statement", "In the order of the program"), h("th", {}, "side"), h("th", {}, "source"), by("seconds", "median", "Of the statement, the longest first"), h("th", {
            class: "wb-right"
        }, "share"), by("free_s", "freeing", "Time of the deletions after the statement, where they were measured separately"))), h("tbody", {}, rows.map((one)=>row(one, h("td", {}, h("code", {}, one.name)), h("td", {}, one.side), h("td", {}, h("code", {
                class: "wb-muted"
            }, one.tip)), right(seconds(one.seconds)), right(`${(100 * one.seconds / sum).toFixed(1)} %`), right(one.free_s ? seconds(one.free_s) : ""))))));
    }
    function view(start, span) {
        const all = whole(), width = Math.min(all, Math.max(all / 5000, span));
        from = Math.max(0, Math.min(start, all - width));
        to = from + width;
        draw();
    }
    function draw() {
        const marked = new Set(model.get("marked") ?? []), width = canvas.clientWidth, shown = lanes(), height = AXIS + shown.length * LANE_HEIGHT, ratio = window.devicePixelRatio || 1;
        list();
        box.hidden = !shown.length || "step" !== shownView;
        if (!width || !shown.length) return;
        canvas.style.height = `${height}px`;
        canvas.width = width * ratio;
        canvas.height = height * ratio;
        const c = canvas.getContext("2d"), style = getComputedStyle(el), color = (name)=>style.getPropertyValue(`--wb-${name}`).trim();
        c.scale(ratio, ratio);
        c.textBaseline = "middle";
        c.font = `11px ${color("sans")}`;
        const most = Math.min(7, (width - NAMES) / TICK), step = 10 ** Math.floor(Math.log10((to - from) / 3));
        const tick = [
            1,
            2,
            5,
            10,
            20
        ].map((by)=>by * step).find((by)=>(to - from) / by <= most) ?? 50 * step;
        for(let at = Math.ceil(from / tick) * tick; at <= to; at += tick){
            c.fillStyle = color("hair");
            c.fillRect(Math.round(x(at)), AXIS - 6, 1, height);
            c.fillStyle = color("muted");
            const label = seconds(at).replace(/\.?0+(?= )/, "");
            if (x(at) + 3 + c.measureText(label).width <= width) c.fillText(label, x(at) + 3, AXIS / 2 - 2);
        }
        shown.forEach(({ name, kind, bars }, lane)=>{
            const top = AXIS + lane * LANE_HEIGHT + (LANE_HEIGHT - BAR) / 2;
            c.save();
            c.beginPath();
            c.rect(NAMES, 0, width - NAMES, height);
            c.clip();
            let edge = -1;
            for (const bar of bars){
                const left = x(bar.start_s), right = x(bar.end_s);
                if (right < NAMES || left > width || right - edge < 0.35) continue;
                const wide = Math.max(0.75, right - left - 0.5);
                edge = right;
                const what = bar.kind ?? kind;
                c.fillStyle = color("forward" === what ? "accent" : "backward" === what ? "again" : "away");
                c.globalAlpha = bar === hover ? 1 : 0.72;
                c.fillRect(left, top, wide, BAR);
                c.globalAlpha = 1;
                if (bar.id && marked.has(bar.id)) {
                    c.fillStyle = color("ink");
                    c.fillRect(left, top - 4, Math.max(3, wide), 3);
                    c.fillRect(left, top + BAR + 1, Math.max(3, wide), 3);
                }
                if (wide > 26) {
                    c.save();
                    c.beginPath();
                    c.rect(left, top, wide, BAR);
                    c.clip();
                    c.fillStyle = color("paper");
                    c.fillText(bar.name, Math.max(left, NAMES) + 4, top + BAR / 2);
                    c.restore();
                }
            }
            c.restore();
            c.fillStyle = color("ink");
            c.fillText(name, 0, top + BAR / 2);
        });
    }
    function at(event) {
        const place = canvas.getBoundingClientRect(), lane = lanes()[Math.floor((event.clientY - place.top - AXIS) / LANE_HEIGHT)];
        const moment = time(event.clientX - place.left), slack = 2 / canvas.clientWidth * (to - from);
        return event.clientX - place.left < NAMES ? null : lane?.bars.find((bar)=>moment >= bar.start_s - slack && moment <= bar.end_s + slack) ?? null;
    }
    canvas.addEventListener("wheel", (event)=>{
        if (!event.ctrlKey && !event.metaKey && !event.deltaX) return;
        event.preventDefault();
        const anchor = time(event.offsetX), by = event.ctrlKey || event.metaKey ? Math.exp(0.003 * event.deltaY) : 1;
        view(anchor - (anchor - from) * by + event.deltaX / canvas.clientWidth * (to - from), (to - from) * by);
    }, {
        passive: false
    });
    canvas.addEventListener("pointerdown", (event)=>{
        drag = {
            x: event.clientX,
            from,
            moved: false
        };
        canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event)=>{
        if (drag) {
            if (Math.abs(event.clientX - drag.x) > 3) drag.moved = true;
            if (drag.moved) view(drag.from - (event.clientX - drag.x) / (canvas.clientWidth - NAMES) * (to - from), to - from);
            return;
        }
        const found = at(event);
        if (found === hover) return;
        hover = found;
        tip.hidden = !hover;
        canvas.style.cursor = hover?.id ? "pointer" : "";
        if (hover) {
            tip.replaceChildren(h("b", {}, hover.name), ` ${seconds(hover.end_s - hover.start_s)}${hover.free_s ? `, ${seconds(hover.free_s)} of it freeing` : ""}`, hover.tip && h("div", {
                class: "wb-muted"
            }, hover.tip));
            const panelBox = (el.closest(".widget-tab-contents") ?? el).getBoundingClientRect(), frame = box.getBoundingClientRect();
            const below = event.offsetY + 16, above = event.offsetY - tip.offsetHeight - 8;
            tip.style.left = `${Math.max(0, Math.min(event.offsetX + 12, box.clientWidth - tip.offsetWidth - 2))}px`;
            tip.style.top = `${frame.top + below + tip.offsetHeight > panelBox.bottom && frame.top + above >= panelBox.top ? above : below}px`;
        }
        draw();
    });
    canvas.addEventListener("pointerup", (event)=>{
        const moved = drag?.moved, found = at(event);
        drag = null;
        if (!moved && found?.id) model.send({
            type: "go",
            id: found.id
        });
    });
    canvas.addEventListener("pointerleave", ()=>{
        hover = null;
        tip.hidden = true;
        draw();
    });
    canvas.addEventListener("dblclick", ()=>view(0, whole()));
    canvas.addEventListener("keydown", (event)=>{
        const span = to - from, middle = (from + to) / 2;
        const act = {
            "+": ()=>view(middle - span / 3, span / 1.5),
            "-": ()=>view(middle - 0.75 * span, 1.5 * span),
            ArrowLeft: ()=>view(from - span / 5, span),
            ArrowRight: ()=>view(from + span / 5, span),
            f: ()=>view(0, whole())
        }[event.key];
        if (act && isPlainKey(event)) {
            event.preventDefault();
            event.stopPropagation();
            act();
        }
    });
    const sizes = new ResizeObserver(draw);
    sizes.observe(box);
    const stop = follow(model, [
        "content"
    ], ()=>{
        head.textContent = `${model.get("content").head ?? ""}${lanes().length ? `. ${model.get("content").says}. Ctrl + wheel zooms, dragging moves.` : ""}`;
        from = 0;
        to = lanes().length ? whole() : 1;
        hover = null;
        draw();
    });
    model.on("change:marked", draw);
    return ()=>{
        sizes.disconnect();
        stop();
        model.off("change:marked", draw);
    };
}
const timeline_tab = {
    render: render
};
export default timeline_tab;
