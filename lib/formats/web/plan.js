(() => {  // the mesh
  const data = data_of("groups");
  const about = document.getElementById("about-group");
  const kinds = document.getElementById("kinds");
  const holder = document.getElementById("cells");
  const input = document.getElementById("rank");
  let shown = data.kinds.find((kind) => kind.most > 1 && kind.count > 1) || data.kinds[0];
  let cells = [], words = [], chosen = -1;

  const paint = () => cells.forEach((cell, index) => {
    const group = shown.of[index];
    const near = chosen >= 0 && group >= 0 && group === shown.of[chosen];
    cell.setAttribute("class", "rank " + (group < 0 ? "idle" : "c" + group % 8) +
      (near ? " near" : "") + (index === chosen ? " chosen" : ""));
    if (words[index]) words[index].setAttribute("class", group < 0 ? "" : "on");
  });
  const describe = (index) => {
    if (index < 0) {
      const size = shown.least === shown.most ? shown.most : `${shown.least} to ${shown.most}`;
      about.textContent = `${shown.name}: ${shown.count} ` +
        `${shown.count === 1 ? "group" : "groups"} of ${size} ` +
        `${shown.most === 1 ? "rank" : "ranks"}; the first ${shown.first}`;
      return;
    }
    const group = shown.of[index];
    const ranks = data.ranks.filter((_, at) => group >= 0 && shown.of[at] === group);
    const place = `rank ${data.ranks[index]} (${data.places[index]})`;
    const cut = ranks.length > 24 ? `${ranks.slice(0, 24).join(", ")}, ...` : ranks.join(", ");
    about.textContent = group < 0 ? `${place} is in no ${shown.name} group`
      : `${place}: ${shown.name} group ${group} with ranks ${cut}`;
  };
  const choose = (index) => {
    chosen = index;
    paint();
    describe(index);
  };
  const show = (kind) => {
    shown = kind;
    for (const button of kinds.children) {
      button.setAttribute("aria-pressed", String(button.textContent === kind.name));
    }
    choose(chosen);
  };
  data.kinds.forEach((kind) => {
    make("button", kinds, kind.name, {type: "button", class: kind.most > 1 ? "" : "alone"})
      .onclick = () => show(kind);
  });
  input.addEventListener("input", () => {
    const index = input.value === "" ? -1 : data.ranks.indexOf(Number(input.value));
    choose(index);
    if (index < 0 && input.value !== "") about.textContent = `rank ${input.value} is not drawn`;
  });

  const columns_for = (width, widest, least) => {
    let columns = widest;
    while (columns > 1 && width / columns < least) columns = Math.ceil(columns / 2);
    return columns;
  };
  const draw = () => {
    const numbers = data.ranks.length <= 512 && window.innerWidth > 560 ||
      data.ranks.length <= 128;
    const left = 66, width = width_in(holder.parentElement) - left;
    const widest = Math.max(...data.lengths);
    const digits = String(data.ranks[data.ranks.length - 1]).length;
    const columns = columns_for(width, widest, numbers ? 8 + 7 * digits : 9);
    const wide = Math.min(46, width / columns), high = numbers ? 22 : 16;
    const rows = Math.ceil(widest / columns), band = rows * high + 6;
    holder.textContent = "";
    const svg = make("svg:svg", holder, undefined, {width: left + width, role: "img",
      height: band * data.lengths.length, "aria-label": `Ranks by group of ${shown.name}`});
    cells = [];
    words = [];
    data.lengths.forEach((length, stage) => {
      make("svg:text", svg, "stage " + stage, {x: 0, y: stage * band + high / 2 + 4});
      for (let i = 0; i < length; ++i) {
        const x = left + i % columns * wide;
        const y = stage * band + Math.floor(i / columns) * high;
        const index = cells.length;
        cells.push(make("svg:rect", svg, undefined,
          {x: x.toFixed(1), y, width: wide.toFixed(1), height: high}));
        if (!numbers) continue;
        words[index] = make("svg:text", svg, data.ranks[index],
          {x: x + wide / 2, y: y + high / 2 + 4, "text-anchor": "middle"});
      }
    });
    cells.forEach((cell, index) => {
      cell.addEventListener("pointerenter", () => describe(index));
      cell.addEventListener("pointerleave", () => describe(chosen));
      cell.addEventListener("click", () => {
        choose(index === chosen ? -1 : index);
        input.value = chosen < 0 ? "" : data.ranks[chosen];
      });
    });
    paint();
  };
  drawings.push(draw);
  drawings.push(() => { page.dataset.cells = String(cells.length); });
  show(shown);
})();

(() => {  // the learning rate
  const node = document.getElementById("rates");
  if (!node) return;
  chart(node, "Learning rate", [{name: "learning rate", points: data_of("rates-data"), color: 0}],
    {zero: true, axis: (value) => value === 0 ? "0" : value.toExponential(1)});
})();
