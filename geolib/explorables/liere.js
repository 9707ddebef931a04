// LieRE on a grid: two generators that commute or not, and whether scores survive a shift of both patches.
import { ask, clamp, drag, html, more, say, set, show, slider, svg } from "./common.js";
import { stage } from "./stage.js";
import { arrow, handle, raster } from "./draw.js";
import { combine, dot, multiply, norm, skew } from "./algebra.js";

// Computing -----------------------------------------------------------------------------------------------------------

const SIDE = 15; // patches along a side
const QUERY = [0.5, 0.5, 0.5, 0.5]; // q = k, of length 1
// Upper triangles row by row. FIRST and PARTNER turn the same two planes, so they commute; OTHER has neither plane.
const FIRST = skew([1, 0, 0, 0, 0, 0.35], 4);
const PARTNER = skew([-0.35, 0, 0, 0, 0, 1], 4);
const OTHER = skew([0, 0.6, 0.5, -0.3, 0.6, 0], 4);

const size = (a) => norm(a.flat());

/** A_1 (across) and A_2 (down): at c = 0 they commute, at c = 1 they are strangers; their norms do not depend on c. */
export function generators(c, scale) {
  const mixed = combine(1 - c, PARTNER, c, OTHER);
  return [combine(scale, FIRST, 0, FIRST), combine((scale * size(PARTNER)) / size(mixed), mixed, 0, mixed)];
}

/** |[X, Y]| / (|X| |Y|), Frobenius: 0 when they commute, at most 1 for skew X and Y. */
export function commutator(x, y) {
  return size(combine(1, multiply(x, y), -1, multiply(y, x))) / (size(x) * size(y));
}

/** The product of two quaternions, as four numbers, the real one first. */
function times([a, b, c, d], [e, f, g, h]) {
  return [a * e - b * f - c * g - d * h, a * f + b * e + c * h - d * g,
    a * g - b * h + c * e + d * f, a * h + b * g - c * f + d * e];
}

/** exp of the quaternion x i + y j + z k. */
function unit(x, y, z) {
  const angle = Math.hypot(x, y, z), share = angle > 1e-12 ? Math.sin(angle) / angle : 1;
  return [Math.cos(angle), share * x, share * y, share * z];
}

/** exp(A) for a skew 4x4 matrix as two unit quaternions: it takes v to left v right, v read as a quaternion. */
export function rotationPair(a) {
  const [p, q, r, s, t, u] = [a[0][1], a[0][2], a[0][3], a[1][2], a[1][3], a[2][3]];
  return { left: unit(-(p + u) / 2, (t - q) / 2, -(r + s) / 2), right: unit((u - p) / 2, -(q + t) / 2, (s - r) / 2) };
}

/** exp(A) v. */
export function turn({ left, right }, v) {
  return times(times(left, v), right);
}

/** R(p) = exp(x A_1 + y A_2) at every patch (column + shift, row + shift), row by row, and R(p) q with it. */
export function turnedGrid(c, scale, shift) {
  const [across, down] = generators(c, scale);
  return Array.from({ length: SIDE * SIDE }, (_, i) => {
    const x = (i % SIDE) + shift, y = Math.floor(i / SIDE) + shift;
    const pair = rotationPair(combine(x, across, y, down));
    return { ...pair, vector: turn(pair, QUERY) };
  });
}

/** The scores of q at one patch with k at each: inner products of turned vectors. */
export function scores(grid, row, column) {
  const query = grid[row * SIDE + column].vector;
  return grid.map(({ vector }) => dot(query, vector));
}

/** |R' - R| / |R| for R = R(p)^T R(k), before and after a shift, Frobenius, as its root mean square over all k. */
export function deviation(before, after, row, column) {
  const back = ([a, b, c, d]) => [a, -b, -c, -d], here = row * SIDE + column;
  const relative = (grid, k) => ({ left: times(back(grid[here].left), grid[k].left),
    right: times(grid[k].right, back(grid[here].right)) });
  // The trace of v -> a v b is 4 Re a Re b; so |R' - R|^2 = 8 - 8 (a.a') (b.b'), and |R|^2 = 4.
  const square = before.reduce((sum, _, k) => {
    const [one, two] = [relative(before, k), relative(after, k)];
    return sum + 2 - 2 * dot(one.left, two.left) * dot(one.right, two.right);
  }, 0);
  return Math.sqrt(Math.max(0, square) / before.length);
}

