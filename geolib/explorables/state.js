// The conformal state: one column of the state is a point that each token shrinks, turns and pushes.
import { ask, choice, clamp, drag, html, path, runner, say, set, show, slider, svg } from "./common.js";
import { stage } from "./stage.js";
import { arrow, handle } from "./draw.js";
import { apply, dot, norm, rotation } from "./algebra.js";

// Computing -----------------------------------------------------------------------------------------------------------

const TOKENS = 12;
const RADIAN = Math.PI / 180;
let last = { known: "", all: [] };

/** Keys of length 1 and values of an example, token j = 1 ... 12. */
export function tokens(example) {
  const angle = { wander: (j) => 2 * Math.sin(1.7 * j), same: () => 0, once: () => 0 }[example];
  const each = (value) => Array.from({ length: TOKENS }, (_, index) => value(index + 1));
  const k = each((j) => [Math.cos(angle(j)), Math.sin(angle(j))]);
  const value = { wander: (j) => 1 + 0.5 * Math.cos(2 * j), same: () => 1, once: (j) => Number(j === 1) }[example];
  return { k, v: each(value) };
}

/** What each token does to S: before, shrunk = gamma before, turned = R(-turn) shrunk, after = turned + v k. */
export function strokes({ example, gamma, turn }) {
  const known = `${example} ${gamma} ${turn}`;
  if (last.known === known) return last.all; // a picture asks for them many times
  const { k, v } = tokens(example), back = rotation(-turn * RADIAN);
  let before = [0, 0];
  const all = k.map((key, j) => {
    const shrunk = before.map((x) => gamma * x), turned = apply(back, shrunk);
    const after = turned.map((x, c) => x + v[j] * key[c]), stroke = { before, shrunk, turned, after };
    before = after;
    return stroke;
  });
  last = { known, all };
  return all;
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

/** How far the point after the last finished token is from the attention form's sum. */
export function gap(state) {
  const finished = Math.floor(state.token + 1e-9);
  if (finished < 1) return 0;
  const sum = attentionState(state, finished);
  return norm(strokes(state)[finished - 1].after.map((x, c) => x - sum[c]));
}

/** The state in a sentence, for those who hear the picture. */
export function describe(state) {
  const [x, y] = moment(state);
  return `${phase(state.token)}: the state is at ${show(x)}, ${show(y)}, ${show(Math.hypot(x, y))} from the origin.`;
}

function phase(token) {
  const done = Math.floor(token + 1e-9), part = 3 * (token - done);
  if (part < 1e-6) return done ? `Token ${done}` : "Start";
  return `Token ${done + 1} ${part < 1 + 1e-6 ? "shrinks" : part < 2 + 1e-6 ? "turns" : "pushes"}`;
}

// Drawing -------------------------------------------------------------------------------------------------------------

const NAMES = ["example", "gamma", "turn", "token"];
const EXAMPLES = [["wander", "keys that wander"], ["same", "the same key each time"], ["once", "one push at token 1"]];
const QUESTIONS = {
  once: "One push at token 1, and no other. Press Run: where does the point go, and where does it end?",
  same: "The same push at each token. Press Run: does the point ever stop growing?",
  wander: "Each token pushes in another direction. Press Run: what is left of the first push at the end?",
};

const CSS = `
.geo .state > :is(.geo-ask, .geo-say, .time, .geo-more) { grid-column: 1 / -1; }
.geo .state :is(.settings, .plane) { min-width: 0; display: grid; gap: 8px; align-content: start; }
.geo .state .both { display: grid; grid-template-columns: 130px minmax(0, 1fr); gap: 14px; align-items: center; }
.geo .state .ring { fill: none; stroke: var(--line); }
.geo .state .past { opacity: 0.4; stroke-width: 1.5; } .geo .state .power { fill: var(--join); opacity: 0.45; }`;

// What is pushed is the key, so the push has its colour.
const STEPS = [["before", "shrunk", "soft"], ["shrunk", "turned", "join"], ["turned", "after", "cool"]];

/** The plane of S: three strokes a token, the token at work in full colour. */
function plane(parent) {
  const picture = svg("svg", { role: "img" }, parent), grid = svg("g", {}, picture);
  const past = STEPS.map(([, , tone]) => svg("path", { class: `geo-line past geo-${tone}` }, picture));
  const now = STEPS.map(([, , tone]) => svg("path", { class: `geo-vector geo-${tone}` }, picture));
  const point = svg("circle", { class: "geo-dot geo-text", r: 5.5 }, picture);
  let drawn = "";
  const put = (list, s, d) => { if (list[s].d !== d) set(list[s].part, { d: (list[s].d = d) }); };
  const [pasts, nows] = [past, now].map((parts) => parts.map((part) => ({ part, d: "" })));
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
      put(pasts, s, all.slice(0, Math.max(working, 0)).map((each) => stroke(each[from], each[to], s)).join(""));
      const begun = working >= 0 && part > s + 1e-9, end = begun && (part > s + 1 - 1e-9 ? all[working][to] : here);
      const [u, w] = begun && s === 2 ? [all[working][from], end].map((p) => [x(p), y(p)]) : [];
      // The head ends before the dot, which would hide it.
      const size = u && Math.hypot(w[0] - u[0], w[1] - u[1]), ratio = size > 16 ? 1 - 7 / size : 1;
      const straight = u && [...u, ...u.map((value, c) => value + ratio * (w[c] - value))];
      put(nows, s, !begun ? "" : straight ? arrow(...straight) : stroke(all[working][from], end, s));
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

  place.start((state) => {
    drawPlane(state); // it asks for its width: before anything is written, or the page would be laid out twice
    token.update(Math.round(3 * state.token), phase(state.token), 3 * TOKENS);
    gamma.update(state.gamma, show(state.gamma, 3, true), 1);
    turn.update(state.turn, `${show(state.turn, 1, true)}°`, 180);
    example.update(state.example);
    question.textContent = QUESTIONS[state.example];
    const finished = Math.floor(state.token + 1e-9);
    const [x, y] = moment(state), apart = gap(state);
    say(what, ["soft", "shrink"], ", ", ["join", "turn"], ", ", ["cool", "push"],
      `: at p = 1, where φ(k) = k, S\u00a0=\u00a0(${show(x, 3)},\u00a0${show(y, 3)})`);
    const difference = apart < 1e-12 ? "less than 10⁻¹²" : apart.toExponential(1);
    const equal = `After token ${finished} the point and attention’s sum over all keys differ by ${difference}.`;
    say(proof, finished ? equal : "The disk: what a token makes of the state, as one number, and its powers.");
    drawDial(state);
    place.speak(describe(state));
  });
  return () => { stop(); place.close(); };
}

export default { render };
