// Three spaces: a key in its own tangent space, in the reference space, and carried to the query's.
import { ask, clamp, drag, html, more, say, set, show, slider, svg } from "./common.js";
import { stage } from "./stage.js";
import { arrow, handle } from "./draw.js";
import { apply, dot, identity, multiply, norm, rotation, transpose } from "./algebra.js";

// Computing -----------------------------------------------------------------------------------------------------------

const times = (factor, matrix) => matrix.map((row) => row.map((value) => factor * value));

/** M_p = s^p I, the ruler at position p. */
export function metricAt({ scale }, position) {
  return times(scale ** position, identity(2));
}

/** T_p = s^(-p/2) R(p angle), from the reference space to the tangent space at p. */
export function frameAt({ scale, angle }, position) {
  return times(scale ** (-position / 2), rotation(position * angle));
}

/** T_p^-1 = s^(p/2) R(-p angle), back to the reference space. */
export function tangentMapping({ scale, angle }, position) {
  return times(scale ** (position / 2), rotation(-position * angle));
}

/** P = T_m T_n^-1, from the key's tangent space to the query's. */
export function transport(state) {
  return multiply(frameAt(state, state.query), tangentMapping(state, state.key));
}

/** x^T M_p y. */
export function inner(state, position, x, y) {
  return dot(x, apply(metricAt(state, position), y));
}

/** The vectors k and q as numbers, each in its own tangent space. */
export function vectors({ key_x: keyX, key_y: keyY, query_x: queryX, query_y: queryY }) {
  return { k: [keyX, keyY], q: [queryX, queryY] };
}

/** The vectors in each space, the score at m and in the reference space, and the key's length by each ruler. */
export function spaces(state) {
  const { query: m, key: n } = state, { k, q } = vectors(state), arrived = apply(transport(state), k);
  const middle = { k: apply(tangentMapping(state, n), k), q: apply(tangentMapping(state, m), q) };
  return {
    home: { k }, middle, arrival: { k: arrived, q },
    score: inner(state, m, q, arrived), reference: dot(middle.q, middle.k), plain: dot(q, k),
    lengths: { home: Math.sqrt(inner(state, n, k, k)), middle: norm(middle.k),
      arrival: Math.sqrt(inner(state, m, arrived, arrived)) },
  };
}

/** The radius that the unit circle of M_p has in the numbers of the space at p. */
export function radiusAt({ scale }, position) {
  return scale ** (-position / 2);
}

const LONGEST = 1.25, SMALLEST = 1.45; // of a vector that a hand draws; what a picture shows at least

/** What each picture shows to every side, in numbers: by steps, and the same wherever a hand draws k and q. */
export function reachOf(state) {
  const { query: m, key: n, scale } = state, grow = [1, scale ** (n / 2), scale ** (m / 2), scale ** ((n - m) / 2)];
  const need = Math.max(LONGEST * Math.max(...grow), radiusAt(state, m), radiusAt(state, n));
  return SMALLEST * Math.SQRT2 ** Math.max(0, Math.ceil(2 * Math.log2(need / SMALLEST) - 1e-9));
}

const short = (value) => show(value, 2, true);

/** The state in a sentence, for those who hear the picture. */
export function describe(state) {
  const { score, reference, lengths } = spaces(state), { query: m, key: n } = state;
  return `query at ${short(m)}, key at ${short(n)}; unit circles of radius ${show(radiusAt(state, m))} at the query, `
    + `1 in the reference space, ${show(radiusAt(state, n))} at the key; score ${show(score)} at the query, `
    + `${show(reference)} in the reference space; length of the key ${show(lengths.home)} at home, `
    + `${show(lengths.arrival)} on arrival`;
}

// Drawing -------------------------------------------------------------------------------------------------------------

