// Locality focusing: a Gaussian of the distance multiplies the weights after the softmax, and what is far is lost.
import { ask, choice, clamp, drag, html, more, path, say, set, show, slider, svg } from "./common.js";
import { stage } from "./stage.js";
import { board, handle } from "./draw.js";
import { apply, dot, softmax } from "./algebra.js";

// Computing -----------------------------------------------------------------------------------------------------------

const SIDE = 8; // patches along each side of the image
const PATCHES = Array.from({ length: SIDE * SIDE }, (_, i) => [Math.floor(i / SIDE), i % SIDE]);
const GAIN = 3;

/** The content of each patch, one number from -1 to 1, row by row. */
export function content(pattern) {
  const blob = (row, column) => Math.exp(-(row * row + column * column) / 4);
  return PATCHES.map(([row, column]) => {
    if (pattern === "stripes") return Math.floor(column / 2) % 2 ? -1 : 1;
    if (pattern === "blobs") return 2 * Math.max(blob(row - 1.5, column - 1.5), blob(row - 5.5, column - 5.5)) - 1;
    return 0;
  });
}

/** S = 3 c_m c_n, the scores of the query's row: patches that look like it have high ones. */
export function scores({ pattern, row, column }) {
  const c = content(pattern), own = c[row * SIDE + column];
  return c.map((other) => GAIN * own * other);
}

/** The two directions of the ellipse in (row, column), for an angle in degrees, counter-clockwise from the right. */
export function directions(angle) {
  const [c, s] = [Math.cos((angle * Math.PI) / 180), Math.sin((angle * Math.PI) / 180)];
  return [[-s, c], [-c, -s]];
}

/** A, symmetric and positive definite: its unit ellipse has these half axes. */
export function precision({ along, across, angle }) {
  const [e, f] = directions(angle);
  return [0, 1].map((i) => [0, 1].map((j) => (e[i] * e[j]) / along ** 2 + (f[i] * f[j]) / across ** 2));
}

/** log Omega = -|p_m - p_n|_A^2 / (2 sigma^2) for the query at p_m = (row, column). */
export function logAttenuation(state) {
  const a = precision(state);
  return PATCHES.map(([row, column]) => {
    const far = [row - state.row, column - state.column];
    return -dot(far, apply(a, far)) / (2 * state.sigma ** 2);
  });
}

/** log of the sum of exp(x_i). */
export function logSumExp(values) {
  const top = Math.max(...values);
  return top + Math.log(values.reduce((sum, value) => sum + Math.exp(value - top), 0));
}

/** The query's weights before and after, what is left of their sum; the same by one softmax and its row's factor. */
export function focus(state) {
  const plain = scores(state), log = logAttenuation(state), before = softmax(plain);
  const gated = plain.map((score, n) => score + log[n]), factor = Math.exp(logSumExp(gated) - logSumExp(plain));
  const after = before.map((weight, n) => weight * Math.exp(log[n]));
  return { before, after, left: after.reduce((sum, w) => sum + w, 0), factor,
    fused: softmax(gated).map((w) => factor * w) };
}

/** The state in a sentence, for those who hear the picture. */
export function describe(state) {
  const { left } = focus(state), { row, column, sigma, along, across, angle } = state;
  return `query at row ${row}, column ${column}: ${show(left)} of its weight is left, ${show(1 - left)} is missing; `
    + `the Gaussian has half axes of ${show(sigma * along)} and ${show(sigma * across)} patches, the first at `
    + `${show(angle, 1, true)} degrees`;
}

// Drawing -------------------------------------------------------------------------------------------------------------

const NAMES = ["row", "column", "sigma", "along", "across", "angle", "pattern"];
const PATTERNS = [["blobs", "two blobs"], ["stripes", "stripes"], ["flat", "flat"]];
const [SHORT, LONG] = [0.25, 4]; // what a half axis of A may be

