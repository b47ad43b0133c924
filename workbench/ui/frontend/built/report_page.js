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
const DASHES = [
    [],
    [
        6,
        3
    ],
    [
        2,
        3
    ],
    [
        9,
        3,
        2,
        3
    ]
];
const OFFLOADED = 2;
const MONO = '"JetBrains Mono", "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace';
const SANS = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial, sans-serif';
const LIGHT = {
    paper: "#ffffff",
    ink: "#1f2328",
    muted: "#59636e",
    hair: "#e6e9ed",
    rule: "#d0d7de",
    band: "#f6f8fa",
    fills: [
        "#e9f1fb",
        "#fcefe6"
    ],
    strokes: [
        "#bfd3ec",
        "#eccfb9"
    ],
    texts: [
        "#16406f",
        "#703510"
    ],
    soft: [
        "#4a6484",
        "#855a3d"
    ],
    fusion: "#8b6fd0",
    fusionFill: "rgba(124, 92, 200, 0.07)",
    fusionText: "#5b3aa8",
    arcs: [
        "#267044",
        "#b04a00",
        "#0b6b85"
    ],
    select: "#0b57d0",
    found: "#ffe58a"
};
const DARK = {
    paper: "#111111",
    ink: "#e8eaed",
    muted: "#a3acb7",
    hair: "#25282c",
    rule: "#3a4047",
    band: "#191c20",
    fills: [
        "#15273c",
        "#33211a"
    ],
    strokes: [
        "#2f5078",
        "#6d4632"
    ],
    texts: [
        "#c4dcf8",
        "#f6d3bb"
    ],
    soft: [
        "#8fabcb",
        "#cfa58b"
    ],
    fusion: "#9b86e0",
    fusionFill: "rgba(155, 134, 224, 0.10)",
    fusionText: "#c9bcfa",
    arcs: [
        "#63c48a",
        "#f2a952",
        "#54c6dc"
    ],
    select: "#79aeff",
    found: "#6b5600"
};
function isDark(el) {
    const stated = document.body.dataset.jpThemeLight;
    if (stated) return "false" === stated;
    for(let node = el; node; node = node.parentElement){
        const parts = getComputedStyle(node).backgroundColor.match(/[\d.]+/g)?.map(Number);
        if (parts && (parts.length < 4 || parts[3] > 0.5)) return 0.3 * parts[0] + 0.6 * parts[1] + 0.1 * parts[2] < 110;
    }
    return matchMedia("(prefers-color-scheme: dark)").matches;
}
function array(Type, view) {
    const { buffer, byteOffset = 0, byteLength } = view instanceof ArrayBuffer ? {
        buffer: view,
        byteLength: view.byteLength
    } : view;
    return new Type(buffer.slice(byteOffset, byteOffset + byteLength));
}
const TYPES = {
    f: Float32Array,
    d: Float64Array,
    i: Int32Array,
    h: Uint16Array,
    b: Uint8Array
};
async function unpacked(view) {
    const stream = new Blob([
        view
    ]).stream().pipeThrough(new DecompressionStream("deflate"));
    const buffer = await new Response(stream).arrayBuffer(), length = new DataView(buffer).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
    const texts = new Uint8Array(buffer, 4 + length, head.strings);
    head.strings = new TextDecoder().decode(texts).split("\0");
    let at = 4 + length + texts.length;
    for (const columns of Object.values(head.tables))for (const column of Object.values(columns)){
        const bytes = column[1];
        column[1] = new DataView(buffer, at, bytes);
        at += bytes;
    }
    return head;
}
function graph_scene_scene(data) {
    if (!data?.strings) return null;
    const out = {
        strings: data.strings,
        sections: data.sections,
        height: data.height,
        views: data.views ?? {
            count: 0,
            hidden: 0
        }
    };
    for (const [table, columns] of Object.entries(data.tables)){
        out[table] = {};
        for (const [name, [code, view]] of Object.entries(columns))out[table][name] = array(TYPES[code], view);
    }
    out.module ??= {
        y: [],
        height: [],
        depth: []
    };
    out.choice ??= {
        id: []
    };
    const { node, arc, module } = out;
    out.at = new Map();
    for(let i = module.y.length - 1; i >= 0; i--)out.at.set(`module:${out.strings[module.scope[i]]}`, {
        kind: "module",
        index: i
    });
    for(let i = 0; i < node.id.length; i++)out.at.set(out.strings[node.id[i]], {
        kind: "node",
        index: i
    });
    for(let i = 0; i < arc.id.length; i++)out.at.set(out.strings[arc.id[i]], {
        kind: "arc",
        index: i
    });
    for(let i = 0; i < out.alias.id.length; i++){
        const mark = out.alias.mark[i];
        out.at.set(out.strings[out.alias.id[i]], mark < 0 ? {
            kind: "arc",
            index: out.alias.arc[i]
        } : {
            kind: "mark",
            index: mark
        });
    }
    out.marksOf = new Map();
    for(let i = 0; i < out.mark.id.length; i++){
        out.at.set(out.strings[out.mark.id[i]], {
            kind: "mark",
            index: i
        });
        const node = out.mark.node[i], others = out.marksOf.get(node) ?? [];
        const right = others.length ? others.at(-1).right + others.at(-1).width + 3 : 3;
        out.marksOf.set(node, [
            ...others,
            {
                index: i,
                right,
                width: 5.8 * out.strings[out.mark.text[i]].length + 11
            }
        ]);
    }
    out.endOf = new Map();
    for(let i = 0; i < out.bar.side.length; i++)for (const end of [
        "issue",
        "wait"
    ]){
        const id = out.strings[out.bar[end][i]];
        out.endOf.set(id, {
            index: i,
            end
        });
        if (!out.at.has(id)) out.at.set(id, {
            kind: "bar",
            index: i
        });
    }
    out.lane = arc.style.includes(OFFLOADED);
    out.columns = [
        0,
        1
    ].map((side)=>Array.from(node.y.keys()).filter((i)=>node.side[i] === side).sort((a, b)=>node.y[a] - node.y[b]));
    out.arcsFrom = new Map();
    for(let i = 0; i < arc.source.length; i++)for (const end of [
        arc.source[i],
        arc.target[i]
    ]){
        if (!out.arcsFrom.has(end)) out.arcsFrom.set(end, []);
        out.arcsFrom.get(end).push(i);
    }
    out.spines = spinesOf(out.run);
    let neighbours;
    Object.defineProperty(out, "neighbours", {
        enumerable: true,
        get: ()=>neighbours ??= neighboursOf(out.edge)
    });
    return out;
}
function spinesOf({ y, height, fusion, side }) {
    const spines = new Map();
    for(let i = 0; i < y.length; i++){
        const key = 2 * fusion[i] + side[i], span = spines.get(key);
        if (span) {
            span.to = y[i] + height[i] / 2;
            span.pieces++;
        } else spines.set(key, {
            from: y[i] + height[i] / 2,
            to: y[i],
            side: side[i],
            pieces: 1,
            fusion: fusion[i]
        });
    }
    return Array.from(spines.values()).filter(({ pieces })=>pieces > 1);
}
function neighboursOf({ source, target }) {
    const found = new Map();
    const of = (node)=>{
        if (!found.has(node)) found.set(node, {
            into: [],
            out: []
        });
        return found.get(node);
    };
    for(let i = 0; i < source.length; i++){
        of(source[i]).out.push(target[i]);
        of(target[i]).into.push(source[i]);
    }
    return found;
}
function firstBelow(order, node, y) {
    let low = 0, high = order.length;
    while(low < high){
        const middle = low + high >> 1;
        if (node.y[order[middle]] + node.height[order[middle]] < y) low = middle + 1;
        else high = middle;
    }
    return low;
}
function drawArcs(state, low, high) {
    const { places, pen } = state;
    const c = pen.context, { arc, strings } = places.scene;
    pen.ink;
    const chosen = places.scene.at.get(state.selected);
    const near = chosen?.kind === "node" ? new Set(places.scene.arcsFrom.get(chosen.index) ?? []) : null;
    const labels = [];
    const drawn = places.labelled() ? null : new Set();
    for(let i = 0; i < arc.y0.length; i++){
        if (Math.max(arc.y0[i], arc.y1[i]) < low || Math.min(arc.y0[i], arc.y1[i]) > high) continue;
        const strong = chosen?.kind === "arc" && chosen.index === i || near?.has(i) || state.hover?.kind === "arc" && state.hover.index === i;
        const inner = 1 === arc.shape[i], asked = state.asked?.get(i), style = asked ?? arc.style[i], color = arcColor(state, i, style);
        if (drawn && !strong && void 0 === asked) {
            const line = ((Math.round(places.y(arc.y0[i])) * 2 ** 20 + Math.round(places.y(arc.y1[i]))) * 4 + style) * 8 + 2 * arc.shape[i] + arc.side[i];
            if (drawn.has(line)) continue;
            drawn.add(line);
        }
        tracePath(pen, places.curve(i));
        if (places.away(i)) tracePath(pen, places.wayBack(i), true);
        c.lineWidth = inner ? strong ? 2.5 : 1.25 : arc.width[i] * Math.max(0.5, Math.min(1, 1.5 * places.zoom)) + (strong ? 1.5 : 0);
        c.strokeStyle = color;
        c.globalAlpha = strong ? 1 : near ? 0.35 : 0.85;
        c.setLineDash(1 === style ? [
            6,
            4
        ] : 2 === style ? [
            1.5,
            4
        ] : []);
        c.lineCap = 2 === style ? "round" : "butt";
        c.stroke();
        c.setLineDash([]);
        c.lineCap = "butt";
        c.globalAlpha = 1;
        if (!inner || strong || void 0 !== asked) labels.push([
            i,
            color,
            strong,
            asked
        ]);
        if (inner && places.zoom > 0.3) dot(state, i, color);
    }
    if (!places.labelled()) return;
    const scale = Math.max(1, places.zoom);
    pen.font(10 * scale, MONO, 500);
    for (const [i, color, strong, asked] of labels){
        const [x0, y] = places.curve(i);
        const text = strings[arc.label[i]] + (void 0 === asked ? "" : " …"), width = c.measureText(text).width + 10;
        const left = places.away(i) ? places.handle(i).x - width / 2 : 1 !== arc.shape[i] ? x0 + 6 : 0 === arc.side[i] ? x0 + 16 : x0 - 16 - width;
        c.beginPath();
        c.roundRect(left, y - 7 * scale, width, 14 * scale, 7 * scale);
        c.fillStyle = pen.paper;
        c.fill();
        c.lineWidth = strong ? 1.5 : 0.75;
        c.strokeStyle = color;
        c.globalAlpha = strong ? 1 : 0.55;
        c.stroke();
        c.globalAlpha = 1;
        c.fillStyle = color;
        c.fillText(text, left + 5, y + 0.5);
    }
}
function arcColor({ places, pen }, index, style = places.scene.arc.style[index]) {
    return 1 === places.scene.arc.shape[index] && 0 === style ? pen.ink.fusion : pen.ink.arcs[style];
}
function dot({ places, pen }, index, color) {
    const c = pen.context, { x, y } = places.handle(index);
    c.beginPath();
    c.arc(x, y, 3.5, 0, 2 * Math.PI);
    c.fillStyle = pen.paper;
    c.fill();
    c.lineWidth = 1.5;
    c.strokeStyle = color;
    c.stroke();
}
function tracePath(pen, [x0, y0, a, b, p, q, x1, y1], on = false) {
    if (!on) pen.context.beginPath();
    pen.context.moveTo(x0, y0);
    pen.context.bezierCurveTo(a, b, p, q, x1, y1);
}
function drawSelection(state) {
    const { places, pen } = state;
    const chosen = places.scene.at.get(state.selected);
    const { canvas } = pen.context;
    const focused = document.activeElement === canvas || canvas.getRootNode().activeElement === canvas;
    if (chosen?.kind === "node") {
        const { into = [], out = [] } = places.scene.neighbours.get(chosen.index) ?? {};
        for (const other of into)outline(state, other, pen.ink.texts[0], 1.25);
        for (const other of out)outline(state, other, pen.ink.arcs[0], 1.25);
        outline(state, chosen.index, pen.ink.select, focused ? 2.5 : 2);
    } else if (chosen?.kind === "mark") outline(state, places.scene.mark.node[chosen.index], pen.ink.select, focused ? 2.5 : 2);
    else if (chosen?.kind === "arc") {
        const { arc } = places.scene;
        for (const end of [
            arc.source[chosen.index],
            arc.target[chosen.index]
        ])if (end >= 0) outline(state, end, arcColor(state, chosen.index), 1.75);
    }
    if (state.hover?.kind === "node") outline(state, state.hover.index, pen.ink.muted, 1);
}
function outline({ places, pen }, index, color, width) {
    const c = pen.context, { node } = places.scene, [x0, x1] = places.columns().sides[node.side[index]];
    const height = Math.max(2, node.height[index] * places.zoom), top = places.y(node.y[index]);
    if (top > places.heightPx || top + height < 30) return;
    c.beginPath();
    c.roundRect(x0 - 1, top - 1, x1 - x0 + 2, height + 2, Math.min(4, height / 2));
    c.lineWidth = width;
    c.strokeStyle = color;
    c.stroke();
}
function graph_drawing_draw(state) {
    const { places, pen } = state, c = pen.context;
    c.setTransform(state.ratio, 0, 0, state.ratio, 0, 0);
    c.fillStyle = pen.paper;
    c.fillRect(0, 0, places.width, places.heightPx);
    if (places.scene) {
        const low = places.worldY(0), high = places.worldY(places.heightPx + 30);
        c.textBaseline = "middle";
        c.textAlign = "left";
        drawLines(state, low, high);
        const notes = drawSections(state, low, high);
        drawRuns(state, low, high);
        drawLane(state);
        drawArcs(state, low, high);
        drawNotes(state, notes);
        drawBars(state);
        drawNodes(state, low, high);
        drawModules(state, low, high);
        drawSelection(state);
        drawTurn(state);
        drawHeadings(state);
    }
    drawHead(state);
}
function drawModules(state, low, high) {
    const { places, pen } = state;
    if (!places.far) return;
    const c = pen.context, { module, strings } = places.scene, { label, sides } = places.columns(), ink = pen.ink;
    const heads = headings(places);
    const texts = [];
    for (const i of places.bands()){
        if (module.y[i] + module.height[i] < low || module.y[i] > high) continue;
        const top = places.y(module.y[i]), bottom = top + module.height[i] * places.zoom, middle = (top + bottom) / 2;
        const over = state.hover?.kind === "module" && state.hover.index === i, chosen = state.selected === `module:${strings[module.scope[i]]}`;
        for (const side of [
            0,
            1
        ]){
            const [x0, x1] = sides[side], rows = 0 === side ? module.forward[i] : module.backward[i];
            if (!rows) continue;
            c.beginPath();
            c.roundRect(x0 + 0.5, top + 0.5, x1 - x0 - 1, bottom - top - 2, 3.5);
            c.fillStyle = ink.fills[side];
            c.fill();
            c.lineWidth = chosen ? 2.5 : over ? 1.5 : 1;
            c.strokeStyle = over || chosen ? ink.select : ink.strokes[side];
            c.stroke();
            const tall = bottom - top >= 36, line = middle - (tall ? 8 : 0);
            const size = Math.min(11, bottom - top - 2), count = x1 - x0 > 170 ? `${rows} statement${1 === rows ? "" : "s"}` : "";
            pen.font(size - 0.5, SANS);
            c.fillStyle = ink.soft[side];
            c.textAlign = "right";
            c.fillText(count, x1 - 8, line);
            const taken = count ? c.measureText(count).width + 10 : 0;
            c.textAlign = "left";
            pen.font(size, MONO, 500);
            c.fillStyle = ink.texts[side];
            c.fillText(pen.shorten(strings[module.short[i]], x1 - x0 - 14 - taken), x0 + 7, line);
            if (tall) {
                pen.font(10, MONO);
                c.fillStyle = ink.soft[side];
                c.fillText(pen.shorten(strings[(0 === side ? module.forward_ops : module.backward_ops)[i]], x1 - x0 - 14), x0 + 7, middle + 9);
            }
        }
        if (strings[module.saved[i]]) texts.push([
            sides[0][1] + 6,
            middle,
            Math.min(14, bottom - top - 1),
            strings[module.saved[i]]
        ]);
        const free = Math.max(top, headingEnd(heads, top));
        c.fillStyle = ink.hair;
        c.fillRect(label[0], Math.round(bottom) - 1, label[1] - label[0], 1);
        if (!(bottom - free < 11) && strings[module.name[i]]) {
            pen.font(11, MONO, 500);
            c.fillStyle = over ? ink.select : ink.ink;
            c.fillText(pen.shorten(strings[module.name[i]], label[1] - label[0]), label[0], (free + bottom) / 2);
        }
    }
    for (const [x, y, tall, text] of texts){
        pen.font(Math.min(10, tall - 1), MONO, 500);
        const width = c.measureText(text).width + 10;
        c.beginPath();
        c.roundRect(x, y - tall / 2, width, tall, tall / 2);
        c.fillStyle = pen.paper;
        c.fill();
        c.lineWidth = 0.75;
        c.strokeStyle = c.fillStyle = ink.arcs[0];
        c.stroke();
        c.fillText(text, x + 5, y + 0.5);
    }
}
function drawBars(state) {
    const { places, pen } = state;
    const c = pen.context, { bar, endOf } = places.scene, selected = endOf.get(state.selected)?.index;
    for(let i = 0; i < bar.side.length; i++){
        const at = places.barAt(i), moved = state.drag?.bar?.index === i && state.drag.moved;
        if (moved) at[state.drag.bar.end] = state.drag.at;
        if (Math.max(at.issue, at.wait) < 30 || Math.min(at.issue, at.wait) > places.heightPx) continue;
        const color = moved || i === selected ? pen.ink.select : pen.ink.arcs[2];
        c.strokeStyle = c.fillStyle = color;
        c.lineWidth = moved || i === selected || state.hover?.kind === "bar" && state.hover.index === i ? 4 : 2.5;
        c.setLineDash(DASHES[Math.max(bar.group[i], 0) % DASHES.length]);
        c.beginPath();
        c.moveTo(at.x, at.issue);
        c.lineTo(at.x, at.wait);
        c.stroke();
        c.setLineDash([]);
        for (const end of [
            "issue",
            "wait"
        ]){
            c.beginPath();
            c.arc(at.x, at[end], 3.5, 0, 2 * Math.PI);
            c.fillStyle = "wait" === end ? color : pen.paper;
            c.fill();
            c.lineWidth = 1.5;
            c.stroke();
        }
    }
    if (state.drag?.bar && state.drag.moved) {
        const { node, strings } = places.scene, target = state.drag.target;
        if (target >= 0) {
            outline(state, target, pen.ink.select, 2);
            pen.font(11, SANS, 600);
            const side = bar.side[state.drag.bar.index], { sides } = places.columns();
            const text = `${state.drag.bar.end} before ${strings[node.name[target]]}`, wide = c.measureText(text).width;
            const left = 0 === side ? sides[0][1] + 8 : sides[1][0] - 8 - wide;
            c.fillStyle = pen.paper;
            c.fillRect(left - 4, state.drag.at - 9, wide + 8, 18);
            c.fillStyle = pen.ink.select;
            c.fillText(text, left, state.drag.at);
        }
    }
}
function drawHead({ places, pen }) {
    const c = pen.context, { label, sides } = places.columns(), ink = pen.ink;
    c.fillStyle = pen.paper;
    c.fillRect(0, 0, places.width, 29);
    c.fillStyle = ink.rule;
    c.fillRect(0, 29, places.width, 1);
    pen.font(11, SANS, 600);
    c.textBaseline = "middle";
    const put = (text, x, color, align = "left")=>{
        c.textAlign = align;
        c.fillStyle = color;
        c.fillText(text, x, 15);
    };
    put("program", label[0], ink.muted);
    put("forward ↓", sides[0][0], ink.texts[0]);
    const lane = places.scene?.lane ? places.lane() : null, from = sides[0][1], to = lane ? lane[0] : sides[1][0];
    const words = [
        "saved for backward",
        "saved"
    ].find((text)=>c.measureText(text).width <= to - from - 16);
    if (words) put(words, (from + to) / 2, ink.muted, "center");
    if (lane) put("CPU", (lane[0] + lane[1]) / 2, ink.arcs[2], "center");
    put("↑ backward", sides[1][0], ink.texts[1]);
    c.textAlign = "left";
}
function drawLines(state, low, high) {
    const { places, pen } = state;
    const c = pen.context, { line, block, strings } = places.scene, { label } = places.columns(), ink = pen.ink;
    const size = 11 * Math.max(1, places.zoom), lead = 15 * Math.max(1, places.zoom);
    const names = 26 * places.zoom < 14 ? headings(places) : [];
    const { module } = places.scene, bands = places.far ? places.bands() : [];
    for(let i = 0, band = 0; i < line.y.length; i++){
        if (line.y[i] + line.height[i] < low) continue;
        if (line.y[i] > high) break;
        while(band < bands.length && module.y[bands[band]] + module.height[bands[band]] <= line.y[i])band++;
        if (band < bands.length && module.y[bands[band]] <= line.y[i]) continue;
        const end = Math.min(line.y[i] + line.height[i], band < bands.length ? module.y[bands[band]] : 1 / 0);
        const edge = places.y(line.y[i]), bottom = places.y(end);
        if (bottom - edge > 3) {
            c.fillStyle = ink.hair;
            c.fillRect(label[0], Math.round(edge), places.width * places.scaleX, 1);
        }
        const top = Math.max(edge, headingEnd(names, edge), Math.min(30, bottom - 2 * lead - 6)), height = bottom - top;
        if (height < lead - 1) continue;
        const width = label[1] - label[0];
        const rows = Math.floor((height - 3) / lead);
        let at = top + (rows < 1 ? height / 2 : 4 + lead / 2);
        const source = strings[line.text[i]] || strings[block.symbol[line.block[i]]], place = strings[line.place[i]];
        if (rows >= 2) {
            pen.font(size);
            c.fillStyle = ink.ink;
            c.fillText(pen.shorten(source, width), label[0], at);
            at += lead;
            pen.font(size - 0.5, SANS);
            c.fillStyle = ink.muted;
            c.fillText(pen.shorten(place, width), label[0], at);
            drawSymbols(state, i, at + lead / 2, size);
            continue;
        }
        pen.font(size - 0.5, SANS);
        const short = strings[line.short[i]], taken = short ? c.measureText(short).width + 10 : 0;
        const both = taken > 0 && width - taken > 90;
        if (both) {
            c.fillStyle = ink.muted;
            c.textAlign = "right";
            c.fillText(short, label[1], at);
            c.textAlign = "left";
        }
        pen.font(size);
        c.fillStyle = ink.ink;
        c.fillText(pen.shorten(source, both ? width - taken : width), label[0], at);
    }
}
function drawSymbols({ places, pen }, index, below, size) {
    if (!places.labelled()) return;
    const c = pen.context, { line, block, strings } = places.scene, { label } = places.columns();
    if (line.count[index] < 2) return;
    pen.font(size - 0.5, MONO);
    c.fillStyle = pen.ink.muted;
    c.textAlign = "right";
    for(let i = line.block[index]; i < line.block[index] + line.count[index]; i++){
        const middle = places.y(block.y[i]) + 13 * places.zoom;
        if (!(middle - size / 2 < below)) c.fillText(pen.shorten(strings[block.symbol[i]], label[1] - label[0]), label[1], middle);
    }
    c.textAlign = "left";
}
function range(pen, { first, last, count }, room) {
    const at = first.lastIndexOf("."), number = last.slice(last.lastIndexOf(".") + 1), short = first.slice(first.lastIndexOf(".", at - 1) + 1);
    const ways = count > 1 ? [
        `${first} … ${last}`,
        `${first} … ${number}`,
        `${short} … ${number}`
    ] : [
        first,
        short
    ];
    return ways.find((way)=>pen.context.measureText(way).width <= room) ?? ways[ways.length - 1];
}
const hasHeading = (places, section)=>section.height * places.zoom >= 18;
const headings = (places)=>places.scene.sections.filter((section)=>hasHeading(places, section)).map((section)=>places.y(section.y));
const headingEnd = (heads, y)=>(heads.findLast((at)=>y >= at - 1 && y < at + 14) ?? -1 / 0) + 14;
function drawSections(state, low, high) {
    const { places, pen } = state;
    const c = pen.context, { sections } = places.scene, { label } = places.columns(), ink = pen.ink, notes = [];
    for (const section of sections){
        if (section.y + section.height < low || section.y > high) continue;
        const top = Math.round(places.y(section.y)), tall = 26 * places.zoom;
        const right = places.columns().width - places.left;
        c.fillStyle = ink.rule;
        c.fillRect(0, Math.round(places.y(section.y + section.height)), right, 1);
        if (!hasHeading(places, section)) continue;
        const far = tall < 14;
        c.fillStyle = ink.band;
        c.fillRect(0, top, far ? label[1] + 6 : right, Math.max(tall, 14));
        c.fillStyle = ink.rule;
        c.fillRect(0, top, right, 1);
        const size = 11.5 * Math.max(1, places.zoom), middle = top + Math.max(tall, 14) / 2;
        pen.font(size, SANS, 600);
        c.fillStyle = ink.ink;
        const folded = section.count > 1, foldable = section.identical > 1;
        const turns = foldable && !state.readOnly;
        const mark = turns ? folded ? "▸ " : "▾ " : "";
        const room = far ? label[1] - label[0] : places.width / 2;
        const title = pen.shorten(`${mark}${range(pen, section, room - c.measureText(mark).width)}`, room);
        c.fillText(title, label[0], middle);
        if (!foldable && !section.differs || far) continue;
        const x = label[0] + c.measureText(title).width + 10;
        pen.font(size - 0.5, SANS);
        const what = section.stem.startsWith("loop:") ? "repeats" : "layers";
        const one = `${section.count} identical ${what} shown as one`;
        const how = turns ? folded ? `${one}, click to unfold` : `click to fold identical ${what}` : folded ? one : "";
        const note = [
            how,
            section.differs && `differs from above: ${section.differs}`
        ].filter(Boolean).join("; ");
        notes.push({
            text: pen.shorten(note, places.width - x - 12),
            x,
            middle,
            size: size - 0.5
        });
    }
    return notes;
}
function drawNotes({ pen }, notes) {
    const c = pen.context, ink = pen.ink;
    for (const { text, x, middle, size } of notes){
        pen.font(size, SANS);
        c.fillStyle = ink.band;
        c.fillRect(x - 3, middle - 0.7 * size, c.measureText(text).width + 6, 1.4 * size);
        c.fillStyle = ink.muted;
        c.fillText(text, x, middle);
    }
}
function drawRuns({ places, pen }, low, high) {
    const c = pen.context, { run } = places.scene, { sides } = places.columns(), ink = pen.ink;
    for(let i = 0; i < run.y.length; i++){
        if (run.y[i] + run.height[i] < low || run.y[i] > high) continue;
        const [x0, x1] = sides[run.side[i]];
        const top = places.y(run.y[i]) - 2, height = run.height[i] * places.zoom + 4;
        c.beginPath();
        c.roundRect(x0 - 4, top, x1 - x0 + 8, height, Math.min(5, height / 2));
        c.fillStyle = ink.fusionFill;
        c.fill();
        c.lineWidth = 1;
        c.strokeStyle = ink.fusion;
        c.stroke();
    }
    c.strokeStyle = ink.fusion;
    c.lineWidth = 1;
    for (const { from, to, side, fusion } of places.scene.spines){
        if (to < low || from > high) continue;
        const lane = 6 + fusion % 2 * 3;
        const x = 0 === side ? sides[0][0] - lane : sides[1][1] + lane;
        const edge = 0 === side ? sides[0][0] - 4 : sides[1][1] + 4;
        c.beginPath();
        c.moveTo(edge, places.y(from));
        c.lineTo(x, places.y(from));
        c.lineTo(x, places.y(to));
        c.lineTo(edge, places.y(to));
        c.stroke();
    }
}
function drawLane({ places, pen }) {
    if (!places.scene.lane) return;
    const c = pen.context, [left, right] = places.lane();
    c.fillStyle = pen.ink.arcs[2];
    c.globalAlpha = 0.08;
    c.fillRect(left, 30, right - left, places.heightPx);
    c.globalAlpha = 0.35;
    c.fillRect(left, 30, 1, places.heightPx);
    c.fillRect(right - 1, 30, 1, places.heightPx);
    c.globalAlpha = 1;
}
function drawMarks(state, node) {
    const { places, pen } = state;
    const c = pen.context, { mark, strings } = places.scene, chosen = places.scene.at.get(state.selected);
    for (const { index } of places.scene.marksOf.get(node) ?? []){
        const { left, top, width, height } = places.markBox(index), choice = mark.state[index];
        const strong = chosen?.kind === "mark" && chosen.index === index || state.hover?.kind === "mark" && state.hover.index === index;
        const color = 1 & choice ? pen.ink.select : 2 & choice ? pen.ink.muted : pen.ink.fusionText;
        c.beginPath();
        c.roundRect(left, top, width, height, height / 2);
        c.fillStyle = 1 & choice ? color : pen.paper;
        c.fill();
        c.lineWidth = strong ? 2 : 0.75;
        c.strokeStyle = color;
        if (2 & choice) c.setLineDash([
            2,
            2
        ]);
        c.stroke();
        c.setLineDash([]);
        pen.font(9.5 * Math.max(1, places.zoom), MONO, 500);
        c.fillStyle = 1 & choice ? pen.paper : color;
        c.textAlign = "center";
        c.fillText(strings[mark.text[index]], left + width / 2, top + height / 2 + 0.5);
        c.textAlign = "left";
    }
}
function drawNodes(state, low, high) {
    const { places, pen } = state;
    const c = pen.context, { node, strings, columns: order } = places.scene, { sides } = places.columns(), ink = pen.ink;
    const texts = 20 * places.zoom >= 12, size = 11 * Math.max(Math.min(places.zoom, 3), places.zoom < 1 ? 0.91 : 1);
    const { module } = places.scene, bands = places.far ? places.bands() : [];
    for (const side of [
        0,
        1
    ]){
        const list = order[side], [x0, x1] = sides[side], rows = 0 === side ? module.forward : module.backward;
        const small = new Path2D();
        for(let k = firstBelow(list, node, low), band = 0; k < list.length; k++){
            const i = list[k];
            if (node.y[i] > high) break;
            while(band < bands.length && module.y[bands[band]] + module.height[bands[band]] <= node.y[i])band++;
            if (band < bands.length && rows[bands[band]] && module.y[bands[band]] <= node.y[i]) continue;
            const flags = node.flags[i], top = places.y(node.y[i]), height = Math.max(0.75, node.height[i] * places.zoom);
            const matched = places.matches?.has(i);
            if (1 & flags) {
                if (texts) {
                    pen.font(size, SANS, 600);
                    c.fillStyle = matched ? ink.select : ink.fusionText;
                    const about = strings[node.detail[i]];
                    const name = pen.shorten(strings[node.name[i]], x1 - x0 - 12);
                    c.fillText(name, x0 + 4, top + height / 2);
                    const room = x1 - x0 - 20 - c.measureText(name).width;
                    pen.font(size - 0.5, SANS);
                    c.textAlign = "right";
                    if (room > 30) c.fillText(pen.shorten(about, room), x1 - 4, top + height / 2);
                    c.textAlign = "left";
                }
                continue;
            }
            if (height <= 5 && !matched && !(2 & flags)) {
                small.rect(x0, top, x1 - x0, height);
                continue;
            }
            const radius = Math.min(3.5, height / 3);
            c.beginPath();
            if (height > 5) c.roundRect(x0, top, x1 - x0, height, radius);
            else c.rect(x0, top, x1 - x0, height);
            if (2 & flags) {
                c.setLineDash([
                    4,
                    3
                ]);
                c.lineWidth = 1;
                c.strokeStyle = ink.arcs[1];
                c.stroke();
                c.setLineDash([]);
            } else {
                c.fillStyle = matched ? ink.found : height > 5 ? ink.fills[side] : ink.strokes[side];
                c.fill();
                if (height > 5) {
                    c.lineWidth = 1;
                    c.strokeStyle = 8 & flags ? ink.arcs[1] : ink.strokes[side];
                    if (8 & flags) c.setLineDash([
                        4,
                        3
                    ]);
                    c.stroke();
                    c.setLineDash([]);
                }
            }
            if (!texts || height < 9) continue;
            const middle = top + height / 2, pad = 7 * Math.max(1, places.zoom);
            const marks = places.scene.marksOf.get(i), last = marks?.at(-1);
            const taken = last ? (last.right + last.width) * Math.max(1, places.zoom) : 0;
            pen.font(Math.min(size, height), MONO, 500);
            c.fillStyle = 2 & flags ? ink.arcs[1] : ink.texts[side];
            const name = pen.shorten(strings[node.name[i]], x1 - x0 - 2 * pad - taken);
            c.fillText(name, x0 + pad, middle);
            const room = x1 - x0 - 2 * pad - taken - c.measureText(name).width - 10;
            if (marks) drawMarks(state, i);
            pen.font(Math.min(size - 1, height - 0.5), MONO);
            const detail = strings[node.detail[i]];
            const shown = c.measureText(detail).width <= room ? detail : strings[node.shape[i]];
            if (shown && c.measureText(shown).width <= room) {
                c.fillStyle = ink.soft[side];
                c.textAlign = "right";
                c.fillText(shown, x1 - pad - taken, middle);
                c.textAlign = "left";
            }
        }
        c.fillStyle = ink.strokes[side];
        c.fill(small);
    }
}
function drawTurn({ places, pen }) {
    const c = pen.context, { node, columns, module } = places.scene, { sides } = places.columns(), ink = pen.ink;
    if (!columns[0].length || !columns[1].length) return;
    const bands = places.far ? places.bands() : [];
    const foot = (side)=>{
        const last = columns[side].at(-1), boxes = bands.filter((i)=>(0 === side ? module.forward : module.backward)[i]);
        return places.y(Math.max(node.y[last] + node.height[last], ...boxes.map((i)=>module.y[i] + module.height[i])));
    };
    const y = Math.max(foot(0), foot(1)) + 5, [from, to] = [
        sides[0][1] - 14,
        sides[1][0] + 14
    ];
    if (y > places.heightPx || y < 30) return;
    c.strokeStyle = c.fillStyle = ink.muted;
    c.lineWidth = 1.5;
    c.beginPath();
    c.moveTo(from, foot(0) + 1);
    c.lineTo(from, y);
    c.lineTo(to, y);
    c.lineTo(to, foot(1) + 1);
    c.stroke();
    c.beginPath();
    c.moveTo(to - 4, foot(1) + 6);
    c.lineTo(to, foot(1) + 1);
    c.lineTo(to + 4, foot(1) + 6);
    c.stroke();
    pen.font(10, SANS);
    const words = "forward ends, backward begins", room = to - from - 12;
    if (c.measureText(words).width > room) return;
    c.textAlign = "center";
    const wide = c.measureText(words).width + 8, middle = (from + to) / 2;
    c.fillStyle = pen.paper;
    c.fillRect(middle - wide / 2, y - 6, wide, 12);
    c.fillStyle = ink.muted;
    c.fillText(words, middle, y);
    c.textAlign = "left";
}
function drawHeadings({ places, pen }) {
    if (!places.labelled()) return;
    const c = pen.context, { run, strings } = places.scene, { sides } = places.columns(), tall = 16;
    pen.font(11, SANS, 600);
    for(let i = 0; i < run.y.length; i++){
        const top = places.y(run.y[i]), bottom = top + run.height[i] * places.zoom;
        if (top > 26 || bottom < 30 + 2 * tall) continue;
        const [x0, x1] = sides[run.side[i]];
        c.fillStyle = pen.paper;
        c.fillRect(x0 - 3.5, 30, x1 - x0 + 7, tall);
        c.fillStyle = pen.ink.fusionFill;
        c.fillRect(x0 - 3.5, 30, x1 - x0 + 7, tall);
        c.fillStyle = pen.ink.fusionText;
        c.fillText(pen.shorten(`↑ ${strings[run.name[i]]}`, x1 - x0 - 8), x0 + 4, 30 + tall / 2);
    }
}
const KEYS = [
    [
        "click",
        "select"
    ],
    [
        "double click",
        "change an arc or a label to its next option",
        true
    ],
    [
        "right click",
        "open a menu"
    ],
    [
        "↑ ↓",
        "next statement or arc"
    ],
    [
        "← →",
        "along an arc"
    ],
    [
        "space",
        "change the selection to its next option",
        true
    ],
    [
        "⇧ F10",
        "open the menu of the selection"
    ],
    [
        "o",
        "fold or unfold identical layers",
        true
    ],
    [
        "/",
        "search"
    ],
    [
        "u  r",
        "undo, redo",
        true
    ],
    [
        "e",
        "export, from everywhere in the app",
        true
    ],
    [
        "l  i  d",
        "in a tab: show or hide outline, inspector, tabs below",
        true
    ],
    [
        "f  1",
        "show all, actual size"
    ],
    [
        "+  −",
        "zoom in, zoom out"
    ],
    [
        "?",
        "open or close this list"
    ]
];
function keyList(still = false) {
    return h("dl", {
        class: "wb-keys"
    }, KEYS.filter(([, , changes])=>!still || !changes).map(([key, text])=>[
            h("dt", {}, h("kbd", {}, key)),
            h("dd", {}, text)
        ]));
}
function toggleKeys(el, back, still) {
    const there = el.querySelector(".wb-key-sheet");
    if (there) return void back.focus({
        preventScroll: true
    });
    const sheet = h("div", {
        class: "wb-legend-box wb-key-sheet",
        role: "dialog",
        "aria-label": "Keys of the graph",
        tabindex: "0"
    }, keyList(still));
    sheet.addEventListener("keydown", (event)=>{
        if ("Escape" !== event.key && "?" !== event.key) return;
        event.stopPropagation();
        event.preventDefault();
        toggleKeys(el, back, still);
    });
    sheet.addEventListener("focusout", ()=>sheet.remove());
    el.append(sheet);
    sheet.focus({
        preventScroll: true
    });
}
const sample = (what)=>`<svg width="46" height="18" viewBox="0 0 46 18" aria-hidden="true">${what}</svg>`;
function legendRows(ink, bars) {
    const line = (color, more = "")=>sample(`<path d="M2 13 C20 13 26 5 44 5" fill="none" stroke="${color}" stroke-width="2.5" ${more}/>`);
    const box = (fill, stroke, more = "")=>sample(`<rect x="3" y="2" width="40" height="14" rx="3" fill="${fill}" stroke="${stroke}" ${more}/>`);
    const pill = (text, color, fill, paint, more = "")=>sample(`<rect x="1" y="2.5" width="44" height="13" rx="6.5" fill="${fill}" stroke="${color}" ${more}/><text x="23" y="12" text-anchor="middle" font-size="8.5" font-family="monospace" fill="${paint}">${text}</text>`);
    const [saved, again, away] = ink.arcs;
    return [
        [
            line(saved),
            "Saved: kept in memory from the forward until the backward reads it. Wider: more bytes."
        ],
        [
            line(again, 'stroke-dasharray="6 4"'),
            "Recomputed: not kept; the backward runs its statements again."
        ],
        [
            line(away, 'stroke-dasharray="1.5 4" stroke-linecap="round"'),
            "Offloaded: copied to the CPU, through the lane between the columns, and back when it is read."
        ],
        [
            pill("16 KiB", saved, "none", saved),
            "Bytes of what an arc stands for; × 2: in each of two identical layers."
        ],
        [
            sample(`<path d="M8 4 C30 4 30 14 8 14" fill="none" stroke="${ink.fusion}" stroke-width="1.5"/><circle cx="8" cy="4" r="3" fill="none" stroke="${ink.fusion}" stroke-width="1.5"/>`),
            "The cut: a value that one fusion makes and another reads. The value is written to memory, or computed again. Click its circle to select it."
        ],
        [
            box(ink.fusionFill, ink.fusion),
            "Fusion: the statements inside are compiled to one kernel. Pieces of one fusion are joined by a line at the side."
        ],
        [
            box(ink.fills[0], ink.strokes[0]),
            "A statement of the forward, which runs downwards."
        ],
        [
            box(ink.fills[1], ink.strokes[1]),
            "A statement of the backward, which runs upwards, beside the forward statement that it differentiates."
        ],
        [
            sample(`<path d="M6 2 V13 H40 V4 M36 8 L40 3 L44 8" fill="none" stroke="${ink.muted}" stroke-width="1.5"/>`),
            "The end of the forward, where the backward begins."
        ],
        [
            sample(`<rect x="1" y="3" width="44" height="12" fill="${ink.band}"/><text x="6" y="12.5" font-size="10" fill="${ink.ink}">▸ ×4</text>`),
            "A layer, or identical ones shown as one: click to unfold or fold them. Beside its name: how it differs from the layers above."
        ],
        [
            box(ink.fills[1], again, 'stroke-dasharray="4 3"'),
            "Computed again in the backward; without colour: no longer made in the forward."
        ],
        [
            sample(`<rect x="1" y="3" width="44" height="12" rx="3" fill="${ink.fills[0]}" stroke="${ink.strokes[0]}"/><text x="6" y="12" font-size="8.5" font-family="monospace" fill="${ink.texts[0]}">mlp</text>`),
            "When zoomed out: a module, with the number of its statements in each column, and the bytes that it saves for the backward. Double-click to zoom in."
        ],
        [
            pill("keep", ink.fusionText, "none", ink.fusionText),
            "A site at a statement, with its current option."
        ],
        [
            pill("drop", ink.select, ink.select, ink.paper),
            "A choice that differs from Thunder's own."
        ],
        [
            pill("stock", ink.muted, "none", ink.muted, 'stroke-dasharray="2 2"'),
            "A site at which no other option is legal. Point at it to see why."
        ],
        ...bars ? [
            [
                sample(`<path d="M6 9 H40" stroke="${away}" stroke-width="2.5"/><circle cx="6" cy="9" r="3.5" fill="${ink.paper}" stroke="${away}" stroke-width="1.5"/><circle cx="40" cy="9" r="3.5" fill="${away}"/>`),
                "A collective in flight, from its issue (open end) to its wait (filled end). Other dashes: another process group."
            ],
            [
                pill("17 waits", ink.strokes[1], ink.fills[1], ink.texts[1]),
                "Adjacent waits, shown as one; a double click shows each."
            ]
        ] : [],
        [
            pill("▸ sdpa", ink.strokes[0], ink.fills[0], ink.texts[0]),
            "One statement of the program that was decomposed into several, shown as one. A double click shows each of them; another double click shows one again."
        ],
        [
            box("none", ink.select, 'stroke-width="2.5"'),
            "Selected. Outlined in the column's colour: the statements whose results it reads. Outlined in green: the statements that read its results."
        ],
        [
            box(ink.found, ink.found),
            "Found by the search."
        ],
        [
            "",
            "Views (reshapes, transposes, slices, shallow_copy) have no memory of their own and are left out. Lines pass through them, and their sites are shown at the statements that make or read their storage. A button below shows the views."
        ],
        [
            box("none", ink.select),
            "At the right edge: the whole graph, with the region in view. Drag this region, or press arrow keys there, to move the view."
        ]
    ];
}
function keysOf(scene) {
    const { arc, node, bar } = scene, styles = new Set(arc.style.filter((_, i)=>0 === arc.shape[i]));
    return [
        styles.has(0) && [
            "saved",
            "saved"
        ],
        styles.has(1) && [
            "again",
            "recomputed"
        ],
        styles.has(2) && [
            "away",
            "on the CPU"
        ],
        node.flags.some((flags)=>1 & flags) && [
            "fusion",
            "fusion"
        ],
        arc.shape.includes(1) && [
            "cut",
            "between fusions"
        ],
        bar.side.length > 0 && [
            "wire",
            "on its way, from issue to wait"
        ]
    ].filter(Boolean);
}
const LEAST = 200;
function toggleLegend(el, ink, bars) {
    const app = el.closest(".wb-app"), inspector = app?.querySelector(".wb-inspector");
    const there = (app ?? el).querySelector(".wb-legend-box:not(.wb-key-sheet)"), button = el.querySelector('[data-do="legend"]');
    button.setAttribute("aria-expanded", String(!there));
    if (there) return void there.remove();
    const box = document.createElement("div");
    box.className = "wb-legend-box";
    box.setAttribute("role", "note");
    box.tabIndex = 0;
    for (const [picture, words] of legendRows(ink, bars)){
        const row = document.createElement("div"), text = document.createElement("span");
        row.innerHTML = picture;
        text.textContent = words;
        row.append(text);
        box.append(row);
    }
    box.addEventListener("keydown", (event)=>{
        if ("Escape" === event.key) {
            toggleLegend(el, ink, bars);
            button.focus();
        }
    });
    const beside = app && inspector && inspector.clientWidth >= LEAST && inspector.clientHeight >= LEAST && inspector.getBoundingClientRect().left >= el.getBoundingClientRect().right;
    (beside ? app : el).append(box);
    if (beside) {
        const place = ()=>{
            if (!box.isConnected) return void sizes.disconnect();
            const { left, top, width, height } = inspector.getBoundingClientRect(), base = box.offsetParent ?? app, outer = base.getBoundingClientRect();
            Object.assign(box.style, {
                left: `${left - outer.left - base.clientLeft + base.scrollLeft}px`,
                top: `${top - outer.top - base.clientTop + base.scrollTop}px`,
                width: `${width}px`,
                height: `${height}px`
            });
        };
        const sizes = new ResizeObserver(place);
        sizes.observe(inspector);
        sizes.observe(app);
    }
    box.focus({
        preventScroll: true
    });
}
class Overview {
    constructor(state, actions, signal){
        this.state = state;
        this.actions = actions;
        this.grip = 0;
        this.canvas = document.createElement("canvas");
        this.canvas.className = "wb-map";
        this.canvas.tabIndex = 0;
        for (const [name, value] of Object.entries({
            role: "scrollbar",
            "aria-label": "Part of the graph in view",
            "aria-orientation": "vertical",
            "aria-valuemin": "0",
            "aria-valuemax": "100"
        }))this.canvas.setAttribute(name, value);
        this.canvas.title = "The whole graph: drag the part in view, or use the arrow keys";
        state.pen.context.canvas.after(this.canvas);
        this.whole = document.createElement("canvas");
        this.drawnOf = null;
        this.wide = 0;
        const on = (type, handler)=>this.canvas.addEventListener(type, handler, {
                signal
            });
        on("pointerdown", (event)=>this.onDown(event));
        on("pointermove", (event)=>{
            if (this.canvas.hasPointerCapture(event.pointerId)) this.moveTo(event.offsetY - this.grip);
        });
        on("keydown", (event)=>this.onKey(event));
        for (const type of [
            "focus",
            "blur"
        ])on(type, actions.redraw);
    }
    get scale() {
        return Math.min(1, (this.height - 2) / Math.max(1, this.state.places.scene.height - 30));
    }
    get height() {
        return this.state.places.heightPx - 30;
    }
    window() {
        const { state: { places }, scale } = this, from = Math.max(0, (places.worldY(30) - 30) * scale);
        const to = Math.min(places.scene.height - 30, places.worldY(places.heightPx) - 30) * scale;
        return {
            from,
            tall: Math.max(6, to - from)
        };
    }
    moveTo(y) {
        this.actions.scrollTo(y / this.scale * this.state.places.zoom);
    }
    onDown(event) {
        event.preventDefault();
        this.canvas.focus({
            preventScroll: true
        });
        this.canvas.setPointerCapture(event.pointerId);
        const { from, tall } = this.window(), inside = event.offsetY >= from && event.offsetY <= from + tall;
        this.grip = inside ? event.offsetY - from : tall / 2;
        this.moveTo(event.offsetY - this.grip);
    }
    onKey(event) {
        const { actions } = this, page = (this.state.places.heightPx - 30) * 0.9;
        const act = {
            ArrowDown: ()=>actions.scroll(60),
            ArrowUp: ()=>actions.scroll(-60),
            PageDown: ()=>actions.scroll(page),
            PageUp: ()=>actions.scroll(-page),
            Home: ()=>actions.scroll(-1 / 0),
            End: ()=>actions.scroll(1 / 0),
            "+": ()=>actions.tool("in"),
            "=": ()=>actions.tool("in"),
            "-": ()=>actions.tool("out")
        }[event.key];
        if (!act || !isPlainKey(event)) return;
        event.preventDefault();
        event.stopPropagation();
        actions.moved();
        act();
    }
    paintWhole(wide, ratio) {
        const { state: { places, pen }, whole, scale } = this, c = whole.getContext("2d"), { node, arc, sections } = places.scene, ink = pen.ink;
        whole.width = wide * ratio;
        whole.height = this.height * ratio;
        c.setTransform(ratio, 0, 0, ratio, 0, 0);
        const y = (value)=>(value - 30) * scale, column = (wide - 8) * 0.36, left = [
            4,
            wide - 4 - column
        ];
        for (const section of sections){
            c.fillStyle = ink.rule;
            c.fillRect(0, y(section.y), wide, 1);
        }
        for(let i = 0; i < node.y.length; i++)if (!(3 & node.flags[i])) {
            c.fillStyle = ink.strokes[node.side[i]];
            c.fillRect(left[node.side[i]], y(node.y[i]), column, Math.max(0.75, node.height[i] * scale - 0.25));
        }
        c.lineWidth = 0.75;
        for(let i = 0; i < arc.y0.length; i++)if (0 === arc.shape[i]) {
            c.strokeStyle = ink.arcs[arc.style[i]];
            c.beginPath();
            c.moveTo(left[0] + column, y(arc.y0[i]));
            c.lineTo(left[1], y(arc.y1[i]));
            c.stroke();
        }
    }
    draw() {
        const { places, pen, ratio } = this.state, wide = this.wide = this.canvas.clientWidth || this.wide;
        if (!wide || !places.scene || this.height <= 0) return;
        const key = [
            places.scene,
            pen.ink,
            wide,
            this.height,
            ratio
        ];
        if (!this.drawnOf || key.some((part, i)=>part !== this.drawnOf[i])) {
            this.drawnOf = key;
            this.canvas.width = wide * ratio;
            this.canvas.height = this.height * ratio;
            this.paintWhole(wide, ratio);
        }
        const c = this.canvas.getContext("2d", {
            alpha: false
        });
        c.setTransform(1, 0, 0, 1, 0, 0);
        c.fillStyle = pen.paper;
        c.fillRect(0, 0, this.canvas.width, this.canvas.height);
        c.drawImage(this.whole, 0, 0);
        c.setTransform(ratio, 0, 0, ratio, 0, 0);
        this.drawChosen(c, wide);
        const { from, tall } = this.window(), room = Math.max(1, (places.scene.height - 30) * this.scale);
        const all = tall >= room - 1;
        c.fillStyle = pen.ink.select;
        c.globalAlpha = all ? 0 : 0.12;
        c.fillRect(0, from, wide, tall);
        c.globalAlpha = 1;
        c.strokeStyle = document.activeElement === this.canvas ? pen.ink.select : pen.ink.muted;
        c.lineWidth = document.activeElement === this.canvas ? 2 : 1;
        c.strokeRect(1, from + 1, wide - 2, Math.min(tall, this.height - from) - 2);
        const at = all ? 0 : Math.round(100 * from / Math.max(1, room - tall));
        this.canvas.setAttribute("aria-valuenow", String(Math.max(0, Math.min(100, at))));
        this.canvas.setAttribute("aria-valuetext", all ? "all of it" : `${Math.round(100 * tall / room)} % of it, from ${Math.round(100 * from / room)} %`);
    }
    drawChosen(c, wide) {
        const { state: { places, pen }, scale } = this, { node, at } = places.scene, chosen = this.state.chosenPlace();
        const tick = (y, color)=>{
            c.fillStyle = color;
            c.fillRect(0, (y - 30) * scale - 1, wide, 2.5);
        };
        for (const i of places.matches ?? [])tick(node.y[i] + node.height[i] / 2, pen.ink.found);
        if (chosen && at) tick("arc" === chosen.kind ? places.scene.arc.y0[chosen.index] : node.y[chosen.index] + node.height[chosen.index] / 2, pen.ink.select);
    }
}
const TABS = {
    "Show in the outline": "Outline",
    "Show in the trace": "Trace",
    "Show on the memory curve": "Curve and peak"
};
function itemsOf(view, target) {
    const { choice, strings, sections, node } = view.places.scene, { readOnly } = view.state, turned = view.turned(target);
    const items = [];
    for(let i = 0; turned && i < choice.id.length; i++){
        if (choice[turned.kind][i] !== turned.index) continue;
        const id = strings[choice.id[i]];
        const note = `${strings[choice.lever[i]]}, set to: ${strings[choice.now[i]]}`, layers = choice.layers[i];
        for (const option of strings[choice.others[i]].split("\n")){
            const item = (text, more)=>items.push({
                    text,
                    note,
                    preview: {
                        id,
                        option,
                        ...more
                    },
                    act: ()=>view.model.send({
                            type: "choose",
                            id,
                            option,
                            ...more
                        })
                });
            item(`Choose ${option}`, {});
            if (layers > choice.count[i]) item(`Choose ${option} in all ${layers} layers`, {
                scope: "all"
            });
        }
    }
    if ("module" === target.kind) items.push({
        text: "Zoom in",
        act: ()=>view.approach(target.index)
    });
    const section = view.sectionOf(target);
    if (section >= 0 && !readOnly) {
        const { count, identical, stem } = sections[section], what = stem.startsWith("loop:") ? "repeats" : "layers";
        items.push({
            text: count > 1 ? `Unfold ${count} identical ${what}` : `Fold ${identical} identical ${what}`,
            act: ()=>view.fold(section)
        });
    }
    if ("node" === target.kind && 192 & node.flags[target.index] && !readOnly) items.push({
        text: strings[node.name[target.index]].startsWith("▾") ? "Show as one" : "Show each",
        act: ()=>view.unfold(target.index)
    });
    if ("section" === target.kind) return items;
    if (target.id !== view.state.selected) items.push({
        text: "Select",
        act: ()=>view.select(target.id)
    });
    if (!readOnly && "module" !== target.kind) for (const [text, name] of Object.entries(TABS))items.push({
        text,
        act: ()=>{
            view.select(target.id);
            view.model.send({
                type: "tab",
                name
            });
        }
    });
    if (navigator.clipboard) items.push({
        text: "Copy id",
        note: target.id,
        act: ()=>{
            navigator.clipboard.writeText(target.id);
        }
    });
    return items;
}
function openMenu(el, items, at, on) {
    let open = true;
    const close = ()=>{
        if (!open) return;
        open = false;
        const held = menu.contains(document.activeElement);
        menu.remove();
        if (held) on.back.focus({
            preventScroll: true
        });
        on.preview(null);
        on.closed();
    };
    const buttons = items.map(({ text, note, preview, act })=>h("button", {
            role: "menuitem",
            tabindex: "-1",
            type: "button",
            onclick: ()=>{
                close();
                act();
            },
            onpointermove: (event)=>event.currentTarget.focus({
                    preventScroll: true
                }),
            onfocus: ()=>on.preview(preview ?? null)
        }, text, note && h("span", {
            class: "wb-muted"
        }, note)));
    const menu = h("div", {
        class: "wb-menu",
        role: "menu",
        "aria-label": "What can be done here"
    }, buttons);
    const go = (to)=>buttons[(to + buttons.length) % buttons.length].focus();
    menu.addEventListener("keydown", (event)=>{
        const here = buttons.indexOf(document.activeElement);
        event.stopPropagation();
        if ("Enter" === event.key || " " === event.key || !isPlainKey(event)) return;
        event.preventDefault();
        if ("ArrowDown" === event.key) go(here + 1);
        else if ("ArrowUp" === event.key) go(here - 1);
        else if ("Home" === event.key) go(0);
        else if ("End" === event.key) go(-1);
        else if ("Escape" === event.key || "Tab" === event.key) close();
    });
    menu.addEventListener("focusout", (event)=>{
        if (!menu.contains(event.relatedTarget)) close();
    });
    menu.addEventListener("contextmenu", (event)=>{
        event.preventDefault();
        event.stopPropagation();
    });
    menu.style.maxHeight = `${at.height - 8}px`;
    el.append(menu);
    menu.style.left = `${Math.max(4, Math.min(at.x, el.clientWidth - menu.offsetWidth - 4))}px`;
    menu.style.top = `${Math.max(4, Math.min(at.y, at.height - menu.offsetHeight - 4))}px`;
    buttons[0].focus({
        preventScroll: true
    });
    return close;
}
const NAME = 0, PLACE = 1, BEGINS = 2, PART = 3, TEXT = 4;
function rankOf({ names, scope, symbol, text }, query) {
    if (names.includes(query)) return NAME;
    if (symbol === query || `.${scope}.`.includes(`.${query}.`)) return PLACE;
    if (names.some((name)=>name.startsWith(query))) return BEGINS;
    if (names.some((name)=>name.includes(query))) return PART;
    return text.includes(query) ? TEXT : -1;
}
function search(entries, asked) {
    const query = asked.trim().toLowerCase();
    if (!query) return [];
    const words = query.split(/\s+/u);
    const rank = (entry)=>{
        const whole = rankOf(entry, query), each = whole >= 0 ? [
            whole
        ] : words.map((word)=>rankOf(entry, word));
        return each.includes(-1) ? -1 : Math.max(...each);
    };
    const found = entries.map((entry)=>({
            entry,
            rank: rank(entry)
        })).filter(({ rank })=>rank >= 0);
    return found.sort((a, b)=>a.rank - b.rank || a.entry.order - b.entry.order).map(({ entry })=>entry);
}
function entriesOf(scene, index = null) {
    const { node, strings } = scene, entries = new Map();
    const order = Array.from(node.id.keys()).sort((a, b)=>node.y[a] - node.y[b] || node.side[a] - node.side[b]);
    const after = index ? index.rows.id.length : 0;
    for (const [place, i] of order.entries()){
        const id = strings[node.id[i]], [name, full, detail, about] = [
            node.name,
            node.full,
            node.detail,
            node.about
        ].map((column)=>strings[column[i]]);
        const head = about.split("\n")[0], scope = head.includes("  ") ? head.split("  ")[0] : "";
        entries.set(id, {
            id,
            names: [
                name.replace(/^[▸▾] /u, ""),
                full,
                id.slice(2),
                ...detail.split(/[\s,;]+/u)
            ].map((text)=>text.toLowerCase()).filter(Boolean),
            scope: scope.toLowerCase(),
            symbol: "",
            text: `${name} ${full} ${detail} ${about}`.toLowerCase(),
            order: after + place
        });
    }
    if (!index) return Array.from(entries.values());
    const { rows } = index;
    for(let i = 0; i < rows.id.length; i++){
        const id = rows.id[i], [scope, place, symbol] = index.origins[rows.origin[i]] ?? [
            "",
            "",
            ""
        ];
        const names = [
            index.strings[rows.name[i]],
            index.strings[rows.full[i]],
            ...rows.values[i].split(" ")
        ].map((text)=>text.toLowerCase()).filter(Boolean);
        const there = entries.get(id), more = `${names.join(" ")} ${scope} ${place} ${symbol}`.toLowerCase();
        if (there) Object.assign(there, {
            names: [
                ...there.names,
                ...names
            ],
            symbol: symbol.toLowerCase(),
            text: `${there.text} ${more}`,
            order: i
        });
        else entries.set(id, {
            id,
            names,
            scope: scope.toLowerCase(),
            symbol: symbol.toLowerCase(),
            text: more,
            order: i
        });
    }
    return Array.from(entries.values());
}
class Places {
    scene = null;
    zoom = 1;
    left = 0;
    top = 0;
    width = 0;
    heightPx = 0;
    matches = null;
    placed = null;
    get scaleX() {
        return Math.max(1, this.zoom);
    }
    columns() {
        const of = [
            this.scene,
            this.zoom,
            this.left,
            this.width
        ];
        if (!this.placed || of.some((part, i)=>part !== this.placed?.of[i])) this.placed = {
            of,
            columns: this.placeColumns()
        };
        return this.placed.columns;
    }
    placeColumns() {
        const lane = this.scene?.bar.side.length ? 44 : 0;
        const width = Math.max(this.width, 330 + 2 * lane), margin = 12, space = 18, inner = width - 2 * lane;
        const free = inner - 2 * margin - space;
        const share = 0.16 + (0.27 - 0.16) * Math.min(1, (inner - 330) / 310);
        const label = free * share, box = 0.27 * free;
        const x = (value)=>value * this.scaleX - this.left;
        const forward = margin + label + space + lane, backward = width - margin - lane - box;
        return {
            label: [
                x(margin),
                x(margin + label)
            ],
            sides: [
                [
                    x(forward),
                    x(forward + box)
                ],
                [
                    x(backward),
                    x(backward + box)
                ]
            ],
            width: width * this.scaleX
        };
    }
    y(value) {
        return 30 + (value - 30) * this.zoom - this.top;
    }
    worldY(screen) {
        return (screen + this.top - 30) / this.zoom + 30;
    }
    clamp() {
        if (!this.scene) return;
        const height = 30 + (this.scene.height - 30) * this.zoom + 14;
        this.top = Math.max(0, Math.min(this.top, height - this.heightPx));
        this.left = Math.max(0, Math.min(this.left, this.columns().width - this.width));
    }
    lane() {
        const { sides } = this.columns(), middle = (sides[0][1] + sides[1][0]) / 2, half = 33 * this.scaleX;
        return [
            middle - half,
            middle + half
        ];
    }
    away(index) {
        return 2 === this.scene.arc.style[index] && 0 === this.scene.arc.shape[index];
    }
    barAt(index) {
        const { bar } = this.scene, { sides } = this.columns(), side = bar.side[index];
        const out = (8 + 8 * bar.column[index]) * this.scaleX;
        const y = (height)=>Math.max(this.y(height), 36 - this.top);
        return {
            x: 0 === side ? sides[0][0] - out : sides[1][1] + out,
            issue: y(bar.y0[index]),
            wait: y(bar.y1[index])
        };
    }
    barHit(x, y) {
        const { bar, strings } = this.scene;
        let best = null, nearest = 5;
        for(let index = 0; index < bar.side.length; index++){
            const at = this.barAt(index), low = Math.min(at.issue, at.wait) - 5, high = Math.max(at.issue, at.wait) + 5;
            if (y < low || y > high || Math.abs(x - at.x) >= nearest) continue;
            nearest = Math.abs(x - at.x);
            const end = Math.abs(y - at.issue) < Math.abs(y - at.wait) ? "issue" : "wait";
            best = {
                kind: "bar",
                index,
                end,
                id: strings[bar[end][index]]
            };
        }
        return best;
    }
    nodeNear(side, y) {
        const { node, columns } = this.scene;
        let best = -1, nearest = 1 / 0;
        for (const index of columns[side]){
            const edge = this.y(0 === side ? node.y[index] : node.y[index] + node.height[index]), distance = Math.abs(edge - y);
            if (distance < nearest) [best, nearest] = [
                index,
                distance
            ];
        }
        return best;
    }
    markBox(index) {
        const { node, mark, marksOf } = this.scene, at = mark.node[index], scale = Math.max(1, this.zoom);
        const { right, width } = marksOf.get(at).find((one)=>one.index === index);
        const [, x1] = this.columns().sides[node.side[at]];
        const height = 13 * scale, middle = this.y(node.y[at]) + Math.min(17, node.height[at]) * this.zoom / 2;
        return {
            left: x1 - (right + width) * scale,
            top: middle - height / 2,
            width: width * scale,
            height
        };
    }
    curve(index) {
        const { arc } = this.scene, { sides } = this.columns();
        const y0 = this.y(arc.y0[index]), y1 = this.y(arc.y1[index]);
        if (this.away(index)) {
            const x0 = sides[0][1], [left] = this.lane(), bend = (left - x0) * 0.6;
            return [
                x0,
                y0,
                x0 + bend,
                y0,
                left - bend,
                y0,
                left,
                y0
            ];
        }
        if (1 === arc.shape[index]) {
            const out = 0 === arc.side[index] ? 1 : -1, x = sides[arc.side[index]][0 === arc.side[index] ? 1 : 0];
            const bulge = Math.min(46, 20 + 0.12 * Math.abs(y1 - y0)) * out;
            return [
                x,
                y0,
                x + bulge,
                y0,
                x + bulge,
                y1,
                x,
                y1
            ];
        }
        const x0 = sides[0][1], x1 = sides[1][0], bend = (x1 - x0) * 0.5;
        return [
            x0,
            y0,
            x0 + bend,
            y0,
            x1 - bend,
            y1,
            x1,
            y1
        ];
    }
    wayBack(index) {
        const { arc } = this.scene, { sides } = this.columns(), [, right] = this.lane();
        const y0 = this.y(arc.y0[index]), y1 = this.y(arc.y1[index]), x1 = sides[1][0], bend = (x1 - right) * 0.6;
        return [
            right,
            y0,
            right + bend,
            y0,
            x1 - bend,
            y1,
            x1,
            y1
        ];
    }
    locate(id) {
        const entry = this.scene?.at.get(id);
        if (!entry) return null;
        const { node } = this.scene;
        if ("node" === entry.kind) {
            const [x0, x1] = this.columns().sides[node.side[entry.index]];
            return {
                x: (x0 + x1) / 2,
                y: this.y(node.y[entry.index] + node.height[entry.index] / 2)
            };
        }
        if ("mark" === entry.kind) {
            const box = this.markBox(entry.index);
            return {
                x: box.left + box.width / 2,
                y: box.top + box.height / 2
            };
        }
        if ("module" === entry.kind) {
            const { module } = this.scene, [x0, x1] = this.columns().sides[0];
            return {
                x: (x0 + x1) / 2,
                y: this.y(module.y[entry.index] + module.height[entry.index] / 2)
            };
        }
        if ("bar" === entry.kind) {
            const { x, issue, wait } = this.barAt(entry.index);
            return {
                x,
                y: (issue + wait) / 2
            };
        }
        return this.handle(entry.index);
    }
    handle(index) {
        const [x0, y0] = this.curve(index);
        if (this.away(index)) {
            const [left, right] = this.lane();
            return {
                x: (left + right) / 2,
                y: y0
            };
        }
        if (1 !== this.scene.arc.shape[index]) return {
            x: x0 + 32,
            y: y0
        };
        return {
            x: x0 + (1 === this.scene.arc.side[index] ? -9 : 9),
            y: y0
        };
    }
    get far() {
        return !this.labelled() && !this.matches && this.scene.module.y.length > 0;
    }
    bands() {
        const { module } = this.scene, count = module.y.length, found = [];
        const tall = (index)=>module.height[index] * this.zoom;
        for(let at = 0; at < count;){
            let end = at + 1, within = 0;
            for(; end < count && module.depth[end] > module.depth[at]; end++)if (module.depth[end] === module.depth[at] + 1 && tall(end) >= 11) within += tall(end);
            if (tall(at) >= 11 && within < 0.5 * tall(at)) {
                found.push(at);
                at = end;
            } else at++;
        }
        return found;
    }
    hit(x, y) {
        if (!this.scene || y < 30 || y > this.heightPx) return null;
        const { node, arc, sections, strings } = this.scene, { sides } = this.columns();
        for (const [index, section] of sections.entries()){
            const top = this.y(section.y);
            if (y >= top && y < top + Math.max(14, 26 * this.zoom)) return {
                kind: "section",
                index,
                id: `fold:${section.stem}`
            };
        }
        const bar = this.barHit(x, y);
        if (bar) return bar;
        const world = this.worldY(y);
        if (this.far && (x <= sides[0][1] || x >= sides[1][0])) {
            const { module } = this.scene;
            const index = this.bands().find((one)=>module.y[one] <= world && world < module.y[one] + module.height[one]);
            if (void 0 !== index) return {
                kind: "module",
                index,
                id: `module:${strings[module.scope[index]]}`
            };
        }
        for (const side of [
            0,
            1
        ]){
            if (x < sides[side][0] || x > sides[side][1]) continue;
            const order = this.scene.columns[side];
            const index = order[firstBelow(order, node, world)];
            if (void 0 !== index && node.y[index] <= world && this.labelled()) for (const { index: at } of this.scene.marksOf.get(index) ?? []){
                const box = this.markBox(at);
                if (x >= box.left - 1 && x <= box.left + box.width + 1) return {
                    kind: "mark",
                    index: at,
                    id: strings[this.scene.mark.id[at]]
                };
            }
            if (void 0 !== index && node.y[index] <= world) return {
                kind: "node",
                index,
                id: strings[node.id[index]]
            };
            return null;
        }
        let best = null, nearest = 6;
        for(let index = 0; index < arc.y0.length; index++){
            const low = Math.min(this.y(arc.y0[index]), this.y(arc.y1[index])) - 10;
            const high = Math.max(this.y(arc.y0[index]), this.y(arc.y1[index])) + 10;
            if (y < low || y > high) continue;
            const label = this.handle(index);
            const reach = 1 === arc.shape[index] ? 6 : 30;
            const distance = this.labelled() && Math.abs(x - label.x) < reach && Math.abs(y - label.y) < 8 * Math.max(1, this.zoom) ? -1 : Math.min(distanceTo(this.curve(index), x, y), this.away(index) ? distanceTo(this.wayBack(index), x, y) : 1 / 0);
            if (distance < nearest) [best, nearest] = [
                index,
                distance
            ];
        }
        return null === best ? null : {
            kind: "arc",
            index: best,
            id: strings[arc.id[best]]
        };
    }
    labelled() {
        return this.zoom >= 0.6;
    }
}
function distanceTo([x0, y0, a, b, p, q, x1, y1], x, y) {
    let best = 1 / 0, px = x0, py = y0;
    for(let step = 1; step <= 24; step++){
        const t = step / 24, s = 1 - t;
        const nx = s * s * s * x0 + 3 * s * s * t * a + 3 * s * t * t * p + t * t * t * x1;
        const ny = s * s * s * y0 + 3 * s * s * t * b + 3 * s * t * t * q + t * t * t * y1;
        const dx = nx - px, dy = ny - py, length = dx * dx + dy * dy || 1;
        const along = Math.max(0, Math.min(1, ((x - px) * dx + (y - py) * dy) / length));
        best = Math.min(best, Math.hypot(x - px - along * dx, y - py - along * dy));
        [px, py] = [
            nx,
            ny
        ];
    }
    return best;
}
class Pen {
    constructor(context){
        this.context = context;
        this.ink = LIGHT;
        this.paper = LIGHT.paper;
        this.texts = new Map();
        this.fontKey = "";
    }
    font(size, family = MONO, weight = 400) {
        this.context.font = `${weight} ${size}px ${family}`;
        this.fontKey = `${weight} ${size} ${family === MONO ? "m" : "s"}`;
    }
    shorten(text, width) {
        const key = `${this.fontKey}|${Math.floor(width)}|${text}`;
        let known = this.texts.get(key);
        if (void 0 !== known) return known;
        known = text;
        if (this.context.measureText(text).width > width) {
            let low = 0, high = text.length;
            while(low < high){
                const middle = low + high + 1 >> 1;
                if (this.context.measureText(`${text.slice(0, middle).trimEnd()}…`).width <= width) low = middle;
                else high = middle - 1;
            }
            known = low ? `${text.slice(0, low).trimEnd()}…` : "";
        }
        if (this.texts.size > 20000) this.texts.clear();
        this.texts.set(key, known);
        return known;
    }
}
class GraphState {
    constructor(model, canvas){
        this.model = model;
        this.places = new Places();
        this.pen = new Pen(canvas.getContext("2d", {
            alpha: false
        }));
        this.readOnly = true === model.get("read_only");
        this.ratio = 1;
        this.hover = null;
        this.drag = null;
        this.asked = new Map();
    }
    get selected() {
        return this.model.get("selected");
    }
    chosenPlace() {
        const { at, columns, module, node } = this.places.scene, chosen = at.get(this.selected);
        if (chosen?.kind === "module") return {
            kind: "node",
            index: columns[0][Math.min(columns[0].length - 1, firstBelow(columns[0], node, module.y[chosen.index]))]
        };
        if (chosen?.kind === "bar") return {
            kind: "node",
            index: this.places.scene.bar.issue_node[chosen.index]
        };
        return chosen?.kind === "mark" ? {
            kind: "node",
            index: this.places.scene.mark.node[chosen.index]
        } : chosen;
    }
}
function graph_text_about(scene, target) {
    const { node, arc, mark, module, strings } = scene;
    const rows = [];
    if ("module" === target.kind) {
        const i = target.index, saved = strings[module.saved[i]];
        rows.push([
            "b",
            strings[module.scope[i]]
        ], [
            "",
            `${module.forward[i]} statements in the forward, ${module.backward[i]} in the backward`
        ]);
        rows.push([
            "",
            `↓ ${strings[module.forward_ops[i]]}`
        ], [
            "",
            module.backward[i] ? `↑ ${strings[module.backward_ops[i]]}` : ""
        ]);
        rows.push([
            "",
            saved && `${saved} saved for the backward`
        ], [
            "i",
            "Double click, or Enter: zoom in"
        ]);
    } else if ("node" === target.kind) {
        const i = target.index, flags = node.flags[i];
        rows.push([
            "b",
            strings[node.full[i]]
        ], [
            "",
            strings[node.detail[i]]
        ]);
        const traits = [
            node.bytes[i] ? humanBytes(node.bytes[i]) : "",
            strings[node.executor[i]],
            4 & flags ? "random" : "",
            16 & flags ? "view, no memory of its own" : "",
            8 & flags ? "computed again in the backward" : "",
            32 & flags ? "collective" : ""
        ];
        rows.push([
            "",
            traits.filter(Boolean).join(" · ")
        ], [
            "i",
            strings[node.about[i]]
        ]);
    } else {
        const tip = "mark" === target.kind ? mark.tip : "bar" === target.kind ? scene.bar.tip : arc.tip;
        rows.push(...strings[tip[target.index]].split("\n").map((text, i)=>[
                i ? "" : "b",
                text
            ]));
    }
    return rows;
}
class View {
    constructor(model, el){
        this.model = model;
        this.el = el;
        this.refitUntil = 0;
        this.atFit = true;
        this.pending = 0;
        this.drawn = 0;
        this.preview = previews(model);
        this.received = 0;
        this.coming = false;
        this.wanted = "";
        this.clicked = [];
        this.closeMenu = ()=>{};
        this.hits = [];
        this.current = "";
        this.walked = false;
        this.typed = false;
        this.index = null;
        this.indexAsked = false;
        this.build();
        this.paintTheme();
        this.receive(model.get("data"));
    }
    async receive(data) {
        const own = ++this.received;
        if (data?.packed) {
            if ("u" < typeof DecompressionStream) return void this.model.send({
                type: "plain"
            });
            this.coming = true;
            data = await unpacked(data.packed);
            if (own !== this.received) return;
        }
        this.coming = false;
        this.take(graph_scene_scene(data));
        if (this.wanted) this.reveal(this.wanted, true);
        this.wanted = "";
    }
    build() {
        const { el, model } = this;
        const still = true === model.get("read_only");
        const keys = `Arrows move,${still ? "" : " space turns the selected choice, Shift+F10 opens its menu,"} ${still ? "" : " o folds or unfolds identical layers,"} slash searches, question mark lists all keys.`;
        el.classList.add("wb-graph");
        el.dataset.lmSuppressShortcuts = "true";
        el.style.height = `${model.get("height")}px`;
        el.innerHTML = `
      <canvas tabindex="0" role="application"
        aria-label="Joint graph. ${keys}"></canvas>
      <div class="wb-foot">
        <span class="wb-key-row"></span>
        <button data-do="legend" aria-expanded="false" title="What every line, box and colour means">Legend</button>
        <button data-do="views" hidden title="Statements that own no memory: reshapes, transposes, slices, shallow_copy"></button>
        <span class="wb-find">
          <input type="search" placeholder="Search  /" aria-label="Search statements" title="A name, a value, a module such as layers.17, a source line" spellcheck="false">
          <span class="wb-found" aria-live="polite"></span>
          <button data-do="previous" title="Previous (Shift + Enter)" aria-label="Previous match">↑</button>
          <button data-do="next" title="Next (Enter)" aria-label="Next match">↓</button>
        </span>
        <button data-do="out" title="Zoom out (ctrl + wheel)">−</button>
        <button data-do="in" title="Zoom in (ctrl + wheel)">+</button>
        <button data-do="one" title="Actual size (1)">1:1</button>
        <button data-do="fit" title="Show all of the graph (f)">Show all</button>
      </div>
      <div class="wb-tip" hidden></div>
      <span class="wb-unseen" role="status"></span>`;
        this.viewsButton = el.querySelector('[data-do="views"]');
        this.keys = el.querySelector(".wb-key-row");
        this.canvas = el.querySelector("canvas");
        this.search = el.querySelector("input");
        this.found = el.querySelector(".wb-found");
        this.tip = el.querySelector(".wb-tip");
        this.told = el.querySelector('[role="status"]');
        this.state = new GraphState(model, this.canvas);
        this.places = this.state.places;
        this.pen = this.state.pen;
        this.stop = new AbortController();
        const on = (target, type, handler, options = {})=>target.addEventListener(type, handler, {
                signal: this.stop.signal,
                ...options
            });
        on(this.canvas, "pointerdown", (e)=>this.onDown(e));
        on(this.canvas, "pointermove", (e)=>this.onMove(e));
        on(this.canvas, "pointerup", (e)=>this.onUp(e));
        on(this.canvas, "dblclick", ()=>this.onDouble());
        on(this.canvas, "contextmenu", (e)=>this.onMenu(e));
        on(this.canvas, "pointerleave", ()=>this.setHover(null));
        on(this.canvas, "wheel", (e)=>this.onWheel(e), {
            passive: false
        });
        on(this.canvas, "keydown", (e)=>this.onKey(e));
        on(this.canvas, "focus", ()=>this.redraw());
        on(this.canvas, "blur", ()=>{
            this.preview(null);
            this.redraw();
        });
        on(this.search, "input", ()=>this.onSearch());
        on(this.search, "focus", ()=>{
            this.setHover(null);
            this.askIndex();
        });
        on(this.search, "keydown", (e)=>this.onSearchKey(e));
        on(el.querySelector(".wb-foot"), "click", (e)=>this.onTool(e.target.closest("[data-do]")?.dataset.do));
        this.overview = new Overview(this.state, {
            moved: ()=>{
                this.atFit = false;
            },
            scroll: (by)=>this.scroll(by),
            tool: (what)=>this.onTool(what),
            redraw: ()=>this.redraw(),
            scrollTo: (top)=>{
                this.atFit = false;
                this.places.top = top;
                this.setHover(null);
                this.places.clamp();
                this.redraw();
            }
        }, this.stop.signal);
        this.sizes = new ResizeObserver(()=>this.resize());
        this.sizes.observe(el);
        this.themes = new MutationObserver(()=>this.paintTheme());
        this.themes.observe(document.body, {
            attributes: true,
            attributeFilter: [
                "data-jp-theme-light",
                "data-jp-theme-name",
                "class"
            ]
        });
        this.onData = ()=>{
            this.receive(model.get("data"));
        };
        this.onSelected = ()=>{
            this.tell();
            this.redraw();
        };
        this.onAsked = ()=>{
            if (!this.coming) {
                this.takeAsked();
                this.redraw();
            }
        };
        this.onReveal = (message)=>{
            if (message?.type === "index") this.takeIndex(message);
            if (message?.type !== "reveal") return;
            if (this.coming) this.wanted = message.id;
            else this.reveal(message.id, true);
        };
        model.on("change:data", this.onData);
        model.on("change:selected", this.onSelected);
        model.on("change:asked", this.onAsked);
        model.on("msg:custom", this.onReveal);
    }
    take(next) {
        const { places } = this;
        this.closeMenu();
        const held = places.scene && next ? this.heldBy(next) : null, first = !places.scene;
        places.scene = next;
        this.takeAsked();
        if (performance.now() < this.refitUntil || first && this.atFit && places.width) this.fit();
        else if (held) places.top += places.locate(held.id).y - held.y;
        this.keys.replaceChildren(...(next ? keysOf(next) : []).map(([name, words])=>h("span", {
                class: `wb-key wb-key-${name}`
            }, words)));
        this.nameViews();
        this.index = null;
        this.indexAsked = this.typed = false;
        places.matches = null;
        if (next && this.search.value.trim()) {
            this.askIndex();
            this.find();
        }
        this.pen.texts.clear();
        this.setHover(null);
        places.clamp();
        this.redraw();
    }
    takeAsked() {
        const asked = Object.entries(this.model.get("asked") ?? {});
        this.state.asked = new Map(asked.map(([id, style])=>[
                this.places.scene?.at.get(id),
                style
            ]).filter(([at])=>at?.kind === "arc").map(([at, style])=>[
                at.index,
                style
            ]));
    }
    heldBy(next) {
        const { places } = this;
        const { node, columns, strings } = places.scene, low = places.worldY(30);
        const inView = ({ y })=>y >= 30 && y <= places.heightPx;
        const upper = columns[0].slice(firstBelow(columns[0], node, low)).map((i)=>strings[node.id[i]]);
        for (const id of [
            this.state.selected,
            ...upper
        ]){
            const at = id && next.at.has(id) ? places.locate(id) : null;
            if (at && inView(at)) return {
                id,
                y: at.y
            };
        }
        return null;
    }
    nameViews() {
        const { count, hidden } = this.places.scene?.views ?? {
            count: 0,
            hidden: 0
        };
        this.viewsButton.hidden = 0 === count || this.state.readOnly;
        const rest = h("span", {
            class: "wb-rest"
        }, "reshapes and other ");
        this.viewsButton.replaceChildren(...hidden ? [
            `Show ${hidden} `
        ] : [
            `Hide ${count} `
        ], rest, "views");
    }
    redraw() {
        if (this.pending) return;
        this.pending = requestAnimationFrame(()=>{
            this.pending = 0;
            this.draw();
        });
    }
    draw() {
        if (!this.places.width) return;
        const began = performance.now();
        graph_drawing_draw(this.state);
        if (this.places.scene) this.overview.draw();
        this.drawn = performance.now() - began;
    }
    destroy() {
        this.closeMenu();
        this.stop.abort();
        this.sizes.disconnect();
        this.themes.disconnect();
        this.model.off("change:data", this.onData);
        this.model.off("change:selected", this.onSelected);
        this.model.off("change:asked", this.onAsked);
        this.model.off("msg:custom", this.onReveal);
    }
    paintTheme() {
        this.dark = isDark(this.el);
        this.el.classList.toggle("wb-dark", this.dark);
        if (this.model.get("dark") !== this.dark) {
            this.model.set("dark", this.dark);
            this.model.save_changes();
        }
        this.pen.ink = this.dark ? DARK : LIGHT;
        const paper = getComputedStyle(this.el).getPropertyValue("--jp-layout-color0").trim();
        this.pen.paper = paper || this.pen.ink.paper;
        this.redraw();
    }
    resize() {
        const { places } = this;
        const ratio = window.devicePixelRatio || 1;
        this.el.classList.toggle("wb-slim", this.el.clientWidth < 420);
        places.width = this.canvas.clientWidth;
        places.heightPx = this.el.clientHeight - 34;
        if (!places.width) return;
        this.canvas.width = Math.round(places.width * ratio);
        this.canvas.height = Math.round(places.heightPx * ratio);
        this.state.ratio = ratio;
        this.pen.texts.clear();
        if (this.atFit) this.fit();
        places.clamp();
        this.draw();
    }
    setZoom(zoom, anchorX = this.places.width / 2, anchorY = this.places.heightPx / 2) {
        const { places } = this;
        const world = places.worldY(anchorY), across = (anchorX + places.left) / places.scaleX;
        places.zoom = Math.max(0.01, Math.min(3, zoom));
        this.atFit = false;
        places.top = 30 + (world - 30) * places.zoom - anchorY;
        places.left = across * places.scaleX - anchorX;
        places.clamp();
        this.redraw();
    }
    actualSize() {
        const at = this.state.selected && this.places.locate(this.state.selected);
        if (at && at.y >= 30 && at.y <= this.places.heightPx) this.setZoom(1, at.x, at.y);
        else this.setZoom(1, 0, 30);
    }
    fit() {
        const { places } = this;
        if (!places.scene) return;
        places.left = places.top = 0;
        const all = Math.min(1, (places.heightPx - 30 - 14) / Math.max(1, places.scene.height - 30));
        this.setZoom(1 === places.scene.module.y.length && all >= 0.3 ? Math.max(all, 0.6) : all);
        this.atFit = true;
    }
    approach(index) {
        const { places } = this;
        const { module } = places.scene, room = places.heightPx - 30 - 16;
        this.setZoom(Math.max(0.75, Math.min(1, room / module.height[index])));
        places.top = (module.y[index] - 30) * places.zoom - 8;
        places.clamp();
        this.redraw();
    }
    place(id, node) {
        if (node >= 0) this.model.send({
            type: "place",
            id,
            node: this.places.scene.strings[this.places.scene.node.id[node]]
        });
    }
    nudge(by) {
        const { bar, endOf, columns } = this.places.scene, id = this.state.selected, chosen = endOf.get(id);
        if (!chosen) return;
        const side = bar.side[chosen.index], here = bar[`${chosen.end}_node`][chosen.index];
        const next = columns[side].indexOf(here) + (0 === side ? by : -by);
        this.place(id, columns[side][next] ?? -1);
    }
    pointer(event) {
        const box = this.canvas.getBoundingClientRect();
        return [
            event.clientX - box.left,
            event.clientY - box.top
        ];
    }
    onDown(event) {
        const { places } = this;
        this.tip.hidden = true;
        if (2 === event.button) return;
        this.canvas.focus({
            preventScroll: true
        });
        const [x, y] = this.pointer(event), bar = places.scene && !this.state.readOnly ? places.barHit(x, y) : null;
        this.state.drag = {
            x,
            y,
            left: places.left,
            top: places.top,
            moved: false,
            bar,
            click: 0 === event.button
        };
        this.canvas.setPointerCapture(event.pointerId);
    }
    onMove(event) {
        const { places } = this, { drag } = this.state;
        const [x, y] = this.pointer(event);
        if (!drag) return void this.setHover(places.hit(x, y), x, y);
        if (Math.hypot(x - drag.x, y - drag.y) > 3) drag.moved = true;
        if (!drag.moved) return;
        if (drag.bar) {
            drag.at = y;
            drag.target = places.nodeNear(places.scene.bar.side[drag.bar.index], y);
            this.tip.hidden = true;
            this.redraw();
            return;
        }
        this.atFit = false;
        places.left = drag.left - (x - drag.x);
        places.top = drag.top - (y - drag.y);
        this.setHover(null);
        this.canvas.style.cursor = "grabbing";
        places.clamp();
        this.redraw();
    }
    onUp(event) {
        const drag = this.state.drag;
        this.state.drag = null;
        this.canvas.style.cursor = "";
        if (drag?.bar && drag.moved) {
            this.select(drag.bar.id);
            this.place(drag.bar.id, drag.target);
            return;
        }
        if (!drag?.click) return;
        if (drag.moved) {
            this.clicked = [];
            return;
        }
        const target = this.places.hit(...this.pointer(event));
        this.clicked = [
            this.clicked.at(-1) ?? "",
            target?.id ?? ""
        ];
        if (target?.kind === "section") this.fold(target.index);
        else this.select(target?.id ?? "");
    }
    onDouble() {
        const [first, id] = this.clicked, at = this.places.scene?.at.get(id);
        if (first !== id || !at) return;
        if ("arc" === at.kind || "mark" === at.kind) this.turn(id);
        else this.enter(at);
    }
    enter(at) {
        if (at?.kind === "module") this.approach(at.index);
        else if (at?.kind === "node") this.unfold(at.index);
    }
    onMenu(event) {
        const { places, state } = this;
        state.drag = null;
        if (!places.scene) return;
        const byKeys = "keydown" === event.type || 2 !== event.button && !event.ctrlKey && "touch" !== event.pointerType, at = places.scene.at.get(state.selected);
        if (byKeys && at) this.reveal(state.selected);
        const target = byKeys ? at && {
            ...at,
            id: state.selected
        } : places.hit(...this.pointer(event));
        const items = target ? itemsOf(this, target) : [];
        if (!items.length) return;
        event.preventDefault();
        event.stopPropagation();
        this.closeMenu();
        const { x, y } = byKeys ? places.locate(target.id) : {
            x: this.pointer(event)[0],
            y: this.pointer(event)[1]
        };
        this.setHover(target);
        this.tip.hidden = true;
        this.closeMenu = openMenu(this.el, items, {
            x,
            y,
            height: places.heightPx
        }, {
            preview: (message)=>{
                if (!state.readOnly) this.preview(message);
            },
            closed: ()=>{
                this.closeMenu = ()=>{};
                this.setHover(null);
            },
            back: this.canvas
        });
    }
    onWheel(event) {
        const { places } = this;
        this.closeMenu();
        const [x, y] = this.pointer(event);
        if (event.ctrlKey || event.metaKey) {
            event.preventDefault();
            this.setZoom(places.zoom * Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0022)), x, y);
            return;
        }
        const { top, left } = places, unit = 1 === event.deltaMode ? 18 : 1;
        places.top += event.deltaY * unit;
        places.left += event.deltaX * unit;
        places.clamp();
        if (places.top !== top || places.left !== left) event.preventDefault();
        this.setHover(null);
        this.redraw();
    }
    onKey(event) {
        const { places } = this;
        if (!isPlainKey(event)) return;
        if ("ContextMenu" === event.key || event.shiftKey && "F10" === event.key) return void this.onMenu(event);
        const act = {
            ArrowDown: ()=>this.step(1),
            ArrowUp: ()=>this.step(-1),
            ArrowLeft: ()=>this.across(-1),
            ArrowRight: ()=>this.across(1),
            Enter: ()=>{
                const at = places.scene.at.get(this.state.selected);
                this.enter(at?.kind === "module" ? at : this.state.chosenPlace());
            },
            " ": ()=>this.turnSelected(),
            "/": ()=>{
                this.search.focus();
                this.search.select();
            },
            u: ()=>this.model.send({
                    type: "undo"
                }),
            r: ()=>this.model.send({
                    type: "redo"
                }),
            f: ()=>this.onTool("fit"),
            1: ()=>this.actualSize(),
            "+": ()=>this.onTool("in"),
            o: ()=>this.foldHere(),
            "[": ()=>this.nudge(-1),
            "]": ()=>this.nudge(1),
            "=": ()=>this.onTool("in"),
            "-": ()=>this.onTool("out"),
            Escape: ()=>this.select(""),
            l: ()=>this.el.closest(".wb-app")?.querySelector(".wb-beside-bar")?.click(),
            i: ()=>fold(this.el, "x"),
            d: ()=>fold(this.el, "y"),
            "?": ()=>toggleKeys(this.el, this.canvas, this.state.readOnly),
            Home: ()=>{
                places.top = 0;
                this.redraw();
            },
            End: ()=>{
                places.top = 1 / 0;
                places.clamp();
                this.redraw();
            },
            PageDown: ()=>this.scroll(0.9 * places.heightPx),
            PageUp: ()=>this.scroll(0.9 * -places.heightPx)
        }[event.key];
        if (!act) return;
        event.preventDefault();
        event.stopPropagation();
        act();
    }
    scroll(by) {
        this.places.top += by;
        this.places.clamp();
        this.redraw();
    }
    onTool(what) {
        const { places } = this;
        if ("in" === what) this.setZoom(1.25 * places.zoom);
        else if ("out" === what) this.setZoom(places.zoom / 1.25);
        else if ("one" === what) this.actualSize();
        else if ("fit" === what) {
            this.fit();
            this.refitUntil = performance.now() + 2000;
            if (!this.state.readOnly) this.model.send({
                type: "relax"
            });
        } else if ("next" === what) this.walk(1);
        else if ("previous" === what) this.walk(-1);
        else if ("legend" === what) toggleLegend(this.el, this.pen.ink, places.scene?.bar.side.length > 0);
        else if ("views" === what) this.model.send({
            type: "views",
            shown: places.scene.views.hidden > 0
        });
    }
    step(by) {
        const { node, arc, columns, strings } = this.places.scene, chosen = this.state.chosenPlace();
        if (chosen?.kind === "arc") {
            const order = Array.from(arc.y0.keys()).sort((a, b)=>arc.y0[a] - arc.y0[b]);
            const next = order[order.indexOf(chosen.index) + by];
            if (void 0 !== next) this.select(strings[arc.id[next]], true);
            return;
        }
        const side = chosen ? node.side[chosen.index] : 0, list = columns[side];
        const next = chosen ? list.indexOf(chosen.index) + by : firstBelow(list, node, this.places.worldY(30));
        if (void 0 !== list[next]) this.select(strings[node.id[list[next]]], true);
    }
    across(by) {
        const { node, arc, columns, strings, arcsFrom } = this.places.scene, chosen = this.state.chosenPlace();
        if (!chosen) return void this.step(1);
        if ("arc" === chosen.kind) {
            const end = by > 0 ? arc.target[chosen.index] : arc.source[chosen.index];
            if (end >= 0) this.select(strings[node.id[end]], true);
            return;
        }
        const side = node.side[chosen.index];
        const mine = (arcsFrom.get(chosen.index) ?? []).filter((i)=>(by > 0 ? arc.source[i] : arc.target[i]) === chosen.index && 0 === arc.shape[i]);
        if (mine.length) return void this.select(strings[arc.id[mine[0]]], true);
        if (by > 0 === (1 === side)) return;
        const list = columns[1 - side], next = list[Math.min(list.length - 1, firstBelow(list, node, node.y[chosen.index] + 1))];
        if (void 0 !== next) this.select(strings[node.id[next]], true);
    }
    select(id, show = false) {
        if (this.state.selected !== id) {
            this.model.set("selected", id);
            this.model.save_changes();
        }
        if (show) this.reveal(id);
        this.redraw();
    }
    reveal(id, near = false) {
        const { places } = this;
        if (near && !places.labelled() && places.locate(id)) this.setZoom(1);
        const at = places.locate(id);
        if (!at) return;
        if (at.y < 54 || at.y > places.heightPx - 40) {
            places.top += at.y - places.heightPx / 2;
            places.clamp();
        }
        this.redraw();
    }
    turn(id) {
        if (!this.state.readOnly) this.model.send({
            type: "turn",
            id
        });
    }
    turned(at) {
        const { arc, arcsFrom, marksOf } = this.places.scene;
        if (at?.kind !== "node") return at?.kind === "arc" || at?.kind === "mark" ? at : null;
        const own = marksOf.get(at.index)?.[0], from = (arcsFrom.get(at.index) ?? []).find((i)=>arc.source[i] === at.index);
        if (own) return {
            kind: "mark",
            index: own.index
        };
        return void 0 === from ? null : {
            kind: "arc",
            index: from
        };
    }
    turnSelected() {
        const { scene } = this.places, id = this.state.selected, chosen = scene.at.get(id), turned = this.turned(chosen);
        if (turned) this.turn(scene.strings[scene[turned.kind].id[turned.index]]);
        else if (chosen?.kind === "bar") this.turn(id);
    }
    fold(index) {
        const section = this.places.scene.sections[index];
        if (section.identical > 1) this.model.send({
            type: "fold",
            stem: section.stem,
            folded: section.count > 1
        });
    }
    foldHere() {
        const { sections } = this.places.scene, chosen = this.state.chosenPlace(), top = this.places.worldY(30);
        const own = chosen ? this.sectionOf(chosen) : -1;
        const found = own >= 0 ? own : sections.findIndex((one)=>one.identical > 1 && one.y + one.height > top);
        if (found >= 0 && !this.state.readOnly) this.fold(found);
    }
    sectionOf(at) {
        const { node, arc, mark, module, sections } = this.places.scene;
        if ("section" === at.kind) return sections[at.index].identical > 1 ? at.index : -1;
        const y = "arc" === at.kind ? arc.y0[at.index] : "mark" === at.kind ? node.y[mark.node[at.index]] : ({
            node,
            module
        })[at.kind]?.y[at.index];
        return sections.findIndex((one)=>one.identical > 1 && y >= one.y && y < one.y + one.height);
    }
    unfold(index) {
        const { node, strings } = this.places.scene;
        if (128 & node.flags[index] && !this.state.readOnly) this.model.send({
            type: "fold",
            node: strings[node.id[index]]
        });
        else if (64 & node.flags[index] && !this.state.readOnly) this.model.send({
            type: "fold",
            stem: `waits:${strings[node.id[index]].slice(2)}`
        });
    }
    askIndex() {
        if (this.index || this.indexAsked || this.state.readOnly) return;
        this.indexAsked = true;
        this.model.send({
            type: "index"
        });
    }
    takeIndex(index) {
        this.index = index;
        if (!this.search.value.trim() || !this.places.scene || this.coming) return;
        this.find();
        if (this.enteredEarly) this.walk(this.enteredEarly);
        else if (this.typed && !this.walked) this.showFirst();
        this.typed = false;
        this.enteredEarly = 0;
    }
    find() {
        const { places } = this, { at } = places.scene;
        this.hits = search(entriesOf(places.scene, this.index), this.search.value);
        const nodes = this.hits.map(({ id })=>at.get(id)).filter((entry)=>entry?.kind === "node");
        places.matches = this.search.value.trim() ? new Set(nodes.map(({ index })=>index)) : null;
        const isThere = this.hits.some(({ id })=>id === this.current) || this.indexAsked && !this.index;
        if (!this.walked || !isThere) this.current = this.hits[0]?.id ?? "";
        this.tellFound();
        this.redraw();
    }
    tellFound() {
        const place = this.hits.findIndex(({ id })=>id === this.current), asked = this.search.value.trim();
        this.found.textContent = asked ? this.hits.length ? `${place < 0 ? "…" : place + 1} of ${this.hits.length}` : this.indexAsked && !this.index ? "…" : "none" : "";
        this.found.title = asked && this.current && !this.places.scene.at.has(this.current) ? "In a folded layer or a hidden view: Enter shows it" : "";
        for (const button of this.el.querySelectorAll(".wb-find button"))button.disabled = !this.hits.length;
    }
    onSearch() {
        if (!this.places.scene) return;
        this.setHover(null);
        this.walked = false;
        this.typed = true;
        this.enteredEarly = 0;
        this.askIndex();
        this.find();
        this.showFirst();
    }
    showFirst() {
        if (this.current) this.reveal(this.current);
    }
    walk(by) {
        const { hits } = this, place = hits.findIndex(({ id })=>id === this.current);
        if (place < 0) {
            this.enteredEarly = this.indexAsked && !this.index ? by : 0;
            return;
        }
        if (this.walked || by < 0) this.current = hits[(place + by + hits.length) % hits.length].id;
        this.walked = true;
        this.setHover(null);
        if (this.places.scene.at.has(this.current)) {
            this.select(this.current);
            this.come(this.current);
        } else this.model.send({
            type: "unveil",
            id: this.current
        });
        this.tellFound();
    }
    come(id) {
        const { places } = this, at = places.locate(id);
        if (at && !places.labelled()) this.setZoom(1, at.x, Math.max(30, Math.min(at.y, places.heightPx)));
        this.reveal(id);
    }
    onSearchKey(event) {
        event.stopPropagation();
        if ("Escape" === event.key) {
            this.search.value = "";
            this.onSearch();
            this.canvas.focus();
        }
        if ("Enter" === event.key) {
            event.preventDefault();
            this.walk(event.shiftKey ? -1 : 1);
        }
    }
    setHover(target, x = 0, y = 0) {
        if (this.el.querySelector(".wb-menu")) return;
        const same = target?.id === this.state.hover?.id;
        this.state.hover = target;
        this.canvas.style.cursor = target ? "pointer" : "";
        if (target && "section" !== target.kind) this.showTip(target, x, y);
        else this.tip.hidden = true;
        if (!same) {
            this.previewOf(target);
            this.redraw();
        }
    }
    previewOf(target) {
        if (this.state.readOnly) return;
        this.preview(target?.kind === "arc" || target?.kind === "mark" ? {
            id: target.id
        } : null);
    }
    tell() {
        const at = document.activeElement === this.canvas ? this.places.scene?.at.get(this.state.selected) : null;
        this.told.textContent = at ? graph_text_about(this.places.scene, at).map(([, text])=>text).filter(Boolean).join(". ") : "";
    }
    showTip(target, x, y) {
        const { places } = this;
        this.tip.replaceChildren(...graph_text_about(places.scene, target).filter(([, text])=>text).map(([tag, text])=>{
            const row = document.createElement("div");
            row.className = `wb-tip-${tag || "p"}`;
            row.textContent = text;
            return row;
        }));
        this.tip.hidden = false;
        const { offsetWidth, offsetHeight } = this.tip;
        this.tip.style.left = `${Math.max(4, Math.min(x + 14, places.width - offsetWidth - 8))}px`;
        this.tip.style.top = `${y + 18 + offsetHeight > places.heightPx ? Math.max(4, y - offsetHeight - 12) : y + 18}px`;
    }
}
function render({ model, el }) {
    const view = new View(model, el);
    el.__workbench = {
        position (id) {
            view.reveal(id, true);
            const at = view.places.locate(id), box = view.canvas.getBoundingClientRect();
            return at && {
                x: box.left + at.x,
                y: box.top + at.y
            };
        },
        hit (x, y) {
            const box = view.canvas.getBoundingClientRect();
            return view.places.hit(x - box.left, y - box.top)?.id ?? null;
        },
        state () {
            const { scene: s } = view.places;
            return {
                nodes: s?.node.id.length ?? 0,
                zoom: view.places.zoom,
                top: view.places.top,
                selected: model.get("selected"),
                dark: view.dark,
                drawn_ms: view.drawn,
                sections: s?.sections ?? [],
                arcs: s ? Array.from(s.arc.id, (id, i)=>({
                        id: s.strings[id],
                        style: s.arc.style[i],
                        asked: view.state.asked.get(i) ?? null,
                        label: s.strings[s.arc.label[i]]
                    })) : [],
                marks: s ? Array.from(s.mark.id, (id, i)=>({
                        id: s.strings[id],
                        text: s.strings[s.mark.text[i]],
                        state: s.mark.state[i]
                    })) : [],
                bars: s ? Array.from(s.bar.side, (side, i)=>({
                        side,
                        ...view.places.barAt(i),
                        id: s.strings[s.bar.issue[i]],
                        wait_id: s.strings[s.bar.wait[i]]
                    })) : [],
                modules: s && view.places.far ? view.places.bands().map((i)=>({
                        scope: s.strings[s.module.scope[i]],
                        y: view.places.y(s.module.y[i]),
                        height: s.module.height[i] * view.places.zoom
                    })) : [],
                ids: s ? Array.from(s.node.id, (id)=>s.strings[id]) : [],
                matches: view.places.matches?.size ?? null,
                found: view.hits.map(({ id })=>id),
                current: view.current
            };
        },
        view
    };
    return ()=>view.destroy();
}
const graph_view = {
    render
};
function peak_table_render({ model, el }) {
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
        el.replaceChildren(...peak_table_list(model, "predicted", predicted, [
            eager,
            null === plain ? ask : plain
        ]), ...measured ? peak_table_list(model, "measured", measured) : []);
    });
}
function peak_table_list(model, kind, { head = "", rows = [], peak = null }, more = []) {
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
            }, ` ${row.scope}`)), h("td", {}, peak_table_source(row.source)))))), {
            "data-kind": kind
        })
    ];
}
function peak_table_source(text) {
    const line = text.lastIndexOf(":");
    return h("code", {
        class: "wb-muted wb-place",
        title: text || null
    }, h("span", {}, line < 0 ? text : text.slice(0, line)), line < 0 ? "" : text.slice(line));
}
const peak_table = {
    render: peak_table_render
};
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
function compile_tab_render({ model, el }) {
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
    render: compile_tab_render
};
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
function figure_strip_render({ model, el }) {
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
    render: figure_strip_render
};
const LANE_HEIGHT = 34, BAR = 22, AXIS = 24, NAMES = 130, TICK = 60;
function timeline_tab_render({ model, el }) {
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
    render: timeline_tab_render
};
const report_page_data = JSON.parse(document.getElementById("wb-data").textContent);
function report_page_still(traits, onSend = ()=>{}) {
    const callbacks = new Map(), emit = (event, ...given)=>{
        for (const call of callbacks.get(event) ?? [])call(...given);
    };
    return {
        get: (name)=>traits[name],
        save_changes: ()=>{},
        send: onSend,
        emit,
        set: (name, value)=>{
            if (traits[name] !== value) {
                traits[name] = value;
                emit(`change:${name}`);
            }
        },
        on: (event, call)=>callbacks.set(event, [
                ...callbacks.get(event) ?? [],
                call
            ]),
        off: (event, call)=>callbacks.set(event, (callbacks.get(event) ?? []).filter((other)=>other !== call))
    };
}
const report_page_place = (name)=>document.getElementById(`wb-${name}`);
const report_page_bytes = (text)=>Uint8Array.from(atob(text), (character)=>character.charCodeAt(0)).buffer;
for (const table of Object.values(report_page_data.graph.data.tables))for (const column of Object.values(table))column[1] = report_page_bytes(column[1]);
const theme = report_page_place("theme");
function report_page_paint(dark) {
    document.body.dataset.jpThemeLight = String(!dark);
    theme.textContent = dark ? "Light" : "Dark";
}
report_page_paint(matchMedia("(prefers-color-scheme: dark)").matches);
theme.addEventListener("click", ()=>report_page_paint("true" === document.body.dataset.jpThemeLight));
const graph = report_page_still(report_page_data.graph), sites = new Map(report_page_data.sites.map((site)=>[
        site.id,
        site
    ]));
