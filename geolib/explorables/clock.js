// The clock of RoPE: every pair of features is a hand, and a position is a time of day.
import { ask, clamp, drag, html, path, runner, say, set, show, slider, svg, wrap } from "./common.js";
import { stage } from "./stage.js";
import { wager } from "./guess.js";

// Computing -----------------------------------------------------------------------------------------------------------

/** theta_i = base^(-i/pairs), radians per token: RoPE's frequencies for head dimension d = 2 pairs. */
export function frequencies(pairs, base) {
  return Array.from({ length: pairs }, (_, i) => base ** (-i / pairs));
}

/** Angles of all hands, radians, not reduced: the query stands at query + shift, the key at key + shift. */
export function clockAngles({ query, key, shift, base, pairs }) {
  const thetas = frequencies(pairs, base);
  return { query: thetas.map((theta) => (query + shift) * theta), key: thetas.map((theta) => (key + shift) * theta) };
}

/** cos(delta theta_i) for delta = key - query, the book's Δ = n - m: how far each pair's two hands agree. */
export function agreements(delta, pairs, base) {
  return frequencies(pairs, base).map((theta) => Math.cos(delta * theta));
}

/** The score of q = k = (1, ..., 1), divided by d: the mean of the agreements. */
export function score(delta, pairs, base) {
  return agreements(delta, pairs, base).reduce((sum, c) => sum + c, 0) / pairs;
}

/** The score at each of the deltas. */
export function scoreCurve(deltas, pairs, base) {
  const thetas = frequencies(pairs, base);
  return deltas.map((delta) => thetas.reduce((sum, theta) => sum + Math.cos(delta * theta), 0) / pairs);
}

/** Query and key a wanted delta = key - query apart, both within [0, length]; the key moves only where it must. */
export function atDelta(key, delta, length) {
  const wanted = clamp(delta, -length, length);
  const place = clamp(key, Math.max(0, wanted), Math.min(length, length + wanted));
  return { query: place - wanted, key: place };
}

/** The state in a sentence, for those who hear the picture. */
export function describe({ query, key, shift, base, pairs }) {
  const place = (p) => show(p + shift, 2, true);
  const value = show(score(key - query, pairs, base));
  return `query at ${place(query)}, key at ${place(key)}, Δ = ${show(key - query, 2, true)}, score ${value}`;
}

// Drawing -------------------------------------------------------------------------------------------------------------

const BASES = [0, 1, 2, 3, 4, 5].flatMap((e) => [1, 2, 5].map((m) => m * 10 ** e)).concat(1e6);
const MOST = 32; // pairs: a head dimension of 64
const FACE = 150; // the clock's radius in its own units, 340 across
const NAMES = ["query", "key", "shift", "base", "pairs", "length"];

const CSS = `
.geo .clock { display: grid; gap: 14px 36px; padding: 14px 16px 18px;
  grid-template: "ask ask" auto "face curve" auto "places settings" auto "together together" auto / 9fr 11fr; }
.geo .clock > div { min-width: 0; }
.geo .clock .places, .geo .clock .settings { display: grid; gap: 8px; align-content: start; }
.geo .clock .together { display: grid; grid-template-columns: auto 1fr; gap: 2px 16px; align-items: center;
  background: var(--panel); border-radius: 10px; padding: 10px 14px; }
.geo .clock .together .geo-note { grid-column: 2; }
.geo .clock > .ask { display: grid; gap: 8px; }
.geo .clock .together button { min-width: 84px; }
.geo .clock .face svg { max-width: 340px; margin: 6px auto 0; }
.geo .clock .face text { font-size: 13.5px; } /* the face is drawn smaller than its own units: 12 px on the screen */
.geo .clock .curve svg { margin-top: 6px; cursor: ew-resize; }
.geo .clock .ring { fill: none; stroke: var(--line); }
.geo .clock .axis { stroke: var(--line); } .geo .clock .zero { stroke: var(--rule); }
.geo .clock .hand { stroke-linecap: round; }
.geo .clock .hand.q { stroke: var(--query); } .geo .clock .hand.k { stroke: var(--key); }
.geo .clock .tip { cursor: grab; stroke-width: 2.2; }
.geo .clock .tip.q { fill: var(--query); stroke: var(--query); }
.geo .clock .tip.k { fill: var(--ground); stroke: var(--key); }
.geo .clock .opening { fill: none; stroke: var(--join); }
.geo .clock .score { fill: none; stroke: var(--join); stroke-width: 2; stroke-linejoin: round; }
.geo .clock .stem { stroke: var(--join); stroke-width: 1; opacity: 0.6; }
.geo .clock .dot { fill: var(--ground); stroke: var(--join); stroke-width: 1.3; }
.geo .clock .lit .ring { stroke: var(--join); stroke-width: 3; }
.geo .clock .lit .hand { opacity: 1; stroke-width: 2.5; }
.geo .clock .mark { fill: var(--join); stroke: var(--ground); stroke-width: 1.5; }
.geo .clock .dot.lit { fill: var(--join); stroke: var(--text); stroke-width: 2; }
.geo .clock .many .hand { display: none; } .geo .clock .many .lit .hand { display: inline; }
.geo .clock .hub { fill: var(--ground); stroke: var(--rule); stroke-width: 1.5; }
@container (max-width: 560px) {
  .geo .clock { display: flex; flex-direction: column; gap: 12px; padding: 10px 8px 14px; }
  .geo .clock > :is(.places, .together, .settings) { order: 1; } /* the curve that the question asks about comes first */
  .geo .clock .face svg { max-width: 270px; }
  .geo .clock .face text { font-size: 15.2px; }
  .geo .clock .together .geo-note { grid-column: 1 / -1; min-height: 2.8em; }
}`;

