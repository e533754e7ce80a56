// Curves: lines [{name, points: [[x, y], ...], color, dash (as color if not given)}]. The pointer,
// a finger or the arrow keys choose an x, whose values are written below.
const dashes = ["none", "7 3", "2 3", "9 3 2 3", "4 2", "12 4", "1 2", "6 2 1 2"];
const line_css = (line) => ({class: "s" + line.color % 8,
  "stroke-dasharray": dashes[(line.dash === undefined ? line.color : line.dash) % 8]});
const nearest = (points, step) => {
  let low = 0, high = points.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle][0] <= step) low = middle; else high = middle;
  }
  return step - points[low][0] <= points[high][0] - step ? points[low] : points[high];
};
class Chart {
  constructor(node, title, lines, options) {
    Object.assign(this, {node, title, lines, options, text: options.text || short, chosen: -1,
      width: 300, height: 200, left: 62, right: 10, top: 8, bottom: 24});
    this.find_range();
    if (lines.length > 1) this.add_legend();
    this.holder = make("div", node, undefined, {class: "plot", tabindex: "0", role: "group",
      "aria-label": title + ", arrow keys choose a step"});
    this.value = make("div", node, "", {class: "value", "aria-live": "polite"});
    for (const kind of ["pointermove", "pointerdown"]) {
      this.holder.addEventListener(kind, (event) => this.choose(this.step_at(event)));
    }
    this.holder.addEventListener("keydown", (event) => this.on_key(event));
    drawings.push(() => this.draw());
  }

  find_range() {
    const all = this.lines.flatMap((line) => line.points);
    const least = (at) => all.reduce((best, point) => Math.min(best, point[at]), Infinity);
    const most = (at) => all.reduce((best, point) => Math.max(best, point[at]), -Infinity);
    this.x0 = least(0);
    this.x1 = Math.max(most(0), this.x0 + 1);
    this.y0 = this.options.zero ? 0 : least(1);
    this.y1 = most(1);
    if (this.y1 - this.y0 > 1e-6 * Math.abs(this.y1)) return;
    const room = Math.abs(this.y1) * 0.1 || 1;
    this.y1 += room;
    if (!this.options.zero) this.y0 -= room;
  }

  add_legend() {
    const list = make("ul", this.node, undefined, {class: "legend"});
    this.lines.forEach((line) => {
      const entry = make("li", list);
      const swatch = make("svg:svg", entry, undefined, {"aria-hidden": "true"});
      make("svg:line", swatch, undefined, {x1: 0, x2: 22, y1: 4, y2: 4, ...line_css(line)});
      make("span", entry, line.name);
    });
  }

  x(step) {
    return this.left +
      (this.width - this.left - this.right) * (step - this.x0) / (this.x1 - this.x0);
  }
  y(number) {
    return this.top + (this.height - this.bottom - this.top) *
      (1 - (number - this.y0) / (this.y1 - this.y0));
  }
  step_at(event) {
    const inside = event.clientX - this.holder.getBoundingClientRect().left - this.left;
    return this.x0 + inside * (this.x1 - this.x0) / (this.width - this.left - this.right);
  }

  choose(step) {
    this.chosen = Math.min(this.x1, Math.max(this.x0, step));
    const near = this.lines.map((line) => nearest(line.points, this.chosen));
    this.chosen = near[0][0];
    this.mark.setAttribute("x1", this.x(this.chosen));
    this.mark.setAttribute("x2", this.x(this.chosen));
    this.mark.setAttribute("visibility", "visible");
    this.value.textContent = `step ${grouped(this.chosen)}: ` +
      this.lines.map((line, i) => `${line.name} ${this.text(near[i][1])}`).join(", ");
  }

  on_key(event) {
    const far = event.shiftKey ? 10 : 1;
    const points = this.lines[0].points;
    const at = points.findIndex((point) => point[0] >= this.chosen);
    const to = {ArrowRight: this.chosen < 0 ? 0 : at + far, ArrowLeft: at - far, Home: 0,
      End: points.length - 1}[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.choose(points[Math.min(points.length - 1, Math.max(0, to))][0]);
  }

  draw_axes(svg) {
    const end = this.width - this.right, rows = ticks(this.y0, this.y1, 4);
    rows.list.forEach((number) => {
      const y = this.y(number);
      make("svg:line", svg, undefined, {x1: this.left, x2: end, y1: y, y2: y});
      make("svg:text", svg, (this.options.axis || rows.text)(number),
        {x: this.left - 6, y: y + 4, "text-anchor": "end"});
    });
    make("svg:text", svg, "step " + grouped(this.x0), {x: this.left, y: this.height - 6});
    make("svg:text", svg, "step " + grouped(this.x1),
      {x: end, y: this.height - 6, "text-anchor": "end"});
  }

  draw_line(svg, line) {
    const points = line.points.map(([x, y]) => [this.x(x).toFixed(1), this.y(y).toFixed(1)]);
    if (points.length === 1) {
      make("svg:circle", svg, undefined,
        {cx: points[0][0], cy: points[0][1], r: 3, class: "s" + line.color % 8});
    }
    make("svg:polyline", svg, undefined,
      {...line_css(line), points: points.map((point) => point.join(",")).join(" ")});
  }

  draw() {
    this.width = width_in(this.node);
    this.holder.textContent = "";
    const summary = this.lines.map(({name, points}) => `${name} from ` +
      `${this.text(points[0][1])} to ${this.text(points[points.length - 1][1])}`).join("; ");
    const svg = make("svg:svg", this.holder, undefined, {width: this.width, height: this.height,
      role: "img", "aria-label": `${this.title}: ${summary}`});
    this.draw_axes(svg);
    this.lines.forEach((line) => this.draw_line(svg, line));
    this.mark = make("svg:line", svg, undefined,
      {y1: this.top, y2: this.height - this.bottom, class: "mark", visibility: "hidden"});
    if (this.chosen >= 0) this.choose(this.chosen);
  }
}
const chart = (node, title, lines, options = {}) => new Chart(node, title, lines, options);