function report_page_go(id) {
    graph.set("selected", id);
    graph.emit("msg:custom", {
        type: "reveal",
        id
    });
    report_page_place("graph").scrollIntoView({
        block: "nearest"
    });
}
const report_page_element = (tag, text, cls = "")=>Object.assign(document.createElement(tag), {
        textContent: text,
        className: cls
    });
function tell() {
    const site = sites.get(graph.get("selected"));
    if (!site) return void report_page_place("about").replaceChildren(report_page_element("div", "Click an arc or a mark to see what could be chosen there.", "wb-muted"));
    report_page_place("about").replaceChildren(report_page_element("strong", site.label), " ", report_page_element("code", site.id, "wb-muted"), " ", report_page_element("code", site.source, "wb-muted"), ...site.options.map((option)=>{
        const why = site.illegal[option], state = option === site.choice ? "chosen" : why ? `refused: ${why}` : "legal", row = document.createElement("div");
        row.append(report_page_element("code", option), " ", report_page_element("span", option === site.default ? `${state}, default` : state, "wb-muted"));
        return row;
    }));
}
graph.on("change:selected", tell);
tell();
const answer = (message)=>{
    if ([
        "go",
        "unveil"
    ].includes(message.type)) report_page_go(message.id);
};
graph_view.render({
    model: graph,
    el: report_page_place("graph")
});
for (const [name, widget] of Object.entries({
    strip: figure_strip,
    alive: peak_table,
    compile: compile_tab,
    timeline: timeline_tab
}))if (!report_page_place(name).closest("[hidden]")) widget.render({
    model: report_page_still(report_page_data[name], answer),
    el: report_page_place(name)
});
document.body.dataset.ready = "true";
