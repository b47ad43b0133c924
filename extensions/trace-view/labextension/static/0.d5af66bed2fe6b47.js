"use strict";(self.rspackChunkthunder_workbench_trace_view=self.rspackChunkthunder_workbench_trace_view||[]).push([[0],{10(e,t,i){var a=i(11),n=i.n(a),o=i(12),r=(i.n(o))()(n());r.push([e.id,`/* Everything the workbench shows: one palette for both themes, on top of JupyterLab's own variables. */
.wb-graph, .wb-panel, .wb-app {
  --wb-paper: var(--jp-layout-color0, #ffffff);
  --wb-band: var(--jp-layout-color1, #f6f8fa);
  --wb-ink: #1f2328;
  --wb-muted: #59636e;
  --wb-rule: #d0d7de;
  --wb-hair: #e6e9ed;
  --wb-accent: #0b57d0;
  --wb-on-accent: #ffffff;
  --wb-good: #1a6b3c;
  --wb-bad: #b3261e;
  --wb-warn-paper: #fdf0ee;
  --wb-saved: #267044;
  --wb-again: #b04a00;
  --wb-away: #0b6b85;
  --wb-new-paper: #e7f5ec;
  --wb-part-stage: #7c8a9a;
  --wb-part-0: #8b6fd0;
  --wb-part-1: #9aa7b5;
  --wb-part-2: #0b57d0;
  --wb-part-3: #0b8aa6;
  --wb-part-4: #d9862e;
  --wb-part-5: #8b6fd0;
  --wb-part-6: #267044;
  --bokeh-icon-color: var(--wb-muted);
  --bokeh-icon-color-disabled: var(--wb-rule);
  --wb-sans: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial, sans-serif;
  --wb-mono: "JetBrains Mono", "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace;
}
body[data-jp-theme-light="false"] :is(.wb-graph, .wb-panel, .wb-app), .wb-dark {
  --wb-paper: var(--jp-layout-color0, #111111);
  --wb-band: #1b1e22;
  --wb-ink: #e8eaed;
  --wb-muted: #a3acb7;
  --wb-rule: #3a4047;
  --wb-hair: #25282c;
  --wb-accent: #79aeff;
  --wb-on-accent: #0a1a33;
  --wb-good: #63c48a;
  --wb-bad: #ff9a92;
  --wb-warn-paper: #331a18;
  --wb-saved: #63c48a;
  --wb-again: #f2a952;
  --wb-away: #54c6dc;
  --wb-new-paper: #14291c;
  --wb-part-stage: #7f8c9b;
  --wb-part-2: #5f96ee;
  --wb-part-3: #3fb0c8;
  --wb-part-5: #a793ea;
  --wb-part-6: #55b37c;
}

/* the picture beside the app is for pages on which the app is not alive */
.jp-OutputArea:has(.wb-app) > .jp-OutputArea-child:has(> .jp-RenderedSVG) { display: none; }

/* the graph */
.wb-graph {
  position: relative;
  width: 100%;
  min-width: 0;
  overflow: hidden;
  background: var(--wb-paper);
  border: 1px solid var(--wb-rule);
  border-radius: 6px;
  box-sizing: border-box;
  font-family: var(--wb-sans);
}
.wb-graph canvas { position: absolute; inset: 0; width: calc(100% - 52px); height: calc(100% - 34px); outline: none; touch-action: none; }
.wb-graph canvas.wb-map { inset: 30px 0 auto auto; width: 48px; height: calc(100% - 64px); border-left: 1px solid var(--wb-rule); cursor: ns-resize; }
.wb-graph.wb-slim canvas { width: 100%; }
.wb-graph.wb-slim canvas.wb-map { display: none; }
.wb-graph:focus-within { border-color: var(--wb-accent); }
.wb-graph:has(canvas:first-child:focus-visible) { outline: 2px solid var(--wb-accent); outline-offset: -1px; }
.wb-graph .wb-foot {
  position: absolute;
  inset: auto 0 0;
  height: 34px;
  display: flex;
  container-type: inline-size;
  align-items: center;
  gap: 4px;
  padding: 0 8px 0 12px;
  box-sizing: border-box;
  border-top: 1px solid var(--wb-rule);
  background: var(--wb-paper);
  color: var(--wb-muted);
  font: 11px var(--wb-sans);
  white-space: nowrap;
  overflow: hidden;
}
.wb-graph .wb-key { margin-right: 12px; }
.wb-graph .wb-key::before {
  content: "";
  display: inline-block;
  width: 22px;
  margin-right: 6px;
  vertical-align: middle;
  border-top: 2.5px solid var(--wb-saved);
}
.wb-graph .wb-key-again::before { border-top: 2.5px dashed var(--wb-again); }
.wb-graph .wb-key-away::before { border-top: 2.5px dotted var(--wb-away); }
.wb-graph .wb-key-wire::before { border-top: 2.5px solid var(--wb-away); }
@container (max-width: 960px) { .wb-graph .wb-key-wire { display: none; } }
@container (max-width: 780px) { .wb-graph .wb-key { display: none; } }
.wb-graph .wb-legend-box { position: absolute; z-index: 3; left: 8px; bottom: 40px; max-height: calc(100% - 56px); max-width: min(620px, calc(100% - 16px)); box-sizing: border-box; overflow: auto; display: grid; grid-template-columns: repeat(auto-fill, minmax(260px, 1fr)); gap: 5px 16px; padding: 10px 12px; border: 1px solid var(--wb-rule); border-radius: 6px; background: var(--wb-paper); color: var(--wb-ink); box-shadow: 0 4px 18px rgb(0 0 0 / 18%); font: 11.5px/1.4 var(--wb-sans); outline: none; }
.wb-graph .wb-legend-box > div { display: grid; grid-template-columns: 46px minmax(0, 1fr); gap: 8px; align-items: start; }
.wb-graph .wb-grow { flex: 1; }
.wb-graph .wb-foot button[data-do="views"] { flex: 0 1 auto; overflow: hidden; text-overflow: ellipsis; }
.wb-graph .wb-foot input {
  flex: 0 1 104px;
  min-width: 44px;
  width: 104px;
  height: 24px;
  padding: 0 6px;
  border: 1px solid transparent;
  border-radius: 4px;
  background: transparent;
  color: var(--wb-ink);
  font: 12px var(--wb-sans);
  box-sizing: border-box;
}
.wb-graph .wb-foot input::placeholder { color: var(--wb-muted); opacity: 1; }
.wb-graph .wb-foot input:focus { outline: none; border-color: var(--wb-accent); }
.wb-graph .wb-found { min-width: 18px; color: var(--wb-muted); font: 11px var(--wb-sans); font-variant-numeric: tabular-nums; }
.wb-graph .wb-foot button {
  flex: none;
  min-width: 26px;
  height: 24px;
  padding: 0 6px;
  border: 0;
  border-radius: 4px;
  background: transparent;
  color: var(--wb-ink);
  font: 12px var(--wb-sans);
  cursor: pointer;
}
.wb-graph .wb-foot button:hover { background: var(--wb-hair); }
.wb-graph .wb-foot button:focus-visible, .wb-graph canvas.wb-map:focus-visible { outline: 2px solid var(--wb-accent); outline-offset: -2px; }
@container (max-width: 380px) {
  .wb-graph .wb-foot button { min-width: 20px; padding: 0 3px; }
  .wb-graph .wb-foot .wb-grow { display: none; }
  .wb-graph .wb-foot input { min-width: 66px; padding: 0 3px; }
  .wb-graph .wb-found { min-width: 0; }
}
.wb-graph .wb-tip {
  position: absolute;
  max-width: min(420px, 80%);
  padding: 7px 10px;
  pointer-events: none;
  background: var(--wb-paper);
  border: 1px solid var(--wb-rule);
  border-radius: 6px;
  box-shadow: 0 3px 12px rgb(0 0 0 / 18%);
  color: var(--wb-ink);
  font: 11.5px/1.5 var(--wb-sans);
  z-index: 2;
  overflow-wrap: anywhere;
}
.wb-graph .wb-tip[hidden] { display: none; }
.wb-graph .wb-tip-b { font-weight: 600; }
.wb-graph .wb-tip-i { color: var(--wb-muted); font-family: var(--wb-mono); font-size: 11px; white-space: pre-wrap; }

/* the panels */
.wb-app { color: var(--wb-ink); font-family: var(--wb-sans); container: wb-app / inline-size; }
.wb-panel {
  box-sizing: border-box;
  width: 100%;
  min-width: 0;
  color: var(--wb-ink);
  font: 12.5px/1.5 var(--wb-sans);
  font-variant-numeric: tabular-nums;
}
.wb-panel [hidden] { display: none !important; }
.wb-panel code { font-family: var(--wb-mono); font-size: 11.5px; background: none; padding: 0; color: inherit; }
.wb-panel .wb-muted { color: var(--wb-muted); }
.wb-panel .wb-good { color: var(--wb-good); }
.wb-panel .wb-bad { color: var(--wb-bad); }
.wb-panel .wb-right { text-align: right; }
.wb-panel button, .wb-panel input, .wb-panel select {
  height: 28px;
  padding: 0 11px;
  box-sizing: border-box;
  border: 1px solid var(--wb-rule);
  border-radius: 5px;
  background: var(--wb-paper);
  color: var(--wb-ink);
  font: 12.5px var(--wb-sans);
}
.wb-panel select { padding: 0 6px; }
.wb-panel input::placeholder { color: var(--wb-muted); opacity: 1; }
.wb-panel button { cursor: pointer; white-space: nowrap; }
.wb-panel button:hover:not(:disabled) { border-color: var(--wb-muted); }
.wb-panel :is(button, input, select):focus-visible { outline: 2px solid var(--wb-accent); outline-offset: 1px; }
.wb-panel :is(button, select):disabled { color: var(--wb-muted); background: var(--wb-band); cursor: default; }
.wb-panel button.wb-primary:not(:disabled) { background: var(--wb-accent); border-color: var(--wb-accent); color: var(--wb-on-accent); font-weight: 600; }
.wb-panel button.wb-link { height: auto; padding: 0; border: 0; background: none; color: var(--wb-accent); font: inherit; font-family: var(--wb-mono); font-size: 11.5px; text-align: left; white-space: normal; overflow-wrap: anywhere; }
.wb-panel button.wb-link:hover { text-decoration: underline; }
.wb-panel table { width: 100%; margin: 0; border: 0; border-collapse: collapse; font: inherit; font-size: 12px; table-layout: auto; color: inherit; }
.wb-panel :is(th, td) { padding: 4px 10px 4px 0; border: 0; border-bottom: 1px solid var(--wb-hair); text-align: left; vertical-align: top; background: none; max-width: none; }
.wb-panel :is(th, td).wb-right { text-align: right; white-space: nowrap; }
.wb-panel th { color: var(--wb-muted); font-weight: 500; }
.wb-panel tbody tr, .wb-panel tbody tr:nth-child(even) { background: none; }
.wb-panel.wb-settings .wb-check { display: flex; flex-wrap: wrap; align-items: center; gap: 2px 8px; margin-bottom: 4px; }
.wb-settings .wb-check input[type="checkbox"] { width: auto; margin: 0; }
.wb-panel .wb-row { display: flex; align-items: center; gap: 8px; margin-bottom: 8px; }
.wb-panel .wb-row input[type="search"] { flex: 1 1 200px; max-width: 420px; min-width: 0; }
.wb-panel .wb-scroll { max-height: 320px; overflow: auto; }
/* what is too wide for its room, cell by cell (\`fitted\` in dom.js) */
.wb-panel .wb-cards :is(table, tbody) { display: block; }
.wb-panel .wb-cards thead:not(:has(button)) { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
.wb-panel .wb-cards thead { display: block; }
.wb-panel .wb-cards thead tr { display: flex; flex-wrap: wrap; gap: 0 10px; border-bottom: 1px solid var(--wb-hair); }
.wb-panel .wb-cards th { position: static; padding: 0; border: 0; }
.wb-panel .wb-cards thead:has(button) th:not(:has(button)) { display: none; }
.wb-panel .wb-cards tbody tr { display: grid; grid-template-columns: repeat(auto-fill, minmax(104px, 1fr)); gap: 4px 12px; padding: 8px 4px; border-bottom: 1px solid var(--wb-hair); }
.wb-panel .wb-cards tbody td { display: block; width: auto !important; min-width: 0 !important; max-width: none !important; padding: 0; border: 0; text-align: left; white-space: normal; overflow-wrap: anywhere; }
.wb-panel .wb-cards tbody td:is(:empty, :has(> code:empty:only-child)) { display: none; }
.wb-panel .wb-cards tbody td.wb-wide { grid-column: span 2; }
.wb-panel .wb-cards tbody td.wb-wide input[type="text"] { width: 100%; }
.wb-panel .wb-cards td.wb-gain i { margin-left: 0; }
.wb-panel .wb-scroll.wb-cards { max-height: 420px; }
@container wb-app (max-width: 300px) { .wb-panel .wb-cards tbody td.wb-wide { grid-column: auto; } }
.wb-panel .wb-cards tbody td[data-head]:not([data-head=""])::before { content: attr(data-head); display: block; color: var(--wb-muted); font: 11px/1.4 var(--wb-sans); }
.wb-panel .wb-cards td :is(.wb-name, code, input[type="text"], select) { max-width: 100%; }
.wb-panel .wb-reason { color: var(--wb-muted); font-size: 12px; }

/* the controls */
.wb-controls .wb-bar { display: flex; flex-wrap: wrap; align-items: center; gap: 8px 14px; padding: 2px 0 8px; }
.wb-controls .wb-program { flex: 1 1 180px; display: flex; flex-wrap: wrap; align-items: baseline; gap: 0 10px; min-width: 0; }
.wb-controls .wb-program strong { font-size: 15px; font-weight: 650; overflow-wrap: anywhere; }
.wb-controls .wb-group { display: inline-flex; gap: 6px; }
.wb-controls .wb-export input { width: 130px; font-family: var(--wb-mono); font-size: 11.5px; }
.wb-controls .wb-turns { display: inline-flex; align-items: center; gap: 4px; min-height: 24px; color: var(--wb-muted); font-size: 12px; white-space: nowrap; }
.wb-controls .wb-ranks label { display: inline-flex; align-items: center; gap: 6px; color: var(--wb-muted); }
.wb-controls .wb-ranks { gap: 8px 24px; }
.wb-controls .wb-ranks .wb-group { gap: 10px; }
.wb-controls .wb-ranks input { width: 84px; }
/* one row in a cell of a window 1440 wide; in less two whole ones: what is open and where it is shown, then what acts */
@container wb-app (max-width: 1160px) {
  .wb-controls .wb-bar:not(.wb-ranks) { gap: 8px 10px; }
  .wb-controls .wb-program { flex-basis: 100px; }
  .wb-controls .wb-program strong { font-size: 13px; }
  .wb-controls .wb-program .wb-muted { font-size: 11.5px; }
  .wb-controls .wb-export input { width: 96px; }
}
@container wb-app (min-width: 640px) and (max-width: 960px) {
  .wb-controls .wb-program:not(.wb-tab *, :fullscreen *) { flex: 1 1 calc(100% - 250px); }
  .wb-controls .wb-group:not(.wb-shown, .wb-tab *, :fullscreen *, .wb-ranks *) { order: 1; }
}
@container wb-app (max-width: 640px) {
  .wb-controls .wb-turns { gap: 2px; font-size: 11px; letter-spacing: -0.2px; }
}
@container wb-app (max-width: 360px) {
  .wb-controls .wb-group { flex-wrap: wrap; }
  .wb-controls .wb-bar .wb-group { max-width: 100%; }
}
/* message and readout stand beside each other in a place of fixed height: what they say moves nothing */
.wb-controls .wb-status { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 10px; height: 48px; }
.wb-controls .wb-message { position: relative; display: flex; align-items: flex-start; gap: 8px; min-width: 0; padding: 4px 6px 4px 10px; border: 1px solid var(--wb-hair); border-left: 3px solid var(--wb-hair); border-radius: 5px; color: var(--wb-muted); box-sizing: border-box; overflow: hidden; }
.wb-controls .wb-message-text { flex: 1 1 auto; min-width: 0; overflow-wrap: anywhere; display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 2; line-clamp: 2; overflow: hidden; line-height: 18px; outline: none; }
.wb-controls .wb-said, .wb-controls .wb-error { color: var(--wb-ink); border-color: var(--wb-rule); border-left-color: var(--wb-good); background: var(--wb-band); }
.wb-controls .wb-error { border-left-color: var(--wb-bad); background: var(--wb-warn-paper); }
.wb-controls :is(.wb-said, .wb-error):is(:hover, :focus-within) { z-index: 4; height: max-content; min-height: 48px; max-height: 240px; overflow: auto; }
.wb-controls :is(.wb-said, .wb-error):is(:hover, :focus-within) .wb-message-text { -webkit-line-clamp: none; line-clamp: none; }
.wb-controls button.wb-close { flex: none; width: 24px; height: 24px; padding: 0; border: 0; background: none; font-size: 15px; line-height: 1; }
.wb-controls .wb-live { display: flex; align-items: center; gap: 12px; min-width: 0; padding: 4px 10px; border: 1px solid var(--wb-hair); border-radius: 5px; box-sizing: border-box; overflow: hidden; }
.wb-controls .wb-live-words { flex: 1 1 150px; min-width: 0; line-height: 18px; }
.wb-controls .wb-live-head, .wb-controls .wb-stages { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.wb-controls .wb-state { font-weight: 600; }
.wb-controls .wb-idle .wb-state { font-weight: 400; color: var(--wb-muted); }
.wb-controls .wb-clock { color: var(--wb-muted); }
.wb-controls .wb-stages { display: block; color: var(--wb-muted); font-size: 11.5px; }
.wb-controls .wb-stage { margin-right: 12px; }
.wb-controls .wb-stage b { font-weight: 500; color: var(--wb-ink); }
.wb-controls .wb-live-memory { flex: 0 1 200px; min-width: 0; display: flex; flex-direction: column; align-items: stretch; }
.wb-controls .wb-spark { width: 100%; height: 22px; }
.wb-controls .wb-memory { color: var(--wb-muted); font-size: 11px; line-height: 15px; text-align: right; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
/* why it failed is said whole, in the room of the stages, which the Compile tab has */
.wb-controls[data-run="failed"] .wb-stages { display: none; }
@container wb-app (max-width: 720px) { .wb-controls[data-run="failed"] .wb-live-memory { display: none; } }
.wb-controls[data-run="failed"] .wb-live-head { white-space: normal; display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 2; line-clamp: 2; }
.wb-controls .wb-idle .wb-live-head { display: block; white-space: normal; }
.wb-controls .wb-idle :is(.wb-live-memory, .wb-stages) { display: none; }
@container wb-app (max-width: 720px) {
  .wb-controls .wb-status { grid-template-columns: minmax(0, 1fr); height: 106px; grid-template-rows: 48px 48px; }
}

/* the preview: what an option would change, in one line that is always there */
.wb-preview { display: flex; align-items: center; gap: 0 16px; height: 26px; padding: 0 10px; border: 1px solid var(--wb-hair); border-left: 3px solid var(--wb-accent); border-radius: 5px; white-space: nowrap; overflow: hidden; }
@container wb-app (max-width: 480px) {
  .wb-preview { flex-wrap: wrap; align-content: center; height: 46px; }
  .wb-preview > strong { flex: 1 1 100%; }
  .wb-preview.wb-idle > .wb-muted { white-space: normal; }
}
.wb-preview.wb-idle { border-left-color: var(--wb-hair); }
.wb-preview > * { flex: none; }
.wb-preview > :is(strong, .wb-how, .wb-muted) { flex: 0 1 auto; min-width: 0; overflow: hidden; text-overflow: ellipsis; }
.wb-preview > strong { font-weight: 600; }
.wb-preview b { font-weight: 600; }

/* all of it at once: in a tab of JupyterLab, or on the whole screen */
.wb-split { display: none; }
:is(.wb-tab .wb-app, .wb-app:fullscreen) {
  height: 100%;
  margin: 0;
  padding: 8px 12px;
  box-sizing: border-box;
  gap: 6px !important;
  overflow: hidden auto;
  background: var(--wb-paper);
  --wb-full: 1;
  & > * { flex: none; }
  & > .wb-controls .wb-bar { flex-wrap: nowrap; padding: 0 0 6px; }
  & > .wb-help { margin-bottom: -6px; }
  & > .widget-hbox { flex: calc(100 * var(--wb-split-y, 0.55)) 1 0; min-height: 250px; flex-flow: row nowrap !important; gap: 0 !important; overflow: hidden; }
  & > .widget-hbox > .wb-graph { flex: calc(100 * var(--wb-split-x, 0.7)) 1 0 !important; height: 100% !important; }
  & > .widget-hbox > .wb-inspector { flex: calc(100 - 100 * var(--wb-split-x, 0.7)) 1 0 !important; height: 100%; max-height: none !important; }
  & > .widget-hbox > .wb-outline.wb-beside { display: flex; flex: none; width: 26px; margin-right: 6px; height: 100%; flex-direction: column; overflow: hidden; border: 1px solid var(--wb-rule); border-radius: 6px; }
  & > .widget-hbox > .wb-outline.wb-beside.wb-open { width: min(var(--wb-outline, clamp(364px, 27%, 480px)), 50%); position: relative; }
  & > .jupyter-widget-tab { flex: calc(100 - 100 * var(--wb-split-y, 0.55)) 1 0; min-height: 200px; overflow: hidden; }
  & .widget-tab-contents { flex: 1 1 0; min-height: 0; overflow: auto; padding: 8px 10px; }
  & .widget-tab-contents > .widget-hbox { height: 100%; flex-flow: row nowrap !important; overflow: visible; }
  & .wb-alive { height: 100%; overflow: auto; }
  & .widget-tab-contents .wb-scroll { max-height: none !important; overflow: visible; }
  & :is(.wb-passes, .wb-trace) { display: flex; flex-direction: column; height: 100%; min-height: 140px; }
  & :is(.wb-passes, .wb-trace) .wb-text { flex: 1 1 0; height: auto; max-height: none; overflow: auto; }
  & :is(.wb-passes, .wb-trace).lm-mod-hidden { display: none; }
  & .wb-split { display: block; flex: none; width: auto; min-width: 0; touch-action: none; position: relative; border-radius: 3px; }
  & .wb-split::after { content: ""; position: absolute; inset: 0; margin: auto; border-radius: 2px; background: var(--wb-rule); }
  & .wb-split:is(:hover, :focus-visible) { background: var(--wb-hair); outline: none; }
  & .wb-split:is(:hover, :focus-visible)::after { background: var(--wb-accent); }
  & .wb-split-x { width: 12px; cursor: col-resize; }
  & .wb-split-x::after { width: 3px; height: 40px; }
  & .wb-split-y { width: 100%; height: 8px; margin: -3px 0; cursor: row-resize; }
  & .wb-split-y::after { width: 40px; height: 3px; }
}
.wb-tab .wb-tab-button { display: none; }
/* a program in parts: their row above, the part below it */
.wb-tab .wb-of-parts { height: 100%; overflow: hidden; background: var(--jp-layout-color0, #fff); gap: 0 !important; }
.wb-tab .wb-of-parts > * { flex: none; margin: 0; }
.wb-tab .wb-of-parts > :not(.widget-vbox) { padding: 6px 12px 0; }
.wb-tab .wb-of-parts > .widget-vbox { flex: 1 1 0; min-height: 0; overflow: hidden; }
/* narrow: parts of the middle stand above each other, and the whole is scrolled */
@container wb-app (max-width: 760px) {
  :is(.wb-tab .wb-app, .wb-app:fullscreen) {
    & > .widget-hbox { flex: none !important; flex-flow: column nowrap !important; gap: 6px !important; }
    & > .widget-hbox > .wb-graph { flex: none !important; width: 100% !important; height: 340px !important; }
    & > .widget-hbox > .wb-inspector { flex: none !important; width: 100% !important; height: 220px; }
    & > .widget-hbox > .wb-outline.wb-beside { width: 100%; height: 30px; margin: 0; }
    & > .widget-hbox > .wb-outline.wb-beside.wb-open { width: 100%; height: 240px; }
    & > .jupyter-widget-tab { flex: none !important; height: 440px; }
    & .widget-tab-contents > .widget-hbox { height: auto; flex-flow: column nowrap !important; }
    & .widget-tab-contents > .widget-hbox > * { flex: none !important; width: 100% !important; height: 300px; }
    & .wb-outline.wb-beside:not(.wb-open) > button.wb-beside-bar { writing-mode: horizontal-tb; padding: 0 10px; }
    & .wb-split, & .wb-edge { display: none; }
  }
}
@container wb-app (max-width: 860px) {
  :is(.wb-tab .wb-app, .wb-app:fullscreen) > .wb-controls .wb-bar { flex-wrap: wrap; }
}
.wb-app.wb-elsewhere > :not(.wb-controls, .wb-strip) { display: none; }

/* the kernel that answered is gone: nothing here can be clicked, and it says so */
.wb-app.jupyter-widgets-disconnected::before { content: "The kernel is gone: run the cell again. What is shown is what was there last."; display: block; padding: 8px 12px; border: 1px solid var(--wb-bad); border-radius: 5px; background: var(--wb-warn-paper); color: var(--wb-ink); font: 600 13px/1.5 var(--wb-sans); }
.wb-app.jupyter-widgets-disconnected > * { pointer-events: none; opacity: 0.5; filter: grayscale(1); }

/* the strip of figures */
.wb-strip { display: grid; grid-template-columns: repeat(auto-fit, minmax(118px, 1fr)); grid-auto-rows: 100px; border: 1px solid var(--wb-rule); border-radius: 6px; background: var(--wb-paper); overflow: hidden; }
.wb-strip .wb-figure { padding: 6px 12px 4px; box-shadow: 1px 0 0 var(--wb-hair), 0 1px 0 var(--wb-hair); min-width: 0; overflow: hidden; line-height: 16px; }
.wb-strip .wb-figure-title { color: var(--wb-muted); font-size: 11.5px; margin-bottom: 1px; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.wb-strip .wb-figure[data-figure="overlap"] { grid-column: span 2; }
.wb-strip .wb-figure[data-figure="overlap"] .wb-figure-values { display: grid; grid-template-columns: 1fr 1fr; gap: 0 12px; align-items: baseline; }
.wb-strip .wb-figure[data-figure="overlap"] .wb-kind { flex: 0 1 100%; min-width: 0; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.wb-strip .wb-figure[data-figure="overlap"] .wb-value { min-width: 0; }
.wb-strip .wb-figure[data-figure="accuracy"] .wb-value { flex-wrap: nowrap; }
.wb-strip .wb-figure[data-figure="accuracy"] .wb-value ~ .wb-value { height: 16px; }
.wb-strip .wb-figure[data-figure="accuracy"] .wb-kind { min-width: 0; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.wb-strip .wb-value { display: flex; align-items: baseline; gap: 0 6px; min-width: 0; }
.wb-strip .wb-value .wb-kind { flex: 0 1 auto; min-width: 0; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.wb-strip .wb-value .wb-delta { flex: 0 4 auto; }
.wb-strip .wb-change { height: 16px; }
.wb-strip .wb-number { font-size: 15px; font-weight: 600; line-height: 20px; white-space: nowrap; }
.wb-strip .wb-value ~ .wb-value .wb-number { font-size: 12.5px; font-weight: 500; line-height: 16px; }
.wb-strip .wb-older .wb-number, .wb-strip .wb-older .wb-delta { color: var(--wb-muted); }
.wb-strip .wb-kind { color: var(--wb-muted); font-size: 11px; }
.wb-strip .wb-delta { font-size: 11.5px; white-space: nowrap; color: var(--wb-muted); }
.wb-strip .wb-delta { min-width: 0; overflow: hidden; text-overflow: ellipsis; }
.wb-strip .wb-change { display: flex; min-width: 0; }
.wb-strip .wb-vs { color: var(--wb-muted); font-size: 11px; }
.wb-strip .wb-delta.wb-good { color: var(--wb-good); }
.wb-strip .wb-delta.wb-bad { color: var(--wb-bad); }
@container wb-app (max-width: 1100px) {
  .wb-strip .wb-figure { padding: 6px 8px 4px; }
  .wb-strip .wb-number { font-size: 13.5px; }
  .wb-strip .wb-value { gap: 0 4px; }
}
@container wb-app (max-width: 1220px) {
  .wb-strip:has(> :nth-child(7)) .wb-figure { padding: 6px 6px 4px; }
  .wb-strip:has(> :nth-child(7)) .wb-kind { letter-spacing: -0.25px; }
  .wb-strip:has(> :nth-child(7)) .wb-number { font-size: 13.5px; }
  .wb-strip:has(> :nth-child(7)) .wb-value { gap: 0 4px; }
}
@container wb-app (max-width: 1050px) { .wb-strip:has(> :nth-child(7)) { grid-template-columns: repeat(4, 1fr); } }
/* rows of one length: three and three, four and four */
@container wb-app (max-width: 1000px) {
  .wb-strip { grid-template-columns: repeat(3, 1fr); }
  .wb-strip:has(> :nth-child(7)) { grid-template-columns: repeat(4, 1fr); }
}
@container wb-app (max-width: 480px) {
  .wb-strip, .wb-strip:has(> :nth-child(7)) { grid-template-columns: repeat(auto-fit, minmax(min(164px, 100%), 1fr)); }
  .wb-strip .wb-figure[data-figure="overlap"] { grid-column: 1 / -1; }
}

.wb-plot:focus-visible { outline: 2px solid var(--wb-accent); outline-offset: -2px; }
/* the inspector */
.wb-inspector { max-height: 620px; overflow: auto; padding: 14px 16px; border: 1px solid var(--wb-rule); border-radius: 6px; background: var(--wb-paper); }
.wb-inspector .wb-eyebrow { color: var(--wb-muted); font-size: 11.5px; }
.wb-inspector h3 { margin: 0 0 8px; font: 600 14px/1.4 var(--wb-sans); color: var(--wb-ink); overflow-wrap: anywhere; }
.wb-inspector h4 { margin: 16px 0 6px; font: 600 12px var(--wb-sans); color: var(--wb-ink); }
.wb-inspector .wb-scope { display: flex; flex-wrap: wrap; align-items: center; gap: 4px; margin: 12px 0 0; }
.wb-inspector .wb-scope button { min-height: 24px; }
.wb-inspector .wb-scope > .wb-muted { flex: 1 0 100%; }
.wb-inspector p { margin: 0 0 8px; }
.wb-inspector .wb-source { margin: 0 0 10px; padding: 7px 10px; border-radius: 5px; background: var(--wb-band); overflow-wrap: anywhere; }
.wb-inspector .wb-source .wb-muted { font-size: 11.5px; }
.wb-inspector dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 2px 12px; margin: 0; padding: 0; }
.wb-inspector dl dt { float: none; width: auto; margin: 0; padding: 0; color: var(--wb-muted); font-weight: 400; white-space: nowrap; }
.wb-inspector dl dd { float: none; width: auto; margin: 0; padding: 0; overflow-wrap: anywhere; }
.wb-inspector .wb-option { padding: 8px 10px; border: 1px solid var(--wb-hair); border-radius: 6px; }
.wb-inspector .wb-option + .wb-option { margin-top: 6px; }
.wb-inspector .wb-current { border-color: var(--wb-accent); }
.wb-inspector .wb-choose { min-width: 96px; font-weight: 600; }
.wb-inspector .wb-current .wb-choose { padding-left: 0; border-color: transparent; background: none; color: var(--wb-accent); text-align: left; }
.wb-inspector .wb-tag { margin-left: 8px; font-weight: 400; font-size: 11.5px; color: var(--wb-muted); }
.wb-inspector .wb-means { margin-top: 4px; color: var(--wb-muted); font-size: 11.5px; }
.wb-inspector .wb-effect, .wb-inspector .wb-option .wb-reason, .wb-inspector .wb-moved { margin-top: 6px; }
.wb-inspector dl.wb-effect { grid-template-columns: minmax(0, 1fr) max-content; }
.wb-inspector dl.wb-effect dt { white-space: normal; }
.wb-inspector dl.wb-effect dd { text-align: right; white-space: nowrap; }
.wb-inspector .wb-moved { font-size: 12px; max-height: 110px; overflow: auto; }
.wb-inspector kbd { display: inline-block; padding: 1px 6px; border: 1px solid var(--wb-rule); border-radius: 4px; background: var(--wb-band); color: var(--wb-ink); font: 11px var(--wb-mono); box-shadow: none; }
.wb-inspector .wb-keys { gap: 6px 12px; }
.wb-inspector section { overflow-x: auto; }

/* tables, settings, text */
.wb-sites thead th { position: sticky; top: 0; background: var(--wb-paper); z-index: 1; }
.wb-sites tbody tr { cursor: pointer; }
.wb-sites tbody tr:hover { background: var(--wb-band); }
.wb-panel .wb-chosen, .wb-sites tbody tr.wb-chosen { background: var(--wb-hair); }
.wb-sites td { white-space: nowrap; }
.wb-sites td:nth-child(2), .wb-sites td:nth-child(3) { max-width: 340px; overflow: hidden; text-overflow: ellipsis; }
.wb-sites td select { height: 24px; font-size: 12px; }
.wb-sites .wb-out-recompute { color: var(--wb-again); }
.wb-sites .wb-out-offload { color: var(--wb-away); }
.wb-sites .wb-out-save { color: var(--wb-saved); }
.wb-settings .wb-setting { display: flex; flex-wrap: wrap; gap: 6px 20px; padding: 10px 0; border-bottom: 1px solid var(--wb-hair); }
.wb-settings .wb-setting-name { flex: 1 1 320px; }
.wb-settings .wb-setting-choice { flex: 1 1 320px; }
.wb-settings .wb-setting-choice input { width: 210px; margin-left: 8px; }
.wb-trace .wb-text { height: 320px; max-height: 320px; border: 1px solid var(--wb-hair); border-radius: 5px; }
.wb-trace .wb-lines { position: relative; font: 11.5px var(--wb-mono); }
.wb-trace .wb-line { position: absolute; left: 0; right: 0; height: 18px; display: grid; grid-template-columns: 52px minmax(var(--wb-text), 3fr) minmax(var(--wb-source), 2fr); gap: 12px; line-height: 18px; white-space: pre; }
.wb-trace .wb-line.wb-alone { grid-template-columns: 52px minmax(0, 1fr) 0; }
.wb-trace .wb-line code { overflow: hidden; text-overflow: ellipsis; line-height: 18px; }
.wb-trace .wb-can { cursor: pointer; }
.wb-trace .wb-can:hover { background: var(--wb-band); }
.wb-trace .wb-no { color: var(--wb-muted); text-align: right; font: 11px/18px var(--wb-mono); user-select: none; }

/* fusions, compile, passes, experiments, what is alive */
.wb-panel .wb-nowrap { white-space: nowrap; }
.wb-panel .wb-can { cursor: pointer; }
.wb-panel tbody tr.wb-can:hover { background: var(--wb-band); }
.wb-panel thead th { position: sticky; top: 0; background: var(--wb-paper); z-index: 1; white-space: nowrap; }
.wb-panel p { margin: 0 0 8px; }
.wb-panel input[type="checkbox"] { height: auto; margin: 0; accent-color: var(--wb-accent); }
.wb-panel .wb-tag { margin-left: 8px; font-weight: 400; font-size: 11px; color: var(--wb-muted); }
.wb-fusions .wb-share { display: inline-block; vertical-align: middle; width: 90px; height: 8px; margin-right: 6px; border-radius: 4px; background: var(--wb-hair); overflow: hidden; }
.wb-fusions td:last-child { min-width: 190px; }
.wb-fusions .wb-cards .wb-share { width: 56px; }
.wb-panel.wb-fusions .wb-cards tbody td.wb-wide:last-child { grid-column: 1 / -1; }
.wb-fusions .wb-share div { height: 100%; background: var(--wb-part-0); }
.wb-fusions .wb-link.wb-chosen { background: none; font-weight: 700; text-decoration: underline; }
.wb-compile .wb-compile-head { margin-bottom: 6px; }
.wb-compile .wb-legend { display: flex; flex-wrap: wrap; gap: 2px 16px; margin-bottom: 6px; color: var(--wb-muted); font-size: 11.5px; }
.wb-compile .wb-legend i { display: inline-block; width: 10px; height: 10px; margin-right: 6px; border-radius: 2px; vertical-align: -1px; }
.wb-compile .wb-fall { display: grid; grid-template-columns: minmax(120px, 210px) 72px minmax(0, 1fr); gap: 10px; align-items: center; height: 20px; border-bottom: 1px solid var(--wb-hair); }
.wb-compile .wb-fall-name { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.wb-compile .wb-fall-fusion .wb-fall-name { font-family: var(--wb-mono); font-size: 11.5px; }
.wb-compile .wb-fall-time { color: var(--wb-muted); text-align: right; font-size: 11.5px; }
.wb-compile .wb-fall-track { position: relative; height: 10px; overflow: hidden; }
.wb-compile .wb-fall-track i { position: absolute; top: 0; bottom: 0; border-radius: 1px; }
.wb-compile .wb-open .wb-fall-name { color: var(--wb-accent); font-weight: 600; }
.wb-passes .wb-steps { display: flex; flex-wrap: wrap; align-items: center; gap: 6px; margin-bottom: 8px; }
.wb-passes .wb-pressed, .wb-inspector .wb-scope .wb-pressed { border-color: var(--wb-accent); color: var(--wb-accent); font-weight: 600; }
.wb-passes .wb-check { display: inline-flex; align-items: center; gap: 6px; white-space: nowrap; }
.wb-passes .wb-text { height: 340px; max-height: 340px; border: 1px solid var(--wb-hair); border-radius: 5px; }
.wb-passes .wb-lines { position: relative; font: 11.5px var(--wb-mono); }
.wb-passes .wb-took { margin-left: 7px; color: var(--wb-muted); font-size: 11px; font-weight: 400; }
.wb-passes .wb-about { margin: 0 0 6px; font-size: 12px; }
.wb-passes .wb-line { position: absolute; left: 0; right: 0; height: 18px; display: grid; grid-template-columns: 28px minmax(0, 1fr); gap: 8px; line-height: 18px; white-space: pre; }
.wb-passes .wb-line code { line-height: 18px; overflow: hidden; text-overflow: ellipsis; }
.wb-passes .wb-no { color: var(--wb-muted); text-align: right; font: 11px/18px var(--wb-mono); user-select: none; }
.wb-passes .wb-new { background: var(--wb-new-paper); }
.wb-passes .wb-gone { background: var(--wb-warn-paper); }
.wb-experiments td { vertical-align: middle; }
.wb-experiments thead th, .wb-experiments thead th.wb-right { white-space: normal; vertical-align: bottom; }
.wb-experiments > .wb-scroll { container-type: inline-size; }
.wb-experiments td input[type="text"] { width: clamp(140px, 18cqw, 260px); text-overflow: ellipsis; padding: 0 6px; margin-left: -7px; height: 24px; border-color: transparent; background: transparent; }
.wb-experiments td input[type="text"]:is(:hover, :focus) { border-color: var(--wb-rule); }
.wb-experiments td input.wb-note { display: block; color: var(--wb-muted); font-size: 11.5px; }
.wb-experiments td button { height: 24px; }
.wb-experiments .wb-danger { border-color: var(--wb-bad); color: var(--wb-bad); }
.wb-experiments .wb-cut { max-width: clamp(90px, 13cqw, 320px); overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.wb-alive h4 { margin: 4px 0 2px; font: 600 12.5px var(--wb-sans); color: var(--wb-ink); }
.wb-alive .wb-scroll { max-height: 262px; margin-top: 6px; }
.wb-alive.wb-both .wb-scroll { max-height: 200px; }
.wb-alive .wb-scroll { container-type: inline-size; }
.wb-alive .wb-scroll { scrollbar-gutter: stable; }
.wb-alive.wb-both .wb-scroll { margin-bottom: 10px; }
.wb-alive td { white-space: nowrap; padding-top: 2px; padding-bottom: 2px; max-width: clamp(60px, (100cqw - 190px) / 2, 220px); overflow: hidden; text-overflow: ellipsis; }
.wb-alive td button.wb-link { display: block; max-width: 100%; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.wb-alive td.wb-made { min-width: clamp(60px, 100cqw - 272px, 190px); }
.wb-alive td:nth-child(3) { max-width: clamp(80px, 100cqw - 390px, 220px); }
.wb-alive td:last-child { width: 100%; max-width: 0; padding-right: 0; }
.wb-alive .wb-place { display: flex; min-width: 0; }
.wb-alive .wb-place span { min-width: 0; overflow: hidden; text-overflow: ellipsis; }
.wb-app .jupyter-widget-tab > .lm-TabBar .lm-TabBar-content { flex-wrap: wrap; padding-right: 36px; }
/* no height of its own: the button stands at the end of the row of tabs that follows, and its note over what they show */
.wb-app > .wb-help { position: relative; z-index: 3; height: 0; min-height: 0; margin-bottom: -10px; overflow: visible; }
.wb-help .wb-help-button { position: absolute; right: 0; top: 0; height: 24px; padding: 0 10px; color: var(--wb-muted); font-size: 12px; white-space: nowrap; }
.wb-help .wb-help-words { display: none; }
@container wb-app (min-width: 1220px) {
  .wb-help .wb-help-words { display: inline; }
  .wb-help .wb-help-sign { display: none; }
}
.wb-help .wb-note-box { position: absolute; right: 0; top: 28px; width: min(480px, 100%); max-height: 240px; box-sizing: border-box; overflow: auto; padding: 10px 14px 4px; border: 1px solid var(--wb-rule); border-radius: 6px; background: var(--wb-paper); box-shadow: 0 4px 18px rgb(0 0 0 / 18%); }
.wb-help .wb-note-box p { margin: 4px 0 6px; }
.wb-app .jupyter-widget-tab > .lm-TabBar .lm-TabBar-tab { flex: 0 0 auto; min-width: 84px; padding: 0 12px; }
@container wb-app (max-width: 1120px) {
  .wb-app .jupyter-widget-tab > .lm-TabBar .lm-TabBar-tab { min-width: 0; padding: 0 11px; }
}
.wb-app .jupyter-widget-tab > .widget-tab-contents { background: var(--wb-paper); }
.wb-panel .wb-views { display: flex; gap: 4px; margin-bottom: 6px; }
.wb-panel .wb-views button[aria-pressed="true"] { border-color: var(--wb-accent); color: var(--wb-accent); }
.wb-timeline .wb-timeline-box { position: relative; }
.wb-timeline canvas { display: block; width: 100%; touch-action: none; outline: none; }
.wb-timeline canvas:focus-visible { outline: 1px solid var(--wb-accent); outline-offset: 2px; }
.wb-timeline .wb-bar-tip { position: absolute; z-index: 2; max-width: 320px; padding: 5px 9px; pointer-events: none; border: 1px solid var(--wb-rule); border-radius: 5px; background: var(--wb-paper); box-shadow: 0 3px 12px rgb(0 0 0 / 18%); font-size: 11.5px; }

/* what is worth it */
.wb-unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.wb-panel .wb-check { display: inline-flex; align-items: center; gap: 6px; min-height: 24px; white-space: nowrap; }
.wb-worth .wb-row { flex-wrap: wrap; }
.wb-worth .wb-count { flex: 1 1 260px; min-width: 0; }
.wb-panel button.wb-sort { height: 24px; padding: 0 2px; border: 0; background: none; color: inherit; font: inherit; }
.wb-worth :is(td, th) { vertical-align: middle; }
.wb-worth .wb-name { display: flex; gap: 5px; align-items: baseline; max-width: clamp(240px, 32cqw, 560px); white-space: nowrap; }
.wb-worth .wb-name .wb-link { flex: 0 1 auto; min-width: 0; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.wb-worth .wb-gain { white-space: nowrap; width: 128px; text-align: right; }
.wb-worth .wb-gain i { display: block; height: 4px; margin: 2px 0 0 auto; border-radius: 2px; }
.wb-worth .wb-less { background: var(--wb-good); }
.wb-worth .wb-more { background: var(--wb-bad); }
.wb-worth td:nth-child(5) code { display: block; max-width: clamp(240px, 40cqw - 160px, 480px); overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.wb-worth td:last-child { width: 1px; padding-right: 0; }

/* the outline */
.wb-outline .wb-act { flex-wrap: wrap; min-height: 28px; overflow: hidden; }
.wb-outline .wb-act-name { flex: 0 1 auto; min-width: 0; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.wb-outline .wb-tree-row { display: grid; grid-template-columns: minmax(160px, 1fr) 92px 92px 116px 76px; gap: 0 10px; align-items: center; min-height: 26px; border-bottom: 1px solid var(--wb-hair); font-size: 12px; }
.wb-outline .wb-tree-head { position: sticky; top: 0; z-index: 1; background: var(--wb-paper); color: var(--wb-muted); }
.wb-outline .wb-tree-row:focus-visible { outline: 2px solid var(--wb-accent); outline-offset: -2px; }
.wb-outline .wb-can:hover { background: var(--wb-band); }
.wb-outline .wb-tree-name { min-width: 0; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; font-family: var(--wb-mono); font-size: 11.5px; }
.wb-outline .wb-tree-module .wb-tree-name { font-weight: 600; }
.wb-outline .wb-tree-statement .wb-tree-name { color: var(--wb-muted); }
.wb-outline .wb-twist { display: inline-block; width: 24px; line-height: 24px; text-align: center; color: var(--wb-muted); }
.wb-outline .wb-num { text-align: right; white-space: nowrap; }
.wb-outline .wb-num i { display: block; height: 3px; margin: 1px 0 0 auto; border-radius: 2px; background: var(--wb-part-stage); }
@container wb-app (max-width: 640px) {
  .wb-outline .wb-tree-row { grid-template-columns: minmax(90px, 1fr) 54px 54px 56px 50px; gap: 0 4px; font-size: 11.5px; }
  .wb-outline .wb-tree-head .wb-sort { height: auto; min-height: 24px; white-space: normal; text-align: inherit; font-size: 11px; line-height: 13px; }
  .wb-outline .wb-num i { max-width: 100%; }
}
.wb-outline.wb-beside { display: none; container-type: inline-size; }
.wb-outline.wb-beside > button.wb-beside-bar { flex: 1 1 0; width: 100%; padding: 8px 0; border: 0; background: none; color: var(--wb-muted); font-size: 12px; text-align: left; writing-mode: vertical-rl; }
.wb-outline.wb-beside > button.wb-beside-bar:focus-visible { outline-offset: -2px; }
.wb-outline.wb-beside.wb-open > button.wb-beside-bar { flex: none; height: 28px; padding: 0 10px; writing-mode: horizontal-tb; color: var(--wb-ink); font-weight: 600; }
.wb-outline.wb-beside:not(.wb-open) > :not(.wb-beside-bar) { display: none; }
.wb-outline.wb-beside > .wb-edge { position: absolute; z-index: 2; inset: 0 0 0 auto; width: 7px; cursor: col-resize; touch-action: none; }
.wb-outline.wb-beside > .wb-edge:is(:hover, :focus-visible) { background: var(--wb-accent); outline: none; }
.wb-outline.wb-beside .wb-act { flex: none; flex-wrap: wrap; gap: 4px; margin: 0; padding: 0 10px 6px; min-height: 0; max-height: 82px; overflow: auto; }
.wb-outline.wb-beside .wb-act-name { flex: 0 1 100%; }
.wb-outline.wb-beside .wb-act button { height: 24px; padding: 0 7px; font-size: 11.5px; }
.wb-outline.wb-beside .wb-tree { flex: 1 1 0; min-height: 0; max-height: none; padding: 0 6px 0 4px; }
.wb-outline.wb-beside .wb-tree-row { grid-template-columns: minmax(100px, 1fr) 54px 54px 52px 48px; gap: 0 4px; font-size: 11.5px; }
.wb-outline.wb-beside .wb-tree-head .wb-sort { height: auto; min-height: 24px; white-space: normal; text-align: inherit; font-size: 11px; line-height: 13px; }
.wb-outline.wb-beside .wb-tree-name { font-size: 11px; }
.wb-outline.wb-beside .wb-num i { max-width: 100%; }
@container (max-width: 345px) {
  .wb-outline.wb-beside .wb-tree-row { grid-template-columns: minmax(80px, 1fr) 54px 54px; }
  .wb-outline.wb-beside .wb-tree-row > :nth-child(n + 4) { display: none; }
}
.wb-inspector .wb-code pre { max-height: 320px; overflow: auto; margin: 0; padding: 8px 10px; border-radius: 5px; background: var(--wb-band); color: var(--wb-ink); font: 11.5px/1.45 var(--wb-mono); white-space: pre; }
.wb-inspector .wb-edges { margin: 0; padding: 0; list-style: none; }
.wb-inspector .wb-edges li { padding: 4px 0; border-bottom: 1px solid var(--wb-hair); }
.wb-passes .wb-row { flex-wrap: wrap; }
.wb-passes .wb-beside { min-width: 100%; }
.wb-passes .wb-beside .wb-line { grid-template-columns: 20px minmax(0, 1fr) 20px minmax(0, 1fr); }
.wb-passes .wb-here { box-shadow: inset 3px 0 0 var(--wb-accent); }
`,""]),i.d(t,{},{A:r})},13(e,t,i){var a=i(11),n=i.n(a),o=i(12),r=(i.n(o))()(n());r.push([e.id,`/* A saved plan: as high as its content in a notebook's output, as high as its tab in the file viewer. */
.wb-saved { box-sizing: border-box; padding: 8px 12px; min-width: 0; font: 12.5px/1.5 var(--wb-sans); }
.jp-MimeDocument .wb-saved { display: flex; flex-direction: column; height: 100%; overflow: auto; }
.jp-MimeDocument .wb-saved > * { flex: none; }
.jp-MimeDocument .wb-saved > .wb-graph { flex: 1 0 320px; height: auto !important; }
.wb-saved-heading { display: flex; flex-wrap: wrap; align-items: baseline; gap: 0 14px; margin-bottom: 6px; }
.wb-saved-heading strong { font-size: 15px; }
.wb-saved-choices { margin: 8px 0; }
.wb-saved-choices ul { max-height: 140px; margin: 2px 0 0; padding-left: 18px; overflow: auto; }
.wb-saved-choices summary { min-height: 24px; cursor: pointer; }
/* of one height whatever is selected, so that the graph above stays where it is */
.wb-saved-site { height: 96px; padding-top: 6px; overflow: auto; }
`,""]),i.d(t,{},{A:r})},12(e){e.exports=function(e){var t=[];return t.toString=function(){return this.map(function(t){var i="",a=void 0!==t[5];return t[4]&&(i+="@supports (".concat(t[4],") {")),t[2]&&(i+="@media ".concat(t[2]," {")),a&&(i+="@layer".concat(t[5].length>0?" ".concat(t[5]):""," {")),i+=e(t),a&&(i+="}"),t[2]&&(i+="}"),t[4]&&(i+="}"),i}).join("")},t.i=function(e,i,a,n,o){"string"==typeof e&&(e=[[null,e,void 0]]);var r={};if(a)for(var s=0;s<this.length;s++){var l=this[s][0];null!=l&&(r[l]=!0)}for(var d=0;d<e.length;d++){var h=[].concat(e[d]);a&&r[h[0]]||(void 0!==o&&(void 0===h[5]||(h[1]="@layer".concat(h[5].length>0?" ".concat(h[5]):""," {").concat(h[1],"}")),h[5]=o),i&&(h[2]&&(h[1]="@media ".concat(h[2]," {").concat(h[1],"}")),h[2]=i),n&&(h[4]?(h[1]="@supports (".concat(h[4],") {").concat(h[1],"}"),h[4]=n):h[4]="".concat(n)),t.push(h))}},t}},11(e){e.exports=function(e){return e[1]}},4(e){var t=[];function i(e){for(var i=-1,a=0;a<t.length;a++)if(t[a].identifier===e){i=a;break}return i}function a(e,a){for(var n={},o=[],r=0;r<e.length;r++){var s=e[r],l=a.base?s[0]+a.base:s[0],d=n[l]||0,h="".concat(l," ").concat(d);n[l]=d+1;var p=i(h),w={css:s[1],media:s[2],sourceMap:s[3],supports:s[4],layer:s[5]};if(-1!==p)t[p].references++,t[p].updater(w);else{var b=function(e,t){var i=t.domAPI(t);return i.update(e),function(t){t?(t.css!==e.css||t.media!==e.media||t.sourceMap!==e.sourceMap||t.supports!==e.supports||t.layer!==e.layer)&&i.update(e=t):i.remove()}}(w,a);a.byIndex=r,t.splice(r,0,{identifier:h,updater:b,references:1})}o.push(h)}return o}e.exports=function(e,n){var o=a(e=e||[],n=n||{});return function(e){e=e||[];for(var r=0;r<o.length;r++){var s=i(o[r]);t[s].references--}for(var l=a(e,n),d=0;d<o.length;d++){var h=i(o[d]);0===t[h].references&&(t[h].updater(),t.splice(h,1))}o=l}}},6(e){var t={};e.exports=function(e,i){var a=function(e){if(void 0===t[e]){var i=document.querySelector(e);if(window.HTMLIFrameElement&&i instanceof window.HTMLIFrameElement)try{i=i.contentDocument.head}catch(e){i=null}t[e]=i}return t[e]}(e);if(!a)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");a.appendChild(i)}},8(e){e.exports=function(e){var t=document.createElement("style");return e.setAttributes(t,e.attributes),e.insert(t,e.options),t}},7(e,t,i){e.exports=function(e){var t=i.nc;t&&e.setAttribute("nonce",t)}},5(e){e.exports=function(e){if("u"<typeof document)return{update:function(){},remove:function(){}};var t=e.insertStyleElement(e);return{update:function(i){var a,n,o;a="",i.supports&&(a+="@supports (".concat(i.supports,") {")),i.media&&(a+="@media ".concat(i.media," {")),(n=void 0!==i.layer)&&(a+="@layer".concat(i.layer.length>0?" ".concat(i.layer):""," {")),a+=i.css,n&&(a+="}"),i.media&&(a+="}"),i.supports&&(a+="}"),(o=i.sourceMap)&&"u">typeof btoa&&(a+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(o))))," */")),e.styleTagTransform(a,t,e.options)},remove:function(){var e;null===(e=t).parentNode||e.parentNode.removeChild(e)}}}},9(e){e.exports=function(e,t){if(t.styleSheet)t.styleSheet.cssText=e;else{for(;t.firstChild;)t.removeChild(t.firstChild);t.appendChild(document.createTextNode(e))}}},2(e,t,i){i.r(t),i.d(t,{default:()=>N});var a=i(3),n=i(4),o=i.n(n),r=i(5),s=i.n(r),l=i(6),d=i.n(l),h=i(7),p=i.n(h),w=i(8),b=i.n(w),c=i(9),f=i.n(c),u=i(10),x={};x.styleTagTransform=f(),x.setAttributes=p(),x.insert=d().bind(null,"head"),x.domAPI=s(),x.insertStyleElement=b(),o()(u.A,x),u.A&&u.A.locals&&u.A.locals;var m=i(13),g={};g.styleTagTransform=f(),g.setAttributes=p(),g.insert=d().bind(null,"head"),g.domAPI=s(),g.insertStyleElement=b(),o()(m.A,g),m.A&&m.A.locals&&m.A.locals;let v="application/vnd.thunder-workbench.plan+json";function y(e,t={},...i){let a=document.createElement(e);for(let[e,i]of Object.entries(t))null!=i&&!1!==i&&(e.startsWith("on")?a.addEventListener(e.slice(2),i):a.setAttribute(e,!0===i?"":i));return a.append(...i.flat(1/0).filter(e=>null!=e&&!1!==e)),a}function k(e,t){e.classList.add("wb-panel",`wb-${t}`),e.dataset.lmSuppressShortcuts="true"}let M=[[],[6,3],[2,3],[9,3,2,3]],z='"JetBrains Mono", "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace',S='system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial, sans-serif',T={paper:"#ffffff",ink:"#1f2328",muted:"#59636e",hair:"#e6e9ed",rule:"#d0d7de",band:"#f6f8fa",fills:["#e9f1fb","#fcefe6"],strokes:["#bfd3ec","#eccfb9"],texts:["#16406f","#703510"],soft:["#4a6484","#855a3d"],fusion:"#8b6fd0",fusionFill:"rgba(124, 92, 200, 0.07)",fusionText:"#5b3aa8",arcs:["#267044","#b04a00","#0b6b85"],select:"#0b57d0",found:"#ffe58a"},A={paper:"#111111",ink:"#e8eaed",muted:"#a3acb7",hair:"#25282c",rule:"#3a4047",band:"#191c20",fills:["#15273c","#33211a"],strokes:["#2f5078","#6d4632"],texts:["#c4dcf8","#f6d3bb"],soft:["#8fabcb","#cfa58b"],fusion:"#9b86e0",fusionFill:"rgba(155, 134, 224, 0.10)",fusionText:"#c9bcfa",arcs:["#63c48a","#f2a952","#54c6dc"],select:"#79aeff",found:"#6b5600"},$={f:Float32Array,d:Float64Array,i:Int32Array,h:Uint16Array,b:Uint8Array};function P(e,t,i){let a=0,n=e.length;for(;a<n;){let o=a+n>>1;t.y[e[o]]+t.height[e[o]]<i?a=o+1:n=o}return a}function C({places:e,pen:t},i,a=e.scene.arc.style[i]){return 1===e.scene.arc.shape[i]&&0===a?t.ink.fusion:t.ink.arcs[a]}function O(e,[t,i,a,n,o,r,s,l],d=!1){d||e.context.beginPath(),e.context.moveTo(t,i),e.context.bezierCurveTo(a,n,o,r,s,l)}function j({places:e,pen:t},i,a,n){let o=t.context,{node:r}=e.scene,[s,l]=e.columns().sides[r.side[i]],d=Math.max(2,r.height[i]*e.zoom),h=e.y(r.y[i]);h>e.heightPx||h+d<30||(o.beginPath(),o.roundRect(s-1,h-1,l-s+2,d+2,Math.min(4,d/2)),o.lineWidth=n,o.strokeStyle=a,o.stroke())}let R=e=>`<svg width="46" height="18" viewBox="0 0 46 18" aria-hidden="true">${e}</svg>`;class L{constructor(e,t,i){for(let[i,a]of(this.state=e,this.actions=t,this.grip=0,this.canvas=document.createElement("canvas"),this.canvas.className="wb-map",this.canvas.tabIndex=0,Object.entries({role:"scrollbar","aria-label":"Part of the graph in view","aria-orientation":"vertical","aria-valuemin":"0","aria-valuemax":"100"})))this.canvas.setAttribute(i,a);this.canvas.title="The whole graph: drag the part in view, or use the arrow keys",e.pen.context.canvas.after(this.canvas),this.whole=document.createElement("canvas"),this.drawnOf=null,this.wide=0;let a=(e,t)=>this.canvas.addEventListener(e,t,{signal:i});for(let e of(a("pointerdown",e=>this.onDown(e)),a("pointermove",e=>{this.canvas.hasPointerCapture(e.pointerId)&&this.moveTo(e.offsetY-this.grip)}),a("keydown",e=>this.onKey(e)),["focus","blur"]))a(e,t.redraw)}get scale(){return Math.min(1,(this.height-2)/Math.max(1,this.state.places.scene.height-30))}get height(){return this.state.places.heightPx-30}window(){let{state:{places:e},scale:t}=this,i=Math.max(0,(e.worldY(30)-30)*t);return{from:i,tall:Math.max(6,Math.min(e.scene.height-30,e.worldY(e.heightPx)-30)*t-i)}}moveTo(e){this.actions.scrollTo(e/this.scale*this.state.places.zoom)}onDown(e){e.preventDefault(),this.canvas.focus({preventScroll:!0}),this.canvas.setPointerCapture(e.pointerId);let{from:t,tall:i}=this.window(),a=e.offsetY>=t&&e.offsetY<=t+i;this.grip=a?e.offsetY-t:i/2,this.moveTo(e.offsetY-this.grip)}onKey(e){let{actions:t}=this,i=(this.state.places.heightPx-30)*.9,a={ArrowDown:()=>t.scroll(60),ArrowUp:()=>t.scroll(-60),PageDown:()=>t.scroll(i),PageUp:()=>t.scroll(-i),Home:()=>t.scroll(-1/0),End:()=>t.scroll(1/0),"+":()=>t.tool("in"),"=":()=>t.tool("in"),"-":()=>t.tool("out")}[e.key];!a||e.ctrlKey||e.metaKey||e.altKey||(e.preventDefault(),e.stopPropagation(),t.moved(),a())}paintWhole(e,t){let{state:{places:i,pen:a},whole:n,scale:o}=this,r=n.getContext("2d"),{node:s,arc:l,sections:d}=i.scene,h=a.ink;n.width=e*t,n.height=this.height*t,r.setTransform(t,0,0,t,0,0);let p=e=>(e-30)*o,w=(e-8)*.36,b=[4,e-4-w];for(let t of d)r.fillStyle=h.rule,r.fillRect(0,p(t.y),e,1);for(let e=0;e<s.y.length;e++)3&s.flags[e]||(r.fillStyle=h.strokes[s.side[e]],r.fillRect(b[s.side[e]],p(s.y[e]),w,Math.max(.75,s.height[e]*o-.25)));r.lineWidth=.75;for(let e=0;e<l.y0.length;e++)0===l.shape[e]&&(r.strokeStyle=h.arcs[l.style[e]],r.beginPath(),r.moveTo(b[0]+w,p(l.y0[e])),r.lineTo(b[1],p(l.y1[e])),r.stroke())}draw(){let{places:e,pen:t,ratio:i}=this.state,a=this.wide=this.canvas.clientWidth||this.wide;if(!a||!e.scene||this.height<=0)return;let n=[e.scene,t.ink,a,this.height,i];(!this.drawnOf||n.some((e,t)=>e!==this.drawnOf[t]))&&(this.drawnOf=n,this.canvas.width=a*i,this.canvas.height=this.height*i,this.paintWhole(a,i));let o=this.canvas.getContext("2d",{alpha:!1});o.setTransform(1,0,0,1,0,0),o.fillStyle=t.paper,o.fillRect(0,0,this.canvas.width,this.canvas.height),o.drawImage(this.whole,0,0),o.setTransform(i,0,0,i,0,0),this.drawChosen(o,a);let{from:r,tall:s}=this.window(),l=Math.max(1,(e.scene.height-30)*this.scale),d=s>=l-1;o.fillStyle=t.ink.select,o.globalAlpha=.12*!d,o.fillRect(0,r,a,s),o.globalAlpha=1,o.strokeStyle=document.activeElement===this.canvas?t.ink.select:t.ink.muted,o.lineWidth=document.activeElement===this.canvas?2:1,o.strokeRect(1,r+1,a-2,Math.min(s,this.height-r)-2);let h=d?0:Math.round(100*r/Math.max(1,l-s));this.canvas.setAttribute("aria-valuenow",String(Math.max(0,Math.min(100,h)))),this.canvas.setAttribute("aria-valuetext",d?"all of it":`${Math.round(100*s/l)} % of it, from ${Math.round(100*r/l)} %`)}drawChosen(e,t){let{state:{places:i,pen:a},scale:n}=this,{node:o,at:r}=i.scene,s=this.state.chosenPlace(),l=(i,a)=>{e.fillStyle=a,e.fillRect(0,(i-30)*n-1,t,2.5)};for(let e of i.matches??[])l(o.y[e]+o.height[e]/2,a.ink.found);s&&r&&l("arc"===s.kind?i.scene.arc.y0[s.index]:o.y[s.index]+o.height[s.index]/2,a.ink.select)}}class D{scene=null;zoom=1;left=0;top=0;width=0;heightPx=0;matches=null;placed=null;get scaleX(){return Math.max(1,this.zoom)}columns(){let e=[this.scene,this.zoom,this.left,this.width];return(!this.placed||e.some((e,t)=>e!==this.placed?.of[t]))&&(this.placed={of:e,columns:this.placeColumns()}),this.placed.columns}placeColumns(){let e=44*!!this.scene?.bar.side.length,t=Math.max(this.width,330+2*e),i=t-2*e,a=i-24-18,n=a*(.16+(.27-.16)*Math.min(1,(i-330)/310)),o=.27*a,r=e=>e*this.scaleX-this.left,s=12+n+18+e,l=t-12-e-o;return{label:[r(12),r(12+n)],sides:[[r(s),r(s+o)],[r(l),r(l+o)]],width:t*this.scaleX}}y(e){return 30+(e-30)*this.zoom-this.top}worldY(e){return(e+this.top-30)/this.zoom+30}clamp(){if(!this.scene)return;let e=30+(this.scene.height-30)*this.zoom+14;this.top=Math.max(0,Math.min(this.top,e-this.heightPx)),this.left=Math.max(0,Math.min(this.left,this.columns().width-this.width))}lane(){let{sides:e}=this.columns(),t=(e[0][1]+e[1][0])/2,i=33*this.scaleX;return[t-i,t+i]}away(e){return 2===this.scene.arc.style[e]&&0===this.scene.arc.shape[e]}barAt(e){let{bar:t}=this.scene,{sides:i}=this.columns(),a=t.side[e],n=(8+8*t.column[e])*this.scaleX,o=e=>Math.max(this.y(e),36-this.top);return{x:0===a?i[0][0]-n:i[1][1]+n,issue:o(t.y0[e]),wait:o(t.y1[e])}}barHit(e,t){let{bar:i,strings:a}=this.scene,n=null,o=5;for(let r=0;r<i.side.length;r++){let s=this.barAt(r),l=Math.min(s.issue,s.wait)-5,d=Math.max(s.issue,s.wait)+5;if(t<l||t>d||Math.abs(e-s.x)>=o)continue;o=Math.abs(e-s.x);let h=Math.abs(t-s.issue)<Math.abs(t-s.wait)?"issue":"wait";n={kind:"bar",index:r,end:h,id:a[i[h][r]]}}return n}nodeNear(e,t){let{node:i,columns:a}=this.scene,n=-1,o=1/0;for(let r of a[e]){let a=Math.abs(this.y(0===e?i.y[r]:i.y[r]+i.height[r])-t);a<o&&([n,o]=[r,a])}return n}markBox(e){let{node:t,mark:i,marksOf:a}=this.scene,n=i.node[e],o=Math.max(1,this.zoom),{right:r,width:s}=a.get(n).find(t=>t.index===e),[,l]=this.columns().sides[t.side[n]],d=13*o;return{left:l-(r+s)*o,top:this.y(t.y[n])+Math.min(17,t.height[n])*this.zoom/2-d/2,width:s*o,height:d}}curve(e){let{arc:t}=this.scene,{sides:i}=this.columns(),a=this.y(t.y0[e]),n=this.y(t.y1[e]);if(this.away(e)){let e=i[0][1],[t]=this.lane(),n=(t-e)*.6;return[e,a,e+n,a,t-n,a,t,a]}if(1===t.shape[e]){let o=0===t.side[e]?1:-1,r=i[t.side[e]][+(0===t.side[e])],s=Math.min(46,20+.12*Math.abs(n-a))*o;return[r,a,r+s,a,r+s,n,r,n]}let o=i[0][1],r=i[1][0],s=(r-o)*.5;return[o,a,o+s,a,r-s,n,r,n]}wayBack(e){let{arc:t}=this.scene,{sides:i}=this.columns(),[,a]=this.lane(),n=this.y(t.y0[e]),o=this.y(t.y1[e]),r=i[1][0],s=(r-a)*.6;return[a,n,a+s,n,r-s,o,r,o]}locate(e){let t=this.scene?.at.get(e);if(!t)return null;let{node:i}=this.scene;if("node"===t.kind){let[e,a]=this.columns().sides[i.side[t.index]];return{x:(e+a)/2,y:this.y(i.y[t.index]+i.height[t.index]/2)}}if("mark"===t.kind){let e=this.markBox(t.index);return{x:e.left+e.width/2,y:e.top+e.height/2}}if("bar"===t.kind){let{x:e,issue:i,wait:a}=this.barAt(t.index);return{x:e,y:(i+a)/2}}return this.handle(t.index)}handle(e){let[t,i]=this.curve(e);if(this.away(e)){let[e,t]=this.lane();return{x:(e+t)/2,y:i}}return 1!==this.scene.arc.shape[e]?{x:t+32,y:i}:{x:t+(1===this.scene.arc.side[e]?-9:9),y:i}}get far(){return!this.labelled()&&!this.matches&&this.scene.module.y.length>0}bands(){let{module:e}=this.scene,t=e.y.length,i=[],a=t=>e.height[t]*this.zoom;for(let n=0;n<t;){let o=n+1,r=0;for(;o<t&&e.depth[o]>e.depth[n];o++)e.depth[o]===e.depth[n]+1&&a(o)>=11&&(r+=a(o));a(n)>=11&&r<.5*a(n)?(i.push(n),n=o):n++}return i}hit(e,t){if(!this.scene||t<30||t>this.heightPx)return null;let{node:i,arc:a,sections:n,strings:o}=this.scene,{sides:r}=this.columns();for(let[e,i]of n.entries()){let a=this.y(i.y);if(t>=a&&t<a+Math.max(14,26*this.zoom))return{kind:"section",index:e,id:`fold:${i.stem}`}}let s=this.barHit(e,t);if(s)return s;let l=this.worldY(t);if(this.far&&(e<=r[0][1]||e>=r[1][0])){let{module:e}=this.scene,t=this.bands().find(t=>e.y[t]<=l&&l<e.y[t]+e.height[t]);if(void 0!==t)return{kind:"module",index:t,id:`module:${t}`}}for(let t of[0,1]){if(e<r[t][0]||e>r[t][1])continue;let a=this.scene.columns[t],n=a[P(a,i,l)];if(void 0!==n&&i.y[n]<=l&&this.labelled())for(let{index:t}of this.scene.marksOf.get(n)??[]){let i=this.markBox(t);if(e>=i.left-1&&e<=i.left+i.width+1)return{kind:"mark",index:t,id:o[this.scene.mark.id[t]]}}if(void 0!==n&&i.y[n]<=l)return{kind:"node",index:n,id:o[i.id[n]]};return null}let d=null,h=6;for(let i=0;i<a.y0.length;i++){let n=Math.min(this.y(a.y0[i]),this.y(a.y1[i]))-10,o=Math.max(this.y(a.y0[i]),this.y(a.y1[i]))+10;if(t<n||t>o)continue;let r=this.handle(i),s=1===a.shape[i]?6:30,l=this.labelled()&&Math.abs(e-r.x)<s&&Math.abs(t-r.y)<8*Math.max(1,this.zoom)?-1:Math.min(B(this.curve(i),e,t),this.away(i)?B(this.wayBack(i),e,t):1/0);l<h&&([d,h]=[i,l])}return null===d?null:{kind:"arc",index:d,id:o[a.id[d]]}}labelled(){return 20*this.zoom>=12}}function B([e,t,i,a,n,o,r,s],l,d){let h=1/0,p=e,w=t;for(let b=1;b<=24;b++){let c=b/24,f=1-c,u=f*f*f*e+3*f*f*c*i+3*f*c*c*n+c*c*c*r,x=f*f*f*t+3*f*f*c*a+3*f*c*c*o+c*c*c*s,m=u-p,g=x-w,v=m*m+g*g||1,y=Math.max(0,Math.min(1,((l-p)*m+(d-w)*g)/v));h=Math.min(h,Math.hypot(l-p-y*m,d-w-y*g)),[p,w]=[u,x]}return h}class E{constructor(e){this.context=e,this.ink=T,this.paper=T.paper,this.texts=new Map,this.fontKey=""}font(e,t=z,i=400){this.context.font=`${i} ${e}px ${t}`,this.fontKey=`${i} ${e} ${t===z?"m":"s"}`}shorten(e,t){let i=`${this.fontKey}|${Math.floor(t)}|${e}`,a=this.texts.get(i);if(void 0!==a)return a;if(a=e,this.context.measureText(e).width>t){let i=0,n=e.length;for(;i<n;){let a=i+n+1>>1;this.context.measureText(`${e.slice(0,a).trimEnd()}…`).width<=t?i=a:n=a-1}a=i?`${e.slice(0,i).trimEnd()}…`:""}return this.texts.size>2e4&&this.texts.clear(),this.texts.set(i,a),a}}class F{constructor(e,t){this.model=e,this.places=new D,this.pen=new E(t.getContext("2d",{alpha:!1})),this.readOnly=!0===e.get("read_only"),this.ratio=1,this.hover=null,this.drag=null,this.asked=new Map}get selected(){return this.model.get("selected")}chosenPlace(){let e=this.places.scene.at.get(this.selected);return e?.kind==="bar"?{kind:"node",index:this.places.scene.bar.issue_node[e.index]}:e?.kind==="mark"?{kind:"node",index:this.places.scene.mark.node[e.index]}:e}}function W(e,t){let{node:i,arc:a,mark:n,module:o,strings:r}=e,s=[];if("module"===t.kind){let e=t.index,i=r[o.saved[e]];s.push(["b",r[o.scope[e]]],["",`${o.forward[e]} statements in the forward, ${o.backward[e]} in the backward`]),s.push(["",`↓ ${r[o.forward_ops[e]]}`],["",o.backward[e]?`↑ ${r[o.backward_ops[e]]}`:""]),s.push(["",i&&`${i} saved for the backward`],["i","Click to zoom in"])}else if("node"===t.kind){let e=t.index,a=i.flags[e];s.push(["b",r[i.full[e]]],["",r[i.detail[e]]]);let n=[i.bytes[e]?function(e){let t=["B","KiB","MiB","GiB","TiB"],i=Math.abs(e),a=0;for(;i>=999.5&&a<t.length-1;)i/=1024,a++;let n=0===a||i>=100?0:i>=10?1:2;return`${e<0?"−":""}${i.toFixed(n)} ${t[a]}`}(i.bytes[e]):"",r[i.executor[e]],4&a?"random":"",16&a?"view, no memory of its own":"",8&a?"computed again in the backward":"",32&a?"collective":""];s.push(["",n.filter(Boolean).join(" \xb7 ")],["i",r[i.about[e]]])}else{let i="mark"===t.kind?n.tip:"bar"===t.kind?e.bar.tip:a.tip;s.push(...r[i[t.index]].split("\n").map((e,t)=>[t?"":"b",e]))}return s}class _{constructor(e,t){let i,a;this.model=e,this.el=t,this.refitUntil=0,this.atFit=!0,this.pending=0,this.drawn=0,this.preview=(i=0,a="null",t=>{clearTimeout(i);let n=JSON.stringify(t);i=window.setTimeout(()=>{n!==a&&(a=n,e.send({type:"preview",...t}))},t?120:300)}),this.received=0,this.coming=!1,this.wanted="",this.build(),this.paintTheme(),this.receive(e.get("data"))}async receive(e){let t=++this.received;if(e?.packed){if("u"<typeof DecompressionStream)return void this.model.send({type:"plain"});if(this.coming=!0,e=await async function(e){let t=new Blob([e]).stream().pipeThrough(new DecompressionStream("deflate")),i=await new Response(t).arrayBuffer(),a=new DataView(i).getUint32(0,!0),n=JSON.parse(new TextDecoder().decode(new Uint8Array(i,4,a))),o=new Uint8Array(i,4+a,n.strings);n.strings=new TextDecoder().decode(o).split("\0");let r=4+a+o.length;for(let e of Object.values(n.tables))for(let t of Object.values(e)){let e=t[1];t[1]=new DataView(i,r,e),r+=e}return n}(e.packed),t!==this.received)return}this.coming=!1,this.take(function(e){let t;if(!e?.strings)return null;let i={strings:e.strings,sections:e.sections,height:e.height,views:e.views??{count:0,hidden:0}};for(let[t,a]of Object.entries(e.tables))for(let[e,[n,o]]of(i[t]={},Object.entries(a)))i[t][e]=function(e,t){let{buffer:i,byteOffset:a=0,byteLength:n}=t instanceof ArrayBuffer?{buffer:t,byteLength:t.byteLength}:t;return new e(i.slice(a,a+n))}($[n],o);i.module??={y:[],height:[],depth:[]};let{node:a,arc:n}=i;i.at=new Map;for(let e=0;e<a.id.length;e++)i.at.set(i.strings[a.id[e]],{kind:"node",index:e});for(let e=0;e<n.id.length;e++)i.at.set(i.strings[n.id[e]],{kind:"arc",index:e});for(let e=0;e<i.alias.id.length;e++){let t=i.alias.mark[e];i.at.set(i.strings[i.alias.id[e]],t<0?{kind:"arc",index:i.alias.arc[e]}:{kind:"mark",index:t})}i.marksOf=new Map;for(let e=0;e<i.mark.id.length;e++){i.at.set(i.strings[i.mark.id[e]],{kind:"mark",index:e});let t=i.mark.node[e],a=i.marksOf.get(t)??[],n=a.length?a.at(-1).right+a.at(-1).width+3:3;i.marksOf.set(t,[...a,{index:e,right:n,width:5.8*i.strings[i.mark.text[e]].length+11}])}i.endOf=new Map;for(let e=0;e<i.bar.side.length;e++)for(let t of["issue","wait"]){let a=i.strings[i.bar[t][e]];i.endOf.set(a,{index:e,end:t}),i.at.has(a)||i.at.set(a,{kind:"bar",index:e})}i.lane=n.style.includes(2),i.columns=[0,1].map(e=>Array.from(a.y.keys()).filter(t=>a.side[t]===e).sort((e,t)=>a.y[e]-a.y[t])),i.arcsFrom=new Map;for(let e=0;e<n.source.length;e++)for(let t of[n.source[e],n.target[e]])i.arcsFrom.has(t)||i.arcsFrom.set(t,[]),i.arcsFrom.get(t).push(e);return i.spines=function({y:e,height:t,fusion:i,side:a}){let n=new Map;for(let o=0;o<e.length;o++){let r=2*i[o]+a[o],s=n.get(r);s?(s.to=e[o]+t[o]/2,s.pieces++):n.set(r,{from:e[o]+t[o]/2,to:e[o],side:a[o],pieces:1,fusion:i[o]})}return Array.from(n.values()).filter(({pieces:e})=>e>1)}(i.run),Object.defineProperty(i,"neighbours",{enumerable:!0,get:()=>t??=function({source:e,target:t}){let i=new Map,a=e=>(i.has(e)||i.set(e,{into:[],out:[]}),i.get(e));for(let i=0;i<e.length;i++)a(e[i]).out.push(t[i]),a(t[i]).into.push(e[i]);return i}(i.edge)}),i}(e)),this.wanted&&this.reveal(this.wanted,!0),this.wanted=""}build(){let{el:e,model:t}=this,i=!0===t.get("read_only"),a=`Arrows move,${i?"":" space turns the selected choice,"} ${i?"":" o folds or unfolds identical layers,"} slash searches.`;e.classList.add("wb-graph"),e.dataset.lmSuppressShortcuts="true",e.style.height=`${t.get("height")}px`,e.innerHTML=`
      <canvas tabindex="0" role="application"
        aria-label="Joint graph. ${a}"></canvas>
      <div class="wb-foot">
        <span class="wb-key wb-key-saved">saved</span><span class="wb-key wb-key-again">recomputed</span>
        <span class="wb-key wb-key-away">on the CPU</span>
        <span class="wb-key wb-key-wire" hidden>on its way, from issue to wait</span>
        <button data-do="legend" aria-expanded="false" title="What every line, box and colour means">Legend</button>
        <button data-do="views" hidden title="Statements that own no memory: reshapes, transposes, slices, shallow_copy"></button>
        <span class="wb-grow"></span>
        <input type="search" placeholder="Search  /" aria-label="Search statements" spellcheck="false">
        <span class="wb-found" aria-live="polite"></span>
        <button data-do="out" title="Zoom out (ctrl + wheel)">−</button>
        <button data-do="in" title="Zoom in (ctrl + wheel)">+</button>
        <button data-do="one" title="Actual size (1)">1:1</button>
        <button data-do="fit" title="Show all (f)">Fit</button>
      </div>
      <div class="wb-tip" hidden></div>
      <span class="wb-unseen" role="status"></span>`,this.viewsButton=e.querySelector('[data-do="views"]'),this.wireKey=e.querySelector(".wb-key-wire"),this.canvas=e.querySelector("canvas"),this.search=e.querySelector("input"),this.found=e.querySelector(".wb-found"),this.tip=e.querySelector(".wb-tip"),this.told=e.querySelector('[role="status"]'),this.state=new F(t,this.canvas),this.places=this.state.places,this.pen=this.state.pen,this.stop=new AbortController;let n=(e,t,i,a={})=>e.addEventListener(t,i,{signal:this.stop.signal,...a});n(this.canvas,"pointerdown",e=>this.onDown(e)),n(this.canvas,"pointermove",e=>this.onMove(e)),n(this.canvas,"pointerup",e=>this.onUp(e)),n(this.canvas,"pointerleave",()=>this.setHover(null)),n(this.canvas,"wheel",e=>this.onWheel(e),{passive:!1}),n(this.canvas,"keydown",e=>this.onKey(e)),n(this.canvas,"focus",()=>this.redraw()),n(this.canvas,"blur",()=>{this.preview(null),this.redraw()}),n(this.search,"input",()=>this.onSearch()),n(this.search,"keydown",e=>this.onSearchKey(e)),n(e.querySelector(".wb-foot"),"click",e=>this.onTool(e.target.dataset?.do)),this.overview=new L(this.state,{moved:()=>{this.atFit=!1},scroll:e=>this.scroll(e),tool:e=>this.onTool(e),redraw:()=>this.redraw(),scrollTo:e=>{this.atFit=!1,this.places.top=e,this.setHover(null),this.places.clamp(),this.redraw()}},this.stop.signal),this.sizes=new ResizeObserver(()=>this.resize()),this.sizes.observe(e),this.themes=new MutationObserver(()=>this.paintTheme()),this.themes.observe(document.body,{attributes:!0,attributeFilter:["data-jp-theme-light","data-jp-theme-name","class"]}),this.onData=()=>{this.receive(t.get("data"))},this.onSelected=()=>{this.tell(),this.redraw()},this.onAsked=()=>{this.coming||(this.takeAsked(),this.redraw())},this.onReveal=e=>{e?.type==="reveal"&&(this.coming?this.wanted=e.id:this.reveal(e.id,!0))},t.on("change:data",this.onData),t.on("change:selected",this.onSelected),t.on("change:asked",this.onAsked),t.on("msg:custom",this.onReveal)}take(e){let{places:t}=this,i=t.scene&&e?this.heldBy(e):null,a=!t.scene;t.scene=e,this.takeAsked(),performance.now()<this.refitUntil||a&&this.atFit&&t.width?this.fit():i&&(t.top+=t.locate(i.id).y-i.y),this.wireKey.hidden=!e||0===e.bar.side.length,this.nameViews(),this.pen.texts.clear(),this.setHover(null),t.clamp(),this.redraw()}takeAsked(){let e=Object.entries(this.model.get("asked")??{});this.state.asked=new Map(e.map(([e,t])=>[this.places.scene?.at.get(e),t]).filter(([e])=>e?.kind==="arc").map(([e,t])=>[e.index,t]))}heldBy(e){let{places:t}=this,{node:i,columns:a,strings:n}=t.scene,o=t.worldY(30),r=({y:e})=>e>=30&&e<=t.heightPx,s=a[0].slice(P(a[0],i,o)).map(e=>n[i.id[e]]);for(let i of[this.state.selected,...s]){let a=i&&e.at.has(i)?t.locate(i):null;if(a&&r(a))return{id:i,y:a.y}}return null}nameViews(){let{count:e,hidden:t}=this.places.scene?.views??{count:0,hidden:0};this.viewsButton.hidden=0===e||this.state.readOnly,this.viewsButton.textContent=t?`Show view operations (${t})`:`Hide view operations (${e})`}redraw(){this.pending||(this.pending=requestAnimationFrame(()=>{this.pending=0,this.draw()}))}draw(){if(!this.places.width)return;let e=performance.now();!function(e){let{places:t,pen:i}=e,a=i.context;if(a.setTransform(e.ratio,0,0,e.ratio,0,0),a.fillStyle=i.paper,a.fillRect(0,0,t.width,t.heightPx),t.scene){let i=t.worldY(0),n=t.worldY(t.heightPx+30);a.textBaseline="middle",a.textAlign="left",function(e,t,i){let{places:a,pen:n}=e,o=n.context,{line:r,block:s,strings:l}=a.scene,{label:d}=a.columns(),h=n.ink,p=11*Math.max(1,a.zoom),w=15*Math.max(1,a.zoom),b=26*a.zoom<14?a.scene.sections.map(e=>a.y(e.y)):[],{module:c}=a.scene,f=a.far?a.bands():[];for(let u=0,x=0;u<r.y.length;u++){if(r.y[u]+r.height[u]<t)continue;if(r.y[u]>i)break;for(;x<f.length&&c.y[f[x]]+c.height[f[x]]<=r.y[u];)x++;if(x<f.length&&c.y[f[x]]<=r.y[u])continue;let m=Math.min(r.y[u]+r.height[u],x<f.length?c.y[f[x]]:1/0),g=a.y(r.y[u]),v=a.y(m);v-g>3&&(o.fillStyle=h.hair,o.fillRect(d[0],Math.round(g),a.width*a.scaleX,1));let y=b.find(e=>g>=e-1&&g<e+14)??-1/0,k=Math.max(g,y+14,Math.min(30,v-2*w-6)),M=v-k;if(M<w-1)continue;let T=d[1]-d[0],A=Math.floor((M-3)/w),$=k+(A<1?M/2:4+w/2),P=l[r.text[u]]||l[s.symbol[r.block[u]]],C=l[r.place[u]];if(A>=2){n.font(p),o.fillStyle=h.ink,o.fillText(n.shorten(P,T),d[0],$),$+=w,n.font(p-.5,S),o.fillStyle=h.muted,o.fillText(n.shorten(C,T),d[0],$),function({places:e,pen:t},i,a,n){if(!e.labelled())return;let o=t.context,{line:r,block:s,strings:l}=e.scene,{label:d}=e.columns();if(!(r.count[i]<2)){t.font(n-.5,z),o.fillStyle=t.ink.muted,o.textAlign="right";for(let h=r.block[i];h<r.block[i]+r.count[i];h++){let i=e.y(s.y[h])+13*e.zoom;i-n/2<a||o.fillText(t.shorten(l[s.symbol[h]],d[1]-d[0]),d[1],i)}o.textAlign="left"}}(e,u,$+w/2,p);continue}n.font(p-.5,S);let O=l[r.short[u]],j=O?o.measureText(O).width+10:0,R=j>0&&T-j>90;R&&(o.fillStyle=h.muted,o.textAlign="right",o.fillText(O,d[1],$),o.textAlign="left"),n.font(p),o.fillStyle=h.ink,o.fillText(n.shorten(P,R?T-j:T),d[0],$)}}(e,i,n);let o=function(e,t,i){let{places:a,pen:n}=e,o=n.context,{sections:r}=a.scene,{label:s}=a.columns(),l=n.ink,d=[];for(let h of r){if(h.y+h.height<t||h.y>i)continue;let r=Math.round(a.y(h.y)),p=26*a.zoom,w=a.columns().width-a.left;if(o.fillStyle=l.rule,o.fillRect(0,Math.round(a.y(h.y+h.height)),w,1),h.height*a.zoom<18)continue;let b=p<14;o.fillStyle=l.band,o.fillRect(0,r,b?s[1]+6:w,Math.max(p,14)),o.fillStyle=l.rule,o.fillRect(0,r,w,1);let c=11.5*Math.max(1,a.zoom),f=r+Math.max(p,14)/2;n.font(c,S,600),o.fillStyle=l.ink;let u=h.count>1,x=h.identical>1,m=x&&!e.readOnly,g=m?u?"▸ ":"▾ ":"",v=b?s[1]-s[0]:a.width/2,y=n.shorten(`${g}${u?function(e,{first:t,last:i},a){let n=t.lastIndexOf("."),o=i.slice(i.lastIndexOf(".")+1),r=[`${t} … ${i}`,`${t} … ${o}`,`${t.slice(t.lastIndexOf(".",n-1)+1)} … ${o}`];return r.find(t=>e.context.measureText(t).width<=a)??r[2]}(n,h,v-o.measureText(g).width):h.first}`,v);if(o.fillText(y,s[0],f),!x&&!h.differs||b)continue;let k=s[0]+o.measureText(y).width+10;n.font(c-.5,S);let M=h.stem.startsWith("loop:")?"repeats":"layers",z=`${h.count} identical ${M} shown as one`,T=[m?u?`${z}, click to unfold`:`click to fold identical ${M}`:u?z:"",h.differs&&`differs from above: ${h.differs}`].filter(Boolean).join("; ");d.push({text:n.shorten(T,a.width-k-12),x:k,middle:f,size:c-.5})}return d}(e,i,n);(function({places:e,pen:t},i,a){let n=t.context,{run:o}=e.scene,{sides:r}=e.columns(),s=t.ink;for(let t=0;t<o.y.length;t++){if(o.y[t]+o.height[t]<i||o.y[t]>a)continue;let[l,d]=r[o.side[t]],h=e.y(o.y[t])-2,p=o.height[t]*e.zoom+4;n.beginPath(),n.roundRect(l-4,h,d-l+8,p,Math.min(5,p/2)),n.fillStyle=s.fusionFill,n.fill(),n.lineWidth=1,n.strokeStyle=s.fusion,n.stroke()}for(let{from:t,to:o,side:l,fusion:d}of(n.strokeStyle=s.fusion,n.lineWidth=1,e.scene.spines)){if(o<i||t>a)continue;let s=6+d%2*3,h=0===l?r[0][0]-s:r[1][1]+s,p=0===l?r[0][0]-4:r[1][1]+4;n.beginPath(),n.moveTo(p,e.y(t)),n.lineTo(h,e.y(t)),n.lineTo(h,e.y(o)),n.lineTo(p,e.y(o)),n.stroke()}})(e,i,n),function({places:e,pen:t}){if(!e.scene.lane)return;let i=t.context,[a,n]=e.lane();i.fillStyle=t.ink.arcs[2],i.globalAlpha=.08,i.fillRect(a,30,n-a,e.heightPx),i.globalAlpha=.35,i.fillRect(a,30,1,e.heightPx),i.fillRect(n-1,30,1,e.heightPx),i.globalAlpha=1}(e),function(e,t,i){let{places:a,pen:n}=e,o=n.context,{arc:r,strings:s}=a.scene;n.ink;let l=a.scene.at.get(e.selected),d=l?.kind==="node"?new Set(a.scene.arcsFrom.get(l.index)??[]):null,h=[],p=a.labelled()?null:new Set;for(let s=0;s<r.y0.length;s++){if(Math.max(r.y0[s],r.y1[s])<t||Math.min(r.y0[s],r.y1[s])>i)continue;let w=l?.kind==="arc"&&l.index===s||d?.has(s)||e.hover?.kind==="arc"&&e.hover.index===s,b=1===r.shape[s],c=e.asked?.get(s),f=c??r.style[s],u=C(e,s,f);if(p&&!w&&void 0===c){let e=((1048576*Math.round(a.y(r.y0[s]))+Math.round(a.y(r.y1[s])))*4+f)*8+2*r.shape[s]+r.side[s];if(p.has(e))continue;p.add(e)}O(n,a.curve(s)),a.away(s)&&O(n,a.wayBack(s),!0),o.lineWidth=b?w?2.5:1.25:r.width[s]*Math.max(.5,Math.min(1,1.5*a.zoom))+1.5*!!w,o.strokeStyle=u,o.globalAlpha=w?1:d?.35:.85,o.setLineDash(1===f?[6,4]:2===f?[1.5,4]:[]),o.lineCap=2===f?"round":"butt",o.stroke(),o.setLineDash([]),o.lineCap="butt",o.globalAlpha=1,(!b||w||void 0!==c)&&h.push([s,u,w,c]),b&&a.zoom>.3&&function({places:e,pen:t},i,a){let n=t.context,{x:o,y:r}=e.handle(i);n.beginPath(),n.arc(o,r,3.5,0,2*Math.PI),n.fillStyle=t.paper,n.fill(),n.lineWidth=1.5,n.strokeStyle=a,n.stroke()}(e,s,u)}if(!a.labelled())return;let w=Math.max(1,a.zoom);for(let[e,t,i,l]of(n.font(10*w,z,500),h)){let[d,h]=a.curve(e),p=s[r.label[e]]+(void 0===l?"":" …"),b=o.measureText(p).width+10,c=a.away(e)?a.handle(e).x-b/2:1!==r.shape[e]?d+6:0===r.side[e]?d+16:d-16-b;o.beginPath(),o.roundRect(c,h-7*w,b,14*w,7*w),o.fillStyle=n.paper,o.fill(),o.lineWidth=i?1.5:.75,o.strokeStyle=t,o.globalAlpha=i?1:.55,o.stroke(),o.globalAlpha=1,o.fillStyle=t,o.fillText(p,c+5,h+.5)}}(e,i,n),function({pen:e},t){let i=e.context,a=e.ink;for(let{text:n,x:o,middle:r,size:s}of t)e.font(s,S),i.fillStyle=a.band,i.fillRect(o-3,r-.7*s,i.measureText(n).width+6,1.4*s),i.fillStyle=a.muted,i.fillText(n,o,r)}(e,o),function(e){let{places:t,pen:i}=e,a=i.context,{bar:n,endOf:o}=t.scene,r=o.get(e.selected)?.index;for(let o=0;o<n.side.length;o++){let s=t.barAt(o),l=e.drag?.bar?.index===o&&e.drag.moved;if(l&&(s[e.drag.bar.end]=e.drag.at),30>Math.max(s.issue,s.wait)||Math.min(s.issue,s.wait)>t.heightPx)continue;let d=l||o===r?i.ink.select:i.ink.arcs[2];for(let t of(a.strokeStyle=a.fillStyle=d,a.lineWidth=l||o===r||e.hover?.kind==="bar"&&e.hover.index===o?4:2.5,a.setLineDash(M[Math.max(n.group[o],0)%M.length]),a.beginPath(),a.moveTo(s.x,s.issue),a.lineTo(s.x,s.wait),a.stroke(),a.setLineDash([]),["issue","wait"]))a.beginPath(),a.arc(s.x,s[t],3.5,0,2*Math.PI),a.fillStyle="wait"===t?d:i.paper,a.fill(),a.lineWidth=1.5,a.stroke()}if(e.drag?.bar&&e.drag.moved){let{node:o,strings:r}=t.scene,s=e.drag.target;if(s>=0){j(e,s,i.ink.select,2),i.font(11,S,600);let l=n.side[e.drag.bar.index],{sides:d}=t.columns(),h=`${e.drag.bar.end} before ${r[o.name[s]]}`,p=a.measureText(h).width,w=0===l?d[0][1]+8:d[1][0]-8-p;a.fillStyle=i.paper,a.fillRect(w-4,e.drag.at-9,p+8,18),a.fillStyle=i.ink.select,a.fillText(h,w,e.drag.at)}}}(e),function(e,t,i){let{places:a,pen:n}=e,o=n.context,{node:r,strings:s,columns:l}=a.scene,{sides:d}=a.columns(),h=n.ink,p=20*a.zoom>=12,w=11*Math.max(Math.min(a.zoom,3),a.zoom<1?.91:1),{module:b}=a.scene,c=a.far?a.bands():[];for(let f of[0,1]){let u=l[f],[x,m]=d[f],g=0===f?b.forward:b.backward,v=new Path2D;for(let l=P(u,r,t),d=0;l<u.length;l++){let t=u[l];if(r.y[t]>i)break;for(;d<c.length&&b.y[c[d]]+b.height[c[d]]<=r.y[t];)d++;if(d<c.length&&g[c[d]]&&b.y[c[d]]<=r.y[t])continue;let y=r.flags[t],k=a.y(r.y[t]),M=Math.max(.75,r.height[t]*a.zoom),T=a.matches?.has(t);if(1&y){if(p){n.font(w,S,600),o.fillStyle=T?h.select:h.fusionText;let e=s[r.detail[t]],i=n.shorten(s[r.name[t]],m-x-12);o.fillText(i,x+4,k+M/2);let a=m-x-20-o.measureText(i).width;n.font(w-.5,S),o.textAlign="right",a>30&&o.fillText(n.shorten(e,a),m-4,k+M/2),o.textAlign="left"}continue}if(M<=5&&!T&&!(2&y)){v.rect(x,k,m-x,M);continue}let A=Math.min(3.5,M/3);if(o.beginPath(),M>5?o.roundRect(x,k,m-x,M,A):o.rect(x,k,m-x,M),2&y?(o.setLineDash([4,3]),o.lineWidth=1,o.strokeStyle=h.arcs[1],o.stroke(),o.setLineDash([])):(o.fillStyle=T?h.found:M>5?h.fills[f]:h.strokes[f],o.fill(),M>5&&(o.lineWidth=1,o.strokeStyle=8&y?h.arcs[1]:h.strokes[f],8&y&&o.setLineDash([4,3]),o.stroke(),o.setLineDash([]))),!p||M<9)continue;let $=k+M/2,P=7*Math.max(1,a.zoom),C=a.scene.marksOf.get(t),O=C?.at(-1),j=O?(O.right+O.width)*Math.max(1,a.zoom):0;n.font(Math.min(w,M),z,500),o.fillStyle=2&y?h.arcs[1]:h.texts[f];let R=n.shorten(s[r.name[t]],m-x-2*P-j);o.fillText(R,x+P,$);let L=m-x-2*P-j-o.measureText(R).width-10;C&&function(e,t){let{places:i,pen:a}=e,n=a.context,{mark:o,strings:r}=i.scene,s=i.scene.at.get(e.selected);for(let{index:l}of i.scene.marksOf.get(t)??[]){let{left:t,top:d,width:h,height:p}=i.markBox(l),w=o.state[l],b=s?.kind==="mark"&&s.index===l||e.hover?.kind==="mark"&&e.hover.index===l,c=1&w?a.ink.select:2&w?a.ink.muted:a.ink.fusionText;n.beginPath(),n.roundRect(t,d,h,p,p/2),n.fillStyle=1&w?c:a.paper,n.fill(),n.lineWidth=b?2:.75,n.strokeStyle=c,2&w&&n.setLineDash([2,2]),n.stroke(),n.setLineDash([]),a.font(9.5*Math.max(1,i.zoom),z,500),n.fillStyle=1&w?a.paper:c,n.textAlign="center",n.fillText(r[o.text[l]],t+h/2,d+p/2+.5),n.textAlign="left"}}(e,t),n.font(Math.min(w-1,M-.5),z);let D=s[r.detail[t]],B=o.measureText(D).width<=L?D:s[r.shape[t]];B&&o.measureText(B).width<=L&&(o.fillStyle=h.soft[f],o.textAlign="right",o.fillText(B,m-P-j,$),o.textAlign="left")}o.fillStyle=h.strokes[f],o.fill(v)}}(e,i,n),function(e,t,i){let{places:a,pen:n}=e;if(!a.far)return;let o=n.context,{module:r,sections:s,strings:l}=a.scene,{label:d,sides:h}=a.columns(),p=n.ink,w=s.map(e=>a.y(e.y)),b=[];for(let s of a.bands()){if(r.y[s]+r.height[s]<t||r.y[s]>i)continue;let c=a.y(r.y[s]),f=c+r.height[s]*a.zoom,u=(c+f)/2,x=e.hover?.kind==="module"&&e.hover.index===s;for(let e of[0,1]){let[t,i]=h[e],a=0===e?r.forward[s]:r.backward[s];if(!a)continue;o.beginPath(),o.roundRect(t+.5,c+.5,i-t-1,f-c-2,3.5),o.fillStyle=p.fills[e],o.fill(),o.lineWidth=x?1.5:1,o.strokeStyle=x?p.select:p.strokes[e],o.stroke();let d=f-c>=36,w=u-8*!!d,b=Math.min(11,f-c-2),m=i-t>170?`${a} statement${1===a?"":"s"}`:"";n.font(b-.5,S),o.fillStyle=p.soft[e],o.textAlign="right",o.fillText(m,i-8,w);let g=m?o.measureText(m).width+10:0;o.textAlign="left",n.font(b,z,500),o.fillStyle=p.texts[e],o.fillText(n.shorten(l[r.short[s]],i-t-14-g),t+7,w),d&&(n.font(10,z),o.fillStyle=p.soft[e],o.fillText(n.shorten(l[(0===e?r.forward_ops:r.backward_ops)[s]],i-t-14),t+7,u+9))}l[r.saved[s]]&&b.push([h[0][1]+6,u,Math.min(14,f-c-1),l[r.saved[s]]]);let m=w.find(e=>c>=e-1&&c<e+14)??-1/0,g=Math.max(c,m+14);o.fillStyle=p.hair,o.fillRect(d[0],Math.round(f)-1,d[1]-d[0],1),!(f-g<11)&&l[r.name[s]]&&(n.font(11,z,500),o.fillStyle=x?p.select:p.ink,o.fillText(n.shorten(l[r.name[s]],d[1]-d[0]),d[0],(g+f)/2))}for(let[e,t,i,a]of b){n.font(Math.min(10,i-1),z,500);let r=o.measureText(a).width+10;o.beginPath(),o.roundRect(e,t-i/2,r,i,i/2),o.fillStyle=n.paper,o.fill(),o.lineWidth=.75,o.strokeStyle=o.fillStyle=p.arcs[0],o.stroke(),o.fillText(a,e+5,t+.5)}}(e,i,n),function(e){let{places:t,pen:i}=e,a=t.scene.at.get(e.selected),{canvas:n}=i.context,o=document.activeElement===n||n.getRootNode().activeElement===n;if(a?.kind==="node"){let{into:n=[],out:r=[]}=t.scene.neighbours.get(a.index)??{};for(let t of n)j(e,t,i.ink.texts[0],1.25);for(let t of r)j(e,t,i.ink.arcs[0],1.25);j(e,a.index,i.ink.select,o?2.5:2)}else if(a?.kind==="mark")j(e,t.scene.mark.node[a.index],i.ink.select,o?2.5:2);else if(a?.kind==="arc"){let{arc:i}=t.scene;for(let t of[i.source[a.index],i.target[a.index]])t>=0&&j(e,t,C(e,a.index),1.75)}e.hover?.kind==="node"&&j(e,e.hover.index,i.ink.muted,1)}(e),function({places:e,pen:t}){let i=t.context,{node:a,columns:n}=e.scene,{sides:o}=e.columns(),r=t.ink;if(!n[0].length||!n[1].length)return;let s=t=>{let i=n[t].at(-1);return e.y(a.y[i]+a.height[i])},l=Math.max(s(0),s(1))+5,[d,h]=[o[0][1]-14,o[1][0]+14];if(l>e.heightPx||l<30)return;i.strokeStyle=i.fillStyle=r.muted,i.lineWidth=1.5,i.beginPath(),i.moveTo(d,s(0)+1),i.lineTo(d,l),i.lineTo(h,l),i.lineTo(h,s(1)+1),i.stroke(),i.beginPath(),i.moveTo(h-4,s(1)+6),i.lineTo(h,s(1)+1),i.lineTo(h+4,s(1)+6),i.stroke(),t.font(10,S);let p="forward ends, backward begins",w=h-d-12;if(i.measureText(p).width>w)return;i.textAlign="center";let b=i.measureText(p).width+8,c=(d+h)/2;i.fillStyle=t.paper,i.fillRect(c-b/2,l-6,b,12),i.fillStyle=r.muted,i.fillText(p,c,l),i.textAlign="left"}(e),function({places:e,pen:t}){if(!e.labelled())return;let i=t.context,{run:a,strings:n}=e.scene,{sides:o}=e.columns();t.font(11,S,600);for(let r=0;r<a.y.length;r++){let s=e.y(a.y[r]),l=s+a.height[r]*e.zoom;if(s>26||l<62)continue;let[d,h]=o[a.side[r]];i.fillStyle=t.paper,i.fillRect(d-3.5,30,h-d+7,16),i.fillStyle=t.ink.fusionFill,i.fillRect(d-3.5,30,h-d+7,16),i.fillStyle=t.ink.fusionText,i.fillText(t.shorten(`↑ ${n[a.name[r]]}`,h-d-8),d+4,38)}}(e)}!function({places:e,pen:t}){let i=t.context,{label:a,sides:n}=e.columns(),o=t.ink;i.fillStyle=t.paper,i.fillRect(0,0,e.width,29),i.fillStyle=o.rule,i.fillRect(0,29,e.width,1),t.font(11,S,600),i.textBaseline="middle";let r=(e,t,a,n="left")=>{i.textAlign=n,i.fillStyle=a,i.fillText(e,t,15)};r("program",a[0],o.muted),r("forward ↓",n[0][0],o.texts[0]);let s=e.scene?.lane?e.lane():null,l=n[0][1],d=s?s[0]:n[1][0],h=["saved for backward","saved"].find(e=>i.measureText(e).width<=d-l-16);h&&r(h,(l+d)/2,o.muted,"center"),s&&r("CPU",(s[0]+s[1])/2,o.arcs[2],"center"),r("↑ backward",n[1][0],o.texts[1]),i.textAlign="left"}(e)}(this.state),this.places.scene&&this.overview.draw(),this.drawn=performance.now()-e}destroy(){this.stop.abort(),this.sizes.disconnect(),this.themes.disconnect(),this.model.off("change:data",this.onData),this.model.off("change:selected",this.onSelected),this.model.off("change:asked",this.onAsked),this.model.off("msg:custom",this.onReveal)}paintTheme(){this.dark=function(e){let t=document.body.dataset.jpThemeLight;if(t)return"false"===t;for(let t=e;t;t=t.parentElement){let e=getComputedStyle(t).backgroundColor.match(/[\d.]+/g)?.map(Number);if(e&&(e.length<4||e[3]>.5))return .3*e[0]+.6*e[1]+.1*e[2]<110}return matchMedia("(prefers-color-scheme: dark)").matches}(this.el),this.el.classList.toggle("wb-dark",this.dark),this.model.get("dark")!==this.dark&&(this.model.set("dark",this.dark),this.model.save_changes()),this.pen.ink=this.dark?A:T;let e=getComputedStyle(this.el).getPropertyValue("--jp-layout-color0").trim();this.pen.paper=e||this.pen.ink.paper,this.redraw()}resize(){let{places:e}=this,t=window.devicePixelRatio||1;this.el.classList.toggle("wb-slim",this.el.clientWidth<420),e.width=this.canvas.clientWidth,e.heightPx=this.el.clientHeight-34,e.width&&(this.canvas.width=Math.round(e.width*t),this.canvas.height=Math.round(e.heightPx*t),this.state.ratio=t,this.pen.texts.clear(),this.atFit&&this.fit(),e.clamp(),this.draw())}setZoom(e,t=this.places.width/2,i=this.places.heightPx/2){let{places:a}=this,n=a.worldY(i),o=(t+a.left)/a.scaleX;a.zoom=Math.max(.01,Math.min(3,e)),this.atFit=!1,a.top=30+(n-30)*a.zoom-i,a.left=o*a.scaleX-t,a.clamp(),this.redraw()}fit(){let{places:e}=this;e.scene&&(e.left=e.top=0,this.setZoom(Math.min(1,(e.heightPx-30-14)/Math.max(1,e.scene.height-30))),this.atFit=!0)}approach(e){let{places:t}=this,{module:i}=t.scene,a=t.heightPx-30-16;this.setZoom(Math.max(.75,Math.min(1,a/i.height[e]))),t.top=(i.y[e]-30)*t.zoom-8,t.clamp(),this.redraw()}place(e,t){t>=0&&this.model.send({type:"place",id:e,node:this.places.scene.strings[this.places.scene.node.id[t]]})}nudge(e){let{bar:t,endOf:i,columns:a}=this.places.scene,n=this.state.selected,o=i.get(n);if(!o)return;let r=t.side[o.index],s=t[`${o.end}_node`][o.index],l=a[r].indexOf(s)+(0===r?e:-e);this.place(n,a[r][l]??-1)}pointer(e){let t=this.canvas.getBoundingClientRect();return[e.clientX-t.left,e.clientY-t.top]}onDown(e){let{places:t}=this;this.canvas.focus({preventScroll:!0});let[i,a]=this.pointer(e),n=t.scene&&!this.state.readOnly?t.barHit(i,a):null;this.state.drag={x:i,y:a,left:t.left,top:t.top,moved:!1,bar:n},this.canvas.setPointerCapture(e.pointerId)}onMove(e){let{places:t}=this,{drag:i}=this.state,[a,n]=this.pointer(e);if(!i)return void this.setHover(t.hit(a,n),a,n);if(Math.hypot(a-i.x,n-i.y)>3&&(i.moved=!0),i.moved){if(i.bar){i.at=n,i.target=t.nodeNear(t.scene.bar.side[i.bar.index],n),this.tip.hidden=!0,this.redraw();return}this.atFit=!1,t.left=i.left-(a-i.x),t.top=i.top-(n-i.y),this.setHover(null),this.canvas.style.cursor="grabbing",t.clamp(),this.redraw()}}onUp(e){let t=this.state.drag;if(this.state.drag=null,this.canvas.style.cursor="",t?.bar&&t.moved){this.select(t.bar.id),this.place(t.bar.id,t.target);return}if(!t||t.moved)return;let i=this.places.hit(...this.pointer(e));i?"section"===i.kind?this.fold(i.index):"module"===i.kind?this.approach(i.index):("node"===i.kind&&i.id===this.state.selected&&this.unfold(i.index),this.select(i.id),"node"!==i.kind&&"bar"!==i.kind&&this.turn(i.id)):this.select("")}onWheel(e){let{places:t}=this,[i,a]=this.pointer(e);if(e.ctrlKey||e.metaKey){e.preventDefault(),this.setZoom(t.zoom*Math.exp(-e.deltaY*(e.deltaMode?.05:.0022)),i,a);return}let{top:n,left:o}=t,r=1===e.deltaMode?18:1;t.top+=e.deltaY*r,t.left+=e.deltaX*r,t.clamp(),(t.top!==n||t.left!==o)&&e.preventDefault(),this.setHover(null),this.redraw()}onKey(e){let{places:t}=this;if(e.ctrlKey||e.metaKey||e.altKey)return;let i={ArrowDown:()=>this.step(1),ArrowUp:()=>this.step(-1),ArrowLeft:()=>this.across(-1),ArrowRight:()=>this.across(1),Enter:()=>{let e=this.state.chosenPlace();e?.kind==="node"&&this.unfold(e.index)}," ":()=>this.turnSelected(),"/":()=>this.search.focus(),u:()=>this.model.send({type:"undo"}),r:()=>this.model.send({type:"redo"}),f:()=>this.onTool("fit"),1:()=>this.setZoom(1),"+":()=>this.onTool("in"),o:()=>this.foldHere(),"[":()=>this.nudge(-1),"]":()=>this.nudge(1),"=":()=>this.onTool("in"),"-":()=>this.onTool("out"),Escape:()=>this.select(""),Home:()=>{t.top=0,this.redraw()},End:()=>{t.top=1/0,t.clamp(),this.redraw()},PageDown:()=>this.scroll(.9*t.heightPx),PageUp:()=>this.scroll(-(.9*t.heightPx))}[e.key];i&&(e.preventDefault(),e.stopPropagation(),i())}scroll(e){this.places.top+=e,this.places.clamp(),this.redraw()}onTool(e){let{places:t}=this;"in"===e?this.setZoom(1.25*t.zoom):"out"===e?this.setZoom(t.zoom/1.25):"one"===e?this.setZoom(1):"fit"===e?(this.fit(),this.refitUntil=performance.now()+2e3,this.state.readOnly||this.model.send({type:"relax"})):"legend"===e?function e(t,i,a){let n=t.querySelector(".wb-legend-box"),o=t.querySelector('[data-do="legend"]');if(o.setAttribute("aria-expanded",String(!n)),n)return void n.remove();let r=document.createElement("div");for(let[e,t]of(r.className="wb-legend-box",r.setAttribute("role","note"),r.tabIndex=0,function(e,t){let i=(e,t="")=>R(`<path d="M2 13 C20 13 26 5 44 5" fill="none" stroke="${e}" stroke-width="2.5" ${t}/>`),a=(e,t,i="")=>R(`<rect x="3" y="2" width="40" height="14" rx="3" fill="${e}" stroke="${t}" ${i}/>`),n=(e,t,i,a,n="")=>R(`<rect x="1" y="2.5" width="44" height="13" rx="6.5" fill="${i}" stroke="${t}" ${n}/><text x="23" y="12" text-anchor="middle" font-size="8.5" font-family="monospace" fill="${a}">${e}</text>`),[o,r,s]=e.arcs;return[[i(o),"Saved: kept in memory from the forward until the backward reads it. Wider: more bytes."],[i(r,'stroke-dasharray="6 4"'),"Recomputed: not kept; the backward runs its statements again."],[i(s,'stroke-dasharray="1.5 4" stroke-linecap="round"'),"Offloaded: copied to the CPU, through the lane between the columns, and back when it is read."],[n("16 KiB",o,"none",o),"Bytes of what an arc stands for; \xd7 2: in each of two identical layers."],[R(`<path d="M8 4 C30 4 30 14 8 14" fill="none" stroke="${e.fusion}" stroke-width="1.5"/><circle cx="8" cy="4" r="3" fill="none" stroke="${e.fusion}" stroke-width="1.5"/>`),"The cut: a value that crosses from one fusion to another, written to memory between them or computed again. Its circle is clicked."],[a(e.fusionFill,e.fusion),"Fusion: the statements inside are compiled to one kernel. Pieces of one fusion are joined by a line at the side."],[a(e.fills[0],e.strokes[0]),"A statement of the forward, which runs downwards."],[a(e.fills[1],e.strokes[1]),"A statement of the backward, which runs upwards, beside the forward statement that it differentiates."],[R(`<path d="M6 2 V13 H40 V4 M36 8 L40 3 L44 8" fill="none" stroke="${e.muted}" stroke-width="1.5"/>`),"The end of the forward, where the backward begins."],[R(`<rect x="1" y="3" width="44" height="12" fill="${e.band}"/><text x="6" y="12.5" font-size="10" fill="${e.ink}">▸ \xd74</text>`),"A layer, or identical ones shown as one: a click opens and closes them. Beside its name: in what it differs from those above."],[a(e.fills[1],r,'stroke-dasharray="4 3"'),"Computed again in the backward; without colour: made in the forward no more."],[R(`<rect x="1" y="3" width="44" height="12" rx="3" fill="${e.fills[0]}" stroke="${e.strokes[0]}"/><text x="6" y="12" font-size="8.5" font-family="monospace" fill="${e.texts[0]}">mlp</text>`),"From far away: a module, with how many statements it has in each column and what it saves for the backward. A click comes near enough to read them."],[n("keep",e.fusionText,"none",e.fusionText),"A choice on a statement, and what it is now."],[n("drop",e.select,e.select,e.paper),"Chosen otherwise than unmodified Thunder does."],[n("stock",e.muted,"none",e.muted,'stroke-dasharray="2 2"'),"Nothing else is legal there; pointing at it says why."],...t?[[R(`<path d="M6 9 H40" stroke="${s}" stroke-width="2.5"/><circle cx="6" cy="9" r="3.5" fill="${e.paper}" stroke="${s}" stroke-width="1.5"/><circle cx="40" cy="9" r="3.5" fill="${s}"/>`),"A collective on its way: from its issue, the open end, to its wait, the filled one. Other dashes: another process group."],[n("17 waits",e.strokes[1],e.fills[1],e.texts[1]),"Waits of one moment, shown as one; another click on it shows each."]]:[],[n("▸ sdpa",e.strokes[0],e.fills[0],e.texts[0]),"One statement of the program that was made into several, shown as one; another click on it shows each, and again closes it."],[a("none",e.select,'stroke-width="2.5"'),"Selected. Outlined in the column's colour: what it reads from; in green: who reads it."],[a(e.found,e.found),"Found by the search."],["","Views (reshapes, transposes, slices, shallow_copy) own no memory and are left out: lines go through them, and what can be chosen there stands on what makes or reads their storage. A button below shows them."],[a("none",e.select),"At the right edge: the whole graph, with the part in view. Dragging it moves the view; so do the arrow keys there."]]}(i,a))){let i=document.createElement("div"),a=document.createElement("span");i.innerHTML=e,a.textContent=t,i.append(a),r.append(i)}r.addEventListener("keydown",n=>{"Escape"===n.key&&(e(t,i,a),o.focus())}),t.append(r),r.focus({preventScroll:!0})}(this.el,this.pen.ink,t.scene?.bar.side.length>0):"views"===e&&this.model.send({type:"views",shown:t.scene.views.hidden>0})}step(e){let{node:t,arc:i,columns:a,strings:n}=this.places.scene,o=this.state.chosenPlace();if(o?.kind==="arc"){let t=Array.from(i.y0.keys()).sort((e,t)=>i.y0[e]-i.y0[t]),a=t[t.indexOf(o.index)+e];void 0!==a&&this.select(n[i.id[a]],!0);return}let r=a[o?t.side[o.index]:0],s=o?r.indexOf(o.index)+e:P(r,t,this.places.worldY(30));void 0!==r[s]&&this.select(n[t.id[r[s]]],!0)}across(e){let{node:t,arc:i,columns:a,strings:n,arcsFrom:o}=this.places.scene,r=this.state.chosenPlace();if(!r)return void this.step(1);if("arc"===r.kind){let a=e>0?i.target[r.index]:i.source[r.index];a>=0&&this.select(n[t.id[a]],!0);return}let s=t.side[r.index],l=(o.get(r.index)??[]).filter(t=>(e>0?i.source[t]:i.target[t])===r.index&&0===i.shape[t]);if(l.length)return void this.select(n[i.id[l[0]]],!0);if(e>0==(1===s))return;let d=a[1-s],h=d[Math.min(d.length-1,P(d,t,t.y[r.index]+1))];void 0!==h&&this.select(n[t.id[h]],!0)}select(e,t=!1){this.state.selected!==e&&(this.model.set("selected",e),this.model.save_changes()),t&&this.reveal(e),this.redraw()}reveal(e,t=!1){let{places:i}=this;t&&!i.labelled()&&i.locate(e)&&this.setZoom(1);let a=i.locate(e);a&&((a.y<54||a.y>i.heightPx-40)&&(i.top+=a.y-i.heightPx/2,i.clamp()),this.redraw())}turn(e){this.model.send({type:"turn",id:e})}turnSelected(){let{at:e,arc:t,arcsFrom:i,mark:a,marksOf:n,strings:o}=this.places.scene,r=this.state.selected,s=e.get(r);if(!s)return;if("arc"===s.kind)return void this.turn(o[t.id[s.index]]);if("mark"===s.kind)return void this.turn(o[a.id[s.index]]);if("bar"===s.kind)return void this.turn(r);let l=n.get(s.index)?.[0],d=(i.get(s.index)??[]).find(e=>t.source[e]===s.index);l?this.turn(o[a.id[l.index]]):void 0!==d&&this.turn(o[t.id[d]])}fold(e){let t=this.places.scene.sections[e];t.identical>1&&this.model.send({type:"fold",stem:t.stem})}foldHere(){let{node:e,arc:t,sections:i}=this.places.scene,a=this.state.chosenPlace(),n=this.places.worldY(30),o=a?("arc"===a.kind?t.y0:e.y)[a.index]:0/0,r=i.map((e,t)=>({index:t,low:e.y,high:e.y+e.height})).filter(({index:e})=>i[e].identical>1),s=r.find(({low:e,high:t})=>o>=e&&o<t)??r.find(({high:e})=>e>n);s&&!this.state.readOnly&&this.fold(s.index)}unfold(e){let{node:t,strings:i}=this.places.scene;128&t.flags[e]&&!this.state.readOnly?this.model.send({type:"fold",node:i[t.id[e]]}):64&t.flags[e]&&!this.state.readOnly&&this.model.send({type:"fold",stem:`waits:${i[t.id[e]].slice(2)}`})}onSearch(){let{places:e}=this,{node:t,strings:i}=e.scene,a=this.search.value.trim().toLowerCase();if(e.matches=null,a){let n=[];for(let e=0;e<t.id.length;e++)`${i[t.name[e]]} ${i[t.full[e]]} ${i[t.detail[e]]} ${i[t.about[e]]}`.toLowerCase().includes(a)&&n.push(e);n.sort((e,i)=>t.y[e]-t.y[i]||t.side[e]-t.side[i]),e.matches=new Set(n),this.matchList=n,this.matchAt=0,n.length&&this.reveal(i[t.id[n[0]]],!0)}this.found.textContent=a?`${e.matches.size}`:"",this.redraw()}onSearchKey(e){let{places:t}=this;if(e.stopPropagation(),"Escape"===e.key&&(this.search.value="",this.onSearch(),this.canvas.focus()),"Enter"===e.key&&t.matches?.size){let i=this.matchList[this.matchAt%this.matchList.length];this.matchAt+=e.shiftKey?this.matchList.length-1:1,this.select(t.scene.strings[t.scene.node.id[i]],!0)}}setHover(e,t=0,i=0){let a=e?.id===this.state.hover?.id;this.state.hover=e,this.canvas.style.cursor=e?"pointer":"",e&&"section"!==e.kind?this.showTip(e,t,i):this.tip.hidden=!0,a||(this.previewOf(e),this.redraw())}previewOf(e){this.state.readOnly||this.preview(e?.kind==="arc"||e?.kind==="mark"?{id:e.id}:null)}tell(){let e=document.activeElement===this.canvas?this.places.scene?.at.get(this.state.selected):null;this.told.textContent=e?W(this.places.scene,e).map(([,e])=>e).filter(Boolean).join(". "):""}showTip(e,t,i){let{places:a}=this;this.tip.replaceChildren(...W(a.scene,e).filter(([,e])=>e).map(([e,t])=>{let i=document.createElement("div");return i.className=`wb-tip-${e||"p"}`,i.textContent=t,i})),this.tip.hidden=!1;let{offsetWidth:n,offsetHeight:o}=this.tip;this.tip.style.left=`${Math.max(4,Math.min(t+14,a.width-n-8))}px`,this.tip.style.top=`${i+18+o>a.heightPx?Math.max(4,i-o-12):i+18}px`}}let H=function({model:e,el:t}){let i=new _(e,t);return t.__workbench={position(e){i.reveal(e,!0);let t=i.places.locate(e),a=i.canvas.getBoundingClientRect();return t&&{x:a.left+t.x,y:a.top+t.y}},hit(e,t){let a=i.canvas.getBoundingClientRect();return i.places.hit(e-a.left,t-a.top)?.id??null},state(){let{scene:t}=i.places;return{nodes:t?.node.id.length??0,zoom:i.places.zoom,top:i.places.top,selected:e.get("selected"),dark:i.dark,drawn_ms:i.drawn,sections:t?.sections??[],arcs:t?Array.from(t.arc.id,(e,a)=>({id:t.strings[e],style:t.arc.style[a],asked:i.state.asked.get(a)??null,label:t.strings[t.arc.label[a]]})):[],marks:t?Array.from(t.mark.id,(e,i)=>({id:t.strings[e],text:t.strings[t.mark.text[i]],state:t.mark.state[i]})):[],bars:t?Array.from(t.bar.side,(e,a)=>({side:e,...i.places.barAt(a),id:t.strings[t.bar.issue[a]],wait_id:t.strings[t.bar.wait[a]]})):[],modules:t&&i.places.far?i.places.bands().map(e=>({scope:t.strings[t.module.scope[e]],y:i.places.y(t.module.y[e]),height:t.module.height[e]*i.places.zoom})):[],ids:t?Array.from(t.node.id,e=>t.strings[e]):[],matches:i.places.matches?.size??null}},view:i},()=>i.destroy()},I=["accuracy","offload","overlap"],K=function({model:e,el:t}){k(t,"strip");let i=e=>e.delta&&y("span",{class:`wb-delta wb-${e.delta_tone}`,title:e.delta_tip},e.delta,e.delta_vs&&y("span",{class:"wb-vs"},` ${e.delta_vs}`)),a=(e,...t)=>y("div",{class:"wb-value",title:e.tip||null},y("span",{class:`wb-number ${e.tone?`wb-${e.tone}`:""}`},e.text),y("span",{class:"wb-kind",title:e.kind},e.kind),t);var n=["content"],o=()=>{let{figures:n=[]}=e.get("content");for(let e of(t.replaceChildren(...n.map(e=>y("div",{class:`wb-figure${e.older?" wb-older":""}`,"data-figure":e.key},y("div",{class:"wb-figure-title"},e.title),y("div",{class:"wb-figure-values"},...(({key:e,values:[t,...n]})=>I.includes(e)?[t,...n].map(e=>a(e,i(e))):[a(t),y("div",{class:"wb-change"},i(t)),...n.map(e=>a(e,i(e)))])(e))))),t.children))e.scrollHeight>e.clientHeight+1&&(e.title=e.innerText)};for(let t of n)e.on(`change:${t}`,o);return o(),()=>{for(let t of n)e.off(`change:${t}`,o)}};class U{traits;callbacks=new Map;constructor(e){this.traits=e}get(e){return this.traits[e]}set(e,t){this.traits[e]!==t&&(this.traits[e]=t,this.emit(`change:${e}`))}on(e,t){let i=this.callbacks.get(e)??new Set;this.callbacks.set(e,i.add(t))}off(e,t){this.callbacks.get(e)?.delete(t)}send(){}save_changes(){}emit(e,...t){for(let i of this.callbacks.get(e)??[])i(...t)}}class q extends a.Widget{end=()=>{};shown="";constructor(){super(),this.addClass("wb-app"),this.addClass("wb-saved")}async renderModel(e){let t=e.data[v],i=JSON.stringify(t)??"";if(i!==this.shown){this.shown=i,this.end(),this.end=()=>{};try{var a,n,o,r,s;let e,i,l,d,h,p,w,b,c,f,u,x,m;this.end=(a=function(e){if("object"!=typeof e||null===e||"thunder-workbench plan"!==e.format)throw Error("This file holds no saved plan: bench.save(path) writes one.");if(1!==e.format_version)throw Error(`This plan was saved in format version ${e.format_version}; this view reads version 1. Save it again, or install the version of thunder-workbench that wrote it.`);return e}(t),n=this.node,e=y("div"),i=y("div"),l=y("div",{"aria-live":"polite"}),d=new U({data:function(e){let{graph:t}=e.view,i=Object.entries(t.tables).map(([e,t])=>[e,Object.fromEntries(Object.entries(t).map(([e,[t,i]])=>{var a;return[e,[t,(a=i,Uint8Array.from(atob(a),e=>e.charCodeAt(0)).buffer)]]}))]);return{...t,tables:Object.fromEntries(i)}}(a),selected:"",height:620,dark:!1,read_only:!0}),n.replaceChildren((o=a,b=Object.entries(o.settings).map(([e,t])=>`${e}=${t}`),c=Object.entries(o.versions).map(([e,t])=>`${e} ${t}`),f=y("div",{},y("strong",{},o.program),y("span",{class:"wb-muted"},[o.device,o.executor,...b].join(" \xb7 ")),y("span",{class:"wb-muted",title:c.join("\n")},"saved plan: predicted, changes are against stock; nothing can be chosen here")),k(f,"saved-heading"),f),e,(r=a,s=e=>{d.set("selected",e),d.emit("msg:custom",{type:"reveal",id:e})},u=Object.entries(r.choices),x=1===u.length?"1 choice":`${u.length} choices`,m=u.length?y("details",{open:u.length<=4},y("summary",{},`${x} other than stock`),y("ul",{},...u.map(([e,t])=>y("li",{},y("button",{class:"wb-link",onclick:()=>s(e)},e),`: ${t}`)))):y("div",{class:"wb-muted"},"No choices: what unmodified Thunder would execute."),k(m,"saved-choices"),m),i,l),h=new Map(a.sites.map(e=>[e.id,e])),p=()=>l.replaceChildren(...function(e){if(!e)return[y("div",{class:"wb-muted"},"Click an arc or a mark to see what could be chosen there.")];let t=e.options.map(t=>{let i=e.illegal[t],a=t===e.choice?"chosen":i?`refused: ${i}`:"legal";return y("div",{},y("code",{},t)," ",y("span",{class:"wb-muted"},t===e.default?`${a}, stock`:a))});return[y("div",{},y("strong",{},e.label)," ",y("code",{class:"wb-muted"},e.id)),...t]}(h.get(String(d.get("selected"))))),k(l,"saved-site"),d.on("change:selected",p),p(),w=[K({model:new U({content:{figures:a.view.figures}}),el:e}),H({model:d,el:i})],()=>w.forEach(e=>e?.()))}catch(e){this.node.textContent=e instanceof Error?e.message:String(e)}}}dispose(){this.end(),super.dispose()}}let N={id:"thunder-workbench-trace-view:plan",description:"Draws saved plans of Thunder Workbench.",rendererFactory:{safe:!0,mimeTypes:[v],createRenderer:()=>new q},rank:0,dataType:"json",fileTypes:[{name:"thunder-plan",displayName:"Thunder plan",mimeTypes:[v],extensions:[".plan.json"]}],documentWidgetFactoryOptions:{name:"Thunder plan",primaryFileType:"thunder-plan",fileTypes:["thunder-plan"],defaultFor:["thunder-plan"]}}}}]);