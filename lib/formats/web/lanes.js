// Lanes of blocks over time, with an overview of all of it above the part that is shown.
// about: {title, end, lanes: [{name, blocks: [[start, length, ...], ...] by start}], css(block),
// label(block), describe(lane, block), time(value)}. One path holds all blocks of one colour, so
// that tens of thousands are drawn at once; of those that share a pixel the first is drawn.
const first_after = (blocks, time) => {
  let low = 0, high = blocks.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (blocks[middle][0] + blocks[middle][1] <= time) low = middle + 1; else high = middle;
  }
  return low;
};
const paint_lanes = (svg, about, box, from, to) => {
  const paths = new Map(), words = [], scale = box.width / (to - from);
  about.lanes.forEach((lane, nth) => {
    const y = nth * box.band, end = y + box.height;
    make("svg:rect", svg, undefined,
      {class: "idle", x: box.left, y, width: box.width, height: box.height});
    let last = -1;
    for (let i = first_after(lane.blocks, from); i < lane.blocks.length; ++i) {
      const block = lane.blocks[i];
      if (block[0] >= to) break;
      const x0 = Math.max(0, (block[0] - from) * scale);
      let x1 = Math.min(box.width, (block[0] + block[1] - from) * scale);
      if (x1 - x0 < 1) {
        if (Math.floor(x0) === last) continue;
        last = Math.floor(x0);
        x1 = Math.min(box.width, x0 + 1);
      }
      const gap = x1 - x0 > 4 ? 1 : 0, css = about.css(block);
      if (!paths.has(css)) paths.set(css, []);
      const [start, stop] = [x0, x1 - gap].map((x) => (box.left + x).toFixed(1));
      paths.get(css).push(`M${start} ${y}H${stop}V${end}H${start}Z`);
      const word = box.height >= 13 ? about.label(block) : "";
      if (word && x1 - x0 >= 7 * word.length + 4) {
        words.push([box.left + (x0 + x1 - gap) / 2, y + box.height / 2 + 4, word]);
      }
    }
  });
  paths.forEach((parts, css) => make("svg:path", svg, undefined, {class: css, d: parts.join("")}));
  words.forEach(([x, y, word]) =>
    make("svg:text", svg, word, {x, y, class: "on", "text-anchor": "middle"}));
};

class Lanes {
  constructor(parent, about) {
    const count = about.lanes.length, band = count > 32 ? 15 : count > 12 ? 22 : 30;
    Object.assign(this, {parent, about, count, band, end: about.end, from: 0, to: about.end,
      height: band - (count > 12 ? 3 : 5), lane: -1, block: -1, fingers: new Map(), moved: 0,
      small: Math.max(2, Math.min(8, Math.floor(64 / count))), waiting: false,
      left: 10 + 6.6 * Math.max(...about.lanes.map((lane) => lane.name.length))});
    this.add_tools();
    this.strip = make("div", parent, undefined, {class: "overview"});
    this.view = make("div", parent, undefined, {class: "lanes", tabindex: "0", role: "group",
      "aria-label": about.title + ": left and right choose a block, up and down a lane, " +
        "plus and minus zoom, 0 shows all"});
    this.value = make("div", parent, "", {class: "value", "aria-live": "polite"});
    this.listen();
    drawings.push(() => this.draw());
  }

  add_tools() {
    const tools = make("div", this.parent, undefined,
      {class: "tools", role: "group", "aria-label": this.about.title + ": view"});
    [["−", "zoom out", () => this.zoom(0.5)], ["+", "zoom in", () => this.zoom(2)],
      ["◀", "earlier", () => this.pan(-0.5)], ["▶", "later", () => this.pan(0.5)],
      ["All", "show all", () => this.show(0, this.end)]].forEach(([text, label, action]) => {
      make("button", tools, text, {type: "button", "aria-label": label, title: label})
        .onclick = action;
    });
    this.range = make("span", tools, "", {class: "value"});
  }