/** The face: one ring a pair, the fastest outermost, as a clock's second hand is its longest. */
function face(parent, onTurn) {
  const picture = svg("svg", { viewBox: "-170 -170 340 340", role: "img" }, parent);
  const words = svg("g", {}, picture), rings = svg("g", {}, picture), openings = svg("g", {}, picture);
  const tips = svg("g", {}, picture);
  for (const [x, y, text] of [[162, 5, "0"], [0, -157, "π/2"], [-162, 5, "π"], [0, 168, "3π/2"]]) {
    svg("text", { x, y, "text-anchor": "middle" }, words, text);
  }
  svg("circle", { class: "hub", r: 3 }, picture);
  let parts = [];

  const grip = (who, i, group) => {
    const tip = svg("circle", { class: `tip ${who[0]}` }, tips);
    const reach = svg("circle", { class: "geo-reach" }, tips);
    const angle = (x, y) => {
      const box = picture.getBoundingClientRect();
      return Math.atan2(box.height / 2 - y, x - box.width / 2);
    };
    let last = 0;
    drag(reach, {
      start(x, y) { last = angle(x, y); onTurn(who, i, null); },
      move(x, y) { const now = angle(x, y); onTurn(who, i, wrap(now - last)); last = now; },
    });
    return { hand: svg("line", { class: `hand ${who[0]}`, x1: 0, y1: 0 }, group), tip, reach };
  };
  const build = (pairs) => {
    for (const group of [openings, rings, tips]) group.replaceChildren();
    rings.classList.toggle("many", pairs > 12); // so many hands would be dust: the arcs between them stay
    const gap = FACE / (pairs + 1);
    parts = Array.from({ length: pairs }, (_, i) => {
      const radius = FACE - i * gap, size = clamp(gap / 2.6, 2.1, 5.5);
      const group = svg("g", {}, rings);
      svg("circle", { class: "ring", r: radius, opacity: clamp(12 / pairs, 0.45, 1) }, group);
      const opening = svg("path", { class: "opening" }, openings);
      const part = { group, radius, opening, key: grip("key", i, group), query: grip("query", i, group) };
      set(part.opening, { "stroke-width": clamp(gap / 3.5, 1.4, 5), opacity: pairs > 12 ? 0.8 : 0.55 });
      for (const { hand, tip, reach } of [part.key, part.query]) {
        set(hand, { "stroke-width": 1.2 + 1.3 * i / pairs, opacity: clamp(3.2 / pairs, 0.08, 0.8) });
        set(tip, { r: size, "stroke-width": clamp(size / 2.2, 1, 2.2) });
        set(reach, { r: clamp(gap / 1.6, 5, 15) });
      }
      return part;
    });
  };
  const point = (radius, angle) => [(radius * Math.cos(angle)).toFixed(2), (-radius * Math.sin(angle)).toFixed(2)];
  const light = (lit) => parts.forEach(({ group }, i) => group.classList.toggle("lit", i === lit));
  return { light, draw(state) {
    if (parts.length !== state.pairs) build(state.pairs);
    const angles = clockAngles(state);
    parts.forEach((part, i) => {
      for (const who of ["query", "key"]) {
        const [x, y] = point(part.radius, angles[who][i]);
        set(part[who].hand, { x2: x, y2: y });
        set(part[who].tip, { cx: x, cy: y });
        set(part[who].reach, { cx: x, cy: y });
      }
      // The short way from query to key: what counts of the opening is its cosine.
      const from = angles.query[i], opening = wrap(angles.key[i] - from);
      const [x0, y0] = point(part.radius, from), [x1, y1] = point(part.radius, from + opening);
      set(part.opening, { d: `M${x0} ${y0}A${part.radius} ${part.radius} 0 0 ${opening > 0 ? 0 : 1} ${x1} ${y1}` });
    });
    set(picture, { "aria-label": `Clock face with one ring for each of ${state.pairs} pairs: ${describe(state)}` });
  } };
}

