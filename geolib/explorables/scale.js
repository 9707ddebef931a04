// One scale s and one row of sixteen attention weights: on both sides, or up on one side and down on the other.
import { ask, choice, clamp, drag, html, say, set, show, slider, svg } from "./common.js";
import { stage } from "./stage.js";
import { chart, handle } from "./draw.js";
import { wager } from "./guess.js";
import { softmax } from "./algebra.js";

// Computing -----------------------------------------------------------------------------------------------------------

const TOKENS = 16;

/** The power of s that multiplies each key's score: (m+n)/2 + shift with s on both sides, (m-n)/2 with s apart. */
function exponents({ query, shift, sides }) {
  return Array.from({ length: TOKENS }, (_, n) => (sides === "both" ? (query + n) / 2 + shift : (query - n) / 2));
}

/** What each key's score is multiplied by. */
export function factors(state) {
  return exponents(state).map((exponent) => state.scale ** exponent);
}

/** The scores 3 cos(2.4 n), the same for every query: peaks of nearly one height, near and far. */
export function plainScores() {
  return Array.from({ length: TOKENS }, (_, n) => 3 * Math.cos(2.4 * n));
}

/** The row: scores and weights without the scale and with it. */
export function row(state) {
  const scores = plainScores(), factor = factors(state), scaled = scores.map((score, n) => score * factor[n]);
  return { scores, scaled, before: softmax(scores), after: softmax(scaled) };
}

/** The scale that gives key n a wanted score, within what the slider allows; the present one where no scale does. */
export function scaleFor(state, n, wanted) {
  const exponent = exponents(state)[n], ratio = wanted / plainScores()[n];
  if (!(ratio > 0) || Math.abs(exponent) < 0.4) return state.scale;
  return clamp(Math.round(100 * ratio ** (1 / exponent)) / 100, 0.7, 1.3);
}

/** The key whose bar has the dot to pull it by: of the high bars, the one that the scale moves most. */
export function gripped(state) {
  const moved = exponents(state).map(Math.abs), scores = plainScores();
  return scores.reduce((best, score, n) => (score > 2.5 && moved[n] > (moved[best] ?? 0) ? n : best), -1);
}

/** e to the entropy of weights: as many tokens as would share such a row evenly. */
export function cover(weights) {
  return Math.exp(weights.reduce((sum, weight) => sum - (weight > 0 ? weight * Math.log(weight) : 0), 0));
}

/** The next of 1, 2, 5, 10, 20, ... that is no smaller. */
function rounded(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 5, 10].find((step) => step * power >= value * (1 - 1e-12));
}

/** A factor in words: two decimals, or two digits where these would show nothing. */
function times(value) {
  if (value >= 1e4 || value < 1e-3) return value.toExponential(1).replace("e+", "e").replace("-", "\u2212");
  return value < 0.095 ? String(Number(value.toPrecision(2))) : show(value, value < 100 ? 2 : 0);
}

/** The state in a sentence, for those who hear the picture. */
export function describe(state) {
  const factor = factors(state), { before, after } = row(state);
  const how = state.sides === "both" ? "on both sides" : "up on the query, down on the keys";
  return `s = ${show(state.scale, 2)} ${how}, query at ${state.query + state.shift}: scores times ${times(factor[0])} `
    + `at key ${state.shift} and ${times(factor[TOKENS - 1])} at key ${state.shift + TOKENS - 1}, weights cover `
    + `${show(cover(before), 1)} tokens without the scale and ${show(cover(after), 1)} with it`;
}

// Drawing -------------------------------------------------------------------------------------------------------------

const NAMES = ["scale", "query", "shift", "sides"];
const SIDES = [["both", "both sides: s^((m+n)/2)"], ["apart", "apart: s^((m−n)/2)"]];

const CSS = `
.geo .scale { display: grid; gap: 12px; padding: 14px 16px 18px; }
.geo .scale .geo-columns { padding: 0; }
.geo .scale .geo-columns > div { min-width: 0; }
.geo .scale .before { fill: none; stroke: var(--soft); stroke-width: 1.2; }
.geo .scale .after { fill: var(--join); stroke: none; opacity: 0.75; }
.geo .scale .pull { cursor: ns-resize; } .geo .scale .pull .after { touch-action: none; }
.geo .scale .even { stroke: var(--text); stroke-dasharray: 3 3; }
@container (max-width: 560px) {
  .geo .scale { padding: 10px 8px 14px; }
  .geo .scale .geo-columns { grid-template-columns: minmax(0, 1fr); }
}`;

