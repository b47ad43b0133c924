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
const MEMBERS = 24;
function render({ model, el }) {
    panel(el, "fusions");
    const opened = new Set();
    const weigh = h("button", {
        onclick: ()=>model.send({
                type: "working" === model.get("cuts").state ? "stop" : "cuts"
            })
    });
    const progress = h("progress", {
        "aria-label": "Plans weighed"
    }), said = h("span", {
        class: "wb-muted",
        role: "status"
    });
    const cuts = h("div", {
        style: "margin-bottom: 12px"
    }), census = h("div", {}), head = h("p", {
        class: "wb-muted"
    });
    const asking = h("div", {
        class: "wb-row",
        style: "flex-wrap: wrap"
    }, weigh, progress, said);
    el.replaceChildren(head, asking, cuts, census);
    function drawCuts() {
        const { state = "", done = 0, most = 0, said: words = "", heads = [], rows = [] } = model.get("cuts"), working = "working" === state;
        progress.hidden = !working;
        progress.max = Math.max(1, most);
        progress.value = done;
        said.textContent = working ? `${done} of at most ${most} plans weighed${words ? `; ${words}` : ""}` : words;
        weigh.textContent = working ? "Cancel" : state ? "Weigh again" : "Weigh other cuts";
        weigh.setAttribute("aria-label", working ? "Cancel weighing cuts" : weigh.textContent);
        weigh.title = working ? "The cuts that were weighed before stay in the table" : "Plan other cuts between fusions, the same in all layers: which values are passed on, and which are computed again. This takes seconds, and changes no choice";
        cuts.replaceChildren(...rows.length ? [
            scrolled("Cuts between fusions", h("table", {}, h("thead", {}, h("tr", {}, h("th", {}), heads.map((name, n)=>h("th", n < heads.length - 1 ? {
                    class: "wb-right"
                } : {}, name)))), h("tbody", {}, rows.map(({ cells, chosen }, i)=>h("tr", {
                    class: chosen ? "wb-chosen" : null
                }, h("td", {}, chosen ? h("span", {
                    class: "wb-muted"
                }, "in force") : h("button", {
                    "aria-label": `Choose ${cells[cells.length - 1]}`,
                    onclick: ()=>model.send({
                            type: "cut",
                            index: i
                        })
                }, "Choose")), cells.map((cell, n)=>h("td", n < cells.length - 1 ? {
                        class: "wb-right wb-nowrap"
                    } : {}, cell)))))))
        ] : []);
    }
    function draw() {
        const { head: text, groups = [] } = model.get("content"), selected = model.get("selected");
        const all = groups.reduce((sum, { count, size })=>sum + count * size, 0) || 1, share = ({ count, size })=>100 * count * size / all;
        const compiled = groups.some((group)=>group.compiled);
        const right = (text)=>h("th", {
                class: "wb-right"
            }, text);
        const member = ({ id, name })=>h("button", {
                class: `wb-link ${id === selected ? "wb-chosen" : ""}`,
                "data-fusion": id,
                onclick: ()=>model.send({
                        type: "unveil",
                        id
                    }),
                title: "show it in the graph"
            }, name);
        head.textContent = text ?? "";
        asking.hidden = !groups.length;
        census.replaceChildren(scrolled("Fusions", h("table", {}, h("thead", {}, h("tr", {}, right("identical"), right("ops in each"), h("th", {}, "share of all fused ops"), h("th", {}, "where"), compiled && right("compiled in"), h("th", {}, "what it computes"), h("th", {}, "fusions"))), h("tbody", {}, groups.map((group, i)=>{
            const whole = opened.has(group.members[0].id), shown = whole ? group.members : group.members.slice(0, MEMBERS), rest = group.members.length - shown.length;
            return h("tr", {
                class: `wb-can ${group.members.some(({ id })=>id === selected) ? "wb-chosen" : ""}`,
                onclick: (event)=>{
                    if (!event.target.closest("button")) model.send({
                        type: "unveil",
                        id: group.members[0].id
                    });
                }
            }, h("td", {
                class: "wb-right"
            }, h("strong", {}, group.count)), h("td", {
                class: "wb-right"
            }, group.size), h("td", {}, h("div", {
                class: "wb-share"
            }, h("div", {
                style: `width:${share(group)}%`
            })), h("span", {
                class: "wb-muted wb-share-text"
            }, `${share(group).toFixed(share(group) < 10 ? 1 : 0)} %`)), h("td", {
                class: "wb-nowrap"
            }, group.sides), compiled && h("td", {
                class: "wb-right"
            }, group.compiled), h("td", {
                class: "wb-wide"
            }, h("code", {}, group.ops)), h("td", {
                class: "wb-wide"
            }, shown.map((one, n)=>[
                    n ? ", " : "",
                    member(one)
                ]), rest > 0 && [
                " ",
                h("button", {
                    class: "wb-link wb-link-words",
                    onclick: ()=>{
                        opened.add(group.members[0].id);
                        draw();
                    }
                }, `and ${rest} more`)
            ]));
        }))), {
            hidden: !groups.length
        }));
    }
    const ends = [
        follow(model, [
            "content",
            "selected"
        ], draw),
        follow(model, [
            "cuts"
        ], drawCuts)
    ];
    return ()=>ends.forEach((end)=>end());
}
const fusions_tab = {
    render: render
};
export default fusions_tab;
