// Attention on a circle: tokens are points, the query points somewhere, and the softmax fetches a mean of the points.
import { ask, button, clamp, drag, html, path, say, set, show, slider, svg } from "./common.js";
import { stage } from "./stage.js";
import { handle } from "./draw.js";
import { dot, softmax } from "./algebra.js";

// Computing -----------------------------------------------------------------------------------------------------------

const RADIANS = Math.PI / 180;

/** The point of the unit circle at an angle in degrees. */
export function point(angle) {
  return [Math.cos(angle * RADIANS), Math.sin(angle * RADIANS)];
}

/** The scores q . k_n, the weights softmax(scores / temperature), and the mean of the tokens with these weights. */
export function attend({ query, temperature, tokens }) {
  const q = point(query), keys = tokens.map(point), scores = keys.map((key) => dot(q, key));
  const weights = softmax(scores.map((score) => score / temperature));
  const mean = [0, 1].map((axis) => dot(weights, keys.map((key) => key[axis])));
  return { scores, weights, mean };
}

/** The largest weight and the tokens that have it, counted from 1. */
export function winners(weights) {
  const top = Math.max(...weights);
  return { top, who: weights.flatMap((weight, n) => (weight > top - 5e-4 ? [n + 1] : [])) };
}

/** The state in a sentence, for those who hear the picture. */
export function describe(state) {
  const { scores, weights, mean } = attend(state), each = (values) => values.map((value) => show(value)).join(", ");
  return `query at ${show(state.query, 0)} degrees, temperature ${show(state.temperature)}: scores ${each(scores)}; `
    + `weights ${each(weights)}; the mean is at ${show(mean[0])}, ${show(mean[1])}, `
    + `${show(Math.hypot(...mean))} from the centre`;
}

// Drawing -------------------------------------------------------------------------------------------------------------

const NAMES = ["query", "temperature", "tokens"];
const SETS = [["three", [0, 60, 180]], ["two opposite", [0, 180]],
  ["eight around", [0, 45, 90, 135, 180, -135, -90, -45]], ["a crowd and one", [150, 160, 170, 180, -170, -160, 0]]];
const OUT = 1.24; // radii from the centre to the query's handle
const [COLDEST, HOTTEST] = [0.05, 5];

const CSS = `
.geo .circle .geo-ask { grid-column: 1 / -1; }
.geo .circle .plane { max-width: 360px; margin: 0 auto; width: 100%; }
.geo .circle .geo-dot, .geo .circle text { pointer-events: none; }
.geo .circle svg text.number { fill: var(--ground); font-size: 11px; font-weight: 600; }
.geo .circle { text-align: left; }
.geo .circle .geo-value { color: var(--value); }
.geo .circle svg text.geo-value { fill: var(--value); }
.geo .circle .ring { fill: none; stroke: var(--rule); }
.geo .circle .hull { fill: var(--cool); fill-opacity: 0.08; stroke: var(--cool); stroke-opacity: 0.4; }
.geo .circle .pull { stroke: var(--join); stroke-linecap: round; stroke-opacity: 0.75; }
.geo .circle .bars { display: grid; grid-template-columns: auto 4.2em 1fr 3.4em; gap: 3px 8px; align-items: center;
  font-variant-numeric: tabular-nums; }
.geo .circle .bars .head { font-size: 13px; color: var(--soft); }
.geo .circle .bars .digits { text-align: right; }
.geo .circle .track { height: 14px; background: var(--panel); border-radius: 3px; overflow: hidden; }
.geo .circle .track div { height: 100%; background: var(--join); }
.geo .circle text.geo-value { paint-order: stroke; stroke: var(--ground); stroke-width: 4px; stroke-linejoin: round; }
.geo .circle .sets { display: flex; flex-wrap: wrap; gap: 6px; }
.geo .circle .side { display: grid; gap: 12px; align-content: start; }`;

