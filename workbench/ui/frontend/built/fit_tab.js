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
function asPeak(text) {
    const typed = text.trim();
    return /^\d+(\.\d+)?$/.test(typed) && Number(typed) <= 100 ? `${typed}%` : typed;
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
function asLimit(bytes) {
    const units = [
        "B",
        "KiB",
        "MiB",
        "GiB",
        "TiB"
    ];
    let value = bytes, unit = 0;
    while(value >= 999.5 && unit < units.length - 1){
        value /= 1024;
        unit++;
    }
    return `${unit ? Math.ceil(1000 * value) / 1000 : value} ${units[unit]}`;
}
function render({ model, el }) {
    panel(el, "fit");
    const peak = h("input", {
        type: "text",
        "aria-label": "Peak at most",
        placeholder: "24 GiB or 80%",
        title: "Bytes, or a share of the peak of unmodified Thunder; a number up to 100 is a percentage",
        spellcheck: "false",
        size: 12
    });
    const ask = ()=>{
        peak.value = asPeak(peak.value);
        model.send({
            type: "fit",
            peak: peak.value
        });
    };
    const fit = h("button", {
        class: "wb-primary",
        title: "Choose what to save, recompute and offload for the least time under this peak. Choices made by hand stay",
        onclick: ask
    }, "Fit");
    let entered = false;
    peak.addEventListener("focus", ()=>{
        entered = true;
    });
    peak.addEventListener("click", ()=>{
        if (entered && peak.selectionStart === peak.selectionEnd) peak.select();
        entered = false;
    });
    peak.addEventListener("keydown", (event)=>{
        if ("Enter" === event.key) ask();
    });
    const slider = h("input", {
        type: "range",
        style: "flex: 1 1 160px; min-width: 0; height: 24px; margin: 0",
        min: "0",
        max: "1000",
        "aria-label": "Peak, from the least peak that was found to the peak of unmodified Thunder",
        oninput: ()=>{
            peak.value = asLimit(at(Number(slider.value)));
        },
        onchange: ask
    });
    const progress = h("progress", {
        style: "flex: 0 1 120px; min-width: 24px",
        "aria-label": "Limits tried"
    }), said = h("span", {
        class: "wb-muted",
        role: "status"
    });
    const again = h("button", {
        onclick: ()=>model.send({
                type: "working" === model.get("content").state ? "stop" : "find"
            })
    }, "Cancel");
    const each = h("button", {
        onclick: ()=>model.send({
                type: "each"
            })
    }, "Compare levers");
    const wrong = h("div", {
        class: "wb-bad",
        role: "alert",
        hidden: true
    }), lines = h("div"), why = h("div", {
        class: "wb-found"
    });
    el.replaceChildren(h("div", {
        class: "wb-row wb-peak",
        style: "flex-wrap: wrap"
    }, h("label", {
        class: "wb-check"
    }, "Peak at most ", peak), fit, slider), wrong, lines, h("div", {
        class: "wb-row"
    }, progress, said, again, each), why);
    let ticking = 0, since = 0, doing = "";
    let shown = 0, from = 0, began = 0;
    const left = (done, count)=>{
        if (!began || done < from) [from, began] = [
            done,
            performance.now()
        ];
        const seconds = Math.ceil((performance.now() - began) / 1000 / (done - from) * (count - done));
        return done > from && seconds > 0 ? `, about ${seconds < 100 ? `${seconds} s` : `${Math.ceil(seconds / 60)} min`} left` : "";
    };
    const at = (share)=>{
        const { least_bytes, stock_bytes } = model.get("content");
        return Math.ceil(least_bytes + (stock_bytes - least_bytes) * share / 1000);
    };
    function draw() {
        const { state = "", done = 0, count = 0, error = "", wrong: refused = "", least_bytes = 0, stock_bytes = 0, peak_bytes = 0, fitting = "", fit: found = null, each: levers = [] } = model.get("content");
        wrong.textContent = refused;
        wrong.hidden = !refused;
        if (refused) peak.setAttribute("aria-invalid", "true");
        else peak.removeAttribute("aria-invalid");
        const known = least_bytes > 0 && stock_bytes > least_bytes;
        slider.disabled = !known;
        if (known) {
            if (document.activeElement !== slider) slider.value = String(Math.round(1000 * (peak_bytes - least_bytes) / (stock_bytes - least_bytes)));
        } else slider.value = slider.max;
        if (peak_bytes !== shown && document.activeElement !== peak && document.activeElement !== slider) peak.value = asLimit(peak_bytes);
        shown = peak_bytes;
        progress.max = Math.max(1, count);
        progress.value = done;
        progress.hidden = "working" !== state;
        const find = state ? "Draw the curve again" : "Draw the curve";
        again.textContent = "working" === state ? "Cancel" : find;
        each.disabled = "working" === state || !state;
        each.title = `Draw the curve again, with a line for each kind of choice: ${levers.join(", ")}. This takes longer`;
        again.setAttribute("aria-label", "working" === state ? "Cancel the curve" : find);
        if ("working" !== state) began = 0;
        said.textContent = "working" === state ? `Curve: ${done} of ${count}${left(done, count)}` : error || ("cancelled" === state ? `cancelled after ${done} of ${count} limits` : "done" === state ? `${humanBytes(least_bytes)} is the least peak found` : "");
        const searching = "working" !== state || done ? "" : "Searching for the least peak";
        const now = fitting ? `Fitting ${fitting}${"working" === state ? " first; the curve waits" : ""}` : searching;
        if (now !== doing) [doing, since] = [
            now,
            performance.now()
        ];
        clearInterval(ticking);
        const tick = ()=>{
            said.textContent = `${doing}: ${Math.floor((performance.now() - since) / 1000)}\u00a0s`;
        };
        if (doing) {
            tick();
            ticking = setInterval(tick, 1000);
        }
        lines.replaceChildren(...(found?.lines ?? []).map((line)=>h("div", {
                class: "wb-line-of"
            }, line)));
        why.replaceChildren(...found ? [
            ...found.steps.map((step)=>h("div", {
                    class: "wb-row wb-step"
                }, h("span", {}, `${step.label}: ${step.effect}`), h("button", {
                    "aria-label": `${step.label}: choose`,
                    title: "The choice then counts as made by hand",
                    onclick: ()=>model.send({
                            type: "choose_all",
                            choices: step.choices
                        })
                }, "Choose"))),
            found.rows.length > 0 && h("div", {
                class: "wb-row wb-step"
            }, h("span", {}, "A script can use these choices from a Python file:"), h("button", {
                title: "Write the choices to a file, as Export above the graph does",
                onclick: ()=>model.send({
                        type: "export"
                    })
            }, "Export")),
            found.rows.length > 0 && scrolled("Why each is chosen", h("table", {}, h("thead", {}, h("tr", {}, [
                "choice",
                "bytes",
                "why",
                "source"
            ].map((name)=>h("th", {}, name)))), h("tbody", {}, found.rows.map((row)=>h("tr", {
                    class: "wb-can",
                    "data-site": row.id,
                    onclick: ()=>model.send({
                            type: "go",
                            id: row.id
                        })
                }, h("td", {}, h("strong", {}, row.option), " ", h("button", {
                    class: "wb-link",
                    style: "min-height: 24px",
                    title: row.id
                }, row.id.replace(/^saved:/, ""))), h("td", {
                    class: "wb-right"
                }, row.bytes), h("td", {}, row.reason), h("td", {}, h("code", {
                    class: "wb-muted",
                    title: row.source
                }, /^(?:.*?:\d+(?=\s)|.*)/.exec(row.source)[0])))))))
        ].filter(Boolean) : [
            h("div", {
                class: "wb-muted"
            }, "Enter a peak (48 MiB or 70 %) or click the curve.")
        ]);
    }
    const stop = follow(model, [
        "content"
    ], draw);
    return ()=>{
        clearInterval(ticking);
        stop();
    };
}
const fit_tab = {
    render: render
};
export default fit_tab;
