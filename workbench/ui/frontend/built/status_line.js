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
const OPEN = "thunder-workbench:open-file";
const HINT = "Click an arc to select it. Hover to preview a change.";
function render({ model, el }) {
    panel(el, "status");
    const message = h("div", {
        class: "wb-message"
    }), preview = h("div", {
        class: "wb-preview",
        role: "status",
        hidden: true
    });
    const canvas = h("canvas", {
        class: "wb-spark",
        "aria-hidden": "true"
    });
    const state = h("span", {
        class: "wb-state",
        role: "status",
        tabindex: "0"
    }), clock = h("span", {
        class: "wb-clock"
    });
    const memory = h("span", {
        class: "wb-memory"
    });
    const live = h("div", {
        class: "wb-live"
    }, state, clock, h("span", {
        class: "wb-live-memory"
    }, canvas, memory));
    el.replaceChildren(message, preview, live);
    let samples = [];
    let started = 0, ticking = 0;
    function take(view) {
        for(let at = 0; at + 16 <= view.byteLength; at += 16)samples.push({
            t: view.getFloat64(at, true),
            bytes: view.getFloat64(at + 8, true)
        });
    }
    function spark() {
        const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
        if (!samples.length) {
            memory.textContent = "";
            canvas.getContext("2d").clearRect(0, 0, canvas.width, canvas.height);
            return;
        }
        const most = Math.max(...samples.map((s)=>s.bytes)), from = samples[0].t, to = Math.max(from + 1, samples.at(-1).t);
        memory.textContent = `${humanBytes(samples.at(-1).bytes)} (max ${humanBytes(most)})`;
        if (!width) return;
        canvas.width = width * ratio;
        canvas.height = height * ratio;
        const c = canvas.getContext("2d"), style = getComputedStyle(el);
        c.scale(ratio, ratio);
        const x = (t)=>1 + (t - from) / (to - from) * (width - 4), y = (bytes)=>height - 2 - bytes / most * (height - 5);
        c.beginPath();
        samples.forEach((s, i)=>i ? c.lineTo(x(s.t), y(s.bytes)) : c.moveTo(x(s.t), y(s.bytes)));
        c.strokeStyle = style.getPropertyValue("--wb-accent");
        c.lineWidth = 1.5;
        c.stroke();
        c.lineTo(x(samples.at(-1).t), height);
        c.lineTo(x(from), height);
        c.globalAlpha = 0.12;
        c.fillStyle = style.getPropertyValue("--wb-accent");
        c.fill();
    }
    function tick() {
        const { run } = model.get("said");
        if (run?.busy) clock.textContent = `${((performance.now() - started) / 1000).toFixed(1)} s`;
        else clearInterval(ticking);
    }
    function drawRun({ run, cannot_run: cannotRun }) {
        clearInterval(ticking);
        live.classList.toggle("wb-idle", !run);
        el.dataset.run = run?.state ?? "";
        state.textContent = run?.text ?? (cannotRun || "Nothing has run yet.");
        state.title = [
            state.textContent,
            ...(run?.stages ?? []).map(({ name, seconds })=>`${name} ${seconds.toFixed(2)} s`)
        ].join("\n");
        clock.textContent = run?.elapsed_s ? `${run.elapsed_s.toFixed(1)} s` : "";
        if (run?.busy) {
            started = performance.now() - 1000 * run.elapsed_s;
            ticking = setInterval(tick, 100);
            tick();
        }
        spark();
    }
    const opens = (path, ask)=>!el.dispatchEvent(new CustomEvent(OPEN, {
            bubbles: true,
            cancelable: true,
            detail: {
                path,
                ask
            }
        }));
    function words({ text, file }) {
        const at = file ? text.indexOf(file) : -1;
        if (at < 0 || !opens(file, true)) return text;
        return [
            text.slice(0, at),
            h("button", {
                class: "wb-link",
                title: "Open the file",
                onclick: ()=>opens(file, false)
            }, file),
            text.slice(at + file.length)
        ];
    }
    function drawMessage(said) {
        message.className = `wb-message ${said ? said.bad ? "wb-error" : "wb-said" : ""}`;
        message.setAttribute("role", said?.bad ? "alert" : "status");
        message.replaceChildren(h("span", {
            class: "wb-message-text",
            tabindex: said ? "0" : null,
            title: said?.text
        }, said ? words(said) : HINT));
        if (said) message.append(h("button", {
            class: "wb-close",
            title: "Dismiss",
            "aria-label": "Dismiss",
            onclick: ()=>model.send({
                    type: "dismiss"
                })
        }, "×"));
    }
    function drawPreview({ what = "", figures = [], how = "", bad = false }) {
        preview.replaceChildren(...what ? [
            h("strong", {
                class: bad ? "wb-bad" : null
            }, what),
            ...figures.map(({ name, text, tone })=>h("span", {}, h("span", {
                    class: "wb-muted"
                }, `${name} `), h("b", {
                    class: tone ? `wb-${tone}` : null
                }, text))),
            h("span", {
                class: "wb-muted wb-how"
            }, how)
        ] : []);
        preview.title = Array.from(preview.children, (part)=>part.textContent).join(" · ");
    }
    let drawn = null, pointed = model.get("pointed");
    const draw = ()=>{
        const said = model.get("said");
        if (JSON.stringify(said.message ?? null) !== JSON.stringify(drawn?.message ?? null) || !drawn) {
            drawMessage(said.message);
            if (drawn) pointed = model.get("pointed");
        }
        drawn = said;
        drawRun(said);
        drawPreview(model.get("content"));
        preview.hidden = !preview.children.length || Boolean(said.message) && model.get("pointed") === pointed;
        message.hidden = !preview.hidden;
    };
    const history = ()=>{
        samples = [];
        const view = model.get("samples");
        if (view) take(view);
        spark();
    };
    const receive = (sent, buffers)=>{
        if ("samples" !== sent.type) return;
        if (sent.restart) samples = [];
        for (const view of buffers)take(view);
        spark();
    };
    model.on("change:samples", history);
    model.on("msg:custom", receive);
    const stop = follow(model, [
        "content",
        "pointed",
        "said"
    ], draw);
    const sizes = new ResizeObserver(spark);
    sizes.observe(canvas);
    const themes = new MutationObserver(()=>requestAnimationFrame(spark));
    themes.observe(document.body, {
        attributes: true,
        attributeFilter: [
            "data-jp-theme-light",
            "data-jp-theme-name",
            "class"
        ]
    });
    history();
    return ()=>{
        clearInterval(ticking);
        sizes.disconnect();
        themes.disconnect();
        model.off("change:samples", history);
        model.off("msg:custom", receive);
        stop();
    };
}
const status_line = {
    render: render
};
export default status_line;
