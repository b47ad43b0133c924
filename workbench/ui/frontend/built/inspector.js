function dom_h(tag, attributes = {}, ...children) {
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
const FOLD = "thunder-workbench:fold";
function isFolded(axis) {
    try {
        return "1" === localStorage.getItem(`thunder-workbench:folded:${axis}`);
    } catch  {
        return false;
    }
}
function fold(el, axis, on) {
    el.closest(".wb-app")?.querySelector(`.wb-split-${axis}`)?.dispatchEvent(new CustomEvent(FOLD, {
        detail: on
    }));
}
function foldButton(axis, name, ...face) {
    return dom_h("button", {
        class: "wb-fold-button",
        "data-folds": axis,
        "aria-expanded": String(!isFolded(axis)),
        "aria-label": name,
        title: `Show or hide: ${name}`,
        onclick: (event)=>fold(event.currentTarget, axis)
    }, ...face);
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
async function afterGraph(el) {
    const began = performance.now(), pause = (ms)=>new Promise((next)=>setTimeout(next, ms));
    const drawn = ()=>{
        const app = el.closest(".wb-app");
        return el.isConnected && (!app || app.querySelector(".wb-graph")?.__workbench?.view.drawn > 0);
    };
    while(!drawn() && performance.now() - began < 2000)await pause(30);
    if (el.closest(".wb-app")) await pause(50);
}
function inParts(path) {
    return path.split(/(?<=[./>])(?=[A-Za-z_])/).flatMap((part, at)=>at ? [
            dom_h("wbr"),
            part
        ] : [
            part
        ]);
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
    return dom_h("dl", {
        class: "wb-keys"
    }, KEYS.filter(([, , changes])=>!still || !changes).map(([key, text])=>[
            dom_h("dt", {}, dom_h("kbd", {}, key)),
            dom_h("dd", {}, text)
        ]));
}
function render({ model, el }) {
    panel(el, "inspector");
    for (const [name, value] of Object.entries({
        tabindex: "0",
        role: "region",
        "aria-label": "Inspector"
    }))el.setAttribute(name, value);
    const go = (id)=>()=>model.send({
                type: "go",
                id
            });
    previewed(model, el);
    const link = ({ id, label })=>id ? dom_h("button", {
            class: "wb-link",
            onclick: go(id),
            title: "show it in the graph"
        }, label) : dom_h("span", {}, label);
    const source = ({ place, text })=>(place || text) && dom_h("div", {
            class: "wb-source"
        }, text && dom_h("code", {}, text), place && dom_h("div", {
            class: "wb-muted"
        }, place));
    const effect = (figures)=>dom_h("dl", {
            class: "wb-effect"
        }, figures.map(({ name, text, tone })=>[
                dom_h("dt", {}, name),
                dom_h("dd", {
                    class: tone ? `wb-${tone}` : null
                }, text)
            ]));
    const groups = (rows, option)=>dom_h("table", {
            class: "wb-groups"
        }, dom_h("thead", {}, dom_h("tr", {}, [
            "in",
            "peak, predicted",
            "saved"
        ].map((name, i)=>dom_h("th", {
                class: i ? "wb-right" : null
            }, name)))), dom_h("tbody", {}, rows.map(({ name, choices, ...cells })=>dom_h("tr", {}, dom_h("td", {}, dom_h("button", {
                class: "wb-link wb-link-words",
                title: `Choose ${option} in ${name}`,
                "data-preview": JSON.stringify({
                    choices
                }),
                onclick: ()=>model.send({
                        type: "choose_all",
                        choices
                    })
            }, name)), [
                cells.peak,
                cells.saved
            ].map(({ text, tone })=>dom_h("td", {
                    class: `wb-right ${tone ? `wb-${tone}` : ""}`
                }, text))))));
    const change = ({ text, tone })=>dom_h("b", {
            class: tone ? `wb-${tone}` : null
        }, text);
    const best = ({ best: rows, waiting, progress = "" })=>dom_h("section", {
            class: `wb-best${waiting ? " wb-waiting" : ""}`
        }, dom_h("h4", {}, "Best single choices"), !rows.length && dom_h("p", {
            class: "wb-muted"
        }, `computing… ${progress}`), dom_h("ul", {
            class: "wb-edges"
        }, rows.map(({ name, option, count, choices, peak, saved })=>dom_h("li", {}, dom_h("button", {
                title: "Choose this",
                disabled: waiting,
                "aria-label": `Choose ${option} for ${name}`,
                "data-preview": JSON.stringify({
                    choices
                }),
                onclick: ()=>model.send({
                        type: "choose_all",
                        choices
                    })
            }, option), " ", inParts(name), count > 1 && dom_h("span", {
                class: "wb-muted"
            }, ` × ${count}`), dom_h("div", {
                class: "wb-means"
            }, "predicted peak ", change(peak), ", saved ", change(saved))))), dom_h("button", {
            class: "wb-link wb-link-words",
            onclick: ()=>model.send({
                    type: "place",
                    name: "Single choices"
                })
        }, "All single choices"));
    const option = (site, one)=>dom_h("div", {
            class: `wb-option ${one.current ? "wb-current" : ""}`
        }, dom_h("button", {
            class: "wb-choose",
            "data-preview": JSON.stringify({
                id: site.id,
                option: one.name
            }),
            disabled: Boolean(one.reason) || one.current,
            "aria-pressed": one.current ? "true" : "false",
            onclick: ()=>model.send({
                    type: "choose",
                    id: site.id,
                    option: one.name
                })
        }, one.name, (one.current || one.tag) && dom_h("span", {
            class: "wb-tag"
        }, one.tag ?? "now")), one.means && dom_h("div", {
            class: "wb-means"
        }, one.means), one.reason && dom_h("div", {
            class: "wb-reason"
        }, one.reason), one.figures && effect(one.figures), one.why && dom_h("div", {
            class: "wb-means wb-why"
        }, one.why), one.groups && groups(one.groups, one.name), one.moved?.length > 0 && dom_h("div", {
            class: "wb-moved"
        }, dom_h("span", {
            class: "wb-muted"
        }, "also changes: "), one.moved.map((other, i)=>[
                i ? ", " : "",
                link(other)
            ]), one.more ? dom_h("span", {
            class: "wb-muted"
        }, ` and ${one.more} more`) : ""), one.waiting && dom_h("div", {
            class: "wb-muted"
        }, "computing…"));
    const scope = ({ now, named })=>dom_h("div", {
            class: "wb-scope",
            role: "group",
            "aria-label": "What a choice applies to"
        }, dom_h("span", {
            class: "wb-muted"
        }, "Choose for "), Object.entries(named).map(([name, text])=>dom_h("button", {
                class: name === now ? "wb-pressed" : null,
                "aria-pressed": String(name === now),
                onclick: ()=>model.send({
                        type: "scope",
                        scope: name
                    })
            }, text)));
    const value = (one)=>dom_h("tr", {}, dom_h("td", {}, dom_h("code", {}, one.name), dom_h("div", {
            class: "wb-muted"
        }, `${one.shape} ${one.dtype}`)), dom_h("td", {
            class: "wb-right"
        }, one.bytes), dom_h("td", {}, one.ends.map((end, i)=>[
                i ? ", " : "",
                link(end)
            ])));
    const values = (title, list, last)=>list.length > 0 && dom_h("section", {}, dom_h("h4", {}, title), dom_h("table", {
            class: "wb-values"
        }, dom_h("thead", {}, dom_h("tr", {}, [
            "value",
            "bytes",
            last
        ].map((name)=>dom_h("th", {
                class: "bytes" === name ? "wb-right" : null
            }, name)))), dom_h("tbody", {}, list.map(value))));
    const edges = (list)=>dom_h("section", {}, dom_h("h4", {}, "Why it ends here"), dom_h("ul", {
            class: "wb-edges"
        }, list.map((edge)=>dom_h("li", {}, dom_h("span", {
                class: "wb-muted"
            }, edge.before ? "before it " : "after it "), link(edge), dom_h("div", {
                class: "wb-reason"
            }, edge.reason)))));
    const rail = foldButton("x", "Inspector", dom_h("span", {
        "aria-hidden": "true"
    }, "▸"), dom_h("span", {
        class: "wb-fold-words"
    }, " Inspector"));
    let wrapped = false;
    const code = ({ fusion, code: found })=>dom_h("section", {
            class: "wb-code"
        }, dom_h("h4", {}, "Its code"), found ? [
            dom_h("p", {
                class: "wb-muted"
            }, found.kind),
            dom_h("div", {
                class: "wb-row"
            }, navigator.clipboard && dom_h("button", {
                onclick: ()=>{
                    navigator.clipboard.writeText(found.text);
                }
            }, "Copy"), dom_h("button", {
                "aria-pressed": String(wrapped),
                class: wrapped ? "wb-pressed" : null,
                onclick: ()=>{
                    wrapped = !wrapped;
                    draw();
                }
            }, "Wrap lines")),
            dom_h("pre", {
                tabindex: "0",
                class: wrapped ? "wb-wrapped" : null,
                "aria-label": `code of ${fusion}`
            }, found.text)
        ] : dom_h("button", {
            onclick: ()=>model.send({
                    type: "code",
                    fusion
                })
        }, "Show the code"));
    let pressed = false, late = false, asked = false;
    const stop = new AbortController(), { signal } = stop;
    el.addEventListener("pointerdown", ()=>{
        pressed = true;
    }, {
        signal
    });
    const release = ()=>{
        pressed = false;
        if (late) setTimeout(draw);
        late = false;
    };
    for (const end of [
        "pointerup",
        "pointercancel"
    ])addEventListener(end, release, {
        signal
    });
    function draw() {
        if (pressed) {
            late = true;
            return;
        }
        const shown = model.get("content");
        const parts = [];
        if (shown.title) {
            parts.push(dom_h("div", {
                class: "wb-eyebrow"
            }, shown.eyebrow), dom_h("h3", {}, shown.title), shown.about && dom_h("p", {
                class: "wb-muted"
            }, shown.about), source(shown.source ?? {}));
            if (shown.facts?.length) parts.push(dom_h("dl", {
                class: "wb-facts"
            }, shown.facts.map(([name, text])=>[
                    dom_h("dt", {}, name),
                    dom_h("dd", {}, text)
                ])));
        }
        if (shown.edges?.length) parts.push(edges(shown.edges));
        if (shown.scope) parts.push(scope(shown.scope));
        for (const site of shown.sites ?? [])parts.push(dom_h("section", {
            class: "wb-site",
            "data-site": site.id
        }, dom_h("h4", {}, site.lever), site.note && dom_h("p", {
            class: "wb-muted"
        }, site.note), site.options.map((one)=>option(site, one))));
        if (shown.parts?.length) parts.push(dom_h("section", {}, dom_h("h4", {}, "The statements into which it was decomposed"), dom_h("button", {
            class: "wb-each",
            onclick: ()=>model.send({
                    type: "unfold"
                })
        }, "Show each in the graph"), dom_h("table", {}, dom_h("thead", {}, dom_h("tr", {}, dom_h("th", {}, "statement"), dom_h("th", {}, "makes"), dom_h("th", {
            class: "wb-right"
        }, "bytes"))), dom_h("tbody", {}, shown.parts.map((one)=>dom_h("tr", {}, dom_h("td", {}, one.name), dom_h("td", {}, dom_h("code", {}, one.value)), dom_h("td", {
                class: "wb-right"
            }, one.bytes)))))));
        if (shown.here?.length) parts.push(dom_h("section", {
            class: "wb-here"
        }, dom_h("h4", {}, shown.sites?.length ? "Other sites here" : "Sites here"), dom_h("ul", {
            class: "wb-edges"
        }, shown.here.map((site)=>dom_h("li", {}, link(site), dom_h("span", {
                class: "wb-muted"
            }, ` ${site.choice}, ${site.what} here`))))));
        if (shown.fusion) parts.push(code(shown));
        parts.push(values("Reads", shown.inputs ?? [], "made by"), values("Makes", shown.outputs ?? [], "read by"));
        if (shown.hint) parts.push(dom_h("h3", {}, "Nothing selected"), dom_h("p", {
            class: "wb-muted"
        }, shown.hint), (shown.waiting || shown.best?.length > 0) && best(shown), keyList());
        if (shown.waiting && !asked) {
            asked = true;
            afterGraph(el).then(()=>model.send({
                    type: "best"
                }));
        }
        const { scrollTop } = el, held = (el.contains(document.activeElement) ? document.activeElement : null)?.dataset?.preview;
        el.replaceChildren(rail, ...parts.filter(Boolean));
        if (held) el.querySelector(`[data-preview="${CSS.escape(held)}"]`)?.focus({
            preventScroll: true
        });
        el.scrollTop = el.dataset.shown === shown.title ? scrollTop : 0;
        el.dataset.shown = shown.title ?? "";
    }
    const end = follow(model, [
        "content"
    ], draw);
    return ()=>{
        stop.abort();
        end();
    };
}
const inspector = {
    render: render
};
export default inspector;
