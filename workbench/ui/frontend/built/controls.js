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
function asPeak(text) {
    const typed = text.trim();
    return /^\d+(\.\d+)?$/.test(typed) && Number(typed) <= 100 ? `${typed}%` : typed;
}
const WAIT = 250;
const LEAST = 340;
function exportBox(model, file, named) {
    const targets = ()=>model.get("targets") ?? [];
    let target = "thunder", timer = 0, asked = "", answered = false, fitted = "", since = 0;
    const chosen = ()=>targets().find((one)=>one.target === target) ?? {};
    const opener = h("button", {
        class: "wb-export-more",
        title: "For Thunder or for plain PyTorch: the file, and what it leaves out",
        "aria-label": "What the file is for",
        "aria-haspopup": "dialog",
        "aria-expanded": "false",
        onclick: ()=>open(el.hidden)
    }, "▾");
    const limit = h("input", {
        type: "text",
        "aria-label": "Peak of torch.compile at most",
        placeholder: "24 GiB or 80%",
        title: "Bytes, or a share of the peak of torch.compile; a number up to 100 is a percentage; empty: only your choices",
        spellcheck: "false",
        size: 12,
        oninput: ()=>mark()
    });
    const fit = h("button", {
        class: "wb-fit-torch",
        title: "Find choices for torch.compile under this peak (Enter)",
        onclick: ()=>ask()
    }, "Fit");
    const peak = ()=>"torch" === target ? asPeak(limit.value) : "";
    const isOld = ()=>peak() !== fitted;
    const run = h("button", {
        class: "wb-run-torch",
        title: "Compile and run plain torch.compile in a process of its own, and compare it with torch.compile without choices and with eager PyTorch",
        onclick: ()=>{
            model.send({
                type: "run_torch",
                peak: peak()
            });
            if (isOld()) ask();
        }
    }, "Run with torch.compile");
    const plain = h("div", {
        class: "wb-plain"
    }, h("label", {
        class: "wb-check"
    }, "Fit: peak at most ", limit), fit, run);
    const write = ()=>model.send({
            type: "export",
            path: file.value.trim(),
            target,
            peak: peak()
        });
    const row = h("div", {
        class: "wb-targets",
        role: "group",
        "aria-label": "Targets"
    }, h("span", {
        class: "wb-muted"
    }, "For "));
    const about = h("p", {
        class: "wb-muted"
    }), body = h("div", {
        class: "wb-export-body"
    }), make = h("button", {
        class: "wb-primary",
        onclick: ()=>{
            write();
            open(false);
        }
    });
    const el = h("div", {
        class: "wb-export-box",
        role: "dialog",
        "aria-label": "Export",
        hidden: true,
        tabindex: "-1"
    }, row, h("label", {
        class: "wb-check"
    }, "File ", file), about, plain, body, h("div", {
        class: "wb-export-end"
    }, make, h("button", {
        onclick: ()=>open(false)
    }, "Close")));
    function ask() {
        asked = String(Math.random());
        answered = false;
        fitted = peak();
        since = performance.now();
        model.send({
            type: "export_preview",
            path: file.value.trim(),
            target,
            asked,
            peak: peak()
        });
        draw();
    }
    function open(on) {
        el.hidden = !on;
        opener.setAttribute("aria-expanded", String(on));
        for (const type of [
            "resize",
            "scroll"
        ])if (on) window.addEventListener(type, size, true);
        else window.removeEventListener(type, size, true);
        if (on) {
            size();
            el.scrollIntoView({
                block: "nearest"
            });
            aim(target);
            row.querySelector('[aria-pressed="true"]')?.focus();
        } else opener.focus({
            preventScroll: true
        });
    }
    function size() {
        if (!el.isConnected) {
            for (const type of [
                "resize",
                "scroll"
            ])window.removeEventListener(type, size, true);
            return;
        }
        let end = window.innerHeight;
        for(let area = el.parentElement; area && area !== document.body; area = area.parentElement)if ("visible" !== getComputedStyle(area).overflowY) end = Math.min(end, area.getBoundingClientRect().bottom);
        el.style.maxHeight = `${Math.max(LEAST, end - el.getBoundingClientRect().top - 8)}px`;
    }
    function aim(next) {
        const usual = !file.value.trim() || file.value === chosen().file;
        target = next;
        if (usual) file.value = chosen().file;
        named();
        row.querySelectorAll("button").forEach((button)=>button.setAttribute("aria-pressed", String(button.value === target)));
        about.textContent = chosen().about ?? "";
        plain.hidden = "torch" !== target;
        ask();
    }
    row.append(...targets().map((one)=>h("button", {
            value: one.target,
            onclick: ()=>aim(one.target)
        }, one.name)));
    row.addEventListener("keydown", (event)=>{
        const buttons = Array.from(row.querySelectorAll("button")), at = buttons.findIndex((one)=>one === event.target);
        const by = "ArrowRight" === event.key ? 1 : "ArrowLeft" === event.key ? -1 : 0;
        if (at < 0 || !isPlainKey(event)) return;
        if (by) {
            const next = buttons[(at + by + buttons.length) % buttons.length];
            event.preventDefault();
            next.focus();
            aim(next.value);
        } else if ("Enter" === event.key && buttons[at].value === target && !make.disabled) {
            event.preventDefault();
            make.click();
        }
    });
    file.addEventListener("keydown", (event)=>{
        if ("Enter" === event.key && !make.disabled) make.click();
    });
    limit.addEventListener("keydown", (event)=>{
        if ("Enter" === event.key) {
            event.preventDefault();
            limit.value = peak();
            ask();
        }
    });
    file.addEventListener("input", ()=>{
        clearTimeout(timer);
        if (!el.hidden) timer = window.setTimeout(ask, WAIT);
    });
    el.addEventListener("keydown", (event)=>{
        if ("Escape" === event.key) {
            event.stopPropagation();
            open(false);
        }
    });
    function figures({ figures: rows = [] }) {
        if (!rows.length) return [];
        return [
            h("h4", {}, "Plain torch.compile"),
            h("table", {
                class: "wb-plain-figures"
            }, rows.map(({ name, value, base })=>h("tr", {}, h("th", {
                    scope: "row"
                }, name), h("td", {}, value, base && h("span", {
                    class: "wb-muted"
                }, ` (${base})`)))))
        ];
    }
    function leftOut({ count, left_out_count: out, left_out: rows }) {
        if (!target.startsWith("torch")) return [];
        if (!count && !peak()) return [
            h("p", {
                class: "wb-muted"
            }, "Nothing is chosen: the file has no choices.")
        ];
        if (!rows.length) return count ? [
            h("p", {}, `PyTorch can follow ${1 === count ? "the choice" : `all ${count} choices`}.`)
        ] : [];
        return [
            h("h4", {}, `Left out: ${out} of ${count} choice${1 === count ? "" : "s"}`),
            h("ul", {
                class: "wb-left-out",
                tabindex: "0",
                "aria-label": "Choices that are left out"
            }, rows.map(({ id, option, reason, count: layers })=>h("li", {}, h("code", {}, `${id} = ${option}`), layers > 1 && h("span", {
                    class: "wb-muted"
                }, ` in ${layers} layers`), h("div", {
                    class: "wb-reason"
                }, reason))))
        ];
    }
    function waiting() {
        const seconds = h("span", {
            "aria-hidden": "true"
        });
        const count = ()=>{
            const passed = Math.floor((performance.now() - since) / 1000);
            seconds.textContent = passed ? `, ${passed} s` : "…";
        };
        const clock = window.setInterval(()=>{
            if (seconds.isConnected) count();
            else clearInterval(clock);
        }, 500);
        count();
        const what = fitted ? `Fitting torch.compile to a peak of ${fitted}` : "torch" === target ? "Predicting torch.compile" : "Making the file";
        const stop = fitted && h("button", {
            class: "wb-cancel-fit",
            title: "End the fit; a later fit uses what was predicted",
            onclick: ()=>model.send({
                    type: "export_cancel"
                })
        }, "Cancel");
        return h("div", {
            class: "wb-waiting"
        }, h("p", {
            class: "wb-muted"
        }, h("span", {
            role: "status"
        }, what), seconds), h("p", {
            class: "wb-muted wb-progress"
        }), stop);
    }
    function mark() {
        const found = model.get("exported") ?? {}, old = isOld();
        body.classList.toggle("wb-old", old);
        make.disabled = Boolean(found.asked === asked && found.refused && !old);
    }
    function draw() {
        if (el.hidden) return;
        const found = model.get("exported") ?? {}, here = found.asked === asked;
        if (answered && !found.asked) return void ask();
        answered = here;
        make.textContent = `Export to ${file.value.trim() || "…"}`;
        mark();
        if (!here && found.progress && body.firstElementChild?.matches(".wb-waiting")) {
            body.querySelector(".wb-progress").textContent = found.progress;
            return;
        }
        body.replaceChildren(...here ? found.refused ? [
            h("p", {
                class: "wb-bad",
                role: "status"
            }, found.refused),
            "torch" === target ? h("p", {}, h("button", {
                onclick: ()=>ask()
            }, "Try again")) : ""
        ] : found.text ? [
            ...figures(found),
            ...leftOut(found),
            h("h4", {}, "The file"),
            h("pre", {
                tabindex: "0",
                "aria-label": "The file"
            }, found.text, found.more ? `\n… ${found.more} more lines` : "")
        ] : [] : [
            waiting()
        ]);
    }
    const able = (disabled)=>{
        run.disabled = disabled;
    };
    named();
    return {
        opener,
        el,
        write,
        draw,
        able,
        open
    };
}
const ASK_TAB = "thunder-workbench:open-tab";
const PLACE = "thunder-workbench:place";
const TAB_NEWS = "thunder-workbench:tab";
function render({ model, el }) {
    panel(el, "controls");
    const act = (type)=>()=>model.send({
                type
            });
    const words = (label)=>h("span", {
            class: "wb-words"
        }, label);
    const face = (label, sign)=>[
            words(label),
            h("span", {
                class: "wb-sign",
                "aria-hidden": "true"
            }, sign)
        ];
    const button = (label, sign, type, title, cls = `wb-${type}`)=>h("button", {
            class: cls,
            title,
            onclick: act(type)
        }, face(label, sign));
    const name = h("div", {
        class: "wb-program"
    });
    const run = button("Compile & run", "▶", "run", "Compile and run in a process of its own, under the choices made", "wb-primary");
    const turns = h("input", {
        type: "checkbox",
        onchange: ()=>model.send({
                type: "in_turns",
                on: turns.checked
            })
    });
    const inTurns = h("label", {
        class: "wb-turns",
        title: "Also run steps of the program without choices, in turns with steps of this plan: a difference of the times then comes from the choices, not from the machine. Compiling takes twice as long"
    }, turns, words("also time without choices"));
    const cancel = button("Cancel", "■", "cancel", "Stop the run and everything it started");
    const undo = button("Undo", "↶", "undo", "Take the last choice back (u)"), redo = button("Redo", "↷", "redo", "Make the undone choice again (r)");
    const file = h("input", {
        type: "text",
        "aria-label": "File to export to",
        spellcheck: "false",
        value: model.get("file")
    });
    const save = h("button", {
        onclick: ()=>box.write()
    }, face("Export", "⤓"));
    const named = ()=>{
        save.title = `Write the choices to ${file.value.trim() || "a file"}; ▾ (e) has other names and targets`;
    };
    file.addEventListener("input", named);
    const forColleague = ()=>(model.get("targets") ?? []).find((one)=>"plan" === one.target);
    const share = h("button", {
        class: "wb-share",
        onclick: ()=>model.send({
                type: "export",
                path: forColleague().file,
                target: "plan"
            })
    }, face("Save plan", "✉"));
    share.hidden = !forColleague();
    share.title = `Write the plan to ${forColleague()?.file}. A colleague can view it in JupyterLab without the model, and open it with wb.open`;
    const box = exportBox(model, file, named);
    const machine = h("select", {
        title: "Machine on which ranks are simulated",
        onchange: ()=>model.send({
                type: "machine",
                name: machine.value
            })
    });
    const limit = h("input", {
        type: "text",
        inputmode: "decimal",
        placeholder: "no limit",
        title: "Limit of the results in flight, in MiB; empty for no limit"
    });
    const search = h("button", {
        onclick: ()=>model.send({
                type: "search",
                limit: limit.value.trim()
            })
    });
    limit.addEventListener("keydown", (event)=>{
        if ("Enter" === event.key && !search.disabled) search.click();
    });
    const ranks = h("div", {
        class: "wb-bar wb-ranks",
        hidden: true
    }, h("label", {}, "Simulated on ", machine), h("span", {
        class: "wb-group"
    }, h("label", {}, "In flight at most ", limit, " MiB"), search));
    const tab = h("button", {
        class: "wb-tab-button",
        title: "Show all of the app at once, in a tab of JupyterLab",
        onclick: ()=>openTab()
    }, face("Open in a tab", "❐"));
    const full = h("button", {
        title: "Show all of the app at once, on the whole screen (Escape ends it)",
        onclick: ()=>fullScreen()
    }, face("Full screen", "⤢"));
    el.replaceChildren(h("div", {
        class: "wb-bar"
    }, name, h("span", {
        class: "wb-group"
    }, run, inTurns, cancel), h("span", {
        class: "wb-group"
    }, undo, redo), h("span", {
        class: "wb-group wb-export"
    }, save, box.opener, share), h("span", {
        class: "wb-group wb-shown"
    }, tab, full)), ranks, box.el);
    el.dataset.app = model.get("app");
    function openTab() {
        const ask = new CustomEvent(ASK_TAB, {
            bubbles: true,
            cancelable: true,
            detail: {
                app: model.get("app"),
                name: model.get("app_name") || model.get("content").program
            }
        });
        if (!el.dispatchEvent(ask)) return;
        el.closest(".wb-app")?.classList.remove("wb-elsewhere");
        model.send({
            type: "no_tab"
        });
    }
    function fullScreen() {
        if (document.fullscreenElement) document.exitFullscreen();
        else el.closest(".wb-app")?.requestFullscreen();
    }
    const onTab = (event)=>{
        el.closest(".wb-app")?.classList.toggle("wb-elsewhere", event.detail.open);
        tab.firstChild.textContent = event.detail.open ? "Show the tab" : "Open in a tab";
    };
    el.addEventListener(TAB_NEWS, onTab);
    const onKey = (event)=>{
        const app = el.closest(".wb-app"), target = event.target;
        if ("e" !== event.key || !isPlainKey(event) || !app?.checkVisibility() || target.matches("input:not([type=checkbox], [type=range]), select, textarea, [contenteditable]")) return;
        if (!app.contains(target) && !(target === document.body && app.closest(".wb-tab"))) return;
        event.preventDefault();
        event.stopPropagation();
        box.open(true);
    };
    document.addEventListener("keydown", onKey);
    const onFull = ()=>{
        full.querySelector(".wb-words").textContent = document.fullscreenElement && document.fullscreenElement === el.closest(".wb-app") ? "Exit full screen" : "Full screen";
    };
    document.addEventListener("fullscreenchange", onFull);
    el.addEventListener(PLACE, (event)=>{
        model.send({
            type: "place",
            name: event.detail.name
        });
        fold(el, "y", false);
        el.closest(".wb-app")?.querySelector(".wb-places")?.scrollIntoView({
            block: "nearest"
        });
    });
    async function askedFor() {
        if (!model.get("tab_asked")) return;
        model.set("tab_asked", false);
        model.save_changes();
        for(let tries = 0; tries < 500 && !el.isConnected; tries++){
            el.closest(".wb-app")?.classList.add("wb-elsewhere");
            await new Promise((next)=>{
                requestAnimationFrame(()=>next(null));
                setTimeout(next, 50);
            });
        }
        el.closest(".wb-app")?.classList.add("wb-elsewhere");
        openTab();
    }
    const compareVersions = ()=>{
        const page = document.documentElement.dataset, here = model.get("version"), lab = page.thunderWorkbench;
        if (!lab || !here || lab === here) return;
        delete page.thunderWorkbench;
        model.send({
            type: "versions_differ",
            lab
        });
    };
    const place = h("span", {
        class: "wb-muted"
    });
    const fit = ()=>{
        for (const words of model.get("content").place ?? []){
            place.textContent = words;
            if (place.scrollWidth <= name.clientWidth) return;
        }
    };
    const sizes = new ResizeObserver(fit);
    sizes.observe(name);
    const draw = ()=>{
        const shown = model.get("content");
        compareVersions();
        name.title = [
            shown.program,
            shown.place?.[0],
            shown.executor
        ].filter(Boolean).join(", ");
        name.replaceChildren(h("div", {
            class: "wb-name"
        }, h("strong", {}, shown.program ?? ""), h("span", {
            class: "wb-muted"
        }, shown.executor ?? "")), place);
        fit();
        run.disabled = Boolean(shown.cannot_run) || Boolean(shown.run?.busy);
        run.title = shown.cannot_run || "Compile and run in a process of its own, under the choices made";
        turns.checked = Boolean(shown.in_turns);
        turns.disabled = run.disabled;
        box.able(run.disabled);
        cancel.disabled = !shown.run?.busy;
        undo.disabled = !shown.can_undo;
        redo.disabled = !shown.can_redo;
        ranks.hidden = !(shown.ranks > 1);
        machine.replaceChildren(...(shown.machines ?? []).map((name)=>h("option", {
                value: name,
                selected: name === shown.machine
            }, name)));
        machine.disabled = search.disabled = Boolean(shown.busy);
        search.textContent = "searching" === shown.busy ? "Searching…" : "Search the best order";
        search.title = `Simulate orders of the collectives on ${shown.machine} and choose the best within the limit`;
        el.dataset.name = model.get("app_name") || (shown.program ?? "");
    };
    const stops = [
        follow(model, [
            "content"
        ], draw),
        follow(model, [
            "exported"
        ], box.draw)
    ];
    askedFor();
    return ()=>{
        sizes.disconnect();
        document.removeEventListener("keydown", onKey);
        document.removeEventListener("fullscreenchange", onFull);
        for (const stop of stops)stop();
    };
}
const controls = {
    render: render
};
export default controls;