  listen() {
    const on = (node, kinds, action, options) => kinds.forEach((kind) =>
      node.addEventListener(kind, (event) => action.call(this, event), options));
    on(this.view, ["pointerdown"], this.on_down);
    on(this.view, ["pointermove"], this.on_move);
    on(this.view, ["pointerup", "pointercancel"], this.on_lift);
    on(this.view, ["dblclick"], (event) => this.zoom(2, this.time_at(event)));
    on(this.view, ["wheel"], this.on_wheel, {passive: false});
    on(this.view, ["keydown"], this.on_key);
    on(this.strip, ["pointerdown"], (event) => {
      this.strip.setPointerCapture(event.pointerId);
      this.centre(event);
    });
    on(this.strip, ["pointermove"], (event) => {
      if (this.strip.hasPointerCapture(event.pointerId)) this.centre(event);
    });
  }

  x(time) { return this.left + (time - this.from) / (this.to - this.from) * this.box.width; }

  draw_frame() {
    const high = this.small * this.count;
    const x = (time) => this.left + time / this.end * this.box.width;
    this.frame.textContent = "";
    [[this.left, x(this.from)], [x(this.to), this.left + this.box.width]].forEach(([a, b]) =>
      make("svg:rect", this.frame, undefined,
        {class: "away", x: a, y: 0, width: Math.max(0, b - a), height: high}));
    make("svg:rect", this.frame, undefined, {class: "window", x: x(this.from), y: 1,
      width: Math.max(3, x(this.to) - x(this.from)), height: high - 2});
  }

  draw_marks(svg) {
    const {left, box, about} = this;
    ticks(this.from, this.to, box.width / 90).list.forEach((time) => {
      const x = this.x(time);
      const anchor = x > left + box.width - 24 ? "end" : x < left + 24 ? "start" : "middle";
      make("svg:text", svg, about.time(time),
        {x, y: this.count * this.band + 13, "text-anchor": anchor});
    });
  }

  draw_picked(svg) {
    const picked = this.lane >= 0 ? this.about.lanes[this.lane].blocks[this.block] : undefined;
    if (!picked || picked[0] >= this.to || picked[0] + picked[1] <= this.from) return;
    const x = Math.max(this.left, this.x(picked[0]));
    const stop = Math.min(this.left + this.box.width, this.x(picked[0] + picked[1]));
    make("svg:rect", svg, undefined, {class: "near", x, y: this.lane * this.band + 1,
      width: Math.max(2, stop - x), height: this.height - 2});
  }

  draw_view() {
    const {about, from, to, end} = this;
    this.view.textContent = "";
    const svg = make("svg:svg", this.view, undefined, {width: this.width, role: "img",
      height: this.count * this.band + 18,
      "aria-label": `${about.title} from ${about.time(from)} to ${about.time(to)}`});
    about.lanes.forEach((one, nth) => make("svg:text", svg, one.name,
      {x: 0, y: nth * this.band + this.height / 2 + 4}));
    paint_lanes(svg, about, this.box, from, to);
    this.draw_marks(svg);
    this.draw_picked(svg);
    this.range.textContent = to - from < end * 0.999
      ? `${about.time(from)} to ${about.time(to)} of ${about.time(end)}` : `all ${about.time(end)}`;
    this.draw_frame();
  }

  draw() {
    const {about, left, small, count} = this;
    this.width = width_in(this.parent);
    this.box = {left, width: this.width - left - 2, band: this.band, height: this.height};
    this.strip.textContent = "";
    const svg = make("svg:svg", this.strip, undefined, {width: this.width, height: small * count,
      role: "img", "aria-label": about.title + ": overview"});
    const box = {...this.box, band: small, height: small > 3 ? small - 1 : small};
    paint_lanes(svg, about, box, 0, this.end);
    this.frame = make("svg:g", svg);
    this.draw_view();
  }

