// What explorables draw with: handles, arrows, charts with axes, maps of numbers.
import { html, set, show, svg } from "./common.js";

/** A dot that a hand can take, with a reach as wide as a fingertip: `place(x, y)` moves it, `reach` takes `drag`. */
export function handle(parent, tone, radius = 6) {
  const dot = svg("circle", { class: `geo-dot geo-${tone}`, r: radius }, parent);
  const reach = svg("circle", { class: "geo-reach", r: 16 }, parent);
  const place = (cx, cy) => [dot, reach].forEach((each) => set(each, { cx: cx.toFixed(1), cy: cy.toFixed(1) }));
  return { dot, reach, place };
}

/** Drawing commands of an arrow from (x0, y0) to (x1, y1), its head `size` long; nothing when it has no length. */
export function arrow(x0, y0, x1, y1, size = 8) {
  const length = Math.hypot(x1 - x0, y1 - y0);
  if (length < 1e-6) return "";
  const [u, v] = [(x1 - x0) / length, (y1 - y0) / length], back = Math.min(size, length / 2), side = back / 2;
  const point = (x, y) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  return `M${point(x0, y0)}L${point(x1, y1)}M${point(x1 - back * u - side * v, y1 - back * v + side * u)}`
    + `L${point(x1, y1)}L${point(x1 - back * u + side * v, y1 - back * v - side * u)}`;
}

/**
 * A chart as wide as its parent. `frame({ xs, ys, height, xTicks, yTicks, xLabel, room })`, with xs = [low, high] and
 * ticks as numbers or [number, text], lays out the axes and says whether anything of them changed; `x(value)`,
 * `y(value)` are pixels then, `atX(px)`, `atY(px)` their inverses, and what is drawn belongs into `marks`. `room` is
 * kept free at the right, for labels at the ends of lines.
 */
export function chart(parent) {
  const picture = svg("svg", { role: "img" }, parent), grid = svg("g", {}, picture), marks = svg("g", {}, picture);
  const left = 34, top = 10;
  let [low, high, bottom, ceiling] = [0, 1, 0, 1], right = 10, width = 1, inner = 1, drawn = "";
  const x = (value) => left + ((value - low) / (high - low)) * (width - left - right);
  const y = (value) => top + ((ceiling - value) / (ceiling - bottom)) * inner;
  const pair = (tick) => (Array.isArray(tick) ? tick : [tick, show(tick, 2, true)]);
  const frame = ({ xs, ys, height = 220, xTicks = [], yTicks = [], xLabel = "", room = 10 }) => {
    right = room;
    width = Math.max(180, Math.round(parent.clientWidth));
    [low, high] = xs;
    [bottom, ceiling] = ys;
    inner = height - top - (xLabel ? 38 : 22);
    const now = JSON.stringify([width, xs, ys, height, xTicks, yTicks, xLabel, room]);
    if (now === drawn) return false;
    drawn = now;
    set(picture, { viewBox: `0 0 ${width} ${height}`, height });
    grid.replaceChildren();
    for (const [value, text] of yTicks.map(pair)) {
      const kind = value ? "geo-axis" : "geo-zero";
      svg("line", { class: kind, x1: left, x2: width - right, y1: y(value), y2: y(value) }, grid);
      svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, grid, text);
    }
    xTicks.map(pair).forEach(([value, text], i, all) => {
      const anchor = i === all.length - 1 && x(value) > width - 24 ? "end" : "middle";
      svg("text", { x: x(value), y: top + inner + 16, "text-anchor": anchor }, grid, text);
    });
    if (xLabel) svg("text", { x: x((low + high) / 2), y: height - 4, "text-anchor": "middle" }, grid, xLabel);
    return true;
  };
  const atX = (px) => low + ((px - left) / (width - left - right)) * (high - low);
  const atY = (py) => ceiling - ((py - top) / inner) * (ceiling - bottom);
  return { picture, marks, frame, x, y, atX, atY };
}

const GROUNDS = { light: [255, 255, 255], dark: [20, 24, 30] };

/** Ground, cool for -1 and warm for +1, as red, green and blue: the colours of keys and queries. */
function shades(geo) {
  const style = getComputedStyle(geo);
  const read = (name) => style.getPropertyValue(name).match(/[0-9a-f]{2}/gi).map((part) => parseInt(part, 16));
  return [GROUNDS[geo.dataset.theme], read("--key"), read("--query")];
}

/** A map of numbers as coloured cells: `draw(values, columns)` with values in [-1, 1], row by row. */
export function raster(parent, attributes = {}) {
  const canvas = html("canvas", { role: "img", ...attributes }, parent);
  const draw = (values, columns) => {
    const [ground, cool, warm] = shades(parent.closest(".geo"));
    canvas.width = columns;
    canvas.height = values.length / columns;
    const pen = canvas.getContext("2d"), image = pen.createImageData(canvas.width, canvas.height);
    values.forEach((value, i) => {
      const share = Math.min(Math.abs(value), 1), tone = value < 0 ? cool : warm;
      for (let c = 0; c < 3; c++) image.data[4 * i + c] = ground[c] + share * (tone[c] - ground[c]);
      image.data[4 * i + 3] = 255;
    });
    pen.putImageData(image, 0, 0);
  };
  return { canvas, draw };
}

/**
 * A map with a drawing over it, both in one box with margins for labels: `draw` is the raster's, `fit()` returns the
 * drawing's width and height and the map's left edge and side of a cell, in pixels, and sets the drawing's viewBox.
 */
export function board(parent, { left = 0, bottom = 0 }) {
  const box = html("div", { class: "geo-board", style: `padding: 0 0 ${bottom}px ${left}px` }, parent);
  const { canvas, draw } = raster(box), picture = svg("svg", { "aria-hidden": "true" }, box);
  const fit = (columns, rows) => {
    const width = box.clientWidth, cell = (width - left) / columns, height = cell * rows + bottom;
    set(picture, { viewBox: `0 0 ${width} ${height}` });
    return { width, height, left, cell };
  };
  return { canvas, draw, picture, fit };
}
