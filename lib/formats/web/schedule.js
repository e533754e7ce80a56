(() => {  // the schedule
  const node = document.getElementById("gantt"), data = data_of("schedule-data");
  const kinds = [["f", "forward"], ["b", "backward (B and W)"],
    ["b", "gradient of the input (B)"], ["w", "gradient of the weights (W)"]];
  const used = new Set(data.stages.flatMap((blocks) => blocks.map((block) => block[2])));
  const entries = kinds.map(([css, words]) => [css + "0", words]).filter((_, at) => used.has(at));
  legend(node, [...entries, ["idle", "idle"]]);
  if (data.chunks > 1) {
    make("p", node, "Blocks of later chunks are lighter, by turns in three steps.");
  }
  const time = (value) => +value.toFixed(2) + data.unit;
  lanes(node, {title: "Schedule", end: data.end || 1, time,
    lanes: data.stages.map((blocks, stage) => ({name: "stage " + stage, blocks})),
    css: (block) => kinds[block[2]][0] + block[4] % 3,
    label: (block) => data.chunks > 1 ? block[3] + "." + block[4] : String(block[3]),
    describe: (lane, [start, length, kind, microbatch, chunk]) => `${lane.name}, ` +
      `${kinds[kind][1]}, micro-batch ${microbatch}` + (data.chunks > 1 ? `, chunk ${chunk}` : "") +
      `: ${time(start)} to ${time(start + length)}`});
})();
