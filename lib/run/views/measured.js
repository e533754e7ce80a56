const total = (ledger) => data.entries.reduce((sum, [key]) => sum + Math.max(0, ledger[key]), 0);
const entry_css = (nth) => "c" + nth % 10;

const ledger_bars = (node, rows) => {
  const list = make("ul", node, undefined, {class: "ledger"});
  const most = Math.max(...rows.map(([, ledger]) => total(ledger)), 1e-12);
  rows.forEach(([name, ledger]) => {
    const line = make("li", list);
    make("span", line, name);
    const words = data.entries.filter(([key]) => ledger[key] > 0)
      .map(([key, text]) => `${text} ${seconds(ledger[key])}`).join(", ");
    const bar = make("div", line, undefined,
      {class: "bar", role: "img", "aria-label": `${name}: ${words}`});
    data.entries.forEach(([key, text], nth) => {
      if (!(ledger[key] > 0)) return;
      make("i", bar, undefined, {class: entry_css(nth), title: `${text}: ${seconds(ledger[key])}`,
        style: `width:${(100 * ledger[key] / most).toFixed(3)}%`});
    });
    make("span", line, seconds(total(ledger)), {class: "n"});
  });
};

const beside = (run, measured) => {
  const node = section(more_part, `${run.name}: planned against measured`);
  const grid = make("div", node, undefined, {class: "pairs"});
  const part = (title, head, rows) => {
    const box = make("div", grid);
    make("h3", box, title);
    table(box, title, head, rows);
  };
  const row = (text, key, form) => measured[key]
    ? [[text, form(measured[key].planned), form(measured[key].measured)]] : [];
  part(`Time of step ${measured.step}`, ["", "planned", "measured"],
    [...row("forward, backward", "forward_backward_seconds", seconds),
      ...row("sums, gathers and host copies waited for", "exposed_seconds", seconds),
      ...row("optimizer", "optimizer_seconds", seconds),
      ...row("bubble", "bubble_fraction", percent)]);
  const memory = measured.memory;
  if (memory) {
    part(`Memory of rank ${memory.rank}, which took most`, ["", "planned", "measured"],
      [...memory.rows.map(([name, planned, taken]) => [name, bytes(planned), bytes(taken)]),
        ["together", ...[1, 2].map((at) =>
          bytes(memory.rows.reduce((sum, row) => sum + row[at], 0)))]]);
  }
  const traffic = measured.traffic || [];
  if (traffic.length) {
    part("Communication of all ranks in the last step", ["kind", "planned", "measured", "calls"],
      traffic.map(([kind, [calls, planned, measured_calls, taken]]) => [kind, bytes(planned),
        bytes(taken), calls === measured_calls ? grouped(calls)
          : `${grouped(measured_calls)}, planned ${grouped(calls)}`]));
  } else {
    make("p", make("div", grid), "No communication: one rank.");
  }
};

const ledger_section = (run, ledger) => {
  const node = section(more_part, `${run.name}: where the time of step ${ledger.step} went`,
    ledger.of_steps ? `The median of the last ${ledger.of_steps} steps, by the time they took.`
      : "");
  legend(node, data.entries.map(([, text], nth) => [entry_css(nth), text])
    .filter((_, nth) => [ledger.planned, ledger.measured]
      .some((one) => one[data.entries[nth][0]] > 0)));
  const ranks = ledger.ranks.length > 1 ? ledger.ranks.slice(0, 32) : [];
  ledger_bars(node, [["planned", ledger.planned], ["measured", ledger.measured],
    ...ranks.map((rank) => ["rank " + rank.rank, rank.measured])]);
  if (ledger.ranks.length > 32) {
    make("p", node, `The first 32 of ${ledger.ranks.length} ranks.`);
  }
  const of = (key, pick) => ledger.ranks.map((rank) => Math.max(0, rank.measured[key]))
    .reduce((a, b) => pick(a, b));
  const range = ledger.ranks.length > 1 ? ["least", "most"] : [];
  table(node, "Ledger of the step", ["mean of all ranks", "planned", "measured", ...range],
    data.entries.filter(([key]) => ledger.planned[key] > 0 || ledger.measured[key] > 0)
      .map(([key, text]) => [text, seconds(ledger.planned[key]),
        seconds(Math.max(0, ledger.measured[key])),
        ...(range.length ? [seconds(of(key, Math.min)), seconds(of(key, Math.max))] : [])]));
};

const kinds = {F: ["forward", "c0"], R: ["forward again", "c6"], B: ["backward", "c1"],
  W: ["weight gradients", "c2"], o: ["optimizer", "c8"], m: ["messages of stages", "c3"],
  s: ["gradient sums", "c5"], g: ["parameter gathers", "c4"],
  h: ["copies to the host", "c9"], d: ["data and the rest", "c7"],
  "-": ["waiting", "wait"]};
const timeline_section = (run, line) => {
  const node = section(more_part, `${run.name}: time line of step ${line.step}`,
    "One rank of each stage. What a row waited for other ranks is drawn at its beginning.");
  const used = new Set(line.ranks.flatMap((rank) => rank.rows.map((row) => row[0][0])));
  const waited = line.ranks.some((rank) => rank.rows.some((row) => row[3] > 0));
  legend(node, [...Object.entries(kinds).filter(([kind]) => used.has(kind) ||
    (kind === "-" && waited)).map(([, [text, css]]) => [css, text]), ["idle", "no row"]]);
  const blocks = (rows) => rows.flatMap(([name, start, length, waiting]) => {
    const wait = Math.min(length, Math.max(0, waiting));
    return [[start, wait, "-", name], [start + wait, length - wait, name[0], name]]
      .filter((block) => block[1] > 0);
  }).sort((a, b) => a[0] - b[0]);
  const time = (micro) => seconds(micro / 1e6);
  const end = Math.max(1, ...line.ranks.flatMap((rank) => rank.rows.map((row) => row[1] + row[2])));
  lanes(node, {title: "Time line", end, time: (micro) => brief_seconds(micro / 1e6),
    lanes: line.ranks.map((rank) => ({name: "rank " + rank.rank, blocks: blocks(rank.rows)})),
    css: (block) => (kinds[block[2]] || kinds.d)[1],
    label: (block) => block[2] === "-" || block[3].length < 2 ? "" : block[3],
    describe: (lane, [start, length, kind, name]) => `${lane.name}: ` +
      `${(kinds[kind] || kinds.d)[0]} ${name.length > 1 ? name : ""} from ${time(start)}, ` +
      `takes ${time(length)}`});
  const sums = line.ranks.map((rank) => {
    const waits = rank.rows.reduce((sum, row) => sum + Math.max(0, row[3]), 0);
    const all = rank.rows.reduce((sum, row) => sum + row[2], 0);
    return ["rank " + rank.rank, time(all - waits), time(waits), time(Math.max(0, end - all))];
  });
  table(node, "Bubbles", ["", "working", "waiting for ranks", "no row"], sums);
};

data.runs.forEach((run) => {
  const measured = run.measured;
  if (!measured) return;
  beside(run, measured);
  if (measured.ledger) ledger_section(run, measured.ledger);
  if (measured.timeline && measured.timeline.ranks.length) {
    timeline_section(run, measured.timeline);
  }
});
data.runs.forEach((run) => {
  const node = section(more_part, `${run.name}: configuration`);
  const details = make("details", node);
  make("summary", details, run.path);
  table(details, "Configuration", ["key", "value"], Object.entries(run.config));
});
