// The general metric: unit ellipses turn and stretch along the tokens, and transport keeps lengths and scores.
import { ask, clamp, drag, html, more, path, say, set, show, slider, svg, wrap } from "./common.js";
import { stage } from "./stage.js";
import { arrow, handle } from "./draw.js";
import { apply, dot, multiply, rotation, transpose } from "./algebra.js";

// Computing -----------------------------------------------------------------------------------------------------------

const radians = (degrees) => (degrees * Math.PI) / 180;
const power = ({ s1, s2 }, exponent) => [[s1 ** exponent, 0], [0, s2 ** exponent]];

/** M_p = R(-p theta) S^p R(p theta), the metric at position p. */
export function metricAt(state, position) {
  const turn = rotation(radians(position * state.theta));
  return multiply(transpose(turn), multiply(power(state, position), turn));
}

/** T_p = R(-p theta) S^(-p/2), the frame: its columns are the half axes of the ellipse x^T M_p x = 1. */
export function frameAt(state, position) {
  return multiply(rotation(radians(-position * state.theta)), power(state, -position / 2));
}

/** T_p^-1 x = S^(p/2) R(p theta) x, in the reference space. */
export function pullBack(state, position, x) {
  return apply(power(state, position / 2), apply(rotation(radians(position * state.theta)), x));
}

/** T_to T_from^-1 x: a vector carried from one position to another. */
export function carry(state, from, to, x) {
  return apply(frameAt(state, to), pullBack(state, from, x));
}

/** x^T M_p y. */
export function inner(state, position, x, y) {
  return dot(x, apply(metricAt(state, position), y));
}

/** The key k at n and the query q at m, vectors of Euclidean length one, by their angles in degrees. */
export function vectors({ key_angle: keyAngle, query_angle: queryAngle }) {
  const at = (angle) => [Math.cos(radians(angle)), Math.sin(radians(angle))];
  return { k: at(keyAngle), q: at(queryAngle) };
}

/** Both vectors at n, in the reference space and at m, with their lengths and their inner product there. */
export function places(state) {
  const { n, m } = state, { k, q } = vectors(state);
  const measured = (k, q, product) => ({ k, q, keyLength: Math.sqrt(product(k, k)),
    queryLength: Math.sqrt(product(q, q)), score: product(q, k) });
  return {
    n: measured(k, carry(state, m, n, q), (x, y) => inner(state, n, x, y)),
    reference: measured(pullBack(state, n, k), pullBack(state, m, q), dot),
    m: measured(carry(state, n, m, k), q, (x, y) => inner(state, m, x, y)),
  };
}

/** Points of the ellipse x^T M_p x = 1: the frame's image of the unit circle. */
export function ellipse(state, position, samples = 72) {
  const frame = frameAt(state, position);
  return Array.from({ length: samples + 1 }, (_, i) => {
    const turn = (2 * Math.PI * i) / samples;
    return apply(frame, [Math.cos(turn), Math.sin(turn)]);
  });
}

/** What the pictures must hold: the largest coordinate of their ellipses and vectors. */
export function extent(state) {
  const { n, reference, m } = places(state), axes = [state.n, state.m].flatMap((p) => power(state, -p / 2).flat());
  return Math.max(1, ...axes, ...[n, reference, m].flatMap(({ k, q }) => [Math.hypot(...k), Math.hypot(...q)]));
}

/** The state in a sentence, for those who hear the picture. */
export function describe(state) {
  const { n, reference, m } = places(state);
  const three = (name) => [n, reference, m].map((each) => show(each[name])).join(", ");
  return `at position ${show(state.n, 2, true)}, in the reference space and at position ${show(state.m, 2, true)}: `
    + `length of k ${three("keyLength")}, length of q ${three("queryLength")}, score ${three("score")}`;
}

// Drawing -------------------------------------------------------------------------------------------------------------

