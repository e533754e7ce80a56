// From a quarter of the mean (blue) over the mean (grey) to four times the mean (orange): hues that
// people with any kind of colour vision can tell apart.
const load_color = (percent) => {
  const place = Math.max(-1, Math.min(1, Math.log2(Math.max(percent, 1) / 100) / 2));
  const end = place < 0 ? [0, 90, 181] : [220, 95, 0], share = Math.abs(place);
  return `rgb(${[236, 236, 232].map((from, i) => Math.round(from + share * (end[i] - from)))})`;
};

const load_legend = (node) => {
  const keys = make("ul", node, undefined, {class: "legend"});
  [[25, "a quarter or less"], [50, "half"], [100, "the mean"], [200, "twice"],
    [400, "four times or more"]].forEach(([load, text]) => {
    const entry = make("li", keys);
    make("i", entry, undefined, {style: `background:${load_color(load)}`});
    make("span", entry, text);
  });
};

data.runs.filter((run) => run.loads).forEach((run, at) => {
  const {layers, experts, steps, percent} = run.loads;
  const title = "Load of each expert" + (data.runs.length > 1 ? ": " + run.name : "");
  const node = section(document.getElementById("loads"), title,
    "How often each expert was chosen, over the mean of its layer.");
  const tools = make("div", node, undefined, {class: "tools"});
  let layer = 0;
  if (layers > 1) {
    make("label", tools, "layer of experts", {for: "loads-" + at});
    const box = make("select", tools, undefined, {id: "loads-" + at});
    for (let i = 0; i < layers; ++i) make("option", box, String(i), {value: i});
    box.onchange = () => { layer = Number(box.value); draw(); };
  }
  load_legend(node);
  const canvas = make("canvas", node, undefined, {role: "img", tabindex: "0", class: "loads"});
  const said = make("p", node, undefined, {"aria-live": "polite"});
  const left = 34, bottom = 20;
  const row_height = Math.max(3, Math.min(18, Math.floor(420 / experts)));
  let width = 0, chosen = [0, steps.length - 1];
  const value = (expert, column) => percent[layer * experts + expert][column];
  const name_of_steps = ([first, last]) => first === last ? `step ${first}`
    : `steps ${first} to ${last}`;
  const say = () => {
    said.textContent = `expert ${chosen[0]}, ${name_of_steps(steps[chosen[1]])}: ` +
      `${(value(...chosen) / 100).toFixed(2)} times the mean`;
  };
  const draw = () => {
    width = width_in(node);
    const height = experts * row_height + bottom, scale = window.devicePixelRatio || 1;
    canvas.width = width * scale; canvas.height = height * scale;
    canvas.style.width = width + "px"; canvas.style.height = height + "px";
    const paint = canvas.getContext("2d");
    paint.scale(scale, scale);
    const cell = (width - left) / steps.length;
    for (let expert = 0; expert < experts; ++expert) {
      for (let column = 0; column < steps.length; ++column) {
        paint.fillStyle = load_color(value(expert, column));
        paint.fillRect(left + column * cell, expert * row_height, cell + 0.5, row_height);
      }
    }
    const css = getComputedStyle(node);
    paint.fillStyle = css.getPropertyValue("--soft");
    paint.font = "12px system-ui, sans-serif";
    paint.textBaseline = "middle";
    paint.textAlign = "right";
    const every = Math.max(1, Math.ceil(14 / row_height));
    for (let expert = 0; expert < experts; expert += every) {
      paint.fillText(expert, left - 6, (expert + 0.5) * row_height);
    }
    paint.textAlign = "left";
    paint.fillText("step " + steps[0][0], left, height - 8);
    paint.textAlign = "right";
    paint.fillText("step " + steps[steps.length - 1][1], width, height - 8);
    const last = Array.from({length: experts}, (_, expert) => value(expert, steps.length - 1));
    canvas.setAttribute("aria-label", `${title}, layer of experts ${layer}: at the end between ` +
      `${(Math.min(...last) / 100).toFixed(2)} and ${(Math.max(...last) / 100).toFixed(2)} ` +
      "times the mean; the arrow keys move from expert to expert and from step to step");
    say();
  };
  const choose = (expert, column) => {
    chosen = [Math.max(0, Math.min(experts - 1, expert)),
      Math.max(0, Math.min(steps.length - 1, column))];
    say();
  };
  canvas.onpointermove = canvas.onpointerdown = (event) => choose(
    Math.floor(event.offsetY / row_height),
    Math.floor((event.offsetX - left) / (width - left) * steps.length));
  canvas.onkeydown = (event) => {
    const moves = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]};
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    choose(chosen[0] + move[0], chosen[1] + move[1]);
  };
  drawings.push(draw);
  document.getElementById("theme").addEventListener("click", draw);
});
