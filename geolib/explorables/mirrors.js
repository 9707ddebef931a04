// Two mirrors: a reflection at n and one at m are a rotation by twice the angle between them.
import { ask, clamp, drag, html, more, pick, runner, say, set, show, slider, svg } from "./common.js";
import { stage } from "./stage.js";
import { handle } from "./draw.js";
import { sealed, wager } from "./guess.js";
import { apply, multiply, rotation } from "./algebra.js";

// Computing -----------------------------------------------------------------------------------------------------------

const DEGREE = Math.PI / 180;

/** The reflection in the line through the origin at an angle in radians. */
export function reflection(angle) {
  const [c, s] = [Math.cos(2 * angle), Math.sin(2 * angle)];
  return [[c, s], [s, -c]];
}

/** First the mirror at n + shift, then the one at m + shift (degrees): one matrix. */
export function twoReflections({ m, n, shift }) {
  return multiply(reflection((m + shift) * DEGREE), reflection((n + shift) * DEGREE));
}

/** The turn of the two together, degrees: -2 Δ, where Δ = n - m is the first mirror's angle minus the second's. */
export function doubled({ m, n }) {
  return -2 * (n - m);
}

/** Where the figure's dot stands: at a distance from the centre, in a direction in degrees. */
export function dotAt({ distance, angle }) {
  return [distance * Math.cos(angle * DEGREE), distance * Math.sin(angle * DEGREE)];
}

const WIDE = 1.34; // half of the picture, in radii

/** An F with its foot on the dot: no turn brings it onto its mirror image. */
const SHAPE = [[0, 0], [0, 0.36], [0.25, 0.36], [0.25, 0.275], [0.085, 0.275], [0.085, 0.215], [0.2, 0.215],
  [0.2, 0.13], [0.085, 0.13], [0.085, 0]];

/** The figure's corners: as it is, reflected once, reflected twice, and turned by -2 Δ instead. */
export function images(state) {
  const [x, y] = dotAt(state), { m, n, shift } = state, start = SHAPE.map(([a, b]) => [x + a, y + b]);
  const under = (matrix) => start.map((point) => apply(matrix, point));
  return { start, once: under(reflection((n + shift) * DEGREE)), twice: under(twoReflections(state)),
    turned: under(rotation(doubled(state) * DEGREE)) };
}

/** An angle of a line, brought into [0, 180) degrees. */
export function lineAngle(degrees) {
  return degrees - 180 * Math.floor(degrees / 180);
}

const text = (value) => `${show(value, 1, true)}°`;

/** The state in a sentence, for those who hear the picture; the turn only once it has been asked for. */
export function describe({ mirrors, m, n, shift, distance, angle }, open = true) {
  const where = `${show(distance, 2)} from the centre at ${text(angle)}`;
  if (mirrors === 1) return `one mirror at ${text(n + shift)}; the figure, ${where}, and its mirror image`;
  return `first mirror at ${text(n + shift)}, second mirror at ${text(m + shift)}; the figure, ${where}, is reflected `
    + `twice: it is turned by ${open ? text(doubled({ m, n })) : "some angle"}`;
}

// Drawing -------------------------------------------------------------------------------------------------------------

const NAMES = ["mirrors", "m", "n", "shift", "distance", "angle"];
const QUESTIONS = ["Turn the mirror. Does the grey image ever stand as the black F does?",
  "Turn one mirror by 10°. By how much does the green F turn?"];
const GUESSES = [[["never", "Never"], ["once", "At one angle"], ["often", "At many"]],
  [["5", "5°"], ["10", "10°"], ["20", "20°"]]], RIGHT = ["never", "20"];