/** Tokens, query and mean on the circle; `onQuery(angle)` and `onToken(n, angle)` hear of hands. */
function plane(parent, { onQuery, onToken }) {
  const picture = svg("svg", { role: "img", class: "plane" }, parent);
  const ring = svg("circle", { class: "ring" }, picture), hull = svg("path", { class: "hull" }, picture);
  const pulls = svg("g", {}, picture), query = svg("path", { class: "geo-vector geo-warm" }, picture);
  const dots = svg("g", {}, picture), tip = handle(picture, "warm", 7);
  const mean = svg("circle", { class: "geo-dot geo-value", r: 7 }, picture);
  const label = svg("text", { class: "geo-warm", "text-anchor": "middle" }, picture, "query");
  const found = svg("text", { class: "geo-value", "text-anchor": "middle" }, picture, "mean");
  let size = 1, tokens = [];

  const at = ([x, y], by = 1) => [size / 2 + 0.36 * size * by * x, size / 2 - 0.36 * size * by * y];
  const angle = (x, y) => Math.round(Math.atan2(size / 2 - y, x - size / 2) / RADIANS);
  drag(tip.reach, { start() {}, move: (x, y) => onQuery(angle(x, y)) });

  const grow = (count) => {
    while (tokens.length > count) {
      const last = tokens.pop();
      [last.dot, last.reach, last.text, last.pull].forEach((part) => part.remove());
    }
    while (tokens.length < count) {
      const n = tokens.length, knob = handle(dots, "cool", 9);
      const text = svg("text", { class: "number", "text-anchor": "middle" }, dots, String(n + 1));
      const token = { ...knob, text, pull: svg("line", { class: "pull" }, pulls) };
      drag(token.reach, { start() {}, move: (x, y) => onToken(n, angle(x, y)) });
      tokens.push(token);
    }
  };

  return (state, { weights, mean: where }) => {
    size = Math.max(160, picture.getBoundingClientRect().width);
    const words = `Tokens on a circle: ${describe(state)}`;
    set(picture, { viewBox: `0 0 ${size} ${size}`, height: size, "aria-label": words });
    set(ring, { cx: size / 2, cy: size / 2, r: 0.36 * size });
    grow(state.tokens.length);
    const [mx, my] = at(where);
    state.tokens.forEach((each, n) => {
      const { place, text, pull } = tokens[n], [x, y] = at(point(each));
      place(x, y);
      set(text, { x: x.toFixed(1), y: (y + 4).toFixed(1) });
      const width = (9 * weights[n]).toFixed(2);
      set(pull, { x1: x.toFixed(1), y1: y.toFixed(1), x2: mx.toFixed(1), y2: my.toFixed(1), "stroke-width": width });
    });
    const round = [...state.tokens].sort((a, b) => a - b).map((each) => at(point(each)));
    set(hull, { d: `${path(round.map(([x]) => x), round.map(([, y]) => y))}Z` });
    const [qx, qy] = at(point(state.query), OUT), up = state.query >= 0;
    set(query, { d: path([size / 2, qx], [size / 2, qy]) });
    tip.place(qx, qy);
    set(label, { x: qx.toFixed(1), y: (qy + (up ? -13 : 22)).toFixed(1) }); // outside the circle, where no mean can be
    set(mean, { cx: mx.toFixed(1), cy: my.toFixed(1) });
    // Beside the mean, on the side where the lines to the near tokens are not, or where the nearest room is.
    const lean = (sum, each, n) => point(each).map((v, c) => sum[c] + weights[n] ** 2 * (v - where[c]));
    const pull = state.tokens.reduce(lean, [0, 0]);
    const start = Math.hypot(...pull) > 1e-3 ? Math.atan2(-pull[1], -pull[0]) : -Math.PI / 2;
    const spots = [0, 1, -1, 2, -2, 3, -3, 4].map((k) => start + (k * Math.PI) / 4)
      .map((way) => [mx + 30 * Math.cos(way), my - 22 * Math.sin(way) + 4]);
    const dots = [...state.tokens.map((each) => at(point(each))), [qx, qy]];
    const gap = (a, b) => Math.max(0, Math.abs(a) - b), [lx, ly] = [qx, qy + (up ? -13 : 22)];
    const free = ([x, y]) => (Math.abs(lx - x) > 40 || Math.abs(ly - y) > 14)
      && dots.every(([a, b]) => Math.hypot(gap(a - x, 18), gap(b - y + 4, 6)) > 10);
    const [x, y] = spots.find(free) ?? spots[0];
    set(found, { x: x.toFixed(1), y: y.toFixed(1) });
  };
}

