#include "run/views/report_page.h"

namespace trainctl {

// The colours of curves and entries are those of Okabe and Ito, which people with any kind of
// colour vision can tell apart; bars and curves have words beside them as well.
std::string_view report_style() {
  return R"css(
:root { color-scheme: light dark;
  --page: #f6f7f9; --card: #fff; --ink: #1b2430; --soft: #566273; --line: #d9dfe6; }
@media (prefers-color-scheme: dark) { :root {
  --page: #12161c; --card: #1a2029; --ink: #e6eaf0; --soft: #a3afbe; --line: #323c49; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; }
main { max-width: 1400px; margin: 0 auto; padding: 20px 16px 48px; }
h1 { font-size: 22px; margin: 0 0 12px; overflow-wrap: anywhere; }
h2 { font-size: 16px; margin: 0 0 6px; }
p { margin: 0 0 8px; color: var(--soft); font-size: 14px; overflow-wrap: anywhere; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 14px 16px; margin-top: 12px; min-width: 0; }
#curves { display: grid; gap: 12px; margin-top: 12px;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); }
#curves section { margin: 0; }
.scroll { overflow-x: auto; }
.scroll:focus-visible { outline: 2px solid #0072b2; }
table { border-collapse: collapse; font-size: 13.5px; }
th { text-align: left; font-weight: 500; color: var(--soft); }
th, td { padding: 4px 14px 4px 0; border-bottom: 1px solid var(--line); }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
svg { display: block; width: 100%; font: 11.5px system-ui, "DejaVu Sans", sans-serif; }
svg text { fill: var(--soft); }
svg line { stroke: var(--line); }
i { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 6px; }
.value { min-height: 21px; font-size: 13px; color: var(--soft);
  font-variant-numeric: tabular-nums; }
summary { cursor: pointer; font-weight: 600; }
)css";
}

std::string_view report_script() {
  return R"js(
"use strict";
const page = document.documentElement;
window.addEventListener("error", (event) => { page.dataset.error = event.message; });
const started = performance.now();
const data = JSON.parse(document.getElementById("data").textContent);
const colors = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#a89a00",
  "#7a7a7a", "#8c510a"];
const make = (tag, parent, text, attributes) => {
  const node = tag.startsWith("svg:")
    ? document.createElementNS("http://www.w3.org/2000/svg", tag.slice(4))
    : document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  parent.append(node);
  return node;
};
const short = (value) => {
  if (value === null || value === undefined) return "-";
  const size = Math.abs(value);
  if (size >= 1e9) return (value / 1e9).toPrecision(3) + "G";
  if (size >= 1e6) return (value / 1e6).toPrecision(3) + "M";
  if (size >= 1e4) return (value / 1e3).toPrecision(3) + "k";
  return size !== 0 && size < 1e-2 ? value.toExponential(2) : String(+value.toPrecision(4));
};
const seconds = (value) => value >= 1 ? value.toFixed(2) + " s"
  : value >= 1e-3 ? (value * 1e3).toFixed(1) + " ms" : (value * 1e6).toFixed(0) + " µs";
const section = (parent, title) => {
  const node = make("section", parent);
  make("h2", node, title);
  return node;
};
const table = (parent, head, rows) => {
  const scroll = make("div", parent, undefined, {class: "scroll", tabindex: "0", role: "region",
    "aria-label": "table"});
  const node = make("table", scroll);
  const top = make("tr", node);
  head.forEach((text, i) => make("th", top, text, i ? {class: "n", scope: "col"} : {scope: "col"}));
  rows.forEach((row) => {
    const line = make("tr", node);
    row.forEach((text, i) => make("td", line, text, i ? {class: "n"} : {}));
  });
};

const curve = (title, keys) => {
  const lines = [];
  data.runs.forEach((run, at) => keys.forEach((key, nth) => {
    const values = run.series[key];
    if (!values || !values.some((value) => value !== null)) return;
    const points = run.series.step.map((step, i) => [step, values[i]])
      .filter((point) => point[1] !== null);
    lines.push({name: data.runs.length > 1 ? run.name + (nth ? " " + key : "") : key, points,
      color: colors[(at + nth * data.runs.length) % colors.length], dashed: nth > 0});
  }));
  if (!lines.length) return () => {};
  const node = section(document.getElementById("curves"), title);
  const legend = make("p", node);
  lines.forEach((line) => {
    make("i", legend, undefined, {style: "background:" + line.color});
    make("span", legend, line.name + "\u2003");
  });
  const holder = make("div", node);
  const value = make("div", node, "", {class: "value"});
  // The grid has its columns only when all its sections are there.
  return () => draw_lines(title, lines, node, holder, value);
};
const draw_lines = (title, lines, node, holder, value) => {
  const width = Math.max(260, node.clientWidth - 34), height = 190, left = 52, bottom = 22;
  const all = lines.flatMap((line) => line.points);
  const xs = all.map((point) => point[0]), ys = all.map((point) => point[1]);
  const least = (list) => list.reduce((a, b) => Math.min(a, b), Infinity);
  const most = (list) => list.reduce((a, b) => Math.max(a, b), -Infinity);
  const x0 = least(xs), x1 = Math.max(most(xs), x0 + 1);
  let y0 = least(ys), y1 = most(ys);
  if (y1 - y0 < 1e-12) { y0 -= Math.abs(y0) * 0.1 + 1e-9; y1 += Math.abs(y1) * 0.1 + 1e-9; }
  const x = (step) => left + (width - left - 6) * (step - x0) / (x1 - x0);
  const y = (number) => 8 + (height - bottom - 8) * (1 - (number - y0) / (y1 - y0));
  const svg = make("svg:svg", holder, undefined, {viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": title + ": " + lines.map((line) =>
      `${line.name} from ${short(line.points[0][1])} ` +
      `to ${short(line.points[line.points.length - 1][1])}`).join("; ")});
  for (let i = 0; i <= 4; ++i) {
    const number = y0 + (y1 - y0) * i / 4;
    make("svg:line", svg, undefined, {x1: left, x2: width - 6, y1: y(number), y2: y(number)});
    make("svg:text", svg, short(number), {x: left - 6, y: y(number) + 4, "text-anchor": "end"});
  }
  make("svg:text", svg, "step " + x0, {x: left, y: height - 6});
  make("svg:text", svg, "step " + x1, {x: width - 6, y: height - 6, "text-anchor": "end"});
  lines.forEach((line) => make("svg:polyline", svg, undefined, {fill: "none", stroke: line.color,
    "stroke-width": 1.7, "stroke-dasharray": line.dashed ? "5 3" : "none",
    points: line.points.map((point) => x(point[0]).toFixed(1) + "," + y(point[1]).toFixed(1))
      .join(" ")}));
  const mark = make("svg:line", svg, undefined,
    {y1: 8, y2: height - bottom, visibility: "hidden"});
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const step = x0 + ((event.clientX - box.left) * width / box.width - left) * (x1 - x0) /
      (width - left - 6);
    const near = lines.map((line) => line.points.reduce((best, point) =>
      Math.abs(point[0] - step) < Math.abs(best[0] - step) ? point : best, line.points[0]));
    mark.setAttribute("x1", x(near[0][0]));
    mark.setAttribute("x2", x(near[0][0]));
    mark.setAttribute("visibility", "visible");
    value.textContent = `step ${near[0][0]}: ` +
      lines.map((line, i) => `${line.name} ${short(near[i][1])}`).join(", ");
  });
};

const overview = () => {
  const node = section(document.getElementById("runs"), "Runs");
  const last = (run, key) => short(run.last[key]);
  table(node, ["run", "step", "loss", "val loss", "tokens/s", "MFU", "memory", "state"],
    data.runs.map((run) => {
      const steps = run.series.step, step = steps.length ? steps[steps.length - 1] : 0;
      return [run.name, `${step} of ${run.steps || "?"}`, last(run, "loss"), last(run, "val_loss"),
        last(run, "tokens_per_second"),
        run.last.mfu === undefined ? "-" : (100 * run.last.mfu).toFixed(0) + " %",
        last(run, "memory") + "B", run.end || (step >= run.steps ? "finished" : "not finished")];
    }));
  data.runs.forEach((run) => {
    if (run.measured && run.measured.mfu_peak) {
      make("p", node, `${run.name}: MFU is of ${short(run.measured.mfu_peak.flops)} FLOP/s ` +
        `(${run.measured.mfu_peak.source}).`, {style: "margin-top:8px"});
    }
  });
};

const differences = () => {
  if (data.runs.length < 2) return;
  const keys = [...new Set(data.runs.flatMap((run) => Object.keys(run.config)))].sort()
    .filter((key) => key !== "output.dir" &&
      new Set(data.runs.map((run) => run.config[key])).size > 1);
  const node = section(document.getElementById("runs"), "Where the configurations differ");
  if (!keys.length) return make("p", node, "In nothing but output.dir.");
  table(node, ["key", ...data.runs.map((run) => run.name)],
    [...keys.map((key) => [key, ...data.runs.map((run) => run.config[key] || "-")]),
      ["last loss", ...data.runs.map((run) => short(run.last.loss))],
      ["last val_loss", ...data.runs.map((run) => short(run.last.val_loss))],
      ["last tokens_per_second", ...data.runs.map((run) => short(run.last.tokens_per_second))]]);
};

const bars = (node, rows) => {
  const width = Math.max(260, node.clientWidth - 34), left = 84, height = 24 * rows.length + 4;
  const most = Math.max(...rows.map((row) => row[2]), 1e-9);
  const svg = make("svg:svg", node, undefined, {viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": rows.map((row) => `${row[0]} ${seconds(row[2])}`).join(", ")});
  rows.forEach((row, at) => {
    make("svg:text", svg, row[0], {x: 0, y: 24 * at + 16});
    let x = left;
    data.entries.forEach(([key, name], nth) => {
      const wide = Math.max(0, row[1][key]) / most * (width - left - 70);
      const rect = make("svg:rect", svg, undefined, {x, y: 24 * at + 2, height: 19,
        width: wide.toFixed(2), fill: colors[nth]});
      make("svg:title", rect, `${row[0]}, ${name}: ${seconds(row[1][key])}`);
      x += wide;
    });
    make("svg:text", svg, seconds(row[2]), {x: x + 6, y: 24 * at + 16});
  });
};
const total = (ledger) => data.entries.reduce((sum, [key]) => sum + Math.max(0, ledger[key]), 0);

const ledgers = () => data.runs.forEach((run) => {
  const ledger = run.measured && run.measured.ledger;
  if (!ledger) return;
  const node = section(document.getElementById("more"),
    `${run.name}: where the time of step ${ledger.step} went`);
  const legend = make("p", node);
  data.entries.forEach(([, name], nth) => {
    make("i", legend, undefined, {style: "background:" + colors[nth]});
    make("span", legend, name + "\u2003");
  });
  const ranks = ledger.ranks.length > 1 ? ledger.ranks.slice(0, 32) : [];
  bars(node, [["planned", ledger.planned, total(ledger.planned)],
    ["measured", ledger.measured, total(ledger.measured)],
    ...ranks.map((rank) => ["rank " + rank.rank, rank.measured, total(rank.measured)])]);
  table(node, ["of all ranks", "planned", "measured"], data.entries.map(([key, name]) =>
    [name, seconds(ledger.planned[key]), seconds(Math.max(0, ledger.measured[key]))]));
});

const kinds = {F: ["forward", 0], R: ["forward again", 5], B: ["backward", 2],
  W: ["weight gradients", 4], o: ["optimizer", 8], m: ["messages", 3], s: ["gradient sums", 1],
  g: ["gathers", 6], d: ["data", 7]};
const timelines = () => data.runs.forEach((run) => {
  const line = run.measured && run.measured.timeline;
  if (!line) return;
  const node = section(document.getElementById("more"), `${run.name}: step ${line.step}, by stage`);
  const legend = make("p", node);
  Object.values(kinds).forEach(([name, nth]) => {
    make("i", legend, undefined, {style: "background:" + colors[nth]});
    make("span", legend, name + "\u2003");
  });
  make("p", node, "What a rank waited for is pale. Zoom with the buttons, then scroll.");
  const scroll = make("div", node, undefined, {class: "scroll", tabindex: "0", role: "region",
    "aria-label": "time line"});
  const end = Math.max(...line.ranks.flatMap((rank) => rank.rows.map((row) => row[1] + row[2])), 1);
  let zoom = 1;
  const draw = () => {
    scroll.textContent = "";
    const width = Math.max(260, node.clientWidth - 34) * zoom, left = 60;
    const height = 26 * line.ranks.length + 20;
    const svg = make("svg:svg", scroll, undefined, {viewBox: `0 0 ${width} ${height}`,
      style: `width:${width}px`, role: "img", "aria-label": "time line of a step"});
    const at = (time) => left + (width - left - 8) * time / end;
    line.ranks.forEach((rank, nth) => {
      make("svg:text", svg, "rank " + rank.rank, {x: 0, y: 26 * nth + 16});
      rank.rows.forEach(([name, start, length, waited]) => {
        const [word, color] = kinds[name[0]] || kinds.d;
        const rect = make("svg:rect", svg, undefined, {x: at(start).toFixed(2), y: 26 * nth + 2,
          height: 20, width: Math.max(0.4, at(start + length) - at(start)).toFixed(2),
          fill: colors[color], opacity: waited > length / 2 ? 0.35 : 1});
        make("svg:title", rect, `${word} ${name}: ${seconds(length / 1e6)}, ` +
          `${seconds(waited / 1e6)} of it waiting`);
      });
    });
    make("svg:text", svg, "0", {x: left, y: height - 4});
    make("svg:text", svg, seconds(end / 1e6), {x: width - 8, y: height - 4, "text-anchor": "end"});
  };
  const buttons = make("p", node, undefined, {style: "margin-top:8px"});
  [["closer", 2], ["farther", 0.5]].forEach(([word, factor]) => {
    make("button", buttons, word, {type: "button"}).onclick = () => {
      zoom = Math.min(64, Math.max(1, zoom * factor));
      draw();
    };
    make("span", buttons, " ");
  });
  draw();
});

const configs = () => data.runs.forEach((run) => {
  const node = make("section", document.getElementById("more"));
  const details = make("details", node);
  make("summary", details, `${run.name}: configuration`);
  make("p", details, run.path);
  table(details, ["key", "value"], Object.entries(run.config));
});

const draw = () => {
  for (const id of ["runs", "curves", "more"]) document.getElementById(id).textContent = "";
  overview();
  differences();
  [["Loss", ["loss", "val_loss"]], ["Learning rate", ["lr"]], ["Gradient norm", ["grad_norm"]],
    ["Tokens per second", ["tokens_per_second"]], ["MFU", ["mfu"]], ["Memory, bytes", ["memory"]],
    ["Loss scale", ["loss_scale"]],
    ["Waiting for other ranks, seconds of rank 0", ["ledger.bubble", "ledger.dp", "ledger.tp"]]]
    .map(([title, keys]) => curve(title, keys)).forEach((draw_curve) => draw_curve());
  ledgers();
  timelines();
  configs();
};
draw();
let wide = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth !== wide) { wide = window.innerWidth; draw(); }
});
page.dataset.ready = String(data.runs.length);
page.dataset.milliseconds = String(Math.round(performance.now() - started));
page.dataset.overflow = String(page.scrollWidth - page.clientWidth);
)js";
}

}  // namespace trainctl
