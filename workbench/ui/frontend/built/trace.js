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
function broken(text, most = 160) {
    if (text.length <= most) return [
        text
    ];
    const indent = " ".repeat(text.search(/\S|$/) + 6), parts = [];
    let part = "";
    for (const word of text.split(/(?<=, )/)){
        if (part.trim() && part.length + word.length > most) {
            parts.push(part.trimEnd());
            part = indent;
        }
        part += word;
    }
    return [
        ...parts,
        part
    ];
}
function follow(model, names, draw) {
    for (const name of names)model.on(`change:${name}`, draw);
    draw();
    return ()=>{
        for (const name of names)model.off(`change:${name}`, draw);
    };
}
const LINE = 18;
const WIDEST = 130;
function render({ model, el }) {
    panel(el, "trace");
    const search = h("input", {
        type: "search",
        placeholder: "Search trace",
        "aria-label": "Search trace",
        spellcheck: "false"
    });
    const count = h("span", {
        class: "wb-muted",
        "aria-live": "polite"
    });
    const inner = h("div", {
        class: "wb-lines"
    });
    const box = scrolled("The trace as text", inner, {
        class: "wb-scroll wb-text"
    });
    el.replaceChildren(h("div", {
        class: "wb-row"
    }, search, count), box);
    let shown = [];
    function filter() {
        const { lines = [] } = model.get("content"), query = search.value.trim().toLowerCase();
        const found = lines.map((line, number)=>({
                ...line,
                whole: line.text,
                number: String(number + 1)
            })).filter(({ text, source })=>!query || `${text} ${source}`.toLowerCase().includes(query));
        shown = found.flatMap((line)=>broken(line.text).map((text, part)=>part ? {
                    ...line,
                    text,
                    source: "",
                    number: ""
                } : {
                    ...line,
                    text
                }));
        count.textContent = lines.length ? query ? `${found.length} of ${lines.length} lines` : `${lines.length} lines` : "computing the trace…";
        inner.style.height = `${shown.length * LINE}px`;
        const most = (key, some)=>shown.reduce((width, line)=>some(line) ? Math.max(width, line[key].length) : width, 0);
        const text = Math.min(WIDEST, most("text", ({ source })=>source)), source = most("source", ()=>true);
        inner.style.setProperty("--wb-source", `${source}ch`);
        inner.style.setProperty("--wb-text", `${text}ch`);
        inner.style.minWidth = `calc(${Math.max(text + source, most("text", ({ source })=>!source))}ch + 92px)`;
        draw();
    }
    function draw() {
        const marked = new Set([
            model.get("selected"),
            ...model.get("marked") ?? []
        ]), first = Math.max(0, Math.floor(box.scrollTop / LINE) - 10);
        const rows = shown.slice(first, first + Math.ceil(box.clientHeight / LINE) + 20);
        inner.replaceChildren(...rows.map((line, i)=>h("div", {
                class: `wb-line ${line.source ? "" : "wb-alone"} ${line.id && marked.has(line.id) ? "wb-chosen" : ""} ${line.own || line.id ? "wb-can" : ""}`,
                style: `top:${(first + i) * LINE}px`,
                onclick: line.own ? ()=>model.send({
                        type: "unveil",
                        id: line.own
                    }) : line.id ? ()=>model.send({
                        type: "go",
                        id: line.id
                    }) : null
            }, h("span", {
                class: "wb-no"
            }, line.number), h("code", {
                title: line.whole
            }, line.text), h("code", {
                class: "wb-muted",
                title: line.source
            }, line.source))));
    }
    let late = false;
    function reveal() {
        late = !box.clientHeight;
        const [first = model.get("selected")] = model.get("marked") ?? [];
        const row = shown.findIndex((line)=>line.id && line.id === first);
        if (row >= 0 && (row * LINE < box.scrollTop || row * LINE > box.scrollTop + box.clientHeight - LINE)) box.scrollTop = row * LINE - box.clientHeight / 2;
        draw();
    }
    search.addEventListener("input", filter);
    box.addEventListener("scroll", draw);
    const sizes = new ResizeObserver(()=>late ? reveal() : draw());
    sizes.observe(box);
    for (const name of [
        "selected",
        "marked"
    ])model.on(`change:${name}`, reveal);
    const stop = follow(model, [
        "content"
    ], ()=>{
        filter();
        reveal();
    });
    return ()=>{
        sizes.disconnect();
        for (const name of [
            "selected",
            "marked"
        ])model.off(`change:${name}`, reveal);
        stop();
    };
}
const trace = {
    render: render
};
export default trace;
