// A skew matrix and its exponential: three numbers, an axis and a turning box; two of them, and a square left open.
import { ask, clamp, html, more, path, pick, runner, say, set, show, slider, svg } from "./common.js";
import { stage } from "./stage.js";
import { chart } from "./draw.js";
import { apply, axisAngle, combine, dot, identity, multiply, norm, skew, transpose, turnAngle, turnAt,
} from "./algebra.js";
import { sealed, wager } from "./guess.js";
import { facesSeen, gaze, pull, rim } from "./solid.js";

// Computing -----------------------------------------------------------------------------------------------------------

const DEGREE = Math.PI / 180;

/** [A, B] = A B - B A: its entries above the diagonal. */
export function bracket(first, second) {
  const [a, b] = [skew(first, 3), skew(second, 3)], c = combine(1, multiply(a, b), -1, multiply(b, a));
  return [c[0][1], c[0][2], c[1][2]];
}

/** The four steps of the square, in the order in which they are made: A, B, -A, -B, each e times. */
function fourSteps(first, second, e) {
  return [[first, e], [second, e], [first, -e], [second, -e]];
}

/** Where the box stands after a share t of steps [entries, size], each as long as any other; later ones at the left. */
function poseAt(steps, t) {
  return steps.reduce((done, [entries, size], i) => {
    const part = clamp(steps.length * t - i, 0, 1);
    return part > 0 ? multiply(turnAt(entries, part * size), done) : done;
  }, identity(3));
}

/** Where the box stands after a share t of exp(-eB) exp(-eA) exp(eB) exp(eA), from the right to the left. */
export function squareAt(first, second, e, t) {
  return poseAt(fourSteps(first, second, e), t);
}

/** Both orders after a share t: first A, then B; first B, then A. */
export function ordersAt(first, second, t) {
  return [[first, second], [second, first]].map((two) => poseAt(two.map((entries) => [entries, 1]), t));
}

/** The angle between what the two orders leave. */
export function ordersApart(first, second) {
  const [one, two] = ordersAt(first, second, 1);
  return turnAngle(multiply(transpose(one), two));
}

/** What the whole square leaves, what Baker, Campbell and Hausdorff foretell to second order, and the quotient. */
export function squareTurn(first, second, e) {
  const left = turnAngle(squareAt(first, second, e, 1)), foretold = e * e * norm(bracket(first, second));
  return { left, foretold, ratio: foretold > 1e-12 ? left / foretold : null };
}

const degrees = (angle) => `${show(angle / DEGREE, 1)}°`;
const small = (angle) => (angle < DEGREE ? `${show(angle / DEGREE, 3)}°` : degrees(angle));
const about = ({ axis, angle }, bet) => (angle < 1e-9 ? ": no turn has no axis"
  : ` about the axis ${sealed(bet, `(${axis.map((value) => show(value, 2)).join(", ")})`)}`);
const quotient = ({ ratio }) => (ratio === null ? "A and B commute" : `ratio ${show(ratio, 3)}`);

/** Where a line through the box's middle leaves it: the axis, 0 to 2, of that face, and how far from the middle. */
export function leaves(direction) {
  const ways = direction.map((value, i) => HALF[i] / Math.max(Math.abs(value), 1e-9)), out = Math.min(...ways);
  return { face: ways.indexOf(out), out };
}

/** The state in a sentence, for those who hear the picture; the axis waits until the bet is open. */
export function describe({ motion, first, second, t, e }, bet = { open: true }) {
  if (motion === "square") {
    const turn = squareTurn(first, second, e);
    return `${show(4 * t, 2, true)} of 4 steps of size ${show(e, 2)}; the whole square leaves a turn of `
      + `${small(turn.left)}, epsilon squared times |[A, B]| is ${small(turn.foretold)}: ${quotient(turn)}`;
  }
  if (motion === "orders") {
    return `${show(2 * t, 2, true)} of 2 steps: A, then B, beside B, then A; the boxes end `
      + `${degrees(ordersApart(first, second))} apart`;
  }
  const turn = axisAngle(motion === "A" ? first : second), { angle } = turn;
  return `exp(t ${motion}) at t = ${show(t, 2)}: turned by ${degrees(t * angle)} of ${degrees(angle)}`
    + about(turn, bet);
}
// Drawing -------------------------------------------------------------------------------------------------------------

const NAMES = ["motion", "first", "second", "t", "e", "turn", "tilt"];
const HALF = [0.72, 0.45, 0.26]; // the box, from its middle to its faces
const INDICES = [["₁₂", "axes 1 and 2"], ["₁₃", "axes 1 and 3"], ["₂₃", "axes 2 and 3"]];
const TONES = { A: "warm", B: "cool" };
const MOTIONS = [["A", "exp(tA)"], ["B", "exp(tB)"], ["orders", "AB beside BA"], ["square", "The square"]];
const LINE = "The box will turn about an axis. By which face does the axis leave it?", QUESTIONS = { A: LINE, B: LINE,
  orders: "One box turns by A, then B; the other by B, then A. Will they end alike?",
  square: "A, then B, then both undone in the same order. Does the marked corner come home?" };