const NAMES = ["s1", "s2", "theta", "n", "m", "key_angle", "query_angle"];
const LAST = 8; // the last position on the line

const CSS = `
.geo .metric { display: grid; gap: 12px; padding: 14px 16px 18px; }
.geo .metric > div { min-width: 0; }
.geo .metric .panels { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 8px 14px; }
.geo .metric .panels .name { margin: 0; padding: 0; font: 600 14px/1.4 var(--face); text-align: center; border: 0; }
.geo .metric .panels p { text-align: center; font-size: 14px; font-variant-numeric: tabular-nums; }
.geo .metric .panels span { display: inline-block; margin: 0 7px; }
.geo .metric .panels svg, .geo .metric .line svg { overflow: hidden; }
.geo .metric .panels svg { max-width: 200px; margin: 0 auto; }
.geo .metric .shape { fill: none; stroke: var(--rule); stroke-width: 1.2; }
.geo .metric .shape.here { fill: currentColor; fill-opacity: 0.1; stroke: currentColor; stroke-width: 1.8; }
.geo .metric .axes { fill: none; stroke: var(--soft); stroke-width: 1.4; }
.geo .metric .euclid { fill: none; stroke: var(--rule); stroke-dasharray: 2 4; }
.geo .metric .carried { stroke-dasharray: 5 4; }
.geo .metric .halo { paint-order: stroke; stroke: var(--ground); stroke-width: 4px; stroke-linejoin: round; }
@container (max-width: 560px) {
  .geo .metric { padding: 10px 8px 14px; }
  .geo .metric .panels { gap: 8px 4px; }
}`;

/** The line of positions with an ellipse at each, and a rail with a handle for the query above and the key below. */
function line(parent, onPlace) {
  const picture = svg("svg", { role: "img" }, parent), rails = svg("g", {}, picture), shapes = svg("g", {}, picture);
  const ellipses = Array.from({ length: LAST + 1 }, () => svg("path", { class: "shape" }, shapes));
  const own = {}, names = {}, grips = {};
  for (const [who, tone] of [["n", "cool"], ["m", "warm"]]) {
    own[who] = svg("path", { class: `shape here geo-${tone}` }, shapes);
    names[who] = svg("text", { class: `geo-${tone} halo` }, picture);
    grips[who] = handle(picture, tone);
  }
  let edge = 1, gap = 1, drawn = "";
  for (const who of ["n", "m"]) {
    drag(grips[who].reach, { start() {}, move: (x) => onPlace(who, Math.round((4 * (x - edge)) / gap) / 4) });
  }
  return (state, width) => {
    const wide = width > 560, height = wide ? 156 : 140;
    edge = wide ? 56 : 30;
    gap = (width - 2 * edge) / LAST;
    const x = (p) => edge + p * gap, unit = 0.3 * gap, middle = (height - 14) / 2, rail = { m: 18, n: height - 34 };
    if (drawn !== String(width)) {
      drawn = String(width);
      set(picture, { viewBox: `0 0 ${width} ${height}`, height });
      rails.replaceChildren();
      for (const y of Object.values(rail)) svg("path", { class: "geo-zero", d: `M${x(0)} ${y}H${x(LAST)}` }, rails);
      for (let p = 0; p <= LAST; p++) {
        svg("text", { x: x(p), y: height - 3, "text-anchor": "middle" }, rails, String(p));
      }
    }
    const outline = (p) => {
      const points = ellipse(state, p, 36);
      return path(points.map(([u]) => x(p) + unit * u), points.map(([, v]) => middle - unit * v));
    };
    ellipses.forEach((each, p) => set(each, { d: outline(p) }));
    for (const who of ["n", "m"]) {
      set(own[who], { d: outline(state[who]) });
      grips[who].place(x(state[who]), rail[who]);
      const late = state[who] > LAST / 2, beside = x(state[who]) + (late ? -12 : 12);
      const anchor = late ? "end" : "start";
      set(names[who], { x: beside.toFixed(1), y: rail[who] + (who === "m" ? -5 : 14), "text-anchor": anchor });
      names[who].textContent = `${who === "m" ? "query" : "key"} at ${show(state[who], 2, true)}`;
    }
    set(picture, { "aria-label": `Unit ellipses of the metric at the positions 0 to ${LAST}: ${describe(state)}` });
  };
}

