// Parallel transport on the sphere: an arrow carried round a triangle returns turned by the area inside.
import { ask, choice, clamp, drag, html, more, runner, say, set, show, slider, svg, wrap } from "./common.js";
import { stage } from "./stage.js";
import { arrow, handle } from "./draw.js";
import { sealed, wager } from "./guess.js";
import { cross, dot, norm, plus } from "./algebra.js";
import { gaze } from "./solid.js";

// Computing -----------------------------------------------------------------------------------------------------------

const DEGREE = Math.PI / 180, CORNERS = ["A", "B", "C"];

/** The point of the unit sphere at a longitude and latitude in degrees. */
export function pointAt(longitude, latitude) {
  const [l, b] = [longitude * DEGREE, latitude * DEGREE];
  return [Math.cos(b) * Math.cos(l), Math.cos(b) * Math.sin(l), Math.sin(b)];
}

/** Its inverse: [longitude, latitude] in degrees. */
export function placeOf([x, y, z]) {
  return [Math.atan2(y, x) / DEGREE, Math.atan2(z, Math.hypot(x, y)) / DEGREE];
}

/** The three points of six numbers: longitude and latitude of A, B and C. */
export function trianglePoints(corners) {
  return [0, 2, 4].map((i) => pointAt(corners[i], corners[i + 1]));
}

/** The shorter great circle from p to q: its axis and its length; any of them where p and q are opposite. */
function greatArc(p, q) {
  const normal = cross(p, q), sine = norm(normal);
  if (sine > 1e-9) return { axis: normal.map((value) => value / sine), length: Math.atan2(sine, dot(p, q)) };
  const other = cross(p, Math.abs(p[2]) < 0.9 ? [0, 0, -1] : [1, 0, 0]), size = norm(other);
  return { axis: other.map((value) => value / size), length: dot(p, q) > 0 ? 0 : Math.PI };
}

/** A vector turned about a unit axis: what moves along a great circle, points and carried vectors alike. */
function turnAbout(axis, angle, v) {
  const [c, s] = [Math.cos(angle), Math.sin(angle)];
  return plus(1, plus(c, v, s, cross(axis, v)), (1 - c) * dot(axis, v), axis);
}

/**
 * The arrow after `progress` sides (0 to 3) of the path A, B, C, A: where it is, where it points, and its angle to the
 * side. It starts at A, at a right angle to the first side, on its left.
 */
export function carry(corners, progress) {
  const points = trianglePoints(corners);
  let vector = greatArc(points[0], points[1]).axis;
  for (let side = 0; ; side++) {
    const from = points[side], { axis, length } = greatArc(from, points[(side + 1) % 3]);
    const angle = Math.atan2(dot(axis, vector), dot(cross(axis, from), vector));
    const part = clamp(progress - side, 0, 1) * length;
    vector = turnAbout(axis, part, vector);
    if (progress <= side + 1 || side === 2) return { point: turnAbout(axis, part, from), vector, angle };
  }
}

/** By how much the arrow is turned when it is back, counter-clockwise from outside, radians in (-pi, pi]. */
export function holonomy(corners) {
  const before = carry(corners, 0), after = carry(corners, 3).vector;
  return Math.atan2(dot(before.point, cross(before.vector, after)), dot(before.vector, after));
}

/** The triangle's area, negative when A, B, C run clockwise: the excess of its angles, by the volume of its corners. */
export function area(corners) {
  const [a, b, c] = trianglePoints(corners);
  return 2 * Math.atan2(dot(a, cross(b, c)), 1 + dot(a, b) + dot(b, c) + dot(c, a));
}

/** The part of a convex spherical polygon with p . toward >= 0: its corners. */
export function clipPolygon(points, toward) {
  return points.flatMap((p, i) => {
    const q = points[(i + 1) % points.length], [here, there] = [dot(p, toward), dot(q, toward)];
    const kept = here >= 0 ? [p] : [];
    if (here >= 0 === there >= 0) return kept;
    const between = plus(there / (there - here), p, here / (here - there), q), size = norm(between) || 1;
    return [...kept, between.map((value) => value / size)];
  });
}

/** The first two corners that are opposite points, as "A and B", or "": no one arc is the shortest between them. */
export function opposite(corners) {
  const p = trianglePoints(corners), i = p.findIndex((a, k) => norm(plus(1, a, 1, p[(k + 1) % 3])) < 1e-6);
  return i < 0 ? "" : `${CORNERS[i]} and ${CORNERS[(i + 1) % 3]}`;
}

const degrees = (angle, digits = 1) => `${show(angle / DEGREE, digits)}°`;
const percent = (value) => `${show((100 * Math.abs(value)) / (4 * Math.PI), 1)} %`;
const tenth = (value) => Math.round(10 * value) / 10;

