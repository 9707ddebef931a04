// The conformal scale: one number s makes the same vector measure less, the later it stands, and shrinks its scores.
import { ask, choice, clamp, drag, html, more, pick, say, set, show, slider, svg } from "./common.js";
import { stage } from "./stage.js";
import { arrow, board, chart, handle } from "./draw.js";
import { softmax } from "./algebra.js";

// Computing -----------------------------------------------------------------------------------------------------------

/** log s: w itself for the law "free"; of s = e^w / (e^w + alpha) otherwise, without forming s. */
export function logScale({ law, w, alpha }) {
  return law === "free" ? w : -Math.log1p(alpha * Math.exp(-w));
}

/** The w that gives s under a law. */
export function rawOf(law, s, alpha) {
  return law === "free" ? Math.log(s) : Math.log(alpha) + Math.log(s) - Math.log1p(-s);
}

/** The power of s in each token's metric: its position n, or log(1 + n) for the law "slow". */
export function exponents({ law, tokens }) {
  return Array.from({ length: tokens }, (_, n) => (law === "slow" ? Math.log1p(n) : n));
}

/** s^(n/2): the length at each token of a vector that has length 1 without a metric. */
export function lengths(state) {
  return exponents(state).map((exponent) => Math.exp((exponent / 2) * logScale(state)));
}

/** s^((m+n)/2), what the metric makes of the score of a query at m and a key at n: one row for each m. */
export function factors(state) {
  const each = lengths(state);
  return each.map((a) => each.map((b) => a * b));
}

/** The scores 3 cos(2.4 n), the same for every query: peaks of nearly one height, near and far. */
export function exampleScores(tokens) {
  return Array.from({ length: tokens }, (_, n) => 3 * Math.cos(2.4 * n));
}

/** The query's row: scores and weights before the factor and after it. */
export function attentionRow(state) {
  const scores = exampleScores(state.tokens), factor = factors(state)[state.query];
  const scaled = scores.map((score, n) => score * factor[n]);
  return { scores, scaled, before: softmax(scores), after: softmax(scaled) };
}

/** e to the entropy of weights: as many tokens as would share such a row evenly. */
export function spread(weights) {
  return Math.exp(weights.reduce((sum, weight) => sum - (weight > 0 ? weight * Math.log(weight) : 0), 0));
}

/** A factor in words: two decimals, or two digits where these would show nothing. */
function times(value) {
  if (value >= 1e4) return value.toExponential(1).replace("e+", "e");
  return value < 0.095 ? String(Number(value.toPrecision(2))) : show(value, value < 100 ? 2 : 0);
}

/** The state in a sentence, for those who hear the picture. */
export function describe(state) {
  const { query, tokens } = state, factor = factors(state)[query], { before, after } = attentionRow(state);
  return `s = ${show(Math.exp(logScale(state)), 3)}, query at ${query}: lengths times ${times(lengths(state)[query])}, `
    + `scores times ${times(factor[0])} at key 0 and ${times(factor[tokens - 1])} at key ${tokens - 1}, `
    + `weights spread over ${show(spread(before), 1)} tokens before and ${show(spread(after), 1)} after`;
}

// Drawing -------------------------------------------------------------------------------------------------------------

const NAMES = ["view", "law", "w", "alpha", "query", "tokens"];
const LAWS = [["bounded", "sᵐ with s = eʷ / (eʷ + α)"], ["free", "sᵐ with s = eʷ"],
  ["slow", "s^log(1+m), same s"]];
const ALPHAS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10];
// The slider of w goes by steps: [lowest w, step, steps]; a free w only stays near 0.
const REACH = { bounded: [-2, 0.05, 160], slow: [-2, 0.05, 160], free: [-0.4, 0.005, 120] };

// What is shown, one at a time: its name, its button, its question.
const VIEWS = [
  ["lengths", "Lengths", "Draw w to the left. Which of these equal arrows measures least?"],
  ["scores", "All scores", "A score takes both lengths. Do near or far ones fade most?"],
  ["row", "One row", "Move the query. Which key has the largest score now?"],
  ["weights", "Weights", "Move the query to the end. Does its row grow sharper or flatter?"]];

