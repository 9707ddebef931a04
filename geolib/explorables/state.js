// The conformal state: one column of the state is a point that each token shrinks, turns and pushes.
import { ask, choice, clamp, drag, html, path, runner, say, set, show, slider, stage, svg } from "./common.js";
import { arrow, handle } from "./draw.js";
import { apply, dot, norm, rotation, softmax } from "./algebra.js";

// Computing -----------------------------------------------------------------------------------------------------------

const TOKENS = 12;
const RADIAN = Math.PI / 180;

/** Queries of length 2, keys of length 1 and values of an example, token j = 1 ... 12. */
export function tokens(example) {
  const angle = { wander: (j) => 2 * Math.sin(1.7 * j), same: () => 0, once: () => 0 }[example];
  const each = (value) => Array.from({ length: TOKENS }, (_, index) => value(index + 1));
  const k = each((j) => [Math.cos(angle(j)), Math.sin(angle(j))]);
  const q = each((j) => [2 * Math.cos(0.5 * angle(j)), 2 * Math.sin(0.5 * angle(j))]);
  const value = { wander: (j) => 1 + 0.5 * Math.cos(2 * j), same: () => 1, once: (j) => Number(j === 1) }[example];
  return { q, k, v: each(value) };
}

/** What each token does to S: before, shrunk = gamma before, turned = R(-turn) shrunk, after = turned + v k. */
export function strokes({ example, gamma, turn }) {
  const { k, v } = tokens(example), back = rotation(-turn * RADIAN);
  let before = [0, 0];
  return k.map((key, j) => {
    const shrunk = before.map((x) => gamma * x), turned = apply(back, shrunk);
    const after = turned.map((x, c) => x + v[j] * key[c]), stroke = { before, shrunk, turned, after };
    before = after;
    return stroke;
  });
}

/** That point by the attention form, after token m (from 1): sum_n gamma^(m-n) v_n R((m-n) turn)^T k_n. */
export function attentionState({ example, gamma, turn }, i) {
  const { k, v } = tokens(example), sum = [0, 0];
  for (let j = 0; j < i; j++) {
    const n = i - 1 - j, b = gamma ** n, c = Math.cos(n * turn * RADIAN), s = Math.sin(n * turn * RADIAN);
    sum[0] += b * v[j] * (c * k[j][0] + s * k[j][1]);
    sum[1] += b * v[j] * (c * k[j][1] - s * k[j][0]);
  }
  return sum;
}

/** Where S is at a moment: during token n it shrinks for a third, turns for a third and is pushed for a third. */
export function moment(state) {
  const all = strokes(state), n = Math.min(Math.floor(state.token), TOKENS - 1), part = 3 * (state.token - n);
  const { before, turned, after } = all[n], [less, turning, pushed] = [0, 1, 2].map((from) => clamp(part - from, 0, 1));
  const still = apply(rotation(-turning * state.turn * RADIAN), before.map((x) => (1 - less * (1 - state.gamma)) * x));
  return pushed > 0 ? turned.map((x, c) => x + pushed * (after[c] - x)) : still;
}

/** The attention row of token m (from 1) over the keys 1 ... m, by each of the four. */
export function rows({ example, gamma, turn, power }, i) {
  const { q, k } = tokens(example), query = q[i - 1], keys = k.slice(0, i);
  const share = (all) => {
    const total = all.reduce((sum, value) => sum + value, 0);
    return all.map((value) => (total > 0 ? value / total : 0));
  };
  const gates = keys.map((_, j) => gamma ** (i - 1 - j)), plain = keys.map((key) => dot(query, key));
  const turned = keys.map((key, j) => dot(query, apply(rotation(-(i - 1 - j) * turn * RADIAN), key)));
  return {
    softmax: softmax(plain.map((score) => score / Math.SQRT2)),
    sympow: share(plain.map((score) => score ** power)),
    gated: share(plain.map((score, j) => gates[j] * score ** power)),
    conformal: share(turned.map((score, j) => gates[j] * score ** power)),
  };
}

/** The token at work at a moment, from 1. */
export function atWork(token) {
  return clamp(Math.ceil(token - 1e-9), 1, TOKENS);
}

/** How far the point after the last finished token is from the attention form's sum. */
export function gap(state) {
  const finished = Math.floor(state.token + 1e-9);
  if (finished < 1) return 0;
  const sum = attentionState(state, finished);
  return norm(strokes(state)[finished - 1].after.map((x, c) => x - sum[c]));
}

/** The state in two sentences, for those who hear the picture. */
export function describe(state) {
  const [x, y] = moment(state), { conformal } = rows(state, atWork(state.token));
  const best = conformal.indexOf(Math.max(...conformal)) + 1;
  return `${phase(state.token)}: the state is at ${show(x)}, ${show(y)}. `
    + `In row ${conformal.length} key ${best} has the largest conformal weight.`;
}