/** Which of the guesses is right: the turn to the nearest of them, null when none is near. */
export const guessed = (corners) => ["0", "90", "180"].find((size) =>
  Math.abs(Math.abs(holonomy(corners)) / DEGREE - size) < 4) ?? null;

/** The state in a sentence, for those who hear the picture; until the arrow has been home, without the answer. */
export function describe({ corners, progress }, open = true) {
  const at = corners.map((value) => `${show(value, 1, true)}°`);
  const places = CORNERS.map((name, i) => `${name} at longitude ${at[2 * i]}, latitude ${at[2 * i + 1]}`);
  const found = !open ? "how will it point when it is back at A?"
    : opposite(corners) ? `${opposite(corners)} are opposite points, so neither turn nor area is settled`
    : `back at A it is turned by ${degrees(holonomy(corners))}, and the area inside is ${degrees(area(corners))}, `
      + `${percent(area(corners))} of the sphere`;
  return `${places.join("; ")}. The arrow has gone ${show(progress, 2, true)} of 3 sides; ${found}`;
}

export const viewFrom = gaze;

/** The place, in degrees, that a view shows at (x, y) of its unit disc, on its front (side 1) or its back (-1). */
export function pointUnder(x, y, side, view) {
  const far = Math.max(1, Math.hypot(x, y) / 0.9999), depth = side * Math.sqrt(1 - (x * x + y * y) / far ** 2);
  return placeOf(plus(1, plus(x / far, view[0], y / far, view[1]), depth, view[2]));
}

// Drawing -------------------------------------------------------------------------------------------------------------

const NAMES = ["corners", "corner", "progress", "turn", "tilt"];
const LENGTH = 0.3; // of an arrow, on the unit sphere
const CSS = `
.geo .sphere > :is(.geo-ask, .geo-say) { grid-column: 1 / -1; }
.geo .sphere .controls { display: grid; gap: 12px; align-content: center; }
.geo .sphere .geo-controls { grid-template-columns: repeat(2, minmax(0, 1fr)); }
.geo .sphere .geo-controls > :first-child { grid-column: 1 / -1; grid-template-columns: auto 1fr; }
.geo .sphere select { grid-area: 1 / 2; }
.geo .sphere .ball { fill: var(--panel); stroke: var(--rule); cursor: grab; }
.geo .sphere .scene { pointer-events: none; }
.geo .sphere .net { fill: none; stroke: var(--line); } .geo .sphere .behind { opacity: 0.4; }
.geo .sphere .inside { fill: var(--cool); fill-opacity: 0.2; }
.geo .sphere .behind.geo-line { stroke-dasharray: 4 5; }
.geo .sphere .trail { stroke-width: 1.6; opacity: 0.75; } .geo .sphere .trail.behind { opacity: 0.3; }
.geo .sphere .opening { fill: var(--warm); fill-opacity: 0.3; } .geo .sphere .now { stroke-width: 3; }
.geo .sphere text { font-size: 14px; font-weight: 650; paint-order: stroke; stroke: var(--panel); stroke-width: 3px; }
@container (max-width: 560px) { .geo .sphere > .geo-say { min-height: 2.8em; } }`;

