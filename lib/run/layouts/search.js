(() => {  // seconds against memory
  const node = document.getElementById("scatter"), data = data_of("scatter-data");
  const points = data.points, front = new Set(data.frontier);
  legend(node, [["c7", "planned"], ["c0", "on the frontier"], ["c5", "the best"]]);
  const holder = make("div", node, undefined, {class: "plot", tabindex: "0", role: "group",
    "aria-label": "Layouts by seconds and memory, arrow keys choose one"});
  const value = make("div", node, "", {class: "value", "aria-live": "polite"});
  const height = 300, left = 66, right = 14, top = 12, bottom = 40;
  const least = (at) => Math.min(...points.map((point) => point[at]));
  const most = (at) => Math.max(...points.map((point) => point[at]));
  const room = (from, to) => (to - from) * 0.06 || Math.abs(to) * 0.1 || 1;
  const x0 = 0, x1 = Math.max(data.limit, most(0)) * 1.03;
  const y0 = least(1) - room(least(1), most(1)), y1 = most(1) + room(least(1), most(1));
  let width = 300, ring, chosen = -1;
  const x = (gib) => left + (width - left - right) * (gib - x0) / (x1 - x0);
  const y = (time) => top + (height - top - bottom) * (1 - (time - y0) / (y1 - y0));
  const order = points.map((_, i) => i).sort((a, b) => points[a][0] - points[b][0]);
  const choose = (index) => {
    chosen = index;
    const [gib, time, layout, ledger] = points[index];
    ring.setAttribute("cx", x(gib));
    ring.setAttribute("cy", y(time));
    ring.setAttribute("visibility", "visible");
    value.textContent = `${layout}: ${seconds(time)}, ${gib.toFixed(2)} GiB` +
      (ledger ? `; ${ledger}` : "");
  };
  const choose_near = (event) => {
    const box = holder.getBoundingClientRect();
    const far = (point) => Math.hypot(x(point[0]) - event.clientX + box.left,
      y(point[1]) - event.clientY + box.top);
    choose(points.reduce((best, point, i) => far(point) < far(points[best]) ? i : best, 0));
  };
  for (const kind of ["pointermove", "pointerdown"]) holder.addEventListener(kind, choose_near);
  holder.addEventListener("keydown", (event) => {
    const at = order.indexOf(chosen), last = order.length - 1;
    const to = {ArrowRight: at + 1, ArrowLeft: at < 0 ? last : at - 1, Home: 0,
      End: last}[event.key];
    if (to === undefined) return;
    event.preventDefault();
    choose(order[Math.min(last, Math.max(0, to))]);
  });
  const draw_axes = (svg) => {
    const rows = ticks(y0, y1, 5), columns = ticks(x0, x1, (width - left) / 90);
    rows.list.forEach((time) => {
      make("svg:line", svg, undefined, {x1: left, x2: width - right, y1: y(time), y2: y(time)});
      make("svg:text", svg, seconds(time), {x: left - 6, y: y(time) + 4, "text-anchor": "end"});
    });
    columns.list.forEach((gib) => make("svg:text", svg, columns.text(gib),
      {x: x(gib), y: height - bottom + 16, "text-anchor": "middle"}));
    make("svg:text", svg, "GiB of a rank",
      {x: width - right, y: height - 6, "text-anchor": "end"});
    make("svg:text", svg, "limit", {x: x(data.limit) - 4, y: top + 10, "text-anchor": "end"});
    make("svg:line", svg, undefined, {class: "limit", x1: x(data.limit), x2: x(data.limit),
      y1: top, y2: height - bottom});
  };
  drawings.push(() => {
    width = width_in(node);
    holder.textContent = "";
    const svg = make("svg:svg", holder, undefined, {width, height, role: "img", "aria-label":
      `${points.length} layouts; the fastest takes ${seconds(points[0][1])} in ` +
      `${points[0][0].toFixed(2)} GiB`});
    draw_axes(svg);
    make("svg:polyline", svg, undefined, {class: "s0", points: data.frontier
      .map((i) => `${x(points[i][0]).toFixed(1)},${y(points[i][1]).toFixed(1)}`).join(" ")});
    [...points.keys()].reverse().forEach((i) => make("svg:circle", svg, undefined,
      {cx: x(points[i][0]).toFixed(1), cy: y(points[i][1]).toFixed(1), r: i === 0 ? 6 : 4,
        class: i === 0 ? "best" : front.has(i) ? "front" : "dot"}));
    ring = make("svg:circle", svg, undefined, {r: 9, class: "near", visibility: "hidden"});
    if (chosen >= 0) choose(chosen);
  });
})();