const CSS = `
.geo .conformal { display: grid; gap: 14px; padding: 14px 16px 18px; }
.geo .conformal > div { min-width: 0; }
.geo .conformal .views { min-height: 240px; align-content: center; }
.geo .conformal .view { min-width: 0; display: grid; gap: 6px; }
.geo .conformal .view[hidden] { display: none; }
.geo .conformal .view.scores { grid-template-columns: 240px minmax(0, 1fr); gap: 6px 28px; align-items: center; }
.geo .conformal .view.scores > div { min-width: 0; display: grid; gap: 6px; }
.geo .conformal .line svg { overflow: hidden; margin: 4px 0; }
.geo .conformal .ball { fill: none; stroke: var(--rule); }
.geo .conformal .ball.here { fill: var(--warm); fill-opacity: 0.12; stroke: var(--warm); stroke-width: 2; }
.geo .conformal .ruler { stroke: var(--text); stroke-width: 1.6; }
.geo .conformal .halo { paint-order: stroke; stroke: var(--ground); stroke-width: 4px; stroke-linejoin: round; }
.geo .conformal .before { fill: none; stroke: var(--soft); stroke-width: 1.2; }
.geo .conformal .after { fill: var(--join); stroke: none; opacity: 0.75; }
.geo .conformal .even { stroke: var(--text); stroke-dasharray: 3 3; }
.geo .conformal rect.row { fill: none; stroke: var(--text); stroke-width: 2; }
.geo .conformal .surface { fill: transparent; cursor: ns-resize; }
.geo .conformal .bar { display: inline-block; width: 72px; height: 10px; margin: 0 4px; border: 1px solid var(--line); }
.geo .conformal .less { background: linear-gradient(to right, var(--cool), var(--ground)); }
.geo .conformal .more { background: linear-gradient(to right, var(--ground), var(--warm)); }
@container (max-width: 560px) {
  .geo .conformal { padding: 10px 8px 14px; gap: 12px; }
  .geo .conformal .geo-ask { min-height: 2.8em; }
  .geo .conformal .views { min-height: 280px; }
  .geo .conformal .view.scores { grid-template-columns: 170px minmax(0, 1fr); gap: 10px; }
  .geo .conformal .bar { width: 28px; }
}`;

/** Tokens on a line: at each the same vector, as long as it measures there, and the circle of the length 1. */
function line(parent, onQuery) {
  const picture = svg("svg", { role: "img" }, parent), balls = svg("g", {}, picture), ticks = svg("g", {}, picture);
  const ruler = svg("path", { class: "ruler geo-vector" }, picture);
  const label = svg("text", { class: "geo-warm halo" }, picture), grip = handle(picture, "warm");
  let gap = 1, edge = 1, drawn = "";
  const follow = (x) => onQuery(Math.round((x - edge) / gap));
  drag(grip.reach, { start() {}, move: follow });

  return (state) => {
    const { tokens, query } = state, width = Math.max(200, Math.round(parent.clientWidth)), wide = width > 560;
    const height = wide ? 160 : 124, middle = (height - 6) / 2, rail = height - 22;
    edge = wide ? 40 : 18;
    gap = (width - 2 * edge) / (tokens - 1);
    const radius = clamp(0.45 * gap, 6, 24), xs = lengths(state).map((_, n) => edge + gap * n);
    if (`${width} ${tokens}` !== drawn) {
      drawn = `${width} ${tokens}`;
      set(picture, { viewBox: `0 0 ${width} ${height}`, height });
      balls.replaceChildren();
      ticks.replaceChildren();
      for (const x of xs) svg("circle", { cx: x.toFixed(1), cy: middle, r: radius.toFixed(1) }, balls);
      svg("path", { class: "geo-zero", d: `M${edge} ${rail}H${width - edge}` }, ticks);
      const every = gap > 26 ? 1 : 5;
      for (let n = 0; n < tokens; n += every) {
        svg("text", { x: xs[n].toFixed(1), y: height - 1, "text-anchor": "middle" }, ticks, String(n));
      }
    }
    const long = lengths(state).map((length) => Math.min(length, 4));
    set(ruler, { d: xs.map((x, n) => arrow(x, middle, x, middle - radius * long[n], 6)).join("") });
    for (let n = 0; n < tokens; n++) set(balls.children[n], { class: n === query ? "ball here" : "ball" });
    grip.place(xs[query], rail);
    const x = xs[query], anchor = x > width - 42 ? "end" : x < 42 ? "start" : "middle";
    set(label, { x: x.toFixed(1), y: 12, "text-anchor": anchor });
    label.textContent = `length ${times(lengths(state)[query])}`;
    set(picture, { "aria-label": `The same vector at ${tokens} tokens, with lengths from 1 at token 0 to `
      + `${times(lengths(state)[tokens - 1])} at token ${tokens - 1}: ${describe(state)}` });
  };
}

