// Gates and rates: the memory that the gates leave, and the clock that the rates wind.
import { ask, clamp, choice, drag, html, path, runner, say, set, show, slider, svg, wrap } from "./common.js";
import { stage } from "./stage.js";
import { arrow, chart, raster } from "./draw.js";

// Computing -----------------------------------------------------------------------------------------------------------

const TOKENS = 32;
const LEAST = 0.01; // the smallest gate a hand can draw: a gate of 0 has no logarithm

/** G_i = log gamma_1 + ... + log gamma_i, with G_0 = 0. */
export function cumulativeLogs(gamma) {
  const sums = [0];
  for (const gate of gamma) sums.push(sums[sums.length - 1] + Math.log(gate));
  return sums;
}

/** gamma_mn = gamma_(n+1) ... gamma_m, row by row (query m, key n), 0 where n > m. */
export function decay(gamma) {
  const sums = cumulativeLogs(gamma), size = gamma.length, all = new Array(size * size).fill(0);
  for (let i = 0; i < size; i++) {
    for (let j = 0; j <= i; j++) all[i * size + j] = Math.exp(sums[i + 1] - sums[j + 1]);
  }
  return all;
}

/** log gamma_mn of token m (from 1) at the distances m - n = 0, 1, ..., m - 1. */
export function logRow(gamma, token) {
  const sums = cumulativeLogs(gamma);
  return Array.from({ length: token }, (_, distance) => sums[token] - sums[token - distance]);
}

/** sum_n gamma_mn: how many tokens token m remembers, itself among them. */
export function memory(gamma, token) {
  return logRow(gamma, token).reduce((sum, log) => sum + Math.exp(log), 0);
}

/** The slope of ALiBi's line slope (n - m) that ends where the row ends, and the row's largest gap to that line. */
export function alibi(gamma, token) {
  const row = logRow(gamma, token), slope = token > 1 ? -row[token - 1] / (token - 1) : 0;
  return { slope, gap: Math.max(...row.map((log, distance) => Math.abs(log + slope * distance))) };
}

/** mu_m = mu_(m-1) + beta_m theta, in degrees, for m = 1, ..., tokens. */
export function angles(beta, theta) {
  let mu = 0;
  return beta.map((rate) => (mu += rate * theta));
}

/** The curve after a hand went from (token, value) to (token, value): straight between them, within the limits. */
export function painted(values, [from, start], [to, end], low, high) {
  const next = [...values], step = Math.sign(to - from) || 1;
  for (let i = from; i !== to + step; i += step) {
    const value = from === to ? end : start + ((end - start) * (i - from)) / (to - from);
    if (i >= 1 && i <= values.length) next[i - 1] = clamp(Math.round(value * 100) / 100, low, high);
  }
  return next;
}

/** The curves a reader can start from, by name. */
export function preset(name) {
  const slope = 1 / 8, each = (value) => Array.from({ length: TOKENS }, (_, i) => value(i + 1));
  if (name === "half") return each(() => 0.5);
  if (name === "open") return each(() => 0.999);
  if (name === "alibi") return each(() => Math.exp(-slope));
  if (name === "reset") return each((i) => (i === 13 ? 0.05 : Math.exp(-slope)));
  if (name === "rope") return each(() => 1);
  return each((i) => 1 + 0.8 * Math.sin((2 * Math.PI * i) / TOKENS)); // "wind"
}

/** The state in two sentences, for those who hear the picture. */
export function describe({ gamma, beta, token, theta }) {
  const { slope, gap } = alibi(gamma, token), mu = angles(beta, theta)[token - 1];
  return `Token ${token} remembers ${show(memory(gamma, token), 1)} tokens; its row lies up to ${show(gap, 2)} from `
    + `ALiBi's line of slope ${show(slope, 3)}. The hand has turned ${show(mu, 0)} degrees, `
    + `RoPE's ${show(token * theta, 0)}.`;
}

// Drawing -------------------------------------------------------------------------------------------------------------

const NAMES = ["gamma", "beta", "token", "theta"];
const GATES = [["", "drawn by hand"], ["half", "all 0.5 = σ(0)"], ["open", "all 0.999 = σ(6.9)"],
  ["alibi", "ALiBi: all e^(−1/8)"], ["reset", "ALiBi with a reset"]];