const CSS = `
.geo .locality { display: grid; gap: 12px; padding: 14px 16px 18px; }
.geo .locality > div { min-width: 0; }
.geo .locality .maps { display: grid; grid-template-columns: repeat(2, minmax(0, 300px)); gap: 6px 22px;
  justify-content: space-evenly; }
.geo .locality .maps p { font-weight: 600; margin-bottom: 4px; }
.geo .locality .geo-board svg { overflow: hidden; }
.geo .locality .surface { fill: transparent; cursor: pointer; }
.geo .locality .grid { stroke: var(--line); fill: none; }
.geo .locality .here { stroke: var(--text); stroke-width: 2; fill: none; }
.geo .locality .gauss { stroke: var(--cool); stroke-width: 2; fill: none; }
.geo .locality .arm { stroke: var(--cool); stroke-width: 1; stroke-dasharray: 3 3; }
.geo .locality .scale { display: inline-block; width: 90px; height: 10px; margin: 0 6px; border: 1px solid var(--line);
  background: linear-gradient(to right, var(--ground), var(--warm)); }
.geo .locality .whole { height: 18px; margin-top: 6px; border: 1px solid var(--rule); border-radius: 4px;
  overflow: hidden; background: repeating-linear-gradient(135deg, var(--ground) 0 5px, var(--rule) 5px 6px); }
.geo .locality .rest { height: 100%; background: var(--join); }
.geo .locality output { white-space: nowrap; }
@container (max-width: 560px) {
  .geo .locality { padding: 10px 8px 14px; gap: 10px; }
  .geo .locality .maps { gap: 6px 10px; }
}`;

/** A map of the query's weights over the image, with the query's patch and the Gaussian's ellipse. */
function weightMap(parent, name, { onPatch, onAxis } = {}) {
  html("p", {}, parent, name);
  const { canvas, draw, picture, fit } = board(parent, {}), lines = svg("path", { class: "grid" }, picture);
  const surface = onPatch && svg("rect", { class: "surface", "data-drag": "pad" }, picture);
  const gauss = svg("path", { class: "gauss" }, picture), here = svg("rect", { class: "here" }, picture);
  const arms = onAxis ? [0, 1].map(() => svg("line", { class: "arm" }, picture)) : [];
  const tips = arms.map(() => handle(picture, "cool", 5)), centre = onPatch && handle(picture, "text", 4);
  let cell = 1, now = null;

  const middle = () => [(now.column + 0.5) * cell, (now.row + 0.5) * cell];
  if (onPatch) {
    const follow = (x, y) => onPatch(Math.floor(y / cell), Math.floor(x / cell));
    drag(surface, { start: follow, move: follow });
    drag(centre.reach, { start() {}, move: follow });
  }
  tips.forEach((tip, i) => {
    let begun = 1; // the half axis that a pull of one pixel stands for
    drag(tip.reach, {
      start() { begun = [now.along, now.across][i] / Math.hypot(...away(i)); },
      move(x, y) {
        const [cx, cy] = middle(), turn = (Math.atan2(cy - y, x - cx) * 180) / Math.PI - 90 * i;
        onAxis(i, begun * Math.hypot(x - cx, y - cy), turn);
      },
    });
  });
  /** From the middle to the handle of an axis: to the ellipse, on the roomier side, within the map, off the middle. */
  const away = (i) => {
    const [down, right] = directions(now.angle)[i], edge = SIDE * cell - 8;
    const room = [1, -1].map((sign) => Math.min(...middle().map((at, axis) => {
      const step = sign * (axis ? down : right);
      return step > 1e-9 ? (edge - at) / step : step < -1e-9 ? (8 - at) / step : Infinity;
    })));
    const sign = room[1] > room[0] + 1 ? -1 : 1, most = Math.max(...room);
    const length = clamp(now.sigma * [now.along, now.across][i] * cell, 24, Math.max(24, most));
    return [sign * right * length, sign * down * length];
  };

  return (state, size, values, top, words) => {
    now = state;
    if (Math.abs(cell - size / SIDE) > 1e-6) {
      ({ cell } = fit(SIDE, SIDE));
      const ways = Array.from({ length: SIDE + 1 }, (_, i) => (i * cell).toFixed(1));
      set(lines, { d: ways.map((at) => `M0 ${at}H${size}M${at} 0V${size}`).join("") });
      if (surface) set(surface, { x: 0, y: 0, width: size, height: size });
    }
    draw(values.map((value) => value / top), SIDE);
    const [cx, cy] = middle(), [e, f] = directions(state.angle), xs = [], ys = [];
    for (let i = 0; i <= 60; i++) {
      const a = state.sigma * state.along * cell * Math.cos((i * Math.PI) / 30);
      const b = state.sigma * state.across * cell * Math.sin((i * Math.PI) / 30);
      xs.push(cx + a * e[1] + b * f[1]);
      ys.push(cy + a * e[0] + b * f[0]);
    }
    set(gauss, { d: path(xs, ys) });
    set(here, { x: state.column * cell + 1, y: state.row * cell + 1, width: cell - 2, height: cell - 2 });
    tips.forEach((tip, i) => {
      const [dx, dy] = away(i);
      tip.place(cx + dx, cy + dy);
      set(arms[i], { x1: cx.toFixed(1), y1: cy.toFixed(1), x2: (cx + dx).toFixed(1), y2: (cy + dy).toFixed(1) });
    });
    centre?.place(cx, cy);
    set(canvas, { "aria-label": `${name} on ${SIDE} by ${SIDE} patches, ${words}: ${describe(state)}` });
  };
}