function phase(token) {
  const done = Math.floor(token + 1e-9), part = 3 * (token - done);
  if (part < 1e-6) return done ? `Token ${done}` : "Start";
  return `Token ${done + 1} ${part < 1 + 1e-6 ? "shrinks" : part < 2 + 1e-6 ? "turns" : "pushes"}`;
}

// Drawing -------------------------------------------------------------------------------------------------------------

const NAMES = ["example", "gamma", "turn", "token", "power"];
const EXAMPLES = [["wander", "keys that wander"], ["same", "the same key each time"], ["once", "one push at token 1"]];
const QUESTIONS = {
  once: "One push at token 1, and no other. Press Run: where does the point go, and where does it end?",
  same: "The same push at each token. Press Run: does the point ever stop growing?",
  wander: "Each token pushes in another direction. Press Run: what is left of the first push at the end?",
};
const KINDS = [["softmax", "soft"], ["sympow", "text"], ["gated", "text"], ["conformal", "join"]];

const CSS = `
.geo .state > :is(.geo-ask, .geo-say, .time, .geo-more) { grid-column: 1 / -1; }
.geo .state :is(.settings, .plane, .weights) { min-width: 0; display: grid; gap: 8px; align-content: start; }
.geo .state .both { display: grid; grid-template-columns: 130px minmax(0, 1fr); gap: 14px; align-items: center; }
.geo .state .ring { fill: none; stroke: var(--line); }
.geo .state .past { opacity: 0.4; stroke-width: 1.5; } .geo .state .power { fill: var(--join); opacity: 0.45; }
.geo .state .bar { fill: currentColor; } .geo .state .later { opacity: 0.3; }`;

// What is pushed is the key, so the push has its colour.
const STEPS = [["before", "shrunk", "soft"], ["shrunk", "turned", "join"], ["turned", "after", "cool"]];

/** The plane of S: three strokes a token, the token at work in full colour. */
function plane(parent) {
  const picture = svg("svg", { role: "img" }, parent), grid = svg("g", {}, picture);
  const past = STEPS.map(([, , tone]) => svg("path", { class: `geo-line past geo-${tone}` }, picture));
  const now = STEPS.map(([, , tone]) => svg("path", { class: `geo-vector geo-${tone}` }, picture));
  const point = svg("circle", { class: "geo-dot geo-text", r: 5.5 }, picture);
  let drawn = "";
  return (state) => {
    const width = Math.max(180, Math.round(parent.clientWidth)), height = Math.min(width, 320), all = strokes(state);
    const reach = Math.max(...all.flatMap(({ before, after }) => [norm(before), norm(after)])) * 1.04;
    const extent = [1.25, 1.5, 2, 3, 4, 5, 6, 8, 10].find((size) => size >= reach) ?? 12.5;
    const scale = height / 2 / extent, x = (p) => width / 2 + p[0] * scale, y = (p) => height / 2 - p[1] * scale;
    if (drawn !== (drawn = [width, extent].join())) {
      set(picture, { viewBox: `0 0 ${width} ${height}`, height });
      grid.replaceChildren();
      const step = extent > 5 ? 4 : extent > 2.5 ? 2 : 1;
      svg("path", { class: "geo-axis", d: `M0 ${height / 2}H${width}M${width / 2} 0V${height}` }, grid);
      for (let r = step; r < extent; r += step) {
        svg("circle", { class: "ring", cx: width / 2, cy: height / 2, r: r * scale }, grid);
        svg("text", { x: x([r, 0]) + 3, y: height / 2 + 14 }, grid, String(r));
      }
    }
    const working = Math.ceil(state.token - 1e-9) - 1, part = 3 * (state.token - working), here = moment(state);
    // A turn is an arc around the origin, the others are straight.
    const stroke = (from, to, s) => {
      if (s !== 1) return path([x(from), x(to)], [y(from), y(to)]);
      const angle = Math.atan2(from[0] * to[1] - from[1] * to[0], dot(from, to));
      const pieces = 1 + Math.ceil(Math.abs(angle) * 8);
      const along = Array.from({ length: pieces + 1 }, (_, i) => apply(rotation((angle * i) / pieces), from));
      return path(along.map(x), along.map(y));
    };
    STEPS.forEach(([from, to], s) => {
      set(past[s], { d: all.slice(0, Math.max(working, 0)).map((each) => stroke(each[from], each[to], s)).join("") });
      const begun = working >= 0 && part > s + 1e-9, end = begun && (part > s + 1 - 1e-9 ? all[working][to] : here);
      const [u, w] = begun && s === 2 ? [all[working][from], end].map((p) => [x(p), y(p)]) : [];
      // The head ends before the dot, which would hide it.
      const size = u && Math.hypot(w[0] - u[0], w[1] - u[1]), ratio = size > 16 ? 1 - 7 / size : 1;
      const straight = u && [...u, ...u.map((value, c) => value + ratio * (w[c] - value))];
      set(now[s], { d: !begun ? "" : straight ? arrow(...straight) : stroke(all[working][from], end, s) });
    });
    set(point, { cx: x(here).toFixed(1), cy: y(here).toFixed(1) });
    set(picture, { "aria-label": `The plane of the state, with three strokes for each token. ${describe(state)}` });
  };
}