const RATES = [["", "drawn by hand"], ["rope", "RoPE: all 1"], ["wind", "ahead, then back"]];

const CSS = `
.geo .gates { display: grid; gap: 14px; padding: 14px 16px 18px; } .geo .gates > * { min-width: 0; }
.geo .gates .geo-columns { padding: 0; }
.geo .gates .cause, .geo .gates .effect { min-width: 0; display: grid; gap: 6px; align-content: start; }
.geo .gates .cause .list { grid-template-columns: auto 1fr; }
.geo .gates .cause .list output { display: none; }
.geo .gates .cause select { grid-area: 1 / 2; }
.geo .gates .draw { cursor: crosshair; }
.geo .gates .bar { fill: currentColor; opacity: 0.45; } .geo .gates .bar.now { opacity: 1; }
.geo .gates .both { display: grid; grid-template-columns: 190px minmax(0, 1fr); gap: 14px; align-items: end; }
.geo .gates .map { position: relative; }
.geo .gates .map span { position: absolute; left: -3px; right: -3px; border: 1.5px solid var(--text);
  border-radius: 2px; pointer-events: none; }
.geo .gates .both > div { min-width: 0; }
.geo .gates .both svg.clock { max-width: 190px; }
.geo .gates .line { stroke-dasharray: 4 4; stroke: var(--text); stroke-width: 1.4; fill: none; }
.geo .gates .ring { fill: none; stroke: var(--line); }
.geo .gates .past { stroke: var(--cool); opacity: 0.3; }
.geo .gates .between { fill: none; stroke: var(--join); stroke-width: 4; opacity: 0.8; }
@container (max-width: 560px) { .geo .gates .both { grid-template-columns: 136px minmax(0, 1fr); gap: 8px; } }`;

/** One bar a token: `draw(values, token)`; a hand draws over it. */
function curve(parent, tone, high, name, onPaint) {
  const { picture, marks, frame, x, y, atX, atY } = chart(parent);
  set(picture, { class: `draw geo-${tone}`, "data-drag": "pad" });
  let bars = [], drawn = [], last = null;
  const at = (px, py) => [Math.round(clamp(atX(px), 1, TOKENS)), clamp(atY(py), 0, high)];
  drag(picture, {
    start(px, py) { last = at(px, py); onPaint(last, last); },
    move(px, py) { const now = at(px, py); onPaint(last, now); last = now; },
  });
  return (values, token) => {
    const yTicks = high === 1 ? [0, 0.5, 1] : [0, [1, "1"], 2], xTicks = [1, 8, 16, 24, TOKENS];
    const fresh = frame({ xs: [0.4, TOKENS + 0.6], ys: [0, high], height: 130, xTicks, yTicks });
    if (!bars.length) bars = values.map(() => svg("rect", {}, marks));
    const width = x(2) - x(1) - 1.5;
    bars.forEach((bar, i) => {
      const now = `${values[i]} ${i + 1 === token}`;
      if (!fresh && now === drawn[i]) return;
      drawn[i] = now;
      set(bar, { x: (x(i + 1) - width / 2).toFixed(1), y: (y(values[i]) - 1).toFixed(1), width: width.toFixed(1),
        height: (y(0) - y(values[i]) + 1).toFixed(1), class: i + 1 === token ? "bar now" : "bar" });
    });
    const value = show(values[token - 1], 3, true);
    set(picture, { "aria-label": `The ${name} of ${TOKENS} tokens as bars; at token ${token}: ${value}` });
  };
}

/** gamma_mn as a map, with a frame around the row of token m. */
function map(parent) {
  const box = html("div", { class: "map" }, parent), { canvas, draw } = raster(box), row = html("span", {}, box);
  row.style.height = `calc(${100 / TOKENS}% + 4px)`;
  let drawn = "";
  return ({ gamma, token }) => {
    const now = `${box.closest(".geo").dataset.theme} ${gamma}`;
    if (now !== drawn) draw(decay(gamma), TOKENS);
    drawn = now;
    row.style.top = `calc(${(100 * (token - 1)) / TOKENS}% - 2px)`;
    const count = logRow(gamma, token).filter((log) => log >= -1).length;
    set(canvas, { "aria-label": `Map of b, ${TOKENS} queries by ${TOKENS} keys, nothing above the diagonal; `
      + `in row ${token}, ${count} keys are above 1/e, sum ${show(memory(gamma, token), 1)}` });
  };
}

