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
const WIDEST_HALF = 130;
const readable = (lines)=>lines.flatMap(([mark, text], of)=>broken(text).map((part)=>({
                mark,
                text: part,
                of
            })));
function rowsOf(lines, beside) {
    if (!beside) return lines.map((part)=>({
            changed: " " !== part.mark,
            halves: [
                part
            ]
        }));
    const none = {
        mark: " ",
        text: "",
        of: -1
    };
    const rows = [];
    for(let at = 0; at < lines.length;){
        if (" " === lines[at].mark) {
            const half = lines[at++];
            rows.push({
                changed: false,
                halves: [
                    half,
                    half
                ]
            });
            continue;
        }
        const gone = [], added = [];
        while(at < lines.length && "-" === lines[at].mark)gone.push(lines[at++]);
        while(at < lines.length && "+" === lines[at].mark)added.push(lines[at++]);
        for(let i = 0; i < Math.max(gone.length, added.length); i++)rows.push({
            changed: true,
            halves: [
                gone[i] ?? none,
                added[i] ?? none
            ]
        });
    }
    return rows;
}
function render({ model, el }) {
    panel(el, "passes");
    const steps = h("div", {
        class: "wb-steps",
        role: "group",
        "aria-label": "Steps of the compilation"
    }), about = h("p", {
        class: "wb-about",
        "aria-live": "polite"
    });
    const search = h("input", {
        type: "search",
        placeholder: "Search this step",
        "aria-label": "Search this step",
        spellcheck: "false"
    });
    const only = h("input", {
        type: "checkbox"
    }), beside = h("input", {
        type: "checkbox"
    });
    const count = h("span", {
        class: "wb-muted",
        "aria-live": "polite"
    });
    const to = (by)=>()=>go(by);
    const back = h("button", {
        class: "wb-back",
        onclick: to(-1)
    }, "Previous change"), next = h("button", {
        class: "wb-next",
        onclick: to(1)
    }, "Next change");
    const inner = h("div", {
        class: "wb-lines"
    }), box = h("div", {
        class: "wb-scroll wb-text",
        tabindex: "0",
        role: "region",
        "aria-label": "Text of this step"
    }, inner);
    el.replaceChildren(steps, about, h("div", {
        class: "wb-row"
    }, search, h("label", {
        class: "wb-check"
    }, only, "only what changed"), h("label", {
        class: "wb-check"
    }, beside, "side by side"), back, next, count), box);
    let shown = [], changes = [], at = -1, drawn = null;
    function filter() {
        const { lines = [], chosen = 0, names = [], steps: told = [] } = model.get("content"), query = search.value.trim().toLowerCase();
        steps.replaceChildren(...names.map((name, index)=>[
                index > 0 && h("span", {
                    class: "wb-muted",
                    "aria-hidden": "true"
                }, "→"),
                h("button", {
                    class: index === chosen ? "wb-pressed" : null,
                    "aria-pressed": String(index === chosen),
                    title: told[index]?.about,
                    onclick: ()=>model.send({
                            type: "pass",
                            index
                        })
                }, name, told[index]?.took && h("span", {
                    class: "wb-took"
                }, told[index].took))
            ]).flat().filter(Boolean));
        about.replaceChildren(...told[chosen] ? [
            told[chosen].about,
            h("span", {
                class: "wb-muted"
            }, ` ${told[chosen].left}.`)
        ] : []);
        shown = rowsOf(readable(lines), beside.checked).filter(({ changed, halves })=>(!only.checked || changed) && (!query || halves.some(({ text })=>text.toLowerCase().includes(query))));
        changes = shown.flatMap(({ changed }, row)=>changed && !shown[row - 1]?.changed ? [
                row
            ] : []);
        at = -1;
        inner.style.height = `${shown.length * LINE}px`;
        const longest = shown.reduce((most, { halves })=>Math.max(most, ...halves.map(({ text })=>text.length)), 0);
        inner.style.minWidth = beside.checked ? `calc(${2 * Math.min(longest, WIDEST_HALF)}ch + 80px)` : `calc(${longest}ch + 44px)`;
        inner.classList.toggle("wb-beside", beside.checked);
        draw();
        write();
    }
    function write() {
        const { lines = [], names = [] } = model.get("content");
        const added = lines.filter(([mark])=>"+" === mark).length, gone = lines.filter(([mark])=>"-" === mark).length;
        const seen = new Set(shown.flatMap(({ halves })=>halves.map(({ of })=>of)).filter((of)=>of >= 0)).size;
        const some = seen < lines.length ? `${seen} of ` : "";
        const where = changes.length ? `, ${at < 0 ? "" : `change ${at + 1} of `}${changes.length}${at < 0 ? ` change${1 === changes.length ? "" : "s"}` : ""}` : "";
        count.textContent = names.length ? `${some}${lines.length} lines${added + gone ? `, ${added} added, ${gone} removed` : ""}${where}` : "computing the passes…";
        back.disabled = at <= 0;
        next.disabled = at >= changes.length - 1;
    }
    function go(by) {
        at = Math.max(0, Math.min(changes.length - 1, at + by));
        if (changes.length) box.scrollTop = Math.max(0, (changes[at] - 2) * LINE);
        draw();
        write();
    }
    function selectedValues() {
        const values = (model.get("marked") ?? []).filter((id)=>id.startsWith("t:")).map((id)=>id.slice(2));
        return values.length ? new RegExp(`(?<![\\w.])(?:${values.join("|")})(?!\\w)`) : null;
    }
    function goes(halves) {
        const value = halves.map(({ text })=>/^\s*\(?(\w+)[,\w\s)]* = /.exec(text)?.[1]).find(Boolean);
        return value ? {
            onclick: ()=>model.send({
                    type: "value",
                    value
                })
        } : {};
    }
    function draw() {
        const first = Math.max(0, Math.floor(box.scrollTop / LINE) - 10), marked = selectedValues();
        const half = ({ mark, text })=>[
                h("span", {
                    class: "wb-no"
                }, " " === mark ? "" : "-" === mark ? "−" : "+"),
                h("code", {
                    title: text,
                    class: beside.checked && " " !== mark ? "+" === mark ? "wb-new" : "wb-gone" : null
                }, text)
            ];
        inner.replaceChildren(...shown.slice(first, first + Math.ceil(box.clientHeight / LINE) + 20).map(({ halves }, i)=>({
                halves,
                i,
                act: goes(halves)
            })).map(({ halves, i, act })=>h("div", {
                ...act,
                class: `wb-line ${act.onclick ? "wb-can" : ""} ${beside.checked ? "" : "+" === halves[0].mark ? "wb-new" : "-" === halves[0].mark ? "wb-gone" : ""} ${changes[at] === first + i ? "wb-here" : ""} ${marked && halves.some(({ text })=>marked.test(text)) ? "wb-chosen" : ""}`,
                style: `top:${(first + i) * LINE}px`
            }, halves.map(half))));
    }
    search.addEventListener("input", filter);
    for (const box_ of [
        only,
        beside
    ])box_.addEventListener("change", ()=>{
        filter();
        go(1);
    });
    box.addEventListener("scroll", draw);
    const sizes = new ResizeObserver(draw);
    sizes.observe(box);
    const stop = follow(model, [
        "content"
    ], ()=>{
        const { chosen, names = [] } = model.get("content"), step = names[chosen];
        filter();
        if (step !== drawn && void 0 !== step) go(1);
        drawn = step;
    });
    function reveal() {
        const marked = selectedValues(), found = marked ? shown.flatMap(({ halves }, row)=>halves.some(({ text })=>marked.test(text)) ? [
                row * LINE
            ] : []) : [];
        const inSight = found.some((top)=>top >= box.scrollTop && top <= box.scrollTop + box.clientHeight - LINE);
        if (found.length && box.clientHeight && !inSight) box.scrollTop = Math.max(0, found[0] - box.clientHeight / 2);
        draw();
    }
    model.on("change:marked", reveal);
    return ()=>{
        sizes.disconnect();
        stop();
        model.off("change:marked", reveal);
    };
}
const passes_tab = {
    render: render
};
export default passes_tab;
