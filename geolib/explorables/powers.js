// Even powers: (q.k)^p falls like exp to the front, rises again behind, and needs only finitely many features.
import { ask, clamp, drag, html, more, path, say, set, show, slider, stage, svg } from "./common.js";
import { arrow, chart, handle } from "./draw.js";
import { dot } from "./algebra.js";

// Computing -----------------------------------------------------------------------------------------------------------

/** (q.k)^p of unit vectors, `degrees` apart. */
export function powerKernel(degrees, power) {
  return Math.cos((degrees * Math.PI) / 180) ** power;
}

/** exp(beta q.k) of unit vectors, `degrees` apart, over its value at 0. */
export function softmaxKernel(degrees, beta) {
  return Math.exp(beta * (Math.cos((degrees * Math.PI) / 180) - 1));
}

/** phi^p(v): a coordinate for each monomial of degree p in lexical order, weighted so that phi(v).phi(w) = (v.w)^p. */
export function embed(v, power) {
  const found = [];
  // The multinomial p! / (a_1! a_2! ...) is a product of binomials: one for each variable, of the places still free.
  const grow = (i, free, value, weight) => {
    if (i === v.length - 1) return found.push(value * v[i] ** free * Math.sqrt(weight));
    for (let a = free; a >= 0; a--) grow(i + 1, free - a, value * v[i] ** a, weight * features(free - a + 1, a));
  };
  grow(0, power, 1, 1);
  return found;
}

/** The kernel of unit vectors in the plane as the inner product of their p + 1 features. */
export function featureKernel(degrees, power) {
  const angle = (degrees * Math.PI) / 180;
  return dot(embed([1, 0], power), embed([Math.cos(angle), Math.sin(angle)], power));
}

/** binom(d + p - 1, p) as a float, for real d as well: how many features phi^p has in R^d. */
export function features(dim, power) {
  let product = 1;
  for (let i = 1; i <= power; i++) product *= (dim + i - 1) / i;
  return product;
}

/** binom(d + p - 1, p) and d^p for whole numbers, every digit. */
export function digits(dim, power) {
  let product = 1n;
  for (let i = 1n; i <= power; i++) product = (product * (BigInt(dim) + i - 1n)) / i;
  return [String(product), String(BigInt(dim) ** BigInt(power))];
}

/** Digits in groups of three; more than 15 of them as a power of ten when `short` is asked for. */
export function grouped(text, short = false) {
  if (short && text.length > 15) return `${show(Number(text) / 10 ** (text.length - 1))}·10${raised(text.length - 1)}`;
  return text.replace(/\B(?=(\d{3})+$)/g, ",");
}

const plural = (count, word) => (count === "1" ? word : `${word}s`);

/** The state in a sentence, for those who hear the picture. */
export function describe({ power, dim, beta, angle }) {
  const [few, many] = digits(dim, power).map((text) => grouped(text));
  return `power ${power}, a key at ${show(angle, 1, true)} degrees: `
    + `power kernel ${show(powerKernel(angle, power), 3)}, `
    + `softmax kernel with beta ${show(beta, 2, true)} ${show(softmaxKernel(angle, beta), 3)}; `
    + `${few} ${plural(few, "feature")} for head dimension ${dim}, of ${many} ${plural(many, "product")}`;
}

// Drawing -------------------------------------------------------------------------------------------------------------

const POWERS = [2, 4, 6, 8, 10, 12, 14, 16];
const MOST = 128; // dimension
const NAMES = ["power", "dim", "beta", "angle"];

const CSS = `
.geo .powers svg:not(.circle) { margin-top: auto; touch-action: pan-y; cursor: ew-resize; }
.geo .powers .rim { fill: none; stroke: var(--rule); } .geo .powers .axis { fill: none; stroke: var(--line); }
.geo .powers .halo { paint-order: stroke; stroke: var(--ground); stroke-width: 4px; stroke-linejoin: round; }
.geo .powers .geo-ask { grid-column: 1 / -1; }
.geo .powers .exp { stroke-dasharray: 7 4; }
.geo .powers .tensor { stroke-dasharray: 1.5 5; }
.geo .powers .other { stroke-width: 1; opacity: 0.75; }
.geo .powers .stem { stroke: var(--rule); stroke-dasharray: 2 3; }
.geo .powers .ring { fill: var(--ground); stroke: currentColor; stroke-width: 2.5; }
.geo .powers .half { display: grid; gap: 10px; align-content: start; min-width: 0; }
.geo .powers .geo-say { min-height: 2.8em; }`;

/** A number as superscript. */
function raised(number) {
  return String(number).replace(/\d/g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]);
}

