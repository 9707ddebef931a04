// Even powers: (q.k)^p falls like exp to the front, rises again behind, and needs only finitely many features.
import { clamp, drag, html, path, say, set, show, slider, stage, svg } from "./common.js";
import { chart } from "./draw.js";
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
.geo .powers svg { margin-top: auto; touch-action: pan-y; cursor: ew-resize; }
.geo .powers .geo-panel { grid-column: 1 / -1;
  grid-template-columns: repeat(auto-fit, minmax(min(300px, 100%), 1fr)); }
.geo .powers .exp { stroke-dasharray: 7 4; }
.geo .powers .tensor { stroke-dasharray: 1.5 5; }
.geo .powers .other { stroke-width: 1; opacity: 0.75; }
.geo .powers .stem { stroke: var(--rule); stroke-dasharray: 2 3; }
.geo .powers .ring { fill: var(--ground); stroke: currentColor; stroke-width: 2.5; }
.geo .powers .geo-note { margin-bottom: 10px; }
.geo .powers .half { display: flex; flex-direction: column; }
.geo .powers .half:nth-child(2) .geo-say { min-height: 2.8em; }`;

/** A number as superscript. */
function raised(number) {
  return String(number).replace(/\d/g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]);
}

/** Both kernels around the circle, and a key that moves along them. */
function circle(parent, onAngle) {
  const plot = chart(parent), { picture, marks, x, y } = plot;
  const stem = svg("line", { class: "stem" }, marks);
  const power = svg("path", { class: "geo-line geo-warm" }, marks);
  const exp = svg("path", { class: "geo-line geo-cool exp" }, marks);
  const names = [svg("text", { class: "geo-warm" }, marks), svg("text", { class: "geo-cool" }, marks)];
  const ring = svg("circle", { class: "geo-cool ring", r: 6 }, marks);
  const mark = svg("circle", { class: "geo-warm geo-dot", r: 6 }, marks);
  const follow = (px) => onAngle(plot.atX(px));
  set(picture, { "data-drag": "" });
  drag(picture, { start: follow, move: follow });
  const degrees = Array.from({ length: 361 }, (_, i) => i - 180);
  let drawn = "";

  const curves = (state) => {
    const xs = degrees.map(x);
    set(power, { d: path(xs, degrees.map((a) => y(powerKernel(a, state.power)))) });
    set(exp, { d: path(xs, degrees.map((a) => y(softmaxKernel(a, state.beta)))) });
    // Each name beside its curve, where the other one is not: at the lobe behind, and right of both to the front.
    const lobe = (Math.acos(0.7 ** (1 / state.power)) * 180) / Math.PI;
    const slope = (Math.acos(Math.max(-1, 1 + Math.log(0.7) / (state.beta || 1e-9))) * 180) / Math.PI;
    const right = Math.min(x(Math.max(lobe, slope)) + 8, x(180 - lobe) - 90), under = plot.atX(right);
    const height = y(0.7) < y(softmaxKernel(under, state.beta)) ? y(0.7) : y(softmaxKernel(under, state.beta)) - 4;
    set(names[0], { x: x(lobe - 180) + 7, y: y(0.7) });
    names[0].textContent = `(q·k)${raised(state.power)}`;
    set(names[1], { x: right, y: Math.max(height, y(1) + 16) }); // below a flat curve
    names[1].textContent = "exp β(q·k − 1)";
  };
  return (state) => {
    const ticks = [-180, -90, 0, 90, 180].map((a) => [a, `${show(a, 0)}°`]);
    const moved = plot.frame({ xs: [-180, 180], ys: [0, 1.04], height: 250, xTicks: ticks, yTicks: [0, 0.5, 1],
      xLabel: "angle between q and k", room: 14 });
    const now = [state.power, state.beta].join();
    if (moved || now !== drawn) curves(state);
    drawn = now;
    const cx = x(state.angle).toFixed(1);
    set(stem, { x1: cx, x2: cx, y1: y(0), y2: y(1.04) });
    set(mark, { cx, cy: y(powerKernel(state.angle, state.power)).toFixed(1) });
    set(ring, { cx, cy: y(softmaxKernel(state.angle, state.beta)).toFixed(1) });
    set(picture, { "aria-label": `Two kernels against the angle between query and key: ${describe(state)}` });
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
  const [left, right] = [1, 2].map(() => html("div", { class: "half" }, columns));
  const likeness = html("p", { class: "geo-say" }, left), note = html("p", { class: "geo-note" }, left);
  const drawCircle = circle(left, (angle) => change({ angle: clamp(Math.round(angle), -180, 180) }));
  const price = html("p", { class: "geo-say" }, right);
  html("p", { class: "geo-note" }, right, "exp would need infinitely many features.");
  const drawGrowth = growth(right, (dim) => change({ dim }));

  const controls = html("div", { class: "geo-panel geo-controls" }, columns);
  const add = (name, label, tone, min, max, step) =>
    slider(controls, { label, min, max, step, tone, onInput: (value) => change({ [name]: value }) });
  const power = add("power", "Power p, even", "warm", 2, 16, 2);
  const angle = add("angle", "Angle between q and k", "text", -180, 180, 1);
  const beta = add("beta", "Softmax’s scale β", "cool", 0, 16, 0.1);
  const dim = add("dim", "Head dimension d", "text", 1, MOST, 1);

  place.start((state) => {
    power.update(state.power, String(state.power));
    angle.update(state.angle, `${show(state.angle, 1, true)}°`);
    beta.update(state.beta, show(state.beta, 2, true));
    dim.update(state.dim, String(state.dim));
    say(likeness, `At ${show(state.angle, 1, true)}°: `, ["warm geo-full", ""], ` (q·k)${raised(state.power)} = `,
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