const CSS = `
.geo .skew > :is(.geo-ask, .geo-say, .geo-pick) { grid-column: 1 / -1; }
.geo .skew .half .name { margin: 0; font: 600 14px/1.4 var(--face); text-align: center; border: 0; }
.geo .skew .side, .geo .skew .part { display: grid; gap: 12px; align-content: center; }
.geo .skew .ghost { fill: none; stroke: var(--soft); stroke-dasharray: 3 4; opacity: 0.8; }
.geo .skew .again { stroke-dasharray: 1 5; stroke-width: 2.6; }
.geo .skew .gap { stroke-width: 3.5; }
.geo .skew .scene text { font-size: 14px; font-weight: 650; }
.geo .skew .name { paint-order: stroke; stroke: var(--ground); stroke-width: 3px; }
.geo .skew .matrix { display: grid; grid-template-columns: auto repeat(3, 3.4em); gap: 2px 6px; justify-content: start;
  align-items: center; text-align: right; font-variant-numeric: tabular-nums; font-weight: 600; }
.geo .skew .matrix > :first-child { grid-row: 1 / 4; padding-right: 6px; }
.geo .skew > .geo-say { min-height: 1.4em; }`;

/** What a scene shows: steps [entries, size] with their names, the entries whose axis is drawn, whether it closes. */
function planOf({ motion, first, second, e }) {
  if (motion === "square") return { steps: fourSteps(first, second, e), names: ["A", "B", "−A", "−B"], closes: true };
  if (motion === "orders") return { steps: [[first, 1], [second, 1]], names: ["A", "B"] };
  const entries = motion === "A" ? first : second;
  return { steps: [[entries, 1]], names: [motion], entries };
}

const reversed = ({ first, second }) => ({ steps: [[second, 1], [first, 1]], names: ["B", "A"] });
/** The turning box, its axis and the way of its marked corner; a hand turns the view. */
function scene(parent, plan, { read, change }) {
  const picture = svg("svg", { class: "scene geo-turns", role: "img", "data-drag": "" }, parent);
  const line = (name, tone) => svg("path", { class: `${name} geo-${tone}` }, picture);
  const behind = line("geo-line", "text"), faces = [0, 1, 2].map(() => svg("path", {}, picture));
  const digits = [0, 1, 2].map(() => svg("text", { class: "geo-text", "text-anchor": "middle" }, picture));
  const ghost = line("ghost", "soft"), before = line("geo-line", "text");
  const legs = [0, 1, 2, 3].map(() => line("geo-line", "warm")), gap = line("geo-line gap", "join");
  const start = svg("circle", { class: "geo-dot geo-soft", r: 4 }, picture);
  const mark = svg("circle", { class: "geo-dot geo-text", r: 5.5 }, picture);
  const names = [0, 1, 2, 3].map(() => svg("text", { "text-anchor": "middle" }, picture));
  const axisName = svg("text", { class: "name geo-text", "text-anchor": "middle" }, picture);
  let [width, scale] = [1, 1], view = gaze(0, 0);
  const flat = (p) => [width / 2 + scale * dot(p, view[0]), width / 2.2 - scale * dot(p, view[1])];
  const pair = (p) => flat(p).map((value) => value.toFixed(1)).join(" ");
  const put = (element, p, down = 5) => {
    const [x, y] = flat(p).map((value) => Number(value.toFixed(1)));
    set(element, { x, y: y + down, cx: x, cy: y }); // a text heeds the first two, a circle the others
  };
  const corner = (r, signs) => apply(r, HALF.map((half, i) => half * signs[i]));
  const outline = (face) => `M${rim(face).map(pair).join("L")}Z`;
  pull(picture, read, change);

  /** The marked corner's way along exp(s A), s from 0 to size, after a rotation. */
  const way = (entries, size, from) => {
    const step = turnAt(entries, size / 24), points = [corner(from, [1, 1, 1])];
    for (let i = 0; i < 24; i++) points.push(apply(step, points[i]));
    return points;
  };
  return (state, bet) => {
    width = Math.min(Math.max(200, Math.round(parent.clientWidth)), 400);
    scale = width / 2.55;
    const height = Math.round(0.92 * width), { t } = state, { steps, names: words, entries, closes } = plan(state);
    set(picture, { viewBox: `0 0 ${width} ${height}`, style: `max-width: ${width}px; margin: 0 auto` });
    const r = poseAt(steps, t), home = identity(3);
    view = gaze(state.turn, state.tilt);
    facesSeen(r, HALF, view).concat([null, null]).slice(0, 3).forEach((face, i) => {
      set(faces[i], { class: "face geo-face", style: face?.shade ?? "", d: face ? outline(face) : "" });
      digits[i].textContent = face?.side > 0 && face.toward > 0.25 ? String(face.axis + 1) : "";
      if (face) put(digits[i], face.at(0, 0));
    });
    set(ghost, { d: facesSeen(home, HALF, view).map(outline).join("") });

    const { axis, angle } = axisAngle(entries ?? [0, 0, 0]), { out } = leaves(apply(transpose(r), axis));
    const forth = dot(axis, view[2]) >= 0 ? 1 : -1, shown = entries && angle > 1e-9 && bet.open;
    const on = (distance) => axis.map((value) => distance * value);
    const ray = (sign) => (shown ? `M${pair(on(sign * out))}L${pair(on(sign * 1.05))}` : "");
    set(behind, { d: ray(-forth) });
    set(before, { d: ray(forth) });
    axisName.textContent = shown ? "axis" : "";
    put(axisName, on(1.17));

    const total = steps.length;
    legs.forEach((leg, i) => {
      const part = clamp(total * t - i, 0, 1), [which, size] = steps[i] ?? [];
      const from = part > 0 && i > 0 ? poseAt(steps, i / total) : home;
      const points = part > 0 && which ? way(which, part * size, from) : [];
      const tone = TONES[words[i]?.at(-1)] ?? "soft";
      set(leg, { d: points.length ? `M${points.map(pair).join("L")}` : "",
        class: `geo-line geo-${tone}${i > 1 ? " again" : ""}` });
      set(names[i], { class: `name geo-${tone}` });
      const long = points.length && part > 0.5 && norm(points[24].map((value, c) => value - points[0][c])) > 0.15;
      names[i].textContent = total > 1 && long ? words[i] : ""; // long enough for a name
      if (points.length) put(names[i], points[12].map((value) => 1.17 * value));
    });
    put(start, corner(home, [1, 1, 1]));
    put(mark, corner(r, [1, 1, 1]));
    const open = closes && t >= 1;
    set(gap, { d: open ? `M${pair(corner(home, [1, 1, 1]))}L${pair(corner(r, [1, 1, 1]))}` : "" });
    set(picture, { "aria-label": `A box with a marked corner, turned: ${describe(state, bet)}` });
  };
}