/** One place seen from its middle: its unit ellipse, its frame, and both vectors; `own` is the one a hand can turn. */
function panel(parent, title, tone, own, onTurn) {
  const box = html("div", {}, parent), heading = html("div", { class: `name geo-${tone}` }, box, title);
  const picture = svg("svg", { role: "img" }, box), euclid = svg("circle", { class: "euclid" }, picture);
  const shape = svg("path", { class: `shape here geo-${tone}` }, picture);
  const axes = svg("path", { class: "axes" }, picture);
  const arrows = {}, heads = {};
  for (const [name, tone] of [["k", "cool"], ["q", "warm"]]) {
    arrows[name] = svg("path", { class: `geo-vector geo-${tone} ${name === own ? "" : "carried"}` }, picture);
    heads[name] = svg("path", { class: `geo-vector geo-${tone}` }, picture);
  }
  const labels = { k: svg("text", { class: "geo-cool halo", "text-anchor": "middle" }, picture),
    q: svg("text", { class: "geo-warm halo", "text-anchor": "middle" }, picture) };
  const numbers = html("p", {}, box), grip = own && handle(picture, own === "k" ? "cool" : "warm", 5);
  let side = 1; // of the picture, in pixels
  if (grip) drag(grip.reach, { start() {}, move: (x, y) => onTurn(Math.atan2(side / 2 - y, x - side / 2)) });

  return (state, position, { k, q, keyLength, queryLength, score }, { size, reach }, words) => {
    side = size;
    // The reference space looks as the place of position 0 does: its frame is the identity.
    const unit = (side / 2 - 14) / reach, middle = side / 2, frame = frameAt(state, position ?? 0);
    const at = ([u, v]) => [middle + unit * u, middle - unit * v];
    set(picture, { viewBox: `0 0 ${side} ${side}`, height: side });
    set(euclid, { cx: middle, cy: middle, r: unit });
    const points = ellipse(state, position ?? 0).map(at);
    set(shape, { d: path(points.map(([x]) => x), points.map(([, y]) => y)) });
    set(axes, { d: transpose(frame).map((column) => arrow(middle, middle, ...at(column), 6)).join("") });
    let before = [-99, -99]; // where the first label stands: the second gives way to it
    for (const [name, vector] of [["k", k], ["q", q]]) {
      const [x, y] = at(vector), length = Math.hypot(...vector) || 1, away = 12 / unit;
      const [, shaft, head] = arrow(middle, middle, x, y, side > 150 ? 8 : 6).split("M");
      set(arrows[name], { d: `M${shaft}` });
      set(heads[name], { d: `M${head}` }); // apart from the shaft, whose dashes would break it
      const [tx, ty] = at(vector.map((each) => each * (1 + away / length)));
      const near = Math.abs(tx - before[0]) < 28 && Math.abs(ty - before[1]) < 13;
      const lower = near ? before[1] + 14 - ty : 0;
      set(labels[name], { x: clamp(tx, 14, side - 14).toFixed(1), y: clamp(ty + 4 + lower, 12, side - 4).toFixed(1) });
      before = [tx, ty];
      labels[name].textContent = words[name];
      if (name === own) grip.place(x, y);
    }
    heading.textContent = title + (position === null ? "" : ` ${show(position, 2, true)}`);
    const said = [["cool", "|k| = ", keyLength], ["warm", "|q| = ", queryLength], ["join", "score ", score]];
    numbers.replaceChildren(...said.map(([kind, name, value]) => {
      const piece = html("span", {}, null, name);
      html("b", { class: `geo-${kind}` }, piece, show(value));
      return piece;
    }));
    set(picture, { "aria-label": `${heading.textContent}: length of k ${show(keyLength)}, length of q `
      + `${show(queryLength)}, score ${show(score)}` });
  };
}