/** Bars without the scale as outlines, with it filled, over the keys. */
function bars(parent, what, onPull) {
  const { picture, marks, frame, x, y, atX, atY } = chart(parent), after = svg("path", { class: "after" }, marks);
  const before = svg("path", { class: "before" }, marks), even = svg("path", { class: "even" }, marks);
  let grip = null, shown = null;
  if (onPull) {
    let held = null; // a bar
    set(picture, { "data-drag": "", class: "pull" });
    const move = (px, py) => onPull(held, atY(py));
    drag(picture, { start(px) { held = clamp(Math.round(atX(px)), 0, TOKENS - 1); }, move });
    grip = handle(picture, "join");
    drag(grip.reach, { start() { held = gripped(shown); }, move });
    grip.reach.addEventListener("pointerdown", (event) => event.stopPropagation()); // else the picture takes it too
  }
  return (state, ys, yTicks, one, two, level) => {
    shown = state;
    const xTicks = [0, 5, 10, 15].map((n) => [n, String(n + state.shift)]);
    frame({ xs: [-0.6, TOKENS - 0.4], ys, height: 176, yTicks, xTicks, xLabel: "position of the key" });
    const half = 0.36 * (x(1) - x(0)), base = y(0), inside = (value) => y(clamp(value, ...ys));
    const bar = (value, n) => `M${(x(n) - half).toFixed(1)} ${base.toFixed(1)}V${inside(value).toFixed(1)}`
      + `h${(2 * half).toFixed(1)}V${base.toFixed(1)}z`;
    set(before, { d: one.map(bar).join("") });
    set(after, { d: two.map(bar).join("") });
    const n = gripped(state);
    grip?.place(x(n), inside(two[n]));
    set(even, { d: level ? `M${x(-0.6)} ${y(level)}H${x(TOKENS - 0.4)}` : "" });
    set(picture, { "aria-label": `Bars of the row’s ${what} over the keys, without and with the scale: `
      + describe(state) });
  };
}

function render({ model, el }) {
  const place = stage({ model, el }, NAMES, CSS);
  const root = html("div", { class: "scale", role: "group", "aria-label": "One scale, one row" }, place.root);
  ask(root, "Move the shift. Which of the two choices lets the weights change with it?");
  const bet = wager(root, [["both", "Both sides"], ["apart", "Apart"]]);
  const move = (name) => (value) => place.change({ [name]: value });

  const controls = html("div", { class: "geo-panel geo-controls" }, root);
  const scale = slider(controls, { label: "Scale s", min: 70, step: 1, tone: "join",
    onInput: (percent) => place.change({ scale: percent / 100 }) });
  const query = slider(controls, { label: "Query position m", min: 0, step: 1, tone: "warm", onInput: move("query") });
  const shift = slider(controls, { label: "Shift of all positions", min: 0, step: 1, onInput: move("shift") });
  const sides = choice(controls, { label: "Where s stands", options: SIDES, onInput: move("sides") });

  const columns = html("div", { class: "geo-columns" }, root);
  const [left, right] = [html("div", {}, columns), html("div", {}, columns)];
  const first = html("p", { class: "geo-say" }, left), drawScores = bars(left, "scores", (n, wanted) =>
    place.change({ scale: scaleFor(place.read(), n, wanted) }));
  const second = html("p", { class: "geo-say" }, right), drawWeights = bars(right, "weights");
  const answer = html("p", { class: "geo-note" }, root);
  html("p", { class: "geo-note" }, root, "Outline: without s. Filled: with s; pull the dot, or a bar of the scores. "
    + "Dashed: all sixteen alike. “Cover”: e to the entropy, as many tokens as would share the row evenly.");

  let held = false, axes = {}; // the axes stay while a hand holds anything; what leaves them ends at their edge
  const draw = (state) => {
    bet.update(Math.abs(state.shift - bet.since(state.shift)) >= 3, "both");
    answer.textContent = bet.open ? "On both sides a shift by t multiplies every score by s^t. Apart it changes none."
      : "";
    scale.update(Math.round(100 * state.scale), show(state.scale, 2), 130);
    query.update(state.query, String(state.query + state.shift), TOKENS - 1);
    shift.update(state.shift, String(state.shift), 64);
    sides.update(state.sides);
    const { scores, scaled, before, after } = row(state), factor = factors(state);
    say(first, "Scores ×\u00a0", ["join", times(factor[0])], " at the first key, ×\u00a0",
      ["join", times(factor.at(-1))], " at the last.");
    const [old, now] = [cover(before), cover(after)];
    const verdict = Math.abs(now - old) < 0.05 ? "no change." : now > old ? "flatter." : "sharper.";
    say(second, "Weights cover ", ["soft", show(old, 1)], " → ", ["join", show(now, 1)], ` tokens: ${verdict}`);
    if (!held) axes = { top: rounded(Math.max(5, ...scaled.map(Math.abs))),
      ceiling: Math.ceil(10 * Math.max(...before, ...after)) / 10 };
    const { top, ceiling } = axes; // a longer number than 1000 has no room
    drawScores(state, [-top, top], top < 1e4 ? [-top, 0, top] : [0], scores, scaled, 0);
    drawWeights(state, [0, ceiling], [0, ceiling], before, after, 1 / TOKENS);
    place.speak(describe(state) + bet.said("both"));
  };
  root.addEventListener("pointerdown", () => { held = true; }, true);
  for (const end of ["pointerup", "pointercancel", "change"]) {
    root.addEventListener(end, () => { held = false; draw(place.read()); });
  }
  place.start(draw, { covered: (state) => cover(row(state).after) });
  return place.close;
}

export default { render };