/** The quotient of what the square leaves and what is foretold, against the size of its steps. */
function ratioCurve(parent) {
  const { picture, marks, frame, x, y } = chart(parent), curve = svg("path", { class: "geo-line geo-join" }, marks);
  const mark = svg("circle", { class: "geo-dot geo-join", r: 6 }, marks);
  let drawn = "";
  return ({ first, second, e }) => {
    const sizes = Array.from({ length: 41 }, (_, i) => 0.02 + 0.98 * (i / 40));
    const fresh = frame({ xs: [0, 1], ys: [0, 1.25], height: 170, xTicks: [0, 0.25, 0.5, 0.75, 1], yTicks: [0, 0.5, 1],
      xLabel: "ratio of the two, against ε" });
    const key = JSON.stringify([first, second]);
    if (fresh || key !== drawn) {
      const ratios = sizes.map((size) => squareTurn(first, second, size).ratio);
      set(curve, { d: ratios[0] === null ? "" : path(sizes.map(x), ratios.map(y)) });
      drawn = key;
    }
    const turn = squareTurn(first, second, e);
    set(mark, { cx: x(e).toFixed(1), cy: y(turn.ratio ?? 0).toFixed(1), opacity: turn.ratio === null ? 0 : 1 });
    set(picture, { "aria-label": `Curve of the quotient against epsilon; at ${show(e, 2)}: ${quotient(turn)}` });
  };
}

// Putting it together -------------------------------------------------------------------------------------------------