/** A row for each token: its number, its score, its weight as a bar and as a number. */
function table(parent) {
  const grid = html("div", { class: "bars", role: "group", "aria-hidden": "true" }, parent);
  let rows = [];
  return ({ scores, weights }) => {
    if (rows.length !== weights.length) {
      grid.replaceChildren();
      ["token", "score", "weight", ""].forEach((word) => html("div", { class: "head" }, grid, word));
      rows = weights.map((_, n) => {
        html("div", { class: "geo-cool" }, grid, String(n + 1));
        const score = html("div", { class: "digits" }, grid), track = html("div", { class: "track" }, grid);
        return { score, bar: html("div", {}, track), weight: html("div", { class: "digits weight" }, grid) };
      });
    }
    rows.forEach(({ score, bar, weight }, n) => {
      score.textContent = show(scores[n]);
      bar.style.width = `${(100 * weights[n]).toFixed(2)}%`;
      weight.textContent = show(weights[n], 3);
    });
  };
}

// Putting it together -------------------------------------------------------------------------------------------------

function render({ model, el }) {
  const place = stage({ model, el }, NAMES, CSS), { change } = place;
  const root = html("div", { class: "circle geo-columns", role: "group", "aria-label": "Attention on a circle" },
    place.root);
  ask(root, "Drag the temperature down, then up. Where does the mean go?");
  const left = html("div", { class: "geo-stay" }, root), right = html("div", { class: "side" }, root);
  const draw = plane(left, {
    onQuery: (query) => change({ query }),
    onToken: (n, angle) => change({ tokens: place.read().tokens.map((each, i) => (i === n ? angle : each)) }),
  });
  const sentence = html("p", { class: "geo-say" }, right), second = html("p", {}, right), list = table(right);

  const controls = html("div", { class: "geo-panel" }, right);
  const query = slider(controls, { label: "Query’s angle", min: -180, max: 180, step: 1, tone: "warm",
    onInput: (value) => change({ query: value }) }).update;
  // Equal ways of the hand are equal factors of the temperature.
  const span = Math.log(HOTTEST / COLDEST);
  const temperature = slider(controls, { label: "Temperature", min: 0, max: 1, step: 0.005, tone: "text",
    onInput(way) {
      const exact = COLDEST * Math.exp(span * way);
      change({ temperature: clamp(Number(exact.toPrecision(3)), COLDEST, HOTTEST) });
    } }).update;
  const sets = html("div", { class: "sets", role: "group", "aria-label": "Tokens" }, right);
  const buttons = SETS.map(([name, tokens]) => [tokens, button(sets, name, () => change({ tokens: [...tokens] }))]);

  place.start((state) => {
    const found = attend(state), { top, who } = winners(found.weights);
    query(state.query, `${show(state.query, 0)}°`);
    temperature(Math.log(state.temperature / COLDEST) / span, show(state.temperature, 2));
    buttons.forEach(([tokens, each]) => each.update(String(tokens) === String(state.tokens)));
    say(sentence, "Largest weight ", ["join", show(top, 3)], who.length > 1 ? " on tokens " : " on token ",
      ["cool", who.join(" and ")], ".");
    say(second, "The mean is ", ["value", show(Math.hypot(...found.mean), 3)], " from the centre.");
    list(found);
    draw(state, found);
    place.speak(describe(state));
  }, { largest_weight: (state) => winners(attend(state).weights).top });
  return place.close;
}

export default { render };
