// What a page does with a sheet of 8 x 8 cells and the model that reads it: strokes, answers, arrows, counts.
import { clamp, set, show, svg } from "./common.js";
import { engine } from "./network.js";

export const SIDE = 8; // cells along a side of the sheet
export const C = 24; // a cell in the drawings' own units
export const TURNED = ["turn", "alone", "scale", "focus", "rest", "slope"];
export const METHODS = [["none", "none: no positions"], ["sinusoidal", "sinusoidal, added"],
  ["learned", "learned, added"],
  ["rope-axial", "RoPE, axial"], ["rope-mixed", "RoPE-Mixed"], ["liere-8", "LieRE, blocks of 8"], ["alibi", "ALiBi"],
  ["riemannformer", "RiemannFormer"], ["riemannformer+lf", "RiemannFormer, locality focusing"]];

/** What of the state decides where tokens stand and how they are carried. */
export function settings(state) {
  return Object.fromEntries(["row", "column", "pair", ...TURNED].map((name) => [name, state[name]]));
}

/** Answers as shares of one. */
export function shares(logits) {
  const top = Math.max(...logits), each = Array.from(logits, (x) => Math.exp(x - top));
  const total = each.reduce((a, b) => a + b, 0);
  return each.map((x) => x / total);
}

/** A pair of features (1, 0) carried from each cell to the query: T_q^-T T_k^-1 in that pair, as [right, up]. */
export function carry({ map }, tokens, dim, query, pair) {
  if (!map) return Array.from({ length: tokens }, () => [1, 0]);
  const { all, size } = map, first = (2 * pair) % dim, inside = first % size, block = first - inside;
  const entry = (t, i, j) => all[t * dim * size + (block + i) * size + j];
  return Array.from({ length: tokens }, (_, t) => [inside, inside + 1].map((out) => {
    let sum = 0;
    for (let i = 0; i < size; i++) sum += entry(query, i, out) * entry(t, i, inside);
    return sum;
  }));
}

/** Drawing commands of an arrow from (x, y) - (a, b) to (x, y) + (a, b). */
export function needle(x, y, a, b) {
  const half = Math.hypot(a, b), back = Math.min(6, half) / (half || 1);
  const point = (u, v) => `${u.toFixed(1)} ${v.toFixed(1)}`, [tipX, tipY] = [x + a, y + b];
  const side = (way) => point(tipX - back * (a + (way * b) / 2), tipY - back * (b - (way * a) / 2));
  return half < 1e-6 ? "" : `M${point(x - a, y - b)}L${point(tipX, tipY)}M${side(1)}L${point(tipX, tipY)}L${side(-1)}`;
}

/** What there is to turn in a model. */
export function turnable({ embed, placed, width, dim }) {
  const has = (name) => placed.some((one) => one[name]), sines = embed.some((each) => each.frequencies);
  return { turn: has("turn") || has("blocks") || sines, alone: has("turn") || sines, rest: has("blocks"),
    scale: placed.some((one) => one.stretch?.flat(3).some((x) => x !== 0)), focus: has("sigma"), slope: has("slopes"),
    carries: has("turn") || has("blocks"), pairs: (sines ? width : dim) / 2 };
}

/** The mean of RiemannFormer's learned scales. */
export function meanScale({ placed }) {
  const steps = placed.flatMap((one) => one.stretch?.flat(3) ?? []).filter((x) => x !== 0);
  return steps.length ? Math.exp((2 * steps.reduce((a, b) => a + b, 0)) / steps.length) : 1;
}

/** A stroke's cover of each cell, 0 to 16: dots of a pen on a grid four times as fine, as the digits were scanned. */
export function cover(dots) {
  const fine = new Set(), radius = 1.9;
  for (const [x, y] of dots) {
    for (let i = Math.floor(4 * y - radius); i <= 4 * y + radius; i++) {
      for (let j = Math.floor(4 * x - radius); j <= 4 * x + radius; j++) {
        const inside = Math.min(i, j) >= 0 && Math.max(i, j) < 4 * SIDE;
        if (inside && Math.hypot(i + 0.5 - 4 * y, j + 0.5 - 4 * x) <= radius) fine.add(i * 4 * SIDE + j);
      }
    }
  }
  const cells = Array(SIDE * SIDE).fill(0);
  for (const at of fine) cells[Math.floor(at / (16 * SIDE)) * SIDE + Math.floor((at % (4 * SIDE)) / 4)] += 1;
  return cells;
}

