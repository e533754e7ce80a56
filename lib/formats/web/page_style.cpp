#include "formats/web/page.h"

namespace trainctl {

// Fills (--c0 to --c10) are the colours of Okabe and Ito, some of them lighter, so that people with
// any kind of colour vision can tell them apart and dark text can be read on each of them. Lines
// (--s0 to --s7) are of the same hues, as dark or light as the theme needs. Everything that has a
// colour has words as well.
std::string_view page_style() {
  return R"css(
:root { color-scheme: light;
  --page: #f4f6f8; --card: #ffffff; --ink: #1b2430; --soft: #4f5b6a; --line: #d9dfe6;
  --accent: #0b62b8; --idle: #e6eaef; --wait: #cfd6de; --on: #10151c;
  --c0: #5aa5e6; --c1: #e69f00; --c2: #1fae83; --c3: #d68bb5; --c4: #f0e442; --c5: #ea7a28;
  --c6: #a6dcf5; --c7: #a9b1bb; --c8: #c9ab80; --c9: #b9a6e8; --c10: #9fd8c4;
  --s0: #0072b2; --s1: #c85200; --s2: #007f5c; --s3: #ac4a83; --s4: #8a6d00; --s5: #3f3fae;
  --s6: #5c6672; --s7: #7a4a12; }
:root[data-theme="dark"] { color-scheme: dark;
  --page: #12161c; --card: #1a2029; --ink: #e6eaf0; --soft: #a9b4c2; --line: #323c49;
  --accent: #7ab8ff; --idle: #262e39; --wait: #46515f;
  --s0: #56b4e9; --s1: #ff9447; --s2: #35c99b; --s3: #e79ac8; --s4: #f0d442; --s5: #a9a6ff;
  --s6: #b5bec9; --s7: #d9ab73; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 1280px; margin: 0 auto; padding: 24px 24px 56px; }
header { display: flex; align-items: center; gap: 8px 16px; flex-wrap: wrap; }
header button { margin-left: auto; }
h1 { font-size: 24px; line-height: 1.25; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 0 0 4px; overflow-wrap: anywhere; }
h3 { font-size: 14.5px; margin: 16px 0 4px; }
p { margin: 0 0 10px; color: var(--soft); font-size: 14px; overflow-wrap: anywhere; }
p b { color: var(--ink); font-weight: 600; }
code, pre, .mono { font: 12.5px/1.5 ui-monospace, "DejaVu Sans Mono", monospace; }
code { color: var(--ink); overflow-wrap: anywhere; }
pre { margin: 0 0 10px; padding: 8px 12px; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; white-space: pre-wrap; overflow-wrap: anywhere; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 16px 18px; margin-top: 14px; min-width: 0; }
button, select, input { font: inherit; font-size: 13px; color: var(--ink);
  background: var(--card); border: 1px solid var(--soft); border-radius: 8px; padding: 3px 11px;
  min-height: 30px; max-width: 100%; }
button { cursor: pointer; }
button:hover { border-color: var(--accent); }
button[aria-pressed="true"] { background: var(--accent); border-color: var(--accent);
  color: var(--card); }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.tools { display: flex; flex-wrap: wrap; gap: 6px; align-items: center; margin: 0 0 8px; }
.tools label { font-size: 13px; color: var(--soft); }
.scroll { overflow-x: auto; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 14px; margin: 2px 0 8px; padding: 0;
  font-size: 13px; color: var(--soft); list-style: none; }
.legend i { display: inline-block; width: 12px; height: 12px; border-radius: 3px;
  margin-right: 6px; vertical-align: -1px; border: 1px solid var(--soft); }
.legend svg { display: inline-block; width: 22px; height: 8px; margin-right: 6px; }
table { border-collapse: collapse; font-size: 13.5px; }
table.wide { width: 100%; }
th { text-align: left; color: var(--soft); font-weight: 500; }
th, td { padding: 4px 16px 4px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td small { display: block; color: var(--soft); font-size: 12px; }
details { margin-top: 8px; }
summary { cursor: pointer; font-weight: 600; font-size: 14px; overflow-wrap: anywhere; }
details[open] > summary { margin-bottom: 6px; }
svg { display: block; font-family: inherit; }
svg text { font-size: 11.5px; fill: var(--soft); }
svg text.on { fill: var(--on); font-size: 11px; pointer-events: none; }
svg line { stroke: var(--line); }
svg .mark { stroke: var(--ink); }
.value { min-height: 21px; font-size: 13px; color: var(--soft); overflow-wrap: anywhere;
  font-variant-numeric: tabular-nums; }
.plot { touch-action: pan-y; }
.s0 { stroke: var(--s0); } .s1 { stroke: var(--s1); } .s2 { stroke: var(--s2); }
.s3 { stroke: var(--s3); } .s4 { stroke: var(--s4); } .s5 { stroke: var(--s5); }
.s6 { stroke: var(--s6); } .s7 { stroke: var(--s7); }
.s0, .s1, .s2, .s3, .s4, .s5, .s6, .s7 { fill: none; stroke-width: 1.7; }
circle.s0 { fill: var(--s0); } circle.s1 { fill: var(--s1); } circle.s2 { fill: var(--s2); }
circle.s3 { fill: var(--s3); } circle.s4 { fill: var(--s4); } circle.s5 { fill: var(--s5); }
circle.s6 { fill: var(--s6); } circle.s7 { fill: var(--s7); }
.c0 { fill: var(--c0); background: var(--c0); } .c1 { fill: var(--c1); background: var(--c1); }
.c2 { fill: var(--c2); background: var(--c2); } .c3 { fill: var(--c3); background: var(--c3); }
.c4 { fill: var(--c4); background: var(--c4); } .c5 { fill: var(--c5); background: var(--c5); }
.c6 { fill: var(--c6); background: var(--c6); } .c7 { fill: var(--c7); background: var(--c7); }
.c8 { fill: var(--c8); background: var(--c8); } .c9 { fill: var(--c9); background: var(--c9); }
.c10 { fill: var(--c10); background: var(--c10); }
.idle { fill: var(--idle); background: var(--idle); }
.wait { fill: var(--wait); background: var(--wait); }
.lanes { cursor: grab; user-select: none; -webkit-user-select: none; touch-action: pan-y; }
.lanes:active { cursor: grabbing; }
.lanes .near { fill: none; stroke: var(--ink); stroke-width: 2; }
.overview { cursor: pointer; touch-action: pan-y; margin: 4px 0; }
.overview .away { fill: var(--card); opacity: 0.72; }
.overview .window { fill: none; stroke: var(--accent); stroke-width: 2; }
@media (max-width: 560px) {
  main { padding: 14px 12px 40px; }
  section { padding: 12px 12px; border-radius: 8px; }
  h1 { font-size: 20px; }
  button { min-height: 38px; }
}
@media print { button, .tools { display: none; } body { background: #fff; } }
)css";
}

}  // namespace trainctl
