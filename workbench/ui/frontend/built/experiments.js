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
function inParts(path) {
    return path.split(/(?<=[./>])(?=[A-Za-z_])/).flatMap((part, at)=>at ? [
            h("wbr"),
            part
        ] : [
            part
        ]);
}
function sideBySide(model) {
    const plans = new Set(), runs = new Set();
    let path = "side-by-side.html", only = false, shown = null, asked = false;
    const put = h("button", {
        class: "wb-put",
        onclick: ()=>ask()
    }, "Put side by side");
    const ask = (base = "")=>{
        const listed = model.get("content");
        asked = true;
        const there = (ticked, keys)=>keys.filter((key)=>ticked.has(key));
        model.send({
            type: "beside",
            base,
            plans: there(plans, listed.plans.map((plan)=>plan.key)),
            runs: there(runs, listed.rows.map((row)=>row.folder))
        });
    };
    const box = (ticked, key, name)=>h("input", {
            type: "checkbox",
            class: "wb-tick",
            checked: ticked.has(key),
            "aria-label": `Put ${name} side by side with others`,
            onchange: (event)=>{
                if (event.target.checked) ticked.add(key);
                else ticked.delete(key);
                ready();
            }
        });
    function ready() {
        const { rows = [], plans: listed = [], busy = "" } = model.get("content");
        const count = listed.filter((plan)=>plans.has(plan.key)).length + rows.filter((row)=>runs.has(row.folder)).length;
        put.disabled = count < 2 || Boolean(busy);
        put.title = count < 2 ? "Tick two or more" : "Figures, sites and statements of what is ticked";
    }
    function chooser() {
        const { plans: listed = [], busy = "" } = model.get("content");
        ready();
        return h("div", {
            class: "wb-beside-plans",
            role: "group",
            "aria-label": "Side by side"
        }, h("span", {
            class: "wb-muted"
        }, "Compare the runs ticked above, and these plans"), listed.map((plan)=>h("span", {
                class: "wb-nowrap"
            }, h("label", {}, box(plans, plan.key, plan.name), ` ${plan.name}`), plan.key.startsWith("kept") && h("button", {
                class: "wb-drop",
                title: `Remove ${plan.key}`,
                "aria-label": `Remove ${plan.key}`,
                onclick: ()=>{
                    plans.delete(plan.key);
                    model.send({
                        type: "forget",
                        key: plan.key
                    });
                }
            }, "×"))), h("button", {
            title: "Keep the current plan, to compare it with others later",
            onclick: ()=>model.send({
                    type: "keep"
                })
        }, "Keep this plan"), put, h("span", {
            class: "wb-muted",
            role: "status"
        }, busy));
    }
    const cells = (of, marks, values)=>values.map((value, i)=>h("td", {
                class: `${marks[i] ?? ""} wb-right`
            }, value));
    const heads = (names, from)=>h("thead", {}, h("tr", {}, names.map((name, i)=>h("th", {
                class: i < from ? null : "wb-right"
            }, name))));
    const plain = (table)=>scrolled(table.title, h("table", {}, heads(table.heads, 2), h("tbody", {}, table.rows.map((row)=>h("tr", {}, h("td", {
                class: "wb-site"
            }, row.cells[0]), h("td", {
                class: "wb-muted"
            }, row.cells[1]), cells(table, row.marks, row.cells.slice(2)))))));
    const step = (one)=>h("td", {
            class: one.mark || null
        }, h("span", {
            class: "wb-at"
        }, one.place), one.text && h("span", {
            class: "wb-inside"
        }, h("i", {
            style: `width:${one.share}%`
        })), one.text);
    function steps(found) {
        return [
            h("h4", {}, "Statements in step"),
            h("p", {
                class: "wb-muted"
            }, found.words),
            h("label", {}, h("input", {
                type: "checkbox",
                class: "wb-only",
                checked: only,
                onchange: (event)=>{
                    only = event.target.checked;
                }
            }), " only those that differ"),
            h("div", {
                class: "wb-steps",
                tabindex: "0",
                role: "region",
                "aria-label": "Statements in step"
            }, h("table", {}, heads(found.heads, found.heads.length), h("tbody", {}, found.rows.map((row)=>h("tr", {
                    class: row.alike ? "wb-alike" : null
                }, h("td", {}, row.name), h("td", {
                    class: "wb-muted"
                }, row.side), h("td", {
                    class: "wb-source",
                    title: row.source || null
                }, row.source), row.cells.map(step))))))
        ];
    }
    function result(found, written) {
        const file = h("input", {
            type: "text",
            class: "wb-file",
            value: path,
            "aria-label": "File of the page",
            spellcheck: "false",
            oninput: (event)=>{
                path = event.target.value;
            }
        });
        const base = h("select", {
            "aria-label": "Baseline",
            onchange: (event)=>ask(event.target.value)
        }, found.names.map((name)=>h("option", {
                value: name,
                selected: name === found.base
            }, name)));
        return h("section", {
            class: "wb-compared",
            "aria-label": "Side by side"
        }, h("div", {
            class: "wb-beside-plans"
        }, h("label", {}, "Baseline ", base), file, h("button", {
            title: "One HTML page that needs no network, with all statements",
            onclick: ()=>model.send({
                    type: "write",
                    path: path.trim()
                })
        }, "Save as a page"), written && h("span", {
            class: "wb-muted",
            role: "status"
        }, `Written to ${written}`)), found.notes.map((note)=>h("p", {
                class: "wb-bad"
            }, note)), found.tables.map((table)=>[
                h("h4", {}, table.title),
                plain(table)
            ]), found.runs && [
            h("h4", {}, "Runs"),
            h("p", {
                class: "wb-muted"
            }, found.runs.words),
            scrolled("Runs", h("table", {}, heads(found.runs.heads, 9), h("tbody", {}, found.runs.rows.map((row)=>h("tr", {}, row.map((cell)=>h("td", {}, cell)))))))
        ], found.steps && steps(found.steps));
    }
    return {
        tick: (folder, name)=>box(runs, folder, name),
        drawn: ()=>{
            const { beside, written, plans: listed = [] } = model.get("content");
            const key = JSON.stringify([
                beside,
                written
            ]);
            if (shown?.key !== key) shown = {
                key,
                el: beside ? result(beside, written) : ""
            };
            return listed.length ? [
                chooser(),
                shown.el
            ] : [];
        },
        reveal: ()=>{
            const tab = shown?.el && shown.el.closest(".widget-tab-contents");
            if (!asked || !tab || model.get("content").busy) return;
            asked = false;
            tab.scrollTop += shown.el.getBoundingClientRect().top - tab.getBoundingClientRect().top;
        }
    };
}
function render({ model, el }) {
    panel(el, "experiments");
    let asking = "";
    const opened = new Set();
    const beside = sideBySide(model);
    function draw() {
        const { rows = [], unreadable = [], loading, compared, cannot_run: never } = model.get("content");
        const ask = (message)=>{
            asking = "";
            model.send(message);
        };
        const right = (text)=>h("th", {
                class: "wb-right"
            }, text);
        const name = (row)=>h("input", {
                type: "text",
                value: row.name,
                title: row.name,
                "aria-label": `Name of ${row.name}`,
                spellcheck: "false",
                onchange: (event)=>ask({
                        type: "rename",
                        folder: row.folder,
                        name: event.target.value.trim()
                    })
            });
        const note = (row)=>h("input", {
                type: "text",
                class: "wb-note",
                value: row.note,
                placeholder: "note",
                title: row.note || null,
                maxlength: "2000",
                "aria-label": `Note on ${row.name}`,
                onchange: (event)=>ask({
                        type: "note",
                        folder: row.folder,
                        note: event.target.value
                    })
            });
        const details = (row)=>{
            const box = h("details", {
                class: "wb-run-details",
                open: opened.has(row.folder),
                ontoggle: ()=>{
                    if (box.open) opened.add(row.folder);
                    else opened.delete(row.folder);
                }
            }, h("summary", {}, row.named ? row.named : "details"), h("div", {}, "run ", h("code", {}, inParts(row.id ?? ""))), row.unread && h("div", {}, "The choices cannot be read."), (row.choices ?? []).map((choice)=>h("div", {}, h("code", {}, inParts(choice)))));
            return box;
        };
        const remove = (row)=>asking === row.folder ? h("button", {
                class: "wb-danger",
                onclick: ()=>ask({
                        type: "delete",
                        folder: row.folder
                    })
            }, "Really delete") : h("button", {
                disabled: row.pinned,
                title: row.pinned ? "Unpin the run to delete it" : "Delete the run's folder",
                onclick: ()=>{
                    asking = row.folder;
                    draw();
                }
            }, "Delete");
        el.replaceChildren(h("p", {
            class: "wb-muted"
        }, loading ? "Reading the runs…" : rows.length ? "Pin a run to compare with it. All figures are measured, except the predicted peak." : `No run of this program is kept yet. ${never ? `${never} A run's folder that you copy back is listed here.` : "Compile & run makes the first."}`), scrolled("Runs", h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "pinned"), h("th", {}, "beside"), h("th", {}, "name and note"), h("th", {}, "when"), right("peak, predicted"), right("measured"), right("compile"), right("step"), h("th", {}, "accuracy"), h("th", {}, "state"), h("th", {}))), h("tbody", {}, rows.map((row)=>h("tr", {
                class: row.pinned ? "wb-chosen" : null,
                "data-run": row.folder
            }, h("td", {}, h("input", {
                type: "checkbox",
                checked: row.pinned,
                "aria-label": `Pin ${row.name}`,
                onchange: (event)=>ask({
                        type: "pin",
                        folder: row.folder,
                        pinned: event.target.checked
                    })
            })), h("td", {}, beside.tick(row.folder, row.name)), h("td", {
                class: "wb-wide"
            }, name(row), note(row), details(row)), h("td", {
                class: "wb-muted"
            }, row.created), h("td", {
                class: "wb-right"
            }, row.predicted), h("td", {
                class: "wb-right"
            }, row.measured, row.off && h("span", {
                class: "wb-aside"
            }, row.off)), h("td", {
                class: "wb-right"
            }, row.compile), h("td", {
                class: "wb-right"
            }, row.step, (row.against ?? []).map((text)=>h("span", {
                    class: "wb-aside"
                }, text))), h("td", {
                class: "ok" === row.accuracy ? "wb-good" : "wb-bad"
            }, row.accuracy), h("td", {
                class: "failed" === row.state ? "wb-bad" : null,
                title: [
                    row.error,
                    ...row.warnings ?? []
                ].filter(Boolean).join("\n") || null
            }, row.state, (row.warnings ?? []).length > 0 && h("span", {
                class: "wb-aside"
            }, "with warnings")), h("td", {
                class: "wb-right"
            }, remove(row)))))), {
            hidden: !rows.length
        }), h("div", {
            class: "wb-views",
            hidden: rows.length < 2
        }, h("button", {
            disabled: !rows.some((row)=>row.pinned),
            title: rows.some((row)=>row.pinned) ? "Compare every other run with the pinned run, with verdicts" : "Pin a run first",
            onclick: ()=>ask({
                    type: "compare"
                })
        }, "Compare with the pinned run")), compared ? h("section", {
            class: "wb-against-pinned"
        }, h("p", {}, compared.words), scrolled("Against the pinned run", h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "run"), h("th", {}, "figure"), right("value"), right("pinned"), right("ratio"), right("95 % interval"), h("th", {}, "verdict"))), h("tbody", {}, compared.rows.map((row)=>h("tr", {}, h("td", {}, row.run), h("td", {}, row.figure), h("td", {
                class: "wb-right"
            }, row.value), h("td", {
                class: "wb-right"
            }, row.base), h("td", {
                class: "wb-right"
            }, row.ratio), h("td", {
                class: "wb-right"
            }, row.interval), h("td", {
                class: row.tone ? `wb-${row.tone}` : "wb-muted"
            }, row.verdict))))))) : "", ...beside.drawn(), h("details", {
            hidden: !unreadable.length
        }, h("summary", {
            class: "wb-bad"
        }, 1 === unreadable.length ? "1 run cannot be read" : `${unreadable.length} runs cannot be read`), h("ul", {}, unreadable.map((one)=>h("li", {
                "data-run": one.folder
            }, h("code", {}, one.name), ` ${one.error}`)))));
        beside.reveal();
    }
    return follow(model, [
        "content"
    ], draw);
}
const experiments = {
    render: render
};
export default experiments;