/** The sphere with its triangle: a hand takes a corner, puts it somewhere, in degrees, or turns the view by degrees. */
function globe(parent, { take, put, look }) {
  const picture = svg("svg", { role: "img" }, parent);
  const ball = svg("circle", { class: "ball", "data-drag": "pad" }, picture);
  const scene = svg("g", { class: "scene" }, picture);
  const line = (name, tone) => svg("path", { class: `${name} geo-${tone}` }, scene);
  const net = svg("path", { class: "net" }, scene);
  const half = (more) => ({ fill: line(`inside ${more}`, "cool"), sides: line(`geo-line ${more}`, "cool"),
    trail: line(`geo-vector trail ${more}`, "warm") });
  const behind = half("behind"), front = half(""), opening = line("opening", "warm");
  const start = line("geo-vector now", "text"), now = line("geo-vector now", "warm");
  const names = CORNERS.map((name) => svg("text", { class: "geo-text", "text-anchor": "middle" }, scene, name));
  const angle = svg("text", { class: "geo-warm", "text-anchor": "middle" }, scene);
  let [width, size, radius] = [1, 1, 1], view = viewFrom(0, 0), drawn = "";
  const flat = (p) => [width / 2 + radius * dot(p, view[0]), size / 2 - radius * dot(p, view[1])];
  const ahead = (p) => dot(p, view[2]) >= 0;
  const text = (point) => point.map((value) => value.toFixed(1)).join(" ");
  const stroke = (points) => `M${points.map((p) => text(flat(p))).join("L")}`;
  const along = (p, q, most = 24) => {
    const { axis, length } = greatArc(p, q), count = Math.ceil((most * length) / Math.PI) + 1;
    return Array.from({ length: count + 1 }, (_, i) => turnAbout(axis, (length * i) / count, p));
  };
  /** The part of a line of points on one half of the sphere. */
  const visible = (points, toward) => points.slice(1).map((next, i) => {
    const last = points[i], [p, q] = [dot(last, toward), dot(next, toward)];
    if (p < 0 && q < 0) return "";
    const cut = () => plus(q / (q - p), last, p / (p - q), next);
    const start = p < 0 || i === 0 ? `M${text(flat(p < 0 ? cut() : last))}` : "";
    return `${start}L${text(flat(q < 0 ? cut() : next))}`;
  }).join("");
  const region = (points, toward) => {
    const kept = clipPolygon(points, toward);
    return kept.length < 3 ? "" : `${stroke(kept.flatMap((p, i) => along(p, kept[(i + 1) % kept.length])))}Z`;
  };
  const dart = ({ point, vector }, head) => arrow(...flat(point), ...flat(plus(1, point, LENGTH, vector)), head);
  const handles = CORNERS.map((_, i) => {
    const grip = handle(picture, "cool", 6);
    let side = 1;
    drag(grip.reach, {
      start() { side = grip.side, take(i); },
      move(px, py) { put(i, pointUnder((px - width / 2) / radius, (size / 2 - py) / radius, side, view)); },
    });
    return grip;
  });
  let [before, above] = [0, 0];
  drag(ball, { start(x, y) { [before, above] = [x, y]; }, move(x, y) {
    look((before - x) / radius / DEGREE, (y - above) / radius / DEGREE), [before, above] = [x, y];
  } });
  const background = () => {
    set(picture, { viewBox: `0 0 ${width} ${size}`, height: size });
    set(ball, { cx: width / 2, cy: size / 2, r: radius });
    const lines = [], steps = Array.from({ length: 37 }, (_, i) => 10 * i);
    for (let l = 0; l < 360; l += 30) lines.push(steps.slice(0, 19).map((b) => pointAt(l, b - 90)));
    for (let b = -60; b <= 60; b += 30) lines.push(steps.map((l) => pointAt(l, b)));
    set(net, { d: lines.map((points) => visible(points, view[2])).join("") });
  };
  return (state, spoken) => {
    width = Math.max(200, Math.round(parent.clientWidth));
    size = Math.min(width, 380);
    radius = size / 2 - 22;
    view = viewFrom(state.turn, state.tilt);
    if (drawn !== (drawn = [width, state.turn, state.tilt].join())) background();
    const points = trianglePoints(state.corners), back = view[2].map((value) => -value);
    const sides = points.flatMap((p, i) => along(p, points[(i + 1) % 3], 72));
    for (const [part, toward] of [[front, view[2]], [behind, back]]) {
      set(part.fill, { d: region(points, toward) }), set(part.sides, { d: visible(sides, toward) });
      part.darts = "";
    }
    for (let p = 0.25; p < state.progress - 0.04; p += 0.25) {
      const left = carry(state.corners, p);
      (ahead(left.point) ? front : behind).darts += dart(left, 6);
    }
    for (const part of [front, behind]) set(part.trail, { d: part.darts });
    const first = carry(state.corners, 0), last = carry(state.corners, state.progress);
    const shown = (p) => (ahead(p) ? 1 : 0.4), home = shown(first.point);
    set(start, { d: dart(first, 9), opacity: home });
    set(now, { d: dart(last, 9), opacity: shown(last.point) });
    const isBack = state.progress >= 3 && !opposite(state.corners), other = cross(first.point, first.vector);
    const whole = isBack ? holonomy(state.corners) : 0;
    const spread = (r, phi) => plus(1, first.point, r, plus(Math.cos(phi), first.vector, Math.sin(phi), other));
    const fan = Array.from({ length: 25 }, (_, i) => spread(0.17, (whole * i) / 24));
    set(opening, { d: `${stroke([first.point, ...fan])}Z`, opacity: home });
    const [ax, ay] = flat(spread(0.36, whole / 2));
    set(angle, { x: ax.toFixed(1), y: (ay + 5).toFixed(1) });
    angle.textContent = Math.abs(whole) > 0.1 && home === 1 ? degrees(whole) : "";
    const middle = flat(plus(1 / 3, plus(1, points[0], 1, points[1]), 1 / 3, points[2]));
    points.forEach((p, i) => {
      const [x, y] = flat(p), away = Math.hypot(x - middle[0], y - middle[1]) || 1, opacity = shown(p);
      handles[i].place(x, y);
      handles[i].side = ahead(p) ? 1 : -1;
      set(handles[i].dot, { opacity, r: CORNERS[i] === state.corner ? 7 : 5.5 });
      set(names[i], { opacity, x: clamp(x + (17 * (x - middle[0])) / away, 8, width - 8).toFixed(1),
        y: clamp(y + (17 * (y - middle[1])) / away + 5, 12, size - 3).toFixed(1) });
    });
    set(picture, { "aria-label": `A triangle of great circles on a sphere. ${spoken}` });
  };
}