/** gamma e^(-i turn) as a point in the unit disk, and its powers: what is left of a key, token after token. */
function dial(parent, onMove) {
  const picture = svg("svg", { viewBox: "-65 -65 130 130", role: "img" }, parent), radius = 56;
  svg("circle", { class: "ring", r: radius }, picture);
  svg("path", { class: "geo-axis", d: `M0 0H${radius}` }, picture);
  const powers = Array.from({ length: TOKENS }, () => svg("circle", { class: "power", r: 2.5 }, picture));
  const spoke = svg("path", { class: "geo-line geo-join" }, picture), knob = handle(picture, "join", 7);
  drag(knob.reach, { start() {}, move(px, py) {
    const scale = 130 / picture.getBoundingClientRect().width, [u, w] = [px * scale - 65, py * scale - 65];
    // Down on the screen is a turn back, which is the positive one here.
    onMove(clamp(Math.hypot(u, w) / radius, 0.01, 1), Math.atan2(w, u) / RADIAN);
  } });
  return ({ gamma, turn }) => {
    const at = (n) => apply(rotation(n * turn * RADIAN), [radius * gamma ** n, 0]);
    powers.forEach((each, n) => set(each, { cx: at(n)[0].toFixed(1), cy: at(n)[1].toFixed(1) }));
    const [px, py] = at(1);
    knob.place(px, py);
    set(spoke, { d: path([0, px], [0, py]) });
    set(picture, { "aria-label": `The conformal map as a point in the unit disk: scale ${show(gamma, 2)}, `
      + `turn ${show(turn, 1, true)} degrees backwards, and its powers` });
  };
}

/** The keys as arrows, the query among them, and under them one row of bars for each kind of attention. */
function bars(parent) {
  const picture = svg("svg", { role: "img" }, parent), top = 50, high = 64;
  const later = svg("path", { class: "geo-line geo-cool later" }, picture);
  const keys = svg("path", { class: "geo-line geo-cool" }, picture);
  const query = svg("path", { class: "geo-vector geo-warm" }, picture);
  const panels = KINDS.map(([kind, tone], r) => ({ kind, name: svg("text", { x: 0, class: `geo-${tone}` }, picture),
    output: svg("text", { class: `geo-${tone}`, "text-anchor": "end", y: top + r * high + 15 }, picture),
    base: svg("path", { class: "geo-zero" }, picture), body: svg("path", { class: `bar geo-${tone}` }, picture) }));
  const marks = Array.from({ length: TOKENS }, () => svg("text", { "text-anchor": "middle" }, picture));
  const legend = svg("text", { x: 0, y: 12 }, picture);
  return (state) => {
    const { q, k, v } = tokens(state.example), width = Math.max(180, Math.round(parent.clientWidth));
    const cell = width / TOKENS, height = top + 4 * high + 18, i = atWork(state.token), all = rows(state, i);
    set(picture, { viewBox: `0 0 ${width} ${height}`, height });
    const along = ([a, b], j, size) => arrow(cell * (j + 0.5) - (a * size) / 2, 32 + (b * size) / 2,
      cell * (j + 0.5) + (a * size) / 2, 32 - (b * size) / 2, 5);
    set(keys, { d: k.slice(0, i).map((key, j) => along(key, j, 18)).join("") });
    set(later, { d: k.slice(i).map((key, j) => along(key, i + j, 18)).join("") });
    set(query, { d: along(q[i - 1], i - 1, 13) });
    legend.textContent = `keys k₁ … k₁₂; thick: the query of token ${i}`;
    const most = Math.max(...Object.values(all).flat());
    const ceiling = [0.25, 0.375, 0.5, 0.75].find((level) => level >= most) ?? 1;
    panels.forEach(({ kind, name, output, base, body }, r) => {
      const floor = top + (r + 1) * high - 2, tall = high - 23;
      set(name, { y: floor - high + 17 });
      const title = kind === "sympow" ? "symmetric power" : kind;
      name.textContent = kind === "softmax" ? title : `${title}, p = ${state.power}`;
      set(output, { x: width });
      output.textContent = `Y = ${show(dot(all[kind], v), 3)}`;
      set(base, { d: `M0 ${floor}H${width}` });
      set(body, { d: all[kind].map((weight, j) => `M${(cell * j + 2).toFixed(1)} ${floor}v${(-tall * weight / ceiling)
        .toFixed(2)}h${(cell - 4).toFixed(1)}V${floor}Z`).join("") });
    });
    marks.forEach((mark, j) => {
      set(mark, { x: (cell * (j + 0.5)).toFixed(1), y: height - 4, class: j === i - 1 ? "geo-text" : "" });
      mark.textContent = String(j + 1);
    });
    const words = KINDS.map(([kind]) => `${kind} ${all[kind].map((weight) => show(weight)).join(" ")}`);
    set(picture, { "aria-label": `Attention of token ${i} to tokens 1 to ${i}: ${words.join("; ")}` });
  };
}