  show(start, stop) {
    const span = Math.min(this.end, Math.max(this.end / 20000, stop - start));
    this.from = Math.min(this.end - span, Math.max(0, start));
    this.to = this.from + span;
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw_view(); });
  }
  zoom(factor, around = (this.from + this.to) / 2) {
    this.show(around - (around - this.from) / factor, around + (this.to - around) / factor);
  }
  pan(share) {
    const far = share * (this.to - this.from);
    this.show(this.from + far, this.to + far);
  }
  centre(event) {
    const inside = event.clientX - this.strip.getBoundingClientRect().left - this.left;
    const time = inside / this.box.width * this.end, half = (this.to - this.from) / 2;
    this.show(time - half, time + half);
  }

  tell(lane, block) {
    const one = this.about.lanes[lane];
    this.value.textContent = this.about.describe(one, one.blocks[block]);
  }
  pick(lane, block) {
    const picked = this.about.lanes[lane].blocks[block];
    if (!picked) return;
    Object.assign(this, {lane, block});
    this.tell(lane, block);
    const hidden = picked[0] + picked[1] <= this.from || picked[0] >= this.to;
    const half = (this.to - this.from) / 2;
    if (hidden) this.show(picked[0] - half, picked[0] + half); else this.show(this.from, this.to);
  }
  pick_near(lane, time) {
    const blocks = this.about.lanes[lane].blocks;
    this.pick(lane, Math.min(first_after(blocks, time), blocks.length - 1));
  }
  beside(step) {
    if (this.lane < 0) return this.pick_near(0, this.from);
    const last = this.about.lanes[this.lane].blocks.length - 1;
    this.pick(this.lane, Math.min(last, Math.max(0, this.block + step)));
  }
  across(step) {
    if (this.lane < 0) return this.pick_near(0, this.from);
    const next = Math.min(this.count - 1, Math.max(0, this.lane + step));
    this.pick_near(next, this.about.lanes[this.lane].blocks[this.block][0]);
  }

  time_at(event) {
    const inside = event.clientX - this.view.getBoundingClientRect().left - this.left;
    return this.from + inside / this.box.width * (this.to - this.from);
  }
  block_at(event) {
    const lane = Math.floor((event.clientY - this.view.getBoundingClientRect().top) / this.band);
    if (lane < 0 || lane >= this.count) return undefined;
    const time = this.time_at(event), blocks = this.about.lanes[lane].blocks;
    const at = first_after(blocks, time);
    return blocks[at] && blocks[at][0] <= time ? [lane, at] : undefined;
  }

  on_down(event) {
    this.fingers.set(event.pointerId, event);
    this.moved = 0;
    this.view.setPointerCapture(event.pointerId);
  }
  on_move(event) {
    const before = this.fingers.get(event.pointerId);
    if (!before) {
      const found = this.block_at(event);
      if (found) this.tell(...found);
      return;
    }
    const other = [...this.fingers.values()].find((one) => one.pointerId !== event.pointerId);
    if (other) {
      const was = Math.abs(before.clientX - other.clientX);
      const is = Math.abs(event.clientX - other.clientX);
      if (was > 8 && is > 8) this.zoom(is / was, (this.time_at(event) + this.time_at(other)) / 2);
      this.moved += 100;
    } else {
      const far = event.clientX - before.clientX;
      this.moved += Math.abs(far);
      if (this.moved > 4) this.pan(-far / this.box.width);
    }
    this.fingers.set(event.pointerId, event);
  }
  on_lift(event) {
    const touched = this.fingers.delete(event.pointerId) && this.moved <= 4;
    const found = touched && event.type === "pointerup" ? this.block_at(event) : undefined;
    if (found) this.pick(...found);
  }
  on_wheel(event) {
    const turned = event.ctrlKey || event.metaKey;
    if (!turned && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;  // the page scrolls
    event.preventDefault();
    if (turned) {
      this.zoom(Math.exp(-event.deltaY / 200), this.time_at(event));
    } else {
      this.pan(event.deltaX / 400);
    }
  }
  on_key(event) {
    const span = this.to - this.from, shift = event.shiftKey;
    const action = {ArrowRight: () => shift ? this.pan(0.25) : this.beside(1),
      ArrowLeft: () => shift ? this.pan(-0.25) : this.beside(-1),
      ArrowDown: () => this.across(1), ArrowUp: () => this.across(-1), "+": () => this.zoom(2),
      "=": () => this.zoom(2), "-": () => this.zoom(0.5), "0": () => this.show(0, this.end),
      Home: () => this.show(0, span), End: () => this.show(this.end - span, this.end)}[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  }
}
const lanes = (parent, about) => new Lanes(parent, about);