/** The query to the right, the key on a circle, and in each direction both kernels as distances from the middle. */
function circle(parent, onAngle) {
  const picture = svg("svg", { role: "img", class: "circle" }, parent);
  const grid = svg("g", {}, picture), power = svg("path", { class: "geo-line geo-warm" }, picture);
  const exp = svg("path", { class: "geo-line geo-cool exp" }, picture);
  const query = svg("path", { class: "geo-vector geo-warm" }, picture);
  const key = svg("path", { class: "geo-vector geo-cool" }, picture);
  const ring = svg("circle", { class: "geo-cool ring", r: 6 }, picture);
  const mark = svg("circle", { class: "geo-warm geo-dot", r: 5 }, picture);
  const word = (tone, text) => svg("text", { class: `geo-${tone} halo`, "text-anchor": "middle" }, picture, text);
  const names = {
    q: word("warm", "query q"), k: word("cool", "key k"), power: word("warm", ""), exp: word("cool", "exp"),
  };
  const tip = handle(picture, "cool", 7);
  let size = 1, radius = 1;
  const at = (degrees, share) => {
    const angle = (degrees * Math.PI) / 180;
    return [size / 2 + radius * share * Math.cos(angle), radius + 26 - radius * share * Math.sin(angle)];
  };
  const put = (text, degrees, share, down = 4) => {
    const [x, y] = at(degrees, share);
    set(text, { x: x.toFixed(1), y: (y + down).toFixed(1) });
  };
  const follow = (x, y) => onAngle((Math.atan2(radius + 26 - y, x - size / 2) * 180) / Math.PI);
  drag(tip.reach, { start() {}, move: follow });
  const line = (kernel) => {
    const points = Array.from({ length: 181 }, (_, i) => at(2 * i, kernel(2 * i)));
    return `${path(points.map(([x]) => x), points.map(([, y]) => y))}Z`;
  };
  let drawn = "";
  return (state) => {
    size = Math.max(200, Math.round(parent.clientWidth));
    radius = Math.min(size / 2 - 44, 130);
    const now = [size, state.power, state.beta].join();
    if (now !== drawn) {
      drawn = now;
      set(picture, { viewBox: `0 0 ${size} ${2 * radius + 52}`, height: 2 * radius + 52 });
      grid.replaceChildren();
      const [cx, cy] = at(0, 0);
      for (const share of [0.5, 1]) svg("circle", {
        class: share < 1 ? "axis" : "rim", cx, cy, r: radius * share }, grid);
      set(power, { d: line((degrees) => powerKernel(degrees, state.power)) });
      set(exp, { d: line((degrees) => softmaxKernel(degrees, state.beta)) });
      set(query, { d: arrow(...at(0, 0), ...at(0, 1), 9) });
      put(names.q, 0, 1, -12);
      names.power.textContent = `(q·k)${raised(state.power)}`;
    }
    // The key's name outside the circle, the curves' names inside, where the key is not.
    const low = state.angle <= 0, near = Math.abs(state.angle) < 24;
    put(names.k, state.angle, 1 + 28 / radius, near ? (low ? 22 : -22) : 4);
    put(names.power, 180, 0.62, low ? -34 : 42);
    put(names.exp, 0, 0.62, low ? -34 : 42);
    tip.place(...at(state.angle, 1));
    set(key, { d: arrow(...at(0, 0), ...at(state.angle, 1), 9) });
    for (const [dot, share] of [[mark, powerKernel(state.angle, state.power)], [ring, softmaxKernel(state.angle,
      state.beta)]]) {
      const [cx, cy] = at(state.angle, share);
      set(dot, { cx: cx.toFixed(1), cy: cy.toFixed(1) });
    }
    set(picture, { "aria-label": `Two kernels in each direction of the key: ${describe(state)}` });
  };
}

