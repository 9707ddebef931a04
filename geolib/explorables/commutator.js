// Two turns in two orders: a die turned about two axes, first one then the other, and what half the bracket foretells.
import { ask, clamp, html, more, path, runner, say, set, show, slider, svg } from "./common.js";
import { stage } from "./stage.js";
import { chart } from "./draw.js";
import { sealed, wager } from "./guess.js";
import { apply, combine, dot, expm, multiply, norm, skew, transpose } from "./algebra.js";
import { facesSeen, gaze, pull, rim } from "./solid.js";

// Computing -----------------------------------------------------------------------------------------------------------

const DEGREE = Math.PI / 180;

/** The two generators: turns by `size` degrees about the upright axis and about one that leans by `between` degrees. */
export function generators({ size, between }) {
  const lean = between * DEGREE;
  return [[0, 0, 1], [Math.sin(lean), 0, Math.cos(lean)]].map((axis) => {
    const [x, y, z] = axis.map((value) => size * DEGREE * value);
    return skew([-z, y, -x], 3); // A v = axis x v
  });
}

/** The die of each order after a share t of its way: the first half of the time for the first turn, then the second. */
export function turned(state) {
  const [first, second] = generators(state), one = clamp(2 * state.t, 0, 1), two = clamp(2 * state.t - 1, 0, 1);
  const part = (a, share) => expm(combine(share, a, 0, a));
  return [[first, second], [second, first]].map(([a, b]) => multiply(part(b, two), part(a, one)));
}

/** Both turns at once: exp(X1 + X2). */
export function together(state) {
  const [first, second] = generators(state);
  return expm(combine(1, first, 1, second));
}

/** The angle of the rotation that leads from one rotation to another, 0 to pi. */
export function apart(r, s) {
  const c = multiply(transpose(r), s), sine = norm([c[2][1] - c[1][2], c[0][2] - c[2][0], c[1][0] - c[0][1]]) / 2;
  return Math.atan2(sine, (c[0][0] + c[1][1] + c[2][2] - 1) / 2);
}

/** Between the two orders, from one of them to both turns at once, and half the size of [X1, X2], in radians. */
export function gaps(state) {
  const [one, other] = turned({ ...state, t: 1 }), [a, b] = generators(state);
  const c = combine(1, multiply(a, b), -1, multiply(b, a));
  return { orders: apart(one, other), missed: apart(together(state), one),
    foretold: norm([c[0][1], c[0][2], c[1][2]]) / 2 };
}

const degrees = (angle) => `${show(angle / DEGREE, angle < 10 * DEGREE ? 2 : 1)}°`;

/** How far the turns are, in a sentence. */
const making = ({ size, between, t }) =>
  `Two turns of ${show(size, 0)}° about axes ${show(between, 0)}° apart, ${show(100 * t, 0)} % made.`;

/** The state in a sentence, for those who hear the picture. */
export function describe(state) {
  const found = gaps(state);
  return `${making(state)} In two orders they end ${degrees(found.orders)} apart; each misses `
    + `exp(X1 + X2) by ${degrees(found.missed)}, half the bracket foretells ${degrees(found.foretold)}`;
}

// Drawing -------------------------------------------------------------------------------------------------------------

const NAMES = ["size", "between", "t", "turn", "tilt"];
const HALF = 0.58; // of the die's edge
// Where a face's dots stand, in quarters of its edge.
const DOTS = { 1: "00", 2: "-+ +-", 3: "-+ 00 +-", 4: "-- -+ +- ++", 5: "-- -+ 00 +- ++", 6: "-- -0 -+ +- +0 ++" };
const CSS = `
.geo .commutator > :is(.geo-ask, .geo-say) { grid-column: 1 / -1; }
.geo .commutator .dice { grid-column: 1 / -1; display: grid; grid-template-columns: 1fr 1fr; gap: 4px; }
.geo .commutator .dice svg { max-height: 300px; }
.geo .commutator .dots { fill: var(--text); } .geo .commutator .axis { pointer-events: none; }
.geo .commutator .ghost { fill: none; stroke: var(--join); stroke-width: 1.6; stroke-dasharray: 4 4; }
.geo .commutator .still { stroke-width: 1.2; opacity: 0.6; }
.geo .commutator .name { font-size: 14px; font-weight: 650; paint-order: stroke; stroke: var(--ground);
  stroke-width: 3px; }
.geo .commutator .side { display: grid; gap: 10px; align-content: center; }
.geo .commutator .run { display: grid; grid-template-columns: auto 1fr; gap: 4px 16px; align-items: center; }
.geo .commutator .run button { min-width: 84px; }
.geo .commutator .foretold { stroke-dasharray: 5 4; }
.geo .commutator svg text.geo-text { paint-order: stroke; stroke: var(--ground); stroke-width: 4px; }`;

