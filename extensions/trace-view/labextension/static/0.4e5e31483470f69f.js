"use strict";(self.rspackChunkthunder_workbench_trace_view=self.rspackChunkthunder_workbench_trace_view||[]).push([[0],{2(e,t,i){i.r(t),i.d(t,{default:()=>_});var a=i(3),n=i(4),o=i(7);let s="application/vnd.thunder-workbench.plan+json";function r(e,t={},...i){let a=document.createElement(e);for(let[e,i]of Object.entries(t))null!=i&&!1!==i&&(e.startsWith("on")?a.addEventListener(e.slice(2),i):a.setAttribute(e,!0===i?"":i));return a.append(...i.flat(1/0).filter(e=>null!=e&&!1!==e)),a}function l(e,t){e.classList.add("wb-panel",`wb-${t}`),e.dataset.lmSuppressShortcuts="true"}function d(e){return!e.ctrlKey&&!e.altKey&&!e.metaKey}function p(e,t,i){e.closest(".wb-app")?.querySelector(`.wb-split-${t}`)?.dispatchEvent(new CustomEvent("thunder-workbench:fold",{detail:i}))}let h=[[],[6,3],[2,3],[9,3,2,3]],w='"JetBrains Mono", "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace',b='system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial, sans-serif',c={paper:"#ffffff",ink:"#1f2328",muted:"#59636e",hair:"#e6e9ed",rule:"#d0d7de",band:"#f6f8fa",fills:["#e9f1fb","#fcefe6"],strokes:["#bfd3ec","#eccfb9"],texts:["#16406f","#703510"],soft:["#4a6484","#855a3d"],fusion:"#8b6fd0",fusionFill:"rgba(124, 92, 200, 0.07)",fusionText:"#5b3aa8",arcs:["#267044","#b04a00","#0b6b85"],select:"#0b57d0",found:"#ffe58a"},u={paper:"#111111",ink:"#e8eaed",muted:"#a3acb7",hair:"#25282c",rule:"#3a4047",band:"#191c20",fills:["#15273c","#33211a"],strokes:["#2f5078","#6d4632"],texts:["#c4dcf8","#f6d3bb"],soft:["#8fabcb","#cfa58b"],fusion:"#9b86e0",fusionFill:"rgba(155, 134, 224, 0.10)",fusionText:"#c9bcfa",arcs:["#63c48a","#f2a952","#54c6dc"],select:"#79aeff",found:"#6b5600"},f={f:Float32Array,d:Float64Array,i:Int32Array,h:Uint16Array,b:Uint8Array};function x(e,t,i){let a=0,n=e.length;for(;a<n;){let o=a+n>>1;t.y[e[o]]+t.height[e[o]]<i?a=o+1:n=o}return a}function m({places:e,pen:t},i,a=e.scene.arc.style[i]){return 1===e.scene.arc.shape[i]&&0===a?t.ink.fusion:t.ink.arcs[a]}function g(e,[t,i,a,n,o,s,r,l],d=!1){d||e.context.beginPath(),e.context.moveTo(t,i),e.context.bezierCurveTo(a,n,o,s,r,l)}function v({places:e,pen:t},i,a,n){let o=t.context,{node:s}=e.scene,[r,l]=e.columns().sides[s.side[i]],d=Math.max(2,s.height[i]*e.zoom),p=e.y(s.y[i]);p>e.heightPx||p+d<30||(o.beginPath(),o.roundRect(r-1,p-1,l-r+2,d+2,Math.min(4,d/2)),o.lineWidth=n,o.strokeStyle=a,o.stroke())}let y=(e,t)=>t.height*e.zoom>=18,k=e=>e.scene.sections.filter(t=>y(e,t)).map(t=>e.y(t.y)),T=(e,t)=>(e.findLast(e=>t>=e-1&&t<e+14)??-1/0)+14,S=[["click","select"],["double click","change an arc or a label to its next option",!0],["right click","open a menu"],["↑ ↓","next statement or arc"],["← →","along an arc"],["space","change the selection to its next option",!0],["⇧ F10","open the menu of the selection"],["o","fold or unfold identical layers",!0],["/","search"],["u  r","undo, redo",!0],["e","export, from everywhere in the app",!0],["l  i  d","in a tab: show or hide outline, inspector, tabs below",!0],["f  1","show all, actual size"],["+  −","zoom in, zoom out"],["?","open or close this list"]],z=e=>`<svg width="46" height="18" viewBox="0 0 46 18" aria-hidden="true">${e}</svg>`;class M{constructor(e,t,i){for(let[i,a]of(this.state=e,this.actions=t,this.grip=0,this.canvas=document.createElement("canvas"),this.canvas.className="wb-map",this.canvas.tabIndex=0,Object.entries({role:"scrollbar","aria-label":"Part of the graph in view","aria-orientation":"vertical","aria-valuemin":"0","aria-valuemax":"100"})))this.canvas.setAttribute(i,a);this.canvas.title="The whole graph: drag the part in view, or use the arrow keys",e.pen.context.canvas.after(this.canvas),this.whole=document.createElement("canvas"),this.drawnOf=null,this.wide=0;let a=(e,t)=>this.canvas.addEventListener(e,t,{signal:i});for(let e of(a("pointerdown",e=>this.onDown(e)),a("pointermove",e=>{this.canvas.hasPointerCapture(e.pointerId)&&this.moveTo(e.offsetY-this.grip)}),a("keydown",e=>this.onKey(e)),["focus","blur"]))a(e,t.redraw)}get scale(){return Math.min(1,(this.height-2)/Math.max(1,this.state.places.scene.height-30))}get height(){return this.state.places.heightPx-30}window(){let{state:{places:e},scale:t}=this,i=Math.max(0,(e.worldY(30)-30)*t);return{from:i,tall:Math.max(6,Math.min(e.scene.height-30,e.worldY(e.heightPx)-30)*t-i)}}moveTo(e){this.actions.scrollTo(e/this.scale*this.state.places.zoom)}onDown(e){e.preventDefault(),this.canvas.focus({preventScroll:!0}),this.canvas.setPointerCapture(e.pointerId);let{from:t,tall:i}=this.window(),a=e.offsetY>=t&&e.offsetY<=t+i;this.grip=a?e.offsetY-t:i/2,this.moveTo(e.offsetY-this.grip)}onKey(e){let{actions:t}=this,i=(this.state.places.heightPx-30)*.9,a={ArrowDown:()=>t.scroll(60),ArrowUp:()=>t.scroll(-60),PageDown:()=>t.scroll(i),PageUp:()=>t.scroll(-i),Home:()=>t.scroll(-1/0),End:()=>t.scroll(1/0),"+":()=>t.tool("in"),"=":()=>t.tool("in"),"-":()=>t.tool("out")}[e.key];a&&d(e)&&(e.preventDefault(),e.stopPropagation(),t.moved(),a())}paintWhole(e,t){let{state:{places:i,pen:a},whole:n,scale:o}=this,s=n.getContext("2d"),{node:r,arc:l,sections:d}=i.scene,p=a.ink;n.width=e*t,n.height=this.height*t,s.setTransform(t,0,0,t,0,0);let h=e=>(e-30)*o,w=(e-8)*.36,b=[4,e-4-w];for(let t of d)s.fillStyle=p.rule,s.fillRect(0,h(t.y),e,1);for(let e=0;e<r.y.length;e++)3&r.flags[e]||(s.fillStyle=p.strokes[r.side[e]],s.fillRect(b[r.side[e]],h(r.y[e]),w,Math.max(.75,r.height[e]*o-.25)));s.lineWidth=.75;for(let e=0;e<l.y0.length;e++)0===l.shape[e]&&(s.strokeStyle=p.arcs[l.style[e]],s.beginPath(),s.moveTo(b[0]+w,h(l.y0[e])),s.lineTo(b[1],h(l.y1[e])),s.stroke())}draw(){let{places:e,pen:t,ratio:i}=this.state,a=this.wide=this.canvas.clientWidth||this.wide;if(!a||!e.scene||this.height<=0)return;let n=[e.scene,t.ink,a,this.height,i];(!this.drawnOf||n.some((e,t)=>e!==this.drawnOf[t]))&&(this.drawnOf=n,this.canvas.width=a*i,this.canvas.height=this.height*i,this.paintWhole(a,i));let o=this.canvas.getContext("2d",{alpha:!1});o.setTransform(1,0,0,1,0,0),o.fillStyle=t.paper,o.fillRect(0,0,this.canvas.width,this.canvas.height),o.drawImage(this.whole,0,0),o.setTransform(i,0,0,i,0,0),this.drawChosen(o,a);let{from:s,tall:r}=this.window(),l=Math.max(1,(e.scene.height-30)*this.scale),d=r>=l-1;o.fillStyle=t.ink.select,o.globalAlpha=.12*!d,o.fillRect(0,s,a,r),o.globalAlpha=1,o.strokeStyle=document.activeElement===this.canvas?t.ink.select:t.ink.muted,o.lineWidth=document.activeElement===this.canvas?2:1,o.strokeRect(1,s+1,a-2,Math.min(r,this.height-s)-2);let p=d?0:Math.round(100*s/Math.max(1,l-r));this.canvas.setAttribute("aria-valuenow",String(Math.max(0,Math.min(100,p)))),this.canvas.setAttribute("aria-valuetext",d?"all of it":`${Math.round(100*r/l)} % of it, from ${Math.round(100*s/l)} %`)}drawChosen(e,t){let{state:{places:i,pen:a},scale:n}=this,{node:o,at:s}=i.scene,r=this.state.chosenPlace(),l=(i,a)=>{e.fillStyle=a,e.fillRect(0,(i-30)*n-1,t,2.5)};for(let e of i.matches??[])l(o.y[e]+o.height[e]/2,a.ink.found);r&&s&&l("arc"===r.kind?i.scene.arc.y0[r.index]:o.y[r.index]+o.height[r.index]/2,a.ink.select)}}let $={"Show in the outline":"Outline","Show in the trace":"Trace","Show on the memory curve":"Curve and peak"};function A({names:e,scope:t,symbol:i,text:a},n){return e.includes(n)?0:i===n||`.${t}.`.includes(`.${n}.`)?1:e.some(e=>e.startsWith(n))?2:e.some(e=>e.includes(n))?3:a.includes(n)?4:-1}class B{scene=null;zoom=1;left=0;top=0;width=0;heightPx=0;matches=null;placed=null;get scaleX(){return Math.max(1,this.zoom)}columns(){let e=[this.scene,this.zoom,this.left,this.width];return(!this.placed||e.some((e,t)=>e!==this.placed?.of[t]))&&(this.placed={of:e,columns:this.placeColumns()}),this.placed.columns}placeColumns(){let e=44*!!this.scene?.bar.side.length,t=Math.max(this.width,330+2*e),i=t-2*e,a=i-24-18,n=a*(.16+(.27-.16)*Math.min(1,(i-330)/310)),o=.27*a,s=e=>e*this.scaleX-this.left,r=12+n+18+e,l=t-12-e-o;return{label:[s(12),s(12+n)],sides:[[s(r),s(r+o)],[s(l),s(l+o)]],width:t*this.scaleX}}y(e){return 30+(e-30)*this.zoom-this.top}worldY(e){return(e+this.top-30)/this.zoom+30}clamp(){if(!this.scene)return;let e=30+(this.scene.height-30)*this.zoom+14;this.top=Math.max(0,Math.min(this.top,e-this.heightPx)),this.left=Math.max(0,Math.min(this.left,this.columns().width-this.width))}lane(){let{sides:e}=this.columns(),t=(e[0][1]+e[1][0])/2,i=33*this.scaleX;return[t-i,t+i]}away(e){return 2===this.scene.arc.style[e]&&0===this.scene.arc.shape[e]}barAt(e){let{bar:t}=this.scene,{sides:i}=this.columns(),a=t.side[e],n=(8+8*t.column[e])*this.scaleX,o=e=>Math.max(this.y(e),36-this.top);return{x:0===a?i[0][0]-n:i[1][1]+n,issue:o(t.y0[e]),wait:o(t.y1[e])}}barHit(e,t){let{bar:i,strings:a}=this.scene,n=null,o=5;for(let s=0;s<i.side.length;s++){let r=this.barAt(s),l=Math.min(r.issue,r.wait)-5,d=Math.max(r.issue,r.wait)+5;if(t<l||t>d||Math.abs(e-r.x)>=o)continue;o=Math.abs(e-r.x);let p=Math.abs(t-r.issue)<Math.abs(t-r.wait)?"issue":"wait";n={kind:"bar",index:s,end:p,id:a[i[p][s]]}}return n}nodeNear(e,t){let{node:i,columns:a}=this.scene,n=-1,o=1/0;for(let s of a[e]){let a=Math.abs(this.y(0===e?i.y[s]:i.y[s]+i.height[s])-t);a<o&&([n,o]=[s,a])}return n}markBox(e){let{node:t,mark:i,marksOf:a}=this.scene,n=i.node[e],o=Math.max(1,this.zoom),{right:s,width:r}=a.get(n).find(t=>t.index===e),[,l]=this.columns().sides[t.side[n]],d=13*o;return{left:l-(s+r)*o,top:this.y(t.y[n])+Math.min(17,t.height[n])*this.zoom/2-d/2,width:r*o,height:d}}curve(e){let{arc:t}=this.scene,{sides:i}=this.columns(),a=this.y(t.y0[e]),n=this.y(t.y1[e]);if(this.away(e)){let e=i[0][1],[t]=this.lane(),n=(t-e)*.6;return[e,a,e+n,a,t-n,a,t,a]}if(1===t.shape[e]){let o=0===t.side[e]?1:-1,s=i[t.side[e]][+(0===t.side[e])],r=Math.min(46,20+.12*Math.abs(n-a))*o;return[s,a,s+r,a,s+r,n,s,n]}let o=i[0][1],s=i[1][0],r=(s-o)*.5;return[o,a,o+r,a,s-r,n,s,n]}wayBack(e){let{arc:t}=this.scene,{sides:i}=this.columns(),[,a]=this.lane(),n=this.y(t.y0[e]),o=this.y(t.y1[e]),s=i[1][0],r=(s-a)*.6;return[a,n,a+r,n,s-r,o,s,o]}locate(e){let t=this.scene?.at.get(e);if(!t)return null;let{node:i}=this.scene;if("node"===t.kind){let[e,a]=this.columns().sides[i.side[t.index]];return{x:(e+a)/2,y:this.y(i.y[t.index]+i.height[t.index]/2)}}if("mark"===t.kind){let e=this.markBox(t.index);return{x:e.left+e.width/2,y:e.top+e.height/2}}if("module"===t.kind){let{module:e}=this.scene,[i,a]=this.columns().sides[0];return{x:(i+a)/2,y:this.y(e.y[t.index]+e.height[t.index]/2)}}if("bar"===t.kind){let{x:e,issue:i,wait:a}=this.barAt(t.index);return{x:e,y:(i+a)/2}}return this.handle(t.index)}handle(e){let[t,i]=this.curve(e);if(this.away(e)){let[e,t]=this.lane();return{x:(e+t)/2,y:i}}return 1!==this.scene.arc.shape[e]?{x:t+32,y:i}:{x:t+(1===this.scene.arc.side[e]?-9:9),y:i}}get far(){return!this.labelled()&&!this.matches&&this.scene.module.y.length>0}bands(){let{module:e}=this.scene,t=e.y.length,i=[],a=t=>e.height[t]*this.zoom;for(let n=0;n<t;){let o=n+1,s=0;for(;o<t&&e.depth[o]>e.depth[n];o++)e.depth[o]===e.depth[n]+1&&a(o)>=11&&(s+=a(o));a(n)>=11&&s<.5*a(n)?(i.push(n),n=o):n++}return i}hit(e,t){if(!this.scene||t<30||t>this.heightPx)return null;let{node:i,arc:a,sections:n,strings:o}=this.scene,{sides:s}=this.columns();for(let[e,i]of n.entries()){let a=this.y(i.y);if(t>=a&&t<a+Math.max(14,26*this.zoom))return{kind:"section",index:e,id:`fold:${i.stem}`}}let r=this.barHit(e,t);if(r)return r;let l=this.worldY(t);if(this.far&&(e<=s[0][1]||e>=s[1][0])){let{module:e}=this.scene,t=this.bands().find(t=>e.y[t]<=l&&l<e.y[t]+e.height[t]);if(void 0!==t)return{kind:"module",index:t,id:`module:${o[e.scope[t]]}`}}for(let t of[0,1]){if(e<s[t][0]||e>s[t][1])continue;let a=this.scene.columns[t],n=a[x(a,i,l)];if(void 0!==n&&i.y[n]<=l&&this.labelled())for(let{index:t}of this.scene.marksOf.get(n)??[]){let i=this.markBox(t);if(e>=i.left-1&&e<=i.left+i.width+1)return{kind:"mark",index:t,id:o[this.scene.mark.id[t]]}}if(void 0!==n&&i.y[n]<=l)return{kind:"node",index:n,id:o[i.id[n]]};return null}let d=null,p=6;for(let i=0;i<a.y0.length;i++){let n=Math.min(this.y(a.y0[i]),this.y(a.y1[i]))-10,o=Math.max(this.y(a.y0[i]),this.y(a.y1[i]))+10;if(t<n||t>o)continue;let s=this.handle(i),r=1===a.shape[i]?6:30,l=this.labelled()&&Math.abs(e-s.x)<r&&Math.abs(t-s.y)<8*Math.max(1,this.zoom)?-1:Math.min(P(this.curve(i),e,t),this.away(i)?P(this.wayBack(i),e,t):1/0);l<p&&([d,p]=[i,l])}return null===d?null:{kind:"arc",index:d,id:o[a.id[d]]}}labelled(){return this.zoom>=.6}}function P([e,t,i,a,n,o,s,r],l,d){let p=1/0,h=e,w=t;for(let b=1;b<=24;b++){let c=b/24,u=1-c,f=u*u*u*e+3*u*u*c*i+3*u*c*c*n+c*c*c*s,x=u*u*u*t+3*u*u*c*a+3*u*c*c*o+c*c*c*r,m=f-h,g=x-w,v=m*m+g*g||1,y=Math.max(0,Math.min(1,((l-h)*m+(d-w)*g)/v));p=Math.min(p,Math.hypot(l-h-y*m,d-w-y*g)),[h,w]=[f,x]}return p}class C{constructor(e){this.context=e,this.ink=c,this.paper=c.paper,this.texts=new Map,this.fontKey=""}font(e,t=w,i=400){this.context.font=`${i} ${e}px ${t}`,this.fontKey=`${i} ${e} ${t===w?"m":"s"}`}shorten(e,t){let i=`${this.fontKey}|${Math.floor(t)}|${e}`,a=this.texts.get(i);if(void 0!==a)return a;if(a=e,this.context.measureText(e).width>t){let i=0,n=e.length;for(;i<n;){let a=i+n+1>>1;this.context.measureText(`${e.slice(0,a).trimEnd()}…`).width<=t?i=a:n=a-1}a=i?`${e.slice(0,i).trimEnd()}…`:""}return this.texts.size>2e4&&this.texts.clear(),this.texts.set(i,a),a}}class O{constructor(e,t){this.model=e,this.places=new B,this.pen=new C(t.getContext("2d",{alpha:!1})),this.readOnly=!0===e.get("read_only"),this.ratio=1,this.hover=null,this.drag=null,this.asked=new Map}get selected(){return this.model.get("selected")}chosenPlace(){let{at:e,columns:t,module:i,node:a}=this.places.scene,n=e.get(this.selected);return n?.kind==="module"?{kind:"node",index:t[0][Math.min(t[0].length-1,x(t[0],a,i.y[n.index]))]}:n?.kind==="bar"?{kind:"node",index:this.places.scene.bar.issue_node[n.index]}:n?.kind==="mark"?{kind:"node",index:this.places.scene.mark.node[n.index]}:n}}function j(e,t){let{node:i,arc:a,mark:n,module:o,strings:s}=e,r=[];if("module"===t.kind){let e=t.index,i=s[o.saved[e]];r.push(["b",s[o.scope[e]]],["",`${o.forward[e]} statements in the forward, ${o.backward[e]} in the backward`]),r.push(["",`↓ ${s[o.forward_ops[e]]}`],["",o.backward[e]?`↑ ${s[o.backward_ops[e]]}`:""]),r.push(["",i&&`${i} saved for the backward`],["i","Double click, or Enter: zoom in"])}else if("node"===t.kind){let e=t.index,a=i.flags[e];r.push(["b",s[i.full[e]]],["",s[i.detail[e]]]);let n=[i.bytes[e]?function(e){let t=["B","KiB","MiB","GiB","TiB"],i=Math.abs(e),a=0;for(;i>=999.5&&a<t.length-1;)i/=1024,a++;let n=0===a||i>=100?0:i>=10?1:2;return`${e<0?"−":""}${i.toFixed(n)} ${t[a]}`}(i.bytes[e]):"",s[i.executor[e]],4&a?"random":"",16&a?"view, no memory of its own":"",8&a?"computed again in the backward":"",32&a?"collective":""];r.push(["",n.filter(Boolean).join(" \xb7 ")],["i",s[i.about[e]]])}else{let i="mark"===t.kind?n.tip:"bar"===t.kind?e.bar.tip:a.tip;r.push(...s[i[t.index]].split("\n").map((e,t)=>[t?"":"b",e]))}return r}class E{constructor(e,t){let i,a;this.model=e,this.el=t,this.refitUntil=0,this.atFit=!0,this.pending=0,this.drawn=0,this.preview=(i=0,a="null",t=>{clearTimeout(i);let n=JSON.stringify(t);i=window.setTimeout(()=>{n!==a&&(a=n,e.send({type:"preview",...t}))},t?120:300)}),this.received=0,this.coming=!1,this.wanted="",this.clicked=[],this.closeMenu=()=>{},this.hits=[],this.current="",this.walked=!1,this.typed=!1,this.index=null,this.indexAsked=!1,this.build(),this.paintTheme(),this.receive(e.get("data"))}async receive(e){let t=++this.received;if(e?.packed){if("u"<typeof DecompressionStream)return void this.model.send({type:"plain"});if(this.coming=!0,e=await async function(e){let t=new Blob([e]).stream().pipeThrough(new DecompressionStream("deflate")),i=await new Response(t).arrayBuffer(),a=new DataView(i).getUint32(0,!0),n=JSON.parse(new TextDecoder().decode(new Uint8Array(i,4,a))),o=new Uint8Array(i,4+a,n.strings);n.strings=new TextDecoder().decode(o).split("\0");let s=4+a+o.length;for(let e of Object.values(n.tables))for(let t of Object.values(e)){let e=t[1];t[1]=new DataView(i,s,e),s+=e}return n}(e.packed),t!==this.received)return}this.coming=!1,this.take(function(e){let t;if(!e?.strings)return null;let i={strings:e.strings,sections:e.sections,height:e.height,views:e.views??{count:0,hidden:0}};for(let[t,a]of Object.entries(e.tables))for(let[e,[n,o]]of(i[t]={},Object.entries(a)))i[t][e]=function(e,t){let{buffer:i,byteOffset:a=0,byteLength:n}=t instanceof ArrayBuffer?{buffer:t,byteLength:t.byteLength}:t;return new e(i.slice(a,a+n))}(f[n],o);i.module??={y:[],height:[],depth:[]},i.choice??={id:[]};let{node:a,arc:n,module:o}=i;i.at=new Map;for(let e=o.y.length-1;e>=0;e--)i.at.set(`module:${i.strings[o.scope[e]]}`,{kind:"module",index:e});for(let e=0;e<a.id.length;e++)i.at.set(i.strings[a.id[e]],{kind:"node",index:e});for(let e=0;e<n.id.length;e++)i.at.set(i.strings[n.id[e]],{kind:"arc",index:e});for(let e=0;e<i.alias.id.length;e++){let t=i.alias.mark[e];i.at.set(i.strings[i.alias.id[e]],t<0?{kind:"arc",index:i.alias.arc[e]}:{kind:"mark",index:t})}i.marksOf=new Map;for(let e=0;e<i.mark.id.length;e++){i.at.set(i.strings[i.mark.id[e]],{kind:"mark",index:e});let t=i.mark.node[e],a=i.marksOf.get(t)??[],n=a.length?a.at(-1).right+a.at(-1).width+3:3;i.marksOf.set(t,[...a,{index:e,right:n,width:5.8*i.strings[i.mark.text[e]].length+11}])}i.endOf=new Map;for(let e=0;e<i.bar.side.length;e++)for(let t of["issue","wait"]){let a=i.strings[i.bar[t][e]];i.endOf.set(a,{index:e,end:t}),i.at.has(a)||i.at.set(a,{kind:"bar",index:e})}i.lane=n.style.includes(2),i.columns=[0,1].map(e=>Array.from(a.y.keys()).filter(t=>a.side[t]===e).sort((e,t)=>a.y[e]-a.y[t])),i.arcsFrom=new Map;for(let e=0;e<n.source.length;e++)for(let t of[n.source[e],n.target[e]])i.arcsFrom.has(t)||i.arcsFrom.set(t,[]),i.arcsFrom.get(t).push(e);return i.spines=function({y:e,height:t,fusion:i,side:a}){let n=new Map;for(let o=0;o<e.length;o++){let s=2*i[o]+a[o],r=n.get(s);r?(r.to=e[o]+t[o]/2,r.pieces++):n.set(s,{from:e[o]+t[o]/2,to:e[o],side:a[o],pieces:1,fusion:i[o]})}return Array.from(n.values()).filter(({pieces:e})=>e>1)}(i.run),Object.defineProperty(i,"neighbours",{enumerable:!0,get:()=>t??=function({source:e,target:t}){let i=new Map,a=e=>(i.has(e)||i.set(e,{into:[],out:[]}),i.get(e));for(let i=0;i<e.length;i++)a(e[i]).out.push(t[i]),a(t[i]).into.push(e[i]);return i}(i.edge)}),i}(e)),this.wanted&&this.reveal(this.wanted,!0),this.wanted=""}build(){let{el:e,model:t}=this,i=!0===t.get("read_only"),a=`Arrows move,${i?"":" space turns the selected choice, Shift+F10 opens its menu,"} ${i?"":" o folds or unfolds identical layers,"} slash searches, question mark lists all keys.`;e.classList.add("wb-graph"),e.dataset.lmSuppressShortcuts="true",e.style.height=`${t.get("height")}px`,e.innerHTML=`
      <canvas tabindex="0" role="application"
        aria-label="Joint graph. ${a}"></canvas>
      <div class="wb-foot">
        <span class="wb-key-row"></span>
        <button data-do="legend" aria-expanded="false" title="What every line, box and colour means">Legend</button>
        <button data-do="views" hidden title="Statements that own no memory: reshapes, transposes, slices, shallow_copy"></button>
        <span class="wb-find">
          <input type="search" placeholder="Search  /" aria-label="Search statements" title="A name, a value, a module such as layers.17, a source line" spellcheck="false">
          <span class="wb-found" aria-live="polite"></span>
          <button data-do="previous" title="Previous (Shift + Enter)" aria-label="Previous match">↑</button>
          <button data-do="next" title="Next (Enter)" aria-label="Next match">↓</button>
        </span>
        <button data-do="out" title="Zoom out (ctrl + wheel)">−</button>
        <button data-do="in" title="Zoom in (ctrl + wheel)">+</button>
        <button data-do="one" title="Actual size (1)">1:1</button>
        <button data-do="fit" title="Show all of the graph (f)">Show all</button>
      </div>
      <div class="wb-tip" hidden></div>
      <span class="wb-unseen" role="status"></span>`,this.viewsButton=e.querySelector('[data-do="views"]'),this.keys=e.querySelector(".wb-key-row"),this.canvas=e.querySelector("canvas"),this.search=e.querySelector("input"),this.found=e.querySelector(".wb-found"),this.tip=e.querySelector(".wb-tip"),this.told=e.querySelector('[role="status"]'),this.state=new O(t,this.canvas),this.places=this.state.places,this.pen=this.state.pen,this.stop=new AbortController;let n=(e,t,i,a={})=>e.addEventListener(t,i,{signal:this.stop.signal,...a});n(this.canvas,"pointerdown",e=>this.onDown(e)),n(this.canvas,"pointermove",e=>this.onMove(e)),n(this.canvas,"pointerup",e=>this.onUp(e)),n(this.canvas,"dblclick",()=>this.onDouble()),n(this.canvas,"contextmenu",e=>this.onMenu(e)),n(this.canvas,"pointerleave",()=>this.setHover(null)),n(this.canvas,"wheel",e=>this.onWheel(e),{passive:!1}),n(this.canvas,"keydown",e=>this.onKey(e)),n(this.canvas,"focus",()=>this.redraw()),n(this.canvas,"blur",()=>{this.preview(null),this.redraw()}),n(this.search,"input",()=>this.onSearch()),n(this.search,"focus",()=>{this.setHover(null),this.askIndex()}),n(this.search,"keydown",e=>this.onSearchKey(e)),n(e.querySelector(".wb-foot"),"click",e=>this.onTool(e.target.closest("[data-do]")?.dataset.do)),this.overview=new M(this.state,{moved:()=>{this.atFit=!1},scroll:e=>this.scroll(e),tool:e=>this.onTool(e),redraw:()=>this.redraw(),scrollTo:e=>{this.atFit=!1,this.places.top=e,this.setHover(null),this.places.clamp(),this.redraw()}},this.stop.signal),this.sizes=new ResizeObserver(()=>this.resize()),this.sizes.observe(e),this.themes=new MutationObserver(()=>this.paintTheme()),this.themes.observe(document.body,{attributes:!0,attributeFilter:["data-jp-theme-light","data-jp-theme-name","class"]}),this.onData=()=>{this.receive(t.get("data"))},this.onSelected=()=>{this.tell(),this.redraw()},this.onAsked=()=>{this.coming||(this.takeAsked(),this.redraw())},this.onReveal=e=>{e?.type==="index"&&this.takeIndex(e),e?.type==="reveal"&&(this.coming?this.wanted=e.id:this.reveal(e.id,!0))},t.on("change:data",this.onData),t.on("change:selected",this.onSelected),t.on("change:asked",this.onAsked),t.on("msg:custom",this.onReveal)}take(e){let{places:t}=this;this.closeMenu();let i=t.scene&&e?this.heldBy(e):null,a=!t.scene;t.scene=e,this.takeAsked(),performance.now()<this.refitUntil||a&&this.atFit&&t.width?this.fit():i&&(t.top+=t.locate(i.id).y-i.y),this.keys.replaceChildren(...(e?function(e){let{arc:t,node:i,bar:a}=e,n=new Set(t.style.filter((e,i)=>0===t.shape[i]));return[n.has(0)&&["saved","saved"],n.has(1)&&["again","recomputed"],n.has(2)&&["away","on the CPU"],i.flags.some(e=>1&e)&&["fusion","fusion"],t.shape.includes(1)&&["cut","between fusions"],a.side.length>0&&["wire","on its way, from issue to wait"]].filter(Boolean)}(e):[]).map(([e,t])=>r("span",{class:`wb-key wb-key-${e}`},t))),this.nameViews(),this.index=null,this.indexAsked=this.typed=!1,t.matches=null,e&&this.search.value.trim()&&(this.askIndex(),this.find()),this.pen.texts.clear(),this.setHover(null),t.clamp(),this.redraw()}takeAsked(){let e=Object.entries(this.model.get("asked")??{});this.state.asked=new Map(e.map(([e,t])=>[this.places.scene?.at.get(e),t]).filter(([e])=>e?.kind==="arc").map(([e,t])=>[e.index,t]))}heldBy(e){let{places:t}=this,{node:i,columns:a,strings:n}=t.scene,o=t.worldY(30),s=({y:e})=>e>=30&&e<=t.heightPx,r=a[0].slice(x(a[0],i,o)).map(e=>n[i.id[e]]);for(let i of[this.state.selected,...r]){let a=i&&e.at.has(i)?t.locate(i):null;if(a&&s(a))return{id:i,y:a.y}}return null}nameViews(){let{count:e,hidden:t}=this.places.scene?.views??{count:0,hidden:0};this.viewsButton.hidden=0===e||this.state.readOnly;let i=r("span",{class:"wb-rest"},"reshapes and other ");this.viewsButton.replaceChildren(...t?[`Show ${t} `]:[`Hide ${e} `],i,"views")}redraw(){this.pending||(this.pending=requestAnimationFrame(()=>{this.pending=0,this.draw()}))}draw(){if(!this.places.width)return;let e=performance.now();!function(e){let{places:t,pen:i}=e,a=i.context;if(a.setTransform(e.ratio,0,0,e.ratio,0,0),a.fillStyle=i.paper,a.fillRect(0,0,t.width,t.heightPx),t.scene){let i=t.worldY(0),n=t.worldY(t.heightPx+30);a.textBaseline="middle",a.textAlign="left",function(e,t,i){let{places:a,pen:n}=e,o=n.context,{line:s,block:r,strings:l}=a.scene,{label:d}=a.columns(),p=n.ink,h=11*Math.max(1,a.zoom),c=15*Math.max(1,a.zoom),u=26*a.zoom<14?k(a):[],{module:f}=a.scene,x=a.far?a.bands():[];for(let m=0,g=0;m<s.y.length;m++){if(s.y[m]+s.height[m]<t)continue;if(s.y[m]>i)break;for(;g<x.length&&f.y[x[g]]+f.height[x[g]]<=s.y[m];)g++;if(g<x.length&&f.y[x[g]]<=s.y[m])continue;let v=Math.min(s.y[m]+s.height[m],g<x.length?f.y[x[g]]:1/0),y=a.y(s.y[m]),k=a.y(v);k-y>3&&(o.fillStyle=p.hair,o.fillRect(d[0],Math.round(y),a.width*a.scaleX,1));let S=Math.max(y,T(u,y),Math.min(30,k-2*c-6)),z=k-S;if(z<c-1)continue;let M=d[1]-d[0],$=Math.floor((z-3)/c),A=S+($<1?z/2:4+c/2),B=l[s.text[m]]||l[r.symbol[s.block[m]]],P=l[s.place[m]];if($>=2){n.font(h),o.fillStyle=p.ink,o.fillText(n.shorten(B,M),d[0],A),A+=c,n.font(h-.5,b),o.fillStyle=p.muted,o.fillText(n.shorten(P,M),d[0],A),function({places:e,pen:t},i,a,n){if(!e.labelled())return;let o=t.context,{line:s,block:r,strings:l}=e.scene,{label:d}=e.columns();if(!(s.count[i]<2)){t.font(n-.5,w),o.fillStyle=t.ink.muted,o.textAlign="right";for(let p=s.block[i];p<s.block[i]+s.count[i];p++){let i=e.y(r.y[p])+13*e.zoom;i-n/2<a||o.fillText(t.shorten(l[r.symbol[p]],d[1]-d[0]),d[1],i)}o.textAlign="left"}}(e,m,A+c/2,h);continue}n.font(h-.5,b);let C=l[s.short[m]],O=C?o.measureText(C).width+10:0,j=O>0&&M-O>90;j&&(o.fillStyle=p.muted,o.textAlign="right",o.fillText(C,d[1],A),o.textAlign="left"),n.font(h),o.fillStyle=p.ink,o.fillText(n.shorten(B,j?M-O:M),d[0],A)}}(e,i,n);let o=function(e,t,i){let{places:a,pen:n}=e,o=n.context,{sections:s}=a.scene,{label:r}=a.columns(),l=n.ink,d=[];for(let p of s){if(p.y+p.height<t||p.y>i)continue;let s=Math.round(a.y(p.y)),h=26*a.zoom,w=a.columns().width-a.left;if(o.fillStyle=l.rule,o.fillRect(0,Math.round(a.y(p.y+p.height)),w,1),!y(a,p))continue;let c=h<14;o.fillStyle=l.band,o.fillRect(0,s,c?r[1]+6:w,Math.max(h,14)),o.fillStyle=l.rule,o.fillRect(0,s,w,1);let u=11.5*Math.max(1,a.zoom),f=s+Math.max(h,14)/2;n.font(u,b,600),o.fillStyle=l.ink;let x=p.count>1,m=p.identical>1,g=m&&!e.readOnly,v=g?x?"▸ ":"▾ ":"",k=c?r[1]-r[0]:a.width/2,T=n.shorten(`${v}${function(e,{first:t,last:i,count:a},n){let o=t.lastIndexOf("."),s=i.slice(i.lastIndexOf(".")+1),r=t.slice(t.lastIndexOf(".",o-1)+1),l=a>1?[`${t} … ${i}`,`${t} … ${s}`,`${r} … ${s}`]:[t,r];return l.find(t=>e.context.measureText(t).width<=n)??l[l.length-1]}(n,p,k-o.measureText(v).width)}`,k);if(o.fillText(T,r[0],f),!m&&!p.differs||c)continue;let S=r[0]+o.measureText(T).width+10;n.font(u-.5,b);let z=p.stem.startsWith("loop:")?"repeats":"layers",M=`${p.count} identical ${z} shown as one`,$=[g?x?`${M}, click to unfold`:`click to fold identical ${z}`:x?M:"",p.differs&&`differs from above: ${p.differs}`].filter(Boolean).join("; ");d.push({text:n.shorten($,a.width-S-12),x:S,middle:f,size:u-.5})}return d}(e,i,n);(function({places:e,pen:t},i,a){let n=t.context,{run:o}=e.scene,{sides:s}=e.columns(),r=t.ink;for(let t=0;t<o.y.length;t++){if(o.y[t]+o.height[t]<i||o.y[t]>a)continue;let[l,d]=s[o.side[t]],p=e.y(o.y[t])-2,h=o.height[t]*e.zoom+4;n.beginPath(),n.roundRect(l-4,p,d-l+8,h,Math.min(5,h/2)),n.fillStyle=r.fusionFill,n.fill(),n.lineWidth=1,n.strokeStyle=r.fusion,n.stroke()}for(let{from:t,to:o,side:l,fusion:d}of(n.strokeStyle=r.fusion,n.lineWidth=1,e.scene.spines)){if(o<i||t>a)continue;let r=6+d%2*3,p=0===l?s[0][0]-r:s[1][1]+r,h=0===l?s[0][0]-4:s[1][1]+4;n.beginPath(),n.moveTo(h,e.y(t)),n.lineTo(p,e.y(t)),n.lineTo(p,e.y(o)),n.lineTo(h,e.y(o)),n.stroke()}})(e,i,n),function({places:e,pen:t}){if(!e.scene.lane)return;let i=t.context,[a,n]=e.lane();i.fillStyle=t.ink.arcs[2],i.globalAlpha=.08,i.fillRect(a,30,n-a,e.heightPx),i.globalAlpha=.35,i.fillRect(a,30,1,e.heightPx),i.fillRect(n-1,30,1,e.heightPx),i.globalAlpha=1}(e),function(e,t,i){let{places:a,pen:n}=e,o=n.context,{arc:s,strings:r}=a.scene;n.ink;let l=a.scene.at.get(e.selected),d=l?.kind==="node"?new Set(a.scene.arcsFrom.get(l.index)??[]):null,p=[],h=a.labelled()?null:new Set;for(let r=0;r<s.y0.length;r++){if(Math.max(s.y0[r],s.y1[r])<t||Math.min(s.y0[r],s.y1[r])>i)continue;let w=l?.kind==="arc"&&l.index===r||d?.has(r)||e.hover?.kind==="arc"&&e.hover.index===r,b=1===s.shape[r],c=e.asked?.get(r),u=c??s.style[r],f=m(e,r,u);if(h&&!w&&void 0===c){let e=((1048576*Math.round(a.y(s.y0[r]))+Math.round(a.y(s.y1[r])))*4+u)*8+2*s.shape[r]+s.side[r];if(h.has(e))continue;h.add(e)}g(n,a.curve(r)),a.away(r)&&g(n,a.wayBack(r),!0),o.lineWidth=b?w?2.5:1.25:s.width[r]*Math.max(.5,Math.min(1,1.5*a.zoom))+1.5*!!w,o.strokeStyle=f,o.globalAlpha=w?1:d?.35:.85,o.setLineDash(1===u?[6,4]:2===u?[1.5,4]:[]),o.lineCap=2===u?"round":"butt",o.stroke(),o.setLineDash([]),o.lineCap="butt",o.globalAlpha=1,(!b||w||void 0!==c)&&p.push([r,f,w,c]),b&&a.zoom>.3&&function({places:e,pen:t},i,a){let n=t.context,{x:o,y:s}=e.handle(i);n.beginPath(),n.arc(o,s,3.5,0,2*Math.PI),n.fillStyle=t.paper,n.fill(),n.lineWidth=1.5,n.strokeStyle=a,n.stroke()}(e,r,f)}if(!a.labelled())return;let b=Math.max(1,a.zoom);for(let[e,t,i,l]of(n.font(10*b,w,500),p)){let[d,p]=a.curve(e),h=r[s.label[e]]+(void 0===l?"":" …"),w=o.measureText(h).width+10,c=a.away(e)?a.handle(e).x-w/2:1!==s.shape[e]?d+6:0===s.side[e]?d+16:d-16-w;o.beginPath(),o.roundRect(c,p-7*b,w,14*b,7*b),o.fillStyle=n.paper,o.fill(),o.lineWidth=i?1.5:.75,o.strokeStyle=t,o.globalAlpha=i?1:.55,o.stroke(),o.globalAlpha=1,o.fillStyle=t,o.fillText(h,c+5,p+.5)}}(e,i,n),function({pen:e},t){let i=e.context,a=e.ink;for(let{text:n,x:o,middle:s,size:r}of t)e.font(r,b),i.fillStyle=a.band,i.fillRect(o-3,s-.7*r,i.measureText(n).width+6,1.4*r),i.fillStyle=a.muted,i.fillText(n,o,s)}(e,o),function(e){let{places:t,pen:i}=e,a=i.context,{bar:n,endOf:o}=t.scene,s=o.get(e.selected)?.index;for(let o=0;o<n.side.length;o++){let r=t.barAt(o),l=e.drag?.bar?.index===o&&e.drag.moved;if(l&&(r[e.drag.bar.end]=e.drag.at),30>Math.max(r.issue,r.wait)||Math.min(r.issue,r.wait)>t.heightPx)continue;let d=l||o===s?i.ink.select:i.ink.arcs[2];for(let t of(a.strokeStyle=a.fillStyle=d,a.lineWidth=l||o===s||e.hover?.kind==="bar"&&e.hover.index===o?4:2.5,a.setLineDash(h[Math.max(n.group[o],0)%h.length]),a.beginPath(),a.moveTo(r.x,r.issue),a.lineTo(r.x,r.wait),a.stroke(),a.setLineDash([]),["issue","wait"]))a.beginPath(),a.arc(r.x,r[t],3.5,0,2*Math.PI),a.fillStyle="wait"===t?d:i.paper,a.fill(),a.lineWidth=1.5,a.stroke()}if(e.drag?.bar&&e.drag.moved){let{node:o,strings:s}=t.scene,r=e.drag.target;if(r>=0){v(e,r,i.ink.select,2),i.font(11,b,600);let l=n.side[e.drag.bar.index],{sides:d}=t.columns(),p=`${e.drag.bar.end} before ${s[o.name[r]]}`,h=a.measureText(p).width,w=0===l?d[0][1]+8:d[1][0]-8-h;a.fillStyle=i.paper,a.fillRect(w-4,e.drag.at-9,h+8,18),a.fillStyle=i.ink.select,a.fillText(p,w,e.drag.at)}}}(e),function(e,t,i){let{places:a,pen:n}=e,o=n.context,{node:s,strings:r,columns:l}=a.scene,{sides:d}=a.columns(),p=n.ink,h=20*a.zoom>=12,c=11*Math.max(Math.min(a.zoom,3),a.zoom<1?.91:1),{module:u}=a.scene,f=a.far?a.bands():[];for(let m of[0,1]){let g=l[m],[v,y]=d[m],k=0===m?u.forward:u.backward,T=new Path2D;for(let l=x(g,s,t),d=0;l<g.length;l++){let t=g[l];if(s.y[t]>i)break;for(;d<f.length&&u.y[f[d]]+u.height[f[d]]<=s.y[t];)d++;if(d<f.length&&k[f[d]]&&u.y[f[d]]<=s.y[t])continue;let x=s.flags[t],S=a.y(s.y[t]),z=Math.max(.75,s.height[t]*a.zoom),M=a.matches?.has(t);if(1&x){if(h){n.font(c,b,600),o.fillStyle=M?p.select:p.fusionText;let e=r[s.detail[t]],i=n.shorten(r[s.name[t]],y-v-12);o.fillText(i,v+4,S+z/2);let a=y-v-20-o.measureText(i).width;n.font(c-.5,b),o.textAlign="right",a>30&&o.fillText(n.shorten(e,a),y-4,S+z/2),o.textAlign="left"}continue}if(z<=5&&!M&&!(2&x)){T.rect(v,S,y-v,z);continue}let $=Math.min(3.5,z/3);if(o.beginPath(),z>5?o.roundRect(v,S,y-v,z,$):o.rect(v,S,y-v,z),2&x?(o.setLineDash([4,3]),o.lineWidth=1,o.strokeStyle=p.arcs[1],o.stroke(),o.setLineDash([])):(o.fillStyle=M?p.found:z>5?p.fills[m]:p.strokes[m],o.fill(),z>5&&(o.lineWidth=1,o.strokeStyle=8&x?p.arcs[1]:p.strokes[m],8&x&&o.setLineDash([4,3]),o.stroke(),o.setLineDash([]))),!h||z<9)continue;let A=S+z/2,B=7*Math.max(1,a.zoom),P=a.scene.marksOf.get(t),C=P?.at(-1),O=C?(C.right+C.width)*Math.max(1,a.zoom):0;n.font(Math.min(c,z),w,500),o.fillStyle=2&x?p.arcs[1]:p.texts[m];let j=n.shorten(r[s.name[t]],y-v-2*B-O);o.fillText(j,v+B,A);let E=y-v-2*B-O-o.measureText(j).width-10;P&&function(e,t){let{places:i,pen:a}=e,n=a.context,{mark:o,strings:s}=i.scene,r=i.scene.at.get(e.selected);for(let{index:l}of i.scene.marksOf.get(t)??[]){let{left:t,top:d,width:p,height:h}=i.markBox(l),b=o.state[l],c=r?.kind==="mark"&&r.index===l||e.hover?.kind==="mark"&&e.hover.index===l,u=1&b?a.ink.select:2&b?a.ink.muted:a.ink.fusionText;n.beginPath(),n.roundRect(t,d,p,h,h/2),n.fillStyle=1&b?u:a.paper,n.fill(),n.lineWidth=c?2:.75,n.strokeStyle=u,2&b&&n.setLineDash([2,2]),n.stroke(),n.setLineDash([]),a.font(9.5*Math.max(1,i.zoom),w,500),n.fillStyle=1&b?a.paper:u,n.textAlign="center",n.fillText(s[o.text[l]],t+p/2,d+h/2+.5),n.textAlign="left"}}(e,t),n.font(Math.min(c-1,z-.5),w);let L=r[s.detail[t]],R=o.measureText(L).width<=E?L:r[s.shape[t]];R&&o.measureText(R).width<=E&&(o.fillStyle=p.soft[m],o.textAlign="right",o.fillText(R,y-B-O,A),o.textAlign="left")}o.fillStyle=p.strokes[m],o.fill(T)}}(e,i,n),function(e,t,i){let{places:a,pen:n}=e;if(!a.far)return;let o=n.context,{module:s,strings:r}=a.scene,{label:l,sides:d}=a.columns(),p=n.ink,h=k(a),c=[];for(let u of a.bands()){if(s.y[u]+s.height[u]<t||s.y[u]>i)continue;let f=a.y(s.y[u]),x=f+s.height[u]*a.zoom,m=(f+x)/2,g=e.hover?.kind==="module"&&e.hover.index===u,v=e.selected===`module:${r[s.scope[u]]}`;for(let e of[0,1]){let[t,i]=d[e],a=0===e?s.forward[u]:s.backward[u];if(!a)continue;o.beginPath(),o.roundRect(t+.5,f+.5,i-t-1,x-f-2,3.5),o.fillStyle=p.fills[e],o.fill(),o.lineWidth=v?2.5:g?1.5:1,o.strokeStyle=g||v?p.select:p.strokes[e],o.stroke();let l=x-f>=36,h=m-8*!!l,c=Math.min(11,x-f-2),y=i-t>170?`${a} statement${1===a?"":"s"}`:"";n.font(c-.5,b),o.fillStyle=p.soft[e],o.textAlign="right",o.fillText(y,i-8,h);let k=y?o.measureText(y).width+10:0;o.textAlign="left",n.font(c,w,500),o.fillStyle=p.texts[e],o.fillText(n.shorten(r[s.short[u]],i-t-14-k),t+7,h),l&&(n.font(10,w),o.fillStyle=p.soft[e],o.fillText(n.shorten(r[(0===e?s.forward_ops:s.backward_ops)[u]],i-t-14),t+7,m+9))}r[s.saved[u]]&&c.push([d[0][1]+6,m,Math.min(14,x-f-1),r[s.saved[u]]]);let y=Math.max(f,T(h,f));o.fillStyle=p.hair,o.fillRect(l[0],Math.round(x)-1,l[1]-l[0],1),!(x-y<11)&&r[s.name[u]]&&(n.font(11,w,500),o.fillStyle=g?p.select:p.ink,o.fillText(n.shorten(r[s.name[u]],l[1]-l[0]),l[0],(y+x)/2))}for(let[e,t,i,a]of c){n.font(Math.min(10,i-1),w,500);let s=o.measureText(a).width+10;o.beginPath(),o.roundRect(e,t-i/2,s,i,i/2),o.fillStyle=n.paper,o.fill(),o.lineWidth=.75,o.strokeStyle=o.fillStyle=p.arcs[0],o.stroke(),o.fillText(a,e+5,t+.5)}}(e,i,n),function(e){let{places:t,pen:i}=e,a=t.scene.at.get(e.selected),{canvas:n}=i.context,o=document.activeElement===n||n.getRootNode().activeElement===n;if(a?.kind==="node"){let{into:n=[],out:s=[]}=t.scene.neighbours.get(a.index)??{};for(let t of n)v(e,t,i.ink.texts[0],1.25);for(let t of s)v(e,t,i.ink.arcs[0],1.25);v(e,a.index,i.ink.select,o?2.5:2)}else if(a?.kind==="mark")v(e,t.scene.mark.node[a.index],i.ink.select,o?2.5:2);else if(a?.kind==="arc"){let{arc:i}=t.scene;for(let t of[i.source[a.index],i.target[a.index]])t>=0&&v(e,t,m(e,a.index),1.75)}e.hover?.kind==="node"&&v(e,e.hover.index,i.ink.muted,1)}(e),function({places:e,pen:t}){let i=t.context,{node:a,columns:n,module:o}=e.scene,{sides:s}=e.columns(),r=t.ink;if(!n[0].length||!n[1].length)return;let l=e.far?e.bands():[],d=t=>{let i=n[t].at(-1),s=l.filter(e=>(0===t?o.forward:o.backward)[e]);return e.y(Math.max(a.y[i]+a.height[i],...s.map(e=>o.y[e]+o.height[e])))},p=Math.max(d(0),d(1))+5,[h,w]=[s[0][1]-14,s[1][0]+14];if(p>e.heightPx||p<30)return;i.strokeStyle=i.fillStyle=r.muted,i.lineWidth=1.5,i.beginPath(),i.moveTo(h,d(0)+1),i.lineTo(h,p),i.lineTo(w,p),i.lineTo(w,d(1)+1),i.stroke(),i.beginPath(),i.moveTo(w-4,d(1)+6),i.lineTo(w,d(1)+1),i.lineTo(w+4,d(1)+6),i.stroke(),t.font(10,b);let c="forward ends, backward begins",u=w-h-12;if(i.measureText(c).width>u)return;i.textAlign="center";let f=i.measureText(c).width+8,x=(h+w)/2;i.fillStyle=t.paper,i.fillRect(x-f/2,p-6,f,12),i.fillStyle=r.muted,i.fillText(c,x,p),i.textAlign="left"}(e),function({places:e,pen:t}){if(!e.labelled())return;let i=t.context,{run:a,strings:n}=e.scene,{sides:o}=e.columns();t.font(11,b,600);for(let s=0;s<a.y.length;s++){let r=e.y(a.y[s]),l=r+a.height[s]*e.zoom;if(r>26||l<62)continue;let[d,p]=o[a.side[s]];i.fillStyle=t.paper,i.fillRect(d-3.5,30,p-d+7,16),i.fillStyle=t.ink.fusionFill,i.fillRect(d-3.5,30,p-d+7,16),i.fillStyle=t.ink.fusionText,i.fillText(t.shorten(`↑ ${n[a.name[s]]}`,p-d-8),d+4,38)}}(e)}!function({places:e,pen:t}){let i=t.context,{label:a,sides:n}=e.columns(),o=t.ink;i.fillStyle=t.paper,i.fillRect(0,0,e.width,29),i.fillStyle=o.rule,i.fillRect(0,29,e.width,1),t.font(11,b,600),i.textBaseline="middle";let s=(e,t,a,n="left")=>{i.textAlign=n,i.fillStyle=a,i.fillText(e,t,15)};s("program",a[0],o.muted),s("forward ↓",n[0][0],o.texts[0]);let r=e.scene?.lane?e.lane():null,l=n[0][1],d=r?r[0]:n[1][0],p=["saved for backward","saved"].find(e=>i.measureText(e).width<=d-l-16);p&&s(p,(l+d)/2,o.muted,"center"),r&&s("CPU",(r[0]+r[1])/2,o.arcs[2],"center"),s("↑ backward",n[1][0],o.texts[1]),i.textAlign="left"}(e)}(this.state),this.places.scene&&this.overview.draw(),this.drawn=performance.now()-e}destroy(){this.closeMenu(),this.stop.abort(),this.sizes.disconnect(),this.themes.disconnect(),this.model.off("change:data",this.onData),this.model.off("change:selected",this.onSelected),this.model.off("change:asked",this.onAsked),this.model.off("msg:custom",this.onReveal)}paintTheme(){this.dark=function(e){let t=document.body.dataset.jpThemeLight;if(t)return"false"===t;for(let t=e;t;t=t.parentElement){let e=getComputedStyle(t).backgroundColor.match(/[\d.]+/g)?.map(Number);if(e&&(e.length<4||e[3]>.5))return .3*e[0]+.6*e[1]+.1*e[2]<110}return matchMedia("(prefers-color-scheme: dark)").matches}(this.el),this.el.classList.toggle("wb-dark",this.dark),this.model.get("dark")!==this.dark&&(this.model.set("dark",this.dark),this.model.save_changes()),this.pen.ink=this.dark?u:c;let e=getComputedStyle(this.el).getPropertyValue("--jp-layout-color0").trim();this.pen.paper=e||this.pen.ink.paper,this.redraw()}resize(){let{places:e}=this,t=window.devicePixelRatio||1;this.el.classList.toggle("wb-slim",this.el.clientWidth<420),e.width=this.canvas.clientWidth,e.heightPx=this.el.clientHeight-34,e.width&&(this.canvas.width=Math.round(e.width*t),this.canvas.height=Math.round(e.heightPx*t),this.state.ratio=t,this.pen.texts.clear(),this.atFit&&this.fit(),e.clamp(),this.draw())}setZoom(e,t=this.places.width/2,i=this.places.heightPx/2){let{places:a}=this,n=a.worldY(i),o=(t+a.left)/a.scaleX;a.zoom=Math.max(.01,Math.min(3,e)),this.atFit=!1,a.top=30+(n-30)*a.zoom-i,a.left=o*a.scaleX-t,a.clamp(),this.redraw()}actualSize(){let e=this.state.selected&&this.places.locate(this.state.selected);e&&e.y>=30&&e.y<=this.places.heightPx?this.setZoom(1,e.x,e.y):this.setZoom(1,0,30)}fit(){let{places:e}=this;if(!e.scene)return;e.left=e.top=0;let t=Math.min(1,(e.heightPx-30-14)/Math.max(1,e.scene.height-30));this.setZoom(1===e.scene.module.y.length&&t>=.3?Math.max(t,.6):t),this.atFit=!0}approach(e){let{places:t}=this,{module:i}=t.scene,a=t.heightPx-30-16;this.setZoom(Math.max(.75,Math.min(1,a/i.height[e]))),t.top=(i.y[e]-30)*t.zoom-8,t.clamp(),this.redraw()}place(e,t){t>=0&&this.model.send({type:"place",id:e,node:this.places.scene.strings[this.places.scene.node.id[t]]})}nudge(e){let{bar:t,endOf:i,columns:a}=this.places.scene,n=this.state.selected,o=i.get(n);if(!o)return;let s=t.side[o.index],r=t[`${o.end}_node`][o.index],l=a[s].indexOf(r)+(0===s?e:-e);this.place(n,a[s][l]??-1)}pointer(e){let t=this.canvas.getBoundingClientRect();return[e.clientX-t.left,e.clientY-t.top]}onDown(e){let{places:t}=this;if(this.tip.hidden=!0,2===e.button)return;this.canvas.focus({preventScroll:!0});let[i,a]=this.pointer(e),n=t.scene&&!this.state.readOnly?t.barHit(i,a):null;this.state.drag={x:i,y:a,left:t.left,top:t.top,moved:!1,bar:n,click:0===e.button},this.canvas.setPointerCapture(e.pointerId)}onMove(e){let{places:t}=this,{drag:i}=this.state,[a,n]=this.pointer(e);if(!i)return void this.setHover(t.hit(a,n),a,n);if(Math.hypot(a-i.x,n-i.y)>3&&(i.moved=!0),i.moved){if(i.bar){i.at=n,i.target=t.nodeNear(t.scene.bar.side[i.bar.index],n),this.tip.hidden=!0,this.redraw();return}this.atFit=!1,t.left=i.left-(a-i.x),t.top=i.top-(n-i.y),this.setHover(null),this.canvas.style.cursor="grabbing",t.clamp(),this.redraw()}}onUp(e){let t=this.state.drag;if(this.state.drag=null,this.canvas.style.cursor="",t?.bar&&t.moved){this.select(t.bar.id),this.place(t.bar.id,t.target);return}if(!t?.click)return;if(t.moved){this.clicked=[];return}let i=this.places.hit(...this.pointer(e));this.clicked=[this.clicked.at(-1)??"",i?.id??""],i?.kind==="section"?this.fold(i.index):this.select(i?.id??"")}onDouble(){let[e,t]=this.clicked,i=this.places.scene?.at.get(t);e===t&&i&&("arc"===i.kind||"mark"===i.kind?this.turn(t):this.enter(i))}enter(e){e?.kind==="module"?this.approach(e.index):e?.kind==="node"&&this.unfold(e.index)}onMenu(e){var t,i,a;let n,o,s,l,p,{places:h,state:w}=this;if(w.drag=null,!h.scene)return;let b="keydown"===e.type||2!==e.button&&!e.ctrlKey&&"touch"!==e.pointerType,c=h.scene.at.get(w.selected);b&&c&&this.reveal(w.selected);let u=b?c&&{...c,id:w.selected}:h.hit(...this.pointer(e)),f=u?function(e,t){let{choice:i,strings:a,sections:n,node:o}=e.places.scene,{readOnly:s}=e.state,r=e.turned(t),l=[];for(let t=0;r&&t<i.id.length;t++){if(i[r.kind][t]!==r.index)continue;let n=a[i.id[t]],o=`${a[i.lever[t]]}, set to: ${a[i.now[t]]}`,s=i.layers[t];for(let r of a[i.others[t]].split("\n")){let a=(t,i)=>l.push({text:t,note:o,preview:{id:n,option:r,...i},act:()=>e.model.send({type:"choose",id:n,option:r,...i})});a(`Choose ${r}`,{}),s>i.count[t]&&a(`Choose ${r} in all ${s} layers`,{scope:"all"})}}"module"===t.kind&&l.push({text:"Zoom in",act:()=>e.approach(t.index)});let d=e.sectionOf(t);if(d>=0&&!s){let{count:t,identical:i,stem:a}=n[d],o=a.startsWith("loop:")?"repeats":"layers";l.push({text:t>1?`Unfold ${t} identical ${o}`:`Fold ${i} identical ${o}`,act:()=>e.fold(d)})}if("node"===t.kind&&192&o.flags[t.index]&&!s&&l.push({text:a[o.name[t.index]].startsWith("▾")?"Show as one":"Show each",act:()=>e.unfold(t.index)}),"section"===t.kind)return l;if(t.id!==e.state.selected&&l.push({text:"Select",act:()=>e.select(t.id)}),!s&&"module"!==t.kind)for(let[i,a]of Object.entries($))l.push({text:i,act:()=>{e.select(t.id),e.model.send({type:"tab",name:a})}});return navigator.clipboard&&l.push({text:"Copy id",note:t.id,act:()=>{navigator.clipboard.writeText(t.id)}}),l}(this,u):[];if(!f.length)return;e.preventDefault(),e.stopPropagation(),this.closeMenu();let{x,y:m}=b?h.locate(u.id):{x:this.pointer(e)[0],y:this.pointer(e)[1]};this.setHover(u),this.tip.hidden=!0,this.closeMenu=(t=this.el,i={x,y:m,height:h.heightPx},a={preview:e=>{w.readOnly||this.preview(e)},closed:()=>{this.closeMenu=()=>{},this.setHover(null)},back:this.canvas},n=!0,o=()=>{if(!n)return;n=!1;let e=l.contains(document.activeElement);l.remove(),e&&a.back.focus({preventScroll:!0}),a.preview(null),a.closed()},s=f.map(({text:e,note:t,preview:i,act:n})=>r("button",{role:"menuitem",tabindex:"-1",type:"button",onclick:()=>{o(),n()},onpointermove:e=>e.currentTarget.focus({preventScroll:!0}),onfocus:()=>a.preview(i??null)},e,t&&r("span",{class:"wb-muted"},t))),l=r("div",{class:"wb-menu",role:"menu","aria-label":"What can be done here"},s),p=e=>s[(e+s.length)%s.length].focus(),l.addEventListener("keydown",e=>{let t=s.indexOf(document.activeElement);e.stopPropagation(),"Enter"!==e.key&&" "!==e.key&&d(e)&&(e.preventDefault(),"ArrowDown"===e.key?p(t+1):"ArrowUp"===e.key?p(t-1):"Home"===e.key?p(0):"End"===e.key?p(-1):("Escape"===e.key||"Tab"===e.key)&&o())}),l.addEventListener("focusout",e=>{l.contains(e.relatedTarget)||o()}),l.addEventListener("contextmenu",e=>{e.preventDefault(),e.stopPropagation()}),l.style.maxHeight=`${i.height-8}px`,t.append(l),l.style.left=`${Math.max(4,Math.min(i.x,t.clientWidth-l.offsetWidth-4))}px`,l.style.top=`${Math.max(4,Math.min(i.y,i.height-l.offsetHeight-4))}px`,s[0].focus({preventScroll:!0}),o)}onWheel(e){let{places:t}=this;this.closeMenu();let[i,a]=this.pointer(e);if(e.ctrlKey||e.metaKey){e.preventDefault(),this.setZoom(t.zoom*Math.exp(-e.deltaY*(e.deltaMode?.05:.0022)),i,a);return}let{top:n,left:o}=t,s=1===e.deltaMode?18:1;t.top+=e.deltaY*s,t.left+=e.deltaX*s,t.clamp(),(t.top!==n||t.left!==o)&&e.preventDefault(),this.setHover(null),this.redraw()}onKey(e){let{places:t}=this;if(!d(e))return;if("ContextMenu"===e.key||e.shiftKey&&"F10"===e.key)return void this.onMenu(e);let i={ArrowDown:()=>this.step(1),ArrowUp:()=>this.step(-1),ArrowLeft:()=>this.across(-1),ArrowRight:()=>this.across(1),Enter:()=>{let e=t.scene.at.get(this.state.selected);this.enter(e?.kind==="module"?e:this.state.chosenPlace())}," ":()=>this.turnSelected(),"/":()=>{this.search.focus(),this.search.select()},u:()=>this.model.send({type:"undo"}),r:()=>this.model.send({type:"redo"}),f:()=>this.onTool("fit"),1:()=>this.actualSize(),"+":()=>this.onTool("in"),o:()=>this.foldHere(),"[":()=>this.nudge(-1),"]":()=>this.nudge(1),"=":()=>this.onTool("in"),"-":()=>this.onTool("out"),Escape:()=>this.select(""),l:()=>this.el.closest(".wb-app")?.querySelector(".wb-beside-bar")?.click(),i:()=>p(this.el,"x"),d:()=>p(this.el,"y"),"?":()=>(function e(t,i,a){if(t.querySelector(".wb-key-sheet"))return void i.focus({preventScroll:!0});let n=r("div",{class:"wb-legend-box wb-key-sheet",role:"dialog","aria-label":"Keys of the graph",tabindex:"0"},function(e=!1){return r("dl",{class:"wb-keys"},S.filter(([,,t])=>!e||!t).map(([e,t])=>[r("dt",{},r("kbd",{},e)),r("dd",{},t)]))}(a));n.addEventListener("keydown",n=>{("Escape"===n.key||"?"===n.key)&&(n.stopPropagation(),n.preventDefault(),e(t,i,a))}),n.addEventListener("focusout",()=>n.remove()),t.append(n),n.focus({preventScroll:!0})})(this.el,this.canvas,this.state.readOnly),Home:()=>{t.top=0,this.redraw()},End:()=>{t.top=1/0,t.clamp(),this.redraw()},PageDown:()=>this.scroll(.9*t.heightPx),PageUp:()=>this.scroll(-(.9*t.heightPx))}[e.key];i&&(e.preventDefault(),e.stopPropagation(),i())}scroll(e){this.places.top+=e,this.places.clamp(),this.redraw()}onTool(e){let{places:t}=this;"in"===e?this.setZoom(1.25*t.zoom):"out"===e?this.setZoom(t.zoom/1.25):"one"===e?this.actualSize():"fit"===e?(this.fit(),this.refitUntil=performance.now()+2e3,this.state.readOnly||this.model.send({type:"relax"})):"next"===e?this.walk(1):"previous"===e?this.walk(-1):"legend"===e?function e(t,i,a){let n=t.closest(".wb-app"),o=n?.querySelector(".wb-inspector"),s=(n??t).querySelector(".wb-legend-box:not(.wb-key-sheet)"),r=t.querySelector('[data-do="legend"]');if(r.setAttribute("aria-expanded",String(!s)),s)return void s.remove();let l=document.createElement("div");for(let[e,t]of(l.className="wb-legend-box",l.setAttribute("role","note"),l.tabIndex=0,function(e,t){let i=(e,t="")=>z(`<path d="M2 13 C20 13 26 5 44 5" fill="none" stroke="${e}" stroke-width="2.5" ${t}/>`),a=(e,t,i="")=>z(`<rect x="3" y="2" width="40" height="14" rx="3" fill="${e}" stroke="${t}" ${i}/>`),n=(e,t,i,a,n="")=>z(`<rect x="1" y="2.5" width="44" height="13" rx="6.5" fill="${i}" stroke="${t}" ${n}/><text x="23" y="12" text-anchor="middle" font-size="8.5" font-family="monospace" fill="${a}">${e}</text>`),[o,s,r]=e.arcs;return[[i(o),"Saved: kept in memory from the forward until the backward reads it. Wider: more bytes."],[i(s,'stroke-dasharray="6 4"'),"Recomputed: not kept; the backward runs its statements again."],[i(r,'stroke-dasharray="1.5 4" stroke-linecap="round"'),"Offloaded: copied to the CPU, through the lane between the columns, and back when it is read."],[n("16 KiB",o,"none",o),"Bytes of what an arc stands for; \xd7 2: in each of two identical layers."],[z(`<path d="M8 4 C30 4 30 14 8 14" fill="none" stroke="${e.fusion}" stroke-width="1.5"/><circle cx="8" cy="4" r="3" fill="none" stroke="${e.fusion}" stroke-width="1.5"/>`),"The cut: a value that one fusion makes and another reads. The value is written to memory, or computed again. Click its circle to select it."],[a(e.fusionFill,e.fusion),"Fusion: the statements inside are compiled to one kernel. Pieces of one fusion are joined by a line at the side."],[a(e.fills[0],e.strokes[0]),"A statement of the forward, which runs downwards."],[a(e.fills[1],e.strokes[1]),"A statement of the backward, which runs upwards, beside the forward statement that it differentiates."],[z(`<path d="M6 2 V13 H40 V4 M36 8 L40 3 L44 8" fill="none" stroke="${e.muted}" stroke-width="1.5"/>`),"The end of the forward, where the backward begins."],[z(`<rect x="1" y="3" width="44" height="12" fill="${e.band}"/><text x="6" y="12.5" font-size="10" fill="${e.ink}">▸ \xd74</text>`),"A layer, or identical ones shown as one: click to unfold or fold them. Beside its name: how it differs from the layers above."],[a(e.fills[1],s,'stroke-dasharray="4 3"'),"Computed again in the backward; without colour: no longer made in the forward."],[z(`<rect x="1" y="3" width="44" height="12" rx="3" fill="${e.fills[0]}" stroke="${e.strokes[0]}"/><text x="6" y="12" font-size="8.5" font-family="monospace" fill="${e.texts[0]}">mlp</text>`),"When zoomed out: a module, with the number of its statements in each column, and the bytes that it saves for the backward. Double-click to zoom in."],[n("keep",e.fusionText,"none",e.fusionText),"A site at a statement, with its current option."],[n("drop",e.select,e.select,e.paper),"A choice that differs from Thunder's own."],[n("stock",e.muted,"none",e.muted,'stroke-dasharray="2 2"'),"A site at which no other option is legal. Point at it to see why."],...t?[[z(`<path d="M6 9 H40" stroke="${r}" stroke-width="2.5"/><circle cx="6" cy="9" r="3.5" fill="${e.paper}" stroke="${r}" stroke-width="1.5"/><circle cx="40" cy="9" r="3.5" fill="${r}"/>`),"A collective in flight, from its issue (open end) to its wait (filled end). Other dashes: another process group."],[n("17 waits",e.strokes[1],e.fills[1],e.texts[1]),"Adjacent waits, shown as one; a double click shows each."]]:[],[n("▸ sdpa",e.strokes[0],e.fills[0],e.texts[0]),"One statement of the program that was decomposed into several, shown as one. A double click shows each of them; another double click shows one again."],[a("none",e.select,'stroke-width="2.5"'),"Selected. Outlined in the column's colour: the statements whose results it reads. Outlined in green: the statements that read its results."],[a(e.found,e.found),"Found by the search."],["","Views (reshapes, transposes, slices, shallow_copy) have no memory of their own and are left out. Lines pass through them, and their sites are shown at the statements that make or read their storage. A button below shows the views."],[a("none",e.select),"At the right edge: the whole graph, with the region in view. Drag this region, or press arrow keys there, to move the view."]]}(i,a))){let i=document.createElement("div"),a=document.createElement("span");i.innerHTML=e,a.textContent=t,i.append(a),l.append(i)}l.addEventListener("keydown",n=>{"Escape"===n.key&&(e(t,i,a),r.focus())});let d=n&&o&&o.clientWidth>=200&&o.clientHeight>=200&&o.getBoundingClientRect().left>=t.getBoundingClientRect().right;if((d?n:t).append(l),d){let e=new ResizeObserver(()=>{if(!l.isConnected)return void e.disconnect();let{left:t,top:i,width:a,height:s}=o.getBoundingClientRect(),r=l.offsetParent??n,d=r.getBoundingClientRect();Object.assign(l.style,{left:`${t-d.left-r.clientLeft+r.scrollLeft}px`,top:`${i-d.top-r.clientTop+r.scrollTop}px`,width:`${a}px`,height:`${s}px`})});e.observe(o),e.observe(n)}l.focus({preventScroll:!0})}(this.el,this.pen.ink,t.scene?.bar.side.length>0):"views"===e&&this.model.send({type:"views",shown:t.scene.views.hidden>0})}step(e){let{node:t,arc:i,columns:a,strings:n}=this.places.scene,o=this.state.chosenPlace();if(o?.kind==="arc"){let t=Array.from(i.y0.keys()).sort((e,t)=>i.y0[e]-i.y0[t]),a=t[t.indexOf(o.index)+e];void 0!==a&&this.select(n[i.id[a]],!0);return}let s=a[o?t.side[o.index]:0],r=o?s.indexOf(o.index)+e:x(s,t,this.places.worldY(30));void 0!==s[r]&&this.select(n[t.id[s[r]]],!0)}across(e){let{node:t,arc:i,columns:a,strings:n,arcsFrom:o}=this.places.scene,s=this.state.chosenPlace();if(!s)return void this.step(1);if("arc"===s.kind){let a=e>0?i.target[s.index]:i.source[s.index];a>=0&&this.select(n[t.id[a]],!0);return}let r=t.side[s.index],l=(o.get(s.index)??[]).filter(t=>(e>0?i.source[t]:i.target[t])===s.index&&0===i.shape[t]);if(l.length)return void this.select(n[i.id[l[0]]],!0);if(e>0==(1===r))return;let d=a[1-r],p=d[Math.min(d.length-1,x(d,t,t.y[s.index]+1))];void 0!==p&&this.select(n[t.id[p]],!0)}select(e,t=!1){this.state.selected!==e&&(this.model.set("selected",e),this.model.save_changes()),t&&this.reveal(e),this.redraw()}reveal(e,t=!1){let{places:i}=this;t&&!i.labelled()&&i.locate(e)&&this.setZoom(1);let a=i.locate(e);a&&((a.y<54||a.y>i.heightPx-40)&&(i.top+=a.y-i.heightPx/2,i.clamp()),this.redraw())}turn(e){this.state.readOnly||this.model.send({type:"turn",id:e})}turned(e){let{arc:t,arcsFrom:i,marksOf:a}=this.places.scene;if(e?.kind!=="node")return e?.kind==="arc"||e?.kind==="mark"?e:null;let n=a.get(e.index)?.[0],o=(i.get(e.index)??[]).find(i=>t.source[i]===e.index);return n?{kind:"mark",index:n.index}:void 0===o?null:{kind:"arc",index:o}}turnSelected(){let{scene:e}=this.places,t=this.state.selected,i=e.at.get(t),a=this.turned(i);a?this.turn(e.strings[e[a.kind].id[a.index]]):i?.kind==="bar"&&this.turn(t)}fold(e){let t=this.places.scene.sections[e];t.identical>1&&this.model.send({type:"fold",stem:t.stem,folded:t.count>1})}foldHere(){let{sections:e}=this.places.scene,t=this.state.chosenPlace(),i=this.places.worldY(30),a=t?this.sectionOf(t):-1,n=a>=0?a:e.findIndex(e=>e.identical>1&&e.y+e.height>i);n>=0&&!this.state.readOnly&&this.fold(n)}sectionOf(e){let{node:t,arc:i,mark:a,module:n,sections:o}=this.places.scene;if("section"===e.kind)return o[e.index].identical>1?e.index:-1;let s="arc"===e.kind?i.y0[e.index]:"mark"===e.kind?t.y[a.node[e.index]]:({node:t,module:n})[e.kind]?.y[e.index];return o.findIndex(e=>e.identical>1&&s>=e.y&&s<e.y+e.height)}unfold(e){let{node:t,strings:i}=this.places.scene;128&t.flags[e]&&!this.state.readOnly?this.model.send({type:"fold",node:i[t.id[e]]}):64&t.flags[e]&&!this.state.readOnly&&this.model.send({type:"fold",stem:`waits:${i[t.id[e]].slice(2)}`})}askIndex(){this.index||this.indexAsked||this.state.readOnly||(this.indexAsked=!0,this.model.send({type:"index"}))}takeIndex(e){this.index=e,this.search.value.trim()&&this.places.scene&&!this.coming&&(this.find(),this.enteredEarly?this.walk(this.enteredEarly):this.typed&&!this.walked&&this.showFirst(),this.typed=!1,this.enteredEarly=0)}find(){let{places:e}=this,{at:t}=e.scene;this.hits=function(e,t){let i=t.trim().toLowerCase();if(!i)return[];let a=i.split(/\s+/u);return e.map(e=>{let t,n;return{entry:e,rank:(n=(t=A(e,i))>=0?[t]:a.map(t=>A(e,t))).includes(-1)?-1:Math.max(...n)}}).filter(({rank:e})=>e>=0).sort((e,t)=>e.rank-t.rank||e.entry.order-t.entry.order).map(({entry:e})=>e)}(function(e,t=null){let{node:i,strings:a}=e,n=new Map,o=Array.from(i.id.keys()).sort((e,t)=>i.y[e]-i.y[t]||i.side[e]-i.side[t]),s=t?t.rows.id.length:0;for(let[e,t]of o.entries()){let o=a[i.id[t]],[r,l,d,p]=[i.name,i.full,i.detail,i.about].map(e=>a[e[t]]),h=p.split("\n")[0],w=h.includes("  ")?h.split("  ")[0]:"";n.set(o,{id:o,names:[r.replace(/^[▸▾] /u,""),l,o.slice(2),...d.split(/[\s,;]+/u)].map(e=>e.toLowerCase()).filter(Boolean),scope:w.toLowerCase(),symbol:"",text:`${r} ${l} ${d} ${p}`.toLowerCase(),order:s+e})}if(!t)return Array.from(n.values());let{rows:r}=t;for(let e=0;e<r.id.length;e++){let i=r.id[e],[a,o,s]=t.origins[r.origin[e]]??["","",""],l=[t.strings[r.name[e]],t.strings[r.full[e]],...r.values[e].split(" ")].map(e=>e.toLowerCase()).filter(Boolean),d=n.get(i),p=`${l.join(" ")} ${a} ${o} ${s}`.toLowerCase();d?Object.assign(d,{names:[...d.names,...l],symbol:s.toLowerCase(),text:`${d.text} ${p}`,order:e}):n.set(i,{id:i,names:l,scope:a.toLowerCase(),symbol:s.toLowerCase(),text:p,order:e})}return Array.from(n.values())}(e.scene,this.index),this.search.value);let i=this.hits.map(({id:e})=>t.get(e)).filter(e=>e?.kind==="node");e.matches=this.search.value.trim()?new Set(i.map(({index:e})=>e)):null;let a=this.hits.some(({id:e})=>e===this.current)||this.indexAsked&&!this.index;this.walked&&a||(this.current=this.hits[0]?.id??""),this.tellFound(),this.redraw()}tellFound(){let e=this.hits.findIndex(({id:e})=>e===this.current),t=this.search.value.trim();for(let i of(this.found.textContent=t?this.hits.length?`${e<0?"…":e+1} of ${this.hits.length}`:this.indexAsked&&!this.index?"…":"none":"",this.found.title=t&&this.current&&!this.places.scene.at.has(this.current)?"In a folded layer or a hidden view: Enter shows it":"",this.el.querySelectorAll(".wb-find button")))i.disabled=!this.hits.length}onSearch(){this.places.scene&&(this.setHover(null),this.walked=!1,this.typed=!0,this.enteredEarly=0,this.askIndex(),this.find(),this.showFirst())}showFirst(){this.current&&this.reveal(this.current)}walk(e){let{hits:t}=this,i=t.findIndex(({id:e})=>e===this.current);if(i<0){this.enteredEarly=this.indexAsked&&!this.index?e:0;return}(this.walked||e<0)&&(this.current=t[(i+e+t.length)%t.length].id),this.walked=!0,this.setHover(null),this.places.scene.at.has(this.current)?(this.select(this.current),this.come(this.current)):this.model.send({type:"unveil",id:this.current}),this.tellFound()}come(e){let{places:t}=this,i=t.locate(e);i&&!t.labelled()&&this.setZoom(1,i.x,Math.max(30,Math.min(i.y,t.heightPx))),this.reveal(e)}onSearchKey(e){e.stopPropagation(),"Escape"===e.key&&(this.search.value="",this.onSearch(),this.canvas.focus()),"Enter"===e.key&&(e.preventDefault(),this.walk(e.shiftKey?-1:1))}setHover(e,t=0,i=0){if(this.el.querySelector(".wb-menu"))return;let a=e?.id===this.state.hover?.id;this.state.hover=e,this.canvas.style.cursor=e?"pointer":"",e&&"section"!==e.kind?this.showTip(e,t,i):this.tip.hidden=!0,a||(this.previewOf(e),this.redraw())}previewOf(e){this.state.readOnly||this.preview(e?.kind==="arc"||e?.kind==="mark"?{id:e.id}:null)}tell(){let e=document.activeElement===this.canvas?this.places.scene?.at.get(this.state.selected):null;this.told.textContent=e?j(this.places.scene,e).map(([,e])=>e).filter(Boolean).join(". "):""}showTip(e,t,i){let{places:a}=this;this.tip.replaceChildren(...j(a.scene,e).filter(([,e])=>e).map(([e,t])=>{let i=document.createElement("div");return i.className=`wb-tip-${e||"p"}`,i.textContent=t,i})),this.tip.hidden=!1;let{offsetWidth:n,offsetHeight:o}=this.tip;this.tip.style.left=`${Math.max(4,Math.min(t+14,a.width-n-8))}px`,this.tip.style.top=`${i+18+o>a.heightPx?Math.max(4,i-o-12):i+18}px`}}let L=function({model:e,el:t}){let i=new E(e,t);return t.__workbench={position(e){i.reveal(e,!0);let t=i.places.locate(e),a=i.canvas.getBoundingClientRect();return t&&{x:a.left+t.x,y:a.top+t.y}},hit(e,t){let a=i.canvas.getBoundingClientRect();return i.places.hit(e-a.left,t-a.top)?.id??null},state(){let{scene:t}=i.places;return{nodes:t?.node.id.length??0,zoom:i.places.zoom,top:i.places.top,selected:e.get("selected"),dark:i.dark,drawn_ms:i.drawn,sections:t?.sections??[],arcs:t?Array.from(t.arc.id,(e,a)=>({id:t.strings[e],style:t.arc.style[a],asked:i.state.asked.get(a)??null,label:t.strings[t.arc.label[a]]})):[],marks:t?Array.from(t.mark.id,(e,i)=>({id:t.strings[e],text:t.strings[t.mark.text[i]],state:t.mark.state[i]})):[],bars:t?Array.from(t.bar.side,(e,a)=>({side:e,...i.places.barAt(a),id:t.strings[t.bar.issue[a]],wait_id:t.strings[t.bar.wait[a]]})):[],modules:t&&i.places.far?i.places.bands().map(e=>({scope:t.strings[t.module.scope[e]],y:i.places.y(t.module.y[e]),height:t.module.height[e]*i.places.zoom})):[],ids:t?Array.from(t.node.id,e=>t.strings[e]):[],matches:i.places.matches?.size??null,found:i.hits.map(({id:e})=>e),current:i.current}},view:i},()=>i.destroy()},R=["","below","short","short below","short small","short below small","short plain","short below plain","short small plain","short below small plain"],D={Fit:".wb-peak input",Fusions:".wb-fusions [data-fusion]"},F=function({model:e,el:t}){l(t,"strip");let i=e=>e&&r("span",{class:"wb-figure-note"},e),a=(e,t,a)=>{let n=r("span",{class:"wb-kind"},t),o=/^\d+$/.test(e.text);return r("div",{class:`wb-value${e.earlier?" wb-earlier":""}${/predicted|estimated/.test(e.kind)?" wb-foretold":""}${e.beside?" wb-must":""}`},e.beside&&[n," "],r("span",{class:`wb-number ${e.tone?`wb-${e.tone}`:""}`},e.text,o&&[" ",n]),!e.beside&&!o&&[" ",n],e.delta&&[" ",r("span",{class:`wb-delta wb-${e.delta_tone}`},e.delta)],i(a),i(e.delta_tip))},n=e=>{let[,t,i]=/^(\w+)(.*)$/.exec(e);return[t,r("span",{class:"wb-rest"},i)]},o=({key:i,title:o,older:s,opens:l,values:[d,...h]})=>r("div",{class:`wb-figure${s?" wb-older":""}${l?" wb-opens":""}`,"data-figure":i,role:"group",tabindex:l?null:"0","aria-label":o,onclick:()=>{l&&!getSelection()?.toString()&&(async i=>{e.send({type:"place",name:i}),p(t,"y",!1);let a=t.closest(".wb-app");a?.querySelector(".wb-places")?.scrollIntoView({block:"nearest"});let n=D[i];if(n)for(let e=0;e<100;e++){let e=a?.querySelector(n);if(e?.checkVisibility({visibilityProperty:!0})){e.focus({preventScroll:!0}),e instanceof HTMLInputElement?e.select():e.click();return}await new Promise(e=>setTimeout(e,20))}})(l)}},r("div",{class:"wb-figure-box"},r("div",{class:"wb-figure-title"},l?r("button",{class:"wb-figure-name",title:`Open ${l}`,"aria-label":`${o}: open ${l}`},n(o)):n(o)," ",r("span",{class:"wb-kind"},d.kind)),r("div",{class:"wb-figure-values"},a(d,"",d.tip),h.map((e,t)=>a(e,e.kind,e.tip!==(h[t-1]??d).tip&&e.tip))))),s=()=>{let e=Array.from(t.children,e=>{let t=e.querySelector(".wb-first-kind, .wb-figure-title > .wb-kind");return t.classList.add("wb-first-kind"),{one:e,kind:t,title:e.querySelector(".wb-figure-title"),values:e.querySelector(".wb-figure-values")}});for(let t of R){for(let{one:i,kind:a,title:n,values:o}of e)i.dataset.form=t,t.includes("below")?o.firstElementChild?.after(a):n.append(a);if(!(e=e.filter(({title:e,values:t})=>{let i=t.getBoundingClientRect().bottom+.5,a=[...t.querySelectorAll(".wb-value:first-child > :is(.wb-number, .wb-delta), .wb-kind:not(.wb-value > .wb-kind), .wb-must")];return e.scrollWidth>e.clientWidth||!a.every(e=>e.getBoundingClientRect().bottom<=i&&e.scrollWidth<=e.clientWidth+1&&(!e.matches(".wb-must")||e.scrollHeight<=e.clientHeight+4))})).length)break}},d=0,h=new ResizeObserver(s);h.observe(t);let w=function(e,t,i){for(let a of t)e.on(`change:${a}`,i);return i(),()=>{for(let a of t)e.off(`change:${a}`,i)}}(e,["content"],()=>{let i=Array.from(t.children).findIndex(e=>e.contains(document.activeElement));t.replaceChildren(...(e.get("content").figures??[]).map(o));let a=t.children[i];a&&(a.querySelector(".wb-figure-name")??a).focus({preventScroll:!0}),d||=requestAnimationFrame(()=>{d=0,s()})});return()=>{cancelAnimationFrame(d),h.disconnect(),w()}};class W{traits;callbacks=new Map;constructor(e){this.traits=e}get(e){return this.traits[e]}set(e,t){this.traits[e]!==t&&(this.traits[e]=t,this.emit(`change:${e}`))}on(e,t){let i=this.callbacks.get(e)??new Set;this.callbacks.set(e,i.add(t))}off(e,t){this.callbacks.get(e)?.delete(t)}send(){}save_changes(){}emit(e,...t){for(let i of this.callbacks.get(e)??[])i(...t)}}let H=document.createElement("style"),q=`${n.A}
${o.A}`;H.textContent="CSSScopeRule"in window?`@scope (.wb-saved) {
${q}
}`:q,document.head.append(H);class I extends a.Widget{end=()=>{};shown="";constructor(){super(),this.addClass("wb-app"),this.addClass("wb-saved")}async renderModel(e){let t=e.data[s],i=JSON.stringify(t)??"";if(i!==this.shown){this.shown=i,this.end(),this.end=()=>{};try{var a,n,o,d,p;let e,i,s,h,w,b,c,u,f,x,m,g,v;this.end=(a=function(e){if("object"!=typeof e||null===e||"thunder-workbench plan"!==e.format)throw Error("This file holds no saved plan: bench.save(path) writes one.");if(1!==e.format_version)throw Error(`This plan was saved in format version ${e.format_version}; this view reads version 1. Save it again, or install the version of thunder-workbench that wrote it.`);return e}(t),n=this.node,e=r("div"),i=r("div"),s=r("div",{"aria-live":"polite"}),h=new W({data:function(e){let{graph:t}=e.view,i=Object.entries(t.tables).map(([e,t])=>[e,Object.fromEntries(Object.entries(t).map(([e,[t,i]])=>{var a;return[e,[t,(a=i,Uint8Array.from(atob(a),e=>e.charCodeAt(0)).buffer)]]}))]);return{...t,tables:Object.fromEntries(i)}}(a),selected:"",height:620,dark:!1,read_only:!0}),n.replaceChildren((o=a,u=Object.entries(o.settings).map(([e,t])=>`${e}=${t}`),f=Object.entries(o.versions).map(([e,t])=>`${e} ${t}`),x=r("div",{},r("strong",{},o.program),r("span",{class:"wb-muted"},[o.device,o.executor,...u].join(" \xb7 ")),r("span",{class:"wb-muted",title:f.join("\n")},"saved plan: predicted, changes are against the plan without choices; nothing can be chosen here")),l(x,"saved-heading"),x),e,(d=a,p=e=>{h.set("selected",e),h.emit("msg:custom",{type:"reveal",id:e})},m=Object.entries(d.choices),g=1===m.length?"1 choice":`${m.length} choices`,v=m.length?r("details",{open:m.length<=4},r("summary",{},`${g} chosen`),r("ul",{},...m.map(([e,t])=>r("li",{},r("button",{class:"wb-link",onclick:()=>p(e)},e),`: ${t}`)))):r("div",{class:"wb-muted"},"No choices: what unmodified Thunder would execute."),l(v,"saved-choices"),v),i,s),w=new Map(a.sites.map(e=>[e.id,e])),b=()=>s.replaceChildren(...function(e){if(!e)return[r("div",{class:"wb-muted"},"Click an arc or a mark to see what could be chosen there.")];let t=e.options.map(t=>{let i=e.illegal[t],a=t===e.choice?"chosen":i?`refused: ${i}`:"legal";return r("div",{},r("code",{},t)," ",r("span",{class:"wb-muted"},t===e.default?`${a}, default`:a))});return[r("div",{},r("strong",{},e.label)," ",r("code",{class:"wb-muted"},e.id)),...t]}(w.get(String(h.get("selected"))))),l(s,"saved-site"),h.on("change:selected",b),b(),c=[F({model:new W({content:{figures:a.view.figures}}),el:e}),L({model:h,el:i})],()=>c.forEach(e=>e?.()))}catch(e){this.node.textContent=e instanceof Error?e.message:String(e)}}}dispose(){this.end(),super.dispose()}}let _={id:"thunder-workbench-trace-view:plan",description:"Draws saved plans of Thunder Workbench.",rendererFactory:{safe:!0,mimeTypes:[s],createRenderer:()=>new I},rank:0,dataType:"json",fileTypes:[{name:"thunder-plan",displayName:"Thunder plan",mimeTypes:[s],extensions:[".plan.json"]}],documentWidgetFactoryOptions:{name:"Thunder plan",primaryFileType:"thunder-plan",fileTypes:["thunder-plan"],defaultFor:["thunder-plan"]}}},4(e,t,i){var a=i(5),n=i.n(a),o=i(6),s=(i.n(o))()(n());s.push([e.id,`/* The styles of all widgets. The palettes of the two themes use JupyterLab's variables for the background. */
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
  --wb-fusion: #8b6fd0;
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
  --wb-fusion: #9b86e0;
  --wb-new-paper: #14291c;
  --wb-part-stage: #7f8c9b;
  --wb-part-2: #5f96ee;
  --wb-part-3: #3fb0c8;
  --wb-part-5: #a793ea;
  --wb-part-6: #55b37c;
}

/* Hide the picture while the app is live: the picture is for pages without the app. */
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
/* The row shows as many whole entries as it has room for; the button beside it opens the whole legend. */
.wb-graph .wb-key-row { flex: 1 1 auto; display: flex; flex-wrap: wrap; gap: 0 12px; min-width: 0; height: 18px; overflow: hidden; line-height: 18px; }
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
.wb-graph .wb-key-cut::before { border-top: 1.5px solid var(--wb-fusion); }
.wb-graph .wb-key-fusion::before { height: 9px; box-sizing: border-box; border: 1.5px solid var(--wb-fusion); border-radius: 2px; }
@container (max-width: 960px) { .wb-graph .wb-foot .wb-rest { display: none; } }
.wb-graph .wb-legend-box { left: 8px; bottom: 40px; max-height: calc(100% - 56px); max-width: min(620px, calc(100% - 16px)); }
.wb-legend-box { position: absolute; z-index: 3; box-sizing: border-box; overflow: auto; display: grid; grid-template-columns: repeat(auto-fill, minmax(260px, 1fr)); gap: 5px 16px; padding: 10px 12px; border: 1px solid var(--wb-rule); border-radius: 6px; background: var(--wb-paper); color: var(--wb-ink); box-shadow: 0 4px 18px rgb(0 0 0 / 18%); font: 11.5px/1.4 var(--wb-sans); outline: none; }
.wb-legend-box > div { display: grid; grid-template-columns: 46px minmax(0, 1fr); gap: 8px; align-items: start; }
.wb-graph .wb-legend-box.wb-key-sheet { display: block; width: max-content; font-size: 12px; }
.wb-key-sheet dl { display: grid; grid-template-columns: auto minmax(0, 1fr); gap: 6px 12px; margin: 0; align-items: center; }
.wb-key-sheet dd { margin: 0; }
/* The search has a constant width, so that the tools beside it do not move when its result changes. */
.wb-graph .wb-find { flex: 0 99999 290px; display: flex; align-items: center; min-width: clamp(66px, 100cqw - 440px, 160px); }
@container (max-width: 580px) { .wb-graph .wb-find button { display: none; } }
.wb-graph .wb-find:has(input:placeholder-shown) > :not(input) { display: none; }
.wb-graph .wb-foot .wb-find button { min-width: 24px; padding: 0 4px; }
.wb-graph .wb-foot button:disabled { color: var(--wb-muted); background: none; cursor: default; }
.wb-graph .wb-foot input {
  flex: 1 1 0;
  min-width: 0;
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
.wb-graph .wb-found { flex: none; padding: 0 4px; color: var(--wb-muted); font: 11px var(--wb-sans); font-variant-numeric: tabular-nums; }
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
  .wb-graph .wb-foot button[data-do="views"] { flex: 0 1 auto; overflow: hidden; text-overflow: ellipsis; }
  .wb-graph .wb-foot button { min-width: 20px; padding: 0 3px; }
  .wb-graph .wb-foot input { padding: 0 3px; }
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
.wb-graph .wb-menu { position: absolute; z-index: 4; box-sizing: border-box; max-width: min(500px, calc(100% - 8px)); padding: 4px; overflow: auto; border: 1px solid var(--wb-rule); border-radius: 6px; background: var(--wb-paper); box-shadow: 0 4px 18px rgb(0 0 0 / 18%); }
.wb-graph .wb-menu button { display: flex; justify-content: space-between; gap: 16px; width: 100%; min-height: 26px; padding: 3px 8px; border: 0; border-radius: 4px; background: none; color: var(--wb-ink); font: 12px/1.5 var(--wb-sans); text-align: left; white-space: nowrap; cursor: pointer; }
.wb-graph .wb-menu button:focus { outline: 2px solid var(--wb-accent); outline-offset: -2px; background: var(--wb-hair); }
.wb-graph .wb-menu .wb-muted { min-width: 0; overflow: hidden; text-overflow: ellipsis; color: var(--wb-muted); }

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
.wb-panel button.wb-link.wb-link-words { font: inherit; }
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
/* the rows of a table that is wider than its box, as cards (\`fitted\` in dom.js) */
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

/* the controls: one line; in a narrow app, buttons have signs instead of words */
.wb-controls .wb-bar { display: flex; align-items: center; gap: 0 12px; height: 32px; white-space: nowrap; }
.wb-controls .wb-program { flex: 1 1 0; display: flex; flex-direction: column; justify-content: center; min-width: 0; overflow: hidden; }
.wb-controls .wb-program > * { max-width: 100%; overflow: hidden; text-overflow: ellipsis; }
.wb-controls .wb-name { display: flex; align-items: baseline; gap: 8px; }
.wb-controls .wb-name > * { flex: 0 1 auto; min-width: 0; overflow: hidden; text-overflow: ellipsis; }
.wb-controls .wb-name > strong { flex-shrink: 0; max-width: 100%; }
.wb-controls .wb-program strong { font-size: 14px; line-height: 18px; font-weight: 650; }
.wb-controls .wb-program .wb-muted { font-size: 11px; line-height: 14px; }
.wb-controls .wb-group { display: inline-flex; flex: none; gap: 6px; }
.wb-controls .wb-turns { display: inline-flex; align-items: center; gap: 4px; min-height: 24px; color: var(--wb-muted); font-size: 12px; }
.wb-controls .wb-turns > input[type="checkbox"] { margin: 0 6px; }
.wb-controls .wb-ranks label { display: inline-flex; align-items: center; gap: 6px; color: var(--wb-muted); }
.wb-controls .wb-ranks { gap: 0 24px; height: 34px; }
.wb-controls .wb-ranks .wb-group { gap: 10px; }
.wb-controls .wb-ranks input { width: 84px; }
.wb-controls .wb-sign { display: none; }
@container wb-app (max-width: 1160px) {
  .wb-controls .wb-bar:not(.wb-ranks) { gap: 0 8px; }
  .wb-controls .wb-bar:not(.wb-ranks) .wb-group { gap: 4px; }
  .wb-controls .wb-bar:not(.wb-ranks) button { padding: 0 8px; }
  .wb-controls .wb-program strong { font-size: 13px; }
}
@container wb-app (max-width: 1060px) {
  .wb-controls :is(.wb-undo, .wb-redo, .wb-share, .wb-shown button) > .wb-words { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .wb-controls :is(.wb-undo, .wb-redo, .wb-share, .wb-shown button) > .wb-sign { display: inline; }
}
@container wb-app (max-width: 720px) {
  .wb-controls button > .wb-words, .wb-controls .wb-turns > .wb-words { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .wb-controls button > .wb-sign { display: inline; }
  .wb-controls .wb-bar:not(.wb-ranks) button { width: 26px; padding: 0; }
  .wb-controls .wb-ranks { gap: 0 8px; }
  .wb-controls .wb-ranks .wb-group { gap: 4px; }
  .wb-controls .wb-ranks input { width: 60px; padding: 0 4px; }
  .wb-controls .wb-ranks label { font-size: 11px; }
}
/* an app that is too narrow for one line of signs */
@container wb-app (max-width: 420px) {
  .wb-controls .wb-bar, .wb-controls .wb-group { flex-wrap: wrap; height: auto; max-width: 100%; gap: 4px !important; }
  .wb-controls .wb-program { flex: 1 0 100%; }
}

/* the box of the button Export: it covers the elements below, so that they do not move */
.wb-panel.wb-controls { position: relative; }
.wb-controls .wb-export-box { position: absolute; z-index: 6; top: 36px; right: 0; display: flex; flex-direction: column; gap: 8px; width: min(680px, 100%); box-sizing: border-box; overflow: hidden auto; padding: 10px 14px 12px; border: 1px solid var(--wb-rule); border-radius: 6px; background: var(--wb-paper); box-shadow: 0 4px 18px rgb(0 0 0 / 18%); white-space: normal; }
.wb-controls .wb-export-box > *, .wb-controls .wb-export-body > * { flex: none; margin: 0; }
.wb-controls .wb-export-more { width: 24px; padding: 0 !important; }
.wb-export-box input { flex: 1 1 auto; min-width: 0; font-family: var(--wb-mono); font-size: 11.5px; }
.wb-export-box .wb-targets, .wb-export-box .wb-export-end { display: flex; flex-wrap: wrap; align-items: center; gap: 4px 8px; }
.wb-export-box .wb-targets > button[aria-pressed="true"] { border-color: var(--wb-accent); color: var(--wb-accent); font-weight: 600; }
.wb-export-box .wb-export-end > button { max-width: 100%; overflow: hidden; text-overflow: ellipsis; }
.wb-controls .wb-export-box > .wb-export-body { flex: 0 1 auto; display: flex; flex-direction: column; gap: 6px; min-height: 60px; overflow: auto; }
.wb-export-box .wb-plain { display: flex; flex-wrap: wrap; align-items: center; gap: 4px 12px; }
.wb-export-box .wb-plain[hidden] { display: none; }
.wb-export-box .wb-plain input { flex: 0 1 auto; }
.wb-export-box .wb-plain-figures { flex: none; border-collapse: collapse; font-size: 12px; }
.wb-export-box .wb-plain-figures th { padding: 1px 12px 1px 0; text-align: left; font-weight: 400; color: var(--wb-muted); vertical-align: top; white-space: nowrap; }
.wb-export-box .wb-plain-figures td { padding: 1px 0; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.wb-export-body.wb-old > :not(.wb-bad, h4) { opacity: 0.45; }
.wb-export-box h4 { font: 600 12px var(--wb-sans); color: var(--wb-ink); }
.wb-controls .wb-export-body > .wb-left-out { flex: none; max-height: 118px; overflow: auto; padding: 0; list-style: none; }
.wb-export-box .wb-left-out li { padding: 3px 0; border-bottom: 1px solid var(--wb-hair); overflow-wrap: anywhere; }
.wb-controls .wb-export-body > pre { flex: 0 1 auto; min-height: 90px; overflow: auto; padding: 8px 10px; border: 1px solid var(--wb-hair); border-radius: 5px; background: var(--wb-band); color: var(--wb-ink); font: 11.5px/1.45 var(--wb-mono); white-space: pre-wrap; word-break: normal; overflow-wrap: anywhere; }

/* the status line: message or preview on the left, the run on the right; its height is constant, so that nothing moves */
.wb-panel.wb-status { position: relative; display: flex; height: 26px; border: 1px solid var(--wb-hair); border-radius: 5px; background: var(--wb-paper); font-size: 12px; line-height: 24px; white-space: nowrap; }
.wb-status > * { display: flex; align-items: center; gap: 0 12px; min-width: 0; padding: 0 10px; box-sizing: border-box; border-radius: 4px; }
.wb-status > :is(.wb-message, .wb-preview) { flex: 1 1 0; overflow: hidden; border-left: 3px solid var(--wb-hair); }
.wb-status .wb-message { gap: 0 4px; padding-right: 4px; color: var(--wb-muted); }
.wb-status :is(.wb-message-text, .wb-state) { flex: 0 1 auto; min-width: 0; overflow: hidden; text-overflow: ellipsis; outline: none; }
.wb-status :is(.wb-said, .wb-error) { color: var(--wb-ink); border-left-color: var(--wb-good); background: var(--wb-band); }
.wb-status .wb-error { border-left-color: var(--wb-bad); background: var(--wb-warn-paper); }
.wb-status button.wb-close { flex: none; width: 24px; height: 24px; padding: 0; border: 0; background: none; font-size: 15px; line-height: 1; }
.wb-status .wb-preview { border-left-color: var(--wb-accent); gap: 0 16px; }
.wb-status .wb-preview > * { flex: none; }
.wb-status .wb-preview > :is(strong, .wb-how) { flex: 0 1 auto; min-width: 0; overflow: hidden; text-overflow: ellipsis; }
.wb-status .wb-preview > .wb-how { flex-shrink: 99; }
.wb-status .wb-preview :is(strong, b) { font-weight: 600; }
.wb-status .wb-live { flex: 0 0 auto; max-width: 50%; margin-left: auto; gap: 0 10px; color: var(--wb-muted); border-left: 1px solid var(--wb-hair); border-radius: 0; }
.wb-status .wb-live:not(.wb-idle) .wb-state { color: var(--wb-ink); font-weight: 600; }
.wb-status .wb-clock:empty { display: none; }
.wb-status .wb-live-memory { flex: none; display: flex; align-items: center; gap: 6px; font-size: 11px; }
.wb-status .wb-live-memory:has(.wb-memory:empty) { display: none; }
.wb-status .wb-spark { width: 72px; height: 18px; }
/* a text with the focus is shown in full, over the graph */
.wb-status > :has(> :is(.wb-message-text, .wb-state):focus) { position: absolute; z-index: 4; inset: auto 0 0 auto; max-width: 100%; min-height: 24px; max-height: 200px; overflow: auto; background: var(--wb-paper); outline: 2px solid var(--wb-accent); line-height: 18px; white-space: normal; overflow-wrap: anywhere; }
.wb-status > .wb-message:has(> .wb-message-text:focus) { inset: auto auto 0 0; }
.wb-status :is(.wb-message-text, .wb-state):focus { overflow: visible; white-space: pre-line; }
@container wb-app (max-width: 720px) { .wb-status .wb-live-memory { display: none; } }
@container wb-app (max-width: 560px) {
  .wb-status > * { padding: 0 6px; }
  .wb-status .wb-live { max-width: 60%; }
  .wb-status .wb-preview > strong:first-child { flex-shrink: 0; max-width: 100%; }
  .wb-status .wb-preview:not([hidden]) ~ .wb-live { display: none; }
}

/* the whole app at once: in a tab of JupyterLab, or on the full screen */
.wb-split { display: none; }
:is(.wb-tab .wb-app, .wb-app:fullscreen) {
  height: 100%;
  margin: 0;
  padding: 8px 12px;
  box-sizing: border-box;
  gap: 6px !important;
  overflow: hidden auto;
  background: var(--wb-paper);
  --wb-share: 0.71;
  & > * { flex: none; }
  & > .wb-help { margin-bottom: -6px; }
  & > .widget-hbox { flex: calc(100 * var(--wb-split-y, var(--wb-share))) 1 0; min-height: 120px; flex-flow: row nowrap !important; gap: 0 !important; overflow: hidden; }
  & > .widget-hbox > .wb-graph { flex: calc(100 * var(--wb-split-x, 0.7)) 1 0 !important; height: 100% !important; }
  & > .widget-hbox > .wb-inspector { flex: calc(100 - 100 * var(--wb-split-x, 0.7)) 1 0 !important; height: 100%; max-height: none !important; }
  & > .widget-hbox > .wb-outline.wb-beside { display: flex; flex: none; width: 26px; margin-right: 6px; height: 100%; flex-direction: column; overflow: hidden; border: 1px solid var(--wb-rule); border-radius: 6px; }
  & > .widget-hbox > .wb-outline.wb-beside.wb-open { width: min(var(--wb-outline, clamp(364px, 27%, 480px)), 50%); position: relative; }
  & > .wb-places { flex: calc(100 - 100 * var(--wb-split-y, var(--wb-share))) 1 0; height: auto; min-height: 60px; }
  &:not([style*="--wb-split-y"]) > .wb-places { min-height: 168px; }
  & .wb-split { display: block; flex: none; width: auto; min-width: 0; touch-action: none; position: relative; border-radius: 3px; }
  & .wb-split::after { content: ""; position: absolute; inset: 0; margin: auto; border-radius: 2px; background: var(--wb-rule); }
  & .wb-split:is(:hover, :focus-visible) { background: var(--wb-hair); outline: none; }
  & .wb-split:is(:hover, :focus-visible)::after { background: var(--wb-accent); }
  & .wb-split-x { width: 12px; cursor: col-resize; }
  & .wb-split-x::after { width: 3px; height: 40px; }
  & .wb-split-y { width: 100%; height: 8px; margin: -3px 0; cursor: row-resize; }
  & .wb-split-y::after { width: 40px; height: 3px; }
}
/* areas that are hidden: the inspector leaves a rail, and the places leave their row of titles */
.wb-fold-button { display: none; }
@container wb-app (min-width: 761px) {
  :is(.wb-tab .wb-app, .wb-app:fullscreen) {
    & .wb-panel > .wb-fold-button, & .wb-help-bar > .wb-fold-button { display: block; min-width: 24px; height: 24px; padding: 0 4px; border: 0; background: none; color: var(--wb-muted); font-size: 12px; }
    & .wb-inspector > .wb-fold-button { float: right; margin: -10px -12px 0 0; }
    & .wb-fold-words { display: none; }
    &.wb-folded-x > .widget-hbox > .wb-graph { flex: 1 1 0 !important; }
    &.wb-folded-x > .widget-hbox > .wb-inspector { flex: none !important; width: 26px !important; padding: 0; overflow: hidden; }
    &.wb-folded-x .wb-inspector > :not(.wb-fold-button) { display: none; }
    &.wb-folded-x .wb-inspector > .wb-fold-button { float: none; width: 100%; height: 100%; margin: 0; padding: 8px 0; writing-mode: vertical-rl; text-align: left; }
    &.wb-folded-x .wb-fold-words { display: inline; }
    &.wb-folded-x .wb-fold-button[data-folds="x"] > [aria-hidden], &.wb-folded-y .wb-fold-button[data-folds="y"] > [aria-hidden] { display: inline-block; rotate: 180deg; }
    &.wb-folded-y > .wb-places { flex: none; height: 26px; min-height: 0 !important; }
    &.wb-folded-y > .wb-places > .widget-tab-contents { visibility: hidden; }
  }
}
.wb-tab .wb-tab-button { display: none; }
/* a program with several parts: the row of parts, and the shown part below it */
.wb-tab .wb-of-parts { height: 100%; overflow: hidden; background: var(--jp-layout-color0, #fff); gap: 0 !important; }
.wb-tab .wb-of-parts > * { flex: none; margin: 0; }
.wb-tab .wb-of-parts > :not(.widget-vbox) { padding: 6px 12px 0; }
.wb-tab .wb-of-parts > .widget-vbox { flex: 1 1 0; min-height: 0; overflow: hidden; }
/* in a narrow app, the outline, the graph and the inspector are below each other, and the whole app scrolls */
@container wb-app (max-width: 760px) {
  :is(.wb-tab .wb-app, .wb-app:fullscreen) {
    & > .widget-hbox { flex: none !important; flex-flow: column nowrap !important; gap: 6px !important; }
    & > .widget-hbox > .wb-graph { flex: none !important; width: 100% !important; height: 340px !important; }
    & > .widget-hbox > .wb-inspector { flex: none !important; width: 100% !important; height: 220px; }
    & > .widget-hbox > .wb-outline.wb-beside { width: 100%; height: 30px; margin: 0; }
    & > .widget-hbox > .wb-outline.wb-beside.wb-open { width: 100%; height: 240px; }
    & > .wb-places { flex: none !important; height: 440px; }
    & .wb-outline.wb-beside:not(.wb-open) > button.wb-beside-bar { writing-mode: horizontal-tb; padding: 0 10px; }
    & .wb-split, & .wb-edge { display: none; }
  }
}
.wb-app.wb-elsewhere > :not(.wb-controls, .wb-strip, .wb-status) { display: none; }

/* While an app scrolls, in a cell or in a narrow tab, its strip and its status line stay in view. The output area around
   an app must not be a scroll container for this, unless the user limits its height. */
.jp-CodeCell:not(.jp-mod-outputsScrolled) :is(.jp-OutputArea, .jp-OutputArea-child, .jp-OutputArea-output, .wb-of-parts):has(.wb-app), .jp-CodeCell .wb-app:not(:fullscreen) { overflow: visible; overflow-x: clip; }
.wb-app > .wb-panel.wb-strip { position: sticky; top: 0; z-index: 4; }
.wb-app > .wb-panel.wb-status { position: sticky; top: calc(60px * var(--wb-strip-rows, 1) + 2px); bottom: 0; z-index: 1; }
/* In a low window, such as one at 200 % zoom, they would cover most of the page. */
@media (max-height: 600px) {
  .wb-app > .wb-panel:is(.wb-strip, .wb-status) { position: static; }
}
.wb-app > .wb-places { isolation: isolate; scroll-margin-top: calc(60px * var(--wb-strip-rows, 1) + 32px); }

/* an app whose kernel is gone: a note says so, and nothing can be clicked */
.wb-app.jupyter-widgets-disconnected::before { content: "The kernel is gone: run the cell again. The app shows its last state."; display: block; padding: 8px 12px; border: 1px solid var(--wb-bad); border-radius: 5px; background: var(--wb-warn-paper); color: var(--wb-ink); font: 600 13px/1.5 var(--wb-sans); }
.wb-app.jupyter-widgets-disconnected > * { pointer-events: none; opacity: 0.5; filter: grayscale(1); }

/* the strip of figures has a fixed height; a tile under the pointer or with the focus shows all its lines, over the elements below.
   Further figures of a tile that do not fit wrap to a hidden line, so that they are not cut. */
.wb-strip { display: grid; grid-auto-flow: column; grid-auto-columns: minmax(0, 1fr); grid-template-rows: repeat(var(--wb-strip-rows, 1), 60px); border: 1px solid var(--wb-rule); border-radius: 6px; background: var(--wb-paper); }
.wb-strip .wb-figure { position: relative; min-width: 0; outline: none; box-shadow: 1px 0 0 var(--wb-hair); }
.wb-strip .wb-figure[data-figure="overlap"] { grid-column: span 2; }
.wb-strip .wb-figure-box { height: 60px; padding: 2px 10px 0; box-sizing: border-box; overflow: hidden; border-radius: 5px; }
.wb-strip .wb-figure-title { display: flex; gap: 0 5px; height: 15px; overflow: hidden; color: var(--wb-muted); font-size: 11.5px; line-height: 15px; white-space: pre; }
.wb-strip .wb-rest { margin-left: -5px; }
.wb-strip .wb-opens { cursor: pointer; }
.wb-strip button.wb-figure-name { display: block; height: 15px; min-height: 0; margin: 0; padding: 0; border: 0; background: none; color: inherit; font: inherit; line-height: 15px; white-space: pre; outline: none; & .wb-rest { margin: 0; } }
.wb-strip .wb-opens:hover button.wb-figure-name { text-decoration: underline; }
.wb-strip .wb-figure-values { display: flex; flex-wrap: wrap; align-content: flex-start; align-items: baseline; gap: 0 6px; height: 43px; overflow: hidden; line-height: 12.5px; }
.wb-strip .wb-value { display: flex; flex-wrap: wrap; align-items: baseline; gap: 0 4px; max-width: 100%; height: 12.5px; overflow: hidden; }
.wb-strip .wb-value:first-child { display: contents; }
.wb-strip .wb-value > * { max-width: 100%; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.wb-strip .wb-number { flex: none; font-size: 11.5px; font-weight: 400; }
.wb-strip .wb-value:first-child > .wb-number { font-size: 15px; line-height: 18px; }
.wb-strip :is(.wb-value:first-child, .wb-must):not(.wb-foretold) > .wb-number { font-weight: 600; }
.wb-strip :is(.wb-older, .wb-earlier) :is(.wb-number, .wb-delta) { color: var(--wb-muted); }
.wb-strip .wb-kind { color: var(--wb-muted); font-size: 11px; }
.wb-strip .wb-delta { flex: none; font-size: 11.5px; color: var(--wb-muted); }
.wb-strip .wb-delta.wb-good { color: var(--wb-good); }
.wb-strip .wb-delta.wb-bad { color: var(--wb-bad); }
.wb-strip .wb-earlier :is(.wb-number, .wb-delta):is(.wb-good, .wb-bad) { color: var(--wb-muted); }
.wb-strip .wb-figure:not(:hover, :focus-visible, :has(:focus-visible)) {
  &[data-form^="short"] .wb-rest, &[data-form$="plain"] .wb-value:first-child > .wb-delta { display: none; }
}
.wb-strip .wb-figure[data-form*="small"]:not(:hover, :focus-visible, :has(:focus-visible)) .wb-must > * { font-size: 10px; letter-spacing: -0.02em; }
.wb-strip .wb-value > .wb-figure-note { display: none; flex: 1 0 100%; color: var(--wb-muted); font-size: 11.5px; white-space: pre-line; overflow-wrap: anywhere; }
.wb-strip .wb-figure:is(:hover, :focus-visible, :has(:focus-visible)) {
  & .wb-figure-box { position: absolute; z-index: 5; inset: 0 auto auto 0; width: max-content; min-width: 100%; max-width: max(100%, 320px); height: auto; min-height: 60px; padding-bottom: 5px; background: var(--wb-paper); box-shadow: 0 4px 18px rgb(0 0 0 / 18%); outline: 1px solid var(--wb-rule); }
  &:nth-last-child(-n + 2) .wb-figure-box { inset: 0 0 auto auto; }
  & :is(.wb-figure-title, .wb-figure-values) { height: auto; }
  & .wb-value { flex: 1 0 100%; height: auto; margin: 0; line-height: 16px; }
  & .wb-value > * { overflow: visible; white-space: normal; }
  & .wb-value > .wb-figure-note { display: block; white-space: pre-line; }
}
.wb-strip .wb-figure:is(:focus-visible, :has(:focus-visible)) .wb-figure-box { outline: 2px solid var(--wb-accent); }
@container wb-app (max-width: 1100px) {
  .wb-strip .wb-figure-box { padding: 2px 6px 0; }
  .wb-strip:has(> :nth-child(7)) .wb-value:first-child > .wb-number { font-size: 13.5px; }
}
/* Programs on ranks have more than six figures. In one row, the measured peak has to fit beside the predicted peak; in a narrow row, the
   compile time stands only in its own tab. */
@container wb-app (min-width: 761px) {
  .wb-strip:has(> :nth-child(7)) > .wb-figure { grid-column: span 4; &[data-figure="peak"] { grid-column: span 5; } &[data-figure="overlap"] { grid-column: span 7; } }
}
@container wb-app (min-width: 761px) and (max-width: 900px) {
  .wb-strip:has(> :nth-child(7)) {
    & > [data-figure="compile"] { display: none; }
    & > .wb-figure[data-figure="overlap"] { grid-column: span 4; }
    & > [data-figure="overlap"]:not(:hover, :focus-visible, :has(:focus-visible)) .wb-value ~ .wb-value ~ .wb-value { display: none; } /* there is no room for its words */
  }
}
@container wb-app (max-width: 760px) { .wb-app > * { --wb-strip-rows: 2; } }
@container wb-app (max-width: 480px) { .wb-app > * { --wb-strip-rows: 3; } }

.wb-plot-key { display: flex; flex-wrap: wrap; gap: 0 12px; padding-left: 8px; color: var(--wb-muted); font-size: 11px; line-height: 16px; }
.wb-plot-key i { display: inline-block; width: 10px; height: 10px; margin-right: 5px; border-radius: 2px; opacity: 0.7; }
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
.wb-inspector .wb-best { margin-bottom: 12px; }
.wb-inspector .wb-best.wb-waiting { min-height: 204px; } /* the height of three choices: when these are known, the keys below do not move */
.wb-inspector .wb-best li { overflow-wrap: anywhere; }
.wb-inspector .wb-best li > button { height: 24px; min-height: 0; padding: 0 8px; }
.wb-inspector table.wb-groups { margin-top: 6px; font-size: 11.5px; }
.wb-inspector table.wb-groups :is(td, th) { padding: 2px 0 2px 8px; }
.wb-inspector table.wb-groups :is(td, th):first-child { padding-left: 0; }
.wb-inspector .wb-moved { font-size: 12px; max-height: 110px; overflow: auto; }
:is(.wb-inspector, .wb-key-sheet) kbd { display: inline-block; padding: 1px 6px; border: 1px solid var(--wb-rule); border-radius: 4px; background: var(--wb-band); color: var(--wb-ink); font: 11px var(--wb-mono); box-shadow: none; }
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

/* fusions, compile, passes, experiments, values alive at the peak */
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
.wb-fusions .wb-chosen .wb-share { background: var(--wb-rule); }
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
.wb-experiments > .wb-scroll :is(th, td) { padding-right: 8px; }
.wb-experiments td .wb-aside { display: block; color: var(--wb-muted); font-size: 11px; line-height: 1.3; }
.wb-experiments td input[type="text"] { width: clamp(150px, 22cqw, 380px); text-overflow: ellipsis; padding: 0 6px; margin-left: -7px; height: 24px; border-color: transparent; background: transparent; }
.wb-experiments td input[type="text"]:is(:hover, :focus) { border-color: var(--wb-rule); }
.wb-experiments td input.wb-note { display: block; color: var(--wb-muted); font-size: 11.5px; }
.wb-experiments td button { height: 24px; }
.wb-experiments .wb-run-details { max-width: clamp(150px, 30cqw, 380px); font-size: 11.5px; color: var(--wb-muted); }
.wb-experiments .wb-run-details summary { width: max-content; min-height: 24px; line-height: 24px; cursor: pointer; }
.wb-experiments .wb-run-details code { overflow-wrap: anywhere; font-size: 11px; }
.wb-experiments .wb-danger { border-color: var(--wb-bad); color: var(--wb-bad); }
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
/* the places below the graph: one height for all tabs, also in a notebook cell; the open tab scrolls */
.wb-app .wb-places { height: 430px; overflow: hidden; --wb-full: 1; }
.wb-app :is(.wb-places, .wb-place) { margin: 0; width: auto; }
.wb-app .wb-places > .widget-tab-contents { flex: 1 1 0; min-height: 0; overflow: hidden; padding: 0; background: var(--wb-paper); }
.wb-app .wb-place { height: 100%; overflow: hidden; }
.wb-app .wb-place.lm-mod-hidden { display: none; }
.wb-app .wb-place > .lm-TabBar { flex: none; height: 26px; min-height: 26px; border-bottom: 1px solid var(--wb-hair); }
.wb-app .wb-place > .lm-TabBar > .lm-TabBar-content { align-items: stretch; height: 26px; padding: 0 2px; }
.wb-app .wb-place > .lm-TabBar .lm-TabBar-tab, .wb-app .wb-place > .lm-TabBar .lm-TabBar-tab.lm-mod-current { flex: 0 0 auto; min-width: 0; min-height: 0; height: 26px; margin: 0; padding: 0 10px; box-sizing: border-box; border: 0; background: none; color: var(--wb-muted); transform: none; }
.wb-app .wb-place > .lm-TabBar .lm-TabBar-tab:hover { color: var(--wb-ink); }
.wb-app .wb-place > .lm-TabBar .lm-TabBar-tab.lm-mod-current { color: var(--wb-ink); box-shadow: inset 0 -2px 0 var(--wb-accent); }
.wb-app .wb-place > .lm-TabBar .lm-TabBar-tab.lm-mod-current::before { display: none; }
.wb-app .wb-place > .lm-TabBar .lm-TabBar-tabLabel { line-height: 26px; }
.wb-app .wb-place > .widget-tab-contents { flex: 1 1 0; min-height: 0; overflow: auto; padding: 4px 10px; border: 0; background: var(--wb-paper); }
.wb-app .wb-place > .widget-tab-contents > .widget-hbox { height: 100%; flex-flow: row nowrap !important; overflow: visible; }
.wb-app .wb-alive { height: 100%; overflow: auto; }
.wb-app .wb-place .wb-scroll { max-height: none !important; overflow: visible; }
.wb-app .wb-place :is(.wb-passes, .wb-trace) { display: flex; flex-direction: column; height: 100%; min-height: 140px; }
.wb-app .wb-place :is(.wb-passes, .wb-trace) .wb-text { flex: 1 1 0; height: auto; max-height: none; overflow: auto; }
.wb-app .wb-place :is(.wb-passes, .wb-trace).lm-mod-hidden { display: none; }
@container wb-app (max-width: 760px) {
  .wb-app .wb-place > .widget-tab-contents > .widget-hbox { height: auto; flex-flow: column nowrap !important; }
  .wb-app .wb-place > .widget-tab-contents > .widget-hbox > * { flex: none !important; width: 100% !important; height: 300px; }
  .wb-app .wb-place .wb-fit { order: -1; }
}
.wb-app .wb-places > .lm-TabBar .lm-TabBar-content { padding-right: 62px; }
/* the help has no height: its button is at the end of the row of tabs below, and its note covers the tabs' content */
.wb-app > .wb-help { position: relative; z-index: 3; height: 0; min-height: 0; margin-bottom: -10px; overflow: visible; }
.wb-help .wb-help-bar { position: absolute; right: 0; top: 0; display: flex; gap: 2px; }
.wb-help .wb-help-button { height: 24px; padding: 0 10px; color: var(--wb-muted); font-size: 12px; white-space: nowrap; }
.wb-help .wb-help-words { display: none; }
@container wb-app (min-width: 1220px) {
  .wb-help .wb-help-words { display: inline; }
  .wb-help .wb-help-sign { display: none; }
}
.wb-help .wb-note-box { position: absolute; right: 0; top: 28px; width: min(480px, 100%); max-height: 240px; box-sizing: border-box; overflow: auto; padding: 10px 14px 4px; border: 1px solid var(--wb-rule); border-radius: 6px; background: var(--wb-paper); box-shadow: 0 4px 18px rgb(0 0 0 / 18%); }
.wb-help .wb-note-box p { margin: 4px 0 6px; }
.wb-app .wb-places > .lm-TabBar .lm-TabBar-tab { flex: 0 0 auto; min-width: 84px; padding: 0 12px; text-align: center; }
/* In a wide app, the tabs of the open place are beside the places, so that their content has more height. */
@container wb-app (min-width: 790px) {
  .wb-app .wb-places { position: relative; }
  .wb-app .wb-places > .lm-TabBar .lm-TabBar-tab { flex: 0 0 106px; padding: 0 6px; }
  .wb-app .wb-places > .widget-tab-contents, .wb-app .wb-place { position: static; }
  .wb-app .wb-place > .lm-TabBar { position: absolute; left: 540px; top: 0; border: 0; }
  .wb-app .wb-place > .lm-TabBar .lm-TabBar-content { gap: 2px; }
}
@container wb-app (min-width: 790px) and (max-width: 979px) {
  .wb-app .wb-places > .lm-TabBar .lm-TabBar-tab { flex: 0 0 90px; min-width: 0; padding: 0 2px; }
  .wb-app .wb-place > .lm-TabBar { left: 454px; }
  .wb-app .wb-place > .lm-TabBar .lm-TabBar-content { gap: 0; }
  .wb-app .wb-place > .lm-TabBar .lm-TabBar-tab, .wb-app .wb-place > .lm-TabBar .lm-TabBar-tab.lm-mod-current { padding: 0 4px; }
}
@container wb-app (max-width: 560px) {
  .wb-app .wb-places > .lm-TabBar .lm-TabBar-tab { min-width: 0; padding: 0 7px; }
  .wb-app .wb-place > .lm-TabBar .lm-TabBar-tab, .wb-app .wb-place > .lm-TabBar .lm-TabBar-tab.lm-mod-current { padding: 0 7px; }
}
@container wb-app (max-width: 400px) {
  .wb-app .wb-places > .lm-TabBar .lm-TabBar-tab { padding: 0 4px; }
}
.wb-panel .wb-views { display: flex; gap: 4px; margin-bottom: 6px; }
.wb-panel .wb-views button[aria-pressed="true"] { border-color: var(--wb-accent); color: var(--wb-accent); }
.wb-timeline .wb-timeline-box { position: relative; }
.wb-timeline canvas { display: block; width: 100%; touch-action: none; outline: none; }
.wb-timeline canvas:focus-visible { outline: 1px solid var(--wb-accent); outline-offset: 2px; }
.wb-timeline .wb-bar-tip { position: absolute; z-index: 2; max-width: 320px; padding: 5px 9px; pointer-events: none; border: 1px solid var(--wb-rule); border-radius: 5px; background: var(--wb-paper); box-shadow: 0 3px 12px rgb(0 0 0 / 18%); font-size: 11.5px; }

/* the tab Fit: the reason has the room that the short columns leave */
.wb-found td:not(:nth-child(3)) { white-space: nowrap; }
.wb-found td:first-child { min-width: 190px; white-space: normal; }

/* the tab Single choices */
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
.wb-inspector .wb-code pre.wb-wrapped { white-space: pre-wrap; word-break: normal; overflow-wrap: anywhere; }
.wb-inspector .wb-code .wb-row > button { height: 24px; }
.wb-inspector .wb-code .wb-pressed { border-color: var(--wb-accent); color: var(--wb-accent); font-weight: 600; }
.wb-inspector .wb-values td { overflow-wrap: anywhere; }
.wb-inspector .wb-edges { margin: 0; padding: 0; list-style: none; }
.wb-inspector .wb-edges li { padding: 4px 0; border-bottom: 1px solid var(--wb-hair); }
.wb-passes .wb-row { flex-wrap: wrap; }
.wb-passes .wb-beside { min-width: 100%; }
.wb-passes .wb-beside .wb-line { grid-template-columns: 20px minmax(0, 1fr) 20px minmax(0, 1fr); }
.wb-passes .wb-here { box-shadow: inset 3px 0 0 var(--wb-accent); }
`,""]);let r=s.toString();i.d(t,{},{A:r})},7(e,t,i){var a=i(5),n=i.n(a),o=i(6),s=(i.n(o))()(n());s.push([e.id,`/* A saved plan. In a notebook's output it is as high as its content; in the file viewer it is as high as the tab. */
.wb-saved { box-sizing: border-box; padding: 8px 12px; min-width: 0; font: 12.5px/1.5 var(--wb-sans); }
.jp-MimeDocument .wb-saved { display: flex; flex-direction: column; height: 100%; overflow: auto; }
.jp-MimeDocument .wb-saved > * { flex: none; }
.jp-MimeDocument .wb-saved > .wb-graph { flex: 1 0 320px; height: auto !important; }
.wb-saved-heading { display: flex; flex-wrap: wrap; align-items: baseline; gap: 0 14px; margin-bottom: 6px; }
.wb-saved-heading strong { font-size: 15px; }
.wb-saved-choices { margin: 8px 0; }
.wb-saved-choices ul { max-height: 140px; margin: 2px 0 0; padding-left: 18px; overflow: auto; }
.wb-saved-choices summary { min-height: 24px; cursor: pointer; }
/* A fixed height, so that the graph does not move when the selection changes. */
.wb-saved-site { height: 96px; padding-top: 6px; overflow: auto; }
`,""]);let r=s.toString();i.d(t,{},{A:r})},6(e){e.exports=function(e){var t=[];return t.toString=function(){return this.map(function(t){var i="",a=void 0!==t[5];return t[4]&&(i+="@supports (".concat(t[4],") {")),t[2]&&(i+="@media ".concat(t[2]," {")),a&&(i+="@layer".concat(t[5].length>0?" ".concat(t[5]):""," {")),i+=e(t),a&&(i+="}"),t[2]&&(i+="}"),t[4]&&(i+="}"),i}).join("")},t.i=function(e,i,a,n,o){"string"==typeof e&&(e=[[null,e,void 0]]);var s={};if(a)for(var r=0;r<this.length;r++){var l=this[r][0];null!=l&&(s[l]=!0)}for(var d=0;d<e.length;d++){var p=[].concat(e[d]);a&&s[p[0]]||(void 0!==o&&(void 0===p[5]||(p[1]="@layer".concat(p[5].length>0?" ".concat(p[5]):""," {").concat(p[1],"}")),p[5]=o),i&&(p[2]&&(p[1]="@media ".concat(p[2]," {").concat(p[1],"}")),p[2]=i),n&&(p[4]?(p[1]="@supports (".concat(p[4],") {").concat(p[1],"}"),p[4]=n):p[4]="".concat(n)),t.push(p))}},t}},5(e){e.exports=function(e){return e[1]}}}]);