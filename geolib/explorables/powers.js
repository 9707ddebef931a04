// Even powers: (q.k)^p falls like exp to the front, rises again behind, and is an inner product of few features.
import { ask, drag, html, more, path, say, set, show, slider, svg } from "./common.js";
import { stage } from "./stage.js";
import { arrow, handle } from "./draw.js";
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

/** n (n - 1) ... (n - a + 1) / a!. */
function binomial(n, a) {
  let product = 1;
  for (let i = 1; i <= a; i++) product *= (n - a + i) / i;
  return product;
}

/** phi^p(v): a coordinate for each monomial of degree p in lexical order, weighted so that phi(v).phi(w) = (v.w)^p. */
export function embed(v, power) {
  const found = [];
  // The multinomial p! / (a_1! a_2! ...) is a product of binomials: one for each variable, of the places still free.
  const grow = (i, free, value, weight) => {
    if (i === v.length - 1) return found.push(value * v[i] ** free * Math.sqrt(weight));
    for (let a = free; a >= 0; a--) grow(i + 1, free - a, value * v[i] ** a, weight * binomial(free, a));
  };
  grow(0, power, 1, 1);
  return found;
}

/** The kernel of unit vectors in the plane as the inner product of their p + 1 features. */
export function featureKernel(degrees, power) {
  const angle = (degrees * Math.PI) / 180;
  return dot(embed([1, 0], power), embed([Math.cos(angle), Math.sin(angle)], power));
}

/** The state in a sentence, for those who hear the picture. */
export function describe({ power, beta, angle }) {
  return `power ${power}, a key at ${show(angle, 1, true)} degrees: `
    + `power kernel ${show(powerKernel(angle, power), 3)}, `
    + `softmax kernel with beta ${show(beta, 2, true)} ${show(softmaxKernel(angle, beta), 3)}`;
}

// Drawing -------------------------------------------------------------------------------------------------------------

const NAMES = ["power", "beta", "angle"];

const CSS = `
.geo .powers .rim { fill: none; stroke: var(--rule); } .geo .powers .axis { fill: none; stroke: var(--line); }
.geo .powers .halo { paint-order: stroke; stroke: var(--ground); stroke-width: 4px; stroke-linejoin: round; }
.geo .powers .geo-ask { grid-column: 1 / -1; }
.geo .powers .exp { stroke-dasharray: 7 4; }
.geo .powers .ring { fill: var(--ground); stroke: currentColor; stroke-width: 2.5; }
.geo .powers .half { display: grid; gap: 12px; align-content: center; min-width: 0; }`;

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

// Putting it together -------------------------------------------------------------------------------------------------

function render({ model, el }) {
  const place = stage({ model, el }, NAMES, CSS);
  const { change } = place;
  const whole = html("div", { class: "powers", role: "group", "aria-label": "Even powers" }, place.root);
  const columns = html("div", { class: "geo-columns" }, whole);
  ask(columns, "Turn the key to the side opposite the query. What does each kernel make of it?");
  const [left, right] = ["half geo-stay", "half"].map((name) => html("div", { class: name }, columns));
  const drawCircle = circle(left, (angle) => change({ angle: Math.round(angle) }));
  const likeness = html("p", { class: "geo-say" }, right), note = html("p", { class: "geo-note" }, right);
  const add = (parent, name, label, tone, min, max, step) =>
    slider(parent, { label, min, max, step, tone, onInput: (value) => change({ [name]: value }) });
  const angle = add(right, "angle", "Angle from q to k", "cool", -180, 180, 1);
  const power = add(right, "power", "Power p, even", "warm", 2, 16, 2);
  const beta = add(more(right), "beta", "Softmax’s scale β in exp β(q·k − 1)", "cool", 0, 16, 0.1);

  place.start((state) => {
    power.update(state.power, String(state.power));
    angle.update(state.angle, `${show(state.angle, 1, true)}°`);
    beta.update(state.beta, show(state.beta, 2, true));
    say(likeness, ["warm geo-full", ""], ` (q·k)${raised(state.power)} = `,
      ["warm", show(powerKernel(state.angle, state.power), 3)], ", ", ["cool geo-ring", ""], " exp = ",
      ["cool", show(softmaxKernel(state.angle, state.beta), 3)]);
    note.textContent = `In the plane, φ(q)·φ(k) of ${state.power + 1} features each: `
      + show(featureKernel(state.angle, state.power), 3);
    drawCircle(state);
    place.speak(describe(state));
  }, { kernel: ({ angle, power }) => powerKernel(angle, power) });
  return () => place.close();
}

export default { render };
