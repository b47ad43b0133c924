"use strict";(self.rspackChunkthunder_workbench_trace_view=self.rspackChunkthunder_workbench_trace_view||[]).push([[0],{2(e,t,i){i.r(t),i.d(t,{default:()=>N});var a=i(3),n=i(4),s=i.n(n),o=i(5),r=i.n(o),l=i(6),h=i.n(l),d=i(7),p=i.n(d),w=i(8),b=i.n(w),c=i(9),f=i.n(c),u=i(10),x={};x.styleTagTransform=f(),x.setAttributes=p(),x.insert=h().bind(null,"head"),x.domAPI=r(),x.insertStyleElement=b(),s()(u.A,x),u.A&&u.A.locals&&u.A.locals;var m=i(13),g={};g.styleTagTransform=f(),g.setAttributes=p(),g.insert=h().bind(null,"head"),g.domAPI=r(),g.insertStyleElement=b(),s()(m.A,g),m.A&&m.A.locals&&m.A.locals;let v="application/vnd.thunder-workbench.plan+json";function y(e,t={},...i){let a=document.createElement(e);for(let[e,i]of Object.entries(t))null!=i&&!1!==i&&(e.startsWith("on")?a.addEventListener(e.slice(2),i):a.setAttribute(e,!0===i?"":i));return a.append(...i.flat(1/0).filter(e=>null!=e&&!1!==e)),a}function k(e,t){e.classList.add("wb-panel",`wb-${t}`),e.dataset.lmSuppressShortcuts="true"}let M=[[],[6,3],[2,3],[9,3,2,3]],S='"JetBrains Mono", "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace',z='system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial, sans-serif',T={paper:"#ffffff",ink:"#1f2328",muted:"#59636e",hair:"#e6e9ed",rule:"#d0d7de",band:"#f6f8fa",fills:["#e9f1fb","#fcefe6"],strokes:["#bfd3ec","#eccfb9"],texts:["#16406f","#703510"],soft:["#4a6484","#855a3d"],fusion:"#8b6fd0",fusionFill:"rgba(124, 92, 200, 0.07)",fusionText:"#5b3aa8",arcs:["#267044","#b04a00","#0b6b85"],select:"#0b57d0",found:"#ffe58a"},A={paper:"#111111",ink:"#e8eaed",muted:"#a3acb7",hair:"#25282c",rule:"#3a4047",band:"#191c20",fills:["#15273c","#33211a"],strokes:["#2f5078","#6d4632"],texts:["#c4dcf8","#f6d3bb"],soft:["#8fabcb","#cfa58b"],fusion:"#9b86e0",fusionFill:"rgba(155, 134, 224, 0.10)",fusionText:"#c9bcfa",arcs:["#63c48a","#f2a952","#54c6dc"],select:"#79aeff",found:"#6b5600"},$={f:Float32Array,d:Float64Array,i:Int32Array,h:Uint16Array,b:Uint8Array};function P(e,t,i){let a=0,n=e.length;for(;a<n;){let s=a+n>>1;t.y[e[s]]+t.height[e[s]]<i?a=s+1:n=s}return a}class O{scene=null;zoom=1;left=0;top=0;width=0;heightPx=0;matches=null;placed=null;get scaleX(){return Math.max(1,this.zoom)}columns(){let e=[this.scene,this.zoom,this.left,this.width];return(!this.placed||e.some((e,t)=>e!==this.placed?.of[t]))&&(this.placed={of:e,columns:this.placeColumns()}),this.placed.columns}placeColumns(){let e=44*!!this.scene?.bar.side.length,t=Math.max(this.width,330+2*e),i=t-2*e,a=i-24-18,n=a*(.16+(.27-.16)*Math.min(1,(i-330)/310)),s=.27*a,o=e=>e*this.scaleX-this.left,r=12+n+18+e,l=t-12-e-s;return{label:[o(12),o(12+n)],sides:[[o(r),o(r+s)],[o(l),o(l+s)]],width:t*this.scaleX}}y(e){return 30+(e-30)*this.zoom-this.top}worldY(e){return(e+this.top-30)/this.zoom+30}clamp(){if(!this.scene)return;let e=30+(this.scene.height-30)*this.zoom+14;this.top=Math.max(0,Math.min(this.top,e-this.heightPx)),this.left=Math.max(0,Math.min(this.left,this.columns().width-this.width))}lane(){let{sides:e}=this.columns(),t=(e[0][1]+e[1][0])/2,i=33*this.scaleX;return[t-i,t+i]}away(e){return 2===this.scene.arc.style[e]&&0===this.scene.arc.shape[e]}barAt(e){let{bar:t}=this.scene,{sides:i}=this.columns(),a=t.side[e],n=(8+8*t.column[e])*this.scaleX,s=e=>Math.max(this.y(e),36-this.top);return{x:0===a?i[0][0]-n:i[1][1]+n,issue:s(t.y0[e]),wait:s(t.y1[e])}}barHit(e,t){let{bar:i,strings:a}=this.scene,n=null,s=5;for(let o=0;o<i.side.length;o++){let r=this.barAt(o),l=Math.min(r.issue,r.wait)-5,h=Math.max(r.issue,r.wait)+5;if(t<l||t>h||Math.abs(e-r.x)>=s)continue;s=Math.abs(e-r.x);let d=Math.abs(t-r.issue)<Math.abs(t-r.wait)?"issue":"wait";n={kind:"bar",index:o,end:d,id:a[i[d][o]]}}return n}nodeNear(e,t){let{node:i,columns:a}=this.scene,n=-1,s=1/0;for(let o of a[e]){let a=Math.abs(this.y(0===e?i.y[o]:i.y[o]+i.height[o])-t);a<s&&([n,s]=[o,a])}return n}markBox(e){let{node:t,mark:i,marksOf:a}=this.scene,n=i.node[e],s=Math.max(1,this.zoom),{right:o,width:r}=a.get(n).find(t=>t.index===e),[,l]=this.columns().sides[t.side[n]],h=13*s;return{left:l-(o+r)*s,top:this.y(t.y[n])+Math.min(17,t.height[n])*this.zoom/2-h/2,width:r*s,height:h}}curve(e){let{arc:t}=this.scene,{sides:i}=this.columns(),a=this.y(t.y0[e]),n=this.y(t.y1[e]);if(this.away(e)){let e=i[0][1],[t]=this.lane(),n=(t-e)*.6;return[e,a,e+n,a,t-n,a,t,a]}if(1===t.shape[e]){let s=0===t.side[e]?1:-1,o=i[t.side[e]][+(0===t.side[e])],r=Math.min(46,20+.12*Math.abs(n-a))*s;return[o,a,o+r,a,o+r,n,o,n]}let s=i[0][1],o=i[1][0],r=(o-s)*.5;return[s,a,s+r,a,o-r,n,o,n]}wayBack(e){let{arc:t}=this.scene,{sides:i}=this.columns(),[,a]=this.lane(),n=this.y(t.y0[e]),s=this.y(t.y1[e]),o=i[1][0],r=(o-a)*.6;return[a,n,a+r,n,o-r,s,o,s]}locate(e){let t=this.scene?.at.get(e);if(!t)return null;let{node:i}=this.scene;if("node"===t.kind){let[e,a]=this.columns().sides[i.side[t.index]];return{x:(e+a)/2,y:this.y(i.y[t.index]+i.height[t.index]/2)}}if("mark"===t.kind){let e=this.markBox(t.index);return{x:e.left+e.width/2,y:e.top+e.height/2}}if("bar"===t.kind){let{x:e,issue:i,wait:a}=this.barAt(t.index);return{x:e,y:(i+a)/2}}return this.handle(t.index)}handle(e){let[t,i]=this.curve(e);if(this.away(e)){let[e,t]=this.lane();return{x:(e+t)/2,y:i}}return 1!==this.scene.arc.shape[e]?{x:t+32,y:i}:{x:t+(1===this.scene.arc.side[e]?-9:9),y:i}}get far(){return!this.labelled()&&!this.matches&&this.scene.module.y.length>0}bands(){let{module:e}=this.scene,t=e.y.length,i=[],a=t=>e.height[t]*this.zoom;for(let n=0;n<t;){let s=n+1,o=0;for(;s<t&&e.depth[s]>e.depth[n];s++)e.depth[s]===e.depth[n]+1&&a(s)>=11&&(o+=a(s));a(n)>=11&&o<.5*a(n)?(i.push(n),n=s):n++}return i}hit(e,t){if(!this.scene||t<30||t>this.heightPx)return null;let{node:i,arc:a,sections:n,strings:s}=this.scene,{sides:o}=this.columns();for(let[e,i]of n.entries()){let a=this.y(i.y);if(t>=a&&t<a+Math.max(14,26*this.zoom))return{kind:"section",index:e,id:`fold:${i.stem}`}}let r=this.barHit(e,t);if(r)return r;let l=this.worldY(t);if(this.far&&(e<=o[0][1]||e>=o[1][0])){let{module:e}=this.scene,t=this.bands().find(t=>e.y[t]<=l&&l<e.y[t]+e.height[t]);if(void 0!==t)return{kind:"module",index:t,id:`module:${t}`}}for(let t of[0,1]){if(e<o[t][0]||e>o[t][1])continue;let a=this.scene.columns[t],n=a[P(a,i,l)];if(void 0!==n&&i.y[n]<=l&&this.labelled())for(let{index:t}of this.scene.marksOf.get(n)??[]){let i=this.markBox(t);if(e>=i.left-1&&e<=i.left+i.width+1)return{kind:"mark",index:t,id:s[this.scene.mark.id[t]]}}if(void 0!==n&&i.y[n]<=l)return{kind:"node",index:n,id:s[i.id[n]]};return null}let h=null,d=6;for(let i=0;i<a.y0.length;i++){let n=Math.min(this.y(a.y0[i]),this.y(a.y1[i]))-10,s=Math.max(this.y(a.y0[i]),this.y(a.y1[i]))+10;if(t<n||t>s)continue;let o=this.handle(i),r=1===a.shape[i]?6:30,l=this.labelled()&&Math.abs(e-o.x)<r&&Math.abs(t-o.y)<8*Math.max(1,this.zoom)?-1:Math.min(C(this.curve(i),e,t),this.away(i)?C(this.wayBack(i),e,t):1/0);l<d&&([h,d]=[i,l])}return null===h?null:{kind:"arc",index:h,id:s[a.id[h]]}}labelled(){return 20*this.zoom>=12}}function C([e,t,i,a,n,s,o,r],l,h){let d=1/0,p=e,w=t;for(let b=1;b<=24;b++){let c=b/24,f=1-c,u=f*f*f*e+3*f*f*c*i+3*f*c*c*n+c*c*c*o,x=f*f*f*t+3*f*f*c*a+3*f*c*c*s+c*c*c*r,m=u-p,g=x-w,v=m*m+g*g||1,y=Math.max(0,Math.min(1,((l-p)*m+(h-w)*g)/v));d=Math.min(d,Math.hypot(l-p-y*m,h-w-y*g)),[p,w]=[u,x]}return d}class j extends O{model=null;el=null;canvas=null;context=null;ink=T;paper=T.paper;hover=null;asked=void 0;texts=new Map;font(e,t=S,i=400){this.context.font=`${i} ${e}px ${t}`,this.fontKey=`${i} ${e} ${t===S?"m":"s"}`}shorten(e,t){let i=`${this.fontKey}|${Math.floor(t)}|${e}`,a=this.texts.get(i);if(void 0!==a)return a;if(a=e,this.context.measureText(e).width>t){let i=0,n=e.length;for(;i<n;){let a=i+n+1>>1;this.context.measureText(`${e.slice(0,a).trimEnd()}…`).width<=t?i=a:n=a-1}a=i?`${e.slice(0,i).trimEnd()}…`:""}return this.texts.size>2e4&&this.texts.clear(),this.texts.set(i,a),a}drawArcs(e,t){let i=this.context,{arc:a,strings:n}=this.scene;this.ink;let s=this.scene.at.get(this.model.get("selected")),o=s?.kind==="node"?new Set(this.scene.arcsFrom.get(s.index)??[]):null,r=[],l=this.labelled()?null:new Set;for(let n=0;n<a.y0.length;n++){if(Math.max(a.y0[n],a.y1[n])<e||Math.min(a.y0[n],a.y1[n])>t)continue;let h=s?.kind==="arc"&&s.index===n||o?.has(n)||this.hover?.kind==="arc"&&this.hover.index===n,d=1===a.shape[n],p=this.askedOf(n),w=p??a.style[n],b=this.arcColor(n,w);if(l&&!h&&void 0===p){let e=((1048576*Math.round(this.y(a.y0[n]))+Math.round(this.y(a.y1[n])))*4+w)*8+2*a.shape[n]+a.side[n];if(l.has(e))continue;l.add(e)}this.tracePath(this.curve(n)),this.away(n)&&this.tracePath(this.wayBack(n),!0),i.lineWidth=d?h?2.5:1.25:a.width[n]*Math.max(.5,Math.min(1,1.5*this.zoom))+1.5*!!h,i.strokeStyle=b,i.globalAlpha=h?1:o?.35:.85,i.setLineDash(1===w?[6,4]:2===w?[1.5,4]:[]),i.lineCap=2===w?"round":"butt",i.stroke(),i.setLineDash([]),i.lineCap="butt",i.globalAlpha=1,(!d||h||void 0!==p)&&r.push([n,b,h,p]),d&&this.zoom>.3&&this.dot(n,b)}if(!this.labelled())return;let h=Math.max(1,this.zoom);for(let[e,t,s,o]of(this.font(10*h,S,500),r)){let[r,l]=this.curve(e),d=n[a.label[e]]+(void 0===o?"":" …"),p=i.measureText(d).width+10,w=this.away(e)?this.handle(e).x-p/2:1!==a.shape[e]?r+6:0===a.side[e]?r+16:r-16-p;i.beginPath(),i.roundRect(w,l-7*h,p,14*h,7*h),i.fillStyle=this.paper,i.fill(),i.lineWidth=s?1.5:.75,i.strokeStyle=t,i.globalAlpha=s?1:.55,i.stroke(),i.globalAlpha=1,i.fillStyle=t,i.fillText(d,w+5,l+.5)}}arcColor(e,t=this.scene.arc.style[e]){return 1===this.scene.arc.shape[e]&&0===t?this.ink.fusion:this.ink.arcs[t]}askedOf(e){return this.asked?.get(e)}dot(e,t){let i=this.context,{x:a,y:n}=this.handle(e);i.beginPath(),i.arc(a,n,3.5,0,2*Math.PI),i.fillStyle=this.paper,i.fill(),i.lineWidth=1.5,i.strokeStyle=t,i.stroke()}tracePath([e,t,i,a,n,s,o,r],l=!1){l||this.context.beginPath(),this.context.moveTo(e,t),this.context.bezierCurveTo(i,a,n,s,o,r)}drawSelection(){let e=this.scene.at.get(this.model.get("selected")),t=document.activeElement===this.canvas||this.el.getRootNode().activeElement===this.canvas;if(e?.kind==="node"){let{into:i=[],out:a=[]}=this.scene.neighbours.get(e.index)??{};for(let e of i)this.outline(e,this.ink.texts[0],1.25);for(let e of a)this.outline(e,this.ink.arcs[0],1.25);this.outline(e.index,this.ink.select,t?2.5:2)}else if(e?.kind==="mark")this.outline(this.scene.mark.node[e.index],this.ink.select,t?2.5:2);else if(e?.kind==="arc"){let{arc:t}=this.scene;for(let i of[t.source[e.index],t.target[e.index]])i>=0&&this.outline(i,this.arcColor(e.index),1.75)}this.hover?.kind==="node"&&this.outline(this.hover.index,this.ink.muted,1)}outline(e,t,i){let a=this.context,{node:n}=this.scene,[s,o]=this.columns().sides[n.side[e]],r=Math.max(2,n.height[e]*this.zoom),l=this.y(n.y[e]);l>this.heightPx||l+r<30||(a.beginPath(),a.roundRect(s-1,l-1,o-s+2,r+2,Math.min(4,r/2)),a.lineWidth=i,a.strokeStyle=t,a.stroke())}}class R extends j{wireKey=null;overview=null;ratio=1;readOnly=!1;drag=null;redraw(){this.pending||(this.pending=requestAnimationFrame(()=>{this.pending=0,this.draw()}))}draw(){let e=this.context;if(!this.width)return;let t=performance.now();if(e.setTransform(this.ratio,0,0,this.ratio,0,0),e.fillStyle=this.paper,e.fillRect(0,0,this.width,this.heightPx),this.scene){let t=this.worldY(0),i=this.worldY(this.heightPx+30);e.textBaseline="middle",e.textAlign="left",this.drawLines(t,i);let a=this.drawSections(t,i);this.drawRuns(t,i),this.drawLane(),this.drawArcs(t,i),this.drawNotes(a),this.drawBars(),this.drawNodes(t,i),this.drawModules(t,i),this.drawSelection(),this.drawTurn(),this.drawHeadings(),this.overview.draw()}this.drawHead(),this.drawn=performance.now()-t}drawModules(e,t){if(!this.far)return;let i=this.context,{module:a,sections:n,strings:s}=this.scene,{label:o,sides:r}=this.columns(),l=this.ink,h=n.map(e=>this.y(e.y)),d=[];for(let n of this.bands()){if(a.y[n]+a.height[n]<e||a.y[n]>t)continue;let p=this.y(a.y[n]),w=p+a.height[n]*this.zoom,b=(p+w)/2,c=this.hover?.kind==="module"&&this.hover.index===n;for(let e of[0,1]){let[t,o]=r[e],h=0===e?a.forward[n]:a.backward[n];if(!h)continue;i.beginPath(),i.roundRect(t+.5,p+.5,o-t-1,w-p-2,3.5),i.fillStyle=l.fills[e],i.fill(),i.lineWidth=c?1.5:1,i.strokeStyle=c?l.select:l.strokes[e],i.stroke();let d=w-p>=36,f=b-8*!!d,u=Math.min(11,w-p-2),x=o-t>170?`${h} statement${1===h?"":"s"}`:"";this.font(u-.5,z),i.fillStyle=l.soft[e],i.textAlign="right",i.fillText(x,o-8,f);let m=x?i.measureText(x).width+10:0;i.textAlign="left",this.font(u,S,500),i.fillStyle=l.texts[e],i.fillText(this.shorten(s[a.short[n]],o-t-14-m),t+7,f),d&&(this.font(10,S),i.fillStyle=l.soft[e],i.fillText(this.shorten(s[(0===e?a.forward_ops:a.backward_ops)[n]],o-t-14),t+7,b+9))}s[a.saved[n]]&&d.push([r[0][1]+6,b,Math.min(14,w-p-1),s[a.saved[n]]]);let f=h.find(e=>p>=e-1&&p<e+14)??-1/0,u=Math.max(p,f+14);i.fillStyle=l.hair,i.fillRect(o[0],Math.round(w)-1,o[1]-o[0],1),!(w-u<11)&&s[a.name[n]]&&(this.font(11,S,500),i.fillStyle=c?l.select:l.ink,i.fillText(this.shorten(s[a.name[n]],o[1]-o[0]),o[0],(u+w)/2))}for(let[e,t,a,n]of d){this.font(Math.min(10,a-1),S,500);let s=i.measureText(n).width+10;i.beginPath(),i.roundRect(e,t-a/2,s,a,a/2),i.fillStyle=this.paper,i.fill(),i.lineWidth=.75,i.strokeStyle=i.fillStyle=l.arcs[0],i.stroke(),i.fillText(n,e+5,t+.5)}}drawBars(){this.wireKey.hidden=0===this.scene.bar.side.length;let e=this.context,{bar:t,endOf:i}=this.scene,a=i.get(this.model.get("selected"))?.index;for(let i=0;i<t.side.length;i++){let n=this.barAt(i),s=this.drag?.bar?.index===i&&this.drag.moved;if(s&&(n[this.drag.bar.end]=this.drag.at),30>Math.max(n.issue,n.wait)||Math.min(n.issue,n.wait)>this.heightPx)continue;let o=s||i===a?this.ink.select:this.ink.arcs[2];for(let r of(e.strokeStyle=e.fillStyle=o,e.lineWidth=s||i===a||this.hover?.kind==="bar"&&this.hover.index===i?4:2.5,e.setLineDash(M[Math.max(t.group[i],0)%M.length]),e.beginPath(),e.moveTo(n.x,n.issue),e.lineTo(n.x,n.wait),e.stroke(),e.setLineDash([]),["issue","wait"]))e.beginPath(),e.arc(n.x,n[r],3.5,0,2*Math.PI),e.fillStyle="wait"===r?o:this.paper,e.fill(),e.lineWidth=1.5,e.stroke()}if(this.drag?.bar&&this.drag.moved){let{node:i,strings:a}=this.scene,n=this.drag.target;if(n>=0){this.outline(n,this.ink.select,2),this.font(11,z,600);let s=t.side[this.drag.bar.index],{sides:o}=this.columns(),r=`${this.drag.bar.end} before ${a[i.name[n]]}`,l=e.measureText(r).width,h=0===s?o[0][1]+8:o[1][0]-8-l;e.fillStyle=this.paper,e.fillRect(h-4,this.drag.at-9,l+8,18),e.fillStyle=this.ink.select,e.fillText(r,h,this.drag.at)}}}drawHead(){let e=this.context,{label:t,sides:i}=this.columns(),a=this.ink;e.fillStyle=this.paper,e.fillRect(0,0,this.width,29),e.fillStyle=a.rule,e.fillRect(0,29,this.width,1),this.font(11,z,600),e.textBaseline="middle";let n=(t,i,a,n="left")=>{e.textAlign=n,e.fillStyle=a,e.fillText(t,i,15)};n("program",t[0],a.muted),n("forward ↓",i[0][0],a.texts[0]);let s=this.scene?.lane?this.lane():null,o=i[0][1],r=s?s[0]:i[1][0],l=["saved for backward","saved"].find(t=>e.measureText(t).width<=r-o-16);l&&n(l,(o+r)/2,a.muted,"center"),s&&n("CPU",(s[0]+s[1])/2,a.arcs[2],"center"),n("↑ backward",i[1][0],a.texts[1]),e.textAlign="left"}drawLines(e,t){let i=this.context,{line:a,block:n,strings:s}=this.scene,{label:o}=this.columns(),r=this.ink,l=11*Math.max(1,this.zoom),h=15*Math.max(1,this.zoom),d=26*this.zoom<14?this.scene.sections.map(e=>this.y(e.y)):[],{module:p}=this.scene,w=this.far?this.bands():[];for(let b=0,c=0;b<a.y.length;b++){if(a.y[b]+a.height[b]<e)continue;if(a.y[b]>t)break;for(;c<w.length&&p.y[w[c]]+p.height[w[c]]<=a.y[b];)c++;if(c<w.length&&p.y[w[c]]<=a.y[b])continue;let f=Math.min(a.y[b]+a.height[b],c<w.length?p.y[w[c]]:1/0),u=this.y(a.y[b]),x=this.y(f);x-u>3&&(i.fillStyle=r.hair,i.fillRect(o[0],Math.round(u),this.width*this.scaleX,1));let m=d.find(e=>u>=e-1&&u<e+14)??-1/0,g=Math.max(u,m+14,Math.min(30,x-2*h-6)),v=x-g;if(v<h-1)continue;let y=o[1]-o[0],k=Math.floor((v-3)/h),M=g+(k<1?v/2:4+h/2),S=s[a.text[b]]||s[n.symbol[a.block[b]]],T=s[a.place[b]];if(k>=2){this.font(l),i.fillStyle=r.ink,i.fillText(this.shorten(S,y),o[0],M),M+=h,this.font(l-.5,z),i.fillStyle=r.muted,i.fillText(this.shorten(T,y),o[0],M),this.drawSymbols(b,M+h/2,l);continue}this.font(l-.5,z);let A=s[a.short[b]],$=A?i.measureText(A).width+10:0,P=$>0&&y-$>90;P&&(i.fillStyle=r.muted,i.textAlign="right",i.fillText(A,o[1],M),i.textAlign="left"),this.font(l),i.fillStyle=r.ink,i.fillText(this.shorten(S,P?y-$:y),o[0],M)}}drawSymbols(e,t,i){if(!this.labelled())return;let a=this.context,{line:n,block:s,strings:o}=this.scene,{label:r}=this.columns();if(!(n.count[e]<2)){this.font(i-.5,S),a.fillStyle=this.ink.muted,a.textAlign="right";for(let l=n.block[e];l<n.block[e]+n.count[e];l++){let e=this.y(s.y[l])+13*this.zoom;e-i/2<t||a.fillText(this.shorten(o[s.symbol[l]],r[1]-r[0]),r[1],e)}a.textAlign="left"}}range({first:e,last:t},i){let a=e.lastIndexOf("."),n=t.slice(t.lastIndexOf(".")+1),s=[`${e} … ${t}`,`${e} … ${n}`,`${e.slice(e.lastIndexOf(".",a-1)+1)} … ${n}`];return s.find(e=>this.context.measureText(e).width<=i)??s[2]}drawSections(e,t){let i=this.context,{sections:a}=this.scene,{label:n}=this.columns(),s=this.ink,o=[];for(let r of a){if(r.y+r.height<e||r.y>t)continue;let a=Math.round(this.y(r.y)),l=26*this.zoom,h=this.columns().width-this.left;if(i.fillStyle=s.rule,i.fillRect(0,Math.round(this.y(r.y+r.height)),h,1),r.height*this.zoom<18)continue;let d=l<14;i.fillStyle=s.band,i.fillRect(0,a,d?n[1]+6:h,Math.max(l,14)),i.fillStyle=s.rule,i.fillRect(0,a,h,1);let p=11.5*Math.max(1,this.zoom),w=a+Math.max(l,14)/2;this.font(p,z,600),i.fillStyle=s.ink;let b=r.count>1,c=r.identical>1,f=c&&!this.readOnly,u=f?b?"▸ ":"▾ ":"",x=d?n[1]-n[0]:this.width/2,m=this.shorten(`${u}${b?this.range(r,x-i.measureText(u).width):r.first}`,x);if(i.fillText(m,n[0],w),!c&&!r.differs||d)continue;let g=n[0]+i.measureText(m).width+10;this.font(p-.5,z);let v=r.stem.startsWith("loop:")?"repeats":"layers",y=`${r.count} identical ${v} shown as one`,k=[f?b?`${y}, click to unfold`:`click to fold identical ${v}`:b?y:"",r.differs&&`not folded with those above: ${r.differs}`].filter(Boolean).join("; ");o.push({text:this.shorten(k,this.width-g-12),x:g,middle:w,size:p-.5})}return o}drawNotes(e){let t=this.context,i=this.ink;for(let{text:a,x:n,middle:s,size:o}of e)this.font(o,z),t.fillStyle=i.band,t.fillRect(n-3,s-.7*o,t.measureText(a).width+6,1.4*o),t.fillStyle=i.muted,t.fillText(a,n,s)}drawRuns(e,t){let i=this.context,{run:a}=this.scene,{sides:n}=this.columns(),s=this.ink;for(let o=0;o<a.y.length;o++){if(a.y[o]+a.height[o]<e||a.y[o]>t)continue;let[r,l]=n[a.side[o]],h=this.y(a.y[o])-2,d=a.height[o]*this.zoom+4;i.beginPath(),i.roundRect(r-4,h,l-r+8,d,Math.min(5,d/2)),i.fillStyle=s.fusionFill,i.fill(),i.lineWidth=1,i.strokeStyle=s.fusion,i.stroke()}for(let{from:a,to:o,side:r,fusion:l}of(i.strokeStyle=s.fusion,i.lineWidth=1,this.scene.spines)){if(o<e||a>t)continue;let s=6+l%2*3,h=0===r?n[0][0]-s:n[1][1]+s,d=0===r?n[0][0]-4:n[1][1]+4;i.beginPath(),i.moveTo(d,this.y(a)),i.lineTo(h,this.y(a)),i.lineTo(h,this.y(o)),i.lineTo(d,this.y(o)),i.stroke()}}drawLane(){if(!this.scene.lane)return;let e=this.context,[t,i]=this.lane();e.fillStyle=this.ink.arcs[2],e.globalAlpha=.08,e.fillRect(t,30,i-t,this.heightPx),e.globalAlpha=.35,e.fillRect(t,30,1,this.heightPx),e.fillRect(i-1,30,1,this.heightPx),e.globalAlpha=1}drawMarks(e){let t=this.context,{mark:i,strings:a}=this.scene,n=this.scene.at.get(this.model.get("selected"));for(let{index:s}of this.scene.marksOf.get(e)??[]){let{left:e,top:o,width:r,height:l}=this.markBox(s),h=i.state[s],d=n?.kind==="mark"&&n.index===s||this.hover?.kind==="mark"&&this.hover.index===s,p=1&h?this.ink.select:2&h?this.ink.muted:this.ink.fusionText;t.beginPath(),t.roundRect(e,o,r,l,l/2),t.fillStyle=1&h?p:this.paper,t.fill(),t.lineWidth=d?2:.75,t.strokeStyle=p,2&h&&t.setLineDash([2,2]),t.stroke(),t.setLineDash([]),this.font(9.5*Math.max(1,this.zoom),S,500),t.fillStyle=1&h?this.paper:p,t.textAlign="center",t.fillText(a[i.text[s]],e+r/2,o+l/2+.5),t.textAlign="left"}}drawNodes(e,t){let i=this.context,{node:a,strings:n,columns:s}=this.scene,{sides:o}=this.columns(),r=this.ink,l=20*this.zoom>=12,h=11*Math.max(Math.min(this.zoom,3),this.zoom<1?.91:1),{module:d}=this.scene,p=this.far?this.bands():[];for(let w of[0,1]){let b=s[w],[c,f]=o[w],u=0===w?d.forward:d.backward,x=new Path2D;for(let s=P(b,a,e),o=0;s<b.length;s++){let e=b[s];if(a.y[e]>t)break;for(;o<p.length&&d.y[p[o]]+d.height[p[o]]<=a.y[e];)o++;if(o<p.length&&u[p[o]]&&d.y[p[o]]<=a.y[e])continue;let m=a.flags[e],g=this.y(a.y[e]),v=Math.max(.75,a.height[e]*this.zoom),y=this.matches?.has(e);if(1&m){if(l){this.font(h,z,600),i.fillStyle=y?r.select:r.fusionText;let t=n[a.detail[e]],s=this.shorten(n[a.name[e]],f-c-12);i.fillText(s,c+4,g+v/2);let o=f-c-20-i.measureText(s).width;this.font(h-.5,z),i.textAlign="right",o>30&&i.fillText(this.shorten(t,o),f-4,g+v/2),i.textAlign="left"}continue}if(v<=5&&!y&&!(2&m)){x.rect(c,g,f-c,v);continue}let k=Math.min(3.5,v/3);if(i.beginPath(),v>5?i.roundRect(c,g,f-c,v,k):i.rect(c,g,f-c,v),2&m?(i.setLineDash([4,3]),i.lineWidth=1,i.strokeStyle=r.arcs[1],i.stroke(),i.setLineDash([])):(i.fillStyle=y?r.found:v>5?r.fills[w]:r.strokes[w],i.fill(),v>5&&(i.lineWidth=1,i.strokeStyle=8&m?r.arcs[1]:r.strokes[w],8&m&&i.setLineDash([4,3]),i.stroke(),i.setLineDash([]))),!l||v<9)continue;let M=g+v/2,T=7*Math.max(1,this.zoom),A=this.scene.marksOf.get(e),$=A?.at(-1),P=$?($.right+$.width)*Math.max(1,this.zoom):0;this.font(Math.min(h,v),S,500),i.fillStyle=2&m?r.arcs[1]:r.texts[w];let O=this.shorten(n[a.name[e]],f-c-2*T-P);i.fillText(O,c+T,M);let C=f-c-2*T-P-i.measureText(O).width-10;A&&this.drawMarks(e),this.font(Math.min(h-1,v-.5),S);let j=n[a.detail[e]],R=i.measureText(j).width<=C?j:n[a.shape[e]];R&&i.measureText(R).width<=C&&(i.fillStyle=r.soft[w],i.textAlign="right",i.fillText(R,f-T-P,M),i.textAlign="left")}i.fillStyle=r.strokes[w],i.fill(x)}}drawTurn(){let e=this.context,{node:t,columns:i}=this.scene,{sides:a}=this.columns(),n=this.ink;if(!i[0].length||!i[1].length)return;let s=e=>{let a=i[e].at(-1);return this.y(t.y[a]+t.height[a])},o=Math.max(s(0),s(1))+5,[r,l]=[a[0][1]-14,a[1][0]+14];if(o>this.heightPx||o<30)return;e.strokeStyle=e.fillStyle=n.muted,e.lineWidth=1.5,e.beginPath(),e.moveTo(r,s(0)+1),e.lineTo(r,o),e.lineTo(l,o),e.lineTo(l,s(1)+1),e.stroke(),e.beginPath(),e.moveTo(l-4,s(1)+6),e.lineTo(l,s(1)+1),e.lineTo(l+4,s(1)+6),e.stroke(),this.font(10,z);let h="forward ends, backward begins",d=l-r-12;if(e.measureText(h).width>d)return;e.textAlign="center";let p=e.measureText(h).width+8,w=(r+l)/2;e.fillStyle=this.paper,e.fillRect(w-p/2,o-6,p,12),e.fillStyle=n.muted,e.fillText(h,w,o),e.textAlign="left"}drawHeadings(){if(!this.labelled())return;let e=this.context,{run:t,strings:i}=this.scene,{sides:a}=this.columns();this.font(11,z,600);for(let n=0;n<t.y.length;n++){let s=this.y(t.y[n]),o=s+t.height[n]*this.zoom;if(s>26||o<62)continue;let[r,l]=a[t.side[n]];e.fillStyle=this.paper,e.fillRect(r-3.5,30,l-r+7,16),e.fillStyle=this.ink.fusionFill,e.fillRect(r-3.5,30,l-r+7,16),e.fillStyle=this.ink.fusionText,e.fillText(this.shorten(`↑ ${i[t.name[n]]}`,l-r-8),r+4,38)}}}let L=e=>`<svg width="46" height="18" viewBox="0 0 46 18" aria-hidden="true">${e}</svg>`;class B{constructor(e){for(let[t,i]of(this.view=e,this.canvas=document.createElement("canvas"),this.canvas.className="wb-map",this.canvas.tabIndex=0,Object.entries({role:"scrollbar","aria-label":"Part of the graph in view","aria-orientation":"vertical","aria-valuemin":"0","aria-valuemax":"100"})))this.canvas.setAttribute(t,i);this.canvas.title="The whole graph: drag the part in view, or use the arrow keys",e.canvas.after(this.canvas),this.whole=document.createElement("canvas"),this.drawnOf=null,this.wide=0;let t=(t,i)=>this.canvas.addEventListener(t,i,{signal:e.stop.signal});for(let i of(t("pointerdown",e=>this.onDown(e)),t("pointermove",e=>{this.canvas.hasPointerCapture(e.pointerId)&&this.moveTo(e.offsetY-this.grip)}),t("keydown",e=>this.onKey(e)),["focus","blur"]))t(i,()=>e.redraw())}get scale(){return Math.min(1,(this.height-2)/Math.max(1,this.view.scene.height-30))}get height(){return this.view.heightPx-30}window(){let{view:e,scale:t}=this,i=Math.max(0,(e.worldY(30)-30)*t);return{from:i,tall:Math.max(6,Math.min(e.scene.height-30,e.worldY(e.heightPx)-30)*t-i)}}moveTo(e){let{view:t}=this;t.atFit=!1,t.top=e/this.scale*t.zoom,t.setHover(null),t.clamp(),t.redraw()}onDown(e){e.preventDefault(),this.canvas.focus({preventScroll:!0}),this.canvas.setPointerCapture(e.pointerId);let{from:t,tall:i}=this.window(),a=e.offsetY>=t&&e.offsetY<=t+i;this.grip=a?e.offsetY-t:i/2,this.moveTo(e.offsetY-this.grip)}onKey(e){let{view:t}=this,i=(t.heightPx-30)*.9,a={ArrowDown:()=>t.scroll(60),ArrowUp:()=>t.scroll(-60),PageDown:()=>t.scroll(i),PageUp:()=>t.scroll(-i),Home:()=>t.scroll(-1/0),End:()=>t.scroll(1/0),"+":()=>t.onTool("in"),"=":()=>t.onTool("in"),"-":()=>t.onTool("out")}[e.key];!a||e.ctrlKey||e.metaKey||e.altKey||(e.preventDefault(),e.stopPropagation(),t.atFit=!1,a())}paintWhole(e,t){let{view:i,whole:a,scale:n}=this,s=a.getContext("2d"),{node:o,arc:r,sections:l}=i.scene,h=i.ink;a.width=e*t,a.height=this.height*t,s.setTransform(t,0,0,t,0,0);let d=e=>(e-30)*n,p=(e-8)*.36,w=[4,e-4-p];for(let t of l)s.fillStyle=h.rule,s.fillRect(0,d(t.y),e,1);for(let e=0;e<o.y.length;e++)3&o.flags[e]||(s.fillStyle=h.strokes[o.side[e]],s.fillRect(w[o.side[e]],d(o.y[e]),p,Math.max(.75,o.height[e]*n-.25)));s.lineWidth=.75;for(let e=0;e<r.y0.length;e++)0===r.shape[e]&&(s.strokeStyle=h.arcs[r.style[e]],s.beginPath(),s.moveTo(w[0]+p,d(r.y0[e])),s.lineTo(w[1],d(r.y1[e])),s.stroke())}draw(){let{view:e}=this,t=this.wide=this.canvas.clientWidth||this.wide;if(!t||!e.scene||this.height<=0)return;let i=e.ratio,a=[e.scene,e.ink,t,this.height,i];(!this.drawnOf||a.some((e,t)=>e!==this.drawnOf[t]))&&(this.drawnOf=a,this.canvas.width=t*i,this.canvas.height=this.height*i,this.paintWhole(t,i));let n=this.canvas.getContext("2d",{alpha:!1});n.setTransform(1,0,0,1,0,0),n.fillStyle=e.paper,n.fillRect(0,0,this.canvas.width,this.canvas.height),n.drawImage(this.whole,0,0),n.setTransform(i,0,0,i,0,0),this.drawChosen(n,t);let{from:s,tall:o}=this.window(),r=Math.max(1,(e.scene.height-30)*this.scale),l=o>=r-1;n.fillStyle=e.ink.select,n.globalAlpha=.12*!l,n.fillRect(0,s,t,o),n.globalAlpha=1,n.strokeStyle=document.activeElement===this.canvas?e.ink.select:e.ink.muted,n.lineWidth=document.activeElement===this.canvas?2:1,n.strokeRect(1,s+1,t-2,Math.min(o,this.height-s)-2);let h=l?0:Math.round(100*s/Math.max(1,r-o));this.canvas.setAttribute("aria-valuenow",String(Math.max(0,Math.min(100,h)))),this.canvas.setAttribute("aria-valuetext",l?"all of it":`${Math.round(100*o/r)} % of it, from ${Math.round(100*s/r)} %`)}drawChosen(e,t){let{view:i,scale:a}=this,{node:n,at:s}=i.scene,o=i.chosenPlace(),r=(i,n)=>{e.fillStyle=n,e.fillRect(0,(i-30)*a-1,t,2.5)};for(let e of i.matches??[])r(n.y[e]+n.height[e]/2,i.ink.found);o&&s&&r("arc"===o.kind?i.scene.arc.y0[o.index]:n.y[o.index]+n.height[o.index]/2,i.ink.select)}}class D extends R{constructor(e,t){let i,a;super(),this.model=e,this.el=t,this.zoom=1,this.left=0,this.top=0,this.refitUntil=0,this.atFit=!0,this.hover=null,this.drawn=0,this.texts=new Map,this.preview=(i=0,a="null",t=>{clearTimeout(i);let n=JSON.stringify(t);i=window.setTimeout(()=>{n!==a&&(a=n,e.send({type:"preview",...t}))},t?120:300)}),this.received=0,this.coming=!1,this.wanted="",this.build(),this.paintTheme(),this.receive(e.get("data"))}async receive(e){let t=++this.received;if(e?.packed){if("u"<typeof DecompressionStream)return void this.model.send({type:"plain"});if(this.coming=!0,e=await async function(e){let t=new Blob([e]).stream().pipeThrough(new DecompressionStream("deflate")),i=await new Response(t).arrayBuffer(),a=new DataView(i).getUint32(0,!0),n=JSON.parse(new TextDecoder().decode(new Uint8Array(i,4,a))),s=new Uint8Array(i,4+a,n.strings);n.strings=new TextDecoder().decode(s).split("\0");let o=4+a+s.length;for(let e of Object.values(n.tables))for(let t of Object.values(e)){let e=t[1];t[1]=new DataView(i,o,e),o+=e}return n}(e.packed),t!==this.received)return}this.coming=!1,this.take(function(e){let t;if(!e?.strings)return null;let i={strings:e.strings,sections:e.sections,height:e.height,views:e.views??{count:0,hidden:0}};for(let[t,a]of Object.entries(e.tables))for(let[e,[n,s]]of(i[t]={},Object.entries(a)))i[t][e]=function(e,t){let{buffer:i,byteOffset:a=0,byteLength:n}=t instanceof ArrayBuffer?{buffer:t,byteLength:t.byteLength}:t;return new e(i.slice(a,a+n))}($[n],s);i.module??={y:[],height:[],depth:[]};let{node:a,arc:n}=i;i.at=new Map;for(let e=0;e<a.id.length;e++)i.at.set(i.strings[a.id[e]],{kind:"node",index:e});for(let e=0;e<n.id.length;e++)i.at.set(i.strings[n.id[e]],{kind:"arc",index:e});for(let e=0;e<i.alias.id.length;e++){let t=i.alias.mark[e];i.at.set(i.strings[i.alias.id[e]],t<0?{kind:"arc",index:i.alias.arc[e]}:{kind:"mark",index:t})}i.marksOf=new Map;for(let e=0;e<i.mark.id.length;e++){i.at.set(i.strings[i.mark.id[e]],{kind:"mark",index:e});let t=i.mark.node[e],a=i.marksOf.get(t)??[],n=a.length?a.at(-1).right+a.at(-1).width+3:3;i.marksOf.set(t,[...a,{index:e,right:n,width:5.8*i.strings[i.mark.text[e]].length+11}])}i.endOf=new Map;for(let e=0;e<i.bar.side.length;e++)for(let t of["issue","wait"]){let a=i.strings[i.bar[t][e]];i.endOf.set(a,{index:e,end:t}),i.at.has(a)||i.at.set(a,{kind:"bar",index:e})}i.lane=n.style.includes(2),i.columns=[0,1].map(e=>Array.from(a.y.keys()).filter(t=>a.side[t]===e).sort((e,t)=>a.y[e]-a.y[t])),i.arcsFrom=new Map;for(let e=0;e<n.source.length;e++)for(let t of[n.source[e],n.target[e]])i.arcsFrom.has(t)||i.arcsFrom.set(t,[]),i.arcsFrom.get(t).push(e);return i.spines=function({y:e,height:t,fusion:i,side:a}){let n=new Map;for(let s=0;s<e.length;s++){let o=2*i[s]+a[s],r=n.get(o);r?(r.to=e[s]+t[s]/2,r.pieces++):n.set(o,{from:e[s]+t[s]/2,to:e[s],side:a[s],pieces:1,fusion:i[s]})}return Array.from(n.values()).filter(({pieces:e})=>e>1)}(i.run),Object.defineProperty(i,"neighbours",{enumerable:!0,get:()=>t??=function({source:e,target:t}){let i=new Map,a=e=>(i.has(e)||i.set(e,{into:[],out:[]}),i.get(e));for(let i=0;i<e.length;i++)a(e[i]).out.push(t[i]),a(t[i]).into.push(e[i]);return i}(i.edge)}),i}(e)),this.wanted&&this.reveal(this.wanted,!0),this.wanted=""}build(){let{el:e,model:t}=this;this.readOnly=!0===t.get("read_only");let i=`Arrows move,${this.readOnly?"":" space turns the selected choice,"} ${this.readOnly?"":" o folds or unfolds identical layers,"} slash searches.`;e.classList.add("wb-graph"),e.dataset.lmSuppressShortcuts="true",e.style.height=`${t.get("height")}px`,e.innerHTML=`
      <canvas tabindex="0" role="application"
        aria-label="Joint graph. ${i}"></canvas>
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
      <span class="wb-unseen" role="status"></span>`,this.viewsButton=e.querySelector('[data-do="views"]'),this.wireKey=e.querySelector(".wb-key-wire"),this.canvas=e.querySelector("canvas"),this.search=e.querySelector("input"),this.found=e.querySelector(".wb-found"),this.tip=e.querySelector(".wb-tip"),this.told=e.querySelector('[role="status"]'),this.context=this.canvas.getContext("2d",{alpha:!1}),this.stop=new AbortController;let a=(e,t,i,a={})=>e.addEventListener(t,i,{signal:this.stop.signal,...a});a(this.canvas,"pointerdown",e=>this.onDown(e)),a(this.canvas,"pointermove",e=>this.onMove(e)),a(this.canvas,"pointerup",e=>this.onUp(e)),a(this.canvas,"pointerleave",()=>this.setHover(null)),a(this.canvas,"wheel",e=>this.onWheel(e),{passive:!1}),a(this.canvas,"keydown",e=>this.onKey(e)),a(this.canvas,"focus",()=>this.redraw()),a(this.canvas,"blur",()=>{this.preview(null),this.redraw()}),a(this.search,"input",()=>this.onSearch()),a(this.search,"keydown",e=>this.onSearchKey(e)),a(e.querySelector(".wb-foot"),"click",e=>this.onTool(e.target.dataset?.do)),this.overview=new B(this),this.sizes=new ResizeObserver(()=>this.resize()),this.sizes.observe(e),this.themes=new MutationObserver(()=>this.paintTheme()),this.themes.observe(document.body,{attributes:!0,attributeFilter:["data-jp-theme-light","data-jp-theme-name","class"]}),this.onData=()=>{this.receive(t.get("data"))},this.onSelected=()=>{this.tell(),this.redraw()},this.onAsked=()=>{this.coming||(this.takeAsked(),this.redraw())},this.onReveal=e=>{e?.type==="reveal"&&(this.coming?this.wanted=e.id:this.reveal(e.id,!0))},t.on("change:data",this.onData),t.on("change:selected",this.onSelected),t.on("change:asked",this.onAsked),t.on("msg:custom",this.onReveal)}take(e){let t=this.scene&&e?this.heldBy(e):null,i=!this.scene;this.scene=e,this.takeAsked(),performance.now()<this.refitUntil||i&&this.atFit&&this.width?this.fit():t&&(this.top+=this.locate(t.id).y-t.y),this.nameViews(),this.texts.clear(),this.setHover(null),this.clamp(),this.redraw()}takeAsked(){let e=Object.entries(this.model.get("asked")??{});this.asked=new Map(e.map(([e,t])=>[this.scene?.at.get(e),t]).filter(([e])=>e?.kind==="arc").map(([e,t])=>[e.index,t]))}heldBy(e){let{node:t,columns:i,strings:a}=this.scene,n=this.worldY(30),s=({y:e})=>e>=30&&e<=this.heightPx,o=i[0].slice(P(i[0],t,n)).map(e=>a[t.id[e]]);for(let t of[this.model.get("selected"),...o]){let i=t&&e.at.has(t)?this.locate(t):null;if(i&&s(i))return{id:t,y:i.y}}return null}nameViews(){let{count:e,hidden:t}=this.scene?.views??{count:0,hidden:0};this.viewsButton.hidden=0===e||this.readOnly,this.viewsButton.textContent=t?`Show ${t} views`:`Hide ${e} views`}destroy(){this.stop.abort(),this.sizes.disconnect(),this.themes.disconnect(),this.model.off("change:data",this.onData),this.model.off("change:selected",this.onSelected),this.model.off("change:asked",this.onAsked),this.model.off("msg:custom",this.onReveal)}paintTheme(){this.dark=function(e){let t=document.body.dataset.jpThemeLight;if(t)return"false"===t;for(let t=e;t;t=t.parentElement){let e=getComputedStyle(t).backgroundColor.match(/[\d.]+/g)?.map(Number);if(e&&(e.length<4||e[3]>.5))return .3*e[0]+.6*e[1]+.1*e[2]<110}return matchMedia("(prefers-color-scheme: dark)").matches}(this.el),this.el.classList.toggle("wb-dark",this.dark),this.model.get("dark")!==this.dark&&(this.model.set("dark",this.dark),this.model.save_changes()),this.ink=this.dark?A:T;let e=getComputedStyle(this.el).getPropertyValue("--jp-layout-color0").trim();this.paper=e||this.ink.paper,this.redraw()}resize(){let e=window.devicePixelRatio||1;this.el.classList.toggle("wb-slim",this.el.clientWidth<420),this.width=this.canvas.clientWidth,this.heightPx=this.el.clientHeight-34,this.width&&(this.canvas.width=Math.round(this.width*e),this.canvas.height=Math.round(this.heightPx*e),this.ratio=e,this.texts.clear(),this.atFit&&this.fit(),this.clamp(),this.draw())}setZoom(e,t=this.width/2,i=this.heightPx/2){let a=this.worldY(i),n=(t+this.left)/this.scaleX;this.zoom=Math.max(.01,Math.min(3,e)),this.atFit=!1,this.top=30+(a-30)*this.zoom-i,this.left=n*this.scaleX-t,this.clamp(),this.redraw()}fit(){this.scene&&(this.left=this.top=0,this.setZoom(Math.min(1,(this.heightPx-30-14)/Math.max(1,this.scene.height-30))),this.atFit=!0)}approach(e){let{module:t}=this.scene,i=this.heightPx-30-16;this.setZoom(Math.max(.75,Math.min(1,i/t.height[e]))),this.top=(t.y[e]-30)*this.zoom-8,this.clamp(),this.redraw()}place(e,t){t>=0&&this.model.send({type:"place",id:e,node:this.scene.strings[this.scene.node.id[t]]})}nudge(e){let{bar:t,endOf:i,columns:a}=this.scene,n=this.model.get("selected"),s=i.get(n);if(!s)return;let o=t.side[s.index],r=t[`${s.end}_node`][s.index],l=a[o].indexOf(r)+(0===o?e:-e);this.place(n,a[o][l]??-1)}pointer(e){let t=this.canvas.getBoundingClientRect();return[e.clientX-t.left,e.clientY-t.top]}onDown(e){this.canvas.focus({preventScroll:!0});let[t,i]=this.pointer(e),a=this.scene&&!this.readOnly?this.barHit(t,i):null;this.drag={x:t,y:i,left:this.left,top:this.top,moved:!1,bar:a},this.canvas.setPointerCapture(e.pointerId)}onMove(e){let[t,i]=this.pointer(e);if(!this.drag)return void this.setHover(this.hit(t,i),t,i);if(Math.hypot(t-this.drag.x,i-this.drag.y)>3&&(this.drag.moved=!0),this.drag.moved){if(this.drag.bar){this.drag.at=i,this.drag.target=this.nodeNear(this.scene.bar.side[this.drag.bar.index],i),this.tip.hidden=!0,this.redraw();return}this.atFit=!1,this.left=this.drag.left-(t-this.drag.x),this.top=this.drag.top-(i-this.drag.y),this.setHover(null),this.canvas.style.cursor="grabbing",this.clamp(),this.redraw()}}onUp(e){let t=this.drag;if(this.drag=null,this.canvas.style.cursor="",t?.bar&&t.moved){this.select(t.bar.id),this.place(t.bar.id,t.target);return}if(!t||t.moved)return;let i=this.hit(...this.pointer(e));i?"section"===i.kind?this.fold(i.index):"module"===i.kind?this.approach(i.index):("node"===i.kind&&i.id===this.model.get("selected")&&this.unfold(i.index),this.select(i.id),"node"!==i.kind&&"bar"!==i.kind&&this.turn(i.id)):this.select("")}onWheel(e){let[t,i]=this.pointer(e);if(e.ctrlKey||e.metaKey){e.preventDefault(),this.setZoom(this.zoom*Math.exp(-e.deltaY*(e.deltaMode?.05:.0022)),t,i);return}let{top:a,left:n}=this,s=1===e.deltaMode?18:1;this.top+=e.deltaY*s,this.left+=e.deltaX*s,this.clamp(),(this.top!==a||this.left!==n)&&e.preventDefault(),this.setHover(null),this.redraw()}onKey(e){if(e.ctrlKey||e.metaKey||e.altKey)return;let t={ArrowDown:()=>this.step(1),ArrowUp:()=>this.step(-1),ArrowLeft:()=>this.across(-1),ArrowRight:()=>this.across(1),Enter:()=>{let e=this.chosenPlace();e?.kind==="node"&&this.unfold(e.index)}," ":()=>this.turnSelected(),"/":()=>this.search.focus(),u:()=>this.model.send({type:"undo"}),r:()=>this.model.send({type:"redo"}),f:()=>this.onTool("fit"),1:()=>this.setZoom(1),"+":()=>this.onTool("in"),o:()=>this.foldHere(),"[":()=>this.nudge(-1),"]":()=>this.nudge(1),"=":()=>this.onTool("in"),"-":()=>this.onTool("out"),Escape:()=>this.select(""),Home:()=>{this.top=0,this.redraw()},End:()=>{this.top=1/0,this.clamp(),this.redraw()},PageDown:()=>this.scroll(.9*this.heightPx),PageUp:()=>this.scroll(-(.9*this.heightPx))}[e.key];t&&(e.preventDefault(),e.stopPropagation(),t())}scroll(e){this.top+=e,this.clamp(),this.redraw()}onTool(e){"in"===e?this.setZoom(1.25*this.zoom):"out"===e?this.setZoom(this.zoom/1.25):"one"===e?this.setZoom(1):"fit"===e?(this.fit(),this.refitUntil=performance.now()+2e3,this.readOnly||this.model.send({type:"relax"})):"legend"===e?function e(t){let i=t.el.querySelector(".wb-legend-box"),a=t.el.querySelector('[data-do="legend"]');if(a.setAttribute("aria-expanded",String(!i)),i)return void i.remove();let n=document.createElement("div");for(let[e,i]of(n.className="wb-legend-box",n.setAttribute("role","note"),n.tabIndex=0,function(e,t){let i=(e,t="")=>L(`<path d="M2 13 C20 13 26 5 44 5" fill="none" stroke="${e}" stroke-width="2.5" ${t}/>`),a=(e,t,i="")=>L(`<rect x="3" y="2" width="40" height="14" rx="3" fill="${e}" stroke="${t}" ${i}/>`),n=(e,t,i,a,n="")=>L(`<rect x="1" y="2.5" width="44" height="13" rx="6.5" fill="${i}" stroke="${t}" ${n}/><text x="23" y="12" text-anchor="middle" font-size="8.5" font-family="monospace" fill="${a}">${e}</text>`),[s,o,r]=e.arcs;return[[i(s),"Saved: kept in memory from the forward until the backward reads it. Wider: more bytes."],[i(o,'stroke-dasharray="6 4"'),"Recomputed: not kept; the backward runs its statements again."],[i(r,'stroke-dasharray="1.5 4" stroke-linecap="round"'),"Offloaded: copied to the CPU, through the lane between the columns, and back when it is read."],[n("16 KiB",s,"none",s),"Bytes of what an arc stands for; \xd7 2: in each of two identical layers."],[L(`<path d="M8 4 C30 4 30 14 8 14" fill="none" stroke="${e.fusion}" stroke-width="1.5"/><circle cx="8" cy="4" r="3" fill="none" stroke="${e.fusion}" stroke-width="1.5"/>`),"The cut: a value that crosses from one fusion to another, written to memory between them or computed again. Its circle is clicked."],[a(e.fusionFill,e.fusion),"Fusion: the statements inside are compiled to one kernel. Pieces of one fusion are joined by a line at the side."],[a(e.fills[0],e.strokes[0]),"A statement of the forward, which runs downwards."],[a(e.fills[1],e.strokes[1]),"A statement of the backward, which runs upwards, beside the forward statement that it differentiates."],[L(`<path d="M6 2 V13 H40 V4 M36 8 L40 3 L44 8" fill="none" stroke="${e.muted}" stroke-width="1.5"/>`),"The end of the forward, where the backward begins."],[L(`<rect x="1" y="3" width="44" height="12" fill="${e.band}"/><text x="6" y="12.5" font-size="10" fill="${e.ink}">▸ \xd74</text>`),"A layer, or identical ones shown as one: a click opens and closes them. Beside its name: in what it differs from those above."],[a(e.fills[1],o,'stroke-dasharray="4 3"'),"Computed again in the backward; without colour: made in the forward no more."],[L(`<rect x="1" y="3" width="44" height="12" rx="3" fill="${e.fills[0]}" stroke="${e.strokes[0]}"/><text x="6" y="12" font-size="8.5" font-family="monospace" fill="${e.texts[0]}">mlp</text>`),"From far away: a module, with how many statements it has in each column and what it saves for the backward. A click comes near enough to read them."],[n("keep",e.fusionText,"none",e.fusionText),"A choice on a statement, and what it is now."],[n("drop",e.select,e.select,e.paper),"Chosen otherwise than unmodified Thunder does."],[n("stock",e.muted,"none",e.muted,'stroke-dasharray="2 2"'),"Nothing else is legal there; pointing at it says why."],...t?[[L(`<path d="M6 9 H40" stroke="${r}" stroke-width="2.5"/><circle cx="6" cy="9" r="3.5" fill="${e.paper}" stroke="${r}" stroke-width="1.5"/><circle cx="40" cy="9" r="3.5" fill="${r}"/>`),"A collective on its way: from its issue, the open end, to its wait, the filled one. Other dashes: another process group."],[n("17 waits",e.strokes[1],e.fills[1],e.texts[1]),"Waits of one moment, shown as one; another click on it shows each."]]:[],[n("▸ sdpa",e.strokes[0],e.fills[0],e.texts[0]),"One statement of the program that was made into several, shown as one; another click on it shows each, and again closes it."],[a("none",e.select,'stroke-width="2.5"'),"Selected. Outlined in the column's colour: what it reads from; in green: who reads it."],[a(e.found,e.found),"Found by the search."],["","Views (reshapes, transposes, slices, shallow_copy) own no memory and are left out: lines go through them, and what can be chosen there stands on what makes or reads their storage. A button below shows them."],[a("none",e.select),"At the right edge: the whole graph, with the part in view. Dragging it moves the view; so do the arrow keys there."]]}(t.ink,t.scene?.bar.side.length>0))){let t=document.createElement("div"),a=document.createElement("span");t.innerHTML=e,a.textContent=i,t.append(a),n.append(t)}n.addEventListener("keydown",i=>{"Escape"===i.key&&(e(t),a.focus())}),t.el.append(n),n.focus({preventScroll:!0})}(this):"views"===e&&this.model.send({type:"views",shown:this.scene.views.hidden>0})}step(e){let{node:t,arc:i,columns:a,strings:n}=this.scene,s=this.chosenPlace();if(s?.kind==="arc"){let t=Array.from(i.y0.keys()).sort((e,t)=>i.y0[e]-i.y0[t]),a=t[t.indexOf(s.index)+e];void 0!==a&&this.select(n[i.id[a]],!0);return}let o=a[s?t.side[s.index]:0],r=s?o.indexOf(s.index)+e:P(o,t,this.worldY(30));void 0!==o[r]&&this.select(n[t.id[o[r]]],!0)}chosenPlace(){let e=this.scene.at.get(this.model.get("selected"));return e?.kind==="bar"?{kind:"node",index:this.scene.bar.issue_node[e.index]}:e?.kind==="mark"?{kind:"node",index:this.scene.mark.node[e.index]}:e}across(e){let{node:t,arc:i,columns:a,strings:n,arcsFrom:s}=this.scene,o=this.chosenPlace();if(!o)return void this.step(1);if("arc"===o.kind){let a=e>0?i.target[o.index]:i.source[o.index];a>=0&&this.select(n[t.id[a]],!0);return}let r=t.side[o.index],l=(s.get(o.index)??[]).filter(t=>(e>0?i.source[t]:i.target[t])===o.index&&0===i.shape[t]);if(l.length)return void this.select(n[i.id[l[0]]],!0);if(e>0==(1===r))return;let h=a[1-r],d=h[Math.min(h.length-1,P(h,t,t.y[o.index]+1))];void 0!==d&&this.select(n[t.id[d]],!0)}select(e,t=!1){this.model.get("selected")!==e&&(this.model.set("selected",e),this.model.save_changes()),t&&this.reveal(e),this.redraw()}reveal(e,t=!1){t&&!this.labelled()&&this.locate(e)&&this.setZoom(1);let i=this.locate(e);i&&((i.y<54||i.y>this.heightPx-40)&&(this.top+=i.y-this.heightPx/2,this.clamp()),this.redraw())}turn(e){this.model.send({type:"turn",id:e})}turnSelected(){let{at:e,arc:t,arcsFrom:i,mark:a,marksOf:n,strings:s}=this.scene,o=this.model.get("selected"),r=e.get(o);if(!r)return;if("arc"===r.kind)return void this.turn(s[t.id[r.index]]);if("mark"===r.kind)return void this.turn(s[a.id[r.index]]);if("bar"===r.kind)return void this.turn(o);let l=n.get(r.index)?.[0],h=(i.get(r.index)??[]).find(e=>t.source[e]===r.index);l?this.turn(s[a.id[l.index]]):void 0!==h&&this.turn(s[t.id[h]])}fold(e){let t=this.scene.sections[e];t.identical>1&&this.model.send({type:"fold",stem:t.stem})}foldHere(){let{node:e,arc:t,sections:i}=this.scene,a=this.chosenPlace(),n=this.worldY(30),s=a?("arc"===a.kind?t.y0:e.y)[a.index]:0/0,o=i.map((e,t)=>({index:t,low:e.y,high:e.y+e.height})).filter(({index:e})=>i[e].identical>1),r=o.find(({low:e,high:t})=>s>=e&&s<t)??o.find(({high:e})=>e>n);r&&!this.readOnly&&this.fold(r.index)}unfold(e){let{node:t,strings:i}=this.scene;128&t.flags[e]&&!this.readOnly?this.model.send({type:"fold",node:i[t.id[e]]}):64&t.flags[e]&&!this.readOnly&&this.model.send({type:"fold",stem:`waits:${i[t.id[e]].slice(2)}`})}onSearch(){let{node:e,strings:t}=this.scene,i=this.search.value.trim().toLowerCase();if(this.matches=null,i){let a=[];for(let n=0;n<e.id.length;n++)`${t[e.name[n]]} ${t[e.full[n]]} ${t[e.detail[n]]} ${t[e.about[n]]}`.toLowerCase().includes(i)&&a.push(n);a.sort((t,i)=>e.y[t]-e.y[i]||e.side[t]-e.side[i]),this.matches=new Set(a),this.matchList=a,this.matchAt=0,a.length&&this.reveal(t[e.id[a[0]]],!0)}this.found.textContent=i?`${this.matches.size}`:"",this.redraw()}onSearchKey(e){if(e.stopPropagation(),"Escape"===e.key&&(this.search.value="",this.onSearch(),this.canvas.focus()),"Enter"===e.key&&this.matches?.size){let t=this.matchList[this.matchAt%this.matchList.length];this.matchAt+=e.shiftKey?this.matchList.length-1:1,this.select(this.scene.strings[this.scene.node.id[t]],!0)}}setHover(e,t=0,i=0){let a=e?.id===this.hover?.id;this.hover=e,this.canvas.style.cursor=e?"pointer":"",e&&"section"!==e.kind?this.showTip(e,t,i):this.tip.hidden=!0,a||(this.previewOf(e),this.redraw())}previewOf(e){this.readOnly||this.preview(e?.kind==="arc"||e?.kind==="mark"?{id:e.id}:null)}tell(){let e=document.activeElement===this.canvas?this.scene?.at.get(this.model.get("selected")):null;this.told.textContent=e?this.about(e).map(([,e])=>e).filter(Boolean).join(". "):""}about(e){let{node:t,arc:i,mark:a,module:n,strings:s}=this.scene,o=[];if("module"===e.kind){let t=e.index,i=s[n.saved[t]];o.push(["b",s[n.scope[t]]],["",`${n.forward[t]} statements in the forward, ${n.backward[t]} in the backward`]),o.push(["",`↓ ${s[n.forward_ops[t]]}`],["",n.backward[t]?`↑ ${s[n.backward_ops[t]]}`:""]),o.push(["",i&&`${i} saved for the backward`],["i","click: come near enough to read them"])}else if("node"===e.kind){let i=e.index,a=t.flags[i];o.push(["b",s[t.full[i]]],["",s[t.detail[i]]]);let n=[t.bytes[i]?function(e){let t=["B","KiB","MiB","GiB","TiB"],i=Math.abs(e),a=0;for(;i>=999.5&&a<t.length-1;)i/=1024,a++;let n=0===a||i>=100?0:i>=10?1:2;return`${e<0?"−":""}${i.toFixed(n)} ${t[a]}`}(t.bytes[i]):"",s[t.executor[i]],4&a?"random":"",16&a?"view, no memory of its own":"",8&a?"computed again in the backward":"",32&a?"collective":""];o.push(["",n.filter(Boolean).join(" \xb7 ")],["i",s[t.about[i]]])}else{let t="mark"===e.kind?a.tip:"bar"===e.kind?this.scene.bar.tip:i.tip;o.push(...s[t[e.index]].split("\n").map((e,t)=>[t?"":"b",e]))}return o}showTip(e,t,i){this.tip.replaceChildren(...this.about(e).filter(([,e])=>e).map(([e,t])=>{let i=document.createElement("div");return i.className=`wb-tip-${e||"p"}`,i.textContent=t,i})),this.tip.hidden=!1;let{offsetWidth:a,offsetHeight:n}=this.tip;this.tip.style.left=`${Math.max(4,Math.min(t+14,this.width-a-8))}px`,this.tip.style.top=`${i+18+n>this.heightPx?Math.max(4,i-n-12):i+18}px`}}let E=function({model:e,el:t}){let i=new D(e,t);return t.__workbench={position(e){i.reveal(e,!0);let t=i.locate(e),a=i.canvas.getBoundingClientRect();return t&&{x:a.left+t.x,y:a.top+t.y}},hit(e,t){let a=i.canvas.getBoundingClientRect();return i.hit(e-a.left,t-a.top)?.id??null},state(){let{scene:t}=i;return{nodes:t?.node.id.length??0,zoom:i.zoom,top:i.top,selected:e.get("selected"),dark:i.dark,drawn_ms:i.drawn,sections:t?.sections??[],arcs:t?Array.from(t.arc.id,(e,a)=>({id:t.strings[e],style:t.arc.style[a],asked:i.askedOf(a)??null,label:t.strings[t.arc.label[a]]})):[],marks:t?Array.from(t.mark.id,(e,i)=>({id:t.strings[e],text:t.strings[t.mark.text[i]],state:t.mark.state[i]})):[],bars:t?Array.from(t.bar.side,(e,a)=>({side:e,...i.barAt(a),id:t.strings[t.bar.issue[a]],wait_id:t.strings[t.bar.wait[a]]})):[],modules:t&&i.far?i.bands().map(e=>({scope:t.strings[t.module.scope[e]],y:i.y(t.module.y[e]),height:t.module.height[e]*i.zoom})):[],ids:t?Array.from(t.node.id,e=>t.strings[e]):[],matches:i.matches?.size??null}},view:i},()=>i.destroy()},F=["accuracy","offload","overlap"],W=function({model:e,el:t}){k(t,"strip");let i=e=>e.delta&&y("span",{class:`wb-delta wb-${e.delta_tone}`,title:e.delta_tip},e.delta,e.delta_vs&&y("span",{class:"wb-vs"},` ${e.delta_vs}`)),a=(e,...t)=>y("div",{class:"wb-value",title:e.tip||null},y("span",{class:`wb-number ${e.tone?`wb-${e.tone}`:""}`},e.text),y("span",{class:"wb-kind",title:e.kind},e.kind),t);var n=["content"],s=()=>{let{figures:n=[]}=e.get("content");for(let e of(t.replaceChildren(...n.map(e=>y("div",{class:`wb-figure${e.older?" wb-older":""}`,"data-figure":e.key},y("div",{class:"wb-figure-title"},e.title),y("div",{class:"wb-figure-values"},...(({key:e,values:[t,...n]})=>F.includes(e)?[t,...n].map(e=>a(e,i(e))):[a(t),y("div",{class:"wb-change"},i(t)),...n.map(e=>a(e,i(e)))])(e))))),t.children))e.scrollHeight>e.clientHeight+1&&(e.title=e.innerText)};for(let t of n)e.on(`change:${t}`,s);return s(),()=>{for(let t of n)e.off(`change:${t}`,s)}};class H{traits;callbacks=new Map;constructor(e){this.traits=e}get(e){return this.traits[e]}set(e,t){this.traits[e]!==t&&(this.traits[e]=t,this.emit(`change:${e}`))}on(e,t){let i=this.callbacks.get(e)??new Set;this.callbacks.set(e,i.add(t))}off(e,t){this.callbacks.get(e)?.delete(t)}send(){}save_changes(){}emit(e,...t){for(let i of this.callbacks.get(e)??[])i(...t)}}class _ extends a.Widget{end=()=>{};shown="";constructor(){super(),this.addClass("wb-app"),this.addClass("wb-saved")}async renderModel(e){let t=e.data[v],i=JSON.stringify(t)??"";if(i!==this.shown){this.shown=i,this.end(),this.end=()=>{};try{var a,n,s,o,r;let e,i,l,h,d,p,w,b,c,f,u,x,m;this.end=(a=function(e){if("object"!=typeof e||null===e||"thunder-workbench plan"!==e.format)throw Error("This file holds no saved plan: bench.save(path) writes one.");if(1!==e.format_version)throw Error(`This plan was saved in format version ${e.format_version}; this view reads version 1. Save it again, or install the version of thunder-workbench that wrote it.`);return e}(t),n=this.node,e=y("div"),i=y("div"),l=y("div",{"aria-live":"polite"}),h=new H({data:function(e){let{graph:t}=e.view,i=Object.entries(t.tables).map(([e,t])=>[e,Object.fromEntries(Object.entries(t).map(([e,[t,i]])=>{var a;return[e,[t,(a=i,Uint8Array.from(atob(a),e=>e.charCodeAt(0)).buffer)]]}))]);return{...t,tables:Object.fromEntries(i)}}(a),selected:"",height:620,dark:!1,read_only:!0}),n.replaceChildren((s=a,b=Object.entries(s.settings).map(([e,t])=>`${e}=${t}`),c=Object.entries(s.versions).map(([e,t])=>`${e} ${t}`),f=y("div",{},y("strong",{},s.program),y("span",{class:"wb-muted"},[s.device,s.executor,...b].join(" \xb7 ")),y("span",{class:"wb-muted",title:c.join("\n")},"saved plan: predicted, changes are against stock; nothing can be chosen here")),k(f,"saved-heading"),f),e,(o=a,r=e=>{h.set("selected",e),h.emit("msg:custom",{type:"reveal",id:e})},u=Object.entries(o.choices),x=1===u.length?"1 choice":`${u.length} choices`,m=u.length?y("details",{open:u.length<=4},y("summary",{},`${x} other than stock`),y("ul",{},...u.map(([e,t])=>y("li",{},y("button",{class:"wb-link",onclick:()=>r(e)},e),`: ${t}`)))):y("div",{class:"wb-muted"},"No choices: what unmodified Thunder would execute."),k(m,"saved-choices"),m),i,l),d=new Map(a.sites.map(e=>[e.id,e])),p=()=>l.replaceChildren(...function(e){if(!e)return[y("div",{class:"wb-muted"},"Click an arc or a mark to see what could be chosen there.")];let t=e.options.map(t=>{let i=e.illegal[t],a=t===e.choice?"chosen":i?`refused: ${i}`:"legal";return y("div",{},y("code",{},t)," ",y("span",{class:"wb-muted"},t===e.default?`${a}, stock`:a))});return[y("div",{},y("strong",{},e.label)," ",y("code",{class:"wb-muted"},e.id)),...t]}(d.get(String(h.get("selected"))))),k(l,"saved-site"),h.on("change:selected",p),p(),w=[W({model:new H({content:{figures:a.view.figures}}),el:e}),E({model:h,el:i})],()=>w.forEach(e=>e?.()))}catch(e){this.node.textContent=e instanceof Error?e.message:String(e)}}}dispose(){this.end(),super.dispose()}}let N={id:"thunder-workbench-trace-view:plan",description:"Draws saved plans of Thunder Workbench.",rendererFactory:{safe:!0,mimeTypes:[v],createRenderer:()=>new _},rank:0,dataType:"json",fileTypes:[{name:"thunder-plan",displayName:"Thunder plan",mimeTypes:[v],extensions:[".plan.json"]}],documentWidgetFactoryOptions:{name:"Thunder plan",primaryFileType:"thunder-plan",fileTypes:["thunder-plan"],defaultFor:["thunder-plan"]}}},10(e,t,i){var a=i(11),n=i.n(a),s=i(12),o=(i.n(s))()(n());o.push([e.id,`/* Everything the workbench shows: one palette for both themes, on top of JupyterLab's own variables. */
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
`,""]),i.d(t,{},{A:o})},13(e,t,i){var a=i(11),n=i.n(a),s=i(12),o=(i.n(s))()(n());o.push([e.id,`/* A saved plan: as high as its content in a notebook's output, as high as its tab in the file viewer. */
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
`,""]),i.d(t,{},{A:o})},12(e){e.exports=function(e){var t=[];return t.toString=function(){return this.map(function(t){var i="",a=void 0!==t[5];return t[4]&&(i+="@supports (".concat(t[4],") {")),t[2]&&(i+="@media ".concat(t[2]," {")),a&&(i+="@layer".concat(t[5].length>0?" ".concat(t[5]):""," {")),i+=e(t),a&&(i+="}"),t[2]&&(i+="}"),t[4]&&(i+="}"),i}).join("")},t.i=function(e,i,a,n,s){"string"==typeof e&&(e=[[null,e,void 0]]);var o={};if(a)for(var r=0;r<this.length;r++){var l=this[r][0];null!=l&&(o[l]=!0)}for(var h=0;h<e.length;h++){var d=[].concat(e[h]);a&&o[d[0]]||(void 0!==s&&(void 0===d[5]||(d[1]="@layer".concat(d[5].length>0?" ".concat(d[5]):""," {").concat(d[1],"}")),d[5]=s),i&&(d[2]&&(d[1]="@media ".concat(d[2]," {").concat(d[1],"}")),d[2]=i),n&&(d[4]?(d[1]="@supports (".concat(d[4],") {").concat(d[1],"}"),d[4]=n):d[4]="".concat(n)),t.push(d))}},t}},11(e){e.exports=function(e){return e[1]}},4(e){var t=[];function i(e){for(var i=-1,a=0;a<t.length;a++)if(t[a].identifier===e){i=a;break}return i}function a(e,a){for(var n={},s=[],o=0;o<e.length;o++){var r=e[o],l=a.base?r[0]+a.base:r[0],h=n[l]||0,d="".concat(l," ").concat(h);n[l]=h+1;var p=i(d),w={css:r[1],media:r[2],sourceMap:r[3],supports:r[4],layer:r[5]};if(-1!==p)t[p].references++,t[p].updater(w);else{var b=function(e,t){var i=t.domAPI(t);return i.update(e),function(t){t?(t.css!==e.css||t.media!==e.media||t.sourceMap!==e.sourceMap||t.supports!==e.supports||t.layer!==e.layer)&&i.update(e=t):i.remove()}}(w,a);a.byIndex=o,t.splice(o,0,{identifier:d,updater:b,references:1})}s.push(d)}return s}e.exports=function(e,n){var s=a(e=e||[],n=n||{});return function(e){e=e||[];for(var o=0;o<s.length;o++){var r=i(s[o]);t[r].references--}for(var l=a(e,n),h=0;h<s.length;h++){var d=i(s[h]);0===t[d].references&&(t[d].updater(),t.splice(d,1))}s=l}}},6(e){var t={};e.exports=function(e,i){var a=function(e){if(void 0===t[e]){var i=document.querySelector(e);if(window.HTMLIFrameElement&&i instanceof window.HTMLIFrameElement)try{i=i.contentDocument.head}catch(e){i=null}t[e]=i}return t[e]}(e);if(!a)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");a.appendChild(i)}},8(e){e.exports=function(e){var t=document.createElement("style");return e.setAttributes(t,e.attributes),e.insert(t,e.options),t}},7(e,t,i){e.exports=function(e){var t=i.nc;t&&e.setAttribute("nonce",t)}},5(e){e.exports=function(e){if("u"<typeof document)return{update:function(){},remove:function(){}};var t=e.insertStyleElement(e);return{update:function(i){var a,n,s;a="",i.supports&&(a+="@supports (".concat(i.supports,") {")),i.media&&(a+="@media ".concat(i.media," {")),(n=void 0!==i.layer)&&(a+="@layer".concat(i.layer.length>0?" ".concat(i.layer):""," {")),a+=i.css,n&&(a+="}"),i.media&&(a+="}"),i.supports&&(a+="}"),(s=i.sourceMap)&&"u">typeof btoa&&(a+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(s))))," */")),e.styleTagTransform(a,t,e.options)},remove:function(){var e;null===(e=t).parentNode||e.parentNode.removeChild(e)}}}},9(e){e.exports=function(e,t){if(t.styleSheet)t.styleSheet.cssText=e;else{for(;t.firstChild;)t.removeChild(t.firstChild);t.appendChild(document.createTextNode(e))}}}}]);