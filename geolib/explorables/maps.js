// Score maps of one sentence, nine ways to tell attention where words stand: mark those that will stand still, slide
// the sentence along its ruler, then pull it wider. A row for each query, a column for each key.
import { ask, clamp, drag, html, more, set, show, slider, svg } from "./common.js";
import { stage } from "./stage.js";
import { board } from "./draw.js";
import { apply, combine, dot, expm, skew } from "./algebra.js";

// Computing -----------------------------------------------------------------------------------------------------------
// Words, weights and frequencies are fixed; tests/test_maps.py computes the same with the library's encodings.

const WORDS = ["the", "big", "red", "dog", "ran", "to", "the", "sea"], N = WORDS.length;
const D = 8, PAIRS = D / 2, FIRST = 1, PLACES = 14, TRAINED = 10; // training saw the places 0 ... TRAINED - 1
const SETTINGS = { base: 100, slope: 0.3, scale: 0.86, gateBias: 2, span: 12 };
const ABSOLUTE = ["sines", "learned", "riemannformer", "liere-grid"], PLACELESS = ["none", "gates"];

/** Rows of numbers between -size and size, the same on every machine. */
function table(seed, rows, columns, size) {
  let state = seed;
  const next = () => { // mulberry32
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  return Array.from({ length: rows }, () => Array.from({ length: columns }, () => size * (2 * next() - 1)));
}

const OWN = table(3, N, D, 1.2);
const WEIGHTS = {
  x: WORDS.map((word) => OWN[WORDS.indexOf(word)]), // a word has the same features wherever it stands
  query: table(11, D, D, 0.9),
  key: table(12, D, D, 0.9),
  gate: table(13, 1, D, 0.9)[0],
  learned: table(14, TRAINED, D, 1.4),
  skew: table(15, 4, 6, 0.7), // block 1 along rows and columns, block 2 along rows and columns
};
const RATES = Array.from({ length: PAIRS }, (_, j) => SETTINGS.base ** (-j / PAIRS));
const ZETA = RATES.map((_, j) => (j / PAIRS + 0.4) / 1.4); // of xPos, one a pair

/** Queries and keys of the words as they are, or of what came in their place. */
const asking = (x) => x.map((each) => apply(WEIGHTS.query, each));
const answering = (x) => x.map((each) => apply(WEIGHTS.key, each));
const ASKS = asking(WEIGHTS.x), ANSWERS = answering(WEIGHTS.x);

/** q . k / sqrt d for all pairs; `plus(m, n)` is added. */
function scored(queries, keys, plus = () => 0) {
  return queries.map((q, m) => keys.map((k, n) => dot(q, k) / Math.sqrt(D) + plus(m, n)));
}

/** Each pair of x turned by its angle, made `length(j)` times as long. */
function turned(x, angles, length = () => 1) {
  return angles.flatMap((angle, j) => {
    const [c, s, f] = [Math.cos(angle), Math.sin(angle), length(j)];
    return [f * (c * x[2 * j] - s * x[2 * j + 1]), f * (s * x[2 * j] + c * x[2 * j + 1])];
  });
}

/** LieRE: queries and keys turned by two blocks of four, each word at its [row, column]. */
function liere(at) {
  const turns = at.map(([row, column]) => [0, 2].map((block) => (
    expm(combine(row, skew(WEIGHTS.skew[block], 4), column, skew(WEIGHTS.skew[block + 1], 4))))));
  const turn = (x, m) => turns[m].flatMap((matrix, b) => apply(matrix, x.slice(4 * b, 4 * b + 4)));
  return scored(ASKS.map(turn), ANSWERS.map(turn));
}

/** The cell of a table that a place is rounded to, a half to the even one. */
function cell(place) {
  const low = Math.floor(place), rest = place - low;
  return rest === 0.5 ? low + (low % 2) : Math.round(place);
}

/** On a grid the words stand in two rows of four. */
const inRows = (places) => places.map((_, m) => [Math.floor(m / 4), places[m % 4]]);

const FORMULAS = {
  none: () => scored(ASKS, ANSWERS),
  sines(places) { // pair j of what is added: the sine and the cosine of m theta_j
    const x = places.map((m, i) => WEIGHTS.x[i].map((value, f) => {
      const angle = m * RATES[f >> 1];
      return value + (f % 2 ? Math.cos(angle) : Math.sin(angle));
    }));
    return scored(asking(x), answering(x));
  },
  learned(places) { // past its table there is nothing to add, and no score
    const x = places.map((m, i) => WEIGHTS.x[i].map((value, f) => value + (WEIGHTS.learned[cell(m)]?.[f] ?? NaN)));
    return scored(asking(x), answering(x));
  },
  rope(places) {
    const turn = (x, i) => turned(x, RATES.map((rate) => places[i] * rate));
    return scored(ASKS.map(turn), ANSWERS.map(turn));
  },
  alibi: (places) => scored(ASKS, ANSWERS, (m, n) => -SETTINGS.slope * Math.abs(places[m] - places[n])),
  xpos(places) { // RoPE; pair j of a query at m is zeta_j^(m / span) times as long, that of a key zeta_j^(-m / span)
    const turn = (way) => (x, i) => turned(x, RATES.map((rate) => places[i] * rate),
      (j) => ZETA[j] ** ((way * places[i]) / SETTINGS.span));
    return scored(ASKS.map(turn(1)), ANSWERS.map(turn(-1)));
  },
  riemannformer(places) { // T_m^-1 = s^(m/2) R(-m theta), for queries and keys alike
    const back = (x, i) => turned(x, RATES.map((rate) => -places[i] * rate), () => SETTINGS.scale ** (places[i] / 2));
    return scored(ASKS.map(back), ANSWERS.map(back));
  },
  liere: (places) => liere(places.map((m) => [0, m])),
  gates() { // key n fades by the gate of each word after it, up to the query; later keys have no score
    const logs = WEIGHTS.x.map((x) => -Math.log1p(Math.exp(-dot(WEIGHTS.gate, x) - SETTINGS.gateBias)));
    const faded = (m, n) => (n > m ? NaN : logs.slice(n + 1, m + 1).reduce((sum, g) => sum + g, 0));
    return scored(ASKS, ANSWERS, faded);
  },
  "liere-grid": (places) => liere(inRows(places)),
};

/** All scores of a method with the words at these places, row by row; NaN where there is none. */
export function scores(method, places) {
  return FORMULAS[method](places).flat();
}

/** How wide a moved sentence can be pulled, and how far a wide one can be moved, on the ruler. */
const widest = (shift) => (PLACES - 1 - FIRST - shift) / (N - 1);
const farthest = (spread) => PLACES - 1 - FIRST - (N - 1) * spread;

/** Where the words stand when the sentence is moved by `shift`, neighbours `spread` apart; it stays on the ruler. */
export function placed(shift, spread) {
  return WORDS.map((_, i) => FIRST + Math.min(shift, farthest(spread)) + i * spread);
}

/** Which cells show what training never did: a place where places count, a distance where only distances do. */
export function fresh(method, places) {
  const at = method === "liere-grid" ? inRows(places).map(([, column]) => column) : places, last = TRAINED - 1 + 1e-9;
  const never = ABSOLUTE.includes(method) ? (m, n) => Math.max(m, n) > last
    : PLACELESS.includes(method) ? () => false : (m, n) => Math.abs(m - n) > last;
  return at.flatMap((m) => at.map((n) => never(m, n)));
}

/** The largest difference between two maps; what one of them lacks counts as 1. */
export function difference(a, b) {
  return Math.max(...a.map((x, i) => {
    if (Number.isNaN(x) || Number.isNaN(b[i])) return Number(Number.isNaN(x) !== Number.isNaN(b[i]));
    return Math.abs(x - b[i]);
  }));
}

/** Whether a step of the whole sentence changes a method's map. */
const moving = (method) => difference(scores(method, placed(0, 1)), scores(method, placed(1, 1))) > 1e-9;

// Drawing -------------------------------------------------------------------------------------------------------------

const NAMES = ["shift", "spread", "words"], TOP = 3; // the score that has the full colour
const METHODS = { // what each is called, and what sliding the sentence does to it
  none: ["none", "no place enters a score."],
  sines: ["sines", "only special weights would make it stand still."],
  learned: ["learned", "each place adds its own vector, up to the table's end."],
  rope: ["RoPE", "both words turn, their difference is left."],
  alibi: ["ALiBi", "distance alone costs."],
  xpos: ["xPos", "what the query loses, the key gains."],
  riemannformer: ["RiemannFormer", "a step multiplies every score by one number."],
  liere: ["LieRE", "along a line turns add up, as RoPE's."],
  gates: ["gates", "words in between fade a score, places do not."],
  "liere-grid": ["LieRE on a grid", "turns of rows and columns do not commute."],
};

export function given() {
  return { SETTINGS, WEIGHTS, RATES, ZETA, TRAINED, METHODS };
}

const CSS = `
.geo .maps { --step: calc((100cqw - 43px) / 14); }
.geo .maps :is(ul, li) { margin: 0; padding: 0; list-style: none; }
.geo .maps .strip { position: sticky; top: var(--geo-top, 0px); z-index: 2; padding: 6px 0 4px 6px; overflow: hidden;
  background: var(--ground); user-select: none; -webkit-user-select: none; }
.geo .maps .track { position: relative; height: 46px; }
.geo .maps .geo-reach { position: absolute; top: 2px; left: 0; height: 42px; color: var(--join); border: 2px solid;
  border-radius: 21px; background: color-mix(in srgb, var(--join) 14%, var(--ground)); }
.geo .maps .geo-reach:active { cursor: grabbing; }
.geo .maps .geo-reach span { pointer-events: none; }
.geo .maps .sled { margin-left: -6px; padding: 0 4px; box-sizing: content-box; height: 38px; }
.geo .maps .sled span { position: absolute; margin-left: 4px; top: 4px; width: var(--step); text-align: center;
  line-height: 18px; font-size: clamp(11px, 2.7cqw, 17px); color: var(--text); }
.geo .maps .sled .grip { top: 20px; left: 0; width: 100%; margin: 0; line-height: 16px; font-size: 16px;
  color: var(--join); }
.geo .maps .end { width: 26px; margin-left: 7px; display: flex; align-items: center; justify-content: center;
  visibility: hidden; }
.geo .maps.open .end { visibility: visible; }
.geo .maps .ruler { display: grid; grid-template-columns: repeat(14, var(--step)); text-align: center; font-size: 11px;
  line-height: 15px; color: var(--soft); }
.geo .maps .ruler span { grid-row: 1; border-top: 3px solid var(--soft); }
.geo .maps .ruler .never { border-top-style: dotted; }
.geo .maps .ruler b { grid-row: 2; grid-column: calc(var(--from) + 1) / calc(var(--to) + 1); font-weight: 400; }
.geo .maps .geo-say { padding: 2px 0 6px; font-size: 15px; }
.geo .maps .wall { display: grid; grid-template-columns: repeat(5, minmax(0, 1fr)); gap: 10px 13px; }
.geo .maps .wall :is(li, p) { margin: 0; }
.geo .maps .wall > li { min-width: 0; font-size: 12px; line-height: 1.3; }
.geo .maps .name { font-weight: 700; line-height: 24px; white-space: nowrap; }
.geo .maps .geo-board { cursor: pointer; box-shadow: 0 0 0 1px var(--line); }
.geo .maps [data-verdict="still"] .geo-board { box-shadow: 0 0 0 2px var(--join); }
.geo .maps .geo-board path { stroke: var(--text); fill: none; }
.geo .maps .foot { min-height: 68px; padding-top: 4px; }
.geo .maps .foot p::first-letter { text-transform: uppercase; }
.geo .maps [data-verdict="still"] .verdict { color: var(--join); }
.geo .maps [data-guess="right"] .verdict::after { content: " ✓"; }
.geo .maps [data-guess="wrong"] .verdict::after { content: " ✗"; color: var(--warm); }
.geo .maps button[hidden] { display: none; }
.geo .maps .foot button { width: 100%; min-height: 40px; padding: 2px; border-radius: 6px; font-weight: 500; }
.geo .maps .foot button[aria-pressed="true"] { background: var(--join); border-color: var(--join); font-weight: 700; }
.geo .maps .name button { min-height: 24px; padding: 0 6px; margin-left: 5px; font-size: 11.5px; font-weight: 400;
  line-height: 1.3; vertical-align: top; }
.geo .maps :is(a, button) { scroll-margin-top: 7rem; }
.geo .maps .key { display: flex; flex-flow: column; gap: 3px 16px; padding-top: 24px; color: var(--soft); }
.geo .maps .key i { display: inline-block; width: 14px; height: 14px; vertical-align: -2px;
  box-shadow: 0 0 0 1px var(--line); }
.geo .maps .key .scale { width: 42px; background: linear-gradient(to right, var(--cool), var(--ground), var(--warm)); }
.geo .maps .key .hatch { background: repeating-linear-gradient(-45deg, var(--text) 0 1px, transparent 1px 5px); }
@container (max-width: 560px) {
  .geo .maps .wall { grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 8px; }
  .geo .maps .wall > .key { grid-column: 1 / -1; flex-flow: row wrap; padding: 0; }
  .geo .maps .geo-say { min-height: 3.2em; display: flex; align-items: center; }
}`;

/** The sentence over its ruler: `move` gets values to change; `draw(values, open)` places it. */
function sentence(parent, now, move) {
  const strip = html("div", { class: "strip" }, parent), track = html("div", { class: "track" }, strip);
  const sled = html("div", { class: "sled geo-reach" }, track), end = html("div", { class: "end geo-reach" }, track);
  const words = WORDS.map((word) => html("span", {}, sled, word));
  html("span", { class: "grip", "aria-hidden": "true" }, sled, "↔");
  html("span", { "aria-hidden": "true" }, end, "⇥");
  const ruler = html("div", { class: "ruler", "aria-hidden": "true" }, strip);
  for (let m = 0; m < PLACES; m++) html("span", m < TRAINED ? {} : { class: "never" }, ruler, String(m));
  html("b", { style: `--from: 0; --to: ${TRAINED}` }, ruler, "places seen in training");
  html("b", { style: `--from: ${TRAINED}; --to: ${PLACES}` }, ruler, "never seen");

  let from = null;
  drag(track, {
    start(x) { // the end lies to the right of the sentence
      const { shift, spread } = now(), places = placed(shift, spread), step = ruler.firstChild.offsetWidth;
      const right = (places[N - 1] + 1) * step + 6, more = getComputedStyle(end).visibility === "visible" ? 34 : 0;
      if (x < places[0] * step - 6 || x > right + more) return false;
      from = { x, step, shift: places[0] - FIRST, spread, pull: x > right };
      return true;
    },
    move(x) {
      const way = (x - from.x) / from.step;
      if (from.pull) move({ spread: clamp(from.spread + way / (N - 1), 0.5, widest(from.shift)) });
      else move({ shift: clamp(from.shift + way, -FIRST, farthest(from.spread)) });
    },
  });
  const at = (place) => `calc(${place.toFixed(3)} * var(--step))`;
  return (places) => {
    sled.style.transform = `translateX(${at(places[0])})`;
    end.style.transform = `translateX(${at(places[N - 1] + 1)})`;
    sled.style.width = at(places[N - 1] - places[0] + 1);
    words.forEach((word, i) => { word.style.left = at(places[i] - places[0]); });
  };
}

/** One map with its guess: `draw(method, places, home)`, `reveal(method, guessed)`, `askAgain()`; what it `marked`. */
function card(parent, first) {
  const item = html("li", {}, parent), head = html("p", { class: "name" }, item, METHODS[first][0]);
  const { canvas, draw, picture, fit } = board(item, {}), lines = svg("path", {}, picture);
  const foot = html("div", { class: "foot" }, item);
  const guess = html("button", { type: "button", "aria-label": `${METHODS[first][0]} stands still` }, foot);
  const verdict = html("b", { class: "verdict" }, foot), why = html("p", {}, foot);
  const it = { head, marked: false };
  const mark = (on) => {
    it.marked = on;
    set(guess, { "aria-pressed": String(on) });
    guess.textContent = on ? "✓ still" : "still?";
  };
  for (const part of [guess, picture]) part.addEventListener("click", () => { if (!guess.hidden) mark(!it.marked); });
  it.askAgain = () => {
    mark(false);
    guess.hidden = false;
    for (const name of ["verdict", "guess"]) delete item.dataset[name];
    verdict.textContent = why.textContent = "";
  };
  it.reveal = (method, guessed) => {
    guess.hidden = true;
    verdict.textContent = moving(method) ? "moves" : "stands still";
    item.dataset.verdict = moving(method) ? "moves" : "still";
    if (guessed) item.dataset.guess = it.marked === moving(first) ? "wrong" : "right";
    why.textContent = METHODS[method][1];
    // The page that lists the reasons has links in them.
    const told = document.querySelectorAll(".maps-why li")[Object.keys(METHODS).indexOf(method)];
    if (!told) return;
    why.replaceChildren(...(told.querySelector("p") ?? told).cloneNode(true).childNodes);
    why.querySelector("strong").remove();
    why.firstChild.textContent = why.firstChild.textContent.replace(/^:\s*/, "");
  };
  it.draw = (method, places, home) => {
    const values = scores(method, places), never = fresh(method, places), { cell: side } = fit(N, N);
    draw(values.map((value) => Math.round((1e6 * (value || 0)) / TOP) / 1e6), N); // rounding moves no pixel
    set(lines, { "stroke-width": Math.max(1, side / 12), d: values.map((value, i) => {
      const x = (i % N) * side, y = Math.floor(i / N) * side;
      if (never[i]) return `M${x} ${y + side / 2}L${x + side / 2} ${y}M${x} ${y + side}L${x + side} ${y}`
        + `M${x + side / 2} ${y + side}L${x + side} ${y + side / 2}`;
      return Number.isNaN(value) ? `M${x + side / 2 - 1} ${y + side / 2}h2` : "";
    }).join("") });
    const moved = places[0] === home[0] ? "" : show(difference(values, scores(method, home)));
    set(canvas, { "aria-label": `${METHODS[method][0]}: scores of ${N} words with each other`
      + (moved && `, changed by the slide by up to ${moved}`) });
  };
  it.askAgain();
  return it;
}

// Putting it together -------------------------------------------------------------------------------------------------

function render({ model, el }) {
  const place = stage({ model, el }, NAMES, CSS), root = html("div", { class: "maps" }, place.root);
  ask(root, "Slide the sentence along. Which of these stand still?");
  const slide = sentence(root, place.read, place.change), said = html("p", { class: "geo-say" }, root);
  const wall = html("ul", { class: "wall" }, root);
  const shown = Object.keys(METHODS).filter((method) => method !== "liere-grid");
  const cards = shown.map((method) => [method, card(wall, method)]);
  const key = html("li", { class: "key" }, wall);
  for (const [kind, low, text] of [["scale", "− ", " + score"], ["hatch", "", " never seen"], ["", "", " no score"]]) {
    html("p", {}, key, low).append(html("i", { class: kind }), text);
  }
  const extra = html("span", {}, cards[shown.indexOf("liere")][1].head);
  const grid = html("button", { type: "button" }, extra, "on a grid");
  grid.addEventListener("click", () => place.change({ words: place.read().words === "line" ? "grid" : "line" }));
  const along = slider(html("div", { class: "geo-controls" }, root), { label: "Places moved", min: -FIRST,
    step: 0.25, tone: "join", onInput: (shift) => place.change({ shift }) });
  const apart = slider(more(root), { label: "Places from word to word", min: 0.5, step: 0.05, tone: "join",
    onInput: (spread) => place.change({ spread }) });

  let open = false, pause = 0;
  const of = (method, words) => (method === "liere" && words === "grid" ? "liere-grid" : method);
  const result = () => {
    const right = cards.filter(([method, { marked }]) => marked !== moving(method)).length;
    return cards.some(([, { marked }]) => marked) ? `You were right (✓) on ${right} of ${cards.length}. ` : "";
  };
  const rest = (floor, top, step) => floor + Math.floor((top - floor) / step + 1e-9) * step;
  place.root.addEventListener("geo-reset", () => {
    open = false;
    cards.forEach(([, each]) => each.askAgain());
  });
  const draw = ({ shift, spread, words }) => {
    const places = placed(shift, spread), home = placed(0, spread), moved = places[0] - FIRST;
    slide(places);
    for (const [method, each] of cards) {
      each.draw(of(method, words), places, home);
      if (open) each.reveal(of(method, words), result() !== "");
    }
    root.classList.toggle("open", open);
    extra.hidden = !open;
    set(grid, { "aria-pressed": String(words === "grid") });
    said.textContent = !open ? "Mark your guesses, then slide the sentence."
      : spread === 1 ? `${result()}Now pull the sentence wider by its end.`
        : "Hatched: places, or distances, that training never saw.";
    along.update(moved, show(moved, 2, true), rest(-FIRST, farthest(spread), 0.25));
    apart.update(spread, show(spread, 2, true), rest(0.5, widest(moved), 0.05));
    place.speak(`${said.textContent} Moved by ${show(moved, 2, true)} places, words ${show(spread, 2, true)} apart.`);
    clearTimeout(pause);
    if (!open && Math.abs(moved) >= 0.75) pause = setTimeout(() => { open = true; draw(place.read()); }, 300);
  };
  place.start(draw);
  return () => {
    clearTimeout(pause);
    place.close();
  };
}

export default { render };