/** The score against delta, a mark where the two positions stand, and a small dot for each pair. */
function curve(parent, onDelta, onPair) {
  const left = 24, right = 8, top = 10, bottom = 38;
  const picture = svg("svg", { role: "img", "data-drag": "" }, parent), grid = svg("g", {}, picture);
  const line = svg("path", { class: "score" }, picture), stem = svg("line", { class: "stem" }, picture);
  const dots = svg("g", {}, picture), mark = svg("g", {}, picture);
  for (const [name, r] of [["mark", 6.5], ["geo-reach", 16]]) svg("circle", { class: name, r }, mark);
  const y = (value) => top + ((1 - value) / 2) * (height - top - bottom);
  let width = 0, height = 0, length = 1, drawn = "";
  const x = (delta) => left + ((delta + length) / (2 * length)) * (width - left - right);
  const follow = (px) => onDelta(((px - left) / (width - left - right)) * 2 * length - length);
  drag(picture, { start: follow, move: follow });

  // The pair whose dot lies under the mouse; null where there is none.
  const hover = (px, py) => {
    const far = [...dots.children].map((dot) => Math.hypot(dot.getAttribute("cx") - px, dot.getAttribute("cy") - py));
    const best = far.indexOf(Math.min(...far)), lit = far[best] < 9 ? best : null;
    [...dots.children].forEach((dot, i) => dot.classList.toggle("lit", i === lit));
    onPair(lit);
  };
  picture.addEventListener("pointermove", ({ clientX, clientY, pointerType }) => {
    const box = picture.getBoundingClientRect();
    if (pointerType === "mouse") hover(clientX - box.left, clientY - box.top);
  });
  picture.addEventListener("pointerleave", () => hover(-99, -99));

  const background = ({ pairs, base }) => {
    set(picture, { viewBox: `0 0 ${width} ${height}`, height });
    grid.replaceChildren();
    dots.replaceChildren();
    for (let i = 0; i < pairs; i++) svg("circle", { class: "dot", r: pairs > 12 ? 2 : 3 }, dots);
    for (const value of [-1, 0, 1]) {
      svg("line", { class: value ? "axis" : "zero", x1: left, x2: width - right, y1: y(value), y2: y(value) }, grid);
      svg("text", { x: left - 7, y: y(value) + 4, "text-anchor": "end" }, grid, show(value, 0));
    }
    for (const part of [-1, -0.5, 0, 0.5, 1]) {
      const anchor = part === 1 ? "end" : part === -1 ? "start" : "middle";
      svg("text", { x: x(part * length), y: height - 21, "text-anchor": anchor }, grid, show(part * length, 1, true));
    }
    svg("text", { x: x(0), y: height - 3, "text-anchor": "middle" }, grid, "Δ = n − m, key minus query");
    const steps = Math.max(2, Math.round(width)), deltas = [];
    for (let i = 0; i <= steps; i++) deltas.push(-length + (2 * length * i) / steps);
    const xs = deltas.map(x);
    set(line, { d: path(xs, scoreCurve(deltas, pairs, base).map(y)) });
  };
  return (state) => {
    ({ length } = state);
    width = Math.max(200, Math.round(parent.clientWidth));
    height = parent.closest(".geo").clientWidth > 560 ? 300 : 220;
    const now = [width, height, length, state.pairs, state.base].join();
    if (now !== drawn) background(state);
    drawn = now;
    const delta = state.key - state.query, cx = x(delta).toFixed(2);
    const each = agreements(delta, state.pairs, state.base);
    each.forEach((value, i) => set(dots.children[i], { cx, cy: y(value).toFixed(2) }));
    set(stem, { x1: cx, x2: cx, y1: y(1), y2: y(-1) });
    set(mark, { transform: `translate(${cx} ${y(score(delta, state.pairs, state.base)).toFixed(2)})` });
    set(picture, { "aria-label": `Curve of the score against Δ, base ${state.base}: ${describe(state)}` });
  };
}

