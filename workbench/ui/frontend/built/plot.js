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
async function afterGraph(el) {
    const began = performance.now(), pause = (ms)=>new Promise((next)=>setTimeout(next, ms));
    const drawn = ()=>{
        const app = el.closest(".wb-app");
        return el.isConnected && (!app || app.querySelector(".wb-graph")?.__workbench?.view.drawn > 0);
    };
    while(!drawn() && performance.now() - began < 2000)await pause(30);
    if (el.closest(".wb-app")) await pause(50);
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
const LEAST = 120;
const ROOM = 260;
const NARROW = 480;
const SETTLED = 60;
async function library(model, version) {
    const pages = window;
    const has = ()=>pages.Bokeh?.[version] ?? (pages.Bokeh?.version === version ? pages.Bokeh : null);
    if (has()) return has();
    pages.__workbenchBokeh ??= new Promise((resolve)=>{
        const receive = (message, buffers)=>{
            if ("library" !== message.type) return;
            model.off("msg:custom", receive);
            const script = document.createElement("script");
            script.textContent = new TextDecoder().decode(buffers[0]);
            document.head.append(script);
            resolve(null);
        };
        model.on("msg:custom", receive);
        model.send({
            type: "library"
        });
    });
    await pages.__workbenchBokeh;
    return has();
}
async function attached(el, signal) {
    while(!el.isConnected && !signal.aborted)await new Promise((next)=>setTimeout(next, 30));
    return !signal.aborted;
}
async function visible(el, signal) {
    if (!await attached(el, signal)) return false;
    await new Promise((done)=>{
        const sizes = new ResizeObserver(()=>{
            if (!el.clientWidth) return;
            sizes.disconnect();
            done(null);
        });
        sizes.observe(el);
        signal.addEventListener("abort", ()=>{
            sizes.disconnect();
            done(null);
        });
    });
    return !signal.aborted;
}
function columns({ lines, backward_from, ...sent }) {
    const numbers = (column)=>Array.from(new Float64Array(column.buffer.slice(column.byteOffset, column.byteOffset + column.byteLength)));
    const data = Object.fromEntries(Object.entries(sent).map(([name, column])=>[
            name,
            Array.isArray(column) ? column : numbers(column)
        ]));
    if (void 0 === lines) return data;
    data.statement = data.x.length ? lines.split("\n") : [];
    data.side = data.x.map((at)=>at >= backward_from ? "backward" : "forward");
    return data;
}
function render({ model, el }) {
    panel(el, "plot");
    el.setAttribute("role", "figure");
    const told = h("span", {
        class: "wb-unseen",
        role: "status"
    });
    const stop = new AbortController();
    let roots = null, shown = null;
    function fit() {
        const plot = roots?.roots[0]?.model, full = "1" === getComputedStyle(el).getPropertyValue("--wb-full").trim();
        if (!plot || !el.clientWidth) return;
        drawKey(plot);
        const tabs = el.closest(".widget-tab-contents"), above = getComputedStyle(el.parentElement).flexDirection.startsWith("column");
        const room = (above ? el.clientHeight : tabs?.clientHeight - 14) - words.offsetHeight;
        const height = full ? Math.max(LEAST, room) : usual;
        if (low !== height < ROOM) {
            low = height < ROOM;
            fill();
        }
        if (plot.height !== height) plot.height = height;
    }
    let low = true;
    const words = h("div", {
        class: "wb-plot-key",
        hidden: true
    });
    function drawKey(plot) {
        const legend = plot.right.find((part)=>"Legend" === part.type), narrow = el.clientWidth < NARROW;
        if (!legend) return;
        legend.visible = !narrow;
        words.hidden = !narrow;
        const color = ({ glyph })=>glyph.fill_color?.value ?? glyph.line_color?.value ?? "";
        words.replaceChildren(...legend.items.filter((item)=>item.visible).map((item)=>h("span", {}, h("i", {
                style: `background:${color(item.renderers[0])}`
            }), item.label.value)));
        if (words.parentElement !== el) el.append(words);
    }
    let usual = 0;
    function fill() {
        if (!shown) return;
        const { sources, set, low: ifLow, says } = model.get("content");
        if (says) el.setAttribute("aria-label", says);
        for (const [name, data] of Object.entries(sources ?? {}))shown.get_model_by_name(name).data = columns(data);
        for (const [name, values] of Object.entries(set ?? {}))shown.get_model_by_name(name).setv({
            ...values,
            ...low ? ifLow?.[name] : {}
        });
        const plot = roots?.roots[0]?.model;
        if (plot) drawKey(plot);
    }
    function mark() {
        const chosen = shown?.get_model_by_name("chosen");
        if (chosen) chosen.data = {
            x: model.get("chosen") ?? []
        };
        const [at] = model.get("chosen") ?? [], { x = [], y = [], statement = [] } = void 0 === at ? {} : shown?.get_model_by_name("predicted")?.data ?? {};
        const point = Array.from(x).indexOf(at);
        told.textContent = document.activeElement === el && point >= 0 ? `${statement[point]}: ${humanBytes(y[point])} predicted` : "";
        el.append(told);
    }
    function key(event) {
        const by = {
            ArrowLeft: -1,
            ArrowRight: 1
        }[event.key], rows = model.get("chosen");
        if (!by || !rows || event.target !== el || !shown || !isPlainKey(event)) return;
        event.preventDefault();
        const x = rows.length ? (by > 0 ? rows.at(-1) : rows[0]) + by : shown.get_model_by_name("peak").data.x[0];
        model.send({
            type: "at",
            x,
            by
        });
    }
    if (model.get("chosen")) el.tabIndex = 0;
    el.addEventListener("keydown", key);
    function tap({ x }) {
        model.send({
            type: "at",
            x
        });
    }
    const near = {}, timers = {}, view = Math.random();
    function ask(axis) {
        const { sources = {}, set = {}, sampled = {} } = model.get("content"), range = shown?.get_model_by_name(axis);
        if (!sampled[axis] || !range) return;
        const { start, end } = range, had = near[axis];
        if (start <= set[axis].start && end >= set[axis].end) {
            if (had) for (const name of had.names)shown.get_model_by_name(name).data = columns(sources[name]);
            delete near[axis];
        } else if (!had || start < had.start || end > had.end || !had.whole && end - start < 0.99 * had.span) model.send({
            type: "range",
            axis,
            start,
            end,
            pixels: el.clientWidth,
            view
        });
    }
    function follow_ranges() {
        for (const axis of Object.keys(model.get("content").sampled ?? {}))shown.get_model_by_name(axis).change.connect(()=>{
            clearTimeout(timers[axis]);
            timers[axis] = setTimeout(()=>ask(axis), SETTLED);
        });
    }
    function take(message) {
        if ("points" !== message.type || message.view !== view || !shown) return;
        near[message.axis] = {
            ...message,
            names: Object.keys(message.sources)
        };
        for (const [name, data] of Object.entries(message.sources))shown.get_model_by_name(name).data = columns(data);
    }
    async function embedded(bokeh, item, current) {
        while(await attached(el, stop.signal) && current()){
            const place = document.createElement("div");
            roots?.clear();
            el.replaceChildren(place);
            try {
                return await bokeh.embed.embed_item(item, place);
            } catch (error) {
                if (place.isConnected) throw error;
                await new Promise((next)=>setTimeout(next, 30));
            }
        }
        return null;
    }
    let drawings = 0;
    async function draw() {
        const drawing = ++drawings, current = ()=>drawing === drawings;
        if (!await visible(el, stop.signal)) return;
        await afterGraph(el);
        if (!current() || stop.signal.aborted) return;
        const { item, version, pickable } = model.get("plot");
        const bokeh = await library(model, version);
        const made = await embedded(bokeh, item, current);
        if (!made) return;
        if (!current()) return void made.clear();
        roots = made;
        shown = roots.roots[0].model.document;
        for (const name of pickable ?? []){
            const source = shown.get_model_by_name(name);
            source.selected.properties.indices.change.connect(()=>{
                const [index] = source.selected.indices;
                if (void 0 === index) return;
                model.send({
                    type: "pick",
                    source: name,
                    index
                });
                source.selected.indices = [];
            });
        }
        usual = roots.roots[0].model.height;
        low = true;
        roots.roots[0].model.on_event("tap", tap);
        fill();
        follow_ranges();
        mark();
        fit();
    }
    const sizes = new ResizeObserver(fit);
    attached(el, stop.signal).then((there)=>{
        const tabs = el.closest(".widget-tab-contents");
        if (there) {
            for (const part of [
                el,
                tabs
            ])if (part) sizes.observe(part);
        }
    });
    model.on("change:plot", draw);
    const refill = ()=>{
        for (const axis of Object.keys(near))delete near[axis];
        fill();
        mark();
    };
    model.on("change:content", refill);
    model.on("change:chosen", mark);
    model.on("msg:custom", take);
    draw();
    return ()=>{
        stop.abort();
        sizes.disconnect();
        model.off("change:plot", draw);
        model.off("change:content", refill);
        model.off("change:chosen", mark);
        model.off("msg:custom", take);
        roots?.clear();
    };
}
const plot_0 = {
    render: render
};
export default plot_0;
