#include "inspect/page.h"

namespace fovea::inspect {

// Colours of the series: Okabe and Ito's palette, darkened on paper and lightened on a dark ground until text
// in the colour stays readable (contrast 4.5 and more).
const std::string_view kPageStyle = R"css(
:root {
  --ground: #fbfbf9; --card: #ffffff; --ink: #1b1e2b; --quiet: #5f6678; --line: #e2e4ea; --soft: #f1f2f5;
  --accent: #27409c; --accent-soft: #e6eaf8; --shadow: 0 1px 2px rgb(20 24 50 / 6%), 0 6px 24px rgb(20 24 50 / 5%);
  --s0: #b4500a; --s1: #0a7a5a; --s2: #1f4fb0; --s3: #9c3d7c; --s4: #86681a; --s5: #2b7fa8;
}
@media (prefers-color-scheme: dark) { :root:not([data-theme=light]) {
  --ground: #101219; --card: #181b25; --ink: #e8eaf2; --quiet: #9aa2b5; --line: #2b3040; --soft: #20242f;
  --accent: #a9bbff; --accent-soft: #262e4a; --shadow: none;
  --s0: #f0a04b; --s1: #4cc9a0; --s2: #7fa8ff; --s3: #e08cc0; --s4: #e3cf5a; --s5: #6cc5ea; } }
:root[data-theme=dark] {
  --ground: #101219; --card: #181b25; --ink: #e8eaf2; --quiet: #9aa2b5; --line: #2b3040; --soft: #20242f;
  --accent: #a9bbff; --accent-soft: #262e4a; --shadow: none;
  --s0: #f0a04b; --s1: #4cc9a0; --s2: #7fa8ff; --s3: #e08cc0; --s4: #e3cf5a; --s5: #6cc5ea;
}
* { box-sizing: border-box; }
html { color-scheme: light dark; }
:root[data-theme=light] { color-scheme: light; }
:root[data-theme=dark] { color-scheme: dark; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif;
  font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100%; }
.page-head, main, footer { max-width: 1280px; margin: 0 auto; padding: 0 28px; }
.page-head { display: flex; align-items: baseline; justify-content: space-between; gap: 16px; padding-top: 40px; }
h1 { font-size: 30px; line-height: 1.2; letter-spacing: -.015em; margin: 0 0 12px; font-weight: 680; }
h2 { font-size: 21px; line-height: 1.3; letter-spacing: -.01em; margin: 48px 0 14px; font-weight: 650; }
h3 { font-size: 17px; margin: 32px 0 10px; font-weight: 650; }
p { max-width: 72ch; margin: 0 0 12px; }
footer { color: var(--quiet); font-size: 13px; padding-top: 40px; padding-bottom: 48px; }
button, select { font: inherit; font-size: 13.5px; color: var(--ink); background: var(--card);
  border: 1px solid var(--line); border-radius: 7px; padding: 4px 10px; min-height: 32px; }
button { cursor: pointer; }
button:hover { background: var(--soft); }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
#theme { font-size: 17px; padding: 2px 9px; }
dl { margin: 0; }
dd { margin: 0; }
.sentences { display: grid; grid-template-columns: max-content 1fr; gap: 4px 16px; margin-bottom: 14px; font-size: 18px; }
.sentences dt { color: var(--quiet); font-size: 13px; padding-top: 4px; }
.sentences dd { max-width: 80ch; overflow-wrap: anywhere; }
.facts { display: flex; flex-wrap: wrap; gap: 4px 28px; font-size: 14px; margin-bottom: 16px; }
.facts div { display: flex; gap: 8px; }
.facts dt { color: var(--quiet); }
.sample + .sample { margin-top: 44px; padding-top: 20px; border-top: 1px solid var(--line); }
.viewer { background: var(--card); border: 1px solid var(--line); border-radius: 12px; box-shadow: var(--shadow);
  padding: 18px; }
.heads { overflow: auto; max-height: 330px; margin: -4px -4px 14px; padding: 4px; border-bottom: 1px solid var(--line); }
.heads table { border-collapse: separate; border-spacing: 6px 4px; }
.heads th { font-weight: 500; font-size: 13px; color: var(--quiet); text-align: left; white-space: nowrap;
  padding-right: 10px; }
.heads thead th { text-align: center; padding: 0; font-size: 12px; }
.heads td { padding: 0; vertical-align: middle; text-align: center; }
.heads button { padding: 3px; border-radius: 6px; line-height: 0; min-height: 0; border: 2px solid transparent;
  background: none; }
.heads button:hover { background: var(--soft); }
.heads button[aria-pressed=true] { border-color: var(--accent); background: var(--accent-soft); }
.heads canvas { image-rendering: pixelated; border: 1px solid var(--line); }
.bar { display: flex; flex-wrap: wrap; gap: 8px; align-items: center; margin-bottom: 12px; }
.bar .what { font-weight: 620; margin-right: auto; font-size: 15.5px; }
.bar label { font-size: 13px; color: var(--quiet); display: flex; gap: 6px; align-items: center; }
.bar .group { display: flex; }
.bar .group button { border-radius: 0; margin-left: -1px; }
.bar .group button:first-child { border-radius: 7px 0 0 7px; margin-left: 0; }
.bar .group button:last-child { border-radius: 0 7px 7px 0; }
.split { display: grid; grid-template-columns: auto 290px; gap: 28px; justify-content: start; align-items: start; }
@media (max-width: 860px) { .split { grid-template-columns: minmax(0, 1fr); } .page-head, main, footer { padding-left: 14px; padding-right: 14px; } }
.stage { position: relative; min-width: 0; }
.scroller { overflow: auto; border-radius: 6px; max-height: min(78vh, 900px); }
.scroller:focus-visible { outline-offset: 0; }
.extent { position: relative; }
.extent canvas { position: sticky; left: 0; top: 0; display: block; cursor: crosshair; }
.tip { position: absolute; pointer-events: none; z-index: 3; background: var(--ink); color: var(--ground);
  border-radius: 7px; padding: 5px 10px; font-size: 13.5px; line-height: 1.4; white-space: nowrap; max-width: 420px;
  overflow: hidden; text-overflow: ellipsis; }
[hidden] { display: none; }
.tip b { font-weight: 650; }
.legend { display: flex; align-items: center; gap: 8px; font-size: 12.5px; color: var(--quiet); margin-top: 10px; }
.legend canvas { border: 1px solid var(--line); border-radius: 3px; width: 180px; height: 11px; }
.side { font-size: 14px; min-width: 0; }
.side h4 { margin: 0 0 2px; font-size: 13px; font-weight: 500; color: var(--quiet); }
.side .who { font-weight: 650; font-size: 16px; margin-bottom: 8px; overflow-wrap: anywhere; line-height: 1.35; }
.side section + section { margin-top: 22px; }
.meter { display: grid; grid-template-columns: minmax(56px, 1fr) 96px 50px; gap: 8px; align-items: center;
  line-height: 1.65; }
.meter span:first-child { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; text-align: right; }
.meter span:last-child { color: var(--quiet); text-align: right; }
.meter canvas { height: 11px; width: 96px; border-radius: 2px; }
.hint { color: var(--quiet); font-size: 12.5px; line-height: 1.5; margin-top: 18px; padding-top: 12px;
  border-top: 1px solid var(--line); }
kbd { font: inherit; font-size: 12px; border: 1px solid var(--line); border-radius: 4px; padding: 0 4px;
  background: var(--soft); color: var(--ink); }
details { margin-top: 14px; font-size: 13.5px; }
summary { cursor: pointer; color: var(--quiet); }
.numbers { overflow: auto; max-height: 420px; margin-top: 8px; border: 1px solid var(--line); border-radius: 6px; }
.numbers table { border-collapse: collapse; font-size: 12px; }
.numbers th, .numbers td { padding: 2px 7px; text-align: right; white-space: nowrap; font-weight: 400; }
.numbers th { position: sticky; background: var(--soft); }
.numbers thead th { top: 0; }
.numbers tbody th { left: 0; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 520px), 1fr)); gap: 20px; }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 16px 18px 10px;
  box-shadow: var(--shadow); min-width: 0; }