/** The factor as a map, the query's row framed. */
function factorMap(parent, onQuery) {
  const { canvas, draw, picture, fit } = board(parent, { left: 22, bottom: 20 });
  const words = svg("g", {}, picture), frame = svg("rect", { class: "row" }, picture);
  const surface = svg("rect", { class: "surface", "data-drag": "pad" }, picture);
  let side = 1, drawn = "";
  const follow = (_, y) => onQuery(Math.floor(y / side));
  drag(surface, { start: follow, move: follow });
  return (state) => {
    const { tokens, query } = state, { width, height, left, cell } = fit(tokens, tokens);
    side = cell;
    if (`${width} ${tokens}` !== drawn) {
      drawn = `${width} ${tokens}`;
      words.replaceChildren();
      const inner = width - left;
      svg("rect", { class: "geo-axis", x: left, y: 0, width: inner, height: inner }, words);
      svg("text", { x: left + inner / 2, y: height - 4, "text-anchor": "middle" }, words, "key n");
      svg("text", { "text-anchor": "middle", transform: `translate(12 ${inner / 2}) rotate(-90)` }, words, "query m");
      for (const n of [0, tokens - 1]) {
        const at = (n + 0.5) * cell;
        svg("text", { x: left + at, y: height - 4, "text-anchor": "middle" }, words, String(n));
        svg("text", { x: left - 5, y: at + 4, "text-anchor": "end" }, words, String(n));
      }
      set(surface, { x: left, y: 0, width: inner, height: inner });
    }
    set(frame, { x: left, y: (query * cell).toFixed(1), width: width - left, height: cell.toFixed(1) });
    // Between -1 and 1: what is taken away below the ground, what is added above it.
    draw(factors(state).flat().map((f) => (f < 1 ? f - 1 : 1 - 1 / f)), tokens);
    const last = times(factors(state).at(-1).at(-1));
    set(canvas, { "aria-label": `Map of the factor for ${tokens} queries and keys, 1 at (0, 0), ${last} at `
      + `(${tokens - 1}, ${tokens - 1}): ${describe(state)}` });
  };
}

/** Bars before as outlines, bars after filled, over the keys. */
function bars(parent, what) {
  const { picture, marks, frame, x, y } = chart(parent), after = svg("path", { class: "after" }, marks);
  const before = svg("path", { class: "before" }, marks), even = svg("path", { class: "even" }, marks);
  return (state, low, high, ticks, one, two, level = null) => {
    const { tokens } = state, keys = [...new Set([0, 5, 10, 15, 20, 25, 30].filter((n) => n < tokens))];
    frame({ xs: [-0.6, tokens - 0.4], ys: [low, high], height: 180, yTicks: ticks, xTicks: keys, xLabel: "key n" });
    const half = 0.36 * (x(1) - x(0)), base = y(0);
    const bar = (value, n) => `M${(x(n) - half).toFixed(1)} ${base.toFixed(1)}V${y(value).toFixed(1)}`
      + `h${(2 * half).toFixed(1)}V${base.toFixed(1)}z`;
    set(before, { d: one.map(bar).join("") });
    set(after, { d: two.map(bar).join("") });
    if (level !== null) set(even, { d: `M${x(-0.6)} ${y(level)}H${x(tokens - 0.4)}` });
    set(picture, { "aria-label": `Bars of the query’s ${what} over the keys, before and after: ${describe(state)}` });
  };
}

// Putting it together -------------------------------------------------------------------------------------------------

