document.getElementById("theme").onclick = () => {
  page.dataset.theme = page.dataset.theme === "dark" ? "light" : "dark";
};
const data_of = (id) => JSON.parse(document.getElementById(id).textContent);

// An element, at the end of `parent`.
const make = (tag, parent, text, attributes) => {
  const node = tag.startsWith("svg:")
    ? document.createElementNS("http://www.w3.org/2000/svg", tag.slice(4))
    : document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  if (parent) parent.append(node);
  return node;
};

// Drawings that depend on the width: drawn once all of the page is there, and again where the
// width has changed.
const drawings = [];
const draw_all = () => drawings.forEach((draw) => draw());
let drawn_width = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth === drawn_width) return;
  drawn_width = window.innerWidth;
  draw_all();
});

const short = (value) => {
  if (value === null || value === undefined) return "-";
  const size = Math.abs(value);
  for (const [unit, letter] of [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    const divisor = unit === 1e4 ? 1e3 : unit;
    if (size >= unit) return String(+(value / divisor).toPrecision(4)) + letter;
  }
  return size !== 0 && size < 1e-2 ? value.toExponential(2) : String(+value.toPrecision(4));
};
const bytes = (value) => {
  if (value === null || value === undefined) return "-";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  while (Math.abs(value) >= 1024 && at + 1 < units.length) { value /= 1024; ++at; }
  return (at ? value.toFixed(2) : String(value)) + " " + units[at];
};
const seconds = (value) => value >= 1 ? value.toFixed(2) + " s"
  : value >= 1e-3 ? (value * 1e3).toFixed(1) + " ms" : (value * 1e6).toFixed(0) + " µs";
// For marks on an axis: "150 ms", "0".
const brief_seconds = (value) => value === 0 ? "0" : seconds(value).replace(/\.?0+ /, " ");
const percent = (share) => (100 * share).toFixed(1) + " %";
const grouped = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, ",");

const section = (parent, title, note) => {
  const node = make("section", parent);
  make("h2", node, title);
  if (note) make("p", node, note);
  return node;
};
const table = (parent, label, head, rows) => {
  const scroll = make("div", parent, undefined,
    {class: "scroll", tabindex: "0", role: "region", "aria-label": label});
  const node = make("table", scroll);
  const top = make("tr", make("thead", node));
  head.forEach((text, i) => make("th", top, text, i ? {class: "n", scope: "col"} : {scope: "col"}));
  const body = make("tbody", node);
  rows.forEach((row) => {
    const line = make("tr", body);
    row.forEach((text, i) => make("td", line, text, i ? {class: "n"} : {}));
  });
  return node;
};
const legend = (parent, entries) => {
  const list = make("ul", parent, undefined, {class: "legend"});
  entries.forEach(([css, text]) => {
    const entry = make("li", list);
    make("i", entry, undefined, {class: css});
    make("span", entry, text);
  });
};
const width_in = (node) => {
  const style = getComputedStyle(node);
  return Math.max(240, Math.floor(node.clientWidth - parseFloat(style.paddingLeft) -
    parseFloat(style.paddingRight)));
};
// Round numbers in [from, to], about `count` of them, and how many digits they need.
const ticks = (from, to, count) => {
  const rough = (to - from) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * power).find((size) => size >= rough);
  const list = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to + step * 1e-9; ++i) {
    list.push(i * step);
  }
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return {list, text: (value) => Math.abs(value) >= 1e4 ? short(value)
    : digits > 4 && value !== 0 ? value.toExponential(1) : value.toFixed(Math.min(digits, 4))};
};