// Putting it together -------------------------------------------------------------------------------------------------

function render({ model, el }) {
  const place = stage({ model, el }, NAMES, CSS), { change, read } = place, name = "Parallel transport on the sphere";
  const all = html("div", { class: "sphere geo-columns", role: "group", "aria-label": name }, place.root);
  ask(all, "The arrow walks round the triangle and never turns. How will it point when it is home again?");
  const bet = wager(all, [["0", "As before"], ["90", "90° off"], ["180", "Backwards"]], () => stop.go());
  const sentence = html("p", { class: "geo-say" }, all);
  const put = (i, values) =>
    change({ corners: read().corners.map((old, k) => (k >> 1 === i ? values[k & 1] ?? old : old)) });
  const draw = globe(html("div", { class: "geo-stay" }, all), {
    take: (i) => change({ corner: CORNERS[i] }),
    put: (i, place) => put(i, place.map(tenth)),
    look(across, up) {
      const { turn, tilt } = read();
      change({ turn: tenth(wrap((turn + across) * DEGREE) / DEGREE), tilt: tenth(clamp(tilt + up, -90, 90)) });
    },
  });
  const side = html("div", { class: "controls" }, all), together = html("div", { class: "geo-time geo-panel" }, side);
  const stop = runner(together, {
    begin() { if (read().progress >= 3) change({ progress: 0 }); },
    step(seconds, calm) {
      const next = Math.min(3, read().progress + (calm ? 0.5 : 0.45 * seconds));
      change({ progress: next });
      return next < 3;
    },
  });
  const progress = slider(together, { label: "Progress, in sides", min: 0, max: 3, step: 0.05, tone: "warm",
    onInput: (value) => change({ progress: value }) });
  const note = html("p", { class: "geo-note" }, together);
  const where = html("div", { class: "geo-controls" }, side), corner = choice(where, {
    label: "Corner", options: CORNERS.map((name) => [name, name]), onInput: (name) => change({ corner: name }) });
  const chosen = () => CORNERS.indexOf(read().corner);
  const angle = (label, max, onInput, tone) => slider(where, { label, min: -max, max, step: 1, tone, onInput });
  const longitude = angle("Its longitude λ", 180, (value) => put(chosen(), [value]), "cool");
  const latitude = angle("Its latitude β", 90, (value) => put(chosen(), [undefined, value]), "cool");
  const look = more(side, "Turn the globe"), views = [["turn", "To the side", 180], ["tilt", "Up and down", 90]].map(
    ([key, label, max]) => slider(look, { label, min: -max, max, step: 1, onInput: (to) => change({ [key]: to }) }));

  place.start((state) => {
    const at = 2 * CORNERS.indexOf(state.corner), text = (value) => `${show(value, 1, true)}°`;
    progress.update(state.progress, `${show(state.progress, 2, true)} of 3`);
    corner.update(state.corner);
    for (const [one, value] of [[longitude, state.corners[at]], [latitude, state.corners[at + 1]],
      [views[0], state.turn], [views[1], state.tilt]]) one.update(value, text(value));
    const inside = area(state.corners), back = holonomy(state.corners), full = Math.abs(inside) > Math.PI;
    const pair = opposite(state.corners), right = pair ? null : guessed(state.corners);
    bet.update(state.progress >= 3, right);
    if (pair) say(sentence, ["cool", pair], " are opposite points: no one side is the shortest, no one area inside.");
    else say(sentence, "The arrow returns turned by ", ["warm", sealed(bet, degrees(back))], " = area inside ",
      ["cool", sealed(bet, degrees(inside))], !bet.open ? "" : (full ? ` ${inside > 0 ? "−" : "+"} 360°` : "")
      + ` (${percent(inside)} of the sphere)`);
    const { angle: kept } = carry(state.corners, state.progress), leg = Math.min(2, Math.ceil(state.progress) - 1);
    const remark = full ? "A full turn is not seen." : inside < 0 ? "Clockwise, an area counts negative." : "";
    note.textContent = state.progress > 0 && state.progress < 3
      ? `Side ${leg + 1} of 3: the arrow keeps its angle to the side, ${degrees(kept)}.`
      : pair ? "Move a corner a little." : !bet.open ? "Guess, then it sets out from A."
      : `Radius 1: an area of ${show(inside, 3)} is an angle of ${show(inside, 3)} rad. ${remark}`;
    const spoken = describe(state, bet.open) + bet.said(right);
    draw(state, spoken);
    place.speak(spoken);
  }, { turned: ({ corners }) => holonomy(corners) / DEGREE });
  return () => [stop, place.close].forEach((end) => end());
}

export default { render };