function render({ model, el }) {
  const place = stage({ model, el }, NAMES, CSS);
  const { change, read } = place;
  const root = html("div", { class: "conformal", role: "group", "aria-label": "The conformal scale" }, place.root);
  const toQuery = (m) => change({ query: clamp(m, 0, read().tokens - 1) });

  const question = ask(root, "");
  const tabs = pick(root, "What is shown", VIEWS.map(([name, word]) => [name, word]), (view) => change({ view }));
  const area = html("div", { class: "views geo-stay" }, root);
  const views = Object.fromEntries(VIEWS.map(([name]) => [name, html("div", { class: `view ${name}` }, area)]));
  const first = html("p", { class: "geo-say" }, views.lengths);
  const drawLine = line(html("div", { class: "line" }, views.lengths), toQuery);
  html("p", { class: "geo-note" }, views.lengths, "Circle: length 1. Arrow: the same vector, as long as it measures.");
  const drawMap = factorMap(html("div", {}, views.scores), toQuery), beside = html("div", {}, views.scores);
  const second = html("p", { class: "geo-say" }, beside), key = html("p", { class: "geo-note" }, beside);
  key.append("× 0", html("span", { class: "bar less" }), "× 1", html("span", { class: "bar more" }), "× ∞");
  const constant = html("p", { class: "geo-note" }, beside);
  html("p", { class: "geo-note" }, views.row, "Scores of the query’s row: outline before, filled after.");
  const drawScores = bars(html("div", {}, views.row), "scores");
  const third = html("p", { class: "geo-say" }, views.weights);
  const drawWeights = bars(html("div", {}, views.weights), "weights");
  html("p", { class: "geo-note" }, views.weights,
    "Outline before, filled after; dashed: all alike. Cover: e to the entropy.");

  const controls = html("div", { class: "geo-panel geo-controls" }, root);
  const w = slider(controls, { label: "Learned w", min: 0, step: 1, tone: "join", onInput(i) {
    const [low, step] = REACH[read().law];
    change({ w: Math.round(1e4 * (low + step * i)) / 1e4 });
  } });
  const query = slider(controls, { label: "Query position m", min: 0, step: 1, tone: "warm", onInput: toQuery });
  const rest = more(controls);
  const alpha = slider(rest, { label: "Constant α", min: 0, step: 1, tone: "text",
    onInput: (i) => change({ alpha: ALPHAS[i] }) });
  const law = choice(rest, { label: "Law of the scale", options: LAWS, onInput(next) {
    const state = read(), [low, step, steps] = REACH[next];
    const s = Math.min(Math.exp(logScale(state)), 1 - 1e-6); // the same s under the other law, where it reaches it
    change({ law: next, w: Math.round(1e4 * clamp(rawOf(next, s, state.alpha), low, low + step * steps)) / 1e4 });
  } });

  place.start((state) => {
    question.textContent = VIEWS.find(([name]) => name === state.view)[2];
    tabs.update(state.view);
    for (const [name, view] of Object.entries(views)) view.hidden = name !== state.view;
    const log = logScale(state), s = show(Math.exp(log), 3), [from, step, steps] = REACH[state.law];
    w.update((state.w - from) / step, `${show(state.w, 3, true)}, so s = ${s}`, steps);
    alpha.row.style.display = state.law === "free" ? "none" : "";
    const near = ALPHAS.map((a) => Math.abs(Math.log(a / state.alpha)));
    alpha.update(near.indexOf(Math.min(...near)), String(state.alpha), ALPHAS.length - 1);
    query.update(state.query, String(state.query), state.tokens - 1);
    law.update(state.law);
    const { scores, scaled, before, after } = attentionRow(state), factor = factors(state)[state.query];
    const power = state.law === "slow" ? "s^(log(1 + m)/2)" : "s^(m/2)";
    say(first, "With ", ["join", `s = ${s}`], ` a vector of length 1 measures ${power} = `,
      ["warm", times(lengths(state)[state.query])], " at ", ["warm", `m = ${state.query}`], ".");
    const same = state.law === "slow" ? "where (1 + m)(1 + n) is" : "along the rising diagonals, m + n";
    constant.textContent = `Constant ${same}: Δ = n − m has no part in it.`;
    say(second, "Scores of row ", ["warm", state.query], ": ×\u00a0", ["join", times(factor[0])],
      " at n = 0 to ×\u00a0",
      ["join", times(factor.at(-1))], ` at n = ${state.tokens - 1}.`);
    const [old, now] = [spread(before), spread(after)];
    const verdict = Math.abs(now - old) < 0.05 ? "no change." : now > old ? "flatter." : "sharper.";
    say(third, "Its weights cover ", ["soft", show(old, 1)], " → ", ["join", show(now, 1)], ` tokens: ${verdict}`);
    const top = Math.max(3, ...scaled.map(Math.abs)), ceiling = Math.ceil(10 * Math.max(...before, ...after)) / 10;
    const tick = (value) => [value, show(value, top < 100 ? 1 : 0, true)]; // a longer number has no room
    const draw = {
      lengths: () => drawLine(state),
      scores: () => drawMap(state),
      row: () => drawScores(state, -top, top, top < 1e4 ? [tick(-top), 0, tick(top)] : [0], scores, scaled),
      weights: () => drawWeights(state, 0, ceiling, [0, ceiling], before, after, 1 / state.tokens),
    };
    draw[state.view]();
    place.speak(describe(state));
  });
  return place.close;
}

export default { render };