// Putting it together -------------------------------------------------------------------------------------------------

function render({ model, el }) {
  const place = stage({ model, el }, NAMES, CSS);
  const { change, read } = place;
  const root = html("div", { class: "metric", role: "group", "aria-label": "The general metric" }, place.root);
  const degrees = (angle) => Math.round((wrap(angle) * 180) / Math.PI);

  ask(root, "Drag the key along the line. Three places measure its score with the query: do they agree?");
  const first = html("p", { class: "geo-say" }, root), top = html("div", { class: "line geo-stay" }, root);
  const drawLine = line(top, (who, position) => change({ [who]: clamp(position, 0, LAST) }));
  const panels = html("div", { class: "panels" }, root);
  const atN = panel(panels, "At n =", "cool", "k", (angle) => change({ key_angle: degrees(angle) }));
  const between = panel(panels, "Reference", "text", null);
  const atM = panel(panels, "At m =", "warm", "q", (angle) => change({ query_angle: degrees(angle) }));
  html("p", { class: "geo-note" }, root, "Shaded: the vectors of length up to 1 there, with the frame T as half axes. "
    + "Dashed: carried there from the other place by P = T T⁻¹. Dotted: the Euclidean unit circle.");

  const control = (parent, label, name, tone, min, max, step) => {
    const { update } = slider(parent, { label, min, max, step, tone, onInput: (value) => change({ [name]: value }) });
    return update;
  };
  const rest = more(root, "By numbers: the metric, and what the hand drags above");
  const s1 = control(rest, "Scale s₁", "s1", "text", 0.8, 1.2, 0.01);
  const s2 = control(rest, "Scale s₂", "s2", "text", 0.8, 1.2, 0.01);
  const theta = control(rest, "Turn θ", "theta", "text", -45, 45, 1);
  const n = control(rest, "Key at n", "n", "cool", 0, LAST, 0.25);
  const m = control(rest, "Query at m", "m", "warm", 0, LAST, 0.25);
  const keyAngle = control(rest, "Angle of k", "key_angle", "cool", -180, 180, 1);
  const queryAngle = control(rest, "Angle of q", "query_angle", "warm", -180, 180, 1);

  place.start((state) => {
    // Sizes first: each asked for after something has been drawn would cost a layout.
    const width = Math.max(200, Math.round(top.clientWidth)), reach = extent(state);
    const view = { size: Math.max(90, Math.min(200, Math.round(panels.firstChild.clientWidth))), reach };
    const here = places(state), position = (value) => show(value, 2, true);
    s1(state.s1, show(state.s1));
    s2(state.s2, show(state.s2));
    theta(state.theta, `${show(state.theta, 1, true)}° a token`);
    n(state.n, position(state.n));
    m(state.m, position(state.m));
    keyAngle(state.key_angle, `${show(state.key_angle, 1, true)}°`);
    queryAngle(state.query_angle, `${show(state.query_angle, 1, true)}°`);
    const same = [here.n, here.reference, here.m].map(({ score }) => show(score)).join(" = ");
    const { k, q } = vectors(state);
    say(first, "Score at n, in the reference, at m: ", ["join", same],
      `; plain q · k: ${show(dot(q, k))}.`);
    drawLine(state, width);
    atN(state, state.n, here.n, view, { k: "k", q: "Pq" });
    between(state, null, here.reference, view, { k: "T⁻¹k", q: "T⁻¹q" });
    atM(state, state.m, here.m, view, { k: "Pk", q: "q" });
    place.speak(describe(state));
  });
  return place.close;
}

export default { render };