// Putting it together -------------------------------------------------------------------------------------------------

function render({ model, el }) {
  const place = stage({ model, el }, NAMES, CSS);
  const { change } = place;
  const root = html("div", { class: "locality", role: "group", "aria-label": "Locality focusing" }, place.root);

  ask(root, "Draw σ to the left. Where does the weight of far patches go?");
  const top = html("div", {}, root), first = html("p", { class: "geo-say" }, top);
  const whole = html("div", { class: "whole", "aria-hidden": "true" }, top);
  const rest = html("div", { class: "rest" }, whole);
  const maps = html("div", { class: "maps geo-stay" }, root);
  const [left, right] = [html("div", {}, maps), html("div", {}, maps)];
  const drawBefore = weightMap(left, "Before: softmax(S)", {
    onPatch: (row, column) => change({ row: clamp(row, 0, SIDE - 1), column: clamp(column, 0, SIDE - 1) }),
    onAxis(i, length, turn) {
      const angle = Math.round(turn - 180 * Math.round(turn / 180));
      change({ [i ? "across" : "along"]: clamp(Math.round(20 * length) / 20, SHORT, LONG), angle });
    },
  });
  const drawAfter = weightMap(right, "After: times Ω");
  const key = html("p", { class: "geo-note" }, root), most = html("span", {}, null);
  key.append("0", html("span", { class: "scale" }), most);
  const second = html("p", {}, root);

  const controls = html("div", { class: "geo-panel geo-controls" }, root);
  const control = (label, name, tone, min, max, step, parent = controls) =>
    slider(parent, { label, min, max, step, tone, onInput: (value) => change({ [name]: value }) }).update;
  const sigma = control("Width σ", "sigma", "cool", 0.25, 8, 0.05);
  const fold = more(root, "By numbers: what the hand drags in the left map");
  const along = control("Axis 1 of A", "along", "cool", SHORT, LONG, 0.05, fold);
  const across = control("Axis 2 of A", "across", "cool", SHORT, LONG, 0.05, fold);
  const angle = control("Angle of A", "angle", "cool", -90, 90, 1, fold);
  const row = control("Query’s row", "row", "text", 0, SIDE - 1, 1, fold);
  const column = control("Query’s column", "column", "text", 0, SIDE - 1, 1, fold);
  const pattern = choice(controls, { label: "Image", options: PATTERNS,
    onInput: (value) => change({ pattern: value }) });

  place.start((state) => {
    const size = left.clientWidth, { before, after, left: kept, factor } = focus(state), highest = Math.max(...before);
    sigma(state.sigma, show(state.sigma, 2, true));
    along(state.along, show(state.along));
    across(state.across, show(state.across));
    angle(state.angle, `${show(state.angle, 1, true)}°`);
    row(state.row, String(state.row));
    column(state.column, String(state.column));
    pattern.update(state.pattern);
    say(first, "Of the query’s weight ", ["join", show(kept, 3)], " is left, ", ["text", show(1 - kept, 3)],
      " is missing: lost, not handed to others.");
    rest.style.width = `${(100 * kept).toFixed(2)}%`;
    drawBefore(state, size, before, highest, `largest ${show(highest, 3)}, sum 1`);
    drawAfter(state, size, after, highest, `largest ${show(Math.max(...after), 3)}, sum ${show(kept, 3)}`);
    most.textContent = `${show(highest, 3)} in both maps. Ellipse: where Ω = e^(−1/2) = 0.61.`;
    say(second, "Fused: one softmax(S + log Ω), its row times e^(lse(S + log Ω) − lse(S)) = ",
      ["join", show(factor, 3)], ", is the same.");
    place.speak(describe(state));
  });
  return place.close;
}

export default { render };
