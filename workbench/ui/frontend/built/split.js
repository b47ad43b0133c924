function panel(el, name) {
    el.classList.add("wb-panel", `wb-${name}`);
    el.dataset.lmSuppressShortcuts = "true";
}
function isPlainKey(event) {
    return !event.ctrlKey && !event.altKey && !event.metaKey;
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
    el.title = "Drag, or use the arrow keys; double-click for the default size";
    const app = ()=>el.closest(".wb-app");
    let share = 0 / 0;
    const tell = ()=>{
        const { start, at, space } = parts();
        if (space > 0) el.setAttribute("aria-valuenow", String(Math.round(100 * (Number.isNaN(share) ? (at - start) / space : share))));
        if (Number.isNaN(share)) app()?.style.removeProperty(`--wb-split-${axis}`);
        else app()?.style.setProperty(`--wb-split-${axis}`, String(share));
    };
    const put = (value)=>{
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
    el.addEventListener("keydown", (event)=>{
        const by = {
            ArrowLeft: -STEP,
            ArrowUp: -STEP,
            ArrowRight: STEP,
            ArrowDown: STEP
        }[event.key];
        if (void 0 === by || !isPlainKey(event)) return;
        event.preventDefault();
        event.stopPropagation();
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
    })();
    return ()=>stop.abort();
}
const split = {
    render: render
};
export default split;