const NAMES = ["query", "key", "scale", "angle", "key_x", "key_y", "query_x", "query_y"];
const CSS = `
.geo .spaces { display: grid; gap: 10px; padding: 14px 16px 18px; }
.geo .spaces > * { min-width: 0; }
.geo .spaces .ground { fill: none; stroke: var(--line); }
.geo .spaces .ball { fill: currentColor; fill-opacity: 0.1; stroke: currentColor; stroke-width: 1.8; }
.geo .spaces .plain { fill: none; stroke: var(--soft); stroke-dasharray: 1.5 4; stroke-linecap: round; }
.geo .spaces .frame { fill: none; stroke: var(--soft); stroke-width: 1.4; }
.geo .spaces .way { fill: none; stroke: var(--soft); stroke-width: 1.4; stroke-linecap: round; }
.geo .spaces .first { grid-template-columns: repeat(auto-fit, minmax(min(170px, 100%), 1fr)); }
.geo .spaces .carried { stroke-dasharray: 5 4; }
.geo .spaces svg text { pointer-events: none; font-size: 13px; text-anchor: middle; }
.geo .spaces svg text.halo { paint-order: stroke; stroke: var(--ground); stroke-width: 4px; stroke-linejoin: round; }
.geo .spaces svg text.title { font-weight: 650; } .geo .spaces svg text tspan.sub { font-size: 11px; }
@container (max-width: 560px) {
  .geo .spaces { padding: 10px 8px 14px; } .geo .spaces > .geo-say { min-height: 2.8em; }
}`;

/** A word of the picture: "T_n⁻¹k" stands with its n lowered. */
function word(parent, kind, letters) {
  const text = svg("text", { class: kind }, parent), [main, index, rest] = letters.split(/_(.)/);
  svg("tspan", {}, text, main);
  if (index) svg("tspan", { class: "sub", dy: 3 }, text, index);
  if (rest) svg("tspan", { dy: -3 }, text, rest);
  return text;
}

const put = (text, x, y) => set(text, { x: x.toFixed(1), y: y.toFixed(1) });
const head = (from, to, size) => `M${arrow(...from, ...to, size).split("M")[2] ?? ""}`;

/** A curved way from one point to another, bent towards a third, with a head. */
function way(from, bend, to) {
  return `M${from.join(" ")}Q${bend.join(" ")} ${to.join(" ")}${head(bend, to, 7)}`;
}

/** One space: its ruler's unit circle, its frame and its arrows, by their names; `own` is the one a hand can draw. */
function panel(picture, { tone, title, names, own, onMove }) {
  const ground = svg("rect", { class: "ground", rx: 8 }, picture);
  const heading = svg("text", { class: `title geo-${tone}` }, picture, title), radius = svg("text", {}, picture);
  const ball = svg("circle", { class: `ball geo-${tone}` }, picture);
  const plain = svg("circle", { class: "plain" }, picture);
  const frame = svg("path", { class: "frame" }, picture);
  const arrows = Object.entries(names).map(([which, letters]) => {
    const colour = which === "k" ? "geo-cool" : "geo-warm", kind = which === own ? "" : "carried";
    return { which, shaft: svg("path", { class: `geo-vector ${colour} ${kind}` }, picture),
      tip: svg("path", { class: `geo-vector ${colour}` }, picture), label: word(picture, `${colour} halo`, letters) };
  });
  const grip = own && handle(picture, own === "k" ? "cool" : "warm", 5);
  let [cx, cy, unit] = [0, 0, 1];
  if (grip) drag(grip.reach, { start() {}, move: (x, y) => onMove([(x - cx) / unit, (cy - y) / unit]) });

  return (box, { matrix, circle, shown, says }) => {
    const { side, reach } = box;
    [cx, cy, unit] = [box.cx, box.cy, (side / 2 - 12) / reach];
    const at = ([u, v]) => [cx + unit * u, cy - unit * v], origin = [cx, cy];
    /** Beyond an arrow's end, inside of the picture, at least a line below or above what `near` names. */
    const label = (text, vector, half, near) => {
      const length = norm(vector) || 1, [x, y] = at(vector.map((each) => each * (1 + (half + 3) / unit / length)));
      const inside = (value, middle, room) => clamp(value, middle - side / 2 + room, middle + side / 2 - room);
      const to = [inside(x, cx, half), inside(y, cy, 10)];
      const other = near.find(([a, b, wide]) => Math.abs(to[0] - a) < half + wide && Math.abs(to[1] - b) < 15);
      if (other) to[1] = other[1] + (other[1] > cy + side / 2 - 28 || to[1] < other[1] ? -16 : 16);
      near.push([...to, half]);
      put(text, to[0], to[1] + 4);
    };
    set(ground, { x: cx - side / 2, y: cy - side / 2, width: side, height: side });
    put(heading, cx, cy - side / 2 - 24);
    put(radius, cx, cy - side / 2 - 8);
    radius.textContent = says;
    for (const [ring, r] of [[ball, circle], [plain, 1]]) set(ring, { cx, cy, r: (unit * r).toFixed(1) });
    const columns = transpose(matrix), taken = [];
    set(frame, { d: columns.map((column) => arrow(...origin, ...at(column), 6)).join("") });
    for (const { which, shaft, tip, label: text } of arrows) {
      const to = at(shown[which]), [, line] = arrow(...origin, ...to, 8).split("M");
      set(shaft, { d: line ? `M${line}` : "" });
      set(tip, { d: line ? head(origin, to, 8) : "" }); // apart from the shaft, whose dashes would break it
      label(text, shown[which], 4 + 4 * text.textContent.length, taken);
      if (which === own) grip.place(...to);
    }
  };
}