/** log gamma_mn of one row against distance, and ALiBi's line through its two ends. */
function fall(parent) {
  const { picture, marks, frame, x, y } = chart(parent);
  const line = svg("path", { class: "line" }, marks), row = svg("path", { class: "geo-line geo-warm" }, marks);
  const dots = svg("path", { class: "geo-line geo-warm", style: "stroke-width: 5" }, marks);
  return ({ gamma, token }) => {
    const logs = logRow(gamma, token), { slope, gap } = alibi(gamma, token), end = token - 1;
    let floor = -2;
    while (floor > logs[end]) floor *= 2;
    // Beside the bars and the map it is as high as they are together.
    const height = parent.closest(".geo").clientWidth > 560 ? 316 : 230;
    frame({ xs: [0, TOKENS - 1], ys: [floor, 0], height, xTicks: [0, 10, 20, 30], xLabel: "distance |Δ| = m − n",
      yTicks: [[0, "1"], [floor / 2, `e${raised(floor / 2)}`], [floor, `e${raised(floor)}`]] });
    const xs = logs.map((_, distance) => x(distance)), ys = logs.map(y);
    set(row, { d: path(xs, ys) });
    set(dots, { d: xs.map((px, k) => `M${px.toFixed(1)} ${ys[k].toFixed(1)}h0`).join("") });
    set(line, { d: path([x(0), x(end)], [y(0), y(-slope * end)]) });
    set(picture, { "aria-label": `b of row ${token} against distance, on a logarithmic scale: `
      + `down to e^${show(logs[end], 2)}, up to ${show(gap, 2)} from ALiBi's straight line` });
  };
}

const raised = (value) => [...show(value, 0)].map((c) => (c === "−" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c])).join("");

/** The hand that has turned by mu_m, RoPE's by m theta, and the hands of the tokens before. */
function face(parent) {
  const picture = svg("svg", { viewBox: "-75 -75 150 150", role: "img", class: "clock" }, parent), radius = 68;
  svg("circle", { class: "ring", r: radius }, picture);
  const past = svg("path", { class: "past" }, picture), between = svg("path", { class: "between" }, picture);
  const plain = svg("path", { class: "line" }, picture), hand = svg("path", { class: "geo-vector geo-cool" }, picture);
  const point = (degrees, r) => [r * Math.cos((degrees * Math.PI) / 180), -r * Math.sin((degrees * Math.PI) / 180)];
  const text = (degrees, r) => point(degrees, r).map((value) => value.toFixed(1)).join(" ");
  return ({ beta, theta, token }) => {
    const all = angles(beta, theta), mu = all[token - 1], rope = token * theta;
    const strokes = all.slice(0, token - 1).map((angle) => `M${text(angle, radius - 10)}L${text(angle, radius)}`);
    set(past, { d: strokes.join("") });
    set(plain, { d: `M0 0L${text(rope, radius)}` });
    set(hand, { d: arrow(0, 0, ...point(mu, radius), 10) });
    const way = wrap(((mu - rope) * Math.PI) / 180) * 180 / Math.PI;
    set(between, { d: `M${text(rope, 40)}A40 40 0 0 ${way > 0 ? 0 : 1} ${text(rope + way, 40)}` });
    set(picture, { "aria-label": `Clock at token ${token}: its hand has turned by ${show(mu, 1, true)} degrees, `
      + `RoPE's dashed hand by ${show(rope, 1, true)}` });
  };
}

// Putting it together -------------------------------------------------------------------------------------------------