const CSS = `
.geo .mirrors > :is(.geo-ask, .geo-say, .geo-pick) { grid-column: 1 / -1; }
.geo .mirrors .side { display: grid; gap: 14px; align-content: center; }
.geo .mirrors .together { display: grid; grid-template-columns: auto 1fr; gap: 4px 16px; align-items: center; }
.geo .mirrors .together button { min-width: 84px; } .geo .mirrors .together .geo-note { grid-column: 1 / -1; }
.geo .mirrors .mirror { stroke: currentColor; stroke-width: 2.5; stroke-linecap: round; }
.geo .mirrors .ring { fill: none; stroke: var(--line); } .geo .mirrors .words { pointer-events: none; }
.geo .mirrors .start { fill: var(--text); }
.geo .mirrors .once { fill: var(--soft); fill-opacity: 0.15; stroke: var(--soft); stroke-dasharray: 3 3; }
.geo .mirrors .twice { fill: var(--join); fill-opacity: 0.55; }
.geo .mirrors .turned { fill: none; stroke: var(--join); stroke-width: 2.5; stroke-linejoin: round; }
.geo .mirrors .way { fill: none; stroke: var(--soft); stroke-dasharray: 1 4; stroke-linecap: round; stroke-width: 1.5; }
.geo .mirrors .sweep { fill: none; stroke: var(--join); stroke-width: 2; }
.geo .mirrors .foot { fill: currentColor; } .geo .mirrors svg text { stroke-width: 3px; }
.geo .mirrors svg text { font-size: 14px; font-weight: 650; paint-order: stroke; stroke: var(--ground); }
.geo .mirrors .geo-say { min-height: 2.8em; }
.geo .mirrors.single .second { display: none; }`;