/** One die with its two axes: `draw({ r, aim, pairOf, turning, view, spoken })`; `aim` is null while it is sealed. */
function die(parent, order) {
  const picture = svg("svg", { role: "img", viewBox: "-100 -112 200 212" }, parent);
  const behind = svg("g", { class: "axis" }, picture), faces = [0, 1, 2].map(() => // they stay: a finger may lie on one
    ["face geo-face", "dots"].map((name) => svg("path", { class: name }, picture)));
  const ghost = svg("path", { class: "ghost" }, picture), before = svg("g", { class: "axis" }, picture);
  const title = svg("text", { class: "geo-text name", x: 0, y: 96, "text-anchor": "middle" }, picture);
  title.textContent = `first ${order[0]}, then ${order[1]}`;
  let view = gaze(0, 0);
  const flat = (p) => [92 * dot(p, view[0]), -92 * dot(p, view[1]) - 8];
  const pair = (p) => flat(p).map((value) => value.toFixed(1)).join(" ");
  const closed = (points) => `M${points.map(pair).join("L")}Z`;
  const number = (sign) => ({ "-": -0.5, "0": 0, "+": 0.5 })[sign];
  const spot = ({ at }, [u, v]) => closed(Array.from({ length: 12 }, (_, i) => {
    const angle = (i * Math.PI) / 6;
    return at(number(u) + 0.17 * Math.cos(angle), number(v) + 0.17 * Math.sin(angle));
  }));
  return ({ r, aim, pairOf, turning, view: now, spoken }) => {
    view = now;
    facesSeen(r, [HALF, HALF, HALF], view).concat([null, null]).slice(0, 3).forEach((face, i) => {
      const [body, dots] = faces[i], count = face?.side > 0 ? face.axis + 1 : 6 - face?.axis;
      set(body, { style: face?.shade ?? "", d: face ? closed(rim(face)) : "" });
      set(dots, { d: face ? DOTS[count].split(" ").map((at) => spot(face, at)).join("") : "" });
    });
    const seen = aim ? facesSeen(aim, [HALF, HALF, HALF], view) : [];
    set(ghost, { d: seen.map((face) => closed(rim(face))).join("") });
    behind.replaceChildren();
    before.replaceChildren();
    const placed = []; // the second name stands beside the first where both axes are nearly one
    pairOf.forEach((a, i) => {
      const axis = [a[2][1], a[0][2], a[1][0]], size = norm(axis) || 1, unit = axis.map((value) => value / size);
      const inside = apply(transpose(r), unit), out = HALF / Math.max(...inside.map(Math.abs));
      const tone = i ? "cool" : "warm", style = `geo-line geo-${tone}${turning === i ? "" : " still"}`;
      for (const sign of [1, -1]) {
        const layer = sign * dot(unit, view[2]) >= 0 ? before : behind, at = (d) => pair(unit.map((x) => sign * d * x));
        svg("path", { class: style, d: `M${at(out)}L${at(1.02)}` }, layer);
      }
      const [tip, y] = flat(unit.map((value) => 1.13 * value));
      const near = placed.some(([u, v]) => Math.abs(u - tip) < 24 && Math.abs(v - y) < 14), x = near ? tip + 26 : tip;
      placed.push([x, y]);
      const down = Math.min(y + 4, 78).toFixed(1); // above the title
      const place = { class: `geo-${tone} name`, x: x.toFixed(1), y: down, "text-anchor": "middle" };
      svg("text", { ...place, style: "fill: currentColor" }, before, i ? "X₂" : "X₁");
    });
    set(picture, { "aria-label": `A die, ${title.textContent}: ${spoken}` });
  };
}

/** What each order misses and what is foretold, against the size of the turns. */
function curves(parent) {
  const { picture, marks, frame, x, y } = chart(parent), missed = svg("path", { class: "geo-line geo-join" }, marks);
  const line = svg("path", { class: "geo-line geo-text foretold" }, marks);
  const mark = svg("circle", { class: "geo-dot geo-join", r: 6 }, marks);
  const words = ["missed", "½|[X₁, X₂]|"].map((text, i) => {
    const label = svg("text", { class: i ? "geo-text" : "geo-join", style: "fill: currentColor" }, marks);
    label.textContent = text;
    return label;
  });
  let drawn = NaN;
  return ({ size, between }, spoken, open) => {
    [missed, mark, words[0]].forEach((each) => set(each, { visibility: open ? "visible" : "hidden" }));
    const ticks = (...values) => values.map((value) => [value, `${value}°`]);
    const fresh = frame({ xs: [0, 120], ys: [0, 120], height: 200, xTicks: ticks(0, 30, 60, 90, 120),
      yTicks: ticks(0, 40, 80, 120), xLabel: "size of both turns", room: 56 });
    if (fresh || between !== drawn) {
      const sizes = Array.from({ length: 41 }, (_, i) => 3 * i), found = sizes.map((s) => gaps({ size: s, between }));
      const foretold = found.map((each) => each.foretold / DEGREE);
      const last = foretold.findLastIndex((value) => value <= 120);
      set(missed, { d: path(sizes.map(x), found.map((each) => y(each.missed / DEGREE))) });
      set(line, { d: path(sizes.slice(0, last + 1).map(x), foretold.slice(0, last + 1).map(y)) });
      set(words[0], { x: x(120) + 6, y: (y(found.at(-1).missed / DEGREE) + 4).toFixed(1) });
      const out = last < sizes.length - 1; // beside a curve that leaves the frame, above one that ends in it
      set(words[1], { "text-anchor": "end", x: (x(sizes[last]) - (out ? 20 : 0)).toFixed(1),
        y: (y(foretold[last]) + (out ? 4 : -8)).toFixed(1) });
      drawn = between;
    }
    set(mark, { cx: x(size).toFixed(1), cy: y(gaps({ size, between }).missed / DEGREE).toFixed(1) });
    set(picture, { "aria-label": `Curves of what is missed and what is foretold, against the size. ${spoken}` });
  };
}