figcaption { font-weight: 620; font-size: 15.5px; margin-bottom: 8px; }
figure svg { display: block; width: 100%; height: auto; max-width: 760px; margin: 0 auto; overflow: visible; }
figure.wide svg { max-width: none; }
figure.wide { margin-bottom: 20px; }
svg text { fill: var(--quiet); font-size: 12.5px; font-family: inherit; }
svg .axis { stroke: var(--line); stroke-width: 1; }
svg .base { stroke: var(--quiet); stroke-width: 1; }
svg .curve { fill: none; stroke-width: 2.2; stroke-linejoin: round; stroke-linecap: round; }
svg .value { font-size: 11.5px; }
svg .name { font-size: 13px; font-weight: 600; }
.c0 { stroke: var(--s0); } .c1 { stroke: var(--s1); } .c2 { stroke: var(--s2); }
.c3 { stroke: var(--s3); } .c4 { stroke: var(--s4); } .c5 { stroke: var(--s5); }
svg .f0 { fill: var(--s0); } svg .f1 { fill: var(--s1); } svg .f2 { fill: var(--s2); }
svg .f3 { fill: var(--s3); } svg .f4 { fill: var(--s4); } svg .f5 { fill: var(--s5); }
.data { overflow-x: auto; margin-bottom: 20px; }
.data table { border-collapse: collapse; font-size: 14.5px; }
.data caption { text-align: left; font-weight: 620; font-size: 15.5px; padding-bottom: 8px; }
.data th, .data td { padding: 6px 18px 6px 0; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; }
.data th { color: var(--quiet); font-weight: 500; font-size: 13px; }
.data .number { text-align: right; }
.quiet-label { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
@media print { .bar, .hint, #theme, .heads, details { display: none; } .viewer, figure { break-inside: avoid; box-shadow: none; } }
)css";

}  // namespace fovea::inspect