/** The plane with two mirrors and a figure: `turn(name, degrees)` and `move(distance, degrees)` follow the hand. */
function plane(parent, { turn, move }) {
  const picture = svg("svg", { role: "img" }, parent);
  const line = (name, tone, more = "") => svg("path", { class: `${name} geo-${tone} ${more}` }, picture);
  const ring = svg("circle", { class: "ring" }, picture), way = line("way", "soft");
  const sweep = line("sweep", "join", "second");
  const parts = { once: line("once", "soft"), twice: line("twice", "join", "second"),
    turned: line("turned", "join", "second") };
  parts.start = line("start", "text");
  const feet = { once: svg("circle", { class: "foot geo-soft", r: 3.5 }, picture),
    twice: svg("circle", { class: "foot geo-join second", r: 3.5 }, picture) };
  let [width, scale] = [1, 1];
  const flat = ([x, y]) => [width / 2 + scale * x, width / 2 - scale * y];
  const pair = (point) => flat(point).map((value) => value.toFixed(1)).join(" ");
  const polar = (radius, degrees) => dotAt({ distance: radius, angle: degrees });
  const put = (word, point) => {
    const [x, y] = flat(point);
    set(word, { x: x.toFixed(1), y: (y + 5).toFixed(1) });
  };
  const angleAt = (px, py) => Math.atan2(width / 2 - py, px - width / 2) / DEGREE;

  // The mirror of n is the shorter one, so that both can be taken when they lie on each other.
  const mirrors = [["n", "cool", 0.97], ["m", "warm", 1.08]].map(([name, tone, reach]) => {
    const group = svg("g", { class: name === "m" ? "second" : "" }, picture);
    const body = svg("line", { class: `mirror geo-${tone}` }, group);
    const ends = [handle(group, tone, 5), handle(group, tone, 5)];
    for (const { reach: end } of ends) drag(end, { start() {}, move: (px, py) => turn(name, angleAt(px, py)) });
    return { name, body, ends, reach };
  });
  const words = svg("g", { class: "words" }, picture);
  const label = (name, tone, more = "") =>
    svg("text", { class: `geo-${tone} ${more}`, "text-anchor": "middle" }, words, name);
  const labels = { start: label("figure", "text"), once: label("once", "soft"), twice: label("twice", "join") };
  const turnedBy = label("", "join", "second");
  const names = { n: label("n", "cool"), m: label("m", "warm", "second") };
  const grip = handle(picture, "text", 5.5);
  drag(grip.reach, {
    start() {},
    move(px, py) { move(Math.hypot(px - width / 2, py - width / 2) / scale, angleAt(px, py)); },
  });

  return (state, open) => {
    width = Math.min(Math.max(200, Math.round(parent.clientWidth)), 420);
    scale = (width / 2 - 4) / WIDE;
    set(picture, { viewBox: `0 0 ${width} ${width}`, style: `max-width: ${width}px; margin: 0 auto` });
    const all = images(state), sum = doubled(state), { distance, angle, shift } = state;
    for (const [name, points] of Object.entries(all)) set(parts[name], { d: `M${points.map(pair).join("L")}Z` });
    const passed = [all.start, all.once, all.twice].slice(0, state.mirrors + 1);
    set(way, { d: `M${passed.map((points) => pair(points[0])).join("L")}` });
    // From the figure's dot to the turned one, at the dot's distance, with a head.
    const steps = Math.max(2, Math.ceil(Math.abs(sum) / 4)), end = Math.sign(sum) * Math.max(0, Math.abs(sum) - 4);
    const arc = Array.from({ length: steps + 1 }, (_, i) => pair(polar(distance, angle + (end * i) / steps)));
    const back = angle + end - Math.sign(sum) * 5;
    const head = `M${pair(polar(distance + 0.035, back))}L${arc.at(-1)}L${pair(polar(distance - 0.035, back))}`;
    set(sweep, { d: Math.abs(sum) < 6 ? "" : `M${arc.join("L")}${head}` });
    set(ring, { cx: width / 2, cy: width / 2, r: (scale * distance).toFixed(1) });
    put(turnedBy, polar(distance - 0.17, angle + sum / 2));
    turnedBy.textContent = !open ? "?" : Math.abs(sum) < 12 ? "" : text(sum);
    for (const [name, foot] of Object.entries(feet)) {
      const [cx, cy] = flat(all[name][0]);
      set(foot, { cx: cx.toFixed(1), cy: cy.toFixed(1) });
    }
    for (const { name, body, ends, reach } of mirrors) {
      const at = state[name] + shift, [x1, y1] = flat(polar(reach, at)), [x2, y2] = flat(polar(reach, at + 180));
      set(body, { x1: x1.toFixed(1), y1: y1.toFixed(1), x2: x2.toFixed(1), y2: y2.toFixed(1) });
      ends[0].place(x1, y1);
      ends[1].place(x2, y2);
      put(names[name], polar(reach + 0.13, at));
    }
    // Each label outside of its figure, seen from the centre, or further out or in: where no other label stands.
    const single = state.mirrors === 1, taken = (single ? ["n"] : ["n", "m"]).flatMap((name, i) =>
      [0, 180].map((half) => [...polar(mirrors[i].reach + (half ? 0 : 0.13), state[name] + shift + half), 10]));
    if (!single && turnedBy.textContent) taken.push([...polar(distance - 0.17, angle + sum / 2), 22]);
    const same = single ? false : Math.abs(lineAngle(sum / 2 + 1) - 1) < 1; // a whole turn, or none
    labels.start.textContent = same ? "figure, twice" : "figure";
    labels.once.textContent = single ? "image" : "once";
    labels.twice.textContent = same || single ? "" : "twice";
    for (const [name, word] of Object.entries(labels)) {
      const [a, b] = [0, 1].map((c) => all[name].reduce((sum, point) => sum + point[c], 0) / SHAPE.length);
      const far = Math.hypot(a, b) || 1, half = 4.3 * word.textContent.length;
      const away = 0.21 + (9 + (half * Math.abs(a)) / far) / scale, edge = WIDE - half / scale;
      const spots = [far + away, far + away + 0.1, far - away, far + away + 0.2, far - away - 0.1].map((size) =>
        [clamp((a / far) * size, -edge, edge), clamp((b / far) * size, -WIDE + 0.05, WIDE - 0.1)]);
      const free = ([x, y]) => taken.every(([u, v, other]) => Math.abs(x - u) * scale > half + other
        || Math.abs(y - v) * scale > 16);
      const spot = spots.find(free) ?? spots[0];
      put(word, spot);
      if (word.textContent) taken.push([...spot, half]);
    }
    grip.place(...flat(all.start[0]));
    set(picture, { "aria-label": `A figure and its images: ${describe(state, open)}` });
  };
}