// Putting it together -------------------------------------------------------------------------------------------------

function render({ model, el }) {
  const place = stage({ model, el }, NAMES, CSS), { change, read } = place;
  const named = { class: "state geo-columns", role: "group", "aria-label": "The conformal state" };
  const box = html("div", named, place.root);
  const area = (name) => html("div", { class: name }, box);
  const question = ask(box, "");
  const time = area("time geo-time geo-panel"), what = html("p", { class: "geo-say" }, box);
  const left = area("plane geo-stay"), settings = area("settings");

  const stop = runner(time, {
    begin() { if (read().token >= TOKENS) change({ token: 0 }); },
    step(seconds, calm) {
      const { token: at } = read(), next = calm ? (Math.floor(3 * at + 1e-6) + 1) / 3 : at + 0.6 * seconds;
      change({ token: Math.min(TOKENS, next) });
      return next < TOKENS;
    },
  });
  const token = slider(time, { label: "Token m", min: 0, step: 1, onInput: (at) => change({ token: at / 3 }) });

  const drawPlane = plane(html("div", {}, left));
  const example = choice(settings, { label: "Tokens", options: EXAMPLES,
    onInput: (value) => change({ example: value }) });
  const two = html("div", { class: "both" }, settings);
  const drawDial = dial(html("div", {}, two), (gamma, turn) => {
    change({ gamma: Math.round(gamma * 100) / 100, turn: Math.round(turn) });
  });
  const both = html("div", {}, two);
  const gamma = slider(both, { label: "Gate γ", min: 0.01, step: 0.01, tone: "text",
    onInput: (value) => change({ gamma: value }) });
  const turn = slider(both, { label: "Turn βθ a token", min: -180, step: 1, tone: "join",
    onInput: (value) => change({ turn: value }) });
  const proof = html("p", { class: "geo-note" }, settings);

  const further = html("details", { class: "geo-more" }, box), right = html("div", { class: "weights" });
  html("summary", {}, further, "Another power than the plane’s: four kinds of attention on the same tokens");
  further.append(right);
  const largest = html("p", { class: "geo-say" }, right);
  const drawBars = bars(html("div", {}, right));
  const lists = html("div", { class: "geo-controls" }, right);
  const power = choice(lists, { label: "Power p of the bars", options: [[2, "2"], [4, "4"]],
    onInput: (value) => change({ power: Number(value) }) });

  place.start((state) => {
    token.update(Math.round(3 * state.token), phase(state.token), 3 * TOKENS);
    gamma.update(state.gamma, show(state.gamma, 3, true), 1);
    turn.update(state.turn, `${show(state.turn, 1, true)}°`, 180);
    example.update(state.example);
    question.textContent = QUESTIONS[state.example];
    power.update(state.power);
    const finished = Math.floor(state.token + 1e-9), i = atWork(state.token);
    const [x, y] = moment(state), apart = gap(state);
    say(what, ["soft", "shrink"], ", ", ["join", "turn"], ", ", ["cool", "push"],
      `: at p = 1, where φ(k) = k, S\u00a0=\u00a0(${show(x, 3)},\u00a0${show(y, 3)})`);
    const difference = apart < 1e-12 ? "less than 10⁻¹²" : apart.toExponential(1);
    const equal = `After token ${finished} the point and attention’s sum over all keys differ by ${difference}.`;
    say(proof, finished ? equal : "The disk: what a token makes of the state, as one number, and its powers.");
    const { conformal, softmax: plain } = rows(state, i), best = conformal.indexOf(Math.max(...conformal));
    const weight = ["join", `${show(100 * conformal[best], 0)}\u00a0%`];
    say(largest, `At p = ${state.power}, token ${i}: `, weight, ` to key ${best + 1}; softmax `
      + `${show(100 * plain[best], 0)}\u00a0%`);
    drawPlane(state);
    drawDial(state);
    drawBars(state);
    place.speak(describe(state));
  });
  return () => { stop(); place.close(); };
}

export default { render };
