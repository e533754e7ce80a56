#include "formats/html/html_parts.h"

namespace trainctl {

std::string_view html_style() {
  return R"css(
:root {
  color-scheme: light;
  --page: #f6f7f9; --card: #ffffff; --ink: #1b2430; --soft: #5c6878; --line: #dfe4ea;
  --accent: #2f6fdb; --f: #3f78d1; --b: #2e9e6b; --w: #e0982f; --idle: #eef1f5;
  --m0: #3f78d1; --m1: #2e9e6b; --m2: #8a63d2; --m3: #e0982f; --m4: #d65f78; --m5: #3aa7b8;
  --m6: #8b95a3; --cell-light: 78%; --cell-strong: 62%; --on-color: #ffffff; --cell-ink: #16202c;
}
:root[data-theme="dark"] {
  color-scheme: dark;
  --page: #12161c; --card: #1a2029; --ink: #e6eaf0; --soft: #9aa6b5; --line: #2c3541;
  --accent: #6ea2ff; --f: #4d86dd; --b: #35a873; --w: #d9942f; --idle: #212934;
  --m0: #4d86dd; --m1: #35a873; --m2: #9a77de; --m3: #d9942f; --m4: #db6b83; --m5: #43afc0;
  --m6: #78838f; --cell-light: 34%; --cell-strong: 48%; --cell-ink: #f2f5f9;
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif;
}
main { max-width: 1220px; margin: 0 auto; padding: 28px 24px 60px; }
header { display: flex; align-items: baseline; gap: 16px; flex-wrap: wrap; margin-bottom: 18px; }
h1 { font-size: 24px; margin: 0; letter-spacing: -0.01em; }
h2 { font-size: 17px; margin: 0 0 4px; }
p { margin: 0 0 12px; color: var(--soft); font-size: 14px; }
code { font: 13px ui-monospace, "DejaVu Sans Mono", monospace; color: var(--soft); }
section, .facts div, details {
  background: var(--card); border: 1px solid var(--line); border-radius: 10px;
}
section { padding: 18px 20px; margin-top: 16px; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); gap: 12px; }
.facts div { padding: 12px 14px; }
.facts b { display: block; overflow-wrap: anywhere; font-size: 15.5px;
  font-weight: 600; font-variant-numeric: tabular-nums; }
.facts span { color: var(--soft); font-size: 13px; }
.facts small { display: block; color: var(--soft); font-size: 12.5px; line-height: 1.35; }
.push { margin-left: auto; }
button {
  font: inherit; font-size: 13px; color: var(--ink); background: var(--card); cursor: pointer;
  border: 1px solid var(--line); border-radius: 99px; padding: 3px 11px;
}
button:hover { border-color: var(--accent); }
button.alone { color: var(--soft); border-style: dashed; }
button[aria-pressed="true"] { background: var(--accent); border-color: var(--accent); color: #fff; }
.kinds { display: flex; flex-wrap: wrap; gap: 6px; margin-bottom: 8px; }
.scroll { overflow-x: auto; }
svg { display: block; font-family: inherit; }
svg text { font-size: 12px; fill: var(--ink); }
svg text.soft { fill: var(--soft); }
svg text.small { font-size: 10.5px; }
svg text.on { fill: var(--on-color); font-size: 11px; pointer-events: none; }
svg text.cell { fill: var(--cell-ink); font-size: 11px; pointer-events: none; }
svg line { stroke: var(--line); }
.track { fill: var(--idle); }
.rank { fill: var(--idle); stroke: var(--card); stroke-width: 1; }
.rank.near { stroke: var(--ink); stroke-width: 2; }
.f { fill: var(--f); } .b { fill: var(--b); } .g { fill: var(--b); } .w { fill: var(--w); }
.g { opacity: 0.8; }
.odd { opacity: 0.82; }
rect.f, rect.b, rect.g, rect.w { stroke: var(--card); stroke-width: 0.8; }
.c1 { filter: brightness(0.86); } .c2 { filter: brightness(1.14); } 
.c3 { filter: brightness(0.72); }
.unit-s0 { fill: var(--m0); } .unit-s1 { fill: var(--m1); } .unit-s2 { fill: var(--m2); }
.unit-s3 { fill: var(--m3); } .unit-s4 { fill: var(--m4); } .unit-s5 { fill: var(--m5); }
.m0 { fill: var(--m0); background: var(--m0); } .m1 { fill: var(--m1); background: var(--m1); }
.m2 { fill: var(--m2); background: var(--m2); } .m3 { fill: var(--m3); background: var(--m3); }
.m4 { fill: var(--m4); background: var(--m4); } .m5 { fill: var(--m5); background: var(--m5); }
.m6 { fill: var(--m6); background: var(--m6); }
.legend { display: flex; flex-wrap: wrap; gap: 14px; font-size: 13px; color: var(--soft); }
.legend { margin: 2px 0 10px; }
.legend i { display: inline-block; width: 11px; height: 11px; border-radius: 3px; }
.legend i { margin-right: 6px; vertical-align: -1px; }
.legend .f { background: var(--f); } .legend .b { background: var(--b); }
.legend .g { background: var(--b); } .legend .w { background: var(--w); }
.legend .track { background: var(--idle); outline: 1px solid var(--line); }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th { text-align: left; color: var(--soft); font-weight: 500; }
th, td { padding: 5px 14px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.mono { font: 12.5px ui-monospace, "DejaVu Sans Mono", monospace; }
details { margin-top: 16px; padding: 14px 20px; }
summary { cursor: pointer; font-size: 17px; font-weight: 600; }
details[open] summary { margin-bottom: 10px; }
polyline { fill: none; stroke: var(--accent); stroke-width: 2; }
.area { fill: var(--accent); opacity: 0.12; }
#about-group { min-height: 21px; margin-top: 10px; font-variant-numeric: tabular-nums; }
@media print { button { display: none; } body { background: #fff; } }
)css";
}

std::string_view html_script() {
  return R"js(
"use strict";
const page = document.documentElement;
window.addEventListener("error", (event) => { page.dataset.error = event.message; });
(() => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  const wear = (theme) => { page.dataset.theme = theme; };
  wear(dark ? "dark" : "light");
  document.getElementById("theme").onclick = () =>
    wear(page.dataset.theme === "dark" ? "light" : "dark");

  const data = JSON.parse(document.getElementById("groups").textContent);
  const cells = [...document.querySelectorAll("rect.rank")];
  const about = document.getElementById("about-group");
  const kinds = document.getElementById("kinds");
  let shown = data.kinds.find((kind) => kind.most > 1 && kind.count > 1) || data.kinds[0];

  const color = (group, count) => {
    const hue = count <= 12 ? (group * 360) / Math.max(count, 1) + 210 : group * 137.508 + 210;
    const light = group % 2 && count > 12 ? "--cell-strong" : "--cell-light";
    return `hsl(${(hue % 360).toFixed(1)} 58% var(${light}))`;
  };
  const describe = () => {
    const size = shown.least === shown.most ? shown.most : `${shown.least} to ${shown.most}`;
    about.textContent = `${shown.name}: ${shown.count} ${shown.count === 1 ? "group" : "groups"}` +
      ` of ${size} ${shown.most === 1 ? "rank" : "ranks"}; the first ${shown.first}`;
  };
  const show = (kind) => {
    shown = kind;
    cells.forEach((cell, index) => {
      const group = kind.of[index];
      cell.style.fill = group < 0 ? "" : color(group, kind.count);
    });
    for (const button of kinds.children) {
      button.setAttribute("aria-pressed", String(button.textContent === kind.name));
    }
    describe();
  };
  data.kinds.forEach((kind) => {
    const button = document.createElement("button");
    button.textContent = kind.name;
    button.type = "button";
    button.className = kind.most > 1 ? "" : "alone";
    button.onclick = () => show(kind);
    kinds.append(button);
  });
  cells.forEach((cell, index) => {
    cell.addEventListener("mouseenter", () => {
      const group = shown.of[index];
      const ranks = [];
      cells.forEach((other, at) => {
        const near = group >= 0 && shown.of[at] === group;
        other.classList.toggle("near", near || other === cell);
        if (near) ranks.push(data.ranks[at]);
      });
      const place = `rank ${data.ranks[index]} (${data.places[index]})`;
      const cut = ranks.length > 24 ? `${ranks.slice(0, 24).join(", ")}, ...` : ranks.join(", ");
      about.textContent = group < 0 ? `${place} is in no ${shown.name} group`
        : `${place}: ${shown.name} group ${group} with ranks ${cut}`;
    });
    cell.addEventListener("mouseleave", () => {
      cells.forEach((other) => other.classList.remove("near"));
      describe();
    });
  });
  show(shown);
  page.dataset.ready = String(cells.length);
})();
)js";
}

}  // namespace trainctl
