function panel(el, name) {
    el.classList.add("wb-panel", `wb-${name}`);
    el.dataset.lmSuppressShortcuts = "true";
}
function isPlainKey(event) {
    return !event.ctrlKey && !event.altKey && !event.metaKey;
}
const FOLD = "thunder-workbench:fold";
function isFolded(axis) {
    try {
        return "1" === localStorage.getItem(`thunder-workbench:folded:${axis}`);
    } catch  {
        return false;
    }
}
const LEAST = 0.12, STEP = 0.03;
function render({ model, el }) {
    const axis = model.get("axis"), key = `thunder-workbench:split:${axis}`, across = "x" === axis;
    panel(el, "split");
    el.classList.add(`wb-split-${axis}`);
    el.tabIndex = 0;
    el.setAttribute("role", "separator");
    el.setAttribute("aria-orientation", across ? "vertical" : "horizontal");
    el.setAttribute("aria-label", across ? "Width of the graph" : "Height of the graph");
    el.title = "Drag, or use the arrow keys; double-click for the default size; Enter hides or shows the area after the bar";
    const app = ()=>el.closest(".wb-app");
    let share = 0 / 0, folded = false;
    const fold = (on)=>{
        folded = on;
        app()?.classList.toggle(`wb-folded-${axis}`, on);
        for (const button of app()?.querySelectorAll(`[data-folds="${axis}"]`) ?? [])button.setAttribute("aria-expanded", String(!on));
        try {
            localStorage.setItem(`thunder-workbench:folded:${axis}`, on ? "1" : "0");
        } catch  {}
    };
    const tell = ()=>{
        const { start, at, space } = parts();
        if (space > 0) el.setAttribute("aria-valuenow", String(Math.round(100 * (Number.isNaN(share) ? (at - start) / space : share))));
        if (Number.isNaN(share)) app()?.style.removeProperty(`--wb-split-${axis}`);
        else app()?.style.setProperty(`--wb-split-${axis}`, String(share));
    };
    const put = (value)=>{
        if (folded) fold(false);
        share = Number.isNaN(value) ? value : Math.max(LEAST, Math.min(1 - LEAST, value));
        tell();
        try {
            if (Number.isNaN(share)) localStorage.removeItem(key);
            else localStorage.setItem(key, String(share));
        } catch  {}
    };
    const parts = ()=>{
        const [before, after] = [
            "previousElementSibling",
            "nextElementSibling"
        ].map((side)=>{
            let part = el[side];
            while(part && !Number.parseFloat(getComputedStyle(part).flexGrow))part = part[side];
            return (part ?? el).getBoundingClientRect();
        });
        return across ? {
            start: before.left,
            at: before.right,
            space: before.width + after.width
        } : {
            start: before.top,
            at: before.bottom,
            space: before.height + after.height
        };
    };
    let grabbed = 0;
    const stop = new AbortController(), { signal } = stop;
    el.addEventListener("pointerdown", (event)=>{
        event.preventDefault();
        el.focus();
        el.setPointerCapture(event.pointerId);
        grabbed = (across ? event.clientX : event.clientY) - parts().at;
    }, {
        signal
    });
    el.addEventListener("pointermove", (event)=>{
        if (!el.hasPointerCapture(event.pointerId)) return;
        const { start, space } = parts();
        put(((across ? event.clientX : event.clientY) - grabbed - start) / space);
    }, {
        signal
    });
    el.addEventListener("dblclick", ()=>put(0 / 0), {
        signal
    });
    el.addEventListener(FOLD, (event)=>fold(event.detail ?? !folded), {
        signal
    });
    el.addEventListener("keydown", (event)=>{
        if ("Enter" === event.key && isPlainKey(event)) {
            event.preventDefault();
            event.stopPropagation();
            fold(!folded);
            return;
        }
        const by = {
            ArrowLeft: -STEP,
            ArrowUp: -STEP,
            ArrowRight: STEP,
            ArrowDown: STEP
        }[event.key];
        if (void 0 === by || !isPlainKey(event)) return;
        event.preventDefault();
        event.stopPropagation();
        if (folded) return void fold(false);
        const { start, at, space } = parts();
        put((at - start) / space + by);
    }, {
        signal
    });
    (async ()=>{
        while(!el.isConnected && !signal.aborted)await new Promise((next)=>setTimeout(next, 30));
        try {
            share = Number.parseFloat(localStorage.getItem(key) ?? "");
        } catch  {}
        tell();
        if (signal.aborted) return;
        fold(isFolded(axis));
        if (!across) app()?.addEventListener("click", ({ target })=>{
            if (folded && target.closest?.(".wb-places > .lm-TabBar .lm-TabBar-tab")) fold(false);
        }, {
            signal
        });
    })();
    return ()=>stop.abort();
}
const split = {
    render: render
};
export default split;