// Putting it together -------------------------------------------------------------------------------------------------

function render({ model, el }) {
  const place = stage({ model, el }, NAMES, CSS), { change, read } = place;
  const all = html("div", { class: "commutator geo-columns", role: "group", "aria-label": "Two turns in two orders" },
    place.root);
  ask(all, "Two dice make the same two turns, in two orders. Will they show the same faces?");
  const bet = wager(all, [["same", "The same"], ["other", "Others"]], () => stop.go());
  const sentence = html("p", { class: "geo-say" }, all);
  const dice = html("div", { class: "dice geo-stay geo-turns", "data-drag": "" }, all);
  const draw = [["X₁", "X₂"], ["X₂", "X₁"]].map((order) => die(dice, order));
  pull(dice, read, change);
  const side = html("div", { class: "side" }, all);
  const row = html("div", { class: "run geo-panel" }, side);
  const stop = runner(row, {
    begin() { if (read().t >= 1) change({ t: 0 }); },
    step(seconds, calm) {
      const next = Math.min(1, read().t + (calm ? 0.5 : 0.35 * seconds));
      change({ t: next });
      return next < 1;
    },
  });
  const time = slider(row, { label: "Time", min: 0, max: 1, step: 0.01, onInput: (t) => change({ t }) });
  const size = slider(side, { label: "Size of both turns", min: 0, max: 120, step: 1, tone: "join",
    onInput: (value) => change({ size: value, t: 1 }) });
  const between = slider(side, { label: "Angle between the axes", min: 0, max: 90, step: 1,
    onInput: (value) => change({ between: value, t: 1 }) });
  const note = html("p", { class: "geo-note" }, side, "");
  const eye = more(side, "Turn the dice"), looks = [["turn", 180, "To the side"], ["tilt", 90, "Up and down"]].map(
    ([name, max, label]) => [name, slider(eye, { label, min: -max, max, step: 1,
      onInput: (value) => change({ [name]: value }) })]);
  const drawCurves = curves(html("div", {}, all));

  place.start((state) => {
    const found = gaps(state), pairOf = generators({ ...state, size: state.size || 1 });
    const right = found.orders < 0.01 ? "same" : "other";
    bet.update(state.t >= 1, right);
    const spoken = bet.open ? describe(state) + bet.said(right) : making(state);
    size.update(state.size, `${show(state.size, 0)}°`);
    between.update(state.between, `${show(state.between, 0)}°`);
    for (const [name, look] of looks) look.update(state[name], `${show(state[name], 0)}°`);
    const half = state.t <= 0 || state.t >= 1 ? -1 : state.t > 0.5 ? 1 : 0;
    time.update(state.t, half < 0 ? (state.t ? "both made" : "at rest") : `turn ${half + 1} of 2`);
    say(sentence, "The two orders end ", ["text", sealed(bet, degrees(found.orders))], " apart. Each misses the joint "
      + "turn by ", ["join", sealed(bet, degrees(found.missed))], "; ½|[X₁, X₂]| = ",
      ["text", degrees(found.foretold)]);
    note.textContent = "[X₁, X₂] = X₁X₂ − X₂X₁, and |·| is the angle that a skew matrix turns by."
      + (bet.open ? " Dashed: both turns at once, exp(X₁ + X₂)." : "");
    const view = gaze(state.turn, state.tilt), aim = bet.open ? together(state) : null;
    turned(state).forEach((r, i) => draw[i]({ r, aim, pairOf, view, spoken,
      turning: half < 0 ? -1 : (i ? 1 - half : half) }));
    drawCurves(state, spoken, bet.open);
    place.speak(spoken);
  }, { apart: (state) => gaps(state).orders / DEGREE });
  return () => {
    stop();
    place.close();
  };
}

export default { render };