// Putting it together -------------------------------------------------------------------------------------------------

function render({ model, el }) {
  const place = stage({ model, el }, NAMES, CSS);
  const { change, read } = place;
  const clock = html("div", { class: "clock", role: "group", "aria-label": "The clock of RoPE" }, place.root);
  const area = (name) => html("div", { class: name, style: `grid-area: ${name}` }, clock), top = area("ask");
  ask(top, "Shift both by t. What will the mark on the curve do?");
  const bet = wager(top, [["up", "Rise"], ["down", "Fall"], ["stay", "Stay"]], () => stop.go());
  // In the order of a phone's screen, which is the order of the Tab key everywhere.
  const [left, places, together] = [area("face"), area("places"), area("together")];
  const [right, settings] = [area("curve"), area("settings")];

  const where = html("p", { class: "geo-say" }, left);
  const plain = "One ring a pair, the fastest outside.", note = html("p", { class: "geo-note" }, left, plain);
  let turned = 0; // where the dragged hand's position would be without its limits
  left.classList.add("geo-stay");
  const dial = face(left, (who, i, angle) => {
    const { base, pairs, length, [who]: position } = read();
    turned = angle === null ? position : turned + angle / frequencies(pairs, base)[i];
    if (angle !== null) change({ [who]: clamp(Math.round(turned * 100) / 100, 0, length) });
  });
  const what = html("p", { class: "geo-say" }, right);
  html("p", { class: "geo-note" }, right, "The mean of the pairs’ cosines (small dots).");
  const drawCurve = curve(right, (delta) => {
    const { key, length } = read();
    change(atDelta(key, Math.round(delta * 4) / 4, length));
  }, (lit) => {
    dial.light(lit);
    const { base, pairs, key, query } = read(), theta = frequencies(pairs, base)[lit];
    note.textContent = lit === null ? plain : `Pair ${lit + 1}: θ = ${show(theta, 3)}, `
      + `cos Δθ = ${show(Math.cos((key - query) * theta), 2)}.`;
  });

  const position = (parent, label, name, tone) =>
    slider(parent, { label, min: 0, step: 0.25, tone, onInput: (value) => change({ [name]: value }) });
  const query = position(places, "Query position m", "query", "warm");
  const key = position(places, "Key position n", "key", "cool");
  const stop = runner(together, {
    begin() { if (read().shift >= read().length) change({ shift: 0 }); },
    step(seconds, calm) {
      const { shift, length } = read(), next = Math.min(length, shift + (calm ? 1 : 2.5 * seconds));
      change({ shift: next });
      return next < length;
    },
  });
  const shift = position(together, "Shift both by t", "shift", "join");
  const answer = html("p", { class: "geo-note" }, together);
  const base = slider(settings, { label: "Base b", min: 0, step: 1, tone: "text",
    onInput: (index) => change({ base: BASES[index] }) });
  const pairs = slider(settings, { label: "Pairs d/2", min: 1, step: 1, tone: "text",
    onInput: (count) => change({ pairs: count }) });

  place.start((state) => {
    bet.update(Math.abs(state.shift - bet.since(state.shift)) >= 1, "stay");
    answer.textContent = bet.open ? "All hands turn; no opening changes, nor does the score."
      : "Query and key move by the same.";
    const number = (value) => show(value, 2, true), delta = state.key - state.query;
    query.update(state.query, number(state.query), state.length);
    key.update(state.key, number(state.key), state.length);
    shift.update(state.shift, number(state.shift), state.length);
    const near = BASES.map((b) => Math.abs(Math.log(b / state.base)));
    const unused = state.pairs === 1 ? ", unused" : ""; // the first pair turns by 1 whatever the base
    base.update(near.indexOf(Math.min(...near)), `${state.base}${unused}`, BASES.length - 1);
    pairs.update(state.pairs, String(state.pairs), MOST);
    const [m, n] = [number(state.query + state.shift), number(state.key + state.shift)];
    say(where, ["warm geo-full", ""], " query at ", ["warm", m], ", ", ["cool geo-ring", ""], " key at ", ["cool", n]);
    const value = show(score(delta, state.pairs, state.base));
    say(what, "Δ = n − m = ", ["join", number(delta)], ", score ", ["join", value]);
    dial.draw(state);
    drawCurve(state);
    place.speak(describe(state) + bet.said("stay"));
  }, { score: ({ key, query, pairs, base }) => score(key - query, pairs, base) });
  return () => {
    stop();
    place.close();
  };
}

export default { render };