/** All that the pictures and the sentence show, from the turned grids before and after the shift. */
export function compare(before, after, { row, column, mix, size: scale }) {
  const here = scores(before, row, column), there = scores(after, row, column);
  const difference = there.map((value, i) => value - here[i]);
  return { here, there, difference, change: norm(difference) / norm(here),
    deviation: deviation(before, after, row, column), order: commutator(...generators(mix, scale)) };
}

/** The state in a sentence, for those who hear the picture. */
export function describe({ row, column, shift }, { change, deviation: moved, order }) {
  return `patch in row ${row}, column ${column}; commutator ${show(order)}; when both patches shift by `
    + `${show(shift, 2, true)}, the scores change by ${show(100 * change, 0)} percent, the rotations by ${show(moved)}`;
}

// Drawing -------------------------------------------------------------------------------------------------------------

const NAMES = ["mix", "shift", "size", "row", "column"];

const CSS = `
.geo .liere { padding: 14px 16px 18px; display: grid; gap: 12px; }
.geo .liere .maps { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 10px 24px; align-items: end; }
.geo .liere .map { position: relative; margin-top: 4px; }
.geo .liere .map svg { position: absolute; inset: 0; height: 100%; }
.geo .liere .map svg.take { cursor: pointer; }
.geo .liere .way { stroke: var(--text); stroke-width: 1.8; fill: none; }
.geo .liere text { fill: var(--text); font-weight: 600; paint-order: stroke; stroke: var(--ground); stroke-width: 3px;
  stroke-linejoin: round; }
.geo .liere .spot { fill: none; stroke: var(--text); stroke-width: 2; }
.geo .liere .geo-dot { stroke-width: 2; }
.geo .liere .bar { display: inline-block; width: 144px; height: 10px; margin: 0 6px; border: 1px solid var(--line);
  background: linear-gradient(to right, var(--cool), var(--ground), var(--warm)); }
.geo .liere .geo-panel { grid-template-columns: repeat(auto-fit, minmax(min(200px, 100%), 1fr)); }
@container (max-width: 560px) {
  .geo .liere { padding: 10px 8px 14px; }
  .geo .liere .maps { gap: 10px; }
}`;

/** A map with its axes, the patch and the way of the shift; with `onPatch`, a hand chooses the patch. */
function patchMap(parent, title, onPatch) {
  const whole = html("div", {}, parent), name = html("p", { class: "geo-note" }, whole, title);
  const holder = html("div", { class: "map" }, whole), { canvas, draw } = raster(holder);
  const cover = svg("svg", { "aria-hidden": "true" }, holder);
  const cell = () => holder.clientWidth / SIDE;
  let spot = (x, y) => set(ring, { cx: x.toFixed(1), cy: y.toFixed(1) });
  const ring = onPatch ? null : svg("circle", { class: "spot", r: 5 }, cover);
  const way = svg("path", { class: "way" }, cover);
  const [across, down] = [["end", "x →"], ["start", "y ↓"]].map(([anchor, text]) =>
    svg("text", { "text-anchor": anchor }, cover, text));
  if (onPatch) {
    const { place } = handle(cover, "text"), patch = (px) => clamp(Math.floor(px / cell()), 0, SIDE - 1);
    const follow = (x, y) => onPatch(patch(y), patch(x));
    spot = place;
    set(cover, { "data-drag": "pad", class: "take" });
    drag(cover, { start: follow, move: follow }); // what the handle feels, its parent hears
  }
  return (values, { row, column, shift }, text, label) => {
    name.textContent = text;
    draw(values, SIDE);
    const step = cell();
    set(cover, { viewBox: `0 0 ${SIDE * step} ${SIDE * step}` });
    const [x, y] = [(column + 0.5) * step, (row + 0.5) * step], end = SIDE * step;
    spot(x, y);
    // Down and to the right by the shift, as far as the map goes.
    const far = Math.min(shift * step, end - 2 - x, end - 2 - y);
    set(way, { d: far > 6 && title !== "difference" ? arrow(x, y, x + far, y + far, 7) : "" });
    set(across, { x: end - 4, y: 14 });
    set(down, { x: 4, y: end - 6 });
    set(canvas, { "aria-label": `Map of ${SIDE} by ${SIDE} patches, ${text}: ${label}` });
  };
}

