// Put before everything else in a copy of a page; check_page() then says what is wrong with it.
"use strict";
window.complaints = [];
for (const kind of ["error", "warn"]) {
  console[kind] = (...words) => window.complaints.push(`console.${kind}: ${words.join(" ")}`);
}
window.addEventListener("error", (event) => window.complaints.push(`error: ${event.message}`));

window.check_page = () => {
  const problems = window.complaints.splice(0);
  const root = document.documentElement;
  const all = (selector) => [...document.querySelectorAll(selector)];
  const place = (node) => {
    const named = node.closest("[id]");
    const css = typeof node.className === "string" ? node.className
      : node.getAttribute("class") || "";
    return `${named ? "#" + named.id + " " : ""}${node.tagName.toLowerCase()}` +
      `${css ? "." + css.replace(/ /g, ".") : ""} "${(node.textContent || "").slice(0, 30)}"`;
  };
  all("details").forEach((node) => { node.open = true; });

  if (root.dataset.ready !== "yes") problems.push("the script did not come to its end");
  if (root.dataset.error) problems.push(`data-error: ${root.dataset.error}`);
  if (!root.lang || !document.title.trim()) problems.push("no language or title");
  if (root.scrollWidth > window.innerWidth) {
    const wide = all("main *").filter((node) => !node.closest(".scroll, svg") &&
      node.getBoundingClientRect().right > window.innerWidth + 0.5);
    problems.push(`scrolls sideways: ${root.scrollWidth} > ${window.innerWidth}: ` +
      wide.slice(0, 3).map(place).join("; "));
  }

  // Names and structure.
  let level = 0;
  all("h1, h2, h3, h4, h5, h6").forEach((node) => {
    const now = Number(node.tagName[1]);
    if (now > level + 1) problems.push(`heading jumps from ${level} to ${now}: ${place(node)}`);
    if (!node.textContent.trim()) problems.push(`empty heading: ${place(node)}`);
    level = now;
  });
  if (all("h1").length !== 1) problems.push(`${all("h1").length} h1`);
  const ids = all("[id]").map((node) => node.id);
  ids.filter((id, at) => ids.indexOf(id) !== at).forEach((id) => problems.push(`id twice: ${id}`));
  const name_of = (node) => (node.getAttribute("aria-label") ||
    (node.id && document.querySelector(`label[for="${node.id}"]`) || {}).textContent ||
    (["BUTTON", "SUMMARY", "A"].includes(node.tagName) && node.textContent) || "").trim();
  all("button, select, input, summary, a, svg, [tabindex], [role=img], [role=group], [role=region]")
    .filter((node) => !node.closest("[aria-hidden=true]"))
    .forEach((node) => { if (!name_of(node)) problems.push(`no name: ${place(node)}`); });
  all("svg").filter((node) => node.getAttribute("aria-hidden") !== "true" &&
    node.getAttribute("role") !== "img").forEach((node) => problems.push(`no role: ${place(node)}`));
  all("table").filter((node) => !node.querySelector("th[scope]"))
    .forEach((node) => problems.push(`no heads: ${place(node)}`));
  all(".scroll").filter((node) => node.tabIndex !== 0)
    .forEach((node) => problems.push(`not reached by keyboard: ${place(node)}`));
  all("button, select, input").filter((node) => node.getBoundingClientRect().height < 24)
    .forEach((node) => problems.push(`too small to touch: ${place(node)}`));
  all(".segments span").filter((node) => node.scrollWidth > node.clientWidth + 1 ||
    !node.textContent.trim()).forEach((node) => problems.push(`figure is cut: ${place(node)}`));

  // What follows draws at once, and its fingers are not the browser's.
  const capture = Element.prototype.setPointerCapture, later = window.requestAnimationFrame;
  Element.prototype.setPointerCapture = () => {};
  window.requestAnimationFrame = (draw) => draw();

  // What the keyboard does.
  const press = (node, key) =>
    node.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
  all(".plot, .lanes").forEach((node) => {
    ["+", "ArrowRight", "ArrowRight", "ArrowDown", "-", "0", "End", "Home"]
      .forEach((key) => press(node, key));
    const told = node.parentElement.querySelector(".value[aria-live]");
    if (!told || !told.textContent.trim()) problems.push(`keys choose nothing: ${place(node)}`);
  });

  // What fingers do: two zoom, one pans, a tap chooses.
  all(".lanes").forEach((node) => {
    const box = node.getBoundingClientRect();
    const finger = (kind, pointerId, x) => node.dispatchEvent(new PointerEvent(kind, {pointerId,
      pointerType: "touch", bubbles: true, cancelable: true, clientX: box.left + x,
      clientY: box.top + 6}));
    const shown = () => node.parentElement.querySelector(".tools .value").textContent;
    const told = node.parentElement.querySelector(".value[aria-live]");
    press(node, "0");
    const whole = shown();
    finger("pointerdown", 101, box.width * 0.4);
    finger("pointerdown", 102, box.width * 0.6);
    finger("pointermove", 102, box.width * 0.9);
    finger("pointerup", 101, box.width * 0.4);
    finger("pointerup", 102, box.width * 0.9);
    const zoomed = shown();
    if (zoomed === whole) problems.push(`two fingers do not zoom: ${place(node)}`);
    finger("pointerdown", 103, box.width * 0.8);
    finger("pointermove", 103, box.width * 0.6);
    finger("pointerup", 103, box.width * 0.6);
    if (shown() === zoomed) problems.push(`a finger does not pan: ${place(node)}`);
    press(node, "0");
    told.textContent = "";
    for (let x = 0.3; x < 0.95 && !told.textContent; x += 0.01) {
      finger("pointerdown", 104, box.width * x);
      finger("pointerup", 104, box.width * x);
    }
    if (!told.textContent) problems.push(`a tap chooses nothing: ${place(node)}`);
  });
  Element.prototype.setPointerCapture = capture;
  window.requestAnimationFrame = later;

  const rank = document.getElementById("rank");
  if (rank) {
    rank.value = "0";
    rank.dispatchEvent(new Event("input"));
    const told = document.getElementById("about-group").textContent;
    if (!told.startsWith("rank 0 ")) problems.push(`a chosen rank says: ${told}`);
  }
  all("select").forEach((node) => [...node.options].forEach((option) => {
    node.value = option.value;
    node.dispatchEvent(new Event("change"));
  }));
  problems.push(...window.complaints.splice(0));

  // Contrast: WCAG 2.2, 1.4.3.
  const context = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const known = new Map();
  const rgba = (color) => {
    if (!known.has(color)) {
      context.clearRect(0, 0, 1, 1);
      context.fillStyle = color;
      context.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data;
      known.set(color, [r, g, b, a / 255]);
    }
    return known.get(color);
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3]));
  const luminance = (color) => {
    const [r, g, b] = color.map((value) => value / 255)
      .map((value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (layers) => layers.reduceRight((below, top) => over(top, below), [255, 255, 255]);
  const html_layers = (node) => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) {
      const color = rgba(getComputedStyle(at).backgroundColor);
      if (color[3] > 0) layers.push(color);
      if (color[3] === 1) break;
    }
    return layers;
  };
  const layers_below = (text) => {
    const box = text.getBoundingClientRect();
    const svg = text.ownerSVGElement;
    const found = document.elementsFromPoint(box.x + box.width / 2, box.y + box.height / 2)
      .filter((node) => svg.contains(node) && ["rect", "path"].includes(node.tagName) &&
        getComputedStyle(node).fill !== "none");
    return [...found.map((node) => rgba(getComputedStyle(node).fill)), ...html_layers(svg)];
  };
  let texts = 0;
  all("main *").forEach((node) => {
    if (["SCRIPT", "STYLE", "OPTION"].includes(node.tagName) || node.closest("[aria-hidden=true]")) return;
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    const box = node.getBoundingClientRect();
    if (!own || !box.width || box.bottom > window.innerHeight) return;
    ++texts;
    const style = getComputedStyle(node), drawn = node.tagName === "text";
    const below = behind(drawn ? layers_below(node) : html_layers(node));
    const color = over(rgba(drawn ? style.fill : style.color), below);
    const [light, dark] = [luminance(color), luminance(below)].sort((a, b) => b - a);
    const ratio = (light + 0.05) / (dark + 0.05);
    if (ratio < 4.5) problems.push(`contrast ${ratio.toFixed(2)}: ${place(node)}`);
  });
  if (texts < 20) problems.push(`only ${texts} texts seen`);
  return {theme: root.dataset.theme, milliseconds: root.dataset.milliseconds, texts, problems};
};