// Putting it together -------------------------------------------------------------------------------------------------

function render({ model, el }) {
  const place = stage({ model, el }, NAMES, CSS), { change, read } = place;
  const all = html("div", { class: "mirrors geo-columns", role: "group", "aria-label": "Two mirrors" }, place.root);
  const question = ask(all, ""), count = pick(all, "Mirrors", [[1, "One mirror"], [2, "Two mirrors"]],
    (mirrors) => change({ mirrors })), bets = GUESSES.map((guesses) => wager(all, guesses));
  const draw = plane(html("div", { class: "geo-stay" }, all), {
    turn: (name, degrees) => change({ [name]: lineAngle(Math.round(degrees - read().shift)) }),
    move: (distance, degrees) => {
      change({ distance: clamp(Math.round(100 * distance) / 100, 0.2, 0.8), angle: Math.round(degrees) });
    },
  });

  const side = html("div", { class: "side" }, all), sentence = html("p", { class: "geo-say" }, side);
  const degrees = (parent, label, name, low, high, tone) =>
    slider(parent, { label, min: low, max: high, step: 1, tone, onInput: (value) => change({ [name]: value }) });
  const n = degrees(side, "Mirror at n", "n", 0, 180, "cool");
  const m = degrees(side, "Second mirror at m", "m", 0, 180, "warm");
  const together = html("div", { class: "together geo-panel second" }, side);
  const stop = runner(together, {
    begin() { if (read().shift >= 180) change({ shift: 0 }); },
    step(seconds, calm) {
      const next = Math.min(180, read().shift + (calm ? 10 : 30 * seconds));
      change({ shift: next });
      return next < 180;
    },
  });
  const shift = degrees(together, "Turn both by t", "shift", 0, 180);
  const note = html("p", { class: "geo-note" }, together);
  m.row.classList.add("second");
  const figure = more(side, "Move the F");
  const distance = slider(figure, { label: "Distance r", min: 0.2, max: 0.8, step: 0.01,
    onInput: (value) => change({ distance: value }) });
  const angle = degrees(figure, "Direction φ", "angle", -180, 180);

  let known = null, setting = false; // the question that was shown last; whether a link still brings this one about
  place.start((state) => {
    const asked = state.mirrors - 1, bet = bets[asked], turn = asked ? state.n - state.m : state.n + state.shift;
    setting = (asked !== known || setting) && "gliding" in place.root.dataset;
    if (asked !== known || setting) bet.begin();
    known = asked;
    bet.update(Math.abs(turn - bet.since(turn)) >= 9.5, RIGHT[asked]);
    bets.forEach((each, i) => { each.row.hidden = i !== asked; });
    const [first, second] = [state.n + state.shift, state.m + state.shift];
    for (const [control, value] of [[n, state.n], [m, state.m], [shift, state.shift], [angle, state.angle]]) {
      control.update(value, text(value));
    }
    distance.update(state.distance, show(state.distance, 2));
    const single = state.mirrors === 1;
    all.classList.toggle("single", single);
    question.textContent = QUESTIONS[state.mirrors - 1];
    count.update(state.mirrors);
    if (single) say(sentence, "Reflected at ", ["cool", text(first)], bet.open
      ? ". No angle makes the image an F again." : ". Turn it by its ends, or with the slider.");
    else {
      say(sentence, "Reflected at ", ["cool", text(first)], ", then at ", ["warm", text(second)], ": turned by ",
        ...(bet.open ? ["−2Δ = −2\u00a0(", ["cool", text(first)], " − ", ["warm", text(second)], ") = "] : []),
        ["join", sealed(bet, text(doubled(state)))]);
    }
    note.textContent = "Both mirrors turn, and what is reflected once; the green F stays."
      + (bet.open || !state.shift ? "" : " Now turn one mirror alone, by its end or its slider.");
    draw(state, bet.open || single);
    place.speak(describe(state, bet.open) + bet.said(RIGHT[asked]));
  }, { turn: doubled });
  return () => {
    stop();
    place.close();
  };
}

export default { render };
