const data = data_of("data");
const runs_part = document.getElementById("runs");
const more_part = document.getElementById("more");

(() => {  // the runs
  const node = section(runs_part, "Runs");
  const last = (run, key) => short(run.last[key]);
  table(node, "Runs",
    ["run", "step", "loss", "val loss", "tokens/s", "MFU", "memory of rank 0", "state"],
    data.runs.map((run) => {
      const steps = run.series.step, step = steps.length ? steps[steps.length - 1] : 0;
      return [run.name, `${step} of ${run.steps || "?"}`, last(run, "loss"), last(run, "val_loss"),
        last(run, "tokens_per_second"),
        run.last.mfu === undefined ? "-" : (100 * run.last.mfu).toFixed(0) + " %",
        bytes(run.last.memory), run.state];
    }));
  data.runs.forEach((run) => {
    const peak = run.peak || (run.measured && run.measured.mfu_peak);
    if (!peak) return;
    make("p", node, `MFU of ${run.name} is the share of ${short(peak.flops)} FLOP/s of ` +
      `all ranks, the best rate known so far: ${peak.source}.`, {style: "margin-top:8px"});
  });
})();

const values_of = (run, key) => run.config[key] === undefined ? "-" : run.config[key];
const differing = [...new Set(data.runs.flatMap((run) => Object.keys(run.config)))].sort()
  .filter((key) => key !== "output.dir" &&
    new Set(data.runs.map((run) => values_of(run, key))).size > 1);
const results = [["loss", "last loss"], ["val_loss", "last validation loss"],
  ["tokens_per_second", "last tokens per second"], ["mfu", "last MFU"]]
  .filter(([key]) => data.runs.some((run) => run.last[key] !== undefined));

(() => {  // where the configurations differ
  if (data.runs.length < 2) return;
  const node = section(runs_part, "Where the configurations differ");
  if (!differing.length) return make("p", node, "In nothing but output.dir.");
  table(node, "Where the configurations differ", ["key", ...data.runs.map((run) => run.name)],
    [...differing.map((key) => [key, ...data.runs.map((run) => values_of(run, key))]),
      ...results.map(([key, text]) => [text, ...data.runs.map((run) => short(run.last[key]))])]);
})();

(() => {  // a result against a value in which they differ
  if (data.runs.length < 2 || !differing.length || !results.length) return;
  const node = section(runs_part, "Results against a value",
    "Each point is a run. Values that are numbers are placed by size, others in their order.");
  const tools = make("div", node, undefined, {class: "tools"});
  const select = (id, label, options) => {
    make("label", tools, label, {for: id});
    const box = make("select", tools, undefined, {id});
    options.forEach(([value, text]) => make("option", box, text, {value}));
    box.onchange = () => draw();
    return box;
  };
  const by = select("cross-key", "value", differing.map((key) => [key, key]));
  const of = select("cross-result", "result", results);
  const holder = make("div", node);
  const height = 220, left = 60, right = 16, top = 14, bottom = 26;
  const draw = () => {
    const points = data.runs.map((run, at) =>
      ({run, at, x: values_of(run, by.value), y: run.last[of.value]}))
      .filter((point) => point.y !== undefined);
    const words = [...new Set(points.map((point) => point.x))];
    const numeric = words.every((word) => word !== "" && isFinite(Number(word)));
    if (numeric) words.sort((a, b) => a - b);
    const place = (word) => numeric ? Number(word) : words.indexOf(word);
    const xs = words.map(place), ys = points.map((point) => point.y);
    const x0 = Math.min(...xs), x1 = Math.max(...xs, x0 + 1e-12);
    const room = (Math.max(...ys) - Math.min(...ys)) * 0.1 || Math.abs(ys[0]) * 0.1 || 1;
    const y0 = Math.min(...ys) - room, y1 = Math.max(...ys) + room;
    const width = width_in(node);
    const x = (value) => left + 24 + (width - left - right - 60) * (value - x0) / (x1 - x0);
    const y = (value) => top + (height - top - bottom) * (1 - (value - y0) / (y1 - y0));
    holder.textContent = "";
    const svg = make("svg:svg", holder, undefined, {width, height, role: "img",
      "aria-label": `${of.selectedOptions[0].text} against ${by.value}: ` +
        points.map((point) => `${point.run.name} ${point.x}: ${short(point.y)}`).join("; ")});
    const rows = ticks(y0, y1, 4);
    rows.list.forEach((value) => {
      make("svg:line", svg, undefined, {x1: left, x2: width - right, y1: y(value), y2: y(value)});
      make("svg:text", svg, rows.text(value), {x: left - 6, y: y(value) + 4, "text-anchor": "end"});
    });
    let free = -Infinity;
    words.forEach((word) => {
      const at = x(place(word)), half = 3.4 * word.length;
      if (at - half < free) return;
      make("svg:text", svg, word, {x: at, y: height - 8, "text-anchor": "middle"});
      free = at + half + 8;
    });
    points.forEach((point) => {
      const at = x(place(point.x));
      make("svg:circle", svg, undefined, {cx: at, cy: y(point.y), r: 5, class: "s" + point.at % 8});
      const late = at > width * 0.7;
      make("svg:text", svg, point.run.name, {x: at + (late ? -9 : 9), y: y(point.y) + 4,
        "text-anchor": late ? "end" : "start"});
    });
  };
  drawings.push(draw);
})();