function render({ model, el }) {
  const place = stage({ model, el }, NAMES, CSS), { change, read } = place;
  const root = html("div", { class: "gates", role: "group", "aria-label": "Gates and rates" }, place.root);
  ask(root, "Draw one bar of the gates down to the floor. What does a later token still remember?");
  const time = html("div", { class: "geo-time geo-panel" }, root);
  let box = html("div", { class: "geo-columns" }, root);
  const area = (name) => html("div", { class: name }, box);
  let exact = 1;
  const stop = runner(time, {
    begin() { exact = read().token >= TOKENS ? 1 : read().token; change({ token: Math.round(exact) }); },
    step(seconds, calm) {
      exact = Math.min(TOKENS, exact + (calm ? 1 : 6 * seconds));
      change({ token: Math.round(exact) });
      return exact < TOKENS;
    },
  });
  const token = slider(time, { label: "Token m", min: 1, step: 1, onInput: (value) => change({ token: value }) });

  // A drawn curve with the list it can start from, and a slider for the value of token i.
  const editor = (name, options, { tone, label, own, low, high }) => {
    const column = area("cause");
    const list = choice(column, { label: `Draw ${label}`, options,
      onInput: (value) => change({ [name]: preset(value) }) });
    list.row.classList.add("list");
    list.row.querySelector("option").disabled = true; // what no list holds can be drawn, not chosen
    const draw = curve(html("div", {}, column), tone, high, label, (from, to) => {
      change({ [name]: painted(read()[name], from, to, low, high) });
    });
    const value = slider(column, { label: own, min: low, step: 0.01, tone, onInput(chosen) {
      const { token: i, [name]: all } = read();
      change({ [name]: painted(all, [i, chosen], [i, chosen], low, high) });
    } });
    const known = options.slice(1).map(([key]) => [key, preset(key)]);
    const names = ([, values], all) => values.every((each, i) => Math.abs(each - all[i]) < 1e-9);
    return ({ token: i, [name]: all }) => {
      list.update(known.find((each) => names(each, all))?.[0] ?? "");
      draw(all, i);
      value.update(all[i - 1], show(all[i - 1], 3, true), high);
    };
  };
  const drawGates = editor("gamma", GATES, { tone: "warm", label: "gates γ", own: "Gate γₘ of token m", low: LEAST,
    high: 1 });
  const memories = area("effect"), remembers = html("p", { class: "geo-say" }, memories);
  const drawFall = fall(html("div", {}, memories)), straight = html("p", { class: "geo-note" }, memories);
  const two = html("div", { class: "both" }, box.querySelector(".cause")), drawMap = map(html("div", {}, two));
  html("p", { class: "geo-note" }, two, "All rows: γₘₙ of row m, column n, dark where much is kept. Framed: row m.");

  const winding = html("details", { class: "geo-more" }, root);
  html("summary", {}, winding, "The rates: a clock that the tokens wind");
  box = html("div", { class: "geo-columns" }, winding);
  const drawRates = editor("beta", RATES, { tone: "cool", label: "rates β", own: "Rate βₘ of token m", low: 0,
    high: 2 });
  const turning = area("effect"), turned = html("p", { class: "geo-say" }, turning);
  const clock = html("div", { class: "both" }, turning), drawFace = face(html("div", {}, clock));
  const beside = html("div", {}, clock);
  const theta = slider(beside, { label: "Angle θ a token", min: 0, step: 1,
    onInput: (value) => change({ theta: value }) });
  html("p", { class: "geo-note" }, beside, "Solid: μₘ = μₘ₋₁ + βₘθ. Dashed: RoPE’s mθ. Ticks: the tokens before.");

  place.start((state) => {
    const { gamma, beta, token: i } = state;
    token.update(i, String(i), TOKENS);
    theta.update(state.theta, `${show(state.theta, 1, true)}°`, 180);
    const { slope, gap } = alibi(gamma, i), mu = angles(beta, state.theta)[i - 1], ahead = mu - i * state.theta;
    say(remembers, `token ${i} remembers Σₙ γₘₙ = `, ["warm", show(memory(gamma, i), 1)], " tokens");
    say(straight, ["text", gap < 1e-9 ? "log γₘₙ is straight: " : "log γₘₙ bends: "],
      `${gap < 1e-9 ? "it is" : `up to ${show(gap, 2)} from`} ALiBi’s dashed line, slope\u00a0${show(slope, 3)}`);
    say(turned, "hand at ", ["cool", `${show(mu, 0)}°`], `, RoPE’s at ${show(i * state.theta, 0)}°: `,
      ["join", Math.abs(ahead) < 0.5 ? "level" : `${show(Math.abs(ahead), 0)}° ${ahead > 0 ? "ahead" : "behind"}`]);
    drawGates(state);
    drawRates(state);
    drawMap(state);
    drawFall(state);
    drawFace(state);
    place.speak(describe(state));
  });
  return () => {
    stop();
    place.close();
  };
}

export default { render };