/** The last result of a function of numbers, kept until they change. */
function keep(make) {
  let known = "", result = null;
  return (...numbers) => {
    if (numbers.join() !== known) result = make(...numbers);
    known = numbers.join();
    return result;
  };
}

// Putting it together -------------------------------------------------------------------------------------------------

function render({ model, el }) {
  const place = stage({ model, el }, NAMES, CSS);
  const { change } = place;
  const whole = html("div", { class: "liere", role: "group", "aria-label": "LieRE on a grid" }, place.root);
  ask(whole, "Draw c to 0, where the two generators commute. What becomes of the third map?");
  const sentence = html("p", { class: "geo-say" }, whole), maps = html("div", { class: "maps geo-stay" }, whole);
  const here = patchMap(maps, "", (row, column) => change({ row, column }));
  const [there, difference] = [patchMap(maps, "shifted"), patchMap(maps, "difference")];
  const key = html("p", { class: "geo-note" }, whole);
  key.append("−1", html("span", { class: "bar" }), "+1. Drag the dot to another patch.");
  const controls = html("div", { class: "geo-panel geo-controls" }, whole);
  const add = (name, label, tone, min, max, step, parent = controls) =>
    slider(parent, { label, min, max, step, tone, onInput: (value) => change({ [name]: value }) });
  const mix = add("mix", "Non-commuting c", "warm", 0, 1, 0.05);
  const shift = add("shift", "Shift both by t", "join", 0, 15, 0.5);
  const rest = more(whole), note = html("p", { class: "geo-note" }, more(whole, "How the two numbers are made"));
  const scale = add("size", "Speed s", "text", 0.05, 0.6, 0.01, rest);
  const column = add("column", "Patch’s column x", "text", 0, SIDE - 1, 1, rest);
  const row = add("row", "Patch’s row y", "text", 0, SIDE - 1, 1, rest);
  const unmoved = keep((c, s) => turnedGrid(c, s, 0)), moved = keep(turnedGrid);

  place.start((state) => {
    const t = show(state.shift, 2, true);
    mix.update(state.mix, show(state.mix));
    shift.update(state.shift, `${t} patches`);
    scale.update(state.size, `${show(state.size)} rad a patch`);
    column.update(state.column, String(state.column));
    row.update(state.row, String(state.row));
    const before = unmoved(state.mix, state.size), after = moved(state.mix, state.size, state.shift);
    const found = compare(before, after, state), spoken = describe(state, found);
    say(sentence, "Moved together, ", ["text", `${t} right and ${t} down`], ", the patches change their scores by ",
      ["join", `${show(100 * found.change, 0)}\u00a0%`], ". Commutator: ", ["warm", show(found.order)]);
    note.textContent = "The change: the third map over the first, both as root mean squares; it depends on the patch, "
      + `the shift and q. R(p)ᵀR(k) changes by ${show(found.deviation)} of its size. `
      + "The commutator is |[X₁, X₂]| / |X₁||X₂|, of the generators alone: a larger one may go with a smaller change.";
    here(found.here, state, "q at the dot, k anywhere", spoken);
    there(found.there, state, `both moved by ${t}`, spoken);
    difference(found.difference, state, "second − first", spoken);
    place.speak(spoken);
  });
  return () => place.close();
}

export default { render };