(() => {  // the curves
  const most_memory = Math.max(0, ...data.runs.flatMap((run) => run.series.memory || []));
  const [unit, unit_name] = most_memory >= 2 ** 30 ? [2 ** 30, "GiB"] : [2 ** 20, "MiB"];
  const share = (value) => (100 * value).toFixed(1) + " %";
  const waiting = data.entries.filter(([key]) => ["bubble", "dp", "gather", "p2p", "tp"]
    .includes(key)).map(([key, text]) => ["ledger." + key, text]);
  // Of several runs their sum: one line for each run.
  if (data.runs.length > 1) {
    data.runs.forEach((run) => {
      const parts = waiting.map(([key]) => run.series[key]).filter((values) => values);
      if (parts.length) {
        run.series["ledger.waiting"] = parts[0].map((_, i) =>
          parts.reduce((sum, values) => sum + (values[i] || 0), 0));
      }
    });
    waiting.splice(0, waiting.length, ["ledger.waiting", "waiting"]);
  }
  [["Loss", [["loss", "loss"], ["val_loss", "validation loss"]]],
    ["Learning rate", [["lr", "learning rate"]]],
    ["Gradient norm", [["grad_norm", "gradient norm"]]],
    ["Largest attention logit", [["max_attention_logit", "logsumexp"]]],
    ["Tokens per second", [["tokens_per_second", "tokens per second"]], {zero: true}],
    ["MFU", [["mfu", "MFU"]], {zero: true, text: share, axis: (value) => percent(value)}],
    [`Memory of rank 0, ${unit_name}`, [["memory", "memory"]], {unit}],
    ["Loss scale", [["loss_scale", "loss scale"]]],
    ["Most chosen expert, over the mean", [["router.load", "load"]], {zero: true}],
    ["Balance loss", [["router.balance_loss", "balance loss"]]],
    ["Dropped choices", [["router.dropped", "dropped choices"]], {zero: true}],
    ["Waiting for other ranks, rank 0", waiting, {zero: true, text: seconds, axis: brief_seconds}]]
    .forEach(([title, keys, options = {}]) => {
      const lines = [];
      data.runs.forEach((run, at) => keys.forEach(([key, text], nth) => {
        const values = run.series[key];
        if (!values || !values.some((value) => value !== null)) return;
        if (key.startsWith("ledger.") && !values.some((value) => value > 0)) return;
        const points = run.series.step.map((step, i) => [step, values[i]])
          .filter((point) => point[1] !== null)
          .map(([step, value]) => [step, value / (options.unit || 1)]);
        const name = data.runs.length === 1 ? text : keys.length === 1 ? run.name
          : `${run.name}: ${text}`;
        lines.push({name, points, ...data.runs.length > 1 ? {color: at, dash: at + 4 * nth}
          : {color: nth}});
      }));
      if (!lines.length) return;
      chart(section(document.getElementById("curves"), title), title, lines, options);
    });
})();