/** The three spaces, the query's left, the key's right; on a phone the reference space stands below the two. */
function drawing(parent, { onKey, onQuery }) {
  const picture = svg("svg", { role: "img" }, parent);
  const ways = [0, 1].map(() => svg("path", { class: "way" }, picture));
  const over = ["T_n⁻¹", "T_m"].map((letters) => word(picture, "halo geo-text", letters));
  const left = panel(picture, { tone: "warm", title: "Query’s space",
    names: { q: "q", k: "Pk" }, own: "q", onMove: onQuery });
  const middle = panel(picture, { tone: "text", title: "Reference space",
    names: { q: "T_m⁻¹q", k: "T_n⁻¹k" } });
  const right = panel(picture, { tone: "cool", title: "Key’s space",
    names: { k: "k" }, own: "k", onMove: onKey });

  /** Where the three stand and how the two ways run, for a width. */
  const layout = (width) => {
    const wide = width > 500, gap = wide ? 36 : 10, side = wide ? (width - 2 * gap) / 3 : (width - gap) / 2;
    const far = width - side / 2, cy = 40 + side / 2;
    if (wide) {
      const from = (x) => [[x - 68, 18], [x - (side + gap) / 2, -8], [x - side - gap + 68, 18]];
      return { side, height: side + 44, at: [[side / 2, cy], [width / 2, cy], [far, cy]],
        ways: [from(far), from(width / 2)], over: [far, width / 2].map((x) => [x - (side + gap) / 2, 26]) };
    }
    const low = cy + side + 50, edge = width / 2 + side / 2 + 4, [top, x] = [cy + side / 2 + 4, width - 34];
    return { side, height: 2 * side + 94, at: [[side / 2, cy], [width / 2, low], [far, cy]],
      ways: [[[x, top], [x, low], [edge, low]], [[width - edge, low], [34, low], [34, top]]],
      over: [[x + 4, low + 14], [30, low + 14]] };
  };

  return (state, { home, middle: between, arrival }, width) => {
    const place = layout(width), reach = reachOf(state), { query: m, key: n } = state;
    set(picture, { viewBox: `0 0 ${width} ${place.height}`, height: place.height });
    ways.forEach((each, i) => set(each, { d: way(...place.ways[i]) }));
    over.forEach((each, i) => put(each, ...place.over[i]));
    const [first, second, third] = place.at.map(([cx, cy]) => ({ cx, cy, side: place.side, reach }));
    const tangent = (position, letter, shown) => {
      const circle = radiusAt(state, position), says = `${letter} = ${short(position)}, radius ${show(circle)}`;
      return { matrix: frameAt(state, position), circle, shown, says };
    };
    left(first, tangent(m, "m", arrival));
    middle(second, { matrix: identity(2), circle: 1, shown: between, says: "radius 1" });
    right(third, tangent(n, "n", home));
    set(picture, { "aria-label": `A key in three spaces: ${describe(state)}` });
  };
}