function render({ model, el }) {
  const place = stage({ model, el }, NAMES, CSS), { change, read } = place;
  const all = html("div", { class: "skew geo-columns", role: "group", "aria-label": "Skew matrices" }, place.root);
  const question = ask(all, ""), motion = pick(all, "What turns the box", MOTIONS,
    (value) => change({ motion: value, ...(value === "square" && { t: 1 }) }));
  const bet = wager(all, ["1", "2", "3"].map((face, i) => [i, face]), () => { change({ t: 0 }); stop.go(); });
  const sentence = html("p", { class: "geo-say" }, all);
  const half = (title) => {
    const box = html("div", { class: "half" });
    return { box, title: html("div", { class: "name" }, box, title), holder: html("div", {}, box) };
  };
  const [left, right] = [half("First A, then B"), half("First B, then A")];
  left.box.classList.add("geo-stay");
  all.append(left.box);
  const draw = scene(left.holder, planOf, place), drawOther = scene(right.holder, reversed, place);
  const side = html("div", { class: "side" }, all);
  const together = html("div", { class: "geo-time geo-panel" }, side);
  const stop = runner(together, {
    begin() { if (read().t >= 1) change({ t: 0 }); },
    step(seconds, calm) {
      const now = read(), speed = now.motion === "square" ? 0.15 : 0.3;
      const next = Math.min(1, now.t + (calm ? 0.25 : speed * seconds));
      change({ t: next });
      return next < 1;
    },
  });
  const time = slider(together, { label: "Time t", min: 0, max: 1, step: 0.01, onInput: (t) => change({ t }) });

  const eye = more(side, "Turn the box"), ways = [["turn", 180, "To the side"], ["tilt", 90, "Up and down"]];
  const looks = ways.map(([name, max, label]) =>
    [name, slider(eye, { label, min: -max, max, step: 1, onInput: (value) => change({ [name]: value }) })]);
  const [one, two] = [1, 2].map(() => html("div", { class: "part" })), numbers = more(one, "The three numbers");
  const enter = (i, value, key = read().motion === "B" ? "second" : "first") =>
    change({ [key]: read()[key].map((old, k) => (k === i ? value : old)) });
  const entries = INDICES.map(([index], i) => slider(numbers, { label: index, min: -3, max: 3, step: 0.05,
    onInput: (value) => enter(i, value) }));
  const matrix = html("div", { class: "matrix", role: "img" }, one), cells = [html("span", {}, matrix)];
  for (let i = 0; i < 9; i++) cells.push(html("span", {}, matrix));
  const size = slider(two, { label: "Step ε", min: 0.02, max: 1, step: 0.01, tone: "join",
    onInput: (e) => change({ e }) });
  const drawCurve = ratioCurve(html("div", {}, two));

  const given = String([read().first, read().second]);
  place.start((state) => {
    const square = state.motion === "square", orders = state.motion === "orders";
    const values = state.motion === "B" ? state.second : state.first, turn = axisAngle(values);
    const face = turn.angle > 1e-9 ? leaves(turn.axis).face : null;
    bet.row.hidden = square || orders;
    if (!bet.row.hidden) bet.update(state.t >= 1 || String([state.first, state.second]) !== given, face);
    const part = square ? two : orders ? right.box : one;
    for (const each of [one, two, right.box]) if (each !== part) each.remove();
    if (!part.isConnected) orders ? side.before(part) : side.append(part);
    side.style.gridColumn = orders ? "1 / -1" : "";
    left.title.hidden = !orders;
    for (const [name, look] of looks) look.update(state[name], `${show(state[name], 0)}°`);
    question.textContent = QUESTIONS[state.motion];
    motion.update(state.motion);
    const count = square ? 4 : orders && 2;
    time.update(state.t, count ? `${show(count * state.t, 2, true)} of ${count} steps` : show(state.t, 2));
    if (orders) {
      if (state.t < 1) say(sentence, "Let both go to the end.");
      else say(sentence, "They end ", ["join", degrees(ordersApart(state.first, state.second))], " apart.");
    } else if (square) {
      const turn = squareTurn(state.first, state.second, state.e);
      size.update(state.e, show(state.e, 2));
      say(sentence, "The square leaves a turn of ", ["join", small(turn.left)], "; ε²\u00a0|\u2060[A,\u00a0B]| = ",
        ["text", small(turn.foretold)], ": ", ["text", quotient(turn)]);
      drawCurve(state);
    } else {
      const tone = TONES[state.motion], { angle } = turn, letter = state.motion.toLowerCase();
      entries.forEach((entry, i) => {
        entry.row.querySelector("label").textContent = `${letter}${INDICES[i][0]}, in the plane of ${INDICES[i][1]}`;
        entry.update(values[i], `${show(values[i], 2)} rad`);
      });
      const rows = skew(values, 3).flat().map((value) => show(value, 2));
      [`${state.motion} =`, ...rows].forEach((value, i) => { cells[i].textContent = value; });
      set(matrix, { "aria-label": `Matrix ${state.motion} with the entries ${rows.join(", ")}, row by row` });
      say(sentence, `exp(t${state.motion}) turns by `, [tone, degrees(state.t * angle)], " = t · ",
        [tone, degrees(angle)], about(turn, bet));
    }
    draw(state, bet);
    if (orders) drawOther(state, bet);
    place.speak(describe(state, bet) + (bet.row.hidden ? "" : bet.said(face)));
  });
  return () => { stop(); place.close(); };
}

export { axisAngle, turnAngle, turnAt };
export default { render };