/** Counts right answers in a worker, or in slices where none can be made: `ask(job, tell)` drops what was asked. */
export function counter() {
  let worker = null, stop = () => {}, number = 0, told = () => {}, known = "";
  try {
    const text = `const { read, count } = (${engine})(); let net, digits, stop = () => {};
      onmessage = ({ data: { number, model, all, at, shuffled } }) => { stop(); if (model) { net = read(model); }
      digits = all ?? digits; stop = count(net, digits, at, shuffled, 20, (t) => postMessage({ number, ...t })); };`;
    const url = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
    worker = new Worker(url);
    URL.revokeObjectURL(url);
    worker.onmessage = ({ data }) => { if (data.number === number) told(data); };
  } catch { /* a page that forbids workers */ }
  return {
    ask(method, model, net, digits, at, shuffled, tell) {
      number += 1;
      told = tell;
      if (!worker) { stop(); stop = count(net, digits, at, shuffled, 1, tell); return; }
      worker.postMessage({ number, model: known === method ? null : model, all: known ? null : digits, at, shuffled });
      known = method;
    },
    close() { stop(); worker?.terminate(); },
  };
}

/** 64 cells of a sheet: `paint(values)` with values in [-1, 1], warm above 0 and cool below, or all in ink. */
export function cells(parent, tone) {
  const all = Array.from({ length: SIDE * SIDE }, (_, i) => svg("rect", { class: tone, width: C, height: C,
    x: (i % SIDE) * C, y: Math.floor(i / SIDE) * C }, parent));
  return (values) => all.forEach((cell, i) => set(cell, { "fill-opacity": Math.abs(values[i]).toFixed(3),
    class: values[i] < 0 ? "cool" : tone }));
}

/** Ten bars for ten answers. */
export function bars(parent) {
  const picture = svg("svg", { role: "img" }, parent), rows = Array.from({ length: 10 }, (_, i) => {
    svg("text", { x: 0, y: 22 * i + 16, class: "geo-text" }, picture, String(i));
    const bar = svg("rect", { x: 14, y: 22 * i + 3, height: 16, rx: 2 }, picture);
    return [bar, svg("text", { y: 22 * i + 16 }, picture)];
  });
  return (answers, words) => {
    const width = Math.max(90, parent.clientWidth), best = Math.max(...answers);
    set(picture, { viewBox: `0 0 ${width} 222`, height: 222, "aria-label": words });
    rows.forEach(([bar, text], i) => {
      const long = answers[i] * (width - 58);
      set(bar, { width: Math.max(1, long).toFixed(1), class: answers[i] === best ? "bar best" : "bar" });
      set(text, { x: (20 + long).toFixed(1) });
      text.textContent = `${show(100 * answers[i], 0)} %`;
    });
  };
}

/**
 * The sheet under the keys: arrows shift it, or with `drawing()` move a place in the grid, where space sets the pen
 * down and lifts it. `shift(down, right)` moves the sheet, `begin()` starts a stroke, `ink(place)` draws to the middle
 * of a cell, `tell(text)` speaks.
 */
export function keys(element, cursor, { drawing, shift, begin, ink, tell }) {
  const ways = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  let at = [3, 3], down = false;
  const place = () => set(cursor, { x: at[1] * C + 1, y: at[0] * C + 1, width: C - 2, height: C - 2,
    class: down ? "cursor down" : "cursor" });
  element.addEventListener("blur", () => { down = false; place(); });
  element.addEventListener("keydown", (event) => {
    const way = ways[event.key];
    if (!way && !(event.key === " " && drawing())) return;
    event.preventDefault();
    if (!drawing()) { shift(...way); return; }
    if (way) at = at.map((from, i) => clamp(from + way[i], 0, SIDE - 1));
    else if ((down = !down)) begin();
    if (down) ink([at[1] + 0.5, at[0] + 0.5]);
    place();
    tell(`Row ${at[0]}, column ${at[1]}, pen ${down ? "down" : "up"}`);
  });
  place();
}