/** The number of features against the dimension, both on scales of factors; d^p is a straight line there. */
function growth(parent, onDim) {
  const plot = chart(parent), { picture, marks, x, y } = plot;
  const others = POWERS.map(() => svg("path", { class: "geo-line geo-soft other" }, marks));
  const labels = POWERS.map((p) => svg("text", {}, marks, `p = ${p}`));
  const stem = svg("line", { class: "stem" }, marks);
  const tensor = svg("path", { class: "geo-line geo-join tensor" }, marks);
  const name = svg("text", { class: "geo-join", "text-anchor": "end" }, marks);
  const line = svg("path", { class: "geo-line geo-warm" }, marks);
  const ring = svg("circle", { class: "geo-join ring", r: 5 }, marks);
  const mark = svg("circle", { class: "geo-warm geo-dot", r: 6 }, marks);
  const follow = (px) => onDim(clamp(Math.round(2 ** plot.atX(px)), 1, MOST));
  set(picture, { "data-drag": "" });
  drag(picture, { start: follow, move: follow });
  const steps = Array.from({ length: 71 }, (_, i) => i / 10), xs = () => steps.map(x);
  const decades = (dim, power) => Math.log10(features(dim, power));
  let drawn = 0;

  const curves = (power) => {
    const curve = (p) => path(xs(), steps.map((s) => y(decades(2 ** s, p))));
    let free = 0; // from the chosen power's label downwards, a label only where there is room for one
    for (let i = POWERS.length - 1; i >= 0; i--) {
      const p = POWERS[i], above = y(decades(MOST, p)), shown = p <= power && (p === power || above > free);
      set(others[i], { d: p < power ? curve(p) : "" });
      set(labels[i], { x: x(7) + 9, y: above + 4, class: p === power ? "geo-warm" : "",
        visibility: shown ? "visible" : "hidden" });
      if (shown) free = above + 14;
    }
    set(line, { d: curve(power) });
    set(tensor, { d: path([x(0), x(7)], [y(0), y(power * Math.log10(MOST))]) });
    set(name, { x: x(5.4) - 12, y: y(5.4 * power * Math.log10(2)) });
    name.textContent = `d${raised(power)}`;
  };
  return (state) => {
    const most = Math.ceil(state.power * Math.log10(MOST)), gap = Math.max(1, Math.round(most / 6));
    const tick = (e) => [e, e ? `10${raised(e)}` : "1"];
    const yTicks = Array.from({ length: Math.floor(most / gap) + 1 }, (_, i) => tick(i * gap));
    const xTicks = Array.from({ length: 8 }, (_, i) => [i, String(2 ** i)]);
    const moved = plot.frame({ xs: [0, 7], ys: [0, most], height: 250, xTicks, yTicks, xLabel: "head dimension d",
      room: 52 });
    if (moved || state.power !== drawn) curves(state.power);
    drawn = state.power;
    const place = Math.log2(state.dim), cx = x(place).toFixed(1);
    set(stem, { x1: cx, x2: cx, y1: y(0), y2: y(most) });
    set(mark, { cx, cy: y(decades(state.dim, state.power)).toFixed(1) });
    set(ring, { cx, cy: y(state.power * Math.log10(state.dim)).toFixed(1) });
    set(picture, { "aria-label": `Number of features against head dimension, both logarithmic: ${describe(state)}` });
  };
}

// Putting it together -------------------------------------------------------------------------------------------------

function render({ model, el }) {
  const place = stage({ model, el }, NAMES, CSS);
  const { change } = place;
  const whole = html("div", { class: "powers", role: "group", "aria-label": "Even powers" }, place.root);
  const columns = html("div", { class: "geo-columns" }, whole);
  ask(columns, "Turn the key to the side opposite the query. What does each kernel make of it?");
  const [left, right] = [1, 2].map(() => html("div", { class: "half" }, columns));
  const drawCircle = circle(html("div", { class: "geo-stay" }, left), (angle) => change({ angle: Math.round(angle) }));
  const likeness = html("p", { class: "geo-say" }, left), note = html("p", { class: "geo-note" }, left);
  const add = (parent, name, label, tone, min, max, step) =>
    slider(parent, { label, min, max, step, tone, onInput: (value) => change({ [name]: value }) });
  const angle = add(left, "angle", "Angle from q to k", "cool", -180, 180, 1);
  const power = add(left, "power", "Power p, even", "warm", 2, 16, 2);
  const beta = add(more(left), "beta", "Softmax’s scale β in exp β(q·k − 1)", "cool", 0, 16, 0.1);
  const price = html("p", { class: "geo-say" }, right);
  html("p", { class: "geo-note" }, right, "Features that each power needs; exp would need infinitely many.");
  const drawGrowth = growth(html("div", {}, right), (dim) => change({ dim }));
  const dim = add(right, "dim", "Head dimension d", "text", 1, MOST, 1);

  place.start((state) => {
    power.update(state.power, String(state.power));
    angle.update(state.angle, `${show(state.angle, 1, true)}°`);
    beta.update(state.beta, show(state.beta, 2, true));
    dim.update(state.dim, String(state.dim));
    say(likeness, ["warm geo-full", ""], ` (q·k)${raised(state.power)} = `,
      ["warm", show(powerKernel(state.angle, state.power), 3)], ", ", ["cool geo-ring", ""], " exp = ",
      ["cool", show(softmaxKernel(state.angle, state.beta), 3)]);
    note.textContent = `In the plane, φ(q)·φ(k) of ${state.power + 1} features each: `
      + show(featureKernel(state.angle, state.power), 3);
    const [few, many] = digits(state.dim, state.power);
    say(price, `d = ${state.dim}, p = ${state.power}: `, ["warm", grouped(few)], ` ${plural(few, "feature")}, of `,
      ["join", `${state.dim}${raised(state.power)} = ${grouped(many, true)}`], ` ${plural(many, "product")}`);
    drawCircle(state);
    drawGrowth(state);
    place.speak(describe(state));
  });
  return () => place.close();
}

export default { render };