// Putting it together -------------------------------------------------------------------------------------------------

function render({ model, el }) {
  const place = stage({ model, el }, NAMES, CSS), { change } = place;
  const root = html("div", { class: "spaces", role: "group", "aria-label": "Three spaces" }, place.root);
  const moves = (parent, label, name, low, high, step, tone = "text") =>
    slider(parent, { label, min: low, max: high, step, tone, onInput: (value) => change({ [name]: value }) }).update;
  /** What a hand draws: rounded, and no longer than the pictures hold. */
  const drawn = (name) => (vector) => {
    const by = Math.min(1, LONGEST / norm(vector)), [x, y] = vector.map((each) => Math.round(100 * by * each) / 100);
    change({ [`${name}_x`]: clamp(x, -LONGEST, LONGEST), [`${name}_y`]: clamp(y, -LONGEST, LONGEST) });
  };

  ask(root, "Move the key to another position n. Then set s\u00a0=\u00a01: which of the three circles change?");
  const stand = html("div", { class: "geo-stay" }, root);
  const draw = drawing(stand, { onKey: drawn("key"), onQuery: drawn("query") });
  const first = html("div", { class: "geo-panel geo-controls first" }, root);
  const key = moves(first, "Key’s position n", "key", 0, 8, 0.25, "cool");
  const scale = moves(first, "Scale s", "scale", 0.7, 1.3, 0.01);
  const query = moves(first, "Query’s position m", "query", 0, 8, 0.25, "warm");
  const score = html("p", { class: "geo-say" }, root), length = html("p", { class: "geo-say" }, root);
  html("p", { class: "geo-note" }, root, "Filled: arrows of length 1 by the ruler of that space; dotted: of plain "
    + "length 1. Thin: the frame T. Dashed: carried there.");

  const controls = more(root, "The turn, and the arrows by numbers");
  const angle = moves(controls, "Angle a step", "angle", -1.5, 1.5, 0.05);
  const entries = [["k₁", "key_x", "cool"], ["k₂", "key_y", "cool"], ["q₁", "query_x", "warm"],
    ["q₂", "query_y", "warm"]].map(([label, name, tone]) =>
    [name, moves(controls, label, name, -LONGEST, LONGEST, 0.05, tone)]);

  place.start((state) => {
    // The size first: asked for after something has been drawn it would cost a layout.
    const width = Math.max(200, Math.round(stand.clientWidth)), found = spaces(state);
    key(state.key, short(state.key));
    query(state.query, short(state.query));
    scale(state.scale, show(state.scale));
    angle(state.angle, `${show(state.angle)} rad`);
    for (const [name, update] of entries) update(state[name], show(state[name]));
    say(score, "Score ⟨q, Pk⟩ at m: ", ["join", show(found.score)], " = ⟨T⁻¹q, T⁻¹k⟩ in the middle: ",
      ["join", show(found.reference)], `. Plain q\u00a0·\u00a0k: ${show(found.plain)}.`);
    const { home, arrival } = found.lengths;
    say(length, "Key’s length: ", ["cool", show(home)], " at home = ", ["cool", show(arrival)],
      ` on arrival, each by its ruler; plain: ${show(norm(found.home.k))} and ${show(norm(found.arrival.k))}.`);
    draw(state, found, width);
    place.speak(describe(state));
  });
  return place.close;
}

export default { render };
